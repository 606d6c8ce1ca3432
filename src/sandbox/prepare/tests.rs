//! Preparing an agent: what is on disk afterwards, and what is left alone.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::config::{Limits, ModelChoice, ModelRef, RuntimeChoice, SandboxConfig, ThinkingLevel};

/// A home and a place for workspaces, gone at the end.
pub(in crate::sandbox) struct Scratch {
    pub(in crate::sandbox) path: PathBuf,
    pub(in crate::sandbox) home: Home,
}

impl Scratch {
    pub(in crate::sandbox) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("beige-prepare-{}-{count}", std::process::id()));
        let home = Home::new(path.join("home"));
        home.create().unwrap();
        Self { path, home }
    }

    pub(in crate::sandbox) fn agent(&self, tools: &[&str]) -> Agent {
        Agent {
            name: "a".into(),
            primary: ModelChoice {
                model: ModelRef { provider: "p".into(), model: "m".into() },
                thinking: ThinkingLevel::Off,
                compaction_threshold: None,
            },
            fallbacks: Vec::new(),
            tools: tools.iter().map(|&it| it.to_owned()).collect(),
            workspace: self.path.join("sub/ws"),
            skills: Vec::new(),
            plugin_configs: BTreeMap::new(),
            instructions: None,
            sandbox: SandboxConfig {
                runtime: RuntimeChoice::Bubblewrap,
                image: String::new(),
                memory_bytes: 1 << 30,
                cpus: None,
                pids: 64,
                network: None,
                user: UserChoice::Host,
                read_only_root: false,
                mounts: Vec::new(),
                env: BTreeMap::new(),
            },
            limits: Limits {
                max_turns: 1,
                max_turn_time: None,
                max_turn_tokens: None,
                max_turn_cost: None,
                max_tool_output_bytes: 1,
                exec_timeout: Duration::ZERO,
                http_exec_timeout: Duration::ZERO,
                inactivity: Duration::from_secs(600),
            },
        }
    }

    /// The home's copy of tool-client, with that for a program.
    pub(in crate::sandbox) fn client(&self, program: &[u8]) -> PathBuf {
        let path = self.path.join("client");
        if !path.exists() {
            let fresh = beside(&path);
            write_new(&fresh, program, 0o755).unwrap();
            fs::rename(fresh, &path).unwrap();
        }
        path
    }

    fn prepare(&self, agent: &Agent) -> Result<Spec> {
        prepare(&self.home, agent, Shown::default(), &self.client(b"client"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn is_root() -> bool {
    geteuid().is_root()
}

#[test]
fn everything_the_spec_names_is_there() {
    let scratch = Scratch::new();
    let agent = scratch.agent(&["git", "exec", "kv"]);
    let spec = scratch.prepare(&agent).unwrap();
    assert_eq!(names(&spec.launchers), ["git", "kv"]);
    assert_eq!(fs::read_link(spec.launchers.join("git")).unwrap(), Path::new(client::INSIDE));
    assert_eq!(names(&spec.sockets), ["tool-client"]);
    assert_eq!(fs::read(spec.sockets.join("tool-client")).unwrap(), b"client");
    assert_eq!(mode(&spec.sockets.join("tool-client")), 0o755);
    assert_eq!((mode(&spec.sockets), mode(&spec.launchers)), (0o755, 0o755));
    assert_eq!(mode(&scratch.home.agent("a")), 0o700);
    assert_eq!(names(&scratch.home.accounts("a")), ["group", "hosts", "passwd"]);
    assert_eq!(names(&spec.workspace), ["AGENTS.md"]);
    let owner = fs::metadata(&spec.workspace).unwrap();
    let file = fs::metadata(spec.workspace.join("AGENTS.md")).unwrap();
    assert_eq!((spec.uid, spec.gid), (owner.uid(), owner.gid()));
    assert_eq!((file.uid(), file.gid()), (owner.uid(), owner.gid()));
    assert_eq!(names(&scratch.path.join("sub")), ["ws"]);
    if is_root() {
        assert_eq!((spec.uid, spec.gid), (10_000, 10_000));
    }
}

#[test]
fn a_second_time_changes_only_what_differs() {
    let scratch = Scratch::new();
    let mut agent = scratch.agent(&["old", "kept"]);
    let spec = scratch.prepare(&agent).unwrap();
    let client = spec.sockets.join("tool-client");
    let (first, link) =
        (fs::metadata(&client).unwrap().ino(), fs::symlink_metadata(spec.launchers.join("kept")));
    agent.tools = vec!["kept".into(), "new".into()];
    fs::write(spec.launchers.join("new"), "planted").unwrap();
    scratch.prepare(&agent).unwrap();
    assert_eq!(fs::metadata(&client).unwrap().ino(), first);
    assert_eq!(names(&spec.launchers), ["kept", "new"]);
    assert_eq!(fs::read_link(spec.launchers.join("new")).unwrap(), Path::new(client::INSIDE));
    let kept = fs::symlink_metadata(spec.launchers.join("kept")).unwrap();
    assert_eq!(kept.ino(), link.unwrap().ino());
    fs::remove_file(&client).unwrap();
    fs::write(&client, "another").unwrap();
    scratch.prepare(&agent).unwrap();
    assert_eq!(fs::read(&client).unwrap(), b"client");
    assert_eq!(names(&spec.sockets), ["tool-client"]);
}

#[test]
fn agents_md_is_written_once_and_never_over_anything() {
    let scratch = Scratch::new();
    let agent = scratch.agent(&[]);
    let file = scratch.prepare(&agent).unwrap().workspace.join("AGENTS.md");
    fs::write(&file, "mine").unwrap();
    scratch.prepare(&agent).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    fs::remove_file(&file).unwrap();
    scratch.prepare(&agent).unwrap();
    assert!(!file.exists());
}

/// Plants something as AGENTS.md before the first start; it must stay.
#[track_caller]
fn check_planted(plant: impl FnOnce(&Path, &Path)) {
    let scratch = Scratch::new();
    let agent = scratch.agent(&[]);
    make_workspace(&agent.workspace, owner_of_new(UserChoice::Host)).unwrap();
    let file = agent.workspace.join("AGENTS.md");
    let outside = scratch.path.join("outside");
    plant(&file, &outside);
    let before = fs::symlink_metadata(&file).unwrap();
    scratch.prepare(&agent).unwrap();
    let after = fs::symlink_metadata(&file).unwrap();
    assert_eq!((before.ino(), before.uid(), before.len()), (after.ino(), after.uid(), after.len()));
    assert!(!outside.exists());
}

#[test]
fn what_is_planted_as_agents_md_is_left_alone() {
    check_planted(|file, outside| symlink(outside, file).unwrap());
    check_planted(|file, _| symlink("/etc/passwd", file).unwrap());
    check_planted(|file, _| fs::create_dir(file).unwrap());
    check_planted(|file, _| {
        rustix::fs::mkfifoat(CWD, file, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    });
}

#[track_caller]
fn check_refused(scratch: &Scratch, agent: &Agent, want: &str) {
    let error = scratch.prepare(agent).err().unwrap();
    assert_eq!(error.kind(), Kind::Config, "{error}");
    assert!(error.to_string().contains(want), "{error}");
}

#[test]
fn a_workspace_that_cannot_be_is_a_clear_error() {
    let scratch = Scratch::new();
    let mut agent = scratch.agent(&[]);
    fs::write(scratch.path.join("file"), "").unwrap();
    agent.workspace = scratch.path.join("file/ws");
    check_refused(&scratch, &agent, "no folder");
    agent.workspace = scratch.path.join("file");
    check_refused(&scratch, &agent, "is no folder");
    agent.workspace = PathBuf::from("/proc/beige/ws");
    check_refused(&scratch, &agent, "make the workspace /proc/beige/ws");
    symlink("/nowhere/at/all", scratch.path.join("link")).unwrap();
    agent.workspace = scratch.path.join("link");
    check_refused(&scratch, &agent, "look at the workspace");
}

#[test]
fn tools_with_names_that_are_paths_are_refused() {
    let scratch = Scratch::new();
    check_refused(&scratch, &scratch.agent(&["../x"]), "cannot be the name of a tool");
    check_refused(&scratch, &scratch.agent(&[".."]), "cannot be the name of a tool");
    check_refused(&scratch, &scratch.agent(&[""]), "cannot be the name of a tool");
}

#[test]
fn the_owner_of_the_workspace_is_who_the_agent_is_but_never_root_untold() {
    let scratch = Scratch::new();
    let mut agent = scratch.agent(&[]);
    let root = Owner { uid: 0, gid: 0 };
    let other = Owner { uid: 5, gid: 6 };
    assert_eq!(judge_owner(&agent, other).unwrap(), other);
    let error = judge_owner(&agent, root).err().unwrap().to_string();
    assert!(error.contains("chown") && error.contains("user: root"), "{error}");
    agent.sandbox.user = UserChoice::Root;
    assert_eq!(judge_owner(&agent, other).unwrap(), root);
    agent.sandbox.user = UserChoice::Ids { uid: 5, gid: 6 };
    assert_eq!(judge_owner(&agent, root).unwrap(), other);
}

#[test]
fn many_may_prepare_the_same_agent_at_once() {
    for _ in 0..20 {
        let scratch = Scratch::new();
        let agents = [scratch.agent(&["git", "kv"]), scratch.agent(&["git", "x"])];
        thread::scope(|scope| {
            for number in 0..8 {
                let (scratch, agent) = (&scratch, &agents[number % 2]);
                scope.spawn(move || scratch.prepare(agent).unwrap());
            }
        });
        let spec = scratch.prepare(&agents[0]).unwrap();
        assert_eq!(names(&spec.launchers), ["git", "kv"]);
        assert_eq!(names(&spec.sockets), ["tool-client"]);
        assert_eq!(names(&spec.workspace), ["AGENTS.md"]);
        assert_eq!(names(&scratch.path.join("sub")), ["ws"]);
        let agents = scratch.home.agent("a");
        assert_eq!(names(&agents), ["etc", "first-start", "launchers"]);
    }
}

#[test]
fn two_homes_are_two_instances_by_whatever_path() {
    let (one, other) = (Scratch::new(), Scratch::new());
    let first = instance(&one.home).unwrap();
    assert_eq!(first.len(), 12);
    assert!(first.bytes().all(|it| it.is_ascii_hexdigit()));
    assert_ne!(first, instance(&other.home).unwrap());
    symlink(one.home.root(), other.path.join("link")).unwrap();
    assert_eq!(first, instance(&Home::new(other.path.join("link"))).unwrap());
}
