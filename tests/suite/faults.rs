//! Models that fail, in every way that a server and a network can: as many
//! calls as may help and not one more, a clear error, nothing lost of what was
//! said, and a session that goes on. Another model that answers instead is the
//! matter of `fallback`.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

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

/// What is answered to every call of a prompt, and how that prompt ends.
pub(crate) struct Case {
    answer: Answer,
    category: &'static str,
    words: Vec<&'static str>,
}

pub(crate) fn case(answer: Answer, category: &'static str, words: &[&'static str]) -> Case {
    Case { answer, category, words: words.to_vec() }
}

/// Plays each to a session of its own, all at once; `fine` is an answer `fine`.
#[track_caller]
pub(crate) fn check_all(world: &World, server: &ModelServer, fine: &Answer, cases: &[Case]) {
    let answers: Vec<Answer> = cases.iter().map(|it| it.answer.clone()).collect();
    let fine = fine.clone();
    server.answer_by(move |asked| {
        let said = asked.last_user();
        let number = said.strip_prefix("case ").and_then(|it| it.parse::<usize>().ok());
        number.map_or_else(|| fine.clone(), |it| answers[it].clone())
    });
    thread::scope(|scope| {
        for (number, case) in cases.iter().enumerate() {
            scope.spawn(move || check(world, server, number, case));
        }
    });
    server.check();
}

/// The prompt fails with that category and these words, by one call or, where
/// another may help, by three; the next prompt of the session is answered.
#[track_caller]
fn check(world: &World, server: &ModelServer, number: usize, case: &Case) {
    let shown = format!("{:?}", case.answer);
    let shown = &shown[..shown.floor_char_boundary(500)];
    let (key, message) = (format!("api:{number}"), format!("case {number}"));
    let told = world.events(&key, &message);
    let end = told.last().expect("an event").clone();
    assert_eq!(
        json!([end["type"], end["category"]]),
        json!(["error", case.category]),
        "{shown} {end}"
    );
    let text = end["message"].as_str().expect("a message");
    for word in ["All models failed for agent 'a'\n- p/m: "].iter().chain(&case.words) {
        assert!(text.contains(word), "{shown}: {text:?} does not say {word:?}");
    }
    let calls = server.asked().iter().filter(|it| it.last_user() == message).count();
    let want = if ["unavailable", "cut"].contains(&case.category) { 3 } else { 1 };
    assert_eq!(calls, want, "{shown}");
    let retries = told.iter().filter(|it| it["type"] == "retry").count();
    assert_eq!(retries, want - 1, "{shown}");
    let next = format!("more {number}");
    assert_eq!(world.answer(&key, &next), "fine", "{shown}");
    let asked = server.asked().into_iter().find(|it| it.last_user() == next).expect("asked");
    assert_eq!(asked.said().last(), Some(&format!("user: {next}")), "{shown}");
}

#[test]
fn a_refusal_is_an_error_that_says_what_to_do() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let mut cases = Vec::new();
    for (status, category, words) in [
        (400, "refused", &["400"][..]),
        (401, "refused", &["401", "apiKey"]),
        (403, "refused", &["403"]),
        (404, "refused", &["404"]),
        (422, "refused", &["422"]),
        (500, "unavailable", &["500"]),
        (503, "unavailable", &["503"]),
        (529, "unavailable", &["529"]),
    ] {
        let words = [&["`p`", "the reason is such"], words].concat();
        cases.push(case(Answer::error(status, "the reason is such"), category, &words));
    }
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
        cases.push(case(answer, category, &["`p`"]));
    }
    // The status decides; then the code; what people said never does.
    let too_long = json!({"error": {"message": "This model's maximum context length is 9 tokens",
        "type": "invalid_request_error", "code": "context_length_exceeded"}});
    cases.push(case(Answer::status(400, &too_long.to_string()), "context_length", &[]));
    cases.push(case(Answer::status(500, &too_long.to_string()), "unavailable", &[]));
    check_all(&world, &server, &says("fine"), &cases);
    world.verify_audit();
    // No ghost asks once more: all that could has ended with the gateway.
    let count = server.asked().len();
    world.run(["gateway", "stop"]).expect(0);
    assert_eq!(server.asked().len(), count);
}

#[test]
fn a_failed_turn_is_one_warning_in_the_log_and_uses_nothing() {
    let server = ModelServer::answering(|asked| match asked.last_user().as_str() {
        "401" => Answer::error(401, &format!("wrong key {KEY}")),
        "429" => Answer::error(429, "slowly"),
        "500" => Answer::error(500, "broken"),
        "cut" => Answer::stream().text("half").cut(),
        _ => says("fine"),
    });
    let world = some_world();
    world.model(&server, "");
    replace(&world, "gateway: {", "gateway: { log: { level: 'debug' },");
    world.start_gateway();
    let check = |message: &str, category: &str| {
        let key = format!("api:{message}");
        let told = world.events(&key, message);
        assert_eq!(told.last().expect("an event")["category"], category);
        let is_used = told.iter().any(|it| it["type"] == "usage");
        assert_eq!(is_used, category == "cut", "{told:?}");
        let turn = format!("the turn of `a` in `{key}` with p/m failed ({category}): ");
        let log = world.gateway_log();
        let lines: Vec<&str> = log.lines().filter(|it| it.contains(&turn)).collect();
        assert!(lines.len() == 1 && lines[0].contains(" WARN "), "{turn}: {log}");
    };
    thread::scope(|scope| {
        for (message, category) in [("401", "refused"), ("500", "unavailable"), ("cut", "cut")] {
            scope.spawn(move || check(message, category));
        }
    });
    assert_eq!(world.answer("api:9", "go"), "fine");
    // From here on it cools down.
    check("429", "rate_limit");
    let log = world.gateway_log();
    assert!(!log.contains(KEY) && log.contains("is done"), "{log}");
    // The inner steps of a library are of no use to anybody.
    assert!(!log.contains("Call<"), "{log}");
}

#[test]
fn a_server_without_tls_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = thread::spawn(move || {
        // A pass each.
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().expect("a caller");
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("written");
            // Its end is the caller's.
            let _ = stream.read_to_end(&mut Vec::new());
        }
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
    // A5: an error inside a stream that began well.
    let in_band = json!({"error": {"code": 502, "message": "upstream is down"}, "choices": []});
    let overloaded = json!({"error": {"message": "overloaded"}});
    let mut cases = vec![
        case(error(in_band.clone()).done(), "unavailable", &["upstream is down"]),
        case(half().event(&in_band).done(), "unavailable", &["upstream is down"]),
        case(half().finish("error").done(), "unavailable", &[]),
        case(error(overloaded), "unavailable", &["overloaded"]),
        // RA10: an end without an end.
        case(half().cut(), "cut", &[]),
        case(half().text("Hello from ").until_close(), "cut", &[]),
        case(half().reset(), "cut", &[]),
        case(half(), "cut", &[]),
        case(Answer::stream(), "cut", &[]),
        case(half().bytes("data: {\"choices\":[{\"del").cut(), "cut", &[]),
        case(Answer::stream().done(), "cut", &[]),
        // Junk.
        case(half().data("nope").done(), "unavailable", &["`p`", "nope"]),
        case(Answer::stream().bytes(b"\xff\xfe\x00\n\n\x01").cut(), "cut", &[]),
        case(Answer::stream().data("[1,2]").cut(), "unavailable", &["`p`"]),
        case(Answer::raw_bytes(b"HTTP/1.1 200 OK\r\n").reset(), "cut", &["`p`"]),
        case(Answer::stream().cut(), "cut", &["`p`"]),
        case(Answer::stream().reset(), "cut", &["`p`"]),
    ];
    // A head that is cut, and one that is none.
    for head in ["HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 2", ""] {
        cases.push(case(Answer::raw_bytes(head.as_bytes()).cut(), "cut", &["`p`"]));
    }
    for head in ["nope\r\n\r\n", "HTTP/9.9 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"] {
        cases.push(case(Answer::raw_bytes(head.as_bytes()).cut(), "unavailable", &["`p`"]));
    }
    let torn = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n";
    cases.push(case(Answer::raw_bytes(torn).cut(), "cut", &[]));
    check_all(&world, &server, &says("fine"), &cases);
    world.verify_audit();
}

/// One that is lost is another call, which the audit log and the person know
/// of, and over another connection.
#[test]
fn a_call_that_is_lost_on_its_way_is_not_sent_again_in_secret() {
    let server = ModelServer::new();
    let world = serving(&server, "concurrency: 1,");
    server.play([says("one"), Answer::raw_bytes(b"").cut(), says("two"), says("three")]);
    assert_eq!(world.answer("api:1", "go"), "one");
    // Over the connection that was kept.
    let told = world.events("api:1", "more");
    assert_eq!(told.last().expect("an event")["response"], "two");
    assert_eq!(told.iter().filter(|it| it["type"] == "retry").count(), 1);
    let ended: Vec<Value> = world.audit().iter().map(|it| it["exitCode"].clone()).collect();
    assert_eq!(ended, [json!(null), json!(0), json!(null), json!(1), json!(null), json!(0)]);
    assert_eq!(world.answer("api:1", "again"), "three");
    assert_eq!((server.asked().len(), server.connections()), (4, 2));
}

#[test]
fn text_of_a_failed_answer_is_kept_and_its_calls_are_not_run() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let touch = |name: &str| json!({"command": format!("touch {name}")}).to_string();
    let then = Answer::stream().text("Then").call(0, "c2", "exec", &touch("two")).cut();
    server.play([
        says_and_calls("First.", &[("c1", "exec", json!({"command": "touch one"}))]),
        then.clone(),
        then.clone(),
        then,
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
    server.answer_by(|_| Answer::stream().text("half").cut());
    thread::scope(|scope| {
        scope.spawn(|| {
            let reply = world.prompt("api:2", "go");
            let body = reply.json();
            assert_eq!((reply.status, &body["category"]), (502, &json!("cut")));
            assert_eq!(body["partial"], "half", "{body}");
        });
        let done = world.run(["prompt", "a", "go"]).expect(1);
        assert_eq!(done.text(), "half\n");
    });
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
    let quoted = format!("Incorrect API key provided: {KEY}. You can find yours elsewhere");
    // As a model's own words, in two pieces.
    let (start, rest) = KEY.split_at(9);
    // Cut off where it is shown.
    let junk = format!("{}{KEY}", "x".repeat(100 - KEY.len() / 2));
    let answers = [
        Answer::error(401, &quoted),
        Answer::status(500, &quoted),
        Answer::error(400, "no").header("x-debug", KEY),
        Answer::stream().event(&json!({"error": {"message": quoted, "code": 401}})),
        Answer::stream().text("half").event(&json!({"error": {"message": quoted}})),
        Answer::stream().data(&quoted),
        Answer::raw_bytes(format!("{quoted}\r\n\r\n").as_bytes()).cut(),
        Answer::stream().text(start).text(rest).cut(),
        Answer::stream().data(&junk),
    ];
    let count = answers.len();
    let server = ModelServer::answering(move |asked| {
        answers
            .get(asked.last_user().parse().unwrap_or(usize::MAX))
            .cloned()
            .unwrap_or(says("fine"))
    });
    let world = serving(&server, "");
    thread::scope(|scope| {
        for number in 0..count {
            let world = &world;
            scope.spawn(move || check_unseen(world, &number.to_string()));
        }
    });
    let told = json!(world.events("api:junk", &(count - 1).to_string())).to_string();
    assert!(told.contains("xx…") && !told.contains(&KEY[..KEY.len() / 2]), "{told}");
    check_no_file(&world);
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

/// A prompt that fails in each way to ask, and shows the key in none; then the
/// session goes on.
#[track_caller]
fn check_unseen(world: &World, message: &str) {
    let key = format!("api:{message}");
    thread::scope(|scope| {
        scope.spawn(|| {
            let told = json!(world.events(&key, message)).to_string();
            assert!(told.contains("\"error\"") && !told.contains(KEY), "{told}");
        });
        scope.spawn(|| {
            let reply = world.prompt(&format!("{key}-2"), message);
            assert!(reply.status == 502 && !reply.text().contains(KEY), "{}", reply.text());
        });
        let done = world.run(["prompt", "a", message]).expect(1);
        assert!(!done.stderr.contains(KEY) && !done.text().contains(KEY), "{done:?}");
    });
    assert_eq!(world.answer(&key, "more"), "fine");
    let history = world.get(&format!("/api/agents/a/sessions/{key}"));
    assert!(history.status == 200 && !history.text().contains(KEY), "{}", history.text());
    let shown = world.run(["sessions", "show", "a", &key]);
    assert!(!shown.text().contains(KEY), "{}", shown.text());
}

#[test]
fn a_redirect_takes_no_key_along() {
    let server = ModelServer::new();
    let other = ModelServer::new();
    let world = serving(&server, "");
    let to = format!("http://127.0.0.1:{}/v1/chat/completions", other.port());
    let redirect = |status| Answer::status(status, "").header("Location", &to);
    let cases = [301, 302, 303, 307, 308].map(|it| case(redirect(it), "refused", &["`p`"]));
    check_all(&world, &server, &says("fine"), &cases);
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
    // They all stall at once, and another model answers in their place.
    let world = some_world();
    let full = FullListener::new();
    let short = "timeouts: { connectSeconds: 3, firstByteSeconds: 6, idleSeconds: 6 },";
    let fallback = "fallbackModels: [{ provider: 'p', model: 'n' }],";
    let agents = world.agent("a", "", fallback)
        + &world.agent("b", "", fallback).replacen("provider: 'p'", "provider: 'q'", 1);
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
    let plays = stalls.clone();
    server.answer_by(move |asked| {
        let stall = plays.iter().find(|it| asked.body["model"] == "m" && it.0 == asked.last_user());
        stall.map_or_else(|| says("fine"), |it| it.1.clone())
    });
    let streams: Vec<_> = stalls
        .iter()
        .map(|(what, _)| (*what, world.stream(&format!("api:{what}"), what)))
        .collect();
    let unreached =
        crate::support::Stream::open(&world, "b", &json!({"message": "go", "sessionKey": "api:b"}));
    for (what, stream) in streams {
        let told = stream.rest();
        assert_eq!(told.last().expect("an event")["response"], "fine", "{what}: {told:#?}");
        let is_half = ["text", "call"].contains(&what);
        let retries: Vec<&Value> = told.iter().filter(|it| it["type"] == "retry").collect();
        assert_eq!(retries.len(), usize::from(is_half), "{what}: {told:#?}");
        let kept = world.messages(&format!("api:{what}"));
        let half = if is_half { "assistant: half" } else { "assistant: fine" };
        assert_eq!(kept[1], half, "{what}");
    }
    assert_eq!(unreached.rest().last().expect("an event")["response"], "fine");
    server.wait_in_flight(0);
    let audit = json!(world.audit()).to_string();
    for (setting, count) in [("idleSeconds", 3), ("firstByteSeconds", 2), ("connectSeconds", 1)] {
        assert_eq!(audit.matches(&format!("timeouts.{setting}")).count(), count, "{setting}");
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
    let cases = [
        Answer::raw_bytes(b"HTTP/1.1 200 OK\r\n").flood(line.as_bytes(), MUCH).cut(),
        Answer::raw_bytes(b"HTTP/1.1 200 OK\r\nX-").flood(&[b'j'; 8192], MUCH).cut(),
        Answer::stream().bytes("data: ").flood(&[b'j'; 8192], MUCH).cut(),
        Answer::raw_bytes(b"HTTP/1.1 500 No\r\n\r\n").flood(&[b'j'; 8192], MUCH).cut(),
    ];
    check_all(&world, &server, &says("fine"), &cases.map(|it| case(it, "unavailable", &["`p`"])));
    let after = peak_memory(pid);
    assert!(after < before + 64_000, "{before} kB before, {after} kB after");
}
