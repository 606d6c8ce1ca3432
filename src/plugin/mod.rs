//! Plugins: tools that are not core tools. [`Registry`] knows every plugin of
//! the configuration and the tools they give; it is made at load, where all
//! that is wrong is said at once. It grants nothing: whether an agent may call
//! a tool is policy's to say, and every call comes through the toolbox.
//!
//! This version knows four forms of plugin. `run`: no code, each call is a
//! process of its own on the gateway's host ([`run`]). `command`: a server that
//! is spoken to ([`host`]); one that does not know beige is a plain MCP server
//! ([`mcp`]), and so is every one by `url`, which runs elsewhere. `builtin`: a server like any other whose program is beige itself
//! ([`builtins`]). `entry`: a plugin of the TypeScript gateway, which a host makes
//! such a server ([`TypeScript`]). [`Plugins`] is all of them at work.

pub mod ask;
pub mod builtins;
pub mod channels;
pub mod connection;
pub mod desk;
pub mod hooks;
pub mod host;
pub mod install;
pub mod launch;
pub mod manifest;
pub mod mcp;
pub mod package;
pub mod rpc;
pub mod run;
pub mod serve;
pub mod settings;
pub mod skills;

pub(crate) mod child;
mod fields;
pub(crate) mod globs;
mod listeners;
mod needs;
mod plugins;
mod tree;
mod typescript;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

pub(crate) use fields::kind_of;
pub use plugins::Plugins;
pub use skills::Skills;

use crate::config::{self, Findings, Home, KeyPath};
use crate::config::{OnHookFailure, PluginSource};
use crate::error::{During, Kind, Result};
use crate::plugin::hooks::Hook;
use crate::plugin::host::Start;
use crate::plugin::launch::{Launch, TypeScript};
use crate::plugin::manifest::{CORE_TOOLS, Manifest, SkillEntry, Way};
use crate::plugin::settings::{Schema, merge};

/// Every plugin of the configuration, checked, and the tools they give.
#[derive(Clone, Debug)]
pub struct Registry {
    plugins: BTreeMap<String, Plugin>,
    /// Their names in the order of the configuration.
    order: Vec<String>,
    tools: BTreeMap<String, Tool>,
    warnings: Vec<String>,
    /// Plugins that are wrong, or not installed; of a registry that is used the
    /// latter.
    broken: BTreeSet<String>,
}

/// The agents of a configuration, by name.
type Agents = BTreeMap<String, config::Agent>;

/// A tool of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// The plugin's name, or `plugin.part`.
    pub name: String,
    /// The plugin that gives it.
    pub plugin: String,
    /// What it does, for the agent.
    pub description: String,
    /// How it is called, a line each, for the agent.
    pub commands: Vec<String>,
    /// Who does what a call asks for; its environment is that of manifest and
    /// configuration, the latter over the former.
    pub way: Way,
    /// After which a call is ended.
    pub timeout: Duration,
    /// The plugin's folder: where it runs.
    pub folder: PathBuf,
    /// The plugin's configuration, defaults filled in; an agent's own is
    /// still to be merged over it ([`Tool::config_for`]).
    pub config: Value,
}

#[derive(Clone, Debug)]
struct Plugin {
    folder: PathBuf,
    private: Vec<String>,
    schema: Option<Schema>,
    config: Value,
    /// `None` if it has no files that an agent could read.
    package: Option<PathBuf>,
    server: Option<Start>,
    hooks: Vec<Hook>,
    skills: Vec<SkillEntry>,
    on_hook_failure: OnHookFailure,
}

impl Registry {
    /// Reads and checks every plugin, and what agents say of plugins: each
    /// tool is registered, each key of `pluginConfigs` is a plugin and suits
    /// its `configSchema`. One error holds all that is wrong. Nothing is
    /// started and nothing is written.
    pub fn load(plugins: &[config::Plugin], agents: &Agents, home: &Home) -> Result<Self> {
        let mut findings = Findings::default();
        let registry = Self::examine(plugins, agents, home, &mut findings);
        findings.refuse()?;
        Ok(registry)
    }

    /// The same for who wants to know all: adds what is wrong or odd, and
    /// gives what is left without the plugins that are wrong. What hangs on
    /// one of these is not told again.
    pub fn examine(
        plugins: &[config::Plugin],
        agents: &Agents,
        home: &Home,
        findings: &mut Findings,
    ) -> Self {
        let registry = Self::read(plugins, home, findings);
        registry.look_at_agents(agents, findings);
        registry
    }

    fn read(plugins: &[config::Plugin], home: &Home, findings: &mut Findings) -> Self {
        let mut registry = Self {
            plugins: BTreeMap::new(),
            order: Vec::new(),
            tools: BTreeMap::new(),
            warnings: Vec::new(),
            broken: BTreeSet::new(),
        };
        for entry in plugins {
            if !registry.add(entry, home, findings) {
                registry.broken.insert(entry.name.clone());
            }
        }
        registry
    }

    /// Oddities that stop nothing, such as unknown keys in a `plugin.json`.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// All tools by name.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.values()
    }

    /// The tool of that name.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.get(name)
    }

    fn look_at_agents(&self, agents: &Agents, findings: &mut Findings) {
        for (name, agent) in agents {
            let at = KeyPath::from(["agents", name]);
            for (index, tool) in agent.tools.iter().enumerate() {
                if !self.tools.contains_key(tool) && !self.is_of_a_broken_plugin(tool) {
                    findings.error(&at.key("tools").index(index), self.no_such_tool(tool));
                }
            }
            for (plugin, over) in &agent.plugin_configs {
                let at = at.key("pluginConfigs").key(plugin);
                self.check_plugin_config(&at, plugin, over, findings);
            }
        }
    }

    fn is_of_a_broken_plugin(&self, tool: &str) -> bool {
        self.broken.contains(tool.split('.').next().unwrap_or_default())
    }

    /// What the system prompt and `GET /api/agents` say of these tools, in
    /// that order; empty without tools. Unregistered names are left out. Where
    /// `live` knows how a tool is called, that stands for what its manifest
    /// says.
    pub fn context_text(
        &self,
        tools: &[String],
        live: &dyn Fn(&Tool) -> Option<Vec<String>>,
    ) -> String {
        let known: Vec<&Tool> = tools.iter().filter_map(|it| self.tool(it)).collect();
        if known.is_empty() {
            return String::new();
        }
        let part = |tool: &Tool| match live(tool) {
            Some(commands) => tool.context_text(&commands),
            None => tool.context_text(&tool.commands),
        };
        let parts: Vec<String> = known.into_iter().map(part).collect();
        format!("## Available Tools\n\n{}", parts.join("\n"))
    }

    /// Folders to mount at `/tools/packages/NAME`, by plugin; they exist after
    /// [`Registry::refresh_packages`].
    pub fn packages(&self) -> BTreeMap<String, PathBuf> {
        let packages = self.plugins.iter();
        config::by_name(packages.filter_map(|(name, it)| Some((name.clone(), it.package.clone()?))))
    }

    /// Plugins that are servers, in the order of the configuration, and how
    /// each is started.
    pub fn servers(&self) -> impl Iterator<Item = &Start> {
        self.order.iter().filter_map(|it| self.plugins.get(it)?.server.as_ref())
    }

    /// The configuration of a plugin, defaults filled in, without what agents say
    /// of it.
    pub fn config_of(&self, plugin: &str) -> Option<&Value> {
        self.plugins.get(plugin).map(|it| &it.config)
    }

    /// The hooks that a plugin is always asked for, and what its failure means.
    pub fn hooks_of(&self, plugin: &str) -> (&[Hook], OnHookFailure) {
        let plugin = self.plugins.get(plugin);
        plugin.map_or((&[], OnHookFailure::Refuse), |it| (&it.hooks, it.on_hook_failure))
    }

    /// The skills that lie in the folders of plugins, each with its plugin.
    fn skills(&self) -> impl Iterator<Item = (&str, &SkillEntry)> {
        let of_plugin = |name: &'_ String| self.plugins.get_key_value(name);
        let plugins = self.order.iter().filter_map(of_plugin);
        plugins.flat_map(|(name, it)| it.skills.iter().map(|skill| (name.as_str(), skill)))
    }

    /// Brings every package up to date with its plugin's folder, and makes the
    /// folders of those that have none. Safe while sandboxes have it mounted,
    /// and beside another process that does the same.
    pub fn refresh_packages(&self) -> Result<()> {
        for (name, plugin) in &self.plugins {
            let Some(package) = &plugin.package else {
                let what = || format!("make the folder of plugin `{name}`");
                fs::create_dir_all(&plugin.folder).during(Kind::Internal, what())?;
                continue;
            };
            package::refresh(&plugin.folder, &plugin.private, package)
                .map_err(|it| it.within(format!("copy the files of plugin `{name}`")))?;
        }
        Ok(())
    }

    /// `false` for a plugin that is wrong.
    fn add(&mut self, entry: &config::Plugin, home: &Home, findings: &mut Findings) -> bool {
        let at = KeyPath::from(["plugins", &entry.name]);
        let path = match entry.source {
            PluginSource::Builtin(_) => at.key("builtin"),
            _ => at.key("path"),
        };
        if install::absent::folder(entry).is_some() {
            let name = &entry.name;
            let source = entry.installed_from.as_deref().unwrap_or_default();
            let begin = install::absent::NOT_INSTALLED;
            let what = format!(
                "{begin}: a gateway installs it from {source} when it starts, and \
                 `beige plugins update {name}` does now"
            );
            findings.warn(&path, what.as_str());
            self.warnings.push(format!("{path}: {what}"));
            return false;
        }
        let manifest = match &entry.source {
            PluginSource::Folder(folder) => manifest::read(folder),
            PluginSource::Command(argv) => {
                Ok(manifest::of_command(&entry.name, argv, &home.plugin_files(&entry.name)))
            }
            PluginSource::Builtin(builtin) => {
                manifest::of_builtin(&entry.name, builtin, &home.plugin_files(&entry.name))
            }
            PluginSource::Url(endpoint) => {
                let url = &endpoint.base_url;
                Ok(manifest::of_url(&entry.name, url, &home.plugin_files(&entry.name)))
            }
        };
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(wrong) => {
                wrong.into_iter().for_each(|it| findings.error(&path, it));
                return false;
            }
        };
        let mut wrong = Vec::new();
        if manifest.name != entry.name {
            wrong.push(format!(
                "plugin.json calls itself `{}`; the entry must have the same name",
                manifest.name
            ));
        }
        if self.plugins.contains_key(&entry.name) {
            wrong.push("there is another plugin of this name".into());
        }
        manifest::check_env("env", &entry.env, &mut wrong);
        let config = match &entry.config {
            Value::Null => manifest.default_config.clone(),
            it => merge(&manifest.default_config, it),
        };
        if let Some(schema) = &manifest.schema {
            schema.check("config", &config, &mut wrong);
        }
        if !wrong.is_empty() {
            wrong.into_iter().for_each(|it| findings.error(&at, it));
            return false;
        }
        for warning in &manifest.warnings {
            findings.warn(&path, warning.as_str());
            self.warnings.push(format!("{path}: {warning}"));
        }
        let has_files = matches!(entry.source, PluginSource::Folder(_));
        let package = has_files.then(|| home.package(&entry.name));
        self.keep(entry, manifest, config, package, home);
        true
    }

    fn keep(
        &mut self,
        entry: &config::Plugin,
        manifest: Manifest,
        config: Value,
        package: Option<PathBuf>,
        home: &Home,
    ) {
        for tool in manifest.tools {
            // Its name begins with the plugin's, so it can replace no other.
            let mut way = tool.way;
            if let Way::Run(run) = &mut way {
                run.env.extend(entry.env.clone());
            }
            let tool = Tool {
                name: tool.name,
                plugin: entry.name.clone(),
                description: tool.description,
                commands: tool.commands,
                way,
                timeout: tool.timeout,
                folder: manifest.folder.clone(),
                config: config.clone(),
            };
            self.tools.insert(tool.name.clone(), tool);
        }
        let server = manifest.server.map(|server| {
            let mut env = run::inherited();
            let given = server.env.into_iter().chain(entry.env.clone());
            env.extend(given.map(|(name, value)| (name, value.into())));
            env.push(("BEIGE_PLUGIN".to_owned(), entry.name.clone().into()));
            let (plugin, folder) = (entry.name.clone(), manifest.folder.clone());
            let typescript = server.entry.map(|it| TypeScript {
                entry: it,
                config: config.to_string(),
                place: home.plugin_files(&plugin),
                data: home.data(),
            });
            Start::Process(Launch { plugin, argv: server.argv, folder, env, typescript })
        });
        let server = match &entry.source {
            PluginSource::Url(endpoint) => {
                Some(Start::Remote { plugin: entry.name.clone(), endpoint: endpoint.clone() })
            }
            _ => server,
        };
        let plugin = Plugin {
            folder: manifest.folder,
            private: manifest.private,
            schema: manifest.schema,
            config,
            package,
            server,
            hooks: manifest.hooks,
            skills: manifest.skills,
            on_hook_failure: entry.on_hook_failure,
        };
        self.plugins.insert(entry.name.clone(), plugin);
        self.order.push(entry.name.clone());
    }

    fn no_such_tool(&self, tool: &str) -> String {
        if CORE_TOOLS.contains(&tool) {
            return format!("`{tool}` is a core tool, which every agent has; leave it out");
        }
        format!("`{tool}` is not a registered tool{}", registered(tool, self.tools.keys()))
    }

    fn check_plugin_config(&self, at: &KeyPath, name: &str, over: &Value, findings: &mut Findings) {
        let Some(plugin) = self.plugins.get(name) else {
            if !self.broken.contains(name) {
                let known = registered(name, self.plugins.keys());
                findings.error(at, format!("`{name}` is not a plugin{known}"));
            }
            return;
        };
        if let Some(schema) = &plugin.schema {
            let mut wrong = Vec::new();
            schema.check("config", &merge(&plugin.config, over), &mut wrong);
            wrong.into_iter().for_each(|it| findings.error(at, it));
        }
    }
}

impl Tool {
    /// The configuration that travels with a call: the agent's own
    /// `pluginConfigs` entry, if it has one, over the plugin's.
    pub fn config_for(&self, agents_own: Option<&Value>) -> Value {
        agents_own.map_or_else(|| self.config.clone(), |it| merge(&self.config, it))
    }

    /// Whether its name is the plugin's, and no part of it.
    fn is_whole(&self) -> bool {
        self.name == self.plugin
    }

    fn context_text(&self, commands: &[String]) -> String {
        let mut text = format!("### {}\n{}\n", self.name, self.description);
        if !commands.is_empty() {
            text.push_str("Commands:\n");
        }
        for command in commands {
            text.push_str(&format!("  {command}\n"));
        }
        text
    }
}

/// "; did you mean …? Registered: …", for what is not among the known names.
fn registered<'a>(word: &str, known: impl Iterator<Item = &'a String>) -> String {
    let mut known: Vec<&str> = known.map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    let nearest = fields::did_you_mean(word, known.iter().copied());
    if known.is_empty() {
        return "; none is registered".into();
    }
    format!("{nearest}; registered: {}", known.join(", "))
}

#[cfg(test)]
pub(crate) mod tests;
