//! `beige prompt`: one prompt to an agent, the answer on standard output.
//! Through the gateway if one runs, else in this process, which then holds
//! the home for its turn.

mod interrupt;
mod live;
mod told;

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lexopt::Arg::{Long, Value as Positional};
use serde_json::json;

use self::interrupt::Interrupts;
use self::told::{ABORTED, Form, Told};
use super::client::{self, Api};
use super::table::{Takes, Word, flag, valued};
use super::{Command, Invocation, logger, tell, unknown};
use crate::config::{Config, Home, ModelRef};
use crate::error::{During, Error, Kind, Result};
use crate::gateway::daemon::{HomeLock, Role};
use crate::gateway::{Gateway, PromptRequest};
use crate::secret::Redactor;
use crate::turn::TurnEvent;
use crate::worker::Cancel;

/// Longest prompt on standard input, in bytes.
const MAX_PROMPT: u64 = 4 * 1024 * 1024;

/// Longest event line of the gateway, in bytes.
const MAX_EVENT: u64 = 64 * 1024 * 1024;

/// How long another prompt is waited for.
const HOME_LIMIT: Duration = Duration::from_secs(15 * 60);

/// How long a gateway that lets nobody in is waited for: one that stops is gone
/// by then.
const GATEWAY_LIMIT: Duration = Duration::from_secs(90);

/// Meanwhile it is looked this often whether a gateway has come up.
const HOME_LOOK: Duration = Duration::from_millis(250);

/// Whoever waits for longer is told for whom.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// `beige prompt`.
pub(super) const COMMAND: Command = Command {
    name: "prompt",
    summary: "Ask an agent and print its answer",
    help: "\
Usage: beige prompt AGENT [OPTIONS] TEXT
       beige prompt AGENT [OPTIONS] -        (the prompt is standard input)

The answer is on standard output: at a terminal as it comes, with what the
model says before its tool calls, else all of it at the end. What went wrong is
told on standard error; so are tool calls where that is a terminal.

Options:
  --session KEY   go on in this conversation, named by its key or its ID, as
                  `beige sessions list` prints them, or begin one under a new
                  key, such as cli:AGENT:work (default: a new one each time)
  --model P/M     ask this model first, as provider/model: one of the agent's
                  `model` and `fallbackModels`; those listed after it follow
                  if it cannot answer
  --json          one JSON document: {\"response\", \"session\"}, with a \"note\" if
                  the answer is empty or cut, a \"fallback\" if another model than
                  the first gave it and a \"notice\" if the gateway's
                  configuration has changed since it read it; or of a turn that
                  failed {\"error\", \"category\", \"partial\", \"session\"}, or
                  {\"error\", \"category\"} if none was begun
  --stream-json   each event of the turn as it comes, one JSON object a line,
                  {\"type\", ...}; the last is `done`, `error` or `blocked`
  --config FILE   use this configuration

A turn that fails leaves the text so far on standard output (\"partial\" in
JSON), the reason on standard error, and all that was said and done in the
session. Text of a model that failed before another answered is no part of the
answer; at a terminal, where it was seen, a line below it says so.

Exit codes: 0 answered, 1 failed, 2 usage, 3 its end was not heard (it may go
on: see the session before you ask again), 78 bad configuration, 130 and 143 by
a signal.
",
    takes: Takes {
        flags: &[
            valued(&["--session"], Word::Session),
            valued(&["--model"], Word::Model),
            flag(&["--json"]),
            flag(&["--stream-json"]),
        ],
        operands: &[Word::Agent, Word::Any],
    },
    actions: &[],
    run,
};

#[derive(Default)]
struct Asked {
    agent: Option<String>,
    text: Option<String>,
    session: Option<String>,
    model: Option<ModelRef>,
    form: Form,
}

impl Asked {
    fn set_form(&mut self, form: Form) -> Result<()> {
        if self.form != Form::Text && self.form != form {
            return Err(Error::new(Kind::Usage, "take one of `--json` and `--stream-json`"));
        }
        self.form = form;
        Ok(())
    }
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    let asked = parse(invocation)?;
    let asked_session = asked.session.is_some();
    let request = request(asked.agent, asked.text, asked.session, asked.model)?;
    let mut told = Told::new(asked.form, &request, asked_session);
    match execute(invocation, request, &mut told) {
        Err(error) if !told.has_ended && !is_silent(&error) => {
            told.tell_failure(&error)?;
            Err(error)
        }
        Ok(code) if !told.has_ended => {
            let error = told.called_off();
            told.tell_failure(&error)?;
            tell(&format!("beige prompt: {error}"));
            Ok(code)
        }
        other => other,
    }
}

/// Whether it stands for a reader that went away.
fn is_silent(error: &Error) -> bool {
    error.kind() == Kind::Cancelled
}

/// Gives the exit code.
fn execute(invocation: &Invocation, request: PromptRequest, told: &mut Told) -> Result<u8> {
    let interrupts = Interrupts::catch()?;
    let done = match through_gateway(invocation, &request, told, &interrupts) {
        Err(error) if error.kind() == Kind::Busy => {
            without_gateway(invocation, request, told, &interrupts)
        }
        other => other,
    };
    match (done, interrupts.caught()) {
        (Ok(()), Some(number)) if told.code == ABORTED => Ok(128 + number),
        (Err(error), Some(number)) if error.kind() == Kind::Cancelled => Ok(128 + number),
        (done, _) => done.map(|()| told.code),
    }
}

fn parse(invocation: &mut Invocation) -> Result<Asked> {
    let mut asked = Asked::default();
    while let Some(argument) = invocation.next()? {
        match argument {
            Long("session") => asked.session = Some(invocation.text()?),
            Long("model") => asked.model = Some(model(&invocation.text()?)?),
            Long("json") => asked.set_form(Form::Json)?,
            Long("stream-json") => asked.set_form(Form::Stream)?,
            Positional(word) if asked.agent.is_none() => asked.agent = Some(text(word)?),
            Positional(word) if asked.text.is_none() => asked.text = Some(text(word)?),
            Positional(_) => {
                let what = "quote the prompt: it is one argument, as in \
                            beige prompt AGENT \"several words\"";
                return Err(Error::new(Kind::Usage, what));
            }
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    Ok(asked)
}

fn text(word: std::ffi::OsString) -> Result<String> {
    word.into_string()
        .map_err(|it| Error::new(Kind::Usage, format!("`{}` is not UTF-8", it.display())))
}

fn model(text: &str) -> Result<ModelRef> {
    match text.split_once('/') {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
            Ok(ModelRef { provider: provider.to_owned(), model: model.to_owned() })
        }
        _ => Err(Error::new(Kind::Usage, format!("--model takes provider/model, not `{text}`"))),
    }
}

fn request(
    agent: Option<String>,
    text: Option<String>,
    session: Option<String>,
    model: Option<ModelRef>,
) -> Result<PromptRequest> {
    let usage = "say which agent and what: beige prompt AGENT TEXT";
    let agent = agent.ok_or_else(|| Error::new(Kind::Usage, usage))?;
    let text = text.ok_or_else(|| Error::new(Kind::Usage, usage))?;
    let message = if text == "-" { read_prompt()? } else { text };
    if message.trim().is_empty() {
        return Err(Error::new(Kind::Usage, format!("the prompt is empty; {usage}")));
    }
    // A conversation of its own for each call that names none.
    let session = session.unwrap_or_else(|| {
        format!("cli:{agent}:{}-{}", crate::clock::now().compact(), std::process::id())
    });
    let channel = "cli".to_owned();
    Ok(PromptRequest { agent, message, session_key: Some(session), model, channel, parent: None })
}

fn read_prompt() -> Result<String> {
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(MAX_PROMPT + 1)
        .read_to_string(&mut text)
        .during(Kind::Usage, "read the prompt from standard input")?;
    if text.len() as u64 > MAX_PROMPT {
        return Err(Error::new(Kind::TooLarge, "the prompt is over 4 MiB"));
    }
    Ok(text)
}

/// The turn by the gateway. [`Kind::Busy`] when none runs or it drains;
/// [`Kind::Config`] if a configuration was named that it does not serve;
/// [`Kind::Cancelled`] if it was called off and its end not heard.
fn through_gateway(
    invocation: &Invocation,
    request: &PromptRequest,
    told: &mut Told,
    interrupts: &Interrupts,
) -> Result<()> {
    let home = invocation.home()?;
    if !Api::new(&home).is_there() {
        return Err(Error::new(Kind::Busy, "no gateway is running"));
    }
    told.notice = invocation.notice_of_config()?;
    let is_ours = Arc::clone(&told.is_ours);
    let done = interrupts.at_gateway(&home, request, is_ours, |api| ask(api, request, told));
    let is_let_in = done.as_ref().err().is_none_or(|it| it.kind() != Kind::Busy);
    match told.notice.take() {
        Some(notice) if is_let_in => tell(&format!("beige prompt: {notice}")),
        _ => {}
    }
    match done {
        // The connection was cut, since a signal had come.
        Err(_) | Ok(Some(_)) if interrupts.cancel.is_cancelled() && !told.has_ended => {
            Err(Error::new(Kind::Cancelled, "called off"))
        }
        Ok(Some(broken)) => told.break_off(&broken),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Asks the gateway and shows what it tells, to the end of the turn; gives why
/// that was not heard of a turn that was let in.
fn ask(api: &Api, request: &PromptRequest, told: &mut Told) -> Result<Option<Error>> {
    let path = format!("/api/agents/{}/prompt/stream", client::encoded(&request.agent));
    let model =
        request.model.as_ref().map(|it| json!({"provider": it.provider, "modelId": it.model}));
    let mut body = json!({
        "message": request.message, "sessionKey": request.session_key, "model": model,
    });
    if !told.shows_pieces() {
        body["deltas"] = false.into();
    }
    let reply = api.post(&path, &body)?;
    let mut lines = BufReader::new(reply.body);
    if reply.status != 200 {
        let mut body = Vec::new();
        lines.take(MAX_PROMPT).read_to_end(&mut body).during(Kind::Internal, "read the answer")?;
        return Err(client::refusal(reply.status, &body));
    }
    loop {
        let mut line = Vec::new();
        match (&mut lines).take(MAX_EVENT).read_until(b'\n', &mut line) {
            Err(error) => return Ok(Some(api.broken(error))),
            Ok(0) => return Ok(Some(Error::new(Kind::Internal, "the gateway hung up"))),
            Ok(_) => {}
        }
        if line.trim_ascii().is_empty() {
            told.wait_for_turn(); // A sign of life, after a second without an event.
            continue;
        }
        let line = String::from_utf8(line).during(Kind::Internal, "read an event")?;
        if told.tell(&line)? {
            return Ok(None);
        }
    }
}

/// The turn in this process, or after all by a gateway that has come up
/// meanwhile.
fn without_gateway(
    invocation: &Invocation,
    request: PromptRequest,
    told: &mut Told,
    interrupts: &Interrupts,
) -> Result<()> {
    let (config, redactor) = invocation.load_config()?;
    logger::for_one_call(redactor.clone())?;
    config.home.create()?;
    match wait_for_home(invocation, &config.home, &request, told, interrupts)? {
        Some(_home) => alone(config, redactor, request, told, interrupts.of_turn_here()),
        None => Ok(()),
    }
}

/// The home, once nobody else holds it; `None` if a gateway has taken it and
/// then served the prompt.
fn wait_for_home(
    invocation: &Invocation,
    home: &Home,
    request: &PromptRequest,
    told: &mut Told,
    interrupts: &Interrupts,
) -> Result<Option<HomeLock>> {
    let started = Instant::now();
    let mut is_told = false;
    loop {
        match HomeLock::take(home, Role::Prompt, HOME_LOOK, &interrupts.cancel) {
            Err(error) if worth_waiting(&error, started.elapsed()) => {}
            other => return other.map(Some),
        }
        if !is_told && started.elapsed() > TELL_AFTER {
            is_told = tell_of_holder(home);
        }
        match through_gateway(invocation, request, told, interrupts) {
            Err(error) if error.kind() == Kind::Busy => {}
            other => return other.map(|()| None),
        }
    }
}

/// Says for whom the prompt waits, once that one is known.
fn tell_of_holder(home: &Home) -> bool {
    let holder = HomeLock::holder(home).ok().flatten();
    let Some((role, pid)) = holder.and_then(|it| Some((it.role, it.pid?))) else { return false };
    let whom = match role {
        Role::Prompt => "another prompt",
        Role::Gateway => "the gateway, which starts, stops or is full",
    };
    tell(&format!("beige prompt: waiting for {whom} (pid {pid})"));
    true
}

/// Whether who holds the home may still let go of it.
fn worth_waiting(error: &Error, waited: Duration) -> bool {
    match error.kind() {
        Kind::Conflict => waited < GATEWAY_LIMIT,
        Kind::Busy => waited < HOME_LIMIT,
        _ => false,
    }
}

/// The turn in this process, which holds the home.
fn alone(
    config: Config,
    redactor: Redactor,
    request: PromptRequest,
    told: &mut Told,
    cancel: &Cancel,
) -> Result<()> {
    let gateway = Gateway::for_one_call(config, &request.agent, redactor)?;
    let mut outcome = Ok(());
    let mut each = |event: TurnEvent| {
        let shown = serde_json::to_string(&event)
            .during(Kind::Internal, "encode an event")
            .and_then(|it| told.tell(&it));
        if let (Err(error), true) = (shown, outcome.is_ok()) {
            // Nobody reads any more; the turn goes on to its end.
            outcome = Err(error);
        }
    };
    gateway.handle().prompt_here(request, &mut each, cancel)?;
    outcome
}
