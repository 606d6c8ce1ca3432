//! Sessions: one conversation of one agent, in pi's file format.
//! [`Session`] is a value (the context that a model is given, and the entries
//! it is made of); it is moved into the turn that works on it and does no I/O.
//! [`Store`] finds, lists, makes and removes the files; a [`Conversation`] is a
//! session with its locked file, and what is appended to one is appended to
//! both. Files are only ever appended to; what is not understood stays as it is.

mod backwards;
mod context;
mod conversation;
mod cut;
mod entry;
mod estimate;
mod history;
mod keyed;
mod list;
mod map;
#[cfg(test)]
mod random;
mod scan;
mod settings;
mod shorten;
mod store;
mod walk;

use std::borrow::Cow;

pub use context::compaction_note;
pub use conversation::Conversation;
pub use entry::{Body, Entry, Header};
pub use estimate::{tokens_of, tokens_of_text};
pub use history::{Page, Told, tell_backwards};
pub use keyed::Keyed;
pub use list::{Listed, Which};
pub use settings::LARGEST_OF_ONE;
pub use shorten::{head_and_tail, shortened};
pub use store::{Found, Store};

use serde_json::Value;

use crate::clock::Time;
use crate::config::ModelRef;
use crate::error::{Error, Kind, Result};
use crate::message::{Message, ToolCall};

/// Longest session key, in characters.
pub const LONGEST_KEY: usize = 200;

/// A conversation: what of it a model is given, and the entries from where
/// that begins to the leaf.
#[derive(Clone, Debug, Default)]
pub struct Session {
    header: Header,
    messages: Vec<Message>,
    steps: Vec<Step>,
    /// What the first message stands in for, in short, if it stands in for
    /// something.
    summary: Option<String>,
    /// What providers counted in the messages before holds no longer.
    counted_from: usize,
    model: Option<ModelRef>,
    marks: Vec<Mark>,
}

/// What a compaction makes of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Split<'a> {
    /// What was compacted before; it is not among the older messages.
    pub summary: Option<&'a str>,
    /// What is to be summarised.
    pub older: &'a [Message],
    /// What stays, from the entry `first_kept` on.
    pub newer: &'a [Message],
    /// That entry's id.
    pub first_kept: &'a str,
}

/// An entry, of which the message is held among the others.
#[derive(Clone, Debug)]
struct Step {
    id: String,
    /// Number of messages before it.
    at: usize,
}

/// What a provider wrote into the `beige` field of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The provider that answered.
    pub provider: String,
    /// What it wrote.
    pub beige: Value,
}

/// A time of day of which so many digits are left is still one.
const LEAST_DIGITS: usize = 3;

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

/// Whether a word is like the ids of sessions (`yyyymmdd-hhmmss-xxxxxx`), if
/// perhaps a mistyped one, and not like a key (`channel:id`).
fn is_like_an_id(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let digits = |part: &str| part.bytes().filter(u8::is_ascii_digit).count();
    let is_date = (7..=9).contains(&parts[0].len()) && digits(parts[0]) == parts[0].len();
    parts.len() == 3 && is_date && digits(parts[1]) >= LEAST_DIGITS && !word.contains(':')
}

/// What a model is given of a conversation that a client keeps, as
/// [`Session::context`] has it of one that is kept here.
pub fn context_of(messages: Vec<Message>) -> Vec<Message> {
    context::of_strange(messages)
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

    /// Ids of the entries from where the context begins to the leaf.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|it| it.id.as_str())
    }

    /// The newest entry.
    pub fn leaf(&self) -> Option<&str> {
        self.steps.last().map(|it| it.id.as_str())
    }

    /// The model that its last `model_change` names, as far back as was read.
    pub fn model(&self) -> Option<&ModelRef> {
        self.model.as_ref()
    }

    /// What providers wrote into their answers, oldest first, each once, also
    /// those that are compacted away.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// What a model is given: user messages, answers and results only, each
    /// call followed by its result, each result preceded by its call.
    pub fn context(&self) -> Cow<'_, [Message]> {
        context::of(&self.messages)
    }

    /// The calls of the last answer that have no result.
    pub fn open_calls(&self) -> Vec<ToolCall> {
        context::open_calls(&self.messages)
    }

    /// Number of messages that the context begins with and that stand for what
    /// was compacted away.
    pub fn summaries(&self) -> usize {
        usize::from(self.summary.is_some())
    }

    /// Tokens of the context: what a provider counted last, and an estimate of
    /// the rest. `beside` is what is sent beside the messages.
    pub fn tokens(&self, beside: u64) -> u64 {
        estimate::of_context(&self.messages, self.counted_from, beside)
    }

    /// Parts the conversation for a compaction, so that the newest `keep`
    /// tokens stay, about, by the measure of [`Self::tokens`]. `None` where
    /// there is nothing to summarise.
    pub fn split(&self, keep: u64, beside: u64) -> Option<Split<'_>> {
        let by_length = estimate::tokens_of(&self.messages);
        let counted = self.tokens(beside).saturating_sub(beside).max(1);
        let keep = u128::from(keep) * u128::from(by_length) / u128::from(counted.max(by_length));
        let keep = u64::try_from(keep).unwrap_or(u64::MAX);
        let place = cut::place(&self.messages, self.summaries(), keep)?;
        let (older, newer) = self.messages.split_at(place);
        // Of the entries before that message the last is the message itself.
        let first_kept = self.steps.iter().rev().find(|it| it.at == place)?;
        Some(Split {
            summary: self.summary.as_deref(),
            older: &older[self.summaries()..],
            newer,
            first_kept: &first_kept.id,
        })
    }

    /// The entry that would come next.
    fn next(&self, id: String, body: Body, now: Time) -> Entry {
        let parent_id = self.leaf().map(str::to_owned);
        Entry { id, parent_id, timestamp: now.to_string(), body }
    }

    /// Appends an entry; it becomes the leaf.
    fn push(&mut self, entry: Entry) {
        self.note(&entry.body);
        let message = match entry.body {
            Body::Compaction { summary, first_kept_entry_id, .. } => {
                self.compact(&summary, first_kept_entry_id.as_deref());
                None
            }
            other => context::neutral(other),
        };
        self.add(entry.id, message);
    }

    fn add(&mut self, id: String, message: Option<Message>) {
        self.steps.push(Step { id, at: self.messages.len() });
        self.messages.extend(message);
    }

    /// Puts a summary in the place of all before an entry.
    fn compact(&mut self, summary: &str, first_kept: Option<&str>) {
        let kept = self.steps.iter().position(|it| Some(it.id.as_str()) == first_kept);
        let kept = kept.unwrap_or(self.steps.len());
        let first = self.steps.get(kept).map_or(self.messages.len(), |it| it.at);
        self.steps.drain(..kept);
        for step in &mut self.steps {
            step.at = step.at - first + 1;
        }
        self.messages.splice(..first, [context::compaction_note(summary)]);
        self.summary = Some(summary.to_owned());
        self.counted_from = self.messages.len();
    }

    /// Remembers of an entry what must be known when it is no longer held.
    fn note(&mut self, body: &Body) {
        match body {
            Body::ModelChange { provider, model_id, .. } => {
                let (provider, model) = (provider.clone(), model_id.clone());
                self.model = Some(ModelRef { provider, model });
            }
            _ => {
                let new = Mark::in_entry(body).filter(|it| !self.marks.contains(it));
                self.marks.extend(new);
            }
        }
    }
}

impl Mark {
    fn in_entry(body: &Body) -> Option<Self> {
        match body {
            Body::Message { message: Message::Assistant(answer), .. } => {
                let beige = answer.beige.clone()?;
                Some(Self { provider: answer.provider.clone(), beige })
            }
            Body::Compaction { extra, .. } => {
                let of = extra.get("beige")?;
                let provider = of.get("provider")?.as_str()?.to_owned();
                Some(Self { provider, beige: of.get("mark")?.clone() })
            }
            _ => None,
        }
    }

    /// The fields of a compaction whose summary a provider wrote, with what it
    /// marked it by.
    fn to_entry(&self) -> Value {
        serde_json::json!({ "provider": self.provider, "mark": self.beige })
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
    fn an_id_is_told_from_a_key_also_when_it_is_mistyped() {
        for id in ["20261130-041634-k8kod2", "2026113-041634-k8kod2", "20261130-O41634-k8kd2"] {
            assert!(is_like_an_id(id), "{id}");
        }
        for key in [
            "tui:travel:default",
            "nope",
            "2026-11-30",
            "20261130",
            "20261130-report-final",
            "api:20261130-041634-k8kod2",
            "55028400-e29b-41d4-a716-446655440000",
        ] {
            assert!(!is_like_an_id(key), "{key}");
        }
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
            let leaf = session.leaf().map(str::to_owned);
            let entry = session.next(id.into(), body, now);
            assert_eq!(entry.parent_id, leaf);
            session.push(entry);
        }
        assert_eq!(session.leaf(), Some("b"));
        assert_eq!(session.model(), Some(&ModelRef { provider: "p".into(), model: "b".into() }));
    }

    #[test]
    fn a_compaction_stands_in_for_what_is_before_the_first_kept_entry() {
        let now = Time::from_unix_millis(0);
        let mut session = Session::new(Header::default());
        let push = |session: &mut Session, id: &str, body| {
            session.push(session.next(id.into(), body, now));
        };
        let compaction = |kept: &str| Body::Compaction {
            summary: "S".into(),
            first_kept_entry_id: Some(kept.into()),
            first_kept_entry_index: None,
            extra: serde_json::Map::new(),
        };
        let texts = |session: &Session| {
            let text = |it: &Message| match it {
                Message::User(it) => it.content.text(),
                other => format!("{other:?}"),
            };
            session.context().iter().map(text).collect::<Vec<_>>()
        };
        for id in ["a", "b"] {
            push(&mut session, id, Body::message(Message::user(id, now)));
        }
        push(&mut session, "c", compaction("b"));
        push(&mut session, "d", Body::message(Message::user("d", now)));
        assert_eq!(session.ids().collect::<Vec<_>>(), ["b", "c", "d"]);
        assert!(texts(&session)[0].contains("<summary>\nS\n</summary>"));
        assert_eq!(texts(&session)[1..], ["b", "d"]);
        push(&mut session, "e", compaction("d"));
        assert_eq!(texts(&session)[1..], ["d"]);
        push(&mut session, "f", compaction("nowhere"));
        assert_eq!(texts(&session).len(), 1);
    }
}
