//! MCP servers by `url`, called from inside a sandbox: a real server that answers
//! in each way that Streamable HTTP has, forgets, lies, dribbles and dies.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{World, on_each_runtime, some_world, wait_until};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/mcp_http_server.py");

/// A server that runs, and what it was asked.
struct Far {
    process: Child,
    port: u16,
    log: PathBuf,
}

impl Far {
    fn start(world: &World, port: u16, words: &[&str]) -> Self {
        let log = world.root.join("seen.jsonl");
        let mut command = Command::new("python3");
        command.arg(SERVER).arg(port.to_string()).arg(&log).args(words).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a server");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        Self { process, port: line.trim().parse().expect("a port"), log }
    }

    /// Requests of that HTTP method, or that JSON-RPC method.
    fn seen(&self, what: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines = text.lines().map(|it| serde_json::from_str::<Value>(it).expect("a line"));
        lines.filter(|it| it["http"] == what || it["method"] == what).collect()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Gives agent `a` the server at that port as the plugin `p`.
fn configure(world: &World, port: u16, key: &str) {
    let agent = world.agent("a", "", "").replace("['notes']", "['p']");
    world.write_config(&agent, "");
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let url = format!("url: 'http://127.0.0.1:{port}/mcp?team=red-team-key'");
    let entry = format!("plugins: {{ p: {{ {url}, headers: {{ Authorization: '{key}' }} }}, ");
    let text = text.replace("plugins: { ", &entry);
    let text = text.replace("port: 0", "port: 0, log: { level: 'debug' }");
    fs::write(world.config_file(), text).expect("written");
}

const KEY: &str = "Bearer far-secret-key";

fn with_server(world: &World, words: &[&str]) -> Far {
    let far = Far::start(world, 0, words);
    configure(world, far.port, KEY);
    world.start_gateway();
    far
}

#[track_caller]
fn prints(world: &World, line: &str, want: &str) {
    assert_eq!(world.sh(line).expect(0).text(), want, "{line}");
}

#[track_caller]
fn fails(world: &World, line: &str, want: &str) {
    let done = world.sh(line).expect(1);
    assert!(done.stderr.contains(want), "{line}: {}", done.stderr);
}

/// No secret of the server's is anywhere.
#[track_caller]
fn has_no_secret(world: &World) {
    let audit = serde_json::to_string(&world.audit()).expect("a text");
    for secret in ["far-secret-key", "red-team-key", "session-"] {
        assert!(!world.gateway_log().contains(secret), "{}", world.gateway_log());
        assert!(!audit.contains(secret), "{audit}");
    }
}

#[test]
fn the_tools_of_a_server_elsewhere_are_commands() {
    on_each_runtime(|world| {
        let far = with_server(world, &[]);
        prints(world, "p echo --message 'two words'", "two words\n");
        prints(world, "p stream --message told", "told\n");
        prints(world, "p said", "['`beige/prompt` is not given to a server by `url`', '{}']\n");
        prints(world, "p dribble --message drops", "drops\n");
        prints(world, "p half", "both halves\n");
        prints(world, "p batch --message one", "one\n");
        assert!(world.sh("p --help").expect(0).text().contains("\n  dribble\n"));
        let log = world.gateway_log();
        for want in ["p: progress 1 of 2: half way", "p: first half", "p: told in a batch"] {
            assert!(log.contains(want), "{want}: {log}");
        }
        has_no_secret(world);
        world.run(["gateway", "stop"]).expect(0);
        let ended = far.seen("DELETE");
        assert_eq!(ended.len(), 1, "{ended:?}");
        for it in far.seen("tools/call").iter().chain(&ended) {
            let id = it["Mcp-Session-Id"].as_str().expect("a session");
            assert!(id.starts_with("session-"), "{it}");
            assert_eq!(it["MCP-Protocol-Version"], "2025-03-26", "{it}");
            assert_eq!(it["Authorization"], KEY, "{it}");
        }
        let first = &far.seen("initialize")[0];
        assert_eq!(first["Mcp-Session-Id"], Value::Null, "{first}");
        assert_eq!(first["Accept"], "application/json, text/event-stream", "{first}");
        fs::remove_file(&far.log).expect("removed");
    });
}

#[test]
fn a_session_that_is_forgotten_is_begun_anew_and_nobody_notices() {
    let world = &some_world();
    let far = with_server(world, &[]);
    prints(world, "p begun; p forget", "1\nforget\n");
    prints(world, "p begun", "2\n");
    let many = "for i in 1 2 3 4 5 6; do p echo --message x & done; wait";
    prints(world, &format!("p forget; {many}"), &format!("forget\n{}", "x\n".repeat(6)));
    prints(world, "p begun", "3\n");
    // The process is another one, at the same place.
    let port = far.port;
    drop(far);
    fails(world, "p echo", "plugin 'p' is not reached at http://127.0.0.1:");
    let _far = Far::start(world, port, &[]);
    prints(world, "p echo --message again", "again\n");
    has_no_secret(world);
}

#[test]
fn a_server_tells_of_new_tools_by_its_own_stream() {
    let world = &some_world();
    let far = with_server(world, &[]);
    assert!(world.sh("p late").expect(2).stderr.contains("p has no tool `late`"));
    wait_until("it listens", || far.seen("GET").len() == 1);
    prints(world, "p change", "change\n");
    wait_until("it is told", || world.sh("p late").code == 0);
    assert_eq!(far.seen("GET")[0]["Accept"], "text/event-stream");
}

#[test]
fn a_server_may_have_neither_sessions_nor_a_stream_of_its_own() {
    let world = &some_world();
    let far = with_server(world, &["stateless", "no-stream"]);
    prints(world, "p echo --message a; p stream", "a\nstream\n");
    world.run(["gateway", "stop"]).expect(0);
    assert_eq!((far.seen("GET").len(), far.seen("DELETE").len()), (1, 0));
    assert!(far.seen("POST").iter().all(|it| it["Mcp-Session-Id"].is_null()));
}

#[test]
fn what_a_server_does_wrong_is_told_and_its_next_answer_is_heard() {
    let world = &some_world();
    let far = with_server(world, &["no-stream"]);
    // Each is followed by an answer, so that the server is not left alone.
    let told = |tool: &str, want: &str| {
        fails(world, &format!("p {tool}"), want);
        prints(world, "p echo --message a", "a\n");
    };
    told("long", "plugin 'p' sent a message of more than 16777216 bytes");
    told("long-json", "plugin 'p' sent a message of more than 16777216 bytes");
    told("heavy", "plugin 'p' sent a message that takes too much memory to read");
    told("html", "plugin 'p' answers by `text/html` and not by `application/json`");
    told("cut", "plugin 'p' broke off in the middle of its answer");
    told("quiet", "plugin 'p' answers a request by HTTP 202 Accepted and no message");
    told("broken", "plugin 'p' answers HTTP 503 Service Unavailable\n");
    told("redirect", "HTTP 307 Temporary Redirect, a redirect to `http://localhost:");
    told("denied", "plugin 'p' fails `p`: HTTP 401 Unauthorized: go away with ••••");
    let elsewhere = far.seen("GET").iter().any(|it| it["path"] == "/elsewhere");
    assert!(!elsewhere && far.seen("POST").iter().all(|it| it["path"] != "/elsewhere"));
    for _ in 0..3 {
        fails(world, "p broken", "answers HTTP 503");
    }
    fails(world, "p echo", "plugin 'p' has failed three times in a row; it is tried again in ");
    has_no_secret(world);
}

#[test]
fn a_call_that_is_left_is_called_off_and_its_connection_closed() {
    let world = &some_world();
    let _far = with_server(world, &[]);
    let leave = "p forever & until [ \"$(p forevers)\" = 1 ]; do :; done; p echo --message b; \
                 kill -9 $!; wait";
    assert_eq!(world.sh(leave).text(), "b\n");
    wait_until("it is told", || world.sh("p called-off").text() == "1 1\n");
}

#[test]
fn one_that_dies_in_the_middle_of_an_answer_fails_that_call() {
    let world = &some_world();
    let mut far = with_server(world, &[]);
    fails(world, "p die", "plugin 'p' broke off in the middle of its answer");
    far.process.wait().expect("its end");
    let _far = Far::start(world, far.port, &[]);
    prints(world, "p echo --message back", "back\n");
}

#[test]
fn one_that_is_not_there_is_left_out_until_it_is() {
    let world = &some_world();
    let port = Far::start(world, 0, &[]).port;
    configure(world, port, KEY);
    world.start_gateway();
    wait_until("it was tried", || world.gateway_log().contains("it is tried again in 1 s"));
    let told = "plugin 'p' is not running: is not reached at http://127.0.0.1:";
    fails(world, "p echo", told);
    let _far = Far::start(world, port, &[]);
    wait_until("it is tried again", || world.sh("p echo").code == 0);
    has_no_secret(world);
}

#[test]
fn one_that_knows_us_not_is_told_with_its_own_words() {
    let world = &some_world();
    let far = Far::start(world, 0, &[]);
    configure(world, far.port, "Bearer another-key");
    world.start_gateway();
    let told = "is not running: refuses `initialize`: HTTP 401 Unauthorized: this key is unknown";
    fails(world, "p echo", told);
    assert!(!world.gateway_log().contains("another-key"));
}

#[test]
fn a_one_shot_asks_it_as_well() {
    let world = &some_world();
    let far = Far::start(world, 0, &[]);
    configure(world, far.port, KEY);
    prints(world, "p echo --message once", "once\n");
    assert_eq!(far.seen("DELETE").len(), 1);
}
