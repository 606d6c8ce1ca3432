//! The only way to run anything: [`Toolbox::run`] asks policy, writes the
//! audit line, acts, and finishes the line. Front ends, turns and the agents'
//! sockets all come through here; no path goes round it.

mod calls;
mod capture;
mod exec;
mod files;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use calls::CallTable;
pub use exec::stays_below;

use crate::audit::{Act, Audit, Entry, Finish, Target};
use crate::config;
use crate::error::{Error, Kind, Result};
use crate::plugin::Registry;
use crate::policy::{self, Decision};
use crate::sandbox::{AgentSandbox, Exit, Feed, Output};
use crate::secret::Redactor;
use crate::worker::Cancel;

/// On whose behalf something runs; set by the gateway, never by a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The agent whose rights count.
    pub agent: String,
    /// The verified session, if any.
    pub session: Option<SessionRef>,
    /// A session that was claimed and is not the caller's.
    pub claimed_session: Option<String>,
    /// `provider/model` that asked, in a turn.
    pub model: Option<String>,
}

/// The conversation a call belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRef {
    /// `channel:id[:thread]`.
    pub session_key: String,
    /// `tui`, `api`, `cli`, `socket`, ….
    pub channel: String,
    /// Chat, where the channel has them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub chat_id: Option<String>,
    /// Thread, where the channel has them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_id: Option<String>,
}

/// A core tool call, as a model or `POST …/exec` makes it: arguments are
/// checked by the toolbox, which answers what is wrong with them.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreCall {
    /// `read`, `write`, `patch`, `exec`; anything else is answered by an error.
    pub tool: String,
    /// The arguments, an object.
    pub params: Value,
    /// Time limit of `exec` where the arguments give none.
    pub default_timeout: Duration,
}

/// A plugin tool call, as it comes over an agent's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Below `/workspace`, checked.
    pub cwd: String,
    /// Its standard input, if any was piped.
    pub stdin: Option<String>,
}

/// A command as `beige exec` and `…/exec/stream` run it.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandCall {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Below `/workspace`.
    pub cwd: String,
    /// Set for this call.
    pub env: BTreeMap<String, String>,
    /// Time limit; none unless given.
    pub timeout: Option<Duration>,
}

/// Everything that can be run.
pub enum Call<'a> {
    /// read, write, patch, exec.
    Core(CoreCall),
    /// A tool of a plugin.
    Plugin(PluginCall),
    /// A command with its streams.
    Command(CommandCall, Streams<'a>),
}

/// The streams of a command.
pub struct Streams<'a> {
    /// What is fed in.
    pub feed: &'a Feed,
    /// Who takes what comes out.
    pub output: &'a mut dyn Output,
}

/// One part of a tool's answer to a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Content {
    /// Text.
    Text {
        /// UTF-8; what was not is marked.
        text: String,
    },
    /// An image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// Base64.
        data: String,
        /// `image/png`, ….
        mime_type: String,
    },
}

/// A tool's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What the model, or the client, gets.
    pub content: Vec<Content>,
    /// Whether it failed: exit code not 0, bad arguments, refused.
    pub is_error: bool,
    /// How the command ended, where there was one.
    #[serde(skip)]
    pub exit: Option<Exit>,
    /// Bytes that came out, before anything was left out.
    #[serde(skip)]
    pub bytes: u64,
}

impl Answer {
    /// A success in words.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        let bytes = text.len() as u64;
        Self { content: vec![Content::Text { text }], is_error: false, exit: None, bytes }
    }

    /// A failure in words.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// All text of it.
    pub fn plain_text(&self) -> String {
        let texts = self.content.iter().filter_map(|it| match it {
            Content::Text { text } => Some(text.as_str()),
            Content::Image { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Exit code where a command ran.
    pub fn exit_code(&self) -> Option<i32> {
        self.exit.as_ref().map(|it| it.code)
    }
}

/// What an agent has to run things with.
pub struct Equipment {
    /// Its configuration.
    pub agent: config::Agent,
    /// Its folder on the host, where plugins may keep what belongs to it.
    pub folder: PathBuf,
    /// Where its commands run.
    pub sandbox: AgentSandbox,
}

/// The only way to run anything.
pub struct Toolbox {
    equipment: BTreeMap<String, Equipment>,
    registry: Registry,
    audit: Audit,
    redactor: Redactor,
    calls: CallTable,
    /// Where a command finds this process's socket, if not at the usual place.
    socket: Option<String>,
}

impl Toolbox {
    /// A toolbox for these agents. `socket` is the path inside a sandbox of
    /// the socket that this process serves; `None` for the gateway's own.
    pub fn new(
        equipment: BTreeMap<String, Equipment>,
        registry: Registry,
        audit: Audit,
        redactor: Redactor,
        socket: Option<String>,
    ) -> Self {
        Self { equipment, registry, audit, redactor, calls: CallTable::default(), socket }
    }

    /// The agents' sandboxes, for starting and stopping them.
    pub fn equipment(&self) -> &BTreeMap<String, Equipment> {
        &self.equipment
    }

    /// The registered plugin tools.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Which session a running call belongs to.
    pub fn calls(&self) -> &CallTable {
        &self.calls
    }

    /// Runs one call: policy, the audit line before, the act, the audit line
    /// after. What the call's own tool answers, failures included, is an
    /// [`Answer`]; an error means that nothing ran (no such agent, arguments
    /// wrong, denied, no audit line could be written, no sandbox), that it was
    /// called off, or that the sandbox broke under it.
    pub fn run(&self, caller: &Caller, call: Call<'_>, cancel: &Cancel) -> Result<Answer> {
        self.checked_run(caller, call, cancel).map_err(|it| self.masked_error(it))
    }

    fn checked_run(&self, caller: &Caller, call: Call<'_>, cancel: &Cancel) -> Result<Answer> {
        let Some(equipment) = self.equipment.get(&caller.agent) else {
            let what = format!("there is no agent `{}`", caller.agent);
            return Err(Error::new(Kind::Missing, what));
        };
        let call = match Prepared::new(call) {
            Ok(call) => call,
            Err(wrong) => return Err(Error::new(Kind::Usage, wrong)),
        };
        let entry = call.entry(caller);
        if let Decision::Deny(reason) = call.decide(equipment) {
            self.audit.deny(&entry, &reason)?;
            return match call {
                // The model may go on with one that exists.
                Prepared::Unknown(_) => Ok(self.masked(Answer::error(reason))),
                _ => Err(Error::new(Kind::Denied, reason)),
            };
        }
        let pending = self.audit.begin(&entry)?;
        let done = self.act(equipment, caller, call, cancel).map(|it| self.masked(it));
        pending.finish(&finish(&done));
        done
    }

    fn act(
        &self,
        equipment: &Equipment,
        caller: &Caller,
        call: Prepared<'_>,
        cancel: &Cancel,
    ) -> Result<Answer> {
        let scene = exec::Scene { toolbox: self, equipment, caller, cancel };
        match call {
            Prepared::Read(read) => read.run(&equipment.sandbox, cancel),
            Prepared::Write(write) => write.run(&equipment.sandbox, cancel),
            Prepared::Patch(patch) => patch.run(&equipment.sandbox, cancel),
            Prepared::Exec(exec) => scene.exec(&exec),
            Prepared::Command(command, streams) => scene.command(command, streams),
            Prepared::Plugin(call) => scene.plugin(call),
            // Policy denies it; if it did not, there is still nothing to run.
            Prepared::Unknown(tool) => {
                Err(Error::new(Kind::Missing, format!("there is no tool `{tool}`")))
            }
        }
    }

    /// A text with all known secrets masked.
    pub fn mask(&self, text: &str) -> String {
        self.redactor.mask(text).into_owned()
    }

    fn masked_error(&self, error: Error) -> Error {
        match self.redactor.mask(&error.to_string()) {
            Cow::Owned(masked) => Error::new(error.kind(), masked),
            Cow::Borrowed(_) => error,
        }
    }

    fn masked(&self, mut answer: Answer) -> Answer {
        for part in &mut answer.content {
            if let Content::Text { text } = part
                && let Cow::Owned(masked) = self.redactor.mask(text)
            {
                *text = masked;
            }
        }
        answer
    }
}

/// A call whose arguments are sound.
enum Prepared<'a> {
    Read(files::Read),
    Write(files::Write),
    Patch(files::Patch),
    Exec(exec::Exec),
    Command(CommandCall, Streams<'a>),
    Plugin(PluginCall),
    /// No tool of ours, for policy to deny.
    Unknown(String),
}

impl<'a> Prepared<'a> {
    /// The error is for whoever made the call.
    fn new(call: Call<'a>) -> Result<Self, String> {
        match call {
            Call::Core(call) => Self::core(call),
            Call::Command(call, streams) => {
                exec::checked(call).map(|it| Self::Command(it, streams))
            }
            Call::Plugin(call) => Ok(Self::Plugin(call)),
        }
    }

    fn core(call: CoreCall) -> Result<Self, String> {
        if !policy::is_core(&call.tool) {
            return Ok(Self::Unknown(call.tool));
        }
        let Value::Object(params) = &call.params else {
            return Err(format!("the arguments of `{}` must be a JSON object", call.tool));
        };
        match call.tool.as_str() {
            "read" => files::Read::parse(params).map(Self::Read),
            "write" => files::Write::parse(params).map(Self::Write),
            "patch" => files::Patch::parse(params).map(Self::Patch),
            "exec" => exec::Exec::parse(params, call.default_timeout).map(Self::Exec),
            _ => Ok(Self::Unknown(call.tool)),
        }
    }

    fn decide(&self, equipment: &Equipment) -> Decision {
        match self {
            Self::Plugin(call) => {
                policy::plugin(&equipment.agent.name, &equipment.agent.tools, &call.tool)
            }
            _ => policy::core(self.tool()),
        }
    }

    fn tool(&self) -> &str {
        match self {
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Patch(_) => "patch",
            Self::Exec(_) | Self::Command(..) => "exec",
            Self::Plugin(call) => &call.tool,
            Self::Unknown(tool) => tool,
        }
    }

    fn entry(&self, caller: &Caller) -> Entry {
        let (act, target) = match self {
            Self::Plugin(_) => (Act::Tool, Target::Gateway),
            _ => (Act::CoreTool, Target::Sandbox),
        };
        Entry {
            agent: caller.agent.clone(),
            act,
            tool: self.tool().to_owned(),
            args: self.arguments(),
            target: Some(target),
            session: caller.session.as_ref().map(|it| it.session_key.clone()),
            claimed_session: caller.claimed_session.clone(),
            channel: caller.session.as_ref().map(|it| it.channel.clone()),
            model: caller.model.clone(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Self::Read(read) => read.arguments(),
            Self::Write(write) => write.arguments(),
            Self::Patch(patch) => patch.arguments(),
            Self::Exec(exec) => exec.arguments(),
            Self::Command(call, _) => {
                call.argv.iter().map(|it| it.to_string_lossy().into_owned()).collect()
            }
            Self::Plugin(call) => call.args.clone(),
            Self::Unknown(_) => Vec::new(),
        }
    }
}

/// What the audit log keeps of the end.
fn finish(done: &Result<Answer>) -> Finish {
    match done {
        Ok(answer) => Finish {
            exit_code: answer.exit_code().or(Some(i32::from(answer.is_error))),
            output_bytes: Some(answer.bytes),
            error: answer.is_error.then(|| first_line(&answer.plain_text())),
        },
        Err(error) => Finish { error: Some(error.to_string()), ..Finish::default() },
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}
