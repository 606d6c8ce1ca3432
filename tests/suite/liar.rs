//! The gateway against a sandbox whose first process is the agent's own work
//! and breaks the protocol of the link in every way. That needs bubblewrap, by
//! a program before it which puts another first process into the sandbox of
//! the agent `a`; all else is as built. Each call ends, no other agent's call
//! is touched, and the gateway holds nothing of it afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use serde_json::json;

use crate::support::{Runtime, World, processes_with, runtimes, signal, wait_until};

/// Names of what liar.py does.
const WAYS: [&str; 20] = [
    "honest",
    "closes",
    "reports first",
    "greets with descriptors",
    "greets twice",
    "greets with more",
    "huge",
    "of no kind",
    "half",
    "replays",
    "floods output",
    "floods windows",
    "floods empty frames",
    "deep",
    "deep in",
    "odd code",
    "long words",
    "descriptors",
    "odd place",
    "speaks on the link",
];

/// What the gateway may have more after all of it, in kB: less than a tenth of
/// what was sent at it, and more than its threads and buffers take.
const MOST_MORE: u64 = 24 * 1024;

/// Stands before bwrap: the resident of `a` is another program.
const BEFORE: &str = r#"#!/bin/sh
case "$*" in
*"/sockets/a "*"/beige/tool-client --init "*)
    keep=$(($# - 4))
    for it; do
        shift
        [ $keep -gt 0 ] && set -- "$@" "$it"
        keep=$((keep - 1))
    done
    set -- "$@" python3 /liar/liar.py
esac
exec BWRAP "$@"
"#;

#[test]
fn a_first_process_that_lies_harms_nobody_but_its_own_agent() {
    if !runtimes().contains(&Runtime::Bubblewrap) {
        return;
    }
    let world = World::new(Runtime::Bubblewrap);
    let folder = world.root.join("liar");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("liar.py"), include_str!("liar.py")).expect("written");
    fs::write(folder.join("way"), "honest").expect("written");
    world.configure(&["a", "b"], &format!("extraMounts: {{ '{}': '/liar:ro' }}", folder.display()));
    let mut gateway = lied_to(&world);
    answers(&world);
    let call = |way: &str| {
        fs::write(folder.join("way"), way).expect("written");
        for (tool, params) in [
            ("exec", json!({"command": "true", "timeout": 20})),
            ("read", json!({"path": "/liar/way"})),
        ] {
            let body = json!({"tool": tool, "params": params});
            let reply = world.post("/api/agents/a/exec", &body);
            let said = reply.text();
            assert!([200, 500].contains(&reply.status) && said.len() < 200_000, "{way}: {said}");
            assert!(!said.contains('\u{1b}') && !said.is_empty(), "{way}: {said}");
        }
    };
    WAYS[..3].iter().for_each(|it| call(it));
    assert_ne!(processes_with("/liar/liar.py"), [0; 0], "the liar has not begun");
    let before = (memory(&gateway), descriptors(&gateway));
    thread::scope(|scope| {
        let calls = scope.spawn(|| WAYS.iter().for_each(|it| call(it)));
        while !calls.is_finished() {
            answers(&world);
        }
    });
    answers(&world);
    wait_until("its descriptors are back", || descriptors(&gateway) <= before.1 + 2);
    let after = memory(&gateway);
    assert!(after <= before.0 + MOST_MORE, "{} kB, then {after} kB", before.0);
    assert!(!world.gateway_log().contains("panicked"), "{}", world.gateway_log());
    signal(gateway.id(), "TERM");
    assert_eq!(gateway.wait().expect("it ends").code(), Some(0));
    world.verify_audit();
}

/// A gateway that finds that program when it looks for bwrap.
#[track_caller]
fn lied_to(world: &World) -> Child {
    let folder = world.root.join("bin");
    fs::create_dir(&folder).expect("a folder");
    let path = std::env::var("PATH").expect("PATH");
    let real = path.split(':').map(|it| Path::new(it).join("bwrap")).find(|it| it.is_file());
    let before = BEFORE.replace("BWRAP", &real.expect("bwrap").to_string_lossy());
    fs::write(folder.join("bwrap"), before).expect("written");
    fs::set_permissions(folder.join("bwrap"), fs::Permissions::from_mode(0o755)).expect("set");
    let child = world
        .beige(["gateway", "start", "--foreground"])
        .env("PATH", format!("{}:{path}", folder.display()))
        .stdout(Stdio::null())
        .stderr(fs::File::create(world.root.join("gateway.err")).expect("a file"))
        .spawn()
        .expect("a gateway starts");
    world.wait_until_it_answers();
    child
}

/// What it has in memory, in kB.
fn memory(gateway: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).expect("it runs");
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn descriptors(gateway: &Child) -> usize {
    fs::read_dir(format!("/proc/{}/fd", gateway.id())).expect("it runs").count()
}

/// The other agent's calls are answered, each rightly.
#[track_caller]
fn answers(world: &World) {
    let body = json!({"tool": "exec", "params": {"command": "echo $((6*7))"}});
    let reply = world.post("/api/agents/b/exec", &body).json();
    assert_eq!(reply["content"][0]["text"], "Exit code: 0\n42\n", "{reply}");
}
