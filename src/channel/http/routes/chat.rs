//! `POST /api/chat/stream`: the thread that asks writes, too. What is ready at
//! once goes in one write, and a client that takes its time holds up its own
//! answer and nobody else: little waits for it, and no line is made before it
//! can be written.

use std::io::{self, Write};
use std::time::Instant;

use super::requests::ChatBody;
use super::{Call, send};
use crate::channel::http::engine::Engine;
use crate::channel::http::failure::refusal;
use crate::channel::http::pi::{Teller, joined};
use crate::channel::http::stream::{Batch, NDJSON, QUIET, Reply};
use crate::error::Error;
use crate::gateway::ChatEvent;
use crate::message::{Assistant, StopReason};
use crate::worker::Cancel;

/// Pieces that are said in one line with the message in it, at most.
const MOST_JOINED: usize = 128;

impl<E: Engine> Call<E> {
    /// Ends with its client.
    pub(super) fn chat(self, chat: ChatBody) {
        let Self { engine, closing, reply } = self;
        let ChatBody { request, has_partial } = chat;
        let (canceller, cancel) = Cancel::pair();
        let mut writer = Writer::new(reply, has_partial, closing);
        let mut tell = |event| {
            // Nobody takes it any more.
            if writer.take(event).is_err() {
                canceller.cancel();
            }
        };
        let asked = engine.chat(request, &mut tell, &cancel);
        writer.end(&engine, asked.err());
    }
}

/// The end of a request that was refused when its answer had begun already.
fn refused(why: String) -> ChatEvent {
    let (stop_reason, error_message) = (StopReason::Error, Some(why));
    let answer = Assistant { stop_reason, error_message, ..Assistant::default() };
    ChatEvent::Failed(Box::new(answer))
}

/// Writes what is told of one answer.
struct Writer {
    to: To,
    teller: Teller,
    has_partial: bool,
    /// A piece to which more may be put: only where each line has the message
    /// in it, since without, every piece has a line of its own.
    held: Option<ChatEvent>,
    /// How many were put to it.
    joined: usize,
    /// When something was written last.
    written: Instant,
    closing: Cancel,
}

/// How far an answer is.
enum To {
    /// Nothing is said yet, not even a status.
    Reply(Reply),
    Batch(Batch),
    /// It is whole, or its client is gone.
    Nobody,
}

impl Writer {
    fn new(reply: Reply, has_partial: bool, closing: Cancel) -> Self {
        let (to, teller) = (To::Reply(reply), Teller::new(has_partial));
        let written = Instant::now();
        Self { to, teller, has_partial, held: None, joined: 0, written, closing }
    }

    /// An error means that the client is gone, or that `closing` ended it.
    fn take(&mut self, event: ChatEvent) -> io::Result<()> {
        let taken = match event {
            ChatEvent::Lull => self.lull(),
            event => self.event(event),
        };
        if taken.is_err() {
            self.to = To::Nobody;
        }
        taken
    }

    /// The end of what was asked; `error`, if nothing of it was begun.
    fn end(mut self, engine: &impl Engine, error: Option<Error>) {
        // A client that is gone is no failure of ours.
        let _ = match (self.to, error) {
            (To::Reply(reply), Some(error)) => return send(reply, &refusal(engine, &error)),
            // The stream is cut, for there is no last event.
            (To::Reply(reply), None) => reply.start(NDJSON).map(drop),
            (to, Some(error)) => {
                self.to = to;
                self.event(refused(engine.mask(&error.to_string())))
            }
            (_, None) => Ok(()),
        };
    }

    fn event(&mut self, event: ChatEvent) -> io::Result<()> {
        let Some(event) = self.gathered(event) else { return Ok(()) };
        self.tell_held()?;
        if self.has_partial && matches!(event, ChatEvent::Piece(_)) {
            self.held = Some(event);
            return Ok(());
        }
        self.tell(event)
    }

    /// The event, unless it could be put to the one that is held.
    fn gathered(&mut self, event: ChatEvent) -> Option<ChatEvent> {
        match &mut self.held {
            Some(held) if self.joined < MOST_JOINED => {
                self.joined += 1;
                joined(held, event)
            }
            _ => Some(event),
        }
    }

    fn tell_held(&mut self) -> io::Result<()> {
        self.joined = 0;
        self.held.take().map_or(Ok(()), |it| self.tell(it))
    }

    fn tell(&mut self, event: ChatEvent) -> io::Result<()> {
        self.begin()?;
        let To::Batch(batch) = &mut self.to else { return Ok(()) };
        if self.teller.tell(event, batch)?
            && let To::Batch(batch) = std::mem::replace(&mut self.to, To::Nobody)
        {
            return batch.finish();
        }
        Ok(())
    }

    /// From now on there is a status.
    fn begin(&mut self) -> io::Result<()> {
        self.to = match std::mem::replace(&mut self.to, To::Nobody) {
            To::Reply(reply) => To::Batch(Batch::new(reply.begin(NDJSON)?)),
            other => other,
        };
        Ok(())
    }

    /// Writes what is ready, or an empty line after a time of silence, so that
    /// a client that is gone is seen.
    fn lull(&mut self) -> io::Result<()> {
        if self.closing.is_cancelled() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.tell_held()?;
        let is_silent = self.written.elapsed() >= QUIET;
        if is_silent {
            self.begin()?;
        }
        let To::Batch(batch) = &mut self.to else { return Ok(()) };
        if batch.is_empty() {
            if !is_silent {
                return Ok(());
            }
            batch.write_all(b"\n")?;
        }
        batch.flush()?;
        self.written = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;
    use crate::clock;
    use crate::config::ModelRef;
    use crate::provider::{Assembly, Delta};

    /// What a client of HTTP/1.0 has got.
    #[derive(Clone, Default)]
    struct Wire(Arc<Mutex<Vec<u8>>>);

    impl Wire {
        /// Takes what came behind the head since this was asked last.
        fn came(&self) -> String {
            let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            let text = String::from_utf8_lossy(&bytes);
            text.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned()
        }
    }

    impl Write for Wire {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn writer(has_partial: bool) -> (Writer, Wire) {
        let wire = Wire::default();
        let reply = Reply::new(Box::new(wire.clone()), 0);
        (Writer::new(reply, has_partial, Cancel::never()), wire)
    }

    fn asked() -> ChatEvent {
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        ChatEvent::Asked(Box::new(Assembly::new("replay", &model, clock::now())))
    }

    fn text(text: &str) -> ChatEvent {
        ChatEvent::Piece(Delta::Text(text.into()))
    }

    /// The kinds of the lines that are there once it is waited.
    #[track_caller]
    fn check(has_partial: bool, events: Vec<ChatEvent>, want: &[&str]) {
        let (mut writer, wire) = writer(has_partial);
        for event in events {
            assert!(writer.take(event).is_ok());
        }
        assert_eq!(wire.came(), "", "nothing is written before it is waited");
        assert!(writer.take(ChatEvent::Lull).is_ok());
        let text = wire.came();
        let kinds = text.lines().filter_map(|it| it.split('"').nth(3)).collect::<Vec<_>>();
        assert_eq!(kinds, want);
    }

    #[test]
    fn what_is_ready_is_written_when_it_is_waited() {
        let events = || vec![asked(), text("a"), text("b")];
        check(false, events(), &["start", "text_start", "text_delta", "text_delta"]);
        // One line says it as well as two.
        check(true, events(), &["start", "text_start", "text_delta"]);
    }

    #[test]
    fn a_time_of_silence_is_an_empty_line() -> io::Result<()> {
        let (mut writer, wire) = writer(false);
        writer.take(ChatEvent::Lull)?;
        assert_eq!(wire.came(), "");
        for _ in 0..2 {
            writer.written = writer.written.checked_sub(QUIET).unwrap_or(writer.written);
            writer.take(ChatEvent::Lull)?;
            assert_eq!(wire.came(), "\n");
        }
        writer.take(asked())?;
        writer.take(ChatEvent::Lull)?;
        assert_eq!(wire.came(), "{\"type\":\"start\"}\n");
        Ok(())
    }

    #[test]
    fn the_end_of_the_api_ends_an_answer() {
        let (canceller, closing) = Cancel::pair();
        let reply = Reply::new(Box::new(Wire::default()), 0);
        let mut writer = Writer::new(reply, false, closing);
        assert!(writer.take(ChatEvent::Lull).is_ok());
        canceller.cancel();
        assert!(writer.take(ChatEvent::Lull).is_err());
    }
}
