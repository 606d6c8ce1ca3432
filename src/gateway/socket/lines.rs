//! Lines of an agent's socket: each of bounded length and within its time,
//! without ever holding more than the bound.

use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest request line, in bytes.
pub(super) const MAX_LINE: usize = 4 * 1024 * 1024;

/// How long a line may take once its first byte has come.
pub(super) const LINE_LIMIT: Duration = Duration::from_secs(30);

/// Lines of bounded length, each within its time.
pub(super) struct Lines<'a> {
    stream: &'a UnixStream,
    reader: BufReader<&'a UnixStream>,
}

/// What came.
pub(super) enum Line {
    /// A line without its newline.
    Whole(Vec<u8>),
    /// One over [`MAX_LINE`]; nothing can follow it.
    TooLong,
    /// One that was not whole after [`LINE_LIMIT`].
    TooSlow,
    /// One that the peer's end cut.
    Cut,
    /// The peer's end.
    End,
}

impl<'a> Lines<'a> {
    /// The lines of a connection.
    pub(super) fn of(stream: &'a UnixStream) -> Self {
        Self { stream, reader: BufReader::new(stream) }
    }

    /// The next one; waits for its first byte as long as it takes.
    pub(super) fn next(&mut self) -> io::Result<Line> {
        let mut line = Vec::new();
        let mut deadline = None;
        loop {
            if let Some(deadline) = deadline {
                let left = Instant::saturating_duration_since(&deadline, Instant::now());
                if left.is_zero() {
                    return Ok(Line::TooSlow);
                }
                self.stream.set_read_timeout(Some(left))?;
            } else {
                self.stream.set_read_timeout(None)?;
            }
            let bytes = match self.reader.fill_buf() {
                Ok([]) if line.is_empty() => return Ok(Line::End),
                Ok([]) => return Ok(Line::Cut),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_timeout(&error) => return Ok(Line::TooSlow),
                Err(error) => return Err(error),
            };
            let end = bytes.iter().position(|it| *it == b'\n');
            let taken = end.map_or(bytes.len(), |it| it + 1);
            if line.len() + taken > MAX_LINE + 1 {
                return Ok(Line::TooLong);
            }
            line.extend_from_slice(&bytes[..end.unwrap_or(taken)]);
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(Line::Whole(line));
            }
            deadline = deadline.or_else(|| Some(Instant::now() + LINE_LIMIT));
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
