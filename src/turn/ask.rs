//! One model call of a turn: what is asked, what is told of the answer while it
//! comes, and how it is stored.

use serde_json::Value;

use super::compaction::sent;
use super::progress::{Halt, Progress};
use super::{CallRole, ModelCallEnd, TurnEvent};
use crate::clock;
use crate::config::ModelRef;
use crate::message::{Assistant, Message, StopReason, Usage};
use crate::provider::{Answer, Delta, Failure, Request};

/// How much of what was said is kept beside the last answer, in bytes, for the
/// event that tells of a failed turn; all of it is in the session.
const MOST_SAID: usize = 1024 * 1024;

impl Progress<'_> {
    /// One answer of the model; it is stored, also a half one. A conversation
    /// that proves too long is asked about again once it is shorter.
    pub(super) fn ask(&mut self) -> Result<Answer, Halt> {
        let choice = self.turn.choices[0];
        (self.events)(TurnEvent::TurnStart { session_key: self.turn.session_key.to_owned() });
        self.make_room(choice)?;
        loop {
            let told = self.turn.hands.model_call_begins(&choice.model)?;
            let called = self.call_model();
            told(end_of(&called, CallRole::Main));
            let Failure { fault, partial } = match called {
                Ok(answer) => {
                    self.room.was_enough();
                    self.store_answer(answer.message.clone())?;
                    return Ok(answer);
                }
                Err(failure) => *failure,
            };
            if partial.content.is_empty() && self.shrink(choice, &fault)? {
                continue;
            }
            self.store_answer(partial)?;
            return Err(Halt::from(fault));
        }
    }

    /// What a provider wrote into its answers in this session.
    pub(super) fn marks_of(&self, model: &ModelRef) -> Vec<Value> {
        let marks = self.conversation.session().marks().iter();
        let of_provider = marks.filter(|it| it.provider == model.provider);
        of_provider.map(|it| it.beige.clone()).collect()
    }

    pub(super) fn call_model(&mut self) -> Result<Answer, Box<Failure>> {
        let marks = self.marks_of(self.turn.first_choice());
        let messages = sent(self.turn, self.conversation, &self.room);
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
        self.turn.providers.call(&request, inactivity, self.cancel, &mut |delta| match delta {
            Delta::Text(it) => events(TurnEvent::TextDelta { delta: it.clone() }),
            Delta::Thinking(it) => events(TurnEvent::ThinkingDelta { delta: it.clone() }),
            _ => (),
        })
    }

    pub(super) fn store_answer(&mut self, message: Assistant) -> Result<(), Halt> {
        let text = message.text();
        let is_priced = self.turn.providers.facts(self.turn.first_choice()).cost.is_some();
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

pub(super) fn end_of(called: &Result<Answer, Box<Failure>>, role: CallRole) -> ModelCallEnd {
    let (message, fault) = match called {
        Ok(answer) => (&answer.message, None),
        Err(failure) => (&failure.partial, Some(failure.fault.clone())),
    };
    let output_bytes = message.text().len() as u64;
    ModelCallEnd { role, output_bytes, usage: message.usage.clone(), fault }
}

/// A price that nobody knows is not told as nothing.
pub(super) fn usage_event(usage: &Usage, is_priced: bool) -> TurnEvent {
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
