//! `provides`: what a plugin promises. It must be what it gives, as far as that
//! can be seen before it runs, and something that this version knows.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::{is_name, is_reserved};
use crate::plugin::fields::{Fields, Findings, did_you_mean};
use crate::plugin::hooks::Hook;

/// A skill that lies in a plugin's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillEntry {
    /// Its name.
    pub name: String,
    /// Where it lies, from the plugin's folder on; names only.
    pub path: PathBuf,
    /// What it is for, where its own files need not say so.
    pub description: Option<String>,
}

/// What `provides` promises must be what `tools` gives; a server is held to it
/// once it runs. Gives the hooks and skills.
pub(super) fn check_provides(
    fields: &Fields<'_>,
    is_server: bool,
    findings: &mut Findings,
) -> (Vec<Hook>, Vec<SkillEntry>) {
    let provides = fields.get("provides").and_then(|it| Fields::of("provides", it, findings));
    let Some(provides) = provides else { return (Vec::new(), Vec::new()) };
    provides.warn_of_unknown(&["tools", "channel", "hooks", "skills"], findings);
    check_channel(&provides, is_server, findings);
    if !is_server {
        check_named_tools(fields, &provides, findings);
    }
    (hooks(&provides, is_server, findings), skills(&provides, findings))
}

/// The skills in the plugin's folder: each by its name alone, which is that of
/// a folder in `skills`, or with its path.
fn skills(provides: &Fields<'_>, findings: &mut Findings) -> Vec<SkillEntry> {
    let mut skills: Vec<SkillEntry> = Vec::new();
    for (index, value) in provides.list("skills", findings).into_iter().flatten().enumerate() {
        let at = format!("provides.skills[{index}]");
        let skill = match value.as_str() {
            Some(name) => Some(SkillEntry {
                name: name.to_owned(),
                path: Path::new("skills").join(name),
                description: None,
            }),
            None => Fields::of(&at, value, findings).and_then(|it| skill(&it, findings)),
        };
        let Some(skill) = skill else { continue };
        let is_inside = skill.path.components().all(|it| matches!(it, Component::Normal(_)));
        if !is_name(&skill.name) || is_reserved(&skill.name) {
            let what = format!("{at}: {:?} is no name of a skill", skill.name);
            findings.errors.push(what);
        } else if !is_inside || skill.path.as_os_str().is_empty() {
            findings.errors.push(format!("{at}: its path leads out of the plugin's folder"));
        } else if skills.iter().any(|it| it.name == skill.name) {
            findings.errors.push(format!("{at}: `{}` is there twice", skill.name));
        } else {
            skills.push(skill);
        }
    }
    skills
}

fn skill(fields: &Fields<'_>, findings: &mut Findings) -> Option<SkillEntry> {
    fields.warn_of_unknown(&["name", "path", "description"], findings);
    let (name, path) = (fields.text("name", findings), fields.text("path", findings));
    if name.is_none() {
        findings.errors.push(format!("{}: is required", fields.path("name")));
    }
    let name = name?;
    let path = path.map_or_else(|| Path::new("skills").join(&name), PathBuf::from);
    let path = path.strip_prefix(".").map(Path::to_owned).unwrap_or(path);
    Some(SkillEntry { name, path, description: fields.text("description", findings) })
}

/// Only a server can be a channel: it says in its greeting what it is able to.
fn check_channel(provides: &Fields<'_>, is_server: bool, findings: &mut Findings) {
    let wrong = match provides.get("channel") {
        None | Some(Value::Bool(false)) => return,
        Some(Value::Bool(true)) if is_server => return,
        Some(Value::Bool(true)) => "only a server can be a channel: it needs `command` or `entry`",
        Some(_) => "must be true or false",
    };
    findings.errors.push(format!("{}: {wrong}", provides.path("channel")));
}

fn check_named_tools(fields: &Fields<'_>, provides: &Fields<'_>, findings: &mut Findings) {
    let Some(promised) = provides.texts("tools", findings) else { return };
    let given = named_tools(fields);
    for name in promised.iter().filter(|it| !given.contains(&it.as_str())) {
        findings.errors.push(format!("provides.tools: `{name}` is not among `tools`"));
    }
    for name in given.iter().filter(|it| !promised.iter().any(|promised| promised == *it)) {
        findings.errors.push(format!("provides.tools: `{name}` of `tools` is missing"));
    }
}

/// Whether there are skills in it, which need no code beside them.
pub(super) fn gives_skills(fields: &Fields<'_>) -> bool {
    let skills = fields.get("provides").and_then(|it| it["skills"].as_array());
    skills.is_some_and(|it| !it.is_empty())
}

/// The hooks that a server is to be asked for.
fn hooks(provides: &Fields<'_>, is_server: bool, findings: &mut Findings) -> Vec<Hook> {
    let names = provides.texts("hooks", findings).unwrap_or_default();
    let at = provides.path("hooks");
    if !is_server && !names.is_empty() {
        let what =
            format!("{at}: only a server can be asked for hooks: it needs `command` or `entry`");
        findings.errors.push(what);
    }
    let mut hooks = Vec::new();
    for name in &names {
        match Hook::named(name) {
            Some(hook) if hooks.contains(&hook) => {}
            Some(hook) => hooks.push(hook),
            None => {
                let known = Hook::ALL.map(Hook::name);
                let nearest = did_you_mean(name, known.into_iter());
                let known = known.join(", ");
                let what = format!("{at}: there is no hook {name:?}{nearest}; there are {known}");
                findings.errors.push(what);
            }
        }
    }
    hooks
}

/// Names of all entries of `tools`, also of those that are wrong: each fault
/// is told once, where it is.
fn named_tools<'a>(fields: &Fields<'a>) -> Vec<&'a str> {
    let tools = fields.get("tools").and_then(Value::as_array).into_iter().flatten();
    tools.filter_map(|it| it.get("name")?.as_str()).collect()
}

/// What `provides.tools` says; faults in it are told where it is checked.
pub(super) fn promised(fields: &Fields<'_>) -> Option<Vec<String>> {
    let names = fields.get("provides")?.get("tools")?.as_array()?.iter();
    Some(names.filter_map(|it| it.as_str().map(str::to_owned)).collect())
}
