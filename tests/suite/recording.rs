//! Recording: what a provider says becomes a cassette, and a cassette plays
//! whole sessions back, tools and all, with no provider there.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{
    Answer, Dialect, KEY, ModelServer, Part, Said, World, calls, provider_in, runs, says,
    says_and_calls, some_world,
};

const RECORDED: &str = "record: true, cassette: './tape.jsonl',";

/// The lines of the cassette that was recorded.
fn tape(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.root.join("tape.jsonl")).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line: {text}");
    text.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect()
}

/// Puts the cassette in the place of the server, for a gateway that runs.
fn play_back(world: &World) {
    let provider = "api: 'replay', cassette: './tape.jsonl'";
    world.write_config_of(provider, &world.agent("a", "", ""), "");
    world.run(["config", "check"]).expect(0);
    world.run(["gateway", "restart"]).expect(0);
}

#[test]
fn a_recorded_session_is_played_back_offline() {
    let server = ModelServer::playing([
        says_and_calls(
            "Let me *see*.",
            &[
                ("c1", "exec", json!({"command": "echo '[\"a\"]' >made; notes add 'x y'; exit 3"})),
                ("c2", "read", json!({"path": "made"})),
            ],
        ),
        Answer::stream()
            .delta(&json!({"reasoning_content": "hm"}))
            .text("Now the other.")
            .call(0, "c1", "exec", "{\"command\": \"cat made\"")
            .finish("tool_calls")
            .usage(9, 4)
            .done(),
        says("It was [\"a\"]."),
        runs("c9", "cat made; rm made"),
        says("Gone."),
    ]);
    let world = some_world();
    world.model(&server, RECORDED);
    world.start_gateway();
    assert_eq!(world.answer("api:1", "do *it*?"), "It was [\"a\"].");
    assert_eq!(world.answer("api:1", "and now?"), "Gone.");
    assert_eq!(tape(&world).len(), 5);
    let asked = server.asked().len();
    drop(server);

    play_back(&world);
    let before = world.audit_if_any();
    assert_eq!(world.answer("api:2", "do *it*?"), "It was [\"a\"].");
    assert_eq!(world.answer("api:2", "and now?"), "Gone.");
    assert_eq!(asked, 5);
    assert_eq!(world.messages("api:2"), world.messages("api:1"));
    // What ran is the same too.
    let ran = |records: &[Value]| {
        let of_tools = records.iter().filter(|it| it["type"] != "llm");
        let word = |it: &Value| json!([it["tool"], it["args"], it["phase"], it["exitCode"]]);
        of_tools.map(word).collect::<Vec<_>>()
    };
    let audit = world.audit();
    assert_eq!(ran(&audit[before..]), ran(&audit[..before]));
    // Tokens are those of the recording.
    let usage = |key: &str| {
        let stored = world.stored(key).into_iter().filter(|it| it["role"] == "assistant");
        stored.map(|it| it["usage"]["totalTokens"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(usage("api:2"), usage("api:1"));
}

#[test]
fn what_any_protocol_says_is_played_back_with_its_opaque_data() {
    for dialect in Dialect::ALL {
        eprintln!("in {}", dialect.api());
        let arguments = json!({"command": "echo hi"}).to_string();
        let first = Said::new([
            Part::Thinking("hm".into(), Some("c2lnbmVk".into())),
            Part::Text("I look.".into()),
            Part::Call("call_1".into(), "exec".into(), arguments),
        ]);
        let server =
            ModelServer::playing([first, Said::text("Done.")].iter().map(|it| dialect.answer(it)));
        let world = some_world();
        let provider = provider_in(dialect, server.port(), RECORDED);
        world.write_config_of(&provider, &world.agent("a", "", ""), "");
        world.start_gateway();
        assert_eq!(world.answer("api:1", "go"), "Done.");
        drop(server);
        play_back(&world);
        assert_eq!(world.answer("api:2", "go"), "Done.");
        let told = |key: &str| {
            let stored = world.stored(key).into_iter().filter(|it| it["role"] == "assistant");
            let fields = |it: Value| json!([it["content"], it["stopReason"], it["usage"]]);
            stored.map(fields).collect::<Vec<_>>()
        };
        assert_eq!(told("api:2"), told("api:1"));
    }
}

#[test]
fn several_sessions_are_recorded_in_one_file_and_told_apart() {
    let server = ModelServer::answering(|asked| match asked.last_tool() {
        Some(result) => says(&format!("It said {}", result.trim().replace('\n', " "))),
        None => runs("c1", &format!("echo {}", asked.last_user())),
    });
    let world = some_world();
    world.model(&server, RECORDED);
    world.start_gateway();
    let words = ["one", "two", "three", "four"];
    std::thread::scope(|scope| {
        for word in words {
            let world = &world;
            scope.spawn(move || world.answer(&format!("api:{word}"), word));
        }
    });
    assert_eq!(tape(&world).len(), 8);
    let mode = fs::metadata(world.root.join("tape.jsonl")).expect("a cassette").permissions();
    assert_eq!(mode.mode() & 0o7777, 0o600);
    drop(server);
    play_back(&world);
    for word in words.iter().rev() {
        let want = format!("It said Exit code: 0 {word}");
        assert_eq!(world.answer(&format!("api:again-{word}"), word), want);
    }
}

#[test]
fn no_secret_is_recorded() {
    let echo = format!("your key is {KEY}");
    let server = ModelServer::playing([
        says_and_calls(&echo, &[("c1", "exec", json!({"command": format!("echo {KEY}")}))]),
        says("fine"),
        Answer::error(400, &echo),
    ]);
    let world = some_world();
    world.model(&server, RECORDED);
    world.start_gateway();
    assert_eq!(world.answer("api:1", "go"), "fine");
    assert_ne!(world.prompt("api:1", "more").status, 200);
    let lines = tape(&world);
    let text = json!(lines).to_string();
    assert!(!text.contains(KEY) && text.contains("your key is ••••"), "{text}");
    // A call that failed is played back as one.
    let failed = &lines[2]["events"][0]["refused"];
    assert!(failed.as_str().is_some_and(|it| it.contains("••••")), "{:#}", lines[2]);
}

#[test]
fn a_one_shot_records_as_well() {
    let server = ModelServer::playing([calls(&[("c1", "read", json!({"path": "x"}))]), says("ok")]);
    let world = some_world();
    world.model(&server, RECORDED);
    world.run(["prompt", "a", "go"]).expect(0);
    assert_eq!(tape(&world).len(), 2);
    assert_eq!(tape(&world)[1]["match"], json!({"lastUser": "go", "lastTool": "read"}));
}

#[test]
fn a_place_that_cannot_be_recorded_in_is_said_beforehand() {
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, "record: true, cassette: './no/such/tape.jsonl',");
    let check = world.run(["config", "check"]).expect(78);
    let said = check.text() + &check.stderr;
    assert!(said.contains("llm.providers.p.cassette") && said.contains("to record in"), "{said}");
}
