//! A block of an answer on its way, and what its words mean. Pure.

use serde_json::Value;

use crate::provider::field::text;
use crate::provider::{CallPiece, Delta};

/// A block on its way.
#[derive(Debug)]
pub(super) enum Block {
    Text,
    Thinking {
        /// Whether something of it has been told.
        is_told: bool,
    },
    Call {
        slot: u64,
        /// Its id, empty where it has none.
        id: String,
        /// The arguments that came with its start, until pieces come.
        given: String,
        /// Whether pieces of its arguments have come.
        is_told: bool,
    },
    /// Of a kind that nobody asked for.
    Other,
}

/// What a block is: by its own word, else by what it has.
pub(super) fn kind_of(block: &Value) -> &str {
    let fields = [("name", "tool_use"), ("thinking", "thinking"), ("text", "text")];
    let by_field = fields.into_iter().find(|it| block[it.0].is_string()).map(|it| it.1);
    Some(text(block, "type")).filter(|it| !it.is_empty()).or(by_field).unwrap_or_default()
}

/// Arguments as text. An empty object only says that the pieces are still to
/// come.
pub(super) fn arguments(value: &Value) -> String {
    match value {
        Value::Object(it) if it.is_empty() => String::new(),
        Value::Null => String::new(),
        Value::String(it) => it.clone(),
        it => it.to_string(),
    }
}

/// More of the arguments of the call in that slot.
pub(super) fn piece(slot: u64, arguments: String) -> Delta {
    Delta::ToolCall(CallPiece { slot, arguments, ..CallPiece::default() })
}

/// Bytes of what the model said.
pub(super) fn size(delta: &Delta) -> usize {
    match delta {
        Delta::Text(it) | Delta::Thinking(it) | Delta::Signature(it) => it.len(),
        Delta::ToolCall(it) => it.arguments.len(),
        _ => 0,
    }
}
