//! The topics, in the order of the table. Each makes its own houses, measures,
//! and leaves nothing behind.

mod chat;
mod crowds;
mod exec;
mod files;
mod growth;
mod idle;
mod output;
mod plugin;
mod size;
mod start;
mod streams;

use crate::Result;
use crate::arguments::Options;
use crate::crowd::Course;
use crate::figures::{Row, Unit};
use crate::process::mebibytes;

pub(crate) use output::by_process;
pub(crate) use size::{binary, crates};

/// A topic's lines.
type Topic = fn(&Options) -> Result<Vec<Row>>;

/// All topics by name.
pub(crate) const ALL: [(&str, Topic); 11] = [
    ("exec", exec::measure),
    ("files", files::measure),
    ("plugin", plugin::measure),
    ("start", start::measure),
    ("idle", idle::measure),
    ("output", output::measure),
    ("streams", streams::measure),
    ("chat", chat::measure),
    ("crowds", crowds::measure),
    ("growth", growth::measure),
    ("size", size::measure),
];

/// Memory before, at most during and after something, as three lines.
fn memory(what: &str, course: &Course) -> Vec<Row> {
    let moments = [
        ("before", course.before.resident),
        ("at most", course.peak),
        ("after", course.after.resident),
    ];
    let row = |(when, bytes)| {
        Row::once(format!("{what}: memory {when}"), Unit::Mebibytes, mebibytes(bytes))
    };
    moments.map(row).into()
}
