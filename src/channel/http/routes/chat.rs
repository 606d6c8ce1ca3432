//! `POST /api/chat/stream`: this thread asks, another one writes. What is ready
//! at once goes in one write, and a client that takes its time holds up its own
//! answer and nobody else: little waits for it, and no line is made before it
//! can be written.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, after, bounded, select};

use super::requests::ChatBody;
use super::{Call, send};
use crate::channel::http::engine::Engine;
use crate::channel::http::failure::refusal;
use crate::channel::http::pi::{Teller, joined};
use crate::channel::http::stream::{Batch, NDJSON, QUIET, Reply};
use crate::error::Error;
use crate::gateway::{ChatEvent, ChatRequest};
use crate::message::{Assistant, StopReason};
use crate::worker::{Cancel, Canceller, scoped};

/// Pieces of an answer that may wait to be written.
const WAITING: usize = 128;

/// How long a client that does not read holds up the end of an answer that was
/// called off.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What the thread that asks tells the one that writes.
enum Said {
    Event(ChatEvent),
    /// Nothing was begun.
    Refused(Error),
}

impl<E: Engine> Call<E> {
    /// Ends with its client. It asks at once: the model need not wait until
    /// there is somebody to write.
    pub(super) fn chat(self, chat: ChatBody) {
        let Self { engine, closing, reply } = self;
        let ChatBody { request, has_partial } = chat;
        let (canceller, cancel) = Cancel::pair();
        let (said, told) = bounded(WAITING);
        let (lend, lent) = bounded(1);
        // It comes back if there is no thread for it.
        let _ = lend.send(reply);
        let writer = Writer { engine: &engine, has_partial, closing: &closing };
        thread::scope(|scope| {
            let replies = lent.clone();
            let writing = scoped(scope, "http-chat", move || {
                if let Ok(reply) = replies.recv() {
                    writer.answer(reply, &told, &canceller);
                }
            });
            match writing {
                Ok(_) => ask(&engine, request, &said, &cancel),
                Err(error) => lent.try_iter().for_each(|it| send(it, &refusal(&engine, &error))),
            }
            // The writer waits for more as long as there could be.
            drop(said);
        });
    }
}

fn ask(engine: &impl Engine, request: ChatRequest, said: &Sender<Said>, cancel: &Cancel) {
    let mut tell = |event| tell(event, said, cancel);
    if let Err(error) = engine.chat(request, &mut tell, cancel) {
        let _ = said.send(Said::Refused(error));
    }
}

/// Waits until it is heard, or the answer is called off. Who does not listen any
/// more has called it off.
fn tell(event: ChatEvent, said: &Sender<Said>, cancel: &Cancel) {
    let Err(TrySendError::Full(waiting)) = said.try_send(Said::Event(event)) else { return };
    if cancel.is_cancelled() {
        let _ = said.send_timeout(waiting, LAST_WORD);
        return;
    }
    select! {
        send(said, waiting) -> _ => (),
        recv(cancel.gone()) -> _ => (),
    }
}

/// The end of a request that was refused when its answer had begun already.
fn refused(why: String) -> ChatEvent {
    let (stop_reason, error_message) = (StopReason::Error, Some(why));
    let answer = Assistant { stop_reason, error_message, ..Assistant::default() };
    ChatEvent::Failed(Box::new(answer))
}

/// Writes what is told of one answer.
struct Writer<'a, E> {
    engine: &'a E,
    has_partial: bool,
    closing: &'a Cancel,
}

impl<E: Engine> Writer<'_, E> {
    /// The answer to its end, or a status if there is none. Once nobody takes
    /// it, it is called off.
    fn answer(&self, reply: Reply, told: &Receiver<Said>, canceller: &Canceller) {
        let first = select! {
            recv(told) -> first => first.ok(),
            recv(after(QUIET)) -> _ => None,
        };
        if let Some(Said::Refused(error)) = first {
            return send(reply, &refusal(self.engine, &error));
        }
        let batch = reply.start(NDJSON).map(Batch::new);
        if batch.and_then(|to| self.write(first, told, to)).is_err() {
            canceller.cancel();
        }
    }

    /// Up to the last event. An error means that the client is gone, that
    /// `closing` ended it, or that the events ended without a last one.
    fn write(&self, first: Option<Said>, told: &Receiver<Said>, mut to: Batch) -> io::Result<()> {
        let mut teller = Teller::new(self.has_partial);
        let mut next = first.map(|it| self.event(it));
        loop {
            while let Some(event) = next {
                let (event, after) = self.gathered(event, told);
                if teller.tell(event, &mut to)? {
                    return to.finish();
                }
                next = after.or_else(|| self.ready(told));
            }
            to.flush()?;
            next = select! {
                recv(told) -> said => {
                    Some(self.event(said.map_err(|_| io::ErrorKind::UnexpectedEof)?))
                }
                recv(after(QUIET)) -> _ => {
                    to.write_all(b"\n")?;
                    None
                }
                recv(self.closing.gone()) -> _ => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            };
        }
    }

    /// An event, and what waits behind it that could not be put to it. Without
    /// the message in each line, every piece has a line of its own.
    fn gathered(
        &self,
        mut event: ChatEvent,
        told: &Receiver<Said>,
    ) -> (ChatEvent, Option<ChatEvent>) {
        if !self.has_partial {
            return (event, None);
        }
        while let Some(more) = self.ready(told) {
            if let Some(other) = joined(&mut event, more) {
                return (event, Some(other));
            }
        }
        (event, None)
    }

    fn ready(&self, told: &Receiver<Said>) -> Option<ChatEvent> {
        told.try_recv().ok().map(|it| self.event(it))
    }

    fn event(&self, said: Said) -> ChatEvent {
        match said {
            Said::Event(event) => event,
            Said::Refused(error) => refused(self.engine.mask(&error.to_string())),
        }
    }
}
