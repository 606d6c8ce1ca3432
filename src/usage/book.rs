//! The file as it is written: one line at its end for each call, in one write,
//! under a lock that all processes of a home share. A line that cannot be
//! written stops nothing: who asked has the answer, and a person is told once.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{Call, fold};
use crate::config::home::{create_private, open_own};
use crate::config::{Home, file_lock};
use crate::error::{During, Kind, Result};

/// From this length on, in bytes, old calls are summed up by day: some 25,000
/// calls.
pub(super) const LIMIT: u64 = 8 * 1024 * 1024;

/// Longest wait for the lock; who holds it needs a millisecond, or some hundred
/// to sum an old file up.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// How much a file grows before it is tried again to sum it up.
const RETRY_AFTER: u64 = 1024 * 1024;

/// The file, for writing. It holds nothing open.
#[derive(Debug)]
pub struct Book {
    home: Home,
    limit: u64,
    state: Mutex<State>,
}

/// What a process remembers between two lines.
#[derive(Debug, Default)]
struct State {
    /// Whether the last line could not be written, and that was told.
    is_troubled: bool,
    /// Below this length nothing is summed up, since it failed before.
    fold_from: u64,
}

impl Book {
    /// The file of a home; nothing is opened or made yet.
    pub fn new(home: Home) -> Self {
        Self { home, limit: LIMIT, state: Mutex::default() }
    }

    /// The same with another length from which on it is summed up.
    #[cfg(test)]
    pub(super) fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// Writes the line of a call. Failing is a warning, once until it works
    /// again.
    pub fn note(&self, call: &Call) {
        let written = self.append(call);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match written {
            Err(error) if !state.is_troubled => {
                state.is_troubled = true;
                log::warn!("what model calls take is not noted for now: {error}");
            }
            Err(_) => (),
            Ok(()) => state.is_troubled = false,
        }
    }

    fn append(&self, call: &Call) -> Result<()> {
        let path = self.home.usage_log();
        let what = || format!("append to {}", path.display());
        let mut line = serde_json::to_vec(call).during(Kind::Internal, what())?;
        line.push(b'\n');
        create_private(&self.home.data())?;
        let _held = file_lock::hold(&self.home.usage_lock(), LOCK_WAIT)?;
        let mut file = open(&path).during(Kind::Internal, what())?;
        if self.is_full(&file).during(Kind::Internal, what())? && self.fold(&file) {
            file = open(&path).during(Kind::Internal, what())?;
        }
        write(&mut file, line).during(Kind::Internal, what())
    }

    fn is_full(&self, file: &File) -> io::Result<bool> {
        let length = file.metadata()?.len();
        let from = self.state.lock().unwrap_or_else(PoisonError::into_inner).fold_from;
        Ok(length > self.limit && length >= from && fold::is_due(file, length, self.limit)?)
    }

    /// Sums old calls up; whether there is a new file. A failure costs room and
    /// no line.
    fn fold(&self, file: &File) -> bool {
        let folded = fold::fold(&self.home, file, self.limit / 4);
        if let Err(error) = &folded {
            let length = file.metadata().map_or(0, |it| it.len());
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.fold_from = length + RETRY_AFTER;
            log::warn!("the usage log grows, since its old lines cannot be summed up: {error}");
        }
        folded.is_ok()
    }
}

fn open(path: &Path) -> io::Result<File> {
    open_own(path, File::options().create(true).append(true).read(true))
}

/// One write, behind a newline that a torn line before it lacks. Of a disk that
/// is full no half line stays.
fn write(file: &mut File, mut line: Vec<u8>) -> io::Result<()> {
    let length = file.metadata()?.len();
    if length > 0 && last_byte(file, length)? != b'\n' {
        line.insert(0, b'\n');
    }
    let written = file.write(&line)?;
    if written < line.len() {
        file.set_len(length)?;
        return Err(ErrorKind::StorageFull.into());
    }
    Ok(())
}

fn last_byte(file: &File, length: u64) -> io::Result<u8> {
    let mut last = [0];
    file.read_exact_at(&mut last, length - 1)?;
    Ok(last[0])
}
