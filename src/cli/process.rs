//! What a gateway process asks of its host before it starts: room for
//! descriptors, and an allocator that gives memory back.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, getrlimit, setrlimit};

/// How glibc's allocator is told to give memory back: few arenas, and blocks
/// from 128 KiB on by themselves. Read once, when a process starts.
const ALLOCATOR: [(&str, &str); 2] =
    [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "131072")];

/// Starts this program anew in its own place with the allocator's settings,
/// unless it has them (or a person set others). Comes back if that fails:
/// the gateway then works with more memory.
pub(super) fn restart_frugally() {
    if ALLOCATOR.iter().any(|(name, _)| env::var_os(name).is_some()) {
        return;
    }
    let Ok(program) = super::this_program() else { return };
    let error = Command::new(program).args(env::args_os().skip(1)).envs(ALLOCATOR).exec();
    super::tell(&format!("beige gateway: the allocator's settings are not in force: {error}"));
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
