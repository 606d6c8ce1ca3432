//! The command line's way to a running gateway: HTTP over its Unix socket.
//! Requests go through ureq with a transport of our own; the upgraded
//! connection of `beige exec` is written by hand, since it stops being HTTP.
//! Nothing waits for ever: a gateway that takes connections and answers none
//! is told as such, with its process id.

use std::fmt;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded, select};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;
use ureq::Agent;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use crate::config::Home;
use crate::error::{During, Error, Kind, Result};
use crate::gateway::daemon::HomeLock;
use crate::worker::{Cancel, Worker};

/// How long a gateway may be silent; a stream has an empty line a second.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// How long a gateway may take to the head of its answer, which it gives
/// before it does anything that takes long.
const HEAD_LIMIT: Duration = Duration::from_secs(15);

/// Largest answer that is read whole, in bytes.
const MAX_ANSWER: u64 = 64 * 1024 * 1024;

/// Largest head of an answer, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// A gateway's API, by its Unix socket.
pub(super) struct Api {
    home: Home,
    socket: PathBuf,
    agent: Agent,
}

/// An answer with its body still to be read.
pub(super) struct Reply {
    /// HTTP status.
    pub(super) status: u16,
    /// The body.
    pub(super) body: Box<dyn Read>,
}

impl Api {
    /// The API of the gateway of that home, running or not.
    pub(super) fn new(home: &Home) -> Self {
        Self::with(home, SILENCE_LIMIT, None)
    }

    /// The same of a gateway that may be silent for so long.
    pub(super) fn with_limit(home: &Home, silence: Duration) -> Self {
        Self::with(home, silence, None)
    }

    /// The same; its connections are cut once `cancel` is called off.
    pub(super) fn called_off_by(home: &Home, cancel: Cancel) -> Self {
        Self::with(home, SILENCE_LIMIT, Some(cancel))
    }

    fn with(home: &Home, silence: Duration, cancel: Option<Cancel>) -> Self {
        let socket = home.api_socket();
        let head = silence.min(HEAD_LIMIT);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_send_request(Some(head))
            .timeout_send_body(Some(head))
            .timeout_recv_response(Some(head))
            .timeout_per_read(Some(silence))
            .timeout_per_write(Some(silence))
            .proxy(None)
            .build();
        let connector = ToSocket { socket: socket.clone(), limit: head, cancel };
        let agent = Agent::with_parts(config, connector, NoNames);
        Self { home: home.clone(), socket, agent }
    }

    /// Whether a gateway takes connections on the socket.
    pub(super) fn is_there(&self) -> bool {
        match connect(&self.socket, HEAD_LIMIT) {
            Ok(_) => true,
            // Its line of connections is full: it is there and takes none.
            Err(error) => is_late(&error),
        }
    }

    /// GET, the answer as JSON.
    pub(super) fn get(&self, path: &str) -> Result<Value> {
        let what = format!("ask the gateway for {path}");
        let response = self.agent.get(url(path)).call();
        let mut response = response.map_err(|it| self.failed(it, &what))?;
        let text = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
        let text = text.map_err(|it| self.failed(it, &what))?;
        let value: Value = serde_json::from_str(&text).during(Kind::Internal, what)?;
        match value.get("error").and_then(Value::as_str) {
            Some(error) if response.status().as_u16() >= 400 => {
                Err(Error::new(kind_of(response.status().as_u16()), error))
            }
            _ => Ok(value),
        }
    }

    /// POST; [`Kind::Busy`] when nobody listens on the socket.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Reply> {
        let what = format!("ask the gateway for {path}");
        if !self.is_there() {
            return Err(Error::new(Kind::Busy, "no gateway is running"));
        }
        let bytes = serde_json::to_vec(body).during(Kind::Internal, what.clone())?;
        let request = self.agent.post(url(path)).content_type("application/json");
        let response = request.send(&bytes[..]).map_err(|it| self.failed(it, &what))?;
        let status = response.status().as_u16();
        Ok(Reply { status, body: Box::new(response.into_body().into_reader()) })
    }

    /// Turns a connection into frames. [`Kind::Busy`] when nobody listens or
    /// the gateway drains: nothing was begun then.
    pub(super) fn upgrade(&self, path: &str, protocol: &str) -> Result<BufReader<UnixStream>> {
        let what = format!("ask the gateway for {path}");
        let stream = connect(&self.socket, HEAD_LIMIT).map_err(|it| self.refused(it, &what))?;
        stream.set_read_timeout(Some(HEAD_LIMIT)).during(Kind::Internal, what.clone())?;
        stream.set_write_timeout(Some(HEAD_LIMIT)).during(Kind::Internal, what.clone())?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
             Upgrade: {protocol}\r\n\r\n"
        );
        (&stream).write_all(head.as_bytes()).map_err(|it| self.refused(it, &what))?;
        let mut reader = BufReader::new(stream);
        let head = read_head(&mut reader).map_err(|it| self.refused(it, &what))?;
        let (status, length) = understood(&head)?;
        if status == 101 {
            reader.get_ref().set_read_timeout(None).during(Kind::Internal, what.clone())?;
            reader.get_ref().set_write_timeout(None).during(Kind::Internal, what)?;
            return Ok(reader);
        }
        let mut body = Vec::new();
        let read = reader.take(length.unwrap_or(MAX_ANSWER)).read_to_end(&mut body);
        read.during(Kind::Internal, what)?;
        Err(refusal(status, &body))
    }

    /// A read that failed in the middle of an answer.
    pub(super) fn broken(&self, error: io::Error) -> Error {
        match is_late(&error) {
            true => self.silent(),
            false => Error::new(Kind::Internal, format!("read from the gateway: {error}")),
        }
    }

    fn failed(&self, error: ureq::Error, what: &str) -> Error {
        match error {
            ureq::Error::Timeout(_) => self.silent(),
            ureq::Error::Io(error) if is_late(&error) => self.silent(),
            other => Error::new(Kind::Internal, format!("{what}: {other}")),
        }
    }

    /// What came instead of a head: a gateway that ends before it answers has
    /// begun nothing.
    fn refused(&self, error: io::Error, what: &str) -> Error {
        match is_late(&error) {
            true => self.silent(),
            false => Error::new(Kind::Busy, format!("{what}: {error}")),
        }
    }

    fn silent(&self) -> Error {
        let holder = HomeLock::holder(&self.home).ok().flatten();
        Error::new(Kind::Timeout, silence(holder.and_then(|it| it.pid)))
    }
}

/// What to say of a gateway that runs and does not answer.
pub(super) fn silence(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!(
            "the gateway (pid {pid}) does not answer; if it stays so, end it with `kill -9 {pid}`, \
             then `beige gateway start`"
        ),
        None => "a gateway is there and does not answer; its process is not known yet, try again"
            .to_owned(),
    }
}

fn is_late(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    matches!(inner, Some(ureq::Error::Timeout(_)))
        || matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Connects; a gateway that takes no connections is waited for so long.
fn connect(socket: &Path, limit: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&stream, Timeout::Send, Some(limit))?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    set_socket_timeout(&stream, Timeout::Send, None)?;
    Ok(stream.into())
}

/// An answer that says no, as an error.
pub(super) fn refusal(status: u16, body: &[u8]) -> Error {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let text = value.as_ref().and_then(|it| it.get("error")).and_then(Value::as_str);
    let text = text.map_or_else(|| format!("the gateway answered {status}"), str::to_owned);
    Error::new(kind_of(status), text)
}

fn kind_of(status: u16) -> Kind {
    match status {
        400 => Kind::Usage,
        401 | 403 => Kind::Denied,
        404 => Kind::Missing,
        409 => Kind::Conflict,
        413 => Kind::TooLarge,
        503 => Kind::Busy,
        _ => Kind::Internal,
    }
}

/// A head, up to its empty line.
fn read_head(from: &mut BufReader<UnixStream>) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(io::Error::other("its answer has an endless head"));
        }
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(head)
}

/// Status and `Content-Length` of a head.
fn understood(head: &[u8]) -> Result<(u16, Option<u64>)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    response.parse(head).during(Kind::Internal, "read the gateway's answer")?;
    let length = response.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|it| std::str::from_utf8(it.value).ok()?.trim().parse().ok());
    Ok((response.code.unwrap_or(0), length))
}

fn url(path: &str) -> String {
    format!("http://localhost{path}")
}

/// One part of a path, percent-encoded.
pub(super) fn encoded(part: &str) -> String {
    let mut encoded = String::new();
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Connects to the one socket, whatever the URL says.
#[derive(Debug)]
struct ToSocket {
    socket: PathBuf,
    limit: Duration,
    cancel: Option<Cancel>,
}

impl Connector for ToSocket {
    type Out = SocketTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _chained: Option<()>,
    ) -> Result<Option<SocketTransport>, ureq::Error> {
        let stream = connect(&self.socket, self.limit)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let cut = self.cancel.as_ref().map(|it| Cut::when(it, &stream)).transpose()?;
        Ok(Some(SocketTransport { stream, buffers, _cut: cut }))
    }
}

struct SocketTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
    _cut: Option<Cut>,
}

/// A thread that shuts a connection once somebody calls it off, so that a
/// blocked read ends; dropping it ends it.
struct Cut {
    _over: Sender<()>, // Dropped first: closing it is what ends the thread.
    _thread: Worker,
}

impl Cut {
    fn when(cancel: &Cancel, stream: &UnixStream) -> io::Result<Self> {
        let (cancel, stream) = (cancel.clone(), stream.try_clone()?);
        let (over, is_over) = bounded(0);
        let thread = Worker::spawn("api-cut", move || {
            select! {
                recv(cancel.gone()) -> _ => drop(stream.shutdown(Shutdown::Both)),
                recv(is_over) -> _ => {}
            }
        });
        Ok(Self { _over: over, _thread: thread.map_err(io::Error::other)? })
    }
}

impl fmt::Debug for SocketTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SocketTransport")
    }
}

impl Transport for SocketTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(timeout.not_zero().map(|it| *it))?;
        let output = &self.buffers.output()[..amount];
        match self.stream.write_all(output) {
            // Who is turned away at the door is told why before it is closed.
            Err(error) if is_closed(&error) => Ok(()),
            written => written.map_err(|error| timed(error, &timeout)),
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(timeout.not_zero().map(|it| *it))?;
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match self.stream.read(input) {
                Ok(amount) => break amount,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(timed(error, &timeout)),
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        false // One request a connection: the gateway closes after each.
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

fn timed(error: std::io::Error, timeout: &NextTimeout) -> ureq::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ureq::Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

/// A Unix socket has no name to look up; ureq wants one address all the same.
#[derive(Debug)]
struct NoNames;

impl Resolver for NoNames {
    fn resolve(
        &self,
        _uri: &ureq::http::Uri,
        _config: &ureq::config::Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut addresses = self.empty();
        addresses.push(([127, 0, 0, 1], 0).into());
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_is_encoded() {
        assert_eq!(encoded("assistant"), "assistant");
        assert_eq!(encoded("tui:a/b é"), "tui%3Aa%2Fb%20%C3%A9");
    }

    #[test]
    fn a_gateway_that_is_silent_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("beige-silent-{}", std::process::id()));
        let home = Home::new(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        // Takes connections and answers none, as a process that is stopped.
        let _silent = std::os::unix::net::UnixListener::bind(home.api_socket()).expect("a socket");
        let asked = Api::with_limit(&home, Duration::from_millis(50)).get("/api/health");
        assert_eq!(asked.map_err(|it| it.kind()), Err(Kind::Timeout));
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_refusal_keeps_the_gateways_words() {
        let error = refusal(404, br#"{"error":"there is no agent `x`"}"#);
        assert_eq!(error.kind(), Kind::Missing);
        assert_eq!(error.to_string(), "there is no agent `x`");
        assert_eq!(refusal(502, b"<html>").to_string(), "the gateway answered 502");
    }
}
