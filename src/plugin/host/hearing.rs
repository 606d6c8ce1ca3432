//! What a message of a plugin leads to: answers go to who asked, requests to
//! the desk above, each on a thread of its own and called off when the plugin
//! ends or takes its word back, notices to the desk at once. A line that is no
//! message is told in the log and changes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use log::Level;
use serde_json::{Value, json};

use super::complaints::Complaints;
use crate::plugin::connection::Connection;
use crate::plugin::desk::{Desk, Request};
use crate::plugin::mcp::server::Server;
use crate::plugin::rpc::lines::{Line, Lines};
use crate::plugin::rpc::weight::is_bearable;
use crate::plugin::rpc::{self, LONGEST, Message, Refusal};
use crate::secret::Redactor;
use crate::worker::{Cancel, Canceller, Crew};

/// Requests of one plugin that are worked on at a time.
const MOST_REQUESTS: usize = 32;

/// How much of a line that is no message is told, in characters.
const TOLD: usize = 200;

/// The ears for one process of a plugin.
pub(in crate::plugin) struct Hearing {
    plugin: String,
    redactor: Redactor,
    connection: Arc<Connection>,
    desk: Arc<dyn Desk>,
    mcp: Arc<Server>,
    lines: Lines,
    /// Dropped before the crew: that calls off what its workers wait for.
    open: Arc<Open>,
    crew: Crew,
    most: usize,
}

/// Requests that are worked on, by their id, and how each is called off.
type Open = Mutex<HashMap<String, Canceller>>;

impl Hearing {
    /// For that conversation.
    pub(in crate::plugin) fn of(
        plugin: &str,
        redactor: &Redactor,
        connection: Arc<Connection>,
        desk: Arc<dyn Desk>,
        mcp: Arc<Server>,
    ) -> Self {
        Self {
            plugin: plugin.to_owned(),
            redactor: redactor.clone(),
            connection,
            desk,
            mcp,
            lines: Lines::within(LONGEST),
            open: Arc::default(),
            crew: Crew::new(format!("plug-{plugin}-ask"), MOST_REQUESTS),
            most: MOST_REQUESTS,
        }
    }

    /// With room for so many requests at a time.
    pub(in crate::plugin) fn with_room(mut self, most: usize) -> Self {
        self.crew = Crew::new(format!("plug-{}-ask", self.plugin), most);
        self.most = most;
        self
    }

    /// The next piece of what the plugin prints. An error is a breach after
    /// which nothing it says can be trusted to be whole.
    pub(in crate::plugin) fn take(
        &mut self,
        piece: &[u8],
        complaints: &Complaints,
    ) -> Result<(), String> {
        let mut found = Vec::new();
        self.lines.take(piece, &mut |line| found.push(line));
        found.into_iter().try_for_each(|it| self.line(it, complaints))
    }

    /// Nothing more comes: who waits for an answer is told why.
    pub(in crate::plugin) fn end(self, why: &str) {
        self.connection.end(why);
    }

    fn line(&self, line: Line, complaints: &Complaints) -> Result<(), String> {
        let Line::Whole(line) = line else {
            return Err(format!("sent a message of more than {LONGEST} bytes"));
        };
        if !is_bearable(&line) {
            return Err("sent a message that takes too much memory to read".to_owned());
        }
        match rpc::parse(&line) {
            Ok(messages) => messages.into_iter().for_each(|it| self.message(it, complaints)),
            Err(why) => self.junk(&line, why, complaints),
        }
        Ok(())
    }

    /// What came is no message, and why.
    pub(super) fn junk(&self, line: &[u8], why: &str, complaints: &Complaints) {
        let text = String::from_utf8_lossy(&line[..line.len().min(4 * TOLD)]);
        let text = self.redactor.mask(&text).replace(char::is_control, " ");
        let text: String = text.chars().take(TOLD).collect();
        complaints.note(&format!("sent what is no message ({why}): {text}"));
    }

    /// One message, whichever way it came.
    pub(super) fn message(&self, message: Message, complaints: &Complaints) {
        match message {
            Message::Answer { id, outcome } => self.connection.answered(id, outcome),
            Message::Request { id, method, .. } if method == "ping" => {
                self.connection.answer(&id, &Ok(json!({})));
            }
            Message::Request { id, method, params } => self.request(id, method, params),
            Message::Notice { method, params } => self.notice(&method, &params, complaints),
        }
    }

    /// Those of MCP are for here, the rest is for the desk.
    fn notice(&self, method: &str, params: &Value, complaints: &Complaints) {
        match method {
            "notifications/cancelled" => {
                locked(&self.open).remove(&params["requestId"].to_string());
            }
            "notifications/tools/list_changed" => drop(self.mcp.outdate()),
            "notifications/message" => {
                let level = level(params["level"].as_str().unwrap_or_default());
                complaints.say(level, &told(&params["data"]));
            }
            "notifications/progress" => {
                let (done, of) = (&params["progress"], &params["total"]);
                let message = told(&params["message"]);
                complaints.say(Level::Debug, &format!("progress {done} of {of}: {message}"));
            }
            _ => self.desk.notice(&self.plugin, &self.connection, method, params),
        }
    }

    fn request(&self, id: Value, method: String, params: Value) {
        let (canceller, cancel) = Cancel::pair();
        let key = id.to_string();
        let is_twice = locked(&self.open).insert(key.clone(), canceller).is_some();
        let (plugin, connection) = (self.plugin.clone(), Arc::clone(&self.connection));
        let (desk, open, own_id) = (Arc::clone(&self.desk), Arc::clone(&self.open), id.clone());
        let work = move || {
            let request = Request {
                plugin: &plugin,
                id: &own_id,
                method: &method,
                params: &params,
                connection: &connection,
                cancel: &cancel,
            };
            let outcome = desk.request(&request);
            // Who took its word back gets no answer.
            if locked(&open).remove(&key).is_some() {
                connection.answer(&own_id, &outcome);
            }
        };
        if is_twice {
            locked(&self.open).remove(&id.to_string());
            let what = "this id is of a request that is still worked on; it is called off";
            return self.connection.answer(&id, &Err(Refusal::new(rpc::BAD_PARAMS, what)));
        }
        let refused = match self.crew.spawn(work) {
            Ok(true) => return,
            Ok(false) => format!(
                "{} requests of this plugin are worked on already; try again later",
                self.most
            ),
            Err(error) => error.to_string(),
        };
        locked(&self.open).remove(&id.to_string());
        self.connection.answer(&id, &Err(Refusal::new(rpc::FAILED, refused)));
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        locked(&self.open).clear();
    }
}

/// A level of MCP as one of the log.
fn level(name: &str) -> Level {
    match name {
        "debug" => Level::Debug,
        "warning" => Level::Warn,
        "error" | "critical" | "alert" | "emergency" => Level::Error,
        _ => Level::Info,
    }
}

/// What a notice says: text, or anything else as JSON.
fn told(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn locked(open: &Open) -> MutexGuard<'_, HashMap<String, Canceller>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
