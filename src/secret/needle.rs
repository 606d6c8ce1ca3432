//! One way in which a secret is written, and where it stands in a text. Every
//! byte is looked at a bounded number of times, also where the secret overlaps
//! itself and whatever pieces the text comes in (Knuth, Morris, Pratt).

use std::ops::Range;

/// A secret to be found.
pub(super) struct Needle {
    text: String,
    /// Of each beginning: how much of its own end it begins with, but not all.
    borders: Vec<usize>,
}

/// Where a needle stands once or, overlapping itself, several times. It begins
/// so many bytes before its piece, or behind the piece's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    start: isize,
    end: usize,
}

impl Run {
    /// As a place in a text that has so many bytes, at least as many as the run
    /// needs, before its piece.
    pub(super) fn behind(self, before: usize) -> Range<usize> {
        before.saturating_add_signed(self.start)..before + self.end
    }
}

impl Needle {
    /// The needle of a text that is not empty.
    pub(super) fn new(text: String) -> Self {
        let borders = borders(text.as_bytes());
        Self { text, borders }
    }

    /// What it looks like.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Where it stands in a whole text.
    pub(super) fn runs(&self, text: &str) -> impl Iterator<Item = Range<usize>> + use<> {
        self.read(text, 0).0.into_iter().map(|it| it.behind(0))
    }

    /// Bytes at the end of the text that it begins with, but not all of it.
    pub(super) fn begun(&self, text: &str) -> usize {
        let last = text.floor_char_boundary(text.len().saturating_sub(self.text.len()));
        self.read(&text[last..], 0).1
    }

    /// Reads a piece of a text that ends in so many of its bytes: where it ends in
    /// that, and how many of its bytes the text ends in then.
    pub(super) fn read(&self, piece: &str, mut begun: usize) -> (Vec<Run>, usize) {
        let (mut runs, mut at): (Vec<Run>, _) = (Vec::new(), 0);
        while at < piece.len() {
            if begun == 0 {
                let Some(start) = self.next_start(piece, at) else { break };
                at = start;
            }
            begun = self.after(begun, piece.as_bytes()[at]);
            at += 1;
            if begun == self.text.len() {
                push(&mut runs, Run { start: at as isize - begun as isize, end: at });
                begun = self.borders[begun - 1];
            }
        }
        (runs, begun)
    }

    /// Where it could begin next, from there on.
    fn next_start(&self, piece: &str, at: usize) -> Option<usize> {
        // No needle begins within a character.
        let at = piece.ceil_char_boundary(at);
        Some(at + piece[at..].find(self.text.chars().next()?)?)
    }

    /// How much of it stands at the end of a text once that byte follows.
    fn after(&self, mut begun: usize, byte: u8) -> usize {
        let bytes = self.text.as_bytes();
        while begun > 0 && bytes[begun] != byte {
            begun = self.borders[begun - 1];
        }
        begun + usize::from(bytes[begun] == byte)
    }
}

fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if run.start < last.end as isize => last.end = run.end,
        _ => runs.push(run),
    }
}

fn borders(bytes: &[u8]) -> Vec<usize> {
    let mut borders = vec![0; bytes.len()];
    let mut border = 0;
    for at in 1..bytes.len() {
        while border > 0 && bytes[border] != bytes[at] {
            border = borders[border - 1];
        }
        border += usize::from(bytes[border] == bytes[at]);
        borders[at] = border;
    }
    borders
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In any two pieces it is found where it stands.
    #[track_caller]
    fn check(needle: &str, text: &str, want: &[(usize, usize)], begun: usize) {
        let needle = Needle::new(needle.to_owned());
        assert_eq!(needle.begun(text), begun);
        for cut in (0..=text.len()).filter(|it| text.is_char_boundary(*it)) {
            let (first, half) = needle.read(&text[..cut], 0);
            let (second, left) = needle.read(&text[cut..], half);
            let first = first.into_iter().map(|it| it.behind(0));
            let found = first.chain(second.into_iter().map(|it| it.behind(cut))).collect();
            let found = super::super::merge(found).into_iter().map(|it| (it.start, it.end));
            assert_eq!((found.collect::<Vec<_>>().as_slice(), left), (want, begun), "{cut}");
        }
    }

    #[test]
    fn it_is_found_wherever_it_stands() {
        check("abcd", "", &[], 0);
        check("abcd", "xabcdabcdx", &[(1, 5), (5, 9)], 0);
        check("abcd", "abcabcd, ab", &[(3, 7)], 2);
        check("éxèx", "èéxéxèxéx", &[(5, 11)], 3);
    }

    #[test]
    fn where_it_overlaps_itself_it_is_found_once() {
        check("abab", "xabababxabab", &[(1, 7), (8, 12)], 2);
        check("xxxx", "xxxxxxx xxx", &[(0, 7)], 3);
        check("aabaab", "aabaabaab", &[(0, 9)], 3);
    }
}
