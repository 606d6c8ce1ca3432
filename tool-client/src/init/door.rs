//! Where supervisors from outside register: those that a container runtime
//! started in the sandbox. Whatever is in the container may knock as well, as
//! often as it likes, so a crowd is let in by portions, with pauses.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::PollFd;

use super::readable;
use crate::registration::NAME;

/// Connections taken before anything else gets its turn.
const MOST_AT_ONCE: usize = 64;

/// How long it stays shut after a crowd, or when none can be let in.
const PAUSE: Duration = Duration::from_millis(10);

/// The listening socket.
pub(crate) struct Door {
    listener: UnixListener,
    shut_until: Option<Instant>,
}

impl Door {
    /// Listens; an error if the name is taken.
    pub(crate) fn open() -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(NAME)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, shut_until: None })
    }

    /// Gives those who have come.
    pub(crate) fn take(&mut self, now: Instant, mut admit: impl FnMut(UnixStream)) {
        if self.is_shut(now) {
            return;
        }
        self.shut_until = now.checked_add(PAUSE);
        for _ in 0..MOST_AT_ONCE {
            match self.listener.accept() {
                Ok((connection, _)) => admit(connection),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.shut_until = None;
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// What is to be waited for.
    pub(crate) fn interest<'a>(&'a self, now: Instant, interest: &mut Vec<PollFd<'a>>) {
        if !self.is_shut(now) {
            interest.push(readable(&self.listener));
        }
    }

    /// When it opens again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.shut_until
    }

    fn is_shut(&self, now: Instant) -> bool {
        self.shut_until.is_some_and(|it| now < it)
    }
}
