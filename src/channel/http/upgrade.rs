//! `Upgrade: beige-exec/1`: a command with its streams as frames both ways
//! (`tool_client::frame`). Served on the door's own connection: tiny_http
//! gives an upgraded connection as one piece that one thread can either read
//! or write, and here one thread does each.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded, unbounded};
use serde_json::{Value, json};
use tool_client::frame::{self, Frame};

use super::answer::Answer;
use super::door::{Head, Stream, Upgraded};
use super::engine::Engine;
use super::routes::{CommandRequest, Route, refusal, report, require, route};
use crate::error::{During, Error, Kind, Result};
use crate::sandbox::{Exit, Feed, Output};
use crate::tool::Streams;
use crate::worker::{Cancel, Canceller, scoped};

/// The protocol's name.
const PROTOCOL: &str = "beige-exec/1";

/// For a client to send its request once the protocol is changed, a read.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Signals that may wait; further ones are lost, as signals are.
const SIGNALS: usize = 16;

/// Whether a request asks for this protocol.
pub(super) fn is_asked_for(head: &Head) -> bool {
    head.upgrade.as_deref() == Some(PROTOCOL)
}

/// Serves it to its end, or says why not.
pub(super) fn serve(
    engine: &impl Engine,
    head: &Head,
    upgraded: Upgraded,
) -> std::result::Result<(), Answer> {
    let Route::ExecStream(agent) = route(&head.method, &head.target)? else {
        return Err(Answer::error(400, "`Upgrade` is for exec/stream"));
    };
    require(engine, &agent)?;
    let (canceller, cancel) = Cancel::pair();
    // From here on a stop waits for the command, also while it is on its way:
    // a client that was told 101 need not try elsewhere.
    let place = engine.admit(&cancel).map_err(|it| refusal(engine, &it))?;
    let talk = Talk { client: &upgraded.client, granted: Arc::default() };
    let mut from = BufReader::new(Cursor::new(upgraded.early).chain(&*upgraded.client));
    if talk.accept().is_err() {
        return Ok(());
    }
    let last = match talk.request(&mut from) {
        Ok(Some(request)) => {
            let run = |streams: Streams<'_>| {
                let CommandRequest { call, session_key } = request;
                engine.run_command(place, &agent, call, session_key.as_deref(), streams, &cancel)
            };
            talk.run(engine, canceller, run, &mut from)
        }
        Ok(None) => return Ok(()),
        Err(wrong) => json!({ "error": engine.mask(&wrong), "status": 400 }),
    };
    // Whoever is gone does not need to know.
    let _ = frame::write(&mut &*upgraded.client, frame::EXIT, last.to_string().as_bytes());
    Ok(())
}

/// Both directions of one conversation.
struct Talk<'a> {
    client: &'a Stream,
    /// Bytes of standard input that the client may have sent so far.
    granted: Arc<AtomicU64>,
}

impl Talk<'_> {
    /// Says that the protocol is changed. From now on a client may take its
    /// time with both directions: the end of its connection is what ends it.
    fn accept(&self) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: {PROTOCOL}\r\nConnection: Upgrade\r\n\r\n"
        );
        io::Write::write_all(&mut &*self.client, head.as_bytes())?;
        self.client.prepare_for_long_life()?;
        self.client.set_write_timeout(None)?;
        self.client.set_read_timeout(Some(REQUEST_TIME))
    }

    /// The request, which is checked; `None` if the client went away.
    fn request(
        &self,
        from: &mut impl BufRead,
    ) -> std::result::Result<Option<CommandRequest>, String> {
        let mut request = frame::Request::default();
        loop {
            let next = frame::read(from).map_err(|it| format!("read the request: {it}"))?;
            let Some(Frame { kind, payload }) = next else { return Ok(None) };
            if kind != frame::REQUEST {
                return Err("the first frame must be the request".into());
            }
            if let Some(whole) = request.push(&payload).map_err(|it| it.to_string())? {
                return CommandRequest::parse(&whole).map(Some);
            }
        }
    }

    /// Runs the command; gives what the last frame says.
    fn run(
        &self,
        engine: &impl Engine,
        canceller: Canceller,
        run: impl FnOnce(Streams<'_>) -> Result<Exit>,
        from: &mut (impl BufRead + Send),
    ) -> Value {
        let (mut feeding, feed) = Feeding::new(&self.granted, canceller);
        let ended = thread::scope(|scope| -> Result<_> {
            self.client.set_read_timeout(None).during(Kind::Internal, "prepare the connection")?;
            let reading = scoped(scope, "door-frames", move || {
                let read = feeding.read_all(from);
                // Kept until the command is over: a hang-up must never look
                // like the end of its standard input.
                (read, feeding)
            })?;
            let mut output = Frames { client: self.client, granted: &self.granted };
            let exit = run(Streams { feed: &feed, output: &mut output });
            // Wakes the reader, which has nothing left to do.
            self.client.end(Shutdown::Read);
            if let Ok((read, _feeding)) = reading.join() {
                read.during(Kind::Usage, "read a frame")?;
            }
            exit
        });
        ended.map_or_else(|error| failure(engine, &error), |exit| report(&exit))
    }
}

/// What the last frame says when there is no exit.
fn failure(engine: &impl Engine, error: &Error) -> Value {
    let status = refusal(engine, error).status;
    json!({ "error": engine.mask(&error.to_string()), "status": status })
}

/// What comes from the client.
struct Feeding {
    stdin: Option<Sender<Vec<u8>>>,
    signals: Sender<u8>,
    granted: Arc<AtomicU64>,
    sent: u64,
    canceller: Canceller,
}

impl Feeding {
    /// With the other end for the command.
    fn new(granted: &Arc<AtomicU64>, canceller: Canceller) -> (Self, Feed) {
        // Bounded by the window.
        let (stdin_in, stdin) = unbounded();
        let (signals, signals_out) = bounded(SIGNALS);
        granted.store(u64::from(frame::WINDOW_START), Ordering::SeqCst);
        let granted = Arc::clone(granted);
        let feeding = Self { stdin: Some(stdin_in), signals, granted, sent: 0, canceller };
        (feeding, Feed { stdin, signals: signals_out })
    }

    /// Reads until the client hangs up, which calls the command off. Never
    /// blocks on anything else: standard input is bounded by its window.
    fn read_all(&mut self, from: &mut impl Read) -> std::result::Result<(), String> {
        loop {
            let taken = match frame::read(from) {
                Ok(Some(frame)) => self.take(frame),
                // Hang-up, or the command is over and this side was ended.
                Ok(None) | Err(_) => {
                    self.canceller.cancel();
                    return Ok(());
                }
            };
            if taken.is_err() {
                self.canceller.cancel();
                return taken;
            }
        }
    }

    fn take(&mut self, frame: Frame) -> std::result::Result<(), String> {
        match (frame.kind, frame.payload.as_slice()) {
            (frame::STDIN, _) => self.take_input(frame.payload),
            (frame::STDIN_END, []) => {
                self.stdin = None;
                Ok(())
            }
            (frame::SIGNAL, &[number @ 1..=31]) => {
                let _ = self.signals.try_send(number);
                Ok(())
            }
            (frame::CANCEL, []) => {
                self.canceller.cancel();
                Ok(())
            }
            (kind, _) => Err(format!("a frame of kind {kind} has no place here, or is malformed")),
        }
    }

    fn take_input(&mut self, bytes: Vec<u8>) -> std::result::Result<(), String> {
        let Some(stdin) = &self.stdin else {
            return Err("standard input goes on after its end".into());
        };
        self.sent += bytes.len() as u64;
        if self.sent > self.granted.load(Ordering::SeqCst) {
            return Err("more standard input was sent than the window allows".into());
        }
        if !bytes.is_empty() {
            // A command that reads no more still runs.
            let _ = stdin.send(bytes);
        }
        Ok(())
    }
}

/// What goes to the client.
struct Frames<'a> {
    client: &'a Stream,
    granted: &'a AtomicU64,
}

impl Frames<'_> {
    fn write(&self, kind: u8, bytes: &[u8]) -> io::Result<()> {
        let mut pieces = bytes.chunks(frame::MAX_PAYLOAD);
        pieces.try_for_each(|piece| frame::write(&mut &*self.client, kind, piece))
    }
}

impl Output for Frames<'_> {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(frame::STDOUT, bytes)
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(frame::STDERR, bytes)
    }

    fn window(&mut self, bytes: u32) -> io::Result<()> {
        // Granted before the client can know of it.
        self.granted.fetch_add(u64::from(bytes), Ordering::SeqCst);
        self.write(frame::WINDOW, &bytes.to_be_bytes())
    }
}
