//! The agents' sockets: one listener an agent, whose path alone says who is
//! calling. Everything a line holds is hostile: it is bounded, checked, and
//! becomes a [`PluginCall`] for the toolbox, with the session looked up and
//! never believed. What one agent sends can slow down that agent only.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};

use crate::error::{During, Error, Kind, Result};
use crate::tool::{Answer, Call, Caller, PluginCall, SessionRef, Toolbox};
use crate::worker::{self, Cancel, Canceller, Crew, Worker};

/// Longest request line, in bytes.
const MAX_LINE: usize = 4 * 1024 * 1024;

/// Connections an agent may have; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;

/// Tools an agent may run at a time; further ones wait.
const MAX_TOOLS: usize = 32;

/// How long a line may take once its first byte has come.
const LINE_LIMIT: Duration = Duration::from_secs(30);

/// How long a peer may take to read an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// Says whether a session key exists and belongs to an agent.
pub type OwnsSession = dyn Fn(&str, &str) -> bool + Send + Sync;

/// What all connections of one agent share.
struct Desk {
    agent: String,
    toolbox: Arc<Toolbox>,
    owns_session: Arc<OwnsSession>,
    running: Slots,
    stop: Cancel,
}

/// The socket of one agent; dropping it ends its connections and removes it.
pub struct AgentSocket {
    path: PathBuf,
    stop: Canceller,
    listener: Option<Worker>,
}

impl AgentSocket {
    /// Binds `path` (an old socket under that name is removed) and listens.
    /// Every uid of the agent's sandbox may connect; the folders above keep
    /// the host's other users out.
    pub fn listen(
        path: PathBuf,
        agent: &str,
        toolbox: Arc<Toolbox>,
        owns_session: Arc<OwnsSession>,
    ) -> Result<Self> {
        let listener = bind(&path)?;
        let (stop, stopped) = Cancel::pair();
        let desk = Arc::new(Desk {
            agent: agent.to_owned(),
            toolbox,
            owns_session,
            running: Slots::new(MAX_TOOLS),
            stop: stopped,
        });
        let name = format!("sock-{agent}");
        let listener = Worker::spawn(name, move || accept_all(&listener, &desk))?;
        Ok(Self { path, stop, listener: Some(listener) })
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        self.stop.cancel();
        // Wakes the listener, which blocks in accept.
        let _ = UnixStream::connect(&self.path);
        self.listener.take();
        let _ = fs::remove_file(&self.path);
    }
}

/// Binds a socket that everyone who reaches its folder may connect to. The
/// name is never left without a socket while an old one is replaced.
fn bind(path: &Path) -> Result<UnixListener> {
    let what = format!("listen on {}", path.display());
    let fresh = path.with_extension("new");
    remove_if_there(&fresh).during(Kind::Internal, what.clone())?;
    let listener = UnixListener::bind(&fresh).during(Kind::Internal, what.clone())?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o666))
        .and_then(|()| fs::rename(&fresh, path))
        .during(Kind::Internal, what)?;
    Ok(listener)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn accept_all(listener: &UnixListener, desk: &Arc<Desk>) {
    let connections = Slots::new(MAX_CONNECTIONS);
    let crew = Crew::new(format!("conn-{}", desk.agent), MAX_CONNECTIONS + 1);
    while let Some(slot) = connections.take(&desk.stop) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                log::warn!("accept on the socket of agent {}: {error}", desk.agent);
                // Out of descriptors: others must end theirs first.
                if desk.stop.gone().recv_timeout(Duration::from_millis(100)).is_err()
                    && desk.stop.is_cancelled()
                {
                    return;
                }
                continue;
            }
        };
        if desk.stop.is_cancelled() {
            return;
        }
        let desk = Arc::clone(desk);
        let spawned = crew.spawn(move || {
            let _slot = slot;
            if let Err(error) = serve(&stream, &desk) {
                log::debug!("a connection of agent {} ended: {error}", desk.agent);
            }
        });
        if let Err(error) = spawned {
            log::warn!("{error}");
        }
    }
}

/// Answers line after line, in order, until the peer ends or the gateway does.
fn serve(stream: &UnixStream, desk: &Desk) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_LIMIT))?;
    let (_ended, ended) = bounded::<()>(0);
    thread::scope(|scope| {
        let cut = stream.try_clone()?;
        let stop = desk.stop.gone().clone();
        // A blocked read ends when the gateway stops.
        let _ = worker::scoped(scope, "conn-stop", move || {
            select! {
                recv(stop) -> _ => drop(cut.shutdown(std::net::Shutdown::Both)),
                recv(ended) -> _ => {}
            }
        });
        let result = serve_lines(stream, desk);
        drop(_ended);
        result
    })
}

fn serve_lines(stream: &UnixStream, desk: &Desk) -> io::Result<()> {
    let mut lines = Lines { stream, reader: BufReader::new(stream) };
    loop {
        let response = match lines.next()? {
            Line::Whole(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) => answer(&line, stream, desk),
            Line::TooLong => {
                write_line(stream, &Response::failure(format!(
                    "Invalid request: a line is longer than {} MiB", MAX_LINE / (1024 * 1024)
                )))?;
                return Ok(());
            }
            Line::Cut => {
                let what = "Invalid request: the line was cut before its end";
                return write_line(stream, &Response::failure(what));
            }
            Line::TooSlow => {
                let what = format!("Invalid request: a line took over {} s", LINE_LIMIT.as_secs());
                return write_line(stream, &Response::failure(what));
            }
            Line::End => return Ok(()),
        };
        write_line(stream, &response)?;
    }
}

fn write_line(mut stream: &UnixStream, response: &Response) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// One request to its response; nothing in it can fail the connection.
fn answer(line: &[u8], stream: &UnixStream, desk: &Desk) -> Response {
    let request = match Request::parse(line) {
        Ok(request) => request,
        Err(wrong) => return Response::failure(format!("Invalid request: {wrong}")),
    };
    let caller = caller(&request, desk);
    let call = PluginCall {
        tool: request.tool,
        args: request.args,
        cwd: request.cwd.unwrap_or_default(),
        stdin: request.stdin,
    };
    let Some(_slot) = desk.running.take(&desk.stop) else {
        return Response::failure("the gateway is stopping");
    };
    let (canceller, cancel) = Cancel::pair();
    let done = watched(stream, &canceller, || {
        desk.toolbox.run(&caller, Call::Plugin(call), &cancel)
    });
    match done {
        Ok(answer) => Response::of(&answer),
        Err(error) => Response::failure(error.to_string()),
    }
}

/// Runs `act` and cancels it when the peer has hung up both ways; one that
/// only ended its sending half still gets its answer.
fn watched<T>(stream: &UnixStream, canceller: &Canceller, act: impl FnOnce() -> T) -> T {
    let Ok((awake, wake)) = UnixStream::pair() else { return act() };
    thread::scope(|scope| {
        let _ = worker::scoped(scope, "conn-watch", move || {
            let mut fds = [
                PollFd::new(stream, PollFlags::empty()),
                PollFd::new(&awake, PollFlags::IN),
            ];
            while let Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {}
            if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                canceller.cancel();
            }
        });
        let done = act();
        drop(wake);
        done
    })
}

/// Whose call it is: the running call that sent it; else a session of this
/// agent that the payload names; else the socket itself.
fn caller(request: &Request, desk: &Desk) -> Caller {
    let claimed = request.session_context.as_ref().and_then(|it| it.session_key.clone());
    let known = request.call.as_deref().and_then(|it| desk.toolbox.calls().session_of(&desk.agent, it));
    let session = match (known, &request.session_context) {
        (Some(session), _) => session,
        (None, Some(context)) => context.verified(desk),
        (None, None) => None,
    };
    let session = session.unwrap_or_else(|| SessionRef {
        session_key: format!("socket:{}", desk.agent),
        channel: "socket".to_owned(),
        chat_id: None,
        thread_id: None,
    });
    Caller {
        agent: desk.agent.clone(),
        claimed_session: claimed.filter(|it| *it != session.session_key),
        session: Some(session),
        model: None,
    }
}

/// A request line, strictly.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Request {
    #[serde(rename = "type")]
    kind: String,
    tool: String,
    args: Vec<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    call: Option<String>,
    #[serde(default)]
    session_context: Option<SessionContext>,
}

/// What a client claims; all else in it is ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionContext {
    #[serde(default)]
    session_key: Option<String>,
    #[serde(default)]
    channel: Option<String>,
    #[serde(default)]
    chat_id: Option<String>,
    #[serde(default)]
    thread_id: Option<String>,
}

impl SessionContext {
    fn verified(&self, desk: &Desk) -> Option<SessionRef> {
        let key = self.session_key.clone()?;
        if !(desk.owns_session)(&desk.agent, &key) {
            return None;
        }
        let channel = key.split(':').next().unwrap_or_default().to_owned();
        Some(SessionRef {
            channel: self.channel.clone().filter(|it| *it == channel).unwrap_or(channel),
            session_key: key,
            chat_id: self.chat_id.clone(),
            thread_id: self.thread_id.clone(),
        })
    }
}

impl Request {
    fn parse(line: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
        let value: serde_json::Value = serde_json::from_str(text).map_err(|it| it.to_string())?;
        if !value.is_object() {
            return Err("a request is a JSON object".to_owned());
        }
        match value.get("type").and_then(serde_json::Value::as_str) {
            Some("tool_request") => {}
            Some(other) => return Err(format!("unknown type `{other}`; it must be `tool_request`")),
            None => return Err("`type` is missing; it must be `tool_request`".to_owned()),
        }
        let request: Self = serde_json::from_value(value).map_err(|it| it.to_string())?;
        request.checked()
    }

    fn checked(self) -> Result<Self, String> {
        debug_assert_eq!(self.kind, "tool_request");
        if self.args.iter().any(|it| it.contains('\0')) {
            return Err("an argument holds a NUL character".to_owned());
        }
        if self.cwd.as_deref().is_some_and(|it| !crate::tool::stays_below(it)) {
            return Err("`cwd` leaves /workspace".to_owned());
        }
        Ok(self)
    }
}

/// A response line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(rename = "type")]
    kind: &'static str,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    exit_code: i32,
}

impl Response {
    fn failure(error: impl Into<String>) -> Self {
        Self {
            kind: "tool_response",
            success: false,
            output: None,
            error: Some(error.into()),
            exit_code: 1,
        }
    }

    fn of(answer: &Answer) -> Self {
        let text = answer.plain_text();
        let exit_code = answer.exit_code().unwrap_or(i32::from(answer.is_error));
        Self {
            kind: "tool_response",
            success: !answer.is_error,
            error: answer.is_error.then(|| text.clone()),
            output: Some(text),
            exit_code,
        }
    }
}

/// Lines of bounded length, each within its time.
struct Lines<'a> {
    stream: &'a UnixStream,
    reader: BufReader<&'a UnixStream>,
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
    TooSlow,
    Cut,
    End,
}

impl Lines<'_> {
    fn next(&mut self) -> io::Result<Line> {
        let mut line = Vec::new();
        let mut deadline = None;
        loop {
            if let Some(deadline) = deadline {
                let left = Instant::saturating_duration_since(&deadline, Instant::now());
                if left.is_zero() {
                    return Ok(Line::TooSlow);
                }
                self.stream.set_read_timeout(Some(left))?;
            } else {
                self.stream.set_read_timeout(None)?;
            }
            let bytes = match self.reader.fill_buf() {
                Ok([]) if line.is_empty() => return Ok(Line::End),
                Ok([]) => return Ok(Line::Cut),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_timeout(&error) => return Ok(Line::TooSlow),
                Err(error) => return Err(error),
            };
            let end = bytes.iter().position(|it| *it == b'\n');
            let taken = end.map_or(bytes.len(), |it| it + 1);
            if line.len() + taken > MAX_LINE + 1 {
                return Ok(Line::TooLong);
            }
            line.extend_from_slice(&bytes[..end.unwrap_or(taken)]);
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(Line::Whole(line));
            }
            deadline = deadline.or_else(|| Some(Instant::now() + LINE_LIMIT));
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// So many places; taking one waits until one is free.
struct Slots {
    taken: Sender<()>,
    given_back: Receiver<()>,
}

struct Slot(Receiver<()>);

impl Slots {
    fn new(number: usize) -> Self {
        let (taken, given_back) = bounded(number);
        Self { taken, given_back }
    }

    /// `None` once the gateway stops.
    fn take(&self, stop: &Cancel) -> Option<Slot> {
        select! {
            send(self.taken, ()) -> sent => sent.ok().map(|()| Slot(self.given_back.clone())),
            recv(stop.gone()) -> _ => None,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.0.try_recv();
    }
}

/// Removes what dead processes left in an agent's socket folder: sockets on
/// which nobody answers.
pub fn remove_dead_sockets(folder: &Path) -> Result<()> {
    let what = || format!("look for dead sockets in {}", folder.display());
    for entry in fs::read_dir(folder).during(Kind::Internal, what())? {
        let path = entry.during(Kind::Internal, what())?.path();
        let is_socket = path.extension().is_some_and(|it| it == "sock" || it == "new");
        if is_socket && UnixStream::connect(&path).is_err() {
            remove_if_there(&path).during(Kind::Internal, what())?;
        }
    }
    Ok(())
}

/// A usage error if a socket in that folder could not be bound: the kernel
/// takes 107 bytes.
pub fn check_path_length(path: &Path) -> Result<()> {
    let length = path.as_os_str().len();
    if length <= 107 {
        return Ok(());
    }
    Err(Error::new(
        Kind::Config,
        format!(
            "the socket path {} has {length} bytes and the kernel takes 107; set BEIGE_HOME to a \
             shorter path",
            path.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(line: &str, want: &str) {
        match Request::parse(line.as_bytes()) {
            Ok(request) => panic!("took {request:?}"),
            Err(wrong) => assert!(wrong.contains(want), "{wrong:?} does not say {want:?}"),
        }
    }

    #[test]
    fn requests_are_read_strictly() {
        refused("{nope", "key must be a string");
        refused("[]", "a JSON object");
        refused("null", "a JSON object");
        refused(r#"{"type":"hello"}"#, "unknown type `hello`");
        refused(r#"{"tool":"a","args":[]}"#, "`type` is missing");
        refused(r#"{"type":"tool_request","args":[]}"#, "missing field `tool`");
        refused(r#"{"type":"tool_request","tool":"a"}"#, "missing field `args`");
        refused(r#"{"type":"tool_request","tool":"a","args":"x"}"#, "invalid type");
        refused(r#"{"type":"tool_request","tool":"a","args":[1]}"#, "invalid type");
        refused(r#"{"type":"tool_request","tool":"a","args":["\u0000"]}"#, "NUL");
        refused(r#"{"type":"tool_request","tool":"a","args":[],"cwd":"../../etc"}"#, "leaves");
        refused(r#"{"type":"tool_request","tool":"a","args":[],"agentName":"b"}"#, "unknown field");
        assert!(Request::parse(b"\xff\xfe").is_err());
    }

    #[test]
    fn a_request_may_leave_out_all_but_three() {
        assert!(Request::parse(br#"{"type":"tool_request","tool":"a","args":["b"]}"#).is_ok());
    }

    #[test]
    fn a_path_the_kernel_would_refuse_is_a_config_error() {
        assert!(check_path_length(Path::new(&format!("/{}", "x".repeat(106)))).is_ok());
        let long = check_path_length(Path::new(&format!("/{}", "x".repeat(107))));
        assert_eq!(long.map_err(|it| it.kind()), Err(Kind::Config));
    }
}
