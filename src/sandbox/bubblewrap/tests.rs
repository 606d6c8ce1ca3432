//! Real sandboxes, looked at from inside. A script stands in for tool-client,
//! so that what is seen is what the agent's processes have.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;

use super::*;
use crate::config::{Network, UserChoice};
use crate::sandbox::Shown;
use crate::sandbox::lock::Lock;
use crate::sandbox::prepare::prepare;
use crate::sandbox::prepare::tests::Scratch;

/// A sandbox whose tool-client is that script; `None` only where there is no
/// bubblewrap and nobody demands one.
fn sandbox(scratch: &Scratch, script: &str) -> Option<Bubblewrap> {
    sandbox_with(scratch, script, |_, _| ())
}

fn sandbox_with(
    scratch: &Scratch,
    script: &str,
    adjust: impl FnOnce(&mut Spec, &mut HostLayout),
) -> Option<Bubblewrap> {
    let mut host = match HostLayout::look() {
        Ok(host) => host,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            return None;
        }
    };
    let client = scratch.client(format!("#!/bin/sh\n{script}").as_bytes());
    let packages = BTreeMap::from([("kv".to_owned(), scratch.path.join("package"))]);
    fs::create_dir_all(&packages["kv"]).unwrap();
    let shown = Shown { packages, ..Shown::default() };
    let mut spec = prepare(&scratch.home, &scratch.agent(&["kv"]), shown, &client).unwrap();
    adjust(&mut spec, &mut host);
    Some(Bubblewrap::new(spec, host).unwrap())
}

fn run(sandbox: &Bubblewrap) -> Output {
    sandbox.command(Role::Run).env("SECRET", "s").stdin(Stdio::null()).output().unwrap()
}

/// Runs a script as the sandbox's tool-client and compares what it printed.
#[track_caller]
fn check(script: &str, want: &str) {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, script) else { return };
    let output = run(&sandbox);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), want, "stderr: {stderr}");
}

/// Says that it is ready and stays, as `--init` does.
const RESIDENT: &str = r"printf '\010\000\000\000\000'; while :; do sleep 1000; done";

#[test]
fn this_host_lets_a_sandbox_be_made() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, RESIDENT) else { return };
    assert!(!sandbox.seems_up() && !sandbox.is_up().unwrap());
    sandbox.up().unwrap();
    available().unwrap();
    assert!(sandbox.describe_limits().contains("pids"));
    assert!(sandbox.seems_up() && sandbox.is_up().unwrap());
    let resident = sandbox.resident().unwrap();
    assert!(sandbox.cgroup.holds(resident.pid));
    assert_eq!(list(&scratch.home), [Listed { agent: "a".into(), pid: resident.pid }]);
    sandbox.remove().unwrap();
    assert!(!resident.lives() && !sandbox.seems_up() && list(&scratch.home).is_empty());
}

/// The same sandbox as the next process sees it.
fn next(sandbox: &Bubblewrap) -> Bubblewrap {
    Bubblewrap::new(sandbox.spec.clone(), sandbox.host.clone()).unwrap()
}

#[test]
fn whoever_comes_next_takes_over_what_lives() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, RESIDENT) else { return };
    sandbox.up().unwrap();
    let resident = sandbox.resident().unwrap();
    let next = next(&sandbox);
    assert!(next.seems_up());
    next.up().unwrap();
    assert_eq!(next.resident(), Some(resident));
    next.stop().unwrap();
    assert!(!resident.lives());
    assert_eq!(sandbox.resident(), None);
    sandbox.remove().unwrap();
}

#[test]
fn what_was_made_otherwise_ends_and_is_made_anew() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, RESIDENT) else { return };
    sandbox.up().unwrap();
    let first = sandbox.resident().unwrap();
    let mut spec = sandbox.spec.clone();
    spec.memory_bytes *= 2;
    let other = Bubblewrap::new(spec, sandbox.host.clone()).unwrap();
    assert!(!other.seems_up() && !other.is_up().unwrap() && first.lives());
    other.up().unwrap();
    assert!(!first.lives() && other.resident().is_some());
    assert!(!sandbox.seems_up());
    other.remove().unwrap();
}

#[test]
fn one_that_was_killed_is_told_of_and_made_anew() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, RESIDENT) else { return };
    sandbox.up().unwrap();
    let first = sandbox.resident().unwrap();
    assert_eq!(sandbox.fate(), None, "it lives");
    end::end(first).unwrap();
    assert_eq!(sandbox.fate().as_deref(), Some("its first process has ended"));
    assert!(!sandbox.seems_up());
    sandbox.up().unwrap();
    assert_ne!(sandbox.resident(), Some(first));
    sandbox.remove().unwrap();
}

/// A process of the host that is named as a resident is.
struct Stranger(Child);

impl Stranger {
    fn start(scratch: &Scratch) -> (Self, Resident) {
        let program = scratch.path.join("tool-client");
        fs::write(&program, "#!/bin/sh\necho up; read end").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let mut command = std::process::Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let resident = Resident::look(child.id()).unwrap();
        (Self(child), resident)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stranger_in_the_state_file_is_neither_trusted_nor_killed() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, RESIDENT) else { return };
    let (_stranger, resident) = Stranger::start(&scratch);
    let plant = || {
        let spec_hash = sandbox.spec_hash();
        let known = Known { spec_hash, resident: Some(resident), ..Known::default() };
        sandbox.state.write(&known).unwrap();
    };
    plant();
    assert!(resident.lives() && !sandbox.seems_up() && !sandbox.is_up().unwrap());
    assert_eq!(sandbox.resident(), None);
    sandbox.up().unwrap();
    let own = sandbox.resident().unwrap();
    plant();
    sandbox.stop().unwrap();
    plant();
    remove_agent(&scratch.home, "a").unwrap();
    assert!(resident.lives() && list(&scratch.home).is_empty());
    // Where there is no cgroup nobody knows of it any more.
    end::end(own).unwrap();
}

#[test]
fn one_of_which_nobody_knows_ends_before_another_is_made() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, RESIDENT) else { return };
    sandbox.up().unwrap();
    let first = sandbox.resident().unwrap();
    sandbox.state.forget().unwrap();
    assert!(first.lives() && !sandbox.seems_up());
    sandbox.up().unwrap();
    assert!(!first.lives() && sandbox.seems_up());
    sandbox.state.forget().unwrap();
    end::end_all_that_show(&sandbox.spec.sockets).unwrap();
    assert!(!sandbox.seems_up());
    sandbox.up().unwrap();
    sandbox.remove().unwrap();
}

#[test]
fn where_no_first_process_is_seen_each_call_has_a_sandbox_of_its_own() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, "echo alone") else { return };
    let known = Known { spec_hash: sandbox.spec_hash(), ..Known::default() };
    sandbox.state.write(&known).unwrap();
    assert!(sandbox.seems_up() && sandbox.is_up().unwrap());
    assert_eq!(sandbox.resident(), None);
    sandbox.up().unwrap();
    assert_eq!(run(&sandbox).stdout, b"alone\n");
    sandbox.remove().unwrap();
    assert!(!sandbox.seems_up());
}

#[test]
fn one_that_never_gets_ready_says_why() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, "echo broken >&2; exit 3") else { return };
    let error = sandbox.up().unwrap_err();
    assert!(error.to_string().contains("broken"), "{error}");
    assert!(!sandbox.seems_up());
    sandbox.remove().unwrap();
}

#[test]
fn of_agents_that_are_gone_nothing_stays() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, RESIDENT) else { return };
    sandbox.up().unwrap();
    let resident = sandbox.resident().unwrap();
    reap(&scratch.home, &["a".into()]).unwrap();
    assert!(resident.lives());
    let in_use = Lock::try_exclusive(&scratch.home.sandbox_lock("a")).unwrap().unwrap();
    reap(&scratch.home, &[]).unwrap();
    assert!(resident.lives(), "a call is in it");
    drop(in_use);
    reap(&scratch.home, &[]).unwrap();
    assert!(!resident.lives());
    assert_eq!(agents(&scratch.home).unwrap(), [""; 0]);
}

#[test]
fn another_runtime_ends_it_first_and_keeps_its_own_file() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, RESIDENT) else { return };
    sandbox.up().unwrap();
    let resident = sandbox.resident().unwrap();
    make_way(&sandbox.spec).unwrap();
    assert!(!resident.lives());
    let file = scratch.home.sandbox_state("a");
    let others = State::new(file, Runtime::Docker);
    others.write(&Known { spec_hash: "5bec".into(), ..Known::default() }).unwrap();
    make_way(&sandbox.spec).unwrap();
    sandbox.remove().unwrap();
    assert!(others.known().is_some_and(|it| it.spec_hash == "5bec"));
}

#[test]
fn the_next_step_follows_from_what_is_known_and_seen() {
    let one = Resident { pid: 7, started: 8 };
    let known = |resident| Known { spec_hash: "h".into(), resident, ..Known::default() };
    let check = |known: Option<&Known>, hash: &str, is_ours, is_bound, want| {
        let step = decide(known, hash, |_| Seen { is_ours, is_bound });
        assert_eq!(step, want, "{known:?} {hash} {is_ours} {is_bound}");
    };
    check(None, "h", true, true, Step::Make);
    check(Some(&known(None)), "h", false, false, Step::Keep);
    check(Some(&known(None)), "other", false, false, Step::Make);
    let known = known(Some(one));
    check(Some(&known), "h", true, true, Step::Keep);
    check(Some(&known), "h", false, true, Step::Make);
    check(Some(&known), "h", true, false, Step::Replace(one));
    check(Some(&known), "other", true, true, Step::Replace(one));
    check(Some(&known), "other", false, true, Step::Make);
}

#[test]
fn the_agent_is_an_ordinary_user_without_any_rights() {
    let id = if geteuid().is_root() { 10_000 } else { geteuid().as_raw() };
    check("id -u; id -un; echo $$ $1", &format!("{id}\nagent\n1 --run\n"));
    check(
        "grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status | sort -u | cut -f2",
        &format!("{0}{0}{0}{0}{0}1\n", "0000000000000000\n"),
    );
    check("unshare --user true 2>/dev/null || echo none", "none\n");
}

#[test]
fn nothing_of_the_hosts_environment_is_there() {
    check("env | grep -v -e ^_= -e ^PWD=/workspace$", "");
}

#[test]
fn nothing_under_proc_sys_opens_for_writing() {
    check(
        "find /proc/sys -type f | while read -r file; do
            (: >>\"$file\") 2>/dev/null && echo \"$file\"; done
         find /proc/sys -type f | wc -l | grep -qE '^[1-9][0-9]{2}' && echo looked",
        "looked\n",
    );
}

#[test]
fn only_the_workspace_and_the_temporary_folders_can_be_written() {
    check(
        "for folder in / /usr /usr/bin /etc /dev /beige /tools /tools/bin /tools/packages/kv \
            /proc /workspace /tmp /dev/shm; do
            (: >\"$folder/x\") 2>/dev/null && echo $folder; done",
        "/workspace\n/tmp\n/dev/shm\n",
    );
}

#[test]
fn of_the_host_nothing_else_is_there() {
    check("echo /*", "/beige /bin /dev /etc /lib /lib64 /proc /sbin /tmp /tools /usr /workspace\n");
    check("for it in /run /var /home /root /mnt /etc/shadow; do [ -e $it ] && echo $it; done", "");
    check("cut -d: -f1 /etc/passwd | paste -sd ' '", "root agent\n");
}

#[test]
fn there_is_no_network_unless_open() {
    check(
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /etc/hosts | head -1",
        "lo\n127.0.0.1 localhost\n",
    );
}

#[test]
fn an_open_network_is_the_hosts_own() {
    let scratch = Scratch::new();
    let adjust = |spec: &mut Spec, _: &mut HostLayout| spec.network = Some(Network::Open);
    let script = "readlink /proc/self/ns/net";
    let Some(sandbox) = sandbox_with(&scratch, script, adjust) else { return };
    let hosts = fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(String::from_utf8_lossy(&run(&sandbox).stdout).trim(), hosts.to_str().unwrap());
}

#[test]
fn temporary_folders_are_bounded() {
    // A quarter of the 1 GiB of the test's agent.
    check("df -k --output=size /tmp /dev/shm | grep -v blocks | tr -d ' '", "262144\n65536\n");
}

#[test]
fn a_setuid_file_made_inside_is_not_roots() {
    let scratch = Scratch::new();
    let script = "cp /usr/bin/id x && chmod 6755 x && echo made";
    let Some(sandbox) = sandbox(&scratch, script) else { return };
    assert_eq!(run(&sandbox).stdout, b"made\n");
    let made = fs::metadata(sandbox.spec.workspace.join("x")).unwrap();
    let (uid, gid) = (made.uid(), made.gid());
    assert_eq!((uid, gid), (sandbox.spec.uid, sandbox.spec.gid));
    assert_ne!(uid, 0);
}

#[test]
fn what_only_root_may_read_stays_unread() {
    let scratch = Scratch::new();
    let folder = scratch.path.join("files");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("open"), "open\n").unwrap();
    fs::write(folder.join("closed"), "closed\n").unwrap();
    // Their owner is the test's user; where that is the agent's, nobody may.
    let mode = if geteuid().is_root() { 0o600 } else { 0o000 };
    fs::set_permissions(folder.join("closed"), Permissions::from_mode(mode)).unwrap();
    let mount = MountConfig { host: folder, container: "/data".into(), read_only: true };
    let script = "cat /data/open /data/closed 2>/dev/null";
    let Some(sandbox) = sandbox_with(&scratch, script, |spec, _| spec.mounts.push(mount)) else {
        return;
    };
    assert_eq!(String::from_utf8_lossy(&run(&sandbox).stdout), "open\n");
}

#[test]
fn folders_below_a_closed_home_are_reached() {
    let scratch = Scratch::new();
    let extra = scratch.home.root().join("extra \u{e9}");
    fs::create_dir(&extra).unwrap();
    fs::write(extra.join("file"), "seen\n").unwrap();
    fs::set_permissions(scratch.home.root(), Permissions::from_mode(0o700)).unwrap();
    let mount = MountConfig { host: extra, container: "/data/x".into(), read_only: true };
    let script = "cat /data/x/file; touch /data/x/new 2>/dev/null || echo read-only";
    let Some(sandbox) = sandbox_with(&scratch, script, |spec, _| spec.mounts.push(mount)) else {
        return;
    };
    assert_eq!(String::from_utf8_lossy(&run(&sandbox).stdout), "seen\nread-only\n");
}

#[track_caller]
fn check_refused(adjust: impl FnOnce(&mut Spec, &mut HostLayout), want: &str) {
    let scratch = Scratch::new();
    let mut agent = scratch.agent(&[]);
    agent.sandbox.user = UserChoice::Ids { uid: 1234, gid: 1234 };
    let mut spec = prepare(&scratch.home, &agent, Shown::default(), &scratch.client(b"")).unwrap();
    let mut host = HostLayout {
        bwrap: "/usr/bin/bwrap".into(),
        setpriv: None,
        uid: 1234,
        shown: Vec::new(),
        resolver: Vec::new(),
        links: Vec::new(),
    };
    adjust(&mut spec, &mut host);
    let error = Bubblewrap::new(spec, host).err().unwrap();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains(want), "{error}");
}

#[test]
fn it_is_never_root_and_nobody_else_without_being_root() {
    check_refused(|spec, _| spec.uid = 0, "never runs as user or group 0");
    check_refused(|spec, _| spec.gid = 0, "chown -R 10000:10000");
    check_refused(|_, host| host.uid = 1000, "the gateway is user 1000");
}

fn mount(container: &str, read_only: bool) -> MountConfig {
    MountConfig { host: PathBuf::from("/etc/passwd"), container: container.into(), read_only }
}

#[test]
fn no_mount_point_is_made_where_the_agent_could_plant_a_link() {
    check_refused(|spec, _| spec.mounts.push(mount("/workspace/f", true)), "/workspace/f");
    check_refused(|spec, _| spec.mounts.push(mount("/workspace/d/f", true)), "/workspace/d/f");
    check_refused(
        |spec, _| spec.mounts.extend([mount("/a", false), mount("/a/b", true)]),
        "below /a, which the agent writes",
    );
}

/// Starts it and reads its first line, which says that it stands.
fn start(sandbox: &Bubblewrap) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = sandbox.command(Role::Run);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, from)
}

#[test]
fn killing_what_was_started_ends_all_of_it() {
    let scratch = Scratch::new();
    let script = "trap '' TERM; (setsid sleep 1000 &); echo ready; sleep 1000";
    let Some(sandbox) = sandbox(&scratch, script) else { return };
    let (mut child, from) = start(&sandbox);
    child.kill().unwrap();
    child.wait().unwrap();
    // The pipe ends when the last process that holds it is gone.
    let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
    let events = PollFlags::HUP;
    assert_eq!(poll(&mut [PollFd::new(from.get_ref(), events)], Some(&limit)), Ok(1));
}

/// Lets a script go on once it is under its limits; answers what it printed.
fn run_admitted(sandbox: &Bubblewrap) -> String {
    let (mut child, mut from) = start(sandbox);
    sandbox.admit(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut rest = String::new();
    from.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    rest
}

#[test]
fn a_fork_bomb_stops_at_the_limit() {
    let scratch = Scratch::new();
    let script = "echo ready; read go
        i=0; while [ $i -lt 100 ]; do (sleep 1000 &) 2>/dev/null || break; i=$((i+1)); done
        [ $i -lt 60 ] && echo stopped";
    let Some(sandbox) = sandbox_with(&scratch, script, |spec, _| spec.pids = 30) else { return };
    if sandbox.inner_limits().processes.is_some() {
        // No cgroup here: tool-client sets this limit.
        return;
    }
    assert_eq!(run_admitted(&sandbox), "stopped\n");
    sandbox.remove().unwrap();
}

#[test]
fn too_much_memory_is_not_had_and_is_told() {
    let scratch = Scratch::new();
    let script = "echo ready; read go; head -c 300m /dev/zero | tail | wc -c";
    let adjust = |spec: &mut Spec, _: &mut HostLayout| spec.memory_bytes = 100 << 20;
    let Some(sandbox) = sandbox_with(&scratch, script, adjust) else { return };
    if sandbox.inner_limits().data_bytes.is_some() {
        return;
    }
    assert_eq!(run_admitted(&sandbox), "0\n");
    assert_eq!(sandbox.fate().as_deref(), Some("out of memory: its limit is 104857600 bytes"));
    sandbox.remove().unwrap();
}

#[test]
fn stopping_it_ends_what_a_crash_left_in_its_cgroup() {
    let scratch = Scratch::new();
    let Some(sandbox) = sandbox(&scratch, "echo ready; exec sleep 1000") else { return };
    if sandbox.inner_limits().processes.is_some() {
        return;
    }
    let (mut child, _from) = start(&sandbox);
    sandbox.admit(child.id()).unwrap();
    sandbox.stop().unwrap();
    assert!(!child.wait().unwrap().success());
    sandbox.remove().unwrap();
}
