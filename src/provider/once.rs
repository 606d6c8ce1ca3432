//! Calls that a stuttering server tells more than once, as one. Around a
//! dialect's decoder. What makes two of them one is the id that the server gave:
//! the same id, tool and arguments are one call, and so is one that broke off
//! and began anew. Calls with ids of their own, or without any, stay several
//! however alike they are: a model may mean to do the same twice, and nobody can
//! tell. So do calls of one id and different arguments, since some servers give
//! one id to all. A call of an id that is known is held back until the answer
//! stops, so that nobody who follows it sees a call that is none.

use std::collections::{HashMap, HashSet};
use std::mem;

use serde_json::Value;

use super::assemble::{MOST_VALUES, arguments};
use super::{CallPiece, Decoder, Delta, Fault};

/// A decoder that tells each call once.
pub(super) struct Once<D> {
    decoder: D,
    calls: Vec<Call>,
    /// The place of each call, by its slot.
    places: HashMap<u64, usize>,
    ids: HashSet<String>,
    /// The call that the last delta of content was of.
    last: Option<usize>,
}

/// A call on its way.
#[derive(Default)]
struct Call {
    slot: u64,
    id: String,
    name: String,
    arguments: String,
    signature: String,
    is_held: bool,
}

impl<D> Once<D> {
    pub(super) fn new(decoder: D) -> Self {
        let (calls, places, ids) = (Vec::new(), HashMap::new(), HashSet::new());
        Self { decoder, calls, places, ids, last: None }
    }
}

impl<D: Decoder> Decoder for Once<D> {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let mut told = Vec::new();
        let fed = self.decoder.feed(bytes, &mut told);
        told.into_iter().for_each(|it| self.pass(it, deltas));
        fed
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let mut told = Vec::new();
        let ended = self.decoder.end(&mut told);
        told.into_iter().for_each(|it| self.pass(it, deltas));
        ended
    }

    fn is_done(&self) -> bool {
        self.decoder.is_done()
    }
}

impl<D> Once<D> {
    fn pass(&mut self, delta: Delta, deltas: &mut Vec<Delta>) {
        match delta {
            Delta::ToolCall(piece) => return self.take(piece, deltas),
            Delta::Text(_) | Delta::Thinking(_) | Delta::Redacted(_) => self.last = None,
            Delta::Signature(more) => return self.sign(more, deltas),
            Delta::Stop(_) => self.release(deltas),
            Delta::Anew(slot) if self.forget(slot) => return,
            Delta::Anew(_) | Delta::Usage(_) | Delta::Mark(_) => (),
        }
        deltas.push(delta);
    }

    fn take(&mut self, piece: CallPiece, deltas: &mut Vec<Delta>) {
        let place = *self.places.entry(piece.slot).or_insert(self.calls.len());
        if place == self.calls.len() {
            let is_held = piece.id.as_ref().is_some_and(|it| self.ids.contains(it));
            self.calls.push(Call { slot: piece.slot, is_held, ..Call::default() });
        }
        self.last = Some(place);
        let call = &mut self.calls[place];
        call.add(&piece);
        if !call.id.is_empty() && !self.ids.contains(&call.id) {
            self.ids.insert(call.id.clone());
        }
        if !call.is_held {
            deltas.push(Delta::ToolCall(piece));
        }
    }

    /// The arguments of a call come anew; whether it is held back.
    fn forget(&mut self, slot: u64) -> bool {
        let Some(call) = self.places.get(&slot).map(|it| &mut self.calls[*it]) else { return true };
        call.arguments.clear();
        call.is_held
    }

    /// Opaque data is of what came last.
    fn sign(&mut self, more: String, deltas: &mut Vec<Delta>) {
        match self.last.map(|it| &mut self.calls[it]) {
            Some(call) if call.is_held => call.signature.push_str(&more),
            _ => deltas.push(Delta::Signature(more)),
        }
    }

    /// All calls are there: those that were held back and are calls of their
    /// own are told now, and what is missing of others that broke off.
    fn release(&mut self, deltas: &mut Vec<Delta>) {
        let calls = mem::take(&mut self.calls);
        let held = calls.iter().filter(|it| it.is_held).map(|it| it.id.clone());
        let several: HashSet<String> = held.collect();
        let (mut known, mut last) = (HashSet::new(), HashMap::new());
        for call in calls.into_iter().filter(|it| several.contains(&it.id)) {
            let name = (call.id.clone(), call.name.clone());
            let before: Option<&mut Call> = last.get_mut(&name);
            let is_known = !known.insert((name.clone(), canonical(&call.arguments)));
            match before {
                _ if is_known => (),
                Some(it) if breaks_off(&call.arguments, &it.arguments) => (),
                Some(it) if breaks_off(&it.arguments, &call.arguments) => {
                    let rest = call.arguments[it.arguments.len()..].to_owned();
                    it.arguments.push_str(&rest);
                    let piece =
                        CallPiece { slot: it.slot, arguments: rest, ..CallPiece::default() };
                    deltas.push(Delta::ToolCall(piece));
                }
                _ => {
                    call.tell(deltas);
                    last.insert(name, call);
                }
            }
        }
    }
}

impl Call {
    fn add(&mut self, piece: &CallPiece) {
        if let Some(id) = &piece.id {
            self.id.clone_from(id);
        }
        if let Some(name) = &piece.name {
            self.name.clone_from(name);
        }
        self.arguments.push_str(&piece.arguments);
    }

    /// Tells it, if it was held back.
    fn tell(&self, deltas: &mut Vec<Delta>) {
        if !self.is_held {
            return;
        }
        let word = |it: &String| Some(it.clone()).filter(|it| !it.is_empty());
        let (id, name, arguments) = (word(&self.id), word(&self.name), self.arguments.clone());
        deltas.push(Delta::ToolCall(CallPiece { slot: self.slot, id, name, arguments }));
        deltas.extend(word(&self.signature).map(Delta::Signature));
    }
}

/// Whether a text is the beginning of another one and no arguments by itself:
/// one of no length is that of a call of which only the start came.
fn breaks_off(text: &str, whole: &str) -> bool {
    let is_whole = || !text.is_empty() && arguments(text, MOST_VALUES).is_ok();
    whole.starts_with(text) && !is_whole()
}

/// The same for all texts that mean the same.
fn canonical(text: &str) -> String {
    let read = arguments(text, MOST_VALUES);
    read.map_or_else(|_| text.to_owned(), |it| Value::Object(it).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::StopReason;

    /// Tells these deltas, one a byte, and at last the rest.
    struct Telling(Vec<Delta>);

    impl Decoder for Telling {
        fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
            deltas.extend(self.0.drain(..bytes.len().min(self.0.len())));
            Ok(())
        }

        fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
            deltas.append(&mut self.0);
            Err(Fault::Cut("here".into()))
        }
    }

    fn piece(slot: u64, id: &str, arguments: &str) -> Delta {
        let id = Some(id.to_owned()).filter(|it| !it.is_empty());
        let name = Some("exec".to_owned());
        Delta::ToolCall(CallPiece { slot, id, name, arguments: arguments.into() })
    }

    fn more(slot: u64, arguments: &str) -> Delta {
        let arguments = arguments.into();
        Delta::ToolCall(CallPiece { slot, arguments, ..CallPiece::default() })
    }

    fn text() -> Delta {
        Delta::Text("a".into())
    }

    #[track_caller]
    fn check(told: &[Delta], want: &[Delta]) {
        let stop = Delta::Stop(StopReason::ToolUse);
        let want = [want, std::slice::from_ref(&stop)].concat();
        for size in [1, told.len() + 1] {
            let mut decoder = Once::new(Telling([told, std::slice::from_ref(&stop)].concat()));
            let mut got = Vec::new();
            while !decoder.decoder.0.is_empty() {
                assert!(decoder.feed(&vec![b'x'; size], &mut got).is_ok());
            }
            assert_eq!(got, want);
            assert!(decoder.end(&mut got).is_err(), "what is wrong is passed on");
        }
    }

    #[test]
    fn a_call_that_is_told_again_is_one() {
        let one = piece(0, "x", "{\"a\":[1]}");
        let signature = || Delta::Signature("s".into());
        let again = |it: &str| vec![one.clone(), piece(1, "x", it), text()];
        let want = [one.clone(), text()];
        for same in ["{\"a\":[1]}", " {\"a\": [1]}\n", "", "{\"a\""] {
            check(&again(same), &want);
        }
        let pieces = [piece(1, "x", ""), more(1, "{\"a\":"), more(1, "[1]}"), signature(), text()];
        check(&[std::slice::from_ref(&one), &pieces].concat(), &want);
        let other = piece(2, "y", "{\"a\":[1]}");
        let third = piece(3, "x", "{\"a\":[1]}");
        check(&[one.clone(), other.clone(), third], &[one, other]);
    }

    #[test]
    fn a_call_that_broke_off_and_begins_anew_is_one() {
        let begun = piece(0, "x", "{\"a\":");
        let want = [begun.clone(), text(), more(0, "[1]}")];
        check(&[begun.clone(), piece(1, "x", "{\"a\":[1]}"), text()], &want);
        let thrice = [piece(1, "x", "{\"a\":[1"), piece(2, "x", "{\"a\":[1]}")];
        let want = [begun.clone(), more(0, "[1"), more(0, "]}")];
        check(&[&[begun], &thrice[..]].concat(), &want);
    }

    #[test]
    fn arguments_that_come_anew_are_those_that_count() {
        let (one, anew) = (piece(0, "x", "{\"a\":1}"), [Delta::Anew(0), more(0, "{\"a\":2}")]);
        let told = [std::slice::from_ref(&one), &anew, &[piece(1, "x", "{\"a\":2}")]].concat();
        check(&told, &told[..3]);
        // Also of a call that is held back.
        let held = [one.clone(), piece(1, "x", "{\"a\":3}"), Delta::Anew(1), more(1, "{\"a\":2}")];
        check(&held, &[one, piece(1, "x", "{\"a\":2}")]);
    }

    #[test]
    fn calls_that_only_look_alike_are_several() {
        let two =
            |one: &str, other: &str| [piece(0, one, "{\"a\":1}"), piece(1, other, "{\"a\":1}")];
        check(&two("x", "y"), &two("x", "y"));
        check(&two("", ""), &two("", ""));
        // Some servers give all calls one id.
        let same_id = [piece(0, "x", "{}"), piece(1, "x", "{\"a\":1}"), piece(2, "x", "{\"a\":2}")];
        check(&same_id, &same_id);
    }

    #[test]
    fn a_call_that_was_held_back_keeps_its_opaque_data() {
        let sign = |it: &str| Delta::Signature(it.into());
        let told = [
            piece(0, "x", "{}"),
            sign("1"),
            piece(1, "x", "{\"a\""),
            sign("2"),
            text(),
            sign("3"),
            more(1, ":1}"),
            sign("4"),
        ];
        let want = [
            piece(0, "x", "{}"),
            sign("1"),
            text(),
            sign("3"),
            piece(1, "x", "{\"a\":1}"),
            sign("24"),
        ];
        check(&told, &want);
    }
}
