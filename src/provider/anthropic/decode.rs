//! Reads an answer: server-sent events, or one JSON message where a server
//! does not stream. Every field is optional and may be null; events and blocks
//! that nobody asked for are passed over, but one that does not read fails the
//! call, since what it said is lost. What is said of a block whose start is lost
//! says by itself what it is; only arguments without their call fail the answer.

use std::collections::BTreeMap;

use serde_json::Value;

use super::block::{Block, arguments, kind_of, piece, size};
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
    /// Whether the whole message has come in one event.
    is_in_one_piece: bool,
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
            is_in_one_piece: false,
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
        self.take_events(&events, deltas)
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        match self.body.end() {
            Rest::Events(events) => self.take_events(&events, deltas)?,
            Rest::Whole(body) => {
                self.take_chunk("", &body, deltas)?;
                // It is one JSON value, so what it says is all there is.
                if !self.is_in_one_piece {
                    return Err(broken(&self.provider, "it has no message"));
                }
                return self.end_message(deltas);
            }
        }
        // Who has said that it ends and then goes on has ended only where the
        // end mark says so.
        if self.finish.is_some() && !self.goes_on {
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
        let error = json::read_event(chunk).unwrap_or_else(|_| text());
        failure::of_error(&self.provider, &error)
    }

    fn take_chunk(
        &mut self,
        name: &str,
        chunk: &[u8],
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        let value = json::read_event(chunk).map_err(|it| {
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
        if kind == "error" || is_error(&event["error"]) {
            return Err(failure::of_error(&self.provider, event));
        }
        let index = event.get("index").and_then(number);
        match kind {
            "message_start" if self.blocks > 0 => {
                return Err(broken(&self.provider, "another answer begins in the middle of it"));
            }
            "message_start" => {
                self.has_message = true;
                self.take_usage(&event["message"], deltas);
            }
            "content_block_start" => {
                let index = index.unwrap_or(self.newest.saturating_add(u64::from(self.blocks > 0)));
                self.begin_block(index, &event["content_block"], deltas)?;
            }
            "content_block_delta" => {
                self.add(index.unwrap_or(self.newest), &event["delta"], deltas)?;
            }
            "content_block_stop" => self.end_block(index.unwrap_or(self.newest), deltas),
            "message_delta" => {
                self.take_finish(&event["delta"]);
                self.take_usage(event, deltas);
            }
            "message_stop" => self.end_message(deltas)?,
            "message" => self.take_message(event, deltas)?,
            _ => (),
        }
        Ok(())
    }

    /// A whole message in one piece. Behind the pieces of one it says the same
    /// again.
    fn take_message(&mut self, message: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        (self.has_message, self.is_in_one_piece) = (true, true);
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let blocks = if self.blocks > 0 { &[] } else { blocks };
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
        self.goes_on = false;
        // What was cut or withheld does not become whole by another word.
        if !matches!(self.finish, None | Some(Finish::Stop)) {
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
        let kind = kind_of(block);
        if kind == "tool_use" && self.is_begun_again(index, block) {
            return Ok(());
        }
        // Some give every block the same index, or never say that one ends.
        self.end_block(index, deltas);
        (self.has_message, self.newest) = (true, index);
        if kind != "text" {
            self.text.end(deltas);
        }
        let begun = match kind {
            "text" => Block::Text,
            "thinking" => Block::Thinking { is_told: false },
            "tool_use" => self.begin_call(block, deltas),
            "redacted_thinking" => {
                self.take_redacted(text(block, "data"), deltas);
                Block::Other
            }
            // What comes of it says what it is.
            "" => return self.count_block(),
            _ => Block::Other,
        };
        self.open_block(index, begun)?;
        match kind {
            "text" | "thinking" => self.add(index, block, deltas),
            _ => Ok(()),
        }
    }

    /// Whether the start of a call is told again before any of its arguments.
    fn is_begun_again(&self, index: u64, block: &Value) -> bool {
        match self.open.get(&index) {
            Some(Block::Call { id, given, is_told: false, .. }) => {
                !id.is_empty() && id == text(block, "id") && *given == arguments(&block["input"])
            }
            _ => false,
        }
    }

    fn open_block(&mut self, index: u64, block: Block) -> Result<(), Fault> {
        self.goes_on = true;
        self.open.insert(index, block);
        self.count_block()
    }

    fn count_block(&mut self) -> Result<(), Fault> {
        self.blocks += 1;
        if self.blocks > MOST_BLOCKS {
            let what = format!("it has more than {MOST_BLOCKS} blocks");
            return Err(broken(&self.provider, &what));
        }
        Ok(())
    }

    fn begin_call(&mut self, block: &Value, deltas: &mut Vec<Delta>) -> Block {
        let word = |name| Some(text(block, name).to_owned()).filter(|it| !it.is_empty());
        let (id, name, slot) = (word("id"), word("name"), self.calls);
        self.calls += 1;
        self.said += id.iter().chain(&name).map(String::len).sum::<usize>();
        let begun = Block::Call {
            slot,
            id: text(block, "id").to_owned(),
            given: arguments(&block["input"]),
            is_told: false,
        };
        deltas.push(Delta::ToolCall(CallPiece { slot, id, name, arguments: String::new() }));
        begun
    }

    fn take_redacted(&mut self, data: &str, deltas: &mut Vec<Delta>) {
        if !data.is_empty() {
            self.said += data.len();
            deltas.push(Delta::Redacted(data.to_owned()));
        }
    }

    /// More of a block: each field of it is named as in the block itself, but
    /// for the arguments of a call.
    fn add(&mut self, index: u64, more: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let before = deltas.len();
        let said = text(more, "text");
        if !said.is_empty() && self.make_room(index, Block::Text, deltas)? {
            self.text.feed(said, deltas);
        }
        self.add_thinking(index, text(more, "thinking"), text(more, "signature"), deltas)?;
        self.add_arguments(index, arguments(&more["partial_json"]), deltas)?;
        self.said += deltas[before..].iter().map(size).sum::<usize>();
        Ok(())
    }

    /// A signature is of a thought, also where the provider keeps the thought to
    /// itself; what has begun as anything else has none.
    fn add_thinking(
        &mut self,
        index: u64,
        more: &str,
        signature: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        let is_of_thought = matches!(self.open.get(&index), None | Some(Block::Thinking { .. }));
        let signature = if is_of_thought || !more.is_empty() { signature } else { "" };
        let is_nothing = more.is_empty() && signature.is_empty();
        if is_nothing || !self.make_room(index, Block::Thinking { is_told: false }, deltas)? {
            return Ok(());
        }
        if let Some(Block::Thinking { is_told }) = self.open.get_mut(&index)
            && (!std::mem::replace(is_told, true) || !more.is_empty())
        {
            deltas.push(Delta::Thinking(more.to_owned()));
        }
        if !signature.is_empty() {
            deltas.push(Delta::Signature(signature.to_owned()));
        }
        Ok(())
    }

    fn add_arguments(
        &mut self,
        index: u64,
        more: String,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        if more.is_empty() {
            return Ok(());
        }
        self.goes_on = true;
        match self.open.get_mut(&index) {
            Some(Block::Call { slot, given, is_told, .. }) => {
                given.clear();
                *is_told = true;
                deltas.push(piece(*slot, more));
                Ok(())
            }
            Some(Block::Other) => Ok(()),
            _ => Err(broken(&self.provider, "arguments came of a call that is not there")),
        }
    }

    /// Sees to it that the block of that index is of the kind of this one, so
    /// that more can be said of it; `false` if it is one that nobody asked for.
    fn make_room(
        &mut self,
        index: u64,
        block: Block,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        self.goes_on = true;
        match (self.open.get(&index), &block) {
            (Some(Block::Other), _) => return Ok(false),
            (Some(Block::Text), Block::Text)
            | (Some(Block::Thinking { .. }), Block::Thinking { .. }) => return Ok(true),
            _ => (),
        }
        // Its start is lost, or the start of what comes now.
        self.end_block(index, deltas);
        (self.has_message, self.newest) = (true, index);
        if !matches!(block, Block::Text) {
            self.text.end(deltas);
        }
        self.open_block(index, block)?;
        Ok(true)
    }

    fn end_block(&mut self, index: u64, deltas: &mut Vec<Delta>) {
        match self.open.remove(&index) {
            Some(Block::Text) => self.text.end(deltas),
            Some(Block::Call { slot, given, .. }) if !given.is_empty() => {
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

fn is_error(field: &Value) -> bool {
    match field {
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => false,
    }
}
