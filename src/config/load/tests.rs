//! The whole way of a file, with an environment and a host made up: what is
//! refused, what is warned of, what has which default, and that no bytes
//! whatever end in a panic.

#![allow(clippy::panic)]

mod host;
mod hostile;
mod providers;

use super::*;
use crate::config::{Api, ModelFacts, Price, Reach, Timeouts};

use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::json;

use crate::config::sample::Folder;
use crate::config::{Network, RuntimeChoice, ThinkingLevel, UserChoice};

const REPOSITORY: &str = include_str!("../../../config.json5");
const FIRST: &str = include_str!("../../../sandbox/first-config.json5");

fn variable(name: &str) -> Option<OsString> {
    match name {
        "HOME" => Some("/home/user".into()),
        "PROVIDER" => Some("demo".into()),
        _ => None,
    }
}

fn surroundings() -> Surroundings<'static> {
    Surroundings { environment: &variable, memory_bytes: Some(8 << 30), cpus: Some(4), uid: 0 }
}

fn sample() -> Value {
    json!({
        "llm": {"providers": {"demo": {"api": "replay", "cassette": "demo.jsonl"}}},
        "agents": {"a": {"model": {"provider": "demo", "model": "m"}, "tools": []}},
    })
}

/// A sound configuration with one more value, at a path like `/agents/a/tools`.
fn with(pointer: &str, value: Value) -> Value {
    let mut config = sample();
    let mut place = &mut config;
    for key in pointer.split('/').skip(1) {
        place = &mut place[key];
    }
    *place = value;
    config
}

struct Case {
    folder: Folder,
    home: Home,
}

impl Case {
    fn new() -> Self {
        let folder = Folder::new();
        let home = Home::new(folder.path().join("home"));
        Self { folder, home }
    }

    fn examine(&self, text: &[u8]) -> Examined {
        let file = self.folder.write("config.json5", text);
        examine(&file, &self.home, &surroundings())
    }

    /// Findings as text, `.` for the folder.
    fn findings(&self, text: &[u8]) -> String {
        let report = self.examine(text).report.to_string();
        report.replace(&self.folder.path().display().to_string(), ".")
    }

    #[track_caller]
    fn config(&self, value: &Value) -> Config {
        let Examined { report, sound, .. } = self.examine(value.to_string().as_bytes());
        let (config, _) = sound.unwrap_or_else(|| panic!("{report}"));
        config
    }
}

#[track_caller]
fn check_refused(pointer: &str, value: Value, expected: &str) {
    let Examined { report, sound, .. } =
        Case::new().examine(with(pointer, value).to_string().as_bytes());
    assert!(sound.is_none(), "{pointer} was accepted: {report}");
    assert!(report.to_string().contains(expected), "{report}");
    assert_eq!(report.findings.len(), 1, "one fault is one finding: {report}");
}

#[track_caller]
fn check_warned(pointer: &str, value: Value, expected: &str) {
    let Examined { report, sound, .. } =
        Case::new().examine(with(pointer, value).to_string().as_bytes());
    assert!(sound.is_some(), "{report}");
    assert!(report.to_string().contains(expected), "{report}");
}

#[track_caller]
fn check_accepted(pointer: &str, value: Value) {
    let report = Case::new().examine(with(pointer, value).to_string().as_bytes()).report;
    assert_eq!(report.to_string(), "");
}

#[test]
fn the_models_that_the_first_configuration_proposes_are_sound() {
    let mut text = FIRST.replace("      model: { provider: \"demo\", model: \"demo\" },\n", "");
    for line in ["anthropic: {", "ollama: {", "model: {", "fallbackModels: ["] {
        assert_eq!(text.matches(&format!("// {line}")).count(), 1, "{line}");
        text = text.replace(&format!("// {line}"), line);
    }
    let text = text.replace("${ANTHROPIC_API_KEY}", "k3y-of-nobody");
    assert_eq!(Case::new().findings(text.as_bytes()), "");
}

#[test]
fn the_examples_are_sound_and_without_warnings() {
    for text in [REPOSITORY, FIRST] {
        let case = Case::new();
        assert_eq!(case.findings(text.as_bytes()), "");
    }
    let case = Case::new();
    let file = case.folder.write("config.json5", REPOSITORY.as_bytes());
    let Ok(Loaded { config, warnings, .. }) = load_in(&file, &case.home, &surroundings()) else {
        panic!("the example is sound");
    };
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.file, file);
    let Reach::Cassette(cassette) = &config.providers["demo"].reach else {
        panic!("the example plays a cassette");
    };
    assert_eq!(*cassette, case.folder.path().join("./examples/demo.jsonl"));
    assert_eq!(config.plugins[0].name, "notes");
    let agent = &config.agents["assistant"];
    assert_eq!(agent.tools, ["notes"]);
    assert_eq!(agent.sandbox.network, Some(Network::None));
    assert_eq!(config.gateway.port, 7433);
}

#[test]
fn what_is_absent_has_its_default() {
    let case = Case::new();
    let config = case.config(&sample());
    let agent = &config.agents["a"];
    assert_eq!(agent.workspace, case.home.workspace("a"));
    assert_eq!(agent.limits.max_turns, 200);
    assert_eq!(agent.limits.max_tool_output_bytes, 50_000);
    assert_eq!(agent.limits.exec_timeout, Duration::from_secs(900));
    assert_eq!(agent.limits.http_exec_timeout, Duration::from_secs(120));
    assert_eq!(agent.sandbox.memory_bytes, 3 << 30);
    assert_eq!(agent.sandbox.pids, 512);
    assert_eq!(agent.sandbox.cpus, None);
    assert_eq!(agent.sandbox.network, None);
    assert_eq!(agent.sandbox.runtime, RuntimeChoice::Auto);
    assert_eq!(agent.sandbox.user, UserChoice::Host);
    assert!(config.gateway.token_required);
    assert_eq!(config.gateway.log_file, case.home.logs().join("gateway.log"));
    assert_eq!(config.gateway.log_max_bytes, 10_485_760);
    assert_eq!(config.gateway.log_level, log::LevelFilter::Info);
}

#[test]
fn all_faults_are_reported_at_once_in_the_order_of_the_file() {
    let text = br#"{
  llm: { providers: { demo: { api: "openai-responses", apiKey: "sk-12345678", record: true } } },
  plugins: { notes: { path: "" } },
  agents: {
    "A b": { model: { provider: "dmeo", model: "m" }, tools: "x" },
    b: { model: { provider: "demo", model: 3 }, tools: [], sandbx: {}, pluginConfigs: { note: {} } },
  },
  gateway: { port: 70000, prot: 1, host: "0.0.0.0", auth: "none", auth: "none" },
}"#;
    let expected = "\
./config.json5:2:23: llm.providers.demo.baseUrl: this field is missing; only these need none: anthropic, google, openai, openrouter, groq, mistral, deepseek, xai, together, fireworks, cerebras, zai, moonshot, ollama, lmstudio, llamacpp, vllm
./config.json5:2:79: llm.providers.demo.record: `record: true` needs a `cassette` to append to
./config.json5:3:23: plugins.notes.path: must not be empty
./config.json5:5:5: agents[\"A b\"]: a name is made of a-z, 0-9, `_` and `-`, begins with a letter or digit and has at most 40 characters
./config.json5:5:23: agents[\"A b\"].model.provider: there is no provider `dmeo`; did you mean `demo`?
./config.json5:5:55: agents[\"A b\"].tools: expected an array, found a string
./config.json5:6:37: agents.b.model.model: expected a string, found a number
./config.json5:6:60: warning: agents.b.sandbx: unknown field, ignored; did you mean `sandbox`?
./config.json5:6:89: agents.b.pluginConfigs.note: there is no plugin `note`; did you mean `notes`?
./config.json5:8:14: gateway.port: must be from 0 to 65535
./config.json5:8:27: warning: gateway.prot: unknown field, ignored; did you mean `port`?
./config.json5:8:67: gateway.auth: this key is given twice in its object; remove one of the two";
    assert_eq!(Case::new().findings(text), expected);
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let case = Case::new();
    let check = |file: &Path, expected: &str| {
        let report = examine(file, &case.home, &surroundings()).report.to_string();
        let report = report.replace(&case.folder.path().display().to_string(), ".");
        assert_eq!(report, expected);
    };
    let missing = case.folder.path().join("none");
    let usual = case.home.config_file().display().to_string();
    let usual = usual.replace(&case.folder.path().display().to_string(), ".");
    let hint = format!("--config or BEIGE_CONFIG names it, and `beige setup` makes {usual} only");
    check(&missing, &format!("./none: does not exist; {hint}"));
    let hint = "`beige setup` makes it, --config names another";
    check(&case.home.config_file(), &format!("{usual}: does not exist; {hint}"));
    check(case.folder.path(), ".: is a folder, not a file");
}

#[test]
fn one_unknown_key_is_a_warning_and_no_agents_are_an_error() {
    check_warned("/nope", json!(1), "nope: unknown field, ignored");
    check_refused("/agents", json!({}), "agents: must hold at least one entry");
    check_refused("/plugins", json!({"p": {}}), "plugins.p: needs `path`, a folder");
    let both = json!({"p": {"path": "p", "command": ["x"]}});
    check_refused(
        "/plugins",
        both,
        "plugins.p.command: a plugin has one of `path`, `command`, `url` and `builtin`",
    );
    let empty = json!({"p": {"command": []}});
    check_refused("/plugins", empty, "plugins.p.command: must begin with a program");
    check_refused("/gateway", json!([]), "gateway: expected an object, found an array");
    let none = Case::new().findings(b"{llm:{providers:{}},agents:{}}");
    assert!(none.contains("llm.providers: must hold at least one entry"), "{none}");
    let nothing = Case::new().findings(b"{}");
    assert!(
        nothing.contains("1:1: llm: this field is missing") && nothing.contains("agents: this")
    );
    assert!(
        Case::new().findings(b"3").contains("expected an object { llm, agents }, found a number")
    );
}

#[test]
fn a_byte_order_mark_and_windows_lines_change_nothing() {
    let windows = format!("\u{feff}{}", REPOSITORY.replace('\n', "\r\n"));
    assert_eq!(Case::new().findings(windows.as_bytes()), "");
}

#[test]
fn what_is_not_built_is_refused_and_its_harmless_form_is_not() {
    let refused = [
        ("/guards", json!({"promptLeak": true})),
        ("/agents/a/sandbox", json!({"network": {"allow": ["x"]}})),
        ("/agents/a/sandbox", json!({"mask": []})),
        ("/agents/a/permissions", json!({"mode": "ask"})),
        ("/agents/a/permissions", json!({"mode": "readonly"})),
        ("/agents/a/permissions", json!({"rules": [{"tool": "exec", "action": "deny"}]})),
        ("/agents/a/permissions", json!({"approvalSeconds": 300})),
        ("/agents/a/permissions", json!({"unattended": "deny"})),
    ];
    for (pointer, value) in refused {
        check_refused(pointer, value, "not supported by this version");
    }
    check_accepted("/agents/a/permissions", json!({"mode": "auto", "rules": []}));
    check_accepted("/llm/providers/demo/record", json!(false));
}

#[test]
fn a_server_elsewhere_is_one_thing_and_has_no_process() {
    #[track_caller]
    fn check(plugin: Value, want: &str) {
        check_refused("/plugins", json!({"p": plugin}), want);
    }
    let url = "https://mcp.example.org/mcp";
    let far = json!({"url": url, "headers": {"Authorization": "Bearer x"}});
    check_accepted("/plugins", json!({"p": far}));
    check(json!({"url": url, "path": "p"}), "one of `path`, `command`, `url` and `builtin`");
    check(json!({"url": url, "command": ["p"]}), "one of `path`, `command`, `url` and `builtin`");
    check(json!({"url": url, "env": {"A": "b"}}), "is no process");
    check(json!({"url": "mcp.example.org"}), "must be a URL that begins with http");
    check(json!({"url": "https://me:pw@h/"}), "must not hold a name or password");
    check(json!({"url": url, "headers": {"Host": "h"}}), "is set by the request itself");
    check(json!({"url": url, "headers": {"Mcp-Session-Id": "h"}}), "set by the protocol itself");
    check(json!({"path": "p", "headers": {"A": "b"}}), "only a server by `url` has these");
    check(json!({"command": ["p"], "caFile": "/f"}), "only a server by `url` has these");
}

#[test]
fn names_are_checked() {
    for name in ["", "A", "-a", "_a", "a b", "a/b", "é", "a.b", &"a".repeat(41)] {
        check_refused("/agents", json!({name: sample()["agents"]["a"]}), "a name is made of");
    }
    check_accepted("/agents", json!({"constructor": sample()["agents"]["a"]}));
    check_accepted("/agents", json!({"a_-0": sample()["agents"]["a"]}));
    check_refused("/plugins", json!({"exec": {"path": "p"}}), "the name is reserved");
    check_refused("/plugins", json!({"p": {"path": "p", "env": {"A B": ""}}}), "letters, digits");
    for name in ["PATH", "HOME", "LD_PRELOAD", "BEIGE_CALL"] {
        check_refused(
            "/agents/a/sandbox",
            json!({"extraEnv": {name: "x"}}),
            "are set by the gateway",
        );
    }
    check_refused("/agents/a/sandbox", json!({"extraEnv": {"1A": "x"}}), "letters, digits");
    check_refused("/agents/a/sandbox", json!({"extraEnv": {"A": "x\u{0}"}}), "NUL");
    check_accepted("/agents/a/sandbox", json!({"extraEnv": {"LANG": "", "path": "x"}}));
}

#[test]
fn a_word_that_is_none_of_the_known_ones_is_named() {
    let level = |word: &str| json!({"provider": "demo", "model": "m", "thinkingLevel": word});
    let known = "expected one of off, minimal, low, medium, high, found ";
    check_refused(
        "/agents/a/model",
        level("hihg"),
        &format!("{known}`hihg`; did you mean `high`?"),
    );
    check_refused("/agents/a/model", level(""), &format!("{known}an empty string"));
    // What is no word may be a secret that went to the wrong place.
    check_refused("/agents/a/model", level(&"x".repeat(33)), &format!("{known}a string of 33"));
    check_refused("/agents/a/sandbox", json!({"network": "opne"}), "none, found `opne`; did you");
}

#[test]
fn numbers_have_bounds() {
    check_refused("/gateway", json!({"port": -1}), "from 0 to 65535");
    check_refused("/gateway", json!({"port": 1.5}), "expected a whole number");
    check_refused("/gateway", json!({"port": "80"}), "expected a whole number, found a string");
    check_refused(
        "/agents/a/limits",
        json!({"maxTurnCostUsd": "1"}),
        "maxTurnCostUsd: expected a number, found a string",
    );
    check_accepted("/gateway", json!({"port": 0}));
    check_refused("/agents/a/limits", json!({"execTimeoutSeconds": 0}), "more than 0");
    check_refused("/agents/a/limits", json!({"execTimeoutSeconds": 1e8}), "at most 10000000");
    check_refused("/agents/a/limits", json!({"maxTurns": 0}), "from 1");
    check_refused("/agents/a/sandbox", json!({"cpus": 0}), "more than 0");
    check_refused("/agents/a/sandbox", json!({"pidsLimit": 1}), "from 16");
    let infinite = sample().to_string().replacen(
        "\"tools\"",
        "\"limits\":{\"execTimeoutSeconds\":Infinity},\"tools\"",
        1,
    );
    assert!(Case::new().findings(infinite.as_bytes()).contains("not finite"));
}

#[test]
fn a_time_limit_that_is_given_holds_everywhere() {
    let config = Case::new().config(&with("/agents/a/limits", json!({"execTimeoutSeconds": 2.5})));
    let limits = config.agents["a"].limits;
    assert_eq!(limits.exec_timeout, Duration::from_millis(2500));
    assert_eq!(limits.http_exec_timeout, Duration::from_millis(2500));
}

#[test]
fn instructions_may_come_from_a_file() {
    let case = Case::new();
    case.folder.write("i.md", "é\n".as_bytes());
    let config = case.config(&with("/agents/a/instructions", json!({"file": "i.md"})));
    assert_eq!(config.agents["a"].instructions.as_deref(), Some("é\n"));
    check_refused("/agents/a/instructions", json!({"file": "no.md"}), "no.md does not exist");
    check_refused("/agents/a/instructions", json!({"file": "/dev/zero"}), "not a regular file");
    check_refused("/agents/a/instructions", json!(3), "expected a string or an object");
}

#[test]
fn plugins_keep_the_order_of_the_file_and_may_be_switched_off() {
    let text = br#"{
        llm: {providers: {demo: {api: "replay", cassette: "c"}}},
        plugins: {z: {path: "z"}, off: {path: "o", enabled: false}, a: {path: "a", config: {k: [1]}}},
        agents: {a: {model: {provider: "demo", model: "m"}, tools: [], pluginConfigs: {off: {}, a: {}}}},
    }"#;
    let Some((config, _)) = Case::new().examine(text).sound else { panic!("it is sound") };
    let names: Vec<&str> = config.plugins.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["z", "a"]);
    assert_eq!(config.plugins[1].config, json!({"k": [1]}));
}

#[test]
fn secrets_are_known_and_shown_to_nobody() {
    let case = Case::new();
    case.folder.write("pw", b"hunter2hunter2\n");
    let mut config = with(
        "/plugins",
        json!({"p": {
            "path": "p", "config": {"apiKey": "key-in-config", "url": "http://x/${file:pw}"},
        }}),
    );
    config["agents"]["a"]["pluginConfigs"] = json!({"p": {"token": "token-of-agent"}});
    let Examined { report, sound, .. } = case.examine(config.to_string().as_bytes());
    let Some((sound, effective)) = sound else { panic!("{report}") };
    let mut secrets: Vec<&str> = sound.secrets.iter().map(Secret::expose).collect();
    secrets.sort_unstable();
    assert_eq!(
        secrets,
        ["http://x/hunter2hunter2", "hunter2hunter2", "key-in-config", "token-of-agent"]
    );
    let shown = effective.to_string();
    assert!(secrets.iter().all(|it| !shown.contains(it)), "{shown}");
    assert!(shown.contains("••••") && shown.contains("\"maxTurns\":200"), "{shown}");

    config["agents"]["a"]["instructions"] = json!({"file": "/none/${file:pw}"});
    let findings = case.findings(config.to_string().as_bytes());
    assert!(
        findings.contains("the file •••• does not exist") && !findings.contains("hunter2"),
        "{findings}"
    );
}

#[test]
fn what_is_shown_names_the_folders_and_sizes_that_count() {
    let case = Case::new();
    let config = with("/agents/a/sandbox", json!({"user": "root", "cpus": 64}));
    let Some((_, shown)) = case.examine(config.to_string().as_bytes()).sound else {
        panic!("it is sound");
    };
    let agent = &shown["agents"]["a"];
    assert_eq!(agent["workspaceDir"], json!(case.home.workspace("a")));
    assert_eq!(agent["sandbox"]["memoryLimit"], json!(3_u64 << 30));
    assert_eq!(agent["sandbox"]["cpus"], json!(4.0));
    // With root it comes to a container, whose network is open.
    assert_eq!(agent["sandbox"]["runtime"], json!("auto"));
    assert_eq!(agent["sandbox"]["network"], json!("open"));
    assert_eq!(shown["gateway"]["logFile"], json!(case.home.logs().join("gateway.log")));
}

#[test]
fn what_is_shown_has_whole_paths_and_the_defaults_of_permissions() {
    let case = Case::new();
    let folder = case.folder.path();
    case.folder.folder("data");
    let mut config = with("/plugins", json!({"p": {"path": "./p"}, "q": {"path": "../q"}}));
    config["llm"]["providers"]["demo"]["cassette"] = json!("./data/./demo.jsonl");
    config["llm"]["providers"]["server"] = json!({"api": "openai-completions",
        "baseUrl": "http://127.0.0.1:1/v1", "record": true, "cassette": "./data/./server.jsonl"});
    config["agents"]["a"]["fallbackModels"] = json!([{"provider": "server", "model": "m"}]);
    config["gateway"] = json!({"logFile": "./log"});
    config["agents"]["a"]["sandbox"] =
        json!({"runtime": "docker", "extraMounts": {"./data": "/data:ro"}});
    config["agents"]["b"] = config["agents"]["a"].clone();
    config["agents"]["b"]["sandbox"] = json!({"runtime": "bubblewrap"});
    let Some((_, shown)) = case.examine(config.to_string().as_bytes()).sound else {
        panic!("it is sound");
    };
    let demo = &shown["llm"]["providers"]["demo"];
    assert_eq!(demo["cassette"], json!(folder.join("data/demo.jsonl")));
    let server = &shown["llm"]["providers"]["server"];
    assert_eq!(server["cassette"], json!(folder.join("data/server.jsonl")));
    assert_eq!(shown["plugins"]["p"]["path"], json!(folder.join("p")));
    assert_eq!(shown["plugins"]["q"]["path"], json!(folder.join("../q")));
    assert_eq!(shown["gateway"]["logFile"], json!(folder.join("log")));
    let agent = &shown["agents"]["a"];
    assert_eq!(agent["permissions"], json!({"mode": "auto", "rules": []}));
    let mounts = json!({folder.join("data").to_str().unwrap_or_default(): "/data:ro"});
    assert_eq!(agent["sandbox"]["extraMounts"], mounts);
    assert_eq!(agent["sandbox"]["network"], json!("open"));
    assert_eq!(shown["agents"]["b"]["sandbox"]["network"], json!("none"));
}

#[test]
fn what_is_shown_has_the_limits_and_levels_that_count() {
    let case = Case::new();
    let config = with("/llm/providers/demo/models", json!({"m": {}}));
    let Some((_, shown)) = case.examine(config.to_string().as_bytes()).sound else {
        panic!("it is sound");
    };
    let agent = &shown["agents"]["a"];
    let want = json!({"maxTurns": 200, "maxToolOutputBytes": 50_000, "maxTurnSeconds": 0,
        "maxTurnTokens": 0, "maxTurnCostUsd": 0, "inactivitySeconds": 600});
    assert_eq!(agent["limits"], want);
    assert_eq!(agent["model"]["thinkingLevel"], "off");
    let demo = &shown["llm"]["providers"]["demo"];
    assert_eq!(json!([demo["concurrency"], demo["record"]]), json!([-1, false]));
    assert_eq!(demo["models"]["m"]["compat"], json!({"textTools": false}));
}

#[test]
fn what_is_shown_can_be_loaded_again() {
    let case = Case::new();
    let Some((_, shown)) = case.examine(sample().to_string().as_bytes()).sound else {
        panic!("it is sound");
    };
    assert_eq!(case.findings(shown.to_string().as_bytes()), "");
}

#[test]
fn bubblewrap_gives_an_agent_no_other_user_than_the_gateways() {
    let check = |uid: u32, runtime: &str, expected: &str| {
        let case = Case::new();
        let sandbox = json!({"runtime": runtime, "user": "5000:5000"});
        let config = with("/agents/a/sandbox", sandbox).to_string();
        let file = case.folder.write("config.json5", config.as_bytes());
        let at = Surroundings { uid, ..surroundings() };
        let report = examine(&file, &case.home, &at).report.to_string();
        assert!(report.contains(expected) && report.is_empty() == expected.is_empty(), "{report}");
    };
    check(1001, "bubblewrap", "agents.a.sandbox.user: bubblewrap gives an agent no other user");
    check(5000, "bubblewrap", "");
    check(0, "bubblewrap", "");
    check(1001, "docker", "");
    check(1001, "auto", "");
}

#[test]
fn a_field_that_should_be_an_object_says_of_what() {
    check_refused(
        "/agents/a/model",
        json!("demo/m"),
        "agents.a.model: expected an object { provider, model }, found a string",
    );
    check_refused("/agents/a/sandbox", json!("x"), "sandbox: expected an object, found a string");
}

#[test]
fn the_file_that_counts_is_the_one_named_last_of_all_defaults() {
    let home = Home::new("/h");
    let choose = |flag: Option<&str>, variable: Option<&str>| {
        choose(flag.map(Path::new), variable.map(OsString::from), &home).ok()
    };
    assert_eq!(choose(Some("/f"), Some("/v")), Some("/f".into()));
    assert_eq!(choose(None, Some("/v")), Some("/v".into()));
    assert_eq!(choose(None, Some("")), Some("/h/config.json5".into()));
    assert_eq!(choose(None, None), Some("/h/config.json5".into()));
    assert_eq!(choose(Some("rel"), None), Some(absolute(Path::new("rel"))));
    assert_eq!(choose(Some(""), None), None);
}

#[test]
fn the_hosts_memory_is_read() {
    assert_eq!(total_memory("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16 << 10));
    assert_eq!(total_memory("MemFree: 1 kB\n"), None);
    assert_eq!(total_memory("MemTotal: é kB\n"), None);
}
