//! Reads an answer: typed events, or one JSON object where a server does not
//! stream. Every field is optional and may be null, an event that nobody knows
//! is passed over, but one that does not read fails the call, since what it
//! said is lost. The answer ends with the event that says so, whatever becomes
//! of the connection; without one it is cut.

use serde_json::Value;

use super::items::{Items, Kind};
use crate::message::{StopReason, Usage};
use crate::provider::body::{Body, Rest, beginning, broken};
use crate::provider::field::{text, tokens, within};
use crate::provider::sse::Event;
use crate::provider::{Decoder, Delta, Fault, failure, json};

/// One answer on its way.
pub(super) struct Reply {
    provider: String,
    body: Body,
    items: Items,
    is_done: bool,
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
        Self {
            provider: provider.to_owned(),
            body: Body::new(provider),
            items: Items::default(),
            is_done: false,
        }
    }
}

impl Decoder for Reply {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if self.is_done {
            return Ok(());
        }
        let events = self.body.feed(bytes)?;
        self.take_events(events, deltas)
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        match self.body.end() {
            Rest::Whole(body) => self.take_whole(&body, deltas)?,
            Rest::Events(mut events) => {
                // A last event that does not read was cut, and with it the answer.
                let reads = |it: &Event| json::read_event(&it.data).is_ok();
                events.retain(|it| it.name == "error" || reads(it));
                self.take_events(events, deltas)?;
            }
        }
        self.items.flush(deltas);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}

impl Reply {
    fn take_events(&mut self, events: Vec<Event>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for event in events {
            let piece = event.data.trim_ascii();
            match piece {
                _ if self.is_done => break,
                b"" => (),
                b"[DONE]" => self.is_done = true,
                _ => self.take_event(&event.name, piece, deltas)?,
            }
        }
        Ok(())
    }

    fn take_event(
        &mut self,
        name: &str,
        piece: &[u8],
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        let event = match json::read_event(piece) {
            Ok(it) if it.is_object() => it,
            // The text of an error is one.
            Ok(it) if name == "error" => return Err(failure::of_error(&self.provider, &it)),
            Err(_) if name == "error" => {
                let text = Value::String(String::from_utf8_lossy(piece).into_owned());
                return Err(failure::of_error(&self.provider, &text));
            }
            Ok(_) => return Err(self.broken("a piece is not an object", piece)),
            Err(what) => return Err(self.broken(&format!("a piece is {what}"), piece)),
        };
        let kind = Some(text(&event, "type")).filter(|it| !it.is_empty()).unwrap_or(name);
        if kind == "error" || is_error(&event) {
            return Err(failure::of_error(&self.provider, &event));
        }
        match kind.strip_prefix("response.") {
            Some(what) => self.take(what, &event, deltas),
            // Some servers name no kind.
            None if is_end(text(&event, "status")) => self.finish("", &event, deltas),
            None => Ok(()),
        }
    }

    /// One event of the answer, by its kind.
    fn take(&mut self, kind: &str, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
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
                let response = event.get("response").filter(|it| it.is_object());
                return self.finish(kind, response.unwrap_or(event), deltas);
            }
            _ => Ok(()),
        };
        taken.map_err(|it| broken(&self.provider, &it.to_string()))
    }

    /// An answer that is one JSON value, which says all there is.
    fn take_whole(&mut self, body: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let value =
            json::read_event(body).map_err(|what| self.broken(&format!("it is {what}"), body))?;
        if is_error(&value) || value.is_array() {
            return Err(failure::of_error(&self.provider, &value));
        }
        let response = value.get("response").filter(|it| it.is_object()).unwrap_or(&value);
        let status = text(response, "status");
        if is_end(status) || (status.is_empty() && response.get("output").is_some()) {
            return self.finish("", response, deltas);
        }
        Err(self.broken("it is no answer that is whole", body))
    }

    /// The answer has ended as this response tells.
    fn finish(
        &mut self,
        kind: &str,
        response: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        self.is_done = true;
        let end = end_of(kind, response);
        if !matches!(end, End::Failed) {
            let output = response.get("output").and_then(Value::as_array);
            let output = output.map(Vec::as_slice).unwrap_or_default();
            self.items
                .complete(output, deltas)
                .map_err(|it| broken(&self.provider, &it.to_string()))?;
        }
        self.items.flush(deltas);
        deltas.extend(response.get("usage").and_then(read_usage).map(Delta::Usage));
        deltas.push(Delta::Stop(match end {
            End::Whole if self.items.have_calls() => StopReason::ToolUse,
            End::Whole => StopReason::Stop,
            End::Length => StopReason::Length,
            End::Filtered(reason) => return Err(withheld(&self.provider, reason)),
            End::Failed => return Err(self.failed(response)),
        }));
        Ok(())
    }

    fn failed(&self, response: &Value) -> Fault {
        let nothing = || Value::String("it says that it failed, and not why".into());
        let error = response.get("error").filter(|it| it.is_object() || it.is_string());
        failure::of_error(&self.provider, &error.cloned().unwrap_or_else(nothing))
    }

    fn broken(&self, what: &str, piece: &[u8]) -> Fault {
        broken(&self.provider, &format!("{what}: {}", beginning(piece)))
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
    let has_error = match value.get("error") {
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        _ => !text(value, "detail").is_empty(),
    };
    has_error && value.get("output").is_none()
}

/// Whether it is the status of a response that has ended.
fn is_end(status: &str) -> bool {
    ["completed", "incomplete", "failed", "cancelled"].contains(&status)
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

fn withheld(provider: &str, reason: &str) -> Fault {
    let reason = failure::one_line(reason);
    Fault::Refused(format!(
        "the provider `{provider}` withheld the answer or the rest of it (`{reason}`): its filter \
         objects to the conversation. Put it differently, or use another model."
    ))
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
