//! One prompt to its answer: the message is stored, a model is asked, the
//! tools that it calls are run one after another, their results are stored,
//! and it is asked again, until it answers without a call. Whatever happens,
//! what was said and done stands in the session, and no call is left without
//! its result. A turn runs nothing itself: it acts through [`Hands`].

mod event;
mod hands;
mod masked;
mod origin;
mod prompt;
mod veil;

pub use event::{TurnEvent, category_of};
pub use hands::Equipped;
pub use prompt::{LARGEST_AGENTS_MD, Prompt, core_tools};
pub use veil::Veil;

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::clock::{self, Time};
use crate::config::{Limits, ModelRef};
use crate::error::{Error, Kind, Result};
use crate::message::{
    Assistant, Block, Content, Image, Message, StopReason, ToolCall, ToolResult, Usage,
};
use crate::provider::{Answer, Delta, Failure, Fault, Registry, Request, ToolDefinition};
use crate::secret::Redactor;
use crate::session::Conversation;
use crate::tool::{self, CoreCall};
use crate::worker::Cancel;

/// How much a turn may add to its session before the model is asked again, in
/// bytes: all of it is held and sent, and no model reads more.
const LARGEST_TURN: u64 = if cfg!(test) { 4 * 1024 * 1024 } else { 64 * 1024 * 1024 };

/// What is told of an answer that the model had no room to finish.
pub const CUT_AT_LIMIT: &str = "the answer was cut at the model's output limit";

/// How much of what was said is kept beside the last answer, in bytes, for the
/// event that tells of a failed turn; all of it is in the session.
const MOST_SAID: usize = 1024 * 1024;

/// What a turn works with.
pub struct Turn<'a> {
    /// The session that holds it, by its key.
    pub session_key: &'a str,
    /// The model that answers.
    pub model: &'a ModelRef,
    /// The system prompt ([`Prompt::text`]).
    pub system: &'a str,
    /// The tools that the model may call ([`core_tools`]).
    pub tools: &'a [ToolDefinition],
    /// The agent's bounds.
    pub limits: Limits,
    /// Where models are.
    pub providers: &'a Registry,
    /// What the turn acts through.
    pub hands: &'a dyn Hands,
    /// Keeps secrets out of what is stored.
    pub redactor: &'a Redactor,
}

/// How a turn acts on the world: the toolbox and the audit log, on behalf of
/// one caller.
pub trait Hands {
    /// Runs a core tool by the toolbox. An error is told to the model, but for
    /// [`Kind::Cancelled`].
    fn run(&self, call: CoreCall, cancel: &Cancel) -> Result<tool::Answer>;

    /// Writes that a model is about to be called; an error refuses the call.
    /// What is returned is told how it ended.
    fn model_call_begins(&self, model: &ModelRef) -> Result<Box<dyn FnOnce(ModelCallEnd) + '_>>;
}

/// How a model call ended, for the audit log and the counters.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCallEnd {
    /// Length of the answer's text in bytes.
    pub output_bytes: u64,
    /// What it took, as far as the provider said.
    pub usage: Usage,
    /// What went wrong.
    pub fault: Option<Fault>,
}

impl Turn<'_> {
    /// Runs the turn. Events are told as they happen; the last of them says
    /// the same as the result. The message is on the disk before a model is
    /// asked, and all of the turn before the last event.
    pub fn run(
        &self,
        conversation: &mut Conversation,
        message: &str,
        events: &mut dyn FnMut(TurnEvent),
        cancel: &Cancel,
    ) -> Result<String> {
        let mut progress =
            Progress { turn: self, conversation, events, cancel, said: VecDeque::new() };
        let outcome = progress.converse(message);
        let outcome = progress.conversation.sync().map_err(Halt::from).and(outcome);
        progress.tell_end(outcome)
    }
}

/// A turn that is running.
struct Progress<'a> {
    turn: &'a Turn<'a>,
    conversation: &'a mut Conversation,
    events: &'a mut dyn FnMut(TurnEvent),
    cancel: &'a Cancel,
    /// What the model said so far, as far as it is kept.
    said: VecDeque<String>,
}

/// Why a turn ends without an answer.
struct Halt {
    category: &'static str,
    error: Error,
}

impl Progress<'_> {
    fn converse(&mut self, message: &str) -> Result<Assistant, Halt> {
        let now = clock::now();
        let before = self.conversation.length();
        self.conversation.close_open_calls(now)?;
        self.conversation.use_model(self.turn.model, now)?;
        self.conversation.say(Message::user(message, now), now)?;
        for _ in 0..self.turn.limits.max_turns {
            let answer = self.ask()?;
            if answer.message.tool_calls().next().is_none() {
                return Ok(answer.message);
            }
            self.run_calls(&answer)?;
            if self.conversation.length().saturating_sub(before) > LARGEST_TURN {
                return self.end_too_long();
            }
        }
        self.give_up()
    }

    /// One model call; its answer is stored, also a half one.
    fn ask(&mut self) -> Result<Answer, Halt> {
        (self.events)(TurnEvent::TurnStart { session_key: self.turn.session_key.to_owned() });
        let told = self.turn.hands.model_call_begins(self.turn.model)?;
        let called = self.call_model();
        told(end_of(&called));
        match called {
            Ok(answer) => {
                self.store_answer(answer.message.clone())?;
                Ok(answer)
            }
            Err(failure) => {
                let Failure { fault, partial } = *failure;
                self.store_answer(partial)?;
                Err(Halt::from(fault))
            }
        }
    }

    fn call_model(&mut self) -> Result<Answer, Box<Failure>> {
        let session = self.conversation.session();
        let messages = session.context();
        let marks = session.marks().iter().filter(|it| it.provider == self.turn.model.provider);
        let marks: Vec<Value> = marks.map(|it| it.beige.clone()).collect();
        let facts = self.turn.providers.facts(self.turn.model);
        let request = Request {
            model: self.turn.model,
            facts: &facts,
            system: self.turn.system,
            messages: &messages,
            tools: self.turn.tools,
            marks: &marks,
        };
        let events = &mut self.events;
        let inactivity = self.turn.limits.inactivity;
        self.turn.providers.call(&request, inactivity, self.cancel, &mut |delta| match delta {
            Delta::Text(it) => events(TurnEvent::TextDelta { delta: it.clone() }),
            Delta::Thinking(it) => events(TurnEvent::ThinkingDelta { delta: it.clone() }),
            _ => (),
        })
    }

    fn store_answer(&mut self, message: Assistant) -> Result<(), Halt> {
        let text = message.text();
        let is_priced = self.turn.providers.facts(self.turn.model).cost.is_some();
        // Of a call that failed before anything came there is nothing to tell.
        let has_failed = matches!(message.stop_reason, StopReason::Error | StopReason::Aborted);
        let is_nothing = message.content.is_empty() && message.usage == Usage::default();
        let is_told = !(has_failed && is_nothing);
        let usage = usage_event(&message.usage, is_priced);
        self.store(Message::Assistant(Box::new(message)), clock::now())?;
        self.keep_said(text);
        if is_told {
            (self.events)(usage);
        }
        Ok(())
    }

    /// Keeps the newest of what was said, for a turn that fails.
    fn keep_said(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        while self.said.iter().map(String::len).sum::<usize>() > MOST_SAID {
            self.said.pop_front();
        }
        self.said.push_back(text);
    }

    /// Runs the calls of an answer, one after another. Once the turn is called
    /// off, the rest is answered without being run.
    fn run_calls(&mut self, answer: &Answer) -> Result<(), Halt> {
        for call in answer.message.tool_calls() {
            let broken = answer.broken.iter().find(|it| it.id == call.id);
            if self.cancel.is_cancelled() {
                self.store_result(call, interrupted())?;
                continue;
            }
            (self.events)(TurnEvent::ToolStart {
                id: call.id.clone(),
                tool: call.name.clone(),
                params: call.arguments.clone(),
            });
            let result = match broken {
                Some(broken) => tool_error(format!(
                    "`{}` was not run: {}. Call it again with a JSON object.",
                    call.name, broken.why
                )),
                None => self.run_call(call),
            };
            self.end_call(call, result)?;
        }
        if self.cancel.is_cancelled() {
            return self.stop(Fault::Cancelled);
        }
        Ok(())
    }

    fn run_call(&self, call: &ToolCall) -> CallResult {
        let core = CoreCall {
            tool: call.name.clone(),
            params: call.arguments.clone(),
            default_timeout: self.turn.limits.exec_timeout,
        };
        match self.turn.hands.run(core, self.cancel) {
            Ok(answer) => CallResult::from(answer),
            Err(error) if error.kind() == Kind::Cancelled => interrupted(),
            Err(error) => tool_error(error.to_string()),
        }
    }

    /// Stores a result, then tells of it.
    fn end_call(&mut self, call: &ToolCall, result: CallResult) -> Result<(), Halt> {
        let text = Content::Blocks(result.content.clone()).text();
        let end = TurnEvent::ToolEnd {
            id: call.id.clone(),
            is_error: result.is_error,
            exit_code: result.exit_code,
            bytes: text.len() as u64,
        };
        if !text.is_empty() {
            (self.events)(TurnEvent::ToolOutput { id: call.id.clone(), delta: text });
        }
        self.store_result(call, result)?;
        (self.events)(end);
        Ok(())
    }

    fn store_result(&mut self, call: &ToolCall, result: CallResult) -> Result<(), Halt> {
        let now = clock::now();
        let result = ToolResult {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            content: Content::Blocks(result.content),
            details: result.exit_code.map(|it| json!({ "exitCode": it })),
            is_error: result.is_error,
            timestamp: now.unix_millis(),
            ..ToolResult::default()
        };
        self.store(Message::ToolResult(result), now)
    }

    /// The model was asked as often as it may be.
    fn give_up(&mut self) -> Result<Assistant, Halt> {
        let what = format!(
            "the turn was ended after {} model calls (`limits.maxTurns`); what was done so far \
             stays in the session, and another prompt goes on from there",
            self.turn.limits.max_turns
        );
        self.store_end(StopReason::Error, &what)?;
        Err(Halt { category: "max_turns", error: Error::new(Kind::Internal, what) })
    }

    /// The turn has become longer than any model reads.
    fn end_too_long(&mut self) -> Result<Assistant, Halt> {
        let what = format!(
            "the turn was ended after {} MiB, more than is sent to a model; what was done so far \
             stays in the session, and another prompt goes on from there",
            LARGEST_TURN / 1024 / 1024
        );
        self.store_end(StopReason::Error, &what)?;
        Err(Halt::from(Fault::TooLong(what)))
    }

    /// Ends the turn between two model calls.
    fn stop(&mut self, fault: Fault) -> Result<(), Halt> {
        self.store_end(StopReason::Aborted, &fault.to_string())?;
        Err(Halt::from(fault))
    }

    /// An answer without content that says in the file why there is none.
    fn store_end(&mut self, stop_reason: StopReason, why: &str) -> Result<(), Halt> {
        let now = clock::now();
        let message = Assistant {
            api: self.turn.providers.api_name(self.turn.model).into(),
            provider: self.turn.model.provider.clone(),
            model: self.turn.model.model.clone(),
            stop_reason,
            error_message: Some(why.to_owned()),
            timestamp: now.unix_millis(),
            ..Assistant::default()
        };
        self.store(Message::Assistant(Box::new(message)), now)
    }

    fn store(&mut self, message: Message, now: Time) -> Result<(), Halt> {
        Ok(self.conversation.say(masked::message(message, self.turn.redactor), now)?)
    }

    fn tell_end(self, outcome: Result<Assistant, Halt>) -> Result<String> {
        match outcome {
            Ok(answer) => {
                let response = answer.text();
                let note = note_of(&answer).map(str::to_owned);
                (self.events)(TurnEvent::Done { response: response.clone(), note });
                Ok(response)
            }
            Err(Halt { category, error }) => {
                let said = Vec::from(self.said);
                let partial = (!said.is_empty()).then(|| said.join("\n\n"));
                let message = error.to_string();
                (self.events)(TurnEvent::Error { category, message, partial });
                Err(error)
            }
        }
    }
}

/// What a person may not see of an answer.
fn note_of(answer: &Assistant) -> Option<&'static str> {
    match answer.stop_reason {
        StopReason::Length => Some(CUT_AT_LIMIT),
        _ => answer.text().is_empty().then_some("the model answered with no text"),
    }
}

/// What came of a call, on its way into the session.
struct CallResult {
    content: Vec<Block>,
    is_error: bool,
    exit_code: Option<i32>,
}

impl From<tool::Answer> for CallResult {
    fn from(answer: tool::Answer) -> Self {
        let exit_code = answer.exit_code();
        let block = |it| match it {
            tool::Content::Text { text } => Block::text(text),
            tool::Content::Image { data, mime_type } => {
                Block::Image(Image { data, mime_type, ..Image::default() })
            }
        };
        let content = answer.content.into_iter().map(block).collect();
        Self { content, is_error: answer.is_error, exit_code }
    }
}

fn tool_error(text: String) -> CallResult {
    CallResult { content: vec![Block::text(text)], is_error: true, exit_code: None }
}

fn interrupted() -> CallResult {
    tool_error("The call was interrupted: the turn was called off.".into())
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        let category = if error.kind() == Kind::Cancelled { "aborted" } else { "internal" };
        Self { category, error }
    }
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        let kind = match fault {
            Fault::Cancelled => Kind::Cancelled,
            _ => Kind::Internal,
        };
        Self { category: fault.category(), error: Error::new(kind, fault.to_string()) }
    }
}

fn end_of(called: &Result<Answer, Box<Failure>>) -> ModelCallEnd {
    let (message, fault) = match called {
        Ok(answer) => (&answer.message, None),
        Err(failure) => (&failure.partial, Some(failure.fault.clone())),
    };
    ModelCallEnd { output_bytes: message.text().len() as u64, usage: message.usage.clone(), fault }
}

/// A price that nobody knows is not told as nothing.
fn usage_event(usage: &Usage, is_priced: bool) -> TurnEvent {
    let cost = usage.cost.total;
    TurnEvent::Usage {
        input: usage.input,
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        cost_usd: (is_priced || cost > 0.0).then(|| rounded(cost)),
    }
}

/// To a billionth: what binary fractions add behind that is no price.
fn rounded(cost: f64) -> f64 {
    let billionths = (cost * 1e9).round();
    if billionths.is_finite() { billionths / 1e9 } else { cost }
}

#[cfg(test)]
mod tests;
