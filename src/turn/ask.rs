//! One model call of a turn: what is asked, what is told of the answer while it
//! comes, and how it is stored.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::progress::{Halt, Progress};
use super::{ModelCallEnd, TurnEvent};
use crate::clock;
use crate::message::{Assistant, Message, StopReason, Usage};
use crate::provider::{Answer, Delta, Failure, Request};
use crate::usage::Role;

/// How much of what was said is kept beside the last answer, in bytes, for the
/// event that tells of a failed turn; all of it is in the session.
const MOST_SAID: usize = 1024 * 1024;

impl Progress<'_> {
    /// One model call; its answer is stored, also a half one.
    pub(super) fn ask(&mut self) -> Result<Answer, Halt> {
        (self.events)(TurnEvent::TurnStart { session_key: self.turn.session_key.to_owned() });
        let told = self.turn.hands.model_call_begins(self.turn.first_choice())?;
        let mut watch = Watch::start();
        let called = self.call_model(&mut watch);
        told(end_of(&called, &watch));
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

    pub(super) fn call_model(&mut self, watch: &mut Watch) -> Result<Answer, Box<Failure>> {
        let session = self.conversation.session();
        let messages = session.context();
        let marks =
            session.marks().iter().filter(|it| it.provider == self.turn.first_choice().provider);
        let marks: Vec<Value> = marks.map(|it| it.beige.clone()).collect();
        let facts = self.turn.providers.facts(self.turn.first_choice());
        let request = Request {
            system: self.turn.system,
            tools: self.turn.tools,
            thinking: self.turn.choices[0].thinking,
            marks: &marks,
            ..Request::new(self.turn.first_choice(), &facts, &messages)
        };
        let events = &mut self.events;
        let inactivity = self.turn.limits.inactivity;
        self.turn.providers.call(&request, inactivity, self.cancel, &mut |delta| {
            watch.saw(delta);
            match delta {
                Delta::Text(it) => events(TurnEvent::TextDelta { delta: it.clone() }),
                Delta::Thinking(it) => events(TurnEvent::ThinkingDelta { delta: it.clone() }),
                _ => (),
            }
        })
    }

    pub(super) fn store_answer(&mut self, message: Assistant) -> Result<(), Halt> {
        let text = message.text();
        let price = self.turn.providers.facts(self.turn.first_choice()).cost;
        self.count_call(&message, price);
        // Of a call that failed before anything came there is nothing to tell.
        let has_failed = matches!(message.stop_reason, StopReason::Error | StopReason::Aborted);
        let is_nothing = message.content.is_empty() && message.usage == Usage::default();
        let is_told = !(has_failed && is_nothing);
        let usage = usage_event(&message.usage, price.is_some());
        self.store(Message::Assistant(Box::new(message)), clock::now())?;
        self.keep_said(text);
        if is_told {
            (self.events)(usage);
        }
        Ok(())
    }

    /// Keeps the newest of what was said, for a turn that fails.
    pub(super) fn keep_said(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        while self.said.iter().map(String::len).sum::<usize>() > MOST_SAID {
            self.said.pop_front();
        }
        self.said.push_back(text);
    }
}

/// How long a call takes.
pub(super) struct Watch {
    begun: Instant,
    first: Option<Duration>,
}

impl Watch {
    fn start() -> Self {
        Self { begun: Instant::now(), first: None }
    }

    /// Notes the first that a model says; figures and marks are not said.
    fn saw(&mut self, delta: &Delta) {
        let is_said = !matches!(delta, Delta::Usage(_) | Delta::Stop(_) | Delta::Mark(_));
        if is_said && self.first.is_none() {
            self.first = Some(self.begun.elapsed());
        }
    }
}

fn end_of(called: &Result<Answer, Box<Failure>>, watch: &Watch) -> ModelCallEnd {
    let (message, fault) = match called {
        Ok(answer) => (&answer.message, None),
        Err(failure) => (&failure.partial, Some(failure.fault.clone())),
    };
    ModelCallEnd {
        output_bytes: message.text().len() as u64,
        usage: message.usage.clone(),
        fault,
        role: Role::Main,
        duration: watch.begun.elapsed(),
        first_token: watch.first,
    }
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
