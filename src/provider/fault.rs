//! How a call that came to no whole answer has failed. What happens next hangs
//! on the kind; the text is for people.

use std::fmt;

use super::LargePlace;
use crate::message::Assistant;

/// Why there is no whole answer. What happens next hangs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The provider wants us to wait: milliseconds, if it says how long.
    RateLimited(Option<u64>, String),
    /// It cannot answer now: overloaded, 5xx, not reached.
    Unavailable(String),
    /// It cannot answer now: it takes longer than it may.
    Slow(String),
    /// The answer ended before its end.
    Cut(String),
    /// It will not answer this: key, model, request.
    Refused(String),
    /// The conversation is longer than the model reads.
    TooLong(String),
    /// It does not take its own opaque data back, such as a signature of a
    /// thought.
    Stale(String),
    /// It was called off.
    Cancelled,
    /// Nothing at all happened for as long as a turn may be silent.
    Inactive(String),
    /// The fault is on our side, such as a cassette that does not read; another
    /// model would not help.
    Ours(String),
}

/// A call that came to no whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Why.
    pub fault: Fault,
    /// What had come by then, without tool calls: those of a cut answer are
    /// neither run nor stored.
    pub partial: Assistant,
    /// What it has if that is large; kept until it is stored.
    pub large: Option<LargePlace>,
}

impl Fault {
    /// The word for it in events and error answers.
    pub fn category(&self) -> &'static str {
        match self {
            Self::RateLimited(..) => "rate_limit",
            Self::Unavailable(_) | Self::Slow(_) => "unavailable",
            Self::Cut(_) => "cut",
            Self::Refused(_) => "refused",
            Self::TooLong(_) => "context_length",
            Self::Stale(_) => "refused",
            Self::Cancelled => "aborted",
            Self::Inactive(_) => "inactive",
            Self::Ours(_) => "internal",
        }
    }

    /// The same fault in other words.
    pub(super) fn map_text(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::RateLimited(wait, text) => Self::RateLimited(wait, words(text)),
            Self::Unavailable(text) => Self::Unavailable(words(text)),
            Self::Slow(text) => Self::Slow(words(text)),
            Self::Cut(text) => Self::Cut(words(text)),
            Self::Refused(text) => Self::Refused(words(text)),
            Self::TooLong(text) => Self::TooLong(words(text)),
            Self::Stale(text) => Self::Stale(words(text)),
            Self::Cancelled => Self::Cancelled,
            Self::Inactive(text) => Self::Inactive(words(text)),
            Self::Ours(text) => Self::Ours(words(text)),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimited(_, text)
            | Self::Unavailable(text)
            | Self::Slow(text)
            | Self::Cut(text)
            | Self::Refused(text)
            | Self::TooLong(text)
            | Self::Stale(text)
            | Self::Inactive(text)
            | Self::Ours(text) => f.write_str(text),
            Self::Cancelled => f.write_str("the call was called off"),
        }
    }
}
