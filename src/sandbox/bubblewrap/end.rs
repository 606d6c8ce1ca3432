//! The end of residents, and whose they are. What stands in a state file may
//! be past: a process counts as ours only if it started at that very tick, is
//! named as a resident is, and shows this agent's own socket folder or is in
//! this agent's cgroup. Nothing else is ever killed by its number.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};

use crate::error::{During, Error, Kind, Result};
use crate::sandbox::process::{self, Process, hold, number};
use crate::sandbox::wait::tells_by;
use crate::sandbox::{Resident, limits};

/// How long a killed sandbox may take to be gone: its last process takes the
/// mounts down, which waits for all others that mount on a busy host.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The bwraps that this process started, with the residents below them: an
/// ended one stays a zombie until it is asked after. A gateway that was
/// reloaded, or that started itself anew, is still the parent of what it started
/// before.
static STARTED: Mutex<Vec<(Option<Resident>, Pid)>> = Mutex::new(Vec::new());

/// Takes over the bwrap around a resident.
pub(super) fn look_after(resident: Resident, bwrap: &Child) {
    reap_ended();
    keep([(Some(resident), Pid::from_child(bwrap))]);
}

/// Takes over all children that this process has from before it started itself
/// anew: sandboxes that live on, and what had to do with calls that broke. To
/// be called before anything else is started.
pub fn adopt_children() {
    let own = std::process::id();
    let children = process::below(own).into_iter().filter(|it| it.parent == own);
    keep(children.filter_map(|it| {
        let residents = process::below(it.pid).into_iter().filter_map(|it| Resident::look(it.pid));
        Some((residents.into_iter().find(|it| is_first(it.pid)), number(it.pid)?))
    }));
    reap_ended();
}

fn keep(children: impl IntoIterator<Item = (Option<Resident>, Pid)>) {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).extend(children);
}

/// Lets those go that have ended; waits for none.
pub(super) fn reap_ended() {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    started.retain(|(_, child)| !is_reaped(*child));
}

/// Whether a child of ours is there no more; one that has ended is let go.
fn is_reaped(child: Pid) -> bool {
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Err(Errno::INTR) => {}
            other => return !matches!(other, Ok(None)),
        }
    }
}

/// Whether a resident that lives is that of this agent of this home.
pub(super) fn is_ours(it: Resident, sockets: &Path, instance: &str, agent: &str) -> bool {
    it.lives() && (shows(it.pid, sockets) || limits::is_in(instance, agent, it.pid))
}

/// Whether that folder is what the process sees as `/beige`.
fn shows(pid: u32, sockets: &Path) -> bool {
    let seen = fs::metadata(format!("/proc/{pid}/root/beige"));
    let number = |it: fs::Metadata| (it.dev(), it.ino());
    match (seen, fs::metadata(sockets)) {
        (Ok(seen), Ok(sockets)) => number(seen) == number(sockets),
        _ => false,
    }
}

/// Ends a resident of ours: the kernel ends all of its namespace with it, and
/// its own end is the last of it. Nothing is done to one that is gone.
pub(super) fn end(it: Resident) -> Result<()> {
    let doing = || format!("end the sandbox whose first process is {}", it.pid);
    let Some(pid) = number(it.pid) else { return Ok(()) };
    // A descriptor first: what it holds stays the same process.
    let held = match pidfd_open(pid, PidfdFlags::empty()) {
        // Nobody's, or a thread's.
        Err(Errno::SRCH | Errno::INVAL) => return Ok(()),
        other => other.during(Kind::Sandbox, doing())?,
    };
    if !it.lives() {
        return Ok(());
    }
    let others = process::below(it.pid);
    match pidfd_send_signal(&held, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error).during(Kind::Sandbox, doing()),
    }
    // The kernel does so too, but only once it has taken the mounts down.
    others.iter().for_each(kill);
    if !has_ended_within(&held, END_LIMIT) {
        return Err(not_gone(it));
    }
    see_off(it);
    Ok(())
}

/// Waits for the end of a resident that was killed by whomever; kills nothing.
pub(super) fn await_end(it: Resident) -> Result<()> {
    if !is_gone_within(it, END_LIMIT) {
        return Err(not_gone(it));
    }
    see_off(it);
    Ok(())
}

fn not_gone(it: Resident) -> Error {
    let limit = END_LIMIT.as_secs();
    let text = format!(
        "end the sandbox whose first process is {}: it was killed and is not gone after {limit} s; \
         try again when the host is less busy",
        it.pid
    );
    Error::new(Kind::Timeout, text)
}

/// Ends all residents that see that folder as `/beige`. A look at every process
/// of the host: for where no cgroup lists those of an agent.
pub(super) fn end_all_that_show(sockets: &Path) -> Result<()> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let residents = pids.filter_map(Resident::look).filter(|it| shows(it.pid, sockets));
    residents.filter(|it| is_first(it.pid)).try_for_each(end)
}

/// Kills exactly that process, if it is still there.
pub(super) fn kill(it: &Process) {
    if let Some(process) = hold(it.pid).filter(|_| it.lives()) {
        // Fails only if it is gone.
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }
}

/// Whether a resident has ended, after a wait of at most that long.
pub(super) fn is_gone_within(it: Resident, limit: Duration) -> bool {
    hold(it.pid).is_none_or(|process| !it.lives() || has_ended_within(&process, limit))
}

/// Waits for the bwrap around a resident that has ended, if it is a child of
/// this process: it has nothing left to do but to end.
fn see_off(resident: Resident) {
    let ours = {
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        let at = started.iter().position(|(it, _)| *it == Some(resident));
        at.map(|at| started.swap_remove(at))
    };
    let Some((_, bwrap)) = ours else { return };
    let process = pidfd_open(bwrap, PidfdFlags::empty()).ok();
    let has_ended = process.is_some_and(|it| has_ended_within(&it, END_LIMIT));
    if !has_ended || !is_reaped(bwrap) {
        keep([(Some(resident), bwrap)]);
    }
}

fn has_ended_within(process: &OwnedFd, limit: Duration) -> bool {
    tells_by(Instant::now() + limit, &[process.as_fd()]).unwrap_or(false)
}

/// Whether it is number 1 in the innermost of its namespaces; `true` where
/// that cannot be seen.
pub(super) fn is_first(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|it| it.strip_prefix("NSpid:"));
    numbers.is_none_or(|it| it.split_whitespace().next_back() == Some("1"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn whoever_has_the_number_now_is_not_killed_for_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let seen = Process::look(child.id()).unwrap();
        // The tick is right and the name is not; then the other way round.
        let by_tick = Resident { pid: seen.pid, started: seen.started };
        assert!(!is_ours(by_tick, Path::new("/"), "i", "a"));
        end(by_tick).unwrap();
        kill(&Process { started: seen.started + 1, ..seen.clone() });
        assert!(seen.lives());
        kill(&seen);
        child.wait().unwrap();
        end(by_tick).unwrap();
        assert!(is_gone_within(by_tick, Duration::ZERO));
    }

    /// What the test below runs in a process of its own: it takes all children.
    const ADOPTS: &str = "BEIGE_TEST_ADOPTS";

    #[test]
    #[allow(clippy::zombie_processes, reason = "what is tested waits for them")]
    fn children_from_before_are_no_zombies_once_they_have_ended() {
        if std::env::var_os(ADOPTS).is_none() {
            let name = "sandbox::bubblewrap::end::tests::\
                        children_from_before_are_no_zombies_once_they_have_ended";
            let mut again = Command::new(std::env::current_exe().unwrap());
            let done = again.args(["--exact", name]).env(ADOPTS, "1").output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            return;
        }
        let children = [(); 2].map(|()| {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            let seen = Process::look(child.id()).unwrap();
            // The one ends now, the other when it is killed below.
            (child.stdin.take(), seen)
        });
        let [(ends, first), (stays, second)] = children;
        drop(ends);
        assert!(process::have_ended(std::slice::from_ref(&first), Instant::now() + END_LIMIT));
        adopt_children();
        assert_eq!(Process::look(first.pid), None);
        assert!(second.lives());
        drop(stays);
        assert!(process::have_ended(std::slice::from_ref(&second), Instant::now() + END_LIMIT));
        reap_ended();
        assert_eq!(Process::look(second.pid), None);
    }

    #[test]
    fn a_folder_is_told_from_others() {
        let own = std::process::id();
        assert!(!shows(own, Path::new("/nowhere")));
        assert!(!shows(own, Path::new("/proc")));
    }
}
