//! What the typed events of an answer say, or the one JSON object of a server
//! that does not stream. Every field is optional and may be null, an event that
//! nobody knows is passed over. The answer ends with the event that says so,
//! whatever becomes of the connection; without one it is cut.

use serde_json::Value;

use super::items::{Items, Kind, Lack};
use crate::message::{StopReason, Usage};
use crate::provider::body::broken;
use crate::provider::ending::cut_call;
use crate::provider::events::{Dialect, has_error};
use crate::provider::field::{text, tokens, within};
use crate::provider::{Delta, Fault, failure};

/// One answer on its way.
pub(super) struct Reply {
    provider: String,
    items: Items,
    has_ended: bool,
}

/// How an answer ends.
enum End<'a> {
    Whole,
    /// It ran into the output limit.
    Length,
    /// A filter took the rest.
    Filtered(&'a str),
    Failed,
}

impl Reply {
    pub(super) fn new(provider: &str) -> Self {
        Self { provider: provider.to_owned(), items: Items::default(), has_ended: false }
    }
}

impl Dialect for Reply {
    fn take(&mut self, name: &str, event: &Value, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        let kind = Some(text(event, "type")).filter(|it| !it.is_empty()).unwrap_or(name);
        if kind == "error" || is_error(event) {
            return Err(failure::of_error(&self.provider, event));
        }
        match kind.strip_prefix("response.") {
            Some(what) => self.take_event(what, event, deltas)?,
            // Some servers name no kind, and one that does not stream has none.
            None if is_whole(kind, event) => self.finish("", response_of(event), deltas)?,
            None => (),
        }
        Ok(self.has_ended)
    }

    fn lacks(&self) -> Option<&'static str> {
        (!self.has_ended).then_some("it is no answer that is whole")
    }

    /// Only by its own event, whatever the server has said.
    fn may_end(&self) -> bool {
        false
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        self.flush(deltas);
        Ok(())
    }

    fn flush(&mut self, deltas: &mut Vec<Delta>) {
        self.items.flush(deltas);
    }
}

impl Reply {
    /// One event of the answer, by its kind.
    fn take_event(
        &mut self,
        kind: &str,
        event: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        let items = &mut self.items;
        let taken = match kind {
            "output_item.added" => items.begin(event, deltas),
            "output_item.done" => items.end(event, deltas),
            "output_text.delta" | "refusal.delta" => items.say(Kind::Message, event, deltas),
            "output_text.done" | "refusal.done" => items.say_whole(Kind::Message, event, deltas),
            "reasoning_summary_text.delta"
            | "reasoning_summary.delta"
            | "reasoning_text.delta"
            | "reasoning.delta" => items.say(Kind::Reasoning, event, deltas),
            "reasoning_summary_text.done" | "reasoning_text.done" => {
                items.say_whole(Kind::Reasoning, event, deltas)
            }
            "content_part.done" => items.say_whole(kind_of_part(event), event, deltas),
            "reasoning_summary_part.done" => items.say_whole(Kind::Reasoning, event, deltas),
            "function_call_arguments.delta" => items.say(Kind::Call, event, deltas),
            "function_call_arguments.done" => items.say_whole(Kind::Call, event, deltas),
            "completed" | "done" | "incomplete" | "failed" | "cancelled" => {
                return self.finish(kind, response_of(event), deltas);
            }
            _ => Ok(()),
        };
        taken.map_err(|it| broken(&self.provider, &it.to_string()))
    }

    /// The answer has ended as this response tells.
    fn finish(
        &mut self,
        kind: &str,
        response: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        self.has_ended = true;
        let end = end_of(kind, response);
        if !matches!(end, End::Failed) {
            let output = response.get("output").and_then(Value::as_array);
            let output = output.map(Vec::as_slice).unwrap_or_default();
            self.items
                .complete(output, deltas)
                .map_err(|it| broken(&self.provider, &it.to_string()))?;
        }
        self.flush(deltas);
        deltas.extend(response.get("usage").and_then(read_usage).map(Delta::Usage));
        deltas.push(Delta::Stop(match end {
            End::Whole => self.whole()?,
            End::Length => StopReason::Length,
            End::Filtered(reason) => return Err(failure::withheld(&self.provider, reason)),
            End::Failed => return Err(self.failed(response)),
        }));
        Ok(())
    }

    /// How an answer ends that calls itself whole.
    fn whole(&self) -> Result<StopReason, Fault> {
        match self.items.lack() {
            // As if the limit had cut it, whatever the answer says of itself.
            Some(Lack::Incomplete) => Ok(StopReason::Length),
            Some(Lack::Broken(why)) => Err(cut_call(&self.provider, why)),
            None if self.items.have_calls() => Ok(StopReason::ToolUse),
            None => Ok(StopReason::Stop),
        }
    }

    fn failed(&self, response: &Value) -> Fault {
        let nothing = || Value::String("it says that it failed, and not why".into());
        let error = response.get("error").filter(|it| it.is_object() || it.is_string());
        failure::of_error(&self.provider, &error.cloned().unwrap_or_else(nothing))
    }
}

/// What a part of an item is of.
fn kind_of_part(event: &Value) -> Kind {
    match event.pointer("/part/type").and_then(Value::as_str) {
        Some("reasoning_text" | "summary_text") => Kind::Reasoning,
        _ => Kind::Message,
    }
}

/// Whether an object is an error in place of an answer. A response has the
/// field as well, and it is null.
fn is_error(value: &Value) -> bool {
    (has_error(value) || !text(value, "detail").is_empty()) && value.get("output").is_none()
}

/// Whether it is the status of a response that has ended.
fn is_end(status: &str) -> bool {
    ["completed", "incomplete", "failed", "cancelled"].contains(&status)
}

/// The response that an event is of, or is.
fn response_of(event: &Value) -> &Value {
    event.get("response").filter(|it| it.is_object()).unwrap_or(event)
}

/// Whether an event of none of the known kinds is a response that has ended.
fn is_whole(kind: &str, event: &Value) -> bool {
    let response = response_of(event);
    let status = text(response, "status");
    let is_silent = status.is_empty() && response.get("output").is_some();
    is_end(text(event, "status")) || (kind.is_empty() && (is_end(status) || is_silent))
}

/// How a response ends: by its own word, else by that of its event.
fn end_of<'a>(kind: &str, response: &'a Value) -> End<'a> {
    let status = text(response, "status");
    match if is_end(status) { status } else { kind } {
        "failed" | "cancelled" => End::Failed,
        "incomplete" => match response.pointer("/incomplete_details/reason") {
            Some(Value::String(reason)) if reason.contains("content_filter") => {
                End::Filtered(reason)
            }
            _ => End::Length,
        },
        _ => End::Whole,
    }
}

/// Tokens. What came from the cache counts within what was read, thinking
/// within what was written.
fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |path: &str| usage.pointer(path).and_then(tokens).unwrap_or_default();
    let (read, written, total) =
        (count("/input_tokens"), count("/output_tokens"), count("/total_tokens"));
    if read == 0 && written == 0 && total == 0 {
        return None;
    }
    let cache_read = within(count("/input_tokens_details/cached_tokens"), read);
    let uncached = read.saturating_sub(cache_read);
    let cache_write = within(count("/input_tokens_details/cache_write_tokens"), uncached);
    Some(Usage {
        input: uncached.saturating_sub(cache_write),
        output: written,
        cache_read,
        cache_write,
        total_tokens: total,
        ..Usage::default()
    })
}
