//! Which turn runs in which session and who pays for it, so that what an agent
//! asks another agent for is billed to its own turn, and no turn comes to wait
//! for itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::turn::Bill;

/// The bills of the turns that run, by session.
#[derive(Debug, Default)]
pub(super) struct Bills(Mutex<HashMap<String, Arc<Bill>>>);

/// The bill of a turn; it leaves the table when dropped.
pub(super) struct Open<'a> {
    bills: &'a Bills,
    pub(super) bill: Arc<Bill>,
}

impl Bills {
    /// For a turn that begins in a session whose file it has locked; the turn in
    /// the session `parent` pays for it.
    pub(super) fn open(&self, session: &str, parent: Option<&str>) -> Open<'_> {
        let mut table = self.table();
        let above = parent.map(|parent| match table.get(parent) {
            Some(bill) => Arc::clone(bill),
            // A tool may be called in a session in which no turn runs.
            None => Arc::new(Bill::new(parent, None)),
        });
        let bill = Arc::new(Bill::new(session, above));
        table.insert(session.to_owned(), Arc::clone(&bill));
        Open { bills: self, bill }
    }

    /// Whether a turn that is waited for in that session runs in one of which
    /// this is true.
    pub(super) fn is_waited_for(&self, session: &str, here: impl Fn(&str) -> bool) -> bool {
        self.table().values().any(|it| it.is_within(session) && here(it.session()))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Arc<Bill>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.bills.table().remove(self.bill.session());
    }
}
