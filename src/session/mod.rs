//! Sessions: one conversation of one agent, in pi's file format.
//! [`Session`] is a value (the path from the root of the entry tree to its
//! leaf); it is moved into the turn that works on it and does no I/O.
//! [`Store`] finds, makes and locks the files; a [`Conversation`] is a session
//! with its locked file, and what is appended to one is appended to both.
//! Files are only ever appended to; what is not understood stays as it is.

mod context;
mod entry;
mod map;
mod scan;
mod store;

pub use entry::{Body, Entry, Header};
pub use store::{Conversation, Store};

use serde_json::Value;

use crate::clock::Time;
use crate::config::ModelRef;
use crate::error::{Error, Kind, Result};
use crate::message::{Message, ToolCall};

/// Longest session key, in characters.
pub const LONGEST_KEY: usize = 200;

/// A conversation: the entries from where its context begins to its leaf.
#[derive(Clone, Debug, Default)]
pub struct Session {
    header: Header,
    path: Vec<Entry>,
    model: Option<ModelRef>,
    marks: Vec<Mark>,
}

/// What a provider wrote into the `beige` field of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The provider that answered.
    pub provider: String,
    /// What it wrote.
    pub beige: Value,
}

/// Refuses a session key that is empty, too long or holds control characters.
pub fn check_key(key: &str) -> Result<()> {
    let length = key.chars().count();
    if length == 0 || length > LONGEST_KEY || key.chars().any(char::is_control) {
        let what = format!(
            "a session key has 1 to {LONGEST_KEY} characters and no control characters; \
             this one has {length}"
        );
        return Err(Error::new(Kind::Usage, what));
    }
    Ok(())
}

impl Session {
    /// An empty session.
    pub fn new(header: Header) -> Self {
        Self { header, ..Self::default() }
    }

    /// What stands in the first line of its file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The entries from where the context begins to the leaf.
    pub fn path(&self) -> &[Entry] {
        &self.path
    }

    /// The newest entry.
    pub fn leaf(&self) -> Option<&str> {
        self.path.last().map(|it| it.id.as_str())
    }

    /// The model that its last `model_change` names.
    pub fn model(&self) -> Option<&ModelRef> {
        self.model.as_ref()
    }

    /// What providers wrote into their answers, oldest first, also those that
    /// are compacted away.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// What a model is given: user messages, answers and results only, each
    /// call followed by its result, each result preceded by its call.
    pub fn context(&self) -> Vec<Message> {
        context::of_path(&self.path)
    }

    /// The calls of the last answer that have no result.
    pub fn open_calls(&self) -> Vec<ToolCall> {
        context::open_calls(&self.path)
    }

    /// The entry that would come next.
    fn next(&self, id: String, body: Body, now: Time) -> Entry {
        let parent_id = self.leaf().map(str::to_owned);
        Entry { id, parent_id, timestamp: now.to_string(), body }
    }

    /// Appends an entry; it becomes the leaf.
    fn push(&mut self, entry: Entry) {
        self.note(&entry.body);
        self.path.push(entry);
    }

    /// Remembers of an entry what must be known when it is no longer held.
    fn note(&mut self, body: &Body) {
        match body {
            Body::ModelChange { provider, model_id, .. } => {
                let (provider, model) = (provider.clone(), model_id.clone());
                self.model = Some(ModelRef { provider, model });
            }
            Body::Message { message: Message::Assistant(answer), .. } => {
                let mark = |beige| Mark { provider: answer.provider.clone(), beige };
                self.marks.extend(answer.beige.clone().map(mark));
            }
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_key_is(key: &str, sound: bool) {
        assert_eq!(check_key(key).is_ok(), sound, "{key:?}");
    }

    #[test]
    fn keys_are_bounded_and_printable() {
        check_key_is("tui:travel:default", true);
        check_key_is(&"ü".repeat(200), true);
        check_key_is("", false);
        check_key_is(&"x".repeat(201), false);
        check_key_is("a\nb", false);
        check_key_is("a\u{9b}b", false);
    }

    #[test]
    fn an_appended_entry_hangs_on_the_leaf_and_becomes_it() {
        let mut session = Session::new(Header::default());
        let now = Time::from_unix_millis(0);
        for id in ["a", "b"] {
            let body = Body::ModelChange {
                provider: "p".into(),
                model_id: id.into(),
                extra: serde_json::Map::new(),
            };
            session.push(session.next(id.into(), body, now));
        }
        assert_eq!(session.leaf(), Some("b"));
        assert_eq!(session.path()[1].parent_id.as_deref(), Some("a"));
        assert_eq!(session.model(), Some(&ModelRef { provider: "p".into(), model: "b".into() }));
    }
}
