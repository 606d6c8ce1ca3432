//! `--init`: the resident, PID 1 of a sandbox. It reaps every orphan, so that
//! none stays a zombie; it watches over the supervisors: one that ends without
//! its farewell was killed, most likely by the very command that it watched,
//! and then whatever it left behind is killed in its place; and it dials the
//! gateway's link sockets, by which it is handed calls (docs/link.md).
//!
//! Nothing inside can end it: the kernel keeps from PID 1 every signal that it
//! has no handler for, and it is not dumpable, so that it cannot be traced.
//! For the same reason it does not hear SIGTERM, and no safe code can make it
//! hear: a container with it is made with `--stop-signal SIGKILL` (or stopped
//! by `docker kill`), which ends all in it at once.
//!
//! One loop waits on everything at once, and nothing in it waits on anything
//! else: no descriptor blocks, every queue is bounded. It needs no port and no
//! right; the socket at which supervisors from outside register has an abstract
//! name, which belongs to the container's own network namespace.

mod calls;
mod door;
mod files;
mod links;
mod reaper;
mod settings;
mod supervisor;
mod waker;
mod wards;

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior};

use tool_client::frame;

use crate::complain;
use crate::limits::Limits;
use calls::{Calls, refuse};
use door::Door;
use files::Files;
use links::{Call, Links};
use reaper::Reaper;
pub(crate) use settings::Settings;
use waker::Waker;
use wards::Wards;

/// What a call is told where not even this process has the limits it began with.
const CRIPPLED: &str = "the limits of its first process were lowered from inside";

/// Between two tries to wait that failed.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// All that PID 1 does.
struct Resident<'a> {
    settings: &'a Settings,
    /// Not with `--leave-after`: into such a sandbox nobody enters otherwise,
    /// and its network, with its abstract names, may be the host's.
    door: Option<Door>,
    links: Links,
    calls: Calls,
    files: Files,
    wards: RefCell<Wards>,
    hands: Hands,
    /// Since when nobody has needed it, if so.
    idle: Option<Instant>,
}

/// What it takes to start a process.
struct Hands {
    reaper: Reaper,
    waker: Waker,
    /// Those that this sandbox began with.
    limits: Limits,
}

/// Runs the role; it ends when it cannot begin, or by `--leave-after`.
pub(crate) fn run(settings: &Settings) -> ExitCode {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // PID 1 gets all orphans by itself; in a test it is another process.
    let _ = set_child_subreaper(Some(getpid()));
    match Resident::begin(settings) {
        Ok(resident) => resident.serve(),
        Err(error) => {
            complain(&format!("tool-client: cannot be PID 1 here: {error}"));
            ExitCode::FAILURE
        }
    }
}

impl<'a> Resident<'a> {
    fn begin(settings: &'a Settings) -> io::Result<Self> {
        let limits = Limits::now();
        let door = match settings.leave_after {
            Some(_) => None,
            None => Some(Door::open()?),
        };
        if settings.leave_after.is_some() {
            // First of all: whoever counts its processes then finds one.
            say_ready()?;
        }
        Ok(Self {
            settings,
            door,
            links: Links::new(&settings.folder),
            calls: Calls::default(),
            files: Files::start()?,
            wards: RefCell::default(),
            hands: Hands { reaper: Reaper::start()?, waker: Waker::start()?, limits },
            idle: Some(Instant::now()),
        })
    }

    fn serve(mut self) -> ExitCode {
        loop {
            let now = Instant::now();
            self.step(now);
            self.idle = if self.is_needed() { None } else { self.idle.or(Some(now)) };
            if self.leaves_at().is_some_and(|it| it <= now) {
                return ExitCode::SUCCESS;
            }
            self.wait(now);
        }
    }

    /// Does all that can be done now.
    fn step(&mut self, now: Instant) {
        // Before any is taken: with too few descriptors a call would be lost.
        let is_sound = self.hands.limits.hold();
        let (calls, files) = (&mut self.calls, &self.files);
        self.links.take(now, |it| match it {
            Call::Run(call) | Call::File(call) if !is_sound => refuse(&call, CRIPPLED),
            Call::Run(call) => calls.add(call, now),
            Call::File(call) => files.add(call),
        });
        // After it: a link that has ended is dialled again at once.
        self.links.look(now);
        if let Some(door) = &mut self.door {
            door.take(now, |it| self.wards.get_mut().admit(it));
        }
        self.wards.get_mut().drain();
        self.wards.get_mut().settle();
        if self.hands.reaper.tells_of_a_stop() {
            self.wards.get_mut().wake();
        }
        self.calls.advance(self.wards.get_mut(), &self.hands, now);
        self.hands.reaper.wake();
        wards::kill_what_came(&self.wards);
        self.wards.get_mut().forget_the_dead();
    }

    fn is_needed(&mut self) -> bool {
        self.links.any() || self.calls.any() || self.files.any() || self.wards.get_mut().any()
    }

    fn leaves_at(&self) -> Option<Instant> {
        self.idle?.checked_add(self.settings.leave_after?)
    }

    /// Waits until there is something to do.
    fn wait(&self, now: Instant) {
        let wards = self.wards.borrow();
        let mut interest = Vec::new();
        self.links.interest(&mut interest);
        self.calls.interest(&mut interest);
        wards.interest(&mut interest);
        self.hands.reaper.interest(&mut interest);
        if let Some(door) = &self.door {
            door.interest(now, &mut interest);
        }
        let due = [
            self.links.due(),
            self.calls.due(&wards, now),
            self.door.as_ref().and_then(Door::due),
            self.files.due(now),
            self.leaves_at(),
        ];
        let limit = due.into_iter().flatten().min().map(|it| {
            // Rounded up, or the last wait would end just before its time.
            let left = it.saturating_duration_since(now) + Duration::from_millis(1);
            Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 })
        });
        if rustix::event::poll(&mut interest, limit.as_ref()).is_err() {
            // Out of memory, or of descriptors to wait on: not at full speed.
            let _ = rustix::event::poll(&mut [], Some(&PAUSE));
        }
    }
}

/// Says on standard output, a socket, that it stands: who started it learns its
/// number on the host from the kernel. Then nothing is said there any more.
fn say_ready() -> io::Result<()> {
    rustix::io::write(rustix::stdio::stdout(), &frame::head(frame::READY, 0)?)?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty())?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

/// What is waited for when somebody may write to it, or leave.
fn readable(it: &impl AsFd) -> PollFd<'_> {
    let it: BorrowedFd<'_> = it.as_fd();
    PollFd::from_borrowed_fd(it, PollFlags::IN)
}
