//! What an agent asks of git, read from its arguments and held against the
//! table of commands and the configuration. Pure; what is refused is refused
//! before anything runs, and says why.

use super::commands::{INNOCENT, KNOWN, Known, NEVER, Options, Words, named, options};
use super::settings::Settings;

/// A call that may be made.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// `-C FOLDER`, each a word of its own.
    pub(super) folders: Vec<&'a str>,
    pub(super) command: &'static Known,
    /// What follows the command.
    pub(super) rest: Vec<&'a str>,
}

/// The arguments of a command that transfers.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parsed<'a> {
    /// Names as they were given, values where they have one.
    pub(super) options: Vec<(String, Option<&'a str>)>,
    /// All else.
    pub(super) operands: Vec<&'a str>,
}

/// Global options that change nothing but where git stands or how it prints.
const HARMLESS: [&str; 5] =
    ["--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-advice"];

/// What the arguments ask for, if it may be asked for; else why it may not.
pub(super) fn read<'a>(args: &'a [String], settings: &Settings) -> Result<Asked<'a>, String> {
    let mut words = args.iter().map(String::as_str);
    let mut folders = Vec::new();
    let name = loop {
        match words.next() {
            None => return Err(format!("say a command: {}", names(settings))),
            Some("--version") => break "version",
            Some("-C") => {
                let folder = words.next().ok_or("`-C` wants a folder behind it")?;
                folders.extend(["-C", folder]);
            }
            Some(it) if HARMLESS.contains(&it) => {}
            Some(it) if it.starts_with('-') => {
                return Err(format!("`{it}` before the command is not allowed here"));
            }
            Some(name) => break name,
        }
    };
    let command = permitted(name, settings)?;
    let rest: Vec<&str> = words.collect();
    if let Some(option) = rest.iter().find_map(|it| refused(command, it)) {
        return Err(format!("`git {name} {option}` is not allowed here"));
    }
    check_word(command, &rest)?;
    Ok(Asked { folders, command, rest })
}

/// The command, if agents may have it and this one may.
fn permitted(name: &str, settings: &Settings) -> Result<&'static Known, String> {
    let Some(command) = named(name) else {
        let hint = match name {
            "config" => "; who commits is `identity` of the plugin's configuration",
            _ => "; `git` alone says what is",
        };
        return Err(format!("`git {name}` is not allowed here{hint}"));
    };
    if !settings.allows(name) {
        return Err(format!("`git {name}` is not allowed by this agent's configuration"));
    }
    Ok(command)
}

fn names(settings: &Settings) -> String {
    let names: Vec<&str> =
        KNOWN.iter().map(|it| it.name).filter(|it| settings.allows(it)).collect();
    names.join(", ")
}

/// The refused option that a word is or holds. git takes any beginning of a
/// long option that means one only, so each beginning of a refused one counts;
/// words behind `--` are looked at too, since values may be `--`.
fn refused(command: &Known, word: &str) -> Option<&'static str> {
    let mut refused = command.refused.iter().chain(&NEVER);
    if let Some(long) = word.strip_prefix("--") {
        let name = long.split_once('=').map_or(long, |(name, _)| name);
        let is_one = |it: &&&str| it.strip_prefix("--").is_some_and(|it| it.starts_with(name));
        let is_innocent = name.is_empty() || INNOCENT.contains(&name);
        return refused.find(is_one).filter(|_| !is_innocent).copied();
    }
    let letters = word.strip_prefix('-')?.chars();
    let taken = letters.scan(false, |is_value, it| {
        let shown = (!*is_value).then_some(it);
        *is_value |= command.valued.contains(it);
        shown
    });
    let letters: Vec<char> = taken.collect();
    refused
        .find(|it| it.len() == 2 && it.chars().nth(1).is_some_and(|it| letters.contains(&it)))
        .copied()
}

fn check_word(command: &Known, rest: &[&str]) -> Result<(), String> {
    let Some(word) = rest.iter().find(|it| !it.starts_with('-')) else { return Ok(()) };
    let is_allowed = match command.words {
        Words::Any => true,
        Words::Only(words) => words.contains(word),
        Words::Not(words) => !words.contains(word),
    };
    if is_allowed {
        return Ok(());
    }
    let hint = match command.name {
        "remote" => "; take `git fetch --prune`",
        "submodule" => "; clone what it names by itself",
        _ => "",
    };
    Err(format!("`git {} {word}` is not allowed here{hint}", command.name))
}

/// Reads the arguments of a command that transfers: every option must be one of
/// the table, by its whole name.
pub(super) fn parse<'a>(command: &Known, rest: &[&'a str]) -> Result<Parsed<'a>, String> {
    let known = options(command.name);
    let mut parsed = Parsed::default();
    let mut words = rest.iter().copied();
    while let Some(word) = words.next() {
        if word == "--" {
            parsed.operands.extend(words);
            break;
        }
        if !word.starts_with('-') || word == "-" {
            parsed.operands.push(word);
            continue;
        }
        let last = if word.starts_with("--") {
            Some(long(known, word, &mut parsed)?)
        } else {
            shorts(known, word, &mut parsed)?
        };
        if let Some(name) = last.filter(|it| known.valued.contains(&it.as_str())) {
            let value = words.next().ok_or(format!("`{name}` wants a value"))?;
            parsed.options.push((name, Some(value)));
        }
    }
    Ok(parsed)
}

/// Takes a long option; gives its name, which wants a value if it is valued.
fn long<'a>(known: &Options, word: &'a str, parsed: &mut Parsed<'a>) -> Result<String, String> {
    let (name, value) = word.split_once('=').map_or((word, None), |(it, value)| (it, Some(value)));
    let is_valued = known.valued.contains(&name);
    let fits = match value {
        Some(_) => is_valued || known.either.contains(&name),
        None => is_valued || known.flags.contains(&name) || known.either.contains(&name),
    };
    if !fits {
        return Err(unknown(name));
    }
    if is_valued && value.is_none() {
        return Ok(name.to_owned());
    }
    parsed.options.push((name.to_owned(), value));
    Ok(String::new())
}

/// Takes a word of short options; gives the last if its value is the next word.
fn shorts<'a>(
    known: &Options,
    word: &'a str,
    parsed: &mut Parsed<'a>,
) -> Result<Option<String>, String> {
    for (at, letter) in word.char_indices().skip(1) {
        let name = format!("-{letter}");
        if known.valued.contains(&name.as_str()) {
            let value = &word[at + letter.len_utf8()..];
            if value.is_empty() {
                return Ok(Some(name));
            }
            parsed.options.push((name, Some(value)));
            return Ok(None);
        }
        if !known.flags.contains(&name.as_str()) {
            return Err(unknown(&name));
        }
        parsed.options.push((name, None));
    }
    Ok(None)
}

fn unknown(name: &str) -> String {
    format!("`{name}` is not allowed here (options of commands that transfer are written in full)")
}

impl Parsed<'_> {
    /// Whether one of these options was given.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|(it, _)| names.contains(&it.as_str()))
    }

    /// Those of these options that were given, as words, each in one.
    pub(super) fn only(&self, names: &[&str]) -> Vec<String> {
        let given = self.options.iter().filter(|(it, _)| names.contains(&it.as_str()));
        given
            .map(|(name, value)| match value {
                Some(value) if name.starts_with("--") => format!("{name}={value}"),
                Some(value) => format!("{name}{value}"),
                None => name.clone(),
            })
            .collect()
    }

    /// What would overwrite or remove something over there, by the arguments.
    pub(super) fn forces(&self) -> Option<&str> {
        let option = self.options.iter().map(|(it, _)| it.as_str());
        let names =
            ["-f", "--force", "--force-with-lease", "-d", "--delete", "--mirror", "--prune"];
        let refspecs = self.operands.iter().skip(1).copied();
        let refspecs =
            refspecs.filter(|it| it.starts_with('+') || it.starts_with(':') && *it != ":");
        option.filter(|it| names.contains(it)).chain(refspecs).next()
    }
}
