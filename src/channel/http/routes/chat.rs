//! `POST /api/chat/stream`: one thread asks, this one writes. What is ready at
//! once goes in one write, and a client that takes its time holds up its own
//! answer and nobody else: little waits for it, and no line is made before it
//! can be written.

use std::io::{self, Write};
use std::thread;

use crossbeam_channel::{Receiver, Sender, after, bounded, select};

use super::requests::ChatBody;
use super::{Call, send};
use crate::channel::http::engine::Engine;
use crate::channel::http::failure::refusal;
use crate::channel::http::pi::{Teller, joined};
use crate::channel::http::stream::{Batch, NDJSON, QUIET};
use crate::error::Error;
use crate::gateway::{ChatEvent, ChatRequest};
use crate::message::{Assistant, StopReason};
use crate::worker::{Cancel, scoped};

/// Pieces of an answer that may wait to be written.
const WAITING: usize = 128;

/// What the thread that asks tells the one that writes.
enum Said {
    Event(ChatEvent),
    /// Nothing was begun.
    Refused(Error),
}

impl<E: Engine> Call<E> {
    /// Ends with its client.
    pub(super) fn chat(self, chat: ChatBody) {
        let Self { engine, closing, reply } = self;
        let ChatBody { request, has_partial } = chat;
        let (canceller, cancel) = Cancel::pair();
        let (said, told) = bounded(WAITING);
        let asking = engine.clone();
        thread::scope(|scope| {
            let asked = scoped(scope, "http-chat", move || ask(&asking, request, &said, &cancel));
            let first = match asked {
                Ok(_) => select! {
                    recv(told) -> first => first.ok(),
                    recv(after(QUIET)) -> _ => None,
                },
                Err(error) => Some(Said::Refused(error)),
            };
            if let Some(Said::Refused(error)) = first {
                return send(reply, &refusal(&engine, &error));
            }
            let event = |said| match said {
                Said::Event(event) => event,
                Said::Refused(error) => refused(engine.mask(&error.to_string())),
            };
            let follower = Follower { told: &told, event, has_partial };
            let batch = reply.start(NDJSON).map(Batch::new);
            if batch.and_then(|to| follower.write(first, to, &closing)).is_err() {
                canceller.cancel();
                // Nobody takes what still comes.
                drop(told);
            }
        });
    }
}

fn ask(engine: &impl Engine, request: ChatRequest, said: &Sender<Said>, cancel: &Cancel) {
    // Who does not listen any more has called it off.
    let mut tell = |event| drop(said.send(Said::Event(event)));
    if let Err(error) = engine.chat(request, &mut tell, cancel) {
        let _ = said.send(Said::Refused(error));
    }
}

/// The end of a request that was refused when its answer had begun already.
fn refused(why: String) -> ChatEvent {
    let (stop_reason, error_message) = (StopReason::Error, Some(why));
    let answer = Assistant { stop_reason, error_message, ..Assistant::default() };
    ChatEvent::Failed(Box::new(answer))
}

/// Writes what is told.
struct Follower<'a, F> {
    told: &'a Receiver<Said>,
    event: F,
    has_partial: bool,
}

impl<F: Fn(Said) -> ChatEvent> Follower<'_, F> {
    /// Up to the last event. An error means that the client is gone, that
    /// `closing` ended it, or that the events ended without a last one.
    fn write(&self, first: Option<Said>, mut to: Batch, closing: &Cancel) -> io::Result<()> {
        let mut teller = Teller::new(self.has_partial);
        let mut next = first.map(&self.event);
        loop {
            while let Some(event) = next {
                let (event, after) = self.gathered(event);
                if teller.tell(event, &mut to)? {
                    return to.finish();
                }
                next = after.or_else(|| self.ready());
            }
            to.flush()?;
            next = select! {
                recv(self.told) -> said => {
                    Some((self.event)(said.map_err(|_| io::ErrorKind::UnexpectedEof)?))
                }
                recv(after(QUIET)) -> _ => {
                    to.write_all(b"\n")?;
                    None
                }
                recv(closing.gone()) -> _ => return Err(io::ErrorKind::ConnectionAborted.into()),
            };
        }
    }

    /// An event, and what waits behind it that could not be put to it. Without
    /// the message in each line, every piece has a line of its own.
    fn gathered(&self, mut event: ChatEvent) -> (ChatEvent, Option<ChatEvent>) {
        if !self.has_partial {
            return (event, None);
        }
        while let Some(more) = self.ready() {
            if let Some(other) = joined(&mut event, more) {
                return (event, Some(other));
            }
        }
        (event, None)
    }

    fn ready(&self) -> Option<ChatEvent> {
        self.told.try_recv().ok().map(&self.event)
    }
}
