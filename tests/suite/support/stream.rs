//! A stream of events, such as a turn's, read event by event while it runs.
//! Dropping it hangs up.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use super::World;

/// A running stream as its client sees it.
pub(crate) struct Stream {
    lines: BufReader<Box<dyn Read + Send>>,
    /// Every event so far.
    pub(crate) told: Vec<Value>,
}

impl Stream {
    /// Prompts an agent over `api.sock`.
    #[track_caller]
    pub(crate) fn open(world: &World, agent: &str, body: &Value) -> Self {
        Self::at(world, &prompt_path(agent), body)
    }

    /// The stream of that route over `api.sock`.
    #[track_caller]
    pub(crate) fn at(world: &World, path: &str, body: &Value) -> Self {
        let stream = UnixStream::connect(world.api_socket()).expect("a gateway answers");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        Self::over(stream, path, "localhost", "", body)
    }

    /// Prompts an agent over TCP.
    #[track_caller]
    pub(crate) fn open_by_tcp(world: &World, address: &str, agent: &str, body: &Value) -> Self {
        Self::at_by_tcp(world, address, &prompt_path(agent), body)
    }

    /// The stream of that route over TCP.
    #[track_caller]
    pub(crate) fn at_by_tcp(world: &World, address: &str, path: &str, body: &Value) -> Self {
        let token = std::fs::read_to_string(world.home().join("api-token")).expect("a token");
        let stream = TcpStream::connect(address).expect("a gateway answers");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let authorization = format!("Authorization: Bearer {}\r\n", token.trim());
        Self::over(stream, path, address, &authorization, body)
    }

    #[track_caller]
    fn over(
        mut stream: impl Read + Write + Send + 'static,
        path: &str,
        host: &str,
        headers: &str,
        body: &Value,
    ) -> Self {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: {host}\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        Self { lines: BufReader::new(Box::new(stream)), told: Vec::new() }
    }

    /// The next event; `None` once the stream has ended.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            // A gateway that was killed may leave a reset connection.
            let count = self.lines.read_line(&mut line).unwrap_or(0);
            if count == 0 {
                return None;
            }
            if line.starts_with('{') && line.ends_with('\n') {
                let event: Value = serde_json::from_str(&line).expect("a JSON line");
                self.told.push(event.clone());
                return Some(event);
            }
            assert!(!line.starts_with("HTTP/") || line.contains(" 200 "), "{}", self.refusal(line));
        }
    }

    /// Waits for an empty line, which comes when nothing else does.
    #[track_caller]
    pub(crate) fn heartbeat(&mut self) {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        assert_eq!(line, "\n");
    }

    /// The next event of that type; those before it stand in `told`.
    #[track_caller]
    pub(crate) fn until(&mut self, kind: &str) -> Value {
        loop {
            let Some(event) = self.next() else {
                panic!("the stream ended without {kind}: {:#?}", self.told)
            };
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// All events, up to the end of the stream.
    #[track_caller]
    pub(crate) fn rest(mut self) -> Vec<Value> {
        while self.next().is_some() {}
        self.told
    }

    fn refusal(&mut self, mut line: String) -> String {
        let _ = self.lines.read_to_string(&mut line);
        line
    }
}

fn prompt_path(agent: &str) -> String {
    format!("/api/agents/{agent}/prompt/stream")
}
