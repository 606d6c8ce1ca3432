//! Finds processes in /proc and kills whole trees of them, so that none is
//! left: also those that changed process group or session, ignore SIGTERM, or
//! fork while they are looked for. First all are stopped, in rounds until a
//! round finds no new one, since a stopped process does not fork; then all
//! are killed, in rounds until the kernel says that no child is left: a look
//! through /proc that finds nothing proves nothing.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, Uid, WaitOptions, getpid, getuid, kill_process, kill_process_group,
    pidfd_open, pidfd_send_signal, wait,
};
use rustix::thread::set_thread_res_uid;

/// How long a tree is hunted before what is left of it is reported.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Rounds of stopping; each must have found something new.
const STOP_ROUNDS: usize = 64;

/// Rounds that found nothing until it is believed, where some are spared.
const QUIET_ROUNDS: usize = 5;

/// Looks at the direct children between two looks through all of /proc.
const SHORT_ROUNDS: usize = 64;

/// Bytes of a line of /proc/PID/stat: a name of at most 16 characters, four
/// bytes for each that is escaped, and 51 numbers.
const MOST_STAT: usize = 2048;

/// Deaths waited for in one round; the rest are seen in the next.
const WATCHED: usize = 64;

/// One process as /proc shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number in this namespace.
    pub(crate) pid: i32,
    /// Its parent's; 0 if that is outside.
    pub(crate) parent: i32,
    /// When it started, in clock ticks since boot: tells it from a later
    /// process of the same number.
    pub(crate) started: u64,
    /// Dead, and only waits to be reaped.
    pub(crate) dead: bool,
}

/// All processes that can be seen now; empty where there is no /proc.
pub(crate) fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(process)
        .collect()
}

/// The process of that number, if there is one.
pub(crate) fn process(pid: i32) -> Option<Process> {
    // The kernel gives the line whole to the first read that has room.
    let mut line = [0; MOST_STAT];
    let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    parse(line.get(..length)?)
}

/// Reads a line of /proc/PID/stat. The name in it is the process's own choice
/// and may hold anything; the last `)` ends it.
fn parse(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|it| *it == b'(')?;
    let close = stat.iter().rposition(|it| *it == b')')?;
    let pid = std::str::from_utf8(stat.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let threads: i64 = fields.get(17)?.parse().ok()?;
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        // A process whose first thread has ended looks dead and is not as
        // long as it has others.
        dead: matches!(*fields.first()?, "Z" | "X") && threads <= 1,
    })
}

/// Those of `all` that are alive and descend from one that `is_root`; the
/// roots themselves are among them if `with_roots`.
pub(crate) fn living_below(
    all: &[Process],
    is_root: impl Fn(&Process) -> bool,
    with_roots: bool,
) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for it in all {
        children.entry(it.parent).or_default().push(it);
    }
    let mut open: Vec<&Process> = all.iter().filter(|it| is_root(it)).collect();
    let mut seen: HashSet<i32> = open.iter().map(|it| it.pid).collect();
    let mut found: Vec<Process> = Vec::new();
    if with_roots {
        found.extend(open.iter().map(|it| (*it).clone()));
    }
    while let Some(parent) = open.pop() {
        for child in children.get(&parent.pid).into_iter().flatten() {
            if seen.insert(child.pid) {
                found.push((*child).clone());
                open.push(child);
            }
        }
    }
    found.retain(|it| !it.dead);
    found
}

/// The living descendants of a process.
pub(crate) fn descendants(of: Pid) -> Vec<Process> {
    let of = of.as_raw_nonzero().get();
    living_below(&processes(), |it| it.pid == of, false)
}

/// Kills all that descends from this process but for the children that are
/// spared, with what is below those, until `reap`, called after each round,
/// says that no child is left, or after [`QUIET_ROUNDS`] that found nothing if
/// some are spared. Gives the number of those left after [`PATIENCE`].
pub(crate) fn kill_all(
    spared: Option<&dyn Fn(&Process) -> bool>,
    mut reap: impl FnMut() -> bool,
) -> usize {
    let until = Instant::now() + PATIENCE;
    let find = || below_me(spared);
    stop_all(find, until);
    let mut quiet = 0;
    loop {
        let found = find();
        if Instant::now() >= until {
            // Seen or not: where no child is spared, one is left.
            return found.len().max(usize::from(spared.is_none()));
        }
        let dying: Vec<OwnedFd> =
            found.iter().filter_map(|it| signal(it, Signal::KILL)).take(WATCHED).collect();
        let more = kill_children(spared);
        await_deaths(&dying);
        quiet = if found.is_empty() && !more { quiet + 1 } else { 0 };
        if reap() || (spared.is_some() && quiet >= QUIET_ROUNDS) {
            return 0;
        }
    }
}

/// The living descendants of this process but for spared children and what is
/// below those.
fn below_me(spared: Option<&dyn Fn(&Process) -> bool>) -> Vec<Process> {
    let me = getpid().as_raw_nonzero().get();
    let doomed = |it: &Process| it.parent == me && !spared.is_some_and(|spares| spares(it));
    living_below(&processes(), doomed, true)
}

/// Kills the direct children, found the short way. What outruns a look through
/// all of /proc by forking and ending comes here as an orphan, again and
/// again, and is met here within microseconds. Says whether there were any.
fn kill_children(spared: Option<&dyn Fn(&Process) -> bool>) -> bool {
    let me = getpid();
    let list = format!("/proc/self/task/{me}/children");
    for round in 0..SHORT_ROUNDS {
        let Ok(children) = fs::read_to_string(&list) else { return false };
        let mut doomed = children
            .split_ascii_whitespace()
            .filter_map(|it| process(it.parse().ok()?))
            .filter(|it| !it.dead && !spared.is_some_and(|spares| spares(it)))
            .peekable();
        if doomed.peek().is_none() {
            return round > 0;
        }
        doomed.for_each(|it| drop(signal(&it, Signal::KILL)));
    }
    true
}

fn stop_all(find: impl Fn() -> Vec<Process>, until: Instant) {
    let mut stopped = HashSet::new();
    for _ in 0..STOP_ROUNDS {
        let mut new = find();
        new.retain(|it| stopped.insert((it.pid, it.started)));
        if new.is_empty() || Instant::now() >= until {
            return;
        }
        for it in &new {
            signal(it, Signal::STOP);
        }
    }
}

/// Kills all in this namespace at once: only PID 1 may say so.
pub(crate) fn kill_namespace(mut reap: impl FnMut() -> bool) -> usize {
    kill_all(None, || {
        let _ = kill_process_group(Pid::INIT, Signal::KILL);
        reap()
    })
}

/// Sends a signal to that very process, not to a later one of its number, and
/// gives a descriptor that becomes readable with its death.
fn signal(to: &Process, signal: Signal) -> Option<OwnedFd> {
    let pid = Pid::from_raw(to.pid.max(0))?;
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
        // Too many descriptors, or a kernel without them: by number.
        let _ = kill_process(pid, signal);
        return None;
    };
    if process(to.pid)?.started == to.started
        && pidfd_send_signal(&pidfd, signal) == Err(Errno::PERM)
    {
        let _ = as_its_user(pid, || pidfd_send_signal(&pidfd, signal));
    }
    Some(pidfd)
}

/// Does something with the effective user of that process. A container's root
/// has the right to become any user, but not the one to signal any user's
/// processes; the real user stays, so that nobody can signal us meanwhile.
fn as_its_user<T>(pid: Pid, act: impl FnOnce() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    let user = real_user(&fs::read(format!("/proc/{pid}/status")).unwrap_or_default());
    set_thread_res_uid(None, user.ok_or(Errno::SRCH)?, None)?;
    let done = act();
    set_thread_res_uid(None, getuid(), None)?;
    done
}

/// The real user in /proc/PID/status; its first line is the process's own
/// choice, but holds no newline.
fn real_user(status: &[u8]) -> Option<Uid> {
    let line = status.split(|it| *it == b'\n').find_map(|it| it.strip_prefix(b"Uid:\t"))?;
    let first = line.split(u8::is_ascii_whitespace).next()?;
    std::str::from_utf8(first).ok()?.parse().ok().map(Uid::from_raw)
}

/// Waits until one of them is dead, a tenth of a second at most; the next
/// round looks for itself.
fn await_deaths(dying: &[OwnedFd]) {
    let mut left: Vec<PollFd<'_>> = dying.iter().map(|it| PollFd::new(it, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let until = Instant::now() + Duration::from_millis(100);
    while !left.is_empty() && Instant::now() < until {
        if rustix::event::poll(&mut left, Some(&limit)).is_err() {
            return;
        }
        left.retain(|it| it.revents().is_empty());
    }
}

/// What one look at the children gave.
#[derive(Debug, Default)]
pub(crate) struct Reaped {
    /// Each child that was dead, with its exit code (128+n after signal n).
    pub(crate) dead: Vec<(Pid, i32)>,
    /// There is no child any more, dead or alive, hence no descendant either:
    /// the orphans of a subreaper are its children.
    pub(crate) none_left: bool,
}

/// Reaps all children that are dead now.
pub(crate) fn reap() -> Reaped {
    let mut reaped = Reaped::default();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let signal = status.terminating_signal().map(|it| 128 + it);
                reaped.dead.extend(status.exit_status().or(signal).map(|code| (pid, code)));
            }
            Err(Errno::INTR) => {}
            Ok(None) => return reaped,
            Err(_) => {
                reaped.none_left = true;
                return reaped;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(pid: i32, parent: i32) -> Process {
        Process { pid, parent, started: 1, dead: false }
    }

    #[track_caller]
    fn check(stat: &[u8], want: Option<Process>) {
        assert_eq!(parse(stat), want);
    }

    const REST: &str = "5 5 0 -1 4194304 1 0 0 0 0 0 0 0 20 0";

    #[test]
    fn a_name_cannot_forge_the_line_around_it() {
        let forged = format!("7 (a) Z 1 (b)\n) S 3 {REST} 1 0 99 0 0");
        check(forged.as_bytes(), Some(Process { pid: 7, parent: 3, started: 99, dead: false }));
        let mut bytes = b"7 (\xff)".to_vec();
        bytes.extend(format!(" S 3 {REST} 1 0 99").bytes());
        check(&bytes, Some(Process { pid: 7, parent: 3, started: 99, dead: false }));
    }

    #[test]
    fn a_zombie_with_threads_is_alive() {
        let dead = format!("7 (x) Z 3 {REST} 1 0 99");
        check(dead.as_bytes(), Some(Process { pid: 7, parent: 3, started: 99, dead: true }));
        let alive = format!("7 (x) Z 3 {REST} 2 0 99");
        check(alive.as_bytes(), Some(Process { pid: 7, parent: 3, started: 99, dead: false }));
    }

    #[test]
    fn the_real_user_is_the_first_of_four() {
        let status = b"Name:\tUid:\\n7\nUmask:\t0022\nUid:\t65534\t1\t2\t3\nGid:\t0\n";
        assert_eq!(real_user(status), Some(Uid::from_raw(65534)));
        assert_eq!(real_user(b"Name:\tx\n"), None);
        assert_eq!(real_user(b"Uid:\tx"), None);
    }

    #[test]
    fn a_line_that_is_cut_is_nothing() {
        let whole = format!("7 (x) S 3 {REST} 1 0 99");
        for end in 0..whole.len() - 2 {
            check(&whole.as_bytes()[..end], None);
        }
    }

    #[test]
    fn descendants_are_found_through_dead_parents_and_in_any_order() {
        let mut all = vec![one(9, 8), one(8, 5), one(5, 1), one(6, 1)];
        all[1].dead = true;
        let found = living_below(&all, |it| it.pid == 5, false);
        assert_eq!(found, [one(9, 8)]);
        let found = living_below(&all, |it| it.pid == 5, true);
        assert_eq!(found, [one(5, 1), one(9, 8)]);
    }
}
