//! The container engines there are, and all in which they differ: the name of
//! the program, how a question is put to it, what it can bound. One engine is
//! driven like the other; whoever needs a difference asks for it here.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, getegid, geteuid, getrlimit};
use serde::Deserialize;

use super::argv::LABEL_INSTANCE;
use super::client::{self, call, failure, image_id};
use crate::error::{During, Error, Kind, Result};
use crate::sandbox::{InnerLimits, Runtime, Spec, oneshot};

/// A program that makes containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Docker: a daemon, which may even be elsewhere.
    Docker,
    /// Podman as root: no daemon.
    Podman,
    /// Podman as anybody else: containers in a user namespace of that user.
    RootlessPodman,
}

/// One of our containers, as an engine lists it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Listed {
    /// The agent it belongs to.
    pub agent: String,
    /// Its name.
    pub name: String,
    /// Its full id.
    pub id: String,
    /// Name of its image, or its id once the name means another.
    pub image: String,
    /// `running`, `exited`, `paused`, ….
    pub state: String,
    /// The same with times, for people.
    pub status: String,
}

/// What an engine says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its version.
    pub version: String,
    /// What it can bound by a cgroup.
    pub bounds: Bounded,
}

/// Which bounds a cgroup of the container's own holds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub struct Bounded {
    /// Memory.
    pub memory: bool,
    /// Swap, as part of memory.
    pub swap: bool,
    /// Processes.
    pub pids: bool,
    /// Processor time.
    pub cpus: bool,
}

/// On which terms this host makes a container, whatever is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What may be asked of its cgroup.
    pub bounds: Bounded,
    /// Open files and processes that a process may have, where the engine
    /// would ask for more than this host grants.
    pub ulimits: Option<(u64, u64)>,
}

/// How long an engine may take to say that it is there.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How Docker is asked what it is and can bound.
const DOCKER_FACTS: &str = concat!(
    r#"{"version":{{json .ServerVersion}},"memory":{{json .MemoryLimit}},"#,
    r#""swap":{{json .SwapLimit}},"pids":{{json .PidsLimit}},"cpus":{{json .CPUCfsQuota}}}"#,
);

/// How Podman is asked for the same.
const PODMAN_FACTS: &str = concat!(
    r#"{"version":{{json .Version.Version}},"cgroups":{{json .Host.CgroupsVersion}},"#,
    r#""manager":{{json .Host.CgroupManager}},"#,
    r#""controllers":{{json .Host.CgroupControllers}},"#,
    r#""ids":{{json .Host.IDMappings.UIDMap}}}"#,
);

/// How Docker lists a container; each line is a [`Listed`].
const DOCKER_LIST: &str = concat!(
    r#"{"agent":{{json (.Label "beige.agent")}},"name":{{json .Names}},"id":{{json .ID}},"#,
    r#""image":{{json .Image}},"state":{{json .State}},"status":{{json .Status}}}"#,
);

/// The same for Podman, which has no word for the state without times.
const PODMAN_LIST: &str = concat!(
    r#"{"agent":{{json (index .Labels "beige.agent")}},"name":{{json .Names}},"#,
    r#""id":{{json .ID}},"image":{{json .Image}},"state":"","status":{{json .Status}}}"#,
);

/// What [`DOCKER_FACTS`] is answered with.
#[derive(Deserialize)]
struct DockerFacts {
    version: String,
    #[serde(flatten)]
    bounds: Bounded,
}

/// What [`PODMAN_FACTS`] is answered with.
#[derive(Debug, Deserialize)]
struct PodmanFacts {
    version: String,
    cgroups: String,
    manager: String,
    controllers: Option<Vec<String>>,
    /// None as root.
    ids: Option<Vec<Range>>,
}

/// Ids that a user may give to those in its containers.
#[derive(Debug, Deserialize)]
struct Range {
    size: u64,
}

impl Bounded {
    /// Every bound.
    pub const ALL: Self = Self { memory: true, swap: true, pids: true, cpus: true };

    /// What is not bounded, for a person.
    pub fn missing(self) -> Vec<&'static str> {
        let all = [
            (self.memory, "memory"),
            (self.swap, "swap"),
            (self.pids, "processes"),
            (self.cpus, "processor time"),
        ];
        all.into_iter().filter_map(|(has, what)| (!has).then_some(what)).collect()
    }
}

impl Engine {
    /// Those of whoever runs this, in the order in which one is chosen.
    pub fn all() -> [Self; 2] {
        [Self::Docker, Self::podman()]
    }

    /// Podman for whoever runs this.
    pub fn podman() -> Self {
        match geteuid().is_root() {
            true => Self::Podman,
            false => Self::RootlessPodman,
        }
    }

    /// The runtime that it is in the configuration.
    pub fn runtime(self) -> Runtime {
        match self {
            Self::Docker => Runtime::Docker,
            Self::Podman | Self::RootlessPodman => Runtime::Podman,
        }
    }

    /// The program, which is also the name in the configuration.
    pub fn program(self) -> &'static str {
        self.runtime().name()
    }

    /// Its name in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::Docker => "Docker",
            Self::Podman | Self::RootlessPodman => "Podman",
        }
    }

    /// A call of the program without its chatter.
    pub(super) fn command(self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.env("DOCKER_CLI_HINTS", "false").args(arguments);
        if self != Self::Docker {
            // It starts itself anew in a namespace where it must be able to
            // enter the folder it was called in.
            command.current_dir("/");
        }
        if self == Self::RootlessPodman && !has_runtime_folder() {
            command.env_remove("XDG_RUNTIME_DIR").env_remove("DBUS_SESSION_BUS_ADDRESS");
        }
        command
    }

    /// Whether that program is on PATH, whatever it does.
    pub fn is_installed(self) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|it| it.join(self.program()).is_file())
    }

    /// Whether whoever runs this may have containers of it: Podman without
    /// root leaves traces in a home as soon as it is asked, and nobody who
    /// never used it should get them.
    pub fn was_used(self) -> bool {
        let home = env::var_os("HOME").map(PathBuf::from);
        let traces = [".local/share/containers/storage", ".config/containers/storage.conf"];
        match self {
            Self::Docker | Self::Podman => self.is_installed(),
            Self::RootlessPodman => {
                let has = |home: PathBuf| traces.iter().any(|it| home.join(it).exists());
                self.is_installed() && home.is_none_or(has)
            }
        }
    }

    /// Whether it is installed and serves whoever runs this, within 10 s.
    pub fn available(self) -> Result<()> {
        match self {
            Self::Docker => {
                let doing = "ask the Docker daemon for its version";
                self.ask(doing, &["version", "--format", "{{.Server.Version}}"]).map(drop)
            }
            // There is no daemon that could not answer; what fails is to
            // work for this user.
            Self::Podman | Self::RootlessPodman => self.podman_facts().map(drop),
        }
    }

    /// Asks it what it is and what it can bound, within 10 s each.
    pub fn facts(self) -> Result<Facts> {
        if self != Self::Docker {
            return self.podman_facts();
        }
        self.available()?;
        let doing = "ask the Docker daemon what it can do";
        let answer = self.ask(doing, &["info", "--format", DOCKER_FACTS])?;
        let DockerFacts { version, bounds } =
            serde_json::from_str(&answer).during(Kind::Sandbox, doing)?;
        Ok(Facts { version, bounds })
    }

    fn podman_facts(self) -> Result<Facts> {
        let doing = "ask Podman what it can do";
        let answer = self.ask(doing, &["info", "--format", PODMAN_FACTS])?;
        let facts: PodmanFacts = serde_json::from_str(&answer).during(Kind::Sandbox, doing)?;
        facts.judged(self)
    }

    fn ask(self, doing: &str, arguments: &[&str]) -> Result<String> {
        let finished = oneshot::run(self.command(arguments), ANSWERS_WITHIN)
            .map_err(|it| it.within(doing.to_owned()))?;
        match finished.status.success() {
            true => Ok(finished.stdout),
            false => Err(failure(self, doing, &finished.stderr)),
        }
    }

    /// Whether it can give an agent the wanted user: without root there is
    /// none but its own, and the root of a container, which is the same.
    pub fn check_user(self, spec: &Spec) -> Result<()> {
        let own = geteuid().as_raw();
        if self != Self::RootlessPodman || spec.uid == 0 || spec.uid == own {
            return Ok(());
        }
        let text = format!(
            "agent `{}` is to run as user {}, but the gateway is user {own} and Podman without \
             root gives it no other; leave `sandbox.user` out and own the workspace {}, run the \
             gateway as root, or take Docker",
            spec.agent,
            spec.uid,
            spec.workspace.display()
        );
        Err(Error::new(Kind::Config, text))
    }

    /// The group that an agent has in a container. Without root only the user's
    /// own is one that means the same on both sides.
    pub(super) fn group(self, spec: &Spec) -> u32 {
        match self == Self::RootlessPodman && spec.uid == geteuid().as_raw() {
            true => getegid().as_raw(),
            false => spec.gid,
        }
    }

    /// On which terms a container is made here.
    pub(super) fn terms(self) -> Result<Terms> {
        Ok(match self {
            Self::Docker => Terms { bounds: Bounded::ALL, ulimits: None },
            Self::Podman => Terms { bounds: Bounded::ALL, ulimits: Some(own_ulimits()) },
            Self::RootlessPodman => Terms { bounds: self.facts()?.bounds, ulimits: None },
        })
    }

    /// What tool-client bounds itself: rootless, no cgroup may hold anything,
    /// and where one does these change nothing.
    pub(super) fn inner_limits(self, spec: &Spec) -> InnerLimits {
        match self {
            Self::Docker | Self::Podman => InnerLimits::default(),
            Self::RootlessPodman => {
                InnerLimits { processes: Some(spec.pids), data_bytes: Some(spec.memory_bytes) }
            }
        }
    }

    /// How its list is asked for.
    fn list_format(self) -> &'static str {
        match self {
            Self::Docker => DOCKER_LIST,
            Self::Podman | Self::RootlessPodman => PODMAN_LIST,
        }
    }

    /// Why `runtime: "auto"` stays with one that does not answer, and the way
    /// out.
    pub fn kept(self, agent: &str) -> String {
        format!(
            "the sandbox of `{agent}` stays {title}'s, since its container may still run and use \
             the workspace: {way} {title}, or `beige sandbox rm {agent}` to have the next call \
             choose anew",
            title = self.title(),
            way = if self == Self::Docker { "start" } else { "mend" },
        )
    }

    /// Why an agent gets no sandbox of another runtime yet, and the way out.
    pub(super) fn in_the_way(self, agent: &str) -> String {
        format!(
            "the container that `{agent}` has of {title} may still run and use the workspace, so \
             it must end first: {way} {title}, or `beige sandbox rm {agent}` if it is gone",
            title = self.title(),
            way = if self == Self::Docker { "start" } else { "mend" },
        )
    }

    /// Whether an image of that name is here.
    pub fn image_present(self, name: &str) -> Result<bool> {
        Ok(image_id(self, name)?.is_some())
    }

    /// All containers of one home, running or not.
    pub fn list(self, instance: &str) -> Result<Vec<Listed>> {
        let doing = "list the containers";
        let filter = format!("label={LABEL_INSTANCE}={instance}");
        let format = self.list_format();
        let arguments = ["ps", "-a", "--no-trunc", "--filter", &filter, "--format", format];
        let lines = call(self, doing, self.command(&arguments))?.stdout;
        let parsed = lines.lines().map(|it| serde_json::from_str(it).map(Listed::with_state));
        parsed.collect::<Result<_, _>>().during(Kind::Sandbox, doing)
    }

    /// Removes the containers of one home whose agent is not among those that
    /// are to have one. Answers with the agents whose containers went.
    pub fn reap(self, instance: &str, known_agents: &[String]) -> Result<Vec<String>> {
        let mut reaped = Vec::new();
        for it in self.list(instance)? {
            if !known_agents.contains(&it.agent) {
                log::info!("the container {} has no agent any more and is removed", it.name);
                client::remove(self, &it.id)?;
                reaped.push(it.agent);
            }
        }
        Ok(reaped)
    }

    /// Removes the containers of one agent of one home, if there are any.
    pub fn remove_agent(self, instance: &str, agent: &str) -> Result<bool> {
        let mut found = false;
        for it in self.list(instance)?.into_iter().filter(|it| it.agent == agent) {
            client::remove(self, &it.id)?;
            found = true;
        }
        Ok(found)
    }
}

impl Listed {
    /// The state by its first word where the engine gives none.
    fn with_state(mut self) -> Self {
        if self.state.is_empty() {
            self.state = match self.status.split(' ').next().unwrap_or_default() {
                "Up" if self.status.ends_with("(Paused)") => "paused".into(),
                "Up" => "running".into(),
                other => other.to_lowercase(),
            };
        }
        self
    }
}

impl PodmanFacts {
    /// What follows for the bounds, or why this user gets no container.
    fn judged(self, engine: Engine) -> Result<Facts> {
        let has = |name: &str| self.controllers.iter().flatten().any(|it| it == name);
        let given = match engine {
            // Only a systemd session delegates a part of the tree to a user.
            Engine::RootlessPodman => self.cgroups == "v2" && self.manager == "systemd",
            _ => true,
        };
        let bounds = Bounded {
            memory: given && has("memory"),
            swap: given && has("memory"),
            pids: given && has("pids"),
            cpus: given && has("cpu"),
        };
        let ids: u64 = self.ids.iter().flatten().map(|it| it.size).sum();
        match engine == Engine::RootlessPodman && ids < 2 {
            true => Err(no_ids()),
            false => Ok(Facts { version: self.version, bounds }),
        }
    }
}

/// A user without ids of its own for its containers.
fn no_ids() -> Error {
    failure(Engine::RootlessPodman, "see what ids Podman may use", client::NO_IDS)
}

/// Whether the folder that the environment names for such things is ours: a
/// service or a `su` may name that of another, or one that is gone.
fn has_runtime_folder() -> bool {
    env::var_os("XDG_RUNTIME_DIR").is_some_and(|it| {
        let seen = fs::metadata(Path::new(&it));
        seen.is_ok_and(|it| it.is_dir() && it.uid() == geteuid().as_raw())
    })
}

/// Open files and processes that Podman may grant: its own wishes are larger
/// than a host without `CAP_SYS_RESOURCE` grants even root.
fn own_ulimits() -> (u64, u64) {
    let hard = |it| getrlimit(it).maximum.unwrap_or(u64::MAX);
    (hard(Resource::Nofile).min(MOST_FILES), hard(Resource::Nproc).min(most_processes()))
}

/// The kernel's bound on open files, unless somebody raised it.
const MOST_FILES: u64 = 1 << 20;

/// The process ids that this kernel has: Podman bounds itself by them.
fn most_processes() -> u64 {
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    text.trim().parse().unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(cgroups: &str, manager: &str, controllers: &[&str], ids: &[u64]) -> PodmanFacts {
        PodmanFacts {
            version: "4".into(),
            cgroups: cgroups.into(),
            manager: manager.into(),
            controllers: Some(controllers.iter().map(|it| (*it).to_owned()).collect()),
            ids: Some(ids.iter().map(|size| Range { size: *size }).collect()),
        }
    }

    #[track_caller]
    fn check_missing(engine: Engine, facts: PodmanFacts, want: &[&str]) {
        let judged = facts.judged(engine).map(|it| it.bounds.missing());
        assert_eq!(judged.map_err(|it| it.to_string()), Ok(want.to_vec()));
    }

    #[test]
    fn root_bounds_what_the_kernel_bounds() {
        let all = ["cpu", "memory", "pids"];
        check_missing(Engine::Podman, facts("v1", "cgroupfs", &all, &[]), &[]);
        check_missing(
            Engine::Podman,
            facts("v2", "systemd", &["cpu", "pids"], &[]),
            &["memory", "swap"],
        );
    }

    #[test]
    fn a_user_bounds_what_its_session_was_given() {
        let engine = Engine::RootlessPodman;
        let all = ["memory", "swap", "processes", "processor time"];
        let session = facts("v2", "systemd", &["memory", "pids"], &[1, 65_536]);
        check_missing(engine, session, &["processor time"]);
        check_missing(engine, facts("v1", "cgroupfs", &[], &[1, 65_536]), &all);
        let no_session = facts("v2", "cgroupfs", &["memory", "pids", "cpu"], &[1, 65_536]);
        check_missing(engine, no_session, &all);
    }

    #[test]
    fn a_user_without_ids_is_told_how_to_get_some() {
        let judged = facts("v2", "systemd", &[], &[1]).judged(Engine::RootlessPodman);
        let text = judged.map_err(|it| it.to_string()).err().unwrap_or_default();
        assert!(text.contains("--add-subuids") && text.contains("podman system migrate"), "{text}");
    }

    #[test]
    fn a_state_is_read_off_the_words_for_people() {
        let state = |status: &str| {
            let listed = Listed {
                agent: "a".into(),
                name: "n".into(),
                id: "i".into(),
                image: "m".into(),
                state: String::new(),
                status: status.into(),
            };
            listed.with_state().state
        };
        assert_eq!(state("Up 2 hours ago"), "running");
        assert_eq!(state("Up 2 hours ago (Paused)"), "paused");
        assert_eq!(state("Paused"), "paused");
        assert_eq!(state("Exited (137) 2 hours ago"), "exited");
        assert_eq!(state("Created"), "created");
    }
}
