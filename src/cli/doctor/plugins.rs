//! Whether the programs of plugins are there, as this process sees them: a
//! gateway may have another PATH. A plugin whose program is missing is left out
//! when a gateway starts, and what it guards is refused.

use super::{Check, Patient};
use crate::builtin;
use crate::config::{Findings, PluginSource};
use crate::plugin::Registry;
use crate::plugin::run::Asker;
use crate::worker::Cancel;

/// A line for each that cannot be started; else one, if there are plugins.
pub(super) fn check(patient: &Patient) -> Vec<Check> {
    let Some(config) = &patient.config else { return Vec::new() };
    // What is wrong with them is told of the configuration.
    let ignored = &mut Findings::default();
    let registry = Registry::examine(&config.plugins, &config.agents, &config.home, ignored);
    let asker = Asker { cancel: &Cancel::never(), line: None };
    let mut lacking = registry.lacking(asker);
    for plugin in &config.plugins {
        if let PluginSource::Builtin(builtin) = &plugin.source
            && let Some(lack) = builtin::lack_of(builtin)
        {
            lacking.push((&plugin.name, lack));
        }
    }
    if lacking.is_empty() {
        let found = "the programs that they start are there";
        return config.plugins.iter().take(1).map(|_| Check::ok("plugins", found)).collect();
    }
    lacking.into_iter().map(|(name, lack)| told(&registry, name, lack)).collect()
}

fn told(registry: &Registry, name: &str, lack: String) -> Check {
    let (hooks, _) = registry.hooks_of(name);
    let so = match hooks.iter().any(|it| it.guards()) {
        true => "its tools fail, and what it guards is refused",
        false => "its tools fail",
    };
    let fix = format!("install what is missing where the gateway finds it; until then {so}");
    Check::warning(format!("plugin {name}"), lack, fix)
}
