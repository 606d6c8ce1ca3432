//! The conversation with the gateway, over standard input and output or over
//! one socket, without ever blocking on either: frames come in as they come,
//! and go out from a queue that is bounded. Whoever has more to say asks
//! [`Conversation::has_room`] first.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
    ends: Ends,
    decoder: Decoder,
    queue: VecDeque<u8>,
    ended: bool,
    gone: bool,
}

impl Conversation {
    /// Takes over standard input and output; it will say first that it is
    /// ready.
    pub(crate) fn standard() -> io::Result<Self> {
        let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
        do_not_block(input)?;
        do_not_block(output)?;
        Ok(Self::over(Ends::Standard))
    }

    /// Takes over a stream socket for both ways, likewise.
    pub(crate) fn on(socket: OwnedFd) -> io::Result<Self> {
        do_not_block(socket.as_fd())?;
        Ok(Self::over(Ends::Socket(socket)))
    }

    fn over(ends: Ends) -> Self {
        let (decoder, queue) = (Decoder::default(), VecDeque::new());
        let mut conversation = Self { ends, decoder, queue, ended: false, gone: false };
        conversation.queue(frame::READY, b"");
        conversation
    }

    /// The input has ended: nothing more will come.
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
    pub(crate) fn interest(&self) -> Vec<PollFd<'_>> {
        let mut interest = Vec::with_capacity(2);
        if !self.ended {
            interest.push(PollFd::from_borrowed_fd(self.ends.input(), PollFlags::IN));
        }
        if !self.gone {
            // Asked for nothing, poll still reports that the reader left.
            let out = if self.queue.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            interest.push(PollFd::from_borrowed_fd(self.ends.output(), out));
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
        match rustix::io::read(self.ends.input(), &mut buffer) {
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
                self.gone = self.gone || hung_up(self.ends.output());
                return;
            }
            match rustix::io::write(self.ends.output(), front) {
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

/// What the frames run over.
enum Ends {
    /// Standard input and output.
    Standard,
    /// One socket for both ways.
    Socket(OwnedFd),
}

impl Ends {
    fn input(&self) -> BorrowedFd<'_> {
        match self {
            Self::Standard => rustix::stdio::stdin(),
            Self::Socket(socket) => socket.as_fd(),
        }
    }

    fn output(&self) -> BorrowedFd<'_> {
        match self {
            Self::Standard => rustix::stdio::stdout(),
            Self::Socket(socket) => socket.as_fd(),
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

fn do_not_block(end: BorrowedFd<'_>) -> rustix::io::Result<()> {
    fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)
}

/// Whether whoever holds the other end of it has left.
pub(crate) fn hung_up(end: BorrowedFd<'_>) -> bool {
    let mut state = [PollFd::from_borrowed_fd(end, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut state, Some(&now)).is_ok()
        && state[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
