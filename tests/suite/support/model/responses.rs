//! Responses as OpenAI sees them: it refuses a field that it does not know,
//! and for ever a history in which a call lacks its output, or a reasoning item
//! what followed it. What this server seals it knows again, and nothing else.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::chat::{Findings, is_tool_name};
use super::script::{Answer, Part, Said, Stop};

/// The fields that a request may have.
const REQUEST: &[&str] = &[
    "model",
    "instructions",
    "input",
    "stream",
    "store",
    "tools",
    "include",
    "reasoning",
    "max_output_tokens",
    "temperature",
    "prompt_cache_key",
];

/// Words for how hard a model thinks.
const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// Longest id.
const LONGEST_ID: usize = 64;

/// All that is wrong with a request's body.
pub(super) fn body(body: &Value) -> Vec<String> {
    let mut found = Findings::default();
    let object = found.object(body, "the request", REQUEST);
    found.text(&object["model"], "model");
    found.unless(object["stream"] == true, || "stream is not true".into());
    found.unless(object["store"] == false, || "store is not false".into());
    if object.get("instructions").is_some() {
        found.text(&object["instructions"], "instructions");
    }
    if let Some(include) = object.get("include") {
        let is_known = *include == json!(["reasoning.encrypted_content"]);
        found.unless(is_known, || format!("include is {include}"));
    }
    if let Some(reasoning) = object.get("reasoning") {
        let reasoning = found.object(reasoning, "reasoning", &["effort", "summary"]);
        let effort = reasoning["effort"].as_str().unwrap_or_default();
        found.unless(EFFORTS.contains(&effort), || format!("effort {effort:?}"));
        let summary = &reasoning["summary"];
        found.unless(summary.is_null() || summary == "auto", || format!("summary {summary}"));
        found.unless(object["temperature"].is_null(), || "a temperature while it thinks".into());
    }
    let limit = &object["max_output_tokens"];
    let is_sound = limit.is_null() || limit.as_u64().is_some_and(|it| it >= 16);
    found.unless(is_sound, || format!("max_output_tokens is {limit}"));
    if let Some(tools) = object.get("tools") {
        check_tools(&mut found, tools);
    }
    let mut input = Input::default();
    for (index, item) in found.list(&object["input"], "input").iter().enumerate() {
        input.item(&mut found, item, &format!("input[{index}]"));
    }
    input.end(&mut found);
    found.0
}

fn check_tools(found: &mut Findings, tools: &Value) {
    let mut names = BTreeSet::new();
    for (index, tool) in found.list(tools, "tools").iter().enumerate() {
        let place = format!("tools[{index}]");
        let fields = ["type", "name", "description", "parameters", "strict"];
        let tool = found.object(tool, &place, &fields);
        found.unless(tool["type"] == "function", || format!("{place}.type: {tool}"));
        found.unless(tool["strict"] == false, || format!("{place}.strict: {tool}"));
        let name = found.text(&tool["name"], &place).to_owned();
        found.unless(is_tool_name(&name), || format!("{place} is called {name:?}"));
        found.unless(names.insert(name.clone()), || format!("{name} stands there twice"));
        let parameters = &tool["parameters"];
        let is_sound = parameters["type"] == "object" && parameters["properties"].is_object();
        found.unless(is_sound, || format!("{place}.parameters: {parameters}"));
    }
}

/// What of the input's items hangs together.
#[derive(Default)]
struct Input {
    /// Calls that have no output yet.
    open: Vec<String>,
    /// Ids of calls, and of items.
    calls: BTreeSet<String>,
    items: BTreeSet<String>,
    /// The reasoning item that the next item must follow.
    thought: Option<String>,
    last: String,
}

impl Input {
    fn item(&mut self, found: &mut Findings, item: &Value, place: &str) {
        let role = item["role"].as_str().unwrap_or_default();
        let kind = item["type"].as_str().unwrap_or_default();
        let is_own = kind == "function_call" || kind == "reasoning" || role == "assistant";
        if let Some(id) = self.thought.take_if(|_| kind != "reasoning" || !is_own) {
            found.unless(is_own, || format!("{place}: {id} without its required following item"));
        }
        self.last = if is_own { "own".into() } else { kind.to_owned() };
        match (kind, role) {
            ("message", "user") => {
                let it = found.object(item, place, &["type", "role", "content"]);
                parts(found, &it["content"], place);
                let open = &self.open;
                found.unless(open.is_empty(), || format!("{place}: no output for {open:?}"));
            }
            ("message", "assistant") => self.said(found, item, place),
            ("reasoning", "") => self.thought(found, item, place),
            ("function_call", "") => self.call(found, item, place),
            ("function_call_output", "") => self.output(found, item, place),
            _ => found.0.push(format!("{place} is of type {kind:?} and role {role:?}")),
        }
    }

    fn end(&mut self, found: &mut Findings) {
        let Self { open, thought, last, .. } = self;
        found.unless(open.is_empty(), || format!("no output at the end for {open:?}"));
        found.unless(thought.is_none(), || format!("{thought:?} at the end, alone"));
        found.unless(last != "own", || "the model itself speaks last".into());
    }

    fn said(&mut self, found: &mut Findings, item: &Value, place: &str) {
        let fields = ["type", "role", "content", "id", "status", "phase"];
        let it = found.object(item, place, &fields);
        let has_id = it.get("id").is_some();
        // The form with an id is that of an output, and has all of its fields.
        let status = &it["status"];
        found.unless(status.is_null() != has_id, || format!("{place}: status {status}"));
        found.unless(has_id || it["phase"].is_null(), || format!("{place}: a phase"));
        if has_id {
            self.item_id(found, &it["id"], "msg", place);
        }
        for part in found.list(&it["content"], place) {
            let part = found.object(part, place, &["type", "text", "annotations"]);
            found.unless(part["type"] == "output_text", || format!("{place}: {part}"));
            found.unless(part["annotations"].is_array() == has_id, || format!("{place}: {part}"));
            found.text(&part["text"], place);
        }
    }

    fn thought(&mut self, found: &mut Findings, item: &Value, place: &str) {
        let it = found.object(item, place, &["type", "id", "summary", "encrypted_content"]);
        self.item_id(found, &it["id"], "rs", place);
        let id = it["id"].as_str().unwrap_or_default();
        let content = it["encrypted_content"].as_str().unwrap_or_default();
        let is_own = content.starts_with(&sealed(id, ""));
        found.unless(is_own, || format!("{place}: {content:?} could not be verified"));
        found.unless(it["summary"].is_array(), || format!("{place}: summary {}", it["summary"]));
        self.thought = Some(id.to_owned());
    }

    fn call(&mut self, found: &mut Findings, item: &Value, place: &str) {
        let it = found.object(item, place, &["type", "call_id", "name", "arguments", "id"]);
        if it.get("id").is_some() {
            self.item_id(found, &it["id"], "fc", place);
        }
        let id = id(found, &it["call_id"], "", place);
        found.unless(self.calls.insert(id.clone()), || format!("{place}: {id} a second time"));
        self.open.push(id);
        let name = found.text(&it["name"], place);
        found.unless(is_tool_name(name), || format!("{place}: a call of {name:?}"));
        let arguments = it["arguments"].as_str().map(serde_json::from_str::<Value>);
        let is_object = arguments.is_some_and(|it| it.is_ok_and(|it| it.is_object()));
        found.unless(is_object, || format!("{place}: arguments {}", it["arguments"]));
    }

    fn output(&mut self, found: &mut Findings, item: &Value, place: &str) {
        let it = found.object(item, place, &["type", "call_id", "output"]);
        let id = it["call_id"].as_str().unwrap_or_default();
        match self.open.iter().position(|it| it == id) {
            Some(call) => drop(self.open.remove(call)),
            None => found.0.push(format!("{place} is the output of {id:?}, which is not open")),
        }
        if !it["output"].is_string() {
            parts(found, &it["output"], place);
        }
    }

    /// The id of an item: given once, and with the thinking that it came with.
    fn item_id(&mut self, found: &mut Findings, value: &Value, kind: &str, place: &str) {
        let id = id(found, value, kind, place);
        if let Some((_, thought)) = id.split_once("_of_") {
            let has_thought = self.items.contains(thought);
            found.unless(has_thought, || format!("{id} without its required {thought}"));
        }
        found.unless(self.items.insert(id.clone()), || format!("{place}: {id} a second time"));
    }
}

fn id(found: &mut Findings, value: &Value, begins: &str, place: &str) -> String {
    let id = found.text(value, place).to_owned();
    let is_sound = id.len() <= LONGEST_ID && id.bytes().all(|it| it.is_ascii_graphic());
    found.unless(is_sound && id.starts_with(begins), || format!("{place}: the id {id:?}"));
    id
}

/// Texts and images; never none.
fn parts(found: &mut Findings, content: &Value, place: &str) {
    for part in found.list(content, place) {
        if part["type"] == "input_image" {
            let part = found.object(part, place, &["type", "image_url", "detail"]);
            let url = found.text(&part["image_url"], place);
            found.unless(url.starts_with("data:image/"), || format!("{place}: an image {url}"));
        } else {
            let part = found.object(part, place, &["type", "text"]);
            found.unless(part["type"] == "input_text", || format!("{place}: {part}"));
            found.text(&part["text"], place);
        }
    }
}

/// The texts of the messages, each after its role; what the model said between
/// two others is one.
pub(super) fn said(body: &Value) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(text) = body["instructions"].as_str() {
        said.push(format!("system: {text}"));
    }
    let mut speaks = false;
    for item in body["input"].as_array().into_iter().flatten() {
        let (role, text) = match (item["type"].as_str(), item["role"].as_str()) {
            (Some("message"), Some(role)) => (role, text_of(&item["content"])),
            (Some("function_call_output"), _) => ("tool", text_of(&item["output"])),
            (Some("function_call"), _) => ("assistant", call_of(item)),
            _ => continue,
        };
        let goes_on = std::mem::replace(&mut speaks, role == "assistant") && speaks;
        match said.last_mut() {
            Some(it) if goes_on => it.push_str(&text),
            _ => said.push(format!("{role}: {text}")),
        }
    }
    said
}

fn text_of(content: &Value) -> String {
    match content {
        Value::Array(parts) => parts.iter().filter_map(|it| it["text"].as_str()).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

fn call_of(item: &Value) -> String {
    let word = |name: &str| item[name].as_str().unwrap_or("?").to_owned();
    format!("<{} {}>", word("name"), word("arguments"))
}

/// A whole answer.
pub(super) fn answer(said: &Said) -> Answer {
    let mut answer = Answer::stream().begun();
    let (mut output, mut thought) = (Vec::new(), None);
    for part in &said.parts {
        let item = match part {
            Part::Thinking(text, seal) => reasoning_item(text, seal.as_deref().unwrap_or("")),
            Part::Text(text) => message_item(text, thought.as_deref()),
            Part::Call(id, tool, arguments) => call_item(id, tool, arguments, thought.as_deref()),
        };
        if item["type"] == "reasoning" {
            thought = item["id"].as_str().map(str::to_owned);
        }
        answer = answer.item(output.len(), &item);
        output.push(item);
    }
    let usage = json!({"input_tokens": said.input, "output_tokens": said.output,
        "input_tokens_details": {"cached_tokens": 0}, "total_tokens": said.input + said.output});
    match said.stop {
        Stop::End | Stop::ToolUse => answer.ends("completed", output, json!({ "usage": usage })),
        Stop::Length => {
            let why = json!({"reason": "max_output_tokens"});
            answer.ends("incomplete", output, json!({"usage": usage, "incomplete_details": why}))
        }
    }
}

/// A reasoning item that this server knows again.
pub(crate) fn reasoning_item(text: &str, seal: &str) -> Value {
    let id = fresh("rs", None);
    let part = json!({"type": "summary_text", "text": text});
    let summary: Vec<Value> = (!text.is_empty()).then_some(part).into_iter().collect();
    json!({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": sealed(&id, seal)})
}

/// A message, said after that thinking.
pub(crate) fn message_item(text: &str, thought: Option<&str>) -> Value {
    let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    json!({"type": "message", "id": fresh("msg", thought), "status": "completed",
        "role": "assistant", "content": [part]})
}

/// A call, made after that thinking.
pub(crate) fn call_item(id: &str, tool: &str, arguments: &str, thought: Option<&str>) -> Value {
    json!({"type": "function_call", "id": fresh("fc", thought), "status": "completed",
        "call_id": id, "name": tool, "arguments": arguments})
}

/// What only this server understands, for the item of that id.
fn sealed(id: &str, seal: &str) -> String {
    format!("sealed:{id}:{seal}")
}

/// An id that no other item has; it tells of the thinking before it.
fn fresh(kind: &str, thought: Option<&str>) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(1);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let of = thought.map(|it| format!("_of_{it}")).unwrap_or_default();
    format!("{kind}_{number}{of}")
}

impl Answer {
    /// An event of a response.
    pub(crate) fn response(self, kind: &str, mut fields: Value) -> Self {
        let name = format!("response.{kind}");
        fields["type"] = json!(name);
        self.named(&name, &fields)
    }

    /// The events before the first item.
    pub(crate) fn begun(self) -> Self {
        let response = json!({"id": "resp_1", "object": "response", "status": "in_progress",
            "model": "m", "output": [], "error": null, "usage": null});
        self.response("created", json!({ "response": response }))
            .response("in_progress", json!({ "response": response }))
    }

    /// All events of an item, in pieces.
    pub(crate) fn item(self, index: usize, item: &Value) -> Self {
        let begun = self.item_begins(index, item);
        let told = match item["type"].as_str() {
            Some("message") => begun.told(index, item, "output_text", &item["content"][0]["text"]),
            Some("reasoning") => {
                item["summary"].as_array().into_iter().flatten().fold(begun, |answer, part| {
                    answer.told(index, item, "reasoning_summary_text", &part["text"])
                })
            }
            _ => begun.told(index, item, "function_call_arguments", &item["arguments"]),
        };
        told.item_ends(index, item)
    }

    /// An item, of which nothing has come yet.
    pub(crate) fn item_begins(self, index: usize, item: &Value) -> Self {
        let mut empty = item.clone();
        for (field, nothing) in
            [("content", json!([])), ("summary", json!([])), ("arguments", json!(""))]
        {
            if let Some(it) = empty.get_mut(field) {
                *it = nothing;
            }
        }
        self.response("output_item.added", json!({"output_index": index, "item": empty}))
    }

    /// The end of an item, whole.
    pub(crate) fn item_ends(self, index: usize, item: &Value) -> Self {
        self.response("output_item.done", json!({"output_index": index, "item": item}))
    }

    /// A piece of an item.
    pub(crate) fn piece(self, index: usize, item: &Value, kind: &str, piece: &str) -> Self {
        let mut fields = place_of(index, item, kind);
        fields["delta"] = json!(piece);
        self.response(&format!("{kind}.delta"), fields)
    }

    /// A text of an item, in two pieces and then as a whole.
    fn told(self, index: usize, item: &Value, kind: &str, text: &Value) -> Self {
        let text = text.as_str().unwrap_or_default();
        let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |it| it.0);
        let (first, second) = text.split_at(middle);
        let mut done = place_of(index, item, kind);
        done[if kind.contains("arguments") { "arguments" } else { "text" }] = json!(text);
        self.piece(index, item, kind, first)
            .piece(index, item, kind, second)
            .response(&format!("{kind}.done"), done)
    }

    /// The last event: that status, these items, and what else is to be said.
    pub(crate) fn ends(self, status: &str, output: Vec<Value>, further: Value) -> Self {
        let mut response = json!({"id": "resp_1", "object": "response", "status": status,
            "model": "m", "output": output, "error": null, "incomplete_details": null});
        for (name, value) in further.as_object().into_iter().flatten() {
            response[name] = value.clone();
        }
        self.response(status, json!({ "response": response }))
    }
}

/// What an event says of its item.
fn place_of(index: usize, item: &Value, kind: &str) -> Value {
    let mut place = json!({"item_id": item["id"], "output_index": index});
    match kind {
        "output_text" => place["content_index"] = json!(0),
        "reasoning_summary_text" => place["summary_index"] = json!(0),
        _ => (),
    }
    place
}

#[track_caller]
fn check_input(input: Value, want: &str) {
    let found = body(&json!({"model": "m", "stream": true, "store": false, "input": input}));
    let found = found.join("; ");
    assert!(found.contains(want) && found.is_empty() == want.is_empty(), "{found:?}");
}

#[test]
fn a_history_is_held_against_what_openai_takes() {
    let part = json!({"type": "input_text", "text": "hi"});
    let user = json!({"type": "message", "role": "user", "content": [part]});
    let thought = reasoning_item("hm", "");
    let id = thought["id"].as_str();
    let call = |item: Option<&str>| {
        let mut call = json!({"type": "function_call", "call_id": "c1", "name": "exec",
            "arguments": "{}"});
        if let Some(item) = item {
            call["id"] = json!(item);
        }
        call
    };
    let output = json!({"type": "function_call_output", "call_id": "c1", "output": ""});
    let said = json!({"type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": "x"}]});
    let own = fresh("fc", id);
    check_input(json!([user]), "");
    check_input(json!([user, thought, call(Some(&own)), output, user]), "");
    check_input(json!([user, thought, said, call(None), output]), "");
    check_input(json!([user, thought]), "at the end, alone");
    check_input(json!([user, thought, user]), "without its required following item");
    check_input(json!([user, call(Some(&own)), output]), "without its required rs_");
    check_input(json!([user, thought, call(Some("call_1")), output]), "the id \"call_1\"");
    check_input(json!([user, call(None)]), "no output at the end");
    check_input(json!([user, call(None), user]), "no output for");
    check_input(json!([user, output]), "which is not open");
    check_input(json!([user, call(None), output, call(None), output]), "a second time");
    check_input(json!([user, said]), "speaks last");
    let foreign = json!({"type": "reasoning", "id": "rs_x", "summary": [],
        "encrypted_content": "EjQK"});
    check_input(json!([user, foreign, said, user]), "could not be verified");
    let mut odd = thought.clone();
    odd["status"] = json!("completed");
    check_input(json!([user, odd, said, user]), "the field `status`");
    let mut partial = said.clone();
    partial["id"] = json!("msg_1");
    check_input(json!([user, partial, user]), "status");
}
