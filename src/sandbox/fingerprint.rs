//! What a sandbox was made from, as one short text: another text means that it
//! must be made anew. Pure but for a look at the folders' numbers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ring::digest::{SHA256, digest};

/// The hash of those words, of the version of beige, whose first process runs
/// inside, and of which folders the mounts lead to now: one that was made anew
/// under its old name is not the one that a running sandbox shows.
pub(super) fn of<'a>(
    words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    folders: impl IntoIterator<Item = &'a Path>,
) -> String {
    let mut covered = env!("CARGO_PKG_VERSION").as_bytes().to_vec();
    for word in words {
        // A NUL cannot stand in an argument, so no two lists look the same.
        covered.push(0);
        covered.extend_from_slice(word.as_ref().as_encoded_bytes());
    }
    for folder in folders {
        covered.push(0);
        covered.extend_from_slice(&folder_number(folder).to_be_bytes());
    }
    hex(&covered, 32)
}

/// The first `digits` hex digits of the SHA-256 of it.
pub(super) fn hex(bytes: &[u8], digits: usize) -> String {
    let sum = digest(&SHA256, bytes);
    let mut text: String = sum.as_ref().iter().map(|it| format!("{it:02x}")).collect();
    text.truncate(digits);
    text
}

/// The inode of a folder. Files are replaced by every editor, and nobody
/// expects a sandbox to end by that: they count as 0, as does what is absent.
fn folder_number(path: &Path) -> u64 {
    fs::metadata(path).ok().filter(fs::Metadata::is_dir).map_or(0, |it| it.ino())
}
