//! Plugins of beige's own, which the same binary is when it is started as
//! `beige plugin-run NAME`. Each is a process beside the gateway and speaks to
//! it as anyone's plugin does: what is not said in the protocol cannot be
//! known or done here. What they give is told by their `plugin.json`
//! ([`crate::plugin::builtins`]); here is what they do.

mod git;
mod serve;
mod sessions;
mod spawn;

use std::time::Duration;

use serde_json::Value;

use crate::plugin::connection::{Connection, Unanswered};
use crate::plugin::run::{Asker, Context};
use crate::worker::Cancel;

pub use serve::run;

/// A plugin of beige's own.
pub trait Builtin: Send + Sync {
    /// Does what a call of one of its tools asks for. Calls come while others
    /// run; one that is called off should end soon.
    fn call(&self, call: &Call<'_>) -> Answer;
}

/// The plugin of that name, if there is one.
fn named(name: &str) -> Option<Box<dyn Builtin>> {
    match name {
        "git" => Some(Box::new(git::Git::default())),
        "sessions" => Some(Box::new(sessions::Sessions)),
        "spawn" => Some(Box::new(spawn::Spawn::default())),
        _ => None,
    }
}

/// What this host lacks for the plugin of that name to do its work, and what to
/// install or allow. May start two short programs.
pub fn lack_of(name: &str) -> Option<String> {
    match name {
        "git" => git::lack(),
        _ => None,
    }
}

/// A call of a tool.
pub struct Call<'a> {
    /// The tool: the name of the plugin's entry in the configuration.
    pub tool: &'a str,
    /// From the agent: hostile.
    pub args: &'a [String],
    /// What was piped, if anything was.
    pub stdin: Option<&'a str>,
    /// The entry's configuration, with the agent's own over it.
    pub config: &'a Value,
    /// Who calls, verified by the gateway.
    pub context: &'a Context,
    /// Called off once nobody waits for the answer.
    pub cancel: &'a Cancel,
    /// The conversation with the gateway.
    pub gateway: &'a Connection,
}

impl Call<'_> {
    /// Asks the gateway, for at most so long, and while somebody waits for
    /// this call.
    pub fn ask(
        &self,
        method: &str,
        params: &Value,
        patience: Duration,
    ) -> Result<Value, Unanswered> {
        self.gateway.ask(method, params, patience, Asker { cancel: self.cancel, line: None })
    }
}

/// What comes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What is printed: on standard output after 0, else as complaint.
    pub output: String,
    /// 0 if it was done.
    pub exit_code: i32,
}

impl Answer {
    /// It was done.
    pub fn done(output: impl Into<String>) -> Self {
        Self { output: output.into(), exit_code: 0 }
    }

    /// It could not be done, and why.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { output: line(why.into()), exit_code: 1 }
    }

    /// The call makes no sense, and why.
    pub fn wrong(why: impl Into<String>) -> Self {
        Self { output: line(why.into()), exit_code: 2 }
    }
}

fn line(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
