//! `spawn`: another agent does a task and answers.

use super::{Answer, Builtin, Call};

/// The plugin.
pub(super) struct Spawn;

impl Builtin for Spawn {
    fn call(&self, _: &Call<'_>) -> Answer {
        Answer::failed("not built")
    }
}
