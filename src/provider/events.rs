//! What the answers of all servers have in common, whatever their dialect makes
//! of a piece: its bytes are events or JSON, an event named "error" is one, some
//! end with a mark, and a piece that does not read fails the call, since what it
//! said is lost. Pure.

use std::fmt;

use serde_json::Value;

use super::body::{Body, Rest, beginning, broken};
use super::once::Once;
use super::sse::Event;
use super::{Decoder, Delta, Fault, failure, json};

/// Most calls, items or blocks of one answer. A dialect looks through those it
/// knows for each piece, and holds some that nobody is told of, so that no bound
/// on what is told bounds them.
pub(super) const MOST_BLOCKS: usize = 1_024;

/// The answer has more than [`MOST_BLOCKS`] of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany(pub(super) &'static str);

/// What a dialect makes of an answer. How much is told is measured around it,
/// and what it holds back is no more than what was read of its server.
pub(super) trait Dialect: Send {
    /// Whether JSON without events is a row of pieces, each taken as it comes.
    const STREAMS_JSON: bool = false;

    /// Whether a last event that does not read is no fault of its own: it was cut,
    /// and with it the answer.
    const FORGIVES_ITS_LAST: bool = false;

    /// One piece, an object, by the name of its event; whether the answer ends
    /// with it.
    fn take(&mut self, name: &str, piece: &Value, deltas: &mut Vec<Delta>) -> Result<bool, Fault>;

    /// The body was one JSON value, which has been taken: it is all there is.
    fn end_whole(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        self.end(deltas)
    }

    /// Whether the answer is whole if its bytes end here.
    fn may_end(&self) -> bool;

    /// The answer ends here by its end mark, or since it may.
    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault>;

    /// The answer is cut here: what was held back of it.
    fn flush(&mut self, deltas: &mut Vec<Delta>);
}

/// What reads an answer of that provider, each call of it once.
pub(super) fn decoder(provider: &str, dialect: impl Dialect + 'static) -> Box<dyn Decoder> {
    Box::new(Once::new(Events::new(provider, dialect)))
}

/// Whether an object holds an error.
pub(super) fn has_error(piece: &Value) -> bool {
    match piece.get("error") {
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        _ => false,
    }
}

/// An answer on its way.
struct Events<D> {
    provider: String,
    body: Body,
    dialect: D,
    is_done: bool,
}

impl<D: Dialect> Decoder for Events<D> {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if self.is_done {
            return Ok(());
        }
        let mut events = Vec::new();
        let fed = self.body.feed(bytes, &mut events);
        // What came before a fault counts, wherever the bytes were cut.
        events.iter().try_for_each(|it| self.take_event(it, deltas))?;
        if self.is_done { Ok(()) } else { fed }
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let may_end = match self.body.end() {
            Rest::Whole(body) => {
                self.take_piece("", &body, deltas)?;
                return self.dialect.end_whole(deltas);
            }
            Rest::Cut => false,
            Rest::Event(last) if D::FORGIVES_ITS_LAST && is_cut(&last) => false,
            Rest::Event(last) => {
                self.take_event(&last, deltas)?;
                self.dialect.may_end()
            }
            Rest::Nothing => self.dialect.may_end(),
        };
        if may_end {
            return self.dialect.end(deltas);
        }
        self.dialect.flush(deltas);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}

impl<D: Dialect> Events<D> {
    fn new(provider: &str, dialect: D) -> Self {
        let body = Body::new(provider, D::STREAMS_JSON);
        Self { provider: provider.to_owned(), body, dialect, is_done: false }
    }

    fn take_event(&mut self, event: &Event, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        match event.data.trim_ascii() {
            _ if self.is_done => Ok(()),
            piece if event.name == "error" => Err(self.failed(piece)),
            b"" | b"[]" => Ok(()),
            // Not of all protocols, but some who speak them have the habit.
            b"[DONE]" => {
                self.is_done = true;
                self.dialect.end(deltas)
            }
            piece => self.take_piece(&event.name, piece, deltas),
        }
    }

    /// The text of an error is one, also where it is no JSON.
    fn failed(&self, piece: &[u8]) -> Fault {
        let text = |_| Value::String(String::from_utf8_lossy(piece).into_owned());
        failure::of_error(&self.provider, &json::read_event(piece).unwrap_or_else(text))
    }

    /// One object, or a list of them.
    fn take_piece(
        &mut self,
        name: &str,
        piece: &[u8],
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        let told = |what: &str| {
            broken(&self.provider, &format!("a piece is {what}: {}", beginning(piece)))
        };
        let value = json::read_event(piece).map_err(|it| told(&it))?;
        let objects = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
        if objects.is_empty() || !objects.iter().all(Value::is_object) {
            return Err(told("not an object"));
        }
        for object in objects {
            if !self.is_done {
                self.is_done = self.dialect.take(name, object, deltas)?;
            }
        }
        Ok(())
    }
}

/// Whether an event breaks off.
fn is_cut(event: &Event) -> bool {
    let piece = event.data.trim_ascii();
    let is_word = event.name == "error" || matches!(piece, b"" | b"[DONE]");
    !is_word && json::read_event(piece).is_err()
}

/// In words.
impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it has more than {MOST_BLOCKS} {}", self.0)
    }
}
