//! Replaces a file as a whole or not at all: the new content goes to a
//! temporary file beside it, reaches the disk, and then takes its name. A
//! link is followed to the file that it names, which keeps its mode; other
//! hard links to the file keep the old content. The folder is resolved once;
//! all else goes by its descriptor, whatever its name leads to by then.

use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, Stat, accessat, fchmod, fchown, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use serde_json::Value;

use super::failure::{Code, Failure};
use super::open::{folder, special};
use super::root::Spot;
use super::talk::Talk;
use super::{Place, sized};

/// New content on its way; dropped before [`Replacement::finish`] it leaves
/// everything as it was.
pub(crate) struct Replacement<'a> {
    place: &'a Place<'a>,
    spot: Spot,
    temporary: String,
    file: File,
    created: bool,
    done: bool,
}

/// Writes a file with the content that follows as input.
pub(crate) fn write(talk: &mut Talk<'_>, place: &Place<'_>, bytes: u64) -> Result<Value, Failure> {
    let mut replacement = Replacement::begin(place, "write")?;
    talk.take_all(bytes, |piece| replacement.add(piece))?;
    let created = replacement.finish()?;
    let mut result = sized(bytes);
    result["created"] = created.into();
    Ok(result)
}

impl<'a> Replacement<'a> {
    /// Begins to replace what the path leads to; its folders are made.
    pub(crate) fn begin(place: &'a Place<'a>, doing: &str) -> Result<Self, Failure> {
        if place.names_a_folder() {
            return Err(folder(place, doing));
        }
        let failed = |it: Errno| not_made(Failure::of(&it.into(), doing, &place.asked), place);
        let spot = place.root.spot(&place.path).map_err(failed)?;
        let old = existing(place, &spot, doing)?;
        let temporary = temporary_name();
        let file = create(&spot, &temporary, old.as_ref()).map_err(failed)?;
        Ok(Self { place, spot, temporary, file, created: old.is_none(), done: false })
    }

    /// Adds content.
    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.file.write_all(piece).map_err(|it| self.failed(&it))
    }

    /// Puts the content in its place; says whether the file is new.
    pub(crate) fn finish(mut self) -> Result<bool, Failure> {
        self.file.sync_all().map_err(|it| self.failed(&it))?;
        let Spot { folder, name } = &self.spot;
        renameat(folder, &self.temporary, folder, name).map_err(|it| self.failed(&it.into()))?;
        self.done = true;
        Ok(self.created)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::of(error, "write", &self.place.asked)
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        if !self.done {
            let _ = unlinkat(&self.spot.folder, &self.temporary, AtFlags::empty());
        }
    }
}

/// The file that is to be replaced, if there is one: it must be a regular file
/// that may be written, since a rename does not ask.
fn existing(place: &Place<'_>, spot: &Spot, doing: &str) -> Result<Option<Stat>, Failure> {
    let failed = |error: Errno| Failure::of(&error.into(), doing, &place.asked);
    let stat = match statat(&spot.folder, &spot.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(folder(place, doing)),
        it => return Err(special(place, doing, it)),
    }
    accessat(&spot.folder, &spot.name, Access::WRITE_OK, AtFlags::empty()).map_err(failed)?;
    Ok(Some(stat))
}

/// Makes the temporary file with the mode, and where allowed the owner, of the
/// old one; a new file gets 0644 less the umask.
fn create(spot: &Spot, temporary: &str, old: Option<&Stat>) -> Result<File, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = if old.is_some() { 0o600 } else { 0o644 };
    let file: OwnedFd = openat(&spot.folder, temporary, flags, Mode::from_raw_mode(mode))?;
    if let Some(old) = old {
        let _ = fchown(&file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)));
        let kept = fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o7777));
        if let Err(error) = kept {
            let _ = unlinkat(&spot.folder, temporary, AtFlags::empty());
            return Err(error);
        }
    }
    Ok(file.into())
}

/// Where nothing can be made the system says that nothing is there.
fn not_made(failure: Failure, place: &Place<'_>) -> Failure {
    if failure.code != Code::Missing {
        return failure;
    }
    let text = format!("cannot write {}: no files can be made there", place.asked.display());
    Failure::new(Code::ReadOnly, text)
}

fn temporary_name() -> String {
    let random = std::collections::hash_map::RandomState::new().hash_one(std::process::id());
    format!(".beige-tmp-{random:016x}")
}
