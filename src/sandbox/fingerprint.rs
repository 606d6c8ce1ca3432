//! What a sandbox was made from, as one short text: another text means that it
//! must be made anew. Pure but for a look at the folders' numbers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ring::digest::{SHA256, digest};

use super::client;

/// The hash of those words, of the build of tool-client, which is the first
/// process inside and speaks with no other build of beige, and of which folders
/// the mounts lead to now: one that was made anew under its old name is not the
/// one that a running sandbox shows.
pub(super) fn of<'a>(
    words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    folders: impl IntoIterator<Item = &'a Path>,
) -> String {
    hash(client::MARK, words, folders)
}

fn hash<'a>(
    build: &str,
    words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    folders: impl IntoIterator<Item = &'a Path>,
) -> String {
    let mut covered = [env!("CARGO_PKG_VERSION"), "\0", build].concat().into_bytes();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_build_makes_another_sandbox() {
        let of_build = |build| hash(build, ["a", "b"], [Path::new("/")]);
        assert_eq!(of_build(client::MARK), of(["a", "b"], [Path::new("/")]));
        assert_ne!(of_build("another"), of_build(client::MARK));
    }

    #[test]
    fn words_do_not_run_together() {
        assert_ne!(of(["ab", "c"], []), of(["a", "bc"], []));
    }
}
