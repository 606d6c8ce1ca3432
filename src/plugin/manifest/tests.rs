//! Tests of what a `plugin.json` may say.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::plugin::tests::Scratch;

fn read_text(text: &str) -> (Scratch, Result<Manifest, Vec<String>>) {
    let scratch = Scratch::new();
    scratch.write("p/plugin.json", text);
    scratch.write("p/plain", "");
    scratch.write_program("p/tool", "#!/bin/sh\n");
    scratch.write_program("outside", "#!/bin/sh\n");
    assert!(symlink("../outside", scratch.path().join("p/link")).is_ok());
    let manifest = read(&scratch.path().join("p"));
    (scratch, manifest)
}

/// The findings, without the file's name before them.
fn findings(text: &str) -> Vec<String> {
    let (scratch, manifest) = read_text(text);
    let folder = format!("{}/", scratch.path().join("p").display());
    let wrong = manifest.err().unwrap_or_default();
    wrong.iter().map(|it| it.trim_start_matches("plugin.json: ").replace(&folder, "")).collect()
}

/// A sound manifest with some keys replaced.
#[track_caller]
fn check(changes: Value, want: &[&str]) {
    let mut manifest = json!({"name": "p", "tools": [{"name": "p", "run": ["./tool"]}]});
    for (key, value) in changes.as_object().into_iter().flatten() {
        manifest[key] = value.clone();
    }
    assert_eq!(findings(&manifest.to_string()), want, "{manifest}");
}

/// A sound tool with some keys replaced.
#[track_caller]
fn check_tool(changes: Value, want: &[&str]) {
    let mut tool = json!({"name": "p", "run": ["./tool"]});
    for (key, value) in changes.as_object().into_iter().flatten() {
        tool[key] = value.clone();
    }
    let want: Vec<String> = want.iter().map(|it| format!("tools[0].{it}")).collect();
    check(json!({"tools": [tool]}), &want.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_small_manifest_is_read_with_its_defaults() {
    let (scratch, manifest) =
        read_text(r#"{"name":"p","description":"D","tools":[{"name":"p","run":["./tool","x"]}]}"#);
    let folder = scratch.path().join("p").canonicalize().unwrap_or_default();
    let tool = ToolEntry {
        name: "p".into(),
        description: "D".into(),
        commands: Vec::new(),
        way: Way::Run(Run {
            program: Program::Inside(folder.join("tool")),
            args: vec!["x".into()],
            flags: None,
            env: BTreeMap::new(),
        }),
        timeout: Duration::from_secs(300),
    };
    let want = Manifest {
        name: "p".into(),
        folder,
        tools: vec![tool],
        server: None,
        hooks: Vec::new(),
        skills: Vec::new(),
        private: Vec::new(),
        schema: None,
        default_config: json!({}),
        warnings: Vec::new(),
    };
    assert_eq!(manifest, Ok(want));
}

#[test]
fn what_is_no_manifest_is_refused_without_a_hang() {
    assert_eq!(findings(""), ["plugin.json: EOF while parsing a value at line 1 column 0"]);
    assert_eq!(findings("[]"), ["the file: must be an object, is an array"]);
    let deep = findings(&"[".repeat(200_000));
    assert_eq!(deep, ["plugin.json: recursion limit exceeded at line 1 column 128"]);
    let large = findings(&" ".repeat(MAX_BYTES as usize + 1));
    assert_eq!(large, ["plugin.json is larger than 1048576 bytes"]);
    let scratch = Scratch::new();
    scratch.write("plugin.json/x", "");
    let folder = read(scratch.path()).err().unwrap_or_default().concat();
    assert!(folder.ends_with("plugin.json is not a file"), "{folder}");
}

#[test]
fn names_follow_the_rule() {
    for (name, sound) in [
        ("git", true),
        ("0", true),
        ("a-b_c", true),
        (&"a".repeat(40), true),
        ("", false),
        ("-a", false),
        ("_a", false),
        ("A", false),
        ("a.b", false),
        ("a/b", false),
        ("é", false),
        (&"a".repeat(41), false),
        ("a\n", false),
    ] {
        assert_eq!(is_name(name), sound, "{name:?}");
    }
    check(
        json!({"name": null}),
        &["name: is required", "tools[0].name: \"p\" must be `` or `.PART`"],
    );
}

#[test]
fn reserved_names_are_refused() {
    for name in ["read", "write", "patch", "exec", "tool-client", "sh"] {
        let tools = json!([{"name": name, "run": ["./tool"]}]);
        check(json!({"name": name, "tools": tools}), &[&format!("name: `{name}` is reserved")]);
    }
}

#[test]
fn a_tool_is_named_as_its_plugin_or_a_part_of_it() {
    check_tool(json!({"name": "p.part"}), &[]);
    for name in ["q", "p.", "p.A", "p.a.b", "pp", "p-a"] {
        check_tool(json!({"name": name}), &[&format!("name: {name:?} must be `p` or `p.PART`")]);
    }
    let twice = json!([{"name": "p", "run": ["./tool"]}, {"name": "p", "run": ["./tool"]}]);
    check(json!({"tools": twice}), &["tools[1].name: `p` is there twice"]);
    check(json!({"tools": []}), &["tools: must name at least one tool"]);
}

#[test]
fn a_program_stays_inside_the_folder() {
    check_tool(json!({"run": ["./tool"]}), &[]);
    check_tool(
        json!({"run": ["../outside"]}),
        &["run: `../outside` leads out of the plugin's folder"],
    );
    check_tool(json!({"run": ["./link"]}), &["run: `./link` leads out of the plugin's folder"]);
    check_tool(
        json!({"run": ["/bin/sh"]}),
        &["run: `/bin/sh` must be a path inside the plugin's folder, such as `./tool`"],
    );
    check_tool(
        json!({"run": ["./none"]}),
        &["run: `./none`: No such file or directory (os error 2)"],
    );
    check_tool(
        json!({"run": ["./plain"]}),
        &["run: `./plain` is not executable; `chmod +x` makes it so"],
    );
    check_tool(json!({"run": ["./"]}), &["run: `./` is not a file"]);
}

#[test]
fn run_is_an_argv() {
    check_tool(json!({"run": []}), &["run: must begin with a program"]);
    check_tool(json!({"run": [""]}), &["run: must begin with a program"]);
    check_tool(json!({"run": "./tool"}), &["run: must be an array of strings, is a string"]);
    check_tool(json!({"run": ["./tool", "\0"]}), &["run: an argument cannot hold a NUL byte"]);
    check_tool(json!({"run": null}), &["run: is required"]);
}

#[test]
fn a_name_from_the_path_needs_its_flags() {
    let needed = "is a name from PATH, so `flags` must list the arguments beginning with `-` that \
                  an agent may give ([]: none)";
    check_tool(json!({"run": ["git"]}), &[&format!("run: `git` {needed}")]);
    check_tool(
        json!({"run": ["tool"]}),
        &[&format!("run: `tool` {needed} (for the file in the plugin's folder write `./tool`)")],
    );
    check_tool(json!({"run": ["git"], "flags": ["-s", "--"]}), &[]);
    check_tool(
        json!({"run": ["git"], "flags": ["s", "--a=b"]}),
        &[
            "flags: \"s\" must begin with `-` and have no `=`",
            "flags: \"--a=b\" must begin with `-` and have no `=`",
        ],
    );
}

#[test]
fn time_limits_and_variables_have_their_bounds() {
    check_tool(json!({"timeoutSeconds": 1}), &[]);
    check_tool(json!({"timeoutSeconds": 0}), &["timeoutSeconds: must be from 1 to 86400"]);
    check_tool(
        json!({"timeoutSeconds": 0.5}),
        &["timeoutSeconds: must be a whole number, is a number"],
    );
    check_tool(
        json!({"env": {"A": "1", "BEIGE_X": "", "B=C": "", "D": "\0"}}),
        &[
            "env: \"B=C\" is not a name of a variable",
            "env.BEIGE_X: names that begin with BEIGE_ are beige's own",
            "env.D: a value cannot hold a NUL byte",
        ],
    );
}

#[test]
fn what_no_form_can_have_is_refused() {
    check(json!({"tools": null}), &["tools: is required, or `command`, or an index.ts"]);
    check(
        json!({"provides": {"tools": ["p"], "channel": true, "hooks": ["prePrompt"], "skills": []}}),
        &[
            "provides.channel: only a server can be a channel: it needs `command` or `entry`",
            "provides.hooks: only a server can be asked for hooks: it needs `command` or `entry`",
        ],
    );
    let odd = json!(["A", {"path": "x"}, {"name": "y", "path": "../y"}, {"name": "z", "path": "."},
        "ok", "ok", 7]);
    check(
        json!({"provides": {"tools": ["p"], "skills": odd}}),
        &[
            "provides.skills[0]: \"A\" is no name of a skill",
            "provides.skills[1].name: is required",
            "provides.skills[2]: its path leads out of the plugin's folder",
            "provides.skills[3]: its path leads out of the plugin's folder",
            "provides.skills[5]: `ok` is there twice",
            "provides.skills[6]: must be an object, is a number",
        ],
    );
    check(json!({"provides": {"tools": ["p"], "channel": false, "hooks": [], "skills": []}}), &[]);
}

/// What is wrong with a server's manifest.
#[track_caller]
fn check_server(changes: Value, want: &[&str]) {
    let mut manifest = changes;
    manifest["tools"] = Value::Null;
    check(manifest, want);
}

#[test]
fn a_server_names_its_program_and_promises_its_tools() {
    let text = r#"{"name": "p", "command": ["./tool", "--x"], "env": {"A": "b"},
        "timeoutSeconds": 5, "description": "D", "commands": ["p get"],
        "provides": {"tools": ["p.b", "p"]}}"#;
    let (scratch, manifest) = read_text(text);
    let program = scratch.path().join("p").canonicalize().unwrap_or_default().join("tool");
    let manifest = manifest.unwrap_or_else(|it| panic!("{it:?}"));
    let server = Server {
        argv: vec![program.into(), "--x".into()],
        entry: None,
        env: BTreeMap::from([("A".into(), "b".into())]),
    };
    assert_eq!(manifest.server, Some(server));
    let told = |it: &ToolEntry| (it.name.clone(), it.commands.len(), it.timeout.as_secs());
    let tools: Vec<_> = manifest.tools.iter().map(told).collect();
    assert_eq!(tools, [("p".into(), 1, 5), ("p.b".into(), 0, 5)]);
    assert!(manifest.tools.iter().all(|it| it.way == Way::Server));
}

#[test]
fn a_server_that_cannot_be_one_is_refused() {
    check_server(json!({"command": ["./tool"]}), &[]);
    check_server(json!({"command": ["python3", "-c", "pass"]}), &[]);
    check_server(json!({"command": []}), &["command: must begin with a program"]);
    check_server(
        json!({"command": ["../outside"]}),
        &["command: `../outside` leads out of the plugin's folder"],
    );
    check_server(
        json!({"command": ["./plain"]}),
        &["command: `./plain` is not executable; `chmod +x` makes it so"],
    );
    // What follows from that alone is not told.
    check_server(
        json!({"command": ["./plain"], "timeoutSeconds": 5, "env": {},
            "provides": {"tools": ["p", "p.a"], "channel": true, "hooks": ["prePrompt"]}}),
        &["command: `./plain` is not executable; `chmod +x` makes it so"],
    );
    check_server(
        json!({"command": ["./tool"], "provides": {"tools": ["q"]}}),
        &["provides.tools: \"q\" must be `p` or `p.PART`"],
    );
    check(
        json!({"command": ["./tool"]}),
        &["command: a plugin has either `command` or `tools` with `run`; the server of `command` \
         tells its tools itself, and `provides.tools` names them"],
    );
    check(json!({"env": {}}), &["env: belongs into an entry of `tools`"]);
}

/// The entry of a plugin with these files, or what is wrong with it.
#[track_caller]
fn check_entry(manifest: &str, files: &[&str], want: Result<&str, &str>) {
    let scratch = Scratch::new();
    scratch.write("p/plugin.json", manifest);
    scratch.write_program("p/tool", "#!/bin/sh\n");
    files.iter().for_each(|it| drop(scratch.write(it, "")));
    let folder = scratch.path().join("p").canonicalize().unwrap_or_default();
    let got = read(&folder).map(|it| it.server.and_then(|it| it.entry));
    let want = want.map(|it| Some(folder.join(it)).filter(|_| !it.is_empty()));
    assert_eq!(got, want.map_err(|it| vec![format!("plugin.json: {it}")]), "{manifest}");
}

#[test]
fn a_plugin_in_typescript_begins_with_its_entry_or_an_index() {
    let index = &["p/index.ts"][..];
    check_entry(r#"{"name": "p"}"#, index, Ok("index.ts"));
    check_entry(r#"{"name": "p", "entry": "a/b.ts", "env": {}}"#, &["p/a/b.ts"], Ok("a/b.ts"));
    check_entry(r#"{"name": "p", "provides": {"hooks": ["prePrompt"]}}"#, index, Ok("index.ts"));
    // A way to run that is named counts.
    check_entry(r#"{"name": "p", "command": ["./tool"]}"#, index, Ok(""));
    check_entry(r#"{"name": "p", "tools": [{"name": "p", "run": ["./tool"]}]}"#, index, Ok(""));
    let outside = Err("entry: `../q.ts` leads out of the plugin's folder");
    check_entry(r#"{"name": "p", "entry": "../q.ts"}"#, &["q.ts"], outside);
    let none = Err("entry: `index.ts`: No such file or directory (os error 2)");
    check_entry(r#"{"name": "p", "entry": "index.ts"}"#, &[], none);
    let hook = r#"{"name": "p", "entry": "index.ts", "provides": {"hooks": ["prePrompt"]}}"#;
    check_entry(hook, &[], none);
    let both = Err("entry: a plugin that has it has no `command`");
    check_entry(r#"{"name": "p", "command": ["./tool"], "entry": "index.ts"}"#, index, both);
}

#[test]
fn a_plugin_in_typescript_cannot_stay_below_node_modules() {
    let scratch = Scratch::new();
    scratch.write("node_modules/p/plugin.json", r#"{"name": "p"}"#);
    scratch.write("node_modules/p/index.ts", "");
    let wrong = read(&scratch.path().join("node_modules/p")).err().unwrap_or_default();
    assert!(wrong[0].contains("lies below a folder node_modules, where"), "{wrong:?}");
    assert!(wrong[0].contains("`beige plugins install /"), "{wrong:?}");
}

#[test]
fn provides_and_tools_must_agree() {
    check(
        json!({"provides": {"tools": ["p.a"]}}),
        &[
            "provides.tools: `p.a` is not among `tools`",
            "provides.tools: `p` of `tools` is missing",
        ],
    );
}

#[test]
fn a_tool_that_is_wrong_is_still_one_of_the_tools() {
    check(
        json!({"provides": {"tools": ["p"]}, "tools": [{"name": "p", "run": ["./plain"]}]}),
        &["tools[0].run: `./plain` is not executable; `chmod +x` makes it so"],
    );
}

#[test]
fn private_globs_name_files_of_the_plugin() {
    check(json!({"private": ["state/**", "*.secret", ".hidden"]}), &[]);
    check(
        json!({"private": ["../x", "!a", ""]}),
        &[
            "private: \"../x\" names no file of the plugin",
            "private: \"!a\" names no file of the plugin",
            "private: \"\" names no file of the plugin",
        ],
    );
}

#[test]
fn schema_and_defaults_are_checked() {
    check(json!({"configSchema": {"type": "map"}}), &["configSchema.type: `map` is not a type"]);
    check(json!({"defaultConfig": []}), &["defaultConfig: must be an object, is an array"]);
}

#[test]
fn hooks_of_a_server_are_known_by_their_names() {
    let hooks = |names: Value| json!({"command": ["./tool"], "provides": {"hooks": names}});
    check_server(hooks(json!(["prePrompt", "gatewayShutdown", "prePrompt"])), &[]);
    check_server(
        hooks(json!(["preToolExe"])),
        &[
            "provides.hooks: there is no hook \"preToolExe\"; did you mean `preToolExec`?; there are \
         prePrompt, postResponse, preToolExec, postToolExec, sessionCreated, sessionDisposed, \
         modelSwitched, gatewayStarted, gatewayShutdown",
        ],
    );
    check_server(
        hooks(json!("prePrompt")),
        &["provides.hooks: must be an array of strings, is a string"],
    );
}

#[test]
fn a_folder_can_name_a_builtin_plugin_and_say_what_is_its_own() {
    let text = r#"{"name": "p", "builtin": "spawn", "description": "D", "private": ["x"]}"#;
    let (_scratch, manifest) = read_text(text);
    let manifest = manifest.unwrap_or_else(|it| panic!("{it:?}"));
    let argv = ["/proc/self/exe", "plugin-run", "spawn"].map(OsString::from);
    assert_eq!(manifest.server.map(|it| it.argv), Some(argv.into()));
    let told = |it: &ToolEntry| (it.name.clone(), it.description.clone(), it.commands.len());
    assert_eq!(manifest.tools.iter().map(told).collect::<Vec<_>>(), [("p".into(), "D".into(), 3)]);
    let known = builtins::names().collect::<Vec<_>>().join(", ");
    let want = "builtin: there is no built-in plugin `spwan`; did you mean `spawn`?; there are";
    check_server(json!({"builtin": "spwan"}), &[&format!("{want} {known}")]);
    check(
        json!({"builtin": "spawn"}),
        &["builtin: a plugin of beige's own has neither `command`, `entry` nor `tools`"],
    );
}
