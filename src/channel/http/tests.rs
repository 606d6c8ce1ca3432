//! The API as a client sees it: over real sockets, through the door, tiny_http
//! and the routes, with a small engine in the gateway's place.

#![allow(clippy::expect_used)]

mod answers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossbeam_channel::{Receiver, Sender, select, unbounded};
use serde_json::{Value, json};
use tool_client::frame;

use super::engine::{EachMessage, EachRecord, EachSession};
use super::*;
use crate::audit::Filter;
use crate::clock;
use crate::config::ModelRef;
use crate::error::{Error, Kind};
use crate::gateway::{
    ChatEvent, ChatRequest, Detail, Figures, Health, HookRequest, Lines, Made, PromptRequest,
    ProviderLoad, Said, SessionChange, Subscription,
};
use crate::plugin::hooks::Prompted;
use crate::provider::{Assembly, Delta};
use crate::sandbox::{Exit, Feed, Output};
use crate::secret::Secret;
use crate::session::{Listed, Page, Which};
use crate::tool::{self, CommandCall, Streams};
use crate::turn::TurnEvent;
use crate::usage::Query;
use crate::worker::Worker;

const NEVER: Duration = Duration::from_secs(60);

/// A folder of a test's own, removed with its last use. Its name is short,
/// since sockets lie in it.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bh-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        assert!(create_private(&path).is_ok());
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The gateway's place: one agent, `assistant`; tells what it did.
#[derive(Clone)]
struct Small {
    told: Sender<String>,
    draining: bool,
    turns: Arc<Mutex<Vec<Worker>>>,
}

impl Small {
    fn tell(&self, what: impl Into<String>) {
        let _ = self.told.send(what.into());
    }

    /// Runs `cat` with the window of a real one.
    fn cat(&self, feed: &Feed, output: &mut dyn Output, cancel: &Cancel) -> Result<Exit> {
        loop {
            select! {
                recv(feed.stdin) -> bytes => match bytes {
                    Ok(bytes) => {
                        let written = output.stdout(&bytes).and_then(|()| {
                            output.window(u32::try_from(bytes.len()).unwrap_or(0))
                        });
                        if written.is_err() {
                            return Ok(exit(137));
                        }
                    }
                    Err(_) => return Ok(exit(0)),
                },
                recv(feed.signals) -> number => if let Ok(number) = number {
                    return Ok(exit(128 + i32::from(number)));
                },
                recv(cancel.gone()) -> _ => {
                    self.tell("cat was called off");
                    return Err(Error::new(Kind::Cancelled, "called off"));
                }
            }
        }
    }
}

fn exit(code: i32) -> Exit {
    Exit {
        code,
        timed_out: false,
        cancelled: false,
        note: None,
        saved: None,
        duration: Duration::from_millis(7),
    }
}

impl Engine for Small {
    type Place = ();

    fn health(&self) -> Value {
        json!({ "status": "ok", "version": "1" })
    }

    fn agents(&self) -> Value {
        json!([{ "name": "assistant" }])
    }

    fn config(&self) -> Value {
        json!({ "agents": {} })
    }

    fn models(&self, agent: &str) -> Result<Value> {
        self.require_agent(agent).map(|()| json!([{ "id": "m" }]))
    }

    fn figures(&self) -> Figures {
        figures()
    }

    fn restart(&self) -> Result<()> {
        self.tell("restart");
        Ok(())
    }

    fn abort(&self, agent: &str, session_key: &str) -> Result<bool> {
        self.require_agent(agent)?;
        match session_key {
            "api:other" => Err(Error::new(Kind::Conflict, "it belongs to `other`")),
            _ => Ok(session_key == "api:a/b"),
        }
    }

    fn steer(&self, agent: &str, session_key: &str, message: &str) -> Result<()> {
        match self.abort(agent, session_key)? && message == "left" {
            true => Ok(()),
            false => Err(Error::new(Kind::Conflict, "no turn is running in this session")),
        }
    }

    fn compact(&self, _: &str, session_key: &str) -> Result<Subscription> {
        let (mut subscriber, subscription, _) = Subscription::pair(Detail::All);
        let failed = session_key != "api:a/b";
        let (tokens_before, tokens_after) = (9, if failed { 9 } else { 2 });
        let reason = failed.then(|| "r".to_owned());
        subscriber.tell(TurnEvent::CompactionEnd {
            compacted: !failed,
            tokens_before,
            tokens_after,
            reason,
        });
        subscriber.tell(TurnEvent::Done { response: String::new(), note: None });
        Ok(subscription)
    }

    fn require_agent(&self, name: &str) -> Result<()> {
        match name {
            "assistant" => Ok(()),
            _ => Err(Error::new(Kind::Missing, format!("there is no agent `{name}`"))),
        }
    }

    fn call_tool(
        &self,
        agent: &str,
        tool: &str,
        params: Value,
        session_key: Option<&str>,
        cancel: &Cancel,
    ) -> Result<tool::Answer> {
        self.tell(format!("{agent} {tool} {params} {session_key:?}"));
        match tool {
            "wait" => {
                let _ = cancel.gone().recv();
                self.tell("wait was called off");
                Err(Error::new(Kind::Cancelled, "called off"))
            }
            "leak" => Err(Error::new(Kind::Denied, "no s3cret for you")),
            _ => Ok(tool::Answer::text("hi")),
        }
    }

    fn admit(&self, _: &Cancel) -> Result<()> {
        Ok(())
    }

    fn run_command(
        &self,
        (): (),
        _: &str,
        call: CommandCall,
        _: Option<&str>,
        Streams { feed, output }: Streams<'_>,
        cancel: &Cancel,
    ) -> Result<Exit> {
        match call.argv.first().and_then(|it| it.to_str()) {
            Some("cat") => self.cat(feed, output, cancel),
            Some("both") => {
                let both = output.stdout(b"out\xff").and_then(|()| output.stderr(b"err"));
                both.map(|()| exit(3)).map_err(|_| Error::new(Kind::Cancelled, "gone"))
            }
            Some("yes") => {
                while output.stdout(&[b'y'; 64 * 1024]).is_ok() {}
                self.tell("nobody takes what yes says");
                Ok(exit(137))
            }
            Some("wait") => {
                let _ = cancel.gone().recv();
                self.tell("wait was called off");
                Ok(exit(137))
            }
            _ => Err(Error::new(Kind::Sandbox, "no s3cret runtime")),
        }
    }

    fn prompt(&self, request: PromptRequest, detail: Detail) -> Result<Subscription> {
        let (mut subscriber, subscription, cancel) = Subscription::pair(detail);
        let mut send = |event| subscriber.tell(event);
        if request.message == "busy" {
            send(TurnEvent::refused(&Error::new(Kind::Busy, "the gateway is stopping")));
            return Ok(subscription);
        }
        send(TurnEvent::TextDelta { delta: "a".into() });
        match request.message.as_str() {
            "block" => send(TurnEvent::Blocked { reason: "not today".into() }),
            "fail" => send(failure()),
            "break" => {}
            "denied" => return Err(Error::new(Kind::Denied, "this model is not the agent's")),
            "wait" => {
                let told = self.told.clone();
                let waiting = Worker::spawn("turn", move || {
                    let _ = cancel.gone().recv();
                    let _ = told.send("the turn was called off".into());
                    drop(subscriber);
                });
                let waiting = waiting?;
                assert!(self.turns.lock().map(|mut it| it.push(waiting)).is_ok());
            }
            _ => send(TurnEvent::Done { response: "yes".into(), note: None }),
        }
        Ok(subscription)
    }

    fn chat(
        &self,
        request: ChatRequest,
        events: &mut dyn FnMut(ChatEvent),
        cancel: &Cancel,
    ) -> Result<()> {
        match request.system.as_str() {
            "denied" => return Err(Error::new(Kind::Denied, "no s3cret model for you")),
            "block" => events(ChatEvent::Blocked("not today".into())),
            "break" => {}
            "wait" => {
                while !cancel.is_cancelled() {
                    events(ChatEvent::Lull);
                }
                self.tell("the answer was called off");
            }
            "flood" => {
                let answer = Assembly::new("replay", &request.model, clock::now());
                events(ChatEvent::Asked(Box::new(answer)));
                while !cancel.is_cancelled() {
                    events(ChatEvent::Piece(Delta::Text("x".repeat(1_000))));
                }
                self.tell("nobody takes what it says");
            }
            _ => {
                let answer = Assembly::new("replay", &request.model, clock::now());
                events(ChatEvent::Asked(Box::new(answer)));
                events(ChatEvent::Piece(Delta::Text("a".into())));
                events(ChatEvent::Done(Box::default()));
            }
        }
        Ok(())
    }

    fn sessions(&self, which: &Which, each: EachSession) -> Result<()> {
        let agent_name = which.agent.clone().unwrap_or_default();
        each(Listed { session_id: "s".into(), agent_name, ..Listed::default() }).map(drop)
    }

    fn session_history(
        &self,
        _agent: &str,
        session: &str,
        page: &Page,
        first: &mut dyn FnMut(Listed),
        _each: EachMessage,
    ) -> Result<bool> {
        if session != "k" {
            return Err(Error::new(Kind::Missing, format!("there is no session `{session}`")));
        }
        first(Listed { session_id: "s".into(), ..Listed::default() });
        Ok(page.limit == 1)
    }

    fn change_session(&self, agent: &str, change: &SessionChange) -> Result<Listed> {
        self.tell(format!("{agent}: {change:?}"));
        Err(Error::new(Kind::Conflict, "a turn is running"))
    }

    fn choose_model(&self, agent: &str, session_key: &str, model: &ModelRef) -> Result<()> {
        self.tell(format!("{agent}: {session_key}: {model}"));
        if model.model == "m" { Ok(()) } else { Err(Error::new(Kind::Denied, "not that one")) }
    }

    fn audit(&self, filter: &Filter, each: EachRecord) -> Result<()> {
        if filter.tool.as_deref() == Some("broken") {
            return Err(Error::new(Kind::Internal, "no log"));
        }
        let count = if filter.denied { 0 } else { 3 };
        (0..count).try_for_each(|seq| each(&format!("{{\"seq\":{seq}}}")).map(|_| ()))
    }

    fn usage(&self, query: &Query) -> Result<Value> {
        match query.agent.as_deref() {
            Some("broken") => Err(Error::new(Kind::Internal, "no file")),
            agent => Ok(json!({ "by": query.by.name(), "agent": agent })),
        }
    }

    fn run_hook(&self, request: HookRequest, _: &Cancel) -> Result<Made> {
        let reason = "the s3cret is out".to_owned();
        Ok(match request.what {
            Said::Prompt(message) if message == "BLOCK" => Made::Refused { message, reason },
            Said::Prompt(message) => Made::Prompt(Prompted { message, context: String::new() }),
            Said::Response(response) if response == "BLOCK" => Made::Withheld { response, reason },
            Said::Response(response) => Made::Response(response),
            Said::Created | Said::Disposed => Made::Nothing,
        })
    }

    fn mask(&self, text: &str) -> String {
        text.replace("s3cret", "•••")
    }

    fn is_draining(&self) -> bool {
        self.draining
    }
}

fn failure() -> TurnEvent {
    let partial = Some("a".into());
    TurnEvent::Error { category: "unavailable", message: "all failed".into(), partial }
}

/// Some figures.
pub(super) fn figures() -> Figures {
    let load = ProviderLoad {
        provider: "p".into(),
        queued: 4,
        wait_seconds: 1.5,
        ..ProviderLoad::default()
    };
    let health = Health {
        status: "ok",
        version: "1",
        address: None,
        started_at: String::new(),
        uptime_seconds: 7,
        agents: 1,
        sandboxes: 1,
        sessions: 2,
        running: 5,
        waiting: 3,
        providers: vec![load],
        reload_error: None,
        degraded: Vec::new(),
    };
    Figures { health, lines: Lines { busy: 2, waiting: 3 }, counted: Default::default() }
}

/// A running API and what its engine tells.
struct Api {
    http: Option<Http>,
    told: Receiver<String>,
    folder: Folder,
    address: std::net::SocketAddr,
}

impl Api {
    fn new() -> Self {
        Self::with(false)
    }

    fn with(draining: bool) -> Self {
        let folder = Folder::new();
        let (tell, told) = unbounded();
        let tcp = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = tcp.local_addr().expect("address");
        let unix = UnixListener::bind(folder.path().join("api.sock")).expect("bind");
        let guard = Guard {
            host: "127.0.0.1".into(),
            allowed_hosts: Vec::new(),
            token: Some(Secret::new("t0ken")),
        };
        let limits = Limits { drain: Duration::ZERO, ..Limits::default() };
        let engine = Small { told: tell, draining, turns: Arc::default() };
        let home = Home::new(folder.path());
        let http = Http::serve(engine, &home, tcp, unix, guard, limits).expect("start");
        Self { http: Some(http), told, folder, address }
    }

    fn dial(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("api.sock")).expect("connect");
        stream.set_read_timeout(Some(NEVER)).expect("timeout");
        stream
    }

    fn send(&self, line: &str, body: &str) -> UnixStream {
        let mut stream = self.dial();
        let head = format!("{line} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        assert!(stream.write_all((head + body).as_bytes()).is_ok());
        stream
    }

    /// One request; gives status and body.
    #[track_caller]
    fn ask(&self, line: &str, body: &str) -> (u16, String) {
        let mut text = String::new();
        assert!(self.send(line, body).read_to_string(&mut text).is_ok());
        split(&text)
    }

    #[track_caller]
    fn check(&self, line: &str, body: &str, status: u16, want: Value) {
        let (found, text) = self.ask(line, body);
        let document = serde_json::from_str::<Value>(&text).unwrap_or(text.into());
        assert_eq!((found, document), (status, want), "{line} {body}");
    }

    /// One that is refused, with a message that holds `word`.
    #[track_caller]
    fn refuses(&self, line: &str, body: &str, status: u16, word: &str) {
        let (found, text) = self.ask(line, body);
        let error = serde_json::from_str::<Value>(&text).map(|it| it["error"].to_string());
        assert_eq!(found, status, "{line} {body}: {text}");
        assert!(error.is_ok_and(|it| it.contains(word)), "{line} {body}: {text}");
    }

    #[track_caller]
    fn tells(&self, want: &str) {
        assert_eq!(self.told.recv_timeout(NEVER).as_deref(), Ok(want));
    }

    /// An upgraded connection with its request sent.
    fn upgrade(&self, request: &Value) -> BufReader<UnixStream> {
        let mut stream = self.dial();
        let head = "POST /api/agents/assistant/exec/stream HTTP/1.1\r\nHost: x\r\n\
                    Connection: Upgrade\r\nUpgrade: beige-exec/1\r\n\r\n";
        assert!(stream.write_all(head.as_bytes()).is_ok());
        assert!(frame::write_request(&mut stream, request.to_string().as_bytes()).is_ok());
        let mut from = BufReader::new(stream);
        let mut line = String::new();
        assert!(
            from.read_line(&mut line).is_ok_and(|_| line.starts_with("HTTP/1.1 101 ")),
            "{line}"
        );
        while line != "\r\n" {
            line.clear();
            assert!(from.read_line(&mut line).is_ok_and(|it| it > 0));
        }
        from
    }
}

#[track_caller]
fn split(text: &str) -> (u16, String) {
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// The lines of a stream, without the empty ones.
fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|it| !it.is_empty());
    lines.map(|it| serde_json::from_str(it).expect("JSON")).collect()
}

/// The next frame.
#[track_caller]
fn next(from: &mut impl Read) -> (u8, Vec<u8>) {
    let frame = frame::read(from).expect("read").expect("a frame");
    (frame.kind, frame.payload)
}

/// The last frame, behind any others.
#[track_caller]
fn exit_of(from: &mut impl Read) -> Value {
    loop {
        let (kind, payload) = next(from);
        if kind == frame::EXIT {
            assert!(matches!(frame::read(from), Ok(None)), "the exit is last");
            return serde_json::from_slice(&payload).expect("JSON");
        }
    }
}
