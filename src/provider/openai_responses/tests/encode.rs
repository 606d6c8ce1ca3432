//! What is sent: exact bodies, held against a checker that refuses what the
//! strictest server would.

use serde_json::{Value, json};

use super::super::OpenAiResponses;
use super::form::check_form;
use crate::config::ThinkingLevel;
use crate::provider::ToolDefinition;
use crate::provider::tests::asked::{Asked, Form, HERE, image, result};
use crate::provider::tests::histories::check_any_history;

const FORM: Form = Form {
    api: "openai-responses",
    dialect: |name| Box::new(OpenAiResponses::new(name)),
    check: |body, _| check_form(body),
    conversation: |mut it| it["input"].take(),
};

fn asked(provider: &str, model: &str) -> Asked {
    Asked::of(FORM, provider, model)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

fn answer(provider: &str, content: Value) -> Value {
    json!({"role": "assistant", "api": "openai-responses", "provider": provider, "model": "m",
        "content": content, "stopReason": "stop", "beige": {"endpoint": HERE}})
}

fn call(id: &str, item: Option<&str>) -> Value {
    let mut call =
        json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {"command": "ls"}});
    if let Some(item) = item {
        call["thoughtSignature"] = json!(item);
    }
    call
}

fn text(text: &str, item: Option<&str>) -> Value {
    let mut block = json!({"type": "text", "text": text});
    if let Some(item) = item {
        block["textSignature"] = json!(item);
    }
    block
}

/// A reasoning item as its server gave it.
pub(super) fn item(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "encrypted_content": format!("own {id}"), "summary": []})
}

fn thinking(id: &str) -> Value {
    json!({"type": "thinking", "thinking": "hm", "thinkingSignature": item(id).to_string()})
}

pub(super) fn sent_user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

pub(super) fn sent_text(text: &str, id: Option<&str>) -> Value {
    let part = json!({"type": "output_text", "text": text});
    let mut item = json!({"type": "message", "role": "assistant", "content": [part]});
    if let Some(id) = id {
        item["id"] = json!(id);
        item["status"] = json!("completed");
        item["content"][0]["annotations"] = json!([]);
    }
    item
}

pub(super) fn sent_call(id: &str, item: Option<&str>) -> Value {
    let mut call = json!({"type": "function_call", "call_id": id, "name": "exec",
        "arguments": "{\"command\":\"ls\"}"});
    if let Some(item) = item {
        call["id"] = json!(item);
    }
    call
}

pub(super) fn sent_result(id: &str, output: Value) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": output})
}

#[test]
fn the_body_has_only_what_there_is_to_say() {
    let mut asked = asked("acme", "m");
    let hi = json!([user("hi")]);
    let want = json!({"model": "m", "input": [sent_user("hi")], "stream": true, "store": false});
    assert_eq!(asked.body(&hi), want);
    asked.system = "Be kind.";
    asked.facts.max_tokens = Some(32_000);
    asked.temperature = Some(0.5);
    let parameters = json!({"type": "object", "properties": {}});
    let tool = |parameters: Value| ToolDefinition {
        name: "exec".into(),
        description: "Runs.".into(),
        parameters,
    };
    asked.tools = vec![tool(parameters.clone()), tool(json!({"type": "object"}))];
    let sent = json!({"type": "function", "name": "exec", "description": "Runs.",
        "parameters": parameters, "strict": false});
    let want = json!({"model": "m", "instructions": "Be kind.", "input": [sent_user("hi")],
        "stream": true, "store": false, "max_output_tokens": 32_000, "temperature": 0.5,
        "tools": [sent, sent]});
    assert_eq!(asked.body(&hi), want);
    asked.max_tokens = Some(1);
    assert_eq!(asked.body(&hi)["max_output_tokens"], json!(16));
}

#[test]
fn a_model_that_thinks_is_asked_for_what_it_thought() {
    let mut asked = asked("openai", "gpt-5.1");
    asked.temperature = Some(0.5);
    let body = asked.body(&json!([]));
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(body["reasoning"], json!({"effort": "none"}));
    assert_eq!(body.get("temperature"), None);
    asked.thinking = ThinkingLevel::High;
    assert_eq!(asked.body(&json!([]))["reasoning"], json!({"effort": "high", "summary": "auto"}));
    asked.facts.reasoning = Some(false);
    let body = asked.body(&json!([]));
    assert_eq!((body.get("include"), body.get("reasoning")), (None, None));
}

#[test]
fn an_answer_goes_back_as_it_was_given() {
    let got = asked("acme", "m").sent(json!([
        user("go"),
        answer(
            "acme",
            json!([
                thinking("rs_1"),
                text("Let me look.", Some(r#"{"v":1,"id":"msg_1","phase":"commentary"}"#)),
                thinking("rs_2"),
                thinking("rs_3"),
                call("call_a", Some("fc_1")),
                call("call_b|fc_2", None)
            ])
        ),
        result("call_a", json!([text("out", None)])),
        result("call_b|fc_2", json!([])),
        answer("acme", json!([text("done", Some("msg_2"))])),
        user("more"),
    ]));
    let mut said = sent_text("Let me look.", Some("msg_1"));
    said["phase"] = json!("commentary");
    let want = json!([
        sent_user("go"),
        item("rs_1"),
        said,
        item("rs_2"),
        item("rs_3"),
        sent_call("call_a", Some("fc_1")),
        sent_call("call_b", Some("fc_2")),
        sent_result("call_a", json!("out")),
        sent_result("call_b", json!("(no output)")),
        sent_text("done", Some("msg_2")),
        sent_user("more"),
    ]);
    assert_eq!(got, want);
}

/// C4: thinking goes only with what followed it, and ids only with the thinking
/// before them.
#[test]
fn thinking_that_nothing_followed_is_left_out() {
    let sent = |content: Value, stop: &str| {
        let mut said = answer("acme", content);
        said["stopReason"] = json!(stop);
        asked("acme", "m").sent(json!([said, user("more")]))
    };
    let more = sent_user("more");
    assert_eq!(sent(json!([thinking("rs_1")]), "aborted"), json!([more]));
    assert_eq!(sent(json!([thinking("rs_1")]), "stop"), json!([more]));
    // A message that was broken off is not what followed.
    let half = json!([thinking("rs_1"), text("Half", None)]);
    assert_eq!(sent(half.clone(), "aborted"), json!([sent_text("Half", None), more]));
    assert_eq!(sent(half.clone(), "error"), json!([sent_text("Half", None), more]));
    assert_eq!(sent(half, "stop"), json!([item("rs_1"), sent_text("Half", None), more]));
    // What was whole before the end stays.
    let begun = json!([thinking("rs_1"), text("a", Some("msg_1")), thinking("rs_2")]);
    let want = json!([item("rs_1"), sent_text("a", Some("msg_1")), more]);
    assert_eq!(sent(begun, "aborted"), want);
}

#[test]
fn what_lacks_its_thinking_goes_without_its_id() {
    let sent = |thought: Value| {
        let said = json!([
            thought,
            text("a", Some("msg_1")),
            call("c1", Some("fc_1")),
            thinking("rs_2"),
            call("c2", Some("fc_2"))
        ]);
        asked("acme", "m").sent(json!([
            answer("acme", said),
            result("c1", json!("x")),
            result("c2", json!("x"))
        ]))
    };
    let want = json!([
        sent_text("a", None),
        sent_call("c1", None),
        item("rs_2"),
        sent_call("c2", Some("fc_2")),
        sent_result("c1", json!("x")),
        sent_result("c2", json!("x"))
    ]);
    assert_eq!(sent(json!({"type": "thinking", "thinking": "hm"})), want);
    let odd = json!({"type": "thinking", "thinking": "hm", "thinkingSignature": "EjQK"});
    assert_eq!(sent(odd), want);
}

#[test]
fn opaque_data_goes_back_to_its_own_place_only() {
    let said = json!([thinking("rs_1"), text("a", Some("msg_1")), call("call_a", Some("fc_1"))]);
    let sent = |asked: &Asked, change: &dyn Fn(&mut Value)| {
        let mut said = answer("acme", said.clone());
        change(&mut said);
        asked.sent(json!([said, result("call_a", json!("x"))]))
    };
    let bare =
        json!([sent_text("a", None), sent_call("call_a", None), sent_result("call_a", json!("x"))]);
    let here = asked("acme", "m");
    assert_eq!(sent(&here, &|_| ())[0], item("rs_1"));
    assert_eq!(sent(&here, &|it| it["beige"] = json!({"endpoint": "https://b"})), bare);
    assert_eq!(sent(&here, &|it| it["api"] = json!("openai-completions")), bare);
    let stripped = Asked { is_stripped: true, ..asked("acme", "m") };
    assert_eq!(sent(&stripped, &|_| ()), bare);
    // Another model has its ids written anew.
    for other in [asked("acme", "other"), asked("other", "m")] {
        let got = sent(&other, &|_| ());
        assert_eq!((&got[0], got[1]["call_id"] == json!("call_a")), (&bare[0], false), "{got}");
        assert_eq!(got[1]["call_id"], got[2]["call_id"]);
        assert_eq!((got[1].get("id"), got.as_array().map(Vec::len)), (None, Some(3)));
    }
}

#[test]
fn a_conversation_with_another_provider_goes_on() {
    let long = format!("toolu_{}", "x".repeat(90));
    let odd = "a|b/ü {}";
    let got = asked("acme", "m").sent(json!([
        {"role": "assistant", "provider": "anthropic", "model": "claude", "content": [
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "EjQK"},
            {"type": "thinking", "thinking": "", "thinkingSignature": "x", "redacted": true},
            text(" \n", None), text("Well.", Some("sig")), call(&long, Some("sig")), call(odd, None)]},
        result(odd, json!("two")),
        result(&long, json!("one")),
        answer("acme", json!([call("call_a", None), call("call_a", None), call("", None)])),
        result("call_a", json!("three")),
        result("call_a", json!("four")),
        result("", json!("five")),
        result("x", json!("of no call")),
    ]));
    let id = |place: usize| got[place]["call_id"].as_str().unwrap_or_default();
    assert_eq!(got[0], sent_text("Well.", None));
    assert_eq!((id(1), id(2)), (id(3), id(4)));
    assert_eq!(got[3]["output"], json!("one"));
    assert_eq!((id(5), id(5) == id(6)), ("call_a", false));
    assert_eq!((id(8), id(9), id(10)), (id(5), id(6), id(7)));
    assert_eq!(got.as_array().map(Vec::len), Some(11));
}

#[test]
fn images_are_shown_to_a_model_that_sees() {
    let messages = json!([
        {"role": "user", "content": [text("look", None), image("image/png"), text("", None)]},
        answer("acme", json!([call("1", None), call("2", None), call("3", None)])),
        result("1", json!([text("Read it.", None), image("image/png")])),
        {"role": "toolResult", "toolCallId": "2", "content": [image("image/png")], "isError": true},
        result("3", json!("out")),
        user("more"),
    ]);
    let url = "data:image/png;base64,aGk=";
    let shown = json!({"type": "input_image", "detail": "auto", "image_url": url});
    let part = |text: &str| json!({"type": "input_text", "text": text});
    let looked = |parts: Value| json!({"type": "message", "role": "user", "content": parts});
    let calls = ["1", "2", "3"].map(|it| sent_call(it, None));
    let want = |user: Value, one: Value, two: Value, after: Option<Value>| {
        let results =
            [sent_result("1", one), sent_result("2", two), sent_result("3", json!("out"))];
        let all = [user].into_iter().chain(calls.clone()).chain(results).chain(after);
        all.chain([sent_user("more")]).collect::<Value>()
    };
    let mut seeing = asked("acme", "m");
    seeing.facts.images = Some(true);
    let got = seeing.sent(messages.clone());
    let user = looked(json!([part("look"), shown]));
    let one = json!([part("Read it."), shown]);
    assert_eq!(got, want(user.clone(), one, json!([part("Error:"), shown]), None));
    // Where a result is a text and nothing else, the images follow it.
    seeing.model.provider = "vllm".into();
    let history = messages.to_string().replace("acme", "vllm");
    let got = seeing.sent(serde_json::from_str(&history).unwrap());
    let (one, two) =
        (json!("Read it.\n(The image follows.)"), json!("Error: (The image follows.)"));
    let after = looked(json!([
        part("What `exec` returned as an image:"),
        shown,
        part("What `exec` returned as an image:"),
        shown
    ]));
    assert_eq!(got, want(user, one, two, Some(after)));
    let note = "(An image was left out: this model reads text only.)";
    let user = looked(json!([part("look"), part(note)]));
    let (one, two) = (json!(format!("Read it.\n{note}")), json!(format!("Error: {note}")));
    assert_eq!(asked("acme", "m").sent(messages), want(user, one, two, None));
}

#[test]
fn what_says_nothing_is_left_out() {
    let got = asked("acme", "m").sent(json!([
        {"role": "user", "content": []},
        {"role": "user", "content": ""},
        answer("other", json!([{"type": "thinking", "thinking": "hm"}])),
        answer("other", json!([text(" \n", None)])),
        answer("acme", json!([{"type": "smell", "of": "rain"}, text("", Some("msg_1"))])),
        result("9", json!("of no call")),
        {"role": "oracle"},
        {"role": "user", "content": "a"},
    ]));
    let empty = sent_user("(empty message)");
    assert_eq!(got, json!([empty, empty, sent_user("a")]));
}

#[test]
fn a_made_up_tool_name_and_odd_arguments_are_sent_as_what_is_taken() {
    let mut odd = call("1", None);
    odd["name"] = json!("functions.exec é");
    odd["arguments"] = json!("{");
    let got =
        asked("acme", "m").sent(json!([answer("acme", json!([odd])), result("1", json!("no"))]));
    assert_eq!((&got[0]["name"], &got[0]["arguments"]), (&json!("functions_exec__"), &json!("{}")));
}

#[test]
fn any_history_makes_a_body_that_a_strict_server_takes() {
    check_any_history(FORM, &["acme/m", "vllm/m"], "\"type\":\"function_call\"", |_, _| ());
}
