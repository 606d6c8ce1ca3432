//! Frames as they come from the other side, read with as few calls as they
//! allow into one buffer that is used again. A frame over the bound is refused
//! before room is made for it.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use tool_client::frame::{self, MAX_PAYLOAD};

/// Bytes before a payload.
const HEAD: usize = 5;

/// Room at the start: enough for what most calls say.
const ROOM: usize = 4 * 1024;

/// A frame in the buffer: its kind and its payload.
pub(super) type Seen<'a> = (u8, &'a [u8]);

/// The frames of one stream.
pub(super) struct Frames<'a> {
    from: &'a File,
    buffer: Vec<u8>,
    /// What has come and was not given yet.
    start: usize,
    end: usize,
}

impl<'a> Frames<'a> {
    pub(super) fn new(from: &'a File) -> Self {
        Self { from, buffer: vec![0; ROOM], start: 0, end: 0 }
    }

    /// The first frame, the first bytes of which are read by `meet`.
    pub(super) fn first(
        &mut self,
        meet: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<Seen<'_>>> {
        self.end = meet(&mut self.buffer)?;
        match self.buffer.get(..self.end).unwrap_or_default() {
            [] => Ok(None),
            // A container runtime's complaint, which some write where they should
            // not. No frame begins so.
            said @ [first, ..] if *first > frame::CANCEL => {
                let said = String::from_utf8_lossy(said).replace(char::is_control, " ");
                Err(io::Error::new(ErrorKind::InvalidData, said.trim().to_owned()))
            }
            _ => self.next(),
        }
    }

    /// The next frame; `None` at the end of the stream between two.
    pub(super) fn next(&mut self) -> io::Result<Option<Seen<'_>>> {
        if !self.fill(HEAD)? {
            return Ok(None);
        }
        let [kind, a, b, c, d] = self.head();
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_PAYLOAD {
            return Err(io::Error::new(ErrorKind::InvalidData, "a frame over 64 KiB"));
        }
        if !self.fill(HEAD + length)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let at = self.start + HEAD;
        self.start = at + length;
        Ok(Some((kind, self.buffer.get(at..at + length).unwrap_or_default())))
    }

    fn head(&self) -> [u8; HEAD] {
        let head = self.buffer.get(self.start..).and_then(|it| it.first_chunk::<HEAD>());
        head.copied().unwrap_or_default()
    }

    /// Reads until so many bytes are there; `false` if the stream ends before
    /// the first of them.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        self.make_room(wanted);
        while self.end - self.start < wanted {
            let mut from = self.from;
            match from.read(self.buffer.get_mut(self.end..).unwrap_or_default()) {
                Ok(0) if self.start == self.end => return Ok(false),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn make_room(&mut self, wanted: usize) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start + wanted > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if wanted > self.buffer.len() {
            // Who sends one large frame sends more.
            self.buffer.resize(HEAD + MAX_PAYLOAD, 0);
        }
    }
}
