//! `beige completions`: scripts for shells, and what the scripts ask. The
//! scripts hold no table: they hand the words to `beige completions answer`,
//! which walks the command table, so that a script never lags behind a binary.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::Arg::Value as Positional;

use super::columns::in_one_line;
use super::table::{Action, COMMON, Command, Flag, NOTHING, Takes, Word, action};
use super::{COMMANDS, Invocation, print, unknown, unknown_among};
use crate::audit::is_active;
use crate::config::{Agent, Config, Surroundings, examine};
use crate::error::{Error, Kind, Result};
use crate::session::{Listed, Store, Which};

/// Most sessions that are proposed: those that were written last.
const MOST_SESSIONS: usize = 50;

/// `beige completions`.
pub(super) const COMMAND: Command = Command {
    name: "completions",
    summary: "Print completions for bash, zsh or fish",
    help: "\
Usage: beige completions bash
       beige completions zsh
       beige completions fish
       beige completions answer -- [WORD…]

Prints a script that completes commands, flags, the agents and models of the
configuration, the newest 50 sessions, and files. Into the shell that runs, or
its start file:

  bash   eval \"$(beige completions bash)\"
  zsh    source <(beige completions zsh)       (after compinit)
  fish   beige completions fish | source

  answer  what the scripts ask at each TAB: the words after `beige` up to the
          cursor; the answer is one proposal a line, with what it means behind
          a tab. `:files` and `:programs` stand for those of the host.

  --config FILE  take agents and models from this configuration
",
    takes: NOTHING,
    actions: &[action("bash", &[]), action("zsh", &[]), action("fish", &[]), action("answer", &[])],
    run,
};

const BASH: &str = include_str!("completions/beige.bash");
const ZSH: &str = include_str!("completions/beige.zsh");
const FISH: &str = include_str!("completions/beige.fish");

fn run(invocation: &mut Invocation) -> Result<u8> {
    let name = match invocation.next()? {
        Some(Positional(name)) => name.to_string_lossy().into_owned(),
        Some(other) => return Err(unknown(&COMMAND, &other)),
        None => return Err(Error::new(Kind::Usage, "say bash, zsh or fish")),
    };
    let script = match name.as_str() {
        "bash" => BASH,
        "zsh" => ZSH,
        "fish" => FISH,
        "answer" => return answer(invocation),
        other => return Err(unknown_among(&COMMAND, other, &["bash", "zsh", "fish"])),
    };
    if let Some(extra) = invocation.next()? {
        return Err(unknown(&COMMAND, &extra));
    }
    print(script)?;
    Ok(0)
}

fn answer(invocation: &mut Invocation) -> Result<u8> {
    if !invocation.at_separator() {
        return Err(Error::new(Kind::Usage, "write `--` before the words"));
    }
    let words: Vec<String> = invocation.rest()?.into_iter().map(lossy).collect();
    let (current, before) = match words.split_last() {
        Some((current, before)) => (current.as_str(), before),
        None => ("", &[][..]),
    };
    let place = Place::after(before);
    let mut lines = String::new();
    for it in place.proposals(current, &|asked| found(invocation, asked)) {
        if is_plain(&it) {
            lines.push_str(&format!("{it}\n"));
        }
    }
    print(&lines)?;
    Ok(0)
}

/// Whether it is a proposal in one line that no terminal would obey: a shell
/// shows it as it stands.
fn is_plain(proposal: &str) -> bool {
    !proposal.chars().any(|it| it != '\t' && is_active(it))
}

fn lossy(word: OsString) -> String {
    word.to_string_lossy().into_owned()
}

/// Something of this host that is looked up.
struct Asked<'a> {
    kind: Word,
    /// The agent that stands on the line.
    agent: Option<&'a str>,
    /// The configuration that stands on the line.
    config: Option<PathBuf>,
}

/// What there is of that kind; nothing where it cannot be read, since a
/// complaint would stand in the middle of what is being typed.
fn found(invocation: &Invocation, asked: Asked<'_>) -> Vec<String> {
    match asked.kind {
        Word::Agent => {
            let config = config(invocation, asked.config);
            config.map(|it| it.agents.into_keys().collect()).unwrap_or_default()
        }
        Word::Model => {
            let config = config(invocation, asked.config);
            config.map(|it| models(&it, asked.agent)).unwrap_or_default()
        }
        Word::Session => sessions(invocation, asked.agent),
        Word::Plugin => {
            let config = config(invocation, asked.config);
            config.map(|it| it.plugins.into_iter().map(|it| it.name).collect()).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn config(invocation: &Invocation, named: Option<PathBuf>) -> Option<Config> {
    let file = named.map_or_else(|| invocation.config_file(), Ok).ok()?;
    let home = invocation.home().ok()?;
    examine(&file, &home, &Surroundings::of_this_process()).sound.map(|(config, _)| config)
}

/// The models of an agent, or of all if there is none of that name.
fn models(config: &Config, agent: Option<&str>) -> Vec<String> {
    let one = agent.and_then(|it| config.agents.get(it));
    let agents: Vec<&Agent> = one.map_or_else(|| config.agents.values().collect(), |it| vec![it]);
    let mut names: Vec<String> =
        agents.iter().flat_map(|it| it.choices()).map(|it| it.model.to_string()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The newest sessions, each by its key if it has one.
fn sessions(invocation: &Invocation, agent: Option<&str>) -> Vec<String> {
    let Ok(home) = invocation.home() else { return Vec::new() };
    let which = Which { agent: agent.map(str::to_owned), of_agents_too: false };
    let mut lines = Vec::new();
    let listed = Store::new(home).list(&which, &mut |session| {
        lines.extend(session_line(&session));
        Ok(lines.len() < MOST_SESSIONS)
    });
    // What was read before an error is proposed all the same.
    drop(listed);
    lines
}

fn session_line(session: &Listed) -> Option<String> {
    let word = session.key.as_deref().unwrap_or(&session.session_id);
    let said = in_one_line(session.name.as_deref().unwrap_or(&session.first_message));
    let said: String = said.replace('\t', " ").chars().take(60).collect();
    // A tab would end it.
    (!word.contains('\t')).then(|| format!("{word}\t{said}").trim_end().to_owned())
}

/// Where in the table the words so far have led.
#[derive(Default)]
struct Place {
    command: Option<&'static Command>,
    action: Option<&'static Action>,
    operands: usize,
    /// The flag whose value comes next.
    owing: Option<&'static Flag>,
    /// Behind the `--` before a program: so many words of it.
    program: Option<usize>,
    /// `beige help`.
    in_help: bool,
    config: Option<PathBuf>,
    agent: Option<String>,
}

impl Place {
    fn after(words: &[String]) -> Self {
        let mut place = Self::default();
        words.iter().for_each(|it| place.take(it));
        place
    }

    fn take(&mut self, word: &str) {
        if let Some(count) = &mut self.program {
            *count += 1;
        } else if self.owing.is_some() && word == "=" {
            // bash parts `--flag=value` into three words.
        } else if let Some(flag) = self.owing.take() {
            self.note(flag, word);
        } else if word == "--" {
            self.program = self.takes().operands.contains(&Word::Program).then_some(0);
        } else if word.starts_with('-') {
            match word.split_once('=') {
                Some((name, value)) => {
                    self.flag(name).into_iter().for_each(|it| self.note(it, value))
                }
                None => self.owing = self.flag(word).filter(|it| it.value.is_some()),
            }
        } else {
            self.take_operand(word);
        }
    }

    fn take_operand(&mut self, word: &str) {
        if self.takes().operands.get(self.operands) == Some(&Word::Agent) {
            self.agent = Some(word.to_owned());
        }
        match self.command {
            None if word == "help" => self.in_help = true,
            None => self.command = COMMANDS.iter().find(|it| it.name == word).copied(),
            Some(command) if self.action.is_none() && self.operands == 0 => {
                self.action = command.actions.iter().find(|it| it.name == word);
                self.operands = usize::from(self.action.is_none());
            }
            Some(_) => self.operands += 1,
        }
    }

    fn note(&mut self, flag: &Flag, value: &str) {
        if flag.names.contains(&"--config") {
            self.config = Some(value.into());
        }
    }

    fn flag(&self, name: &str) -> Option<&'static Flag> {
        self.flags().find(|it| it.names.contains(&name))
    }

    fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.takes().flags.iter().chain(COMMON)
    }

    fn takes(&self) -> Takes {
        match (self.action, self.command) {
            (Some(action), _) => action.takes,
            (None, Some(command)) => command.takes,
            (None, None) => NOTHING,
        }
    }

    /// What could stand here, each with what it means behind a tab.
    fn proposals(self, current: &str, found: &dyn Fn(Asked<'_>) -> Vec<String>) -> Vec<String> {
        match self.program {
            Some(0) => return vec![":programs".into()],
            Some(_) => return vec![":files".into()],
            None => {}
        }
        let valued = current.split_once('=').filter(|_| current.starts_with("--"));
        let flag = self.owing.or_else(|| self.flag(valued?.0));
        if let Some(kind) = flag.and_then(|it| it.value) {
            return self.of_kind(kind, found);
        }
        if current.starts_with('-') {
            return self.flag_names();
        }
        if self.in_help || self.command.is_none() {
            return commands();
        }
        let actions = self.command.filter(|_| self.action.is_none() && self.operands == 0);
        let mut proposals: Vec<String> =
            actions.into_iter().flat_map(Command::action_names).map(str::to_owned).collect();
        match self.takes().operands.get(self.operands) {
            Some(kind) => proposals.extend(self.of_kind(*kind, found)),
            None if proposals.is_empty() => proposals = self.flag_names(),
            None => {}
        }
        proposals
    }

    fn of_kind(&self, kind: Word, found: &dyn Fn(Asked<'_>) -> Vec<String>) -> Vec<String> {
        match kind {
            Word::Any => Vec::new(),
            Word::Agent | Word::Session | Word::Model | Word::Plugin => {
                let (agent, config) = (self.agent.as_deref(), self.config.clone());
                found(Asked { kind, agent, config })
            }
            Word::File => vec![":files".into()],
            Word::Program => vec!["--\tthe command follows".into()],
            Word::OneOf(words) => words.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    fn flag_names(&self) -> Vec<String> {
        let told = |flag: &Flag| self.command.map(|it| it.told_of(flag)).unwrap_or_default();
        let line = |flag: &'static Flag| {
            let told = told(flag);
            flag.names.iter().map(move |it| format!("{it}\t{told}").trim_end().to_owned())
        };
        self.flags().flat_map(line).collect()
    }
}

fn commands() -> Vec<String> {
    COMMANDS.iter().map(|it| format!("{}\t{}", it.name, it.summary)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_no_proposal() {
        assert!(is_plain("p/m") && is_plain("cli:a:1\tsaid"));
        for word in ["a\nb", "\x1b[2J", "\u{9b}2J\tsaid", "\u{202e}x"] {
            assert!(!is_plain(word), "{word:?}");
        }
    }

    fn proposed(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (current, before) = words.split_last().expect("a word");
        let found = |asked: Asked<'_>| match asked {
            Asked { kind: Word::Session, agent, .. } => vec![format!("session of {agent:?}")],
            Asked { kind: Word::Model, agent, .. } => vec![format!("model of {agent:?}")],
            Asked { config: Some(file), .. } => vec![format!("of {}", file.display())],
            _ => vec!["ada".to_owned(), "bob".to_owned()],
        };
        let lines = Place::after(before).proposals(current, &found);
        lines.into_iter().map(|it| it.split('\t').next().unwrap_or("").to_owned()).collect()
    }

    #[track_caller]
    fn check(line: &str, want: &[&str]) {
        assert_eq!(proposed(line), want, "{line}");
    }

    #[test]
    fn agents_are_proposed_where_an_agent_is_meant() {
        check("exec ", &["ada", "bob"]);
        check("exec --timeout 5 ", &["ada", "bob"]);
        check("exec --timeout=5 --json ", &["ada", "bob"]);
        check("prompt --session k ", &["ada", "bob"]);
        check("sandbox rm ", &["ada", "bob"]);
        check("audit --agent ", &["ada", "bob"]);
        check("audit --agent=", &["ada", "bob"]);
        check("audit --agent = ", &["ada", "bob"]);
    }

    #[test]
    fn sessions_and_models_are_those_of_the_agent_on_the_line() {
        check("prompt ada --session ", &["session of Some(\"ada\")"]);
        check("exec --session ", &["session of None"]);
        check("prompt ada --model ", &["model of Some(\"ada\")"]);
        check("prompt --model=", &["model of None"]);
        for action in ["show", "export", "rm"] {
            check(&format!("sessions {action} "), &["session of None"]);
        }
    }

    #[test]
    fn they_are_those_of_the_file_that_is_named() {
        check("--config f exec ", &["of f"]);
        check("exec --config=f ", &["of f"]);
        check("exec --config = f ", &["of f"]);
        check("exec --config ", &[":files"]);
    }

    #[test]
    fn behind_two_dashes_stands_a_program_of_ones_own() {
        check("exec ada ", &["--"]);
        check("exec ada -- ", &[":programs"]);
        check("exec ada -- ls ", &[":files"]);
        check("exec ada -- ls -", &[":files"]);
        check("exec ada -- ls -- --config ", &[":files"]);
    }

    #[test]
    fn actions_and_their_own_flags_are_proposed() {
        check("config ", &["check", "show", "schema"]);
        check("config show --", &["--json", "--config", "-h", "--help"]);
        check("gateway stop ", &["--config", "-h", "--help"]);
        check("gateway logs -n ", &[]);
        check("gateway logs -n 5 -", &["-n", "-f", "--config", "-h", "--help"]);
        check("sandbox build --root-tar ", &[":files"]);
        check("sandbox build --runtime ", &["docker", "podman"]);
        check("nosuch ", &COMMANDS.iter().map(|it| it.name).collect::<Vec<_>>());
    }

    #[test]
    fn help_takes_a_command() {
        assert_eq!(proposed("help "), proposed(""));
        assert!(proposed("").contains(&"exec".to_owned()));
    }
}
