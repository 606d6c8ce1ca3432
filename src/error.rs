//! The one error type: what was being done, of what kind the failure is, and
//! what caused it. Nothing here prints or decides; the kind is what callers
//! match on (exit codes, HTTP status), the text is what a person reads.

use std::error::Error as StdError;
use std::fmt;

/// What a caller may branch on. Texts are never searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request itself is wrong: usage on the command line, 400 over HTTP.
    Usage,
    /// The configuration is wrong: exit 78.
    Config,
    /// Policy, permission or a missing right says no: 403.
    Denied,
    /// The thing named does not exist: 404.
    Missing,
    /// It clashes with something that exists: 409.
    Conflict,
    /// Larger than its bound: 413.
    TooLarge,
    /// Nothing was begun; trying again later, or elsewhere, is right: 503.
    Busy,
    /// A deadline of ours passed.
    Timeout,
    /// The sandbox or its runtime failed.
    Sandbox,
    /// The caller went away or called it off.
    Cancelled,
    /// Everything else: the operating system, a broken file, a bug.
    Internal,
}

/// A failure: `what` was being done, and the cause behind it.
pub struct Error {
    kind: Kind,
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of everything that can fail in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure that has no further cause.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// What callers branch on.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The same failure seen from one step further out; the kind stays.
    #[must_use]
    pub fn within(self, what: impl Into<String>) -> Self {
        Self { kind: self.kind, what: what.into(), source: Some(Box::new(self)) }
    }

    /// The same failure under another kind, where a caller knows better.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|it| it as &(dyn StdError + 'static))
    }
}

/// Says what was being done when something of std or a crate failed.
pub trait During<T> {
    /// Wraps the cause: `fs::read(path).during(Kind::Config, format!("read {}", path.display()))`.
    fn during(self, kind: Kind, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> During<T> for std::result::Result<T, E> {
    fn during(self, kind: Kind, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error { kind, what: what.into(), source: Some(source.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_whole_chain_from_the_outside_in() {
        let inner: Result<()> =
            Err(std::io::Error::other("disk on fire")).during(Kind::Internal, "read config.json5");
        let outer = inner.map_err(|it| it.within("start the gateway"));
        assert_eq!(
            outer.map_err(|it| it.to_string()),
            Err("start the gateway: read config.json5: disk on fire".into())
        );
    }
}
