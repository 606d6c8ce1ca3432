//! What a prompt shows: events in the form that was asked for, failures as one
//! document or the last event, and on standard error what a person must know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::super::{colours, is_on_screen, is_watched, present, print, print_json, remark, tell};
use super::live::Live;
use crate::error::{During, Error, Kind, Result};
use crate::gateway::TOO_SLOW;
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
    session: Option<String>,
    /// Whether others may know the session and have a turn running in it.
    named_session: bool,
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
    /// Nothing shown yet of a turn in that session; `named_session` if it is
    /// one that others may know.
    pub(super) fn new(form: Form, session: Option<String>, named_session: bool) -> Self {
        let is_ours = Arc::new(AtomicBool::new(!named_session));
        let is_live = form == Form::Text && is_on_screen();
        let live = is_live.then(|| Live::new(colours()));
        Self {
            form,
            live,
            session,
            named_session,
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
            }
            "tool_start" | "retry" | "model_fallback"
                if self.form == Form::Text && is_watched() =>
            {
                remark(&line_of(kind, event));
            }
            "retry" => tell_pause(event),
            "compaction_start" if self.form == Form::Text && is_watched() => {
                tell("beige prompt: the conversation is long; its older part is being summarised");
            }
            _ => {}
        }
        Ok(self.has_ended)
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
        if let Some(note) = event.get("note").and_then(Value::as_str) {
            tell(&format!("beige prompt: {note}"));
        }
        match self.form {
            Form::Text if self.live.is_some() => Ok(()),
            Form::Text => present(&format!("{}\n", response.trim_end_matches('\n'))),
            Form::Json => {
                let mut document = json!({"response": response, "session": self.session});
                if let Some(note) = event.get("note") {
                    document["note"] = note.clone();
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

/// Says what a pause of about a second or more before the next try is for.
fn tell_pause(event: &Value) {
    let millis = event.get("inMs").and_then(Value::as_u64).unwrap_or_default();
    // Of a second that a server asks for, a part has passed already.
    if millis >= 500 {
        let reason = event.get("reason").and_then(Value::as_str).unwrap_or_default();
        tell(&format!("beige prompt: waiting {} s: {reason}", millis.div_ceil(1_000)));
    }
}

/// What a person sees of an event on the way.
fn line_of(kind: &str, event: &Value) -> String {
    let text = |name| event.get(name).and_then(Value::as_str).unwrap_or_default();
    match kind {
        "retry" => {
            let millis = event.get("inMs").and_then(Value::as_u64).unwrap_or_default();
            match millis.div_ceil(1_000) {
                0 => format!("· once more: {}", text("reason")),
                seconds => format!("· once more in {seconds} s: {}", text("reason")),
            }
        }
        "model_fallback" => format!("· now {}/{}", text("provider"), text("modelId")),
        _ => tool_line(event),
    }
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
