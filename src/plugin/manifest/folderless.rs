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
/// tool, which is named as the plugin. Agents are told the program's name alone.
pub fn of_command(name: &str, argv: &[OsString], folder: &Path) -> Manifest {
    let program = argv.first().and_then(|it| Path::new(it).file_name());
    let program = program.map(|it| it.display().to_string());
    let server = Server { argv: argv.to_vec(), entry: None, env: BTreeMap::new() };
    let manifest = of_server(name, &program.unwrap_or_default(), folder);
    Manifest { server: Some(server), ..manifest }
}

/// The same of one that runs elsewhere. Agents are told the host alone: what
/// follows it may be a key.
pub fn of_url(name: &str, url: &str, folder: &Path) -> Manifest {
    let host = url.split('/').nth(2).unwrap_or_default();
    of_server(name, host.split('?').next().unwrap_or_default(), folder)
}

/// The manifest of a plugin inside the binary under that name; its files lie in
/// `folder`. The error says which there are.
pub fn of_builtin(name: &str, builtin: &str, folder: &Path) -> Result<Manifest, Vec<String>> {
    let value = builtins::manifest(builtin, name).map_err(|it| vec![it])?;
    let mut findings = Findings::default();
    let manifest = parse(folder.to_owned(), &value, &mut findings);
    manifest.filter(|_| findings.errors.is_empty()).ok_or(findings.errors)
}

/// Of one that is called by that name.
fn of_server(name: &str, what: &str, folder: &Path) -> Manifest {
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
        skills: Vec::new(),
        private: Vec::new(),
        schema: None,
        default_config: Value::Object(serde_json::Map::new()),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_told_a_programs_name_and_no_path_of_this_host() {
        for program in ["/opt/team/server", "server"] {
            let tools = of_command("near", &[program.into(), "/srv".into()], Path::new("/")).tools;
            assert_eq!(tools[0].description, "Tools of the server `server`", "{program}");
        }
    }

    #[test]
    fn agents_are_told_the_host_and_no_key() {
        for url in ["https://h:8/s/k3y/mcp", "https://h:8?k=3", "https://h:8", "https://h:8/mcp?k"]
        {
            let tools = of_url("far", url, Path::new("/")).tools;
            assert_eq!(tools[0].description, "Tools of the server `h:8`", "{url}");
        }
    }
}
