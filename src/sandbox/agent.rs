//! One agent's sandbox as the rest of the house uses it: run a command, touch
//! a file, bring it up, end it, the same for all runtimes. How a call gets in
//! and what its end means is `enter`'s.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use serde_json::{Value, json};
use tool_client::frame;

use super::detour::Detours;
use super::enter::{Errand, LOCK_LIMIT, Way};
use super::link::{Link, LinkSocket};
use super::lock::{Hold, Lock};
use super::{Exec, Exit, Feed, Output, Role, Sandbox, succession};
use crate::error::{During, Error, Kind, Result};
use crate::worker::Cancel;

/// How much later than ours the supervisor's own clock ends a command: it is
/// for a gateway that stands still.
const BACKSTOP: Duration = Duration::from_secs(15);

/// How long a file operation may take.
const FILE_LIMIT: Duration = Duration::from_secs(120);

/// The whole output of a command that is saved in the workspace, in bytes.
pub const SAVED_OUTPUT_CAP: u64 = 64 * 1024 * 1024;

/// Saved outputs that are kept.
const SAVED_OUTPUTS: u64 = 50;

/// The sandbox of one agent.
pub struct AgentSandbox {
    pub(super) sandbox: Box<dyn Sandbox>,
    pub(super) lock_file: PathBuf,
    environment: BTreeMap<String, String>,
    pub(super) link: Arc<Link>,
    /// When it was last looked whether it is up while calls waited, and
    /// whether it was.
    pub(super) looked: Mutex<Option<(Instant, bool)>>,
    pub(super) detours: Detours,
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
        let (link, looked, detours) = Default::default();
        Self { sandbox, lock_file, environment, link, looked, detours }
    }

    /// Which runtime it is, by name.
    pub fn runtime(&self) -> &'static str {
        self.sandbox.runtime().name()
    }

    /// Whether it seems to be there, without asking anybody.
    pub fn seems_up(&self) -> bool {
        self.sandbox.seems_up()
    }

    /// What is wrong with it although calls still get in, with what a person can
    /// do; costs nothing to ask.
    pub fn trouble(&self) -> Option<String> {
        let (why, agent) = (self.detours.why()?, &self.sandbox.spec().agent);
        Some(format!(
            "calls into the {} sandbox of `{agent}` take the slow way, since its first process \
             takes none ({why}); `beige sandbox rm {agent}` ends all that runs in it, the next \
             call makes it anew, and the workspace stays",
            self.runtime()
        ))
    }

    /// Listens for its resident at that path until what this gives is
    /// dropped. Comes before the sandbox is made or used.
    pub fn listen(&self, path: &Path) -> Result<LinkSocket> {
        self.link.listen(path)
    }

    /// Takes the link that a resident has dialled, if there is one.
    pub fn take_link(&self) {
        self.link.take_over(&|| self.sandbox.resident());
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
        let timeout = exec.timeout;
        let errand = Errand { role: Role::Run, request: &request, feed, output, timeout, cancel };
        let (report, way) = self.talk(errand)?;
        self.exit(&report, way, started.elapsed())
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
        let (report, _) = self.talk(Errand {
            role: Role::File,
            request: &request,
            feed: &feed,
            output: &mut gathered,
            timeout: Some(FILE_LIMIT),
            cancel,
        })?;
        Ok(FileAnswer { report, content: gathered.bytes })
    }

    /// Makes sure that it is there and as wanted.
    pub fn up(&self) -> Result<()> {
        self.bring_up(&Cancel::never(), &|| false)
    }

    /// The same, unless a call is in it: `false` then.
    pub fn wake(&self) -> Result<bool> {
        let Some(_alone) = Lock::try_exclusive(&self.lock_file)? else { return Ok(false) };
        self.raise().map(|()| true)
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

    /// Brings it up, after what another runtime made for the agent has ended:
    /// never two on a workspace. The caller holds the lock exclusively.
    fn raise(&self) -> Result<()> {
        succession::end_others(self.sandbox.spec(), self.sandbox.runtime())?;
        self.sandbox.up()
    }

    /// Alone in it, unless others run in it already: then it only has to be
    /// as wanted. It is not waited for once nobody wants that any more.
    pub(super) fn bring_up(&self, cancel: &Cancel, is_unwanted: &dyn Fn() -> bool) -> Result<()> {
        let settled = || Ok(is_unwanted() || self.sandbox.is_up()?);
        let hold = Hold::Exclusive;
        match Lock::wait_unless(&self.lock_file, hold, LOCK_LIMIT, cancel, &settled)? {
            Some(_alone) => self.raise(),
            None => Ok(()),
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
            "timeoutMs": exec.timeout.map(backstop),
            "limits": {"processes": limits.processes, "dataBytes": limits.data_bytes},
            "save": exec.save_above.map(|above| {
                json!({"above": above, "cap": SAVED_OUTPUT_CAP, "keep": SAVED_OUTPUTS})
            }),
        }))
    }

    fn exit(&self, report: &Value, way: Way, measured: Duration) -> Result<Exit> {
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
            note: self.note(report, way),
            saved: report.get("saved").and_then(Value::as_str).map(str::to_owned),
            duration: duration.map_or(measured, Duration::from_millis),
        })
    }

    /// What the reader of the answer should know beside the exit code.
    fn note(&self, report: &Value, way: Way) -> Option<String> {
        let text = |name| report.get(name).and_then(Value::as_str);
        let number = |name| report.get(name).and_then(Value::as_u64).unwrap_or(0);
        let mut notes = Vec::new();
        notes.extend(["startError", "note"].into_iter().filter_map(text).map(str::to_owned));
        notes.extend(text("saveError").map(|it| format!("the whole output was not saved: {it}")));
        if number("notKilled") > 0 {
            notes.push(format!("{} processes could not be killed", number("notKilled")));
        }
        if number("left") > 0 && !self.outlives(way) {
            notes.push(format!(
                "{} background processes ended with this call: a bubblewrap sandbox without \
                 a link lives only as long as its command",
                number("left")
            ));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
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

/// The supervisor's own limit, in milliseconds.
fn backstop(timeout: Duration) -> u64 {
    u64::try_from(timeout.saturating_add(BACKSTOP).as_millis()).unwrap_or(u64::MAX)
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
