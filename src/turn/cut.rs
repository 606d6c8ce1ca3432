//! An answer that the output limit cut in the middle of a tool call. Nothing of
//! it is run, as nobody knows what was still to come, and its calls are not
//! stored. The model is asked once more with more room; if that is not enough
//! either, the turn ends.

use super::TurnEvent;
use super::progress::{Half, Halt, Progress};
use crate::config::ModelFacts;
use crate::message::{Assistant, Block, StopReason};
use crate::provider::Answer;
use crate::provider::facts::MAX_TOKENS;

/// Whether the answer is cut in the middle of a tool call: with one that looks
/// whole, more of it or another may have been to come.
pub(super) fn is_in_call(answer: &Answer) -> bool {
    answer.message.stop_reason == StopReason::Length && answer.message.tool_calls().next().is_some()
}

/// The answer as it is stored and handed on: of one that is cut in a call only
/// what was said, as of a call that failed.
pub fn stored(answer: &Answer) -> Assistant {
    let mut message = answer.message.clone();
    if is_in_call(answer) {
        message.content.retain(|it| !matches!(it, Block::ToolCall(_)));
        message.stop_reason = StopReason::Error;
        message.error_message = Some(what(answer.message.usage.output));
    }
    message
}

/// What is left of the answer, until it is given anew.
pub(super) fn left_of(answer: &Answer) -> Half {
    let is_stored = is_in_call(answer);
    Half { is_said: is_stored && !answer.message.text().is_empty(), is_stored }
}

/// Tokens that a model may write after its answer was cut: all that it writes
/// at most. Where nobody knows how much that is, twice what is assumed, and
/// twice what it had written.
pub(super) fn room(written: u64, facts: &ModelFacts) -> u64 {
    facts.output_limit().unwrap_or_else(|| MAX_TOKENS.max(written).saturating_mul(2))
}

impl Progress<'_> {
    /// Gives the model more room for its next answer, once; the end of the turn
    /// if it had that already.
    pub(super) fn widen(&mut self, answer: &Answer) -> Result<(), Halt> {
        let written = answer.message.usage.output;
        let reason = what(written);
        if let Some(before) = self.cut_after {
            let room = room(before, &self.turn.providers.facts(&self.asked.model));
            let what = format!(
                "{reason}, and once more with room for {room} tokens. Ask for smaller steps, or \
                 let the model write more (`models.<id>.maxTokens` of its provider).",
            );
            return Err(Halt::new("output_limit", what));
        }
        self.cut_after = Some(written);
        (self.events)(TurnEvent::Retry { attempt: 1, in_ms: 0, reason, model: None });
        Ok(())
    }

    /// Why there is no answer, with why it was asked for with more room: that
    /// may be what was refused.
    pub(super) fn with_cut(&self, why: String) -> String {
        match self.cut_after {
            Some(written) => format!("{}; asked again with more room: {why}", what(written)),
            None => why,
        }
    }
}

fn what(written: u64) -> String {
    let tokens = if written > 0 { format!(" after {written} tokens") } else { String::new() };
    format!(
        "the answer was cut at the model's output limit{tokens}, in the middle of a tool call; \
         nothing of it was run"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::ToolCall;

    fn answer(stop_reason: StopReason, content: &[Block]) -> Answer {
        let message = Assistant { stop_reason, content: content.to_vec(), ..Assistant::default() };
        Answer { message, broken: Vec::new(), large: None }
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
        assert_eq!(room(900, &known), 1_000);
        let unknown = ModelFacts::default();
        assert_eq!(room(900, &unknown), 16_384);
        assert_eq!(room(20_000, &unknown), 40_000);
    }
}
