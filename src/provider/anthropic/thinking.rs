//! How hard a model is told to think, in the words of its generation, and how
//! much it may write meanwhile. Pure. Models before Claude 4.6 are given a
//! budget of tokens; later ones decide themselves, by a word for the effort,
//! and refuse a budget.

use serde_json::{Value, json};

use crate::config::ThinkingLevel;
use crate::provider::{Request, facts};

/// Lets a model with a budget think between its calls too.
const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";

/// The least budget that is taken.
const LEAST_BUDGET: u64 = 1_024;

/// Tokens that a budget leaves for the answer, if the model writes that many.
const ROOM: u64 = 4_096;

/// What a request says of thinking.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Tokens that the model may write, thoughts included.
    pub(super) max_tokens: u64,
    /// The field `thinking`.
    pub(super) thinking: Option<Value>,
    /// The field `output_config.effort`.
    pub(super) effort: Option<&'static str>,
    /// The header `anthropic-beta`.
    pub(super) beta: Option<&'static str>,
    /// Whether it may be told how freely to choose its words.
    pub(super) takes_temperature: bool,
}

/// How a model is told to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It cannot.
    Never,
    /// By a budget; also between its calls, if it is told that it may.
    Budget { between_calls: bool },
    /// By a word.
    Adaptive(Untold),
}

/// What a model that decides itself does when it is told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Untold {
    /// It does not think.
    Off,
    /// It thinks, and can be told not to.
    On,
    /// It thinks whatever it is told.
    Always,
}

/// The plan for a request. `may_think` is false where the turn began without
/// the thought that a model with a budget wants to see at its beginning.
pub(super) fn plan(request: &Request<'_>, may_think: bool) -> Plan {
    let id = &request.model.model;
    let level = request.thinking;
    let silent = Plan {
        max_tokens: answer_tokens(request),
        takes_temperature: !refuses_temperature(id),
        ..Plan::default()
    };
    match manner(id) {
        _ if request.facts.reasoning == Some(false) => silent,
        Manner::Never => silent,
        Manner::Adaptive(untold) if level == ThinkingLevel::Off => match untold {
            Untold::Off => silent,
            Untold::On => Plan { thinking: Some(json!({"type": "disabled"})), ..silent },
            Untold::Always => Plan { effort: Some("low"), ..silent },
        },
        Manner::Adaptive(_) => adaptive(request),
        Manner::Budget { .. } if level == ThinkingLevel::Off || !may_think => silent,
        Manner::Budget { between_calls } => budget(request, between_calls).unwrap_or(silent),
    }
}

/// Whether a model wants its thoughts back though nobody signed them, as
/// DeepSeek's and Moonshot's do where they are served by this protocol.
pub(super) fn wants_unsigned(id: &str) -> bool {
    let id = id.to_ascii_lowercase();
    ["deepseek", "kimi"].iter().any(|it| id.contains(it))
}

fn adaptive(request: &Request<'_>) -> Plan {
    // Later models think in silence unless they are asked for a summary.
    let thinking = match version(&request.model.model) {
        Some((4, ..7)) => json!({"type": "adaptive"}),
        _ => json!({"type": "adaptive", "display": "summarized"}),
    };
    Plan {
        max_tokens: all_tokens(request),
        thinking: Some(thinking),
        effort: Some(match request.thinking {
            ThinkingLevel::Off | ThinkingLevel::Minimal | ThinkingLevel::Low => "low",
            ThinkingLevel::Medium => "medium",
            ThinkingLevel::High => "high",
        }),
        ..Plan::default()
    }
}

/// The plan with a budget; none if the model writes too little for one.
fn budget(request: &Request<'_>, between_calls: bool) -> Option<Plan> {
    let max_tokens = all_tokens(request);
    let room = ROOM.min(answer_tokens(request)).min(max_tokens / 2);
    let budget = budget_of(request.thinking).min(max_tokens - room);
    (budget >= LEAST_BUDGET).then(|| Plan {
        max_tokens,
        thinking: Some(json!({"type": "enabled", "budget_tokens": budget})),
        beta: (between_calls && !request.tools.is_empty()).then_some(INTERLEAVED),
        ..Plan::default()
    })
}

fn budget_of(level: ThinkingLevel) -> u64 {
    match level {
        ThinkingLevel::Off => 0,
        ThinkingLevel::Minimal => 1_024,
        ThinkingLevel::Low => 2_048,
        ThinkingLevel::Medium => 8_192,
        ThinkingLevel::High => 16_384,
    }
}

/// Tokens of the answer itself: the field is required.
fn answer_tokens(request: &Request<'_>) -> u64 {
    let known = request.facts.output_limit().unwrap_or(facts::MAX_TOKENS);
    let wanted = request.max_tokens.unwrap_or(known);
    wanted.min(most(request)).max(1)
}

/// The same and what the thoughts take, as far as the model writes that many.
fn all_tokens(request: &Request<'_>) -> u64 {
    answer_tokens(request).saturating_add(budget_of(request.thinking)).min(most(request)).max(1)
}

fn most(request: &Request<'_>) -> u64 {
    request.facts.output_limit().unwrap_or(u64::MAX)
}

fn manner(id: &str) -> Manner {
    let id = id.to_ascii_lowercase();
    // Others that speak the protocol have its older form.
    if !id.contains("claude") {
        return Manner::Budget { between_calls: false };
    }
    match version(&id) {
        Some((..3, _) | (3, ..7)) => Manner::Never,
        Some((3, _)) => Manner::Budget { between_calls: false },
        Some((4, ..6)) => Manner::Budget { between_calls: true },
        Some((4, _)) => Manner::Adaptive(Untold::Off),
        Some((5, 0)) if id.contains("opus") || id.contains("sonnet") => {
            Manner::Adaptive(Untold::On)
        }
        // Without a number it is one of the newest.
        Some(_) | None => Manner::Adaptive(Untold::Always),
    }
}

fn refuses_temperature(id: &str) -> bool {
    let id = id.to_ascii_lowercase();
    id.contains("claude") && !matches!(version(&id), Some((..4, _) | (4, ..7)))
}

/// The version in the id of a Claude model: `claude-3-7-sonnet-20250219`,
/// `claude-opus-4.6`, `anthropic/claude-sonnet-5`. Longer numbers are dates.
fn version(id: &str) -> Option<(u32, u32)> {
    let (_, name) = id.split_once("claude")?;
    let words = name.split(|it: char| !it.is_ascii_alphanumeric());
    let numbers = words.map(|it| it.parse::<u32>().ok().filter(|_| it.len() <= 2));
    let mut numbers = numbers.skip_while(Option::is_none);
    let major = numbers.next()??;
    Some((major, numbers.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ModelFacts, ModelRef};
    use crate::provider::ToolDefinition;

    #[track_caller]
    fn check_version(id: &str, want: Option<(u32, u32)>) {
        assert_eq!(version(id), want, "{id}");
    }

    #[test]
    fn a_model_is_known_by_the_version_in_its_id() {
        check_version("claude-3-7-sonnet-20250219", Some((3, 7)));
        check_version("claude-opus-4-20250514", Some((4, 0)));
        check_version("claude-opus-4-1-20250805", Some((4, 1)));
        check_version("anthropic/claude-opus-4.6", Some((4, 6)));
        check_version("us.anthropic.claude-haiku-4-5-20251001-v1:0", Some((4, 5)));
        check_version("claude-sonnet-5", Some((5, 0)));
        check_version("claude-opus-5-5", Some((5, 5)));
        check_version("claude-mythos-preview", None);
        check_version("glm-4.7", None);
    }

    /// What is said of thinking with room for any budget.
    fn said(id: &str, thinking: ThinkingLevel) -> Value {
        let facts = ModelFacts { known_max_tokens: Some(64_000), ..ModelFacts::default() };
        let plan = of(id, thinking, &facts, None, true);
        json!([plan.thinking, plan.effort])
    }

    fn of(
        id: &str,
        thinking: ThinkingLevel,
        facts: &ModelFacts,
        max_tokens: Option<u64>,
        may_think: bool,
    ) -> Plan {
        let model = ModelRef { provider: "p".into(), model: id.into() };
        let tools = [ToolDefinition {
            name: "exec".into(),
            description: String::new(),
            parameters: json!({}),
        }];
        let request =
            Request { thinking, max_tokens, tools: &tools, ..Request::new(&model, facts, &[]) };
        plan(&request, may_think)
    }

    #[test]
    fn older_models_are_given_a_budget() {
        let budgets = ThinkingLevel::ALL.map(|it| said("claude-sonnet-4-5", it));
        let enabled = |budget: u64| json!([{"type": "enabled", "budget_tokens": budget}, null]);
        let none = json!([null, null]);
        let want = [none.clone(), enabled(1024), enabled(2048), enabled(8192), enabled(16_384)];
        assert_eq!(budgets, want);
        assert_eq!(said("glm-4.7", ThinkingLevel::Low), enabled(2048));
        assert_eq!(said("claude-3-7-sonnet-latest", ThinkingLevel::Low), enabled(2048));
        assert_eq!(said("claude-3-5-haiku-20241022", ThinkingLevel::High), none);
    }

    #[test]
    fn newer_models_are_told_the_effort() {
        let adaptive = |effort: &str| json!([{"type": "adaptive"}, effort]);
        let efforts = ThinkingLevel::ALL.map(|it| said("claude-opus-4-6", it));
        let (low, medium, high) = (adaptive("low"), adaptive("medium"), adaptive("high"));
        assert_eq!(efforts, [json!([null, null]), low.clone(), low, medium, high]);
        let shown = json!([{"type": "adaptive", "display": "summarized"}, "high"]);
        for id in ["claude-opus-4-7", "claude-haiku-5-5", "claude-mythos-preview"] {
            assert_eq!(said(id, ThinkingLevel::High), shown, "{id}");
        }
    }

    #[test]
    fn thinking_is_turned_off_where_it_can_be() {
        let off = |id: &str| said(id, ThinkingLevel::Off);
        assert_eq!(off("claude-opus-4-8"), json!([null, null]));
        assert_eq!(off("claude-sonnet-5"), json!([{"type": "disabled"}, null]));
        for id in ["claude-opus-5-5", "claude-fable-5", "claude-sonnet-5-5"] {
            assert_eq!(off(id), json!([null, "low"]), "{id}");
        }
        let facts = ModelFacts { reasoning: Some(false), ..ModelFacts::default() };
        let plan = of("claude-opus-4-6", ThinkingLevel::High, &facts, None, true);
        assert_eq!((plan.thinking, plan.effort), (None, None));
    }

    #[track_caller]
    fn check_tokens(most: Option<u64>, asked: Option<u64>, want: (u64, Option<u64>)) {
        let facts = ModelFacts { max_tokens: most, ..ModelFacts::default() };
        let plan = of("claude-sonnet-4-5", ThinkingLevel::High, &facts, asked, true);
        let budget = plan.thinking.and_then(|it| it["budget_tokens"].as_u64());
        assert_eq!((plan.max_tokens, budget), want);
    }

    #[test]
    fn a_budget_leaves_room_for_the_answer() {
        check_tokens(None, None, (8_192 + 16_384, Some(16_384)));
        check_tokens(Some(64_000), None, (64_000, Some(16_384)));
        check_tokens(Some(64_000), Some(1_000), (1_000 + 16_384, Some(16_384)));
        check_tokens(Some(8_192), None, (8_192, Some(4_096)));
        check_tokens(Some(2_048), Some(9_999), (2_048, Some(1_024)));
        check_tokens(Some(2_000), None, (2_000, None));
        check_tokens(Some(0), None, (1, None));
        check_tokens(Some(u64::MAX), None, (u64::MAX, Some(16_384)));
    }

    #[test]
    fn a_turn_that_began_without_a_thought_ends_without_one() {
        let facts = ModelFacts::default();
        let thinking =
            |id: &str| of(id, ThinkingLevel::Low, &facts, None, false).thinking.is_some();
        assert!(!thinking("claude-sonnet-4-5"));
        assert!(thinking("claude-sonnet-4-6"));
    }

    #[test]
    fn what_a_model_refuses_is_not_sent_to_it() {
        let facts = ModelFacts::default();
        let plan = |id: &str, level| of(id, level, &facts, None, true);
        assert_eq!(plan("claude-sonnet-4-5", ThinkingLevel::Low).beta, Some(INTERLEAVED));
        assert_eq!(plan("claude-sonnet-4-5", ThinkingLevel::Off).beta, None);
        assert_eq!(plan("claude-3-7-sonnet", ThinkingLevel::Low).beta, None);
        assert_eq!(plan("claude-opus-4-6", ThinkingLevel::Low).beta, None);
        assert!(plan("claude-opus-4-6", ThinkingLevel::Off).takes_temperature);
        assert!(plan("glm-4.7", ThinkingLevel::Off).takes_temperature);
        assert!(!plan("glm-4.7", ThinkingLevel::Low).takes_temperature);
        assert!(!plan("claude-opus-4-7", ThinkingLevel::Off).takes_temperature);
    }
}
