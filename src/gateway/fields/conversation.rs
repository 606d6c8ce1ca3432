//! A message of a conversation as clients send it: each part of it must be known,
//! since a model would miss what was left out.

use serde_json::Value;

use super::{Checked, within};
use crate::message::{Block, Content, Message};

/// A message, each part of it known.
pub fn message(value: Value) -> Checked<Message> {
    let Value::Object(fields) = &value else { return Err("must be an object".into()) };
    let role = fields.get("role").and_then(Value::as_str).unwrap_or_default();
    let has_content = fields.get("content").is_some_and(|it| !it.is_null());
    if ["user", "assistant", "toolResult"].contains(&role) && !has_content {
        return Err("`content` is missing".into());
    }
    let message = serde_json::from_value(value).unwrap_or(Message::Unknown(Value::Null));
    match &message {
        Message::User(it) => check_content(&it.content)?,
        Message::Assistant(it) => check_blocks(&it.content)?,
        Message::ToolResult(it) if it.tool_call_id.is_empty() => {
            return Err("`toolCallId` is missing: it says which call this is the result of".into());
        }
        Message::ToolResult(it) => check_content(&it.content)?,
        Message::Custom(it) => check_content(&it.content)?,
        Message::BashExecution(_) | Message::BranchSummary(_) | Message::CompactionSummary(_) => (),
        Message::Unknown(_) => {
            return Err("does not read: `role` must be user, assistant or toolResult, and each \
                        field have the type that the role asks for"
                .into());
        }
    }
    Ok(message)
}

fn check_content(content: &Content) -> Checked<()> {
    match content {
        Content::Text(_) => Ok(()),
        Content::Blocks(blocks) => check_blocks(blocks),
    }
}

fn check_blocks(blocks: &[Block]) -> Checked<()> {
    for (number, block) in blocks.iter().enumerate() {
        within(&format!("content[{number}]"), check_block(block))?;
    }
    Ok(())
}

fn check_block(block: &Block) -> Checked<()> {
    let missing = |name: &str| Err(format!("`{name}` is missing"));
    match block {
        Block::ToolCall(it) if it.id.is_empty() => missing("id"),
        Block::ToolCall(it) if it.name.is_empty() => missing("name"),
        Block::Image(it) if it.data.is_empty() => missing("data"),
        Block::Image(it) if it.mime_type.is_empty() => missing("mimeType"),
        Block::Image(it) if !is_base64(&it.data) => {
            Err("`data` is not base64: A-Z, a-z, 0-9, `+` and `/`, filled up with `=` to a \
                 multiple of 4 characters"
                .into())
        }
        Block::Unknown(_) => Err("does not read: `type` must be text, thinking, image or \
                                  toolCall, and each field have the type that this asks for"
            .into()),
        _ => Ok(()),
    }
}

/// Whether it is base64 in the one form that every provider takes.
fn is_base64(data: &str) -> bool {
    let is_digit = |it: u8| it.is_ascii_alphanumeric() || it == b'+' || it == b'/';
    let unfilled = data.strip_suffix("==").or_else(|| data.strip_suffix('=')).unwrap_or(data);
    data.len().is_multiple_of(4) && unfilled.bytes().all(is_digit)
}
