//! A turn on its way: what it has, what is stored on the way, and how it ends.

use std::collections::VecDeque;

use super::repeats::Repeats;
use super::room::Room;
use super::taken::Taken;
use super::{CUT_AT_LIMIT, Turn, TurnEvent, masked};
use crate::clock::{self, Time};
use crate::config::ModelChoice;
use crate::error::{Error, Kind, Result};
use crate::message::{Assistant, Message, StopReason};
use crate::provider::chain::Chain;
use crate::provider::{Fault, LargePlace};
use crate::session::Conversation;
use crate::worker::Cancel;

/// How much a turn may add to its session before the model is asked again, in
/// bytes: all of it is held and sent, and no model reads more.
pub(super) const LARGEST_TURN: u64 = if cfg!(test) { 4 * 1024 * 1024 } else { 64 * 1024 * 1024 };

/// A turn that is running.
pub(super) struct Progress<'a> {
    pub(super) turn: &'a Turn<'a>,
    pub(super) conversation: &'a mut Conversation,
    pub(super) events: &'a mut dyn FnMut(TurnEvent),
    pub(super) cancel: &'a Cancel,
    /// Masks what is stored and what is told at the end, so that both are the same.
    pub(super) masks: masked::Said,
    /// What the model said so far, masked, as far as it is kept.
    pub(super) said: VecDeque<String>,
    /// What the turn has taken so far.
    pub(super) taken: Taken,
    /// The way over the models; not there while an answer is on its way.
    pub(super) chain: Option<Chain<'a>>,
    /// The model that was asked last; the first choice before any was.
    pub(super) asked: ModelChoice,
    /// What is left of a call that failed.
    pub(super) half: Half,
    /// How much of the conversation the model reads, as far as that showed.
    pub(super) room: Room,
    /// What its tools were asked before.
    pub(super) repeats: Repeats,
    /// Tokens after which the last answer was cut in a call, if it was.
    pub(super) cut_after: Option<u64>,
    /// The place of the last answer, if that is large, until the turn has ended or
    /// goes on.
    pub(super) large: Option<LargePlace>,
}

/// What is left of a call that failed, until something whole takes its place.
#[derive(Clone, Copy, Default)]
pub(super) struct Half {
    /// Whether it is the newest of what was said.
    pub(super) is_said: bool,
    /// Whether it is what the session ends with.
    pub(super) is_stored: bool,
}

/// Why a turn ends without an answer.
pub(super) struct Halt {
    category: &'static str,
    error: Error,
}

impl<'a> Progress<'a> {
    pub(super) fn new(
        turn: &'a Turn<'a>,
        conversation: &'a mut Conversation,
        events: &'a mut dyn FnMut(TurnEvent),
        cancel: &'a Cancel,
    ) -> Self {
        let chain = Some(Chain::new(turn.choices, turn.health));
        Self {
            turn,
            conversation,
            events,
            cancel,
            chain,
            masks: masked::Said::new(turn.redactor),
            said: VecDeque::new(),
            taken: Taken::new(),
            asked: turn.choices[0].clone(),
            half: Half::default(),
            room: Room::default(),
            repeats: Repeats::default(),
            cut_after: None,
            large: None,
        }
    }

    /// Takes what a person said meanwhile into the conversation.
    pub(super) fn hear(&mut self, messages: Vec<String>) -> Result<(), Halt> {
        for message in messages {
            let now = clock::now();
            self.conversation.say(Message::user(message, now), now)?;
        }
        Ok(())
    }

    /// The same at the end of a turn that listens no more; the next prompt goes
    /// on with it.
    pub(super) fn keep_unheard(&mut self) -> Result<(), Halt> {
        let unheard = self.turn.steering.close();
        self.hear(unheard)
    }

    /// Waits until all that was stored is on the disk.
    pub(super) fn sync(&self) -> Result<(), Halt> {
        Ok(self.conversation.sync()?)
    }

    /// The turn has become longer than any model reads.
    pub(super) fn end_too_long(&mut self) -> Result<Assistant, Halt> {
        let what = format!(
            "the turn was ended after {} MiB, more than is sent to a model; what was done so far \
             stays in the session, and another prompt goes on from there",
            LARGEST_TURN / 1024 / 1024
        );
        self.store_end(StopReason::Error, &what)?;
        Err(Halt::from(Fault::TooLong(what)))
    }

    /// Ends the turn between two model calls.
    pub(super) fn stop<T>(&mut self, fault: Fault) -> Result<T, Halt> {
        self.store_end(StopReason::Aborted, &fault.to_string())?;
        Err(Halt::from(fault))
    }

    /// An answer without content that says in the file why there is none.
    pub(super) fn store_end(&mut self, stop_reason: StopReason, why: &str) -> Result<(), Halt> {
        let now = clock::now();
        let message = Assistant {
            api: self.turn.providers.api_name(&self.asked.model).into(),
            provider: self.asked.model.provider.clone(),
            model: self.asked.model.model.clone(),
            stop_reason,
            error_message: Some(why.to_owned()),
            timestamp: now.unix_millis(),
            ..Assistant::default()
        };
        self.store(Message::Assistant(Box::new(message)), now)
    }

    pub(super) fn store(&mut self, message: Message, now: Time) -> Result<(), Halt> {
        let masked = self.masks.message(message);
        self.store_masked(masked, now)
    }

    /// Stores what is masked already.
    pub(super) fn store_masked(&mut self, message: Message, now: Time) -> Result<(), Halt> {
        Ok(self.conversation.say(message, now)?)
    }

    /// What the caller gets for that answer: its text as it was told, and as
    /// plugins make it.
    pub(super) fn ending(&self, answer: &Assistant) -> Ending {
        let is_said = !answer.text().is_empty();
        let said = self.said.back().filter(|_| is_said).cloned().unwrap_or_default();
        match self.turn.hands.response(said, self.cancel) {
            Ok(response) => Ending { response, note: note_of(answer).map(str::to_owned) },
            Err(why) => Ending { response: String::new(), note: Some(why) },
        }
    }

    pub(super) fn tell_end(self, outcome: Result<Ending, Halt>) -> Result<String> {
        match outcome {
            Ok(Ending { response, note }) => {
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

/// What the caller gets.
#[derive(Default)]
pub(super) struct Ending {
    response: String,
    /// Why it is empty, or that it is not whole.
    note: Option<String>,
}

/// What a person may not see of an answer.
fn note_of(answer: &Assistant) -> Option<&'static str> {
    match answer.stop_reason {
        StopReason::Length => Some(CUT_AT_LIMIT),
        _ => answer.text().is_empty().then_some("the model answered with no text"),
    }
}

impl Halt {
    /// The turn itself ends, by no fault of a provider or of every one.
    pub(super) fn new(category: &'static str, what: String) -> Self {
        Self { category, error: Error::new(Kind::Internal, what) }
    }
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
