//! Refuses what the strictest server would, so that tests need none.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::encode::{item, sent_call, sent_result, sent_text, sent_user};
use crate::provider::tests::asked::{self, filled};

/// Refuses any field that the specification does not have, calls without their
/// output, thinking without what followed it, and ids of what is not known.
pub(super) fn check_form(body: &Value) -> Result<(), String> {
    let top = [
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
    ];
    fields(body, &top)?;
    if body["stream"] != json!(true) || body["store"] != json!(false) {
        return Err("not streamed, or stored".into());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        fields(tool, &["type", "name", "description", "parameters", "strict"])?;
    }
    let mut open: Vec<&str> = Vec::new();
    let mut ids = HashSet::new();
    let mut thinks = false;
    for item in body["input"].as_array().ok_or("no input")? {
        let kind = item["type"].as_str().ok_or("no type")?;
        let is_own = kind == "function_call" || item["role"] == json!("assistant");
        if thinks && !is_own && kind != "reasoning" {
            return Err(format!("thinking before {item}"));
        }
        if kind == "message" && !is_own && !open.is_empty() {
            return Err(format!("calls without output: {open:?}"));
        }
        thinks = kind == "reasoning";
        match kind {
            "message" => check_message(item)?,
            "reasoning" => check_reasoning(item)?,
            "function_call" => {
                let id = check_call(item)?;
                open.push(id);
                if !ids.insert(id) {
                    return Err(format!("{id} twice"));
                }
            }
            "function_call_output" => {
                fields(item, &["type", "call_id", "output"])?;
                check_output(&item["output"])?;
                let id = item["call_id"].as_str().ok_or("no id")?;
                let place = open.iter().position(|it| *it == id).ok_or(format!("orphan {id}"))?;
                open.remove(place);
            }
            other => return Err(format!("type {other}")),
        }
    }
    match (thinks, open.is_empty()) {
        (true, _) => Err("thinking at the end".into()),
        (_, false) => Err(format!("calls without output: {open:?}")),
        _ => Ok(()),
    }
}

fn check_message(item: &Value) -> Result<(), String> {
    if item["role"] == json!("user") {
        fields(item, &["type", "role", "content"])?;
        return check_parts(&item["content"]);
    }
    let is_known = item.get("id").is_some();
    let known: &[&str] = match is_known {
        true => &["type", "role", "content", "id", "status", "phase"],
        false => &["type", "role", "content"],
    };
    fields(item, known)?;
    if is_known {
        check_id(&item["id"], "msg_")?;
    }
    for part in item["content"].as_array().ok_or("no content")? {
        fields(part, &["type", "text", "annotations"])?;
        filled(&part["text"])?;
        let has_annotations = part["annotations"].is_array();
        if part["type"] != json!("output_text") || has_annotations != is_known {
            return Err(format!("part {part}"));
        }
    }
    Ok(())
}

fn check_reasoning(item: &Value) -> Result<(), String> {
    fields(item, &["type", "id", "summary", "encrypted_content", "content"])?;
    let is_ours = item["encrypted_content"].as_str().is_some_and(|it| it.starts_with("own"));
    if is_ours && item["summary"].is_array() { Ok(()) } else { Err(format!("{item}")) }
}

fn check_call(item: &Value) -> Result<&str, String> {
    fields(item, &["type", "call_id", "name", "arguments", "id"])?;
    if item.get("id").is_some() {
        check_id(&item["id"], "fc_")?;
    }
    let arguments = item["arguments"].as_str().ok_or("arguments are no text")?;
    let arguments: Value = serde_json::from_str(arguments).map_err(|it| it.to_string())?;
    let name = item["name"].as_str().ok_or("no name")?;
    let sound = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
    if !arguments.is_object() || name.is_empty() || !name.chars().all(sound) {
        return Err(format!("arguments or name of {item}"));
    }
    check_id(&item["call_id"], "")?;
    item["call_id"].as_str().ok_or("no id".into())
}

fn check_id(id: &Value, begins: &str) -> Result<(), String> {
    let fits = |it: &str| {
        (1..=64).contains(&it.len())
            && it.bytes().all(|it| it.is_ascii_graphic())
            && it.starts_with(begins)
    };
    if id.as_str().is_some_and(fits) { Ok(()) } else { Err(format!("id {id}")) }
}

fn check_output(output: &Value) -> Result<(), String> {
    if output.is_array() { check_parts(output) } else { filled(output) }
}

fn check_parts(parts: &Value) -> Result<(), String> {
    let parts = parts.as_array().filter(|it| !it.is_empty()).ok_or("no parts")?;
    for part in parts {
        match part["type"].as_str() {
            Some("input_text") => {
                fields(part, &["type", "text"])?;
                filled(&part["text"])?;
            }
            Some("input_image") => fields(part, &["type", "image_url", "detail"])?,
            _ => return Err(format!("part {part}")),
        }
    }
    Ok(())
}

/// Also refuses null, which is not the same as no field here.
fn fields(value: &Value, known: &[&str]) -> Result<(), String> {
    let has_null = value.as_object().is_some_and(|it| it.values().any(Value::is_null));
    if has_null { Err(format!("null in {value}")) } else { asked::fields(value, known) }
}

#[test]
fn the_checker_refuses_what_servers_do() {
    let check = |input: Value, why: &str| {
        let got = check_form(&json!({"stream": true, "store": false, "input": input}));
        assert!(got.as_ref().is_err_and(|it| it.contains(why)), "{got:?}");
    };
    let output = sent_result("a", json!("x"));
    check(json!([item("rs_1")]), "at the end");
    check(json!([item("rs_1"), sent_user("x")]), "thinking before");
    check(json!([item("rs_1"), output]), "thinking before");
    check(json!([output]), "orphan");
    check(json!([sent_call("a", None)]), "without output");
    check(json!([sent_call("a", None), sent_user("x")]), "without output");
    check(json!([sent_call("a", None), output, output]), "orphan");
    check(json!([sent_call("a", None), output, sent_call("a", None), output]), "twice");
    check(json!([sent_call("a", Some("x")), output]), "id");
    check(json!([sent_text("", None)]), "no text");
    let mut odd = sent_user("x");
    odd["name"] = json!("n");
    check(json!([odd]), "field");
    let mut foreign = item("rs_1");
    foreign["encrypted_content"] = json!("EjQK");
    check(json!([foreign, sent_text("x", None)]), "EjQK");
}
