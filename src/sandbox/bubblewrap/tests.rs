//! Real sandboxes, looked at from inside. A script stands in for tool-client,
//! so that what is seen is what the agent's processes have.

#![allow(clippy::unwrap_used)]

mod bounds;
mod walls;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Output, Stdio};

use super::*;
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
