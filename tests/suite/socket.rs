//! The agents' sockets, from the sandbox's side: every line that the protocol
//! takes and refuses, whose call it is, and that no agent can stop another.
//! The host's end of the socket is used, which is the one mounted at /beige.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};

use crate::support::{
    Runtime, World, is_alive, on_either_kind, peak_memory, runtimes, signal, wait_until,
};

/// A tool that shows how it was called, and can wait and fail.
const PROBE: &str = r#"#!/bin/sh
case $1 in
    fail) echo 'it failed'; exit 3 ;;
    complain) echo out; echo err >&2; exit "$2" ;;
    env) env ;;
    context) printf '%s' "$BEIGE_CONTEXT" ;;
    stdin) cat ;;
    big) head -c "$2" /dev/zero | tr '\0' x ;;
    signal) kill -9 $$ ;;
    bytes) printf 'a\377b' ;;
    wait) echo $$ >"started-$2"; while [ ! -e go ]; do sleep 0.02; done; echo "waited $2" ;;
    *) printf '%s' "$*" ;;
esac
"#;

/// A world without a sandbox: agents `a` and `b`, the plugin `probe` and the
/// running gateway.
fn world() -> World {
    let world = World::new(runtimes()[0]);
    prepare(&world);
    world.start_gateway();
    world
}

fn prepare(world: &World) {
    let folder = plugin(world);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("probe"), PROBE).expect("a script");
    fs::set_permissions(folder.join("probe"), fs::Permissions::from_mode(0o755)).expect("a mode");
    let manifest = json!({
        "name": "probe", "description": "shows",
        "tools": [
            {"name": "probe", "description": "shows", "run": ["./probe"]},
            {"name": "probe.short", "description": "hurries", "run": ["./probe"], "timeoutSeconds": 1},
            {"name": "probe.none", "description": "is nobody's", "run": ["./probe"]},
            {"name": "probe.flags", "description": "takes few", "run": ["printf", "%s,"], "flags": ["-a"]},
        ],
    });
    fs::write(folder.join("plugin.json"), manifest.to_string()).expect("a manifest");
    let runtime = world.runtime.name();
    let agent = |name: &str| {
        format!(
            "{name}: {{ model: {{ provider: 'p', model: 'm' }}, \
             tools: ['probe', 'probe.short', 'probe.flags'], \
             sandbox: {{ runtime: '{runtime}', network: 'none' }} }},"
        )
    };
    let text = format!(
        "{{ llm: {{ providers: {{ p: {{ api: 'replay', cassette: './cassette.jsonl' }} }} }}, \
         plugins: {{ probe: {{ path: './probe', config: {{ greeting: 'hi' }}, \
         env: {{ FROM_CONFIG: 'yes' }} }} }}, \
         agents: {{ {} {} }}, gateway: {{ port: 0 }} }}",
        agent("a"),
        agent("b")
    );
    fs::write(world.config_file(), text).expect("config written");
}

fn plugin(world: &World) -> std::path::PathBuf {
    world.root.join("probe")
}

/// A connection of an agent.
struct Peer {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Peer {
    #[track_caller]
    fn of(world: &World, agent: &str) -> Self {
        let path = world.home().join("sockets").join(agent).join("gateway.sock");
        let stream = UnixStream::connect(path).expect("the agent's socket");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a deadline");
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        Self { stream, reader }
    }

    #[track_caller]
    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }

    #[track_caller]
    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    /// One request line and its answer.
    #[track_caller]
    fn ask(&mut self, line: &str) -> Value {
        self.send(format!("{line}\n").as_bytes());
        self.receive()
    }

    #[track_caller]
    fn call(&mut self, args: &[&str]) -> Value {
        self.ask(&request("probe", args).to_string())
    }

    /// What still comes until the gateway ends the connection.
    fn rest(&mut self) -> String {
        let mut rest = String::new();
        let _ = self.reader.read_to_string(&mut rest);
        rest
    }
}

fn request(tool: &str, args: &[&str]) -> Value {
    json!({"type": "tool_request", "tool": tool, "args": args})
}

fn success(output: &str) -> Value {
    json!({"type": "tool_response", "success": true, "output": output, "exitCode": 0})
}

fn failed(output: &str, code: i32) -> Value {
    json!({
        "type": "tool_response", "success": false, "output": output, "error": output,
        "exitCode": code,
    })
}

#[track_caller]
fn refused(answer: &Value, want: &str) {
    let error = answer["error"].as_str().unwrap_or_default();
    assert!(error.contains(want), "{answer} does not say {want:?}");
    let shape = (&answer["type"], &answer["success"], &answer["exitCode"], &answer["output"]);
    assert_eq!(shape, (&json!("tool_response"), &json!(false), &json!(1), &Value::Null));
}

#[test]
fn every_line_has_its_answer() {
    let world = world();
    let mut peer = Peer::of(&world, "a");
    // All on one connection: a refused line does not end it.
    assert_eq!(peer.call(&["hello", "world"]), success("hello world"));
    assert_eq!(peer.call(&[]), success(""));
    assert_eq!(peer.call(&["fail"]), failed("it failed\n", 3));
    assert_eq!(peer.call(&["complain", "9"]), failed("out\nerr\n", 9));
    assert_eq!(peer.call(&["complain", "0"]), success("out\n"));
    assert_eq!(peer.call(&["signal"]), failed("", 137));
    let marked = peer.call(&["bytes"]);
    assert!(marked["output"].as_str().is_some_and(|it| it.starts_with("a\u{fffd}b\n[not UTF-8")));
    for tool in ["git", "exec", "read", "probe.none", "__proto__", ""] {
        let want = format!("Permission denied: tool '{tool}' is not allowed for agent 'a'");
        let answer = peer.ask(&request(tool, &["true"]).to_string());
        let want = json!({"type": "tool_response", "success": false, "error": want, "exitCode": 1});
        assert_eq!(answer, want);
    }
    for (line, want) in [
        ("{nope", "Invalid request: "),
        (r#"{"type":"hello"}"#, "unknown type `hello`"),
        ("[]", "a JSON object"),
        ("null", "a JSON object"),
        ("\"x\"", "a JSON object"),
        (r#"{"type":"tool_request","tool":"probe"}"#, "missing field `args`"),
        (r#"{"type":"tool_request","args":[]}"#, "missing field `tool`"),
        (r#"{"type":"tool_request","tool":"probe","args":"str"}"#, "a list of strings"),
        (r#"{"type":"tool_request","tool":"probe","args":[1,2]}"#, "expected a string"),
        (r#"{"type":"tool_request","tool":"probe","args":["\u0000"]}"#, "NUL"),
        ("{\"type\":\"tool_request\",\"tool\":\"probe\",\"args\":[\"\0\"]}", "Invalid request"),
        (r#"{"type":"tool_request","tool":"probe","args":[],"cwd":"../../etc"}"#, "`cwd` leaves"),
        (r#"{"type":"tool_request","tool":"probe","args":[],"cwd":"/etc"}"#, "`cwd` leaves"),
        (r#"{"type":"tool_request","tool":"probe","args":[],"agentName":"b"}"#, "unknown field"),
    ] {
        refused(&peer.ask(line), want);
    }
    peer.send(b"{\"type\":\"tool_request\",\"tool\":\"probe\",\"args\":[\"\xff\xfe\"]}\n");
    refused(&peer.receive(), "not UTF-8");
    refused(&peer.ask(&"[".repeat(100_000)), "Invalid request");
    // Blank lines are none, and a carriage return is white space.
    peer.send(b"\n\n  \n");
    peer.send(format!("{}\r\n", request("probe", &["crlf"])).as_bytes());
    assert_eq!(peer.receive(), success("crlf"));
    let long = "x".repeat(64);
    let argument = peer.ask(&request("probe", &[&long.repeat(4_000)]).to_string());
    assert_eq!(argument["success"], false);
    assert_eq!(peer.call(&["after"]), success("after"));
}

#[test]
fn a_line_is_whole_whatever_the_writes_are() {
    let world = world();
    let mut peer = Peer::of(&world, "a");
    let line = format!("{}\n", request("probe", &["héé✓🎉"]));
    // Split at every byte, also inside characters.
    for at in 1..line.len() {
        let (first, second) = line.as_bytes().split_at(at);
        peer.send(first);
        thread::yield_now();
        peer.send(second);
        assert_eq!(peer.receive(), success("héé✓🎉"));
    }
    // Answers come in the order of the requests, in one write or in two.
    fs::write(plugin(&world).join("go"), "").expect("a file");
    let slow_and_fast =
        format!("{}\n{}\n", request("probe", &["wait", "slow"]), request("probe", &["fast"]));
    peer.send(slow_and_fast.as_bytes());
    assert_eq!((peer.receive(), peer.receive()), (success("waited slow\n"), success("fast")));
    fs::remove_file(plugin(&world).join("go")).expect("removed");
    peer.send(format!("{}\n", request("probe", &["wait", "two"])).as_bytes());
    peer.send(format!("{}\n", request("probe", &["fast"])).as_bytes());
    wait_until("the first has begun", || plugin(&world).join("started-two").exists());
    fs::write(plugin(&world).join("go"), "").expect("a file");
    assert_eq!((peer.receive(), peer.receive()), (success("waited two\n"), success("fast")));
    // Half a line at the end, and a peer that only ended its sending half.
    let mut peer = Peer::of(&world, "a");
    peer.send(line.trim_end().as_bytes());
    peer.stream.shutdown(std::net::Shutdown::Write).expect("half closed");
    refused(&peer.receive(), "cut before its end");
    assert_eq!(peer.rest(), "");
    let mut peer = Peer::of(&world, "a");
    peer.send(line.as_bytes());
    peer.stream.shutdown(std::net::Shutdown::Write).expect("half closed");
    assert_eq!(peer.receive(), success("héé✓🎉"));
    assert_eq!(peer.rest(), "");
}

#[test]
fn large_input_and_output_pass_whole() {
    let world = world();
    let mut peer = Peer::of(&world, "a");
    for size in [66_000, 3_600_000] {
        let text = "日本語の文章が境目で壊れない".repeat(size / 42 + 1);
        let mut asked = request("probe", &["stdin"]);
        asked["stdin"] = json!(text);
        assert!(peer.ask(&asked.to_string()) == success(&text), "{size} bytes came back changed");
    }
    let answer = peer.call(&["big", "4000000"]);
    assert_eq!(answer["output"].as_str().map(str::len), Some(4_000_000));
    let answer = peer.call(&["big", "9000000"]);
    let output = answer["output"].as_str().unwrap_or_default();
    assert!(output.contains("more bytes were left out") && output.len() < 4_200_000);
}

#[test]
fn a_line_without_an_end_takes_no_memory() {
    let world = world();
    assert_eq!(Peer::of(&world, "a").call(&["x"]), success("x"));
    let before = high_water(&world);
    let mut peer = Peer::of(&world, "a");
    let piece = vec![b'x'; 1 << 20];
    // The gateway hangs up before it is all sent.
    let sent = (0..100).take_while(|_| peer.stream.write_all(&piece).is_ok()).count();
    assert!(sent < 100, "all 100 MB were taken");
    refused(&peer.receive(), "longer than 4 MiB");
    assert_eq!(peer.rest(), "");
    // Nor does a line that is short and would be large once read.
    let mut peer = Peer::of(&world, "a");
    let zeros = "0,".repeat(1_900_000) + "0";
    let bomb = r#"{"type":"tool_request","tool":"probe","args":["y"],"sessionContext":{"x":["#;
    assert_eq!(peer.ask(&format!("{bomb}{zeros}]}}}}")), success("y"));
    let empty = r#""","#.repeat(1_300_000);
    let bomb = format!(r#"{{"type":"tool_request","tool":"probe","args":[{empty}""]}}"#);
    refused(&peer.ask(&bomb), "over 1 MiB");
    let grown = high_water(&world).saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more");
}

/// Most memory that the gateway has held, in KiB.
fn high_water(world: &World) -> u64 {
    peak_memory(gateway_pid(world))
}

fn gateway_pid(world: &World) -> u32 {
    let pid = fs::read_to_string(world.home().join("gateway.pid")).expect("gateway.pid");
    pid.split_whitespace().next().and_then(|it| it.parse().ok()).expect("a pid")
}

#[test]
fn whose_call_it_is_nobody_can_say() {
    on_either_kind(|world| {
        prepare(world);
        world.start_gateway();
        for (agent, key) in [("a", "telegram:7:8"), ("b", "tui:b:x")] {
            let body = json!({"message": "hi", "sessionKey": key});
            assert_eq!(world.post(&format!("/api/agents/{agent}/prompt"), &body).status, 200);
        }
        // A foreign session, one that does not exist, and one's own.
        check_session(
            world,
            json!({"sessionKey": "tui:b:x", "channel": "tui", "agentName": "b",
            "agentDir": "/etc", "workspaceDir": "/root", "extra": {"e": [1]}}),
            "socket:a",
        );
        check_session(world, json!({"sessionKey": "nobody:1"}), "socket:a");
        check_session(world, json!({"sessionKey": "telegram:7:8", "chatId": "99"}), "telegram:7:8");
        // A call that runs is known by its token, to its own agent, while it runs.
        let line = "echo $BEIGE_CALL >call; while [ ! -e go ]; do sleep 0.02; done";
        let call = world.workspace("a").join("call");
        thread::scope(|scope| {
            scope.spawn(|| {
                let params = json!({ "command": line });
                let body = json!({"tool": "exec", "params": params, "sessionKey": "telegram:7:8"});
                world.post("/api/agents/a/exec", &body);
            });
            let token = || fs::read_to_string(&call).unwrap_or_default();
            wait_until("the call has begun", || token().ends_with('\n'));
            let token = token().trim().to_owned();
            assert_eq!((token.len(), session_by(world, "a", &token)), (32, "telegram:7:8".into()));
            assert_eq!(session_by(world, "b", &token), "socket:b");
            assert_eq!(session_by(world, "a", &token[1..]), "socket:a");
            fs::write(world.workspace("a").join("go"), "").expect("a file");
        });
        let token = fs::read_to_string(&call).expect("the token");
        assert_eq!(session_by(world, "a", token.trim()), "socket:a");
    });
}

/// What a call without a token says of itself, and what is recorded.
#[track_caller]
fn check_session(world: &World, claim: Value, want: &str) {
    let mut asked = request("probe", &["context"]);
    asked["sessionContext"] = claim.clone();
    asked["cwd"] = json!("sub/dir");
    let answer = Peer::of(world, "a").ask(&asked.to_string());
    let context = answer["output"].as_str().expect("a context");
    let context: Value = serde_json::from_str(context).expect("JSON");
    assert_eq!((&context["sessionKey"], &context["agentName"]), (&json!(want), &json!("a")));
    assert_eq!(
        (&context["cwd"], &context["config"]["greeting"]),
        (&json!("sub/dir"), &json!("hi"))
    );
    assert_eq!(context["workspaceDir"], json!(world.workspace("a")));
    assert_eq!(context["extra"], Value::Null);
    assert_ne!(context["chatId"], "99");
    let record = world.audit().pop().expect("a record");
    assert_eq!((&record["session"], &record["agent"]), (&json!(want), &json!("a")));
    let claimed = if claim["sessionKey"] == want { &Value::Null } else { &claim["sessionKey"] };
    assert_eq!(&record["claimedSession"], claimed);
}

fn session_by(world: &World, agent: &str, token: &str) -> String {
    let mut asked = request("probe", &["context"]);
    asked["call"] = json!(token);
    let answer = Peer::of(world, agent).ask(&asked.to_string());
    let context: Value =
        serde_json::from_str(answer["output"].as_str().expect("a context")).expect("JSON");
    context["sessionKey"].as_str().expect("a session").to_owned()
}

#[test]
fn a_denied_call_is_one_line_and_runs_nothing() {
    let world = world();
    let answer = Peer::of(&world, "a").ask(&request("probe.none", &["wait", "x"]).to_string());
    let want = "Permission denied: tool 'probe.none' is not allowed for agent 'a'";
    assert_eq!(answer["error"], want);
    let records = world.audit();
    assert_eq!(records.len(), 1);
    let seen = ["phase", "decision", "agent", "tool", "type", "target", "error", "session"];
    let seen: Vec<&Value> = seen.iter().map(|it| &records[0][it]).collect();
    let wanted = ["finished", "denied", "a", "probe.none", "tool", "gateway", want, "socket:a"];
    assert_eq!(seen, wanted.map(Value::from).iter().collect::<Vec<_>>());
    assert_eq!(records[0]["args"], json!(["wait", "x"]));
    assert!(!plugin(&world).join("started-x").exists());
}

#[test]
fn a_plugin_gets_nothing_of_the_gateways() {
    let world = World::new(runtimes()[0]);
    prepare(&world);
    let mut gateway = world
        .beige(["gateway", "start", "--foreground"])
        .env("SECRET_OF_THE_HOST", "1")
        .env("BEIGE_TOKEN", "x")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a gateway");
    world.wait_until_it_answers();
    // Its agents' sockets listen before it answers the first request.
    assert_eq!(world.get("/api/health").status, 200);
    let answer = Peer::of(&world, "a").call(&["env"]);
    let output = answer["output"].as_str().expect("an output");
    let mut names: Vec<&str> = output.lines().filter_map(|it| it.split('=').next()).collect();
    names.retain(|it| !["TZ", "LANG", "PWD", "SHLVL", "_", "OLDPWD"].contains(it));
    names.sort_unstable();
    let want = [
        "BEIGE_AGENT_DIR",
        "BEIGE_AGENT_NAME",
        "BEIGE_CHANNEL",
        "BEIGE_CONTEXT",
        "BEIGE_CWD",
        "BEIGE_SESSION_KEY",
        "BEIGE_TOOL",
        "BEIGE_WORKSPACE_DIR",
        "FROM_CONFIG",
        "HOME",
        "PATH",
    ];
    assert_eq!(names, want);
    let answer = Peer::of(&world, "a").ask(&request("probe.flags", &["-a", "x"]).to_string());
    assert_eq!(answer, success("-a,x,"));
    let answer = Peer::of(&world, "a").ask(&request("probe.flags", &["x", "-v", "y"]).to_string());
    assert_eq!((&answer["exitCode"], &answer["success"]), (&json!(2), &json!(false)));
    world.run(["gateway", "stop"]).expect(0);
    gateway.wait().expect("it ends");
}

#[test]
fn a_tool_ends_with_its_time_and_with_its_client() {
    let world = world();
    let started = |name: &str| plugin(&world).join(format!("started-{name}"));
    let answer = Peer::of(&world, "a").ask(&request("probe.short", &["wait", "t"]).to_string());
    assert_eq!(answer["exitCode"], 124);
    assert!(answer["error"].as_str().is_some_and(|it| it.contains("timed out after 1 s")));
    let pid_of = |name: &str| -> u32 {
        wait_until("it has begun", || {
            fs::read_to_string(started(name)).is_ok_and(|it| it.ends_with('\n'))
        });
        fs::read_to_string(started(name)).expect("read").trim().parse().expect("a pid")
    };
    let pid = pid_of("t");
    wait_until("what was too slow is gone", || !is_alive(pid));
    let mut peer = Peer::of(&world, "a");
    peer.send(format!("{}\n", request("probe", &["wait", "c"])).as_bytes());
    let pid = pid_of("c");
    assert!(is_alive(pid));
    drop(peer);
    wait_until("what nobody waits for is gone", || !is_alive(pid));
    wait_until("its line is finished", || {
        let last = world.audit().pop().unwrap_or_default();
        last["phase"] == "finished"
            && last["args"] == json!(["wait", "c"])
            && last["error"].is_string()
    });
}

#[test]
fn sixty_four_connections_and_thirty_two_tools_are_the_bound() {
    let world = world();
    let mut idle: Vec<Peer> = (0..64).map(|_| Peer::of(&world, "a")).collect();
    // Each is served, so each has been accepted.
    for peer in &mut idle {
        assert_eq!(peer.call(&["x"]), success("x"));
    }
    let mut further = Peer::of(&world, "a");
    further.send(format!("{}\n", request("probe", &["y"])).as_bytes());
    further.stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a deadline");
    assert!(further.reader.fill_buf().is_err(), "the 65th was served");
    // Another agent is not concerned.
    assert_eq!(Peer::of(&world, "b").call(&["z"]), success("z"));
    further.stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a deadline");
    idle.pop();
    assert_eq!(further.receive(), success("y"));
    drop(further);
    for (number, peer) in idle.iter_mut().take(33).enumerate() {
        peer.send(format!("{}\n", request("probe", &["wait", &number.to_string()])).as_bytes());
    }
    let begun = || {
        let names = fs::read_dir(plugin(&world)).expect("the folder").flatten();
        names.filter(|it| it.file_name().to_string_lossy().starts_with("started-")).count()
    };
    wait_until("32 have begun", || begun() == 32);
    assert_eq!(Peer::of(&world, "b").call(&["z"]), success("z"));
    assert_eq!(begun(), 32, "the 33rd tool was started");
    fs::write(plugin(&world).join("go"), "").expect("a file");
    for (number, peer) in idle.iter_mut().take(33).enumerate() {
        assert_eq!(peer.receive(), success(&format!("waited {number}\n")));
    }
    world.verify_audit();
}

#[test]
fn a_flood_from_one_agent_stops_no_other() {
    let world = world();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..64 {
            let (world, over) = (&world, &over);
            scope.spawn(move || {
                let line = match number % 3 {
                    0 => "{nope\n".to_owned(),
                    1 => format!("{}\n", request("probe.none", &["x"])),
                    _ => "x".repeat(100_000),
                };
                while !over.load(Ordering::Relaxed) {
                    let mut peer = Peer::of(world, "a");
                    let _ = peer.stream.set_write_timeout(Some(Duration::from_millis(100)));
                    while !over.load(Ordering::Relaxed)
                        && peer.stream.write_all(line.as_bytes()).is_ok()
                    {}
                }
            });
        }
        let mut peer = Peer::of(&world, "b");
        for _ in 0..5 {
            assert_eq!(peer.call(&["calm"]), success("calm"));
        }
        assert_eq!(world.get("/api/health").status, 200);
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(Peer::of(&world, "a").call(&["calm"]), success("calm"));
}

#[test]
fn connections_that_come_and_go_hold_up_no_other_agent() {
    let world = world();
    let over = AtomicBool::new(false);
    let path = world.home().join("sockets/a/gateway.sock");
    thread::scope(|scope| {
        for _ in 0..4 {
            // Some say nothing and leave, and a crowd waits to be let in.
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && UnixStream::connect(&path).is_ok() {
                    thread::yield_now();
                }
            });
        }
        let crowd: Vec<_> = (0..100).map(|_| UnixStream::connect(&path)).collect();
        for _ in 0..20 {
            assert_eq!(Peer::of(&world, "b").call(&["calm"]), success("calm"));
        }
        over.store(true, Ordering::Relaxed);
        drop(crowd);
    });
    assert_eq!(Peer::of(&world, "a").call(&["calm"]), success("calm"));
}

#[test]
fn without_descriptors_callers_wait_and_a_stop_does_not() {
    let world = world();
    assert_eq!(Peer::of(&world, "a").call(&["x"]), success("x"));
    let pid = gateway_pid(&world);
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    let last = open.filter_map(|it| it.ok()?.file_name().to_str()?.parse::<u64>().ok()).max();
    let few = Rlimit { current: last.map(|it| it + 2), ..getrlimit(Resource::Nofile) };
    let limit = |to: &Rlimit| {
        prlimit(Pid::from_raw(pid.cast_signed()), Resource::Nofile, *to).expect("a limit")
    };
    let enough = limit(&few);
    let mut peers: Vec<Peer> = (0..20).map(|_| Peer::of(&world, "b")).collect();
    let fails_for = |agent: &str| {
        world.gateway_log().contains(&format!("accept on the socket of agent {agent}"))
    };
    wait_until("one cannot be taken", || fails_for("b"));
    limit(&enough);
    for peer in &mut peers {
        assert_eq!(peer.call(&["later"]), success("later"));
    }
    drop(peers);
    limit(&few);
    let _crowd: Vec<Peer> = (0..20).map(|_| Peer::of(&world, "a")).collect();
    wait_until("one cannot be taken", || fails_for("a"));
    world.run(["gateway", "stop"]).expect(0);
}

#[test]
fn a_restarted_gateway_is_found_from_the_same_sandbox() {
    on_either_kind(|world| {
        world.start_gateway();
        world.sh("notes add one").expect(0);
        world.run(["gateway", "restart"]).expect(0);
        wait_until("it answers", || UnixStream::connect(world.api_socket()).is_ok());
        let notes = world.sh("notes add two && notes list").expect(0);
        assert!(notes.text().ends_with("1. one\n2. two\n"), "{}", notes.text());
        // Killed and started again, under a container that went on.
        signal(gateway_pid(world), "KILL");
        world.start_gateway();
        let before = container(world);
        world.sh("notes list").expect(0);
        assert_eq!(container(world), before);
    });
}

/// The container of agent `a`, where there is one.
fn container(world: &World) -> String {
    if world.runtime == Runtime::Bubblewrap {
        return String::new();
    }
    let home = format!("label=beige.home={}", world.home().display());
    let listed =
        std::process::Command::new("docker").args(["ps", "-q", "--filter", &home]).output();
    let listed = String::from_utf8_lossy(&listed.expect("docker runs").stdout).into_owned();
    assert_eq!(listed.lines().count(), 1, "one container");
    listed
}

#[test]
fn a_home_too_deep_for_a_socket_is_a_config_error() {
    let world = World::new(runtimes()[0]);
    let deep = world.root.join("x".repeat(100));
    let done: crate::support::Finished = world
        .beige(["gateway", "start"])
        .env("BEIGE_HOME", &deep)
        .output()
        .expect("beige runs")
        .into();
    let done = done.expect(78);
    assert!(done.stderr.contains("107") && done.stderr.contains("BEIGE_HOME"), "{}", done.stderr);
}
