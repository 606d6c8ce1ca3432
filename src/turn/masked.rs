//! A message as it is stored, and values as they are told: without a known
//! secret, wherever a model says one or names its calls by one, also where it is
//! parted among the texts or the thoughts of one message, or of those of a turn. What a person said
//! stays as it is. Opaque data of a provider is none of our words.

use std::borrow::Cow;

use serde_json::Value;

use crate::message::{Assistant, Block, Content, Message, ToolResult};
use crate::secret::{MaskedStream, Redactor};

/// What was said by a model, answer after answer: a secret that is parted among
/// them is masked in the one that it ends in, as where they are told in pieces.
pub(super) struct Said {
    redactor: Redactor,
    texts: MaskedStream,
    thoughts: MaskedStream,
}

impl Said {
    /// Nothing yet.
    pub(super) fn new(redactor: &Redactor) -> Self {
        let stream = || MaskedStream::new(redactor);
        Self { redactor: redactor.clone(), texts: stream(), thoughts: stream() }
    }

    /// The next message without a secret.
    pub(super) fn message(&mut self, mut message: Message) -> Message {
        match &mut message {
            Message::Assistant(it) => self.mask_answer(it),
            Message::ToolResult(it) => mask_result(it, &self.redactor),
            _ => (),
        }
        message
    }

    /// The next answer without a secret.
    pub(super) fn answer(&mut self, mut answer: Assistant) -> Assistant {
        self.mask_answer(&mut answer);
        answer
    }

    fn mask_answer(&mut self, answer: &mut Assistant) {
        self.mask_blocks(&mut answer.content);
        if let Some(error) = &mut answer.error_message {
            mask(error, &self.redactor);
        }
    }

    fn mask_blocks(&mut self, blocks: &mut [Block]) {
        self.mask_texts(blocks);
        self.mask_thoughts(blocks);
        for block in blocks {
            if let Block::ToolCall(it) = block {
                mask(&mut it.id, &self.redactor);
                mask(&mut it.name, &self.redactor);
                it.arguments = value(it.arguments.take(), &self.redactor);
            }
        }
    }

    /// Whoever reads them joins them.
    fn mask_texts(&mut self, blocks: &mut [Block]) {
        let texts = blocks.iter_mut().filter_map(|it| match it {
            Block::Text(it) => Some(&mut it.text),
            _ => None,
        });
        self.texts.mask_joined(texts.collect());
    }

    /// A thought in other words is not the one that its provider signed, and
    /// would be refused when it goes back.
    fn mask_thoughts(&mut self, blocks: &mut [Block]) {
        let thoughts = blocks.iter_mut().filter_map(|it| match it {
            Block::Thinking(it) => Some((&mut it.thinking, &mut it.thinking_signature)),
            _ => None,
        });
        let (texts, signatures): (Vec<_>, Vec<_>) = thoughts.unzip();
        for (signature, is_changed) in signatures.into_iter().zip(self.thoughts.mask_joined(texts))
        {
            if is_changed {
                *signature = None;
            }
        }
    }
}

/// The message, by itself, without a secret.
pub fn message(message: Message, redactor: &Redactor) -> Message {
    Said::new(redactor).message(message)
}

/// An answer, by itself, without a secret.
pub fn answer(answer: Assistant, redactor: &Redactor) -> Assistant {
    Said::new(redactor).answer(answer)
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

fn mask_result(result: &mut ToolResult, redactor: &Redactor) {
    mask(&mut result.tool_call_id, redactor);
    mask(&mut result.tool_name, redactor);
    if let Content::Blocks(blocks) = &mut result.content {
        Said::new(redactor).mask_blocks(blocks);
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
    use crate::message::{Thinking, ToolCall};

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

    /// Cut in two anywhere, with any other block in between: whoever joins the
    /// texts, or the thoughts, reads no secret.
    #[test]
    fn a_secret_that_is_parted_among_blocks_is_masked() {
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        let text = |it: &str| Block::text(it);
        let thought = |it: &str| {
            let signature = (!it.is_empty()).then(|| "signed".to_owned());
            let (thinking, thinking_signature) = (it.to_owned(), signature);
            Block::Thinking(Thinking { thinking, thinking_signature, ..Thinking::default() })
        };
        let masked_thought =
            |it: &str| Block::Thinking(Thinking { thinking: it.to_owned(), ..Thinking::default() });
        let call = Block::ToolCall(ToolCall { arguments: Value::Null, ..ToolCall::default() });
        for cut in 1..10 {
            let (first, second) = "s3cret-key".split_at(cut);
            let [before, behind] = [format!("a {first}"), format!("{second} b")];
            for other in [thought("hm"), call.clone(), text("")] {
                let content = vec![text(&before), other.clone(), text(&behind)];
                let got = answer(Assistant { content, ..Assistant::default() }, &redactor);
                assert_eq!(got.content, [text("a "), other, text("•••• b")], "{cut}");
            }
            for other in [text("hm"), call.clone(), thought("")] {
                let content = vec![thought("."), thought(&before), other.clone(), thought(&behind)];
                let got = answer(Assistant { content, ..Assistant::default() }, &redactor);
                let masked = [masked_thought("a "), other, masked_thought("•••• b")];
                assert_eq!(got.content[0], thought("."), "{cut}");
                assert_eq!(got.content[1..], masked, "{cut}");
            }
        }
    }

    #[test]
    fn a_secret_that_is_parted_among_blocks_of_a_result_is_masked() {
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        let content = Content::Blocks(vec![Block::text("s3c"), Block::text("ret-key")]);
        let result = ToolResult { content, ..ToolResult::default() };
        let Message::ToolResult(got) = message(Message::ToolResult(result), &redactor) else {
            panic!("it is a result")
        };
        assert_eq!(got.content.text(), "••••");
    }
}
