//! `beige exec`: one command in an agent's sandbox, made for scripts. Through
//! the gateway if one runs, else in this process; the same rules either way.

use std::ffi::OsString;
use std::io::{self, BufReader, ErrorKind};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, select, unbounded};
use lexopt::Arg::{Long, Value as Positional};
use serde_json::{Value, json};
use tool_client::frame;

use super::client::{self, Api};
use super::table::{Takes, Word, flag, valued};
use super::{
    Command, Invocation, complain, failure_document, logger, print_json, stdin, tell, unknown,
    write_through,
};
use crate::channel::http::FULL;
use crate::config::Home;
use crate::error::{During, Error, Kind, Result};
use crate::gateway::Gateway;
use crate::sandbox::pump::{Note, Pump};
use crate::sandbox::{Exit, Feed, Output};
use crate::tool::{CommandCall, Streams};
use crate::worker::{self, Cancel};

/// Exit code when beige itself failed.
const FAILED: u8 = 125;

/// How long a gateway may take to tell the end of a command that was called
/// off; it ends one within some seconds.
const END_LIMIT: Duration = Duration::from_secs(15);

/// What `--json` keeps of each stream, in bytes.
const JSON_LIMIT: usize = 8 * 1024 * 1024;

/// `beige exec`.
pub(super) const COMMAND: Command = Command {
    name: "exec",
    summary: "Run a command in an agent's sandbox",
    help: "\
Usage: beige exec AGENT [OPTIONS] -- CMD [ARG…]

Runs CMD in the sandbox of AGENT: arguments are passed exactly, standard input
is streamed in, standard output and error are streamed out apart and live, and
the exit code is CMD's. Works with and without a running gateway.

Options:
  --timeout SECONDS   kill CMD and all it started after so long (default: never)
  --workdir DIR       start in DIR: below /workspace, or relative to it
  --session KEY       show this session key to CMD and in the audit log
  --json              one JSON document instead of the streams; {\"error\"} if
                      beige failed
  --config FILE       use this configuration

Standard input is read whether CMD reads it or not: in a `while read` loop, add
</dev/null. There is no terminal for CMD.

SIGINT and SIGTERM are passed to CMD; if it lives on for 10 s, or at a second
signal, it is killed with all it started. Before CMD has begun the first signal
ends the call.

Exit codes: CMD's own (126 not executable, 127 not found, 128+n by signal n),
124 the timeout expired, 125 beige failed, 2 wrong usage.
",
    takes: Takes {
        flags: &[
            valued(&["--timeout"], Word::Any),
            valued(&["--workdir"], Word::Any),
            valued(&["--session"], Word::Session),
            flag(&["--json"]),
        ],
        operands: &[Word::Agent, Word::Program],
    },
    actions: &[],
    run,
};

/// What was asked for.
struct Request {
    agent: String,
    call: CommandCall,
    session: Option<String>,
    json: bool,
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    let request = parse(invocation)?;
    match execute(invocation, &request) {
        Ok(code) => Ok(code),
        Err(error) if error.kind() == Kind::Cancelled => Err(error),
        Err(error) => {
            complain("beige exec", &error);
            if request.json {
                print_json(&failure_document(&error.to_string()))?;
            }
            Ok(FAILED)
        }
    }
}

fn parse(invocation: &mut Invocation) -> Result<Request> {
    let mut agent = None;
    let mut request = Request {
        agent: String::new(),
        call: CommandCall {
            argv: Vec::new(),
            cwd: String::new(),
            env: Default::default(),
            timeout: None,
        },
        session: None,
        json: false,
    };
    loop {
        // Only our own `--` may end our options; what follows is CMD's.
        if invocation.at_separator() {
            request.call.argv = invocation.rest()?;
            break;
        }
        match invocation.next()? {
            Some(Long("timeout")) => request.call.timeout = Some(seconds(&invocation.value()?)?),
            Some(Long("workdir")) => request.call.cwd = invocation.text()?,
            Some(Long("session")) => request.session = Some(invocation.text()?),
            Some(Long("json")) => request.json = true,
            Some(Positional(name)) if agent.is_none() => agent = Some(name),
            Some(Positional(_)) => {
                let what = "write `--` before the command: beige exec AGENT -- CMD [ARG…]";
                return Err(Error::new(Kind::Usage, what));
            }
            Some(other) => return Err(unknown(&COMMAND, &other)),
            None => break,
        }
    }
    let Some(agent) = agent else {
        return Err(Error::new(Kind::Usage, "name the agent: beige exec AGENT -- CMD [ARG…]"));
    };
    request.agent = agent.into_string().map_err(|it| {
        Error::new(Kind::Usage, format!("the agent's name {} is not UTF-8", it.display()))
    })?;
    if request.call.argv.is_empty() {
        let what = "there is no command: beige exec AGENT -- CMD [ARG…]";
        return Err(Error::new(Kind::Usage, what));
    }
    Ok(request)
}

fn seconds(text: &OsString) -> Result<Duration> {
    let number = text.to_str().and_then(|it| it.parse::<f64>().ok());
    let duration = number.and_then(|it| Duration::try_from_secs_f64(it).ok());
    match duration.filter(|it| !it.is_zero()) {
        Some(duration) => Ok(duration),
        None => Err(Error::new(
            Kind::Usage,
            format!("--timeout takes a number of seconds above 0, not `{}`", text.display()),
        )),
    }
}

fn execute(invocation: &Invocation, request: &Request) -> Result<u8> {
    let home = invocation.home()?;
    // Before signals are taken over: until the gateway has let the command in,
    // nothing has begun, and a signal ends this process as any other.
    let door = door(invocation, &home, request)?;
    let (canceller, cancel) = Cancel::pair();
    let (feeding, feed) = stdin::start(canceller)?;
    let mut sink = Sink::new(request.json);
    let through = match door {
        Some((from, notice)) => {
            sink.notice = notice;
            through_gateway(from, request, &feed, &mut sink, &cancel)
        }
        None => Err(Error::new(Kind::Busy, "no gateway lets anything in")),
    };
    let exit = match through {
        Err(error) if error.kind() == Kind::Busy => {
            sink.notice = None;
            alone(invocation, request, &feed, &mut sink, &cancel)
        }
        other => other,
    };
    if let Some(notice) = &sink.notice {
        tell(&format!("beige exec: {notice}"));
    }
    let caught = feeding.caught();
    let mut exit = match (exit, caught) {
        // Called off before it began.
        (Err(error), Some(number)) if error.kind() == Kind::Cancelled => {
            if request.json {
                print_json(&failure_document("called off before it began"))?;
            }
            return Ok(128 + number);
        }
        (exit, _) => exit?,
    };
    drop(feed);
    drop(feeding);
    if exit.cancelled && caught.is_none() && exit.note.is_none() {
        // Nobody here did, and a gateway calls off what outlasts its patience.
        exit.note = Some("the gateway stopped and called the command off".to_owned());
    }
    sink.finish(&exit)
}

/// A connection of frames, and what there is to say of the configuration.
type Door = (BufReader<UnixStream>, Option<String>);

/// The way into the gateway; `None` if none runs, it drains or it is full. An error if a
/// configuration was named that it does not serve.
fn door(invocation: &Invocation, home: &Home, request: &Request) -> Result<Option<Door>> {
    let api = Api::new(home);
    if !api.is_there() {
        return Ok(None);
    }
    let notice = invocation.notice_of_config()?;
    let path = format!("/api/agents/{}/exec/stream", client::encoded(&request.agent));
    match api.upgrade(&path, "beige-exec/1") {
        Ok(from) => Ok(Some((from, notice))),
        Err(error) if error.kind() == Kind::Busy => {
            // One that starts or stops is no news: it is as if none were there.
            if error.to_string().starts_with(FULL) && !request.json {
                tell(&format!("beige exec: {FULL}, so the command runs without it"));
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The command by the gateway. [`Kind::Busy`] if it could not be handed over.
fn through_gateway(
    mut from: BufReader<UnixStream>,
    request: &Request,
    feed: &Feed,
    sink: &mut Sink,
    cancel: &Cancel,
) -> Result<Exit> {
    let mut to = from.get_ref().try_clone().during(Kind::Internal, "duplicate a socket")?;
    let cut = from.get_ref().try_clone().during(Kind::Internal, "duplicate a socket")?;
    let body = serde_json::to_vec(&wire(request)).during(Kind::Internal, "encode the request")?;
    frame::write_request(&mut to, &body).during(Kind::Busy, "hand over the command")?;
    let (notes, heard) = unbounded();
    let (over, is_over) = bounded::<()>(0);
    thread::scope(|scope| {
        let pump = Pump { feed, heard: &heard, timeout: None, cancel };
        // That the gateway is gone is what the reader says.
        let _pumping = worker::scoped(scope, "exec-in", move || pump.run(&mut to, || ()))?;
        let _cutting =
            worker::scoped(scope, "exec-cut", move || cut_in_time(&cut, cancel, &is_over))?;
        let exit = listen(&mut from, sink, &notes);
        drop(notes);
        drop(over);
        // Frees the pump if it is blocked in a write.
        let _ = from.get_ref().shutdown(Shutdown::Both);
        exit
    })
}

/// Cuts the connection to a gateway that tells no end of a command that was
/// called off.
fn cut_in_time(connection: &UnixStream, cancel: &Cancel, is_over: &Receiver<()>) {
    select! {
        recv(cancel.gone()) -> _ => {}
        recv(is_over) -> _ => return,
    }
    select! {
        recv(after(END_LIMIT)) -> _ => drop(connection.shutdown(Shutdown::Both)),
        recv(is_over) -> _ => {}
    }
}

fn wire(request: &Request) -> Value {
    let word = |it: &OsString| it.to_str().map_or_else(|| json!(it.as_bytes()), Value::from);
    json!({
        "argv": request.call.argv.iter().map(word).collect::<Vec<_>>(),
        "cwd": request.call.cwd,
        "timeoutSeconds": request.call.timeout.map(|it| it.as_secs_f64()),
        "sessionKey": request.session,
    })
}

fn listen(from: &mut BufReader<UnixStream>, sink: &mut Sink, notes: &Sender<Note>) -> Result<Exit> {
    loop {
        let frame = frame::read(from).during(Kind::Internal, "read from the gateway")?;
        let Some(frame) = frame else {
            let what = "the gateway ended before the command did; it is not repeated";
            return Err(Error::new(Kind::Internal, what));
        };
        let taken = match frame.kind {
            frame::STDOUT => sink.stdout(&frame.payload),
            frame::STDERR => sink.stderr(&frame.payload),
            frame::WINDOW => {
                let more = frame.payload.try_into().map_or(0, u32::from_be_bytes);
                // A pump that has ended needs no window.
                let _ = notes.send(Note::Window(more));
                Ok(())
            }
            frame::EXIT => return exit(&frame.payload),
            _ => Ok(()),
        };
        if taken.is_err() {
            let _ = notes.send(Note::TakerGone);
        }
    }
}

fn exit(payload: &[u8]) -> Result<Exit> {
    let report: Value =
        serde_json::from_slice(payload).during(Kind::Internal, "read the gateway's report")?;
    if let Some(error) = report.get("error").and_then(Value::as_str) {
        return Err(Error::new(Kind::Sandbox, error));
    }
    let code = report.get("exitCode").and_then(Value::as_i64).and_then(|it| i32::try_from(it).ok());
    let flag = |name| report.get(name).and_then(Value::as_bool).unwrap_or(false);
    let millis = report.get("durationMs").and_then(Value::as_u64).unwrap_or(0);
    Ok(Exit {
        code: code.unwrap_or(i32::from(FAILED)),
        timed_out: flag("timedOut"),
        cancelled: flag("cancelled"),
        note: report.get("note").and_then(Value::as_str).map(str::to_owned),
        saved: None,
        duration: Duration::from_millis(millis),
    })
}

/// The command in this process, without a gateway.
fn alone(
    invocation: &Invocation,
    request: &Request,
    feed: &Feed,
    sink: &mut Sink,
    cancel: &Cancel,
) -> Result<Exit> {
    let (config, redactor) = invocation.load_config()?;
    logger::for_one_call(redactor.clone())?;
    let gateway = Gateway::for_one_call(config, &request.agent, redactor)?;
    let handle = gateway.handle();
    let place = handle.admit(cancel)?;
    let (call, session) = (request.call.clone(), request.session.as_deref());
    let streams = Streams { feed, output: sink };
    handle.run_command(place, &request.agent, call, session, streams, cancel)
}

/// Exit code when whoever read the output went away: what SIGPIPE gives.
const READER_GONE: u8 = 141;

/// Takes the streams: out as they come, or kept for one JSON document.
struct Sink {
    json: Option<Kept>,
    /// What there is to say of the gateway's configuration.
    notice: Option<String>,
    /// Why standard output took no more.
    lost: Option<io::Error>,
}

#[derive(Default)]
struct Kept {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    truncated: bool,
}

impl Sink {
    fn new(json: bool) -> Self {
        Self { json: json.then(Kept::default), notice: None, lost: None }
    }

    fn finish(self, exit: &Exit) -> Result<u8> {
        let code = u8::try_from(exit.code & 0xff).unwrap_or(FAILED);
        match self.lost {
            Some(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(READER_GONE),
            Some(error) => return Err(error).during(Kind::Internal, "write to standard output"),
            None => {}
        }
        if let Some(kept) = self.json {
            let document = json!({
                "exitCode": exit.code,
                "timedOut": exit.timed_out,
                "stdout": String::from_utf8_lossy(&kept.stdout),
                "stderr": String::from_utf8_lossy(&kept.stderr),
                "truncated": kept.truncated,
                "durationMs": u64::try_from(exit.duration.as_millis()).unwrap_or(u64::MAX),
                "note": exit.note,
                "notice": self.notice,
            });
            print_json(&format!("{document}\n"))?;
        } else if let Some(note) = &exit.note {
            tell(&format!("beige exec: {note}"));
        } else if exit.timed_out {
            tell("beige exec: the timeout expired; the whole process tree was killed");
        }
        Ok(code)
    }
}

impl Output for Sink {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.json {
            Some(kept) => keep(&mut kept.stdout, &mut kept.truncated, bytes),
            None => {
                let written = write_through(io::stdout(), bytes);
                written.inspect_err(|it| self.lost = Some(it.kind().into()))?;
            }
        }
        Ok(())
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.json {
            Some(kept) => keep(&mut kept.stderr, &mut kept.truncated, bytes),
            // A closed standard error is no reason to end the command.
            None => drop(write_through(io::stderr(), bytes)),
        }
        Ok(())
    }
}

fn keep(kept: &mut Vec<u8>, truncated: &mut bool, bytes: &[u8]) {
    let room = JSON_LIMIT.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..room]);
    *truncated |= room < bytes.len();
}
