//! Frames: `u8` kind, `u32` big-endian length, at most [`MAX_PAYLOAD`] bytes.
//! The same frames run between gateway and supervisor and, for
//! `Upgrade: beige-exec/1`, between a client and the gateway.
//!
//! A conversation: the supervisor says [`READY`]; only then the gateway sends
//! [`REQUEST`] (in several frames if it is long: one of exactly
//! [`MAX_PAYLOAD`] bytes is continued by the next), so that whatever failed
//! before had not begun. Then [`STDIN`],
//! [`STDIN_END`], [`SIGNAL`] and [`CANCEL`] go in, [`STDOUT`], [`STDERR`] and
//! [`WINDOW`] come out, and [`EXIT`] is last. The end of the stream itself
//! means hang-up.
//!
//! Standard input has a window: the sender may have [`WINDOW_START`] bytes
//! under way and gets more by [`WINDOW`] frames, so that a signal or cancel
//! is never stuck behind input that nobody reads.

use std::io::{self, ErrorKind, Read, Write};

/// Largest payload of a frame, in bytes.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// Largest request over all its frames, in bytes: twice what the kernel takes
/// as arguments and environment of a process.
pub const MAX_REQUEST: usize = 4 * 1024 * 1024;

/// Bytes of standard input that may be sent before the first [`WINDOW`]
/// frame; smaller than a pipe, so that sending them never blocks.
pub const WINDOW_START: u32 = 48 * 1024;

/// In: a JSON object that says what to do.
pub const REQUEST: u8 = 0;
/// In: bytes of standard input.
pub const STDIN: u8 = 1;
/// In: end of standard input.
pub const STDIN_END: u8 = 2;
/// In: one byte, a signal number for the command's process group.
pub const SIGNAL: u8 = 3;
/// Out: bytes of standard output (of a file: its content).
pub const STDOUT: u8 = 4;
/// Out: bytes of standard error.
pub const STDERR: u8 = 5;
/// Out: a JSON object that says how it ended; the last frame.
pub const EXIT: u8 = 6;
/// Out: `u32` big-endian, so many more bytes of standard input may be sent.
pub const WINDOW: u8 = 7;
/// Out: the supervisor stands and waits for the request.
pub const READY: u8 = 8;
/// In: kill the whole tree and report.
pub const CANCEL: u8 = 9;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// One of the kinds above; others are for the reader to refuse.
    pub kind: u8,
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: Vec<u8>,
}

/// The head of a frame with a payload of `length` bytes.
///
/// A length over [`MAX_PAYLOAD`] is an [`ErrorKind::InvalidInput`] error.
pub fn head(kind: u8, length: usize) -> io::Result<[u8; 5]> {
    let checked = u32::try_from(length).ok().filter(|_| length <= MAX_PAYLOAD);
    let Some(length) = checked else {
        return Err(io::Error::new(ErrorKind::InvalidInput, "frame over 64 KiB"));
    };
    let [a, b, c, d] = length.to_be_bytes();
    Ok([kind, a, b, c, d])
}

/// Writes one frame in one call and flushes it.
pub fn write(to: &mut (impl Write + ?Sized), kind: u8, payload: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(5 + payload.len());
    bytes.extend_from_slice(&head(kind, payload.len())?);
    bytes.extend_from_slice(payload);
    to.write_all(&bytes)?;
    to.flush()
}

/// Writes a request in as many frames as it needs.
///
/// One over [`MAX_REQUEST`] is an [`ErrorKind::InvalidInput`] error.
pub fn write_request(to: &mut (impl Write + ?Sized), request: &[u8]) -> io::Result<()> {
    if request.len() > MAX_REQUEST {
        return Err(io::Error::new(ErrorKind::InvalidInput, "request over 4 MiB"));
    }
    let mut rest = request;
    while rest.len() >= MAX_PAYLOAD {
        let (full, more) = rest.split_at(MAX_PAYLOAD);
        write(to, REQUEST, full)?;
        rest = more;
    }
    write(to, REQUEST, rest)
}

/// Puts the frames of a request together again.
#[derive(Debug, Default)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Takes the payload of the next [`REQUEST`] frame; gives the whole once
    /// it has come. More than [`MAX_REQUEST`] is an
    /// [`ErrorKind::InvalidData`] error.
    pub fn push(&mut self, payload: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if self.bytes.len() + payload.len() > MAX_REQUEST {
            return Err(io::Error::new(ErrorKind::InvalidData, "a request over 4 MiB"));
        }
        self.bytes.extend_from_slice(payload);
        Ok((payload.len() < MAX_PAYLOAD).then(|| std::mem::take(&mut self.bytes)))
    }
}

/// Reads one frame; `None` at the end of the stream between two frames.
///
/// A frame over [`MAX_PAYLOAD`] is refused before anything is allocated; a
/// stream that ends inside a frame is [`ErrorKind::UnexpectedEof`].
pub fn read(from: &mut (impl Read + ?Sized)) -> io::Result<Option<Frame>> {
    let mut first = [0; 1];
    loop {
        match from.read(&mut first) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut payload = vec![0; checked_length(length)?];
    from.read_exact(&mut payload)?;
    Ok(Some(Frame { kind: first[0], payload }))
}

/// Takes bytes as they come and gives whole frames: for readers that poll.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// Takes in more bytes; hold back while [`Decoder::next`] still gives
    /// frames, and no more than one frame and one read are ever kept.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole frame, if it has come. A frame over [`MAX_PAYLOAD`] is
    /// an error.
    #[allow(clippy::should_implement_trait, reason = "an iterator would end at the first gap")]
    pub fn next(&mut self) -> io::Result<Option<Frame>> {
        let Some((&[kind, a, b, c, d], rest)) = self.pending.split_first_chunk::<5>() else {
            return Ok(None);
        };
        let length = checked_length([a, b, c, d])?;
        if rest.len() < length {
            return Ok(None);
        }
        let payload = rest[..length].to_vec();
        self.pending.drain(..5 + length);
        Ok(Some(Frame { kind, payload }))
    }
}

fn checked_length(bytes: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_be_bytes(bytes) as usize;
    if length > MAX_PAYLOAD {
        return Err(io::Error::new(ErrorKind::InvalidData, "a frame over 64 KiB was announced"));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_as_it_went() -> io::Result<()> {
        let mut wire = Vec::new();
        write(&mut wire, STDOUT, b"hi")?;
        write(&mut wire, STDIN_END, b"")?;
        let mut from = wire.as_slice();
        assert_eq!(read(&mut from)?, Some(Frame { kind: STDOUT, payload: b"hi".to_vec() }));
        assert_eq!(read(&mut from)?, Some(Frame { kind: STDIN_END, payload: Vec::new() }));
        assert_eq!(read(&mut from)?, None);
        Ok(())
    }

    #[test]
    fn a_long_request_is_put_together_again() -> io::Result<()> {
        for length in [0, 1, MAX_PAYLOAD - 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD] {
            let mut wire = Vec::new();
            write_request(&mut wire, &vec![7; length])?;
            let (mut from, mut request, mut whole) = (wire.as_slice(), Request::default(), None);
            while let Some(frame) = read(&mut from)? {
                assert_eq!(whole, None, "frames went on after the end");
                whole = request.push(&frame.payload)?;
            }
            assert_eq!(whole.map(|it| it.len()), Some(length));
        }
        assert!(write_request(&mut Vec::new(), &vec![0; MAX_REQUEST + 1]).is_err());
        Ok(())
    }

    #[test]
    fn the_decoder_does_not_care_where_reads_end() -> io::Result<()> {
        let mut wire = Vec::new();
        write(&mut wire, STDOUT, "那".as_bytes())?;
        write(&mut wire, EXIT, b"{}")?;
        for size in 1..=wire.len() {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for piece in wire.chunks(size) {
                decoder.push(piece);
                while let Some(frame) = decoder.next()? {
                    frames.push(frame);
                }
            }
            assert_eq!(frames.len(), 2, "in pieces of {size}");
            assert_eq!(frames[0].payload, "那".as_bytes());
        }
        Ok(())
    }

    #[test]
    fn a_frame_over_the_bound_is_refused_unread() {
        let wire = [STDOUT, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(read(&mut wire.as_slice()).map_err(|it| it.kind()), Err(ErrorKind::InvalidData));
        let mut decoder = Decoder::default();
        decoder.push(&wire);
        assert_eq!(decoder.next().map_err(|it| it.kind()), Err(ErrorKind::InvalidData));
        assert!(head(STDIN, MAX_PAYLOAD + 1).is_err());
    }

    #[test]
    fn a_stream_cut_inside_a_frame_is_an_error() {
        let wire = [STDOUT, 0, 0, 0, 9, b'x'];
        assert_eq!(
            read(&mut wire.as_slice()).map_err(|it| it.kind()),
            Err(ErrorKind::UnexpectedEof)
        );
    }
}
