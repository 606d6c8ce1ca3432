//! The filtered copy of the files of a plugin or a skill that sandboxes see at
//! `/tools/packages/NAME` or `/skills/NAME`. What is private, what looks like a secret, links
//! and special files never get into it. The copy is brought up to date file by
//! file, by rename, in a folder that stays, since a running sandbox has that
//! very folder mounted.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::config::file_lock::{self, Held};
use crate::config::home;
use crate::error::{During, Error, Kind, Result};
use crate::plugin::globs;

/// Most bytes that a package may hold.
pub const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Most files and folders that a package may hold.
pub const MAX_FILES: usize = 10_000;

/// Never in a package, whatever the manifest says; compared in lower case.
const ALWAYS_PRIVATE: [&str; 23] = [
    ".env*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.p8",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.ppk",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".aws",
    ".ssh",
    ".kube",
    ".gnupg",
    ".git",
    "node_modules",
];

/// How long to wait for another process that brings the same package up to
/// date.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);

/// What a copy under way is called; it is renamed once it is whole.
const UNFINISHED: &str = ".beige-unfinished";

/// Brings the package `target` up to date with the folder `source`.
/// Unchanged files are not touched. An error leaves files of before and after,
/// each of them whole.
pub fn refresh(source: &Path, private: &[String], target: &Path) -> Result<()> {
    let wanted = Listing::of(source, private)?;
    if let Some(parent) = target.parent() {
        home::create_private(parent)?;
    }
    home::create_mounted(target)?;
    let _lock = lock(target)?;
    remove_stale(&wanted, target, Path::new(""))?;
    for folder in wanted.folders() {
        home::create_mounted(&target.join(folder))?;
    }
    for (path, file) in wanted.files() {
        if !is_current(file, &target.join(path)) {
            copy(&source.join(path), file, target, path)?;
        }
    }
    Ok(())
}

/// Takes a package away; one that is not there is gone already.
pub fn remove(target: &Path) -> Result<()> {
    if fs::symlink_metadata(target).is_err() {
        return Ok(());
    }
    let held = lock(target)?;
    fs::remove_dir_all(target).during(Kind::Internal, format!("remove {}", target.display()))?;
    drop(held);
    Ok(())
}

/// What a package is to hold, by path below the plugin's folder; folders stand
/// before what is in them.
#[derive(Debug, Default, PartialEq)]
struct Listing {
    entries: BTreeMap<PathBuf, Entry>,
    bytes: u64,
}

#[derive(Debug, PartialEq)]
enum Entry {
    Folder,
    File(Stamp),
}

/// What tells a changed file from an unchanged one, and its mode in the copy.
#[derive(Debug, PartialEq)]
struct Stamp {
    bytes: u64,
    modified: (i64, i64),
    mode: u32,
}

impl Listing {
    fn of(source: &Path, private: &[String]) -> Result<Self> {
        let mut listing = Self::default();
        let mut unread = vec![PathBuf::new()];
        while let Some(folder) = unread.pop() {
            let at = source.join(&folder);
            let what = format!("read the folder {}", at.display());
            for entry in fs::read_dir(&at).during(Kind::Config, what.clone())? {
                let entry = entry.during(Kind::Config, what.clone())?;
                let path = folder.join(entry.file_name());
                if is_private(&path, private) {
                    continue;
                }
                let metadata = entry.metadata().during(Kind::Config, what.clone())?;
                if listing.add(&path, &metadata)? {
                    unread.push(path);
                }
            }
        }
        Ok(listing)
    }

    /// Takes an entry in; whether it is a folder to be read. Links and special
    /// files are passed over.
    fn add(&mut self, path: &Path, metadata: &fs::Metadata) -> Result<bool> {
        let entry = if metadata.is_dir() {
            Entry::Folder
        } else if metadata.is_file() {
            self.bytes = self.bytes.saturating_add(metadata.len());
            Entry::File(Stamp::of(metadata))
        } else {
            log::debug!("left out of the package: {} (a link or special file)", path.display());
            return Ok(false);
        };
        let is_folder = entry == Entry::Folder;
        self.entries.insert(path.to_owned(), entry);
        if self.bytes > MAX_BYTES {
            return Err(too_large(path, &format!("{} MiB", MAX_BYTES / 1024 / 1024)));
        }
        if self.entries.len() > MAX_FILES {
            return Err(too_large(path, &format!("{MAX_FILES} files")));
        }
        Ok(is_folder)
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        self.entries.iter().filter(|(_, it)| **it == Entry::Folder).map(|(path, _)| path)
    }

    fn files(&self) -> impl Iterator<Item = (&PathBuf, &Stamp)> {
        self.entries.iter().filter_map(|(path, it)| match it {
            Entry::File(stamp) => Some((path, stamp)),
            Entry::Folder => None,
        })
    }

    /// Whether something of this kind is to stand there.
    fn wants(&self, path: &Path, is_folder: bool, is_file: bool) -> bool {
        match self.entries.get(path) {
            Some(Entry::Folder) => is_folder,
            Some(Entry::File(_)) => is_file,
            None => false,
        }
    }
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        let mode = if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        Self { bytes: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()), mode }
    }
}

fn too_large(path: &Path, limit: &str) -> Error {
    let text = format!(
        "more than {limit}, counted up to {}; take out what an agent need not see, or name it in \
         `private` of a plugin.json",
        path.display()
    );
    Error::new(Kind::Config, text)
}

/// Whether a package leaves out what has that path below the plugin's folder.
pub(super) fn is_private(path: &Path, private: &[String]) -> bool {
    let path = path.to_string_lossy();
    let lower = path.to_lowercase();
    path == UNFINISHED
        || ALWAYS_PRIVATE.iter().any(|it| globs::matches(it, &lower))
        || private.iter().any(|it| globs::matches(it, &path))
}

/// Held while a package is changed. It lies beside the package, not in it.
fn lock(target: &Path) -> Result<Held> {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let path = target.with_file_name(name);
    file_lock::hold(&path, LOCK_PATIENCE)
}

/// Removes what is not wanted, and what is of another kind than wanted.
fn remove_stale(wanted: &Listing, target: &Path, below: &Path) -> Result<()> {
    let folder = target.join(below);
    let what = format!("read the folder {}", folder.display());
    for entry in fs::read_dir(&folder).during(Kind::Internal, what.clone())? {
        let entry = entry.during(Kind::Internal, what.clone())?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type().during(Kind::Internal, what.clone())?;
        if !wanted.wants(&path, kind.is_dir(), kind.is_file()) {
            let removed = match kind.is_dir() {
                true => fs::remove_dir_all(entry.path()),
                false => fs::remove_file(entry.path()),
            };
            removed.during(Kind::Internal, format!("remove {}", entry.path().display()))?;
        } else if kind.is_dir() {
            remove_stale(wanted, target, &path)?;
        }
    }
    Ok(())
}

fn is_current(wanted: &Stamp, copy: &Path) -> bool {
    fs::symlink_metadata(copy).is_ok_and(|it| {
        it.is_file() && Stamp::of(&it) == *wanted && it.permissions().mode() & 0o7777 == wanted.mode
    })
}

/// Copies one file beside its place and renames it there.
fn copy(source: &Path, stamp: &Stamp, target: &Path, path: &Path) -> Result<()> {
    let unfinished = target.join(UNFINISHED);
    let copied = copy_to(source, stamp, &unfinished)
        .and_then(|()| fs::rename(&unfinished, target.join(path)));
    copied.during(Kind::Internal, format!("copy {}", source.display()))
}

fn copy_to(source: &Path, stamp: &Stamp, unfinished: &Path) -> io::Result<()> {
    // What was a file a moment ago may be a link or a FIFO by now.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let from = OpenOptions::new().read(true).custom_flags(flags).open(source)?;
    let metadata = from.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no longer a file"));
    }
    let _ = fs::remove_file(unfinished);
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    // One byte more shows that the file has grown since it was counted.
    let copied = io::copy(&mut from.take(stamp.bytes + 1), &mut to)?;
    if copied > stamp.bytes {
        return Err(io::Error::other("it grew while it was copied"));
    }
    to.set_permissions(fs::Permissions::from_mode(stamp.mode))?;
    to.set_modified(metadata.modified()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::plugin::tests::Scratch;

    fn source(scratch: &Scratch, files: &[&str]) -> PathBuf {
        let source = scratch.path().join("plugin");
        for file in files {
            scratch.write(&format!("plugin/{file}"), file);
        }
        source
    }

    fn listed(target: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut unread = vec![target.to_owned()];
        while let Some(folder) = unread.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    unread.push(path.clone());
                }
                let below = path.strip_prefix(target).map(|it| it.display().to_string());
                found.extend(below);
            }
        }
        found.sort_unstable();
        found
    }

    #[track_caller]
    fn check(files: &[&str], private: &[&str], want: &[&str]) {
        let scratch = Scratch::new();
        let target = scratch.path().join("package");
        let private: Vec<String> = private.iter().map(|it| (*it).to_owned()).collect();
        let done = refresh(&source(&scratch, files), &private, &target);
        assert_eq!(done.map_err(|it| it.to_string()), Ok(()));
        assert_eq!(listed(&target), want);
    }

    #[test]
    fn what_is_private_or_looks_like_a_secret_is_left_out() {
        check(
            &[
                "plugin.json",
                "SKILL.md",
                ".env",
                ".env.local",
                "tls/server.PEM",
                "tls/a.key",
                "id_rsa",
                "id_ed25519.pub",
                "node_modules/x/index.js",
                ".git/config",
                "lib/a",
                "state/notes.txt",
                "lib/b.secret",
            ],
            &["state", "*.secret"],
            &["SKILL.md", "lib", "lib/a", "plugin.json", "tls"],
        );
    }

    #[test]
    fn links_and_special_files_are_left_out() -> io::Result<()> {
        let scratch = Scratch::new();
        let source = source(&scratch, &["plugin.json"]);
        symlink("/etc/passwd", source.join("passwd"))?;
        symlink("/etc", source.join("etc"))?;
        let _socket = std::os::unix::net::UnixListener::bind(source.join("socket"))?;
        let target = scratch.path().join("package");
        assert_eq!(refresh(&source, &[], &target).map_err(|it| it.to_string()), Ok(()));
        assert_eq!(listed(&target), ["plugin.json"]);
        Ok(())
    }

    #[test]
    fn a_second_copy_touches_only_what_changed() -> io::Result<()> {
        let scratch = Scratch::new();
        let source = source(&scratch, &["same", "changed", "gone", "folder/x", "file"]);
        let target = scratch.path().join("package");
        assert!(refresh(&source, &[], &target).is_ok());
        let inode = |name: &str| fs::metadata(target.join(name)).map(|it| it.ino());
        let (folder, same) = (fs::metadata(&target)?.ino(), inode("same")?);

        fs::write(source.join("changed"), "other text")?;
        fs::remove_file(source.join("gone"))?;
        fs::remove_dir_all(source.join("folder"))?;
        fs::write(source.join("folder"), "now a file")?;
        fs::remove_file(source.join("file"))?;
        fs::create_dir(source.join("file"))?;
        assert!(refresh(&source, &[], &target).is_ok());

        assert_eq!((fs::metadata(&target)?.ino(), inode("same")?), (folder, same));
        assert_eq!(fs::read_to_string(target.join("changed"))?, "other text");
        assert_eq!(fs::read_to_string(target.join("folder"))?, "now a file");
        assert_eq!(listed(&target), ["changed", "file", "folder", "same"]);
        Ok(())
    }

    #[test]
    fn modes_are_those_of_a_mounted_folder_whatever_the_source_has() -> io::Result<()> {
        let scratch = Scratch::new();
        let source = source(&scratch, &["lib/text", "lib/program"]);
        let set = |name: &str, mode| {
            fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode))
        };
        set("lib/text", 0o600)?;
        set("lib/program", 0o4700)?;
        set("lib", 0o700)?;
        let target = scratch.path().join("package");
        assert!(refresh(&source, &[], &target).is_ok());
        let mode =
            |name: &str| fs::metadata(target.join(name)).map(|it| it.permissions().mode() & 0o7777);
        assert_eq!(
            (mode("")?, mode("lib")?, mode("lib/text")?, mode("lib/program")?),
            (0o755, 0o755, 0o644, 0o755)
        );
        Ok(())
    }

    #[test]
    fn a_package_over_its_bound_is_refused_with_the_file_named() -> io::Result<()> {
        let scratch = Scratch::new();
        let source = source(&scratch, &["plugin.json"]);
        // Sparse: no such bytes are on the disk.
        fs::File::create(source.join("huge.bin"))?.set_len(MAX_BYTES + 1)?;
        let refused = refresh(&source, &[], &scratch.path().join("package"));
        let text = refused.err().map(|it| it.to_string()).unwrap_or_default();
        assert!(text.contains("64 MiB") && text.contains("huge.bin"), "{text}");
        Ok(())
    }

    #[test]
    fn too_many_files_are_refused() {
        let mut listing = Listing::default();
        let Ok(metadata) = fs::metadata("/") else { return };
        let added = (0..=MAX_FILES).map(|it| listing.add(Path::new(&it.to_string()), &metadata));
        let refused: Vec<Error> = added.filter_map(Result::err).collect();
        assert_eq!(refused.len(), 1);
    }
}
