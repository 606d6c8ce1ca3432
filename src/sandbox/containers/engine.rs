//! The container engines there are, and all in which they differ: the name of
//! the program, how a question is put to it, what it can bound. One engine is
//! driven like the other; whoever needs a difference asks for it here.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Resource, getegid, geteuid, getrlimit};
use serde::Deserialize;

use crate::error::{Error, Kind, Result};
use crate::sandbox::{InnerLimits, Runtime, Spec};

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
