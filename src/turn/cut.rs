//! An answer that the output limit cut in the middle of a tool call. Nothing of
//! it is run, as nobody knows what was still to come, and its calls are not
//! stored. The model is asked once more with more room; if that is not enough
//! either, the turn ends.

use super::progress::{Halt, Progress};
use crate::config::ModelFacts;
use crate::message::{Assistant, Block, Message, StopReason};
use crate::provider::Answer;
use crate::provider::facts::MAX_TOKENS;

/// Whether the answer is cut in the middle of a tool call: with one that looks
/// whole, more of it or another may have been to come.
pub(super) fn is_in_call(answer: &Answer) -> bool {
    answer.message.stop_reason == StopReason::Length && answer.message.tool_calls().next().is_some()
}

/// The answer as it is stored: of one that is cut in a call only what was said,
/// as of a call that failed.
pub(super) fn stored(answer: &Answer) -> Assistant {
    let mut message = answer.message.clone();
    if is_in_call(answer) {
        message.content.retain(|it| !matches!(it, Block::ToolCall(_)));
        message.stop_reason = StopReason::Error;
        message.error_message = Some(what(answer.message.usage.output));
    }
    message
}

/// The conversation without the answer that was cut just now: it is given anew.
pub(super) fn without_cut(messages: &[Message]) -> &[Message] {
    let is_cut =
        |it: &Message| matches!(it, Message::Assistant(it) if it.stop_reason == StopReason::Error);
    let whole = messages.iter().rposition(|it| !is_cut(it));
    &messages[..whole.map_or(0, |it| it + 1)]
}

impl Progress<'_> {
    /// Gives the model more room for its next answer, once; the end of the turn
    /// if it had that already.
    pub(super) fn widen(&mut self, answer: &Answer) -> Result<(), Halt> {
        let written = answer.message.usage.output;
        if let Some(room) = self.room_to_write {
            let what = format!(
                "{}, and once more with room for {room} tokens. Ask for smaller steps, or let the \
                 model write more (`models.<id>.maxTokens` of its provider).",
                what(written)
            );
            return Err(Halt::new("output_limit", what));
        }
        let facts = self.turn.providers.facts(self.turn.first_choice());
        self.room_to_write = Some(more_room(&facts, written));
        Ok(())
    }
}

fn what(written: u64) -> String {
    let tokens = if written > 0 { format!(" after {written} tokens") } else { String::new() };
    format!(
        "the answer was cut at the model's output limit{tokens}, in the middle of a tool call; \
         nothing of it was run"
    )
}

/// All that the model writes at most. Where nobody knows how much that is,
/// twice what is assumed, and twice what it wrote.
fn more_room(facts: &ModelFacts, written: u64) -> u64 {
    facts.max_tokens.unwrap_or_else(|| MAX_TOKENS.max(written).saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::ToolCall;

    fn answer(stop_reason: StopReason, content: &[Block]) -> Answer {
        let message = Assistant { stop_reason, content: content.to_vec(), ..Assistant::default() };
        Answer { message, broken: Vec::new() }
    }

    fn call() -> Block {
        Block::ToolCall(ToolCall { arguments: json!({}), ..ToolCall::default() })
    }

    #[test]
    fn only_a_call_at_the_limit_is_cut() {
        assert!(is_in_call(&answer(StopReason::Length, &[Block::text("a"), call()])));
        assert!(!is_in_call(&answer(StopReason::Length, &[Block::text("a")])));
        assert!(!is_in_call(&answer(StopReason::ToolUse, &[call()])));
    }

    #[test]
    fn of_a_cut_answer_no_call_is_stored() {
        let cut = stored(&answer(StopReason::Length, &[Block::text("a"), call()]));
        assert_eq!((cut.text().as_str(), cut.tool_calls().count()), ("a", 0));
        assert_eq!(cut.stop_reason, StopReason::Error);
        let whole = answer(StopReason::ToolUse, &[call()]);
        assert_eq!(stored(&whole), whole.message);
    }

    #[test]
    fn more_room_is_what_the_model_has() {
        let known = ModelFacts { max_tokens: Some(1_000), ..ModelFacts::default() };
        assert_eq!(more_room(&known, 900), 1_000);
        let unknown = ModelFacts::default();
        assert_eq!(more_room(&unknown, 900), 16_384);
        assert_eq!(more_room(&unknown, 20_000), 40_000);
    }
}
