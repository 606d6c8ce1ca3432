//! The two threads that move the bytes of a plugin's process: one writes what
//! is said to it, one reads what it prints. Neither blocks where the other
//! side does nothing, so that both end when they are told.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::complaints::Complaints;
use super::hearing::Hearing;
use super::process::{Pipes, Process};
use crate::error::{During, Kind};
use crate::plugin::child::is_passing;
use crate::plugin::connection::Letter;
use crate::worker::{Cancel, Canceller, Worker};

/// How long output may still come after the process has ended.
const DRAIN: Duration = Duration::from_millis(300);

const PIECE: usize = 64 * 1024;

/// What moves the bytes of one process.
pub(super) struct Streams {
    /// Dropped first: that ends the writing.
    input: Option<(Canceller, Worker)>,
    reading: Canceller,
    reader: Worker,
    /// Gets why the process is of no more use, once it is.
    pub(super) over: Receiver<Over>,
    last_words: Receiver<String>,
}

/// Why a process is of no more use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// It has ended.
    Ended,
    /// It can say nothing more.
    Silent,
    /// It broke a rule of the conversation.
    Breach(String),
    /// Nobody listens to it any more.
    Unheard,
}

impl Over {
    /// In words; `how` it ended, and what it printed last, as far as that is
    /// known.
    pub(super) fn told(&self, how: &str, last_words: &str) -> String {
        let what = match self {
            Self::Ended => how.to_owned(),
            Self::Silent => format!("closed its output and {how}"),
            Self::Breach(what) => what.clone(),
            Self::Unheard => "was stopped".to_owned(),
        };
        match last_words {
            "" => what,
            words => format!("{what}; it printed last: {words}"),
        }
    }
}

impl Streams {
    /// Writes `lines` to the process, and has its output heard.
    pub(super) fn start(
        plugin: &str,
        process: &Process,
        pipes: Pipes,
        lines: Receiver<Letter>,
        hearing: Hearing,
        complaints: Complaints,
    ) -> crate::error::Result<Self> {
        let Pipes { stdin, stdout, stderr } = pipes;
        let handle = process.handle().try_clone_to_owned();
        let handle = handle.during(Kind::Internal, "watch the process")?;
        let (closing, closed) = Cancel::pair();
        let writer = Writer { stdin, lines, closed };
        let writer = Worker::spawn(format!("plug-{plugin}-out"), move || writer.run())?;
        let (reading, enough) = Cancel::pair();
        let (tell, over) = bounded(1);
        let (leave, last_words) = bounded(1);
        let (stdout, stderr) = (Some(stdout), Some(stderr));
        let reader = Reader { stdout, stderr, handle, hearing, complaints, tell, enough };
        let reader = Worker::spawn(format!("plug-{plugin}-in"), move || {
            let _ = leave.send(reader.run());
        })?;
        Ok(Self { input: Some((closing, writer)), reading, reader, over, last_words })
    }

    /// Closes the input of the process.
    pub(super) fn close_input(&mut self) {
        self.input.take();
    }

    /// Reads no more; what the process complained of last. It has ended.
    pub(super) fn end(self) -> String {
        let Self { input, reading, reader, last_words, .. } = self;
        drop(input);
        // The reader sees by itself that the process has ended, and reads what
        // it left; a grandchild that holds the pipes is not waited for.
        let words = last_words.recv_timeout(2 * DRAIN).unwrap_or_default();
        drop(reading);
        drop(reader);
        words
    }
}

struct Writer {
    stdin: ChildStdin,
    lines: Receiver<Letter>,
    closed: Cancel,
}

impl Writer {
    fn run(mut self) {
        let Ok(Some(hang_up)) = self.closed.hang_up() else { return };
        // Lines of who asks are taken to the end: it is the reader that sees
        // the process go, and has those told who wait for it.
        let mut reads = true;
        loop {
            let line = select! {
                recv(self.lines) -> line => line,
                recv(self.closed.gone()) -> _ => return,
            };
            let Ok(line) = line else { return };
            reads = reads && self.write(&line.line, hang_up.as_fd()).is_ok();
        }
    }

    fn write(&mut self, mut line: &[u8], hang_up: BorrowedFd<'_>) -> io::Result<()> {
        while !line.is_empty() {
            match self.stdin.write(line) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => line = &line[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait_for_room(hang_up)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self, hang_up: BorrowedFd<'_>) -> io::Result<()> {
        let mut polled = [
            PollFd::new(&self.stdin, PollFlags::OUT),
            PollFd::from_borrowed_fd(hang_up, PollFlags::empty()),
        ];
        match poll(&mut polled, None) {
            Err(error) if error != rustix::io::Errno::INTR => return Err(error.into()),
            _ => {}
        }
        match polled[1].revents().is_empty() {
            true => Ok(()),
            false => Err(ErrorKind::BrokenPipe.into()),
        }
    }
}

struct Reader {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    handle: OwnedFd,
    hearing: Hearing,
    complaints: Complaints,
    tell: Sender<Over>,
    enough: Cancel,
}

/// What a reader waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Ended,
    Stdout,
    Stderr,
    Enough,
}

impl Reader {
    /// Reads until the process has ended and all it printed is heard, and tells
    /// who waits for its answers; what it complained of last.
    fn run(mut self) -> String {
        let over = self.read_on();
        let words = self.complaints.end();
        self.hearing.end(&over.told("has ended", &words));
        let _ = self.tell.try_send(over);
        words
    }

    fn read_on(&mut self) -> Over {
        let Ok(Some(enough)) = self.enough.hang_up() else { return Over::Unheard };
        let mut piece = vec![0; PIECE];
        let mut has_ended = false;
        // Once it has ended, or can say no more.
        let mut until = None;
        loop {
            let ready = match self.wait(enough.as_fd(), has_ended, until) {
                Ok(ready) => ready,
                Err(error) => return Over::Breach(format!("cannot be read: {error}")),
            };
            if ready.contains(&Source::Enough) {
                return Over::Unheard;
            }
            if ready.contains(&Source::Stderr) {
                self.read_stderr(&mut piece);
            }
            if ready.contains(&Source::Stdout)
                && let Err(breach) = self.read_stdout(&mut piece)
            {
                return Over::Breach(breach);
            }
            has_ended = has_ended || ready.contains(&Source::Ended);
            if has_ended || self.stdout.is_none() {
                until.get_or_insert_with(|| Instant::now() + DRAIN);
            }
            let is_read = self.stdout.is_none() && self.stderr.is_none();
            let is_late = until.is_some_and(|it| it <= Instant::now());
            match has_ended {
                true if is_read || is_late => return Over::Ended,
                false if is_late => return Over::Silent,
                _ => {}
            }
        }
    }

    fn wait(
        &self,
        enough: BorrowedFd<'_>,
        has_ended: bool,
        until: Option<Instant>,
    ) -> io::Result<Vec<Source>> {
        let handle = (!has_ended).then(|| self.handle.as_fd());
        let pipes = [
            (Source::Enough, Some(enough), PollFlags::empty()),
            (Source::Ended, handle, PollFlags::IN),
            (Source::Stdout, self.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (Source::Stderr, self.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN),
        ];
        let (sources, mut polled): (Vec<Source>, Vec<PollFd<'_>>) = pipes
            .into_iter()
            .filter_map(|(source, fd, flags)| {
                fd.map(|it| (source, PollFd::from_borrowed_fd(it, flags)))
            })
            .unzip();
        let left = until.map(|it| it.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = sources.into_iter().zip(&polled).filter(|(_, it)| !it.revents().is_empty());
        Ok(ready.map(|(source, _)| source).collect())
    }

    fn read_stdout(&mut self, piece: &mut [u8]) -> Result<(), String> {
        let Some(pipe) = &mut self.stdout else { return Ok(()) };
        match pipe.read(piece) {
            Ok(0) => self.stdout = None,
            Ok(count) => return self.hearing.take(&piece[..count], &self.complaints),
            Err(error) if is_passing(&error) => {}
            Err(_) => self.stdout = None,
        }
        Ok(())
    }

    fn read_stderr(&mut self, piece: &mut [u8]) {
        let Some(pipe) = &mut self.stderr else { return };
        match pipe.read(piece) {
            Ok(0) => self.stderr = None,
            Ok(count) => self.complaints.take(&piece[..count]),
            Err(error) if is_passing(&error) => {}
            Err(_) => self.stderr = None,
        }
    }
}
