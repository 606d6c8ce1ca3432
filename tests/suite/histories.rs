//! Session files as other programs, other models and accidents leave them:
//! what a model is sent of them is always a sound conversation.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Dialect, ModelServer, Said, World, provider_in, says, some_world};

/// A world with a gateway and a session `api:1` of one question and answer.
fn begun(server: &ModelServer) -> World {
    let world = some_world();
    world.model(server, "");
    world.start_gateway();
    server.play([says("hello")]);
    assert_eq!(world.answer("api:1", "hi"), "hello");
    world
}

fn message(message: Value) -> Value {
    json!({"type": "message", "message": message})
}

fn user(text: &str) -> Value {
    message(json!({"role": "user", "content": text}))
}

fn answer(content: Value) -> Value {
    message(json!({"role": "assistant", "content": content, "api": "anthropic-messages",
        "provider": "anthropic", "model": "claude", "stopReason": "toolUse"}))
}

fn call(id: &str) -> Value {
    json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {"command": "echo"},
        "thoughtSignature": "signed"})
}

fn result(id: &str, text: &str) -> Value {
    message(json!({"role": "toolResult", "toolCallId": id, "toolName": "exec",
        "content": [{"type": "text", "text": text}], "isError": false}))
}

/// Prompts `api:1` and gives what the model was sent, without the system
/// prompt and the last message.
#[track_caller]
fn sent(world: &World, server: &ModelServer) -> Vec<String> {
    server.play([says("fine")]);
    assert_eq!(world.answer("api:1", "more"), "fine");
    server.check();
    let mut said = server.last().said();
    assert_eq!(said.pop().as_deref(), Some("user: more"));
    said.split_off(1)
}

#[test]
fn what_is_kept_of_a_compacted_history_begins_with_no_result() {
    let server = ModelServer::new();
    let world = begun(&server);
    world.append(
        "api:1",
        vec![
            user("question"),
            answer(json!([call("c1"), call("c2")])),
            result("c1", "one"),
            result("c2", "two"),
            user("another"),
            // What is kept begins with the first result.
            json!({"type": "compaction", "summary": "S", "firstKeptEntryId": "00000002",
                "tokensBefore": 9}),
        ],
    );
    let said = sent(&world, &server);
    assert!(said[0].starts_with("user: ") && said[0].contains("<summary>\nS\n"), "{said:#?}");
    assert_eq!(said[1..], ["user: another"]);
}

#[test]
fn a_history_of_another_model_can_be_played_on() {
    let server = ModelServer::new();
    let world = begun(&server);
    let long = "toolu_".to_owned() + &"x".repeat(90);
    world.append(
        "api:1",
        vec![
            message(json!({"role": "user", "content": [{"type": "text", "text": "look"},
                {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]})),
            answer(json!([
                {"type": "thinking", "thinking": "secret thoughts", "thinkingSignature": "sig"},
                {"type": "thinking", "thinking": "", "redacted": true, "thinkingSignature": "x"},
                {"type": "text", "text": "Well.", "textSignature": "sig"},
                call("a|b/ü {}"),
                call(&long),
                call(""),
            ])),
            result("a|b/ü {}", "one"),
            result(&long, ""),
            result("", "three"),
            message(json!({"role": "bashExecution", "command": "ls", "output": "file"})),
            json!({"type": "custom_message", "customType": "x", "content": "note"}),
            json!({"type": "label", "label": "x", "targetId": "00000001"}),
            message(json!({"role": "oracle", "content": "?"})),
            answer(json!([])),
            answer(json!([{"type": "text", "text": "  "}])),
            answer(json!([{"type": "thinking", "thinking": "only thoughts"}])),
        ],
    );
    let said = sent(&world, &server).join("\n");
    for part in ["user: look", "Well.<exec ", "tool: one", "tool: three", "file", "user: note"] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    for part in ["thoughts", "sig", "oracle"] {
        assert!(!said.contains(part), "{part:?} in {said}");
    }
}

#[test]
fn whatever_lacks_its_other_half_is_mended() {
    let server = ModelServer::new();
    let world = begun(&server);
    world.append(
        "api:1",
        vec![
            result("c0", "of no call"),
            user("one"),
            answer(json!([call("c1"), call("c2"), call("c3")])),
            result("c2", "two"),
            result("c2", "two again"),
            user("two"),
            result("c1", "late"),
            answer(json!([call("c1")])),
            result("c1", "the same id"),
            result("c9", "of no call"),
            answer(json!([call("d1"), call("d1")])),
            result("d1", "first"),
            result("d1", "second"),
            answer(json!([call("e1")])),
        ],
    );
    let said = sent(&world, &server);
    let results = said.iter().filter(|it| it.starts_with("tool: ")).count();
    assert_eq!(results, 3 + 1 + 2 + 1, "{said:#?}");
    assert!(said.iter().any(|it| it == "tool: late"), "{said:#?}");
    assert!(!said.iter().any(|it| it.contains("of no call")), "{said:#?}");
    // Once more: what was mended stays sound.
    assert_eq!(sent(&world, &server)[..said.len()], said);
}

#[test]
fn a_torn_line_takes_nothing_along() {
    let server = ModelServer::new();
    let world = begun(&server);
    let path = world.session_file("api:1");
    let mut file = OpenOptions::new().append(true).open(&path).expect("a file");
    file.write_all(b"{\"type\":\"message\",\"id\":\"0000000f\",\"message\":{\"role\":\"assis")
        .expect("written");
    assert_eq!(sent(&world, &server), ["user: hi", "assistant: hello"]);
    let want = ["user: hi", "assistant: hello", "user: more", "assistant: fine"];
    assert_eq!(world.messages("api:1"), want);
    // A line in the middle.
    let text = fs::read_to_string(&path).expect("a file");
    fs::write(&path, text.replacen("\"hello\"", "\"hel\nlo\"", 1)).expect("written");
    let said = sent(&world, &server);
    assert_eq!(said, ["user: hi", "user: more", "assistant: fine"]);
}

#[test]
fn a_session_that_is_held_elsewhere_is_no_fault_of_the_model() {
    let server = ModelServer::new();
    let world = begun(&server);
    let held = File::open(world.session_file("api:1")).expect("a file");
    held.lock().expect("locked");
    let reply = world.prompt("api:1", "more");
    let body = reply.json();
    assert!([409, 500].contains(&reply.status), "{} {body}", reply.status);
    let error = body["error"].as_str().expect("an error");
    assert!(error.contains("api:1") && !error.contains("model"), "{error}");
    for category in ["rate_limit", "unavailable", "refused", "cut"] {
        assert_ne!(body["category"], category, "{body}");
    }
    assert_eq!(server.asked().len(), 1, "a model was asked");
    let metrics = world.get("/metrics").text();
    let failures = metrics.lines().filter(|it| it.starts_with("beige_model_failures_total{"));
    assert_eq!(failures.count(), 0, "{metrics}");
    drop(held);
    server.play([says("fine")]);
    assert_eq!(world.answer("api:1", "more"), "fine");
}

/// Aborts, failures, orphans, images, foreign thoughts, notes and compactions,
/// in any order: the server refuses whatever its protocol does not allow.
#[test]
fn whatever_stands_in_a_session_what_is_sent_is_sound_in_every_protocol() {
    for dialect in Dialect::ALL {
        let server = ModelServer::answering(move |_| dialect.answer(&Said::text("fine")));
        let world = some_world();
        let fields = "models: { m: { input: ['text', 'image'] } },";
        let provider = provider_in(dialect, server.port(), fields);
        world.write_config_of(&provider, &world.agent("a", "", ""), "");
        world.start_gateway();
        for seed in 1..=20 {
            let key = format!("api:{seed}");
            assert_eq!(world.answer(&key, "hi"), "fine");
            world.append(&key, random_entries(seed));
            for _ in 0..2 {
                assert_eq!(world.answer(&key, "more"), "fine", "{dialect:?} {seed}");
            }
            let faults = server.take_violations();
            assert!(faults.is_empty(), "{dialect:?} {seed}: {}", faults.join("\n"));
            assert_eq!(server.last().last_user(), "more");
        }
    }
}

/// Up to thirty entries, the same ones for the same seed.
fn random_entries(seed: u64) -> Vec<Value> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let count = 5 + dice.below(25);
    let mut calls: Vec<String> = Vec::new();
    (0..count).map(|number| random_entry(number, &mut dice, &mut calls)).collect()
}

fn random_entry(number: u64, dice: &mut Dice, calls: &mut Vec<String>) -> Value {
    let stop = ["stop", "error", "aborted", "length"][dice.below(4) as usize];
    match dice.below(12) {
        0 | 1 => user(&format!("question {number}")),
        2 => message(json!({"role": "user", "content": [
            {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]})),
        3 | 4 => {
            let ids = (0..1 + dice.below(3)).map(|it| format!("call_{number}_{it}"));
            let ids: Vec<String> = ids.collect();
            let content: Vec<Value> = ids.iter().map(|it| call(it)).collect();
            calls.extend(ids);
            answer(json!(content))
        }
        5 | 6 if !calls.is_empty() => {
            let id = calls.remove(dice.below(calls.len() as u64) as usize);
            result(&id, "done")
        }
        7 => result("of_no_call", "orphan"),
        8 => {
            let thought =
                json!({"type": "thinking", "thinking": "hmm", "thinkingSignature": "sig"});
            let text =
                json!({"type": "text", "text": if dice.below(3) == 0 { "" } else { "Well." }});
            message(json!({"role": "assistant", "content": [thought, text], "stopReason": stop,
                "api": "anthropic-messages", "provider": "other", "model": "claude"}))
        }
        9 => json!({"type": "custom_message", "customType": "x", "content": "note"}),
        10 if number > 0 => {
            // Of an entry before, or of none at all.
            let kept = format!("{:08x}", dice.below(number + 1));
            json!({"type": "compaction", "summary": "S", "firstKeptEntryId": kept,
                "tokensBefore": 9})
        }
        _ => message(json!({"role": "assistant", "content": [], "stopReason": stop})),
    }
}

/// Numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
