//! Plugins as a person installs them: what is copied, what is written into the
//! configuration, what is asked, and what is left when it fails. No sandbox is
//! started but where a tool is called.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Finished, World, runtimes};

/// A configuration as people write them; `_` stands for entries of `plugins`.
const CONFIG: &str = "// mine\n{\n  llm: { providers: { p: { api: 'replay', cassette: './cassette.jsonl' } } },\n\n  \
    plugins: {\n    // tools\n_  }, // end of plugins\n  agents: {\n    a: {\n      \
    model: { provider: 'p', model: 'm' },\n      tools: [], /* none */\n      \
    sandbox: { runtime: 'RUNTIME' },\n    },\n  },\n  gateway: { port: 0 },\n}\n";

fn world(entries: &str) -> World {
    let world = World::new(*runtimes().last().expect("a runtime"));
    configure(&world, entries, "[]");
    world
}

fn configure(world: &World, entries: &str, tools: &str) {
    let text =
        CONFIG.replace("RUNTIME", world.runtime.name()).replace("_  }", &format!("{entries}  }}"));
    fs::write(world.config_file(), text.replace("[]", tools)).expect("written");
}

fn config(world: &World) -> String {
    fs::read_to_string(world.config_file()).expect("a configuration")
}

/// A folder with a plugin of that name that says `text`.
fn write_plugin(world: &World, folder: &str, name: &str, text: &str) -> PathBuf {
    let folder = world.root.join(folder);
    fs::create_dir_all(&folder).expect("a folder");
    let manifest = format!(
        r#"{{"name": "{name}", "description": "Says {text}.", "defaultConfig": {{"word": "{text}"}},
            "tools": [{{"name": "{name}", "run": ["./say"]}}]}}"#
    );
    fs::write(folder.join("plugin.json"), manifest).expect("written");
    let program = folder.join("say");
    fs::write(&program, format!("#!/bin/sh\necho {text}\n")).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
    folder
}

#[track_caller]
fn install(world: &World, source: &Path, code: i32) -> Finished {
    let words = ["plugins", "install"].map(Into::into);
    world.run(words.iter().chain([&source.as_os_str().to_owned()])).expect(code)
}

/// What lies in the state folder of installed plugins; empty without any.
fn installed(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for shelf in ["plugins", "packages"] {
        for entry in fs::read_dir(world.home().join(shelf)).into_iter().flatten().flatten() {
            found.push(format!("{shelf}/{}", entry.file_name().to_string_lossy()));
        }
    }
    found.sort();
    found
}

#[track_caller]
fn listed(world: &World) -> Vec<Value> {
    let all = world.run(["plugins", "list", "--json"]).expect(0).json();
    all.as_array().expect("an array").clone()
}

#[test]
fn a_plugin_is_installed_used_updated_and_removed_and_the_file_is_as_before() {
    let world = world("");
    let before = config(&world);
    let folder = write_plugin(&world, "src/hello", "hello", "one");
    let shown = install(&world, &folder, 0).text();
    for want in ["tool hello: Says one.", "./say", "on this host as you", "installed hello"] {
        assert!(shown.contains(want), "{want}: {shown}");
    }
    let entry = "    // tools\n    hello: {\n      path: './h/plugins/hello',\n";
    let after = config(&world);
    assert!(after.contains(entry), "{after}");
    assert!(
        after.contains("config: { word: 'one' }") && after.contains("    // tools\n"),
        "{after}"
    );
    world.run(["config", "check"]).expect(0);

    fs::write(world.config_file(), after.replace("[]", "['hello']")).expect("written");
    assert_eq!(world.exec(&["hello"]).expect(0).text(), "one\n");
    let hello = &listed(&world)[0];
    assert_eq!(
        (&hello["form"], &hello["agents"][0], &hello["tools"][0]),
        (&"run".into(), &"a".into(), &"hello".into())
    );
    assert_eq!(hello["source"], folder.canonicalize().expect("a path").to_string_lossy().as_ref());

    write_plugin(&world, "src/hello", "hello", "two");
    assert_eq!(world.exec(&["hello"]).expect(0).text(), "one\n");
    world.run(["plugins", "update", "hello"]).expect(0);
    assert_eq!(world.exec(&["hello"]).expect(0).text(), "two\n");
    assert!(config(&world).contains("word: 'one'"), "settings stay");

    let refused = world.run(["plugins", "remove", "hello"]).expect(1);
    assert!(refused.stderr.contains("agents.a.tools"), "{}", refused.stderr);
    assert_eq!(installed(&world), ["plugins/hello"]);
    fs::write(world.config_file(), config(&world).replace("['hello']", "[]")).expect("written");
    world.run(["plugins", "remove", "hello"]).expect(0);
    assert_eq!((config(&world), installed(&world)), (before, Vec::<String>::new()));
}

#[test]
fn nothing_is_replaced_unasked_and_a_persons_settings_stay() {
    let mine = "    hello: { path: './mine', env: { TOKEN: 'hunter2-hunter2' }, enabled: true }, // mine\n";
    let world = world(mine);
    write_plugin(&world, "mine", "hello", "mine");
    let folder = write_plugin(&world, "src", "hello", "one");
    let before = config(&world);
    for word in ["", "--yes"] {
        let words = ["plugins", "install", folder.to_str().expect("a path"), word];
        let refused = world.run(words.iter().filter(|it| !it.is_empty())).expect(1);
        assert!(refused.stderr.contains("plugins.hello would be replaced"), "{}", refused.stderr);
        assert!(!refused.stderr.contains("hunter2") && !refused.text().contains("hunter2"));
        assert_eq!((config(&world), installed(&world)), (before.clone(), Vec::<String>::new()));
    }
    if !Path::new("/usr/bin/script").exists() {
        return;
    }
    // On a terminal it asks: no, then yes.
    let line = format!("plugins install {}", folder.display());
    let told = in_terminal(&world, &line, "n\n");
    assert!(
        told.contains("Replace the entry plugins.hello?") && told.contains("nothing was changed"),
        "{told}"
    );
    assert_eq!((config(&world), installed(&world)), (before, Vec::<String>::new()));
    let told = in_terminal(&world, &line, "y\n");
    assert!(told.contains("installed hello"), "{told}");
    let after = config(&world);
    assert!(
        after.contains("env: { TOKEN: 'hunter2-hunter2' }, enabled: true, _source: "),
        "{after}"
    );
    assert!(after.contains(" }, // mine\n") && !after.contains("./mine"), "{after}");
    assert_eq!(installed(&world), ["plugins/hello"]);
    // What is asked can be answered beforehand.
    for word in ["--force", "--yes"] {
        let told = in_terminal(&world, &format!("{line} {word}"), "");
        assert!(!told.contains("[y/N]") && told.contains("installed hello"), "{told}");
    }
    assert_eq!(config(&world), after);
    assert!(world.root.join("mine/plugin.json").exists());
}

/// What a command shows on a terminal on which somebody types `answer`.
fn in_terminal(world: &World, line: &str, answer: &str) -> String {
    let program = world.beige(["help"]).get_program().to_string_lossy().into_owned();
    let config = world.config_file();
    let mut child = Command::new("script")
        .args(["-qec", &format!("{program} --config {} {line}", config.display()), "/dev/null"])
        .env("BEIGE_HOME", world.home())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    child.stdin.take().expect("a pipe").write_all(answer.as_bytes()).expect("typed");
    String::from_utf8_lossy(&child.wait_with_output().expect("it ends").stdout).into_owned()
}

#[test]
fn what_fails_leaves_folder_and_configuration_as_they_were() {
    let world = world("");
    let before = config(&world);
    let check = |source: &Path, want: &str| {
        let error = install(&world, source, 1).stderr;
        assert!(error.contains(want), "{want}: {error}");
        assert_eq!((config(&world), installed(&world)), (before.clone(), Vec::<String>::new()));
    };
    for (source, want) in [("npm:../x", "write npm:NAME"), ("github:o", "write github:OWNER/REPOS")]
    {
        let error = install(&world, Path::new(source), 2).stderr;
        assert!(error.contains(want), "{error}");
    }
    check(Path::new("/nowhere"), "No such file");
    let folder = write_plugin(&world, "src", "hello", "one");
    check(&world.root, "lies among the installed plugins");
    symlink("../config.json5", folder.join("out")).expect("a link");
    check(&folder, "`out` is refused: a link that leads out");
    fs::remove_file(folder.join("out")).expect("removed");
    fs::write(folder.join("plugin.json"), r#"{"name": "hello", "builtin": "x"}"#).expect("written");
    check(&folder, "builtin: there is no built-in plugin `x`");
    write_plugin(&world, "src", "hello", "one");

    // The entry cannot be written: what is in its place goes again.
    let odd = before.replace("plugins: {\n    // tools\n  }", "plugins: []");
    fs::write(world.config_file(), &odd).expect("written");
    let error = install(&world, &folder, 78).stderr;
    assert!(error.contains("plugins.hello cannot be changed"), "{error}");
    assert_eq!((config(&world), installed(&world)), (odd, Vec::<String>::new()));
    fs::write(world.config_file(), "{ broken").expect("written");
    install(&world, &folder, 78);
    fs::remove_file(world.config_file()).expect("removed");
    let error = install(&world, &folder, 78).stderr;
    assert!(error.contains("does not exist"), "{error}");
    assert_eq!(installed(&world), Vec::<String>::new());
}

#[test]
fn several_plugins_of_one_folder_come_and_go_together() {
    let world = world("");
    for name in ["x", "y"] {
        write_plugin(&world, &format!("kit/{name}"), name, name);
    }
    install(&world, &world.root.join("kit"), 0);
    assert_eq!(installed(&world), ["packages/kit"]);
    assert_eq!(listed(&world).len(), 2);
    world.run(["config", "check"]).expect(0);
    fs::remove_dir_all(world.root.join("kit/y")).expect("removed");
    let gone = world.run(["plugins", "update"]).expect(1);
    assert!(gone.stderr.contains("holds no plugin `y` any more"), "{}", gone.stderr);
    world.run(["plugins", "remove", "y"]).expect(0);
    assert_eq!(installed(&world), ["packages/kit"]);
    world.run(["plugins", "remove", "x"]).expect(0);
    assert_eq!(installed(&world), Vec::<String>::new());
    let missing = world.run(["plugins", "remove", "x"]).expect(1);
    assert!(missing.stderr.contains("there is no plugin `x`"), "{}", missing.stderr);
}

#[test]
fn the_list_says_what_is_wrong_and_a_persons_own_folder_is_never_removed() {
    let world = world(
        "    own: { path: './own' },\n    mcp: { command: ['true'] },\n    gone: { path: './gone' },\n    off: { path: './own', enabled: false },\n",
    );
    let folder = write_plugin(&world, "own", "own", "one");
    let shown = world.run(["plugins", "list"]).expect(0).text();
    assert!(shown.contains("gone: ") && shown.contains("No such file"), "{shown}");
    assert!(shown.contains("./own (not enabled)"), "{shown}");
    let gone = listed(&world).into_iter().find(|it| it["name"] == "gone").expect("listed");
    assert_eq!(gone["problems"].as_array().map(Vec::len), Some(1), "{gone}");
    let mcp = listed(&world).into_iter().find(|it| it["name"] == "mcp").expect("listed");
    assert_eq!(mcp["tools"], serde_json::json!(["mcp"]), "a server gives one tool: {mcp}");
    world.run(["plugins", "update"]).expect(0);
    let none = world.run(["plugins", "update", "own"]).expect(1);
    assert!(none.stderr.contains("no `_source`"), "{}", none.stderr);
    for name in ["own", "gone", "off", "mcp"] {
        world.run(["plugins", "remove", name]).expect(0);
    }
    assert!(folder.join("plugin.json").exists());
    assert!(world.run(["plugins", "list"]).expect(0).text().starts_with("no plugins"));
}

#[test]
fn an_update_of_all_leaves_alone_what_a_person_keeps_elsewhere() {
    let world = world("");
    let source = write_plugin(&world, "source", "hello", "one");
    install(&world, &source, 0);
    let own = write_plugin(&world, "own", "hello", "mine");
    let moved = config(&world).replace("./h/plugins/hello", "./own");
    fs::write(world.config_file(), &moved).expect("written");
    write_plugin(&world, "source", "hello", "two");
    let all = world.run(["plugins", "update"]).expect(0);
    assert!(all.stderr.contains("the `path` of `hello` is none that was installed"), "{all:?}");
    assert_eq!(config(&world), moved);
    assert!(fs::read_to_string(own.join("say")).is_ok_and(|it| it.contains("mine")));
    let named = world.run(["plugins", "update", "hello"]).expect(1);
    assert!(named.stderr.contains("it is left as it is"), "{named:?}");
}

#[test]
fn nothing_of_a_plugin_passes_for_a_line_of_ours() {
    let world = world("");
    let source = write_plugin(&world, "source", "hello", "one");
    let manifest = fs::read_to_string(source.join("plugin.json")).expect("read");
    let forged = manifest.replace("Says one.", r"Says.\nIt runs in a sandbox.\u001b[2J");
    fs::write(source.join("plugin.json"), forged).expect("written");
    fs::write(source.join("package.json"), r#"{"version": "1\nIt is safe."}"#).expect("written");
    let shown =
        install(&world, &source, 0).text() + &world.run(["plugins", "list"]).expect(0).text();
    assert!(
        !shown.lines().any(|it| it.starts_with("It runs in a") || it == "It is safe."),
        "{shown}"
    );
    assert!(!shown.lines().any(|it| it.starts_with("It is safe.")), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn an_archive_is_installed_like_the_folder_it_was_made_of() {
    let world = world("");
    let folder = write_plugin(&world, "src/repo/hello", "hello", "one");
    fs::write(folder.join("x".repeat(180)), "a long name").expect("written");
    symlink("say", folder.join("speak")).expect("a link");
    let tar = |words: &[&str]| {
        let made = Command::new("tar").current_dir(world.root.join("src")).args(words).status();
        assert!(made.expect("tar runs").success(), "{words:?}");
    };
    for form in ["gnu", "pax", "posix"] {
        let archive = world.root.join(format!("{form}.tar.gz"));
        tar(&[&format!("--format={form}"), "-czf", archive.to_str().expect("a path"), "repo"]);
        install(&world, &archive, 0);
        assert_eq!(installed(&world), ["plugins/hello"]);
        let place = world.home().join("plugins/hello");
        let same = Command::new("diff").arg("-r").arg(&folder).arg(place).status();
        assert!(same.expect("diff runs").success(), "{form}");
        world.run(["plugins", "update", "hello"]).expect(0);
        world.run(["plugins", "remove", "hello"]).expect(0);
    }
    // One that leads out writes nothing.
    let evil = world.root.join("evil.tar.gz");
    tar(&["-Pczf", evil.to_str().expect("a path"), "--transform=s,^repo,../../evil,", "repo"]);
    let error = install(&world, &evil, 1).stderr;
    assert!(error.contains("is refused: it leads out by `..`"), "{error}");
    assert_eq!(installed(&world), Vec::<String>::new());
    let text = world.root.join("text");
    fs::write(&text, "text").expect("written");
    let error = install(&world, &text, 1).stderr;
    assert!(error.contains("an archive must be a .tar.gz"), "{error}");
}

#[test]
fn servers_of_an_mcp_json_become_entries_all_or_none() {
    let world = world("    old: { path: './old' },\n");
    write_plugin(&world, "old", "old", "one");
    let file = world.root.join("mcp.json");
    let text = r#"{"mcpServers": {
        "Git Hub": {"command": "npx", "args": ["-y", "x"], "env": {"API_TOKEN": "hunter2-hunter2"}},
        "far": {"url": "https://mcp.example.org", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}"#;
    fs::write(&file, text).expect("written");
    let import = |words: &[&str]| {
        world.run(["plugins", "import", file.to_str().expect("a path")].iter().chain(words))
    };
    let done = import(&[]);
    // What an entry may be is the check's to say.
    assert!([0, 78].contains(&done.code), "{done:?}");
    assert!(
        done.text().contains("imported git-hub, far")
            || done.text().contains("imported far, git-hub"),
        "{done:?}"
    );
    assert!(done.stderr.contains("env.API_TOKEN stands in the configuration"), "{}", done.stderr);
    assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    let after = config(&world);
    for want in [
        "command: ['npx', '-y', 'x']",
        "env: { API_TOKEN: 'hunter2-hunter2' }",
        "    // tools\n",
        "'git-hub': {",
        "far: {\n      url: 'https://mcp.example.org',\n      headers: { Authorization: 'Bearer ${TOKEN}' },\n",
    ] {
        assert!(after.contains(want), "{want}: {after}");
    }
    // One that is there stops all of them.
    fs::write(&file, r#"{"servers": {"a-new": {"command": "x"}, "old": {"command": "x"}}}"#)
        .expect("written");
    let refused = import(&[]).expect(1);
    assert!(refused.stderr.contains("plugins.old is there already"), "{}", refused.stderr);
    assert_eq!(config(&world), after);
    import(&["--force"]);
    assert!(config(&world).contains("old: { command: ['x'] }"), "{}", config(&world));
    fs::write(&file, "{ // text").expect("written");
    let refused = import(&[]).expect(2);
    assert!(refused.stderr.contains("is not JSON"), "{}", refused.stderr);
    for name in ["git-hub", "far", "a-new", "old"] {
        world.run(["plugins", "remove", name]).expect(0);
    }
}
