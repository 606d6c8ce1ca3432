//! One answer for a client that keeps its conversation itself: the request is
//! checked against the agent, the models that may answer are asked in their
//! order, and what comes is told as it comes, with no known secret in it.
//! Nothing is run and nothing is stored but the audit lines. Once some of the
//! answer has been told, no other model is asked.

mod veil;

use std::mem;

use serde_json::Value;

use super::hooked::with_text;
use super::turns::from_choice;
use super::{Engine, Handle, session_ref};
use crate::clock::{self, Time};
use crate::config::{Agent, ModelChoice, ModelRef, ThinkingLevel};
use crate::error::{Error, Kind, Result};
use crate::message::{Assistant, Message, StopReason};
use crate::plugin::hooks::ModelSwitch;
use crate::provider::chain::{Attempt, Chain, End, Retry, Steps, Switch};
use crate::provider::{Answer, Assembly, Delta, Failure, Fault, Listener, Request, ToolDefinition};
use crate::session;
use crate::tool::Caller;
use crate::turn::{Equipped, Hands, ModelCallEnd, Watch, masked_answer, without_cut_calls};
use crate::usage::Role;
use crate::worker::Cancel;
use veil::Veil;

/// A conversation that waits for its next answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The agent in whose name it is asked.
    pub agent: String,
    /// The session that it belongs to, for the audit log.
    pub session_key: Option<String>,
    /// A model of the agent's list; those behind it answer if it cannot.
    pub model: ModelRef,
    /// The system prompt.
    pub system: String,
    /// What was said, in whatever state the client has it.
    pub messages: Vec<Message>,
    /// The tools that the client runs.
    pub tools: Vec<ToolDefinition>,
    /// How hard the model is told to think.
    pub thinking: ThinkingLevel,
    /// Tokens that it may write.
    pub max_tokens: Option<u64>,
    /// How freely it chooses its words.
    pub temperature: Option<f64>,
    /// Whether every piece is told by itself ([`Request::every_piece`]).
    pub every_piece: bool,
}

/// What is told of an answer. The last is [`ChatEvent::Done`],
/// [`ChatEvent::Failed`] or [`ChatEvent::Blocked`], and nothing follows it.
#[derive(Debug)]
pub enum ChatEvent {
    /// Another model than the one before is about to be asked; of an answer
    /// nothing has been told by then.
    Fallback(ModelRef),
    /// A model is asked; the answer that its pieces will make.
    Asked(Box<Assembly>),
    /// A piece of it.
    Piece(Delta),
    /// Nothing more has come by now: told before each wait for the model, and
    /// again after each second of it.
    Lull,
    /// The whole answer.
    Done(Box<Assistant>),
    /// There is none: as much of it as came, and why.
    Failed(Box<Assistant>),
    /// The request was refused before a model saw it.
    Blocked(String),
}

impl Handle {
    /// One answer, told as it comes, on this thread. An error means that
    /// nothing was begun: [`Kind::Missing`] without such an agent,
    /// [`Kind::Denied`] for a model outside of its list, [`Kind::Conflict`]
    /// for a session of another agent.
    pub fn chat(
        &self,
        mut request: ChatRequest,
        events: &mut dyn FnMut(ChatEvent),
        cancel: &Cancel,
    ) -> Result<()> {
        let engine = &*self.engine;
        let agent = engine.checked_chat(&mut request)?;
        let _entered = engine.running.enter_to_tell(cancel)?;
        let caller = caller(&request);
        if let Some(reason) = engine.guard_chat(&mut request, &caller.occasion(), cancel)? {
            events(ChatEvent::Blocked(engine.redactor.mask(&reason).into_owned()));
            return Ok(());
        }
        let choices = from_choice(agent, Some(&request.model));
        let messages = session::context_of(mem::take(&mut request.messages));
        let key = request.session_key.as_deref().unwrap_or_default();
        let counted = |model: &ModelRef, end: &ModelCallEnd| {
            engine.model_call_ended(&request.agent, key, model, end);
        };
        let hands = Equipped::new(&engine.toolbox, &engine.audit, caller, &counted);
        let mut talk = Talk {
            engine,
            agent,
            request: &request,
            messages: &messages,
            hands: &hands,
            events,
            cancel,
            is_seen: false,
            is_told: false,
            partial: None,
        };
        let end = Chain::new(&choices, &engine.health).answer(&mut talk, cancel);
        talk.tell_end(end)
    }
}

impl Engine {
    /// The agent of a request that may be begun; its session is called by its key
    /// from then on.
    fn checked_chat(&self, request: &mut ChatRequest) -> Result<&Agent> {
        super::require(&self.config, &request.agent)?;
        let agent = self.config.agents.get(&request.agent);
        let agent = agent.ok_or_else(|| Error::new(Kind::Missing, "there is no such agent"))?;
        if let Some(word) = &mut request.session_key {
            *word = self.store.key_of(&agent.name, word)?;
        }
        if agent.choices().all(|it| it.model != request.model) {
            let models: Vec<String> = agent.choices().map(|it| it.model.to_string()).collect();
            let what = format!(
                "the agent `{}` may not use {}; its models are {}",
                agent.name,
                request.model,
                models.join(", ")
            );
            return Err(Error::new(Kind::Denied, what));
        }
        Ok(agent)
    }
}

/// A request on its way to an answer.
struct Talk<'a> {
    engine: &'a Engine,
    agent: &'a Agent,
    request: &'a ChatRequest,
    messages: &'a [Message],
    hands: &'a Equipped<'a>,
    events: &'a mut dyn FnMut(ChatEvent),
    cancel: &'a Cancel,
    /// Whether some of an answer has been told.
    is_seen: bool,
    /// Whether anything has been told.
    is_told: bool,
    /// What came of the answer that failed last.
    partial: Option<Assistant>,
}

impl Steps for Talk<'_> {
    type Halt = Error;

    fn ask(&mut self, choice: &ModelChoice) -> Result<Attempt> {
        let told = self.hands.model_call_begins(&choice.model)?;
        let mut watch = Watch::start();
        let called = self.call(choice, &mut watch);
        told(watch.ended(&called, Role::Main));
        Ok(match called {
            Ok(answer) => Attempt::Answered(answer),
            Err(failure) => {
                let Failure { fault, partial, large: _large } = *failure;
                self.partial = Some(partial);
                Attempt::Failed { fault, is_seen: self.is_seen }
            }
        })
    }

    /// The protocol has no word for it; its client sees that the stream lives.
    fn retries(&mut self, _: &Retry) {}

    fn waits(&mut self) {
        (self.events)(ChatEvent::Lull);
    }

    fn falls_back(&mut self, switch: &Switch<'_>) {
        self.tell(ChatEvent::Fallback(switch.to.model.clone()));
        self.hands.model_switches(&ModelSwitch::of(switch), self.cancel);
    }

    fn may_go_on(&self) -> bool {
        !self.is_seen
    }
}

impl Talk<'_> {
    fn tell(&mut self, event: ChatEvent) {
        self.is_told = true;
        (self.events)(event);
    }

    /// One model call.
    fn call(&mut self, choice: &ModelChoice, watch: &mut Watch) -> Result<Answer, Box<Failure>> {
        let (engine, request) = (self.engine, self.request);
        let facts = engine.providers.facts(&choice.model);
        let marks = marks_of(self.messages, &choice.model.provider);
        let asked = Request {
            system: &request.system,
            tools: &request.tools,
            thinking: request.thinking,
            max_tokens: request.max_tokens,
            temperature: request.temperature,
            marks: &marks,
            every_piece: request.every_piece,
            ..Request::new(&choice.model, &facts, self.messages)
        };
        let api = engine.providers.api_name(&choice.model);
        let at = clock::now();
        let answer = Assembly::new(api, &choice.model, at).at(facts.cost);
        self.tell(ChatEvent::Asked(Box::new(answer)));
        let (events, is_seen) = (&mut *self.events, &mut self.is_seen);
        let mut tell = |event| {
            *is_seen |= matches!(&event, ChatEvent::Piece(delta) if is_content(delta));
            events(event);
        };
        let mut ear = Ear { watch, veil: Veil::new(&engine.redactor, &mut tell) };
        let inactivity = self.agent.limits.inactivity;
        let called = engine.providers.call(&asked, inactivity, self.cancel, &mut ear);
        ear.veil.end();
        dated(called, at)
    }

    /// Tells the end, or gives the error of what was never begun.
    fn tell_end(&mut self, end: Result<Answer, End<Error>>) -> Result<()> {
        let (message, fault) = match end {
            Ok(answer) => {
                let end = self.end_of(&answer);
                self.tell(end);
                return Ok(());
            }
            Err(End::Halted(error)) if !self.is_told => return Err(error),
            Err(End::Halted(error)) => (error.to_string(), Fault::Ours(String::new())),
            Err(End::Exhausted(it)) => (it.told(&self.agent.name), Fault::Ours(String::new())),
            Err(End::Failed(fault)) => (fault.to_string(), fault),
            Err(End::CalledOff) => (Fault::Cancelled.to_string(), Fault::Cancelled),
        };
        let failed = masked_answer(self.failed(message, &fault), &self.engine.redactor);
        self.tell(ChatEvent::Failed(Box::new(failed)));
        Ok(())
    }

    /// An answer as its client gets it: the last word of a conversation as
    /// plugins make it. Who asked runs each call that it is handed, so that one
    /// that is cut in a call has failed: it hands on none.
    fn end_of(&self, answer: &Answer) -> ChatEvent {
        let message = masked_answer(without_cut_calls(answer), &self.engine.redactor);
        match message.stop_reason {
            StopReason::Error => ChatEvent::Failed(Box::new(message)),
            StopReason::Stop => self.last_word(message),
            _ => ChatEvent::Done(Box::new(message)),
        }
    }

    fn last_word(&self, message: Assistant) -> ChatEvent {
        let said = message.text();
        match self.hands.response(said.clone(), self.cancel) {
            Ok(response) if response == said => ChatEvent::Done(Box::new(message)),
            Ok(response) => {
                let changed = masked_answer(with_text(message, response), &self.engine.redactor);
                ChatEvent::Done(Box::new(changed))
            }
            Err(why) => {
                let withheld = Assistant {
                    content: Vec::new(),
                    stop_reason: StopReason::Error,
                    error_message: Some(why),
                    ..message
                };
                ChatEvent::Failed(Box::new(masked_answer(withheld, &self.engine.redactor)))
            }
        }
    }

    /// What came of the answer, and why there is not more.
    fn failed(&mut self, why: String, fault: &Fault) -> Assistant {
        let model = &self.request.model;
        let partial = self.partial.take().unwrap_or_else(|| Assistant {
            api: self.engine.providers.api_name(model).into(),
            provider: model.provider.clone(),
            model: model.model.clone(),
            timestamp: clock::now().unix_millis(),
            ..Assistant::default()
        });
        let stop_reason = match fault {
            Fault::Cancelled => StopReason::Aborted,
            _ => StopReason::Error,
        };
        Assistant { stop_reason, error_message: Some(why), ..partial }
    }
}

/// The message with the time that was told when it began.
fn dated(called: Result<Answer, Box<Failure>>, at: Time) -> Result<Answer, Box<Failure>> {
    match called {
        Ok(mut answer) => {
            answer.message.timestamp = at.unix_millis();
            Ok(answer)
        }
        Err(mut failure) => {
            failure.partial.timestamp = at.unix_millis();
            Err(failure)
        }
    }
}

fn caller(request: &ChatRequest) -> Caller {
    Caller {
        agent: request.agent.clone(),
        session: request.session_key.as_deref().map(session_ref),
        claimed_session: None,
        model: Some(request.model.to_string()),
    }
}

/// The `beige` fields that this provider wrote into answers, each once.
fn marks_of(messages: &[Message], provider: &str) -> Vec<Value> {
    let mut marks: Vec<Value> = Vec::new();
    for message in messages {
        if let Message::Assistant(answer) = message
            && answer.provider == provider
            && let Some(mark) = answer.beige.as_ref().filter(|it| !marks.contains(it))
        {
            marks.push(mark.clone());
        }
    }
    marks
}

/// Whether a client sees a part of the answer by it.
fn is_content(delta: &Delta) -> bool {
    match delta {
        Delta::Text(_) | Delta::Thinking(_) | Delta::Redacted(_) | Delta::ToolCall(_) => true,
        Delta::Anew(_)
        | Delta::Signature(_)
        | Delta::Usage(_)
        | Delta::Stop(_)
        | Delta::Mark(_) => false,
    }
}

/// Hears one model call.
struct Ear<'a> {
    watch: &'a mut Watch,
    veil: Veil<'a>,
}

impl Listener<&Delta> for Ear<'_> {
    fn hears(&mut self, delta: &Delta) {
        self.watch.saw(delta);
        self.veil.pass(delta);
    }

    fn waits(&mut self) {
        self.veil.wait();
    }
}
