//! What the model said, as items of a request. Pure. The server checks what
//! belongs together: a reasoning item needs the item that followed it, and an
//! item whose id it gave together with a reasoning item needs that one. So a
//! reasoning item goes only right before what followed it, and ids only where
//! nothing before them is missing. What another model said goes without either.

use serde_json::{Value, json};

use super::opaque;
use crate::provider::history::{Answer, Call, Said};

/// The items of an answer, in their order.
pub(super) fn items(answer: Answer<'_>) -> Vec<Value> {
    let mut spelled = Spelled { is_whole: answer.is_whole, ..Spelled::default() };
    for said in answer.said {
        match said {
            Said::Thought(it) => spelled.think(it.thinking_signature.as_deref()),
            Said::Text(text, kept) => spelled.say(text, kept),
            Said::Call(it) => spelled.call(&it),
        }
    }
    // What thinking is left was followed by nothing.
    spelled.items
}

/// An answer on its way to the wire.
#[derive(Default)]
struct Spelled {
    /// Whether it came to its end.
    is_whole: bool,
    items: Vec<Value>,
    /// Reasoning items that wait for the item that followed them.
    waiting: Vec<Value>,
    after_thinking: bool,
    /// Whether something is missing of the thinking before this.
    lacks: bool,
}

impl Spelled {
    fn think(&mut self, kept: Option<&str>) {
        if !std::mem::replace(&mut self.after_thinking, true) {
            self.lacks = false;
        }
        let item = kept.and_then(opaque::reasoning);
        self.lacks |= item.is_none();
        self.waiting.extend(item);
    }

    fn say(&mut self, text: &str, kept: Option<&str>) {
        // What its own server takes back is sent as it was said.
        if text.is_empty() || (kept.is_none() && text.trim().is_empty()) {
            return;
        }
        // A message that was broken off is not what the server knows.
        self.follow(self.is_whole || kept.is_some());
        let mark = kept.and_then(opaque::message).filter(|_| !self.lacks);
        let part = json!({"type": "output_text", "text": text});
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

    fn call(&mut self, call: &Call<'_>) {
        self.follow(self.is_whole);
        let mut item = json!({"type": "function_call", "call_id": call.id,
            "name": call.name, "arguments": call.arguments.to_string()});
        let id = call.as_it_came.and_then(opaque::call_item).filter(|_| !self.lacks);
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
