//! One turn with everything it needs put together: the session, the system
//! prompt, the model, and the toolbox and audit log on the caller's behalf.

use std::cell::Cell;
use std::sync::Arc;

use serde_json::json;

use super::{Engine, session_ref};
use crate::clock;
use crate::config::{Agent, ModelChoice, ModelRef};
use crate::error::{Error, Kind, Result};
use crate::plugin::hooks::Prompted;
use crate::sandbox::AgentSandbox;
use crate::tool::Caller;
use crate::turn::{
    Equipped, LARGEST_AGENTS_MD, ModelCallEnd, Prompt, Steering, Turn, TurnEvent, Veil, core_tools,
};
use crate::worker::Cancel;

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
    /// The session whose turn asks, by an agent's tool: it pays.
    pub parent: Option<String>,
}

/// What is done in a session; one at a time.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// The agent whose session it is.
    pub(super) agent: String,
    /// The session's key.
    pub(super) session: String,
    /// By what a person can say something to it.
    pub(super) steering: Arc<Steering>,
    task: Task,
}

#[derive(Clone, Debug)]
enum Task {
    /// A turn.
    Answer(PromptRequest),
    /// The older part of the conversation is summarised.
    Compact,
}

impl Work {
    /// A prompt, checked, is answered.
    pub(super) fn answer(request: PromptRequest) -> Self {
        Self {
            agent: request.agent.clone(),
            session: request.session_key.clone().unwrap_or_default(),
            steering: Arc::new(Steering::open()),
            task: Task::Answer(request),
        }
    }

    /// A session is compacted.
    pub(super) fn compact(agent: &str, session: &str) -> Self {
        Self {
            agent: agent.to_owned(),
            session: session.to_owned(),
            steering: Arc::new(Steering::closed()),
            task: Task::Compact,
        }
    }

    /// The session whose turn pays for it, if another does.
    fn parent(&self) -> Option<&str> {
        match &self.task {
            Task::Answer(request) => request.parent.as_deref(),
            Task::Compact => None,
        }
    }

    /// Whether it waits for a turn that runs.
    pub(super) fn waits_in_line(&self) -> bool {
        matches!(self.task, Task::Answer(_))
    }
}

/// All of it on this thread, from its beginning to its last event.
pub(super) fn run(
    engine: &Engine,
    work: &Work,
    events: &mut dyn FnMut(TurnEvent),
    cancel: &Cancel,
) {
    let ended = Cell::new(false);
    let wanted = wanted_model(engine, work);
    let first = wanted.as_ref().ok().and_then(Option::clone);
    let mut veil = Veil::new(&engine.redactor, events);
    let mut each = |event: TurnEvent| {
        if event.is_last() {
            ended.set(true);
            close_ears(work);
            if let Task::Answer(request) = &work.task {
                engine.meter.turn_ended(&event);
                log_end(engine, request, first.as_ref(), &event);
            }
        }
        veil.pass(event);
    };
    let result = wanted.and_then(|it| try_run(engine, work, it.as_ref(), &mut each, cancel));
    // A turn that began tells its end itself.
    if let (Err(error), false) = (result, ended.get()) {
        each(TurnEvent::refused(&error));
    }
}

/// A failed turn is a warning in the log of a gateway, one that was called off
/// or answered a word for who looks closely. A one-shot tells its caller.
fn log_end(engine: &Engine, request: &PromptRequest, wanted: Option<&ModelRef>, last: &TurnEvent) {
    if engine.hub.is_none() {
        return;
    }
    let (agent, session) = (&request.agent, request.session_key.as_deref().unwrap_or_default());
    let agent_entry = engine.config.agents.get(agent);
    let model = agent_entry.map(|it| from_choice(it, wanted)[0].model.to_string());
    let model = model.unwrap_or_default();
    let turn = format!("the turn of `{agent}` in `{session}` with {model}");
    match last {
        TurnEvent::Error { category: "aborted", .. } => log::debug!("{turn} was called off"),
        TurnEvent::Error { category, message, .. } => {
            log::warn!("{turn} failed ({category}): {message}");
        }
        TurnEvent::Blocked { reason } => log::warn!("{turn} was refused: {reason}"),
        _ => log::debug!("{turn} is done"),
    }
}

/// The model that is to be asked first: of this prompt, else of its session.
fn wanted_model(engine: &Engine, work: &Work) -> Result<Option<ModelRef>> {
    match &work.task {
        Task::Answer(PromptRequest { model: Some(model), .. }) => Ok(Some(model.clone())),
        Task::Answer(_) | Task::Compact => engine.store.chosen_model(&work.session),
    }
}

fn try_run(
    engine: &Engine,
    work: &Work,
    wanted: Option<&ModelRef>,
    events: &mut dyn FnMut(TurnEvent),
    cancel: &Cancel,
) -> Result<()> {
    let Some(agent) = engine.config.agents.get(&work.agent) else {
        return Err(Error::new(Kind::Missing, format!("there is no agent `{}`", work.agent)));
    };
    let Some(equipment) = engine.toolbox.equipment().get(&work.agent) else {
        let what = format!(
            "without a gateway a process has the sandbox of one agent, and not that of `{}`; \
             `beige gateway start` starts one",
            work.agent
        );
        return Err(Error::new(Kind::Busy, what));
    };
    let key = &work.session;
    let prompted = match &work.task {
        Task::Compact => Prompted::default(),
        Task::Answer(request) => match engine.guarded(request, key, cancel)? {
            Ok(prompted) => prompted,
            Err(reason) => {
                events(TurnEvent::Blocked { reason });
                return Ok(());
            }
        },
    };
    let mut conversation = engine.store.open(key, &agent.name, clock::now())?;
    if let Some(parent) = work.parent() {
        let depth = engine.store.depth(parent)?.saturating_add(1);
        engine.store.set_depth(key, depth, clock::now())?;
    }
    if let Task::Answer(request) = &work.task {
        engine.tell_of_beginning(request, agent, &conversation, cancel)?;
    }
    let open = engine.bills.open(key, work.parent());
    let choices: Vec<&ModelChoice> = from_choice(agent, wanted);
    let model = &choices[0].model;
    let notes = workspace_notes(&equipment.sandbox, cancel);
    let system = Prompt {
        agent: &agent.name,
        plugin_tools: &engine.toolbox.plugins().context_text(&agent.tools),
        skills: &engine.skills.context_text(&engine.skills.of(agent)),
        agents_md: notes.as_deref(),
        instructions: agent.instructions.as_deref(),
        session_key: key,
        today: clock::now(),
        context: &prompted.context,
    }
    .text();
    let counted = |model: &ModelRef, end: &ModelCallEnd| {
        engine.turn_call_ended(&open.bill, &agent.name, model, end);
    };
    let caller = caller(agent, key, model);
    let hands = Equipped::new(&engine.toolbox, &engine.audit, caller, &counted);
    let turn = Turn {
        agent: &agent.name,
        session_key: key,
        choices: &choices,
        system: &system,
        tools: &core_tools(),
        limits: agent.limits,
        providers: &engine.providers,
        health: &engine.health,
        hands: &hands,
        steering: &work.steering,
        bill: &open.bill,
        redactor: &engine.redactor,
    };
    match &work.task {
        Task::Answer(_) => turn.run(&mut conversation, &prompted.message, events, cancel).map(drop),
        Task::Compact => turn.compact(&mut conversation, events, cancel),
    }
}

/// From now on nobody can say anything more to it. A turn that ran has heard
/// all; of one that was refused before, the log tells.
fn close_ears(work: &Work) {
    let unheard = work.steering.close().len();
    if unheard > 0 {
        let session = &work.session;
        log::warn!("{unheard} messages to the prompt in `{session}` are refused with it");
    }
}

/// The models that may answer: from the wanted one on, or all. One that the
/// agent may use no more is wanted in vain.
pub(super) fn from_choice<'a>(agent: &'a Agent, wanted: Option<&ModelRef>) -> Vec<&'a ModelChoice> {
    let start = wanted.and_then(|it| agent.choices().position(|choice| choice.model == *it));
    agent.choices().skip(start.unwrap_or(0)).collect()
}

fn caller(agent: &Agent, key: &str, model: &ModelRef) -> Caller {
    Caller {
        agent: agent.name.clone(),
        session: Some(session_ref(key)),
        claimed_session: None,
        model: Some(model.to_string()),
    }
}

/// The workspace's AGENTS.md, read inside the sandbox, where a link under
/// that name leads nowhere else. Without it the turn goes on.
fn workspace_notes(sandbox: &AgentSandbox, cancel: &Cancel) -> Option<String> {
    let request = json!({"op": "fetch", "path": "AGENTS.md", "max": LARGEST_AGENTS_MD});
    match sandbox.file(&request, &[], LARGEST_AGENTS_MD, cancel) {
        Ok(answer) if answer.report.get("error").is_none() => {
            Some(String::from_utf8_lossy(&answer.content).into_owned())
        }
        Ok(_) => None,
        Err(error) => {
            log::warn!("read AGENTS.md of the workspace: {error}");
            None
        }
    }
}
