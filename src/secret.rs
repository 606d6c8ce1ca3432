//! Secrets and the redactor that keeps them out of everything that leaves the
//! gateway: log, audit, error text, HTTP answer. A [`Secret`] cannot be
//! serialized and prints as dots; it is exposed on the line that uses it.

use std::fmt;

/// Shortest value that is masked, in bytes: shorter ones would mask ordinary
/// words.
pub const SHORTEST_MASKED: usize = 8;

/// A value that must not be seen.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the value in; hand it to a [`Redactor`] as well.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one line that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(••••)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("••••")
    }
}
