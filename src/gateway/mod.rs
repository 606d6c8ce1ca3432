//! The engine: builds everything from a configuration, owns it, runs it and
//! ends it in order. [`Handle`] is the complete list of what a front end may
//! ask; front ends only translate. A gateway serves until it is told to stop;
//! a one-shot builds the same engine for one agent and one call.

mod bills;
mod busy;
mod chat;
mod config_in_use;
pub mod daemon;
mod desk;
pub mod fields;
mod figures;
mod handle;
mod hooked;
pub mod hub;
mod meter;
mod running;
pub mod runtime;
mod serve;
mod sessions;
pub mod socket;
mod spent;
mod subscription;
mod turns;
mod view;
mod wake;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

pub use busy::Lines;
pub use chat::{ChatEvent, ChatRequest};
pub use config_in_use::ConfigInUse;
pub use figures::Figures;
pub use handle::{Handle, Place};
pub use hooked::{HookRequest, Made, Said};
pub use hub::Fresh;
pub use meter::{Counted, ModelCalls};
pub use serve::{Doors, End, FrontEnds, StartFrontEnds, serve};
pub use sessions::SessionChange;
pub use subscription::{Detail, Subscriber, Subscription, TOO_SLOW, Told};
pub use turns::PromptRequest;
pub use view::{AgentView, ConfigView, CoolingModel, Health, ModelView, ProviderLoad};

use crate::audit::Audit;
use crate::clock;
use crate::config::{self, Agent, Config, Findings, ModelRef};
use crate::error::{Error, Kind, Result};
use crate::message::{LONGEST_MESSAGE, stored_length};
use crate::plugin::desk::Desk;
use crate::plugin::{Plugins, Registry, Skills};
use crate::provider;
use crate::sandbox;
use crate::sandbox::lock::{Hold, Lock};
use crate::sandbox::{LinkSocket, Shown};
use crate::secret::Redactor;
use crate::session::Store;
use crate::tool::{Equipment, SessionRef, Toolbox};
use crate::usage;
use crate::worker::Cancel;
use desk::PluginDesk;
use hub::Event;
use running::Running;
use socket::{AgentSocket, Reception};

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
    pub(crate) skills: Skills,
    pub(crate) store: Store,
    pub(crate) providers: provider::Registry,
    pub(crate) health: provider::Health,
    pub(crate) audit: Audit,
    redactor: Redactor,
    running: Running,
    busy: busy::Busy,
    bills: bills::Bills,
    meter: meter::Meter,
    /// What each model call took.
    usage: usage::Book,
    /// Why the configuration that was to be taken over last was not.
    reload_trouble: Mutex<Option<String>>,
    started: Instant,
    started_at: clock::Time,
    address: OnceLock<SocketAddr>,
    hub: Option<Sender<Event>>,
    /// Sandboxes that could not be made ready when the gateway started.
    troubles: wake::Troubles,
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
        let skills = Skills::load(&config.skills, &config.agents, &config.home, &registry)?;
        for warning in registry.warnings().iter().chain(skills.warnings()) {
            log::warn!("{warning}");
        }
        registry.refresh_packages()?;
        skills.refresh_copies()?;
        let log = &config.gateway;
        let audit =
            Audit::open(&config.home, log.log_max_bytes, log.log_max_files, redactor.clone())?;
        let tool_client = sandbox::lay(&config.home)?;
        let mut equipment = BTreeMap::new();
        for agent in config.agents.values().filter(|it| only.includes(&it.name)) {
            let shown = shown(agent, &registry, &skills);
            equipment.insert(agent.name.clone(), equip(&config, agent, shown, &tool_client)?);
        }
        let providers = provider::Registry::new(&config.providers).recording(&redactor);
        keep_costs(&config, only, &providers)?;
        if *only == Only::All {
            warn_at_start(&equipment, &providers);
        }
        let health = provider::Health::new(&config.home, redactor.clone());
        // Work in the background is a gateway's affair.
        let data_dir = (*only == Only::All).then(|| config.home.data());
        Ok(Arc::new_cyclic(|engine| Self {
            toolbox: {
                let desk: Arc<dyn Desk> = Arc::new(PluginDesk::new(engine, redactor.clone()));
                let plugins = Plugins::new(registry, &desk, &redactor, data_dir);
                let (audit, redactor) = (audit.clone(), redactor.clone());
                Arc::new(Toolbox::new(equipment, plugins, audit, redactor, socket))
            },
            skills,
            store: Store::new(config.home.clone()),
            usage: usage::Book::new(config.home.clone()),
            providers,
            health,
            config,
            audit,
            redactor,
            running: Running::default(),
            busy: busy::Busy::default(),
            bills: bills::Bills::default(),
            meter: meter::Meter::default(),
            reload_trouble: Mutex::default(),
            started: Instant::now(),
            started_at: clock::now(),
            address: OnceLock::new(),
            hub,
            troubles: wake::Troubles::default(),
        }))
    }

    /// Says that a new configuration was not taken over, and why.
    fn keep_old(&self, error: &Error) {
        let what = format!("the old configuration stays: {error}");
        log::error!("{what}");
        *self.reload_trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    /// Opens an agent's sockets under these names in its folder: the one that
    /// its tools dial, on which the reception listens, and the one that its
    /// sandbox dials.
    fn listen(
        &self,
        reception: &Arc<Reception>,
        agent: &str,
        name: &str,
        link: &str,
    ) -> Result<Sockets> {
        let folder = self.config.home.agent_sockets(agent);
        let (path, link) = (folder.join(name), folder.join(link));
        socket::check_path_length(&path)?;
        socket::check_path_length(&link)?;
        let lock = self.config.home.agent_sockets_lock(agent);
        // Until it listens, a socket that another process makes looks dead.
        let _alone = Lock::wait(&lock, Hold::Exclusive, SOCKETS_LIMIT, &Cancel::never())?;
        socket::remove_dead_sockets(&folder)?;
        let store = self.store.clone();
        let owns_session = Arc::new(move |agent: &str, key: &str| {
            store.owner(key).is_ok_and(|it| it.as_deref() == Some(agent))
        });
        let toolbox = Arc::clone(&self.toolbox);
        let link = self.toolbox.equipment().get(agent).map(|it| it.sandbox.listen(&link));
        Ok(Sockets {
            _link: link.transpose()?,
            _tools: AgentSocket::listen(reception, path, agent, toolbox, owns_session)?,
        })
    }
}

/// What listens for one agent; dropping it ends that.
pub(crate) struct Sockets {
    _link: Option<LinkSocket>,
    _tools: AgentSocket,
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
fn equip(
    config: &Config,
    agent: &config::Agent,
    shown: Shown,
    tool_client: &Path,
) -> Result<Equipment> {
    let what = || format!("prepare the agent `{}`", agent.name);
    let spec = sandbox::prepare(&config.home, agent, shown, tool_client)
        .map_err(|it| it.within(what()))?;
    let sandbox = runtime::choose(&config.home, agent, spec).map_err(|it| it.within(what()))?;
    Ok(Equipment { agent: agent.clone(), folder: config.home.agent(&agent.name), sandbox })
}

/// What an agent's sandbox shows of plugins and skills.
fn shown(agent: &config::Agent, registry: &Registry, skills: &Skills) -> Shown {
    let all = registry.packages();
    let packages =
        agent.tools.iter().filter_map(|it| registry.tool(it)).filter_map(|tool| {
            all.get(&tool.plugin).map(|path| (tool.plugin.clone(), path.clone()))
        });
    Shown { packages: config::by_name(packages), skills: skills.copies(&skills.of(agent)) }
}

/// [`Kind::Config`] if a limit on costs could not be kept.
fn keep_costs(config: &Config, only: &Only, providers: &provider::Registry) -> Result<()> {
    let mut findings = Findings::default();
    let agents = config.agents.iter().filter(|it| only.includes(it.0));
    providers.examine_costs(agents.map(|it| it.1), &mut findings);
    match findings.lines().next() {
        Some(what) => Err(Error::new(Kind::Config, what)),
        None => Ok(()),
    }
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
    // The sockets end before the engine does.
    _sockets: Sockets,
    handle: Handle,
}

impl Gateway {
    /// Builds the engine for that agent alone and listens on `cli-PID.sock`
    /// and `link-PID.sock` in its folder.
    pub fn for_one_call(config: Config, agent: &str, redactor: Redactor) -> Result<Self> {
        require(&config, agent)?;
        let pid = std::process::id();
        let name = format!("cli-{pid}.sock");
        let inside = format!("/beige/{name}");
        let only = Only::Agent(agent.to_owned());
        let engine = Engine::build(config, &only, redactor, Some(inside), None)?;
        let link = format!("link-{pid}.sock");
        let sockets = engine.listen(&Reception::open()?, agent, &name, &link)?;
        Ok(Self { _sockets: sockets, handle: Handle { engine } })
    }

    /// The engine.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // What plugins ask holds the engine: it must not be theirs to end it.
        self.handle.engine.toolbox.plugins().stop();
        if let Err(error) = self.handle.engine.audit.flush() {
            log::warn!("{error}");
        }
    }
}

fn require(config: &Config, agent: &str) -> Result<()> {
    require_among(agent, config.agents.keys().map(String::as_str))
}

/// [`Kind::Missing`], with the nearest name and all there are, unless it is one
/// of these agents.
pub fn require_among<'a>(agent: &str, known: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let known: Vec<&str> = known.into_iter().collect();
    if known.contains(&agent) {
        return Ok(());
    }
    let hint = config::nearest(agent, known.iter().copied())
        .map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
    Err(Error::new(
        Kind::Missing,
        format!("there is no agent `{agent}`{hint} (agents: {})", known.join(", ")),
    ))
}

/// [`Kind::TooLarge`] for what a session has no room for.
fn require_short(message: &str) -> Result<()> {
    let length = stored_length(message);
    if length <= LONGEST_MESSAGE {
        return Ok(());
    }
    let what = format!(
        "`message` has {length} bytes as it is stored, and a message of a session has at most \
         {LONGEST_MESSAGE}; put what is long into a file of the workspace"
    );
    Err(Error::new(Kind::TooLarge, what))
}

impl Engine {
    /// A prompt whose agent, session and model are sound, its key filled in.
    fn checked(&self, mut request: PromptRequest) -> Result<PromptRequest> {
        require(&self.config, &request.agent)?;
        if request.message.trim().is_empty() {
            return Err(Error::new(Kind::Usage, "`message` is empty"));
        }
        require_short(&request.message)?;
        let channel = &request.channel;
        let key = request.session_key.take();
        let key = key.unwrap_or_else(|| format!("{channel}:{}:default", request.agent));
        request.session_key = Some(self.store.key_of(&request.agent, &key)?);
        if let Some(wanted) = &request.model {
            self.check_model(&request.agent, wanted)?;
        }
        Ok(request)
    }

    /// [`Kind::Denied`] unless the agent may use that model.
    fn check_model(&self, agent: &str, wanted: &ModelRef) -> Result<()> {
        let choices = self.config.agents.get(agent).into_iter().flat_map(Agent::choices);
        let models: Vec<String> = choices.map(|it| it.model.to_string()).collect();
        if models.contains(&wanted.to_string()) {
            return Ok(());
        }
        let its = if models.len() == 1 { "model is" } else { "models are" };
        let what =
            format!("the agent `{agent}` may not use {wanted}; its {its} {}", models.join(", "));
        Err(Error::new(Kind::Denied, what))
    }
}

/// A session by its key `channel:id[:thread]`. One without a colon, which a
/// person made up, names a conversation and no channel.
pub(crate) fn session_ref(key: &str) -> SessionRef {
    let (channel, place) = match key.split_once(':') {
        Some((channel, place)) => (Some(channel).filter(|it| !it.is_empty()), Some(place)),
        None => (None, None),
    };
    let mut place = place.into_iter().flat_map(|it| it.splitn(2, ':')).map(str::to_owned);
    SessionRef {
        session_key: key.to_owned(),
        channel: channel.map(str::to_owned),
        chat_id: place.next(),
        thread_id: place.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, channel: Option<&str>, chat_id: Option<&str>, thread_id: Option<&str>) {
        let owned = |it: Option<&str>| it.map(str::to_owned);
        let want = SessionRef {
            session_key: key.to_owned(),
            channel: owned(channel),
            chat_id: owned(chat_id),
            thread_id: owned(thread_id),
        };
        assert_eq!(session_ref(key), want);
    }

    #[test]
    fn a_key_names_channel_chat_and_thread_and_one_without_a_colon_none() {
        check("telegram:42:7:8", Some("telegram"), Some("42"), Some("7:8"));
        check("cli:a", Some("cli"), Some("a"), None);
        check("work", None, None, None);
        check(":work", None, Some("work"), None);
    }
}
