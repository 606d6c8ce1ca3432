//! What happens when a model fails and another may answer: who is asked next
//! and when, who cools down and for how long, and that nothing is asked, said
//! or run twice. `faults` has the ways to fail.

use std::fs;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Answer, ModelServer, Stream, World, provider_at, request, runs, says, some_world, wait_until,
};

const FALLBACK: &str = "fallbackModels: [{ provider: 'p', model: 'n' }],";

/// A world whose agent asks the model `m` of that server and, where `fields`
/// say so, others.
fn serving(server: &ModelServer, fields: &str) -> World {
    let world = some_world();
    world.model_of(server, "", &world.agent("a", "", fields));
    world.start_gateway();
    world
}

/// A world with two servers: the agent's `m` is at the first, its fallback `n`
/// at the other, the provider `q`.
fn serving_two(first: u16, other: u16, fields: &str) -> World {
    let world = some_world();
    let agent = world.agent("a", "", &FALLBACK.replace("'p'", "'q'"));
    let providers = format!("{} }}, q: {{ {}", provider_at(first, fields), provider_at(other, ""));
    world.write_config_of(&providers, &agent, "");
    world.start_gateway();
    world
}

/// A server whose `m` answers like this, and whose `n` says `fine`.
fn failing(answer: Answer) -> ModelServer {
    ModelServer::answering(
        move |asked| {
            if asked.body["model"] == "m" { answer.clone() } else { says("fine") }
        },
    )
}

/// The models that were asked, in their order.
fn asked(server: &ModelServer) -> String {
    let models = server.asked();
    let models = models.iter().map(|it| it.body["model"].as_str().unwrap_or("?"));
    models.collect::<Vec<_>>().join("")
}

/// The types of events.
/// The types of events; several of one kind in a row count as one, since the end
/// of a text that could begin a secret is told by itself.
fn kinds(told: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = told.iter().filter_map(|it| it["type"].as_str()).collect();
    kinds.dedup();
    kinds
}

fn of_kind<'a>(told: &'a [Value], kind: &str) -> Vec<&'a Value> {
    told.iter().filter(|it| it["type"] == kind).collect()
}

#[track_caller]
fn end(told: &[Value]) -> &Value {
    told.last().expect("an event")
}

/// Milliseconds that a retry is away.
fn wait_of(retry: &Value) -> u64 {
    retry["inMs"].as_u64().unwrap_or(u64::MAX)
}

/// What is known of a model in the file.
fn known(world: &World, model: &str) -> Value {
    let text = fs::read_to_string(world.home().join("data/provider-health.json"));
    let file: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
    file["providers"][model].clone()
}

fn limited(wait: &str) -> Answer {
    Answer::error(429, "slowly").header("retry-after", wait)
}

#[track_caller]
fn choose(world: &World, session: &str, body: &Value) -> (u16, Value) {
    let path = format!("/api/agents/a/sessions/{session}/model");
    let headers = [("Content-Type", "application/json")];
    let body = body.to_string();
    let reply = request(&world.api_socket(), "PATCH", &path, &headers, body.as_bytes());
    (reply.status, reply.json())
}

#[test]
fn a_model_that_stays_down_is_asked_three_times_with_growing_pauses() {
    let server = failing(Answer::error(529, "overloaded"));
    let world = serving(&server, "");
    let start = Instant::now();
    let told = world.events("api:1", "go");
    let took = start.elapsed();
    assert_eq!(asked(&server), "mmm");
    let retries = of_kind(&told, "retry");
    let attempts: Vec<&Value> = retries.iter().map(|it| &it["attempt"]).collect();
    assert_eq!(attempts, [&json!(1), &json!(2)]);
    let waits: Vec<u64> = retries.iter().map(|it| wait_of(it)).collect();
    assert!((750..=1_250).contains(&waits[0]) && (1_500..=2_500).contains(&waits[1]), "{waits:?}");
    assert!(took >= Duration::from_millis(waits.iter().sum()), "{took:?} of {waits:?}");
    assert!(retries[0]["reason"].as_str().is_some_and(|it| it.contains("529")), "{retries:?}");
    let end = end(&told);
    assert_eq!((&end["category"], &end["partial"]), (&json!("unavailable"), &Value::Null));
    let text = end["message"].as_str().expect("a message");
    assert!(text.starts_with("All models failed for agent 'a'\n- p/m: "), "{text}");
    // Nobody else need leave it alone.
    let file = known(&world, "p/m");
    assert_eq!((&file["consecutiveFailures"], &file["retryAfter"]), (&json!(3), &Value::Null));
    let stored = world.stored("api:1");
    assert_eq!(stored.len(), 2, "{stored:#?}");
    assert_eq!(stored[1]["errorMessage"], end["message"]);
    // RB10: no ghost asks once more, and the session goes on.
    server.play([says("fine")]);
    assert_eq!(world.answer("api:1", "more"), "fine");
    assert_eq!(asked(&server), "mmmm");
    assert_eq!(known(&world, "p/m"), json!({"consecutiveFailures": 0}));
}

#[test]
fn another_model_answers_at_once_whatever_the_first_fails_of() {
    let half = || Answer::stream().text("half");
    let silent = [
        Answer::error(529, "overloaded"),
        Answer::error(503, "later"),
        Answer::error(500, "broken"),
        Answer::error(401, "wrong key"),
        Answer::error(403, "no"),
        Answer::error(404, "no such model"),
        Answer::error(400, "no"),
        Answer::raw_bytes(b"").cut(),
        Answer::stream().reset(),
        Answer::status(200, "<html>"),
    ];
    let seen = [
        half().cut(),
        half().reset(),
        half().until_close(),
        half().data("junk"),
        half().event(&json!({"error": {"code": 502, "message": "gone"}})).done(),
    ];
    let answers: Vec<Answer> = silent.iter().chain(&seen).cloned().collect();
    let plays = answers.clone();
    let server = ModelServer::answering(move |asked| {
        let number: usize = asked.last_user().parse().expect("a number");
        if asked.body["model"] == "m" { plays[number].clone() } else { says("fine") }
    });
    let world = serving(&server, FALLBACK);
    thread::scope(|scope| {
        for (number, answer) in answers.iter().enumerate() {
            let (world, is_seen) = (&world, number >= silent.len());
            scope.spawn(move || {
                let told = world.events(&format!("api:{number}"), &number.to_string());
                let want = match is_seen {
                    false => &["turn_start", "model_fallback", "text_delta", "usage", "done"][..],
                    true => &[
                        "turn_start",
                        "text_delta",
                        "usage",
                        "retry",
                        "model_fallback",
                        "text_delta",
                        "usage",
                        "done",
                    ],
                };
                assert_eq!(kinds(&told), want, "{answer:?}");
                assert_eq!(end(&told)["response"], "fine", "{answer:?}");
                let to = of_kind(&told, "model_fallback")[0];
                assert_eq!((&to["provider"], &to["modelId"]), (&json!("p"), &json!("n")));
                assert!(to["reason"].as_str().is_some_and(|it| !it.is_empty()), "{to}");
                // Both say what failed just now.
                for retry in of_kind(&told, "retry") {
                    assert_eq!((&retry["model"], &retry["reason"]), (&json!("p/n"), &to["reason"]));
                }
                assert!(of_kind(&told, "retry").iter().all(|it| wait_of(it) == 0), "{told:#?}");
            });
        }
    });
    let models = asked(&server);
    let count = answers.len();
    assert_eq!((models.matches('m').count(), models.matches('n').count()), (count, count));
    // Each call has its own lines in the audit log.
    let records = world.audit();
    let ended = |model: &str, code: u64| {
        let is_it = |it: &&Value| it["tool"] == model && it["exitCode"] == code;
        records.iter().filter(is_it).count()
    };
    assert_eq!((records.len(), ended("p/m", 1), ended("p/n", 0)), (4 * count, count, count));
    world.verify_audit();
}

#[test]
fn a_model_that_refuses_while_another_answers_is_told() {
    let server = failing(Answer::error(401, "wrong key"));
    let world = serving(&server, FALLBACK);
    let done = world.run(["prompt", "a", "go"]).expect(0);
    assert_eq!(done.text(), "fine\n");
    let told = "beige prompt: another model answered, p/n: ";
    assert!(done.stderr.starts_with(told) && done.stderr.contains("wrong key"), "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    let log = world.gateway_log();
    let line = log.lines().find(|it| it.contains("p/m refuses, and p/n answers in its place: "));
    assert!(line.is_some_and(|it| it.contains("WARN") && it.contains("wrong key")), "{log}");
    // A program has it in what it reads.
    for (form, word) in [("--json", "fallback"), ("--stream-json", "model_fallback")] {
        let done = world.run(["prompt", "a", "go", form]).expect(0);
        assert_eq!(done.stderr, "", "{}", done.text());
        assert!(done.text().contains(word), "{}", done.text());
    }
}

#[test]
fn what_was_said_is_never_said_twice() {
    let server = ModelServer::playing([
        Answer::stream().text("The answer").cut(),
        says("The answer is 7."),
        says("Yes."),
    ]);
    let world = serving(&server, FALLBACK);
    let told = world.events("api:1", "go");
    assert_eq!(end(&told)["response"], "The answer is 7.");
    let stored = world.stored("api:1");
    let stops: Vec<&Value> = stored[1..].iter().map(|it| &it["stopReason"]).collect();
    assert_eq!(stops, ["error", "stop"]);
    assert_eq!((&stored[1]["model"], &stored[2]["model"]), (&json!("m"), &json!("n")));
    // Who answered next did not see the half, nor does who answers later.
    assert_eq!(server.last().said()[1..], ["user: go"]);
    assert_eq!(world.answer("api:1", "sure?"), "Yes.");
    let said = server.last().said();
    assert_eq!(said[1..], ["user: go", "assistant: The answer is 7.", "user: sure?"]);
}

/// RA1, with a tool in the answer that is cut and in the one that takes its
/// place.
#[test]
fn nothing_runs_twice_and_a_prompt_stays_with_who_answered() {
    let server = ModelServer::new();
    let call = json!({"command": "echo run >>ghost.log"}).to_string();
    server.play([
        Answer::stream().call(0, "c1", "exec", &call).cut(),
        runs("c1", "echo run >>ghost.log"),
        says("done"),
        says("hello"),
    ]);
    let world = serving(&server, FALLBACK);
    let told = world.events("api:1", "go");
    assert_eq!(end(&told)["response"], "done");
    assert_eq!(asked(&server), "mnn");
    assert_eq!(of_kind(&told, "model_fallback").len(), 1);
    assert_eq!(of_kind(&told, "tool_start").len(), 1);
    let ran =
        world.audit().iter().filter(|it| it["type"] == "core_tool").cloned().collect::<Vec<_>>();
    assert!(ran.len() == 2 && ran.iter().all(|it| it["model"] == "p/n"), "{ran:#?}");
    // The next prompt begins with the first choice again.
    assert_eq!(world.answer("api:1", "more"), "hello");
    assert_eq!(asked(&server), "mnnm");
    world.run(["gateway", "stop"]).expect(0);
    let log = fs::read_to_string(world.workspace("a").join("ghost.log")).expect("it ran");
    assert_eq!((log.as_str(), server.asked().len()), ("run\n", 4));
}

#[test]
fn a_short_cool_down_is_waited_for_and_never_shortened() {
    let server = ModelServer::playing([limited("1"), says("fine")]);
    let world = serving(&server, "");
    let start = Instant::now();
    let told = world.events("api:1", "go");
    let took = start.elapsed();
    assert_eq!(end(&told)["response"], "fine");
    assert_eq!(asked(&server), "mm");
    let retries = of_kind(&told, "retry");
    assert_eq!(retries.len(), 1, "{told:#?}");
    let wait = wait_of(retries[0]);
    assert!((900..=1_100).contains(&wait) && took >= Duration::from_secs(1), "{wait} {took:?}");
    let reason = retries[0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("429") && reason.contains("wait 1 s"), "{reason}");
    assert_eq!(known(&world, "p/m"), json!({"consecutiveFailures": 0}));
}

/// E3, RB11: for all sessions, over a restart and in other processes.
#[test]
fn who_cools_down_is_not_asked_by_anybody() {
    let server = failing(Answer::error(429, "slowly"));
    let world = serving(&server, "");
    let reply = world.prompt("api:1", "go");
    let body = reply.json();
    assert_eq!((reply.status, &body["category"]), (502, &json!("rate_limit")));
    assert_eq!(asked(&server), "m");
    let file = known(&world, "p/m");
    let moment = |name: &str| file[name].as_str().unwrap_or_default().to_owned();
    let minute = |text: &str| {
        let clock: Vec<u64> =
            text[11..16].split(':').map(|it| it.parse().expect("digits")).collect();
        clock[0] * 60 + clock[1]
    };
    let (from, until) = (moment("rateLimitedAt"), moment("retryAfter"));
    assert_eq!((minute(&from) + 5) % 1_440, minute(&until), "{file}");
    assert_eq!(from[16..], until[16..], "to the second");
    let cools = |body: &Value| body["error"].as_str().is_some_and(|it| it.contains("cools down"));
    // A person sees it where a person looks, and a stranger does not.
    let told = world.run(["gateway", "status"]).expect(0).text();
    let line = told.lines().find(|it| it.starts_with("model p/m cools down for ")).expect("a line");
    assert!(line.contains(" s more: ") && line.contains("429"), "{line}");
    assert!(!told.contains("model p/n"), "{told}");
    let told = world.run(["gateway", "status", "--json"]).expect(0).json();
    let [cooling] = told["health"]["cooling"].as_array().expect("a list").as_slice() else {
        panic!("{told}");
    };
    assert_eq!((&cooling["provider"], &cooling["modelId"]), (&json!("p"), &json!("m")));
    assert!(cooling["seconds"].as_u64().is_some_and(|it| (200..=300).contains(&it)), "{cooling}");
    assert!(cooling["reason"].as_str().is_some_and(|it| it.contains("429")), "{cooling}");
    assert!(world.get("/metrics").text().contains("\nbeige_models_cooling 1\n"));
    let reply = world.prompt("api:2", "go");
    assert!(reply.status == 502 && cools(&reply.json()), "{}", reply.text());
    world.run(["gateway", "restart"]).expect(0);
    let reply = world.prompt("api:3", "go");
    assert!(reply.status == 502 && cools(&reply.json()), "{}", reply.text());
    world.run(["gateway", "stop"]).expect(0);
    let done = world.run(["prompt", "a", "go"]).expect(1);
    assert!(done.stderr.contains("cools down"), "{done:?}");
    assert_eq!(asked(&server), "m");
    // Another model of the same provider answers, from the start.
    world.model_of(&server, "", &world.agent("a", "", FALLBACK));
    let done = world.run(["prompt", "a", "go"]).expect(0);
    assert_eq!(done.text(), "fine\n");
    world.start_gateway();
    let told = world.events("api:4", "go");
    assert_eq!(kinds(&told), ["turn_start", "model_fallback", "text_delta", "usage", "done"]);
    assert_eq!(asked(&server), "mnn");
}

#[test]
fn a_damaged_file_of_cool_downs_is_set_aside() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = some_world();
    world.model(&server, "");
    fs::create_dir_all(world.home().join("data")).expect("a folder");
    fs::write(world.home().join("data/provider-health.json"), "{\"providers\":").expect("written");
    world.start_gateway();
    assert_eq!(world.answer("api:1", "go"), "fine");
    let names = fs::read_dir(world.home().join("data")).expect("a folder");
    let names: Vec<String> =
        names.flatten().map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().any(|it| it.starts_with("provider-health.json.corrupt-")), "{names:?}");
    assert!(world.gateway_log().contains("provider-health.json did not read"));
}

/// Words of a rate limit without its status ask for a minute, which an abort
/// cuts short.
#[test]
fn an_abort_ends_a_wait_at_once() {
    let words = json!({"error": {"message": "Rate limit reached", "type": "tokens"}});
    let server = failing(Answer::stream().text("half").event(&words));
    let world = serving(&server, "");
    let mut stream = world.stream("api:1", "go");
    let retry = stream.until("retry");
    assert!((59_000..=66_000).contains(&wait_of(&retry)), "{retry}");
    let start = Instant::now();
    let reply = world.post("/api/agents/a/sessions/api:1/abort", &json!({}));
    assert_eq!(reply.json(), json!({"aborted": true}));
    let end = stream.until("error");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!((&end["category"], &end["partial"]), (&json!("aborted"), &json!("half")));
    let stored = world.stored("api:1");
    let stops: Vec<&Value> = stored[1..].iter().map(|it| &it["stopReason"]).collect();
    assert_eq!(stops, ["error", "aborted"]);
    assert_eq!(asked(&server), "m");
}

#[test]
fn a_prompt_says_on_standard_error_how_long_it_waits_and_for_what() {
    for with_gateway in [false, true] {
        for form in [None, Some("--json"), Some("--stream-json")] {
            let server = ModelServer::playing([limited("2"), says("fine")]);
            let world = some_world();
            world.model_of(&server, "", &world.agent("a", "", ""));
            if with_gateway {
                world.start_gateway();
            }
            let arguments: Vec<&str> = ["prompt", "a", "go"].into_iter().chain(form).collect();
            let done = world.run(arguments).expect(0);
            let line = done.stderr.lines().find(|it| it.starts_with("beige prompt: waiting "));
            let line = line.unwrap_or_else(|| panic!("{form:?}: {}", done.stderr));
            assert!(line.contains(" s: ") && line.contains("429"), "{line}");
        }
    }
}

#[test]
fn an_abort_ends_a_blocked_read_of_a_fallback_too() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.play([Answer::error(500, "broken"), Answer::stream().text("half.").hold(&gate)]);
    let world = serving(&server, FALLBACK);
    let mut stream = world.stream("api:1", "go");
    assert_eq!(stream.until("text_delta")["delta"], "half.");
    gate.wait_held(1);
    world.post("/api/agents/a/sessions/api:1/abort", &json!({}));
    let end = stream.until("error");
    assert_eq!((&end["category"], &end["partial"]), (&json!("aborted"), &json!("half.")));
    server.wait_in_flight(0);
    // It was nobody's failure.
    assert_eq!(known(&world, "p/n"), Value::Null);
    server.play([says("fine")]);
    assert_eq!(world.answer("api:1", "more"), "fine");
    assert_eq!(asked(&server), "mnm");
}

#[test]
fn a_provider_that_nobody_reaches_is_replaced_by_another() {
    let server = ModelServer::answering(|_| says("fine"));
    // Bound and not listening: nobody else can take it.
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("bound");
    let address = rustix::net::getsockname(&socket).expect("an address");
    let port = SocketAddr::try_from(address).expect("an address").port();
    let world = serving_two(port, server.port(), "");
    let told = world.events("api:1", "go");
    assert_eq!(end(&told)["response"], "fine");
    let to = of_kind(&told, "model_fallback")[0];
    assert_eq!((&to["provider"], &to["modelId"]), (&json!("q"), &json!("n")));
    assert!(to["reason"].as_str().is_some_and(|it| it.contains("refused")), "{to}");
    assert!(known(&world, "p/m")["lastError"].as_str().is_some_and(|it| it.contains("refused")));
}

/// Each fault once at a pool of one worker, and an abort: it is free after each.
#[test]
fn no_slot_is_lost_by_any_fault() {
    let server = ModelServer::new();
    let other = ModelServer::answering(|_| says("other"));
    let world =
        serving_two(server.port(), other.port(), "concurrency: 1, timeouts: { idleSeconds: 3 },");
    let gate = server.gate();
    let half = || Answer::stream().text("half");
    let faults = [
        Answer::error(500, "broken"),
        Answer::error(401, "no"),
        Answer::error(400, "no"),
        Answer::raw_bytes(b"").cut(),
        Answer::raw_bytes(b"HTTP/1.1 200").reset(),
        half().cut(),
        half().reset(),
        half().data("junk").hold(&gate),
        half().event(&json!({"error": {"message": "no"}})).hold(&gate),
        half().hold(&gate),
        half().flood(&[b'j'; 8192], 100 << 20),
    ];
    for (number, fault) in faults.iter().enumerate() {
        server.play([fault.clone()]);
        assert_eq!(world.answer(&format!("api:{number}"), "go"), "other", "{fault:?}");
        check_free(&world);
    }
    server.play([half().hold(&gate)]);
    let mut stream = world.stream("api:abort", "go");
    stream.until("text_delta");
    world.post("/api/agents/a/sessions/api:abort/abort", &json!({}));
    assert_eq!(stream.until("error")["category"], "aborted");
    check_free(&world);
    server.play([says("first")]);
    assert_eq!(world.answer("api:end", "go"), "first");
}

/// The pool of `p` has one worker at most, and it has nothing to do.
#[track_caller]
fn check_free(world: &World) {
    let load = || {
        let health = world.get("/api/health").json();
        let of_p = health["providers"]
            .as_array()
            .and_then(|it| it.iter().find(|it| it["provider"] == "p"))
            .cloned();
        of_p.unwrap_or_default()
    };
    wait_until("its worker is free", || load()["running"] == 0 && load()["queued"] == 0);
    assert!(load()["workers"].as_u64().is_some_and(|it| it <= 1), "{}", load());
}

/// A8: comments alone, longer than a silent stream may take.
#[test]
fn signs_of_life_keep_a_stream_however_long_it_takes() {
    const SIGNS: usize = 16;
    let server = ModelServer::new();
    let gate = server.gate();
    let answer = (0..SIGNS).fold(Answer::stream(), |it, _| it.comment("ka").hold(&gate));
    server.play([answer.text("at last").finish("stop").done()]);
    let world = some_world();
    world.model(&server, "timeouts: { idleSeconds: 3 },");
    world.start_gateway();
    let start = Instant::now();
    let stream = world.stream("api:1", "go");
    for _ in 0..SIGNS {
        gate.wait_held(1);
        thread::park_timeout(Duration::from_millis(250));
        gate.let_one();
    }
    let told = stream.rest();
    assert_eq!(end(&told)["response"], "at last");
    assert!(start.elapsed() > Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(asked(&server), "m");
}

/// E6, RB14: what is wrong on our side is no model's failure.
#[test]
fn a_session_that_is_locked_is_no_models_failure() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = serving(&server, FALLBACK);
    assert_eq!(world.answer("api:1", "go"), "fine");
    let file = File::options().append(true).open(world.session_file("api:1")).expect("a session");
    file.lock().expect("locked");
    let reply = world.prompt("api:1", "more");
    let body = reply.json();
    assert_eq!((reply.status, &body["category"]), (409, &json!("conflict")), "{body}");
    assert!(!reply.text().contains("All models failed"), "{body}");
    file.unlock().expect("unlocked");
    assert_eq!(asked(&server), "m");
    assert_eq!(known(&world, "p/m"), Value::Null);
    // RA2: two prompts to one session are both answered by the first choice.
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(world.answer("api:1", "more"), "fine"));
        }
    });
    assert_eq!(asked(&server), "mmm");
}

/// C6: the model that is chosen is the one that is dialled.
#[test]
fn a_session_is_answered_by_the_model_that_was_chosen_for_it() {
    let server = ModelServer::answering(|_| says("first"));
    let other = ModelServer::answering(|_| says("other"));
    let world = serving_two(server.port(), other.port(), "");
    let n = json!({"provider": "q", "modelId": "n"});
    assert_eq!(world.answer("api:1", "go"), "first");
    assert_eq!(choose(&world, "api:1", &n), (200, json!({"ok": true})));
    assert_eq!(world.answer("api:1", "go"), "other");
    assert_eq!(world.answer("api:2", "go"), "first");
    assert_eq!((server.asked().len(), other.asked().len()), (2, 1));
    // It is not there yet, and stays chosen over a restart and without a gateway.
    assert_eq!(choose(&world, "api:3", &n), (200, json!({"ok": true})));
    world.run(["gateway", "restart"]).expect(0);
    assert_eq!(world.answer("api:3", "go"), "other");
    let settings = fs::read_to_string(world.home().join("sessions/session-settings.json"));
    let settings: Value = serde_json::from_str(&settings.expect("a file")).expect("JSON");
    assert_eq!(settings, json!({"api:1": {"model": n}, "api:3": {"model": n}}));
    // A prompt's own choice is for that prompt.
    let m = json!({"provider": "p", "modelId": "m"});
    let body = json!({"message": "go", "sessionKey": "api:1", "model": m});
    assert_eq!(world.post("/api/agents/a/prompt", &body).json()["response"], "first");
    assert_eq!(world.answer("api:1", "go"), "other");
    // A fresh session has no choice; the one before is chosen for by its id.
    world.post("/api/agents/a/sessions/new", &json!({"sessionKey": "api:1"}));
    assert_eq!(world.answer("api:1", "go"), "first");
    let listed = world.get("/api/agents/a/sessions").json();
    let id_of = |key: Value| {
        let all = listed["sessions"].as_array().expect("sessions");
        let found = all.iter().find(|it| it["key"] == key).expect("a session");
        found["sessionId"].as_str().expect("an id").to_owned()
    };
    assert_eq!(choose(&world, &id_of(json!("api:2")), &n).0, 200);
    assert_eq!(world.answer("api:2", "go"), "other");
    let (status, answer) = choose(&world, &id_of(Value::Null), &n);
    assert!(status == 409 && answer["error"].to_string().contains("resume"), "{answer}");
    // An id that is mistyped is not taken for a key that nobody will ever use.
    let id = id_of(json!("api:2"));
    let (start, last) = id.split_at(id.len() - 1);
    let mistyped = format!("{start}{}", if last == "0" { "1" } else { "0" });
    let (status, answer) = choose(&world, &mistyped, &m);
    let hint = format!("did you mean `{id}`");
    assert!(status == 404 && answer["error"].to_string().contains(&hint), "{answer}");
    assert_eq!(world.answer("api:2", "go"), "other");
    // What was chosen is told wherever a session is.
    let model_of = |session: &Value| session["model"].clone();
    let listed = world.get("/api/agents/a/sessions").json();
    let all = listed["sessions"].as_array().expect("sessions");
    let models: Vec<(&str, Value)> =
        all.iter().filter_map(|it| Some((it["key"].as_str()?, model_of(it)))).collect();
    let chosen = |key: &str| models.iter().find(|it| it.0 == key).map(|it| it.1.clone());
    assert_eq!((chosen("api:1"), chosen("api:2")), (Some(Value::Null), Some(n.clone())));
    assert_eq!(model_of(&world.get("/api/agents/a/sessions/api:2").json()["session"]), n);
    let told = world.run(["sessions", "list"]).expect(0).text();
    assert_eq!(told.matches("  [q/n] go").count(), 2, "{told}");
    let told = world.run(["sessions", "show", "api:2"]).expect(0).text();
    assert!(told.contains("\nmodel     q/n\n"), "{told}");
    world.run(["gateway", "stop"]).expect(0);
    let alone = world.run(["prompt", "a", "--session", "api:3", "go"]).expect(0);
    assert_eq!(alone.text(), "other\n");
}

#[test]
fn only_models_of_the_list_are_chosen_and_those_before_are_left_out() {
    let server = ModelServer::answering(|asked| match asked.body["model"].as_str() {
        Some("m") => says("first"),
        _ => Answer::error(401, "no"),
    });
    let world = serving(&server, FALLBACK);
    let refused = |body: Value, want: u16, part: &str| {
        let (status, answer) = choose(&world, "api:1", &body);
        let text = answer["error"].as_str().unwrap_or_default().to_owned();
        assert!(status == want && text.contains(part), "{status} {text}");
    };
    refused(json!({"provider": "p", "modelId": "nope"}), 403, "p/nope");
    refused(json!({"provider": "q", "modelId": "m"}), 403, "p/m, p/n");
    refused(json!({}), 400, "`provider`");
    refused(json!({"provider": "p"}), 400, "`modelId`");
    let body = json!({"message": "go", "model": {"provider": "p", "modelId": "nope"}});
    assert_eq!(world.post("/api/agents/a/prompt", &body).status, 403);
    let path = "/api/agents/nobody/sessions/api:1/model";
    let headers = [("Content-Type", "application/json")];
    assert_eq!(request(&world.api_socket(), "PATCH", path, &headers, b"{}").status, 404);
    assert_eq!(server.asked().len(), 0);
    // From the chosen one on: the first choice is not fallen back to.
    let n = json!({"provider": "p", "modelId": "n"});
    assert_eq!(choose(&world, "api:1", &n).0, 200);
    let body = world.prompt("api:1", "go").json();
    let text = body["error"].as_str().unwrap_or_default();
    assert!(text.contains("- p/n: ") && !text.contains("p/m"), "{text}");
    assert_eq!(asked(&server), "n");
    // One that the agent may no longer use counts as not chosen.
    world.model(&server, "");
    world.run(["gateway", "restart"]).expect(0);
    assert_eq!(world.answer("api:1", "go"), "first");
}

#[test]
fn a_session_of_another_agent_is_none_to_choose_for() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = some_world();
    let agents = world.agent("a", "", "") + &world.agent("b", "", "");
    world.model_of(&server, "", &agents);
    world.start_gateway();
    let body = json!({"message": "go", "sessionKey": "api:b"});
    Stream::open(&world, "b", &body).rest();
    let (status, answer) = choose(&world, "api:b", &json!({"provider": "p", "modelId": "m"}));
    assert!(status == 409 && answer["error"].as_str().is_some_and(|it| it.contains("`b`")));
}

#[test]
fn all_models_of_an_agent_are_told() {
    let world = some_world();
    let fields = "fallbackModels: [{ provider: 'p', model: 'n', thinkingLevel: 'high' }],";
    world.write_config(&world.agent("a", "", fields), "");
    world.start_gateway();
    let models = world.get("/api/agents/a/models").json();
    let told = models["models"].as_array().expect("a list").iter();
    let told: Vec<Value> =
        told.map(|it| json!([it["provider"], it["id"], it["thinkingLevel"]])).collect();
    assert_eq!(told, [json!(["p", "m", "off"]), json!(["p", "n", "high"])]);
    let agent = world.get("/api/agents").json()["agents"][0].clone();
    assert_eq!(agent["model"], json!({"provider": "p", "model": "m", "thinkingLevel": "off"}));
    let fallbacks = json!([{"provider": "p", "model": "n", "thinkingLevel": "high"}]);
    assert_eq!(agent["fallbackModels"], fallbacks);
    assert_eq!(world.get("/api/config").json()["agents"]["a"]["fallbackModels"], fallbacks);
}
