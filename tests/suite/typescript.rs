//! Plugins of the TypeScript gateway, as they are, by the gateway: each check
//! under node, deno and bun. CI has all three, or it fails.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{
    Answer, Finished, ModelServer, World, is_alive, runs, says, says_in, signal, some_world,
    wait_until,
};

/// The runtimes of this machine that run TypeScript.
fn programs() -> Vec<(&'static str, PathBuf)> {
    let found: Vec<_> = ["node", "deno", "bun"]
        .into_iter()
        .filter_map(|name| {
            let folders = std::env::var_os("PATH").expect("a PATH");
            let mut places = std::env::split_paths(&folders).map(|it| it.join(name));
            Some((name, places.find(|it| it.is_file() && is_new_enough(name, it))?))
        })
        .collect();
    let is_ci = std::env::var_os("CI").is_some();
    assert!(!is_ci || found.len() == 3, "CI must have node 22.6 or newer, deno and bun: {found:?}");
    found
}

fn is_new_enough(name: &str, program: &Path) -> bool {
    let told = Command::new(program).arg("--version").output().expect("it runs").stdout;
    let told = String::from_utf8_lossy(&told).into_owned();
    let mut numbers = told.trim_start_matches('v').split('.').map_while(|it| it.parse().ok());
    let version: (Option<u32>, Option<u32>) = (numbers.next(), numbers.next());
    name != "node" || version >= (Some(22), Some(6))
}

/// Runs a check under each of them.
#[track_caller]
fn under_each(check: impl Fn(&Path)) {
    for (name, program) in programs() {
        eprintln!("under {name}");
        check(&program);
    }
}

/// Gives agent `a` that plugin, with nothing on its PATH but these programs.
fn plug(world: &World, name: &str, folder: &Path, config: &str, path: &[&Path]) {
    let programs = world.root.join("programs");
    fs::create_dir_all(&programs).expect("a folder");
    for program in path {
        let name = program.file_name().expect("a name");
        symlink(program, programs.join(name)).expect("a link");
    }
    let entry = format!(
        "{name}: {{ path: '{}', config: {config}, env: {{ PATH: '{}' }} }}, ",
        folder.display(),
        programs.display()
    );
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let text = text.replace("plugins: { ", &format!("plugins: {{ {entry}"));
    let text = text.replace("['notes']", &format!("['{name}', 'notes']"));
    fs::write(world.config_file(), text).expect("written");
}

/// A world whose agent has the plugin `old`, and asks that server.
fn with_old(server: &ModelServer, programs: &[&Path]) -> World {
    let world = some_world();
    world.model(server, "");
    plug(&world, "old", &repository().join("tests/suite/typescript"), "{ word: 'w' }", programs);
    world
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Calls the tool `old`.
fn call(world: &World, what: &str, args: &Value) -> Finished {
    world.exec(&["old", what, &args.to_string()])
}

#[track_caller]
fn value(world: &World, what: &str, args: Value) -> Value {
    call(world, what, &args).expect(0).json()
}

#[test]
fn the_example_is_a_tool_a_hook_a_channel_and_a_loop() {
    under_each(|program| {
        let world = some_world();
        let server = ModelServer::answering(|asked| says(&format!("Dear {}", asked.last_user())));
        world.model(&server, "");
        let config = "{ agent: 'a', everySeconds: 0.1 }";
        plug(&world, "letters", &repository().join("examples/letters"), config, &[program]);
        world.start_gateway();
        let post = world.home().join("data/letters");
        let outbox = |name: &str| fs::read_to_string(post.join("outbox").join(name));
        wait_until("it collects letters", || world.gateway_log().contains("letters are collected"));
        // The loop and the channel.
        fs::write(post.join("inbox/anna.txt"), "cat").expect("written");
        wait_until("it is answered", || outbox("anna.txt").is_ok_and(|it| it == "Dear cat\n"));
        assert_eq!(world.stored("letters:anna").len(), 2);
        // The hook.
        fs::write(post.join("inbox/bob.txt"), "unsubscribe").expect("written");
        wait_until("it is refused", || {
            outbox("bob.txt")
                .is_ok_and(|it| it == "letters with the word unsubscribe are not read\n")
        });
        // The tool.
        world.sh("letters send carl 'how are you'").expect(0);
        assert_eq!(world.sh("letters list | sort").expect(0).text(), "anna\nbob\ncarl\n");
        assert_eq!(outbox("carl.txt").expect("a letter"), "how are you\n");
        let refused = world.sh("letters send ../../x y");
        assert!(refused.code != 0 && refused.stderr.contains("is no name for a letter"));
    });
}

#[test]
fn what_a_plugin_is_given_does_what_it_says() {
    under_each(|program| {
        let server = ModelServer::new();
        let world = with_old(&server, &[program]);
        world.start_gateway();
        let get = |what: &str, args: Value| value(&world, what, args);
        let (key, model) = (json!(["old:1"]), json!({"provider": "p", "modelId": "m"}));
        // Itself, and the gateway.
        assert_eq!(get("configs", json!([])), json!([{"word": "w"}, {"word": "w"}]));
        assert_eq!(get("loud", json!(["x"])), "X");
        assert_eq!(get("agentNames", json!([])), json!(["a"]));
        assert_eq!(get("config", json!([]))["plugins"]["old"]["config"]["word"], "w");
        assert_eq!(get("dataDir", json!([])), world.home().join("data").to_str().expect("a path"));
        assert_eq!(get("getRegisteredTools", json!([])), json!(["notes", "old"]));
        let workspace = world.workspace("a").canonicalize().expect("a workspace");
        let context = get("context", json!([]));
        assert_eq!((&context[0], &context[2]), (&json!("a"), &json!(workspace)));
        let piped = world.sh("printf '%s' 'a b' | old piped").expect(0);
        assert_eq!(piped.json(), "a b");
        // Models.
        assert_eq!(get("getModel", json!(["p", "m"]))["modelId"], "m");
        assert_eq!(get("getModel", json!(["p", "none"])), Value::Null);
        assert_eq!(get("getModelHealth", json!(["p", "m"]))["isCoolingDown"], false);
        assert_eq!(get("clearModelHealth", json!(["p", "m"])), Value::Null);
        server.play([says("once")]);
        let asked = json!(["p", "m", [{"role": "user", "content": "q"}], {"systemPrompt": "s"}]);
        assert_eq!(get("llmPrompt", asked), "once");
        assert_eq!(server.last().said(), ["system: s", "user: q"]);
        // Sessions.
        assert_eq!(get("getSessionEntry", key.clone()), Value::Null);
        let file = get("createSession", json!(["old:1", "a", {"x": 1}]));
        assert_eq!(get("getSessionEntry", key.clone())["sessionFile"], file);
        assert_eq!(get("getSessionMetadata", json!(["old:1", "x"])), 1);
        assert_eq!(get("setSessionMetadata", json!(["old:1", "y", [2]])), Value::Null);
        assert_eq!(get("getSessionMetadata", json!(["old:1", "y"])), json!([2]));
        assert_eq!(get("getSessionMetadata", json!(["old:1", "z"])), Value::Null);
        assert_eq!(
            get("updateSessionSettings", json!(["old:1", {"verbose": true}]))["verbose"],
            true
        );
        assert_eq!(get("getSessionSettings", key.clone())["verbose"], true);
        assert_eq!(get("clearSessionSettings", key.clone()), Value::Null);
        assert_eq!(get("getSessionSettings", key.clone())["verbose"], Value::Null);
        assert_eq!(get("persistSessionModel", json!(["old:1", "a", "p", "m"])), Value::Null);
        assert_eq!(get("getSessionModel", key.clone()), model);
        assert_eq!(get("clearSessionModel", key.clone()), Value::Null);
        assert_eq!(get("isSessionActive", key.clone()), false);
        server.play([says("hello")]);
        assert_eq!(get("prompt", json!(["old:1", "a", "hi"])), "hello");
        assert_eq!(server.last().last_user(), "hi!", "its hook was asked");
        assert_eq!(get("getSessionUsage", key.clone())["outputTokens"], 3);
        // It was begun by a call of a tool.
        let all = json!(["a", {"includeToolSessions": true}]);
        assert_eq!(get("listSessionKeys", json!(["a"])), json!([]));
        assert_eq!(get("listSessionKeys", all.clone())[0]["key"], "old:1");
        assert_eq!(get("listSessions", all)[0]["firstMessage"], "hi!");
        assert_eq!(get("abortSession", key.clone()), false);
        let late = call(&world, "steerSession", &json!(["old:1", "x"])).expect(3);
        assert!(late.stderr.contains("no turn is running"), "{}", late.stderr);
        assert_eq!(get("newSession", json!(["old:2", "a"])), Value::Null);
        assert_eq!(get("disposeSession", json!(["old:2"])), Value::Null);
        // Tools and channels.
        let invoked = get("invokeTool", json!(["notes", ["list"], {"agentName": "a"}]));
        assert_eq!(invoked["exitCode"], 0);
        // In a call it is by default for the agent that called.
        assert_eq!(get("invokeTool", json!(["notes", ["list"]])), invoked);
        assert_eq!(get("channel", json!(["old"])), true);
        assert_eq!(get("channel", json!(["none"])), Value::Null);
        let message = json!(["old", "7", null, "text", {"parseMode": "html"}]);
        assert_eq!(get("send", message), Value::Null);
        assert!(world.gateway_log().contains("old: to 7 in no thread: text (html)"));
        // The second of its handlers sees what the first one made of it.
        let events = world.events("api:0", "BLOCK");
        assert_eq!(events, [json!({"type": "blocked", "reason": "no"})]);
        // An API session is none of its own: the plugin hears of it.
        server.play([says("yes")]);
        world.answer("api:1", "hi");
        let heard = get("heard", json!([]));
        assert_eq!(heard[0]["sessionKey"], "api:1", "{heard}");
        world.run(["gateway", "stop"]).expect(0);
        assert!(world.home().join("data/stopped").exists());
        assert!(world.gateway_log().contains("and no line is a message"));
    });
}

#[test]
fn a_prompt_of_a_plugin_is_told_as_it_comes_and_fails_with_the_models_words() {
    under_each(|program| {
        let server = ModelServer::new();
        let world = with_old(&server, &[program]);
        world.start_gateway();
        server.play([runs("c1", "true"), says_in(&["one ", "two"])]);
        let streamed = value(&world, "streamed", json!(["old:1"]));
        assert_eq!(streamed[0], "one two");
        let told = streamed[1].as_array().expect("events");
        assert_eq!(told[..3], [json!("turn"), json!("exec true"), json!("turn")], "{told:?}");
        let text: String = told[3..].iter().filter_map(Value::as_str).collect();
        assert_eq!(text, "one two");
        let settings = value(&world, "getSessionSettings", json!(["old:1"]));
        assert_eq!(settings["replyTo"], json!({"channel": "old", "address": "7"}));
        server.play([Answer::status(401, r#"{"error": {"message": "who are you?"}}"#)]);
        let failed = call(&world, "prompt", &json!(["old:1", "a", "hi"])).expect(3);
        assert!(failed.stderr.contains("All models failed"), "{}", failed.stderr);
        assert!(failed.stderr.ends_with(" true\n"), "{}", failed.stderr);
    });
}

#[test]
fn an_agent_that_a_tool_asks_is_billed_to_who_called_the_tool() {
    under_each(|program| {
        let server = ModelServer::new();
        let world = with_old(&server, &[program]);
        world.start_gateway();
        server.play([
            runs("c1", r#"old prompt '["old:child", "a", "help"]'"#),
            says("helped"),
            says("done"),
        ]);
        assert_eq!(world.answer("api:1", "go"), "done");
        let depth = value(&world, "getSessionMetadata", json!(["old:child", "depth"]));
        assert_eq!(depth, 1);
    });
}

#[test]
fn packages_in_a_plugins_own_folder_are_used_and_ours_stands_for_theirs() {
    under_each(|program| {
        let server = ModelServer::new();
        let world = some_world();
        world.model(&server, "");
        let folder = world.root.join("packed");
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("written");
        };
        let theirs = "node_modules/@matthias-hausberger/beige";
        write("plugin.json", r#"{"name": "packed", "description": "x"}"#);
        let needs = r#"{"dependencies": {"dep": "1.0.0", "@matthias-hausberger/beige": "1.0.0"}}"#;
        write("package.json", needs);
        write("node_modules/dep/package.json", r#"{"name": "dep", "version": "1.0.0"}"#);
        write("node_modules/dep/index.js", "module.exports.word = () => 'dep'");
        write(&format!("{theirs}/package.json"), r#"{"name": "x", "version": "1.0.0"}"#);
        write(&format!("{theirs}/index.js"), "throw new Error('theirs')");
        let script = "import { getErrorTag } from '@matthias-hausberger/beige'\n\
            import dep from 'dep'\n\
            export default function createPlugin() { return { register(reg: any) {\n\
            const handler = async () => ({ output: dep.word() + getErrorTag('429'), exitCode: 0 })\n\
            reg.tool({ name: 'packed', description: 'x', handler }) } } }";
        write("index.ts", script);
        plug(&world, "packed", &folder, "{}", &[program]);
        // A one-shot starts it for itself.
        assert_eq!(world.exec(&["packed"]).expect(0).text(), "deprate-limit\n");
    });
}

#[test]
fn a_node_that_is_too_old_is_passed_over_and_what_is_needed_is_told() {
    let world = some_world();
    let old = world.root.join("node");
    fs::write(&old, "#!/bin/sh\necho v20.20.2\n").expect("written");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).expect("executable");
    let server = ModelServer::new();
    let world = with_old(&server, &[&old]);
    world.start_gateway();
    let refused = call(&world, "pid", &json!([])).expect(1);
    let want = "a plugin in TypeScript needs node 22.6 or newer, deno or bun on PATH, and there is \
                none (";
    assert!(refused.stderr.contains(want) && refused.stderr.contains("node is 20.20)"));
    world.exec(&["notes", "list"]).expect(0);
    for (_, program) in programs().iter().filter(|it| it.0 != "node") {
        let world = with_old(&server, &[&old, program]);
        assert_eq!(value(&world, "loud", json!(["x"])), "X");
    }
}

#[test]
fn what_a_plugin_says_oddly_costs_neither_the_call_nor_the_plugin() {
    under_each(|program| {
        let server = ModelServer::new();
        let world = with_old(&server, &[program]);
        world.start_gateway();
        let pid = value(&world, "pid", json!([]));
        // Half a character, which JSON of JavaScript can hold.
        let half = call(&world, "half", &json!([])).expect(0);
        assert_eq!(half.text(), "😀\u{fffd}\n");
        // Half a line, by a program that writes where messages go.
        assert_eq!(call(&world, "begun", &json!([])).expect(0).text(), "whole\n");
        // What JSON cannot hold, and what has no text.
        assert_eq!(value(&world, "round", json!([])), Value::Null);
        let log = world.gateway_log();
        assert!(log.contains("round ") && log.contains("10n"), "{log}");
        let mute = call(&world, "mute", &json!([])).expect(1);
        assert!(mute.stderr.contains("something was thrown that has no text"), "{mute:?}");
        // More than a message may have.
        let long = call(&world, "long", &json!([17 << 20])).expect(1);
        assert!(long.stderr.contains("are too many for a message"), "{long:?}");
        assert_eq!(value(&world, "pid", json!([])), pid, "it is the same process");
    });
}

#[test]
fn neither_side_hangs_when_the_other_dies() {
    under_each(|program| {
        let server = ModelServer::new();
        let world = with_old(&server, &[program]);
        let mut gateway = world.gateway_child();
        assert_eq!(value(&world, "sync", json!([2000])), false);
        let pid = || value(&world, "pid", json!([])).as_u64().expect("a pid") as u32;
        let (first, asking) = (pid(), world.home().join("data/asking"));
        std::thread::scope(|scope| {
            // It dies in the middle of asking.
            let asked = scope.spawn(|| call(&world, "asking", &json!([])));
            wait_until("it asks", || asking.exists());
            signal(first, "KILL");
            assert_eq!(asked.join().expect("an end").code, 1);
        });
        wait_until("it runs again", || call(&world, "pid", &json!([])).code == 0);
        let second = pid();
        assert_ne!(first, second);
        fs::remove_file(&asking).expect("removed");
        std::thread::scope(|scope| {
            scope.spawn(|| call(&world, "asking", &json!([])));
            wait_until("it asks", || asking.exists());
            gateway.kill().expect("killed");
            gateway.wait().expect("an end");
        });
        wait_until("the plugin has ended", || !is_alive(second));
        let place = world.home().join("data/plugins/old");
        let left = fs::read_dir(place).expect("a folder").flatten().map(|it| it.file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["host.mjs"]);
    });
}

#[test]
fn a_call_that_nobody_waits_for_is_told_of_it() {
    under_each(|program| {
        let server = ModelServer::new();
        let world = with_old(&server, &[program]);
        world.start_gateway();
        let data = world.home().join("data");
        server.play([runs("c1", "old pause")]);
        std::thread::scope(|scope| {
            scope.spawn(|| world.prompt("api:1", "go"));
            wait_until("it waits", || data.join("pausing").exists());
            world.post("/api/agents/a/sessions/api%3A1/abort", &json!({}));
            wait_until("it was called off", || data.join("called-off").exists());
            // What it asked for ends with it.
            let gate = server.gate();
            let ask = r#"old prompt '["old:child", "a", "help"]'"#;
            server.play([runs("c1", ask), Answer::stream().hold(&gate).text("late")]);
            scope.spawn(|| world.prompt("api:2", "go"));
            gate.wait_held(1);
            world.post("/api/agents/a/sessions/api%3A2/abort", &json!({}));
            wait_until("nobody waits for the model", || {
                world.get("/api/health").json()["running"] == 0
            });
            gate.open();
        });
    });
}
