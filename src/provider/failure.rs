//! Says what kind of failure a provider's error is, and tells people of it.
//! Pure. The HTTP status decides first, then the code or type of the
//! provider's own error object, and wording only where neither does, and only
//! in that object: never in what a model or a person wrote.

use serde_json::Value;

use super::{Fault, wait};
use crate::clock::Time;

/// The wait after an HTTP 429 that asks for none, in milliseconds.
const WAIT_OF_STATUS: u64 = 300_000;

/// The wait after words of a rate limit that ask for none, in milliseconds.
const WAIT_OF_WORDS: u64 = 60_000;

/// Longest message of a provider that is told on, in characters.
const LONGEST_MESSAGE: usize = 300;

/// What a failure means for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    RateLimited,
    Unavailable,
    Key,
    Credit,
    Model,
    TooLong,
    /// It does not take its own opaque data back.
    Stale,
    Refused,
}

/// Codes and types that providers are known to give, lower-case.
const CODES: &[(Class, &[&str])] = &[
    (Class::Stale, &["invalid_encrypted_content"]),
    (
        Class::TooLong,
        &[
            "context_length_exceeded",
            "context_window_exceeded",
            "model_context_window_exceeded",
            "exceed_context_size_error",
            "context_exceeded",
            "request_too_large",
            "tokens_limit_reached",
        ],
    ),
    (
        Class::RateLimited,
        &[
            "rate_limit_exceeded",
            "rate_limit_error",
            "rate_limited",
            "rate_limit",
            "rate_limit_reached",
            "too_many_requests",
            "resource_exhausted",
        ],
    ),
    (
        Class::Credit,
        &[
            "insufficient_quota",
            "insufficient_balance",
            "insufficient_credits",
            "billing_not_active",
            "billing_error",
            "billing_hard_limit_reached",
            "exceeded_current_quota_error",
            "payment_required",
        ],
    ),
    (
        Class::Unavailable,
        &[
            "overloaded_error",
            "overloaded",
            "engine_overloaded",
            "engine_overloaded_error",
            "server_error",
            "internal_error",
            "internal_server_error",
            "internalservererror",
            "internal",
            "api_error",
            "service_unavailable",
            "service_unavailable_error",
            "unavailable",
            "unavailable_error",
            "timeout",
            "timeout_error",
            "deadline_exceeded",
        ],
    ),
    (
        Class::Key,
        &[
            "invalid_api_key",
            "api_key_invalid",
            "invalid_authentication",
            "invalid_authentication_error",
            "authentication_error",
            "permission_error",
            "permission_denied",
            "unauthenticated",
            "unauthorized",
        ],
    ),
    (Class::Model, &["model_not_found", "model_not_available", "not_found_error", "not_found"]),
    (
        Class::Refused,
        &[
            "content_filter",
            "content_policy_violation",
            "unsupported_parameter",
            "invalid_prompt",
            "invalid_image",
            "image_content_policy_violation",
        ],
    ),
];

/// Wording, lower-case, for where nothing else decides.
const WORDINGS: &[(Class, &[&str])] = &[
    (
        Class::Stale,
        &[
            // OpenAI's, of reasoning items that it cannot decrypt, does not know,
            // or misses the other half of.
            "encrypted content",
            "items are not persisted",
            "item with id 'rs_",
            "without its required",
            // Anthropic's, of thoughts that were signed elsewhere, or are missing
            // where a turn began with one.
            "invalid `signature` in `thinking`",
            "invalid signature in thinking",
            "invalid `data` in `redacted_thinking`",
            "blocks in the latest assistant message cannot be modified",
            "thinking blocks cannot be modified",
            "expected `thinking` or `redacted_thinking`",
            "thinking.signature:",
            // Google's, of one that is corrupt, missing, or no base64.
            "thought signature",
            "thought_signature",
            "thoughtsignature",
        ],
    ),
    (
        Class::TooLong,
        &[
            "context length",
            "context_length",
            "context window",
            "context size",
            "maximum context",
            "prompt is too long",
            "input is too long",
            "input token count",
            "exceed_context_size",
            "exceed context limit",
        ],
    ),
    (Class::RateLimited, &["rate_limit", "rate limit", "too many requests"]),
    (Class::Unavailable, &["overloaded", "capacity", "temporarily unavailable"]),
];

/// What an answer with another status than 2xx means. Names of `headers` are
/// lower-case; of `body` the first 8 KiB are enough.
pub(super) fn of_response(
    provider: &str,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
    now: Time,
) -> Fault {
    let error = ProviderError::of_body(body);
    let class = deciding(status).or_else(|| error.class()).or_else(|| hinting(status));
    let said = format!("the provider `{provider}` answered with HTTP {status}");
    let default = if status == 429 { WAIT_OF_STATUS } else { WAIT_OF_WORDS };
    let wait = Wait { asked: wait::asked(headers, now).or(error.wait), default };
    let said = with_message(said, &error.message);
    fault(class.unwrap_or(Class::Refused), provider, said, wait)
}

/// What an error object in the middle of an answer means.
pub(super) fn of_error(provider: &str, error: &Value) -> Fault {
    let error = ProviderError::of_value(error);
    let is_named = || error.codes.iter().any(|it| it == "invalid_request_error");
    let at_fault = || is_named() || error.numbers().any(|it| (400..500).contains(&it));
    let class = error.class().unwrap_or_else(|| match at_fault() {
        true => Class::Refused,
        false => Class::Unavailable,
    });
    let said = format!("the provider `{provider}` broke its answer off with an error");
    let wait = Wait { asked: error.wait, default: WAIT_OF_WORDS };
    fault(class, provider, with_message(said, &error.message), wait)
}

/// How long to wait, in milliseconds.
struct Wait {
    asked: Option<u64>,
    default: u64,
}

/// A text of others as one short line without control characters.
pub(super) fn one_line(text: &str) -> String {
    let visible = text.chars().map(|it| if is_invisible(it) { ' ' } else { it });
    let visible: String = visible.take(8 * 1024).collect();
    let words: Vec<&str> = visible.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A provider's error, as far as it could be read.
#[derive(Debug, Default)]
struct ProviderError {
    /// Its codes and types, lower-case.
    codes: Vec<String>,
    /// Its own words, as one line.
    message: String,
    /// The same at full length and lower-case, to look for wording in.
    wording: String,
    /// How long it asks to wait, in milliseconds.
    wait: Option<u64>,
}

impl ProviderError {
    fn of_body(body: &[u8]) -> Self {
        if let Ok(value) = serde_json::from_slice(body) {
            return Self::of_value(&value);
        }
        let text = String::from_utf8_lossy(body);
        let is_page = text.trim_start().starts_with('<');
        if is_page { Self::of_text(&page_title(&text)) } else { Self::of_text(&text) }
    }

    /// Reads `{"error": …}`, an error object by itself, a list that holds one,
    /// or a text.
    fn of_value(value: &Value) -> Self {
        let value = value.get(0).unwrap_or(value);
        let inner = value.get("error").filter(|it| it.is_object() || it.is_string());
        let error = inner.unwrap_or(value);
        let fields = [error, value].into_iter().flat_map(|it| {
            ["code", "type", "status"].into_iter().filter_map(|field| it.get(field))
        });
        // Google's codes are coarse; what is wrong stands in its details.
        let details = error.get("details").and_then(Value::as_array);
        let details = details.map(Vec::as_slice).unwrap_or_default();
        let fields = fields.chain(details.iter().filter_map(|it| it.get("reason")));
        let codes = fields.filter_map(|it| match it {
            Value::String(it) => Some(it.to_lowercase()),
            Value::Number(it) => Some(it.to_string()),
            _ => None,
        });
        let delay = details.iter().find_map(|it| it.get("retryDelay")).and_then(Value::as_str);
        let wait = delay.and_then(wait::written);
        Self { codes: codes.collect(), wait, ..Self::of_text(&message_of(error)) }
    }

    fn of_text(text: &str) -> Self {
        let wording = text.chars().take(8 * 1024).flat_map(char::to_lowercase).collect();
        Self { codes: Vec::new(), message: one_line(text), wording, wait: None }
    }

    fn class(&self) -> Option<Class> {
        self.coded().or_else(|| self.numbered()).or_else(|| self.worded())
    }

    fn coded(&self) -> Option<Class> {
        let known = |codes: &[&str]| self.codes.iter().any(|it| codes.contains(&it.as_str()));
        CODES.iter().find(|(_, codes)| known(codes)).map(|it| it.0)
    }

    fn numbered(&self) -> Option<Class> {
        self.numbers().find_map(|it| deciding(it).or_else(|| hinting(it)))
    }

    fn worded(&self) -> Option<Class> {
        let said = |words: &[&str]| words.iter().any(|it| self.wording.contains(it));
        WORDINGS.iter().find(|(_, words)| said(words)).map(|it| it.0)
    }

    /// Codes that are an HTTP status.
    fn numbers(&self) -> impl Iterator<Item = u16> {
        self.codes.iter().filter_map(|it| it.parse().ok())
    }
}

/// What a status says before anything else is looked at.
fn deciding(status: u16) -> Option<Class> {
    match status {
        429 => Some(Class::RateLimited),
        500..=599 => Some(Class::Unavailable),
        401 | 403 => Some(Class::Key),
        _ => None,
    }
}

/// What a status says where nothing else does.
fn hinting(status: u16) -> Option<Class> {
    match status {
        408 => Some(Class::Unavailable),
        402 => Some(Class::Credit),
        300..=399 | 404 | 405 => Some(Class::Model),
        413 => Some(Class::TooLong),
        _ => None,
    }
}

fn fault(class: Class, provider: &str, said: String, wait: Wait) -> Fault {
    let key = format!("llm.providers.{provider}");
    match class {
        Class::RateLimited => match wait.asked {
            Some(asked) => {
                let seconds = asked.div_ceil(1_000);
                Fault::RateLimited(Some(asked), format!("{said}. It asks to wait {seconds} s."))
            }
            None => Fault::RateLimited(Some(wait.default), format!("{said}. Try again later.")),
        },
        Class::Unavailable => Fault::Unavailable(format!("{said}. Try again later.")),
        Class::Key => Fault::Refused(format!("{said}. Check `{key}.apiKey`.")),
        Class::Credit => Fault::Refused(format!("{said}. Check the account's credit.")),
        Class::Model => {
            Fault::Refused(format!("{said}. Check the model's id and `{key}.baseUrl`."))
        }
        Class::TooLong => Fault::TooLong(format!(
            "{said}. The conversation is longer than the model reads: start a new session, or \
             use a model that reads more."
        )),
        Class::Stale => Fault::Stale(format!(
            "{said}. It does not take back what it gave with an earlier answer: start a new \
             session, or use another model."
        )),
        Class::Refused => Fault::Refused(format!(
            "{said}. Check whether the model takes such a request (tools, images, `maxTokens`), \
             and what `{key}` says of it."
        )),
    }
}

fn with_message(said: String, message: &str) -> String {
    let message = message.trim_end_matches('.');
    if message.is_empty() { said } else { format!("{said}: {message}") }
}

/// The words of an error object. A router's `metadata.raw` is what the
/// provider behind it said.
fn message_of(error: &Value) -> String {
    let fields = ["message", "detail", "error_description", "msg", "title"];
    let told = fields.into_iter().find_map(|it| error.get(it).filter(|it| !it.is_null()));
    let told = told.map(text_of).unwrap_or_else(|| match error {
        Value::Null => String::new(),
        it => text_of(it),
    });
    match error.pointer("/metadata/raw").map(text_of) {
        Some(raw) if !raw.is_empty() => format!("{told}: {raw}"),
        _ => told,
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(it) => it.clone(),
        it => it.to_string(),
    }
}

/// What a page of a proxy says, without its markup.
fn page_title(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|start| {
        let start = start + "<title>".len();
        let end = start + lower.get(start..)?.find('<')?;
        page.get(start..end)
    });
    match title {
        Some(title) => format!("an HTML page, \"{}\"", title.trim()),
        None => "an HTML page".into(),
    }
}

/// Controls, and marks that turn or hide what stands beside them.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
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
        check(429, body, "rate_limit", &later(429));
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
        check_category(
            404,
            json!({"error": {"message": "temporarily unavailable"}}),
            "unavailable",
        );
    }

    #[track_caller]
    fn check_category(status: u16, body: Value, category: &str) {
        let got = of_response("acme", status, &[], body.to_string().as_bytes(), NOW);
        assert_eq!(got.category(), category, "{got}");
    }

    #[test]
    fn then_the_code_or_type() {
        let error =
            |field: &str, code: &str| json!({"error": {"message": "rate limit", field: code}});
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
        check_category(
            400,
            json!({"object": "error", "message": long, "code": 400}),
            "context_length",
        );
        check_category(400, error("Rate limit reached"), "rate_limit");
        check_category(400, error("at capacity"), "unavailable");
        check_category(400, error("bad"), "refused");
        let raw =
            json!({"error": {"message": "Provider returned error", "metadata": {"raw": long}}});
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
        check_error(
            json!({"code": 400, "message": "maximum context length"}),
            "context_length",
            "",
        );
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
            let got =
                [of_response("acme", 429, &[], body.as_bytes(), NOW), of_error("acme", &error)];
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
}
