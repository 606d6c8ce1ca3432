//! A log that cannot be written, is held by another or is none: nothing begins
//! without it, and nothing is lost.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn nothing_begins_while_the_log_cannot_be_written() {
    let place = Place::new();
    let audit = place.open();
    let pending = audit.begin(&entry("x")).unwrap();
    let aside = place.log().with_extension("aside");
    fs::rename(place.log(), &aside).unwrap();
    fs::create_dir(place.log()).unwrap();

    assert!(audit.begin(&entry("refused")).is_err());
    assert!(audit.deny(&entry("refused"), "no").is_err());
    assert!(Audit::open(&place.home, LARGE, 5, Redactor::new()).is_err());
    pending.finish(&Finish { exit_code: Some(7), ..Finish::default() });
    assert!(audit.begin(&entry("refused")).is_err());

    fs::remove_dir(place.log()).unwrap();
    fs::rename(&aside, place.log()).unwrap();
    call(&audit, "y");
    let codes: Vec<Value> = place.records().iter().map(|it| it["exitCode"].clone()).collect();
    assert_eq!(codes, [Value::Null, 7.into(), Value::Null, Value::Null]);
    drop(audit);
    assert!(place.report().is_sound());
}

#[test]
fn a_log_that_became_a_link_is_not_followed_and_nothing_is_lost() {
    let place = Place::new();
    let audit = place.open();
    let pending = audit.begin(&entry("x")).unwrap();
    let aside = place.log().with_extension("aside");
    fs::rename(place.log(), &aside).unwrap();
    symlink("/dev/full", place.log()).unwrap();
    let mode = fs::metadata("/dev/full").unwrap().mode();

    let error = audit.begin(&entry("refused")).err().unwrap().to_string();
    assert!(error.contains("it is a link"), "{error}");
    pending.finish(&Finish::default());
    fs::remove_file(place.log()).unwrap();
    fs::rename(&aside, place.log()).unwrap();
    audit.flush().unwrap();
    assert_eq!(place.records().len(), 2, "what was owed is written");
    assert_eq!(fs::metadata("/dev/full").unwrap().mode(), mode);
    drop(audit);
    assert!(place.report().is_sound());
}

#[test]
fn a_log_that_is_held_by_another_is_refused_at_the_deadline() {
    let place = Place::new();
    let mut other = Lock::open(place.home.logs().join("x.lock")).err().map(drop);
    assert!(other.take().is_some(), "no folder, no lock");
    drop(place.open());
    let mut one = Lock::open(place.home.audit_lock()).unwrap();
    let mut two = Lock::open(place.home.audit_lock()).unwrap();
    let held = one.hold(Instant::now()).unwrap();
    assert_eq!(two.hold(Instant::now()).err().map(|it| it.kind()), Some(Kind::Busy));
    drop(held);
    assert!(two.hold(Instant::now()).is_ok());
}

#[test]
fn a_lock_file_that_was_replaced_still_excludes() {
    let place = Place::new();
    drop(place.open());
    let mut one = Lock::open(place.home.audit_lock()).unwrap();
    fs::remove_file(place.home.audit_lock()).unwrap();
    let mut two = Lock::open(place.home.audit_lock()).unwrap();
    let _held = one.hold(Instant::now()).unwrap();
    assert!(two.hold(Instant::now()).is_err());
}

#[test]
fn what_is_no_log_is_not_built_upon() {
    let place = Place::new();
    drop(place.open());
    fs::write(place.log(), "x".repeat(5_000_000)).unwrap();
    let error = Audit::open(&place.home, LARGE, 5, Redactor::new()).err().unwrap().to_string();
    assert!(error.contains("move the file away"), "{error}");
    assert!(!place.report().is_sound());
    assert_eq!(read(&place.home, &Filter::default(), &mut |_| Ok(true)).unwrap(), 1);
}

#[test]
fn a_log_that_others_may_read_is_taken_from_them() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    drop(place.open());
    fs::set_permissions(place.log(), fs::Permissions::from_mode(0o644)).unwrap();
    drop(place.open());
    assert_eq!(fs::metadata(place.log()).unwrap().mode() & 0o777, 0o600);
}
