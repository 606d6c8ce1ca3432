//! The file as it is written and read, with what happens to files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::*;
use crate::clock::Time;
use crate::config::Home;

/// A home of its own.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("beige-usage-{}-{number}", std::process::id())))
    }

    fn home(&self) -> Home {
        Home::new(&self.0)
    }

    fn book(&self) -> Book {
        Book::new(self.home())
    }

    fn text(&self) -> String {
        fs::read_to_string(self.home().usage_log()).unwrap_or_default()
    }

    fn sum(&self, query: &Query) -> Summary {
        sum(&self.home(), query).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn call(number: u64) -> Call {
    Call {
        ts: Time::from_unix_millis(1_796_000_000_000 + i64::try_from(number).unwrap_or(0) * 60_000)
            .to_string(),
        agent: format!("a{}", number % 2),
        session: Some(format!("s{}", number % 7)),
        provider: "p".into(),
        model: "m".into(),
        input: 10,
        output: 1,
        cost_usd: Some(0.25),
        duration_ms: 5,
        ..Call::default()
    }
}

/// The rows as name, calls and costs.
fn rows(summary: &Summary) -> Vec<(String, u64, Option<f64>)> {
    let rows = summary.rows.iter();
    let name = |it: &Row| it.name.clone().unwrap_or("-".into());
    rows.map(|it| (name(it), it.tally.calls, it.tally.known_cost())).collect()
}

#[test]
fn a_call_is_a_line_that_only_its_owner_reads() {
    let place = Place::new();
    place.book().note(&call(0));
    let line: Value = serde_json::from_str(&place.text()).unwrap_or_default();
    let want = json!({"ts": "2026-11-30T00:53:20.000Z", "agent": "a0", "session": "s0",
        "provider": "p", "model": "m", "role": "main", "input": 10, "output": 1, "cacheRead": 0,
        "cacheWrite": 0, "costUsd": 0.25, "durationMs": 5, "firstTokenMs": null});
    assert_eq!(line, want);
    let mode = fs::metadata(place.home().usage_log()).map(|it| it.permissions().mode() & 0o777);
    assert_eq!(mode.ok(), Some(0o600));
}

#[test]
fn many_write_at_once_and_no_line_is_torn() {
    let place = Place::new();
    thread::scope(|scope| {
        for writer in 0..4 {
            let book = place.book();
            scope.spawn(move || (0..50).for_each(|it| book.note(&call(writer * 50 + it))));
        }
    });
    let summary = place.sum(&Query::default());
    assert_eq!((summary.total.calls, summary.damaged), (200, 0));
    assert_eq!(place.text().lines().count(), 200);
}

#[test]
fn sums_are_told_apart_as_is_asked() {
    let place = Place::new();
    let book = place.book();
    (0..4).for_each(|it| book.note(&call(it)));
    book.note(&Call { cost_usd: None, failure: Some("cut"), ..call(4) });
    let by = |by| rows(&place.sum(&Query { by, ..Query::default() }));
    assert_eq!(by(By::Agent), [("a0".into(), 3, Some(0.5)), ("a1".into(), 2, Some(0.5))]);
    assert_eq!(by(By::Model), [("p/m".into(), 5, Some(1.0))]);
    assert_eq!(by(By::Day), [("2026-11-30".into(), 5, Some(1.0))]);
    assert_eq!(by(By::Session).last(), Some(&("s4".into(), 1, None)));
    let total = place.sum(&Query::default()).total;
    assert_eq!((total.failed, total.unpriced, total.tokens()), (1, 1, 55));
    let only = Query { agent: Some("a1".into()), ..Query::default() };
    assert_eq!(place.sum(&only).total.calls, 2);
    let since = Query { since: Time::parse("2026-11-30T00:55:20Z"), ..Query::default() };
    assert_eq!(place.sum(&since).total.calls, 3);
}

#[test]
fn what_an_agent_asked_for_stands_once_and_with_who_pays() {
    let place = Place::new();
    let book = place.book();
    book.note(&call(0));
    book.note(&Call { billed_to: Some("s0".into()), role: Role::Subagent, ..call(1) });
    let by = |by| rows(&place.sum(&Query { by, ..Query::default() }));
    assert_eq!(by(By::Session), [("s0".into(), 2, Some(0.5))]);
    assert_eq!(by(By::Model), [("p/m".into(), 2, Some(0.5))]);
    assert!(place.text().contains(r#""session":"s1","billedTo":"s0""#), "{}", place.text());
}

#[test]
fn what_was_turned_away_makes_no_unknown_cost_nothing() {
    let place = Place::new();
    let book = place.book();
    let turned_away =
        |number| Call { cost_usd: Some(0.0), failure: Some("refused"), ..call(number) };
    book.note(&turned_away(0));
    assert_eq!(place.sum(&Query::default()).total.known_cost(), Some(0.0));
    book.note(&Call { cost_usd: None, ..call(1) });
    assert_eq!(place.sum(&Query::default()).total.known_cost(), None);
    book.note(&call(2));
    assert_eq!(place.sum(&Query::default()).total.known_cost(), Some(0.25));
}

#[test]
fn a_damaged_line_is_counted_and_left_out() {
    let place = Place::new();
    let book = place.book();
    book.note(&call(0));
    let sound = place.text();
    let negative = sound.replace("0.25", "-0.25");
    let timeless = sound.replace("2026-11-30T00:53:20.000Z", "yesterday");
    let long = format!("{{\"agent\":\"{}\"}}\n", "x".repeat(200_000));
    let damaged = format!("nope\n\u{0}\n{negative}{timeless}{long}[]\n{{}}\n");
    let torn = &sound[..30];
    let mut bytes = (sound.clone() + &damaged + &sound).into_bytes();
    bytes.extend(b"\xff\xfe\n");
    bytes.extend(torn.as_bytes());
    assert!(fs::write(place.home().usage_log(), bytes).is_ok());
    let summary = place.sum(&Query::default());
    // The last has no end: somebody is writing it.
    assert_eq!((summary.total.calls, summary.damaged), (2, 8));
    book.note(&call(1));
    let summary = place.sum(&Query::default());
    assert_eq!((summary.total.calls, summary.damaged), (3, 9));
}

#[test]
fn an_old_file_is_summed_up_and_the_sums_stay() {
    let place = Place::new();
    let book = place.book().with_limit(20_000);
    for number in 0..1_000 {
        let unknown = number % 10 == 0;
        let cost_usd = (!unknown).then_some(0.25);
        let failure = unknown.then_some("cut");
        book.note(&Call { cost_usd, failure, ..call(number * 3) });
        if number == 500 {
            let torn = place.text() + "{\"ts\":\n";
            assert!(fs::write(place.home().usage_log(), torn).is_ok());
        }
    }
    let length = place.text().len();
    assert!(length < 21_000, "{length}");
    let first = place.text().lines().next().map(str::to_owned).unwrap_or_default();
    assert!(first.starts_with("{\"folded\":"), "{first}");
    let summary = place.sum(&Query { by: By::Day, ..Query::default() });
    let total = summary.total;
    assert_eq!((total.calls, total.failed, total.unpriced), (1_000, 100, 100));
    assert_eq!((total.input, total.output, total.duration_ms), (10_000, 1_000, 5_000));
    assert_eq!((total.known_cost(), summary.damaged), (Some(225.0), 1));
    let days: Vec<String> = rows(&summary).into_iter().map(|it| it.0).collect();
    assert_eq!(days, ["2026-11-30", "2026-12-01", "2026-12-02"]);
    // The first day is known as a whole, so all of it is told.
    let since = |text| Query { since: Time::parse(text), ..Query::default() };
    let all = place.sum(&since("2026-11-30T23:00:00Z")).total.calls;
    assert_eq!(all, 1_000);
    let later = place.sum(&since("2026-12-01T00:00:00Z")).total.calls;
    assert_eq!(later, 1_000 - rows(&summary)[0].1);
    assert!(!place.home().usage_log().with_extension("jsonl.new").exists());
}

#[test]
fn days_that_cannot_be_summed_up_further_are_not_tried_each_time() {
    let place = Place::new();
    let book = place.book().with_limit(4_000);
    // A model of its own each time: each day line stays.
    for number in 0..200 {
        book.note(&Call { model: format!("m{number}"), ..call(number) });
    }
    let summary = place.sum(&Query::default());
    assert_eq!((summary.rows.len(), summary.total.calls), (200, 200));
    assert!(place.text().len() > 4_000);
}

#[test]
fn of_very_many_names_the_dearest_are_told_apart() {
    let place = Place::new();
    let line = |number: u64| {
        let session = Some(format!("s{number}"));
        let cost_usd = Some(if number == 11_999 {
            9.0
        } else if number == 77 {
            5.0
        } else {
            1.0
        });
        let call = Call { session, cost_usd, ..call(number) };
        serde_json::to_string(&call).unwrap_or_default() + "\n"
    };
    let text: String = (0..12_000).map(line).collect();
    let query = Query { by: By::Session, ..Query::default() };
    let summary = sum::sum_of(text.as_bytes(), &query).unwrap_or_default();
    let rows = rows(&summary);
    assert_eq!((rows.len(), summary.total.calls), (1_000, 12_000));
    assert_eq!(rows[0], ("s77".into(), 1, Some(5.0)));
    assert_eq!(rows[999], ("(others)".into(), 11_001, Some(11_009.0)));
    assert_eq!(place.sum(&query).rows, []);
}

/// Such lines were written while providers were believed.
#[test]
fn tokens_that_cannot_be_are_in_no_sum() {
    let place = Place::new();
    let book = place.book();
    let many = 10_000_000_000_000_000_000;
    book.note(&call(0));
    book.note(&Call { input: many, cost_usd: Some(3e13), ..call(1) });
    book.note(&Call { cache_read: u64::MAX, cost_usd: None, ..call(2) });
    let summary = place.sum(&Query::default());
    let got = (summary.total.calls, summary.total.unpriced, summary.total.tokens());
    assert_eq!(got, (3, 2, 11));
    assert_eq!((summary.total.known_cost(), summary.damaged), (Some(0.25), 0));
    book.note(&Call { cost_usd: Some(1e308), ..call(3) });
    assert_eq!(place.sum(&Query::default()).total.known_cost(), Some(0.25));
    // Nor in one that a day was summed up to.
    let day = json!({"ts": "2026-11-30T00:00:00.000Z", "agent": "a", "provider": "p", "model": "m",
        "calls": 5, "input": many, "output": 1, "cacheRead": 0, "cacheWrite": 0, "costUsd": 9.0});
    let float = day.to_string().replace(&many.to_string(), "1e19");
    let sound = day.to_string().replace(&many.to_string(), "400000000");
    let text = format!("{day}\n{float}\n{sound}\n");
    let summary = sum::sum_of(text.as_bytes(), &Query::default()).unwrap_or_default();
    let got = (summary.total.calls, summary.total.unpriced, summary.total.tokens());
    assert_eq!((got, summary.damaged), ((10, 5, 400_000_001), 1));
}

#[test]
fn what_cannot_be_written_stops_nothing() {
    let place = Place::new();
    let book = place.book();
    book.note(&call(0));
    assert!(fs::remove_file(place.home().usage_log()).is_ok());
    assert!(fs::create_dir(place.home().usage_log()).is_ok());
    book.note(&call(1));
    book.note(&call(2));
    assert!(sum(&place.home(), &Query::default()).is_err());
    assert!(fs::remove_dir(place.home().usage_log()).is_ok());
    book.note(&call(3));
    assert_eq!(place.sum(&Query::default()).total.calls, 1);
}

#[test]
fn a_home_without_calls_has_none() {
    let place = Place::new();
    assert_eq!(place.sum(&Query::default()), Summary::default());
    let want = json!({"by": "model", "rows": [], "damagedLines": 0, "total": {"calls": 0,
        "failed": 0, "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "costUsd": 0.0,
        "callsOfUnknownCost": 0, "durationMs": 0}});
    assert_eq!(place.sum(&Query::default()).document(), want);
}

#[test]
fn a_document_has_a_row_each() {
    let place = Place::new();
    place.book().note(&Call { cost_usd: None, session: None, ..call(0) });
    let summary = place.sum(&Query { by: By::Session, ..Query::default() });
    let figures = json!({"calls": 1, "failed": 0, "input": 10, "output": 1, "cacheRead": 0,
        "cacheWrite": 0, "costUsd": null, "callsOfUnknownCost": 1, "durationMs": 5});
    let mut row = figures.clone();
    row["session"] = Value::Null;
    let want = json!({"by": "session", "rows": [row], "total": figures, "damagedLines": 0});
    assert_eq!(summary.document(), want);
}
