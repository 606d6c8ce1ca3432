//! Plugins inside the binary, as the registry sees them: the `plugin.json` of
//! each, and the command that starts it. They are servers like any other; what
//! they do lies in [`crate::builtin`], above, and is not called from here.

use std::ffi::OsString;

use serde_json::Value;

use super::fields::did_you_mean;
use super::settings::merge;

/// The name of each, in the order of the alphabet, and its `plugin.json`.
const ALL: &[(&str, &str)] = &[
    ("git", include_str!("builtins/git.json")),
    ("sessions", include_str!("builtins/sessions.json")),
    ("spawn", include_str!("builtins/spawn.json")),
];

/// The program that runs, also where its file has been replaced since: a plugin
/// is always of the gateway's own version.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Program and arguments of the server.
pub(super) fn argv(builtin: &str) -> Vec<OsString> {
    [THIS_PROGRAM, "plugin-run", builtin].map(OsString::from).into()
}

/// The `plugin.json` of one, for an entry of that name; the error says which
/// there are.
pub fn manifest(builtin: &str, name: &str) -> Result<Value, String> {
    let Some((_, text)) = ALL.iter().find(|(it, _)| *it == builtin) else {
        let nearest = did_you_mean(builtin, names());
        let known: Vec<&str> = names().collect();
        let known = known.join(", ");
        return Err(format!("there is no built-in plugin `{builtin}`{nearest}; there are {known}"));
    };
    let mut value: Value = serde_json::from_str(text).map_err(|it| it.to_string())?;
    value["name"] = name.into();
    value["builtin"] = builtin.into();
    for texts in ["/commands", "/provides/tools"] {
        let texts = value.pointer_mut(texts).and_then(Value::as_array_mut);
        texts.into_iter().flatten().for_each(|it| call_by(name, builtin, it));
    }
    Ok(value)
}

/// A `plugin.json` of a folder; where it names a built-in plugin, with all that
/// it does not say itself.
pub(super) fn completed(value: Value) -> Result<Value, String> {
    let (Some(builtin), Some(name)) = (value["builtin"].as_str(), value["name"].as_str()) else {
        return Ok(value);
    };
    let base = manifest(builtin, name).map_err(|it| format!("builtin: {it}"))?;
    Ok(merge(&base, &value))
}

/// Puts the entry's name where a text begins with the plugin's.
fn call_by(name: &str, builtin: &str, text: &mut Value) {
    let rest = text.as_str().and_then(|it| it.strip_prefix(builtin)).map(str::to_owned);
    if let Some(rest) = rest {
        *text = format!("{name}{rest}").into();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plugin::manifest::of_builtin;

    #[test]
    fn each_is_a_sound_plugin_under_any_name() {
        for builtin in names() {
            for name in [builtin, "other"] {
                let manifest = of_builtin(name, builtin, Path::new("/files"));
                let manifest = manifest.unwrap_or_else(|it| panic!("{builtin}: {it:?}"));
                assert!(manifest.warnings.is_empty(), "{builtin}: {:?}", manifest.warnings);
                assert!(manifest.schema.is_some(), "{builtin} takes any configuration");
                let mut wrong = Vec::new();
                manifest.schema.iter().for_each(|it| {
                    it.check("config", &manifest.default_config, &mut wrong);
                });
                assert!(wrong.is_empty(), "{builtin}: {wrong:?}");
                for tool in &manifest.tools {
                    assert!(tool.name.starts_with(name) && !tool.description.is_empty());
                    assert!(tool.commands.iter().all(|it| it.starts_with(name)), "{builtin}");
                }
                let argv = manifest.server.map(|it| it.argv);
                assert_eq!(argv, Some(super::argv(builtin)));
            }
        }
    }

    #[test]
    fn one_that_is_not_there_is_told_with_the_nearest() {
        assert_eq!(
            manifest("spwan", "x").map_err(|it| it.split("; there").next().unwrap().to_owned()),
            Err("there is no built-in plugin `spwan`; did you mean `spawn`?".into())
        );
    }
}
