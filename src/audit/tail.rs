//! Where the chain stands: number and hash of its last line, read from the end
//! of the files, and the copy of both in `audit.head`. Reads a bounded piece
//! of a file, however large the file is.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Deserialize;

use super::lock::{LONGEST_WAIT, hold_shared};
use super::record::{LONGEST_LINE, NO_LINE, sha256};
use crate::config::Home;
use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};

/// Pieces of a file that are looked through for its last record, in bytes: the
/// first is enough but for long records and torn ones.
const WINDOWS: [u64; 3] = [8 * 1024, 128 * 1024, 4 * LONGEST_LINE as u64];

/// Longest `audit.head`, in bytes.
const LONGEST_HEAD: u64 = 256;

/// The last line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Its number; a torn line counts as one.
    pub(super) seq: u64,
    /// SHA-256 of its bytes without the newline.
    pub(super) hash: String,
    /// Whether its newline is there, in the newest file.
    pub(super) closed: bool,
}

/// A number and the hash of the line that has it; written as `SEQ:HASH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The line's number, from 1.
    pub seq: u64,
    /// SHA-256 of its bytes without the newline, in lower-case hex.
    pub hash: String,
}

/// What makes a line a record.
#[derive(Deserialize)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) prev: String,
}

impl Tail {
    /// Of a log that has no line.
    pub(super) fn none() -> Self {
        Self { seq: 0, hash: NO_LINE.to_owned(), closed: true }
    }

    /// As the files stand. The caller keeps other writers away.
    pub(super) fn read(home: &Home) -> Result<Self> {
        let found = Found::of(home)?;
        let (hash, closed) = found.last.unwrap_or((NO_LINE.to_owned(), true));
        Ok(Self { seq: found.seq + found.broken, hash, closed })
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

/// The last record of a home's log as it stands now, and how many torn lines
/// stand behind it; `None` if it has none. Keeps writers away for the moment.
pub fn head(home: &Home) -> Result<Option<(Head, u64)>> {
    let _held = hold_shared(&home.audit_lock(), Instant::now() + LONGEST_WAIT)?;
    let found = Found::of(home)?;
    Ok(found.record.map(|hash| (Head { seq: found.seq, hash }, found.broken)))
}

impl Head {
    /// Reads `SEQ:HASH`; white space behind it does not count.
    pub fn parse(text: &str) -> Option<Self> {
        let (seq, hash) = text.trim_end().split_once(':')?;
        let is_hash = hash.len() == NO_LINE.len() && hash.bytes().all(|it| it.is_ascii_hexdigit());
        let is_number = seq.bytes().all(|it| it.is_ascii_digit());
        let seq = seq.parse().ok().filter(|it| is_hash && is_number && *it > 0)?;
        Some(Self { seq, hash: hash.to_ascii_lowercase() })
    }

    /// What `audit.head` says; `None` if there is none.
    pub(super) fn read(home: &Home) -> Result<Option<Self>> {
        let path = home.audit_head();
        let what = || format!("read {}", path.display());
        let mut text = String::new();
        match open_own(&path, File::options().read(true)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).during(Kind::Internal, what()),
            Ok(file) => file.take(LONGEST_HEAD).read_to_string(&mut text),
        }
        .during(Kind::Internal, what())?;
        match Self::parse(&text) {
            Some(head) => Ok(Some(head)),
            None => Err(Error::new(Kind::Internal, format!("{}: not SEQ:HASH", what()))),
        }
    }
}

/// The files of the log: the one that is written, then older and older ones,
/// whatever numbers are missing.
pub(super) fn newest_first(home: &Home) -> Result<Vec<PathBuf>> {
    let mut numbers: Vec<u32> = Vec::new();
    let folder = match fs::read_dir(home.logs()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        folder => folder.during(Kind::Internal, format!("list {}", home.logs().display()))?,
    };
    for entry in folder {
        let entry = entry.during(Kind::Internal, format!("list {}", home.logs().display()))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|it| it.strip_prefix("audit.jsonl."));
        numbers.extend(number.and_then(|it| it.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    numbers.dedup();
    let mut paths = vec![home.audit_log()];
    paths.extend(numbers.into_iter().map(|it| home.audit_log_rotated(it)));
    paths.retain(|it| it.exists());
    Ok(paths)
}

/// What has been found from the end backwards.
#[derive(Clone, Default)]
struct Found {
    last: Option<(String, bool)>,
    /// Lines behind the last record.
    broken: u64,
    seq: u64,
    /// Hash of the last record.
    record: Option<String>,
}

impl Found {
    fn of(home: &Home) -> Result<Self> {
        let mut found = Self::default();
        for path in newest_first(home)? {
            if look_through(&path, &mut found)? {
                break;
            }
        }
        Ok(found)
    }
}

/// Whether the file has a record; if not, an older file may have one.
fn look_through(path: &Path, found: &mut Found) -> Result<bool> {
    for window in WINDOWS {
        let (bytes, is_whole) = end_of(path, window)
            .during(Kind::Internal, format!("read the end of {}", path.display()))?;
        let mut tried = found.clone();
        let has_record = look_at(&bytes, is_whole, &mut tried);
        if has_record || is_whole {
            *found = tried;
            return Ok(has_record);
        }
    }
    Err(Error::new(
        Kind::Internal,
        format!(
            "read the end of {}: it holds no audit record; move the file away to begin a new one",
            path.display()
        ),
    ))
}

/// The last bytes of a file, and whether they are all of it.
fn end_of(path: &Path, at_most: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let mut file = open_own(path, File::options().read(true))?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(at_most);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(length - start).read_to_end(&mut bytes)?;
    Ok((bytes, start == 0))
}

/// Goes through lines from the last to the first; of a piece of a file the
/// first line is not all there.
fn look_at(bytes: &[u8], is_whole: bool, found: &mut Found) -> bool {
    if bytes.is_empty() {
        return false;
    }
    let closed = bytes.ends_with(b"\n");
    let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let starts = if is_whole { 0 } else { 1 };
    let count = lines.split(|it| *it == b'\n').count();
    for line in lines.rsplit(|it| *it == b'\n').take(count - starts) {
        found.last.get_or_insert_with(|| (sha256(line), closed));
        match serde_json::from_slice::<Link>(line) {
            Ok(link) => {
                found.seq = link.seq;
                found.record = Some(sha256(line));
                return true;
            }
            Err(_) => found.broken += 1,
        }
    }
    false
}
