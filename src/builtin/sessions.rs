//! `sessions`: an agent's own earlier conversations, never another's.

use super::{Answer, Builtin, Call};

/// The plugin.
pub(super) struct Sessions;

impl Builtin for Sessions {
    fn call(&self, _: &Call<'_>) -> Answer {
        Answer::failed("not built")
    }
}
