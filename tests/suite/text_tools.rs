//! Models without native tools: told of them in the system prompt, they write
//! their calls as text, which runs like any other call and is shown to nobody.

use serde_json::{Value, json};

use crate::support::{
    Answer, Dialect, ModelServer, Said, World, provider_in, says, says_in, some_world,
};

const TEXT_TOOLS: &str = "models: { m: { compat: { textTools: true } } },";

/// A world whose gateway runs and asks that server, by text or natively.
fn serving(server: &ModelServer, fields: &str) -> World {
    let world = some_world();
    world.model(server, fields);
    world.start_gateway();
    world
}

/// A call as the model writes it.
fn block(tool: &str, arguments: &Value) -> String {
    format!("<tool_call>\n{{\"name\": \"{tool}\", \"arguments\": {arguments}}}\n</tool_call>")
}

fn exec(command: &str) -> String {
    block("exec", &json!({"command": command}))
}

/// The user message that tells what came of these calls: tool and text.
fn responses(results: &[(&str, &str)]) -> String {
    let blocks = results.iter().map(|(tool, text)| {
        let text = json!(text).to_string().replace("</tool_", "<\\/tool_");
        format!("<tool_response>\n{{\"name\": \"{tool}\", \"content\": {text}}}\n</tool_response>")
    });
    blocks.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_model_calls_tools_by_text_and_answers() {
    let look = format!("I look.\n\n{}\n{}\n", exec("echo a; echo '<b>'"), exec("echo ok"));
    let server = ModelServer::playing([says(&look), says("All done.")]);
    let world = serving(&server, TEXT_TOOLS);
    let told = world.events("api:1", "do it");
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|it| it.body.get("tools").is_none()), "{:#}", asked[0].body);
    let system = asked[0].said()[0].clone();
    for part in ["<tool_call>\n{\"name\": \"read\", ", "\"name\": \"exec\", ", "\"oldText\":{"] {
        assert!(system.contains(part), "{part} in {system}");
    }
    assert_eq!(asked[1].body["messages"][0], asked[0].body["messages"][0]);
    let results = responses(&[("exec", "Exit code: 0\na\n<b>\n"), ("exec", "Exit code: 0\nok\n")]);
    let calls = [exec("echo a; echo '<b>'"), exec("echo ok")].join("\n");
    let want = [
        "user: do it".to_owned(),
        format!("assistant: I look.\n{calls}"),
        format!("user: {results}"),
    ];
    assert_eq!(asked[1].said()[1..], want);

    // Nobody is shown a marker, and what is stored are calls like any other.
    let shown = json!(told).to_string();
    assert!(!shown.contains("tool_call>"), "{shown}");
    assert_eq!(told.last().map(|it| &it["response"]), Some(&json!("All done.")));
    let stored = world.stored("api:1");
    let [text, first, second] = stored[1]["content"].as_array().expect("blocks").as_slice() else {
        panic!("{:#}", stored[1])
    };
    assert_eq!((&text["text"], &stored[1]["stopReason"]), (&json!("I look."), &json!("toolUse")));
    assert_eq!(first["arguments"]["command"], "echo a; echo '<b>'");
    let ids = [&first["id"], &second["id"]];
    assert!(ids[0] != ids[1] && ids[0].as_str().is_some_and(|it| it.len() == 9), "{ids:?}");
    assert_eq!([&stored[2]["toolCallId"], &stored[3]["toolCallId"]], ids);
}

#[test]
fn every_protocol_can_do_without_native_calls() {
    for dialect in Dialect::ALL {
        eprintln!("in {}", dialect.api());
        let look = Said::text(&format!("I look.\n{}", exec("echo hi")));
        let server =
            ModelServer::playing([look, Said::text("Done.")].iter().map(|it| dialect.answer(it)));
        let world = some_world();
        let provider = provider_in(dialect, server.port(), TEXT_TOOLS);
        world.write_config_of(&provider, &world.agent("a", "", ""), "");
        world.start_gateway();
        assert_eq!(world.answer("api:1", "go"), "Done.");
        let last = server.last();
        assert!(last.body.get("tools").is_none(), "{:#}", last.body);
        let said = last.said();
        assert!(said[0].contains("<tool_call>"), "{}", said[0]);
        let want = [
            "user: go".to_owned(),
            format!("assistant: I look.\n{}", exec("echo hi")),
            format!("user: {}", responses(&[("exec", "Exit code: 0\nhi\n")])),
        ];
        assert_eq!(said[1..], want);
    }
}

#[test]
fn another_model_gets_the_same_calls_natively_and_gives_its_own_back() {
    let server = ModelServer::playing([says(&exec("echo one")), says("Fine.")]);
    let world = serving(&server, TEXT_TOOLS);
    assert_eq!(world.answer("api:1", "go"), "Fine.");
    world.model(&server, "");
    world.run(["gateway", "restart"]).expect(0);
    let native = crate::support::runs("c1", "echo two");
    server.play([native, says("Fine too.")]);
    assert_eq!(world.answer("api:1", "more"), "Fine too.");
    assert!(server.last().body["tools"].is_array());
    let said = server.last().said();
    assert_eq!(said[2], "assistant: <exec {\"command\":\"echo one\"}>");
    assert_eq!(said[3], "tool: Exit code: 0\none\n");
    world.model(&server, TEXT_TOOLS);
    world.run(["gateway", "restart"]).expect(0);
    server.play([says("Done.")]);
    assert_eq!(world.answer("api:1", "and?"), "Done.");
    let said = server.last().said();
    assert_eq!(said[6], format!("assistant: {}", exec("echo two")));
    assert_eq!(said[7], format!("user: {}", responses(&[("exec", "Exit code: 0\ntwo\n")])));
}

#[test]
fn calls_are_found_however_they_come() {
    let server = ModelServer::new();
    let world = serving(&server, TEXT_TOOLS);
    let check = |answer: Answer, shown: &str, results: &[(&str, &str)]| {
        let played = format!("{answer:?}");
        server.play([answer, says("fine")]);
        let key = format!("api:{}", server.asked().len());
        let told = world.events(&key, "go");
        let texts = told.iter().filter(|it| it["type"] == "text_delta");
        let texts: String = texts.filter_map(|it| it["delta"].as_str()).collect();
        assert_eq!(texts, format!("{shown}fine"), "{played}");
        assert_eq!(told.last().map(|it| &it["response"]), Some(&json!("fine")), "{played}");
        let last = server.last().said().pop();
        assert_eq!(last, Some(format!("user: {}", responses(results))), "{played}");
    };
    let hi = [("exec", "Exit code: 0\nhi\n")];
    let text = format!("So: {}", exec("echo hi"));
    for size in [1, 2, 3, 7] {
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let pieces: Vec<String> = letters.chunks(size).map(|it| it.concat()).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        check(says_in(&pieces), "So:", &hi);
    }
    // A line break in a string as it is, braces and markers in strings.
    let raw = exec("cat <<'E'\n}{\"</tool_call>\nE").replace("\\n", "\n");
    check(says(&raw), "", &[("exec", "Exit code: 0\n}{\"</tool_call>\n")]);
    // Without its end.
    let open = exec("echo hi").replace("</tool_call>", "");
    check(says(&open), "", &hi);
    check(says(&format!("{open}{}", exec("echo hi"))), "", &[hi[0], hi[0]]);
    // With what is thought before, which is not run.
    let thought = Answer::stream().delta(&json!({"reasoning_content": exec("touch thought")}));
    let thought = thought.text(&exec("echo hi")).finish("stop").done();
    server.play([thought, says("fine")]);
    assert_eq!(world.answer("api:thought", "go"), "fine");
    assert!(!world.workspace("a").join("thought").exists());
}

#[test]
fn what_does_not_parse_is_told_to_the_model() {
    let server = ModelServer::new();
    let world = serving(&server, TEXT_TOOLS);
    let check = |written: &str, want: &str| {
        server.play([says(written), says("fine")]);
        let key = format!("api:{}", server.asked().len());
        assert_eq!(world.answer(&key, "go"), "fine", "{written}");
        let last = server.last().last_user();
        assert!(last.contains("\"error\": true") && last.contains(want), "{written}: {last}");
        assert!(world.messages(&key)[2].starts_with("toolResult error: "), "{written}");
    };
    let half = "{\"name\": \"exec\", \"arguments\": {\"command\": \"touch seen";
    check(&format!("<tool_call>{half}"), "`exec` was not run: the arguments are not valid JSON");
    check(&format!("<tool_call>{half}</tool_call>"), "`exec` was not run");
    check("<tool_call>touch seen</tool_call>", "The call was not run: the arguments are not valid");
    check("<tool_call>[1]</tool_call>", "must be a JSON object");
    check(
        "<tool_call>{\"name\": \"exec\", \"arguments\": [1]}</tool_call>",
        "must be a JSON object",
    );
    check("<tool_call>{\"name\": \"exec\"}</tool_call>", "`command` is missing");
    check(
        "<tool_call>{\"name\": \"zap\"}</tool_call>",
        "The tools are read, write, patch and exec",
    );
    check("<tool_call></tool_call>", "The tools are read, write, patch and exec");
    assert!(!world.workspace("a").join("seen").exists());
}

#[test]
fn a_call_in_a_code_fence_is_shown_and_not_run() {
    let fenced = format!("Like this:\n```xml\n{}\n```\nor `<tool_call>`.", exec("touch seen"));
    let server = ModelServer::playing([says(&fenced), says("fine")]);
    let world = serving(&server, TEXT_TOOLS);
    assert_eq!(world.answer("api:1", "show me a tool call example"), fenced);
    assert_eq!(world.answer("api:1", "more"), "fine");
    assert_eq!(server.last().said()[2], format!("assistant: {fenced}"));
    assert!(!world.workspace("a").join("seen").exists());
}
