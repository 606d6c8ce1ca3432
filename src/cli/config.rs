//! `beige config`: says what is wrong with a configuration, and shows what it
//! comes to with every default. Reads only; secrets are dots.

use lexopt::Arg::{Long, Value as Positional};
use serde_json::{Value, json};

use super::table::{NOTHING, action, flag};
use super::{Command, Invocation, present, print_json, tell, unknown, unknown_action};
use crate::config::{
    self, Config, Examined, Finding, Findings, HOSTS_OWN_NETWORK, KeyPath, Network, Report,
    RuntimeChoice, Surroundings,
};
use crate::error::{During, Error, Kind, Result};
use crate::{plugin, provider, turn};

/// What is told of a secret that the redactor leaves alone.
const UNMASKED: &str = "this secret is not masked in logs, errors and answers: only what has 8 \
                        characters or more and is no number or common word is";

/// Exit code of a configuration that cannot be used.
const BAD_CONFIG: u8 = 78;

/// `beige config`.
pub(super) const COMMAND: Command = Command {
    name: "config",
    summary: "Check the configuration, show it whole, print its schema",
    help: "\
Usage: beige config check [--strict] [--json]
       beige config show [--json]
       beige config schema [--strict] [--json]

  check   prints every finding, one a line: FILE:LINE:COLUMN: key.path: text;
          once the file itself is sound, also those in the plugins, skills
          and cassettes that it names
  show    prints the whole configuration as JSON, with its defaults and with
          paths and sizes as they count, secrets as ••••
  schema  prints a JSON Schema (draft 07) of what a configuration may hold, for
          editors; needs no configuration

Options:
  --strict       warnings count as errors: unknown fields in a schema
  --json         check: one JSON document {\"ok\", \"file\", \"findings\"};
                 show, schema: as without
  --config FILE  use this configuration

Exit codes: 0 sound, 2 usage, 78 bad configuration.
",
    takes: NOTHING,
    actions: &[
        action("check", &[flag(&["--strict"]), flag(&["--json"])]),
        action("show", &[flag(&["--json"])]),
        action("schema", &[flag(&["--strict"]), flag(&["--json"])]),
    ],
    run,
};

#[derive(Default)]
struct Options {
    action: Option<String>,
    strict: bool,
    json: bool,
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    let options = parse(invocation)?;
    match options.action.as_deref() {
        Some("check") => check(invocation, &options),
        Some("show") if options.strict => {
            Err(Error::new(Kind::Usage, "--strict belongs to `beige config check` and `schema`"))
        }
        Some("show") => show(invocation),
        Some("schema") => schema(options.strict),
        Some(other) => Err(unknown_action(&COMMAND, other)),
        None => Err(Error::new(Kind::Usage, "say check, show or schema")),
    }
}

fn parse(invocation: &mut Invocation) -> Result<Options> {
    let mut options = Options::default();
    while let Some(argument) = invocation.next()? {
        match argument {
            Long("strict") => options.strict = true,
            Long("json") => options.json = true,
            Positional(action) if options.action.is_none() => {
                options.action = Some(action.to_string_lossy().into_owned());
            }
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    Ok(options)
}

fn check(invocation: &Invocation, options: &Options) -> Result<u8> {
    let report = examine_all(invocation)?;
    let ok = is_ok(&report, options.strict);
    if options.json {
        print_json(&format!("{}\n", document(&report, ok)))?;
    } else if report.is_empty() {
        present(&format!("{}: sound\n", report.file.display()))?;
    } else {
        present(&format!("{report}\n"))?;
    }
    Ok(if ok { 0 } else { BAD_CONFIG })
}

fn show(invocation: &Invocation) -> Result<u8> {
    let Examined { report, sound, .. } = examine(invocation)?;
    let Some((config, mut effective)) = sound else { return Err(report.into()) };
    fill_in_thresholds(&mut effective, &config);
    if !report.is_empty() {
        tell(&report.to_string());
    }
    let text = serde_json::to_string_pretty(&effective)
        .during(Kind::Internal, "write the configuration as JSON")?;
    print_json(&format!("{text}\n"))?;
    Ok(0)
}

/// Puts in when a conversation is compacted, which follows from the model.
fn fill_in_thresholds(shown: &mut Value, config: &Config) {
    let providers = provider::Registry::new(&config.providers);
    for agent in config.agents.values() {
        for (number, choice) in agent.choices().enumerate() {
            let place = match number.checked_sub(1) {
                None => format!("/agents/{}/model", agent.name),
                Some(index) => format!("/agents/{}/fallbackModels/{index}", agent.name),
            };
            let threshold = turn::compaction_threshold(&providers, choice);
            if let (Some(entry), Some(it)) = (shown.pointer_mut(&place), threshold) {
                entry["compactionThreshold"] = json!(it);
            }
        }
    }
}

fn schema(strict: bool) -> Result<u8> {
    let text = serde_json::to_string_pretty(&config::json_schema(strict))
        .during(Kind::Internal, "write the schema as JSON")?;
    print_json(&format!("{text}\n"))?;
    Ok(0)
}

fn examine(invocation: &Invocation) -> Result<Examined> {
    let file = invocation.config_file()?;
    Ok(config::examine(&file, &invocation.home()?, &Surroundings::of_this_process()))
}

/// Everything that is wrong with the configuration that counts: with the file,
/// and if it is sound, with what it names.
fn examine_all(invocation: &Invocation) -> Result<Report> {
    let mut examined = examine(invocation)?;
    if let Some((config, _)) = &examined.sound {
        let mut findings = beyond(config, examined.unmasked());
        provider::Registry::new(&config.providers).examine(&mut findings);
        examined.add(findings);
    }
    Ok(examined.report)
}

/// The same without a look at cassettes and certificates.
pub(super) fn examine_but_providers(invocation: &Invocation) -> Result<Examined> {
    let mut examined = examine(invocation)?;
    if let Some((config, _)) = &examined.sound {
        let findings = beyond(config, examined.unmasked());
        examined.add(findings);
    }
    Ok(examined)
}

/// The configuration that counts, if nothing is wrong with the file itself.
pub(super) fn sound(invocation: &Invocation) -> Result<Option<Config>> {
    Ok(examine(invocation)?.sound.map(|(config, _)| config))
}

/// An error of all that no gateway starts with: what is wrong with the file,
/// and if it is sound, with plugins, skills and what agents have of them. Cassettes may be
/// mended while it runs. Warnings are told.
pub(super) fn check_start(invocation: &Invocation) -> Result<()> {
    let report = examine_but_providers(invocation)?.report;
    if report.has_errors() {
        return Err(report.into());
    }
    if !report.is_empty() {
        tell(&report.to_string());
    }
    Ok(())
}

/// What is wrong with the plugins and skills that a sound file names and with
/// what agents have of them, and what a one-shot does not warn of each time.
fn beyond(config: &Config, unmasked: &[KeyPath]) -> Findings {
    let mut findings = Findings::default();
    for path in unmasked {
        findings.warn(path, UNMASKED);
    }
    let Config { plugins, skills, agents, home, .. } = config;
    let registry = plugin::Registry::examine(plugins, agents, home, &mut findings);
    plugin::Skills::examine(skills, agents, home, &registry, &mut findings);
    let providers = provider::Registry::new(&config.providers);
    providers.examine_costs(config.agents.values(), &mut findings);
    providers.examine_models(&config.agents, &mut findings);
    for (name, agent) in &config.agents {
        let sandbox = &agent.sandbox;
        if sandbox.runtime == RuntimeChoice::Bubblewrap && sandbox.network == Some(Network::Open) {
            let path = KeyPath::from(["agents", name, "sandbox", "network"]);
            findings.warn(&path, HOSTS_OWN_NETWORK);
        }
    }
    findings
}

fn is_ok(report: &Report, strict: bool) -> bool {
    !report.has_errors() && (report.is_empty() || !strict)
}

fn document(report: &Report, ok: bool) -> Value {
    let findings: Vec<Value> = report.findings.iter().map(finding).collect();
    json!({"ok": ok, "file": report.file.to_string_lossy(), "findings": findings})
}

/// A file that cannot be read has no line and no column: both are null.
fn finding(finding: &Finding) -> Value {
    let Finding { severity, position, path, message } = finding;
    json!({
        "severity": severity.name(),
        "line": position.map(|it| it.line),
        "column": position.map(|it| it.column),
        "path": path.to_string(),
        "message": message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Position, Severity};

    fn report(severities: &[Severity]) -> Report {
        let finding = |severity: &Severity| Finding {
            severity: *severity,
            position: Some(Position { line: 2, column: 3 }),
            path: KeyPath::from(["gateway", "port"]),
            message: "odd".into(),
        };
        Report { file: "f".into(), findings: severities.iter().map(finding).collect() }
    }

    #[track_caller]
    fn check_ok(severities: &[Severity], strict: bool, expected: bool) {
        assert_eq!(is_ok(&report(severities), strict), expected);
    }

    #[test]
    fn a_warning_fails_a_strict_check_only() {
        check_ok(&[], true, true);
        check_ok(&[Severity::Warning], false, true);
        check_ok(&[Severity::Warning], true, false);
        check_ok(&[Severity::Warning, Severity::Error], false, false);
    }

    #[test]
    fn a_report_is_one_document() {
        let expected = json!({"ok": true, "file": "f", "findings": [{
            "severity": "warning", "line": 2, "column": 3, "path": "gateway.port", "message": "odd",
        }]});
        assert_eq!(document(&report(&[Severity::Warning]), true), expected);
        let unread = Report {
            findings: vec![Finding {
                position: None,
                ..report(&[Severity::Error]).findings.remove(0)
            }],
            ..report(&[])
        };
        assert_eq!(document(&unread, false)["findings"][0]["line"], Value::Null);
    }

    #[test]
    fn a_mistyped_action_names_the_nearest() {
        let told = |word| unknown_action(&COMMAND, word).to_string();
        assert!(told("chekc").contains("did you mean `check`?"));
        assert_eq!(told("x"), "`x` is none of check, show or schema");
    }
}
