//! Podman without root, the whole way, under a user that the suite makes and
//! removes. As root Podman runs with the other runtimes wherever a test runs on
//! each of them. Needs to be root itself; anybody else skips these, which CI,
//! where the suite is root, does not.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::support::{Finished, Runtime, is_alive, runtimes, wait_until};

/// A user of this machine, with ids for its containers and no session: gone
/// with all that is its own when the last test lets go of it.
struct Tenant {
    name: String,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

/// A beige home of a tenant, with agent `a` on Podman.
struct Room {
    tenant: Arc<Tenant>,
    root: PathBuf,
}

/// Begin of the name of every such user; the suite's process id follows.
const PREFIX: &str = "bsuite";

impl Tenant {
    /// The one that other tests use just now, or a new one.
    fn any() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<Tenant>> = Mutex::new(Weak::new());
        let own = fs::metadata("/proc/self").expect("a process list");
        if own.uid() != 0 || !runtimes().contains(&Runtime::Podman) {
            return None;
        }
        // A test that failed is no reason to fail all others.
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let tenant = shared.upgrade().unwrap_or_else(|| Arc::new(Self::new()));
        *shared = Arc::downgrade(&tenant);
        Some(tenant)
    }

    fn new() -> Self {
        remove_left_over();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let home = std::env::temp_dir().join(&name);
        let arguments = ["-m", "-d", home.to_str().expect("a plain path"), "-s", "/bin/sh", &name];
        // Somebody else may be changing the list of users.
        wait_until("a user is made", || succeeds("useradd", &arguments));
        let ids = fs::metadata(&home).expect("a home");
        let tenant = Self { name, uid: ids.uid(), gid: ids.gid(), home };
        tenant.furnish();
        tenant
    }

    /// The binary and the plugin, where the user can read them, and the image.
    fn furnish(&self) {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::copy(env!("CARGO_BIN_EXE_beige"), self.beige()).expect("copied");
        fs::set_permissions(self.beige(), fs::Permissions::from_mode(0o755)).expect("set");
        let notes = self.home.join("notes");
        fs::create_dir(&notes).expect("a folder");
        for file in fs::read_dir(repository.join("examples/notes")).expect("a plugin").flatten() {
            fs::copy(file.path(), notes.join(file.file_name())).expect("copied");
        }
        self.own(&notes);
        let build = ["sandbox", "build", "--offline", "--runtime", "podman"];
        let done = self.command(&self.beige()).args(build).output().expect("beige runs");
        let done = Finished::from(done).expect(0);
        assert!(done.text().contains("for Podman"), "{}", done.text());
    }

    fn beige(&self) -> PathBuf {
        self.home.join("beige")
    }

    fn own(&self, path: &Path) {
        chown(path, Some(self.uid), Some(self.gid)).expect("given");
    }

    /// A program run by that user, as a service without a session is.
    fn command(&self, program: &Path) -> Command {
        let (uid, gid) = (self.uid.to_string(), self.gid.to_string());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid, "--regid", &gid, "--init-groups"]).arg(program);
        command.env_clear().env("HOME", &self.home).current_dir(&self.home);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let mut reset = self.command(Path::new("podman"));
        let _ = reset.args(["system", "reset", "-f"]).output();
        remove(&self.name, self.uid);
    }
}

/// Users of a suite that was killed.
fn remove_left_over() {
    let listed = Command::new("getent").arg("passwd").output().expect("getent runs");
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let (Some(name), Some(uid)) = (fields.first(), fields.get(2)) else { continue };
        let suite = name.strip_prefix(PREFIX).and_then(|it| it.split('-').next()?.parse().ok());
        if let (Some(suite), Ok(uid)) = (suite, uid.parse())
            && !is_alive(suite)
        {
            remove(name, uid);
        }
    }
}

/// Ends what the user runs, and removes all it has.
fn remove(name: &str, uid: u32) {
    for process in fs::read_dir("/proc").expect("a process list").flatten() {
        let is_its = process.metadata().is_ok_and(|it| it.uid() == uid);
        let id = process.file_name().to_string_lossy().into_owned();
        if is_its && id.bytes().all(|it| it.is_ascii_digit()) {
            succeeds("kill", &["-9", &id]);
        }
    }
    let temporary = std::env::temp_dir();
    for left in [
        temporary.join(name),
        temporary.join(format!("podman-run-{uid}")),
        temporary.join(format!("containers-user-{uid}")),
    ] {
        let _ = fs::remove_dir_all(left);
    }
    let _ = fs::remove_file(format!("/dev/shm/libpod_rootless_lock_{uid}"));
    succeeds("userdel", &["-f", name]);
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|it| it.status.success())
}

impl Room {
    /// A home with those fields in the `sandbox` object of its agent.
    fn new(sandbox: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let tenant = Tenant::any()?;
        let root = tenant.home.join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir(&root).expect("a folder");
        tenant.own(&root);
        let room = Self { tenant, root };
        room.configure("podman", sandbox);
        Some(room)
    }

    fn configure(&self, runtime: &str, sandbox: &str) {
        let text = format!(
            "{{ llm: {{ providers: {{ p: {{ api: 'replay', cassette: './c.jsonl' }} }} }},\n\
             plugins: {{ notes: {{ path: '{}/notes' }} }},\n\
             agents: {{ a: {{ model: {{ provider: 'p', model: 'm' }}, tools: ['notes'],\n\
             sandbox: {{ runtime: '{runtime}', network: 'none', {sandbox} }} }} }},\n\
             gateway: {{ port: 0 }} }}",
            self.tenant.home.display()
        );
        for (name, text) in [("c.jsonl", ""), ("config.json5", text.as_str())] {
            fs::write(self.root.join(name), text).expect("written");
            self.tenant.own(&self.root.join(name));
        }
    }

    fn beige(&self, arguments: &[&str]) -> Command {
        let mut command = self.tenant.command(&self.tenant.beige());
        command.arg("--config").arg(self.root.join("config.json5")).args(arguments);
        command.env("BEIGE_HOME", self.root.join("h"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        self.beige(arguments).output().expect("beige runs").into()
    }

    /// A line for `sh` in the sandbox.
    fn sh(&self, line: &str) -> Finished {
        self.run(&["exec", "a", "--", "sh", "-c", line])
    }

    /// Processes of that name inside.
    fn running(&self, name: &str) -> usize {
        let text = self.sh(&format!("cat /proc/[0-9]*/comm | grep -c '^{name}$'")).text();
        text.trim().parse().expect("a number")
    }

    fn workspace(&self) -> PathBuf {
        self.root.join("h/agents/a/workspace")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.run(&["gateway", "stop"]);
        self.run(&["sandbox", "rm"]);
    }
}

#[test]
fn streams_exit_codes_and_owners_are_as_on_any_runtime() {
    let Some(room) = Room::new("") else { return };
    let mut command = room.beige(&["exec", "a", "--", "sh", "-c", "cat; echo no >&2; exit 7"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("beige runs");
    // Podman's own client takes the first two for a wish to leave a terminal.
    let input = b"\x10\x11 all \xff of it\n";
    child.stdin.take().expect("a pipe").write_all(input).expect("written");
    let done = Finished::from(child.wait_with_output().expect("it ends")).expect(7);
    assert_eq!((&done.stdout[..], done.stderr.as_str()), (&input[..], "no\n"));

    let uid = room.tenant.uid;
    assert_eq!(room.sh("id -u; touch mine").expect(0).text(), format!("{uid}\n"));
    assert_eq!(fs::metadata(room.workspace().join("mine")).expect("a file").uid(), uid);
}

#[test]
fn a_tool_is_called_from_inside() {
    let Some(room) = Room::new("") else { return };
    assert_eq!(room.sh("notes add one; notes list").expect(0).text(), "kept\n1. one\n");
    room.run(&["gateway", "start"]).expect(0);
    assert_eq!(room.sh("notes list").expect(0).text(), "1. one\n");
}

#[test]
fn a_timeout_kills_the_whole_tree_and_the_background_stays() {
    let Some(room) = Room::new("") else { return };
    room.sh("setsid tail -f /dev/null >/dev/null 2>&1 & true").expect(0);
    let line = "setsid sleep 300 & sleep 300";
    room.run(&["exec", "a", "--timeout", "0.5", "--", "sh", "-c", line]).expect(124);
    assert_eq!((room.running("sleep"), room.running("tail")), (0, 1));
}

#[test]
fn limits_that_no_cgroup_holds_are_held_inside() {
    let Some(room) = Room::new("pidsLimit: 64, memoryLimit: '128m'") else { return };
    // The kernel counts what every command of the sandbox has started.
    let many = "i=0; while [ $i -lt 600 ]; do sleep 300 & i=$((i + 1)); done";
    room.sh(&format!("({many}) 2>/dev/null; true"));
    let running = room.running_at_most(64);
    assert!(running > 0, "some were started");
    room.run(&["sandbox", "rm"]).expect(0);
    assert_ne!(room.sh("dd if=/dev/zero of=/dev/null bs=300M count=1").code, 0);
    room.sh("dd if=/dev/zero of=/dev/null bs=10M count=1").expect(0);
}

impl Room {
    /// How many sleep inside, as the host counts them: there is no room for
    /// another process in there.
    #[track_caller]
    fn running_at_most(&self, most: usize) -> usize {
        let uid = self.tenant.uid;
        let processes = fs::read_dir("/proc").expect("a process list").flatten();
        let sleeps = processes.filter(|it| {
            let line = fs::read(it.path().join("cmdline")).unwrap_or_default();
            it.metadata().is_ok_and(|it| it.uid() == uid) && line == b"sleep\x00300\x00"
        });
        let count = sleeps.count();
        assert!(count <= most, "{count}");
        count
    }
}

#[test]
fn a_stopped_sandbox_is_started_again_and_listed() {
    let Some(room) = Room::new("") else { return };
    room.run(&["gateway", "start"]).expect(0);
    room.sh("sleep 300 & true").expect(0);
    let listed = || room.run(&["sandbox", "list", "--json"]).expect(0).json();
    let before = listed();
    assert_eq!((&before[0]["runtime"], &before[0]["state"]), (&"podman".into(), &"running".into()));
    room.run(&["gateway", "stop"]).expect(0);
    assert_eq!(listed()[0]["state"], "exited");
    assert_eq!(room.sh("echo on").expect(0).text(), "on\n");
    assert_eq!(listed()[0]["id"], before[0]["id"]);
    room.run(&["sandbox", "rm", "a"]).expect(0);
    assert_eq!(listed(), serde_json::json!([]));
}

#[test]
fn doctor_says_that_it_is_rootless_and_which_limits_hold() {
    let Some(room) = Room::new("") else { return };
    let report = room.run(&["doctor", "--json"]).expect(0).json();
    let check = |name: &str| {
        let checks = report["checks"].as_array().expect("checks");
        let check = checks.iter().find(|it| it["name"] == name);
        check.unwrap_or_else(|| panic!("no {name} in {report:#}")).clone()
    };
    let podman = check("podman");
    assert!(podman["found"].to_string().contains("rootless"), "{podman}");
    let agent = check("agent a");
    let told = agent["found"].to_string();
    assert!(
        told.contains(&format!("podman, image beige-sandbox:latest, user {}", room.tenant.uid))
    );
    // A machine with cgroup v2 and a session of the user holds them all.
    let held = podman["found"].to_string().contains("it bounds memory");
    assert_eq!(told.contains("limits are set inside: memory: RLIMIT_DATA"), !held, "{agent}");
    assert_eq!(agent["status"] == "warning", !held, "{agent}");
}

#[test]
fn an_environment_of_another_user_is_no_hindrance() {
    let Some(room) = Room::new("") else { return };
    let mut command = room.beige(&["exec", "a", "--", "echo", "on"]);
    // As after `su`: a folder that is not its own, and one that it cannot
    // enter.
    let foreign = room.root.join("foreign");
    fs::create_dir(&foreign).expect("a folder");
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).expect("set");
    command.env("XDG_RUNTIME_DIR", &foreign).current_dir(&foreign);
    let done = Finished::from(command.output().expect("beige runs")).expect(0);
    assert_eq!((done.text().as_str(), done.stderr.as_str()), ("on\n", ""));
}

#[test]
fn auto_takes_it_where_docker_does_not_answer() {
    let Some(room) = Room::new("") else { return };
    room.configure("auto", "");
    let mut command = room.beige(&["exec", "a", "--", "echo", "on"]);
    command.env("DOCKER_HOST", "unix:///nonexistent.sock");
    let done = Finished::from(command.output().expect("beige runs")).expect(0);
    assert_eq!(done.text(), "on\n");
    assert!(done.stderr.is_empty() || done.stderr.contains("is Podman's"), "{}", done.stderr);
    let listed = room.run(&["sandbox", "list", "--json"]).expect(0).json();
    assert_eq!(listed[0]["runtime"], "podman");
}
