//! The plugin's side of the conversation, for plugins of beige's own: requests
//! of the gateway are heard as those of a plugin are on the other side
//! ([`super::host`]), and answered by a [`Desk`]; through a request's
//! connection the gateway can be asked. It lasts until the input ends, and
//! leaves nothing behind.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use super::connection::Connection;
use super::desk::Desk;
use super::host::PROTOCOL;
use super::host::complaints::Complaints;
use super::host::hearing::Hearing;
use crate::error::{Error, Kind, Result};
use crate::secret::Redactor;
use crate::worker::Worker;
use serde_json::{Value, json};

const PIECE: usize = 64 * 1024;

/// Calls at a time, of all agents; of each the gateway lets through at most 32, so
/// that none takes the room of the others.
const MOST_CALLS: usize = 1024;

/// Answers all that comes on `input`; returns once it has ended and all that
/// was worked on has been called off and has ended.
///
/// Errors: [`Kind::Usage`] if what comes is no conversation.
pub fn serve(
    name: &str,
    desk: Arc<dyn Desk>,
    mut input: impl Read,
    mut output: impl Write + Send + 'static,
) -> Result<()> {
    let (connection, lines) = Connection::open();
    // Ends with the connection; what can no longer be written is left.
    let writer = Worker::spawn("out", move || {
        for letter in lines {
            let _ = output.write_all(&letter.line).and_then(|()| output.flush());
        }
    })?;
    let redactor = Redactor::new();
    let complaints = Complaints::of(name, &redactor);
    let hearing = Hearing::of(name, &redactor, connection, desk, Arc::default());
    let mut hearing = hearing.with_room(MOST_CALLS);
    let mut piece = vec![0; PIECE];
    let heard = loop {
        match input.read(&mut piece) {
            Ok(0) => break Ok(()),
            Ok(count) => {
                if let Err(breach) = hearing.take(&piece[..count], &complaints) {
                    break Err(Error::new(Kind::Usage, format!("the gateway {breach}")));
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break Ok(()),
        }
    };
    hearing.end("has gone");
    drop(writer);
    heard
}

/// The answer to `initialize` of a plugin with that `plugin.json`.
pub fn greeting(manifest: &Value) -> Value {
    let text = |key: &str| manifest[key].clone();
    let tool = json!({
        "name": text("name"), "description": text("description"), "commands": text("commands"),
    });
    json!({
        "protocolVersion": PROTOCOL,
        "serverInfo": {"name": text("name"), "version": env!("CARGO_PKG_VERSION")},
        "capabilities": {"experimental": {"beige": {"version": 1, "tools": [tool]}}},
    })
}
