//! The request in the dialect's words. Roles alternate; results stand first in
//! the message after their calls. Thoughts go back as they came. What is empty
//! is left out, since it is refused. What stays the same from call to call is
//! marked for the cache.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::thinking::{self, Plan};
use crate::message::{Thinking, ToolCall};
use crate::provider::history::{self, Answer, Call, Outcome, Part, Rules, Said, Step, Turn};
use crate::provider::ids;
use crate::provider::{Origin, Request, ToolDefinition};

/// The types of images that are taken.
const IMAGE_TYPES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// How many messages are marked for the cache: with the system prompt and the
/// tools these are the four marks that a request may have.
const MARKED_MESSAGES: usize = 2;

/// The conversation is the most of it, so it is written from where it was put
/// together and not copied once more.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    messages: Vec<Message>,
    #[serde(flatten)]
    further: Map<String, Value>,
}

/// The body of a request, and its header `anthropic-beta`.
pub(super) fn body<'a>(
    request: &Request<'a>,
    origin: &Origin<'_>,
) -> (impl Serialize + use<'a>, Option<&'static str>) {
    let mut turns = turns(request, origin);
    let plan = thinking::plan(request, !begins_without_thinking(&turns));
    mark(&mut turns);
    let body = Body {
        model: &request.model.model,
        max_tokens: plan.max_tokens,
        stream: true,
        messages: turns.into_iter().map(message).collect(),
        further: further(request, &plan),
    };
    (body, plan.beta)
}

/// The fields that are not always there.
fn further(request: &Request<'_>, plan: &Plan) -> Map<String, Value> {
    let mut further = Map::new();
    let mut add = |name: &str, value: Value| drop(further.insert(name.into(), value));
    if !request.system.trim().is_empty() {
        let mut system = text(request.system);
        system["cache_control"] = for_the_cache();
        add("system", json!([system]));
    }
    if !request.tools.is_empty() {
        let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
        if let Some(last) = tools.last_mut() {
            last["cache_control"] = for_the_cache();
        }
        add("tools", Value::Array(tools));
    }
    if let Some(thinking) = &plan.thinking {
        add("thinking", thinking.clone());
    }
    if let Some(effort) = plan.effort {
        add("output_config", json!({ "effort": effort }));
    }
    if let Some(temperature) = request.temperature.filter(|_| plan.takes_temperature) {
        add("temperature", json!(temperature.clamp(0.0, 1.0)));
    }
    further
}

fn tool(tool: &ToolDefinition) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})
}

fn for_the_cache() -> Value {
    json!({"type": "ephemeral"})
}

/// One message.
#[derive(Debug, Serialize)]
struct Message {
    role: &'static str,
    content: Vec<Value>,
}

fn message(turn: Turn) -> Message {
    Message { role: if turn.is_users { "user" } else { "assistant" }, content: turn.content }
}

fn turns(request: &Request<'_>, origin: &Origin<'_>) -> Vec<Turn> {
    let sees = request.facts.images == Some(true);
    let images = if sees { IMAGE_TYPES } else { &[] };
    let rules = Rules { images, images_in_results: images, own_id };
    let sends_unsigned = thinking::wants_unsigned(&request.model.model);
    history::turns(history::steps(request.messages, origin, rules), |step| match step {
        Step::User(it) => it.iter().map(part).collect(),
        Step::Answer(it) => answer(it, sends_unsigned),
        Step::Results(it) => it.into_iter().map(result).collect(),
    })
}

/// The id of a call of its own, if it is of the form that is taken.
fn own_id(call: &ToolCall) -> Option<&str> {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_-".contains(&it);
    ids::own_id(call).filter(|it| it.bytes().all(is_plain))
}

fn part(part: &Part<'_>) -> Value {
    match part {
        Part::Text(it) => text(it),
        Part::Image(it) => {
            let source = json!({"type": "base64", "media_type": it.mime_type, "data": it.data});
            json!({"type": "image", "source": source})
        }
    }
}

fn answer(answer: Answer<'_>, sends_unsigned: bool) -> Vec<Value> {
    let spell = |said| match said {
        Said::Text(it, _) => (!it.trim().is_empty()).then(|| text(it)),
        Said::Thought(it) => thought(it, sends_unsigned),
        Said::Call(it) => Some(call(it)),
    };
    let mut content: Vec<Value> = answer.said.into_iter().filter_map(spell).collect();
    // A message that ends with a thought is refused.
    while content.last().is_some_and(is_thought) {
        content.pop();
    }
    content
}

fn thought(thought: &Thinking, sends_unsigned: bool) -> Option<Value> {
    let signature = thought.thinking_signature.as_deref().filter(|it| !it.is_empty());
    match signature {
        Some(it) if thought.redacted == Some(true) => {
            Some(json!({"type": "redacted_thinking", "data": it}))
        }
        None if !sends_unsigned || thought.thinking.is_empty() => None,
        it => Some(json!({"type": "thinking", "thinking": thought.thinking,
            "signature": it.unwrap_or_default()})),
    }
}

fn call(call: Call<'_>) -> Value {
    let input = call.arguments.into_owned();
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
}

fn result(result: Outcome<'_>) -> Value {
    let content: Vec<Value> = result.parts.iter().map(part).collect();
    let mut block = json!({"type": "tool_result", "tool_use_id": result.id, "content": content});
    if result.is_error {
        block["is_error"] = json!(true);
    }
    block
}

/// Whether results go to a turn whose first answer begins without a thought: a
/// model with a budget takes that only if it is not to think.
fn begins_without_thinking(turns: &[Turn]) -> bool {
    let has_results = |it: &Turn| it.content.first().is_some_and(|it| it["type"] == "tool_result");
    if !turns.last().is_some_and(has_results) {
        return false;
    }
    let start = turns.iter().rposition(|it| it.is_users && !has_results(it));
    let mut later = turns.iter().skip(start.map_or(0, |it| it + 1));
    let first = later.find(|it| !it.is_users).and_then(|it| it.content.first());
    !first.is_some_and(is_thought)
}

/// Marks the end of the newest user messages for the cache: of the last, and
/// of the one before, which was the last when it was written to the cache.
fn mark(turns: &mut [Turn]) {
    let users = turns.iter_mut().rev().filter(|it| it.is_users);
    for last in users.take(MARKED_MESSAGES).filter_map(|it| it.content.last_mut()) {
        last["cache_control"] = for_the_cache();
    }
}

fn is_thought(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}
