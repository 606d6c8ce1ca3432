//! What is sent: exact bodies, and random histories held against a checker
//! that refuses what the strictest server would.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::super::OpenAiChat;
use crate::config::ModelRef;
use crate::provider::tests::asked::{
    self, Asked, Form, call, exec, fields, filled, image, result, text, user,
};
use crate::provider::tests::histories::check_any_history;

const FORM: Form = Form {
    api: "openai-completions",
    dialect: |name| Box::new(OpenAiChat::new(name)),
    check: check_form,
    conversation: |mut it| it["messages"].take(),
};

fn asked(provider: &str, model: &str) -> Asked {
    Asked::of(FORM, provider, model)
}

fn answer(provider: &str, content: Value) -> Value {
    asked::answer(provider, "m", content)
}

/// Refuses any field that the specification does not have, results that do
/// not follow their calls, and messages without content.
fn check_form(body: &Value, model: &ModelRef) -> Result<(), String> {
    let top = [
        "model",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "max_tokens",
        "max_completion_tokens",
    ];
    fields(body, &top)?;
    if let Some(options) = body.get("stream_options") {
        fields(options, &["include_usage"])?;
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        fields(tool, &["type", "function"])?;
        fields(&tool["function"], &["name", "description", "parameters"])?;
    }
    let mut ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut after_result = false;
    for message in body["messages"].as_array().ok_or("no messages")? {
        let role = message["role"].as_str().ok_or("no role")?;
        if role == "tool" {
            fields(message, &["role", "tool_call_id", "content"])?;
            filled(&message["content"])?;
            let id = message["tool_call_id"].as_str().ok_or("no id")?;
            let place = open.iter().position(|it| *it == id).ok_or(format!("orphan {id}"))?;
            open.remove(place);
            after_result = true;
            continue;
        }
        if !open.is_empty() {
            return Err(format!("calls without result: {open:?}"));
        }
        if role == "user" && after_result && model.provider == "mistral" {
            return Err("a user message right after a result".into());
        }
        after_result = false;
        match role {
            "assistant" => {
                let thinks = ["deepseek", "moonshot"].contains(&model.provider.as_str())
                    || model.model.contains("kimi");
                match thinks {
                    true => {
                        fields(message, &["role", "content", "tool_calls", "reasoning_content"])
                    }
                    false => fields(message, &["role", "content", "tool_calls"]),
                }?;
                let calls = message["tool_calls"].as_array();
                if calls.is_some_and(Vec::is_empty) {
                    return Err("an empty list of calls".into());
                }
                if calls.is_none() || !message["content"].is_null() {
                    filled(&message["content"])?;
                }
                for call in calls.into_iter().flatten() {
                    let id = check_call(call)?;
                    open.push(id);
                    if !ids.insert(id) {
                        return Err(format!("{id} twice"));
                    }
                }
            }
            "system" | "user" => {
                fields(message, &["role", "content"])?;
                check_content(&message["content"])?;
            }
            other => return Err(format!("role {other}")),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("calls without result: {open:?}")) }
}

fn check_call(call: &Value) -> Result<&str, String> {
    fields(call, &["id", "type", "function", "extra_content"])?;
    fields(&call["function"], &["name", "arguments"])?;
    if let Some(extra) = call.get("extra_content") {
        fields(extra, &["google"])?;
        fields(&extra["google"], &["thought_signature"])?;
    }
    let arguments = call["function"]["arguments"].as_str().ok_or("arguments are no text")?;
    let arguments: Value = serde_json::from_str(arguments).map_err(|it| it.to_string())?;
    let name = call["function"]["name"].as_str().ok_or("no name")?;
    let sound = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
    if !arguments.is_object() || name.is_empty() || !name.chars().all(sound) {
        return Err(format!("arguments or name of {call}"));
    }
    let id = call["id"].as_str().ok_or("no id")?;
    let fits = (1..=40).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_graphic());
    if fits { Ok(id) } else { Err(format!("id {id:?}")) }
}

fn check_content(content: &Value) -> Result<(), String> {
    let Some(parts) = content.as_array() else { return filled(content) };
    for part in parts {
        match part["type"].as_str() {
            Some("text") => {
                fields(part, &["type", "text"])?;
                filled(&part["text"])?;
            }
            Some("image_url") => {
                fields(part, &["type", "image_url"])?;
                fields(&part["image_url"], &["url"])?;
            }
            _ => return Err(format!("part {part}")),
        }
    }
    if parts.is_empty() { Err("no parts".into()) } else { Ok(()) }
}

#[track_caller]
fn check_refused(message: Value, why: &str) {
    let model = ModelRef { provider: "mistral".into(), model: "m".into() };
    let call = json!({"role": "assistant", "content": null, "tool_calls":
        [{"id": "a", "type": "function", "function": {"name": "exec", "arguments": "{}"}}]});
    let messages = match message {
        Value::Array(rest) => [vec![call], rest].concat(),
        message => vec![message],
    };
    let got = check_form(&json!({ "messages": messages }), &model);
    assert!(got.as_ref().is_err_and(|it| it.contains(why)), "{got:?}");
}

#[test]
fn the_checker_refuses_what_a_strict_server_would() {
    let result = json!({"role": "tool", "tool_call_id": "a", "content": "x"});
    let user = json!({"role": "user", "content": "x"});
    check_refused(json!({"role": "user", "content": "x", "name": "n"}), "field name");
    check_refused(json!({"role": "user", "content": ""}), "no text");
    check_refused(json!({"role": "assistant", "content": null}), "no text");
    check_refused(result.clone(), "orphan");
    check_refused(json!([]), "without result");
    check_refused(json!([user]), "without result");
    check_refused(json!([result, result]), "orphan");
    check_refused(json!([result, user]), "right after");
    check_refused(
        json!({"role": "assistant", "tool_calls": [{"id": "a", "index": 0}]}),
        "field index",
    );
}

#[test]
fn the_body_has_only_what_is_known_to_be_taken() {
    let mut asked = asked("acme", "m");
    let hi = json!([user(json!("hi"))]);
    let want = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}],
        "stream": true, "stream_options": {"include_usage": true}});
    assert_eq!(asked.body(&hi), want);
    asked.system = "Be kind.";
    asked.facts.max_tokens = Some(32_000);
    asked.tools.push(exec());
    let want = json!({"model": "m", "messages": [{"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hi"}],
        "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 32_000,
        "tools": [{"type": "function", "function":
            {"name": "exec", "description": "Runs.",
                "parameters": exec().parameters}}]});
    assert_eq!(asked.body(&hi), want);
}

#[test]
fn what_one_provider_refuses_is_not_sent_to_it() {
    let body = |provider: &str| {
        let mut asked = asked(provider, "m");
        asked.facts.max_tokens = Some(9);
        asked.body(&json!([]))
    };
    assert_eq!(body("openai")["max_completion_tokens"], json!(9));
    assert_eq!(body("openai").get("max_tokens"), None);
    assert_eq!(body("mistral")["max_tokens"], json!(9));
    assert_eq!(body("mistral").get("stream_options"), None);
}

fn sent_call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function":
        {"name": "exec", "arguments": "{\"command\":\"ls\"}"}})
}

fn sent_result(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

#[test]
fn an_answer_with_calls_is_followed_by_its_results() {
    let got = asked("acme", "m").sent(json!([
        {"role": "user", "content": [text("a"), text("b")]},
        answer("acme", json!([{"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
            text("Let me run that. "), call("1"), call("2")])),
        result("1", json!([text("out")])),
        result("2", json!([])),
        answer("acme", json!([call("3")])),
        {"role": "toolResult", "toolCallId": "3", "content": "gone", "isError": true},
        answer("acme", json!([text("done")])),
    ]));
    let want = json!([
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "Let me run that. ", "tool_calls":
            [sent_call("1"), sent_call("2")]},
        sent_result("1", "out"),
        sent_result("2", "(no output)"),
        {"role": "assistant", "content": null, "tool_calls": [sent_call("3")]},
        sent_result("3", "Error: gone"),
        {"role": "assistant", "content": "done"},
    ]);
    assert_eq!(got, want);
}

#[test]
fn what_says_nothing_is_left_out() {
    let got = asked("acme", "m").sent(json!([
        {"role": "user", "content": []},
        answer("acme", json!([{"type": "thinking", "thinking": "hm"}])),
        answer("acme", json!([text(" \n")])),
        answer("acme", json!([{"type": "smell", "of": "rain"}])),
        result("9", json!("of no call")),
        {"role": "oracle"},
        {"role": "user", "content": [text("a"), {"type": "smell"}]},
    ]));
    let want = json!([{"role": "user", "content": "(empty message)"},
        {"role": "user", "content": "a"}]);
    assert_eq!(got, want);
}

#[test]
fn images_are_shown_to_a_model_that_sees() {
    let messages = json!([
        {"role": "user", "content": [text("look"), image("image/png"), text("")]},
        answer("acme", json!([call("1"), call("2")])),
        result("1", json!([text("Read it."), image("image/png")])),
        result("2", json!("out")),
    ]);
    let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}});
    let calls = json!({"role": "assistant", "content": null, "tool_calls":
        [sent_call("1"), sent_call("2")]});
    let want = json!([
        {"role": "user", "content": [text("look"), url]},
        calls,
        sent_result("1", "Read it.\n(The image follows.)"),
        sent_result("2", "out"),
        {"role": "user", "content": [text("What `exec` returned as an image:"), url]},
    ]);
    assert_eq!(asked("acme", "m").seeing().sent(messages.clone()), want);
    let left_out = "(An image was left out: this model reads text only.)";
    let want = json!([
        {"role": "user", "content": format!("look\n{left_out}")},
        calls,
        sent_result("1", &format!("Read it.\n{left_out}")),
        sent_result("2", "out"),
    ]);
    assert_eq!(asked("acme", "m").sent(messages), want);
}

#[test]
fn a_conversation_with_another_provider_goes_on() {
    let history = json!([
        answer("anthropic", json!([call("toolu_01A|x"), call("toolu_01A|x")])),
        result("toolu_01A|x", json!("first")),
        result("toolu_01A|x", json!("second")),
        answer("acme", json!([call("functions.exec:0")])),
        result("functions.exec:0", json!("third")),
    ]);
    let got = asked("acme", "m").sent(history.clone());
    let ids: Vec<&str> =
        [1, 2, 4].iter().filter_map(|it| got[*it]["tool_call_id"].as_str()).collect();
    assert_eq!(ids[2], "functions.exec:0");
    let strict = |id: &str| id.len() == 9 && id.bytes().all(|it| it.is_ascii_alphanumeric());
    assert!(ids[0] != ids[1] && ids[..2].iter().all(|it| strict(it)), "{ids:?}");
    assert_eq!(got[1]["content"], json!("first"));
    let got = asked("other", "m").sent(history);
    assert!(strict(got[4]["tool_call_id"].as_str().unwrap_or_default()), "{got}");
}

#[test]
fn opaque_data_goes_back_to_its_own_model_only() {
    let signed = |signature: &str| {
        let mut call = call("1");
        call["thoughtSignature"] = json!(signature);
        json!([answer("acme", json!([call])), result("1", json!("out"))])
    };
    let extra = |asked: &Asked, signature: &str| {
        asked.sent(signed(signature))[0]["tool_calls"][0]["extra_content"].take()
    };
    let want = json!({"google": {"thought_signature": "EjQK"}});
    assert_eq!(extra(&asked("acme", "m"), "EjQK"), want);
    assert_eq!(extra(&asked("acme", "other"), "EjQK"), Value::Null);
    assert_eq!(extra(&asked("other", "m"), "EjQK"), Value::Null);
    assert_eq!(extra(&asked("acme", "m"), "{\"type\":\"reasoning.encrypted\"}"), Value::Null);
}

#[test]
fn thinking_goes_back_to_those_who_refuse_a_call_without() {
    let by = |provider: &str, model: &str| {
        let thought = json!({"type": "thinking", "thinking": "hm"});
        let mut own = answer(provider, json!([thought, call("1")]));
        own["model"] = json!(model);
        json!([
            own,
            result("1", json!("out")),
            answer("other", json!([thought, call("2")])),
            result("2", json!("out")),
            answer("other", json!([thought, text("a")]))
        ])
    };
    let sent = |provider: &str, model: &str, history: Value| {
        let got = asked(provider, model).sent(history);
        [0, 2, 4].map(|it| got[it]["reasoning_content"].clone())
    };
    let none = [Value::Null, Value::Null, Value::Null];
    let back = [json!("hm"), json!(" "), Value::Null];
    assert_eq!(sent("deepseek", "m", by("deepseek", "m")), back);
    assert_eq!(sent("acme", "kimi-k2", by("acme", "kimi-k2")), back);
    assert_eq!(sent("acme", "kimi-k2", by("acme", "m")), none);
    assert_eq!(sent("acme", "m", by("acme", "m")), none);
}

#[test]
fn mistrals_models_get_an_answer_between_a_result_and_a_user() {
    let history = json!([
        answer("x", json!([call("1")])),
        result("1", json!("out")),
        {"role": "user", "content": "more"},
    ]);
    for (provider, model) in [("mistral", "m"), ("openrouter", "mistralai/devstral-2")] {
        let got = asked(provider, model).sent(history.clone());
        assert_eq!(got[2]["role"], json!("assistant"), "{got}");
        assert_eq!(got[3]["content"], json!("more"));
    }
    assert_eq!(asked("acme", "m").sent(history)[2]["role"], json!("user"));
}

#[test]
fn a_made_up_tool_name_is_sent_as_one_that_is_taken() {
    let sent = |name: &str| {
        let mut call = call("1");
        call["name"] = json!(name);
        let history = json!([answer("acme", json!([call])), result("1", json!("no"))]);
        asked("acme", "m").sent(history)[0]["tool_calls"][0]["function"]["name"].take()
    };
    assert_eq!(sent("functions.exec é"), json!("functions_exec__"));
    assert_eq!(sent(""), json!("unnamed"));
    assert_eq!(sent(&"x".repeat(100)), json!("x".repeat(64)));
}

#[test]
fn a_recorded_session_is_sent_as_the_other_gateway_sent_it() {
    let got = asked("zai", "glm-4.7").sent(json!([
        {"role": "user", "content": [text("@exec echo hi")], "timestamp": 1},
        {"role": "assistant", "content": [text("Let me run that. "),
            {"type": "toolCall", "id": "toolu_002185", "name": "exec",
                "arguments": {"command": "echo hi"}}],
            "api": "openai-completions", "provider": "zai", "model": "glm-4.7",
            "stopReason": "toolUse", "timestamp": 2},
        {"role": "toolResult", "toolCallId": "toolu_002185", "toolName": "exec",
            "content": [text("Exit code: 0\nhi\n")], "details": {}, "isError": false},
    ]));
    let want = json!([
        {"role": "user", "content": "@exec echo hi"},
        {"role": "assistant", "content": "Let me run that. ", "tool_calls": [{
            "id": "toolu_002185", "type": "function",
            "function": {"name": "exec", "arguments": "{\"command\":\"echo hi\"}"}}]},
        sent_result("toolu_002185", "Exit code: 0\nhi\n"),
    ]);
    assert_eq!(got, want);
}

#[test]
fn any_history_makes_a_body_that_a_strict_server_takes() {
    let models = ["acme/m", "mistral/m", "openai/m", "deepseek/m"];
    check_any_history(FORM, &models, "\"function\":{", |_, _| ());
}
