//! What is sent: exact bodies, and random histories held against a checker
//! that refuses what the provider would.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::super::Google;
use crate::config::ThinkingLevel;
use crate::provider::ToolDefinition;
use crate::provider::tests::asked::{
    self, Asked, Form, call, fields, image, result, text, thought,
};
use crate::provider::tests::histories::check_any_history;

const FORM: Form = Form {
    api: "google-generative-ai",
    dialect: |name| Box::new(Google::new(name)),
    check: |body, model| check_form(body, model.model != OLD),
    conversation: |mut it| it["contents"].take(),
};

const OLD: &str = "gemini-2.5-flash";
const NEW: &str = "gemini-3-pro-preview";

/// What stands for a signature that nobody has.
const STAND_IN: &str = "skip_thought_signature_validator";

fn asked(model: &str) -> Asked {
    Asked::of(FORM, "google", model)
}

fn answer(model: &str, content: Value) -> Value {
    asked::answer("google", model, content)
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

fn signed_call(id: &str, signature: &str) -> Value {
    let mut call = call(id);
    call["thoughtSignature"] = json!(signature);
    call
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
    let hi = json!([asked::user(json!("hi"))]);
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
    let got = asked(OLD).sent(json!([
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
    let got = asked(OLD).sent(json!([
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
    assert_eq!(asked(NEW).sent(history.clone()), own);
    let bare = json!([
        user(json!([{"text": "hi"}])),
        model(json!([{"text": "a"}, {"text": "b"}, signed(sent_call("1"), STAND_IN),
            sent_call("2")])),
        results,
        model(json!([{"text": "c"}])),
        user(json!([{"text": "more"}])),
    ]);
    let mut stripped = asked(NEW);
    stripped.is_stripped = true;
    assert_eq!(stripped.sent(history.clone()), bare);
    let mut elsewhere = history;
    for place in [1, 4] {
        elsewhere[place]["beige"]["endpoint"] = json!("https://elsewhere");
    }
    assert_eq!(asked(NEW).sent(elsewhere), bare);
}

#[test]
fn only_the_newer_models_are_given_a_stand_in() {
    let foreign =
        json!([answer("claude", json!([signed_call("1", "c2ln")])), result("1", json!("out"))]);
    let sent =
        |model: &str| asked(model).sent(foreign.clone())[1]["parts"][0]["thoughtSignature"].take();
    assert_eq!(sent(OLD), Value::Null);
    for model in [NEW, "gemini-flash-latest", "m"] {
        assert_eq!(sent(model), json!(STAND_IN));
    }
    let unsound = json!([
        answer(NEW, json!([signed_call("1", "{\"id\":\"rs 1\"}")])),
        result("1", json!("out"))
    ]);
    assert_eq!(asked(NEW).sent(unsound)[1]["parts"][0]["thoughtSignature"], json!(STAND_IN));
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
        let contents = asked.sent(messages.clone());
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
    assert_eq!(got(asked(NEW).seeing()), want);
    let twice = json!(format!("{follows}\n(The image follows.)"));
    let behind = vec![intro, shown("image/png"), shown("image/heic")];
    assert_eq!(got(asked(OLD).seeing()), (look, twice, Value::Null, behind));
    let note = "(An image was left out: this model reads text only.)";
    let look = user(json!([{"text": "look"}, {"text": note}, {"text": note}]));
    let said = json!(format!("Read it.\n{note}\n{note}"));
    assert_eq!(got(asked(NEW)), (look, said, Value::Null, Vec::new()));
}

#[test]
fn a_call_without_result_is_given_one() {
    let got = asked(OLD).sent(json!([
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
        let contents = asked(OLD).sent(history);
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

#[test]
fn any_history_makes_a_body_that_the_provider_takes() {
    let models = [OLD, NEW, "gemini-flash-latest"].map(|it| format!("google/{it}"));
    let models = models.each_ref().map(String::as_str);
    check_any_history(FORM, &models, "\"functionCall\"", |_, _| ());
}
