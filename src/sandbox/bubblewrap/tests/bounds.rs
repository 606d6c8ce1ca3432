//! The bounds that a sandbox keeps, and that the end of one ends all in it.

use std::io::{Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// Starts it and reads its first line, which says that it stands.
fn start(sandbox: &Bubblewrap) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = sandbox.command(Role::Run);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, from)
}

#[test]
fn killing_what_was_started_ends_all_of_it() {
    let scratch = Scratch::new();
    let script = "trap '' TERM; (setsid sleep 1000 &); echo ready; sleep 1000";
    let Some(sandbox) = sandbox(&scratch, script) else { return };
    let (mut child, from) = start(&sandbox);
    child.kill().unwrap();
    child.wait().unwrap();
    // The pipe ends when the last process that holds it is gone.
    let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
    let events = PollFlags::HUP;
    assert_eq!(poll(&mut [PollFd::new(from.get_ref(), events)], Some(&limit)), Ok(1));
}

/// Lets a script go on once it is under its limits; answers what it printed.
fn run_admitted(sandbox: &Bubblewrap) -> String {
    let (mut child, mut from) = start(sandbox);
    sandbox.admit(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut rest = String::new();
    from.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    rest
}

#[test]
fn a_fork_bomb_stops_at_the_limit() {
    let scratch = Scratch::new();
    let script = "echo ready; read go
        i=0; while [ $i -lt 100 ]; do (sleep 1000 &) 2>/dev/null || break; i=$((i+1)); done
        [ $i -lt 60 ] && echo stopped";
    let Some(sandbox) = sandbox_with(&scratch, script, |spec, _| spec.pids = 30) else { return };
    if sandbox.inner_limits().processes.is_some() {
        // No cgroup here: tool-client sets this limit.
        return;
    }
    assert_eq!(run_admitted(&sandbox), "stopped\n");
    sandbox.remove().unwrap();
}

#[test]
fn too_much_memory_is_not_had_and_is_told() {
    let scratch = Scratch::new();
    let script = "echo ready; read go; head -c 300m /dev/zero | tail | wc -c";
    let adjust = |spec: &mut Spec, _: &mut HostLayout| spec.memory_bytes = 100 << 20;
    let Some(sandbox) = sandbox_with(&scratch, script, adjust) else { return };
    if sandbox.inner_limits().data_bytes.is_some() {
        return;
    }
    assert_eq!(run_admitted(&sandbox), "0\n");
    assert_eq!(sandbox.fate().as_deref(), Some("out of memory: its limit is 104857600 bytes"));
    sandbox.remove().unwrap();
}

#[test]
fn stopping_it_ends_what_a_crash_left_in_its_cgroup() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, "echo ready; exec sleep 1000") else { return };
    if sandbox.inner_limits().processes.is_some() {
        return;
    }
    let (mut child, _from) = start(&sandbox);
    sandbox.admit(child.id()).unwrap();
    sandbox.stop().unwrap();
    assert!(!child.wait().unwrap().success());
    sandbox.remove().unwrap();
}
