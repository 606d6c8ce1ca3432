//! What was done to a log since it was written is found, and told with its place.

use super::*;

#[test]
fn every_changed_byte_is_found() {
    let place = Place::new();
    let audit = place.open();
    call(&audit, "x");
    call(&audit, "\"y\"");
    drop(audit);
    let whole = fs::read(place.log()).unwrap();
    assert_eq!(place.found(), Vec::<String>::new());
    for at in 0..whole.len() {
        for changed in [whole[at] ^ 1, b'\n', 0xff] {
            if changed == whole[at] {
                continue;
            }
            let mut bytes = whole.clone();
            bytes[at] = changed;
            fs::write(place.log(), &bytes).unwrap();
            assert!(!place.report().is_sound(), "byte {at} as {changed}");
        }
    }
}

#[track_caller]
fn check_edit(edit: impl FnOnce(&mut Vec<String>), want: &[&str]) {
    let place = Place::new();
    let audit = place.open();
    (0..5).for_each(|it| audit.deny(&entry(&it.to_string()), "no").unwrap());
    drop(audit);
    let mut lines: Vec<String> = place.text().lines().map(|it| format!("{it}\n")).collect();
    edit(&mut lines);
    fs::write(place.log(), lines.concat()).unwrap();
    assert_eq!(place.found(), want);
}

#[test]
fn what_was_done_to_the_log_is_told_with_its_place() {
    let changed = |line| format!("changed: audit.jsonl line {line} is not what was written");
    check_edit(|_| (), &[]);
    for line in 0..5 {
        let want = changed(line + 1);
        check_edit(|it| it[line] = it[line].replace("\"no\"", "\"ok\""), &[&want]);
        check_edit(|it| it[line] = "{}\n".into(), &[&want]);
    }
    for line in 1..4 {
        let want = changed(line + 1);
        check_edit(|it| it[line] = it[line].replace("\"prev\":\"", "\"prev\":\"f"), &[&want]);
    }
    check_edit(|it| drop(it.remove(2)), &["gap: 1 record is missing before audit.jsonl line 3"]);
    check_edit(
        |it| drop(it.drain(1..4)),
        &["gap: 3 records are missing before audit.jsonl line 2"],
    );
    check_edit(|it| it.truncate(3), &["cut: the log ends at record 3, but record 5 was written"]);
    check_edit(|it| it.clear(), &["cut: the log ends at record 0, but record 5 was written"]);
    check_edit(
        |it| drop(it.drain(..2)),
        &["beginning missing: the records before 3 were not rotated out"],
    );
    check_edit(|it| it.swap(1, 2), &[&changed(2), &changed(3)]);
}

#[test]
fn a_tail_cut_off_under_a_writer_stays_visible() {
    let place = Place::new();
    let audit = place.open();
    call(&audit, "x");
    call(&audit, "y");
    let first = format!("{}\n", place.text().lines().next().unwrap());
    fs::write(place.log(), first).unwrap();
    call(&audit, "z");
    drop(audit);
    assert_eq!(place.found(), ["gap: 3 records are missing before audit.jsonl line 2"]);
}

#[test]
fn a_tail_cut_off_between_two_writers_stays_visible() {
    let place = Place::new();
    call(&place.open(), "x");
    fs::remove_file(place.log()).unwrap();
    call(&place.open(), "z");
    assert_eq!(place.found(), ["beginning missing: the records before 3 were not rotated out"]);
}

#[test]
fn a_file_missing_in_the_middle_is_a_gap() {
    let place = Place::new();
    let audit = Audit::open(&place.home, 10, 5, Redactor::new()).unwrap();
    (0..2).for_each(|_| call(&audit, "x"));
    drop(audit);
    fs::remove_file(place.home.audit_log_rotated(1)).unwrap();
    assert_eq!(place.found(), ["gap: 1 record is missing before audit.jsonl line 1"]);
}

#[test]
fn an_empty_log_is_sound_and_an_unreadable_head_is_told() {
    let place = Place::new();
    assert!(place.report().is_sound());
    drop(place.open());
    assert!(place.report().is_sound());
    fs::write(place.home.audit_head(), "nonsense").unwrap();
    assert!(!place.report().is_sound());
    call(&place.open(), "x");
    assert!(place.report().is_sound());
}
