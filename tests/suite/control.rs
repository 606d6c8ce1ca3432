//! Control of what runs: turns that are called off or lose their client, a
//! gateway that is told to start afresh, and what it tells of itself.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use serde_json::{Value, json};

use crate::support::{
    Finished, Reply, World, on_either_kind, processes_with, signal, some_world, wait_until,
};

/// A model that takes ten minutes to answer the prompt `stall`.
const STALL: &str = r#"{"match":{"lastUser":"stall"},"delayMs":600000,"events":[{"text":"late"}]}"#;

const DONE: &str = r#"{"events":[{"text":"done"},{"usage":{"input":7,"output":3}}]}"#;

fn serving(cassette: &[&str]) -> World {
    let world = some_world();
    world.write_cassette(cassette);
    world.start_gateway();
    world
}

/// A line that calls a command which says that it runs and never ends by
/// itself.
fn hold(world: &World) -> String {
    let command = format!("echo x >started; sleep {}", mark(world));
    let call = json!({"toolCall": {"name": "exec", "arguments": {"command": command}}});
    json!({"events": [{"text": "Let me see."}, call]}).to_string()
}

/// How long it sleeps: a number that no other world has.
fn mark(world: &World) -> String {
    let name = world.root.to_string_lossy();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    format!("600.{digits}")
}

/// Whether that command runs, as the host sees it.
fn sleeps(world: &World) -> bool {
    !processes_with(&format!("sleep\0{}", mark(world))).is_empty()
}

/// A world whose gateway answers by that command, then `done`.
fn holding() -> World {
    let world = some_world();
    world.write_cassette(&[&hold(&world), DONE]);
    world.start_gateway();
    world
}

fn prompt(world: &World, key: &str) -> Reply {
    say(world, key, "hi")
}

fn say(world: &World, key: &str, message: &str) -> Reply {
    world.post("/api/agents/a/prompt", &json!({"message": message, "sessionKey": key}))
}

/// `POST …/sessions/KEY/abort` of an agent.
fn abort(world: &World, agent: &str, key: &str) -> Reply {
    let key = key.replace('/', "%2F").replace(':', "%3A");
    world.post(&format!("/api/agents/{agent}/sessions/{key}/abort"), &json!({}))
}

#[track_caller]
fn check_abort(world: &World, agent: &str, key: &str, status: u16, want: Option<bool>) {
    let reply = abort(world, agent, key);
    assert_eq!(reply.status, status, "{}", reply.text());
    assert_eq!(reply.json().get("aborted").and_then(Value::as_bool), want, "{}", reply.text());
}

/// A prompt as a stream whose client has read nothing yet.
fn stream(world: &World, key: &str, message: &str) -> UnixStream {
    let body = json!({"message": message, "sessionKey": key}).to_string();
    let mut client = UnixStream::connect(world.api_socket()).expect("a gateway answers");
    let head = "POST /api/agents/a/prompt/stream HTTP/1.1\r\nHost: localhost\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    client.write_all(request.as_bytes()).expect("sent");
    client
}

fn health(world: &World) -> Value {
    world.get("/api/health").json()
}

fn has_started(world: &World) -> bool {
    world.workspace("a").join("started").exists()
}

/// The messages of a session: role and why an answer ended.
#[track_caller]
fn messages(world: &World, key: &str) -> Vec<String> {
    let map = fs::read_to_string(world.home().join("sessions/session-map.json")).expect("a map");
    let map: Value = serde_json::from_str(&map).expect("JSON");
    let file = map[key]["sessionFile"].as_str().unwrap_or_else(|| panic!("no {key} in {map}"));
    let text = fs::read_to_string(file).expect("a session file");
    let entries = text.lines().map(|it| serde_json::from_str::<Value>(it).expect("JSON"));
    let messages = entries.filter(|it| it["type"] == "message").map(|it| it["message"].clone());
    messages
        .map(|it| {
            let role = it["role"].as_str().unwrap_or("?").to_owned();
            let stop = it["stopReason"].as_str().map(|it| format!(" {it}")).unwrap_or_default();
            let calls = it["content"].as_array().into_iter().flatten();
            let calls = calls.filter(|it| it["type"] == "toolCall").count();
            format!("{role}{stop}{}", if calls > 0 { " call" } else { "" })
        })
        .collect()
}

#[test]
fn an_abort_ends_the_command_of_a_turn_at_once_and_answers_its_call() {
    on_either_kind(|world| {
        world.write_cassette(&[&hold(world), DONE]);
        world.start_gateway();
        let ended = thread::scope(|scope| {
            let turn = scope.spawn(|| prompt(world, "api:a:1"));
            wait_until("the command runs", || has_started(world));
            wait_until("it sleeps", || sleeps(world));
            check_abort(world, "a", "api:a:1", 200, Some(true));
            turn.join().expect("it ends")
        });
        assert_eq!(ended.status, 409, "{}", ended.text());
        let told = ended.json();
        assert_eq!(
            (&told["category"], &told["partial"]),
            (&json!("aborted"), &json!("Let me see."))
        );
        assert!(!sleeps(world));
        let want = ["user", "assistant toolUse call", "toolResult", "assistant aborted"];
        assert_eq!(messages(world, "api:a:1"), want);
        check_abort(world, "a", "api:a:1", 200, Some(false));
        // The session goes on.
        assert_eq!(prompt(world, "api:a:1").json(), json!({"response": "done"}));
        world.verify_audit();
    });
}

#[test]
fn an_abort_ends_a_model_that_stalls_and_what_waits_goes_on() {
    let world = serving(&[STALL, DONE]);
    thread::scope(|scope| {
        let first = scope.spawn(|| say(&world, "api:a:1", "stall"));
        wait_until("it runs", || health(&world)["running"] == 1);
        let second = scope.spawn(|| prompt(&world, "api:a:1"));
        wait_until("one waits", || health(&world)["waiting"] == 1);
        let told = world.run(["gateway", "status"]).expect(0).text();
        assert!(told.contains(", 1 prompt in line"), "{told}");
        check_abort(&world, "a", "api:a:1", 200, Some(true));
        assert_eq!(first.join().expect("it ends").json()["category"], "aborted");
        assert_eq!(second.join().expect("it ends").status, 200);
    });
    let want = ["user", "assistant aborted", "user", "assistant stop"];
    assert_eq!(messages(&world, "api:a:1"), want);
}

#[test]
fn nobody_aborts_what_is_not_theirs_or_not_there() {
    let world = some_world();
    world.configure(&["a", "b"], "");
    world.write_cassette(&[STALL]);
    world.start_gateway();
    thread::scope(|scope| {
        let turn = scope.spawn(|| say(&world, "api:x/1", "stall"));
        wait_until("it runs", || health(&world)["running"] == 1);
        check_abort(&world, "a", "api:nope", 404, None);
        check_abort(&world, "nobody", "api:x/1", 404, None);
        wait_until("its session is there", || abort(&world, "b", "api:x/1").status == 409);
        assert_eq!(health(&world)["running"], 1);
        check_abort(&world, "a", "api:x/1", 200, Some(true));
        assert_eq!(turn.join().expect("it ends").status, 409);
    });
    // Another agent's prompt is no failure of a model.
    let body = json!({"message": "hi", "sessionKey": "api:x/1"});
    for path in ["/api/agents/b/prompt", "/api/agents/b/prompt/stream"] {
        let refused = world.post(path, &body);
        assert_eq!(refused.status, 409, "{}", refused.text());
    }
}

#[test]
fn a_client_that_hangs_up_ends_its_turn_wherever_it_is() {
    let world = some_world();
    world.write_cassette(&[STALL, &hold(&world)]);
    world.start_gateway();
    // At the model.
    let first = stream(&world, "api:a:1", "stall");
    wait_until("it runs", || health(&world)["running"] == 1);
    // In line behind it.
    let second = stream(&world, "api:a:1", "hi");
    wait_until("one waits", || health(&world)["waiting"] == 1);
    drop(second);
    wait_until("none waits", || health(&world)["waiting"] == 0);
    assert_eq!(health(&world)["running"], 1);
    drop(first);
    wait_until("nothing runs", || health(&world)["running"] == 0);
    // What never began left nothing.
    assert_eq!(messages(&world, "api:a:1"), ["user", "assistant aborted"]);
    // In a tool.
    let third = stream(&world, "api:a:2", "hi");
    wait_until("the command runs", || has_started(&world));
    drop(third);
    wait_until("nothing runs", || health(&world)["running"] == 0);
    assert!(!sleeps(&world));
    let want = ["user", "assistant toolUse call", "toolResult", "assistant aborted"];
    assert_eq!(messages(&world, "api:a:2"), want);
    world.verify_audit();
}

#[test]
fn a_silent_stream_shows_that_it_lives() {
    let world = serving(&[STALL]);
    let mut client = stream(&world, "api:a:1", "stall");
    let mut seen = Vec::new();
    let mut byte = [0];
    // The head, an event, then an empty line as a chunk of its own.
    while !seen.ends_with(b"\r\n1\r\n\n\r\n") {
        client.read_exact(&mut byte).expect("it lives");
        seen.push(byte[0]);
    }
}

/// Many small events at once.
fn burst(events: usize) -> String {
    let events = vec![r#"{"text":"0123456789"}"#; events].join(",");
    format!("{{\"events\":[{events}]}}")
}

#[test]
fn a_burst_of_events_reaches_who_reads() {
    let world = serving(&[&burst(6000)]);
    let body = json!({"message": "hi", "sessionKey": "api:a:1"});
    let reply = world.post("/api/agents/a/prompt/stream", &body);
    let text: String = reply.lines().iter().filter_map(|it| it["delta"].as_str()).collect();
    assert_eq!(text.len(), 60_000);
    let answer = prompt(&world, "api:a:2").json();
    assert_eq!(answer["response"].as_str().map(str::len), Some(60_000));
}

#[test]
fn a_fast_answer_is_lost_in_no_form() {
    let world = some_world();
    let events = vec![json!({"text": "x".repeat(1000)}); 4000];
    world.write_cassette(&[&json!({ "events": events }).to_string()]);
    world.start_gateway();
    let text = world.run(["prompt", "a", "hi"]).expect(0).text().to_owned();
    assert_eq!(text.len(), 4_000_001);
    let one = world.run(["prompt", "a", "--json", "hi"]).expect(0).json();
    assert_eq!(one["response"].as_str().map(str::len), Some(4_000_000));
    let stream = world.run(["prompt", "a", "--stream-json", "hi"]).expect(0).text().to_owned();
    let events = stream.lines().map(|it| serde_json::from_str::<Value>(it).expect("an event"));
    let told: usize = events.filter_map(|it| it["delta"].as_str().map(str::len)).sum();
    assert_eq!(told, 4_000_000);
}

#[test]
fn a_prompt_whose_end_is_not_heard_says_so_and_where_to_look() {
    let world = holding();
    let asked = ["prompt", "a", "--session", "cli:a:1", "--json", "hi"];
    let child = world.spawn(asked);
    wait_until("the command runs", || has_started(&world));
    signal(world.gateway_pid(), "KILL");
    let ended = Finished::from(child.wait_with_output().expect("it ends")).expect(3);
    let told = ended.json();
    assert_eq!((&told["category"], &told["session"]), (&json!("unheard"), &json!("cli:a:1")));
    let error = told["error"].as_str().unwrap_or_default();
    assert!(
        error.contains("may go on") && error.contains("beige sessions show cli:a:1"),
        "{error}"
    );
}

/// Text and thinking of 40,000 bytes by turns: only what follows its like is joined.
fn alternating(count: usize) -> Vec<Value> {
    let pair = [json!({"text": "x".repeat(40_000)}), json!({"thinking": "y".repeat(40_000)})];
    pair.iter().cycle().take(count).cloned().collect()
}

#[test]
fn a_prompt_of_which_nobody_takes_the_events_ends_apart_from_a_failed_turn() {
    let world = some_world();
    let mut events = alternating(100);
    let command = "echo x >started; while [ ! -e go ]; do sleep 0.05; done";
    events.push(json!({"toolCall": {"name": "exec", "arguments": {"command": command}}}));
    world.write_cassette(&[&json!({ "events": events }).to_string(), DONE]);
    world.start_gateway();
    let child = world.spawn(["prompt", "a", "--session", "cli:a:1", "--stream-json", "hi"]);
    wait_until("the command runs", || has_started(&world));
    let ended = Finished::from(child.wait_with_output().expect("it ends")).expect(3);
    let last = ended.text().lines().last().map(str::to_owned).expect("an event");
    let last: Value = serde_json::from_str(&last).expect("JSON");
    assert_eq!((&last["type"], &last["category"]), (&json!("error"), &json!("too_slow")));
    assert!(last["message"].to_string().contains("beige sessions show cli:a:1"), "{last}");
    assert_eq!(health(&world)["running"], 1);
    fs::write(world.workspace("a").join("go"), "").expect("a file");
    wait_until("it has ended", || health(&world)["running"] == 0);
}

#[test]
fn a_client_that_reads_too_slowly_loses_its_stream_and_not_its_turn() {
    let world = some_world();
    let mut events = alternating(100);
    let command = "echo x >started; while [ ! -e go ]; do sleep 0.05; done";
    events.push(json!({"toolCall": {"name": "exec", "arguments": {"command": command}}}));
    world.write_cassette(&[&json!({ "events": events }).to_string(), DONE]);
    world.start_gateway();
    let mut client = stream(&world, "api:a:1", "hi");
    wait_until("the command runs", || has_started(&world));
    let cut = Reply::read(&mut client);
    assert_eq!(cut.status, 200);
    assert!(!cut.body.is_empty() && cut.body.len() < 3_500_000, "{}", cut.body.len());
    assert!(!cut.text().contains("tool_start"));
    let last = cut.lines().pop().expect("a last event");
    assert_eq!((&last["type"], &last["category"]), (&json!("error"), &json!("too_slow")));
    let message = last["message"].as_str().unwrap_or_default();
    assert!(message.contains("goes on") && message.contains("api:a:1"), "{message}");
    assert_eq!(health(&world)["running"], 1);
    fs::write(world.workspace("a").join("go"), "").expect("a file");
    wait_until("it has ended", || health(&world)["running"] == 0);
    let want = ["user", "assistant toolUse call", "toolResult", "assistant stop"];
    assert_eq!(messages(&world, "api:a:1"), want);
}

#[test]
fn a_prompt_in_line_says_for_what_it_waits() {
    let world = holding();
    let mut first = world.spawn(["prompt", "a", "--session", "cli:a:1", "hi"]);
    wait_until("the command runs", || has_started(&world));
    let mut second = world.spawn(["prompt", "a", "--session", "cli:a:1", "hi"]);
    let mut told = std::io::BufReader::new(second.stderr.take().expect("a pipe"));
    let want = "waiting for the turn that runs in the session cli:a:1";
    crate::support::read_until(&mut told, want);
    check_abort(&world, "a", "cli:a:1", 200, Some(true));
    assert_eq!(first.wait().expect("it ends").code(), Some(130));
    assert_eq!(second.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_prompt_in_line_is_refused_when_the_gateway_stops() {
    let world = holding();
    let mut stop = thread::scope(|scope| {
        let first = scope.spawn(|| prompt(&world, "api:a:1"));
        wait_until("the command runs", || has_started(&world));
        let second = scope.spawn(|| prompt(&world, "api:a:1"));
        wait_until("one waits", || health(&world)["waiting"] == 1);
        let stop = world.spawn(["gateway", "stop"]);
        let refused = second.join().expect("it ends");
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.json()["category"], "busy");
        // An abort helps the stop to its end.
        check_abort(&world, "a", "api:a:1", 200, Some(true));
        assert_eq!(first.join().expect("it ends").status, 409);
        stop
    });
    assert!(stop.wait().expect("it ends").success());
}

fn restart(world: &World) -> Reply {
    world.post("/api/gateway/restart", &json!({}))
}

#[track_caller]
fn wait_for_another_start(world: &World, before: &Value) {
    wait_until("it has started afresh", || {
        // It does not listen for a moment.
        UnixStream::connect(world.api_socket()).is_ok() && {
            let status = world.run(["gateway", "status", "--json"]).json();
            status["answers"] == true && status["health"]["startedAt"] != *before
        }
    });
}

#[test]
fn a_restart_takes_the_configuration_over_and_the_log_with_it() {
    let world = serving(&[DONE]);
    let (pid, before) = (world.gateway_pid(), health(&world)["startedAt"].clone());
    let (a, b) = (world.agent("a", "", ""), world.agent("b", "", ""));
    let text = |agents: &str| {
        world.write_config(agents, "");
        let text = fs::read_to_string(world.config_file()).expect("a configuration");
        let log = world.root.join("other.log");
        let log = format!("port: 0, logFile: '{}', log: {{ level: 'debug' }}", log.display());
        fs::write(world.config_file(), text.replace("port: 0", &log)).expect("written");
    };
    text(&format!("{a}{b}"));
    let told = restart(&world);
    assert_eq!((told.status, &told.json()["status"]), (202, &json!("restarting")));
    wait_for_another_start(&world, &before);
    assert_eq!(world.gateway_pid(), pid);
    assert_eq!(world.get("/api/agents").json()["agents"].as_array().map(Vec::len), Some(2));
    let log = fs::read_to_string(world.root.join("other.log")).expect("a log");
    assert!(log.contains("the gateway answers") && log.contains("for 2 agents"), "{log}");
    assert!(!world.gateway_log().contains("for 2 agents"));
}

#[test]
fn a_restart_with_a_broken_configuration_changes_nothing_and_says_so() {
    let world = serving(&[DONE]);
    let before = health(&world)["startedAt"].clone();
    fs::write(world.config_file(), "{ agents: 7 }").expect("written");
    assert_eq!(restart(&world).status, 202);
    wait_until("it is told", || health(&world)["reloadError"].is_string());
    let after = health(&world);
    assert_eq!((&after["startedAt"], &after["status"]), (&before, &json!("ok")));
    assert!(after["degraded"].to_string().contains("the old configuration stays"), "{after}");
    assert!(world.gateway_log().contains("the old configuration stays"));
    assert_eq!(prompt(&world, "api:a:1").status, 200);
}

#[test]
fn a_restart_waits_for_a_turn_no_longer_than_its_limit() {
    let world = holding();
    let before = health(&world)["startedAt"].clone();
    thread::scope(|scope| {
        let turn = scope.spawn(|| prompt(&world, "api:a:1"));
        wait_until("the command runs", || has_started(&world));
        assert_eq!(restart(&world).status, 202);
        wait_until("it drains", || health(&world)["status"] == "draining");
        assert_eq!(prompt(&world, "api:a:2").status, 503);
        assert_eq!(restart(&world).status, 503);
        let ended = turn.join().expect("it ends");
        assert_eq!(ended.json()["category"], "aborted", "{}", ended.text());
    });
    wait_for_another_start(&world, &before);
    assert!(!sleeps(&world));
}

#[test]
fn a_gateway_that_another_looks_after_is_restarted_in_its_process() {
    let world = some_world();
    let mut gateway = world.gateway_child();
    let before = health(&world)["startedAt"].clone();
    let told = world.run(["gateway", "restart"]).expect(0);
    assert!(told.text().contains("has started afresh"), "{}", told.text());
    assert_ne!(health(&world)["startedAt"], before);
    assert_eq!(world.gateway_pid(), gateway.id());
    signal(gateway.id(), "TERM");
    assert_eq!(gateway.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_is_configured_is_told_without_secrets() {
    let world = some_world();
    let secrets = "apiKey: 'k3y-of-somebody', headers: { 'X-Own': 'h3ader-of-somebody' }";
    let text = format!(
        "{{ llm: {{ providers: {{
            p: {{ api: 'replay', cassette: './cassette.jsonl', models: {{ m: {{ reasoning: true,
                input: ['text', 'image'], cost: {{ input: 1, output: 2 }} }} }} }},
            q: {{ api: 'openai-completions', baseUrl: 'http://127.0.0.1:9/v1/', {secrets} }},
        }} }}, agents: {{ {}{} }}, gateway: {{ port: 0 }} }}",
        world.agent("a", "", "").replace("'notes'", ""),
        world.agent("b", "", "").replace("'notes'", "").replace("'p'", "'q'"),
    );
    fs::write(world.config_file(), text).expect("written");
    world.start_gateway();
    let config = world.get("/api/config");
    assert!(!config.text().contains("of-somebody"), "{}", config.text());
    let agent = |provider: &str| {
        json!({"model": {"provider": provider, "model": "m", "thinkingLevel": "off"},
            "fallbackModels": [], "tools": [], "skills": []})
    };
    let providers = json!({"p": {"api": "replay"},
        "q": {"api": "openai-completions", "baseUrl": "http://127.0.0.1:9/v1"}});
    let want = json!({"agents": {"a": agent("p"), "b": agent("q")},
        "llm": {"providers": providers}});
    assert_eq!(config.json(), want);
    let model = &world.get("/api/agents/a/models").json()["models"][0];
    let want = json!({"id": "m", "name": "m", "provider": "p", "api": "replay", "reasoning": true,
        "input": ["text", "image"],
        "cost": {"input": 1.0, "output": 2.0, "cacheRead": 1.0, "cacheWrite": 1.0},
        "contextWindow": 128_000, "maxTokens": 8192, "thinkingLevel": "off"});
    assert_eq!(*model, want);
    assert_eq!(world.get("/api/agents/b/models").json()["models"][0]["cost"], Value::Null);
    assert_eq!(world.get("/api/agents/nobody/models").status, 404);
}

#[test]
fn figures_are_counted() {
    let fails = r#"{"events":[{"error":"overloaded"}]}"#;
    let world = serving(&[DONE, fails, fails, fails]);
    assert_eq!(prompt(&world, "api:a:1").status, 200);
    let failed = prompt(&world, "api:a:1");
    assert_eq!(failed.status, 502, "{}", failed.text());
    assert_eq!(failed.json()["category"], "unavailable");
    let text = world.get("/metrics");
    assert!(text.head.contains("text/plain; version=0.0.4"), "{}", text.head);
    let text = text.text();
    for want in [
        "beige_agents 1",
        "beige_sessions 1",
        "beige_running_calls 0",
        "beige_turns_total{outcome=\"done\"} 1",
        "beige_turns_total{outcome=\"unavailable\"} 1",
        "beige_model_calls_total{provider=\"p\"} 4",
        "beige_model_failures_total{provider=\"p\",category=\"unavailable\"} 3",
        "beige_model_tokens_total{provider=\"p\",kind=\"input\"} 7",
    ] {
        assert!(text.lines().any(|it| it == want), "{want} in {text}");
    }
}

#[test]
fn a_prompt_on_the_command_line_keeps_what_was_said() {
    let world = holding();
    let arguments = ["prompt", "a", "--session", "cli:a:1", "--json", "hi"];
    let asked = world.spawn(arguments);
    wait_until("the command runs", || has_started(&world));
    check_abort(&world, "a", "cli:a:1", 200, Some(true));
    let told = Finished::from(asked.wait_with_output().expect("it ends")).expect(130).json();
    let want = json!({"error": told["error"], "category": "aborted", "partial": "Let me see.",
        "session": "cli:a:1"});
    assert_eq!(told, want);
}

/// A world whose turns may be silent for four seconds, with that cassette.
fn impatient(cassette: &[&str]) -> World {
    let world = some_world();
    let limits = "limits: { inactivitySeconds: 4, execTimeoutSeconds: 60 },";
    world.write_config(&world.agent("a", "", limits), "");
    world.write_cassette(cassette);
    world.start_gateway();
    world
}

#[test]
fn a_command_within_its_own_limit_is_no_silence() {
    let sleep = r#"{"events":[{"toolCall":{"name":"exec","arguments":{"command":"sleep 5.5"}}}]}"#;
    let world = impatient(&[sleep, DONE]);
    let answer = prompt(&world, "api:a:1");
    assert_eq!((answer.status, answer.json()), (200, json!({"response": "done"})));
}

#[test]
fn a_turn_in_which_nothing_happens_is_ended() {
    let world = impatient(&[STALL]);
    let ended = say(&world, "api:a:1", "stall");
    assert_eq!(ended.status, 504, "{}", ended.text());
    let told = ended.json();
    assert_eq!(told["category"], "inactive", "{told}");
    assert!(told["error"].to_string().contains("limits.inactivitySeconds"), "{told}");
    assert_eq!(messages(&world, "api:a:1"), ["user", "assistant error"]);
}

#[test]
fn calls_that_wait_for_a_provider_are_shown() {
    let world = some_world();
    world.write_cassette(&[STALL]);
    let text = fs::read_to_string(world.config_file()).expect("a configuration");
    let text = text.replace("api: 'replay',", "api: 'replay', concurrency: 1,");
    fs::write(world.config_file(), text).expect("written");
    world.start_gateway();
    let clients = ["api:a:1", "api:a:2", "api:a:3"].map(|it| stream(&world, it, "stall"));
    wait_until("two wait", || health(&world)["providers"][0]["queued"] == 2);
    let load = &health(&world)["providers"][0];
    let seen = json!([load["provider"], load["concurrency"], load["running"]]);
    assert_eq!(seen, json!(["p", 1, 1]));
    let told = world.run(["gateway", "status"]).expect(0).text();
    assert!(told.contains("provider p: 1 call running, 2 waiting"), "{told}");
    let text = world.get("/metrics").text();
    assert!(text.contains("beige_provider_queued{provider=\"p\"} 2\n"), "{text}");
    // One that goes away while it waits gives its place up.
    drop(clients);
    wait_until("nothing runs", || health(&world)["running"] == 0);
    assert_eq!(health(&world)["providers"][0]["queued"], 0);
}
