//! The lines of a file from its last to its first. Memory is one line and a
//! small piece of the file, however long that is; a line over its bound is
//! passed over unread.

use std::io::{self, Read, Seek, SeekFrom};

/// Longest line that is read or written, in bytes.
pub(super) const LONGEST_LINE: usize = 32 * 1024 * 1024;

/// Bytes of the file that are held at a time.
const PIECE: u64 = 64 * 1024;

/// A buffer that held a longer line gives its memory back.
const KEPT: usize = 256 * 1024;

/// A file, read from its end.
pub(super) struct Backwards<'a, F> {
    file: &'a mut F,
    /// What lies before here is still to come.
    end: u64,
    piece: Vec<u8>,
    piece_start: u64,
}

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its first byte.
    pub(super) start: u64,
    /// Its length in bytes, without its newline.
    pub(super) length: u64,
    /// Whether it ends with a newline.
    pub(super) ended: bool,
    /// Whether it is not longer than a line may be.
    pub(super) fits: bool,
}

impl<'a, F: Read + Seek> Backwards<'a, F> {
    /// The file as long as it is now.
    pub(super) fn new(file: &'a mut F) -> io::Result<Self> {
        let end = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, end, piece: Vec::new(), piece_start: end })
    }

    /// Goes on with the lines that end before a byte.
    pub(super) fn go_to(&mut self, end: u64) {
        self.end = end;
    }

    /// Reads the line before the last one that was given, without its
    /// newline; nothing of one that does not fit.
    pub(super) fn previous(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Place>> {
        line.clear();
        line.shrink_to(KEPT);
        if self.end == 0 {
            return Ok(None);
        }
        self.hold(self.end)?;
        let ended = self.piece.get(self.held(self.end) - 1) == Some(&b'\n');
        let end = self.end - u64::from(ended);
        let start = self.start_of_line(end)?;
        self.end = start;
        let length = end - start;
        let fits = length <= LONGEST_LINE as u64;
        if fits {
            self.read(start, length, line)?;
        }
        Ok(Some(Place { start, length, ended, fits }))
    }

    /// The byte after the last newline before `end`.
    fn start_of_line(&mut self, mut end: u64) -> io::Result<u64> {
        while end > 0 {
            self.hold(end)?;
            let held = &self.piece[..self.held(end)];
            if let Some(newline) = held.iter().rposition(|&it| it == b'\n') {
                return Ok(self.piece_start + newline as u64 + 1);
            }
            end = self.piece_start;
        }
        Ok(0)
    }

    fn read(&mut self, start: u64, length: u64, line: &mut Vec<u8>) -> io::Result<()> {
        let piece_end = self.piece_start + self.piece.len() as u64;
        if start >= self.piece_start && start + length <= piece_end {
            let from = self.held(start);
            line.extend_from_slice(&self.piece[from..self.held(start + length)]);
            return Ok(());
        }
        read_at(self.file, start, length, line)
    }

    /// Sees to it that the byte before `end` is held.
    fn hold(&mut self, end: u64) -> io::Result<()> {
        let piece_end = self.piece_start + self.piece.len() as u64;
        if end > self.piece_start && end <= piece_end {
            return Ok(());
        }
        let start = end.saturating_sub(PIECE);
        let mut piece = std::mem::take(&mut self.piece);
        read_at(self.file, start, end - start, &mut piece)?;
        (self.piece, self.piece_start) = (piece, start);
        Ok(())
    }

    /// Place in the held piece of a byte of the file.
    fn held(&self, byte: u64) -> usize {
        usize::try_from(byte.saturating_sub(self.piece_start)).unwrap_or(usize::MAX)
    }
}

/// Reads so many bytes from a place in a file, in the buffer's place.
pub(super) fn read_at(
    file: &mut (impl Read + Seek),
    start: u64,
    length: u64,
    into: &mut Vec<u8>,
) -> io::Result<()> {
    into.clear();
    // Grown by doubling, a long line takes up to twice its room.
    into.reserve_exact(usize::try_from(length).map_err(io::Error::other)?);
    file.seek(SeekFrom::Start(start))?;
    let read = file.take(length).read_to_end(into)?;
    if read as u64 == length {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was read"))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// The lines from the last to the first; one without newline ends with `!`.
    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        let mut file = Cursor::new(text.as_bytes());
        let mut lines = Backwards::new(&mut file).expect("a length");
        let (mut got, mut line) = (Vec::new(), Vec::new());
        while let Some(place) = lines.previous(&mut line).expect("a line") {
            let mark = if place.ended { "" } else { "!" };
            let start = usize::try_from(place.start).expect("small");
            assert!(text.as_bytes()[start..].starts_with(&line));
            got.push(format!("{}{mark}", String::from_utf8_lossy(&line)));
        }
        assert_eq!(got, want);
    }

    #[test]
    fn lines_come_from_the_last_to_the_first() {
        check("", &[]);
        check("a", &["a!"]);
        check("a\n", &["a"]);
        check("a\nb\n\nc", &["c!", "", "b", "a"]);
        check("\n\n", &["", ""]);
    }

    #[test]
    fn lines_are_whole_wherever_the_pieces_are_cut() {
        let piece = usize::try_from(PIECE).expect("small");
        for length in [piece - 2, piece - 1, piece, piece + 1, 3 * piece] {
            let long = "x".repeat(length);
            check(&format!("a\n{long}\nb\n"), &["b", &long, "a"]);
            check(&format!("{long}\n{long}"), &[&format!("{long}!"), &long]);
        }
    }

    #[test]
    fn a_line_over_the_bound_is_passed_over() {
        let text = format!("a\n{}\nb\n", "x".repeat(LONGEST_LINE + 1));
        let mut file = Cursor::new(text.as_bytes());
        let mut lines = Backwards::new(&mut file).expect("a length");
        let (mut line, mut fits) = (Vec::new(), Vec::new());
        while let Some(place) = lines.previous(&mut line).expect("a line") {
            fits.push((place.fits, line.len()));
        }
        assert_eq!(fits, [(true, 1), (false, 0), (true, 1)]);
    }
}
