//! What a gateway process asks of its host before it starts: room for
//! descriptors, and an allocator that gives memory back.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

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
/// unless it has them (or a person set others). Comes back if that fails:
/// the gateway then works with more memory.
pub(super) fn restart_frugally() {
    if frugal().next().is_none() {
        return;
    }
    let Ok(program) = super::this_program() else { return };
    let error = Command::new(program).args(env::args_os().skip(1)).envs(ALLOCATOR).exec();
    super::tell(&format!("beige gateway: the allocator's settings are not in force: {error}"));
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
/// a few.
pub(super) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        log::warn!("raise the limit of open files: {error}");
    }
}
