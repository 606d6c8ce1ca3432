//! The engine: builds everything from a configuration, owns it, runs it and
//! ends it in order. [`Handle`] is the complete list of what a front end may
//! ask; front ends only translate. A gateway serves until it is told to stop;
//! a one-shot builds the same engine for one agent and one call.

mod config_in_use;
pub mod daemon;
pub mod hub;
mod running;
mod runtime;
mod serve;
pub mod socket;
mod turns;
mod wake;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use serde::Serialize;

pub use config_in_use::ConfigInUse;
pub use hub::Fresh;
pub use serve::{Doors, End, FrontEnds, StartFrontEnds, serve};

use crate::audit::{self, Audit};
use crate::config::{self, Config, Findings, ModelRef};
use crate::error::{Error, Kind, Result};
use crate::plugin::Registry;
use crate::provider;
use crate::sandbox::lock::{Hold, Lock};
use crate::sandbox::{self, Exit};
use crate::secret::Redactor;
use crate::session::Store;
use crate::tool::{
    Answer, Call, Caller, CommandCall, CoreCall, Equipment, SessionRef, Streams, Toolbox,
};
use crate::turn::TurnEvent;
use crate::worker::Cancel;
use hub::Event;
use running::{Entered, Running};
use socket::AgentSocket;

/// How long others may take to make or remove a socket of an agent.
const SOCKETS_LIMIT: Duration = Duration::from_secs(10);

/// Which agents an engine is built for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Only {
    /// All of the configuration.
    All,
    /// One, for a one-shot.
    Agent(String),
}

/// Everything that runs things, shared by the hub, the sockets and the front
/// ends.
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) store: Store,
    pub(crate) providers: provider::Registry,
    pub(crate) audit: Audit,
    redactor: Redactor,
    running: Running,
    started: Instant,
    address: OnceLock<SocketAddr>,
    hub: Option<Sender<Event>>,
    /// Sandboxes that could not be made ready when the gateway started.
    troubles: wake::Troubles,
}

/// What a front end may ask of the engine.
#[derive(Clone)]
pub struct Handle {
    engine: Arc<Engine>,
}

/// A place among what runs; a stop waits until it is given back.
#[derive(Debug)]
pub struct Place(#[allow(dead_code, reason = "given back when dropped")] Entered);

/// One prompt to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptRequest {
    /// The agent that answers.
    pub agent: String,
    /// What a person, or a program, says.
    pub message: String,
    /// The session; `None` is the channel's default for that agent.
    pub session_key: Option<String>,
    /// A model of the agent's list.
    pub model: Option<ModelRef>,
    /// Where it comes from.
    pub channel: String,
}

/// How the gateway is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `ok`, or `draining`.
    pub status: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// Where it listens for TCP, as `address:port`.
    pub address: Option<String>,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Number of agents.
    pub agents: usize,
    /// Number of sandboxes that are up.
    pub sandboxes: usize,
    /// Number of sessions that have a key.
    pub sessions: usize,
    /// Number of calls that run now.
    pub running: usize,
    /// What does not work as it should, in sentences.
    pub degraded: Vec<String>,
}

/// An agent as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// The model that answers.
    pub model: ModelView,
    /// The models after it.
    pub fallback_models: Vec<ModelView>,
    /// Its plugin tools.
    pub tools: Vec<String>,
    /// Its skills.
    pub skills: Vec<String>,
    /// Its workspace on the host.
    pub workspace_dir: String,
    /// What the system prompt says about its tools.
    pub tool_context: String,
    /// What the system prompt says about its skills.
    pub skill_context: String,
}

/// A model as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelView {
    /// The provider's name.
    pub provider: String,
    /// The model's id there.
    pub model: String,
}

impl Engine {
    /// Builds the engine; nothing listens and no sandbox is started. `socket`
    /// is the path inside a sandbox of the socket this process will serve.
    fn build(
        config: Config,
        only: &Only,
        redactor: Redactor,
        socket: Option<String>,
        hub: Option<Sender<Event>>,
    ) -> Result<Arc<Self>> {
        config.home.create()?;
        let registry = Registry::load(&config.plugins, &config.agents, &config.home)?;
        for warning in registry.warnings() {
            log::warn!("{warning}");
        }
        registry.refresh_packages()?;
        let log = &config.gateway;
        let audit =
            Audit::open(&config.home, log.log_max_bytes, log.log_max_files, redactor.clone())?;
        let mut equipment = BTreeMap::new();
        for agent in config.agents.values().filter(|it| only.includes(&it.name)) {
            equipment.insert(agent.name.clone(), equip(&config, agent, &registry)?);
        }
        let providers = provider::Registry::new(&config.providers);
        if *only == Only::All {
            warn_at_start(&equipment, &providers);
        }
        let toolbox = Toolbox::new(equipment, registry, audit.clone(), redactor.clone(), socket);
        Ok(Arc::new(Self {
            toolbox: Arc::new(toolbox),
            store: Store::new(config.home.clone()),
            providers,
            config,
            audit,
            redactor,
            running: Running::default(),
            started: Instant::now(),
            address: OnceLock::new(),
            hub,
            troubles: wake::Troubles::default(),
        }))
    }

    /// Opens an agent's socket under a name in its folder.
    fn listen(&self, agent: &str, name: &str) -> Result<AgentSocket> {
        let folder = self.config.home.agent_sockets(agent);
        let path = folder.join(name);
        socket::check_path_length(&path)?;
        let lock = self.config.home.agent_sockets_lock(agent);
        // Until it listens, a socket that another process makes looks dead.
        let _alone = Lock::wait(&lock, Hold::Exclusive, SOCKETS_LIMIT, &Cancel::never())?;
        socket::remove_dead_sockets(&folder)?;
        let store = self.store.clone();
        let owns_session = move |agent: &str, key: &str| {
            store.owner(key).is_ok_and(|it| it.as_deref() == Some(agent))
        };
        AgentSocket::listen(path, agent, Arc::clone(&self.toolbox), Arc::new(owns_session))
    }
}

impl Only {
    fn includes(&self, agent: &str) -> bool {
        match self {
            Self::All => true,
            Self::Agent(name) => name == agent,
        }
    }
}

/// What an agent has to run things with: its folders made, its runtime chosen.
fn equip(config: &Config, agent: &config::Agent, registry: &Registry) -> Result<Equipment> {
    let what = || format!("prepare the agent `{}`", agent.name);
    let all = registry.packages();
    let packages =
        agent.tools.iter().filter_map(|it| registry.tool(it)).filter_map(|tool| {
            all.get(&tool.plugin).map(|path| (tool.plugin.clone(), path.clone()))
        });
    let spec = sandbox::prepare(&config.home, agent, &packages.collect(), sandbox::TOOL_CLIENT)
        .map_err(|it| it.within(what()))?;
    let sandbox = runtime::choose(&config.home, agent, spec).map_err(|it| it.within(what()))?;
    Ok(Equipment { agent: agent.clone(), folder: config.home.agent(&agent.name), sandbox })
}

/// What a one-shot does not say each time: it stops nothing.
fn warn_at_start(equipment: &BTreeMap<String, Equipment>, providers: &provider::Registry) {
    equipment.values().for_each(|it| runtime::warn_of_network(&it.agent, &it.sandbox));
    // A cassette may be changed while the gateway runs.
    let mut findings = Findings::default();
    providers.examine(&mut findings);
    findings.lines().for_each(|it| log::warn!("{it}"));
}

/// An engine for one call, with a socket of its own beside a gateway's.
pub struct Gateway {
    // The socket ends before the engine does.
    _socket: AgentSocket,
    handle: Handle,
}

impl Gateway {
    /// Builds the engine for that agent alone and listens on
    /// `cli-PID.sock` in its folder.
    pub fn for_one_call(config: Config, agent: &str, redactor: Redactor) -> Result<Self> {
        require(&config, agent)?;
        let name = format!("cli-{}.sock", std::process::id());
        let inside = format!("/beige/{name}");
        let only = Only::Agent(agent.to_owned());
        let engine = Engine::build(config, &only, redactor, Some(inside), None)?;
        let socket = engine.listen(agent, &name)?;
        Ok(Self { _socket: socket, handle: Handle { engine } })
    }

    /// The engine.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(error) = self.handle.engine.audit.flush() {
            log::warn!("{error}");
        }
    }
}

fn require(config: &Config, agent: &str) -> Result<()> {
    if config.agents.contains_key(agent) {
        return Ok(());
    }
    let known: Vec<&str> = config.agents.keys().map(String::as_str).collect();
    let hint = config::nearest(agent, known.iter().copied())
        .map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
    Err(Error::new(
        Kind::Missing,
        format!("there is no agent `{agent}`{hint} (agents: {})", known.join(", ")),
    ))
}

impl Handle {
    /// How the gateway is.
    pub fn health(&self) -> Health {
        let engine = &self.engine;
        let equipment = engine.toolbox.equipment();
        let sessions = engine.store.count();
        let audit = engine.audit.flush();
        let troubles = [audit.as_ref().err(), sessions.as_ref().err()];
        let troubles = troubles.into_iter().flatten().map(ToString::to_string);
        Health {
            status: if self.is_draining() { "draining" } else { "ok" },
            version: env!("CARGO_PKG_VERSION"),
            address: engine.address.get().map(ToString::to_string),
            uptime_seconds: engine.started.elapsed().as_secs(),
            agents: equipment.len(),
            sandboxes: equipment.values().filter(|it| it.sandbox.seems_up()).count(),
            sessions: *sessions.as_ref().unwrap_or(&0),
            running: engine.running.count(),
            degraded: troubles.chain(engine.troubles.told(equipment)).collect(),
        }
    }

    /// All agents.
    pub fn agents(&self) -> Vec<AgentView> {
        let registry = self.engine.toolbox.registry();
        let equipment = self.engine.toolbox.equipment().values();
        equipment.map(|it| view(&it.agent, registry)).collect()
    }

    /// [`Kind::Missing`] unless there is an agent of that name.
    pub fn require_agent(&self, name: &str) -> Result<()> {
        require(&self.engine.config, name)
    }

    /// Whether the gateway lets nothing new in.
    pub fn is_draining(&self) -> bool {
        self.engine.running.is_draining()
    }

    /// Runs a core tool for a client.
    pub fn call_tool(
        &self,
        agent: &str,
        tool: &str,
        params: serde_json::Value,
        session_key: Option<&str>,
        cancel: &Cancel,
    ) -> Result<Answer> {
        self.require_agent(agent)?;
        let _entered = self.engine.running.enter(cancel)?;
        let limits = self.engine.config.agents.get(agent).map(|it| it.limits);
        let default_timeout = limits.map(|it| it.http_exec_timeout).unwrap_or_default();
        let call = CoreCall { tool: tool.to_owned(), params, default_timeout };
        self.engine.toolbox.run(&self.caller(agent, session_key)?, Call::Core(call), cancel)
    }

    /// Takes a place among what runs, for a command that comes later:
    /// [`Kind::Busy`] once the gateway drains. A stop waits for who has a
    /// place, and calls it off by `cancel`.
    pub fn admit(&self, cancel: &Cancel) -> Result<Place> {
        self.engine.running.enter(cancel).map(Place)
    }

    /// Runs a command with its streams in a place that was taken for it.
    pub fn run_command(
        &self,
        _place: Place,
        agent: &str,
        call: CommandCall,
        session_key: Option<&str>,
        streams: Streams<'_>,
        cancel: &Cancel,
    ) -> Result<Exit> {
        self.require_agent(agent)?;
        let caller = self.caller(agent, session_key)?;
        let answer = self.engine.toolbox.run(&caller, Call::Command(call, streams), cancel)?;
        answer.exit.ok_or_else(|| Error::new(Kind::Internal, "the command has no end"))
    }

    /// Queues a prompt; its events come as the turn goes, the last one says
    /// how it ended. A receiver that is not read fast enough is dropped, and
    /// the turn goes on.
    pub fn prompt(&self, request: PromptRequest, cancel: Cancel) -> Result<Receiver<TurnEvent>> {
        let request = self.engine.checked(request)?;
        let Some(hub) = &self.engine.hub else {
            return Err(Error::new(Kind::Internal, "no hub runs in this process"));
        };
        let entered = self.engine.running.enter(&cancel)?;
        let (events, receiver) = crossbeam_channel::bounded(hub::EVENTS_AHEAD);
        let prompt = hub::Prompt { request, cancel, events, _entered: entered };
        hub.send(Event::Prompt(Box::new(prompt)))
            .map_err(|_| Error::new(Kind::Busy, "the gateway is stopping; nothing was begun"))?;
        Ok(receiver)
    }

    /// One prompt on this thread, without a hub.
    pub fn prompt_here(
        &self,
        request: PromptRequest,
        events: &mut dyn FnMut(TurnEvent),
        cancel: &Cancel,
    ) -> Result<()> {
        let request = self.engine.checked(request)?;
        turns::run_turn(&self.engine, &request, events, cancel);
        Ok(())
    }

    /// Reads the audit log; `each` says whether to go on.
    pub fn audit(
        &self,
        filter: &audit::Filter,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<()> {
        audit::read(&self.engine.config.home, filter, each).map(drop)
    }

    /// A text with all known secrets masked.
    pub fn mask(&self, text: &str) -> String {
        self.engine.redactor.mask(text).into_owned()
    }

    /// From now on this value is masked wherever known secrets are.
    pub fn keep_secret(&self, value: &str) {
        self.engine.redactor.learn(value);
    }

    fn caller(&self, agent: &str, session_key: Option<&str>) -> Result<Caller> {
        let session = match session_key {
            Some(key) => {
                self.engine.check_owner(key, agent)?;
                Some(session_ref(key))
            }
            None => None,
        };
        Ok(Caller { agent: agent.to_owned(), session, claimed_session: None, model: None })
    }
}

impl Engine {
    /// A prompt whose agent, session and model are sound, its key filled in.
    fn checked(&self, mut request: PromptRequest) -> Result<PromptRequest> {
        require(&self.config, &request.agent)?;
        if request.message.trim().is_empty() {
            return Err(Error::new(Kind::Usage, "`message` is empty"));
        }
        let channel = &request.channel;
        let key = request.session_key.take();
        let key = key.unwrap_or_else(|| format!("{channel}:{}:default", request.agent));
        self.check_owner(&key, &request.agent)?;
        request.session_key = Some(key);
        if let (Some(wanted), Some(agent)) =
            (&request.model, self.config.agents.get(&request.agent))
            && *wanted != agent.model
        {
            let what = format!(
                "the agent `{}` may not use {}/{}; its model is {}/{}",
                agent.name, wanted.provider, wanted.model, agent.model.provider, agent.model.model
            );
            return Err(Error::new(Kind::Denied, what));
        }
        Ok(request)
    }

    /// [`Kind::Conflict`] if the session is another agent's.
    fn check_owner(&self, key: &str, agent: &str) -> Result<()> {
        match self.store.owner(key)? {
            Some(owner) if owner != agent => Err(Error::new(
                Kind::Conflict,
                format!("the session `{key}` belongs to the agent `{owner}`"),
            )),
            _ => Ok(()),
        }
    }
}

/// A session by its key `channel:id[:thread]`.
pub(crate) fn session_ref(key: &str) -> SessionRef {
    let mut parts = key.splitn(3, ':');
    SessionRef {
        session_key: key.to_owned(),
        channel: parts.next().unwrap_or_default().to_owned(),
        chat_id: parts.next().map(str::to_owned),
        thread_id: parts.next().map(str::to_owned),
    }
}

fn view(agent: &config::Agent, registry: &Registry) -> AgentView {
    AgentView {
        name: agent.name.clone(),
        model: ModelView {
            provider: agent.model.provider.clone(),
            model: agent.model.model.clone(),
        },
        fallback_models: Vec::new(),
        tools: agent.tools.clone(),
        skills: Vec::new(),
        workspace_dir: agent.workspace.display().to_string(),
        tool_context: registry.context_text(&agent.tools),
        skill_context: String::new(),
    }
}
