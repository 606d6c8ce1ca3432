//! The printed schema against the loader's own check: on sound files, and on
//! a file with one thing wrong for each row and each rule of the table.

mod validator;

use serde_json::{Value, json};

use self::validator::fits;
use super::json_schema;
use crate::config::check::check;
use crate::config::key_path::KeyPath;
use crate::config::report::Findings;
use crate::config::schema::{Field, ROOT, Shape, Support};

/// Whether the loader's check finds no error; unknown fields are errors if it
/// is to be strict.
fn is_taken(value: &Value, strict: bool) -> bool {
    let mut findings = Findings::default();
    check(value, &ROOT, &KeyPath::default(), &|_| false, &mut findings);
    findings.refuse().is_ok() && (!strict || findings.lines().next().is_none())
}

/// Both say the same of it.
#[track_caller]
fn same(value: &Value, want: bool) {
    for strict in [false, true] {
        assert_eq!(is_taken(value, strict), want, "the loader on {value}");
        assert_eq!(fits(value, &json_schema(strict)), want, "the schema on {value}");
    }
}

/// A file in which every field is given that this version builds.
fn full() -> Value {
    sample(&ROOT)
}

/// A value that fits the shape.
fn sample(shape: &Shape) -> Value {
    match shape {
        Shape::Object(fields) => {
            let built = fields.iter().filter(|it| !matches!(it.support, Support::Later));
            built.map(|it| (it.name.to_owned(), sample_of(it))).collect()
        }
        Shape::Map(_, of) | Shape::FilledMap(_, of) => json!({"name": sample(of)}),
        Shape::List(of) => json!([sample(of)]),
        Shape::Text | Shape::AnyText => json!("text"),
        Shape::Flag => json!(true),
        Shape::Integer(least, _) => json!(least),
        Shape::Number(_, most) => json!(most.min(1.5)),
        Shape::OneOf(known) => json!(known[0]),
        Shape::Either(shapes) => sample(&shapes[0]),
        Shape::Free => json!({"any": ["thing", null]}),
    }
}

fn sample_of(field: &Field) -> Value {
    match field.support {
        Support::Only(values) => serde_json::from_str(values[0]).expect("JSON"),
        _ => sample(&field.shape),
    }
}

#[test]
fn what_the_loader_takes_fits() {
    same(&full(), true);
    let least = json!({
        "llm": {"providers": {"p": {}}},
        "agents": {"a": {"model": {"provider": "p", "model": "m"}, "tools": []}},
    });
    same(&least, true);
    let repository: Value =
        json5::from_str(include_str!("../../../config.json5")).expect("a sound file");
    same(&repository, true);
    let first: Value =
        json5::from_str(include_str!("../../../sandbox/first-config.json5")).expect("a sound file");
    same(&first, true);
}

/// The full file with something else at a place.
fn changed(pointer: &str, value: Value) -> Value {
    let mut file = full();
    *file.pointer_mut(pointer).unwrap_or_else(|| panic!("nothing at {pointer}")) = value;
    file
}

/// The full file with an entry more in an object.
fn added(pointer: &str, key: &str, value: Value) -> Value {
    let mut file = full();
    let object = file.pointer_mut(pointer).and_then(Value::as_object_mut);
    object.unwrap_or_else(|| panic!("no object at {pointer}")).insert(key.into(), value);
    file
}

/// Every place of a value, as pointers.
fn places(value: &Value, pointer: &str, all: &mut Vec<String>) {
    all.push(pointer.to_owned());
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(key, it)| places(it, &format!("{pointer}/{key}"), all));
        }
        Value::Array(items) => {
            let numbered = items.iter().enumerate();
            numbered.for_each(|(index, it)| places(it, &format!("{pointer}/{index}"), all));
        }
        _ => {}
    }
}

#[test]
fn at_every_place_both_refuse_the_same_types() {
    let mut all = Vec::new();
    places(&full(), "", &mut all);
    assert!(all.len() > 60, "{}", all.len());
    let mut refused = 0;
    for pointer in &all {
        for value in [
            Value::Null,
            json!(true),
            json!("odd"),
            json!(""),
            json!([]),
            json!([0]),
            json!({}),
            json!({"odd": 1}),
            json!(-1),
            json!(-2),
            json!(0),
            json!(1),
            json!(0.5),
            json!(200.0),
            json!(1e12),
            json!(1e300),
        ] {
            let file = changed(pointer, value);
            for strict in [false, true] {
                let taken = is_taken(&file, strict);
                refused += usize::from(!taken);
                assert_eq!(fits(&file, &json_schema(strict)), taken, "{pointer} in {file}");
            }
        }
    }
    assert!(refused > all.len() * 10, "{refused}");
}

#[test]
fn a_missing_field_is_refused_where_it_is_needed() {
    for (pointer, field) in [
        ("", "llm"),
        ("", "agents"),
        ("/llm", "providers"),
        ("/agents/name", "model"),
        ("/agents/name", "tools"),
        ("/agents/name/model", "provider"),
    ] {
        let mut file = full();
        let object = file.pointer_mut(pointer).and_then(Value::as_object_mut);
        assert!(object.expect("an object").remove(field).is_some());
        same(&file, false);
    }
}

#[test]
fn an_unknown_field_is_refused_by_the_strict_schema_only() {
    for pointer in ["", "/llm", "/llm/providers/name", "/agents/name/sandbox", "/gateway/log"] {
        let file = added(pointer, "odd", json!(1));
        assert!(is_taken(&file, false) && fits(&file, &json_schema(false)), "{pointer}");
        assert!(!is_taken(&file, true) && !fits(&file, &json_schema(true)), "{pointer}");
    }
}

#[test]
fn names_are_held_to_their_rules() {
    let long = "a".repeat(41);
    for (pointer, good, bad) in [
        ("/agents", &["a", "0", "a_-9"][..], &["", "A", "_a", "-a", "a b", "é", long.as_str()][..]),
        ("/plugins", &["git"], &["read", "sh", "tool-client", "Git", ""]),
        ("/llm/providers", &["A b", "é.:"], &["", "a/b", "a\nb", "\u{85}"]),
        ("/llm/providers/name/headers", &["X-a"], &[""]),
        ("/plugins/name/env", &["a", "_9", "PATH"], &["", "9", "a-b", "é"]),
        ("/agents/name/sandbox/extraEnv", &["A", "MY_PATH"], &["PATH", "HOME", "LD_X", "BEIGE_"]),
    ] {
        let full = full();
        let entry = full.pointer(&format!("{pointer}/name")).or_else(|| {
            full.pointer(pointer).and_then(Value::as_object).and_then(|it| it.values().next())
        });
        let entry = entry.cloned().unwrap_or_else(|| panic!("no entry in {pointer}"));
        good.iter().for_each(|it| same(&added(pointer, it, entry.clone()), true));
        bad.iter().for_each(|it| same(&added(pointer, it, entry.clone()), false));
    }
}

#[test]
fn what_is_not_built_yet_is_refused() {
    same(&added("/agents/name/sandbox", "mask", json!([".env"])), false);
    same(&added("", "guards", json!({})), false);
    same(&changed("/agents/name/sandbox/network", json!({"allow": []})), false);
}

#[test]
fn an_object_that_must_hold_something_is_refused_empty() {
    same(&changed("/agents", json!({})), false);
    same(&changed("/llm/providers", json!({})), false);
    same(&changed("/plugins", json!({})), true);
}

#[test]
fn a_value_that_is_still_to_be_put_in_fits() {
    for pointer in ["/gateway/log/level", "/agents/name/sandbox/runtime", "/gateway/host"] {
        assert!(fits(&changed(pointer, json!("${X:-info}")), &json_schema(true)), "{pointer}");
    }
    assert!(!fits(&changed("/gateway/port", json!("${PORT}")), &json_schema(true)));
}
