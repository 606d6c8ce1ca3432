//! No known secret in what is told of an answer, also where it is said in
//! several pieces with others between them, or in the arguments of a call with
//! escapes that it does not need.

use std::collections::BTreeMap;

use super::ChatEvent;
use crate::provider::{CallPiece, Delta};
use crate::secret::{JsonSpelling, MaskedStreams, Redactor};

/// Between a model and who listens: every delta is passed on in its place, if
/// need be with less text in it, so that the blocks that the pieces make stay
/// the same. What could be the beginning of a secret waits for the next piece of
/// its kind and is told with that, also where that is in a later block; what
/// waits at the end is told there, in a block of its own if its last one has
/// ended. The message that is told whole has all of it in its place.
pub(super) struct Veil<'a> {
    redactor: &'a Redactor,
    tell: &'a mut dyn FnMut(ChatEvent),
    said: MaskedStreams<Kind>,
    /// Arguments are told in one spelling, by the slot of their call.
    spellings: BTreeMap<u64, JsonSpelling>,
}

/// What a model says in pieces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Text,
    Thinking,
    /// The arguments of the call of that slot.
    Call(u64),
}

impl<'a> Veil<'a> {
    /// Nothing has been said yet.
    pub(super) fn new(redactor: &'a Redactor, tell: &'a mut dyn FnMut(ChatEvent)) -> Self {
        let (said, spellings) = (MaskedStreams::new(redactor), BTreeMap::new());
        Self { redactor, tell, said, spellings }
    }

    /// Passes a delta on.
    pub(super) fn pass(&mut self, delta: &Delta) {
        let masked = match delta {
            Delta::Text(piece) => Delta::Text(self.said.take(Kind::Text, piece)),
            Delta::Thinking(piece) => Delta::Thinking(self.said.take(Kind::Thinking, piece)),
            Delta::ToolCall(piece) => Delta::ToolCall(self.call(piece)),
            other => other.clone(),
        };
        (self.tell)(ChatEvent::Piece(masked));
    }

    /// Nothing more has come by now.
    pub(super) fn wait(&mut self) {
        (self.tell)(ChatEvent::Lull);
    }

    /// Tells what is held: nothing more comes.
    pub(super) fn end(&mut self) {
        for (slot, spelling) in &mut self.spellings {
            let kind = Kind::Call(*slot);
            let told = self.said.take(kind, &spelling.rest());
            if !told.is_empty() {
                (self.tell)(ChatEvent::Piece(kind.delta(told)));
            }
        }
        for (kind, rest) in self.said.rest() {
            (self.tell)(ChatEvent::Piece(kind.delta(rest)));
        }
    }

    fn call(&mut self, piece: &CallPiece) -> CallPiece {
        let masked = |it: &String| self.redactor.mask(it).into_owned();
        let (id, name) = (piece.id.as_ref().map(masked), piece.name.as_ref().map(masked));
        let spelt = self.spellings.entry(piece.slot).or_default().take(&piece.arguments);
        let arguments = self.said.take(Kind::Call(piece.slot), &spelt);
        CallPiece { slot: piece.slot, id, name, arguments }
    }
}

impl Kind {
    fn delta(self, text: String) -> Delta {
        match self {
            Self::Text => Delta::Text(text),
            Self::Thinking => Delta::Thinking(text),
            Self::Call(slot) => {
                Delta::ToolCall(CallPiece { slot, arguments: text, ..CallPiece::default() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::StopReason;

    #[track_caller]
    fn check(deltas: &[Delta], want: &[Delta]) {
        assert_eq!(told(deltas), want);
    }

    fn told(deltas: &[Delta]) -> Vec<Delta> {
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
        told
    }

    fn text(text: &str) -> Delta {
        Delta::Text(text.into())
    }

    fn thinking(text: &str) -> Delta {
        Delta::Thinking(text.into())
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

    /// However arguments are cut and their escapes written: what is told of them
    /// reads as what they are, masked, at every moment.
    #[test]
    fn a_secret_with_escapes_is_never_told() {
        let whole = r#"{"command":"echo \u00733cret\u002dkey \/ \u003c\n","\u00733cret-key":"é"}"#;
        for cut in (0..=whole.len()).filter(|it| whole.is_char_boundary(*it)) {
            let (first, second) = whole.split_at(cut);
            let told = told(&[piece(0, Some("c"), first), piece(0, None, second)]);
            let arguments = told.iter().map(|it| match it {
                Delta::ToolCall(it) => it.arguments.as_str(),
                _ => "",
            });
            let want = r#"{"command":"echo •••• / <\n","••••":"é"}"#;
            assert_eq!(arguments.collect::<String>(), want, "{cut}");
        }
        let half = piece(0, Some("c"), r"{\u00");
        check(&[half], &[piece(0, Some("c"), "{"), piece(0, None, r"\u00")]);
    }

    /// Cut in three anywhere, with any other delta in between: every delta has
    /// its place, and of the secret nothing is told but its mask.
    #[test]
    fn a_secret_around_any_other_delta_is_never_told() {
        let deltas = |text: &str| [self::text(text), thinking(text), piece(0, None, text)];
        let others = [
            self::text("hm"),
            thinking("hm"),
            Delta::Signature("s".into()),
            Delta::Redacted("r".into()),
            piece(0, Some("c"), "hm"),
            piece(1, Some("d"), ""),
            Delta::Stop(StopReason::Stop),
        ];
        let is_same = |one: &Delta, other: &Delta| match (one, other) {
            (Delta::ToolCall(one), Delta::ToolCall(other)) => one.slot == other.slot,
            _ => std::mem::discriminant(one) == std::mem::discriminant(other),
        };
        for (first, second, third) in cuts("s3cret-key") {
            let of_kinds = deltas(first).into_iter().zip(deltas(second)).zip(deltas(third));
            for (kind, ((first, second), last)) in of_kinds.enumerate() {
                for other in others.iter().filter(|it| !is_same(it, &first)) {
                    let said =
                        [first.clone(), other.clone(), second.clone(), other.clone(), last.clone()];
                    let (none, mask) = (&deltas("")[kind], &deltas("••••")[kind]);
                    let (whole, rest) = if third.is_empty() { (mask, none) } else { (none, mask) };
                    check(
                        &said,
                        &[none.clone(), other.clone(), whole.clone(), other.clone(), rest.clone()],
                    );
                }
            }
        }
    }

    /// Every way to cut a text in two, and in three.
    fn cuts(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
        (1..text.len()).flat_map(move |second| {
            let (head, third) = text.split_at(second + 1);
            (1..=second).map(move |first| (&head[..first], &head[first..], third))
        })
    }

    #[test]
    fn what_is_held_waits_for_more_of_its_kind() {
        let stop = Delta::Stop(StopReason::Stop);
        let call = piece(0, Some("c"), "");
        check(
            &[text("a s3"), thinking("s3"), call.clone(), text("at"), stop.clone()],
            &[text("a "), thinking(""), call.clone(), text("s3at"), stop, thinking("s3")],
        );
        check(
            &[text("s3"), thinking("s"), piece(0, None, "s3"), call.clone()],
            &[
                text(""),
                thinking(""),
                piece(0, None, ""),
                call,
                text("s3"),
                thinking("s"),
                piece(0, None, "s3"),
            ],
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
