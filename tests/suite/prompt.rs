//! Prompts: `beige prompt` and the HTTP routes, answered by a cassette that
//! really calls tools; what a played answer can get wrong; sessions, their
//! files and their order.

use std::cell::RefCell;
use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::support::{World, on_either_kind, runtimes, wait_until, with_and_without_gateway};

/// A world on the runtime that is quick to start.
fn world() -> World {
    World::new(*runtimes().last().expect("a runtime"))
}

fn serving() -> World {
    let world = world();
    world.start_gateway();
    world
}

/// A line that calls `exec`, and one that answers.
const EXEC: &str = r#"{"events":[{"text":"Let me see."},{"toolCall":{"name":"exec","arguments":{"command":"notes add \"a b\"; echo hi; exit 9"}}},{"usage":{"input":7,"output":3}}]}"#;
const DONE: &str = r#"{"events":[{"text":"All done."}]}"#;

/// A line that calls `exec` with a command that waits until it may go on.
const WAIT: &str = r#"{"events":[{"toolCall":{"name":"exec","arguments":{"command":"echo x >started; while [ ! -e go ]; do sleep 0.02; done"}}}]}"#;

fn has_started(world: &World) -> bool {
    world.workspace("a").join("started").exists()
}

fn let_go(world: &World) {
    fs::write(world.workspace("a").join("go"), "").expect("a file");
}

/// The lines of a session's file, checked to be pi's format.
#[track_caller]
fn session(world: &World, key: &str) -> Vec<Value> {
    let map = fs::read_to_string(world.home().join("sessions/session-map.json")).expect("a map");
    let map: Value = serde_json::from_str(&map).expect("JSON");
    let file = map[key]["sessionFile"].as_str().unwrap_or_else(|| panic!("no {key} in {map}"));
    let text = fs::read_to_string(file).expect("a session file");
    assert!(text.ends_with('\n'));
    let lines: Vec<Value> =
        text.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect();
    let head = json!([lines[0]["type"], lines[0]["version"], lines[0]["cwd"]]);
    assert_eq!(head, json!(["session", 3, "/workspace"]));
    let mut parent = Value::Null;
    for entry in &lines[1..] {
        assert_eq!(entry["parentId"], parent, "{entry}");
        assert!(entry["timestamp"].as_str().is_some_and(|it| it.ends_with('Z')), "{entry}");
        let id = entry["id"].as_str().expect("an id");
        assert!(id.len() == 8 && id.bytes().all(|it| it.is_ascii_hexdigit()), "{id}");
        parent = entry["id"].clone();
    }
    lines[1..].to_vec()
}

/// The messages of a session: role, text, and whether it is an error.
fn messages(world: &World, key: &str) -> Vec<String> {
    let entries = session(world, key);
    let messages = entries.iter().filter(|it| it["type"] == "message").map(|it| &it["message"]);
    messages
        .map(|it| {
            let error = if it["isError"] == true { " error" } else { "" };
            format!("{}{error}: {}", it["role"].as_str().unwrap_or("?"), text_of(&it["content"]))
        })
        .collect()
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .map(|it| match it["type"].as_str() {
                Some("text") => it["text"].as_str().unwrap_or_default().to_owned(),
                Some("toolCall") => {
                    format!("<{} {}>", it["name"].as_str().unwrap_or("?"), it["arguments"])
                }
                _ => "?".to_owned(),
            })
            .collect::<Vec<_>>()
            .join("|"),
        other => other.to_string(),
    }
}

fn prompt(world: &World, body: Value) -> crate::support::Reply {
    world.post("/api/agents/a/prompt", &body)
}

/// The events of a streamed turn.
#[track_caller]
fn events(world: &World, body: &Value) -> Vec<Value> {
    let reply = world.post("/api/agents/a/prompt/stream", body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
        .text()
        .lines()
        .filter(|it| !it.is_empty())
        .map(|it| serde_json::from_str(it).expect("JSON"))
        .collect()
}

#[test]
fn a_prompt_calls_tools_and_is_answered() {
    with_and_without_gateway(|world| {
        world.write_cassette(&[EXEC, DONE]);
        let before = world.audit_if_any();
        let done = world.run(["prompt", "a", "--session", "cli:a:1", "do it"]);
        let asked_again = before > 0;
        let done = done.expect(0);
        if asked_again {
            // The same session: the cassette has nothing left for it.
            assert!(done.text().contains("no line left"), "{}", done.text());
            return;
        }
        assert_eq!((done.text().as_str(), done.stderr.as_str()), ("All done.\n", ""));
        let seen: Vec<String> = world.audit()[before..]
            .iter()
            .map(|it| {
                let text = |name: &str| it[name].as_str().unwrap_or("-").to_owned();
                format!("{} {} {} {}", text("type"), text("tool"), text("phase"), text("session"))
            })
            .collect();
        let want = [
            "llm p/m started cli:a:1",
            "llm p/m finished cli:a:1",
            "core_tool exec started cli:a:1",
            "tool notes started cli:a:1",
            "tool notes finished cli:a:1",
            "core_tool exec finished cli:a:1",
            "llm p/m started cli:a:1",
            "llm p/m finished cli:a:1",
        ];
        assert_eq!(seen, want);
        let call = r#"<exec {"command":"notes add \"a b\"; echo hi; exit 9"}>"#;
        let want = [
            "user: do it".to_owned(),
            format!("assistant: Let me see.|{call}"),
            "toolResult error: Exit code: 9\nkept\nhi\n".to_owned(),
            "assistant: All done.".to_owned(),
        ];
        assert_eq!(messages(world, "cli:a:1"), want);
        let stored = session(world, "cli:a:1");
        let of_model = &stored
            .iter()
            .find(|it| it["message"]["role"] == "assistant")
            .expect("an answer")["message"];
        let fields = json!([
            of_model["api"],
            of_model["provider"],
            of_model["model"],
            of_model["stopReason"]
        ]);
        assert_eq!(fields, json!(["replay", "p", "m", "toolUse"]));
        let usage = &of_model["usage"];
        assert_eq!(
            json!([
                usage["input"],
                usage["output"],
                usage["totalTokens"],
                usage["cost"]["total"].is_number()
            ]),
            json!([7, 3, 10, true])
        );
        world.verify_audit();
    });
}

#[test]
fn every_form_of_the_answer() {
    with_and_without_gateway(|world| {
        let done = world.run(["prompt", "a", "--json", "hi"]).expect(0);
        assert_eq!(done.json()["response"], "hello");
        let first = done.json()["session"].as_str().expect("a key").to_owned();
        assert!(first.starts_with("cli:a:"), "{first}");
        let second = world.run(["prompt", "a", "--json", "hi"]).expect(0).json();
        assert_ne!(second["session"], json!(first), "each call is a session of its own");
        let streamed = world.run(["prompt", "a", "--stream-json", "hi"]).expect(0).text();
        let events: Vec<Value> =
            streamed.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect();
        let kinds: Vec<&str> = events.iter().filter_map(|it| it["type"].as_str()).collect();
        assert_eq!(kinds, ["turn_start", "text_delta", "usage", "done"]);
        assert_eq!(events[3]["response"], "hello");
        let key = events[0]["sessionKey"].as_str().expect("the session");
        assert_eq!(messages(world, key), ["user: hi", "assistant: hello"]);
        let long = "語".repeat(300_000);
        let piped = world.run_with_input(["prompt", "a", "--json", "-"], long.as_bytes()).expect(0);
        let key = piped.json()["session"].as_str().expect("a key").to_owned();
        assert!(messages(world, &key)[0] == format!("user: {long}"), "changed on its way");
        let failed = world.run_with_input(["prompt", "a", "-"], b"\xff\xfe").expect(2);
        assert!(failed.stderr.contains("standard input"), "{}", failed.stderr);
        // A session goes on.
        world.write_cassette(&[r#"{"events":[{"text":"one"}]}"#, r#"{"events":[{"text":"two"}]}"#]);
        let key = format!("cli:a:by-a-gateway-{}", world.api_socket().exists());
        for (text, want) in [("first", "one\n"), ("second", "two\n")] {
            assert_eq!(world.run(["prompt", "a", "--session", &key, text]).expect(0).text(), want);
        }
        let want = ["user: first", "assistant: one", "user: second", "assistant: two"];
        assert_eq!(messages(world, &key), want);
        world.write_cassette(&[r#"{"events":[{"text":"hello"}]}"#]);
    });
}

#[test]
fn an_answer_that_was_cut_at_the_output_limit_says_so() {
    const NOTE: &str = "the answer was cut at the model's output limit";
    with_and_without_gateway(|world| {
        let half = r#"{"events":[{"text":"half"},{"stop":"length"}]}"#;
        world.write_cassette(&[half]);
        let key = format!("cli:a:{}", world.api_socket().exists());
        let done = world.run(["prompt", "a", "--session", &key, "hi"]).expect(0);
        assert_eq!(
            (done.text(), done.stderr),
            ("half\n".into(), format!("beige prompt: {NOTE}\n"))
        );
        assert_eq!(world.run(["prompt", "a", "--json", "hi"]).expect(0).json()["note"], NOTE);
        let streamed = world.run(["prompt", "a", "--stream-json", "hi"]).expect(0).text();
        let last: Value =
            serde_json::from_str(streamed.lines().last().expect("a line")).expect("JSON");
        assert_eq!((&last["type"], &last["note"]), (&json!("done"), &json!(NOTE)));
        let shown = world.run(["sessions", "show", &key]).expect(0).text();
        assert!(shown.contains(&format!("half\n[{NOTE}]\n")), "{shown}");
    });
}

#[test]
fn a_prompt_that_cannot_be_is_refused_with_the_reason() {
    let world = world();
    let agents = world.agent("a", "", "") + &world.agent("b", "", "");
    world.write_config(&agents, "");
    world.run(["prompt", "a", "--session", "tui:a:x", "hi"]).expect(0);
    let check = || {
        for (arguments, code, want) in [
            (&["prompt"][..], 2, "AGENT TEXT"),
            (&["prompt", "a"], 2, "AGENT TEXT"),
            (&["prompt", "a", "--model", "m", "hi"], 2, "provider/model"),
            (&["prompt", "a", "--sesion", "x", "hi"], 2, "did you mean `--session`"),
            (&["prompt", "a", ""], 2, "empty"),
            (&["prompt", "nobody", "hi"], 1, "there is no agent `nobody`"),
            (
                &["prompt", "a", "--model", "p/other", "hi"],
                1,
                "may not use p/other; its model is p/m",
            ),
            (&["prompt", "a", "--model", "q/m", "hi"], 1, "may not use q/m"),
            (&["prompt", "b", "--session", "tui:a:x", "hi"], 1, "belongs to the agent `a`"),
            (&["prompt", "a", "--session", "", "hi"], 2, "session"),
            (&["prompt", "a", "--session", "a\nb", "hi"], 2, "session"),
        ] {
            let done = world.run(arguments);
            assert_eq!(done.code, code, "{arguments:?}: {}", done.stderr);
            assert!(done.stderr.contains(want), "{arguments:?}: {}", done.stderr);
            assert_eq!(done.text(), "", "{arguments:?}");
        }
        world.run(["prompt", "a", "--model", "p/m", "hi"]).expect(0);
    };
    check();
    world.start_gateway();
    check();
    for (agent, body, status, want) in [
        ("a", json!({}), 400, "`message`"),
        ("a", json!({"message": 7}), 400, "`message`"),
        ("a", json!({"message": ""}), 400, "`message`"),
        ("a", json!({"message": "x", "sessionKey": ""}), 400, "session"),
        ("a", json!({"message": "x", "sessionKey": "x".repeat(201)}), 400, "session"),
        ("a", json!({"message": "x", "model": "m"}), 400, "`model`"),
        ("a", json!({"message": "x", "model": {"provider": "p"}}), 400, "`model.modelId`"),
        ("a", json!({"message": "x", "model": {"provider": "p", "modelId": "o"}}), 403, "p/o"),
        ("nobody", json!({"message": "x"}), 404, "nobody"),
        ("b", json!({"message": "x", "sessionKey": "tui:a:x"}), 409, "`a`"),
    ] {
        for route in ["prompt", "prompt/stream"] {
            let reply = world.post(&format!("/api/agents/{agent}/{route}"), &body);
            assert_eq!(reply.status, status, "{body}: {}", reply.text());
            let error = reply.json()["error"].as_str().expect("an error").to_owned();
            assert!(error.contains(want), "{body}: {error}");
        }
    }
    let body = json!({"tool": "exec", "params": {"command": "true"}, "sessionKey": "tui:a:x"});
    assert_eq!(world.post("/api/agents/b/exec", &body).status, 409);
    assert_eq!(messages(&world, "tui:a:x").len(), 2, "nobody else wrote into it");
}

#[test]
fn a_streamed_turn_tells_everything_in_its_order() {
    on_either_kind(|world| {
        world.start_gateway();
        world.write_cassette(&[
            r#"{"events":[{"thinking":"hm"},{"text":"I "},{"text":"look."},{"toolCall":{"id":"c1","name":"exec","arguments":{"command":"echo hi"}}},{"toolCall":{"id":"c2","name":"read","arguments":{"path":"missing"}}},{"usage":{"input":7,"output":3}}]}"#,
            DONE,
        ]);
        let told = events(world, &json!({"message": "go"}));
        let kinds: Vec<&str> = told.iter().filter_map(|it| it["type"].as_str()).collect();
        assert_eq!(
            kinds,
            [
                "turn_start",
                "thinking_delta",
                "text_delta",
                "text_delta",
                "usage",
                "tool_start",
                "tool_output",
                "tool_end",
                "tool_start",
                "tool_output",
                "tool_end",
                "turn_start",
                "text_delta",
                "usage",
                "done",
            ]
        );
        assert_eq!(
            told[5],
            json!({"type": "tool_start", "id": "c1", "tool": "exec", "params": {"command": "echo hi"}})
        );
        assert_eq!(told[6], json!({"type": "tool_output", "id": "c1", "delta": "hi\n"}));
        assert_eq!(
            told[7],
            json!({"type": "tool_end", "id": "c1", "isError": false, "exitCode": 0, "bytes": 3})
        );
        assert_eq!((&told[10]["isError"], &told[10]["exitCode"]), (&json!(true), &Value::Null));
        assert_eq!(
            told[4],
            json!({"type": "usage", "input": 7, "output": 3, "cacheRead": 0, "cacheWrite": 0, "costUsd": null})
        );
        assert_eq!(told[14]["response"], "All done.");
        let reply = prompt(world, json!({"message": "again", "sessionKey": "api:2"}));
        assert_eq!((reply.status, reply.json()), (200, json!({"response": "All done."})));
        assert_eq!(messages(world, "api:a:default").len(), 5);
    });
}

#[test]
fn whatever_a_model_plays_the_turn_ends_well() {
    let world = serving();
    let call = |arguments: &str| {
        format!(r#"{{"events":[{{"toolCall":{{"name":"exec","arguments":{arguments}}}}}]}}"#)
    };
    let mut number = 0;
    let mut check = |first: &str, want: &[&str]| {
        number += 1;
        world.write_cassette(&[first, DONE]);
        let key = format!("api:{number}");
        let reply = prompt(&world, json!({"message": "go", "sessionKey": key}));
        assert_eq!(reply.status, 200, "{first}: {}", reply.text());
        let got = messages(&world, &key);
        assert_eq!(got.len(), want.len() + 1, "{first}: {got:#?}");
        for (got, want) in got[1..].iter().zip(want) {
            assert!(got.contains(want), "{first}: {got:?} does not say {want:?}");
        }
        // What is stored can be played on.
        let reply = prompt(&world, json!({"message": "more", "sessionKey": key}));
        assert_eq!(reply.status, 200, "{first}: {}", reply.text());
    };
    let done = "assistant: All done.";
    check(
        r#"{"events":[{"toolCall":{"name":"zap","arguments":{}}}]}"#,
        &["<zap {}>", "toolResult error: Unknown tool: zap", done],
    );
    check(
        r#"{"events":[{"toolCall":{"name":"","arguments":{}}}]}"#,
        &["< {}>", "toolResult error: Unknown tool: ", done],
    );
    check(
        &call(r#""{\"command\": \"ls\"""#),
        &[
            "<exec {}>",
            "toolResult error: `exec` was not run: the arguments are not valid JSON",
            done,
        ],
    );
    check(&call(r#""[1]""#), &["<exec {}>", "must be a JSON object", done]);
    check(&call("[1]"), &["<exec {}>", "must be a JSON object", done]);
    check(&call("7"), &["<exec {}>", "must be a JSON object", done]);
    for empty in [r#""""#, "null", r#""null""#, "{}"] {
        check(&call(empty), &["<exec {}>", "toolResult error: `command` is missing", done]);
    }
    check(
        &call(r#"{"command":"echo ok","timeout":"5"}"#),
        &["<exec", "toolResult: Exit code: 0\nok", done],
    );
    check(&call(r#"{"command":["ls"]}"#), &["<exec", "`command` must be a string", done]);
    check(r#"{"events":[]}"#, &["assistant: "]);
    check(r#"{"events":[{"text":""}]}"#, &["assistant: "]);
    check(
        r#"{"events":[{"toolCall":{"name":"exec","arguments":{"command":"echo 1"}}},{"toolCall":{"name":"zap"}},{"text":"and"},{"toolCall":{"name":"exec","arguments":{"command":"echo 3"}}}]}"#,
        &[
            "<zap {}>",
            "toolResult: Exit code: 0\n1\n",
            "toolResult error: Unknown",
            "Exit code: 0\n3\n",
            done,
        ],
    );
    // Each call has an id of its own, and each result is of one call.
    let stored = session(&world, &format!("api:{number}"));
    let blocks = stored.iter().filter_map(|it| it["message"]["content"].as_array()).flatten();
    let calls: Vec<&Value> =
        blocks.filter(|it| it["type"] == "toolCall").map(|it| &it["id"]).collect();
    let results: Vec<&Value> = stored
        .iter()
        .filter(|it| it["message"]["role"] == "toolResult")
        .map(|it| &it["message"]["toolCallId"])
        .collect();
    assert_eq!(calls, results);
    let distinct: std::collections::BTreeSet<&str> =
        calls.iter().filter_map(|it| it.as_str()).collect();
    assert_eq!(distinct.len(), 3, "{calls:?}");
}

#[test]
fn calls_that_share_an_id_are_told_apart() {
    let world = serving();
    world.write_cassette(&[
        r#"{"events":[{"toolCall":{"id":"x","name":"exec","arguments":{"command":"echo 1"}}},{"toolCall":{"id":"x","name":"exec","arguments":"{"}},{"toolCall":{"id":"","name":"exec","arguments":{"command":"echo 3"}}}]}"#,
        DONE,
    ]);
    assert_eq!(prompt(&world, json!({"message": "go", "sessionKey": "api:1"})).status, 200);
    let got = messages(&world, "api:1");
    assert!(
        got[2].ends_with("1\n") && got[3].contains("not valid JSON") && got[4].ends_with("3\n"),
        "{got:#?}"
    );
    let stored = session(&world, "api:1");
    let ids: std::collections::BTreeSet<&str> = stored
        .iter()
        .filter_map(|it| it["message"]["toolCallId"].as_str())
        .filter(|it| !it.is_empty())
        .collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
}

#[test]
fn a_turn_that_never_ends_is_ended() {
    with_and_without_gateway(|world| {
        world.write_config(&world.agent("a", "", "limits: { maxTurns: 3 },"), "");
        let line = r#"{"events":[{"text":"on"},{"toolCall":{"name":"exec","arguments":{"command":"echo x >>count"}}}]}"#;
        world.write_cassette(&[line; 9]);
        fs::remove_file(world.workspace("a").join("count")).ok();
        let done = world.run(["prompt", "a", "go"]).expect(1);
        assert!(done.stderr.contains("after 3 model calls, "), "{}", done.stderr);
        assert_eq!(done.text(), "on\n\non\n\non\n", "what was said is not lost");
        let count = fs::read_to_string(world.workspace("a").join("count")).expect("a file");
        assert_eq!(count, "x\n".repeat(3));
        let document = world.run(["prompt", "a", "--json", "go"]).expect(1).json();
        assert_eq!(
            (&document["category"], &document["partial"]),
            (&json!("max_turns"), &json!("on\n\non\n\non"))
        );
        assert!(document["session"].is_string() && document["error"].is_string(), "{document}");
        if world.api_socket().exists() {
            let reply = prompt(world, json!({"message": "go"}));
            assert_eq!((reply.status, &reply.json()["category"]), (502, &json!("max_turns")));
            let told = events(world, &json!({"message": "go"}));
            let last = told.last().expect("an event");
            assert_eq!((&last["type"], &last["category"]), (&json!("error"), &json!("max_turns")));
            let reply = prompt(world, json!({"message": "more"}));
            assert_eq!(reply.status, 502, "the session goes on: {}", reply.text());
        }
    });
}

#[test]
fn a_cassette_missing_torn_or_used_up() {
    let world = serving();
    let cassette = world.root.join("cassette.jsonl");
    let check = |key: &str, status: u16, want: &str| {
        let reply = prompt(&world, json!({"message": "go", "sessionKey": key}));
        assert_eq!(reply.status, status, "{}", reply.text());
        assert!(reply.text().contains(want), "{} does not say {want}", reply.text());
    };
    check("api:1", 200, "hello");
    check("api:1", 200, "cassette.jsonl of the provider `p` has no line left");
    world.write_cassette(&[r#"{"match":{"lastUser":"other*"},"events":[{"text":"x"}]}"#]);
    check("api:2", 200, "no line left that fits");
    fs::write(&cassette, r#"{"events":[{"text":"tor"#).expect("written");
    check("api:3", 500, "cassette.jsonl");
    for line in ["nope\n", "{}\n", "{\"events\":7}\n", "{\"events\":[{\"nope\":1}]}\n", "\u{0}\n"] {
        fs::write(&cassette, line).expect("written");
        check("api:3", 500, "cassette.jsonl");
    }
    fs::write(&cassette, "x".repeat(5_000_000)).expect("written");
    check("api:3", 500, "cassette.jsonl");
    fs::remove_file(&cassette).expect("removed");
    check("api:3", 500, "cassette.jsonl");
    fs::create_dir(&cassette).expect("a folder");
    check("api:3", 500, "cassette.jsonl");
    fs::remove_dir(&cassette).expect("removed");
    // Made whole again, the same session goes on.
    world.write_cassette(&[DONE]);
    check("api:3", 200, "All done.");
    let fails = r#"{"events":[{"text":"half"},{"error":"overloaded"}]}"#;
    world.write_cassette(&[fails, fails, fails, DONE]);
    let told = events(&world, &json!({"message": "go", "sessionKey": "api:4"}));
    let last = told.last().expect("an event");
    assert_eq!(
        json!([last["type"], last["category"], last["partial"]]),
        json!(["error", "unavailable", "half"])
    );
    assert!(messages(&world, "api:4")[1].contains("half"));
    world.verify_audit();
}

#[test]
fn prompts_to_one_session_take_their_turn() {
    let world = serving();
    let first = WAIT.replace(r#"{"events""#, r#"{"match":{"lastUser":"number 1"},"events""#);
    world.write_cassette(&[&first, DONE, DONE, DONE]);
    let running = || world.get("/api/health").json()["running"].as_u64().unwrap_or(0);
    thread::scope(|scope| {
        let mut asked = Vec::new();
        for number in 1..=3 {
            let world = &world;
            asked.push(scope.spawn(move || {
                let body = json!({"message": format!("number {number}"), "sessionKey": "api:x"});
                prompt(world, body)
            }));
            wait_until("it is in line", || running() == number);
            wait_until("the first has begun", || has_started(world));
        }
        // Another session of the same agent does not wait.
        let other =
            prompt(&world, json!({"message": "now", "model": null, "sessionKey": "api:y",}));
        let_go(&world);
        assert_eq!(other.status, 200);
        for reply in asked {
            let reply = reply.join().expect("no panic");
            assert_eq!((reply.status, reply.json()["response"].clone()), (200, json!("All done.")));
        }
    });
    let said: Vec<String> =
        messages(&world, "api:x").into_iter().filter(|it| it.starts_with("user")).collect();
    assert_eq!(said, ["user: number 1", "user: number 2", "user: number 3"]);
}

#[test]
fn an_interrupted_prompt_leaves_a_sound_session() {
    with_and_without_gateway(|world| {
        for (signal, code) in [("INT", 130), ("TERM", 143)] {
            let key = format!("cli:a:{signal}-{}", world.api_socket().exists());
            fs::remove_file(world.workspace("a").join("started")).ok();
            world.write_cassette(&[WAIT, DONE, DONE]);
            let child = started(world, &["prompt", "a", "--session", &key, "go"]);
            wait_until("the tool runs", || has_started(world));
            crate::support::signal(child.id(), signal);
            assert_eq!(ended(child).0, code);
            wait_until("the call is answered", || {
                messages(world, &key).iter().any(|it| it.starts_with("toolResult error: "))
            });
            let done = world.run(["prompt", "a", "--session", &key, "go on"]).expect(0);
            assert_eq!(done.text(), "All done.\n");
            let left = world
                .sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[e]cho x >started'; true");
            assert_eq!(left.text().trim(), "0", "its command runs on");
            world.verify_audit();
        }
    });
}

#[test]
fn an_interrupted_prompt_says_in_every_form_that_it_was_called_off() {
    const SAYS_AND_WAITS: &str = r#"{"events":[{"text":"Let me see."},{"toolCall":{"name":"exec","arguments":{"command":"echo x >started; while [ ! -e go ]; do sleep 0.02; done"}}}]}"#;
    with_and_without_gateway(|world| {
        for form in [None, Some("--json"), Some("--stream-json")] {
            fs::remove_file(world.workspace("a").join("started")).ok();
            world.write_cassette(&[SAYS_AND_WAITS]);
            let arguments: Vec<&str> = ["prompt", "a", "go"].into_iter().chain(form).collect();
            let (code, text, errors) = interrupted(world, &arguments);
            assert_eq!(code, 143, "{form:?}: {errors}");
            assert!(errors.contains("beige prompt: ") && errors.contains("called off"), "{errors}");
            let last = text.lines().last().unwrap_or_default();
            if form.is_none() {
                assert_eq!(last, "Let me see.");
                continue;
            }
            let last: Value = serde_json::from_str(last).expect("JSON");
            assert_eq!(last["category"], "aborted", "{last}");
            assert_eq!(last["partial"], "Let me see.", "{last}");
            let key = last["session"].as_str().is_some_and(|it| it.starts_with("cli:a:"));
            assert_eq!(key, form == Some("--json"), "{last}");
        }
    });
}

/// Exit code, standard output and standard error of a prompt that gets SIGTERM
/// once its tool runs.
fn interrupted(world: &World, arguments: &[&str]) -> (i32, String, String) {
    let mut command = world.beige(arguments);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("beige runs");
    let mut stderr = child.stderr.take().expect("a pipe");
    wait_until("the tool runs", || has_started(world));
    crate::support::signal(child.id(), "TERM");
    let (code, text) = ended(child);
    let mut errors = String::new();
    stderr.read_to_string(&mut errors).expect("read");
    (code, text, errors)
}

#[test]
fn an_interrupted_prompt_in_line_leaves_the_turn_before_it_alone() {
    let world = serving();
    world.write_cassette(&[WAIT, DONE]);
    let session = ["--session", "cli:a:both"];
    let first = started(&world, &[&["prompt", "a", "one"][..], &session].concat());
    wait_until("the first has begun", || has_started(&world));
    let second = started(&world, &[&["prompt", "a", "two", "--json"][..], &session].concat());
    wait_until("the second waits", || world.get("/api/health").json()["waiting"] == 1);
    crate::support::signal(second.id(), "TERM");
    let (code, text) = ended(second);
    let told: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &told["category"]), (143, &json!("aborted")), "{told}");
    let_go(&world);
    assert_eq!(ended(first), (0, "All done.\n".to_owned()));
}

#[test]
fn an_interrupted_prompt_does_not_wait_for_a_gateway_that_is_stuck() {
    let world = world();
    let mut gateway = world.gateway_child();
    world.write_cassette(&[WAIT, WAIT]);
    let patient = started(&world, &["prompt", "a", "one", "--json"]);
    wait_until("the first tool runs", || has_started(&world));
    fs::remove_file(world.workspace("a").join("started")).expect("removed");
    let hasty = RefCell::new(started(&world, &["prompt", "a", "two", "--json"]));
    wait_until("the second tool runs", || has_started(&world));
    let stuck = Stuck::new(gateway.id());
    // The first signal waits for the gateway's last word, within bounds.
    crate::support::signal(patient.id(), "TERM");
    // Another one does not.
    wait_until("signals end it", || {
        let mut hasty = hasty.borrow_mut();
        crate::support::signal(hasty.id(), "TERM");
        hasty.try_wait().expect("it can be asked").is_some()
    });
    let end = hasty.into_inner().wait().expect("it has ended");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&end), Some(15));
    let (code, text) = ended(patient);
    let told: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &told["category"]), (143, &json!("aborted")), "{told}");
    drop(stuck);
    crate::support::signal(gateway.id(), "TERM");
    assert!(gateway.wait().expect("it ends").success());
}

/// A stopped process, which goes on when this goes out of scope.
struct Stuck(u32);

impl Stuck {
    fn new(pid: u32) -> Self {
        crate::support::signal(pid, "STOP");
        Self(pid)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        crate::support::signal(self.0, "CONT");
    }
}

#[test]
fn a_second_prompt_without_a_gateway_waits_for_the_first() {
    let world = world();
    world.write_cassette(&[WAIT, DONE]);
    let first = started(&world, &["prompt", "a", "one"]);
    wait_until("the first has begun", || has_started(&world));
    let mut second = started(&world, &["prompt", "a", "two"]);
    // It may have had no time yet, but it must not end before the first.
    assert!(second.try_wait().expect("it can be asked").is_none());
    // `beige exec` takes no home lock: it does not wait.
    assert_eq!(world.exec(&["echo", "hi"]).expect(0).text(), "hi\n");
    assert!(second.try_wait().expect("it can be asked").is_none());
    let_go(&world);
    assert_eq!(ended(first), (0, "All done.\n".to_owned()));
    assert_eq!(ended(second), (0, "All done.\n".to_owned()));
    world.verify_audit();
}

fn started(world: &World, arguments: &[&str]) -> Child {
    world.beige(arguments).stdout(Stdio::piped()).spawn().expect("beige runs")
}

/// Exit code (128+n after signal n) and standard output.
fn ended(mut child: Child) -> (i32, String) {
    use std::os::unix::process::ExitStatusExt;
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("read");
    let status = child.wait().expect("it ends");
    (status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)), text)
}

#[test]
fn no_answer_shows_a_secret() {
    const SECRET: &str = "tr0ub4dor&3-horse";
    let world = world();
    fs::write(world.root.join("secret"), SECRET).expect("a file");
    let instructions =
        format!("instructions: 'the key is ${{file:{}/secret}}',", world.root.display());
    world.write_config(&world.agent("a", "", &instructions), "");
    world.write_cassette(&[
        r#"{"events":[{"text":"it is tr0ub4"},{"text":"dor&3-horse, tr0"},{"toolCall":{"name":"exec","arguments":{"command":"echo 'tr0ub4dor&3-horse'"}}}]}"#,
        r#"{"events":[{"text":"tr0ub4dor&3-horse!"}]}"#,
    ]);
    world.start_gateway();
    let told = events(&world, &json!({"message": "go"}));
    let text: String =
        told[..told.len() - 1].iter().filter_map(|it| it["delta"].as_str()).collect();
    assert!(!json!(told).to_string().contains("tr0ub4"), "{told:#?}");
    assert!(text.contains("it is ••••, tr0") && text.ends_with("••••!"), "{text}");
    let reply = prompt(&world, json!({"message": "go", "sessionKey": "api:2"}));
    assert_eq!(reply.json(), json!({"response": "••••!"}));
    let done = world.run(["prompt", "a", "go"]).expect(0);
    assert_eq!(done.text(), "••••!\n");
    world.run(["gateway", "stop"]).expect(0);
    assert_eq!(world.run(["prompt", "a", "go"]).expect(0).text(), "••••!\n");
    assert!(!world.gateway_log().contains("tr0ub4"));
}

/// Of each secret that is said around something else the whole is known only
/// when its end comes; joined or apart, nobody finds it.
#[test]
fn a_secret_around_other_pieces_of_an_answer_is_shown_and_stored_nowhere() {
    const SECRET: &str = "tr0ub4dor&3-horse";
    let world = world();
    fs::write(world.root.join("secret"), SECRET).expect("a file");
    let instructions =
        format!("instructions: 'the key is ${{file:{}/secret}}',", world.root.display());
    world.write_config(&world.agent("a", "", &instructions), "");
    world.write_cassette(&[
        r#"{"events":[{"text":"it is tr0ub4"},{"thinking":"hm tr0u"},{"text":"dor&3-"},{"toolCall":{"name":"exec","arguments":{"command":"true"}}},{"text":"horse, tr0"},{"thinking":"b4dor&3-horse"}]}"#,
        r#"{"events":[{"text":"ub4dor&3-horse. tr0ub4"},{"redacted":"x"},{"text":"dor&3-horse!"}]}"#,
    ]);
    world.start_gateway();
    let told = events(&world, &json!({"message": "go", "sessionKey": "api:1"}));
    let said = |kind: &str| -> String {
        let pieces = told.iter().filter(|it| it["type"] == kind);
        pieces.filter_map(|it| it["delta"].as_str()).collect()
    };
    assert_eq!(said("text_delta"), "it is ••••, tr0••••. ••••!");
    assert_eq!(said("thinking_delta"), "hm ••••");
    let kinds: Vec<&str> = told.iter().filter_map(|it| it["type"].as_str()).collect();
    let tool = kinds.iter().position(|it| *it == "tool_start").expect("a tool");
    let end = kinds[..tool].iter().rposition(|it| *it == "text_delta").expect("text");
    assert_eq!(told[end]["delta"], "tr0", "what is held is told before the tool runs: {kinds:?}");
    assert_eq!(told.last().expect("an end")["response"], "••••. ••••!");
    let stored = session(&world, "api:1");
    let answers = stored.iter().filter(|it| it["message"]["role"] == "assistant");
    let texts = answers.map(|it| {
        let blocks = it["message"]["content"].as_array().expect("blocks");
        blocks.iter().filter_map(|it| it["text"].as_str()).collect::<String>()
    });
    let want = ["it is ••••, tr0", "••••. ••••!"];
    assert_eq!(texts.collect::<Vec<_>>(), want);
    // What another program has written is told without it, too.
    let [header, .., end] = &stored[..] else { panic!("{stored:#?}") };
    let content = json!([{"type": "text", "text": "tr0ub4"}, {"type": "thinking", "thinking": "x"},
        {"type": "text", "text": "dor&3-horse"}]);
    let entry = json!({"type": "message", "id": "0badcafe", "parentId": end["id"],
        "timestamp": header["timestamp"], "message": {"role": "assistant", "content": content}});
    let list = world.get("/api/agents/a/sessions/api%3A1").json();
    let file = list["session"]["sessionFile"].as_str().expect("a file").to_owned();
    let text = fs::read_to_string(&file).expect("a session file");
    fs::write(&file, format!("{text}{entry}\n")).expect("written");
    let history = world.get("/api/agents/a/sessions/api%3A1").json();
    let last = history["messages"].as_array().and_then(|it| it.last()).expect("a message");
    let texts = ["0", "2"].map(|it| last["message"].pointer(&format!("/content/{it}/text")));
    assert_eq!(texts, [Some(&json!("")), Some(&json!("••••"))]);
}
