//! The shape of the command table: what each command takes, as values.
//! Did-you-mean, completions and the manual page are made from it; the reading
//! of arguments stands with each command, and tests hold the help against it.

use super::Invocation;
use crate::error::Result;

/// One command.
pub struct Command {
    /// Its name, as typed.
    pub name: &'static str,
    /// One line for the overview.
    pub summary: &'static str,
    /// The whole help: usage, then every flag.
    pub help: &'static str,
    /// What follows the name where no action does.
    pub takes: Takes,
    /// The words that say what to do, if it has any.
    pub actions: &'static [Action],
    /// Reads the arguments that follow the name and does the work.
    pub run: fn(&mut Invocation) -> Result<u8>,
}

/// A word after a command that says what to do.
pub struct Action {
    /// As typed.
    pub name: &'static str,
    /// What follows it.
    pub takes: Takes,
}

/// What can follow a command or an action, but for what all commands take.
#[derive(Clone, Copy, Default)]
pub struct Takes {
    /// In the order of the help.
    pub flags: &'static [Flag],
    /// In their order.
    pub operands: &'static [Word],
}

/// One flag.
pub struct Flag {
    /// Each way to write it, dashes included, the short one first.
    pub names: &'static [&'static str],
    /// What its value is, if it has one.
    pub value: Option<Word>,
}

/// What a value or an operand is, as far as a shell can help with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Nothing that could be proposed.
    Any,
    /// An agent of the configuration.
    Agent,
    /// A session, by its key or id.
    Session,
    /// A model, as provider/model.
    Model,
    /// A plugin of the configuration.
    Plugin,
    /// A file of the host.
    File,
    /// `--`, then a program and its arguments.
    Program,
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// Nothing at all.
pub(super) const NOTHING: Takes = Takes { flags: &[], operands: &[] };

/// What every command takes.
pub(super) const COMMON: &[Flag] = &[valued(&["--config"], Word::File), flag(&["-h", "--help"])];

/// A flag without a value.
pub(super) const fn flag(names: &'static [&'static str]) -> Flag {
    Flag { names, value: None }
}

/// A flag with a value.
pub(super) const fn valued(names: &'static [&'static str], value: Word) -> Flag {
    Flag { names, value: Some(value) }
}

/// An action with flags and no operands.
pub(super) const fn action(name: &'static str, flags: &'static [Flag]) -> Action {
    Action { name, takes: Takes { flags, operands: &[] } }
}

impl Command {
    /// The long flags of all its actions, and those that all commands take,
    /// for did-you-mean.
    pub fn long_flags(&self) -> impl Iterator<Item = &'static str> {
        self.own_flags().chain(COMMON).flat_map(|it| it.names).copied().filter(|it| is_long(it))
    }

    /// Every flag of its own, whatever the action.
    pub fn own_flags(&self) -> impl Iterator<Item = &'static Flag> {
        let of_actions = self.actions.iter().flat_map(|it| it.takes.flags);
        self.takes.flags.iter().chain(of_actions)
    }

    /// The names of its actions.
    pub fn action_names(&self) -> impl Iterator<Item = &'static str> {
        self.actions.iter().map(|it| it.name)
    }

    /// What the help says of a flag, without what follows a semicolon
    /// or a bracket; empty if it says nothing.
    pub fn told_of(&self, flag: &Flag) -> String {
        let name = flag.names.last().copied().unwrap_or_default();
        let mut lines = self.help.lines().skip_while(|it| !tells_of(it, flag));
        let Some(first) = lines.next() else { return String::new() };
        let Some(column) = column_of_text(first, name) else { return String::new() };
        let mut text = first[column..].trim().to_owned();
        let is_more = |it: &&str| it.len() > column && it[..column].trim().is_empty();
        for line in lines.take_while(|it| it.is_char_boundary(column.min(it.len())) && is_more(it))
        {
            text = format!("{text} {}", line.trim());
        }
        match text.find([';', '(']) {
            Some(end) => text[..end].trim().to_owned(),
            None => text,
        }
    }
}

/// Whether a line of a help begins with that flag.
fn tells_of(line: &str, flag: &Flag) -> bool {
    let is_name = |it: &str| flag.names.contains(&it.trim_end_matches(','));
    line.starts_with(' ') && line.split_whitespace().next().is_some_and(is_name)
}

/// Where the text begins behind the flag: after two blanks.
fn column_of_text(line: &str, name: &str) -> Option<usize> {
    let flag = line.find(name)?;
    let gap = flag + line[flag..].find("  ")?;
    Some(gap + line[gap..].find(|it| it != ' ')?)
}

fn is_long(name: &str) -> bool {
    name.starts_with("--")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{COMMANDS, HIDDEN};

    #[test]
    fn the_help_tells_of_every_flag_and_action() {
        for command in COMMANDS.iter().chain(HIDDEN) {
            for flag in command.own_flags() {
                assert!(!command.told_of(flag).is_empty(), "{}: {:?}", command.name, flag.names);
            }
            for name in command.action_names() {
                let usage = format!("beige {} {name}", command.name);
                assert!(command.help.contains(&usage), "{usage}");
            }
        }
    }

    #[test]
    fn the_table_has_every_flag_of_the_help() {
        for command in COMMANDS.iter().chain(HIDDEN) {
            let known: Vec<&str> = command.long_flags().collect();
            let words = command.help.split(|it: char| !it.is_alphanumeric() && it != '-');
            for word in words.filter(|it| it.starts_with("--") && it.len() > 2) {
                assert!(known.contains(&word), "beige {}: {word}", command.name);
            }
        }
    }

    #[test]
    fn what_is_told_of_a_flag_stops_at_a_semicolon() {
        let command = Command {
            name: "x",
            summary: "",
            help: "Usage: beige x [--a]\n  --a       one; two\n  -b, --bc N  so\n              many\n",
            takes: NOTHING,
            actions: &[],
            run: |_| Ok(0),
        };
        assert_eq!(command.told_of(&flag(&["--a"])), "one");
        assert_eq!(command.told_of(&flag(&["-b", "--bc"])), "so many");
        assert_eq!(command.told_of(&flag(&["--none"])), "");
    }
}
