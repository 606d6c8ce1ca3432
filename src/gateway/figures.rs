//! Everything that is counted of a gateway, in one look.

use super::busy::Lines;
use super::meter::Counted;
use super::view::Health;

/// What there is to watch.
#[derive(Clone, Debug)]
pub struct Figures {
    /// How the gateway is.
    pub health: Health,
    /// Sessions in which a turn runs, and what waits for them.
    pub lines: Lines,
    /// What was counted since the start.
    pub counted: Counted,
}
