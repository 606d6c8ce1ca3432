//! In which sessions a turn runs, and how many prompts wait behind it: the
//! hub's table as others may look at it. Only the hub writes it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of prompts that wait, by the key of a session in which a turn
/// runs.
#[derive(Debug, Default)]
pub(super) struct Busy(Mutex<HashMap<String, usize>>);

/// All of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Sessions in which a turn runs.
    pub busy: usize,
    /// Prompts that wait for one.
    pub waiting: usize,
}

impl Busy {
    pub(super) fn set(&self, session: &str, waiting: usize) {
        let mut table = self.table();
        match table.get_mut(session) {
            Some(number) => *number = waiting,
            None => drop(table.insert(session.to_owned(), waiting)),
        }
    }

    pub(super) fn clear(&self, session: &str) {
        self.table().remove(session);
    }

    /// `None` where no turn runs.
    pub(super) fn waiting(&self, session: &str) -> Option<usize> {
        self.table().get(session).copied()
    }

    pub(super) fn lines(&self) -> Lines {
        let table = self.table();
        Lines { busy: table.len(), waiting: table.values().sum() }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_busy_until_its_line_is_empty() {
        let busy = Busy::default();
        busy.set("a:1", 0);
        busy.set("a:2", 3);
        assert_eq!(busy.lines(), Lines { busy: 2, waiting: 3 });
        assert_eq!((busy.waiting("a:1"), busy.waiting("a:3")), (Some(0), None));
        busy.clear("a:2");
        assert_eq!(busy.lines(), Lines { busy: 1, waiting: 0 });
    }
}
