//! No known secret in what is told of an answer, also where it is said in
//! several pieces.

use std::collections::HashMap;

use super::ChatEvent;
use crate::provider::{CallPiece, Delta};
use crate::secret::{MaskedStream, Redactor};

/// Between a model and who listens: no piece shows a known secret, also where
/// it is said in several. Every delta is passed on in its place, if need be
/// with less text in it, so that the blocks that the pieces make stay the same.
pub(super) struct Veil<'a> {
    redactor: &'a Redactor,
    tell: &'a mut dyn FnMut(ChatEvent),
    said: MaskedStream,
    is_thinking: bool,
    /// The arguments of each call.
    calls: HashMap<u64, MaskedStream>,
}

impl<'a> Veil<'a> {
    /// Nothing has been said yet.
    pub(super) fn new(redactor: &'a Redactor, tell: &'a mut dyn FnMut(ChatEvent)) -> Self {
        let said = MaskedStream::new(redactor);
        Self { redactor, tell, said, is_thinking: false, calls: HashMap::new() }
    }

    /// Passes a delta on.
    pub(super) fn pass(&mut self, delta: &Delta) {
        match delta {
            Delta::Text(piece) => self.say(piece, false),
            Delta::Thinking(piece) => self.say(piece, true),
            Delta::ToolCall(piece) => self.call(piece),
            other => {
                // Opaque data is of what was said before it.
                self.release();
                self.piece(other.clone());
            }
        }
    }

    /// Nothing more has come by now.
    pub(super) fn wait(&mut self) {
        (self.tell)(ChatEvent::Lull);
    }

    /// Tells what is held: nothing more comes.
    pub(super) fn end(&mut self) {
        self.release();
        let mut calls: Vec<(u64, MaskedStream)> = self.calls.drain().collect();
        calls.sort_by_key(|it| it.0);
        for (slot, mut held) in calls {
            let arguments = held.rest();
            if !arguments.is_empty() {
                let piece = CallPiece { slot, arguments, ..CallPiece::default() };
                self.piece(Delta::ToolCall(piece));
            }
        }
    }

    fn say(&mut self, piece: &str, is_thinking: bool) {
        if self.is_thinking != is_thinking {
            self.release();
            self.is_thinking = is_thinking;
        }
        let told = self.said.take(piece);
        self.tell_said(told);
    }

    fn release(&mut self) {
        let told = self.said.rest();
        if !told.is_empty() {
            self.tell_said(told);
        }
    }

    fn tell_said(&mut self, told: String) {
        self.piece(if self.is_thinking { Delta::Thinking(told) } else { Delta::Text(told) });
    }

    fn call(&mut self, piece: &CallPiece) {
        // More of a call that is there parts no text.
        if !self.calls.contains_key(&piece.slot) {
            self.release();
        }
        let redactor = self.redactor;
        let held = self.calls.entry(piece.slot).or_insert_with(|| MaskedStream::new(redactor));
        let arguments = held.take(&piece.arguments);
        let masked = |it: &String| redactor.mask(it).into_owned();
        let (id, name) = (piece.id.as_ref().map(masked), piece.name.as_ref().map(masked));
        self.piece(Delta::ToolCall(CallPiece { slot: piece.slot, id, name, arguments }));
    }

    fn piece(&mut self, delta: Delta) {
        (self.tell)(ChatEvent::Piece(delta));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::StopReason;

    #[track_caller]
    fn check(deltas: &[Delta], want: &[Delta]) {
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        let mut told = Vec::new();
        let mut tell = |event| match event {
            ChatEvent::Piece(delta) => told.push(delta),
            other => panic!("{other:?}"),
        };
        let mut veil = Veil::new(&redactor, &mut tell);
        deltas.iter().for_each(|it| veil.pass(it));
        veil.end();
        assert_eq!(told, want);
    }

    fn text(text: &str) -> Delta {
        Delta::Text(text.into())
    }

    fn piece(slot: u64, id: Option<&str>, arguments: &str) -> Delta {
        let (id, arguments) = (id.map(str::to_owned), arguments.to_owned());
        Delta::ToolCall(CallPiece { slot, name: id.clone(), id, arguments })
    }

    #[test]
    fn what_is_no_secret_passes_as_it_is() {
        let deltas = [
            text("a"),
            Delta::Thinking("b".into()),
            Delta::Signature("s".into()),
            text(""),
            piece(0, Some("c"), "{\"x\""),
            Delta::Redacted("r".into()),
            piece(0, None, ": 1}"),
            Delta::Stop(StopReason::ToolUse),
        ];
        check(&deltas, &deltas);
    }

    #[test]
    fn a_secret_in_pieces_is_never_told() {
        for cut in 1..10 {
            let (first, second) = "s3cret-key".split_at(cut);
            check(&[text(first), text(second)], &[text(""), text("••••")]);
            let begin = piece(0, Some("c"), "");
            let calls = [begin.clone(), piece(0, None, first), piece(0, None, second)];
            check(&calls, &[begin, piece(0, None, ""), piece(0, None, "••••")]);
        }
    }

    #[test]
    fn what_is_held_is_told_before_what_parts_it() {
        let stop = Delta::Stop(StopReason::Stop);
        check(&[text("a s3"), stop.clone()], &[text("a "), text("s3"), stop]);
        let call = piece(0, Some("c"), "");
        check(&[text("s3"), call.clone()], &[text(""), text("s3"), call.clone()]);
        check(
            &[call.clone(), text("s3"), call.clone()],
            &[call.clone(), text(""), call, text("s3")],
        );
    }

    #[test]
    fn secrets_in_mixed_pieces_of_calls_are_masked_in_each() {
        let deltas = [
            piece(0, Some("s3cret-key"), "s3cr"),
            piece(1, Some("b"), "s3cret"),
            piece(0, None, "et-key!"),
            piece(1, None, "-k"),
        ];
        let want = [
            piece(0, Some("••••"), ""),
            piece(1, Some("b"), ""),
            piece(0, None, "••••!"),
            piece(1, None, ""),
            piece(1, None, "s3cret-k"),
        ];
        check(&deltas, &want);
    }
}
