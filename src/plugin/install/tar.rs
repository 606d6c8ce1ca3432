//! The entries of a tar: ustar, with the long names of GNU and of pax. Regular
//! files, folders and symbolic links are known; all else is refused. Whether a
//! path may be written is the listing's to say.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::listing::{Item, MAX_BYTES, refused};
use crate::error::{During, Error, Kind, Result};

const BLOCK: usize = 512;

/// Longest name or set of pax records, in bytes.
const LONGEST_NOTE: u64 = 64 * 1024;

/// What an entry before says of the next one.
#[derive(Default)]
struct Notes {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    bytes: Option<u64>,
}

/// Goes through all entries; `each` may read the content of a file, which ends
/// where the file does.
pub(super) fn walk(
    mut from: impl Read,
    mut each: impl FnMut(&Path, &Item, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let mut notes = Notes::default();
    while let Some(head) = next_head(&mut from)? {
        let bytes = notes.bytes.filter(|_| !is_note(head.kind)).unwrap_or(head.bytes);
        let padding = bytes.next_multiple_of(BLOCK as u64) - bytes;
        let mut content = from.by_ref().take(bytes);
        if is_note(head.kind) {
            notes.take_in(head.kind, &mut content)?;
        } else {
            let (path, item) = head.entry(std::mem::take(&mut notes), bytes)?;
            each(&path, &item, &mut content)?;
        }
        // What nobody has read of it.
        let left = content.limit();
        skip(&mut from, left + padding)?;
    }
    // To the end, where the checksum stands.
    io::copy(&mut from, &mut io::sink()).map(|_| ()).during(Kind::Denied, "read to the end")
}

fn is_note(kind: u8) -> bool {
    matches!(kind, b'L' | b'K' | b'x' | b'g')
}

struct Head {
    kind: u8,
    path: Vec<u8>,
    link: Vec<u8>,
    mode: u64,
    bytes: u64,
}

/// `None` at the end mark.
fn next_head(from: &mut impl Read) -> Result<Option<Head>> {
    let mut block = [0; BLOCK];
    from.read_exact(&mut block).during(Kind::Denied, "read the next entry")?;
    if block.iter().all(|it| *it == 0) {
        return Ok(None);
    }
    let head = Head::of(&block).ok_or_else(|| damaged("an entry is none of a tar"))?;
    if head.bytes > MAX_BYTES {
        let what = format!("a file in it has {} bytes: too much for a plugin", head.bytes);
        return Err(Error::new(Kind::TooLarge, what));
    }
    Ok(Some(head))
}

impl Head {
    fn of(block: &[u8; BLOCK]) -> Option<Self> {
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, it)| if (148..156).contains(&at) { 32 } else { u64::from(*it) })
            .sum();
        if number(&block[148..156])? != sum {
            return None;
        }
        let mut path = text(&block[..100]);
        // GNU has other things where ustar has the beginning of a long path.
        let before = text(&block[345..500]);
        if &block[257..263] == b"ustar\0" && !before.is_empty() {
            path = [before, b"/".to_vec(), path].concat();
        }
        Some(Self {
            kind: block[156],
            path,
            link: text(&block[157..257]),
            mode: number(&block[100..108])?,
            bytes: number(&block[124..136])?,
        })
    }

    fn entry(self, notes: Notes, bytes: u64) -> Result<(PathBuf, Item)> {
        let path = notes.path.unwrap_or(self.path);
        let is_folder = path.ends_with(b"/");
        let path = PathBuf::from(OsString::from_vec(path));
        let item = match self.kind {
            b'5' => Item::Folder,
            b'0' | 0 | b'7' if is_folder => Item::Folder,
            b'0' | 0 | b'7' => Item::File { bytes, is_program: self.mode & 0o111 != 0 },
            b'2' => Item::Link(OsString::from_vec(notes.link.unwrap_or(self.link)).into()),
            b'1' => return Err(refused(&path, "it is a hard link")),
            b'3' | b'4' => return Err(refused(&path, "it is a device")),
            b'6' => return Err(refused(&path, "it is a FIFO")),
            other => {
                let why =
                    format!("it is of an unknown kind, `{}`", char::from(other).escape_debug());
                return Err(refused(&path, &why));
            }
        };
        Ok((path, item))
    }
}

impl Notes {
    fn take_in(&mut self, kind: u8, content: &mut io::Take<impl Read>) -> Result<()> {
        if content.limit() > LONGEST_NOTE {
            return Err(damaged("a name in it is too long"));
        }
        let wanted = content.limit();
        let mut bytes = Vec::new();
        let read = content.read_to_end(&mut bytes).during(Kind::Denied, "read a name")?;
        if read as u64 != wanted {
            return Err(damaged("it ends too early"));
        }
        match kind {
            b'L' => self.path = Some(text(&bytes)),
            b'K' => self.link = Some(text(&bytes)),
            b'x' => self.records(&bytes).ok_or_else(|| damaged("its pax records are wrong"))?,
            // Of the archive as a whole: nothing that we need.
            _ => {}
        }
        Ok(())
    }

    /// Records of the form `LENGTH KEY=VALUE\n`; `None` if they are not.
    fn records(&mut self, mut rest: &[u8]) -> Option<()> {
        while !rest.is_empty() {
            let blank = rest.iter().position(|it| *it == b' ')?;
            let length: usize = std::str::from_utf8(&rest[..blank]).ok()?.parse().ok()?;
            let record = rest.get(blank + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|it| *it == b'=')?;
            let value = &record[equals + 1..];
            match &record[..equals] {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.bytes = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
                // Its content is not what stands there.
                key if key.starts_with(b"GNU.sparse") => return None,
                _ => {}
            }
            rest = &rest[length..];
        }
        self.bytes.is_none_or(|it| it <= MAX_BYTES).then_some(())
    }
}

fn skip(from: &mut impl Read, bytes: u64) -> Result<()> {
    let skipped =
        io::copy(&mut from.take(bytes), &mut io::sink()).during(Kind::Denied, "read on")?;
    match skipped == bytes {
        true => Ok(()),
        false => Err(damaged("it ends too early")),
    }
}

fn damaged(what: &str) -> Error {
    Error::new(Kind::Denied, what)
}

/// Up to the first NUL.
fn text(field: &[u8]) -> Vec<u8> {
    field.split(|it| *it == 0).next().unwrap_or_default().to_vec()
}

/// An octal number between blanks and NULs, or GNU's binary one.
fn number(field: &[u8]) -> Option<u64> {
    if let [0x80, zeros @ .., a, b, c, d, e, f, g, h] = field {
        let number = u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
        return zeros.iter().all(|it| *it == 0).then_some(number);
    }
    let digits = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An entry with its content, padded.
    pub(crate) fn entry(path: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
        let mut block = head(path, kind, link, content.len() as u64);
        block.extend(content);
        block.resize(block.len().next_multiple_of(BLOCK), 0);
        block
    }

    pub(crate) fn head(path: &str, kind: u8, link: &str, bytes: u64) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
        put(0, &path.as_bytes()[..path.len().min(100)]);
        put(100, if path.ends_with("say") { b"0000755\0" } else { b"0000644\0" });
        put(124, format!("{bytes:011o}\0").as_bytes());
        put(156, &[kind]);
        put(157, link.as_bytes());
        put(257, b"ustar\x0000");
        put(148, b"        ");
        let sum: u64 = block.iter().map(|it| u64::from(*it)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    fn walked(tar: &[u8]) -> Result<Vec<(String, Item, String)>> {
        let mut seen = Vec::new();
        walk(tar, |path, item, content| {
            let mut text = String::new();
            // Every second one is left to be skipped.
            if seen.len() % 2 == 0 {
                content.read_to_string(&mut text).during(Kind::Internal, "read")?;
            }
            seen.push((path.display().to_string(), item.clone(), text));
            Ok(())
        })?;
        Ok(seen)
    }

    const END: [u8; 1024] = [0; 1024];

    #[test]
    fn entries_are_read_in_their_order_with_long_names_of_both_kinds() {
        let long = "d/".repeat(80) + "f";
        let record = |key: &str, value: &str| {
            let body = format!(" {key}={value}\n");
            let length =
                (1..).find(|it: &usize| it.to_string().len() + body.len() == *it).unwrap_or(0);
            format!("{length}{body}").into_bytes()
        };
        let pax = [record("path", &long), record("mtime", "1.5"), record("size", "3")].concat();
        let tar = [
            entry("pax_global_header", b'g', "", &record("comment", "x")),
            entry("r/", b'5', "", b""),
            entry("r/say", b'0', "", b"text"),
            entry("r/old/", 0, "", b""),
            entry("././@LongLink", b'L', "", format!("{long}\0").as_bytes()),
            entry("short", b'0', "", b"long"),
            entry("x", b'x', "", &pax),
            entry("short", b'0', "", b"pax"),
            entry("././@LongLink", b'K', "", format!("{long}\0").as_bytes()),
            entry("l", b'2', "short", b""),
            END.to_vec(),
        ]
        .concat();
        let file = |bytes, is_program| Item::File { bytes, is_program };
        let want = [
            ("r/", Item::Folder, ""),
            ("r/say", file(4, true), ""),
            ("r/old/", Item::Folder, ""),
            (&long, file(4, false), ""),
            (&long, file(3, false), "pax"),
            ("l", Item::Link(PathBuf::from(&long)), ""),
        ];
        let want: Vec<_> =
            want.map(|(path, item, text)| (path.to_owned(), item, text.to_owned())).into();
        assert_eq!(walked(&tar).map_err(|it| it.to_string()), Ok(want));
        for end in (0..tar.len() - END.len()).step_by(100) {
            assert!(walked(&tar[..end]).is_err(), "{end}");
        }
    }

    #[track_caller]
    fn check_refused(tar: &[u8], want: &str) {
        let error = walked(tar).map_err(|it| it.to_string()).err();
        assert!(error.as_ref().is_some_and(|it| it.contains(want)), "{want}: {error:?}");
    }

    #[test]
    fn what_is_neither_file_folder_nor_link_is_refused() {
        check_refused(&entry("h", b'1', "/etc/x", b""), "`h` is refused: it is a hard link");
        check_refused(&entry("d", b'3', "", b""), "it is a device");
        check_refused(&entry("d", b'4', "", b""), "it is a device");
        check_refused(&entry("f", b'6', "", b""), "it is a FIFO");
        check_refused(&entry("s", b'S', "", b""), "of an unknown kind, `S`");
        check_refused(&entry("x", b'x', "", b"22 GNU.sparse.major=1\n"), "pax records are wrong");
        check_refused(&entry("x", b'x', "", b"99 path=x\n"), "pax records are wrong");
        check_refused(&entry("x", b'x', "", b"22 size=9999999999999\n"), "pax records are wrong");
        check_refused(&head("x", b'L', "", LONGEST_NOTE + 1), "a name in it is too long");
        check_refused(&head("x", b'0', "", MAX_BYTES + 1), "too much for a plugin");
        check_refused(&[b'x'; 600], "none of a tar");
        let mut damaged = entry("x", b'0', "", b"");
        damaged[3] = b'y';
        check_refused(&damaged, "none of a tar");
    }
}
