//! Session files as other programs, other models and accidents leave them:
//! what a model is sent of them is always a sound conversation.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Dialect, ModelServer, Said, World, provider_in, says, some_world};

/// Conversations in each protocol.
const ROUNDS: u64 = 60;

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
/// in any order, and a second question after what was mended: the server
/// refuses whatever its protocol does not allow.
#[test]
fn whatever_a_session_holds_what_is_sent_of_it_is_sound() {
    for dialect in Dialect::ALL {
        let server = ModelServer::answering(move |_| dialect.answer(&Said::text("fine")));
        let world = some_world();
        let facts = "models: { m: { reasoning: true, input: ['text', 'image'] } },";
        let provider = provider_in(dialect, server.port(), facts);
        world.write_config_of(&provider, &world.agent("a", "", ""), "");
        world.start_gateway();
        for round in 0..ROUNDS {
            let mut chance = Chance(round);
            let key = format!("api:{round}");
            assert_eq!(world.answer(&key, "hi"), "fine");
            let turns = 1 + chance.below(6);
            let entries: Vec<Value> = (0..turns).flat_map(|_| turn(&mut chance, dialect)).collect();
            let shown = entries.iter().map(|it| format!("{it}\n")).collect::<String>();
            world.append(&key, entries);
            for _ in 0..2 {
                assert_eq!(world.answer(&key, "go on"), "fine", "{dialect:?} {round}\n{shown}");
                // Where roles must alternate it is the end of a longer message.
                let said = server.last().said();
                let last = said.last().expect("a message");
                let is_question = last.starts_with("user: ") && last.ends_with("go on");
                assert!(is_question, "{dialect:?} {round}");
            }
            let found = server.take_violations();
            assert!(found.is_empty(), "{dialect:?} {round}: {}\n{shown}", found.join("\n"));
        }
    }
}

/// Numbers that look like chance and are the same each time.
struct Chance(u64);

impl Chance {
    /// A number below that.
    fn below(&mut self, most: u64) -> u64 {
        // Knuth's multiplier; the high bits are the better ones.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn is(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let number = usize::try_from(self.below(choices.len() as u64)).expect("small");
        &choices[number]
    }
}

/// Who may have said something: the model that is asked, and others.
const SPEAKERS: [(&str, &str, &str); 5] = [
    ("p", "m", ""),
    ("p", "another", ""),
    ("anthropic", "claude", "anthropic-messages"),
    ("openai", "gpt", "openai-responses"),
    ("google", "gemini", "google-generative-ai"),
];

const IDS: [&str; 6] = ["c1", "toolu_01", "call.1/odd id", "fc_1|call_9", "", "日本"];

const TEXTS: [&str; 6] = ["fine", "", " ", "two\nlines", "日本 \u{1f980}", "</think> {\"a\":1}"];

/// A run of messages that a turn might leave, or half of one.
fn turn(chance: &mut Chance, dialect: Dialect) -> Vec<Value> {
    let mut entries = Vec::new();
    if !chance.is(6) {
        entries.push(message(json!({"role": "user", "content": words(chance)})));
    }
    for _ in 0..chance.below(3) {
        let calls: Vec<&str> = (0..chance.below(4)).map(|_| *chance.of(&IDS)).collect();
        entries.push(any_answer(chance, dialect, &calls));
        for id in &calls {
            if !chance.is(5) {
                entries.push(any_result(chance, id));
            }
        }
        if chance.is(8) {
            entries.push(any_result(chance, "of nobody"));
        }
    }
    if chance.is(5) {
        entries.push(other(chance));
    }
    if chance.is(4) && entries.len() > 1 {
        // What came late, or before what it answers.
        let places = [(); 2].map(|()| chance.below(entries.len() as u64) as usize);
        entries.swap(places[0], places[1]);
    }
    entries
}

fn words(chance: &mut Chance) -> Value {
    let text = *chance.of(&TEXTS);
    match chance.below(4) {
        0 => json!([{"type": "text", "text": text}, image()]),
        1 => json!([]),
        2 => json!([{"type": "text", "text": text}, {"type": "text", "text": "more"}]),
        _ => json!(text),
    }
}

fn image() -> Value {
    json!({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"})
}

fn any_answer(chance: &mut Chance, dialect: Dialect, calls: &[&str]) -> Value {
    let (provider, model, api) = *chance.of(&SPEAKERS);
    let api = if api.is_empty() { dialect.api() } else { api };
    let mut content = Vec::new();
    if chance.is(2) {
        let mut thought = json!({"type": "thinking", "thinking": *chance.of(&TEXTS)});
        if chance.is(2) {
            thought["thinkingSignature"] = json!("b3BhcXVl");
        }
        if chance.is(5) {
            thought["redacted"] = json!(true);
        }
        content.push(thought);
    }
    if chance.is(2) {
        content.push(json!({"type": "text", "text": *chance.of(&TEXTS)}));
    }
    for id in calls {
        let arguments = match chance.below(3) {
            0 => json!({}),
            1 => json!({"command": "echo \"x\"", "deep": {"a": [1, null]}}),
            _ => Value::Null,
        };
        let name = chance.of(&["exec", "read", "no such.tool", ""]);
        content.push(json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments}));
    }
    let stop = chance.of(&["stop", "toolUse", "aborted", "error", "length"]);
    message(json!({"role": "assistant", "content": content, "api": api, "provider": provider,
        "model": model, "stopReason": stop, "beige": {"endpoint": "https://elsewhere"}}))
}

fn any_result(chance: &mut Chance, id: &str) -> Value {
    message(json!({"role": "toolResult", "toolCallId": id, "toolName": "exec",
        "content": words(chance), "isError": chance.is(2)}))
}

/// What stands in a session beside a turn.
fn other(chance: &mut Chance) -> Value {
    // Of an entry before, or of none at all.
    let kept = format!("{:08x}", chance.below(16));
    match chance.below(7) {
        0 | 1 => json!({"type": "compaction", "summary": "It was long.",
            "firstKeptEntryId": kept, "tokensBefore": 9}),
        2 => message(json!({"role": "bashExecution", "command": "ls", "output": "a\n",
            "exitCode": 0, "cancelled": false, "truncated": false})),
        3 => json!({"type": "custom_message", "customType": "x", "content": "note"}),
        4 => message(
            json!({"role": "custom", "customType": "x", "content": "told", "display": true}),
        ),
        5 => json!({"type": "model_change", "provider": "x", "modelId": "y"}),
        _ => message(json!({"role": "of a later version", "content": [{"type": "odd"}]})),
    }
}
