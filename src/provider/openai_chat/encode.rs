//! The request in the dialect's words. Only fields that the dialect's
//! specification has and that all known servers take: strict ones refuse a
//! request for one field more. Thinking is sent back only to those who refuse
//! a request without.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::{ModelRef, ThinkingLevel};
use crate::provider::history::{self, Answer, Call, Outcome, Part, Rules, Said, Step};
use crate::provider::ids::own_id;
use crate::provider::{Origin, Request, ToolDefinition};

/// The body of the request. The conversation is the most of it, so it is
/// written from where it was put together and not copied once more.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message>,
    stream: bool,
    #[serde(flatten)]
    further: Map<String, Value>,
}

/// The body of the request.
pub(super) fn body<'a>(request: &Request<'a>, origin: &Origin<'_>) -> impl Serialize + use<'a> {
    let mut further = Map::new();
    // Mistral tells the usage unasked and has refused a request that asks.
    if request.model.provider != "mistral" {
        further.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    if let Some(limit) = request.limit() {
        further.insert(limit_field(request.model).into(), json!(limit));
    }
    if let Some(temperature) = request.temperature {
        further.insert("temperature".into(), json!(temperature));
    }
    // Servers of models that do not think may refuse the field.
    if request.thinking > ThinkingLevel::Off && request.facts.reasoning == Some(true) {
        further.insert("reasoning_effort".into(), request.thinking.name().into());
    }
    if !request.tools.is_empty() {
        further.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    let model = request.model.model.as_str();
    Body { model, messages: messages(request, origin), stream: true, further }
}

/// OpenAI's newer models refuse `max_tokens`; most others know nothing else,
/// and strict ones refuse `max_completion_tokens`.
fn limit_field(model: &ModelRef) -> &'static str {
    if model.provider == "openai" { "max_completion_tokens" } else { "max_tokens" }
}

fn tool(tool: &ToolDefinition) -> Value {
    json!({"type": "function", "function": {
        "name": tool.name, "description": tool.description, "parameters": tool.parameters}})
}

/// One message, with the fields of its role.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message {
    System {
        content: String,
    },
    User {
        content: Value,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Value>,
    },
    Tool {
        tool_call_id: String,
        content: String,
    },
}

fn messages(request: &Request<'_>, origin: &Origin<'_>) -> Vec<Message> {
    let sees = request.facts.images == Some(true);
    let images = if sees { history::OPENAI_IMAGES } else { &[] };
    let steps =
        history::steps(request.messages, origin, Rules { images, images_in_results: &[], own_id });
    let returns_thinking = wants_thinking(request.model, &steps);
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(Message::System { content: request.system.to_owned() });
    }
    for step in steps {
        match step {
            Step::User(it) => {
                let is_after_result = matches!(messages.last(), Some(Message::Tool { .. }));
                // Mistral's models are given no user message right after a result.
                messages.extend((is_after_result && is_mistral(request.model)).then(no_answer));
                messages.push(Message::User { content: user_content(&it) });
            }
            Step::Answer(it) => messages.push(answer(&it, returns_thinking)),
            Step::Results(it) => messages.extend(it.into_iter().map(result)),
        }
    }
    messages
}

/// One text where that is all there is: not every server reads parts.
fn user_content(parts: &[Part<'_>]) -> Value {
    if history::has_image(parts) {
        return parts.iter().map(part).collect();
    }
    json!(history::text(parts))
}

fn part(part: &Part<'_>) -> Value {
    match part {
        Part::Text(it) => json!({"type": "text", "text": it}),
        Part::Image(it) => {
            json!({"type": "image_url", "image_url": {"url": history::image_url(it)}})
        }
    }
}

fn answer(answer: &Answer<'_>, returns_thinking: bool) -> Message {
    let (mut text, mut tool_calls) = (String::new(), Vec::new());
    for said in &answer.said {
        match said {
            Said::Text(it, _) => text.push_str(it),
            Said::Thought(_) => (),
            Said::Call(it) => tool_calls.push(call(it)),
        }
    }
    let reasoning_content = (returns_thinking && !tool_calls.is_empty())
        .then(|| thinking(answer))
        // It must be there, also where there was none.
        .map(|it| if it.is_empty() { " ".into() } else { it });
    let content = Some(text).filter(|it| !it.trim().is_empty());
    Message::Assistant { content, reasoning_content, tool_calls }
}

fn no_answer() -> Message {
    let content = Some("(No answer.)".into());
    Message::Assistant { content, reasoning_content: None, tool_calls: Vec::new() }
}

fn call(call: &Call<'_>) -> Value {
    let mut sent = json!({"id": call.id, "type": "function", "function":
        {"name": call.name, "arguments": call.arguments.to_string()}});
    // Gemini refuses a history without it; everyone else never gave one. What
    // begins like JSON came by another field than this.
    let signature = call.as_it_came.and_then(|it| it.thought_signature.as_ref());
    if let Some(signature) = signature.filter(|it| !it.is_empty() && !it.starts_with('{')) {
        sent["extra_content"] = json!({"google": {"thought_signature": signature}});
    }
    sent
}

fn result(result: Outcome<'_>) -> Message {
    let text = history::text(&result.parts);
    // The dialect has no flag for it.
    let content = if result.is_error { format!("Error: {text}") } else { text };
    Message::Tool { tool_call_id: result.id, content }
}

/// Whether a model has Mistral's stricter order of messages, by whomever it is
/// served.
fn is_mistral(model: &ModelRef) -> bool {
    let names = ["mistral", "mixtral", "devstral", "ministral", "magistral", "codestral"];
    let id = model.model.to_ascii_lowercase();
    model.provider == "mistral" || names.iter().any(|it| id.contains(it))
}

/// Whether the model refuses an answer with calls whose thinking is missing,
/// as DeepSeek's and Moonshot's do where they think. Elsewhere the same models
/// may not think, and their servers not know the field: there, thinking that
/// came is what tells.
fn wants_thinking(model: &ModelRef, steps: &[Step<'_>]) -> bool {
    if ["deepseek", "moonshot"].contains(&model.provider.as_str()) {
        return true;
    }
    let id = model.model.to_ascii_lowercase();
    ["deepseek", "kimi"].iter().any(|it| id.contains(it))
        && steps.iter().any(|it| matches!(it, Step::Answer(it) if !thinking(it).is_empty()))
}

fn thinking(answer: &Answer<'_>) -> String {
    let thoughts = answer.said.iter().filter_map(|it| match it {
        Said::Thought(it) => Some(it.thinking.as_str()),
        Said::Text(..) | Said::Call(_) => None,
    });
    thoughts.collect()
}
