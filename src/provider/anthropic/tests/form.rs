//! Refuses what the provider refuses, so that tests need no provider.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::encode::{sent_call, sent_result};
use crate::provider::tests::asked::{fields, text};

/// Refuses what the provider refuses: a field it does not know, roles that do
/// not alternate, results that do not follow their calls at once, and what is
/// empty.
pub(super) fn check_form(body: &Value) -> Result<(), String> {
    let top = [
        "model",
        "max_tokens",
        "stream",
        "messages",
        "system",
        "tools",
        "thinking",
        "output_config",
        "temperature",
    ];
    fields(body, &top)?;
    let most = body["max_tokens"].as_u64().filter(|it| *it > 0).ok_or("max_tokens")?;
    if let Some(thinking) = body.get("thinking") {
        fields(thinking, &["type", "budget_tokens", "display"])?;
        let is_enabled = thinking["type"] == "enabled";
        let budget = thinking["budget_tokens"].as_u64();
        let fits = budget.is_some_and(|it| it >= 1_024 && it < most);
        if is_enabled != budget.is_some() || (is_enabled && !fits) {
            return Err(format!("{thinking} of {most}"));
        }
    }
    let marks = body.to_string().matches("\"cache_control\"").count();
    if marks > 4 {
        return Err(format!("{marks} marks"));
    }
    check_messages(body["messages"].as_array().ok_or("no messages")?)?;
    if body["thinking"]["type"] == "enabled" { check_turn(&body["messages"]) } else { Ok(()) }
}

fn check_messages(messages: &[Value]) -> Result<(), String> {
    let mut ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        fields(message, &["role", "content"])?;
        let role = if index % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != role {
            return Err(format!("{index} is not of role {role}"));
        }
        let blocks = message["content"].as_array().filter(|it| !it.is_empty());
        let blocks = blocks.ok_or(format!("{index} is empty"))?;
        let results = open.len();
        for (place, block) in blocks.iter().enumerate() {
            if role == "assistant" {
                open.extend(check_said(block, &mut ids)?);
            } else if place < results {
                check_result(block, open[place])?;
            } else {
                check_shown(block)?;
            }
        }
        if role == "user" {
            if blocks.len() < results {
                return Err(format!("calls without result: {open:?}"));
            }
            open.clear();
        } else if blocks.last().is_some_and(|it| it["type"] != "text" && it["type"] != "tool_use") {
            return Err(format!("{index} ends with a thought"));
        }
    }
    if messages.len() % 2 == 1 { Ok(()) } else { Err("the last is no user's".into()) }
}

/// A block of an answer; its id, if it is a call.
fn check_said<'a>(block: &'a Value, ids: &mut HashSet<&'a str>) -> Result<Option<&'a str>, String> {
    match block["type"].as_str() {
        Some("text") => check_shown(block).map(|()| None),
        Some("thinking") => {
            fields(block, &["type", "thinking", "signature"])?;
            filled(&block["signature"]).map(|()| None)
        }
        Some("redacted_thinking") => {
            fields(block, &["type", "data"])?;
            filled(&block["data"]).map(|()| None)
        }
        Some("tool_use") => {
            fields(block, &["type", "id", "name", "input"])?;
            let plain = |it: &Value| {
                let it = it.as_str().unwrap_or_default();
                let sound = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
                (1..=64).contains(&it.len()) && it.chars().all(sound)
            };
            if !plain(&block["id"]) || !plain(&block["name"]) || !block["input"].is_object() {
                return Err(format!("the call {block}"));
            }
            let id = block["id"].as_str().unwrap_or_default();
            if ids.insert(id) { Ok(Some(id)) } else { Err(format!("{id} twice")) }
        }
        _ => Err(format!("the block {block}")),
    }
}

fn check_result(block: &Value, id: &str) -> Result<(), String> {
    fields(block, &["type", "tool_use_id", "content", "is_error", "cache_control"])?;
    if block["type"] != "tool_result" || block["tool_use_id"] != id {
        return Err(format!("{block} is not the result of {id}"));
    }
    let content = block["content"].as_array().filter(|it| !it.is_empty()).ok_or("no content")?;
    content.iter().try_for_each(check_shown)
}

/// A text or an image.
fn check_shown(block: &Value) -> Result<(), String> {
    match block["type"].as_str() {
        Some("text") => {
            fields(block, &["type", "text", "cache_control"])?;
            filled(&block["text"])
        }
        Some("image") => {
            fields(block, &["type", "source", "cache_control"])?;
            fields(&block["source"], &["type", "media_type", "data"])?;
            filled(&block["source"]["data"])
        }
        _ => Err(format!("the block {block}")),
    }
}

/// A turn that goes on with results began with a thought.
fn check_turn(messages: &Value) -> Result<(), String> {
    let messages = messages.as_array().ok_or("no messages")?;
    let has_results = |it: &&Value| it["content"][0]["type"] == "tool_result";
    let goes_on = messages.last().filter(has_results).is_some();
    let start = messages.iter().rposition(|it| it["role"] == "user" && !has_results(&it));
    let first = messages[start.ok_or("no user")?..].get(1).map(|it| &it["content"][0]["type"]);
    let is_thought = first.is_some_and(|it| it == "thinking" || it == "redacted_thinking");
    if goes_on && !is_thought { Err(format!("the turn begins with {first:?}")) } else { Ok(()) }
}

fn filled(text: &Value) -> Result<(), String> {
    match text.as_str() {
        Some(it) if !it.trim().is_empty() => Ok(()),
        _ => Err(format!("no text: {text}")),
    }
}

#[track_caller]
fn check_refused(messages: Value, why: &str) {
    let got = check_form(&json!({"max_tokens": 2_000, "messages": messages,
        "thinking": {"type": "enabled", "budget_tokens": 1_024}}));
    assert!(got.as_ref().is_err_and(|it| it.contains(why)), "{got:?}");
}

#[test]
fn the_checker_refuses_what_the_provider_would() {
    let user = json!({"role": "user", "content": [text("x")]});
    let of = |content: Value| json!({"role": "assistant", "content": content});
    let results = |content: Value| json!({"role": "user", "content": content});
    let thought = json!({"type": "thinking", "thinking": "", "signature": "s"});
    let call = sent_call("a");
    check_refused(json!([of(json!([text("x")]))]), "role user");
    check_refused(json!([user, user]), "role assistant");
    check_refused(json!([user, of(json!([text("x")]))]), "no user's");
    check_refused(json!([user, of(json!([])), user]), "empty");
    check_refused(json!([user, of(json!([text(" ")])), user]), "no text");
    check_refused(json!([user, of(json!([thought])), user]), "ends with a thought");
    check_refused(json!([user, of(json!([call])), user]), "field text");
    let result = sent_result("a", text("x"));
    check_refused(json!([user, of(json!([call])), results(json!([result]))]), "begins with");
    check_refused(json!([user, of(json!([call, call])), results(json!([result]))]), "twice");
    let other = sent_call("b");
    check_refused(json!([user, of(json!([call, other])), results(json!([result]))]), "without");
    check_refused(json!([user, of(json!([other])), results(json!([result]))]), "result of b");
    let late = results(json!([text("x"), result]));
    check_refused(json!([user, of(json!([call])), late]), "field text");
    check_refused(json!([{"role": "user", "content": [result]}]), "the block");
}
