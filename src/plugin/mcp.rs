//! Plain MCP servers as plugins: what a server lists is one tool of beige,
//! with a command for each of its own. [`server::Server`] is what is kept of one over
//! all its processes; [`call`] is one call of it. What to ask and what an
//! answer means is decided in the modules below, which are pure.
//!
//! Source: MCP 2025-06-18, "Tools", "Progress"; 2025-11-25, "Tasks".

mod arguments;
mod breaker;
mod catalog;
mod check;
mod help;
mod result;
mod schema;
pub mod server;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, at, select};
use serde_json::{Value, json};

use arguments::Asked;
use breaker::Outcome;
use catalog::{Catalog, Listed, Pages};
use result::Answered;
use schema::Schema;
use server::{Asking, Known, Server};

use super::Tool;
use super::ask;
use super::connection::Unanswered;
use super::host::Session;
use super::run::{Asker, Output, RunCall, check_args};
use crate::error::{Error, Kind, Result};
use crate::worker::Cancel;

/// How long a server may take to list its tools, all pages together.
const LISTING: Duration = Duration::from_secs(30);

/// How long it may take to hear that a task is called off.
const CANCELLING: Duration = Duration::from_secs(1);

const NO_LIST: &str = "does not list its tools in time";

/// Exit code of a command that makes no sense.
const MISUSED: i32 = 2;

/// One call: of which tool, by whom.
struct Talk<'a> {
    tool: &'a Tool,
    session: &'a Session,
    server: &'a Server,
    asker: Asker<'a>,
}

/// How a request of a call ended without an answer.
enum Failure {
    /// By its time limit.
    Late,
    Other(Error),
}

/// Has the server do what the command asks for, and keeps at most `cap` bytes
/// of its text.
///
/// Errors: as [`ask::call`]; [`Kind::Busy`] also where the server has failed so
/// often that it is left alone for a while.
pub fn call(
    tool: &Tool,
    session: &Session,
    call: &RunCall<'_>,
    asker: Asker<'_>,
    cap: usize,
) -> Result<Output> {
    check_args(call.args)?;
    if !tool.is_whole() {
        let what = format!(
            "plugin '{}' is a plain MCP server, whose tools are called as `{0} TOOL`, not by `{}`",
            tool.plugin, tool.name
        );
        return Err(Error::new(Kind::Usage, what));
    }
    let talk = Talk { tool, session, server: &session.mcp, asker };
    match talk.command(call, cap) {
        Ok(output) => Ok(output),
        Err(Failure::Late) => Ok(ask::late(tool.timeout.as_secs())),
        Err(Failure::Other(error)) => Err(error),
    }
}

impl Talk<'_> {
    fn command(&self, call: &RunCall<'_>, cap: usize) -> Result<Output, Failure> {
        let catalog = self.catalog()?;
        let name = &self.tool.name;
        let printed = |text, code| Ok(ask::bounded(text, code, call, cap));
        let (word, rest) = match call.args.split_first() {
            None => return printed(help::list(name, &catalog), 0),
            Some((it, [])) if it == "--help" || it == "-h" => {
                return printed(help::list(name, &catalog), 0);
            }
            Some(it) => it,
        };
        let Some(listed) = catalog.tool(word) else {
            return printed(help::unknown(name, word, &catalog), MISUSED);
        };
        match arguments::read(Schema::of(&listed.schema), rest, call.stdin) {
            Ok(Asked::Help) => printed(help::tool(name, listed), 0),
            Ok(Asked::Arguments(arguments)) => self.call(listed, arguments, call, cap),
            Err(wrong) => printed(misused(name, listed, &wrong), MISUSED),
        }
    }

    fn call(
        &self,
        listed: &Listed,
        arguments: Value,
        call: &RunCall<'_>,
        cap: usize,
    ) -> Result<Output, Failure> {
        let token = self.server.progress_token();
        let params = json!({
            "name": listed.name, "arguments": arguments, "_meta": {"progressToken": token},
        });
        let answered = match listed.is_task {
            false => self.ask("tools/call", &params, self.tool.timeout, result::read)?,
            true => self.task(params)?,
        };
        let code = i32::from(answered.is_error);
        let output = ask::bounded(answered.text, code, call, cap);
        Ok(Output { files: answered.files, ..output })
    }

    /// The same of a tool that works only as a task.
    fn task(&self, mut params: Value) -> Result<Answered, Failure> {
        let limit = self.tool.timeout;
        let until = Instant::now() + limit;
        params["task"] = json!({"ttl": u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)});
        let task = self.ask("tools/call", &params, limit, task_id)?;
        let left = until.saturating_duration_since(Instant::now());
        let result = self.ask("tasks/result", &task, left, result::read);
        if let Err(failure) = &result
            && failure.leaves_it_running()
        {
            let asker = Asker { cancel: &Cancel::never(), line: None };
            let _ = self.session.connection.ask("tasks/cancel", &task, CANCELLING, asker);
        }
        result
    }

    /// The list as it stands, asked for if it is not known: by one of all who
    /// need it at the same time.
    fn catalog(&self) -> Result<Arc<Catalog>, Failure> {
        let until = Instant::now() + LISTING.min(self.tool.timeout);
        loop {
            match self.server.current() {
                Known::Listed(catalog) => return Ok(catalog),
                Known::Asked(end) => self.wait_for_list(&end, until)?,
                Known::Unknown(asking) => return self.list(&asking, until),
            }
        }
    }

    fn wait_for_list(&self, end: &Receiver<Infallible>, until: Instant) -> Result<(), Failure> {
        select! {
            recv(end) -> _ => Ok(()),
            recv(self.asker.cancel.gone()) -> _ => {
                Err(Failure::Other(ask::error(self.tool, &Unanswered::CalledOff)))
            }
            recv(at(until)) -> _ => Err(self.failed(Kind::Busy, NO_LIST)),
        }
    }

    fn list(&self, asking: &Asking, until: Instant) -> Result<Arc<Catalog>, Failure> {
        let (mut pages, mut cursor) = (Pages::default(), None);
        loop {
            let params = cursor.map_or_else(|| json!({}), |it: String| json!({"cursor": it}));
            let left = until.saturating_duration_since(Instant::now());
            cursor = self.ask("tools/list", &params, left, |page| pages.take(&page))?;
            if cursor.is_none() {
                break;
            }
        }
        let catalog = Arc::new(pages.end());
        if catalog.left_out > 0 {
            let (plugin, count) = (&self.tool.plugin, catalog.left_out);
            log::warn!(target: "plugin", "{plugin}: {count} of its tools are left out");
        }
        self.server.keep(asking.version, &catalog);
        Ok(catalog)
    }

    /// Asks the server, if it is not left alone, and notes whether it answers.
    fn ask<T>(
        &self,
        method: &str,
        params: &Value,
        patience: Duration,
        read: impl FnOnce(Value) -> Result<T, String>,
    ) -> Result<T, Failure> {
        self.server.breaker().admit(Instant::now()).map_err(|it| self.left_alone(it))?;
        let asked = self.session.connection.ask(method, params, patience, self.asker);
        let read = asked.map(read);
        let outcome = match &read {
            Ok(Ok(_)) | Err(Unanswered::Refused(_)) => Outcome::Answered,
            Ok(Err(_)) | Err(Unanswered::Late(_) | Unanswered::Lost(_)) => Outcome::Failed,
            Err(Unanswered::Ended(_)) => Outcome::Ended(self.session.process),
            Err(_) => Outcome::Unknown,
        };
        self.server.breaker().heard(outcome, Instant::now());
        match read {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(why)) => Err(self.failed(Kind::Internal, &why)),
            Err(Unanswered::Late(_)) if method == "tools/list" => {
                Err(self.failed(Kind::Busy, NO_LIST))
            }
            Err(Unanswered::Late(_)) => Err(Failure::Late),
            Err(other) => Err(Failure::Other(ask::error(self.tool, &other))),
        }
    }

    fn left_alone(&self, still: Duration) -> Failure {
        let when = match still.as_secs() {
            0 => "one call tries it just now".to_owned(),
            seconds => format!("it is tried again in {} s", seconds + 1),
        };
        self.failed(Kind::Busy, &format!("has failed three times in a row; {when}"))
    }

    fn failed(&self, kind: Kind, how: &str) -> Failure {
        Failure::Other(Error::new(kind, format!("plugin '{}' {how}", self.tool.plugin)))
    }
}

impl Failure {
    fn leaves_it_running(&self) -> bool {
        match self {
            Self::Late => true,
            Self::Other(error) => error.kind() == Kind::Cancelled,
        }
    }
}

/// What names a task that was begun.
fn task_id(answer: Value) -> Result<Value, String> {
    match &answer["task"]["taskId"] {
        Value::String(id) => Ok(json!({"taskId": id})),
        _ => Err("answers a task without `taskId`, a string".to_owned()),
    }
}

fn misused(name: &str, listed: &Listed, wrong: &[String]) -> String {
    let mut text = String::new();
    for line in wrong {
        text.push_str(&format!("{name} {}: {line}\n", listed.name));
    }
    let usage = help::usage(name, listed);
    text.push_str(&format!("usage: {usage}\n`{name} {} --help` says more\n", listed.name));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_as_a_task_has_a_name() {
        assert_eq!(task_id(json!({"task": {"taskId": "a"}})), Ok(json!({"taskId": "a"})));
        for none in [Value::Null, json!(7), json!({"task": {}}), json!({"content": []})] {
            assert!(task_id(none).is_err());
        }
    }
}
