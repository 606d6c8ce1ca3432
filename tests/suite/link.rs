//! The link from outside: calls enter a sandbox by its first process, with and
//! without a gateway, through kills and restarts; what resists a timeout is
//! gone when that is told; and nobody else in there gets a call.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::thread;

use serde_json::json;

use crate::support::{
    Finished, World, on_each_runtime, processes_with, signal, wait_until, with_and_without_gateway,
};

/// Prints the parent of the command's supervisor: 1, the resident, over the
/// link; 0, none that is seen in there, by a program of the runtime.
const ENTRANCE: &str = "cut -d' ' -f4 /proc/$PPID/stat";

/// Numbers for `sleep` that only one test of one run has.
fn number(test: u32) -> String {
    format!("{test}{:07}", std::process::id())
}

fn is_running(number: &str) -> bool {
    !processes_with(&format!("sleep\0{number}")).is_empty()
}

#[track_caller]
fn check_entrance(world: &World, want: &str) {
    assert_eq!(world.sh(ENTRANCE).expect(0).text().trim(), want);
}

/// A line that has said `ready`.
#[track_caller]
fn started(world: &World, line: &str) -> Child {
    let mut child = world.spawn(["exec", "a", "--", "sh", "-c", line]);
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut said).expect("a line");
    assert_eq!(said, "ready\n");
    child
}

fn timed(world: &World, line: &str) -> Finished {
    world.run(["exec", "a", "--timeout", "0.5", "--", "sh", "-c", line])
}

#[test]
fn every_call_enters_by_the_first_process() {
    with_and_without_gateway(|world| {
        for _ in 0..5 {
            check_entrance(world, "1");
        }
    });
}

#[test]
fn ten_megabytes_pass_both_ways_over_the_link() {
    with_and_without_gateway(|world| {
        let input: Vec<u8> = (0..10_000_000_u32).map(|it| (it % 251) as u8).collect();
        let line = format!("{ENTRANCE} >&2; cat");
        let done = world.run_with_input(["exec", "a", "--", "sh", "-c", &line], &input);
        assert_eq!((done.code, done.stderr.trim()), (0, "1"));
        assert!(done.stdout == input, "{} bytes came back", done.stdout.len());
    });
}

#[test]
fn what_resists_is_gone_when_a_timeout_is_told_and_all_else_stays() {
    with_and_without_gateway(|world| {
        let (other, own) = (number(71), number(72));
        let mut bystander = started(world, &format!("echo ready; exec sleep {other}"));
        let deaf = format!("trap '' TERM HUP INT; sleep {own}; sleep {own}");
        let line = format!("{deaf} & (setsid sh -c \"{deaf}; :\" &); setsid sleep {own} & {deaf}");
        let done = timed(world, &line);
        assert_eq!(done.code, 124, "{}", done.stderr);
        assert!(!is_running(&own), "told before it was gone");
        assert!(is_running(&other), "{}", done.stderr);
        signal(bystander.id(), "TERM");
        bystander.wait().expect("it ends");
    });
}

#[test]
fn a_supervisor_that_is_killed_about_the_timeout_saves_nobody() {
    on_each_runtime(|world| {
        world.start_gateway();
        let own = number(73);
        for pause in ["0.45", "0.48", "0.5", "0.52"] {
            let killer = format!("(sleep {pause}; kill -9 $PPID) &");
            let line = format!("(setsid sleep {own} &) ; {killer} sleep {own}");
            let done = timed(world, &line);
            assert!(matches!(done.code, 124 | 125), "{} {}", done.code, done.stderr);
            wait_until("nothing of it is left", || !is_running(&own));
        }
        check_entrance(world, "1");
    });
}

#[test]
fn a_supervisor_that_is_stopped_goes_on_and_its_call_ends_in_time() {
    on_each_runtime(|world| {
        world.start_gateway();
        let own = number(74);
        let done = timed(world, &format!("kill -STOP $PPID; sleep {own}"));
        assert_eq!(done.code, 124, "{}", done.stderr);
        assert!(!done.stderr.contains("the whole sandbox"), "{}", done.stderr);
        assert!(!is_running(&own));
        let mut child = started(world, &format!("kill -STOP $PPID; echo ready; sleep {own}"));
        signal(child.id(), "INT");
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
        assert!(!is_running(&own));
        check_entrance(world, "1");
    });
}

#[test]
fn a_call_that_is_called_off_is_gone_with_all_it_started() {
    with_and_without_gateway(|world| {
        let own = number(75);
        let line = format!("(setsid sleep {own} &) ; trap '' INT TERM; echo ready; sleep {own}");
        let mut child = started(world, &line);
        // The first is passed on, the second calls it off.
        signal(child.id(), "TERM");
        signal(child.id(), "TERM");
        child.wait().expect("it ends");
        wait_until("nothing of it is left", || !is_running(&own));
        check_entrance(world, "1");
    });
}

#[test]
fn many_commands_run_at_once_and_apart() {
    with_and_without_gateway(|world| {
        world.sh("true").expect(0);
        thread::scope(|scope| {
            for it in 0..24 {
                scope.spawn(move || {
                    let line = format!("{ENTRANCE}; echo {it}; echo e{it} >&2; exit {it}");
                    let done = world.sh(&line).expect(it);
                    assert_eq!(done.text(), format!("1\n{it}\n"));
                    assert_eq!(done.stderr, format!("e{it}\n"));
                });
            }
        });
    });
}

#[test]
fn a_killed_gateway_ends_its_commands_and_the_next_has_the_link_again() {
    on_each_runtime(|world| {
        let mut gateway = world.gateway_child();
        let own = number(76);
        let line = format!("(setsid sleep {own} &) ; echo ready; sleep {own}");
        let running: Vec<Child> = (0..10).map(|_| started(world, &line)).collect();
        signal(gateway.id(), "KILL");
        gateway.wait().expect("it ends");
        for mut child in running {
            assert_ne!(child.wait().expect("it ends").code(), Some(0));
        }
        wait_until("the commands are gone", || !is_running(&own));
        let left = world.sh("echo on").expect(0);
        assert_eq!(left.text(), "on\n", "by a link of its own");
        for _ in 0..3 {
            let mut gateway = world.gateway_child();
            check_entrance(world, "1");
            signal(gateway.id(), "KILL");
            gateway.wait().expect("it ends");
        }
    });
}

#[test]
fn without_a_link_a_program_of_the_runtime_is_the_way() {
    on_each_runtime(|world| {
        world.start_gateway();
        let socket = world.home().join("sockets/a/link.sock");
        fs::remove_file(&socket).expect("it is there");
        check_entrance(world, "0");
        check_entrance(world, "0");
        let own = number(77);
        let done = timed(world, &format!("(setsid sleep {own} &) ; sleep {own}"));
        assert_eq!(done.code, 124, "{}", done.stderr);
        wait_until("nothing of it is left", || !is_running(&own));
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
    });
}

/// Dials every link over and over, greets as the resident does, and writes
/// down whatever it is sent.
const IMPOSTOR: &str = r#"
import os, socket, sys
def dial():
    for name in os.listdir("/beige"):
        if not name.startswith("link"): continue
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(0.05)
        try:
            s.connect("/beige/" + name)
            s.send(b"beige-link/1")
            got, fds, _, _ = socket.recv_fds(s, 64, 4)
            if got or fds: open("/workspace/got", "ab").write(got + b"%d" % len(fds))
        except OSError: pass
        s.close()
dial()
print("ready", flush=True)
while True: dial()
"#;

#[test]
fn whoever_dials_in_the_stead_of_the_first_process_gets_nothing() {
    on_each_runtime(|world| {
        world.sh("true").expect(0);
        fs::write(world.workspace("a").join("impostor.py"), IMPOSTOR).expect("written");
        // A one-shot holds them, so that they are there when a gateway comes.
        let line = "for i in 1 2 3; do python3 impostor.py & done; wait";
        let mut impostors = started(world, line);
        for _ in 0..3 {
            let mut gateway = world.gateway_child();
            for _ in 0..10 {
                check_entrance(world, "1");
            }
            let (text, is_error) = world.tool("read", json!({ "path": "impostor.py" }));
            assert!(!is_error && text.contains("import os"), "{text}");
            signal(gateway.id(), "KILL");
            gateway.wait().expect("it ends");
        }
        let got = fs::read(world.workspace("a").join("got"));
        assert!(got.is_err(), "an impostor was sent {got:?}");
        impostors.kill().expect("it runs");
        impostors.wait().expect("it ends");
    });
}

#[test]
fn a_reader_that_takes_its_time_costs_no_sandbox() {
    on_each_runtime(|world| {
        world.start_gateway();
        let (other, own) = (number(78), number(79));
        let mut bystander = started(world, &format!("echo ready; exec sleep {other}"));
        let mut slow = world
            .beige(["exec", "a", "--timeout", "0.5", "--", "sh", "-c"])
            .arg(format!("sleep {own} & yes"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("beige runs");
        wait_until("it has begun", || is_running(&own));
        wait_until("the time is up", || !is_running(&own));
        let mut rest = Vec::new();
        slow.stdout.take().expect("a pipe").read_to_end(&mut rest).expect("read");
        assert_eq!(slow.wait().expect("it ends").code(), Some(124));
        assert!(is_running(&other));
        signal(bystander.id(), "TERM");
        bystander.wait().expect("it ends");
    });
}
