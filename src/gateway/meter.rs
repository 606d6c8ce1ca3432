//! What has been counted since the gateway started: turns by how they ended,
//! model calls by provider. Names come from a closed set and from the
//! configuration, so the tables do not grow with time.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::ModelRef;
use crate::turn::{ModelCallEnd, TurnEvent};

/// The counters.
#[derive(Debug, Default)]
pub(super) struct Meter(Mutex<Counted>);

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Turns that have ended, by `done`, `blocked` or an error's category.
    pub turns: BTreeMap<&'static str, u64>,
    /// Model calls that have ended, by provider.
    pub providers: BTreeMap<String, ModelCalls>,
}

/// The calls to one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCalls {
    /// All of them.
    pub calls: u64,
    /// Those without a whole answer, by category.
    pub failures: BTreeMap<&'static str, u64>,
    /// Tokens read anew.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_write: u64,
}

impl Meter {
    /// Counts a turn by its last event.
    pub(super) fn turn_ended(&self, last: &TurnEvent) {
        let outcome = match last {
            TurnEvent::Done { .. } => "done",
            TurnEvent::Blocked { .. } => "blocked",
            TurnEvent::Error { category, .. } => category,
            _ => return,
        };
        *self.counted().turns.entry(outcome).or_default() += 1;
    }

    /// Counts a model call.
    pub(super) fn model_call_ended(&self, model: &ModelRef, end: &ModelCallEnd) {
        let mut counted = self.counted();
        let calls = counted.providers.entry(model.provider.clone()).or_default();
        calls.calls += 1;
        if let Some(fault) = &end.fault {
            *calls.failures.entry(fault.category()).or_default() += 1;
        }
        let usage = &end.usage;
        for (sum, more) in [
            (&mut calls.input, usage.input),
            (&mut calls.output, usage.output),
            (&mut calls.cache_read, usage.cache_read),
            (&mut calls.cache_write, usage.cache_write),
        ] {
            // What a provider says of itself may be any number.
            *sum = sum.saturating_add(more);
        }
    }

    /// What was counted so far.
    pub(super) fn read(&self) -> Counted {
        self.counted().clone()
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Usage;
    use crate::provider::Fault;

    #[test]
    fn calls_and_turns_are_counted_by_how_they_ended() {
        let meter = Meter::default();
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let usage = Usage { input: u64::MAX, output: 2, ..Usage::default() };
        let sound = ModelCallEnd { output_bytes: 1, usage, ..ModelCallEnd::default() };
        let failed = ModelCallEnd { fault: Some(Fault::Cut("cut".into())), ..sound.clone() };
        meter.model_call_ended(&model, &sound);
        meter.model_call_ended(&model, &failed);
        meter.turn_ended(&TurnEvent::Done { response: String::new(), note: None });
        meter.turn_ended(&TurnEvent::TurnStart { session_key: String::new() });
        let calls = ModelCalls {
            calls: 2,
            failures: BTreeMap::from([("cut", 1)]),
            input: u64::MAX,
            output: 4,
            ..ModelCalls::default()
        };
        let want = Counted {
            turns: BTreeMap::from([("done", 1)]),
            providers: BTreeMap::from([("p".into(), calls)]),
        };
        assert_eq!(meter.read(), want);
    }
}
