//! One call over the link: a stream socket whose other end the resident was
//! given. The first bytes on it come with the kernel's word of who wrote them;
//! a call of which that is somebody else has never begun.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::net::sockopt::{Timeout, set_socket_passcred, set_socket_timeout};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, recvmsg};
use rustix::process::Pid;

use crate::error::Result;
use crate::sandbox::process::{self, Process};
use crate::sandbox::talk::{STALL_LIMIT, Way};
use crate::sandbox::{Resident, Role};

/// Our end of a call.
#[derive(Debug)]
pub(in crate::sandbox) struct Call {
    socket: File,
    resident: Resident,
    role: Role,
    /// Who serves it, once it has spoken: for a command, its supervisor.
    other: OnceLock<Process>,
}

impl Call {
    pub(super) fn new(socket: OwnedFd, resident: Resident, role: Role) -> Self {
        // Without it a write would only wait longer for a side that reads not.
        let _ = set_socket_timeout(&socket, Timeout::Send, Some(STALL_LIMIT));
        Self { socket: File::from(socket), resident, role, other: OnceLock::new() }
    }

    /// Whether the process that wrote may serve this call.
    fn serves(&self, it: &Process) -> bool {
        match self.role {
            Role::Run => it.parent == self.resident.pid && it.started >= self.resident.started,
            Role::File => it.pid == self.resident.pid && it.started == self.resident.started,
        }
    }
}

impl Way for Call {
    fn input(&self) -> &File {
        &self.socket
    }

    fn output(&self) -> &File {
        &self.socket
    }

    fn meet(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(into)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let bytes = loop {
            match recvmsg(&self.socket, &mut parts, &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?.bytes,
            }
        };
        let writer = control.drain().find_map(|it| match it {
            RecvAncillaryMessage::ScmCredentials(it) => Some(Pid::as_raw(Some(it.pid))),
            _ => None,
        });
        set_socket_passcred(&self.socket, false)?;
        let writer = writer.and_then(|it| Process::look(it.cast_unsigned()));
        match writer {
            // What the resident refuses it says itself; nothing begins by that.
            Some(it) if self.serves(&it) => drop(self.other.set(it)),
            Some(it) if it.pid == self.resident.pid => {}
            _ if bytes == 0 => {}
            _ => return Err(io::Error::other("another process spoke on the socket of a call")),
        }
        Ok(bytes)
    }

    fn begin(&self) -> Result<()> {
        Ok(())
    }

    fn may_begin(&self) -> bool {
        self.other.get().is_some()
    }

    fn started(&self) -> Option<Vec<Process>> {
        let supervisor = self.other.get()?;
        if self.role == Role::File {
            return Some(Vec::new());
        }
        let mut all = process::all_below(supervisor.pid)?;
        all.push(supervisor.clone());
        Some(all)
    }

    fn cut(&self) {
        // Fails only where the other side has gone already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}
