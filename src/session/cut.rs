//! Where a conversation is cut for a compaction. Pure. A cut never parts a
//! tool call from its result, nor does what stays begin with a result; one
//! turn that is too long by itself is parted between two answers of its model.

use super::estimate;
use crate::message::Message;

/// The first message that stays, so that those which stay have about `keep`
/// tokens; `None` where nothing need go, or nothing behind `from` can.
pub(super) fn place(messages: &[Message], from: usize, keep: u64) -> Option<usize> {
    let wanted = first_within(messages, keep);
    if wanted == 0 {
        return None;
    }
    let wanted = wanted.max(from + 1);
    let later = (wanted..messages.len()).find(|it| is_sound(messages, *it));
    // What came last stays, even if it is more than was wanted.
    later
        .or_else(|| (from + 1..wanted.min(messages.len())).rev().find(|it| is_sound(messages, *it)))
}

/// The first of the newest messages that have so many tokens together.
fn first_within(messages: &[Message], keep: u64) -> usize {
    let mut sum = 0_u64;
    let is_within = |it: &&Message| {
        sum = sum.saturating_add(estimate::of_message(it));
        sum <= keep
    };
    messages.len() - messages.iter().rev().take_while(is_within).count()
}

/// Whether a conversation can begin with that message. A result that comes
/// after what was said in between still belongs to the answer before.
fn is_sound(messages: &[Message], place: usize) -> bool {
    let is_answer = |it: &&Message| matches!(it, Message::Assistant(_));
    match &messages[place] {
        Message::Assistant(_) => true,
        Message::ToolResult(_) => false,
        _ => {
            let mut before_answer = messages[place..].iter().take_while(|it| !is_answer(it));
            !before_answer.any(|it| matches!(it, Message::ToolResult(_)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::context;
    use super::super::random::{history, messages};
    use super::*;

    /// Each message of these forms has 5 tokens.
    #[track_caller]
    fn check(forms: &[&str], from: usize, keep: u64, want: Option<usize>) {
        assert_eq!(place(&messages(forms), from, keep), want, "{forms:?} {keep}");
    }

    #[test]
    fn the_newest_stay_as_far_as_there_is_room() {
        let forms = ["u:1", "a:2", "u:3", "a:4", "u:5"];
        check(&forms, 0, 0, Some(4));
        check(&forms, 0, 5, Some(4));
        check(&forms, 0, 11, Some(3));
        check(&forms, 0, 15, Some(2));
        check(&forms, 0, 24, Some(1));
        check(&forms, 0, 25, None);
        check(&forms, 3, 24, Some(4));
        check(&forms, 4, 0, None);
        check(&[], 0, 0, None);
    }

    #[test]
    fn a_call_stays_with_its_results() {
        let forms = ["u:1", "c:1,2", "r:1", "r:2", "c:3", "r:3"];
        check(&forms, 0, 0, Some(4));
        check(&forms, 1, 12, Some(4));
        check(&forms[..4], 0, 5, Some(1));
        check(&forms[..4], 1, 5, None);
        check(&["u:1", "c:1", "u:aside", "r:1", "u:2"], 0, 18, Some(4));
        check(&["u:1", "c:1", "u:aside", "r:1"], 0, 12, Some(1));
    }

    #[test]
    fn whatever_the_history_a_cut_leaves_a_sound_conversation() {
        for seed in 0..500 {
            let all = history(seed);
            for keep in [0, 1, 20, 60, 100_000] {
                let Some(place) = place(&all, 0, keep) else { continue };
                assert!(place > 0 && !matches!(all[place], Message::ToolResult(_)));
                let (older, kept) = all.split_at(place);
                let parted = older.iter().flat_map(calls).find(|it| results(kept).contains(it));
                assert_eq!(parted, None, "seed {seed}, keep {keep}");
                // Whatever was in its place before still is.
                for part in [older, kept] {
                    let was_sound = matches!(context::of(&all), Cow::Borrowed(_));
                    let is_sound = matches!(context::of(part), Cow::Borrowed(_));
                    assert!(is_sound || !was_sound, "seed {seed}, keep {keep}");
                }
            }
        }
    }

    fn calls(message: &Message) -> Vec<&str> {
        match message {
            Message::Assistant(it) => it.tool_calls().map(|it| it.id.as_str()).collect(),
            _ => Vec::new(),
        }
    }

    fn results(messages: &[Message]) -> Vec<&str> {
        let mut results = Vec::new();
        for message in messages {
            if let Message::ToolResult(it) = message {
                results.push(it.tool_call_id.as_str());
            }
        }
        results
    }
}
