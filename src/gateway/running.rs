//! What runs now, so that a stop can wait for it, then call it off. Once the
//! gateway drains, nothing new is let in.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::worker::Cancel;

/// Everything that runs for a front end. Clones share one table.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    table: Arc<(Mutex<Table>, Condvar)>,
}

#[derive(Debug, Default)]
struct Table {
    draining: bool,
    next: u64,
    cancels: HashMap<u64, Cancel>,
    /// Those that are not waited for once they are called off.
    telling: HashSet<u64>,
}

/// Something that runs; leaves the table when dropped.
#[derive(Debug)]
pub(super) struct Entered {
    running: Running,
    id: u64,
}

impl Running {
    /// Lets a call in, or says [`Kind::Busy`] while the gateway drains.
    pub(super) fn enter(&self, cancel: &Cancel) -> Result<Entered> {
        let mut table = self.lock();
        if table.draining {
            return Err(Error::new(Kind::Busy, "the gateway is stopping; nothing was begun"));
        }
        table.next += 1;
        let id = table.next;
        table.cancels.insert(id, cancel.clone());
        Ok(Entered { running: self.clone(), id })
    }

    /// The same for a call that only tells its client what it hears. Called off,
    /// it may stand in a write that nobody takes; who closes the connections ends
    /// it then, and nobody else waits.
    pub(super) fn enter_to_tell(&self, cancel: &Cancel) -> Result<Entered> {
        let entered = self.enter(cancel)?;
        self.lock().telling.insert(entered.id);
        Ok(entered)
    }

    /// Whether nothing new is let in.
    pub(super) fn is_draining(&self) -> bool {
        self.lock().draining
    }

    /// Number of calls that run now.
    pub(super) fn count(&self) -> usize {
        self.lock().cancels.len()
    }

    /// Calls everything off that runs.
    pub(super) fn call_off(&self) {
        let mut table = self.lock();
        table.cancels.values().for_each(Cancel::call_off);
        let Table { cancels, telling, .. } = &mut *table;
        cancels.retain(|id, _| !telling.contains(id));
        drop(table);
        self.table.1.notify_all();
    }

    /// From now on nothing new is let in.
    pub(super) fn close(&self) {
        self.lock().draining = true;
    }

    /// Lets nothing new in, waits `patience` for what runs, calls the rest
    /// off, and waits `patience_after` for that. Gives the number of calls
    /// that still run then.
    pub(super) fn drain(&self, patience: Duration, patience_after: Duration) -> usize {
        self.close();
        if self.wait_empty(patience) {
            return 0;
        }
        self.call_off();
        self.wait_empty(patience_after);
        self.lock().cancels.len()
    }

    fn wait_empty(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut table = self.lock();
        while !table.cancels.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.table.1.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut table = self.running.lock();
        table.cancels.remove(&self.id);
        table.telling.remove(&self.id);
        drop(table);
        self.running.table.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_tells_is_not_waited_for_once_it_is_called_off() -> Result<()> {
        let running = Running::default();
        let (_canceller, cancel) = Cancel::pair();
        let entered = running.enter_to_tell(&cancel)?;
        assert_eq!(running.drain(Duration::ZERO, Duration::ZERO), 0);
        assert!(cancel.is_cancelled());
        drop(entered);
        assert!(running.lock().telling.is_empty());
        Ok(())
    }

    #[test]
    fn a_draining_gateway_lets_nothing_in() -> Result<()> {
        let running = Running::default();
        drop(running.enter(&Cancel::never())?);
        assert_eq!(running.drain(Duration::ZERO, Duration::ZERO), 0);
        assert_eq!(running.enter(&Cancel::never()).map_err(|it| it.kind()).err(), Some(Kind::Busy));
        Ok(())
    }

    #[test]
    fn what_does_not_end_is_called_off() -> Result<()> {
        let running = Running::default();
        let (_canceller, cancel) = Cancel::pair();
        let entered = running.enter(&cancel)?;
        assert_eq!(running.drain(Duration::ZERO, Duration::ZERO), 1);
        assert!(cancel.is_cancelled());
        drop(entered);
        assert_eq!(running.drain(Duration::ZERO, Duration::ZERO), 0);
        Ok(())
    }
}
