//! One call of a tool that a server gives. A plugin that knows beige is asked
//! by `beige/tool`; one that does not is a plain MCP server ([`super::mcp`]). What it answers is a stranger's text: it is taken as far as
//! it fits, and a call always ends, whatever the plugin does.

use serde::Serialize;
use serde_json::Value;

use super::Tool;
use super::connection::{Matter, Unanswered};
use super::host::Session;
use super::run::{Asker, Context, Output, RunCall, TIMED_OUT, check_args};
use crate::error::{Error, Kind, Result};

/// The parameters of `beige/tool`.
#[derive(Serialize)]
struct Params<'a> {
    tool: &'a str,
    args: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    stdin: Option<&'a str>,
    config: &'a Value,
    context: &'a Context,
}

/// Has a plugin that knows beige do what the call asks for, and keeps at most
/// `cap` bytes of its output.
///
/// Errors: [`Kind::Usage`] (a NUL), [`Kind::TooLarge`] (arguments over their
/// bound), [`Kind::Cancelled`], [`Kind::Busy`] (the plugin ended under the
/// call), [`Kind::Internal`] (it refuses the call, or answers what is none).
pub fn call(
    tool: &Tool,
    session: &Session,
    call: &RunCall<'_>,
    asker: Asker<'_>,
    cap: usize,
) -> Result<Output> {
    check_args(call.args)?;
    let params = Params {
        tool: &tool.name,
        args: call.args,
        stdin: call.stdin,
        config: call.config,
        context: &call.context,
    };
    let matter = Matter::Tool(call.context.session_key.clone());
    match session.connection.ask_about(matter, "beige/tool", &params, tool.timeout, asker) {
        Ok(answer) => output(tool, answer, call, cap),
        Err(Unanswered::Late(patience)) => Ok(late(patience.as_secs())),
        Err(unanswered) => Err(error(tool, &unanswered)),
    }
}

/// The answer of a call whose time was up.
pub(super) fn late(seconds: u64) -> Output {
    Output::of(format!("timed out after {seconds} s\n"), TIMED_OUT)
}

/// What the caller is told of a call without an answer.
pub(super) fn error(tool: &Tool, unanswered: &Unanswered) -> Error {
    let (plugin, name) = (&tool.plugin, &tool.name);
    match unanswered {
        Unanswered::Ended(why) => {
            let what = format!("plugin '{plugin}' {why}; it is started again, try later");
            Error::new(Kind::Busy, what)
        }
        Unanswered::Lost(why) => Error::new(Kind::Busy, format!("plugin '{plugin}' {why}")),
        Unanswered::CalledOff => {
            Error::new(Kind::Cancelled, format!("the tool `{name}` was called off"))
        }
        Unanswered::TooLong => {
            let what = "the call is too long; long text can come as a file of the workspace";
            Error::new(Kind::TooLarge, what)
        }
        other => Error::new(Kind::Internal, format!("plugin '{plugin}' fails `{name}`: {other}")),
    }
}

/// `{output, exitCode}` as the answer of the tool.
fn output(tool: &Tool, mut answer: Value, call: &RunCall<'_>, cap: usize) -> Result<Output> {
    let code = &answer["exitCode"];
    let exit_code = code.as_i64().or(code.is_null().then_some(0));
    let exit_code = exit_code.map(|it| i32::try_from(it).unwrap_or(1));
    let exit_code =
        exit_code.ok_or_else(|| senseless(tool, "with an `exitCode` that is no whole number"))?;
    // Whatever it is: an index that takes something out panics for no object.
    match answer.get_mut("output").map(Value::take).unwrap_or_default() {
        Value::String(text) => Ok(bounded(text, exit_code, call, cap)),
        Value::Null if answer["exitCode"].is_number() => Ok(Output::of("", exit_code)),
        _ => Err(senseless(tool, "without `output`, a string")),
    }
}

fn senseless(tool: &Tool, how: &str) -> Error {
    let (plugin, name) = (&tool.plugin, &tool.name);
    Error::new(Kind::Internal, format!("plugin '{plugin}' answers `{name}` {how}"))
}

/// The text up to the bound, with a note on what is missing.
pub(super) fn bounded(mut text: String, exit_code: i32, call: &RunCall<'_>, cap: usize) -> Output {
    if text.len() <= cap {
        return Output::of(text, exit_code);
    }
    let whole = text.len();
    let mut end = cap;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end = call.redactor.without_beginning(&text.as_bytes()[..end]).len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(&format!("\n[{} more bytes were left out]\n", whole - end));
    Output { truncated: true, ..Output::of(text, exit_code) }
}
