//! One sandbox a workspace: before an agent gets one of a runtime, that which
//! another runtime made for it ends. It goes by what the state file names, so
//! it asks no runtime that the agent never had, and refuses where it cannot be
//! sure that the other has ended.

use super::bubblewrap;
use super::containers::{self, Engine};
use super::{Runtime, Spec};
use crate::config::Home;
use crate::error::Result;

/// Ends what another runtime than that made for the agent. The caller holds the
/// agent's lock exclusively.
pub(super) fn end_others(spec: &Spec, heir: Runtime) -> Result<()> {
    if heir != Runtime::Bubblewrap {
        bubblewrap::make_way(spec)?;
    }
    let file = Home::new(&spec.home).sandbox_state(&spec.agent);
    let others = Engine::all().into_iter().filter(|it| it.runtime() != heir);
    others.into_iter().try_for_each(|it| containers::make_way(it, spec, &file))
}
