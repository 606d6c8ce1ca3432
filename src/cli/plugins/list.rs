//! `beige plugins list`: every entry as it is written, with what is known of
//! it, also while the configuration is not sound.

use serde_json::{Value, json};

use super::{Place, is_of};
use crate::cli::columns::{columns, padded};
use crate::cli::{Invocation, config, present, print, print_json, tidy};
use crate::config::{KeyPath, as_written, folder_of};
use crate::error::Result;
use crate::plugin::install::tools_of;
use crate::plugin::manifest;

/// What is known of an entry.
struct Listed {
    name: String,
    form: String,
    /// Where it lies, as it is written.
    place: Option<String>,
    /// Where it was installed from.
    source: Option<String>,
    enabled: bool,
    tools: Vec<String>,
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
        print("no plugins; `beige plugins install FOLDER` installs some\n")?;
    } else {
        present(&table(&all))?;
    }
    Ok(0)
}

impl Listed {
    fn of(place: &Place, written: &Value, name: &str, entry: &Value) -> Self {
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        let folder = text("path").and_then(|it| folder_of(&place.file, &it));
        let of_builtin = |it| manifest::of_builtin(name, it, &place.home.plugin_files(name));
        let manifest = match entry["builtin"].as_str() {
            Some(builtin) => Some(of_builtin(builtin)),
            None => folder.as_deref().map(manifest::read),
        };
        let (tools, problems) = match manifest {
            Some(Ok(manifest)) => {
                (manifest.tools.into_iter().map(|it| it.name).collect(), Vec::new())
            }
            Some(Err(problems)) => (Vec::new(), problems),
            None => (Vec::new(), Vec::new()),
        };
        let form = match (entry.get("command"), entry.get("url"), folder) {
            _ if entry.get("builtin").is_some() => "builtin",
            (Some(_), _, _) => "server",
            (_, Some(_), _) => "remote server",
            (_, _, Some(folder)) => manifest::form(&folder),
            _ => "unknown",
        };
        let agents = written["agents"].as_object().into_iter().flatten();
        Self {
            name: name.to_owned(),
            form: form.to_owned(),
            place: text("path"),
            source: text("_source").map(|it| it.replace("$${", "${")),
            enabled: entry["enabled"] != Value::Bool(false),
            tools,
            agents: agents
                .filter(|(_, it)| !tools_of(it, name).is_empty())
                .map(|(agent, _)| agent.clone())
                .collect(),
            problems,
        }
    }

    fn to_json(&self) -> Value {
        json!({ "name": self.name, "form": self.form, "path": self.place, "source": self.source,
            "enabled": self.enabled, "tools": self.tools, "agents": self.agents,
            "problems": self.problems })
    }

    fn row(&self) -> [String; 5] {
        let from = self
            .source
            .as_ref()
            .map_or_else(String::new, |it| format!(" from {}", tidy(std::path::Path::new(it))));
        let off = if self.enabled { "" } else { " (not enabled)" };
        let place = self.place.as_deref().unwrap_or("-");
        [
            self.name.clone(),
            self.form.clone(),
            in_line(&self.tools),
            in_line(&self.agents),
            format!("{place}{from}{off}"),
        ]
    }
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
    let head = ["PLUGIN", "FORM", "TOOLS", "AGENTS", "FOLDER"].map(str::to_owned);
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
