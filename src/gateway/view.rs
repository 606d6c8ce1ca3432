//! The gateway and its agents as clients see them: what the API answers, with
//! its names, and nothing that is secret.

use serde::Serialize;

use crate::config::Agent;
use crate::plugin::Registry;

/// How the gateway is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `ok`, or `draining`.
    pub status: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// Where it listens for TCP, as `address:port`.
    pub address: Option<String>,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Number of agents.
    pub agents: usize,
    /// Number of sandboxes that are up.
    pub sandboxes: usize,
    /// Number of sessions that have a key.
    pub sessions: usize,
    /// Number of calls that run now.
    pub running: usize,
    /// What does not work as it should, in sentences.
    pub degraded: Vec<String>,
}

/// An agent as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// The model that answers.
    pub model: ModelView,
    /// The models after it.
    pub fallback_models: Vec<ModelView>,
    /// Its plugin tools.
    pub tools: Vec<String>,
    /// Its skills.
    pub skills: Vec<String>,
    /// Its workspace on the host.
    pub workspace_dir: String,
    /// What the system prompt says about its tools.
    pub tool_context: String,
    /// What the system prompt says about its skills.
    pub skill_context: String,
}

/// A model as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelView {
    /// The provider's name.
    pub provider: String,
    /// The model's id there.
    pub model: String,
}

impl AgentView {
    /// An agent of the configuration.
    pub(super) fn of(agent: &Agent, registry: &Registry) -> Self {
        Self {
            name: agent.name.clone(),
            model: ModelView {
                provider: agent.model.provider.clone(),
                model: agent.model.model.clone(),
            },
            fallback_models: Vec::new(),
            tools: agent.tools.clone(),
            skills: Vec::new(),
            workspace_dir: agent.workspace.display().to_string(),
            tool_context: registry.context_text(&agent.tools),
            skill_context: String::new(),
        }
    }
}
