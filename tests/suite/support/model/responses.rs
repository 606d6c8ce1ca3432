//! Responses.

use serde_json::Value;

use super::script::{Answer, Said};

/// All that is wrong with a request's body.
pub(super) fn body(_: &Value) -> Vec<String> {
    vec!["nobody speaks it yet".into()]
}

/// The texts of the messages, each after its role.
pub(super) fn said(_: &Value) -> Vec<String> {
    Vec::new()
}

/// A whole answer.
pub(super) fn answer(_: &Said) -> Answer {
    Answer::stream()
}
