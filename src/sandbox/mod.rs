//! Where an agent's code runs. [`Sandbox`] is one runtime's way to make,
//! enter and end it (Docker, Podman, bubblewrap); [`AgentSandbox`] is the one place
//! that runs something inside, with the lock, the start and the retries
//! that all runtimes share. There is no way from here to run anything on the
//! host.

mod agent;
mod beside;
pub mod bubblewrap;
mod child;
mod client;
pub mod containers;
mod detour;
mod enter;
mod fingerprint;
pub mod limits;
mod link;
pub mod lock;
mod oneshot;
mod prepare;
mod process;
pub mod pump;
mod state;
mod succession;
mod talk;
mod wait;
pub mod workspace;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

pub use agent::{AgentSandbox, FileAnswer, SAVED_OUTPUT_CAP};
pub use client::{lay, tool_client};
pub use link::LinkSocket;
pub use prepare::{foresee, instance, prepare};

use crate::config::{MountConfig, Network};
use crate::error::Result;

/// The wanted sandbox of one agent, every choice made: a pure value.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// 12 hex digits of the home's hash: keeps the sandboxes of two gateways
    /// on one host apart.
    pub instance: String,
    /// The agent.
    pub agent: String,
    /// The gateway's home, for the label.
    pub home: PathBuf,
    /// Mounted at `/workspace`, writable.
    pub workspace: PathBuf,
    /// Mounted at `/tools/bin`.
    pub launchers: PathBuf,
    /// Mounted at `/beige`.
    pub sockets: PathBuf,
    /// What the agent reads and cannot change.
    pub shown: Shown,
    /// The container image.
    pub image: String,
    /// Memory in bytes, swap included.
    pub memory_bytes: u64,
    /// Processors.
    pub cpus: Option<f64>,
    /// Processes at a time.
    pub pids: u64,
    /// `None`: the runtime's default.
    pub network: Option<Network>,
    /// User id inside; 0 only for containers.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// Whether the image's root cannot be written.
    pub read_only_root: bool,
    /// Further mounts.
    pub mounts: Vec<MountConfig>,
    /// Further environment.
    pub env: BTreeMap<String, String>,
}

/// Folders that an agent reads and cannot change, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    /// Files of plugins, mounted at `/tools/packages/NAME`.
    pub packages: BTreeMap<String, PathBuf>,
    /// Skills, mounted at `/skills/NAME`.
    pub skills: BTreeMap<String, PathBuf>,
}

impl Shown {
    /// Each folder with its place inside.
    fn places(&self) -> impl Iterator<Item = (&Path, PathBuf)> {
        let packages = self.packages.iter().map(|it| ("/tools/packages", it));
        let skills = self.skills.iter().map(|it| ("/skills", it));
        packages
            .chain(skills)
            .map(|(above, (name, folder))| (folder.as_path(), Path::new(above).join(name)))
    }
}

/// Which program makes a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Docker, by its command line.
    Docker,
    /// Podman, by its command line.
    Podman,
    /// bubblewrap.
    Bubblewrap,
}

impl Runtime {
    /// The name in configuration and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Bubblewrap => "bubblewrap",
        }
    }
}

/// What tool-client is started as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `--run`: supervises one command.
    Run,
    /// `--file`: reads, lists, writes, patches.
    File,
}

impl Role {
    /// The argument that names it.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Run => "--run",
            Self::File => "--file",
        }
    }
}

/// One runtime's way to make, enter and end the sandbox of one agent.
/// The caller holds the agent's lock: shared around [`Sandbox::command`],
/// exclusively around [`Sandbox::up`], [`Sandbox::stop`], [`Sandbox::remove`].
/// The exception is a call whose supervisor is silent: it stops what it holds
/// a share of.
pub trait Sandbox: Send + Sync {
    /// Which runtime it is.
    fn runtime(&self) -> Runtime;

    /// What it is to be.
    fn spec(&self) -> &Spec;

    /// Whether a call may be tried without [`Sandbox::up`] first: cheap, and
    /// allowed to be wrong (a call that never began is retried after `up`).
    fn seems_up(&self) -> bool;

    /// Looks whether it is up as wanted, and changes nothing in it, but that one
    /// which stands still goes on: calls may run in it meanwhile.
    fn is_up(&self) -> Result<bool>;

    /// Makes it, starts it or takes it over, as wanted by the spec.
    fn up(&self) -> Result<()>;

    /// The command that starts tool-client inside in that role. Pure.
    fn command(&self, role: Role) -> Command;

    /// Called once tool-client answers and before it is given any work:
    /// `child` is the host pid of what [`Sandbox::command`] started. Puts the
    /// tree under it into the agent's limits.
    fn admit(&self, child: u32) -> Result<()>;

    /// Limits that tool-client must set itself, since nothing outside does.
    fn inner_limits(&self) -> InnerLimits;

    /// Whether processes that a command leaves behind live on after it, where
    /// it came in by [`Sandbox::command`]. By the link they always do.
    fn keeps_background(&self) -> bool;

    /// The first process in it, if it is ours and can be seen from here: who
    /// may dial the link.
    fn resident(&self) -> Option<Resident> {
        None
    }

    /// Whether the first process that it had has ended, or is about to: nobody
    /// need wait for it then, nor enter beside it.
    fn resident_has_ended(&self) -> bool {
        false
    }

    /// Why it ended under a command, as far as known ("out of memory").
    fn fate(&self) -> Option<String>;

    /// Ends everything in it; it can be started again.
    fn stop(&self) -> Result<()>;

    /// Ends it for good; the workspace stays.
    fn remove(&self) -> Result<()>;
}

/// A process of this host that stays itself: a pid alone may be another's by
/// now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Its process id, as seen from here.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of
    /// `/proc/PID/stat`).
    pub started: u64,
}

/// Resource limits set by tool-client on itself before the command starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InnerLimits {
    /// `RLIMIT_NPROC`.
    pub processes: Option<u64>,
    /// `RLIMIT_DATA` in bytes, a process. Never `RLIMIT_AS`: Deno dies of it.
    pub data_bytes: Option<u64>,
}

/// A command to run inside.
#[derive(Clone, Debug, PartialEq)]
pub struct Exec {
    /// Program and arguments, bytes as given.
    pub argv: Vec<OsString>,
    /// Below `/workspace`; empty is the workspace itself.
    pub cwd: String,
    /// Set for this call, over the sandbox's own environment.
    pub env: BTreeMap<String, String>,
    /// After which the whole tree is killed.
    pub timeout: Option<Duration>,
    /// Saves the output in the workspace once it is larger than so many bytes.
    pub save_above: Option<u64>,
}

/// What is fed to a running command.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Pieces of its standard input; a dropped sender is the end of it.
    pub stdin: Receiver<Vec<u8>>,
    /// Signals for its process group, by number; they overtake the input.
    pub signals: Receiver<u8>,
}

impl Feed {
    /// No input and no signals.
    pub fn empty() -> Self {
        let (_, stdin) = bounded(0);
        let (_, signals) = bounded(0);
        Self { stdin, signals }
    }
}

/// Who takes what a running command prints. An error means that the taker is
/// gone: the command is killed.
pub trait Output {
    /// Bytes of standard output, in order.
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Bytes of standard error, in order.
    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// So many more bytes of standard input can be taken now.
    fn window(&mut self, _bytes: u32) -> io::Result<()> {
        Ok(())
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code; 128+n after signal n; 124 after the timeout; 126 and 127
    /// when it could not be started.
    pub code: i32,
    /// The whole tree was killed since the time was up.
    pub timed_out: bool,
    /// The whole tree was killed since the caller called it off or went away.
    pub cancelled: bool,
    /// A sentence for the reader: not started and why, sandbox ended and why,
    /// background processes ended with it.
    pub note: Option<String>,
    /// Path of the whole output inside the sandbox, if it was saved.
    pub saved: Option<String>,
    /// From the start of the command to its end.
    pub duration: Duration,
}
