//! One child process on the gateway's host, from its start to its end: feeds
//! its standard input, takes what it prints up to a bound, and kills its tree
//! when the time is up or the caller calls it off. It returns when the child
//! ended, whatever a grandchild still holds open. What a call is, and what its
//! output means, is for [`super::run`] to say.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::{During, Error, Kind, Result};
use crate::plugin::tree;
use crate::worker::Cancel;

/// How long output may still come after the child has ended.
const DRAIN: Duration = Duration::from_millis(300);

/// How long a killed child may take to be gone; more is a broken kernel.
const DEATH: Duration = Duration::from_secs(5);

const PIECE: usize = 64 * 1024;

/// What a child may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// After which the tree is killed.
    pub(crate) timeout: Duration,
    /// Bytes of standard output that are kept.
    pub(crate) stdout: usize,
    /// Bytes of standard error that are kept.
    pub(crate) stderr: usize,
}

/// A child that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// 128+n after signal n.
    pub(crate) code: i32,
    /// Whether its tree was killed by us, and why.
    pub(crate) killed: Option<Reason>,
    /// What it printed.
    pub(crate) stdout: Captured,
    /// What it complained of.
    pub(crate) stderr: Captured,
}

/// Why a tree was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its time was up.
    Timeout,
    /// The caller went away.
    Cancelled,
}

/// The beginning of a stream and how much was left out after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    /// What was kept.
    pub(crate) bytes: Vec<u8>,
    /// Bytes that were read and dropped.
    pub(crate) dropped: u64,
    limit: usize,
}

/// Who can call it off.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Whoever has the other end.
    pub cancel: &'a Cancel,
    /// A socket or pipe whose other side asked, by hanging up both ways.
    pub line: Option<BorrowedFd<'a>>,
}

/// Runs the command to its end. An error means that it was never started, or
/// that it could not be watched and was killed.
pub(crate) fn run(
    command: &mut Command,
    stdin: Option<&[u8]>,
    bounds: Bounds,
    asker: Asker<'_>,
) -> Result<Ended> {
    let input = if stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let hang_up = asker.cancel.hang_up().during(Kind::Internal, "watch who asked")?;
    let askers = asker.line.into_iter().chain(hang_up.as_ref().map(AsFd::as_fd)).collect();
    let mut child = Child::start(command, stdin, bounds, askers)?;
    child.watch().during(Kind::Internal, "watch the process")?;
    child.finish()
}

struct Child<'a> {
    process: process::Child,
    /// Readable once the process has ended.
    handle: OwnedFd,
    /// Each hangs up when it calls the work off; none once it is.
    askers: Vec<BorrowedFd<'a>>,
    stdin: Option<ChildStdin>,
    unsent: &'a [u8],
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    printed: Captured,
    complained: Captured,
    state: State,
    /// When the state is left, if nothing else happens.
    until: Instant,
    killed: Option<Reason>,
    /// Dropped last, and unarmed once the child is known to have ended.
    guard: KillOnDrop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Killed,
    /// The process has ended; its pipes may still hold something.
    Draining,
    Over,
}

/// Something that may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    CalledOff,
    Ended,
    Stdin,
    Stdout,
    Stderr,
}

impl<'a> Child<'a> {
    fn start(
        command: &mut Command,
        stdin: Option<&'a [u8]>,
        bounds: Bounds,
        askers: Vec<BorrowedFd<'a>>,
    ) -> Result<Self> {
        let mut process = command.spawn().map_err(|error| not_started(&error, command))?;
        let until = Instant::now() + bounds.timeout;
        let pid = Pid::from_child(&process);
        let guard = KillOnDrop { pid, armed: true };
        let handle = pidfd_open(pid, PidfdFlags::empty())
            .during(Kind::Internal, "watch the process just started")?;
        let (stdin_pipe, stdout, stderr) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take());
        for pipe in [
            stdin_pipe.as_ref().map(AsFd::as_fd),
            stdout.as_ref().map(AsFd::as_fd),
            stderr.as_ref().map(AsFd::as_fd),
        ] {
            never_block(pipe).during(Kind::Internal, "prepare a pipe")?;
        }
        Ok(Self {
            process,
            handle,
            askers,
            stdin: stdin_pipe,
            unsent: stdin.unwrap_or_default(),
            stdout,
            stderr,
            printed: Captured::within(bounds.stdout),
            complained: Captured::within(bounds.stderr),
            state: State::Running,
            until,
            killed: None,
            guard,
        })
    }

    /// Works until the process has ended and its output is read.
    fn watch(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            self.stdin = None;
        }
        let mut piece = vec![0; PIECE];
        while self.state != State::Over {
            for event in self.wait()? {
                self.handle(event, &mut piece)?;
            }
            if Instant::now() >= self.until {
                self.time_is_up();
            }
            let is_silent = self.stdout.is_none() && self.stderr.is_none();
            if self.state == State::Draining && is_silent {
                self.state = State::Over;
            }
        }
        Ok(())
    }

    /// What happened, at the latest when the state's time is up.
    fn wait(&self) -> io::Result<Vec<Event>> {
        let askers = self.askers.iter().map(|it| (Event::CalledOff, Some(*it), PollFlags::empty()));
        let pipes = [
            (Event::Ended, self.watched_handle(), PollFlags::IN),
            (Event::Stdin, self.stdin.as_ref().map(AsFd::as_fd), PollFlags::OUT),
            (Event::Stdout, self.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (Event::Stderr, self.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN),
        ];
        let (events, mut polled): (Vec<Event>, Vec<PollFd<'_>>) = askers
            .chain(pipes)
            .filter_map(|(event, fd, flags)| {
                fd.map(|it| (event, PollFd::from_borrowed_fd(it, flags)))
            })
            .unzip();
        let left = self.until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut polled, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = events.into_iter().zip(&polled).filter(|(_, it)| !it.revents().is_empty());
        Ok(happened.map(|(event, _)| event).collect())
    }

    /// The handle, as long as the end of the process is news.
    fn watched_handle(&self) -> Option<BorrowedFd<'_>> {
        matches!(self.state, State::Running | State::Killed).then(|| self.handle.as_fd())
    }

    fn handle(&mut self, event: Event, piece: &mut [u8]) -> io::Result<()> {
        match event {
            Event::CalledOff => {
                self.askers.clear();
                self.kill(Reason::Cancelled);
            }
            Event::Ended => {
                self.guard.armed = false;
                self.stdin = None;
                self.enter(State::Draining, DRAIN);
            }
            Event::Stdin => self.feed(),
            Event::Stdout => take(&mut self.stdout, &mut self.printed, piece)?,
            Event::Stderr => take(&mut self.stderr, &mut self.complained, piece)?,
        }
        Ok(())
    }

    fn time_is_up(&mut self) {
        match self.state {
            State::Running => self.kill(Reason::Timeout),
            State::Killed | State::Draining | State::Over => self.state = State::Over,
        }
    }

    fn kill(&mut self, reason: Reason) {
        if self.state == State::Running {
            tree::kill(self.guard.pid);
            self.killed = Some(reason);
            self.stdin = None;
            self.enter(State::Killed, DEATH);
        }
    }

    fn enter(&mut self, state: State, patience: Duration) {
        self.state = state;
        self.until = Instant::now() + patience;
    }

    /// Sends what fits; a child that reads no more has had enough.
    fn feed(&mut self) {
        let Some(pipe) = &mut self.stdin else { return };
        match pipe.write(self.unsent) {
            Ok(sent) => self.unsent = &self.unsent[sent..],
            Err(error) if is_passing(&error) => return,
            Err(_) => self.unsent = &[],
        }
        if self.unsent.is_empty() {
            self.stdin = None;
        }
    }

    /// How it ended. One that outlived its own killing is left to the system:
    /// waiting for it could take for ever.
    fn finish(mut self) -> Result<Ended> {
        if self.guard.armed {
            let pid = self.guard.pid.as_raw_nonzero();
            return Err(Error::new(Kind::Timeout, format!("process {pid} cannot be killed")));
        }
        let status = self.process.wait().during(Kind::Internal, "wait for a process")?;
        Ok(Ended {
            code: code_of(status),
            killed: self.killed,
            stdout: self.printed,
            stderr: self.complained,
        })
    }
}

/// Kills the tree of a child that is no longer watched.
struct KillOnDrop {
    pid: Pid,
    armed: bool,
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if self.armed {
            tree::kill(self.pid);
        }
    }
}

impl Captured {
    pub(super) fn within(limit: usize) -> Self {
        Self { bytes: Vec::new(), dropped: 0, limit }
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        let kept = piece.len().min(self.limit - self.bytes.len());
        self.bytes.extend_from_slice(&piece[..kept]);
        self.dropped += (piece.len() - kept) as u64;
    }
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|it| 128 + it)).unwrap_or(-1)
}

pub(super) fn never_block(pipe: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let Some(pipe) = pipe else { return Ok(()) };
    Ok(fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?)
}

/// Reads one piece; closes the pipe at its end.
fn take(pipe: &mut Option<impl Read>, captured: &mut Captured, piece: &mut [u8]) -> io::Result<()> {
    let Some(open) = pipe else { return Ok(()) };
    match open.read(piece) {
        Ok(0) => *pipe = None,
        Ok(count) => captured.add(&piece[..count]),
        Err(error) if is_passing(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Says what a person can do. Agents read it too, so of the host it names the
/// program's last part alone.
pub(super) fn not_started(error: &io::Error, command: &Command) -> Error {
    let program = Path::new(command.get_program());
    let program = format!("its program `{}`", program.file_name().unwrap_or_default().display());
    let (kind, why) = match error.kind() {
        ErrorKind::NotFound => (
            Kind::Internal,
            ", the interpreter named in the program's first line, or the plugin's folder is not \
             there",
        ),
        ErrorKind::PermissionDenied => {
            (Kind::Internal, " may not be executed, or a folder of PATH not be read")
        }
        ErrorKind::ExecutableFileBusy => (Kind::Busy, " is just being written; try again"),
        ErrorKind::ArgumentListTooLong => {
            let what = "its arguments and its environment are too long together";
            return Error::new(Kind::TooLarge, what);
        }
        _ => return Error::new(Kind::Internal, format!("start {program}: {error}")),
    };
    Error::new(kind, format!("{program}{why}"))
}
