//! What comes: small streams, each cut at every place, and what of them is an
//! answer, what a fault.

use serde_json::{Value, json};

use super::super::Google;
use crate::message::{StopReason, Usage};
use crate::provider::assemble::Answer;
use crate::provider::tests::reading::{Reading, measured};
use crate::provider::{Delta, Failure, Fault, Provider};

const READING: Reading =
    Reading { api: "google-generative-ai", decoder: || Google::new("acme").decoder() };

#[track_caller]
pub(super) fn answer(stream: &[u8]) -> Result<Answer, Box<Failure>> {
    READING.stored(READING.however_cut(stream))
}

/// Pieces as a stream.
pub(super) fn stream(pieces: &[Value]) -> String {
    pieces.iter().map(|it| format!("data: {it}\r\n\r\n")).collect()
}

pub(super) fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}],
        "modelVersion": "m", "responseId": "r"})
}

pub(super) fn text(text: &str) -> Value {
    parts(json!([{ "text": text }]))
}

pub(super) fn finish(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason, "index": 0}]})
}

#[track_caller]
fn check_text(stream: &str, want: Value, stop: StopReason) {
    let got = answer(stream.as_bytes()).map(|it| {
        let content = serde_json::to_value(it.message.content).unwrap();
        (content, it.message.stop_reason, it.broken.len())
    });
    assert_eq!(got, Ok((want, stop, 0)));
}

#[track_caller]
pub(super) fn check(pieces: &[Value], want: Value, stop: StopReason) {
    check_text(&stream(pieces), want, stop);
}

/// A stream that fails: its category, part of its text, and the text so far.
#[track_caller]
pub(super) fn check_fault(stream: &str, category: &str, part: &str, so_far: &str) {
    let failure = answer(stream.as_bytes()).unwrap_err();
    let told = failure.fault.to_string();
    assert_eq!((failure.fault.category(), failure.partial.text().as_str()), (category, so_far));
    assert!(told.contains(part), "{told}");
}

pub(super) fn said(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

pub(super) fn called(id: &str, name: &str, arguments: Value) -> Value {
    json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments})
}

#[test]
fn text_comes_in_pieces() {
    let pieces =
        [text("那"), text(""), parts(json!([{"text": "é"}, {"text": "!"}])), finish("STOP")];
    check(&pieces, said("那é!"), StopReason::Stop);
    let mut last = text("a");
    last["candidates"][0]["finishReason"] = json!("STOP");
    check(&[last], said("a"), StopReason::Stop);
}

/// The protocol has it where arguments are asked for in pieces, which we never do.
#[test]
fn a_call_of_which_more_is_to_come_cuts_the_answer() {
    let call = |field: &str, goes_on: Value| {
        parts(json!([{"functionCall": {"id": "a", "name": "exec", field: goes_on}}]))
    };
    let want = json!([called("a", "exec", json!({}))]);
    for field in ["willContinue", "will_continue"] {
        for set in [json!(true), json!("true"), json!("True"), json!(1), json!("1")] {
            let cut = stream(&[text("a"), call(field, set.clone()), finish("STOP")]);
            check_fault(&cut, "cut", "a tool call that is not whole (`willContinue`)", "a");
            let at_limit = [call(field, set), finish("MAX_TOKENS")];
            check(&at_limit, want.clone(), StopReason::Length);
        }
        for unset in [json!(false), json!("false"), json!(0), json!(null), json!("")] {
            check(&[call(field, unset), finish("STOP")], want.clone(), StopReason::ToolUse);
        }
    }
    check_fault(&stream(&[text("a"), call("willContinue", json!(true))]), "cut", "cut off", "a");
}

#[test]
fn comments_and_line_ends_change_nothing() {
    let plain = stream(&[text("a"), finish("STOP")]);
    let with_comments = format!(": ka\r\n\r\n: ka\r\n\r\n{plain}");
    for stream in [with_comments.replace("\r\n", "\n"), with_comments] {
        check_text(&stream, said("a"), StopReason::Stop);
    }
    let two_lines =
        "data: {\"candidates\":[{\"content\":\ndata: {\"parts\":[{\"text\":\"a\"}]}}]}\n\n";
    let two_lines = two_lines.to_owned() + &stream(&[finish("STOP")]);
    check_text(&two_lines, said("a"), StopReason::Stop);
}

#[test]
fn an_answer_is_whole_once_it_has_said_why_it_ends() {
    check_fault(&stream(&[text("a")]), "cut", "cut off", "a");
    check_fault(&stream(&[text("a"), finish("FINISH_REASON_UNSPECIFIED")]), "cut", "", "a");
    check_fault("", "cut", "cut off", "");
    check_fault(": ka\n\n", "cut", "cut off", "");
    check_fault("data: [DONE]\n\n", "cut", "cut off", "");
    // The last event needs no line end.
    let stream = stream(&[text("a"), finish("STOP")]);
    check_text(stream.trim_end(), said("a"), StopReason::Stop);
    // Some say it in every piece: then it is not the end yet.
    let every = |it: &str| {
        let mut piece = text(it);
        piece["candidates"][0]["finishReason"] = json!("STOP");
        piece
    };
    check(&[every("a"), every("b"), every("c")], said("abc"), StopReason::Stop);
    check(&[text("a"), finish("MAX_TOKENS"), finish("STOP")], said("a"), StopReason::Length);
}

#[test]
fn an_end_mark_of_others_ends_the_reading() {
    let mut decoder = Google::new("acme").decoder();
    let mut deltas = Vec::new();
    decoder.feed(stream(&[finish("STOP")]).as_bytes(), &mut deltas).unwrap();
    assert!(!decoder.is_done());
    decoder.feed(b"data: [DONE]\n\ndata: junk\n\n", &mut deltas).unwrap();
    assert!(decoder.is_done());
    decoder.end(&mut deltas).unwrap();
    assert_eq!(deltas, [Delta::Stop(StopReason::Stop)]);
}

#[test]
fn pieces_that_say_nothing_are_passed_over() {
    let pieces = [
        json!({}),
        json!({"candidates": null, "promptFeedback": null, "usageMetadata": null, "error": null}),
        json!({"candidates": [], "promptFeedback": {"safetyRatings": []}, "error": {}}),
        json!({"candidates": [null]}),
        json!({"candidates": [{"content": null, "finishReason": null, "index": null}]}),
        json!({"candidates": [{"content": {"role": "model"}}]}),
        json!({"candidates": [{"content": {"parts": null}}]}),
        parts(json!([null, {}, {"text": null, "thought": null, "thoughtSignature": null},
            {"functionCall": null}, {"inlineData": {"data": "aGk="}}, {"executableCode": {}}])),
        json!({"candidates": [{"content": {"parts": [{"text": "other"}]}, "index": 1,
            "finishReason": "SAFETY"}]}),
        text("a"),
        finish("STOP"),
    ];
    check(&pieces, said("a"), StopReason::Stop);
    check(&[finish("STOP")], json!([]), StopReason::Stop);
}

#[test]
fn thinking_is_told_apart_and_signed() {
    let pieces = [
        parts(json!([{"text": "h", "thought": true}])),
        parts(json!([{"text": "m", "thought": true, "thoughtSignature": "T1"}])),
        parts(json!([{"text": "more", "thought": true}, {"text": "a"}])),
        parts(json!([{"text": "b"}])),
        parts(json!([{"text": "", "thoughtSignature": "S1"}])),
        parts(json!([{"text": "c"}, {"thoughtSignature": "S2"}])),
        finish("STOP"),
    ];
    let want = json!([
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "T1"},
        {"type": "thinking", "thinking": "more"},
        {"type": "text", "text": "ab", "textSignature": "S1"},
        {"type": "text", "text": "c", "textSignature": "S2"},
    ]);
    check(&pieces, want, StopReason::Stop);
}

#[test]
fn a_signature_of_nothing_is_of_an_empty_part() {
    let thought = parts(json!([{"text": "hm", "thought": true}]));
    let empty = parts(json!([{"text": "", "thoughtSignature": "S1"}]));
    let want = json!([{"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "", "textSignature": "S1"}]);
    check(&[thought, empty.clone(), finish("STOP")], want, StopReason::Stop);
    let late = parts(json!([{"text": "", "thought": true, "thoughtSignature": "T1"}]));
    let want = json!([{"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "", "thinkingSignature": "T1"}]);
    check(&[text("a"), late, finish("STOP")], want, StopReason::Stop);
    // It never becomes a call's, which may have one of its own.
    let call = parts(json!([{"functionCall": {"id": "c", "name": "exec"}}]));
    let want = json!([called("c", "exec", json!({})),
        {"type": "text", "text": "", "textSignature": "S1"}]);
    check(&[call, empty, finish("STOP")], want, StopReason::ToolUse);
}

#[test]
fn thinking_within_the_text_is_told_apart_too() {
    let pieces = [text("\n<th"), text("ink>h"), text("m</think"), text(">\na"), finish("STOP")];
    let want = json!([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]);
    check(&pieces, want, StopReason::Stop);
    let held = [
        text("<th"),
        parts(json!([{"functionCall": {"id": "c", "name": "exec"}}])),
        finish("STOP"),
    ];
    let want = json!([{"type": "text", "text": "<th"}, called("c", "exec", json!({}))]);
    check(&held, want, StopReason::ToolUse);
    let signed = [parts(json!([{"text": "<th", "thoughtSignature": "S1"}])), finish("STOP")];
    let want = json!([{"type": "text", "text": "<th", "textSignature": "S1"}]);
    check(&signed, want, StopReason::Stop);
}

#[test]
fn calls_come_in_one_piece_or_in_several_and_keep_their_signatures() {
    let call =
        |id: &str, args: Value| json!({"functionCall": {"id": id, "name": "exec", "args": args}});
    let mut first = call("a", json!({"x": {"y": [1, "}"]}}));
    first["thoughtSignature"] = json!("C1");
    let pieces = [
        parts(json!([{"text": "Well."}, first, call("b", json!({}))])),
        parts(json!([call("c", json!({"x": 1}))])),
        finish("STOP"),
    ];
    let mut signed = called("a", "exec", json!({"x": {"y": [1, "}"]}}));
    signed["thoughtSignature"] = json!("C1");
    let want = json!([{"type": "text", "text": "Well."}, signed, called("b", "exec", json!({})),
        called("c", "exec", json!({"x": 1}))]);
    check(&pieces, want, StopReason::ToolUse);
}

#[test]
fn calls_without_id_are_given_one_and_arguments_may_be_missing() {
    for args in [json!(null), json!({}), json!(""), json!("null")] {
        let call = json!({"functionCall": {"name": "exec", "args": args}});
        let bare = json!({"functionCall": {"name": "exec", "id": ""}});
        let stream = stream(&[parts(json!([call, bare])), finish("STOP")]);
        let answer = answer(stream.as_bytes()).unwrap();
        let calls: Vec<_> = answer.message.tool_calls().collect();
        assert!(calls.iter().all(|it| it.arguments == json!({}) && it.id.len() == 9), "{calls:?}");
        assert!(calls.len() == 2 && calls[0].id != calls[1].id && answer.broken.is_empty());
    }
    for args in [json!("{\"command\": \"ls\""), json!([1]), json!(7)] {
        let call = json!({"functionCall": {"id": "a", "name": "exec", "args": args}});
        let stream = stream(&[parts(json!([call])), finish("STOP")]);
        let answer = answer(stream.as_bytes()).unwrap();
        assert_eq!(answer.broken.len(), 1, "{args}");
        assert!(answer.message.tool_calls().all(|it| it.arguments == json!({})));
    }
}

#[test]
fn calls_are_never_read_out_of_text() {
    let prose = "```tool_code\nexec(\"ls\")\n``` {\"functionCall\":{\"name\":\"exec\"}}";
    check(&[text(prose), finish("STOP")], said(prose), StopReason::Stop);
}

#[test]
fn an_answer_that_is_withheld_is_refused_with_what_had_come() {
    let reasons = [
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    ];
    for reason in reasons {
        let mut last = finish(reason);
        last["candidates"][0]["finishMessage"] = json!("It is\nunsafe.");
        let part = format!(
            "the provider `acme` withheld the answer or the rest of it (`{reason}`), \
            \"It is unsafe\": its filter"
        );
        check_fault(&stream(&[text("a"), last]), "refused", &part, "a");
    }
}

#[test]
fn a_conversation_that_is_blocked_is_refused() {
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT",
        "safetyRatings": []}, "usageMetadata": {"promptTokenCount": 9}});
    let part = "the provider `acme` refused the conversation (`PROHIBITED_CONTENT`): its filter";
    check_fault(&stream(std::slice::from_ref(&blocked)), "refused", part, "");
    let failure = answer(stream(&[blocked]).as_bytes()).unwrap_err();
    assert_eq!(failure.partial.usage.input, 9, "it costs as well");
    let unspecified = json!({"promptFeedback": {"blockReason": "BLOCK_REASON_UNSPECIFIED"}});
    check(&[unspecified, text("a"), finish("STOP")], said("a"), StopReason::Stop);
}

#[test]
fn an_end_that_is_none_fails_the_call() {
    for (reason, part) in [
        ("MALFORMED_FUNCTION_CALL", "wrote a tool call that cannot be read"),
        ("UNEXPECTED_TOOL_CALL", "wrote a tool call that cannot be read"),
        ("OTHER", "broke its answer off (`OTHER`). Try again"),
        ("MISSING_THOUGHT_SIGNATURE", "broke its answer off"),
        ("NO_IMAGE", "broke its answer off"),
        ("IMAGE_OTHER", "broke its answer off"),
        ("SOMETHING_NEW", "broke its answer off (`SOMETHING_NEW`)"),
    ] {
        check_fault(&stream(&[text("a"), finish(reason)]), "unavailable", part, "a");
    }
    let nothing = answer(stream(&[finish("MISSING_THOUGHT_SIGNATURE")]).as_bytes());
    assert!(nothing.is_err_and(|it| matches!(it.fault, Fault::Stale(_))));
}

#[test]
fn an_error_in_the_stream_fails_the_call_at_once() {
    let open = |event: &str| format!("data: {}\n\n{event}\n\n", text("a"));
    let error = json!({"error": {"code": 503, "message": "gone", "status": "UNAVAILABLE"}});
    check_fault(&open(&format!("data: {error}")), "unavailable", "error: gone", "a");
    check_fault(&open(&format!("data: [{error}]")), "unavailable", "gone", "a");
    check_fault(&open("data: {\"error\":\"boom\"}"), "unavailable", "boom", "a");
    check_fault(&open("event: error\ndata: M"), "unavailable", "M", "a");
    let long = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message":
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}});
    check_fault(&open(&format!("data: {long}")), "context_length", "input token count", "a");
    let slow = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota.",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]}});
    let failure = answer(open(&format!("data: {slow}")).as_bytes()).unwrap_err();
    assert!(matches!(failure.fault, Fault::RateLimited(Some(17_000), _)), "{:?}", failure.fault);
    // It is told while the other side keeps the connection open.
    let fed = Google::new("acme")
        .decoder()
        .feed(format!("data: {error}\n\n").as_bytes(), &mut Vec::new());
    assert!(fed.is_err_and(|it| it.to_string().contains("gone")));
}

#[test]
fn what_the_model_says_about_errors_is_no_error() {
    let quoted = "Context overflow: prompt too large, rate limit, Corrupted thought signature";
    check(&[text(quoted), finish("STOP")], said(quoted), StopReason::Stop);
}

#[test]
fn a_piece_that_does_not_read_fails_the_call() {
    let open = |event: &str| format!("data: {}\n\ndata: {event}\n\n", text("a"));
    check_fault(&open("{\"candidates\":[{\"con"), "unavailable", "not valid JSON", "a");
    check_fault(&open("junk"), "unavailable", "junk", "a");
    check_fault(&open("7"), "unavailable", "not an object", "a");
    let junk = "x".repeat(1_000);
    check_fault(&open(&junk), "unavailable", &format!("{}…", &junk[..100]), "a");
}

fn usages(pieces: &[Value]) -> Vec<Usage> {
    let usages =
        READING.however_cut(stream(pieces).as_bytes()).0.into_iter().filter_map(|it| match it {
            Delta::Usage(it) => Some(it),
            _ => None,
        });
    usages.collect()
}

#[test]
fn usage_is_told_when_it_is_news() {
    let first = json!({"promptTokenCount": 100, "totalTokenCount": 100});
    let mut piece = text("a");
    piece["usageMetadata"] = first;
    let last = json!({"usageMetadata": {"promptTokenCount": "100", "cachedContentTokenCount": 40,
        "candidatesTokenCount": 6, "thoughtsTokenCount": 20, "totalTokenCount": 126}});
    let got = usages(&[piece.clone(), piece, finish("STOP"), last]);
    let usage = |input, output, cache_read, total_tokens| Usage {
        input,
        output,
        cache_read,
        total_tokens,
        ..Usage::default()
    };
    assert_eq!(got, [usage(100, 0, 0, 100), usage(60, 26, 40, 126)]);
}

#[test]
fn an_answer_that_is_no_stream_of_events_reads_too() {
    let call = json!([{"functionCall": {"id": "x", "name": "exec", "args": {"a": "]}"}}}]);
    let pieces = [
        text("a"),
        parts(call.clone()),
        finish("STOP"),
        json!({"usageMetadata": {"promptTokenCount": 1}}),
    ];
    let want = json!([{"type": "text", "text": "a"}, called("x", "exec", json!({"a": "]}"}))]);
    let list = json!(pieces);
    for stream in [format!("{list}"), format!(" \r\n{list:#}\n"), format!("data: {list}\n\n")] {
        check_text(&stream, want.clone(), StopReason::ToolUse);
    }
    let whole = json!({"candidates": [{"finishReason": "STOP", "content":
        {"parts": [{"text": "a"}, call[0]]}}]});
    check_text(&format!("{whole:#}"), want, StopReason::ToolUse);
    let list = list.to_string();
    check_fault(&list[..list.len() / 2], "cut", "cut off", "a");
}

#[test]
fn a_body_that_is_no_answer_is_told_of() {
    let error = json!({"error": {"code": 400, "message": "M", "status": "INVALID_ARGUMENT",
        "details": [{"reason": "API_KEY_INVALID"}]}});
    check_fault(&format!("[{error:#}]"), "refused", "apiKey", "");
    check_fault(&format!("{error}"), "refused", "apiKey", "");
    check_fault("{}", "cut", "cut off", "");
    check_fault("[7]", "unavailable", "not valid JSON", "");
    check_fault("{\"a\":}", "unavailable", "not valid JSON", "");
    check_fault("<html>", "refused", "llm.providers.acme.baseUrl", "");
}

#[test]
fn an_answer_without_end_is_refused() {
    let long = format!("data: {}\n\n", text(&"x".repeat(1024 * 1024)));
    let mut decoder = measured(Google::new("acme").decoder());
    let fed = (0..17).map(|_| decoder.feed(long.as_bytes(), &mut Vec::new()));
    assert_eq!(fed.filter(Result::is_err).count(), 1);
    let calls: Vec<Value> = vec![json!({"functionCall": {"name": "exec"}}); 1_100];
    let (_, ended) = READING.of([stream(&[parts(json!(calls))]).as_bytes()]);
    assert!(ended.is_err_and(|it| it.to_string().contains("tool calls")));
    let many = format!("data: {{\"x\":[{}0]}}\n\n", "0,".repeat(100_000));
    let (got, ended) = READING.of([many.as_bytes()]);
    assert!(got.is_empty() && ended.is_err_and(|it| it.to_string().contains("values")));
}

#[test]
fn half_a_character_costs_no_answer() {
    let pieces = [
        r#"{"candidates":[{"content":{"parts":[{"text":"a\ud83d"}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"\ude00b"}]}}]}"#,
    ];
    let pieces = pieces.map(|it| format!("data: {it}\n\n")).concat();
    let stream = pieces + &stream(&[finish("STOP")]);
    check_text(&stream, said("a\u{fffd}\u{fffd}b"), StopReason::Stop);
}
