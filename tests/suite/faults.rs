//! Models that fail, in every way that a server and a network can: one call a
//! failure, a clear error, nothing lost of what was said, and a session that
//! goes on.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::support::{
    Answer, KEY, ModelServer, World, calls, peak_memory, provider_at, runs, says, says_and_calls,
    some_world,
};

fn serving(server: &ModelServer, fields: &str) -> World {
    let world = some_world();
    world.model(server, fields);
    world.start_gateway();
    world
}

/// Plays it: the prompt fails with that category and these words, by one call;
/// the next prompt of the session is answered.
#[track_caller]
fn check(world: &World, server: &ModelServer, answer: Answer, category: &str, words: &[&str]) {
    let shown = format!("{answer:?}");
    let shown = &shown[..shown.len().min(500)];
    let before = server.asked().len();
    let key = format!("api:{before}");
    server.play([answer]);
    let told = world.events(&key, "go");
    let end = told.last().expect("an event").clone();
    assert_eq!(json!([end["type"], end["category"]]), json!(["error", category]), "{shown} {end}");
    let message = end["message"].as_str().expect("a message");
    for word in words {
        assert!(message.contains(word), "{shown}: {message:?} does not say {word:?}");
    }
    assert_eq!(server.asked().len(), before + 1, "it was asked again: {shown}");
    server.play([says("fine")]);
    assert_eq!(world.answer(&key, "more"), "fine", "{shown}");
    let said = server.last().said();
    assert_eq!(said.last().map(String::as_str), Some("user: more"), "{shown}");
    server.check();
}

#[test]
fn a_refusal_is_one_call_and_an_error_that_says_what_to_do() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let refused = |status: u16, category: &str, words: &[&str]| {
        let answer = Answer::error(status, "the reason is such");
        let words = [&["`p`", "the reason is such"][..], words].concat();
        check(&world, &server, answer, category, &words);
    };
    refused(400, "refused", &["400"]);
    refused(401, "refused", &["401", "apiKey"]);
    refused(403, "refused", &["403"]);
    refused(404, "refused", &["404"]);
    refused(422, "refused", &["422"]);
    refused(429, "rate_limit", &["429"]);
    refused(500, "unavailable", &["500"]);
    refused(503, "unavailable", &["503"]);
    refused(529, "unavailable", &["529"]);
    let html = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head></html>";
    for (answer, category) in [
        (Answer::status(502, html), "unavailable"),
        (Answer::status(502, ""), "unavailable"),
        (Answer::status(401, ""), "refused"),
        (Answer::status(403, html), "refused"),
        (Answer::status(500, "{\"error\":\"just a text\"}"), "unavailable"),
        (Answer::status(400, "{\"error\":null}"), "refused"),
        (Answer::status(400, "\u{fffd}{"), "refused"),
        (Answer::status(400, &"x".repeat(5_000_000)), "refused"),
        (Answer::status(200, html), "refused"),
        (Answer::status(200, ""), "cut"),
        (Answer::status(204, ""), "cut"),
    ] {
        check(&world, &server, answer, category, &["`p`"]);
    }
    // The status decides; then the code; what people said never does.
    let too_long = json!({"error": {"message": "This model's maximum context length is 9 tokens",
        "type": "invalid_request_error", "code": "context_length_exceeded"}});
    check(&world, &server, Answer::status(400, &too_long.to_string()), "context_length", &[]);
    check(&world, &server, Answer::status(500, &too_long.to_string()), "unavailable", &[]);
    check(&world, &server, Answer::status(429, &too_long.to_string()), "rate_limit", &[]);
    world.verify_audit();
    // No ghost asks once more: all that could has ended with the gateway.
    let count = server.asked().len();
    world.run(["gateway", "stop"]).expect(0);
    assert_eq!(server.asked().len(), count);
}

#[test]
fn a_failed_turn_is_one_warning_in_the_log_and_uses_nothing() {
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, "");
    replace(&world, "gateway: {", "gateway: { log: { level: 'debug' },");
    world.start_gateway();
    for (number, (answer, category)) in [
        (Answer::error(401, &format!("wrong key {KEY}")), "refused"),
        (Answer::error(429, "slowly"), "rate_limit"),
        (Answer::error(500, "broken"), "unavailable"),
        (Answer::stream().text("half").cut(), "cut"),
    ]
    .into_iter()
    .enumerate()
    {
        server.play([answer]);
        let key = format!("api:{number}");
        let told = world.events(&key, "go");
        assert_eq!(told.last().expect("an event")["category"], category);
        let is_used = told.iter().any(|it| it["type"] == "usage");
        assert_eq!(is_used, category == "cut", "{told:?}");
        let turn = format!("the turn of `a` in `{key}` with p/m failed ({category}): ");
        let log = world.gateway_log();
        let lines: Vec<&str> = log.lines().filter(|it| it.contains(&turn)).collect();
        assert!(lines.len() == 1 && lines[0].contains(" WARN "), "{turn}: {log}");
    }
    server.play([says("fine")]);
    assert_eq!(world.answer("api:9", "go"), "fine");
    let log = world.gateway_log();
    assert!(!log.contains(KEY) && log.contains("is done"), "{log}");
    // The inner steps of a library are of no use to anybody.
    assert!(!log.contains("Call<"), "{log}");
}

#[test]
fn a_server_without_tls_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("written");
        // Its end is the caller's.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let world = some_world();
    world.write_config_of(&provider_at(port, ""), &world.agent("a", "", ""), "");
    replace(&world, "http://127", "https://127");
    world.start_gateway();
    let told = world.events("api:1", "go");
    server.join().expect("it was asked");
    let message = told.last().expect("an event")["message"].to_string();
    assert!(message.contains("write http:// in `llm.providers.p.baseUrl`"), "{message}");
    assert!(!message.contains("caFile"), "{message}");
}

/// Puts another text in place of one in the configuration.
#[track_caller]
fn replace(world: &World, old: &str, new: &str) {
    let text = fs::read_to_string(world.config_file()).expect("a configuration");
    assert!(text.contains(old), "{text}");
    fs::write(world.config_file(), text.replace(old, new)).expect("written");
}

#[test]
fn a_stream_that_fails_is_no_answer() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let half = || Answer::stream().text("half");
    let error = |it: Value| Answer::stream().event(&it);
    let fails = |answer: Answer, category: &str, words: &[&str]| {
        check(&world, &server, answer, category, words);
    };
    // A5: an error inside a stream that began well.
    let in_band = json!({"error": {"code": 502, "message": "upstream is down"}, "choices": []});
    fails(error(in_band.clone()).done(), "unavailable", &["upstream is down"]);
    fails(half().event(&in_band).done(), "unavailable", &["upstream is down"]);
    fails(half().finish("error").done(), "unavailable", &[]);
    fails(error(json!({"error": {"code": 429, "message": "slow"}})), "rate_limit", &["slow"]);
    fails(error(json!({"error": {"message": "overloaded"}})), "unavailable", &["overloaded"]);
    // RA10: an end without an end.
    fails(half().cut(), "cut", &[]);
    fails(half().text("Hello from ").until_close(), "cut", &[]);
    fails(half().reset(), "cut", &[]);
    fails(half(), "cut", &[]);
    fails(Answer::stream(), "cut", &[]);
    fails(half().bytes("data: {\"choices\":[{\"del").cut(), "cut", &[]);
    fails(Answer::stream().done(), "cut", &[]);
    // Junk.
    fails(half().data("nope").done(), "unavailable", &["`p`", "nope"]);
    fails(Answer::stream().bytes(b"\xff\xfe\x00\n\n\x01").cut(), "cut", &[]);
    fails(Answer::stream().data("[1,2]").cut(), "unavailable", &["`p`"]);
    // A head that is cut, and one that is none.
    for head in ["HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 2", ""] {
        fails(Answer::raw_bytes(head.as_bytes()).cut(), "cut", &["`p`"]);
    }
    fails(Answer::raw_bytes(b"HTTP/1.1 200 OK\r\n").reset(), "cut", &["`p`"]);
    for head in ["nope\r\n\r\n", "HTTP/9.9 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"] {
        fails(Answer::raw_bytes(head.as_bytes()).cut(), "unavailable", &["`p`"]);
    }
    fails(Answer::stream().cut(), "cut", &["`p`"]);
    fails(Answer::stream().reset(), "cut", &["`p`"]);
    let torn = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n";
    fails(Answer::raw_bytes(torn).cut(), "cut", &[]);
    world.verify_audit();
}

#[test]
fn a_call_that_is_lost_on_its_way_is_not_sent_again() {
    let server = ModelServer::new();
    let world = serving(&server, "concurrency: 1,");
    server.play([says("one"), Answer::raw_bytes(b"").cut(), says("two"), says("three")]);
    assert_eq!(world.answer("api:1", "go"), "one");
    // Over the connection that was kept.
    assert_eq!(world.prompt("api:1", "more").status, 502);
    assert_eq!((server.asked().len(), server.connections()), (2, 1));
    for want in ["two", "three"] {
        assert_eq!(world.answer("api:1", "again"), want);
    }
    assert_eq!((server.asked().len(), server.connections()), (4, 2));
}

#[test]
fn text_of_a_failed_answer_is_kept_and_its_calls_are_not_run() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let touch = |name: &str| json!({"command": format!("touch {name}")}).to_string();
    server.play([
        says_and_calls("First.", &[("c1", "exec", json!({"command": "touch one"}))]),
        Answer::stream().text("Then").call(0, "c2", "exec", &touch("two")).cut(),
    ]);
    let told = world.events("api:1", "go");
    let end = told.last().expect("an event");
    assert_eq!(
        json!([end["type"], end["category"], end["partial"]]),
        json!(["error", "cut", "First.\n\nThen"])
    );
    assert!(world.workspace("a").join("one").exists());
    assert!(!world.workspace("a").join("two").exists());
    let stored = world.stored("api:1");
    let last = stored.last().expect("a message");
    assert_eq!((&last["stopReason"], &last["role"]), (&json!("error"), &json!("assistant")));
    assert!(last["errorMessage"].is_string(), "{last}");
    server.play([says("fine")]);
    assert_eq!(world.answer("api:1", "more"), "fine");
    let said = server.last().said();
    assert_eq!(said[4..], ["assistant: Then", "user: more"]);
    // The same without a stream, and on the command line.
    server.play([Answer::stream().text("half").cut(), Answer::stream().text("half").cut()]);
    let reply = world.prompt("api:2", "go");
    let body = reply.json();
    assert_eq!((reply.status, &body["category"]), (502, &json!("cut")));
    assert_eq!(body["partial"], "half", "{body}");
    let done = world.run(["prompt", "a", "go"]).expect(1);
    assert_eq!(done.text(), "half\n");
}

#[test]
fn calls_that_fail_beside_others_leave_each_its_result() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    // D4: the second of three fails, and the model repeats the step.
    let step = |ids: [&str; 3]| {
        Answer::stream()
            .call(0, ids[0], "exec", r#"{"command":"echo 1"}"#)
            .call(1, ids[1], "exec", r#"{"command":"#)
            .call(2, ids[2], "exec", r#"{"command":"echo 3"}"#)
            .finish("tool_calls")
            .done()
    };
    server.play([step(["a", "b", "c"]), step(["d", "e", "f"]), step(["", "", ""]), says("fine")]);
    assert_eq!(world.answer("api:1", "go"), "fine");
    let messages = world.messages("api:1");
    for start in [2, 6, 10] {
        let [first, second, third] = &messages[start..start + 3] else { panic!("three") };
        assert!(first.ends_with("\n1\n") && third.ends_with("\n3\n"), "{messages:#?}");
        assert!(second.starts_with("toolResult error: "), "{messages:#?}");
    }
}

#[test]
fn ids_that_a_model_uses_again_stay_apart() {
    let server = ModelServer::playing([
        runs("call_0", "echo 1"),
        runs("call_0", "echo 2"),
        says("fine"),
        runs("call_0", "echo 3"),
        says("fine"),
    ]);
    let world = serving(&server, "");
    assert_eq!(world.answer("api:1", "go"), "fine");
    assert_eq!(world.answer("api:1", "more"), "fine");
    let results: Vec<String> =
        server.last().said().into_iter().filter(|it| it.starts_with("tool: ")).collect();
    let want = ["1", "2", "3"].map(|it| format!("tool: Exit code: 0\n{it}\n"));
    assert_eq!(results, want);
}

#[test]
fn a_key_that_a_server_echoes_goes_no_further() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let quoted = format!("Incorrect API key provided: {KEY}. You can find yours elsewhere");
    for answer in [
        Answer::error(401, &quoted),
        Answer::status(500, &quoted),
        Answer::error(400, "no").header("x-debug", KEY),
        Answer::stream().event(&json!({"error": {"message": quoted, "code": 401}})),
        Answer::stream().text("half").event(&json!({"error": {"message": quoted}})),
        Answer::stream().data(&quoted),
        Answer::raw_bytes(format!("{quoted}\r\n\r\n").as_bytes()).cut(),
    ] {
        server.play([answer.clone(), answer.clone(), answer.clone(), says("fine")]);
        let key = format!("api:{}", server.asked().len());
        check_unseen(&world, &key);
        assert_eq!(world.answer(&key, "more"), "fine");
    }
    // Cut off where it is shown.
    let junk = format!("{}{KEY}", "x".repeat(100 - KEY.len() / 2));
    server.play([Answer::stream().data(&junk)]);
    let told = json!(world.events("api:junk", "go")).to_string();
    assert!(told.contains("xx…") && !told.contains(&KEY[..KEY.len() / 2]), "{told}");
    check_no_file(&world);
    // As a model's own words, in two pieces.
    let (start, rest) = KEY.split_at(9);
    let answer = Answer::stream().text(start).text(rest).cut();
    server.play([answer.clone(), answer.clone(), answer]);
    check_unseen(&world, "api:words");
    // As the id, the name and the arguments of a call.
    server.play([calls(&[(KEY, KEY, json!({KEY: [KEY]}))]), says("fine")]);
    let told = json!(world.events("api:call", "go")).to_string();
    assert!(told.contains("tool_end") && !told.contains(KEY), "{told}");
    check_no_file(&world);
    // Nobody but its provider is told of it.
    let faults = server.take_violations();
    assert!(faults.iter().all(|it| it.contains("the key stands in the body")), "{faults:#?}");
}

/// The key in no file of the home: session, log, audit.
#[track_caller]
fn check_no_file(world: &World) {
    assert!(!world.gateway_log().contains(KEY));
    let found = std::process::Command::new("grep").args(["-rl", KEY]).arg(world.home()).output();
    assert_eq!(String::from_utf8_lossy(&found.expect("grep runs").stdout), "");
}

/// A prompt that fails in each way to ask, and shows the key in none.
#[track_caller]
fn check_unseen(world: &World, key: &str) {
    let told = json!(world.events(key, "go")).to_string();
    assert!(told.contains("\"error\"") && !told.contains(KEY), "{told}");
    let reply = world.prompt(key, "go");
    assert!(reply.status == 502 && !reply.text().contains(KEY), "{}", reply.text());
    let done = world.run(["prompt", "a", "go"]).expect(1);
    assert!(!done.stderr.contains(KEY) && !done.text().contains(KEY), "{done:?}");
    let history = world.get(&format!("/api/agents/a/sessions/{key}"));
    assert!(history.status == 200 && !history.text().contains(KEY), "{}", history.text());
    let shown = world.run(["sessions", "show", "a", key]);
    assert!(!shown.text().contains(KEY), "{}", shown.text());
}

#[test]
fn a_redirect_takes_no_key_along() {
    let server = ModelServer::new();
    let other = ModelServer::new();
    let world = serving(&server, "");
    for status in [301, 302, 303, 307, 308] {
        let to = format!("http://127.0.0.1:{}/v1/chat/completions", other.port());
        let answer = Answer::status(status, "").header("Location", &to);
        check(&world, &server, answer, "refused", &["`p`"]);
    }
    assert_eq!(other.connections(), 0);
}

#[test]
fn nobody_at_the_door() {
    let world = some_world();
    // A port that is bound and does not listen: nobody else can take it.
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("bound");
    let address = rustix::net::getsockname(&socket).expect("an address");
    let port = SocketAddr::try_from(address).expect("an address").port();
    world.write_config_of(&provider_at(port, ""), &world.agent("a", "", ""), "");
    world.start_gateway();
    let told = world.events("api:1", "go");
    let end = told.last().expect("an event");
    assert_eq!(end["category"], "unavailable", "{end}");
    let message = end["message"].as_str().expect("a message");
    assert!(message.contains("`p`") && message.contains("refused"), "{message}");
    // Now somebody is.
    drop(socket);
    let server = ModelServer::playing([says("fine")]);
    world.model(&server, "");
    world.run(["gateway", "restart"]).expect(0);
    assert_eq!(world.answer("api:1", "more"), "fine");
    assert_eq!(server.last().said()[1..], ["user: go", "user: more"]);
}

#[test]
fn a_model_that_stalls_is_left_in_its_time() {
    let server = ModelServer::new();
    let gate = server.gate();
    // They all stall at once.
    let world = some_world();
    let full = FullListener::new();
    let short = "timeouts: { connectSeconds: 3, firstByteSeconds: 6, idleSeconds: 6 },";
    let agents = world.agent("a", "", "")
        + &world.agent("b", "", "").replace("provider: 'p'", "provider: 'q'");
    let providers = format!(
        "{} }}, q: {{ {}",
        provider_at(server.port(), short),
        provider_at(full.port, short)
    );
    world.write_config_of(&providers, &agents, "");
    world.start_gateway();
    let stalls = [
        ("first byte", Answer::stream().hold(&gate)),
        ("head", Answer::raw_bytes(b"HTTP/1.1 200 OK\r\n").hold(&gate)),
        ("comment", Answer::stream().bytes(":\n\n").hold(&gate)),
        ("text", Answer::stream().text("half").hold(&gate)),
        ("call", Answer::stream().text("half").call(0, "c1", "exec", "{").hold(&gate)),
    ];
    let mut streams = Vec::new();
    for (number, (what, answer)) in stalls.iter().enumerate() {
        server.play([answer.clone()]);
        streams.push((what, world.stream(&format!("api:{what}"), "go")));
        server.wait_asked(number + 1);
    }
    let unreached =
        crate::support::Stream::open(&world, "b", &json!({"message": "go", "sessionKey": "api:b"}));
    for (what, stream) in streams {
        let told = stream.rest();
        let end = told.last().expect("an event");
        let partial = if ["text", "call"].contains(what) { json!("half") } else { Value::Null };
        let has_begun = !["first byte", "head"].contains(what);
        let setting = if has_begun { "timeouts.idleSeconds" } else { "timeouts.firstByteSeconds" };
        let got = json!([end["type"], end["category"], end["partial"]]);
        assert_eq!(got, json!(["error", "unavailable", partial]), "{what}: {end}");
        assert!(end["message"].as_str().is_some_and(|it| it.contains(setting)), "{what}: {end}");
    }
    let told = unreached.rest();
    let end = told.last().expect("an event");
    assert_eq!(end["category"], "unavailable", "{end}");
    let names_it = |it: &str| it.contains("timeouts.connectSeconds");
    assert!(end["message"].as_str().is_some_and(names_it), "{end}");
    server.wait_in_flight(0);
    for (what, _) in &stalls {
        server.play([says("fine")]);
        assert_eq!(world.answer(&format!("api:{what}"), "more"), "fine", "{what}");
    }
}

/// A listener with no room for another connection: who connects waits.
struct FullListener {
    port: u16,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullListener {
    fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        rustix::net::listen(&listener, 0).expect("a shorter line");
        let address = listener.local_addr().expect("an address");
        let soon = std::time::Duration::from_millis(200);
        let connect = |_| TcpStream::connect_timeout(&address, soon).ok();
        let waiting = (0..8).map_while(connect).collect();
        Self { port: address.port(), _listener: listener, _waiting: waiting }
    }
}

/// A8. That each sign begins the limits anew is shown by `provider::pool::watch`,
/// where time is a value; here, that comments are signs and nothing else.
#[test]
fn a_sign_of_life_is_one_whatever_it_says() {
    let server = ModelServer::new();
    let gate = server.gate();
    const SIGNS: usize = 30;
    let answer = (0..SIGNS).fold(Answer::stream(), |it, _| it.comment("ka").hold(&gate));
    server.play([answer.text("at last").finish("stop").done()]);
    let world = serving(&server, "");
    let stream = world.stream("api:1", "go");
    for _ in 0..SIGNS {
        gate.wait_held(1);
        gate.let_one();
    }
    let told = stream.rest();
    assert_eq!(told.last().expect("an event")["response"], "at last");
}

#[test]
fn what_never_ends_is_cut_and_costs_no_memory() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let pid = fs::read_to_string(world.home().join("gateway.pid")).expect("a pid");
    let digits = pid.split(|it: char| !it.is_ascii_digit()).find(|it| !it.is_empty());
    let pid: u32 = digits.expect("a number").parse().expect("a number");
    server.play([says("warm")]);
    world.answer("api:warm", "go");
    let before = peak_memory(pid);
    const MUCH: usize = 100 << 20;
    let line = format!("X-Junk: {}\r\n", "j".repeat(8000));
    let head = Answer::raw_bytes(b"HTTP/1.1 200 OK\r\n").flood(line.as_bytes(), MUCH).cut();
    check(&world, &server, head, "unavailable", &["`p`"]);
    let name = Answer::raw_bytes(b"HTTP/1.1 200 OK\r\nX-").flood(&[b'j'; 8192], MUCH).cut();
    check(&world, &server, name, "unavailable", &["`p`"]);
    let endless = Answer::stream().bytes("data: ").flood(&[b'j'; 8192], MUCH).cut();
    check(&world, &server, endless, "unavailable", &["`p`"]);
    let status = Answer::raw_bytes(b"HTTP/1.1 500 No\r\n\r\n").flood(&[b'j'; 8192], MUCH).cut();
    check(&world, &server, status, "unavailable", &["`p`"]);
    let after = peak_memory(pid);
    assert!(after < before + 64_000, "{before} kB before, {after} kB after");
}
