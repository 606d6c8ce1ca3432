//! What is sent: exact bodies, and random histories held against a checker
//! that refuses what the provider would.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::super::Google;
use crate::clock::Time;
use crate::config::{ModelFacts, ModelRef, ThinkingLevel};
use crate::message::Message;
use crate::provider::{Origin, Provider, Request, ToolDefinition};

const OLD: &str = "gemini-2.5-flash";
const NEW: &str = "gemini-3-pro-preview";

/// What stands for a signature that nobody has.
const STAND_IN: &str = "skip_thought_signature_validator";

/// What a request is made of, apart from its messages.
struct Asked {
    model: ModelRef,
    facts: ModelFacts,
    system: &'static str,
    tools: Vec<ToolDefinition>,
    thinking: ThinkingLevel,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    takes_back: bool,
}

fn asked(model: &str) -> Asked {
    Asked {
        model: ModelRef { provider: "google".into(), model: model.into() },
        facts: ModelFacts::default(),
        system: "",
        tools: Vec::new(),
        thinking: ThinkingLevel::Off,
        max_tokens: None,
        temperature: None,
        takes_back: true,
    }
}

fn seeing(model: &str) -> Asked {
    let mut asked = asked(model);
    asked.facts.images = Some(true);
    asked
}

impl Asked {
    fn body(&self, messages: &[Message]) -> Value {
        let request = Request {
            system: self.system,
            tools: &self.tools,
            thinking: self.thinking,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            ..Request::new(&self.model, &self.facts, messages)
        };
        let origin = Origin::new(&self.model, "https://here");
        let origin = if self.takes_back { origin } else { origin.without_opaque() };
        let wire = Google::new("google").encode(&request, &origin).unwrap();
        let body = serde_json::from_slice(&wire.body).unwrap();
        let is_new = self.model.model != OLD;
        assert_eq!(check_form(&body, is_new), Ok(()), "{body:#}");
        body
    }

    fn contents(&self, messages: Value) -> Value {
        let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
        self.body(&messages)["contents"].take()
    }
}

/// Refuses any field that the protocol does not have, roles that do not
/// alternate, calls without their results right behind them and in their
/// order, parts that say nothing, and, of the newer models, an answer whose
/// first call has no signature.
fn check_form(body: &Value, is_new: bool) -> Result<(), String> {
    fields(body, &["contents", "systemInstruction", "tools", "generationConfig"])?;
    if let Some(config) = body.get("generationConfig") {
        fields(config, &["maxOutputTokens", "temperature", "thinkingConfig"])?;
    }
    let turns = body["contents"].as_array().ok_or("no contents")?;
    let (mut ids, mut open) = (HashSet::new(), Vec::new());
    for (index, turn) in turns.iter().enumerate() {
        fields(turn, &["role", "parts"])?;
        let is_user = index % 2 == 0;
        let role = if is_user { "user" } else { "model" };
        if turn["role"] != role {
            return Err(format!("role of {index}"));
        }
        let parts = turn["parts"].as_array().filter(|it| !it.is_empty()).ok_or("no parts")?;
        let calls = std::mem::take(&mut open);
        let results: Vec<&Value> =
            parts.iter().filter_map(|it| it.get("functionResponse")).collect();
        let key = |it: &Value| (it["id"].to_string(), it["name"].to_string());
        if results.iter().map(|it| key(it)).ne(calls.iter().map(key)) {
            return Err(format!("results {results:?} of {calls:?}"));
        }
        for (place, part) in parts.iter().enumerate() {
            check_part(part, is_user)?;
            if place < results.len() && part.get("functionResponse").is_none() {
                return Err("a part before a result".into());
            }
            if let Some(call) = part.get("functionCall") {
                if is_new && open.is_empty() && part.get("thoughtSignature").is_none() {
                    return Err(format!("unsigned: {call}"));
                }
                if !ids.insert(call["id"].to_string()) {
                    return Err(format!("the same id: {call}"));
                }
                open.push(call.clone());
            }
        }
    }
    let ends_with_user = turns.len() % 2 == 1;
    (ends_with_user && open.is_empty()).then_some(()).ok_or("it ends with the model".into())
}

fn check_part(part: &Value, is_user: bool) -> Result<(), String> {
    let kind = ["text", "inlineData", "functionCall", "functionResponse"];
    let kinds: Vec<&str> = kind.into_iter().filter(|it| part.get(it).is_some()).collect();
    let mut allowed = kinds.clone();
    if !is_user {
        allowed.extend(["thought", "thoughtSignature"]);
    }
    fields(part, &allowed)?;
    if let Some(signature) = part.get("thoughtSignature") {
        let signature = signature.as_str().unwrap_or_default();
        let is_base64 = |it: u8| it.is_ascii_alphanumeric() || b"+/-_=".contains(&it);
        if signature.is_empty() || !signature.bytes().all(is_base64) {
            return Err(format!("signature {signature}"));
        }
    }
    let is_blank = |it: &Value| it.as_str().is_none_or(|it| it.trim().is_empty());
    match kinds.as_slice() {
        ["text"] if is_blank(&part["text"]) && part.get("thoughtSignature").is_none() => {
            Err("a part that says nothing".into())
        }
        ["text"] => Ok(()),
        ["inlineData"] if is_user => fields(&part["inlineData"], &["mimeType", "data"]),
        ["functionCall"] if !is_user => {
            let call = &part["functionCall"];
            let is_sound = call["args"].is_object() && is_sound_name(&call["name"]);
            is_sound.then_some(()).ok_or(format!("{call}"))?;
            fields(call, &["id", "name", "args"])
        }
        ["functionResponse"] if is_user => {
            let result = &part["functionResponse"];
            fields(result, &["id", "name", "response", "parts"])?;
            let said = result["response"].as_object().filter(|it| it.len() == 1);
            let said = said.and_then(|it| it.get("output").or(it.get("error")));
            said.filter(|it| !is_blank(it)).map(|_| ()).ok_or(format!("{result}"))
        }
        _ => Err(format!("a part of {kinds:?}")),
    }
}

fn is_sound_name(name: &Value) -> bool {
    let name = name.as_str().unwrap_or_default();
    let begins = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
    let sound = |it: u8| it.is_ascii_alphanumeric() || b"_-".contains(&it);
    begins && name.len() <= 64 && name.bytes().all(sound)
}

fn fields(value: &Value, known: &[&str]) -> Result<(), String> {
    let fields = value.as_object().ok_or_else(|| format!("no object: {value}"))?;
    let unknown = fields.keys().find(|it| !known.contains(&it.as_str()));
    unknown.map_or(Ok(()), |it| Err(format!("field {it} in {value}")))
}

#[track_caller]
fn check_refused(contents: Value, why: &str) {
    let got = check_form(&json!({ "contents": contents }), true);
    assert!(got.as_ref().is_err_and(|it| it.contains(why)), "{got:?}");
}

#[test]
fn the_checker_refuses_what_the_provider_would() {
    let user = |parts: Value| json!({"role": "user", "parts": parts});
    let model = |parts: Value| json!({"role": "model", "parts": parts});
    let hi = user(json!([{"text": "hi"}]));
    let call = |id: &str| json!({"functionCall": {"id": id, "name": "exec", "args": {}}});
    let signed = |id: &str| {
        let mut call = call(id);
        call["thoughtSignature"] = json!("EjQK");
        call
    };
    let result = |id: &str| json!({"functionResponse": {"id": id, "name": "exec", "response": {"output": "x"}}});
    check_refused(json!([]), "ends with the model");
    check_refused(json!([hi, hi]), "role of 1");
    check_refused(json!([model(json!([{"text": "hi"}]))]), "role of 0");
    check_refused(json!([hi, model(json!([{"text": "hi"}]))]), "ends with the model");
    check_refused(json!([user(json!([]))]), "no parts");
    check_refused(json!([user(json!([{"text": " "}]))]), "says nothing");
    check_refused(json!([user(json!([{"text": "a", "thoughtSignature": "EjQK"}]))]), "field");
    check_refused(json!([user(json!([result("a")]))]), "results");
    check_refused(json!([hi, model(json!([call("a")])), user(json!([result("a")]))]), "unsigned");
    let two = model(json!([signed("a"), call("b")]));
    check_refused(json!([hi, two, user(json!([result("b"), result("a")]))]), "results");
    check_refused(json!([hi, two, user(json!([result("a")]))]), "results");
    let mixed = user(json!([result("a"), {"text": "x"}, result("b")]));
    check_refused(json!([hi, two, mixed]), "before a result");
    let sound = json!([hi, two, user(json!([result("a"), result("b"), {"text": "x"}]))]);
    assert_eq!(check_form(&json!({ "contents": sound }), true), Ok(()));
}

fn answer(model: &str, content: Value) -> Value {
    json!({"role": "assistant", "provider": "google", "model": model, "content": content,
        "beige": {"endpoint": "https://here"}})
}

fn call(id: &str) -> Value {
    json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {"command": "ls"}})
}

fn signed_call(id: &str, signature: &str) -> Value {
    let mut call = call(id);
    call["thoughtSignature"] = json!(signature);
    call
}

fn result(id: &str, content: Value) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "exec", "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn thought(text: &str, signature: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "thinkingSignature": signature})
}

fn image(kind: &str) -> Value {
    json!({"type": "image", "data": "aGk=", "mimeType": kind})
}

fn user(parts: Value) -> Value {
    json!({"role": "user", "parts": parts})
}

fn model(parts: Value) -> Value {
    json!({"role": "model", "parts": parts})
}

fn sent_call(id: &str) -> Value {
    json!({"functionCall": {"id": id, "name": "exec", "args": {"command": "ls"}}})
}

fn signed(mut part: Value, signature: &str) -> Value {
    part["thoughtSignature"] = json!(signature);
    part
}

fn sent_result(id: &str, response: Value) -> Value {
    json!({"functionResponse": {"id": id, "name": "exec", "response": response}})
}

#[test]
fn the_body_has_only_what_was_asked_for() {
    let hi = [Message::user("hi", Time::from_unix_millis(0))];
    let contents = json!([user(json!([{"text": "hi"}]))]);
    assert_eq!(asked("gemini-flash-latest").body(&hi), json!({ "contents": contents }));
    let mut asked = asked(OLD);
    asked.system = "Be kind.";
    asked.facts.max_tokens = Some(32_000);
    asked.thinking = ThinkingLevel::Low;
    asked.temperature = Some(0.5);
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    asked.tools = ["exec", "now"]
        .map(|it| ToolDefinition {
            name: it.into(),
            description: "Runs.".into(),
            parameters: if it == "exec" { parameters.clone() } else { json!({"type": "object"}) },
        })
        .into();
    let want = json!({
        "contents": contents,
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "tools": [{"functionDeclarations": [
            {"name": "exec", "description": "Runs.", "parametersJsonSchema": parameters},
            {"name": "now", "description": "Runs."}]}],
        "generationConfig": {"maxOutputTokens": 32_000, "temperature": 0.5,
            "thinkingConfig": {"includeThoughts": true, "thinkingBudget": 2_048}},
    });
    assert_eq!(asked.body(&hi), want);
    asked.max_tokens = Some(100);
    assert_eq!(asked.body(&hi)["generationConfig"]["maxOutputTokens"], json!(100));
}

#[test]
fn an_answer_with_calls_is_followed_by_its_results_in_order() {
    let got = asked(OLD).contents(json!([
        {"role": "user", "content": [text("a"), text("b")]},
        answer(OLD, json!([text("Let me run that."), call("1"), call("2")])),
        result("2", json!([text(" \n")])),
        result("1", json!([text("out")])),
        answer(OLD, json!([call("3")])),
        {"role": "toolResult", "toolCallId": "3", "content": "gone", "isError": true},
        {"role": "user", "content": "And?"},
        answer(OLD, json!([text("done")])),
        {"role": "user", "content": "Thanks."},
    ]));
    let want = json!([
        user(json!([{"text": "a"}, {"text": "b"}])),
        model(json!([{"text": "Let me run that."}, sent_call("1"), sent_call("2")])),
        user(json!([
            sent_result("1", json!({"output": "out"})),
            sent_result("2", json!({"output": "(no output)"}))
        ])),
        model(json!([sent_call("3")])),
        user(json!([sent_result("3", json!({"error": "gone"})), {"text": "And?"}])),
        model(json!([{"text": "done"}])),
        user(json!([{"text": "Thanks."}])),
    ]);
    assert_eq!(got, want);
}

#[test]
fn neighbours_of_one_role_are_one_and_what_says_nothing_is_left_out() {
    let got = asked(OLD).contents(json!([
        answer(OLD, json!([text("before")])),
        {"role": "user", "content": []},
        {"role": "user", "content": [text("a"), text(" \n"), {"type": "smell"}]},
        answer(OLD, json!([{"type": "thinking", "thinking": "hm"}])),
        answer(OLD, json!([thought("hm", "EjQK"), {"type": "text", "text": "", "textSignature": "EjQK"}])),
        answer(OLD, json!([text(" \n")])),
        result("9", json!("of no call")),
        {"role": "oracle"},
        answer(OLD, json!([text("b")])),
        answer(OLD, json!([text("c")])),
    ]));
    let want = json!([
        user(json!([{"text": "(The beginning of the conversation is not shown.)"}])),
        model(json!([{"text": "before"}])),
        user(json!([{"text": "(empty message)"}, {"text": "a"}])),
        model(json!([{"text": "b"}, {"text": "c"}])),
        user(json!([{"text": "Continue."}])),
    ]);
    assert_eq!(got, want);
}

#[test]
fn signatures_go_back_on_the_part_they_came_with() {
    let history = json!([
        {"role": "user", "content": "hi"},
        answer(NEW, json!([thought("hm", "T1"), {"type": "text", "text": "a", "textSignature": "S1"},
            text("b"), signed_call("1", "C1"), call("2")])),
        result("1", json!("x")),
        result("2", json!("y")),
        answer(NEW, json!([{"type": "thinking", "thinking": "unsigned"}, text("c"),
            {"type": "text", "text": "", "textSignature": "S2"}])),
        {"role": "user", "content": "more"},
    ]);
    let results = user(json!([
        sent_result("1", json!({"output": "x"})),
        sent_result("2", json!({"output": "y"}))
    ]));
    let own = json!([
        user(json!([{"text": "hi"}])),
        model(json!([{"text": "hm", "thought": true, "thoughtSignature": "T1"},
            signed(json!({"text": "a"}), "S1"), {"text": "b"}, signed(sent_call("1"), "C1"),
            sent_call("2")])),
        results,
        model(json!([{"text": "c"}, signed(json!({"text": ""}), "S2")])),
        user(json!([{"text": "more"}])),
    ]);
    assert_eq!(asked(NEW).contents(history.clone()), own);
    let bare = json!([
        user(json!([{"text": "hi"}])),
        model(json!([{"text": "a"}, {"text": "b"}, signed(sent_call("1"), STAND_IN),
            sent_call("2")])),
        results,
        model(json!([{"text": "c"}])),
        user(json!([{"text": "more"}])),
    ]);
    let mut stripped = asked(NEW);
    stripped.takes_back = false;
    assert_eq!(stripped.contents(history.clone()), bare);
    let mut elsewhere = history;
    for place in [1, 4] {
        elsewhere[place]["beige"]["endpoint"] = json!("https://elsewhere");
    }
    assert_eq!(asked(NEW).contents(elsewhere), bare);
}

#[test]
fn only_the_newer_models_are_given_a_stand_in() {
    let foreign =
        json!([answer("claude", json!([signed_call("1", "c2ln")])), result("1", json!("out"))]);
    let sent = |model: &str| {
        asked(model).contents(foreign.clone())[1]["parts"][0]["thoughtSignature"].take()
    };
    assert_eq!(sent(OLD), Value::Null);
    for model in [NEW, "gemini-flash-latest", "m"] {
        assert_eq!(sent(model), json!(STAND_IN));
    }
    let unsound = json!([
        answer(NEW, json!([signed_call("1", "{\"id\":\"rs 1\"}")])),
        result("1", json!("out"))
    ]);
    assert_eq!(asked(NEW).contents(unsound)[1]["parts"][0]["thoughtSignature"], json!(STAND_IN));
}

#[test]
fn images_are_shown_where_the_model_sees_them() {
    let messages = json!([
        {"role": "user", "content": [text("look"), image("image/png"), image("image/gif")]},
        answer("other", json!([call("a-1"), call("a-2")])),
        result("a-1", json!([text("Read it."), image("image/png"), image("image/heic")])),
        result("a-2", json!("out")),
    ]);
    let shown = |kind: &str| json!({"inlineData": {"mimeType": kind, "data": "aGk="}});
    let no_gif = "(An image was left out: this model reads no image/gif.)";
    let look = user(json!([{"text": "look"}, shown("image/png"), {"text": no_gif}]));
    let intro = json!({"text": "What `exec` returned as an image:"});
    let got = |asked: Asked| {
        let contents = asked.contents(messages.clone());
        let said = contents[2]["parts"][0]["functionResponse"]["response"]["output"].clone();
        let within = contents[2]["parts"][0]["functionResponse"]["parts"].clone();
        let behind = contents[2]["parts"].as_array().unwrap()[2..].to_vec();
        (contents[0].clone(), said, within, behind)
    };
    let follows = "Read it.\n(The image follows.)";
    let want = (
        look.clone(),
        json!(follows),
        json!([shown("image/png")]),
        vec![intro.clone(), shown("image/heic")],
    );
    assert_eq!(got(seeing(NEW)), want);
    let twice = json!(format!("{follows}\n(The image follows.)"));
    let behind = vec![intro, shown("image/png"), shown("image/heic")];
    assert_eq!(got(seeing(OLD)), (look, twice, Value::Null, behind));
    let note = "(An image was left out: this model reads text only.)";
    let look = user(json!([{"text": "look"}, {"text": note}, {"text": note}]));
    let said = json!(format!("Read it.\n{note}\n{note}"));
    assert_eq!(got(asked(NEW)), (look, said, Value::Null, Vec::new()));
}

#[test]
fn a_call_without_result_is_given_one() {
    let got = asked(OLD).contents(json!([
        {"role": "user", "content": "hi"},
        answer(OLD, json!([call("1"), call("2")])),
        result("2", json!("two")),
        {"role": "user", "content": "more"},
    ]));
    let lost = json!({"error": "(The result is not known.)"});
    let want = user(json!([sent_result("1", lost), sent_result("2", json!({"output": "two"})),
        {"text": "more"}]));
    assert_eq!(got[2], want);
}

#[test]
fn a_made_up_tool_name_is_sent_as_one_that_is_taken() {
    let sent = |name: &str| {
        let mut call = call("1");
        call["name"] = json!(name);
        let history = json!([answer(OLD, json!([call])), result("1", json!("no"))]);
        let contents = asked(OLD).contents(history);
        let names = [
            &contents[1]["parts"][0]["functionCall"]["name"],
            &contents[2]["parts"][0]["functionResponse"]["name"],
        ];
        assert_eq!(names[0], names[1]);
        names[0].clone()
    };
    assert_eq!(sent("functions.exec é"), json!("functions_exec__"));
    assert_eq!(sent(""), json!("unnamed"));
    assert_eq!(sent("7up"), json!("_7up"));
    assert_eq!(sent("-x"), json!("_-x"));
    assert_eq!(sent(&"x".repeat(100)), json!("x".repeat(64)));
    assert_eq!(sent(&"7".repeat(100)), json!(format!("_{}", "7".repeat(63))));
}

/// A small generator: the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn block(&mut self) -> Value {
        let kind = self.one_of(&["image/png", "image/heic", "image/gif", ""]);
        let signature = self.one_of(&["EjQK", "", "no base64"]);
        let signed = json!({"type": "text", "text": self.one_of(&["", "s"]),
            "textSignature": signature});
        let unknown = json!({"type": "smell"});
        self.one_of(&[
            text("a"),
            text(""),
            text("那 \u{0}"),
            image(kind),
            unknown,
            signed,
            thought("hm", signature),
        ])
    }

    fn content(&mut self) -> Value {
        if self.below(4) == 0 {
            return self.one_of(&[json!("text"), json!(""), json!(" "), json!(null)]);
        }
        let count = self.below(3);
        (0..count).map(|_| self.block()).collect()
    }

    /// An answer and most of its results, in any order.
    fn answer(&mut self, history: &mut Vec<Value>) {
        let long = "x".repeat(60);
        let pool = ["", "1", "call_1", "toolu_01|é", "functions.exec:0", "aB3xK9mP2", &long];
        let count = self.below(4);
        let ids: Vec<&str> = (0..count).map(|_| self.one_of(&pool)).collect();
        let mut blocks: Vec<Value> = (0..self.below(3)).map(|_| self.block()).collect();
        blocks.extend(ids.iter().map(|id| {
            json!({"type": "toolCall", "id": id, "name": self.one_of(&["exec", "", "7.b"]),
                "arguments": self.one_of(&[json!({}), json!({"a": 1}), json!("{"), json!(null)]),
                "thoughtSignature": self.one_of(&[json!(null), json!("EjQK"), json!("{}")])})
        }));
        let mut answer = answer(self.one_of(&[OLD, NEW, "x"]), json!(blocks));
        answer["stopReason"] =
            self.one_of(&["stop", "error", "aborted", "toolUse"].map(Value::from));
        history.push(answer);
        let mut results: Vec<Value> = Vec::new();
        for id in ids {
            let mut result = result(id, self.content());
            result["isError"] = json!(self.below(3) == 0);
            if self.below(9) > 0 {
                let place = self.below(results.len() + 1);
                results.insert(place, result);
            }
        }
        history.append(&mut results);
    }

    fn history(&mut self) -> Value {
        let mut history = Vec::new();
        for _ in 0..self.below(12) {
            if self.below(2) == 0 {
                history.push(json!({"role": "user", "content": self.content()}));
            } else {
                self.answer(&mut history);
            }
        }
        json!(history)
    }
}

#[test]
fn any_history_makes_a_body_that_the_provider_takes() {
    let mut dice = Dice(7);
    for _ in 0..2_000 {
        let history = dice.history();
        let mut asked = asked(dice.one_of(&[OLD, NEW, "gemini-flash-latest"]));
        asked.facts.images = dice.one_of(&[None, Some(false), Some(true)]);
        asked.takes_back = dice.below(2) == 0;
        let sent = asked.contents(history.clone()).to_string();
        let calls = |it: &str, what: &str| it.matches(what).count();
        let want = calls(&history.to_string(), "\"toolCall\"");
        assert_eq!(calls(&sent, "\"functionCall\""), want, "{history:#}");
        assert_eq!(calls(&sent, "\"functionResponse\""), want, "{history:#}");
    }
}
