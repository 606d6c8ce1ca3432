//! The file: one line at its end at a time, each with the hash of the line
//! before it, rotated when it is full. Whoever calls holds the lock.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use super::record::Record;
use super::tail::{Head, Tail};
use crate::config::Home;
use crate::config::home::open_own;
use crate::error::{During, Kind, Result};

/// Least time between two waits for the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The log's end, as this process knows it.
pub(super) struct Log {
    home: Home,
    max_bytes: u64,
    max_files: u32,
    file: File,
    /// The file as it was left; another process has written if it is not so.
    left: Option<State>,
    tail: Tail,
    /// Whether a line was written since the last sync.
    is_dirty: bool,
    synced: Instant,
}

/// Which file it is, and how long.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    length: u64,
}

impl Log {
    /// Opens the file, made 0600 if need be, and reads where the chain stands.
    pub(super) fn open(home: &Home, max_bytes: u64, max_files: u32) -> Result<Self> {
        let mut log = Self {
            home: home.clone(),
            max_bytes,
            max_files: max_files.max(1),
            file: open(&home.audit_log())?,
            left: None,
            tail: Tail::none(),
            is_dirty: false,
            synced: Instant::now(),
        };
        log.settle()?;
        Ok(log)
    }

    /// Appends a record. After an error part of the line may stand; the next
    /// line closes it.
    pub(super) fn append(&mut self, record: &Record) -> Result<()> {
        self.settle()?;
        let mut line = self.next_line(record)?;
        if self.is_full(line.len()) {
            self.rotate()?;
            // The same number and hash: the chain goes on over the border.
            line = self.next_line(record)?;
        }
        self.write(&line)
    }

    /// Whether nothing was written since the last sync.
    pub(super) fn is_clean(&self) -> bool {
        !self.is_dirty
    }

    /// [`Log::sync`], once a second at most.
    pub(super) fn sync_if_due(&mut self) -> Result<()> {
        if self.synced.elapsed() < SYNC_EVERY {
            return Ok(());
        }
        self.sync()
    }

    /// Waits until the disk has what was written, then notes the head.
    pub(super) fn sync(&mut self) -> Result<()> {
        if !self.is_dirty {
            return Ok(());
        }
        self.settle()?;
        self.file.sync_data().during(Kind::Internal, self.what("sync"))?;
        self.is_dirty = false;
        self.synced = Instant::now();
        self.note_head();
        Ok(())
    }

    /// Catches up with what others did to the file.
    fn settle(&mut self) -> Result<()> {
        if self.left.is_some() && self.left == State::of_path(&self.home.audit_log()) {
            return Ok(());
        }
        self.left = None;
        self.file = open(&self.home.audit_log())?;
        let mut tail = Tail::read(&self.home)?;
        // Numbers never go back: if lines were cut off, the gap stays visible.
        let noted = Head::read(&self.home).unwrap_or_else(|error| {
            log::warn!("{error}");
            None
        });
        tail.seq = tail.seq.max(self.tail.seq).max(noted.map_or(0, |it| it.seq));
        self.tail = tail;
        self.left = State::of_file(&self.file);
        Ok(())
    }

    /// The line's bytes: with the newline that a torn line before it lacks, and
    /// its own.
    fn next_line(&self, record: &Record) -> Result<Vec<u8>> {
        let line = record.line(self.tail.seq + 1, &self.tail.hash)?;
        let mut bytes = Vec::with_capacity(line.len() + 2);
        if !self.tail.closed {
            bytes.push(b'\n');
        }
        bytes.extend(line);
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// A torn file is not rotated: its last line could not be closed any more.
    fn is_full(&self, more: usize) -> bool {
        let length = self.left.map_or(0, |it| it.length);
        self.tail.closed && length > 0 && length + more as u64 > self.max_bytes
    }

    /// One write. What happened if it fails is read from the file next time.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let left = self.left.take();
        self.is_dirty = true;
        let written = match self.file.write(bytes) {
            Ok(count) => count,
            Err(error) => return Err(error).during(Kind::Internal, self.what("append to")),
        };
        // Without its newline the line is whole: repeating it would double it.
        if written + 1 < bytes.len() {
            let full = std::io::Error::from(ErrorKind::StorageFull);
            return Err(full).during(Kind::Internal, self.what("append to"));
        }
        let start = usize::from(!self.tail.closed);
        self.tail = Tail {
            seq: self.tail.seq + 1,
            hash: super::record::sha256(&bytes[start..bytes.len() - 1]),
            closed: written == bytes.len(),
        };
        self.left = left.map(|it| State { length: it.length + written as u64, ..it });
        Ok(())
    }

    /// `audit.jsonl` becomes `.1`, `.1` becomes `.2`, …; the oldest goes.
    fn rotate(&mut self) -> Result<()> {
        let what = self.what("rotate");
        self.file.sync_data().during(Kind::Internal, what.clone())?;
        self.left = None;
        self.shift().during(Kind::Internal, what)?;
        self.file = open(&self.home.audit_log())?;
        self.left = State::of_file(&self.file);
        self.note_head();
        Ok(())
    }

    /// A number that is missing (a crash between two renames) is filled, so
    /// that nothing is pushed out before its time.
    fn shift(&self) -> std::io::Result<()> {
        let free = (1..self.max_files).find(|it| !self.home.audit_log_rotated(*it).exists());
        for number in (1..free.unwrap_or(self.max_files)).rev() {
            let older = self.home.audit_log_rotated(number + 1);
            fs::rename(self.home.audit_log_rotated(number), older)?;
        }
        fs::rename(self.home.audit_log(), self.home.audit_log_rotated(1))?;
        // More files were kept once.
        for number in self.max_files + 1.. {
            if fs::remove_file(self.home.audit_log_rotated(number)).is_err() {
                break;
            }
        }
        File::open(self.home.logs())?.sync_all()
    }

    /// Failing here loses no record, so it is told and no more.
    fn note_head(&self) {
        if let Err(error) = self.write_head() {
            log::warn!("replace {}: {error}", self.home.audit_head().display());
        }
    }

    fn write_head(&self) -> std::io::Result<()> {
        let path = self.home.audit_head();
        let draft = path.with_extension("head.new");
        let mut file = open_own(&draft, File::options().create(true).write(true).truncate(true))?;
        file.write_all(format!("{}:{}\n", self.tail.seq, self.tail.hash).as_bytes())?;
        file.sync_data()?;
        fs::rename(draft, path)
    }

    fn what(&self, act: &str) -> String {
        format!("{act} {}", self.home.audit_log().display())
    }
}

impl State {
    fn of_path(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|it| Self::of(&it))
    }

    fn of_file(file: &File) -> Option<Self> {
        file.metadata().ok().map(|it| Self::of(&it))
    }

    fn of(it: &fs::Metadata) -> Self {
        Self { device: it.dev(), inode: it.ino(), length: it.len() }
    }
}

/// Opens the log for appending and takes rights from others that they should
/// not have.
fn open(path: &Path) -> Result<File> {
    let what = || format!("open {}", path.display());
    let file =
        open_own(path, File::options().create(true).append(true)).during(Kind::Internal, what())?;
    let state = file.metadata().during(Kind::Internal, what())?;
    if state.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600)).during(Kind::Internal, what())?;
    }
    Ok(file)
}
