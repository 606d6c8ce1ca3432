//! What fails a call: errors in its stream, what does not read, what is too much.

use serde_json::{Value, json};

use super::super::OpenAiChat;
use super::decode::{READING, answer, check, check_fault, delta, finish, said, stream};
use crate::message::StopReason;
use crate::provider::Provider;
use crate::provider::tests::reading::measured;

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
