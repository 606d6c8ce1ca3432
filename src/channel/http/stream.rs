//! Answers without a known length: chunked for HTTP/1.1, up to the end of the
//! connection for HTTP/1.0. Every piece is flushed: no event waits for a
//! buffer to fill or for the next one.

use std::io::{self, Write};
use std::time::Duration;

use crossbeam_channel::{Receiver, after, select};

use super::answer::{Length, head};
use crate::worker::Cancel;

/// After so long without an event an empty line is sent, so that a client
/// that is gone is seen.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// Content type of a stream of events.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// Bytes that are framed in one go, so that they are one write.
const FRAMED: usize = 64 * 1024;

/// Bytes of lines that go in one write at most.
const BATCH: usize = 16 * 1024;

/// Where an answer goes.
pub(super) struct Reply {
    to: Box<dyn Write + Send>,
    minor: u8,
}

/// An answer of which the head is written.
pub(super) struct Pieces {
    to: Box<dyn Write + Send>,
    chunked: bool,
    frame: Vec<u8>,
}

/// Lines on their way: those that are ready at once go in one write. One that
/// is longer goes in several.
pub(super) struct Batch {
    to: Pieces,
    ready: Vec<u8>,
}

impl Reply {
    /// To a client that speaks HTTP/1.`minor`.
    pub(super) fn new(to: Box<dyn Write + Send>, minor: u8) -> Self {
        Self { to, minor }
    }

    /// The raw writer, for a whole answer.
    pub(super) fn writer(&mut self) -> &mut (dyn Write + Send) {
        &mut *self.to
    }

    /// Writes the head of a 200.
    pub(super) fn start(self, content_type: &str) -> io::Result<Pieces> {
        let mut pieces = self.begin(content_type)?;
        pieces.to.flush()?;
        Ok(pieces)
    }

    /// The same; the head goes with what comes next.
    pub(super) fn begin(mut self, content_type: &str) -> io::Result<Pieces> {
        let chunked = self.minor > 0;
        let length = if chunked { Length::Chunked } else { Length::UntilClose };
        self.to.write_all(head(200, content_type, length).as_bytes())?;
        Ok(Pieces { to: self.to, chunked, frame: Vec::new() })
    }
}

impl Pieces {
    /// Writes one piece (not empty) and flushes it.
    pub(super) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        if !self.chunked {
            self.to.write_all(piece)?;
        } else if piece.len() > FRAMED {
            write!(self.to, "{:x}\r\n", piece.len())?;
            self.to.write_all(piece)?;
            self.to.write_all(b"\r\n")?;
        } else {
            self.frame.clear();
            write!(self.frame, "{:x}\r\n", piece.len())?;
            self.frame.extend_from_slice(piece);
            self.frame.extend_from_slice(b"\r\n");
            self.to.write_all(&self.frame)?;
        }
        self.to.flush()
    }

    /// Says that this was all; without it the client sees a cut stream.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.chunked {
            self.to.write_all(b"0\r\n\r\n")?;
        }
        self.to.flush()
    }
}

impl Batch {
    pub(super) fn new(to: Pieces) -> Self {
        Self { to, ready: Vec::new() }
    }

    /// Whether nothing waits to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Writes what is ready, and that it was all.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.to.finish()
    }
}

impl Write for Batch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.ready.len() + bytes.len() > BATCH {
            self.flush()?;
        }
        let taken = bytes.len().min(BATCH);
        self.ready.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.ready.is_empty() {
            self.to.write(&self.ready)?;
            self.ready.clear();
        }
        Ok(())
    }
}

/// One event as a line of JSON, without its newline.
pub(super) enum Line {
    /// Others follow.
    More(String),
    /// Nothing follows.
    Last(String),
}

/// Forwards events, `first` before those that come, until the last one. An
/// error means that the client is gone, that `closing` ended it, or that the
/// events ended without a last one; the client then sees a cut stream.
pub(super) fn pump<E>(
    mut to: Pieces,
    first: Option<E>,
    events: &Receiver<E>,
    line: impl Fn(E) -> Line,
    quiet: Duration,
    closing: &Cancel,
) -> io::Result<()> {
    let mut next = first;
    loop {
        match next.take().map(&line) {
            Some(Line::More(text)) => to.write(format!("{text}\n").as_bytes())?,
            Some(Line::Last(text)) => {
                to.write(format!("{text}\n").as_bytes())?;
                return to.finish();
            }
            None => {}
        }
        select! {
            recv(events) -> event => {
                next = Some(event.map_err(|_| io::ErrorKind::UnexpectedEof)?);
            }
            recv(after(quiet)) -> _ => to.write(b"\n")?,
            recv(closing.gone()) -> _ => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Sender, bounded, unbounded};

    use super::*;

    /// Gives what was written, one text a flush.
    struct Wire {
        flushed: Sender<String>,
        pending: Vec<u8>,
    }

    impl Write for Wire {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.pending.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            let text = String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned();
            self.flushed.send(text).map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    fn wire() -> (Box<Wire>, Receiver<String>) {
        let (flushed, seen) = unbounded();
        (Box::new(Wire { flushed, pending: Vec::new() }), seen)
    }

    /// Sends these events to a client of HTTP/1.`minor`; gives what it gets
    /// behind the head, and whether that was all.
    #[track_caller]
    fn check(minor: u8, events: &[&'static str], want: &[&str], whole: bool) {
        let (wire, seen) = wire();
        let (events_in, events_out) = unbounded();
        assert!(events.iter().all(|it| events_in.send(*it).is_ok()));
        drop(events_in);
        let line = |it: &str| match it {
            "end" => Line::Last(it.into()),
            _ => Line::More(it.into()),
        };
        let minute = Duration::from_secs(60);
        let pumped = Reply::new(wire, minor)
            .start(NDJSON)
            .and_then(|it| pump(it, None, &events_out, line, minute, &Cancel::never()));
        assert_eq!(pumped.is_ok(), whole);
        assert_eq!(seen.iter().skip(1).collect::<Vec<_>>(), want);
    }

    #[test]
    fn each_event_is_flushed_and_nothing_follows_the_last() {
        let events = ["a", "end", "b"];
        check(1, &events, &["2\r\na\n\r\n", "4\r\nend\n\r\n", "0\r\n\r\n"], true);
        check(0, &events, &["a\n", "end\n", ""], true);
    }

    #[test]
    fn lines_that_are_ready_go_at_once_and_long_ones_in_pieces() -> io::Result<()> {
        let (wire, seen) = wire();
        let mut batch = Batch::new(Reply::new(wire, 0).start(NDJSON)?);
        let long = "x".repeat(2 * BATCH + 1);
        for text in ["a\n", "b\n"] {
            batch.write_all(text.as_bytes())?;
        }
        batch.flush()?;
        batch.write_all(b"c\n")?;
        batch.write_all(long.as_bytes())?;
        batch.finish()?;
        let pieces: Vec<usize> = seen.iter().skip(1).map(|it| it.len()).collect();
        assert_eq!(pieces, [4, 2, BATCH, BATCH, 1, 0]);
        Ok(())
    }

    #[test]
    fn a_large_piece_is_a_chunk_too() -> io::Result<()> {
        let (wire, seen) = wire();
        Reply::new(wire, 1).start(NDJSON)?.write(&[b'x'; FRAMED + 1])?;
        let chunk = seen.iter().nth(1).unwrap_or_default();
        assert_eq!(chunk, format!("10001\r\n{}\r\n", "x".repeat(FRAMED + 1)));
        Ok(())
    }

    #[test]
    fn events_that_break_off_never_look_whole() {
        check(1, &["a"], &["2\r\na\n\r\n"], false);
    }

    #[test]
    fn silence_is_filled_with_empty_lines_until_the_client_is_gone() {
        let (wire, seen) = wire();
        let (_events_in, events) = bounded::<String>(0);
        let pieces = Reply::new(wire, 0).start(NDJSON);
        let (_end, closing) = Cancel::pair();
        let pumping = std::thread::spawn(move || {
            let moment = Duration::from_millis(1);
            pieces.and_then(|it| pump(it, None, &events, Line::More, moment, &closing))
        });
        let lines = seen.iter().skip(1).take(3).collect::<Vec<_>>();
        assert_eq!(lines, ["\n", "\n", "\n"]);
        drop(seen);
        assert!(pumping.join().is_ok_and(|it| it.is_err()));
    }
}
