//! Walks a configuration along the schema table: wrong types, bounds, names,
//! missing and unknown fields, and what this version does not build. Then puts
//! the table's defaults in, so that whoever reads on finds every field.

use serde_json::{Map, Value};

use crate::config::key_path::KeyPath;
use crate::config::nearest::nearest;
use crate::config::report::Findings;
use crate::config::schema::{Field, Names, Shape, Support};
use crate::config::substitute::is_variable_name;

/// What a value of a field that is not built yet is told.
pub(crate) const NOT_SUPPORTED: &str = "not supported by this version";

/// Longest word that is told, in characters.
const LONGEST_WORD: usize = 32;

/// Names that a plugin, tool or skill may not have.
pub(crate) const RESERVED: [&str; 6] = ["read", "write", "patch", "exec", "tool-client", "sh"];

/// Reports what does not fit the table; nothing below a path in `skip`.
pub(crate) fn check(
    value: &Value,
    shape: &Shape,
    path: &KeyPath,
    skip: &dyn Fn(&KeyPath) -> bool,
    findings: &mut Findings,
) {
    Checker { skip, findings }.value(value, shape, path);
}

/// Puts in the default of every absent field, in every object that is there.
pub(crate) fn complete(value: &mut Value, shape: &Shape) {
    match (value, shape) {
        (Value::Object(object), Shape::Object(fields)) => complete_object(object, fields),
        (Value::Object(object), Shape::Map(_, of) | Shape::FilledMap(_, of)) => {
            object.values_mut().for_each(|it| complete(it, of));
        }
        (Value::Array(items), Shape::List(of)) => {
            items.iter_mut().for_each(|it| complete(it, of));
        }
        _ => {}
    }
}

fn complete_object(object: &mut Map<String, Value>, fields: &[Field]) {
    for field in fields {
        if let (Some(json), false) = (field.default, object.contains_key(field.name)) {
            // A test parses every default of the table.
            let default = serde_json::from_str(json).unwrap_or(Value::Null);
            object.insert(field.name.to_owned(), default);
        }
        if let Some(value) = object.get_mut(field.name) {
            complete(value, &field.shape);
        }
    }
}

struct Checker<'a> {
    skip: &'a dyn Fn(&KeyPath) -> bool,
    findings: &'a mut Findings,
}

impl Checker<'_> {
    fn value(&mut self, value: &Value, shape: &Shape, path: &KeyPath) {
        match (shape, value) {
            (Shape::Object(fields), Value::Object(object)) => self.object(object, fields, path),
            (Shape::Map(names, of), Value::Object(object)) => self.map(object, *names, of, path),
            (Shape::FilledMap(names, of), Value::Object(object)) => {
                if object.is_empty() {
                    self.findings.error(path, "must hold at least one entry");
                }
                self.map(object, *names, of, path);
            }
            (Shape::List(of), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(item, of, &path.index(index));
                }
            }
            (Shape::Either(shapes), _) => match shapes.iter().find(|it| fits(value, it)) {
                Some(shape) => self.value(value, shape, path),
                None => self.wrong_type(value, shape, path),
            },
            (Shape::OneOf(known), Value::String(text)) => self.one_of(text, known, path),
            _ => {
                if !fits(value, shape) {
                    self.wrong_type(value, shape, path);
                } else if let Some(message) = out_of_bounds(value, shape) {
                    self.findings.error(path, message);
                }
            }
        }
    }

    fn object(&mut self, object: &Map<String, Value>, fields: &[Field], path: &KeyPath) {
        for field in fields {
            match object.get(field.name) {
                Some(value) => self.field(value, field, &path.key(field.name)),
                None if field.required => {
                    self.findings.error(&path.key(field.name), "this field is missing");
                }
                None => {}
            }
        }
        for key in object.keys().filter(|key| fields.iter().all(|it| it.name != **key)) {
            let hint = match nearest(key, fields.iter().map(|it| it.name)) {
                Some(known) => format!("; did you mean `{known}`?"),
                None => String::new(),
            };
            self.findings.warn(&path.key(key), format!("unknown field, ignored{hint}"));
        }
    }

    fn field(&mut self, value: &Value, field: &Field, path: &KeyPath) {
        match field.support {
            Support::Full => self.value(value, &field.shape, path),
            Support::Later => self.findings.error(path, NOT_SUPPORTED),
            Support::Only(built) if built.contains(&value.to_string().as_str()) => {}
            Support::Only(built) if is_known(value, &field.shape) => {
                let message = format!("{NOT_SUPPORTED}, which takes only {}", built.join(", "));
                self.findings.error(path, message);
            }
            Support::Only(_) => self.value(value, &field.shape, path),
        }
    }

    fn map(&mut self, object: &Map<String, Value>, names: Names, of: &Shape, path: &KeyPath) {
        for (key, value) in object {
            let path = path.key(key);
            if (self.skip)(&path) {
                continue;
            }
            if let Some(message) = bad_name(key, names) {
                self.findings.error(&path, message);
            }
            self.value(value, of, &path);
        }
    }

    fn one_of(&mut self, text: &str, known: &[&str], path: &KeyPath) {
        if known.contains(&text) {
            return;
        }
        let hint = match nearest(text, known.iter().copied()) {
            Some(known) => format!("; did you mean `{known}`?"),
            None => String::new(),
        };
        let message = format!("expected one of {}, found {}{hint}", known.join(", "), quoted(text));
        self.findings.error(path, message);
    }

    fn wrong_type(&mut self, value: &Value, shape: &Shape, path: &KeyPath) {
        let message = format!("expected {}, found {}", wanted(shape), found(value));
        self.findings.error(path, message);
    }
}

/// Whether the JSON type is right, whatever the value.
fn fits(value: &Value, shape: &Shape) -> bool {
    match shape {
        Shape::Object(_) | Shape::Map(..) | Shape::FilledMap(..) | Shape::Free => value.is_object(),
        Shape::List(_) => value.is_array(),
        Shape::Text | Shape::AnyText | Shape::OneOf(_) => value.is_string(),
        Shape::Flag => value.is_boolean(),
        Shape::Integer(..) => whole_number(value).is_some(),
        Shape::Number(..) => value.is_number(),
        Shape::Either(shapes) => shapes.iter().any(|it| fits(value, it)),
    }
}

/// Whether a value is one that a later version takes.
fn is_known(value: &Value, shape: &Shape) -> bool {
    match (shape, value) {
        (Shape::OneOf(known), Value::String(text)) => known.contains(&text.as_str()),
        _ => fits(value, shape),
    }
}

/// A number without fraction; `1e3` and `200.0` are meant as such.
pub(crate) fn whole_number(value: &Value) -> Option<i64> {
    if let Some(whole) = value.as_i64() {
        return Some(whole);
    }
    let number = value.as_f64()?;
    // Up to here every whole number is exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let is_whole = number.fract() == 0.0 && number.abs() <= EXACT;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the bounds")]
    is_whole.then_some(number as i64)
}

fn out_of_bounds(value: &Value, shape: &Shape) -> Option<String> {
    match shape {
        Shape::Text => {
            value.as_str().is_some_and(str::is_empty).then(|| "must not be empty".into())
        }
        Shape::Integer(least, most) => {
            let inside = whole_number(value).is_some_and(|it| (*least..=*most).contains(&it));
            (!inside).then(|| match *most {
                i64::MAX => format!("must be at least {least}"),
                _ => format!("must be from {least} to {most}"),
            })
        }
        Shape::Number(above, most) => {
            let inside = value.as_f64().is_some_and(|it| it > *above && it <= *most);
            (!inside).then(|| format!("must be more than {above} and at most {most}"))
        }
        _ => None,
    }
}

fn bad_name(name: &str, names: Names) -> Option<String> {
    match names {
        Names::Agent if !is_plain_name(name) => Some(plain_name_rule()),
        Names::Plugin if !is_plain_name(name) => Some(plain_name_rule()),
        Names::Plugin if RESERVED.contains(&name) => {
            Some(format!("the name is reserved (as are {})", RESERVED.join(", ")))
        }
        Names::Provider if name.contains(|it: char| it == '/' || it.is_control()) => {
            Some("a provider's name may not hold `/` or control characters".into())
        }
        Names::Variable | Names::SandboxVariable if !is_variable_name(name) => {
            Some("a variable's name is made of letters, digits and `_`".into())
        }
        Names::SandboxVariable if is_ours(name) => {
            Some("PATH, HOME, LD_* and BEIGE_* are set by the gateway".into())
        }
        _ => name.is_empty().then(|| "the name is empty".into()),
    }
}

fn is_plain_name(name: &str) -> bool {
    let allowed = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || "_-".contains(it);
    name.len() <= 40
        && name.chars().all(allowed)
        && !name.is_empty()
        && !name.starts_with(['_', '-'])
}

fn plain_name_rule() -> String {
    "a name is made of a-z, 0-9, `_` and `-`, begins with a letter or digit \
     and has at most 40 characters"
        .into()
}

fn is_ours(variable: &str) -> bool {
    matches!(variable, "PATH" | "HOME")
        || variable.starts_with("LD_")
        || variable.starts_with("BEIGE_")
}

fn wanted(shape: &Shape) -> String {
    match shape {
        Shape::Object(fields) => object_of(fields),
        Shape::Map(..) | Shape::FilledMap(..) | Shape::Free => "an object".into(),
        Shape::List(_) => "an array".into(),
        Shape::Text | Shape::AnyText => "a string".into(),
        Shape::Flag => "true or false".into(),
        Shape::Integer(..) => "a whole number".into(),
        Shape::Number(..) => "a number".into(),
        Shape::OneOf(known) => format!("one of {}", known.join(", ")),
        Shape::Either(shapes) => {
            // A whole number is a number.
            let is_number = |it: &Shape| matches!(it, Shape::Number(..));
            let has_number = shapes.iter().any(is_number);
            let told = shapes.iter().filter(|it| !(has_number && matches!(it, Shape::Integer(..))));
            told.map(wanted).collect::<Vec<_>>().join(" or ")
        }
    }
}

/// An object in words, with the fields it cannot do without.
fn object_of(fields: &[Field]) -> String {
    let needed: Vec<&str> = fields.iter().filter(|it| it.required).map(|it| it.name).collect();
    if needed.is_empty() {
        return "an object".into();
    }
    format!("an object {{ {} }}", needed.join(", "))
}

/// A word that is none of the known ones. What is longer than a word may be a
/// secret that went to the wrong place.
fn quoted(text: &str) -> String {
    match text.chars().count() {
        0 => "an empty string".into(),
        1..=LONGEST_WORD => format!("`{text}`"),
        count => format!("a string of {count} characters"),
    }
}

/// The type of a value in words; never the value, which may be a secret.
fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null (or a number that is not finite)",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a number with a fraction or too large",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
