//! What can be said of the providers of a configuration before anything is
//! asked: what keeps a call from being answered, and a limit from being kept, and
//! what was said of a model to no effect.

use std::collections::{BTreeMap, BTreeSet};

use super::tape::Tape;
use super::{Entry, Registry, catalog, http, record};
use crate::config::{
    Agent, Api, Findings, KeyPath, ModelChoice, ModelRef, Reach, ThinkingLevel, nearest,
};

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

    /// Warns of what is said of models and counts for none: how hard one thinks
    /// that is not known to think, and facts of one that nobody asks for, while
    /// there are none of one that is called almost alike.
    pub fn examine_models(&self, agents: &BTreeMap<String, Agent>, findings: &mut Findings) {
        for agent in agents.values() {
            let place = KeyPath::from(["agents", &agent.name]);
            self.examine_thinking(&agent.primary, &place.key("model"), findings);
            for (number, choice) in agent.fallbacks.iter().enumerate() {
                let place = place.key("fallbackModels").index(number);
                self.examine_thinking(choice, &place, findings);
            }
        }
        for (name, entry) in &self.providers {
            let choices = agents.values().flat_map(Agent::choices).map(|it| &it.model);
            let asked = choices.filter(|it| it.provider == *name).map(|it| it.model.as_str());
            self.examine_facts(name, entry, &asked.collect(), findings);
        }
    }

    /// The other protocols tell also a model that nobody knows how hard to think.
    fn examine_thinking(&self, choice: &ModelChoice, place: &KeyPath, findings: &mut Findings) {
        let ModelChoice { model, thinking, .. } = choice;
        let api = self.providers.get(&model.provider).map(|it| it.api);
        let is_told = api != Some(Api::OpenAiCompletions)
            || *thinking == ThinkingLevel::Off
            || self.facts(model).reasoning == Some(true);
        if !is_told {
            findings.warn(&place.key("thinkingLevel"), thoughtless(model));
        }
    }

    fn examine_facts(
        &self,
        provider: &str,
        entry: &Entry,
        asked: &BTreeSet<&str>,
        findings: &mut Findings,
    ) {
        let is_known = |id: &str| self.is_well_known(provider, id);
        for id in entry.models.keys().filter(|it| !asked.contains(it.as_str())) {
            // Of two well-known models none is a slip for the other.
            let is_settled =
                |it: &str| entry.models.contains_key(it) || is_known(it) && is_known(id);
            let unsettled = asked.iter().copied().filter(|it| !is_settled(it));
            if let Some(meant) = nearest(id, unsettled) {
                let place = KeyPath::from(["llm", "providers", provider, "models", id]);
                findings.warn(&place, unasked(provider, id, meant));
            }
        }
    }

    fn is_well_known(&self, provider: &str, id: &str) -> bool {
        let model = ModelRef { provider: provider.to_owned(), model: id.to_owned() };
        catalog::known(self.endpoint(&model), id).reasoning.is_some()
    }
}

fn thoughtless(model: &ModelRef) -> String {
    let ModelRef { provider, model } = model;
    format!(
        "`{provider}/{model}` is not known to think, so that it is told nothing of this; say \
         llm.providers.{provider}.models.{model:?}.reasoning: true if it does, or leave this out"
    )
}

fn unasked(provider: &str, id: &str, meant: &str) -> String {
    format!(
        "no agent asks `{provider}` for `{id}`, so that this counts for none; did you mean \
         `{meant}`, which an agent asks it for and nothing is said of?"
    )
}

fn unpriced(model: &ModelRef) -> String {
    let ModelRef { provider, model } = model;
    format!(
        "the price of `{provider}/{model}` is not known, so that this limit could not be kept; say \
         llm.providers.{provider}.models.{model:?}.cost: {{ input: …, output: … }} in US dollars a \
         million tokens (0 if it costs nothing), or leave the limit out"
    )
}
