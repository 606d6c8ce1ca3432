//! Copies a folder of this host: regular files and folders, and links that stay
//! inside. Nothing is followed on the way, and what changes meanwhile is an
//! error.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::listing::{Item, Listing, refused};
use crate::config::home::{create_private, open_own};
use crate::error::{During, Kind, Result};

/// Never copied: what it holds is no part of a plugin.
const LEFT_OUT: &str = ".git";

/// Bytes that are compared at a time.
const PIECE: usize = 16 * 1024;

/// All that is in a folder; refuses what cannot be installed.
pub(super) fn list(source: &Path) -> Result<Listing> {
    let mut listing = Listing::default();
    let mut unread = vec![PathBuf::new()];
    while let Some(folder) = unread.pop() {
        let at = source.join(&folder);
        let what = || format!("read the folder {}", at.display());
        for entry in fs::read_dir(&at).during(Kind::Denied, what())? {
            let entry = entry.during(Kind::Denied, what())?;
            if entry.file_name() == LEFT_OUT {
                continue;
            }
            let path = folder.join(entry.file_name());
            let item = item(&entry, &path)?;
            if item == Item::Folder {
                unread.push(path.clone());
            }
            listing.add(&path, item)?;
        }
    }
    listing.check_links()?;
    Ok(listing)
}

/// Copies what is listed into a folder that is there and empty.
pub(super) fn copy(source: &Path, listing: &Listing, target: &Path) -> Result<()> {
    let what = format!("open the folder {}", source.display());
    let folder = File::open(source).during(Kind::Denied, what)?;
    make_folders(listing, target)?;
    for (path, item) in listing.items() {
        if let Item::File { bytes, is_program } = item {
            let what = || format!("copy {}", source.join(path).display());
            let file = open_below(&folder, path).during(Kind::Denied, what())?;
            write(file, *bytes, *is_program, &target.join(path)).during(Kind::Denied, what())?;
        }
    }
    make_links(listing, target)
}

/// Makes the folders of a listing, 0700.
pub(super) fn make_folders(listing: &Listing, target: &Path) -> Result<()> {
    let mut folders = listing.items().filter(|(_, item)| **item == Item::Folder);
    folders.try_for_each(|(path, _)| create_private(&target.join(path)))
}

/// Makes the links of a listing; last of all, so that nothing is written
/// through one.
pub(super) fn make_links(listing: &Listing, target: &Path) -> Result<()> {
    for (path, item) in listing.items() {
        if let Item::Link(to) = item {
            let made = symlink(to, target.join(path));
            made.during(Kind::Internal, format!("make the link {}", path.display()))?;
        }
    }
    Ok(())
}

/// Writes a file that has exactly so many bytes, for its owner alone.
pub(super) fn write(from: impl Read, bytes: u64, is_program: bool, to: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    // One byte more shows that it has grown since it was listed.
    if io::copy(&mut from.take(bytes + 1), &mut file)? != bytes {
        return Err(io::Error::other("it changed while it was read"));
    }
    file.set_permissions(Permissions::from_mode(if is_program { 0o700 } else { 0o600 }))
}

/// Whether two files of equal length hold the same.
pub(super) fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let what = || format!("compare {} with {}", one.display(), other.display());
    let open = |it: &Path| open_own(it, OpenOptions::new().read(true));
    let (mut a, mut b) =
        (open(one).during(Kind::Denied, what())?, open(other).during(Kind::Denied, what())?);
    let (mut left, mut right) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        let count = a.read(&mut left).during(Kind::Denied, what())?;
        let Ok(()) = b.read_exact(&mut right[..count]) else { return Ok(false) };
        if count == 0 || left[..count] != right[..count] {
            return Ok(count == 0);
        }
    }
}

fn item(entry: &fs::DirEntry, path: &Path) -> Result<Item> {
    let what = || format!("look at {}", entry.path().display());
    let metadata = entry.metadata().during(Kind::Denied, what())?;
    if metadata.is_dir() {
        return Ok(Item::Folder);
    }
    if metadata.is_symlink() {
        return fs::read_link(entry.path()).map(Item::Link).during(Kind::Denied, what());
    }
    if !metadata.is_file() {
        return Err(refused(path, "it is neither file, folder nor link"));
    }
    let is_program = metadata.permissions().mode() & 0o111 != 0;
    Ok(Item::File { bytes: metadata.len(), is_program })
}

/// Opens a file below a folder, over no link and without waiting.
fn open_below(folder: &File, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = File::from(openat2(folder, path, flags, Mode::empty(), resolve)?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no longer a file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::tests::Scratch;

    #[test]
    fn a_folder_is_copied_with_its_programs_and_links_and_without_its_history() -> io::Result<()> {
        let scratch = Scratch::new();
        scratch.write_program("s/bin/tool", "#!/bin/sh\n");
        scratch.write("s/lib/text", "text");
        scratch.write("s/.git/HEAD", "ref");
        symlink("bin/tool", scratch.path().join("s/tool"))?;
        let (source, target) = (scratch.path().join("s"), scratch.path().join("t"));
        fs::create_dir(&target)?;
        let copied = list(&source).and_then(|it| copy(&source, &it, &target));
        assert_eq!(copied.map_err(|it| it.to_string()), Ok(()));
        let mode =
            |it: &str| fs::metadata(target.join(it)).map(|it| it.permissions().mode() & 0o777);
        assert_eq!((mode("tool")?, mode("lib/text")?, mode("lib")?), (0o700, 0o600, 0o700));
        assert_eq!(fs::read_link(target.join("tool"))?, Path::new("bin/tool"));
        assert!(!target.join(".git").exists());
        Ok(())
    }

    #[test]
    fn what_leads_out_or_is_special_is_refused_before_anything_is_written() -> io::Result<()> {
        let scratch = Scratch::new();
        scratch.write("s/plugin.json", "{}");
        let source = scratch.path().join("s");
        let refused = |want: &str| {
            let error = list(&source).map_err(|it| it.to_string()).err().unwrap_or_default();
            assert!(error.contains(want), "{error}");
        };
        symlink("../secret", source.join("out"))?;
        refused("`out` is refused: a link that leads out");
        fs::remove_file(source.join("out"))?;
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            source.join("fifo"),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )?;
        refused("`fifo` is refused: it is neither file, folder nor link");
        fs::remove_file(source.join("fifo"))?;
        // Sparse: no such bytes are on the disk.
        File::create(source.join("huge"))?.set_len(super::super::listing::MAX_BYTES + 1)?;
        refused("more than 256 MiB");
        Ok(())
    }

    #[test]
    fn what_changed_since_it_was_listed_is_an_error() -> io::Result<()> {
        let scratch = Scratch::new();
        scratch.write("s/a", "text");
        let (source, target) = (scratch.path().join("s"), scratch.path().join("t"));
        let listing = list(&source);
        for change in ["longer text", "t"] {
            scratch.write("s/a", change);
            let _ = fs::remove_dir_all(&target);
            fs::create_dir(&target)?;
            let copied = listing.as_ref().ok().map(|it| copy(&source, it, &target));
            assert!(
                copied.is_some_and(|it| it.is_err_and(|it| it.to_string().contains("it changed")))
            );
        }
        fs::remove_file(source.join("a"))?;
        symlink("/dev/zero", source.join("a"))?;
        let _ = fs::remove_dir_all(&target);
        fs::create_dir(&target)?;
        assert!(listing.is_ok_and(|it| copy(&source, &it, &target).is_err()));
        Ok(())
    }
}
