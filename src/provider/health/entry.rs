//! What is known of each model, and the form in which a file has it. Pure.
//! Other programs write the file too: what of it does not read says nothing, and
//! what they add to it stays.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Time;
use crate::message::read_json;

/// The longest that one cools down. What lies further ahead was written by a
/// clock that was wrong.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Models that are remembered at most.
pub(super) const MOST_MODELS: usize = 1_000;

/// By `provider/model`.
pub(super) type Models = BTreeMap<String, Entry>;

/// A model that cools down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cooling {
    /// For how long still; never 0.
    pub rest: Duration,
    /// What its provider said.
    pub why: Option<String>,
}

/// A model's health, for who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// For how long it cools down still; 0 if it does not.
    pub rest: Duration,
    /// What it failed of last.
    pub last_error: Option<String>,
    /// How often it has failed since it answered last.
    pub failures: u64,
}

/// What is known of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Entry {
    consecutive_failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limited_at: Option<String>,
    /// Until when it cools down.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Fields of other programs.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// The file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'a> {
    pub(super) providers: &'a Models,
    pub(super) last_updated: String,
}

impl Entry {
    /// For how long it cools down still, if it does.
    pub(super) fn cooling(&self, now: Time) -> Option<Cooling> {
        let until = Time::parse(self.retry_after.as_deref()?)?;
        let millis = u64::try_from(until.unix_millis().saturating_sub(now.unix_millis())).ok()?;
        let rest = Duration::from_millis(millis);
        let is_sound = !rest.is_zero() && rest <= LONGEST;
        is_sound.then(|| Cooling { rest, why: self.last_error.clone() })
    }

    /// All of it, as it stands now.
    pub(super) fn state(&self, now: Time) -> Condition {
        Condition {
            rest: self.cooling(now).map_or(Duration::ZERO, |it| it.rest),
            last_error: self.last_error.clone(),
            failures: self.consecutive_failures,
        }
    }

    /// When it was last told to cool down.
    pub(super) fn limited_at(&self) -> Option<Time> {
        Time::parse(self.rate_limited_at.as_deref()?)
    }

    /// Whether there is something to recover from.
    pub(super) fn is_marked(&self) -> bool {
        self.consecutive_failures > 0
            || self.rate_limited_at.is_some()
            || self.retry_after.is_some()
    }

    pub(super) fn recover(&mut self) {
        *self = Self { extra: std::mem::take(&mut self.extra), ..Self::default() };
    }

    pub(super) fn fail(&mut self, why: String, wait: Option<Duration>, now: Time) {
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        self.last_error = Some(why);
        if let Some(wait) = wait {
            self.rate_limited_at = Some(now.to_string());
            self.retry_after = Some(after(now, wait).to_string());
        }
    }
}

/// The models of a file; `None` if it is damaged. An entry that does not read
/// says nothing.
pub(super) fn parse(bytes: &[u8]) -> Option<Models> {
    let mut document: Map<String, Value> = read_json(bytes).ok()?;
    let Value::Object(entries) = document.remove("providers")? else { return None };
    let entries = entries.into_iter();
    Some(entries.filter_map(|(name, it)| Some((name, serde_json::from_value(it).ok()?))).collect())
}

/// Models come and go with configurations; those that do not cool down are
/// forgotten once there are too many.
pub(super) fn forget_healthy(models: &mut Models, now: Time) {
    if models.len() > MOST_MODELS {
        models.retain(|_, it| it.cooling(now).is_some());
    }
}

fn after(now: Time, wait: Duration) -> Time {
    let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    Time::from_unix_millis(now.unix_millis().saturating_add(millis))
}

impl fmt::Display for Cooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it cools down for {} s more", self.rest.as_secs_f64().ceil())?;
        match &self.why {
            Some(why) => write!(f, " ({why})"),
            None => Ok(()),
        }
    }
}
