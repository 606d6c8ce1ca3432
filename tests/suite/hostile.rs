//! What stands where a file of the state folder should be, before a start and
//! under a running gateway: links, FIFOs, folders, sockets, rubbish. Nothing
//! hangs, nothing is written elsewhere, and each refusal names the file.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::{Finished, World, is_alive, signal, some_world, wait_until};

/// Files that the gateway, a one-shot or a turn opens, below the home.
const FILES: [&str; 9] = [
    "gateway.pid",
    "api-token",
    "logs/audit.jsonl",
    "logs/audit.lock",
    "logs/audit.head",
    "logs/gateway.log",
    "sessions/session-map.json",
    "sessions/session-map.lock",
    "data/sandboxes/a.lock",
];

/// What may be planted.
#[derive(Clone, Copy, Debug)]
enum Planted {
    Link,
    Loop,
    Fifo,
    Folder,
    Socket,
    Rubbish,
    Empty,
}

impl Planted {
    const ALL: [Self; 7] = [
        Self::Link,
        Self::Loop,
        Self::Fifo,
        Self::Folder,
        Self::Socket,
        Self::Rubbish,
        Self::Empty,
    ];

    fn plant(self, at: &Path, foreign: &Path) {
        match fs::symlink_metadata(at) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(at).expect("removed"),
            Ok(_) => fs::remove_file(at).expect("removed"),
            Err(_) => {}
        }
        match self {
            Self::Link => symlink(foreign, at).expect("a link"),
            Self::Loop => symlink(at, at).expect("a link"),
            Self::Fifo => {
                let made = Command::new("mkfifo").arg(at).status().expect("mkfifo runs");
                assert!(made.success());
            }
            Self::Folder => fs::create_dir(at).expect("a folder"),
            Self::Socket => drop(UnixListener::bind(at).expect("a socket")),
            Self::Rubbish => fs::write(at, [0xff, 0, b'\n', b'{'].repeat(50_000)).expect("written"),
            Self::Empty => fs::write(at, "").expect("written"),
        }
    }
}

/// A world whose home has every file there is, with no gateway.
fn lived_in() -> (World, PathBuf) {
    let world = some_world();
    world.start_gateway();
    world.run(["prompt", "a", "hi"]).expect(0);
    world.exec(&["true"]).expect(0);
    world.run(["gateway", "stop"]).expect(0);
    let foreign = world.root.join("foreign");
    fs::write(&foreign, "a file of the host\n").expect("written");
    (world, foreign)
}

/// It worked, or it said why in a line or two that name a file of the home.
#[track_caller]
fn sound(world: &World, done: &Finished, what: &str) {
    let home = world.home();
    let told = done.stderr.contains(&*home.to_string_lossy());
    assert!(done.code == 0 || (told && done.code < 126), "{what}: {} {}", done.code, done.stderr);
    assert!(!done.stderr.contains("panicked"), "{what}: {}", done.stderr);
}

#[test]
fn no_file_of_the_home_leads_elsewhere_or_makes_anybody_wait() {
    let (world, foreign) = lived_in();
    let backup = world.root.join("backup");
    let copied = |from: &Path, to: &Path| {
        let done = Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs");
        assert!(done.success());
    };
    copied(&world.home(), &backup);
    for file in FILES {
        for planted in [Planted::Link, Planted::Fifo, Planted::Folder, Planted::Rubbish] {
            let what = format!("{planted:?} as {file}");
            planted.plant(&world.home().join(file), &foreign);
            sound(&world, &world.exec(&["true"]), &format!("exec, {what}"));
            planted.plant(&world.home().join(file), &foreign);
            sound(&world, &world.run(["gateway", "start"]), &format!("start, {what}"));
            world.run(["gateway", "stop"]);
            assert_eq!(fs::read(&foreign).expect("there"), b"a file of the host\n", "{what}");
            fs::remove_dir_all(world.home()).expect("removed");
            copied(&backup, &world.home());
        }
    }
    for file in ["sessions/session-map.json", "logs/audit.jsonl", "logs/audit.head"] {
        for planted in Planted::ALL {
            let what = format!("{planted:?} as {file}");
            planted.plant(&world.home().join(file), &foreign);
            let prompt = world.run(["prompt", "a", "--session", "s", "hi"]);
            sound(&world, &prompt, &format!("prompt, {what}"));
            for reading in [&["audit"][..], &["audit", "--verify"]] {
                let code = world.run(reading).code;
                assert!(code < 2, "{reading:?}, {what}: {code}");
            }
            assert_eq!(fs::read(&foreign).expect("there"), b"a file of the host\n", "{what}");
            fs::remove_dir_all(world.home()).expect("removed");
            copied(&backup, &world.home());
        }
    }
}

#[test]
fn what_is_planted_under_a_gateway_stops_no_stop() {
    let world = some_world();
    let foreign = world.root.join("foreign");
    fs::write(&foreign, "theirs").expect("written");
    for planted in [Planted::Link, Planted::Fifo, Planted::Folder, Planted::Socket] {
        let mut gateway = world.gateway_child();
        for file in FILES.into_iter().chain(["sockets/a/gateway.sock", "door/http.sock"]) {
            planted.plant(&world.home().join(file), &foreign);
        }
        let body = json!({"tool": "exec", "params": {"command": "true"}});
        let reply = world.post("/api/agents/a/exec", &body);
        assert!([200, 500, 503].contains(&reply.status), "{planted:?}: {}", reply.text());
        signal(gateway.id(), "TERM");
        wait_until("the gateway has ended", || !is_alive(gateway.id()));
        gateway.wait().expect("it ended");
        assert_eq!(fs::read(&foreign).expect("there"), b"theirs", "{planted:?}");
        fs::remove_dir_all(world.home()).expect("removed");
    }
}

#[test]
fn a_gateway_whose_home_is_gone_still_ends() {
    let world = some_world();
    let mut gateway = world.gateway_child();
    fs::remove_dir_all(world.home()).expect("removed");
    signal(gateway.id(), "TERM");
    wait_until("the gateway has ended", || !is_alive(gateway.id()));
    gateway.wait().expect("it ended");
}

/// `beige` behind a line of `sh`, which gets it as `"$@"`.
#[track_caller]
fn behind(world: &World, line: &str, arguments: &[&str]) -> Finished {
    let beige = world.beige(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", line, "sh"]).arg(beige.get_program()).args(beige.get_args());
    shell.env("BEIGE_HOME", world.home()).env_remove("BEIGE_CONFIG");
    shell.output().expect("sh runs").into()
}

#[test]
fn output_that_is_lost_is_said_to_be() {
    let (world, _) = lived_in();
    let done = behind(&world, "\"$@\" > /dev/full", &["exec", "a", "--", "echo", "hi"]).expect(125);
    assert!(done.stderr.contains("write to standard output"), "{}", done.stderr);
    behind(&world, "\"$@\" > /dev/full", &["audit"]).expect(1);
}

#[test]
fn a_stream_that_does_not_block_is_neither_gone_nor_full() {
    let (world, _) = lived_in();
    // One process makes the pipe non-blocking for all that share it, and reads
    // late, so that it is full meanwhile.
    let line = "\"$@\" | python3 -c \"import os,select,sys\nos.set_blocking(0, False)\n\
                print('ready', file=sys.stderr)\ntotal = 0\nwhile True:\n select.select([0],[],[])\n \
                piece = os.read(0, 100)\n total += len(piece)\n if not piece: break\nprint(total)\"";
    let ours = line
        .replace("\"$@\" |", "{ python3 -c 'import os; os.set_blocking(1, False)'; \"$@\"; } |");
    let exec = ["exec", "a", "--", "head", "-c", "1000000", "/dev/zero"];
    let done = behind(&world, &ours, &exec).expect(0);
    assert_eq!(done.text().trim(), "1000000", "{}", done.stderr);
}

#[test]
fn a_limit_of_file_sizes_is_a_full_disk_and_not_the_end() {
    let (world, _) = lived_in();
    let done = behind(&world, "ulimit -f 0; \"$@\"", &["exec", "a", "--", "true"]).expect(125);
    assert!(done.stderr.contains("File too large"), "{}", done.stderr);
    behind(&world, "ulimit -f 0; \"$@\"", &["gateway", "start"]).expect(1);
    world.exec(&["true"]).expect(0);
    world.verify_audit();
}

#[test]
fn few_descriptors_are_an_error_that_comes_at_once() {
    let (world, _) = lived_in();
    for descriptors in [8, 12, 16, 20, 24] {
        let line = format!("ulimit -n {descriptors}; \"$@\"");
        for arguments in
            [&["exec", "a", "--", "true"][..], &["prompt", "a", "hi"], &["gateway", "start"]]
        {
            let done = behind(&world, &line, arguments);
            assert!(done.code < 126, "{descriptors} {arguments:?}: {} {}", done.code, done.stderr);
            assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
        }
    }
    let few = behind(&world, "ulimit -n 63; \"$@\"", &["gateway", "start"]);
    assert!(few.stderr.contains("only 63 open files"), "{}", few.stderr);
    behind(&world, "ulimit -n 64; \"$@\"", &["gateway", "start"]).expect(0);
    world.run(["gateway", "stop"]).expect(0);
    world.exec(&["true"]).expect(0);
    world.verify_audit();
}
