//! The carrier of a conversation with a server that runs elsewhere, by MCP's
//! Streamable HTTP: each message of ours is a POST, what the server says comes as
//! the answer of one, or by a stream that we hold open. The conversation itself is
//! the same as with a process ([`super::super::connection`]).
//!
//! Threads, per plugin: one that hands out what is to be said, a crew that says it
//! and hears the answers, and one that listens to the server's own stream.
//!
//! Source: MCP 2025-06-18 and 2025-11-25, "Transports", "Streamable HTTP".

mod answer;
mod lanes;
mod listener;
mod talk;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select};
use serde_json::Value;

use super::Shared;
use super::complaints::Complaints;
use super::hearing::Hearing;
use crate::config::Endpoint;
use crate::error::Result;
use crate::plugin::connection::{Connection, Letter, Sort, Unanswered};
use crate::plugin::desk::{Desk, Request};
use crate::plugin::rpc::{NO_SUCH_METHOD, Refusal};
use crate::worker::{Cancel, Canceller, Crew, Worker};
use lanes::Key;
use talk::Talk;

/// Messages of one plugin that are on their way at a time.
const MOST_POSTS: usize = 64;

/// How long a server may take to take a notice or an answer of ours.
const TAKING: Duration = Duration::from_secs(10);

/// A server that runs elsewhere, spoken to.
pub(super) struct Remote {
    talk: Arc<Talk>,
    /// Dropped before the thread: that ends it.
    ending: Canceller,
    handing_out: Worker,
}

impl Remote {
    /// Has `letters` sent to the server, and what it says heard.
    pub(super) fn start(
        plugin: &str,
        endpoint: &Endpoint,
        connection: &Arc<Connection>,
        letters: Receiver<Letter>,
        shared: &Shared,
    ) -> Result<Self> {
        let (ending, ended) = Cancel::pair();
        let (redactor, mcp) = (&shared.redactor, Arc::clone(&shared.mcp));
        let desk = Arc::new(NoDesk);
        let hearing = Hearing::of(plugin, redactor, Arc::clone(connection), desk, Arc::clone(&mcp));
        let complaints = Complaints::of(plugin, redactor);
        let connection = Arc::clone(connection);
        let talk = Talk::new(endpoint, connection, hearing, complaints, mcp, ended.clone());
        let talk = Arc::new(talk);
        let crew = Crew::new(format!("plug-{plugin}-post"), MOST_POSTS);
        let out = HandingOut { plugin: plugin.to_owned(), talk: Arc::clone(&talk), crew, ended };
        let handing_out = Worker::spawn(format!("plug-{plugin}-out"), move || out.run(&letters))?;
        Ok(Self { talk, ending, handing_out })
    }

    /// Ends all that is on its way, and tells the server that the session is over.
    pub(super) fn end(self) {
        let Self { talk, ending, handing_out } = self;
        talk.end();
        drop(ending);
        drop(handing_out);
    }
}

/// Hands out what is to be said.
struct HandingOut {
    plugin: String,
    talk: Arc<Talk>,
    crew: Crew,
    ended: Cancel,
}

impl HandingOut {
    fn run(self, letters: &Receiver<Letter>) {
        // Joined at the end of this thread, which hears the same signal.
        let mut listener = None;
        loop {
            let letter = select! {
                recv(letters) -> letter => letter,
                recv(self.ended.gone()) -> _ => return,
            };
            let Ok(Letter { line, sort }) = letter else { return };
            if sort != Sort::Notice {
                self.hand_out(line, sort);
                continue;
            }
            // Told in order: what follows the greeting may not come before it.
            self.talk.tell(&line, Instant::now() + TAKING);
            if listener.is_none() {
                listener = self.listen();
            }
        }
    }

    fn hand_out(&self, line: Vec<u8>, sort: Sort) {
        if let Sort::Request(id, _) = sort {
            self.talk.lanes.reserve(Key::Request(id));
        }
        let talk = Arc::clone(&self.talk);
        let spawned = self.crew.spawn(move || match sort {
            Sort::Request(id, until) => talk.ask(id, &line, until),
            Sort::CallOff(id) => {
                talk.tell(&line, Instant::now() + TAKING);
                talk.lanes.cut(Key::Request(id));
            }
            Sort::Answer | Sort::Notice => talk.tell(&line, Instant::now() + TAKING),
        });
        let refused = match spawned {
            Ok(true) => return,
            Ok(false) => format!("has {MOST_POSTS} messages on their way already"),
            Err(error) => format!("is not asked: {error}"),
        };
        match sort {
            Sort::Request(id, _) => {
                self.talk.lanes.cut(Key::Request(id));
                self.talk.connection.unanswered(id, Unanswered::Lost(refused));
            }
            Sort::CallOff(id) => self.talk.lanes.cut(Key::Request(id)),
            Sort::Answer | Sort::Notice => log::debug!("plugin '{}' {refused}", self.plugin),
        }
    }

    fn listen(&self) -> Option<Worker> {
        let talk = Arc::clone(&self.talk);
        let spawned = Worker::spawn(format!("plug-{}-in", self.plugin), move || talk.listen());
        spawned.inspect_err(|it| log::warn!("plugin '{}': {it}", self.plugin)).ok()
    }
}

/// A server that runs elsewhere may ask for nothing but `ping`.
struct NoDesk;

impl Desk for NoDesk {
    fn request(&self, request: &Request<'_>) -> Result<Value, Refusal> {
        let what = format!("`{}` is not given to a server by `url`", request.method);
        Err(Refusal::new(NO_SUCH_METHOD, what))
    }

    fn notice(&self, plugin: &str, _: &Connection, method: &str, _: &Value) {
        log::debug!("plugin '{plugin}' tells `{}`", method.escape_debug());
    }
}
