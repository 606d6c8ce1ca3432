//! What holds in a sandbox whatever makes it: its walls, its bounds, and how
//! calls end when what they run in is taken away under them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::json;

use crate::support::{
    Finished, Runtime, World, agent_ids, on_each_runtime, processes_with, signal, wait_until,
    with_and_without_gateway,
};

#[test]
fn nothing_of_the_host_is_in_it() {
    on_each_runtime(|world| {
        fs::write(world.root.join("secret"), "of the host").unwrap();
        let hidden = [
            world.root.join("secret").display().to_string(),
            world.home().display().to_string(),
            world.config_file().display().to_string(),
            "/var/run/docker.sock".to_owned(),
            "/run/docker.sock".to_owned(),
            "/root/.bashrc".to_owned(),
        ];
        let line =
            format!("for it in {}; do [ -e $it ] && echo $it; done; echo end", hidden.join(" "));
        assert_eq!(world.sh(&line).expect(0).text(), "end\n");
        let done = world.sh("cat /proc/1/environ | tr '\\0' '\\n' | grep -c BEIGE_HOME");
        assert_eq!(done.text().trim(), "0");
    });
}

#[test]
fn only_its_own_places_can_be_written() {
    on_each_runtime(|world| {
        let places = "/tools/bin /tools/packages/notes /beige /usr /usr/bin /etc /dev /";
        let line = format!(
            "for it in {places}; do ls $it >/dev/null || echo no $it; \
             (echo x > $it/planted) 2>/dev/null && echo wrote $it; \
             mv $it/$(ls $it | head -1) /tmp/moved 2>/dev/null && echo moved of $it; done; echo end"
        );
        assert_eq!(world.sh(&line).expect(0).text(), "end\n");
        world.sh("echo x > /tmp/x && echo x > /workspace/x && echo x > ~/y").expect(0);
        let made = fs::metadata(world.workspace("a").join("x")).unwrap();
        assert_eq!((made.uid(), made.gid()), agent_ids());
    });
}

#[test]
fn a_mount_is_as_writable_as_it_was_told() {
    on_each_runtime(|world| {
        for name in ["kept", "free"] {
            let folder = world.root.join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("file"), name).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let root = world.root.display();
        let mounts = format!("'{root}/kept': '/kept:ro', '{root}/free': '/data/free'");
        world.configure(&["a"], &format!("extraMounts: {{ {mounts} }}"));
        assert_eq!(world.sh("cat /kept/file /data/free/file").expect(0).text(), "keptfree");
        world.sh("echo x > /kept/new").expect(2);
        world.sh("echo x > /data/free/new").expect(0);
        assert!(world.root.join("free/new").exists() && !world.root.join("kept/new").exists());
    });
}

#[test]
fn it_has_no_rights_to_speak_of() {
    on_each_runtime(|world| {
        let status = world.sh("cat /proc/self/status").expect(0).text();
        for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(status.contains(line), "{line} in {status}");
        }
        let (user, group) = agent_ids();
        for (name, id) in [("Uid", user), ("Gid", group)] {
            let line = format!("{name}:\t{id}\t{id}\t{id}\t{id}\n");
            assert!(status.contains(&line), "{line} in {status}");
        }
    });
}

#[test]
fn without_a_network_there_is_none() {
    on_each_runtime(|world| {
        world.start_gateway();
        let devices = world.sh("cat /proc/net/dev").expect(0).text();
        let names: Vec<&str> =
            devices.lines().skip(2).filter_map(|it| it.trim().split(':').next()).collect();
        assert_eq!(names.iter().filter(|it| !is_idle_tunnel(it)).collect::<Vec<_>>(), [&"lo"]);
        let address = world.address();
        let (host, port) = address.split_once(':').unwrap();
        let line = format!("curl -s -m 5 http://{host}:{port}/api/health");
        world.sh(&line).expect(7);
    });
}

/// Devices that some kernels put into every new namespace, down.
fn is_idle_tunnel(name: &str) -> bool {
    ["tunl", "gre", "erspan", "ip_vti", "ip6", "sit"].iter().any(|it| name.starts_with(it))
}

#[test]
fn its_processes_are_bounded() {
    on_each_runtime(|world| {
        world.configure(&["a"], "pidsLimit: 40");
        let count = "set -- /proc/[0-9]*; echo $#";
        let line = format!("trap '{count}' EXIT; for i in $(seq 200); do sleep 60 & done");
        let done = world.run(["exec", "a", "--", "sh", "-c", &line]);
        let count: u32 = done.text().trim().parse().expect("a count");
        assert!(done.code != 0 && (20..=41).contains(&count), "{count}, {}", done.stderr);
    });
}

#[test]
fn its_memory_is_bounded() {
    on_each_runtime(|world| {
        world.configure(&["a"], "memoryLimit: '64m'");
        let line = "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}";
        let done = world.sh(line);
        assert!(done.code != 0 && done.stdout.is_empty(), "{done:?}");
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
    });
}

#[test]
fn a_link_leads_to_the_sandboxs_own_file() {
    on_each_runtime(|world| {
        let secret = world.root.join("secret");
        fs::write(&secret, "of the host").unwrap();
        world.start_gateway();
        let line = format!("ln -s /etc x; ln -s {} y; mkdir -p /tmp/z", secret.display());
        world.sh(&line).expect(0);
        let own = world.sh("cat /etc/passwd").expect(0).text();
        let (text, is_error) = world.tool("read", json!({"path": "x/passwd"}));
        assert!(!is_error && own.starts_with(text.lines().next().unwrap()), "{text}");
        assert_ne!(text, fs::read_to_string("/etc/passwd").unwrap());
        let (text, is_error) = world.tool("read", json!({"path": "y"}));
        assert!(is_error && !text.contains("of the host"), "{text}");
        let (_, is_error) = world.tool("write", json!({"path": "y", "content": "x"}));
        assert!(is_error || fs::read_to_string(&secret).unwrap() == "of the host");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "of the host");
    });
}

#[test]
fn fifty_calls_in_a_row_each_have_their_output() {
    on_each_runtime(|world| {
        world.start_gateway();
        for number in 0..50 {
            let (text, _) = world.tool("exec", json!({"command": format!("echo {number}")}));
            assert_eq!(text, format!("Exit code: 0\n{number}\n"));
        }
    });
}

#[test]
fn ten_first_calls_at_once_make_one_sandbox() {
    on_each_runtime(|world| {
        world.start_gateway();
        let results: Vec<String> = thread::scope(|scope| {
            let calls: Vec<_> = (0..10)
                .map(|it| {
                    let params = json!({"command": format!("echo {it}")});
                    scope.spawn(move || world.tool("exec", params).0)
                })
                .collect();
            calls.into_iter().map(|it| it.join().expect("an answer")).collect()
        });
        let want: Vec<String> = (0..10).map(|it| format!("Exit code: 0\n{it}\n")).collect();
        assert_eq!(results, want);
        if world.runtime.makes_containers() {
            world.container();
        }
    });
}

#[test]
fn ten_first_one_shots_at_once_make_one_sandbox() {
    on_each_runtime(|world| {
        let results: Vec<String> = thread::scope(|scope| {
            let call = |it: u32| world.exec(&["echo", &it.to_string()]).expect(0).text();
            let calls: Vec<_> = (0..10).map(|it| scope.spawn(move || call(it))).collect();
            calls.into_iter().map(|it| it.join().expect("an answer")).collect()
        });
        assert_eq!(results, (0..10).map(|it| format!("{it}\n")).collect::<Vec<_>>());
        if world.runtime.makes_containers() {
            world.container();
        }
        world.verify_audit();
    });
}

#[test]
fn a_hundred_timeouts_leave_nothing_in_the_gateway() {
    on_each_runtime(|world| {
        let mut gateway = world.gateway_child();
        timeouts(world, 8);
        let before = settled(&gateway);
        timeouts(world, 100);
        wait_until("all that the calls used is gone", || settled(&gateway) <= before);
        let left = world.sh("cat /proc/[0-9]*/comm | grep -c '^sleep$'");
        assert_eq!(left.text().trim(), "0");
        end(&mut gateway, "TERM");
    });
}

/// Runs so many commands into their timeouts, eight at a time.
fn timeouts(world: &World, count: usize) {
    let call = || {
        let params = json!({"command": "sleep 300 & sleep 300", "timeout": 0.05});
        let (text, is_error) = world.tool("exec", params);
        assert!(is_error && text.contains("timed out after"), "{text}");
    };
    let share = count.div_ceil(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..share).for_each(|_| call()));
        }
    });
}

/// Descriptors and children of a gateway.
fn settled(gateway: &Child) -> (usize, usize) {
    let proc = format!("/proc/{}", gateway.id());
    let descriptors = fs::read_dir(format!("{proc}/fd")).expect("its descriptors").count();
    let threads = fs::read_dir(format!("{proc}/task")).expect("its threads").flatten();
    let children = threads
        .filter_map(|it| fs::read_to_string(it.path().join("children")).ok())
        .map(|it| it.split_whitespace().count())
        .sum();
    (descriptors, children)
}

/// Sends a signal to a child and waits for its end.
fn end(child: &mut Child, signal: &str) -> Option<i32> {
    let status = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
    child.wait().expect("it ends").code()
}

#[test]
fn a_command_that_kills_its_supervisor_gains_nothing() {
    on_each_runtime(|world| {
        let done = world.run(["exec", "a", "--timeout", "30", "--", "sh", "-c", KILL]);
        assert_eq!(done.code, 125, "{}", done.stderr);
        assert!(done.stderr.contains("supervisor was killed"), "{}", done.stderr);
        assert!(done.stderr.contains("not repeated"), "{}", done.stderr);
        wait_until("nothing of it is left", || {
            world.sh("cat /proc/[0-9]*/comm | grep -c '^sleep$'").text().trim() == "0"
        });
    });
}

const KILL: &str = "kill -9 $PPID; sleep 300";

#[test]
fn a_command_that_stops_its_supervisor_is_ended_in_time() {
    on_each_runtime(|world| {
        let line = "kill -STOP $PPID; sleep 300";
        let done = world.run(["exec", "a", "--timeout", "0.3", "--", "sh", "-c", line]);
        assert_eq!(done.code, 124, "{}", done.stderr);
        let left = world.sh("cat /proc/[0-9]*/comm | grep -c '^sleep$'").expect(1);
        assert_eq!(left.text().trim(), "0");
    });
}

#[test]
fn the_end_of_the_sandbox_under_a_call_is_told_and_nothing_is_repeated() {
    with_and_without_gateway(|world| {
        fs::write(world.root.join("mark"), "").unwrap();
        let marker = format!("sleep 3{}", std::process::id());
        let (mut child, _stdout) = started(world, &format!("echo x >> ran; echo ready; {marker}"));
        let why = match world.runtime {
            Runtime::Docker | Runtime::Podman => {
                world.ask(&["kill", &world.container()]);
                "the sandbox was killed"
            }
            Runtime::Bubblewrap => {
                let listed = world.run(["sandbox", "list", "--json"]).expect(0).json();
                let pid = listed[0]["pid"].as_u64().expect("a pid");
                signal(pid.try_into().expect("a pid"), "KILL");
                "its first process has ended"
            }
        };
        let mut stderr = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("read");
        assert_eq!(child.wait().expect("it ends").code(), Some(125), "{stderr}");
        assert!(stderr.contains("not repeated") && stderr.contains(why), "{stderr}");
        let ran = world.workspace("a").join("ran");
        assert_eq!(fs::read_to_string(&ran).unwrap(), "x\n");
        fs::remove_file(ran).unwrap();
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        world.verify_audit();
    });
}

type Started = (Child, BufReader<std::process::ChildStdout>);

/// A line that has said `ready`.
fn started(world: &World, line: &str) -> Started {
    let mut child = world
        .beige(["exec", "a", "--", "sh", "-c", line])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("beige runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut ready = String::new();
    stdout.read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    (child, stdout)
}

#[test]
fn a_gateway_that_is_killed_is_taken_over_and_nothing_is_lost() {
    on_each_runtime(|world| {
        let mut gateway = world.gateway_child();
        let number = format!("4{}", std::process::id());
        let line = format!("(setsid sleep {number} &) ; echo ready; sleep {number}");
        let calls: Vec<Started> = (0..3).map(|_| started(world, &line)).collect();
        let before = (world.runtime.makes_containers()).then(|| world.container());
        end(&mut gateway, "KILL");
        for (mut child, _) in calls {
            assert_ne!(child.wait().expect("it ends").code(), Some(0));
        }
        wait_until("the commands are gone", || {
            processes_with(&format!("sleep\0{number}")).is_empty()
        });
        if let Some(before) = &before {
            assert_eq!(world.state_of(before), "running");
        }
        world.start_gateway();
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        if let Some(before) = before {
            assert_eq!(world.container(), before);
        }
        let sockets = fs::read_dir(world.home().join("sockets/a")).unwrap().flatten();
        let mut sockets: Vec<String> = sockets
            .filter_map(|it| it.file_name().into_string().ok())
            .filter(|it| it.ends_with(".sock"))
            .collect();
        sockets.sort();
        assert_eq!(sockets, ["gateway.sock", "link.sock"]);
        assert_eq!(unfinished(world), 3);
        world.verify_audit();
    });
}

/// Calls that the audit log shows as started and never as finished.
fn unfinished(world: &World) -> usize {
    let records = world.audit();
    let of = |phase: &str| records.iter().filter(|it| it["phase"] == phase).count();
    of("started") - of("finished")
}

#[test]
fn what_is_left_in_the_background_lives_on() {
    with_and_without_gateway(|world| {
        let done = world.sh("(sleep 77 &) ; echo on").expect(0);
        assert_eq!(done.stderr, "");
        let left = world.sh("cat /proc/[0-9]*/comm | grep -c '^sleep$'").text();
        assert_ne!(left.trim(), "0");
    });
}

#[test]
fn host_and_agent_share_a_workspace_whatever_the_umask() {
    on_each_runtime(|world| {
        // Only root can have a workspace of somebody else's.
        let (user, group) = if agent_ids().0 == 10_000 { (1234, 1234) } else { agent_ids() };
        let folder = world.root.join("ws");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&folder, Some(user), Some(group)).unwrap();
        world.write_config(
            &world.agent("a", "", &format!("workspaceDir: '{}',", folder.display())),
            "",
        );
        let line = "umask 077; mkdir d; echo agent > d/agent; id -u";
        let done = strictly(world, &["exec", "a", "--", "sh", "-c", line]);
        assert_eq!(done.expect(0).text(), format!("{user}\n"));
        let host = "umask 077; cat d/agent; echo host > d/host; rm d/agent";
        let (user, group) = (user.to_string(), group.to_string());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &group, "--keep-groups", "sh", "-c", host]);
        let host = Finished::from(command.current_dir(&folder).output().unwrap());
        assert_eq!(host.expect(0).text(), "agent\n");
        let line = "cat d/host && rm d/host && rmdir d";
        let done = strictly(world, &["exec", "a", "--", "sh", "-c", line]);
        assert_eq!(done.expect(0).text(), "host\n");
    });
}

/// Runs `beige` under umask 077.
fn strictly(world: &World, arguments: &[&str]) -> Finished {
    let beige = world.beige(arguments);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(beige.get_program());
    command.args(beige.get_args()).env("BEIGE_HOME", world.home());
    command.output().expect("sh runs").into()
}
