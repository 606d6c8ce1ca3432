//! Which turn runs in which session, who pays for it, and which waits for which,
//! so that what an agent asks another agent for is billed to its own turn, and no
//! turn comes to wait for itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::turn::Bill;

/// The bills of the turns that run.
#[derive(Debug, Default)]
pub(super) struct Bills(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// By session.
    open: HashMap<String, Arc<Bill>>,
    /// Sessions in which an agent waits for an answer in another one. They never
    /// go round in a circle.
    waits: Vec<(String, String)>,
}

/// The bill of a turn; it leaves the table when dropped.
pub(super) struct Open<'a> {
    bills: &'a Bills,
    pub(super) bill: Arc<Bill>,
}

/// That an agent waits for an answer; until it is dropped.
pub(super) struct Wait<'a> {
    bills: &'a Bills,
    wait: (String, String),
}

impl Bills {
    /// For a turn that begins in a session whose file it has locked; the turn in
    /// the session `parent` pays for it.
    pub(super) fn open(&self, session: &str, parent: Option<&str>) -> Open<'_> {
        let mut table = self.table();
        let above = parent.map(|parent| match table.open.get(parent) {
            Some(bill) => Arc::clone(bill),
            // A tool may be called in a session in which no turn runs.
            None => Arc::new(Bill::new(parent, None)),
        });
        let bill = Arc::new(Bill::new(session, above));
        table.open.insert(session.to_owned(), Arc::clone(&bill));
        Open { bills: self, bill }
    }

    /// Notes that an agent in the session `from` waits for an answer in the
    /// session `to`; `None` if that one waits for it.
    pub(super) fn wait(&self, from: &str, to: &str) -> Option<Wait<'_>> {
        let mut table = self.table();
        if leads(&table.waits, to, from) {
            return None;
        }
        let wait = (from.to_owned(), to.to_owned());
        table.waits.push(wait.clone());
        Some(Wait { bills: self, wait })
    }

    /// Whether a turn that is waited for in that session runs in one of which
    /// this is true.
    pub(super) fn is_waited_for(&self, session: &str, here: impl Fn(&str) -> bool) -> bool {
        self.table().open.values().any(|it| it.is_within(session) && here(it.session()))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.bills.table().open.remove(self.bill.session());
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waits = &mut self.bills.table().waits;
        if let Some(place) = waits.iter().position(|it| *it == self.wait) {
            waits.swap_remove(place);
        }
    }
}

/// Whether a session waits for another one, or is it.
fn leads(waits: &[(String, String)], session: &str, to: &str) -> bool {
    session == to || waits.iter().any(|it| it.0 == session && leads(waits, &it.1, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_session_comes_to_wait_for_itself() {
        let bills = Bills::default();
        assert!(bills.wait("a", "a").is_none());
        let first = bills.wait("a", "b");
        let second = bills.wait("b", "c");
        let again = bills.wait("a", "b");
        assert!(first.is_some() && second.is_some() && again.is_some());
        assert!(bills.wait("c", "a").is_none());
        assert!(bills.wait("c", "d").is_some());
        drop(first);
        assert!(bills.wait("c", "a").is_none());
        drop(again);
        assert!(bills.wait("c", "a").is_some());
    }

    #[test]
    fn the_turn_that_asks_pays_while_it_runs() {
        let bills = Bills::default();
        let top = bills.open("top", None);
        let below = bills.open("below", Some("top"));
        assert_eq!(below.bill.payer(), Some("top"));
        assert!(bills.is_waited_for("top", |it| it == "below"));
        assert!(!bills.is_waited_for("below", |it| it == "top"));
        drop(top);
        drop(below);
        assert!(bills.table().open.is_empty());
        // A tool may be called in a session in which no turn runs.
        assert_eq!(bills.open("x", Some("gone")).bill.payer(), Some("gone"));
    }
}
