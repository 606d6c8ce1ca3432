//! A look from inside a container: does it show the workspace that we see
//! here? A daemon that runs elsewhere, or a folder that was made anew under a
//! running container, would otherwise lose an agent's work in silence.

use std::os::unix::fs::MetadataExt;
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;
use std::{fmt, fs};

use serde_json::{Value, json};
use tool_client::frame;

use super::argv::exec_command;
use super::client::without_chatter;
use super::engine::Engine;
use crate::error::{During, Kind, Result};
use crate::sandbox::{Role, Spec, oneshot};

/// What the look shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The workspace of the host.
    Same,
    /// Another folder.
    Other {
        /// Its inode.
        there: u64,
        /// That of ours.
        here: u64,
    },
    /// tool-client did not answer, and why.
    NoAnswer(String),
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("it shows the workspace"),
            Self::Other { there, here } => {
                write!(f, "its workspace is inode {there}, ours is {here}")
            }
            Self::NoAnswer(why) => f.write_str(why),
        }
    }
}

/// How long tool-client may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Looks at `/workspace` from inside.
pub(super) fn look(engine: Engine, spec: &Spec) -> Result<View> {
    let doing = format!("look at the workspace {}", spec.workspace.display());
    let here = fs::metadata(&spec.workspace).during(Kind::Sandbox, doing.clone())?.ino();
    let command = exec_command(engine, spec, Role::File);
    let conversed = oneshot::converse(command, ANSWERS_WITHIN, &|_| (), ask);
    let (_, complaint, answer) = match conversed {
        Ok(it) => it,
        // Something in there may hold it up for good.
        Err(error) if error.kind() == Kind::Timeout => {
            return Ok(View::NoAnswer(error.to_string()));
        }
        Err(error) => return Err(error.within(doing)),
    };
    let complaint = without_chatter(&complaint);
    Ok(match answer {
        Ok(answer) => judge(here, &answer),
        Err(error) if complaint.is_empty() => View::NoAnswer(error.to_string()),
        Err(_) => View::NoAnswer(complaint),
    })
}

/// Asks for the folder's numbers once tool-client is ready.
fn ask(mut stdin: ChildStdin, mut stdout: ChildStdout) -> std::io::Result<Value> {
    expect(&mut stdout, frame::READY)?;
    let request = json!({ "op": "stat", "path": "/workspace" });
    frame::write(&mut stdin, frame::REQUEST, request.to_string().as_bytes())?;
    let exit = expect(&mut stdout, frame::EXIT)?;
    Ok(serde_json::from_slice(&exit)?)
}

fn expect(stdout: &mut ChildStdout, kind: u8) -> std::io::Result<Vec<u8>> {
    match frame::read(stdout)? {
        Some(it) if it.kind == kind => Ok(it.payload),
        Some(it) => Err(std::io::Error::other(format!("frame {} instead of {kind}", it.kind))),
        None => Err(std::io::Error::other("tool-client ended without an answer")),
    }
}

/// Device numbers differ between a host and some runtimes for one and the
/// same folder, so only the inode counts.
fn judge(here: u64, answer: &Value) -> View {
    match answer.get("ino").and_then(Value::as_u64) {
        Some(there) if there == here => View::Same,
        Some(there) => View::Other { there, here },
        None => View::NoAnswer(format!("tool-client cannot see the workspace: {answer}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_inode_is_the_same_workspace() {
        assert_eq!(judge(7, &json!({ "dev": 1, "ino": 7 })), View::Same);
        assert!(matches!(judge(7, &json!({ "dev": 1, "ino": 8 })), View::Other { .. }));
    }

    #[test]
    fn an_answer_without_numbers_is_none() {
        assert!(matches!(judge(7, &json!({ "error": "no" })), View::NoAnswer(_)));
        assert!(matches!(judge(7, &json!({ "ino": "7" })), View::NoAnswer(_)));
    }
}
