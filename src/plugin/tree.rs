//! Kills a process and all that descends from it, for processes of the
//! gateway's host, where there is neither a container nor a supervisor to do
//! it. Best effort by nature: a descendant whose parent ended and that also
//! left the process group can no longer be told from a stranger, and is left
//! alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

/// Most looks at /proc for processes that came to be since the last one.
const ROUNDS: usize = 64;

/// How long killed descendants are waited for, in all.
const DEATH: Duration = Duration::from_secs(2);

/// Kills the tree under `leader`, a child that leads its own process group and
/// was not waited for yet, so that its number cannot mean another process.
/// Everything is stopped before anything is killed: what is stopped cannot
/// fork, and what lives keeps its parent by which it is found. Returns when the
/// descendants are gone; the leader is the caller's to wait for.
pub(super) fn kill(leader: Pid) {
    kill_with(leader, &[]);
}

/// What descends from a process now.
pub(super) fn descendants(leader: Pid) -> Vec<Process> {
    descendants_of(vec![leader.as_raw_nonzero().get()])
}

/// The same as [`kill`], and kills those that descended from `leader` earlier
/// with all that descends from them.
pub(super) fn kill_with(leader: Pid, noted: &[Process]) {
    // A group that has ended already is what is wanted.
    let _ = kill_process_group(leader, Signal::STOP);
    let mut stopped = BTreeMap::new();
    for process in noted.iter().filter(|it| it.is_there()) {
        process.signal(Signal::STOP);
        stopped.insert(process.pid, *process);
    }
    for _ in 0..ROUNDS {
        let mut parents: Vec<i32> = stopped.keys().copied().collect();
        parents.push(leader.as_raw_nonzero().get());
        let found = descendants_of(parents);
        let new: Vec<Process> =
            found.into_iter().filter(|it| !stopped.contains_key(&it.pid)).collect();
        if new.is_empty() {
            break;
        }
        for process in new {
            process.signal(Signal::STOP);
            stopped.insert(process.pid, process);
        }
    }
    for process in stopped.values() {
        process.signal(Signal::KILL);
    }
    let _ = kill_process_group(leader, Signal::KILL);
    let until = Instant::now() + DEATH;
    for process in stopped.values() {
        process.wait_for_end(until);
    }
}

/// A process, told from a later one of the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: i32,
    parent: i32,
    /// Clock ticks since boot.
    started: u64,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// A line of `/proc/PID/stat`. The name in it is the process's own choice,
    /// parentheses included, so fields are counted from its last one.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { pid, parent, started })
    }

    /// Signals this very process, or nobody.
    fn signal(&self, signal: Signal) {
        if let Some(handle) = self.handle() {
            let _ = pidfd_send_signal(handle, signal);
        }
    }

    fn wait_for_end(&self, until: Instant) {
        let Some(handle) = self.handle() else { return };
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return };
        // Whether it came to its end or the time to its own, there is no more
        // to do.
        let _ = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left));
    }

    /// A handle of this very process, if it still exists. The number is looked
    /// at again once the handle is held: from then on it stays the same one's.
    fn handle(&self) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        self.is_there().then_some(handle)
    }

    fn is_there(&self) -> bool {
        Self::read(self.pid).is_some_and(|it| it.started == self.started)
    }
}

fn descendants_of(mut parents: Vec<i32>) -> Vec<Process> {
    let all = processes();
    let mut found = BTreeMap::new();
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|it| it.parent == parent) {
            if found.insert(process.pid, *process).is_none() {
                parents.push(process.pid);
            }
        }
    }
    found.into_values().collect()
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::read)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stat: &str, want: Option<(i32, u64)>) {
        assert_eq!(Process::parse(7, stat).map(|it| (it.parent, it.started)), want);
    }

    #[test]
    fn parent_and_start_are_found_behind_any_name() {
        let rest = "S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9876 1 2 3";
        check(&format!("7 (sh) {rest}"), Some((3, 9876)));
        check(&format!("7 (a) R 9 (b) {rest}"), Some((3, 9876)));
        check("7 (sh) S 3", None);
        check("", None);
    }

    #[test]
    fn this_process_has_the_parent_that_the_system_names() {
        let pid = std::process::id().cast_signed();
        let parent = std::os::unix::process::parent_id().cast_signed();
        assert_eq!(Process::read(pid).map(|it| it.parent), Some(parent));
    }
}
