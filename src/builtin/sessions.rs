//! `sessions`: an agent's own conversations, listed, shown and searched. Whose
//! they are is what the gateway says of the call, so that no word of an agent
//! leads to another's. Files are read from their end, one message at a time.

mod shown;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lexopt::Arg::{Long, Short, Value as Word};
use serde_json::{Value, json};

use super::{Answer, Builtin, Call};
use crate::session::tell_backwards;
use shown::{Pattern, Shown};

/// How long the gateway may take to list sessions.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long is searched; what was found by then is told.
const SEARCH: Duration = Duration::from_secs(60);

/// Sessions, messages or matches that are told unless the call says how many.
const FEW: usize = 20;

/// The most that a call can ask for.
const MOST: usize = 10_000;

/// Bytes that are printed.
const MOST_BYTES: usize = 1024 * 1024;

/// The plugin.
pub(super) struct Sessions;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    what: What,
    most: usize,
    json: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    List,
    Get(String),
    Grep(String),
}

/// A session of the agent's.
#[derive(Debug, PartialEq, Eq)]
struct Session {
    /// The key that means it, else its id.
    name: String,
    id: String,
    file: PathBuf,
    created: String,
    first_message: String,
}

impl Builtin for Sessions {
    fn call(&self, call: &Call<'_>) -> Answer {
        let answer = parse(call.args)
            .map_err(|it| Answer::wrong(format!("{it}; {} --help says more", call.tool)));
        let request = match answer {
            Ok(Some(request)) => request,
            Ok(None) => return Answer::done(HELP.replace("NAME", call.tool)),
            Err(answer) => return answer,
        };
        if let What::Get(key) = &request.what
            && let Some(session) = by_key(call, key)
        {
            return answer_to(&request, &[session], call).unwrap_or_else(|it| it);
        }
        own_sessions(call).and_then(|it| answer_to(&request, &it, call)).unwrap_or_else(|it| it)
    }
}

const HELP: &str = "\
Usage: NAME list [-n N] [--json]
       NAME get KEY [-n N] [--json]
       NAME grep PATTERN [-n N] [--json]

Your own conversations, and nobody else's.

list  the newest sessions: when begun, key, what was said first
get   the last messages of one, the oldest of them first; KEY is as `list` prints it
grep  the newest messages with a line that holds PATTERN: a text, upper and lower
      case alike; * stands for anything in between

-n N    so many at most (20)
--json  one JSON document: a list of sessions, messages or matches, and `more`; texts
        in full
";

/// `None` for `--help`.
fn parse(args: &[String]) -> Result<Option<Request>, String> {
    let mut parser = lexopt::Parser::from_args(args);
    let (mut words, mut most, mut json) = (Vec::new(), FEW, false);
    while let Some(argument) = parser.next().map_err(|it| it.to_string())? {
        match argument {
            Long("help") | Short('h') => return Ok(None),
            Long("json") => json = true,
            Short('n') => {
                let number = parser.value().map_err(|it| it.to_string())?;
                most = number.to_str().and_then(|it| it.parse().ok()).unwrap_or(0);
                if !(1..=MOST).contains(&most) {
                    return Err(format!("-n takes a number from 1 to {MOST}"));
                }
            }
            Word(word) => words.push(word.to_string_lossy().into_owned()),
            other => return Err(other.unexpected().to_string()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let what = match words[..] {
        ["list"] => What::List,
        ["get", key] => What::Get(key.to_owned()),
        ["grep", pattern] => What::Grep(pattern.to_owned()),
        [] => return Ok(None),
        _ => return Err("say list, get KEY, or grep PATTERN".into()),
    };
    Ok(Some(Request { what, most, json }))
}

/// The session of the agent that a key means: a list of all takes longer.
fn by_key(call: &Call<'_>, key: &str) -> Option<Session> {
    let mut answer = call.ask("beige/session/get", &json!({"sessionKey": key}), PATIENCE).ok()?;
    let entry = answer.get_mut("entry")?.take();
    let is_own = entry["agentName"] == call.context.agent_name.as_str();
    let file = entry["sessionFile"].as_str().filter(|_| is_own)?.into();
    let (name, id) = (key.to_owned(), String::new());
    let (created, first_message) = (String::new(), String::new());
    Some(Session { name, id, file, created, first_message })
}

/// The sessions of the agent that calls, the one that was written last first.
fn own_sessions(call: &Call<'_>) -> Result<Vec<Session>, Answer> {
    let params = json!({"agentName": call.context.agent_name, "includeToolSessions": true});
    let ask = |method: &str| {
        let answer = call.ask(method, &params, PATIENCE);
        answer.map_err(|it| Answer::failed(format!("list your sessions: {it}")))
    };
    let (sessions, keys) = (ask("beige/session/list")?, ask("beige/session/listKeys")?);
    Ok(named(&sessions["sessions"], &keys["keys"], &call.context.agent_name))
}

fn named(sessions: &Value, keys: &Value, agent: &str) -> Vec<Session> {
    let keys = keys.as_array().map_or(&[][..], Vec::as_slice);
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let sessions = sessions.as_array().into_iter().flatten();
    let own = sessions.filter(|it| it["agentName"] == agent).map(|it| {
        let key = keys.iter().find(|key| key["sessionFile"] == it["sessionFile"]);
        Session {
            name: text(key.map_or(&it["sessionId"], |key| &key["key"])),
            id: text(&it["sessionId"]),
            file: text(&it["sessionFile"]).into(),
            created: text(&it["createdAt"]),
            first_message: text(&it["firstMessage"]),
        }
    });
    own.collect()
}

fn answer_to(request: &Request, all: &[Session], call: &Call<'_>) -> Result<Answer, Answer> {
    let mut told = Told::of(request);
    match &request.what {
        What::List => list(all, request.most, &mut told, &call.context.session_key),
        What::Get(key) => get(find(all, key, call)?, request.most, &mut told)?,
        What::Grep(pattern) => {
            let mine = format!("{} grep", call.tool);
            let pattern = Pattern::new(pattern, &mine);
            grep(all, &pattern, request.most, &mut told, call)?;
            if told.rows.is_empty() && told.more.is_none() && !request.json {
                return Ok(Answer::failed("nothing that you or others said holds that"));
            }
        }
    }
    Ok(Answer::done(told.printed()))
}

fn find<'a>(all: &'a [Session], key: &str, call: &Call<'_>) -> Result<&'a Session, Answer> {
    all.iter().find(|it| it.name == key || it.id == key).ok_or_else(|| {
        Answer::failed(format!("you have no session `{key}`; `{} list` names them", call.tool))
    })
}

/// What is printed: rows, and whether there would be more.
struct Told {
    json: bool,
    what: &'static str,
    rows: Vec<Row>,
    bytes: usize,
    more: Option<String>,
}

/// The same thing for who reads and for a program.
enum Row {
    Text(String),
    Json(Value),
}

impl Told {
    fn of(request: &Request) -> Self {
        let what = match request.what {
            What::List => "sessions",
            What::Get(_) => "messages",
            What::Grep(_) => "matches",
        };
        Self { json: request.json, what, rows: Vec::new(), bytes: 0, more: None }
    }

    /// `false` if there is no room for it.
    fn add(&mut self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) -> bool {
        let (row, length) = match self.json {
            true => {
                let row = json();
                let length = row.to_string().len();
                (Row::Json(row), length)
            }
            false => {
                let row = text();
                let length = row.len();
                (Row::Text(row), length)
            }
        };
        self.bytes += length + 1;
        if self.bytes > MOST_BYTES {
            self.more = Some(format!("more than {MOST_BYTES} bytes"));
            return false;
        }
        self.rows.push(row);
        true
    }

    fn printed(self) -> String {
        let mut text = String::new();
        let mut all = Vec::new();
        for row in self.rows {
            match row {
                Row::Text(row) => text.push_str(&format!("{row}\n")),
                Row::Json(row) => all.push(row),
            }
        }
        if self.json {
            return format!("{}\n", json!({(self.what): all, "more": self.more}));
        }
        if let Some(more) = self.more {
            text.push_str(&format!("[there is more: {more}]\n"));
        }
        text
    }
}

fn list(all: &[Session], most: usize, told: &mut Told, current: &str) {
    for it in all.iter().take(most) {
        let here = if it.name == current { " (this one)" } else { "" };
        let text = || {
            let said = shown::in_line(&it.first_message, 100);
            format!("{}  {}{here}  {said}", shown::short_time(&it.created), it.name)
        };
        let json = || {
            json!({"key": it.name, "id": it.id, "createdAt": it.created,
                "firstMessage": it.first_message})
        };
        if !told.add(text, json) {
            return;
        }
    }
    if all.len() > most {
        let more = all.len() - most;
        let sessions = if more == 1 { "session" } else { "sessions" };
        told.more = Some(format!("{more} older {sessions}; -n N lists more"));
    }
}

fn get(session: &Session, most: usize, told: &mut Told) -> Result<(), Answer> {
    let mut count = 0;
    let walked = tell_backwards(&session.file, &mut |it| {
        if count >= most {
            told.more = Some("older messages; -n N shows more".into());
            return Ok(false);
        }
        count += 1;
        let it = Shown::of(it);
        Ok(told.add(|| it.for_people(), || it.to_json()))
    });
    told.rows.reverse();
    walked.map_err(|it| Answer::failed(it.to_string()))
}

fn grep(
    all: &[Session],
    pattern: &Pattern,
    most: usize,
    told: &mut Told,
    call: &Call<'_>,
) -> Result<(), Answer> {
    let until = Instant::now() + SEARCH;
    for session in all {
        let walked = tell_backwards(&session.file, &mut |it| {
            if call.cancel.is_cancelled() || Instant::now() > until {
                let date = shown::short_time(&it.timestamp);
                told.more = Some(format!("in {} s the search came to {date}", SEARCH.as_secs()));
                return Ok(false);
            }
            let it = Shown::of(it);
            let Some(line) = pattern.line_of(&it.text) else { return Ok(true) };
            if told.rows.len() >= most {
                told.more = Some("older matches; -n N shows more".into());
                return Ok(false);
            }
            let name = &session.name;
            let text = || format!("{}  {name}  {}: {line}", shown::short_time(&it.at), it.who);
            let json = || {
                json!({"session": name, "id": it.id, "timestamp": it.at, "who": it.who,
                    "line": line})
            };
            Ok(told.add(text, json))
        });
        walked.map_err(|it| Answer::failed(it.to_string()))?;
        if told.more.is_some() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
