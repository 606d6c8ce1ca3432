//! The tool calls of an answer: run one after another, their results stored,
//! and none left without one.

use serde_json::json;

use super::TurnEvent;
use super::fit::fitted;
use super::progress::{Halt, Progress};
use crate::clock;
use crate::error::Kind;
use crate::message::{Block, Content, Image, Message, ToolCall, ToolResult};
use crate::provider::{Answer, Fault};
use crate::tool::{self, CoreCall};

impl Progress<'_> {
    /// Runs the calls of an answer, one after another. Once the turn is called
    /// off, or a person says something to it, the rest is answered without
    /// being run.
    pub(super) fn run_calls(&mut self, answer: &Answer) -> Result<(), Halt> {
        let mut heard = Vec::new();
        for call in answer.message.tool_calls() {
            let broken = answer.broken.iter().find(|it| it.id == call.id);
            if self.cancel.is_cancelled() {
                self.store_result(call, interrupted())?;
                continue;
            }
            heard.extend(self.turn.steering.heard());
            if !heard.is_empty() {
                self.store_result(call, skipped())?;
                continue;
            }
            (self.events)(TurnEvent::ToolStart {
                id: call.id.clone(),
                tool: call.name.clone(),
                params: call.arguments.clone(),
            });
            let mut result = match broken {
                Some(broken) => tool_error(not_run(&call.name, &broken.why)),
                None => self.run_call(call),
            };
            let note = self.repeats.note(call, &result.content, result.is_error);
            result.late.extend(note.clone());
            result.content.extend(note.map(Block::text));
            self.end_call(call, result)?;
        }
        heard.extend(self.turn.steering.heard());
        self.hear(heard)?;
        if self.cancel.is_cancelled() {
            return self.stop(Fault::Cancelled);
        }
        Ok(())
    }

    fn run_call(&mut self, call: &ToolCall) -> CallResult {
        let core = CoreCall {
            tool: call.name.clone(),
            params: call.arguments.clone(),
            default_timeout: self.turn.limits.exec_timeout,
        };
        let events = &mut self.events;
        let mut printed = |delta| events(TurnEvent::ToolOutput { id: call.id.clone(), delta });
        match self.turn.hands.run(core, &mut printed, self.cancel) {
            Ok(answer) => CallResult::from(answer),
            Err(error) if error.kind() == Kind::Cancelled => interrupted(),
            Err(error) => tool_error(error.to_string()),
        }
    }

    /// Stores a result, then tells of it.
    fn end_call(&mut self, call: &ToolCall, mut result: CallResult) -> Result<(), Halt> {
        let end = TurnEvent::ToolEnd {
            id: call.id.clone(),
            is_error: result.is_error,
            exit_code: result.exit_code,
            bytes: result.bytes,
            untold_bytes: result.untold_bytes,
        };
        for delta in result.late.drain(..).filter(|it| !it.is_empty()) {
            (self.events)(TurnEvent::ToolOutput { id: call.id.clone(), delta });
        }
        self.store_result(call, result)?;
        (self.events)(end);
        Ok(())
    }

    pub(super) fn store_result(&mut self, call: &ToolCall, result: CallResult) -> Result<(), Halt> {
        let now = clock::now();
        let result = ToolResult {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            content: Content::Blocks(fitted(result.content)),
            details: result.exit_code.map(|it| json!({ "exitCode": it })),
            is_error: result.is_error,
            timestamp: now.unix_millis(),
            ..ToolResult::default()
        };
        self.store(Message::ToolResult(result), now)
    }
}

/// What came of a call, on its way into the session.
pub(super) struct CallResult {
    content: Vec<Block>,
    is_error: bool,
    exit_code: Option<i32>,
    /// What is told of it only once it has ended.
    late: Vec<String>,
    bytes: u64,
    untold_bytes: u64,
}

impl From<tool::Answer> for CallResult {
    fn from(answer: tool::Answer) -> Self {
        let exit_code = answer.exit_code();
        // What a command printed has been told while it ran.
        let late = exit_code.is_none().then(|| answer.plain_text()).into_iter().collect();
        let (bytes, untold_bytes) = (answer.bytes, answer.untold);
        let block = |it| match it {
            tool::Content::Text { text } => Block::text(text),
            tool::Content::Image { data, mime_type } => {
                Block::Image(Image { data, mime_type, ..Image::default() })
            }
        };
        let content = answer.content.into_iter().map(block).collect();
        let is_error = answer.is_error;
        Self { content, is_error, exit_code, late, bytes, untold_bytes }
    }
}

/// What a model is told of a call that does not read. One that it wrote as text
/// may name no tool.
fn not_run(tool: &str, why: &str) -> String {
    let what = if tool.is_empty() { "The call".to_owned() } else { format!("`{tool}`") };
    format!("{what} was not run: {why}. Call it again with a JSON object.")
}

fn tool_error(text: String) -> CallResult {
    CallResult::from(tool::Answer::error(text))
}

fn skipped() -> CallResult {
    tool_error("The call was skipped and nothing of it was run: the person said something.".into())
}

fn interrupted() -> CallResult {
    tool_error("The call was interrupted: the turn was called off.".into())
}
