//! Opens what a path leads to without ever waiting for it: a FIFO that nobody
//! writes, a device, a socket are refused, not read.

use std::fs::File;
use std::io;

use rustix::fs::{FileType, OFlags, Stat, fstat};
use serde_json::{Value, json};

use super::Place;
use super::failure::{Code, Failure};
use super::near;

/// What a path led to.
pub(crate) enum Opened {
    /// A regular file, open for reading, and its state.
    File(File, Stat),
    /// A folder, open for listing.
    Folder(File),
}

/// Opens it for reading; a missing one is reported with the names near it.
pub(crate) fn open_it(place: &Place<'_>, doing: &str) -> Result<Opened, Failure> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let failed = |error: &io::Error| Failure::of(error, doing, &place.asked);
    let file = match place.root.open_at(&place.path, flags) {
        Ok(file) => file,
        Err(error) => return Err(with_near(failed(&error.into()), place)),
    };
    let stat = fstat(&file).map_err(|it| failed(&it.into()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Opened::File(file, stat)),
        FileType::Directory => Ok(Opened::Folder(file)),
        it => Err(special(place, doing, it)),
    }
}

/// Opens a regular file for reading; a folder is a failure too.
pub(crate) fn open_file(place: &Place<'_>, doing: &str) -> Result<(File, Stat), Failure> {
    match open_it(place, doing)? {
        Opened::File(file, stat) => Ok((file, stat)),
        Opened::Folder(_) => Err(folder(place, doing)),
    }
}

/// The failure of who wanted a file and named a folder.
pub(crate) fn folder(place: &Place<'_>, doing: &str) -> Failure {
    let text =
        format!("cannot {doing} {}: it is a folder; name a file in it", place.asked.display());
    Failure::new(Code::Folder, text)
}

/// The failure of who wanted a file and named a FIFO or the like.
pub(crate) fn special(place: &Place<'_>, doing: &str, kind: FileType) -> Failure {
    let what = match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    let text = format!("cannot {doing} {}: it is {what}, not a file", place.asked.display());
    Failure::new(Code::Special, text)
}

/// What it is, without following a link at its end.
pub(crate) fn stat(place: &Place<'_>) -> Result<Value, Failure> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let stat = (place.root.open_at(&place.path, flags).and_then(fstat))
        .map_err(|it| with_near(Failure::of(&it.into(), "look at", &place.asked), place))?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "folder",
        FileType::Symlink => "link",
        _ => "special",
    };
    Ok(json!({
        "kind": kind, "bytes": stat.st_size, "mode": stat.st_mode & 0o7777, "dev": stat.st_dev,
        "ino": stat.st_ino, "uid": stat.st_uid, "gid": stat.st_gid,
    }))
}

/// Adds what a link leads to, and the near names, to a failure that says that
/// nothing is there.
fn with_near(failure: Failure, place: &Place<'_>) -> Failure {
    if failure.code != Code::Missing {
        return failure;
    }
    let near = near::near(place);
    let mut text = failure.text.clone();
    if let Some(to) = place.root.link_at(&place.path) {
        text.push_str(&format!(": the link leads to {}, which is not there", to.display()));
    }
    if !near.is_empty() {
        text.push_str(&format!("; did you mean: {}?", near.join(", ")));
    }
    Failure::new(Code::Missing, text)
}
