//! The words by which a failure is known: codes and types first, then wording.
//! Pure; nothing else is decided here, so that a new word is one line.

/// What a failure means for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
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

/// What is meant by codes and types, lower-case; none if no provider is known to
/// give one of them.
pub(super) fn of_codes(codes: &[String]) -> Option<Class> {
    let known = |of: &[&str]| codes.iter().any(|it| of.contains(&it.as_str()));
    CODES.iter().find(|(_, of)| known(of)).map(|it| it.0)
}

/// What is meant by a text, lower-case, if there is a word in it that is known.
pub(super) fn of_wording(text: &str) -> Option<Class> {
    let said = |words: &[&str]| words.iter().any(|it| text.contains(it));
    WORDINGS.iter().find(|(_, words)| said(words)).map(|it| it.0)
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
    (Class::Credit, &["credit balance", "insufficient credit", "insufficient balance"]),
    (Class::RateLimited, &["rate_limit", "rate limit", "too many requests"]),
    (Class::Unavailable, &["overloaded", "capacity", "temporarily unavailable"]),
];
