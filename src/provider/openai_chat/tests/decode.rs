//! Text, thinking and ends of small streams, each cut at every place, and what is
//! counted in them; what their sisters (`calls`, `faults`) read streams with.

use serde_json::{Value, json};

use super::super::OpenAiChat;
use crate::message::{StopReason, Usage};
use crate::provider::tests::reading::Reading;
use crate::provider::{Delta, Failure, Provider};

pub(super) const READING: Reading =
    Reading { api: "openai-completions", decoder: || OpenAiChat::new("acme").decoder() };

/// Chunks as a stream, with its end mark.
pub(super) fn stream(chunks: &[Value]) -> String {
    let events = chunks.iter().map(|it| format!("data: {it}\n\n"));
    events.chain(["data: [DONE]\n\n".into()]).collect()
}

pub(super) fn delta(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}], "usage": null})
}

pub(super) fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// The answer of a stream: its blocks, its stop reason, and which calls are
/// broken.
#[track_caller]
pub(super) fn answer(stream: &str) -> Result<(Value, StopReason, usize), Box<Failure>> {
    let answer = READING.stored(READING.however_cut(stream.as_bytes()))?;
    let content = serde_json::to_value(answer.message.content).unwrap();
    Ok((content, answer.message.stop_reason, answer.broken.len()))
}

#[track_caller]
pub(super) fn check(chunks: &[Value], want: Value, stop: StopReason) {
    assert_eq!(answer(&stream(chunks)), Ok((want, stop, 0)));
}

/// A stream that fails: its category, part of its text, and the text so far.
#[track_caller]
pub(super) fn check_fault(stream: &str, category: &str, part: &str, so_far: &str) {
    let failure = answer(stream).unwrap_err();
    let told = failure.fault.to_string();
    assert_eq!((failure.fault.category(), failure.partial.text().as_str()), (category, so_far));
    assert!(told.contains(part), "{told}");
}

pub(super) fn said(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

#[test]
fn text_comes_in_pieces() {
    let chunks = [
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"content": "那"})),
        delta(json!({"content": null})),
        delta(json!({"content": [{"type": "text", "text": "é"}, {"type": "image"}]})),
        finish("stop"),
    ];
    check(&chunks, said("那é"), StopReason::Stop);
}

#[test]
fn comments_and_other_line_ends_change_nothing() {
    let plain = stream(&[delta(json!({"content": "a"})), finish("stop")]);
    let with_comments = format!(": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n{plain}");
    for stream in [with_comments.clone(), with_comments.replace('\n', "\r\n")] {
        assert_eq!(answer(&stream), Ok((said("a"), StopReason::Stop, 0)));
    }
}

#[test]
fn a_whole_answer_needs_a_finish_or_an_end_mark() {
    let text = delta(json!({"content": "a"}));
    let without_mark = format!("data: {text}\n\ndata: {}", finish("stop"));
    assert_eq!(answer(&without_mark), Ok((said("a"), StopReason::Stop, 0)));
    check(std::slice::from_ref(&text), said("a"), StopReason::Stop);
    check_fault(&format!("data: {text}\n\n"), "cut", "cut off", "a");
    check_fault("", "cut", "cut off", "");
    check_fault("data: [DONE]\n\n", "cut", "cut off", "");
    check_fault(": ka\n\n", "cut", "cut off", "");
}

#[test]
fn the_end_mark_ends_the_reading_and_a_finish_does_not() {
    let mut decoder = OpenAiChat::new("acme").decoder();
    let mut deltas = Vec::new();
    let until_finish = format!("data: {}\n\n", finish("stop"));
    decoder.feed(until_finish.as_bytes(), &mut deltas).unwrap();
    assert!(!decoder.is_done());
    decoder.feed(b"data: [DONE]\n\n", &mut deltas).unwrap();
    assert!(decoder.is_done());
    decoder.feed(b"data: junk\n\n", &mut deltas).unwrap();
    decoder.end(&mut deltas).unwrap();
    assert_eq!(deltas, [Delta::Stop(StopReason::Stop)]);
}

#[test]
fn chunks_that_say_nothing_are_passed_over() {
    let chunks = [
        json!({"choices": [], "prompt_filter_results": []}),
        json!({"choices": null}),
        json!({}),
        json!({"choices": [{"index": 0, "content_filter_results": {}}]}),
        json!({"choices": [{"index": 0, "delta": null, "finish_reason": null}]}),
        delta(json!({"content": null, "tool_calls":
            [{"index": 0, "id": "", "function": {"arguments": null}}]})),
        delta(json!({"content": null, "tool_calls": null, "function_call": null, "refusal": null})),
        json!({"choices": [{"index": 1, "delta": {"content": "another"}, "finish_reason": "stop"}]}),
        delta(json!({"content": "a"})),
        finish("stop"),
        json!({"error": null, "choices": []}),
    ];
    check(&chunks, said("a"), StopReason::Stop);
}

#[test]
fn thinking_comes_beside_or_within_the_content() {
    let want = json!([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]);
    let text = delta(json!({"content": "a", "reasoning_content": ""}));
    for field in ["reasoning_content", "reasoning"] {
        let chunks =
            [delta(json!({field: "h"})), delta(json!({field: "m"})), text.clone(), finish("stop")];
        check(&chunks, want.clone(), StopReason::Stop);
    }
    let both = delta(json!({"reasoning": "hm", "reasoning_content": "hm", "content": null}));
    check(&[both, text.clone(), finish("stop")], want.clone(), StopReason::Stop);
    let part = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]);
    check(&[delta(json!({"content": part})), text, finish("stop")], want.clone(), StopReason::Stop);
    let pieces = ["\n<th", "ink>h", "m</think", ">\n", "\na"];
    let chunks: Vec<Value> =
        pieces.iter().map(|it| delta(json!({"content": it}))).chain([finish("stop")]).collect();
    check(&chunks, want, StopReason::Stop);
}

#[test]
fn the_stop_reason_goes_by_what_came() {
    let text = delta(json!({"content": "a"}));
    for (reason, stop) in [
        ("stop", StopReason::Stop),
        ("length", StopReason::Length),
        ("model_length", StopReason::Length),
        ("tool_calls", StopReason::Stop),
        ("function_call", StopReason::Stop),
        ("eos", StopReason::Stop),
    ] {
        check(&[text.clone(), finish(reason)], said("a"), stop);
    }
    check(&[finish("stop")], json!([]), StopReason::Stop);
    check(&[delta(json!({"refusal": "No."})), finish("stop")], said("No."), StopReason::Stop);
}

fn usage(value: Value) -> Vec<Usage> {
    let chunks =
        [delta(json!({"content": "a"})), finish("stop"), json!({"choices": [], "usage": value})];
    let usages =
        READING.however_cut(stream(&chunks).as_bytes()).0.into_iter().filter_map(|it| match it {
            Delta::Usage(it) => Some(it),
            _ => None,
        });
    usages.collect()
}

#[track_caller]
fn check_usage(value: Value, [input, output, cache_read, cache_write, total_tokens]: [u64; 5]) {
    let want = Usage { input, output, cache_read, cache_write, total_tokens, ..Usage::default() };
    assert_eq!(usage(value), [want]);
}

#[test]
fn usage_reads_however_it_is_written() {
    let plain = json!({"prompt_tokens": 100, "completion_tokens": 6, "total_tokens": 106});
    check_usage(plain, [100, 6, 0, 0, 106]);
    check_usage(
        json!({"prompt_tokens": "100", "completion_tokens": 6.0, "total_tokens": null}),
        [100, 6, 0, 0, 0],
    );
    check_usage(
        json!({"prompt_tokens": 100, "completion_tokens": null, "prompt_tokens_details":
            {"cached_tokens": 60, "cache_write_tokens": 30}}),
        [10, 0, 60, 30, 0],
    );
    check_usage(json!({"prompt_tokens": 100, "prompt_cache_hit_tokens": 60}), [40, 0, 60, 0, 0]);
    check_usage(
        json!({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60}}),
        [0, 0, 5, 0, 0],
    );
    check_usage(
        json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 18,
            "completion_tokens_details": {"reasoning_tokens": 3}}),
        [10, 8, 0, 0, 18],
    );
    for nothing in [json!(null), json!({}), json!([]), json!({"prompt_tokens": 0})] {
        assert_eq!(usage(nothing), []);
    }
}

#[test]
fn usage_may_stand_in_any_chunk() {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 6});
    let place = |chunk: Value| {
        let (deltas, _) = READING.however_cut(stream(&[chunk, finish("stop")]).as_bytes());
        deltas.iter().filter(|it| matches!(it, Delta::Usage(_))).count()
    };
    assert_eq!(place(json!({"choices": [{"delta": {"content": "a"}}], "usage": usage})), 1);
    assert_eq!(place(json!({"choices": [{"delta": {"content": "a"}, "usage": usage}]})), 1);
    assert_eq!(place(json!({"choices": [], "x_groq": {"usage": usage}})), 1);
}

#[test]
fn an_answer_that_is_not_streamed_reads_too() {
    let message = json!({"role": "assistant", "content": "a", "tool_calls":
        [{"id": "x", "type": "function", "function": {"name": "exec", "arguments": {}}}]});
    let body = json!({"object": "chat.completion", "choices":
        [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1}});
    let want = json!([{"type": "text", "text": "a"},
        {"type": "toolCall", "id": "x", "name": "exec", "arguments": {}}]);
    for body in [format!(" \r\n{body:#}\n"), format!("data: {body}\n\n")] {
        assert_eq!(answer(&body), Ok((want.clone(), StopReason::ToolUse, 0)));
    }
    // A message after the pieces of it says nothing new.
    let again = json!({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]});
    check(&[delta(json!({"content": "a"})), again], said("a"), StopReason::Stop);
}

#[test]
fn half_a_character_costs_no_answer() {
    let pieces = [
        r#"{"choices":[{"delta":{"content":"a\ud83d"}}]}"#,
        r#"{"choices":[{"delta":{"content":"\ude00b"}}]}"#,
    ];
    let pieces = pieces.map(|it| format!("data: {it}\n\n")).concat();
    let end = format!("data: {}\n\n", finish("stop"));
    let got = answer(&format!("{pieces}{end}"));
    assert_eq!(got, Ok((said("a\u{fffd}\u{fffd}b"), StopReason::Stop, 0)));
}
