//! Lines of a stream that comes in pieces, each at most so long. A longer one
//! is told as soon as it is, and nothing of it is kept.

use std::mem;

/// Splits a stream into its lines.
#[derive(Debug)]
pub(in crate::plugin) struct Lines {
    limit: usize,
    /// The line that has not ended.
    begun: Vec<u8>,
    /// Whether it was too long already; its rest is left out.
    is_skipped: bool,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::plugin) enum Line {
    /// One, without its end.
    Whole(Vec<u8>),
    /// One that is longer than the limit, in place of it.
    TooLong,
}

impl Lines {
    /// With lines of at most so many bytes.
    pub(in crate::plugin) fn within(limit: usize) -> Self {
        Self { limit, begun: Vec::new(), is_skipped: false }
    }

    /// Takes the next piece and tells each line that ends in it; empty ones
    /// are left out.
    pub(in crate::plugin) fn take(&mut self, piece: &[u8], each: &mut dyn FnMut(Line)) {
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|it| *it == b'\n') {
            self.add(&rest[..end], each);
            self.end(each);
            rest = &rest[end + 1..];
        }
        self.add(rest, each);
    }

    /// Tells the line that no newline ended.
    pub(in crate::plugin) fn end(&mut self, each: &mut dyn FnMut(Line)) {
        // A large one gives its memory away with it.
        let mut line = mem::take(&mut self.begun);
        self.is_skipped = false;
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if !line.trim_ascii().is_empty() {
            each(Line::Whole(line));
        }
    }

    fn add(&mut self, piece: &[u8], each: &mut dyn FnMut(Line)) {
        if self.is_skipped {
            return;
        }
        if self.begun.len() + piece.len() > self.limit {
            self.begun = Vec::new();
            self.is_skipped = true;
            each(Line::TooLong);
            return;
        }
        self.begun.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same whatever the pieces are.
    #[track_caller]
    fn check(text: &str, want: &[Option<&str>]) {
        for size in 1..=text.len() {
            let mut lines = Lines::within(5);
            let mut found = Vec::new();
            let mut each = |line| {
                found.push(match line {
                    Line::Whole(it) => Some(String::from_utf8_lossy(&it).into_owned()),
                    Line::TooLong => None,
                });
            };
            text.as_bytes().chunks(size).for_each(|it| lines.take(it, &mut each));
            lines.end(&mut each);
            let want: Vec<Option<String>> = want.iter().map(|it| it.map(str::to_owned)).collect();
            assert_eq!(found, want, "in pieces of {size}");
        }
    }

    #[test]
    fn lines_are_told_whole() {
        check("ab\ncd\r\n\n \nef", &[Some("ab"), Some("cd"), Some("ef")]);
        check("12345\n", &[Some("12345")]);
    }

    #[test]
    fn a_long_line_is_told_once_and_the_next_is_whole() {
        check("ab\n123456789012\ncd\n", &[Some("ab"), None, Some("cd")]);
        check("123456", &[None]);
    }
}
