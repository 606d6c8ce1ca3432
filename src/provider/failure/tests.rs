//! Errors as providers give them, and what each means.

use serde_json::json;

use super::*;

const NOW: Time = Time::from_unix_millis(1_796_012_194_668);

#[track_caller]
fn check(status: u16, body: &str, category: &str, text: &str) {
    let got = of_response("acme", status, &[], body.as_bytes(), NOW);
    assert_eq!((got.category(), got.to_string().as_str()), (category, text));
}

#[test]
fn the_status_decides_first() {
    let body = r#"{"error":{"message":"No.","code":"context_length_exceeded"}}"#;
    let said = |status: u16| format!("the provider `acme` answered with HTTP {status}: No");
    let later = |status| format!("{}. Try again later.", said(status));
    let closed = format!("{}. It is not asked again for 300 s.", said(429));
    check(429, body, "rate_limit", &closed);
    for status in [500, 502, 503, 529] {
        check(status, body, "unavailable", &later(status));
    }
    for status in [401, 403] {
        let text = format!("{}. Check `llm.providers.acme.apiKey`.", said(status));
        check(status, body, "refused", &text);
    }
}

#[test]
fn a_status_that_leaves_it_open_decides_last() {
    let said = |status: u16| format!("the provider `acme` answered with HTTP {status}");
    let text = format!("{}. Check the model's id and `llm.providers.acme.baseUrl`.", said(404));
    check(404, "", "refused", &text);
    check(408, "", "unavailable", &format!("{}. Try again later.", said(408)));
    check(402, "", "refused", &format!("{}. Check the account's credit.", said(402)));
    let code = |it: &str| json!({"error": {"message": "No.", "code": it}});
    for status in [400, 402, 404, 408, 413, 418] {
        check_category(status, code("context_length_exceeded"), "context_length");
        check_category(status, code("rate_limit_exceeded"), "rate_limit");
        check_category(status, code("overloaded_error"), "unavailable");
    }
    check_category(404, json!({"error": {"message": "temporarily unavailable"}}), "unavailable");
}

#[track_caller]
fn check_category(status: u16, body: Value, category: &str) {
    let got = of_response("acme", status, &[], body.to_string().as_bytes(), NOW);
    assert_eq!(got.category(), category, "{got}");
}

#[test]
fn what_some_call_every_error_says_nothing_of_a_request_that_is_wrong() {
    let error = |text: &str| json!({"error": {"message": text, "type": "api_error"}});
    check_category(404, error("model \"qwen3\" not found, try pulling it first"), "refused");
    check_category(400, error("it does not support tools"), "refused");
    check_category(500, error("it broke"), "unavailable");
}

#[test]
fn who_has_no_credit_is_told_so() {
    #[track_caller]
    fn check_credit(status: u16, error: Value, category: &str) {
        let body = json!({ "error": error }).to_string();
        let got = of_response("acme", status, &[], body.as_bytes(), NOW);
        assert_eq!(got.category(), category, "{got}");
        assert!(got.to_string().contains("Check the account's credit."), "{got}");
    }
    let low = json!({"type": "invalid_request_error", "message": "Your credit balance is too low"});
    check_credit(400, low, "refused");
    check_credit(429, json!({"code": "insufficient_quota"}), "rate_limit");
}

#[test]
fn then_the_code_or_type() {
    let error = |field: &str, code: &str| json!({"error": {"message": "rate limit", field: code}});
    check_category(400, error("code", "context_length_exceeded"), "context_length");
    check_category(400, error("type", "exceed_context_size_error"), "context_length");
    check_category(400, error("type", "overloaded_error"), "unavailable");
    check_category(400, error("code", "insufficient_quota"), "refused");
    check_category(400, error("code", "model_not_found"), "refused");
    check_category(400, error("status", "RESOURCE_EXHAUSTED"), "rate_limit");
    check_category(400, json!([error("code", "rate_limit_exceeded")]), "rate_limit");
    check_category(413, json!({}), "context_length");
}

#[test]
fn then_the_wording_of_the_error_object() {
    let error = |text: &str| json!({"error": {"message": text, "type": "invalid_request_error", "code": 400}});
    let long = "This model's maximum context length is 8192 tokens.";
    check_category(400, error(long), "context_length");
    check_category(400, json!({"object": "error", "message": long, "code": 400}), "context_length");
    check_category(400, error("Rate limit reached"), "rate_limit");
    check_category(400, error("at capacity"), "unavailable");
    check_category(400, error("bad"), "refused");
    let raw = json!({"error": {"message": "Provider returned error", "metadata": {"raw": long}}});
    check_category(400, raw, "context_length");
    check_category(422, json!({"detail": [{"type": "extra_forbidden"}]}), "refused");
}

#[test]
fn opaque_data_that_is_not_taken_back_is_told_apart() {
    let error = |text: &str, code: Value| {
        json!({"error": {"message": text,
        "type": "invalid_request_error", "param": null, "code": code}})
    };
    let item = "Item 'rs_1' of type 'reasoning' was provided without its required following \
        item.";
    let call = "Item 'fc_1' of type 'function_call' was provided without its required \
        'reasoning' item: 'rs_1'.";
    let unknown = "Item with id 'rs_1' not found. Items are not persisted when `store` is set \
        to false.";
    for (status, body) in [
        (400, error("no", json!("invalid_encrypted_content"))),
        (400, error("The encrypted content gAAA could not be verified.", Value::Null)),
        (400, error(item, Value::Null)),
        (400, error(call, Value::Null)),
        (400, error(unknown, Value::Null)),
        (404, error(unknown, Value::Null)),
    ] {
        let got = of_response("acme", status, &[], body.to_string().as_bytes(), NOW);
        assert!(matches!(got, Fault::Stale(_)), "{got:?}");
    }
    check_category(404, error("The model `m` does not exist", Value::Null), "refused");
    check_category(500, error(unknown, Value::Null), "unavailable");
}

#[test]
fn opaque_data_that_is_refused_is_known_by_the_words_for_it() {
    let error = |text: &str| json!({"type": "error", "error": {"message": text, "type": "invalid_request_error"}});
    let stale = |text: &str| {
        let got = of_response("acme", 400, &[], error(text).to_string().as_bytes(), NOW);
        matches!(got, Fault::Stale(_))
    };
    assert!(stale("messages.1.content.0: Invalid `signature` in `thinking` block"));
    assert!(stale(
        "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."
    ));
    assert!(stale("messages.1.content.0: Invalid `data` in `redacted_thinking` block"));
    assert!(stale("messages.1.content.0.thinking.signature: Field required"));
    assert!(!stale("messages.1.content.0.text: Field required"));
    assert!(matches!(
        of_error("acme", &error("Invalid signature in thinking block")),
        Fault::Stale(_)
    ));
    check_error(error("messages: roles must alternate"), "refused", "alternate");
    check_error(error("prompt is too long: 9 tokens > 8 maximum"), "context_length", "");
    let limit = "input length and `max_tokens` exceed context limit: 9 + 9 > 10";
    check_category(400, error(limit), "context_length");
}

#[track_caller]
fn check_error(error: Value, category: &str, part: &str) {
    let got = of_error("acme", &error);
    assert!(got.category() == category && got.to_string().contains(part), "{got:?}");
}

#[test]
fn an_error_in_the_answer_goes_by_its_code() {
    check_error(json!({"code": 502, "message": "gone"}), "unavailable", "error: gone. Try");
    check_error(json!({"code": "429"}), "rate_limit", "");
    check_error(json!({"code": 400, "message": "maximum context length"}), "context_length", "");
    check_error(json!({"code": 400, "message": "no"}), "refused", "");
    check_error(json!("boom"), "unavailable", "error: boom. Try");
    check_error(json!({}), "unavailable", "acme");
}

#[track_caller]
fn check_wait(status: u16, headers: &[(&str, &str)], want: u64) {
    let headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let body = br#"{"error":"rate limit"}"#;
    let got = of_response("acme", status, &headers, body, NOW);
    assert!(matches!(got, Fault::RateLimited(Some(it), _) if it == want), "{got:?}");
}

#[test]
fn the_wait_is_what_the_provider_asks_for_or_what_its_kind_has() {
    check_wait(429, &[], 300_000);
    check_wait(429, &[("retry-after", "soon")], 300_000);
    check_wait(429, &[("retry-after", "20")], 20_000);
    check_wait(400, &[], 60_000);
    check_wait(400, &[("retry-after", "20")], 20_000);
    let in_answer = of_error("acme", &json!({"code": 429, "message": "slowly"}));
    assert!(matches!(in_answer, Fault::RateLimited(Some(60_000), _)), "{in_answer:?}");
}

fn details(details: Value) -> Value {
    json!({"error": {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT",
        "details": details}})
}

#[test]
fn what_is_wrong_may_stand_in_the_details() {
    let reason = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID"}, {"reason": null}, 7]);
    check(
        400,
        &details(reason).to_string(),
        "refused",
        "the provider `acme` answered with HTTP 400: No. Check `llm.providers.acme.apiKey`.",
    );
    for odd in [json!(null), json!("x"), json!([])] {
        check_category(400, details(odd), "refused");
    }
}

#[test]
fn a_wait_may_stand_in_the_details() {
    for (written, want) in [
        (json!("17s"), [17_000; 2]),
        (json!("0.25s"), [250; 2]),
        (json!("99999999999999s"), [86_400_000; 2]),
        (json!("-1s"), [300_000, 60_000]),
        (json!("soon"), [300_000, 60_000]),
        (json!(17), [300_000, 60_000]),
    ] {
        let mut error = details(json!([{"@type": "x"}, {"retryDelay": written}]));
        error["error"]["status"] = json!("RESOURCE_EXHAUSTED");
        error["error"]["code"] = json!(429);
        let body = error.to_string();
        let got = [of_response("acme", 429, &[], body.as_bytes(), NOW), of_error("acme", &error)];
        let got = got.map(|it| match it {
            Fault::RateLimited(wait, _) => wait,
            _ => None,
        });
        assert_eq!(got, want.map(Some), "{written}");
    }
}

#[test]
fn a_signature_of_a_thought_that_is_not_taken_back_is_stale() {
    for text in [
        "Corrupted thought signature.",
        "Unable to submit request because Thought signature is not valid.",
        "Function call is missing a thought_signature in functionCall parts.",
        "Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES)",
    ] {
        let body = json!({"error": {"code": 400, "message": text,
            "status": "INVALID_ARGUMENT"}});
        let got = of_response("acme", 400, &[], body.to_string().as_bytes(), NOW);
        assert!(matches!(&got, Fault::Stale(it) if it.contains("`acme`")), "{got:?}");
        let got = of_response("acme", 500, &[], body.to_string().as_bytes(), NOW);
        assert!(matches!(got, Fault::Unavailable(_)), "{got:?}");
    }
}

#[track_caller]
fn check_text(body: &str, part: &str) {
    let got = of_response("acme", 502, &[], body.as_bytes(), NOW).to_string();
    assert!(got.contains(part), "{got}");
}

#[test]
fn whatever_the_body_is_the_text_is_one_short_line() {
    check_text(
        "<html><head><title>502 Bad Gateway</title>",
        "502: an HTML page, \"502 Bad Gateway\". ",
    );
    check_text("<!doctype html><TITLE>é", "502: an HTML page. ");
    check_text("upstream\r\n\u{1b}[31mdied\u{202e}", "502: upstream [31mdied. ");
    check_text("", "502. Try");
    check_text("null", "502. Try");
    check_text("{\"error\":{\"message\":\"half", "502: {\"error\":{\"message\":\"half. ");
    check_text(r#"{"error":"text"}"#, "502: text. ");
    check_text(r#"{"message":{"detail":[1]}}"#, "502: {\"detail\":[1]}. ");
    let long = of_response("acme", 502, &[], "é".repeat(8_000).as_bytes(), NOW).to_string();
    assert!(long.chars().count() < 400, "{long}");
}
