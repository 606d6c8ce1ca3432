//! `beige doctor`: looks at everything that a gateway needs and says what is
//! wrong and how to mend it. It mends nothing itself and leaves nothing
//! behind: no folder, no image, no container. What takes time is looked at
//! side by side, and every look has an end of its own.

mod gateway;
mod home;
mod plugins;
mod providers;
mod sandboxes;
mod tools;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{after, select, unbounded};
use lexopt::Arg::Long;
use serde_json::{Value, json};

use super::config::{examine_but_providers, sound};
use super::table::{Takes, flag};
use super::{
    Command, Invocation, colours, counted, is_watched, present, print, print_json, tell, unknown,
};
use crate::clock::now;
use crate::config::{Config, Finding as ConfigFinding, HOSTS_OWN_NETWORK, Home, Report, Severity};
use crate::error::{Error, Result};
use crate::plugin::install::absent::NOT_INSTALLED;
use crate::provider::cooling_of;
use crate::sandbox::containers::Engine;
use crate::secret::Redactor;
use crate::worker;

/// `beige doctor`.
pub(super) const COMMAND: Command = Command {
    name: "doctor",
    summary: "Check that all is in place, and say how to mend what is not",
    help: "\
Usage: beige doctor [--json]

Looks at the configuration, the state folder and its permissions, a gateway
that runs, its port and sockets, disk space, Docker, Podman and bubblewrap with
what each agent would get, the programs that plugins start, and whether each
provider that an agent uses is reached: there it asks for the list of models,
with the key. It changes nothing and leaves nothing behind, but that the first
command of Podman of a user without root, which this may be, makes that user's
storage. Works with and without a running gateway.

A line is ok, a warning or a failure; each that is not ok says how to mend it.

Options:
  --json         one JSON document {\"ok\", \"checks\": [{\"name\", \"status\",
                 \"found\", \"fix\"}]}; status is ok, warning or failure
  --config FILE  use this configuration

Exit codes: 0 nothing failed, 1 something did, 2 usage.
",
    takes: Takes { flags: &[flag(&["--json"])], operands: &[] },
    actions: &[],
    run,
};

/// How long nothing is said while looks go on.
const SILENT: Duration = Duration::from_secs(1);

/// Looks that go on at a time.
const AT_A_TIME: usize = 16;

/// Findings of one configuration that get a line each.
const MOST_LINES: usize = 20;

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    name: String,
    status: Status,
    found: String,
    /// What to do; whatever is not ok has it.
    fix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    Warning,
    Failure,
}

/// A look that takes time.
struct Look<'a, T> {
    name: String,
    look: Box<dyn FnOnce() -> T + Send + 'a>,
}

/// What a look found.
enum Found {
    Gateway(Vec<Check>),
    Plugins(Vec<Check>),
    Provider(Check),
    Engine(Engine, sandboxes::Containers),
    Bubblewrap(Result<String>),
}

/// What is looked at.
struct Patient {
    home: Home,
    /// The configuration that a person named.
    named: Option<PathBuf>,
    /// `None` if it is not sound.
    config: Option<Config>,
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    let mut as_json = false;
    while let Some(argument) = invocation.next()? {
        match argument {
            Long("json") => as_json = true,
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    let checks = examine(invocation)?;
    let failed = checks.iter().any(|it| it.status == Status::Failure);
    match as_json {
        true => print_json(&format!("{}\n", document(&checks, !failed)))?,
        false => present_lines(&checks)?,
    }
    Ok(u8::from(failed))
}

/// Every check, in the order of the report, without a secret in it.
fn examine(invocation: &Invocation) -> Result<Vec<Check>> {
    let named = invocation.named_config_file()?;
    let patient = Patient { home: invocation.home()?, named, config: sound(invocation)? };
    // Each provider's own line says what is wrong with its files.
    let mut report = examine_but_providers(invocation)?.report;
    // Each agent's own line says so.
    report.findings.retain(|it| it.message != HOSTS_OWN_NETWORK);
    let mut checks = of_report(&report);
    checks.extend(tools::check(&patient));
    checks.extend(home::check(&patient));
    checks.extend(slow_checks(&patient)?);
    let redactor = Redactor::new();
    let secrets = patient.config.iter().flat_map(|it| &it.secrets);
    secrets.for_each(|it| redactor.learn(it.expose()));
    for check in &mut checks {
        check.found = redactor.mask(&check.found).into_owned();
    }
    Ok(checks)
}

fn slow_checks(patient: &Patient) -> Result<Vec<Check>> {
    let cooling = &cooling_of(&patient.home, now());
    let mut looks = vec![
        Look::new("gateway", || Found::Gateway(gateway::check(patient))),
        Look::new("plugins", || Found::Plugins(plugins::check(patient))),
        Look::new("bubblewrap", || Found::Bubblewrap(sandboxes::bubblewrap())),
    ];
    looks.extend(Engine::all().map(|engine| {
        let look = move || Found::Engine(engine, sandboxes::Containers::look(engine, patient));
        Look::new(engine.program(), look)
    }));
    for (name, provider) in patient.config.iter().flat_map(|it| &it.providers) {
        let agents = patient.config.iter().flat_map(|it| it.agents.values());
        let choices = agents.flat_map(|it| it.choices());
        let models = choices.map(|it| &it.model).filter(|it| it.provider == *name);
        let mut models: Vec<&str> = models.map(|it| it.model.as_str()).collect();
        models.sort_unstable();
        models.dedup();
        looks.push(Look::new(&format!("provider {name}"), move || {
            Found::Provider(providers::check(name, provider, &models, cooling))
        }));
    }
    let (mut docker, mut podman, mut bubblewrap) = (None, None, None);
    let (mut checks, mut of_plugins, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for found in side_by_side(looks)? {
        match found {
            Found::Engine(Engine::Docker, it) => docker = Some(it),
            Found::Engine(_, it) => podman = Some(it),
            Found::Bubblewrap(it) => bubblewrap = Some(it),
            Found::Gateway(it) => checks.extend(it),
            Found::Plugins(it) => of_plugins = it,
            Found::Provider(it) => last.push(it),
        }
    }
    if let (Some(docker), Some(podman), Some(bubblewrap)) = (docker, podman, bubblewrap) {
        let runtimes = sandboxes::Runtimes { docker, podman, bubblewrap };
        checks.extend(sandboxes::check(patient, &runtimes));
    }
    checks.extend(of_plugins);
    checks.extend(last);
    Ok(checks)
}

impl<'a, T> Look<'a, T> {
    fn new(name: &str, look: impl FnOnce() -> T + Send + 'a) -> Self {
        Self { name: name.to_owned(), look: Box::new(look) }
    }
}

/// Looks at all of it, and tells a person who watches what takes long. The
/// answers are in the order of the looks.
fn side_by_side<T: Send>(looks: Vec<Look<'_, T>>) -> Result<Vec<T>> {
    let mut found = Vec::new();
    let mut looks = looks.into_iter().peekable();
    while looks.peek().is_some() {
        found.extend(batch(looks.by_ref().take(AT_A_TIME).collect())?);
    }
    Ok(found)
}

fn batch<T: Send>(looks: Vec<Look<'_, T>>) -> Result<Vec<T>> {
    let mut waiting: Vec<String> = looks.iter().map(|it| it.name.clone()).collect();
    let (done, ended) = unbounded();
    let mut found: Vec<(usize, T)> = thread::scope(|scope| {
        for (index, look) in looks.into_iter().enumerate() {
            let done = done.clone();
            let body = move || drop(done.send((index, (look.look)())));
            worker::scoped(scope, &format!("doctor-{index}"), body)?;
        }
        drop(done);
        let mut found = Vec::new();
        let mut silence = after(SILENT);
        loop {
            select! {
                recv(ended) -> one => match one {
                    Ok((index, it)) => {
                        waiting[index].clear();
                        found.push((index, it));
                    }
                    Err(_) => return Ok::<_, Error>(found),
                },
                recv(silence) -> _ => {
                    tell_of(&waiting);
                    silence = crossbeam_channel::never();
                }
            }
        }
    })?;
    found.sort_by_key(|it| it.0);
    Ok(found.into_iter().map(|it| it.1).collect())
}

fn tell_of(waiting: &[String]) {
    let names: Vec<&str> = waiting.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
    if is_watched() {
        tell(&format!("waiting for {} …", names.join(", ")));
    }
}

/// A configuration's findings, a line each.
fn of_report(report: &Report) -> Vec<Check> {
    let place = report.file.display();
    if report.is_empty() {
        return vec![Check::ok("config", format!("{place} is sound"))];
    }
    let mut checks: Vec<Check> =
        report.findings.iter().take(MOST_LINES).map(|it| of_finding(report, it)).collect();
    let more = report.findings.len().saturating_sub(MOST_LINES);
    if more > 0 {
        let status = if report.has_errors() { Status::Failure } else { Status::Warning };
        let found = format!("{} more in {place}", counted(more as u64, "finding"));
        checks.push(Check::bad(status, "config", found, "see all: `beige config check`"));
    }
    checks
}

fn of_finding(report: &Report, finding: &ConfigFinding) -> Check {
    // Read again without the word that a report puts before a warning.
    let plain = ConfigFinding { severity: Severity::Error, ..finding.clone() };
    let found = format!("{}:{plain}", report.file.display());
    let status = match finding.severity {
        Severity::Error => Status::Failure,
        Severity::Warning => Status::Warning,
    };
    let fix = match report.file.exists() {
        true if finding.message.starts_with(NOT_INSTALLED) => "start a gateway, or update it",
        true => "change it there; `beige config check` says whether it is sound",
        false => "make a first one with `beige setup`, or name another with --config",
    };
    Check::bad(status, "config", found, fix)
}

impl Check {
    fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Ok, found: found.into(), fix: None }
    }

    fn warning(name: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::bad(Status::Warning, name, found, fix)
    }

    fn failure(name: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::bad(Status::Failure, name, found, fix)
    }

    fn bad(
        status: Status,
        name: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), status, found: found.into(), fix: Some(fix.into()) }
    }
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Ok => "32",
            Self::Warning => "33",
            Self::Failure => "31",
        }
    }
}

fn document(checks: &[Check], ok: bool) -> Value {
    let checks: Vec<Value> = checks
        .iter()
        .map(|it| {
            let mut check = json!({"name": it.name, "status": it.status.name(), "found": it.found});
            if let (Some(check), Some(fix)) = (check.as_object_mut(), &it.fix) {
                check.insert("fix".into(), fix.as_str().into());
            }
            check
        })
        .collect();
    json!({"ok": ok, "checks": checks})
}

fn present_lines(checks: &[Check]) -> Result<()> {
    let coloured = colours();
    for check in checks {
        let status = format!("{:7}", check.status.name());
        // What others wrote cannot colour a terminal, so these marks go apart.
        match coloured {
            true => print(&format!("\x1b[{}m{status}\x1b[0m", check.status.colour()))?,
            false => print(&status)?,
        }
        present(&line(check))?;
    }
    let failed = checks.iter().filter(|it| it.status == Status::Failure).count() as u64;
    let warned = checks.iter().filter(|it| it.status == Status::Warning).count() as u64;
    print(&match (failed, warned) {
        (0, 0) => "\nAll is in place.\n".to_owned(),
        (0, _) => format!("\nNothing failed; {}.\n", counted(warned, "warning")),
        _ => format!("\n{}, {}.\n", counted(failed, "failure"), counted(warned, "warning")),
    })
}

/// What stands behind the status: further lines are indented below the first.
fn line(check: &Check) -> String {
    let mut text = format!("  {}: {}", check.name, check.found.replace('\n', "\n         "));
    if let Some(fix) = &check.fix {
        text.push_str(&format!("\n         → {}", fix.replace('\n', "\n           ")));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_the_order_of_the_looks() {
        let (first, second) = crossbeam_channel::bounded(0);
        let looks = vec![
            // Ends only once the second has.
            Look::new("a", move || second.recv().map_or(0, |it: i32| it)),
            Look::new("b", move || first.send(1).map_or(0, |()| 2)),
        ];
        assert_eq!(side_by_side(looks).expect("threads"), [1, 2]);
        let many = (0..40).map(|it| Look::new("n", move || it)).collect();
        assert_eq!(side_by_side(many).expect("threads"), (0..40).collect::<Vec<i32>>());
    }

    #[test]
    fn a_line_is_followed_by_what_to_do() {
        let check = Check::failure("disk", "full\nreally", "free some");
        assert_eq!(line(&check), "  disk: full\n         really\n         → free some\n");
        let want = json!({"ok": false, "checks": [
            {"name": "disk", "status": "failure", "found": "full\nreally", "fix": "free some"},
            {"name": "port", "status": "ok", "found": "free"},
        ]});
        assert_eq!(document(&[check, Check::ok("port", "free")], false), want);
    }
}
