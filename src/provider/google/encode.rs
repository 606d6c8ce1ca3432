//! The request in the dialect's words. Roles alternate, so that neighbours of
//! one role are one content; the results of an answer follow it all together
//! and in the order of its calls; the first content is a user's, and so is the
//! last. Thinking goes back only with its signature and only to its origin.
//! What says nothing is left out.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::family::Family;
use super::schema;
use crate::message::{Assistant, Block, Content, Image, Message, Text, Thinking, ToolCall};
use crate::message::{ToolResult, User};
use crate::provider::ids::Ids;
use crate::provider::{Fault, Origin, Request, ToolDefinition};

/// What the provider documents for a call that no model of its own made, or
/// whose signature is lost: the newer models refuse one without any.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Images that all models read.
const READABLE: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];

/// Images that may stand within the result of a tool.
const READABLE_WITHIN: [&str; 3] = ["image/png", "image/jpeg", "image/webp"];

const IMAGE_LEFT_OUT: &str = "(An image was left out: this model reads text only.)";

/// Longest name of a function.
const LONGEST_NAME: usize = 64;

/// The body of the request. The conversation is the most of it, so it is
/// written from where it was put together and not copied once more.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    contents: Vec<Turn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    generation_config: Map<String, Value>,
}

/// The body of the request, as JSON.
pub(super) fn body(request: &Request<'_>, origin: &Origin<'_>) -> Result<Vec<u8>, Fault> {
    let family = Family::of(&request.model.model);
    let system = Some(request.system).filter(|it| !it.trim().is_empty());
    let body = Body {
        contents: contents(request, origin, family),
        system_instruction: system.map(|it| json!({"parts": [{"text": it}]})),
        tools: tools(request.tools),
        generation_config: generation(request, family),
    };
    serde_json::to_vec(&body).map_err(|it| Fault::Ours(format!("cannot write the request: {it}")))
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
    let limit = request.max_tokens.or(request.facts.max_tokens);
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
struct Turn {
    role: Role,
    parts: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Model,
}

/// A call of the last answer.
#[derive(Debug)]
struct OpenCall {
    id: String,
    name: String,
    /// What came of it, as a `functionResponse`.
    result: Option<Value>,
    /// Images of it that may not stand within the result.
    shown: Vec<Value>,
}

/// The conversation on its way to the wire.
struct Conversation<'a> {
    origin: &'a Origin<'a>,
    family: Family,
    shows_images: bool,
    ids: Ids,
    open: Vec<OpenCall>,
    turns: Vec<Turn>,
}

fn contents(request: &Request<'_>, origin: &Origin<'_>, family: Family) -> Vec<Turn> {
    let mut conversation = Conversation {
        origin,
        family,
        shows_images: request.facts.images == Some(true),
        ids: Ids::default(),
        open: Vec::new(),
        turns: Vec::new(),
    };
    for message in request.messages {
        conversation.add(message);
    }
    conversation.answer_calls();
    conversation.begin_and_end_with_user();
    conversation.turns
}

impl Conversation<'_> {
    fn add(&mut self, message: &Message) {
        if !matches!(message, Message::ToolResult(_)) {
            self.answer_calls();
        }
        match message {
            Message::User(it) => self.add_user(it),
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

    fn add_user(&mut self, user: &User) {
        let parts: Vec<Value> = match &user.content {
            Content::Text(text) => text_part(text).into_iter().collect(),
            Content::Blocks(blocks) => blocks.iter().filter_map(|it| self.user_part(it)).collect(),
        };
        self.say(Role::User, if parts.is_empty() { vec![text("(empty message)")] } else { parts });
    }

    fn user_part(&self, block: &Block) -> Option<Value> {
        match block {
            Block::Text(it) => text_part(&it.text),
            Block::Image(it) => match self.why_left_out(it) {
                None => Some(image_part(it)),
                Some(note) => Some(text(&note)),
            },
            Block::Thinking(_) | Block::ToolCall(_) | Block::Unknown(_) => None,
        }
    }

    /// Why an image is not shown; none if it is.
    fn why_left_out(&self, image: &Image) -> Option<String> {
        if !self.shows_images {
            return Some(IMAGE_LEFT_OUT.into());
        }
        let kind = &image.mime_type;
        let is_readable = READABLE.contains(&kind.as_str());
        (!is_readable).then(|| format!("(An image was left out: this model reads no {kind}.)"))
    }

    fn add_answer(&mut self, answer: &Assistant) {
        self.ids.begin_answer();
        let keeps = self.origin.takes_back(answer);
        let mut parts: Vec<Value> = Vec::new();
        for block in &answer.content {
            parts.extend(match block {
                Block::Text(it) => said_part(it, keeps),
                Block::Thinking(it) if keeps => thought_part(it),
                Block::ToolCall(it) => Some(self.call(it, answer, keeps)),
                Block::Thinking(_) | Block::Image(_) | Block::Unknown(_) => None,
            });
        }
        if parts.iter().any(says_something) {
            self.say(Role::Model, parts);
        }
    }

    fn call(&mut self, call: &ToolCall, answer: &Assistant, keeps: bool) -> Value {
        let is_first = self.open.is_empty();
        let id = self.ids.of_call(call, self.origin.gave(answer));
        let name = sound_name(&call.name);
        let arguments = match &call.arguments {
            it @ Value::Object(_) => it.clone(),
            _ => json!({}),
        };
        let mut sent = json!({"functionCall": {"id": id, "name": name, "args": arguments}});
        let signature = signature(call.thought_signature.as_deref(), keeps);
        // Of the calls of one answer only the first has one.
        let stand_in = (is_first && self.family.wants_signatures()).then_some(NO_SIGNATURE);
        if let Some(signature) = signature.or(stand_in) {
            sent["thoughtSignature"] = json!(signature);
        }
        self.open.push(OpenCall { id, name, result: None, shown: Vec::new() });
        sent
    }

    fn add_result(&mut self, result: &ToolResult) {
        let Some(id) = self.ids.of_result(&result.tool_call_id) else { return };
        let Some(place) = self.open.iter().position(|it| it.id == id) else { return };
        let mut said = result.content.text();
        let (mut within, mut shown) = (Vec::new(), Vec::new());
        for image in images(&result.content) {
            let may_stand_within =
                self.family.sees_results() && READABLE_WITHIN.contains(&image.mime_type.as_str());
            let note = match self.why_left_out(image) {
                Some(note) => note,
                None if may_stand_within => {
                    within.push(image_part(image));
                    continue;
                }
                None => {
                    shown.push(image_part(image));
                    "(The image follows.)".into()
                }
            };
            said = joined(said, &note);
        }
        let call = &mut self.open[place];
        if !shown.is_empty() {
            shown.insert(0, text(&format!("What `{}` returned as an image:", call.name)));
        }
        call.result = Some(result_part(&id, &call.name, said, result.is_error, within));
        call.shown = shown;
    }

    /// Ends the answer before: a result for each of its calls, in their order,
    /// and behind all of them the images that they returned.
    fn answer_calls(&mut self) {
        let (mut results, mut shown) = (Vec::new(), Vec::new());
        for call in std::mem::take(&mut self.open) {
            let OpenCall { id, name, result, shown: of_call } = call;
            let lost = || result_part(&id, &name, "There is no result.".into(), true, Vec::new());
            results.push(result.unwrap_or_else(lost));
            shown.extend(of_call);
        }
        results.append(&mut shown);
        if !results.is_empty() {
            self.say(Role::User, results);
        }
    }

    fn say(&mut self, role: Role, mut parts: Vec<Value>) {
        match self.turns.last_mut().filter(|it| it.role == role) {
            Some(turn) => turn.parts.append(&mut parts),
            None => self.turns.push(Turn { role, parts }),
        }
    }

    fn begin_and_end_with_user(&mut self) {
        if self.turns.first().is_none_or(|it| it.role != Role::User) {
            let parts = vec![text("(The beginning of the conversation is left out.)")];
            self.turns.insert(0, Turn { role: Role::User, parts });
        }
        if self.turns.last().is_some_and(|it| it.role != Role::User) {
            self.say(Role::User, vec![text("(Go on.)")]);
        }
    }
}

/// A part of an answer's text; what is empty and has no signature says nothing.
fn said_part(said: &Text, keeps: bool) -> Option<Value> {
    match signature(said.text_signature.as_deref(), keeps) {
        Some(signature) => Some(json!({"text": said.text, "thoughtSignature": signature})),
        None => text_part(&said.text),
    }
}

/// A thought as it came; without a signature it means nothing to the model.
fn thought_part(thought: &Thinking) -> Option<Value> {
    let signature = signature(thought.thinking_signature.as_deref(), true)?;
    Some(json!({"text": thought.thinking, "thought": true, "thoughtSignature": signature}))
}

/// A signature that may go back. It is base64; what another program stored may
/// not be, and is refused with the whole request.
fn signature(signature: Option<&str>, keeps: bool) -> Option<&str> {
    let is_base64 = |it: u8| it.is_ascii_alphanumeric() || b"+/-_=".contains(&it);
    signature.filter(|it| keeps && !it.is_empty() && it.bytes().all(is_base64))
}

/// Whether a part is more than a thought or a signature: an answer of nothing
/// else is none.
fn says_something(part: &Value) -> bool {
    let has_text = part["text"].as_str().is_some_and(|it| !it.trim().is_empty());
    part.get("functionCall").is_some() || (has_text && part.get("thought").is_none())
}

fn result_part(id: &str, name: &str, said: String, is_error: bool, images: Vec<Value>) -> Value {
    let said = if said.trim().is_empty() { "(no output)".into() } else { said };
    let field = if is_error { "error" } else { "output" };
    let mut result = json!({"id": id, "name": name, "response": {field: said}});
    if !images.is_empty() {
        result["parts"] = Value::Array(images);
    }
    json!({"functionResponse": result})
}

/// A tool's name as it may stand in a call: models make some up that their own
/// server then refuses.
fn sound_name(name: &str) -> String {
    let sound = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let name = name.chars().map(|it| if sound(it) { it } else { '_' });
    let name: String = name.take(LONGEST_NAME).collect();
    let begins_well = |it: char| it.is_ascii_alphabetic() || it == '_';
    match name.chars().next() {
        None => "unnamed".into(),
        Some(it) if begins_well(it) => name,
        Some(_) => format!("_{}", &name[..name.len().min(LONGEST_NAME - 1)]),
    }
}

fn joined(said: String, note: &str) -> String {
    if said.is_empty() { note.to_owned() } else { format!("{said}\n{note}") }
}

fn text(text: &str) -> Value {
    json!({ "text": text })
}

fn text_part(said: &str) -> Option<Value> {
    (!said.trim().is_empty()).then(|| text(said))
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
    json!({"inlineData": {"mimeType": image.mime_type, "data": image.data}})
}
