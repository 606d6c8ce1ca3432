//! A bubblewrap sandbox between calls: it stays, is shared and taken over, and
//! ends with its gateway, with its agent, or when it was to be another one.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::json;

use crate::support::{
    Finished, Runtime, World, ask, is_alive, read_until, runtimes, signal, some_world, wait_until,
};

fn with_bubblewrap(check: impl Fn(&World)) {
    if let Some(world) = World::on(Runtime::Bubblewrap) {
        check(&world);
    }
}

/// The first process of the sandbox of an agent, as the command line lists it.
fn resident_of(world: &World, agent: &str) -> Option<u32> {
    let listed = world.run(["sandbox", "list", "--json"]).expect(0).json();
    let rows = listed.as_array().expect("an array");
    let row = rows.iter().find(|it| it["agent"] == agent)?;
    assert_eq!(row["runtime"], "bubblewrap", "{listed}");
    Some(row["pid"].as_u64().expect("a pid").try_into().expect("a pid"))
}

fn resident(world: &World) -> u32 {
    resident_of(world, "a").expect("a sandbox")
}

/// Which process namespace a command of `a` runs in.
#[track_caller]
fn namespace(world: &World) -> String {
    world.exec(&["readlink", "/proc/self/ns/pid"]).expect(0).text()
}

/// Leaves a process behind; its number in the sandbox.
#[track_caller]
fn leave_behind(world: &World) -> String {
    let done = world.sh("sleep 3333 >/dev/null 2>&1 & echo $!").expect(0);
    assert!(!done.stderr.contains("ended with this call"), "{}", done.stderr);
    done.text().trim().to_owned()
}

#[track_caller]
fn assert_runs(world: &World, process: &str) {
    assert_eq!(world.exec(&["cat", &format!("/proc/{process}/comm")]).expect(0).text(), "sleep\n");
}

#[test]
fn what_a_gateway_leaves_by_dying_is_taken_over() {
    with_bubblewrap(|world| {
        let mut gateway = world.gateway_child();
        let left = leave_behind(world);
        let (first, space) = (resident(world), namespace(world));
        gateway.kill().unwrap();
        gateway.wait().unwrap();
        assert!(is_alive(first));
        // A one-shot, then the next gateway.
        assert_runs(world, &left);
        world.start_gateway();
        assert_runs(world, &left);
        assert_eq!((resident(world), namespace(world)), (first, space));
        world.run(["gateway", "stop"]).expect(0);
        assert!(!is_alive(first));
        assert_eq!(resident_of(world, "a"), None);
    });
}

#[test]
fn it_is_listed_as_long_as_it_is_there() {
    with_bubblewrap(|world| {
        world.sh("true").expect(0);
        let state = || world.run(["sandbox", "list", "--json"]).expect(0).json()[0].clone();
        let pid = resident(world);
        assert_eq!((&state()["state"], &state()["pid"]), (&json!("lingering"), &json!(pid)));
        world.start_gateway();
        assert_eq!(state()["state"], "running");
        let text = world.run(["sandbox", "list"]).expect(0).text();
        assert!(text.contains(&format!("process {pid}\n")), "{text}");
        assert_eq!(world.run(["sandbox", "rm", "a"]).expect(0).text(), REMOVED);
        assert!(!is_alive(pid) && state().is_null());
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
    });
}

const REMOVED: &str = "removed the sandbox of a\n";

#[test]
fn many_first_calls_make_one() {
    with_bubblewrap(|world| {
        let call = || world.exec(&["readlink", "/proc/self/ns/pid"]).expect(0).text();
        let spaces: Vec<String> = thread::scope(|scope| {
            let calls: Vec<_> = (0..6).map(|_| scope.spawn(call)).collect();
            calls.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert!(spaces.iter().all(|it| *it == spaces[0]), "{spaces:?}");
        world.start_gateway();
        assert_eq!(namespace(world), spaces[0]);
    });
}

#[test]
fn a_ctrl_c_at_who_started_it_does_not_reach_it() {
    with_bubblewrap(|world| {
        let line = "echo ready; sleep 3334";
        let mut command = world.beige(["exec", "a", "--", "sh", "-c", line]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().unwrap();
        read_until(&mut BufReader::new(child.stdout.take().unwrap()), "ready");
        let first = resident(world);
        let group = format!("-{}", child.id());
        let sent = Command::new("kill").args(["-s", "INT", "--", &group]).status();
        assert!(sent.unwrap().success());
        assert!(!child.wait().unwrap().success());
        world.sh("true").expect(0);
        assert_eq!(resident(world), first);
    });
}

#[test]
fn one_that_is_to_be_another_ends_when_its_calls_have() {
    with_bubblewrap(|world| {
        world.start_gateway();
        let left = leave_behind(world);
        let first = resident(world);
        let path = world.root.join("more");
        fs::create_dir(&path).unwrap();
        let mounts = format!("extraMounts: {{ '{}': '/more' }}", path.display());
        world.configure(&["a", "b"], &mounts);
        signal(world.gateway_pid(), "HUP");
        wait_until("the old one ends", || !is_alive(first));
        wait_until("it has another agent", || world.gateway_log().contains("for 2 agents"));
        assert_ne!(world.exec(&["cat", &format!("/proc/{left}/comm")]).text(), "sleep\n");
        world.exec(&["ls", "-d", "/more"]).expect(0);
        assert_ne!(resident(world), first);
    });
}

#[test]
fn that_of_an_agent_that_is_gone_ends() {
    with_bubblewrap(|world| {
        world.configure(&["a", "b"], "");
        for agent in ["a", "b"] {
            world.run(["exec", agent, "--", "true"]).expect(0);
        }
        let (stays, goes) = (resident(world), resident_of(world, "b").unwrap());
        world.configure(&["a"], "");
        world.start_gateway();
        wait_until("it ends", || !is_alive(goes));
        assert!(is_alive(stays));
        assert_eq!(resident_of(world, "b"), None);
    });
}

#[test]
fn a_command_that_wants_too_much_memory_ends_alone() {
    with_bubblewrap(|world| {
        world.configure(&["a"], "memoryLimit: '100m'");
        let left = leave_behind(world);
        let first = resident(world);
        let done = world.sh("x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}");
        assert!(done.code != 0 && done.stdout.is_empty(), "{done:?}");
        assert_runs(world, &left);
        assert_eq!(resident(world), first);
    });
}

#[test]
fn what_a_state_file_says_is_not_believed_blindly() {
    with_bubblewrap(|world| {
        world.sh("true").expect(0);
        let file = world.home().join("data/sandboxes/a.json");
        let first = resident(world);
        let mut stranger =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let known = fs::read_to_string(&file).unwrap();
        let planted = known.replace(&first.to_string(), &stranger.id().to_string());
        for text in [planted.as_str(), "{}", "no JSON", ""] {
            fs::write(&file, text).unwrap();
            assert_eq!(world.sh("echo on").expect(0).text(), "on\n", "{text}");
            // No second one beside the first.
            assert!(!is_alive(first));
        }
        fs::write(&file, &planted).unwrap();
        world.run(["sandbox", "rm"]).expect(0);
        assert!(stranger.try_wait().unwrap().is_none(), "a stranger was killed");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    });
}

/// Ids of Docker's containers of a world that is bubblewrap's.
fn containers(world: &World) -> Vec<String> {
    let filter = format!("label=beige.home={}", world.home().display());
    let ids = ask("docker", &["ps", "-aq", "--filter", &filter]);
    ids.lines().map(str::to_owned).collect()
}

/// A PATH on which Podman does not work.
fn without_podman(world: &World) -> OsString {
    let broken = world.root.join("podman");
    fs::write(&broken, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&broken, Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [world.root.clone()].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(folders).unwrap()
}

#[test]
fn auto_keeps_to_it_while_it_lives_and_docker_ends_it() {
    let Some(world) = World::on(Runtime::Bubblewrap) else { return };
    if World::on(Runtime::Docker).is_none() {
        return;
    }
    world.write_config(&world.agent("a", "", "").replace("'bubblewrap'", "'auto'"), "");
    let mut command = world.beige(["exec", "a", "--", "readlink", "/proc/self/ns/pid"]);
    command.env("DOCKER_HOST", "unix:///nonexistent.sock");
    command.env("PATH", without_podman(&world));
    let space = Finished::from(command.output().unwrap()).expect(0).text();
    let first = resident(&world);
    // Docker answers now.
    assert_eq!(namespace(&world), space);
    let report = world.run(["doctor", "--json"]).expect(0).text();
    assert!(report.contains("its sandbox runs"), "{report}");
    assert_eq!(containers(&world), [""; 0]);
    world.write_config(&world.agent("a", "", "").replace("'bubblewrap'", "'docker'"), "");
    world.sh("true").expect(0);
    assert!(!is_alive(first));
    assert_eq!(containers(&world).len(), 1);
}

#[test]
fn auto_keeps_to_an_engine_over_a_stop_of_the_gateway() {
    let Some(world) = World::on(Runtime::Podman) else { return };
    if World::on(Runtime::Docker).is_none() {
        return;
    }
    world.write_config(&world.agent("a", "", "").replace("'podman'", "'auto'"), "");
    let mut command = world.beige(["gateway", "start"]);
    command.env("DOCKER_HOST", "unix:///nonexistent.sock");
    Finished::from(command.output().unwrap()).expect(0);
    world.sh("true").expect(0);
    let first = world.container();
    world.run(["gateway", "stop"]).expect(0);
    assert_eq!(world.state_of(&first), "exited");
    // Docker answers now.
    world.start_gateway();
    world.sh("true").expect(0);
    assert_eq!((world.container(), containers(&world)), (first, vec![]));
    world.run(["gateway", "stop"]).expect(0);
    let report = world.run(["doctor", "--json"]).expect(0).text();
    assert!(report.contains("podman, image"), "{report}");
    // What is removed is forgotten.
    world.run(["sandbox", "rm", "a"]).expect(0);
    world.sh("true").expect(0);
    assert_eq!((world.containers().len(), containers(&world).len()), (0, 1));
}

#[test]
fn after_one_that_was_killed_the_next_call_makes_another_that_stays() {
    with_bubblewrap(|world| {
        for with_gateway in [false, true] {
            if with_gateway {
                world.start_gateway();
            }
            for _ in 0..5 {
                leave_behind(world);
                let killed = resident(world);
                signal(killed, "KILL");
                // Dead, dying, or about to be noticed: in no case beside it.
                let left = leave_behind(world);
                assert!(!is_alive(killed));
                assert_runs(world, &left);
            }
        }
    });
}

#[test]
fn a_change_of_runtime_ends_the_sandbox_that_the_agent_had() {
    let world = some_world();
    let here: Vec<&str> = runtimes().iter().map(|it| it.name()).collect();
    let turn = here.iter().chain(here.iter().rev());
    for runtime in turn.chain(here.first()) {
        let quoted = |name: &str| format!("'{name}'");
        let agent =
            world.agent("a", "", "").replace(&quoted(world.runtime.name()), &quoted(runtime));
        world.write_config(&agent, "");
        leave_behind(&world);
        let listed = world.run(["sandbox", "list", "--json"]).expect(0).json();
        let rows = listed.as_array().expect("an array");
        assert_eq!(rows.len(), 1, "{listed}");
        assert_eq!(rows[0]["runtime"], **runtime, "{listed}");
    }
}

#[test]
fn a_paused_container_goes_on_for_those_in_it_and_those_who_come() {
    for runtime in runtimes().iter().filter(|it| it.makes_containers()) {
        let world = World::new(*runtime);
        for with_gateway in [false, true] {
            if with_gateway {
                world.start_gateway();
            }
            let mut first = world.spawn(["exec", "a", "--", "sh", "-c", "echo up; read it"]);
            read_until(&mut BufReader::new(first.stdout.as_mut().expect("a pipe")), "up");
            world.ask(&["pause", &world.container()]);
            // It need not wait for the end of one that stands still.
            assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
            drop(first.stdin.take());
            assert_eq!(first.wait().expect("it ends").code(), Some(1));
        }
    }
}
