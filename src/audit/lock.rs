//! `audit.lock`: who may write a line now, among threads and processes. A
//! kernel lock, so a process that is killed leaves nothing behind. Every wait
//! has a deadline.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::config::file_lock::wait;
use crate::config::home::open_own;
use crate::error::{During, Kind, Result};

/// Longest wait for the lock; who holds it needs well under a millisecond.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The means to lock the log exclusively.
pub(super) struct Lock {
    path: PathBuf,
    file: File,
}

/// The log is locked for as long as this lives.
pub(super) struct Held<'a> {
    file: &'a File,
}

impl Lock {
    /// Opens the lock file, making it if need be; locks nothing yet.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        Ok(Self { file: open(&path)?, path })
    }

    /// Locks the log, or refuses at the deadline.
    pub(super) fn hold(&mut self, deadline: Instant) -> Result<Held<'_>> {
        // A lock on a file that was removed would exclude nobody.
        while !self.lock(deadline)? {
            self.file = open(&self.path)?;
        }
        Ok(Held { file: &self.file })
    }

    /// Whether the file that is now locked is the one all others lock.
    fn lock(&self, deadline: Instant) -> Result<bool> {
        wait(&self.path, deadline, || self.file.try_lock())?;
        let ours = self.file.metadata().during(Kind::Internal, self.what())?;
        let theirs = std::fs::metadata(&self.path);
        Ok(theirs.is_ok_and(|it| (it.dev(), it.ino()) == (ours.dev(), ours.ino())))
    }

    fn what(&self) -> String {
        format!("lock {}", self.path.display())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            log::error!("unlock the audit log: {error}");
        }
    }
}

/// Keeps writers away while a reader looks at where the log ends; `None` if
/// there is no lock file, since then nobody writes.
pub(super) fn hold_shared(path: &Path, deadline: Instant) -> Result<Option<File>> {
    let Ok(file) = open_own(path, File::options().read(true)) else { return Ok(None) };
    wait(path, deadline, || file.try_lock_shared())?;
    Ok(Some(file))
}

fn open(path: &Path) -> Result<File> {
    open_own(path, File::options().create(true).append(true))
        .during(Kind::Internal, format!("open {}", path.display()))
}
