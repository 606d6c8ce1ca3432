//! A request that a test model got, and what it says in short.

use serde_json::Value;

use super::wire::Head;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its head.
    pub(crate) head: Head,
    /// Its body.
    pub(crate) body: Value,
}

impl Asked {
    /// The texts of its messages, each after its role.
    pub(crate) fn said(&self) -> Vec<String> {
        let messages = self.body["messages"].as_array().cloned().unwrap_or_default();
        messages
            .iter()
            .map(|it| format!("{}: {}", it["role"].as_str().unwrap_or("?"), text_of(it)))
            .collect()
    }

    /// The text of the last user message.
    pub(crate) fn last_user(&self) -> String {
        self.last_of("user").unwrap_or_default()
    }

    /// The text of the last message, if it is a tool's result.
    pub(crate) fn last_tool(&self) -> Option<String> {
        let last = self.body["messages"].as_array()?.last()?;
        (last["role"] == "tool").then(|| text_of(last))
    }

    /// How many answers of the model it has.
    pub(crate) fn answers(&self) -> usize {
        self.said().iter().filter(|it| it.starts_with("assistant: ")).count()
    }

    fn last_of(&self, role: &str) -> Option<String> {
        let messages = self.body["messages"].as_array()?;
        messages.iter().rev().find(|it| it["role"] == role).map(text_of)
    }
}

/// The text of a message; calls as `<tool arguments>`.
fn text_of(message: &Value) -> String {
    let mut text = match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|it| it["text"].as_str()).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let word = |name: &str| function[name].as_str().unwrap_or("?").to_owned();
        text.push_str(&format!("<{} {}>", word("name"), word("arguments")));
    }
    text
}
