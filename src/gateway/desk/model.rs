//! `beige/llm/prompt` and `beige/model/*`: one answer of one model, by its
//! provider's pool, with retries; audited and booked under the plugin's name.
//! No session, no tools, no hooks, no other model in its place.

use std::time::Duration;

use serde_json::json;

use super::{Answered, Asked, Method};
use crate::clock;
use crate::config::{Agent, ModelChoice, ModelRef, ThinkingLevel, nearest};
use crate::error::{Error, Kind, Result};
use crate::gateway::fields::{Fields, count, each, level, list, message, string};
use crate::message::Message;
use crate::provider::chain::{Attempt, Chain, End, Retry, Steps, Switch};
use crate::provider::{Answer, Delta, Listener, Request};
use crate::session;
use crate::tool::Caller;
use crate::turn::{Equipped, Hands, ModelCallEnd, Watch};
use crate::usage::Role;

/// How long nothing at all may come from a model: what agents have by default.
const INACTIVITY: Duration = Duration::from_secs(600);

const MODEL: &[&str] = &["provider", "modelId"];

pub(super) const METHODS: &[Method] = &[
    Method {
        name: "llm/prompt",
        fields: &["provider", "modelId", "messages", "systemPrompt", "maxTokens", "thinkingLevel"],
        answer: prompt,
    },
    Method { name: "model/get", fields: MODEL, answer: get },
    Method { name: "model/health", fields: MODEL, answer: health },
    Method { name: "model/clearHealth", fields: MODEL, answer: clear_health },
];

fn prompt(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let model = fields.model()?;
    let messages = each("messages", fields.required("messages", list)?, message)?;
    if messages.is_empty() {
        return Err("`messages` is empty: there is nothing to answer".to_owned().into());
    }
    let messages = session::context_of(messages);
    let system = fields.optional("systemPrompt", string)?.unwrap_or_default();
    let max_tokens = fields.optional("maxTokens", count)?;
    let thinking = fields.optional("thinkingLevel", level)?.unwrap_or_default();
    check_model(asked, &model)?;
    let _entered = asked.engine().running.enter(asked.request.cancel)?;
    let agent = format!("plugin:{}", asked.plugin());
    let caller = Caller { agent, session: None, claimed_session: None, model: None };
    let counted = |model: &ModelRef, end: &ModelCallEnd| {
        let agent = format!("plugin:{}", asked.plugin());
        asked.engine().model_call_ended(&agent, "", model, end);
    };
    let (toolbox, audit) = (&asked.engine().toolbox, &asked.engine().audit);
    let hands = Equipped::new(toolbox, audit, caller, &counted);
    let choice = ModelChoice { model, thinking, compaction_threshold: None };
    let choices = [&choice];
    let mut talk = Talk { asked, hands: &hands, system: &system, messages: &messages, max_tokens };
    let end = Chain::new(&choices, &asked.engine().health).answer(&mut talk, asked.request.cancel);
    let text = text_of(asked, end)?;
    Ok(json!({"text": asked.handle.mask(&text)}))
}

/// What was said; an answer without a word is none.
fn text_of(asked: &Asked<'_>, end: Result<Answer, End<Error>>) -> Result<String> {
    let failed = |why: String| Err(Error::new(Kind::Internal, why));
    match end {
        Ok(answer) => match answer.message.text() {
            text if text.is_empty() => failed("the model answered without a text".into()),
            text => Ok(text),
        },
        Err(End::Halted(error)) => Err(error),
        Err(End::Exhausted(it)) => failed(it.told(&format!("plugin:{}", asked.plugin()))),
        Err(End::Failed(fault)) => failed(fault.to_string()),
        Err(End::CalledOff) => Err(Error::new(Kind::Cancelled, "the prompt was called off")),
    }
}

/// A prompt on its way to its answer.
struct Talk<'a> {
    asked: &'a Asked<'a>,
    hands: &'a Equipped<'a>,
    system: &'a str,
    messages: &'a [Message],
    max_tokens: Option<u64>,
}

impl Steps for Talk<'_> {
    type Halt = Error;

    fn ask(&mut self, choice: &ModelChoice) -> Result<Attempt> {
        let engine = self.asked.engine();
        let told = self.hands.model_call_begins(&choice.model)?;
        let facts = engine.providers.facts(&choice.model);
        let request = Request {
            system: self.system,
            thinking: choice.thinking,
            max_tokens: self.max_tokens,
            ..Request::new(&choice.model, &facts, self.messages)
        };
        let mut ear = Ear(Watch::start());
        let called =
            engine.providers.call(&request, INACTIVITY, self.asked.request.cancel, &mut ear);
        told(ear.0.ended(&called, Role::Main));
        Ok(match called {
            Ok(answer) => Attempt::Answered(answer),
            Err(failure) => Attempt::Failed { fault: failure.fault, is_seen: false },
        })
    }

    fn retries(&mut self, _: &Retry) {}

    fn falls_back(&mut self, _: &Switch<'_>) {}
}

/// Hears when a model speaks; nobody is told of it before its end.
struct Ear(Watch);

impl Listener<&Delta> for Ear {
    fn hears(&mut self, delta: &Delta) {
        self.0.saw(delta);
    }
}

/// Whether the configuration names that model: for an agent, or below its
/// provider.
fn is_known(asked: &Asked<'_>, model: &ModelRef) -> bool {
    known(asked).any(|it| it == *model)
}

fn known<'a>(asked: &'a Asked<'_>) -> impl Iterator<Item = ModelRef> + 'a {
    let config = &asked.engine().config;
    let of_agents = config.agents.values().flat_map(Agent::choices).map(|it| it.model.clone());
    let listed = config.providers.iter().flat_map(|(provider, it)| {
        let model = |id: &String| ModelRef { provider: provider.clone(), model: id.clone() };
        it.models.keys().map(model)
    });
    of_agents.chain(listed)
}

/// [`Kind::Missing`], with the nearest that there is, for a model that the
/// configuration does not name: what it costs nobody has agreed to.
fn check_model(asked: &Asked<'_>, model: &ModelRef) -> Result<()> {
    if is_known(asked, model) {
        return Ok(());
    }
    let mut names: Vec<String> = known(asked).map(|it| it.to_string()).collect();
    names.sort_unstable();
    names.dedup();
    let meant = nearest(&model.to_string(), names.iter().map(String::as_str));
    let hint = meant.map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
    let known = names.join(", ");
    let what = format!("the configuration names no model `{model}`{hint} (models: {known})");
    Err(Error::new(Kind::Missing, what))
}

fn get(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let model = fields.model()?;
    let choice = ModelChoice { model, thinking: ThinkingLevel::Off, compaction_threshold: None };
    let card = asked.engine().providers.card(&choice).filter(|_| is_known(asked, &choice.model));
    let told = card.map(|it| {
        json!({
            "provider": it.provider,
            "modelId": it.id,
            "name": it.name,
            "contextWindow": it.context_window,
            "maxTokens": it.max_tokens,
        })
    });
    Ok(json!({"model": told}))
}

fn health(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let model = fields.model()?;
    if !is_known(asked, &model) {
        return Ok(json!({"health": null}));
    }
    let state = asked.engine().health.state(&model, clock::now());
    let mut told = json!({
        "isCoolingDown": !state.rest.is_zero(),
        "remainingCooldownMs": u64::try_from(state.rest.as_millis()).unwrap_or(u64::MAX),
        "consecutiveFailures": state.failures,
    });
    if let Some(error) = state.last_error {
        told["lastError"] = asked.handle.mask(&error).into();
    }
    Ok(json!({"health": told}))
}

fn clear_health(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let model = fields.model()?;
    check_model(asked, &model)?;
    asked.engine().health.clear(&model, clock::now());
    Ok(json!({}))
}
