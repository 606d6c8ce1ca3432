//! All plugins of a configuration at work: the registry of what they give, and
//! the hosts of those that are servers. Whoever calls a tool calls it here.

use std::path::PathBuf;
use std::sync::Arc;

use super::desk::Desk;
use super::host::{Host, Start};
use super::listeners::Hears;
use super::manifest::Way;
use super::run::{Asker, Output, RunCall};
use super::{Registry, Tool, ask, mcp, run};
use crate::error::{Error, Kind, Result};
use crate::secret::Redactor;

/// All plugins at work.
pub struct Plugins {
    registry: Registry,
    /// In the order of the configuration, in which they are started.
    pub(super) hosts: Vec<Host>,
    /// What each of these is asked for.
    pub(super) hears: Vec<Hears>,
}

impl Plugins {
    /// Those of the registry; none of the servers is started. What servers ask
    /// for goes to `desk`; with a `data_dir` they are told to begin their work
    /// in the background once they run.
    pub fn new(
        registry: Registry,
        desk: &Arc<dyn Desk>,
        redactor: &Redactor,
        data_dir: Option<PathBuf>,
    ) -> Self {
        let host = |start: &Start| {
            Host::new(start.clone(), Arc::clone(desk), redactor.clone(), data_dir.clone())
        };
        let hosts = registry.servers().map(host).collect();
        let hears = registry.servers().map(|it| Hears::of(&registry, it.plugin())).collect();
        Self { registry, hosts, hears }
    }

    /// What they give.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Starts all servers, and waits for none.
    pub fn start(&self) {
        for host in &self.hosts {
            if let Err(error) = host.start() {
                log::error!("start the plugin '{}': {error}", host.plugin());
            }
        }
    }

    /// Stops all servers, the last first; each may take a few seconds to end.
    pub fn stop(&self) {
        self.hosts.iter().rev().for_each(Host::stop);
    }

    /// Runs a call of a tool to its end, and keeps at most `cap` bytes of its
    /// output. Nothing here asks whether the agent may: the toolbox did.
    pub fn call(
        &self,
        tool: &Tool,
        call: &RunCall<'_>,
        asker: Asker<'_>,
        cap: usize,
    ) -> Result<Output> {
        match &tool.way {
            Way::Run(run) => run::call(tool, run, call, asker, cap),
            Way::Server => {
                let none = || format!("plugin '{}' has no server", tool.plugin);
                let host = self.host(tool).ok_or_else(|| Error::new(Kind::Internal, none()))?;
                let session = host.session(asker)?;
                match session.greeting.beige {
                    Some(_) => ask::call(tool, &session, call, asker, cap),
                    None => mcp::call(tool, &session, call, asker, cap),
                }
            }
        }
    }

    /// What the system prompt and `GET /api/agents` say of these tools
    /// ([`Registry::context_text`]). Of a plain MCP server it is what the
    /// server lists, once that is known; nobody is asked for it.
    pub fn context_text(&self, tools: &[String]) -> String {
        let commands = |tool: &Tool| self.host(tool)?.mcp().commands(&tool.name);
        self.registry.context_text(tools, &|tool| commands(tool).filter(|_| tool.is_whole()))
    }

    fn host(&self, tool: &Tool) -> Option<&Host> {
        self.hosts.iter().find(|it| it.plugin() == tool.plugin)
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        self.stop();
    }
}
