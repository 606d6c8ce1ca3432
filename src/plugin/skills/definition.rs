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
    let found = match (has(SKILL_JSON), has(SKILL_MD)) {
        (true, _) => of_json(&folder, &mut findings),
        (false, true) => of_front_matter(&folder, &mut findings),
        (false, false) => Err(format!(
            "{shown} holds neither {SKILL_JSON} nor {SKILL_MD}, one of which is needed"
        )),
    };
    let definition = found.unwrap_or_else(|wrong| {
        findings.errors.push(wrong);
        None
    });
    match definition {
        Some(it) if it.name != name => {
            let own = it.name;
            findings.errors.push(format!("it calls itself `{own}`; the entry must have that name"));
            Err(findings.errors)
        }
        Some(it) if findings.errors.is_empty() => {
            Ok(Definition { warnings: findings.warnings, ..it })
        }
        _ => Err(findings.errors),
    }
}

/// The form with a `skill.json`. `None` if what is wrong is among the findings.
fn of_json(folder: &Path, findings: &mut Findings) -> Result<Option<Definition>, String> {
    let text = read_inside(folder, SKILL_JSON)?;
    let value: Value =
        serde_json::from_str(&text).map_err(|it| format!("{SKILL_JSON} is not JSON: {it}"))?;
    let mut own = Findings::default();
    let definition = parse(folder, &value, &mut own);
    let in_file = |it: String| format!("{SKILL_JSON}: {it}");
    findings.errors.extend(own.errors.into_iter().map(in_file));
    findings.warnings.extend(own.warnings.into_iter().map(in_file));
    Ok(definition)
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
            findings.errors.push(format!("contextFile: {wrong}"));
            String::new()
        }
    }
}

/// The form with front matter. `None` if what is wrong is among the findings.
fn of_front_matter(folder: &Path, findings: &mut Findings) -> Result<Option<Definition>, String> {
    let text = read_inside(folder, SKILL_MD)?;
    if fs::symlink_metadata(folder.join(SKILL_MD)).is_ok_and(|it| it.is_symlink()) {
        return Err(format!(
            "{SKILL_MD} is a link, and no link gets into a sandbox; copy the file"
        ));
    }
    let matter = FrontMatter::read(&text).map_err(|it| format!("{SKILL_MD}: {it}"))?;
    for key in matter.unknown() {
        findings.warnings.push(format!("{SKILL_MD}: {key}: unknown key, ignored"));
    }
    let mut of = |key: &str| {
        let text = matter.text(key).unwrap_or_else(|| Err(format!("`{key}` is missing")));
        text.map_err(|it| findings.errors.push(format!("{SKILL_MD}: {it}"))).ok()
    };
    let (name, description) = (of("name"), of("description"));
    let (Some(name), Some(description)) = (name, description) else { return Ok(None) };
    Ok(Some(Definition {
        name,
        folder: folder.to_owned(),
        description: one_line(&description, findings),
        guide: Guide::InFile,
        needs: Needs::default(),
        warnings: Vec::new(),
    }))
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

/// The text of a file in the folder, which must be resolved.
fn read_inside(folder: &Path, file: &str) -> Result<String, String> {
    let real = folder.join(file).canonicalize().map_err(|it| format!("read {file}: {it}"))?;
    if !real.starts_with(folder) {
        return Err(format!("{file} leads out of the skill's folder"));
    }
    let bytes = read_bounded(&real, LARGEST_FILE).map_err(|it| format!("{file} {it}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{file} is not UTF-8 text"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
