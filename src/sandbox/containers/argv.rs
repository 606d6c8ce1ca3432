//! What the client of an engine is called with, as pure functions of the wanted
//! sandbox: the hardening of a container stands here and nowhere else. Refuses
//! paths that the client's own notation cannot carry unchanged.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::engine::{Bounded, Engine, Terms};
use crate::config::Network;
use crate::error::{Error, Kind, Result};
use crate::sandbox::client::INSIDE;
use crate::sandbox::fingerprint::{self, hex};
use crate::sandbox::{Role, Spec};

/// Label: the home whose gateway owns the container.
pub(super) const LABEL_HOME: &str = "beige.home";
/// Label: [`instance`] of that home.
pub(super) const LABEL_INSTANCE: &str = "beige.instance";
/// Label: the agent.
pub(super) const LABEL_AGENT: &str = "beige.agent";
/// Label: [`spec_hash`] of what it was made from.
pub(super) const LABEL_SPEC: &str = "beige.spec";

/// Longest name of a container: also a host name, so that DNS sets the bound.
const NAME_LIMIT: usize = 63;

/// Largest `/tmp` where the root is read-only, in bytes; memory is the bound
/// below that.
const TMP_LIMIT: u64 = 512 * 1024 * 1024;

/// What `apt` needs of root; all other capabilities are dropped for everyone.
const ROOT_CAPABILITIES: [&str; 5] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"];

/// Name of an agent's container, at most 63 bytes.
pub fn container_name(instance: &str, agent: &str) -> String {
    let name = format!("beige-{instance}-{agent}");
    if name.len() <= NAME_LIMIT {
        return name;
    }
    let mut short: String = name.chars().take(NAME_LIMIT - 9).collect();
    while short.len() > NAME_LIMIT - 9 {
        short.pop();
    }
    format!("{short}-{}", hex(name.as_bytes(), 8))
}

/// Makes and starts the container on this host's terms. `spec_hash` becomes a
/// label.
///
/// A path that the client's notation cannot carry is a [`Kind::Config`] error.
pub fn run_command(engine: Engine, spec: &Spec, spec_hash: &str, terms: &Terms) -> Result<Command> {
    let mut command = engine.command(&["run", "-d"]);
    command.args(["--label", &format!("{LABEL_SPEC}={spec_hash}")]);
    command.args(ulimits(terms));
    command.args(container_arguments(engine, spec, terms.bounds)?);
    Ok(command)
}

/// Two processes of one user may have other limits, and no container is made
/// anew for that: these are no part of what is wanted.
pub(super) fn ulimits(terms: &Terms) -> Vec<String> {
    let Some((files, processes)) = terms.ulimits else { return Vec::new() };
    let bound = |name, most| ["--ulimit".into(), format!("{name}={most}:{most}")];
    [bound("nofile", files), bound("nproc", processes)].concat()
}

/// Starts tool-client in that role inside a running container; the
/// environment goes into its request, never into an argument.
pub fn exec_command(engine: Engine, spec: &Spec, role: Role) -> Command {
    let name = container_name(&spec.instance, &spec.agent);
    engine.command(&["exec", "-i", "-w", "/workspace", &name, INSIDE, role.flag()])
}

/// Changes whenever the container must be made anew: it covers every
/// argument, the version of beige, whose PID 1 runs inside, and which folders
/// the mounts lead to now. A folder that was made anew under its old name is
/// not the one that a running container shows.
pub fn spec_hash(engine: Engine, spec: &Spec) -> Result<String> {
    let folders = mounts(spec).into_iter().map(|(folder, ..)| folder);
    Ok(fingerprint::of(container_arguments(engine, spec, Bounded::ALL)?, folders))
}

/// All arguments of `run` that say what the container is.
fn container_arguments(engine: Engine, spec: &Spec, bounds: Bounded) -> Result<Vec<OsString>> {
    let mut arguments = identity(spec);
    arguments.extend(user(engine, spec));
    arguments.extend(confinement(spec, bounds));
    for (host, container, read_only) in mounts(spec) {
        let mount = bind(host, &container, read_only)
            .map_err(|what| Error::new(Kind::Config, format!("{} {what}", engine.title())))?;
        arguments.extend(["--mount".into(), mount]);
    }
    arguments.extend(["--workdir", "/workspace", "--entrypoint", INSIDE].map(Into::into));
    arguments.extend([spec.image.as_str(), "--init"].map(Into::into));
    Ok(arguments)
}

fn identity(spec: &Spec) -> Vec<OsString> {
    let mut home = OsString::from(format!("{LABEL_HOME}="));
    home.push(&spec.home);
    vec![
        // An absent image must never come from a public registry.
        "--pull".into(),
        "never".into(),
        "--name".into(),
        container_name(&spec.instance, &spec.agent).into(),
        "--hostname".into(),
        spec.agent.clone().into(),
        "--label".into(),
        home,
        "--label".into(),
        format!("{LABEL_INSTANCE}={}", spec.instance).into(),
        "--label".into(),
        format!("{LABEL_AGENT}={}", spec.agent).into(),
    ]
}

/// Who the agent is. In a user's own namespace its root is that user itself,
/// and anybody else keeps its number.
fn user(engine: Engine, spec: &Spec) -> Vec<OsString> {
    let mut flags: Vec<OsString> = Vec::new();
    if engine == Engine::RootlessPodman && spec.uid != 0 {
        flags.extend(["--userns", "keep-id"].map(Into::into));
    }
    flags.extend(["--user".into(), format!("{}:{}", spec.uid, spec.gid).into()]);
    flags
}

/// What is taken away from it; of the bounds, those that are held here.
fn confinement(spec: &Spec, bounds: Bounded) -> Vec<OsString> {
    let memory = spec.memory_bytes.to_string();
    let mut flags: Vec<OsString> = vec!["--cap-drop".into(), "ALL".into()];
    if spec.uid == 0 {
        for capability in ROOT_CAPABILITIES {
            flags.extend(["--cap-add".into(), capability.into()]);
        }
    }
    flags.extend(["--security-opt", "no-new-privileges"].map(Into::into));
    if bounds.pids {
        flags.extend(["--pids-limit".into(), spec.pids.to_string().into()]);
    }
    if bounds.memory {
        // The same bound for memory and memory with swap: no swap.
        flags.extend(["--memory", &memory, "--memory-swap", &memory].map(Into::into));
    }
    if let Some(cpus) = spec.cpus.filter(|_| bounds.cpus) {
        flags.extend(["--cpus".into(), cpus.to_string().into()]);
    }
    if spec.network == Some(Network::None) {
        flags.extend(["--network", "none"].map(Into::into));
    }
    // Nothing of the image runs by itself, and nothing is logged twice.
    flags.extend(["--log-driver", "none", "--no-healthcheck"].map(Into::into));
    if spec.read_only_root {
        let size = TMP_LIMIT.min(spec.memory_bytes / 2);
        flags.extend(["--read-only".into(), "--tmpfs".into()]);
        flags.push(format!("/tmp:rw,exec,nosuid,nodev,mode=1777,size={size}").into());
    }
    flags
}

/// What is bound where, and whether it is read-only.
pub(super) fn mounts(spec: &Spec) -> Vec<(&Path, PathBuf, bool)> {
    let mut mounts: Vec<(&Path, PathBuf, bool)> = vec![
        (&spec.workspace, "/workspace".into(), false),
        (&spec.launchers, "/tools/bin".into(), true),
        (&spec.sockets, "/beige".into(), true),
    ];
    mounts.extend(spec.shown.places().map(|(folder, inside)| (folder, inside, true)));
    for mount in &spec.mounts {
        mounts.push((&mount.host, mount.container.clone(), mount.read_only));
    }
    mounts
}

/// One `--mount`. The value is one line of CSV: a field that holds a comma or
/// a quote stands in quotes, with its quotes doubled. An error goes on from the
/// engine's name.
fn bind(host: &Path, container: &Path, read_only: bool) -> Result<OsString, String> {
    let source = field("src", host)?;
    let target = field("dst", container)?;
    let suffix = if read_only { ",readonly" } else { "" };
    Ok(format!("type=bind,{source},{target}{suffix}").into())
}

fn field(key: &str, path: &Path) -> Result<String, String> {
    let Some(text) = path.to_str().filter(|it| !it.chars().any(char::is_control)) else {
        let what = "takes no path with control characters or bytes that are not UTF-8";
        return Err(format!("{what}: {}; rename it", path.display()));
    };
    // The client takes white space at the ends of a value for a mistake.
    if text.trim() != text {
        let what = "takes no path that begins or ends with white space";
        return Err(format!("{what}: {text:?}; rename it"));
    }
    let field = format!("{key}={text}");
    if field.contains([',', '"']) {
        return Ok(format!("\"{}\"", field.replace('"', "\"\"")));
    }
    Ok(field)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
