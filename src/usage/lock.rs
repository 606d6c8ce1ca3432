//! `usage.lock`: who may write to the file now, among threads and processes. A
//! kernel lock, so that a process that is killed leaves nothing behind.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::after;

use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};

/// Longest wait; who holds it needs a millisecond, or some hundred to sum an old
/// file up.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// Holds the lock for as long as the file that is returned is open.
pub(super) fn hold(path: &Path) -> Result<File> {
    let what = || format!("lock {}", path.display());
    let file =
        open_own(path, File::options().create(true).append(true)).during(Kind::Internal, what())?;
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error).during(Kind::Internal, what()),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                let what = format!("{}: another process does not let go of it", what());
                return Err(Error::new(Kind::Busy, what));
            }
            Err(TryLockError::WouldBlock) => {
                let _ = after(PAUSE).recv();
            }
        }
    }
}
