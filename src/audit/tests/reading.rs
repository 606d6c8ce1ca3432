//! Choosing records, and following the log as it grows.

use super::*;
use crate::clock::Time;
use crate::worker::Cancel;

#[test]
fn a_filter_chooses_over_all_files_in_order() {
    let place = Place::new();
    let audit = Audit::open(&place.home, 10, 50, Redactor::new()).unwrap();
    audit.deny(&entry("1"), "no").unwrap();
    audit.deny(&Entry { agent: "b".into(), ..entry("2") }, "no").unwrap();
    audit.deny(&Entry { tool: "git".into(), ..entry("3") }, "no").unwrap();
    call(&audit, "4");
    let none = Filter::default();
    assert_eq!(place.args(&none), ["1", "2", "3", "4", "4"]);
    assert_eq!(place.args(&Filter { agent: Some("b".into()), ..none.clone() }), ["2"]);
    assert_eq!(place.args(&Filter { tool: Some("git".into()), ..none.clone() }), ["3"]);
    assert_eq!(place.args(&Filter { denied: true, ..none.clone() }), ["1", "2", "3"]);
    let since = |time| Filter { since: Some(time), ..none.clone() };
    assert_eq!(place.args(&since(Time::from_unix_millis(0))).len(), 5);
    let later = clock::now().unix_millis() + 60_000;
    assert_eq!(place.args(&since(Time::from_unix_millis(later))).len(), 0);
}

#[test]
fn a_reader_that_has_enough_stops() {
    let place = Place::new();
    let audit = place.open();
    (0..3).for_each(|_| call(&audit, "x"));
    let mut count = 0;
    let mut each = |_: &str| {
        count += 1;
        Ok(count < 2)
    };
    read(&place.home, &Filter::default(), &mut each).unwrap();
    assert_eq!(count, 2);
}

#[test]
fn following_goes_on_over_rotation_and_misses_nothing() {
    let place = Place::new();
    let audit = Audit::open(&place.home, 700, 100, Redactor::new()).unwrap();
    call(&audit, "0");
    let mut seen = Vec::new();
    let mut each = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        seen.push(record["seq"].as_u64().unwrap());
        // Each second line read writes two more, over many files.
        if seen.len() % 2 == 0 {
            call(&audit, "more");
        }
        Ok(seen.len() < 40)
    };
    follow(&place.home, &Filter::default(), &Cancel::never(), &mut each).unwrap();
    assert_eq!(seen, (1..=40).collect::<Vec<u64>>());
}

#[test]
fn following_ends_when_it_is_called_off() {
    let place = Place::new();
    let (canceller, cancel) = Cancel::pair();
    canceller.cancel();
    follow(&place.home, &Filter::default(), &cancel, &mut |_| Ok(true)).unwrap();
}
