//! A supervisor's word with the resident, PID 1 of its sandbox. While the
//! connection stands, the resident knows that this supervisor has a command; if
//! it ends without the farewell, the supervisor was killed, and the resident
//! kills what it left. One that the resident started has its word with it by
//! the socket over which it got its call; one that came from outside dials.
//! Where PID 1 is not ours (bubblewrap without a resident) there is nobody to
//! speak to.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, send, sendmsg, socket_with,
};
use rustix::process::{Pid, getpid, getppid};

/// The abstract socket of PID 1: needs no file, and no other container sees
/// it.
pub(crate) const NAME: &[u8] = b"beige-init";

/// What PID 1 answers once it watches over the supervisor.
pub(crate) const ACCEPTED: &[u8] = b"w";

/// What a supervisor says that has taken the call it was handed; from then on
/// the resident keeps it for no other.
pub(crate) const TAKEN: u8 = b't';

/// What begins the farewell: the numbers of the children that may live on
/// follow, each on a line of its own.
pub(crate) const FAREWELL: &str = "ok\n";

/// Pipes that come with a farewell.
pub(crate) const MOST_PIPES: usize = 2;

/// The connection to PID 1, if it is ours.
pub(crate) struct Registration(Option<OwnedFd>);

impl Registration {
    /// The word with the resident that started this process and has handed it
    /// a call: it is taken.
    pub(crate) fn with(control: OwnedFd) -> Self {
        let _ = send(&control, &[TAKEN], SendFlags::NOSIGNAL);
        Self(Some(control))
    }

    /// Registers this process; returns once PID 1 watches over it, or after a
    /// second without an answer.
    pub(crate) fn make() -> Self {
        // Only `docker exec` and its like start a process from outside of the
        // container's processes, and only such a one is taken.
        if getpid() == Pid::INIT || getppid().is_some() {
            return Self(None);
        }
        Self(connect_to_init().ok().filter(accepted))
    }

    /// Says that these children may live on, and hands PID 1 the pipes into
    /// which they may still write: unread they would fill, closed they would
    /// kill them.
    pub(crate) fn farewell(self, children: &[i32], pipes: &[OwnedFd]) {
        let Some(socket) = self.0 else { return };
        let mut text = String::from(FAREWELL);
        for child in children {
            text.push_str(&child.to_string());
            text.push('\n');
        }
        let pipes: Vec<BorrowedFd<'_>> =
            pipes.iter().take(MOST_PIPES).map(OwnedFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PIPES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !pipes.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&pipes));
        }
        let text = [IoSlice::new(text.as_bytes())];
        let _ = sendmsg(&socket, &text, &mut control, SendFlags::NOSIGNAL);
    }
}

fn connect_to_init() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(NAME)?)?;
    Ok(socket)
}

fn accepted(socket: &OwnedFd) -> bool {
    let mut readable = [PollFd::new(socket, PollFlags::IN)];
    let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
    let mut answer = [0; 1];
    matches!(rustix::event::poll(&mut readable, Some(&limit)), Ok(1))
        && recv(socket, &mut answer, RecvFlags::DONTWAIT).is_ok()
        && answer == ACCEPTED
}
