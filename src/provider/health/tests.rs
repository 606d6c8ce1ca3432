//! What is known of models, in this process and in the file.

use std::fs;

use serde_json::{Map, Value, json};

use super::entry::MOST_MODELS;
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
        let root = std::env::temp_dir().join(format!("beige-health-{name}-{}", std::process::id()));
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

#[test]
fn a_look_from_outside_names_who_cools_down_and_changes_nothing() {
    let place = Place::new("outside");
    let home = Home::new(&place.0);
    assert_eq!(cooling_of(&home, at(0)), BTreeMap::new());
    place.health().failed(&model("m"), &limited(60), at(0));
    place.health().failed(&model("n"), &Fault::Unavailable("down".into()), at(0));
    let cooling = cooling_of(&home, at(20));
    assert_eq!(cooling.keys().collect::<Vec<_>>(), ["p/m"]);
    assert_eq!(cooling["p/m"].rest, Duration::from_secs(40));
    assert_eq!(cooling_of(&home, at(60)), BTreeMap::new());
    place.write("no JSON");
    assert_eq!(cooling_of(&home, at(20)), BTreeMap::new());
    assert_eq!(fs::read_to_string(place.file()).ok().as_deref(), Some("no JSON"));
}

#[test]
fn the_log_hears_of_a_refusal_once_a_minute_and_model() {
    let mut known = Known::default();
    let mut may = |id: &str, seconds: i64| known.may_log(&model(id), at(seconds));
    assert!(may("m", 0) && !may("m", 59) && may("n", 59));
    assert!(may("m", 60) && !may("n", 118) && !may("m", 119));
    // A clock that was set back.
    assert!(may("m", -5));
}

#[test]
fn what_is_known_of_a_model_is_told_and_forgotten_on_demand() {
    let place = Place::new("state");
    let health = place.health();
    assert_eq!(health.state(&model("m"), at(0)), Condition::default());
    health.failed(&model("m"), &Fault::Unavailable("down".into()), at(0));
    health.failed(&model("m"), &limited(60), at(0));
    let state = health.state(&model("m"), at(10));
    assert_eq!((state.rest, state.failures), (Duration::from_secs(50), 2));
    assert!(state.last_error.is_some());
    // Another process forgets it.
    place.health().clear(&model("m"), at(10));
    assert_eq!(health.state(&model("m"), at(10)), Condition::default());
    assert_eq!(health.cooling(&model("m"), at(10)), None);
}
