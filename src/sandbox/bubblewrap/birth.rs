//! The start of a resident: bwrap is started without a leash, and the first
//! process of the sandbox says on its standard output, a socket of ours, that
//! it is ready. Who said it is the kernel's word, and so is the pid by which
//! the resident is known from then on. Until it is kept, what was started ends
//! with this value.

use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tool_client::frame;

use super::end;
use crate::error::{During, Error, Kind, Result};
use crate::sandbox::child::{complaint_file, kill_all_of, read_complaint};
use crate::sandbox::process::{self, Process};
use crate::sandbox::wait::tells_by;
use crate::sandbox::{Resident, Spec};

/// How long a sandbox may take until its first process is ready.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// Processes between bwrap and the resident: two bwraps have three.
const MOST_BETWEEN: usize = 8;

/// Rounds in which the processes of a failed start are killed.
const ROUNDS: usize = 8;

/// A sandbox whose first process is ready, and in which nothing was run yet.
/// Dropped, it is killed with all that was started for it.
pub(super) struct Newborn {
    /// The outermost bwrap; taken once the sandbox is kept.
    bwrap: Option<Child>,
    /// The first process, whatever /proc shows of it.
    first: Option<OwnedFd>,
    resident: Option<Resident>,
}

/// Why a start came to nothing.
pub(super) enum Failure {
    /// bwrap ended by itself: another try may do better.
    Ended(String),
    /// Whatever it is, a further try would be the same.
    Other(Error),
}

impl Newborn {
    /// Starts that command and waits until its first process is ready.
    pub(super) fn start(command: Command, spec: &Spec) -> Result<Self, Failure> {
        let (ours, bwrap, mut complaint) = spawn(command).map_err(Failure::Other)?;
        let top = bwrap.id();
        let mut newborn = Self { bwrap: Some(bwrap), first: None, resident: None };
        match hear_ready(&ours, Instant::now() + READY_LIMIT).map_err(Failure::Other)? {
            Word::Ready(pid) => {
                newborn.first = pidfd_open(pid, PidfdFlags::empty()).ok();
                newborn.resident = recognised(pid, top, spec).map_err(Failure::Other)?;
                Ok(newborn)
            }
            Word::Ended => {
                // All who could still write it are about to be gone.
                drop(newborn);
                Err(Failure::Ended(read_complaint(&mut complaint)))
            }
            Word::Silent => Err(Failure::Other(Error::new(
                Kind::Timeout,
                format!(
                    "start the bubblewrap sandbox of `{}`: its first process was not ready within \
                     {} s; {}",
                    spec.agent,
                    READY_LIMIT.as_secs(),
                    read_complaint(&mut complaint)
                ),
            ))),
        }
    }

    /// Its first process; `None` if it cannot be seen from here.
    pub(super) fn resident(&self) -> Option<Resident> {
        self.resident
    }

    /// The process under which all of it is.
    pub(super) fn top(&self) -> Option<u32> {
        self.bwrap.as_ref().map(Child::id)
    }

    /// From now on it lives for itself, unless it cannot be seen: then it ends
    /// here.
    pub(super) fn keep(mut self) {
        let Some(resident) = self.resident else { return };
        if let Some(bwrap) = self.bwrap.take() {
            end::look_after(resident, &bwrap);
        }
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        let Some(mut bwrap) = self.bwrap.take() else { return };
        if let Some(first) = &self.first {
            // Fails only if it is gone already.
            let _ = pidfd_send_signal(first, Signal::KILL);
        }
        // From below, so that each is still found under its parent. A bwrap
        // that is still making the sandbox may fork between two looks.
        for _ in 0..ROUNDS {
            let below = process::below(bwrap.id());
            if below.is_empty() {
                break;
            }
            below.iter().rev().for_each(end::kill);
        }
        kill_all_of(bwrap.id());
        let _ = bwrap.wait();
    }
}

/// Starts it with nothing of ours but one end of a socket and a bounded file
/// for complaints.
fn spawn(mut command: Command) -> Result<(UnixStream, Child, fs::File)> {
    let doing = "make a socket for the first process of a sandbox";
    let (ours, theirs) = UnixStream::pair().during(Kind::Internal, doing)?;
    // Before anything can be said there.
    set_socket_passcred(&ours, true).during(Kind::Internal, doing)?;
    let complaint = complaint_file()?;
    let stderr = complaint.try_clone().during(Kind::Internal, "duplicate a descriptor")?;
    let program = command.get_program().to_string_lossy().into_owned();
    let bwrap = command
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(theirs))
        .stderr(stderr)
        // A Ctrl-C at the terminal of a one-shot is not meant for it.
        .process_group(0)
        .spawn()
        .during(Kind::Sandbox, format!("start `{program}`"))?;
    // The command, dropped here, holds the other end too.
    Ok((ours, bwrap, complaint))
}

/// What came on the socket.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// That process says that it is ready.
    Ready(Pid),
    /// Nobody is left to say it.
    Ended,
    /// Nothing, to the deadline.
    Silent,
}

/// Waits for the frame `READY`, all of it said by one process.
fn hear_ready(from: &UnixStream, deadline: Instant) -> Result<Word> {
    let doing = "hear the first process of a sandbox";
    let want = frame::head(frame::READY, 0).during(Kind::Internal, doing)?;
    let (mut said, mut sayer) = (Vec::new(), None);
    while said.len() < want.len() {
        if !tells_by(deadline, &[from.as_fd()]).during(Kind::Sandbox, doing)? {
            return Ok(Word::Silent);
        }
        let mut piece = vec![0; want.len() - said.len()];
        let (count, by) = match receive(from, &mut piece) {
            Ok(None) | Err(Errno::CONNRESET) => return Ok(Word::Ended),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            other => other.during(Kind::Sandbox, doing)?.unwrap_or_default(),
        };
        said.extend_from_slice(&piece[..count]);
        if by.is_none() || sayer.is_some_and(|it| Some(it) != by) || !want.starts_with(&said) {
            return Err(Error::new(Kind::Sandbox, format!("{doing}: it said something else")));
        }
        sayer = by;
    }
    Ok(sayer.map_or(Word::Ended, Word::Ready))
}

/// Bytes, and whose they are; `None` at the end of the stream. The end is
/// nobody's: the kernel would name process 0, and there is no such number.
fn receive(
    from: &UnixStream,
    piece: &mut [u8],
) -> rustix::io::Result<Option<(usize, Option<Pid>)>> {
    if recv(from, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0 == 0 {
        return Ok(None);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let count = recvmsg(from, &mut [IoSliceMut::new(piece)], &mut control, flags)?.bytes;
    let credentials = control.drain().find_map(|it| match it {
        RecvAncillaryMessage::ScmCredentials(it) => Some(it.pid),
        _ => None,
    });
    Ok(Some((count, credentials)))
}

/// The process that said it is ready, as a resident: a tool-client below what
/// we started, and the first of its namespace. `None` if /proc does not show
/// it; an error if it is another.
fn recognised(pid: Pid, top: u32, spec: &Spec) -> Result<Option<Resident>> {
    let pid = pid.as_raw_nonzero().get().unsigned_abs();
    if Process::look(pid).is_none() {
        return Ok(None);
    }
    let resident = Resident::look(pid);
    if resident.is_some() && is_below(pid, top) && end::is_first(pid) {
        return Ok(resident);
    }
    let what = format!(
        "start the bubblewrap sandbox of `{}`: process {pid}, which said that it is ready, is not \
         its first one",
        spec.agent
    );
    Err(Error::new(Kind::Sandbox, what))
}

fn is_below(pid: u32, top: u32) -> bool {
    let parents = std::iter::successors(Some(pid), |it| Process::look(*it).map(|it| it.parent));
    parents.take(MOST_BETWEEN).any(|it| it == top)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What is heard of somebody who says that and leaves.
    #[track_caller]
    fn check(said: &[u8], want: Option<&Word>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        set_socket_passcred(&ours, true).unwrap();
        theirs.write_all(said).unwrap();
        drop(theirs);
        let heard = hear_ready(&ours, Instant::now() + READY_LIMIT);
        assert_eq!(heard.ok().as_ref(), want);
    }

    #[test]
    fn only_a_whole_ready_counts_and_the_kernel_says_whose_it_is() {
        check(&[8, 0, 0, 0, 0], Some(&Word::Ready(rustix::process::getpid())));
        check(&[8, 0, 0], Some(&Word::Ended));
        check(&[], Some(&Word::Ended));
        check(&[8, 0, 0, 0, 1], None);
        check(b"hello", None);
    }

    #[test]
    fn a_silent_start_is_waited_for_no_longer_than_its_time() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(hear_ready(&ours, Instant::now()).ok(), Some(Word::Silent));
    }

    #[test]
    fn a_process_is_below_its_parents_only() {
        let own = std::process::id();
        let parent = Process::look(own).unwrap().parent;
        assert!(is_below(own, own) && is_below(own, parent));
        assert!(!is_below(parent, own));
        assert!(!end::is_first(own) || own == 1);
    }
}
