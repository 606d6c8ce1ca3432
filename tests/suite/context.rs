//! Conversations that get long: what is summarised and when, what happens
//! where that fails, and what a provider's "too long" leads to. And what a
//! person can do to a turn on its way: say something to it, compact a session.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use crate::support::{
    Answer, Asked, Dialect, Finished, ModelServer, Reply, Said, World, calls, provider_in, runs,
    says, some_world, wait_until,
};

/// What every summary begins with.
const SUMMARY: &str = "## Goal\nto say long things";

/// Bytes that make about 2,000 tokens.
const LONG: usize = 8_000;

/// A world whose model reads 16,000 tokens, so that a conversation is compacted
/// from 8,000 on.
fn small(server: &ModelServer) -> World {
    with_window(server, "models: { m: { contextWindow: 16000 } },")
}

fn with_window(server: &ModelServer, fields: &str) -> World {
    let world = some_world();
    world.model(server, fields);
    world.start_gateway();
    world
}

fn is_summary(asked: &Asked) -> bool {
    asked.said().iter().any(|it| it.starts_with("system: You write summaries"))
}

/// A server that answers a summary with `summary`, all else with `fine`.
fn summarising(mut summary: impl FnMut() -> Answer + Send + 'static) -> ModelServer {
    ModelServer::answering(move |asked| if is_summary(asked) { summary() } else { says("fine") })
}

/// How often a summary was asked for.
fn summaries(server: &ModelServer) -> usize {
    server.asked().iter().filter(|it| is_summary(it)).count()
}

/// A message of about 2,000 tokens, told apart by its number.
fn long(number: usize) -> String {
    format!("message {number} {}", "long ".repeat(LONG / 5))
}

/// Says long things until the next would be too much.
#[track_caller]
fn fill(world: &World, key: &str) {
    for number in 0..3 {
        assert_eq!(world.answer(key, &long(number)), "fine");
    }
    assert!(compactions(world, key).is_empty());
}

fn compactions(world: &World, key: &str) -> Vec<Value> {
    world.session(key).into_iter().filter(|it| it["type"] == "compaction").collect()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|it| it["type"] == kind).collect()
}

/// The types of events; several pieces of text are one.
fn kinds(events: &[Value]) -> String {
    let mut kinds: Vec<&str> = events.iter().filter_map(|it| it["type"].as_str()).collect();
    kinds.dedup();
    kinds.join(" ")
}

fn control(world: &World, key: &str, what: &str, body: &Value) -> Reply {
    let key = key.replace(':', "%3A");
    world.post(&format!("/api/agents/a/sessions/{key}/{what}"), body)
}

fn steer(world: &World, key: &str, message: &str) -> Reply {
    control(world, key, "steer", &json!({ "message": message }))
}

fn running(world: &World) -> Value {
    world.get("/api/health").json()["running"].clone()
}

/// A session `api:1` of so many messages of about 2,000 tokens each, after the
/// greeting that it begins with.
fn with_history(world: &World, server: &ModelServer, messages: usize) {
    server.play([says("hello")]);
    assert_eq!(world.answer("api:1", "hi"), "hello");
    let message = |number: usize| {
        let role = ["user", "assistant"][number % 2];
        json!({"type": "message", "message": {"role": role, "content": long(number)}})
    };
    world.append("api:1", (0..messages).map(message).collect());
}

fn too_long() -> Answer {
    let error = json!({"message": "This model's maximum context length is exceeded.",
        "type": "invalid_request_error", "code": "context_length_exceeded"});
    Answer::status(400, &json!({ "error": error }).to_string())
}

/// A server that refuses what has more bytes than that.
fn reading(bytes: usize) -> ModelServer {
    ModelServer::answering(move |asked| match asked.body.to_string().len() {
        it if it > bytes => too_long(),
        _ if is_summary(asked) => says(SUMMARY),
        _ => says("fine"),
    })
}

#[test]
fn what_comes_to_its_threshold_is_summarised_before_the_model_is_asked() {
    let server = summarising(|| says(SUMMARY));
    let world = small(&server);
    fill(&world, "api:1");
    let before = world.audit().len();
    let events = world.events("api:1", &long(3));
    let want = "turn_start compaction_start usage compaction_end text_delta usage done";
    assert_eq!(kinds(&events), want);
    let start = of_kind(&events, "compaction_start")[0];
    let end = of_kind(&events, "compaction_end")[0];
    assert_eq!((&start["reason"], &end["compacted"]), (&json!("threshold"), &json!(true)));
    let tokens = |it: &Value, name: &str| it[name].as_u64().expect("a number");
    assert!(tokens(start, "tokensBefore") > 8_000, "{start}");
    assert!(tokens(end, "tokensAfter") < 6_000, "{end}");

    // The request of the summary: no tools, and the older part as a text.
    let asked = server.asked();
    let [.., summary, last] = asked.as_slice() else { panic!("{}", asked.len()) };
    assert!(is_summary(summary) && summary.body["tools"].is_null(), "{}", summary.body);
    assert!(summary.body["max_tokens"].as_u64().is_some_and(|it| it <= 2_000));
    let [_, of_what] = summary.said().try_into().expect("a system prompt and a message");
    assert!(of_what.starts_with("user: <conversation>\n"), "{of_what}");
    assert!(of_what.contains("[Person]: message 1 ") && of_what.contains("[Agent]: fine"));
    // What is sent then: the summary, and the newest part word by word.
    let said = last.said();
    assert!(said[1].starts_with("user: ") && said[1].contains(SUMMARY), "{}", said[1]);
    assert_eq!(said.last(), Some(&format!("user: {}", long(3))));
    assert!(!said.concat().contains("message 1 "), "{}", said.len());
    // In pi's format, and each call in the audit log.
    let [compaction] = compactions(&world, "api:1").try_into().expect("one compaction");
    assert_eq!(compaction["summary"], SUMMARY);
    assert_eq!(compaction["tokensBefore"], start["tokensBefore"]);
    let first_kept = compaction["firstKeptEntryId"].as_str().expect("an id");
    assert!(world.session("api:1").iter().any(|it| it["id"] == first_kept));
    let audit = world.audit().split_off(before);
    let calls = audit.iter().filter(|it| it["type"] == "llm" && it["phase"] == "started");
    assert_eq!(calls.count(), 2);
    // The next one goes on from there, and the one after makes a new summary
    // of the old.
    let mut number = 4;
    while summaries(&server) == 1 {
        assert_eq!(world.answer("api:1", &long(number)), "fine");
        number += 1;
    }
    assert!(number > 5, "{number}");
    let asked = server.asked();
    let second = asked.iter().filter(|it| is_summary(it)).nth(1).expect("a second summary");
    let start = format!("user: <summary>\n{SUMMARY}\n</summary>");
    assert!(second.said()[1].starts_with(&start), "{}", second.said()[1]);
    assert_eq!(compactions(&world, "api:1").len(), 2);
    world.verify_audit();
}

#[test]
fn every_protocol_is_asked_for_a_summary_and_told_it() {
    for dialect in Dialect::ALL {
        let mut may_be_long = true;
        let server = ModelServer::answering(move |asked| match is_summary(asked) {
            true => dialect.answer(&Said::text(SUMMARY)),
            // The last question is too long once, whatever was counted.
            false if asked.last_user() == "the last" && std::mem::take(&mut may_be_long) => {
                too_long()
            }
            false => dialect.answer(&Said::text("fine")),
        });
        let world = some_world();
        let fields = "models: { m: { contextWindow: 16000 } },";
        let provider = provider_in(dialect, server.port(), fields);
        world.write_config_of(&provider, &world.agent("a", "", ""), "");
        world.start_gateway();
        fill(&world, "api:1");
        for (question, count) in [(long(3), 1), ("the last".to_owned(), 2)] {
            assert_eq!(world.answer("api:1", &question), "fine", "{dialect:?}");
            assert_eq!(compactions(&world, "api:1").len(), count, "{dialect:?}");
            let said = server.last().said().join("\n");
            assert!(said.contains(SUMMARY), "{dialect:?}: {said}");
            assert_eq!(server.last().last_user(), question, "{dialect:?}");
        }
        server.check();
    }
}

#[test]
fn what_a_provider_counts_decides() {
    let server = summarising(|| says(SUMMARY));
    let world = small(&server);
    server.play([Answer::stream().text("one").finish("stop").usage(9_000, 10).done()]);
    assert_eq!(world.answer("api:1", &long(0)), "one");
    assert_eq!(world.answer("api:1", "two"), "fine");
    assert_eq!((summaries(&server), compactions(&world, "api:1").len()), (1, 1));
    // What it counted was of the conversation before.
    assert_eq!(world.answer("api:1", "three"), "fine");
    assert_eq!(summaries(&server), 1);
}

#[test]
fn a_turn_that_is_too_long_by_itself_is_parted_between_two_answers() {
    let prints = |number: usize| {
        runs(&format!("c{number}"), &format!("head -c 6000 /dev/zero | tr '\\0' {number}"))
    };
    let mut number = 0;
    let server = ModelServer::answering(move |asked| {
        if is_summary(asked) {
            return says(SUMMARY);
        }
        number += 1;
        if number <= 8 { prints(number) } else { says("fine") }
    });
    let world = small(&server);
    let events = world.events("api:1", "print much");
    assert_eq!(events.last().map(|it| &it["response"]), Some(&json!("fine")), "{events:#?}");
    let ends = of_kind(&events, "compaction_end");
    assert!(!ends.is_empty() && ends.iter().all(|it| it["compacted"] == true), "{ends:#?}");
    assert_eq!(of_kind(&events, "tool_end").len(), 8);
    // Each call stayed with its result (the server sees to it), and the
    // request is not lost.
    for compaction in compactions(&world, "api:1") {
        let summary = compaction["summary"].as_str().expect("a summary");
        assert!(summary.starts_with(SUMMARY) && summary.ends_with("\nprint much"), "{summary}");
        let kept = &compaction["firstKeptEntryId"];
        let session = world.session("api:1");
        let kept = session.iter().find(|it| it["id"] == *kept).expect("an entry");
        assert_eq!(kept["message"]["role"], "assistant");
    }
}

#[test]
fn a_summary_that_is_none_leaves_the_history_as_it_was_and_the_turn_goes_on() {
    type Summary = fn() -> Answer;
    let kinds: [(Summary, &str); 5] = [
        (|| says(&"word ".repeat(10_000)), "not shorter"),
        (|| says(" \n"), "no summary"),
        (|| Answer::error(500, "out of order"), "out of order"),
        (|| Answer::stream().text("half").cut(), "p"),
        (|| calls(&[("c1", "exec", json!({"command": "echo never"}))]), "no summary"),
    ];
    for (summary, why) in kinds {
        let server = summarising(summary);
        let world = small(&server);
        fill(&world, "api:1");
        let events = world.events("api:1", &long(3));
        assert_eq!(events.last().map(|it| &it["response"]), Some(&json!("fine")), "{why}");
        let end = of_kind(&events, "compaction_end")[0];
        assert_eq!(end["compacted"], false);
        assert!(end["reason"].as_str().is_some_and(|it| it.contains(why)), "{end}");
        assert!(of_kind(&events, "tool_start").is_empty());
        assert!(compactions(&world, "api:1").is_empty());
        let said = server.last().said();
        assert_eq!(said[1], format!("user: {}", long(0)));
        assert_eq!(said.len(), 1 + 7, "{why}");
        // Once a turn is enough.
        assert_eq!(summaries(&server), 1);
        assert_eq!(world.answer("api:1", "more"), "fine");
    }
}

#[test]
fn a_summary_that_hangs_is_given_up_and_every_message_is_answered() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.answer_by(move |asked| match is_summary(asked) {
        true => Answer::stream().hold(&gate),
        false => says("fine"),
    });
    // By the provider's own limits, and by that of a turn in which nothing
    // happens.
    let patience = [("timeouts: { firstByteSeconds: 3, idleSeconds: 3 },", ""), ("", "3")];
    for (timeouts, inactivity) in patience {
        let world = some_world();
        let limits = match inactivity {
            "" => String::new(),
            it => format!("limits: {{ inactivitySeconds: {it} }},"),
        };
        let fields = format!("models: {{ m: {{ contextWindow: 16000 }} }}, {timeouts}");
        world.model_of(&server, &fields, &world.agent("a", "", &limits));
        world.start_gateway();
        fill(&world, "api:1");
        for _ in 0..2 {
            let events = world.events("api:1", &long(3));
            assert_eq!(events.last().map(|it| &it["response"]), Some(&json!("fine")));
            assert_eq!(of_kind(&events, "compaction_end")[0]["compacted"], false);
        }
        assert_eq!(running(&world), 0);
    }
}

#[test]
fn an_abort_ends_a_compaction_at_once() {
    let server = ModelServer::new();
    let gate = server.gate();
    let held = gate.clone();
    server.answer_by(move |asked| match is_summary(asked) {
        true => Answer::stream().text("Well").hold(&held).text("!").finish("stop").done(),
        false => says("fine"),
    });
    let world = small(&server);
    fill(&world, "api:1");
    let mut stream = world.stream("api:1", &long(3));
    stream.until("compaction_start");
    gate.wait_held(1);
    let reply = control(&world, "api:1", "abort", &json!({}));
    assert_eq!(reply.json(), json!({"aborted": true}));
    let told = stream.rest();
    assert_eq!(told.last().map(|it| &it["category"]), Some(&json!("aborted")), "{told:#?}");
    server.wait_in_flight(0);
    assert!(compactions(&world, "api:1").is_empty());
    assert_eq!(running(&world), 0);
    // What was said is not lost.
    gate.open();
    assert_eq!(world.answer("api:1", "and now?"), "fine");
    let said = server.last().said();
    assert!(said.contains(&format!("user: {}", long(3))), "{}", said.len());
}

#[test]
fn a_prompt_during_a_compaction_waits_and_starts_no_second_one() {
    let server = ModelServer::new();
    let gate = server.gate();
    let held = gate.clone();
    server.answer_by(move |asked| match is_summary(asked) {
        true => Answer::stream().hold(&held).text(SUMMARY).finish("stop").done(),
        false => says("fine"),
    });
    let world = small(&server);
    fill(&world, "api:1");
    thread::scope(|scope| {
        let first = scope.spawn(|| world.answer("api:1", &long(3)));
        gate.wait_held(1);
        let second = scope.spawn(|| world.answer("api:1", "second"));
        wait_until("it waits", || world.get("/api/health").json()["waiting"] == 1);
        let refused = control(&world, "api:1", "compact", &json!({}));
        assert_eq!(refused.status, 409, "{}", refused.text());
        gate.open();
        assert_eq!(first.join().expect("it ends"), "fine");
        assert_eq!(second.join().expect("it ends"), "fine");
    });
    assert_eq!((summaries(&server), compactions(&world, "api:1").len()), (1, 1));
}

#[test]
fn a_summary_that_is_too_long_to_be_made_is_made_of_less() {
    // A transcript of 1.5 times the window, and a window that is real.
    let server = reading(16_000 * 4);
    let world = small(&server);
    with_history(&world, &server, 12);
    let events = world.events("api:1", "go on");
    assert_eq!(events.last().map(|it| &it["response"]), Some(&json!("fine")), "{events:#?}");
    assert_eq!(compactions(&world, "api:1").len(), 1);
    assert!(server.asked().len() <= 4, "{}", server.asked().len());
}

#[test]
fn a_model_that_reads_less_than_it_says_is_answered_by_a_compaction_and_one_retry() {
    let server = reading(64_000);
    // Nothing is known of it: 128,000 tokens are assumed.
    let world = with_window(&server, "");
    with_history(&world, &server, 12);
    let events = world.events("api:1", "go on");
    let want = "turn_start compaction_start usage compaction_end text_delta usage done";
    assert_eq!(kinds(&events), want, "{events:#?}");
    assert_eq!(of_kind(&events, "compaction_start")[0]["reason"], "too_long");
    assert_eq!(compactions(&world, "api:1").len(), 1);
    // The refusal left no answer in the session.
    let failed = world.stored("api:1").into_iter().filter(|it| it["stopReason"] == "error");
    assert_eq!(failed.count(), 0);
}

#[test]
fn where_no_summary_can_be_made_less_is_sent_and_nothing_is_lost() {
    let server = ModelServer::answering(|asked| {
        let size = asked.body.to_string().len();
        if is_summary(asked) || size > 40_000 { too_long() } else { says("fine") }
    });
    let world = with_window(&server, "");
    with_history(&world, &server, 12);
    let before = fs::read(world.session_file("api:1")).expect("a file");
    let events = world.events("api:1", "go on");
    assert_eq!(events.last().map(|it| &it["response"]), Some(&json!("fine")), "{events:#?}");
    let said = server.last().said();
    assert!(said[1].starts_with("user: [An older part"), "{}", said[1]);
    assert_eq!(said.last().map(String::as_str), Some("user: go on"));
    let after = fs::read(world.session_file("api:1")).expect("a file");
    assert!(after.starts_with(&before) && compactions(&world, "api:1").is_empty());
    let told = of_kind(&events, "compaction_end");
    assert!(told.iter().all(|it| it["compacted"] == false), "{told:#?}");
    assert!(told.last().is_some_and(|it| it["reason"].to_string().contains("less of")));
}

#[test]
fn what_is_too_long_in_every_form_ends_with_an_error_after_a_few_calls() {
    let server = ModelServer::new();
    let world = with_window(&server, "");
    with_history(&world, &server, 12);
    server.answer_by(|_| too_long());
    let reply = world.prompt("api:1", "go on");
    assert_eq!((reply.status, &reply.json()["category"]), (502, &json!("context_length")));
    assert!(server.asked().len() <= 12, "{}", server.asked().len());
    assert_eq!(running(&world), 0);
    // A session is never stuck.
    server.answer_by(|asked| if is_summary(asked) { says(SUMMARY) } else { says("fine") });
    assert_eq!(world.answer("api:1", "still there?"), "fine");
}

#[test]
fn words_about_a_context_that_is_too_long_are_words() {
    let server = summarising(|| says(SUMMARY));
    let world = with_window(&server, "");
    let quotes = [
        "Context overflow: prompt too large",
        "400 {\"error\":{\"code\":\"context_length_exceeded\"}}",
        "This model's maximum context length is 8192 tokens.",
    ];
    for (number, quote) in quotes.into_iter().enumerate() {
        let events = world.events("api:1", quote);
        assert_eq!(kinds(&events), "turn_start text_delta usage done", "{quote}");
        assert_eq!(server.asked().len(), number + 1);
    }
    // Said by a tool, and by the model.
    server.play([runs("c1", "echo 'context_length_exceeded'; exit 1"), says(quotes[0])]);
    assert_eq!(world.answer("api:1", "run it"), quotes[0]);
    // By a provider that refuses for another reason.
    let error = json!({"error": {"message": quotes[2], "code": "invalid_api_key"}});
    let before = server.asked().len();
    server.play([Answer::status(401, &error.to_string())]);
    let reply = world.prompt("api:1", "go on");
    assert_eq!((reply.status, &reply.json()["category"]), (502, &json!("refused")));
    assert_eq!(server.asked().len(), before + 1);
    assert!(compactions(&world, "api:1").is_empty());
    assert_eq!(world.answer("api:1", "go on"), "fine");
}

#[test]
fn a_session_is_compacted_when_a_person_asks_for_it() {
    let server = summarising(|| says(SUMMARY));
    let world = small(&server);
    world.configure(&["a", "b"], "");
    world.model_of(
        &server,
        "models: { m: { contextWindow: 16000 } },",
        &(world.agent("a", "", "") + &world.agent("b", "", "")),
    );
    world.run(["gateway", "restart"]).expect(0);
    assert_eq!(control(&world, "api:nope", "compact", &json!({})).status, 404);
    world.answer("api:1", "short");
    let told = control(&world, "api:1", "compact", &json!({})).json();
    assert_eq!(told["compacted"], false, "{told}");
    assert!(told["reason"].is_string(), "{told}");
    world.answer("api:1", &long(0));
    world.answer("api:1", &long(1));
    let told = control(&world, "api:1", "compact", &json!({}));
    assert_eq!(told.status, 200, "{}", told.text());
    let told = told.json();
    assert_eq!(told["compacted"], true, "{told}");
    assert!(told["tokensAfter"].as_u64() < told["tokensBefore"].as_u64(), "{told}");
    assert_eq!(compactions(&world, "api:1").len(), 1);
    assert_eq!(world.answer("api:1", "and?"), "fine");
    assert!(server.last().said()[1].contains(SUMMARY));
    // Nobody compacts what is another's.
    let theirs = world.post("/api/agents/b/sessions/api%3A1/compact", &json!({}));
    assert_eq!(theirs.status, 409, "{}", theirs.text());
    assert_eq!(
        world.post("/api/agents/b/sessions/api%3A1/steer", &json!({"message": "x"})).status,
        409
    );
    // It counts as no turn.
    let turns = world.get("/metrics").text();
    assert!(turns.contains("beige_turns_total{outcome=\"done\"} 4\n"), "{turns}");
}

#[test]
fn what_a_person_says_is_heard_after_the_call_that_runs_and_the_rest_is_skipped() {
    let server = ModelServer::playing([
        calls(&[
            (
                "c1",
                "exec",
                json!({"command": "echo x >started; while [ ! -e go ]; do sleep 0.05; done; echo over"}),
            ),
            ("c2", "exec", json!({"command": "echo no >second"})),
            ("c3", "read", json!({"path": "started"})),
        ]),
        says("as you wish"),
    ]);
    let world = some_world();
    world.model(&server, "");
    world.start_gateway();
    let mut stream = world.stream("api:1", "do three things");
    stream.until("tool_start");
    wait_until("the command runs", || world.workspace("a").join("started").exists());
    let told = steer(&world, "api:1", "stop, do something else");
    assert_eq!((told.status, told.json()), (200, json!({"steered": true})));
    fs::write(world.workspace("a").join("go"), "").expect("a file");
    let events = stream.rest();
    assert_eq!(events.last().map(|it| &it["response"]), Some(&json!("as you wish")));
    assert_eq!(of_kind(&events, "tool_end").len(), 1, "{events:#?}");
    assert!(!world.workspace("a").join("second").exists());
    let said = server.last().said();
    assert_eq!(said[3], "tool: Exit code: 0\nover\n");
    for skipped in &said[4..6] {
        assert!(skipped.starts_with("tool: Error: ") && skipped.contains("skipped"), "{skipped}");
    }
    assert_eq!(said[6..], ["user: stop, do something else"]);
    // Nobody listens any more.
    assert_eq!(steer(&world, "api:1", "too late").status, 409);
    assert_eq!(steer(&world, "api:nope", "nobody").status, 404);
    let no_message = control(&world, "api:1", "steer", &json!({}));
    assert_eq!(no_message.status, 400, "{}", no_message.text());
    let stored = world.messages("api:1");
    assert!(!stored.iter().any(|it| it.contains("too late")), "{stored:#?}");
}

#[test]
fn what_a_person_says_while_the_model_speaks_is_answered_in_the_same_turn() {
    let server = ModelServer::new();
    let gate = server.gate();
    let first = Answer::stream().text("Once ").hold(&gate).text("upon").finish("stop");
    server.play([first.usage(7, 3).done(), says("short, then")]);
    let world = some_world();
    world.model(&server, "");
    world.start_gateway();
    let mut stream = world.stream("api:1", "tell me a story");
    stream.until("text_delta");
    assert_eq!(steer(&world, "api:1", "a short one").status, 200);
    assert_eq!(steer(&world, "api:1", "please").status, 200);
    gate.open();
    let events = stream.rest();
    assert_eq!(events.last().map(|it| &it["response"]), Some(&json!("short, then")));
    let want = [
        "user: tell me a story",
        "assistant: Once upon",
        "user: a short one",
        "user: please",
        "assistant: short, then",
    ];
    assert_eq!(world.messages("api:1"), want);
}

#[test]
fn what_a_person_said_to_a_turn_that_is_called_off_stays_in_the_session() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.play([Answer::stream().text("Once ").hold(&gate).text("upon").finish("stop").done()]);
    let world = some_world();
    world.model(&server, "");
    world.start_gateway();
    let mut stream = world.stream("api:1", "tell me a story");
    stream.until("text_delta");
    assert_eq!(steer(&world, "api:1", "no, a song").status, 200);
    assert_eq!(control(&world, "api:1", "abort", &json!({})).status, 200);
    assert_eq!(stream.rest().last().map(|it| &it["category"]), Some(&json!("aborted")));
    let stored = world.stored("api:1");
    assert_eq!(stored[1]["stopReason"], "aborted");
    let want = ["user: tell me a story", "assistant: Once ", "user: no, a song"];
    assert_eq!(world.messages("api:1"), want);
    server.play([says("la la la")]);
    assert_eq!(world.answer("api:1", "go on"), "la la la");
}

#[test]
fn a_prompt_without_a_gateway_compacts_too() {
    let server = summarising(|| says(SUMMARY));
    let world = some_world();
    world.model(&server, "models: { m: { contextWindow: 16000 } },");
    let prompt = |text: &str| -> Finished {
        world.run(["prompt", "a", "--session", "cli:a:1", text]).expect(0)
    };
    for number in 0..5 {
        assert_eq!(prompt(&long(number)).text(), "fine\n");
    }
    assert!(!compactions(&world, "cli:a:1").is_empty());
    let shown = world.run(["sessions", "show", "cli:a:1"]).expect(0).text();
    assert!(shown.contains("to say long things"), "{shown}");
}
