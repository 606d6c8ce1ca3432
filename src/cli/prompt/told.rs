//! What a prompt shows: events in the form that was asked for, failures as one
//! document or the last event, and on standard error what a person must know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::super::{colours, is_on_screen, is_watched, present, print, print_json, remark, tell};
use super::live::Live;
use crate::error::{During, Error, Kind, Result};
use crate::gateway::{PromptRequest, TOO_SLOW};
use crate::turn::{TurnEvent, category_of};

/// Exit code of a turn that was called off.
pub(super) const ABORTED: u8 = 130;

/// Exit code of a turn that may go on, since its end was not heard.
const UNHEARD: u8 = 3;

/// How a turn is shown.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// The answer as text.
    #[default]
    Text,
    /// One document.
    Json,
    /// Events.
    Stream,
}

/// Shows a turn in the form that was asked for.
pub(super) struct Told {
    form: Form,
    /// The answer as it comes; only as text at a terminal.
    live: Option<Live>,
    agent: String,
    /// The session's key, once the turn has begun; before, what was asked for.
    session: Option<String>,
    /// Whether others may know the session and have a turn running in it.
    named_session: bool,
    /// What there is to say of the model that answers, where that is another
    /// than the first and nobody watched the turn.
    fallback: Option<String>,
    /// What there is to say of the gateway's configuration.
    pub(super) notice: Option<String>,
    /// The exit code.
    pub(super) code: u8,
    /// Whether the turn has been seen to begin, or it was said what it waits for.
    has_begun: bool,
    /// Whether the turn has been seen to begin.
    hears_turn: bool,
    /// Whether the turn's end has been shown.
    pub(super) has_ended: bool,
    /// Whether what runs in the session can only be this turn: it has been
    /// heard of, or nobody else knows the session.
    pub(super) is_ours: Arc<AtomicBool>,
}

impl Told {
    /// Nothing shown yet of that turn; `named_session` if others may know its
    /// session.
    pub(super) fn new(form: Form, request: &PromptRequest, named_session: bool) -> Self {
        let is_ours = Arc::new(AtomicBool::new(!named_session));
        let is_live = form == Form::Text && is_on_screen();
        let live = is_live.then(|| Live::new(colours()));
        Self {
            form,
            live,
            agent: request.agent.clone(),
            session: request.session_key.clone(),
            named_session,
            fallback: None,
            notice: None,
            code: 1,
            has_begun: false,
            hears_turn: false,
            has_ended: false,
            is_ours,
        }
    }

    /// Whether anybody sees what is said before all of it has been.
    pub(super) fn shows_pieces(&self) -> bool {
        self.form == Form::Stream || self.live.is_some()
    }

    /// Says once what a turn waits for that has not begun.
    pub(super) fn wait_for_turn(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let session = self.session.as_deref().filter(|_| self.named_session);
        let line = session.map_or_else(String::new, |it| {
            format!("for the turn that runs in the session {it}, or ")
        });
        tell(&format!("beige prompt: waiting {line}for the agent's sandbox"));
    }

    /// Shows one event, a line of JSON; `true` after the last.
    pub(super) fn tell(&mut self, line: &str) -> Result<bool> {
        let event: Value = serde_json::from_str(line).during(Kind::Internal, "read an event")?;
        if self.form == Form::Stream {
            // As it came: a program may look at its beginning only.
            print_json(&format!("{}\n", line.trim_end()))?;
        }
        self.show(&event)
    }

    fn show(&mut self, event: &Value) -> Result<bool> {
        let text = |name| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let kind = text("type");
        self.has_begun = true;
        self.hears_turn = true;
        self.is_ours.store(true, Ordering::SeqCst);
        self.has_ended |= matches!(kind, "done" | "blocked" | "error");
        self.make_way(kind)?;
        match kind {
            "turn_start" => self.session = Some(text("sessionKey").to_owned()),
            "text_delta" => self.show_live(|it| it.more(text("delta")))?,
            "done" => {
                self.code = 0;
                self.answer(text("response"), event)?;
            }
            "blocked" => {
                if self.form == Form::Json {
                    self.refused(text("reason"))?;
                }
                tell(&format!("beige prompt: refused: {}", text("reason")));
            }
            "error" => {
                let is_shown = self.live.as_ref().is_some_and(Live::has_shown);
                if self.form == Form::Text && !is_shown && !text("partial").is_empty() {
                    present(&format!("{}\n", text("partial").trim_end()))?;
                }
                if self.form == Form::Json {
                    self.failure(event)?;
                }
                self.code = match text("category") {
                    "aborted" => ABORTED,
                    TOO_SLOW => UNHEARD,
                    _ => 1,
                };
                tell(&format!("beige prompt: {}", text("message")));
                if self.form == Form::Text && is_limit(text("category")) {
                    self.tell_how_to_go_on();
                }
            }
            "tool_start" | "retry" | "model_fallback"
                if self.form == Form::Text && is_watched() =>
            {
                if let Some(line) = line_of(kind, event) {
                    remark(&line);
                }
            }
            "model_fallback" if self.form != Form::Stream => {
                let (model, reason) = (fallback(event), text("reason"));
                self.fallback = Some(format!("another model answered, {model}: {reason}"));
            }
            "retry" => tell_pause(event),
            "compaction_start" if self.form == Form::Text && is_watched() => {
                tell("beige prompt: the conversation is long; its older part is being summarised");
            }
            _ => {}
        }
        Ok(self.has_ended)
    }

    /// Says what to type, since a prompt that names no session begins a new one.
    fn tell_how_to_go_on(&self) {
        let Some(session) = &self.session else { return };
        let session = as_typed(session);
        let agent = &self.agent;
        tell(&format!(
            "beige prompt: to go on there: beige prompt {agent} --session {session} \"go on\""
        ));
    }

    /// Ends the line of the answer before anything else is shown.
    fn make_way(&mut self, kind: &str) -> Result<()> {
        self.show_live(|live| match kind {
            "retry" => live.cut_off(),
            "text_delta" | "thinking_delta" | "tool_output" | "usage" | "done" => String::new(),
            _ => live.end_line(),
        })
    }

    fn show_live(&mut self, what: impl FnOnce(&mut Live) -> String) -> Result<()> {
        self.live.as_mut().map_or(Ok(()), |it| print(&what(it)))
    }

    /// What became of a turn that was called off and whose end was not told.
    pub(super) fn called_off(&self) -> Error {
        let what = match self.hears_turn {
            true => "called off; the gateway has not told how the turn ended: see the session",
            false => "called off before it began",
        };
        Error::new(Kind::Cancelled, what)
    }

    /// Ends what is shown of a turn that was let in and whose end was not heard.
    pub(super) fn break_off(&mut self, why: &Error) -> Result<()> {
        (self.has_ended, self.code) = (true, UNHEARD);
        let session = self.session.as_deref().unwrap_or_default();
        let message = format!(
            "{why}; its end was not heard, and the turn may go on in the session {session}: see \
             `beige sessions show {session}` before asking again"
        );
        let event = json!({"type": "error", "category": "unheard", "message": message});
        match self.form {
            Form::Text => self.show_live(Live::end_line)?,
            Form::Json => self.failure(&event)?,
            Form::Stream => print_json(&format!("{event}\n"))?,
        }
        tell(&format!("beige prompt: {message}"));
        Ok(())
    }

    /// What no turn tells, since none was begun.
    pub(super) fn tell_failure(&mut self, error: &Error) -> Result<()> {
        self.has_ended = true;
        match self.form {
            Form::Text => self.show_live(Live::end_line),
            Form::Json => {
                let category = category_of(error.kind());
                let document = json!({ "error": error.to_string(), "category": category });
                print_json(&format!("{document}\n"))
            }
            Form::Stream => {
                let error = serde_json::to_string(&TurnEvent::refused(error));
                print_json(&format!("{}\n", error.during(Kind::Internal, "encode an event")?))
            }
        }
    }

    fn refused(&self, reason: &str) -> Result<()> {
        let document = json!({"error": reason, "category": "blocked", "session": self.session});
        print_json(&format!("{document}\n"))
    }

    /// A failed turn as the one document: what the event says, and where the
    /// conversation can be gone on with.
    fn failure(&self, event: &Value) -> Result<()> {
        let document = json!({
            "error": event.get("message"), "category": event.get("category"),
            "partial": event.get("partial"), "session": self.session,
        });
        print_json(&format!("{document}\n"))
    }

    fn answer(&mut self, response: &str, event: &Value) -> Result<()> {
        self.show_live(|it| it.rest(response))?;
        let note = event.get("note").and_then(Value::as_str);
        let fallback = self.fallback.as_deref().filter(|_| self.form == Form::Text);
        for told in fallback.into_iter().chain(note) {
            tell(&format!("beige prompt: {told}"));
        }
        match self.form {
            Form::Text if self.live.is_some() => Ok(()),
            Form::Text => present(&format!("{}\n", response.trim_end_matches('\n'))),
            Form::Json => {
                let mut document = json!({"response": response, "session": self.session});
                if let Some(note) = event.get("note") {
                    document["note"] = note.clone();
                }
                if let Some(fallback) = &self.fallback {
                    document["fallback"] = json!(fallback);
                }
                if let Some(notice) = &self.notice {
                    document["notice"] = json!(notice);
                }
                print_json(&format!("{document}\n"))
            }
            Form::Stream => Ok(()),
        }
    }
}

/// Whether a turn ended since it had taken all that it may, and another one in
/// its session goes on.
fn is_limit(category: &str) -> bool {
    category.starts_with("max_")
}

/// A word as a shell takes it.
fn as_typed(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || ":-_./@".contains(it);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Says what a pause of about a second or more before the next try is for.
fn tell_pause(event: &Value) {
    let millis = event.get("inMs").and_then(Value::as_u64).unwrap_or_default();
    // Of a second that a server asks for, a part has passed already.
    if millis >= 500 {
        let reason = event.get("reason").and_then(Value::as_str).unwrap_or_default();
        let seconds = millis.div_ceil(1_000);
        let model = event.get("model").and_then(Value::as_str);
        let model = model.map_or_else(String::new, |it| format!(" for {it}"));
        tell(&format!("beige prompt: waiting {seconds} s{model}: {reason}"));
    }
}

/// What a person sees of an event on the way, if anything.
fn line_of(kind: &str, event: &Value) -> Option<String> {
    let text = |name| event.get(name).and_then(Value::as_str).unwrap_or_default();
    match kind {
        "retry" => {
            let millis = event.get("inMs").and_then(Value::as_u64).unwrap_or_default();
            let (seconds, model, reason) = (millis.div_ceil(1_000), text("model"), text("reason"));
            match (seconds, model) {
                (0, "") => Some(format!("· once more: {reason}")),
                // That another model is asked is an event of its own.
                (0, _) => None,
                (_, "") => Some(format!("· once more in {seconds} s: {reason}")),
                (_, model) => Some(format!("· {model} in {seconds} s: {reason}")),
            }
        }
        "model_fallback" => Some(format!("· now {}: {}", fallback(event), text("reason"))),
        _ => Some(tool_line(event)),
    }
}

/// The model that is asked from now on.
fn fallback(event: &Value) -> String {
    let text = |name| event.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", text("provider"), text("modelId"))
}

/// What a person sees of a tool call: its first argument, shortened.
fn tool_line(event: &Value) -> String {
    let tool = event.get("tool").and_then(Value::as_str).unwrap_or_default();
    let params = event.get("params").and_then(Value::as_object);
    let first = params.and_then(|it| it.get("command").or_else(|| it.get("path")));
    let first = first.and_then(Value::as_str).unwrap_or_default();
    let short = |text: &str| {
        let shown: String = text.chars().take(100).collect();
        shown.replace(['\n', '\r', '\t'], " ")
    };
    format!("· {}: {}", short(tool), short(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_told_as_a_shell_takes_it() {
        assert_eq!(as_typed("cli:a:20261130T041634-1"), "cli:a:20261130T041634-1");
        assert_eq!(as_typed("it's $x"), "'it'\\''s $x'");
    }

    #[test]
    fn a_person_sees_which_model_comes_next_and_why() {
        let check = |event: Value, want: Option<&str>| {
            let kind = event["type"].as_str().expect("a type");
            assert_eq!(line_of(kind, &event).as_deref(), want);
        };
        let retry = |in_ms: u64| json!({"type": "retry", "inMs": in_ms, "reason": "it broke"});
        check(retry(0), Some("· once more: it broke"));
        check(retry(1_001), Some("· once more in 2 s: it broke"));
        let by = |in_ms: u64| {
            let mut event = retry(in_ms);
            event["model"] = json!("q/n");
            event
        };
        check(by(0), None);
        check(by(1_001), Some("· q/n in 2 s: it broke"));
        let to =
            json!({"type": "model_fallback", "provider": "q", "modelId": "n", "reason": "401"});
        check(to, Some("· now q/n: 401"));
    }
}
