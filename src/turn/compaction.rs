//! Room for a conversation: its older part is replaced by a summary before it
//! is longer than its model reads, and once more when a provider says that it
//! is. Where that is not enough, or not possible, less of it is sent. The file
//! loses nothing by any of it, and every loop here has an end.

use std::borrow::Cow;

use super::event::CompactionReason;
use super::progress::{Halt, Progress};
use super::room::Room;
use super::summary::{self, Material};
use super::{Turn, TurnEvent, Watch, masked};
use crate::clock;
use crate::config::{Api, ModelChoice, ModelFacts, ModelRef};
use crate::message::{Assistant, Message};
use crate::provider::facts::{CONTEXT_WINDOW, MAX_TOKENS};
use crate::provider::{Delta, Fault, Registry, Request};
use crate::session::{Conversation, Mark, shortened, tokens_of, tokens_of_text};
use crate::usage::Role;

/// Tokens of a model's window that are kept free; at most half of it.
const RESERVE: u64 = 16_384;

/// Tokens of the newest part that stay word by word, at most.
const KEEP: u64 = 20_000;

/// Tokens that a summary has at most.
const LONGEST_SUMMARY: u64 = 8_192;

/// How often a summary is asked for that is too long to be made, each time of
/// half as much.
const MOST_SUMMARIES: u32 = 3;

/// How often a call that is too long is made shorter: by a compaction, then by
/// sending half as much, a quarter, and so on.
const MOST_SHRINKS: u32 = 5;

/// Tokens below which less of a conversation makes no sense.
const LEAST_SENT: u64 = 256;

impl Progress<'_> {
    /// Before a model is asked: compacts what would be longer than it should.
    /// Where that comes to nothing the call is made all the same.
    pub(super) fn make_room(&mut self, choice: &ModelChoice) -> Result<(), Halt> {
        self.room.be_of(&choice.model);
        let tokens = self.tokens();
        // Less is sent only where a compaction came to nothing, or to too little.
        let rests = tokens < self.room.rests_until || self.room.most_sent.is_some();
        if tokens <= self.threshold(choice) || rests || self.cancel.is_cancelled() {
            return Ok(());
        }
        self.compact(choice, CompactionReason::Threshold).map(drop)
    }

    /// After a call that a provider refused since the conversation is too long:
    /// makes it shorter. Whether the same call is worth another try; `false`
    /// once all has been tried.
    pub(super) fn make_shorter(&mut self, choice: &ModelChoice) -> Result<bool, Halt> {
        if self.cancel.is_cancelled() {
            return Ok(false);
        }
        self.room.be_of(&choice.model);
        let sent = self.room.most_sent.unwrap_or(u64::MAX).min(self.tokens());
        let least = self.room.too_long_at.unwrap_or(u64::MAX).min(sent);
        self.room.too_long_at = Some(least);
        self.room.shrinks += 1;
        if self.room.shrinks > MOST_SHRINKS {
            return Ok(false);
        }
        // Not again where there was no summary to be had a moment ago.
        let may_compact = self.room.shrinks == 1 && self.tokens() >= self.room.rests_until;
        if may_compact
            && self.room.most_sent.is_none()
            && self.compact(choice, CompactionReason::TooLong)?
        {
            return Ok(true);
        }
        Ok(self.send_less(sent / 2))
    }

    /// Compacts the conversation whether or not it is long.
    pub(super) fn compact_as_asked(&mut self) -> Result<(), Halt> {
        let now = clock::now();
        self.conversation.close_open_calls(now)?;
        let choice = self.turn.choices[0];
        self.room.be_of(&choice.model);
        self.compact(choice, CompactionReason::Asked).map(drop)
    }

    /// From here on so many tokens are sent at most, or as many fewer as make a
    /// difference; `false` if none do, since the same call would fail again.
    fn send_less(&mut self, mut most: u64) -> bool {
        let (before, reason) = (self.tokens(), CompactionReason::TooLong);
        let now = tokens_of(&sent(self.turn, self.conversation, &self.room));
        let room = |most| Room { most_sent: Some(most), ..Room::default() };
        while tokens_of(&sent(self.turn, self.conversation, &room(most))) >= now {
            most /= 2;
            if most < LEAST_SENT {
                return false;
            }
        }
        let name = self.turn.session_key;
        log::warn!("the session `{name}` is too long for its model: {most} tokens of it are sent");
        (self.events)(TurnEvent::CompactionStart { reason, tokens_before: before });
        self.room.most_sent = Some(most);
        let why = "less of the conversation is sent in this turn; all of it stays in the session";
        self.tell_compaction(before, Some(why.to_owned()));
        true
    }

    /// Replaces the older part by a summary; whether it did. What keeps it from
    /// that is told, and is no failure of the turn, unless it was called off.
    fn compact(&mut self, choice: &ModelChoice, reason: CompactionReason) -> Result<bool, Halt> {
        let before = self.tokens();
        let keep = self.keep(choice, reason);
        let split = self.conversation.session().split(keep, beside(self.turn));
        let material = split.map(|it| Material::of(&it));
        if material.is_none() && reason != CompactionReason::Asked {
            return Ok(false);
        }
        (self.events)(TurnEvent::CompactionStart { reason, tokens_before: before });
        let written = match &material {
            Some(material) => self.summarise(choice, material)?,
            None => Err("there is nothing in it that a summary could stand for".into()),
        };
        let failure = match (written, material) {
            (Ok(Written { summary, mark }), Some(Material { first_kept, .. })) => {
                let now = clock::now();
                self.conversation.compact(summary, first_kept, before, mark, now)?;
                None
            }
            (Err(why), _) => Some(why),
            (Ok(_), None) => None,
        };
        let has_compacted = failure.is_none();
        self.tell_compaction(before, failure);
        let (tokens, threshold) = (self.tokens(), self.threshold(choice));
        if !has_compacted || tokens > threshold {
            self.room.rests_until = tokens.saturating_add(threshold / 8);
        }
        match self.cancel.is_cancelled() {
            true if reason == CompactionReason::Asked => Err(Halt::from(Fault::Cancelled)),
            true => self.stop(Fault::Cancelled).map(|()| false),
            false => Ok(has_compacted),
        }
    }

    fn tell_compaction(&mut self, tokens_before: u64, failure: Option<String>) {
        if let Some(why) = &failure {
            log::info!("the session `{}` was not compacted: {why}", self.turn.session_key);
        }
        let (compacted, tokens_after) = (failure.is_none(), self.tokens());
        let reason = failure;
        (self.events)(TurnEvent::CompactionEnd { compacted, tokens_before, tokens_after, reason });
    }

    /// The summary, or why there is none. It is asked for again only where
    /// what it is made of is too long by itself.
    fn summarise(
        &mut self,
        choice: &ModelChoice,
        material: &Material,
    ) -> Result<Result<Written, String>, Halt> {
        let facts = self.turn.providers.facts(&choice.model);
        let threshold = self.threshold(choice);
        let longest = longest_summary(&facts, threshold);
        // Of text that is no plain English fewer bytes make a token.
        let room = threshold.saturating_sub(longest).max(LEAST_SENT).saturating_mul(3);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let mut room = room.min(material.message(usize::MAX).len());
        for _ in 0..MOST_SUMMARIES {
            match self.ask_for_summary(choice, &facts, material.message(room), longest)? {
                Ok(answer) => return Ok(self.written(material, *answer)),
                Err(Fault::TooLong(_)) => room /= 2,
                Err(fault) => return Ok(Err(fault.to_string())),
            }
        }
        Ok(Err("what it is to be made of is too long for the model, also in part".into()))
    }

    fn written(&self, material: &Material, answer: Assistant) -> Result<Written, String> {
        let said = masked::text(answer.text(), self.turn.redactor);
        let mark = answer.beige.map(|beige| Mark { provider: answer.provider, beige });
        material.summary(&said).map(|summary| Written { summary, mark })
    }

    /// One model call, which no tool and no wish to think is given to.
    fn ask_for_summary(
        &mut self,
        choice: &ModelChoice,
        facts: &ModelFacts,
        message: String,
        longest: u64,
    ) -> Result<Result<Box<Assistant>, Fault>, Halt> {
        self.check_spent()?;
        let told = self.turn.hands.model_call_begins(&choice.model)?;
        let messages = [Message::user(message, clock::now())];
        let marks = self.marks_of(&choice.model);
        let request = Request {
            system: summary::SYSTEM,
            max_tokens: Some(longest),
            marks: &marks,
            ..Request::new(&choice.model, facts, &messages)
        };
        let inactivity = self.turn.limits.inactivity;
        let mut watch = Watch::start();
        let mut saw = |delta: &Delta| watch.saw(delta);
        let called = self.turn.providers.call(&request, inactivity, self.cancel, &mut saw);
        told(watch.ended(&called, Role::Compaction));
        Ok(match called {
            Ok(answer) => {
                self.count_call(&answer.message, facts.cost);
                (self.events)(TurnEvent::usage(&answer.message.usage, facts.cost.is_some()));
                Ok(Box::new(answer.message))
            }
            Err(failure) => {
                self.count_call(&failure.partial, facts.cost);
                Err(failure.fault)
            }
        })
    }

    /// Tokens of the context, all of it.
    fn tokens(&self) -> u64 {
        self.conversation.session().tokens(beside(self.turn))
    }

    /// Tokens from which on the conversation is compacted.
    fn threshold(&self, choice: &ModelChoice) -> u64 {
        let window = window(self.turn.providers, &choice.model);
        threshold(window, choice.compaction_threshold, self.room.too_long_at)
    }

    /// Tokens that stay word by word. Who asks for a compaction wants one, also
    /// of a conversation that is short.
    fn keep(&self, choice: &ModelChoice, reason: CompactionReason) -> u64 {
        let room = self.threshold(choice).saturating_sub(beside(self.turn));
        let keep = KEEP.min(room / 3);
        match reason {
            CompactionReason::Asked => {
                keep.min(self.tokens().saturating_sub(beside(self.turn)) / 2)
            }
            CompactionReason::Threshold | CompactionReason::TooLong => keep,
        }
    }
}

/// The conversation as it is sent.
pub(super) fn sent<'a>(
    turn: &Turn<'_>,
    conversation: &'a Conversation,
    room: &Room,
) -> Cow<'a, [Message]> {
    let session = conversation.session();
    let all = session.context();
    let Some(most) = room.most_sent else { return all };
    let most = most.saturating_sub(beside(turn)).max(LEAST_SENT);
    Cow::Owned(shortened(&all, session.summaries(), most))
}

/// Tokens of what is sent beside the conversation.
fn beside(turn: &Turn<'_>) -> u64 {
    let tools = turn.tools.iter().map(|it| {
        let parameters = tokens_of_text(&it.parameters.to_string());
        tokens_of_text(&it.name) + tokens_of_text(&it.description) + parameters
    });
    tokens_of_text(turn.system) + tools.sum::<u64>()
}

/// A summary that is worth its place.
struct Written {
    summary: String,
    mark: Option<Mark>,
}

/// Tokens from which on a conversation with that model is compacted, unless it
/// shows that it reads fewer; `None` of one that reads any number.
pub fn compaction_threshold(providers: &Registry, choice: &ModelChoice) -> Option<u64> {
    let window = window(providers, &choice.model);
    let threshold = threshold(window, choice.compaction_threshold, None);
    (window < u64::MAX).then_some(threshold)
}

/// Tokens that a model reads. A cassette reads nothing, so that nothing is too
/// long for it.
fn window(providers: &Registry, model: &ModelRef) -> u64 {
    let is_played = providers.api_name(model) == Api::Replay.name();
    let assumed = if is_played { u64::MAX } else { CONTEXT_WINDOW };
    providers.facts(model).context_window.unwrap_or(assumed)
}

/// Tokens from which on a conversation is compacted: what a person said, else
/// the model's window but for a reserve; always less than what was too long.
fn threshold(window: u64, said: Option<u64>, too_long_at: Option<u64>) -> u64 {
    let own = window.saturating_sub(RESERVE).max(window / 2);
    let threshold = said.map_or(own, |it| it.min(window));
    too_long_at.map_or(threshold, |it| threshold.min(it / 4 * 3))
}

/// Tokens that a summary may have, so that it and what stays leave room.
fn longest_summary(facts: &ModelFacts, threshold: u64) -> u64 {
    let most = facts.output_limit().unwrap_or(MAX_TOKENS).min(LONGEST_SUMMARY);
    most.min(threshold / 4).max(LEAST_SENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(window: u64, said: Option<u64>, too_long_at: Option<u64>, want: u64) {
        assert_eq!(threshold(window, said, too_long_at), want);
    }

    #[test]
    fn the_threshold_leaves_room_in_every_window() {
        check(CONTEXT_WINDOW, None, None, 128_000 - 16_384);
        check(200_000, None, None, 200_000 - 16_384);
        check(32_768, None, None, 16_384);
        check(8_000, None, None, 4_000);
        check(0, None, None, 0);
        check(200_000, Some(50_000), None, 50_000);
        check(200_000, Some(1_000_000), None, 200_000);
        check(200_000, Some(50_000), Some(1_000), 750);
        check(CONTEXT_WINDOW, None, Some(1_000_000), 128_000 - 16_384);
    }

    #[test]
    fn a_summary_is_a_part_of_what_it_makes_room_for() {
        let facts = |max_tokens| ModelFacts { max_tokens, ..ModelFacts::default() };
        assert_eq!(longest_summary(&facts(None), 111_616), 8_192);
        assert_eq!(longest_summary(&facts(Some(64_000)), 111_616), 8_192);
        assert_eq!(longest_summary(&facts(Some(2_000)), 111_616), 2_000);
        assert_eq!(longest_summary(&facts(None), 4_000), 1_000);
        assert_eq!(longest_summary(&facts(None), 0), 256);
    }
}
