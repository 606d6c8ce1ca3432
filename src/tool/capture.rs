//! What a command prints, kept for a reader in bounded memory: the first and
//! the last part, decoded once at the end, with a line between that says how
//! much is missing and where the whole is.

use std::collections::VecDeque;

use crate::sandbox::SAVED_OUTPUT_CAP;
use crate::secret::Redactor;

/// Takes standard output and standard error in order of arrival.
#[derive(Debug)]
pub(super) struct Capture {
    limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Capture {
    /// Keeps at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    /// Bytes that came in all.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The text for the reader; `saved` is where the whole output lies. Secrets
    /// are still to be masked in it; of those on a cut it holds no half.
    pub(super) fn into_text(self, saved: Option<&str>, redactor: &Redactor) -> String {
        let missing = self.total - (self.head.len() + self.tail.len()) as u64;
        let tail = Vec::from(self.tail);
        if missing == 0 {
            return marked(&[self.head, tail].concat());
        }
        let head = redactor.without_beginning(without_cut_end(&self.head));
        let tail = redactor.without_end(without_cut_start(&tail));
        let place = match saved {
            Some(path) if self.total > SAVED_OUTPUT_CAP => {
                format!("the first {} MiB of the output are in {path}", SAVED_OUTPUT_CAP >> 20)
            }
            Some(path) => format!("the whole output is in {path}"),
            None => "the whole output was not saved".to_owned(),
        };
        let missing = self.total - (head.len() + tail.len()) as u64;
        format!("{}\n[… {missing} bytes left out; {place} …]\n{}", marked(head), marked(tail))
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let head_room = (self.limit / 2).saturating_sub(self.head.len());
        let (head, rest) = bytes.split_at(head_room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let tail_limit = self.limit - self.limit / 2;
        let rest = &rest[rest.len().saturating_sub(tail_limit)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(tail_limit);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }
}

/// UTF-8 as it is; what is none is replaced, and a last line says so.
fn marked(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!(
            "{}\n[bytes that are not UTF-8 are shown as \u{fffd}]",
            String::from_utf8_lossy(bytes).trim_end_matches('\n')
        ),
    }
}

/// Leaves out a character that the cut at the end went through.
pub(super) fn without_cut_end(bytes: &[u8]) -> &[u8] {
    let start = (1..=3.min(bytes.len())).find(|back| bytes[bytes.len() - back] & 0xc0 != 0x80);
    let Some(back) = start else { return bytes };
    let needed = match bytes[bytes.len() - back] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if needed > back { &bytes[..bytes.len() - back] } else { bytes }
}

/// Leaves out the rest of a character that the cut at the start went through.
fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().take(4).position(|it| it & 0xc0 != 0x80).unwrap_or(0);
    &bytes[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(limit: usize, pieces: &[&[u8]], want: &str) {
        let mut capture = Capture::new(limit);
        for piece in pieces {
            capture.take(piece);
        }
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        assert_eq!(capture.into_text(Some("/whole"), &redactor), want);
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        check(10, &[b"hi\n"], "hi\n");
        check(10, &["那那".as_bytes(), b"1234"], "那那1234");
        check(10, &[b"1", b"2", b"3456789", b"0"], "1234567890");
    }

    #[test]
    fn of_more_the_first_and_last_part_are_kept() {
        let want = "12345\n[… 4 bytes left out; the whole output is in /whole …]\nvwxyz";
        check(10, &[b"12345abcdvwxyz"], want);
        check(10, &[b"123", b"45abcdv", b"wxy", b"z"], want);
    }

    #[test]
    fn a_character_on_the_cut_is_left_out_whole() {
        for cap in 6..14 {
            let mut capture = Capture::new(cap);
            capture.take("那那那那那那那那".as_bytes());
            let text = capture.into_text(None, &Redactor::new());
            assert!(!text.contains('\u{fffd}'), "a half character at cap {cap}: {text}");
        }
    }

    #[test]
    fn of_a_secret_on_a_cut_nothing_is_kept() {
        let missing =
            |bytes| format!("\n[… {bytes} bytes left out; the whole output is in /whole …]\n");
        check(10, &[b"12s3cret-key..........12345"], &format!("12{}12345", missing(20)));
        check(10, &[b"12345..........s3cret-key12"], &format!("12345{}12", missing(20)));
        check(
            26,
            &[b"12 s3cret-key................s3cret-key 12"],
            &format!("12 s3cret-key{}s3cret-key 12", missing(16)),
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_marked() {
        check(10, &[b"a\xffb\n"], "a\u{fffd}b\n[bytes that are not UTF-8 are shown as \u{fffd}]");
    }

    #[test]
    fn of_what_is_more_than_is_saved_no_whole_is_promised() {
        #[track_caller]
        fn check_place(total: u64, want: &str) {
            let capture = Capture { total, ..Capture::new(10) };
            let text = capture.into_text(Some("/saved"), &Redactor::new());
            assert!(text.contains(want), "{text}");
        }
        check_place(SAVED_OUTPUT_CAP, "; the whole output is in /saved …]");
        check_place(SAVED_OUTPUT_CAP + 1, "; the first 64 MiB of the output are in /saved …]");
    }

    #[test]
    fn memory_stays_at_the_limit() {
        let mut capture = Capture::new(1_000);
        for _ in 0..100 {
            capture.take(&[b'x'; 65_536]);
        }
        assert_eq!(capture.head.len() + capture.tail.len(), 1_000);
        assert_eq!(capture.total(), 6_553_600);
    }
}
