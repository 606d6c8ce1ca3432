//! `beige audit`: what a call leaves, filters, following, rotation, proof, and
//! that nothing runs that cannot be written.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{World, on_either_kind, read_until, signal, some_world, wait_until};

#[test]
fn a_call_is_two_lines_and_a_refused_one_is_one() {
    on_either_kind(|world| {
        world.sh("exit 3").expect(3);
        world.start_gateway();
        world.tool("write", json!({"path": "f", "content": "12345"}));
        let denied = world.sh("BEIGE_TOOL=1 tool-client nope 1 || true");
        drop(denied);
        let lines = lines_of(world, "");
        let first = &lines[0];
        let order = keys(first);
        let start =
            ["ts", "seq", "id", "phase", "agent", "type", "tool", "args", "decision", "target"];
        assert_eq!(order[..10], start, "{first}");
        assert_eq!(order.last().map(String::as_str), Some("prev"));
        let second = parsed(&lines[1]);
        assert_eq!(keys(&lines[1])[9..13], ["target", "durationMs", "exitCode", "outputBytes"]);
        assert_eq!(parsed(first)["args"], json!(["sh", "-c", "exit 3"]));
        assert_eq!((&second["phase"], &second["exitCode"]), (&json!("finished"), &json!(3)));
        assert_eq!(second["id"], parsed(first)["id"]);
        assert_eq!(parsed(&lines[2])["args"], json!(["f", "(5 bytes)"]));
        world.verify_audit();
    });
}

fn lines_of(world: &World, suffix: &str) -> Vec<String> {
    let text = fs::read_to_string(log_file(world, suffix)).expect("a log");
    text.lines().map(str::to_owned).collect()
}

fn log_file(world: &World, suffix: &str) -> PathBuf {
    world.home().join(format!("logs/audit.jsonl{suffix}"))
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).expect("a record")
}

/// The keys of a record in the order of its text.
fn keys(line: &str) -> Vec<String> {
    let parts = line.split(",\"").map(|it| it.trim_start_matches("{\""));
    let keys = parts.filter_map(|it| it.split_once("\":")).map(|it| it.0.to_owned());
    keys.collect()
}

#[test]
fn an_unlisted_tool_is_one_denied_line() {
    on_either_kind(|world| {
        // The package is there for `a` alone; `b` calls the same tool by hand.
        let agents = world.agent("a", "", "")
            + &world.agent("b", "", "").replace("tools: ['notes']", "tools: []");
        world.write_config(&agents, "");
        world.start_gateway();
        let line = "printf '#!/bin/sh\\n' > /dev/null; command -v notes";
        world.run(["exec", "b", "--", "sh", "-c", line]).expect(127);
        let path = world.home().join("sockets/b/gateway.sock");
        let answer = ask(&path, r#"{"type":"tool_request","tool":"notes","args":["list"]}"#);
        assert_eq!(answer["success"], false, "{answer}");
        let denied = world.run(["audit", "--denied", "--json"]).expect(0).json();
        let denied = denied["records"].as_array().expect("records").clone();
        assert_eq!(denied.len(), 1);
        assert_eq!(
            (&denied[0]["agent"], &denied[0]["phase"], &denied[0]["decision"]),
            (&json!("b"), &json!("finished"), &json!("denied"))
        );
        assert!(world.run(["audit", "--denied"]).expect(0).text().contains("denied"));
    });
}

fn ask(socket: &std::path::Path, line: &str) -> Value {
    use std::io::Write;
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("the agent's socket");
    writeln!(stream, "{line}").expect("sent");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    parsed(&answer)
}

#[test]
fn filters_choose() {
    let world = some_world();
    world.configure(&["a", "b"], "");
    world.sh("notes list").expect(0);
    world.run(["exec", "b", "--", "true"]).expect(0);
    let count = |arguments: &[&str]| {
        let all = ["audit", "--json"].iter().chain(arguments);
        world.run(all).expect(0).json()["records"].as_array().expect("records").len()
    };
    assert_eq!(count(&[]), 6);
    assert_eq!(count(&["--agent", "b"]), 2);
    assert_eq!(count(&["--tool", "notes"]), 2);
    assert_eq!(count(&["--tool", "exec", "--agent", "a"]), 2);
    assert_eq!(count(&["--since", "1h"]), 6);
    assert_eq!(count(&["--since", "2100-01-01T00:00:00Z"]), 0);
    assert_eq!(count(&["--denied"]), 0);
}

#[test]
fn following_shows_what_comes_over_rotation() {
    let world = some_world();
    rotate_at(&world, 3_000);
    world.exec(&["true"]).expect(0);
    let mut follow = world.spawn(["audit", "-f", "--json"]);
    let mut lines = BufReader::new(follow.stdout.take().expect("a pipe"));
    read_until(&mut lines, "\"seq\":2,");
    for number in 0..6 {
        world.exec(&["echo", &format!("call-{number}")]).expect(0);
    }
    assert!(log_file(&world, ".1").exists(), "it was rotated");
    for seq in 3..=14 {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a record");
        assert_eq!(parsed(&line)["seq"], seq);
    }
    signal(follow.id(), "TERM");
    follow.wait().expect("it ends");
}

fn rotate_at(world: &World, bytes: u32) {
    let text = fs::read_to_string(world.config_file()).expect("a configuration");
    let log = format!("port: 0, log: {{ maxSizeBytes: {bytes}, maxFiles: 9 }}");
    fs::write(world.config_file(), text.replace("port: 0", &log)).expect("written");
}

#[test]
fn the_chain_goes_on_over_files() {
    let world = some_world();
    rotate_at(&world, 3_000);
    for _ in 0..6 {
        world.exec(&["true"]).expect(0);
    }
    assert!(log_file(&world, ".1").exists());
    assert!(fs::metadata(log_file(&world, ".1")).expect("a file").len() <= 3_000);
    let report = world.run(["audit", "--verify", "--json"]).expect(0).json();
    assert_eq!((&report["sound"], &report["records"]), (&json!(true), &json!(12)));
    assert_eq!(world.audit().len(), 12);
    // A line that is gone from an older file is missed.
    let lines = lines_of(&world, ".1");
    fs::write(log_file(&world, ".1"), lines[..lines.len() - 1].join("\n") + "\n").expect("written");
    world.run(["audit", "--verify"]).expect(1);
}

/// Fails unless this change of the log's text is found, and says how.
#[track_caller]
fn check_found(world: &World, change: impl Fn(&str) -> String, word: &str) {
    let sound = fs::read_to_string(log_file(world, "")).expect("a log");
    fs::write(log_file(world, ""), change(&sound)).expect("written");
    let told = world.run(["audit", "--verify"]).expect(1).text();
    assert!(told.contains(word), "{told}");
    let report = world.run(["audit", "--verify", "--json"]).expect(1).json();
    assert_eq!(report["sound"], false);
    fs::write(log_file(world, ""), sound).expect("written");
    world.verify_audit();
}

#[test]
fn what_was_changed_or_lost_is_found() {
    let world = some_world();
    for _ in 0..3 {
        world.exec(&["true"]).expect(0);
    }
    world.verify_audit();
    let lines = |text: &str| text.lines().map(|it| format!("{it}\n")).collect::<Vec<_>>();
    check_found(&world, |it| it.replacen("\"true\"", "\"trux\"", 1), "line 1");
    check_found(&world, |it| it.replace("\"exitCode\":0", "\"exitCode\":1"), "changed");
    check_found(&world, |it| lines(it)[1..].concat(), "");
    check_found(&world, |it| [&lines(it)[..2], &lines(it)[3..]].concat().concat(), "line 3");
    check_found(&world, |it| lines(it)[..4].concat(), "");
    check_found(&world, |_| String::new(), "");
}

#[test]
fn a_torn_tail_is_closed_and_said_to_be_torn() {
    let world = some_world();
    world.exec(&["true"]).expect(0);
    let text = fs::read(log_file(&world, "")).expect("a log");
    let torn = br#"{"ts":"2026-11-30T04:16:34.000Z","seq":3,"id":"0123456789abcdef","pha"#;
    let head = world.run(["audit", "head"]).expect(0).text();
    fs::write(log_file(&world, ""), [&text[..], torn].concat()).expect("written");
    let told = world.run(["audit", "--verify"]).expect(0).text();
    assert!(told.contains("2 records, 1 to 2, in 1 file; 1 torn line"), "{told}");
    let again = world.run(["audit", "head"]).expect(0);
    assert_eq!(again.text(), head);
    assert!(again.stderr.contains("torn"), "{}", again.stderr);
    world.exec(&["true"]).expect(0);
    assert_eq!(world.audit().len(), 4);
    let told = world.run(["audit", "--verify"]);
    assert!(told.text().contains("torn") && !told.text().contains("changed"), "{}", told.text());
}

#[test]
fn why_a_command_was_not_started_is_written_and_nothing_where_there_is_no_more() {
    let world = some_world();
    world.exec(&["false"]).expect(1);
    world.exec(&["no-such-program"]).expect(127);
    let records = world.audit();
    let finished: Vec<&Value> = records.iter().filter(|it| it["phase"] == "finished").collect();
    assert_eq!(finished[0].get("error"), None, "{}", finished[0]);
    let why = finished[1]["error"].as_str().unwrap_or_default();
    assert!(why.contains("no-such-program"), "{}", finished[1]);
}

#[test]
fn what_cannot_be_written_does_not_run() {
    on_either_kind(|world| {
        world.sh("true").expect(0);
        let check = || {
            let done = world.sh("touch ran").expect(125);
            assert!(done.stderr.contains("audit"), "{}", done.stderr);
            assert!(!world.workspace("a").join("ran").exists());
        };
        unwritable(world, true);
        check();
        unwritable(world, false);
        world.start_gateway();
        unwritable(world, true);
        check();
        let body = json!({"tool": "write", "params": {"path": "ran", "content": ""}});
        let refused = world.post("/api/agents/a/exec", &body);
        assert!(refused.status >= 500, "{} {}", refused.status, refused.text());
        assert!(!world.workspace("a").join("ran").exists());
        unwritable(world, false);
        world.sh("true").expect(0);
        world.verify_audit();
    });
}

/// A folder in the log's place: root may write everywhere else.
fn unwritable(world: &World, yes: bool) {
    let (file, aside) = (log_file(world, ""), world.home().join("aside"));
    if yes {
        fs::rename(&file, &aside).and_then(|()| fs::create_dir(&file)).expect("in its place");
    } else {
        fs::remove_dir(&file).and_then(|()| fs::rename(&aside, &file)).expect("back");
    }
}

#[test]
fn large_arguments_leave_small_records() {
    on_either_kind(|world| {
        let large = "x".repeat(120_000);
        let done = world.exec(&["printf", "%s", &large]).expect(0);
        assert_eq!(done.stdout.len(), 120_000);
        world.start_gateway();
        world.exec(&["printf", "%s", &large]).expect(0);
        let content = "y".repeat(30_000_000);
        let (text, is_error) = world.tool("write", json!({"path": "f", "content": content}));
        assert!(!is_error, "{text}");
        let records = world.audit();
        assert_eq!(records[4]["args"], json!(["f", "(30000000 bytes)"]));
        let kept = records[0]["args"][2].as_str().expect("an argument");
        assert!(kept.len() < 9_000 && kept.contains("120000 bytes, sha256"), "{}", kept.len());
        let size = fs::metadata(log_file(world, "")).expect("a log").len();
        assert!(size < 60_000, "{size}");
        assert!(world.gateway_log().len() < 20_000);
        world.verify_audit();
    });
}

#[test]
fn the_head_is_noted() {
    let world = some_world();
    world.exec(&["true"]).expect(0);
    let head = fs::read_to_string(world.home().join("logs/audit.head")).expect("a head");
    assert!(head.starts_with("2:"), "{head}");
    world.start_gateway();
    world.tool("exec", json!({"command": "true"}));
    world.run(["gateway", "stop"]).expect(0);
    let head = fs::read_to_string(world.home().join("logs/audit.head")).expect("a head");
    assert!(head.starts_with("4:"), "{head}");
}

#[test]
fn a_follower_of_a_log_that_is_not_there_yet_waits_for_it() {
    let world = some_world();
    let mut follow = world.spawn(["audit", "-f"]);
    let mut lines = BufReader::new(follow.stdout.take().expect("a pipe"));
    world.exec(&["echo", "first"]).expect(0);
    read_until(&mut lines, "echo first");
    signal(follow.id(), "TERM");
    follow.wait().expect("it ends");
    wait_until("it has ended", || !crate::support::is_alive(follow.id()));
}

#[test]
fn a_head_kept_elsewhere_proves_that_nothing_up_to_it_was_rewritten() {
    let world = some_world();
    let told = world.run(["audit", "head"]).expect(1).stderr;
    assert!(told.contains("no record yet"), "{told}");
    world.exec(&["true"]).expect(0);
    let head = world.run(["audit", "head"]).expect(0).text();
    let document = world.run(["audit", "head", "--json"]).expect(0).json();
    assert_eq!(head, format!("{}:{}\n", document["seq"], document["hash"].as_str().unwrap()));
    assert_eq!(document["seq"], 2);
    world.exec(&["false"]).expect(1);
    let head = head.trim();
    let against = |head: &str, code: i32| {
        let report = world.run(["audit", "--verify", "--head", head, "--json"]).expect(code).json();
        assert_eq!(report["head"]["holds"], code == 0, "{report}");
        world.run(["audit", "--verify", "--head", head]).expect(code).text()
    };
    assert!(against(head, 0).contains("Record 2 is the one that the given head names."));
    against(&head.to_uppercase(), 0);
    let other = format!("2:{}", "0".repeat(64));
    let told = against(&other, 1);
    assert!(told.contains("head lost: the given head does not fit record 2"), "{told}");
    assert!(!told.contains("changed") && !told.contains("NOT sound"), "{told}");
    let told = against(&format!("9{head}"), 1);
    assert!(told.contains("head lost: record 92") && !told.contains("cut:"), "{told}");

    // Written anew from the first line on, the log is sound in itself: only
    // the head that was kept tells.
    fs::remove_dir_all(world.home().join("logs")).expect("removed");
    world.exec(&["echo", "another history"]).expect(0);
    world.exec(&["true"]).expect(0);
    world.run(["audit", "--verify"]).expect(0);
    assert!(against(head, 1).contains("head lost: the given head does not fit record 2"));
}
