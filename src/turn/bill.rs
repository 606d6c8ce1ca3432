//! Who pays for a turn. An agent that a turn asks has a turn of its own; what
//! that takes is billed to the turn that asked, and to the one above it, while it
//! runs: each counts it against its own limits. In the usage log it stands once,
//! for the session at the top.

use std::sync::{Arc, Mutex, PoisonError};

use crate::message::Usage;

/// The bill of one turn.
#[derive(Debug, Default)]
pub struct Bill {
    session: String,
    above: Option<Arc<Bill>>,
    /// What agents took that the turn asked, and that it has not counted yet.
    owed: Mutex<Usage>,
}

impl Bill {
    /// Of a turn in that session, which the turn `above` pays for.
    pub fn new(session: &str, above: Option<Arc<Self>>) -> Self {
        Self { session: session.to_owned(), above, owed: Mutex::default() }
    }

    /// The session of the turn.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The session at the top, if it is another one.
    pub fn payer(&self) -> Option<&str> {
        let above = self.above.as_deref()?;
        Some(above.payer().unwrap_or(&above.session))
    }

    /// Whether the turn is in that session, or is waited for by a turn in it.
    pub fn is_within(&self, session: &str) -> bool {
        self.session == session || self.above.as_ref().is_some_and(|it| it.is_within(session))
    }

    /// A call of this turn took that: every turn above owes it.
    pub fn charge(&self, usage: &Usage) {
        if let Some(above) = &self.above {
            add(&mut above.owed.lock().unwrap_or_else(PoisonError::into_inner), usage);
            above.charge(usage);
        }
    }

    /// What is owed since it was asked last.
    pub(super) fn take(&self) -> Usage {
        std::mem::take(&mut self.owed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a provider says of itself may be any number.
fn add(sum: &mut Usage, more: &Usage) {
    for (sum, more) in [
        (&mut sum.input, more.input),
        (&mut sum.output, more.output),
        (&mut sum.cache_read, more.cache_read),
        (&mut sum.cache_write, more.cache_write),
        (&mut sum.total_tokens, more.total_tokens),
    ] {
        *sum = sum.saturating_add(more);
    }
    sum.cost.total += more.cost.total.max(0.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Cost;

    fn usage(input: u64, total: f64) -> Usage {
        Usage { input, cost: Cost { total, ..Cost::default() }, ..Usage::default() }
    }

    #[test]
    fn every_turn_above_owes_what_a_call_took_and_the_top_pays() {
        let top = Arc::new(Bill::new("top", None));
        let middle = Arc::new(Bill::new("middle", Some(Arc::clone(&top))));
        let leaf = Bill::new("leaf", Some(Arc::clone(&middle)));
        leaf.charge(&usage(3, 0.5));
        leaf.charge(&usage(u64::MAX, 0.25));
        middle.charge(&usage(1, 0.0));
        assert_eq!(leaf.take(), Usage::default());
        assert_eq!(middle.take(), usage(u64::MAX, 0.75));
        assert_eq!(top.take(), usage(u64::MAX, 0.75));
        assert_eq!(top.take(), Usage::default());
        assert_eq!((top.payer(), leaf.payer()), (None, Some("top")));
        assert!(leaf.is_within("top") && leaf.is_within("leaf") && !top.is_within("leaf"));
    }
}
