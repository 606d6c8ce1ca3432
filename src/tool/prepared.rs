//! A call whose arguments are sound: what policy is asked about it and what
//! the audit log is told of it. Nothing here acts.

use std::os::fd::BorrowedFd;

use serde_json::Value;

use super::call::{Call, Caller, CommandCall, CoreCall, PluginCall, Streams};
use super::{exec, files};
use crate::audit::{Act, Entry, Target};
use crate::config::Agent;
use crate::policy::{self, Decision};

/// A call whose arguments are sound.
pub(super) enum Prepared<'a> {
    Read(files::Read),
    Write(files::Write),
    Patch(files::Patch),
    /// And who is told what it prints.
    Exec(exec::Exec, &'a mut dyn FnMut(String)),
    Command(CommandCall, Streams<'a>),
    Plugin(PluginCall, Option<BorrowedFd<'a>>),
    /// No tool of ours, for policy to deny.
    Unknown(String),
}

impl<'a> Prepared<'a> {
    /// The error is for whoever made the call.
    pub(super) fn new(call: Call<'a>) -> Result<Self, String> {
        match call {
            Call::Core(call, tell) => Self::core(call, tell),
            Call::Command(call, streams) => {
                exec::checked(call).map(|it| Self::Command(it, streams))
            }
            Call::Plugin(call, line) => Ok(Self::Plugin(call, line)),
        }
    }

    fn core(call: CoreCall, tell: &'a mut dyn FnMut(String)) -> Result<Self, String> {
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
            "exec" => {
                exec::Exec::parse(params, call.default_timeout).map(|it| Self::Exec(it, tell))
            }
            _ => Ok(Self::Unknown(call.tool)),
        }
    }

    /// The line of whoever asked, where there is one.
    pub(super) fn line(&self) -> Option<BorrowedFd<'a>> {
        match self {
            Self::Plugin(_, line) => *line,
            _ => None,
        }
    }

    /// Whether its caller has got what it printed when it ends.
    pub(super) fn is_streamed(&self) -> bool {
        matches!(self, Self::Command(..))
    }

    pub(super) fn decide(&self, agent: &Agent) -> Decision {
        match self {
            Self::Plugin(call, _) => policy::plugin(&agent.name, &agent.tools, &call.tool),
            _ => policy::core(self.tool(), &agent.tools),
        }
    }

    fn tool(&self) -> &str {
        match self {
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Patch(_) => "patch",
            Self::Exec(..) | Self::Command(..) => "exec",
            Self::Plugin(call, _) => &call.tool,
            Self::Unknown(tool) => tool,
        }
    }

    pub(super) fn entry(&self, caller: &Caller) -> Entry {
        let (act, target) = match self {
            Self::Plugin(..) => (Act::Tool, Target::Gateway),
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
            channel: caller.session.as_ref().and_then(|it| it.channel.clone()),
            model: caller.model.clone(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Self::Read(read) => read.arguments(),
            Self::Write(write) => write.arguments(),
            Self::Patch(patch) => patch.arguments(),
            Self::Exec(exec, _) => exec.arguments(),
            Self::Command(call, _) => {
                call.argv.iter().map(|it| it.to_string_lossy().into_owned()).collect()
            }
            Self::Plugin(call, _) => call.args.clone(),
            Self::Unknown(_) => Vec::new(),
        }
    }
}
