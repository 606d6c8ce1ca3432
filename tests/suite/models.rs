//! Turns with a model that speaks chat completions: tools, streams, sessions,
//! and what of an answer may be odd and is still an answer.

use std::fs;

use serde_json::{Value, json};

use crate::support::{
    Answer, Dialect, KEY, ModelServer, Part, Said, Stop, World, calls, chunk, on_either_kind,
    processes_with, provider_in, runs, says, says_and_calls, says_in, some_world,
    with_and_without_gateway,
};

/// A world whose gateway runs and asks that server.
fn serving(server: &ModelServer, fields: &str) -> World {
    let world = some_world();
    world.model(server, fields);
    world.start_gateway();
    world
}

/// The types of events.
fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|it| it["type"].as_str()).collect()
}

#[test]
fn a_model_calls_tools_and_answers() {
    with_and_without_gateway(|world| {
        let command = r#"notes add "a b"; echo hi; exit 9"#;
        let server = ModelServer::playing([
            says_and_calls(
                "Let me see.",
                &[
                    ("c1", "exec", json!({"command": command})),
                    ("c2", "read", json!({"path": "missing"})),
                    ("c3", "exec", json!({"command": "echo ok"})),
                ],
            ),
            says_in(&["All ", "done", "."]),
        ]);
        world.model(&server, "");
        let has_gateway = world.api_socket().exists();
        if has_gateway {
            // It reads the port of this round's server.
            world.run(["gateway", "restart"]).expect(0);
        }
        let key = format!("cli:a:{has_gateway}");
        let before = world.audit_if_any();
        let done = world.run(["prompt", "a", "--session", &key, "do it"]).expect(0);
        assert_eq!((done.text().as_str(), done.stderr.as_str()), ("All done.\n", ""));

        let asked = server.asked();
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0].body["model"], "m");
        assert_eq!(asked[0].said()[1..], ["user: do it"]);
        let tools = asked[0].body["tools"].as_array().expect("tools");
        let tools: Vec<&Value> = tools.iter().map(|it| &it["function"]["name"]).collect();
        assert_eq!(tools, ["read", "write", "patch", "exec"]);
        let said = asked[1].said();
        assert_eq!(said[1], "user: do it");
        let call = json!({"command": command}).to_string();
        let read = r#"<read {"path":"missing"}>"#;
        let last = r#"<exec {"command":"echo ok"}>"#;
        assert_eq!(said[2], format!("assistant: Let me see.<exec {call}>{read}{last}"));
        // The protocol has no mark for a failure, so it is said.
        assert_eq!(said[3], "tool: Error: Exit code: 9\nkept\nhi\n");
        assert!(said[4].starts_with("tool: Error: ") && said[4].contains("missing"), "{}", said[4]);
        assert_eq!(said[5..], ["tool: Exit code: 0\nok\n"]);
        assert_eq!(asked[0].body["messages"][0], asked[1].body["messages"][0]);

        let seen: Vec<String> = world.audit()[before..].iter().map(audit_line).collect();
        let want = [
            "llm p/m started",
            "llm p/m finished",
            "core_tool exec started",
            "tool notes started",
            "tool notes finished",
            "core_tool exec finished",
            "core_tool read started",
            "core_tool read finished",
            "core_tool exec started",
            "core_tool exec finished",
            "llm p/m started",
            "llm p/m finished",
        ];
        assert_eq!(seen, want);
        check_stored(world, &key);
        world.verify_audit();
    });
}

fn audit_line(record: &Value) -> String {
    let word = |name: &str| record[name].as_str().unwrap_or("-").to_owned();
    format!("{} {} {}", word("type"), word("tool"), word("phase"))
}

/// The turn above in pi's form.
#[track_caller]
fn check_stored(world: &World, key: &str) {
    let stored = world.stored(key);
    let roles: Vec<&Value> = stored.iter().map(|it| &it["role"]).collect();
    let want = ["user", "assistant", "toolResult", "toolResult", "toolResult", "assistant"];
    assert_eq!(roles, want);
    for (index, stop) in [(1, "toolUse"), (5, "stop")] {
        let it = &stored[index];
        let fields = json!([it["api"], it["provider"], it["model"], it["stopReason"]]);
        assert_eq!(fields, json!(["openai-completions", "p", "m", stop]));
        let usage = &it["usage"];
        let tokens = json!([usage["input"], usage["output"], usage["totalTokens"]]);
        assert_eq!(tokens, json!([7, 3, 10]));
        assert!(usage["cost"]["total"].is_number(), "{usage}");
        assert!(it["timestamp"].is_i64(), "{it}");
    }
    let of = |index: usize| {
        let it = &stored[index];
        json!([it["toolCallId"], it["toolName"], it["isError"]])
    };
    assert_eq!(
        [of(2), of(3), of(4)],
        [json!(["c1", "exec", true]), json!(["c2", "read", true]), json!(["c3", "exec", false])]
    );
}

#[test]
fn a_turn_is_told_while_the_model_speaks() {
    on_either_kind(|world| {
        let server = ModelServer::new();
        let gate = server.gate();
        server.play([
            Answer::stream()
                .delta(&json!({"role": "assistant", "content": "", "reasoning_content": "hm"}))
                .text("I ")
                .hold(&gate)
                .text("look.")
                .call(0, "c1", "exec", "{\"comm")
                .arguments(0, "and\":\"echo hi\"}")
                .finish("tool_calls")
                .usage(11, 5)
                .done(),
            says("Done."),
        ]);
        world.model(&server, "");
        world.start_gateway();
        let mut stream = world.stream("api:1", "go");
        assert_eq!(stream.until("text_delta")["delta"], "I ");
        // It was told before the model said more.
        gate.wait_held(1);
        gate.open();
        let told = stream.rest();
        assert_eq!(
            kinds(&told),
            [
                "turn_start",
                "thinking_delta",
                "text_delta",
                "text_delta",
                "usage",
                "tool_start",
                "tool_output",
                "tool_end",
                "turn_start",
                "text_delta",
                "usage",
                "done"
            ]
        );
        assert_eq!(
            told[5],
            json!({"type": "tool_start", "id": "c1", "tool": "exec", "params": {"command": "echo hi"}})
        );
        assert_eq!((&told[4]["input"], &told[4]["output"]), (&json!(11), &json!(5)));
        assert_eq!(told[11]["response"], "Done.");
        // The thinking is stored, and not sent back as text.
        assert_eq!(world.messages("api:1")[1].split('|').next(), Some("assistant: (hm)"));
        assert!(server.last().said()[2].starts_with("assistant: I look.<exec"));
    });
}

#[test]
fn a_connection_is_used_again() {
    let server = ModelServer::answering(|asked| says(&asked.last_user()));
    let world = serving(&server, "concurrency: 1,");
    for number in 0..4 {
        let text = format!("number {number}");
        assert_eq!(world.answer("api:1", &text), text);
    }
    assert_eq!(server.connections(), 1);
    assert_eq!(server.last().said().len(), 8, "the whole conversation is sent");
}

#[test]
fn headers_of_the_configuration_are_sent() {
    let server = ModelServer::playing([says("fine")]);
    let world = serving(&server, "headers: { 'X-Title': 'beige at work' },");
    assert_eq!(world.answer("api:1", "go"), "fine");
    let head = server.last().head;
    assert_eq!(head.all("x-title"), ["beige at work"]);
    assert_eq!(head.all("host"), [format!("127.0.0.1:{}", server.port())]);
    assert_eq!(head.all("user-agent").len(), 1, "{head:?}");
}

#[test]
fn an_answer_that_is_odd_but_whole_is_an_answer() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let check = |answer: Answer, want: &str| {
        let shown = format!("{answer:?}");
        server.play([answer, says("fine")]);
        let key = format!("api:{}", server.asked().len());
        assert_eq!(world.answer(&key, "go"), want, "{shown}");
        assert_eq!(world.answer(&key, "more"), "fine", "{shown}");
        let said = server.last().said();
        assert_eq!(said[2], format!("assistant: {want}"), "{shown}");
    };
    let text = |it: &str| Answer::stream().text(it);
    let all = "naïve 那 🦀 e\u{301}";
    // Any cut of bytes, of lines and of chunks.
    for size in [1, 2, 3, 7] {
        check(says(all).in_pieces(size), all);
        check(says(all).until_close().in_pieces(size), all);
    }
    check(Answer::stream().crlf().text(all).finish("stop").done().in_pieces(1), all);
    // A4: comments before, between and behind.
    let processing = ": OPENROUTER PROCESSING\n\n";
    check(
        Answer::stream()
            .bytes(processing)
            .bytes(processing)
            .text("a")
            .comment("")
            .bytes(":\n\n: ping\n")
            .text("b")
            .comment("x")
            .finish("stop")
            .done(),
        "ab",
    );
    // A10: every field may be null or absent.
    check(
        Answer::stream()
            .delta(&json!({"role": null, "content": null, "tool_calls": null}))
            .delta(&json!({"content": "a", "refusal": null, "annotations": []}))
            .event(&json!({"choices": null}))
            .event(&json!({}))
            .event(&json!({"choices": [{"delta": null}]}))
            .event(&json!({"choices": [{"delta": {"content": "b"}}]}))
            .finish("stop")
            .done(),
        "ab",
    );
    // A11: a chunk without a delta.
    let filter = json!({"choices": [{"index": 0, "content_filter_results": {}}]});
    check(
        Answer::stream()
            .event(&json!({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}))
            .text("a")
            .event(&filter)
            .finish("stop")
            .event(&filter)
            .done(),
        "a",
    );
    // No end mark after the reason to stop; usage as text, in the last chunk.
    check(text("a").finish("stop"), "a");
    check(text("a").finish("stop").until_close(), "a");
    check(text("a").done(), "a");
    let mut last = chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]));
    last["usage"] = json!({"prompt_tokens": "7", "completion_tokens": null});
    check(text("a").event(&last).done(), "a");
    // Several lines of data in an event; other fields; no space behind `data:`.
    check(
        Answer::stream()
            .bytes("event: message\nid: 7\nretry: 1\ndata: {\"choices\":\ndata: [{\"delta\":{\"content\":\"a\"}}]}\n\n")
            .bytes("data:{\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n")
            .bytes("data:[DONE]\n\n"),
        "ab",
    );
}

#[test]
fn a_character_cut_by_the_network_is_whole_again() {
    let server = ModelServer::new();
    let gate = server.gate();
    // The first part was read for certain when it tells of it.
    server.play([Answer::stream()
        .bytes(b"data: {\"choices\":[{\"delta\":{\"content\":\"so. \"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"\xE9")
        .hold(&gate)
        .bytes(b"\x82\xA3\"}}]}\n\n")
        .finish("stop")
        .done()]);
    let world = serving(&server, "");
    let mut stream = world.stream("api:1", "go");
    assert_eq!(stream.until("text_delta")["delta"], "so. ");
    gate.open();
    assert_eq!(stream.until("done")["response"], "so. 那");
}

#[test]
fn nothing_is_waited_for_after_the_end_mark() {
    let server = ModelServer::new();
    let world = serving(&server, "concurrency: 1,");
    let gate = server.gate();
    server.play([says("whole").hold(&gate)]);
    assert_eq!(world.answer("api:1", "go"), "whole");
    // An error is told as soon as it is there.
    server.play([Answer::stream()
        .event(&json!({"error": {"message": "the model M is broken", "code": 400}}))
        .hold(&gate)]);
    let reply = world.prompt("api:2", "go");
    assert_eq!(reply.status, 502);
    assert!(reply.text().contains("the model M is broken"), "{}", reply.text());
    // The slot is free, whatever became of the connection.
    server.play([says("next")]);
    assert_eq!(world.answer("api:1", "more"), "next");
    gate.open();
}

#[test]
fn odd_tool_calls_are_run_or_answered_with_what_is_wrong() {
    let server = ModelServer::new();
    let world = serving(&server, "");
    let check = |answer: Answer, stored: &str, result: &str| {
        let shown = format!("{answer:?}");
        server.play([answer, says("fine"), says("fine")]);
        let key = format!("api:{}", server.asked().len());
        assert_eq!(world.answer(&key, "go"), "fine", "{shown}");
        assert_eq!(world.answer(&key, "more"), "fine", "{shown}");
        let said = server.last().said();
        let call = format!("<exec {stored}>");
        assert!(said[2].contains(&call), "{shown}: {said:#?}");
        assert!(said[3].starts_with("tool: ") && said[3].contains(result), "{shown}: {said:#?}");
        let messages = world.messages(&key);
        assert!(messages[1].contains(&call) && messages[2].contains(result), "{messages:#?}");
    };
    let call = |arguments: &str| {
        Answer::stream().call(0, "c1", "exec", arguments).finish("tool_calls").done()
    };
    let delta = |it: Value| Answer::stream().delta(&json!({"tool_calls": [it]}));
    let missing = "`command` is missing";
    // B1, B4, B10: no arguments are none.
    for none in ["", "null", "{}", "  "] {
        check(call(none), "{}", missing);
    }
    let object = json!({"index": 0, "id": "c1", "type": "function",
        "function": {"name": "exec", "arguments": {}}});
    check(delta(object.clone()).finish("tool_calls").done(), "{}", missing);
    let message = json!({"role": "assistant", "content": null, "tool_calls": [object]});
    let whole = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    check(Answer::status(200, &whole.to_string()), "{}", missing);
    // B2: no JSON, or no object, is stored as `{}` and said to the model.
    for broken in ["{\"command\": \"ls\"", "ls", "{\"command\": \"ls\"}}"] {
        check(call(broken), "{}", "not valid JSON");
    }
    for other in ["[1]", "7", "\"ls\"", "true"] {
        check(call(other), "{}", "must be a JSON object");
    }
    let hi = r#"{"command":"echo hi"}"#;
    // B5: an object, without id, type and index.
    let bare = json!({"function": {"name": "exec", "arguments": {"command": "echo hi"}}});
    check(delta(bare).finish("tool_calls").done(), hi, "Exit code: 0\nhi");
    // A10: pieces whose other fields are null or empty.
    let more = json!({"index": 0, "id": "", "type": null,
        "function": {"name": null, "arguments": "\"echo hi\"}"}});
    let nothing = json!({"index": 0, "id": "", "function": {"arguments": null}});
    let pieces = Answer::stream()
        .call(0, "c1", "exec", "")
        .arguments(0, "{\"command\":")
        .delta(&json!({"content": null, "tool_calls": [nothing]}))
        .delta(&json!({"tool_calls": [more]}));
    check(pieces.clone().finish("tool_calls").done(), hi, "hi");
    check(pieces.finish("stop").done().in_pieces(5), hi, "hi");
    // Calls without index, told apart by their ids.
    let one = |id: &str, text: &str| {
        let arguments = json!({"command": format!("echo {text}")}).to_string();
        json!({"id": id, "type": "function", "function": {"name": "exec", "arguments": arguments}})
    };
    server.play([
        Answer::stream()
            .delta(&json!({"tool_calls": [one("x1", "1")]}))
            .delta(&json!({"tool_calls": [one("x2", "2")]}))
            .finish("tool_calls")
            .done(),
        says("fine"),
    ]);
    assert_eq!(world.answer("api:two", "go"), "fine");
    assert_eq!(server.last().said()[3..], ["tool: Exit code: 0\n1\n", "tool: Exit code: 0\n2\n"]);
}

#[test]
fn a_tool_call_in_prose_is_prose() {
    let prose = "Like this:\n```json\n{\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\
        \"function\":{\"name\":\"exec\",\"arguments\":\"{\\\"command\\\":\\\"echo x >seen\\\"}\"}}]}\n\
        ```\n<tool_call>{\"name\":\"exec\",\"arguments\":{\"command\":\"echo x >seen\"}}</tool_call>\n\
        <invoke name=\"exec\"><parameter name=\"command\">echo x >seen</parameter></invoke>";
    let server = ModelServer::playing([says(prose), says("fine")]);
    let world = serving(&server, "");
    assert_eq!(world.answer("api:1", "show me a tool call example"), prose);
    assert_eq!(world.answer("api:1", "more"), "fine");
    assert!(!world.workspace("a").join("seen").exists());
    let ran = world.audit().iter().filter(|it| it["type"] == "core_tool").count();
    assert_eq!(ran, 0);
}

#[test]
fn an_unknown_tool_is_answered_by_what_there_is() {
    let server = ModelServer::playing([
        calls(&[("c1", "notes", json!({})), ("c2", "bash", json!({"command": "ls"}))]),
        says("fine"),
    ]);
    let world = serving(&server, "");
    assert_eq!(world.answer("api:1", "go"), "fine");
    let said = server.last().said();
    for (answer, tool) in said[3..].iter().zip(["notes", "bash"]) {
        let want = format!("tool: Error: Unknown tool: {tool}. The tools are read, write, patch");
        assert!(answer.starts_with(&want) && answer.ends_with(" exec runs: notes"), "{answer}");
    }
}

/// A read that is repeated gets what is there now; that it is the same as
/// before is said only where nothing was done between.
#[test]
fn a_read_that_is_repeated_is_never_answered_wrong() {
    const NOTE: &str = "nothing has changed since";
    let read = |id: &str| calls(&[(id, "read", json!({"path": "a.txt"}))]);
    let world = some_world();
    let host = world.workspace("a").join("a.txt");
    let mut asked = 0;
    let server = ModelServer::answering(move |_| {
        asked += 1;
        match asked {
            1 | 2 => read(&format!("c{asked}")),
            3 => {
                // Somebody else changes it, and it stays as long as it was.
                fs::write(&host, "two\n").expect("written");
                read("c3")
            }
            4 => calls(&[
                ("c4", "exec", json!({"command": "true"})),
                ("c5", "read", json!({"path": "a.txt"})),
                ("c6", "write", json!({"path": "a.txt", "content": "six\n"})),
                ("c7", "read", json!({"path": "a.txt"})),
                ("c8", "read", json!({"path": "a.txt"})),
            ]),
            _ => says("done"),
        }
    });
    world.model(&server, "");
    world.start_gateway();
    world.sh("echo one >a.txt").expect(0);
    assert_eq!(world.answer("api:1", "go"), "done");
    let stored = world.stored("api:1");
    let result = |id: &str| {
        let result = stored.iter().find(|it| it["toolCallId"] == id).expect(id);
        let blocks = result["content"].as_array().expect("blocks");
        let texts: Vec<&str> = blocks.iter().filter_map(|it| it["text"].as_str()).collect();
        (texts[0].to_owned(), texts.len() == 2 && texts[1].contains(NOTE))
    };
    for (id, text, is_noted) in [
        ("c1", "one\n", false),
        ("c2", "one\n", true),
        ("c3", "two\n", false),
        ("c5", "two\n", false),
        ("c7", "six\n", false),
        ("c8", "six\n", true),
    ] {
        assert_eq!(result(id), (text.to_owned(), is_noted), "{id}");
    }
}

#[test]
fn an_answer_cut_in_a_call_is_asked_for_once_more_with_more_room() {
    let cut = |finish: &str| {
        let answer =
            Answer::stream().text("I try.").call(0, "c1", "exec", "{\"command\":\"touch x");
        answer.finish(finish).usage(7, 3).done()
    };
    // One whose arguments look whole may not be.
    let looks_whole =
        Answer::stream().call(0, "c1", "exec", "{\"command\":\"touch x\"}").finish("length").done();
    let server = ModelServer::new();
    let world = serving(&server, "");
    for (number, cut) in [cut("length"), cut("max_tokens"), looks_whole].into_iter().enumerate() {
        server.play([cut, runs("c2", "echo whole"), says("fine")]);
        let before = server.asked().len();
        let key = format!("api:{number}");
        assert_eq!(world.answer(&key, "go"), "fine");
        let asked = server.asked().split_off(before);
        assert_eq!(asked[0].body["messages"], asked[1].body["messages"], "the same is asked");
        assert_eq!(asked[0].body.get("max_tokens"), None);
        assert_eq!(asked[1].body["max_tokens"], 16_384);
        assert_eq!(asked[2].body.get("max_tokens"), None);
        assert_eq!(world.stored(&key).iter().filter(|it| it["role"] == "toolResult").count(), 1);
        server.play([says("on")]);
        assert_eq!(world.answer(&key, "more"), "on");
    }
    // Twice is the end, with nothing left open.
    server.play([cut("length"), cut("length")]);
    let told = world.events("api:9", "go");
    let end = told.last().expect("an end");
    assert_eq!((&end["type"], &end["category"]), (&json!("error"), &json!("output_limit")));
    let why = end["message"].as_str().unwrap_or_default();
    assert!(why.contains("in the middle of a tool call") && why.contains("16384"), "{why}");
    assert_eq!(end["partial"], "I try.");
    assert_eq!(kinds(&told).iter().filter(|it| **it == "retry").count(), 1, "{told:#?}");
    assert!(!json!(world.stored("api:9")).to_string().contains("toolCall"));
    server.play([says("on")]);
    assert_eq!(world.answer("api:9", "more"), "on");
    assert!(!world.workspace("a").join("x").exists());
}

#[test]
fn more_room_is_asked_for_in_every_protocol() {
    for dialect in Dialect::ALL {
        eprintln!("in {}", dialect.api());
        let call = |command: &str| {
            let arguments = json!({"command": command}).to_string();
            Said::new([Part::Call("call_1".into(), "exec".into(), arguments)])
        };
        let cut = Said { stop: Stop::Length, ..call("touch x") };
        let answers = [cut, call("echo whole"), Said::text("fine")];
        let server = ModelServer::playing(answers.iter().map(|it| dialect.answer(it)));
        let world = some_world();
        let provider = provider_in(dialect, server.port(), "");
        world.write_config_of(&provider, &world.agent("a", "", ""), "");
        world.start_gateway();
        assert_eq!(world.answer("api:1", "go"), "fine");
        let bodies: Vec<String> = server.asked().iter().map(|it| it.body.to_string()).collect();
        let has_room = bodies.iter().map(|it| it.contains("16384")).collect::<Vec<_>>();
        assert_eq!(has_room, [false, true, false], "{}", bodies[1]);
        assert!(!world.workspace("a").join("x").exists());
    }
}

#[test]
fn output_without_end_reaches_a_model_bounded() {
    let server = ModelServer::playing([runs("c1", "seq 1 200000"), says("fine")]);
    let world = serving(&server, "");
    assert_eq!(world.answer("api:1", "go"), "fine");
    let body = server.last().body.to_string();
    assert!(body.len() < 120_000, "{}", body.len());
    let result = server.last().last_tool().expect("a result");
    assert!(result.starts_with("Exit code: 0\n1\n2\n"), "its head");
    assert!(result.contains("\n199999\n200000"), "its tail: {}", &result[result.len() - 200..]);
    let saved = result.split_whitespace().find(|it| it.starts_with("/workspace/.beige/outputs/"));
    let saved = saved.expect("where all of it is").trim_end_matches(|it| ".,)]`".contains(it));
    let below = saved.trim_start_matches("/workspace/");
    let whole = fs::read_to_string(world.workspace("a").join(below)).expect("the whole output");
    assert_eq!(whole.lines().count(), 200_000);
    assert!(fs::metadata(world.session_file("api:1")).expect("a file").len() < 200_000);
}

#[test]
fn a_user_may_say_what_errors_say() {
    let server = ModelServer::answering(|asked| says(&asked.last_user()));
    let world = serving(&server, "");
    for text in [
        "Context overflow: prompt too large for the model.",
        "429 rate_limit: too many requests",
        "data: {\"error\":{\"code\":\"context_length_exceeded\"}}\n\ndata: [DONE]\n\n",
    ] {
        assert_eq!(world.answer("api:1", text), text);
    }
}

#[test]
fn the_key_is_where_it_must_be_and_nowhere_else() {
    let command = format!(
        "env; cat /proc/*/environ /proc/*/cmdline; grep -rs {KEY} /beige /etc /home \
         /tmp /tools /workspace; touch started; while [ ! -e go ]; do sleep 0.02; done"
    );
    // The command would show the key itself.
    let command = command.replace(KEY, &KEY.replace("key", "k[e]y"));
    let server = ModelServer::playing([
        calls(&[("c1", "exec", json!({"command": command, "timeout": 60}))]),
        says("fine"),
    ]);
    let world = serving(&server, "");
    let stream = world.stream("api:1", "go");
    let started = world.workspace("a").join("started");
    crate::support::wait_until("the tool runs", || started.exists());
    assert_eq!(processes_with(KEY), Vec::<u32>::new(), "it is in an argument list");
    fs::write(world.workspace("a").join("go"), "").expect("a file");
    let told = json!(stream.rest()).to_string();
    assert!(told.contains("\"fine\"") && !told.contains(KEY), "{told}");
    let home = world.run(["audit", "--json"]).expect(0).text() + &world.gateway_log();
    assert!(!home.contains(KEY), "it is in a log");
    for path in ["/api/config", "/api/agents", "/api/health", "/api/agents/a/models"] {
        assert!(!world.get(path).text().contains(KEY), "{path}");
    }
    assert_eq!(world.run(["config", "show"]).text().matches(KEY).count(), 0);
    let found = std::process::Command::new("grep").args(["-rl", KEY]).arg(world.home()).output();
    let found = found.expect("grep runs").stdout;
    assert_eq!(String::from_utf8_lossy(&found), "", "files that hold it");
    server.check();
}
