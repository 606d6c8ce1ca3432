//! Whose opaque data may go out. Signatures, encrypted reasoning and the like
//! mean something only to the very place that gave them: elsewhere they are
//! refused, and with them the whole conversation for ever after. So they are
//! kept with their answer, and go back only to the provider, the model and the
//! endpoint that it came from, in the protocol that it came by: one endpoint may
//! speak several, and none understands another's.

use serde_json::Value;

use crate::config::ModelRef;
use crate::message::Assistant;

/// The place that is asked.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    model: &'a ModelRef,
    endpoint: &'a str,
    api: &'a str,
    has_opaque: bool,
}

impl<'a> Origin<'a> {
    /// A model at the endpoint of that base URL; empty where there is none.
    pub fn new(model: &'a ModelRef, endpoint: &'a str) -> Self {
        Self { model, endpoint, api: "", has_opaque: true }
    }

    /// The same, asked in the protocol of that name.
    #[must_use]
    pub fn speaking(self, api: &'a str) -> Self {
        Self { api, ..self }
    }

    /// The same, which no longer takes back what it gave.
    #[must_use]
    pub fn without_opaque(self) -> Self {
        Self { has_opaque: false, ..self }
    }

    /// The base URL of the endpoint.
    pub fn endpoint(&self) -> &'a str {
        self.endpoint
    }

    /// Whether that answer is the model's own: its ids and the form of its
    /// calls are known there.
    pub fn gave(&self, answer: &Assistant) -> bool {
        answer.provider == self.model.provider && answer.model == self.model.model
    }

    /// Whether the opaque data of that answer may go out. An answer of another
    /// program does not say where it came from; its provider's name has to do.
    pub fn takes_back(&self, answer: &Assistant) -> bool {
        let endpoint = answer.beige.as_ref().and_then(|it| it.get("endpoint"));
        let is_here = endpoint.and_then(Value::as_str).is_none_or(|it| it == self.endpoint);
        let is_understood = [self.api, &answer.api].contains(&"") || answer.api == self.api;
        self.has_opaque && is_here && is_understood && self.gave(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn model(provider: &str, model: &str) -> ModelRef {
        ModelRef { provider: provider.into(), model: model.into() }
    }

    fn answer(provider: &str, model: &str, endpoint: Option<&str>) -> Assistant {
        Assistant {
            provider: provider.into(),
            model: model.into(),
            beige: endpoint.map(|it| json!({ "endpoint": it })),
            ..Assistant::default()
        }
    }

    #[test]
    fn opaque_data_goes_back_only_to_where_it_came_from() {
        let here = model("p", "m");
        let origin = Origin::new(&here, "https://a");
        assert!(origin.takes_back(&answer("p", "m", Some("https://a"))));
        assert!(origin.takes_back(&answer("p", "m", None)), "another program wrote it");
        assert!(!origin.takes_back(&answer("p", "m", Some("https://b"))));
        assert!(!origin.takes_back(&answer("p", "other", Some("https://a"))));
        assert!(!origin.takes_back(&answer("q", "m", Some("https://a"))));
        let stripped = origin.without_opaque();
        assert!(!stripped.takes_back(&answer("p", "m", Some("https://a"))));
        assert!(stripped.gave(&answer("p", "m", Some("https://a"))));
    }

    #[test]
    fn what_came_by_one_protocol_goes_back_by_no_other() {
        let here = model("p", "m");
        let mut said = answer("p", "m", Some("https://a"));
        said.api = "openai-responses".into();
        let takes = |api| Origin::new(&here, "https://a").speaking(api).takes_back(&said);
        assert!(takes("openai-responses") && !takes("openai-completions"));
    }
}
