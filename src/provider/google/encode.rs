//! The request in the dialect's words. Roles alternate; the results of an
//! answer follow it all together. Thinking goes back only with its signature.
//! What says nothing is left out.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::family::Family;
use super::schema;
use crate::message::Thinking;
use crate::provider::history::{self, Answer, Call, Outcome, Part, Rules, Said, Step, Turn};
use crate::provider::ids::own_id;
use crate::provider::{Origin, Request, ToolDefinition};

/// What the provider documents for a call that no model of its own made, or
/// whose signature is lost: the newer models refuse one without any.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Images that all models read.
const READABLE: &[&str] = &["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];

/// Images that may stand within the result of a tool.
const READABLE_WITHIN: &[&str] = &["image/png", "image/jpeg", "image/webp"];

/// Longest name of a function.
const LONGEST_NAME: usize = 64;

/// The body of the request. The conversation is the most of it, so it is
/// written from where it was put together and not copied once more.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    contents: Vec<Content>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    generation_config: Map<String, Value>,
}

/// The body of the request.
pub(super) fn body(request: &Request<'_>, origin: &Origin<'_>) -> impl Serialize + use<> {
    let family = Family::of(&request.model.model);
    let system = Some(request.system).filter(|it| !it.trim().is_empty());
    Body {
        contents: contents(request, origin, family),
        system_instruction: system.map(|it| json!({"parts": [{"text": it}]})),
        tools: tools(request.tools),
        generation_config: generation(request, family),
    }
}

fn tools(tools: &[ToolDefinition]) -> Option<Value> {
    let declared: Vec<Value> = tools.iter().map(declaration).collect();
    (!declared.is_empty()).then(|| json!([{"functionDeclarations": declared}]))
}

fn declaration(tool: &ToolDefinition) -> Value {
    let mut declared = json!({"name": tool.name, "description": tool.description});
    if let Some(schema) = schema::sent(&tool.parameters) {
        declared["parametersJsonSchema"] = schema;
    }
    declared
}

fn generation(request: &Request<'_>, family: Family) -> Map<String, Value> {
    let limit = request.limit();
    let thinking = family.thinking(request.thinking, request.facts.reasoning, limit);
    let wishes = [
        ("maxOutputTokens", limit.map(Value::from)),
        ("temperature", request.temperature.map(Value::from)),
        ("thinkingConfig", thinking),
    ];
    wishes.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))).collect()
}

/// What one side says until the other does.
#[derive(Debug, Serialize)]
struct Content {
    role: &'static str,
    parts: Vec<Value>,
}

fn contents(request: &Request<'_>, origin: &Origin<'_>, family: Family) -> Vec<Content> {
    let images = if request.facts.images == Some(true) { READABLE } else { &[] };
    let images_in_results = if family.sees_results() { READABLE_WITHIN } else { &[] };
    let rules = Rules { images, images_in_results, own_id };
    let turns =
        history::turns(history::steps(request.messages, origin, rules), |step| match step {
            Step::User(it) => it.iter().map(part).collect(),
            Step::Answer(it) => answer(it, family),
            Step::Results(it) => it.iter().map(result).collect(),
        });
    turns.into_iter().map(content).collect()
}

fn content(turn: Turn) -> Content {
    Content { role: if turn.is_users { "user" } else { "model" }, parts: turn.content }
}

fn part(part: &Part<'_>) -> Value {
    match part {
        Part::Text(it) => json!({ "text": it }),
        Part::Image(it) => json!({"inlineData": {"mimeType": it.mime_type, "data": it.data}}),
    }
}

fn answer(answer: Answer<'_>, family: Family) -> Vec<Value> {
    // Of the calls of one answer only the first has one.
    let mut stand_in = family.wants_signatures().then_some(NO_SIGNATURE);
    let spell = |said| match said {
        Said::Text(it, opaque) => said_part(it, opaque),
        Said::Thought(it) => thought_part(it),
        Said::Call(it) => Some(call(it, stand_in.take())),
    };
    answer.said.into_iter().filter_map(spell).collect()
}

/// A part of an answer's text; what is empty and has no signature says nothing.
fn said_part(said: &str, opaque: Option<&str>) -> Option<Value> {
    match signature(opaque) {
        Some(it) => Some(json!({"text": said, "thoughtSignature": it})),
        None => (!said.trim().is_empty()).then(|| json!({ "text": said })),
    }
}

/// A thought as it came; without a signature it means nothing to the model.
fn thought_part(thought: &Thinking) -> Option<Value> {
    let signature = signature(thought.thinking_signature.as_deref())?;
    Some(json!({"text": thought.thinking, "thought": true, "thoughtSignature": signature}))
}

fn call(call: Call<'_>, stand_in: Option<&str>) -> Value {
    let name = function_name(&call.name);
    let arguments = call.arguments.into_owned();
    let mut sent = json!({"functionCall": {"id": call.id, "name": name, "args": arguments}});
    let opaque = call.as_it_came.and_then(|it| it.thought_signature.as_deref());
    if let Some(signature) = signature(opaque).or(stand_in) {
        sent["thoughtSignature"] = json!(signature);
    }
    sent
}

/// A signature that may go back. It is base64; what another program stored may
/// not be, and is refused with the whole request.
fn signature(opaque: Option<&str>) -> Option<&str> {
    let is_base64 = |it: u8| it.is_ascii_alphanumeric() || b"+/-_=".contains(&it);
    opaque.filter(|it| !it.is_empty() && it.bytes().all(is_base64))
}

fn result(result: &Outcome<'_>) -> Value {
    let is_image = |it: &&Part<'_>| matches!(it, Part::Image(_));
    let images: Vec<Value> = result.parts.iter().filter(is_image).map(part).collect();
    let said = Some(history::text(&result.parts)).filter(|it| !it.is_empty());
    let field = if result.is_error { "error" } else { "output" };
    let mut sent = json!({"id": result.id, "name": function_name(&result.name),
        "response": {field: said.unwrap_or_else(|| "(no output)".into())}});
    if !images.is_empty() {
        sent["parts"] = Value::Array(images);
    }
    json!({ "functionResponse": sent })
}

/// A tool's name, which begins with a letter here.
fn function_name(name: &str) -> String {
    if name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_') {
        return name.to_owned();
    }
    format!("_{}", &name[..name.len().min(LONGEST_NAME - 1)])
}
