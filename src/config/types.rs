//! The configuration as typed values: what the rest of the gateway reads.
//! Nothing here knows JSON5, files or defaults; a value that exists is checked.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroUsize;
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
    /// The folder of each skill, by name.
    pub skills: BTreeMap<String, PathBuf>,
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
    /// `POST {base}/chat/completions`, answered by server-sent events.
    OpenAiCompletions,
    /// `POST {base}/responses`, likewise.
    OpenAiResponses,
    /// `POST {base}/v1/messages`, likewise.
    AnthropicMessages,
    /// `POST {base}/models/{model}:streamGenerateContent?alt=sse`.
    GoogleGenerativeAi,
}

impl Api {
    /// Every protocol.
    pub const ALL: [Self; 5] = [
        Self::Replay,
        Self::OpenAiCompletions,
        Self::OpenAiResponses,
        Self::AnthropicMessages,
        Self::GoogleGenerativeAi,
    ];

    /// The name in the configuration and in session files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::OpenAiCompletions => "openai-completions",
            Self::OpenAiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
            Self::GoogleGenerativeAi => "google-generative-ai",
        }
    }
}

/// One entry of `llm.providers`.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its wire protocol.
    pub api: Api,
    /// Where its answers come from.
    pub reach: Reach,
    /// Calls at a time; `None` is no limit.
    pub concurrency: Option<NonZeroUsize>,
    /// What is said about its models, by id.
    pub models: BTreeMap<String, ModelFacts>,
    /// The cassette that what it says is appended to.
    pub record: Option<PathBuf>,
}

/// Where a provider's answers come from.
#[derive(Clone, Debug)]
pub enum Reach {
    /// A file that is played back.
    Cassette(PathBuf),
    /// A server.
    Endpoint(Box<Endpoint>),
}

/// A server that speaks a provider's protocol.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `http://…` or `https://…`, without a slash at its end.
    pub base_url: String,
    /// Goes into the header that the protocol names.
    pub api_key: Option<Secret>,
    /// Added to each request; their values may be keys.
    pub headers: Vec<(String, Secret)>,
    /// PEM file of further root certificates.
    pub ca_file: Option<PathBuf>,
    /// `http://…` or `socks5://…`, which may hold a password; `None` for a
    /// direct connection, as always to loopback.
    pub proxy: Option<Secret>,
    /// How long it may take.
    pub timeouts: Timeouts,
}

/// `llm.providers.<name>.timeouts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To resolve the name, and again to connect, TLS included.
    pub connect: Duration,
    /// From the request to the first byte of the answer.
    pub first_byte: Duration,
    /// Between two bytes of the answer.
    pub idle: Duration,
}

/// `llm.providers.<name>.models.<id>`: what a person says of a model. What is
/// not said is not known here; `provider` fills in what is well known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelFacts {
    /// Its name for people.
    pub name: Option<String>,
    /// Tokens that it reads at most.
    pub context_window: Option<u64>,
    /// Tokens that it may write, as a person said: each request says so too.
    pub max_tokens: Option<u64>,
    /// Tokens that it is known to write at most, unsaid: for a protocol whose
    /// requests must name a limit.
    pub known_max_tokens: Option<u64>,
    /// Whether it thinks before it speaks.
    pub reasoning: Option<bool>,
    /// Whether it can be shown images.
    pub images: Option<bool>,
    /// What its tokens cost.
    pub cost: Option<Price>,
    /// Whether it writes its tool calls as text, for want of native ones.
    pub text_tools: bool,
}

impl ModelFacts {
    /// Tokens that it writes at most: what was said, else what is known.
    pub fn output_limit(&self) -> Option<u64> {
        self.max_tokens.or(self.known_max_tokens)
    }
}

/// What tokens cost, in US dollars a million.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// Read anew.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Read from the provider's cache.
    pub cache_read: f64,
    /// Written to the provider's cache.
    pub cache_write: f64,
    /// Whether a call that reads much is dearer.
    pub long: Option<LongPrompt>,
}

/// How much dearer a call is that reads much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongPrompt {
    /// Tokens that are read, cached ones too, above which it is.
    pub above: u64,
    /// Times the price of all that is read or written to a cache.
    pub input: f64,
    /// Times the price of what the model writes.
    pub output: f64,
}

impl Price {
    /// What a call costs that reads so many tokens, cached ones included.
    #[must_use]
    pub fn for_prompt(self, tokens: u64) -> Self {
        let Some(LongPrompt { above, input, output }) = self.long else { return self };
        if tokens <= above {
            return self;
        }
        Self {
            input: self.input * input,
            output: self.output * output,
            cache_read: self.cache_read * input,
            cache_write: self.cache_write * input,
            long: None,
        }
    }
}

/// One entry of `plugins`.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// What it is made of.
    pub source: PluginSource,
    /// Environment given to its processes only.
    pub env: BTreeMap<String, String>,
    /// Passed to the plugin.
    pub config: Value,
    /// What it means that it does not answer as a guard.
    pub on_hook_failure: OnHookFailure,
    /// Where it was installed from; `None` for a person's own.
    pub installed_from: Option<String>,
}

/// What it means that a plugin that guards something does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnHookFailure {
    /// What it guards is refused.
    #[default]
    Refuse,
    /// It goes on.
    Allow,
}

/// What a plugin is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginSource {
    /// A folder that holds `plugin.json`.
    Folder(PathBuf),
    /// Program and arguments of a server that has no such folder; what leads
    /// to the program is resolved.
    Command(Vec<OsString>),
    /// The name of one that is inside the binary.
    Builtin(String),
}

/// A model of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRef {
    /// The provider's name.
    pub provider: String,
    /// The model's id there.
    pub model: String,
}

/// `provider/model`.
impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// A model that an agent may use, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    /// Which one.
    pub model: ModelRef,
    /// How hard it is told to think.
    pub thinking: ThinkingLevel,
    /// Tokens of context from which on the conversation is compacted; `None`
    /// leaves it to the model's own window.
    pub compaction_threshold: Option<u64>,
}

/// How hard a model is told to think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThinkingLevel {
    /// Not at all.
    #[default]
    Off,
    /// The least that it can.
    Minimal,
    /// A little.
    Low,
    /// More.
    Medium,
    /// The most.
    High,
}

impl ThinkingLevel {
    /// Every level, the least first.
    pub const ALL: [Self; 5] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High];

    /// The word in the configuration and in session files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The level of that word.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// One entry of `agents`.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// The model that answers.
    pub primary: ModelChoice,
    /// Those that answer when it cannot, in their order.
    pub fallbacks: Vec<ModelChoice>,
    /// Plugin tools it may use; the four core tools are always there.
    pub tools: Vec<String>,
    /// Skills it is told of, and reads in its sandbox.
    pub skills: Vec<String>,
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

impl Agent {
    /// All models that it may use, the first choice first.
    pub fn choices(&self) -> impl Iterator<Item = &ModelChoice> {
        std::iter::once(&self.primary).chain(&self.fallbacks)
    }
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

impl SandboxConfig {
    /// Whether it can come to bubblewrap, which gives no agent root.
    pub fn may_be_bubblewrap(&self) -> bool {
        match self.runtime {
            RuntimeChoice::Bubblewrap => true,
            RuntimeChoice::Auto => self.user != UserChoice::Root,
            RuntimeChoice::Docker | RuntimeChoice::Podman => false,
        }
    }
}

/// `sandbox.runtime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// Docker if it answers and has the image, else Podman, else bubblewrap.
    Auto,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Answers of a model in one turn.
    pub max_turns: u32,
    /// How long a turn may take, before a further model call.
    pub max_turn_time: Option<Duration>,
    /// Tokens that a turn may take, of all kinds.
    pub max_turn_tokens: Option<u64>,
    /// What a turn may cost, in US dollars.
    pub max_turn_cost: Option<f64>,
    /// Bytes of one tool's output that the model sees.
    pub max_tool_output_bytes: usize,
    /// Time limit of a command in a turn.
    pub exec_timeout: Duration,
    /// Time limit of a core tool called over HTTP.
    pub http_exec_timeout: Duration,
    /// How long nothing at all may happen in a turn.
    pub inactivity: Duration,
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

/// What has names, by name; of two with one name the later. Entry by entry:
/// `collect` sorts first, which is four kilobytes of code for each type.
pub fn by_name<T>(entries: impl IntoIterator<Item = (String, T)>) -> BTreeMap<String, T> {
    let mut named = BTreeMap::new();
    named.extend(entries);
    named
}
