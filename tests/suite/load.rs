//! Many turns at once, and turns that are called off: the bound of a provider,
//! the order of its line, who waits for whom, and what it costs to wait.

use std::fs;
use std::process::Child;

use serde_json::json;

use crate::support::{
    Answer, Finished, ModelServer, Stream, World, end, memory, runs, says, some_world, threads,
    wait_until,
};

fn serving(server: &ModelServer, fields: &str) -> World {
    let world = some_world();
    world.model(server, fields);
    world.start_gateway();
    world
}

/// Waits until that many calls wait for the provider.
#[track_caller]
fn wait_queued(world: &World, count: u64) {
    wait_until("the line has grown", || {
        let health = world.get("/api/health").json();
        health["providers"][0]["queued"] == count
    });
}

#[test]
fn fifty_prompts_share_five_places_in_their_order() {
    let server = ModelServer::new();
    let gate = server.gate();
    let held = gate.clone();
    server.answer_by(move |asked| {
        Answer::stream().hold(&held).text(&asked.last_user()).finish("stop").done()
    });
    let world = some_world();
    let names: Vec<String> = (0..10).map(|it| format!("a{it}")).collect();
    let agents: String = names.iter().map(|it| world.agent(it, "", "")).collect();
    world.model_of(&server, "concurrency: 5,", &agents);
    world.start_gateway();
    let mut streams = Vec::new();
    for number in 0..50 {
        let body =
            json!({"message": format!("number {number}"), "sessionKey": format!("api:{number}")});
        streams.push(Stream::open(&world, &names[number % 10], &body));
        // One after another, so that their order is known.
        if number < 5 {
            gate.wait_held(number + 1);
        } else {
            wait_queued(&world, number as u64 - 4);
        }
    }
    assert_eq!((server.asked().len(), server.in_flight()), (5, 5));
    for number in 6..=50 {
        gate.let_one();
        server.wait_asked(number);
    }
    gate.open();
    for (number, stream) in streams.into_iter().enumerate() {
        let told = stream.rest();
        assert_eq!(told.last().expect("an event")["response"], format!("number {number}"));
    }
    let order: Vec<String> = server.asked().iter().map(|it| it.last_user()).collect();
    let want: Vec<String> = (0..50).map(|it| format!("number {it}")).collect();
    assert_eq!(order, want);
    assert_eq!(server.most_in_flight(), 5);
    assert!(server.connections() <= 5, "a place keeps its connection");
    world.verify_audit();
}

#[test]
fn a_place_is_held_for_a_call_and_not_for_a_turn() {
    let command = "touch started; while [ ! -e go ]; do sleep 0.02; done";
    let server = ModelServer::playing([runs("c1", command)]);
    let world = serving(&server, "concurrency: 1,");
    let first = world.stream("api:1", "go");
    let started = world.workspace("a").join("started");
    wait_until("the tool runs", || started.exists());
    server.play([says("meanwhile"), says("after")]);
    assert_eq!(world.answer("api:2", "go"), "meanwhile");
    fs::write(world.workspace("a").join("go"), "").expect("a file");
    assert_eq!(first.rest().last().expect("an event")["response"], "after");
}

#[test]
fn a_prompt_to_a_busy_session_waits_and_hears_all() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.play([
        Answer::stream().text("one").hold(&gate).finish("stop").done(),
        says("two"),
        says("three"),
    ]);
    let world = serving(&server, "");
    let mut streams = Vec::new();
    for (number, text) in ["first", "second", "third"].into_iter().enumerate() {
        streams.push(world.stream("api:1", text));
        wait_until("it is in line", || world.get("/api/health").json()["running"] == number + 1);
        gate.wait_held(1);
    }
    assert_eq!(server.asked().len(), 1);
    gate.open();
    for (stream, want) in streams.into_iter().zip(["one", "two", "three"]) {
        assert_eq!(stream.rest().last().expect("an event")["response"], want);
    }
    let want = ["user: first", "assistant: one", "user: second", "assistant: two", "user: third"];
    assert_eq!(server.last().said()[1..], want);
    assert_eq!(server.most_in_flight(), 1);
}

#[test]
fn a_prompt_called_off_in_the_line_is_never_asked() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.play([Answer::stream().hold(&gate).text("one").finish("stop").done(), says("three")]);
    let world = serving(&server, "concurrency: 1,");
    let first = world.stream("api:1", "first");
    gate.wait_held(1);
    let second = world.stream("api:2", "second");
    wait_queued(&world, 1);
    let third = world.stream("api:3", "third");
    wait_queued(&world, 2);
    let load = world.get("/api/health").json()["providers"][0].clone();
    assert!(load["oldestWaitSeconds"].as_f64() > Some(0.0), "{load}");
    let told = world.run(["gateway", "status"]).expect(0).text();
    assert!(told.contains("2 waiting, the longest for "), "{told}");
    drop(second);
    wait_queued(&world, 1);
    gate.open();
    assert_eq!(first.rest().last().expect("an event")["response"], "one");
    assert_eq!(third.rest().last().expect("an event")["response"], "three");
    let order: Vec<String> = server.asked().iter().map(|it| it.last_user()).collect();
    assert_eq!(order, ["first", "third"]);
    server.play([says("fine")]);
    assert_eq!(world.answer("api:2", "more"), "fine");
    assert_eq!(server.last().said()[1..], ["user: second", "user: more"]);
}

#[test]
fn a_prompt_called_off_while_the_model_speaks_frees_its_place() {
    let server = ModelServer::new();
    let gate = server.gate();
    let world = serving(&server, "concurrency: 1,");
    // Before the head, in text, and in the arguments of a call (D1).
    for (number, answer) in [
        Answer::stream().hold(&gate),
        Answer::stream().text("half").hold(&gate),
        Answer::stream().text("half").call(0, "c1", "exec", "{\"comm").hold(&gate),
    ]
    .into_iter()
    .enumerate()
    {
        server.play([answer]);
        let key = format!("api:{number}");
        let mut stream = world.stream(&key, "go");
        if number > 0 {
            stream.until("text_delta");
        }
        gate.wait_held(1);
        drop(stream);
        // The connection is cut at once, not when its time is up.
        server.wait_in_flight(0);
        server.play([says("fine")]);
        assert_eq!(world.answer(&key, "more"), "fine", "{number}");
        let said = server.last().said();
        assert_eq!(said.last().map(String::as_str), Some("user: more"));
        if number > 0 {
            assert_eq!(said[2], "assistant: half");
            let stored = &world.stored(&key)[1];
            assert_eq!(stored["stopReason"], "aborted", "{stored}");
        }
    }
}

#[test]
fn a_tool_ends_with_the_turn_that_is_called_off() {
    let command = "touch started; sleep 271.5; touch ended";
    let server = ModelServer::playing([runs("c1", command)]);
    let world = serving(&server, "");
    let mut stream = world.stream("api:1", "go");
    stream.until("tool_start");
    let started = world.workspace("a").join("started");
    wait_until("the tool runs", || started.exists());
    drop(stream);
    server.play([says("fine")]);
    assert_eq!(world.answer("api:1", "more"), "fine");
    let said = server.last().said();
    assert_eq!(said.len(), 5, "{said:#?}");
    assert!(said[3].contains("called off"), "{}", said[3]);
    let result = &world.stored("api:1")[2];
    assert_eq!((&result["role"], &result["isError"]), (&json!("toolResult"), &json!(true)));
}

/// As a proxy does that holds an answer back until it is whole. Nobody reads
/// until the turn is over.
#[test]
fn an_answer_that_comes_all_at_once_loses_no_listener() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let words = 50_000;
    let word = format!("data: {}\n\n", json!({"choices": [{"delta": {"content": "ab "}}]}));
    server.play([Answer::stream().bytes(word.repeat(words)).finish("stop").done()]);
    let stream = world.stream("api:burst", "go");
    wait_until("the turn is over", || {
        let health = world.get("/api/health").json();
        health["providers"][0]["calls"] == 1 && health["running"] == 0
    });
    let events = stream.rest();
    let said: usize = events.iter().filter_map(|it| it["delta"].as_str()).map(str::len).sum();
    assert_eq!((said, &events[events.len() - 1]["type"]), (3 * words, &json!("done")));
}

/// `api.sock` takes 64 at a time.
#[test]
fn a_gateway_that_is_full_says_so_and_is_waited_for() {
    let server = ModelServer::new();
    let gate = server.gate();
    let held = gate.clone();
    server.answer_by(move |_| Answer::stream().hold(&held).text("done").finish("stop").done());
    let world = serving(&server, "");
    let open = |number: usize| world.stream(&format!("api:{number}"), "go");
    let streams: Vec<Stream> = (0..64).map(open).collect();
    gate.wait_held(64);
    let told = world.run(["gateway", "status"]).expect(1);
    assert!(told.text().contains("serves all the callers it can"), "{}", told.text());
    let alone = world.sh("echo alone").expect(0);
    assert_eq!(alone.text(), "alone\n");
    let line = "the gateway serves all the callers it can, so the command runs without it";
    assert_eq!(alone.stderr, format!("beige exec: {line}\n"));
    let alone = world.run(["exec", "a", "--json", "--", "true"]).expect(0);
    assert_eq!((&alone.json()["exitCode"], alone.stderr.as_str()), (&json!(0), ""));
    let asked = world.spawn(["prompt", "a", "go"]);
    gate.open();
    for stream in streams {
        assert_eq!(stream.rest().last().expect("an event")["response"], "done");
    }
    let answered = Finished::from(asked.wait_with_output().expect("it ends")).expect(0);
    assert_eq!(answered.text(), "done\n");
}

#[test]
fn two_hundred_idle_streams_cost_next_to_nothing() {
    let server = ModelServer::new();
    let gate = server.gate();
    let held = gate.clone();
    server.answer_by(move |asked| {
        Answer::stream().text(&asked.last_user()).hold(&held).text("!").finish("stop").done()
    });
    let world = some_world();
    world.model(&server, "");
    let gateway = world.gateway_child();
    let address = world.address();
    let before = threads(&gateway);
    let open = |number: usize| {
        let key = format!("api:{number}");
        let body = json!({"message": format!("{number}."), "sessionKey": key});
        let mut stream = if number.is_multiple_of(4) {
            Stream::open(&world, "a", &body)
        } else {
            Stream::open_by_tcp(&world, &address, "a", &body)
        };
        stream.until("text_delta");
        stream
    };
    let mut streams: Vec<Stream> = (0..40).map(open).collect();
    let at_first = memory(&gateway);
    streams.extend((40..200).map(open));
    gate.wait_held(200);
    let at_most = memory(&gateway);
    let each = at_most.saturating_sub(at_first) / 160;
    // Four threads and the buffers of two connections; most of it is the
    // stacks of a build that is not optimised.
    assert!(each < 500, "{each} kB a stream");
    // They idle: each second an empty line comes.
    for _ in 0..3 {
        streams[0].heartbeat();
    }
    let later = memory(&gateway);
    assert!(later < at_most + 2_000, "{at_most} kB, {later} kB after three seconds");
    gate.open();
    for (number, stream) in streams.into_iter().enumerate() {
        let told = stream.rest();
        assert_eq!(told.last().expect("an event")["response"], format!("{number}.!"));
    }
    wait_until("its threads have ended", || threads(&gateway) <= before + 6);
    end(gateway);
}

#[test]
fn hundreds_of_turns_leave_nothing_behind() {
    let server = ModelServer::answering(|asked| match asked.last_user().as_str() {
        text if asked.body["model"] != "m" => says(text),
        "fail" => Answer::stream().text("half").cut(),
        "close" => Answer::raw_bytes(b"").cut(),
        text => says(text),
    });
    let world = some_world();
    let fallback = "fallbackModels: [{ provider: 'p', model: 'n' }],";
    world.model_of(&server, "concurrency: 2,", &world.agent("a", "", fallback));
    let gateway = world.gateway_child();
    let turns = |from: usize, to: usize| {
        for number in from..to {
            let text = ["fine", "fail", "close", "fine"][number % 4];
            assert_eq!(world.answer(&format!("api:{}", number / 10), text), text);
        }
    };
    turns(0, 60);
    let (at_first, files) = (memory(&gateway), descriptors(&gateway));
    turns(60, 240);
    let at_last = memory(&gateway);
    assert!(at_last < at_first + 3_000, "{at_first} kB after 60 turns, {at_last} kB after 240");
    wait_until("its files are closed", || descriptors(&gateway) <= files);
    assert_eq!(server.asked().len(), 240 + 120, "half of them took another call");
    end(gateway);
}

fn descriptors(gateway: &Child) -> usize {
    fs::read_dir(format!("/proc/{}/fd", gateway.id())).expect("it runs").count()
}
