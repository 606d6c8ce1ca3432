//! The configuration as a person meets it: what is wrong with it, where, and
//! what `check` and `show` print. No sandbox is started.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Finished, Runtime, World, runtimes, some_world};

/// Twelve lines of which none is wrong; `_` stands for what a test adds.
fn sound(root: &str, provider: &str, agent: &str) -> String {
    format!(
        "{{\n  llm: {{ providers: {{ p: {{ api: 'replay', cassette: './cassette.jsonl', {provider} }} }} }},\n  \
         agents: {{\n    a: {{\n      model: {{ provider: 'p', model: 'm' }},\n      tools: [],\n      \
         {agent}\n    }},\n  }},\n  gateway: {{ port: 0 }},\n  {root}\n}}\n"
    )
}

fn world() -> World {
    World::new(*runtimes().last().expect("a runtime"))
}

fn checked(world: &World, text: impl AsRef<[u8]>) -> Finished {
    fs::write(world.config_file(), text).expect("written");
    world.run(["config", "check"])
}

/// Findings of `config check --json`: severity, path, message.
#[track_caller]
fn findings(world: &World, text: &str, code: i32) -> Vec<Value> {
    fs::write(world.config_file(), text).expect("written");
    let done = world.run(["config", "check", "--json"]).expect(code);
    let document = done.json();
    assert_eq!(document["ok"], code == 0);
    document["findings"].as_array().expect("findings").clone()
}

/// Exactly one error, at that key path, that says `want`; every command that
/// needs the configuration refuses it with the same.
#[track_caller]
fn refused(world: &World, text: &str, path: &str, want: &str) {
    let all = findings(world, text, 78);
    let found = all.iter().any(|it| {
        it["severity"] == "error"
            && it["path"] == path
            && it["message"].as_str().is_some_and(|it| it.contains(want))
            && it["line"].is_u64()
            && it["column"].is_u64()
    });
    assert!(found, "no {want:?} at {path}: {all:#?}");
    assert_eq!(all.len(), 1, "{all:#?}");
}

#[test]
fn odd_files_are_read_or_refused_with_a_sentence() {
    let world = world();
    let text = sound("", "", "");
    checked(&world, format!("\u{feff}{text}")).expect(0);
    checked(&world, text.replace('\n', "\r\n")).expect(0);
    checked(&world, format!("\u{feff}{}", text.replace('\n', "\r\n"))).expect(0);
    let brackets = "[".repeat(200_000);
    let nested = format!("{{ agents: {}", "{ a: ".repeat(200_000));
    for (bytes, want) in [
        (&b""[..], "empty"),
        (b" \n\t", "empty"),
        ("\u{feff}".as_bytes(), "empty"),
        (b"[]", "object"),
        (b"7", "object"),
        (b"{ a: ", "config.json5:1:"),
        (b"{ a: \xff }", "UTF-8"),
        (brackets.as_bytes(), "deep"),
        (nested.as_bytes(), "deep"),
        (&vec![b' '; 20_000_000], "larger than"),
    ] {
        let done = checked(&world, bytes).expect(78);
        let said = format!("{}{}", done.text(), done.stderr);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(20)]).into_owned();
        assert!(said.contains(want) && said.contains("config.json5"), "{shown:?}: {said}");
        assert!(said.lines().count() <= 2 && said.len() < 1_000, "{said}");
        for command in
            [&["gateway", "start"][..], &["exec", "a", "--", "true"], &["prompt", "a", "x"]]
        {
            let done = world.run(command);
            assert_eq!(done.code, if command[0] == "exec" { 125 } else { 78 }, "{}", done.stderr);
            assert!(done.stderr.contains(want), "{shown:?}: {}", done.stderr);
        }
    }
    // A folder, a missing file, one that nobody can read, a FIFO.
    fs::remove_file(world.config_file()).expect("removed");
    let missing = world.run(["config", "check"]).expect(78);
    assert!(format!("{}{}", missing.text(), missing.stderr).contains("beige setup"));
    fs::create_dir(world.config_file()).expect("a folder");
    let folder = world.run(["config", "check"]).expect(78);
    assert!(format!("{}{}", folder.text(), folder.stderr).contains("folder"));
    fs::remove_dir(world.config_file()).expect("removed");
    let done = unreadable(&world);
    let said = format!("{}{}", done.text(), done.stderr);
    assert!(said.contains("closed.json5: may not be read by this user"), "{said}");
    let fifo = world.config_file();
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs");
    assert!(made.success());
    let done = world.run(["config", "check"]).expect(78);
    assert!(format!("{}{}", done.text(), done.stderr).contains("not a regular file"));
}

/// A check of a file that may not be read: root does it without the
/// capabilities that overrule the modes of files.
fn unreadable(world: &World) -> Finished {
    let file = world.root.join("closed.json5");
    fs::write(&file, sound("", "", "")).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("a mode");
    let program = world.beige(["config"]).get_program().to_owned();
    let mut command = Command::new(&program);
    if fs::read(&file).is_ok() {
        command = Command::new("setpriv");
        command.arg("--bounding-set=-dac_override,-dac_read_search").arg(program);
    }
    command.env("BEIGE_HOME", world.home()).arg("--config").arg(&file);
    let done: Finished = command.args(["config", "check"]).output().expect("it runs").into();
    done.expect(78)
}

#[test]
fn an_unknown_key_is_a_warning_and_an_empty_table_is_none() {
    let world = world();
    let text = sound("\"nope\": 1,", "", "instrctions: 'x',");
    let all = findings(&world, &text, 0);
    let seen: Vec<Value> = all
        .iter()
        .map(|it| json!([it["severity"], it["path"], it["line"], it["column"], it["message"]]))
        .collect();
    assert!(
        seen.contains(&json!(["warning", "nope", 11, 3, "unknown field, ignored"])),
        "{seen:#?}"
    );
    let near = "unknown field, ignored; did you mean `instructions`?";
    assert!(seen.contains(&json!(["warning", "agents.a.instrctions", 7, 7, near])), "{seen:#?}");
    world.run(["config", "check", "--strict"]).expect(78);
    world.run(["config", "check", "--strict", "--json"]).expect(78);
    // It starts, and says so.
    let done = world.run(["gateway", "start"]).expect(0);
    assert!(
        done.stderr.contains("nope") || world.gateway_log().contains("nope"),
        "{}",
        done.stderr
    );
    assert_eq!(world.get("/api/health").status, 200);
    world.run(["gateway", "stop"]).expect(0);
    for text in ["{\"agents\":{}}", "{}", "{llm:{providers:{}},agents:{}}"] {
        fs::write(world.config_file(), text).expect("written");
        for command in [["config", "check"], ["config", "show"], ["gateway", "start"]] {
            let done = world.run(command).expect(78);
            let said = format!("{}{}", done.text(), done.stderr);
            assert!(said.contains("agents"), "{said}");
        }
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let world = world();
    let text = "{\n  llm: { providers: { p: { api: 'repaly' } } },\n  agents: {\n    \
                'bl x/y': { model: { provider: 'p', model: 'm' }, tools: [] },\n    \
                a: { model: { provider: 'q', model: 7 }, tools: 'notes', sandbox: { pidsLimit: 0 } },\n    \
                b: { tools: [] },\n  },\n  gateway: { port: 70000, host: '0.0.0.0', auth: 'none' },\n}\n";
    let done = checked(&world, text).expect(78);
    let file = world.config_file();
    for (place, path, want) in [
        ("2:", "llm.providers.p.api", "did you mean `replay`"),
        ("4:5", "agents[\"bl x/y\"]", "a-z, 0-9"),
        ("5:", "agents.a.model.model", "string"),
        ("5:19", "agents.a.model.provider", "there is no provider `q`; did you mean `p`"),
        ("5:46", "agents.a.tools", "array"),
        ("5:", "agents.a.sandbox.pidsLimit", "16"),
        ("6:5", "agents.b.model", "missing"),
        ("8:44", "gateway.auth", "loopback"),
        ("8:", "gateway.port", "65535"),
    ] {
        let start = format!("{}:{place}", file.display());
        let found = done.text().lines().any(|it| {
            it.starts_with(&start) && it.contains(&format!(" {path}: ")) && it.contains(want)
        });
        assert!(found, "no {start}… {path}: …{want} in\n{}", done.text());
    }
    // The same lines stop every command.
    let started = world.run(["gateway", "start"]).expect(78);
    assert!(started.stderr.contains("bl x/y") && started.stderr.contains("gateway.port"));
    let exec = world.run(["exec", "a", "--", "true"]).expect(125);
    assert!(exec.stderr.contains("config.json5"), "{}", exec.stderr);
    // What only a whole, well-typed file can show.
    let text = sound("", "", "")
        .replace("provider: 'p', model", "provider: 'q', model")
        .replace("tools: []", "tools: ['notes', 'git']");
    let all = findings(&world, &text, 78);
    let said = json!(all).to_string();
    assert!(said.contains("agents.a.model") && said.contains("q"), "{said}");
}

#[test]
fn names_that_cannot_be_are_refused() {
    let world = world();
    let long = "x".repeat(41);
    for name in ["", "A", "-a", "_a", "a b", "a/b", "..", "ä", "a.b", &long, "a\\n"] {
        let text = sound("", "", "").replace("    a: {", &format!("    '{name}': {{"));
        let done = checked(&world, &text);
        assert_eq!(done.code, 78, "{name:?} was taken: {}", done.text());
    }
    for name in ["0", "a-b_c", &"x".repeat(40), "constructor", "__proto__"] {
        let text = sound("", "", "").replace("    a: {", &format!("    '{name}': {{"));
        let code = if name.starts_with('_') { 78 } else { 0 };
        assert_eq!(checked(&world, &text).code, code, "{name:?}");
    }
    for name in ["read", "write", "patch", "exec", "tool-client", "sh", "A", "a b"] {
        let plugins = format!("plugins: {{ '{name}': {{ path: './x' }} }},");
        assert_eq!(checked(&world, sound(&plugins, "", "")).code, 78, "{name:?} was taken");
    }
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    let world = world();
    let not_yet = "not supported by this version";
    for (field, path) in [
        ("sandbox: { network: { allow: ['x.org'] } }", "sandbox.network.allow"),
        ("sandbox: { mask: [] }", "sandbox.mask"),
        ("permissions: { mode: 'ask' }", "permissions.mode"),
        ("permissions: { mode: 'readonly' }", "permissions.mode"),
        ("permissions: { rules: [{ tool: 'exec', action: 'deny' }] }", "permissions.rules"),
        ("permissions: { approvalSeconds: 3 }", "permissions.approvalSeconds"),
        ("permissions: { unattended: 'deny' }", "permissions.unattended"),
    ] {
        refused(&world, &sound("", "", &format!("{field},")), &format!("agents.a.{path}"), not_yet);
    }
    for (field, path) in [("guards: { promptLeak: true }", "guards"), ("guards: {}", "guards")] {
        refused(&world, &sound(&format!("{field},"), "", ""), path, not_yet);
    }
    let notes = format!("path: '{}/examples/notes'", env!("CARGO_MANIFEST_DIR"));
    for (field, path) in [("url: 'http://x'", "url"), ("headers: {}", "headers")] {
        let plugins = format!("plugins: {{ notes: {{ {notes}, {field} }} }},");
        refused(&world, &sound(&plugins, "", ""), &format!("plugins.notes.{path}"), not_yet);
    }
    // The start says the same.
    fs::write(world.config_file(), sound("guards: {},", "", "")).expect("written");
    let done = world.run(["gateway", "start"]).expect(78);
    assert!(done.stderr.contains("guards") && done.stderr.contains(not_yet), "{}", done.stderr);
    // Plugins of forms that are not built, and what only a server can give.
    for form in [
        json!({"builtin": "git"}),
        json!({"tools": [{"name": "x", "description": "x", "run": ["./x"]}], "provides": {"channel": true}}),
        json!({"tools": [{"name": "x", "description": "x", "run": ["./x"]}], "provides": {"hooks": ["preToolExec"]}}),
    ] {
        let mut manifest = json!({"name": "x", "description": "x"});
        manifest
            .as_object_mut()
            .expect("an object")
            .extend(form.as_object().expect("an object").clone());
        fs::create_dir_all(world.root.join("x")).expect("a folder");
        fs::write(world.root.join("x/plugin.json"), manifest.to_string()).expect("written");
        fs::write(world.config_file(), sound("plugins: { x: { path: './x' } },", "", ""))
            .expect("written");
        let done = world.run(["gateway", "start"]);
        assert_eq!(done.code, 78, "{form}: {}", done.stderr);
        assert!(done.stderr.contains("plugin"), "{form}: {}", done.stderr);
    }
}

#[test]
fn an_agents_tools_must_be_there() {
    let world = world();
    let text = sound("", "", "").replace("tools: []", "tools: ['git']");
    fs::write(world.config_file(), text).expect("written");
    let done = world.run(["gateway", "start"]).expect(78);
    assert!(done.stderr.contains("agents.a.tools[0]: `git`"), "{}", done.stderr);
    let text =
        sound("", "", "pluginConfigs: { nots: {} },").replace("tools: []", "tools: ['notes']");
    let notes = format!(
        "plugins: {{ notes: {{ path: '{}/examples/notes' }} }}, gateway",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::write(world.config_file(), text.replace("gateway", &notes)).expect("written");
    let done = world.run(["gateway", "start"]).expect(78);
    assert!(done.stderr.contains("nots") && done.stderr.contains("notes"), "{}", done.stderr);
}

/// One finding that `config check` has beyond the file itself.
#[track_caller]
fn found_beyond(world: &World, text: &str, place: (u64, u64), path: &str, want: &str) {
    let all = findings(world, text, 78);
    assert_eq!(all.len(), 1, "{all:#?}");
    let [found] = &all[..] else { return };
    assert_eq!(
        (found["severity"].as_str(), found["line"].as_u64(), found["column"].as_u64()),
        (Some("error"), Some(place.0), Some(place.1)),
        "{found:#?}"
    );
    assert_eq!(found["path"], path);
    assert!(found["message"].as_str().is_some_and(|it| it.contains(want)), "{found:#?}");
}

#[test]
fn a_check_looks_into_plugins_and_at_the_tools_of_agents() {
    let world = world();
    let plugins = |entries: &str| sound(&format!("plugins: {{ {entries} }},"), "", "");
    let manifest = json!({
        "name": "x", "provides": {"tools": ["x"]}, "tools": [{"name": "x", "run": ["./x"]}],
    });
    let folder = world.root.join("x");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("x"), "#!/bin/sh\n").expect("written");
    fs::write(folder.join("plugin.json"), manifest.to_string()).expect("written");
    let gone = "plugins.gone.path";
    found_beyond(&world, &plugins("gone: { path: './gone' }"), (11, 22), gone, "No such file");
    // What hangs on a broken plugin is not told again.
    let text = plugins("x: { path: './x' }").replace("tools: []", "tools: ['x', 'x.part']");
    found_beyond(&world, &text, (11, 19), "plugins.x.path", "`./x` is not executable");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.join("x"), mode).expect("a mode");
    let text = plugins("x: { path: './x' }").replace("tools: []", "tools: ['x', 'y']");
    found_beyond(&world, &text, (6, 20), "agents.a.tools[1]", "`y` is not a registered tool");
    let text = sound("", "", "").replace("tools: []", "tools: ['exec']");
    found_beyond(&world, &text, (6, 15), "agents.a.tools[0]", "`exec` is a core tool");
    // The same stops the start.
    let done = world.run(["gateway", "start"]).expect(78);
    assert!(
        done.stderr.contains("config.json5:6:15: agents.a.tools[0]: `exec`"),
        "{}",
        done.stderr
    );
    // An unknown key of a manifest is a warning here, too.
    let mut manifest = manifest;
    manifest["descripton"] = json!("x");
    fs::write(folder.join("plugin.json"), manifest.to_string()).expect("written");
    let all = findings(&world, &plugins("x: { path: './x' }"), 0);
    assert_eq!((all.len(), &all[0]["severity"]), (1, &json!("warning")), "{all:#?}");
    world.run(["config", "check", "--strict"]).expect(78);
}

#[test]
fn a_check_reads_every_line_of_the_cassettes() {
    let world = world();
    let text = sound("", "", "");
    let path = "llm.providers.p.cassette";
    world.write_cassette(&[r#"{"events":[]}"#, "", r#"{"events":[{"stop":"done"}]}"#]);
    found_beyond(&world, &text, (2, 43), path, "line 3: unknown variant `done`");
    // The gateway starts, since the file may be changed while it runs.
    world.start_gateway();
    let log = world.gateway_log();
    assert!(log.contains("WARN") && log.contains("line 3: unknown variant `done`"), "{log}");
    world.run(["gateway", "stop"]).expect(0);
    world.write_cassette(&["garbage", r#"{"events":[]}"#, "\u{1b}[2J"]);
    let all = findings(&world, &text, 78);
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(!world.run(["config", "check"]).text().contains('\u{1b}'));
    fs::remove_file(world.root.join("cassette.jsonl")).expect("removed");
    found_beyond(&world, &text, (2, 43), path, "No such file");
    world.write_cassette(&[r#"{"events":[]}"#]);
    checked(&world, text).expect(0);
}

#[test]
fn a_restart_with_a_tool_that_is_not_there_ends_no_gateway() {
    let world = world();
    world.start_gateway();
    let pid = world.gateway_pid();
    fs::write(world.config_file(), sound("", "", "").replace("tools: []", "tools: ['nope']"))
        .expect("written");
    let done = world.run(["gateway", "restart"]).expect(78);
    let (said, findings) = done.stderr.split_once('\n').expect("two lines");
    let left_alone = "the running gateway was left alone";
    assert_eq!(said, format!("beige gateway: the configuration is not sound; {left_alone}"));
    assert!(findings.contains("agents.a.tools[0]: `nope`"), "{findings}");
    // As `config check` has them: an editor opens the place that stands first.
    let place = format!("{}:", world.config_file().display());
    assert!(findings.lines().all(|it| it.starts_with(&place)), "{findings}");
    assert_eq!(world.gateway_pid(), pid);
}

#[test]
fn every_line_of_a_failure_says_who_speaks() {
    let world = world();
    let text = sound("plugins: { x: { path: './x' }, y: { path: './y' } },", "", "")
        .replace("tools: []", "tools: ['exec', 'x']");
    fs::write(world.config_file(), text).expect("written");
    for command in [&["gateway", "start"][..], &["exec", "a", "--", "true"], &["prompt", "a", "x"]]
    {
        let done = world.run(command);
        let start = format!("beige {}: ", command[0]);
        assert_eq!(done.stderr.lines().count(), 3, "{}", done.stderr);
        assert!(done.stderr.lines().all(|it| it.starts_with(&start)), "{}", done.stderr);
    }
}

#[test]
fn the_hosts_own_network_is_told_at_the_check_and_at_the_start_only() {
    let Some(world) = World::on(Runtime::Bubblewrap) else { return };
    let agent = world.agent("a", "", "").replace("network: 'none'", "network: 'open'");
    world.write_config(&agent, "");
    let done = world.run(["config", "check"]).expect(0);
    let told = done.text();
    assert!(told.contains("warning: agents.a.sandbox.network: `open` is the host's own"), "{told}");
    assert_eq!(world.sh("echo on").expect(0).stderr, "");
    assert_eq!(world.run(["prompt", "a", "hi"]).expect(0).stderr, "");
    let started = world.run(["gateway", "start"]).expect(0).stderr;
    assert!(started.contains("a.sandbox.network: `open` is the host's own"), "{started}");
    let log = world.gateway_log();
    assert!(log.contains("the host's own network"), "{log}");
}

#[test]
fn a_secret_that_is_too_short_to_be_masked_is_told_at_the_check_only() {
    let world = some_world();
    let provider = "api: 'openai-completions', baseUrl: 'http://127.0.0.1:1/v1',";
    let of = |key: &str| {
        format!(
            "{{ llm: {{ providers: {{ p: {{ {provider} apiKey: '{key}' }} }} }}, \
             agents: {{ {} }}, gateway: {{ port: 0 }} }}",
            world.agent("a", "", "").replace("'notes'", "")
        )
    };
    let all = findings(&world, &of("sk-1234"), 0);
    let paths: Vec<&Value> = all.iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, ["llm.providers.p.apiKey"], "{all:#?}");
    assert!(
        all[0]["message"].to_string().contains("8 characters")
            && !all[0]["message"].to_string().contains("sk-1234")
    );
    assert_eq!(world.sh("echo on").expect(0).stderr, "");
    for sound in ["sk-12345", "none", ""] {
        assert_eq!(findings(&world, &of(sound), 0), [] as [Value; 0], "{sound}");
    }
}

#[test]
fn a_variable_that_is_not_set_is_named_and_secrets_are_dots() {
    let world = world();
    let text = sound("", "", "instructions: 'x ${NOT_SET_ANYWHERE} ${HOME:-y} ${ALSO:-z} $${W}',");
    refused(&world, &text, "agents.a.instructions", "NOT_SET_ANYWHERE");
    fs::write(world.root.join("secret"), "s3cret-of-a-file\n").expect("written");
    let text = sound("", "", "instructions: 'k ${file:./secret} x',");
    fs::write(world.config_file(), &text).expect("written");
    let shown = world.run(["config", "show"]).expect(0);
    let document = shown.json();
    assert_eq!(document["agents"]["a"]["instructions"], "••••");
    assert_eq!(document["gateway"]["host"], "127.0.0.1");
    assert_eq!(document["agents"]["a"]["limits"]["maxTurns"], 200);
    assert!(!format!("{}{}", shown.text(), shown.stderr).contains("s3cret"));
    // A name that looks secret is masked without being learnt from a file.
    let notes = format!(
        "plugins: {{ notes: {{ path: '{}/examples/notes', config: {{ api_key: 'plain-text-key', depth: {{ password: 'hunter22' }}, size: 3 }}, \
         env: {{ NOTES_TOKEN: 'of-the-environment' }} }} }},",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::write(world.config_file(), sound(&notes, "", "")).expect("written");
    let shown = world.run(["config", "show", "--json"]).expect(0);
    for secret in ["plain-text-key", "hunter22", "of-the-environment"] {
        assert!(!shown.text().contains(secret), "{}", shown.text());
    }
    assert_eq!(shown.json()["plugins"]["notes"]["config"]["size"], 3);
    for (value, want) in [
        ("${file:./none}", "/none"),
        ("${file:.}", "folder"),
        ("${}", "${"),
        ("${UNCLOSED", "${"),
        ("${file:./big}", "64 KiB"),
    ] {
        fs::write(world.root.join("big"), "x".repeat(70_000)).expect("written");
        let text = sound("", "", &format!("instructions: '{value}',"));
        refused(&world, &text, "agents.a.instructions", want);
    }
    // A provider that no agent refers to is not looked into.
    let text = sound("", "", "")
        .replace("providers: {", "providers: { idle: { apiKey: '${NOT_SET_ANYWHERE}', api: 'x' },");
    checked(&world, text).expect(0);
}

#[test]
fn it_is_shown_when_a_conversation_is_compacted() {
    let world = some_world();
    let provider = "api: 'openai-completions', baseUrl: 'http://127.0.0.1:1/v1', \
                    record: true, cassette: './said.jsonl', models: { m: { contextWindow: 100000 } },";
    let others = "fallbackModels: [{ provider: 'p', model: 'unknown' }, \
                  { provider: 'p', model: 'm', compactionThreshold: 9000 }],";
    world.write_config_of(provider, &world.agent("a", "", others), "");
    let shown = world.run(["config", "show"]).expect(0).json();
    let agent = &shown["agents"]["a"];
    let threshold = |it: &Value| it["compactionThreshold"].clone();
    let all: Vec<Value> =
        agent["fallbackModels"].as_array().expect("a list").iter().map(threshold).collect();
    assert_eq!(
        (threshold(&agent["model"]), all),
        (json!(83_616), vec![json!(111_616), json!(9_000)])
    );
    assert_eq!(shown["llm"]["providers"]["p"]["cassette"], json!(world.root.join("said.jsonl")));
    // Nothing is too long for what is played back.
    world.configure(&["a"], "");
    let shown = world.run(["config", "show"]).expect(0).json();
    assert_eq!(threshold(&shown["agents"]["a"]["model"]), Value::Null);
}

#[test]
fn places_that_may_not_be_mounted_are_refused() {
    let world = world();
    let home = world.home().display().to_string();
    fs::create_dir_all(world.home().join("agents/b/workspace")).expect("a folder");
    fs::create_dir_all(world.home().join("agents/a/workspace")).expect("a folder");
    std::os::unix::fs::symlink(world.home(), world.root.join("way")).expect("a link");
    let root = world.root.display().to_string();
    let way = format!("{root}/way/logs");
    for place in [
        home.as_str(),
        &root,
        &way,
        "/",
        "/proc",
        "/run",
        "/var/run",
        "/etc/..",
        "/sys",
        "/dev",
        &format!("{home}/agents/b/workspace"),
    ] {
        for field in [
            format!("workspaceDir: '{place}',"),
            format!("sandbox: {{ extraMounts: {{ '{place}': '/mnt/x' }} }},"),
        ] {
            let done = checked(&world, sound("", "", &field));
            assert_eq!(done.code, 78, "{field} was taken");
            assert!(
                done.text().contains(if field.starts_with('w') {
                    "workspaceDir"
                } else {
                    "extraMounts"
                }),
                "{}",
                done.text()
            );
        }
    }
    for inside in [
        "/beige",
        "/tools/x",
        "/skills",
        "/proc",
        "/sys/x",
        "/dev",
        "/",
        "/workspace",
        "/workspace/..",
        "x",
        "/mnt/../beige",
    ] {
        let field = format!("sandbox: {{ extraMounts: {{ '/opt': '{inside}' }} }},");
        assert_eq!(checked(&world, sound("", "", &field)).code, 78, "{inside} was taken");
    }
    for name in ["PATH", "HOME", "LD_PRELOAD", "BEIGE_CALL", "a=b", ""] {
        let field = format!("sandbox: {{ extraEnv: {{ '{name}': 'x' }} }},");
        assert_eq!(checked(&world, sound("", "", &field)).code, 78, "{name} was taken");
    }
    let own = format!("workspaceDir: '{home}/agents/a/workspace',");
    checked(&world, sound("", "", &own)).expect(0);
}

#[test]
fn the_schema_needs_no_configuration_and_names_every_part() {
    let world = world();
    fs::write(world.config_file(), "{").expect("written");
    let schema = world.run(["config", "schema"]).expect(0).json();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    assert_eq!(schema["required"], serde_json::json!(["llm", "agents"]));
    assert_eq!(schema["additionalProperties"], true);
    let port = schema.pointer("/properties/gateway/properties/port").expect("a port");
    let want =
        serde_json::json!({"type": "integer", "minimum": 0, "maximum": 65535, "default": 7433});
    assert_eq!(*port, want);
    let strict = world.run(["config", "schema", "--strict"]).expect(0).json();
    assert_eq!(strict["additionalProperties"], false);
    assert!(!world.home().exists());
}

/// A configuration whose agent asks a server for `m-large`, of which nobody
/// knows anything, and falls back on `gpt-5.1`.
fn asks_a_server(models: &str, thinking: &str) -> String {
    let served = format!("api: 'openai-completions', baseUrl: 'http://127.0.0.1:9/v1', {models}");
    sound("", "", &format!("fallbackModels: [{{ provider: 'p', model: 'gpt-5.1', {thinking} }}],"))
        .replace("api: 'replay', cassette: './cassette.jsonl',", &served)
        .replace("model: 'm' }", &format!("model: 'm-large', {thinking} }}"))
}

/// Exactly these warnings, each with its path and words of its message.
#[track_caller]
fn warned(world: &World, text: &str, want: &[(&str, &[&str])]) {
    let all = findings(world, text, 0);
    assert_eq!(all.len(), want.len(), "{all:#?}");
    for (found, (path, words)) in all.iter().zip(want) {
        assert_eq!((&found["severity"], &found["path"]), (&json!("warning"), &json!(path)));
        let message = found["message"].as_str().unwrap_or_default();
        assert!(words.iter().all(|it| message.contains(it)), "{message}");
    }
}

#[test]
fn a_thinking_level_that_is_told_nobody_is_a_warning() {
    let world = world();
    let place = "agents.a.model.thinkingLevel";
    let cure = "llm.providers.p.models.\"m-large\".reasoning: true";
    let high = "thinkingLevel: 'high'";
    // The fallback is well known to think.
    let words: &[&str] = &["`p/m-large` is not known to think", cure];
    warned(&world, &asks_a_server("", high), &[(place, words)]);
    let dull = asks_a_server("models: { 'gpt-5.1': { reasoning: false } },", high);
    let second = "agents.a.fallbackModels[0].thinkingLevel";
    warned(&world, &dull, &[(place, words), (second, &["llm.providers.p.models.\"gpt-5.1\""])]);
    let known = "models: { 'm-large': { reasoning: true } },";
    warned(&world, &asks_a_server(known, high), &[]);
    warned(&world, &asks_a_server("", "thinkingLevel: 'off'"), &[]);
    warned(&world, &asks_a_server("", ""), &[]);
    // Other protocols tell the models that they do not know.
    let other = asks_a_server("", high).replace("openai-completions", "openai-responses");
    warned(&world, &other, &[]);
    // It stops nothing.
    fs::write(world.config_file(), asks_a_server("", high)).expect("written");
    let started = world.run(["gateway", "start"]).expect(0);
    assert!(started.stderr.contains(cure), "{}", started.stderr);
}

#[test]
fn facts_of_a_model_that_nobody_asks_for_under_a_near_name_are_a_warning() {
    let world = world();
    let of =
        |id: &str| asks_a_server(&format!("models: {{ '{id}': {{ contextWindow: 9000 }} }},"), "");
    let place = "llm.providers.p.models";
    for id in ["m-lagre", "M-Large", "m_large"] {
        let path = format!("{place}.{id}");
        warned(&world, &of(id), &[(path.as_str(), &[id, "`m-large`"])]);
    }
    // One that is asked for, one of its own, and one that is well known.
    for id in ["m-large", "quite-another", "gpt-5.2"] {
        warned(&world, &of(id), &[]);
    }
    let both = asks_a_server("models: { 'm-large': {}, 'm-lagre': {} },", "");
    warned(&world, &both, &[]);
}
