//! `generateContent` at its strictest: a field that it does not know, two
//! contents of one role, a call whose result does not follow at once, an answer
//! whose first call is unsigned, and a signature that it did not give are all
//! faults.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::script::{Answer, Part, Said, Stop};
use super::wire::Head;

/// What every signature of this server begins with.
const OWN: &str = "Goog";

/// What stands for a signature that nobody has.
const STAND_IN: &str = "skip_thought_signature_validator";

/// Keywords of a schema that are refused.
const BAD_KEYWORDS: [&str; 3] = ["$schema", "$ref", "$defs"];

/// A signature of this server that tells what it is of.
pub(crate) fn signature(of: &str) -> String {
    if of.starts_with(OWN) {
        return of.to_owned();
    }
    let letters: String = of.chars().filter(char::is_ascii_alphanumeric).collect();
    let rest = (4 - letters.len() % 4) % 4;
    format!("{OWN}{letters}{}", "A".repeat(rest))
}

/// All that is wrong with a request's head.
pub(super) fn head(head: &Head, key: &str) -> Vec<String> {
    let mut found = Findings::default();
    let keys = head.all("x-goog-api-key");
    found.unless(keys == [key], || format!("x-goog-api-key is {keys:?}"));
    let others = head.all("authorization");
    found.unless(others.is_empty(), || format!("authorization is {others:?}"));
    let id = head
        .path
        .strip_prefix("/v1beta/models/")
        .and_then(|it| it.strip_suffix(":streamGenerateContent?alt=sse"));
    let sound = |it: u8| it.is_ascii_alphanumeric() || b"-._~%".contains(&it);
    let is_sound = id.is_some_and(|it| !it.is_empty() && it.bytes().all(sound));
    found.unless(is_sound, || format!("the path is {}", head.path));
    found.0
}

/// All that is wrong with a request's body.
pub(super) fn body(body: &Value) -> Vec<String> {
    let mut found = Findings::default();
    let fields = ["contents", "systemInstruction", "tools", "generationConfig"];
    let request = found.object(body, "the request", &fields);
    if request.get("systemInstruction").is_some() {
        let place = "systemInstruction";
        let it = found.object(&request[place], place, &["parts"]);
        for part in found.list(&it["parts"], place) {
            let part = found.object(part, place, &["text"]);
            found.text(&part["text"], place);
        }
    }
    found.config(&request["generationConfig"]);
    found.tools(&request["tools"]);
    found.contents(&request["contents"]);
    found.0
}

#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn unless(&mut self, is_sound: bool, what: impl FnOnce() -> String) {
        if !is_sound {
            self.0.push(what());
        }
    }

    /// It as an object; a field that is not in `allowed` is a fault. Absent
    /// fields read as null.
    fn object(&mut self, value: &Value, place: &str, allowed: &[&str]) -> Value {
        let empty = Map::new();
        let object = value.as_object().unwrap_or_else(|| {
            self.0.push(format!("{place} is not an object: {value}"));
            &empty
        });
        for (name, field) in object {
            let is_known = allowed.contains(&name.as_str()) && !field.is_null();
            self.unless(is_known, || format!("{place} has the field `{name}`: {field}"));
        }
        Value::Object(object.clone())
    }

    fn text<'a>(&mut self, value: &'a Value, place: &str) -> &'a str {
        let text = value.as_str().unwrap_or_default();
        let is_filled = !text.trim().is_empty();
        self.unless(is_filled, || format!("{place} is not a text with content: {value}"));
        text
    }

    fn list<'a>(&mut self, value: &'a Value, place: &str) -> &'a [Value] {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        self.unless(!items.is_empty(), || format!("{place} is not a list with content: {value}"));
        items
    }

    fn config(&mut self, config: &Value) {
        if config.is_null() {
            return;
        }
        let known = ["maxOutputTokens", "temperature", "thinkingConfig"];
        let config = self.object(config, "generationConfig", &known);
        let limit = &config["maxOutputTokens"];
        let is_sound = limit.is_null() || limit.as_u64().is_some_and(|it| it > 0);
        self.unless(is_sound, || format!("maxOutputTokens is {limit}"));
        if config.get("thinkingConfig").is_none() {
            return;
        }
        let known = ["includeThoughts", "thinkingBudget", "thinkingLevel"];
        let thinking = self.object(&config["thinkingConfig"], "thinkingConfig", &known);
        let told = [&thinking["thinkingBudget"], &thinking["thinkingLevel"]];
        let is_one = told.iter().filter(|it| !it.is_null()).count() == 1;
        self.unless(is_one, || format!("thinkingConfig is {thinking}"));
    }

    fn tools(&mut self, tools: &Value) {
        if tools.is_null() {
            return;
        }
        let mut names = BTreeSet::new();
        for tool in self.list(tools, "tools") {
            let tool = self.object(tool, "tools", &["functionDeclarations"]);
            for function in self.list(&tool["functionDeclarations"], "functionDeclarations") {
                let known = ["name", "description", "parametersJsonSchema"];
                let function = self.object(function, "a function", &known);
                let name = function["name"].as_str().unwrap_or_default().to_owned();
                self.unless(is_tool_name(&name), || format!("a function is called {name:?}"));
                self.unless(names.insert(name.clone()), || format!("{name} stands there twice"));
                self.schema(&function["parametersJsonSchema"], &name);
            }
        }
    }

    fn schema(&mut self, schema: &Value, name: &str) {
        if schema.is_null() {
            return;
        }
        let properties = schema["properties"].as_object().map_or(0, Map::len);
        let is_object = schema["type"] == "object" && properties > 0;
        self.unless(is_object, || format!("the schema of {name} is {schema}"));
        let text = schema.to_string();
        for bad in BAD_KEYWORDS {
            let has_it = text.contains(&format!("\"{bad}\":"));
            self.unless(!has_it, || format!("the schema of {name} has {bad}: {schema}"));
        }
    }

    fn contents(&mut self, contents: &Value) {
        let contents = self.list(contents, "contents");
        let mut ids = BTreeSet::new();
        // Calls of the content before, as id and name.
        let mut open: Vec<(String, String)> = Vec::new();
        for (index, content) in contents.iter().enumerate() {
            let place = format!("contents[{index}]");
            let it = self.object(content, &place, &["role", "parts"]);
            let role = if index % 2 == 0 { "user" } else { "model" };
            self.unless(it["role"] == role, || format!("{place} is of role {}", it["role"]));
            let parts = self.list(&it["parts"], &place).to_vec();
            self.results(&parts, &place, &open);
            open.clear();
            for part in &parts {
                if role == "user" {
                    self.user_part(part, &place);
                } else {
                    self.model_part(part, &place, &mut open, &mut ids);
                }
            }
        }
        let ends_with_user = contents.len() % 2 == 1;
        self.unless(ends_with_user, || "the last content is the model's".into());
    }

    /// The results of the calls before: all of them, first of all, in order.
    fn results(&mut self, parts: &[Value], place: &str, calls: &[(String, String)]) {
        let word = |it: &Value| it.as_str().unwrap_or("?").to_owned();
        let results: Vec<(String, String)> = parts
            .iter()
            .take_while(|it| it.get("functionResponse").is_some())
            .map(|it| &it["functionResponse"])
            .map(|it| (word(&it["id"]), word(&it["name"])))
            .collect();
        self.unless(results == calls, || format!("{place}: results {results:?} of {calls:?}"));
        let all = parts.iter().filter(|it| it.get("functionResponse").is_some()).count();
        self.unless(all == results.len(), || format!("{place}: a result behind another part"));
    }

    fn user_part(&mut self, part: &Value, place: &str) {
        let known = ["text", "inlineData", "functionResponse"];
        let part = self.object(part, place, &known);
        let is_one = part.as_object().is_some_and(|it| it.len() == 1);
        self.unless(is_one, || format!("{place}: a part of {part}"));
        if part.get("inlineData").is_some() {
            self.image(&part["inlineData"], place);
        } else if part.get("functionResponse").is_some() {
            self.result(&part["functionResponse"], place);
        } else {
            self.text(&part["text"], place);
        }
    }

    fn image(&mut self, image: &Value, place: &str) {
        let image = self.object(image, place, &["mimeType", "data"]);
        let kind = self.text(&image["mimeType"], place);
        let is_known = ["png", "jpeg", "webp", "heic", "heif"]
            .iter()
            .any(|it| kind.strip_prefix("image/") == Some(it));
        self.unless(is_known, || format!("{place}: an image of type {kind}"));
        self.text(&image["data"], place);
    }

    fn result(&mut self, result: &Value, place: &str) {
        let result = self.object(result, place, &["id", "name", "response", "parts"]);
        let response = self.object(&result["response"], place, &["output", "error"]);
        let said: Vec<&Value> = response.as_object().into_iter().flat_map(Map::values).collect();
        match said.as_slice() {
            [said] => drop(self.text(said, place)),
            _ => self.0.push(format!("{place}: the response {response}")),
        }
        if result.get("parts").is_some() {
            for part in self.list(&result["parts"], place) {
                let part = self.object(part, place, &["inlineData"]);
                self.image(&part["inlineData"], place);
            }
        }
    }

    fn model_part(
        &mut self,
        part: &Value,
        place: &str,
        open: &mut Vec<(String, String)>,
        ids: &mut BTreeSet<String>,
    ) {
        let known = ["text", "thought", "functionCall", "thoughtSignature"];
        let part = self.object(part, place, &known);
        let signature = part["thoughtSignature"].as_str();
        let is_own = signature.is_none_or(|it| it == STAND_IN || it.starts_with(OWN));
        self.unless(is_own, || format!("{place}: a foreign signature: {part}"));
        if part.get("functionCall").is_none() {
            let is_said = part["text"].as_str().is_some_and(|it| !it.trim().is_empty());
            let is_sound = is_said || (part["text"].is_string() && signature.is_some());
            self.unless(is_sound, || format!("{place}: a part of {part}"));
            let is_mark = part["thought"].is_null() || part["thought"] == true;
            self.unless(is_mark, || format!("{place}: thought is {}", part["thought"]));
            return;
        }
        self.unless(part.get("text").is_none(), || format!("{place}: two things in {part}"));
        let is_signed = !open.is_empty() || signature.is_some();
        self.unless(is_signed, || format!("{place}: the first call is unsigned: {part}"));
        let call = self.object(&part["functionCall"], place, &["id", "name", "args"]);
        self.unless(call["args"].is_object(), || format!("{place}: the arguments of {call}"));
        let id = self.text(&call["id"], place).to_owned();
        self.unless(ids.insert(id.clone()), || format!("{place}: the id {id} a second time"));
        let name = self.text(&call["name"], place).to_owned();
        self.unless(is_tool_name(&name), || format!("{place}: a call of {name:?}"));
        open.push((id, name));
    }
}

/// What the provider takes as the name of a function.
fn is_tool_name(name: &str) -> bool {
    let is_sound = |it: u8| it.is_ascii_alphanumeric() || b"_-.:".contains(&it);
    let begins = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
    begins && name.len() <= 64 && name.bytes().all(is_sound)
}

/// The texts of the messages, each after its role; what stands in one content
/// of the user may have been several. A failure is said, as the protocol has a
/// field for it.
pub(super) fn said(body: &Value) -> Vec<String> {
    let system = body["systemInstruction"]["parts"].as_array();
    let system = system.map(|it| format!("system: {}", it.iter().map(text_of).collect::<String>()));
    let mut said: Vec<String> = system.into_iter().collect();
    for content in body["contents"].as_array().into_iter().flatten() {
        let parts = content["parts"].as_array().map_or(&[][..], Vec::as_slice);
        if content["role"] == "model" {
            said.push(format!("assistant: {}", parts.iter().map(text_of).collect::<String>()));
            continue;
        }
        said.extend(parts.iter().filter(|it| it.get("inlineData").is_none()).map(|it| {
            let role = if it.get("functionResponse").is_some() { "tool" } else { "user" };
            format!("{role}: {}", text_of(it))
        }));
    }
    said
}

/// The text of a part; a call as `<tool arguments>`, a thought as nothing.
fn text_of(part: &Value) -> String {
    if let Some(call) = part.get("functionCall") {
        return format!("<{} {}>", call["name"].as_str().unwrap_or("?"), call["args"]);
    }
    let response = &part["functionResponse"]["response"];
    if let Some(error) = response["error"].as_str() {
        return format!("Error: {error}");
    }
    let text = response["output"].as_str().or(part["text"].as_str());
    if part["thought"] == true { String::new() } else { text.unwrap_or_default().to_owned() }
}

/// A piece of an answer with these parts.
pub(crate) fn piece(parts: &Value) -> Value {
    json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}],
        "modelVersion": "m", "responseId": "r-1"})
}

/// The piece that says why an answer ends.
pub(crate) fn end(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason, "index": 0}], "modelVersion": "m"})
}

/// A whole answer. The signature of a thought stands on the part behind it, as
/// this provider has it; a call that is the first of its answer always has one.
pub(super) fn answer(said: &Said) -> Answer {
    let mut answer = Answer::stream();
    let (mut waiting, mut has_called) = (None, false);
    for part in &said.parts {
        let mut told = match part {
            Part::Thinking(text, given) => {
                waiting = given.as_deref().map(signature).or(waiting);
                answer = answer.event(&piece(&json!([{"text": text, "thought": true}])));
                continue;
            }
            Part::Text(text) => json!({ "text": text }),
            Part::Call(id, tool, arguments) => {
                // What does not read as JSON stays a text.
                let args = serde_json::from_str(arguments).unwrap_or(json!(arguments));
                if !std::mem::replace(&mut has_called, true) {
                    waiting = waiting.or_else(|| Some(signature(id)));
                }
                json!({"functionCall": {"id": id, "name": tool, "args": args}})
            }
        };
        if let Some(signature) = waiting.take() {
            told["thoughtSignature"] = json!(signature);
        }
        answer = answer.event(&piece(&json!([told])));
    }
    if let Some(signature) = waiting {
        answer = answer.event(&piece(&json!([{"text": "", "thoughtSignature": signature}])));
    }
    let mut last = end(if said.stop == Stop::Length { "MAX_TOKENS" } else { "STOP" });
    last["usageMetadata"] = json!({"promptTokenCount": said.input,
        "candidatesTokenCount": said.output, "totalTokenCount": said.input + said.output});
    answer.event(&last)
}

#[track_caller]
fn check_contents(contents: Value, want: &str) {
    let found = body(&json!({ "contents": contents })).join("; ");
    assert!(found.contains(want) && found.is_empty() == want.is_empty(), "{found:?}");
}

#[test]
fn a_history_is_held_against_the_protocol() {
    let user = |parts: Value| json!({"role": "user", "parts": parts});
    let model = |parts: Value| json!({"role": "model", "parts": parts});
    let hi = user(json!([{"text": "hi"}]));
    let call = |id: &str| json!({"functionCall": {"id": id, "name": "exec", "args": {}}});
    let signed = |id: &str, signature: &str| {
        let mut call = call(id);
        call["thoughtSignature"] = json!(signature);
        call
    };
    let result = |id: &str| json!({"functionResponse": {"id": id, "name": "exec", "response": {"output": "x"}}});
    let two = model(json!([signed("a", "GoogAAAA"), call("b")]));
    check_contents(json!([hi]), "");
    check_contents(json!([hi, two, user(json!([result("a"), result("b"), {"text": "x"}]))]), "");
    check_contents(json!([hi, hi]), "contents[1] is of role \"user\"");
    check_contents(json!([hi, two]), "the last content is the model's");
    check_contents(json!([hi, two, hi]), "results [] of [(\"a\", \"exec\"), (\"b\", \"exec\")]");
    check_contents(json!([hi, two, user(json!([result("b"), result("a")]))]), "results");
    let late = user(json!([result("a"), {"text": "x"}, result("b")]));
    check_contents(json!([hi, two, late]), "a result behind another part");
    check_contents(json!([user(json!([result("a")]))]), "results");
    let unsigned = model(json!([call("a")]));
    check_contents(json!([hi, unsigned, user(json!([result("a")]))]), "is unsigned");
    let foreign = model(json!([signed("a", "c2ln")]));
    check_contents(json!([hi, foreign, user(json!([result("a")]))]), "a foreign signature");
    let stand_in = model(json!([signed("a", STAND_IN)]));
    check_contents(json!([hi, stand_in, user(json!([result("a")]))]), "");
    check_contents(json!([user(json!([{"text": ""}]))]), "not a text with content");
    check_contents(json!([user(json!([{"text": "a", "thought": true}]))]), "field `thought`");
    check_contents(json!([hi, model(json!([{"text": " "}])), hi]), "a part of");
    check_contents(
        json!([hi, model(json!([{"text": "", "thoughtSignature": "GoogAAAA"}])), hi]),
        "",
    );
    check_contents(json!([]), "not a list with content");
    let gif = json!([{"inlineData": {"mimeType": "image/gif", "data": "aGk="}}]);
    check_contents(json!([user(gif)]), "an image of type image/gif");
}
