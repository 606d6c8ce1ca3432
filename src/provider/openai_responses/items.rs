//! The items of an answer as their events come. Pure. An event names its item
//! by an id, by a place in the output, or by both; some servers make up a new id
//! for each event, others give every item the same place, so that both are
//! looked at. What came in pieces is not taken again where it stands as a whole;
//! what never came in pieces is taken from there.

mod complete;
mod heard;
mod item;

use serde_json::Value;

use heard::Heard;
use item::{Item, Part, arguments, lack_of, part_of, parts, text_of, whole_text};
pub(super) use item::{Kind, Lack};

use super::opaque;
use crate::provider::events::{MOST_BLOCKS, TooMany};
use crate::provider::field::{number, text};
use crate::provider::think::ThinkSplitter;
use crate::provider::{CallPiece, Delta};

/// The items of one answer on their way.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: Vec<Item>,
    content: ThinkSplitter,
    /// The item that the last delta was of: a signature goes to no other.
    touched: Option<usize>,
    /// Whether thinking came last that cannot be sent back. What follows it
    /// would be refused by its id.
    lacks: bool,
    /// What the first call lacks that is not whole by its own status, which no
    /// other word mends.
    lack: Option<Lack>,
}

impl Items {
    pub(super) fn have_calls(&self) -> bool {
        self.items.iter().any(|it| it.is_told)
    }

    /// What a call lacks, if the answer is whole and it is not.
    pub(super) fn lack(&self) -> Option<Lack> {
        let is_open = self.items.iter().any(Item::is_open_call);
        self.lack.or_else(|| is_open.then_some(Lack::Broken("it never ended")))
    }

    /// An item begins.
    pub(super) fn begin(&mut self, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), TooMany> {
        let Some(item) = event.get("item").filter(|it| it.is_object()) else { return Ok(()) };
        let place = event.get("output_index").and_then(number);
        let number = match self.begun(item, place) {
            Some(number) => number,
            None => self.add(Kind::of(item), text(item, "id"), place, deltas)?,
        };
        if self.items[number].kind == Kind::Call {
            let spare = arguments(item);
            if !spare.is_empty() {
                self.items[number].spare = spare;
            }
            self.name(number, text(item, "call_id"), text(item, "name"), deltas);
        }
        Ok(())
    }

    /// The item that begins here, if it has begun before: told twice, or after
    /// the first piece of it. Arguments that have come say that it is another
    /// one; whether the same call is told again is seen when all calls are there.
    fn begun(&self, item: &Value, place: Option<u64>) -> Option<usize> {
        let kind = Kind::of(item);
        let (id, call_id, name) = (text(item, "id"), text(item, "call_id"), text(item, "name"));
        let agree = |one: &str, other: &str| one.is_empty() || other.is_empty() || one == other;
        self.items.iter().rposition(|it| {
            let is_open = !it.has_ended && (it.heard.is_empty() || it.name.is_empty());
            let is_named = kind == Kind::Call && !call_id.is_empty() && it.own_call_id() == call_id;
            let is_same = match id.is_empty() && it.id.is_empty() {
                false => !id.is_empty() && it.id == id,
                true => kind == Kind::Call && place.is_some() && it.place == place,
            };
            it.kind == kind
                && is_open
                && (is_same || is_named)
                && agree(it.own_call_id(), call_id)
                && agree(&it.name, name)
        })
    }

    /// More of an item of that kind.
    pub(super) fn say(
        &mut self,
        kind: Kind,
        event: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), TooMany> {
        let number = self.of(kind, event, deltas)?;
        self.speak(number, part_of(event), text(event, "delta"), deltas);
        Ok(())
    }

    /// All of a part of an item, which counts if nothing of it came before.
    pub(super) fn say_whole(
        &mut self,
        kind: Kind,
        event: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), TooMany> {
        let number = self.of(kind, event, deltas)?;
        let (part, item) = (part_of(event), &self.items[number]);
        if item.has_ended {
            return Ok(());
        }
        if kind == Kind::Call {
            self.items[number].is_whole = true;
            self.name(number, "", text(event, "name"), deltas);
            self.argue(number, &arguments(event), deltas);
            return Ok(());
        }
        let object = event.get("part").filter(|it| it.is_object());
        // Without a word of the part it is taken to be the one that spoke; a part
        // as an object says nothing that its own events do not.
        let is_same = part == item.part || part.is_none() || item.part.is_none();
        if !item.heard.is_empty() && (is_same || object.is_some()) {
            return Ok(());
        }
        self.speak(number, part, text_of(object.unwrap_or(event)), deltas);
        Ok(())
    }

    /// An item ends, and stands here as a whole.
    pub(super) fn end(&mut self, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), TooMany> {
        let Some(item) = event.get("item").filter(|it| it.is_object()) else { return Ok(()) };
        let place = event.get("output_index").and_then(number);
        let number = self.take_whole(item, place, deltas)?;
        self.items[number].is_whole = true;
        Ok(())
    }

    /// What was held back of the text, since it could have been a tag.
    pub(super) fn flush(&mut self, deltas: &mut Vec<Delta>) {
        self.content.end(deltas);
    }

    /// Adds an item; its number.
    fn add(
        &mut self,
        kind: Kind,
        id: &str,
        place: Option<u64>,
        deltas: &mut Vec<Delta>,
    ) -> Result<usize, TooMany> {
        if self.items.len() == MOST_BLOCKS {
            return Err(TooMany("items"));
        }
        self.flush(deltas);
        self.items.push(Item::new(kind, id, place));
        Ok(self.items.len() - 1)
    }

    /// The item that an event is of; a new one, if none has begun.
    fn of(&mut self, kind: Kind, event: &Value, deltas: &mut Vec<Delta>) -> Result<usize, TooMany> {
        let (id, place) = (text(event, "item_id"), event.get("output_index").and_then(number));
        match self.find(kind, id, place) {
            Some(number) => Ok(number),
            None => self.add(kind, id, place, deltas),
        }
    }

    fn find(&self, kind: Kind, id: &str, place: Option<u64>) -> Option<usize> {
        let last = |fits: &dyn Fn(&Item) -> bool| {
            self.items.iter().rposition(|it| it.kind == kind && fits(it))
        };
        last(&|it| !id.is_empty() && it.id == id)
            .or_else(|| last(&|it| place.is_some() && it.place == place))
            .or_else(|| last(&|it| place.is_none() && !it.has_ended))
    }

    fn speak(&mut self, number: usize, part: Option<Part>, more: &str, deltas: &mut Vec<Delta>) {
        if more.is_empty() {
            return;
        }
        self.touched = Some(number);
        let item = &mut self.items[number];
        item.heard.add(more);
        let is_next = part.is_some() && item.part.is_some() && part != item.part;
        item.part = part.or(item.part);
        match item.kind {
            Kind::Message => {
                let from = deltas.len();
                self.content.feed(more, deltas);
                item.shows |= deltas[from..].iter().any(|it| matches!(it, Delta::Text(_)));
            }
            Kind::Reasoning => {
                let gap = if is_next { "\n\n" } else { "" };
                deltas.push(Delta::Thinking(format!("{gap}{more}")));
            }
            Kind::Call => {
                item.is_told = true;
                deltas.push(piece(number, more));
            }
            Kind::Other => (),
        }
    }

    /// What is still to come of an item whose whole text is known. Where
    /// something else has come, that stands.
    fn speak_rest(&mut self, number: usize, whole: &str, deltas: &mut Vec<Delta>) {
        let rest = self.items[number].heard.rest_of(whole).unwrap_or_default();
        self.speak(number, None, rest, deltas)
    }

    /// The arguments of a call as they stand at its end. Where something else has
    /// come in pieces, that does not count.
    fn argue(&mut self, number: usize, whole: &str, deltas: &mut Vec<Delta>) {
        let item = &mut self.items[number];
        if !whole.is_empty() && item.heard.rest_of(whole).is_none() {
            item.heard = Heard::default();
            deltas.push(Delta::Anew(number as u64));
        }
        self.speak_rest(number, whole, deltas)
    }

    /// The id and the tool of a call, each once.
    fn name(&mut self, number: usize, id: &str, name: &str, deltas: &mut Vec<Delta>) {
        let item = &mut self.items[number];
        let told = |word: &str, known: &mut String| {
            let is_new = !word.is_empty() && known.is_empty();
            is_new.then(|| known.insert_str(0, word)).map(|()| word.to_owned())
        };
        let (id, name) = (told(id, &mut item.call_id), told(name, &mut item.name));
        if id.is_none() && name.is_none() {
            return;
        }
        item.is_told = true;
        self.touched = Some(number);
        let slot = number as u64;
        deltas.push(Delta::ToolCall(CallPiece { slot, id, name, arguments: String::new() }));
    }

    fn take_whole(
        &mut self,
        item: &Value,
        place: Option<u64>,
        deltas: &mut Vec<Delta>,
    ) -> Result<usize, TooMany> {
        let (kind, id) = (Kind::of(item), text(item, "id"));
        let number = match self.find_whole(item, place) {
            Some(number) => number,
            None => self.add(kind, id, place, deltas)?,
        };
        self.end_item(number, item, deltas);
        Ok(number)
    }

    /// The item that stands here as a whole, unless it is another one in the
    /// same place.
    fn find_whole(&self, item: &Value, place: Option<u64>) -> Option<usize> {
        let (id, call_id) = (text(item, "id"), text(item, "call_id"));
        let found = self.find(Kind::of(item), id, place);
        found.filter(|it| !self.items[*it].is_another(id, call_id))
    }

    fn end_item(&mut self, number: usize, item: &Value, deltas: &mut Vec<Delta>) {
        if self.items[number].kind == Kind::Call {
            self.lack = self.lack.or_else(|| lack_of(item));
            self.items[number].is_whole |= text(item, "status") != "in_progress";
        }
        if std::mem::replace(&mut self.items[number].has_ended, true) {
            return;
        }
        match self.items[number].kind {
            Kind::Message => self.end_message(number, item, deltas),
            Kind::Reasoning => self.end_reasoning(number, item, deltas),
            Kind::Call => self.end_call(number, item, deltas),
            Kind::Other => (),
        }
    }

    fn end_message(&mut self, number: usize, item: &Value, deltas: &mut Vec<Delta>) {
        self.speak_rest(number, &whole_text(item), deltas);
        let from = deltas.len();
        std::mem::take(&mut self.content).end(deltas);
        let shows = self.items[number].shows || deltas[from..].iter().any(is_text);
        let mark = opaque::kept_message(item).filter(|_| shows && !self.lacks);
        self.sign(number, mark, deltas)
    }

    fn end_reasoning(&mut self, number: usize, item: &Value, deltas: &mut Vec<Delta>) {
        self.show_reasoning(number, item, deltas);
        let kept = opaque::kept_reasoning(item);
        self.lacks = kept.is_none();
        if let Some(kept) = kept.as_ref().filter(|_| self.items[number].heard.is_empty()) {
            self.touched = Some(number);
            deltas.push(Delta::Redacted(kept.clone()));
            return;
        }
        self.lacks |= self.touched != Some(number);
        self.sign(number, kept, deltas)
    }

    /// What can be seen of a reasoning item, where nothing of it came before.
    fn show_reasoning(&mut self, number: usize, item: &Value, deltas: &mut Vec<Delta>) {
        if !self.items[number].heard.is_empty() {
            return;
        }
        for (is_summary, field) in [(true, "summary"), (false, "content")] {
            for (index, part) in parts(item, field).iter().enumerate() {
                let place = Some((is_summary, index as u64));
                self.speak(number, place, text(part, "text"), deltas);
            }
        }
    }

    fn end_call(&mut self, number: usize, item: &Value, deltas: &mut Vec<Delta>) {
        // A call that says no id of its own has that of its item.
        let ids = ["call_id", "id"].map(|it| text(item, it));
        let id = ids.into_iter().find(|it| !it.is_empty()).unwrap_or_default();
        self.name(number, id, text(item, "name"), deltas);
        self.argue(number, &arguments(item), deltas);
        self.spend_spare(number, deltas);
        let mark = opaque::kept_call(item).filter(|_| !self.lacks);
        if mark.is_some() && self.touched != Some(number) {
            // The signature is of the call whose piece came last.
            self.touched = Some(number);
            self.items[number].is_told = true;
            deltas.push(piece(number, ""));
        }
        self.sign(number, mark, deltas)
    }

    /// Arguments that came with the beginning of a call and never again.
    fn spend_spare(&mut self, number: usize, deltas: &mut Vec<Delta>) {
        let spare = std::mem::take(&mut self.items[number].spare);
        if !self.items[number].heard.is_empty() {
            return;
        }
        self.speak(number, None, &spare, deltas)
    }

    fn sign(&mut self, number: usize, mark: Option<String>, deltas: &mut Vec<Delta>) {
        if let Some(mark) = mark.filter(|_| self.touched == Some(number)) {
            deltas.push(Delta::Signature(mark));
        }
    }
}

fn piece(number: usize, more: &str) -> Delta {
    let slot = number as u64;
    Delta::ToolCall(CallPiece { slot, arguments: more.to_owned(), ..CallPiece::default() })
}

fn is_text(delta: &Delta) -> bool {
    matches!(delta, Delta::Text(_))
}
