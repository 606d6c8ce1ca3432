//! Turns with a model that speaks Responses: what it thought goes back to it,
//! and only to it, and nothing that a server does leaves a session stuck.

use std::fs::{self, OpenOptions};
use std::io::Write;

use serde_json::{Value, json};

use crate::support::{
    Answer, Dialect, ModelServer, Part, Said, Stop, World, call_item, message_item, provider_in,
    reasoning_item, some_world,
};

/// Fields of the provider whose model thinks and sees.
const MODEL: &str = "models: { m: { reasoning: true, input: ['text', 'image'], maxTokens: 900 } },";

/// A world whose gateway runs and asks that server.
fn serving(server: &ModelServer) -> World {
    let world = some_world();
    configure(&world, server);
    world.start_gateway();
    world
}

fn configure(world: &World, server: &ModelServer) {
    let agent = world.agent("a", "", "").replace("'m' }", "'m', thinkingLevel: 'low' }");
    world.write_config_of(&provider_in(Dialect::Responses, server.port(), MODEL), &agent, "");
}

fn answer(parts: impl IntoIterator<Item = Part>) -> Answer {
    Dialect::Responses.answer(&Said::new(parts))
}

fn says(said: &str) -> Answer {
    answer([text(said)])
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn thinks(text: &str) -> Part {
    Part::Thinking(text.to_owned(), Some("seal".to_owned()))
}

fn calls(id: &str, tool: &str, arguments: Value) -> Part {
    Part::Call(id.to_owned(), tool.to_owned(), arguments.to_string())
}

/// The items that the model was sent last, each in short: type or role, and
/// its id.
fn sent(server: &ModelServer) -> Vec<String> {
    let body = server.last().body;
    let items = body["input"].as_array().expect("items").iter();
    let short = |it: &Value| {
        let kind = it["role"].as_str().or(it["type"].as_str()).unwrap_or("?");
        format!("{kind} {}", it["id"].as_str().unwrap_or("-").split('_').next().unwrap_or("?"))
    };
    items.map(short).collect()
}

#[test]
fn a_model_thinks_calls_tools_side_by_side_and_answers() {
    let server = ModelServer::new();
    let world = serving(&server);
    server.play([
        answer([
            thinks("Two commands."),
            text("Let me see."),
            thinks(""),
            calls("call_a", "exec", json!({"command": "echo one"})),
            calls("call_b", "exec", json!({"command": "echo two; exit 3"})),
        ]),
        answer([thinks("Good."), text("Done: 那.")]),
        says("fine"),
    ]);
    let told = world.events("api:1", "go");
    let of = |kind: &str, field: &str| -> String {
        let told = told.iter().filter(|it| it["type"] == kind);
        told.filter_map(|it| it[field].as_str()).collect()
    };
    assert_eq!(of("text_delta", "delta"), "Let me see.Done: 那.");
    assert_eq!(of("thinking_delta", "delta"), "Two commands.Good.");
    assert_eq!(told.last().expect("an event")["response"], "Done: 那.");

    let first = &server.asked()[0].body;
    assert_eq!(first["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(first["reasoning"], json!({"effort": "low", "summary": "auto"}));
    assert_eq!(first["max_output_tokens"], 900);
    assert!(first["instructions"].as_str().is_some_and(|it| !it.is_empty()));
    assert_eq!(
        sent(&server),
        [
            "user -",
            "reasoning rs",
            "assistant msg",
            "reasoning rs",
            "function_call fc",
            "function_call fc",
            "function_call_output -",
            "function_call_output -"
        ]
    );
    let said = server.last().said();
    let call = |command: &str| format!("<exec {}>", json!({ "command": command }));
    assert_eq!(
        said[1..],
        [
            "user: go".to_owned(),
            format!("assistant: Let me see.{}{}", call("echo one"), call("echo two; exit 3")),
            "tool: Exit code: 0\none\n".to_owned(),
            "tool: Error: Exit code: 3\ntwo\n".to_owned(),
        ]
    );
    let body = server.last().body;
    let sealed = body["input"][1]["encrypted_content"].as_str().expect("sealed");
    assert!(sealed.starts_with("sealed:") && sealed.ends_with(":seal"), "{sealed}");

    let stored = world.stored("api:1");
    let fields = json!([stored[1]["api"], stored[1]["stopReason"], stored[1]["usage"]["input"]]);
    assert_eq!(fields, json!(["openai-responses", "toolUse", 7]));
    let ids = [3, 4].map(|it| stored[1]["content"][it]["id"].clone());
    assert_eq!(ids, ["call_a", "call_b"]);
    assert_eq!(world.answer("api:1", "more"), "fine");
    world.verify_audit();
}

#[test]
fn an_answer_is_the_same_however_it_comes() {
    let server = ModelServer::new();
    let world = serving(&server);
    let all = "naïve 那 🦀 e\u{301}";
    let check = |answer: Answer| {
        let shown = format!("{answer:?}");
        let key = format!("api:{}", server.asked().len());
        server.play([answer, says("fine")]);
        assert_eq!(world.answer(&key, "go"), all, "{shown}");
        assert_eq!(world.answer(&key, "more"), "fine", "{shown}");
        assert_eq!(server.last().said()[2], format!("assistant: {all}"), "{shown}");
    };
    for size in [1, 2, 3, 7] {
        check(answer([thinks("hm"), text(all)]).in_pieces(size));
        check(says(all).until_close().in_pieces(size));
    }
    let item = message_item(all, None);
    let end = |answer: Answer| answer.ends("completed", vec![item.clone()], json!({}));
    check(end(Answer::stream().crlf().begun().item(0, &item)).in_pieces(1));
    // Comments anywhere, events that nobody knows, an end mark that is not ours.
    let odd = Answer::stream()
        .comment("OPENROUTER PROCESSING")
        .response("queued", json!({}))
        .item_begins(0, &item)
        .bytes(":\n\n: ping\n")
        .response("web_search_call.searching", json!({"output_index": 9}))
        .named("ping", &json!({}))
        .item_ends(0, &item);
    check(end(odd).done());
    // Nothing but the last event, and no stream at all.
    check(end(Answer::stream()));
    let whole = json!({"object": "response", "status": "completed", "output": [item]});
    check(Answer::status(200, &whole.to_string()));
}

#[test]
fn a_character_cut_by_the_network_is_whole_again() {
    let server = ModelServer::new();
    let gate = server.gate();
    let item = message_item("so. 那", None);
    let cut = b"event: response.output_text.delta\ndata: {\"delta\":\"\xE9";
    server.play([Answer::stream()
        .begun()
        .item_begins(0, &item)
        .piece(0, &item, "output_text", "so. ")
        .bytes(cut)
        .hold(&gate)
        .bytes(b"\x82\xA3\"}\n\n")
        .item_ends(0, &item)
        .ends("completed", vec![item.clone()], json!({}))]);
    let world = serving(&server);
    let mut stream = world.stream("api:1", "go");
    assert_eq!(stream.until("text_delta")["delta"], "so. ");
    gate.open();
    assert_eq!(stream.until("done")["response"], "so. 那");
}

#[test]
fn images_go_out_and_come_back_from_tools() {
    let server = ModelServer::new();
    let world = serving(&server);
    server.play([says("hello")]);
    assert_eq!(world.answer("api:1", "hi"), "hello");
    append(
        &world,
        "api:1",
        json!({"role": "user", "content": [{"type": "text", "text": "look"},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]}),
    );
    fs::write(world.workspace("a").join("a.png"), b"\x89PNG\r\n\x1a\n").expect("written");
    let read = calls("call_a", "read", json!({"path": "a.png"}));
    server.play([answer([thinks(""), read]), says("A dot.")]);
    assert_eq!(world.answer("api:1", "and this?"), "A dot.");
    let input = server.last().body["input"].clone();
    let shown = json!({"type": "input_image", "detail": "auto",
        "image_url": "data:image/png;base64,iVBORw0KGgo="});
    assert_eq!(input[2]["content"][1], shown);
    let output = input[6]["output"].as_array().expect("parts");
    assert_eq!((&input[6]["type"], output.last()), (&json!("function_call_output"), Some(&shown)));
}

/// Appends a message to a session.
fn append(world: &World, key: &str, message: Value) {
    let parent = world.session(key).last().expect("an entry")["id"].clone();
    let count = world.session(key).len();
    let path = world.session_file(key);
    let mut file = OpenOptions::new().append(true).open(path).expect("a file");
    let entry = json!({"type": "message", "id": format!("{count:08x}"), "parentId": parent,
        "timestamp": "2026-01-01T00:00:00.000Z", "message": message});
    writeln!(file, "{entry}").expect("written");
}

#[test]
fn a_history_of_pi_goes_on_with_all_that_is_its_own() {
    let server = ModelServer::new();
    let world = serving(&server);
    server.play([says("hello")]);
    assert_eq!(world.answer("api:1", "hi"), "hello");
    let thought = reasoning_item("hm", "seal");
    let id = thought["id"].as_str();
    let (message, call) = (message_item("Well.", id), call_item("call_a", "exec", "{}", id));
    let mark = json!({"v": 1, "id": message["id"], "phase": "commentary"}).to_string();
    let both = format!("call_a|{}", call["id"].as_str().expect("an id"));
    append(&world, "api:1", json!({"role": "user", "content": "go"}));
    append(
        &world,
        "api:1",
        json!({"role": "assistant", "api": "openai-responses",
        "provider": "p", "model": "m", "stopReason": "toolUse", "content": [
            {"type": "thinking", "thinking": "hm", "thinkingSignature": thought.to_string()},
            {"type": "text", "text": "Well.", "textSignature": mark},
            {"type": "toolCall", "id": both, "name": "exec", "arguments": {}}]}),
    );
    append(
        &world,
        "api:1",
        json!({"role": "toolResult", "toolCallId": both, "toolName": "exec",
        "content": [{"type": "text", "text": "out"}], "isError": false}),
    );
    server.play([says("fine")]);
    assert_eq!(world.answer("api:1", "more"), "fine");
    let input = server.last().body["input"].clone();
    assert_eq!((&input[3], &input[4]["id"]), (&thought, &message["id"]));
    assert_eq!(input[4]["phase"], "commentary");
    assert_eq!((&input[5]["call_id"], &input[5]["id"]), (&json!("call_a"), &call["id"]));
    assert_eq!(input[6]["call_id"], "call_a");
}

/// An error as OpenAI tells of what it sealed and does not know any more.
fn stale() -> Answer {
    let error = json!({"message": "The encrypted content gAAA...Rg== could not be verified.",
        "type": "invalid_request_error", "param": null, "code": "invalid_encrypted_content"});
    Answer::status(400, &json!({ "error": error }).to_string())
}

#[test]
fn what_is_not_taken_back_is_left_out_and_asked_once_more() {
    let server = ModelServer::new();
    let world = serving(&server);
    let run = calls("call_a", "exec", json!({"command": "echo hi"}));
    server.play([answer([thinks("hm"), run]), stale(), says("Done.")]);
    let told = world.events("api:1", "go");
    assert_eq!(told.last().expect("an event")["response"], "Done.");
    assert_eq!(sent(&server), ["user -", "function_call -", "function_call_output -"]);
    assert_eq!(server.asked().len(), 3);
    // Refused again without, it is an error, and the session goes on.
    server.play([stale(), stale()]);
    let reply = world.prompt("api:1", "more");
    assert_eq!((reply.status, server.asked().len()), (502, 5), "{}", reply.text());
    assert_eq!(reply.json()["category"], "refused");
    server.play([says("fine")]);
    assert_eq!(world.answer("api:1", "more"), "fine");
    assert_eq!(sent(&server)[1], "function_call -", "it is known to be stale");
    world.verify_audit();
}

#[test]
fn another_endpoint_gets_nothing_that_is_sealed() {
    let (server, other) = (ModelServer::new(), ModelServer::new());
    let world = serving(&server);
    let run = calls("call_a", "exec", json!({"command": "echo hi"}));
    server.play([answer([thinks("hm"), run]), says("Done."), says("fine")]);
    assert_eq!(world.answer("api:1", "go"), "Done.");
    configure(&world, &other);
    world.run(["gateway", "restart"]).expect(0);
    other.play([says("Well.")]);
    assert_eq!(world.answer("api:1", "more"), "Well.");
    let want = ["user -", "function_call -", "function_call_output -", "assistant -", "user -"];
    assert_eq!(sent(&other), want);
    configure(&world, &server);
    world.run(["gateway", "restart"]).expect(0);
    assert_eq!(world.answer("api:1", "again"), "fine");
    assert_eq!(sent(&server)[1..3], ["reasoning rs", "function_call fc"]);
}

/// Fails every call like this: the prompt ends with that category and words,
/// and what is played then is answered in a sound session.
#[track_caller]
fn check_failure(world: &World, server: &ModelServer, failing: Answer, category: &str, word: &str) {
    let shown = format!("{failing:?}");
    let shown = &shown[..shown.len().min(300)];
    let key = format!("api:{}", server.asked().len());
    server.answer_by(move |_| failing.clone());
    let told = world.events(&key, "go");
    let end = told.last().expect("an event").clone();
    assert_eq!(json!([end["type"], end["category"]]), json!(["error", category]), "{shown} {end}");
    assert!(end["message"].as_str().is_some_and(|it| it.contains(word)), "{shown} {end}");
    assert!(!told.iter().any(|it| it["type"] == "tool_start"), "{shown}: a tool was run");
    server.answer_by(|_| says("fine"));
    assert_eq!(world.answer(&key, "more"), "fine", "{shown}");
    server.check();
}

/// A7: the answer has ended, whatever becomes of the connection.
#[test]
fn a_failure_in_the_middle_is_told_at_once_though_the_socket_is_held() {
    let server = ModelServer::new();
    let world = serving(&server);
    let gate = server.gate();
    let item = message_item("Half", None);
    let half = Answer::stream()
        .begun()
        .item(0, &reasoning_item("hm", "seal"))
        .item_begins(1, &item)
        .piece(1, &item, "output_text", "Half");
    let error = json!({"error": {"code": "server_error", "message": "the model M is broken"}});
    let failed = half.clone().ends("failed", Vec::new(), error).hold(&gate);
    check_failure(&world, &server, failed, "unavailable", "the model M is broken");
    let filtered = half.clone().ends(
        "incomplete",
        Vec::new(),
        json!({"incomplete_details": {"reason": "content_filter"}}),
    );
    check_failure(&world, &server, filtered.hold(&gate), "refused", "content_filter");
    let whole = half.item_ends(1, &item).ends("completed", Vec::new(), json!({})).hold(&gate);
    server.play([whole]);
    assert_eq!(world.answer("api:whole", "go"), "Half");
    gate.open();
}

/// D1, C4: what was broken off is not run, and nothing of it is sent back that
/// a server would refuse.
#[test]
fn an_answer_that_is_cut_runs_nothing_and_leaves_a_sound_session() {
    let server = ModelServer::new();
    let world = serving(&server);
    let thought = reasoning_item("hm", "seal");
    let id = thought["id"].as_str();
    let (message, call) = (message_item("Well.", id), call_item("call_a", "exec", "{}", id));
    let begun = Answer::stream().begun().item(0, &thought);
    let in_call = begun.clone().item(1, &message).item_begins(2, &call);
    let arguments = "function_call_arguments";
    let in_call = in_call.piece(2, &call, arguments, "{\"command\":\"echo");
    let in_text = begun.clone().item_begins(1, &message).piece(1, &message, "output_text", "We");
    for cut in [
        begun.cut(),
        in_text.reset(),
        in_call.clone().cut(),
        in_call.clone().bytes("event: response.output_item.done\ndata: {\"ty").until_close(),
        // Not even the end mark of another protocol ends it.
        in_call.item_ends(2, &call).done(),
    ] {
        check_failure(&world, &server, cut, "cut", "`p`");
    }
}

#[test]
fn a_turn_that_is_called_off_in_a_call_leaves_a_sound_session() {
    let server = ModelServer::new();
    let world = serving(&server);
    let gate = server.gate();
    let thought = reasoning_item("hm", "seal");
    let call = call_item("call_a", "exec", "{}", thought["id"].as_str());
    server.play([Answer::stream()
        .begun()
        .item(0, &thought)
        .item_begins(1, &call)
        .piece(1, &call, "function_call_arguments", "{\"command\":\"echo")
        .hold(&gate)]);
    let mut stream = world.stream("api:1", "go");
    stream.until("thinking_delta");
    gate.wait_held(1);
    drop(stream);
    server.wait_in_flight(0);
    server.play([says("fine")]);
    assert_eq!(world.answer("api:1", "more"), "fine");
    assert_eq!(sent(&server), ["user -", "user -"]);
}

#[test]
fn an_answer_at_the_output_limit_says_so() {
    let server = ModelServer::new();
    let world = serving(&server);
    let said = Said { stop: Stop::Length, ..Said::new([thinks("hm"), text("Half")]) };
    server.play([Dialect::Responses.answer(&said), says("fine")]);
    assert_eq!(world.answer("api:1", "go"), "Half");
    assert_eq!(world.stored("api:1")[1]["stopReason"], "length");
    assert_eq!(world.answer("api:1", "more"), "fine");
}
