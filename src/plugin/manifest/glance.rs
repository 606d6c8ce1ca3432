//! What a `plugin.json` says at a glance, also where it is not sound.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::MAX_BYTES;

/// The `plugin.json` of a folder as it stands.
pub(in crate::plugin) fn read_json(folder: &Path) -> Result<Value, String> {
    let file = folder.join("plugin.json");
    let failed = |it: std::io::Error| format!("read {}: {it}", file.display());
    let metadata = fs::metadata(&file).map_err(failed)?;
    // Opening a FIFO would wait for a writer that may never come.
    if !metadata.is_file() {
        return Err(format!("{} is not a file", file.display()));
    }
    let mut bytes = Vec::new();
    File::open(&file)
        .and_then(|it| it.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("{} is larger than {MAX_BYTES} bytes", file.display()));
    }
    serde_json::from_slice(&bytes).map_err(|it| format!("{}: {it}", file.display()))
}

/// The version of the plugin of a folder, if it says one.
pub fn version(folder: &Path) -> Option<String> {
    version_said(&read_json(folder).ok()?)
}

/// The same of a `package.json` as well. What is no version, such as lines that
/// would stand among ours, is none.
pub(in crate::plugin) fn version_said(manifest: &Value) -> Option<String> {
    let is_plain = |it: &&str| it.len() <= 64 && it.bytes().all(|it| it.is_ascii_graphic());
    manifest["version"].as_str().filter(is_plain).map(str::to_owned)
}

/// Whether it says that it gives a channel.
pub fn has_channel(folder: &Path) -> bool {
    read_json(folder).is_ok_and(|it| it["provides"]["channel"] == Value::Bool(true))
}
