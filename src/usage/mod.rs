//! What model calls took: a line for each in `data/usage.jsonl`, whoever asked
//! and however it ended, and the sums over all of them. [`Book`] writes,
//! [`sum()`] adds up, and neither holds more for a longer file.
//!
//! Refuses: judging. What a turn may take is for the turn to say.

mod book;
mod fold;
mod line;
mod sum;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::book::Book;
pub use self::sum::{By, Query, Row, Summary, Tally, sum};

/// A model call that has ended: one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// When it ended, in RFC 3339.
    pub ts: String,
    /// The agent that asked.
    pub agent: String,
    /// The key of its session, where there is one.
    pub session: Option<String>,
    /// The key of the session whose turn pays, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billed_to: Option<String>,
    /// The provider.
    pub provider: String,
    /// The model's id there.
    pub model: String,
    /// What for.
    pub role: Role,
    /// Tokens read anew.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_write: u64,
    /// US dollars; `None` where that is not known.
    pub cost_usd: Option<f64>,
    /// How long it took, waiting in line included, in milliseconds.
    pub duration_ms: u64,
    /// How long until the model said something; `None` if it never did.
    pub first_token_ms: Option<u64>,
    /// The category of what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<&'static str>,
}

/// What a model is called for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// To answer a prompt.
    #[default]
    Main,
    /// To answer an agent.
    Subagent,
    /// To judge a call.
    Audit,
    /// To remember.
    Memory,
    /// To sum a conversation up.
    Compaction,
}
