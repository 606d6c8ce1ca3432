//! `beige plugins list`: every entry as it is written, with what is known of
//! it, also while the configuration is not sound.

use serde_json::{Value, json};

use super::{Place, is_of};
use crate::cli::columns::{columns, padded};
use crate::cli::{Invocation, config, present, print, print_json, tidy};
use crate::config::{KeyPath, as_written, folder_of};
use crate::error::Result;
use crate::plugin::install::{node, tools_of};
use crate::plugin::manifest;

/// What is known of an entry.
struct Listed {
    name: String,
    form: String,
    /// Where it lies, as it is written.
    place: Option<String>,
    /// Where it was installed from.
    source: Option<String>,
    version: Option<String>,
    enabled: bool,
    tools: Vec<String>,
    hooks: Vec<String>,
    skills: Vec<String>,
    channel: bool,
    agents: Vec<String>,
    problems: Vec<String>,
}

/// Prints all; what is wrong with the file itself is an error.
pub(super) fn list(invocation: &Invocation, place: &Place, as_json: bool) -> Result<u8> {
    let written = as_written(&place.file, &place.home)?;
    let report = config::examine_but_providers(invocation)?.report;
    let mut all = Vec::new();
    for (name, entry) in written["plugins"].as_object().into_iter().flatten() {
        let mut listed = Listed::of(place, &written, name, entry);
        for finding in report.findings.iter().filter(|it| is_of(it, name)) {
            let problem = told(&finding.path, &finding.message);
            // The file's own text says it better than a second look.
            listed.problems.retain(|it| !problem.ends_with(it.as_str()));
            listed.problems.push(problem);
        }
        all.push(listed);
    }
    if as_json {
        let all: Vec<Value> = all.iter().map(Listed::to_json).collect();
        print_json(&format!("{}\n", Value::Array(all)))?;
    } else if all.is_empty() {
        print("no plugins; `beige plugins install SOURCE` installs some\n")?;
    } else {
        present(&table(&all))?;
    }
    Ok(0)
}

impl Listed {
    fn of(place: &Place, written: &Value, name: &str, entry: &Value) -> Self {
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        let folder = text("path").and_then(|it| folder_of(&place.file, &it));
        let source = text("_source").map(|it| it.replace("$${", "${"));
        let files = place.home.plugin_files(name);
        let manifest = match entry["builtin"].as_str() {
            Some(builtin) => Some(manifest::of_builtin(name, builtin, &files)),
            // What these are is not looked at, only that they give a tool.
            None if entry.get("url").is_some() => Some(Ok(manifest::of_url(name, "", &files))),
            None if entry.get("command").is_some() => {
                Some(Ok(manifest::of_command(name, &[], &files)))
            }
            None => folder.as_deref().map(manifest::read),
        };
        let (manifest, problems) = match manifest {
            Some(Ok(manifest)) => (Some(manifest), Vec::new()),
            // The findings say that it is not installed yet.
            Some(Err(_)) if source.is_some() && folder.as_ref().is_some_and(|it| !it.exists()) => {
                (None, Vec::new())
            }
            Some(Err(problems)) => (None, problems),
            None => (None, Vec::new()),
        };
        let manifest = manifest.as_ref();
        let version = folder.as_deref().and_then(|it| node::version(it, &place.home));
        let channel = folder.as_deref().is_some_and(manifest::has_channel);
        let form = match (entry.get("command"), entry.get("url"), folder) {
            _ if entry.get("builtin").is_some() => "builtin",
            (Some(_), _, _) => "server",
            (_, Some(_), _) => "remote server",
            (_, _, Some(folder)) if !folder.exists() => "absent",
            (_, _, Some(folder)) => manifest::form(&folder),
            _ => "unknown",
        };
        let agents = written["agents"].as_object().into_iter().flatten();
        Self {
            name: name.to_owned(),
            form: form.to_owned(),
            place: text("path"),
            source,
            version,
            enabled: entry["enabled"] != Value::Bool(false),
            tools: names(manifest.map(|it| &it.tools), |it| &it.name),
            hooks: names(manifest.map(|it| &it.hooks), |it| it.name()),
            skills: names(manifest.map(|it| &it.skills), |it| &it.name),
            channel,
            agents: agents
                .filter(|(_, it)| !tools_of(it, name).is_empty())
                .map(|(agent, _)| agent.clone())
                .collect(),
            problems,
        }
    }

    fn to_json(&self) -> Value {
        json!({ "name": self.name, "form": self.form, "path": self.place, "source": self.source,
            "version": self.version, "enabled": self.enabled, "tools": self.tools,
            "hooks": self.hooks, "skills": self.skills, "channel": self.channel,
            "agents": self.agents, "problems": self.problems })
    }

    /// All that it gives, tools first.
    fn given(&self) -> Vec<String> {
        let mut given = self.tools.clone();
        given.extend(self.hooks.iter().map(|it| format!("hook {it}")));
        given.extend(self.skills.iter().map(|it| format!("skill {it}")));
        given.extend(self.channel.then(|| "channel".to_owned()));
        given
    }

    fn row(&self) -> [String; 5] {
        let from = self
            .source
            .as_ref()
            .map_or_else(String::new, |it| format!(" from {}", tidy(std::path::Path::new(it))));
        let version = self.version.as_ref().map_or_else(String::new, |it| format!(" {it}"));
        let off = if self.enabled { "" } else { " (not enabled)" };
        let place = self.place.as_deref().unwrap_or("-");
        [
            self.name.clone(),
            format!("{}{version}", self.form),
            in_line(&self.given()),
            in_line(&self.agents),
            format!("{place}{from}{off}"),
        ]
    }
}

fn names<T>(of: Option<&Vec<T>>, name: impl Fn(&T) -> &str) -> Vec<String> {
    of.into_iter().flatten().map(|it| name(it).to_owned()).collect()
}

/// A finding of an entry, without the keys that lead to the entry.
fn told(path: &KeyPath, message: &str) -> String {
    let below = path.to_string();
    match below.splitn(3, '.').nth(2) {
        Some(below) => format!("{below}: {message}"),
        None => message.to_owned(),
    }
}

fn in_line(words: &[String]) -> String {
    if words.is_empty() { "-".into() } else { words.join(", ") }
}

fn table(all: &[Listed]) -> String {
    let head = ["PLUGIN", "FORM", "GIVES", "AGENTS", "FOLDER"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(all.iter().map(Listed::row)).collect();
    let width = |at: usize| rows.iter().map(|row| columns(&row[at])).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(it, width)| padded(it, width + 2));
        text.push_str(&format!("{}{}\n", cells.collect::<String>(), row[4]));
    }
    for listed in all {
        for problem in &listed.problems {
            text.push_str(&format!("{}: {problem}\n", listed.name));
        }
    }
    text
}
