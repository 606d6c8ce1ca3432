//! What a process of ours asks of its host before it works: room for
//! descriptors, an allocator that gives memory back, nothing passed on; and
//! that a gateway which meets a fault of its own starts anew.

use std::env;
use std::os::unix::process::CommandExt;
use std::panic;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use crate::config::Home;
use crate::error::{Error, Kind, Result};
use crate::sandbox::{self, bubblewrap};

/// Descriptors without which a gateway is of no use: where they run out, the
/// server behind its door dies.
const LEAST_DESCRIPTORS: u64 = 64;

/// How glibc is told to give memory back: few arenas, blocks from 128 KiB on by
/// themselves, and of threads that ended the stacks of four instead of 160. Read
/// once, when a process starts.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "2"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=1048576"),
];

/// The allocator's settings for a gateway that is started as a process of its
/// own; none if a person set others.
pub(super) fn frugal() -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_set = ALLOCATOR.iter().any(|(name, _)| env::var_os(name).is_some());
    ALLOCATOR.into_iter().filter(move |_| !is_set)
}

/// Starts this program anew in its own place with the allocator's settings,
/// unless it has them (or a person set others). What takes memory only once is
/// done before it. Comes back if that fails: the gateway then works with more
/// memory.
pub(super) fn restart_frugally(home: &Home) {
    if frugal().next().is_none() {
        return;
    }
    lay_client(home);
    let Ok(program) = super::this_program() else { return };
    let error = Command::new(program).args(env::args_os().skip(1)).envs(ALLOCATOR).exec();
    super::tell(&format!("beige gateway: the allocator's settings are not in force: {error}"));
}

/// How often in a row a gateway starts anew by itself.
const MOST_RISES: u32 = 3;

/// A gateway that ran so long has not failed in a row.
const STEADY: Duration = Duration::from_secs(60);

/// Tells the next process how often in a row it was started so.
const RISEN: &str = "BEIGE_RISEN";

/// Lets a gateway that panics, which is a fault of ours, start anew in its own
/// place: a thread that is missing, or a lock that nobody holds rightly, could
/// cost every agent more than the calls under way. Sandboxes and sessions are
/// taken over as after a kill. One that keeps failing ends instead, by SIGABRT.
pub(super) fn rise_after_panics() {
    let started = Instant::now();
    let risen = env::var(RISEN).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    if risen > 0 {
        bubblewrap::adopt_children();
    }
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |fault| {
        tell(fault);
        if let Some(next) = next_rise(risen, started.elapsed())
            && let Ok(program) = super::this_program()
        {
            super::tell("beige gateway: this is a fault in beige; it starts anew");
            let mut again = Command::new(program);
            let error = again.args(env::args_os().skip(1)).env(RISEN, next.to_string()).exec();
            super::tell(&format!("beige gateway: it cannot start anew: {error}"));
        }
        std::process::abort();
    }));
}

/// The number of the next start in a row; `None` if there is to be none.
fn next_rise(risen: u32, ran: Duration) -> Option<u32> {
    let next = if ran >= STEADY { 1 } else { risen.saturating_add(1) };
    (next <= MOST_RISES).then_some(next)
}

/// Unpacks the sandboxes' client into a home that is there, so that the gateway
/// itself finds it laid: it would keep the memory that this takes.
pub(super) fn lay_client(home: &Home) {
    if home.root().is_dir()
        && let Err(error) = sandbox::lay(home)
    {
        // The gateway tries again, and says it to whom it concerns.
        log::debug!("{error}");
    }
}

/// Keeps from every program that is started later whatever the caller left
/// open: in a sandbox a folder of the host would be a way out. std opens all
/// else so; what came from outside it cannot name.
pub(super) fn pass_on_no_descriptors() {
    close_fds::set_fds_cloexec(3, &[]);
}

/// Makes a file that has reached the limit of `ulimit -f` an error like a full
/// disk; the default would be the end of the process, between two lines of the
/// audit log.
pub(super) fn survive_size_limit() {
    // Nobody asks whether it came: the write that failed says so.
    let came = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, came) {
        super::tell(&format!("beige: the limit of file sizes is not an error: {error}"));
    }
}

/// Lets the process have as many descriptors as it may: each connection takes
/// a few. An error if those are too few for a gateway at all.
pub(super) fn raise_descriptor_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        log::warn!("raise the limit of open files: {error}");
    }
    match getrlimit(Resource::Nofile).current {
        Some(most @ ..LEAST_DESCRIPTORS) => {
            let what = format!(
                "only {most} open files are allowed, and a gateway needs {LEAST_DESCRIPTORS} at \
                 least; see `ulimit -n`"
            );
            Err(Error::new(Kind::Config, what))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_keeps_failing_is_not_started_for_ever() {
        let check = |risen, seconds, want| {
            assert_eq!(next_rise(risen, Duration::from_secs(seconds)), want);
        };
        check(0, 0, Some(1));
        check(2, 59, Some(3));
        check(3, 59, None);
        check(3, 60, Some(1));
        check(u32::MAX, 0, None);
    }

    /// What the test below runs in a process of its own.
    const FALLS: &str = "BEIGE_TEST_FALLS";

    #[test]
    fn who_panics_is_started_anew_until_it_is_too_often() -> std::io::Result<()> {
        if env::var_os(FALLS).is_some() {
            rise_after_panics();
            super::super::tell("it began");
            let fell = std::thread::spawn(fall);
            drop(fell.join());
            return Ok(());
        }
        let name = "cli::process::tests::who_panics_is_started_anew_until_it_is_too_often";
        let output = Command::new(env::current_exe()?)
            .args(["--exact", name, "--nocapture"])
            .env(FALLS, "1")
            .env_remove(RISEN)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.matches("it began").count(), 4, "{said}");
        assert_eq!(said.matches("it starts anew").count(), 3, "{said}");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6));
        Ok(())
    }

    #[allow(clippy::panic, reason = "it is what this test is about")]
    fn fall() -> bool {
        panic!("a fault that a test wants")
    }
}
