//! Stored sessions: the routes and `beige sessions` that list, show, resume,
//! name and remove them, and what a crash, a full disk, a damaged or a huge
//! file must not do to them.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::support::{
    Finished, Reply, World, peak_memory, request, signal, some_world, wait_until,
};

/// A line that answers.
const DONE: &str = r#"{"events":[{"text":"All done."}]}"#;

/// A line that calls `exec` with a command that waits until it may go on.
const WAIT: &str = r#"{"events":[{"toolCall":{"name":"exec","arguments":{"command":"echo x >started; while [ ! -e go ]; do sleep 0.02; done"}}}]}"#;

/// So much more memory than a prompt in a new session may one in a session of
/// any length, or a command that shows it, take, in kB: what the program itself
/// has hangs on how it is built.
const MOST_GROWTH: u64 = 8_000;

fn has_started(world: &World) -> bool {
    world.workspace("a").join("started").exists()
}

fn let_go(world: &World) {
    fs::write(world.workspace("a").join("go"), "").unwrap();
}

fn folder(world: &World) -> PathBuf {
    world.home().join("sessions/a")
}

fn map_file(world: &World) -> PathBuf {
    world.home().join("sessions/session-map.json")
}

fn map(world: &World) -> Value {
    serde_json::from_slice(&fs::read(map_file(world)).unwrap()).unwrap()
}

/// The file that a key means.
#[track_caller]
fn file_of(world: &World, key: &str) -> PathBuf {
    let map = map(world);
    map[key]["sessionFile"].as_str().unwrap_or_else(|| panic!("no {key} in {map}")).into()
}

#[track_caller]
fn say(world: &World, key: &str, text: &str) -> Finished {
    world.run(["prompt", "a", "--session", key, text])
}

/// What `show --json` tells: role and text of each message.
#[track_caller]
fn told(world: &World, session: &str) -> Vec<String> {
    let document = world.run(["sessions", "show", session, "--json"]).expect(0).json();
    let messages = document["messages"].as_array().unwrap().iter().map(|it| {
        let message = &it["message"];
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            blocks => blocks[0]["text"].as_str().unwrap_or("?").to_owned(),
        };
        let error = if message["isError"] == true { " error" } else { "" };
        format!("{}{error}: {text}", message["role"].as_str().unwrap())
    });
    messages.collect()
}

/// The sessions that `list --json` tells.
#[track_caller]
fn listed(world: &World, further: &[&str]) -> Vec<Value> {
    let arguments = ["sessions", "list", "--json"].iter().chain(further);
    let document = world.run(arguments).expect(0).json();
    document["sessions"].as_array().unwrap().clone()
}

fn call(world: &World, method: &str, path: &str, body: Value) -> Reply {
    let path = format!("/api/agents/a/sessions{path}");
    request(&world.api_socket(), method, &path, &[], body.to_string().as_bytes())
}

/// The answer to a call that succeeds.
#[track_caller]
fn done(world: &World, method: &str, path: &str, body: Value) -> Value {
    let reply = call(world, method, path, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// Status and error of one that does not.
#[track_caller]
fn refused(world: &World, method: &str, path: &str, body: Value, status: u16, want: &str) {
    let reply = call(world, method, path, body);
    assert_eq!(reply.status, status, "{method} {path}: {}", reply.text());
    let error = reply.json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains(want), "{method} {path}: {error}");
}

#[test]
fn sessions_are_listed_shown_begun_anew_resumed_named_and_removed_over_http() {
    let world = some_world();
    world.start_gateway();
    world.write_cassette(&[r#"{"events":[{"text":"hello"}]}"#; 2]);
    assert_eq!(done(&world, "GET", "", Value::Null), json!({"sessions": []}));
    say(&world, "tui:a/b é", "  first\nwords ").expect(0);
    say(&world, "cli:a:other", "x").expect(0);
    let list = done(&world, "GET", "", Value::Null);
    let list = list["sessions"].as_array().unwrap();
    assert_eq!([&list[0]["key"], &list[1]["key"]], ["cli:a:other", "tui:a/b é"]);
    let old = list[1]["sessionId"].as_str().unwrap();
    let fields = json!([
        list[1]["agentName"],
        list[1]["firstMessage"],
        list[1]["messages"],
        list[1]["sessionFile"]
    ]);
    let file = folder(&world).join(format!("{old}.jsonl"));
    assert_eq!(fields, json!(["a", "first words", 2, file]));
    for time in ["createdAt", "updatedAt"] {
        assert!(list[1][time].as_str().is_some_and(|it| it.ends_with('Z')), "{}", list[1]);
    }
    let key = "/tui%3Aa%2Fb%20%C3%A9";
    let shown = done(&world, "GET", &format!("{key}?limit=1"), Value::Null);
    assert_eq!(shown["session"]["sessionId"], old);
    let texts = json!([shown["messages"][0]["message"]["content"][0]["text"], shown["more"]]);
    assert_eq!(texts, json!(["hello", true]));
    let before = shown["messages"][0]["id"].as_str().unwrap();
    let shown = done(&world, "GET", &format!("{key}?before={before}"), Value::Null);
    assert_eq!(
        (shown["messages"].as_array().map(Vec::len), &shown["more"]),
        (Some(1), &json!(false))
    );
    // Anew, named, back to the old one.
    let new = done(&world, "POST", "/new", json!({"sessionKey": "tui:a/b é"}));
    assert!(new["createdAt"].as_str() <= new["updatedAt"].as_str(), "{new}");
    assert_ne!(new["sessionId"], old);
    assert_eq!(new["messages"], 0);
    assert_eq!(
        fs::metadata(new["sessionFile"].as_str().unwrap()).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let named = done(&world, "PATCH", &format!("/{old}/name"), json!({"name": " My talk "}));
    assert_eq!((&named["name"], named.get("key")), (&json!("My talk"), None));
    let resumed =
        done(&world, "POST", "/resume", json!({"sessionKey": "tui:a/b é", "sessionId": old}));
    assert_eq!(json!([resumed["key"], resumed["name"]]), json!(["tui:a/b é", "My talk"]));
    say(&world, "tui:a/b é", "again").expect(0);
    assert_eq!(told(&world, old)[2], "user: again");
    // Gone, and gone again.
    assert_eq!(done(&world, "DELETE", key, Value::Null)["sessionId"], old);
    assert!(!file.exists() && map(&world).get("tui:a/b é").is_none());
    refused(&world, "DELETE", key, Value::Null, 404, "there is no session");
    refused(&world, "GET", "/cli:a:othr", Value::Null, 404, "did you mean `cli:a:other`?");
}

#[test]
fn a_prompt_goes_on_in_the_session_whose_id_it_names() {
    let world = some_world();
    world.write_cassette(&[DONE; 3]);
    say(&world, "cli:a:work", "one").expect(0);
    let id = listed(&world, &[])[0]["sessionId"].as_str().unwrap().to_owned();
    let answer = world.run(["prompt", "a", "--session", &id, "--json", "two"]).expect(0).json();
    assert_eq!(answer["session"], "cli:a:work");
    world.start_gateway();
    let answer = world.run(["prompt", "a", "--session", &id, "--json", "three"]).expect(0).json();
    assert_eq!(answer["session"], "cli:a:work");
    let script = "echo $BEIGE_SESSION_KEY $BEIGE_CHANNEL";
    let shown = world.run(["exec", "a", "--session", &id, "--", "sh", "-c", script]).expect(0);
    assert_eq!(shown.text(), "cli:a:work cli\n");
    assert_eq!((listed(&world, &[]).len(), told(&world, &id).len()), (1, 6));
    // What is like an id and none, and what has no key.
    let told_of = |session: &str| say(&world, session, "x").expect(1).stderr;
    let meant = format!("did you mean `{id}`?");
    assert!(told_of(&id[1..]).contains(&meant), "{}", told_of(&id[1..]));
    refused(&world, "POST", "/new", json!({"sessionKey": id}), 400, "ID");
    done(&world, "POST", "/new", json!({"sessionKey": "cli:a:work"}));
    assert!(told_of(&id).contains("has no key"), "{}", told_of(&id));
    world.run(["sessions", "rm", &id]).expect(0);
    let left = listed(&world, &[]);
    assert_eq!((left.len(), &left[0]["key"]), (1, &json!("cli:a:work")));
    let missed = world.run(["sessions", "show", "work"]).expect(1).stderr;
    for part in ["no session `work`; did you mean `cli:a:work`?", "`beige sessions list`"] {
        assert!(missed.contains(part), "{missed}");
    }
}

#[test]
fn a_key_without_a_colon_names_no_channel() {
    let world = some_world();
    let script = "echo \"$BEIGE_SESSION_KEY <${BEIGE_CHANNEL-none}>\"";
    let shown = world.run(["exec", "a", "--session", "work", "--", "sh", "-c", script]).expect(0);
    assert_eq!(shown.text(), "work <none>\n");
    let lines = world.run(["audit", "--json"]).expect(0);
    let lines = lines.text();
    assert!(lines.contains(r#""session":"work""#), "{lines}");
    assert!(!lines.contains(r#""channel""#), "{lines}");
}

#[test]
fn what_cannot_be_done_to_a_session_is_refused_with_the_reason() {
    let world = some_world();
    world.write_config(&(world.agent("a", "", "") + &world.agent("b", "", "")), "");
    world.start_gateway();
    let body = json!({"message": "hi", "sessionKey": "b:1"});
    assert_eq!(world.post("/api/agents/b/prompt", &body).status, 200);
    say(&world, "a:1", "hi").expect(0);
    let id = listed(&world, &["a"])[0]["sessionId"].clone();
    let theirs = listed(&world, &["b"])[0]["sessionId"].clone();
    let none = Value::Null;
    for (method, path, body, status, want) in [
        ("GET", "/b:1", none.clone(), 409, "`b`"),
        ("DELETE", "/b:1", none.clone(), 409, "`b`"),
        ("PATCH", "/b:1/name", json!({"name": "x"}), 409, "`b`"),
        ("POST", "/new", json!({"sessionKey": "b:1"}), 409, "`b`"),
        ("POST", "/resume", json!({"sessionKey": "b:1", "sessionId": id}), 409, "`b`"),
        ("POST", "/resume", json!({"sessionKey": "a:2", "sessionId": id}), 409, "`a:1`"),
        ("POST", "/resume", json!({"sessionKey": "a:2", "sessionId": theirs}), 404, "no session"),
        ("POST", "/resume", json!({"sessionKey": "a:2", "sessionId": "../b/x"}), 404, "no session"),
        ("POST", "/resume", json!({"sessionKey": "a:2"}), 400, "`sessionId`"),
        ("POST", "/new", json!({}), 400, "`sessionKey`"),
        ("POST", "/new", json!({"sessionKey": "a\nb"}), 400, "`sessionKey`"),
        ("PATCH", "/a:1/name", json!({"name": ""}), 400, "`name`"),
        ("PATCH", "/a:1/name", json!({"name": "a\u{1b}b"}), 400, "`name`"),
        ("PATCH", "/a:1/name", json!({}), 400, "`name`"),
        ("PATCH", "/a:9/name", json!({"name": "x"}), 404, "no session"),
        ("GET", "/a:1?limit=0", none.clone(), 400, "`limit`"),
        ("GET", "?al=1", none, 400, "`al`"),
    ] {
        refused(&world, method, path, body, status, want);
    }
    assert_eq!(world.get("/api/agents/nobody/sessions").status, 404);
    assert_eq!(listed(&world, &[]).len(), 2, "nothing was made");
}

#[test]
fn while_a_turn_runs_its_session_can_be_left_and_named_but_not_taken_away() {
    let world = some_world();
    world.start_gateway();
    world.write_cassette(&[DONE]);
    say(&world, "k", "older").expect(0);
    let older = done(&world, "GET", "", Value::Null)["sessions"][0]["sessionId"].clone();
    done(&world, "POST", "/new", json!({"sessionKey": "k"}));
    let running = file_of(&world, "k");
    let ask = |message: &str| {
        world.post("/api/agents/a/prompt", &json!({"message": message, "sessionKey": "k"}))
    };
    thread::scope(|scope| {
        world.write_cassette(&[WAIT, DONE]);
        let asked = scope.spawn(|| ask("long"));
        wait_until("the tool runs", || has_started(&world));
        let advice = "a turn is running in the session `k`; abort it or wait";
        refused(&world, "DELETE", "/k", Value::Null, 409, advice);
        let body = json!({"sessionKey": "k", "sessionId": older});
        refused(&world, "POST", "/resume", body, 409, advice);
        let rm = world.run(["sessions", "rm", "k"]).expect(1);
        assert!(rm.stderr.contains("a turn is running"), "{}", rm.stderr);
        let naming = scope.spawn(|| call(&world, "PATCH", "/k/name", json!({"name": "Long"})));
        assert_eq!(told(&world, "k"), ["user: long", "assistant: ?"]);
        let_go(&world);
        assert_eq!(naming.join().unwrap().status, 200);
        assert_eq!(asked.join().unwrap().json()["response"], "All done.");
    });
    assert_eq!(listed(&world, &[])[0]["name"], "Long");
    // And a fresh session at once, beside a turn that goes on in its own file.
    for name in ["started", "go"] {
        fs::remove_file(world.workspace("a").join(name)).unwrap();
    }
    done(&world, "POST", "/new", json!({"sessionKey": "k"}));
    let second = file_of(&world, "k");
    thread::scope(|scope| {
        let asked = scope.spawn(|| ask("old talk"));
        wait_until("the tool runs", || has_started(&world));
        done(&world, "POST", "/new", json!({"sessionKey": "k"}));
        let_go(&world);
        assert_eq!(asked.join().unwrap().json()["response"], "All done.");
    });
    world.write_cassette(&[DONE]);
    say(&world, "k", "new talk").expect(0);
    let users = |path: &Path| fs::read_to_string(path).unwrap().matches(r#""role":"user""#).count();
    assert_eq!([users(&running), users(&second), users(&file_of(&world, "k"))], [1, 1, 1]);
    assert_eq!(told(&world, "k"), ["user: new talk", "assistant: All done."]);
}

#[test]
fn the_command_line_works_with_and_without_a_gateway() {
    let world = some_world();
    assert_eq!(world.run(["sessions", "list"]).expect(0).text(), "");
    assert_eq!(listed(&world, &[]), Vec::<Value>::new());
    assert!(!world.home().join("sessions").exists(), "looking makes nothing");
    for (key, text) in [("cli:a:one", "hi \u{1b}[2J there"), ("cli:a:two", "x")] {
        say(&world, key, text).expect(0);
    }
    let check = || {
        let list = world.run(["sessions", "list"]).expect(0).text();
        let lines: Vec<&str> = list.lines().collect();
        assert!(lines[0].contains("cli:a:two") && lines[1].contains("cli:a:one"), "{list}");
        assert!(lines[1].ends_with("hi \\u{1b}[2J there"), "{list}");
        let id = listed(&world, &["a"])[1]["sessionId"].as_str().unwrap().to_owned();
        let shown = world.run(["sessions", "show", &id]).expect(0).text();
        assert!(shown.contains("--- assistant p/m  20") && shown.contains("\nhello\n"), "{shown}");
        let typo = world.run(["sessions", "show", "cli:a:ono"]).expect(1);
        assert!(typo.stderr.contains("did you mean `cli:a:one`?"), "{}", typo.stderr);
        let nobody = world.run(["sessions", "list", "b"]).expect(0);
        assert!(nobody.stderr.contains("did you mean `a`?"), "{}", nobody.stderr);
        let file = fs::read(folder(&world).join(format!("{id}.jsonl"))).unwrap();
        assert_eq!(world.run(["sessions", "export", "cli:a:one"]).expect(0).stdout, file);
        let path = world.root.join("export.jsonl");
        let export = ["sessions", "export", &id, path.to_str().unwrap()];
        world.run(export).expect(0);
        assert_eq!(fs::read(&path).unwrap(), file);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "mine").unwrap();
        world.run(export).expect(1);
        assert_eq!(fs::read(&path).unwrap(), b"mine", "nothing is written over");
        fs::remove_file(path).unwrap();
    };
    check();
    world.start_gateway();
    check();
    let gone = world.run(["sessions", "rm", "cli:a:one", "nothing", "cli:a:two"]).expect(1);
    assert_eq!(gone.text().lines().count(), 2, "{}", gone.text());
    assert!(gone.stderr.contains("`nothing`"), "{}", gone.stderr);
    assert_eq!(listed(&world, &[]), Vec::<Value>::new());
    for arguments in [&["sessions"][..], &["sessions", "lst"], &["sessions", "rm"]] {
        world.run(arguments).expect(2);
    }
    // The key is free for anybody.
    world.write_cassette(&[DONE]);
    assert_eq!(say(&world, "cli:a:one", "anew").expect(0).text(), "All done.\n");
}

#[test]
fn sessions_that_an_agent_started_and_files_without_a_key_have_their_place_in_the_list() {
    let world = some_world();
    for key in ["one", "two"] {
        say(&world, key, key).expect(0);
    }
    let mut text = map(&world);
    text["one"]["metadata"] = json!({"depth": 1, "parent": "two"});
    text.as_object_mut().unwrap().remove("two");
    text["gone"] = json!({"agentName": "a", "sessionFile": "/nowhere/x.jsonl"});
    fs::write(map_file(&world), text.to_string()).unwrap();
    // Nothing that is no file of ours is opened, and what does not read is
    // listed with what is known of it.
    symlink("/dev/null", folder(&world).join("20260101-000000-linked.jsonl")).unwrap();
    let fifo = folder(&world).join("20260101-000000-a-fifo.jsonl");
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    fs::create_dir(folder(&world).join("20260101-000000-folder.jsonl")).unwrap();
    fs::write(folder(&world).join("20260101-000000-broken.jsonl"), b"\xff\0{{\nx").unwrap();
    let words = |further: &[&str]| {
        let mut words: Vec<String> = listed(&world, further)
            .iter()
            .map(|it| {
                let id = it["sessionId"].as_str().unwrap();
                let first = it["firstMessage"].as_str().unwrap();
                format!("{} {first} {}", &id[id.len() - 6..] == "broken", it["key"])
            })
            .collect();
        words.sort();
        words
    };
    assert_eq!(words(&[]), ["false two null", "true  null"]);
    assert_eq!(words(&["--all"]), ["false one \"one\"", "false two null", "true  null"]);
    world.start_gateway();
    let all = done(&world, "GET", "?all=true", Value::Null);
    assert_eq!(all["sessions"].as_array().map(Vec::len), Some(3));
    world.run(["sessions", "rm", "gone"]).expect(0);
    assert!(map(&world).get("gone").is_none());
}

#[test]
fn a_torn_line_loses_nothing_that_was_said_before_or_is_said_after() {
    let world = some_world();
    world.write_cassette(&[DONE; 3]);
    say(&world, "k", "one").expect(0);
    let path = file_of(&world, "k");
    let tear = |text: &str| {
        OpenOptions::new().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
    };
    tear(r#"{"type":"message","id":"0badc0de","parentId":null,"message":{"role":"assis"#);
    // Also while it is torn, what is sound is shown.
    assert_eq!(told(&world, "k"), ["user: one", "assistant: All done."]);
    say(&world, "k", "two").expect(0);
    // A half record that was ended, and its whole duplicate.
    let text = fs::read_to_string(&path).unwrap();
    let last = text.lines().last().unwrap();
    let (half, _) = last.split_at(last.len() / 2);
    let rest = text.strip_suffix(&format!("{last}\n")).unwrap();
    fs::write(&path, format!("{rest}{half}\n{last}\n")).unwrap();
    say(&world, "k", "three").expect(0);
    let want = ["one", "two", "three"]
        .iter()
        .flat_map(|it| [format!("user: {it}"), "assistant: All done.".to_owned()]);
    assert_eq!(told(&world, "k"), want.collect::<Vec<_>>());
    let aside = fs::read_dir(folder(&world)).unwrap().flatten();
    let aside = aside.filter(|it| it.file_name().to_string_lossy().contains(".jsonl.torn-"));
    let aside: Vec<PathBuf> = aside.map(|it| it.path()).collect();
    assert!(fs::read_to_string(&aside[0]).unwrap().ends_with(r#"{"role":"assis"#));
    // What was set aside of it goes with it.
    world.run(["sessions", "rm", "k"]).expect(0);
    assert!(!aside[0].exists() && !path.exists());
}

#[test]
fn a_gateway_that_is_killed_in_a_turn_has_kept_all_that_was_said_and_done() {
    let world = some_world();
    world.write_cassette(&[WAIT, DONE, DONE]);
    let mut gateway = world.gateway_child();
    let mut prompt = world.spawn(["prompt", "a", "--session", "k", "remember me"]);
    wait_until("the tool runs", || has_started(&world));
    // The message and the call are in the file before anything else happens.
    assert_eq!(told(&world, "k"), ["user: remember me", "assistant: ?"]);
    signal(gateway.id(), "KILL");
    gateway.wait().unwrap();
    prompt.wait().unwrap();
    let_go(&world);
    assert_eq!(say(&world, "k", "go on").expect(0).text(), "All done.\n");
    let all = told(&world, "k");
    assert!(all[2].starts_with("toolResult error: ") && all[2].contains("interrupted"), "{all:?}");
    assert_eq!(all[3..], ["user: go on", "assistant: All done."]);
    assert_eq!(all.len(), 5);
}

#[test]
fn a_map_that_finds_no_room_stays_as_it_was() {
    let world = some_world();
    fs::create_dir_all(world.home().join("sessions")).unwrap();
    let mount = Mounted::at(world.home().join("sessions"));
    let Some(mount) = mount else { return };
    say(&world, "old", "hi").expect(0);
    // A map that fills more than what is left.
    let mut text = map(&world);
    text["padding"] =
        json!({"agentName": "a", "sessionFile": "p.jsonl", "note": "x".repeat(600_000)});
    fs::write(map_file(&world), text.to_string()).unwrap();
    mount.fill();
    let before = fs::read(map_file(&world)).unwrap();
    for _ in 0..3 {
        let done = say(&world, "new", "hi").expect(1);
        assert!(done.stderr.contains("No space left"), "{}", done.stderr);
        assert_eq!(fs::read(map_file(&world)).unwrap(), before);
        assert_eq!(fs::read_dir(folder(&world)).unwrap().count(), 1, "half a session was left");
        assert!(!map_file(&world).with_extension("json.new").exists());
    }
    fs::remove_file(mount.0.join("filler")).unwrap();
    say(&world, "new", "hi").expect(0);
    let map = map(&world);
    assert!(["old", "new", "padding"].iter().all(|it| map.get(it).is_some()), "{map}");
    assert_eq!(told(&world, "old").len(), 2);
}

/// A small file system, unmounted with the value.
struct Mounted(PathBuf);

impl Mounted {
    /// None where nothing can be mounted: this needs root.
    fn at(path: PathBuf) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m,mode=700", "none"]).arg(&path);
        let mounted = mount.output().unwrap();
        let may = mounted.status.success() || std::env::var_os("CI").is_none();
        assert!(may, "{}", String::from_utf8_lossy(&mounted.stderr));
        mounted.status.success().then_some(Self(path))
    }

    fn fill(&self) {
        let mut fill = Command::new("sh");
        fill.args(["-c", "cat /dev/zero > \"$0\""]).arg(self.0.join("filler"));
        assert!(!fill.output().unwrap().status.success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Writes a session of about so many bytes under the key `big`, in lines of
/// about so many.
fn write_big(world: &World, bytes: usize, line: usize) -> PathBuf {
    fs::create_dir_all(folder(world)).unwrap();
    let path = folder(world).join("20261130-030453-g1bp5k.jsonl");
    let mut file = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    let header = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-30T03:04:53.373Z","cwd":"/workspace"}"#;
    writeln!(file, "{header}").unwrap();
    let padding = "x".repeat(line.saturating_sub(150));
    let mut parent = "null".to_owned();
    for number in 0..bytes / line {
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        writeln!(
            file,
            r#"{{"type":"message","id":"{number:08x}","parentId":{parent},"timestamp":"2026-11-30T03:04:53.373Z","message":{{"role":"{role}","content":"{number} {padding}"}}}}"#
        )
        .unwrap();
        parent = format!("\"{number:08x}\"");
    }
    file.flush().unwrap();
    let entry = json!({"big": {"agentName": "a", "sessionFile": path, "createdAt": "2026-11-30T03:04:53.373Z"}});
    fs::write(map_file(world), entry.to_string()).unwrap();
    path
}

/// The most memory of a command while its output is read, in kB.
#[track_caller]
fn memory_of(world: &World, arguments: &[&str]) -> u64 {
    let mut child = world.beige(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (mut peak, mut piece) = (0, vec![0; 16 * 1024]);
    loop {
        peak = peak.max(peak_memory(child.id()));
        if stdout.read(&mut piece).unwrap() == 0 {
            break;
        }
    }
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    peak
}

/// The most memory of a prompt once it has been through its context.
fn memory_of_prompt(world: &World, key: &str) -> u64 {
    for name in ["started", "go"] {
        fs::remove_file(world.workspace("a").join(name)).ok();
    }
    world.write_cassette(&[WAIT, DONE]);
    let mut child: Child = world.spawn(["prompt", "a", "--session", key, "go on"]);
    wait_until("the tool runs", || has_started(world));
    let peak = peak_memory(child.id());
    let_go(world);
    assert!(child.wait().unwrap().success());
    peak
}

#[test]
fn a_session_of_200_mb_is_opened_listed_and_shown_in_little_memory() {
    let world = some_world();
    let small = memory_of_prompt(&world, "small");
    for line in [400, 4_000, 1_000_000] {
        let path = write_big(&world, 200_000_000, line);
        let length = fs::metadata(&path).unwrap().len();
        let all = listed(&world, &[]);
        assert_eq!(all[0]["messages"], json!(200_000_000 / line));
        assert!(all[0]["firstMessage"].as_str().unwrap().starts_with("0 xxx"));
        let prompt = memory_of_prompt(&world, "big");
        assert!(prompt < small + MOST_GROWTH, "{line}: {small} grew to {prompt} kB");
        let peak = memory_of(&world, &["sessions", "list"]);
        assert!((1..small + MOST_GROWTH).contains(&peak), "{line}: {peak} kB");
        assert!(fs::metadata(&path).unwrap().len() > length, "the turn is in the same file");
    }
    for command in ["show", "export"] {
        let peak = memory_of(&world, &["sessions", command, "big"]);
        assert!((1..small + MOST_GROWTH).contains(&peak), "{command}: {small} grew to {peak} kB");
    }
}

#[test]
fn ten_thousand_keys_are_no_burden() {
    let world = some_world();
    fs::create_dir_all(folder(&world)).unwrap();
    let entry = |number: usize| {
        let file = folder(&world).join(format!("20261130-030453-{number:06}.jsonl"));
        let entry =
            json!({"agentName": "a", "sessionFile": file, "createdAt": "2026-11-30T03:04:53.373Z"});
        (format!("cli:a:20261130-030453-{number}"), entry)
    };
    let small = memory_of_prompt(&world, "small");
    let all: serde_json::Map<String, Value> = (0..10_000).map(entry).collect();
    fs::write(map_file(&world), Value::Object(all).to_string()).unwrap();
    let peak = memory_of_prompt(&world, "new");
    assert!(peak < small + MOST_GROWTH, "{small} grew to {peak} kB");
    assert_eq!(map(&world).as_object().map(serde_json::Map::len), Some(10_001));
    assert_eq!(told(&world, "new").len(), 4);
}
