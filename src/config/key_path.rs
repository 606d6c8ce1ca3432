//! Where something stands in a configuration: the keys that lead to it, and
//! its line and column.

use std::fmt;
use std::sync::Arc;

/// A place in the file; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// The keys that lead from the root to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(Vec<Step>);

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Into an object. Shared, since every value below holds it again.
    Key(Arc<str>),
    /// Into an array, counted from 0.
    Index(usize),
}

impl KeyPath {
    /// The path of an entry of the object here.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.into()))
    }

    /// The path of an element of the array here.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    /// The steps from the root.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl<const N: usize> From<[&str; N]> for KeyPath {
    fn from(keys: [&str; N]) -> Self {
        Self(keys.into_iter().map(|it| Step::Key(it.into())).collect())
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if !is_plain(key) => write!(f, "[{key:?}]")?,
                Step::Key(key) if place == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

/// Whether a key can stand behind a dot without being misread.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|it| it.is_ascii_alphanumeric() || "_-$".contains(it))
}
