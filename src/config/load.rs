//! From a file to a sound configuration or to everything that is wrong with
//! it. Owns the order of the steps and what is looked at outside the file:
//! the environment, and what the host has.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::Value;

use crate::config::assemble::Assembly;
use crate::config::key_path::{KeyPath, Step};
use crate::config::node::Node;
use crate::config::position::Places;
use crate::config::report::{Findings, Report};
use crate::config::substitute::{Environment, Substitution};
use crate::config::{Config, Home, check, effective, schema, secrets, source};
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

/// A sound configuration and what its author should know.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// One warning a line: `FILE:LINE:COLUMN: warning: key.path: text`.
    pub warnings: Vec<String>,
    /// The whole file with its defaults, for people: secrets are dots.
    pub effective: Value,
}

/// Everything that is known of a file after all steps.
#[derive(Debug)]
pub struct Examined {
    /// All findings.
    pub report: Report,
    /// The configuration, if no finding is an error; with what
    /// [`Loaded::effective`] holds.
    pub sound: Option<(Config, Value)>,
    source: Source,
}

/// What places findings that come later: the file's text, and what none of
/// them may repeat.
#[derive(Debug, Default)]
struct Source {
    text: String,
    hidden: Vec<String>,
    unmasked: Vec<KeyPath>,
}

/// What a configuration means depends on where it is read.
pub struct Surroundings<'a> {
    /// The environment.
    pub environment: &'a Environment<'a>,
    /// The host's memory, if it can be found out.
    pub memory_bytes: Option<u64>,
    /// The processors this process may use.
    pub cpus: Option<usize>,
    /// The user this process is.
    pub uid: u32,
}

/// Loads the configuration. The error ([`Kind::Config`]) is every finding, one
/// a line: `FILE:LINE:COLUMN: key.path: text`.
pub fn load(file: &Path, home: &Home) -> Result<Loaded> {
    load_in(file, home, &Surroundings::of_this_process())
}

/// The same in other surroundings.
pub fn load_in(file: &Path, home: &Home, surroundings: &Surroundings<'_>) -> Result<Loaded> {
    let Examined { report, sound, .. } = examine(file, home, surroundings);
    let Some((config, effective)) = sound else { return Err(report.into()) };
    let file = report.file.display();
    let warnings = report.findings.iter().map(|it| format!("{file}:{it}")).collect();
    Ok(Loaded { config, warnings, effective })
}

/// Reads and checks the file; what is wrong with it is the answer, not an
/// error.
pub fn examine(file: &Path, home: &Home, surroundings: &Surroundings<'_>) -> Examined {
    match source::read_config(file, &home.config_file()) {
        Ok(bytes) => examine_bytes(file, home, surroundings, &bytes),
        Err(report) => Examined::unread(report),
    }
}

/// The file that counts: the one given, else `$BEIGE_CONFIG`, else the state
/// folder's. Absolute; whether it exists is not looked at.
pub fn locate(flag: Option<&Path>, home: &Home) -> Result<PathBuf> {
    choose(flag, env::var_os("BEIGE_CONFIG"), home)
}

impl Examined {
    /// Adds what was found in what the file names, each at the place of its
    /// key. With an error among it the configuration is sound no more.
    pub fn add(&mut self, findings: Findings) {
        let Source { text, hidden, .. } = &self.source;
        let places = Places::read(text);
        let file = &self.report.file;
        let report = findings.into_report(file, &places, &|it| secrets::hide(it, hidden));
        self.report.add(report);
        if self.report.has_errors() {
            self.sound = None;
        }
    }

    /// Where secrets stand that nothing is masked of: see
    /// [`crate::secret::is_masked`].
    pub fn unmasked(&self) -> &[KeyPath] {
        &self.source.unmasked
    }

    fn unread(report: Report) -> Self {
        Self { report, sound: None, source: Source::default() }
    }
}

impl Surroundings<'_> {
    /// Those of this very process.
    pub fn of_this_process() -> Self {
        Self {
            environment: &|name| env::var_os(name),
            memory_bytes: memory_of_host(),
            cpus: thread::available_parallelism().ok().map(usize::from),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

fn choose(flag: Option<&Path>, variable: Option<OsString>, home: &Home) -> Result<PathBuf> {
    if flag.is_some_and(|it| it.as_os_str().is_empty()) {
        return Err(Error::new(Kind::Usage, "--config needs the path of a file"));
    }
    let variable = variable.filter(|it| !it.is_empty()).map(PathBuf::from);
    let file = flag.map(Path::to_owned).or(variable).unwrap_or_else(|| home.config_file());
    Ok(absolute(&file))
}

/// A path that still means the same when the process moves.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn examine_bytes(
    file: &Path,
    home: &Home,
    surroundings: &Surroundings<'_>,
    bytes: &[u8],
) -> Examined {
    let read = source::decode(file, bytes)
        .and_then(|text| source::parse(file, text).map(|value| (text, value)));
    match read {
        Ok((text, value)) => examine_value(file, home, surroundings, text, value),
        Err(report) => Examined::unread(report),
    }
}

fn examine_value(
    file: &Path,
    home: &Home,
    surroundings: &Surroundings<'_>,
    text: &str,
    mut value: Value,
) -> Examined {
    let places = Places::read(text);
    let mut findings = Findings::default();
    for path in &places.duplicates {
        findings.error(path, "this key is given twice in its object; remove one of the two");
    }
    let full_path = absolute(file);
    let folder = full_path.parent().unwrap_or(&full_path);
    let user_home = (surroundings.environment)("HOME").filter(|it| !it.is_empty());
    let user_home = user_home.as_deref().map(Path::new);

    let mut substitution = Substitution::new(folder, user_home, surroundings.environment);
    let used = substitute(&mut value, &mut substitution, &mut findings);
    let from_files = substitution.from_files;
    check::check(&value, &schema::ROOT, &KeyPath::default(), &is_unused(&used), &mut findings);
    check::complete(&mut value, &schema::ROOT);

    let known = secrets::collect(&value, &from_files);
    let hidden = secrets::hidden(&substitution.secrets, &known);

    let mut assembly = Assembly::new(home, folder, user_home, surroundings, &mut findings);
    let order = places.keys(&KeyPath::from(["plugins"]));
    let mut config = assembly.config(full_path.clone(), &Node::root(&value), &order, &used);
    let all: BTreeSet<String> = known.into_iter().chain(substitution.secrets).collect();
    config.secrets = all.into_iter().map(Secret::new).collect();
    effective::fill_in(&mut value, &config);
    let unmasked = secrets::unmasked(&value, &from_files);
    secrets::mask(&mut value, &from_files);
    let report = findings.into_report(file, &places, &|it| secrets::hide(it, &hidden));
    let sound = (!report.has_errors()).then_some((config, value));
    Examined { report, sound, source: Source { text: text.to_owned(), hidden, unmasked } }
}

/// Substitutes everywhere but in providers that no agent refers to; gives the
/// names of the others.
fn substitute(
    value: &mut Value,
    substitution: &mut Substitution<'_>,
    findings: &mut Findings,
) -> BTreeSet<String> {
    let providers = KeyPath::from(["llm", "providers"]);
    substitution.replace(value, &KeyPath::default(), &|it| *it == providers, findings);
    let used = used_providers(&Node::root(value));
    if let Some(value) = value.pointer_mut("/llm/providers") {
        substitution.replace(value, &providers, &is_unused(&used), findings);
    }
    used
}

fn used_providers(root: &Node<'_>) -> BTreeSet<String> {
    let agents = root.get("agents").entries().into_iter();
    let models = agents.flat_map(|(_, agent)| {
        let mut models = agent.get("fallbackModels").items();
        models.push(agent.get("model"));
        models
    });
    models.filter_map(|it| it.get("provider").text().map(str::to_owned)).collect()
}

fn is_unused(used: &BTreeSet<String>) -> impl Fn(&KeyPath) -> bool {
    move |path| match path.steps() {
        [Step::Key(llm), Step::Key(providers), Step::Key(name)] => {
            &**llm == "llm" && &**providers == "providers" && !used.contains(&**name)
        }
        _ => false,
    }
}

fn memory_of_host() -> Option<u64> {
    total_memory(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Reads the line `MemTotal:  16384 kB`.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|it| it.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests;
