//! Tool calls, in all the ways in which servers tell them: whole or in pieces,
//! with ids, names and indexes or without.

use serde_json::{Value, json};

use super::decode::{READING, answer, check, delta, finish, said, stream};
use crate::message::StopReason;
use crate::provider::Delta;

/// Calls that come by these deltas, and what they are.
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
