//! What the kernel says of a process: memory, threads, descriptors.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Result;

/// How long a process must be unchanged to count as quiet: longer than the
/// five seconds after which the HTTP server's spare threads leave.
const QUIET: Duration = Duration::from_secs(6);

/// How long quiet is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A moment of a process; sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Resident memory.
    pub(crate) resident: u64,
    /// The part of it that no file backs.
    pub(crate) anonymous: u64,
    /// The most resident memory since it began, or since [`forget_peak`].
    pub(crate) peak: u64,
    /// Threads.
    pub(crate) threads: u64,
    /// Open descriptors.
    pub(crate) descriptors: u64,
}

/// Looks at a process.
pub(crate) fn look(pid: u32) -> Result<Moment> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|it| format!("look at process {pid}: {it}"))?;
    let field = |name: &str| field(&status, name).ok_or(format!("no {name} of process {pid}"));
    Ok(Moment {
        resident: field("VmRSS:")? * 1024,
        anonymous: field("RssAnon:")? * 1024,
        peak: field("VmHWM:")? * 1024,
        threads: field("Threads:")?,
        descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
    })
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Processor time that a process has had so far, in seconds.
pub(crate) fn busy_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Behind the name, which may hold anything.
    let fields = stat.rsplit_once(')').ok_or("no name in stat")?.1;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = times.filter_map(|it| it.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

/// Makes the peak of a process its present memory.
pub(crate) fn forget_peak(pid: u32) -> Result<()> {
    let file = format!("/proc/{pid}/clear_refs");
    fs::write(&file, "5").map_err(|it| format!("write {file}: {it}").into())
}

/// Waits until neither threads nor descriptors of a process change any more,
/// and looks then. The memory is not waited for: it may breathe.
pub(crate) fn when_quiet(pid: u32) -> Result<Moment> {
    let begun = Instant::now();
    let mut since = Instant::now();
    let mut last = look(pid)?;
    while since.elapsed() < QUIET {
        if begun.elapsed() > PATIENCE {
            return Err(format!("process {pid} does not come to rest: {last:?}").into());
        }
        sleep(Duration::from_millis(100));
        let now = look(pid)?;
        if (now.threads, now.descriptors) != (last.threads, last.descriptors) {
            since = Instant::now();
        }
        last = now;
    }
    Ok(last)
}

/// Bytes of a file as megabytes.
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Bytes of memory as mebibytes: the kernel counts pages.
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "VmHWM:\t    7168 kB\nVmRSS:\t  5120 kB\nThreads:\t9\n";
        assert_eq!(field(status, "VmRSS:"), Some(5120));
        assert_eq!(field(status, "Threads:"), Some(9));
        assert_eq!(field(status, "VmSwap:"), None);
    }

    #[test]
    fn this_process_has_memory_threads_and_descriptors() {
        let now = look(std::process::id()).expect("this process");
        assert!(now.resident >= now.anonymous && now.threads > 0 && now.descriptors > 2, "{now:?}");
    }
}
