//! Paths, resolved by the kernel beneath the sandbox's own root. The links of
//! /proc that lead by no name (`/proc/self/fd/3`, `/proc/1/root`) are not
//! followed, and nothing below a process's folder in /proc is opened: who does
//! this may be PID 1 itself, and what is *its* own is nobody's business.
//!
//! Whoever swaps folders and links meanwhile wins nothing: a folder is resolved
//! once, to a descriptor, and what is done in it goes by that.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstatfs, mkdirat, openat, openat2, readlink,
    readlinkat,
};
use rustix::io::{Errno, Result};

/// Links followed from one name to the file.
const MOST_LINKS: usize = 40;

/// Tries where folders were being moved while the kernel resolved a path with
/// `..` in it.
const MOST_TRIES: usize = 256;

/// How paths are resolved.
const HOW: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// The sandbox's root.
pub(crate) struct Root {
    folder: OwnedFd,
    /// The kernel, or the filter of the runtime, takes `openat2`.
    scoped: bool,
}

/// A name in a folder that is open: where something is to be made or replaced.
pub(crate) struct Spot {
    /// The folder.
    pub(crate) folder: OwnedFd,
    /// The last name, which was no link.
    pub(crate) name: PathBuf,
}

impl Root {
    /// Opens it. Where `openat2` cannot be had, a process of its own may go on
    /// without: it has nothing behind /proc that is worth reaching.
    pub(crate) fn open() -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Not `HOW`: beneath the working folder as root that were the root.
        match openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
            Ok(folder) => Ok(Self { folder, scoped: true }),
            Err(Errno::NOSYS | Errno::PERM) => {
                let folder = openat(CWD, "/", flags, Mode::empty())?;
                Ok(Self { folder, scoped: false })
            }
            Err(error) => Err(error),
        }
    }

    /// Whether paths are resolved as the head of this file says.
    pub(crate) fn is_scoped(&self) -> bool {
        self.scoped
    }

    /// Opens what an absolute path leads to.
    pub(crate) fn open_at(&self, path: &Path, flags: OFlags) -> Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        let file = self.resolve(path, flags)?;
        if is_of_a_process(&file) {
            return Err(Errno::ACCESS);
        }
        Ok(file.into())
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        if !self.scoped {
            return openat(&self.folder, path, flags, Mode::empty());
        }
        for _ in 0..MOST_TRIES {
            match openat2(&self.folder, path, flags, Mode::empty(), HOW) {
                Err(Errno::AGAIN | Errno::INTR) => std::thread::yield_now(),
                it => return it,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The spot that an absolute path leads to, links at its end followed, also
    /// to what does not exist yet; folders on the way are made.
    pub(crate) fn spot(&self, path: &Path) -> Result<Spot> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let parent = path.parent().unwrap_or(Path::new("/"));
            let name = path.file_name().ok_or(Errno::ISDIR)?;
            let folder = self.folder_at(parent)?;
            match readlinkat(&folder, name, Vec::new()) {
                Ok(to) => path = parent.join(OsStr::from_bytes(to.as_bytes())),
                Err(Errno::NAMETOOLONG) => return Err(Errno::NAMETOOLONG),
                Err(_) => return Ok(Spot { folder, name: name.into() }),
            }
        }
        Err(Errno::LOOP)
    }

    /// Where the link at the end of an absolute path leads, if there is one.
    pub(crate) fn link_at(&self, path: &Path) -> Option<PathBuf> {
        let folder = self.enter(path.parent()?).ok()?;
        let to = readlinkat(&folder, path.file_name()?, Vec::new()).ok()?;
        Some(OsStr::from_bytes(to.as_bytes()).into())
    }

    /// Opens a folder, made with those above it if missing.
    fn folder_at(&self, path: &Path) -> Result<OwnedFd> {
        let missing = match self.enter(path) {
            Err(Errno::NOENT) => path.ancestors().skip(1),
            it => return it,
        };
        // From the last that exists down again.
        let mut depth = 1;
        let mut folder = None;
        for above in missing {
            match self.enter(above) {
                Err(Errno::NOENT) => depth += 1,
                it => {
                    folder = Some(it?);
                    break;
                }
            }
        }
        let mut folder = folder.ok_or(Errno::NOENT)?;
        for step in (0..depth).rev() {
            let Some(at) = path.ancestors().nth(step) else { continue };
            if let Some(name) = at.file_name() {
                match mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
            }
            folder = self.enter(at)?;
        }
        Ok(folder)
    }

    fn enter(&self, path: &Path) -> Result<OwnedFd> {
        let folder = self.open_at(path, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(folder.into())
    }
}

/// Whether it is in a process's folder of /proc.
fn is_of_a_process(file: &OwnedFd) -> bool {
    if !fstatfs(file).is_ok_and(|it| it.f_type == PROC_SUPER_MAGIC) {
        return false;
    }
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = readlink(name, Vec::new()).unwrap_or_default();
    // What the kernel does not name is refused as well.
    path.as_bytes().strip_prefix(b"/proc").is_none_or(|rest| {
        rest.strip_prefix(b"/").and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn root() -> Root {
        match Root::open() {
            Ok(root) => root,
            Err(error) => unreachable!("there is a root: {error}"),
        }
    }

    #[track_caller]
    fn refused(path: &str, want: Errno) {
        let got = root().open_at(Path::new(path), OFlags::RDONLY | OFlags::NONBLOCK);
        assert_eq!(got.err(), Some(want), "{path}");
    }

    #[test]
    fn what_a_process_has_in_proc_is_not_opened() {
        assert!(root().is_scoped(), "this kernel has openat2");
        assert!(root().open_at(Path::new("/proc/version"), OFlags::RDONLY).is_ok());
        assert!(root().open_at(Path::new("/proc/sys/kernel/ostype"), OFlags::RDONLY).is_ok());
        refused("/proc/self/maps", Errno::ACCESS);
        refused("/proc/thread-self/maps", Errno::ACCESS);
        refused("/proc/self/../1/stat", Errno::ACCESS);
        refused("/proc/self", Errno::ACCESS);
        refused("/proc/self/root/proc/version", Errno::LOOP);
        refused("/proc/self/cwd", Errno::LOOP);
        refused("/proc/self/fd/0", Errno::LOOP);
    }

    #[test]
    fn a_spot_is_what_the_links_at_the_end_lead_to() {
        let scratch = Scratch::new();
        let it = scratch.path();
        assert!(symlink("folder/../other/f", it.join("a")).is_ok());
        assert!(symlink(it.join("a"), it.join("b")).is_ok());
        assert!(fs::create_dir(it.join("folder")).is_ok());
        let Ok(spot) = root().spot(&it.join("b")) else { unreachable!("it can be made") };
        assert_eq!(spot.name, Path::new("f"));
        assert!(it.join("other").is_dir());
        let made = rustix::fs::mkdirat(&spot.folder, "x", Mode::from_raw_mode(0o700));
        assert!(made.is_ok() && it.join("other/x").is_dir());
    }
}
