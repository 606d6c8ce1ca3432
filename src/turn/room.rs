//! How much of a conversation a model reads, as far as a turn has learned.

use crate::config::ModelRef;

/// What a turn has learned of the room that its model gives.
#[derive(Default)]
pub(super) struct Room {
    /// The model it was learned of.
    pub(super) model: Option<ModelRef>,
    /// So many tokens were too many.
    pub(super) too_long_at: Option<u64>,
    /// So many tokens are sent at most, once less than all is sent.
    pub(super) most_sent: Option<u64>,
    /// How often the call that is asked now was made shorter.
    pub(super) shrinks: u32,
    /// Below so many tokens no further compaction is tried.
    pub(super) rests_until: u64,
}

impl Room {
    /// From here on it is that model's.
    pub(super) fn be_of(&mut self, model: &ModelRef) {
        if self.model.as_ref() != Some(model) {
            *self = Self { model: Some(model.clone()), ..Self::default() };
        }
    }

    /// A call has been answered.
    pub(super) fn was_enough(&mut self) {
        self.shrinks = 0;
    }
}
