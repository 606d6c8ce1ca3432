//! Plugins of the TypeScript gateway. They know no protocol: a host in
//! JavaScript (`typescript/host.mjs`, a part of this program) imports one and
//! speaks for it. Here is how that is made a process like any other server's:
//! which runtime is there and can do it, what it is started with, and where the
//! host is laid. What the plugin asks for without waiting for an event of its
//! own goes by a pair of FIFOs ([`fifos`]).

mod fifos;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

pub(super) use fifos::{Fifos, Served};

use super::child::{self, Bounds};
use super::launch::{Launch, TypeScript};
use super::run::{self, Asker};
use crate::config::home::{create_private, open_own};
use crate::error::{During, Error, Kind, Result};

/// The host, which imports the plugin.
const HOST: &str = include_str!("typescript/host.mjs");

/// What plugins import at run time; the host is it.
const PACKAGE: &str = "@matthias-hausberger/beige";

/// How long `node --version` may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Oldest node that knows TypeScript.
const OLDEST_NODE: Version = (22, 6);

/// Most bytes of a variable that Linux passes on, with its name.
const LONGEST_VARIABLE: usize = 128 * 1024;

/// Major and minor.
type Version = (u32, u32);

/// A program that runs TypeScript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    Node(PathBuf, Version),
    Deno(PathBuf),
    Bun(PathBuf),
}

/// Lays the host and its FIFOs, and finds what runs it: the process to start,
/// and its FIFOs, which are to be served. [`Kind::Config`] if no runtime fits,
/// with what is needed.
pub(super) fn prepare(
    launch: &Launch,
    plugin: &TypeScript,
    asker: Asker<'_>,
) -> Result<(Launch, Fifos)> {
    if plugin.config.len() + 64 > LONGEST_VARIABLE {
        let what = "its configuration is longer than 128 KiB as JSON";
        return Err(Error::new(Kind::TooLarge, what));
    }
    let runtime = find(launch, asker)?;
    let host = lay(&plugin.place)?;
    let fifos = Fifos::make(&plugin.place)?;
    let mut env = launch.env.clone();
    let given: [(&str, &OsStr); 6] = [
        ("BEIGE_PLUGIN_ENTRY", plugin.entry.as_os_str()),
        ("BEIGE_PLUGIN_CONFIG", plugin.config.as_ref()),
        ("BEIGE_DATA_DIR", plugin.data.as_os_str()),
        ("BEIGE_SYNC_ASK", fifos.ask.as_os_str()),
        ("BEIGE_SYNC_ANSWER", fifos.answer.as_os_str()),
        // Deno asks its makers for news otherwise.
        ("DENO_NO_UPDATE_CHECK", "1".as_ref()),
    ];
    env.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let argv = argv(&runtime, &host);
    Ok((Launch { argv, env, typescript: None, ..launch.clone() }, fifos))
}

/// The first of node, deno and bun on the plugin's PATH that can do it.
pub(super) fn find(launch: &Launch, asker: Asker<'_>) -> Result<Runtime> {
    let mut passed_over = Vec::new();
    for program in run::on_path("node", launch.variable("PATH"), &launch.folder) {
        match node_version(launch, &program, asker) {
            Ok(version) if version >= OLDEST_NODE => return Ok(Runtime::Node(program, version)),
            Ok((major, minor)) => {
                passed_over.push(format!("{} is {major}.{minor}", program.display()));
            }
            Err(error) => passed_over.push(error.to_string()),
        }
    }
    let first = |name| run::on_path(name, launch.variable("PATH"), &launch.folder).next();
    if let Some(deno) = first("deno") {
        return Ok(Runtime::Deno(deno));
    }
    if let Some(bun) = first("bun") {
        return Ok(Runtime::Bun(bun));
    }
    let mut what = "a plugin in TypeScript needs node 22.6 or newer, deno or bun on PATH, and \
                    there is none"
        .to_owned();
    if !passed_over.is_empty() {
        what.push_str(&format!(" ({})", passed_over.join("; ")));
    }
    Err(Error::new(Kind::Config, what))
}

fn node_version(launch: &Launch, node: &Path, asker: Asker<'_>) -> Result<Version> {
    let mut command = Command::new(node);
    command.arg("--version").env_clear().envs(launch.env.iter().map(|(name, it)| (name, it)));
    let bounds = Bounds { timeout: PATIENCE, stdout: 1024, stderr: 1024 };
    let what = || format!("ask {} for its version", node.display());
    let ended = child::run(&mut command, None, bounds, asker).map_err(|it| it.within(what()))?;
    let text = String::from_utf8_lossy(&ended.stdout.bytes).into_owned();
    version(&text).filter(|_| ended.code == 0).ok_or_else(|| {
        Error::new(Kind::Internal, format!("{} tells no version of its own", node.display()))
    })
}

/// `v22.6.0`, as node says it.
fn version(text: &str) -> Option<Version> {
    let mut numbers = text.trim().strip_prefix('v')?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What is started. Pure.
fn argv(runtime: &Runtime, host: &Path) -> Vec<OsString> {
    let words = |program: &Path, words: &[&str]| {
        let words = words.iter().map(OsString::from);
        std::iter::once(program.as_os_str().to_owned()).chain(words).collect::<Vec<_>>()
    };
    match runtime {
        Runtime::Node(node, version) => {
            let mut argv = words(node, node_flags(*version));
            argv.push(host.into());
            argv
        }
        // By `run` it would look for package.json beside the host; here it does
        // in its working folder, the plugin's.
        Runtime::Deno(deno) => {
            let host = file_url(host);
            // In the URL of the map what is encoded is so once more.
            let map = json!({"imports": {PACKAGE: host}}).to_string().replace('%', "%25");
            let map = format!("--import-map=data:application/json,{map}");
            let import = format!("import {}", Value::from(host));
            let flags = ["eval", "--quiet", "--no-lock", "--unstable-sloppy-imports", &map];
            [words(deno, &flags), vec![import.into()]].concat()
        }
        Runtime::Bun(bun) => {
            let mut argv = words(bun, &["run", "--no-install"]);
            argv.push(host.into());
            argv
        }
    }
}

/// What a node of that version has to be told to take TypeScript, and to say
/// nothing of it.
fn node_flags(version: Version) -> &'static [&'static str] {
    const QUIET: &str = "--disable-warning=ExperimentalWarning";
    const TYPELESS: &str = "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON";
    match version {
        (22, 6) => &[QUIET, TYPELESS, "--experimental-strip-types", "--experimental-detect-module"],
        (22, 7..18) | (23, 0..6) => &[QUIET, TYPELESS, "--experimental-transform-types"],
        _ => &[QUIET, TYPELESS],
    }
}

/// A path as a URL.
fn file_url(path: &Path) -> String {
    let mut url = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                url.push(char::from(*byte));
            }
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    url
}

/// The host's file, written whole: one that runs is not disturbed.
fn lay(place: &Path) -> Result<PathBuf> {
    create_private(place)?;
    let path = place.join("host.mjs");
    if fs::read(&path).is_ok_and(|it| it == HOST.as_bytes()) {
        return Ok(path);
    }
    // A one-shot may do the same beside the gateway.
    let fresh = place.join(format!("host.mjs.{}", std::process::id()));
    let opened = open_own(&fresh, File::options().write(true).create(true).truncate(true));
    opened
        .and_then(|mut it| it.write_all(HOST.as_bytes()))
        .and_then(|()| fs::rename(&fresh, &path))
        .during(Kind::Internal, format!("write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests;
