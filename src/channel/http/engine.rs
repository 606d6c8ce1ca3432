//! What HTTP asks of the gateway: the seam between translating and doing.
//! `gateway::Handle` is the one engine; tests put a small one of their own in
//! its place.

use crossbeam_channel::Receiver;
use serde::Serialize;
use serde_json::Value;

use crate::clock::Time;
use crate::config::ModelRef;
use crate::error::Result;
use crate::sandbox::{Exit, Output};
use crate::tool::{self, CommandCall};
use crate::worker::Cancel;

/// One line of the audit log at a time; whether it wants more.
pub(super) type EachRecord<'a> = &'a mut dyn FnMut(&str) -> Result<bool>;

/// The gateway, as the routes see it.
pub(super) trait Engine: Clone + Send + Sync + 'static {
    /// What `GET /api/health` tells the owner.
    fn health(&self) -> Value;
    /// The list of agents.
    fn agents(&self) -> Value;
    /// `Missing` unless there is an agent of that name.
    fn require_agent(&self, name: &str) -> Result<()>;
    /// Runs a core tool.
    fn call_tool(
        &self,
        agent: &str,
        tool: &str,
        params: Value,
        session_key: Option<&str>,
        cancel: &Cancel,
    ) -> Result<tool::Answer>;
    /// Runs a command with its streams.
    fn run_command(
        &self,
        agent: &str,
        call: CommandCall,
        session_key: Option<&str>,
        feed: &Feed,
        output: &mut dyn Output,
        cancel: &Cancel,
    ) -> Result<Exit>;
    /// Starts a turn; its events end with a terminal one.
    fn prompt(&self, request: PromptRequest, cancel: Cancel) -> Result<Receiver<TurnEvent>>;
    /// Goes through the audit log.
    fn audit(&self, filter: &AuditFilter, each: EachRecord) -> Result<()>;
    /// Takes known secrets out of a text.
    fn mask(&self, text: &str) -> String;
    /// Whether nothing new is begun any more.
    fn is_draining(&self) -> bool;
}

/// STAND-IN
pub(super) struct Feed {
    pub(super) stdin: Receiver<Vec<u8>>,
    pub(super) signals: Receiver<u8>,
}

impl Feed {
    pub(super) fn empty() -> Self {
        Self { stdin: crossbeam_channel::bounded(0).1, signals: crossbeam_channel::bounded(0).1 }
    }
}

/// STAND-IN
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PromptRequest {
    pub(super) agent: String,
    pub(super) message: String,
    pub(super) session_key: Option<String>,
    pub(super) model: Option<ModelRef>,
    pub(super) channel: String,
}

/// STAND-IN
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum TurnEvent {
    TextDelta { delta: String },
    Done { response: String },
    Error { category: String, message: String },
    Blocked { reason: String },
}

/// STAND-IN
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AuditFilter {
    pub(super) agent: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) denied: bool,
    pub(super) since: Option<Time>,
}
