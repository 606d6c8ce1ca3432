//! The body of a request, read whole before anybody works on it: bounded in
//! bytes, in time without progress and in time altogether. What is large
//! waits in a file that has no name, not in memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use super::chunks::{Dechunker, Part};
use super::head::Framing;
use super::stream::Stream;
use super::{End, Limits};
use crate::channel::http::answer::Answer;
use crate::channel::http::token::random_hex;

/// A whole body.
#[derive(Debug)]
pub(super) struct Body {
    length: u64,
    memory: Vec<u8>,
    file: Option<File>,
}

impl Body {
    /// Bytes in it.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Writes it out behind a head, once; what is small goes with it.
    pub(super) fn write_to(mut self, mut head: Vec<u8>, to: &mut impl Write) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            to.write_all(&head)?;
            head.clear();
            file.rewind()?;
            let mut piece = vec![0; 16 * 1024];
            while let length @ 1.. = file.read(&mut piece)? {
                to.write_all(&piece[..length])?;
            }
        }
        head.append(&mut self.memory);
        to.write_all(&head)
    }

    /// Takes in more; 413 over the bound.
    fn add(&mut self, bytes: &[u8], limits: &Limits, folder: &Path) -> Result<(), End> {
        self.length += bytes.len() as u64;
        if self.length > limits.body_bytes {
            return Err(too_large(limits).into());
        }
        self.memory.extend_from_slice(bytes);
        if self.memory.len() > limits.memory_bytes {
            self.move_to_file(folder).map_err(|error| {
                log::error!("a request's body cannot be kept in {}: {error}", folder.display());
                End::from(Answer::error(500, "the body cannot be kept; is the disk full?"))
            })?;
        }
        Ok(())
    }

    fn move_to_file(&mut self, folder: &Path) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless_file(folder)?),
        };
        file.write_all(&self.memory)?;
        self.memory.clear();
        Ok(())
    }
}

/// Reads the body that the head announced; `rest` came with the head.
pub(super) fn read(
    client: &Stream,
    rest: &[u8],
    framing: Framing,
    limits: &Limits,
    folder: &Path,
) -> Result<Body, End> {
    let mut body = Body { length: 0, memory: Vec::new(), file: None };
    let mut source = Source { client, limits, deadline: Instant::now() + limits.body_time };
    match framing {
        Framing::Nothing => {}
        Framing::Exact(length) => {
            check_length(framing, limits)?;
            let early = rest.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            body.add(&rest[..early], limits, folder)?;
            read_exact(&mut source, length, &mut body, folder)?;
        }
        Framing::Chunked => read_chunks(&mut source, rest, &mut body, folder)?,
    }
    Ok(body)
}

/// 413 for a body that is announced as too large: before any of it is read.
pub(super) fn check_length(framing: Framing, limits: &Limits) -> Result<(), Answer> {
    match framing {
        Framing::Exact(length) if length > limits.body_bytes => Err(too_large(limits)),
        _ => Ok(()),
    }
}

fn too_large(limits: &Limits) -> Answer {
    Answer::error(413, format!("a body may have {} bytes", limits.body_bytes))
}

fn read_exact(source: &mut Source, length: u64, body: &mut Body, folder: &Path) -> Result<(), End> {
    let missing = usize::try_from(length - body.length).unwrap_or(usize::MAX);
    let mut piece = vec![0; missing.min(16 * 1024)];
    while body.length < length {
        let left = usize::try_from(length - body.length).unwrap_or(usize::MAX);
        let room = piece.len().min(left);
        let got = source.read(&mut piece[..room])?;
        body.add(&piece[..got], source.limits, folder)?;
    }
    Ok(())
}

fn read_chunks(
    source: &mut Source,
    rest: &[u8],
    body: &mut Body,
    folder: &Path,
) -> Result<(), End> {
    let mut dechunker = Dechunker::new();
    let mut piece = rest.to_vec();
    loop {
        let mut bytes = piece.as_slice();
        while !bytes.is_empty() {
            let (part, used) = dechunker.take(bytes)?;
            bytes = &bytes[used..];
            match part {
                Part::Content(content) => body.add(content, source.limits, folder)?,
                Part::Coding => {}
                Part::End => return Ok(()),
            }
        }
        piece.resize(16 * 1024, 0);
        let got = source.read(&mut piece)?;
        piece.truncate(got);
    }
}

/// The client, while it sends a body.
struct Source<'a> {
    client: &'a Stream,
    limits: &'a Limits,
    deadline: Instant,
}

impl Source<'_> {
    /// At least one byte, or the reason why there is none.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, End> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let wait = left.min(self.limits.body_pause);
        if wait.is_zero() {
            return Err(too_slow().into());
        }
        self.client.set_read_timeout(Some(wait)).map_err(|_| End::Gone)?;
        loop {
            return match (&mut &*self.client).read(into) {
                Ok(0) => Err(Answer::error(400, "the body ended early").into()),
                Ok(length) => Ok(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Err(too_slow().into()),
                Err(_) => Err(End::Gone),
            };
        }
    }
}

fn too_slow() -> Answer {
    Answer::error(408, "the body came too slowly")
}

/// A file that nobody else can open and that is gone with its last handle.
fn nameless_file(folder: &Path) -> io::Result<File> {
    let name = random_hex::<16>().map_err(io::Error::other)?;
    let path = folder.join(format!("body-{name}"));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
