//! One agent: its model, its workspace, its instructions, its limits, and the
//! length of its socket's path.

use std::collections::BTreeMap;
use std::iter;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::assemble::Assembly;
use crate::config::check::whole_number;
use crate::config::key_path::KeyPath;
use crate::config::node::Node;
use crate::config::{
    Agent, Config, Limits, ModelChoice, ModelRef, ThinkingLevel, by_name, paths, source,
};

/// Longest path of a Unix socket, in bytes.
const LONGEST_SOCKET: usize = 107;

/// The longest name of a socket in an agent's folder.
const SOCKET_NAME: &str = "cli-4194304.sock";

/// Time limits of a command unless the configuration says otherwise.
const EXEC_TIMEOUT: Duration = Duration::from_secs(900);
const HTTP_EXEC_TIMEOUT: Duration = Duration::from_secs(120);

impl Assembly<'_> {
    pub(super) fn agents(&mut self, agents: &Node<'_>) -> BTreeMap<String, Agent> {
        let entries = agents.entries().into_iter();
        by_name(entries.map(|(name, node)| (name.to_owned(), self.agent(name, &node))))
    }

    fn agent(&mut self, name: &str, node: &Node<'_>) -> Agent {
        self.check_socket_path(name, node);
        let fallbacks = node.get("fallbackModels").items();
        let configs = node.get("pluginConfigs").entries().into_iter();
        Agent {
            name: name.to_owned(),
            primary: choice(&node.get("model")),
            fallbacks: fallbacks.iter().map(choice).collect(),
            tools: node.get("tools").texts(),
            skills: node.get("skills").texts(),
            workspace: self.workspace(name, &node.get("workspaceDir")),
            plugin_configs: by_name(configs.map(|(name, it)| (name.to_owned(), it.value.clone()))),
            instructions: self.instructions(&node.get("instructions")),
            sandbox: self.sandbox(name, &node.get("sandbox")),
            limits: limits(&node.get("limits")),
        }
    }

    /// Each of its models is a known provider's, and is one for itself.
    pub(super) fn check_models(&mut self, agent: &Node<'_>, providers: &Node<'_>) {
        let models = iter::once(agent.get("model")).chain(agent.get("fallbackModels").items());
        let mut places = BTreeMap::new();
        for node in models {
            self.refers_to(&node.get("provider"), providers);
            let model = choice(&node).model;
            if model.provider.is_empty() || model.model.is_empty() {
                continue;
            }
            match places.get(&model.to_string()) {
                Some(first) => self.findings.warn(&node.path, listed_twice(&model, first)),
                None => drop(places.insert(model.to_string(), node.path.clone())),
            }
        }
    }

    fn check_socket_path(&mut self, name: &str, node: &Node<'_>) {
        let socket = self.home.agent_sockets(name).join(SOCKET_NAME);
        let length = socket.as_os_str().len();
        if length > LONGEST_SOCKET {
            let message = format!(
                "a socket of this agent would have a path of {length} bytes, and the system takes \
                 at most {LONGEST_SOCKET}; give the agent a shorter name, or set BEIGE_HOME to a \
                 shorter path than {}",
                self.home.root().display()
            );
            self.refuse(&node.path, message);
        }
    }

    fn workspace(&mut self, name: &str, node: &Node<'_>) -> PathBuf {
        let named = self.expanded(node).unwrap_or_else(|| self.home.workspace(name));
        let resolved = self.host_path(&named, name, &node.path);
        if let Some(it) = paths::in_the_way(&resolved) {
            self.refuse(&node.path, format!("{} is not a folder", it.display()));
        }
        resolved
    }

    fn instructions(&mut self, node: &Node<'_>) -> Option<String> {
        if let Some(text) = node.text() {
            return Some(text.to_owned());
        }
        let file = node.get("file");
        let named = self.expanded(&file)?;
        match source::read_value(&named) {
            Ok(text) => Some(text),
            Err(message) => {
                self.refuse(&file.path, format!("the file {} {message}", named.display()));
                None
            }
        }
    }

    /// Agents with one workspace see each other's files.
    pub(super) fn compare_workspaces(&mut self, agents: &Node<'_>, config: &Config) {
        let mut owners = BTreeMap::new();
        for agent in config.agents.values() {
            if let Some(other) = owners.insert(&agent.workspace, &agent.name) {
                let path = agents.get(&agent.name).path.key("workspaceDir");
                let message = format!(
                    "the agents `{other}` and `{}` have one workspace, {}",
                    agent.name,
                    agent.workspace.display()
                );
                self.findings.warn(&path, message);
            }
        }
    }
}

fn listed_twice(model: &ModelRef, first: &KeyPath) -> String {
    format!(
        "`{model}` is {first} already; what one model cannot answer, the same one does not either: \
         leave it out, or name another"
    )
}

fn choice(node: &Node<'_>) -> ModelChoice {
    let thinking = node.get("thinkingLevel");
    ModelChoice {
        model: ModelRef {
            provider: node.get("provider").text_or_empty(),
            model: node.get("model").text_or_empty(),
        },
        thinking: thinking.text().and_then(ThinkingLevel::named).unwrap_or_default(),
        compaction_threshold: count(&node.get("compactionThreshold")),
    }
}

/// A count of 1 or more; 0 says the same as nothing: no bound.
fn count(node: &Node<'_>) -> Option<u64> {
    whole_number(node.value).and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0)
}

fn limits(node: &Node<'_>) -> Limits {
    let given = node.get("execTimeoutSeconds").duration();
    let seconds = node.get("maxTurnSeconds").number();
    Limits {
        max_turns: node.get("maxTurns").whole(),
        // Any time but none is a millisecond at least.
        max_turn_time: seconds.filter(|it| *it > 0.0).and(node.get("maxTurnSeconds").duration()),
        max_turn_tokens: count(&node.get("maxTurnTokens")),
        max_turn_cost: node.get("maxTurnCostUsd").number().filter(|it| *it > 0.0),
        max_tool_output_bytes: node.get("maxToolOutputBytes").whole(),
        exec_timeout: given.unwrap_or(EXEC_TIMEOUT),
        http_exec_timeout: given.unwrap_or(HTTP_EXEC_TIMEOUT),
        inactivity: node.get("inactivitySeconds").duration().unwrap_or_default(),
    }
}
