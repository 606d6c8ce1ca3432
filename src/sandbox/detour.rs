//! Calls that had to be let in by a program of the runtime though the first
//! process of the sandbox lives: counted in a row, since each costs what the
//! link saves, and told once. A command can bring that about (it may lower the
//! limits of every process of its user), and nothing in there cures it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Resident;

/// After how many in a row it is no hiccup.
const MOST_IN_A_ROW: u32 = 3;

/// Characters of a reason, which may be the words of something in the sandbox.
const MOST_OF_A_REASON: usize = 200;

/// What is known of one agent's sandbox.
#[derive(Debug, Default)]
pub(super) struct Detours(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    in_a_row: u32,
    /// Why the last one was one.
    why: String,
    /// Whose calls were told of.
    told: Option<Resident>,
}

impl Detours {
    /// A call went in by the link.
    pub(super) fn none(&self) {
        self.known().in_a_row = 0;
    }

    /// One did not, past that first process; whether it is now to be told.
    pub(super) fn one(&self, resident: Resident, why: &str) -> bool {
        let mut known = self.known();
        known.in_a_row = known.in_a_row.saturating_add(1);
        known.why = why.chars().filter(|it| !it.is_control()).take(MOST_OF_A_REASON).collect();
        known.in_a_row >= MOST_IN_A_ROW && known.told.replace(resident) != Some(resident)
    }

    /// Why calls do not go in by the link, if that lasts.
    pub(super) fn why(&self) -> Option<String> {
        let known = self.known();
        (known.in_a_row >= MOST_IN_A_ROW).then(|| known.why.clone())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_once_of_each_first_process_and_is_over_with_the_first_that_goes_in() {
        let detours = Detours::default();
        let resident = |pid| Resident { pid, started: 1 };
        let one = |pid, why: &str| detours.one(resident(pid), why);
        assert!(!one(7, "a") && !one(7, "b"));
        detours.none();
        assert!(!one(7, "a") && !one(7, "b"));
        assert_eq!(detours.why(), None);
        assert!(one(7, "c") && !one(7, &("d\n".to_owned() + &"é".repeat(300))));
        assert_eq!(detours.why(), Some("d".to_owned() + &"é".repeat(199)));
        assert!(!one(7, "d"));
        assert_eq!(detours.why().as_deref(), Some("d"));
        detours.none();
        assert_eq!(detours.why(), None);
        assert!(!one(7, "a") && !one(7, "b") && !one(7, "c"), "it was told");
        assert!(one(8, "d"), "another one was not");
    }
}
