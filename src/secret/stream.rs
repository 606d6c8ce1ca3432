//! Texts on their way out in pieces, masked. What could be the beginning of a
//! secret is held back until it is one or is none, so that no secret is told by
//! its parts. What must be told before that is remembered: what follows it then
//! makes no whole secret with it.

use std::collections::BTreeMap;
use std::mem;

use super::{Redactor, without};

/// One text in pieces.
#[derive(Debug)]
pub struct MaskedStream {
    redactor: Redactor,
    /// What could be the beginning of a secret.
    held: String,
    /// How much of that has been told all the same, in bytes.
    told: usize,
}

/// Several texts whose pieces come mixed: those between two pieces of a text do
/// not part it, and what is held of it waits for its next piece.
#[derive(Debug)]
pub struct MaskedStreams<Kind> {
    redactor: Redactor,
    streams: BTreeMap<Kind, MaskedStream>,
}

impl MaskedStream {
    /// Before its first piece.
    pub fn new(redactor: &Redactor) -> Self {
        Self { redactor: redactor.clone(), held: String::new(), told: 0 }
    }

    /// What can be told once that piece has come, masked; often all of it.
    pub fn take(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let settled = self.redactor.settled(&self.held);
        let told = self.tell(settled);
        self.held.drain(..settled);
        self.told -= settled;
        told
    }

    /// What is still held, masked: nothing more is waited for.
    pub fn rest(&mut self) -> String {
        self.tell(self.held.len())
    }

    /// Drops what is still held, so many bytes: what follows it is not known.
    pub fn forget(&mut self) -> usize {
        mem::take(&mut self.held).len() - mem::take(&mut self.told)
    }

    /// What stands before `end` and has not been told, masked.
    fn tell(&mut self, end: usize) -> String {
        let begin = self.told.min(end);
        self.told = self.told.max(end);
        without(&self.redactor.find(&self.held), &self.held, begin..end)
    }
}

impl<Kind: Copy + Ord> MaskedStreams<Kind> {
    /// Before their first piece.
    pub fn new(redactor: &Redactor) -> Self {
        Self { redactor: redactor.clone(), streams: BTreeMap::new() }
    }

    /// What can be told of that text once a piece of it has come, masked.
    pub fn take(&mut self, kind: Kind, piece: &str) -> String {
        let redactor = &self.redactor;
        self.streams.entry(kind).or_insert_with(|| MaskedStream::new(redactor)).take(piece)
    }

    /// What is still held of each, masked, in the order of the kinds and where
    /// it is anything: nothing more is waited for.
    pub fn rest(&mut self) -> Vec<(Kind, String)> {
        let rests = self.streams.iter_mut().map(|(kind, it)| (*kind, it.rest()));
        rests.filter(|it| !it.1.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: [&str; 4] = ["s3cret-key", "abcdefgh", "efghijkl", "schlüssel"];

    fn redactor() -> Redactor {
        let redactor = Redactor::new();
        SECRETS.iter().for_each(|it| redactor.learn(it));
        redactor
    }

    /// Every way to cut a text in three, parts of it empty or not.
    fn cuts(text: &str) -> impl Iterator<Item = [&str; 3]> {
        let ends = move |last: usize| (0..=last).filter(|it| text.is_char_boundary(*it));
        ends(text.len()).flat_map(move |second| {
            let cut = move |first| [&text[..first], &text[first..second], &text[second..]];
            ends(second).map(cut)
        })
    }

    /// However a text is cut, and whatever comes between: what is told of it is
    /// the text, masked.
    #[track_caller]
    fn check(text: &str) {
        let redactor = redactor();
        let want = redactor.mask(text);
        for pieces in cuts(text) {
            let mut streams = MaskedStreams::new(&redactor);
            let (mut told, mut other) = (String::new(), String::new());
            for piece in pieces {
                told += &streams.take(1, piece);
                other += &streams.take(0, "efgh");
            }
            let rests = streams.rest();
            assert!(rests.is_sorted_by_key(|it| it.0), "{rests:?}");
            for (kind, rest) in rests {
                if kind == 1 { &mut told } else { &mut other }.push_str(&rest);
            }
            assert_eq!((told.as_str(), other.as_str()), (&*want, "efghefghefgh"), "{pieces:?}");
            let mut parts = pieces.map(str::to_owned);
            redactor.mask_joined(parts.iter_mut().collect());
            assert_eq!(parts.concat(), want, "{pieces:?}");
        }
    }

    #[test]
    fn a_text_in_pieces_is_told_as_if_it_were_one() {
        check("");
        check("nothing");
        check("s3cret-key");
        check("x s3cret-keys3cret-kex s3cret-ke");
        check("abcdefghijklabcdefgijkl");
        check("ein schlüssel, ein schlü");
    }

    /// What is told late shows the beginning of a secret, and never all of it.
    #[test]
    fn what_was_told_makes_no_secret_with_what_follows() {
        let redactor = redactor();
        for secret in SECRETS {
            for pieces in cuts(secret) {
                let mut stream = MaskedStream::new(&redactor);
                let told = pieces.map(|it| stream.take(it) + &stream.rest());
                let first = pieces.iter().rposition(|it| !it.is_empty()).unwrap_or_default();
                let want: String = pieces[..first].concat() + "••••";
                assert_eq!(told.concat(), want, "{pieces:?}");
            }
        }
        let mut stream = MaskedStream::new(&redactor);
        let told = ["a s3c", "ond", " s3c", "ret-key b"].map(|it| stream.take(it) + &stream.rest());
        assert_eq!(told, ["a s3c", "ond", " s3c", "•••• b"]);
    }

    #[test]
    fn what_is_forgotten_is_counted_once() {
        let mut stream = MaskedStream::new(&redactor());
        assert_eq!((stream.take("a s3c").as_str(), stream.forget()), ("a ", 3));
        assert_eq!((stream.take("ret-key").as_str(), stream.forget()), ("ret-key", 0));
        assert_eq!(stream.take("s3c") + &stream.rest() + &stream.take("r"), "s3c");
        assert_eq!(stream.forget(), 1);
    }
}
