//! Counts the tokens of one answer. Pure. Each piece of an answer tells the
//! counts so far, and not always all of them: what was told once stays until
//! another number is told.

use serde_json::Value;

use crate::message::Usage;
use crate::provider::field::{tokens, within};

/// What was told so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Read, from a cache or not.
    prompt: u64,
    /// Of these, read from a cache.
    cached: u64,
    /// Read by tools of the provider itself, beside the prompt.
    tools: u64,
    /// Written as an answer.
    said: u64,
    /// Written as thinking.
    thought: u64,
    total: u64,
}

impl Counts {
    /// Takes what a piece tells; whether it is news.
    pub(super) fn take(&mut self, told: &Value) -> bool {
        let before = *self;
        for (name, place) in [
            ("promptTokenCount", &mut self.prompt),
            ("cachedContentTokenCount", &mut self.cached),
            ("toolUsePromptTokenCount", &mut self.tools),
            ("candidatesTokenCount", &mut self.said),
            ("thoughtsTokenCount", &mut self.thought),
            ("totalTokenCount", &mut self.total),
        ] {
            let count = told.get(name).and_then(tokens).filter(|it| *it > 0);
            *place = count.unwrap_or(*place);
        }
        *self != before
    }

    /// The same in our words.
    pub(super) fn usage(self) -> Usage {
        let cache_read = within(self.cached, self.prompt);
        let read = self.prompt.saturating_add(self.tools);
        // Google counts the thinking beside the answer; some who speak its
        // protocol count it within.
        let is_within = self.thought <= self.said && read.saturating_add(self.said) == self.total;
        let beside = if is_within { 0 } else { self.thought };
        Usage {
            input: read.saturating_sub(cache_read),
            output: self.said.saturating_add(beside),
            cache_read,
            total_tokens: self.total,
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(told: &[Value], [input, output, cache_read, total_tokens]: [u64; 4]) {
        let mut counts = Counts::default();
        for piece in told {
            counts.take(piece);
        }
        let want = Usage { input, output, cache_read, total_tokens, ..Usage::default() };
        assert_eq!(counts.usage(), want);
    }

    #[test]
    fn the_cache_is_within_the_prompt_and_thinking_beside_the_answer() {
        let all = json!({"promptTokenCount": 100, "cachedContentTokenCount": 60,
            "candidatesTokenCount": 6, "thoughtsTokenCount": 20, "totalTokenCount": 126});
        check(&[all], [40, 26, 60, 126]);
        let within = json!({"promptTokenCount": 100, "candidatesTokenCount": 26,
            "thoughtsTokenCount": 20, "totalTokenCount": 126});
        check(&[within], [100, 26, 0, 126]);
        let tools = json!({"promptTokenCount": 100, "toolUsePromptTokenCount": 9,
            "candidatesTokenCount": 6, "totalTokenCount": 115});
        check(&[tools], [109, 6, 0, 115]);
        let odd = json!({"promptTokenCount": 5, "cachedContentTokenCount": 60});
        check(&[odd], [0, 0, 5, 0]);
    }

    #[test]
    fn counts_read_however_they_are_written() {
        let odd = json!({"promptTokenCount": "100", "candidatesTokenCount": 6.0,
            "thoughtsTokenCount": null, "totalTokenCount": null, "trafficType": "ON_DEMAND"});
        check(&[odd], [100, 6, 0, 0]);
        check(&[json!(null), json!([]), json!("7")], [0, 0, 0, 0]);
    }

    #[test]
    fn a_later_piece_replaces_what_it_tells() {
        let first =
            json!({"promptTokenCount": 100, "thoughtsTokenCount": 5, "totalTokenCount": 105});
        let last =
            json!({"promptTokenCount": 100, "candidatesTokenCount": 7, "totalTokenCount": 112});
        check(&[first.clone(), last], [100, 12, 0, 112]);
        let mut counts = Counts::default();
        assert!(counts.take(&first) && !counts.take(&first) && !counts.take(&json!({})));
    }
}
