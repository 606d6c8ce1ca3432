//! One supervisor as PID 1 sees it: started ahead and waiting, or with a
//! command of its own; its word, its end, what it leaves.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, Timespec};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};

use super::{Hands, readable};
use crate::descriptor;
use crate::limits;
use crate::registration::{ACCEPTED, FAREWELL, MOST_PIPES, TAKEN};
use crate::tree::{self, Process};

/// Bytes of a farewell.
const MOST_FAREWELL: usize = 64 * 1024;

/// Clock ticks of /proc in a second, on every machine that beige knows.
const TICKS: u64 = 100;

/// A call that no supervisor has taken yet.
pub(crate) struct Waiting {
    /// Its socket.
    pub(crate) call: OwnedFd,
    /// When it came.
    pub(crate) since: Instant,
}

/// A supervisor under watch.
pub(crate) struct Supervisor {
    connection: OwnedFd,
    /// Readable once it has ended and its children have come to PID 1; the
    /// end of the connection would be too early.
    pidfd: OwnedFd,
    process: Process,
    /// Since when it can have started anything, in clock ticks since boot;
    /// `None` as long as it has no call.
    since: Option<u64>,
    /// The call that it was handed and has not taken yet: if it is killed
    /// before, another gets it.
    handed: Option<Waiting>,
    said: Vec<u8>,
    /// The connection has ended.
    is_silent: bool,
    /// What came with its farewell.
    pipes: Vec<OwnedFd>,
}

impl Supervisor {
    /// One that came from outside of the container, with its call. Only a
    /// process whose parent is outside is one: what an agent starts has
    /// another.
    pub(crate) fn registered(connection: UnixStream) -> Option<Self> {
        let pid = socket_peercred(&connection).ok()?.pid;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let process = tree::process(pid.as_raw_nonzero().get())?;
        if process.parent != 0 || pid == Pid::INIT {
            return None;
        }
        send(&connection, ACCEPTED, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok()?;
        let since = Some(process.started);
        Some(Self::new(connection.into(), pidfd, process, since))
    }

    /// Starts one that waits for a call.
    pub(crate) fn start(hands: &Hands) -> io::Result<Self> {
        let (connection, theirs) = UnixStream::pair()?;
        let _hold = hands.reaper.hold();
        // Its own file, by the kernel's word: the name may lead to another by
        // now. Its two outputs are PID 1's, since nothing is to be opened here
        // that somebody inside may have replaced.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tool-client").arg("--stand-by");
        command.env_clear().env(limits::VARIABLE, hands.limits.to_text());
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = hands.waker.while_waking(|| command.spawn())?;
        let pid = Pid::from_child(&child);
        // If these fail it sees its connection end, and ends too.
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let process = tree::process(pid.as_raw_nonzero().get())
            .ok_or_else(|| io::Error::other("/proc does not show it"))?;
        Ok(Self::new(connection.into(), pidfd, process, None))
    }

    pub(super) fn new(
        connection: OwnedFd,
        pidfd: OwnedFd,
        process: Process,
        since: Option<u64>,
    ) -> Self {
        Self {
            connection,
            pidfd,
            process,
            since,
            handed: None,
            said: Vec::new(),
            is_silent: false,
            pipes: Vec::new(),
        }
    }

    /// Gives it its call; gives that back if it is dead already.
    pub(crate) fn hand_over(&mut self, waiting: Waiting) -> Result<(), Waiting> {
        // Before it: nothing that it starts is older.
        let since = ticks_since_boot();
        match descriptor::send(&self.connection, b"R", waiting.call.as_fd()) {
            Ok(()) => {
                self.since = Some(since);
                self.handed = Some(waiting);
                Ok(())
            }
            Err(_) => Err(waiting),
        }
    }

    /// Wakes it, if somebody inside has stopped it.
    pub(crate) fn wake(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::CONT);
    }

    /// The call that it was handed and never took.
    pub(crate) fn take_back(&mut self) -> Option<Waiting> {
        self.handed.take()
    }

    /// Since when it can have started anything, in clock ticks since boot;
    /// `None` as long as it has no call.
    pub(crate) fn since(&self) -> Option<u64> {
        self.since
    }

    /// Whether this is that process.
    pub(crate) fn is(&self, process: &Process) -> bool {
        self.process.pid == process.pid && self.process.started == process.started
    }

    /// Hears what it says; says whether it has ended, with its children come to
    /// PID 1. If so, all that it said was heard.
    pub(crate) fn has_ended(&mut self) -> bool {
        let mut state = [readable(&self.pidfd), readable(&self.connection)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut state, Some(&now));
        let [ended, speaks] = state.map(|it| !it.revents().is_empty());
        if ended || speaks {
            self.hear();
        }
        ended
    }

    fn hear(&mut self) {
        let mut buffer = [0; 4096];
        while self.said.len() < MOST_FAREWELL {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PIPES))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let mut into = [IoSliceMut::new(&mut buffer)];
            let count = match recvmsg(&self.connection, &mut into, &mut control, flags) {
                Ok(it) if it.bytes > 0 => it.bytes,
                Err(Errno::AGAIN | Errno::INTR) => return,
                Ok(_) | Err(_) => {
                    self.is_silent = true;
                    return;
                }
            };
            self.said.extend_from_slice(&buffer[..count]);
            if self.handed.take_if(|_| self.said.first() == Some(&TAKEN)).is_some() {
                self.said.remove(0);
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(pipes) = message {
                    let room = MOST_PIPES.saturating_sub(self.pipes.len());
                    self.pipes.extend(pipes.filter(is_pipe).take(room));
                }
            }
        }
    }

    /// The children that it spared and the pipes into which they may write;
    /// `None` if it ended without its farewell.
    pub(crate) fn farewell(&mut self) -> Option<(Vec<i32>, Vec<OwnedFd>)> {
        farewell(&self.said).map(|children| (children, std::mem::take(&mut self.pipes)))
    }

    /// What is to be waited for.
    pub(crate) fn interest<'a>(&'a self, interest: &mut Vec<PollFd<'a>>) {
        interest.push(readable(&self.pidfd));
        // The connection's own end is no news.
        if self.said.len() < MOST_FAREWELL && !self.is_silent {
            interest.push(readable(&self.connection));
        }
    }
}

/// Takes only pipes, and sets them not to block: whatever else it were, to read
/// it might never end.
fn is_pipe(it: &OwnedFd) -> bool {
    fstat(it).is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Fifo)
        && fcntl_getfl(it).and_then(|flags| fcntl_setfl(it, flags | OFlags::NONBLOCK)).is_ok()
}

/// Now, as /proc tells when a process started.
fn ticks_since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * TICKS + nanos / (1_000_000_000 / TICKS)
}

/// The children named in a farewell; `None` if it is none. A last line that
/// is cut names nobody.
fn farewell(said: &[u8]) -> Option<Vec<i32>> {
    let lines = std::str::from_utf8(said).ok()?.strip_prefix(FAREWELL)?;
    Some(lines.split_inclusive('\n').filter_map(|it| it.strip_suffix('\n')?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: &str, want: Option<&[i32]>) {
        assert_eq!(farewell(said.as_bytes()).as_deref(), want);
    }

    #[test]
    fn only_a_farewell_spares_and_only_whole_numbers() {
        check("ok\n", Some(&[]));
        check("ok\n5\n66\n", Some(&[5, 66]));
        check("ok\n5\n6", Some(&[5]));
        check("ok\nx\n5\n", Some(&[5]));
        check("", None);
        check("ok", None);
        check("5\n", None);
    }

    #[test]
    fn now_is_told_as_proc_tells_it() {
        let before = ticks_since_boot();
        let child = Command::new("/bin/sh").args(["-c", "read x"]).stdin(Stdio::piped()).spawn();
        let Ok(mut child) = child else { unreachable!("a shell starts") };
        let started = tree::process(child.id().cast_signed()).map(|it| it.started);
        assert!(child.kill().is_ok() && child.wait().is_ok());
        let after = ticks_since_boot();
        assert!(started.is_some_and(|it| before <= it && it <= after), "{started:?}");
    }

    #[test]
    fn only_pipes_are_read() {
        let Ok((reader, writer)) = std::io::pipe() else { unreachable!("a pipe") };
        drop(writer);
        assert!(is_pipe(&reader.into()));
        let Ok(file) = std::fs::File::open("/dev/zero") else { unreachable!("/dev/zero") };
        assert!(!is_pipe(&file.into()));
    }
}
