//! What model calls take: a line each, the sums over them, and the limits of a
//! turn, on the binary and a model that says what it took.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{
    Answer, Finished, ModelServer, World, chunk, runs, says, some_world, with_and_without_gateway,
};

/// A model of known price, cache included.
const PRICED: &str =
    "models: { m: { cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 1.25 } } },";

/// Events with the usage of an answer, of which some was in the cache.
fn usage(prompt: u64, cached: u64, completion: u64) -> Value {
    let mut last = chunk(json!([]));
    last["usage"] = json!({
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion, "prompt_tokens_details": {"cached_tokens": cached},
    });
    last
}

/// A world in which `a` has these limits and asks that server.
fn limited(server: &ModelServer, fields: &str, limits: &str) -> World {
    let world = some_world();
    let agent = world.agent("a", "", &format!("limits: {{ {limits} }},"));
    world.model_of(server, fields, &agent);
    world
}

/// The lines of the file.
fn lines(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.home().join("data/usage.jsonl")).expect("a usage log");
    assert!(text.ends_with('\n'), "{text}");
    text.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect()
}

fn usage_of(world: &World, arguments: &[&str]) -> Value {
    let mut all = vec!["usage", "--json"];
    all.extend(arguments);
    world.run(all).expect(0).json()
}

#[test]
fn each_call_is_a_line_and_all_are_added_up() {
    with_and_without_gateway(|world| {
        let server = ModelServer::playing([
            Answer::stream().text("hi").finish("stop").event(&usage(1000, 400, 500)).done(),
            says("again"),
        ]);
        world.model(&server, PRICED);
        if world.api_socket().exists() {
            // It reads the port of this round's server.
            world.run(["gateway", "restart"]).expect(0);
        }
        let file = world.home().join("data/usage.jsonl");
        let _ = fs::remove_file(&file);
        let key = format!("cli:a:{}", server.port());
        for _ in 0..2 {
            world.run(["prompt", "a", "--session", &key, "go"]).expect(0);
        }
        let lines = lines(world);
        assert_eq!(lines.len(), 2);
        let line = &lines[0];
        for (name, want) in [
            ("agent", json!("a")),
            ("session", json!(key)),
            ("provider", json!("p")),
            ("model", json!("m")),
            ("role", json!("main")),
            ("input", json!(600)),
            ("output", json!(500)),
            ("cacheRead", json!(400)),
            ("cacheWrite", json!(0)),
        ] {
            assert_eq!(line[name], want, "{name} of {line}");
        }
        assert!((line["costUsd"].as_f64().expect("a cost") - 0.00164).abs() < 1e-12, "{line}");
        let first = line["firstTokenMs"].as_u64().expect("a time");
        assert!(first <= line["durationMs"].as_u64().expect("a time"), "{line}");
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);

        let sums = usage_of(world, &["--by", "session"]);
        let total = &sums["total"];
        assert_eq!(sums["rows"][0]["session"], json!(key));
        assert_eq!((&total["calls"], &total["failed"]), (&json!(2), &json!(0)));
        assert_eq!((&total["input"], &total["cacheRead"]), (&json!(607), &json!(400)));
        assert_eq!(total["costUsd"], json!(0.001_653), "{total}");
        assert_eq!(usage_of(world, &["--since", "1h"])["total"]["calls"], 2);
        assert_eq!(usage_of(world, &["--since", "2999-01-01"])["rows"], json!([]));
        let shown = world.run(["usage"]).expect(0).text();
        assert!(shown.contains("\np/m ") && shown.ends_with("$0.0017\n"), "{shown}");
    });
}

#[test]
fn a_price_that_nobody_knows_is_not_nothing() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = some_world();
    world.model(&server, "");
    world.run(["prompt", "a", "go"]).expect(0);
    assert_eq!(lines(&world)[0]["costUsd"], Value::Null);
    let total = usage_of(&world, &[])["total"].clone();
    assert_eq!((&total["costUsd"], &total["callsOfUnknownCost"]), (&Value::Null, &json!(1)));
    assert!(world.run(["usage"]).expect(0).text().ends_with("  unknown\n"));
    world.model(&server, PRICED);
    world.run(["prompt", "a", "go"]).expect(0);
    assert!(world.run(["usage"]).expect(0).text().ends_with("at least $0.000013000\n"));
}

#[test]
fn a_call_that_was_turned_away_costs_nothing_whatever_the_price() {
    let limited = Answer::error(429, "slow down").header("Retry-After", "3600");
    let server = ModelServer::playing([Answer::error(401, "no such key"), limited]);
    let world = some_world();
    world.model(&server, "");
    for _ in 0..2 {
        world.run(["prompt", "a", "go"]).expect(1);
    }
    let told: Vec<Value> = lines(&world).iter().map(|it| it["failure"].clone()).collect();
    assert_eq!(told, ["refused", "rate_limit"]);
    let total = usage_of(&world, &[])["total"].clone();
    let told = json!([total["calls"], total["costUsd"], total["callsOfUnknownCost"]]);
    assert_eq!(told, json!([2, 0.0, 0]), "{total}");
}

#[test]
fn what_a_call_took_that_was_cut_is_not_told_as_nothing() {
    let begun = Answer::stream().text("Let me").cut();
    let whole = Answer::stream().text("fine").finish("stop").event(&usage(1000, 400, 500)).done();
    let server = ModelServer::playing([begun, whole]);
    let world = some_world();
    world.model(&server, PRICED);
    world.start_gateway();
    let told = world.events("api:1", "go");
    let costs = told.iter().filter(|it| it["type"] == "usage").map(|it| it["costUsd"].clone());
    assert_eq!(costs.collect::<Vec<_>>(), [Value::Null, json!(0.00164)], "{told:#?}");
    let costs = lines(&world).into_iter().map(|it| it["costUsd"].is_null());
    assert_eq!(costs.collect::<Vec<_>>(), [true, false], "as the log has it");
}

#[test]
fn a_call_that_fails_is_a_line_too() {
    let server = ModelServer::playing([Answer::error(401, "no such key")]);
    let world = some_world();
    world.model(&server, PRICED);
    world.run(["prompt", "a", "go"]).expect(1);
    let lines = lines(&world);
    assert_eq!(lines.len(), 1);
    let told = json!([lines[0]["failure"], lines[0]["costUsd"], lines[0]["firstTokenMs"]]);
    assert_eq!(told, json!(["refused", 0.0, null]));
    assert_eq!(usage_of(&world, &[])["total"]["failed"], 1);
}

/// The fields of a line that say what it is of.
fn told(line: &Value) -> Value {
    json!([line["session"], line["model"], line["role"], line["failure"]])
}

#[test]
fn each_model_that_is_tried_has_its_line() {
    let server = ModelServer::answering(|asked| match asked.body["model"].as_str() {
        Some("m") => Answer::error(500, "broken"),
        _ => says("fine"),
    });
    let world = some_world();
    let fallback = "fallbackModels: [{ provider: 'p', model: 'n' }],";
    world.model_of(&server, "", &world.agent("a", "", fallback));
    world.run(["prompt", "a", "--session", "cli:a:1", "go"]).expect(0);
    let lines: Vec<Value> = lines(&world).iter().map(told).collect();
    let want =
        [json!(["cli:a:1", "m", "main", "unavailable"]), json!(["cli:a:1", "n", "main", null])];
    assert_eq!(lines, want);
}

#[test]
fn a_summary_and_an_answer_for_a_client_have_their_lines() {
    let server = ModelServer::answering(|asked| {
        let summarises = asked.said()[0].contains("You write summaries");
        if summarises { says("short") } else { says(&"long ".repeat(2_000)) }
    });
    let world = some_world();
    world.model(&server, "");
    world.start_gateway();
    for _ in 0..2 {
        world.answer("api:1", &"say more ".repeat(500));
    }
    let reply = world.post("/api/agents/a/sessions/api%3A1/compact", &json!({}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let chat = json!({"provider": "p", "modelId": "m", "agentName": "a",
        "context": {"systemPrompt": "s", "messages": [{"role": "user", "content": "go", "timestamp": 1}]}});
    let reply = world.post("/api/chat/stream", &chat);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let lines: Vec<Value> = lines(&world).iter().map(told).collect();
    let main = json!(["api:1", "m", "main", null]);
    let summary = json!(["api:1", "m", "compaction", null]);
    assert_eq!(lines, [main.clone(), main, summary, json!([null, "m", "main", null])]);
}

#[test]
fn what_a_compaction_takes_counts_for_the_turn() {
    let server = ModelServer::answering(|asked| {
        let summarises = asked.said()[0].contains("You write summaries");
        if summarises { says("short") } else { says(&"long ".repeat(4_000)) }
    });
    // Ten tokens a call, and the conversation is soon too long.
    let models = "models: { m: { contextWindow: 8000 } },";
    let world = limited(&server, models, "maxTurnTokens: 10");
    world.start_gateway();
    world.answer("api:1", "go");
    let reply = world.prompt("api:1", "go on");
    assert_eq!((reply.status, &reply.json()["category"]), (502, &json!("max_tokens")));
    assert_eq!(server.asked().len(), 2, "the summary was all that it might ask for");
    assert_eq!(lines(&world)[1]["role"], "compaction");
}

#[test]
fn the_api_tells_the_same_as_the_command_line() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = some_world();
    world.model(&server, PRICED);
    world.start_gateway();
    world.answer("api:1", "go");
    world.answer("api:2", "go");
    for (query, arguments) in [
        ("", &[][..]),
        ("?by=session", &["--by", "session"]),
        ("?by=day&agent=a&since=1d", &["--by", "day", "--agent", "a", "--since", "1d"]),
        ("?agent=a&since=2999-01-01", &["--agent", "a", "--since", "2999-01-01"]),
    ] {
        let told = world.get(&format!("/api/usage{query}"));
        assert_eq!(told.status, 200, "{}", told.text());
        assert_eq!(told.json(), usage_of(&world, arguments), "{query}");
    }
    assert_eq!(world.get("/api/usage?by=tool").status, 400);
    assert_eq!(world.get("/api/usage?tool=x").status, 400);
    assert_eq!(world.post("/api/usage", &json!({})).status, 405);
}

#[test]
fn one_shots_side_by_side_write_whole_lines() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = some_world();
    world.model(&server, PRICED);
    world.start_gateway();
    let prompts: Vec<_> = (0..8)
        .map(|it| world.spawn(["prompt", "a", "--session", &format!("cli:a:{it}"), "go"]))
        .collect();
    for child in prompts {
        Finished::from(child.wait_with_output().expect("it ends")).expect(0);
    }
    world.run(["gateway", "stop"]).expect(0);
    world.run(["prompt", "a", "go"]).expect(0);
    assert_eq!(lines(&world).len(), 9);
    assert_eq!(usage_of(&world, &["--by", "session"])["rows"].as_array().map(Vec::len), Some(9));
}

/// The prompt ends with that category and these words after so many calls, what
/// was done is kept, and another prompt goes on.
#[track_caller]
fn check_limit(limits: &str, command: &str, calls: usize, category: &str, words: &[&str]) {
    let command = command.to_owned();
    let server = ModelServer::answering(move |asked| match asked.last_user().as_str() {
        "go" => runs(&format!("c{}", asked.said().len()), &command),
        _ => says("fine"),
    });
    let world = limited(&server, PRICED, limits);
    world.start_gateway();
    let told = world.events("api:1", "go");
    let end = told.last().expect("an event");
    assert_eq!(json!([end["type"], end["category"]]), json!(["error", category]), "{end}");
    let message = end["message"].as_str().expect("a message");
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
    assert_eq!(server.asked().len(), calls);
    let stored = world.stored("api:1");
    let roles: Vec<&str> = stored.iter().filter_map(|it| it["role"].as_str()).collect();
    assert_eq!(roles.iter().filter(|it| **it == "toolResult").count(), calls, "{roles:?}");
    assert_eq!(stored.last().expect("an end")["errorMessage"], *message);
    assert_eq!(world.prompt("api:2", "go").status, 502);
    assert_eq!(world.answer("api:1", "and now?"), "fine");
    // Who typed it is told how to go on, in a session that nobody named.
    let told = world.run(["prompt", "a", "go"]).expect(1).stderr;
    let further = told.lines().nth(1).and_then(|it| it.split_once(": beige ")).expect(&told).1;
    let typed = further.strip_suffix(" \"go on\"").expect(further).split(' ');
    let done = world.run(typed.chain(["and now?"])).expect(0);
    assert_eq!((done.text(), told.lines().count()), ("fine\n".into(), 2), "{told}");
    let told = world.run(["prompt", "a", "--json", "go"]).expect(1).stderr;
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn a_turn_ends_at_its_tokens() {
    // Ten a call.
    let words = ["after 2 model calls", "20 tokens", "`limits.maxTurnTokens` is 15", "goes on"];
    check_limit("maxTurnTokens: 15", "true", 2, "max_tokens", &words);
}

#[test]
fn a_turn_ends_at_its_costs() {
    // 13 millionths of a dollar a call.
    let words = ["after 2 model calls", "`limits.maxTurnCostUsd` is 0.00002", "goes on"];
    check_limit("maxTurnCostUsd: 0.00002", "true", 2, "max_cost", &words);
}

#[test]
fn a_turn_ends_when_its_time_is_up_tools_included() {
    let words = ["after 1 model call,", "`limits.maxTurnSeconds` is 0.4", "goes on"];
    check_limit("maxTurnSeconds: 0.4", "sleep 0.5", 1, "max_seconds", &words);
}

#[test]
fn a_turn_ends_after_its_calls() {
    let words = ["after 3 model calls", "`limits.maxTurns` is 3", "goes on"];
    check_limit("maxTurns: 3", "true", 3, "max_turns", &words);
}

#[test]
fn tokens_that_a_provider_does_not_tell_are_estimated_for_a_limit() {
    let silent = |id: usize| {
        Answer::stream()
            .text(&"word ".repeat(100))
            .call(0, &format!("c{id}"), "exec", "{\"command\":\"true\"}")
            .finish("tool_calls")
            .done()
    };
    let server = ModelServer::answering(move |asked| silent(asked.said().len()));
    let world = limited(&server, PRICED, "maxTurnTokens: 100");
    let told = world.run(["prompt", "a", "go"]).expect(1).stderr;
    assert!(told.contains("`limits.maxTurnTokens` is 100"), "{told}");
    assert_eq!(server.asked().len(), 1);
    // What nobody told is not written down as if somebody had.
    let line = &lines(&world)[0];
    assert_eq!(json!([line["output"], line["costUsd"]]), json!([0, null]));
}

#[test]
fn a_limit_on_costs_of_an_unknown_price_is_refused() {
    let server = ModelServer::new();
    let world = limited(&server, "", "maxTurnCostUsd: 0.5");
    let words = [
        "agents.a.limits.maxTurnCostUsd",
        "the price of `p/m` is not known",
        "llm.providers.p.models.\"m\".cost",
    ];
    for arguments in [&["config", "check"][..], &["gateway", "start"], &["prompt", "a", "go"]] {
        let done = world.run(arguments).expect(78);
        let told = done.text() + &done.stderr;
        assert!(words.iter().all(|it| told.contains(it)), "{arguments:?}: {told}");
    }
    assert_eq!(server.asked().len(), 0);
    // What costs nothing has a price.
    let world = limited(
        &server,
        "models: { m: { cost: { input: 0, output: 0 } } },",
        "maxTurnCostUsd: 0.5",
    );
    world.run(["config", "check"]).expect(0);
    // So has a well-known model at its vendor.
    let agent = world.agent("a", "", "limits: { maxTurnCostUsd: 1 },").replace("'m'", "'gpt-4o'");
    let agent = agent.replace("'p'", "'openai'");
    let config = format!(
        "{{ llm: {{ providers: {{ openai: {{ apiKey: 'k3y-of-nobody' }} }} }}, plugins: {{
         notes: {{ path: '{}/examples/notes' }} }}, agents: {{ {agent} }} }}",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::write(world.config_file(), config).expect("written");
    world.run(["config", "check"]).expect(0);
}

/// Lines as of so many calls, one a minute.
fn write_lines(world: &World, count: u64) {
    fs::create_dir_all(world.home().join("data")).expect("a folder");
    let file = fs::File::create(world.home().join("data/usage.jsonl")).expect("a file");
    let mut file = std::io::BufWriter::new(file);
    for number in 0..count {
        let (day, minute) = (number / 1440 % 28 + 1, number % 1440);
        let ts = format!("2026-09-{day:02}T{:02}:{:02}:00.000Z", minute / 60, minute % 60);
        let line = json!({"ts": ts, "agent": format!("a{}", number % 3),
            "session": format!("cli:a:{number}"), "provider": "p", "model": "m", "role": "main",
            "input": 1000, "output": 10, "cacheRead": 100, "cacheWrite": 0, "costUsd": 0.25,
            "durationMs": 100, "firstTokenMs": 10});
        writeln!(file, "{line}").expect("written");
    }
    file.flush().expect("written");
}

#[test]
fn damaged_lines_are_left_out_and_counted() {
    let world = some_world();
    write_lines(&world, 3);
    let file = world.home().join("data/usage.jsonl");
    let mut bytes = b"{\"torn\":\n\xff\xfe\n".to_vec();
    bytes.extend(fs::read(&file).expect("read"));
    fs::write(&file, bytes).expect("written");
    let done = world.run(["usage"]).expect(0);
    assert_eq!(done.stderr, "2 lines could not be read\n");
    assert!(done.text().ends_with("$0.7500\n"), "{}", done.text());
    assert_eq!(usage_of(&world, &[])["damagedLines"], 2);
}

#[test]
fn a_hundred_thousand_calls_are_added_up_in_little_memory_and_summed_up_by_the_next() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = some_world();
    world.model(&server, PRICED);
    write_lines(&world, 100_000);
    let file = world.home().join("data/usage.jsonl");
    let long = fs::metadata(&file).expect("it is there").len();
    assert!(long > 20_000_000, "{long}");
    for by in ["day", "agent", "model", "session"] {
        // All memory of its own that a process may have, in kB.
        let beige = world.beige(["usage", "--json", "--by", by]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -d 12000; exec \"$@\"", "sh"]).arg(beige.get_program());
        shell.args(beige.get_args()).env("BEIGE_HOME", world.home());
        let done = Finished::from(shell.output().expect("sh runs")).expect(0).json();
        let total = json!([done["total"]["calls"], done["total"]["costUsd"]]);
        assert_eq!(total, json!([100_000, 25_000.0]), "{by}");
    }
    let by_day = usage_of(&world, &["--by", "day"])["rows"].clone();
    world.run(["prompt", "a", "go"]).expect(0);
    let short = fs::metadata(&file).expect("it is there").len();
    assert!(short < long / 5, "{long} became {short}");
    let after = usage_of(&world, &["--by", "day"]);
    assert_eq!(after["total"]["calls"], 100_001);
    let rows = after["rows"].as_array().expect("rows");
    assert_eq!(json!(rows[..rows.len() - 1]), by_day, "the days are as they were");
}

#[test]
fn an_agent_that_nobody_knows_is_named_with_the_nearest() {
    let world = some_world();
    world.configure(&["ada", "bob"], "");
    let fails = |arguments: &[&str]| {
        let mut all = vec!["usage", "--agent"];
        all.extend(arguments);
        world.run(all).expect(1)
    };
    let told = "there is no agent `adda`; did you mean `ada`? (agents: ada, bob)";
    assert_eq!(fails(&["adda"]).stderr, format!("beige usage: {told}\n"));
    assert_eq!(fails(&["adda", "--json"]).json(), json!({"error": told}));
    let audit = world.run(["audit", "--agent", "adda"]).expect(1);
    assert_eq!((audit.text(), audit.stderr), (String::new(), format!("beige audit: {told}\n")));
    let audit = world.run(["audit", "--agent", "adda", "--json"]).expect(1);
    assert_eq!(audit.json(), json!({"error": told}));
    assert_eq!(world.run(["audit", "--agent", "ada"]).expect(0).text(), "");
    // One that has asked nothing yet is no mistake.
    assert_eq!(world.run(["usage", "--agent", "ada"]).expect(0).text(), "no model calls\n");
    // Nor is one that is not configured any more, whenever that was.
    write_lines(&world, 1);
    assert!(world.run(["usage", "--agent", "a0"]).expect(0).text().starts_with("model "));
    let later = world.run(["usage", "--agent", "a0", "--since", "2999-01-01"]).expect(0);
    assert_eq!(later.text(), "no model calls\n");
    assert!(fails(&["a1"]).stderr.contains("did you mean `a0`? (agents: a0, ada, bob)"));
    // Without a sound configuration nobody can say who there is.
    fs::write(world.config_file(), "{").expect("written");
    world.run(["usage", "--agent", "adda"]).expect(0);
}
