//! What one skill says of itself, in either of two forms: a `skill.json`, whose
//! context file is told to the agent whole; or a `SKILL.md` that begins with
//! front matter, of which the agent is told only that it is there. Reads nothing
//! that a link leads to outside of the skill's folder, and nothing but bounded,
//! regular files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::read_bounded;
use crate::plugin::fields::{Fields, Findings};
use crate::plugin::skills::front_matter::FrontMatter;

/// Largest file that is read of a skill, in bytes.
const LARGEST_FILE: usize = 1024 * 1024;

/// Most of a context file that is told, in bytes.
const LARGEST_TEXT: usize = 64 * 1024;

/// Longest description, in characters, as in the convention for `SKILL.md`.
const LONGEST_DESCRIPTION: usize = 1024;

/// What a context file is called unless `contextFile` names another; the first
/// that is there counts.
const CONTEXT_FILES: [&str; 2] = ["README.md", SKILL_MD];

const SKILL_JSON: &str = "skill.json";
const SKILL_MD: &str = "SKILL.md";

/// A sound skill.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Definition {
    /// Its name, which is that of its entry.
    pub(super) name: String,
    /// Its folder, links resolved.
    pub(super) folder: PathBuf,
    /// What it is for, on one line.
    pub(super) description: String,
    /// How the agent gets to know the rest.
    pub(super) guide: Guide,
    /// What an agent with this skill must have.
    pub(super) needs: Needs,
    /// Oddities that stop nothing.
    pub(super) warnings: Vec<String>,
}

/// How an agent gets to know what a skill is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Guide {
    /// By this text; empty if there is no context file.
    Told(String),
    /// It reads `SKILL.md` when it needs it.
    InFile,
}

/// `requires`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Needs {
    pub(super) tools: Vec<String>,
    pub(super) skills: Vec<String>,
}

/// Reads and checks the skill of a folder, which must have that name; the error
/// is all that is wrong with it, a line each.
pub(super) fn read(folder: &Path, name: &str) -> Result<Definition, Vec<String>> {
    let shown = folder.display();
    let folder = folder.canonicalize().map_err(|it| vec![format!("read {shown}: {it}")])?;
    let has = |file: &str| fs::symlink_metadata(folder.join(file)).is_ok();
    let mut findings = Findings::default();
    let (file, found) = match (has(SKILL_JSON), has(SKILL_MD)) {
        (true, _) => (SKILL_JSON, of_json(&folder, &mut findings)),
        (false, true) => (SKILL_MD, of_front_matter(&folder, &mut findings)),
        (false, false) => {
            let what = format!("{shown} holds neither {SKILL_JSON} nor {SKILL_MD}");
            return Err(vec![what + ", one of which is needed"]);
        }
    };
    if let Some(other) = found.as_ref().filter(|it| it.name != name) {
        let what = format!("name: it calls itself `{}`; the entry must have that name", other.name);
        findings.errors.push(what);
    }
    let in_file = |it: Vec<String>| it.into_iter().map(|it| format!("{file}: {it}")).collect();
    match found {
        Some(it) if findings.errors.is_empty() => {
            Ok(Definition { warnings: in_file(findings.warnings), ..it })
        }
        _ => Err(in_file(findings.errors)),
    }
}

/// The same where a plugin may describe the skill, so that it needs neither
/// file.
pub(super) fn read_or(
    folder: &Path,
    name: &str,
    description: Option<&str>,
) -> Result<Definition, Vec<String>> {
    let has = |file: &str| fs::symlink_metadata(folder.join(file)).is_ok();
    let has_matter = || read_inside(folder, SKILL_MD).is_ok_and(|it| it.starts_with("---"));
    let Some(description) = description.filter(|_| !has(SKILL_JSON) && !has_matter()) else {
        return read(folder, name);
    };
    let folder = folder.canonicalize().map_err(|it| vec![format!("{}: {it}", folder.display())])?;
    let mut findings = Findings::default();
    let definition = Definition {
        name: name.to_owned(),
        description: one_line(description, &mut findings),
        guide: Guide::Told(told(&folder, None, &mut findings)),
        needs: Needs::default(),
        warnings: Vec::new(),
        folder,
    };
    match findings.errors.is_empty() {
        true => Ok(Definition { warnings: findings.warnings, ..definition }),
        false => Err(findings.errors),
    }
}

/// The form with a `skill.json`.
fn of_json(folder: &Path, findings: &mut Findings) -> Option<Definition> {
    let text = read_inside(folder, SKILL_JSON);
    let value = text.and_then(|it| {
        serde_json::from_str::<Value>(&it).map_err(|it| format!("is not JSON: {it}"))
    });
    match value {
        Ok(value) => parse(folder, &value, findings),
        Err(wrong) => {
            findings.errors.push(wrong);
            None
        }
    }
}

fn parse(folder: &Path, value: &Value, findings: &mut Findings) -> Option<Definition> {
    let fields = Fields::of("", value, findings)?;
    let known = ["name", "description", "contextFile", "requires", "version", "$schema"];
    fields.warn_of_unknown(&known, findings);
    let name = fields.text("name", findings);
    let description = fields.text("description", findings);
    for (key, text) in [("name", &name), ("description", &description)] {
        if fields.get(key).is_none() || text.as_ref().is_some_and(|it| it.trim().is_empty()) {
            findings.errors.push(format!("{key}: is required"));
        }
    }
    let needs = needs(&fields, findings);
    let named = fields.text("contextFile", findings);
    let text = told(folder, named.as_deref(), findings);
    Some(Definition {
        name: name?,
        folder: folder.to_owned(),
        description: one_line(&description?, findings),
        guide: Guide::Told(text),
        needs,
        warnings: Vec::new(),
    })
}

fn needs(fields: &Fields<'_>, findings: &mut Findings) -> Needs {
    let fields = fields.get("requires").and_then(|it| Fields::of("requires", it, findings));
    let Some(fields) = fields else { return Needs::default() };
    fields.warn_of_unknown(&["tools", "skills"], findings);
    Needs {
        tools: fields.texts("tools", findings).unwrap_or_default(),
        skills: fields.texts("skills", findings).unwrap_or_default(),
    }
}

/// The text of the context file, up to its bound.
fn told(folder: &Path, named: Option<&str>, findings: &mut Findings) -> String {
    let is_there = |it: &&str| fs::symlink_metadata(folder.join(it)).is_ok();
    let Some(file) = named.or_else(|| CONTEXT_FILES.into_iter().find(is_there)) else {
        return String::new();
    };
    match read_inside(folder, file) {
        Ok(text) if text.len() <= LARGEST_TEXT => text.trim().to_owned(),
        Ok(text) => {
            let length = text.len();
            findings.warnings.push(format!(
                "contextFile: {file} has {length} bytes, of which the agent is told the first \
                 {LARGEST_TEXT}"
            ));
            let start = text[..text.floor_char_boundary(LARGEST_TEXT)].trim();
            format!("{start}\n\n(The rest of {file} is left out: it is too long.)")
        }
        Err(wrong) => {
            findings.errors.push(format!("contextFile: {file} {wrong}"));
            String::new()
        }
    }
}

/// The form with front matter.
fn of_front_matter(folder: &Path, findings: &mut Findings) -> Option<Definition> {
    let is_link = fs::symlink_metadata(folder.join(SKILL_MD)).is_ok_and(|it| it.is_symlink());
    let text = match is_link {
        true => Err("is a link, and no link gets into a sandbox; copy the file".to_owned()),
        false => read_inside(folder, SKILL_MD),
    };
    let matter = text.as_ref().map_err(String::clone).and_then(|it| FrontMatter::read(it));
    let matter = matter.map_err(|it| findings.errors.push(it)).ok()?;
    for key in matter.unknown() {
        findings.warnings.push(format!("{key}: unknown key, ignored"));
    }
    let mut of = |key: &str| matter.text(key).map_err(|it| findings.errors.push(it)).ok();
    let (name, description) = (of("name"), of("description"));
    Some(Definition {
        name: name?,
        folder: folder.to_owned(),
        description: one_line(&description?, findings),
        guide: Guide::InFile,
        needs: Needs::default(),
        warnings: Vec::new(),
    })
}

/// A description as one bounded line of words.
fn one_line(description: &str, findings: &mut Findings) -> String {
    let line = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let length = line.chars().count();
    if length > LONGEST_DESCRIPTION {
        findings.errors.push(format!(
            "description: has {length} characters, of which there may be {LONGEST_DESCRIPTION}"
        ));
    }
    line
}

/// The text of a file in the folder, which must be resolved. The error is the
/// second half of a sentence that names no file.
fn read_inside(folder: &Path, file: &str) -> Result<String, String> {
    let real = folder.join(file).canonicalize().map_err(|it| format!("cannot be read: {it}"))?;
    if !real.starts_with(folder) {
        return Err("leads out of the skill's folder".into());
    }
    let text = String::from_utf8(read_bounded(&real, LARGEST_FILE)?);
    let text = text.map_err(|_| "is not UTF-8 text")?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
