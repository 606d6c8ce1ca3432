//! The daemon: setup, start, stop, status, logs, signals, and what it does to
//! what runs, to a second gateway and to itself after a kill.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::reload::configure_port;
use crate::support::{
    Finished, World, is_alive, on_each_runtime, read_until, signal, some_world, wait_until,
};

#[test]
fn setup_makes_a_home_that_works_at_once() {
    let world = some_world();
    let done: Finished = world.bare(["setup"]).output().expect("beige runs").into();
    assert!(done.expect(0).text().contains("beige exec assistant -- echo hello"));
    let echo = ["exec", "assistant", "--", "echo", "hello"];
    let done: Finished = world.bare(echo).output().expect("beige runs").into();
    assert_eq!(done.expect(0).text(), "hello\n");
    let prompt = ["prompt", "assistant", "Who are you?"];
    let done: Finished = world.bare(prompt).output().expect("beige runs").into();
    let answer = done.expect(0).text();
    assert!(answer.contains("I ran `uname`, `id` and `pwd` in my sandbox"), "{answer}");
}

#[test]
fn setup_never_overwrites() {
    let world = some_world();
    let setup = || Finished::from(world.bare(["setup"]).output().expect("beige runs")).expect(0);
    setup();
    let file = world.home().join("config.json5");
    fs::write(&file, "mine").expect("written");
    assert!(setup().text().contains("left as it is"));
    assert_eq!(fs::read_to_string(&file).expect("readable"), "mine");
}

#[test]
fn setup_tells_of_the_configuration_that_is_there() {
    let world = some_world();
    let setup = |world: &World| {
        Finished::from(world.bare(["setup"]).output().expect("beige runs")).expect(0)
    };
    assert!(setup(&world).text().contains("a recording answers"));
    let real = "{ llm: { providers: { o: { api: 'openai-completions', baseUrl: \
                'http://127.0.0.1:1/v1', apiKey: 'k' } } }, agents: { ada: { model: { provider: 'o', model: \
                'm' }, tools: [] } } }";
    fs::write(world.home().join("config.json5"), real).expect("written");
    let told = setup(&world).text();
    assert!(told.contains("beige exec ada -- echo hello") && !told.contains("recording"), "{told}");
    // Another one that is named is not made, and that is said.
    let named = world.root.join("named.json5");
    let named = named.to_str().expect("text");
    let mut command = world.bare(["setup"]);
    let told = Finished::from(command.env("BEIGE_CONFIG", named).output().expect("beige runs"));
    assert!(told.expect(0).stderr.contains("named.json5"));
    let told = world.bare(["--config", named, "config", "check"]).output().expect("beige runs");
    let told = Finished::from(told).expect(78).text();
    let own = world.home().join("config.json5").display().to_string();
    assert!(told.contains(&format!("`beige setup` makes {own} only")), "{told}");
}

#[test]
fn the_first_start_makes_the_home() {
    let world = some_world();
    let started: Finished = world.bare(["gateway", "start"]).output().expect("beige runs").into();
    assert!(started.stderr.contains("with a first configuration"), "{}", started.stderr);
    assert!(world.home().join("config.json5").exists());
    // Its port is the usual one, which may be in use on this machine.
    assert!(started.code == 0 || started.stderr.contains("listen on 127.0.0.1:7433"));
}

#[test]
fn looking_at_a_gateway_makes_nothing() {
    let world = some_world();
    world.run(["gateway", "status"]).expect(1);
    world.run(["gateway", "stop"]).expect(0);
    assert!(!world.home().exists());
}

#[test]
fn a_bad_configuration_is_told_with_all_findings_and_78() {
    let world = some_world();
    fs::write(world.config_file(), "{ agents: {}, gateway: { port: 'x' } }").expect("written");
    for arguments in [&["gateway", "start"][..], &["gateway", "start", "--foreground"]] {
        let told = world.run(arguments).expect(78).stderr;
        assert!(
            told.contains("config.json5:1:3: agents") && told.contains("gateway.port"),
            "{told}"
        );
    }
    assert!(!world.home().join("api.sock").exists());
}

#[test]
fn a_port_in_use_is_told_before_any_sandbox_is_made() {
    on_each_runtime(|world| {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("an address").port();
        configure_port(world, port);
        let told = world.run(["gateway", "start"]).expect(78).stderr;
        assert!(told.contains(&format!("listen on 127.0.0.1:{port}")), "{told}");
        assert!(told.contains("in use"), "{told}");
        assert!(fs::read_dir(world.home().join("data/sandboxes")).expect("a folder").count() == 0);
        world.run(["gateway", "status"]).expect(1);
        drop(taken);
        world.run(["gateway", "start"]).expect(0);
    });
}

#[test]
fn a_second_gateway_is_refused_and_harms_nothing_of_the_first() {
    on_each_runtime(|world| {
        world.start_gateway();
        let pid = world.gateway_pid();
        world.sh("echo 1 > kept; sleep 300 >/dev/null 2>&1 &").expect(0);
        let before = container(world);
        for arguments in [&["gateway", "start"][..], &["gateway", "start", "--foreground"]] {
            let told = world.run(arguments).expect(78).stderr;
            assert!(told.contains(&format!("another gateway (pid {pid})")), "{told}");
        }
        assert_eq!(container(world), before);
        assert_eq!(world.gateway_pid(), pid);
        assert!(!world.tool("exec", json!({"command": "cat kept; notes list"})).1);
    });
}

/// Id of this world's container; `None` on a runtime that has none.
fn container(world: &World) -> Option<String> {
    let listed = world.run(["sandbox", "list", "--json"]).expect(0).json();
    let found = listed.get(0)?["id"].as_str().map(str::to_owned);
    assert!(listed.get(1).is_none(), "{listed}");
    found
}

#[test]
fn a_stop_lets_what_runs_end_and_lets_nothing_new_in() {
    on_each_runtime(|world| {
        world.start_gateway();
        let pid = world.gateway_pid();
        let (mut call, mut output) = started(world, "echo ready; read line; echo \"$line\"");
        let mut stop = world.spawn(["gateway", "stop"]);
        wait_until("it drains", || world.get("/api/health").json()["status"] == "draining");
        let body = json!({"tool": "exec", "params": {"command": "true"}});
        let refused = world.post("/api/agents/a/exec", &body);
        assert_eq!(refused.status, 503, "{}", refused.text());
        // A one-shot does it alone meanwhile.
        assert_eq!(world.sh("echo alone").expect(0).text(), "alone\n");
        assert!(is_alive(pid) && stop.try_wait().expect("a child").is_none());
        writeln!(call.stdin.take().expect("a pipe"), "the end").expect("written");
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("read");
        assert_eq!((rest.as_str(), call.wait().expect("it ends").code()), ("the end\n", Some(0)));
        Finished::from(stop.wait_with_output().expect("it ends")).expect(0);
        wait_until("it is gone", || !is_alive(pid));
        assert!(!world.api_socket().exists());
        world.run(["gateway", "status"]).expect(1);
        world.verify_audit();
    });
}

/// A one-shot that has said `ready`, its input open.
pub(crate) fn started(world: &World, line: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = world.spawn(["exec", "a", "--", "sh", "-c", line]);
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    read_until(&mut output, "ready");
    (child, output)
}

#[test]
fn a_second_signal_calls_off_what_runs() {
    on_each_runtime(|world| {
        let mut gateway = world.gateway_child();
        let (call, _output) = started(world, "trap '' TERM; echo ready; sleep 300 & wait");
        signal(gateway.id(), "TERM");
        wait_until("it drains", || world.get("/api/health").json()["status"] == "draining");
        signal(gateway.id(), "TERM");
        assert_eq!(gateway.wait().expect("it ends").code(), Some(0), "{}", world.gateway_log());
        let call = Finished::from(call.wait_with_output().expect("it ends"));
        assert_ne!(call.code, 0);
        let told = "beige exec: the gateway stopped and called the command off\n";
        assert!(call.stderr.ends_with(told), "{}", call.stderr);
        assert_eq!(world.sh("cat /proc/[0-9]*/comm | grep -c '^sleep$'").text().trim(), "0");
        let last = world.audit().pop().expect("records");
        world.verify_audit();
        assert_eq!(last["phase"], "finished");
    });
}

/// A turn whose command waits for what is returned.
fn turn(world: &World) -> (Child, fs::File) {
    world.write_cassette(&[
        r#"{"events":[{"toolCall":{"name":"exec","arguments":{"command":"cat hold"}}}]}"#,
        r#"{"events":[{"text":"answered"}]}"#,
    ]);
    world.sh("mkfifo hold; chmod 666 hold").expect(0);
    let prompt = world.spawn(["prompt", "a", "hi"]);
    // Opening it for writing returns once the command reads.
    let hold = fs::File::options().write(true).open(world.workspace("a").join("hold"));
    (prompt, hold.expect("the command opens it"))
}

#[test]
fn a_stop_lets_a_turn_end() {
    on_each_runtime(|world| {
        world.start_gateway();
        let (prompt, mut hold) = turn(world);
        let mut stop = world.spawn(["gateway", "stop"]);
        wait_until("it drains", || world.get("/api/health").json()["status"] == "draining");
        assert_eq!(world.get("/api/health").json()["running"], 1);
        assert!(stop.try_wait().expect("a child").is_none());
        hold.write_all(b"go\n").expect("written");
        drop(hold);
        let done = Finished::from(prompt.wait_with_output().expect("it ends"));
        assert_eq!(done.expect(0).text(), "answered\n");
        Finished::from(stop.wait_with_output().expect("it ends")).expect(0);
    });
}

#[test]
fn a_second_signal_calls_off_a_turn() {
    on_each_runtime(|world| {
        let mut gateway = world.gateway_child();
        let (mut prompt, _hold) = turn(world);
        signal(gateway.id(), "TERM");
        wait_until("it drains", || world.get("/api/health").json()["status"] == "draining");
        signal(gateway.id(), "TERM");
        assert_eq!(gateway.wait().expect("it ends").code(), Some(0), "{}", world.gateway_log());
        assert_ne!(prompt.wait().expect("it ends").code(), Some(0));
        world.verify_audit();
    });
}

#[test]
fn a_restart_is_another_process() {
    let world = some_world();
    world.start_gateway();
    let first = world.gateway_pid();
    world.run(["gateway", "restart"]).expect(0);
    assert_ne!(world.gateway_pid(), first);
    wait_until("the first is gone", || !is_alive(first));
    assert_eq!(world.sh("echo hi").expect(0).text(), "hi\n");
}

#[test]
fn status_says_whether_it_runs() {
    let world = some_world();
    let told = world.run(["gateway", "status", "--json"]).expect(1).json();
    assert_eq!((&told["running"], &told["pid"]), (&json!(false), &json!(null)));
    world.start_gateway();
    let told = world.run(["gateway", "status", "--json"]).expect(0).json();
    assert_eq!((&told["running"], &told["health"]["status"]), (&json!(true), &json!("ok")));
    assert_eq!(
        told["health"]["address"].as_str().map(|it| it.starts_with("127.0.0.1:")),
        Some(true)
    );
    let told = world.run(["gateway", "status"]).expect(0).text();
    assert!(told.contains("1 agent, ") && told.contains(" with a sandbox ready"), "{told}");
    world.run(["gateway", "stop"]).expect(0);
    world.run(["gateway", "stop"]).expect(0);
    world.run(["gateway", "status"]).expect(1);
}

#[test]
fn a_stale_pid_file_is_nobody_whoever_has_that_id_now() {
    let world = some_world();
    let mut gateway = world.gateway_child();
    gateway.kill().expect("killed");
    gateway.wait().expect("it ends");
    world.run(["gateway", "status"]).expect(1);
    let mut innocent = Command::new("sleep").arg("300").spawn().expect("sleep runs");
    fs::write(world.home().join("gateway.pid"), format!("{} gateway\n", innocent.id()))
        .expect("written");
    world.run(["gateway", "status"]).expect(1);
    world.run(["gateway", "stop"]).expect(0);
    world.start_gateway();
    world.run(["gateway", "stop"]).expect(0);
    assert!(innocent.try_wait().expect("a child").is_none(), "it was no gateway");
    innocent.kill().and_then(|()| innocent.wait()).expect("it ends");
}

#[test]
fn logs_shows_the_newest_lines_and_follows() {
    let world = some_world();
    world.start_gateway();
    let all = world.run(["gateway", "logs"]).expect(0).text();
    let two = world.run(["gateway", "logs", "-n", "2"]).expect(0).text();
    assert!(all.contains("the gateway answers") && all.ends_with(&two), "{all}");
    assert_eq!(two.lines().count(), 2.min(all.lines().count()));
    let mut follow = world.spawn(["gateway", "logs", "-f", "-n", "0"]);
    let mut lines = BufReader::new(follow.stdout.take().expect("a pipe"));
    wait_until("it follows", || has_open(follow.id(), "gateway.log"));
    world.run(["gateway", "stop"]).expect(0);
    read_until(&mut lines, "the gateway has stopped");
    signal(follow.id(), "TERM");
    follow.wait().expect("it ends");
}

/// Whether a process has a file of that name open.
fn has_open(pid: u32, name: &str) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().filter_map(|it| fs::read_link(it.path()).ok()).any(|it| it.ends_with(name))
}

#[test]
fn in_the_foreground_it_logs_to_standard_error_and_ends_by_signal() {
    let world = some_world();
    for (name, code) in [("TERM", 0), ("INT", 130)] {
        let mut gateway = world.spawn(["gateway", "start", "--foreground"]);
        let mut log = BufReader::new(gateway.stderr.take().expect("a pipe"));
        read_until(&mut log, "the gateway answers");
        assert_eq!(world.gateway_pid(), gateway.id());
        signal(gateway.id(), name);
        read_until(&mut log, "the gateway has stopped");
        assert_eq!(gateway.wait().expect("it ends").code(), Some(code));
    }
}

#[test]
fn systemd_is_told() {
    let world = some_world();
    let path = world.root.join("notify");
    let heard = UnixDatagram::bind(&path).expect("a socket");
    told_to(&world, path.to_str().expect("text"), &heard);
    let name = format!("beige-suite-{}", std::process::id());
    let address = {
        use std::os::linux::net::SocketAddrExt;
        std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name")
    };
    let heard = UnixDatagram::bind_addr(&address).expect("a socket");
    told_to(&world, &format!("@{name}"), &heard);
}

fn told_to(world: &World, name: &str, heard: &UnixDatagram) {
    heard.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("a timeout");
    let mut command = world.beige(["gateway", "start", "--foreground"]);
    command.env("NOTIFY_SOCKET", name).stderr(Stdio::null());
    let mut gateway = command.spawn().expect("beige runs");
    let mut word = [0; 256];
    let mut next = || {
        let count = heard.recv(&mut word).expect("a word");
        String::from_utf8_lossy(&word[..count]).into_owned()
    };
    assert_eq!(next(), "READY=1");
    // It does answer now.
    assert_eq!(world.get("/api/health").status, 200);
    signal(gateway.id(), "TERM");
    assert_eq!(next(), "STOPPING=1");
    gateway.wait().expect("it ends");
}

#[test]
fn a_killed_gateway_is_followed_by_one_that_takes_everything_over() {
    on_each_runtime(|world| {
        let mut gateway = world.gateway_child();
        world.sh("echo kept > kept; notes add one").expect(0);
        let before = container(world);
        let (mut call, _output) = started(world, "echo ready; sleep 300");
        gateway.kill().and_then(|()| gateway.wait()).expect("killed");
        assert_eq!(call.wait().expect("it ends").code(), Some(125));
        assert!(world.api_socket().exists(), "the kill left its socket");
        world.start_gateway();
        assert_eq!(world.sh("cat kept; notes list").expect(0).text().lines().count(), 2);
        wait_until("nothing of the dead call is left", || {
            world.sh("cat /proc/[0-9]*/comm | grep -c '^sleep$'").text().trim() == "0"
        });
        assert_eq!(container(world), before, "the container was taken over");
        let begun = |it: &&serde_json::Value| it["phase"] == "started";
        let all = world.audit();
        let lost = all.iter().filter(begun).filter(|begun| {
            !all.iter().any(|it| it["phase"] == "finished" && it["id"] == begun["id"])
        });
        let lost: Vec<_> = lost.map(|it| it["args"][2].to_string()).collect();
        assert_eq!(lost, ["\"echo ready; sleep 300\""], "the call that was cut still shows");
        world.verify_audit();
    });
}

#[test]
fn the_token_is_in_no_argument_list_and_no_log() {
    on_each_runtime(|world| {
        let mut command = world.beige(["gateway", "start", "--foreground"]);
        command.env("BEIGE_LOG", "trace").process_group(0);
        let log = fs::File::create(world.root.join("gateway.err")).expect("a file");
        let mut gateway = command.stderr(log).spawn().expect("beige runs");
        world.wait_until_it_answers();
        assert_eq!(world.get("/api/health").status, 200);
        let token = fs::read_to_string(world.home().join("api-token")).expect("a token");
        let token = token.trim();
        // The agent gets it from somewhere and shows it.
        let (mut call, _output) = started(world, "echo ready; sleep 300");
        let lines = command_lines();
        assert!(lines.iter().any(|it| it.contains("sleep 300")), "the call is seen");
        assert!(lines.iter().all(|it| !it.contains(token)));
        signal(call.id(), "TERM");
        call.wait().expect("it ends");
        let said = world.tool("exec", json!({"command": format!("echo {token}")})).0;
        assert!(!said.contains(token), "{said}");
        signal(gateway.id(), "TERM");
        gateway.wait().expect("it ends");
        for name in ["audit.jsonl", "gateway.log"] {
            let text = fs::read_to_string(world.home().join("logs").join(name)).unwrap_or_default();
            assert!(!text.contains(token), "{name}: {text}");
        }
        assert!(!world.gateway_log().contains(token));
    });
}

/// The argument lists of all processes of this machine.
fn command_lines() -> Vec<String> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let texts = all.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    texts.map(|it| String::from_utf8_lossy(&it).replace('\0', " ")).collect()
}

#[test]
fn modes_are_tight_whatever_the_umask() {
    for umask in ["000", "077"] {
        let world = some_world();
        let beige = |arguments: &[&str]| {
            let mut command = world.beige(arguments);
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("umask {umask}; exec \"$@\"")).arg("sh");
            shell.arg(command.get_program()).args(command.get_args());
            shell.env("BEIGE_HOME", world.home()).stdin(Stdio::null());
            command = shell;
            Finished::from(command.output().expect("sh runs")).expect(0)
        };
        beige(&["exec", "a", "--", "notes", "add", "one"]);
        beige(&["gateway", "start"]);
        beige(&["exec", "a", "--", "sh", "-c", "notes add two; touch made"]);
        beige(&["prompt", "a", "hi"]);
        check_modes(&world);
        beige(&["gateway", "stop"]);
        check_modes(&world);
    }
}

/// 0700 and 0600, but for what a sandbox sees.
fn check_modes(world: &World) {
    let listing = Command::new("find")
        .arg(world.home())
        .args(["-printf", "%y %m %P\n"])
        .output()
        .expect("find runs");
    let listing = String::from_utf8(listing.stdout).expect("text");
    let loose: Vec<&str> = listing
        .lines()
        .filter(|line| {
            let mut words = line.splitn(3, ' ');
            let (kind, mode) = (words.next().unwrap(), words.next().unwrap());
            let path = words.next().unwrap();
            let mode = u32::from_str_radix(mode, 8).expect("a mode");
            let mounted = [
                "sockets/",
                "agents/a/launchers",
                "agents/a/etc",
                "data/packages/",
                "data/skills/",
                "data/tool-client/",
            ];
            let seen = mounted.iter().any(|it| path.starts_with(it));
            let own = path.starts_with("agents/a/workspace");
            kind != "l"
                && !own
                && if seen { mode & 0o022 != 0 && kind != "s" } else { mode & 0o077 != 0 }
        })
        .collect();
    assert!(loose.is_empty(), "{loose:#?}");
    assert!(listing.lines().count() > 15, "{listing}");
}

#[test]
fn a_start_says_where_it_answers() {
    let world = some_world();
    let told = world.run(["gateway", "start"]).expect(0).text();
    let place = format!("on http://{}", world.address());
    assert!(told.trim_end().ends_with(&place), "{told}");
    let status = world.run(["gateway", "status"]).expect(0).text();
    assert!(status.contains(&place) && status.contains("1 agent, "), "{status}");
    assert!(world.gateway_log().contains(&place));
}

/// Has a stopped process go on when it goes out of scope.
struct GoesOn(u32);

impl Drop for GoesOn {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

#[test]
fn a_gateway_that_does_not_answer_holds_nobody() {
    let world = some_world();
    let mut gateway = world.gateway_child();
    let pid = gateway.id();
    signal(pid, "STOP");
    let goes_on = GoesOn(pid);
    let calls = [
        (&["gateway", "status"][..], 1),
        (&["gateway", "status", "--json"], 1),
        (&["exec", "a", "--", "true"], 125),
        (&["prompt", "a", "hi"], 1),
    ];
    let held = world.spawn(["exec", "a", "--", "true"]);
    signal(held.id(), "TERM");
    let running: Vec<Child> = calls.iter().map(|it| world.spawn(it.0)).collect();
    assert_eq!(Finished::from(held.wait_with_output().expect("it ends")).code, 143);
    for (child, (arguments, code)) in running.into_iter().zip(calls) {
        let done = Finished::from(child.wait_with_output().expect("it ends")).expect(code);
        if arguments.contains(&"--json") {
            let told = done.json();
            assert_eq!((&told["running"], &told["answers"]), (&json!(true), &json!(false)));
            continue;
        }
        let told = done.text() + &done.stderr;
        let want = format!("the gateway (pid {pid}) does not answer");
        assert!(told.contains(&want), "{arguments:?}: {told}");
        assert!(told.contains(&format!("`kill -9 {pid}`")), "{arguments:?}: {told}");
    }
    drop(goes_on);
    signal(pid, "TERM");
    gateway.wait().expect("it ends");
}

#[test]
fn a_command_that_hangs_in_a_stopped_gateway_ends_by_a_signal() {
    let world = some_world();
    let mut gateway = world.gateway_child();
    let (mut call, _output) = started(&world, "echo ready; sleep 600.25");
    signal(gateway.id(), "STOP");
    let goes_on = GoesOn(gateway.id());
    // The second one calls it off.
    signal(call.id(), "TERM");
    signal(call.id(), "TERM");
    assert_eq!(call.wait().expect("it ends").code(), Some(125));
    drop(goes_on);
    signal(gateway.id(), "TERM");
    gateway.wait().expect("it ends");
}

#[test]
fn a_runtime_that_does_not_work_is_told() {
    let world = World::new(crate::support::Runtime::Docker);
    let mut command = world.beige(["gateway", "start"]);
    command.env("DOCKER_HOST", "unix:///nonexistent.sock");
    Finished::from(command.output().expect("beige runs")).expect(0);
    wait_until("it is told", || {
        let degraded = world.get("/api/health").json()["degraded"].to_string();
        degraded.contains("sandbox of `a`") && degraded.contains("Docker")
    });
    let told = world.run(["gateway", "status"]).expect(0).text();
    assert!(told.contains("degraded: ") && told.contains("0 with a sandbox ready"), "{told}");
    let log = world.gateway_log();
    assert!(log.contains(" WARN ") && log.contains("sandbox of `a`"), "{log}");
}

#[test]
fn before_the_first_log_it_says_so() {
    let world = some_world();
    let told = world.run(["gateway", "logs"]).expect(1).stderr;
    assert!(told.contains("there is no log yet"), "{told}");
}
