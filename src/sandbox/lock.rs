//! The lock of one agent's sandbox: each call holds it shared; making,
//! stopping and removing the sandbox take it exclusively. A file lock, so
//! that one-shots and the gateway respect each other and a kill leaves
//! nothing behind.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::{after, select};

use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};
use crate::worker::Cancel;

/// Pause between two tries: locks of other processes cannot be waited for
/// with a deadline in any other way.
const PAUSE: Duration = Duration::from_millis(10);

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Together with other calls.
    Shared,
    /// Alone.
    Exclusive,
}

impl Lock {
    /// Waits for the lock, at most `limit`; `Kind::Busy` after that.
    pub fn wait(path: &Path, hold: Hold, limit: Duration, cancel: &Cancel) -> Result<Self> {
        let lock = Self::wait_unless(path, hold, limit, cancel, &|| Ok(false))?;
        lock.ok_or_else(|| Error::new(Kind::Internal, "a lock was given up"))
    }

    /// The same, but gives up without the lock as soon as it is `settled`
    /// that there is nothing to do under it.
    pub fn wait_unless(
        path: &Path,
        hold: Hold,
        limit: Duration,
        cancel: &Cancel,
        settled: &dyn Fn() -> Result<bool>,
    ) -> Result<Option<Self>> {
        let lock = Self::open(path)?;
        let deadline = Instant::now() + limit;
        while !lock.try_take(path, hold)? {
            if settled()? {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                return Err(Error::new(
                    Kind::Busy,
                    format!(
                        "the sandbox is in use by other calls ({} is held for over {} s); \
                         try again when they have ended",
                        path.display(),
                        limit.as_secs()
                    ),
                ));
            }
            select! {
                recv(cancel.gone()) -> _ => return Err(Error::new(Kind::Cancelled, "called off")),
                recv(after(PAUSE)) -> _ => {}
            }
        }
        Ok(Some(lock))
    }

    /// Takes the lock only if it is free.
    pub fn try_exclusive(path: &Path) -> Result<Option<Self>> {
        let lock = Self::open(path)?;
        Ok(lock.try_take(path, Hold::Exclusive)?.then_some(lock))
    }

    fn open(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).read(true).write(true).truncate(false);
        let file = open_own(path, &mut options)
            .during(Kind::Internal, format!("open the lock {}", path.display()))?;
        Ok(Self { file })
    }

    fn try_take(&self, path: &Path, hold: Hold) -> Result<bool> {
        let taken = match hold {
            Hold::Shared => self.file.try_lock_shared(),
            Hold::Exclusive => self.file.try_lock(),
        };
        match taken {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => {
                Err(error).during(Kind::Internal, format!("lock {}", path.display()))
            }
        }
    }
}
