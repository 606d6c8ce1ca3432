//! Where the skills lie, and that no agent could change there what the gateway
//! reads and copies: a link that is put in at the right moment would show it
//! any file of the host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::assemble::Assembly;
use crate::config::node::Node;
use crate::config::{Agent, Config, by_name, paths};

impl Assembly<'_> {
    pub(super) fn skills(&mut self, skills: &Node<'_>) -> BTreeMap<String, PathBuf> {
        let folder = |(name, node): (&str, Node<'_>)| {
            (name.to_owned(), self.expanded(&node.get("path")).unwrap_or_default())
        };
        by_name(skills.entries().into_iter().map(folder))
    }

    /// Refuses what an agent can write to, and what holds the state folder,
    /// which no sandbox may see a copy of.
    pub(super) fn compare_skills(&mut self, skills: &Node<'_>, config: &Config) {
        for (name, folder) in &config.skills {
            let path = skills.get(name).get("path").path;
            let Ok(real) = paths::resolve(folder) else {
                self.refuse(&path, format!("the links of {} cannot be followed", folder.display()));
                continue;
            };
            if self.state.starts_with(&real) {
                let state = self.state.display();
                let what = format!("{} is or contains the state folder {state}", real.display());
                self.refuse(&path, what);
            }
            for agent in config.agents.values() {
                let overlaps = |it: &&Path| real.starts_with(it) || it.starts_with(&real);
                let Some(place) = writable(agent).find(overlaps) else { continue };
                let what = format!(
                    "the skill shares files with {}, which the agent `{}` can write to",
                    place.display(),
                    agent.name
                );
                self.refuse(&path, what);
            }
        }
    }
}

/// Folders of the host that the agent writes.
fn writable(agent: &Agent) -> impl Iterator<Item = &Path> {
    let mounts = agent.sandbox.mounts.iter().filter(|it| !it.read_only);
    mounts.map(|it| it.host.as_path()).chain([agent.workspace.as_path()])
}
