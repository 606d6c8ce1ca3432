//! The gateway's end of the link to one agent's resident: the socket on which
//! it dials, the one link that is taken from it, and the calls that are handed
//! to it (docs/link.md). Whoever else dials is closed unread, and nothing here
//! waits without a deadline. There is no thread: who needs a link accepts it.

mod call;
mod listener;
#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use tool_client::link::{FILE, RUN};

use super::{Resident, Role};
use crate::error::Result;
pub(super) use call::Call;
use listener::Listener;

/// How long a resident that lives may take to dial.
const DIALS_WITHIN: Duration = Duration::from_secs(2);

/// How long nobody waits again for one that did not.
const PATIENCE_AFTER: Duration = Duration::from_secs(30);

/// The link of one agent's sandbox, if it has one.
#[derive(Debug, Default)]
pub(super) struct Link {
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    listener: Option<Listener>,
    taken: Option<Taken>,
    /// Whom was waited for in vain, and when.
    in_vain: Option<(Resident, Instant)>,
}

/// A link that a resident has dialled.
#[derive(Debug)]
struct Taken {
    socket: OwnedFd,
    resident: Resident,
}

/// The socket on which an agent's resident dials; dropping it lets the link go
/// and removes it.
#[derive(Debug)]
pub struct LinkSocket {
    link: Arc<Link>,
    path: PathBuf,
}

impl Link {
    /// Listens at that path, under which nobody else may.
    pub(super) fn listen(self: &Arc<Self>, path: &Path) -> Result<LinkSocket> {
        let listener = Listener::bind(path)?;
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) =
            Ends { listener: Some(listener), ..Ends::default() };
        Ok(LinkSocket { link: Arc::clone(self), path: path.to_owned() })
    }

    /// Hands a call to the resident. `None` where there is no link: nothing
    /// has begun then. `resident` says who may dial, if that is known.
    pub(super) fn call(&self, role: Role, resident: &dyn Fn() -> Option<Resident>) -> Option<Call> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.listener.as_ref()?;
        // A link can break between the look and the packet; a new one that
        // does so too is not worth a third.
        for _ in 0..2 {
            let taken = ends.taken(resident, DIALS_WITHIN)?;
            match hand_over(&taken.socket, role) {
                Ok(ours) => return Some(Call::new(ours, taken.resident, role)),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => ends.taken = None,
                Err(error) => {
                    log::debug!("a call could not be handed over by the link: {error}");
                    return None;
                }
            }
        }
        None
    }

    /// Takes the link that a resident may have dialled, without waiting.
    pub(super) fn take_over(&self, resident: &dyn Fn() -> Option<Resident>) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = ends.taken(resident, Duration::ZERO);
    }
}

impl Ends {
    /// The link that there is, or the one that comes within the limit.
    fn taken(
        &mut self,
        resident: &dyn Fn() -> Option<Resident>,
        limit: Duration,
    ) -> Option<&Taken> {
        if !self.taken.as_ref().is_some_and(Taken::lives) {
            self.taken = None;
            let listener = self.listener.as_ref()?;
            let resident = resident()?;
            let limit = if self.is_in_vain(resident) { Duration::ZERO } else { limit };
            self.taken = listener.take(resident, limit).map(|socket| Taken { socket, resident });
            if self.taken.is_none() && !limit.is_zero() {
                log::debug!("the resident {} has not dialled within {limit:?}", resident.pid);
                self.in_vain = Some((resident, Instant::now()));
            }
        }
        self.taken.as_ref()
    }

    fn is_in_vain(&self, resident: Resident) -> bool {
        self.in_vain.is_some_and(|(other, at)| other == resident && at.elapsed() < PATIENCE_AFTER)
    }
}

impl Taken {
    /// Whether it can be used: the resident has not gone and has said nothing
    /// since its greeting.
    fn lives(&self) -> bool {
        is_quiet(&self.socket)
    }
}

impl Drop for LinkSocket {
    fn drop(&mut self) {
        *self.link.ends.lock().unwrap_or_else(PoisonError::into_inner) = Ends::default();
        // It may have been removed by hand; nothing can be done about more.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a socket is open and nothing has come on it.
fn is_quiet(socket: impl AsFd) -> bool {
    let mut state = [PollFd::new(&socket, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut state, Some(&now)) {
            Err(Errno::INTR) => {}
            Ok(0) => return true,
            _ => return false,
        }
    }
}

/// Makes the socket of a call and sends its other end to the resident. The
/// kernel will say on ours who writes to it.
fn hand_over(link: &OwnedFd, role: Role) -> Result<OwnedFd, Errno> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_passcred(&ours, true)?;
    let word = match role {
        Role::Run => RUN,
        Role::File => FILE,
    };
    let descriptors = [theirs.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(link, &[IoSlice::new(word)], &mut control, flags)?;
    Ok(ours)
}
