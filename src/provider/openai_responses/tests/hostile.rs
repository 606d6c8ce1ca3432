//! What a server must not do and does: tells a call twice, adds an item twice,
//! streams a part of what its last event holds, counts what cannot be.

use serde_json::{Value, json};

use super::decode::{check_fault, end, event, text};
use super::transcripts::outcome;

fn call(id: &str, call_id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call_id, "name": "exec",
        "arguments": arguments})
}

fn message(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "content": [{"type": "output_text", "text": text}]})
}

fn reasoning(id: &str, text: &str) -> Value {
    json!({"type": "reasoning", "id": id, "encrypted_content": "gAAA",
        "summary": [{"type": "summary_text", "text": text}]})
}

fn added(place: u64, item: &Value) -> String {
    let mut item = item.clone();
    for field in ["arguments", "content", "summary"] {
        item.as_object_mut().unwrap().remove(field);
    }
    event("output_item.added", json!({"output_index": place, "item": item}))
}

fn done(place: u64, item: &Value) -> String {
    event("output_item.done", json!({"output_index": place, "item": item}))
}

fn more(id: &str, place: u64, more: &str) -> String {
    let fields = json!({"item_id": id, "output_index": place, "delta": more});
    event("function_call_arguments.delta", fields)
}

/// All that a server tells of an item that is streamed.
fn streamed(place: u64, item: &Value) -> String {
    let id = item["id"].as_str().unwrap();
    let arguments = item["arguments"].as_str().unwrap();
    added(place, item) + &more(id, place, arguments) + &done(place, item)
}

fn completed(output: &[Value]) -> String {
    end("completed", json!({"status": "completed", "output": output}))
}

/// The blocks of an answer, in short.
#[track_caller]
fn check(stream: &str, want: &[&str]) {
    let got = outcome(stream.as_bytes());
    let block = |it: &Value| match it["type"].as_str() {
        Some("toolCall") => format!("{} {}", it["id"].as_str().unwrap(), it["arguments"]),
        Some("thinking") => format!("thinks {}", it["thinking"].as_str().unwrap()),
        _ => it["text"].as_str().unwrap().to_owned(),
    };
    let blocks: Vec<String> = got["content"].as_array().unwrap().iter().map(block).collect();
    assert_eq!(
        (blocks, got["fault"].as_str()),
        (want.iter().map(|it| (*it).to_owned()).collect(), None)
    );
    let has_calls = want.iter().any(|it| it.contains('{'));
    assert_eq!(got["stopReason"], if has_calls { "toolUse" } else { "stop" });
}

const ONE: &str = "{\"x\":1}";

#[test]
fn a_call_that_is_told_again_is_one() {
    let item = call("fc_1", "c1", ONE);
    let (one, whole) = (["c1 {\"x\":1}"], completed(&[]));
    check(&(streamed(0, &item) + &streamed(0, &item) + &whole), &one);
    check(&(streamed(0, &item) + &streamed(1, &item) + &whole), &one);
    // Also under another id of the item, and where the end tells it twice.
    check(&(streamed(0, &item) + &streamed(1, &call("fc_2", "c1", ONE)) + &whole), &one);
    check(&(streamed(0, &item) + &completed(&[item.clone(), item.clone()])), &one);
    check(&(done(0, &item) + &done(0, &item) + &done(1, &item) + &whole), &one);
    let two = ["c1 {\"x\":1}", "c2 {\"x\":1}"];
    check(&(streamed(0, &item) + &streamed(1, &call("fc_2", "c2", ONE)) + &whole), &two);
    check(&(streamed(0, &item) + &streamed(0, &call("fc_1", "c2", ONE)) + &whole), &two);
}

#[test]
fn an_item_that_is_added_twice_is_one() {
    let item = call("fc_1", "c1", ONE);
    let rest = more("fc_1", 0, ONE) + &done(0, &item) + &completed(&[]);
    check(&(added(0, &item) + &added(0, &item) + &rest), &["c1 {\"x\":1}"]);
    check(
        &(more("fc_1", 0, "{\"x\"") + &added(0, &item) + &more("fc_1", 0, ":1}") + &completed(&[])),
        &["c1 {\"x\":1}"],
    );
    // Without ids its place tells.
    let bare = json!({"type": "function_call", "name": "exec"});
    let delta = event("function_call_arguments.delta", json!({"output_index": 0, "delta": ONE}));
    let got = outcome((added(0, &bare) + &added(0, &bare) + &delta + &completed(&[])).as_bytes());
    assert_eq!(got["content"].as_array().map(Vec::len), Some(1), "{got}");
    // One that never said anything is none.
    let nothing = json!({"type": "function_call", "id": null, "name": null});
    check(&(text("a") + &added(0, &nothing) + &completed(&[])), &["a"]);
}

#[test]
fn items_in_one_place_are_told_apart() {
    let two = ["c1 {\"x\":1}", "c2 {}"];
    for (one, other) in [("fc_1", "fc_2"), ("c1", "c2"), ("", "")] {
        let (one, other) = (call(one, "c1", ONE), call(other, "c2", "{}"));
        check(&(done(0, &one) + &done(0, &other) + &completed(&[])), &two);
        check(&(streamed(0, &one) + &streamed(0, &other) + &completed(&[one, other])), &two);
    }
    let messages = done(0, &message("msg_1", "a")) + &done(0, &message("msg_2", "b"));
    check(&(messages + &completed(&[])), &["a", "b"]);
}

#[test]
fn what_stands_only_at_the_end_is_taken_and_nothing_twice() {
    let (one, two) = (call("fc_1", "c1", ONE), call("fc_2", "c2", "{}"));
    let both = completed(&[one.clone(), two.clone()]);
    check(&(streamed(0, &one) + &both), &["c1 {\"x\":1}", "c2 {}"]);
    check(&(streamed(1, &two) + &both), &["c2 {}", "c1 {\"x\":1}"]);
    check(&(streamed(0, &one) + &streamed(1, &two) + &both), &["c1 {\"x\":1}", "c2 {}"]);
    check(
        &(streamed(0, &one) + &completed(std::slice::from_ref(&two))),
        &["c1 {\"x\":1}", "c2 {}"],
    );
    let all = completed(&[
        reasoning("rs_1", "hm"),
        message("msg_1", "a"),
        message("msg_2", "b"),
        one.clone(),
    ]);
    check(&(text("a") + &all), &["a", "thinks hm", "b", "c1 {\"x\":1}"]);
    check(&(streamed(3, &one) + &all), &["c1 {\"x\":1}", "thinks hm", "ab"]);
    check(&all, &["thinks hm", "a", "b", "c1 {\"x\":1}"]);
    // Only the end has the call's own id, or the arguments as an object.
    let mut bare = one.clone();
    bare.as_object_mut().unwrap().remove("call_id");
    check(&(streamed(0, &bare) + &completed(std::slice::from_ref(&one))), &["fc_1 {\"x\":1}"]);
    bare["arguments"] = json!({"x": 1});
    let with_object = done(0, &bare) + &done(0, &one) + &completed(std::slice::from_ref(&one));
    check(&with_object, &["fc_1 {\"x\":1}"]);
    // A server that makes ids up anew each time.
    let anew = completed(&[message("msg_9", "b"), call("fc_9", "c9", ONE)]);
    check(&(text("a") + &streamed(1, &one) + &anew), &["a", "c1 {\"x\":1}"]);
}

#[test]
fn a_thought_that_comes_behind_its_place_is_not_sent_back() {
    let late = completed(&[reasoning("rs_1", "hm"), message("msg_1", "a")]);
    let got = outcome((text("a") + &late).as_bytes());
    assert_eq!(got["content"][1], json!({"type": "thinking", "thinking": "hm"}), "{got}");
}

#[test]
fn pieces_that_were_lost_at_the_end_of_an_item_are_taken_from_the_whole() {
    let item = call("fc_1", "c1", ONE);
    let begun = added(0, &item) + &more("fc_1", 0, "{\"x\"");
    let arguments = json!({"item_id": "fc_1", "output_index": 0, "arguments": ONE});
    let want = ["c1 {\"x\":1}"];
    check(
        &(begun.clone() + &event("function_call_arguments.done", arguments) + &completed(&[])),
        &want,
    );
    check(&(begun.clone() + &done(0, &item) + &completed(&[])), &want);
    check(&(begun + &completed(&[item])), &want);
    check(&(text("a") + &completed(&[message("msg_1", "ab")])), &["ab"]);
    // Where the whole says something else, what came stands.
    check(&(text("a") + &completed(&[message("msg_1", "b")])), &["a"]);
    let part = json!({"type": "output_text", "text": "a"});
    let whole =
        event("content_part.done", json!({"item_id": "msg_1", "content_index": 0, "part": part}));
    check(&(whole.clone() + &completed(&[])), &["a"]);
    check(&(text("a") + &whole + &completed(&[])), &["a"]);
}

#[test]
fn arguments_that_contradict_their_pieces_count_as_they_stand_at_the_end() {
    let item = call("fc_1", "c1", ONE);
    let whole = json!({"item_id": "fc_1", "output_index": 0, "arguments": ONE});
    let whole = event("function_call_arguments.done", whole);
    let want = ["c1 {\"x\":1}"];
    for pieces in ["{\"x\":2}", "{\"x\":12345}", "{\"x\": 1}", "{\"y", "nonsense"] {
        let begun = added(0, &item) + &more("fc_1", 0, pieces);
        check(&(begun.clone() + &whole + &completed(&[])), &want);
        check(&(begun.clone() + &whole + &done(0, &item) + &completed(&[])), &want);
        check(&(begun.clone() + &done(0, &item) + &completed(&[])), &want);
        check(&(begun + &completed(std::slice::from_ref(&item))), &want);
    }
    // Where the end says nothing of them, what came stands.
    let silent = done(0, &call("fc_1", "c1", "")) + &completed(&[]);
    check(&(added(0, &item) + &more("fc_1", 0, ONE) + &silent), &want);
}

#[test]
fn a_call_that_never_ended_and_has_no_arguments_is_not_run() {
    let item = |status: Option<&str>| {
        let mut item = call("fc_1", "c1", "");
        item["status"] = json!(status);
        item
    };
    let begun = text("a") + &added(0, &item(Some("in_progress")));
    for end in [completed(&[]), completed(&[item(Some("in_progress"))])] {
        check_fault(&(begun.clone() + &end), "cut", "not whole (it never ended)", Some("a"));
    }
    let want = ["a", "c1 {}"];
    let no_arguments = json!({"item_id": "fc_1", "output_index": 0, "arguments": ""});
    let whole = event("function_call_arguments.done", no_arguments);
    check(&(begun.clone() + &whole + &completed(&[])), &want);
    check(&(begun.clone() + &done(0, &item(Some("in_progress"))) + &completed(&[])), &want);
    for status in [None, Some("completed")] {
        check(&(begun.clone() + &completed(&[item(status)])), &want);
    }
    // Arguments say by themselves whether they are whole.
    check(&(begun + &more("fc_1", 0, ONE) + &completed(&[])), &["a", "c1 {\"x\":1}"]);
}

#[test]
fn what_comes_after_the_end_is_not_run() {
    let call = streamed(1, &call("fc_1", "c1", ONE));
    check(&(text("a") + &completed(&[]) + &call), &["a"]);
    check_fault(&(text("a") + &call), "cut", "cut off", Some("a"));
    check_fault(&(text("a") + &call + "data: [DONE]\n\n"), "cut", "cut off", Some("a"));
}

#[test]
fn arguments_too_deep_are_told_of_in_every_form() {
    for levels in [65, 120, 127, 128, 1_000] {
        let deep = "{\"a\":".repeat(levels - 1) + "{}" + &"}".repeat(levels - 1);
        let item = call("fc_1", "c1", "DEEP");
        let object = (done(0, &item) + &completed(&[])).replace("\"DEEP\"", &deep);
        let whole = completed(&[item]).replace("\"DEEP\"", &deep);
        let text = streamed(0, &call("fc_1", "c1", &deep)) + &completed(&[]);
        for stream in [object, whole, text] {
            let got = outcome(stream.as_bytes());
            let told = json!([got["content"][0]["arguments"], got["broken"], got["stopReason"]]);
            assert_eq!(told, json!([{}, 1, "toolUse"]), "{levels} levels: {got}");
        }
    }
}

#[test]
fn tokens_that_cannot_be_are_unknown() {
    for odd in [json!(1e19), json!(-1), json!(0.5), json!("NaN"), json!("9".repeat(400))] {
        let cached = json!({"input_tokens": 5, "input_tokens_details": {"cached_tokens": odd}});
        for usage in [
            json!({"input_tokens": odd, "output_tokens": 5}),
            json!({"input_tokens": 5, "output_tokens": odd}),
            cached,
        ] {
            let stream = text("a") + &end("completed", json!({ "usage": usage }));
            assert_eq!(outcome(stream.as_bytes())["usage"], Value::Null, "{usage}");
        }
    }
}
