//! Between a turn and whoever listens: no event shows a known secret, also
//! where a model says one in several pieces. Text that could be the beginning
//! of a secret is held back until it is one or is none.

use super::{TurnEvent, masked};
use crate::secret::{MaskedStream, Redactor};

/// Passes events on, masked.
pub struct Veil<'a> {
    redactor: &'a Redactor,
    tell: &'a mut dyn FnMut(TurnEvent),
    stream: Stream,
    held: MaskedStream,
}

/// What the pieces that are held belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Text,
    Thinking,
}

impl<'a> Veil<'a> {
    /// In front of `tell`.
    pub fn new(redactor: &'a Redactor, tell: &'a mut dyn FnMut(TurnEvent)) -> Self {
        Self { redactor, tell, stream: Stream::Text, held: MaskedStream::new(redactor) }
    }

    /// Passes one event on; what was held goes before it.
    pub fn pass(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::TextDelta { delta } => self.take(Stream::Text, &delta),
            TurnEvent::ThinkingDelta { delta } => self.take(Stream::Thinking, &delta),
            other => {
                self.release();
                let masked = self.masked(other);
                (self.tell)(masked);
            }
        }
    }

    fn take(&mut self, stream: Stream, delta: &str) {
        if self.stream != stream {
            self.release();
            self.stream = stream;
        }
        let told = self.held.take(delta);
        self.tell_piece(told);
    }

    /// Tells what is held.
    fn release(&mut self) {
        let told = self.held.rest();
        self.tell_piece(told);
    }

    fn tell_piece(&mut self, delta: String) {
        if delta.is_empty() {
            return;
        }
        (self.tell)(match self.stream {
            Stream::Text => TurnEvent::TextDelta { delta },
            Stream::Thinking => TurnEvent::ThinkingDelta { delta },
        });
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
            TurnEvent::Retry { attempt, in_ms, reason } => {
                TurnEvent::Retry { attempt, in_ms, reason: self.text(reason) }
            }
            other => other,
        }
    }

    fn text(&self, text: String) -> String {
        masked::text(text, self.redactor)
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

    #[test]
    fn what_proves_to_be_none_is_told_late() {
        let thought = json!({"type": "thinking_delta", "delta": "s3"});
        let done = json!({"type": "done", "response": ""});
        check(
            &[said("a"), said("b s3c"), said("ond"), said(" s3c"), thought.clone(), done.clone()],
            &[said("a"), said("b "), said("s3cond"), said(" "), said("s3c"), thought, done],
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
