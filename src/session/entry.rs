//! One line of a session file, as pi writes it. Bodies of a type that is not
//! known are kept as they are.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::{Content, Message, read_json};

/// The version of the format that is written.
pub(super) const VERSION: u64 = 3;

/// Longest first line of a session file that is looked at, in bytes.
pub(super) const LONGEST_HEADER: u64 = 64 * 1024;

/// The first line of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Always `session`.
    #[serde(rename = "type")]
    pub kind: HeaderKind,
    /// Version of the format; absent in version 1.
    #[serde(default = "first_version")]
    pub version: u64,
    /// Names the session.
    #[serde(default)]
    pub id: String,
    /// RFC 3339, when it began.
    #[serde(default)]
    pub timestamp: String,
    /// Where its tools work: `/workspace`.
    #[serde(default)]
    pub cwd: String,
    /// Our own additions, which pi ignores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beige: Option<HeaderBeige>,
    /// `parentSession` and fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The type of a header line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeaderKind {
    /// A session.
    #[default]
    Session,
}

/// What lets the map of keys be built anew from the files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderBeige {
    /// The key it was made for.
    pub session_key: String,
}

/// One entry of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Eight hexadecimal digits; version 1 has none.
    #[serde(default)]
    pub id: String,
    /// What it hangs on; `None` for the root.
    #[serde(default)]
    pub parent_id: Option<String>,
    /// RFC 3339.
    #[serde(default)]
    pub timestamp: String,
    /// What it says.
    #[serde(flatten)]
    pub body: Body,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Body {
    /// A message of the conversation.
    Message {
        /// It.
        message: Message,
        /// Fields of other programs.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// From here on another model answers.
    ModelChange {
        /// Its provider.
        provider: String,
        /// Its id there.
        model_id: String,
        /// Fields of other programs.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// All before an entry is replaced by a summary.
    Compaction {
        /// The summary.
        summary: String,
        /// The first entry that stays.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_kept_entry_id: Option<String>,
        /// The same in version 1: its place in the file, the header being 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_kept_entry_index: Option<u64>,
        /// `tokensBefore`, `details` and fields of other programs.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A branch that was left, in short.
    BranchSummary {
        /// The summary.
        summary: String,
        /// `fromId`, `details` and fields of other programs.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// Put in by an extension; the model reads it as a user message.
    CustomMessage {
        /// What the model gets.
        content: Content,
        /// `customType`, `display`, `details` and fields of other programs.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// Not for the model: `thinking_level_change`, `custom`, `label`,
    /// `session_info`, and types of a later version. Kept as it is.
    #[serde(untagged)]
    Other(Value),
}

impl Body {
    /// An entry's body that is a message.
    pub fn message(message: Message) -> Self {
        Self::Message { message, extra: Map::new() }
    }

    /// What a line says that is of one of the types which hold something for
    /// the model; fields that nobody here knows are left out. Reading a whole
    /// [`Entry`] holds a line several times over.
    pub(super) fn parse(kind: &str, line: &[u8]) -> Option<Self> {
        let extra = Map::new();
        if kind == "message" {
            let Said { message } = read_json(line).ok()?;
            return Some(Self::Message { message, extra });
        }
        let fields: Fields = read_json(line).ok()?;
        Some(match kind {
            "model_change" => {
                Self::ModelChange { provider: fields.provider?, model_id: fields.model_id?, extra }
            }
            "compaction" => Self::Compaction {
                summary: fields.summary?,
                first_kept_entry_id: fields.first_kept_entry_id,
                first_kept_entry_index: fields.first_kept_entry_index,
                extra: named([("tokensBefore", fields.tokens_before), ("beige", fields.beige)]),
            },
            "branch_summary" => Self::BranchSummary { summary: fields.summary?, extra },
            "custom_message" => Self::CustomMessage { content: fields.content?, extra },
            _ => return None,
        })
    }
}

/// A message of the conversation, and nothing else of its line.
#[derive(Deserialize)]
struct Said {
    message: Message,
}

/// The fields of the other types.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    provider: Option<String>,
    model_id: Option<String>,
    summary: Option<String>,
    first_kept_entry_id: Option<String>,
    first_kept_entry_index: Option<u64>,
    tokens_before: Option<Value>,
    beige: Option<Value>,
    content: Option<Content>,
}

/// Those of the fields that are there.
fn named(fields: [(&str, Option<Value>); 2]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))).collect()
}

fn first_version() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_round_trip(value: Value) {
        let entry: Option<Entry> = serde_json::from_value(value.clone()).ok();
        assert_eq!(entry.and_then(|it| serde_json::to_value(it).ok()), Some(value));
    }

    fn entry(mut body: Value) -> Value {
        body["id"] = json!("0000000a");
        body["parentId"] = json!("00000009");
        body["timestamp"] = json!("2026-11-30T04:16:35.830Z");
        body
    }

    #[test]
    fn entries_are_written_as_they_were_read() {
        check_round_trip(entry(json!({"type": "model_change", "provider": "p", "modelId": "m"})));
        check_round_trip(entry(json!({"type": "thinking_level_change", "thinkingLevel": "off"})));
        check_round_trip(entry(json!({"type": "message", "label": "x",
            "message": {"role": "user", "content": "hi", "timestamp": 1}})));
        check_round_trip(entry(
            json!({"type": "compaction", "summary": "s", "firstKeptEntryId": "00000001",
            "tokensBefore": 5, "details": {"readFiles": []}, "fromHook": false}),
        ));
        check_round_trip(entry(
            json!({"type": "branch_summary", "summary": "s", "fromId": "00000001"}),
        ));
        check_round_trip(entry(
            json!({"type": "custom", "customType": "x", "data": {"a": [1, null]}}),
        ));
        check_round_trip(entry(
            json!({"type": "custom_message", "customType": "x", "content": "y", "display": true}),
        ));
        check_round_trip(entry(json!({"type": "label", "targetId": "00000001", "label": "l"})));
        check_round_trip(entry(json!({"type": "session_info", "name": "n"})));
        check_round_trip(entry(json!({"type": "of_a_later_version", "deep": {"er": true}})));
    }

    #[test]
    fn an_entry_of_a_known_type_that_does_not_read_is_kept() {
        check_round_trip(entry(json!({"type": "model_change", "provider": 7})));
    }

    #[test]
    fn a_header_without_version_is_of_version_1() {
        let header: Option<Header> = serde_json::from_value(
            json!({"type": "session", "id": "x", "timestamp": "t", "cwd": "/"}),
        )
        .ok();
        assert_eq!(header.map(|it| it.version), Some(1));
    }
}
