//! Between a turn and whoever listens: no event shows a known secret, also
//! where a model says one in several pieces with others between them. Text that
//! could be the beginning of a secret waits for the next of its kind, until it
//! is one or is none; what waits at the end of an answer is told there. What the
//! next answer says makes no whole secret with that either.

use super::{TurnEvent, masked};
use crate::secret::{MaskedStreams, Redactor};

/// Passes events on, masked.
pub struct Veil<'a> {
    redactor: &'a Redactor,
    tell: &'a mut dyn FnMut(TurnEvent),
    said: MaskedStreams<Kind>,
}

/// What a model says in pieces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Text,
    Thinking,
}

impl<'a> Veil<'a> {
    /// In front of `tell`.
    pub fn new(redactor: &'a Redactor, tell: &'a mut dyn FnMut(TurnEvent)) -> Self {
        Self { redactor, tell, said: MaskedStreams::new(redactor) }
    }

    /// Passes one event on. An answer of a model has ended with every one that
    /// is no piece of it: what was held goes before that.
    pub fn pass(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::TextDelta { delta } => self.say(Kind::Text, &delta),
            TurnEvent::ThinkingDelta { delta } => self.say(Kind::Thinking, &delta),
            other => {
                for (kind, rest) in self.said.rest() {
                    (self.tell)(kind.event(rest));
                }
                let masked = self.masked(other);
                (self.tell)(masked);
            }
        }
    }

    fn say(&mut self, kind: Kind, delta: &str) {
        let told = self.said.take(kind, delta);
        if !told.is_empty() {
            (self.tell)(kind.event(told));
        }
    }

    fn masked(&self, event: TurnEvent) -> TurnEvent {
        match event {
            TurnEvent::ToolStart { id, tool, params } => TurnEvent::ToolStart {
                id: self.text(id),
                tool: self.text(tool),
                params: masked::value(params, self.redactor),
            },
            TurnEvent::ToolOutput { id, delta } => {
                TurnEvent::ToolOutput { id: self.text(id), delta: self.text(delta) }
            }
            TurnEvent::ToolEnd { id, is_error, exit_code, bytes, untold_bytes } => {
                let id = self.text(id);
                TurnEvent::ToolEnd { id, is_error, exit_code, bytes, untold_bytes }
            }
            TurnEvent::Done { response, note } => {
                TurnEvent::Done { response: self.text(response), note }
            }
            TurnEvent::Error { category, message, partial } => TurnEvent::Error {
                category,
                message: self.text(message),
                partial: partial.map(|it| self.text(it)),
            },
            TurnEvent::CompactionEnd { compacted, tokens_before, tokens_after, reason } => {
                let reason = reason.map(|it| self.text(it));
                TurnEvent::CompactionEnd { compacted, tokens_before, tokens_after, reason }
            }
            TurnEvent::Blocked { reason } => TurnEvent::Blocked { reason: self.text(reason) },
            TurnEvent::Retry { attempt, in_ms, reason, model } => {
                TurnEvent::Retry { attempt, in_ms, reason: self.text(reason), model }
            }
            TurnEvent::ModelFallback { provider, model_id, reason } => {
                TurnEvent::ModelFallback { provider, model_id, reason: self.text(reason) }
            }
            other => other,
        }
    }

    fn text(&self, text: String) -> String {
        masked::text(text, self.redactor)
    }
}

impl Kind {
    fn event(self, delta: String) -> TurnEvent {
        match self {
            Self::Text => TurnEvent::TextDelta { delta },
            Self::Thinking => TurnEvent::ThinkingDelta { delta },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(events: &[Value], want: &[Value]) {
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        let mut told = Vec::new();
        let mut tell = |event| told.push(serde_json::to_value(event).unwrap_or_default());
        let mut veil = Veil::new(&redactor, &mut tell);
        for event in events {
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            veil.pass(match event["type"].as_str() {
                Some("text_delta") => TurnEvent::TextDelta { delta: text("delta") },
                Some("thinking_delta") => TurnEvent::ThinkingDelta { delta: text("delta") },
                Some("tool_start") => TurnEvent::ToolStart {
                    id: text("id"),
                    tool: text("tool"),
                    params: event["params"].clone(),
                },
                _ => TurnEvent::Done { response: text("response"), note: None },
            });
        }
        assert_eq!(told, want);
    }

    fn said(text: &str) -> Value {
        json!({"type": "text_delta", "delta": text})
    }

    fn thought(text: &str) -> Value {
        json!({"type": "thinking_delta", "delta": text})
    }

    #[test]
    fn a_secret_in_pieces_is_never_told() {
        let done = json!({"type": "done", "response": "••••"});
        for cut in 1..10 {
            let (first, second) = "s3cret-key".split_at(cut);
            let pieces =
                [said(first), said(second), json!({"type": "done", "response": "s3cret-key"})];
            check(&pieces, &[said("••••"), done.clone()]);
        }
    }

    /// Cut in three anywhere, with any other piece of the answer in between.
    #[test]
    fn a_secret_around_pieces_of_the_other_kind_is_never_told() {
        let done = json!({"type": "done", "response": "••••"});
        let all = json!({"type": "done", "response": "s3cret-key"});
        for (say, other) in [(said as fn(&str) -> Value, thought("hm")), (thought, said("hm"))] {
            for (first, second, third) in cuts("s3cret-key") {
                let pieces = [
                    say(first),
                    other.clone(),
                    say(second),
                    other.clone(),
                    say(third),
                    all.clone(),
                ];
                let want = match third {
                    "" => [other.clone(), say("••••"), other.clone(), done.clone()],
                    _ => [other.clone(), other.clone(), say("••••"), done.clone()],
                };
                check(&pieces, &want);
            }
        }
    }

    /// Every way to cut a text in two, and in three.
    fn cuts(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
        (1..text.len()).flat_map(move |second| {
            let (head, third) = text.split_at(second + 1);
            (1..=second).map(move |first| (&head[..first], &head[first..], third))
        })
    }

    #[test]
    fn what_proves_to_be_none_is_told_late() {
        let done = json!({"type": "done", "response": ""});
        check(
            &[said("a"), said("b s3c"), said("ond"), said(" s3c"), done.clone()],
            &[said("a"), said("b "), said("s3cond"), said(" "), said("s3c"), done.clone()],
        );
        check(
            &[said("b s3c"), thought("s3"), said("ond"), thought("."), done.clone()],
            &[said("b "), said("s3cond"), thought("s3."), done],
        );
    }

    #[test]
    fn what_is_held_at_the_end_of_an_answer_is_told_there() {
        let start = json!({"type": "tool_start", "id": "1", "tool": "exec", "params": {}});
        check(
            &[thought("s3"), said("b s3c"), start.clone(), said("ret-key")],
            &[said("b "), said("s3c"), thought("s3"), start, said("••••")],
        );
    }

    #[test]
    fn arguments_are_masked_wherever_they_hold_one() {
        let start = |secret: &str| {
            json!({"type": "tool_start", "id": format!("1 {secret}"), "tool": "exec",
                "params": {"command": format!("echo {secret}"), "list": [secret], "number": 1}})
        };
        check(&[start("s3cret-key")], &[start("••••")]);
    }
}
