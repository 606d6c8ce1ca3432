//! `beige exec`: arguments, streams, exit codes and ends, on every runtime,
//! with and without a gateway.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::support::{Runtime, World, on_each_runtime, wait_until, with_and_without_gateway};

#[test]
fn arguments_arrive_exactly() {
    with_and_without_gateway(|world| {
        let argv =
            ["printf", "[%s]", "a b", "", "--", "'\"$x`", "new\nline", "-n", "那", "*", "\\"];
        let want = "[a b][][--]['\"$x`][new\nline][-n][那][*][\\]";
        assert_eq!(world.exec(&argv).expect(0).text(), want);
    });
}

#[test]
fn an_argument_that_is_no_text_arrives_as_it_is() {
    with_and_without_gateway(|world| {
        let raw = OsStr::from_bytes(b"\xff\xfe");
        let argv = ["exec", "a", "--", "printf", "%s"].map(OsStr::new);
        let done = world.run(argv.iter().chain([&raw])).expect(0);
        assert_eq!(done.stdout, b"\xff\xfe");
    });
}

#[test]
fn the_two_streams_stay_apart() {
    with_and_without_gateway(|world| {
        let done = world.sh("echo out; echo err >&2; exit 3").expect(3);
        assert_eq!((done.text().as_str(), done.stderr.as_str()), ("out\n", "err\n"));
    });
}

#[test]
fn exit_codes_are_the_commands_own() {
    with_and_without_gateway(|world| {
        world.exec(&["true"]).expect(0);
        world.exec(&["false"]).expect(1);
        world.sh("exit 42").expect(42);
        world.exec(&["/etc"]).expect(126);
        world.exec(&["no-such-program"]).expect(127);
        world.sh("kill -9 $$").expect(137);
        world.sh("kill -15 $$").expect(143);
    });
}

#[test]
fn what_beige_cannot_do_is_125_and_one_line() {
    with_and_without_gateway(|world| {
        let done = world.run(["exec", "nobody", "--", "true"]).expect(125);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        assert!(done.stderr.contains("there is no agent `nobody`"), "{}", done.stderr);
        world.run(["exec", "a", "--workdir", "../..", "--", "true"]).expect(125);
    });
}

#[test]
fn wrong_usage_is_2() {
    on_each_runtime(|world| {
        for arguments in [
            &["exec"][..],
            &["exec", "a"],
            &["exec", "a", "--"],
            &["exec", "a", "true"],
            &["exec", "a", "--timeout", "soon", "--", "true"],
            &["exec", "a", "--timeout", "0", "--", "true"],
            &["exec", "a", "--timout", "1", "--", "true"],
        ] {
            world.run(arguments).expect(2);
        }
        let typo = world.run(["exec", "a", "--timout", "1", "--", "true"]);
        assert!(typo.stderr.contains("did you mean `--timeout`"), "{}", typo.stderr);
    });
}

#[test]
fn a_timeout_kills_the_whole_tree_and_is_124() {
    with_and_without_gateway(|world| {
        let line = "sleep 300 & setsid sleep 300 & (trap '' TERM; sleep 300) & sleep 300";
        world.run(["exec", "a", "--timeout", "0.3", "--", "sh", "-c", line]).expect(124);
        let left = world.sh("cat /proc/[0-9]*/comm | grep -c '^sleep$'").expect(1);
        assert_eq!(left.text().trim(), "0");
    });
}

#[test]
fn a_background_child_does_not_hold_the_call() {
    with_and_without_gateway(|world| {
        let done = world.sh("sleep 60 & echo hi").expect(0);
        assert_eq!(done.text(), "hi\n");
    });
}

#[test]
fn bytes_pass_unchanged_in_both_directions() {
    with_and_without_gateway(|world| {
        let bytes: Vec<u8> =
            (0..3_000_000_u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let done = world.run_with_input(["exec", "a", "--", "cat"], &bytes).expect(0);
        assert!(done.stdout == bytes, "{} bytes came back", done.stdout.len());
    });
}

#[test]
fn more_than_a_pipe_holds_is_drained_from_both_streams() {
    on_each_runtime(|world| {
        let done = world.sh("head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2").expect(0);
        assert_eq!((done.stdout.len(), done.stderr.len()), (200_000, 200_000));
    });
}

#[test]
fn input_that_nobody_reads_does_not_hold_the_call() {
    with_and_without_gateway(|world| {
        world.run_with_input(["exec", "a", "--", "true"], &vec![b'x'; 1_000_000]).expect(0);
    });
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    with_and_without_gateway(|world| {
        let mut child = world
            .beige(["exec", "a", "--", "yes"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("beige runs");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut line).expect("a line");
        drop(stdout);
        assert_eq!(line, "y\n");
        let mut stderr = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("read");
        assert_eq!((child.wait().expect("it ends").code(), stderr.as_str()), (Some(141), ""));
    });
}

#[test]
fn a_signal_reaches_the_command() {
    with_and_without_gateway(|world| {
        let line = "trap 'echo caught; exit 7' INT; echo ready; while :; do read x; done";
        let (code, rest) = interrupted(world, line);
        assert_eq!((code, rest.as_str()), (Some(7), "caught\n"));
    });
}

#[test]
fn a_command_that_ignores_a_signal_is_ended_by_the_second() {
    with_and_without_gateway(|world| {
        let line = "trap '' INT TERM; echo ready; while :; do read x; done";
        let mut child = started(world, line);
        send(&child.0, "INT");
        // Another one: two of a kind that come close together are one.
        send(&child.0, "TERM");
        let code = child.0.wait().expect("it ends").code();
        assert_eq!(code, Some(137), "killed after the second signal");
    });
}

#[test]
fn a_command_that_ignores_a_signal_is_ended_after_a_while() {
    let world = crate::support::some_world();
    let line = "trap '' INT; echo ready; while :; do read x; done";
    let (mut child, _stdout) = started(&world, line);
    send(&child, "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(137));
}

#[test]
fn a_signal_ends_a_command_that_has_not_begun() {
    with_and_without_gateway(|world| {
        world.sh("true").expect(0);
        let lock = world.home().join("data/sandboxes/a.lock");
        let lock = std::fs::File::open(lock).expect("a lock");
        lock.lock().expect("it is free");
        for (name, code) in [("INT", 130), ("TERM", 143)] {
            let mut child = world.spawn(["exec", "a", "--", "touch", "begun"]);
            // Until the gateway lets it in a signal ends it as any other program.
            let status = format!("/proc/{}/status", child.id());
            wait_until("signals are taken over", || {
                let status = std::fs::read_to_string(&status).unwrap_or_default();
                let caught = status.lines().find_map(|it| it.strip_prefix("SigCgt:\t"));
                let caught = caught.and_then(|it| u64::from_str_radix(it, 16).ok()).unwrap_or(0);
                caught & 0x4002 == 0x4002
            });
            send(&child, name);
            let mut told = String::new();
            child.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
            assert_eq!(child.wait().expect("it ends").code(), Some(code), "{told}");
            assert!(told.contains("never began"), "{told}");
        }
        assert!(!world.workspace("a").join("begun").exists());
    });
}

/// Runs a line until it says `ready`, sends SIGINT, and gives its end.
fn interrupted(world: &World, line: &str) -> (Option<i32>, String) {
    let (mut child, mut stdout) = started(world, line);
    send(&child, "INT");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("read");
    (child.wait().expect("it ends").code(), rest)
}

type Started = (std::process::Child, BufReader<std::process::ChildStdout>);

/// A line that has said `ready`, its input held open. The line may fork no
/// more then: some shells lose a signal that comes while they do.
fn started(world: &World, line: &str) -> Started {
    let mut child = world
        .beige(["exec", "a", "--", "sh", "-c", line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("beige runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut ready = String::new();
    stdout.read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    (child, stdout)
}

fn send(child: &std::process::Child, signal: &str) {
    let id = child.id().to_string();
    let status = std::process::Command::new("kill").args(["-s", signal, &id]).status();
    assert!(status.expect("kill runs").success());
}

#[test]
fn a_signal_overtakes_input_that_nobody_reads() {
    with_and_without_gateway(|world| {
        let (mut child, _stdout) = started(world, "echo ready; exec sleep 300");
        let mut stdin = child.stdin.take().expect("a pipe");
        std::thread::scope(|scope| {
            scope.spawn(move || drop(stdin.write_all(&vec![b'x'; 4_000_000])));
            send(&child, "INT");
            assert_eq!(child.wait().expect("it ends").code(), Some(130));
        });
    });
}

#[test]
fn the_environment_is_the_sandboxs_own() {
    with_and_without_gateway(|world| {
        let mut command = world.beige(["exec", "a", "--", "env"]);
        command.env("SECRET_OF_THE_HOST", "1");
        let done: crate::support::Finished = command.output().expect("beige runs").into();
        let text = done.expect(0).text();
        let mut names: Vec<&str> = text.lines().filter_map(|it| it.split('=').next()).collect();
        names.retain(|it| !["BEIGE_SOCKET", "PWD", "SHLVL", "_"].contains(it));
        names.sort_unstable();
        assert_eq!(names, ["BEIGE_AGENT_NAME", "BEIGE_CALL", "HOME", "LANG", "PATH", "TERM"]);
    });
}

#[test]
fn the_working_folder_is_below_the_workspace() {
    with_and_without_gateway(|world| {
        world.sh("mkdir -p sub/dir").expect(0);
        let done = world.run(["exec", "a", "--workdir", "sub/dir", "--", "pwd"]).expect(0);
        assert_eq!(done.text(), "/workspace/sub/dir\n");
    });
}

#[test]
fn json_is_one_document() {
    with_and_without_gateway(|world| {
        let line = "echo out; echo err >&2; exit 3";
        let done = world.run(["exec", "a", "--json", "--", "sh", "-c", line]).expect(3);
        let document = done.json();
        assert_eq!(document["exitCode"], 3);
        assert_eq!(document["stdout"], "out\n");
        assert_eq!(document["stderr"], "err\n");
        assert_eq!(document["timedOut"], false);
    });
}

#[test]
fn a_tool_of_a_plugin_is_two_calls_and_four_lines() {
    with_and_without_gateway(|world| {
        let before = world.audit_if_any();
        let done = world.sh("notes add 'hello world' && notes list").expect(0);
        assert!(done.text().contains("hello world"), "{}", done.text());
        let all = world.audit();
        let lines: Vec<String> = all[before..]
            .iter()
            .map(|it| format!("{} {} {}", it["type"], it["tool"], it["phase"]).replace('"', ""))
            .collect();
        assert_eq!(
            lines,
            [
                "core_tool exec started",
                "tool notes started",
                "tool notes finished",
                "tool notes started",
                "tool notes finished",
                "core_tool exec finished",
            ]
        );
        world.verify_audit();
    });
}

#[test]
fn a_call_that_finds_others_in_the_sandbox_joins_them() {
    with_and_without_gateway(|world| {
        let (mut child, _stdout) = started(world, "echo ready; cat");
        // As for one that looks just before the first call has told of it.
        let state = world.home().join("data/sandboxes/a.json");
        let known = std::fs::read(&state).expect("it is known");
        std::fs::remove_file(&state).expect("it is there");
        let mut second = world.spawn(["exec", "a", "--", "true"]);
        if world.runtime == Runtime::Bubblewrap {
            // No daemon knows of it: whoever waits finds it once that is told.
            std::fs::write(&state, known).expect("written");
        }
        assert_eq!(second.wait().expect("it ends").code(), Some(0));
        drop(child.stdin.take());
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
    });
}

#[test]
fn a_hundred_megabytes_pass_in_both_directions_with_flat_memory() {
    with_and_without_gateway(|world| {
        const SIZE: usize = 100_000_000;
        let mut child = world
            .beige(["exec", "a", "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("beige runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut stdout = child.stdout.take().expect("a pipe");
        let id = child.id();
        let piece: Vec<u8> = (0..=250).collect();
        let (seen, peak) = std::thread::scope(|scope| {
            let piece = &piece;
            scope.spawn(move || {
                for _ in 0..SIZE / piece.len() {
                    stdin.write_all(piece).expect("taken");
                }
                drop(stdin);
            });
            let (mut buffer, mut seen, mut peak) = (vec![0; 65_536], 0_usize, 0);
            loop {
                let count = stdout.read(&mut buffer).expect("read");
                if count == 0 {
                    return (seen, peak);
                }
                let want = |at: usize| piece[(seen + at) % piece.len()];
                let wrong = buffer[..count].iter().enumerate().find(|(at, it)| **it != want(*at));
                assert_eq!(wrong, None, "after {seen} bytes");
                seen += count;
                peak = peak.max(crate::support::peak_memory(id));
            }
        });
        assert_eq!(seen, SIZE / piece.len() * piece.len());
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        assert!(peak < 64_000, "beige exec grew to {peak} kB");
    });
}

#[test]
fn a_working_folder_may_be_named_from_the_root() {
    with_and_without_gateway(|world| {
        world.sh("mkdir -p sub/deep").expect(0);
        for (folder, want) in [
            ("sub", "/workspace/sub\n"),
            ("/workspace/sub/deep", "/workspace/sub/deep\n"),
            ("/workspace", "/workspace\n"),
            ("/workspace/", "/workspace\n"),
        ] {
            let done = world.run(["exec", "a", "--workdir", folder, "--", "pwd"]).expect(0);
            assert_eq!(done.text(), want, "{folder}");
        }
        for folder in ["/workspace/..", "/workspaces", "/etc", "/"] {
            let done = world.run(["exec", "a", "--workdir", folder, "--", "pwd"]).expect(125);
            assert!(done.stderr.contains("leaves /workspace"), "{}", done.stderr);
        }
    });
}
