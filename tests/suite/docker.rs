//! Container engines from outside: containers are taken over, started again,
//! made anew and reaped as the configuration wants them, and never another
//! home's; and which of the engines an agent gets.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{Finished, Runtime, World, ask, runtimes, wait_until};

fn with_docker(check: impl Fn(&World)) {
    if let Some(world) = World::on(Runtime::Docker) {
        check(&world);
    }
}

fn with_podman(check: impl Fn(&World)) {
    if let Some(world) = World::on(Runtime::Podman) {
        check(&world);
    }
}

fn with_each_engine(check: impl Fn(&World)) {
    with_docker(&check);
    eprintln!("with podman");
    with_podman(check);
}

#[test]
fn a_stop_stops_all_containers_and_keeps_them() {
    with_each_engine(|world| {
        world.configure(&["a", "b", "c"], "");
        let mut gateway = world.gateway_child();
        for agent in ["a", "b", "c"] {
            world.run(["exec", agent, "--", "true"]).expect(0);
        }
        let before = world.containers();
        assert_eq!(before.len(), 3);
        let id = gateway.id().to_string();
        assert!(Command::new("kill").arg(&id).status().expect("kill runs").success());
        assert_eq!(gateway.wait().expect("it ends").code(), Some(0));
        assert!(before.iter().all(|it| world.state_of(it) == "exited"));
        let text = world.run(["sandbox", "list"]).expect(0).text();
        assert!(text.matches(" Stopped ").count() == 3 && !text.contains("Exited"), "{text}");
        world.start_gateway();
        wait_until("they run again", || before.iter().all(|it| world.state_of(it) == "running"));
        let mut after = world.containers();
        after.sort();
        let mut before = before;
        before.sort();
        assert_eq!(after, before);
    });
}

#[test]
fn two_homes_with_an_agent_of_one_name_share_nothing() {
    with_each_engine(|one| {
        let other = World::new(one.runtime);
        one.sh("echo one > mine; sleep 300 &").expect(0);
        other.sh("echo other > mine").expect(0);
        assert_eq!(one.sh("cat mine").expect(0).text(), "one\n");
        assert_ne!(one.container(), other.container());
        other.run(["sandbox", "rm"]).expect(0);
        assert_eq!(other.containers(), [] as [String; 0]);
        assert_eq!(one.state_of(&one.container()), "running");
    });
}

#[test]
fn a_container_that_was_killed_paused_or_stopped_serves_the_next_call() {
    with_each_engine(|world| {
        world.start_gateway();
        world.sh("true").expect(0);
        let container = world.container();
        for act in [&["kill"][..], &["pause"], &["stop", "-t", "0"]] {
            world.ask(&[act, &[&container]].concat());
            assert_eq!(world.sh("echo on").expect(0).text(), "on\n", "{act:?}");
            assert_eq!(world.container(), container, "{act:?}");
        }
        world.ask(&["rm", "-f", &container]);
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
    });
}

#[test]
fn another_mount_or_image_makes_the_container_anew() {
    with_each_engine(|world| {
        let image = Image::new(world);
        let folder = world.root.join("more");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "more").unwrap();
        let first = restarted(world, &format!("image: '{}'", image.name));
        assert_eq!(restarted(world, &format!("image: '{}'", image.name)), first);
        let mounted = format!(
            "image: '{}', extraMounts: {{ '{}': '/more:ro' }}",
            image.name,
            folder.display()
        );
        let second = restarted(world, &mounted);
        assert_ne!(second, first);
        assert_eq!(world.sh("cat /more/file").expect(0).text(), "more");
        image.change("two");
        let third = restarted(world, &mounted);
        assert_ne!(third, second);
        assert_ne!(restarted(world, ""), third);
        world.run(["sandbox", "rm"]).expect(0);
    });
}

/// Restarts the gateway with that configuration and gives the id of the
/// container that serves.
fn restarted(world: &World, sandbox: &str) -> String {
    world.configure(&["a"], sandbox);
    world.run(["gateway", "stop"]);
    world.start_gateway();
    world.sh("true").expect(0);
    world.container()
}

/// An image of this test's own, gone with the value.
struct Image {
    name: String,
    engine: &'static str,
}

impl Image {
    fn new(world: &World) -> Self {
        // The default image is made by whoever needs it first.
        world.sh("true").expect(0);
        let name = world.root.file_name().unwrap().to_string_lossy().into_owned();
        let image =
            Self { name: format!("localhost/beige-suite:{name}"), engine: world.runtime.name() };
        image.change("one");
        image
    }

    /// Gives the name to another image.
    fn change(&self, label: &str) {
        let made = ask(self.engine, &["create", "beige-sandbox:latest", "/bin/sh"]);
        let change = format!("LABEL suite={label}");
        ask(self.engine, &["commit", "--change", &change, &made, &self.name]);
        ask(self.engine, &["rm", &made]);
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new(self.engine).args(["rmi", "-f", &self.name]).output();
    }
}

#[test]
fn an_agent_that_left_the_configuration_loses_its_container() {
    with_each_engine(|world| {
        world.configure(&["a", "b"], "");
        for agent in ["a", "b"] {
            world.run(["exec", agent, "--", "true"]).expect(0);
        }
        assert_eq!(world.containers().len(), 2);
        world.configure(&["a"], "");
        world.start_gateway();
        wait_until("the other is gone", || world.containers().len() == 1);
        world.sh("true").expect(0);
        assert_eq!(agents(world), ["a"]);
        assert!(world.workspace("b").exists());
    });
}

/// The agents of `sandbox list --json`.
fn agents(world: &World) -> Vec<String> {
    let listed = world.run(["sandbox", "list", "--json"]).expect(0).json();
    let rows = listed.as_array().expect("an array");
    rows.iter().map(|it| it["agent"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn sandboxes_are_listed_and_removed() {
    with_each_engine(|world| {
        assert_eq!(agents(world), [] as [&str; 0]);
        world.configure(&["a", "b"], "");
        for agent in ["a", "b"] {
            world.run(["exec", agent, "--", "sh", "-c", "echo x > kept"]).expect(0);
        }
        let mut listed = agents(world);
        listed.sort();
        assert_eq!(listed, ["a", "b"]);
        let text = world.run(["sandbox", "list"]).expect(0).text();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.starts_with("AGENT  RUNTIME  STATUS"), "{text}");
        world.run(["sandbox", "rm", "a"]).expect(0);
        assert_eq!(agents(world), ["b"]);
        let wrong = world.run(["sandbox", "rm", "nobody"]).expect(1);
        assert!(wrong.stderr.contains("nobody"), "{}", wrong.stderr);
        world.run(["sandbox", "rm"]).expect(0);
        assert_eq!(agents(world), [] as [&str; 0]);
        assert_eq!(world.sh("cat kept").expect(0).text(), "x\n");
        // One that somebody else removed is not said to be removed now.
        world.ask(&["rm", "-f", &world.container()]);
        let done = world.run(["sandbox", "rm", "a"]).expect(0);
        assert_eq!((done.text().as_str(), done.stderr.as_str()), ("", "no sandboxes\n"));
    });
}

#[test]
fn a_sandbox_that_a_call_is_using_is_not_removed() {
    with_each_engine(|world| {
        let mut child = world
            .beige(["exec", "a", "--", "sh", "-c", "touch began; sleep 300"])
            .spawn()
            .expect("beige runs");
        wait_until("it began", || world.workspace("a").join("began").exists());
        let done = world.run(["sandbox", "rm", "a"]).expect(1);
        assert!(done.stderr.contains("in use by other calls"), "{}", done.stderr);
        assert_eq!(world.state_of(&world.container()), "running");
        let id = child.id().to_string();
        assert!(Command::new("kill").arg(&id).status().expect("kill runs").success());
        assert_eq!(child.wait().expect("it ends").code(), Some(143));
    });
}

#[test]
fn a_gateway_that_comes_and_goes_leaves_a_sandbox_in_use_alone() {
    with_each_engine(|world| {
        let mut child = world
            .beige([
                "exec",
                "a",
                "--",
                "sh",
                "-c",
                "touch began; until [ -e go ]; do sleep 0.05; done",
            ])
            .spawn()
            .expect("beige runs");
        wait_until("it began", || world.workspace("a").join("began").exists());
        world.start_gateway();
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        world.run(["gateway", "stop"]).expect(0);
        assert_eq!(world.state_of(&world.container()), "running");
        fs::write(world.workspace("a").join("go"), "").unwrap();
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
    });
}

#[test]
fn an_image_is_made_without_a_registry() {
    with_each_engine(|world| {
        let image = Image {
            name: format!("localhost/beige-suite:offline-{}", std::process::id()),
            engine: world.runtime.name(),
        };
        let done = world
            .run([
                "sandbox",
                "build",
                "--offline",
                "--runtime",
                image.engine,
                "--image",
                &image.name,
            ])
            .expect(0);
        assert!(done.text().contains(&format!("built {} offline", image.name)), "{}", done.text());
        world.configure(&["a"], &format!("image: '{}'", image.name));
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        world.run(["sandbox", "rm"]).expect(0);
    });
}

#[test]
fn an_image_that_is_not_here_is_named_and_not_fetched() {
    with_each_engine(|world| {
        world.configure(&["a"], "image: 'example.invalid/none:1'");
        let done = world.sh("true").expect(125);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        assert!(done.stderr.contains("example.invalid/none:1 is not here"), "{}", done.stderr);
        assert_eq!(world.containers(), [] as [String; 0]);
    });
}

#[test]
fn a_workspace_that_the_daemon_cannot_see_is_named() {
    with_docker(|world| {
        world.sh("true").expect(0);
        world.run(["sandbox", "rm"]).expect(0);
        fs::remove_dir_all(world.home()).unwrap();
        fs::create_dir(world.home()).unwrap();
        let done = hidden_from_the_daemon(world);
        let done = done.expect(125);
        let home = world.home().display().to_string();
        assert!(done.stderr.contains("sees another file system"), "{}", done.stderr);
        assert!(done.stderr.contains(&home), "{}", done.stderr);
        assert_eq!(world.containers(), [] as [String; 0]);
    });
}

/// `beige exec a -- true` with a home that is mounted for it alone.
fn hidden_from_the_daemon(world: &World) -> Finished {
    let beige = world.beige(["exec", "a", "--", "true"]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", "mount -t tmpfs none \"$BEIGE_HOME\" && exec \"$0\" \"$@\""]);
    command.arg(beige.get_program()).args(beige.get_args());
    command.env("BEIGE_HOME", world.home()).output().expect("unshare runs").into()
}

#[test]
fn a_daemon_that_does_not_answer_is_named_with_how_to_start_it() {
    with_docker(|world| {
        let nowhere = format!("unix://{}/none.sock", world.root.display());
        let mut command = world.beige(["exec", "a", "--", "true"]);
        let done = Finished::from(command.env("DOCKER_HOST", &nowhere).output().unwrap());
        let done = done.expect(125);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        assert!(done.stderr.contains("systemctl start docker"), "{}", done.stderr);
        choose_by_itself(world);
        let mut command = world.beige(["exec", "a", "--", "echo", "on"]);
        let done = Finished::from(command.env("DOCKER_HOST", &nowhere).output().unwrap());
        assert_eq!(done.expect(0).text(), "on\n");
    });
}

#[test]
fn orphans_are_reaped() {
    with_docker(|world| {
        world.sh("for i in 1 2 3 4; do (sh -c 'sleep 0.05 & exec sleep 0.01' &) ; done").expect(0);
        wait_until("no process waits for its parent", || {
            let states = world.sh("cat /proc/[0-9]*/stat | cut -d' ' -f2,3");
            !states.text().contains(" Z") && !states.text().contains("(sleep)")
        });
    });
}

#[test]
fn auto_says_which_runtime_it_took_and_why() {
    with_docker(|world| {
        choose_by_itself(world);
        world.start_gateway();
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        let log = world.gateway_log();
        assert!(log.contains("the sandbox of `a` is Docker's: its daemon answers"), "{log}");
        assert_eq!(world.containers().len(), 1);
    });
}

#[test]
fn auto_takes_bubblewrap_where_there_is_no_docker() {
    with_docker(|world| {
        if World::on(Runtime::Bubblewrap).is_none() {
            return;
        }
        choose_by_itself(world);
        let path = path_of(world, &["bwrap", "setpriv"]);
        let started = world.beige(["gateway", "start"]).env("PATH", &path).output();
        Finished::from(started.expect("beige runs")).expect(0);
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        let log = world.gateway_log();
        assert!(log.contains("the sandbox of `a` is bubblewrap's: "), "{log}");
        assert!(log.contains("`docker`"), "{log}");
        assert_eq!(world.containers(), [] as [String; 0]);
    });
}

#[test]
fn auto_keeps_podman_for_an_agent_that_has_a_container_of_it() {
    with_docker(|world| {
        if !runtimes().contains(&Runtime::Podman) {
            return;
        }
        choose_by_itself(world);
        let mut command = world.beige(["exec", "a", "--", "echo", "on"]);
        let done = command.env("DOCKER_HOST", "unix:///nonexistent.sock").output();
        let done = Finished::from(done.expect("beige runs")).expect(0);
        assert!(done.stderr.contains("is Podman's"), "{}", done.stderr);
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        world.start_gateway();
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        let listed = world.run(["sandbox", "list", "--json"]).expect(0).json();
        let rows = listed.as_array().expect("an array");
        assert_eq!(rows.len(), 1, "{listed}");
        assert_eq!(rows[0]["runtime"], "podman");
    });
}

#[test]
fn auto_keeps_docker_for_an_agent_that_has_a_container() {
    with_docker(|world| {
        choose_by_itself(world);
        world.sh("true").expect(0);
        let nowhere = format!("unix://{}/none.sock", world.root.display());
        let without_docker = |arguments: &[&str]| {
            let mut command = world.beige(arguments);
            Finished::from(command.env("DOCKER_HOST", &nowhere).output().expect("beige runs"))
        };
        let exec = || without_docker(&["exec", "a", "--", "echo", "on"]);
        // Whoever has a link needs no daemon for a call.
        assert_eq!(exec().expect(0).text(), "on\n");
        world.ask(&["kill", &world.containers()[0]]);
        let told = exec().expect(125).stderr;
        let advice = ["stays Docker's", "`beige sandbox rm a`", "systemctl start docker"];
        assert!(advice.iter().all(|it| told.contains(it)), "{told}");
        let report = without_docker(&["doctor", "--json"]).expect(1).json();
        let checks = report["checks"].as_array().expect("checks");
        let check = checks.iter().find(|it| it["name"] == "agent a").expect("a check");
        assert_eq!(check["status"], "failure");
        assert!(check["found"].to_string().contains(advice[0]), "{check}");
        let told = without_docker(&["sandbox", "rm", "a"]).expect(0).text();
        assert!(told.contains("forgot the container of a"), "{told}");
        let next = runtimes().iter().find(|it| **it != Runtime::Docker);
        if let Some(next) = next {
            let done = exec();
            let told = done.stderr.to_lowercase();
            assert!(told.contains(&format!("is {}'s", next.name())), "{told}");
            assert_eq!(done.expect(0).text(), "on\n");
        }
    });
}

#[test]
fn an_image_that_is_asked_for_and_not_here_is_told() {
    with_docker(|world| {
        if World::on(Runtime::Bubblewrap).is_none() {
            return;
        }
        let image = "image: 'beige-suite-none:1'";
        world.write_config(&world.agent("a", image, "").replace("'docker'", "'auto'"), "");
        let done = world.sh("echo on").expect(0);
        assert_eq!(done.text(), "on\n");
        for part in [
            "bubblewrap's, which has no image",
            "beige-suite-none:1 is not here",
            "`sandbox.runtime`",
        ] {
            assert!(done.stderr.contains(part), "{part} in {}", done.stderr);
        }
        // One that lives is kept without a look at any image.
        world.run(["sandbox", "rm", "a"]).expect(0);
        world.start_gateway();
        assert_eq!(world.sh("true").expect(0).stderr, "");
        let log = world.gateway_log();
        assert!(log.contains("WARN") && log.contains("beige-suite-none:1 is not here"), "{log}");
    });
}

#[test]
fn without_any_runtime_nothing_runs_and_both_are_named() {
    with_docker(|world| {
        choose_by_itself(world);
        let beige = world.beige(["exec", "a", "--", "true"]);
        let mut command = Command::new("unshare");
        let hide = "for it in /usr/bin/bwrap /bin/bwrap; do mount --bind /dev/null $it; done; \
                    PATH=/nonexistent exec \"$0\" \"$@\"";
        command.args(["-m", "sh", "-c", hide]).arg(beige.get_program()).args(beige.get_args());
        command.env("BEIGE_HOME", world.home());
        let done = Finished::from(command.output().expect("unshare runs")).expect(125);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        for part in ["no sandbox can be made", "Docker: ", "package `bubblewrap`"] {
            assert!(done.stderr.contains(part), "{part} in {}", done.stderr);
        }
    });
}

fn choose_by_itself(world: &World) {
    let agent = world.agent("a", "", "").replace("'docker'", "'auto'");
    world.write_config(&agent, "");
}

/// A PATH with links to just these programs.
fn path_of(world: &World, programs: &[&str]) -> std::path::PathBuf {
    let folder = world.root.join("bin");
    fs::create_dir(&folder).unwrap();
    for program in programs {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        let found = String::from_utf8(found.unwrap().stdout).unwrap();
        std::os::unix::fs::symlink(found.trim(), folder.join(program)).unwrap();
    }
    folder
}

#[test]
fn a_root_of_a_container_has_only_what_it_needs() {
    with_docker(|world| {
        world.configure(&["a"], "user: 'root', readOnlyRoot: true");
        let status = world.sh("cat /proc/self/status; echo x > made").expect(0).text();
        // CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID.
        assert!(status.contains("CapBnd:\t00000000000000cb"), "{status}");
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        assert_ne!(world.sh("echo x > /etc/made").code, 0);
        assert_ne!(world.sh("echo x > /proc/sys/kernel/hostname").code, 0);
        let listed: Value = world.run(["sandbox", "list", "--json"]).expect(0).json();
        assert_eq!(listed[0]["state"], "running");
    });
}
