//! The program that stands in every sandbox, embedded: so the gateway is one
//! file, and what runs inside is always of its own version. It is packed, since
//! it is needed once a home: there it is laid as one file, and every agent's
//! folder gets a link to that. So no start reads it, and all sandboxes share
//! its pages.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lzma_rust2::LzmaReader;

use super::beside::beside;
use crate::config::Home;
use crate::config::home::create_private;
use crate::error::{During, Kind, Result};

/// tool-client as a static executable for this machine, packed by `build.rs`.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tool-client.lzma"));

/// Its size, in bytes.
const BYTES: &str = env!("TOOL_CLIENT_BYTES");

/// What tells this build of it from others.
pub(super) const MARK: &str = env!("TOOL_CLIENT_MARK");

/// Its name in an agent's folder.
pub(super) const NAME: &str = "tool-client";

/// Its path in every sandbox, which sees that folder as `/beige`.
pub(super) const INSIDE: &str = "/beige/tool-client";

/// To be executed and not to be read: the kernel then starts it so that no
/// process of its own user can trace it or open its memory, from its very
/// first moment on. What it does itself to that end would come too late for
/// one that waits for it. It binds its owner too, who may be the agent's user.
const MODE: u32 = 0o111;

/// When it says that it was written, in seconds since 1970, give or take what
/// the build makes of it: whoever writes into it later changes that.
const WRITTEN: u64 = 1_000_000_000;

/// Memory that unpacking may take, in KiB.
const UNPACK_LIMIT: u32 = 16 * 1024;

/// tool-client itself.
pub fn tool_client() -> Result<Vec<u8>> {
    let mut program = Vec::new();
    LzmaReader::new_mem_limit(PACKED, UNPACK_LIMIT, None)
        .and_then(|mut it| it.read_to_end(&mut program))
        .during(Kind::Internal, "unpack tool-client")?;
    Ok(program)
}

/// The one copy of tool-client in a home, made if it is missing, or is no
/// longer as it was made.
pub fn lay(home: &Home) -> Result<PathBuf> {
    let folder = home.clients();
    let path = folder.join(MARK);
    if is_laid(&path).unwrap_or(false) {
        return Ok(path);
    }
    create_private(&folder)?;
    let laid = put(&path, &tool_client()?);
    // Another process that did the same meanwhile may have removed ours.
    if !is_laid(&path).unwrap_or(false) {
        laid?;
    }
    remove_others(&folder);
    Ok(path)
}

fn is_laid(path: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    let as_written = (MODE, Some(found.len()), found.modified()?);
    Ok(found.is_file()
        && as_written == (found.mode() & 0o7777, BYTES.parse().ok(), time_of_writing()))
}

/// Another for each build, since the content cannot be compared.
fn time_of_writing() -> SystemTime {
    let of_build = MARK.bytes().fold(0_u32, |it, byte| it.wrapping_mul(31) ^ u32::from(byte));
    SystemTime::UNIX_EPOCH + Duration::from_secs(WRITTEN + u64::from(of_build % 500_000_000))
}

/// It is on the disk before it has its name, so a power failure leaves none
/// that is there by half.
fn write(path: &Path, program: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    // The mode at opening is cut by the umask.
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(program)?;
    file.set_modified(time_of_writing())?;
    file.sync_all()
}

/// Those of other releases, and what others began; agents that still run one
/// keep it by their link.
fn remove_others(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let others = entries.flatten().filter(|it| it.file_name() != MARK);
    others.for_each(|it| drop(fs::remove_file(it.path())));
}

/// Gives an agent's folder its tool-client: a link to the home's one copy, or a
/// copy of its own where the file system makes no link.
pub(super) fn give(laid: &Path, folder: &Path) -> Result<()> {
    let path = folder.join(NAME);
    if is_same(laid, &path).unwrap_or(false) {
        return Ok(());
    }
    // A copy that another process replaces at this very moment cannot be
    // linked to; the new one can.
    let linked = link(laid, &path).or_else(|error| match error.kind() {
        ErrorKind::NotFound => link(laid, &path),
        _ => Err(error),
    });
    match linked {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(error)
            .during(Kind::Internal, format!("link {} to {}", path.display(), laid.display())),
        Err(_) if is_laid(&path).unwrap_or(false) => Ok(()),
        Err(_) => put(&path, &tool_client()?),
    }
}

fn link(laid: &Path, path: &Path) -> io::Result<()> {
    let fresh = beside(path);
    let linked = fs::hard_link(laid, &fresh).and_then(|()| fs::rename(&fresh, path));
    // A rename onto another link of the same file leaves both names.
    let _ = fs::remove_file(&fresh);
    linked
}

/// Writes it there whole, or not at all.
fn put(path: &Path, program: &[u8]) -> Result<()> {
    let fresh = beside(path);
    let put = write(&fresh, program).and_then(|()| fs::rename(&fresh, path));
    if put.is_err() {
        // It may not even exist; the error that counts is the first.
        let _ = fs::remove_file(&fresh);
    }
    put.during(Kind::Internal, format!("write {}", path.display()))
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (fs::symlink_metadata(one)?, fs::symlink_metadata(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sandbox::prepare::tests::Scratch;

    /// What stands in it; not even its owner may read it as it is.
    fn content(path: &Path) -> Vec<u8> {
        let copy = path.with_extension("copy");
        fs::hard_link(path, &copy).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o500)).unwrap();
        let content = fs::read(&copy).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(MODE)).unwrap();
        fs::remove_file(&copy).unwrap();
        content
    }

    /// Type of a program header that names a dynamic loader.
    const PT_INTERP: u32 = 3;

    /// The types of the program headers of a 64-bit little-endian ELF file.
    fn program_headers(elf: &[u8]) -> Option<Vec<u32>> {
        let half = |at: usize| Some(u16::from_le_bytes(*elf.get(at..)?.first_chunk()?));
        let start = usize::try_from(u64::from_le_bytes(*elf.get(32..)?.first_chunk()?)).ok()?;
        let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
        (0..count)
            .map(|it| Some(u32::from_le_bytes(*elf.get(start + it * size..)?.first_chunk()?)))
            .collect()
    }

    #[test]
    fn it_needs_no_loader_and_so_runs_in_an_empty_image() {
        let program = tool_client().unwrap();
        assert!(program.starts_with(b"\x7fELF\x02\x01"));
        let headers = program_headers(&program).unwrap_or_default();
        assert!(!headers.is_empty());
        assert!(!headers.contains(&PT_INTERP));
    }

    #[test]
    fn a_home_has_one_copy_that_is_written_once() {
        let scratch = Scratch::new();
        let laid = lay(&scratch.home).unwrap();
        assert!(content(&laid) == tool_client().unwrap());
        let first = fs::metadata(&laid).unwrap();
        assert_eq!(first.mode() & 0o7777, MODE);
        assert_eq!(fs::metadata(lay(&scratch.home).unwrap()).unwrap().ino(), first.ino());
    }

    #[test]
    fn a_copy_that_was_changed_is_made_anew() {
        let scratch = Scratch::new();
        let check = |harm: &dyn Fn(&Path)| {
            let laid = lay(&scratch.home).unwrap();
            let before = fs::metadata(&laid).unwrap().ino();
            harm(&laid);
            assert!(content(&lay(&scratch.home).unwrap()) == tool_client().unwrap());
            assert_ne!(fs::metadata(&laid).unwrap().ino(), before);
            assert_eq!(fs::read_dir(scratch.home.clients()).unwrap().count(), 1);
        };
        let write = |it: &Path, what: &[u8]| {
            fs::set_permissions(it, Permissions::from_mode(0o700)).unwrap();
            fs::write(it, what).unwrap();
            fs::set_permissions(it, Permissions::from_mode(MODE)).unwrap();
        };
        check(&|it| write(it, b"short"));
        check(&|it| fs::set_permissions(it, Permissions::from_mode(0o755)).unwrap());
        // As long as before, and of other content.
        check(&|it| write(it, &vec![0; BYTES.parse().unwrap()]));
        check(&|it| {
            fs::rename(it, it.with_extension("old")).unwrap();
            std::os::unix::fs::symlink(it.with_extension("old"), it).unwrap();
        });
    }

    #[test]
    fn that_of_another_release_goes_and_who_uses_it_keeps_it() {
        let scratch = Scratch::new();
        create_private(&scratch.home.clients()).unwrap();
        let old = scratch.home.clients().join("0123456789abcdef");
        fs::write(&old, "old").unwrap();
        let folder = scratch.path.join("sockets");
        fs::create_dir(&folder).unwrap();
        give(&old, &folder).unwrap();
        let running = fs::metadata(folder.join(NAME)).unwrap().ino();
        let laid = lay(&scratch.home).unwrap();
        assert!(!old.exists());
        assert_eq!(fs::read(folder.join(NAME)).unwrap(), b"old");
        give(&laid, &folder).unwrap();
        assert_ne!(fs::metadata(folder.join(NAME)).unwrap().ino(), running);
        assert!(is_same(&laid, &folder.join(NAME)).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn where_no_link_can_be_made_there_is_a_copy() {
        let scratch = Scratch::new();
        let folder = scratch.path.join("sockets");
        fs::create_dir(&folder).unwrap();
        // In most places another file system; where it is not, this holds too.
        let laid = lay(&scratch.home).unwrap();
        let elsewhere = Path::new("/dev/shm").join(format!("beige-client-{}", std::process::id()));
        write(&elsewhere, &content(&laid)).unwrap();
        let given = give(&elsewhere, &folder);
        let first = fs::metadata(folder.join(NAME)).unwrap();
        let again = give(&elsewhere, &folder);
        fs::remove_file(&elsewhere).unwrap();
        given.and(again).unwrap();
        assert!(content(&folder.join(NAME)) == tool_client().unwrap());
        assert_eq!(first.mode() & 0o7777, MODE);
        assert_eq!(fs::metadata(folder.join(NAME)).unwrap().ino(), first.ino());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}
