//! What came at once as few deltas: some servers, and proxies that hold an
//! answer back, send thousands of words together, and whoever follows a turn
//! need not be told of each. Around any dialect's decoder; changes no content.

use super::{Decoder, Delta, Fault};

/// A decoder whose deltas are joined, where several came at once.
pub(super) struct Joined(pub(super) Box<dyn Decoder>);

impl Decoder for Joined {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let mut pieces = Vec::new();
        let fed = self.0.feed(bytes, &mut pieces);
        pieces.into_iter().for_each(|it| join(deltas, it));
        fed
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let mut pieces = Vec::new();
        let ended = self.0.end(&mut pieces);
        pieces.into_iter().for_each(|it| join(deltas, it));
        ended
    }

    fn is_done(&self) -> bool {
        self.0.is_done()
    }
}

/// Adds a delta, to the last one if both are text or both are thinking.
fn join(joined: &mut Vec<Delta>, delta: Delta) {
    match (joined.last_mut(), delta) {
        (Some(Delta::Text(it)), Delta::Text(more))
        | (Some(Delta::Thinking(it)), Delta::Thinking(more)) => it.push_str(&more),
        (_, delta) => joined.push(delta),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::tests::reading::Saying;

    #[track_caller]
    fn check(said: &[Delta], want: &[Delta]) {
        let mut decoder = Joined(Box::new(Saying::of(said).and_failing(Fault::Cut("here".into()))));
        let mut told = Vec::new();
        assert!(decoder.end(&mut told).is_ok());
        assert_eq!(told, want);
        told.clear();
        assert!(decoder.feed(b"x", &mut told).is_err(), "what is wrong is passed on");
        assert_eq!(told, want, "and what came before it");
    }

    #[test]
    fn words_that_come_at_once_are_told_at_once() {
        let text = |it: &str| Delta::Text(it.into());
        let thinking = |it: &str| Delta::Thinking(it.into());
        let signature = || Delta::Signature("s".into());
        let words = [text("a"), text("b"), thinking("c"), thinking("d"), text("e")];
        check(&words, &[text("ab"), thinking("cd"), text("e")]);
        let parted = [text("a"), signature(), text("b"), signature(), signature()];
        check(&parted, &parted);
        check(&[], &[]);
    }
}
