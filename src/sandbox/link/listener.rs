//! The socket on which a resident dials. It takes one process, by the word of
//! the kernel, and closes everything else unread; however many dial in its
//! stead, a look at them ends.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, recv, send, socket_with,
};
use rustix::process::Pid;
use tool_client::link::{HELLO, MOST_PACKET, TAKEN};

use super::is_quiet;
use crate::error::{During, Kind, Result};
use crate::sandbox::Resident;
use crate::sandbox::process::hold;
use crate::sandbox::wait::tells_by;

/// Dialled sockets that the kernel keeps until they are taken.
const BACKLOG: i32 = 64;

/// Dialled sockets that are looked at before a call does without a link: more
/// than the kernel keeps, so that whoever waits behind them gets in.
const MOST_LOOKED_AT: usize = 256;

/// How long the resident's first packet may take once it has dialled.
const GREETS_WITHIN: Duration = Duration::from_millis(200);

/// A listening socket of sequenced packets.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
}

impl Listener {
    /// Binds it under another name, listens, and only then gives it its own:
    /// the name never leads to a socket that refuses. Every uid of the sandbox
    /// may dial; the folders above keep the host's other users out.
    pub(super) fn bind(path: &Path) -> Result<Self> {
        let what = format!("listen on {}", path.display());
        let fresh = path.with_extension("new");
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).during(Kind::Internal, what);
            }
            _ => {}
        }
        let socket = listening(&fresh).during(Kind::Internal, what.clone())?;
        fs::set_permissions(&fresh, Permissions::from_mode(0o666))
            .and_then(|()| fs::rename(&fresh, path))
            .during(Kind::Internal, what)?;
        Ok(Self { socket })
    }

    /// The link of that resident, if it has dialled or does within the limit;
    /// it is not waited for any longer than it lives.
    pub(super) fn take(&self, resident: Resident, limit: Duration) -> Option<OwnedFd> {
        let held = hold(resident.pid);
        // One that has begun to end may take its time, but never dials.
        let limit = if resident.serves() { limit } else { Duration::ZERO };
        let deadline = Instant::now() + limit;
        for _ in 0..MOST_LOOKED_AT {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.socket, flags) {
                Ok(dialled)
                    if is_from(&dialled, resident)
                        && has_greeted(&dialled)
                        && is_told(&dialled) =>
                {
                    return Some(dialled);
                }
                Ok(_) => log::debug!("a link was dialled by another process, or wrongly"),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) if readable(&self.socket, held.as_ref(), deadline) => {}
                Err(Errno::AGAIN) => return None,
                Err(error) => {
                    log::debug!("accept a link: {error}");
                    return None;
                }
            }
        }
        None
    }
}

fn listening(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Whether the process that dialled is that one: the kernel names it, and a
/// pid that went round has another start.
fn is_from(dialled: &OwnedFd, resident: Resident) -> bool {
    let named = socket_peercred(dialled).map(|it| Pid::as_raw(Some(it.pid)).cast_unsigned());
    named == Ok(resident.pid) && resident.serves()
}

/// Whether it said the greeting, whole and nothing else, and is still there.
fn has_greeted(dialled: &OwnedFd) -> bool {
    if !readable(dialled, None, Instant::now() + GREETS_WITHIN) {
        return false;
    }
    // One byte more than any packet may have: a longer one is not cut to fit.
    let mut packet = [0; MOST_PACKET + 1];
    let said = recv(dialled, packet.as_mut_slice(), RecvFlags::DONTWAIT);
    said.is_ok_and(|(bytes, _)| packet.get(..bytes) == Some(HELLO)) && is_quiet(dialled)
}

/// Tells it that it is the one; not if it has gone meanwhile.
fn is_told(dialled: &OwnedFd) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    send(dialled, TAKEN, flags) == Ok(TAKEN.len())
}

/// Waits until something can be read, whether it can: not once the deadline has
/// passed or that process has ended.
fn readable(socket: &OwnedFd, process: Option<&OwnedFd>, deadline: Instant) -> bool {
    let watched: Vec<_> = [Some(socket), process].into_iter().flatten().map(AsFd::as_fd).collect();
    tells_by(deadline, &watched).unwrap_or(false)
}
