//! A configuration that changes under a running gateway: read anew, refused,
//! or another than the gateway's.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::json;

use crate::gateway::started;
use crate::support::{Finished, World, on_each_runtime, signal, some_world, wait_until};

pub(crate) fn configure_port(world: &World, port: u16) {
    world.configure(&["a"], "");
    let text = fs::read_to_string(world.config_file()).expect("a configuration");
    fs::write(world.config_file(), text.replace("port: 0", &format!("port: {port}")))
        .expect("written");
}

#[test]
fn a_hang_up_signal_reads_the_configuration_anew() {
    on_each_runtime(|world| {
        world.start_gateway();
        let pid = world.gateway_pid();
        assert_eq!(agents(world), ["a"]);
        world.configure(&["a", "b"], "");
        signal(pid, "HUP");
        wait_until("it has another agent", || world.gateway_log().contains("for 2 agents"));
        assert_eq!(agents(world), ["a", "b"]);
        assert_eq!(world.gateway_pid(), pid);
        let done = world.run(["exec", "b", "--", "echo", "hi"]).expect(0);
        assert_eq!(done.text(), "hi\n");
    });
}

/// The names of the agents that the gateway serves.
fn agents(world: &World) -> Vec<String> {
    let listed = world.get("/api/agents").json();
    let listed = listed["agents"].as_array().expect("agents").clone();
    listed.iter().filter_map(|it| it["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_broken_configuration_leaves_the_old_one_and_what_runs_alone() {
    let world = some_world();
    world.start_gateway();
    let pid = world.gateway_pid();
    let (mut call, mut output) = started(&world, "echo ready; read line; echo \"$line\"");
    fs::write(world.config_file(), "{ agents: ").expect("written");
    signal(pid, "HUP");
    wait_until("it says so", || world.gateway_log().contains("the old configuration stays"));
    assert_eq!(world.get("/api/health").json()["status"], "ok");
    assert_eq!(
        world.tool("exec", json!({"command": "echo hi"})),
        ("Exit code: 0\nhi\n".into(), false)
    );
    writeln!(call.stdin.take().expect("a pipe"), "the end").expect("written");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("read");
    assert_eq!((rest.as_str(), call.wait().expect("it ends").code()), ("the end\n", Some(0)));
    assert_eq!(world.gateway_pid(), pid);
}

#[test]
fn a_status_beside_a_broken_configuration_promises_nothing() {
    let world = some_world();
    world.start_gateway();
    fs::write(world.config_file(), "{ llm: { providers: 1 }, agents: 2 }").expect("written");
    signal(world.gateway_pid(), "HUP");
    wait_until("it says so", || world.gateway_log().contains("the old configuration stays"));
    let done = world.run(["gateway", "status"]).expect(0);
    let told = done.text();
    let degraded = told.lines().skip_while(|it| !it.starts_with("degraded: "));
    assert!(degraded.clone().count() >= 2, "{told}");
    assert!(degraded.skip(1).all(|it| it.starts_with("          ")), "{told}");
    assert!(done.stderr.contains("is not sound"), "{}", done.stderr);
    assert!(!done.stderr.contains("takes it over"), "{}", done.stderr);
}

#[test]
fn a_configuration_that_cannot_be_served_leaves_the_old_one() {
    let world = some_world();
    world.start_gateway();
    let pid = world.gateway_pid();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    configure_port(&world, taken.local_addr().expect("an address").port());
    signal(pid, "HUP");
    wait_until("it says so", || world.gateway_log().contains("the old configuration stays"));
    world.wait_until_it_answers();
    assert_eq!(world.sh("echo hi").expect(0).text(), "hi\n");
    assert_eq!(world.gateway_pid(), pid);
}

#[test]
fn a_restart_with_a_broken_configuration_leaves_the_gateway_alone() {
    let world = some_world();
    world.start_gateway();
    let pid = world.gateway_pid();
    fs::write(world.config_file(), "{ agents: ").expect("written");
    let told = world.run(["gateway", "restart"]).expect(78).stderr;
    assert!(told.contains("the running gateway was left alone"), "{told}");
    assert!(told.contains("config.json5"), "{told}");
    assert_eq!(world.gateway_pid(), pid);
    world.run(["gateway", "stop"]).expect(0);
    let told = world.run(["gateway", "restart"]).expect(78).stderr;
    assert!(!told.contains("left alone"), "{told}");
}

#[test]
fn a_restart_at_a_place_that_cannot_be_had_leaves_the_gateway_alone() {
    let world = some_world();
    world.start_gateway();
    let pid = world.gateway_pid();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("an address").port();
    let text = fs::read_to_string(world.config_file()).expect("a configuration");
    // 192.0.2.1 is nobody's address.
    for place in [format!("port: {taken}"), "host: '192.0.2.1', port: 0".to_owned()] {
        fs::write(world.config_file(), text.replace("port: 0", &place)).expect("written");
        let told = world.run(["gateway", "restart"]).expect(78).stderr;
        assert!(told.contains("the running gateway was left alone"), "{told}");
        assert!(told.contains("listen on "), "{told}");
        assert_eq!(world.gateway_pid(), pid);
    }
    // Its own place is no obstacle.
    let own = world.address();
    let port = own.rsplit(':').next().expect("a port");
    let same = text.replace("port: 0", &format!("port: {port}"));
    fs::write(world.config_file(), same).expect("written");
    world.run(["gateway", "restart"]).expect(0);
    assert_eq!(world.address(), own);
}

#[test]
fn logs_are_shown_whatever_the_configuration_holds() {
    let world = some_world();
    world.start_gateway();
    world.run(["gateway", "stop"]).expect(0);
    fs::write(world.config_file(), "{").expect("written");
    let done = world.run(["gateway", "logs"]).expect(0);
    assert!(done.text().contains("the gateway answers"), "{done:?}");
    assert!(done.stderr.contains("gateway.log"), "{}", done.stderr);
    fs::remove_file(world.config_file()).expect("removed");
    assert!(world.run(["gateway", "logs"]).expect(0).text().contains("the gateway answers"));
}

#[test]
fn a_configuration_that_is_not_the_gateways_is_told_in_one_line() {
    let world = some_world();
    world.start_gateway();
    let calls = [&["exec", "a", "--", "true"][..], &["prompt", "a", "hi"], &["gateway", "status"]];
    let check = |world: &World, want: &[&str]| {
        for arguments in calls {
            let told = world.run(arguments).expect(0).stderr;
            assert_eq!(told.lines().count(), usize::from(!want.is_empty()), "{told}");
            assert!(want.iter().all(|it| told.contains(it)), "{arguments:?}: {told}");
        }
    };
    check(&world, &[]);
    let text = fs::read_to_string(world.config_file()).expect("a configuration");
    fs::write(world.config_file(), text.clone() + "\n").expect("written");
    check(&world, &["has changed", "beige gateway restart"]);
    let before = world.get("/api/health").json()["startedAt"].clone();
    signal(world.gateway_pid(), "HUP");
    wait_until("it is read anew", || {
        // Meanwhile it does not listen for a moment.
        let health = world.run(["gateway", "status", "--json"]).json()["health"].clone();
        health["startedAt"].is_string() && health["startedAt"] != before
    });
    assert_eq!(world.run(["exec", "a", "--", "true"]).expect(0).stderr, "");
    let other = world.root.join("other.json5");
    fs::write(&other, text).expect("written");
    let missing = world.root.join("missing.json5");
    for file in [&other, &missing] {
        let file = file.to_str().expect("text");
        let records = world.audit().len();
        for (call, code) in [(&["exec", "a", "--", "true"][..], 125), (&["prompt", "a", "hi"], 78)]
        {
            let told = world.run([&["--config", file][..], call].concat()).expect(code).stderr;
            assert!(told.contains(file) && told.contains("/config.json5"), "{told}");
            assert!(told.contains("beige gateway stop"), "{told}");
        }
        assert_eq!(world.audit().len(), records, "something was run");
    }
    // Not named by anybody, the gateway's own counts.
    let done: Finished = world.bare(["exec", "a", "--", "true"]).output().expect("runs").into();
    assert_eq!(done.expect(0).stderr, "");
    let edited = fs::read_to_string(world.config_file()).expect("a configuration") + "\n";
    fs::write(world.config_file(), edited).expect("written");
    for call in [&["exec", "a", "--json", "--", "true"][..], &["prompt", "a", "--json", "hi"]] {
        let notice = world.run(call).expect(0).json()["notice"].to_string();
        assert!(notice.contains("has changed"), "{notice}");
    }
}
