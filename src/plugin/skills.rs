//! Skills: folders of knowledge that an agent is told of, and reads in its
//! sandbox at `/skills/NAME`. [`Skills`] knows every skill of the configuration;
//! it is made at load, where all that is wrong is said at once. Nothing of a
//! skill runs on the host, and what an agent sees is a filtered copy.

mod definition;
mod front_matter;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::config::{Agent, Findings, Home, KeyPath, by_name};
use crate::error::Result;
use crate::plugin::manifest::CORE_TOOLS;
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
        for agent in agents.values() {
            skills.look_at(agent, registry, findings);
        }
        skills
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
            package::refresh(&skill.definition.folder, &[], &skill.copy)
                .map_err(|it| it.within(format!("copy the files of skill `{name}`")))?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, folder: PathBuf, home: &Home, findings: &mut Findings) {
        let path = KeyPath::from(["skills", name, "path"]);
        let definition = match definition::read(&folder, name) {
            Ok(definition) => definition,
            Err(wrong) => {
                wrong.into_iter().for_each(|it| findings.error(&path, it));
                self.broken.insert(name.to_owned());
                return;
            }
        };
        for warning in &definition.warnings {
            findings.warn(&path, warning.as_str());
            self.warnings.push(format!("{path}: {warning}"));
        }
        self.skills.insert(name.to_owned(), Skill { definition, copy: home.skill(name) });
    }

    fn look_at(&self, agent: &Agent, registry: &Registry, findings: &mut Findings) {
        let at = KeyPath::from(["agents", &agent.name, "skills"]);
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
                    findings.error(&at, format!("`{name}` is not a registered skill{known}"));
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
        for other in needs.skills.iter().filter(|it| !agent.skills.contains(it)) {
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
