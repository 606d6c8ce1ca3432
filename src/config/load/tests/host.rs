//! What a configuration asks of its host, and what it must stay out of.

use super::*;

#[test]
fn memory_and_processors_are_lowered_to_what_the_host_has() {
    let case = Case::new();
    let memory = |value: Value| {
        case.config(&with("/agents/a/sandbox", value)).agents["a"].sandbox.memory_bytes
    };
    assert_eq!(memory(json!({"memoryLimit": "512m"})), 512 << 20);
    assert_eq!(memory(json!({"memoryLimit": 16_777_216})), 16 << 20);
    assert_eq!(memory(json!({"memoryLimit": "100g"})), 6 << 30);
    check_warned("/agents/a/sandbox", json!({"memoryLimit": "100g"}), "lowered to 6144 MiB");
    for size in [json!("15m"), json!(1), json!("x"), json!(-1)] {
        let expected = if size == json!(-1) { "at least 0" } else { "at least 16m" };
        check_refused("/agents/a/sandbox", json!({"memoryLimit": size}), expected);
    }
    check_warned("/agents/a/sandbox", json!({"cpus": 64}), "lowered to 4");
    check_accepted("/agents/a/sandbox", json!({"cpus": 0.5}));
    let small = Surroundings { memory_bytes: Some(1 << 30), ..surroundings() };
    let file = case.folder.write("config.json5", sample().to_string().as_bytes());
    let loaded =
        load_in(&file, &case.home, &small).map(|it| it.config.agents["a"].sandbox.memory_bytes);
    assert_eq!(loaded.ok(), Some(768 << 20));
}

#[test]
fn root_needs_a_container() {
    let runtime = |value: Value| {
        Case::new().config(&with("/agents/a/sandbox", value)).agents["a"].sandbox.runtime
    };
    assert_eq!(runtime(json!({"user": "root"})), RuntimeChoice::Auto);
    assert_eq!(runtime(json!({"user": "root", "runtime": "podman"})), RuntimeChoice::Podman);
    assert_eq!(runtime(json!({"user": "root", "runtime": "docker"})), RuntimeChoice::Docker);
    assert_eq!(runtime(json!({"user": "1000:1000"})), RuntimeChoice::Auto);
    let both = json!({"user": "root", "runtime": "bubblewrap"});
    check_refused("/agents/a/sandbox", both, "`root` is for Docker and Podman only");
    check_refused("/agents/a/sandbox", json!({"user": "0:0"}), "write `root`");
    check_refused("/agents/a/sandbox", json!({"user": "me"}), "expected host, root or");
}

#[test]
fn an_api_without_a_token_is_for_this_host_alone() {
    for host in ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"] {
        check_accepted("/gateway", json!({"auth": "none", "host": host}));
    }
    for host in ["0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example"] {
        check_refused("/gateway", json!({"auth": "none", "host": host}), "needs a loopback `host`");
    }
    for host in ["127.0.0.1:80", "http://x", "a b", "x/y"] {
        check_refused("/gateway", json!({"host": host}), "without a port");
        check_refused("/gateway", json!({"allowedHosts": [host]}), "gateway.allowedHosts[0]");
    }
}

#[test]
fn an_agent_on_the_hosts_network_needs_the_token_too() {
    let config = |runtime: &str, network: &str| {
        let mut config = with("/gateway", json!({"auth": "none"}));
        config["agents"]["a"]["sandbox"] = json!({"runtime": runtime, "network": network});
        Case::new().findings(config.to_string().as_bytes())
    };
    for runtime in ["auto", "bubblewrap"] {
        assert!(
            config(runtime, "open").contains("agents.a.sandbox.network: `open` is the host's own")
        );
        assert_eq!(config(runtime, "none"), "");
    }
    assert_eq!(config("docker", "open"), "");
}

#[test]
fn workspaces_and_mounts_stay_out_of_what_is_ours() -> std::io::Result<()> {
    let case = Case::new();
    case.folder.folder("home/sessions");
    case.folder.folder("ok");
    symlink(case.home.root(), case.folder.path().join("link"))?;
    let check = |sandbox: Value, workspace: Value, expected: &str| {
        let mut config = with("/agents/a/sandbox", sandbox);
        config["agents"]["a"]["workspaceDir"] = workspace;
        let findings = case.findings(config.to_string().as_bytes());
        assert!(
            findings.contains(expected) && findings.is_empty() == expected.is_empty(),
            "{findings}"
        );
    };
    check(json!({}), json!("home"), "./home is the state folder");
    check(json!({}), json!("link/sessions"), "./home/sessions lies in the state folder");
    check(json!({}), json!("link/new/er"), "./home/new/er lies in the state folder");
    check(json!({}), json!("."), ". contains the state folder");
    check(json!({}), json!("ok/../../../../../../../.."), "/ contains /proc");
    check(json!({}), json!("/"), "/ contains /proc");
    check(json!({}), json!("config.json5/ws"), "./config.json5 is not a folder");
    check(json!({}), json!("link/agents/a/workspace"), "");
    let ok = json!("ok");
    check(json!({"extraMounts": {"link": "/x"}}), ok.clone(), "./home is the state folder");
    check(json!({"extraMounts": {"none": "/x"}}), ok.clone(), "./none does not exist");
    check(json!({"extraMounts": {"/dev": "/x"}}), ok.clone(), "/dev is /dev");
    check(json!({"extraMounts": {"ok": "/tools/x"}}), ok.clone(), "may not be or lie under /tools");
    check(
        json!({"extraMounts": {"ok": "/x:ro", "./ok": "/x"}}),
        ok.clone(),
        "another mount stands at /x",
    );
    check(json!({"extraMounts": {"ok": "/x:ro"}}), ok, "");
    Ok(())
}

#[test]
fn two_agents_with_one_workspace_are_a_warning() {
    let mut config = with("/agents/a/workspaceDir", json!("ws"));
    config["agents"]["b"] = config["agents"]["a"].clone();
    config["agents"]["b"]["workspaceDir"] = json!("./x/../ws/");
    let findings = Case::new().findings(config.to_string().as_bytes());
    assert!(
        findings
            .contains("warning: agents.b.workspaceDir: the agents `a` and `b` have one workspace"),
        "{findings}"
    );
}

#[test]
fn the_log_lies_out_of_an_agents_reach() {
    let mut config = with("/agents/a/workspaceDir", json!("ws"));
    config["gateway"] = json!({"logFile": "ws/x.log"});
    let findings = Case::new().findings(config.to_string().as_bytes());
    assert!(findings.contains("gateway.logFile: the log would lie in ./ws"), "{findings}");
}

#[test]
fn a_home_too_long_for_a_socket_is_named() {
    let case = Case::new();
    let home = Home::new(format!("/{}", "h".repeat(100)));
    let file = case.folder.write("config.json5", sample().to_string().as_bytes());
    let report = examine(&file, &home, &surroundings()).report.to_string();
    assert!(
        report.contains("agents.a: a socket of this agent would have a path of 128 bytes"),
        "{report}"
    );
    assert!(report.contains("set BEIGE_HOME to a shorter path than /hhh"), "{report}");
    // 107 bytes with the longest name of a socket, and one more.
    let fixed = "//sockets/a/cli-4194304.sock".len();
    for (length, is_sound) in [(107 - fixed, true), (108 - fixed, false)] {
        let home = Home::new(format!("/{}", "h".repeat(length)));
        assert_eq!(examine(&file, &home, &surroundings()).sound.is_some(), is_sound);
    }
}
