//! Typed values out of a configuration that was walked along the schema table,
//! and the rules that no table row can hold: between fields, and about paths.
//! Goes on after a fault, so that all are reported; the caller throws the
//! result away if there was one.

mod agent;
mod gateway;
mod provider;
pub(crate) mod proxy;
mod sandbox;
mod skill;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::key_path::KeyPath;
use crate::config::nearest::nearest;
use crate::config::node::Node;
use crate::config::report::Findings;
use crate::config::{
    Config, Home, OnHookFailure, Plugin, PluginSource, Provider, Surroundings, by_name, paths,
};

/// One configuration being put together.
pub(crate) struct Assembly<'a> {
    home: &'a Home,
    /// The state folder with all links resolved.
    state: PathBuf,
    /// Relative paths begin here.
    folder: &'a Path,
    /// The folder that `~/` means.
    user_home: Option<&'a Path>,
    surroundings: &'a Surroundings<'a>,
    findings: &'a mut Findings,
}

impl<'a> Assembly<'a> {
    /// Nothing is put together yet.
    pub(crate) fn new(
        home: &'a Home,
        folder: &'a Path,
        user_home: Option<&'a Path>,
        surroundings: &'a Surroundings<'a>,
        findings: &'a mut Findings,
    ) -> Self {
        let state = paths::resolve(home.root()).unwrap_or_else(|_| home.root().to_owned());
        Self { home, state, folder, user_home, surroundings, findings }
    }

    /// The whole, but for its secrets. `order` is that of the plugins in the
    /// file, `used` the providers that an agent refers to.
    pub(crate) fn config(
        &mut self,
        file: PathBuf,
        root: &Node<'_>,
        order: &[&str],
        used: &BTreeSet<String>,
    ) -> Config {
        let providers = root.get("llm").get("providers");
        let agents = root.get("agents");
        let config = Config {
            file,
            home: self.home.clone(),
            providers: self.providers(&providers, used),
            plugins: self.plugins(&root.get("plugins"), order),
            skills: self.skills(&root.get("skills")),
            agents: self.agents(&agents),
            gateway: self.gateway(&root.get("gateway")),
            secrets: Vec::new(),
        };
        for (_, agent) in agents.entries() {
            self.check_models(&agent, &providers);
            for (name, settings) in agent.get("pluginConfigs").entries() {
                self.is_one_of(name, &settings.path, "plugin", &root.get("plugins"));
            }
        }
        self.compare_workspaces(&agents, &config);
        self.compare_log(&root.get("gateway").get("logFile").path, &config);
        self.compare_access(&agents, &config);
        self.compare_shown(root, &config);
        config
    }

    fn providers(
        &mut self,
        providers: &Node<'_>,
        used: &BTreeSet<String>,
    ) -> BTreeMap<String, Provider> {
        let entries = providers.entries().into_iter().filter(|(name, _)| used.contains(*name));
        by_name(entries.map(|(name, node)| (name.to_owned(), self.provider(name, &node))))
    }

    fn plugins(&mut self, plugins: &Node<'_>, order: &[&str]) -> Vec<Plugin> {
        let places: BTreeMap<&str, usize> =
            order.iter().enumerate().map(|(place, name)| (*name, place)).collect();
        let mut entries = plugins.entries();
        entries.retain(|(_, node)| node.get("enabled").is_true());
        entries.sort_by_key(|(name, _)| places.get(name));
        entries.into_iter().map(|(name, node)| self.plugin(name, &node)).collect()
    }

    fn plugin(&mut self, name: &str, node: &Node<'_>) -> Plugin {
        Plugin {
            name: name.to_owned(),
            source: self.plugin_source(node),
            env: self.environment(&node.get("env")),
            config: node.get("config").value.clone(),
            on_hook_failure: match node.get("onHookFailure").value.as_str() {
                Some("allow") => OnHookFailure::Allow,
                _ => OnHookFailure::Refuse,
            },
            installed_from: node.get("_source").text().map(str::to_owned),
        }
    }

    /// A folder, the command of a server, or the name of one inside the binary;
    /// one of them.
    fn plugin_source(&mut self, node: &Node<'_>) -> PluginSource {
        let [path, command, builtin] = ["path", "command", "builtin"].map(|it| node.get(it));
        let given: Vec<&Node<'_>> =
            [&path, &command, &builtin].into_iter().filter(|it| !it.value.is_null()).collect();
        match given[..] {
            [_] => {}
            [] => {
                let what = "needs `path`, a folder with plugin.json, `command`, a server, or \
                            `builtin`, the name of a plugin of beige's own";
                self.refuse(&node.path, what);
            }
            [_, second, ..] => self.refuse(
                &second.path,
                "a plugin has one of `path`, `command` and `builtin`; a `plugin.json` names its \
                 own command",
            ),
        }
        if !path.value.is_null() {
            return PluginSource::Folder(self.expanded(&path).unwrap_or_default());
        }
        if let Some(name) = builtin.value.as_str() {
            return PluginSource::Builtin(name.to_owned());
        }
        let argv = command.texts().into_iter().map(Into::into).collect();
        PluginSource::Command(self.server_command(argv, &command))
    }

    /// A program that is named by its path is resolved.
    fn server_command(&mut self, mut argv: Vec<OsString>, node: &Node<'_>) -> Vec<OsString> {
        let path = &node.path;
        if argv.iter().any(|it| it.as_encoded_bytes().contains(&0)) {
            self.refuse(path, "an argument cannot hold a NUL");
        }
        let Some(program) = argv.first_mut().filter(|it| !it.is_empty()) else {
            if node.value.is_array() {
                self.refuse(path, "must begin with a program");
            }
            return argv;
        };
        let text = program.to_string_lossy().into_owned();
        if text.contains('/')
            && let Some(expanded) = self.expanded_text(&text, &path.index(0))
        {
            *program = expanded.into();
        }
        argv
    }

    /// Variables of a process, none with a NUL, which would end it.
    fn environment(&mut self, node: &Node<'_>) -> BTreeMap<String, String> {
        let entries = node.entries();
        for (_, entry) in &entries {
            if entry.text().is_some_and(|it| it.contains('\0')) {
                self.refuse(&entry.path, "an environment variable cannot hold a NUL");
            }
        }
        by_name(entries.into_iter().map(|(name, it)| (name.to_owned(), it.text_or_empty())))
    }

    fn refers_to(&mut self, name: &Node<'_>, known: &Node<'_>) {
        if let Some(text) = name.text() {
            self.is_one_of(text, &name.path, "provider", known);
        }
    }

    fn is_one_of(&mut self, name: &str, path: &KeyPath, what: &str, known: &Node<'_>) {
        let entries = known.value.as_object();
        let is_known = entries.is_some_and(|it| it.contains_key(name));
        if is_known || name.is_empty() || !matches!(known.value, Value::Object(_)) {
            return;
        }
        let names: Vec<&str> = known.entries().into_iter().map(|(name, _)| name).collect();
        let hint = match nearest(name, names.iter().copied()) {
            Some(it) => format!("did you mean `{it}`?"),
            None if names.is_empty() => format!("{} is empty", known.path),
            None => format!("{} holds {}", known.path, names.join(", ")),
        };
        self.refuse(path, format!("there is no {what} `{name}`; {hint}"));
    }

    /// Reports a fault, unless one was found at this very place already.
    fn refuse(&mut self, path: &KeyPath, message: impl Into<String>) {
        if !self.findings.has_error(path) {
            self.findings.error(path, message);
        }
    }

    /// The absolute form of a path that is given.
    fn expanded(&mut self, node: &Node<'_>) -> Option<PathBuf> {
        self.expanded_text(node.text()?, &node.path)
    }

    fn expanded_text(&mut self, text: &str, path: &KeyPath) -> Option<PathBuf> {
        match paths::expand(text, self.folder, self.user_home) {
            Ok(expanded) => Some(expanded),
            Err(message) => {
                self.refuse(path, message);
                None
            }
        }
    }

    /// A path of the host that a sandbox of `agent` may get, links resolved.
    fn host_path(&mut self, named: &Path, agent: &str, path: &KeyPath) -> PathBuf {
        let resolved = match paths::resolve(named) {
            Ok(resolved) => resolved,
            Err(error) => {
                self.refuse(path, format!("{} cannot be resolved: {error}", named.display()));
                return named.to_owned();
            }
        };
        let own = self.state.join("agents").join(agent).join("workspace");
        if let Some(message) = paths::refuse_host(&resolved, &self.state, &own) {
            self.refuse(path, message);
        }
        resolved
    }
}
