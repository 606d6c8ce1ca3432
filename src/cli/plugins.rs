//! `beige plugins`: lists, installs, updates, removes and imports plugins. What a plugin
//! may do is shown before it is installed, and nothing is replaced unasked. The
//! configuration that counts is changed by its text, so that all a person wrote
//! in it stays.

mod describe;
mod import;
mod install;
mod list;
mod remove;

use std::path::PathBuf;

use lexopt::Arg;
use serde_json::Value;

use super::table::{Action, NOTHING, Takes, Word, action, flag};
use super::{Command, Invocation, config, tell, unknown, unknown_action};
use crate::config::{Finding, Home, Severity, Step, nearest};
use crate::error::{Error, Kind, Result};
use install::Consent;

/// Exit code of a configuration that cannot be used.
const BAD_CONFIG: u8 = 78;

const INSTALL: Takes =
    Takes { flags: &[flag(&["-f", "--force"]), flag(&["-y", "--yes"])], operands: &[Word::File] };

/// The command.
pub(super) const COMMAND: Command = Command {
    name: "plugins",
    summary: "List, install, update, remove and import plugins",
    help: HELP,
    takes: NOTHING,
    actions: &[
        action("list", &[flag(&["--json"])]),
        Action { name: "install", takes: INSTALL },
        Action { name: "update", takes: Takes { flags: &[], operands: &[Word::Plugin] } },
        Action {
            name: "remove",
            takes: Takes { flags: &[flag(&["-f", "--force"])], operands: &[Word::Plugin] },
        },
        Action {
            name: "import",
            takes: Takes { flags: &[flag(&["-f", "--force"])], operands: &[Word::File] },
        },
    ],
    run,
};

const HELP: &str = "\
Usage: beige plugins list [--json]
       beige plugins install SOURCE [--force] [--yes]
       beige plugins update [NAME]
       beige plugins remove NAME [--force]
       beige plugins import FILE [--force]

list     the plugins of the configuration: what they give, which agents have
         them, where they lie and came from, and what is wrong with them
  --json         as one JSON array
install  shows what every plugin in a source provides and may do, copies it to
         ~/.beige/plugins, and adds an entry to the configuration, whose
         comments and layout stay. An entry that is there keeps its settings.
         SOURCE is one of
           FOLDER, ARCHIVE.tar.gz
           npm:NAME[@VERSION], a tag or a range such as ^1.2 in place of VERSION
           github:OWNER/REPOSITORY[/FOLDER][#BRANCH], a tag or commit as well
update   fetches installed plugins anew from where they came from: NAME, or all
remove   takes the entry out of the configuration, and the folder away if it was
         installed there. Refused while an agent still names the plugin
import   adds an entry for each server of an mcp.json, as editors keep it

  -f, --force    install, import: replaces without asking; remove: also what
                 is in use
  -y, --yes      answers yes on a terminal; without one it does not replace
  --config FILE  change this configuration

Agents may use a tool once their `tools` name it, and a gateway that runs learns
of all this by `beige gateway restart`. Exit codes: 0 done, 1 failed, 2 usage,
78 done, and the configuration must be mended before a gateway takes it.
";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    List { json: bool },
    Install { source: String, consent: Consent },
    Update { name: Option<String> },
    Remove { name: String, force: bool },
    Import { file: String, force: bool },
}

/// The files that all of it is about.
struct Place {
    home: Home,
    file: PathBuf,
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    let request = parse(invocation)?;
    let place = Place { home: invocation.home()?, file: invocation.config_file()? };
    match request {
        Request::List { json } => list::list(invocation, &place, json),
        Request::Install { source, consent } => {
            let names = install::install(&place, &source, consent)?;
            check(invocation, &names)
        }
        Request::Update { name } => {
            let names = install::update(&place, name.as_deref())?;
            check(invocation, &names)
        }
        Request::Import { file, force } => {
            let names = import::import(&place, &file, force)?;
            check(invocation, &names)
        }
        Request::Remove { name, force } => remove::remove(&place, &name, force).map(|()| 0),
    }
}

fn parse(invocation: &mut Invocation) -> Result<Request> {
    let action = match invocation.next()? {
        Some(Arg::Value(action)) => action.to_string_lossy().into_owned(),
        Some(other) => return Err(unknown(&COMMAND, &other)),
        None => {
            return Err(Error::new(
                Kind::Usage,
                "say `list`, `install`, `update`, `remove` or `import`",
            ));
        }
    };
    let Some(known) = COMMAND.actions.iter().find(|it| it.name == action) else {
        return Err(unknown_action(&COMMAND, &action));
    };
    let words = Words::read(invocation, known)?;
    let operand = |what| {
        let missing = || Error::new(Kind::Usage, format!("say {what}"));
        words.operand.clone().ok_or_else(missing)
    };
    Ok(match known.name {
        "list" => Request::List { json: words.json },
        "install" => Request::Install {
            source: operand(
                "what to install: a folder, a .tar.gz, npm:NAME or github:OWNER/REPOSITORY",
            )?,
            consent: Consent { force: words.force, yes: words.yes },
        },
        "update" => Request::Update { name: words.operand },
        "import" => Request::Import {
            file: operand("which file to import, an mcp.json")?,
            force: words.force,
        },
        _ => Request::Remove { name: operand("which plugin to remove")?, force: words.force },
    })
}

/// What stands behind an action.
#[derive(Default)]
struct Words {
    operand: Option<String>,
    json: bool,
    force: bool,
    yes: bool,
}

impl Words {
    /// Takes what the table says of that action, and nothing else.
    fn read(invocation: &mut Invocation, action: &Action) -> Result<Self> {
        let takes = |name: &str| action.takes.flags.iter().any(|it| it.names.contains(&name));
        let mut words = Self::default();
        while let Some(argument) = invocation.next()? {
            match argument {
                Arg::Long("json") if takes("--json") => words.json = true,
                Arg::Long("force") | Arg::Short('f') if takes("--force") => words.force = true,
                Arg::Long("yes") | Arg::Short('y') if takes("--yes") => words.yes = true,
                Arg::Value(word)
                    if words.operand.is_none() && !action.takes.operands.is_empty() =>
                {
                    words.operand = Some(text(&word)?);
                }
                other => return Err(unknown(&COMMAND, &other)),
            }
        }
        Ok(words)
    }
}

fn text(word: &std::ffi::OsStr) -> Result<String> {
    let text = word.to_str().map(str::to_owned);
    text.ok_or_else(|| Error::new(Kind::Usage, format!("`{}` is not UTF-8", word.display())))
}

/// Tells what is wrong with these entries, now that they are written; gives
/// the exit code.
fn check(invocation: &Invocation, names: &[String]) -> Result<u8> {
    let report = config::examine_but_providers(invocation)?.report;
    let is_told = |it: &&Finding| names.iter().any(|name| is_of(it, name));
    let told: Vec<&Finding> = report.findings.iter().filter(is_told).collect();
    for finding in &told {
        tell(&format!("{}:{finding}", report.file.display()));
    }
    let is_error = |it: &&Finding| it.severity == Severity::Error;
    Ok(if told.iter().any(is_error) { BAD_CONFIG } else { 0 })
}

/// Whether a finding is of the entry of that plugin.
fn is_of(finding: &Finding, name: &str) -> bool {
    let key = |it: &Step, want: &str| matches!(it, Step::Key(key) if **key == *want);
    match finding.path.steps() {
        [plugins, plugin, ..] => key(plugins, "plugins") && key(plugin, name),
        _ => false,
    }
}

/// The entry of that name in the configuration as it is written.
fn entry<'a>(written: &'a Value, name: &str) -> Result<&'a Value> {
    let entries = written["plugins"].as_object();
    entries.and_then(|it| it.get(name)).ok_or_else(|| {
        let known = entries.into_iter().flatten().map(|(name, _)| name.as_str());
        let hint =
            nearest(name, known).map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
        Error::new(Kind::Missing, format!("there is no plugin `{name}` in the configuration{hint}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, want: Result<Request, &str>) {
        let asked = parse(&mut Invocation::of(line.split_whitespace()));
        assert_eq!(asked.map_err(|it| it.to_string()), want.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn each_action_takes_its_own_words() {
        check("list --json", Ok(Request::List { json: true }));
        let consent = Consent { force: true, yes: true };
        check("install -y ./x -f", Ok(Request::Install { source: "./x".into(), consent }));
        check("update", Ok(Request::Update { name: None }));
        check("remove x", Ok(Request::Remove { name: "x".into(), force: false }));
        check("import -f x", Ok(Request::Import { file: "x".into(), force: true }));
        check("import", Err("say which file to import, an mcp.json"));
        check("remove", Err("say which plugin to remove"));
        check(
            "install",
            Err("say what to install: a folder, a .tar.gz, npm:NAME or github:OWNER/REPOSITORY"),
        );
        check("", Err("say `list`, `install`, `update`, `remove` or `import`"));
        check("remove x y", Err("`y` is one argument too many for `beige plugins`"));
        check("list x", Err("`x` is one argument too many for `beige plugins`"));
        check("update --yes", Err("`--yes` belongs to `beige plugins install`"));
        check("instal x", Err("there is no `beige plugins instal`; did you mean `install`?"));
    }
}
