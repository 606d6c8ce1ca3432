//! Which libraries programs need, by the host's own loader (`ldd`): only ever
//! asked about files that root, or whoever builds, has written.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::error::Result;
use crate::sandbox::oneshot;

/// Files a call: few enough for the answer to stay within its bound.
const AT_ONCE: usize = 25;

/// All libraries that these files need, the loader included. A file that
/// needs none, or is for another machine, adds none.
pub(super) fn of(files: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut libraries = BTreeSet::new();
    for some in files.chunks(AT_ONCE) {
        let mut command = Command::new("/usr/bin/ldd");
        // Nothing of ours may change what the loader finds.
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").args(some);
        // Its status only tells whether all of them had some.
        let listed = oneshot::run(command, Duration::from_secs(30))?;
        libraries.extend(listed.stdout.lines().filter_map(library));
    }
    Ok(libraries)
}

/// The path in `name => /path (0x1)` or `/path (0x1)`.
fn library(line: &str) -> Option<PathBuf> {
    let (found, _) = line.trim().rsplit_once(" (0x")?;
    let path = found.rsplit_once(" => ").map_or(found, |(_, it)| it);
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, want: Option<&str>) {
        assert_eq!(library(line), want.map(PathBuf::from));
    }

    #[test]
    fn libraries_and_the_loader_are_found() {
        check("\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)", Some("/lib/x/libc.so.6"));
        check("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)", Some("/lib64/ld-linux-x86-64.so.2"));
        check("\t/lib/ld-musl.so.1 => /lib/ld-musl.so.1 (0x7f)", Some("/lib/ld-musl.so.1"));
    }

    #[test]
    fn everything_else_is_none() {
        check("\tlinux-vdso.so.1 (0x00007f)", None);
        check("\tlibgone.so => not found", None);
        check("/usr/bin/cat:", None);
        check("\tnot a dynamic executable", None);
    }
}
