//! One answer in the event protocol of the pi SDK: blocks that begin, grow and
//! end, by their number, and with each, if the client wants it, the message so
//! far. Pure: events in, lines of JSON out. A line is written where it goes and
//! never held, since with the message in it one can be as long as the answer.

use std::io::{self, Write};

use serde::Serialize;

use crate::gateway::ChatEvent;
use crate::message::{Assistant, Block, Message, StopReason};
use crate::provider::{Assembly, CallPiece, Delta, Place, SoFar};

/// Puts one answer in the words of that protocol.
#[derive(Debug)]
pub(super) struct Teller {
    has_partial: bool,
    /// The answer so far, once a model has been asked.
    answer: Option<Box<Assembly>>,
    has_started: bool,
    /// The block of text or thinking that has begun and not ended.
    open: Option<Open>,
    /// The blocks that are calls, whose pieces may come mixed: they end with
    /// the answer.
    calls: Vec<usize>,
}

/// A block that can still grow.
#[derive(Clone, Copy, Debug)]
struct Open {
    index: usize,
    kind: Kind,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

/// A line; fields that an event does not have are left out.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call: Option<&'a Block>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<Partial<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Message>,
}

/// The message that goes with an event.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Partial<'a> {
    SoFar(SoFar<'a>),
    Whole(&'a Message),
}

impl Teller {
    pub(super) fn new(has_partial: bool) -> Self {
        Self { has_partial, answer: None, has_started: false, open: None, calls: Vec::new() }
    }

    /// Writes the lines of an event; whether nothing follows it.
    pub(super) fn tell(&mut self, event: ChatEvent, to: &mut impl Write) -> io::Result<bool> {
        match event {
            ChatEvent::Fallback(model) => {
                let (provider, model_id) = (Some(&*model.provider), Some(&*model.model));
                write(to, &Line { provider, model_id, ..Line::of("model_fallback") })?;
            }
            ChatEvent::Asked(answer) => {
                self.answer = Some(answer);
                // Once: a client takes each for a message.
                if !std::mem::replace(&mut self.has_started, true) {
                    write(to, &Line { partial: self.partial(), ..Line::of("start") })?;
                }
            }
            ChatEvent::Piece(delta) => self.piece(delta, to)?,
            // No event of that protocol.
            ChatEvent::Lull => {}
            ChatEvent::Done(message) => return self.done(message, to).map(|()| true),
            ChatEvent::Failed(message) => return failed(message, to).map(|()| true),
            ChatEvent::Blocked(reason) => {
                write(to, &Line { reason: Some(&reason), ..Line::of("blocked") })?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn piece(&mut self, delta: Delta, to: &mut impl Write) -> io::Result<()> {
        let Some(answer) = &mut self.answer else { return Ok(()) };
        if answer.begins_block(&delta) {
            self.end_open(None, to)?;
        }
        let Some(answer) = &mut self.answer else { return Ok(()) };
        // Nobody but the answer needs the text twice.
        let said = said_in(&delta);
        let Some(Place { index, is_new }) = answer.put(delta) else { return Ok(()) };
        let Some((kind, said)) = said else { return Ok(()) };
        if is_new {
            match kind {
                Kind::Call => self.calls.push(index),
                Kind::Text | Kind::Thinking => self.open = Some(Open { index, kind }),
            }
            self.write_of_block(kind.begins(), index, None, to)?;
        }
        if said.is_empty() {
            return Ok(());
        }
        self.write_of_block(kind.grows(), index, Some(&said), to)
    }

    fn write_of_block(
        &self,
        kind: &'static str,
        index: usize,
        delta: Option<&str>,
        to: &mut impl Write,
    ) -> io::Result<()> {
        let (content_index, partial) = (Some(index), self.partial());
        write(to, &Line { content_index, delta, partial, ..Line::of(kind) })
    }

    /// The block that is open has ended; `whole` is the message, once it is.
    fn end_open(&mut self, whole: Option<&Message>, to: &mut impl Write) -> io::Result<()> {
        let Some(Open { index, kind }) = self.open.take() else { return Ok(()) };
        let content = self.answer.as_ref().and_then(|it| it.text_of(index)).unwrap_or_default();
        let line = Line {
            content_index: Some(index),
            content: Some(content),
            partial: self.partial_of(whole),
            ..Line::of(kind.ends())
        };
        write(to, &line)
    }

    fn done(&mut self, message: Box<Assistant>, to: &mut impl Write) -> io::Result<()> {
        let message = Message::Assistant(message);
        self.end_open(Some(&message), to)?;
        let Message::Assistant(answer) = &message else { return Ok(()) };
        for index in std::mem::take(&mut self.calls) {
            let line = Line {
                content_index: Some(index),
                // As it is to be run: its id and its arguments are known now.
                tool_call: answer.content.get(index),
                partial: self.partial_of(Some(&message)),
                ..Line::of(Kind::Call.ends())
            };
            write(to, &line)?;
        }
        let reason = Some(word(&answer.stop_reason));
        write(to, &Line { reason, message: Some(&message), ..Line::of("done") })
    }

    fn partial(&self) -> Option<Partial<'_>> {
        let answer = self.answer.as_ref().filter(|_| self.has_partial)?;
        Some(Partial::SoFar(answer.so_far()))
    }

    fn partial_of<'a>(&'a self, whole: Option<&'a Message>) -> Option<Partial<'a>> {
        match whole {
            Some(message) => self.has_partial.then_some(Partial::Whole(message)),
            None => self.partial(),
        }
    }
}

impl Kind {
    fn begins(self) -> &'static str {
        match self {
            Self::Text => "text_start",
            Self::Thinking => "thinking_start",
            Self::Call => "toolcall_start",
        }
    }

    fn grows(self) -> &'static str {
        match self {
            Self::Text => "text_delta",
            Self::Thinking => "thinking_delta",
            Self::Call => "toolcall_delta",
        }
    }

    fn ends(self) -> &'static str {
        match self {
            Self::Text => "text_end",
            Self::Thinking => "thinking_end",
            Self::Call => "toolcall_end",
        }
    }
}

impl Line<'_> {
    fn of(kind: &'static str) -> Self {
        Self { r#type: kind, ..Self::default() }
    }
}

/// Puts `more` to an event that waits, if both say more of the same block in
/// the same way; else gives it back. Where each line has the whole message, one
/// line says it as well as two.
pub(super) fn joined(event: &mut ChatEvent, more: ChatEvent) -> Option<ChatEvent> {
    match (event, more) {
        (ChatEvent::Piece(Delta::Text(it)), ChatEvent::Piece(Delta::Text(more)))
        | (ChatEvent::Piece(Delta::Thinking(it)), ChatEvent::Piece(Delta::Thinking(more))) => {
            it.push_str(&more);
            None
        }
        (
            ChatEvent::Piece(Delta::ToolCall(it)),
            ChatEvent::Piece(Delta::ToolCall(CallPiece { slot, id: None, name: None, arguments })),
        ) if it.slot == slot => {
            it.arguments.push_str(&arguments);
            None
        }
        (_, more) => Some(more),
    }
}

/// What a delta of content says, and of what.
fn said_in(delta: &Delta) -> Option<(Kind, String)> {
    match delta {
        Delta::Text(it) => Some((Kind::Text, it.clone())),
        Delta::Thinking(it) => Some((Kind::Thinking, it.clone())),
        Delta::Redacted(_) => Some((Kind::Thinking, String::new())),
        Delta::ToolCall(it) => Some((Kind::Call, it.arguments.clone())),
        _ => None,
    }
}

fn failed(message: Box<Assistant>, to: &mut impl Write) -> io::Result<()> {
    let reason = match message.stop_reason {
        StopReason::Aborted => "aborted",
        _ => "error",
    };
    let message = Message::Assistant(message);
    write(to, &Line { reason: Some(reason), error: Some(&message), ..Line::of("error") })
}

/// Why an answer that is whole ends; the protocol knows these three.
fn word(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::Length => "length",
        StopReason::ToolUse => "toolUse",
        _ => "stop",
    }
}

fn write(to: &mut impl Write, line: &Line<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

#[cfg(test)]
mod tests;
