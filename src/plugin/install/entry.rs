//! A plugin's entry in `config.json5`: what is written for a new one, and the
//! little that is changed of one that is there. Settings and secrets of a
//! person are never touched. What a `defaultConfig` says is written so that no
//! reference in it is looked up: a plugin may not ask for the gateway's keys.

use std::path::Path;

use serde_json::Value;

use super::StagedPlugin;
use crate::config::{Draft, Written, literal};
use crate::error::{Error, Kind, Result};

/// Writes the entry of a plugin that came from `source`. `file` is the
/// configuration, where relative paths begin.
pub fn write(draft: &mut Draft, file: &Path, plugin: &StagedPlugin, source: &str) -> Result<()> {
    let name = plugin.manifest.name.as_str();
    let path = path_from(file, &plugin.folder)?;
    let source = literal(source);
    let Some(entry) = draft.value()["plugins"].get(name) else {
        let mut fields = vec![("path".to_owned(), Value::from(path).into())];
        if plugin.manifest.default_config.as_object().is_some_and(|it| !it.is_empty()) {
            fields.push(("config".into(), literals(&plugin.manifest.default_config).into()));
        }
        fields.push(("_source".into(), Value::from(source).into()));
        return draft.set(&["plugins", name], Written::Object(fields));
    };
    if let Some(other) =
        ["command", "url", "builtin"].into_iter().find(|it| entry.get(it).is_some())
    {
        let what = format!("plugins.{name} is a server by `{other}`; remove it first");
        return Err(Error::new(Kind::Conflict, what));
    }
    for (key, text) in [("path", path), ("_source", source)] {
        if draft.value()["plugins"][name][key] != text.as_str() {
            draft.set(&["plugins", name, key], Value::from(text))?;
        }
    }
    Ok(())
}

/// The places of a `defaultConfig` that hold a reference, which is written as
/// plain text.
pub fn references(config: &Value, at: &str, found: &mut Vec<String>) {
    match config {
        Value::String(text) if text.contains("${") => found.push(at.to_owned()),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, it)| references(it, &format!("{at}[{index}]"), found));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, it)| references(it, &format!("{at}.{key}"), found));
        }
        _ => {}
    }
}

/// A path of the configuration: from its folder on where it lies in that.
fn path_from(file: &Path, folder: &Path) -> Result<String> {
    let below = file.parent().and_then(|it| folder.strip_prefix(it).ok());
    let text = match below {
        Some(below) => below.to_str().map(|it| format!("./{it}")),
        None => folder.to_str().map(str::to_owned),
    };
    text.map(|it| literal(&it)).ok_or_else(|| {
        Error::new(Kind::Config, format!("the path {} is not UTF-8", folder.display()))
    })
}

fn literals(value: &Value) -> Value {
    match value {
        Value::String(text) => literal(text).into(),
        Value::Array(items) => items.iter().map(literals).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, it)| (key.clone(), literals(it))).collect()
        }
        other => other.clone(),
    }
}
