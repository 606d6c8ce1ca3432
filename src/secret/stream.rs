//! Texts on their way out in pieces, masked. What could be the beginning of a
//! secret is held back until it is one or is none, so that no secret is told by
//! its parts. What must be told before that is remembered: what follows it then
//! makes no whole secret with it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::PoisonError;

use super::{Redactor, merge, without};

/// One text in pieces. No byte of it is read twice, and no more of it is held
/// than the longest secret has.
#[derive(Clone, Debug)]
pub struct MaskedStream {
    redactor: Redactor,
    /// How much of each secret stands at the end of what has come.
    begun: Vec<usize>,
    /// What could be the beginning of a secret.
    held: String,
    /// How much of that has been told all the same, in bytes.
    told: usize,
    /// How much of that a mask stands for that has been told.
    masked: usize,
    /// Secrets in it that are part of what could be a longer one.
    secrets: Vec<Range<usize>>,
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
        let (begun, held, secrets) = Default::default();
        Self { redactor: redactor.clone(), begun, held, told: 0, masked: 0, secrets }
    }

    /// What can be told once that piece has come, masked; often all of it.
    pub fn take(&mut self, piece: &str) -> String {
        self.read(piece);
        let cut = self.settled();
        let told = self.tell(self.end_of_mask(cut).unwrap_or(cut));
        self.drop_before(cut);
        told
    }

    /// What is still held, masked: nothing more is waited for.
    pub fn rest(&mut self) -> String {
        self.tell(self.held.len())
    }

    /// Masks the next texts, all of which are told: a secret that is parted among
    /// them, or among them and what was told before, becomes one mask, where it
    /// ends. Tells of each whether it is changed.
    pub fn mask_joined(&mut self, texts: Vec<&mut String>) -> Vec<bool> {
        let mut begin = self.held.len();
        let joined: String = texts.iter().map(|it| it.as_str()).collect();
        self.read(&joined);
        let mut mask = |text: &mut String| {
            let end = begin + text.len();
            let masked = without(&self.secrets, &self.held, begin.max(self.masked).min(end)..end);
            begin = end;
            let is_changed = *text != masked;
            *text = masked;
            is_changed
        };
        let changed = texts.into_iter().map(&mut mask).collect();
        self.told = self.held.len();
        self.drop_before(self.settled());
        changed
    }

    /// Drops what is still held, so many bytes: what follows it is not known.
    pub fn forget(&mut self) -> usize {
        let untold = self.held.len() - self.told;
        *self = Self::new(&self.redactor);
        untold
    }

    /// Holds that piece, and finds the secrets that end in it.
    fn read(&mut self, piece: &str) {
        let before = self.held.len();
        self.held.push_str(piece);
        let needles = self.redactor.needles.read().unwrap_or_else(PoisonError::into_inner);
        self.begun.resize(needles.len(), 0);
        let mut secrets = std::mem::take(&mut self.secrets);
        for (needle, begun) in needles.iter().zip(&mut self.begun) {
            let (found, left) = needle.read(piece, *begun);
            *begun = left;
            secrets.extend(found.into_iter().map(|it| it.behind(before)));
        }
        drop(needles);
        self.secrets = merge(secrets);
        self.prolong_mask();
    }

    /// A mask that is told stands for whatever overlaps its secret, too.
    fn prolong_mask(&mut self) {
        let is_more = |it: &Range<usize>, masked: usize| it.start < masked;
        while let Some(first) = self.secrets.first().filter(|it| is_more(it, self.masked)) {
            self.masked = self.masked.max(first.end);
            self.secrets.remove(0);
        }
        self.told = self.told.max(self.masked);
    }

    /// How much of what is held could not be the beginning of a secret.
    fn settled(&self) -> usize {
        self.held.len() - self.begun.iter().max().unwrap_or(&0)
    }

    /// What stands before `end` and has not been told, masked.
    fn tell(&mut self, end: usize) -> String {
        let begin = self.told.min(end);
        self.told = self.told.max(end);
        without(&self.secrets, &self.held, begin..end)
    }

    /// Where the secret ends that is whole and goes over `cut`. Its mask is told at
    /// once: what follows may prolong it, and that mask then stands for all of it.
    fn end_of_mask(&self, cut: usize) -> Option<usize> {
        self.secrets.iter().find(|it| it.start < cut && cut < it.end).map(|it| it.end)
    }

    /// All before `cut` has been told, and the mask of what goes over it.
    fn drop_before(&mut self, cut: usize) {
        self.masked = self.masked.max(self.end_of_mask(cut).unwrap_or(0));
        self.held.drain(..cut);
        self.told -= cut;
        self.masked = self.masked.saturating_sub(cut);
        self.secrets.retain(|it| it.start >= cut);
        self.secrets.iter_mut().for_each(|it| *it = it.start - cut..it.end - cut);
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

    /// However often it overlaps itself: its mask is told once it is whole, and no
    /// more of it is held than could be a beginning.
    #[test]
    fn a_secret_that_overlaps_itself_is_told_as_it_comes() {
        let redactor = Redactor::new();
        redactor.learn("xyxyxyxyxy");
        let mut stream = MaskedStream::new(&redactor);
        assert_eq!(stream.take("a xyxyxyxyx"), "a ");
        assert_eq!(stream.take("yx"), "••••");
        for _ in 0..10_000 {
            assert_eq!(stream.take("yxyxyx"), "");
            assert!(stream.held.len() < 10, "{}", stream.held);
        }
        assert_eq!(stream.take("yz xyxyxyxyx") + &stream.rest(), "z xyxyxyxyx");
        assert_eq!(stream.take("y"), "••••");
        assert_eq!(stream.take("xyx b"), "x b");
    }

    /// As `check`, with secrets that overlap themselves and each other, and one in
    /// another.
    #[test]
    fn secrets_in_secrets_are_told_as_if_they_came_in_one_piece() {
        let redactor = Redactor::new();
        ["xyxyxyxy", "yxyxyxyxyxz", "abcdefgh-longer", "cdefgh-l", "h-longer, and"]
            .iter()
            .for_each(|it| redactor.learn(it));
        for text in [
            "xyxyxyxyxyxyxyxyxyxz",
            "xyxyxyxyxyxyxyxyxxyxyxyxyxyx",
            "abcdefgh-longer abcdefgh-longe",
            "a abcdefgh-longer, andcdefgh-longer, an",
        ] {
            for pieces in cuts(text) {
                let mut stream = MaskedStream::new(&redactor);
                let told = pieces.map(|it| stream.take(it)).concat() + &stream.rest();
                assert_eq!(told, redactor.mask(text), "{pieces:?}");
            }
        }
    }

    /// Texts that are told in pieces and texts that are masked whole, one after the
    /// other, read the same.
    #[test]
    fn what_is_masked_whole_reads_as_what_is_told_in_pieces() {
        let redactor = redactor();
        redactor.learn("xyxyxyxy");
        for secret in SECRETS.iter().chain(&["xyxyxyxyxyxyxy"]) {
            for pieces in cuts(secret) {
                let [mut told, mut whole] = [(); 2].map(|()| MaskedStream::new(&redactor));
                for piece in pieces {
                    let mut text = piece.to_owned();
                    let is_changed = whole.mask_joined(vec![&mut text]);
                    assert_eq!(text, told.take(piece) + &told.rest(), "{pieces:?}");
                    assert_eq!(is_changed, [text != piece]);
                }
            }
        }
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
