//! Answers in small: what is odd and still one, and what is none.

use serde_json::{Value, json};

use super::super::Anthropic;
use crate::message::StopReason;
use crate::provider::assemble::Answer;
use crate::provider::tests::reading::{Reading, measured};
use crate::provider::{Delta, Failure, Fault, Provider};

pub(super) const READING: Reading =
    Reading { api: "anthropic-messages", decoder: || Anthropic::new("acme").decoder() };

/// The answer of a stream.
pub(super) fn answer_of(stream: &str) -> Result<Answer, Box<Failure>> {
    READING.stored(READING.of([stream.as_bytes()]))
}

/// Events as a stream.
pub(super) fn stream(events: &[Value]) -> String {
    let name = |it: &Value| it["type"].as_str().unwrap_or("?").to_owned();
    events.iter().map(|it| format!("event: {}\ndata: {it}\n\n", name(it))).collect()
}

pub(super) fn start() -> Value {
    json!({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}})
}

pub(super) fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

pub(super) fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

pub(super) fn text(index: u64, more: &str) -> Value {
    delta(index, json!({"type": "text_delta", "text": more}))
}

pub(super) fn arguments(index: u64, more: &str) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": more}))
}

pub(super) fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

pub(super) fn finish(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}})
}

pub(super) fn end() -> Value {
    json!({"type": "message_stop"})
}

pub(super) fn tool_use(id: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": "exec", "input": input})
}

/// A whole stream with this between its start and its end.
pub(super) fn whole(events: &[Value], reason: &str) -> String {
    stream(&[&[start()], events, &[finish(reason), end()]].concat())
}

#[track_caller]
pub(super) fn check(stream: &str, content: Value, stop: StopReason) {
    let answer = answer_of(stream).unwrap_or_else(|it| panic!("{}", it.fault));
    assert!(answer.broken.is_empty(), "{:?}", answer.broken);
    let got = serde_json::to_value(&answer.message.content).unwrap();
    assert_eq!((got, answer.message.stop_reason), (content, stop));
}

#[track_caller]
pub(super) fn check_calls(events: &[Value], want: &[(&str, Value)]) {
    let want = want
        .iter()
        .map(|(id, it)| json!({"type": "toolCall", "id": id, "name": "exec", "arguments": it}));
    check(&whole(events, "tool_use"), want.collect(), StopReason::ToolUse);
}

/// A stream that fails: its category, part of its text, and the text so far.
#[track_caller]
pub(super) fn check_fault(stream: &str, category: &str, part: &str, so_far: &str) {
    let failure = answer_of(stream).unwrap_err();
    let told = failure.fault.to_string();
    assert_eq!((failure.fault.category(), failure.partial.text().as_str()), (category, so_far));
    assert!(told.contains(part), "{told}");
}

pub(super) fn said(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

#[test]
fn a_call_without_arguments_has_an_empty_object() {
    let none = json!({});
    let begun = block(0, tool_use("a", none.clone()));
    check_calls(&[begun.clone(), stop(0)], &[("a", none.clone())]);
    check_calls(&[begun.clone(), arguments(0, ""), stop(0)], &[("a", none.clone())]);
    check_calls(&[begun, arguments(0, "{}"), stop(0)], &[("a", none.clone())]);
    let nothing = json!({"type": "tool_use", "id": "a", "name": "exec", "input": null});
    check_calls(&[block(0, nothing), stop(0)], &[("a", none)]);
}

#[test]
fn arguments_may_come_with_the_start_of_a_call() {
    let input = json!({"command": "ls"});
    check_calls(&[block(0, tool_use("a", input.clone())), stop(0)], &[("a", input.clone())]);
    check_calls(&[block(0, tool_use("a", json!("{\"a\":1}")))], &[("a", json!({"a": 1}))]);
    // Then what comes in pieces says it once more.
    let again = [block(0, tool_use("a", input.clone())), arguments(0, "{\"command\":\"ls\"}")];
    check_calls(&again, &[("a", input)]);
}

#[test]
fn calls_are_told_apart_whatever_their_index() {
    let call = |id: &str| tool_use(id, json!({}));
    let want = [("a", json!({"n": 1})), ("b", json!({"n": 2}))];
    let of = |first: u64, second: u64| {
        [
            block(first, call("a")),
            arguments(first, "{\"n\""),
            arguments(first, ":1}"),
            stop(first),
            block(second, call("b")),
            arguments(second, "{\"n\":2}"),
            stop(second),
        ]
    };
    check_calls(&of(0, 1), &want);
    check_calls(&of(0, 0), &want);
    check_calls(&of(7, 3), &want);
    check_calls(&of(u64::MAX, 0), &want);
    let without = of(0, 1).map(|mut it| {
        it.as_object_mut().unwrap().remove("index");
        it
    });
    check_calls(&without, &want);
    let mixed = [
        block(0, call("a")),
        block(1, call("b")),
        arguments(1, "{\"n\":2}"),
        arguments(0, "{\"n\":1}"),
    ];
    check_calls(&mixed, &want);
}

#[test]
fn arguments_that_do_not_read_are_named() {
    let events = [block(0, tool_use("a", json!({}))), arguments(0, "{\"command\": \"ls\"")];
    let answer = answer_of(&whole(&events, "tool_use")).unwrap();
    let stored: Vec<&Value> = answer.message.tool_calls().map(|it| &it.arguments).collect();
    assert_eq!((stored, answer.broken.len()), (vec![&json!({})], 1));
}

#[test]
fn every_field_may_be_missing_or_null() {
    let events = [
        json!({"type": "message_start", "message": null}),
        json!({"type": "content_block_start"}),
        json!({"type": "content_block_start", "index": null, "content_block": null}),
        json!({"type": "content_block_delta", "index": 9, "delta": null}),
        json!({"type": "content_block_stop", "index": "x"}),
        json!({"type": "message_delta", "delta": null, "usage": null}),
        json!({"type": null}),
        json!({}),
        json!({"type": "ping"}),
        json!({"type": "content_block_start", "content_block": {"type": "text", "text": null}}),
        json!({"type": "content_block_delta", "delta": {"text": "a"}}),
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": null}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        end(),
    ];
    check(&stream(&events), said("a"), StopReason::Stop);
}

#[test]
fn the_name_of_an_event_tells_its_type_where_the_data_do_not() {
    let events = "event: message_start\ndata: {}\n\n\
        event: content_block_start\ndata: {\"content_block\":{\"type\":\"text\",\"text\":\"a\"}}\n\n\
        : ka\n\nevent: ping\n\nevent: ping\ndata:\n\n\
        event: message_stop\ndata: {}\n\n";
    check(events, said("a"), StopReason::Stop);
}

#[test]
fn the_words_for_an_end() {
    let events = [block(0, json!({"type": "text", "text": "a"})), stop(0)];
    for (reason, want) in [
        ("end_turn", StopReason::Stop),
        ("stop_sequence", StopReason::Stop),
        ("pause_turn", StopReason::Stop),
        ("tool_use", StopReason::Stop),
        ("of a later version", StopReason::Stop),
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
    ] {
        check(&whole(&events, reason), said("a"), want);
    }
    let call = [block(0, tool_use("a", json!({}))), stop(0)];
    for (reason, want) in [
        ("end_turn", StopReason::ToolUse),
        ("tool_use", StopReason::ToolUse),
        ("max_tokens", StopReason::Length),
    ] {
        let answer = answer_of(&whole(&call, reason)).unwrap();
        assert_eq!(answer.message.stop_reason, want, "{reason}");
    }
}

#[test]
fn a_call_whose_block_did_not_end_is_run_only_if_all_says_that_it_is_whole() {
    let begun = block(0, tool_use("a", json!({})));
    let open = [begun.clone(), arguments(0, "{\"n\":1}")];
    let closed = [&open[..], &[stop(0)]].concat();
    let unsaid = |events: &[Value]| stream(&[&[start()], events, &[end()]].concat());
    let want = json!([{"type": "toolCall", "id": "a", "name": "exec", "arguments": {"n": 1}}]);
    for whole in [
        whole(&open, "tool_use"),
        whole(&closed, "tool_use"),
        whole(&closed, "zzz"),
        unsaid(&closed),
    ] {
        check(&whole, want.clone(), StopReason::ToolUse);
    }
    let not_whole = "a tool call that is not whole (its block did not end)";
    for cut in [
        whole(&open, "zzz"),
        whole(&open, "end_turn"),
        unsaid(&open),
        whole(std::slice::from_ref(&begun), "tool_use"),
        unsaid(std::slice::from_ref(&begun)),
    ] {
        check_fault(&cut, "cut", not_whole, "");
    }
    check(&whole(&open, "max_tokens"), want, StopReason::Length);
}

#[test]
fn an_end_without_an_answer() {
    check(&whole(&[], "end_turn"), json!([]), StopReason::Stop);
    check_fault(&whole(&[], "model_context_window_exceeded"), "context_length", "acme", "");
    let refusal = json!({"type": "message_delta", "delta": {"stop_reason": "refusal",
        "stop_details": {"type": "refusal", "category": "cyber", "explanation": "It is\nharmful."}}});
    let said = [start(), block(0, json!({"type": "text", "text": "So"})), refusal, end()];
    check_fault(&stream(&said), "refused", "(It is harmful). Put it differently", "So");
    check_fault(&whole(&[], "refusal"), "refused", "the conversation. Put", "");
}

#[test]
fn a_whole_answer_needs_a_reason_or_an_end_mark() {
    let events = [start(), block(0, json!({"type": "text", "text": "a"})), stop(0)];
    check_fault(&stream(&events), "cut", "cut off", "a");
    check(&stream(&[&events[..], &[end()]].concat()), said("a"), StopReason::Stop);
    check(&stream(&[&events[..], &[finish("end_turn")]].concat()), said("a"), StopReason::Stop);
    let done = format!("{}data: [DONE]\n\n", stream(&events));
    check(&done, said("a"), StopReason::Stop);
    for nothing in ["", ": ka\n\n", "event: ping\ndata: {\"type\":\"ping\"}\n\n"] {
        check_fault(nothing, "cut", "cut off", "");
    }
    check_fault(&stream(&[end()]), "cut", "cut off", "");
}

#[test]
fn the_end_mark_ends_the_reading_and_a_reason_does_not() {
    let mut decoder = Anthropic::new("acme").decoder();
    let mut deltas = Vec::new();
    decoder.feed(stream(&[start(), finish("end_turn")]).as_bytes(), &mut deltas).unwrap();
    assert!(!decoder.is_done());
    decoder.feed(stream(&[end()]).as_bytes(), &mut deltas).unwrap();
    assert!(decoder.is_done());
    decoder.feed(b"data: junk\n\n", &mut deltas).unwrap();
    decoder.end(&mut deltas).unwrap();
    let stops = deltas.iter().filter(|it| matches!(it, Delta::Stop(_))).count();
    assert_eq!(stops, 1, "{deltas:?}");
}

#[test]
fn errors_in_the_stream_go_by_their_type() {
    let error = |kind: &str, text: &str| {
        let error = json!({"type": "error", "error": {"type": kind, "message": text}});
        stream(&[start(), block(0, json!({"type": "text", "text": "a"})), error])
    };
    check_fault(&error("overloaded_error", "Overloaded"), "unavailable", "Overloaded", "a");
    check_fault(&error("api_error", "Internal server error"), "unavailable", "Internal", "a");
    check_fault(&error("rate_limit_error", "slower"), "rate_limit", "slower", "a");
    check_fault(&error("invalid_request_error", "no"), "refused", "no", "a");
    check_fault(&error("authentication_error", "no"), "refused", "apiKey", "a");
    check_fault(&error("request_too_large", "no"), "context_length", "no", "a");
    check_fault(&error("new_error", "no"), "unavailable", "no", "a");
    let stale = error("invalid_request_error", "Invalid `signature` in `thinking` block");
    assert!(matches!(answer_of(&stale).unwrap_err().fault, Fault::Stale(_)));
    check_fault("event: error\ndata: gone\n\n", "unavailable", "gone", "");
    check_fault("data: {\"error\":{\"message\":\"gone\"}}\n\n", "unavailable", "gone", "");
    // What a model says of errors is none.
    let told = [block(0, json!({"type": "text", "text": "{\"type\":\"error\"}"})), stop(0)];
    check(&whole(&told, "end_turn"), said("{\"type\":\"error\"}"), StopReason::Stop);
}

#[test]
fn a_piece_that_does_not_read_fails_the_call() {
    let begun = stream(&[start(), block(0, json!({"type": "text", "text": "a"}))]);
    check_fault(&format!("{begun}data: {{{{{{\n\n"), "unavailable", "not valid JSON", "a");
    check_fault(&format!("{begun}data: [1]\n\n"), "unavailable", "not an object", "a");
    check_fault("<!DOCTYPE html><html>", "refused", "an HTML page", "");
    check_fault(" \n<html>", "refused", "llm.providers.acme.baseUrl", "");
}

#[test]
fn thinking_at_the_start_of_the_text_is_thinking() {
    let pieces = ["\n<th", "ink>h", "m</think", ">\n", "\na"].map(|it| text(0, it));
    let begun = [block(0, json!({"type": "text", "text": ""}))];
    let events = [&begun[..], &pieces[..], &[stop(0)]].concat();
    let want = json!([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]);
    check(&whole(&events, "end_turn"), want, StopReason::Stop);
    // What was held back comes before the call, not behind it.
    let events =
        [&begun[..], &[text(0, "<th"), block(1, tool_use("c", json!({}))), stop(1)]].concat();
    let want = json!([{"type": "text", "text": "<th"},
        {"type": "toolCall", "id": "c", "name": "exec", "arguments": {}}]);
    check(&whole(&events, "tool_use"), want, StopReason::ToolUse);
}

#[test]
fn a_signature_stays_with_its_thought() {
    let thought = |index, text: &str, signature: &str| {
        [
            block(index, json!({"type": "thinking", "thinking": text, "signature": ""})),
            delta(index, json!({"type": "signature_delta", "signature": signature})),
            stop(index),
        ]
    };
    let events = [thought(0, "a", "1"), thought(1, "b", "2"), thought(2, "", "")].concat();
    let want = json!([{"type": "thinking", "thinking": "a", "thinkingSignature": "1"},
        {"type": "thinking", "thinking": "b", "thinkingSignature": "2"}]);
    check(&whole(&events, "end_turn"), want, StopReason::Stop);
    // It is not one of a text.
    let events = [
        block(0, json!({"type": "text", "text": "a", "signature": "s"})),
        delta(0, json!({"type": "signature_delta", "signature": "s"})),
    ];
    check(&whole(&events, "end_turn"), said("a"), StopReason::Stop);
}

#[test]
fn an_answer_in_one_piece_is_read_too() {
    let message = json!({"type": "message", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "c", "name": "exec", "input": {"n": 1}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": "7", "output_tokens": 3}});
    let want = json!([{"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
        {"type": "thinking", "thinking": "", "thinkingSignature": "d", "redacted": true},
        {"type": "text", "text": "a"},
        {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"n": 1}}]);
    let text = format!("\r\n{message:#}\n");
    check(&text, want, StopReason::ToolUse);
    let usage = answer_of(&text).unwrap().message.usage;
    assert_eq!((usage.input, usage.output, usage.total_tokens), (7, 3, 10));
    check(&json!({"type": "message", "content": null}).to_string(), json!([]), StopReason::Stop);
    check_fault("{}", "unavailable", "no message", "");
    check_fault("[]", "unavailable", "not an object", "");
    check_fault("{\"type\":\"mess", "unavailable", "not valid JSON", "");
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "x"}});
    check_fault(&error.to_string(), "unavailable", "x", "");
}

#[test]
fn an_answer_without_end_is_refused() {
    let mut decoder = Anthropic::new("acme").decoder();
    let one = stream(&[block(0, json!({"type": "text"}))]);
    let fed: Vec<_> = (0..1_025).map(|_| decoder.feed(one.as_bytes(), &mut Vec::new())).collect();
    assert!(fed[..1_024].iter().all(Result::is_ok) && fed[1_024].is_err());

    let large = "a".repeat(1024 * 1024);
    for kind in ["text", "thinking", "signature", "partial_json"] {
        let mut decoder = measured(Anthropic::new("acme").decoder());
        let of = match kind {
            "text" => "text",
            "partial_json" => "tool_use",
            _ => "thinking",
        };
        decoder.feed(stream(&[block(0, json!({"type": of}))]).as_bytes(), &mut Vec::new()).unwrap();
        let more = stream(&[delta(0, json!({kind: large}))]);
        let fed = (0..17).map(|_| decoder.feed(more.as_bytes(), &mut Vec::new()));
        assert_eq!(fed.filter(Result::is_err).count(), 1, "{kind}");
    }
    let mut decoder = Anthropic::new("acme").decoder();
    decoder.feed(b"{", &mut Vec::new()).unwrap();
    let mut fed = (0..33).map(|_| decoder.feed(large.as_bytes(), &mut Vec::new()));
    assert_eq!(fed.position(|it| it.is_err()), Some(31));
}
