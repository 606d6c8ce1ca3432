//! What the loader worked out, put where a person looks for it: `config show`
//! must name the folders and sizes that really count, not only those written.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::config::{Config, RuntimeChoice};

/// Puts in what follows from the host and the state folder.
pub(crate) fn fill_in(value: &mut Value, config: &Config) {
    if let Some(gateway) = object(value, "/gateway") {
        gateway.insert("logFile".into(), shown(&config.gateway.log_file));
    }
    for agent in config.agents.values() {
        let place = format!("/agents/{}", agent.name);
        if let Some(entry) = object(value, &place) {
            entry.insert("workspaceDir".into(), shown(&agent.workspace));
        }
        let Some(sandbox) = object(value, &format!("{place}/sandbox")) else { continue };
        sandbox.insert("memoryLimit".into(), agent.sandbox.memory_bytes.into());
        if let Some(cpus) = agent.sandbox.cpus {
            sandbox.insert("cpus".into(), json!(cpus));
        }
        if agent.sandbox.runtime == RuntimeChoice::Docker {
            sandbox.insert("runtime".into(), "docker".into());
        }
    }
}

fn object<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    value.pointer_mut(pointer)?.as_object_mut()
}

fn shown(path: &Path) -> Value {
    path.to_string_lossy().into()
}
