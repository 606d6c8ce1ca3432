//! A tar stream, as much of the format as a root file system needs: folders,
//! files, links, and pax records where a name does not fit the old header.
//! Everything in it belongs to root. Memory does not grow with the files.

use std::io::{self, Read, Write};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node<'a> {
    /// A folder.
    Folder,
    /// A file whose bytes follow.
    File {
        /// Exactly so many.
        size: u64,
    },
    /// A symbolic link.
    Link {
        /// Where it leads, as written.
        target: &'a str,
    },
    /// Another name of a file that stands earlier in the stream.
    Same {
        /// That file's path.
        path: &'a str,
    },
}

/// Bytes of a header and of the unit that content is padded to.
const BLOCK: usize = 512;
/// Longest name, and longest target of a link, in the old header.
const NAME_LIMIT: usize = 100;
/// Largest size in the old header: eleven octal digits.
const SIZE_LIMIT: u64 = 0o77_777_777_777;

/// Writes an entry; `path` is relative. The bytes of a file must follow by
/// [`content`].
pub(super) fn entry(
    to: &mut impl Write,
    path: &str,
    node: Node<'_>,
    mode: u32,
    modified: u64,
) -> io::Result<()> {
    let (kind, size, link) = match node {
        Node::Folder => (b'5', 0, ""),
        Node::File { size } => (b'0', size, ""),
        Node::Link { target } => (b'2', 0, target),
        Node::Same { path } => (b'1', 0, path),
    };
    if size > SIZE_LIMIT {
        return Err(io::Error::other(format!("{path} is over 8 GiB")));
    }
    let mut records = Vec::new();
    for (key, value) in [("path", path), ("linkpath", link)] {
        if value.len() > NAME_LIMIT {
            records.extend_from_slice(&record(key, value));
        }
    }
    if !records.is_empty() {
        to.write_all(&header("pax", b'x', records.len() as u64, 0o644, 0, ""))?;
        to.write_all(&records)?;
        pad(to, records.len() as u64)?;
    }
    to.write_all(&header(path, kind, size, mode, modified, link))
}

/// Writes the bytes of the file whose entry came last; a source that has
/// become shorter is an error, one that grew is cut.
pub(super) fn content(to: &mut impl Write, from: impl Read, size: u64) -> io::Result<()> {
    let copied = io::copy(&mut from.take(size), to)?;
    if copied < size {
        return Err(io::Error::other("a file became shorter while it was read"));
    }
    pad(to, size)
}

/// Writes the end of the stream.
pub(super) fn end(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&[0; 2 * BLOCK])?;
    to.flush()
}

fn pad(to: &mut impl Write, size: u64) -> io::Result<()> {
    let over = (size % BLOCK as u64) as usize;
    if over == 0 {
        return Ok(());
    }
    to.write_all(&[0; BLOCK][over..])
}

/// A pax record says its own length, the digits of the length included.
fn record(key: &str, value: &str) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length += 1;
    }
    format!("{length} {key}={value}\n").into_bytes()
}

fn header(path: &str, kind: u8, size: u64, mode: u32, modified: u64, link: &str) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    text(&mut header[0..NAME_LIMIT], path);
    text(&mut header[100..108], &format!("{mode:07o}"));
    text(&mut header[108..116], "0000000");
    text(&mut header[116..124], "0000000");
    text(&mut header[124..136], &format!("{size:011o}"));
    text(&mut header[136..148], &format!("{:011o}", modified.min(SIZE_LIMIT)));
    header[156] = kind;
    text(&mut header[157..257], link);
    text(&mut header[257..265], "ustar\x0000");
    text(&mut header[265..297], "root");
    text(&mut header[297..329], "root");
    // The sum counts its own field as spaces.
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|it| u32::from(*it)).sum();
    text(&mut header[148..156], &format!("{sum:06o}\0 "));
    header
}

/// As much of it as fits; what does not stands in a pax record.
fn text(field: &mut [u8], text: &str) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What the system's own tar makes of it: a check by another hand.
    #[track_caller]
    fn check(tar: &[u8], want: &[&str]) {
        let file = std::env::temp_dir().join(format!(
            "beige-tar-{}-{}.tar",
            std::process::id(),
            want.len()
        ));
        std::fs::write(&file, tar).unwrap();
        let listed = std::process::Command::new("tar").arg("-tvf").arg(&file).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(String::from_utf8_lossy(&listed.stderr), "");
        let lines = String::from_utf8_lossy(&listed.stdout).into_owned();
        let short = |it: &str| it.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = lines.lines().map(short).collect();
        for (line, want) in lines.iter().zip(want) {
            let (begin, end) = want.split_once(" … ").unwrap();
            assert!(line.starts_with(begin) && line.ends_with(end), "{line} is not {want}");
        }
        assert_eq!(lines.len(), want.len());
    }

    #[test]
    fn each_kind_of_entry_is_read_back() {
        let mut tar = Vec::new();
        entry(&mut tar, "bin", Node::Folder, 0o1777, 0).unwrap();
        entry(&mut tar, "bin/a", Node::File { size: 3 }, 0o755, 1).unwrap();
        content(&mut tar, &b"abcd"[..], 3).unwrap();
        entry(&mut tar, "bin/b", Node::Link { target: "a" }, 0o777, 0).unwrap();
        entry(&mut tar, "bin/c", Node::Same { path: "bin/a" }, 0o755, 0).unwrap();
        end(&mut tar).unwrap();
        assert_eq!(tar.len() % BLOCK, 0);
        check(
            &tar,
            &[
                "drwxrwxrwt root/root 0 … bin",
                "-rwxr-xr-x root/root 3 … bin/a",
                "lrwxrwxrwx root/root 0 … bin/b -> a",
                "hrwxr-xr-x root/root 0 … bin/c link to bin/a",
            ],
        );
    }

    #[test]
    fn long_names_come_through_whole() {
        let long = "n".repeat(180);
        let mut tar = Vec::new();
        entry(&mut tar, &long, Node::Link { target: &long }, 0o777, 0).unwrap();
        end(&mut tar).unwrap();
        check(&tar, &[&format!("lrwxrwxrwx root/root 0 … {long} -> {long}")]);
    }

    #[test]
    fn a_record_counts_its_own_length() {
        assert_eq!(record("path", "abc"), b"12 path=abc\n");
        for length in 80..110 {
            let record = record("path", &"x".repeat(length));
            let told: String = record
                .iter()
                .take_while(|it| it.is_ascii_digit())
                .map(|it| char::from(*it))
                .collect();
            assert_eq!(told.parse::<usize>().ok(), Some(record.len()));
        }
    }

    #[test]
    fn a_source_that_shrank_is_an_error() {
        assert!(content(&mut Vec::new(), &b"ab"[..], 3).is_err());
    }
}
