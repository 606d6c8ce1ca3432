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
use crate::config::{Home, ModelRef, file_lock};
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
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    providers: &'a Models,
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
    let mut document: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    let Value::Object(entries) = document.remove("providers")? else { return None };
    let entries = entries.into_iter();
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

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::config::home::create_private;

    /// 2026-11-30T04:16:34.668Z
    const START: i64 = 1_796_012_194_668;

    /// The moment so many seconds after the start.
    fn at(seconds: i64) -> Time {
        Time::from_unix_millis(START + seconds * 1_000)
    }

    /// A home of its own.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let root =
                std::env::temp_dir().join(format!("beige-health-{name}-{}", std::process::id()));
            create_private(&root.join("data")).expect("a folder");
            Self(root)
        }

        /// As another process has it.
        fn health(&self) -> Health {
            let redactor = Redactor::new();
            redactor.learn("s3cret-key");
            Health::new(&Home::new(&self.0), redactor)
        }

        fn file(&self) -> PathBuf {
            self.0.join("data/provider-health.json")
        }

        fn json(&self) -> Value {
            let text = fs::read_to_string(self.file()).expect("a file");
            serde_json::from_str(&text).expect("JSON")
        }

        fn write(&self, text: &str) {
            fs::write(self.file(), text).expect("written");
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn model(id: &str) -> ModelRef {
        ModelRef { provider: "p".into(), model: id.into() }
    }

    fn limited(seconds: u64) -> Fault {
        Fault::RateLimited(Some(seconds * 1_000), format!("wait {seconds} s"))
    }

    #[track_caller]
    fn check(health: &Health, id: &str, now: i64, want: Option<u64>) {
        let got = health.cooling(&model(id), at(now)).map(|it| it.rest.as_secs());
        assert_eq!(got, want, "{id} at {now}");
    }

    #[test]
    fn a_model_cools_down_as_long_as_it_asks_for_and_alone() {
        let place = Place::new("alone");
        let health = place.health();
        check(&health, "m", 0, None);
        health.failed(&model("m"), &limited(120), at(0));
        check(&health, "m", 0, Some(120));
        check(&health, "m", 119, Some(1));
        check(&health, "m", 120, None);
        check(&health, "n", 0, None);
        health.failed(&model("n"), &Fault::RateLimited(None, "slowly".into()), at(0));
        check(&health, "n", 0, Some(60));
        health.failed(&model("o"), &limited(1_000_000), at(0));
        check(&health, "o", 0, Some(86_400));
        for fault in [Fault::Unavailable("x".into()), Fault::Refused("x".into())] {
            health.failed(&model("q"), &fault, at(0));
            check(&health, "q", 0, None);
        }
    }

    #[test]
    fn the_file_has_the_form_that_others_know() {
        let place = Place::new("form");
        let health = place.health();
        health.failed(&model("m"), &limited(60), at(0));
        health.failed(&model("n"), &Fault::Refused("the key s3cret-key is wrong".into()), at(1));
        health.failed(&model("n"), &Fault::Cut("cut".into()), at(2));
        let want = json!({
            "providers": {
                "p/m": {"consecutiveFailures": 1, "rateLimitedAt": "2026-11-30T04:16:34.668Z",
                    "retryAfter": "2026-11-30T04:17:34.668Z", "lastError": "wait 60 s"},
                "p/n": {"consecutiveFailures": 2, "lastError": "cut"},
            },
            "lastUpdated": "2026-11-30T04:16:36.668Z",
        });
        assert_eq!(place.json(), want);
        health.failed(&model("n"), &Fault::Refused("the key s3cret-key is wrong".into()), at(3));
        assert_eq!(place.json()["providers"]["p/n"]["lastError"], "the key •••• is wrong");
        assert_eq!(fs::read_dir(place.0.join("data")).expect("a folder").count(), 2);
    }

    #[test]
    fn a_file_of_another_program_is_understood_and_kept() {
        let place = Place::new("foreign");
        place.write(
            r#"{"providers": {"p/m": {"consecutiveFailures": 1, "x": [1],
                "rateLimitedAt": "2026-11-30T04:16:30.668+00:00",
                "retryAfter": "2026-11-30T05:17:34.668+01:00", "lastError": "429 {}"},
                "p/odd": 7, "p/odder": {"retryAfter": 9}, "p/none": {}},
                "lastUpdated": "2026-11-30T04:34:02.061+00:00"}"#,
        );
        let health = place.health();
        check(&health, "m", 0, Some(60));
        for id in ["odd", "odder", "none"] {
            check(&health, id, 0, None);
        }
        health.failed(&model("n"), &limited(5), at(0));
        let entry = &place.json()["providers"]["p/m"];
        assert_eq!((&entry["x"], &entry["consecutiveFailures"]), (&json!([1]), &json!(1)));
    }

    #[test]
    fn processes_know_of_each_other() {
        let place = Place::new("processes");
        let (one, other) = (place.health(), place.health());
        check(&other, "m", 0, None);
        one.failed(&model("m"), &limited(60), at(0));
        check(&other, "m", 0, Some(60));
        other.failed(&model("n"), &limited(30), at(0));
        check(&one, "n", 0, Some(30));
        check(&one, "m", 0, Some(60));
        check(&place.health(), "m", 10, Some(50));
    }

    #[test]
    fn none_of_many_writers_loses_what_another_wrote() {
        let place = Place::new("writers");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let health = place.health();
                scope.spawn(move || {
                    for number in 0..5 {
                        let model = model(&format!("{writer}-{number}"));
                        health.failed(&model, &limited(60), at(0));
                    }
                });
            }
        });
        let providers = place.json()["providers"].as_object().map(Map::len);
        assert_eq!(providers, Some(20));
    }

    #[test]
    fn who_answers_is_healthy() {
        let place = Place::new("healthy");
        let health = place.health();
        health.answered(&model("m"), at(0));
        assert!(!place.file().exists(), "there was nothing to say");
        health.failed(&model("m"), &Fault::Cut("cut".into()), at(0));
        health.answered(&model("m"), at(1));
        assert_eq!(place.json()["providers"]["p/m"], json!({"consecutiveFailures": 0}));
        let written = health.stamp();
        health.answered(&model("m"), at(2));
        assert_eq!(health.stamp(), written, "nothing has changed");
    }

    /// A call that began before says nothing of what came later.
    #[test]
    fn an_older_answer_ends_no_cool_down() {
        let place = Place::new("older");
        let health = place.health();
        health.failed(&model("m"), &limited(60), at(10));
        health.answered(&model("m"), at(9));
        check(&health, "m", 10, Some(60));
        health.answered(&model("m"), at(71));
        check(&health, "m", 11, None);
    }

    #[test]
    fn a_clock_that_was_wrong_bars_no_model() {
        let place = Place::new("clock");
        let health = place.health();
        health.failed(&model("m"), &limited(60), at(1_000_000_000));
        check(&health, "m", 0, None);
    }

    #[test]
    fn a_damaged_file_is_set_aside_at_the_first_look() {
        for damage in ["{\"providers\":", "[]", "", "\u{0}\u{0}", "{\"providers\":7}"] {
            let place = Place::new("damaged");
            place.write(damage);
            let health = place.health();
            check(&health, "m", 0, None);
            let aside = place.file().with_file_name("provider-health.json.corrupt-20261130-041634");
            assert_eq!(fs::read_to_string(aside).ok().as_deref(), Some(damage));
            health.failed(&model("m"), &limited(60), at(0));
            check(&place.health(), "m", 0, Some(60));
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_damaged() {
        let place = Place::new("large");
        place.write(&format!("{{\"providers\":{{}},\"x\":\"{}\"}}", "x".repeat(1 << 20)));
        let health = place.health();
        health.failed(&model("m"), &limited(60), at(0));
        check(&place.health(), "m", 0, Some(60));
    }

    /// A folder stands in its place, so that it can be neither read nor written.
    #[test]
    fn what_cannot_be_written_is_known_all_the_same() {
        let place = Place::new("unwritten");
        create_private(&place.file()).expect("a folder");
        let health = place.health();
        health.failed(&model("m"), &limited(60), at(0));
        check(&health, "m", 0, Some(60));
        fs::remove_dir(place.file()).expect("removed");
        check(&health, "m", 0, Some(60));
        health.failed(&model("n"), &limited(60), at(0));
        check(&place.health(), "m", 0, Some(60));
    }

    #[test]
    fn models_that_are_long_gone_are_forgotten() {
        let mut models = Models::new();
        let mut cold = Entry::default();
        cold.fail("x".into(), Some(Duration::from_secs(60)), at(0));
        models.insert("cold".into(), cold);
        models.extend((0..MOST_MODELS).map(|it| (it.to_string(), Entry::default())));
        forget_healthy(&mut models, at(0));
        assert_eq!(models.keys().collect::<Vec<_>>(), ["cold"]);
    }
}
