//! A model as it is told: what a person said of it or what is well known, and
//! for the rest what is assumed of one that nobody knows. The one place that has
//! these defaults.

use serde::Serialize;

use super::{Registry, catalog};
use crate::config::{Api, ModelChoice, ModelFacts, ModelRef, Price};

/// Tokens that a model is taken to read.
pub const CONTEXT_WINDOW: u64 = 128_000;

/// Tokens that a model is taken to write.
pub const MAX_TOKENS: u64 = 8192;

/// A model with all that is known or assumed of it, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCard {
    /// Its id at the provider.
    pub id: String,
    /// Its name for people; the id if it has none.
    pub name: String,
    /// The provider's name.
    pub provider: String,
    /// The provider's wire protocol.
    pub api: &'static str,
    /// Where the provider is; none for one that is played back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Whether it thinks before it speaks.
    pub reasoning: bool,
    /// What it can be shown: `text`, `image`.
    pub input: Vec<&'static str>,
    /// What its tokens cost; `None` if that is not known.
    pub cost: Option<Cost>,
    /// Tokens that it reads at most.
    pub context_window: u64,
    /// Tokens that it writes at most.
    pub max_tokens: u64,
    /// How hard it is told to think.
    pub thinking_level: &'static str,
}

/// US dollars a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Read anew.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Read from the provider's cache.
    pub cache_read: f64,
    /// Written to the provider's cache.
    pub cache_write: f64,
}

impl Registry {
    /// What is known of a model: what a person said of it, and for the rest
    /// what is well known.
    pub fn facts(&self, model: &ModelRef) -> ModelFacts {
        let known = catalog::known(self.endpoint(model), &model.model);
        let said = self.providers.get(&model.provider).and_then(|it| it.models.get(&model.model));
        match said {
            Some(said) => catalog::completed(said, known),
            None => known,
        }
    }

    /// A model as clients see it; `None` if there is no such provider.
    pub fn card(&self, choice: &ModelChoice) -> Option<ModelCard> {
        let entry = self.providers.get(&choice.model.provider)?;
        let base_url = Some(self.endpoint(&choice.model)).filter(|it| !it.is_empty());
        Some(card(choice, entry.api, base_url, &self.facts(&choice.model)))
    }
}

/// What is told of a model, by its facts.
fn card(choice: &ModelChoice, api: Api, base_url: Option<&str>, facts: &ModelFacts) -> ModelCard {
    let images = facts.images.unwrap_or(false);
    let model = &choice.model;
    ModelCard {
        id: model.model.clone(),
        name: facts.name.clone().unwrap_or_else(|| model.model.clone()),
        provider: model.provider.clone(),
        api: api.name(),
        base_url: base_url.map(str::to_owned),
        reasoning: facts.reasoning.unwrap_or(false),
        input: if images { vec!["text", "image"] } else { vec!["text"] },
        cost: facts.cost.map(Cost::from),
        context_window: facts.context_window.unwrap_or(CONTEXT_WINDOW),
        max_tokens: facts.output_limit().unwrap_or(MAX_TOKENS),
        thinking_level: choice.thinking.name(),
    }
}

impl From<Price> for Cost {
    fn from(price: Price) -> Self {
        let Price { input, output, cache_read, cache_write, long: _ } = price;
        Self { input, output, cache_read, cache_write }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::ThinkingLevel;

    #[track_caller]
    fn check(base_url: Option<&str>, said: &ModelFacts, want: Value) {
        let model = ModelRef { provider: "p".into(), model: "m-1".into() };
        let thinking = ThinkingLevel::Low;
        let choice = ModelChoice { model, thinking, compaction_threshold: None };
        let card = card(&choice, Api::OpenAiCompletions, base_url, said);
        assert_eq!(serde_json::to_value(card).ok(), Some(want));
    }

    #[test]
    fn what_nobody_said_is_assumed() {
        check(
            None,
            &ModelFacts::default(),
            json!({"id": "m-1", "name": "m-1", "provider": "p", "api": "openai-completions",
                "reasoning": false, "input": ["text"], "cost": null, "contextWindow": 128_000,
                "maxTokens": 8192, "thinkingLevel": "low"}),
        );
    }

    #[test]
    fn what_was_said_is_told() {
        let said = ModelFacts {
            name: Some("M One".into()),
            context_window: Some(1000),
            max_tokens: Some(10),
            reasoning: Some(true),
            images: Some(true),
            cost: Some(Price {
                input: 0.5,
                output: 2.0,
                cache_read: 0.1,
                cache_write: 0.0,
                long: None,
            }),
            ..ModelFacts::default()
        };
        check(
            Some("http://127.0.0.1:9/v1"),
            &said,
            json!({"id": "m-1", "name": "M One", "provider": "p", "api": "openai-completions",
                "baseUrl": "http://127.0.0.1:9/v1", "reasoning": true,
                "input": ["text", "image"],
                "cost": {"input": 0.5, "output": 2.0, "cacheRead": 0.1, "cacheWrite": 0.0},
                "contextWindow": 1000, "maxTokens": 10, "thinkingLevel": "low"}),
        );
    }
}
