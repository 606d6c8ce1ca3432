//! Tests of `sessions` against a gateway that is played here.

use super::*;
use crate::builtin::tests::Gateway;
use crate::plugin::tests::Scratch;

/// Sessions of agent `a`, and one that is another's.
struct World {
    scratch: Scratch,
    gateway: Gateway,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let said = |id: &str, parent: &str, message: Value| {
            let parent = Some(parent).filter(|it| !it.is_empty());
            let at = format!("2026-12-01T00:0{}:00.000Z", id.len());
            json!({"type": "message", "id": id, "parentId": parent, "timestamp": at,
                "message": message})
        };
        let header = json!({"type": "session", "version": 3});
        let user = |text: &str| json!({"role": "user", "content": text});
        let call = json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "a secret needle"},
            {"type": "text", "text": "I look."},
            {"type": "toolCall", "id": "1", "name": "exec", "arguments": {"command": "ls"}}]});
        let result = json!({"role": "toolResult", "toolName": "exec", "toolCallId": "1",
            "content": [{"type": "text", "text": "one\nthe Needle is here\n"}]});
        let new = [
            header.clone(),
            said("i", "", user("find it")),
            said("ii", "i", call),
            said("iii", "ii", result),
        ];
        let old = [header, said("i", "", user("an old needle"))];
        for (name, entries) in [("new", &new[..]), ("old", &old[..])] {
            let lines: String = entries.iter().map(|it| format!("{it}\n")).collect();
            scratch.write(&format!("{name}.jsonl"), &lines);
        }
        Self { scratch, gateway: Gateway::start("sessions", Box::new(Sessions)) }
    }

    fn run(&mut self, args: &[&str]) -> Answer {
        let file = |name: &str| self.scratch.path().join(format!("{name}.jsonl"));
        let session = |name: &str, agent: &str| {
            json!({"sessionId": name, "sessionFile": file(name), "agentName": agent,
                "createdAt": "2026-12-01T00:00:00.000Z", "firstMessage": format!("{name}\nsaid")})
        };
        // A gateway that told too much would still show nothing of another's.
        let sessions = [session("new", "a"), session("other", "b"), session("old", "a")];
        let keys = json!([{"key": "api:a:x", "sessionFile": file("new")}]);
        self.gateway.call(1, args);
        if let ["get", key, ..] = args {
            let (agent, name) = match *key {
                "api:a:x" => ("a", "new"),
                "api:b:x" => ("b", "other"),
                _ => ("", ""),
            };
            let entry = json!({"agentName": agent, "sessionFile": file(name)});
            let entry = if agent.is_empty() { Value::Null } else { entry };
            self.gateway.answer("beige/session/get", json!({"entry": entry}));
            if agent == "a" {
                return self.gateway.answered();
            }
        }
        let asked = self.gateway.answer("beige/session/list", json!({"sessions": sessions}));
        assert_eq!(asked, json!({"agentName": "a", "includeToolSessions": true}));
        self.gateway.answer("beige/session/listKeys", json!({"keys": keys}));
        self.gateway.answered()
    }

    #[track_caller]
    fn check(&mut self, args: &[&str], want: &str) {
        assert_eq!(self.run(args), Answer::done(want));
    }
}

#[test]
fn own_sessions_are_listed_by_what_names_them() {
    let mut world = World::new();
    world.check(
        &["list"],
        "2026-12-01 00:00  api:a:x (this one)  new said\n2026-12-01 00:00  old  old said\n",
    );
    world.check(
        &["list", "-n1"],
        "2026-12-01 00:00  api:a:x (this one)  new said\n\
         [there is more: 1 older session; -n N lists more]\n",
    );
    let listed: Value =
        serde_json::from_str(&world.run(&["list", "--json"]).output).unwrap_or_default();
    assert_eq!(listed["sessions"][1]["key"], "old");
}

#[test]
fn the_end_of_one_is_shown() {
    let mut world = World::new();
    let whole = "2026-12-01 00:01  user: find it\n\
                 2026-12-01 00:02  assistant: I look.\n-> exec {\"command\":\"ls\"}\n\
                 2026-12-01 00:03  exec result: one\nthe Needle is here\n";
    world.check(&["get", "api:a:x"], whole);
    world.check(&["get", "new"], whole);
    world.check(
        &["get", "api:a:x", "-n", "1"],
        "2026-12-01 00:03  exec result: one\nthe Needle is here\n\
         [there is more: older messages; -n N shows more]\n",
    );
    let told: Value =
        serde_json::from_str(&world.run(&["get", "old", "--json"]).output).unwrap_or_default();
    let message = json!({"id": "i", "timestamp": "2026-12-01T00:01:00.000Z", "who": "user",
        "text": "an old needle"});
    assert_eq!(told, json!({"messages": [message], "more": null}));
}

#[test]
fn another_agents_session_is_not_there() {
    let mut world = World::new();
    let none =
        |key: &str| Answer::failed(format!("you have no session `{key}`; `it list` names them"));
    for key in ["other", "../other", "api:b:x"] {
        assert_eq!(world.run(&["get", key]), none(key));
    }
}

#[test]
fn a_search_goes_through_all_from_the_newest() {
    let mut world = World::new();
    world.check(
        &["grep", "needle"],
        "2026-12-01 00:03  api:a:x  exec result: the Needle is here\n\
         2026-12-01 00:01  old  user: an old needle\n",
    );
    let more = "[there is more: older matches; -n N shows more]\n";
    world.check(
        &["grep", "needle", "-n", "1"],
        &format!("2026-12-01 00:03  api:a:x  exec result: the Needle is here\n{more}"),
    );
    assert_eq!(world.run(&["grep", "secret"]).exit_code, 1);
}

#[test]
fn a_call_that_makes_no_sense_asks_for_nothing() {
    let mut gateway = Gateway::start("sessions", Box::new(Sessions));
    for args in [&["lst"][..], &["get"], &["list", "-n", "0"], &["list", "--all"]] {
        gateway.call(1, args);
        let answer = gateway.answered();
        assert!(answer.exit_code == 2 && answer.output.contains("it --help"), "{answer:?}");
    }
    gateway.call(1, &["--help"]);
    assert!(gateway.answered().output.starts_with("Usage: it list"));
}

#[test]
fn a_long_history_is_told_from_its_end_within_bounds() {
    let mut world = World::new();
    let mut lines = format!("{}\n", json!({"type": "session", "version": 3}));
    for id in 0..3000 {
        let message = json!({"role": "user", "content": "x".repeat(3000)});
        let parent = (id > 0).then(|| format!("{:x}", id - 1));
        let entry = json!({"type": "message", "id": format!("{id:x}"), "parentId": parent,
            "timestamp": format!("2026-12-01T00:{:02}:00.000Z", id / 60), "message": message});
        lines.push_str(&format!("{entry}\n"));
    }
    world.scratch.write("old.jsonl", &lines);
    let answer = world.run(&["get", "old", "-n", "10000"]);
    assert!(answer.output.len() < MOST_BYTES + 100, "{}", answer.output.len());
    assert!(answer.output.ends_with("[there is more: more than 1048576 bytes]\n"));
    let last = answer.output.lines().rev().nth(1).unwrap_or_default();
    assert!(last.starts_with("2026-12-01 00:49  user: xxx"), "{}", &last[..40]);
}
