//! The request in the dialect's words: the conversation as a list of items.
//! What users said and tools returned is spelled here; what the model said
//! itself is in `answer`. Fields that strict servers do not know, or that a model refuses,
//! are not sent.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::answer;
use super::effort;
use super::opaque;
use crate::provider::history::{self, Outcome, Part, Rules, Step};
use crate::provider::{Origin, Request, ToolDefinition};

/// The least that may be asked for, in tokens: OpenAI refuses less.
const LEAST_TOKENS: u64 = 16;

/// Servers that take nothing but a text for what a tool returned.
const TEXT_RESULTS: [&str; 4] = ["ollama", "lmstudio", "llamacpp", "vllm"];

/// The body of the request. The conversation is the most of it, so it is
/// written from where it was put together and not copied once more.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    input: Vec<Value>,
    stream: bool,
    store: bool,
    #[serde(flatten)]
    further: Map<String, Value>,
}

/// The body of the request.
pub(super) fn body<'a>(request: &Request<'a>, origin: &Origin<'_>) -> impl Serialize + use<'a> {
    Body {
        model: &request.model.model,
        instructions: request.system,
        input: input(request, origin),
        stream: true,
        store: false,
        further: further(request),
    }
}

/// The fields that are sent only where there is something to say.
fn further(request: &Request<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    if !request.tools.is_empty() {
        fields.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    if let Some(limit) = request.limit() {
        fields.insert("max_output_tokens".into(), json!(limit.max(LEAST_TOKENS)));
    }
    if effort::thinks(request) {
        // Models that do not think refuse to be asked for it, those that do
        // refuse a temperature.
        fields.insert("include".into(), json!(["reasoning.encrypted_content"]));
        fields.extend(effort::reasoning(request).map(|it| ("reasoning".into(), it)));
    } else if let Some(temperature) = request.temperature {
        fields.insert("temperature".into(), json!(temperature));
    }
    fields
}

fn tool(tool: &ToolDefinition) -> Value {
    let mut parameters = tool.parameters.clone();
    // OpenAI refuses an object that does not say what it may hold.
    if let Some(fields) = parameters.as_object_mut().filter(|it| !it.contains_key("properties")) {
        fields.insert("properties".into(), json!({}));
    }
    json!({"type": "function", "name": tool.name, "description": tool.description,
        "parameters": parameters, "strict": false})
}

fn input(request: &Request<'_>, origin: &Origin<'_>) -> Vec<Value> {
    let sees = request.facts.images == Some(true);
    let images = if sees { history::OPENAI_IMAGES } else { &[] };
    let has_text_results = TEXT_RESULTS.contains(&request.model.provider.as_str());
    let images_in_results = if has_text_results { &[] } else { images };
    let rules = Rules { images, images_in_results, own_id: opaque::call_id };
    let steps = history::steps(request.messages, origin, rules);
    let spell = |step: Step<'_>| match step {
        Step::User(it) => vec![user(&it)],
        Step::Answer(it) => answer::items(it),
        Step::Results(it) => it.into_iter().map(result).collect(),
    };
    steps.into_iter().flat_map(spell).collect()
}

fn user(parts: &[Part<'_>]) -> Value {
    let content: Vec<Value> = parts.iter().map(part).collect();
    json!({"type": "message", "role": "user", "content": content})
}

fn result(result: Outcome<'_>) -> Value {
    let output = match history::has_image(&result.parts) {
        true => shown_output(&result),
        // The dialect has no flag for it.
        false if result.is_error => json!(format!("Error: {}", history::text(&result.parts))),
        false => json!(history::text(&result.parts)),
    };
    json!({"type": "function_call_output", "call_id": result.id, "output": output})
}

/// What a tool returned, with its images.
fn shown_output(result: &Outcome<'_>) -> Value {
    let error = result.is_error.then(|| Part::Text("Error:".into()));
    error.iter().chain(&result.parts).map(part).collect()
}

fn part(part: &Part<'_>) -> Value {
    match part {
        Part::Text(it) => json!({"type": "input_text", "text": it}),
        Part::Image(it) => {
            let url = history::image_url(it);
            json!({"type": "input_image", "detail": "auto", "image_url": url})
        }
    }
}
