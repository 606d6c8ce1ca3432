//! One-shots side by side: with each other, beside a gateway that comes and
//! goes, and after a kill.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;
use tool_client::frame;

use crate::support::{
    Finished, World, children_of, on_each_runtime, read_until, request, signal, wait_until,
};

#[test]
fn fifty_work_while_a_gateway_starts_and_stops() {
    on_each_runtime(|world| {
        let left = AtomicUsize::new(50);
        let next = || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1));
        let over = AtomicUsize::new(0);
        let rounds = thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _over = Over(&over);
                    while let Ok(number) = next() {
                        one_shot(world, number);
                    }
                });
            }
            let mut rounds = 0;
            while over.load(Ordering::SeqCst) < 8 {
                world.run(["gateway", "start"]).expect(0);
                world.run(["gateway", "stop"]).expect(0);
                rounds += 1;
            }
            rounds
        });
        assert!(rounds > 0);
        check_calls(&world.audit(), 50);
        world.verify_audit();
        assert_eq!(sockets(world), Vec::<PathBuf>::new());
    });
}

/// Counts the end of a thread, also of one that fails.
struct Over<'a>(&'a AtomicUsize);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A one-shot that passes input through and ends by a code of its own.
fn one_shot(world: &World, number: usize) {
    let code = (number % 7) as i32;
    let line = format!("cat; echo {number} >&2; exit {code}");
    let input = format!("input of {number}\n");
    let done = world.run_with_input(["exec", "a", "--", "sh", "-c", &line], input.as_bytes());
    let done = done.expect(code);
    assert_eq!((done.text(), done.stderr), (input, format!("{number}\n")));
}

/// Each call has both its records, and no two share a number.
#[track_caller]
fn check_calls(records: &[Value], calls: usize) {
    let of = |phase: &str| -> HashSet<&str> {
        let those = records.iter().filter(|it| it["phase"] == phase);
        those.filter_map(|it| it["id"].as_str()).collect()
    };
    assert_eq!(of("started").len(), calls);
    assert_eq!(of("started"), of("finished"));
    let numbers: Vec<u64> = records.iter().filter_map(|it| it["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>());
}

/// The sockets in the folder of `a`.
fn sockets(world: &World) -> Vec<PathBuf> {
    let folder = fs::read_dir(world.home().join("sockets/a")).expect("a folder");
    let all = folder.flatten().map(|it| it.path());
    let is_socket = |it: &PathBuf| it.extension().is_some_and(|it| it == "sock" || it == "new");
    let mut sockets: Vec<PathBuf> = all.filter(is_socket).collect();
    sockets.sort();
    sockets
}

#[test]
fn eight_beside_a_gateway_leave_one_chain() {
    on_each_runtime(|world| {
        world.start_gateway();
        // Without this name one-shots find no gateway; it goes on by the other.
        let hidden = world.home().join("hidden.sock");
        fs::rename(world.api_socket(), &hidden).expect("renamed");
        thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || one_shot(world, number));
            }
            for _ in 0..8 {
                let body = br#"{"tool":"exec","params":{"command":"notes list"}}"#;
                let headers = [("Content-Type", "application/json")];
                let path = "/api/agents/a/exec";
                let reply = request(&hidden, "POST", path, &headers, body);
                assert_eq!(reply.json()["isError"], false, "{}", reply.text());
            }
        });
        fs::rename(hidden, world.api_socket()).expect("renamed");
        check_calls(&world.audit(), 8 + 2 * 8);
        world.verify_audit();
    });
}

#[test]
fn a_one_shot_has_a_socket_of_its_own_that_tools_use() {
    on_each_runtime(|world| {
        let mut call = world.spawn([
            "exec",
            "a",
            "--",
            "sh",
            "-c",
            "echo $BEIGE_SOCKET; read it; notes add one",
        ]);
        let own = format!("cli-{}.sock", call.id());
        let mut output = BufReader::new(call.stdout.take().expect("a pipe"));
        assert_eq!(read_until(&mut output, "beige").trim(), format!("/beige/{own}"));
        let folder = world.home().join("sockets/a");
        let link = format!("link-{}.sock", call.id());
        assert_eq!(sockets(world), [folder.join(&own), folder.join(link)]);
        writeln!(call.stdin.take().expect("a pipe"), "go").expect("written");
        let done = Finished::from(call.wait_with_output().expect("it ends"));
        done.expect(0);
        assert_eq!(sockets(world), Vec::<PathBuf>::new());
        let last = world.audit();
        assert!(last.iter().any(|it| it["type"] == "tool" && it["tool"] == "notes"));
    });
}

#[test]
fn dead_sockets_are_removed_and_living_ones_are_not() {
    on_each_runtime(|world| {
        world.exec(&["true"]).expect(0);
        let folder = world.home().join("sockets/a");
        for name in ["cli-1.sock", "gateway.sock", "cli-2.new"] {
            drop(UnixListener::bind(folder.join(name)).expect("a socket"));
        }
        let (mut call, _output) = holding(world);
        let own = folder.join(format!("cli-{}.sock", call.id()));
        let link = folder.join(format!("link-{}.sock", call.id()));
        assert_eq!(sockets(world), [own.clone(), link.clone()]);
        drop(UnixListener::bind(folder.join("cli-1.sock")).expect("a socket"));
        world.start_gateway();
        let of_gateway = ["gateway.sock", "link.sock"].map(|it| folder.join(it));
        let [tools, links] = of_gateway;
        assert_eq!(sockets(world), [own, tools, link, links]);
        end(&mut call);
    });
}

/// A one-shot that is in its sandbox until its input ends.
fn holding(world: &World) -> (Child, BufReader<ChildStdout>) {
    let mut call = world.spawn(["exec", "a", "--", "sh", "-c", "echo ready; cat; echo done"]);
    let mut output = BufReader::new(call.stdout.take().expect("a pipe"));
    read_until(&mut output, "ready");
    (call, output)
}

fn end(call: &mut Child) {
    drop(call.stdin.take());
    assert_eq!(call.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_killed_one_shot_takes_its_tree_along_and_the_next_works() {
    on_each_runtime(|world| {
        let line = "sleep 300 & setsid sleep 300 & echo ready; sleep 300";
        let mut call = world.spawn(["exec", "a", "--", "sh", "-c", line]);
        read_until(&mut BufReader::new(call.stdout.take().expect("a pipe")), "ready");
        call.kill().and_then(|()| call.wait()).expect("killed");
        wait_until("its tree is gone", || {
            world.sh("cat /proc/[0-9]*/comm | grep -c '^sleep$'").text().trim() == "0"
        });
        assert_eq!(sockets(world), Vec::<PathBuf>::new());
        let first = world.audit().swap_remove(0);
        assert_eq!(first["phase"], "started");
        assert!(world.audit()[1..].iter().all(|it| it["id"] != first["id"]));
        world.verify_audit();
    });
}

#[test]
fn a_stop_leaves_a_sandbox_alone_in_which_a_one_shot_is() {
    on_each_runtime(|world| {
        let (mut call, mut output) = holding(world);
        world.start_gateway();
        world.sh("echo hi").expect(0);
        world.run(["gateway", "stop"]).expect(0);
        assert!(call.try_wait().expect("a child").is_none());
        end(&mut call);
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("read");
        assert_eq!(rest, "done\n");
    });
}

#[test]
fn a_prompt_holds_the_home_and_others_wait_for_it() {
    on_each_runtime(|world| {
        let (mut first, mut fifo) = prompt_in_a_turn(world);
        let second = world.spawn(["prompt", "a", "second"]);
        let gateway = world.spawn(["gateway", "start"]);
        // Neither has a way to end while the first holds the home.
        wait_until("both wait for the home", || {
            [&second, &gateway].iter().all(|it| waits_for_home(world, it.id()))
        });
        world.run(["gateway", "status"]).expect(1);
        fifo.write_all(b"go\n").expect("written");
        drop(fifo);
        assert_eq!(first.wait().expect("it ends").code(), Some(0));
        let done = Finished::from(gateway.wait_with_output().expect("it ends"));
        done.expect(0);
        let done = Finished::from(second.wait_with_output().expect("it ends"));
        assert_eq!(done.expect(0).text(), "second\n");
        world.verify_audit();
    });
}

#[test]
fn whoever_waits_for_the_home_says_for_whom() {
    let world = crate::support::some_world();
    let (mut first, fifo) = prompt_in_a_turn(&world);
    let mut second = world.spawn(["prompt", "a", "second"]);
    let mut gateway = world.spawn(["gateway", "start"]);
    let of = |child: &mut Child| BufReader::new(child.stderr.take().expect("a pipe"));
    let pid = format!("(pid {})", first.id());
    read_until(&mut of(&mut gateway), &format!("waiting for a prompt without a gateway {pid}"));
    read_until(&mut of(&mut second), &format!("waiting for another prompt {pid}"));
    drop(fifo);
    assert_eq!(first.wait().expect("it ends").code(), Some(0));
    assert_eq!(second.wait().expect("it ends").code(), Some(0));
    assert_eq!(gateway.wait().expect("it ends").code(), Some(0));
}

/// A prompt without a gateway whose command waits for what is returned.
fn prompt_in_a_turn(world: &World) -> (Child, fs::File) {
    world.write_cassette(&[
        r#"{"match":{"lastUser":"first"},"events":[{"toolCall":{"name":"exec","arguments":{"command":"cat hold"}}}]}"#,
        r#"{"match":{"lastUser":"second"},"events":[{"text":"second"}]}"#,
        r#"{"match":{"lastTool":"*"},"events":[{"text":"first"}]}"#,
    ]);
    world.sh("mkfifo hold; chmod 666 hold").expect(0);
    let first = world.spawn(["prompt", "a", "first"]);
    // Opening it for writing returns once the command reads.
    let fifo = fs::File::options().write(true).open(world.workspace("a").join("hold"));
    (first, fifo.expect("the command opens it"))
}

/// Whether a process, or a child of it, has the home's lock file open.
fn waits_for_home(world: &World, pid: u32) -> bool {
    let mut pids = children_of(pid);
    pids.push(pid);
    let lock = world.home().join("gateway.pid");
    pids.iter()
        .filter_map(|it| fs::read_dir(format!("/proc/{it}/fd")).ok())
        .any(|open| open.flatten().any(|it| fs::read_link(it.path()).is_ok_and(|it| it == lock)))
}

#[test]
fn a_prompt_that_meets_a_gateway_goes_through_it() {
    let world = crate::support::some_world();
    let (mut first, mut fifo) = prompt_in_a_turn(&world);
    // It finds no gateway and waits for the home, which a gateway then takes.
    let gateway = world.spawn(["gateway", "start"]);
    wait_until("the gateway waits", || waits_for_home(&world, gateway.id()));
    let second: Vec<Child> = (0..3).map(|_| world.spawn(["prompt", "a", "second"])).collect();
    fifo.write_all(b"go\n").expect("written");
    drop(fifo);
    assert_eq!(first.wait().expect("it ends").code(), Some(0));
    Finished::from(gateway.wait_with_output().expect("it ends")).expect(0);
    for it in second {
        let done = Finished::from(it.wait_with_output().expect("it ends"));
        assert_eq!(done.expect(0).text(), "second\n");
    }
}

#[test]
fn a_signal_calls_a_prompt_off_and_frees_the_home() {
    let world = crate::support::some_world();
    let (mut first, _fifo) = prompt_in_a_turn(&world);
    signal(first.id(), "INT");
    assert_eq!(first.wait().expect("it ends").code(), Some(130));
    world.start_gateway();
}

#[test]
fn a_prompt_that_waits_for_the_home_ends_by_a_signal() {
    let world = crate::support::some_world();
    let (mut first, fifo) = prompt_in_a_turn(&world);
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let mut second = world.spawn(["prompt", "a", "second"]);
        wait_until("it waits", || waits_for_home(&world, second.id()));
        signal(second.id(), name);
        assert_eq!(second.wait().expect("it ends").code(), Some(code));
    }
    drop(fifo);
    assert_eq!(first.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_call_that_was_let_in_is_served_though_a_stop_comes() {
    on_each_runtime(|world| {
        let mut gateway = world.gateway_child();
        let mut stream = UnixStream::connect(world.api_socket()).expect("a gateway");
        let head = "POST /api/agents/a/exec/stream HTTP/1.1\r\nHost: localhost\r\n\
                    Connection: Upgrade\r\nUpgrade: beige-exec/1\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("sent");
        let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
        read_until(&mut reader, "101");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).expect("a head");
        }
        signal(gateway.id(), "TERM");
        wait_until("it drains", || world.get("/api/health").json()["status"] == "draining");
        frame::write_request(&mut stream, br#"{"argv":["echo","hi"]}"#).expect("sent");
        let mut output = Vec::new();
        let report = loop {
            let next = frame::read(&mut reader).expect("a frame").expect("an end");
            match next.kind {
                frame::STDOUT => output.extend(next.payload),
                frame::EXIT => break String::from_utf8_lossy(&next.payload).into_owned(),
                _ => {}
            }
        };
        assert!(output == b"hi\n" && report.contains("\"exitCode\":0"), "{report}");
        assert_eq!(gateway.wait().expect("it ends").code(), Some(0));
    });
}
