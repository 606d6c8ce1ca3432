//! One answer of a turn: what is asked of which model, what is told of the
//! answer while it comes, and how it and what failed before it are stored.

use serde_json::Value;

use super::compaction::sent;
use super::progress::{Half, Halt, Progress};
use super::{TurnEvent, Watch, cut};
use crate::clock;
use crate::config::{ModelChoice, ModelRef};
use crate::message::{Assistant, Message, StopReason, Usage};
use crate::plugin::hooks::ModelSwitch;
use crate::provider::chain::{Attempt, Chain, End, Retry, Steps, Switch};
use crate::provider::{Answer, Delta, Failure, Fault, Request};
use crate::usage::Role;

/// How much of what was said is kept beside the last answer, in bytes, for the
/// event that tells of a failed turn; all of it is in the session.
const MOST_SAID: usize = 1024 * 1024;

impl Progress<'_> {
    /// One answer, by whichever model gives it. It is stored, and before it
    /// what came of those that failed.
    pub(super) fn ask(&mut self) -> Result<Answer, Halt> {
        self.large = None;
        (self.events)(TurnEvent::TurnStart { session_key: self.turn.session_key.to_owned() });
        let (turn, cancel) = (self.turn, self.cancel);
        let mut chain = self.chain.take().unwrap_or_else(|| Chain::new(turn.choices, turn.health));
        let answered = chain.answer(self, cancel);
        self.chain = Some(chain);
        let exhausted = match answered {
            Ok(answer) => return Ok(answer),
            Err(End::Halted(halt)) => return Err(halt),
            Err(End::Failed(fault)) => return Err(Halt::from(fault)),
            Err(End::CalledOff) => return self.stop(Fault::Cancelled),
            Err(End::Exhausted(it)) => it,
        };
        let what = self.with_cut(exhausted.told(turn.agent));
        if !self.half.is_stored {
            self.store_end(StopReason::Error, &what)?;
        }
        Err(Halt::new(exhausted.category, what))
    }

    /// Asks that model; `is_seen` is set once something of its answer is told.
    pub(super) fn call_model(
        &mut self,
        choice: &ModelChoice,
        watch: &mut Watch,
        is_seen: &mut bool,
    ) -> Result<Answer, Box<Failure>> {
        let marks = self.marks_of(&choice.model);
        let messages = sent(self.turn, self.conversation, &self.room);
        let facts = self.turn.providers.facts(&choice.model);
        let request = Request {
            system: self.turn.system,
            tools: self.turn.tools,
            thinking: choice.thinking,
            max_tokens: self.cut_after.map(|it| cut::room(it, &facts)),
            marks: &marks,
            ..Request::new(&choice.model, &facts, without_halves(&messages))
        };
        let events = &mut self.events;
        let inactivity = self.turn.limits.inactivity;
        self.turn.providers.call(&request, inactivity, self.cancel, &mut |delta: &Delta| {
            watch.saw(delta);
            let event = match delta {
                Delta::Text(it) => TurnEvent::TextDelta { delta: it.clone() },
                Delta::Thinking(it) => TurnEvent::ThinkingDelta { delta: it.clone() },
                _ => return,
            };
            *is_seen = true;
            events(event);
        })
    }

    /// What a provider wrote into its answers in this session.
    pub(super) fn marks_of(&self, model: &ModelRef) -> Vec<Value> {
        let marks = self.conversation.session().marks().iter();
        let of_provider = marks.filter(|it| it.provider == model.provider);
        of_provider.map(|it| it.beige.clone()).collect()
    }

    /// Stores what came of a call that failed, if anything did. The calls that
    /// end the turn are stored in any case.
    fn store_half(&mut self, half: Assistant, fault: &Fault) -> Result<(), Halt> {
        let ends = matches!(fault, Fault::Cancelled | Fault::Inactive(_) | Fault::Ours(_));
        let is_nothing =
            half.content.is_empty() && half.usage == Usage::default() && half.beige.is_none();
        self.half.is_stored = ends || !is_nothing;
        if !self.half.is_stored {
            return Ok(());
        }
        let is_said = !half.text().is_empty();
        self.store_answer(half)?;
        self.half = Half { is_said: self.half.is_said || is_said, is_stored: true };
        Ok(())
    }

    pub(super) fn store_answer(&mut self, message: Assistant) -> Result<(), Halt> {
        let price = self.turn.providers.facts(&self.asked.model).cost;
        self.count_call(&message, price);
        // Of a call that failed before anything came there is nothing to tell.
        let has_failed = matches!(message.stop_reason, StopReason::Error | StopReason::Aborted);
        let is_nothing = message.content.is_empty() && message.usage == Usage::default();
        let is_told = !(has_failed && is_nothing);
        let usage = TurnEvent::usage(&message.usage, price.is_some());
        let (has_text, masked) = (!message.text().is_empty(), self.masks.answer(message));
        let text = masked.text();
        self.store_masked(Message::Assistant(Box::new(masked)), clock::now())?;
        if has_text {
            self.keep_said(text);
        }
        if is_told {
            (self.events)(usage);
        }
        Ok(())
    }

    /// Keeps the newest of what was said, for a turn that fails. What failed
    /// before is said anew by it.
    fn keep_said(&mut self, text: String) {
        if std::mem::take(&mut self.half.is_said) {
            self.said.pop_back();
        }
        while self.said.iter().map(String::len).sum::<usize>() > MOST_SAID {
            self.said.pop_front();
        }
        self.said.push_back(text);
    }
}

impl Steps for Progress<'_> {
    type Halt = Halt;

    fn ask(&mut self, choice: &ModelChoice) -> Result<Attempt, Halt> {
        self.make_room(choice)?;
        self.check_spent()?;
        let told = self.turn.hands.model_call_begins(&choice.model)?;
        self.asked = choice.clone();
        let (mut watch, mut is_seen) = (Watch::start(), false);
        let called = self.call_model(choice, &mut watch, &mut is_seen);
        told(watch.ended(&called, Role::Main));
        match called {
            Ok(answer) => {
                self.room.was_enough();
                self.store_answer(cut::stored(&answer))?;
                self.half = cut::left_of(&answer);
                Ok(Attempt::Answered(answer))
            }
            Err(failure) => {
                let Failure { fault, partial, large: _large } = *failure;
                self.store_half(partial, &fault)?;
                Ok(Attempt::Failed { fault, is_seen })
            }
        }
    }

    fn retries(&mut self, retry: &Retry) {
        (self.events)(TurnEvent::Retry {
            attempt: retry.attempt,
            in_ms: u64::try_from(retry.wait.as_millis()).unwrap_or(u64::MAX),
            reason: retry.reason.clone(),
            model: retry.model.as_ref().map(ToString::to_string),
        });
    }

    fn shrink(&mut self, choice: &ModelChoice, _: u32) -> Result<bool, Halt> {
        self.make_shorter(choice)
    }

    fn falls_back(&mut self, switch: &Switch<'_>) {
        (self.events)(TurnEvent::ModelFallback {
            provider: switch.to.model.provider.clone(),
            model_id: switch.to.model.model.clone(),
            reason: switch.why.to_owned(),
        });
        self.turn.hands.model_switches(&ModelSwitch::of(switch), self.cancel);
    }
}

/// The conversation without what came of calls that failed just now: whoever
/// answers begins anew, and no model need take an answer for the last word.
fn without_halves(messages: &[Message]) -> &[Message] {
    let is_half =
        |it: &Message| matches!(it, Message::Assistant(it) if it.stop_reason == StopReason::Error);
    let whole = messages.iter().rposition(|it| !is_half(it));
    &messages[..whole.map_or(0, |it| it + 1)]
}
