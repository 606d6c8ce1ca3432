//! The chunked coding, taken apart byte by byte: a pure state machine that
//! keeps nothing, so that a piece may end anywhere. Stricter than the RFC
//! where others have been fooled: no lone LF, no blanks round a size, sizes of
//! at most 8 digits, and a bound on all that is not content.

use crate::channel::http::answer::Answer;

/// Most bytes of chunk extensions and trailers in a body.
const MOST_OVERHEAD: usize = 16 * 1024;

/// Most digits of a chunk's size.
const MOST_DIGITS: u8 = 8;

/// Takes the coding off.
#[derive(Debug)]
pub(super) struct Dechunker {
    state: State,
    overhead: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size { size: u64, digits: u8 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    Content { left: u64 },
    ContentCr,
    ContentLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
}

/// What the first bytes of a piece were.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Content of the body.
    Content(&'a [u8]),
    /// Coding.
    Coding,
    /// The body's last byte.
    End,
}

impl Dechunker {
    /// Before the first chunk.
    pub(super) fn new() -> Self {
        Self { state: State::Size { size: 0, digits: 0 }, overhead: 0 }
    }

    /// Looks at the start of `bytes` (not empty): what it is, and how many
    /// bytes that were. 400 if it is not the coding.
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8]) -> Result<(Part<'a>, usize), Answer> {
        if let State::Content { left } = self.state {
            let length = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - length as u64;
            self.state = if left == 0 { State::ContentCr } else { State::Content { left } };
            return Ok((Part::Content(&bytes[..length]), length));
        }
        let Some(byte) = bytes.first() else { return Ok((Part::Coding, 0)) };
        self.state = self.after(*byte)?;
        match self.state {
            State::Done => Ok((Part::End, 1)),
            _ => Ok((Part::Coding, 1)),
        }
    }

    fn after(&mut self, byte: u8) -> Result<State, Answer> {
        if matches!(self.state, State::Extension { .. } | State::TrailerStart | State::Trailer) {
            self.count_overhead(byte)?;
        }
        match (self.state, byte) {
            (State::Size { digits: 1.., size }, b'\r') => Ok(State::SizeLf { size }),
            (State::Size { digits: 1.., size }, b';') => Ok(State::Extension { size }),
            (State::Size { digits, size }, _) => with_digit(size, digits, byte),
            (State::Extension { size }, b'\r') => Ok(State::SizeLf { size }),
            (State::Extension { size }, _) => Ok(State::Extension { size }),
            (State::SizeLf { size: 0 }, b'\n') => Ok(State::TrailerStart),
            (State::SizeLf { size }, b'\n') => Ok(State::Content { left: size }),
            (State::ContentCr, b'\r') => Ok(State::ContentLf),
            (State::ContentLf, b'\n') => Ok(State::Size { size: 0, digits: 0 }),
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::Trailer, b'\r') => Ok(State::TrailerLf),
            (State::TrailerStart | State::Trailer, _) => Ok(State::Trailer),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            _ => Err(broken()),
        }
    }

    fn count_overhead(&mut self, byte: u8) -> Result<(), Answer> {
        self.overhead += 1;
        if self.overhead > MOST_OVERHEAD {
            return Err(Answer::error(431, "chunk extensions and trailers may have 16 KiB"));
        }
        match byte {
            b'\r' | b'\t' => Ok(()),
            byte if byte.is_ascii_control() => Err(broken()),
            _ => Ok(()),
        }
    }
}

fn with_digit(size: u64, digits: u8, byte: u8) -> Result<State, Answer> {
    let value = char::from(byte).to_digit(16).ok_or_else(broken)?;
    if digits == MOST_DIGITS {
        return Err(broken());
    }
    Ok(State::Size { size: size * 16 + u64::from(value), digits: digits + 1 })
}

fn broken() -> Answer {
    Answer::error(400, "the body is not in the chunked coding")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a body in pieces of `size`; gives content and what is left over.
    fn take_all(body: &[u8], size: usize) -> Result<(Vec<u8>, Option<usize>), u16> {
        let mut dechunker = Dechunker::new();
        let (mut content, mut at) = (Vec::new(), 0);
        while at < body.len() {
            let end = body.len().min(at + size);
            let (part, used) = dechunker.take(&body[at..end]).map_err(|it| it.status)?;
            at += used;
            match part {
                Part::Content(bytes) => content.extend_from_slice(bytes),
                Part::Coding => {}
                Part::End => return Ok((content, Some(body.len() - at))),
            }
        }
        Ok((content, None))
    }

    #[track_caller]
    fn check(body: &str, want: Result<(&str, Option<usize>), u16>) {
        for size in 1..=body.len() {
            let want = want.map(|(content, left)| (content.as_bytes().to_vec(), left));
            assert_eq!(take_all(body.as_bytes(), size), want, "{body:?} in pieces of {size}");
        }
    }

    #[test]
    fn content_comes_out_however_it_is_cut() {
        check("0\r\n\r\n", Ok(("", Some(0))));
        check("3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\nGET", Ok(("abc0123456789", Some(3))));
        check("1\r\na\r\n0\r\nT: x\r\nU: y\r\n\r\n", Ok(("a", Some(0))));
        check("3\r\nab", Ok(("ab", None)));
    }

    #[test]
    fn what_is_not_the_coding_is_refused() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            "1 \r\n",
            "1\na\r\n",
            "1\rXa",
            "1\r\nab\r\n",
            "1\r\na\n",
            "1;a\nb\r\n",
            "1;a\0b\r\n",
            "000000001\r\n",
            "FFFFFFFFFFFFFFFFF\r\n",
            "0\r\nT: x\n\r\n",
            "0\r\n\rX",
        ] {
            check(body, Err(400));
        }
    }

    #[test]
    fn a_flood_of_extensions_or_trailers_ends() {
        let flood = "1;a\r\na\r\n".repeat(MOST_OVERHEAD);
        assert_eq!(take_all(flood.as_bytes(), 4096), Err(431));
        let flood = format!("0\r\n{}", "T: x\r\n".repeat(MOST_OVERHEAD));
        assert_eq!(take_all(flood.as_bytes(), 4096), Err(431));
    }
}
