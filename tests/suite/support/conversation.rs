//! What stands in a session's file, held against its format, and prompts that
//! lead there.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Reply, Stream, World};

impl World {
    /// A prompt to `a` in that session.
    #[track_caller]
    pub(crate) fn prompt(&self, key: &str, message: &str) -> Reply {
        let body = json!({"message": message, "sessionKey": key});
        self.post("/api/agents/a/prompt", &body)
    }

    /// The same, which must be answered; the answer.
    #[track_caller]
    pub(crate) fn answer(&self, key: &str, message: &str) -> String {
        let reply = self.prompt(key, message);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["response"].as_str().expect("a response").to_owned()
    }

    /// The same, streamed, event by event.
    #[track_caller]
    pub(crate) fn stream(&self, key: &str, message: &str) -> Stream {
        Stream::open(self, "a", &json!({"message": message, "sessionKey": key}))
    }

    /// The same, streamed, all of it.
    #[track_caller]
    pub(crate) fn events(&self, key: &str, message: &str) -> Vec<Value> {
        self.stream(key, message).rest()
    }

    /// Path of a session's file.
    #[track_caller]
    pub(crate) fn session_file(&self, key: &str) -> PathBuf {
        let map = fs::read_to_string(self.home().join("sessions/session-map.json"));
        let map: Value = serde_json::from_str(&map.expect("a map")).expect("JSON");
        let file = map[key]["sessionFile"].as_str();
        file.unwrap_or_else(|| panic!("no {key} in {map}")).into()
    }

    /// The entries of a session, checked to be pi's format.
    #[track_caller]
    pub(crate) fn session(&self, key: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.session_file(key)).expect("a session file");
        assert!(text.ends_with('\n'), "a torn last line: {text}");
        let lines: Vec<Value> =
            text.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect();
        let head = json!([lines[0]["type"], lines[0]["version"], lines[0]["cwd"]]);
        assert_eq!(head, json!(["session", 3, "/workspace"]));
        let mut parent = Value::Null;
        for entry in &lines[1..] {
            assert_eq!(entry["parentId"], parent, "{entry}");
            parent = entry["id"].clone();
        }
        lines[1..].to_vec()
    }

    /// Appends entries to a session's file, each hung on the one before.
    pub(crate) fn append(&self, key: &str, entries: Vec<Value>) {
        let mut parent = self.session(key).last().expect("an entry")["id"].clone();
        let path = self.session_file(key);
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

    /// The messages of a session.
    #[track_caller]
    pub(crate) fn stored(&self, key: &str) -> Vec<Value> {
        let entries = self.session(key).into_iter().filter(|it| it["type"] == "message");
        entries.map(|it| it["message"].clone()).collect()
    }

    /// The messages of a session in short: role, text, and whether it failed.
    #[track_caller]
    pub(crate) fn messages(&self, key: &str) -> Vec<String> {
        self.stored(key).iter().map(short).collect()
    }
}

fn short(message: &Value) -> String {
    let error = if message["isError"] == true { " error" } else { "" };
    let role = message["role"].as_str().unwrap_or("?");
    format!("{role}{error}: {}", text_of(&message["content"]))
}

fn text_of(content: &Value) -> String {
    let Value::Array(blocks) = content else {
        return content.as_str().map_or_else(|| content.to_string(), str::to_owned);
    };
    let block = |it: &Value| match it["type"].as_str() {
        Some("text") => it["text"].as_str().unwrap_or_default().to_owned(),
        Some("thinking") => format!("({})", it["thinking"].as_str().unwrap_or_default()),
        Some("toolCall") => format!("<{} {}>", it["name"].as_str().unwrap_or("?"), it["arguments"]),
        _ => "?".to_owned(),
    };
    blocks.iter().map(block).collect::<Vec<_>>().join("|")
}
