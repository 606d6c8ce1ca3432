//! The manifest of a server that has none of its own: it gives one tool, which
//! is named as the plugin.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{DEFAULT_TIMEOUT_SECONDS, Manifest, ToolEntry, Way};

/// Of one that runs elsewhere. Agents are told the host alone: what follows it may
/// be a key.
pub fn of_url(name: &str, url: &str, folder: &Path) -> Manifest {
    let host = url.split('/').nth(2).unwrap_or_default();
    of_server(name, host.split('?').next().unwrap_or_default(), folder)
}

/// Of one that is called by that name.
pub(super) fn of_server(name: &str, what: &str, folder: &Path) -> Manifest {
    let tool = ToolEntry {
        name: name.to_owned(),
        description: format!("Tools of the server `{what}`"),
        commands: vec![format!("{name} --help")],
        way: Way::Server,
        timeout: Duration::from_secs(DEFAULT_TIMEOUT_SECONDS),
    };
    Manifest {
        name: name.to_owned(),
        folder: folder.to_owned(),
        tools: vec![tool],
        server: None,
        hooks: Vec::new(),
        private: Vec::new(),
        schema: None,
        default_config: Value::Object(Map::new()),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_told_the_host_and_no_key() {
        for url in ["https://h:8/s/k3y/mcp", "https://h:8?k=3", "https://h:8", "https://h:8/mcp?k"]
        {
            let tools = of_url("far", url, Path::new("/")).tools;
            assert_eq!(tools[0].description, "Tools of the server `h:8`", "{url}");
        }
    }
}
