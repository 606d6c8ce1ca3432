//! Plugins inside the binary, named in the configuration and called from inside
//! a sandbox: how they are found and started, what an agent sees of its own
//! sessions, and how one agent asks another.

use std::fs;

use serde_json::{Value, json};

use crate::support::{
    World, children_of, is_alive, on_each_runtime, processes_with, signal, some_world, wait_until,
};

/// Agents `a` and `b` with these plugins; each has all tools.
fn configure(world: &World, plugins: &str, tools: &str) {
    let agent = |name: &str| world.agent(name, "", "").replace("['notes']", tools);
    world.write_config(&format!("{}{}", agent("a"), agent("b")), "");
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let text = text.replace("plugins: { ", &format!("plugins: {{ {plugins}, "));
    fs::write(world.config_file(), text).expect("written");
}

fn with_sessions(world: &World) {
    configure(world, "sessions: { builtin: 'sessions' }", "['sessions']");
}

fn with_spawn(world: &World, config: &str) {
    configure(world, &format!("spawn: {{ builtin: 'spawn', config: {config} }}"), "['spawn']");
}

/// A line of a cassette for who said `user`, or got `tool` from its tool.
fn line(user: &str, tool: &str, event: Value) -> String {
    let mut wanted = json!({});
    for (name, text) in [("lastUser", user), ("lastTool", tool)] {
        if !text.is_empty() {
            wanted[name] = text.into();
        }
    }
    let usage = json!({"usage": {"input": 100, "output": 10}});
    json!({"match": wanted, "events": [event, usage]}).to_string()
}

fn runs(command: &str) -> Value {
    json!({"toolCall": {"name": "exec", "arguments": {"command": command}}})
}

fn says(text: &str) -> Value {
    json!({"text": text})
}

fn play(world: &World, lines: &[String]) {
    world.write_cassette(&lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_built_in_plugin_needs_no_folder_and_is_a_tool_like_any_other() {
    on_each_runtime(|world| {
        with_sessions(world);
        world.run(["config", "check"]).expect(0);
        let listed = world.run(["plugins", "list", "--json"]).expect(0).json();
        let listed = listed.as_array().expect("a list").iter().find(|it| it["name"] == "sessions");
        let listed = listed.expect("an entry");
        assert_eq!((&listed["form"], &listed["tools"]), (&json!("builtin"), &json!(["sessions"])));
        world.start_gateway();
        assert!(world.sh("sessions --help").expect(0).text().starts_with("Usage: sessions list"));
        let refused = world.sh("sessions lst").expect(2);
        assert!(
            refused.stderr.contains("say list, get KEY, or grep PATTERN"),
            "{}",
            refused.stderr
        );
        let ours = processes_with("plugin-run");
        let mut pids = children_of(world.gateway_pid());
        pids.retain(|it| ours.contains(it));
        assert_eq!(pids.len(), 1, "{pids:?}");
        let line = fs::read_to_string(format!("/proc/{}/cmdline", pids[0])).expect("its words");
        assert_eq!(line, "beige\0plugin-run\0sessions\0");
        let told = fs::read(format!("/proc/{}/environ", pids[0])).expect("an environment");
        assert!(!String::from_utf8_lossy(&told).contains("BEIGE_HOME"));
        world.run(["gateway", "stop"]).expect(0);
        assert!(!is_alive(pids[0]));
    });
}

#[test]
fn a_one_shot_starts_it_for_itself() {
    let world = &some_world();
    with_sessions(world);
    assert!(world.sh("sessions list --help").expect(0).text().starts_with("Usage: "));
}

#[test]
fn one_that_is_not_there_or_is_wrongly_configured_is_told() {
    let world = &some_world();
    configure(world, "s: { builtin: 'sesions' }", "['notes']");
    let wrong = world.run(["config", "check"]).expect(78);
    let told = format!("{}{}", wrong.text(), wrong.stderr);
    let want = "plugins.s.builtin: there is no built-in plugin `sesions`; did you mean `sessions`?";
    assert!(told.contains(want), "{told}");
    with_spawn(world, "{ targets: 'b' }");
    let wrong = world.run(["config", "check"]).expect(78);
    let told = format!("{}{}", wrong.text(), wrong.stderr);
    let want = "config.targets: must be of type array, is a string";
    assert!(told.contains(want), "{told}");
}

#[test]
fn an_agent_finds_its_own_conversations_and_no_others() {
    let world = &some_world();
    with_sessions(world);
    play(
        world,
        &[
            line("remember", "", says("The code is 4711.")),
            line(
                "what is it",
                "",
                runs("sessions list; sessions grep 'code is'; sessions get api:a:1"),
            ),
            line("", "*4711*", says("I found it.")),
            line("", "*", says("I found nothing.")),
        ],
    );
    world.start_gateway();
    let ask = |agent: &str, key: &str, message: &str| {
        let body = json!({"message": message, "sessionKey": key});
        let reply = world.post(&format!("/api/agents/{agent}/prompt"), &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["response"].as_str().unwrap_or_default().to_owned()
    };
    ask("a", "api:a:1", "remember");
    assert_eq!(ask("a", "api:a:2", "what is it"), "I found it.");
    assert_eq!(ask("b", "api:b:1", "what is it"), "I found nothing.");
    let got = world.messages("api:b:1").join("\n");
    assert!(got.contains("you have no session `api:a:1`"), "{got}");
}

#[test]
fn an_agent_asks_another_and_pays_for_it() {
    on_each_runtime(|world| {
        with_spawn(world, "{ targets: ['b'] }");
        play(
            world,
            &[
                line("ask b", "", runs("spawn --target b --session s do it")),
                line("do it*", "", says("It is done.")),
                line("", "*It is done.*", says("b did it.")),
            ],
        );
        world.start_gateway();
        assert_eq!(world.answer("api:a:1", "ask b"), "b did it.");
        let map = fs::read_to_string(world.home().join("sessions/session-map.json"));
        let map: Value = serde_json::from_str(&map.expect("a map")).expect("JSON");
        let child = &map["spawn:a:b:s"];
        assert_eq!((&child["agentName"], &child["metadata"]["depth"]), (&json!("b"), &json!(1)));
        let people = world.get("/api/sessions").text();
        assert!(!people.contains("spawn:a:b:s"), "{people}");
        let usage = fs::read_to_string(world.home().join("data/usage.jsonl")).expect("a log");
        let billed = usage.lines().filter(|it| it.contains("api:a:1")).count();
        assert_eq!(billed, 3, "{usage}");
    });
}

#[test]
fn nobody_may_be_asked_unless_the_configuration_says_so() {
    let world = &some_world();
    with_spawn(world, "{}");
    play(
        world,
        &[
            line("ask b", "", runs("spawn --target b do it; spawn --target SELF do it")),
            line("", "*", says("So be it.")),
        ],
    );
    world.start_gateway();
    assert_eq!(world.answer("api:a:1", "ask b"), "So be it.");
    let got = world.messages("api:a:1").join("\n");
    assert_eq!(got.matches("you may ask no agent").count(), 2, "{got}");
}

#[test]
fn agents_that_ask_each_other_come_to_an_end() {
    let world = &some_world();
    with_spawn(world, "{ targets: ['a', 'b'], maxDepth: 3 }");
    play(
        world,
        &[
            line("go", "", runs("spawn --target b --session s go || true")),
            line("go", "", runs("spawn --target a --session s go || true")),
            line("", "*", says("The end.")),
        ],
    );
    world.start_gateway();
    assert_eq!(world.answer("api:a:1", "go"), "The end.");
    let deepest = world.messages("spawn:a:b:s").join("\n");
    assert!(deepest.contains("The end."), "{deepest}");
}

#[test]
fn many_are_asked_at_the_same_time() {
    let world = &some_world();
    with_spawn(world, "{ targets: ['b', 'SELF'] }");
    let many = "for i in 1 2 3 4 5 6; do spawn --target b do it >out$i & \
                spawn --target SELF do it >own$i & done; wait; cat out* own* | grep -c done";
    play(
        world,
        &[
            line("ask", "", runs(many)),
            line("do it*", "", says("It is done.")),
            line("", "*12*", says("All are.")),
        ],
    );
    world.start_gateway();
    assert_eq!(world.answer("api:a:1", "ask"), "All are.");
}

#[test]
fn who_is_called_off_calls_off_whom_it_asked() {
    let world = &some_world();
    with_spawn(world, "{ targets: ['b'] }");
    let hold = "echo x >started; sleep 600";
    play(
        world,
        &[
            line("ask b", "", runs("spawn --target b --session s do it")),
            line("do it*", "", runs(hold)),
        ],
    );
    world.start_gateway();
    let mut stream = world.stream("api:a:1", "ask b");
    wait_until("b works", || world.workspace("b").join("started").exists());
    let aborted = world.post("/api/agents/a/sessions/api:a:1/abort", &json!({}));
    assert_eq!(aborted.status, 200, "{}", aborted.text());
    while stream.next().is_some() {}
    wait_until("b has ended", || {
        let told = world.messages("spawn:a:b:s");
        told.iter().any(|it| it.contains("called off")) && told.len() == 4
    });
}

#[test]
fn a_message_file_is_the_agents_own_and_no_link_leads_out_of_it() {
    let world = &some_world();
    with_spawn(world, "{ targets: ['b'] }");
    let secret = world.root.join("secret");
    fs::write(&secret, "do it\n").expect("written");
    let ask = |file: &str| format!("cd sub && spawn --target b --session s --message-file {file}");
    play(
        world,
        &[
            line("file", "", runs(&ask("task"))),
            line("link", "", runs(&ask("link"))),
            line("do it*", "", says("It is done.")),
            line("", "*It is done.*", says("b did it.")),
            line("", "*", says("b was not asked.")),
        ],
    );
    world.start_gateway();
    let made =
        format!("mkdir sub && cd sub && echo do it >task && ln -s {} link", secret.display());
    world.sh(&made).expect(0);
    let answer = world.answer("api:a:1", "file");
    assert_eq!(answer, "b did it.", "{:?}", world.messages("api:a:1"));
    assert_eq!(world.answer("api:a:2", "link"), "b was not asked.");
}

#[test]
fn what_is_no_turn_asks_nobody() {
    let world = &some_world();
    with_spawn(world, "{ targets: ['b'] }");
    world.start_gateway();
    let refused = world.sh("spawn --target b do it").expect(1);
    assert!(refused.stderr.contains("agents are asked within a turn"), "{}", refused.stderr);
}

#[test]
fn it_is_no_command_for_people() {
    let world = &some_world();
    let overview = world.run(["--help"]).expect(0).text();
    assert!(!overview.contains("plugin-run"), "{overview}");
    let help = world.run(["plugin-run", "--help"]).expect(0).text();
    assert!(help.contains("The gateway starts it"), "{help}");
    let unknown = world.run(["plugin-run", "spwan"]).expect(2);
    assert!(unknown.stderr.contains("did you mean `spawn`?"), "{}", unknown.stderr);
    let talk = "{\"id\":1,\"method\":\"ping\"}\n";
    let done = world.run_with_input(["plugin-run", "spawn"], talk.as_bytes()).expect(0);
    assert_eq!(done.json(), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
}

#[test]
fn a_gateway_whose_program_was_replaced_starts_its_plugins_all_the_same() {
    let world = &some_world();
    with_sessions(world);
    let program = world.root.join("beige");
    let built = env!("CARGO_BIN_EXE_beige");
    if fs::hard_link(built, &program).is_err() {
        fs::copy(built, &program).expect("a copy");
    }
    let mut command = std::process::Command::new(&program);
    command.arg("--config").arg(world.config_file()).args(["gateway", "start"]);
    let started = command.env("BEIGE_HOME", world.home()).env_remove("BEIGE_CONFIG").output();
    assert!(started.expect("started").status.success());
    fs::remove_file(&program).expect("removed");
    fs::write(&program, "#!/bin/sh\nexit 7\n").expect("another");
    let plugin = || {
        let ours = processes_with("plugin-run");
        children_of(world.gateway_pid()).into_iter().find(|it| ours.contains(it))
    };
    wait_until("it runs", || plugin().is_some());
    let first = plugin().expect("a process");
    signal(first, "KILL");
    wait_until("it runs again", || plugin().is_some_and(|it| it != first));
    wait_until("it answers", || world.sh("sessions --help").code == 0);
}

#[test]
fn a_prompt_without_a_gateway_has_its_own_agent_alone() {
    let world = &some_world();
    with_spawn(world, "{ targets: ['b', 'SELF'] }");
    play(
        world,
        &[
            line("ask", "", runs("spawn --target SELF --session s do it; spawn --target b do it")),
            line("do it", "", says("It is done.")),
            line("", "*It is done.*", says("I did it.")),
        ],
    );
    let done = world.run(["prompt", "a", "--session", "cli:a:1", "ask"]).expect(0);
    assert_eq!(done.text(), "I did it.\n", "{:?}", world.messages("cli:a:1"));
    let told = world.messages("cli:a:1").join("\n");
    assert!(told.contains("`beige gateway start`"), "{told}");
}
