//! What plugins ask of the gateway: prompts, sessions, tools, models, messages;
//! what they are refused; and that nothing waits for itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{
    Answer, ModelServer, Stream, World, chunk, runs, says, some_world, wait_until,
};

/// A model of known price.
const PRICED: &str = "models: { m: { cost: { input: 1, output: 2 } } },";

/// A world whose agents `a` and `b` may use the plugin `p`, which asks what it
/// is told to ask.
fn asking(server: &ModelServer, provides: &str, fields: &str) -> World {
    let world = some_world();
    let agent = |name: &str| world.agent(name, "", fields).replace("['notes']", "['p', 'notes']");
    world.model_of(server, PRICED, &(agent("a") + &agent("b")));
    let folder = world.root.join("p");
    fs::create_dir_all(&folder).expect("a folder");
    let manifest = format!(
        r#"{{"name": "p", "command": ["./server"], "timeoutSeconds": 60,
            "provides": {{"channel": true, {provides} "tools": ["p"]}}}}"#
    );
    fs::write(folder.join("plugin.json"), manifest).expect("written");
    fs::write(folder.join("server"), include_str!("asking_plugin.py")).expect("written");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.join("server"), mode).expect("executable");
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let entry = format!(
        "plugins: {{ p: {{ path: '{}', config: {{ own: 'SECRET-own-1234' }} }}, ",
        folder.display()
    );
    fs::write(world.config_file(), text.replace("plugins: { ", &entry)).expect("written");
    world.start_gateway();
    world
}

/// What the plugin is answered.
fn ask(world: &World, method: &str, params: &Value) -> Value {
    world.sh(&format!("p ask beige/{method} '{params}'")).expect(0).json()
}

#[track_caller]
fn result(world: &World, method: &str, params: Value) -> Value {
    let told = ask(world, method, &params);
    assert!(told["error"].is_null(), "{method} {params}: {told}");
    told["result"].clone()
}

#[track_caller]
fn refused(world: &World, method: &str, params: Value, want: &str) {
    let told = ask(world, method, &params);
    let message = told["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(want), "{method} {params}: {told}");
}

/// An answer that took so many tokens.
fn answer_of(text: &str, input: u64, output: u64) -> Answer {
    let mut last = chunk(json!([]));
    last["usage"] = json!({"prompt_tokens": input, "completion_tokens": output,
        "total_tokens": input + output});
    Answer::stream().text(text).finish("stop").event(&last).done()
}

#[test]
fn a_plugin_prompts_as_any_front_end_and_hears_the_turn() {
    let server = ModelServer::playing([runs("c1", "echo inside"), says("done it"), says("quiet")]);
    let world = asking(&server, "", "");
    let params = json!({"sessionKey": "p:1", "agentName": "a", "message": "go", "stream": true,
        "channel": "p", "replyTo": {"channel": "p", "address": {"chatId": "9"}}});
    let told = ask(&world, "prompt", &params);
    assert_eq!(told["result"], json!({"response": "done it"}), "{told}");
    let events = told["events"].as_array().expect("events");
    let kinds: Vec<&str> = events.iter().filter_map(|it| it["type"].as_str()).collect();
    assert_eq!(kinds.first(), Some(&"turn_start"), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"done"), "{kinds:?}");
    for kind in ["tool_start", "tool_output", "tool_end", "text_delta", "usage"] {
        assert!(kinds.contains(&kind), "{kind} of {kinds:?}");
    }
    // Without a wish for events there are none.
    let params = json!({"sessionKey": "p:1", "agentName": "a", "message": "more"});
    let told = ask(&world, "prompt", &params);
    assert_eq!(told, json!({"result": {"response": "quiet"}}));
    // Where it takes place is noted, and its calls stand in the audit log.
    let settings = result(&world, "session/settings.get", json!({"sessionKey": "p:1"}));
    let want = json!({"channel": "p", "replyTo": {"channel": "p", "address": {"chatId": "9"}}});
    assert_eq!(settings["settings"], want);
    let audit = world.audit();
    let inside = audit.iter().filter(|it| it["session"] == "p:1" && it["tool"] == "exec");
    assert_eq!(inside.count(), 2);
    world.verify_audit();
}

#[test]
fn a_prompt_that_fails_says_why() {
    let server = ModelServer::answering(|_| Answer::error(401, "no such key"));
    let world = asking(&server, "", "");
    let prompt = |agent: &str, key: &str, more: Value| {
        let mut params = json!({"sessionKey": key, "agentName": agent, "message": "go"});
        for (name, value) in more.as_object().expect("fields") {
            params[name] = value.clone();
        }
        params
    };
    refused(&world, "prompt", prompt("a", "p:1", json!({})), "All models failed");
    refused(&world, "prompt", prompt("c", "p:1", json!({})), "there is no agent `c`");
    refused(&world, "prompt", prompt("b", "p:1", json!({})), "belongs to the agent `a`");
    refused(&world, "prompt", prompt("a", "p:2", json!({"message": " "})), "`message` is empty");
    let model = json!({"model": {"provider": "p", "modelId": "other"}});
    refused(&world, "prompt", prompt("a", "p:2", model), "may not use p/other");
    let model = json!({"model": {"provider": "p"}});
    refused(&world, "prompt", prompt("a", "p:2", model), "`model.modelId` is missing");
    refused(
        &world,
        "prompt",
        prompt("a", "p:2", json!({"streem": true})),
        "did you mean `stream`?",
    );
    refused(&world, "prompt", prompt("a", "", json!({})), "`sessionKey` does not do");
    refused(&world, "promt", json!({}), "did you mean `beige/prompt`?");
    refused(&world, "prompt", json!([]), "`params` must be an object");
    let long = json!({"channel": "x".repeat(600)});
    refused(&world, "prompt", prompt("a", "p:2", long), "`channel` must have 1 to 512 bytes");
}

#[test]
fn a_prompt_is_called_off_by_the_plugin_and_by_its_death() {
    let server = ModelServer::new();
    let held = || Answer::stream().text("begun").hold(&server.gate()).text("never");
    server.play([held(), held()]);
    let world = asking(&server, "", "");
    let params =
        |key: &str| json!({"sessionKey": key, "agentName": "a", "message": "go", "stream": true});
    let is_active = |key: &str| result(&world, "session/isActive", json!({"sessionKey": key}));
    world.sh(&format!("p cancel beige/prompt '{}'", params("p:1"))).expect(0);
    wait_until("it is called off", || is_active("p:1") == json!({"active": false}));
    world.sh(&format!("p die beige/prompt '{}'", params("p:2"))).expect(1);
    wait_until("it runs again", || world.sh("p ask beige/tools/list").code == 0);
    wait_until("it is called off", || is_active("p:2") == json!({"active": false}));
    let stored = world.stored("p:2");
    assert_eq!(stored.last().expect("an answer")["stopReason"], "aborted");
}

#[test]
fn a_plugin_never_waits_for_a_turn_that_waits_for_it() {
    let prompt = |key: &str, message: &str| {
        let params = json!({"sessionKey": key, "agentName": "a", "message": message});
        format!("p ask beige/prompt '{params}'")
    };
    let (own, other) = (prompt("api:1", "again"), prompt("p:other", "you"));
    let server = ModelServer::playing([
        runs("c1", &own),
        runs("c2", &other),
        says("from the other"),
        says("enough"),
    ]);
    let world = asking(&server, r#""hooks": ["prePrompt"],"#, "");
    assert_eq!(world.answer("api:1", "go"), "enough");
    let results = world.messages("api:1").join("\n");
    assert!(results.contains("waits for the plugin 'p' itself"), "{results}");
    assert!(results.contains("from the other"), "{results}");
    // While a hook is asked about a prompt, the same.
    server.play([says("answered")]);
    assert_eq!(world.answer("api:2", "ask me"), "answered");
    assert!(server.last().last_user().contains("waits for the plugin 'p' itself"));
}

#[test]
fn what_an_agent_asks_for_is_billed_to_its_turn() {
    let child = |key: &str, parent: &str| {
        let params = json!({"sessionKey": key, "agentName": "b", "message": "help",
            "parentSessionKey": parent});
        format!("p ask beige/prompt '{params}'")
    };
    let server = ModelServer::playing([
        runs("c1", &child("spawn:1", "api:1")),
        runs("c2", &child("spawn:2", "spawn:1")),
        answer_of("grandchild", 1_000_000, 0),
        answer_of("child", 1_000_000, 500_000),
        answer_of("parent", 1_000, 0),
    ]);
    let world = asking(&server, "", "");
    let events = world.events("api:1", "go");
    // The turn hears what it owes: 1 + 1 + 1 dollars, and its own calls.
    let costs: Vec<f64> = events.iter().filter_map(|it| it["costUsd"].as_f64()).collect();
    let total: f64 = costs.iter().sum();
    assert!((3.0..3.1).contains(&total), "{costs:?}");
    let usage = |by: &str| world.run(["usage", "--json", "--by", by]).expect(0).json();
    let sessions = usage("session");
    let rows: Vec<&str> = sessions["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|it| it["session"].as_str())
        .collect();
    assert_eq!(rows, ["api:1"], "{sessions}");
    let cost = sessions["total"]["costUsd"].as_f64().expect("a cost");
    assert!((cost - total).abs() < 1e-6, "{cost} and {total}");
    assert_eq!(sessions["total"]["calls"], 5);
    let depth = |key: &str| {
        result(&world, "session/get", json!({"sessionKey": key}))["entry"]["metadata"].clone()
    };
    assert_eq!((depth("spawn:1"), depth("spawn:2")), (json!({"depth": 1}), json!({"depth": 2})));
    let keys = |all: bool| {
        let params = json!({"agentName": "b", "includeToolSessions": all});
        let told = result(&world, "session/listKeys", params);
        told["keys"].as_array().expect("keys").len()
    };
    assert_eq!((keys(false), keys(true)), (0, 2));
    // No call of a tool runs in that session any more.
    let params = json!({"sessionKey": "spawn:3", "agentName": "b", "message": "help",
        "parentSessionKey": "api:1"});
    refused(&world, "prompt", params, "no call of a tool of this plugin runs in that session");
}

#[test]
fn a_turn_ends_at_its_limit_by_what_it_had_others_do() {
    let params = json!({"sessionKey": "spawn:1", "agentName": "b", "message": "help",
        "parentSessionKey": "api:1"});
    let server = ModelServer::playing([
        runs("c1", &format!("p ask beige/prompt '{params}'")),
        answer_of("dear", 2_000_000, 0),
        says("never asked"),
    ]);
    let world = asking(&server, "", "limits: { maxTurnCostUsd: 1.5 },");
    // The child's own limit is looked at before each of its calls, and it makes one.
    let events = world.events("api:1", "go");
    let last = events.last().expect("an event");
    assert_eq!(last["category"], "max_cost", "{last}");
}

#[test]
fn sessions_are_made_listed_noted_and_steered() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = asking(&server, "", "");
    let key = json!({"sessionKey": "p:1"});
    assert_eq!(result(&world, "session/get", key.clone()), json!({"entry": null}));
    assert_eq!(result(&world, "session/usage", key.clone()), json!({"usage": null}));
    assert_eq!(result(&world, "session/model.get", key.clone()), json!({"model": null}));
    let made = result(
        &world,
        "session/create",
        json!({"sessionKey": "p:1", "agentName": "a", "metadata": {"depth": 1, "x": [1]}}),
    );
    let entry = result(&world, "session/get", key.clone())["entry"].clone();
    assert_eq!(entry["sessionFile"], made["sessionFile"]);
    assert_eq!((&entry["agentName"], &entry["metadata"]["x"]), (&json!("a"), &json!([1])));
    result(&world, "session/new", json!({"sessionKey": "p:2", "agentName": "a"}));
    let prompt = json!({"sessionKey": "p:2", "agentName": "a", "message": "hello"});
    result(&world, "prompt", prompt);
    let list = |all: bool| {
        let params = json!({"agentName": "a", "includeToolSessions": all});
        result(&world, "session/list", params)["sessions"].clone()
    };
    assert_eq!(list(false).as_array().expect("a list").len(), 1);
    assert_eq!(list(true).as_array().expect("a list").len(), 2);
    let listed = &list(false)[0];
    assert_eq!((&listed["firstMessage"], &listed["agentName"]), (&json!("hello"), &json!("a")));
    assert!(listed["sessionId"].is_string() && listed["createdAt"].is_string(), "{listed}");
    let usage = result(&world, "session/usage", json!({"sessionKey": "p:2"}))["usage"].clone();
    assert!(usage["inputTokens"].as_u64() > Some(0), "{usage}");
    assert_eq!(usage["cacheWriteTokens"], 0);
    // Metadata: what is noted later stands before what it was made with.
    let note = |value: Value| {
        let params = json!({"sessionKey": "p:1", "key": "x", "value": value});
        result(&world, "session/metadata.set", params);
        result(&world, "session/metadata.get", json!({"sessionKey": "p:1", "key": "x"}))["value"]
            .clone()
    };
    assert_eq!(note(json!({"y": 2})), json!({"y": 2}));
    assert_eq!(note(Value::Null), json!([1]));
    // Control of a turn that does not run, and of a session that is not there.
    assert_eq!(result(&world, "session/abort", key.clone()), json!({"aborted": false}));
    refused(&world, "session/steer", json!({"sessionKey": "p:1", "text": "x"}), "no turn");
    refused(&world, "session/abort", json!({"sessionKey": "p:11"}), "did you mean `p:1`?");
    refused(&world, "session/list", json!({"agentName": "c"}), "there is no agent `c`");
    assert_eq!(result(&world, "session/dispose", json!({"sessionKey": "p:2"})), json!({}));
    assert_ne!(result(&world, "session/get", json!({"sessionKey": "p:2"}))["entry"], Value::Null);
}

#[test]
fn settings_of_a_session_are_checked_and_bounded() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = asking(&server, "", "");
    let update = |settings: Value| {
        let params = json!({"sessionKey": "p:1", "settings": settings});
        result(&world, "session/settings.update", params)["settings"].clone()
    };
    let kept = json!({"verbose": true, "mine": {"a": 1}});
    assert_eq!(update(kept.clone()), kept);
    assert_eq!(update(json!({"verbose": null})), json!({"mine": {"a": 1}}));
    let wrong = |settings: Value, want: &str| {
        let params = json!({"sessionKey": "p:1", "settings": settings});
        refused(&world, "session/settings.update", params, want);
    };
    wrong(json!({"verbose": "yes"}), "`settings.verbose` must be true or false");
    wrong(json!({"thinkingLevel": "deep"}), "`settings.thinkingLevel` must be off, minimal");
    wrong(json!({"replyTo": {"chanel": "x"}}), "`settings.replyTo.chanel` is not a field");
    wrong(json!({"mine": "x".repeat(70_000)}), "have at most 65536");
    let model = json!({"sessionKey": "p:1", "agentName": "a", "provider": "p", "modelId": "m"});
    result(&world, "session/model.set", model);
    let own = result(&world, "session/model.get", json!({"sessionKey": "p:1"}));
    assert_eq!(own["model"], json!({"provider": "p", "modelId": "m"}));
    result(&world, "session/model.clear", json!({"sessionKey": "p:1"}));
    let own = result(&world, "session/settings.get", json!({"sessionKey": "p:1"}));
    assert_eq!(own["settings"], json!({"mine": {"a": 1}}));
    let other = json!({"sessionKey": "p:1", "agentName": "a", "provider": "p", "modelId": "x"});
    refused(&world, "session/model.set", other, "may not use p/x");
    result(&world, "session/settings.clear", json!({"sessionKey": "p:1"}));
    let own = result(&world, "session/settings.get", json!({"sessionKey": "p:1"}));
    assert_eq!(own["settings"], json!({}));
}

#[test]
fn a_running_turn_is_steered_and_called_off_and_a_session_compacted() {
    let server = ModelServer::new();
    let held = Answer::stream().text("begun").hold(&server.gate()).text("never");
    server.play([held, says("all in short")]);
    let world = asking(&server, "", "");
    let body = json!({"message": "go ".repeat(2_000), "sessionKey": "api:1"});
    let mut stream = Stream::open(&world, "a", &body);
    stream.until("text_delta");
    let key = json!({"sessionKey": "api:1"});
    assert_eq!(result(&world, "session/isActive", key.clone()), json!({"active": true}));
    result(&world, "session/steer", json!({"sessionKey": "api:1", "text": "hurry"}));
    refused(&world, "session/compact", key.clone(), "a turn is running");
    assert_eq!(result(&world, "session/abort", key.clone()), json!({"aborted": true}));
    assert_eq!(stream.until("error")["category"], "aborted");
    wait_until("it has ended", || {
        result(&world, "session/isActive", key.clone()) == json!({"active": false})
    });
    let compacted = result(&world, "session/compact", key);
    assert_eq!(compacted["summary"], "all in short", "{compacted}");
}

#[test]
fn tools_are_called_with_the_rights_of_an_agent() {
    let server = ModelServer::new();
    let world = asking(&server, "", "");
    assert_eq!(result(&world, "tools/list", json!({})), json!({"tools": ["notes", "p"]}));
    let invoke = |params: Value| result(&world, "tools/invoke", params);
    let params = json!({"tool": "notes", "args": ["list"], "agentName": "a"});
    assert_eq!(invoke(params), json!({"output": "no notes\n", "exitCode": 0}));
    // Its own tool, while a call of it runs.
    let context = json!({"sessionKey": "p:9", "channel": "p", "chatId": "9"});
    let params = json!({"tool": "p", "args": ["ask", "beige/tools/list", "\"context\""],
        "agentName": "b", "sessionContext": context});
    let told = invoke(params);
    let seen: Value =
        serde_json::from_str(told["output"].as_str().expect("text")).expect("a context");
    assert_eq!((&seen["sessionKey"], &seen["agentName"]), (&json!("p:9"), &json!("b")));
    // A command runs in the agent's sandbox.
    let params = json!({"tool": "exec", "args": {"command": "pwd; exit 3"}, "agentName": "a"});
    let told = invoke(params);
    assert_eq!(told["exitCode"], 3);
    assert!(told["output"].as_str().expect("text").contains("/workspace"), "{told}");
    let wrong = |params: Value, want: &str| refused(&world, "tools/invoke", params, want);
    wrong(json!({"tool": "notes", "args": ["list"]}), "`agentName` is missing");
    wrong(json!({"tool": "notes", "args": ["list"], "agentName": "c"}), "there is no agent `c`");
    wrong(json!({"tool": "nots", "args": [], "agentName": "a"}), "nots");
    wrong(json!({"tool": "notes", "args": [1], "agentName": "a"}), "`args[0]` must be a string");
    wrong(json!({"tool": "exec", "args": ["ls"], "agentName": "a"}), "`args` must be an object");
    let denied = world.audit().iter().filter(|it| it["decision"] == "denied").count();
    assert_eq!(denied, 1);
    world.verify_audit();
}

#[test]
fn a_plugin_asks_a_model_and_the_call_is_booked_under_its_name() {
    let server = ModelServer::playing([answer_of("forty-two", 1_000_000, 0)]);
    let world = asking(&server, "", "");
    let messages = json!([{"role": "user", "content": "what is it?"}]);
    let params = |model: &str| {
        json!({"provider": "p", "modelId": model, "messages": messages, "systemPrompt": "Be short.",
            "maxTokens": 50, "thinkingLevel": "off"})
    };
    assert_eq!(result(&world, "llm/prompt", params("m")), json!({"text": "forty-two"}));
    assert_eq!(server.last().said(), ["system: Be short.", "user: what is it?"]);
    let usage = world.run(["usage", "--json", "--by", "agent"]).expect(0).json();
    assert_eq!(usage["rows"][0]["agent"], "plugin:p", "{usage}");
    assert_eq!(usage["total"]["costUsd"], 1.0);
    let audit = world.audit();
    let calls = audit.iter().filter(|it| it["type"] == "llm" && it["agent"] == "plugin:p");
    assert_eq!(calls.count(), 2);
    refused(&world, "llm/prompt", params("n"), "did you mean `p/m`?");
    let empty = json!({"provider": "p", "modelId": "m", "messages": []});
    refused(&world, "llm/prompt", empty, "`messages` is empty");
    let odd = json!({"provider": "p", "modelId": "m", "messages": [{"role": "user"}]});
    refused(&world, "llm/prompt", odd, "`messages[0].content` is missing");
    let model = json!({"provider": "p", "modelId": "m"});
    let card = result(&world, "model/get", model.clone())["model"].clone();
    assert_eq!((&card["modelId"], &card["contextWindow"]), (&json!("m"), &json!(128_000)));
    let nobody = json!({"provider": "q", "modelId": "m"});
    assert_eq!(result(&world, "model/get", nobody.clone()), json!({"model": null}));
    assert_eq!(result(&world, "model/health", nobody), json!({"health": null}));
    // One that was told to wait cools down, and is asked again once it is forgotten.
    let limited = Answer::error(429, "slow down").header("Retry-After", "3600");
    server.play([limited, says("back")]);
    refused(&world, "llm/prompt", params("m"), "All models failed");
    let health = result(&world, "model/health", model.clone())["health"].clone();
    assert_eq!(health["isCoolingDown"], true, "{health}");
    assert!(health["remainingCooldownMs"].as_u64() > Some(3_000_000), "{health}");
    assert!(health["lastError"].as_str().is_some_and(|it| it.contains("slow down")), "{health}");
    result(&world, "model/clearHealth", model.clone());
    let health = result(&world, "model/health", model)["health"].clone();
    let want = json!({"isCoolingDown": false, "remainingCooldownMs": 0, "consecutiveFailures": 0});
    assert_eq!(health, want);
    assert_eq!(result(&world, "llm/prompt", params("m")), json!({"text": "back"}));
}

#[test]
fn messages_go_by_the_channels_of_plugins() {
    let server = ModelServer::new();
    let world = asking(&server, "", "");
    let channels = result(&world, "channels/list", json!({}));
    assert_eq!(channels, json!({"channels": [{"name": "p", "supportsMessaging": true}]}));
    let send = |more: Value| {
        let mut params = json!({"channel": "p", "chatId": 42, "text": "hello"});
        for (name, value) in more.as_object().expect("fields") {
            params[name] = value.clone();
        }
        params
    };
    let params = send(json!({"threadId": "7", "parseMode": "markdown"}));
    assert_eq!(result(&world, "channels/send", params), json!({}));
    let sent = fs::read_to_string(world.root.join("p/sent.jsonl")).expect("sent");
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let want = json!({"chatId": "42", "threadId": "7", "text": "hello", "parseMode": "markdown"});
    assert_eq!(sent, want);
    let wrong = |more: Value, want: &str| refused(&world, "channels/send", send(more), want);
    wrong(json!({"text": "refuse"}), "send a message by the channel `p`: no such chat");
    wrong(json!({"channel": "q"}), "there is no channel `q`; did you mean `p`? (channels: p)");
    wrong(json!({"text": ""}), "`text` is empty");
    wrong(json!({"parseMode": "rtf"}), "`parseMode` must be html or markdown");
    wrong(json!({"chatId": true}), "`chatId` must be a string");
}

#[test]
fn a_plugin_sees_no_secret_but_its_own() {
    let server = ModelServer::new();
    let world = asking(&server, "", "");
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let secrets = "keyed: { api: 'openai-completions', \
        baseUrl: 'http://127.0.0.1:9/v1', \
        apiKey: 'SECRET-key-1234', proxy: 'http://u:SECRET-proxy-1234@127.0.0.1:9', headers: { 'X-Key': 'SECRET-header-1234' } }, ";
    let text = text.replacen("providers: { ", &format!("providers: {{ {secrets}"), 1);
    let other = "other: { command: ['/bin/true'], env: { TOKEN: 'SECRET-env-1234' }, \
        config: { password: 'SECRET-config-1234' } }, ";
    let text = text.replacen("plugins: { ", &format!("plugins: {{ {other}"), 1);
    let agents = "fallbackModels: [{ provider: 'keyed', model: 'k' }], pluginConfigs: { other: { token: 'SECRET-agent-1234' } }, tools: [";
    let text = text.replacen("tools: [", agents, 1);
    let fields = "instructions: 'SECRET-words-1234', sandbox: { env: { K: 'SECRET-box-1234' }, ";
    let text = text.replacen("sandbox: { ", fields, 1);
    fs::write(world.config_file(), text).expect("written");
    world.run(["gateway", "stop"]).expect(0);
    world.start_gateway();
    let told = result(&world, "config/get", json!({}));
    assert_eq!(told["agentNames"], json!(["a", "b"]));
    assert_eq!(told["config"]["plugins"], json!({"p": {"config": {"own": "SECRET-own-1234"}}}));
    assert!(told["config"]["llm"]["providers"]["keyed"].is_object(), "{told}");
    let text = told.to_string().replace("SECRET-own-1234", "");
    assert!(!text.contains("SECRET"), "{text}");
}

#[test]
fn without_a_gateway_a_plugin_prompts_in_the_same_process() {
    let params = json!({"sessionKey": "p:1", "agentName": "a", "message": "you",
        "parentSessionKey": "cli:1"});
    let own = json!({"sessionKey": "cli:1", "agentName": "a", "message": "me"});
    let server = ModelServer::playing([
        runs("c1", &format!("p ask beige/prompt '{params}'; p ask beige/prompt '{own}'")),
        says("from the child"),
        says("enough"),
    ]);
    let world = asking(&server, "", "");
    world.run(["gateway", "stop"]).expect(0);
    let done = world.run(["prompt", "a", "--session", "cli:1", "go"]).expect(0);
    assert_eq!(done.text().trim_end(), "enough");
    let results = world.messages("cli:1").join("\n");
    assert!(results.contains("from the child"), "{results}");
    assert!(results.contains("waits for the plugin 'p' itself"), "{results}");
}

#[test]
fn the_example_has_another_agent_answer_and_no_third() {
    let server = ModelServer::playing([
        runs("c1", "colleague b 'what do you think?'; colleague c x; colleague a x"),
        runs("c2", "colleague b 'and you?'"),
        says("I think so"),
        says("b thinks so"),
    ]);
    let world = some_world();
    let agent = |name: &str| world.agent(name, "", "").replace("['notes']", "['colleague']");
    world.model_of(&server, PRICED, &(agent("a") + &agent("b")));
    let entry = format!(
        "plugins: {{ colleague: {{ path: '{}/examples/colleague', config: {{ agents: ['b'] }} }}, ",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = fs::read_to_string(world.config_file()).expect("a config");
    fs::write(world.config_file(), text.replace("plugins: { ", &entry)).expect("written");
    world.start_gateway();
    assert_eq!(world.answer("api:1", "go"), "b thinks so");
    let told = world.messages("api:1").join("\n");
    assert!(told.contains("I think so"), "{told}");
    assert!(told.contains("usage: colleague AGENT QUESTION (agents: b)"), "{told}");
    let told = world.messages("colleague:b:api:1").join("\n");
    assert!(told.contains("waits for your own answer"), "{told}");
    let usage = world.run(["usage", "--json", "--by", "session"]).expect(0).json();
    assert_eq!(usage["rows"][0]["session"], "api:1", "{usage}");
    assert_eq!(usage["rows"][0]["calls"], 4, "{usage}");
}

#[test]
fn two_sessions_that_ask_each_other_wait_for_nobody() {
    let ask = |from: &str, to: &str, agent: &str| {
        let params = json!({"sessionKey": to, "agentName": agent, "message": "you?",
            "parentSessionKey": from});
        format!("p ask beige/prompt '{params}'")
    };
    let (there, back) = (ask("api:1", "p:b", "b"), ask("p:b", "api:1", "a"));
    let server = ModelServer::playing([
        runs("c1", &there),
        runs("c2", &back),
        says("it waits for me"),
        says("enough"),
    ]);
    let world = asking(&server, "", "");
    assert_eq!(world.answer("api:1", "go"), "enough");
    let told = world.messages("p:b").join("\n");
    assert!(told.contains("waits for the plugin 'p' itself"), "{told}");
}

#[test]
fn a_channel_that_does_not_run_takes_nothing_and_a_start_of_a_tool_is_logged() {
    let server = ModelServer::new();
    let world = asking(&server, "", "");
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let dead = "plugins: { dead: { command: ['/bin/true'] }, ";
    let text = text.replace("plugins: { ", dead);
    let text = text.replace("port: 0", "port: 0, log: { level: 'debug' }");
    fs::write(world.config_file(), text).expect("written");
    world.run(["gateway", "stop"]).expect(0);
    world.start_gateway();
    let params = json!({"channel": "dead", "chatId": "1", "text": "x"});
    refused(&world, "channels/send", params, "plugin 'dead' is not running");
    world.sh("p toolStart nested").expect(0);
    let log = world.gateway_log();
    assert!(log.contains("p: `nested` starts within a call in `socket:a`"), "{log}");
}

#[test]
fn who_does_something_to_a_session_is_not_told_of_it() {
    let server = ModelServer::answering(|_| says("fine"));
    let hooks = r#""hooks": ["sessionCreated", "sessionDisposed", "modelSwitched"],"#;
    let world = asking(&server, hooks, "fallbackModels: [{ provider: 'p', model: 'n' }],");
    let own = json!({"sessionKey": "p:1", "agentName": "a"});
    result(&world, "session/create", own.clone());
    result(&world, "session/new", own);
    let model = json!({"sessionKey": "p:1", "provider": "p", "modelId": "n"});
    result(&world, "session/model.set", model);
    result(&world, "session/dispose", json!({"sessionKey": "p:1"}));
    world.post("/api/agents/a/sessions/new", &json!({"sessionKey": "api:1"}));
    let heard = fs::read_to_string(world.root.join("p/heard.jsonl")).expect("it was told");
    assert_eq!(heard, "[\"sessionCreated\", \"api:1\"]\n");
}

#[test]
fn odd_values_are_refused_and_harm_nobody() {
    let server = ModelServer::answering(|_| says("fine"));
    let world = asking(&server, "", "");
    let pid = world.gateway_pid();
    let model = || json!({"provider": "p", "modelId": "m"});
    let of = |key: &str| json!({"sessionKey": key});
    let sound = [
        (
            "prompt",
            json!({"sessionKey": "p:1", "agentName": "a", "message": "go", "channel": "p",
            "replyTo": {"channel": "p", "address": 1}, "model": model(), "stream": false,
            "parentSessionKey": null}),
        ),
        ("session/create", json!({"sessionKey": "p:2", "agentName": "a", "metadata": {}})),
        ("session/list", json!({"agentName": "a", "includeToolSessions": true})),
        ("session/listKeys", json!({"agentName": "a", "includeToolSessions": true})),
        ("session/get", of("p:1")),
        ("session/usage", of("p:1")),
        ("session/abort", of("p:1")),
        ("session/steer", json!({"sessionKey": "p:1", "text": "x"})),
        ("session/dispose", of("p:1")),
        ("session/settings.update", json!({"sessionKey": "p:1", "settings": {}})),
        ("session/metadata.set", json!({"sessionKey": "p:1", "key": "k", "value": 1})),
        ("session/metadata.get", json!({"sessionKey": "p:1", "key": "k"})),
        (
            "session/model.set",
            json!({"sessionKey": "p:1", "agentName": "a", "provider": "p", "modelId": "m"}),
        ),
        (
            "tools/invoke",
            json!({"tool": "notes", "args": ["list"], "agentName": "a",
            "sessionContext": {"sessionKey": "p:1"}}),
        ),
        ("tools/invoke", json!({"tool": "exec", "args": {"command": "true"}, "agentName": "a"})),
        (
            "channels/send",
            json!({"channel": "p", "chatId": "1", "threadId": "1", "text": "x",
            "parseMode": "html"}),
        ),
        (
            "llm/prompt",
            json!({"provider": "p", "modelId": "m", "systemPrompt": "s",
            "messages": [{"role": "user", "content": "x"}], "maxTokens": 9,
            "thinkingLevel": "off"}),
        ),
        ("model/health", model()),
        ("config/get", json!({})),
    ];
    for (method, params) in sound {
        let told = world.sh(&format!("p odd beige/{method} '{params}'")).expect(0).text();
        let errors = told.split_whitespace().last().and_then(|it| it.parse::<u32>().ok());
        assert!(errors > Some(10), "{method}: {told}");
    }
    assert_eq!(world.gateway_pid(), pid);
    // A plugin need not give a system prompt; a turn always has one.
    let violations = server.take_violations();
    assert!(
        violations.iter().all(|it| it.contains("messages[0] is of role user")),
        "{violations:?}"
    );
}
