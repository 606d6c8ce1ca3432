//! What the model said, as items of a request. Pure. The server checks what
//! belongs together: a reasoning item needs the item that followed it, and an
//! item whose id it gave together with a reasoning item needs that one. So a
//! reasoning item goes only right before what followed it, and ids only where
//! nothing before them is missing. What another model said goes without either.

use serde_json::{Value, json};

use super::opaque;
use crate::message::{Assistant, Block, StopReason, Text, ToolCall};
use crate::provider::Origin;
use crate::provider::ids::{Ids, sound_name};

/// The items of an answer, in their order.
pub(super) fn items(answer: &Assistant, origin: &Origin<'_>, ids: &mut Ids) -> Vec<Value> {
    ids.begin_answer();
    let mut said = Said {
        gave: origin.gave(answer),
        takes_back: origin.takes_back(answer),
        is_whole: !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted),
        ids,
        items: Vec::new(),
        waiting: Vec::new(),
        after_thinking: false,
        lacks: false,
    };
    for block in &answer.content {
        match block {
            Block::Thinking(it) => said.think(it.thinking_signature.as_deref()),
            Block::Text(it) => said.say(it),
            Block::ToolCall(it) => said.call(it),
            Block::Image(_) | Block::Unknown(_) => (),
        }
    }
    // What thinking is left was followed by nothing.
    said.items
}

/// An answer on its way to the wire.
struct Said<'a> {
    /// Whether the model that is asked gave it.
    gave: bool,
    /// Whether what is opaque in it may go out.
    takes_back: bool,
    /// Whether it came to its end.
    is_whole: bool,
    ids: &'a mut Ids,
    items: Vec<Value>,
    /// Reasoning items that wait for the item that followed them.
    waiting: Vec<Value>,
    after_thinking: bool,
    /// Whether something is missing of the thinking before this.
    lacks: bool,
}

impl Said<'_> {
    fn think(&mut self, kept: Option<&str>) {
        if !std::mem::replace(&mut self.after_thinking, true) {
            self.lacks = false;
        }
        let item = kept.filter(|_| self.takes_back).and_then(opaque::reasoning);
        self.lacks |= item.is_none();
        self.waiting.extend(item);
    }

    fn say(&mut self, said: &Text) {
        // What its own server takes back is sent as it was said.
        let is_nothing = said.text.is_empty() || (!self.takes_back && said.text.trim().is_empty());
        if is_nothing {
            return;
        }
        // A message that was broken off is not what the server knows.
        let is_whole = self.is_whole || said.text_signature.is_some();
        self.follow(is_whole);
        let mark = opaque::message(said).filter(|_| self.takes_back && !self.lacks);
        let part = json!({"type": "output_text", "text": said.text});
        let mut item = json!({"type": "message", "role": "assistant", "content": [part]});
        if let Some(mark) = mark {
            item["id"] = json!(mark.id);
            item["status"] = json!("completed");
            item["content"][0]["annotations"] = json!([]);
            if let Some(phase) = mark.phase {
                item["phase"] = json!(phase);
            }
        }
        self.items.push(item);
    }

    fn call(&mut self, call: &ToolCall) {
        self.follow(self.is_whole);
        let known = opaque::call_id(call).filter(|_| self.gave);
        let mut item = json!({"type": "function_call",
            "call_id": self.ids.of_known_call(call, known),
            "name": sound_name(&call.name), "arguments": arguments(call)});
        let id = opaque::call_item(call).filter(|_| self.takes_back && !self.lacks);
        if let Some(id) = id {
            item["id"] = json!(id);
        }
        self.items.push(item);
    }

    /// An item follows: with what was thought before it, if it is the one that
    /// the server knows.
    fn follow(&mut self, is_whole: bool) {
        let thought = std::mem::take(&mut self.waiting);
        if is_whole {
            self.items.extend(thought);
        } else {
            self.lacks |= !thought.is_empty();
        }
        self.after_thinking = false;
    }
}

fn arguments(call: &ToolCall) -> String {
    match &call.arguments {
        it @ Value::Object(_) => it.to_string(),
        _ => "{}".into(),
    }
}
