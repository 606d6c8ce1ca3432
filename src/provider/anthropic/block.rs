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

impl Block {
    /// Whether it is a call that is not whole, if its end did not come. Arguments
    /// say by themselves where they end; that there are none, nobody knows then.
    pub(super) fn is_cut(&self, waits: bool) -> bool {
        match self {
            Self::Call { given, is_told, .. } => !waits || (given.is_empty() && !is_told),
            Self::Text | Self::Thinking { .. } | Self::Other => false,
        }
    }
}

/// What a block is: by its own word, else by what it has.
pub(super) fn kind_of(block: &Value) -> &str {
    let fields = [("name", "tool_use"), ("thinking", "thinking"), ("text", "text")];
    let by_field = fields.into_iter().find(|it| block[it.0].is_string()).map(|it| it.1);
    Some(text(block, "type")).filter(|it| !it.is_empty()).or(by_field).unwrap_or_default()
}

/// More of the arguments of the call in that slot.
pub(super) fn piece(slot: u64, arguments: String) -> Delta {
    Delta::ToolCall(CallPiece { slot, arguments, ..CallPiece::default() })
}

/// Whether a delta is more than a word that its block is there.
pub(super) fn says_something(delta: &Delta) -> bool {
    match delta {
        Delta::Text(it) | Delta::Thinking(it) | Delta::Signature(it) => !it.is_empty(),
        Delta::ToolCall(it) => !it.arguments.is_empty(),
        _ => false,
    }
}
