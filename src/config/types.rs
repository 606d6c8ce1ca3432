//! The configuration as typed values: what the rest of the gateway reads.
//! Nothing here knows JSON5, files or defaults; a value that exists is checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::config::Home;
use crate::secret::Secret;

/// A sound configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub file: PathBuf,
    /// The state folder.
    pub home: Home,
    /// Providers that an agent refers to, by name.
    pub providers: BTreeMap<String, Provider>,
    /// Enabled plugins in the order of the file.
    pub plugins: Vec<Plugin>,
    /// Agents by name.
    pub agents: BTreeMap<String, Agent>,
    /// The gateway's own settings.
    pub gateway: Gateway,
    /// Values that the redactor must know: `${file:}`, `apiKey`, plugin config
    /// under keys that look secret.
    pub secrets: Vec<Secret>,
}

/// How a provider is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Plays back a cassette; no network.
    Replay,
}

impl Api {
    /// The name in the configuration and in session files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
        }
    }
}

/// One entry of `llm.providers`.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its wire protocol.
    pub api: Api,
    /// The file a replay provider plays back.
    pub cassette: Option<PathBuf>,
}

/// One entry of `plugins`.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// The folder that holds `plugin.json`.
    pub path: PathBuf,
    /// Environment given to its processes only.
    pub env: BTreeMap<String, String>,
    /// Passed to the plugin.
    pub config: Value,
}

/// A model of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRef {
    /// The provider's name.
    pub provider: String,
    /// The model's id there.
    pub model: String,
}

/// One entry of `agents`.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// The model that answers.
    pub model: ModelRef,
    /// Plugin tools it may use; the four core tools are always there.
    pub tools: Vec<String>,
    /// The folder it works in, resolved.
    pub workspace: PathBuf,
    /// Deep-merged over the plugin's own configuration.
    pub plugin_configs: BTreeMap<String, Value>,
    /// Text appended to the system prompt.
    pub instructions: Option<String>,
    /// How its sandbox is made.
    pub sandbox: SandboxConfig,
    /// Bounds of its work.
    pub limits: Limits,
}

/// `agents.<name>.sandbox`.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxConfig {
    /// Which program makes it.
    pub runtime: RuntimeChoice,
    /// The container image; bubblewrap has none.
    pub image: String,
    /// Memory in bytes, swap included.
    pub memory_bytes: u64,
    /// Processors; `None` is no limit.
    pub cpus: Option<f64>,
    /// Processes at a time.
    pub pids: u64,
    /// `None`: the runtime's default (open for containers, none for bubblewrap).
    pub network: Option<Network>,
    /// Who the agent is inside.
    pub user: UserChoice,
    /// Whether the image's root cannot be written.
    pub read_only_root: bool,
    /// Further folders, resolved and checked.
    pub mounts: Vec<MountConfig>,
    /// Further environment.
    pub env: BTreeMap<String, String>,
}

/// `sandbox.runtime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// Docker if it answers and has the image, else bubblewrap.
    Auto,
    /// Docker.
    Docker,
    /// bubblewrap.
    Bubblewrap,
}

/// `sandbox.network`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The runtime's network, unfiltered.
    Open,
    /// No network.
    None,
}

/// What [`Network::Open`] means under bubblewrap: a person is told at the check
/// and at the start of a gateway.
pub const HOSTS_OWN_NETWORK: &str = "`open` is the host's own network under bubblewrap, its \
                                     loopback and abstract sockets included";

/// `sandbox.user`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserChoice {
    /// The owner of the workspace folder.
    Host,
    /// uid 0 (containers only).
    Root,
    /// These very ids.
    Ids {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
}

/// One entry of `sandbox.extraMounts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountConfig {
    /// The folder or file of the host, resolved.
    pub host: PathBuf,
    /// Where it stands in the sandbox.
    pub container: PathBuf,
    /// Whether the sandbox may not write to it.
    pub read_only: bool,
}

/// `agents.<name>.limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Model calls in one turn.
    pub max_turns: u32,
    /// Bytes of one tool's output that the model sees.
    pub max_tool_output_bytes: usize,
    /// Time limit of a command in a turn.
    pub exec_timeout: Duration,
    /// Time limit of a core tool called over HTTP.
    pub http_exec_timeout: Duration,
}

/// `gateway`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Address to bind, without port.
    pub host: String,
    /// Port to bind.
    pub port: u16,
    /// Whether TCP callers need the token.
    pub token_required: bool,
    /// Further names that clients may call a non-loopback host by.
    pub allowed_hosts: Vec<String>,
    /// The gateway's log.
    pub log_file: PathBuf,
    /// When a log is rotated, in bytes; the audit log as well.
    pub log_max_bytes: u64,
    /// Rotated files that are kept.
    pub log_max_files: u32,
    /// `error`, `warn`, `info`, `debug`, `trace`.
    pub log_level: log::LevelFilter,
}
