//! Plugins from an npm registry and from GitHub, and what a gateway does that
//! misses one. Both are servers of the test; nothing leaves this machine.

mod registry;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Finished, World, is_alive, signal, some_world, wait_until};
use registry::{Registry, Said, integrity, packed, whole};

/// A folder with a plugin of that name that says `text`, as npm packs it.
fn write_plugin(world: &World, folder: &str, name: &str, text: &str) -> PathBuf {
    let folder = world.root.join(folder);
    fs::create_dir_all(&folder).expect("a folder");
    let manifest = json!({"name": name, "description": format!("Says {text}."),
        "tools": [{"name": name, "run": ["./say"]}]});
    fs::write(folder.join("plugin.json"), manifest.to_string()).expect("written");
    let package = format!(r#"{{"name": "{name}", "version": "{text}"}}"#);
    fs::write(folder.join("package.json"), package).expect("written");
    let program = folder.join("say");
    fs::write(&program, format!("#!/bin/sh\necho {text}\n")).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
    folder
}

fn archive(world: &World, name: &str, text: &str) -> Vec<u8> {
    let folder = write_plugin(world, &format!("src-{text}/{name}"), name, text);
    packed(world, &folder, "package")
}

/// What lies in the state folder of plugins, unfinished work among it.
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

fn config(world: &World) -> String {
    fs::read_to_string(world.config_file()).expect("a configuration")
}

fn entry(registry: &Registry, world: &World, name: &str) -> Value {
    let all = registry.run(world, &["plugins", "list", "--json"]).expect(0).json();
    let all = all.as_array().expect("an array").clone();
    all.into_iter().find(|it| it["name"] == name).unwrap_or_default()
}

/// An agent that has these tools, and these plugins.
fn configure(world: &World, plugins: &str, tools: &str) {
    let agent = world.agent("a", "", "").replace("'notes'", tools);
    world.write_config(&agent, "");
    let text = config(world).replace("plugins: {", &format!("plugins: {{ {plugins}"));
    fs::write(world.config_file(), text).expect("written");
}

#[test]
fn a_package_of_npm_is_installed_and_updated_within_its_range() {
    let (world, registry) = (some_world(), Registry::start());
    let (one, two) = (archive(&world, "hello", "1.0.0"), archive(&world, "hello", "1.2.0"));
    registry.publish("@scope/hello", &[("1.0.0", &one)]);
    let done = registry.run(&world, &["plugins", "install", "npm:@scope/hello@^1.0"]).expect(0);
    let text = done.text();
    for want in ["hello 1.0.0 (run)", "tool hello: Says 1.0.0.", "from npm:@scope/hello@^1.0 to"] {
        assert!(text.contains(want), "{want}: {text}");
    }
    assert_eq!(installed(&world), ["plugins/hello"]);
    assert!(config(&world).contains("_source: 'npm:@scope/hello@^1.0'"), "{}", config(&world));
    let listed = entry(&registry, &world, "hello");
    assert_eq!((&listed["version"], &listed["problems"]), (&json!("1.0.0"), &json!([])));

    let same = registry.run(&world, &["plugins", "update", "hello"]).expect(0).text();
    assert!(same.contains("hello 1.0.0: nothing new in npm:@scope/hello@^1.0"), "{same}");
    let three = archive(&world, "hello", "2.0.0");
    registry.publish("@scope/hello", &[("1.0.0", &one), ("1.2.0", &two), ("2.0.0", &three)]);
    let newer = registry.run(&world, &["plugins", "update"]).expect(0).text();
    assert!(newer.contains("updated hello from npm:@scope/hello@^1.0 1.2.0"), "{newer}");
    assert_eq!(entry(&registry, &world, "hello")["version"], "1.2.0");

    let none = registry.run(&world, &["plugins", "install", "npm:@scope/hello@4"]).expect(1);
    assert!(none.stderr.contains("no version `4`; there are 2.0.0, 1.2.0, 1.0.0, the tags latest"));
    // Another source with a plugin of that name replaces nothing unasked.
    registry.publish("hello", &[("1.0.0", &one)]);
    let refused = registry.run(&world, &["plugins", "install", "npm:hello"]).expect(1);
    assert!(refused.stderr.contains("would be replaced; --force does so"), "{}", refused.stderr);
    assert_eq!(entry(&registry, &world, "hello")["source"], "npm:@scope/hello@^1.0");
    // What sandboxes were shown goes too; what it has stored is a person's.
    fs::create_dir_all(world.home().join("data/packages/hello/x")).expect("a copy");
    fs::create_dir_all(world.home().join("data/plugins/hello")).expect("its own");
    let removed = registry.run(&world, &["plugins", "remove", "hello"]).expect(0).text();
    assert!(removed.contains("What it has stored stays, in "), "{removed}");
    assert!(!world.home().join("data/packages/hello").exists());
    assert_eq!(installed(&world), Vec::<String>::new());
}

#[test]
fn packages_that_a_plugin_needs_are_a_persons_to_install_and_stay_no_news() {
    let (world, registry) = (some_world(), Registry::start());
    let folder = write_plugin(&world, "src/hello", "hello", "1.0.0");
    let package = r#"{"version": "1.0.0", "dependencies": {"x": "1"}}"#;
    fs::write(folder.join("package.json"), package).expect("written");
    registry.publish("hello", &[("1.0.0", &packed(&world, &folder, "package"))]);
    let done = registry.run(&world, &["plugins", "install", "npm:hello"]).expect(0);
    assert!(done.text().contains("needs packages of npm"), "{}", done.text());
    assert!(done.stderr.contains("npm install --omit=dev"), "{}", done.stderr);
    let place = world.home().join("plugins/hello");
    fs::create_dir_all(place.join("node_modules/x")).expect("a folder");
    fs::write(place.join("package-lock.json"), "{}").expect("written");
    let same = registry.run(&world, &["plugins", "update"]).expect(0).text();
    assert!(same.contains("nothing new"), "{same}");
    fs::write(place.join("own"), "").expect("written");
    let mended = registry.run(&world, &["plugins", "update"]).expect(0).text();
    assert!(mended.contains("updated hello"), "{mended}");
    assert!(!place.join("own").exists());
}

#[test]
fn a_folder_of_a_repository_is_installed_and_no_token_goes_to_where_it_leads() {
    let (world, registry) = (some_world(), Registry::start());
    for name in ["x", "y"] {
        write_plugin(&world, &format!("repo/tools/{name}"), name, "1.0.0");
    }
    write_plugin(&world, "repo/other", "z", "1.0.0");
    let archive = packed(&world, &world.root.join("repo"), "owner-repo-abc123");
    registry.say_body("/codeload/whole", &archive);
    let elsewhere = format!("{}/codeload/whole", registry.other_url());
    registry.redirect("/repos/owner/repo/tarball/v1/beta", &elsewhere);
    let source = "github:owner/repo/tools#v1/beta";
    registry.run(&world, &["plugins", "install", source]).expect(0);
    assert_eq!(installed(&world), ["packages/owner-repo-tools"]);
    let written = config(&world);
    assert!(written.contains("'./h/packages/owner-repo-tools/x'"), "{written}");
    assert!(!written.contains("z: {"), "{written}");
    let asked = registry.asked();
    let has_token = |it: &String| it.to_lowercase().contains("authorization: bearer ghp-token");
    assert_eq!(asked.iter().map(has_token).collect::<Vec<_>>(), [true, false], "{asked:?}");
    let same = registry.run(&world, &["plugins", "update", "x"]).expect(0).text();
    assert!(same.contains(&format!("x, y: nothing new in {source}")), "{same}");

    registry.say_body("/repos/owner/repo/tarball", &archive);
    registry.run(&world, &["plugins", "install", "github:owner/repo/other"]).expect(0);
    assert_eq!(installed(&world), ["packages/owner-repo-tools", "plugins/z"]);
    let none = registry.run(&world, &["plugins", "install", "github:owner/repo/no"]).expect(1);
    assert!(none.stderr.contains("github:owner/repo/no holds no plugin.json"), "{}", none.stderr);
    let none = registry.run(&world, &["plugins", "install", "github:owner/none"]).expect(1);
    assert!(none.stderr.contains("answers 404") && none.stderr.contains("set GITHUB_TOKEN"));
    assert!(!none.stderr.contains("ghp-token"), "{}", none.stderr);
}

#[test]
fn what_is_wrong_with_a_download_is_said_and_leaves_nothing() {
    let (world, registry) = (some_world(), Registry::start());
    let before = config(&world);
    let check = |name: &str, want: &str| {
        let refused = registry.run(&world, &["plugins", "install", &format!("npm:{name}")]);
        assert_eq!(refused.code, 1, "{name}: {refused:?}");
        assert!(refused.stderr.contains(want), "{name}: {want}: {}", refused.stderr);
        assert_eq!((config(&world), installed(&world)), (before.clone(), Vec::<String>::new()));
    };
    let good = archive(&world, "hello", "1.0.0");
    let document = |tarball: &str, integrity: Value| {
        let dist = json!({"tarball": tarball, "integrity": integrity});
        json!({"dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"dist": dist}}})
    };
    let at = |path: &str| format!("{}{path}", registry.url());
    registry.say_body("/good.tgz", &good);

    check("none", "answers 404");
    registry.say_package("other", &document(&at("/good.tgz"), integrity(b"other").into()));
    check("other", "npm:other@1.0.0: the archive is not the one that the registry names");
    registry.say_package("unsigned", &document(&at("/good.tgz"), Value::Null));
    check("unsigned", "the registry names no SHA-512");
    registry.say_package("lost", &document(&at("/lost.tgz"), integrity(&good).into()));
    check("lost", "answers 404");
    registry.say_package("away", &document("http://example.org/x.tgz", integrity(&good).into()));
    check("away", "only https is spoken");
    registry.say_package("file", &document("file:///dev/zero", integrity(&good).into()));
    check("file", "it is no address that begins with https://");
    registry.redirect("/led", "http://example.org/led");
    check("led", "http://example.org/led is refused: only https is spoken");
    registry.redirect("/round", "/round");
    check("round", "leads from one address to the next without end");
    registry.say_body("/text", b"<html>");
    check("text", "is not what npm registries say");
    registry.say_package("empty", &json!({}));
    check("empty", "there is no version `latest`");
    registry.say("/huge", Said::Endless(b"HTTP/1.1 200 OK\r\n\r\n{".to_vec()));
    check("huge", "has more than 16 MiB");
    registry.say("/odd", Said::Whole(b"no HTTP at all\r\n\r\n".to_vec()));
    check("odd", "was not reached");

    let serve = |name: &str, archive: &[u8]| registry.publish(name, &[("1.0.0", archive)]);
    serve("junk", b"no archive");
    check("junk", "an archive must be a .tar.gz");
    let folder = write_plugin(&world, "bad/hello", "hello", "1.0.0");
    fs::File::create(folder.join("zeros")).and_then(|it| it.set_len(300 << 20)).expect("sparse");
    serve("bomb", &packed(&world, &folder, "package"));
    check("bomb", "too much for a plugin");
    fs::remove_file(folder.join("zeros")).expect("removed");
    serve("out", &packed(&world, &folder, "../evil"));
    check("out", "`../evil/` is refused: it leads out by `..`");
    symlink("/dev/null", folder.join("link")).expect("a link");
    serve("link", &packed(&world, &folder, "package"));
    check("link", "a link that leads out");
    fs::remove_file(folder.join("link")).expect("removed");
    fs::remove_file(folder.join("plugin.json")).expect("removed");
    serve("plain", &packed(&world, &folder, "package"));
    check("plain", "npm:plain holds no plugin.json, so it is no plugin");
    fs::write(folder.join("plugin.json"), r#"{"name": "../evil", "tools": []}"#).expect("written");
    serve("name", &packed(&world, &folder, "package"));
    check("name", "is not [a-z0-9]");
    let nowhere = world
        .beige(["plugins", "install", "npm:x"])
        .env("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1")
        .env_remove("npm_config_registry")
        .env_remove("ALL_PROXY")
        .output()
        .expect("beige runs");
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(said.contains("127.0.0.1:1 was not reached: "), "{said}");
    assert!(said.contains("a folder or .tar.gz of this host, which needs none"), "{said}");
}

#[test]
fn npm_itself_says_which_registry_is_meant() {
    let (world, registry) = (some_world(), Registry::start());
    registry.publish("hello", &[("1.0.0", &archive(&world, "hello", "1.0.0"))]);
    let install = |folder: &str| {
        let mut command = registry.command(&world, &["plugins", "install", "npm:hello"]);
        command.env_remove("NPM_CONFIG_REGISTRY").env("PATH", world.root.join(folder));
        Finished::from(command.output().expect("beige runs"))
    };
    let said = install("nowhere").expect(78).stderr;
    assert!(said.contains("there is no npm on PATH; set NPM_CONFIG_REGISTRY"), "{said}");
    let npm = world.root.join("bin/npm");
    fs::create_dir_all(world.root.join("bin")).expect("a folder");
    let script =
        format!("#!/bin/sh\n[ \"$*\" = 'config get registry' ] && echo {}/", registry.url());
    fs::write(&npm, script).expect("written");
    fs::set_permissions(&npm, fs::Permissions::from_mode(0o755)).expect("made a program");
    install("bin").expect(0);
    assert_eq!(installed(&world), ["plugins/hello"]);
}

#[test]
fn who_is_killed_in_the_middle_leaves_nothing_that_counts() {
    let (world, registry) = (some_world(), Registry::start());
    let before = config(&world);
    let archive = archive(&world, "hello", "1.0.0");
    registry.publish("hello", &[("1.0.0", &archive)]);
    let whole = whole(&archive);
    registry.say("/tarballs/hello-1.0.0.tgz", Said::Begun(whole[..whole.len() - 20].to_vec()));
    let mut child = registry
        .command(&world, &["plugins", "install", "npm:hello"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("beige runs");
    let half = |it: &Path| {
        let files = fs::read_dir(it).into_iter().flatten().flatten();
        files.into_iter().any(|it| it.path().join("archive.tar.gz").exists())
    };
    wait_until("the download has begun", || half(&world.home().join("plugins")));
    let busy = registry.run(&world, &["plugins", "remove", "notes", "--force"]);
    assert!(busy.stderr.contains("another `beige plugins` is at work"), "{busy:?}");
    signal(child.id(), "KILL");
    child.wait().expect("it ends");
    assert!(!is_alive(child.id()));
    assert_eq!(config(&world), before);
    registry.run(&world, &["config", "check"]).expect(0);
    registry.publish("hello", &[("1.0.0", &archive)]);
    registry.run(&world, &["plugins", "install", "npm:hello"]).expect(0);
    assert_eq!(installed(&world), ["plugins/hello"]);
}

#[test]
fn a_gateway_installs_what_it_misses_and_starts_without_what_it_cannot_get() {
    let (world, registry) = (some_world(), Registry::start());
    registry.publish("hello", &[("1.0.0", &archive(&world, "hello", "1.0.0"))]);
    let plugins = "hello: { path: './h/plugins/hello', _source: 'npm:hello' },
        gone: { path: './h/plugins/gone', _source: 'npm:gone' },
        renamed: { path: './h/plugins/renamed', _source: 'npm:hello' },
        moved: { path: './elsewhere', _source: 'npm:moved' },";
    registry.publish("moved", &[("1.0.0", &archive(&world, "moved", "1.0.0"))]);
    configure(&world, plugins, "'hello', 'gone', 'moved'");
    let before = config(&world);
    let check = registry.run(&world, &["config", "check"]).expect(0).text();
    assert!(check.contains("warning: plugins.hello.path: it is not installed: a gateway installs"));
    assert!(!check.contains("agents.a"), "{check}");
    assert_eq!(entry(&registry, &world, "gone")["form"], "absent");
    registry.run(&world, &["gateway", "start"]).expect(0);
    assert_eq!(installed(&world), ["plugins/hello"]);
    assert_eq!(config(&world), before);
    let log = world.gateway_log();
    for want in [
        "gone: left out, since it could not be installed: ",
        "answers 404",
        "renamed: left out, since it could not be installed: it holds no plugin `renamed`",
        "moved: left out, since it could not be installed: it belongs at ",
    ] {
        assert!(log.contains(want), "{want}: {log}");
    }
    assert_eq!(world.exec(&["hello"]).expect(0).text(), "1.0.0\n");
    let missing = world.exec(&["gone"]);
    assert!(missing.code != 0 && missing.stderr.contains("no plugin gives the tool `gone`"));
}
