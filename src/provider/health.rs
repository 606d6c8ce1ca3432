//! Which models cool down, for all sessions and all processes of a home, in
//! `provider-health.json`. What is asked of it on the way to a model costs a
//! look at whether the file has changed; it is written only when something
//! does. Should that fail, what is known stays known in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Fault;
use crate::clock::Time;
use crate::config::state_file::{self, aside, replace};
use crate::config::{Home, ModelRef};
use crate::error::{During, Kind, Result};
use crate::secret::Redactor;

/// How long a model cools down that was told to, and not for how long.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// The longest that one cools down. What lies further ahead was written by a
/// clock that was wrong.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// Models that are remembered at most.
const MOST_MODELS: usize = 1_000;

/// How long another process may hold the file.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Which models cool down.
pub struct Health {
    file: PathBuf,
    lock: PathBuf,
    redactor: Redactor,
    known: Mutex<Known>,
}

/// A model that cools down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cooling {
    /// For how long still; never 0.
    pub rest: Duration,
    /// What its provider said.
    pub why: Option<String>,
}

/// What this process knows.
#[derive(Default)]
struct Known {
    models: Models,
    /// Which state of the file that is from.
    seen: Option<Stamp>,
    /// Models of which the file does not know what is known here.
    unsaved: BTreeSet<String>,
}

/// By `provider/model`.
type Models = BTreeMap<String, Entry>;

/// Tells two states of a file apart: it is only ever replaced.
type Stamp = (u64, u64, i64, i64);

/// What is known of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
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
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    providers: Map<String, Value>,
    last_updated: String,
}

impl Health {
    /// The health of a home's models; nothing is read yet. Known secrets are
    /// kept out of the file.
    pub fn new(home: &Home, redactor: Redactor) -> Self {
        let (file, lock) = (home.provider_health(), home.provider_health_lock());
        Self { file, lock, redactor, known: Mutex::default() }
    }

    /// How long a model still cools down, if it does.
    pub fn cooling(&self, model: &ModelRef, now: Time) -> Option<Cooling> {
        let mut known = self.known();
        self.look(&mut known, now);
        known.models.get(&model.to_string())?.cooling(now)
    }

    /// The model answered a call that began then: it is healthy, unless it was
    /// told to cool down meanwhile.
    pub fn answered(&self, model: &ModelRef, began: Time) {
        let name = model.to_string();
        let mut known = self.known();
        let is_marked = |it: &Entry| it.is_marked() && it.limited_at().is_none_or(|at| at < began);
        if known.models.get(&name).is_some_and(is_marked) {
            self.change(&mut known, &name, began, Entry::recover);
        }
    }

    /// The model failed.
    pub fn failed(&self, model: &ModelRef, fault: &Fault, now: Time) {
        let wait = match fault {
            Fault::RateLimited(millis, _) => {
                Some(millis.map_or(DEFAULT_WAIT, Duration::from_millis).min(LONGEST))
            }
            _ => None,
        };
        let why = self.redactor.mask(&fault.to_string()).into_owned();
        let mut known = self.known();
        self.change(&mut known, &model.to_string(), now, |it| it.fail(why, wait, now));
    }

    /// Changes what is known of a model, here and in the file.
    fn change(&self, known: &mut Known, name: &str, now: Time, change: impl FnOnce(&mut Entry)) {
        let held = self.hold(known, now);
        change(known.models.entry(name.to_owned()).or_default());
        forget_healthy(&mut known.models, now);
        let written = held.and_then(|held| {
            let written = self.write(&known.models, now);
            drop(held);
            written
        });
        match written {
            Ok(stamp) => {
                known.seen = stamp;
                known.unsaved.clear();
            }
            Err(error) => {
                known.unsaved.insert(name.to_owned());
                log::warn!("{error}; this process remembers it until it ends");
            }
        }
    }

    /// Locks the file and reads what others wrote.
    fn hold(&self, known: &mut Known, now: Time) -> Result<state_file::Held> {
        let held = state_file::lock(&self.lock, LOCK_WAIT)?;
        let models = match self.read()? {
            Text::Models(models) => models,
            Text::Absent => Models::new(),
            Text::Damaged => self.set_aside(now)?,
        };
        known.take(models);
        Ok(held)
    }

    /// Takes over what others wrote, if they did.
    fn look(&self, known: &mut Known, now: Time) {
        let stamp = self.stamp();
        if stamp == known.seen {
            return;
        }
        let read = match self.read() {
            // Not without the lock: it may be sound by now.
            Ok(Text::Damaged) => self.hold(known, now).map(drop),
            Ok(Text::Models(models)) => {
                known.take(models);
                Ok(())
            }
            Ok(Text::Absent) => {
                known.take(Models::new());
                Ok(())
            }
            Err(error) => Err(error),
        };
        known.seen = stamp;
        if let Err(error) = read {
            log::warn!("{error}; models are asked as if none cooled down");
        }
    }

    fn read(&self) -> Result<Text> {
        let what = || format!("read {}", self.file.display());
        match state_file::read(&self.file, LARGEST) {
            Ok(None) => Ok(Text::Absent),
            Ok(Some(bytes)) => Ok(parse(&bytes).map_or(Text::Damaged, Text::Models)),
            Err(error) if error.kind() == io::ErrorKind::Other => Ok(Text::Damaged),
            Err(error) => Err(error).during(Kind::Internal, what()),
        }
    }

    /// Puts a damaged file out of the way. What this process knows is all that
    /// there is then.
    fn set_aside(&self, now: Time) -> Result<Models> {
        let aside = aside(&self.file, "corrupt", now);
        let (file, to) = (self.file.display(), aside.display());
        std::fs::rename(&self.file, &aside)
            .during(Kind::Internal, format!("set aside the damaged {file}"))?;
        log::warn!("{file} did not read; it is now {to}, and no model is known to cool down");
        Ok(Models::new())
    }

    fn write(&self, models: &Models, now: Time) -> Result<Option<Stamp>> {
        let what = || format!("write {}", self.file.display());
        let providers =
            models.iter().map(|(name, it)| Ok((name.clone(), serde_json::to_value(it)?)));
        let providers: serde_json::Result<_> = providers.collect();
        let document = Document {
            providers: providers.during(Kind::Internal, what())?,
            last_updated: now.to_string(),
        };
        let write = |file: &mut io::BufWriter<std::fs::File>| {
            serde_json::to_writer_pretty(&mut *file, &document)?;
            file.write_all(b"\n")
        };
        replace(&self.file, write).during(Kind::Internal, what())?;
        Ok(self.stamp())
    }

    fn stamp(&self) -> Option<Stamp> {
        let found = std::fs::symlink_metadata(&self.file).ok()?;
        Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// What the file says, but for what it does not know yet.
    fn take(&mut self, mut models: Models) {
        for name in &self.unsaved {
            if let Some(entry) = self.models.remove(name) {
                models.insert(name.clone(), entry);
            }
        }
        self.models = models;
    }
}

impl Entry {
    fn cooling(&self, now: Time) -> Option<Cooling> {
        let until = Time::parse(self.retry_after.as_deref()?)?;
        let millis = u64::try_from(until.unix_millis().saturating_sub(now.unix_millis())).ok()?;
        let rest = Duration::from_millis(millis);
        let is_sound = !rest.is_zero() && rest <= LONGEST;
        is_sound.then(|| Cooling { rest, why: self.last_error.clone() })
    }

    fn limited_at(&self) -> Option<Time> {
        Time::parse(self.rate_limited_at.as_deref()?)
    }

    /// Whether there is something to recover from.
    fn is_marked(&self) -> bool {
        self.consecutive_failures > 0
            || self.rate_limited_at.is_some()
            || self.retry_after.is_some()
    }

    fn recover(&mut self) {
        *self = Self { extra: std::mem::take(&mut self.extra), ..Self::default() };
    }

    fn fail(&mut self, why: String, wait: Option<Duration>, now: Time) {
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        self.last_error = Some(why);
        if let Some(wait) = wait {
            self.rate_limited_at = Some(now.to_string());
            self.retry_after = Some(after(now, wait).to_string());
        }
    }
}

/// What a file holds.
enum Text {
    Models(Models),
    Absent,
    Damaged,
}

/// The models of a file; `None` if it is damaged. An entry that does not read
/// says nothing.
fn parse(bytes: &[u8]) -> Option<Models> {
    let document: Document = serde_json::from_slice(bytes).ok()?;
    let entries = document.providers.into_iter();
    Some(entries.filter_map(|(name, it)| Some((name, serde_json::from_value(it).ok()?))).collect())
}

/// Models come and go with configurations; those that do not cool down are
/// forgotten once there are too many.
fn forget_healthy(models: &mut Models, now: Time) {
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

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Health").field(&self.file).finish()
    }
}
