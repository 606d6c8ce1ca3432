//! What an agent finds in its sandbox, and what of the host it does not.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::process::geteuid;

use super::*;
use crate::config::{Network, UserChoice};

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
