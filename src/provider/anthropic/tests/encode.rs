//! What is sent: exact bodies, and random histories held against a checker
//! that refuses what the provider would.

use serde_json::{Value, json};

use super::super::Anthropic;
use super::form::check_form;
use crate::config::ThinkingLevel;
use crate::provider::tests::asked::{
    self, Asked, Form, HERE, call, exec, image, result, text, thought, user,
};
use crate::provider::tests::histories::check_any_history;
use crate::provider::{Provider, ToolDefinition, Wire};

const FORM: Form = Form {
    api: "anthropic-messages",
    dialect: |name| Box::new(Anthropic::new(name)),
    check: |body, _| check_form(body),
    conversation: without_marks,
};

fn asked(model: &str) -> Asked {
    Asked::of(FORM, "acme", model)
}

fn thinking(model: &str) -> Asked {
    Asked { thinking: ThinkingLevel::Low, ..asked(model) }
}

fn answer(model: &str, content: Value) -> Value {
    asked::answer("acme", model, content)
}

/// The messages, without the marks for the cache.
fn without_marks(mut body: Value) -> Value {
    let mut sent = body["messages"].take();
    let messages = sent.as_array_mut().unwrap().iter_mut();
    for block in messages.flat_map(|it| it["content"].as_array_mut().unwrap()) {
        block.as_object_mut().unwrap().remove("cache_control");
    }
    sent
}

pub(super) fn sent_call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "exec", "input": {"command": "ls"}})
}

pub(super) fn sent_result(id: &str, block: Value) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": [block]})
}

fn sent_thought(text: &str, signature: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "signature": signature})
}

fn says(content: Value) -> Value {
    json!({"role": "assistant", "content": content})
}

#[test]
fn the_head_names_the_version_and_the_path() {
    let header = |wire: &Wire, name: &str| {
        let found = wire.headers.iter().find(|it| it.0 == name);
        found.map(|it| it.1.clone()).unwrap_or_default()
    };
    let mut asked = thinking("claude-sonnet-4-5");
    let wire = asked.wire(&json!([]), HERE);
    assert_eq!(wire.path, "/v1/messages");
    assert_eq!(header(&wire, "anthropic-version"), "2023-06-01");
    assert_eq!(header(&wire, "anthropic-beta"), "");
    assert_eq!(asked.wire(&json!([]), "https://here/v1").path, "/messages");
    asked.tools.push(exec());
    let beta = header(&asked.wire(&json!([]), HERE), "anthropic-beta");
    assert_eq!(beta, "interleaved-thinking-2025-05-14");
    assert_eq!(Anthropic::new("acme").key_header(), ("x-api-key", ""));
}

#[test]
fn the_body_has_only_what_is_needed() {
    let mut asked = asked("claude-sonnet-4-5");
    let marked = json!({"type": "ephemeral"});
    let want = json!({"model": "claude-sonnet-4-5", "max_tokens": 8192, "stream": true,
        "messages": [{"role": "user", "content":
            [{"type": "text", "text": "hi", "cache_control": marked}]}]});
    assert_eq!(asked.body(&json!([user(json!("hi"))])), want);
    asked.system = "Be kind.";
    asked.facts.max_tokens = Some(32_000);
    asked.tools = vec![ToolDefinition { name: "read".into(), ..exec() }, exec()];
    asked.thinking = ThinkingLevel::Low;
    let schema = json!({"type": "object", "properties": {}});
    let body = asked.body(&json!([user(json!("hi"))]));
    assert_eq!(body["max_tokens"], 32_000);
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 2048}));
    let system = json!([{"type": "text", "text": "Be kind.", "cache_control": marked}]);
    assert_eq!(body["system"], system);
    let tools = json!([{"name": "read", "description": "Runs.", "input_schema": schema},
        {"name": "exec", "description": "Runs.", "input_schema": schema, "cache_control": marked}]);
    assert_eq!(body["tools"], tools);
    asked.model.model = "claude-opus-4-6".into();
    let body = asked.body(&json!([]));
    assert_eq!(body["thinking"], json!({"type": "adaptive"}));
    assert_eq!(body["output_config"], json!({"effort": "low"}));
}

#[test]
fn a_temperature_goes_to_those_who_take_it() {
    let sent = |asked: Asked, temperature: f64| {
        Asked { temperature: Some(temperature), ..asked }.body(&json!([]))["temperature"].take()
    };
    assert_eq!(sent(asked("claude-sonnet-4-5"), 0.5), json!(0.5));
    assert_eq!(sent(asked("claude-sonnet-4-5"), 2.0), json!(1.0));
    assert_eq!(sent(thinking("claude-sonnet-4-5"), 0.5), Value::Null);
    assert_eq!(sent(asked("claude-opus-4-7"), 0.5), Value::Null);
}

#[test]
fn results_stand_first_in_the_message_after_their_calls() {
    let got = asked("m").sent(json!([
        user(json!([text("a"), text("b")])),
        answer("m", json!([text("Let me run that. "), call("1"), call("2")])),
        result("2", json!([])),
        {"role": "toolResult", "toolCallId": "1", "content": "gone", "isError": true},
        user(json!("hurry")),
        user(json!([])),
        answer("m", json!([call("3")])),
        user(json!("and?")),
        answer("m", json!([text("done")])),
        user(json!("thanks")),
    ]));
    let failed = json!({"type": "tool_result", "tool_use_id": "1", "content": [text("gone")],
        "is_error": true});
    let lost = json!({"type": "tool_result", "tool_use_id": "3",
        "content": [text("(The result is not known.)")], "is_error": true});
    let want = json!([
        user(json!([text("a"), text("b")])),
        says(json!([text("Let me run that. "), sent_call("1"), sent_call("2")])),
        user(json!([
            failed,
            sent_result("2", text("(no output)")),
            text("hurry"),
            text("(empty message)")
        ])),
        says(json!([sent_call("3")])),
        user(json!([lost, text("and?")])),
        says(json!([text("done")])),
        user(json!([text("thanks")])),
    ]);
    assert_eq!(got, want);
}

#[test]
fn the_first_and_the_last_message_are_a_users() {
    let beginning = user(json!([text("(The beginning of the conversation is not shown.)")]));
    let got = asked("m")
        .sent(json!([answer("m", json!([text("a ")])), answer("other", json!([text("b\n")]))]));
    let want = json!([
        beginning,
        says(json!([text("a "), text("b\n")])),
        user(json!([text("Continue.")]))
    ]);
    assert_eq!(got, want);
    let got = asked("m").sent(json!([answer("m", json!([call("1")])), result("1", json!("x"))]));
    let want = json!([
        beginning,
        says(json!([sent_call("1")])),
        user(json!([sent_result("1", text("x"))]))
    ]);
    assert_eq!(got, want);
    assert_eq!(asked("m").sent(json!([])), json!([user(json!([text("(empty message)")]))]));
}

#[test]
fn what_says_nothing_is_left_out() {
    let got = asked("m").sent(json!([
        user(json!([])),
        answer("m", json!([thought("hm", "s")])),
        answer("m", json!([text(" \n"), {"type": "smell", "of": "rain"}])),
        result("9", json!("of no call")),
        {"role": "oracle"},
        user(json!([text("a"), text(" "), {"type": "smell"}])),
    ]));
    assert_eq!(got, json!([user(json!([text("(empty message)"), text("a")]))]));
}

#[test]
fn images_are_shown_to_a_model_that_sees() {
    let messages = json!([
        user(json!([text("look"), image("image/png"), image("image/bmp")])),
        answer("m", json!([call("1")])),
        result("1", json!([text("Read it."), image("image/webp")])),
    ]);
    let shown = |kind: &str| json!({"type": "image", "source": {"type": "base64", "media_type": kind, "data": "aGk="}});
    let unread = text("(An image was left out: this model reads no image/bmp.)");
    let mut seeing = asked("m");
    seeing.facts.images = Some(true);
    let results = |last: Value| json!([{"type": "tool_result", "tool_use_id": "1", "content": [text("Read it."), last]}]);
    let want = json!([
        user(json!([text("look"), shown("image/png"), unread])),
        says(json!([sent_call("1")])),
        user(results(shown("image/webp")))
    ]);
    assert_eq!(seeing.sent(messages.clone()), want);
    let left_out = text("(An image was left out: this model reads text only.)");
    let want = json!([
        user(json!([text("look"), left_out, left_out])),
        says(json!([sent_call("1")])),
        user(results(left_out))
    ]);
    assert_eq!(asked("m").sent(messages), want);
}

#[test]
fn thoughts_go_back_as_they_came_and_only_to_where_they_came_from() {
    let hidden = json!({"type": "thinking", "thinking": "[hidden]", "thinkingSignature": "d",
        "redacted": true});
    let content = json!([thought("hm \n", "s"), thought("", "t"), hidden, thought("of nobody", ""),
        {"type": "thinking", "thinking": "unsigned"}, text("a"), thought("late", "u")]);
    let sent = |asked: Asked, answer: Value| {
        let messages = json!([user(json!("hi")), answer, user(json!("go on"))]);
        asked.sent(messages)[1]["content"].take()
    };
    let whole = json!([sent_thought("hm \n", "s"), sent_thought("", "t"),
        {"type": "redacted_thinking", "data": "d"}, text("a")]);
    assert_eq!(sent(asked("m"), answer("m", content.clone())), whole);
    let stripped = json!([text("a")]);
    assert_eq!(sent(asked("m"), answer("other", content.clone())), stripped);
    let again = Asked { is_stripped: true, ..asked("m") };
    assert_eq!(sent(again, answer("m", content.clone())), stripped);
    let mut elsewhere = answer("m", content);
    elsewhere["beige"]["endpoint"] = json!("https://there");
    assert_eq!(sent(asked("m"), elsewhere), stripped);
}

#[test]
fn thoughts_that_nobody_signs_go_back_to_those_who_want_them() {
    let messages = json!([
        user(json!("hi")),
        answer("kimi-k2", json!([{"type": "thinking", "thinking": "hm"}, call("1")])),
        result("1", json!("x"))
    ]);
    let wire = asked("kimi-k2").wire(&messages, HERE);
    let body: Value = serde_json::from_slice(&wire.body).unwrap();
    let want = json!([sent_thought("hm", ""), sent_call("1")]);
    assert_eq!(body["messages"][1]["content"], want);
}

#[test]
fn a_turn_that_began_elsewhere_goes_on_without_a_budget() {
    let turn = |first: Value, is_stripped: bool| {
        let asked = Asked { is_stripped, ..thinking("claude-sonnet-4-5") };
        let messages = json!([
            user(json!("hi")),
            first,
            result("1", json!("x")),
            answer("claude-sonnet-4-5", json!([thought("hm", "s"), call("2")])),
            result("2", json!("y")),
            user(json!("hurry"))
        ]);
        asked.body(&messages)["thinking"].is_object()
    };
    let own = answer("claude-sonnet-4-5", json!([thought("hm", "s"), call("1")]));
    assert!(turn(own.clone(), false));
    assert!(!turn(own, true));
    assert!(!turn(answer("gpt", json!([call("1")])), false));
    // The next turn is another.
    let messages = json!([
        user(json!("hi")),
        answer("gpt", json!([call("1")])),
        result("1", json!("x")),
        answer("gpt", json!([text("done")])),
        user(json!("more"))
    ]);
    assert!(thinking("claude-sonnet-4-5").body(&messages)["thinking"].is_object());
}

#[test]
fn ids_and_names_are_written_as_they_are_taken() {
    let odd = |id: &str, name: &str| json!({"type": "toolCall", "id": id, "name": name, "arguments": null});
    let got = asked("m").sent(json!([
        user(json!("hi")),
        answer("m", json!([odd("functions.exec:0", "a.b"), odd("toolu_01-A", "")])),
        result("functions.exec:0", json!("first")),
        result("toolu_01-A", json!("second")),
        answer("other", json!([odd("call_1|fc_2", &"é".repeat(65)), odd("call_1|fc_2", "exec")])),
        result("call_1|fc_2", json!("third")),
        result("call_1|fc_2", json!("fourth")),
    ]));
    let calls: Vec<&Value> =
        [1, 3].iter().flat_map(|it| got[*it]["content"].as_array().unwrap()).collect();
    let results: Vec<&Value> =
        [2, 4].iter().flat_map(|it| got[*it]["content"].as_array().unwrap()).collect();
    assert_eq!(calls[1]["id"], "toolu_01-A", "its own id stays");
    let names: Vec<&Value> = calls.iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["a_b", "unnamed", &"_".repeat(64), "exec"]);
    for ((call, result), want) in
        calls.iter().zip(results).zip(["first", "second", "third", "fourth"])
    {
        assert_eq!(
            (&result["tool_use_id"], &result["content"]),
            (&call["id"], &json!([text(want)]))
        );
        assert_eq!(call["input"], json!({}));
    }
}

#[test]
fn the_ends_of_the_last_two_user_messages_are_marked_for_the_cache() {
    let body = asked("m").body(&json!([
        user(json!("a")),
        answer("m", json!([text("b")])),
        user(json!("c")),
        answer("m", json!([call("1")])),
        result("1", json!("d"))
    ]));
    let marked: Vec<bool> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["content"].as_array().unwrap().last().unwrap()["cache_control"].is_object())
        .collect();
    assert_eq!(marked, [false, false, true, false, true]);
}

/// It is in the provider's cache, and newer models sign it with their thoughts.
#[test]
fn the_beginning_of_a_conversation_stays_the_same() {
    let mut messages = vec![
        user(json!("one")),
        answer("m", json!([thought("hm", "s"), call("1")])),
        result("1", json!("x")),
    ];
    let before = asked("m").sent(json!(messages));
    messages.push(answer("m", json!([text("done")])));
    messages.push(user(json!("two")));
    let after = asked("m").sent(json!(messages));
    let before = before.as_array().unwrap();
    assert_eq!(&after.as_array().unwrap()[..before.len()], &before[..]);
}

#[test]
fn any_history_makes_a_body_that_the_provider_takes() {
    let models = ["acme/claude-sonnet-4-5", "acme/claude-opus-4-6", "acme/x"];
    check_any_history(FORM, &models, "\"tool_use\"", |dice, asked| {
        asked.thinking = dice.one_of(&ThinkingLevel::ALL);
        asked.facts.max_tokens = dice.one_of(&[None, Some(1_500), Some(9_000), Some(64_000)]);
        asked.system = dice.one_of(&["", " ", "Be kind."]);
        asked.tools = if dice.below(2) == 0 { vec![exec()] } else { Vec::new() };
    });
}
