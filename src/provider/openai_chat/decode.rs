//! What the chunks of an answer say, or the one JSON object of a server that
//! does not stream. Every field is optional and may be null.

use serde_json::Value;

use super::calls::Calls;
use crate::message::Usage;
use crate::provider::body::broken;
use crate::provider::ending::{Ending, Word};
use crate::provider::events::{Dialect, has_error};
use crate::provider::field::{first_of, several, text, tokens, within};
use crate::provider::think::ThinkSplitter;
use crate::provider::{Delta, Fault, failure};

/// One answer on its way.
pub(super) struct Answer {
    provider: String,
    content: ThinkSplitter,
    calls: Calls,
    /// Whether text or thinking, or anything of a call, has come.
    has_said: bool,
    has_choice: bool,
    ending: Ending,
}

impl Answer {
    pub(super) fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            content: ThinkSplitter::default(),
            calls: Calls::default(),
            has_said: false,
            has_choice: false,
            ending: Ending::default(),
        }
    }
}

impl Dialect for Answer {
    fn take(&mut self, _: &str, chunk: &Value, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        if is_error(chunk) {
            return Err(failure::of_error(&self.provider, chunk));
        }
        for choice in first_of(chunk, "choices") {
            self.take_choice(choice, deltas)?;
        }
        deltas.extend(usage_in(chunk).map(Delta::Usage));
        Ok(false)
    }

    fn lacks(&self) -> Option<&'static str> {
        (!self.has_choice).then_some("it has no message")
    }

    fn may_end(&self) -> bool {
        self.ending.may_be_here()
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        self.flush(deltas);
        if self.has_choice {
            self.ending.hear(Word::Stop);
        }
        self.ending.tell(!self.calls.is_empty(), deltas)
    }

    fn flush(&mut self, deltas: &mut Vec<Delta>) {
        self.content.end(deltas);
    }
}

impl Answer {
    fn take_choice(&mut self, choice: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for form in ["delta", "message"] {
            // A whole message is what there is where nothing was streamed; after
            // that it would say the same again.
            let is_news = form == "delta" || (!self.has_said && self.calls.is_empty());
            if let Some(said) = choice.get(form).filter(|it| it.is_object() && is_news) {
                self.has_choice = true;
                self.take_said(said, deltas)?;
            }
        }
        if let Some(error) = choice.get("error").filter(|it| it.is_object()) {
            return Err(failure::of_error(&self.provider, error));
        }
        let reason = text(choice, "finish_reason");
        if !reason.is_empty() {
            let word = self.word_of(reason)?;
            self.ending.hear(word);
        }
        Ok(())
    }

    fn take_said(&mut self, said: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let thinking = ["reasoning_content", "reasoning"].map(|it| text(said, it));
        if let Some(thinking) = thinking.into_iter().find(|it| !it.is_empty()) {
            self.go_on();
            deltas.push(Delta::Thinking(thinking.to_owned()));
        }
        match said.get("content") {
            Some(Value::Array(parts)) => parts.iter().for_each(|it| self.take_part(it, deltas)),
            _ => self.take_text(text(said, "content"), deltas),
        }
        self.take_text(text(said, "refusal"), deltas);
        let pieces = ["tool_calls", "function_call"].map(|it| several(said.get(it)));
        let pieces = pieces.into_iter().find(|it| !it.is_empty()).unwrap_or_default();
        let before = deltas.len();
        self.calls.take(pieces, deltas).map_err(|it| broken(&self.provider, &it.to_string()))?;
        if deltas[before..].iter().any(says_something) {
            self.go_on();
        }
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
                if !thinking.is_empty() {
                    self.go_on();
                    deltas.push(Delta::Thinking(thinking));
                }
            }
            _ => (),
        }
    }

    fn take_text(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        if !text.is_empty() {
            self.go_on();
            self.content.feed(text, deltas);
        }
    }

    fn go_on(&mut self) {
        self.has_said = true;
        self.ending.go_on();
    }

    fn word_of(&self, reason: &str) -> Result<Word, Fault> {
        Ok(match reason.to_ascii_lowercase().as_str() {
            "length" | "max_tokens" | "model_length" => Word::Length,
            "content_filter" | "sensitive" | "safety" => {
                Word::Withheld(failure::withheld(&self.provider, reason))
            }
            "error" | "network_error" | "insufficient_system_resource" | "abort" => {
                let error = Value::String(format!("finish_reason `{reason}`"));
                return Err(failure::of_error(&self.provider, &error));
            }
            // Whatever else it is called, the model has come to an end.
            _ => Word::Stop,
        })
    }
}

/// Whether a chunk is an error, or holds one.
fn is_error(chunk: &Value) -> bool {
    let mut kinds = ["object", "type"].iter().map(|it| text(chunk, it));
    has_error(chunk)
        || kinds.any(|it| it.eq_ignore_ascii_case("error"))
        || (chunk.get("choices").is_none() && !text(chunk, "detail").is_empty())
}

/// The usage in a chunk, wherever its server puts it.
fn usage_in(chunk: &Value) -> Option<Usage> {
    let in_choice = first_of(chunk, "choices").next().and_then(|it| it.get("usage"));
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

/// Whether a delta of a call is more than a word that it is still there.
fn says_something(delta: &Delta) -> bool {
    match delta {
        Delta::ToolCall(it) => it.id.is_some() || it.name.is_some() || !it.arguments.is_empty(),
        _ => true,
    }
}
