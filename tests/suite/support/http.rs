//! A plain HTTP/1.1 client for tests: writes what it is told, reads what
//! comes, and hides nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    /// HTTP status.
    pub(crate) status: u16,
    /// Its head.
    pub(crate) head: String,
    /// Its body, chunks put together.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|it| panic!("{it} in {}", self.text()))
    }

    /// The body's lines that are not empty, as JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines = self.text();
        let lines = lines.lines().filter(|it| !it.trim().is_empty());
        lines.map(|it| serde_json::from_str(it).expect("a JSON line")).collect()
    }

    /// Reads an answer to its end.
    pub(crate) fn read(from: &mut impl Read) -> Self {
        Self::read_any(from).expect("an answer")
    }

    /// The same; `None` if there is none.
    fn read_any(from: &mut impl Read) -> Option<Self> {
        let mut bytes = Vec::new();
        // A connection that is reset after the answer still gave the answer.
        let _ = from.read_to_end(&mut bytes);
        (!bytes.is_empty()).then(|| Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = &bytes[end + 4..];
        let body = if chunked { unchunked(body) } else { body.to_vec() };
        Self { status, head, body }
    }
}

/// One request over a Unix socket, the whole answer.
#[track_caller]
pub(crate) fn request(
    socket: &Path,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    try_request(socket, method, path, headers, body).expect("a gateway answers")
}

/// The same; `None` if nobody listens, or leaves before the answer.
pub(super) fn try_request(
    socket: &Path,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Reply> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).ok()?;
    // A refusal may come before all of the body is taken.
    let _ = stream.write_all(body);
    Reply::read_any(&mut stream)
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|it| it == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).expect("a chunk size");
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk size");
        bytes = &bytes[end + 2..];
        if size == 0 || bytes.len() < size {
            break;
        }
        body.extend_from_slice(&bytes[..size]);
        bytes = bytes.get(size + 2..).unwrap_or_default();
    }
    body
}
