//! Lists a folder: names sorted, folders with a slash behind them.

use std::collections::BinaryHeap;
use std::fs::File;
use std::io;

use rustix::fs::{Dir, FileType};
use serde_json::{Value, json};

/// Entries shown.
const SHOWN: usize = 1000;

/// The listing of that folder.
pub(crate) fn list(folder: &File) -> io::Result<Value> {
    // The first ones by name, the last of them on top.
    let mut first = BinaryHeap::new();
    let mut total = 0;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        total += 1;
        let slash = if entry.file_type() == FileType::Directory { "/" } else { "" };
        first.push([&String::from_utf8_lossy(name), slash].concat());
        if first.len() > SHOWN {
            first.pop();
        }
    }
    let mut entries = first.into_sorted_vec();
    entries.truncate(fitting(&entries));
    let more = total - entries.len();
    Ok(json!({ "kind": "folder", "entries": entries, "more": more }))
}

/// How many of them fit into one frame, as JSON, whatever their names hold.
fn fitting(entries: &[String]) -> usize {
    let mut bytes = 128;
    let fits = |it: &&String| {
        bytes += json!(it).to_string().len() + 1;
        bytes <= tool_client::frame::MAX_PAYLOAD
    };
    entries.iter().take_while(fits).count()
}
