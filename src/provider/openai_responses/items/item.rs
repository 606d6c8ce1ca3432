//! One item of an answer, and what the words of its events mean. Pure.

use serde_json::Value;

use super::heard::Heard;
use crate::provider::field::{number, text, written};

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Kind {
    Reasoning,
    Message,
    Call,
    /// What we never asked for.
    Other,
}

/// An item on its way.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) id: String,
    /// Of a call, the id that pairs it with its result, where it was said.
    pub(super) call_id: String,
    /// Of a call, its tool, where it was said.
    pub(super) name: String,
    pub(super) place: Option<u64>,
    /// The text, thinking or arguments of it that have come.
    pub(super) heard: Heard,
    /// The part of it that spoke last, where that was said.
    pub(super) part: Option<Part>,
    /// Whether text of it has come, apart from thinking within.
    pub(super) shows: bool,
    /// Whether its call stands in the answer.
    pub(super) is_told: bool,
    /// Arguments that came with its beginning, in case they come nowhere else.
    pub(super) spare: String,
    pub(super) has_ended: bool,
    /// Of a call, whether its server said that all of it had come.
    pub(super) is_whole: bool,
}

/// A part of an item: of its summary or its content, and which.
pub(super) type Part = (bool, u64);

impl Item {
    pub(super) fn new(kind: Kind, id: &str, place: Option<u64>) -> Self {
        Self {
            kind,
            id: id.to_owned(),
            call_id: String::new(),
            name: String::new(),
            place,
            heard: Heard::default(),
            part: None,
            shows: false,
            is_told: false,
            spare: String::new(),
            has_ended: false,
            is_whole: false,
        }
    }

    /// Whether it is a call of which nobody knows whether all has come: no word
    /// said so, and arguments, which do by themselves, there are none.
    pub(super) fn is_open_call(&self) -> bool {
        self.is_told && !self.is_whole && self.heard.is_empty()
    }

    /// Whether an item of these ids is another one than this, though its place
    /// says that it is the same.
    pub(super) fn is_another(&self, id: &str, call_id: &str) -> bool {
        let differ = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
        if differ(&self.call_id, call_id) {
            return self.call_id != self.id || differ(&self.id, id);
        }
        let is_named = !call_id.is_empty() && self.call_id == call_id;
        self.has_ended && differ(&self.id, id) && !is_named
    }

    /// The id by which a call is paired with its result, if its server gave it
    /// one apart from the item's.
    pub(super) fn own_call_id(&self) -> &str {
        if self.call_id == self.id { "" } else { &self.call_id }
    }
}

impl Kind {
    pub(super) fn of(item: &Value) -> Self {
        match text(item, "type") {
            "reasoning" => Self::Reasoning,
            "message" => Self::Message,
            "function_call" => Self::Call,
            _ => Self::Other,
        }
    }
}

/// What is wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Lack {
    /// It is incomplete, as where the output limit cuts it.
    Incomplete,
    /// It came to nothing, or never to its end.
    Broken(&'static str),
}

/// What its server says of an item that stands here as a whole and is not. Some
/// leave it "in progress" for good, which says nothing.
pub(super) fn lack_of(item: &Value) -> Option<Lack> {
    match text(item, "status") {
        "incomplete" => Some(Lack::Incomplete),
        "failed" => Some(Lack::Broken("`failed`")),
        "cancelled" => Some(Lack::Broken("`cancelled`")),
        _ => None,
    }
}

/// Which part of its item an event is of, where it says so.
pub(super) fn part_of(event: &Value) -> Option<Part> {
    let index = |field: &str| event.get(field).and_then(number);
    let summary = index("summary_index").map(|it| (true, it));
    summary.or_else(|| index("content_index").map(|it| (false, it)))
}

/// A list of parts of an item.
pub(super) fn parts<'a>(item: &'a Value, field: &str) -> &'a [Value] {
    item.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The text of a part of a message, or what the model refuses with.
pub(super) fn text_of(part: &Value) -> &str {
    let fields = ["text", "refusal"].map(|it| text(part, it));
    fields.into_iter().find(|it| !it.is_empty()).unwrap_or_default()
}

/// All that a message says.
pub(super) fn whole_text(item: &Value) -> String {
    match item.get("content") {
        Some(Value::String(it)) => it.clone(),
        _ => parts(item, "content").iter().map(text_of).collect(),
    }
}

/// Arguments as text; some servers give them as an object.
pub(super) fn arguments(said: &Value) -> String {
    written(said.get("arguments"))
}
