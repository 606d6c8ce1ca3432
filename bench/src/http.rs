//! A plain client of the gateway's API over its Unix socket: HTTP/1.0, one
//! request a connection, as the API has it; and the upgraded connection on
//! which frames run. Nothing of beige's own client is used.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Result;

/// Longest wait for a byte.
const PATIENCE: Duration = Duration::from_secs(300);

/// Kinds of frames (docs/http-api.md).
const REQUEST: u8 = 0;
const EXIT: u8 = 6;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    /// HTTP status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// Itself if all went well.
    pub(crate) fn sound(self) -> Result<Self> {
        if self.status == 200 {
            return Ok(self);
        }
        let body = String::from_utf8_lossy(&self.body);
        Err(format!("HTTP {}: {body}", self.status).into())
    }
}

/// GET, the whole answer.
pub(crate) fn get(socket: &Path, path: &str) -> Result<Reply> {
    whole(open(socket, "GET", path, "")?)
}

/// POST of JSON, the whole answer.
pub(crate) fn post(socket: &Path, path: &str, body: &Value) -> Result<Reply> {
    whole(open(socket, "POST", path, &body.to_string())?)
}

/// POST of JSON whose answer is read line by line; it must be a 200.
pub(crate) fn post_stream(
    socket: &Path,
    path: &str,
    body: &Value,
) -> Result<BufReader<UnixStream>> {
    let mut reader = open(socket, "POST", path, &body.to_string())?;
    let status = read_head(&mut reader)?;
    if status != 200 {
        return Err(format!("HTTP {status} of {path}").into());
    }
    Ok(reader)
}

/// The same over TCP, for more streams than the Unix socket serves.
pub(crate) fn post_stream_by_tcp(
    address: &str,
    token: &str,
    path: &str,
    body: &Value,
) -> Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice())?;
    let mut reader = BufReader::new(stream);
    let status = read_head(&mut reader)?;
    if status != 200 {
        return Err(format!("HTTP {status} of {path}").into());
    }
    Ok(reader)
}

/// A core tool of an agent; an error unless the tool was content.
pub(crate) fn tool(socket: &Path, agent: &str, tool: &str, params: &Value) -> Result<()> {
    let path = format!("/api/agents/{agent}/exec");
    let reply = post(socket, &path, &json!({"tool": tool, "params": params}))?.sound()?;
    let answer = reply.json()?;
    if answer["isError"] == false {
        return Ok(());
    }
    Err(format!("{tool}: {answer}").into())
}

fn open(socket: &Path, method: &str, path: &str, body: &str) -> Result<BufReader<UnixStream>> {
    let mut stream = connect(socket)?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice())?;
    Ok(BufReader::with_capacity(64 * 1024, stream))
}

fn connect(socket: &Path) -> Result<UnixStream> {
    let stream = UnixStream::connect(socket)
        .map_err(|it| format!("connect to {}: {it}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn whole(mut reader: BufReader<UnixStream>) -> Result<Reply> {
    let status = read_head(&mut reader)?;
    let mut body = Vec::new();
    reader.read_to_end(&mut body)?;
    Ok(Reply { status, body })
}

/// Reads a head to its end; the status.
pub(crate) fn read_head(reader: &mut impl BufRead) -> Result<u16> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    }
    let status = first.split(' ').nth(1).ok_or("an answer without a head")?.parse()?;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err("a head without an end".into());
        }
    }
    Ok(status)
}

/// A connection that was upgraded and waits for its request.
pub(crate) struct Frames {
    stream: UnixStream,
}

impl Frames {
    /// Opens one for a command of an agent.
    pub(crate) fn open(socket: &Path, agent: &str) -> Result<Self> {
        let mut stream = connect(socket)?;
        let head = format!(
            "POST /api/agents/{agent}/exec/stream HTTP/1.1\r\nHost: localhost\r\n\
             Connection: Upgrade\r\nUpgrade: beige-exec/1\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        // Byte for byte: what follows the head is frames.
        let status = read_head(&mut BufReader::with_capacity(1, &stream))?;
        if status == 101 { Ok(Self { stream }) } else { Err(format!("HTTP {status}").into()) }
    }

    /// Runs a command to its end; what it says is thrown away.
    pub(crate) fn run(&mut self, argv: &[&str]) -> Result<()> {
        let request = json!({"argv": argv}).to_string();
        let length = u32::try_from(request.len())?.to_be_bytes();
        self.stream.write_all(&[&[REQUEST], &length[..], request.as_bytes()].concat())?;
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload)?;
            if head[0] == EXIT {
                let exit: Value = serde_json::from_slice(&payload)?;
                return if exit["exitCode"] == 0 { Ok(()) } else { Err(exit.to_string().into()) };
            }
        }
    }
}
