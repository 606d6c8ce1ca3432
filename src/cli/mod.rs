//! The command line: one table of commands, one file a command. Parsing only
//! records; building comes after. A command returns its exit code; nothing
//! here decides what the engine decides.

mod audit;
mod client;
mod columns;
mod completions;
mod config;
mod doctor;
mod exec;
mod gateway;
mod logger;
mod man;
mod output;
mod plugin_run;
mod plugins;
mod process;
mod prompt;
mod sandbox;
mod sessions;
mod setup;
mod stdin;
mod table;
mod usage;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lexopt::Arg::{self, Long, Short, Value};

use crate::config::{Config, Home, load, locate, nearest};
use crate::error::{Error, Kind, Result};
use crate::gateway::{ConfigInUse, require_among};
use crate::secret::Redactor;

use output::{
    colours, dim, inert, is_on_screen, is_watched, present, print, print_json, remark, tell,
    terminal_width, write_through,
};
pub use table::Command;

/// All commands, in the order of the overview.
const COMMANDS: &[&Command] = &[
    &setup::COMMAND,
    &gateway::COMMAND,
    &exec::COMMAND,
    &prompt::COMMAND,
    &sandbox::COMMAND,
    &sessions::COMMAND,
    &audit::COMMAND,
    &usage::COMMAND,
    &plugins::COMMAND,
    &config::COMMAND,
    &doctor::COMMAND,
    &completions::COMMAND,
    &man::COMMAND,
];

/// Commands that no list names: programs call them.
const HIDDEN: &[&Command] = &[&plugin_run::COMMAND];

/// What a command is called with.
pub struct Invocation {
    parser: lexopt::Parser,
    config: Option<PathBuf>,
    /// Whether one JSON document was asked for.
    json: bool,
}

/// Runs the command line; gives the exit code. Everything a person must know
/// has been written then.
pub fn run(parser: lexopt::Parser) -> u8 {
    process::pass_on_no_descriptors();
    process::survive_size_limit();
    match dispatch(parser) {
        Ok(code) => code,
        Err((command, error)) => report(command, &error),
    }
}

type Failure = (Option<&'static Command>, Error);

fn dispatch(mut parser: lexopt::Parser) -> Result<u8, Failure> {
    let mut config = None;
    loop {
        let argument = parser.next().map_err(|it| (None, usage(it)))?;
        match argument {
            None => {
                tell(&overview());
                return Ok(2);
            }
            Some(Long("help") | Short('h')) => return say(&overview()),
            Some(Long("version") | Short('V')) => {
                return say(&format!("beige {}\n", env!("CARGO_PKG_VERSION")));
            }
            Some(Long("config")) => {
                config = Some(parser.value().map_err(|it| (None, usage(it)))?.into());
            }
            Some(Value(name)) if name == "help" => return help(&mut parser),
            Some(Value(name)) => {
                let command = find(&name).map_err(|it| (None, it))?;
                let mut invocation = Invocation { parser, config, json: false };
                return (command.run)(&mut invocation).or_else(|error| match error.kind() {
                    Kind::Cancelled if invocation.help_asked(&error) => say(command.help),
                    _ => {
                        invocation.tell_failure(&error).map_err(|it| (Some(command), it))?;
                        Err((Some(command), error))
                    }
                });
            }
            Some(other) => {
                let text = shown(&other);
                let known = ["--help", "--version", "--config"];
                return Err((None, unknown_flag(&text, &known)));
            }
        }
    }
}

fn say(text: &str) -> Result<u8, Failure> {
    print(text).map(|()| 0).map_err(|it| (None, it))
}

/// `beige help [COMMAND]`: for those who look for it there.
fn help(parser: &mut lexopt::Parser) -> Result<u8, Failure> {
    let next = parser.next().map_err(|it| (None, usage(it)))?;
    match next {
        Some(Value(name)) => say(find(&name).map_err(|it| (None, it))?.help),
        _ => say(&overview()),
    }
}

fn find(name: &OsString) -> Result<&'static Command> {
    let name = name.to_string_lossy();
    if let Some(command) = COMMANDS.iter().chain(HIDDEN).find(|it| it.name == name) {
        return Ok(command);
    }
    let known = COMMANDS.iter().map(|it| it.name);
    let hint =
        nearest(&name, known).map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
    Err(Error::new(Kind::Usage, format!("there is no command `{name}`{hint}")))
}

fn overview() -> String {
    let mut text = String::from(
        "beige: a gateway for AI agents, each in a sandbox of its own\n\n\
         Usage: beige [--config FILE] COMMAND [ARGUMENTS]\n\nCommands:\n",
    );
    for command in COMMANDS {
        text.push_str(&format!("  {:11} {}\n", command.name, command.summary));
    }
    text.push_str(
        "\n`beige COMMAND --help` describes every flag.\n\
         State lies in $BEIGE_HOME (default ~/.beige).\n",
    );
    text
}

/// Tells a person what failed; gives the exit code of its kind.
fn report(command: Option<&'static Command>, error: &Error) -> u8 {
    if error.kind() == Kind::Cancelled {
        return 141; // The reader of our output went away: as SIGPIPE would.
    }
    let name = command.map_or_else(String::new, |it| format!(" {}", it.name));
    complain(&format!("beige{name}"), error);
    match error.kind() {
        Kind::Usage => {
            tell(&format!("See `beige{name} --help`."));
            2
        }
        Kind::Config => 78,
        _ => 1,
    }
}

/// Tells a person what failed, each line under the name of who speaks.
fn complain(who: &str, error: &Error) {
    error.to_string().lines().for_each(|it| tell(&format!("{who}: {it}")));
}

/// Marks the error that stands for `--help`.
const HELP: &str = "help was asked for";

impl Invocation {
    /// A command called with these arguments.
    #[cfg(test)]
    fn of<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        Self { parser: lexopt::Parser::from_args(arguments), config: None, json: false }
    }

    /// The next argument that is the command's own: `--config FILE` and
    /// `--help` are common to all and taken here.
    #[allow(clippy::should_implement_trait, reason = "what it gives borrows the parser")]
    pub fn next(&mut self) -> Result<Option<Arg<'_>>> {
        loop {
            // Looked at twice, since what is given out borrows the parser.
            let raw = self.parser.try_raw_args();
            let ahead = raw.and_then(|it| it.peek().map(ToOwned::to_owned));
            let ahead = ahead.unwrap_or_default();
            if ahead == "--help" || ahead == "-h" {
                return Err(Error::new(Kind::Cancelled, HELP));
            }
            self.json |= ahead == "--json";
            let is_config =
                ahead.to_str().is_some_and(|it| it.split('=').next() == Some("--config"));
            if !is_config {
                return self.parser.next().map_err(usage);
            }
            self.parser.next().map_err(usage)?;
            self.config = Some(self.parser.value().map_err(usage)?.into());
        }
    }

    /// The one document of a command that failed, for whoever asked for one
    /// and has none yet. Wrong usage is for who writes the call, not for a
    /// program.
    fn tell_failure(&self, error: &Error) -> Result<()> {
        let is_for_programs = !matches!(error.kind(), Kind::Usage | Kind::Cancelled);
        match self.json && is_for_programs && !output::has_printed() {
            true => print_json(&failure_document(&error.to_string())),
            false => Ok(()),
        }
    }

    fn help_asked(&self, error: &Error) -> bool {
        error.to_string() == HELP
    }

    /// Whether the next word is `--`.
    pub fn at_separator(&mut self) -> bool {
        self.parser.try_raw_args().is_some_and(|it| it.peek().is_some_and(|it| it == "--"))
    }

    /// All words after the `--` that comes next, exactly.
    pub fn rest(&mut self) -> Result<Vec<OsString>> {
        Ok(self.parser.raw_args().map_err(usage)?.skip(1).collect())
    }

    /// The value of the flag that was just given.
    pub fn value(&mut self) -> Result<OsString> {
        self.parser.value().map_err(usage)
    }

    /// The same as text.
    pub fn text(&mut self) -> Result<String> {
        self.value()?.into_string().map_err(|it| {
            Error::new(Kind::Usage, format!("the value `{}` is not UTF-8", it.display()))
        })
    }

    /// The state folder.
    pub fn home(&self) -> Result<Home> {
        Home::from_env()
    }

    /// The configuration file that counts.
    pub fn config_file(&self) -> Result<PathBuf> {
        locate(self.config.as_deref(), &self.home()?)
    }

    /// The configuration file that a person named, by flag or environment.
    fn named_config_file(&self) -> Result<Option<PathBuf>> {
        let by_variable = || std::env::var_os("BEIGE_CONFIG").is_some_and(|it| !it.is_empty());
        match self.config.is_some() || by_variable() {
            true => self.config_file().map(Some),
            false => Ok(None),
        }
    }

    /// Says in one line if the gateway that was just used has another
    /// configuration than a person may think.
    fn tell_of_other_config(&self, command: &str) {
        // Without a word of the gateway there is nothing to compare.
        let Some(used) = self.home().ok().and_then(|it| ConfigInUse::of_gateway(&it)) else {
            return;
        };
        let named = self.named_config_file().ok().flatten();
        let Some(difference) = used.difference(named.as_deref()) else { return };
        // What is not sound cannot be taken over.
        let is_broken = config::examine_but_providers(self).is_ok_and(|it| it.report.has_errors());
        match is_broken && used.difference(None).as_ref() == Some(&difference) {
            true => tell(&format!(
                "beige {command}: the configuration has changed since the gateway read it and is \
                 not sound (`beige config check`); the gateway goes on with what it has read"
            )),
            false => tell(&format!("beige {command}: {difference}")),
        }
    }

    /// What a person should know of the configuration of the gateway that is
    /// about to be used: that it has changed. An error ([`Kind::Config`]) if
    /// another one was named, since a call would then run by rules that nobody
    /// meant.
    fn notice_of_config(&self) -> Result<Option<String>> {
        let Some(used) = ConfigInUse::of_gateway(&self.home()?) else { return Ok(None) };
        match self.named_config_file()?.and_then(|it| used.differs_from(&it)) {
            Some(difference) => Err(Error::new(Kind::Config, difference)),
            None => Ok(used.change()),
        }
    }

    /// [`Kind::Missing`], with the nearest name, for an agent that is neither
    /// configured nor one of those `recorded`. Without a sound configuration
    /// nobody can say who there is.
    fn require_known_agent(
        &self,
        agent: &str,
        recorded: impl FnOnce() -> Result<BTreeSet<String>>,
    ) -> Result<()> {
        let Ok(Some(config)) = config::sound(self) else { return Ok(()) };
        if config.agents.contains_key(agent) {
            return Ok(());
        }
        let mut known = recorded()?;
        known.extend(config.agents.into_keys());
        require_among(agent, known.iter().map(String::as_str))
    }

    /// The checked configuration, its warnings told, and a redactor that
    /// knows its secrets.
    pub fn load_config(&self) -> Result<(Config, Redactor)> {
        let loaded = load(&self.config_file()?, &self.home()?)?;
        for warning in &loaded.warnings {
            tell(warning);
        }
        let redactor = Redactor::new();
        for secret in &loaded.config.secrets {
            redactor.learn(secret.expose());
        }
        Ok((loaded.config, redactor))
    }
}

/// A usage error for an argument that the command does not take, with the
/// nearest it does.
fn unknown(command: &Command, argument: &Arg<'_>) -> Error {
    match argument {
        Value(text) => Error::new(
            Kind::Usage,
            format!("`{}` is one argument too many for `beige {}`", text.display(), command.name),
        ),
        other => misplaced(command, &shown(other)).unwrap_or_else(|| {
            let known: Vec<&str> = command.long_flags().collect();
            unknown_flag(&shown(other), &known)
        }),
    }
}

/// A usage error for a flag that belongs to other actions of the command.
fn misplaced(command: &Command, flag: &str) -> Option<Error> {
    let takes = |it: &&table::Action| it.takes.flags.iter().any(|it| it.names.contains(&flag));
    let owners = command.actions.iter().filter(takes);
    let owners: Vec<String> =
        owners.map(|it| format!("`beige {} {}`", command.name, it.name)).collect();
    let what = format!("`{flag}` belongs to {}", owners.join(" and "));
    (!owners.is_empty()).then(|| Error::new(Kind::Usage, what))
}

/// A usage error for a word after a command that is none of its actions.
fn unknown_action(command: &Command, word: &str) -> Error {
    let known: Vec<&str> = command.action_names().collect();
    unknown_among(command, word, &known)
}

/// The same where only some of its actions are for people.
fn unknown_among(command: &Command, word: &str, known: &[&str]) -> Error {
    let text = match nearest(word, known.iter().copied()) {
        Some(it) => format!("there is no `beige {} {word}`; did you mean `{it}`?", command.name),
        None => format!("`{word}` is none of {}", in_words(known)),
    };
    Error::new(Kind::Usage, text)
}

/// `a, b or c`.
fn in_words(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}

fn unknown_flag(text: &str, known: &[&str]) -> Error {
    let hint = nearest(text, known.iter().copied())
        .map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
    Error::new(Kind::Usage, format!("there is no flag `{text}`{hint}"))
}

fn shown(argument: &Arg<'_>) -> String {
    match argument {
        Short(letter) => format!("-{letter}"),
        Long(name) => format!("--{name}"),
        Value(text) => text.to_string_lossy().into_owned(),
    }
}

/// A usage error out of the argument parser.
pub fn usage(error: lexopt::Error) -> Error {
    Error::new(Kind::Usage, error.to_string())
}

/// The document of a command that failed, instead of the one that was asked
/// for; its words are those on standard error.
fn failure_document(error: &str) -> String {
    format!("{}\n", serde_json::json!({ "error": error }))
}

/// The program itself, for starting it anew.
fn this_program() -> Result<PathBuf> {
    use crate::error::During;
    std::env::current_exe().during(Kind::Internal, "find the beige program itself")
}

/// So many things: `1 agent`, `2 agents`.
fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A path for people: `~/` for the home folder.
fn tidy(path: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|it| !it.is_empty()).map(PathBuf::from);
    match home.and_then(|it| path.strip_prefix(it).ok().map(Path::to_owned)) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}
