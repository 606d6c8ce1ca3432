//! Whole transcripts of servers, each cut at every place.

use serde_json::{Value, json};

use super::super::OpenAiChat;
use crate::message::{StopReason, Usage};
use crate::provider::tests::reading::{Reading, measured};
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

#[track_caller]
pub(super) fn check_calls(deltas: &[Value], want: &[(&str, &str, Value)]) {
    let chunks: Vec<Value> = deltas
        .iter()
        .map(|it| delta(json!({ "tool_calls": it })))
        .chain([finish("tool_calls")])
        .collect();
    let want = want.iter().map(|(id, name, arguments)| {
        json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments})
    });
    check(&chunks, want.collect(), StopReason::ToolUse);
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
fn calls_are_never_read_out_of_text() {
    let text = "<tool_call>{\"name\": \"exec\"}</tool_call> [TOOL_CALLS] exec";
    check(&[delta(json!({"content": text})), finish("stop")], said(text), StopReason::Stop);
}

#[test]
fn pieces_find_their_call_by_index() {
    check_calls(
        &[
            json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "exec", "arguments": ""}}]),
            json!([{"index": 1, "id": "b", "function": {"name": "read", "arguments": "{\"pa"}}]),
            json!([{"index": 0, "function": {"arguments": "{\"x\""}}]),
            json!([{"index": 1, "id": null, "function": {"name": null, "arguments": "th\":\"}\"}"}},
                {"index": 0, "id": "", "function": {"name": "", "arguments": ":1}"}}]),
        ],
        &[("a", "exec", json!({"x": 1})), ("b", "read", json!({"path": "}"}))],
    );
}

#[test]
fn pieces_find_their_call_by_id_or_order() {
    check_calls(
        &[
            json!([{"id": "a", "function": {"name": "exec", "arguments": "{"}}]),
            json!([{"id": "b", "function": {"name": "read", "arguments": "{"}}]),
            json!([{"id": "a", "function": {"arguments": "}"}}, {"id": "b", "function": {"arguments": "}"}}]),
        ],
        &[("a", "exec", json!({})), ("b", "read", json!({}))],
    );
    check_calls(
        &[
            json!([{"id": "a", "function": {"name": "exec", "arguments": "{\"x\":"}}]),
            json!([{"function": {"arguments": "1}"}}]),
        ],
        &[("a", "exec", json!({"x": 1}))],
    );
    // The index comes later than the call, or only at first.
    check_calls(
        &[
            json!([{"id": "a", "function": {"name": "exec"}}]),
            json!([{"index": 0, "id": "a", "function": {"arguments": "{\"x\":"}}]),
            json!([{"id": "a", "function": {"arguments": "1}"}}]),
        ],
        &[("a", "exec", json!({"x": 1}))],
    );
}

/// Told anew with each piece, such a name would take the square of its length.
#[test]
fn a_name_in_pieces_without_end_is_told_no_further() {
    let piece = |it| json!({"index": 0, "function": {"name": format!("{it}{}", "n".repeat(100))}});
    let pieces: Vec<Value> = (0..2_000).map(piece).collect();
    let (deltas, _) = READING.of([stream(&[delta(json!({ "tool_calls": pieces }))]).as_bytes()]);
    let names = deltas.iter().filter_map(|it| match it {
        Delta::ToolCall(it) => it.name.as_ref(),
        _ => None,
    });
    let told: usize = names.map(String::len).sum();
    assert!(told < 20_000, "{told} bytes");
}

#[test]
fn several_calls_of_one_index_are_told_apart() {
    check_calls(
        &[
            json!([{"index": 0, "id": "a", "function": {"name": "exec", "arguments": "{}"}}]),
            json!([{"index": 0, "id": "b", "function": {"name": "exec", "arguments": "{\"x\":1}"}}]),
        ],
        &[("a", "exec", json!({})), ("b", "exec", json!({"x": 1}))],
    );
    // Its id is new in every piece.
    check_calls(
        &[
            json!([{"index": 0, "id": "a", "function": {"name": "exec", "arguments": ""}}]),
            json!([{"index": 0, "id": "b", "function": {"arguments": "{\"x\":"}}]),
            json!([{"index": 0, "id": "c", "function": {"arguments": "1}"}}]),
        ],
        &[("a", "exec", json!({"x": 1}))],
    );
}

#[test]
fn whole_calls_as_objects_without_ids_are_accepted() {
    let chunks = [
        delta(json!({"tool_calls": [
            {"function": {"name": "read", "arguments": {"path": "a"}}},
            {"function": {"name": "read", "arguments": {}}},
            {"function": {"name": "exec"}}]})),
        delta(json!({"tool_calls": [{"function": {"name": "exec", "arguments": {"x": [1]}}}]})),
        finish("stop"),
    ];
    let (content, stop, broken) = answer(&stream(&chunks)).unwrap();
    let calls: Vec<(&Value, &Value)> =
        content.as_array().unwrap().iter().map(|it| (&it["name"], &it["arguments"])).collect();
    let want = [("read", json!({"path": "a"})), ("read", json!({})), ("exec", json!({"x": [1]}))];
    let want: Vec<(Value, Value)> = want.map(|(name, it)| (json!(name), it)).into();
    assert_eq!(calls, want.iter().map(|(name, it)| (name, it)).collect::<Vec<_>>());
    assert_eq!((stop, broken), (StopReason::ToolUse, 0));
    let ids: Vec<&str> =
        content.as_array().unwrap().iter().filter_map(|it| it["id"].as_str()).collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|it| !it.is_empty()), "{ids:?}");
}

#[test]
fn a_name_comes_whole_or_in_pieces_or_in_every_piece() {
    for names in [["exec", "", ""], ["exec", "exec", "exec"], ["ex", "ec", ""], ["ex", "exec", ""]]
    {
        let piece = |name: &str, arguments: &str| {
            json!([{"index": 0, "id": "a", "function":
            {"name": name, "arguments": arguments}}])
        };
        check_calls(
            &[piece(names[0], ""), piece(names[1], "{\"x\":"), piece(names[2], "1}")],
            &[("a", "exec", json!({"x": 1}))],
        );
    }
    // Without any id or index, the same name again is the same call.
    let piece = |arguments: &str| json!([{"function": {"name": "exec", "arguments": arguments}}]);
    let chunks = ["", "{\"x\":", "1}"].map(|it| delta(json!({ "tool_calls": piece(it) })));
    let got = answer(&stream(&chunks)).unwrap().0;
    assert_eq!(got[0]["arguments"], json!({"x": 1}));
    assert_eq!(got[1], Value::Null);
}

#[test]
fn arguments_that_say_nothing_are_none() {
    for arguments in [json!(""), json!("null"), json!(null), json!({}), json!("{}"), json!(" ")] {
        check_calls(
            &[
                json!([{"index": 0, "id": "a", "function": {"name": "exec", "arguments": arguments}}]),
            ],
            &[("a", "exec", json!({}))],
        );
    }
    // An empty object that only holds the place of the text.
    check_calls(
        &[
            json!([{"index": 0, "id": "a", "function": {"name": "exec", "arguments": {}}}]),
            json!([{"index": 0, "function": {"arguments": "{\"x\":1}"}}]),
        ],
        &[("a", "exec", json!({"x": 1}))],
    );
}

#[test]
fn arguments_that_do_not_read_are_named_and_stored_as_none() {
    for arguments in ["{\"command\": \"ls\"", "[1]", "ls"] {
        let call =
            json!([{"index": 0, "id": "a", "function": {"name": "exec", "arguments": arguments}}]);
        let got = answer(&stream(&[delta(json!({ "tool_calls": call })), finish("tool_calls")]));
        let want = json!([{"type": "toolCall", "id": "a", "name": "exec", "arguments": {}}]);
        assert_eq!(got, Ok((want, StopReason::ToolUse, 1)), "{arguments}");
    }
}

#[test]
fn the_old_form_of_a_call_reads_too() {
    let chunks = [
        delta(json!({"function_call": {"name": "exec", "arguments": "{\"x\":"}})),
        delta(json!({"function_call": {"arguments": "1}"}})),
        finish("function_call"),
    ];
    let (content, stop, _) = answer(&stream(&chunks)).unwrap();
    assert_eq!((&content[0]["arguments"], stop), (&json!({"x": 1}), StopReason::ToolUse));
}

#[test]
fn opaque_data_of_a_call_is_kept() {
    let signature = json!({"google": {"thought_signature": "EjQK"}});
    let call = |it: &str, signature: &Value| {
        json!({"id": it, "extra_content": signature,
        "function": {"name": "exec", "arguments": "{}"}})
    };
    let chunks = [
        delta(json!({"tool_calls": [call("a", &signature), call("b", &Value::Null)]})),
        finish("stop"),
    ];
    let want = json!([{"type": "toolCall", "id": "a", "name": "exec", "arguments": {},
            "thoughtSignature": "EjQK"},
        {"type": "toolCall", "id": "b", "name": "exec", "arguments": {}}]);
    check(&chunks, want, StopReason::ToolUse);
    // It may come again, or after the call.
    let chunks = [
        delta(json!({"tool_calls": [call("a", &Value::Null)]})),
        delta(json!({"tool_calls": [{"extra_content": signature}]})),
        delta(json!({"tool_calls": [{"id": "a", "extra_content": signature}]})),
        finish("stop"),
    ];
    let want = json!([{"type": "toolCall", "id": "a", "name": "exec", "arguments": {},
        "thoughtSignature": "EjQK"}]);
    check(&chunks, want, StopReason::ToolUse);
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

#[test]
fn a_filtered_answer_is_refused_with_what_had_come() {
    let stream = stream(&[delta(json!({"content": "a"})), finish("content_filter")]);
    check_fault(&stream, "refused", "the provider `acme` withheld", "a");
}

#[test]
fn an_error_in_the_stream_fails_the_call_at_once() {
    let text = delta(json!({"content": "a"}));
    let open = |event: &str| format!("data: {text}\n\n{event}\n\n");
    let error = json!({"error": {"code": 502, "message": "gone"}, "choices": []});
    check_fault(&open(&format!("data: {error}")), "unavailable", "error: gone", "a");
    check_fault(&format!("data: {error}\n\ndata: [DONE]\n\n"), "unavailable", "gone", "");
    check_fault(&open("data: {\"error\":\"boom\"}"), "unavailable", "boom", "a");
    check_fault(&open("event: error\ndata: M"), "unavailable", "M", "a");
    let typed = r#"event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"M"}}"#;
    check_fault(&open(typed), "unavailable", "M", "a");
    let flat = r#"data: {"object":"error","message":"Rate limit","type":"x","code":429}"#;
    check_fault(&open(flat), "rate_limit", "Rate limit", "a");
    let long = json!({"error": {"code": "context_length_exceeded", "message": "long"}});
    check_fault(&open(&format!("data: {long}")), "context_length", "long", "a");
    check_fault(&open(&format!("data: {}", finish("error"))), "unavailable", "`error`", "a");
    let in_choice = json!({"choices": [{"error": {"code": 503, "message": "M"}, "delta": {},
        "finish_reason": "error"}]});
    check_fault(&open(&format!("data: {in_choice}")), "unavailable", "M", "a");
}

/// The event is told of while the other side keeps the connection open.
#[test]
fn an_error_does_not_wait_for_the_end() {
    let mut decoder = OpenAiChat::new("acme").decoder();
    let fed = decoder.feed(b"event: error\ndata: {\"message\":\"M\"}\n\n", &mut Vec::new());
    assert!(fed.is_err_and(|it| it.to_string().contains("M")));
}

#[test]
fn what_the_model_says_about_errors_is_no_error() {
    let text = "Context overflow: prompt too large, rate limit, overloaded";
    check(&[delta(json!({"content": text})), finish("stop")], said(text), StopReason::Stop);
}

#[test]
fn a_piece_that_does_not_read_fails_the_call() {
    let text = delta(json!({"content": "a"}));
    let open = |event: &str| format!("data: {text}\n\ndata: {event}\n\ndata: [DONE]\n\n");
    check_fault(&open("{\"choices\":[{\"del"), "unavailable", "not valid JSON", "a");
    check_fault(&open("junk"), "unavailable", "junk", "a");
    check_fault(&open("7"), "unavailable", "not an object", "a");
    check_fault(&open(&"[".repeat(10_000)[..200]), "unavailable", "not valid JSON", "a");
    assert_eq!(answer(&open("")), Ok((said("a"), StopReason::Stop, 0)));
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
fn a_body_that_is_no_answer_is_told_of() {
    check_fault("{\"error\":{\"message\":\"M\",\"code\":401}}", "refused", "apiKey", "");
    check_fault("[{\"error\":{\"message\":\"M\",\"code\":429}}]", "rate_limit", "M", "");
    check_fault("{\"detail\":\"Not Found\"}", "unavailable", "Not Found", "");
    check_fault("{\"choices\":[{\"message\":{\"cont", "unavailable", "not valid JSON", "");
    check_fault("{}", "unavailable", "no message", "");
    check_fault("<html>", "refused", "llm.providers.acme.baseUrl", "");
}

#[test]
fn an_answer_without_end_is_refused() {
    let text = "x".repeat(1024 * 1024);
    let chunk = format!("data: {}\n\n", delta(json!({ "content": text })));
    let mut decoder = measured(OpenAiChat::new("acme").decoder());
    let fed = (0..17).map(|_| decoder.feed(chunk.as_bytes(), &mut Vec::new()));
    assert_eq!(fed.filter(Result::is_err).count(), 1);
    let call = |index: u64| json!([{"index": index, "id": index.to_string()}]);
    let calls: Vec<Value> = (0..1_100).map(|it| delta(json!({ "tool_calls": call(it) }))).collect();
    let (_, ended) = READING.of(stream(&calls).as_bytes().chunks(4_096));
    assert!(ended.is_err_and(|it| it.to_string().contains("tool calls")));
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

/// Each value takes memory of its own, many times its text.
#[test]
fn an_event_of_too_many_values_is_refused_unread() {
    let many = |it: &str| format!("{{\"x\":[{}0]}}", it.repeat(100_000));
    let error = format!("event: error\ndata: {}\n\n", many("0,"));
    for stream in [many("[0],"), format!("data: {}\n\n", many("{},")), error] {
        let (got, ended) = READING.of(stream.as_bytes().chunks(4_096));
        assert_eq!(got, []);
        let text = ended.map_or_else(|it| it.to_string(), |_| String::new());
        assert!(text.contains("values") || text.contains("[0,0,"), "{text}");
    }
}

/// What is cut is marked, so that half a secret is known to be one.
#[test]
fn a_piece_that_is_shown_in_part_says_so() {
    let junk = "x".repeat(1_000);
    check_fault(&format!("data: {junk}\n\n"), "unavailable", &format!("{}…", &junk[..100]), "");
}
