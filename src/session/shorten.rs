//! The last step where a conversation is too long for its model: what is sent
//! of it is made shorter, always the same way, and what is stored stays as it
//! is. Long texts lose their middle, then the oldest turns go, then the oldest
//! answers of the newest turn. Pure; a sound conversation stays one.

use serde_json::Value;

use super::estimate;
use crate::message::{Assistant, Block, Content, Image, Message, Text, ToolCall, User};

/// Tokens that a text keeps at least.
const LEAST_TEXT: u64 = 64;

/// Of a whole conversation, each call with its results behind it, what has
/// about `budget` tokens. The first `fixed` messages are never left out.
pub fn shortened(messages: &[Message], fixed: usize, budget: u64) -> Vec<Message> {
    let mut longest = (budget / 4).max(LEAST_TEXT);
    loop {
        let mut all: Vec<Message> = messages.iter().map(|it| with_texts(it, longest)).collect();
        let mut is_cut = drop_oldest_turns(&mut all, fixed, budget);
        let is_least = longest == LEAST_TEXT;
        if is_least {
            is_cut |= drop_oldest_answers(&mut all, fixed, budget);
        }
        if is_least || estimate::tokens_of(&all) <= budget {
            if is_cut {
                all.insert(fixed.min(all.len()), note_of_what_is_missing());
            }
            return all;
        }
        longest = (longest / 4).max(LEAST_TEXT);
    }
}

/// Leaves whole turns out, the oldest first, but never the newest; whether any
/// went.
fn drop_oldest_turns(messages: &mut Vec<Message>, fixed: usize, budget: u64) -> bool {
    let mut tokens = estimate::tokens_of(messages);
    let starts = messages.iter().enumerate().skip(fixed + 1);
    let starts: Vec<usize> = starts.filter(|(_, it)| is_user(it)).map(|(at, _)| at).collect();
    let mut end = fixed;
    for start in starts {
        if tokens <= budget {
            break;
        }
        tokens -= estimate::tokens_of(&messages[end..start]);
        end = start;
    }
    messages.drain(fixed.min(end)..end);
    end > fixed
}

/// Leaves answers of the newest turn out, with their results, the oldest first,
/// but neither what a person said nor the last one; whether any went.
fn drop_oldest_answers(messages: &mut Vec<Message>, fixed: usize, budget: u64) -> bool {
    let mut tokens = estimate::tokens_of(messages);
    let first = messages.iter().skip(fixed).position(|it| !is_user(it));
    let Some(first) = first.map(|it| it + fixed) else { return false };
    let mut end = first;
    let answers = messages.iter().enumerate().skip(first + 1);
    let answers = answers.filter(|(_, it)| matches!(it, Message::Assistant(_)));
    for (start, _) in answers {
        if tokens <= budget {
            break;
        }
        tokens -= estimate::tokens_of(&messages[end..start]);
        end = start;
    }
    messages.drain(first..end);
    end > first
}

fn is_user(message: &Message) -> bool {
    matches!(message, Message::User(_))
}

fn note_of_what_is_missing() -> Message {
    let text = "[An older part of this conversation is left out here: all of it is too long for \
                the model.]";
    Message::User(User { content: Content::Blocks(vec![Block::text(text)]), ..User::default() })
}

/// The message with no text of more than `longest` tokens.
fn with_texts(message: &Message, longest: u64) -> Message {
    match message {
        Message::User(it) => {
            Message::User(User { content: content(&it.content, longest), ..it.clone() })
        }
        Message::ToolResult(it) => {
            let mut it = it.clone();
            it.content = content(&it.content, longest);
            Message::ToolResult(it)
        }
        Message::Assistant(it) => {
            let content = it.content.iter().map(|it| block(it, longest)).collect();
            Message::Assistant(Box::new(Assistant { content, ..(**it).clone() }))
        }
        other => other.clone(),
    }
}

fn content(content: &Content, longest: u64) -> Content {
    match content {
        Content::Text(it) => Content::Text(shorter(it, longest).unwrap_or_else(|| it.clone())),
        Content::Blocks(blocks) => {
            Content::Blocks(blocks.iter().map(|it| block(it, longest)).collect())
        }
    }
}

fn block(block: &Block, longest: u64) -> Block {
    match block {
        // What was said of the whole text is not true of a part.
        Block::Text(it) => shorter(&it.text, longest).map_or_else(
            || block.clone(),
            |text| Block::Text(Text { text, text_signature: None, ..it.clone() }),
        ),
        Block::Image(Image { .. }) if estimate::IMAGE > longest => {
            Block::text("[an image is left out here: the conversation is too long for the model]")
        }
        Block::ToolCall(it) => {
            let arguments = value(&it.arguments, longest);
            Block::ToolCall(ToolCall { arguments, ..it.clone() })
        }
        Block::Thinking(it) if it.thinking_signature.is_none() => {
            let mut it = it.clone();
            it.thinking = shorter(&it.thinking, longest).unwrap_or(it.thinking);
            Block::Thinking(it)
        }
        Block::Thinking(_) | Block::Image(_) | Block::Unknown(_) => block.clone(),
    }
}

fn value(of: &Value, longest: u64) -> Value {
    match of {
        Value::String(it) => Value::String(shorter(it, longest).unwrap_or_else(|| it.clone())),
        Value::Array(items) => items.iter().map(|it| value(it, longest)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, it)| (name.clone(), value(it, longest))).collect()
        }
        other => other.clone(),
    }
}

/// The head and the tail of a text that is longer.
fn shorter(text: &str, longest: u64) -> Option<String> {
    (estimate::tokens_of_text(text) > longest).then(|| {
        let bytes = usize::try_from(longest.saturating_mul(4)).unwrap_or(usize::MAX);
        head_and_tail(text, bytes)
    })
}

/// A text of about so many bytes: two thirds from its head, the rest from its
/// tail, and between them how much is missing.
pub fn head_and_tail(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(bytes / 3 * 2);
    let tail = text.ceil_char_boundary(text.len() - bytes / 3);
    let missing = tail - head;
    format!("{}\n[… {missing} bytes are left out here …]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::super::context;
    use super::super::random::{history, messages};
    use super::*;

    /// Roles and lengths of what is left, such as `u4 a12`.
    #[track_caller]
    fn check(messages: &[Message], fixed: usize, budget: u64, want: &str) {
        let word = |it: &Message| match it {
            Message::User(it) if it.content.text().starts_with("[An older part") => "note".into(),
            Message::User(it) => format!("u{}", it.content.text().len()),
            Message::Assistant(it) if it.tool_calls().next().is_some() => "c".into(),
            Message::Assistant(it) => format!("a{}", it.text().len()),
            Message::ToolResult(it) => format!("r{}", it.content.text().len()),
            other => format!("{other:?}"),
        };
        let got: Vec<String> = shortened(messages, fixed, budget).iter().map(word).collect();
        assert_eq!(got.join(" "), want);
    }

    fn text(kind: &str, length: usize) -> String {
        format!("{kind}:{}", "x".repeat(length))
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        check(&messages(&["u:1", "c:1", "r:1", "a:done"]), 0, 1000, "u1 c r2 a4");
    }

    #[test]
    fn the_oldest_turns_go_first() {
        let (u, a) = (text("u", 400), text("a", 400));
        let all = messages(&[&u, &a, &u, "c:1", "r:1", &a, &u]);
        check(&all, 0, 1000, "u400 a400 u400 c r2 a400 u400");
        check(&all, 0, 500, "note u400 c r2 a400 u400");
        check(&all, 0, 400, "note u400 c r2 a400 u400");
        check(&all, 1, 450, "u400 note u400 c r2 a400 u400");
        check(&all, 0, 120, "note u294");
    }

    #[test]
    fn a_long_text_loses_its_middle() {
        let all = messages(&["u:1", &text("a", 100_000), "u:2"]);
        let got = shortened(&all, 0, 1_200);
        let Message::Assistant(answer) = &got[1] else { panic!("{got:?}") };
        let text = answer.text();
        assert!(text.contains("[… 98800 bytes are left out here …]"), "{text}");
        assert!(text.len() < 1_300, "{}", text.len());
    }

    #[test]
    fn images_and_arguments_are_shortened_too() {
        let image = json!({"type": "image", "data": "xxxx", "mimeType": "image/png"});
        let call = json!({"type": "toolCall", "id": "1", "name": "write",
            "arguments": {"path": "a", "lines": ["é".repeat(9_000)]}});
        let all: Vec<Message> = [
            json!({"role": "user", "content": [image]}),
            json!({"role": "assistant", "content": [call]}),
            json!({"role": "toolResult", "toolCallId": "1", "content": "ok"}),
        ]
        .into_iter()
        .map(|it| serde_json::from_value(it).unwrap_or(Message::Unknown(Value::Null)))
        .collect();
        let got = shortened(&all, 0, 800);
        assert!(estimate::tokens_of(&got) < 300, "{got:?}");
        let Message::Assistant(answer) = &got[1] else { panic!("{got:?}") };
        let call = answer.tool_calls().next().map(|it| it.arguments.clone()).unwrap_or_default();
        assert_eq!(call["path"], "a");
        assert!(call["lines"][0].as_str().is_some_and(|it| it.ends_with('é') && it.len() < 900));
    }

    #[test]
    fn of_a_turn_without_end_the_newest_answers_stay() {
        let mut forms = vec!["u:do it".to_owned()];
        forms.extend((0..100).flat_map(|it| [format!("c:{it}"), format!("r:{it}")]));
        let forms: Vec<&str> = forms.iter().map(String::as_str).collect();
        let got = shortened(&messages(&forms), 0, 100);
        assert!(estimate::tokens_of(&got) <= 130, "{}", estimate::tokens_of(&got));
        assert!(matches!(&got[1], Message::User(it) if it.content.text() == "do it"), "{got:?}");
        assert!(matches!(got.last(), Some(Message::ToolResult(it)) if it.tool_call_id == "99"));
    }

    #[test]
    fn whatever_the_history_what_is_left_is_sound() {
        for seed in 0..500 {
            let all = history(seed);
            let whole = context::of(&all).into_owned();
            for budget in [0, 50, 300, 2_000, 1_000_000] {
                let got = shortened(&whole, 0, budget);
                assert!(matches!(context::of(&got), Cow::Borrowed(_)), "{seed} {budget}");
                assert!(matches!(got.first(), Some(Message::User(_))), "{seed} {budget}");
                assert_eq!(got.last().map(role), whole.last().map(role), "{seed} {budget}");
                if budget == 1_000_000 {
                    assert_eq!(got, whole);
                }
            }
        }
    }

    fn role(message: &Message) -> u8 {
        match message {
            Message::User(_) => 0,
            Message::Assistant(_) => 1,
            _ => 2,
        }
    }
}
