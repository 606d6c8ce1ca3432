//! `provides`: what a plugin promises. It must be what it gives, as far as that
//! can be seen before it runs, and something that this version knows.

use serde_json::Value;

use crate::plugin::fields::{Fields, Findings, did_you_mean};
use crate::plugin::hooks::Hook;

/// What `provides` promises must be what `tools` gives; a server is held to it
/// once it runs. Gives the hooks.
pub(super) fn check_provides(
    fields: &Fields<'_>,
    is_server: bool,
    findings: &mut Findings,
) -> Vec<Hook> {
    let Some(value) = fields.get("provides") else { return Vec::new() };
    let Some(provides) = Fields::of("provides", value, findings) else { return Vec::new() };
    provides.warn_of_unknown(&["tools", "channel", "hooks", "skills"], findings);
    if provides.get("skills").is_some_and(|it| !is_nothing(it)) {
        findings.errors.push("provides.skills: not supported by this version".into());
    }
    check_channel(&provides, is_server, findings);
    if !is_server {
        check_named_tools(fields, &provides, findings);
    }
    hooks(&provides, is_server, findings)
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

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Bool(it) => !it,
        Value::Array(it) => it.is_empty(),
        Value::Object(it) => it.is_empty(),
        _ => false,
    }
}

/// What `provides.tools` says; faults in it are told where it is checked.
pub(super) fn promised(fields: &Fields<'_>) -> Option<Vec<String>> {
    let names = fields.get("provides")?.get("tools")?.as_array()?.iter();
    Some(names.filter_map(|it| it.as_str().map(str::to_owned)).collect())
}
