//! What a command prints, told while it runs: whole characters, known secrets
//! masked, and no more of it than the result can hold. What is beyond that is
//! counted. Text that could be the beginning of a secret waits until it is one
//! or is none.

use std::io;

use super::capture::{Capture, without_cut_end};
use crate::sandbox::Output;
use crate::secret::{MaskedStream, Redactor};

/// Bytes that are told at once at most.
const PIECE: usize = 16 * 1024;

/// Takes what a command prints: for its result, and for who follows it.
pub(super) struct Printed<'a> {
    /// For the result.
    pub(super) capture: Capture,
    /// For who follows.
    pub(super) live: Live<'a>,
}

/// What is told while a command runs, standard output and standard error in
/// order of arrival.
pub(super) struct Live<'a> {
    tell: &'a mut dyn FnMut(String),
    masked: MaskedStream,
    /// A character of which the rest has not come yet.
    half: Vec<u8>,
    /// Bytes that may still be told.
    room: usize,
    /// Bytes that are not.
    untold: u64,
    /// Whether what was told last ends within a line.
    is_in_line: bool,
}

impl<'a> Live<'a> {
    /// Tells the first `limit` bytes.
    pub(super) fn new(redactor: &Redactor, limit: usize, tell: &'a mut dyn FnMut(String)) -> Self {
        let masked = MaskedStream::new(redactor);
        Self { tell, masked, half: Vec::new(), room: limit, untold: 0, is_in_line: false }
    }

    /// Nothing more is printed. Tells what was held, and `lines` after it, each
    /// on a line of its own; gives the number of bytes that were not told.
    pub(super) fn end(mut self, lines: &[String]) -> u64 {
        if self.untold == 0 {
            let half = String::from_utf8_lossy(&self.half).into_owned();
            let last = self.masked.take(&half) + &self.masked.rest();
            self.tell(last);
        } else {
            // What follows it might show that it begins a secret.
            self.untold += (self.masked.forget() + self.half.len()) as u64;
        }
        for line in lines {
            let start = if self.is_in_line { "\n" } else { "" };
            let line = self.masked.take(&format!("{start}{line}")) + &self.masked.rest();
            self.tell(line);
        }
        self.untold
    }

    fn take(&mut self, bytes: &[u8]) {
        let (told, untold) = bytes.split_at(self.room.min(bytes.len()));
        self.room -= told.len();
        self.untold += untold.len() as u64;
        for piece in told.chunks(PIECE) {
            let text = self.decoded(piece);
            let text = self.masked.take(&text);
            self.tell(text);
        }
    }

    fn decoded(&mut self, piece: &[u8]) -> String {
        self.half.extend_from_slice(piece);
        let rest = self.half.split_off(without_cut_end(&self.half).len());
        let whole = std::mem::replace(&mut self.half, rest);
        String::from_utf8_lossy(&whole).into_owned()
    }

    fn tell(&mut self, text: String) {
        if !text.is_empty() {
            self.is_in_line = !text.ends_with('\n');
            (self.tell)(text);
        }
    }
}

impl Output for Printed<'_> {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.capture.take(bytes);
        self.live.take(bytes);
        Ok(())
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdout(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s3cret-key";

    /// What is told of these pieces and at their end, and how much is not.
    fn told(limit: usize, pieces: &[&[u8]], lines: &[&str]) -> (Vec<String>, u64) {
        let redactor = Redactor::new();
        redactor.learn(SECRET);
        let mut told = Vec::new();
        let mut tell = |it| told.push(it);
        let mut live = Live::new(&redactor, limit, &mut tell);
        pieces.iter().for_each(|it| live.take(it));
        let lines: Vec<String> = lines.iter().map(|it| (*it).to_owned()).collect();
        let untold = live.end(&lines);
        (told, untold)
    }

    #[track_caller]
    fn check(pieces: &[&[u8]], want: &[&str]) {
        assert_eq!(told(1_000, pieces, &[]).0, want);
    }

    #[test]
    fn a_piece_is_told_as_it_comes() {
        check(&[b"one\n", b"tw", b"o\n"], &["one\n", "tw", "o\n"]);
        check(&[], &[]);
    }

    #[test]
    fn a_character_is_never_cut() {
        check(&[b"a\xe9", b"\x82", b"\xa3b"], &["a", "\u{90a3}b"]);
        check(&[b"a\xffb", b"\xe9\x82"], &["a\u{fffd}b", "\u{fffd}"]);
    }

    #[test]
    fn a_secret_in_pieces_is_masked() {
        for cut in 1..SECRET.len() {
            let (first, second) = SECRET.split_at(cut);
            check(
                &[first.as_bytes(), second.as_bytes(), b"."],
                &["\u{2022}".repeat(4).as_str(), "."],
            );
        }
        check(&[b"a s3cret", b"-kex"], &["a ", "s3cret-kex"]);
        check(&[b"a s3cret"], &["a ", "s3cret"]);
    }

    #[test]
    fn what_is_beyond_the_bound_is_counted() {
        assert_eq!(told(4, &[b"one", b"two", b"three"], &[]), (vec!["one".into(), "t".into()], 7));
        assert_eq!(told(4, &[b"four"], &[]), (vec!["four".into()], 0));
        let cut = told(4, &["ab\u{90a3}".as_bytes()], &[]);
        assert_eq!(cut, (vec!["ab".into()], 3), "a character on the bound is left out whole");
    }

    #[test]
    fn of_a_secret_on_the_bound_no_beginning_is_told() {
        assert_eq!(told(8, &[b"a s3cret-key"], &[]), (vec!["a ".into()], 10));
    }

    #[test]
    fn how_it_ended_stands_on_a_line_of_its_own() {
        let lines = ["[why]", "killed"];
        assert_eq!(told(9, &[b"a\n"], &lines).0.concat(), "a\n[why]\nkilled");
        assert_eq!(told(9, &[b"a"], &lines).0.concat(), "a\n[why]\nkilled");
        assert_eq!(
            told(9, &[], &["[the s3cret-key]"]).0.concat(),
            "[the \u{2022}\u{2022}\u{2022}\u{2022}]"
        );
    }

    #[test]
    fn a_piece_is_bounded() {
        let (told, _) = told(1 << 20, &[&vec![b'x'; 1 << 20]], &[]);
        assert!(told.iter().all(|it| it.len() <= PIECE));
        assert_eq!(told.concat().len(), 1 << 20);
    }
}
