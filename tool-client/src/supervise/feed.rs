//! The command's standard input: takes what the gateway sends, within the
//! window, and writes it as fast as the command reads. A command that has
//! closed its input, or ended, gets nothing, and the gateway is not held up.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use tool_client::frame;

/// Input under way to the command.
pub(crate) struct Feed {
    pipe: Option<OwnedFd>,
    waiting: VecDeque<u8>,
    /// Bytes written or dropped since the last grant.
    owed: usize,
    ended: bool,
}

impl Feed {
    /// Feeds that pipe, which does not block.
    pub(crate) fn new(pipe: OwnedFd) -> Self {
        Self { pipe: Some(pipe), waiting: VecDeque::new(), owed: 0, ended: false }
    }

    /// The pipe, while there is something to write.
    pub(crate) fn wants(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref().filter(|_| !self.waiting.is_empty())
    }

    /// Takes input in; `Err` if the sender has overrun the window.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.ended {
            return Err("standard input came after its end".into());
        }
        if self.waiting.len() + self.owed + bytes.len() > frame::WINDOW_START as usize {
            return Err("standard input overran its window".into());
        }
        self.waiting.extend(bytes);
        self.write();
        Ok(())
    }

    /// No more input will come.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.write();
    }

    /// Writes what the pipe takes now, and closes it after the last byte.
    pub(crate) fn write(&mut self) {
        while let (Some(pipe), (front, _)) = (&self.pipe, self.waiting.as_slices()) {
            if front.is_empty() {
                break;
            }
            match rustix::io::write(pipe, front) {
                Ok(count) => {
                    self.owed += count;
                    self.waiting.drain(..count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.close(),
            }
        }
        if self.ended || self.pipe.is_none() {
            self.close();
        }
    }

    /// Closes the pipe and drops what it did not take.
    pub(crate) fn close(&mut self) {
        self.pipe = None;
        self.owed += self.waiting.len();
        self.waiting.clear();
    }

    /// Bytes that the gateway may send beyond its last grant, if any.
    pub(crate) fn grant(&mut self) -> Option<u32> {
        let grant = u32::try_from(self.owed).ok().filter(|it| *it > 0)?;
        self.owed = 0;
        Some(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read};

    fn feed() -> (Feed, PipeReader) {
        match std::io::pipe() {
            Ok((reader, writer)) => (Feed::new(writer.into()), reader),
            Err(error) => unreachable!("{error}"),
        }
    }

    #[test]
    fn what_is_written_is_granted_again_and_the_end_closes() {
        let (mut feed, mut reader) = feed();
        assert_eq!(feed.take(b"abc"), Ok(()));
        assert_eq!(feed.grant(), Some(3));
        assert_eq!(feed.grant(), None);
        feed.end();
        let mut got = Vec::new();
        assert!(reader.read_to_end(&mut got).is_ok());
        assert_eq!(got, b"abc");
        assert!(feed.take(b"d").is_err());
    }

    #[test]
    fn a_closed_reader_costs_the_sender_nothing() {
        let (mut feed, reader) = feed();
        drop(reader);
        assert_eq!(feed.take(b"abc"), Ok(()));
        assert_eq!(feed.grant(), Some(3));
        assert_eq!(feed.take(b"abc"), Ok(()));
        assert_eq!(feed.grant(), Some(3));
    }

    #[test]
    fn more_than_the_window_is_refused() {
        let (mut feed, _reader) = feed();
        assert!(feed.take(&vec![0; frame::WINDOW_START as usize + 1]).is_err());
        assert_eq!(feed.take(&vec![0; frame::WINDOW_START as usize]), Ok(()));
    }
}
