//! A request that a test model got, and what it says in short.

use serde_json::Value;

use super::dialect::Dialect;
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
    /// The protocol that it is in.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        Dialect::of(&self.head)
    }

    /// The texts of its messages, each after its role.
    pub(crate) fn said(&self) -> Vec<String> {
        self.dialect().map(|it| it.said(&self.body)).unwrap_or_default()
    }

    /// The text of the last user message.
    pub(crate) fn last_user(&self) -> String {
        let said = self.said();
        let last = said.iter().rev().find_map(|it| it.strip_prefix("user: "));
        last.unwrap_or_default().to_owned()
    }

    /// The text of the last message, if it is a tool's result.
    pub(crate) fn last_tool(&self) -> Option<String> {
        self.said().last()?.strip_prefix("tool: ").map(str::to_owned)
    }

    /// How many answers of the model it has.
    pub(crate) fn answers(&self) -> usize {
        self.said().iter().filter(|it| it.starts_with("assistant: ")).count()
    }
}
