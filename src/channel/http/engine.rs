//! What HTTP asks of the gateway: the seam between translating and doing.
//! `gateway::Handle` is the one engine; tests put a small one of their own in
//! its place.

use serde::Serialize;
use serde_json::Value;

use crate::audit::Filter;
use crate::config::ModelRef;
use crate::error::Result;
use crate::gateway::{
    ChatEvent, ChatRequest, Detail, Figures, Handle, HookRequest, Made, Place, PromptRequest,
    SessionChange, Subscription,
};
use crate::sandbox::Exit;
use crate::session::{Listed, Page, Told, Which};
use crate::tool::{self, CommandCall, Streams};
use crate::usage::Query;
use crate::worker::Cancel;

/// One line of the audit log at a time; whether it wants more.
pub(super) type EachRecord<'a> = &'a mut dyn FnMut(&str) -> Result<bool>;

/// One session of a list at a time; whether it wants more.
pub(super) type EachSession<'a> = &'a mut dyn FnMut(Listed) -> Result<bool>;

/// One message of a history at a time; whether it wants more.
pub(super) type EachMessage<'a> = &'a mut dyn FnMut(Told) -> Result<bool>;

/// The gateway, as the routes see it.
pub(super) trait Engine: Clone + Send + Sync + 'static {
    /// A place among what runs.
    type Place: Send;
    /// What `GET /api/health` tells the owner.
    fn health(&self) -> Value;
    /// The list of agents.
    fn agents(&self) -> Value;
    /// The configuration, without anything that is secret.
    fn config(&self) -> Value;
    /// The models of an agent.
    fn models(&self, agent: &str) -> Result<Value>;
    /// Everything that is counted.
    fn figures(&self) -> Figures;
    /// Has it start afresh, soon.
    fn restart(&self) -> Result<()>;
    /// Calls off the turn of a session; whether one ran.
    fn abort(&self, agent: &str, session_key: &str) -> Result<bool>;
    /// Says something to the turn of a session; `Conflict` if none runs.
    fn steer(&self, agent: &str, session_key: &str, message: &str) -> Result<()>;
    /// Compacts a session in which no turn runs; its events end with a
    /// terminal one.
    fn compact(&self, agent: &str, session_key: &str) -> Result<Subscription>;
    /// `Missing` unless there is an agent of that name.
    fn require_agent(&self, name: &str) -> Result<()>;
    /// Runs a core tool.
    fn call_tool(
        &self,
        agent: &str,
        tool: &str,
        params: Value,
        session_key: Option<&str>,
        cancel: &Cancel,
    ) -> Result<tool::Answer>;
    /// Takes a place for a command; `Busy` once nothing new is begun.
    fn admit(&self, cancel: &Cancel) -> Result<Self::Place>;
    /// Runs a command with its streams.
    fn run_command(
        &self,
        place: Self::Place,
        agent: &str,
        call: CommandCall,
        session_key: Option<&str>,
        streams: Streams<'_>,
        cancel: &Cancel,
    ) -> Result<Exit>;
    /// Puts a prompt in line; its events end with a terminal one.
    fn prompt(&self, request: PromptRequest, detail: Detail) -> Result<Subscription>;
    /// One answer to a conversation that its client keeps, on this thread; an
    /// error means that nothing was begun and nothing told. In each second
    /// something is told of it, if only a lull.
    fn chat(
        &self,
        request: ChatRequest,
        events: &mut dyn FnMut(ChatEvent),
        cancel: &Cancel,
    ) -> Result<()>;
    /// Goes through the audit log.
    fn audit(&self, filter: &Filter, each: EachRecord) -> Result<()>;
    /// Adds up what model calls took.
    fn usage(&self, query: &Query) -> Result<Value>;
    /// Lists sessions.
    fn sessions(&self, which: &Which, each: EachSession) -> Result<()>;
    /// Tells a session: `first` what it is, then its messages.
    fn session_history(
        &self,
        agent: &str,
        session: &str,
        page: &Page,
        first: &mut dyn FnMut(Listed),
        each: EachMessage,
    ) -> Result<bool>;
    /// Changes an agent's sessions.
    fn change_session(&self, agent: &str, change: &SessionChange) -> Result<Listed>;
    /// Chooses the model that an agent's session begins with.
    fn choose_model(&self, agent: &str, session_key: &str, model: &ModelRef) -> Result<()>;
    /// Asks plugins on behalf of a client.
    fn run_hook(&self, request: HookRequest, cancel: &Cancel) -> Result<Made>;
    /// Takes known secrets out of a text.
    fn mask(&self, text: &str) -> String;
    /// Whether nothing new is begun any more.
    fn is_draining(&self) -> bool;
}

impl Engine for Handle {
    type Place = Place;

    fn health(&self) -> Value {
        as_value(&self.health())
    }

    fn agents(&self) -> Value {
        as_value(&self.agents())
    }

    fn config(&self) -> Value {
        as_value(&self.config())
    }

    fn models(&self, agent: &str) -> Result<Value> {
        self.models(agent).map(|it| as_value(&it))
    }

    fn figures(&self) -> Figures {
        self.figures()
    }

    fn restart(&self) -> Result<()> {
        self.restart()
    }

    fn abort(&self, agent: &str, session_key: &str) -> Result<bool> {
        self.abort(agent, session_key)
    }

    fn steer(&self, agent: &str, session_key: &str, message: &str) -> Result<()> {
        self.steer(agent, session_key, message)
    }

    fn compact(&self, agent: &str, session_key: &str) -> Result<Subscription> {
        self.compact(agent, session_key)
    }

    fn require_agent(&self, name: &str) -> Result<()> {
        self.require_agent(name)
    }

    fn call_tool(
        &self,
        agent: &str,
        tool: &str,
        params: Value,
        session_key: Option<&str>,
        cancel: &Cancel,
    ) -> Result<tool::Answer> {
        self.call_tool(agent, tool, params, session_key, cancel)
    }

    fn admit(&self, cancel: &Cancel) -> Result<Place> {
        self.admit(cancel)
    }

    fn run_command(
        &self,
        place: Place,
        agent: &str,
        call: CommandCall,
        session_key: Option<&str>,
        streams: Streams<'_>,
        cancel: &Cancel,
    ) -> Result<Exit> {
        self.run_command(place, agent, call, session_key, streams, cancel)
    }

    fn prompt(&self, request: PromptRequest, detail: Detail) -> Result<Subscription> {
        self.prompt(request, detail)
    }

    fn chat(
        &self,
        request: ChatRequest,
        events: &mut dyn FnMut(ChatEvent),
        cancel: &Cancel,
    ) -> Result<()> {
        self.chat(request, events, cancel)
    }

    fn audit(&self, filter: &Filter, each: EachRecord) -> Result<()> {
        self.audit(filter, each)
    }

    fn usage(&self, query: &Query) -> Result<Value> {
        self.usage(query).map(|it| it.document())
    }

    fn sessions(&self, which: &Which, each: EachSession) -> Result<()> {
        self.sessions(which, each)
    }

    fn session_history(
        &self,
        agent: &str,
        session: &str,
        page: &Page,
        first: &mut dyn FnMut(Listed),
        each: EachMessage,
    ) -> Result<bool> {
        self.session_history(agent, session, page, first, each)
    }

    fn change_session(&self, agent: &str, change: &SessionChange) -> Result<Listed> {
        self.change_session(agent, change)
    }

    fn choose_model(&self, agent: &str, session_key: &str, model: &ModelRef) -> Result<()> {
        self.choose_model(agent, session_key, model)
    }

    fn run_hook(&self, request: HookRequest, cancel: &Cancel) -> Result<Made> {
        self.run_hook(request, cancel)
    }

    fn mask(&self, text: &str) -> String {
        self.mask(text)
    }

    fn is_draining(&self) -> bool {
        self.is_draining()
    }
}

fn as_value(view: &impl Serialize) -> Value {
    serde_json::to_value(view).unwrap_or_default()
}
