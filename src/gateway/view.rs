//! The gateway and its agents as clients see them: what the API answers, with
//! its names, and nothing that is secret.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use serde::Serialize;

use crate::config::{Agent, Config, ModelChoice, ModelRef, Provider, Reach, by_name};
use crate::plugin::{Plugins, Skills};
use crate::provider::{Cooling, Load};

/// How the gateway is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `ok`, or `draining`.
    pub status: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// Where it listens for TCP, as `address:port`.
    pub address: Option<String>,
    /// When it started, or started afresh, in RFC 3339.
    pub started_at: String,
    /// Seconds since then.
    pub uptime_seconds: u64,
    /// Number of agents.
    pub agents: usize,
    /// Number of agents whose sandbox can be entered at once: a container that
    /// is up, or bubblewrap, which makes one for each call.
    pub sandboxes: usize,
    /// Number of sessions that have a key.
    pub sessions: usize,
    /// Number of calls that run or wait now.
    pub running: usize,
    /// Number of prompts among them that wait for their session.
    pub waiting: usize,
    /// How much each provider has to do.
    pub providers: Vec<ProviderLoad>,
    /// The models of its agents that cool down.
    pub cooling: Vec<CoolingModel>,
    /// Why the configuration that was to be taken over last was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload_error: Option<String>,
    /// What does not work as it should, in sentences.
    pub degraded: Vec<String>,
}

/// How much a provider has to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderLoad {
    /// Its name.
    pub provider: String,
    /// Calls at a time; `None` is no limit.
    pub concurrency: Option<usize>,
    /// Calls that run.
    pub running: usize,
    /// Calls that wait for one of them to end.
    pub queued: usize,
    /// Threads.
    pub workers: usize,
    /// Calls that were begun since the start.
    pub calls: u64,
    /// How long they waited, all together, in seconds.
    pub wait_seconds: f64,
    /// How long one of them waited at most, in seconds.
    pub longest_wait_seconds: f64,
    /// How long the one that waits longest now has waited, in seconds; 0 if
    /// none does.
    pub oldest_wait_seconds: f64,
}

impl From<Load> for ProviderLoad {
    fn from(load: Load) -> Self {
        Self {
            provider: load.provider,
            concurrency: load.limit.map(NonZeroUsize::get),
            running: load.running,
            queued: load.queued,
            workers: load.workers,
            calls: load.calls,
            wait_seconds: load.waited.as_secs_f64(),
            longest_wait_seconds: load.longest_wait.as_secs_f64(),
            oldest_wait_seconds: load.oldest_wait.as_secs_f64(),
        }
    }
}

/// A model that is not asked for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CoolingModel {
    /// Its provider.
    pub provider: String,
    /// Its id there.
    pub model_id: String,
    /// For how many seconds more, from 1.
    pub seconds: u64,
    /// What its provider said, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CoolingModel {
    pub(super) fn of(model: &ModelRef, cooling: Cooling) -> Self {
        let ModelRef { provider, model: model_id } = model.clone();
        // One with a moment left is not told to have none.
        let seconds = cooling.rest.as_millis().div_ceil(1_000);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        Self { provider, model_id, seconds, reason: cooling.why }
    }
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
#[serde(rename_all = "camelCase")]
pub struct ModelView {
    /// The provider's name.
    pub provider: String,
    /// The model's id there.
    pub model: String,
    /// How hard it is told to think.
    pub thinking_level: &'static str,
}

/// The configuration as clients see it: no keys, no headers, no proxies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConfigView {
    agents: BTreeMap<String, ConfiguredAgent>,
    llm: LlmView,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfiguredAgent {
    model: ModelView,
    fallback_models: Vec<ModelView>,
    tools: Vec<String>,
    skills: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct LlmView {
    providers: BTreeMap<String, ProviderView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProviderView {
    #[serde(skip_serializing_if = "Option::is_none")]
    base_url: Option<String>,
    api: &'static str,
}

impl ConfigView {
    /// What of a configuration is no secret.
    pub(super) fn of(config: &Config) -> Self {
        let agent = |it: &Agent| ConfiguredAgent {
            model: ModelView::of(&it.primary),
            fallback_models: it.fallbacks.iter().map(ModelView::of).collect(),
            tools: it.tools.clone(),
            skills: it.skills.clone(),
        };
        let provider = |it: &Provider| ProviderView {
            base_url: base_url(it).map(str::to_owned),
            api: it.api.name(),
        };
        let providers = config.providers.iter().map(|(name, it)| (name.clone(), provider(it)));
        Self {
            agents: by_name(config.agents.iter().map(|(name, it)| (name.clone(), agent(it)))),
            llm: LlmView { providers: by_name(providers) },
        }
    }
}

fn base_url(provider: &Provider) -> Option<&str> {
    match &provider.reach {
        Reach::Endpoint(endpoint) => Some(&endpoint.base_url),
        Reach::Cassette(_) => None,
    }
}

impl ModelView {
    fn of(choice: &ModelChoice) -> Self {
        let ModelRef { provider, model } = choice.model.clone();
        Self { provider, model, thinking_level: choice.thinking.name() }
    }
}

impl AgentView {
    /// An agent of the configuration.
    pub(super) fn of(agent: &Agent, plugins: &Plugins, skills: &Skills) -> Self {
        Self {
            name: agent.name.clone(),
            model: ModelView::of(&agent.primary),
            fallback_models: agent.fallbacks.iter().map(ModelView::of).collect(),
            tools: agent.tools.clone(),
            skills: skills.of(agent),
            workspace_dir: agent.workspace.display().to_string(),
            tool_context: plugins.context_text(&agent.tools),
            skill_context: skills.context_text(&skills.of(agent)),
        }
    }
}
