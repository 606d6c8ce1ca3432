//! The API as a client sees it: over real sockets, through the door, tiny_http
//! and the routes, with a small engine in the gateway's place.

#![allow(clippy::expect_used)]

mod answers;
mod frames;
mod small;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossbeam_channel::{Receiver, unbounded};
use serde_json::{Value, json};
use tool_client::frame;

use super::*;
use crate::secret::Secret;
use small::Small;
pub(super) use small::figures;

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
        let engine = Small::new(tell, draining);
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
