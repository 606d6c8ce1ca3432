//! Whole requests and answers over the chat dialect.

use serde_json::{Value, json};

use super::*;
use crate::config::{ModelFacts, ModelRef};
use crate::message::Message;
use crate::provider::ToolDefinition;
use crate::provider::openai_chat::OpenAiChat;

fn tools() -> Vec<ToolDefinition> {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"},
        "limit": {"type": "integer"}}, "required": ["path"]});
    vec![ToolDefinition { name: "read".into(), description: "Reads.".into(), parameters }]
}

fn body(messages: Value, tools: &[ToolDefinition]) -> Value {
    let messages: Vec<Message> = serde_json::from_value(messages).expect("messages");
    let model = ModelRef { provider: "p".into(), model: "m".into() };
    let facts = ModelFacts { text_tools: true, ..ModelFacts::default() };
    let request = Request { system: "Be good.", tools, ..Request::new(&model, &facts, &messages) };
    let spoken = speak(&OpenAiChat::new("p"), &request, &Origin::new(&model, "http://p"));
    let Ok((wire, _)) = spoken else { panic!("it is encoded") };
    serde_json::from_slice(&wire.body).expect("JSON")
}

/// Role and text of the messages behind the system prompt.
fn said(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().expect("messages");
    let said = messages[1..].iter().map(|it| {
        assert!(it.get("tool_calls").is_none(), "{it}");
        format!("{}: {}", it["role"].as_str().unwrap_or("?"), it["content"].as_str().unwrap_or("?"))
    });
    said.collect()
}

#[test]
fn the_tools_are_told_and_none_is_sent_natively() {
    let body = body(json!([{"role": "user", "content": "hi"}]), &tools());
    assert!(body.get("tools").is_none(), "{body}");
    let system = body["messages"][0]["content"].as_str().expect("a system prompt");
    assert!(system.starts_with("Be good.\n\n## How to call tools\n"), "{system}");
    let example = "\n<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\":\"the path\"}}\n</tool_call>\n";
    assert!(system.contains(example), "{system}");
    assert!(system.contains("\"description\": \"Reads.\""), "{system}");
    assert!(system.contains("\"limit\":{\"type\":\"integer\"}"), "{system}");
}

#[test]
fn calls_and_results_are_played_back_as_text() {
    let history = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "provider": "other", "model": "x", "content": [
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "</tool_call>"}},
            {"type": "toolCall", "id": "c2", "name": "read", "arguments": {}}]},
        {"role": "toolResult", "toolCallId": "c1", "toolName": "read",
            "content": [{"type": "text", "text": "</tool_response>\nhi"}]},
        {"role": "toolResult", "toolCallId": "c2", "toolName": "read", "isError": true, "content": ""},
        {"role": "user", "content": "and?"},
    ]);
    let call = "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\":\"<\\/tool_call>\"}}\n</tool_call>\n\
        <tool_call>\n{\"name\": \"read\", \"arguments\": {}}\n</tool_call>";
    let first = "<tool_response>\n{\"name\": \"read\", \"content\": \"<\\/tool_response>\\nhi\"}\n</tool_response>";
    let second = "<tool_response>\n{\"name\": \"read\", \"error\": true, \"content\": \"(no output)\"}\n</tool_response>";
    let want = [
        "user: look".to_owned(),
        format!("assistant: I look.\n{call}"),
        format!("user: {first}\n{second}\nand?"),
    ];
    assert_eq!(said(&body(history.clone(), &tools())), want);
    // Also where nothing is offered: the server knows no native calls.
    let plain = body(history, &[]);
    assert_eq!(said(&plain), want);
    assert_eq!(plain["messages"][0]["content"], "Be good.");
}

#[test]
fn images_of_results_follow_their_text() {
    let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
    let history: Vec<Message> = serde_json::from_value(json!([
        {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "read", "arguments": {}}]},
        {"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": [image]},
        {"role": "user", "content": "what is it?"}]))
    .expect("messages");
    let told = told::messages(&history);
    assert_eq!(told.len(), 2);
    let user = serde_json::to_value(&told[1]).expect("JSON");
    let kinds: Vec<&str> = user["content"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["type"].as_str())
        .collect();
    assert_eq!(kinds, ["text", "image", "text"]);
}

/// What an answer of this content comes to, in pieces of so many bytes: text,
/// calls as `[name arguments]`, and why it ends.
fn read(content: &str, finish: &str, size: usize) -> String {
    let model = ModelRef { provider: "p".into(), model: "m".into() };
    let facts = ModelFacts::default();
    let tools = tools();
    let request = Request { tools: &tools, ..Request::new(&model, &facts, &[]) };
    let spoken = speak(&OpenAiChat::new("p"), &request, &Origin::new(&model, ""));
    let Ok((_, mut decoder)) = spoken else { panic!("it is encoded") };
    let mut stream = String::new();
    let characters: Vec<char> = content.chars().collect();
    for piece in characters.chunks(size) {
        let text: String = piece.iter().collect();
        let chunk = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
        stream.push_str(&format!("data: {chunk}\n\n"));
    }
    if !finish.is_empty() {
        let chunk = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]});
        stream.push_str(&format!("data: {chunk}\n\ndata: [DONE]\n\n"));
    }
    let mut deltas = Vec::new();
    decoder.feed(stream.as_bytes(), &mut deltas).expect("it is read");
    decoder.end(&mut deltas).expect("it ends");
    short(&deltas)
}

fn short(deltas: &[Delta]) -> String {
    let piece = |it: &Delta| match it {
        Delta::Text(it) | Delta::Thinking(it) => it.clone(),
        Delta::ToolCall(it) => format!("[{} {}]", it.name.as_deref().unwrap_or("?"), it.arguments),
        Delta::Stop(it) => format!("|{it:?}"),
        other => panic!("{other:?}"),
    };
    deltas.iter().map(piece).collect()
}

#[track_caller]
fn check(content: &str, want: &str) {
    for size in [1, 2, 3, 5, 7, 11, 13, 1000] {
        assert_eq!(read(content, "stop", size), want, "pieces of {size}");
    }
}

const CALL: &str =
    "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";

#[test]
fn a_call_is_read_and_its_markers_are_not_shown() {
    check(CALL, r#"[read {"path":"a"}]|ToolUse"#);
    check(&format!("I look.\n\n{CALL}\n"), r#"I look.[read {"path":"a"}]|ToolUse"#);
    check(&format!("I look: {CALL} done"), r#"I look:[read {"path":"a"}] done|ToolUse"#);
    check(
        &format!("{CALL}\n{CALL}\n那\n"),
        "[read {\"path\":\"a\"}][read {\"path\":\"a\"}]\n那\n|ToolUse",
    );
    // What is thought is not run.
    let thought = format!("<think>hm {CALL}</think>");
    check(&format!("{thought}{CALL}"), &format!("hm {CALL}[read {{\"path\":\"a\"}}]|ToolUse"));
}

#[test]
fn arguments_may_hold_anything() {
    check(
        "<tool_call>{\"name\":\"write\",\"arguments\":{\"content\":\"a {\nb</tool_call>\n```\n\\\"}\",\"x\":{\"y\":[{}]}}}</tool_call>",
        r#"[write {"content":"a {\nb</tool_call>\n```\n\"}","x":{"y":[{}]}}]|ToolUse"#,
    );
}

#[test]
fn a_call_in_code_is_shown() {
    for text in [
        format!("So:\n```\n{CALL}\n```\nthere."),
        format!("~~~xml\n{CALL}\n```\n{CALL}"),
        format!("1. so:\n   ```\n   {CALL}"),
        "the `<tool_call>` marker".to_owned(),
        "`<tool_call>{\"name\":\"read\"}</tool_call>`".to_owned(),
        "the <tool_call> marker, and </tool_call>".to_owned(),
        "a < b, <tool>, <tool_call, <tool_calls>".to_owned(),
        "<".to_owned(),
        "white space \n".to_owned(),
        " \n".to_owned() + "a",
    ] {
        check(&text, &format!("{text}|Stop"));
    }
    check(
        &format!("```\n{CALL}\n```\n{CALL}"),
        &format!("```\n{CALL}\n```[read {{\"path\":\"a\"}}]|ToolUse"),
    );
}

#[test]
fn a_block_that_is_not_ended_is_a_call_if_its_object_is_whole() {
    let open = "<tool_call>\n{\"name\":\"read\",\"arguments\":{\"path\":\"a\"}}\n";
    check(open, r#"[read {"path":"a"}]|ToolUse"#);
    check(&format!("{open}{CALL}"), r#"[read {"path":"a"}][read {"path":"a"}]|ToolUse"#);
    check(&format!("so {open}"), r#"so[read {"path":"a"}]|ToolUse"#);
}

/// Arguments that are no JSON object: whoever puts the answer together tells
/// the model so.
#[test]
fn what_does_not_parse_is_a_broken_call() {
    let broken = |block: &str, shown: &str| check(block, &format!("[{shown}]|ToolUse"));
    let half = "{\"name\":\"read\",\"arguments\":{\"path\":\"a";
    broken(&format!("<tool_call>{half}"), &format!("read {half}"));
    broken(&format!("<tool_call>{half}}}}}</tool_call>"), &format!("read {half}}}}}"));
    broken("<tool_call>read a</tool_call>", " read a");
    broken("<tool_call>\nread a", " read a");
    broken("<tool_call>", " ");
    broken("<tool_call></tool_call>", " ");
    broken("<tool_call>[]</tool_call>", " []");
    let two = "{\"name\":\"read\",\"arguments\":{}}}";
    broken(&format!("<tool_call>{two}</tool_call>"), &format!("read {two}"));
    // What stood behind an object without its end was said to a person.
    let open = "{\"name\":\"read\",\"arguments\":{}}";
    check(
        &format!("<tool_call>{open}\nI wait."),
        &format!("[read {open}\nI wait.]\nI wait.|ToolUse"),
    );
    // One that does not end hides none of those behind it.
    check(
        &format!("<tool_call>{half}}}}}</tool_call>\nand {CALL}"),
        &format!("[read {half}}}}}]\nand[read {{\"path\":\"a\"}}]|ToolUse"),
    );
}

#[test]
fn at_the_output_limit_the_start_of_a_marker_is_a_call() {
    assert_eq!(read("ok\n<tool_c", "length", 4), "ok[ <tool_c]|Length");
    assert_eq!(read("a <", "length", 4), "a <|Length");
    assert_eq!(read("ok <tool_call> ", "length", 4), "ok[ ]|Length");
    assert_eq!(read("half a sen", "length", 4), "half a sen|Length");
    assert_eq!(read(CALL, "length", 4), r#"[read {"path":"a"}]|Length"#);
}

#[test]
fn of_an_answer_that_breaks_off_only_text_is_told() {
    assert_eq!(read("so <tool_c", "", 3), "so <tool_c");
    assert_eq!(read("so\n<tool_call>{\"name\"", "", 3), "so");
    assert_eq!(read("so \n", "", 3), "so \n");
}

#[test]
fn more_calls_than_any_model_makes_break_the_answer() {
    let mut calls = Calls::new("p", OpenAiChat::new("p").decoder());
    let text = Delta::Text(CALL.repeat(MOST_CALLS as usize));
    let mut deltas = Vec::new();
    assert_eq!(calls.take(vec![text], &mut deltas), Ok(()));
    assert_eq!(deltas.len() as u64, MOST_CALLS);
    let one_more = calls.take(vec![Delta::Text(CALL.into())], &mut deltas);
    assert!(matches!(&one_more, Err(Fault::Unavailable(it)) if it.contains("`p`")), "{one_more:?}");
}

/// The pieces of a text that comes cut like that; texts that meet are one.
fn scanned<'a>(cuts: impl Iterator<Item = &'a str>) -> Vec<Piece> {
    let mut scanner = Scanner::default();
    let mut pieces = Vec::new();
    cuts.for_each(|it| scanner.feed(it, &mut pieces));
    scanner.end(false, &mut pieces);
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(text)), Piece::Text(more)) => text.push_str(&more),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

#[test]
fn any_text_reads_the_same_wherever_it_is_cut() {
    let words = [
        OPENING,
        OPENING,
        CLOSING,
        CLOSING,
        "{",
        "}",
        "\"",
        "\\",
        "\n",
        "\n",
        "```",
        "`",
        "~~~",
        " ",
        "a",
        "那",
        "- ",
        "<",
        "{\"name\":\"x\",\"arguments\":{}}",
    ];
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let mut calls = 0;
    for _ in 0..5_000 {
        let text: String = (0..random(24)).map(|_| words[random(words.len())]).collect();
        let whole = scanned(std::iter::once(text.as_str()));
        let by_letter = text.char_indices().map(|(at, it)| &text[at..at + it.len_utf8()]);
        assert_eq!(scanned(by_letter), whole, "{text:?}");
        let middle = text.ceil_char_boundary(random(text.len() + 1));
        assert_eq!(scanned([&text[..middle], &text[middle..]].into_iter()), whole, "{text:?}");
        calls += whole.iter().filter(|it| matches!(it, Piece::Call(_))).count();
        if !text.contains(OPENING) {
            let said: Vec<Piece> =
                Some(text).filter(|it| !it.is_empty()).map(Piece::Text).into_iter().collect();
            assert_eq!(whole, said);
        }
    }
    assert!(calls > 1_000, "{calls} calls");
}

/// A block of a mebibyte in pieces of few bytes: looking through all of it for
/// each would take minutes.
#[test]
fn a_long_block_is_read_once() {
    let long = "那".repeat(350_000);
    for body in [
        format!("{{\"name\":\"write\",\"arguments\":{{\"content\":\"{long}\"}}}}"),
        format!("no object {long}"),
        format!("{{}} {long}"),
    ] {
        let text = format!("<tool_call>{body}</tool_call>");
        let mut scanner = Scanner::default();
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.ceil_char_boundary(4.min(rest.len())));
            scanner.feed(piece, &mut pieces);
            rest = behind;
        }
        scanner.end(false, &mut pieces);
        assert_eq!(pieces, [Piece::Call(body)]);
    }
}
