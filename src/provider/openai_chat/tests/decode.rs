//! Whole transcripts of servers, each cut at every place.

use serde_json::{Value, json};

use super::super::OpenAiChat;
use crate::clock::Time;
use crate::config::ModelRef;
use crate::message::{StopReason, Usage};
use crate::provider::assemble::Assembly;
use crate::provider::{Delta, Failure, Fault, Provider};

/// The deltas of a stream that comes in pieces of so many bytes, neighbours of
/// one kind joined, then how it ended.
fn deltas(stream: &[u8], size: usize) -> (Vec<Delta>, Result<bool, Fault>) {
    let mut decoder = OpenAiChat::new("acme").decoder();
    let mut deltas = Vec::new();
    let mut fed = Ok(());
    for piece in stream.chunks(size) {
        fed = decoder.feed(piece, &mut deltas);
        if fed.is_err() || decoder.is_done() {
            break;
        }
    }
    let ended = fed.and_then(|()| decoder.end(&mut deltas)).map(|()| decoder.is_done());
    let mut joined: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (joined.last_mut(), delta) {
            (Some(Delta::Text(it)), Delta::Text(more)) => it.push_str(&more),
            (Some(Delta::Thinking(it)), Delta::Thinking(more)) => it.push_str(&more),
            (_, delta) => joined.push(delta),
        }
    }
    (joined, ended)
}

/// The same however it is cut.
#[track_caller]
fn decode(stream: &str) -> (Vec<Delta>, Result<bool, Fault>) {
    let whole = deltas(stream.as_bytes(), stream.len().max(1));
    for size in [1, 2, 3, 7, 64] {
        assert_eq!(deltas(stream.as_bytes(), size), whole, "pieces of {size}");
    }
    for place in 1..stream.len() {
        let mut decoder = OpenAiChat::new("acme").decoder();
        let (first, second) = stream.as_bytes().split_at(place);
        let mut got = Vec::new();
        let fed = decoder.feed(first, &mut got).and_then(|()| decoder.feed(second, &mut got));
        let ended = fed.and_then(|()| decoder.end(&mut got));
        assert_eq!(ended.is_ok(), whole.1.is_ok(), "cut at {place}");
    }
    whole
}

/// Chunks as a stream, with its end mark.
fn stream(chunks: &[Value]) -> String {
    let events = chunks.iter().map(|it| format!("data: {it}\n\n"));
    events.chain(["data: [DONE]\n\n".into()]).collect()
}

fn delta(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}], "usage": null})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// The answer of a stream: its blocks, its stop reason, and which calls are
/// broken.
#[track_caller]
fn answer(stream: &str) -> Result<(Value, StopReason, usize), Box<Failure>> {
    let model = ModelRef { provider: "acme".into(), model: "m".into() };
    let mut assembly = Assembly::new("openai-completions", &model, Time::from_unix_millis(7));
    let (deltas, ended) = decode(stream);
    deltas.into_iter().for_each(|it| assembly.take(it));
    if let Err(fault) = ended {
        return Err(assembly.fail(fault));
    }
    let answer = assembly.finish()?;
    let content = serde_json::to_value(answer.message.content).unwrap();
    Ok((content, answer.message.stop_reason, answer.broken.len()))
}

#[track_caller]
fn check(chunks: &[Value], want: Value, stop: StopReason) {
    assert_eq!(answer(&stream(chunks)), Ok((want, stop, 0)));
}

#[track_caller]
fn check_calls(deltas: &[Value], want: &[(&str, &str, Value)]) {
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
fn check_fault(stream: &str, category: &str, part: &str, so_far: &str) {
    let failure = answer(stream).unwrap_err();
    let told = failure.fault.to_string();
    assert_eq!((failure.fault.category(), failure.partial.text().as_str()), (category, so_far));
    assert!(told.contains(part), "{told}");
}

fn said(text: &str) -> Value {
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
    check(&[text.clone()], said("a"), StopReason::Stop);
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
