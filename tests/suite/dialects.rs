//! The four protocols side by side: the same answers and the same faults in
//! each, and conversations that are handed from one to another.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use crate::support::{
    Answer, Dialect, ModelServer, Part, Said, World, call_item, google_piece, provider_in, says,
    some_world,
};

/// A world in which `a` asks a model of that protocol and, when that fails,
/// one of chat completions on another server. `fields` are the first one's.
fn with_a_second(
    dialect: Dialect,
    first: &ModelServer,
    second: &ModelServer,
    fields: &str,
) -> World {
    let world = some_world();
    let providers = [
        ("p", provider_in(dialect, first.port(), fields)),
        ("q", provider_in(Dialect::Chat, second.port(), "")),
    ];
    configure(&world, &providers, "fallbackModels: [{ provider: 'q', model: 'n' }],");
    world.start_gateway();
    world
}

/// Writes a configuration of these providers; `a` has `p/m` and these fields.
fn configure(world: &World, providers: &[(&str, String)], fields: &str) {
    let providers: String =
        providers.iter().map(|(name, it)| format!("{name}: {{ {it} }}, ")).collect();
    let text = format!(
        "{{ llm: {{ providers: {{ {providers} }} }}, agents: {{ a: {{ model: {{ provider: 'p', \
         model: 'm' }}, {fields} tools: [], sandbox: {{ runtime: '{}' }} }} }}, \
         gateway: {{ port: 0 }} }}",
        world.runtime.name()
    );
    fs::write(world.config_file(), text).expect("config written");
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn call(id: &str, tool: &str, arguments: &Value) -> Part {
    Part::Call(id.to_owned(), tool.to_owned(), arguments.to_string())
}

/// What each protocol says of an error in the middle of an answer.
fn overloaded(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Chat => {
            "data: {\"error\":{\"code\":503,\"message\":\"overloaded\"},\"choices\":[]}\n\n"
        }
        Dialect::Responses => {
            "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\
             \"message\":\"overloaded\",\"param\":null,\"sequence_number\":9}\n\n"
        }
        Dialect::Anthropic => {
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\
             \"message\":\"overloaded\"}}\n\n"
        }
        Dialect::Google => {
            "data: {\"error\":{\"code\":503,\"message\":\"overloaded\",\
             \"status\":\"UNAVAILABLE\"}}\n\n"
        }
    }
}

#[test]
fn an_answer_reads_the_same_however_it_is_cut_and_written() {
    for dialect in Dialect::ALL {
        let server = ModelServer::new();
        let world = some_world();
        configure(&world, &[("p", provider_in(dialect, server.port(), ""))], "");
        world.start_gateway();
        let words = "那一个 \u{1f980} naïve";
        let said = Said::new([text(words)]);
        let forms: [(&str, Answer); 6] = [
            ("as it is", dialect.answer(&said)),
            ("byte by byte", dialect.answer(&said).in_pieces(1)),
            ("in threes", dialect.answer(&said).in_pieces(3)),
            ("with CRLF", dialect.answer(&said).with_crlf()),
            ("with comments", dialect.answer(&said).with_comments(": PROCESSING\n\n")),
            ("until the end", dialect.answer(&said).until_close()),
        ];
        for (form, answer) in forms {
            server.play([answer]);
            let got = world.answer(&format!("api:{form}"), "go");
            assert_eq!(got, words, "{dialect:?} {form}");
        }
        server.check();
    }
}

#[test]
fn calls_run_in_their_order_and_each_result_goes_back() {
    for dialect in Dialect::ALL {
        let calls = Said::new([
            text("Let me see."),
            call("c1", "exec", &json!({"command": "echo one"})),
            call("c2", "exec", &json!({"command": "echo two; exit 3"})),
        ]);
        let server = ModelServer::playing([
            dialect.answer(&calls).in_pieces(7),
            dialect.answer(&Said::text("done")),
        ]);
        let world = some_world();
        configure(&world, &[("p", provider_in(dialect, server.port(), ""))], "");
        world.start_gateway();
        assert_eq!(world.answer("api:1", "go"), "done", "{dialect:?}");
        let said = server.last().said();
        let results: Vec<&String> = said.iter().filter(|it| it.starts_with("tool: ")).collect();
        assert_eq!(results.len(), 2, "{dialect:?}: {said:?}");
        assert!(results[0].contains("one"), "{dialect:?}: {results:?}");
        assert!(results[1].contains("two") && results[1].contains('3'), "{dialect:?}: {results:?}");
        assert!(said.iter().any(|it| it.contains("Let me see.<exec ")), "{dialect:?}: {said:?}");
        let failed: Vec<bool> = world
            .stored("api:1")
            .iter()
            .filter(|it| it["role"] == "toolResult")
            .map(|it| it["isError"] == true)
            .collect();
        assert_eq!(failed, [false, true], "{dialect:?}");
    }
}

/// An answer that goes on with a call after it has said why it ends, and whose
/// end mark, where the protocol has one, never comes.
fn goes_on(dialect: Dialect) -> Answer {
    let whole = dialect.answer(&Said::text("half of it"));
    let arguments = json!({"command": "echo run >> ran"});
    match dialect {
        Dialect::Chat => whole.without_end().call(0, "c1", "exec", &arguments.to_string()),
        Dialect::Responses => {
            let item = call_item("c1", "exec", &arguments.to_string(), None);
            whole.without_end().item(1, &item)
        }
        Dialect::Anthropic => {
            let call = json!({"type": "tool_use", "id": "c1", "name": "exec", "input": arguments});
            let start = json!({"type": "content_block_start", "index": 1, "content_block": call});
            let stop = json!({"type": "content_block_stop", "index": 1});
            let whole = whole.without_end().named("content_block_start", &start);
            whole.named("content_block_stop", &stop)
        }
        Dialect::Google => {
            let call = json!({"id": "c1", "name": "exec", "args": arguments});
            whole.event(&google_piece(&json!([{ "functionCall": call }])))
        }
    }
}

/// The faults of a model, told by their names, and how often it is asked until
/// another one is.
fn faults(dialect: Dialect, server: &ModelServer) -> Vec<(&'static str, Answer)> {
    let whole = || dialect.answer(&Said::new([text("half of "), text("it")]));
    let begun = || whole().first_steps(2);
    // Google's protocol has no end mark.
    let unmarked = || if dialect == Dialect::Google { whole() } else { whole().without_end() };
    vec![
        ("401", Answer::error(401, "no such key")),
        ("403", Answer::error(403, "not for you")),
        ("404", Answer::error(404, "no such model")),
        ("400", Answer::error(400, "no such field")),
        ("429", Answer::error(429, "slower").header("retry-after", "3600")),
        ("500", Answer::error(500, "broken")),
        ("503", Answer::error(503, "full")),
        ("529", Answer::error(529, "overloaded")),
        ("a page", Answer::status(502, "<!DOCTYPE html><title>Bad Gateway</title>")),
        ("nothing", Answer::status(200, "")),
        ("an error in it", begun().bytes(overloaded(dialect))),
        ("an error first", Answer::stream().bytes(overloaded(dialect))),
        ("a clean end", begun()),
        ("cut", begun().cut()),
        ("reset", begun().reset()),
        ("reset before it", Answer::stream().without_steps().reset()),
        ("going on after its end", goes_on(dialect)),
        ("less than its length", unmarked().by_length().cut().bytes(" ".repeat(99))),
        ("no last chunk", unmarked().cut()),
        ("junk", begun().bytes("data: {{{{\n\n").bytes("data: [DONE]\n\n")),
        ("junk of bytes", begun().bytes(b"data: \xff\xfe\n\n".as_slice())),
        ("silence", begun().hold(&server.gate())),
        ("silence at once", Answer::stream().hold(&server.gate())),
    ]
}

#[test]
fn whatever_fails_the_next_model_answers_and_nothing_is_doubled() {
    // Side by side, since some faults are told by time alone.
    thread::scope(|scope| {
        for dialect in Dialect::ALL {
            scope.spawn(move || {
                let count = faults(dialect, &ModelServer::new()).len();
                (0..count).for_each(|it| the_next_answers(dialect, it));
            });
        }
    });
}

/// Plays the fault of that number to a model of that protocol.
#[track_caller]
fn the_next_answers(dialect: Dialect, number: usize) {
    let (first, second) = (ModelServer::new(), ModelServer::new());
    let (name, answer) = faults(dialect, &first).swap_remove(number);
    let limits = "timeouts: { firstByteSeconds: 3, idleSeconds: 3 },";
    let fields = if name.starts_with("silence") { limits } else { "" };
    let world = with_a_second(dialect, &first, &second, fields);
    first.play([answer]);
    second.play([says("saved")]);
    let events = world.events("api:1", "go");
    let shown = format!("{dialect:?}, {name}: {events:?}");
    let last = events.last().expect("an event");
    assert_eq!(json!([last["type"], last["response"]]), json!(["done", "saved"]), "{shown}");
    assert!(events.iter().any(|it| it["type"] == "model_fallback"), "{shown}");
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1), "{shown}");
    // What had been said is there once, as an answer of its own.
    let stored = world.stored("api:1");
    let answers: Vec<&Value> = stored.iter().filter(|it| it["role"] == "assistant").collect();
    assert_eq!(answers.last().expect("one")["provider"], "q", "{shown}");
    // The next prompt begins with the first again, unless it is to wait.
    let rests = name == "429";
    if rests {
        second.play([says("again")]);
    } else {
        first.play([dialect.answer(&Said::text("again"))]);
    }
    assert_eq!(world.answer("api:1", "more"), "again", "{shown}");
    assert_eq!(first.asked().len(), if rests { 1 } else { 2 }, "{shown}");
    first.check();
    second.check();
}

#[test]
fn a_call_that_is_told_twice_runs_once() {
    for dialect in Dialect::ALL {
        let server = ModelServer::new();
        let world = some_world();
        configure(&world, &[("p", provider_in(dialect, server.port(), ""))], "");
        world.start_gateway();
        let run = |id: &str| call(id, "exec", &json!({"command": "echo run >> ran"}));
        for (calls, runs) in [(["c1", "c1"], 1), (["c2", "c3"], 3)] {
            let said = Said::new(calls.map(run));
            server.play([dialect.answer(&said), dialect.answer(&Said::text("done"))]);
            assert_eq!(world.answer("api:1", "go"), "done", "{dialect:?}");
            let ran = fs::read_to_string(world.workspace("a").join("ran")).expect("it ran");
            assert_eq!(ran.lines().count(), runs, "{dialect:?} {calls:?}");
        }
        server.check();
    }
}

#[test]
fn tokens_that_cannot_be_shorten_no_conversation_and_spoil_no_sum() {
    let absurd = 10_000_000_000_000_000_000;
    for dialect in Dialect::ALL {
        let server = ModelServer::new();
        let world = some_world();
        configure(&world, &[("p", provider_in(dialect, server.port(), ""))], "");
        world.start_gateway();
        let said = |text: &str, input| dialect.answer(&Said { input, ..Said::text(text) });
        server.play([said("one", absurd), said("two", 7)]);
        assert_eq!(world.answer("api:1", "go"), "one", "{dialect:?}");
        let stored = &world.stored("api:1")[1]["usage"];
        assert_eq!(json!([stored["input"], stored["totalTokens"]]), json!([0, 0]), "{dialect:?}");
        assert_eq!(world.answer("api:1", "go on"), "two", "{dialect:?}");
        // A file in which it was believed.
        let file = world.session_file("api:1");
        let text = fs::read_to_string(&file).expect("a session");
        let believed = text.replace("\"input\":7,", &format!("\"input\":{absurd},"));
        assert_ne!(text, believed);
        fs::write(&file, believed).expect("written");
        server.play([said("three", 7)]);
        assert_eq!(world.answer("api:1", "and on"), "three", "{dialect:?}");
        assert_eq!(server.asked().len(), 3, "{dialect:?}: nothing is compacted");
        let total = world.run(["usage", "--json"]).expect(0).json()["total"].take();
        let got = json!([total["calls"], total["callsOfUnknownCost"], total["input"]]);
        assert_eq!(got, json!([3, 3, 14]), "{dialect:?}: {total}");
        server.check();
    }
}

#[test]
fn a_terminal_event_ends_the_answer_though_the_server_holds_on() {
    // Google's protocol has no end mark: there the connection's end is it.
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Anthropic] {
        let server = ModelServer::new();
        let world = some_world();
        configure(&world, &[("p", provider_in(dialect, server.port(), ""))], "");
        world.start_gateway();
        let gate = server.gate();
        server.play([dialect.answer(&Said::text("whole")).hold(&gate)]);
        assert_eq!(world.answer("api:1", "go"), "whole", "{dialect:?}");
        gate.open();
    }
}

#[test]
fn signs_of_life_keep_a_slow_answer() {
    for dialect in Dialect::ALL {
        let server = ModelServer::new();
        let world = some_world();
        let limits = "timeouts: { firstByteSeconds: 60, idleSeconds: 60 },";
        configure(&world, &[("p", provider_in(dialect, server.port(), limits))], "");
        world.start_gateway();
        let said = Said::new([text("one "), text("two")]);
        server.play([dialect.answer(&said).with_comments(": ka\n\n: ka\n\n").in_pieces(2)]);
        assert_eq!(world.answer("api:1", "go"), "one two", "{dialect:?}");
        server.check();
    }
}

/// A conversation in one protocol with all that it may leave behind: thoughts
/// with signatures, two calls at once, a failed one, an odd name.
fn rich(dialect: Dialect) -> [Answer; 2] {
    let first = Said::new([
        Part::Thinking("It may be in the file.".into(), Some("c2lnbmVk".into())),
        text("I look."),
        call("call.1/odd id", "exec", &json!({"command": "echo found"})),
        call("call.2/odd id", "exec", &json!({"command": "exit 4"})),
    ]);
    let second = Said::new([
        Part::Thinking("There it is.".into(), Some("YWdhaW4=".into())),
        text("Found it."),
    ]);
    [dialect.answer(&first), dialect.answer(&second)]
}

#[test]
fn a_conversation_goes_on_in_every_other_protocol_and_comes_back() {
    for from in Dialect::ALL {
        for to in Dialect::ALL.into_iter().filter(|it| *it != from) {
            let (first, second) = (ModelServer::new(), ModelServer::new());
            let world = some_world();
            let providers = [
                ("p", provider_in(from, first.port(), "models: { m: { reasoning: true } },")),
                ("q", provider_in(to, second.port(), "models: { n: { reasoning: true } },")),
            ];
            configure(&world, &providers, "fallbackModels: [{ provider: 'q', model: 'n' }],");
            world.start_gateway();
            first.play(rich(from));
            assert_eq!(world.answer("api:1", "begin"), "Found it.");
            second.play(rich(to));
            let other = json!({"provider": "q", "modelId": "n"});
            let body = json!({"message": "go on", "sessionKey": "api:1", "model": other});
            let reply = world.post("/api/agents/a/prompt", &body);
            assert_eq!(reply.json()["response"], "Found it.", "{from:?} {to:?} {}", reply.text());
            first.play([from.answer(&Said::text("Home."))]);
            let own = json!({"provider": "p", "modelId": "m"});
            let body = json!({"message": "back", "sessionKey": "api:1", "model": own});
            let reply = world.post("/api/agents/a/prompt", &body);
            assert_eq!(reply.json()["response"], "Home.", "{from:?} {to:?} {}", reply.text());
            for server in [&first, &second] {
                let said = server.last().said().join("\n");
                for word in ["begin", "I look.", "found", "Found it.", "go on"] {
                    assert!(said.contains(word), "{from:?} {to:?}: no {word:?} in {said}");
                }
                let found = server.take_violations();
                assert!(found.is_empty(), "{from:?} {to:?}: {}", found.join("\n"));
            }
        }
    }
}
