//! Hooks on every path: what plugins are asked about prompts, tools, sessions,
//! models and the gateway's own life, what they may change and refuse, and
//! what happens when they die, fall silent, or ask back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{
    Answer, Finished, ModelServer, Stream, World, on_each_runtime, request, runs, says, some_world,
    wait_until,
};

/// Speaks the protocol, writes down each hook that it hears of, and lets all
/// pass that a test's own lines do not change by `result`.
const SERVER: &str = r#"#!/usr/bin/env python3
import json, os, sys
def say(it): print(json.dumps(it), flush=True)
def answer(id, result): say({'jsonrpc': '2.0', 'id': id, 'result': result})
told = open('told.jsonl', 'a')
for line in sys.stdin:
    it = json.loads(line)
    id, method = it.get('id'), it.get('method')
    if method == 'initialize':
        beige = {'version': 1, 'hooks': ANNOUNCED}
        answer(id, {'capabilities': {'experimental': {'beige': beige}}})
    elif method in ('beige/start', 'beige/stop'): answer(id, {})
    elif method == 'beige/tool': answer(id, {'output': ' '.join(it['params']['args']) + '\n'})
    if method != 'beige/hook': continue
    hook, event = it['params']['hook'], it['params']['event']
    told.write(json.dumps([hook, event]) + '\n')
    told.flush()
    result = {'allow': True} if hook == 'preToolExec' else {}
"#;

/// A plugin that hears of hooks.
struct Plugin<'a> {
    name: &'a str,
    /// Those that its manifest names, as JSON.
    hooks: &'a str,
    /// Those that it names itself.
    announced: &'a str,
    /// Further fields of its entry, each with a comma behind it.
    fields: &'a str,
    /// What it does: lines of Python.
    body: &'a str,
}

const W: Plugin<'static> =
    Plugin { name: "w", hooks: "[]", announced: "[]", fields: "", body: "pass" };

/// Puts these plugins into the configuration that is there, before all others;
/// agent `a` has the tools of all.
fn plug(world: &World, plugins: &[Plugin<'_>]) {
    let mut entries = String::new();
    for plugin in plugins {
        let Plugin { name, hooks, announced, fields, body } = plugin;
        let folder = folder(world, name);
        fs::create_dir_all(&folder).expect("a folder");
        let manifest = format!(
            r#"{{"name": "{name}", "command": ["./server"], "provides": {{"hooks": {hooks}}}}}"#
        );
        fs::write(folder.join("plugin.json"), manifest).expect("written");
        let body: String = body.lines().map(|it| format!("    {it}\n")).collect();
        let server = SERVER.replace("ANNOUNCED", announced) + &body + "    answer(id, result)\n";
        fs::write(folder.join("server"), server).expect("written");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.join("server"), mode).expect("executable");
        entries += &format!("{name}: {{ path: '{}', {fields} }}, ", folder.display());
    }
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let tools: String = plugins.iter().map(|it| format!("'{}', ", it.name)).collect();
    let text = text.replace("plugins: { ", &format!("plugins: {{ {entries}"));
    let text = text.replace("['notes']", &format!("[{tools}'notes']"));
    fs::write(world.config_file(), text).expect("written");
}

fn folder(world: &World, plugin: &str) -> PathBuf {
    world.root.join(plugin)
}

/// A world whose agent asks that server, with these plugins and a gateway.
fn serving(server: &ModelServer, plugins: &[Plugin<'_>]) -> World {
    let world = some_world();
    world.model(server, "");
    plug(&world, plugins);
    world.start_gateway();
    world
}

/// What a plugin was told, hook and event.
fn told(world: &World, plugin: &str) -> Vec<(String, Value)> {
    let text = fs::read_to_string(folder(world, plugin).join("told.jsonl")).unwrap_or_default();
    let lines = text.lines().map(|it| serde_json::from_str::<Value>(it).expect("JSON"));
    lines.map(|it| (it[0].as_str().expect("a name").to_owned(), it[1].clone())).collect()
}

/// The events of one hook.
fn of(world: &World, hook: &str) -> Vec<Value> {
    told(world, "w").into_iter().filter(|it| it.0 == hook).map(|it| it.1).collect()
}

/// The records of calls that were refused: tool and reason.
fn denied(world: &World) -> Vec<(String, String)> {
    let records = world.audit();
    let denied = records.iter().filter(|it| it["decision"] == "denied");
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    denied.map(|it| (text(&it["tool"]), text(&it["error"]))).collect()
}

/// Refuses what says `forbidden`, and hides `treasure` in results.
const GUARD: Plugin<'static> = Plugin {
    hooks: r#"["preToolExec", "postToolExec"]"#,
    body: "if hook == 'preToolExec' and 'forbidden' in ' '.join(event['args']):\n    \
           result = {'allow': False, 'reason': 'it is forbidden'}\n\
           if hook == 'postToolExec' and 'treasure' in event['result']['output']:\n    \
           result = {'result': {'output': 'nothing here\\n', 'exitCode': 7}}",
    ..W
};

const REFUSED: &str = "refused by the plugin 'w': it is forbidden";

#[test]
fn a_guard_sees_every_call_of_a_tool_on_every_path() {
    on_each_runtime(|world| {
        let server = ModelServer::new();
        world.model(&server, "");
        plug(world, &[GUARD]);
        // Without a gateway, for which the plugin is started.
        let alone = world.exec(&["echo", "forbidden"]).expect(125);
        assert!(alone.stderr.contains(REFUSED), "{}", alone.stderr);
        world.exec(&["true"]).expect(0);
        world.start_gateway();
        // `beige exec` by the gateway, and by its stream of events.
        let stream = world.exec(&["echo", "forbidden"]).expect(125);
        assert!(stream.stderr.contains(REFUSED), "{}", stream.stderr);
        assert_eq!(world.exec(&["echo", "treasure"]).expect(0).text(), "treasure\n");
        let path = "/api/agents/a/exec/stream";
        let reply = world.post(path, &json!({"argv": ["echo", "forbidden"]}));
        assert!(reply.text().contains(REFUSED), "{}", reply.text());
        // A tool, from inside.
        let inside = world.sh("w forbid''den").expect(1);
        assert_eq!(inside.stderr.trim_end(), REFUSED);
        let changed = world.sh("w a treasure").expect(7);
        assert_eq!(changed.stderr.trim_end(), "nothing here");
        assert_eq!(world.sh("w a; notes list").expect(0).text(), "a\nno notes\n");
        // The four tools by HTTP.
        let body = json!({"tool": "exec", "params": {"command": "echo forbidden"}});
        let reply = world.post("/api/agents/a/exec", &body);
        assert_eq!((reply.status, reply.json()["error"].clone()), (403, json!(REFUSED)));
        world.tool("write", json!({"path": "x", "content": "a treasure"}));
        let read = world.tool("read", json!({"path": "x"}));
        assert_eq!(read, ("nothing here\n".into(), true));
        // A model's call: it reads why, and goes on.
        server.play([runs("c1", "echo forbidden"), runs("c2", "echo treasure"), says("well")]);
        assert_eq!(world.answer("api:1", "go"), "well");
        let asked = server.asked();
        assert!(asked[1].last_tool().is_some_and(|it| it.contains(REFUSED)), "{asked:?}");
        assert!(asked[2].last_tool().is_some_and(|it| it.contains("nothing here")), "{asked:?}");
        let refused = denied(world);
        assert_eq!(refused.len(), 6, "{refused:?}");
        assert!(refused.iter().all(|it| it.1.contains(REFUSED)), "{refused:?}");
        // What was done is in the log as it was.
        let codes = world.audit();
        let finished = codes.iter().filter(|it| it["tool"] == "w" && it["phase"] == "finished");
        let codes: Vec<i64> = finished.filter_map(|it| it["exitCode"].as_i64()).collect();
        assert_eq!(codes, [0, 0]);
        let session: Vec<Value> =
            of(world, "preToolExec").into_iter().filter(|it| it["sessionKey"] == "api:1").collect();
        let want = json!({"toolName": "exec", "args": ["echo forbidden"], "sessionKey": "api:1",
            "agentName": "a"});
        assert_eq!(session[0], want);
        world.verify_audit();
    });
}

#[test]
fn arguments_and_results_are_told_as_the_audit_log_names_them() {
    let world = some_world();
    plug(&world, &[GUARD]);
    world.start_gateway();
    world.tool("write", json!({"path": "x", "content": "hello"}));
    world.tool("read", json!({"path": "x"}));
    world.exec(&["sh", "-c", "echo a; exit 3"]).expect(3);
    let call = |tool: &str, args: Value| json!({"toolName": tool, "args": args, "sessionKey": "", "agentName": "a"});
    let write = call("write", json!(["x", "(5 bytes)"]));
    let read = call("read", json!(["x"]));
    let exec = call("exec", json!(["sh", "-c", "echo a; exit 3"]));
    assert_eq!(of(&world, "preToolExec"), [write, read.clone(), exec.clone()]);
    let with = |mut call: Value, output: &str, code: i32| {
        call["result"] = json!({"output": output, "exitCode": code});
        call
    };
    // Of a stream nothing is kept that could be told.
    let after = of(&world, "postToolExec");
    assert_eq!(after[1..], [with(read, "hello", 0), with(exec, "", 3)]);
}

#[test]
fn an_image_stays_when_its_text_is_changed() {
    let world = some_world();
    let body = "if hook == 'postToolExec': result = {'result': {'output': 'a picture'}}";
    plug(&world, &[Plugin { hooks: r#"["postToolExec"]"#, body, ..W }]);
    world.start_gateway();
    let png = "printf '\\211PNG\\r\\n\\032\\n\\0\\0\\0\\rIHDR' > i.png";
    world.sh(png).expect(0);
    let body = json!({"tool": "read", "params": {"path": "i.png"}});
    let answer = world.post("/api/agents/a/exec", &body).json();
    assert_eq!(answer["content"][0], json!({"type": "text", "text": "a picture"}));
    assert_eq!(answer["content"][1]["type"], "image", "{answer}");
}

/// Changes prompts and answers.
const EDITOR: Plugin<'static> = Plugin {
    hooks: r#"["prePrompt", "postResponse"]"#,
    body: "if hook == 'prePrompt':\n    \
           text = event['message']\n    \
           if 'BLOCK' in text: result = {'message': text, 'block': True, 'reason': 'not today'}\n    \
           elif 'plain' not in text: result = {'message': text + '!', 'context': 'Rhyme.'}\n\
           if hook == 'postResponse':\n    \
           if 'secret' in event['response']: result = {'response': '', 'block': True}\n    \
           elif 'dull' in event['response']: result = {'response': 'bright'}",
    ..W
};

#[test]
fn a_prompt_is_changed_or_refused_and_an_answer_changed_or_withheld() {
    let server = ModelServer::new();
    let world = serving(&server, &[EDITOR]);
    server.play([says("dull"), says("a secret"), says("fine")]);
    assert_eq!(world.answer("api:1", "hi"), "bright");
    let asked = server.last();
    let said = asked.said();
    assert!(said[0].ends_with("Rhyme."), "{}", said[0]);
    assert_eq!(asked.last_user(), "hi!");
    // The session has what the model saw and said.
    let stored = world.stored("api:1");
    assert_eq!(stored[1]["content"][0]["text"], "dull");
    let events = world.events("api:1", "more");
    let done = events.last().expect("an event");
    assert_eq!(
        *done,
        json!({"type": "done", "response": "", "note": "the plugin 'w' withheld the answer"})
    );
    assert_eq!(world.answer("api:1", "plain"), "fine");
    let said = server.last().said();
    assert!(!said[0].contains("Rhyme."), "{}", said[0]);
    let event = json!({"message": "hi", "sessionKey": "api:1", "agentName": "a", "channel": "api"});
    assert_eq!(of(&world, "prePrompt")[0], event);
    let event =
        json!({"response": "dull", "sessionKey": "api:1", "agentName": "a", "channel": "api"});
    assert_eq!(of(&world, "postResponse")[0], event);
    // Refused: no model is asked, no session made.
    let before = server.asked().len();
    let reply = world.prompt("api:2", "BLOCK me");
    assert_eq!((reply.status, reply.json()), (200, json!({"response": "not today"})));
    let events = world.events("api:2", "BLOCK me");
    assert_eq!(events, [json!({"type": "blocked", "reason": "not today"})]);
    assert_eq!(server.asked().len(), before);
    let map = fs::read_to_string(world.home().join("sessions/session-map.json")).expect("a map");
    assert!(!map.contains("api:2"), "{map}");
    // The same without a gateway.
    world.run(["gateway", "stop"]).expect(0);
    let refused = world.run(["prompt", "a", "BLOCK me"]).expect(1);
    assert!(refused.stderr.contains("not today"), "{}", refused.stderr);
    assert_eq!(server.asked().len(), before);
}

#[test]
fn the_last_word_of_a_clients_conversation_is_changed_or_refused() {
    let server = ModelServer::new();
    let world = serving(&server, &[EDITOR]);
    let chat = |messages: Value| {
        let context = json!({"systemPrompt": "sys", "messages": messages, "tools": []});
        let body = json!({"provider": "p", "modelId": "m", "agentName": "a", "context": context,
            "sessionKey": "tui:a:default", "options": {"partial": false}});
        Stream::at(&world, "/api/chat/stream", &body).rest()
    };
    let user = |text: &str| json!({"role": "user", "content": text, "timestamp": 0});
    server.play([says("dull"), says("a secret"), says("fine")]);
    let events = chat(json!([user("hi")]));
    let done = events.last().expect("an event");
    assert_eq!(done["message"]["content"], json!([{"type": "text", "text": "bright"}]), "{done}");
    let said = server.last().said();
    assert_eq!(said, ["system: sys\n\nRhyme.", "user: hi!"]);
    let events = chat(json!([user("hi")]));
    let end = events.last().expect("an event");
    assert_eq!(end["error"]["errorMessage"], "the plugin 'w' withheld the answer", "{end}");
    assert_eq!(end["error"]["content"], json!([]));
    assert_eq!(chat(json!([user("BLOCK x")])), [json!({"type": "blocked", "reason": "not today"})]);
    // What a person said earlier is not asked about again.
    let call = json!({"type": "toolCall", "id": "c", "name": "exec", "arguments": {}});
    let messages = json!([
        user("BLOCK x"),
        {"role": "assistant", "content": [call], "api": "openai-completions", "provider": "p",
            "model": "m", "stopReason": "toolUse", "timestamp": 0},
        {"role": "toolResult", "toolCallId": "c", "toolName": "exec", "isError": false,
            "content": [{"type": "text", "text": "x"}], "timestamp": 0},
    ]);
    let events = chat(messages);
    assert_eq!(events.last().expect("an event")["type"], "done", "{events:?}");
    assert_eq!(of(&world, "prePrompt").len(), 3);
}

#[test]
fn a_client_can_have_plugins_asked_about_its_own_turns() {
    let world = some_world();
    let hooks = r#"["prePrompt", "postResponse", "sessionCreated", "sessionDisposed"]"#;
    plug(&world, &[Plugin { hooks, ..EDITOR }]);
    world.start_gateway();
    let ask = |hook: &str, body: Value| {
        let reply = world.post(&format!("/api/agents/a/hooks/{hook}"), &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    let body = json!({"message": "plain", "sessionKey": "tui:a:default", "channel": "web"});
    assert_eq!(ask("pre-prompt", body), json!({"message": "plain"}));
    assert_eq!(
        ask("pre-prompt", json!({"message": "hi"})),
        json!({"message": "hi!", "context": "Rhyme."})
    );
    assert_eq!(
        ask("pre-prompt", json!({"message": "BLOCK"})),
        json!({"message": "BLOCK", "block": true, "reason": "not today"})
    );
    assert_eq!(ask("post-response", json!({"response": "r"})), json!({"response": "r"}));
    assert_eq!(
        ask("post-response", json!({"response": "secret"})),
        json!({"response": "secret", "block": true, "reason": "refused by the plugin 'w'"})
    );
    assert_eq!(ask("session-created", json!({"sessionKey": "k"})), json!({"ok": true}));
    assert_eq!(ask("session-disposed", json!({})), json!({"ok": true}));
    let event = json!({"message": "plain", "sessionKey": "tui:a:default", "agentName": "a", "channel": "web"});
    assert_eq!(of(&world, "prePrompt")[0], event);
    assert_eq!(of(&world, "sessionCreated")[0]["sessionKey"], "k");
    let event = json!({"sessionKey": "api:a:default", "agentName": "a", "channel": "api"});
    assert_eq!(of(&world, "sessionDisposed"), [event]);
}

#[test]
fn a_session_is_told_of_once_when_it_is_made_and_once_when_it_goes() {
    let server = ModelServer::answering(|_| says("ok"));
    let hooks = r#"["sessionCreated", "sessionDisposed"]"#;
    let world = serving(&server, &[Plugin { hooks, ..W }]);
    world.answer("api:1", "hi");
    world.answer("api:1", "more");
    world.post("/api/agents/a/sessions/new", &json!({"sessionKey": "api:2"}));
    world.answer("api:2", "hi");
    let path = "/api/agents/a/sessions/api%3A1";
    assert_eq!(request(&world.api_socket(), "DELETE", path, &[], b"").status, 200);
    let names: Vec<String> =
        told(&world, "w").iter().map(|it| format!("{} {}", it.0, it.1["sessionKey"])).collect();
    let want =
        ["sessionCreated \"api:1\"", "sessionCreated \"api:2\"", "sessionDisposed \"api:1\""];
    assert_eq!(names, want);
}

#[test]
fn another_model_is_told_of_with_the_reason() {
    let server = ModelServer::answering(|asked| match &asked.body["model"] {
        it if it == "m" => Answer::error(429, "slowly").header("retry-after", "3000"),
        _ => says("fine"),
    });
    let world = some_world();
    let fallback =
        "fallbackModels: [{ provider: 'p', model: 'n' }, { provider: 'p', model: 'o' }],";
    world.model_of(&server, "", &world.agent("a", "", fallback));
    plug(&world, &[Plugin { hooks: r#"["modelSwitched"]"#, ..W }]);
    world.start_gateway();
    assert_eq!(world.answer("api:1", "hi"), "fine");
    let choose = |model: &str| {
        let body = json!({"provider": "p", "modelId": model}).to_string();
        let path = "/api/agents/a/sessions/api%3A2/model";
        let headers = [("Content-Type", "application/json")];
        let reply = request(&world.api_socket(), "PATCH", path, &headers, body.as_bytes());
        assert_eq!(reply.status, 200);
    };
    choose("n");
    choose("n");
    let own = |model: &str| {
        let model = json!({"provider": "p", "modelId": model});
        let body = json!({"message": "hi", "sessionKey": "api:2", "model": model});
        assert_eq!(world.post("/api/agents/a/prompt", &body).status, 200);
    };
    // As chosen, so no switch; then another one, twice.
    own("n");
    own("o");
    own("o");
    let switches: Vec<String> = of(&world, "modelSwitched")
        .iter()
        .map(|it| {
            let model = |it: &Value| it["modelId"].as_str().unwrap_or_default().to_owned();
            let (from, to) = (model(&it["previousModel"]), model(&it["newModel"]));
            format!("{} {from}{to} {}", it["sessionKey"], it["reason"])
        })
        .collect();
    let want = [
        "\"api:1\" mn \"fallback_rate_limit\"",
        "\"api:2\" mn \"user_override\"",
        "\"api:2\" no \"user_override\"",
    ];
    assert_eq!(switches, want);
}

#[test]
fn start_and_end_of_the_gateway_are_told_once_all_plugins_run_or_failed() {
    let world = some_world();
    let hooks = r#"["gatewayStarted", "gatewayShutdown"]"#;
    // It ends before it has said anything, every time.
    let broken = Plugin { name: "b", announced: "sys.exit(3)", ..W };
    plug(&world, &[Plugin { hooks, ..W }, broken]);
    world.start_gateway();
    wait_until("it is told", || !told(&world, "w").is_empty());
    assert!(world.gateway_log().contains("plugin 'b' ended with exit code 3"));
    world.run(["gateway", "stop"]).expect(0);
    let want =
        [("gatewayStarted".to_owned(), json!({})), ("gatewayShutdown".to_owned(), json!({}))];
    assert_eq!(told(&world, "w"), want);
}

#[test]
fn plugins_are_asked_in_the_order_of_the_configuration() {
    let server = ModelServer::answering(|_| says("ok"));
    let adds = |name| Plugin {
        name,
        hooks: r#"["prePrompt"]"#,
        body: "result = {'message': event['message'] + os.path.basename(os.getcwd())}",
        ..W
    };
    let world = serving(&server, &[adds("z"), adds("b"), adds("m")]);
    world.answer("api:1", "-");
    assert_eq!(server.last().last_user(), "-zbm");
}

/// Asks for the one thing that a guard may refuse.
#[track_caller]
fn ask(world: &World) -> Finished {
    world.exec(&["true"])
}

#[test]
fn a_guard_that_dies_or_is_down_refuses() {
    let world = some_world();
    let body = "if 'true' in event['args']: os._exit(3)";
    plug(&world, &[Plugin { hooks: r#"["preToolExec", "prePrompt"]"#, body, ..W }]);
    world.start_gateway();
    let dies = ask(&world).expect(125);
    let want = "refused, since the hook preToolExec of the plugin 'w' failed: the plugin has ended";
    assert!(dies.stderr.contains(want), "{}", dies.stderr);
    let down = ask(&world).expect(125);
    assert!(
        down.stderr.contains("the hook preToolExec of the plugin 'w' failed"),
        "{}",
        down.stderr
    );
    assert!(denied(&world).iter().all(|it| it.1.contains("plugin 'w' failed")));
    wait_until("it runs again", || world.exec(&["echo", "a"]).code == 0);
}

#[test]
fn a_guard_that_never_runs_refuses_prompts_and_tools_unless_it_need_not() {
    for (fields, code) in [("", 125), ("onHookFailure: 'allow',", 0)] {
        let server = ModelServer::answering(|_| says("ok"));
        let hooks = r#"["preToolExec", "prePrompt", "postResponse", "sessionCreated"]"#;
        let plugin = Plugin { hooks, fields, announced: "sys.exit(3)", ..W };
        let world = serving(&server, &[plugin]);
        ask(&world).expect(code);
        let said = world.answer("api:1", "hi");
        if code == 0 {
            assert_eq!(said, "ok");
            let log = world.gateway_log();
            assert!(log.contains("plugin 'w': the hook preToolExec failed"), "{log}");
            assert!(log.contains("plugin 'w': the hook postResponse failed"), "{log}");
        } else {
            let want = "the hook prePrompt of the plugin 'w' failed: plugin 'w' is";
            assert!(said.starts_with(want), "{said}");
            assert!(server.asked().is_empty());
        }
    }
}

#[test]
fn a_guard_that_never_answers_refuses_when_its_time_is_up() {
    let world = some_world();
    plug(&world, &[Plugin { hooks: r#"["preToolExec"]"#, body: "continue", ..W }]);
    world.start_gateway();
    let late = ask(&world).expect(125);
    assert!(late.stderr.contains("failed: no answer within 10 s"), "{}", late.stderr);
}

#[test]
fn a_guard_that_answers_nonsense_refuses() {
    let world = some_world();
    plug(&world, &[Plugin { hooks: r#"["preToolExec"]"#, body: "result = {}", ..W }]);
    let odd = ask(&world).expect(125);
    assert!(odd.stderr.contains("no `allow` that is true or false"), "{}", odd.stderr);
}

#[test]
fn a_hook_may_ask_the_gateway_back() {
    let world = some_world();
    let body = "say({'jsonrpc': '2.0', 'id': 'q', 'method': 'beige/log', 'params': {'text': hook}})\n\
                while json.loads(sys.stdin.readline()).get('id') != 'q': pass";
    plug(&world, &[Plugin { hooks: r#"["preToolExec", "postToolExec"]"#, body, ..W }]);
    world.start_gateway();
    ask(&world).expect(0);
    let log = world.gateway_log();
    assert!(log.contains("w: preToolExec") && log.contains("w: postToolExec"), "{log}");
}

#[test]
fn a_hundred_calls_at_once_all_pass_their_guard() {
    let world = some_world();
    plug(&world, &[GUARD]);
    world.start_gateway();
    let many = "for i in $(seq 100); do w $i & done; wait";
    assert_eq!(world.sh(many).expect(0).text().lines().count(), 100);
    assert_eq!(of(&world, "preToolExec").len(), 101);
    wait_until("all is told", || of(&world, "postToolExec").len() == 101);
}

#[test]
fn a_hook_that_only_the_plugin_itself_names_is_asked_while_it_runs() {
    let world = some_world();
    plug(&world, &[Plugin { announced: "['preToolExec']", ..GUARD_OF_ITS_OWN }]);
    // A one-shot starts nothing for it.
    world.exec(&["echo", "forbidden"]).expect(0);
    world.start_gateway();
    world.sh("w up").expect(0);
    for _ in 0..2 {
        world.exec(&["echo", "forbidden"]).expect(125);
    }
    let log = world.gateway_log();
    let warned = log.matches("plugin 'w' asks for the hook preToolExec, which").count();
    assert_eq!(warned, 1, "{log}");
}

/// The same without a word in its manifest.
const GUARD_OF_ITS_OWN: Plugin<'static> = Plugin { hooks: "[]", ..GUARD };
