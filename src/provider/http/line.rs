//! A connection on which the answer may come before the request is out, as that
//! of a server that refuses a large one. ureq reads only once it has written, so
//! that such an answer was lost in a write that failed, or that never ended. From
//! then on the rest of the request is taken and goes nowhere: ureq goes on to read
//! what has come. Over such a connection nothing is sent again.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, ShutdownHandle,
    Transport,
};

/// Shortest time that one of several addresses of a server is given.
const SHORTEST_TRY: Duration = Duration::from_millis(10);

/// Makes such connections, where nothing before it has made one.
#[derive(Debug)]
pub(super) struct Dial {
    /// How long a server that has said something, of which nobody knows what,
    /// may take nothing of a request.
    pub(super) stall: Duration,
}

/// One such connection.
pub(super) struct Line {
    stream: Arc<TcpStream>,
    buffers: LazyBuffers,
    stall: Duration,
    /// Whether the other side takes no more of the request.
    is_deaf: bool,
}

/// What the other side has said and nobody has read yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    Nothing,
    /// The head of an answer that is none to go on sending for.
    Refusal,
    /// Something else: what TLS sends, the head of a good answer, the end.
    Other,
}

impl<In: Transport> Connector<In> for Dial {
    type Out = Either<In, Line>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if let Some(chained) = chained {
            return Ok(Some(Either::A(chained)));
        }
        let stream = Arc::new(reach(&details.addrs, details.timeout)?);
        stream.set_nodelay(true)?;
        let handle: Weak<TcpStream> = Arc::downgrade(&stream);
        (details.register_shutdown)(handle as Weak<dyn ShutdownHandle>)?;
        let (input, output) =
            (details.config.input_buffer_size(), details.config.output_buffer_size());
        let buffers = LazyBuffers::new(input, output);
        Ok(Some(Either::B(Line { stream, buffers, stall: self.stall, is_deaf: false })))
    }
}

impl Transport for Line {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.is_deaf = self.is_deaf || unread(&self.stream) == Unread::Refusal;
        let mut rest = &self.buffers.output()[..amount];
        while !rest.is_empty() && !self.is_deaf {
            match send(&*self.stream, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => self.is_deaf = stalls(&self.stream, self.stall, timeout)?,
                // What came before that can still be read.
                Err(Errno::PIPE | Errno::CONNRESET) => self.is_deaf = true,
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        if !wait(&self.stream, PollFlags::IN, *timeout.after)? {
            return Err(Error::Timeout(timeout.reason));
        }
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match (&*self.stream).read(input) {
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                read => break read?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        !self.is_deaf && unread(&self.stream) == Unread::Nothing
    }
}

/// What the other side does not take goes with the connection, and keeps neither
/// of them busy.
impl Drop for Line {
    fn drop(&mut self) {
        if self.is_deaf {
            let _ = set_socket_linger(&*self.stream, Some(Duration::ZERO));
        }
    }
}

/// Without what was sent and read.
impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("is_deaf", &self.is_deaf).finish_non_exhaustive()
    }
}

/// A connection to the first address that takes one; each is given half of the
/// time that is left, the last all of it.
fn reach(addresses: &[SocketAddr], timeout: NextTimeout) -> Result<TcpStream, Error> {
    let (limit, start) = (*timeout.after, Instant::now());
    let mut failed = io::Error::from(ErrorKind::ConnectionRefused);
    for (index, address) in addresses.iter().enumerate() {
        let left = limit.saturating_sub(start.elapsed());
        let share = if index + 1 == addresses.len() { left } else { left / 2 };
        match TcpStream::connect_timeout(address, share.max(SHORTEST_TRY)) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    match failed.kind() {
        ErrorKind::TimedOut => Err(Error::Timeout(timeout.reason)),
        _ => Err(failed.into()),
    }
}

/// Waits until more of a request is taken; whether it never will be, since it is
/// refused, or what has come must be looked at.
fn stalls(stream: &TcpStream, stall: Duration, timeout: NextTimeout) -> Result<bool, Error> {
    let timeout = timeout.for_write();
    match unread(stream) {
        Unread::Refusal => Ok(true),
        Unread::Other => Ok(!wait(stream, PollFlags::OUT, stall.min(*timeout.after))?),
        Unread::Nothing => match wait(stream, PollFlags::OUT | PollFlags::IN, *timeout.after)? {
            true => Ok(false),
            false => Err(Error::Timeout(timeout.reason)),
        },
    }
}

fn unread(stream: &TcpStream) -> Unread {
    let mut head = [0; 12];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut head, flags) {
        Err(Errno::AGAIN | Errno::INTR) => Unread::Nothing,
        Ok((count, _)) if count == head.len() && head.starts_with(b"HTTP/1.") => match head[9] {
            b'3'..=b'5' => Unread::Refusal,
            _ => Unread::Other,
        },
        _ => Unread::Other,
    }
}

/// Waits for one of these, or the connection's end; whether it came in time.
fn wait(stream: &TcpStream, what: PollFlags, limit: Duration) -> Result<bool, Error> {
    let start = Instant::now();
    loop {
        let left = Timespec::try_from(limit.saturating_sub(start.elapsed())).ok();
        match poll(&mut [PollFd::new(stream, what)], left.as_ref()) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => (),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}
