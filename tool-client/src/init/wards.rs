//! The supervisors under watch, and what they leave: who may live on, and who
//! is killed since the one that should have done it was killed itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::PollFd;
use rustix::io::Errno;

use super::readable;
use super::supervisor::{Supervisor, Waiting};
use crate::tree::{self, Process};

/// Supervisors at a time. Those from outside that are too many run unwatched;
/// calls by the link wait.
const MOST_SUPERVISORS: usize = 256;

/// Pipes of spared children; the writers of further ones get SIGPIPE.
const MOST_PIPES_HELD: usize = 128;

/// Children of PID 1 that a supervisor left with its farewell, by number with
/// their start times.
type Spared = HashMap<i32, u64>;

/// All that PID 1 knows of them.
#[derive(Default)]
pub(crate) struct Wards {
    supervisors: Vec<Supervisor>,
    spared: Spared,
    /// Start of the earliest supervisor that was killed and whose command is
    /// not yet.
    killed_since: Option<u64>,
    /// Calls whose supervisors were killed before they took them.
    taken_back: Vec<Waiting>,
    /// Pipes into which spared children may write: read, and nobody listens.
    pipes: Vec<OwnedFd>,
}

/// Kills the children of PID 1 that are younger than the command of the
/// supervisor that was killed, with all below them, but for supervisors and for
/// those that another one spared.
pub(crate) fn kill_what_came(wards: &RefCell<Wards>) {
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

impl Wards {
    /// Takes one from outside under watch.
    pub(crate) fn admit(&mut self, connection: UnixStream) {
        if self.has_room() {
            self.supervisors.extend(Supervisor::registered(connection));
        }
    }

    /// Takes one under watch that was started here.
    pub(crate) fn add(&mut self, supervisor: Supervisor) {
        self.supervisors.push(supervisor);
    }

    /// Whether one more may be started.
    pub(crate) fn has_room(&self) -> bool {
        self.supervisors.len() < MOST_SUPERVISORS
    }

    /// Whether one waits for a call.
    pub(crate) fn has_spare(&self) -> bool {
        self.supervisors.iter().any(|it| it.since().is_none())
    }

    /// Whether one has a call.
    pub(crate) fn any(&self) -> bool {
        self.supervisors.iter().any(|it| it.since().is_some())
    }

    /// Gives a call to one that waits; gives it back if there is none.
    pub(crate) fn hand_over(&mut self, mut waiting: Waiting) -> Result<(), Waiting> {
        while let Some(at) = self.supervisors.iter().position(|it| it.since().is_none()) {
            match self.supervisors[at].hand_over(waiting) {
                Ok(()) => return Ok(()),
                Err(back) => waiting = back,
            }
            // Killed while it waited: it has left nothing.
            self.supervisors.swap_remove(at);
        }
        Err(waiting)
    }

    /// Whether something was noticed during a hunt that nothing else tells of.
    pub(crate) fn has_more(&self) -> bool {
        self.killed_since.is_some() || !self.taken_back.is_empty()
    }

    /// Calls whose supervisors were killed before they took them.
    pub(crate) fn taken_back(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.taken_back)
    }

    /// Wakes those that somebody inside has stopped.
    pub(crate) fn wake(&self) {
        self.supervisors.iter().for_each(Supervisor::wake);
    }

    /// Hears what supervisors say and lets those go that have ended.
    pub(crate) fn settle(&mut self) {
        let mut supervisors = std::mem::take(&mut self.supervisors);
        supervisors.retain_mut(|it| {
            let ended = it.has_ended();
            if ended {
                self.settle_one(it);
            }
            !ended
        });
        self.supervisors = supervisors;
    }

    fn settle_one(&mut self, it: &mut Supervisor) {
        let Some(since) = it.since() else { return };
        if let Some(waiting) = it.take_back() {
            self.taken_back.push(waiting);
        } else if let Some((children, left)) = it.farewell() {
            self.spared.extend(children.into_iter().filter_map(now));
            let room = MOST_PIPES_HELD.saturating_sub(self.pipes.len());
            self.pipes.extend(left.into_iter().take(room));
        } else {
            let earliest = self.killed_since.map_or(since, |other| other.min(since));
            self.killed_since = Some(earliest);
        }
    }

    /// Takes what has come through the pipes, a bounded bit of each; a pipe
    /// that nobody writes any more is let go.
    pub(crate) fn drain(&mut self) {
        let mut buffer = [0; 16 * 1024];
        self.pipes.retain(|it| match rustix::io::read(it, &mut buffer) {
            Ok(count) => count > 0,
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        });
    }

    /// Forgets spared children that have ended.
    pub(crate) fn forget_the_dead(&mut self) {
        self.spared.retain(|pid, started| now(*pid) == Some((*pid, *started)));
    }

    /// What is to be waited for.
    pub(crate) fn interest<'a>(&'a self, interest: &mut Vec<PollFd<'a>>) {
        interest.extend(self.pipes.iter().map(readable));
        for it in &self.supervisors {
            it.interest(interest);
        }
    }

    /// Whether that child of PID 1 is none that a supervisor which was killed,
    /// and had its command since then, can have left.
    fn spares(&self, it: &Process, since: u64) -> bool {
        it.started < since
            || self.spared.get(&it.pid) == Some(&it.started)
            || self.supervisors.iter().any(|supervisor| supervisor.is(it))
    }
}

fn now(pid: i32) -> Option<(i32, u64)> {
    tree::process(pid).map(|it| (pid, it.started))
}

#[cfg(test)]
mod tests {
    use super::*;

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
