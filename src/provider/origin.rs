//! Whose opaque data may go out. Signatures, encrypted reasoning and the like
//! mean something only to the very place that gave them: elsewhere they are
//! refused, and with them the whole conversation for ever after. So they are
//! kept with their answer, and go back only to the provider, the model and the
//! endpoint that it came from, in the protocol that it came by: one endpoint may
//! speak several, and none understands another's.

use serde_json::Value;

use crate::config::ModelRef;
use crate::message::{Assistant, Message};

/// The field of an answer's `beige` that says: it was given once the opaque data
/// of the answers before it was left out, since its provider takes that back no
/// longer.
pub(super) const WITHOUT_OPAQUE: &str = "withoutOpaque";

/// The place that is asked.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    model: &'a ModelRef,
    endpoint: &'a str,
    api: &'a str,
    has_opaque: bool,
    /// What answers gave that were begun before is taken back no longer, in Unix
    /// milliseconds.
    fresh_from: i64,
}

impl<'a> Origin<'a> {
    /// A model at the endpoint of that base URL; empty where there is none.
    pub fn new(model: &'a ModelRef, endpoint: &'a str) -> Self {
        Self { model, endpoint, api: "", has_opaque: true, fresh_from: i64::MIN }
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

    /// The same, which takes nothing back that stands in this conversation before
    /// the newest answer that it gave only without.
    #[must_use]
    pub(super) fn remembering(self, conversation: &[Message]) -> Self {
        let answers = conversation.iter().filter_map(|it| match it {
            Message::Assistant(it) => Some(&**it),
            _ => None,
        });
        let (mut newest, mut fresh_from) = (i64::MIN, self.fresh_from);
        for answer in answers {
            if is_without_opaque(answer) && self.takes_back(answer) {
                fresh_from = newest;
            }
            // Whatever the clocks did meanwhile, what stands before is older.
            newest = newest.max(answer.timestamp.saturating_add(1));
        }
        Self { fresh_from, ..self }
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
        let is_fresh = answer.timestamp >= self.fresh_from;
        self.has_opaque && is_fresh && is_here && is_understood && self.gave(answer)
    }
}

fn is_without_opaque(answer: &Assistant) -> bool {
    answer.beige.as_ref().and_then(|it| it.get(WITHOUT_OPAQUE)) == Some(&Value::Bool(true))
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
    fn what_was_refused_once_is_known_to_be_stale_from_then_on() {
        let here = model("p", "m");
        let origin = Origin::new(&here, "https://a");
        let at = |timestamp, is_marked: bool, endpoint| {
            let mut said = answer("p", "m", Some(endpoint));
            said.timestamp = timestamp;
            if is_marked {
                said.beige = Some(json!({ "endpoint": endpoint, WITHOUT_OPAQUE: true }));
            }
            Message::Assistant(Box::new(said))
        };
        let check = |answers: [Message; 3], want: [bool; 3]| {
            let origin = origin.remembering(&answers);
            let got = answers.iter().map(|it| match it {
                Message::Assistant(it) => origin.takes_back(it),
                _ => false,
            });
            assert_eq!(got.collect::<Vec<_>>(), want, "{answers:?}");
        };
        let (a, b) = ("https://a", "https://b");
        check([at(1, false, a), at(2, true, a), at(3, false, a)], [false, true, true]);
        check([at(1, false, a), at(2, true, a), at(3, true, a)], [false, false, true]);
        check([at(1, true, a), at(2, false, a), at(3, false, a)], [true, true, true]);
        // The clock went back.
        check([at(9, false, a), at(2, true, a), at(10, false, a)], [false, false, true]);
        // What another place refused says nothing of this one.
        check([at(1, false, a), at(2, true, b), at(3, false, a)], [true, false, true]);
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
