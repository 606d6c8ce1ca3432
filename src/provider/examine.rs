//! What can be said of the providers of a configuration before anything is
//! asked: what keeps a call from being answered, and a limit from being kept.

use super::tape::Tape;
use super::{Registry, http, record};
use crate::config::{Agent, Findings, KeyPath, ModelRef, Reach};

impl Registry {
    /// Adds everything that keeps a call from being answered, as far as it can
    /// be seen without one.
    pub fn examine(&self, findings: &mut Findings) {
        for (name, entry) in &self.providers {
            let place = |setting| KeyPath::from(["llm", "providers", name, setting]);
            if let Some(what) = entry.record.as_deref().and_then(record::obstacle) {
                findings.error(&place("cassette"), what);
            }
            match &entry.reach {
                Reach::Cassette(path) => {
                    let tape = Tape::new(name, Some(path.clone()));
                    tape.check(&mut |what| findings.error(&place("cassette"), what));
                }
                Reach::Endpoint(endpoint) => {
                    let read = endpoint.ca_file.as_deref().map(http::certificates);
                    if let Some(Err(what)) = read {
                        findings.error(&place("caFile"), what);
                    }
                }
            }
        }
    }

    /// Adds each limit on costs that could not be kept, since the price of a
    /// model of its agent is not known.
    pub fn examine_costs<'a>(
        &self,
        agents: impl Iterator<Item = &'a Agent>,
        findings: &mut Findings,
    ) {
        for agent in agents.filter(|it| it.limits.max_turn_cost.is_some()) {
            let place = KeyPath::from(["agents", &agent.name, "limits", "maxTurnCostUsd"]);
            for choice in agent.choices().filter(|it| self.facts(&it.model).cost.is_none()) {
                findings.error(&place, unpriced(&choice.model));
            }
        }
    }
}

fn unpriced(model: &ModelRef) -> String {
    let ModelRef { provider, model } = model;
    format!(
        "the price of `{provider}/{model}` is not known, so that this limit could not be kept; say \
         llm.providers.{provider}.models.{model:?}.cost: {{ input: …, output: … }} in US dollars a \
         million tokens (0 if it costs nothing), or leave the limit out"
    )
}
