//! Where the skills lie, and that no agent could change there, or where plugins
//! lie, what the gateway reads, copies and runs: a link that is put in at the
//! right moment would show it any file of the host, a program would run on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::assemble::Assembly;
use crate::config::key_path::KeyPath;
use crate::config::node::Node;
use crate::config::{Agent, Config, PluginSource, by_name, paths};

impl Assembly<'_> {
    pub(super) fn skills(&mut self, skills: &Node<'_>) -> BTreeMap<String, PathBuf> {
        let folder = |(name, node): (&str, Node<'_>)| {
            (name.to_owned(), self.expanded(&node.get("path")).unwrap_or_default())
        };
        by_name(skills.entries().into_iter().map(folder))
    }

    /// Refuses skills and plugins that an agent can write to, and those that hold
    /// the state folder, which no sandbox may see a copy of.
    pub(super) fn compare_shown(&mut self, root: &Node<'_>, config: &Config) {
        for (name, folder) in &config.skills {
            let path = root.get("skills").get(name).get("path").path;
            self.compare_folder("skill", folder, &path, config);
        }
        for plugin in &config.plugins {
            let node = root.get("plugins").get(&plugin.name);
            match &plugin.source {
                // It was not named, which is told elsewhere.
                PluginSource::Folder(folder) if folder.as_os_str().is_empty() => {}
                PluginSource::Folder(folder) => {
                    self.compare_folder("plugin", folder, &node.get("path").path, config);
                }
                PluginSource::Builtin(_) => {}
                PluginSource::Command(argv) => {
                    let path = node.get("command").path;
                    let files = argv.iter().map(Path::new).enumerate();
                    let files = files.filter(|(_, it)| it.is_absolute());
                    for (index, file) in files.filter(|(at, it)| *at == 0 || it.is_file()) {
                        self.compare_word(file, index, &path.index(index), config);
                    }
                }
            }
        }
    }

    /// A program that an agent can write to is refused. Of another file it is not
    /// known whether it is code.
    fn compare_word(&mut self, file: &Path, index: usize, path: &KeyPath, config: &Config) {
        let Ok(real) = paths::resolve(file) else { return };
        let Some((place, agent)) = shared(&real, config).or_else(|| shared(file, config)) else {
            return;
        };
        let what = format!(
            "{} lies in {}, which the agent `{agent}` can write to: what it writes there would \
             run on this host",
            file.display(),
            place.display()
        );
        match index {
            0 => self.refuse(path, what),
            _ => self.findings.warn(path, what + " if this is code"),
        }
    }

    fn compare_folder(&mut self, what: &str, folder: &Path, path: &KeyPath, config: &Config) {
        let Ok(real) = paths::resolve(folder) else {
            self.refuse(path, format!("the links of {} cannot be followed", folder.display()));
            return;
        };
        if self.state.starts_with(&real) {
            let state = self.state.display();
            self.refuse(
                path,
                format!("{} is or contains the state folder {state}", real.display()),
            );
        }
        if let Some((place, agent)) = shared(&real, config).or_else(|| shared(folder, config)) {
            let what = format!(
                "the {what} shares files with {}, which the agent `{agent}` can write to",
                place.display()
            );
            self.refuse(path, what);
        }
    }
}

/// What of a path an agent can write to, and which one.
fn shared<'a>(real: &Path, config: &'a Config) -> Option<(&'a Path, &'a str)> {
    config.agents.values().find_map(|agent| {
        let overlaps = |it: &&Path| real.starts_with(it) || it.starts_with(real);
        Some((writable(agent).find(overlaps)?, agent.name.as_str()))
    })
}

/// Folders of the host that the agent writes.
fn writable(agent: &Agent) -> impl Iterator<Item = &Path> {
    let mounts = agent.sandbox.mounts.iter().filter(|it| !it.read_only);
    mounts.map(|it| it.host.as_path()).chain([agent.workspace.as_path()])
}
