//! What the events of an answer say, or the one JSON message of a server that
//! does not stream. Every field is optional and may be null; events and blocks
//! that nobody asked for are passed over. What is said of a block whose start is
//! lost says by itself what it is; only arguments without their call fail the
//! answer.

use std::collections::BTreeMap;

use serde_json::Value;

use super::block::{Block, kind_of, piece, says_something};
use super::usage::Counts;
use crate::provider::body::broken;
use crate::provider::ending::{Ending, Word, cut_call};
use crate::provider::events::{Dialect, MOST_BLOCKS, TooMany, has_error};
use crate::provider::field::{arguments, number, text};
use crate::provider::think::ThinkSplitter;
use crate::provider::{CallPiece, Delta, Fault, failure};

/// One answer on its way.
pub(super) struct Answer {
    provider: String,
    text: ThinkSplitter,
    /// Blocks that have begun and not ended, by their index.
    open: BTreeMap<u64, Block>,
    /// Index of the block that began last.
    newest: u64,
    /// Blocks so far, and tool calls among them.
    blocks: usize,
    calls: u64,
    /// Whether anything has been told but that a block begins.
    has_said: bool,
    counts: Counts,
    has_message: bool,
    /// Whether the whole message has come in one event.
    is_in_one_piece: bool,
    /// Whether the answer says that it waits for the results of its calls.
    waits: bool,
    ending: Ending,
}

impl Answer {
    pub(super) fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            text: ThinkSplitter::default(),
            open: BTreeMap::new(),
            newest: 0,
            blocks: 0,
            calls: 0,
            has_said: false,
            counts: Counts::default(),
            has_message: false,
            is_in_one_piece: false,
            waits: false,
            ending: Ending::default(),
        }
    }
}

impl Dialect for Answer {
    fn take(&mut self, name: &str, event: &Value, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        let told = text(event, "type");
        let kind = if told.is_empty() { name } else { told };
        if kind == "error" || has_error(event) {
            return Err(failure::of_error(&self.provider, event));
        }
        if kind == "message_stop" {
            return self.end(deltas).map(|()| true);
        }
        self.take_event(kind, event, deltas)?;
        Ok(false)
    }

    fn lacks(&self) -> Option<&'static str> {
        (!self.is_in_one_piece).then_some("it has no message")
    }

    fn may_end(&self) -> bool {
        self.ending.may_be_here()
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if self.open.values().any(|it| it.is_cut(self.waits)) {
            self.ending.miss(cut_call(&self.provider, "its block did not end"));
        }
        for index in self.open.keys().copied().collect::<Vec<u64>>() {
            self.end_block(index, deltas);
        }
        self.flush(deltas);
        if self.has_message {
            self.ending.hear(Word::Stop);
        }
        self.ending.tell(self.calls > 0, deltas)
    }

    fn flush(&mut self, deltas: &mut Vec<Delta>) {
        self.text.end(deltas);
    }
}

impl Answer {
    fn take_event(
        &mut self,
        kind: &str,
        event: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
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
        self.waits = reason == "tool_use";
        let word = match reason {
            "max_tokens" => Word::Length,
            "model_context_window_exceeded" if !self.has_said => Word::Withheld(self.too_long()),
            "model_context_window_exceeded" => Word::Length,
            "refusal" => {
                let why = text(&of["stop_details"], "explanation");
                Word::Withheld(self.refused(why))
            }
            // Whatever else it is called, the model has come to an end.
            _ => Word::Stop,
        };
        self.ending.hear(word);
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
                !id.is_empty() && id == text(block, "id") && *given == arguments(block.get("input"))
            }
            _ => false,
        }
    }

    fn open_block(&mut self, index: u64, block: Block) -> Result<(), Fault> {
        self.ending.go_on();
        self.open.insert(index, block);
        self.count_block()
    }

    fn count_block(&mut self) -> Result<(), Fault> {
        self.blocks += 1;
        if self.blocks > MOST_BLOCKS {
            return Err(broken(&self.provider, &TooMany("blocks").to_string()));
        }
        Ok(())
    }

    fn begin_call(&mut self, block: &Value, deltas: &mut Vec<Delta>) -> Block {
        let word = |name| Some(text(block, name).to_owned()).filter(|it| !it.is_empty());
        let (id, name, slot) = (word("id"), word("name"), self.calls);
        self.calls += 1;
        self.has_said |= id.is_some() || name.is_some();
        let begun = Block::Call {
            slot,
            id: text(block, "id").to_owned(),
            given: arguments(block.get("input")),
            is_told: false,
        };
        deltas.push(Delta::ToolCall(CallPiece { slot, id, name, arguments: String::new() }));
        begun
    }

    fn take_redacted(&mut self, data: &str, deltas: &mut Vec<Delta>) {
        if !data.is_empty() {
            self.has_said = true;
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
        self.add_arguments(index, arguments(more.get("partial_json")), deltas)?;
        self.has_said |= deltas[before..].iter().any(says_something);
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
        self.ending.go_on();
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
        self.ending.go_on();
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
                self.has_said = true;
                deltas.push(piece(slot, given));
            }
            _ => (),
        }
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
