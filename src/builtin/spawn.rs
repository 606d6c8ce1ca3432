//! `spawn`: another agent, or the same one, does a task in a session of its own.
//! Whom an agent may ask, and how deep, is the configuration's to say: nobody,
//! unless it does. It works within a turn alone, which pays for all of it and
//! calls it off when it ends: no chain of agents outlives who began it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lexopt::Arg::{Long, Short, Value as Word};
use serde_json::{Value, json};

use super::{Answer, Builtin, Call};
use crate::clock;

/// How long the gateway may take for a look.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an agent may take; the time limit of the call comes first.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Longest name of a session that an agent chooses, in bytes.
const LONGEST_NAME: usize = 64;

/// Stands for the agent that calls.
const SELF: &str = "SELF";

/// The plugin.
#[derive(Default)]
pub(super) struct Spawn {
    /// Sessions that it named.
    named: AtomicU64,
}

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    target: String,
    session: Option<String>,
    file: Option<String>,
    words: Vec<String>,
}

impl Builtin for Spawn {
    fn call(&self, call: &Call<'_>) -> Answer {
        match parse(call.args) {
            Ok(Some(request)) => self.ask(call, &request).unwrap_or_else(|it| it),
            Ok(None) => Answer::done(HELP.replace("NAME", call.tool)),
            Err(why) => Answer::wrong(format!("{why}; {} --help says more", call.tool)),
        }
    }
}

const HELP: &str = "\
Usage: NAME --target AGENT [--session KEY] MESSAGE...
       NAME --target AGENT [--session KEY] --message-file FILE
       NAME --target AGENT [--session KEY] - <FILE

Has another agent do what the message says, in a session of its own, and prints
its answer. It knows nothing of your conversation: say all that it needs.

--target AGENT       who; SELF is you
--session KEY        goes on in the session that an earlier call named, or gives a
                     new one that name; without it each call has a new session
--message-file FILE  takes the message from a text file of the workspace
";

/// `None` for `--help`.
fn parse(args: &[String]) -> Result<Option<Request>, String> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut request = Request::default();
    let told = |it: lexopt::Error| it.to_string();
    while let Some(argument) = parser.next().map_err(told)? {
        let field = match argument {
            Long("help") | Short('h') => return Ok(None),
            Long("target") => &mut request.target,
            Long("session") => request.session.insert(String::new()),
            Long("message-file") => request.file.insert(String::new()),
            Word(word) => {
                // What follows the first word is the message, dashes included.
                let rest = parser.raw_args().map_err(told)?;
                let words = std::iter::once(word).chain(rest);
                request.words = words.map(|it| it.to_string_lossy().into_owned()).collect();
                break;
            }
            other => return Err(other.unexpected().to_string()),
        };
        *field = parser.value().map_err(told)?.to_string_lossy().into_owned();
    }
    match (request.target.is_empty(), request.file.is_some(), request.words.is_empty()) {
        (true, _, _) => Err("--target says which agent".into()),
        (_, true, false) => Err("a message is either given or in --message-file".into()),
        _ => Ok(Some(request)),
    }
}

impl Spawn {
    fn ask(&self, call: &Call<'_>, request: &Request) -> Result<Answer, Answer> {
        let own = &call.context.agent_name;
        let target = target(&request.target, own, &call.config["targets"]).map_err(denied)?;
        let (name, is_new) = match &request.session {
            Some(word) => (session_name(word, own, &target).map_err(Answer::wrong)?, false),
            None => (self.new_name(), true),
        };
        let message = message(call, request)?;
        look(call)?;
        let params = json!({
            "sessionKey": key(own, &target, &name),
            "agentName": target,
            "message": message,
            "parentSessionKey": call.context.session_key,
        });
        let answer = call.ask("beige/prompt", &params, LONGEST).map_err(|why| {
            Answer::failed(format!("`{target}` did not answer (session {name}): {why}"))
        })?;
        let mut text = answer["response"].as_str().unwrap_or_default().trim_end().to_owned();
        if is_new {
            text.push_str(&format!("\n[to go on with this: --session {name}]"));
        }
        Ok(Answer::done(format!("{}\n", text.trim_start())))
    }

    /// A name that no other session of the agent has.
    fn new_name(&self) -> String {
        let (now, process) = (clock::now().compact(), std::process::id());
        format!("{now}-{process}-{}", self.named.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// The agent that is meant, if it may be asked.
fn target(word: &str, own: &str, targets: &Value) -> Result<String, String> {
    let name = if word == SELF { own } else { word };
    let allowed: Vec<&str> =
        targets.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if allowed.contains(&name) || (name == own && allowed.contains(&SELF)) {
        return Ok(name.to_owned());
    }
    Err(match &allowed[..] {
        [] => format!("you may ask no agent: `targets` of the configuration of {own} names none"),
        _ => format!("you may not ask `{name}`, only {}", allowed.join(", ")),
    })
}

fn denied(why: String) -> Answer {
    Answer::failed(why)
}

/// All sessions that are begun here have a key of this form, so that no agent
/// speaks in a session that is a person's.
fn key(own: &str, target: &str, name: &str) -> String {
    format!("spawn:{own}:{target}:{name}")
}

/// The name in a key of that form, or a name itself.
fn session_name(word: &str, own: &str, target: &str) -> Result<String, String> {
    let name = word.strip_prefix(&key(own, target, "")).unwrap_or(word);
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    match (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain) {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "a session is named by letters, digits, `-`, `_` and `.`, at most {LONGEST_NAME}"
        )),
    }
}

/// Whether the call comes from a turn that may ask further agents.
fn look(call: &Call<'_>) -> Result<(), Answer> {
    let session = &call.context.session_key;
    let ask = |method: &str| {
        let answer = call.ask(method, &json!({"sessionKey": session}), PATIENCE);
        answer.map_err(|it| Answer::failed(format!("look at the session `{session}`: {it}")))
    };
    // Else an agent's background process could begin one chain after another.
    if session.is_empty() || ask("beige/session/isActive")?["active"] != true {
        let what = format!("agents are asked within a turn, and none runs in `{session}`");
        return Err(Answer::failed(what));
    }
    let depth = ask("beige/session/get")?["entry"]["metadata"]["depth"].as_u64().unwrap_or(0);
    let most = call.config["maxDepth"].as_u64().unwrap_or(0);
    if depth >= most {
        let what = format!(
            "you were asked by an agent yourself and may ask no further one (depth {depth}, \
             maxDepth {most})"
        );
        return Err(Answer::failed(what));
    }
    Ok(())
}

fn message(call: &Call<'_>, request: &Request) -> Result<String, Answer> {
    let text = match (&request.file, &request.words[..]) {
        (Some(file), _) => read(call, file)?,
        (None, [] | [_]) if request.words.first().is_none_or(|it| it == "-") => {
            call.stdin.unwrap_or_default().to_owned()
        }
        (None, words) => words.join(" "),
    };
    match text.trim().is_empty() {
        true => Err(Answer::wrong("the message is empty")),
        false => Ok(text),
    }
}

/// A file of the agent's, read in its sandbox with its own rights.
fn read(call: &Call<'_>, file: &str) -> Result<String, Answer> {
    let cwd = &call.context.cwd;
    let path = match cwd.is_empty() || file.starts_with('/') {
        true => file.to_owned(),
        false => format!("{cwd}/{file}"),
    };
    let params = json!({"tool": "read", "args": {"path": path},
        "agentName": call.context.agent_name,
        "sessionContext": {"sessionKey": call.context.session_key}});
    let failed = |why: String| Answer::failed(format!("read `{file}`: {why}"));
    let answer = call.ask("beige/tools/invoke", &params, PATIENCE);
    let answer = answer.map_err(|it| failed(it.to_string()))?;
    let text = answer["output"].as_str().unwrap_or_default();
    if answer["exitCode"] != 0 {
        return Err(failed(text.to_owned()));
    }
    let last = text.lines().last().unwrap_or_default();
    if last.starts_with("[more follows: ") || last.starts_with("[this line is longer ") {
        let what = "it is longer than one read shows; give it by `- <FILE`";
        return Err(failed(what.to_owned()));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
