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

/// What a dialect makes of an answer. How much it tells is measured around it
/// (`measured`); what it holds back, which nobody measures, is at most what is
/// read of an answer over HTTP.
pub(super) trait Dialect: Send {
    /// Whether JSON without events is a row of pieces, each taken as it comes.
    const STREAMS_JSON: bool = false;

    /// One piece, an object, by the name of its event; whether the answer ends
    /// with it.
    fn take(&mut self, name: &str, piece: &Value, deltas: &mut Vec<Delta>) -> Result<bool, Fault>;

    /// Why it is no answer, where the body was one JSON value, which has been
    /// taken and is all there is.
    fn lacks(&self) -> Option<&'static str> {
        None
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
        events.into_iter().try_for_each(|it| self.take_event(it, deltas))?;
        if self.is_done { Ok(()) } else { fed }
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let is_cut = match self.body.end() {
            _ if self.is_done => return Ok(()),
            Rest::Whole(body) => {
                let shown = beginning(&body);
                self.take_piece("", body, deltas)?;
                return match self.dialect.lacks() {
                    Some(what) => Err(self.broken(what, &shown)),
                    None => self.dialect.end(deltas),
                };
            }
            Rest::Nothing => false,
            Rest::Cut => true,
            // No fault of its own: it was cut, and with it the answer.
            Rest::Event(last) if breaks_off(&last) => true,
            Rest::Event(last) => {
                self.take_event(last, deltas)?;
                false
            }
        };
        match is_cut || !self.dialect.may_end() {
            _ if self.is_done => Ok(()),
            false => self.dialect.end(deltas),
            true => {
                self.dialect.flush(deltas);
                Ok(())
            }
        }
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

    fn take_event(&mut self, event: Event, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        match event.data.trim_ascii() {
            _ if self.is_done => Ok(()),
            piece if event.name == "error" => Err(self.failed(piece)),
            b"" | b"[]" => Ok(()),
            // Not of all protocols, but some who speak them have the habit.
            b"[DONE]" => {
                self.is_done = true;
                self.dialect.end(deltas)
            }
            _ => self.take_piece(&event.name, event.data, deltas),
        }
    }

    /// The text of an error is one, also where it is no JSON.
    fn failed(&self, piece: &[u8]) -> Fault {
        let text = |_| Value::String(String::from_utf8_lossy(piece).into_owned());
        failure::of_error(&self.provider, &json::read_event(piece).unwrap_or_else(text))
    }

    /// One object, or a list of them. A large text is not held any longer than
    /// its value is made.
    fn take_piece(
        &mut self,
        name: &str,
        piece: Vec<u8>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        let text = piece.trim_ascii();
        let shown = beginning(text);
        let value = json::read_event(text)
            .map_err(|it| self.broken(&format!("a piece is {it}"), &shown))?;
        drop(piece);
        let objects = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
        if objects.is_empty() || !objects.iter().all(Value::is_object) {
            return Err(self.broken("a piece is not an object", &shown));
        }
        for object in objects {
            if !self.is_done {
                self.is_done = self.dialect.take(name, object, deltas)?;
            }
        }
        Ok(())
    }

    fn broken(&self, what: &str, shown: &str) -> Fault {
        broken(&self.provider, &format!("{what}: {shown}"))
    }
}

/// Whether an event ends in the middle.
fn breaks_off(event: &Event) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::tests::reading::{Came, Reading};

    const EVENTS: Reading = Reading { api: "any", decoder: || decoder("acme", Saying::<false>) };
    const JSON: Reading = Reading { api: "any", decoder: || decoder("acme", Saying::<true>) };

    /// Says what is in each piece, and which way it ends.
    struct Saying<const STREAMS_JSON: bool>;

    impl<const STREAMS_JSON: bool> Dialect for Saying<STREAMS_JSON> {
        const STREAMS_JSON: bool = STREAMS_JSON;

        fn take(&mut self, name: &str, it: &Value, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
            let word = it["say"].as_str().unwrap_or("nothing");
            deltas.push(Delta::Text(format!("{name}{word}.")));
            Ok(word == "last")
        }

        fn lacks(&self) -> Option<&'static str> {
            Some("it is not whole")
        }

        fn may_end(&self) -> bool {
            true
        }

        fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
            deltas.push(Delta::Text("END".into()));
            Ok(())
        }

        fn flush(&mut self, deltas: &mut Vec<Delta>) {
            deltas.push(Delta::Text("CUT".into()));
        }
    }

    #[track_caller]
    fn check(came: Came, said: &str, fault: &str) {
        let (deltas, ended) = came;
        let want = Some(Delta::Text(said.into())).filter(|_| !said.is_empty());
        assert_eq!(deltas, Vec::from_iter(want));
        let told = ended.map_or_else(|it| it.to_string(), |is_done| format!("done: {is_done}"));
        assert!(told.contains(fault), "{told}");
    }

    const A: &str = "data: {\"say\": \"a\"}\n\n";

    #[track_caller]
    fn check_after_a(more: &str, said: &str, fault: &str) {
        let said = format!("a.{said}");
        check(EVENTS.however_cut(format!("{A}{more}").as_bytes()), &said, fault);
    }

    #[test]
    fn an_answer_ends_by_its_mark_by_a_piece_or_with_its_bytes() {
        check_after_a("", "END", "done: false");
        check_after_a("data: [DONE]\n\ndata: {}\n\n", "END", "done: true");
        check_after_a("data: [DONE]", "END", "done: true");
        check_after_a("data: {\"say\":\"last\"}\n\ndata: junk\n\n", "last.", "done: true");
        check_after_a("data: {\"say\":", "CUT", "done: false");
    }

    #[test]
    fn what_says_nothing_is_passed_over_and_an_error_is_one() {
        check_after_a("data\n\ndata: []\n\n", "END", "done: false");
        check_after_a("event: b\ndata: [{}, {\"say\":\"c\"}]\n\n", "bnothing.bc.END", "false");
        for error in ["M", "\"M\"", "{\"message\":\"M\"}", "{\"type\":\"x\",\"message\":\"M\"}"] {
            check_after_a(&format!("event: error\ndata: {error}\n\n"), "", "error: M");
        }
    }

    #[test]
    fn what_does_not_read_fails_the_call_and_leaves_what_came() {
        check_after_a("data: junk\n\n", "", "a piece is not valid JSON");
        check_after_a("data: [{}, 7]\n\n", "", "a piece is not an object: [{}, 7]");
        let large = format!("{A}data: {}", "x".repeat(17 * 1024 * 1024));
        check(EVENTS.of([large.as_bytes()]), "a.", "larger than");
        check(EVENTS.of(large.as_bytes().chunks(4_096)), "a.", "larger than");
    }

    #[test]
    fn json_is_one_whole_or_a_row_of_pieces() {
        check(EVENTS.however_cut(b" {}"), "nothing.", "it is not whole: {}");
        check(EVENTS.however_cut(b"{"), "", "a piece is not valid JSON");
        check(EVENTS.however_cut(b"[]"), "", "not an object");
        check(JSON.however_cut(b"[{}, {\"say\": \"a\"}]"), "nothing.a.END", "done: false");
        check(JSON.however_cut(b"[{}, {\"say\""), "nothing.CUT", "done: false");
        check(JSON.however_cut(b"[{}, 7]"), "nothing.", "not valid JSON");
    }
}
