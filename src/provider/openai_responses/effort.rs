//! How hard a model is told to think. Pure. The models take different words
//! for it and refuse all others, so that a level becomes the nearest word that
//! a model takes; those that nobody knows are taken to know the three that most
//! do.

use serde_json::{Value, json};

use crate::config::ThinkingLevel;
use crate::provider::Request;

/// All words, the least first.
const EFFORTS: [&str; 5] = ["none", "minimal", "low", "medium", "high"];

/// Whether the model thinks before it speaks: as it was said, else as its name
/// tells, else as it is told to.
pub(super) fn thinks(request: &Request<'_>) -> bool {
    let family = Family::of(&request.model.model);
    let assumed = request.thinking != ThinkingLevel::Off || family != Family::Unknown;
    request.facts.reasoning.unwrap_or(assumed && family != Family::Silent)
}

/// The field `reasoning`, if the model is to be told anything.
pub(super) fn reasoning(request: &Request<'_>) -> Option<Value> {
    let takes = Family::of(&request.model.model).efforts();
    let effort = effort(takes, request.thinking).filter(|_| thinks(request))?;
    Some(match request.thinking {
        ThinkingLevel::Off => json!({ "effort": effort }),
        _ => json!({"effort": effort, "summary": "auto"}),
    })
}

/// The word for a level: the next higher one that the model takes, else its
/// highest. Who is told not to think is told so if there is a word for it.
fn effort(takes: &[&'static str], level: ThinkingLevel) -> Option<&'static str> {
    let rank = |word: &str| EFFORTS.iter().position(|it| *it == word);
    if level == ThinkingLevel::Off {
        return takes.first().copied().filter(|it| rank(it) < rank("low"));
    }
    let next = takes.iter().find(|it| rank(it) >= rank(level.name()));
    next.or(takes.last()).copied()
}

/// Models that take the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// o1, o3 and their like, and those that are made for code.
    Steady,
    /// gpt-5 and its smaller ones.
    Five,
    /// gpt-5.1 and later.
    AfterFive,
    /// gpt-5-pro.
    Pro,
    /// Pro models after that.
    LaterPro,
    /// The models behind the chat product, which are told nothing.
    Silent,
    Unknown,
}

impl Family {
    /// The family of a model's id, also behind a router's prefix.
    fn of(id: &str) -> Self {
        let id = id.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let Some(version) = id.strip_prefix("gpt-5") else {
            let digit = id.strip_prefix('o').and_then(|it| it.chars().next());
            let is_steady = digit.is_some_and(|it| it.is_ascii_digit()) || id.starts_with("codex-");
            return if is_steady { Self::Steady } else { Self::Unknown };
        };
        let is_later = version.starts_with('.');
        match version {
            it if it.contains("-chat") => Self::Silent,
            it if it.contains("-codex") => Self::Steady,
            it if it.contains("-pro") && is_later => Self::LaterPro,
            it if it.contains("-pro") => Self::Pro,
            _ if is_later => Self::AfterFive,
            _ => Self::Five,
        }
    }

    fn efforts(self) -> &'static [&'static str] {
        match self {
            Self::Steady | Self::Unknown => &["low", "medium", "high"],
            Self::Five => &["minimal", "low", "medium", "high"],
            Self::AfterFive => &["none", "low", "medium", "high"],
            Self::Pro => &["high"],
            Self::LaterPro => &["medium", "high"],
            Self::Silent => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ModelFacts, ModelRef};

    /// The effort that a model is told for each level.
    #[track_caller]
    fn check(id: &str, want: [&str; 5]) {
        let model = ModelRef { provider: "p".into(), model: id.into() };
        let facts = ModelFacts::default();
        let got = ThinkingLevel::ALL.map(|thinking| {
            let request = Request { thinking, ..Request::new(&model, &facts, &[]) };
            let told = reasoning(&request).unwrap_or_default();
            let wants_summary = thinking != ThinkingLevel::Off && !told.is_null();
            assert_eq!(told["summary"] == "auto", wants_summary, "{id}: {told}");
            told["effort"].as_str().unwrap_or_default().to_owned()
        });
        assert_eq!(got, want, "{id}");
    }

    #[test]
    fn a_level_is_the_nearest_word_that_the_model_takes() {
        check("gpt-5", ["minimal", "minimal", "low", "medium", "high"]);
        check("gpt-5-nano-2025-08-07", ["minimal", "minimal", "low", "medium", "high"]);
        check("openai/gpt-5.1", ["none", "low", "low", "medium", "high"]);
        check("GPT-5.2-mini", ["none", "low", "low", "medium", "high"]);
        check("o3", ["", "low", "low", "medium", "high"]);
        check("o4-mini", ["", "low", "low", "medium", "high"]);
        check("gpt-5.1-codex", ["", "low", "low", "medium", "high"]);
        check("codex-mini-latest", ["", "low", "low", "medium", "high"]);
        check("gpt-5-pro", ["", "high", "high", "high", "high"]);
        check("gpt-5.2-pro", ["", "medium", "medium", "medium", "high"]);
        check("gpt-5-chat-latest", ["", "", "", "", ""]);
        check("gpt-oss-20b", ["", "low", "low", "medium", "high"]);
        check("house-model", ["", "low", "low", "medium", "high"]);
    }

    #[test]
    fn what_was_said_of_a_model_comes_before_its_name() {
        let thinks = |id: &str, reasoning: Option<bool>, thinking| {
            let model = ModelRef { provider: "p".into(), model: id.into() };
            let facts = ModelFacts { reasoning, ..ModelFacts::default() };
            super::thinks(&Request { thinking, ..Request::new(&model, &facts, &[]) })
        };
        assert!(thinks("gpt-5", None, ThinkingLevel::Off));
        assert!(!thinks("gpt-4.1", None, ThinkingLevel::Off));
        assert!(!thinks("omni-1", None, ThinkingLevel::Off));
        assert!(thinks("house", None, ThinkingLevel::Low));
        assert!(thinks("house", Some(true), ThinkingLevel::Off));
        assert!(!thinks("gpt-5", Some(false), ThinkingLevel::High));
        assert!(!thinks("gpt-5-chat", None, ThinkingLevel::High));
        assert!(!thinks("", None, ThinkingLevel::Off));
    }
}
