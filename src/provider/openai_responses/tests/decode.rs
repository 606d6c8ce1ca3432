//! What of an answer is small enough to be told without a transcript: its end,
//! its errors, its bounds.

use serde_json::{Value, json};

use super::super::OpenAiResponses;
use super::transcripts::{READING, outcome};
use crate::provider::tests::reading::measured;
use crate::provider::{Delta, Provider};

pub(super) fn event(kind: &str, fields: Value) -> String {
    let mut event = fields;
    event["type"] = json!(format!("response.{kind}"));
    format!("data: {event}\n\n")
}

pub(super) fn text(text: &str) -> String {
    event("output_text.delta", json!({"item_id": "msg_1", "delta": text}))
}

pub(super) fn end(kind: &str, response: Value) -> String {
    event(kind, json!({ "response": response }))
}

#[track_caller]
fn check(stream: &str, text: &str, stop: &str) {
    let got = outcome(stream.as_bytes());
    assert_eq!((&got["content"][0]["text"], &got["stopReason"]), (&json!(text), &json!(stop)));
}

#[track_caller]
pub(super) fn check_fault(stream: &str, category: &str, part: &str, so_far: Option<&str>) {
    let got = outcome(stream.as_bytes());
    let told = got["says"].as_str().unwrap_or_default();
    assert_eq!((&got["fault"], got["content"][0]["text"].as_str()), (&json!(category), so_far));
    assert!(told.contains(part), "{told}");
}

#[test]
fn the_answer_ends_with_the_event_that_says_so() {
    for (stream, is_done) in [
        (text("a") + &end("completed", json!({"status": "completed"})), true),
        (text("a") + &end("completed", json!({})), true),
        (text("a") + &end("done", Value::Null), true),
        (text("a") + "event: response.completed\ndata: {}\n\n", true),
        (text("a") + "data: {\"status\":\"completed\",\"output\":[]}\n\n", true),
        (text("a") + "data: {\"status\":\"in_progress\",\"output\":[]}\n\n", false),
        (text("a") + &event("created", json!({"response": {"status": "completed"}})), false),
    ] {
        let mut decoder = OpenAiResponses::new("acme").decoder();
        let mut got = Vec::new();
        decoder.feed(stream.as_bytes(), &mut got).unwrap();
        assert_eq!(decoder.is_done(), is_done, "{stream}");
        let has_stop = got.iter().any(|it| matches!(it, Delta::Stop(_)));
        assert_eq!(has_stop, is_done, "{stream}");
        // What comes after it is not looked at.
        let after = decoder.feed(b"data: junk\n\n", &mut got);
        assert_eq!(after.is_ok(), is_done, "{stream}");
    }
}

#[test]
fn how_it_ends_goes_by_its_own_word() {
    let incomplete =
        |reason: Value| json!({"status": "incomplete", "incomplete_details": {"reason": reason}});
    check(&(text("a") + &end("incomplete", json!({}))), "a", "length");
    check(&(text("a") + &end("completed", incomplete(json!(null)))), "a", "length");
    check(&(text("a") + &end("done", incomplete(json!("max_output_tokens")))), "a", "length");
    check(&(text("a") + &end("completed", json!({"status": "odd"}))), "a", "stop");
    let filtered = text("a") + &end("incomplete", incomplete(json!("content_filter")));
    check_fault(&filtered, "refused", "the provider `acme` withheld", Some("a"));
}

/// An answer that calls itself whole, with two calls, of which the second ends
/// with this status: by its own event, in the output at the end, or in both.
#[track_caller]
fn check_call(by_event: Option<&str>, at_the_end: Option<&str>, stop: &str) {
    let call = |id: &str, status: Option<&str>| {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id,
            "name": "exec", "arguments": "{}", "status": status})
    };
    let done = |place: u64, item: Value| {
        event("output_item.done", json!({"output_index": place, "item": item}))
    };
    let mut stream = done(0, call("a", Some("completed")));
    if by_event.is_some() {
        stream += &done(1, call("b", by_event));
    }
    let output = at_the_end.map(|it| json!([call("a", Some("completed")), call("b", Some(it))]));
    stream += &end("completed", json!({"status": "completed", "output": output}));
    let got = outcome(stream.as_bytes());
    if !stop.starts_with('`') {
        assert_eq!(got["stopReason"], stop, "{stream}");
        assert_eq!(got["content"].as_array().map(Vec::len), Some(2), "{stream}");
        return;
    }
    let told = got["says"].as_str().unwrap_or_default();
    assert_eq!(got["fault"], "cut", "{stream}");
    assert!(told.contains(&format!("a tool call that is not whole ({stop})")), "{told}");
}

#[test]
fn a_call_that_its_server_says_is_not_whole_cuts_the_answer() {
    for (cut, stop) in
        [("incomplete", "length"), ("failed", "`failed`"), ("cancelled", "`cancelled`")]
    {
        check_call(Some(cut), None, stop);
        check_call(None, Some(cut), stop);
        check_call(Some("completed"), Some(cut), stop);
        check_call(Some(cut), Some("completed"), stop);
    }
    for whole in ["completed", "in_progress", "", "odd"] {
        check_call(Some(whole), None, "toolUse");
        check_call(None, Some(whole), "toolUse");
    }
}

/// The event is told of while the other side keeps the connection open.
#[test]
fn a_failure_is_told_at_once_with_its_reason() {
    let failed = |error: Value| text("a") + &end("failed", json!({"error": error}));
    let reason = json!({"code": "server_error", "message": "M"});
    let mut decoder = OpenAiResponses::new("acme").decoder();
    let fed = decoder.feed(failed(reason.clone()).as_bytes(), &mut Vec::new());
    assert!(fed.is_err_and(|it| it.to_string().contains("error: M")));
    check_fault(&failed(reason), "unavailable", "error: M", Some("a"));
    check_fault(&failed(json!("M")), "unavailable", "M", Some("a"));
    check_fault(&failed(Value::Null), "unavailable", "not why", Some("a"));
    let code = |code: &str| failed(json!({"code": code, "message": "M"}));
    check_fault(&code("rate_limit_exceeded"), "rate_limit", "M", Some("a"));
    check_fault(&code("invalid_prompt"), "refused", "M", Some("a"));
    check_fault(&code("context_length_exceeded"), "context_length", "M", Some("a"));
    check_fault(&(text("a") + &end("cancelled", json!({}))), "unavailable", "not why", Some("a"));
}

#[test]
fn an_error_in_the_stream_fails_the_call() {
    let open = |event: &str| text("a") + event + "\n\n";
    check_fault(&open("event: error\ndata: M"), "unavailable", "M", Some("a"));
    check_fault(&open("event: error\ndata: \"M\""), "unavailable", "M", Some("a"));
    check_fault(
        &open(r#"data: {"error":{"message":"M","code":429}}"#),
        "rate_limit",
        "M",
        Some("a"),
    );
    check_fault(&open(r#"data: {"error":"M"}"#), "unavailable", "M", Some("a"));
    check_fault(&open(r#"data: {"detail":"M"}"#), "unavailable", "M", Some("a"));
    let flat = r#"data: {"type":"error","code":null,"message":"M","param":null}"#;
    check_fault(&open(flat), "unavailable", "M", Some("a"));
    let stale = r#"data: {"type":"error","code":"invalid_encrypted_content","message":"M"}"#;
    check_fault(&open(stale), "refused", "take back", Some("a"));
}

#[test]
fn what_the_model_says_about_errors_is_no_error() {
    let said = "Context overflow: rate limit, overloaded, item 'rs_1' not found";
    check(&(text(said) + &end("completed", json!({"error": null}))), said, "stop");
}

#[test]
fn a_piece_that_does_not_read_fails_the_call() {
    let open = |event: &str| text("a") + &format!("data: {event}\n\n");
    check_fault(&open("{\"type\":\"resp"), "unavailable", "not valid JSON", Some("a"));
    check_fault(&open("junk"), "unavailable", "junk", Some("a"));
    check_fault(&open("7"), "unavailable", "not an object", Some("a"));
    check_fault(
        &open(&format!("{{\"x\":[{}0]}}", "0,".repeat(100_000))),
        "unavailable",
        "values",
        Some("a"),
    );
}

#[test]
fn a_body_that_is_no_answer_is_told_of() {
    check_fault(r#"{"error":{"message":"M","code":401}}"#, "refused", "apiKey", None);
    check_fault(r#"[{"error":{"message":"M","code":429}}]"#, "rate_limit", "M", None);
    check_fault(r#"{"detail":"Not Found"}"#, "unavailable", "Not Found", None);
    check_fault(r#"{"status":"queued","output":[]}"#, "unavailable", "no answer", None);
    check_fault("{", "unavailable", "not valid JSON", None);
    check_fault("{}", "unavailable", "no answer", None);
    let failed = r#"{"status":"failed","error":{"code":"server_error","message":"M"},"output":[]}"#;
    check_fault(failed, "unavailable", "M", None);
    check_fault("", "cut", "", None);
}

#[test]
fn an_answer_without_end_is_refused() {
    let more = text(&"x".repeat(1024 * 1024));
    let mut decoder = measured(OpenAiResponses::new("acme").decoder());
    let fed = (0..17).map(|_| decoder.feed(more.as_bytes(), &mut Vec::new()));
    assert_eq!(fed.filter(Result::is_err).count(), 1);
    let item =
        |it: &usize| json!({"type": "function_call", "call_id": it.to_string(), "name": "x"});
    let calls: String = (0..1_100)
        .map(|it| event("output_item.added", json!({"output_index": it, "item": item(&it)})))
        .collect();
    let (_, ended) = READING.of([calls.as_bytes()]);
    assert!(ended.is_err_and(|it| it.to_string().contains("items")));
}

#[test]
fn what_was_counted_reads_however_it_is_written() {
    let usage = |usage: Value| {
        let stream = text("a") + &end("completed", json!({ "usage": usage }));
        outcome(stream.as_bytes())["usage"].take()
    };
    let details = |cached: Value| json!({"input_tokens": 5, "input_tokens_details": cached});
    assert_eq!(usage(json!({"input_tokens": "5", "output_tokens": 2.0})), json!([5, 2, 0, 0]));
    assert_eq!(usage(details(json!({"cached_tokens": "3"}))), json!([2, 0, 3, 0]));
    assert_eq!(usage(details(json!({"cached_tokens": 9}))), json!([0, 0, 5, 0]));
    let written = json!({"cached_tokens": 1, "cache_write_tokens": 9});
    assert_eq!(usage(details(written)), json!([0, 0, 1, 4]));
    for nothing in [json!(null), json!({}), json!([]), json!({"input_tokens": -1})] {
        assert_eq!(usage(nothing), Value::Null);
    }
}
