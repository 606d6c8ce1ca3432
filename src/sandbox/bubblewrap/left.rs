//! What there is of bubblewrap's sandboxes in a home, whoever made them: to
//! list it, to end it, and to clear away that of agents that are gone. What a
//! state file names is looked at before it is believed.

use std::fs;

use super::{end, state_of};
use crate::config::Home;
use crate::error::Result;
use crate::sandbox::limits::{self, Left};
use crate::sandbox::lock::Lock;
use crate::sandbox::state::State;
use crate::sandbox::{Resident, Spec, instance};

/// A sandbox that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The agent it belongs to.
    pub agent: String,
    /// Its first process.
    pub pid: u32,
}

/// The sandboxes of a home that are there, by agent.
pub fn list(home: &Home) -> Vec<Listed> {
    let entries = fs::read_dir(home.data().join("sandboxes")).into_iter().flatten().flatten();
    let names = entries.filter_map(|it| it.file_name().into_string().ok());
    let agents = names.filter_map(|it| Some(it.strip_suffix(".json")?.to_owned()));
    let mut found: Vec<Listed> = agents
        .filter_map(|agent| Some(Listed { pid: resident(home, &agent)?.pid, agent }))
        .collect();
    found.sort_by(|one, other| one.agent.cmp(&other.agent));
    found
}

/// Whether an agent's sandbox is there.
pub fn lives(home: &Home, agent: &str) -> bool {
    resident(home, agent).is_some()
}

/// Whether what is known of an agent's sandbox is that it was bubblewrap's.
pub fn is_known(home: &Home, agent: &str) -> bool {
    state_of(home, agent).names_any()
}

/// The agents of a home of which there is anything on this host: a sandbox, or
/// what bounds one.
pub fn agents(home: &Home) -> Result<Vec<String>> {
    let mut agents: Vec<String> = list(home).into_iter().map(|it| it.agent).collect();
    agents.extend(limits::left_of(&instance(home)?).into_iter().map(|it| it.agent));
    agents.sort();
    agents.dedup();
    Ok(agents)
}

/// Ends and removes what there is of one agent of one home. The caller holds
/// the agent's lock exclusively.
pub fn remove_agent(home: &Home, agent: &str) -> Result<()> {
    end_named(home, agent)?;
    left(home, agent)?.iter().try_for_each(Left::remove)
}

/// Removes what there is of agents that are not among those that are to have
/// one, unless a call is in it.
pub fn reap(home: &Home, known_agents: &[String]) -> Result<()> {
    for it in list(home).into_iter().filter(|it| !known_agents.contains(&it.agent)) {
        match Lock::try_exclusive(&home.sandbox_lock(&it.agent))? {
            Some(_alone) => {
                log::info!("the bubblewrap sandbox of `{}` is of no use and ends", it.agent);
                remove_agent(home, &it.agent)?;
            }
            None => log::info!("the bubblewrap sandbox of `{}` is in use and stays", it.agent),
        }
    }
    let left = limits::left_of(&instance(home)?).into_iter();
    left.filter(|it| !known_agents.contains(&it.agent)).for_each(|it| it.remove_if_idle());
    Ok(())
}

/// Ends the sandbox that bubblewrap made for an agent which is to have another
/// runtime's: two on one workspace would not see each other. The caller holds
/// the agent's lock exclusively.
pub fn make_way(spec: &Spec) -> Result<()> {
    let is_ours = |it| end::is_ours(it, &spec.sockets, &spec.instance, &spec.agent);
    stop(&state_of(&Home::new(&spec.home), &spec.agent), is_ours)
}

/// Ends what a state file names, if that is ours, and forgets it. A file of
/// another runtime stays.
pub(super) fn stop(state: &State, is_ours: impl FnOnce(Resident) -> bool) -> Result<()> {
    let Some(known) = state.known() else { return Ok(()) };
    known.resident.filter(|it| is_ours(*it)).map_or(Ok(()), end::end)?;
    end::reap_ended();
    state.forget()
}

fn end_named(home: &Home, agent: &str) -> Result<()> {
    let instance = instance(home)?;
    let is_ours = |it| end::is_ours(it, &home.agent_sockets(agent), &instance, agent);
    stop(&state_of(home, agent), is_ours)
}

/// The first process of an agent's sandbox, if it lives and is ours.
fn resident(home: &Home, agent: &str) -> Option<Resident> {
    let resident = state_of(home, agent).resident()?;
    let instance = instance(home).ok()?;
    let is_ours = end::is_ours(resident, &home.agent_sockets(agent), &instance, agent);
    is_ours.then_some(resident)
}

fn left(home: &Home, agent: &str) -> Result<Vec<Left>> {
    let left = limits::left_of(&instance(home)?).into_iter();
    Ok(left.filter(|it| it.agent == agent).collect())
}
