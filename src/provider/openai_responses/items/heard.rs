//! What has come of a text in pieces: how much, and a fingerprint of it, so that
//! the whole text, once it is known, tells what of it is missing, without all of
//! it being held until then. Pure.

/// FNV-1a, of 64 bits: who forges it has changed nothing but his own answer.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// A text that has come in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    bytes: usize,
    print: u64,
}

impl Heard {
    /// Adds a piece.
    pub(super) fn add(&mut self, more: &str) {
        self.bytes += more.len();
        let print = |print: u64, byte| (print ^ u64::from(byte)).wrapping_mul(PRIME);
        self.print = more.bytes().fold(self.print, print);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What of the whole text is still to come; none if something else has come.
    pub(super) fn rest_of<'a>(&self, whole: &'a str) -> Option<&'a str> {
        let (begun, rest) = whole.split_at_checked(self.bytes)?;
        let mut same = Self::default();
        same.add(begun);
        (same == *self).then_some(rest)
    }
}

impl Default for Heard {
    fn default() -> Self {
        Self { bytes: 0, print: BASIS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], whole: &str, want: Option<&str>) {
        let mut heard = Heard::default();
        pieces.iter().for_each(|it| heard.add(it));
        assert_eq!(heard.rest_of(whole), want, "{pieces:?}");
    }

    #[test]
    fn the_whole_tells_what_is_missing() {
        check(&[], "ab", Some("ab"));
        check(&["a", ""], "ab", Some("b"));
        check(&["a", "b"], "ab", Some(""));
        check(&["\u{90a3}"], "\u{90a3}b", Some("b"));
    }

    #[test]
    fn of_another_text_nothing_is_missing() {
        check(&["b"], "ab", None);
        check(&["ba"], "ab", None);
        check(&["abc"], "ab", None);
        check(&["a"], "\u{90a3}", None);
    }
}
