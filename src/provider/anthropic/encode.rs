//! The request in the dialect's words. Roles alternate, so neighbours of one
//! role become one message; results stand first in the message after their
//! calls, in the order of these. Thoughts go back as they came to whom they
//! came from, and to nobody else. What is empty is left out, since it is
//! refused.

use std::mem;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::thinking::{self, Plan};
use crate::message::{Assistant, Block, Content, Image, Message, Thinking, ToolCall, ToolResult};
use crate::provider::ids::{Ids, sound_name};
use crate::provider::{Fault, Origin, Request, ToolDefinition};

/// The types of images that are taken.
const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// How many messages are marked for the cache: with the system prompt and the
/// tools these are the four marks that a request may have.
const MARKED_MESSAGES: usize = 2;

/// A request's body.
pub(super) struct Written {
    /// JSON.
    pub(super) text: Vec<u8>,
    /// The header `anthropic-beta`.
    pub(super) beta: Option<&'static str>,
}

/// The conversation is the most of it, so it is written from where it was put
/// together and not copied once more.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    messages: Vec<Said>,
    #[serde(flatten)]
    further: Map<String, Value>,
}

/// The body of a request.
pub(super) fn body(request: &Request<'_>, origin: &Origin<'_>) -> Result<Written, Fault> {
    let mut messages = messages(request, origin);
    let plan = thinking::plan(request, !begins_without_thinking(&messages));
    mark(&mut messages);
    let body = Body {
        model: &request.model.model,
        max_tokens: plan.max_tokens,
        stream: true,
        messages,
        further: further(request, &plan),
    };
    let text = serde_json::to_vec(&body)
        .map_err(|it| Fault::Ours(format!("cannot write the request: {it}")))?;
    Ok(Written { text, beta: plan.beta })
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
struct Said {
    role: Role,
    content: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

/// The conversation on its way to the wire.
struct Conversation<'a> {
    origin: &'a Origin<'a>,
    shows_images: bool,
    sends_unsigned: bool,
    ids: Ids,
    said: Vec<Said>,
    /// Calls of the last answer, in their order.
    open: Vec<OpenCall>,
}

/// A call that waits for its result.
struct OpenCall {
    /// Its id as it is sent.
    id: String,
    result: Option<Value>,
}

fn messages(request: &Request<'_>, origin: &Origin<'_>) -> Vec<Said> {
    let mut conversation = Conversation {
        origin,
        shows_images: request.facts.images == Some(true),
        sends_unsigned: thinking::wants_unsigned(&request.model.model),
        ids: Ids::default(),
        said: Vec::new(),
        open: Vec::new(),
    };
    for message in request.messages {
        conversation.add(message);
    }
    conversation.end()
}

impl Conversation<'_> {
    fn add(&mut self, message: &Message) {
        match message {
            Message::User(it) => self.add_user(&it.content),
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

    /// The messages: the first and the last are a user's, as they must be.
    fn end(mut self) -> Vec<Said> {
        self.place_results();
        if self.said.first().is_some_and(|it| it.role == Role::Assistant) {
            let content = vec![text("(The beginning of the conversation is not shown.)")];
            self.said.insert(0, Said { role: Role::User, content });
        }
        match self.said.last() {
            None => self.push(Role::User, vec![text("(empty message)")]),
            // Newer models do not go on with what they have begun.
            Some(it) if it.role == Role::Assistant => {
                self.push(Role::User, vec![text("Continue.")]);
            }
            Some(_) => (),
        }
        self.said
    }

    fn push(&mut self, role: Role, content: Vec<Value>) {
        match self.said.last_mut() {
            _ if content.is_empty() => (),
            Some(last) if last.role == role => last.content.extend(content),
            _ => self.said.push(Said { role, content }),
        }
    }

    fn add_user(&mut self, content: &Content) {
        self.place_results();
        let blocks = self.blocks(content);
        let is_empty = blocks.is_empty();
        self.push(Role::User, if is_empty { vec![text("(empty message)")] } else { blocks });
    }

    fn add_answer(&mut self, answer: &Assistant) {
        self.place_results();
        self.ids.begin_answer();
        let (own, keeps) = (self.origin.gave(answer), self.origin.takes_back(answer));
        let mut content = Vec::new();
        for block in &answer.content {
            content.extend(match block {
                Block::Text(it) if !it.text.trim().is_empty() => Some(text(&it.text)),
                Block::Thinking(it) if keeps => self.thought(it),
                Block::ToolCall(it) => Some(self.call(it, own)),
                _ => None,
            });
        }
        // A message that ends with a thought is refused.
        while content.last().is_some_and(is_thought) {
            content.pop();
        }
        self.push(Role::Assistant, content);
    }

    fn thought(&self, thought: &Thinking) -> Option<Value> {
        let signature = thought.thinking_signature.as_deref().filter(|it| !it.is_empty());
        match signature {
            Some(it) if thought.redacted == Some(true) => {
                Some(json!({"type": "redacted_thinking", "data": it}))
            }
            None if !self.sends_unsigned || thought.thinking.is_empty() => None,
            it => Some(json!({"type": "thinking", "thinking": thought.thinking,
                "signature": it.unwrap_or_default()})),
        }
    }

    fn call(&mut self, call: &ToolCall, own: bool) -> Value {
        let id = self.ids.of_call(call, own && is_plain(&call.id));
        self.open.push(OpenCall { id: id.clone(), result: None });
        let input = if call.arguments.is_object() { call.arguments.clone() } else { json!({}) };
        json!({"type": "tool_use", "id": id, "name": sound_name(&call.name), "input": input})
    }

    fn add_result(&mut self, result: &ToolResult) {
        let Some(id) = self.ids.of_result(&result.tool_call_id) else { return };
        let mut content = self.blocks(&result.content);
        if content.is_empty() {
            content.push(text("(no output)"));
        }
        if let Some(call) = self.open.iter_mut().find(|it| it.id == id) {
            call.result = Some(result_block(&id, content, result.is_error));
        }
    }

    /// Puts the results of the last answer behind it, one for each call.
    fn place_results(&mut self) {
        let results = mem::take(&mut self.open).into_iter().map(|call| {
            let lost = || result_block(&call.id, vec![text("(The result is not known.)")], true);
            call.result.unwrap_or_else(lost)
        });
        let results = results.collect();
        self.push(Role::User, results);
    }

    /// Texts and images, those that are taken.
    fn blocks(&self, content: &Content) -> Vec<Value> {
        let blocks = match content {
            Content::Text(it) => return written(it).into_iter().collect(),
            Content::Blocks(blocks) => blocks.iter(),
        };
        let blocks = blocks.filter_map(|it| match it {
            Block::Text(it) => written(&it.text),
            Block::Image(it) => Some(self.image(it)),
            Block::Thinking(_) | Block::ToolCall(_) | Block::Unknown(_) => None,
        });
        blocks.collect()
    }

    fn image(&self, image: &Image) -> Value {
        let media_type = image.mime_type.as_str();
        if !self.shows_images {
            return text("(An image was left out: this model reads text only.)");
        }
        if image.data.is_empty() || !IMAGE_TYPES.contains(&media_type) {
            return text("(An image was left out: it is of no type that is read here.)");
        }
        let source = json!({"type": "base64", "media_type": media_type, "data": image.data});
        json!({"type": "image", "source": source})
    }
}

/// Whether results go to a turn whose first answer begins without a thought: a
/// model with a budget takes that only if it is not to think.
fn begins_without_thinking(messages: &[Said]) -> bool {
    let has_results = |it: &Said| it.content.first().is_some_and(|it| it["type"] == "tool_result");
    if !messages.last().is_some_and(has_results) {
        return false;
    }
    let start = messages.iter().rposition(|it| it.role == Role::User && !has_results(it));
    let mut turn = messages.iter().skip(start.map_or(0, |it| it + 1));
    let first = turn.find(|it| it.role == Role::Assistant).and_then(|it| it.content.first());
    !first.is_some_and(is_thought)
}

/// Marks the end of the newest user messages for the cache: of the last, and
/// of the one before, which was the last when it was written to the cache.
fn mark(messages: &mut [Said]) {
    let users = messages.iter_mut().rev().filter(|it| it.role == Role::User);
    for last in users.take(MARKED_MESSAGES).filter_map(|it| it.content.last_mut()) {
        last["cache_control"] = for_the_cache();
    }
}

fn is_thought(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

fn result_block(id: &str, content: Vec<Value>, is_error: bool) -> Value {
    let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": content});
    if is_error {
        block["is_error"] = json!(true);
    }
    block
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// The block of a text; white space alone is refused.
fn written(it: &str) -> Option<Value> {
    (!it.trim().is_empty()).then(|| text(it))
}

fn is_plain(id: &str) -> bool {
    id.bytes().all(|it| it.is_ascii_alphanumeric() || b"_-".contains(&it))
}
