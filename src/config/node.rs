//! A value together with the keys that lead to it. Reading is lenient: a value
//! of the wrong type reads as absent, since the walk along the schema table
//! has reported it already.

use std::time::Duration;

use serde_json::Value;

use crate::config::check::whole_number;
use crate::config::key_path::KeyPath;

/// A place in a configuration; what is absent is null.
#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    /// What stands there.
    pub(crate) value: &'a Value,
    /// The keys that lead to it.
    pub(crate) path: KeyPath,
}

impl<'a> Node<'a> {
    /// The whole configuration.
    pub(crate) fn root(value: &'a Value) -> Self {
        Self { value, path: KeyPath::default() }
    }

    /// The entry of an object.
    pub(crate) fn get(&self, key: &str) -> Self {
        Self { value: self.value.get(key).unwrap_or(&Value::Null), path: self.path.key(key) }
    }

    /// All entries of an object, by name.
    pub(crate) fn entries(&self) -> Vec<(&'a str, Self)> {
        let entries = self.value.as_object().into_iter().flatten();
        entries
            .map(|(key, value)| (key.as_str(), Self { value, path: self.path.key(key) }))
            .collect()
    }

    /// All elements of an array.
    pub(crate) fn items(&self) -> Vec<Self> {
        let items = self.value.as_array().into_iter().flatten().enumerate();
        items.map(|(index, value)| Self { value, path: self.path.index(index) }).collect()
    }

    /// A string.
    pub(crate) fn text(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    /// A string, or nothing in its place.
    pub(crate) fn text_or_empty(&self) -> String {
        self.text().unwrap_or_default().to_owned()
    }

    /// The strings of an array.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.items().iter().filter_map(Self::text).map(str::to_owned).collect()
    }

    /// A number without fraction that fits the type.
    pub(crate) fn whole<T: TryFrom<i64> + Default>(&self) -> T {
        whole_number(self.value).and_then(|it| T::try_from(it).ok()).unwrap_or_default()
    }

    /// A number.
    pub(crate) fn number(&self) -> Option<f64> {
        self.value.as_f64()
    }

    /// A time in seconds, at least a millisecond: less would end what it
    /// bounds before it began.
    pub(crate) fn duration(&self) -> Option<Duration> {
        let given = Duration::try_from_secs_f64(self.number()?).ok()?;
        Some(given.max(Duration::from_millis(1)))
    }

    /// `true`; anything else is not.
    pub(crate) fn is_true(&self) -> bool {
        *self.value == Value::Bool(true)
    }
}
