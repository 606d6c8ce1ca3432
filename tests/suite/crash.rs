//! kill -9 of the gateway at each stage of a turn, a start, and a further
//! prompt: what was told is there, the file is sound, the request is valid.

use std::process::Child;

use serde_json::{Value, json};

use crate::support::{
    Answer, ModelServer, Stream, World, calls, on_either_kind, runs, says, says_and_calls,
    some_world, wait_until,
};

/// Kills a gateway and reads what was still told.
fn kill(mut gateway: Child, stream: Stream) -> Vec<Value> {
    gateway.kill().expect("it runs");
    gateway.wait().expect("it ends");
    stream.rest()
}

/// After a start: the session holds what was told, and goes on.
#[track_caller]
fn goes_on(world: &World, server: &ModelServer, told: &[Value], want: &[&str]) {
    let before = world.messages("api:1");
    check_told(world, told);
    server.play([says("fine")]);
    let mut gateway = world.gateway_child();
    assert_eq!(world.answer("api:1", "more"), "fine");
    server.check();
    let said = server.last().said();
    let got: Vec<&str> = said[1..].iter().map(String::as_str).collect();
    assert_eq!(got.len(), want.len(), "{got:#?}");
    for (got, want) in got.iter().zip(want) {
        assert!(got.starts_with(want), "{got:?} is not {want:?}");
    }
    let after = world.messages("api:1");
    assert_eq!(after[..before.len()], before, "what was there has changed");
    world.verify_audit();
    gateway.kill().expect("it runs");
    gateway.wait().expect("it ends");
}

/// Each result that was told is in the file, and so is the message.
#[track_caller]
fn check_told(world: &World, told: &[Value]) {
    let stored = world.stored("api:1");
    assert_eq!(stored[0]["role"], "user");
    for end in told.iter().filter(|it| it["type"] == "tool_end") {
        let result = stored.iter().find(|it| it["toolCallId"] == end["id"]);
        let result = result.unwrap_or_else(|| panic!("no result for {end} in {stored:#?}"));
        assert_eq!(result["isError"], end["isError"], "{result}");
    }
    for start in told.iter().filter(|it| it["type"] == "tool_start") {
        let id = start["id"].as_str().expect("an id");
        assert!(json!(stored).to_string().contains(id), "no call {id} in {stored:#?}");
    }
}

/// A world, its server, and a gateway to kill.
fn running(server: &ModelServer) -> (World, Child) {
    let world = some_world();
    world.model(server, "");
    let gateway = world.gateway_child();
    (world, gateway)
}

#[test]
fn killed_before_the_model_has_said_a_byte() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.play([Answer::stream().hold(&gate), Answer::stream().hold(&gate)]);
    let (world, gateway) = running(&server);
    let stream = world.stream("api:1", "go");
    gate.wait_held(1);
    let told = kill(gateway, stream);
    // Also the second time: two messages and no answer.
    assert_eq!(world.messages("api:1"), ["user: go"]);
    let gateway = world.gateway_child();
    let stream = world.stream("api:1", "again");
    server.wait_asked(2);
    gate.wait_held(1);
    kill(gateway, stream);
    goes_on(&world, &server, &told, &["user: go", "user: again", "user: more"]);
}

#[test]
fn killed_in_the_stream_of_an_answer() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.play([Answer::stream()
        .text("so far")
        .call(0, "c1", "exec", "{\"command\":\"touch ran\"")
        .hold(&gate)]);
    let (world, gateway) = running(&server);
    let mut stream = world.stream("api:1", "go");
    stream.until("text_delta");
    let told = kill(gateway, stream);
    assert_eq!(world.messages("api:1"), ["user: go"]);
    goes_on(&world, &server, &told, &["user: go", "user: more"]);
    assert!(!world.workspace("a").join("ran").exists());
}

#[test]
fn killed_in_a_tool() {
    on_either_kind(|world| {
        let command = "echo x >>started; while [ ! -e go ]; do sleep 0.02; done; echo y >>ended";
        let server = ModelServer::playing([says_and_calls(
            "I run.",
            &[
                ("c1", "exec", json!({"command": "echo one"})),
                ("c2", "exec", json!({"command": command})),
                ("c3", "exec", json!({"command": "touch three"})),
            ],
        )]);
        world.model(&server, "");
        let gateway = world.gateway_child();
        let stream = world.stream("api:1", "go");
        let started = world.workspace("a").join("started");
        wait_until("the tool runs", || started.exists());
        let told = kill(gateway, stream);
        let messages = world.messages("api:1");
        assert_eq!(messages.len(), 3, "{messages:#?}");
        assert!(told.iter().any(|it| it["type"] == "tool_end" && it["id"] == "c1"), "{told:#?}");
        let want = [
            "user: go",
            "assistant: I run.<exec",
            "tool: Exit code: 0\none\n",
            "tool: ",
            "tool: ",
            "user: more",
        ];
        goes_on(world, &server, &told, &want);
        let results: Vec<Value> =
            world.stored("api:1").into_iter().filter(|it| it["role"] == "toolResult").collect();
        let errors: Vec<&Value> = results.iter().map(|it| &it["isError"]).collect();
        assert_eq!(errors, [&json!(false), &json!(true), &json!(true)]);
        assert!(json!(results[1]).to_string().contains("interrupted"), "{}", results[1]);
        // It has run once, and nothing has gone on with it.
        let count = std::fs::read_to_string(&started).expect("a file");
        assert_eq!(count, "x\n");
        assert!(!world.workspace("a").join("three").exists());
        std::fs::write(world.workspace("a").join("go"), "").expect("a file");
    });
}

#[test]
fn killed_between_a_result_and_the_next_call() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.play([runs("c1", "echo hi; exit 3"), Answer::stream().hold(&gate)]);
    let (world, gateway) = running(&server);
    let mut stream = world.stream("api:1", "go");
    let end = stream.until("tool_end");
    assert_eq!(end["exitCode"], 3);
    gate.wait_held(1);
    let told = kill(gateway, stream);
    let want = ["user: go", "assistant: <exec", "tool: Error: Exit code: 3\nhi\n", "user: more"];
    goes_on(&world, &server, &told, &want);
}

#[test]
fn killed_before_the_last_line() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.play([
        calls(&[("c1", "exec", json!({"command": "notes add kept"}))]),
        Answer::stream().text("The answer.").finish("stop").usage(1, 1).hold(&gate).done(),
    ]);
    let (world, gateway) = running(&server);
    let mut stream = world.stream("api:1", "go");
    stream.until("tool_end");
    stream.until("text_delta");
    gate.wait_held(1);
    let told = kill(gateway, stream);
    assert!(told.iter().all(|it| it["type"] != "done"), "{told:#?}");
    let want = ["user: go", "assistant: <exec", "tool: ", "user: more"];
    goes_on(&world, &server, &told, &want);
}

#[test]
fn killed_when_all_was_told() {
    let server = ModelServer::playing([runs("c1", "echo hi"), says("The answer.")]);
    let (world, gateway) = running(&server);
    let mut stream = world.stream("api:1", "go");
    stream.until("done");
    let told = kill(gateway, stream);
    let want = ["user: go", "assistant: <exec", "tool: ", "assistant: The answer.", "user: more"];
    goes_on(&world, &server, &told, &want);
}

#[test]
fn killed_with_many_turns_in_every_stage() {
    let server = ModelServer::new();
    let gate = server.gate();
    let held = gate.clone();
    server.answer_by(move |asked| match (asked.last_user().as_str(), asked.answers()) {
        ("stream", _) => Answer::stream().text("so far").hold(&held),
        ("call", _) => Answer::stream().hold(&held),
        ("next", 1..) => Answer::stream().hold(&held),
        ("tool", 0) => runs("c1", "touch started-$$; exec sleep 600"),
        (_, 0) => runs("c1", "echo hi"),
        _ => says("fine"),
    });
    let (world, gateway) = running(&server);
    let kinds = ["stream", "call", "next", "tool", "done"];
    let keys: Vec<(String, &str)> =
        (0..20).map(|it| (format!("api:{it}"), kinds[it % kinds.len()])).collect();
    let mut streams = Vec::new();
    for (key, kind) in &keys {
        let mut stream = world.stream(key, kind);
        match *kind {
            "stream" => drop(stream.until("text_delta")),
            "next" => drop(stream.until("tool_end")),
            "tool" => drop(stream.until("tool_start")),
            "done" => drop(stream.until("done")),
            _ => {}
        }
        streams.push(stream);
    }
    gate.wait_held(12);
    let mut gateway = gateway;
    gateway.kill().expect("it runs");
    gateway.wait().expect("it ends");
    drop(streams);
    server.answer_by(|_| says("fine"));
    let mut gateway = world.gateway_child();
    for (key, kind) in &keys {
        world.session(key);
        assert_eq!(world.answer(key, "more"), "fine");
        let said = server.last().said();
        assert_eq!(said[1], format!("user: {kind}"));
        let results = said.iter().filter(|it| it.starts_with("tool: ")).count();
        assert_eq!(results, usize::from(["next", "tool", "done"].contains(kind)), "{said:#?}");
    }
    server.check();
    world.verify_audit();
    gateway.kill().expect("it runs");
    gateway.wait().expect("it ends");
}
