//! How many tokens a conversation has, about. Pure. Nobody here has any
//! model's tokenizer: what a provider has counted is taken as it is, the rest
//! goes by its length.

use serde_json::Value;

use crate::message::{Block, Content, Message, StopReason, Usage};

/// Bytes of text that make a token, about.
const BYTES_A_TOKEN: u64 = 4;

/// Tokens that an image is taken for, whatever its size.
pub(super) const IMAGE: u64 = 1_200;

/// Tokens of a message beside its content.
const FRAME: u64 = 4;

/// A count that is less than the text suggests by this factor is not believed:
/// some servers count only what they have not read before.
const LEAST_BELIEVED: u64 = 4;

/// Tokens of a text.
pub fn tokens_of_text(text: &str) -> u64 {
    (text.len() as u64).div_ceil(BYTES_A_TOKEN)
}

/// Tokens of these messages, by their length.
pub fn tokens_of(messages: &[Message]) -> u64 {
    messages.iter().map(of_message).sum()
}

/// Tokens of a whole context: what the provider counted last, and by its
/// length what came after. `beside` is what is sent beside the messages.
/// Counts in the messages before `counted_from` are of another context.
pub(super) fn of_context(messages: &[Message], counted_from: usize, beside: u64) -> u64 {
    let by_length = beside + tokens_of(messages);
    let counts = messages.iter().enumerate().skip(counted_from);
    let Some((place, counted)) = counts.rev().find_map(|(place, it)| Some((place, counted(it)?)))
    else {
        return by_length;
    };
    let (covered, after) = messages.split_at(place + 1);
    if counted.saturating_mul(LEAST_BELIEVED) < beside + tokens_of(covered) {
        return by_length;
    }
    counted.saturating_add(tokens_of(after))
}

/// Tokens of one message.
pub(super) fn of_message(message: &Message) -> u64 {
    let content = match message {
        Message::User(it) => of_content(&it.content),
        Message::Assistant(it) => of_blocks(&it.content),
        Message::ToolResult(it) => of_content(&it.content),
        // None of them is in a context.
        Message::BashExecution(_)
        | Message::Custom(_)
        | Message::BranchSummary(_)
        | Message::CompactionSummary(_)
        | Message::Unknown(_) => 0,
    };
    content + FRAME
}

/// What a provider has counted up to the end of an answer.
fn counted(message: &Message) -> Option<u64> {
    let Message::Assistant(answer) = message else { return None };
    let is_whole = !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted);
    let Usage { input, output, cache_read, cache_write, total_tokens, .. } = answer.usage;
    let parts = [input, output, cache_read, cache_write];
    // What a provider says of itself may be any number.
    let sum = parts.into_iter().fold(0, u64::saturating_add);
    let sum = if sum == 0 { total_tokens } else { sum };
    Some(sum).filter(|it| is_whole && *it > 0)
}

fn of_content(content: &Content) -> u64 {
    match content {
        Content::Text(text) => tokens_of_text(text),
        Content::Blocks(blocks) => of_blocks(blocks),
    }
}

fn of_blocks(blocks: &[Block]) -> u64 {
    let block = |it: &Block| match it {
        Block::Text(it) => tokens_of_text(&it.text),
        Block::Thinking(it) => tokens_of_text(&it.thinking),
        Block::ToolCall(it) => {
            (it.name.len() as u64 + length_of(&it.arguments)).div_ceil(BYTES_A_TOKEN)
        }
        Block::Image(_) => IMAGE,
        Block::Unknown(_) => 0,
    };
    blocks.iter().map(block).sum()
}

/// Bytes of a value's text, about.
fn length_of(value: &Value) -> u64 {
    match value {
        Value::String(it) => it.len() as u64 + 2,
        Value::Array(items) => items.iter().map(|it| length_of(it) + 1).sum::<u64>() + 2,
        Value::Object(fields) => {
            let field = |(name, it): (&String, &Value)| name.len() as u64 + length_of(it) + 4;
            fields.iter().map(field).sum::<u64>() + 2
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(value: Value) -> Message {
        serde_json::from_value(value).unwrap_or(Message::Unknown(Value::Null))
    }

    fn user(length: usize) -> Message {
        message(json!({"role": "user", "content": "x".repeat(length)}))
    }

    fn answer(usage: Value, stop: &str) -> Message {
        message(json!({"role": "assistant", "content": "x".repeat(400), "usage": usage,
            "stopReason": stop}))
    }

    #[track_caller]
    fn check(messages: &[Message], counted_from: usize, want: u64) {
        assert_eq!(of_context(messages, counted_from, 50), want);
    }

    #[test]
    fn without_a_count_length_decides() {
        check(&[], 0, 50);
        check(&[user(400), answer(json!({}), "stop")], 0, 50 + 104 + 104);
        let image = json!({"type": "image", "data": "x".repeat(100_000), "mimeType": "image/png"});
        let image = message(json!({"role": "user", "content": [image]}));
        check(&[image], 0, 50 + 4 + IMAGE);
        let call = json!({"type": "toolCall", "id": "1", "name": "exec",
            "arguments": {"command": "x".repeat(400)}});
        check(&[message(json!({"role": "assistant", "content": [call]}))], 0, 50 + 4 + 105);
    }

    #[test]
    fn what_was_counted_stands_for_all_before_it() {
        let usage = json!({"input": 300, "output": 20, "cacheRead": 1000, "cacheWrite": 7});
        let counted = answer(usage, "stop");
        check(&[user(400), counted.clone(), user(400)], 0, 1327 + 104);
        // Of two the last.
        let last = answer(json!({"totalTokens": 900}), "toolUse");
        check(&[user(400), counted.clone(), last, user(40)], 0, 900 + 14);
        // It counted what has been compacted since.
        check(&[user(400), counted.clone(), user(400)], 2, 50 + 3 * 104);
    }

    #[test]
    fn a_count_that_cannot_be_is_not_believed() {
        let usage = || json!({"input": 7, "output": 3});
        check(&[user(400), answer(usage(), "stop")], 0, 50 + 2 * 104);
        // Nor one of a call that failed.
        let failed = answer(json!({"input": 9000}), "error");
        check(&[user(400), failed], 0, 50 + 2 * 104);
        // What stands in a file that another version wrote.
        for odd in [json!(u64::MAX), json!(1e19), json!(1e300), json!(-1), json!(0.5), json!("x")] {
            let odd = answer(json!({"input": odd, "output": 3}), "stop");
            check(&[odd, user(400)], 0, 50 + 2 * 104);
        }
    }
}
