//! The only way to run anything: [`Toolbox::run`] asks policy and the plugins
//! that guard, writes the audit line, acts, finishes the line, and lets plugins
//! see the result. Front ends, turns and the agents' sockets all come through
//! here; no path goes round it.

mod call;
mod calls;
mod capture;
mod exec;
mod files;
mod live;
mod prepared;
mod saved;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use call::{
    Answer, Call, Caller, CommandCall, Content, CoreCall, PluginCall, SessionRef, Streams,
};
pub use calls::CallTable;
pub use exec::below_workspace;

use crate::audit::{Audit, Finish};
use crate::config;
use crate::error::{Error, Kind, Result};
use crate::plugin::hooks::{Halt, Outcome, ToolCalled};
use crate::plugin::run::Asker;
use crate::plugin::{Plugins, Registry};
use crate::policy::Decision;
use crate::sandbox::AgentSandbox;
use crate::secret::Redactor;
use crate::worker::Cancel;
use prepared::Prepared;

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
    plugins: Plugins,
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
        plugins: Plugins,
        audit: Audit,
        redactor: Redactor,
        socket: Option<String>,
    ) -> Self {
        Self { equipment, plugins, audit, redactor, calls: CallTable::default(), socket }
    }

    /// The agents' sandboxes, for starting and stopping them.
    pub fn equipment(&self) -> &BTreeMap<String, Equipment> {
        &self.equipment
    }

    /// The registered plugin tools.
    pub fn registry(&self) -> &Registry {
        self.plugins.registry()
    }

    /// The plugins, for starting and stopping them.
    pub fn plugins(&self) -> &Plugins {
        &self.plugins
    }

    /// Which session a running call belongs to.
    pub fn calls(&self) -> &CallTable {
        &self.calls
    }

    /// Runs one call: policy, the plugins that guard, the audit line before, the
    /// act, the audit line after, the plugins that see results. What the call's
    /// own tool answers, failures included, is an [`Answer`]; an error means that
    /// nothing ran (no such agent, arguments wrong, denied, refused by a plugin,
    /// no audit line could be written, no sandbox), that it was called off, or
    /// that the sandbox broke under it.
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
        if let Decision::Deny(reason) = call.decide(&equipment.agent) {
            self.audit.deny(&entry, &reason)?;
            return match call {
                // The model may go on with one that exists.
                Prepared::Unknown(_) => Ok(self.masked(Answer::error(reason))),
                _ => Err(Error::new(Kind::Denied, reason)),
            };
        }
        let called = ToolCalled {
            tool_name: &entry.tool,
            args: &entry.args,
            session_key: entry.session.as_deref().unwrap_or_default(),
            agent_name: &entry.agent,
        };
        let asker = Asker { cancel, line: call.line() };
        if let Err(halt) = self.plugins.pre_tool(&called, asker) {
            if halt != Halt::CalledOff {
                self.audit.deny(&entry, &halt.to_string())?;
            }
            return Err(halt.into());
        }
        let is_streamed = call.is_streamed();
        let pending = self.audit.begin(&entry)?;
        let done = self.act(equipment, caller, call, cancel).map(|it| self.masked(it));
        pending.finish(&finish(&done));
        let changed = self.plugins.post_tool(&called, || self.outcome(&done), cancel);
        match (done, changed) {
            (Ok(answer), Some(outcome)) if !is_streamed => Ok(self.masked(answer.with(outcome))),
            (done, _) => done,
        }
    }

    /// What plugins are told of the end.
    fn outcome(&self, done: &Result<Answer>) -> Outcome {
        match done {
            Ok(answer) => answer.outcome(),
            Err(error) => Outcome { output: self.mask(&error.to_string()), exit_code: 1 },
        }
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
            Prepared::Exec(exec, tell) => scene.exec(&exec, tell),
            Prepared::Command(command, streams) => scene.command(command, streams),
            Prepared::Plugin(call, line) => scene.plugin(call, line),
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

/// What the audit log keeps of the end.
fn finish(done: &Result<Answer>) -> Finish {
    match done {
        Ok(answer) => Finish {
            exit_code: answer.exit_code().or(Some(i32::from(answer.is_error))),
            output_bytes: Some(answer.bytes),
            error: answer.is_error.then(|| why(answer)).filter(|it| !it.is_empty()),
        },
        Err(error) => Finish { error: Some(error.to_string()), ..Finish::default() },
    }
}

/// How a command ended where its exit code alone says too little, else how the
/// answer begins.
fn why(answer: &Answer) -> String {
    let note = answer.exit.as_ref().and_then(|it| it.note.clone());
    note.unwrap_or_else(|| first_line(&answer.plain_text()))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}
