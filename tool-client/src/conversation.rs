//! The two ends of the conversation with the gateway, standard input and
//! output, without ever blocking on either: frames come in as they come, and
//! go out from a queue that is bounded. Whoever has more to say asks
//! [`Conversation::has_room`] first.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use serde_json::Value;

use tool_client::frame::{self, Decoder, Frame};

/// Bytes waiting to go out, beyond which nothing more is taken in.
const QUEUE: usize = 256 * 1024;

/// Bytes of one text in a report. In JSON a byte takes six at most, and no
/// report has more than two texts that others determine.
const MOST_TEXT: usize = 4 * 1024;

/// The conversation, seen from inside the sandbox.
pub(crate) struct Conversation {
    decoder: Decoder,
    queue: VecDeque<u8>,
    ended: bool,
    gone: bool,
}

impl Conversation {
    /// Takes over standard input and output and says that it is ready.
    pub(crate) fn open() -> io::Result<Self> {
        for end in [rustix::stdio::stdin(), rustix::stdio::stdout()] {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        let mut conversation =
            Self { decoder: Decoder::default(), queue: VecDeque::new(), ended: false, gone: false };
        conversation.queue(frame::READY, b"");
        Ok(conversation)
    }

    /// Standard input has ended: nothing more will come.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Nobody reads any more.
    pub(crate) fn gone(&self) -> bool {
        self.gone
    }

    /// Whether one more frame of any size may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() + 5 + frame::MAX_PAYLOAD <= QUEUE
    }

    /// What to wait for on the two ends.
    pub(crate) fn interest(&self) -> Vec<PollFd<'static>> {
        let (stdin, stdout): (BorrowedFd<'static>, BorrowedFd<'static>) =
            (rustix::stdio::stdin(), rustix::stdio::stdout());
        let mut interest = Vec::with_capacity(2);
        if !self.ended {
            interest.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
        }
        if !self.gone {
            // Asked for nothing, poll still reports that the reader left.
            let out = if self.queue.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            interest.push(PollFd::from_borrowed_fd(stdout, out));
        }
        interest
    }

    /// The next frame that has come whole; reads once if there is none yet.
    /// `None`: nothing now, or [`Conversation::ended`].
    pub(crate) fn next(&mut self) -> io::Result<Option<Frame>> {
        if let Some(frame) = self.decoder.next()? {
            return Ok(Some(frame));
        }
        if self.ended {
            return Ok(None);
        }
        let mut buffer = [0; 16 * 1024];
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(0) => self.ended = true,
            Ok(count) => self.decoder.push(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.ended = true,
        }
        self.decoder.next()
    }

    /// Puts a frame into the queue; the payload is at most
    /// [`frame::MAX_PAYLOAD`] bytes, and more than that is dropped.
    pub(crate) fn queue(&mut self, kind: u8, payload: &[u8]) {
        if let Ok(head) = frame::head(kind, payload.len()) {
            self.queue.extend(head);
            self.queue.extend(payload);
        }
    }

    /// Sends what can be sent now; notices when the reader is gone.
    pub(crate) fn send(&mut self) {
        loop {
            let (front, _) = self.queue.as_slices();
            if front.is_empty() {
                self.gone = self.gone || reader_left();
                return;
            }
            match rustix::io::write(rustix::stdio::stdout(), front) {
                Ok(count) => drop(self.queue.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.gone = true;
                    self.queue.clear();
                }
            }
        }
    }

    /// Waits for the one request; `None` if the gateway leaves before.
    pub(crate) fn request(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut request = frame::Request::default();
        loop {
            self.send();
            match self.next()? {
                Some(Frame { kind: frame::REQUEST, payload }) => {
                    if let Some(whole) = request.push(&payload)? {
                        return Ok(Some(whole));
                    }
                }
                Some(Frame { kind: frame::CANCEL, .. }) => return Ok(None),
                Some(Frame { kind, .. }) => {
                    return Err(io::Error::other(format!("frame of kind {kind} before a request")));
                }
                None if self.ended || self.gone => return Ok(None),
                None => self.wait(None)?,
            }
        }
    }

    /// The last word: queues the report and sends all until the reader has it
    /// or is gone. A reader that has hung up gets a second, no more.
    pub(crate) fn finish(&mut self, report: &Value) {
        self.queue(frame::EXIT, in_one_frame(report).to_string().as_bytes());
        let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
        loop {
            self.send();
            if self.queue.is_empty() || self.gone {
                return;
            }
            let before = self.queue.len();
            let hung_up = self.take_no_more();
            let waited = self.wait(hung_up.then_some(&patience));
            self.send();
            if waited.is_err() || (hung_up && self.queue.len() == before) {
                return;
            }
        }
    }

    /// Reads and drops what still comes in; true once that has ended.
    fn take_no_more(&mut self) -> bool {
        loop {
            match self.next() {
                Ok(Some(_)) => {}
                Ok(None) => return self.ended,
                // Not frames at all: as good as hung up.
                Err(_) => self.ended = true,
            }
            if self.ended {
                return true;
            }
        }
    }

    /// Waits until something can be done on either end, or the limit is over.
    pub(crate) fn wait(&self, limit: Option<&Timespec>) -> io::Result<()> {
        match rustix::event::poll(&mut self.interest(), limit) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The report with its texts cut to what one frame surely holds: they quote
/// names that are as long as whoever asks likes.
fn in_one_frame(report: &Value) -> Value {
    let mut report = report.clone();
    for value in report.as_object_mut().into_iter().flat_map(|it| it.values_mut()) {
        if let Value::String(text) = value
            && text.len() > MOST_TEXT
        {
            let (begin, end) =
                (floor(text, MOST_TEXT / 2), floor(text, text.len() - MOST_TEXT / 2));
            let missing = end - begin;
            *text = format!("{}[… {missing} bytes …]{}", &text[..begin], &text[end..]);
        }
    }
    report
}

/// The nearest border of a character at or before that byte.
fn floor(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0)
}

fn reader_left() -> bool {
    let stdout = rustix::stdio::stdout();
    let mut out = [PollFd::from_borrowed_fd(stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut out, Some(&now)).is_ok()
        && out[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
