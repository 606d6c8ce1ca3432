//! Manifests of plugins that have no folder with a `plugin.json`: servers of the
//! configuration, and those inside the binary.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{DEFAULT_TIMEOUT_SECONDS, Manifest, Server, ToolEntry, Way, parse};
use crate::plugin::builtins;
use crate::plugin::fields::Findings;

/// The manifest of a server that has none: it runs in `folder` and gives one
/// tool, which is named as the plugin.
pub fn of_command(name: &str, argv: &[OsString], folder: &Path) -> Manifest {
    let program = argv.first().map(|it| Path::new(it).display().to_string());
    let tool = ToolEntry {
        name: name.to_owned(),
        description: format!("Tools of the server `{}`", program.unwrap_or_default()),
        commands: vec![format!("{name} --help")],
        way: Way::Server,
        timeout: Duration::from_secs(DEFAULT_TIMEOUT_SECONDS),
    };
    Manifest {
        name: name.to_owned(),
        folder: folder.to_owned(),
        tools: vec![tool],
        server: Some(Server { argv: argv.to_vec(), entry: None, env: BTreeMap::new() }),
        hooks: Vec::new(),
        skills: Vec::new(),
        private: Vec::new(),
        schema: None,
        default_config: Value::Object(serde_json::Map::new()),
        warnings: Vec::new(),
    }
}

/// The manifest of a plugin inside the binary under that name; its files lie in
/// `folder`. The error says which there are.
pub fn of_builtin(name: &str, builtin: &str, folder: &Path) -> Result<Manifest, Vec<String>> {
    let value = builtins::manifest(builtin, name).map_err(|it| vec![it])?;
    let mut findings = Findings::default();
    let manifest = parse(folder.to_owned(), &value, &mut findings);
    manifest.filter(|_| findings.errors.is_empty()).ok_or(findings.errors)
}
