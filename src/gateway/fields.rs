//! What comes in as JSON, read field by field into typed values: bodies of
//! requests and what plugins ask for alike. Pure; every refusal names the field.
//! A field that is `null` is not given; one that is not known is refused with
//! the one that may be meant, so that a typing mistake is seen.

mod conversation;

use serde_json::{Map, Value};

use crate::config::{ModelRef, ThinkingLevel, nearest};
use crate::session::check_key;
pub use conversation::message;

/// What was read, or why it is wrong, for the caller.
pub type Checked<T> = Result<T, String>;

/// Longest name of a thing, in bytes.
pub const LONGEST_NAME: usize = 512;

/// The fields of a model, where they are all there is.
pub const MODEL: &[&str] = &["provider", "modelId"];

/// The fields of a JSON object, taken out one by one.
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Those of an object, none of which is unknown.
    pub fn of(fields: Map<String, Value>, known: &[&str]) -> Checked<Self> {
        match fields.keys().find(|it| !known.contains(&it.as_str())) {
            None => Ok(Self(fields)),
            Some(name) => Err(unknown(name, known)),
        }
    }

    /// Those of an object of others, who may add some.
    pub fn any(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// What a field holds, if it is given.
    pub fn optional<T>(&mut self, name: &str, read: fn(Value) -> Checked<T>) -> Checked<Option<T>> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => within(name, read(value)).map(Some),
        }
    }

    /// What a field holds that must be given.
    pub fn required<T>(&mut self, name: &str, read: fn(Value) -> Checked<T>) -> Checked<T> {
        self.optional(name, read)?.ok_or_else(|| format!("`{name}` is missing"))
    }

    /// `provider` and `modelId`, which the configuration calls `model`.
    pub fn model(&mut self) -> Checked<ModelRef> {
        let (provider, model) = (self.required("provider", name)?, self.required("modelId", name)?);
        Ok(ModelRef { provider, model })
    }
}

/// A field that this request has not, with the one that may be meant: it is near,
/// or begins so, as `modelId` and `timeoutSeconds` do.
fn unknown(name: &str, known: &[&str]) -> String {
    let begins = known.iter().copied().find(|it| !name.is_empty() && it.starts_with(name));
    let hint = match nearest(name, known.iter().copied()).or(begins) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None if known.is_empty() => ", which takes none".to_owned(),
        None => format!(", which takes `{}`", known.join("`, `")),
    };
    format!("`{name}` is not a field of this request{hint}")
}

/// A text.
pub fn text(value: Value) -> Checked<String> {
    match value {
        Value::String(text) if !text.contains('\0') => Ok(text),
        Value::String(_) => Err("must not hold a NUL".into()),
        _ => Err("must be a string".into()),
    }
}

/// A text of one line and at most [`LONGEST_NAME`] bytes, which is not empty.
pub fn name(value: Value) -> Checked<String> {
    let name = text(value)?;
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains(char::is_control) {
        return Err(format!("must have 1 to {LONGEST_NAME} bytes and no control characters"));
    }
    Ok(name)
}

/// A key that a session may have.
pub fn key(value: Value) -> Checked<String> {
    let key = text(value)?;
    checked_key(&key).map_err(|it| format!("does not do: {it}"))?;
    Ok(key)
}

/// Refuses what cannot be the key of a session.
pub fn checked_key(key: &str) -> Checked<()> {
    check_key(key).map_err(|it| it.to_string())
}

/// Anything.
pub fn any(value: Value) -> Checked<Value> {
    Ok(value)
}

/// An object.
pub fn object(value: Value) -> Checked<Map<String, Value>> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err("must be an object".into()),
    }
}

/// `{provider, modelId}`.
pub fn model(value: Value) -> Checked<ModelRef> {
    Fields::of(object(value)?, MODEL)?.model()
}

/// A text that only a model reads.
pub fn string(value: Value) -> Checked<String> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err("must be a string".into()),
    }
}

/// A list.
pub fn list(value: Value) -> Checked<Vec<Value>> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err("must be a list".into()),
    }
}

/// The SDK knows one level above ours.
pub fn level(value: Value) -> Checked<ThinkingLevel> {
    let word = text(value)?;
    let level =
        if word == "xhigh" { Some(ThinkingLevel::High) } else { ThinkingLevel::named(&word) };
    level.ok_or_else(|| "must be off, minimal, low, medium, high or xhigh".into())
}

/// A whole number above 0.
pub fn count(value: Value) -> Checked<u64> {
    value.as_u64().filter(|it| *it > 0).ok_or_else(|| "must be a whole number above 0".into())
}

/// True or false.
pub fn yes_or_no(value: Value) -> Checked<bool> {
    value.as_bool().ok_or_else(|| "must be true or false".into())
}

/// What is wrong with something inside of that field.
pub fn within<T>(name: &str, read: Checked<T>) -> Checked<T> {
    read.map_err(|wrong| match wrong.strip_prefix('`') {
        Some(rest) => format!("`{name}.{rest}"),
        None => format!("`{name}` {wrong}"),
    })
}

/// Each of a list, which is the field of that name.
pub fn each<T>(name: &str, values: Vec<Value>, read: fn(Value) -> Checked<T>) -> Checked<Vec<T>> {
    let numbered = values.into_iter().enumerate();
    numbered.map(|(number, value)| within(&format!("{name}[{number}]"), read(value))).collect()
}
