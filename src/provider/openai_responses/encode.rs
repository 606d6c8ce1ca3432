//! The request in the dialect's words: the conversation as a list of items.
//! Images and what tools returned are put here; what the model said itself is
//! in `answer`. Fields that strict servers do not know, or that a model refuses,
//! are not sent.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::answer;
use super::effort;
use crate::message::{Block, Content, Image, Message, ToolResult};
use crate::provider::ids::Ids;
use crate::provider::{Fault, Origin, Request, ToolDefinition};

const IMAGE_LEFT_OUT: &str = "(An image was left out: this model reads text only.)";

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

/// The body of the request, as JSON.
pub(super) fn body(request: &Request<'_>, origin: &Origin<'_>) -> Result<Vec<u8>, Fault> {
    let body = Body {
        model: &request.model.model,
        instructions: request.system,
        input: input(request, origin),
        stream: true,
        store: false,
        further: further(request),
    };
    serde_json::to_vec(&body).map_err(|it| Fault::Ours(format!("cannot write the request: {it}")))
}

/// The fields that are sent only where there is something to say.
fn further(request: &Request<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    if !request.tools.is_empty() {
        fields.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    if let Some(limit) = request.max_tokens.or(request.facts.max_tokens) {
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

/// The conversation on its way to the wire.
struct Conversation<'a> {
    origin: &'a Origin<'a>,
    sees: Sees,
    ids: Ids,
    items: Vec<Value>,
    /// Parts of the user message that shows what tools returned as images. It
    /// waits for the last result, so that these stay with their calls.
    shown: Vec<Value>,
}

/// What the model is shown of images.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sees {
    Nothing,
    /// Those of users; those of tools in a message of their own.
    InMessages,
    Everything,
}

fn input(request: &Request<'_>, origin: &Origin<'_>) -> Vec<Value> {
    let sees = match request.facts.images {
        Some(true) if TEXT_RESULTS.contains(&request.model.provider.as_str()) => Sees::InMessages,
        Some(true) => Sees::Everything,
        Some(false) | None => Sees::Nothing,
    };
    let (ids, items, shown) = (Ids::default(), Vec::new(), Vec::new());
    let mut conversation = Conversation { origin, sees, ids, items, shown };
    for message in request.messages {
        conversation.add(message);
    }
    conversation.show_images();
    conversation.items
}

impl Conversation<'_> {
    fn add(&mut self, message: &Message) {
        if !matches!(message, Message::ToolResult(_)) {
            self.show_images();
        }
        match message {
            Message::User(it) => {
                let parts = self.parts(&it.content);
                self.add_user(parts);
            }
            Message::Assistant(it) => {
                self.items.extend(answer::items(it, self.origin, &mut self.ids));
            }
            Message::ToolResult(it) => self.add_result(it),
            // The session makes user messages of these.
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_)
            | Message::Unknown(_) => (),
        }
    }

    fn add_user(&mut self, mut parts: Vec<Value>) {
        if parts.is_empty() {
            parts.push(text_part("(empty message)"));
        }
        self.items.push(json!({"type": "message", "role": "user", "content": parts}));
    }

    /// Texts and images in their order; a word for each image that the model
    /// does not see.
    fn parts(&self, content: &Content) -> Vec<Value> {
        let blocks = match content {
            Content::Text(text) if text.is_empty() => return Vec::new(),
            Content::Text(text) => return vec![text_part(text)],
            Content::Blocks(blocks) => blocks,
        };
        let part = |block: &Block| match block {
            Block::Text(it) if !it.text.is_empty() => Some(text_part(&it.text)),
            Block::Image(_) if self.sees == Sees::Nothing => Some(text_part(IMAGE_LEFT_OUT)),
            Block::Image(it) => Some(image_part(it)),
            _ => None,
        };
        blocks.iter().filter_map(part).collect()
    }

    fn add_result(&mut self, result: &ToolResult) {
        let Some(id) = self.ids.of_result(&result.tool_call_id) else { return };
        let images = images(&result.content);
        let output = match self.sees {
            Sees::Everything if !images.is_empty() => self.shown_output(result),
            _ => json!(self.output(result, images.len())),
        };
        self.items.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
        if self.sees == Sees::InMessages && !images.is_empty() {
            let title = format!("What `{}` returned as an image:", result.tool_name);
            self.shown.push(text_part(&title));
            self.shown.extend(images.into_iter().map(image_part));
        }
    }

    /// What a tool returned, with its images.
    fn shown_output(&self, result: &ToolResult) -> Value {
        let mut parts = self.parts(&result.content);
        if result.is_error {
            parts.insert(0, text_part("Error:"));
        }
        Value::Array(parts)
    }

    /// What a tool returned as one text, with a word for its images.
    fn output(&self, result: &ToolResult, images: usize) -> String {
        let mut text = result.content.text();
        if images > 0 {
            let note =
                if self.sees == Sees::Nothing { IMAGE_LEFT_OUT } else { "(The image follows.)" };
            let break_before = if text.is_empty() { "" } else { "\n" };
            text = format!("{text}{break_before}{note}");
        }
        if text.is_empty() {
            text = "(no output)".into();
        }
        // The dialect has no flag for it.
        if result.is_error { format!("Error: {text}") } else { text }
    }

    fn show_images(&mut self) {
        let shown = std::mem::take(&mut self.shown);
        if !shown.is_empty() {
            self.add_user(shown);
        }
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

fn text_part(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

fn image_part(image: &Image) -> Value {
    let url = format!("data:{};base64,{}", image.mime_type, image.data);
    json!({"type": "input_image", "detail": "auto", "image_url": url})
}
