//! The gateway's own hand in a workspace, for when no sandbox runs. Every
//! name in there may be a link, a FIFO or a device and may change while it is
//! looked at, so nothing is opened by its path on the host: the kernel
//! resolves names from the workspace's own descriptor (`openat2`) and refuses
//! to leave it or to follow a link. It refuses everything that is not a
//! regular file, and reads only to a bound.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, fstat, openat, openat2,
};
use rustix::io::Errno;

use crate::error::{During, Error, Kind, Result};

/// How often a name is looked up again when the kernel saw it move.
const ATTEMPTS: usize = 8;

/// Who a new file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Reads a file of at most `max` bytes; `None` if there is no such name.
///
/// A link on the way or at the end, and what is no regular file, is
/// [`Kind::Denied`]; a longer file is [`Kind::TooLarge`].
pub fn read_file(workspace: &Path, name: &str, max: u64) -> Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match open_beneath(&root(workspace)?, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(refused(name, error)),
    };
    let kind = fstat(&file).during(Kind::Internal, format!("look at `{name}` in the workspace"))?;
    if FileType::from_raw_mode(kind.st_mode) != FileType::RegularFile {
        return Err(not_regular(name));
    }
    let mut bytes = Vec::new();
    File::from(file)
        .take(max.saturating_add(1))
        .read_to_end(&mut bytes)
        .during(Kind::Internal, format!("read `{name}` in the workspace"))?;
    if bytes.len() as u64 > max {
        return Err(Error::new(Kind::TooLarge, format!("`{name}` is over {max} bytes")));
    }
    Ok(Some(bytes))
}

/// Writes a new file, 0644, that belongs to `owner`; `false` if that name is
/// taken, whatever by, and then nothing is touched.
pub fn create_file(workspace: &Path, name: &str, content: &[u8], owner: Owner) -> Result<bool> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let file = match open_beneath(&root(workspace)?, name, flags, mode) {
        Ok(file) => file,
        Err(Errno::EXIST | Errno::LOOP) => return Ok(false),
        Err(error) => {
            return Err(error).during(Kind::Internal, format!("make `{name}` in the workspace"));
        }
    };
    let what = || format!("write `{name}` in the workspace");
    let found = fstat(&file).during(Kind::Internal, what())?;
    if (found.st_uid, found.st_gid) != (owner.uid, owner.gid) {
        give(&file, owner).during(Kind::Internal, what())?;
    }
    fchmod(&file, mode).during(Kind::Internal, what())?;
    File::from(file).write_all(content).during(Kind::Internal, what())?;
    Ok(true)
}

/// Only root can give a file away; for others it stays their own.
fn give(file: &OwnedFd, owner: Owner) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    match fchown(file, Some(uid), Some(gid)) {
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => Ok(()),
        other => other,
    }
}

fn root(workspace: &Path) -> Result<OwnedFd> {
    openat(CWD, workspace, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .during(Kind::Internal, format!("open the workspace {}", workspace.display()))
}

fn open_beneath(root: &OwnedFd, name: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        opened = openat2(root, name, flags, mode, resolve);
        if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    opened
}

fn refused(name: &str, error: Errno) -> Error {
    match error {
        Errno::LOOP | Errno::XDEV => Error::new(
            Kind::Denied,
            format!("`{name}` in the workspace is a link or lies behind one; it is not followed"),
        ),
        // What opening a socket or a device without a driver says.
        Errno::NXIO | Errno::NODEV => not_regular(name),
        Errno::NOSYS => Error::new(
            Kind::Internal,
            "reading a workspace needs the system call openat2 (Linux 5.6 or newer)",
        ),
        error => Error::new(Kind::Denied, format!("read `{name}` in the workspace: {error}")),
    }
}

fn not_regular(name: &str) -> Error {
    Error::new(Kind::Denied, format!("`{name}` in the workspace is not a regular file"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::fs::mkfifoat;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("beige-workspace-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(path.join("ws")).unwrap();
            fs::write(path.join("secret"), "s").unwrap();
            Self(path)
        }

        fn workspace(&self) -> PathBuf {
            self.0.join("ws")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Plants something in a new workspace and reads at most 3 bytes of `name`.
    #[track_caller]
    fn check(plant: impl FnOnce(&Path), name: &str, want: Result<Option<&[u8]>, Kind>) {
        let scratch = Scratch::new();
        plant(&scratch.workspace());
        let got = read_file(&scratch.workspace(), name, 3).map_err(|it| it.kind());
        assert_eq!(got, want.map(|it| it.map(<[u8]>::to_vec)));
    }

    #[test]
    fn a_regular_file_is_read_to_its_bound() {
        check(|ws| fs::write(ws.join("a"), "abc").unwrap(), "a", Ok(Some(b"abc")));
        check(|ws| fs::write(ws.join("a"), "abcd").unwrap(), "a", Err(Kind::TooLarge));
        check(|_| (), "a", Ok(None));
        check(|ws| fs::write(ws.join("a"), "").unwrap(), "a/b", Ok(None));
    }

    #[test]
    fn no_link_is_followed() {
        check(|ws| symlink(ws.join("../secret"), ws.join("a")).unwrap(), "a", Err(Kind::Denied));
        check(|ws| symlink(ws.join(".."), ws.join("d")).unwrap(), "d/secret", Err(Kind::Denied));
        check(|ws| symlink("/nowhere", ws.join("a")).unwrap(), "a", Err(Kind::Denied));
        check(|_| (), "../secret", Err(Kind::Denied));
        check(|_| (), "/etc/passwd", Err(Kind::Denied));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        check(
            |ws| mkfifoat(CWD, ws.join("a"), Mode::from_raw_mode(0o666)).unwrap(),
            "a",
            Err(Kind::Denied),
        );
        check(|ws| fs::create_dir(ws.join("a")).unwrap(), "a", Err(Kind::Denied));
        check(
            |ws| drop(std::os::unix::net::UnixListener::bind(ws.join("a")).unwrap()),
            "a",
            Err(Kind::Denied),
        );
    }

    #[test]
    fn a_new_file_never_replaces_what_is_there() {
        let scratch = Scratch::new();
        let workspace = scratch.workspace();
        let owner = Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        symlink(workspace.join("../made"), workspace.join("link")).unwrap();
        mkfifoat(CWD, workspace.join("fifo"), Mode::from_raw_mode(0o666)).unwrap();
        fs::create_dir(workspace.join("folder")).unwrap();
        for taken in ["link", "fifo", "folder"] {
            assert!(!create_file(&workspace, taken, b"x", owner).unwrap(), "{taken}");
        }
        assert!(create_file(&workspace, "file", b"x", owner).unwrap());
        assert!(!create_file(&workspace, "file", b"y", owner).unwrap());
        assert_eq!(fs::read(workspace.join("file")).unwrap(), b"x");
        assert_eq!(fs::metadata(workspace.join("file")).unwrap().mode() & 0o7777, 0o644);
        assert!(!scratch.0.join("made").exists());
    }
}
