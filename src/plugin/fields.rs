//! Typed access to one object of a `plugin.json`. Everything that is wrong is
//! collected with its key path, so that a person sees all of it at once;
//! nothing is decided here about what a field means.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::config::nearest;

/// What was found while reading: errors refuse the plugin, warnings do not.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// One JSON object and where it stands (`""` for the whole file).
pub(super) struct Fields<'a> {
    at: String,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The object at that key path; anything but an object is an error.
    pub(super) fn of(at: &str, value: &'a Value, findings: &mut Findings) -> Option<Self> {
        match value {
            Value::Object(object) => Some(Self { at: at.to_owned(), object }),
            other => {
                let place = if at.is_empty() { "the file" } else { at };
                findings.errors.push(format!("{place}: must be an object, is {}", kind_of(other)));
                None
            }
        }
    }

    /// The key path of one field.
    pub(super) fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    /// The field as it stands; `null` counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|it| !it.is_null())
    }

    /// A text.
    pub(super) fn text(&self, key: &str, findings: &mut Findings) -> Option<String> {
        self.typed(key, "a string", findings, |it| it.as_str().map(str::to_owned))
    }

    /// A list of texts.
    pub(super) fn texts(&self, key: &str, findings: &mut Findings) -> Option<Vec<String>> {
        self.typed(key, "an array of strings", findings, |it| {
            it.as_array()?.iter().map(|it| it.as_str().map(str::to_owned)).collect()
        })
    }

    /// An object whose values are texts.
    pub(super) fn text_map(
        &self,
        key: &str,
        findings: &mut Findings,
    ) -> Option<BTreeMap<String, String>> {
        self.typed(key, "an object of strings", findings, |it| {
            it.as_object()?
                .iter()
                .map(|(name, it)| it.as_str().map(|it| (name.clone(), it.to_owned())))
                .collect()
        })
    }

    /// A list of anything.
    pub(super) fn list(&self, key: &str, findings: &mut Findings) -> Option<&'a [Value]> {
        self.typed(key, "an array", findings, |it| it.as_array().map(Vec::as_slice))
    }

    /// A whole number that is not negative.
    pub(super) fn whole(&self, key: &str, findings: &mut Findings) -> Option<u64> {
        self.typed(key, "a whole number", findings, Value::as_u64)
    }

    /// Warns of every key that is not known.
    pub(super) fn warn_of_unknown(&self, known: &[&str], findings: &mut Findings) {
        for key in self.object.keys().filter(|it| !known.contains(&it.as_str())) {
            let nearest = did_you_mean(key, known.iter().copied());
            findings.warnings.push(format!("{}: unknown key, ignored{nearest}", self.path(key)));
        }
    }

    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        findings: &mut Findings,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key)?;
        let typed = read(value);
        if typed.is_none() {
            findings.errors.push(format!(
                "{}: must be {wanted}, is {}",
                self.path(key),
                kind_of(value)
            ));
        }
        typed
    }
}

/// What a JSON value is, in words. Its content is never shown: it may be a
/// secret.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// "; did you mean `…`?" if one of the known words is near.
pub(super) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |it| format!("; did you mean `{it}`?"))
}
