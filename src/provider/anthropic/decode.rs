//! Reads an answer: server-sent events, or one JSON message where a server
//! does not stream. Every field is optional and may be null; events and blocks
//! that nobody asked for are passed over, but one that does not read fails the
//! call, since what it said is lost.

use std::collections::BTreeMap;

use serde_json::Value;

use super::usage::Counts;
use crate::message::StopReason;
use crate::provider::body::{Body, Rest, beginning, broken};
use crate::provider::field::{number, text};
use crate::provider::sse::Event;
use crate::provider::think::ThinkSplitter;
use crate::provider::{CallPiece, Decoder, Delta, Fault, failure, json};

/// Largest answer, in bytes of what the model said.
const LARGEST_ANSWER: usize = 32 * 1024 * 1024;

/// Most blocks of one answer, tool calls among them.
const MOST_BLOCKS: usize = 1_024;

/// One answer on its way.
pub(super) struct Answer {
    provider: String,
    body: Body,
    text: ThinkSplitter,
    /// Blocks that have begun and not ended, by their index.
    open: BTreeMap<u64, Block>,
    /// Index of the block that began last.
    newest: u64,
    /// Blocks so far, and tool calls among them.
    blocks: usize,
    calls: u64,
    /// Bytes of text, thinking, opaque data and arguments so far.
    said: usize,
    counts: Counts,
    has_message: bool,
    finish: Option<Finish>,
    is_done: bool,
}

/// A block on its way.
#[derive(Debug)]
enum Block {
    Text,
    Thinking {
        /// Whether something of it has been told.
        is_told: bool,
    },
    Call {
        slot: u64,
        /// The arguments that came with its start, until pieces come.
        given: String,
    },
    /// Of a kind that nobody asked for.
    Other,
}

/// How the answer ends by its server's word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Finish {
    Stop,
    Length,
    /// The conversation fills all that the model reads.
    Full,
    /// The model, or what watches it, will not answer; what is said of it.
    Refused(String),
}

impl Answer {
    pub(super) fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            body: Body::new(provider),
            text: ThinkSplitter::default(),
            open: BTreeMap::new(),
            newest: 0,
            blocks: 0,
            calls: 0,
            said: 0,
            counts: Counts::default(),
            has_message: false,
            finish: None,
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
        self.take_events(&events, deltas)
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        match self.body.end() {
            Rest::Events(events) => self.take_events(&events, deltas)?,
            Rest::Whole(body) => {
                self.take_chunk("", &body, deltas)?;
                // It is one JSON value, so what it says is all there is.
                if !self.has_message {
                    return Err(broken(&self.provider, "it has no message"));
                }
                return self.end_message(deltas);
            }
        }
        if self.finish.is_some() {
            return self.end_message(deltas);
        }
        self.text.end(deltas);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}

impl Answer {
    fn take_events(&mut self, events: &[Event], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for event in events {
            match event.data.trim_ascii() {
                _ if self.is_done => break,
                chunk if event.name == "error" => return Err(self.failed(chunk)),
                b"" => (),
                // Not of this protocol, but some who speak it have the habit.
                b"[DONE]" => self.end_message(deltas)?,
                chunk => self.take_chunk(&event.name, chunk, deltas)?,
            }
        }
        Ok(())
    }

    fn failed(&self, chunk: &[u8]) -> Fault {
        let text = || Value::String(String::from_utf8_lossy(chunk).into_owned());
        let error = json::read(chunk, json::MOST_VALUES).unwrap_or_else(|_| text());
        failure::of_error(&self.provider, &error)
    }

    fn take_chunk(
        &mut self,
        name: &str,
        chunk: &[u8],
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        let value = json::read(chunk, json::MOST_VALUES).map_err(|it| {
            broken(&self.provider, &format!("a piece is {it}: {}", beginning(chunk)))
        })?;
        if !value.is_object() {
            let what = format!("a piece is not an object: {}", beginning(chunk));
            return Err(broken(&self.provider, &what));
        }
        let told = text(&value, "type");
        self.take(if told.is_empty() { name } else { told }, &value, deltas)?;
        if self.said > LARGEST_ANSWER {
            let what = format!("it is longer than {LARGEST_ANSWER} bytes");
            return Err(broken(&self.provider, &what));
        }
        Ok(())
    }

    fn take(&mut self, kind: &str, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let index = event.get("index").and_then(number);
        match kind {
            "message_start" => {
                self.has_message = true;
                self.take_usage(&event["message"], deltas);
            }
            "content_block_start" => {
                let index = index.unwrap_or(self.newest.saturating_add(u64::from(self.blocks > 0)));
                self.begin_block(index, &event["content_block"], deltas)?;
            }
            "content_block_delta" => {
                self.add(index.unwrap_or(self.newest), &event["delta"], deltas);
            }
            "content_block_stop" => self.end_block(index.unwrap_or(self.newest), deltas),
            "message_delta" => {
                self.take_finish(&event["delta"]);
                self.take_usage(event, deltas);
            }
            "message_stop" => self.end_message(deltas)?,
            "message" => self.take_message(event, deltas)?,
            _ if kind == "error" || !event["error"].is_null() => {
                return Err(failure::of_error(&self.provider, event));
            }
            _ => (),
        }
        Ok(())
    }

    /// A whole message in one piece.
    fn take_message(&mut self, message: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        self.has_message = true;
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (index, block) in (0..).zip(blocks) {
            self.begin_block(index, block, deltas)?;
            self.end_block(index, deltas);
        }
        self.take_finish(message);
        self.take_usage(message, deltas);
        Ok(())
    }

    fn take_usage(&mut self, of: &Value, deltas: &mut Vec<Delta>) {
        deltas.extend(self.counts.take(&of["usage"]).map(Delta::Usage));
    }

    fn take_finish(&mut self, of: &Value) {
        let reason = text(of, "stop_reason");
        if reason.is_empty() {
            return;
        }
        self.finish = Some(match reason {
            "max_tokens" => Finish::Length,
            "model_context_window_exceeded" => Finish::Full,
            "refusal" => Finish::Refused(text(&of["stop_details"], "explanation").to_owned()),
            // Whatever else it is called, the model has come to an end.
            _ => Finish::Stop,
        });
    }

    fn begin_block(
        &mut self,
        index: u64,
        block: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        // Some give every block the same index, or never say that one ends.
        self.end_block(index, deltas);
        self.blocks += 1;
        if self.blocks > MOST_BLOCKS {
            let what = format!("it has more than {MOST_BLOCKS} blocks");
            return Err(broken(&self.provider, &what));
        }
        (self.has_message, self.newest) = (true, index);
        let kind = text(block, "type");
        if kind != "text" {
            self.text.end(deltas);
        }
        let begun = match kind {
            "text" => Block::Text,
            "thinking" => Block::Thinking { is_told: false },
            "tool_use" => self.begin_call(block, deltas),
            _ => Block::Other,
        };
        self.open.insert(index, begun);
        match kind {
            "text" | "thinking" => self.add(index, block, deltas),
            "redacted_thinking" => self.take_redacted(text(block, "data"), deltas),
            _ => (),
        }
        Ok(())
    }

    fn begin_call(&mut self, block: &Value, deltas: &mut Vec<Delta>) -> Block {
        let word = |name| Some(text(block, name).to_owned()).filter(|it| !it.is_empty());
        let (id, name, slot) = (word("id"), word("name"), self.calls);
        self.calls += 1;
        self.said += id.iter().chain(&name).map(String::len).sum::<usize>();
        let piece = CallPiece { slot, id, name, arguments: String::new() };
        deltas.push(Delta::ToolCall(piece));
        // An empty object only says that the pieces are still to come.
        let given = match &block["input"] {
            Value::Object(it) if it.is_empty() => String::new(),
            Value::Null => String::new(),
            Value::String(it) => it.clone(),
            it => it.to_string(),
        };
        Block::Call { slot, given }
    }

    fn take_redacted(&mut self, data: &str, deltas: &mut Vec<Delta>) {
        if !data.is_empty() {
            self.said += data.len();
            deltas.push(Delta::Redacted(data.to_owned()));
        }
    }

    /// More of a block: each field of it is named as in the block itself, but
    /// for the arguments of a call.
    fn add(&mut self, index: u64, more: &Value, deltas: &mut Vec<Delta>) {
        let Some(block) = self.open.get_mut(&index) else { return };
        let before = deltas.len();
        match block {
            Block::Text => self.text.feed(text(more, "text"), deltas),
            Block::Thinking { is_told } => {
                add_thinking(is_told, text(more, "thinking"), text(more, "signature"), deltas);
            }
            Block::Call { slot, given } => {
                let arguments = text(more, "partial_json");
                if !arguments.is_empty() {
                    given.clear();
                    deltas.push(piece(*slot, arguments.to_owned()));
                }
            }
            Block::Other => (),
        }
        self.said += deltas[before..].iter().map(size).sum::<usize>();
    }

    fn end_block(&mut self, index: u64, deltas: &mut Vec<Delta>) {
        match self.open.remove(&index) {
            Some(Block::Text) => self.text.end(deltas),
            Some(Block::Call { slot, given }) if !given.is_empty() => {
                self.said += given.len();
                deltas.push(piece(slot, given));
            }
            _ => (),
        }
    }

    /// The answer is whole: whether it waits for results hangs on its calls.
    fn end_message(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        self.is_done = true;
        for index in self.open.keys().copied().collect::<Vec<u64>>() {
            self.end_block(index, deltas);
        }
        self.text.end(deltas);
        let stop = match self.finish.take() {
            Some(Finish::Refused(why)) => return Err(self.refused(&why)),
            Some(Finish::Full) if self.said == 0 => return Err(self.too_long()),
            Some(Finish::Length | Finish::Full) => StopReason::Length,
            None if !self.has_message => return Ok(()),
            _ if self.calls > 0 => StopReason::ToolUse,
            _ => StopReason::Stop,
        };
        deltas.push(Delta::Stop(stop));
        Ok(())
    }

    fn refused(&self, why: &str) -> Fault {
        let why = failure::one_line(why);
        let why = if why.is_empty() { why } else { format!(" ({})", why.trim_end_matches('.')) };
        Fault::Refused(format!(
            "the provider `{}` withheld the answer or the rest of it (`refusal`): it objects to \
             the conversation{why}. Put it differently, or use another model.",
            self.provider
        ))
    }

    fn too_long(&self) -> Fault {
        Fault::TooLong(format!(
            "the provider `{}` says that the conversation fills all that the model reads: start \
             a new session, or use a model that reads more.",
            self.provider
        ))
    }
}

/// A signature is of a thought, also where the provider keeps the thought to
/// itself.
fn add_thinking(is_told: &mut bool, more: &str, signature: &str, deltas: &mut Vec<Delta>) {
    if !more.is_empty() || (!signature.is_empty() && !*is_told) {
        *is_told = true;
        deltas.push(Delta::Thinking(more.to_owned()));
    }
    if !signature.is_empty() {
        deltas.push(Delta::Signature(signature.to_owned()));
    }
}

fn piece(slot: u64, arguments: String) -> Delta {
    Delta::ToolCall(CallPiece { slot, arguments, ..CallPiece::default() })
}

/// Bytes of what the model said.
fn size(delta: &Delta) -> usize {
    match delta {
        Delta::Text(it) | Delta::Thinking(it) | Delta::Signature(it) => it.len(),
        Delta::ToolCall(it) => it.arguments.len(),
        _ => 0,
    }
}
