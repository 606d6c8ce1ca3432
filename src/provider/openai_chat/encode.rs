//! The request in the dialect's words. Only fields that the dialect's
//! specification has and that all known servers take: strict ones refuse a
//! request for one field more. Thinking is sent back only to those who refuse
//! a request without; an answer of nothing else is left out, and so is a
//! result of no call.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::{ModelRef, ThinkingLevel};
use crate::message::{Assistant, Block, Content, Image, Message, ToolCall, ToolResult};
use crate::provider::ids::{Ids, sound_name};
use crate::provider::{Fault, Origin, Request, ToolDefinition};

const IMAGE_LEFT_OUT: &str = "(An image was left out: this model reads text only.)";

/// The body of the request. The conversation is the most of it, so it is
/// written from where it was put together and not copied once more.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Said>,
    stream: bool,
    #[serde(flatten)]
    further: Map<String, Value>,
}

/// The body of the request, as JSON.
pub(super) fn body(request: &Request<'_>, origin: &Origin<'_>) -> Result<Vec<u8>, Fault> {
    let mut further = Map::new();
    // Mistral tells the usage unasked and has refused a request that asks.
    if request.model.provider != "mistral" {
        further.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    if let Some(limit) = request.max_tokens.or(request.facts.max_tokens) {
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
    let model = &request.model.model;
    let body = Body { model, messages: messages(request, origin), stream: true, further };
    serde_json::to_vec(&body).map_err(|it| Fault::Ours(format!("cannot write the request: {it}")))
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
enum Said {
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

/// The conversation on its way to the wire.
struct Conversation<'a> {
    model: &'a ModelRef,
    origin: &'a Origin<'a>,
    shows_images: bool,
    returns_thinking: bool,
    ids: Ids,
    said: Vec<Said>,
    /// Parts of the user message that shows what tools returned as images.
    /// Results must follow their calls directly, so it waits for the last.
    shown: Vec<Value>,
}

fn messages(request: &Request<'_>, origin: &Origin<'_>) -> Vec<Said> {
    let mut conversation = Conversation {
        model: request.model,
        origin,
        shows_images: request.facts.images == Some(true),
        returns_thinking: wants_thinking(request, origin),
        ids: Ids::default(),
        said: Vec::new(),
        shown: Vec::new(),
    };
    if !request.system.is_empty() {
        conversation.said.push(Said::System { content: request.system.to_owned() });
    }
    for message in request.messages {
        conversation.add(message);
    }
    conversation.show_images();
    conversation.said
}

impl Conversation<'_> {
    fn add(&mut self, message: &Message) {
        if !matches!(message, Message::ToolResult(_)) {
            self.show_images();
        }
        match message {
            Message::User(it) => {
                let content = self.user_content(&it.content);
                self.add_user(content);
            }
            Message::Assistant(it) => self.add_answer(it),
            Message::ToolResult(it) => self.add_result(it),
            // The session makes user messages of these.
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_)
            | Message::Unknown(_) => (),
        }
    }

    fn add_user(&mut self, content: Value) {
        // Mistral's models are given no user message right after a result.
        if is_mistral(self.model) && matches!(self.said.last(), Some(Said::Tool { .. })) {
            self.said.push(Said::Assistant {
                content: Some("(No answer.)".into()),
                reasoning_content: None,
                tool_calls: Vec::new(),
            });
        }
        self.said.push(Said::User { content });
    }

    /// One text where that is all there is: not every server reads parts.
    fn user_content(&self, content: &Content) -> Value {
        let Content::Blocks(blocks) = content else { return json!(or_empty(content.text())) };
        let has_image = blocks.iter().any(|it| matches!(it, Block::Image(_)));
        if has_image && self.shows_images {
            return blocks.iter().filter_map(part).collect();
        }
        json!(or_empty(texts(blocks)))
    }

    fn add_answer(&mut self, answer: &Assistant) {
        self.ids.begin_answer();
        let (own, keeps) = (self.origin.gave(answer), self.origin.takes_back(answer));
        let calls: Vec<Value> = answer.tool_calls().map(|it| self.call(it, own, keeps)).collect();
        let text = answer.text();
        let content = (!text.trim().is_empty()).then_some(text);
        let reasoning_content = (self.returns_thinking && !calls.is_empty())
            .then(|| if keeps { thinking(answer) } else { String::new() })
            // It must be there, also where there was none.
            .map(|it| if it.is_empty() { " ".into() } else { it });
        if content.is_some() || !calls.is_empty() {
            self.said.push(Said::Assistant { content, reasoning_content, tool_calls: calls });
        }
    }

    fn call(&mut self, call: &ToolCall, own: bool, keeps: bool) -> Value {
        let arguments = match &call.arguments {
            it @ Value::Object(_) => it.to_string(),
            _ => "{}".into(),
        };
        let mut sent = json!({"id": self.ids.of_call(call, own), "type": "function",
            "function": {"name": sound_name(&call.name), "arguments": arguments}});
        // Gemini refuses a history without it; everyone else never gave one.
        // What begins like JSON came by another field than this.
        let signature = call.thought_signature.as_ref().filter(|it| keeps && !it.starts_with('{'));
        if let Some(signature) = signature {
            sent["extra_content"] = json!({"google": {"thought_signature": signature}});
        }
        sent
    }

    fn add_result(&mut self, result: &ToolResult) {
        let Some(tool_call_id) = self.ids.of_result(&result.tool_call_id) else { return };
        let images = images(&result.content);
        let mut text = result.content.text();
        if !images.is_empty() {
            let note = if self.shows_images { "(The image follows.)" } else { IMAGE_LEFT_OUT };
            let break_before = if text.is_empty() { "" } else { "\n" };
            text = format!("{text}{break_before}{note}");
        }
        if text.is_empty() {
            text = "(no output)".into();
        }
        // The dialect has no flag for it.
        if result.is_error {
            text = format!("Error: {text}");
        }
        self.said.push(Said::Tool { tool_call_id, content: text });
        if self.shows_images && !images.is_empty() {
            let title = format!("What `{}` returned as an image:", result.tool_name);
            self.shown.push(json!({"type": "text", "text": title}));
            self.shown.extend(images.into_iter().map(image_part));
        }
    }

    fn show_images(&mut self) {
        let shown = std::mem::take(&mut self.shown);
        if !shown.is_empty() {
            self.add_user(Value::Array(shown));
        }
    }
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
fn wants_thinking(request: &Request<'_>, origin: &Origin<'_>) -> bool {
    let ModelRef { provider, model } = request.model;
    if ["deepseek", "moonshot"].contains(&provider.as_str()) {
        return true;
    }
    let id = model.to_ascii_lowercase();
    ["deepseek", "kimi"].iter().any(|it| id.contains(it))
        && request.messages.iter().any(|it| match it {
            Message::Assistant(it) => origin.takes_back(it) && !thinking(it).is_empty(),
            _ => false,
        })
}

fn thinking(answer: &Assistant) -> String {
    let thoughts = answer.content.iter().filter_map(|it| match it {
        Block::Thinking(it) => Some(it.thinking.as_str()),
        _ => None,
    });
    thoughts.collect()
}

fn or_empty(text: String) -> String {
    if text.is_empty() { "(empty message)".into() } else { text }
}

/// Text blocks as one text, and a word for each image.
fn texts(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|it| match it {
        Block::Text(it) => Some(it.text.as_str()).filter(|it| !it.is_empty()),
        Block::Image(_) => Some(IMAGE_LEFT_OUT),
        _ => None,
    });
    texts.collect::<Vec<&str>>().join("\n")
}

fn part(block: &Block) -> Option<Value> {
    match block {
        Block::Text(it) if it.text.is_empty() => None,
        Block::Text(it) => Some(json!({"type": "text", "text": it.text})),
        Block::Image(it) => Some(image_part(it)),
        Block::Thinking(_) | Block::ToolCall(_) | Block::Unknown(_) => None,
    }
}

fn images(content: &Content) -> Vec<&Image> {
    let Content::Blocks(blocks) = content else { return Vec::new() };
    let images = blocks.iter().filter_map(|it| match it {
        Block::Image(it) => Some(it),
        _ => None,
    });
    images.collect()
}

fn image_part(image: &Image) -> Value {
    let url = format!("data:{};base64,{}", image.mime_type, image.data);
    json!({"type": "image_url", "image_url": {"url": url}})
}
