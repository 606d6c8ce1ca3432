//! Files that a plugin's tool answers with: they are written into the agent's
//! workspace by its sandbox, never by a name on the host, and their paths go
//! below the tool's text. Nothing of a name comes from the plugin but its own.

use serde_json::json;

use super::calls::random_token;
use crate::error::{Error, Kind, Result};
use crate::plugin::Tool;
use crate::plugin::run::SavedFile;
use crate::sandbox::AgentSandbox;
use crate::worker::Cancel;

/// Saves each file, and adds a line for it: its path, or why there is none.
/// The error is that the call was called off.
pub(super) fn save(
    sandbox: &AgentSandbox,
    tool: &Tool,
    files: Vec<SavedFile>,
    text: &mut String,
    cancel: &Cancel,
) -> Result<()> {
    for file in files {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        match save_one(sandbox, tool, &file, cancel) {
            Ok(path) => text.push_str(&format!("{path}\n")),
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            Err(error) => text.push_str(&format!("[{}: not saved: {error}]\n", file.what)),
        }
    }
    Ok(())
}

/// Where it now is.
fn save_one(
    sandbox: &AgentSandbox,
    tool: &Tool,
    file: &SavedFile,
    cancel: &Cancel,
) -> Result<String> {
    // Like none before, also of another process.
    let name = random_token()?;
    let path = format!("/workspace/.beige/{}/{name}.{}", tool.plugin, file.ending);
    let request = json!({"op": "write", "path": path, "bytes": file.bytes.len()});
    let answer = sandbox.file(&request, &file.bytes, 0, cancel)?;
    match answer.report["error"].as_str() {
        Some(why) => Err(Error::new(Kind::Internal, why)),
        None => Ok(path),
    }
}
