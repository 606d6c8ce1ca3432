//! One agent's sandbox as the rest of the house uses it: run a command, touch
//! a file, bring it up, end it. The lock, the start on demand and the single
//! retry of what never began are here, the same for all runtimes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use serde_json::{Value, json};
use tool_client::frame;

use super::child::{self, End, Talk};
use super::lock::{Hold, Lock};
use super::{Exec, Exit, Feed, Output, Role, Sandbox};
use crate::error::{During, Error, Kind, Result};
use crate::worker::Cancel;

/// How long a call waits for others to make, stop or leave the sandbox.
const LOCK_LIMIT: Duration = Duration::from_secs(90);

/// How long a file operation may take.
const FILE_LIMIT: Duration = Duration::from_secs(120);

/// The whole output of a command that is saved in the workspace, in bytes.
pub const SAVED_OUTPUT_CAP: u64 = 64 * 1024 * 1024;

/// Saved outputs that are kept.
const SAVED_OUTPUTS: u64 = 50;

/// The sandbox of one agent.
pub struct AgentSandbox {
    sandbox: Box<dyn Sandbox>,
    lock_file: PathBuf,
    environment: BTreeMap<String, String>,
}

/// tool-client's answer to a file request.
#[derive(Clone, Debug, PartialEq)]
pub struct FileAnswer {
    /// The report: what was done, or `error` and `code`.
    pub report: Value,
    /// The bytes that came with it.
    pub content: Vec<u8>,
}

impl AgentSandbox {
    /// A sandbox of that runtime under that lock, with the agent's
    /// `extraEnv`; nothing is started.
    pub fn new(
        sandbox: Box<dyn Sandbox>,
        lock_file: PathBuf,
        extra_env: &BTreeMap<String, String>,
    ) -> Self {
        let mut environment = base_environment();
        environment.extend(extra_env.iter().map(|(name, value)| (name.clone(), value.clone())));
        Self { sandbox, lock_file, environment }
    }

    /// Which runtime it is, by name.
    pub fn runtime(&self) -> &'static str {
        self.sandbox.runtime().name()
    }

    /// Whether it seems to be there, without asking anybody.
    pub fn seems_up(&self) -> bool {
        self.sandbox.seems_up()
    }

    /// Runs a command to its end. Output goes to `output` as it comes.
    ///
    /// A command that cannot be started is no error but exit code 126 or 127;
    /// an error means that nothing ran, or that the sandbox broke under it.
    pub fn run(
        &self,
        exec: &Exec,
        feed: &Feed,
        output: &mut dyn Output,
        cancel: &Cancel,
    ) -> Result<Exit> {
        let request = self.command_request(exec)?;
        let started = Instant::now();
        let report = self.talk(Role::Run, &request, feed, output, exec.timeout, cancel)?;
        self.exit(&report, started.elapsed())
    }

    /// One file operation inside the sandbox; `content` goes with it, at most
    /// `limit` bytes of answer come back.
    pub fn file(
        &self,
        request: &Value,
        content: &[u8],
        limit: usize,
        cancel: &Cancel,
    ) -> Result<FileAnswer> {
        let request = encoded(request)?;
        let feed = all_at_once(content);
        let mut gathered = Gathered { bytes: Vec::new(), limit };
        let report =
            self.talk(Role::File, &request, &feed, &mut gathered, Some(FILE_LIMIT), cancel)?;
        Ok(FileAnswer { report, content: gathered.bytes })
    }

    /// Makes sure that it is there and as wanted.
    pub fn up(&self) -> Result<()> {
        self.bring_up(&Cancel::never())
    }

    /// The same, unless a call is in it: `false` then.
    pub fn wake(&self) -> Result<bool> {
        let Some(_alone) = Lock::try_exclusive(&self.lock_file)? else { return Ok(false) };
        self.sandbox.up().map(|()| true)
    }

    /// Ends what runs in it, unless a call is in it: `false` then.
    pub fn stop(&self) -> Result<bool> {
        let Some(_alone) = Lock::try_exclusive(&self.lock_file)? else { return Ok(false) };
        self.sandbox.stop().map(|()| true)
    }

    /// Removes it, unless a call is in it: `false` then. The workspace stays.
    pub fn remove(&self) -> Result<bool> {
        let Some(_alone) = Lock::try_exclusive(&self.lock_file)? else { return Ok(false) };
        self.sandbox.remove().map(|()| true)
    }

    /// Alone in it, unless others run in it already: then it only has to be
    /// as wanted.
    fn bring_up(&self, cancel: &Cancel) -> Result<()> {
        let is_up = || self.sandbox.is_up();
        let hold = Hold::Exclusive;
        match Lock::wait_unless(&self.lock_file, hold, LOCK_LIMIT, cancel, &is_up)? {
            Some(_alone) => self.sandbox.up(),
            None => Ok(()),
        }
    }

    /// One talk under the shared lock. What never began is tried once more
    /// after the sandbox was brought up; what had begun never is.
    fn talk(
        &self,
        role: Role,
        request: &[u8],
        feed: &Feed,
        output: &mut dyn Output,
        timeout: Option<Duration>,
        cancel: &Cancel,
    ) -> Result<Value> {
        let mut brought_up = !self.sandbox.seems_up();
        if brought_up {
            self.bring_up(cancel)?;
        }
        loop {
            let together = Lock::wait(&self.lock_file, Hold::Shared, LOCK_LIMIT, cancel)?;
            let admit = |pid| self.sandbox.admit(pid);
            let command = self.sandbox.command(role);
            let end = child::talk(Talk {
                command,
                request,
                feed,
                output: &mut *output,
                admit: &admit,
                timeout,
                cancel,
            })?;
            match end {
                End::Report(report) => return checked(report),
                End::Silent => return self.cut_off(cancel),
                End::Lost(complaint) => return Err(self.lost(&complaint)),
                End::NeverBegan(_) if cancel.is_cancelled() => {
                    return Err(Error::new(Kind::Cancelled, "called off before it began"));
                }
                End::NeverBegan(complaint) if brought_up => return Err(self.closed(&complaint)),
                End::NeverBegan(_) => {
                    drop(together);
                    brought_up = true;
                    self.bring_up(cancel)?;
                }
            }
        }
    }

    fn command_request(&self, exec: &Exec) -> Result<Vec<u8>> {
        let mut environment = self.environment.clone();
        environment.extend(exec.env.clone());
        let limits = self.sandbox.inner_limits();
        encoded(&json!({
            "argv": exec.argv.iter().map(|it| word(it)).collect::<Vec<_>>(),
            "cwd": exec.cwd,
            "env": environment,
            "timeoutMs": exec.timeout.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
            "limits": {"processes": limits.processes, "dataBytes": limits.data_bytes},
            "save": exec.save_above.map(|above| {
                json!({"above": above, "cap": SAVED_OUTPUT_CAP, "keep": SAVED_OUTPUTS})
            }),
        }))
    }

    fn exit(&self, report: &Value, measured: Duration) -> Result<Exit> {
        let code = report.get("exitCode").and_then(Value::as_i64);
        let Some(code) = code.and_then(|it| i32::try_from(it).ok()) else {
            return Err(Error::new(Kind::Sandbox, "the supervisor's report has no exit code"));
        };
        let flag = |name| report.get(name).and_then(Value::as_bool).unwrap_or(false);
        let duration = report.get("durationMs").and_then(Value::as_u64);
        Ok(Exit {
            code,
            timed_out: flag("timedOut"),
            cancelled: flag("cancelled"),
            note: self.note(report),
            saved: report.get("saved").and_then(Value::as_str).map(str::to_owned),
            duration: duration.map_or(measured, Duration::from_millis),
        })
    }

    /// What the reader of the answer should know beside the exit code.
    fn note(&self, report: &Value) -> Option<String> {
        let text = |name| report.get(name).and_then(Value::as_str);
        let number = |name| report.get(name).and_then(Value::as_u64).unwrap_or(0);
        let mut notes = Vec::new();
        notes.extend(["startError", "note"].into_iter().filter_map(text).map(str::to_owned));
        notes.extend(text("saveError").map(|it| format!("the whole output was not saved: {it}")));
        if number("notKilled") > 0 {
            notes.push(format!("{} processes could not be killed", number("notKilled")));
        }
        if number("left") > 0 && !self.sandbox.keeps_background() {
            notes.push(format!(
                "{} background processes ended with this call: a bubblewrap sandbox lives \
                 only as long as its command",
                number("left")
            ));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// The time was up, or the call was called off, and the supervisor did not
    /// answer: the command may have stopped it. Only the end of everything in
    /// there is sure to end what it started.
    fn cut_off(&self, cancel: &Cancel) -> Result<Value> {
        if self.sandbox.keeps_background() {
            let doing = "end the sandbox, whose supervisor no longer answers";
            self.sandbox.stop().map_err(|it| it.within(doing))?;
        }
        let cancelled = cancel.is_cancelled();
        let code = if cancelled { 137 } else { 124 };
        Ok(json!({
            "exitCode": code, "timedOut": !cancelled, "cancelled": cancelled,
            "note": "its supervisor no longer answered, so the whole sandbox was ended",
        }))
    }

    /// It had begun, and its supervisor or the sandbox ended under it.
    fn lost(&self, complaint: &str) -> Error {
        let why = match self.sandbox.fate() {
            Some(fate) => format!("the sandbox ended under the command ({fate})"),
            None if complaint.is_empty() => "the command's supervisor was killed in the sandbox, \
                                             and all that it ran with it"
                .to_owned(),
            None => format!("the way into the sandbox broke under the command ({complaint})"),
        };
        Error::new(Kind::Sandbox, format!("{why}; it is not repeated"))
    }

    /// It could not be entered, also after it was brought up.
    fn closed(&self, complaint: &str) -> Error {
        Error::new(
            Kind::Sandbox,
            format!("enter the {} sandbox: {complaint}", self.sandbox.runtime().name()),
        )
    }
}

/// What every command finds, before `extraEnv` and the call's own.
fn base_environment() -> BTreeMap<String, String> {
    [
        ("PATH", "/tools/bin:/usr/local/bin:/usr/bin:/bin"),
        ("HOME", "/workspace"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Standard input that is there as a whole.
fn all_at_once(content: &[u8]) -> Feed {
    let (pieces, stdin) = unbounded();
    for piece in content.chunks(frame::MAX_PAYLOAD) {
        // The receiver lives in this very function.
        let _ = pieces.send(piece.to_vec());
    }
    Feed { stdin, ..Feed::empty() }
}

/// One argument: a string, or its bytes where it is none.
fn word(word: &OsStr) -> Value {
    word.to_str().map_or_else(|| json!(word.as_bytes()), Value::from)
}

fn encoded(request: &Value) -> Result<Vec<u8>> {
    let bytes = serde_json::to_vec(request).during(Kind::Internal, "encode a request")?;
    if bytes.len() > frame::MAX_REQUEST {
        return Err(Error::new(
            Kind::TooLarge,
            "arguments and environment together are over 4 MiB; pass large data by standard \
             input or a file",
        ));
    }
    Ok(bytes)
}

/// tool-client refuses a request it cannot read; that is our fault, or the
/// image brought another program.
fn checked(report: Value) -> Result<Value> {
    match report.get("error").and_then(Value::as_str) {
        Some(error) if report.get("code").is_none() => {
            Err(Error::new(Kind::Sandbox, format!("the supervisor refused: {error}")))
        }
        _ => Ok(report),
    }
}

/// Takes a file's content, up to a bound.
struct Gathered {
    bytes: Vec<u8>,
    limit: usize,
}

impl Output for Gathered {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes.len() + bytes.len() > self.limit {
            return Err(io::Error::other("more came than was asked for"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn stderr(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }
}
