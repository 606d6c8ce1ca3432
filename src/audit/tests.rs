//! Writing, reading and proving together, on real files.
#![allow(clippy::unwrap_used)]

mod reading;
mod refusing;
mod tampering;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::record::{NO_LINE, sha256};
use super::*;
use crate::worker::scoped;

const LARGE: u64 = 1 << 30;

/// A home that is gone with the test.
struct Place {
    home: Home,
}

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("beige-audit-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { home: Home::new(std::env::temp_dir().join(name)) }
    }

    fn open(&self) -> Audit {
        Audit::open(&self.home, LARGE, 5, Redactor::new()).unwrap()
    }

    fn log(&self) -> PathBuf {
        self.home.audit_log()
    }

    fn text(&self) -> String {
        fs::read_to_string(self.log()).unwrap()
    }

    fn records(&self) -> Vec<Value> {
        self.text().lines().map(|it| serde_json::from_str(it).unwrap()).collect()
    }

    fn report(&self) -> Report {
        verify(&self.home, None).unwrap()
    }

    fn found(&self) -> Vec<String> {
        self.report().findings.iter().map(ToString::to_string).collect()
    }

    fn args(&self, filter: &Filter) -> Vec<String> {
        let mut args = Vec::new();
        read(&self.home, filter, &mut |line| {
            let record: Value = serde_json::from_str(line).unwrap();
            args.push(record["args"][0].as_str().unwrap_or_default().to_owned());
            Ok(true)
        })
        .unwrap();
        args
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.home.root());
    }
}

fn entry(arg: &str) -> Entry {
    Entry {
        agent: "a".into(),
        act: Act::Tool,
        tool: "echo".into(),
        args: vec![arg.into()],
        target: Some(Target::Gateway),
        session: None,
        claimed_session: None,
        channel: None,
        model: None,
    }
}

fn call(audit: &Audit, arg: &str) {
    audit.begin(&entry(arg)).unwrap().finish(&Finish::default());
}

#[test]
fn a_call_is_two_lines_of_one_id_and_a_denied_one_is_one() {
    let place = Place::new();
    let audit = place.open();
    let pending = audit.begin(&entry("x")).unwrap();
    assert_eq!(place.records().len(), 1, "the first line stands before the act");
    pending.finish(&Finish { exit_code: Some(3), output_bytes: Some(9), error: Some("e".into()) });
    audit.deny(&entry("y"), "not granted").unwrap();

    let lines = place.records();
    let field = |index: usize, name: &str| lines[index][name].clone();
    assert_eq!(lines.len(), 3);
    assert_eq!((field(0, "phase"), field(1, "phase")), ("started".into(), "finished".into()));
    assert_eq!(field(0, "id"), field(1, "id"));
    assert_ne!(field(0, "id"), field(2, "id"));
    assert_eq!((field(1, "exitCode"), field(1, "outputBytes")), (3.into(), 9.into()));
    assert_eq!(field(0, "prev"), NO_LINE);
    assert_eq!(field(2, "prev"), sha256(place.text().lines().nth(1).unwrap().as_bytes()));
    assert_eq!((field(2, "decision"), field(2, "phase")), ("denied".into(), "finished".into()));
    assert_eq!((field(2, "seq"), field(2, "error")), (3.into(), "not granted".into()));
    assert_eq!(fs::metadata(place.log()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_call_that_is_dropped_was_abandoned() {
    let place = Place::new();
    drop(place.open().begin(&entry("x")).unwrap());
    let lines = place.records();
    assert_eq!((&lines[1]["phase"], &lines[1]["error"]), (&"finished".into(), &"abandoned".into()));
}

#[test]
fn secrets_are_not_in_the_log() {
    let place = Place::new();
    let redactor = Redactor::new();
    let audit = Audit::open(&place.home, LARGE, 5, redactor.clone()).unwrap();
    redactor.learn("s3cret-key");
    let finish = Finish { error: Some("bad s3cret-key".into()), ..Finish::default() };
    audit.begin(&entry("--token=s3cret-key")).unwrap().finish(&finish);
    audit.deny(&entry("x"), "s3cret-key").unwrap();
    assert!(!place.text().contains("s3cret-key"));
    assert_eq!(place.records()[1]["error"], "bad ••••");
}

#[test]
fn nothing_in_an_entry_forges_a_line() {
    let place = Place::new();
    let audit = place.open();
    let forged = "x\n{\"ts\":\"2026\",\"seq\":1}\n\0\r\u{85}\u{2028}";
    let entry = Entry { tool: forged.into(), session: Some(forged.into()), ..entry(forged) };
    audit.deny(&entry, forged).unwrap();
    assert_eq!(place.text().lines().count(), 1);
    assert_eq!(place.records()[0]["tool"], forged);
}

#[test]
fn many_writers_leave_one_chain() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            // Each has files of its own, as another process would.
            let audit = Audit::open(&place.home, 200_000, 100, Redactor::new()).unwrap();
            for thread in 0..2 {
                let audit = audit.clone();
                let arg = format!("{writer}-{thread}");
                scoped(scope, &arg.clone(), move || (0..200).for_each(|_| call(&audit, &arg)))
                    .unwrap();
            }
        }
    });
    let report = place.report();
    assert!(report.is_sound(), "{report}");
    assert_eq!((report.records, report.first, report.last), (3_200, Some(1), Some(3_200)));
    assert!(report.files > 2, "{report}");
}

#[test]
fn rotation_keeps_the_chain_and_so_many_files() {
    let place = Place::new();
    let audit = Audit::open(&place.home, 1_000, 2, Redactor::new()).unwrap();
    (0..20).for_each(|it| call(&audit, &it.to_string()));
    drop(audit);
    let report = place.report();
    assert!(report.is_sound(), "{report}");
    assert_eq!((report.files, report.last), (3, Some(40)));
    assert!(report.first > Some(1));

    // A head kept elsewhere proves nothing once its record is rotated out.
    let last = sha256(place.text().lines().last().unwrap().as_bytes());
    assert_eq!(head(&place.home).unwrap(), Some((Head { seq: 40, hash: last.clone() }, 0)));
    let against = |seq, hash: &str| {
        let kept = Head { seq, hash: hash.into() };
        let report = verify(&place.home, Some(kept)).unwrap();
        assert_eq!(report.kept.map(|it| it.holds), Some(report.is_proven()), "{report}");
        // What is not the log's own says nothing against it.
        assert!(report.is_sound(), "{report}");
        report.is_proven()
    };
    assert!(against(40, &last));
    assert!(!against(1, NO_LINE) && !against(40, NO_LINE) && !against(41, &last));

    // Fewer files are kept: those beyond go.
    let audit = Audit::open(&place.home, 10, 1, Redactor::new()).unwrap();
    call(&audit, "x");
    assert_eq!(place.report().files, 2);
}

#[test]
fn a_number_missing_among_the_files_is_filled_before_any_is_pushed_out() {
    let place = Place::new();
    let audit = Audit::open(&place.home, 10, 3, Redactor::new()).unwrap();
    call(&audit, "x");
    call(&audit, "y");
    // As if the process had died between the last two renames.
    fs::rename(place.log(), place.home.audit_log_rotated(4)).unwrap();
    for number in (1..=4).rev() {
        let _ = fs::rename(
            place.home.audit_log_rotated(number),
            place.home.audit_log_rotated(number + 1),
        );
    }
    fs::rename(place.home.audit_log_rotated(5), place.home.audit_log_rotated(1)).unwrap();
    call(&audit, "z");
    let report = place.report();
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.last, Some(6));
}

#[test]
fn a_torn_line_is_closed_and_told_as_torn() {
    let place = Place::new();
    call(&place.open(), "x");
    let whole = place.text();
    for cut in [1, 2, 40, 120] {
        let torn = format!("{whole}{}", &whole[..cut]);
        fs::write(place.log(), &torn).unwrap();
        let report = place.report();
        assert_eq!((report.records, report.last, report.torn), (2, Some(2), 1), "{report}");
        let last = sha256(whole.lines().last().unwrap().as_bytes());
        assert_eq!(head(&place.home).unwrap(), Some((Head { seq: 2, hash: last }, 1)));
        call(&place.open(), "y");
        assert!(place.text().starts_with(&format!("{torn}\n{{")));
        assert_eq!(
            place.found(),
            ["torn: audit.jsonl line 3 was cut short by a crash or a full disk; the chain holds"]
        );
        let report = place.report();
        assert!(report.is_sound(), "{report}");
        assert_eq!((report.records, report.last), (4, Some(5)));
        fs::remove_file(place.home.audit_head()).unwrap();
    }
}

#[test]
fn a_line_that_lacks_only_its_newline_is_a_record() {
    let place = Place::new();
    call(&place.open(), "x");
    let text = place.text();
    fs::write(place.log(), &text[..text.len() - 1]).unwrap();
    assert_eq!(place.args(&Filter::default()), ["x"]);
    call(&place.open(), "y");
    assert_eq!(
        place.report(),
        Report { records: 4, files: 1, first: Some(1), last: Some(4), ..Report::default() }
    );
}
