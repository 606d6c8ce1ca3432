//! The process's own standard input and signals: as a [`Feed`] for a command,
//! or as something to do. Every thread ends with its owner, also while nothing comes.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, select};
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::error::{During, Kind, Result};
use crate::sandbox::Feed;
use crate::worker::{Canceller, Worker};

/// Bytes of one piece.
const PIECE: usize = 32 * 1024;

/// How long a command may live on after the first signal it was passed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads that feed; dropping it ends them.
pub(super) struct Feeding {
    _wake: UnixStream,
    signals: Handle,
    caught: Receiver<u8>,
    _stdin_thread: Worker,
    _signal_thread: Worker,
    _patience_thread: Worker,
}

/// Starts to read standard input and to pass SIGINT and SIGTERM on. A second
/// signal, or the end of [`PATIENCE`] after the first, calls the command off by
/// `canceller`.
pub(super) fn start(canceller: Canceller) -> Result<(Feeding, Feed)> {
    let (pieces, stdin) = bounded(1);
    let (numbers, signals) = bounded(8);
    let (first, caught_first) = bounded(1);
    let (awake, wake) = UnixStream::pair().during(Kind::Internal, "make a pair of sockets")?;
    let stdin_thread = Worker::spawn("stdin", move || {
        // An input that cannot be read is an input that has ended.
        let _ = read_all(&awake, &pieces);
    })?;
    let mut caught = Signals::new([SIGINT, SIGTERM]).during(Kind::Internal, "take over signals")?;
    let handle = caught.handle();
    let (signalled, wait) = bounded(1);
    let patience_thread = call_off_in_time(wait, canceller.clone())?;
    let signal_thread = Worker::spawn("signal", move || {
        for (count, number) in caught.forever().enumerate() {
            let number = u8::try_from(number).unwrap_or_default();
            // The first one is kept.
            let _ = first.try_send(number);
            let _ = signalled.try_send(());
            let passed = numbers.try_send(number).is_ok();
            if count > 0 || !passed {
                canceller.cancel();
            }
        }
    })?;
    let feeding = Feeding {
        _wake: wake,
        signals: handle,
        caught: caught_first,
        _stdin_thread: stdin_thread,
        _signal_thread: signal_thread,
        _patience_thread: patience_thread,
    };
    Ok((feeding, Feed { stdin, signals }))
}

/// A thread that waits for a signal, then for the command to end; it ends with
/// whoever sends.
fn call_off_in_time(signalled: Receiver<()>, canceller: Canceller) -> Result<Worker> {
    Worker::spawn("patience", move || {
        if signalled.recv().is_err() {
            return;
        }
        let deadline = after(PATIENCE);
        loop {
            select! {
                recv(signalled) -> more => if more.is_err() { return },
                recv(deadline) -> _ => return canceller.cancel(),
            }
        }
    })
}

impl Feeding {
    /// The first signal that came; asked once, at the end.
    pub(super) fn caught(&self) -> Option<u8> {
        self.caught.try_recv().ok()
    }
}

/// A thread that does something on SIGINT and SIGTERM; dropping it ends it.
pub(super) struct SignalWatch {
    handle: Handle,
    caught: Receiver<u8>,
    _thread: Worker,
}

impl SignalWatch {
    /// The first signal that came; asked once, at the end.
    pub(super) fn caught(&self) -> Option<u8> {
        self.caught.try_recv().ok()
    }
}

/// Runs `each` on every SIGINT and SIGTERM, with how many came before and its
/// number.
pub(super) fn on_signals(mut each: impl FnMut(usize, i32) + Send + 'static) -> Result<SignalWatch> {
    let mut caught = Signals::new([SIGINT, SIGTERM]).during(Kind::Internal, "take over signals")?;
    let handle = caught.handle();
    let (first, caught_first) = bounded(1);
    let thread = Worker::spawn("signal", move || {
        for (count, number) in caught.forever().enumerate() {
            // The first one is kept.
            let _ = first.try_send(u8::try_from(number).unwrap_or_default());
            each(count, number);
        }
    })?;
    Ok(SignalWatch { handle, caught: caught_first, _thread: thread })
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.handle.close();
    }
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.signals.close();
    }
}

fn read_all(awake: &UnixStream, pieces: &Sender<Vec<u8>>) -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    let mut buffer = vec![0; PIECE];
    loop {
        if !is_readable(awake)? {
            return Ok(());
        }
        let count = match stdin.read(&mut buffer) {
            // Another process may read from it too, or have set it not to block.
            Err(error) if is_passing(&error) => continue,
            other => other?,
        };
        match count {
            0 => return Ok(()),
            count if pieces.send(buffer[..count].to_vec()).is_err() => return Ok(()),
            _ => {}
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

/// Waits until standard input has something; `false` once the owner is gone.
fn is_readable(awake: &UnixStream) -> io::Result<bool> {
    let stdin = io::stdin();
    loop {
        let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(awake, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => return Ok(false),
            Ok(_) if !fds[0].revents().is_empty() => return Ok(true),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
