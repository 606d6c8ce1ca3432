//! bubblewrap from outside: a gateway that is root gives the agent nothing of
//! root, and an ordinary user needs nobody's help.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Finished, Runtime, World, is_alive, wait_until};

fn with_bubblewrap(check: impl Fn(&World)) {
    if let Some(world) = World::on(Runtime::Bubblewrap) {
        check(&world);
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

#[test]
fn nothing_under_proc_sys_opens_for_writing() {
    with_bubblewrap(|world| {
        let line = "find /proc/sys /proc/sysrq-trigger /proc/irq /proc/bus /sys -type f \
                    2>/dev/null | while read it; do \
                    (: >> \"$it\") 2>/dev/null && echo \"$it\"; done; echo end";
        assert_eq!(world.sh(line).expect(0).text(), "end\n");
    });
}

#[test]
fn what_the_caller_has_open_does_not_reach_the_command() {
    with_bubblewrap(|world| {
        // A folder left open would be a way out of the sandbox.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec 9</; exec \"$0\" \"$@\""]);
        let beige = world.beige(["exec", "a", "--", "/bin/sh", "-c", "ls /proc/self/fd/9/"]);
        command.arg(beige.get_program()).args(beige.get_args());
        command.envs(beige.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let finished: Finished = command.output().unwrap().into();
        assert_ne!(finished.code, 0, "{finished:?}");
        assert!(finished.stdout.is_empty(), "{finished:?}");
        assert!(finished.stderr.contains("/proc/self/fd/9"), "{finished:?}");
    });
}

#[test]
fn a_setuid_file_made_inside_is_not_roots() {
    with_bubblewrap(|world| {
        world.sh("cp /bin/sh s && chmod 6755 s && chown 0:0 s 2>/dev/null; true").expect(0);
        let made = fs::metadata(world.workspace("a").join("s")).unwrap();
        assert_ne!(made.uid(), 0);
        assert_ne!(made.gid(), 0);
        assert_ne!(world.sh("./s -pc id -u").text().trim(), "0");
    });
}

#[test]
fn a_file_of_roots_under_usr_cannot_be_read() {
    if !is_root() {
        return;
    }
    with_bubblewrap(|world| {
        let secret = Secret::new(world);
        let path = secret.0.display().to_string();
        let done = world.exec(&["cat", &path]);
        assert_ne!(done.code, 0);
        assert_eq!(done.text(), "");
        assert!(done.stderr.contains("ermission denied"), "{}", done.stderr);
    });
}

/// A file of root's alone where the sandbox sees it.
struct Secret(PathBuf);

impl Secret {
    fn new(world: &World) -> Self {
        let name = world.root.file_name().unwrap().to_string_lossy().into_owned();
        let secret = Self(Path::new("/usr/share").join(format!("beige-suite-{name}")));
        fs::write(&secret.0, "of root").unwrap();
        fs::set_permissions(&secret.0, fs::Permissions::from_mode(0o600)).unwrap();
        secret
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn no_further_namespace_can_be_made() {
    with_bubblewrap(|world| {
        for flag in ["-U", "-Ur", "-m", "-n", "-p"] {
            assert_ne!(world.exec(&["unshare", flag, "true"]).code, 0, "{flag}");
        }
    });
}

#[test]
fn no_process_of_the_host_is_seen() {
    with_bubblewrap(|world| {
        let line = "set -- /proc/[0-9]*; echo $#; cat /proc/1/cmdline | tr '\\0' ' '";
        let text = world.sh(line).expect(0).text();
        let (count, first) = text.split_once('\n').unwrap();
        assert!(count.parse::<u32>().unwrap() < 10, "{text}");
        assert_eq!(first, "/beige/tool-client --init --leave-after 60 ");
    });
}

#[test]
fn a_workspace_of_roots_is_refused_with_what_to_do() {
    if !is_root() {
        return;
    }
    with_bubblewrap(|world| {
        let folder = world.root.join("ws");
        fs::create_dir(&folder).unwrap();
        let fields = format!("workspaceDir: '{}',", folder.display());
        world.write_config(&world.agent("a", "", &fields), "");
        let done = world.sh("true").expect(125);
        assert!(done.stderr.contains("chown -R 10000:10000"), "{}", done.stderr);
        world.write_config(&world.agent("a", "user: 'root'", &fields), "");
        let done = world.sh("true").expect(125);
        assert!(done.stderr.contains("`root` is for Docker and Podman only"), "{}", done.stderr);
    });
}

#[test]
fn what_bounds_an_agent_goes_with_its_sandbox() {
    with_bubblewrap(|world| {
        world.configure(&["a", "b"], "");
        world.sh("true").expect(0);
        world.run(["exec", "b", "--", "true"]).expect(0);
        let agents = bounded(world);
        if agents.is_empty() {
            // No cgroups here: rlimits leave nothing behind.
            return;
        }
        assert_eq!(agents, ["a", "b"]);
        world.configure(&["a"], "");
        world.start_gateway();
        wait_until("the other's are gone", || bounded(world) == ["a"]);
        world.run(["sandbox", "rm", "a"]).expect(0);
        assert_eq!(bounded(world), [""; 0]);
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
    });
}

/// Agents of this world's home that have a cgroup.
fn bounded(world: &World) -> Vec<String> {
    beige::sandbox::bubblewrap::agents(&beige::config::Home::new(world.home())).unwrap()
}

/// The user that tests run `beige` as beside root.
const USER: u32 = 1234;

#[test]
fn an_ordinary_user_needs_nobodys_help() {
    if !is_root() {
        return;
    }
    with_bubblewrap(|world| {
        let user = Ordinary::new(world);
        let done = user.beige(&["exec", "a", "--", "sh", "-c", "id -u; echo x > made"]).expect(0);
        assert_eq!(done.text(), format!("{USER}\n"));
        let made = fs::metadata(world.workspace("a").join("made")).unwrap();
        assert_eq!((made.uid(), made.gid()), (USER, USER));
        assert_eq!(user.beige(&["prompt", "a", "hi"]).expect(0).text(), "hello\n");
        let line = "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}";
        let done = user.beige(&["exec", "a", "--", "sh", "-c", line]);
        assert!(done.code != 0 && done.stdout.is_empty(), "{done:?}");
        user.beige(&["gateway", "start"]).expect(0);
        let space = ["exec", "a", "--", "readlink", "/proc/self/ns/pid"];
        let first = user.beige(&space).expect(0).text();
        assert_eq!(user.beige(&space).expect(0).text(), first);
        let line = "sleep 300 & setsid sleep 300 & sleep 300";
        user.beige(&["exec", "a", "--timeout", "0.2", "--", "sh", "-c", line]).expect(124);
        user.beige(&["audit", "--verify"]).expect(0);
        assert_eq!(user.beige(&space).expect(0).text(), first);
        let listed = user.beige(&["sandbox", "list", "--json"]).expect(0).json();
        let pid = listed[0]["pid"].as_u64().expect("a pid").try_into().expect("a pid");
        user.beige(&["gateway", "stop"]).expect(0);
        assert!(!is_alive(pid));
        assert_eq!(owners(&world.home()), [USER]);
    });
}

/// `beige` as run by an ordinary user, on a copy that it can reach.
struct Ordinary<'a> {
    world: &'a World,
    beige: PathBuf,
}

impl<'a> Ordinary<'a> {
    fn new(world: &'a World) -> Self {
        let beige = world.root.join("beige");
        fs::copy(world.beige([""; 0]).get_program(), &beige).unwrap();
        let agent = world.agent("a", "memoryLimit: '64m'", "").replace("'notes'", "");
        world.write_config(&agent, "");
        let config = fs::read_to_string(world.config_file()).unwrap();
        let without = config.lines().filter(|it| !it.starts_with("plugins:"));
        fs::write(world.config_file(), without.collect::<Vec<_>>().join("\n")).unwrap();
        fs::create_dir(world.home()).unwrap();
        std::os::unix::fs::chown(world.home(), Some(USER), Some(USER)).unwrap();
        Self { world, beige }
    }

    fn beige(&self, arguments: &[&str]) -> Finished {
        let id = USER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(&self.beige);
        command.arg("--config").arg(self.world.config_file()).args(arguments);
        command.env("BEIGE_HOME", self.world.home()).env_remove("BEIGE_CONFIG").current_dir("/");
        command.output().expect("setpriv runs").into()
    }
}

/// Everyone who owns something in a folder.
fn owners(folder: &Path) -> Vec<u32> {
    let found = Command::new("find").arg(folder).args(["-printf", "%U\n"]).output().unwrap();
    let text = String::from_utf8(found.stdout).unwrap();
    let mut owners: Vec<u32> = text.lines().map(|it| it.parse().unwrap()).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}
