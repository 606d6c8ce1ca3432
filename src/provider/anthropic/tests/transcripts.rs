//! Whole answers as servers send them, cut at every place.

use serde_json::{Value, json};

use super::decode::{READING, answer_of};
use crate::message::{StopReason, Usage};
use crate::provider::Fault;

const TEXT: &str = include_str!("text.sse");
const CALLS: &str = include_str!("calls.sse");
const SILENT: &str = include_str!("silent.sse");
const OVERLOADED: &str = include_str!("overloaded.sse");

/// The same deltas, and the same end, wherever it is cut and whatever its line
/// ends.
#[track_caller]
fn check_cuts(transcript: &str) {
    let want = READING.however_cut(transcript.as_bytes());
    assert_eq!(READING.however_cut(transcript.replace('\n', "\r\n").as_bytes()), want);
}

#[track_caller]
fn check(transcript: &str, content: Value, stop: StopReason, usage: [u64; 4]) {
    check_cuts(transcript);
    let message = answer_of(transcript).unwrap().message;
    let [input, output, cache_read, cache_write] = usage;
    let total_tokens = input + output + cache_read + cache_write;
    let usage = Usage { input, output, cache_read, cache_write, total_tokens, ..Usage::default() };
    assert_eq!(serde_json::to_value(message.content).unwrap(), content);
    assert_eq!((message.stop_reason, message.usage), (stop, usage));
}

#[test]
fn text_with_pings() {
    let content = json!([{"type": "text", "text": "那一个 🦀 is a crab."}]);
    check(TEXT, content, StopReason::Stop, [25, 15, 1280, 0]);
}

#[test]
fn thoughts_and_two_calls() {
    let content = json!([
        {"type": "thinking", "thinking": "Two files, so two calls.",
            "thinkingSignature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk="},
        {"type": "thinking", "thinking": "", "redacted": true, "thinkingSignature":
            "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"},
        {"type": "text", "text": "Let me look."},
        {"type": "toolCall", "id": "toolu_01T1x1fJ34qAmk2tNTrN7Up6", "name": "read",
            "arguments": {"path": "a \"b\".txt"}},
        {"type": "toolCall", "id": "toolu_01A09q90qw90lq917835lq9", "name": "status",
            "arguments": {}},
    ]);
    check(CALLS, content, StopReason::ToolUse, [472, 89, 0, 900]);
}

#[test]
fn thoughts_that_are_only_signed_and_blocks_that_nobody_asked_for() {
    let content = json!([
        {"type": "thinking", "thinking": "", "thinkingSignature": "EosnCkYICxIMMb3LzNrMu"},
        {"type": "thinking", "thinking": "", "thinkingSignature": "EpIBCkgIBxABGAIiQA"},
        {"type": "text", "text": "12."},
    ]);
    check(SILENT, content, StopReason::Length, [7, 60, 0, 0]);
}

#[test]
fn an_error_in_the_middle() {
    check_cuts(OVERLOADED);
    let failure = answer_of(OVERLOADED).unwrap_err();
    assert_eq!(failure.partial.text(), "Half of");
    assert_eq!(failure.partial.usage.input, 12);
    let told = failure.fault.to_string();
    assert!(
        matches!(failure.fault, Fault::Unavailable(_)) && told.contains("Overloaded"),
        "{told}"
    );
}

#[test]
fn an_answer_that_ends_before_its_end_is_cut() {
    for transcript in [TEXT, CALLS, SILENT] {
        let end = transcript.find("event: message_delta").unwrap();
        for (place, _) in transcript[..end].char_indices() {
            let failure = answer_of(&transcript[..place]).unwrap_err();
            // The last event may be cut in the middle of its JSON.
            let category = failure.fault.category();
            assert!(["cut", "unavailable"].contains(&category), "{place}: {category}");
            assert!(failure.partial.tool_calls().next().is_none());
        }
        let whole = answer_of(transcript).unwrap();
        let without_mark = &transcript[..transcript.find("event: message_stop").unwrap()];
        assert_eq!(answer_of(without_mark).unwrap(), whole, "the model has said why it stops");
    }
}
