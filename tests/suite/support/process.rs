//! A gateway as a process: what it takes of the machine.

use std::cell::Cell;
use std::fs;
use std::process::Child;

use super::{peak_memory, signal, wait_until};

/// Looks between which a process that has come to rest does nothing.
const QUIET_LOOKS: u32 = 60;

/// Resident memory in kB.
pub(crate) fn memory(gateway: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).expect("it runs");
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).expect("a size");
    let size = line.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(size <= peak_memory(gateway.id()));
    size
}

/// Threads but for those of the pool, which stay for a while.
pub(crate) fn threads(gateway: &Child) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", gateway.id())).expect("it runs").flatten();
    let name = |it: fs::DirEntry| fs::read_to_string(it.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|it| !it.is_empty() && !it.starts_with("llm-")).count()
}

/// Stops it, which must go well.
pub(crate) fn end(mut gateway: Child) {
    signal(gateway.id(), "TERM");
    assert!(gateway.wait().expect("it ends").success());
}

/// Waits until it has done next to nothing for a while.
#[track_caller]
pub(crate) fn wait_at_rest(gateway: &Child) {
    let seen = Cell::new((0, 0));
    wait_until("it is at rest", || {
        let (ticks, looks) = seen.get();
        let now = ticks_of(gateway);
        // A heartbeat may take a tick.
        let is_same = now <= ticks + 1;
        seen.set(if is_same { (ticks, looks + 1) } else { (now, 0) });
        is_same && looks > QUIET_LOOKS
    });
}

/// Processor time that it has had, in ticks of a hundredth of a second.
fn ticks_of(gateway: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", gateway.id())).expect("it runs");
    let fields = stat.rsplit_once(')').map(|it| it.1).unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|it| it.parse::<u64>().ok()).sum()
}
