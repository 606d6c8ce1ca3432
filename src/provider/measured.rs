//! No answer longer than a session takes, around any dialect's decoder: what is
//! told of it is measured as it will be stored, block by block. One that is too
//! long fails its call, and what came before in it stays.

use std::collections::HashSet;

use super::body::broken;
use super::{CallPiece, Decoder, Delta, Fault};
use crate::message::{LONGEST_MESSAGE, stored_length};

/// What a block takes beside what it says, in the file and in memory.
const BLOCK: usize = 256;

/// A decoder whose answer has at most [`LONGEST_MESSAGE`] bytes.
pub(super) struct Measured {
    inner: Box<dyn Decoder>,
    provider: String,
    length: usize,
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
        Self { inner, provider, length: 0, open, slots }
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
        }
        Ok(())
    }

    fn length_of(&mut self, delta: &Delta) -> usize {
        match delta {
            Delta::Text(it) => self.block(Open::Text) + stored_length(it),
            Delta::Thinking(it) => self.block(Open::Thinking) + stored_length(it),
            Delta::Redacted(it) => {
                self.open = Open::Nothing;
                BLOCK + stored_length(it)
            }
            Delta::Signature(it) => {
                self.open = Open::Nothing;
                stored_length(it)
            }
            Delta::ToolCall(piece) => self.piece(piece),
            Delta::Usage(_) | Delta::Stop(_) | Delta::Mark(_) => 0,
        }
    }

    /// What a block takes, if one begins.
    fn block(&mut self, next: Open) -> usize {
        let is_new = std::mem::replace(&mut self.open, next) != next;
        if is_new { BLOCK } else { 0 }
    }

    /// Arguments are JSON already.
    fn piece(&mut self, piece: &CallPiece) -> usize {
        let words = [&piece.id, &piece.name].into_iter().flatten();
        let said = words.map(|it| stored_length(it)).sum::<usize>() + piece.arguments.len();
        if !self.slots.insert(piece.slot) {
            return said;
        }
        self.open = Open::Nothing;
        said + BLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says the same at every feed.
    struct Saying(Vec<Delta>);

    impl Decoder for Saying {
        fn feed(&mut self, _: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
            deltas.extend(self.0.clone());
            Ok(())
        }

        fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), Fault> {
            Ok(())
        }
    }

    /// How often that can be said, and that it is then refused for good.
    #[track_caller]
    fn check(said: &[Delta], want: std::ops::RangeInclusive<usize>) {
        let mut decoder = Measured::new("acme", Box::new(Saying(said.to_vec())));
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
    fn a_block_counts_beside_what_it_says() {
        let text = || Delta::Text("x".into());
        check(&[text(), Delta::Thinking("x".into())], 30_000..=33_000);
        check(&[Delta::Redacted("x".into())], 60_000..=66_000);
        check(&[text(), Delta::Signature("x".into())], 60_000..=66_000);
        let call = |slot| Delta::ToolCall(CallPiece { slot, ..CallPiece::default() });
        let calls: Vec<Delta> = (0..1_000).map(call).collect();
        let mut decoder = Measured::new("acme", Box::new(Saying(calls)));
        for _ in 0..1_000 {
            assert!(decoder.feed(b"", &mut Vec::new()).is_ok(), "pieces of calls that are there");
        }
    }
}
