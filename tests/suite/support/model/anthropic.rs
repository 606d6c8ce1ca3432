//! Messages as Anthropic has them: roles alternate, results stand first in the
//! message after their calls, nothing is empty, no field is one too many, and
//! a thought comes back with the very signature it was given.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use super::script::{Answer, Part, Said, Stop};
use super::wire::Head;

/// The fields that a request may have.
const REQUEST: &[&str] = &[
    "model",
    "max_tokens",
    "messages",
    "stream",
    "system",
    "tools",
    "thinking",
    "output_config",
    "temperature",
];

/// Most marks for the cache in a request.
const MOST_MARKS: usize = 4;

/// Least budget for thinking.
const LEAST_BUDGET: u64 = 1_024;

/// What is wrong with a request, if anything.
type Check<T = ()> = Result<T, String>;

/// All that is wrong with a request's head.
pub(super) fn head(head: &Head, key: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut only = |name: &str, want: &[&str]| {
        let got = head.all(name);
        if got != want {
            found.push(format!("{name} is {got:?}"));
        }
    };
    only("x-api-key", &[key]);
    only("authorization", &[]);
    only("anthropic-version", &["2023-06-01"]);
    if !head.all("anthropic-beta").is_empty() {
        only("anthropic-beta", &["interleaved-thinking-2025-05-14"]);
    }
    found
}

/// What is wrong with a request's body.
pub(super) fn body(body: &Value) -> Vec<String> {
    let checks = [whole(body), system(body), tools(body), thinking(body), messages(body)];
    checks.into_iter().filter_map(Result::err).collect()
}

fn whole(body: &Value) -> Check {
    fields(body, REQUEST)?;
    filled(&body["model"])?;
    check(body["stream"] == true, || "stream is not true".into())?;
    check(body["max_tokens"].as_u64().is_some_and(|it| it > 0), || "max_tokens".into())?;
    let marks = body.to_string().matches("\"cache_control\":").count();
    check(marks <= MOST_MARKS, || format!("{marks} marks for the cache"))
}

fn system(body: &Value) -> Check {
    if body["system"].is_null() {
        return Ok(());
    }
    list(&body["system"], "system")?.iter().try_for_each(text)
}

fn tools(body: &Value) -> Check {
    if body["tools"].is_null() {
        return Ok(());
    }
    let mut names = BTreeSet::new();
    for tool in list(&body["tools"], "tools")? {
        fields(tool, &["name", "description", "input_schema", "cache_control"])?;
        mark(tool)?;
        word(&tool["name"])?;
        check(names.insert(tool["name"].to_string()), || format!("{tool} a second time"))?;
        check(tool["description"].is_string(), || format!("the description of {tool}"))?;
        let kind = &tool["input_schema"]["type"];
        check(kind == "object", || format!("a schema of type {kind}"))?;
    }
    Ok(())
}

fn thinking(body: &Value) -> Check {
    let (thinking, effort) = (&body["thinking"], &body["output_config"]);
    if !effort.is_null() {
        fields(effort, &["effort"])?;
        let is_known = ["low", "medium", "high", "max"].iter().any(|it| effort["effort"] == *it);
        check(is_known, || format!("an effort of {effort}"))?;
    }
    match thinking["type"].as_str() {
        Some("enabled") => {
            fields(thinking, &["type", "budget_tokens"])?;
            let most = body["max_tokens"].as_u64().unwrap_or_default();
            let fits = |it| (LEAST_BUDGET..most).contains(&it);
            let is_sound = thinking["budget_tokens"].as_u64().is_some_and(fits);
            check(is_sound, || format!("{thinking} of {most} tokens"))?;
            began_with_a_thought(&body["messages"])?;
        }
        Some("adaptive") => fields(thinking, &["type", "display"])?,
        Some("disabled") => fields(thinking, &["type"])?,
        _ => check(thinking.is_null(), || format!("thinking is {thinking}"))?,
    }
    let warmth = &body["temperature"];
    let is_sound = match warmth.as_f64() {
        Some(it) => (0.0..=1.0).contains(&it) && !is_on(thinking),
        None => warmth.is_null(),
    };
    check(is_sound, || format!("a temperature of {warmth} with thinking {thinking}"))
}

fn is_on(thinking: &Value) -> bool {
    !thinking.is_null() && thinking["type"] != "disabled"
}

/// A model with a budget wants to see the thought that a turn began with.
fn began_with_a_thought(messages: &Value) -> Check {
    let messages = list(messages, "messages")?;
    let has_results = |it: &Value| it["content"][0]["type"] == "tool_result";
    if !messages.last().is_some_and(has_results) {
        return Ok(());
    }
    let start = messages.iter().rposition(|it| it["role"] == "user" && !has_results(it));
    let first = start.and_then(|it| messages.get(it + 1)).map(|it| &it["content"][0]["type"]);
    let is_thought = first.is_some_and(|it| it == "thinking" || it == "redacted_thinking");
    check(is_thought, || format!("expected `thinking` at the turn's beginning, found {first:?}"))
}

fn messages(body: &Value) -> Check {
    let messages = list(&body["messages"], "messages")?;
    let mut ids = BTreeSet::new();
    // Calls of the answer before.
    let mut open: Vec<String> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let place = |it| format!("messages[{index}]: {it}");
        let role = if index % 2 == 0 { "user" } else { "assistant" };
        check(message["role"] == role, || place(format!("the role is {}", message["role"])))?;
        open = match role {
            "user" => shown(message, &open).map(|()| Vec::new()),
            _ => answer_of(message, &mut ids),
        }
        .map_err(place)?;
    }
    check(messages.len() % 2 == 1, || "the last message is the model's".into())
}

/// A user's message: the results of all open calls, then what else there is.
fn shown(message: &Value, open: &[String]) -> Check {
    fields(message, &["role", "content"])?;
    let content = list(&message["content"], "content")?;
    check(content.len() >= open.len(), || format!("not all of {open:?} have a result"))?;
    let (results, others) = content.split_at(open.len());
    results.iter().zip(open).try_for_each(|(block, id)| result(block, id))?;
    others.iter().try_for_each(|it| if it["type"] == "image" { image(it) } else { text(it) })
}

fn result(block: &Value, id: &str) -> Check {
    fields(block, &["type", "tool_use_id", "content", "is_error", "cache_control"])?;
    mark(block)?;
    check(block["type"] == "tool_result", || format!("no result for {id} but {block}"))?;
    check(block["tool_use_id"] == id, || format!("a result for {id} is {block}"))?;
    check(block["is_error"].is_null() || block["is_error"].is_boolean(), || "is_error".into())?;
    let content = list(&block["content"], "a result's content")?;
    content.iter().try_for_each(|it| if it["type"] == "image" { image(it) } else { text(it) })
}

/// The ids of an answer's calls.
fn answer_of(message: &Value, ids: &mut BTreeSet<String>) -> Check<Vec<String>> {
    fields(message, &["role", "content"])?;
    let content = list(&message["content"], "content")?;
    let mut open = Vec::new();
    for block in content {
        match block["type"].as_str() {
            Some("thinking") => thought(block)?,
            Some("redacted_thinking") => {
                fields(block, &["type", "data"])?;
                filled(&block["data"])?;
            }
            Some("tool_use") => open.push(call(block, ids)?),
            _ => text(block)?,
        }
    }
    let last = content.last().map_or("", |it| it["type"].as_str().unwrap_or_default());
    check(!last.contains("thinking"), || format!("it ends with {last}"))?;
    Ok(open)
}

fn thought(block: &Value) -> Check {
    fields(block, &["type", "thinking", "signature"])?;
    let thinking = block["thinking"].as_str().ok_or("a thought that is no text")?;
    let signature = block["signature"].as_str().unwrap_or_default();
    let given = signature.rsplit_once('.').map(|(it, _)| sealed(thinking, it));
    check(given.as_deref() == Some(signature), || format!("the signature {signature:?} of {block}"))
}

fn call(block: &Value, ids: &mut BTreeSet<String>) -> Check<String> {
    fields(block, &["type", "id", "name", "input", "cache_control"])?;
    mark(block)?;
    let id = word(&block["id"])?;
    word(&block["name"])?;
    check(ids.insert(id.to_owned()), || format!("the id {id} a second time"))?;
    check(block["input"].is_object(), || format!("the input of {block}"))?;
    Ok(id.to_owned())
}

fn text(block: &Value) -> Check {
    check(block["type"] == "text", || format!("a block {block}"))?;
    fields(block, &["type", "text", "cache_control"])?;
    mark(block)?;
    filled(&block["text"])
}

fn image(block: &Value) -> Check {
    fields(block, &["type", "source", "cache_control"])?;
    mark(block)?;
    let source = &block["source"];
    fields(source, &["type", "media_type", "data"])?;
    let kinds = ["image/jpeg", "image/png", "image/gif", "image/webp"];
    let is_sound = source["type"] == "base64" && kinds.iter().any(|it| source["media_type"] == *it);
    check(is_sound, || format!("an image {source}"))?;
    filled(&source["data"])
}

fn mark(block: &Value) -> Check {
    let mark = &block["cache_control"];
    let is_sound = mark.is_null() || *mark == json!({"type": "ephemeral"});
    check(is_sound, || format!("the mark {mark}"))
}

/// A name or an id.
fn word(value: &Value) -> Check<&str> {
    let word = value.as_str().unwrap_or_default();
    let is_sound = |it: u8| it.is_ascii_alphanumeric() || b"_-".contains(&it);
    let fits = (1..=64).contains(&word.len()) && word.bytes().all(is_sound);
    check(fits, || format!("the name or id {value}"))?;
    Ok(word)
}

/// A text that is more than white space.
fn filled(value: &Value) -> Check {
    let is_filled = value.as_str().is_some_and(|it| !it.trim().is_empty());
    check(is_filled, || format!("{value} is not a text with content"))
}

fn list<'a>(value: &'a Value, what: &str) -> Check<&'a [Value]> {
    let items = value.as_array().filter(|it| !it.is_empty());
    items.map(Vec::as_slice).ok_or_else(|| format!("{what} is not a list with content: {value}"))
}

fn fields(value: &Value, known: &[&str]) -> Check {
    let fields = value.as_object().ok_or_else(|| format!("not an object: {value}"))?;
    let mut wrong =
        fields.iter().filter(|(it, field)| !known.contains(&it.as_str()) || field.is_null());
    wrong.next().map_or(Ok(()), |(it, field)| Err(format!("the field `{it}`: {field} in {value}")))
}

fn check(is_sound: bool, what: impl FnOnce() -> String) -> Check {
    if is_sound { Ok(()) } else { Err(what()) }
}

/// The texts of the messages, each after its role: a block of a user by
/// itself, an answer as one.
pub(super) fn said(body: &Value) -> Vec<String> {
    let blocks = |it: &Value| it.as_array().cloned().unwrap_or_default();
    let system =
        blocks(&body["system"]).iter().map(|it| format!("system: {}", text_of(it))).collect();
    let mut said: Vec<String> = system;
    for message in blocks(&body["messages"]) {
        let content = blocks(&message["content"]);
        if message["role"] == "assistant" {
            said.push(format!("assistant: {}", content.iter().map(text_of).collect::<String>()));
            continue;
        }
        said.extend(content.iter().map(|it| match it["type"].as_str() {
            Some("tool_result") => {
                let texts: String = blocks(&it["content"]).iter().map(text_of).collect();
                format!("tool: {texts}")
            }
            _ => format!("user: {}", text_of(it)),
        }));
    }
    said
}

/// The text of a block; a call as `<tool arguments>`.
fn text_of(block: &Value) -> String {
    match block["type"].as_str() {
        Some("text") => block["text"].as_str().unwrap_or("?").to_owned(),
        Some("tool_use") => {
            format!("<{} {}>", block["name"].as_str().unwrap_or("?"), block["input"])
        }
        _ => String::new(),
    }
}

/// The signature as it is given with that thought: it fits no other, and no
/// other fits it.
pub(crate) fn sealed(thinking: &str, signature: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (thinking, signature).hash(&mut hasher);
    format!("{signature}.{:016x}", hasher.finish())
}

/// A whole answer.
pub(super) fn answer(said: &Said) -> Answer {
    let usage = json!({"input_tokens": said.input, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0, "output_tokens": 1});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
    let start = json!({"type": "message_start", "message": message});
    let mut answer = Answer::stream().named("message_start", &start);
    for (index, part) in said.parts.iter().enumerate() {
        answer = with_part(answer, index, part);
    }
    let reason = match said.stop {
        Stop::End => "end_turn",
        Stop::Length => "max_tokens",
        Stop::ToolUse => "tool_use",
    };
    let end = json!({"type": "message_delta", "usage": {"output_tokens": said.output},
        "delta": {"stop_reason": reason, "stop_sequence": null}});
    answer.named("message_delta", &end).named("message_stop", &json!({"type": "message_stop"}))
}

fn with_part(answer: Answer, index: usize, part: &Part) -> Answer {
    let (block, deltas) = match part {
        Part::Text(text) => {
            (json!({"type": "text", "text": ""}), vec![json!({"type": "text_delta", "text": text})])
        }
        Part::Thinking(text, signature) => {
            let signature = sealed(text, signature.as_deref().unwrap_or("c2ln"));
            (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                vec![
                    json!({"type": "thinking_delta", "thinking": text}),
                    json!({"type": "signature_delta", "signature": signature}),
                ],
            )
        }
        Part::Call(id, tool, arguments) => (
            json!({"type": "tool_use", "id": id, "name": tool, "input": {}}),
            vec![json!({"type": "input_json_delta", "partial_json": arguments})],
        ),
    };
    let start = json!({"type": "content_block_start", "index": index, "content_block": block});
    let answer = answer.named("content_block_start", &start);
    let answer = deltas.iter().fold(answer, |answer, it| {
        let delta = json!({"type": "content_block_delta", "index": index, "delta": it});
        answer.named("content_block_delta", &delta)
    });
    answer.named("content_block_stop", &json!({"type": "content_block_stop", "index": index}))
}

#[track_caller]
fn check_found(change: impl FnOnce(&mut Value), want: &str) {
    let mut request = json!({
        "model": "m", "max_tokens": 4_096, "stream": true,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "exec", "description": "", "input_schema": {"type": "object"}}],
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": sealed("hm", "s")},
                {"type": "tool_use", "id": "c1", "name": "exec", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1",
                "content": [{"type": "text", "text": "out"}]}]},
        ],
    });
    change(&mut request);
    let found = body(&request).join("; ");
    assert!(found.contains(want) && found.is_empty() == want.is_empty(), "{found:?}");
}

#[test]
fn what_breaks_the_protocol_is_found() {
    let text = |it: &str| json!({"type": "text", "text": it});
    let user = |content: Value| json!({"role": "user", "content": content});
    check_found(|_| (), "");
    check_found(|it| it["top_p"] = json!(1), "the field `top_p`");
    check_found(|it| it["max_tokens"] = json!(null), "max_tokens");
    check_found(|it| it["max_tokens"] = json!(1_024), "of 1024 tokens");
    check_found(|it| it["temperature"] = json!(0.5), "a temperature of 0.5");
    check_found(|it| it["system"] = json!([text(" ")]), "not a text with content");
    check_found(|it| it["tools"][0]["name"] = json!("a.b"), "the name or id \"a.b\"");
    check_found(|it| it["tools"][0]["input_schema"] = json!({}), "a schema of type null");
    check_found(|it| it["messages"][0] = json!(null), "the role is null");
    check_found(|it| it["messages"][0]["content"] = json!("hi"), "not a list");
    check_found(|it| it["messages"][2]["content"] = json!([]), "not a list with content");
    check_found(|it| it["messages"][2]["content"] = json!([text("x")]), "the field `text`");
    let result = json!({"type": "tool_result", "tool_use_id": "c2", "content": [text("x")]});
    check_found(|it| it["messages"][2]["content"] = json!([result]), "a result for c1 is");
    check_found(|it| it["messages"][0]["content"] = json!([result]), "a block {");
    let results = |it: &mut Value| it["messages"].as_array_mut().map(|it| it.pop());
    check_found(|it| drop(results(it)), "the last message is the model's");
    check_found(|it| it["messages"][1]["content"][1]["input"] = json!("{}"), "the input of");
    check_found(|it| it["messages"][1]["content"][1]["id"] = json!("c|1"), "the name or id");
    let thought = |it: &mut Value, name: &str, value: &str| {
        it["messages"][1]["content"][0][name] = json!(value);
    };
    check_found(|it| thought(it, "signature", "s"), "the signature \"s\"");
    check_found(|it| thought(it, "thinking", "hm "), "the signature");
    let without =
        |it: &mut Value| it["messages"][1]["content"].as_array_mut().map(|it| it.remove(0));
    check_found(|it| drop(without(it)), "expected `thinking`");
    let ends = |it: &mut Value| {
        let content = &mut it["messages"][1]["content"];
        *content = json!([content[1], content[0]]);
    };
    check_found(ends, "it ends with thinking");
    check_found(
        |it| it["messages"] = json!([user(json!([text("a")])), user(json!([text("b")]))]),
        "the role is \"user\"",
    );
    let mark = json!({"type": "ephemeral"});
    let marked = || json!({"type": "text", "text": "a", "cache_control": mark});
    check_found(
        |it| it["messages"] = json!([user(json!([marked(), marked(), marked(), marked()]))]),
        "5 marks",
    );
}
