//! Turns with a model that speaks `anthropic-messages`: thoughts that go back
//! with their signature, calls side by side, images, and what of an answer may
//! be odd, cut or broken.

use std::fs::{self, OpenOptions};
use std::io::Write;

use serde_json::{Value, json};

use crate::faults::{case, check_all};
use crate::support::{
    Answer, Asked, Dialect, ModelServer, Part, Said, World, provider_in, some_world,
};

/// A model that is given a budget for its thoughts.
const THINKS: &str = "model: 'claude-sonnet-4-5', thinkingLevel: 'low'";

/// A world whose gateway runs; its agent's model has these fields, and its
/// provider those.
fn serving(server: &ModelServer, model: &str, fields: &str) -> World {
    let world = some_world();
    let agent = world.agent("a", "", "").replace("model: 'm'", model);
    world.write_config_of(&provider_in(Dialect::Anthropic, server.port(), fields), &agent, "");
    world.start_gateway();
    world
}

fn answer(parts: impl IntoIterator<Item = Part>) -> Answer {
    Dialect::Anthropic.answer(&Said::new(parts))
}

fn says(text: &str) -> Answer {
    answer([Part::Text(text.into())])
}

fn thought(text: &str) -> Part {
    Part::Thinking(text.into(), Some("c2lnbmVk".into()))
}

fn call(id: &str, tool: &str, arguments: &Value) -> Part {
    Part::Call(id.into(), tool.into(), arguments.to_string())
}

/// An answer that has begun with a text.
fn begun(text: &str) -> Answer {
    let start = json!({"type": "message_start", "message": {"usage": {"input_tokens": 7}}});
    let block = json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "text", "text": ""}});
    Answer::stream().named("message_start", &start).named("content_block_start", &block).said(text)
}

/// Events that this protocol has.
trait Events {
    fn said(self, text: &str) -> Self;
    fn with(self, event: Value) -> Self;
    fn stops(self, delta: Value) -> Self;
    fn end(self) -> Self;
}

impl Events for Answer {
    fn said(self, text: &str) -> Self {
        self.with(json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}}))
    }

    fn with(self, event: Value) -> Self {
        let name = event["type"].as_str().unwrap_or("?").to_owned();
        self.named(&name, &event)
    }

    fn stops(self, delta: Value) -> Self {
        self.with(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}}))
    }

    fn end(self) -> Self {
        self.with(json!({"type": "message_stop"}))
    }
}

/// A provider's error with that status.
fn error(status: u16, kind: &str, message: &str) -> Answer {
    let error = json!({"type": "error", "error": {"type": kind, "message": message}});
    Answer::status(status, &error.to_string())
}

/// The messages of a request, without the marks for the cache.
fn messages(body: &Value) -> Vec<Value> {
    let mut messages = body["messages"].as_array().expect("messages").clone();
    for block in messages.iter_mut().flat_map(|it| it["content"].as_array_mut().expect("a list")) {
        block.as_object_mut().expect("a block").remove("cache_control");
    }
    messages
}

#[test]
fn thoughts_and_calls_go_back_as_they_came() {
    let (one, two) = (json!({"command": "echo one"}), json!({"command": "echo two; exit 3"}));
    let server = ModelServer::playing([
        answer([
            thought("Two commands."),
            Part::Text("Let me see.".into()),
            call("toolu_01-A", "exec", &one),
            call("toolu_02-B", "exec", &two),
        ])
        .in_pieces(7),
        answer([thought("Both ran."), Part::Text("Done.".into())]),
        says("Fine."),
    ]);
    let world = serving(&server, THINKS, "models: { 'claude-sonnet-4-5': { maxTokens: 64000 } },");
    assert_eq!(world.answer("api:1", "go"), "Done.");
    assert_eq!(world.answer("api:1", "more"), "Fine.");
    let asked = server.asked();
    assert_eq!(asked[0].head.all("anthropic-beta"), ["interleaved-thinking-2025-05-14"]);
    let limits = json!([asked[0].body["max_tokens"], asked[0].body["thinking"]]);
    assert_eq!(limits, json!([64_000, {"type": "enabled", "budget_tokens": 2_048}]));
    let names: Vec<&Value> =
        asked[0].body["tools"].as_array().expect("tools").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["read", "write", "patch", "exec"]);
    let given = world.stored("api:1")[1]["content"][0]["thinkingSignature"].clone();
    assert!(given.as_str().expect("a signature").starts_with("c2lnbmVk."), "{given}");
    let sent = messages(&asked[1].body);
    let want = json!([
        {"type": "thinking", "thinking": "Two commands.", "signature": given},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "toolu_01-A", "name": "exec", "input": one},
        {"type": "tool_use", "id": "toolu_02-B", "name": "exec", "input": two},
    ]);
    assert_eq!(sent[1]["content"], want);
    let results = sent[2]["content"].as_array().expect("results");
    let short: Vec<Value> =
        results.iter().map(|it| json!([it["tool_use_id"], it["is_error"]])).collect();
    assert_eq!(short, [json!(["toolu_01-A", null]), json!(["toolu_02-B", true])]);
    assert_eq!(asked[1].last_tool().as_deref(), Some("Exit code: 3\ntwo\n"));
    // What was sent once stays as it was, so that it is read from the cache.
    let last = messages(&asked[2].body);
    assert_eq!((last.len(), &last[..3]), (5, &sent[..]));
    check_stored(&world);
}

#[track_caller]
fn check_stored(world: &World) {
    let stored = world.stored("api:1");
    for (index, stop) in [(1, "toolUse"), (4, "stop"), (6, "stop")] {
        let it = &stored[index];
        let fields = json!([it["api"], it["provider"], it["model"], it["stopReason"]]);
        assert_eq!(fields, json!(["anthropic-messages", "p", "claude-sonnet-4-5", stop]));
        let usage =
            json!([it["usage"]["input"], it["usage"]["output"], it["usage"]["totalTokens"]]);
        assert_eq!(usage, json!([7, 3, 10]));
        let endpoint = it["beige"]["endpoint"].as_str().unwrap_or_default();
        assert_eq!(endpoint.starts_with("http://127.0.0.1:"), index != 6, "{it}");
    }
    world.verify_audit();
}

#[test]
fn a_signature_that_is_refused_is_left_out_once() {
    let server = ModelServer::playing([answer([thought("Hm."), Part::Text("Yes.".into())])]);
    let world = serving(&server, THINKS, "");
    assert_eq!(world.answer("api:1", "go"), "Yes.");
    let refusal = || {
        let text = "messages.1.content.0: Invalid `signature` in `thinking` block";
        error(400, "invalid_request_error", text)
    };
    server.play([refusal(), says("Fine.")]);
    assert_eq!(world.answer("api:1", "more"), "Fine.");
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    let kind = |number: usize| messages(&asked[number].body)[1]["content"][0]["type"].clone();
    assert_eq!((kind(1), kind(2)), (json!("thinking"), json!("text")));
    // A second refusal is an error, not a third question.
    server.play([refusal(), refusal()]);
    let told = world.events("api:1", "again");
    let end = told.last().expect("an event");
    assert_eq!(json!([end["type"], end["category"]]), json!(["error", "refused"]), "{end}");
    assert_eq!(server.asked().len(), 5);
    // Who quotes such an error is answered.
    server.play([says("I see.")]);
    let quote = "It says: Invalid `signature` in `thinking` block";
    assert_eq!(world.answer("api:2", quote), "I see.");
}

#[test]
fn what_was_refused_once_is_not_offered_again() {
    let server = ModelServer::answering(|asked: &Asked| {
        let sent = asked.body["messages"].to_string();
        match asked.answers() {
            0 => answer([thought("Old."), Part::Text("1".into())]),
            _ if sent.contains("Old.") => {
                let text = "messages.1.content.0: Invalid `signature` in `thinking` block";
                error(400, "invalid_request_error", text)
            }
            so_far => answer([thought("New."), Part::Text((so_far + 1).to_string())]),
        }
    });
    let world = serving(&server, THINKS, "");
    for (answer, asked) in [("1", 1), ("2", 3), ("3", 4)] {
        assert_eq!(world.answer("api:1", "go on"), answer);
        assert_eq!(server.asked().len(), asked, "at answer {answer}");
    }
    let sealed = server.last().body["messages"].to_string().matches("New.").count();
    assert_eq!(sealed, 1, "what was given after it goes back");
    world.run(["gateway", "restart"]).expect(0);
    assert_eq!(world.answer("api:1", "go on"), "4");
    assert_eq!(server.asked().len(), 5, "it is remembered in the session");
}

#[test]
fn images_are_shown_where_they_stand() {
    let server = ModelServer::new();
    let sees = "models: { m: { input: ['text', 'image'] } },";
    let world = serving(&server, "model: 'm'", sees);
    server.play([says("Hello.")]);
    assert_eq!(world.answer("api:1", "hi"), "Hello.");
    show_an_image(&world);
    let picture = world.workspace("a").join("a.png");
    fs::write(&picture, b"\x89PNG\r\n\x1a\n....").expect("a picture");
    server.play([answer([call("c1", "read", &json!({"path": "a.png"}))]), says("Seen.")]);
    assert_eq!(world.answer("api:1", "look"), "Seen.");
    let sent = messages(&server.last().body);
    let image = |data: &str| {
        json!({"type": "image", "source":
            {"type": "base64", "media_type": "image/png", "data": data}})
    };
    let text = |it: &str| json!({"type": "text", "text": it});
    assert_eq!(sent[2]["content"], json!([text("this?"), image("aGk="), text("look")]));
    let result = &sent[4]["content"][0];
    assert_eq!(result["type"], "tool_result");
    let shown = result["content"].as_array().expect("content").last().expect("a block");
    assert_eq!(shown, &image("iVBORw0KGgouLi4u"));
}

/// Appends a user message with an image to the session.
fn show_an_image(world: &World) {
    let parent = world.session("api:1").last().expect("an entry")["id"].clone();
    let content = json!([{"type": "text", "text": "this?"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"}]);
    let entry = json!({"type": "message", "id": "0000000a", "parentId": parent,
        "timestamp": "2026-01-01T00:00:00.000Z", "message": {"role": "user", "content": content}});
    let file = OpenOptions::new().append(true).open(world.session_file("api:1"));
    writeln!(file.expect("a file"), "{entry}").expect("written");
}

#[test]
fn an_answer_that_is_odd_but_whole_is_an_answer() {
    let server = ModelServer::new();
    let world = serving(&server, "model: 'm'", "");
    let check = |answer: Answer, want: &str| {
        let shown = format!("{answer:?}");
        server.play([answer, says("fine")]);
        let key = format!("api:{}", server.asked().len());
        assert_eq!(world.answer(&key, "go"), want, "{shown}");
        assert_eq!(world.answer(&key, "more"), "fine", "{shown}");
        let said = server.last().said();
        assert_eq!(said[2], format!("assistant: {want}"), "{shown}");
    };
    let all = "naïve 那 🦀 e\u{301}";
    // Any cut of bytes, of lines and of chunks.
    for size in [1, 2, 3, 7] {
        check(says(all).in_pieces(size), all);
        check(says(all).until_close().in_pieces(size), all);
    }
    let stop = || json!({"stop_reason": "end_turn"});
    check(begun("").crlf().said(all).stops(stop()).end().in_pieces(1), all);
    // Pings, comments and events of a later version.
    let ping = || json!({"type": "ping"});
    let later = json!({"type": "weather", "is": "fine"});
    check(
        begun("a")
            .with(ping())
            .comment("ka")
            .with(later)
            .said("b")
            .with(ping())
            .stops(stop())
            .end(),
        "ab",
    );
    // The model has said why it stops; and an end mark without a reason.
    check(begun("a").stops(stop()), "a");
    check(begun("a").stops(stop()).until_close(), "a");
    check(begun("a").end(), "a");
    // One message in place of a stream.
    let whole = json!({"type": "message", "content": [{"type": "text", "text": "a"}],
        "stop_reason": "end_turn", "usage": {"input_tokens": "7", "output_tokens": null}});
    check(Answer::status(200, &whole.to_string()), "a");
}

#[test]
fn a_character_cut_by_the_network_is_whole_again() {
    let server = ModelServer::new();
    let gate = server.gate();
    // The first part was read for certain when it tells of it.
    server.play([begun("so. ")
        .bytes(b"data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\xE9")
        .hold(&gate)
        .bytes(b"\x82\xA3\"}}\n\n")
        .stops(json!({"stop_reason": "end_turn"}))
        .end()]);
    let world = serving(&server, "model: 'm'", "");
    let mut stream = world.stream("api:1", "go");
    assert_eq!(stream.until("text_delta")["delta"], "so. ");
    gate.open();
    assert_eq!(stream.until("done")["response"], "so. 那");
}

#[test]
fn nothing_is_waited_for_after_the_end() {
    let server = ModelServer::new();
    let world = serving(&server, "model: 'm'", "concurrency: 1,");
    let gate = server.gate();
    server.play([says("whole").hold(&gate)]);
    assert_eq!(world.answer("api:1", "go"), "whole");
    let broken = json!({"type": "error", "error": {"type": "api_error", "message": "it broke"}});
    let half = begun("half").with(broken).hold(&gate);
    server.play([half.clone(), half.clone(), half]);
    let reply = world.prompt("api:2", "go");
    assert!(reply.status == 502 && reply.text().contains("it broke"), "{}", reply.text());
    // The slot is free, whatever became of the connection.
    server.play([says("next")]);
    assert_eq!(world.answer("api:1", "more"), "next");
    gate.open();
}

#[test]
fn calls_without_arguments_or_with_broken_ones_are_answered() {
    let server = ModelServer::new();
    let world = serving(&server, "model: 'm'", "");
    let tool = |input: Value| {
        let block = json!({"type": "tool_use", "id": "c1", "name": "exec", "input": input});
        let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
        Answer::stream().with(json!({"type": "message_start"})).with(start)
    };
    let more = |it: &str| {
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": it}})
    };
    let check = |answer: Answer, stored: &str, result: &str| {
        let shown = format!("{answer:?}");
        let stop = json!({"type": "content_block_stop", "index": 0});
        server.play([answer.with(stop).stops(json!({"stop_reason": "tool_use"})).end()]);
        server.play([says("fine")]);
        let key = format!("api:{}", server.asked().len());
        assert_eq!(world.answer(&key, "go"), "fine", "{shown}");
        let said = server.last().said();
        assert_eq!(said[2], format!("assistant: <exec {stored}>"), "{shown}");
        assert!(said[3].starts_with("tool: ") && said[3].contains(result), "{shown}: {said:#?}");
    };
    // B1: no piece at all; B10: an empty object; B2: no JSON, no object.
    check(tool(json!({})), "{}", "`command` is missing");
    check(tool(json!({})).with(more("")), "{}", "`command` is missing");
    check(tool(json!({})).with(more("{}")), "{}", "`command` is missing");
    check(tool(json!({})).with(more("{\"command\": \"ls\"")), "{}", "not valid JSON");
    check(tool(json!({})).with(more("[1]")), "{}", "must be a JSON object");
    let hi = json!({"command": "echo hi"});
    check(tool(hi.clone()), &hi.to_string(), "Exit code: 0\nhi");
    let pieces = tool(json!({})).with(more("{\"command\":")).with(more("\"echo hi\"}"));
    check(pieces.in_pieces(5), &hi.to_string(), "hi");
}

#[test]
fn what_breaks_is_told_and_the_session_goes_on() {
    let server = ModelServer::new();
    let world = serving(&server, "model: 'm'", "");
    let broken = |kind: &str| {
        let error = json!({"type": kind, "message": "for that reason"});
        begun("half").with(json!({"type": "error", "error": error}))
    };
    let long = "prompt is too long: 210000 tokens > 200000 maximum";
    let refusal =
        json!({"stop_reason": "refusal", "stop_details": {"explanation": "It is harmful."}});
    let cases = [
        case(broken("overloaded_error"), "unavailable", &["for that reason"]),
        case(broken("invalid_request_error"), "refused", &["for that reason"]),
        case(begun("half"), "cut", &["cut off"]),
        case(begun("half").cut(), "cut", &[""]),
        case(begun("half").reset(), "cut", &[""]),
        case(Answer::stream(), "cut", &["cut off"]),
        case(begun("half").bytes("data: {{{\n\n"), "unavailable", &["not valid JSON"]),
        case(error(529, "overloaded_error", "Overloaded"), "unavailable", &["529"]),
        case(error(401, "authentication_error", "invalid x-api-key"), "refused", &["apiKey"]),
        case(error(404, "not_found_error", "model: m"), "refused", &["model: m"]),
        case(error(413, "request_too_large", "too large"), "context_length", &["413"]),
        case(error(400, "invalid_request_error", long), "context_length", &["210000"]),
        case(Answer::status(200, "<!DOCTYPE html><title>Hi</title>"), "refused", &["baseUrl"]),
        case(begun("half").stops(refusal).end(), "refused", &["It is harmful"]),
    ];
    check_all(&world, &server, &says("fine"), &cases);
}

#[test]
fn a_cut_call_is_not_run() {
    let server = ModelServer::new();
    let world = serving(&server, "model: 'm'", "");
    let block = json!({"type": "tool_use", "id": "c1", "name": "exec", "input": {}});
    let piece = json!({"type": "input_json_delta", "partial_json": "{\"command\":\"touch ran\"}"});
    let half = begun("I do it.")
        .with(json!({"type": "content_block_start", "index": 1, "content_block": block}))
        .with(json!({"type": "content_block_delta", "index": 1, "delta": piece}))
        .with(json!({"type": "content_block_stop", "index": 1}));
    let cut = half.cut();
    server.play([cut.clone(), cut.clone(), cut, says("fine")]);
    assert_eq!(world.prompt("api:1", "go").status, 502);
    assert_eq!(world.answer("api:1", "more"), "fine");
    // D1: neither the call nor a result of it is sent.
    let said = server.last().said();
    assert_eq!(said[1..], ["user: go", "assistant: I do it.", "user: more"]);
    assert!(!world.workspace("a").join("ran").exists());
}

#[test]
fn a_base_url_may_name_the_version() {
    let server = ModelServer::playing([says("fine")]);
    let world = some_world();
    let fields = provider_in(Dialect::Anthropic, server.port(), "");
    let port = format!(":{}'", server.port());
    let fields = fields.replace(&port, &port.replace('\'', "/v1'"));
    assert!(fields.contains("/v1'"), "{fields}");
    world.write_config_of(&fields, &world.agent("a", "", ""), "");
    world.start_gateway();
    assert_eq!(world.answer("api:1", "go"), "fine");
}
