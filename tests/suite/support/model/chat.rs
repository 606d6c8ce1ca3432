//! Chat completions as their strictest servers see them: they refuse a field
//! that they do not know, and for ever a history in which a call lacks its
//! result.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::script::{Answer, Part, Said};
use super::wire::Head;

/// The fields that each object of a request may have.
const REQUEST: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_completion_tokens",
    "max_tokens",
    "reasoning_effort",
    "temperature",
    "tools",
];

/// Longest id of a call that servers take.
const LONGEST_ID: usize = 64;

/// All that is wrong with a request's head.
pub(super) fn head(head: &Head, key: &str) -> Vec<String> {
    let mut found = Findings::default();
    let authorization = head.all("authorization");
    found.unless(authorization == [format!("Bearer {key}")], || {
        format!("authorization is {authorization:?}")
    });
    found.0
}

/// All that is wrong with a request's body.
pub(super) fn body(body: &Value) -> Vec<String> {
    let mut found = Findings::default();
    let object = found.object(body, "the request", REQUEST);
    found.text(&object["model"], "model");
    found.unless(object["stream"] == true, || "stream is not true".into());
    if !object["stream_options"].is_null() {
        let options = found.object(&object["stream_options"], "stream_options", &["include_usage"]);
        found.unless(options["include_usage"].is_boolean(), || "include_usage".into());
    }
    for limit in ["max_completion_tokens", "max_tokens"] {
        let value = &object[limit];
        let is_sound = value.is_null() || value.as_u64().is_some_and(|it| it > 0);
        found.unless(is_sound, || format!("{limit} is {value}"));
    }
    found.tools(&object["tools"]);
    found.messages(&object["messages"]);
    found.0
}

/// What is found wrong with a request.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<String>);

impl Findings {
    pub(super) fn unless(&mut self, is_sound: bool, what: impl FnOnce() -> String) {
        if !is_sound {
            self.0.push(what());
        }
    }

    /// It as an object; a field that is not in `allowed`, or `null` where only
    /// absent is right, is a fault. Absent fields read as null.
    pub(super) fn object(&mut self, value: &Value, place: &str, allowed: &[&str]) -> Value {
        let empty = Map::new();
        let object = value.as_object().unwrap_or_else(|| {
            self.0.push(format!("{place} is not an object: {value}"));
            &empty
        });
        for (name, field) in object {
            let is_known = allowed.contains(&name.as_str());
            self.unless(is_known, || format!("{place} has the field `{name}`: {field}"));
        }
        Value::Object(object.clone())
    }

    pub(super) fn text<'a>(&mut self, value: &'a Value, place: &str) -> &'a str {
        let text = value.as_str().unwrap_or_default();
        self.unless(!text.is_empty(), || format!("{place} is not a text with content: {value}"));
        text
    }

    pub(super) fn list<'a>(&mut self, value: &'a Value, place: &str) -> &'a [Value] {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        self.unless(!items.is_empty(), || format!("{place} is not a list with content: {value}"));
        items
    }

    fn tools(&mut self, tools: &Value) {
        if tools.is_null() {
            return;
        }
        let mut names = BTreeSet::new();
        for (index, tool) in self.list(tools, "tools").iter().enumerate() {
            let place = format!("tools[{index}]");
            let tool = self.object(tool, &place, &["type", "function"]);
            self.unless(tool["type"] == "function", || format!("{place}.type: {tool}"));
            let fields = ["name", "description", "parameters", "strict"];
            let function = self.object(&tool["function"], &place, &fields);
            let name = self.text(&function["name"], &place).to_owned();
            self.unless(is_tool_name(&name), || format!("{place} is called {name:?}"));
            self.unless(names.insert(name.clone()), || format!("{name} stands there twice"));
            let kind = &function["parameters"]["type"];
            self.unless(kind == "object", || format!("{place}.parameters are of type {kind}"));
        }
    }

    fn messages(&mut self, messages: &Value) {
        let messages = self.list(messages, "messages");
        let mut ids = BTreeSet::new();
        // Calls of the answer before that have no result yet.
        let mut open: Vec<String> = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            let place = format!("messages[{index}]");
            let role = message["role"].as_str().unwrap_or_default();
            let is_first = index == 0;
            self.unless((role == "system") == is_first, || format!("{place} is of role {role}"));
            if role == "tool" {
                self.result(message, &place, &mut open);
                continue;
            }
            self.unless(open.is_empty(), || format!("{place}: no result before it for {open:?}"));
            open.clear();
            match role {
                "system" => {
                    let it = self.object(message, &place, &["role", "content"]);
                    self.content(&it["content"], &place, &["text"]);
                }
                "user" => {
                    let it = self.object(message, &place, &["role", "content"]);
                    self.content(&it["content"], &place, &["text", "image_url"]);
                }
                "assistant" => open = self.answer(message, &place, &mut ids),
                _ => self.0.push(format!("{place} has the role {role:?}")),
            }
        }
        self.unless(open.is_empty(), || format!("no result at the end for {open:?}"));
        let last = messages.last().map_or("", |it| it["role"].as_str().unwrap_or_default());
        self.unless(["user", "tool"].contains(&last), || format!("the last role is {last}"));
    }

    /// One result; takes its call from those that are open.
    fn result(&mut self, message: &Value, place: &str, open: &mut Vec<String>) {
        let it = self.object(message, place, &["role", "content", "tool_call_id"]);
        let id = it["tool_call_id"].as_str().unwrap_or_default();
        let call = open.iter().position(|it| it == id);
        match call {
            Some(call) => drop(open.remove(call)),
            None => self.0.push(format!("{place} is the result of {id:?}, which is not open")),
        }
        // A tool may have said nothing.
        if it["content"] != "" {
            self.content(&it["content"], place, &["text"]);
        }
    }

    /// One answer of the model; its calls.
    fn answer(&mut self, message: &Value, place: &str, ids: &mut BTreeSet<String>) -> Vec<String> {
        let it = self.object(message, place, &["role", "content", "tool_calls"]);
        if it.get("tool_calls").is_none() {
            self.content(&it["content"], place, &["text"]);
            return Vec::new();
        }
        if !it["content"].is_null() {
            self.content(&it["content"], place, &["text"]);
        }
        let calls = self.list(&it["tool_calls"], place);
        calls.iter().map(|it| self.call(it, place, ids)).collect()
    }

    fn call(&mut self, call: &Value, place: &str, ids: &mut BTreeSet<String>) -> String {
        let call = self.object(call, place, &["id", "type", "function"]);
        self.unless(call["type"] == "function", || format!("{place}: a call's type: {call}"));
        let id = self.text(&call["id"], place).to_owned();
        let is_sound = id.len() <= LONGEST_ID && id.bytes().all(|it| it.is_ascii_graphic());
        self.unless(is_sound, || format!("{place}: the id {id:?}"));
        self.unless(ids.insert(id.clone()), || format!("{place}: the id {id} a second time"));
        let function = self.object(&call["function"], place, &["name", "arguments"]);
        let name = self.text(&function["name"], place);
        self.unless(is_tool_name(name), || format!("{place}: a call of {name:?}"));
        let arguments = function["arguments"].as_str().map(serde_json::from_str::<Value>);
        let is_object = arguments.is_some_and(|it| it.is_ok_and(|it| it.is_object()));
        self.unless(is_object, || format!("{place}: arguments {}", function["arguments"]));
        id
    }

    /// A text, or parts of these types; never empty.
    fn content(&mut self, content: &Value, place: &str, types: &[&str]) {
        if content.is_string() {
            self.text(content, place);
            return;
        }
        for part in self.list(content, place) {
            let kind = part["type"].as_str().unwrap_or_default();
            self.unless(types.contains(&kind), || format!("{place}: a part of type {kind:?}"));
            if kind == "image_url" {
                let part = self.object(part, place, &["type", "image_url"]);
                let image = self.object(&part["image_url"], place, &["url", "detail"]);
                let url = self.text(&image["url"], place);
                self.unless(url.starts_with("data:image/"), || format!("{place}: an image {url}"));
            } else {
                let part = self.object(part, place, &["type", "text"]);
                self.text(&part["text"], place);
            }
        }
    }
}

/// What servers take as the name of a function.
pub(super) fn is_tool_name(name: &str) -> bool {
    let is_sound = |it: u8| it.is_ascii_alphanumeric() || b"_-".contains(&it);
    (1..=64).contains(&name.len()) && name.bytes().all(is_sound)
}

/// The texts of the messages, each after its role.
pub(super) fn said(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let role = |it: &Value| it["role"].as_str().unwrap_or("?").to_owned();
    messages.iter().map(|it| format!("{}: {}", role(it), text_of(it))).collect()
}

/// The text of a message; calls as `<tool arguments>`.
fn text_of(message: &Value) -> String {
    let mut text = match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|it| it["text"].as_str()).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let word = |name: &str| function[name].as_str().unwrap_or("?").to_owned();
        text.push_str(&format!("<{} {}>", word("name"), word("arguments")));
    }
    text
}

/// A whole answer.
pub(super) fn answer(said: &Said) -> Answer {
    let mut answer = Answer::stream();
    let mut slot = 0;
    for part in &said.parts {
        answer = match part {
            Part::Text(text) => answer.text(text),
            Part::Thinking(text, _) => {
                answer.delta(&serde_json::json!({ "reasoning_content": text }))
            }
            Part::Call(id, tool, arguments) => {
                slot += 1;
                answer.call(slot - 1, id, tool, arguments)
            }
        };
    }
    let reason = match said.stop {
        super::script::Stop::End => "stop",
        super::script::Stop::Length => "length",
        super::script::Stop::ToolUse => "tool_calls",
    };
    answer.finish(reason).usage(said.input, said.output).done()
}
