//! Locks among threads and processes, each on a file of its own. Kernel locks,
//! so that whoever is killed leaves nothing behind; every wait has a deadline.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::after;

use super::home::open_own;
use crate::error::{During, Error, Kind, Result};

/// The pauses between two tries, which grow: no event tells of a lock that
/// another process lets go.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A lock that is held; dropping it lets go.
#[derive(Debug)]
pub struct Held(File);

/// Locks a file, made if need be. [`Kind::Busy`] if somebody else does not let
/// go of it in that time.
pub fn hold(path: &Path, longest: Duration) -> Result<Held> {
    let file = open_own(path, OpenOptions::new().create(true).append(true))
        .during(Kind::Internal, format!("lock {}", path.display()))?;
    hold_opened(file, path, Instant::now() + longest)
}

/// The same with a file that is open already, until that moment.
pub(crate) fn hold_opened(file: File, path: &Path, deadline: Instant) -> Result<Held> {
    wait(path, deadline, || file.try_lock())?;
    Ok(Held(file))
}

/// Tries until it works. [`Kind::Busy`] once that moment has passed.
pub fn wait(
    path: &Path,
    deadline: Instant,
    attempt: impl Fn() -> Result<(), TryLockError>,
) -> Result<()> {
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(error).during(Kind::Internal, format!("lock {}", path.display()));
            }
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                let what =
                    format!("lock {}: another process does not let go of it", path.display());
                return Err(Error::new(Kind::Busy, what));
            }
            Err(TryLockError::WouldBlock) => {
                let _ = after(pause).recv();
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

impl Held {
    /// The file that is locked.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing is not enough: a child that is being started at this moment
        // holds the file, and with it the lock, for a few more instants.
        if let Err(error) = self.0.unlock() {
            log::warn!("unlock a file: {error}");
        }
    }
}
