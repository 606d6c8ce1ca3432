//! `beige doctor`: says what is wrong and how to mend it, and changes nothing.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::support::{
    Answer, Finished, ModelServer, Runtime, World, ask, on_each_runtime, runtimes, signal,
    some_world, wait_until, with_and_without_gateway,
};

/// The report of a doctor that exits with that code.
#[track_caller]
fn report(world: &World, code: i32) -> Value {
    let report = world.run(["doctor", "--json"]).expect(code).json();
    assert_eq!(report["ok"], code == 0, "{report:#}");
    for check in report["checks"].as_array().expect("checks") {
        let (status, fix) = (&check["status"], check["fix"].as_str().unwrap_or_default());
        assert_eq!(status == "ok", fix.is_empty(), "what is not ok names its fix: {check}");
        assert!(!check["found"].as_str().expect("what was found").is_empty(), "{check}");
    }
    report
}

/// Status, what was found, and the fix of the first check of that name.
#[track_caller]
fn check_of(report: &Value, name: &str) -> (String, String, String) {
    let checks = report["checks"].as_array().expect("checks");
    let check = checks.iter().find(|it| it["name"] == name);
    let check = check.unwrap_or_else(|| panic!("no check `{name}` in {report:#}"));
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("found"), text("fix"))
}

#[track_caller]
fn expect(report: &Value, name: &str, status: &str, word: &str) {
    let check = check_of(report, name);
    let told = format!("{} {}", check.1, check.2);
    assert!(check.0 == status && told.contains(word), "{name} {status} {word}: {check:?}");
}

/// Every path below a folder with what a change would change.
fn snapshot(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return lines };
    for path in entries.flatten().map(|it| it.path()) {
        let found = fs::symlink_metadata(&path).expect("metadata");
        let (changed, nanos) = (found.ctime(), found.ctime_nsec());
        lines.push(format!("{} {:o} {changed}.{nanos}", path.display(), found.mode()));
        if found.is_dir() {
            lines.extend(snapshot(&path));
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_sound_home_passes_with_and_without_a_gateway() {
    with_and_without_gateway(|world| {
        world.sh("true").expect(0);
        let report = report(world, 0);
        expect(&report, "config", "ok", "is sound");
        expect(&report, "home", "ok", "is yours");
        expect(&report, "permissions", "ok", "nobody else");
        expect(&report, "provider p", "ok", "cassette reads");
        let (status, found, _) = check_of(&report, "agent a");
        assert!(status != "failure" && found.starts_with(world.runtime.name()), "{found}");
        let text = world.run(["doctor"]).expect(0).text();
        assert!(text.contains("ok       config: "), "{text}");
    });
}

#[test]
fn it_changes_nothing_and_leaves_nothing_behind() {
    on_each_runtime(|world| {
        let before = snapshot(&world.root);
        world.run(["doctor"]).expect(0);
        assert!(!world.home().exists());
        assert_eq!(snapshot(&world.root), before);

        world.start_gateway();
        world.sh("true").expect(0);
        world.run(["doctor"]).expect(0);
        world.run(["gateway", "stop"]).expect(0);
        let before = snapshot(&world.root);
        let doctor = world.spawn(["doctor"]);
        let pid = doctor.id();
        Finished::from(doctor.wait_with_output().expect("it ends")).expect(0);
        assert_eq!(snapshot(&world.root), before);
        if runtimes().contains(&Runtime::Docker) {
            let own = format!("name=beige-doctor-{pid}-");
            assert_eq!(ask("docker", &["ps", "-aq", "--filter", &own]), "");
        }
    });
}

#[test]
fn a_broken_configuration_is_a_finding_and_the_rest_is_still_checked() {
    let world = some_world();
    fs::write(world.config_file(), "{ llm: {}, agents: { a: 1 }, gatewy: {} }").expect("written");
    let report = report(&world, 1);
    let checks = report["checks"].as_array().expect("checks");
    let of_config: Vec<&Value> = checks.iter().filter(|it| it["name"] == "config").collect();
    assert!(of_config.len() >= 3, "{report:#}");
    assert!(of_config.iter().any(|it| it["status"] == "warning"
        && it["found"].as_str().is_some_and(|it| it.contains("did you mean `gateway`?"))));
    expect(&report, "config", "failure", "llm.providers");
    for name in ["home", "gateway", "bubblewrap", "docker"] {
        check_of(&report, name);
    }
    fs::remove_file(world.config_file()).expect("removed");
    expect(&self::report(&world, 1), "config", "failure", "beige setup");
}

#[test]
fn what_others_may_look_into_is_named_and_the_fix_mends_it() {
    let world = some_world();
    world.sh("true").expect(0);
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let log = world.home().join("logs/audit.jsonl");
    chmod(&world.home(), 0o755);
    chmod(&log, 0o644);
    let first = report(&world, 0);
    expect(&first, "permissions", "warning", "audit.jsonl");
    // The doctor mends nothing itself.
    assert_eq!(fs::metadata(&log).expect("metadata").mode() & 0o777, 0o644);
    let fix = check_of(&first, "permissions").2;
    let done = Command::new("sh").args(["-c", fix.trim_matches('`')]).output().expect("sh runs");
    assert!(done.status.success(), "{fix}: {done:?}");
    expect(&report(&world, 0), "permissions", "ok", "nobody else");
}

/// Puts another text in place of one in the configuration.
#[track_caller]
fn replace(world: &World, old: &str, new: &str) {
    let text = fs::read_to_string(world.config_file()).expect("a configuration");
    assert!(text.contains(old), "{text}");
    fs::write(world.config_file(), text.replace(old, new)).expect("written");
}

#[test]
fn a_port_is_free_or_taken_or_our_own() {
    let world = some_world();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    replace(&world, "port: 0", &format!("port: {port}"));
    let (status, found, fix) = check_of(&report(&world, 1), "port");
    assert_eq!(status, "failure", "{found}");
    assert!(found.contains(&port.to_string()) && fix.contains("gateway.port"), "{found} {fix}");
    drop(taken);
    expect(&report(&world, 0), "port", "ok", "is free");
    world.start_gateway();
    let report = report(&world, 0);
    expect(&report, "port", "ok", "own gateway");
    expect(&report, "gateway", "ok", "answers");
}

#[test]
fn a_gateway_that_does_not_answer_is_a_failure() {
    let world = some_world();
    world.sh("true").expect(0);
    // Whoever holds the lock is the gateway of this home.
    let pid_file = File::create(world.home().join("gateway.pid")).expect("a file");
    pid_file.lock().expect("a lock");
    expect(&report(&world, 1), "gateway", "failure", "beige gateway restart");
}

#[test]
fn a_token_that_no_gateway_starts_with_is_a_failure() {
    let world = some_world();
    world.sh("true").expect(0);
    let token = world.home().join("api-token");
    fs::write(&token, "short\n").expect("written");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("a mode");
    expect(&report(&world, 1), "api-token", "failure", "at least 32 characters");
    fs::remove_file(&token).expect("removed");
    expect(&report(&world, 0), "api-token", "ok", "makes one");
}

#[test]
fn a_gateway_with_a_broken_configuration_is_to_be_restarted() {
    let world = some_world();
    world.start_gateway();
    let sound = fs::read_to_string(world.config_file()).expect("a configuration");
    fs::write(world.config_file(), "{").expect("written");
    signal(world.gateway_pid(), "HUP");
    wait_until("it is told", || world.get("/api/health").json()["reloadError"].is_string());
    fs::write(world.config_file(), sound).expect("written");
    let (status, _, fix) = check_of(&report(&world, 0), "gateway");
    assert!(status == "warning" && fix.contains("`beige gateway restart`"), "{status} {fix}");
    assert!(!fix.contains("next call"), "{fix}");
}

#[test]
fn a_workspace_of_root_is_to_be_given_away() {
    let own = fs::metadata("/proc/self").expect("a process list");
    if own.uid() != 0 {
        return;
    }
    on_each_runtime(|world| {
        world.sh("true").expect(0);
        std::os::unix::fs::chown(world.workspace("a"), Some(0), Some(0)).expect("given");
        let (status, found, fix) = check_of(&report(world, 1), "agent a");
        assert!(status == "failure" && found.contains("workspace"), "{found}");
        assert!(fix.contains("`chown -R 10000:10000"), "{fix}");
    });
}

#[test]
fn a_home_too_deep_for_sockets_is_a_failure() {
    let world = some_world();
    let mut command = world.beige(["doctor", "--json"]);
    command.env("BEIGE_HOME", world.root.join("x".repeat(90)));
    let done = Finished::from(command.output().expect("beige runs")).expect(1);
    expect(&done.json(), "sockets", "failure", "107");
}

#[test]
fn a_runtime_that_is_missing_fails_only_where_an_agent_needs_it() {
    let world = some_world();
    let without_docker = |world: &World, code| {
        let mut command = world.beige(["doctor", "--json"]);
        command.env("DOCKER_HOST", "unix:///nonexistent.sock");
        Finished::from(command.output().expect("beige runs")).expect(code).json()
    };
    if world.runtime == Runtime::Bubblewrap {
        expect(&without_docker(&world, 0), "docker", "ok", "bubblewrap does without");
        replace(&world, "runtime: 'bubblewrap'", "runtime: 'auto'");
        let report = without_docker(&world, 0);
        expect(&report, "agent a", check_status(), "since Docker does not answer");
        let (status, ..) = check_of(&report, "docker");
        assert_eq!(status == "warning", runtimes().contains(&Runtime::Docker), "{report:#}");
        replace(&world, "runtime: 'auto'", "runtime: 'docker'");
    }
    let report = without_docker(&world, 1);
    expect(&report, "docker", "failure", "systemctl start docker");
    expect(&report, "agent a", "failure", "Docker");
}

/// A world of bubblewrap on whose PATH a client only complains.
#[track_caller]
fn with_client(program: &str, complaint: &str, runtime: &str, code: i32) -> Option<Value> {
    let world = World::on(Runtime::Bubblewrap)?;
    let client = world.root.join(program);
    let script = format!("#!/bin/sh\necho '{complaint}' >&2\nexit 1\n");
    fs::write(&client, script).expect("written");
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).expect("set");
    replace(&world, "runtime: 'bubblewrap'", &format!("runtime: '{runtime}'"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [world.root.clone()].into_iter().chain(std::env::split_paths(&path));
    let mut command = world.beige(["doctor", "--json"]);
    command.env("PATH", std::env::join_paths(folders).expect("a PATH"));
    Some(Finished::from(command.output().expect("beige runs")).expect(code).json())
}

#[test]
fn an_engine_that_is_here_and_of_no_use_is_told_with_its_own_cure() {
    let closed = "permission denied while trying to connect to /var/run/docker.sock";
    if let Some(report) = with_client("docker", closed, "docker", 1) {
        let (_, found, fix) = check_of(&report, "docker");
        assert!(fix.contains("group `docker`") && !fix.contains("install"), "{fix}");
        assert!(found.contains(closed) && !found.contains("group"), "{found}");
    }
    if let Some(report) = with_client("docker", closed, "bubblewrap", 0) {
        expect(&report, "docker", "ok", "does not work here, and bubblewrap does without");
    }
    let no_ids = "Error: no subuid ranges found for user";
    if let Some(report) = with_client("podman", no_ids, "podman", 1) {
        let (_, _, fix) = check_of(&report, "podman");
        assert!(fix.contains("--add-subuids") && fix.contains("podman system migrate"), "{fix}");
    }
    if let Some(report) = with_client("podman", "odd", "docker", doctor_of_docker()) {
        let (_, found, _) = check_of(&report, "podman");
        assert!(found.starts_with("it does not work here, and no agent needs it"), "{found}");
    }
}

/// How a doctor exits where an agent is Docker's.
fn doctor_of_docker() -> i32 {
    i32::from(!runtimes().contains(&Runtime::Docker))
}

/// Limits without a cgroup are a warning: that is so where we are not root.
fn check_status() -> &'static str {
    let own = fs::metadata("/proc/self").expect("a process list");
    if own.uid() == 0 { "ok" } else { "warning" }
}

#[test]
fn an_image_without_a_shell_or_that_is_not_here_is_told() {
    let Some(world) = World::on(Runtime::Docker) else { return };
    world.configure(&["a"], "image: 'beige-no-such-image:1'");
    let report = report(&world, 1);
    expect(&report, "image beige-no-such-image:1", "warning", "docker pull");
    expect(&report, "agent a", "failure", "not here");
    assert!(check_of(&report, "agent a").2.contains("docker pull"), "{report:#}");
    world.configure(&["a"], "");
    let report = self::report(&world, 0);
    expect(&report, "image beige-sandbox:latest", "ok", "it has sh");
}

#[test]
fn the_hosts_own_network_is_told() {
    let Some(world) = World::on(Runtime::Bubblewrap) else { return };
    replace(&world, "network: 'none'", "network: 'open'");
    replace(&world, "gateway: {", "gateway: { auth: 'token',");
    expect(&report(&world, 0), "agent a", "warning", "host's own network");
}

/// A server that answers one request with these bytes; its address, and what
/// it was asked.
fn server(answer: &'static str) -> (SocketAddr, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|it| it > 0) {
            head.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).expect("answered");
        String::from_utf8_lossy(&head).into_owned()
    });
    (address, asked)
}

const KEY: &str = "sk-never-to-be-seen";

/// A world whose agent asks a server at that address.
fn world_of(address: SocketAddr) -> World {
    let world = some_world();
    let provider =
        format!("{{ api: 'openai-completions', baseUrl: 'http://{address}/v1', apiKey: '{KEY}' }}");
    replace(&world, "{ api: 'replay', cassette: './cassette.jsonl' }", &provider);
    world
}

#[track_caller]
fn check_provider(answer: &'static str, code: i32, status: &str, word: &str) {
    let (address, asked) = server(answer);
    let world = world_of(address);
    let done = world.run(["doctor", "--json"]).expect(code);
    assert!(!done.text().contains(KEY) && !done.stderr.contains(KEY), "{done:?}");
    expect(&done.json(), "provider p", status, word);
    expect(&done.json(), "provider p", status, "the price of m is not known");
    let head = asked.join().expect("a request");
    assert!(head.starts_with("GET /v1/models HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(KEY), "{head}");
}

#[test]
fn a_provider_is_asked_for_its_models() {
    let listed = "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{\"data\":[{\"id\":\"m\"}]}";
    check_provider(listed, 0, "ok", "answers");
    let other = "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{\"data\":[{\"id\":\"o\"}]}";
    check_provider(other, 0, "warning", "does not list m");
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>";
    check_provider(page, 0, "warning", "an HTML page");
    check_provider(page, 0, "warning", "llm.providers.p.baseUrl");
    check_provider("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", 0, "ok", "is reached (404");
    let refused = "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n";
    check_provider(refused, 1, "failure", "llm.providers.p.apiKey");
}

#[test]
fn a_model_that_cools_down_is_told_also_without_a_gateway() {
    let server =
        ModelServer::answering(|_| Answer::error(429, "slow down").header("retry-after", "3600"));
    let world = some_world();
    let before = fs::read(world.config_file()).expect("a configuration");
    world.model_of(&server, "", &world.agent("a", "", ""));
    world.run(["prompt", "a", "go"]).expect(1);
    // The same model, of a provider that is in order.
    fs::write(world.config_file(), before).expect("written");
    let report = world.run(["doctor", "--json"]).json();
    expect(&report, "provider p", "warning", "m is not asked now: it cools down for 3");
    expect(&report, "provider p", "warning", "slow down");
}

#[test]
fn a_server_that_is_not_there_is_a_failure_with_its_fix() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let report = report(&world_of(address), 1);
    expect(&report, "provider p", "failure", "llm.providers.p.baseUrl");
    expect(&report, "provider p", "failure", "the price of m is not known");
    // No proxy is used for it.
    let (_, _, fix) = check_of(&report, "provider p");
    assert!(fix.contains("start the server") && !fix.contains("proxy"), "{fix}");
}

#[test]
fn a_cassette_that_does_not_read_is_a_failure() {
    let world = some_world();
    world.write_cassette(&["nonsense"]);
    let report = report(&world, 1);
    expect(&report, "provider p", "failure", "line 1");
    let checks = report["checks"].as_array().expect("checks");
    assert_eq!(checks.iter().filter(|it| it["status"] == "failure").count(), 1, "{report:#}");
}

#[test]
fn what_lies_in_the_way_of_a_gateway_is_named() {
    let world = some_world();
    fs::create_dir(world.home()).unwrap();
    for name in ["sessions", "logs", "data", "door"] {
        let path = world.home().join(name);
        fs::write(&path, "").unwrap();
        expect(&report(&world, 1), "home", "failure", &format!("{name} is no folder"));
        fs::remove_file(&path).unwrap();
    }
    for name in ["api-token", "gateway.pid"] {
        let path = world.home().join(name);
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        expect(&report(&world, 1), "home", "failure", &format!("{name} is no regular file"));
        fs::remove_file(&path).unwrap();
    }
    expect(&report(&world, 0), "home", "ok", "is yours");
}

#[test]
fn tools_with_the_name_of_a_program_and_plugins_that_are_not_installed_are_told() {
    let world = some_world();
    let folder = world.root.join("curl");
    fs::create_dir_all(&folder).expect("a folder");
    let manifest = r#"{"name": "curl", "tools": [{"name": "curl", "run": ["./tool"]}]}"#;
    fs::write(folder.join("plugin.json"), manifest).expect("written");
    fs::write(folder.join("tool"), "#!/bin/sh\n").expect("written");
    fs::set_permissions(folder.join("tool"), fs::Permissions::from_mode(0o755)).expect("a mode");
    world.write_config(&world.agent("a", "", "").replace("'notes'", "'notes', 'curl'"), "");
    let text = fs::read_to_string(world.config_file()).expect("a configuration");
    let plugins = "plugins: { curl: { path: './curl' },
        gone: { path: './h/plugins/gone', _source: 'npm:gone' },";
    fs::write(world.config_file(), text.replace("plugins: {", plugins)).expect("written");
    let report = world.run(["doctor", "--json"]).json();
    expect(&report, "tools", "ok", "curl stands before the program of that name");
    expect(
        &report,
        "config",
        "warning",
        "it is not installed: a gateway installs it from npm:gone",
    );
    expect(&report, "config", "warning", "start a gateway");
}

/// The report on these plugins.
#[track_caller]
fn report_on(plugins: &str, path: &str) -> Value {
    let world = some_world();
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let text = text.replacen("plugins: { ", &format!("plugins: {{ {plugins}, "), 1);
    fs::write(world.config_file(), text).expect("written");
    let folder = world.root.join("ts");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("plugin.json"), r#"{"name": "ts"}"#).expect("written");
    fs::write(folder.join("index.ts"), "").expect("written");
    let plugins = world.beige(["doctor", "--json"]).env("PATH", path).output().expect("it runs");
    serde_json::from_slice(&plugins.stdout).expect("a report")
}

#[test]
fn a_plugin_whose_program_is_not_there_is_named() {
    let here = std::env::var("PATH").expect("a PATH");
    let report = report_on("fine: { command: ['sh'] }", &here);
    expect(&report, "plugins", "ok", "are there");
    let servers = "ghost: { command: ['beige-no-such-program'] }, gone: { command: ['/no/such'] }, \
                   off: { command: ['beige-no-such-program'], enabled: false }";
    let report = report_on(servers, &here);
    expect(&report, "plugin ghost", "warning", "`beige-no-such-program` is not on PATH");
    expect(&report, "plugin gone", "warning", "`/no/such` is not there");
    let names: Vec<&Value> =
        report["checks"].as_array().expect("checks").iter().map(|it| &it["name"]).collect();
    assert!(!names.iter().any(|it| *it == "plugin off" || *it == "plugins"), "{names:?}");
    let bare = report_on("ts: { path: './ts' }", "/var/empty");
    expect(&bare, "plugin ts", "warning", "node 22.6 or newer");
}
