//! The HTTP API as strangers and clumsy clients meet it, over TCP and over
//! `api.sock`: who may call, what is refused, and that nobody's slowness is
//! anybody else's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::support::{
    Reply, World, is_alive, on_either_kind, peak_memory, processes_with, some_world, wait_until,
};

/// `POST …/exec` of agent `a`.
const EXEC: &str = "/api/agents/a/exec";

/// What is known of a gateway by whoever may call it.
struct Door {
    address: String,
    token: String,
}

impl Door {
    fn of(world: &World) -> Self {
        let token = std::fs::read_to_string(world.home().join("api-token")).expect("a token");
        Self { address: world.address(), token: token.trim().to_owned() }
    }

    #[track_caller]
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("the door is open");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    }

    /// Sends bytes and reads to the end.
    #[track_caller]
    fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        // A refusal may come before all is taken.
        let _ = stream.write_all(bytes);
        Reply::read(&mut stream)
    }

    /// A head with the token and further lines, up to the body.
    fn head(&self, method: &str, path: &str, lines: &str) -> String {
        let token = &self.token;
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{lines}\r\n"
        )
    }

    #[track_caller]
    fn post(&self, path: &str, body: &[u8]) -> Reply {
        let head = self.head("POST", path, &format!("Content-Length: {}\r\n", body.len()));
        self.raw(&[head.as_bytes(), body].concat())
    }

    /// Fails unless somebody who does nothing wrong is served.
    #[track_caller]
    fn serves(&self) {
        assert_eq!(self.raw(self.head("GET", "/api/agents", "").as_bytes()).status, 200);
    }

    #[track_caller]
    fn check(&self, request: &str, status: u16) {
        let reply = self.raw(request.as_bytes());
        assert_eq!(reply.status, status, "{request:?}: {}", reply.text());
    }

    /// A connection that has changed to frames.
    #[track_caller]
    fn upgraded(&self) -> TcpStream {
        let lines = "Upgrade: beige-exec/1\r\nConnection: Upgrade\r\n";
        let mut stream = self.connect();
        let head = self.head("POST", &format!("{EXEC}/stream"), lines);
        stream.write_all(head.as_bytes()).expect("sent");
        let mut answer = [0; 80];
        let want = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: beige-exec/1\r\nConnection: Upgrade\r\n\r\n";
        stream.read_exact(&mut answer[..want.len()]).expect("an answer");
        assert_eq!(&answer[..want.len()], want);
        stream
    }
}

fn world() -> World {
    let world = some_world();
    world.start_gateway();
    world
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short");
    [&[kind], length.to_be_bytes().as_slice(), payload].concat()
}

fn command(argv: &[&str]) -> Vec<u8> {
    frame(0, json!({ "argv": argv }).to_string().as_bytes())
}

/// A number of seconds that no other test sleeps.
fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("271.{}{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn only_who_knows_the_token_and_the_name_may_call() {
    let world = world();
    let door = Door::of(&world);
    let ask = |path: &str, host: &str, lines: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n")
    };
    let bearer = format!("Authorization: Bearer {}\r\n", door.token);
    door.check(&ask("/api/agents", "localhost", &bearer), 200);
    door.check(&ask("/api/agents", &door.address, &bearer), 200);
    door.check(&ask("/api/health", "localhost", ""), 200);
    door.check(&ask("/api/agents", "localhost", ""), 401);
    door.check(&ask("/api/agents", "localhost", "Authorization: Bearer x\r\n"), 401);
    door.check(&ask("/api/agents", "localhost", "X-Beige-Caller: owner\r\n"), 401);
    door.check(&ask("/api/agents", "localhost", &format!("{bearer}{bearer}")), 400);
    for path in ["/api/agents", "/api/health"] {
        door.check(&ask(path, "evil.example", &bearer), 403);
        door.check(
            &ask(path, "localhost", &format!("{bearer}Origin: http://evil.example\r\n")),
            403,
        );
        door.check(&ask(path, "localhost", &format!("{bearer}Origin: null\r\n")), 403);
    }
    let health = door.raw(ask("/api/health", "localhost", "").as_bytes());
    assert_eq!(health.text().trim(), r#"{"status":"ok"}"#, "a stranger learns no more");
    let origin = [("Origin", "http://localhost")];
    let by_page = crate::support::request(&world.api_socket(), "GET", "/api/agents", &origin, b"");
    assert_eq!(by_page.status, 403);
}

#[test]
fn what_can_be_read_two_ways_is_refused() {
    let world = world();
    let door = Door::of(&world);
    let post = |lines: &str, body: &str| format!("{}{body}", door.head("POST", EXEC, lines));
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (lines, body) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"),
        ("Content-Length: +2\r\n", "{}"),
        ("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        ("Host: localhost\r\n", ""),
        (chunked, "0x2\r\n{}\r\n0\r\n\r\n"),
        (chunked, "-1\r\n"),
        (chunked, "2\n{}\n0\n\n"),
        (chunked, "FFFFFFFFFFFFFFFFF\r\n"),
        (chunked, "1\r\n{}\r\n0\r\n\r\n"),
    ] {
        door.check(&post(lines, body), 400);
    }
    door.check("GET /api/health HTTP/1.1\nHost: localhost\n\n", 400);
    door.check("GET http://localhost/api/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400);
    door.check("\u{16}\u{3}\u{1}\r\n\r\n", 400);
    door.serves();
}

#[test]
fn what_is_too_large_is_refused_before_it_is_taken() {
    let world = world();
    let door = Door::of(&world);
    let pid = world.gateway_pid();
    let length = |bytes: &str| door.head("POST", EXEC, &format!("Content-Length: {bytes}\r\n"));
    for bytes in ["33554433", "10000000000000", "99999999999999999999999"] {
        door.check(&length(bytes), 413);
    }
    door.check("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000000000\r\n\r\n", 401);
    let chunks = format!("100000\r\n{}\r\n", "x".repeat(0x10_0000)).repeat(33);
    let head = door.head("POST", EXEC, "Transfer-Encoding: chunked\r\n");
    door.check(&format!("{head}{chunks}0\r\n\r\n"), 413);
    door.check(&format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}", "x".repeat(1_000_000)), 431);
    door.check(&door.head("GET", "/api/agents", &"A: b\r\n".repeat(100)), 431);
    door.check(&format!("{head}2;{}\r\n", "x".repeat(100_000)), 431);
    assert!(peak_memory(pid) < 150_000, "{} kB", peak_memory(pid));
    door.serves();
}

#[test]
fn a_short_body_of_many_values_takes_no_more_than_its_like() {
    let world = world();
    let door = Door::of(&world);
    let list = format!(r#"{{"tool":"exec","params":{{"x":[{}0]}}}}"#, "0,".repeat(15_000_000));
    let reply = door.post(EXEC, list.as_bytes());
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(reply.text().contains("more than"), "{}", reply.text());
    let peak = peak_memory(world.gateway_pid());
    assert!(peak < 150_000, "the gateway grew to {peak} kB");
}

#[test]
fn json_that_is_none_or_odd_is_told_so() {
    let world = world();
    let door = Door::of(&world);
    let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let huge =
        format!(r#"{{"tool":"read","params":{{"path":"x","offset":1{}}}}}"#, "0".repeat(999));
    for body in [
        "",
        "{nope",
        "null",
        "[]",
        &"[".repeat(100_000),
        &format!(r#"{{"tool":"exec","params":{deep}}}"#),
        &huge,
        r#"{"tool":"read","params":{"path":"x","offset":1e400}}"#,
        r#"{"tool":"exec","params":{"command":"\ud800"}}"#,
        r#"{"tool":"exec","params":{"command":"a\u0000b"}}"#,
        r#"{"tool":"exec","params":{"command":["a"]}}"#,
        r#"{"tool":"exec","params":{"command":"true","timeout":1e300}}"#,
        r#"{"tool":"exec","params":{"command":"true"},"sessionKey":"a\nb"}"#,
        "\u{feff}{}",
    ] {
        let reply = door.post(EXEC, body.as_bytes());
        assert_eq!(reply.status, 400, "{:.80}: {}", body, reply.text());
        assert!(reply.json()["error"].is_string());
    }
    assert_eq!(door.post(EXEC, b"{\"tool\":\"\xff\"}").status, 400);
    let twice = r#"{"tool":"read","tool":"exec","params":{"command":"false"}}"#;
    let reply = door.post(EXEC, twice.as_bytes());
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert_eq!(reply.json()["error"], "`tool` is given twice in one object");
}

#[test]
fn no_trick_with_names_leads_anywhere() {
    let world = world();
    let door = Door::of(&world);
    let body = r#"{"tool":"exec","params":{"command":"true"}}"#.as_bytes();
    for (name, status) in [
        ("%61", 200),
        ("%2e%2e", 404),
        ("..", 404),
        ("%00", 404),
        ("%2f", 404),
        ("a%2f..", 404),
        ("constructor", 404),
        ("__proto__", 404),
        ("A", 404),
        ("a%20", 404),
        ("", 404),
        ("a/", 404),
        ("%ff", 400),
        ("%", 400),
        ("%zz", 400),
    ] {
        let reply = door.post(&format!("/api/agents/{name}/exec"), body);
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
    }
    for key in ["..", "../../x", "__proto__", "a%2fb", "\u{202e}x"] {
        let prompt = json!({"message": "hi", "sessionKey": key}).to_string();
        let reply = door.post("/api/agents/a/prompt", prompt.as_bytes());
        assert_eq!(reply.status, 200, "{key:?}: {}", reply.text());
    }
    let sessions = world.home().join("sessions/a");
    let names = std::fs::read_dir(&sessions).expect("sessions").flatten();
    assert!(names.into_iter().all(|it| it.path().extension().is_some_and(|it| it == "jsonl")));
    for key in ["", "a\u{0}b", "\u{1b}[31m", &"x".repeat(201)] {
        let prompt = json!({"message": "hi", "sessionKey": key}).to_string();
        assert_eq!(door.post("/api/agents/a/prompt", prompt.as_bytes()).status, 400, "{key:?}");
    }
}

#[test]
fn a_name_of_any_length_is_answered() {
    on_either_kind(|world| {
        world.start_gateway();
        let door = Door::of(world);
        let long = "n".repeat(1_000_000);
        for tool in ["read", "write", "patch"] {
            let params = json!({"path": long, "content": "x", "oldText": "x", "newText": "y"});
            let wanted: &[&str] = match tool {
                "read" => &["path"],
                "write" => &["path", "content"],
                _ => &["path", "oldText", "newText"],
            };
            let params: serde_json::Map<_, _> =
                wanted.iter().map(|it| ((*it).to_owned(), params[*it].clone())).collect();
            let (text, is_error) = world.tool(tool, params.into());
            assert!(is_error && text.contains("name is too long"), "{tool}: {:.200}", text);
        }
        let run = json!({"argv": [long]}).to_string();
        let reply = door.post(&format!("{EXEC}/stream"), run.as_bytes());
        let last = reply.lines().pop().expect("an end");
        assert_eq!((&last["type"], &last["exitCode"]), (&json!("exit"), &json!(127)));
    });
}

#[test]
fn one_request_a_connection_and_the_rest_is_not_looked_at() {
    let world = world();
    let door = Door::of(&world);
    let one = door.head("GET", "/api/health", "");
    let many = door.raw(one.repeat(20).as_bytes());
    assert_eq!(many.status, 200);
    assert!(!many.text().contains("HTTP/1.1"), "{}", many.text());
    let body = r#"{"tool":"exec","params":{"command":"touch smuggled"}}"#;
    let inner = door.head("POST", EXEC, &format!("Content-Length: {}\r\n", body.len()));
    let smuggled = format!("{inner}{body}");
    door.raw(format!("{}{smuggled}", door.head("GET", "/api/health", "")).as_bytes());
    door.serves();
    assert!(!world.workspace("a").join("smuggled").exists());
    assert_eq!(world.audit_if_any(), 0);
}

#[test]
fn http_1_0_is_served_to_its_close() {
    let world = world();
    let door = Door::of(&world);
    door.check("GET /api/health HTTP/1.0\r\nHost: localhost\r\n\r\n", 200);
    door.check("GET /api/health HTTP/1.0\r\n\r\n", 403);
    door.check("GET /api/health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505);
    let body = r#"{"argv":["echo","hi"]}"#;
    let lines = format!("Content-Length: {}\r\n", body.len());
    let head = door.head("POST", &format!("{EXEC}/stream"), &lines).replace("HTTP/1.1", "HTTP/1.0");
    let reply = door.raw(format!("{head}{body}").as_bytes());
    assert!(!reply.head.contains("chunked"), "{}", reply.head);
    let kinds: Vec<_> = reply.lines().iter().map(|it| it["type"].clone()).collect();
    assert_eq!(kinds, ["stdout", "exit"]);
}

#[test]
fn the_slowness_of_some_is_not_that_of_others() {
    let world = world();
    let door = Door::of(&world);
    // Half a head each: more of them than there are places.
    let heads: Vec<_> = (0..300).map(|_| half(&door, "GET / HTTP/1.1\r\nX: ")).collect();
    door.serves();
    assert_eq!(world.get("/api/health").status, 200);
    // Half a body each, by somebody who may call.
    let head = door.head("POST", EXEC, "Content-Length: 100\r\n");
    let bodies: Vec<_> = (0..150).map(|_| half(&door, &format!("{head}{{"))).collect();
    door.serves();
    // An upgrade and then nothing.
    let silent: Vec<_> = (0..20).map(|_| door.upgraded()).collect();
    door.serves();
    assert_eq!(world.get("/api/health").status, 200);
    drop((heads, bodies, silent));
}

fn half(door: &Door, text: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(&door.address).ok()?;
    stream.write_all(text.as_bytes()).ok()?;
    Some(stream)
}

#[test]
fn readers_that_do_not_read_hold_only_their_own_command() {
    let world = world();
    let door = Door::of(&world);
    let pid = world.gateway_pid();
    let body = r#"{"argv":["yes","a line that nobody reads"]}"#;
    let request = door.head(
        "POST",
        &format!("{EXEC}/stream"),
        &format!("Content-Length: {}\r\n", body.len()),
    );
    let streams: Vec<_> = (0..20).map(|_| half(&door, &format!("{request}{body}"))).collect();
    wait_until("all of them run", || {
        world.get("/api/health").json()["running"].as_u64() == Some(20)
    });
    assert_eq!(world.tool("exec", json!({"command": "echo hi"})).0, "Exit code: 0\nhi\n");
    let peak = peak_memory(pid);
    assert!(peak < 150_000, "the gateway grew to {peak} kB");
    drop(streams);
    wait_until("all of them have ended", || {
        world.get("/api/health").json()["running"].as_u64() == Some(0)
    });
}

#[test]
fn a_client_that_goes_ends_what_it_streams_and_nothing_else() {
    on_either_kind(|world| {
        world.start_gateway();
        let door = Door::of(world);
        let seconds = mark();
        let body = json!({"argv": ["sh", "-c", "echo on; exec sleep $0", seconds]}).to_string();
        let lines = format!("Content-Length: {}\r\n", body.len());
        let head = door.head("POST", &format!("{EXEC}/stream"), &lines);
        let mut stream = BufReader::new(door.connect());
        stream.get_mut().write_all(format!("{head}{body}").as_bytes()).expect("sent");
        crate::support::read_until(&mut stream, "stdout");
        // While a process becomes another program it shows no arguments.
        wait_until("it runs", || !processes_with(&seconds).is_empty());
        drop(stream);
        wait_until("the command is gone", || processes_with(&seconds).is_empty());
        world.verify_audit();
    });
}

#[test]
fn a_prompt_whose_asker_went_runs_to_its_end() {
    let world = some_world();
    world.write_cassette(&[
        r#"{"events":[{"toolCall":{"name":"exec","arguments":{"command":"echo x > did"}}}]}"#,
        r#"{"events":[{"text":"done"}]}"#,
    ]);
    world.start_gateway();
    let door = Door::of(&world);
    let body = json!({"message": "go"}).to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let head = door.head("POST", "/api/agents/a/prompt", &lines);
    drop(half(&door, &format!("{head}{body}")));
    wait_until("the file is there", || world.workspace("a").join("did").exists());
    wait_until("the turn is over", || world.audit().iter().all(|it| it["phase"].is_string()));
    door.serves();
}

/// Sends frames behind an upgrade; what the last frame says.
#[track_caller]
fn last_word(door: &Door, frames: &[u8]) -> serde_json::Value {
    let mut stream = door.upgraded();
    let _ = stream.write_all(frames);
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    let mut rest = told.as_slice();
    let mut last = None;
    while let [kind, a, b, c, d, ..] = *rest {
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        last = Some((kind, rest[5..5 + length].to_vec()));
        rest = &rest[5 + length..];
    }
    let (kind, payload) = last.expect("a frame");
    assert_eq!(kind, 6, "the last frame is the exit");
    serde_json::from_slice(&payload).expect("JSON")
}

#[test]
fn frames_that_make_no_sense_end_the_conversation_with_a_word() {
    let world = world();
    let door = Door::of(&world);
    let sleep = command(&["sleep", "300"]);
    let after = |more: &[u8]| [sleep.as_slice(), more].concat();
    for (frames, want) in [
        (frame(1, b"x"), "first frame"),
        (frame(255, b"x"), "first frame"),
        (b"\x00\xff\xff\xff\xff".to_vec(), "over 64 KiB"),
        (frame(0, b"{"), "not JSON"),
        (frame(0, b""), "not JSON"),
        (frame(0, b"{}"), "argv"),
        (frame(0, &[b'['; 60_000]), "not JSON"),
        (frame(0, &[b'x'; 65_536]).repeat(70), "over 4 MiB"),
        (after(&sleep), "kind 0"),
        (after(&frame(4, b"x")), "kind 4"),
        (after(&frame(6, b"{}")), "kind 6"),
        (after(&frame(3, b"")), "kind 3"),
        (after(&frame(3, b"\x00")), "kind 3"),
        (after(&frame(3, b"\x40")), "kind 3"),
        (after(&frame(2, b"x")), "kind 2"),
        (after(&[frame(2, b""), frame(1, b"x")].concat()), "after its end"),
        (after(&frame(1, &[b'x'; 65_536]).repeat(100)), "window"),
    ] {
        let told = last_word(&door, &frames);
        assert!(told["error"].as_str().is_some_and(|it| it.contains(want)), "{want}: {told}");
        assert_eq!(told["status"], 400, "{told}");
    }
    assert_eq!(last_word(&door, &after(&frame(3, b"\x09")))["exitCode"], 137);
    let elsewhere = "Upgrade: beige-exec/1\r\nConnection: Upgrade\r\n";
    door.check(&door.head("GET", "/api/agents", elsewhere), 400);
    door.check(&door.head("POST", EXEC, &format!("{elsewhere}Content-Length: 1\r\n")), 400);
    world.verify_audit();
}

#[test]
fn a_hang_up_at_any_moment_leaves_nothing_behind() {
    on_either_kind(|world| {
        world.start_gateway();
        let door = Door::of(world);
        let seconds = mark();
        let lines = "Upgrade: beige-exec/1\r\nConnection: Upgrade\r\n";
        let head = door.head("POST", &format!("{EXEC}/stream"), lines).into_bytes();
        let whole = [head, command(&["sleep", &seconds]), frame(1, b"abc")].concat();
        let gateway = world.gateway_pid();
        world.exec(&["true"]).expect(0);
        // The sandbox itself, where it is one of the gateway's.
        let before = children_of(gateway);
        for end in (0..whole.len()).step_by(9).chain(std::iter::repeat_n(whole.len(), 25)) {
            let mut stream = door.connect();
            stream.write_all(&whole[..end]).expect("sent");
        }
        wait_until("no call is left", || {
            world.get("/api/health").json()["running"].as_u64() == Some(0)
        });
        wait_until("no command is left", || processes_with(&seconds).is_empty());
        wait_until("no child is left", || children_of(gateway) <= before);
        assert!(is_alive(gateway));
        world.verify_audit();
    });
}

/// Direct children of a process, zombies too.
fn children_of(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten();
    let lists = tasks.map(|it| std::fs::read_to_string(it.path().join("children")));
    lists.flatten().map(|it| it.split_whitespace().count()).sum()
}

#[test]
fn half_a_connection_over_the_socket_is_no_burden() {
    let world = world();
    let idle: Vec<_> = (0..100).map(|_| UnixStream::connect(world.api_socket())).collect();
    assert_eq!(world.get("/api/agents").status, 200);
    let mut one = UnixStream::connect(world.api_socket()).expect("a connection");
    one.write_all(b"GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    one.shutdown(std::net::Shutdown::Write).expect("half closed");
    let mut first = String::new();
    BufReader::new(one).read_line(&mut first).expect("an answer");
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    drop(idle);
}
