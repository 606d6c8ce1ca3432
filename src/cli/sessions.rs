//! `beige sessions`: lists, shows, exports and removes stored conversations.
//! Reads and locks the files themselves, so it works with and without a
//! gateway.

mod list;

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lexopt::Arg;

use super::columns::in_one_line;
use super::config;
use super::table::{Action, NOTHING, Takes, Word, flag};
use super::{
    Command, Invocation, complain, present, print, print_json, tell, unknown, unknown_action,
    write_through,
};
use crate::clock::now;
use crate::error::{During, Error, Kind, Result};
use crate::message::{Block, Content, Message, StopReason};
use crate::secret::Redactor;
use crate::session::{self, Found, Listed, Store, Told, Which};
use crate::turn::CUT_AT_LIMIT;

/// The command.
pub(super) const COMMAND: Command = Command {
    name: "sessions",
    summary: "List, show, export and remove stored conversations",
    help: HELP,
    takes: NOTHING,
    actions: &[
        Action {
            name: "list",
            takes: Takes {
                flags: &[flag(&["--all"]), flag(&["--json"])],
                operands: &[Word::Agent],
            },
        },
        Action {
            name: "show",
            takes: Takes { flags: &[flag(&["--json"])], operands: &[Word::Session] },
        },
        Action {
            name: "export",
            takes: Takes { flags: &[], operands: &[Word::Session, Word::File] },
        },
        Action { name: "rm", takes: Takes { flags: &[], operands: &[Word::Session] } },
    ],
    run,
};

const HELP: &str = "\
Usage: beige sessions list [AGENT] [--all] [--json]
       beige sessions show ID|KEY [--json]
       beige sessions export ID|KEY [FILE]
       beige sessions rm ID|KEY...

A session is named by its ID, as `list` prints it, or by the key that means it,
such as cli:assistant:work. All of it works with and without a gateway.

list    the sessions of this home, the one that was written last first: when,
        whose, ID, number of messages, key, in brackets the model that was
        chosen for it, if one was, and its name or first message
  --all    also those that an agent started
  --json   one JSON document: {\"sessions\": [...]}
show    one conversation, the oldest message first
  --json   one JSON document: {\"session\", \"messages\": [{\"id\", \"timestamp\",
           \"message\"}...], \"more\"}
export  the session's file as it stands (JSONL in pi's format) on standard
        output (also if FILE is -), or in a new FILE; one that exists is not
        written over
rm      removes sessions for good, without a question: file and key; refused
        while a turn runs in it

  --config FILE   taken as by every command; sessions are those of the home

Exit codes: 0 done, 1 failed (also: no such session), 2 usage.
";

/// Messages that are shown; an export has all of them.
const MOST_SHOWN: usize = 50_000;

/// Output is printed in pieces of about so many bytes.
const PIECE: usize = 32 * 1024;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    List { which: Which, json: bool },
    Show { session: String, json: bool },
    Export { session: String, file: Option<PathBuf> },
    Remove { sessions: Vec<String> },
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    let request = parse(invocation)?;
    let store = Store::new(invocation.home()?);
    let redactor = known_secrets(invocation);
    run_request(&store, request, &redactor).map_err(with_list)
}

fn run_request(store: &Store, request: Request, redactor: &Redactor) -> Result<u8> {
    match request {
        Request::List { which, json: true } => list::list_as_json(store, &which, redactor)?,
        Request::List { which, json: false } => list::list(store, &which, redactor)?,
        Request::Show { session, json: true } => show_as_json(store, &session, redactor)?,
        Request::Show { session, json: false } => show(store, &session, redactor)?,
        Request::Export { session, file } => export(store, &session, file.as_deref())?,
        Request::Remove { sessions } => return remove(store, &sessions),
    }
    Ok(0)
}

/// Those of the configuration; without a sound one nobody can say what is secret.
fn known_secrets(invocation: &Invocation) -> Redactor {
    let redactor = Redactor::new();
    let config = config::sound(invocation).ok().flatten();
    config.iter().flat_map(|it| &it.secrets).for_each(|it| redactor.learn(it.expose()));
    redactor
}

fn parse(invocation: &mut Invocation) -> Result<Request> {
    let action = match invocation.next()? {
        Some(Arg::Value(action)) => action,
        Some(other) => return Err(unknown(&COMMAND, &other)),
        None => return Err(Error::new(Kind::Usage, "say `list`, `show`, `export` or `rm`")),
    };
    match action.to_str() {
        Some("list") => parse_list(invocation),
        Some("show") => parse_show(invocation),
        Some("export") => parse_export(invocation),
        Some("rm") => parse_remove(invocation),
        _ => Err(unknown_action(&COMMAND, &action.to_string_lossy())),
    }
}

fn parse_list(invocation: &mut Invocation) -> Result<Request> {
    let (mut which, mut json) = (Which::default(), false);
    while let Some(argument) = invocation.next()? {
        match argument {
            Arg::Long("json") => json = true,
            Arg::Long("all") => which.of_agents_too = true,
            Arg::Value(agent) if which.agent.is_none() => which.agent = Some(text(agent)?),
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    Ok(Request::List { which, json })
}

fn parse_show(invocation: &mut Invocation) -> Result<Request> {
    let (mut session, mut json) = (None, false);
    while let Some(argument) = invocation.next()? {
        match argument {
            Arg::Long("json") => json = true,
            Arg::Value(word) if session.is_none() => session = Some(text(word)?),
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    Ok(Request::Show { session: session.ok_or_else(|| which_one("show"))?, json })
}

fn parse_export(invocation: &mut Invocation) -> Result<Request> {
    let (mut session, mut file) = (None, None);
    while let Some(argument) = invocation.next()? {
        match argument {
            Arg::Value(word) if session.is_none() => session = Some(text(word)?),
            Arg::Value(path) if file.is_none() => file = Some(PathBuf::from(path)),
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    // As everywhere, a dash stands for the stream.
    let file = file.filter(|it| it.as_os_str() != "-");
    Ok(Request::Export { session: session.ok_or_else(|| which_one("export"))?, file })
}

fn parse_remove(invocation: &mut Invocation) -> Result<Request> {
    let mut sessions = Vec::new();
    while let Some(argument) = invocation.next()? {
        match argument {
            Arg::Value(word) => sessions.push(text(word)?),
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    if sessions.is_empty() {
        return Err(which_one("rm"));
    }
    Ok(Request::Remove { sessions })
}

fn text(word: OsString) -> Result<String> {
    word.into_string()
        .map_err(|it| Error::new(Kind::Usage, format!("`{}` is not UTF-8", it.display())))
}

/// A session that is not there, and what names those that are.
fn with_list(error: Error) -> Error {
    match error.kind() {
        Kind::Missing => {
            Error::new(Kind::Missing, format!("{error} (`beige sessions list` names them)"))
        }
        _ => error,
    }
}

fn which_one(action: &str) -> Error {
    let what = format!(
        "say which session: beige sessions {action} ID|KEY (`beige sessions list` names them)"
    );
    Error::new(Kind::Usage, what)
}

/// What is printed, gathered to larger pieces.
#[derive(Default)]
struct Piece(String);

impl Piece {
    fn add(&mut self, text: &str) -> Result<()> {
        self.0.push_str(text);
        if self.0.len() >= PIECE { self.out() } else { Ok(()) }
    }

    fn out(&mut self) -> Result<()> {
        // Rows hold nothing that it would escape.
        print_json(&std::mem::take(&mut self.0))
    }
}

/// Without a secret in what a person wrote, before any of it is cut.
fn masked(mut session: Listed, redactor: &Redactor) -> Listed {
    let texts = [session.name.as_mut(), session.key.as_mut(), Some(&mut session.first_message)];
    for text in texts.into_iter().flatten() {
        *text = redactor.mask(text).into_owned();
    }
    session
}

fn show_as_json(store: &Store, session: &str, redactor: &Redactor) -> Result<()> {
    let found = store.find(None, session)?;
    let session = as_json(&masked(store.listed(&found), redactor))?;
    let mut piece = Piece(format!("{{\"session\":{session},\"messages\":["));
    let mut separator = "\n";
    let more = store.history(&found, &shown(), &mut |told| {
        let text = as_json(&told)?;
        piece.add(&format!("{separator}{}", redactor.mask(&text)))?;
        separator = ",\n";
        Ok(true)
    })?;
    piece.add(&format!("\n],\"more\":{more}}}\n"))?;
    piece.out()
}

fn as_json(document: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(document).during(Kind::Internal, "write JSON")
}

fn shown() -> session::Page {
    session::Page { limit: MOST_SHOWN, before: None }
}

fn show(store: &Store, session: &str, redactor: &Redactor) -> Result<()> {
    let found = store.find(None, session)?;
    present(&heading(&masked(store.listed(&found), redactor)))?;
    let more = store.history(&found, &shown(), &mut |told| {
        let parts = for_people(told);
        parts.iter().try_for_each(|it| present(&redactor.mask(it))).map(|()| true)
    })?;
    if more {
        tell(&format!(
            "only the newest {MOST_SHOWN} messages are shown; `beige sessions export {}` has all",
            found.id
        ));
    }
    Ok(())
}

fn heading(session: &Listed) -> String {
    let (id, agent) = (in_one_line(&session.session_id), in_one_line(&session.agent_name));
    let mut text = format!("session   {id}\nagent     {agent}\n");
    let model = session.model.as_ref().map(ToString::to_string);
    let further = [("key", &session.key), ("name", &session.name), ("model", &model)];
    for (what, value) in further {
        if let Some(value) = value {
            text.push_str(&format!("{what:<10}{}\n", in_one_line(value)));
        }
    }
    text + &format!(
        "created   {}\nupdated   {}\nfile      {}\n",
        in_one_line(&session.created_at),
        in_one_line(&session.updated_at),
        in_one_line(&session.session_file.display().to_string())
    )
}

/// A line that says whose a message is, and the message.
fn for_people(told: Told) -> [String; 2] {
    let (who, body) = match told.message {
        Message::User(it) => ("user".to_owned(), content(it.content)),
        Message::Assistant(it) => {
            let mut end = it.error_message.map(|it| format!("[{it}]\n")).unwrap_or_default();
            if it.stop_reason == StopReason::Length {
                end.push_str(&format!("[{CUT_AT_LIMIT}]\n"));
            }
            (format!("assistant {}/{}", it.provider, it.model), blocks(it.content) + &end)
        }
        Message::ToolResult(it) => {
            let failed = if it.is_error { ", an error" } else { "" };
            (format!("result of {}{failed}", it.tool_name), content(it.content))
        }
        Message::BashExecution(it) => {
            ("command".to_owned(), format!("{}\n{}", it.command, ended(it.output)))
        }
        Message::Custom(it) => (format!("note {}", it.custom_type), content(it.content)),
        Message::BranchSummary(it) => ("summary of a branch".to_owned(), ended(it.summary)),
        Message::CompactionSummary(it) => ("compacted to".to_owned(), ended(it.summary)),
        Message::Unknown(it) => ("unknown".to_owned(), format!("{it}\n")),
    };
    let (who, when) = (in_one_line(who.trim_end()), in_one_line(&told.timestamp));
    [format!("\n--- {who}  {when}\n"), body]
}

fn content(content: Content) -> String {
    match content {
        Content::Text(text) => ended(text),
        Content::Blocks(all) => blocks(all),
    }
}

fn blocks(all: Vec<Block>) -> String {
    let block = |it: Block| match it {
        Block::Text(it) => ended(it.text),
        Block::Thinking(it) if it.thinking.is_empty() => String::new(),
        Block::Thinking(it) => format!("(thinking) {}", ended(it.thinking)),
        Block::ToolCall(it) => format!("-> {} {}\n", in_one_line(&it.name), it.arguments),
        Block::Image(it) => format!("[image {}, {} bytes]\n", it.mime_type, it.data.len() / 4 * 3),
        Block::Unknown(it) => format!("{it}\n"),
    };
    all.into_iter().map(block).collect()
}

/// With a newline at its end, unless it is empty.
fn ended(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn export(store: &Store, session: &str, file: Option<&Path>) -> Result<()> {
    let found = store.find(None, session)?;
    let Some(path) = file else { return store.export(&found, &mut Out) };
    let what = format!("write the new file {}", path.display());
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut new = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let what = format!(
                "{} exists and is not written over; name another file, or remove it first",
                path.display()
            );
            return Err(Error::new(Kind::Conflict, what));
        }
        other => other.during(Kind::Internal, what.clone())?,
    };
    let written = store.export(&found, &mut new);
    let written = written.and_then(|()| new.sync_all().during(Kind::Internal, what));
    if written.is_err() {
        // Half an export is worse than none.
        let _ = fs::remove_file(path);
    }
    written
}

/// Standard output, byte for byte; a terminal gets what it cannot obey.
struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match io::stdout().is_terminal() {
            true => {
                let text = super::inert(&String::from_utf8_lossy(bytes));
                write_through(io::stdout(), text.as_bytes())?;
            }
            false => write_through(io::stdout(), bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Removes what can be removed; 1 if something could not.
fn remove(store: &Store, sessions: &[String]) -> Result<u8> {
    let mut code = 0;
    for session in sessions {
        match store.remove(None, session, now()) {
            Ok(found) => print(&removed(&found))?,
            Err(error) => {
                complain("beige sessions", &with_list(error));
                code = 1;
            }
        }
    }
    Ok(code)
}

fn removed(found: &Found) -> String {
    let key = found.key.as_ref().map(|it| format!(" ({})", in_one_line(it))).unwrap_or_default();
    format!("removed {}{key}\n", in_one_line(&found.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], want: Option<Request>) {
        let got = parse(&mut Invocation::of(arguments.iter().copied()));
        assert_eq!(got.as_ref().ok(), want.as_ref(), "{got:?}");
        let is_usage = got.as_ref().err().is_none_or(|it| it.kind() == Kind::Usage);
        assert!(is_usage, "{got:?}");
    }

    #[test]
    fn arguments_are_understood() {
        let which = |agent: Option<&str>, of_agents_too| Which {
            agent: agent.map(str::to_owned),
            of_agents_too,
        };
        check(&["list"], Some(Request::List { which: which(None, false), json: false }));
        let all = Request::List { which: which(Some("a"), true), json: true };
        check(&["list", "--json", "a", "--all"], Some(all));
        check(&["show", "k"], Some(Request::Show { session: "k".into(), json: false }));
        let export = |file: Option<&str>| Request::Export {
            session: "k".into(),
            file: file.map(PathBuf::from),
        };
        check(&["export", "k"], Some(export(None)));
        check(&["export", "k", "f"], Some(export(Some("f"))));
        check(&["export", "k", "-"], Some(export(None)));
        let sessions = vec!["a".to_owned(), "b".to_owned()];
        check(&["rm", "a", "b"], Some(Request::Remove { sessions }));
    }

    #[test]
    fn what_is_wrong_is_usage() {
        for arguments in [
            vec![],
            vec!["lst"],
            vec!["list", "a", "b"],
            vec!["list", "--al"],
            vec!["show"],
            vec!["show", "a", "b"],
            vec!["export"],
            vec!["export", "a", "b", "c"],
            vec!["rm"],
            vec!["rm", "--json", "a"],
        ] {
            check(&arguments, None);
        }
    }

    #[test]
    fn no_name_makes_a_line_of_a_heading() {
        let session = Listed {
            agent_name: "a\nkey       b".into(),
            key: Some("k\u{1b}[2J".into()),
            name: Some("\u{9b}2J\nfile      x".into()),
            ..Listed::default()
        };
        let shown = heading(&session);
        assert_eq!(shown.lines().count(), 7, "{shown}");
        assert!(shown.chars().all(|it| it == '\n' || matches!(it, ' '..='~')), "{shown:?}");
    }

    #[test]
    fn a_session_is_listed_and_shown_without_a_secret() {
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        let texts = [Some("n s3cret-key".to_owned()), Some("k s3cret-key".to_owned())];
        let [name, key] = texts;
        let first_message = "m s3cret-key".to_owned();
        let session = masked(Listed { name, key, first_message, ..Listed::default() }, &redactor);
        let texts = [session.name.as_deref(), session.key.as_deref(), Some(&session.first_message)];
        assert_eq!(texts, [Some("n ••••"), Some("k ••••"), Some("m ••••")]);
    }
}
