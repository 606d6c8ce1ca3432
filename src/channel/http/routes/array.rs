//! A document that is one long list, written as its elements come; the head
//! waits for the first of them, so that a failure before it still has its
//! status.

use std::io;

use super::{refusal, send};
use crate::channel::http::answer::Answer;
use crate::channel::http::engine::Engine;
use crate::channel::http::stream::{Pieces, Reply};
use crate::error::{During, Kind, Result};

/// `{"…":[…]}` on its way to a client.
pub(super) struct Array {
    opening: String,
    to: To,
}

enum To {
    Unsent(Reply),
    Sent(Pieces),
    Gone,
}

impl Array {
    /// A document that begins so, up to the `[`.
    pub(super) fn new(reply: Reply, opening: impl Into<String>) -> Self {
        Self { opening: opening.into(), to: To::Unsent(reply) }
    }

    /// Another beginning, as long as nothing was sent.
    pub(super) fn open(&mut self, opening: String) {
        self.opening = opening;
    }

    /// Sends one element, which is JSON; [`Kind::Cancelled`] if the client is
    /// gone.
    pub(super) fn add(&mut self, element: &str) -> Result<()> {
        let written = match std::mem::replace(&mut self.to, To::Gone) {
            To::Unsent(reply) => reply
                .start("application/json")
                .and_then(|it| self.write(it, &format!("{}{element}", self.opening))),
            To::Sent(pieces) => self.write(pieces, &format!(",{element}")),
            To::Gone => Err(io::ErrorKind::BrokenPipe.into()),
        };
        written.during(Kind::Cancelled, "send a list")
    }

    /// Ends it with what follows the `]`, or tells the failure.
    pub(super) fn finish(self, engine: &impl Engine, end: Result<String>) {
        match (end, self.to) {
            (Ok(end), To::Unsent(reply)) => {
                let body = format!("{}]{end}", self.opening);
                send(reply, &Answer { body, ..Answer::json(&()) });
            }
            (Ok(end), To::Sent(mut pieces)) => {
                let written = pieces.write(format!("]{end}").as_bytes());
                // A client that is gone is no failure of ours.
                let _ = written.and_then(|()| pieces.finish());
            }
            (Err(error), To::Unsent(reply)) => send(reply, &refusal(engine, &error)),
            // Cut short: the client sees that it is not whole.
            (Err(error), _) => log::warn!("a list was not sent to its end: {error}"),
            (Ok(_), To::Gone) => {}
        }
    }

    fn write(&mut self, mut pieces: Pieces, text: &str) -> io::Result<()> {
        pieces.write(text.as_bytes())?;
        self.to = To::Sent(pieces);
        Ok(())
    }
}
