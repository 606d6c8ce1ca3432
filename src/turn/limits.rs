//! The limits of a turn, looked at before each answer and each call to a model.
//! A call that runs is never cut by them.

use super::TurnEvent;
use super::progress::{Halt, Progress};
use super::taken::Reached;
use crate::config::Price;
use crate::message::{Assistant, Message, StopReason, Usage};
use crate::session::{tokens_of, tokens_of_text};

impl Progress<'_> {
    /// Ends the turn if it may not go on: to be called before each answer that
    /// is asked for.
    pub(super) fn check_limits(&mut self) -> Result<(), Halt> {
        let most = self.turn.limits.max_turns;
        if self.taken.may_answer(most) {
            return Ok(());
        }
        // Its name says something else than "turn" says everywhere else.
        let limit = format!("`limits.maxTurns` is {most} (a model's answers to one prompt)");
        self.end_at(&Reached { category: "max_turns", limit })
    }

    /// Ends the turn if it has taken all that it may: to be called before each
    /// call to a model, whatever it is for.
    pub(super) fn check_spent(&mut self) -> Result<(), Halt> {
        let owed = self.turn.bill.take();
        if owed != Usage::default() {
            self.taken.count(&owed);
            (self.events)(TurnEvent::usage(&owed, false));
        }
        if let Some(reached) = self.taken.reached(&self.turn.limits, self.taken.time()) {
            return self.end_at(&reached);
        }
        self.taken.call();
        Ok(())
    }

    fn end_at(&mut self, reached: &Reached) -> Result<(), Halt> {
        let what = self.taken.told(reached, self.taken.time());
        if !self.half.is_stored {
            self.store_end(StopReason::Error, &what)?;
        }
        Err(Halt::new(reached.category, what))
    }

    /// Counts what a call took, whatever it was for and however it ended.
    pub(super) fn count_call(&mut self, message: &Assistant, price: Option<Price>) {
        let limits = &self.turn.limits;
        let is_limited = limits.max_turn_tokens.is_some() || limits.max_turn_cost.is_some();
        let is_silent = message.usage == Usage::default() && !message.content.is_empty();
        if is_limited && is_silent {
            let read = tokens_of(&self.conversation.session().context());
            let read = read.saturating_add(tokens_of_text(self.turn.system));
            let said = [Message::Assistant(Box::new(message.clone()))];
            self.taken.estimate(read, tokens_of(&said), price);
        } else {
            self.taken.count(&message.usage);
        }
    }
}
