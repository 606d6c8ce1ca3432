//! A message as it is stored, and values as they are told: without a known
//! secret, wherever a model says one or names its calls by one. What a person
//! said stays as it is. Opaque data of a provider is none of our words.

use std::borrow::Cow;

use serde_json::Value;

use crate::message::{Assistant, Block, Content, Message, Thinking};
use crate::secret::Redactor;

/// The message without a secret.
pub(super) fn message(mut message: Message, redactor: &Redactor) -> Message {
    match &mut message {
        Message::Assistant(it) => mask_answer(it, redactor),
        Message::ToolResult(it) => {
            mask(&mut it.tool_call_id, redactor);
            mask(&mut it.tool_name, redactor);
            if let Content::Blocks(blocks) = &mut it.content {
                mask_blocks(blocks, redactor);
            }
        }
        _ => (),
    }
    message
}

/// An answer without a secret.
pub fn answer(mut answer: Assistant, redactor: &Redactor) -> Assistant {
    mask_answer(&mut answer, redactor);
    answer
}

/// The value without a secret, also in the names of its fields.
pub(super) fn value(value: Value, redactor: &Redactor) -> Value {
    match value {
        Value::String(it) => Value::String(text(it, redactor)),
        Value::Array(items) => items.into_iter().map(|it| self::value(it, redactor)).collect(),
        Value::Object(fields) => {
            let masked = |(name, it)| (text(name, redactor), self::value(it, redactor));
            fields.into_iter().map(masked).collect()
        }
        other => other,
    }
}

/// The text without a secret.
pub(super) fn text(mut text: String, redactor: &Redactor) -> String {
    mask(&mut text, redactor);
    text
}

fn mask_answer(answer: &mut Assistant, redactor: &Redactor) {
    mask_blocks(&mut answer.content, redactor);
    if let Some(error) = &mut answer.error_message {
        mask(error, redactor);
    }
}

fn mask_blocks(blocks: &mut [Block], redactor: &Redactor) {
    for block in blocks {
        match block {
            Block::Text(it) => mask(&mut it.text, redactor),
            Block::Thinking(it) => mask_thought(it, redactor),
            Block::ToolCall(it) => {
                mask(&mut it.id, redactor);
                mask(&mut it.name, redactor);
                it.arguments = value(it.arguments.take(), redactor);
            }
            Block::Image(_) | Block::Unknown(_) => (),
        }
    }
}

/// A thought in other words is not the one that its provider signed, and would
/// be refused when it goes back.
fn mask_thought(thought: &mut Thinking, redactor: &Redactor) {
    if let Cow::Owned(masked) = redactor.mask(&thought.thinking) {
        thought.thinking = masked;
        thought.thinking_signature = None;
    }
}

fn mask(text: &mut String, redactor: &Redactor) {
    if let Cow::Owned(masked) = redactor.mask(text) {
        *text = masked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Assistant;

    #[track_caller]
    fn check(thinking: &str, want: (&str, Option<&str>)) {
        let redactor = Redactor::new();
        redactor.learn("sk-very-secret");
        let thought = Thinking {
            thinking: thinking.into(),
            thinking_signature: Some("signed".into()),
            ..Thinking::default()
        };
        let answer = Assistant { content: vec![Block::Thinking(thought)], ..Assistant::default() };
        let Message::Assistant(masked) = message(Message::Assistant(Box::new(answer)), &redactor)
        else {
            panic!("it is an answer")
        };
        let [Block::Thinking(it)] = &masked.content[..] else { panic!("it is a thought") };
        assert_eq!((it.thinking.as_str(), it.thinking_signature.as_deref()), want);
    }

    #[test]
    fn a_thought_that_is_masked_is_signed_no_more() {
        check("hm", ("hm", Some("signed")));
        let masked = Redactor::new();
        masked.learn("sk-very-secret");
        check("it is sk-very-secret", (&masked.mask("it is sk-very-secret"), None));
    }
}
