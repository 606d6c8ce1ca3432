//! Conversations as no program should leave them: aborted, failed, with calls
//! without results and results without calls, of every provider, compacted
//! anywhere. Whatever a session's file holds, what is sent of it is sound.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Dialect, ModelServer, Said, World, provider_in, some_world};

/// Conversations in each protocol.
const ROUNDS: u64 = 60;

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
        entries.push(answer(chance, dialect, &calls));
        for id in &calls {
            if !chance.is(5) {
                entries.push(result(chance, id));
            }
        }
        if chance.is(8) {
            entries.push(result(chance, "of nobody"));
        }
    }
    if chance.is(7) {
        entries.push(other(chance));
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

fn answer(chance: &mut Chance, dialect: Dialect, calls: &[&str]) -> Value {
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

fn result(chance: &mut Chance, id: &str) -> Value {
    message(json!({"role": "toolResult", "toolCallId": id, "toolName": "exec",
        "content": words(chance), "isError": chance.is(2)}))
}

/// What stands in a session beside a turn.
fn other(chance: &mut Chance) -> Value {
    match chance.below(5) {
        0 => {
            json!({"type": "compaction", "summary": "It was long.", "firstKeptEntryId": "00000001",
            "tokensBefore": 9})
        }
        1 => message(
            json!({"role": "bashExecution", "command": "ls", "output": "a\n", "exitCode": 0,
            "cancelled": false, "truncated": false}),
        ),
        2 => message(
            json!({"role": "custom", "customType": "x", "content": "told", "display": true}),
        ),
        3 => json!({"type": "model_change", "provider": "x", "modelId": "y"}),
        _ => message(json!({"role": "of a later version", "content": [{"type": "odd"}]})),
    }
}

fn message(message: Value) -> Value {
    json!({"type": "message", "message": message})
}

/// Appends entries to a session's file, each hung on the one before.
fn append(world: &World, key: &str, entries: Vec<Value>) {
    let mut parent = world.session(key).last().expect("an entry")["id"].clone();
    let path = world.session_file(key);
    let mut file = OpenOptions::new().append(true).open(path).expect("a file");
    for (number, mut entry) in entries.into_iter().enumerate() {
        let id = json!(format!("{number:08x}"));
        entry["id"] = id.clone();
        entry["parentId"] = parent;
        entry["timestamp"] = json!("2026-01-01T00:00:00.000Z");
        parent = id;
        writeln!(file, "{entry}").expect("written");
    }
}

#[test]
fn whatever_a_session_holds_what_is_sent_of_it_is_sound() {
    for dialect in Dialect::ALL {
        let server = ModelServer::answering(move |_| dialect.answer(&Said::text("fine")));
        let world = some_world();
        let facts = "models: { m: { reasoning: true, input: ['text', 'image'] } },";
        world.write_config_of(
            &provider_in(dialect, server.port(), facts),
            &world.agent("a", "", ""),
            "",
        );
        world.start_gateway();
        for round in 0..ROUNDS {
            let mut chance = Chance(round);
            let key = format!("api:{round}");
            assert_eq!(world.answer(&key, "hi"), "fine");
            let turns = 1 + chance.below(6);
            let entries: Vec<Value> = (0..turns).flat_map(|_| turn(&mut chance, dialect)).collect();
            let shown = entries.iter().map(|it| format!("{it}\n")).collect::<String>();
            append(&world, &key, entries);
            assert_eq!(world.answer(&key, "go on"), "fine", "{dialect:?} {round}\n{shown}");
            let found = server.take_violations();
            assert!(found.is_empty(), "{dialect:?} {round}: {}\n{shown}", found.join("\n"));
            let said = server.last().said();
            // Where roles must alternate it is the end of a longer message.
            let last = said.last().expect("a message");
            assert!(last.starts_with("user: ") && last.ends_with("go on"), "{dialect:?} {round}");
        }
    }
}
