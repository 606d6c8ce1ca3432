//! No answer longer than a session takes, around any dialect's decoder: what is
//! told of it is measured as it will be stored, and its blocks are counted. One
//! that is too long fails its call, and what came before in it stays.

use std::collections::HashSet;

use super::body::broken;
use super::events::MOST_BLOCKS;
use super::{CallPiece, Decoder, Delta, Fault};
use crate::message::{LONGEST_MESSAGE, stored_length};

/// A decoder whose answer has at most [`LONGEST_MESSAGE`] bytes and
/// [`MOST_BLOCKS`] blocks: who follows it may be told all of them with each piece.
pub(super) struct Measured {
    inner: Box<dyn Decoder>,
    provider: String,
    length: usize,
    blocks: usize,
    /// What goes on without a new block.
    open: Open,
    slots: HashSet<u64>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Open {
    #[default]
    Nothing,
    Text,
    Thinking,
}

impl Decoder for Measured {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let from = deltas.len();
        let fed = self.inner.feed(bytes, deltas);
        self.measure(from, deltas)?;
        fed
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let from = deltas.len();
        let ended = self.inner.end(deltas);
        self.measure(from, deltas)?;
        ended
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }
}

impl Measured {
    pub(super) fn new(provider: &str, inner: Box<dyn Decoder>) -> Self {
        let (provider, open, slots) = (provider.to_owned(), Open::Nothing, HashSet::new());
        Self { inner, provider, length: 0, blocks: 0, open, slots }
    }

    /// Counts what has just come; what does not fit is told no more.
    fn measure(&mut self, from: usize, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for place in from..deltas.len() {
            self.length = self.length.saturating_add(self.length_of(&deltas[place]));
            if self.length > LONGEST_MESSAGE {
                deltas.truncate(place);
                let what = format!(
                    "it is longer than {LONGEST_MESSAGE} bytes, the most of a message of a session"
                );
                return Err(broken(&self.provider, &what));
            }
            if self.blocks > MOST_BLOCKS {
                deltas.truncate(place);
                let what = format!("it has more than {MOST_BLOCKS} blocks");
                return Err(broken(&self.provider, &what));
            }
        }
        Ok(())
    }

    fn length_of(&mut self, delta: &Delta) -> usize {
        match delta {
            Delta::Text(it) => {
                self.say(Open::Text);
                stored_length(it)
            }
            Delta::Thinking(it) => {
                self.say(Open::Thinking);
                stored_length(it)
            }
            Delta::Redacted(it) => {
                self.begin(Open::Nothing);
                stored_length(it)
            }
            Delta::Signature(it) => {
                self.open = Open::Nothing;
                stored_length(it)
            }
            Delta::ToolCall(piece) => self.piece(piece),
            Delta::Anew(_) | Delta::Usage(_) | Delta::Stop(_) | Delta::Mark(_) => 0,
        }
    }

    /// More of what is open, or a block of that kind.
    fn say(&mut self, kind: Open) {
        if self.open != kind {
            self.begin(kind);
        }
    }

    fn begin(&mut self, open: Open) {
        self.open = open;
        self.blocks += 1;
    }

    /// Arguments are JSON already.
    fn piece(&mut self, piece: &CallPiece) -> usize {
        if self.slots.insert(piece.slot) {
            self.begin(Open::Nothing);
        }
        let words = [&piece.id, &piece.name].into_iter().flatten();
        words.map(|it| stored_length(it)).sum::<usize>() + piece.arguments.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::tests::reading::Saying;

    /// How often that can be said, and that it is then refused for good.
    #[track_caller]
    fn check(said: &[Delta], want: std::ops::RangeInclusive<usize>) {
        let mut decoder = Measured::new("acme", Box::new(Saying::of(said)));
        let mut deltas = Vec::new();
        let fits = (0..=*want.end()).take_while(|_| decoder.feed(b"", &mut deltas).is_ok());
        let fits = fits.count();
        assert!(want.contains(&fits), "{fits} times");
        assert_eq!(deltas.len() / said.len(), fits, "what does not fit is not told");
        let refused = decoder.feed(b"", &mut deltas);
        assert!(matches!(refused, Err(Fault::Unavailable(it)) if it.contains("acme")));
    }

    #[test]
    fn what_is_said_counts_as_it_is_stored() {
        let megabyte = 1 << 20;
        check(&[Delta::Text("x".repeat(megabyte))], 15..=16);
        check(&[Delta::Thinking("\"".repeat(megabyte))], 7..=8);
        check(&[Delta::Text("\0".repeat(megabyte))], 2..=3);
        check(&[Delta::Signature("x".repeat(megabyte))], 15..=16);
        let arguments = "\\\"".repeat(megabyte / 2);
        check(&[Delta::ToolCall(CallPiece { arguments, ..CallPiece::default() })], 15..=16);
    }

    #[test]
    fn blocks_are_counted() {
        let (text, thought) = (|| Delta::Text("x".into()), || Delta::Thinking("x".into()));
        let redacted = || Delta::Redacted("x".into());
        check(&[text(), thought()], MOST_BLOCKS / 2..=MOST_BLOCKS / 2);
        check(&[redacted()], MOST_BLOCKS..=MOST_BLOCKS);
        check(&[text(), Delta::Signature("x".into())], MOST_BLOCKS..=MOST_BLOCKS);
        let call = |slot| Delta::ToolCall(CallPiece { slot, ..CallPiece::default() });
        let calls: Vec<Delta> = (0..1_000).map(call).collect();
        let mut decoder = Measured::new("acme", Box::new(Saying::of(&calls)));
        for _ in 0..1_000 {
            assert!(decoder.feed(b"", &mut Vec::new()).is_ok(), "pieces of calls that are there");
        }
    }
}
