//! What a turn tells while it runs: the events of `…/prompt/stream`, one JSON
//! object each.

use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Kind};
use crate::message::Usage;

/// One event. Of each turn the last is [`TurnEvent::Done`],
/// [`TurnEvent::Error`] or [`TurnEvent::Blocked`], and nothing follows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum TurnEvent {
    /// A model is asked: once a model call, so several times in a turn that
    /// runs tools.
    TurnStart {
        /// The session that holds the turn.
        session_key: String,
    },
    /// More text.
    TextDelta {
        /// It.
        delta: String,
    },
    /// More thinking.
    ThinkingDelta {
        /// It.
        delta: String,
    },
    /// A tool starts.
    ToolStart {
        /// The call.
        id: String,
        /// The tool.
        tool: String,
        /// Its arguments.
        params: Value,
    },
    /// What a command prints, as it comes; what another tool answered.
    ToolOutput {
        /// The call.
        id: String,
        /// A piece of it.
        delta: String,
    },
    /// A tool has ended and its result is stored.
    ToolEnd {
        /// The call.
        id: String,
        /// Whether it failed.
        is_error: bool,
        /// Exit code where there was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Bytes that came out of it in all.
        bytes: u64,
        /// Those of them that were not told.
        #[serde(skip_serializing_if = "is_none")]
        untold_bytes: u64,
    },
    /// The conversation is being made shorter.
    CompactionStart {
        /// Why.
        reason: CompactionReason,
        /// Tokens that it has, about.
        tokens_before: u64,
    },
    /// It has been, or has stayed as it was.
    CompactionEnd {
        /// Whether a summary stands for its older part from now on.
        compacted: bool,
        /// Tokens that it had, about.
        tokens_before: u64,
        /// Tokens that it has now, about.
        tokens_after: u64,
        /// Why there is no summary.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Another model than before is asked.
    ModelFallback {
        /// Its provider.
        provider: String,
        /// Its id there.
        model_id: String,
        /// Why it is asked and not the one before it, as a sentence.
        reason: String,
    },
    /// A model is asked again, or the next one after a part of an answer was
    /// told: what comes is told from its beginning.
    Retry {
        /// Which try it is for this answer, from 1.
        attempt: u32,
        /// Milliseconds until then.
        in_ms: u64,
        /// Why, as a sentence.
        reason: String,
        /// Who is asked, as `provider/model`, where it is another than the one
        /// that failed just now.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// What a model call took.
    Usage {
        /// Tokens read anew.
        input: u64,
        /// Tokens written.
        output: u64,
        /// Tokens read from the provider's cache.
        cache_read: u64,
        /// Tokens written to the provider's cache.
        cache_write: u64,
        /// US dollars; `null` where the price is not known.
        cost_usd: Option<f64>,
    },
    /// The turn is over and stored.
    Done {
        /// The answer.
        response: String,
        /// Why there is none, if it is empty, or that it is not whole.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The turn failed; what was done stays in the session.
    Error {
        /// A word for programs: `aborted`, that of a limit (`max_turns`,
        /// `max_seconds`, `max_tokens`, `max_cost`), that of a provider's
        /// fault, or of a failure of ours ([`category_of`]).
        category: &'static str,
        /// A sentence for people.
        message: String,
        /// The text of the turn so far, if there is any: its last answer, and
        /// about a mebibyte before that.
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<String>,
    },
    /// The prompt was refused before a model saw it.
    Blocked {
        /// Why.
        reason: String,
    },
}

/// Why a conversation is made shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionReason {
    /// It has come to its threshold.
    Threshold,
    /// A provider said that it is too long.
    TooLong,
    /// A person asked for it.
    Asked,
}

impl TurnEvent {
    /// The end of a turn that failed on our side before a model was asked.
    pub fn refused(error: &Error) -> Self {
        let category = category_of(error.kind());
        Self::Error { category, message: error.to_string(), partial: None }
    }

    /// What a model call took. A price that nobody knows is not told as nothing,
    /// nor is what a provider never counted.
    pub(super) fn usage(usage: &Usage, is_priced: bool) -> Self {
        let cost = usage.cost.total;
        // Where nobody counted, nobody knows what it costs.
        let is_priced = is_priced && *usage != Usage::default();
        let is_known = is_priced && *usage != Usage::default();
        Self::Usage {
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            cost_usd: (is_known || cost > 0.0).then(|| rounded(cost)),
        }
    }

    /// Whether nothing follows it.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Error { .. } | Self::Blocked { .. })
    }

    /// About how much memory it holds, in bytes.
    pub fn weight(&self) -> usize {
        let texts = match self {
            Self::TextDelta { delta } | Self::ThinkingDelta { delta } => delta.len(),
            Self::ToolOutput { id, delta } => id.len() + delta.len(),
            Self::ToolStart { id, tool, params } => id.len() + tool.len() + weight_of(params),
            Self::Done { response, .. } => response.len(),
            Self::Error { message, partial, .. } => {
                message.len() + partial.as_ref().map_or(0, String::len)
            }
            Self::Blocked { reason } | Self::Retry { reason, .. } => reason.len(),
            Self::ModelFallback { provider, model_id, reason } => {
                provider.len() + model_id.len() + reason.len()
            }
            Self::TurnStart { session_key } => session_key.len(),
            Self::ToolEnd { id, .. } => id.len(),
            Self::CompactionEnd { reason, .. } => reason.as_ref().map_or(0, String::len),
            Self::CompactionStart { .. } | Self::Usage { .. } => 0,
        };
        size_of::<Self>() + texts
    }
}

/// The word for a failure that is ours and no model's.
pub fn category_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Usage => "usage",
        Kind::Denied => "denied",
        Kind::Missing => "missing",
        Kind::Conflict => "conflict",
        Kind::TooLarge => "too_large",
        Kind::Busy => "busy",
        Kind::Timeout => "timeout",
        Kind::Cancelled => "aborted",
        Kind::Config | Kind::Sandbox | Kind::Internal => "internal",
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}

/// To a billionth: what binary fractions add behind that is no price.
fn rounded(cost: f64) -> f64 {
    let billionths = (cost * 1e9).round();
    if billionths.is_finite() { billionths / 1e9 } else { cost }
}

fn weight_of(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight_of).sum(),
            Value::Object(fields) => fields.iter().map(|(key, it)| key.len() + weight_of(it)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(event: TurnEvent, want: Value) {
        assert_eq!(serde_json::to_value(event).ok(), Some(want));
    }

    #[test]
    fn an_event_weighs_what_it_holds() {
        let params = json!({"command": "x".repeat(1000), "list": ["y".repeat(1000)]});
        let start = TurnEvent::ToolStart { id: "1".into(), tool: "exec".into(), params };
        assert!((2000..4000).contains(&start.weight()), "{}", start.weight());
        assert!(TurnEvent::TurnStart { session_key: String::new() }.weight() > 0);
    }

    #[test]
    fn a_cost_that_nobody_can_know_is_not_nothing() {
        #[track_caller]
        fn check(usage: &Usage, is_priced: bool, want: Option<f64>) {
            let told = TurnEvent::usage(usage, is_priced);
            assert!(
                matches!(told, TurnEvent::Usage { cost_usd, .. } if cost_usd == want),
                "{told:?}"
            );
        }
        let counted = Usage { input: 7, ..Usage::default() };
        check(&counted, true, Some(0.0));
        check(&counted, false, None);
        check(&Usage::default(), true, None);
    }

    #[test]
    fn events_have_the_names_that_clients_know() {
        check(
            TurnEvent::TurnStart { session_key: "k".into() },
            json!({"type": "turn_start", "sessionKey": "k"}),
        );
        check(
            TurnEvent::ToolEnd {
                id: "c".into(),
                is_error: true,
                exit_code: Some(3),
                bytes: 9,
                untold_bytes: 0,
            },
            json!({"type": "tool_end", "id": "c", "isError": true, "exitCode": 3, "bytes": 9}),
        );
        check(
            TurnEvent::Usage { input: 1, output: 2, cache_read: 3, cache_write: 4, cost_usd: None },
            json!({"type": "usage", "input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4,
                "costUsd": null}),
        );
        let reason = CompactionReason::TooLong;
        check(
            TurnEvent::CompactionStart { reason, tokens_before: 9 },
            json!({"type": "compaction_start", "reason": "too_long", "tokensBefore": 9}),
        );
        check(
            TurnEvent::CompactionEnd {
                compacted: true,
                tokens_before: 9,
                tokens_after: 2,
                reason: None,
            },
            json!({"type": "compaction_end", "compacted": true, "tokensBefore": 9,
                "tokensAfter": 2}),
        );
        check(
            TurnEvent::ModelFallback {
                provider: "p".into(),
                model_id: "m".into(),
                reason: "r".into(),
            },
            json!({"type": "model_fallback", "provider": "p", "modelId": "m", "reason": "r"}),
        );
        check(
            TurnEvent::Retry { attempt: 2, in_ms: 1_500, reason: "r".into(), model: None },
            json!({"type": "retry", "attempt": 2, "inMs": 1_500, "reason": "r"}),
        );
        let model = Some("p/m".into());
        check(
            TurnEvent::Retry { attempt: 1, in_ms: 0, reason: "r".into(), model },
            json!({"type": "retry", "attempt": 1, "inMs": 0, "reason": "r", "model": "p/m"}),
        );
        check(
            TurnEvent::Done { response: "r".into(), note: None },
            json!({"type": "done", "response": "r"}),
        );
    }
}
