//! One answer for a client that keeps its conversation itself, in the event
//! protocol of the pi SDK: its shapes, its failures, another model's answer,
//! clients that leave or do not read, and many at a time.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Answer, Dialect, KEY, ModelServer, Part, Said, Stop, Stream, World, end, memory, peak_memory,
    provider_in, says, says_in, signal, some_world, threads, wait_at_rest, wait_until,
};

const PATH: &str = "/api/chat/stream";

/// Two models of one provider, the second one for when the first cannot.
const FALLBACK: &str = "fallbackModels: [{ provider: 'p', model: 'n' }],";

fn serving(server: &ModelServer) -> World {
    let world = some_world();
    world.model(server, "");
    world.start_gateway();
    world
}

/// The same with an agent that has a second model.
fn serving_two(server: &ModelServer) -> World {
    let world = some_world();
    world.model_of(server, "", &world.agent("a", "", FALLBACK));
    world.start_gateway();
    world
}

/// What is asked: one message, and these options.
fn body(message: &str, options: Value) -> Value {
    let messages = json!([{"role": "user", "content": message, "timestamp": 0}]);
    asking(messages, options)
}

/// What is asked: these messages, and these options.
fn asking(messages: Value, options: Value) -> Value {
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}},
        "required": ["command"]});
    let tools = json!([{"name": "exec", "description": "d", "parameters": parameters}]);
    json!({"provider": "p", "modelId": "m", "agentName": "a", "sessionKey": "tui:a:default",
        "context": {"systemPrompt": "sys", "messages": messages, "tools": tools},
        "options": options})
}

fn with(mut body: Value, pointer: &str, value: Value) -> Value {
    *body.pointer_mut(pointer).expect("a field") = value;
    body
}

/// All events of an answer without the message in each.
#[track_caller]
fn events(world: &World, message: &str) -> Vec<Value> {
    Stream::at(world, PATH, &body(message, json!({"partial": false}))).rest()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|it| it["type"].as_str().unwrap_or("?")).collect()
}

fn last(events: &[Value]) -> &Value {
    events.last().expect("an event")
}

/// The text of all pieces.
fn said(events: &[Value]) -> String {
    let pieces = events.iter().filter(|it| it["type"] == "text_delta");
    pieces.filter_map(|it| it["delta"].as_str()).collect()
}

fn names(object: &Value) -> BTreeSet<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Fails unless it has the fields that clients of the SDK read.
#[track_caller]
fn check_message(message: &Value) {
    let want = BTreeSet::from([
        "role",
        "content",
        "api",
        "provider",
        "model",
        "usage",
        "stopReason",
        "timestamp",
    ]);
    let found: BTreeSet<&str> = names(message);
    assert!(found.is_superset(&want), "{message}");
    assert!(found.difference(&want).all(|it| ["errorMessage", "beige"].contains(it)), "{message}");
    let about = json!([message["role"], message["api"], message["provider"]]);
    assert_eq!(about, json!(["assistant", "openai-completions", "p"]));
    let usage =
        BTreeSet::from(["input", "output", "cacheRead", "cacheWrite", "totalTokens", "cost"]);
    assert_eq!(names(&message["usage"]), usage);
    let cost = BTreeSet::from(["input", "output", "cacheRead", "cacheWrite", "total"]);
    assert_eq!(names(&message["usage"]["cost"]), cost);
    assert!(message["timestamp"].as_i64().is_some_and(|it| it > 1_700_000_000_000), "{message}");
}

/// Fails unless the events have the fields of the protocol and these types.
#[track_caller]
fn check_shapes(events: &[Value], want: &[&str]) {
    assert_eq!(kinds(events), want);
    for event in events {
        let kind = event["type"].as_str().expect("a type");
        let fields: &[&str] = match kind.rsplit_once('_').map_or(kind, |it| it.1) {
            "start" if kind == "start" => &["type", "partial"],
            "start" => &["type", "contentIndex", "partial"],
            "delta" => &["type", "contentIndex", "delta", "partial"],
            "end" if kind == "toolcall_end" => &["type", "contentIndex", "toolCall", "partial"],
            "end" => &["type", "contentIndex", "content", "partial"],
            "done" => &["type", "reason", "message"],
            _ => &["type", "reason", "error"],
        };
        assert_eq!(names(event), fields.iter().copied().collect(), "{event}");
        for message in ["partial", "message", "error"] {
            if let Some(message) = event.get(message) {
                check_message(message);
            }
        }
    }
}

#[test]
fn events_have_the_shapes_that_clients_of_the_sdk_know() {
    let server = ModelServer::new();
    let world = serving(&server);
    let gate = server.gate();
    let mut answer = Answer::stream();
    for piece in ["Hello ", "from ", "fake ", "LLM."] {
        // Pieces that come at once are told as one, where each has the message.
        answer = answer.text(piece).hold(&gate);
    }
    server.play([answer.finish("stop").usage(100, 9).done()]);
    let mut stream = Stream::at(&world, PATH, &body("hello", json!({})));
    for piece in ["Hello ", "from ", "fake ", "LLM."] {
        assert_eq!(stream.until("text_delta")["delta"], piece);
        gate.let_one();
    }
    let told = stream.rest();
    let delta = "text_delta";
    check_shapes(&told, &["start", "text_start", delta, delta, delta, delta, "text_end", "done"]);
    let block = |text: &str| json!([{"type": "text", "text": text}]);
    assert_eq!(told[0]["partial"]["content"], json!([]));
    assert_eq!(told[3]["partial"]["content"], block("Hello from "));
    assert_eq!(
        (&told[6]["content"], &told[6]["contentIndex"]),
        (&json!("Hello from fake LLM."), &json!(0))
    );
    let done = last(&told);
    assert_eq!(
        (&done["reason"], &done["message"]["content"]),
        (&json!("stop"), &block("Hello from fake LLM."))
    );
    let usage = &done["message"]["usage"];
    assert_eq!(
        json!([usage["input"], usage["output"], usage["totalTokens"]]),
        json!([100, 9, 109])
    );
    assert!(
        told[..7].iter().all(|it| it["partial"]["timestamp"] == told[0]["partial"]["timestamp"])
    );
}

#[test]
fn thinking_and_calls_are_told_as_blocks() {
    let server = ModelServer::new();
    let world = serving(&server);
    let gate = server.gate();
    server.play([Answer::stream()
        .delta(&json!({"role": "assistant", "content": "", "reasoning_content": "hmm"}))
        .hold(&gate)
        .text("Let me run that. ")
        .hold(&gate)
        .call(0, "c1", "exec", "{\"command\":")
        .hold(&gate)
        .arguments(0, " \"echo hi\"}")
        .finish("tool_calls")
        .usage(100, 6)
        .done()]);
    let mut stream = Stream::at(&world, PATH, &body("go", json!({})));
    for kind in ["thinking_delta", "text_delta", "toolcall_delta"] {
        stream.until(kind);
        gate.let_one();
    }
    let told = stream.rest();
    let want = [
        "start",
        "thinking_start",
        "thinking_delta",
        "thinking_end",
        "text_start",
        "text_delta",
        "text_end",
        "toolcall_start",
        "toolcall_delta",
        "toolcall_delta",
        "toolcall_end",
        "done",
    ];
    check_shapes(&told, &want);
    let indexes: Vec<Option<u64>> = told.iter().map(|it| it["contentIndex"].as_u64()).collect();
    let (zero, one, two) = (Some(0), Some(1), Some(2));
    assert_eq!(indexes, [None, zero, zero, zero, one, one, one, two, two, two, two, None]);
    let arguments = |event: usize| &told[event]["partial"]["content"][2]["arguments"];
    assert_eq!(*arguments(8), json!({}));
    assert_eq!(*arguments(9), json!({"command": "echo hi"}));
    let call = json!({"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "echo hi"}});
    assert_eq!(told[10]["toolCall"], call);
    let done = last(&told);
    assert_eq!((&done["reason"], &done["message"]["content"][2]), (&json!("toolUse"), &call));
    assert_eq!(done["message"]["stopReason"], "toolUse");
}

#[test]
fn every_piece_has_a_line_where_the_message_is_left_out() {
    let server = ModelServer::new();
    let world = serving(&server);
    let pieces: Vec<String> = (0..5_000).map(|it| format!("word {it} ")).collect();
    let text: Vec<&str> = pieces.iter().map(String::as_str).collect();
    server.play([says_in(&text), says_in(&text)]);
    let told = events(&world, "go");
    let deltas: Vec<&Value> = told.iter().filter(|it| it["type"] == "text_delta").collect();
    assert_eq!(deltas.len(), pieces.len());
    assert!(told.iter().all(|it| it.get("partial").is_none()));
    assert!(deltas.iter().zip(&pieces).all(|(it, piece)| it["delta"] == piece.as_str()));
    assert_eq!(last(&told)["message"]["content"][0]["text"], pieces.concat());
    // With it, few say as much, and each says all so far.
    let told = Stream::at(&world, PATH, &body("go", json!({}))).rest();
    assert_eq!(said(&told), pieces.concat());
    let mut so_far = String::new();
    for event in told.iter().filter(|it| it["type"] == "text_delta") {
        so_far.push_str(event["delta"].as_str().expect("a delta"));
        assert_eq!(event["partial"]["content"][0]["text"], so_far.as_str());
    }
}

#[test]
fn a_failure_before_anything_was_said_is_an_event_and_no_silence() {
    let server = ModelServer::new();
    let world = serving(&server);
    server.play([Answer::error(401, &format!("the key {KEY} is wrong"))]);
    let told = Stream::at(&world, PATH, &body("go", json!({}))).rest();
    check_shapes(&told, &["start", "error"]);
    let error = &told[1]["error"];
    let about = json!([told[1]["reason"], error["stopReason"], error["content"], error["model"]]);
    assert_eq!(about, json!(["error", "error", [], "m"]));
    let why = error["errorMessage"].as_str().expect("a reason");
    assert!(why.contains("p/m") && why.contains("401") && !why.contains(KEY), "{why}");
    // One that is to be left alone for long is asked no more.
    server.play([Answer::error(429, "slowly").header("Retry-After", "600")]);
    check_shapes(&Stream::at(&world, PATH, &body("go", json!({}))).rest(), &["start", "error"]);
    let told = events(&world, "go");
    assert_eq!(kinds(&told), ["error"]);
    check_message(&told[0]["error"]);
    let why = told[0]["error"]["errorMessage"].as_str().expect("a reason");
    assert!(why.contains("p/m") && why.contains("slowly"), "{why}");
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn another_model_answers_while_nothing_was_said() {
    let server = ModelServer::new();
    let world = serving_two(&server);
    server.play([Answer::error(401, "no"), says("from n")]);
    let told = events(&world, "go");
    let want = ["start", "model_fallback", "text_start", "text_delta", "text_end", "done"];
    assert_eq!(kinds(&told), want);
    assert_eq!(told[1], json!({"type": "model_fallback", "provider": "p", "modelId": "n"}));
    assert_eq!((said(&told).as_str(), &last(&told)["message"]["model"]), ("from n", &json!("n")));
    let models: Vec<Value> = server.asked().iter().map(|it| it.body["model"].clone()).collect();
    assert_eq!(models, ["m", "n"]);
    // One that cools down is passed over, and the other one still asked for.
    server.play([Answer::error(429, "slowly").header("Retry-After", "600"), says("n again")]);
    assert_eq!(said(&events(&world, "go")), "n again");
    server.play([says("and again")]);
    let told = events(&world, "go");
    assert_eq!(kinds(&told)[..2], ["model_fallback", "start"]);
    assert_eq!(server.last().body["model"], "n");
    // Who asks for the second gets no other.
    server.play([Answer::error(401, "no")]);
    let second = with(body("go", json!({"partial": false})), "/modelId", "n".into());
    let told = Stream::at(&world, PATH, &second).rest();
    assert_eq!(kinds(&told), ["start", "error"]);
}

#[test]
fn once_something_was_said_a_failure_is_the_end() {
    let server = ModelServer::new();
    let world = serving_two(&server);
    // It ends as no secret begins: what could be one is told later.
    let error = json!({"error": {"message": "overloaded", "code": 529}});
    for (number, answer) in [
        Answer::stream().text("half.").cut(),
        Answer::stream().text("half.").reset(),
        Answer::stream().text("half.").event(&error).done(),
        // It ended well for HTTP, and without the end of an answer.
        Answer::stream().text("half."),
        Answer::stream().text("half.").data("{broken").finish("stop").done(),
    ]
    .into_iter()
    .enumerate()
    {
        server.play([answer]);
        let told = events(&world, "go");
        assert_eq!(kinds(&told), ["start", "text_start", "text_delta", "error"], "{number}");
        let error = &last(&told)["error"];
        assert_eq!(error["content"], json!([{"type": "text", "text": "half."}]), "{number}");
        assert_eq!(error["stopReason"], "error");
        assert!(error["errorMessage"].is_string(), "{error}");
        assert_eq!(server.asked().len(), number + 1, "nobody else was asked");
    }
    // Of a call that broke off nothing is left that could be run.
    server.play([Answer::stream().call(0, "c1", "exec", "{\"command\": \"ls\"").cut()]);
    let told = events(&world, "go");
    assert_eq!(kinds(&told), ["start", "toolcall_start", "toolcall_delta", "error"]);
    assert_eq!(last(&told)["error"]["content"], json!([]));
}

#[test]
fn what_is_wrong_with_a_request_has_its_status_and_asks_nobody() {
    let server = ModelServer::new();
    let world = serving(&server);
    let sound = || body("go", json!({}));
    for (request, status, word) in [
        (with(sound(), "/agentName", Value::Null), 400, "`agentName`"),
        (with(sound(), "/agentName", "nobody".into()), 404, "nobody"),
        (with(sound(), "/agentName", "constructor".into()), 404, "constructor"),
        (with(sound(), "/modelId", "other".into()), 403, "p/m"),
        (with(sound(), "/provider", "q".into()), 403, "q/m"),
        (with(sound(), "/modelId", json!(7)), 400, "`modelId`"),
        (with(sound(), "/context", Value::Null), 400, "`context`"),
        (with(sound(), "/context/messages", json!([])), 400, "`context.messages`"),
        (with(sound(), "/context/messages/0/content", json!(7)), 400, "`context.messages[0]`"),
        (with(sound(), "/context/tools/0/name", Value::Null), 400, "`context.tools[0].name`"),
        (with(sound(), "/options", json!({"partial": 1})), 400, "`options.partial`"),
        (with(sound(), "/sessionKey", json!("a\nb")), 400, "`sessionKey`"),
    ] {
        let reply = world.post(PATH, &request);
        assert_eq!(reply.status, status, "{request}: {}", reply.text());
        let error = reply.json()["error"].as_str().expect("an error").to_owned();
        assert!(error.contains(word), "{error} does not say {word}");
    }
    let reply = crate::support::request(&world.api_socket(), "POST", PATH, &[], b"{");
    assert!(reply.status == 400 && reply.text().contains("JSON"), "{}", reply.text());
    assert_eq!(world.get(PATH).status, 405);
    assert_eq!((server.asked().len(), world.audit_if_any()), (0, 0));
}

#[test]
fn a_session_of_another_agent_is_not_borrowed() {
    let server = ModelServer::playing([says("mine")]);
    let world = some_world();
    let agents = world.agent("a", "", "") + &world.agent("b", "", "");
    world.model_of(&server, "", &agents);
    world.start_gateway();
    world.answer("api:1", "go");
    let request = with(body("go", json!({})), "/sessionKey", "api:1".into());
    let reply = world.post(PATH, &with(request, "/agentName", "b".into()));
    assert_eq!(reply.status, 409, "{}", reply.text());
}

#[test]
fn a_conversation_is_put_right_before_it_is_sent() {
    let server = ModelServer::new();
    let world = serving(&server);
    let call = |id: &str| json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {"command": "ls"}});
    let result = |id: &str| {
        json!({"role": "toolResult", "toolCallId": id, "toolName": "exec", "isError": false,
            "content": [{"type": "text", "text": format!("of {id}")}]})
    };
    let answer = |model: &str, content: Value| {
        json!({"role": "assistant", "content": content, "api": "anthropic-messages",
            "provider": "elsewhere", "model": model, "stopReason": "toolUse"})
    };
    let thought = json!({"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"});
    let long = format!("call_{}|fc_{}", "x".repeat(60), "y".repeat(60));
    let messages = json!([
        result("nobody's"),
        {"role": "user", "content": "first", "timestamp": 1},
        answer("x", json!([thought, call("1"), call("2")])),
        result("2"),
        {"role": "user", "content": "aside"},
        answer("x", json!([])),
        answer("y", json!([call(&long)])),
        result(&long),
        {"role": "user", "content": [{"type": "text", "text": "last"}]},
    ]);
    server.play([says("fine")]);
    let told = Stream::at(&world, PATH, &asking(messages, json!({"partial": false}))).rest();
    assert_eq!(said(&told), "fine");
    // The server holds it against its protocol.
    server.check();
    let sent = server.last().said();
    let roles: Vec<&str> =
        sent.iter().filter_map(|it| it.split_once(": ")).map(|it| it.0).collect();
    let want = ["system", "user", "assistant", "tool", "tool", "user", "assistant", "tool", "user"];
    assert_eq!(roles, want, "{sent:?}");
    assert!(sent[3].contains("interrupted") && sent[4] == "tool: of 2", "{sent:?}");
    assert!(!server.last().body.to_string().contains("c2ln"), "a signature went elsewhere");
}

#[test]
fn what_a_client_wants_of_the_model_reaches_it() {
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, "models: { m: { maxTokens: 4000, reasoning: true } },");
    world.start_gateway();
    server.play([says("1"), says("2")]);
    let options =
        json!({"maxTokens": 77, "temperature": 0.5, "reasoning": "low", "partial": false});
    Stream::at(&world, PATH, &body("go", options)).rest();
    let sent = server.last().body;
    let wanted = json!([sent["max_tokens"], sent["temperature"], sent["reasoning_effort"]]);
    assert_eq!(wanted, json!([77, 0.5, "low"]));
    assert_eq!(sent["messages"][0], json!({"role": "system", "content": "sys"}));
    assert_eq!(sent["tools"][0]["function"]["name"], "exec");
    events(&world, "go");
    let sent = server.last().body;
    let wanted = json!([sent["max_tokens"], sent["temperature"], sent["reasoning_effort"]]);
    assert_eq!(wanted, json!([4000, null, null]));
}

#[test]
fn a_secret_that_a_model_says_is_not_told() {
    let server = ModelServer::new();
    let world = serving(&server);
    let (first, second) = KEY.split_at(9);
    let gate = server.gate();
    let arguments = json!({"command": format!("echo {KEY}")}).to_string();
    let (head, tail) = arguments.split_at(25);
    server.play([Answer::stream()
        .text("It is ")
        .text(first)
        .hold(&gate)
        .text(second)
        .call(0, "c1", "exec", head)
        .hold(&gate)
        .arguments(0, tail)
        .finish("tool_calls")
        .done()]);
    let mut stream = Stream::at(&world, PATH, &body("go", json!({})));
    assert_eq!(stream.until("text_delta")["delta"], "It is ");
    gate.open();
    let told = stream.rest();
    assert_eq!(said(&told), "It is ••••");
    let message = &last(&told)["message"]["content"];
    assert_eq!(message[0]["text"], "It is ••••");
    assert_eq!(message[1]["arguments"], json!({"command": "echo ••••"}));
    let all = json!(told).to_string();
    assert!(!all.contains(first) && !all.contains(second), "{all}");
}

/// Its parts are held, whatever comes between; what is none after all comes
/// late, and the blocks are begun, grown and ended in order all the same.
#[test]
fn a_secret_around_other_deltas_is_not_told() {
    let server = ModelServer::new();
    let world = serving(&server);
    let (first, second) = KEY.split_at(9);
    let thought = |it: &str| json!({ "reasoning_content": it });
    server.play([Answer::stream()
        .text(&format!("It is {first}"))
        .delta(&thought(&format!("hm {first}")))
        .text(second)
        .call(0, "c1", "exec", "{}")
        .text(&format!(". {first}"))
        .delta(&thought(second))
        .finish("tool_calls")
        .done()]);
    let told = Stream::at(&world, PATH, &body("go", json!({}))).rest();
    let late = told.iter().rposition(|it| it["type"] == "text_start").expect("a block");
    assert_eq!(told[late]["contentIndex"], 6, "behind all others");
    assert_eq!(
        (said(&told), told[late + 1]["delta"].as_str()),
        (format!("It is ••••. {first}"), Some(first))
    );
    let thoughts = told.iter().filter(|it| it["type"] == "thinking_delta");
    assert_eq!(thoughts.filter_map(|it| it["delta"].as_str()).collect::<String>(), "hm ••••");
    let call = told.iter().find(|it| it["type"] == "toolcall_end").expect("a call");
    assert_eq!((&call["contentIndex"], &call["toolCall"]["id"]), (&json!(3), &json!("c1")));
    let blocks = last(&told)["message"]["content"].as_array().expect("blocks");
    let of_block = |it: &Value| {
        ["text", "thinking", "name"].iter().find_map(|of| it[of].as_str().map(str::to_owned))
    };
    let got: Vec<String> = blocks.iter().filter_map(of_block).collect();
    let held = format!(". {first}");
    assert_eq!(got, ["It is ", "hm ", "••••", "exec", &held, "••••"]);
    assert!(!json!(told).to_string().contains(second), "{told:?}");
}

#[test]
fn each_call_stands_in_the_audit_log_with_its_end() {
    let server = ModelServer::new();
    let world = serving_two(&server);
    server.play([Answer::error(401, "no"), says("fine")]);
    events(&world, "go");
    let line =
        |it: &Value| json!([it["type"], it["tool"], it["phase"], it["agent"], it["exitCode"]]);
    let told: Vec<Value> = world.audit().iter().map(line).collect();
    let want = [
        json!(["llm", "p/m", "started", "a", null]),
        json!(["llm", "p/m", "finished", "a", 1]),
        json!(["llm", "p/n", "started", "a", null]),
        json!(["llm", "p/n", "finished", "a", 0]),
    ];
    assert_eq!(told, want);
    world.verify_audit();
    assert!(!world.home().join("sessions/session-map.json").exists(), "no session was made");
}

#[test]
fn a_client_that_hangs_up_calls_its_answer_off() {
    let server = ModelServer::new();
    let world = serving(&server);
    let gate = server.gate();
    for answer in [
        // Before a byte of the answer, and in the middle of it.
        Answer::stream().hold(&gate).text("late").finish("stop").done(),
        Answer::stream().text("half").hold(&gate).text("late").finish("stop").done(),
    ] {
        server.play([answer]);
        let mut stream = Stream::at(&world, PATH, &body("go", json!({})));
        stream.until("start");
        gate.wait_held(1);
        // While nothing is said, an empty line tells that the stream lives.
        if stream.told.len() == 1 && server.asked().len() == 1 {
            stream.heartbeat();
        }
        drop(stream);
        server.wait_in_flight(0);
        wait_until("its audit line is finished", || {
            let audit = world.audit();
            let end = audit.last().expect("a line");
            end["phase"] == "finished" && end["exitCode"] == 1
        });
    }
    wait_until("nothing runs", || world.get("/api/health").json()["running"] == 0);
    world.verify_audit();
}

#[test]
fn an_answer_is_called_off_by_a_gateway_that_stops() {
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, "");
    let mut gateway = world.gateway_child();
    let gate = server.gate();
    server.play([Answer::stream().text("half").hold(&gate).finish("stop").done()]);
    let mut stream = Stream::at(&world, PATH, &body("go", json!({"partial": false})));
    stream.until("text_delta");
    signal(gateway.id(), "TERM");
    // Asked before that, it would be one request more.
    wait_until("it drains", || world.get("/api/health").json()["status"] == "draining");
    assert_eq!(world.post(PATH, &body("more", json!({}))).status, 503);
    // The second one calls off what the first waits for.
    signal(gateway.id(), "TERM");
    let told = stream.rest();
    let end = last(&told);
    assert_eq!(json!([end["type"], end["reason"]]), json!(["error", "aborted"]));
    assert_eq!(end["error"]["content"], json!([{"type": "text", "text": "half"}]));
    assert!(gateway.wait().expect("it ends").success());
}

/// Asks and reads nothing.
fn deaf(world: &World, request: &Value) -> UnixStream {
    let mut stream = UnixStream::connect(world.api_socket()).expect("a gateway answers");
    let request = request.to_string();
    let length = request.len();
    let head =
        format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + &request).as_bytes()).expect("sent");
    stream
}

/// What a long conversation takes is bounded, and another one takes no more.
#[test]
fn conversations_of_many_messages_take_the_same_memory_one_after_another() {
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, "");
    server.answer_by(|_| says("hi"));
    let gateway = world.gateway_child();
    let ask = |count: usize| {
        let user = json!({"role": "user", "content": "go", "timestamp": 1});
        let said = json!([{"type": "text", "text": "gone"}]);
        let answer = json!({"role": "assistant", "content": said, "timestamp": 1});
        let messages = (0..count).map(|it| if it % 2 == 0 { user.clone() } else { answer.clone() });
        let mut body = body("go", json!({"partial": false}));
        body["context"]["messages"] = messages.collect();
        let told = Stream::at(&world, PATH, &body).rest();
        assert_eq!(told.last().expect("an end")["type"], "done");
    };
    ask(1);
    let before = memory(&gateway);
    for _ in 0..5 {
        ask(40_001);
        let most = peak_memory(gateway.id());
        assert!(most < before + 100_000, "{before} kB before, {most} kB at its height");
    }
    end(gateway);
}

/// Whoever does not read holds up the model and not the gateway's memory, with
/// and without the message in each line.
#[test]
fn a_client_that_does_not_read_costs_no_memory() {
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, "");
    let gateway = world.gateway_child();
    server.play([says("warm"), says("warm")]);
    for partial in [true, false] {
        Stream::at(&world, PATH, &body("go", json!({"partial": partial}))).rest();
    }
    let before = memory(&gateway);
    let delta = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(1_000)}}]});
    let event = format!("data: {delta}\n\n");
    let flood = Answer::stream().flood(event.as_bytes(), 30 * 1024 * 1024);
    server.play([flood.clone(), flood]);
    let mut streams = Vec::new();
    for partial in [true, false] {
        let mut stream = deaf(&world, &body("go", json!({"partial": partial})));
        // Something came, so that it has begun.
        stream.read_exact(&mut [0; 64]).expect("a head");
        streams.push(stream);
    }
    wait_at_rest(&gateway);
    assert_eq!(server.in_flight(), 2, "the models wait, too");
    let grown = peak_memory(gateway.id()).saturating_sub(before);
    assert!(grown < 12_000, "{grown} kB for two clients that do not read");
    drop(streams);
    server.wait_in_flight(0);
    wait_until("nothing runs", || world.get("/api/health").json()["running"] == 0);
    end(gateway);
}

#[test]
fn a_client_that_does_not_read_holds_up_no_stop() {
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, "");
    let gateway = world.gateway_child();
    let delta = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(1_000)}}]});
    let event = format!("data: {delta}\n\n");
    server.play([Answer::stream().flood(event.as_bytes(), 14 * 1024 * 1024)]);
    let mut stream = deaf(&world, &body("go", json!({"partial": false})));
    stream.read_exact(&mut [0; 64]).expect("a head");
    wait_at_rest(&gateway);
    assert_eq!(server.in_flight(), 1, "the model waits, too");
    signal(gateway.id(), "TERM");
    wait_until("it drains", || world.get("/api/health").json()["status"] == "draining");
    // The second one does not wait for what runs, nor for half a minute until a
    // client that takes nothing counts as gone.
    let stopped = Instant::now();
    end(gateway);
    assert!(stopped.elapsed() < Duration::from_secs(20), "{:?}", stopped.elapsed());
    let log = world.gateway_log();
    assert!(!log.contains("could not be ended"), "{log}");
}

#[test]
fn two_hundred_answers_at_once_take_their_time_and_no_memory() {
    let server = ModelServer::new();
    let (first, second) = (server.gate(), server.gate());
    let held = (first.clone(), second.clone());
    server.answer_by(move |asked| {
        let mut answer = Answer::stream().text(&asked.last_user()).hold(&held.0);
        for _ in 0..50 {
            answer = answer.text(" and on");
        }
        answer.hold(&held.1).text("!").finish("stop").done()
    });
    let world = some_world();
    world.model(&server, "");
    let gateway = world.gateway_child();
    let address = world.address();
    let before = threads(&gateway);
    let open = |number: usize| {
        // Every other one wants the message in each line.
        let options = json!({"partial": number.is_multiple_of(2)});
        let request = body(&format!("{number}."), options);
        let mut stream = match number % 4 {
            0 => Stream::at(&world, PATH, &request),
            _ => Stream::at_by_tcp(&world, &address, PATH, &request),
        };
        stream.until("text_delta");
        stream
    };
    let mut streams: Vec<Stream> = (0..40).map(open).collect();
    let at_first = memory(&gateway);
    streams.extend((40..200).map(open));
    first.wait_held(200);
    let each = memory(&gateway).saturating_sub(at_first) / 160;
    // Four threads and the buffers of two connections; most of it is the
    // stacks of a build that is not optimised.
    assert!(each < 600, "{each} kB a stream");
    first.open();
    second.wait_held(200);
    wait_at_rest(&gateway);
    let at_most = memory(&gateway);
    let want = " and on".repeat(50);
    while !said(&streams[0].told).ends_with(&want) {
        streams[0].until("text_delta");
    }
    for _ in 0..3 {
        streams[0].heartbeat();
    }
    let later = memory(&gateway);
    assert!(later < at_most + 2_000, "{at_most} kB, {later} kB after three seconds");
    second.open();
    for (number, stream) in streams.into_iter().enumerate() {
        let told = stream.rest();
        assert_eq!(said(&told), format!("{number}.{want}!"));
        assert_eq!(last(&told)["type"], "done");
    }
    wait_until("its threads have ended", || threads(&gateway) <= before + 6);
    end(gateway);
}

/// Whoever follows an answer runs each call of it, unless it ends in an error.
#[test]
fn an_answer_that_is_cut_in_a_call_hands_on_no_call() {
    for dialect in Dialect::ALL {
        eprintln!("in {}", dialect.api());
        let call = Part::Call("call_1".into(), "exec".into(), "{\"command\":\"ls\"}".into());
        let cut = Said { stop: Stop::Length, ..Said::new([Part::Text("I look.".into()), call]) };
        let server = ModelServer::playing([dialect.answer(&cut)]);
        let world = some_world();
        let provider = provider_in(dialect, server.port(), "");
        world.write_config_of(&provider, &world.agent("a", "", ""), "");
        world.start_gateway();
        let told = events(&world, "go");
        assert!(kinds(&told).contains(&"toolcall_start"), "{told:#?}");
        assert!(!kinds(&told).contains(&"toolcall_end"), "{told:#?}");
        let end = last(&told);
        assert_eq!(json!([end["type"], end["reason"]]), json!(["error", "error"]));
        let blocks = end["error"]["content"].as_array().map_or(0, Vec::len);
        assert_eq!((&end["error"]["content"][0]["text"], blocks), (&json!("I look."), 1));
        let why = end["error"]["errorMessage"].as_str().unwrap_or_default();
        assert!(why.contains("output limit") && why.contains("nothing of it was run"), "{why}");
    }
}
