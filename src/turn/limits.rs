//! What a turn has taken so far, held against what it may take, before each
//! call to a model. A call that runs is never cut by these limits.

use std::time::{Duration, Instant};

use super::progress::{Halt, Progress};
use crate::config::{Limits, Price};
use crate::message::{Assistant, Message, StopReason, Usage};
use crate::session::{tokens_of, tokens_of_text};

/// What a turn has taken.
pub(super) struct Taken {
    /// Waiting for a model, its retries and its tools are the turn's time too.
    begun: Instant,
    /// Answers that were asked for.
    answers: u32,
    /// Calls to models, retries and fallbacks included.
    calls: u32,
    tokens: u64,
    /// US dollars, as far as they are known.
    cost: f64,
}

/// A limit that was reached.
#[derive(Debug, PartialEq, Eq)]
struct Reached {
    category: &'static str,
    /// The setting, and what it is set to.
    limit: String,
}

impl Progress<'_> {
    /// Ends the turn if it may not go on: to be called before each answer that
    /// is asked for.
    pub(super) fn check_limits(&mut self) -> Result<(), Halt> {
        let most = self.turn.limits.max_turns;
        if self.taken.answers >= most {
            let limit = format!("`limits.maxTurns` is {most}");
            return self.end_at(&Reached { category: "max_turns", limit });
        }
        self.taken.answers = self.taken.answers.saturating_add(1);
        Ok(())
    }

    /// Ends the turn if it has taken all that it may: to be called before each
    /// call to a model, whatever it is for.
    pub(super) fn check_spent(&mut self) -> Result<(), Halt> {
        if let Some(reached) = self.taken.reached(&self.turn.limits, self.taken.begun.elapsed()) {
            return self.end_at(&reached);
        }
        self.taken.calls = self.taken.calls.saturating_add(1);
        Ok(())
    }

    fn end_at(&mut self, reached: &Reached) -> Result<(), Halt> {
        let what = self.taken.told(reached, self.taken.begun.elapsed());
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

impl Taken {
    /// Nothing, from now on.
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), answers: 0, calls: 0, tokens: 0, cost: 0.0 }
    }

    fn count(&mut self, usage: &Usage) {
        let kinds = [usage.input, usage.output, usage.cache_read, usage.cache_write];
        // What a provider says of itself may be any number.
        self.tokens = kinds.into_iter().fold(self.tokens, u64::saturating_add);
        self.cost += usage.cost.total.max(0.0);
    }

    fn estimate(&mut self, input: u64, output: u64, price: Option<Price>) {
        self.count(&Usage { input, output, ..Usage::default() });
        if let Some(price) = price.map(|it| it.for_prompt(input)) {
            self.cost += (input as f64 * price.input + output as f64 * price.output) / 1e6;
        }
    }

    fn reached(&self, limits: &Limits, elapsed: Duration) -> Option<Reached> {
        if let Some(most) = limits.max_turn_time.filter(|it| elapsed >= *it) {
            let limit = format!("`limits.maxTurnSeconds` is {}", most.as_secs_f64());
            return Some(Reached { category: "max_seconds", limit });
        }
        if let Some(most) = limits.max_turn_tokens.filter(|it| self.tokens >= *it) {
            let limit = format!("`limits.maxTurnTokens` is {most}");
            return Some(Reached { category: "max_tokens", limit });
        }
        let most = limits.max_turn_cost.filter(|it| self.cost >= *it)?;
        let limit = format!("`limits.maxTurnCostUsd` is {most}");
        Some(Reached { category: "max_cost", limit })
    }

    fn told(&self, reached: &Reached, elapsed: Duration) -> String {
        let calls = if self.calls == 1 { "model call" } else { "model calls" };
        let cost = match self.cost > 0.0 {
            true => format!(", about ${:.4}", self.cost),
            false => String::new(),
        };
        format!(
            "the turn was ended after {} {calls}, {:.1} s, {} tokens{cost}, since {}; what was \
             done so far stays in the session, and another prompt goes on from there",
            self.calls,
            elapsed.as_secs_f64(),
            self.tokens,
            reached.limit,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Cost;

    fn limits() -> Limits {
        Limits {
            max_turns: 3,
            max_turn_time: None,
            max_turn_tokens: None,
            max_turn_cost: None,
            max_tool_output_bytes: 1,
            exec_timeout: Duration::ZERO,
            http_exec_timeout: Duration::ZERO,
            inactivity: Duration::from_secs(600),
        }
    }

    fn taken(calls: u32, tokens: u64, cost: f64) -> Taken {
        Taken { calls, tokens, cost, ..Taken::new() }
    }

    #[track_caller]
    fn check(taken: &Taken, limits: &Limits, seconds: u64, want: Option<&str>) {
        let reached = taken.reached(limits, Duration::from_secs(seconds));
        assert_eq!(reached.map(|it| it.category), want);
    }

    #[test]
    fn without_limits_none_is_reached() {
        check(&taken(9, u64::MAX, 1e9), &limits(), 1_000_000, None);
    }

    #[test]
    fn each_limit_is_reached_at_its_very_number() {
        let time = Limits { max_turn_time: Some(Duration::from_secs(60)), ..limits() };
        check(&taken(0, 0, 0.0), &time, 59, None);
        check(&taken(0, 0, 0.0), &time, 60, Some("max_seconds"));
        let tokens = Limits { max_turn_tokens: Some(100), ..limits() };
        check(&taken(0, 99, 0.0), &tokens, 0, None);
        check(&taken(0, 100, 0.0), &tokens, 0, Some("max_tokens"));
        let cost = Limits { max_turn_cost: Some(0.5), ..limits() };
        check(&taken(0, 0, 0.49), &cost, 0, None);
        check(&taken(0, 0, 0.5), &cost, 0, Some("max_cost"));
    }

    #[test]
    fn tokens_of_all_kinds_count() {
        let mut taken = taken(0, 0, 0.0);
        let cost = Cost { total: 0.25, ..Cost::default() };
        let usage =
            Usage { input: 1, output: 2, cache_read: 4, cache_write: 8, cost, ..Usage::default() };
        taken.count(&usage);
        taken.count(&usage);
        assert_eq!((taken.tokens, taken.cost), (30, 0.5));
        taken.count(&Usage { input: u64::MAX, ..Usage::default() });
        assert_eq!(taken.tokens, u64::MAX);
    }

    #[test]
    fn what_is_told_names_the_limit_and_what_was_taken() {
        let limits = Limits { max_turn_cost: Some(0.5), ..limits() };
        let taken = taken(1, 1234, 0.75);
        let elapsed = Duration::from_millis(2_340);
        let told = taken.reached(&limits, elapsed).map(|it| taken.told(&it, elapsed));
        let told = told.unwrap_or_default();
        let want = "the turn was ended after 1 model call, 2.3 s, 1234 tokens, about $0.7500, \
                    since `limits.maxTurnCostUsd` is 0.5; ";
        assert!(told.starts_with(want), "{told}");
        assert!(told.ends_with("another prompt goes on from there"), "{told}");
    }
}
