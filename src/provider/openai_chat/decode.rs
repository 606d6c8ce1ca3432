//! Reads an answer: server-sent events, or one JSON object where a server
//! does not stream. Every field is optional and may be null; a chunk that says
//! nothing is passed over, but one that does not read fails the call, since
//! what it said is lost.

use serde_json::Value;

use super::calls::Calls;
use crate::message::{StopReason, Usage};
use crate::provider::body::{Body, Rest, beginning, broken};
use crate::provider::field::{number, text, tokens, within};
use crate::provider::sse::Event;
use crate::provider::think::ThinkSplitter;
use crate::provider::{Decoder, Delta, Fault, failure, json};

/// Largest answer, in bytes of what the model said.
const LARGEST_ANSWER: usize = 32 * 1024 * 1024;

/// One answer on its way.
pub(super) struct Answer {
    provider: String,
    body: Body,
    content: ThinkSplitter,
    calls: Calls,
    /// Bytes of text, thinking and arguments so far.
    said: usize,
    has_choice: bool,
    finish: Option<Finish>,
    /// Whether something was said after that word.
    goes_on: bool,
    is_done: bool,
}

/// How the answer ends by its server's word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Finish {
    Stop,
    Length,
    /// A filter took the rest.
    Filtered(String),
}

impl Answer {
    pub(super) fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            body: Body::new(provider),
            content: ThinkSplitter::default(),
            calls: Calls::default(),
            said: 0,
            has_choice: false,
            finish: None,
            goes_on: false,
            is_done: false,
        }
    }
}

impl Decoder for Answer {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if self.is_done {
            return Ok(());
        }
        let events = self.body.feed(bytes)?;
        self.take_events(events, deltas)
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        match self.body.end() {
            Rest::Events(events) => self.take_events(events, deltas)?,
            Rest::Whole(body) => {
                self.take_chunk(&body, deltas)?;
                // It is one JSON value, so what it says is all there is.
                if !self.has_choice {
                    return Err(broken(&self.provider, "it has no message"));
                }
                return self.finish(deltas);
            }
        }
        // Who has said that it ends and then goes on has ended only where the
        // end mark says so.
        if self.finish.is_some() && !self.goes_on {
            return self.finish(deltas);
        }
        self.content.end(deltas);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}

impl Answer {
    fn take_events(&mut self, events: Vec<Event>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for event in events {
            if self.is_done {
                break;
            }
            let chunk = event.data.trim_ascii();
            if event.name == "error" {
                return Err(self.failed(chunk));
            }
            match chunk {
                b"" => (),
                b"[DONE]" => {
                    self.is_done = true;
                    self.finish(deltas)?;
                }
                chunk => self.take_chunk(chunk, deltas)?,
            }
        }
        Ok(())
    }

    fn failed(&self, chunk: &[u8]) -> Fault {
        let text = || Value::String(String::from_utf8_lossy(chunk).into_owned());
        let error = json::read_event(chunk).unwrap_or_else(|_| text());
        failure::of_error(&self.provider, &error)
    }

    fn take_chunk(&mut self, chunk: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let value = json::read_event(chunk).map_err(|it| {
            broken(&self.provider, &format!("a piece is {it}: {}", beginning(chunk)))
        })?;
        if let Some(error) = error_in(&value) {
            return Err(failure::of_error(&self.provider, error));
        }
        if !value.is_object() {
            let what = format!("a piece is not an object: {}", beginning(chunk));
            return Err(broken(&self.provider, &what));
        }
        for choice in first_choices(&value) {
            self.take_choice(choice, deltas)?;
        }
        deltas.extend(usage_in(&value).map(Delta::Usage));
        if self.said > LARGEST_ANSWER {
            return Err(broken(
                &self.provider,
                &format!("it is longer than {LARGEST_ANSWER} bytes"),
            ));
        }
        Ok(())
    }

    fn take_choice(&mut self, choice: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let before = self.said;
        for form in ["delta", "message"] {
            // A whole message is what there is where nothing was streamed; after
            // that it would say the same again.
            let is_news = form == "delta" || (self.said == 0 && self.calls.is_empty());
            if let Some(said) = choice.get(form).filter(|it| it.is_object() && is_news) {
                self.has_choice = true;
                self.take_said(said, deltas)?;
            }
        }
        self.goes_on |= self.said > before;
        if let Some(error) = choice.get("error").filter(|it| it.is_object()) {
            return Err(failure::of_error(&self.provider, error));
        }
        let reason = text(choice, "finish_reason");
        if !reason.is_empty() {
            let finish = self.finish_of(reason)?;
            self.goes_on = false;
            // What was cut or withheld does not become whole by another word.
            if matches!(self.finish, None | Some(Finish::Stop)) {
                self.finish = Some(finish);
            }
        }
        Ok(())
    }

    fn take_said(&mut self, said: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let thinking = ["reasoning_content", "reasoning"].map(|it| text(said, it));
        if let Some(thinking) = thinking.into_iter().find(|it| !it.is_empty()) {
            self.said += thinking.len();
            deltas.push(Delta::Thinking(thinking.to_owned()));
        }
        match said.get("content") {
            Some(Value::Array(parts)) => parts.iter().for_each(|it| self.take_part(it, deltas)),
            _ => self.take_text(text(said, "content"), deltas),
        }
        self.take_text(text(said, "refusal"), deltas);
        let pieces = ["tool_calls", "function_call"].map(|it| pieces_of(said.get(it)));
        let pieces = pieces.into_iter().find(|it| !it.is_empty()).unwrap_or_default();
        let before = deltas.len();
        self.calls.take(pieces, deltas).map_err(|it| broken(&self.provider, &it.to_string()))?;
        self.said += deltas[before..].iter().map(size_of_call).sum::<usize>();
        Ok(())
    }

    fn take_part(&mut self, part: &Value, deltas: &mut Vec<Delta>) {
        if let Some(text) = part.as_str() {
            return self.take_text(text, deltas);
        }
        match text(part, "type") {
            "" | "text" | "output_text" => self.take_text(text(part, "text"), deltas),
            "refusal" => self.take_text(text(part, "refusal"), deltas),
            "thinking" => {
                let inner = part.get("thinking").and_then(Value::as_array);
                let texts = inner.into_iter().flatten().map(|it| text(it, "text"));
                let thinking: String = texts.chain([text(part, "thinking")]).collect();
                self.said += thinking.len();
                deltas.extend((!thinking.is_empty()).then_some(Delta::Thinking(thinking)));
            }
            _ => (),
        }
    }

    fn take_text(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        if !text.is_empty() {
            self.said += text.len();
            self.content.feed(text, deltas);
        }
    }

    fn finish_of(&self, reason: &str) -> Result<Finish, Fault> {
        Ok(match reason.to_ascii_lowercase().as_str() {
            "length" | "max_tokens" | "model_length" => Finish::Length,
            "content_filter" | "sensitive" | "safety" => Finish::Filtered(reason.to_owned()),
            "error" | "network_error" | "insufficient_system_resource" | "abort" => {
                let error = Value::String(format!("finish_reason `{reason}`"));
                return Err(failure::of_error(&self.provider, &error));
            }
            // Whatever else it is called, the model has come to an end.
            _ => Finish::Stop,
        })
    }

    /// The answer is whole: whether it waits for results hangs on its calls,
    /// as servers differ in the word for it.
    fn finish(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        self.content.end(deltas);
        let stop = match self.finish.take() {
            Some(Finish::Filtered(reason)) => {
                return Err(Fault::Refused(format!(
                    "the provider `{}` withheld the answer or the rest of it (`{reason}`): its \
                     filter objects to the conversation. Put it differently, or use another model.",
                    self.provider
                )));
            }
            Some(Finish::Length) => StopReason::Length,
            None if !self.has_choice => return Ok(()),
            _ if !self.calls.is_empty() => StopReason::ToolUse,
            _ => StopReason::Stop,
        };
        deltas.push(Delta::Stop(stop));
        Ok(())
    }
}

/// The error that a chunk is, or holds.
fn error_in(chunk: &Value) -> Option<&Value> {
    let chunk = chunk.as_array().and_then(|it| it.first()).unwrap_or(chunk);
    let inner = chunk.get("error").filter(|it| match it {
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => false,
    });
    let kinds = ["object", "type"].map(|it| text(chunk, it).to_ascii_lowercase());
    let is_error = kinds.iter().any(|it| it == "error")
        || (chunk.get("choices").is_none() && !text(chunk, "detail").is_empty());
    inner.map(|_| chunk).or(is_error.then_some(chunk))
}

/// Pieces of calls: a list of them, or one by itself.
fn pieces_of(field: Option<&Value>) -> &[Value] {
    match field {
        Some(Value::Array(it)) => it,
        Some(it @ Value::Object(_)) => std::slice::from_ref(it),
        _ => &[],
    }
}

/// What a chunk has of the choice that counts: we ask for one. Where none has
/// an index it is the first.
fn first_choices(chunk: &Value) -> impl Iterator<Item = &Value> {
    let choices = chunk.get("choices").and_then(Value::as_array).into_iter().flatten();
    let index = |it: &Value| it.get("index").and_then(number);
    let counted = choices.enumerate().filter(move |(place, it)| match index(it) {
        Some(index) => index == 0,
        None => *place == 0,
    });
    counted.map(|it| it.1)
}

/// The usage in a chunk, wherever its server puts it.
fn usage_in(chunk: &Value) -> Option<Usage> {
    let in_choice = first_choices(chunk).next().and_then(|it| it.get("usage"));
    let places = [chunk.get("usage"), in_choice, chunk.pointer("/x_groq/usage")];
    places.into_iter().flatten().find_map(read_usage)
}

fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |path: &str| usage.pointer(path).and_then(tokens).unwrap_or_default();
    let first = |paths: &[&str]| paths.iter().map(|it| count(it)).find(|it| *it > 0).unwrap_or(0);
    let (prompt, said) = (count("/prompt_tokens"), count("/completion_tokens"));
    let total = count("/total_tokens");
    if prompt == 0 && said == 0 && total == 0 {
        return None;
    }
    let cached =
        ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
    let cache_read = within(first(&cached), prompt);
    let uncached = prompt.saturating_sub(cache_read);
    let cache_write = within(count("/prompt_tokens_details/cache_write_tokens"), uncached);
    // Some count the thinking beside the answer, most within it.
    let thought = count("/completion_tokens_details/reasoning_tokens");
    let beside = prompt.saturating_add(said).saturating_add(thought) == total;
    Some(Usage {
        input: uncached.saturating_sub(cache_write),
        output: if beside { said.saturating_add(thought) } else { said },
        cache_read,
        cache_write,
        total_tokens: total,
        ..Usage::default()
    })
}

fn size_of_call(delta: &Delta) -> usize {
    match delta {
        Delta::ToolCall(it) => {
            let texts = [it.id.as_ref(), it.name.as_ref(), Some(&it.arguments)];
            texts.into_iter().flatten().map(String::len).sum()
        }
        Delta::Signature(it) => it.len(),
        _ => 0,
    }
}
