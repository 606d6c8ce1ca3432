//! Which models cool down, for all sessions and all processes of a home, in
//! `provider-health.json`. What is asked of it on the way to a model costs a
//! look at whether the file has changed; it is written only when something
//! does. Should that fail, what is known stays known in this process.

mod entry;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use entry::{Condition, Cooling};

use super::Fault;
use crate::clock::Time;
use crate::config::state_file::{self, aside, replace};
use crate::config::{Home, ModelRef, file_lock};
use crate::error::{During, Kind, Result};
use crate::secret::Redactor;
use entry::{Document, Entry, LONGEST, Models, forget_healthy, parse};

/// How long a model cools down that was told to, and not for how long.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// How long another process may hold the file.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// How long the log hears nothing more of a model that refuses.
const QUIET: Duration = Duration::from_secs(60);

/// Records under this target say which model refuses while another one answers:
/// for who runs a gateway. A one-shot tells that itself.
pub const HIDDEN_REFUSALS: &str = "fallback";

/// Which models cool down.
pub struct Health {
    file: PathBuf,
    lock: PathBuf,
    redactor: Redactor,
    known: Mutex<Known>,
}

/// The models that cool down in a home, by `provider/model`. Only looks: a file
/// that does not read says nothing.
pub fn cooling_of(home: &Home, now: Time) -> BTreeMap<String, Cooling> {
    let bytes = state_file::read(&home.provider_health(), LARGEST).ok().flatten();
    let models = bytes.and_then(|it| parse(&it)).unwrap_or_default();
    models.into_iter().filter_map(|(name, it)| Some((name, it.cooling(now)?))).collect()
}

/// What this process knows.
#[derive(Default)]
struct Known {
    models: Models,
    /// Which state of the file that is from.
    seen: Option<Stamp>,
    /// Models of which the file does not know what is known here.
    unsaved: BTreeSet<String>,
    /// When the log last heard that a model refuses; of the last minute.
    logged: BTreeMap<String, Time>,
}

/// Tells two states of a file apart: it is only ever replaced.
type Stamp = (u64, u64, i64, i64);

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

    /// All that is known of a model.
    pub fn state(&self, model: &ModelRef, now: Time) -> Condition {
        let mut known = self.known();
        self.look(&mut known, now);
        known.models.get(&model.to_string()).map(|it| it.state(now)).unwrap_or_default()
    }

    /// Forgets what is known of a model: it is asked as one that never failed.
    pub fn clear(&self, model: &ModelRef, now: Time) {
        let (name, mut known) = (model.to_string(), self.known());
        self.look(&mut known, now);
        if known.models.get(&name).is_some_and(Entry::is_marked) {
            self.change(&mut known, &name, now, Entry::recover);
        }
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

    /// The model refused, and another one answered, which hides it: a line in
    /// the log for who can mend it, at most one a minute and model.
    pub fn tell_hidden(&self, model: &ModelRef, why: &str, answered: &ModelRef, now: Time) {
        if self.known().may_log(model, now) {
            let why = self.redactor.mask(why);
            log::warn!(
                target: HIDDEN_REFUSALS,
                "{model} refuses, and {answered} answers in its place: {why}"
            );
        }
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
    fn hold(&self, known: &mut Known, now: Time) -> Result<file_lock::Held> {
        let held = file_lock::hold(&self.lock, LOCK_WAIT)?;
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
        let document = Document { providers: models, last_updated: now.to_string() };
        let write = |file: &mut io::BufWriter<std::fs::File>| {
            serde_json::to_writer_pretty(&mut *file, &document)?;
            file.write_all(b"\n")
        };
        let what = format!("write {}", self.file.display());
        replace(&self.file, write).during(Kind::Internal, what)?;
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
    /// Whether the log has not heard of that model for a while; it does now.
    fn may_log(&mut self, model: &ModelRef, now: Time) -> bool {
        let since = |then: &Time| now.unix_millis().saturating_sub(then.unix_millis());
        // A clock that was set back must not silence it for long.
        self.logged.retain(|_, it| (0..QUIET.as_millis() as i64).contains(&since(it)));
        match self.logged.contains_key(&model.to_string()) {
            true => false,
            false => self.logged.insert(model.to_string(), now).is_none(),
        }
    }

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

/// What a file holds.
enum Text {
    Models(Models),
    Absent,
    Damaged,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Health").field(&self.file).finish()
    }
}

#[cfg(test)]
mod tests;
