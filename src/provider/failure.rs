//! Says what kind of failure a provider's error is, and tells people of it.
//! Pure. The HTTP status decides first, then the code or type of the
//! provider's own error object, and wording only where neither does, and only
//! in that object: never in what a model or a person wrote.

use serde_json::Value;

use super::Fault;

/// Longest wait that is believed, in milliseconds: a day.
const LONGEST_WAIT: f64 = 86_400_000.0;

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
    (Class::Stale, STALE),
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

/// Wording, lower-case, for opaque data of an earlier answer that its provider
/// does not take back.
const STALE: &[&str] = &[
    "encrypted content",
    "items are not persisted",
    "item with id 'rs_",
    "item 'rs_",
    "without its required",
    // Anthropic's, of thoughts that were signed elsewhere, or are missing where a
    // turn began with one.
    "invalid `signature` in `thinking`",
    "invalid signature in thinking",
    "invalid `data` in `redacted_thinking`",
    "blocks in the latest assistant message cannot be modified",
    "thinking blocks cannot be modified",
    "expected `thinking` or `redacted_thinking`",
    "thinking.signature:",
];

/// What an answer with another status than 2xx means. Names of `headers` are
/// lower-case; of `body` the first 8 KiB are enough.
pub(super) fn of_response(
    provider: &str,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> Fault {
    let error = ProviderError::of_body(body);
    // OpenAI says of an item that it does not know what others say of a model.
    let stale = (status == 404 && error.said(STALE)).then_some(Class::Stale);
    let class = stale.or_else(|| class_of_status(status)).or_else(|| error.class());
    let class = class.unwrap_or(Class::Refused);
    let said = format!("the provider `{provider}` answered with HTTP {status}");
    let wait = if class == Class::RateLimited { asked_wait(headers) } else { None };
    fault(class, provider, with_message(said, &error.message), wait)
}

/// What an error object in the middle of an answer means.
pub(super) fn of_error(provider: &str, error: &Value) -> Fault {
    let error = ProviderError::of_value(error);
    let class = error.class().unwrap_or(Class::Unavailable);
    let said = format!("the provider `{provider}` broke its answer off with an error");
    fault(class, provider, with_message(said, &error.message), None)
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
        let codes = fields.filter_map(|it| match it {
            Value::String(it) => Some(it.to_lowercase()),
            Value::Number(it) => Some(it.to_string()),
            _ => None,
        });
        Self { codes: codes.collect(), ..Self::of_text(&message_of(error)) }
    }

    fn of_text(text: &str) -> Self {
        let wording = text.chars().take(8 * 1024).flat_map(char::to_lowercase).collect();
        Self { codes: Vec::new(), message: one_line(text), wording }
    }

    fn class(&self) -> Option<Class> {
        self.coded().or_else(|| self.numbered()).or_else(|| self.worded()).or_else(|| {
            let is_named = self.codes.iter().any(|it| it == "invalid_request_error");
            let at_fault = self.numbers().any(|it| (400..500).contains(&it));
            (is_named || at_fault).then_some(Class::Refused)
        })
    }

    fn coded(&self) -> Option<Class> {
        let known = |codes: &[&str]| self.codes.iter().any(|it| codes.contains(&it.as_str()));
        CODES.iter().find(|(_, codes)| known(codes)).map(|it| it.0)
    }

    fn numbered(&self) -> Option<Class> {
        self.numbers().find_map(class_of_status)
    }

    fn worded(&self) -> Option<Class> {
        WORDINGS.iter().find(|(_, words)| self.said(words)).map(|it| it.0)
    }

    fn said(&self, words: &[&str]) -> bool {
        words.iter().any(|it| self.wording.contains(it))
    }

    /// Codes that are an HTTP status.
    fn numbers(&self) -> impl Iterator<Item = u16> {
        self.codes.iter().filter_map(|it| it.parse().ok())
    }
}

/// What a status says by itself.
fn class_of_status(status: u16) -> Option<Class> {
    match status {
        429 => Some(Class::RateLimited),
        408 | 500..=599 => Some(Class::Unavailable),
        401 | 403 => Some(Class::Key),
        402 => Some(Class::Credit),
        300..=399 | 404 | 405 => Some(Class::Model),
        413 => Some(Class::TooLong),
        _ => None,
    }
}

fn fault(class: Class, provider: &str, said: String, wait: Option<u64>) -> Fault {
    let key = format!("llm.providers.{provider}");
    match class {
        Class::RateLimited => match wait {
            Some(wait) => {
                let seconds = wait.div_ceil(1_000);
                Fault::RateLimited(Some(wait), format!("{said}. It asks to wait {seconds} s."))
            }
            None => Fault::RateLimited(None, format!("{said}. Try again later.")),
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

/// How long the provider asks to wait, in milliseconds.
fn asked_wait(headers: &[(String, String)]) -> Option<u64> {
    let header = |name: &str| {
        let found = headers.iter().find(|(it, _)| it == name);
        found.and_then(|(_, value)| value.trim().parse::<f64>().ok()).filter(|it| it.is_finite())
    };
    let millis = header("retry-after-ms").or_else(|| Some(header("retry-after")? * 1_000.0))?;
    // A cast from a float is bounded by its target.
    (millis >= 0.0).then(|| millis.min(LONGEST_WAIT).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, category: &str, text: &str) {
        let got = of_response("acme", status, &[], body.as_bytes());
        assert_eq!((got.category(), got.to_string().as_str()), (category, text));
    }

    #[test]
    fn the_status_decides_first() {
        let body = r#"{"error":{"message":"No.","code":"context_length_exceeded"}}"#;
        let said = |status: u16| format!("the provider `acme` answered with HTTP {status}: No");
        let later = |status| format!("{}. Try again later.", said(status));
        check(429, body, "rate_limit", &later(429));
        for status in [408, 500, 502, 503, 529] {
            check(status, body, "unavailable", &later(status));
        }
        for status in [401, 403] {
            let text = format!("{}. Check `llm.providers.acme.apiKey`.", said(status));
            check(status, body, "refused", &text);
        }
        let text = format!("{}. Check the model's id and `llm.providers.acme.baseUrl`.", said(404));
        check(404, body, "refused", &text);
    }

    #[track_caller]
    fn check_category(status: u16, body: Value, category: &str) {
        let got = of_response("acme", status, &[], body.to_string().as_bytes());
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
    fn opaque_data_that_is_refused_is_known_by_the_words_for_it() {
        let error = |text: &str| json!({"type": "error", "error": {"message": text, "type": "invalid_request_error"}});
        let stale = |text: &str| {
            let got = of_response("acme", 400, &[], error(text).to_string().as_bytes());
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
            let got = of_response("acme", status, &[], body.to_string().as_bytes());
            assert!(matches!(got, Fault::Stale(_)), "{got:?}");
        }
        check_category(404, error("The model `m` does not exist", Value::Null), "refused");
        check_category(500, error(unknown, Value::Null), "unavailable");
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
    fn check_wait(headers: &[(&str, &str)], want: Option<u64>) {
        let headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let got = of_response("acme", 429, &headers, b"");
        assert!(matches!(got, Fault::RateLimited(it, _) if it == want), "{got:?}");
    }

    #[test]
    fn the_wait_is_what_the_provider_asks_for() {
        check_wait(&[], None);
        check_wait(&[("retry-after", "20")], Some(20_000));
        check_wait(&[("retry-after", " 1.5 ")], Some(1_500));
        check_wait(&[("retry-after-ms", "250"), ("retry-after", "20")], Some(250));
        check_wait(&[("retry-after-ms", "x"), ("retry-after", "20")], Some(20_000));
        check_wait(&[("retry-after", "99999999999999999999")], Some(86_400_000));
        check_wait(&[("retry-after", "-1")], None);
        check_wait(&[("retry-after", "nan")], None);
        check_wait(&[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], None);
    }

    #[track_caller]
    fn check_text(body: &str, part: &str) {
        let got = of_response("acme", 502, &[], body.as_bytes()).to_string();
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
        let long = of_response("acme", 502, &[], "é".repeat(8_000).as_bytes()).to_string();
        assert!(long.chars().count() < 400, "{long}");
    }
}
