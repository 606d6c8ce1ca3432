//! Failures as answers: the one table from what went wrong to a status. Pure.
//! What is ours is never told as a model's failure, and the other way round.

use serde_json::json;

use super::answer::Answer;
use super::engine::Engine;
use crate::error::{Error, Kind};
use crate::turn::{TurnEvent, category_of};

/// A failure of the gateway as an answer, with no secret in it.
pub(super) fn refusal(engine: &impl Engine, error: &Error) -> Answer {
    let status = match error.kind() {
        // Only a gateway that stops calls off what has no session.
        Kind::Cancelled => 503,
        kind => status_of(category_of(kind)),
    };
    Answer::error(status, engine.mask(&error.to_string()))
}

/// The answer to a prompt whose turn ended like that; `None` before the end.
pub(super) fn outcome(event: &TurnEvent) -> Option<Answer> {
    match event {
        TurnEvent::Done { response, .. } | TurnEvent::Blocked { reason: response } => {
            Some(Answer::json(&json!({ "response": response })))
        }
        TurnEvent::Error { category, message, partial } => {
            let mut document = json!({ "error": message, "category": category });
            if let Some(partial) = partial {
                document["partial"] = partial.as_str().into();
            }
            Some(Answer { status: status_of(category), ..Answer::json(&document) })
        }
        _ => None,
    }
}

/// The status for an error's category.
fn status_of(category: &str) -> u16 {
    match category {
        "usage" => 400,
        "denied" => 403,
        "missing" => 404,
        // Called off by another request: trying again by itself would undo it.
        "conflict" | "aborted" => 409,
        "too_large" => 413,
        "internal" => 500,
        "busy" => 503,
        "timeout" | "inactive" => 504,
        // A provider's fault, or a model that came to no end.
        _ => 502,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Fault;

    #[track_caller]
    fn check(category: &'static str, want: u16) {
        let event = TurnEvent::Error { category, message: "m".into(), partial: None };
        assert_eq!(outcome(&event).map(|it| it.status), Some(want), "{category}");
    }

    #[test]
    fn only_a_models_fault_is_a_bad_gateway() {
        let text = String::new;
        for (fault, want) in [
            (Fault::RateLimited(None, text()), 502),
            (Fault::Unavailable(text()), 502),
            (Fault::Cut(text()), 502),
            (Fault::Refused(text()), 502),
            (Fault::TooLong(text()), 502),
            (Fault::Cancelled, 409),
            (Fault::Inactive(text()), 504),
            (Fault::Ours(text()), 500),
        ] {
            check(fault.category(), want);
        }
        check("max_turns", 502);
    }

    #[test]
    fn a_failure_of_ours_keeps_its_status() {
        for (kind, want) in [
            (Kind::Usage, 400),
            (Kind::Denied, 403),
            (Kind::Missing, 404),
            (Kind::Conflict, 409),
            (Kind::TooLarge, 413),
            (Kind::Busy, 503),
            (Kind::Timeout, 504),
            (Kind::Sandbox, 500),
            (Kind::Internal, 500),
            (Kind::Config, 500),
        ] {
            check(category_of(kind), want);
        }
    }

    #[test]
    fn what_was_said_before_a_failure_is_told() {
        let partial = Some("half".to_owned());
        let event = TurnEvent::Error { category: "cut", message: "m".into(), partial };
        let body = outcome(&event).map(|it| it.body);
        let want = r#"{"error":"m","category":"cut","partial":"half"}"#;
        let read = |it: &str| serde_json::from_str::<serde_json::Value>(it).ok();
        assert_eq!(body.as_deref().and_then(read), read(want));
    }
}
