//! Why something could not be done with a file: a code for the gateway and a
//! sentence for the model, which must be enough to go on with.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use serde_json::{Map, Value, json};

/// What the gateway branches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Missing,
    Denied,
    Folder,
    Special,
    TooLarge,
    NoMatch,
    ManyMatches,
    Empty,
    ReadOnly,
    Other,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Denied => "denied",
            Self::Folder => "folder",
            Self::Special => "special",
            Self::TooLarge => "tooLarge",
            Self::NoMatch => "noMatch",
            Self::ManyMatches => "manyMatches",
            Self::Empty => "empty",
            Self::ReadOnly => "readOnly",
            Self::Other => "other",
        }
    }
}

/// A failure, with further fields for some codes.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
    more: Map<String, Value>,
}

impl Failure {
    /// A failure without further fields.
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), more: Map::new() }
    }

    /// Adds a field.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.into(), value.into());
        self
    }

    /// What the system said when something was to be done with a path:
    /// `doing` is as in "cannot read".
    pub(crate) fn of(error: &io::Error, doing: &str, path: &Path) -> Self {
        let (code, why) = cause(error);
        Self::new(code, format!("cannot {doing} {}: {why}", path.display()))
    }

    /// The object of the last frame.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = self.more.clone();
        object.insert("error".into(), json!(self.text));
        object.insert("code".into(), json!(self.code.name()));
        object.into()
    }
}

fn cause(error: &io::Error) -> (Code, String) {
    let (code, why) = match Errno::from_io_error(error) {
        Some(Errno::NOENT) => (Code::Missing, "there is no such file"),
        Some(Errno::ACCESS | Errno::PERM) => {
            (Code::Denied, "permission denied; it belongs to another user or forbids this")
        }
        Some(Errno::ISDIR) => (Code::Folder, "it is a folder"),
        Some(Errno::ROFS) => {
            (Code::ReadOnly, "that place is read-only; files can be written in /workspace and /tmp")
        }
        Some(Errno::NXIO | Errno::NODEV) => (Code::Special, "it is a socket or device, not a file"),
        Some(Errno::NOTDIR | Errno::EXIST) => {
            (Code::Other, "a part of the path is a file, not a folder")
        }
        Some(Errno::LOOP) => {
            (Code::Other, "its links lead round in a circle, or through one of /proc")
        }
        Some(Errno::NAMETOOLONG) => (Code::Other, "the name is too long"),
        Some(Errno::NOSPC | Errno::DQUOT) => {
            (Code::Other, "the disk is full; remove something first, nothing was changed")
        }
        Some(Errno::BUSY) => {
            (Code::ReadOnly, "it is mounted into the sandbox and cannot be replaced")
        }
        _ => return (Code::Other, error.to_string()),
    };
    (code, why.into())
}
