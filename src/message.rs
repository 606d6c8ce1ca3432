//! The words of a conversation, in the JSON of pi's session files: messages,
//! their blocks, usage and stop reasons. Read leniently (what is unknown is
//! kept as it stands, what is missing is empty), written as pi writes it.
//! Nothing here does I/O or knows a provider.

mod json;
mod length;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::clock::Time;
pub use json::{mended, read_json};
pub use length::{LONGEST_MESSAGE, stored_length};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum Message {
    /// What a person, a plugin or a schedule said.
    User(User),
    /// What a model said.
    Assistant(Box<Assistant>),
    /// What came of a tool call.
    ToolResult(ToolResult),
    /// A command that a person ran beside the model.
    BashExecution(BashExecution),
    /// Put in by an extension; `hookMessage` in version 2.
    #[serde(alias = "hookMessage")]
    Custom(Custom),
    /// Stands in for a branch that was left.
    BranchSummary(BranchSummary),
    /// Stands in for what was compacted away.
    CompactionSummary(CompactionSummary),
    /// A role of a later version, or one that does not read: kept as it is.
    #[serde(untagged)]
    Unknown(Value),
}

/// What a person said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// Text, or blocks of text and images.
    #[serde(default, deserialize_with = "nullable")]
    pub content: Content,
    /// Unix milliseconds.
    #[serde(default)]
    pub timestamp: i64,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What a model said, and what it cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assistant {
    /// Text, thinking and tool calls in the order they came.
    #[serde(default, deserialize_with = "blocks")]
    pub content: Vec<Block>,
    /// The wire protocol it came by.
    #[serde(default)]
    pub api: String,
    /// The provider's name.
    #[serde(default)]
    pub provider: String,
    /// The model's id.
    #[serde(default)]
    pub model: String,
    /// Tokens and money.
    #[serde(default, deserialize_with = "believed")]
    pub usage: Usage,
    /// Why it ended.
    #[serde(default, deserialize_with = "nullable")]
    pub stop_reason: StopReason,
    /// What went wrong, with [`StopReason::Error`] and [`StopReason::Aborted`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Unix milliseconds.
    #[serde(default)]
    pub timestamp: i64,
    /// Our own additions, which pi ignores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beige: Option<Value>,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What came of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The [`ToolCall::id`] it answers.
    #[serde(default)]
    pub tool_call_id: String,
    /// The tool that was called.
    #[serde(default)]
    pub tool_name: String,
    /// What the model gets.
    #[serde(default, deserialize_with = "nullable")]
    pub content: Content,
    /// For people and front ends, never for a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Whether it failed.
    #[serde(default)]
    pub is_error: bool,
    /// Unix milliseconds.
    #[serde(default)]
    pub timestamp: i64,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A command that a person ran beside the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BashExecution {
    /// The command line.
    #[serde(default)]
    pub command: String,
    /// What it printed.
    #[serde(default)]
    pub output: String,
    /// Absent when it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// Whether it was called off.
    #[serde(default)]
    pub cancelled: bool,
    /// Whether `output` is not all of it.
    #[serde(default)]
    pub truncated: bool,
    /// Where all of it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Kept from the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_from_context: Option<bool>,
    /// Unix milliseconds.
    #[serde(default)]
    pub timestamp: i64,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Put in by an extension; the model reads it as a user message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Custom {
    /// Whose it is.
    #[serde(default)]
    pub custom_type: String,
    /// What the model gets.
    #[serde(default, deserialize_with = "nullable")]
    pub content: Content,
    /// Whether people see it.
    #[serde(default)]
    pub display: bool,
    /// The extension's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Unix milliseconds.
    #[serde(default)]
    pub timestamp: i64,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Stands in for a branch that was left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchSummary {
    /// What happened there.
    #[serde(default)]
    pub summary: String,
    /// The entry where it was left.
    #[serde(default)]
    pub from_id: Option<String>,
    /// Unix milliseconds.
    #[serde(default)]
    pub timestamp: i64,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Stands in for what was compacted away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionSummary {
    /// What happened before.
    #[serde(default)]
    pub summary: String,
    /// Size of the context before, in tokens.
    #[serde(default)]
    pub tokens_before: u64,
    /// Unix milliseconds.
    #[serde(default)]
    pub timestamp: i64,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Content that is one text or a list of blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// One text.
    Text(String),
    /// Blocks in order.
    Blocks(Vec<Block>),
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Block {
    /// Text.
    Text(Text),
    /// What a model thought before it spoke.
    Thinking(Thinking),
    /// A tool that a model wants run.
    ToolCall(ToolCall),
    /// An image.
    Image(Image),
    /// A block of a later version: kept as it is.
    #[serde(untagged)]
    Unknown(Value),
}

/// A text block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Text {
    /// UTF-8.
    #[serde(default, deserialize_with = "nullable")]
    pub text: String,
    /// Opaque; goes back to the endpoint it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_signature: Option<String>,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A thinking block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Thinking {
    /// UTF-8.
    #[serde(default, deserialize_with = "nullable")]
    pub thinking: String,
    /// Opaque; goes back to the endpoint it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_signature: Option<String>,
    /// Whether the provider withheld the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<bool>,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A tool that a model wants run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Joins it to its result.
    #[serde(default)]
    pub id: String,
    /// The tool.
    #[serde(default)]
    pub name: String,
    /// An object; `{}` where the model's arguments did not read.
    #[serde(default, deserialize_with = "arguments")]
    pub arguments: Value,
    /// Opaque; goes back to the endpoint it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// An image block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Base64.
    #[serde(default)]
    pub data: String,
    /// `image/png`, ….
    #[serde(default)]
    pub mime_type: String,
    /// Fields of other programs.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Tokens of one model call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Read anew.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Read from the provider's cache.
    pub cache_read: u64,
    /// Written to the provider's cache.
    pub cache_write: u64,
    /// All of them.
    pub total_tokens: u64,
    /// What they cost.
    pub cost: Cost,
}

/// Money, in US dollars.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    /// Of [`Usage::input`].
    pub input: f64,
    /// Of [`Usage::output`].
    pub output: f64,
    /// Of [`Usage::cache_read`].
    pub cache_read: f64,
    /// Of [`Usage::cache_write`].
    pub cache_write: f64,
    /// Of all.
    pub total: f64,
}

/// Why a model stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// It had said all.
    #[default]
    Stop,
    /// It ran into the output limit.
    Length,
    /// It waits for the results of its tool calls.
    ToolUse,
    /// The call failed; `errorMessage` says how.
    Error,
    /// The call was called off.
    Aborted,
    /// A reason of a later version.
    #[serde(untagged)]
    Other(String),
}

impl Usage {
    /// Most tokens of a kind that one call is believed to have taken: a hundred
    /// times what the models read that read most.
    pub const MOST_TOKENS: u64 = 100_000_000;

    /// Whether a call can have taken so many. What a server says of itself may
    /// be any number.
    pub fn can_be(&self) -> bool {
        let kinds = [self.input, self.output, self.cache_read, self.cache_write];
        kinds.into_iter().chain([self.total_tokens]).all(|it| it <= Self::MOST_TOKENS)
    }
}

impl Message {
    /// A user message of one text.
    pub fn user(text: impl Into<String>, now: Time) -> Self {
        let content = Content::Blocks(vec![Block::text(text)]);
        Self::User(User { content, timestamp: now.unix_millis(), ..User::default() })
    }

    /// A result that stands for a call which never got its own.
    pub fn interrupted(call: &ToolCall, now: Time) -> Self {
        Self::ToolResult(ToolResult {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            content: Content::Blocks(vec![Block::text(
                "The call was interrupted; whether it took effect is not known.",
            )]),
            is_error: true,
            timestamp: now.unix_millis(),
            ..ToolResult::default()
        })
    }
}

impl Assistant {
    /// Its text blocks as one text.
    pub fn text(&self) -> String {
        texts(&self.content)
    }

    /// Its tool calls in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|it| match it {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Whether there is nothing in it that a provider would take back.
    pub fn is_empty(&self) -> bool {
        self.content.iter().all(|it| match it {
            Block::Text(it) => it.text.is_empty(),
            Block::Thinking(it) => it.thinking.is_empty() && it.thinking_signature.is_none(),
            _ => false,
        })
    }
}

impl Content {
    /// Its text, without images.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => texts(blocks),
        }
    }
}

impl Default for Content {
    fn default() -> Self {
        Self::Blocks(Vec::new())
    }
}

impl Block {
    /// A block of plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Text { text: text.into(), ..Text::default() })
    }
}

fn texts(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|it| match it {
        Block::Text(it) => Some(it.text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// `null` reads as the default.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Tokens; what does not read or cannot be is none, as if nobody had counted.
fn believed<'de, D: Deserializer<'de>>(from: D) -> Result<Usage, D::Error> {
    let told = Usage::deserialize(Value::deserialize(from)?);
    Ok(told.ok().filter(Usage::can_be).unwrap_or_default())
}

/// Blocks; a bare text is one block.
fn blocks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Block>, D::Error> {
    Ok(match nullable(from)? {
        Content::Text(text) => vec![Block::text(text)],
        Content::Blocks(blocks) => blocks,
    })
}

/// Arguments; what is not an object reads as an empty one, since providers
/// refuse a history that holds anything else.
fn arguments<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(if value.is_object() { value } else { Value::Object(Map::new()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_round_trip(value: Value) {
        let message: Message =
            serde_json::from_value(value.clone()).unwrap_or(Message::Unknown(Value::Null));
        assert_eq!(serde_json::to_value(message).ok(), Some(value));
    }

    fn usage() -> Value {
        json!({"input": 100, "output": 6, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 106,
            "cost": {"input": 0.25, "output": 0.5, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.75}})
    }

    #[test]
    fn messages_are_written_as_they_were_read() {
        check_round_trip(json!({"role": "user", "content": "hi", "timestamp": 1}));
        check_round_trip(json!({"role": "user", "content": [{"type": "text", "text": "hi"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"}], "timestamp": 1}));
        check_round_trip(json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hmm", "thinkingSignature": "c2ln", "redacted": true},
            {"type": "text", "text": "a", "textSignature": "t"},
            {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}, "thoughtSignature": "g"}],
            "api": "replay", "provider": "p", "model": "m", "usage": usage(), "stopReason": "toolUse",
            "errorMessage": "e", "timestamp": 2, "beige": {"line": 1}, "later": [1]}));
        check_round_trip(json!({"role": "toolResult", "toolCallId": "c1", "toolName": "exec",
            "content": [{"type": "text", "text": "x"}], "details": {}, "isError": true, "timestamp": 3}));
        check_round_trip(
            json!({"role": "bashExecution", "command": "ls", "output": "", "exitCode": 0,
            "cancelled": false, "truncated": false, "excludeFromContext": true, "timestamp": 4}),
        );
        check_round_trip(
            json!({"role": "custom", "customType": "x", "content": "y", "display": true, "timestamp": 5}),
        );
        check_round_trip(
            json!({"role": "branchSummary", "summary": "s", "fromId": "1", "timestamp": 6}),
        );
        check_round_trip(
            json!({"role": "compactionSummary", "summary": "s", "tokensBefore": 9, "timestamp": 7}),
        );
    }

    #[test]
    fn unknown_roles_blocks_and_reasons_are_kept() {
        check_round_trip(json!({"role": "oracle", "content": 7}));
        check_round_trip(
            json!({"role": "user", "content": [{"type": "smell", "of": "rain"}], "timestamp": 1}),
        );
        check_round_trip(
            json!({"role": "assistant", "content": [], "api": "", "provider": "", "model": "",
            "usage": usage(), "stopReason": "bored", "timestamp": 2}),
        );
    }

    #[test]
    fn what_is_missing_or_null_reads_as_empty() {
        let message: Option<Message> =
            serde_json::from_value(json!({"role": "assistant", "content": null,
            "usage": null, "stopReason": null}))
            .ok();
        assert_eq!(message, Some(Message::Assistant(Box::default())));
    }

    #[test]
    fn arguments_that_are_no_object_read_as_an_empty_one() {
        let block: Option<Block> = serde_json::from_value(
            json!({"type": "toolCall", "id": "c", "name": "exec", "arguments": "{\"command\": \"ls\""})).ok();
        let call = ToolCall {
            id: "c".into(),
            name: "exec".into(),
            arguments: json!({}),
            ..ToolCall::default()
        };
        assert_eq!(block, Some(Block::ToolCall(call)));
    }

    #[test]
    fn a_hook_message_of_version_2_is_a_custom_message() {
        let message: Option<Message> = serde_json::from_value(
            json!({"role": "hookMessage", "customType": "x", "content": "y", "display": true}),
        )
        .ok();
        assert!(matches!(message, Some(Message::Custom(it)) if it.custom_type == "x"));
    }
}
