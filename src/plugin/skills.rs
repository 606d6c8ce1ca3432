//! Skills: folders of knowledge that an agent is told of, and reads in its
//! sandbox at `/skills/NAME`. [`Skills`] knows every skill of the configuration
//! and of the plugins' manifests; it is made at load, where all that is wrong is
//! said at once. Nothing of a skill runs on the host, and what an agent sees is
//! a filtered copy.

mod definition;
mod front_matter;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::config::{Agent, Findings, Home, KeyPath, by_name};
use crate::error::Result;
use crate::plugin::manifest::{CORE_TOOLS, SkillEntry};
use crate::plugin::{Agents, Registry, package, registered};
use definition::{Definition, Guide};

/// Every skill of the configuration, checked.
#[derive(Clone, Debug)]
pub struct Skills {
    skills: BTreeMap<String, Skill>,
    warnings: Vec<String>,
    /// Skills that are wrong; empty where skills are used.
    broken: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Skill {
    definition: Definition,
    /// Where its copy lies.
    copy: PathBuf,
    /// The plugin that it is of, and of whose package it is a copy.
    of: Option<(String, PathBuf)>,
}

impl Skills {
    /// Reads and checks every skill, and what agents say of skills: each is
    /// there, and the agent has what it requires. One error holds all that is
    /// wrong. Nothing is written.
    pub fn load(
        folders: &BTreeMap<String, PathBuf>,
        agents: &Agents,
        home: &Home,
        registry: &Registry,
    ) -> Result<Self> {
        let mut findings = Findings::default();
        let skills = Self::examine(folders, agents, home, registry, &mut findings);
        findings.refuse()?;
        Ok(skills)
    }

    /// The same for who wants to know all: adds what is wrong or odd, and
    /// gives what is left without the skills that are wrong. What hangs on one
    /// of these is not told again.
    pub fn examine(
        folders: &BTreeMap<String, PathBuf>,
        agents: &Agents,
        home: &Home,
        registry: &Registry,
        findings: &mut Findings,
    ) -> Self {
        let mut skills =
            Self { skills: BTreeMap::new(), warnings: Vec::new(), broken: BTreeSet::new() };
        for (name, folder) in folders {
            skills.add(name, folder.clone(), home, findings);
        }
        for (plugin, skill) in registry.skills() {
            skills.add_of_plugin(plugin, skill, home, registry, findings);
        }
        for agent in agents.values() {
            skills.look_at(agent, registry, findings);
        }
        skills
    }

    /// The names of all skills of an agent: its own, and those of the plugins
    /// whose tools it has.
    pub fn of(&self, agent: &Agent) -> Vec<String> {
        let mut names = agent.skills.clone();
        let has = |plugin: &str| agent.tools.iter().any(|it| it.split('.').next() == Some(plugin));
        let of_plugins = self.skills.iter().filter(|(name, it)| {
            it.of.as_ref().is_some_and(|(plugin, _)| has(plugin)) && !agent.skills.contains(name)
        });
        names.extend(of_plugins.map(|(name, _)| name.clone()));
        names
    }

    /// Oddities that stop nothing, such as unknown keys in a `skill.json`.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What the system prompt and `GET /api/agents` say of these skills, in
    /// that order; empty without skills. Unknown names are left out.
    pub fn context_text(&self, names: &[String]) -> String {
        let known = names.iter().filter_map(|it| self.skills.get(it));
        let parts: Vec<String> = known.map(|it| it.definition.context_text()).collect();
        if parts.is_empty() {
            return String::new();
        }
        format!("{INTRODUCTION}\n\n{}", parts.join("\n"))
    }

    /// Folders to mount at `/skills/NAME` for an agent with these skills; they
    /// exist after [`Skills::refresh_copies`].
    pub fn copies(&self, names: &[String]) -> BTreeMap<String, PathBuf> {
        let known = names.iter().filter_map(|it| Some((it.clone(), self.skills.get(it)?)));
        by_name(known.map(|(name, it)| (name, it.copy.clone())))
    }

    /// Brings every copy up to date with its skill's folder. Safe while
    /// sandboxes have it mounted, and beside another process that does the
    /// same.
    pub fn refresh_copies(&self) -> Result<()> {
        for (name, skill) in &self.skills {
            let folder = skill.of.as_ref().map_or(&skill.definition.folder, |it| &it.1);
            package::refresh(folder, &[], &skill.copy)
                .map_err(|it| it.within(format!("copy the files of skill `{name}`")))?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, folder: PathBuf, home: &Home, findings: &mut Findings) {
        let path = KeyPath::from(["skills", name, "path"]);
        self.keep(name, definition::read(&folder, name), &path, None, home, findings);
    }

    /// One of a plugin: a copy of what the plugin's package shows of it, from
    /// which all that is private is left out already.
    fn add_of_plugin(
        &mut self,
        plugin: &str,
        skill: &SkillEntry,
        home: &Home,
        registry: &Registry,
        findings: &mut Findings,
    ) {
        let path = KeyPath::from(["plugins", plugin, "path"]);
        let Some(of) = registry.plugins.get(plugin) else { return };
        let SkillEntry { name, path: below, description } = skill;
        if self.skills.contains_key(name) || self.broken.contains(name) {
            findings.error(&path, format!("its skill `{name}` has the name of another one"));
            return;
        }
        if below.ancestors().any(|it| package::is_private(it, &of.private)) {
            findings.error(&path, format!("its skill `{name}` lies where `private` hides it"));
            return;
        }
        let folder = of.folder.join(below);
        // A copy of a plugin has no links out of it, so the skill would be missing.
        if folder.canonicalize().is_ok_and(|it| !it.starts_with(&of.folder)) {
            findings.error(&path, format!("its skill `{name}` leads out of the plugin's folder"));
            return;
        }
        let found = definition::read_or(&folder, name, description.as_deref());
        let found = found
            .map_err(|wrong| wrong.iter().map(|it| format!("its skill `{name}`: {it}")).collect());
        let shown = home.package(plugin).join(below);
        self.keep(name, found, &path, Some((plugin.to_owned(), shown)), home, findings);
    }

    fn keep(
        &mut self,
        name: &str,
        found: Result<Definition, Vec<String>>,
        path: &KeyPath,
        of: Option<(String, PathBuf)>,
        home: &Home,
        findings: &mut Findings,
    ) {
        let definition = match found {
            Ok(definition) => definition,
            Err(wrong) => {
                wrong.into_iter().for_each(|it| findings.error(path, it));
                self.broken.insert(name.to_owned());
                return;
            }
        };
        for warning in &definition.warnings {
            findings.warn(path, warning.as_str());
            self.warnings.push(format!("{path}: {warning}"));
        }
        self.skills.insert(name.to_owned(), Skill { definition, copy: home.skill(name), of });
    }

    fn look_at(&self, agent: &Agent, registry: &Registry, findings: &mut Findings) {
        let at = KeyPath::from(["agents", &agent.name, "skills"]);
        let all = self.of(agent);
        for name in &all[agent.skills.len()..] {
            if let Some(skill) = self.skills.get(name) {
                self.look_at_needs(&at, &skill.definition, agent, registry, findings);
            }
        }
        for (index, name) in agent.skills.iter().enumerate() {
            let at = at.index(index);
            if agent.skills[..index].contains(name) {
                findings.error(&at, format!("`{name}` is given twice; leave one out"));
            }
            match self.skills.get(name) {
                Some(skill) => {
                    self.look_at_needs(&at, &skill.definition, agent, registry, findings)
                }
                None if self.broken.contains(name) => {}
                None => {
                    let known = registered(name, self.skills.keys());
                    let what = format!("`{name}` is not a registered skill{known}");
                    // It may be of a plugin that is not installed yet.
                    match registry.broken.is_empty() {
                        true => findings.error(&at, what),
                        false => findings.warn(&at, what),
                    }
                }
            }
        }
    }

    fn look_at_needs(
        &self,
        at: &KeyPath,
        skill: &Definition,
        agent: &Agent,
        registry: &Registry,
        findings: &mut Findings,
    ) {
        let Definition { name, needs, .. } = skill;
        for tool in &needs.tools {
            if !CORE_TOOLS.contains(&tool.as_str()) && !agent.tools.contains(tool) {
                let known = registered(tool, registry.tools().map(|it| &it.name));
                let what = format!("`{name}` requires the tool `{tool}`, which is not among");
                findings.error(at, format!("{what} this agent's `tools`{known}"));
            }
        }
        let all = self.of(agent);
        for other in needs.skills.iter().filter(|it| !all.contains(it)) {
            let known = registered(other, self.skills.keys());
            let what = format!("`{name}` requires the skill `{other}`, which is not among");
            findings.error(at, format!("{what} this agent's `skills`{known}"));
        }
    }
}

/// What stands before the skills.
const INTRODUCTION: &str = "## Skills\n\n\
    A skill is knowledge for one kind of work. Its files are in /skills/NAME, which you can read \
    and not change.";

impl Definition {
    fn context_text(&self) -> String {
        let Self { name, description, guide, .. } = self;
        let head = format!("### {name}\n{description}\n");
        match guide {
            Guide::InFile => {
                format!("{head}Read /skills/{name}/SKILL.md before you do such work.\n")
            }
            Guide::Told(text) if text.is_empty() => format!("{head}See /skills/{name}.\n"),
            Guide::Told(text) => format!("{head}\n{text}\n"),
        }
    }
}

#[cfg(test)]
mod tests;
