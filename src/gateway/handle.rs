//! [`Handle`]: the complete list of what a front end may ask of the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use super::figures::Figures;
use super::hub::{self, Event};
use super::running::Entered;
use super::subscription::{Detail, Subscription};
use super::turns::{self, PromptRequest, Work};
use super::view::{AgentView, ConfigView, CoolingModel, Health, ProviderLoad};
use super::{Engine, require, require_short, session_ref};
use crate::audit;
use crate::clock;
use crate::config::{Agent, ModelRef};
use crate::error::{During, Error, Kind, Result};
use crate::provider::Cooling;
use crate::provider::facts::ModelCard;
use crate::sandbox::Exit;
use crate::tool::{Answer, Call, Caller, CommandCall, CoreCall, Equipment, PluginCall, Streams};
use crate::turn::TurnEvent;
use crate::usage;
use crate::worker::Cancel;

/// How long the hub may take for a word; it never waits for a turn.
const HUB_LIMIT: Duration = Duration::from_secs(10);

/// What a front end may ask of the engine.
#[derive(Clone)]
pub struct Handle {
    pub(super) engine: Arc<Engine>,
}

/// A place among what runs; a stop waits until it is given back.
#[derive(Debug)]
pub struct Place(#[allow(dead_code, reason = "given back when dropped")] Entered);

impl Handle {
    /// How the gateway is.
    pub fn health(&self) -> Health {
        let engine = &self.engine;
        let equipment = engine.toolbox.equipment();
        let sessions = engine.store.count();
        let audit = engine.audit.flush();
        let reload_error = engine.reload_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let reload_error = reload_error.clone();
        let unusable = engine.troubles.told(equipment);
        let is_up = |(name, it): &(&String, &Equipment)| {
            it.sandbox.seems_up() && !unusable.contains_key(*name)
        };
        let troubles = [audit.as_ref().err(), sessions.as_ref().err()];
        let troubles = troubles.into_iter().flatten().map(ToString::to_string);
        let troubles = troubles.chain(reload_error.clone());
        let slow = equipment.values().filter_map(|it| it.sandbox.trouble());
        Health {
            status: if self.is_draining() { "draining" } else { "ok" },
            version: env!("CARGO_PKG_VERSION"),
            address: engine.address.get().map(ToString::to_string),
            started_at: engine.started_at.to_string(),
            uptime_seconds: engine.started.elapsed().as_secs(),
            agents: equipment.len(),
            sandboxes: equipment.iter().filter(is_up).count(),
            sessions: *sessions.as_ref().unwrap_or(&0),
            running: engine.running.count(),
            waiting: engine.busy.lines().waiting,
            providers: engine.providers.load().into_iter().map(ProviderLoad::from).collect(),
            cooling: self.cooling(),
            reload_error,
            degraded: troubles.chain(unusable.values().cloned()).chain(slow).collect(),
        }
    }

    /// Each model of an agent that cools down, once.
    fn cooling(&self) -> Vec<CoolingModel> {
        let (engine, now) = (&self.engine, clock::now());
        let choices = engine.config.agents.values().flat_map(Agent::choices).map(|it| &it.model);
        let models: BTreeMap<String, &ModelRef> = choices.map(|it| (it.to_string(), it)).collect();
        let cooling = models.into_values().filter_map(|model| {
            let cooling = engine.health.cooling(model, now)?;
            // Other programs write that file, too.
            let why = cooling.why.map(|it| self.mask(&it));
            Some(CoolingModel::of(model, Cooling { why, ..cooling }))
        });
        cooling.collect()
    }

    /// All agents.
    pub fn agents(&self) -> Vec<AgentView> {
        let plugins = self.engine.toolbox.plugins();
        let equipment = self.engine.toolbox.equipment().values();
        equipment.map(|it| AgentView::of(&it.agent, plugins, &self.engine.skills)).collect()
    }

    /// The configuration without anything that is secret.
    pub fn config(&self) -> ConfigView {
        ConfigView::of(&self.engine.config)
    }

    /// The models that an agent may use, in the order in which they are tried.
    pub fn models(&self, agent: &str) -> Result<Vec<ModelCard>> {
        self.require_agent(agent)?;
        let choices = self.engine.config.agents.get(agent).into_iter().flat_map(Agent::choices);
        Ok(choices.filter_map(|it| self.engine.providers.card(it)).collect())
    }

    /// Everything that is counted.
    pub fn figures(&self) -> Figures {
        let engine = &self.engine;
        Figures { health: self.health(), lines: engine.busy.lines(), counted: engine.meter.read() }
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
        let call = Call::Core(call, &mut |_| ());
        self.engine.toolbox.run(&self.caller(agent, session_key)?, call, cancel)
    }

    /// Calls a tool of a plugin on behalf of an agent.
    pub(super) fn call_plugin_tool(
        &self,
        agent: &str,
        call: PluginCall,
        session_key: Option<&str>,
        cancel: &Cancel,
    ) -> Result<Answer> {
        self.require_agent(agent)?;
        let _entered = self.engine.running.enter(cancel)?;
        let call = Call::Plugin(call, None);
        self.engine.toolbox.run(&self.caller(agent, session_key)?, call, cancel)
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

    /// Puts a prompt in line for its session; events come as the turn goes,
    /// the last one says how it ended. Who does not read them fast enough is
    /// told so ([`super::TOO_SLOW`]) and no more, and the turn goes on.
    pub fn prompt(&self, request: PromptRequest, detail: Detail) -> Result<Subscription> {
        self.begin(Work::answer(self.engine.checked(request)?), detail)
    }

    /// Compacts a session in which no turn runs; what came of it is told by
    /// [`TurnEvent::CompactionEnd`], before the last event, which says
    /// [`Kind::Conflict`] where a turn runs. [`Kind::Missing`] for a session
    /// that does not exist.
    pub fn compact(&self, agent: &str, session_key: &str) -> Result<Subscription> {
        let key = self.require_session(agent, session_key)?;
        self.begin(Work::compact(agent, &key), Detail::All)
    }

    fn begin(&self, work: Work, detail: Detail) -> Result<Subscription> {
        let hub = self.hub()?;
        let (subscriber, subscription, cancel) = Subscription::pair(detail);
        let entered = self.engine.running.enter(&cancel)?;
        let canceller = subscription.canceller();
        let begin = hub::Begin { work, cancel, canceller, subscriber, _entered: entered };
        hub.send(Event::Begin(Box::new(begin))).map_err(|_| stopping())?;
        Ok(subscription)
    }

    /// Says something to the turn that runs in a session: the model reads it
    /// once the tool call that runs now has ended, and the further calls of its
    /// answer are not run. [`Kind::Conflict`] where no turn runs, and for a
    /// session of another agent; [`Kind::Missing`] for one that does not exist.
    pub fn steer(&self, agent: &str, session_key: &str, message: &str) -> Result<()> {
        self.require_agent(agent)?;
        let session = self.engine.store.key_of(agent, session_key)?;
        require_short(message)?;
        let (reply, answer) = bounded(1);
        let event =
            Event::Steer { agent: agent.to_owned(), session, message: message.to_owned(), reply };
        self.hub()?.send(event).map_err(|_| stopping())?;
        let what = format!("say something to the turn in the session `{session_key}`");
        let said = answer.recv_timeout(HUB_LIMIT).during(Kind::Timeout, what)?;
        // A session has no file before its first turn has begun.
        if said.is_err() {
            self.require_session(agent, session_key)?;
        }
        said
    }

    /// The key of a session. [`Kind::Missing`] for one that does not exist,
    /// [`Kind::Conflict`] for one of another agent.
    fn require_session(&self, agent: &str, session: &str) -> Result<String> {
        self.require_agent(agent)?;
        let key = self.engine.store.key_of(agent, session)?;
        if self.engine.store.owner(&key)?.is_none() {
            self.engine.store.find(Some(agent), &key)?;
        }
        Ok(key)
    }

    /// Calls off the turn that runs in a session; prompts that wait behind it
    /// go on. `false` if none ran. [`Kind::Conflict`] for a session of another
    /// agent, [`Kind::Missing`] for one that does not exist.
    pub fn abort(&self, agent: &str, session_key: &str) -> Result<bool> {
        self.require_agent(agent)?;
        let session = self.engine.store.key_of(agent, session_key)?;
        let (reply, answer) = bounded(1);
        let event = Event::Abort { agent: agent.to_owned(), session, reply };
        self.hub()?.send(event).map_err(|_| stopping())?;
        let aborted = answer
            .recv_timeout(HUB_LIMIT)
            .during(Kind::Timeout, format!("call off the turn in the session `{session_key}`"))?;
        // A session has no file before its first turn has begun.
        if !aborted {
            self.require_session(agent, session_key)?;
        }
        Ok(aborted)
    }

    /// Whether a turn runs in that session.
    pub fn is_busy(&self, session_key: &str) -> bool {
        self.engine.busy.waiting(session_key).is_some()
    }

    /// Number of prompts that wait for that session.
    pub fn waiting(&self, session_key: &str) -> usize {
        self.engine.busy.waiting(session_key).unwrap_or(0)
    }

    /// Has the gateway start afresh with the configuration as it is now, once
    /// what runs has ended or its time is up. A configuration that is wrong is
    /// told in the log and by [`Health::reload_error`], and the old one stays.
    pub fn restart(&self) -> Result<()> {
        if self.is_draining() {
            return Err(stopping());
        }
        self.hub()?.send(Event::Reload).map_err(|_| stopping())
    }

    fn hub(&self) -> Result<&Sender<Event>> {
        let hub = self.engine.hub.as_ref();
        hub.ok_or_else(|| Error::new(Kind::Internal, "no hub runs in this process"))
    }

    /// One prompt on this thread, without a hub.
    pub fn prompt_here(
        &self,
        request: PromptRequest,
        events: &mut dyn FnMut(TurnEvent),
        cancel: &Cancel,
    ) -> Result<()> {
        let work = Work::answer(self.engine.checked(request)?);
        turns::run(&self.engine, &work, events, cancel);
        Ok(())
    }

    /// A prompt from its beginning to its end, which is told to `each` but for
    /// the last event. With a hub it waits in line as any other; without one it
    /// runs on this thread.
    pub(super) fn prompt_through(
        &self,
        request: PromptRequest,
        detail: Detail,
        each: &mut dyn FnMut(TurnEvent),
        cancel: &Cancel,
    ) -> Result<TurnEvent> {
        let mut last = None;
        if self.engine.hub.is_some() {
            last = self.prompt(request, detail)?.follow(each, cancel);
        } else {
            let mut tell = |event: TurnEvent| match event.is_last() {
                true => last = Some(event),
                false => each(event),
            };
            self.prompt_here(request, &mut tell, cancel)?;
        }
        last.ok_or_else(|| match cancel.is_cancelled() {
            true => Error::new(Kind::Cancelled, "the prompt was called off"),
            false => Error::new(Kind::Internal, "the turn broke off without an answer"),
        })
    }

    /// Reads the audit log; `each` says whether to go on.
    pub fn audit(
        &self,
        filter: &audit::Filter,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<()> {
        audit::read(&self.engine.config.home, filter, each).map(drop)
    }

    /// Adds up what model calls took, over all runs.
    pub fn usage(&self, query: &usage::Query) -> Result<usage::Summary> {
        usage::sum(&self.engine.config.home, query)
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
            Some(word) => Some(session_ref(&self.engine.store.key_of(agent, word)?)),
            None => None,
        };
        Ok(Caller { agent: agent.to_owned(), session, claimed_session: None, model: None })
    }
}

fn stopping() -> Error {
    Error::new(Kind::Busy, "the gateway is stopping; nothing was begun")
}
