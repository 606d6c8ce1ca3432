//! `--init`: PID 1 of a container. It reaps every orphan, so that none stays a
//! zombie, and it watches over the supervisors: one that ends without its
//! farewell was killed, most likely by the very command that it watched, and
//! then whatever it left behind is killed in its place.
//!
//! Nothing inside can end it: the kernel keeps from PID 1 every signal that it
//! has no handler for, and it is not dumpable, so that it cannot be traced.
//! For the same reason it does not hear SIGTERM, and no safe code can make it
//! hear: a container with it is made with `--stop-signal SIGKILL` (or stopped
//! by `docker kill`), which ends all in it at once.
//!
//! It needs no file, no port and no right: its socket has an abstract name,
//! which belongs to the container's own network namespace.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, WaitOptions, pidfd_open, set_dumpable_behavior, wait,
};

use crate::complain;
use crate::registration::{ACCEPTED, FAREWELL, MOST_PIPES, NAME};
use crate::tree::{self, Process};

/// How soon an orphan is reaped of whose coming nothing was heard.
const REAP_EVERY: Duration = Duration::from_secs(1);

/// Supervisors at a time; further ones run unwatched.
const MOST_SUPERVISORS: usize = 256;

/// Connections taken before anything else gets its turn: whatever is in the
/// container may connect, as often as it likes.
const MOST_AT_ONCE: usize = 64;

/// Bytes of a farewell.
const MOST_FAREWELL: usize = 64 * 1024;

/// Pipes of spared children; the writers of further ones get SIGPIPE.
const MOST_PIPES_HELD: usize = 256;

/// Children of PID 1 that a supervisor left with its farewell, by number with
/// their start times.
type Spared = HashMap<i32, u64>;

/// All that PID 1 knows.
#[derive(Default)]
struct Wards {
    supervisors: Vec<Supervisor>,
    spared: Spared,
    /// Start of the earliest supervisor that was killed and whose command is
    /// not yet.
    killed_since: Option<u64>,
    /// Pipes into which spared children may write: read, and nobody listens.
    pipes: Vec<OwnedFd>,
}

/// A supervisor under watch.
struct Supervisor {
    connection: UnixStream,
    /// Readable once it has ended and its children have come to PID 1; the
    /// end of the connection would be too early.
    pidfd: OwnedFd,
    started: u64,
    said: Vec<u8>,
    /// What came with its farewell.
    pipes: Vec<OwnedFd>,
}

/// Runs the role; it ends only when it cannot begin.
pub(crate) fn run() -> ExitCode {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let listener = SocketAddr::from_abstract_name(NAME)
        .and_then(|it| UnixListener::bind_addr(&it))
        .and_then(|it| it.set_nonblocking(true).map(|()| it));
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            complain(&format!("tool-client: cannot be PID 1 here, its socket is taken: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let (wake, woken) = sync_channel(1);
    let reaper = thread::Builder::new().stack_size(64 * 1024).spawn(move || reap_for_ever(&woken));
    if let Err(error) = reaper {
        complain(&format!("tool-client: cannot be PID 1 here, no thread can be started: {error}"));
        return ExitCode::FAILURE;
    }
    watch(&listener, &wake)
}

/// Reaps as children end; with no child at all it waits to be told of one.
fn reap_for_ever(woken: &Receiver<()>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => drop(woken.recv_timeout(REAP_EVERY)),
        }
    }
}

fn watch(listener: &UnixListener, wake: &SyncSender<()>) -> ExitCode {
    let wards = RefCell::new(Wards::default());
    loop {
        wait_for_news(listener, &wards.borrow());
        for connection in listener.incoming().take(MOST_AT_ONCE).map_while(Result::ok) {
            wards.borrow_mut().admit(connection);
        }
        wards.borrow_mut().drain();
        wards.borrow_mut().settle();
        let _ = wake.try_send(());
        while wards.borrow().killed_since.is_some() {
            kill_what_came(&wards);
        }
        wards.borrow_mut().spared.retain(|pid, started| lives(*pid, *started));
    }
}

/// Kills the children of PID 1 that are younger than the supervisor that was
/// killed, with all below them, but for those that another one spared.
fn kill_what_came(wards: &RefCell<Wards>) {
    let Some(since) = wards.borrow_mut().killed_since.take() else { return };
    let spares = |it: &Process| {
        // Seen before its supervisor's farewell was heard? That was said
        // before the child came here, so it can be heard by now.
        wards.borrow().spares(it, since) || {
            let mut wards = wards.borrow_mut();
            wards.settle();
            wards.spares(it, since)
        }
    };
    tree::kill_all(Some(&spares), || false);
}

fn wait_for_news(listener: &UnixListener, wards: &Wards) {
    let mut interest = vec![PollFd::new(listener, PollFlags::IN)];
    interest.extend(wards.pipes.iter().map(|it| PollFd::new(it, PollFlags::IN)));
    for it in &wards.supervisors {
        interest.push(PollFd::new(&it.pidfd, PollFlags::IN));
        // A farewell is read before its writer's end; the connection's own
        // end is no news.
        if it.said.len() < MOST_FAREWELL && !hung_up(&it.connection) {
            interest.push(PollFd::new(&it.connection, PollFlags::IN));
        }
    }
    let _ = rustix::event::poll(&mut interest, None);
}

fn hung_up(connection: &UnixStream) -> bool {
    let mut state = [PollFd::new(connection, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut state, Some(&now)).is_ok()
        && state[0].revents().contains(PollFlags::HUP)
}

impl Wards {
    /// Takes a supervisor under watch. Only a process whose parent is outside
    /// of the container is one: what an agent starts has another.
    fn admit(&mut self, connection: UnixStream) {
        if self.supervisors.len() < MOST_SUPERVISORS {
            self.supervisors.extend(supervisor(connection));
        }
    }

    /// Hears what supervisors say and lets those go that have ended.
    fn settle(&mut self) {
        let Self { supervisors, spared, killed_since, pipes } = self;
        supervisors.retain_mut(|it| {
            // First whether it has ended, then what it said: so all was said.
            let ended = has_ended(&it.pidfd);
            it.hear();
            if ended {
                match farewell(&it.said) {
                    Some(children) => {
                        spared.extend(children.into_iter().filter_map(now));
                        let room = MOST_PIPES_HELD.saturating_sub(pipes.len());
                        pipes.extend(it.pipes.drain(..).take(room));
                    }
                    None => {
                        let earliest =
                            killed_since.map_or(it.started, |other| other.min(it.started));
                        *killed_since = Some(earliest);
                    }
                }
            }
            !ended
        });
    }

    /// Takes what has come through the pipes, a bounded bit of each; a pipe
    /// that nobody writes any more is let go.
    fn drain(&mut self) {
        let mut buffer = [0; 16 * 1024];
        self.pipes.retain(|it| match rustix::io::read(it, &mut buffer) {
            Ok(count) => count > 0,
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        });
    }

    /// Whether that child of PID 1 is none of a supervisor that was killed
    /// and that had started then.
    fn spares(&self, it: &Process, since: u64) -> bool {
        it.started < since || self.spared.get(&it.pid) == Some(&it.started)
    }
}

fn supervisor(connection: UnixStream) -> Option<Supervisor> {
    let pid = socket_peercred(&connection).ok()?.pid;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let found = tree::process(pid.as_raw_nonzero().get())?;
    if found.parent != 0 || pid == Pid::INIT {
        return None;
    }
    send(&connection, ACCEPTED, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok()?;
    Some(Supervisor {
        connection,
        pidfd,
        started: found.started,
        said: Vec::new(),
        pipes: Vec::new(),
    })
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut state = [PollFd::new(pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut state, Some(&now)), Ok(1))
}

impl Supervisor {
    fn hear(&mut self) {
        let mut buffer = [0; 4096];
        while self.said.len() < MOST_FAREWELL {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PIPES))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let mut into = [IoSliceMut::new(&mut buffer)];
            let count = match recvmsg(&self.connection, &mut into, &mut control, flags) {
                Ok(it) if it.bytes > 0 => it.bytes,
                _ => return,
            };
            self.said.extend_from_slice(&buffer[..count]);
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(pipes) = message {
                    self.pipes.extend(pipes);
                }
            }
        }
    }
}

/// The children named in a farewell; `None` if it is none. A last line that
/// is cut names nobody.
fn farewell(said: &[u8]) -> Option<Vec<i32>> {
    let lines = std::str::from_utf8(said).ok()?.strip_prefix(FAREWELL)?;
    Some(lines.split_inclusive('\n').filter_map(|it| it.strip_suffix('\n')?.parse().ok()).collect())
}

fn now(pid: i32) -> Option<(i32, u64)> {
    tree::process(pid).map(|it| (pid, it.started))
}

fn lives(pid: i32, started: u64) -> bool {
    tree::process(pid).is_some_and(|it| it.started == started)
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
    fn what_is_older_or_was_spared_lives() {
        let spared = Spared::from([(7, 50)]);
        let wards = Wards { spared, ..Wards::default() };
        let spares =
            |pid, started| wards.spares(&Process { pid, parent: 1, started, dead: false }, 40);
        assert!(spares(6, 39));
        assert!(spares(7, 50));
        assert!(!spares(7, 51));
        assert!(!spares(6, 40));
    }
}
