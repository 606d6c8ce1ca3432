//! What the loader worked out, put where a person looks for it: `config show`
//! must name the folders and sizes that really count, not only those written.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::config::{
    Config, MountConfig, Network, PluginSource, Provider, Reach, RuntimeChoice, SandboxConfig,
    Timeouts,
};

/// Puts in what follows from the host and the state folder.
pub(crate) fn fill_in(value: &mut Value, config: &Config) {
    for (name, provider) in &config.providers {
        let Some(entry) = object(value, &["llm", "providers", name]) else { continue };
        fill_in_provider(entry, provider);
    }
    for plugin in &config.plugins {
        if let Some(entry) = object(value, &["plugins", &plugin.name]) {
            match &plugin.source {
                PluginSource::Folder(folder) => {
                    entry.insert("path".into(), shown(folder));
                }
                PluginSource::Command(argv) => {
                    let argv = argv.iter().map(|it| shown(Path::new(it)));
                    entry.insert("command".into(), argv.collect());
                }
                PluginSource::Builtin(_) => {}
            }
        }
    }
    for (name, folder) in &config.skills {
        if let Some(entry) = object(value, &["skills", name]) {
            entry.insert("path".into(), shown(folder));
        }
    }
    if let Some(gateway) = object(value, &["gateway"]) {
        gateway.insert("logFile".into(), shown(&config.gateway.log_file));
    }
    for agent in config.agents.values() {
        let Some(entry) = object(value, &["agents", &agent.name]) else { continue };
        entry.insert("workspaceDir".into(), shown(&agent.workspace));
        if let Some(entry) = entry.get_mut("sandbox").and_then(Value::as_object_mut) {
            fill_in_sandbox(entry, &agent.sandbox);
        }
    }
}

fn fill_in_provider(entry: &mut Map<String, Value>, provider: &Provider) {
    entry.insert("api".into(), provider.api.name().into());
    match &provider.reach {
        Reach::Cassette(path) => drop(entry.insert("cassette".into(), shown(path))),
        Reach::Endpoint(endpoint) => {
            entry.insert("baseUrl".into(), endpoint.base_url.as_str().into());
            let Timeouts { connect, first_byte, idle } = endpoint.timeouts;
            entry.insert(
                "timeouts".into(),
                json!({
                    "connectSeconds": connect.as_secs_f64(),
                    "firstByteSeconds": first_byte.as_secs_f64(),
                    "idleSeconds": idle.as_secs_f64(),
                }),
            );
            if let Some(path) = &endpoint.ca_file {
                entry.insert("caFile".into(), shown(path));
            }
        }
    }
    if let Some(path) = &provider.record {
        entry.insert("cassette".into(), shown(path));
    }
}

fn fill_in_sandbox(entry: &mut Map<String, Value>, sandbox: &SandboxConfig) {
    entry.insert("memoryLimit".into(), sandbox.memory_bytes.into());
    entry.insert("extraMounts".into(), sandbox.mounts.iter().map(mount).collect());
    if let Some(cpus) = sandbox.cpus {
        entry.insert("cpus".into(), json!(cpus));
    }
    if let Some(network) = sandbox.network.or(default_network(sandbox)) {
        entry.insert("network".into(), network_name(network).into());
    }
}

/// That of `auto` is known once the runtime is.
fn default_network(sandbox: &SandboxConfig) -> Option<Network> {
    match sandbox.runtime {
        RuntimeChoice::Bubblewrap => Some(Network::None),
        _ if !sandbox.may_be_bubblewrap() => Some(Network::Open),
        _ => None,
    }
}

fn network_name(network: Network) -> &'static str {
    match network {
        Network::Open => "open",
        Network::None => "none",
    }
}

fn mount(mount: &MountConfig) -> (String, Value) {
    let suffix = if mount.read_only { ":ro" } else { "" };
    let container = format!("{}{suffix}", mount.container.display());
    (mount.host.to_string_lossy().into_owned(), container.into())
}

fn object<'a>(value: &'a mut Value, keys: &[&str]) -> Option<&'a mut Map<String, Value>> {
    keys.iter().try_fold(value, |value, key| value.get_mut(*key))?.as_object_mut()
}

fn shown(path: &Path) -> Value {
    path.to_string_lossy().into()
}
