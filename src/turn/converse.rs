//! From the message to the answer: a model is asked, what it calls is run, and
//! it is asked again.

use super::cut;
use super::progress::{Halt, LARGEST_TURN, Progress};
use crate::clock;
use crate::message::{Assistant, Message};

impl Progress<'_> {
    /// The answer to that message.
    pub(super) fn converse(&mut self, message: &str) -> Result<Assistant, Halt> {
        let now = clock::now();
        let before = self.conversation.length();
        self.conversation.close_open_calls(now)?;
        self.conversation.use_model(self.turn.first_choice(), now)?;
        self.conversation.say(Message::user(message, now), now)?;
        loop {
            self.check_limits()?;
            let mut answer = self.ask()?;
            let large = answer.large.take();
            if cut::is_in_call(&answer) {
                self.widen(&answer)?;
                continue;
            }
            self.cut_after = None;
            if answer.message.tool_calls().next().is_some() {
                drop(large);
                self.run_calls(&answer)?;
            } else {
                let heard = self.turn.steering.heard_or_close();
                if heard.is_empty() {
                    self.large = large;
                    return Ok(answer.message);
                }
                self.hear(heard)?;
            }
            if self.conversation.length().saturating_sub(before) > LARGEST_TURN {
                return self.end_too_long();
            }
        }
    }
}
