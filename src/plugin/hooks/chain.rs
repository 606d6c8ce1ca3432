//! One plugin after another is asked, in the order of the configuration, each
//! about what the one before made of it.

use serde_json::{Value, json};

use super::{Halt, Hook, Occasion, Outcome, Prompted, ToolCalled};
use crate::message::{LONGEST_MESSAGE, stored_length};

/// Longest output that a plugin may put in the place of another, in bytes: as
/// much as a plugin's tool may print.
const LONGEST_OUTPUT: usize = 4 * 1024 * 1024;

/// Longest text that plugins may add to a system prompt together, in bytes.
const LONGEST_CONTEXT: usize = 256 * 1024;

/// Longest reason of a refusal that is told, in characters.
const LONGEST_REASON: usize = 1000;

/// A plugin that is asked.
pub trait Listener {
    /// Its name.
    fn plugin(&self) -> &str;

    /// Whether what it guards goes on if it fails.
    fn is_lenient(&self) -> bool;

    /// Asks it.
    fn ask(&self, hook: Hook, event: &Value) -> Result<Value, Unheard>;
}

/// Why a plugin has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unheard {
    /// Nobody waits any more.
    CalledOff,
    /// It failed, and how.
    Failed(String),
}

/// What one answer means for those that follow.
enum Next {
    GoOn,
    /// Refused, and why if it says so.
    Stop(Option<String>),
}

/// A message before a model sees it.
pub(in crate::plugin) fn pre_prompt(
    asked: impl Iterator<Item = impl Listener>,
    message: String,
    at: &Occasion,
) -> Result<Prompted, Halt> {
    let mut prompted = Prompted { message, context: String::new() };
    let event = |so_far: &Prompted| at.with("message", &so_far.message);
    each(Hook::PrePrompt, asked, &mut prompted, event, take_prompted)?;
    Ok(prompted)
}

/// An answer before a person sees it; [`Halt::Refused`] if it is withheld.
pub(in crate::plugin) fn post_response(
    asked: impl Iterator<Item = impl Listener>,
    mut response: String,
    at: &Occasion,
) -> Result<String, Halt> {
    let event = |so_far: &String| at.with("response", so_far);
    match each(Hook::PostResponse, asked, &mut response, event, take_response) {
        // What was made of it so far counts.
        Ok(()) | Err(Halt::CalledOff) => Ok(response),
        Err(halt) => Err(halt),
    }
}

/// A call before it runs.
pub(in crate::plugin) fn pre_tool(
    asked: impl Iterator<Item = impl Listener>,
    call: &ToolCalled<'_>,
) -> Result<(), Halt> {
    let event = |(): &()| json!(call);
    each(Hook::PreToolExec, asked, &mut (), event, |(), answer| match answer["allow"] {
        Value::Bool(true) => Ok(Next::GoOn),
        Value::Bool(false) => Ok(Next::Stop(reason(&answer))),
        _ => Err("its answer has no `allow` that is true or false".into()),
    })
}

/// A result before its caller gets it.
pub(in crate::plugin) fn post_tool(
    asked: impl Iterator<Item = impl Listener>,
    call: &ToolCalled<'_>,
    mut result: Outcome,
) -> Outcome {
    let event = |so_far: &Outcome| {
        let mut event = json!(call);
        event["result"] = json!(so_far);
        event
    };
    // It stops nothing: the call has run.
    let _ = each(Hook::PostToolExec, asked, &mut result, event, take_outcome);
    result
}

/// Tells something that has happened.
pub(in crate::plugin) fn tell(
    asked: impl Iterator<Item = impl Listener>,
    hook: Hook,
    event: &Value,
) {
    let _ = each(hook, asked, &mut (), |()| event.clone(), |(), _| Ok(Next::GoOn));
}

/// Asks one after the other. `take` changes nothing if it finds the answer to
/// make no sense.
fn each<T>(
    hook: Hook,
    asked: impl Iterator<Item = impl Listener>,
    state: &mut T,
    event: impl Fn(&T) -> Value,
    take: impl Fn(&mut T, Value) -> Result<Next, String>,
) -> Result<(), Halt> {
    for listener in asked {
        let plugin = listener.plugin().to_owned();
        let answered = listener.ask(hook, &event(state));
        match answered.and_then(|it| take(state, it).map_err(Unheard::Failed)) {
            Ok(Next::GoOn) => {}
            Ok(Next::Stop(reason)) => return Err(Halt::Refused { plugin, reason }),
            Err(Unheard::CalledOff) => return Err(Halt::CalledOff),
            Err(Unheard::Failed(why)) if hook.guards() && !listener.is_lenient() => {
                return Err(Halt::Failed { plugin, hook, why });
            }
            Err(Unheard::Failed(why)) => {
                log::warn!("plugin '{plugin}': the hook {} failed: {why}", hook.name());
            }
        }
    }
    Ok(())
}

fn take_prompted(prompted: &mut Prompted, mut answer: Value) -> Result<Next, String> {
    is_object(&answer)?;
    let message = text(&mut answer, "message")?;
    let context = text(&mut answer, "context")?.unwrap_or_default();
    if flag(&answer, "block")? {
        return Ok(Next::Stop(reason(&answer)));
    }
    let length = message.as_deref().map_or(0, stored_length);
    if message.as_deref().is_some_and(|it| it.trim().is_empty()) || length > LONGEST_MESSAGE {
        return Err(format!(
            "the message it made is empty, or longer than {LONGEST_MESSAGE} bytes"
        ));
    }
    if prompted.context.len() + context.len() > LONGEST_CONTEXT {
        return Err(format!("`context` is longer than {LONGEST_CONTEXT} bytes in all"));
    }
    prompted.message = message.unwrap_or_else(|| std::mem::take(&mut prompted.message));
    if !prompted.context.is_empty() && !context.is_empty() {
        prompted.context.push_str("\n\n");
    }
    prompted.context.push_str(&context);
    Ok(Next::GoOn)
}

fn take_response(response: &mut String, mut answer: Value) -> Result<Next, String> {
    let changed = text(&mut answer, "response")?;
    if flag(&answer, "block")? {
        return Ok(Next::Stop(reason(&answer)));
    }
    *response = changed.unwrap_or_else(|| std::mem::take(response));
    Ok(Next::GoOn)
}

fn take_outcome(outcome: &mut Outcome, mut answer: Value) -> Result<Next, String> {
    let mut result = answer.get_mut("result").map(Value::take).unwrap_or_default();
    let output = text(&mut result, "output")?;
    let exit_code = match &result["exitCode"] {
        Value::Null => outcome.exit_code,
        code => {
            let code = code.as_i64().and_then(|it| i32::try_from(it).ok());
            code.ok_or("`exitCode` is no whole number")?
        }
    };
    if output.as_ref().is_some_and(|it| it.len() > LONGEST_OUTPUT) {
        return Err(format!("`output` is longer than {LONGEST_OUTPUT} bytes"));
    }
    outcome.output = output.unwrap_or_else(|| std::mem::take(&mut outcome.output));
    outcome.exit_code = exit_code;
    Ok(Next::GoOn)
}

fn is_object(answer: &Value) -> Result<(), String> {
    if answer.is_object() { Ok(()) } else { Err("its answer is no object".into()) }
}

/// A text that may be missing.
fn text(answer: &mut Value, name: &str) -> Result<Option<String>, String> {
    match answer.get_mut(name).map(Value::take) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` is no text")),
    }
}

fn flag(answer: &Value, name: &str) -> Result<bool, String> {
    match answer.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(it)) => Ok(*it),
        Some(_) => Err(format!("`{name}` is neither true nor false")),
    }
}

fn reason(answer: &Value) -> Option<String> {
    let text = answer["reason"].as_str()?.trim();
    let text: String = text.chars().take(LONGEST_REASON).collect();
    (!text.is_empty()).then_some(text)
}
