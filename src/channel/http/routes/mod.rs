//! What the API can do: each request that came through the door is read,
//! understood and handed to the gateway. Quick answers are given on the spot;
//! prompt, exec and every stream get a thread of their own, of which there are
//! no more than the door lets connections in.

mod array;
mod calls;
mod chat;
mod gateway;
mod hooks;
mod path;
mod requests;
mod sessions;

use std::sync::Arc;

use crossbeam_channel::bounded;
use serde_json::json;
use tiny_http::Request;

pub(super) use super::failure::refusal;
pub(super) use calls::report;
use gateway::Quick;
use path::SessionRoute;
pub(super) use path::{Route, route};
pub(super) use requests::CommandRequest;

use super::answer::Answer;
use super::engine::Engine;
use super::stream::Reply;
use crate::audit::Filter;
use crate::clock;
use crate::gateway::{Detail, HookRequest, PromptRequest, SessionChange};
use crate::usage::Query;
use crate::worker::{Cancel, Crew, give_memory_back};
use requests::{ChatBody, Checked, PromptBody, ToolRequest};
use sessions::SessionTask;

/// The channel of sessions that are made here.
const CHANNEL: &str = "api";

/// A body of so many bytes is read by the thread of its call.
const LONG: usize = 64 * 1024;

/// The routes of one gateway.
pub(super) struct Routes<E> {
    engine: E,
    /// Threads of what is not quick.
    calls: Arc<Crew>,
    /// Cancelled when the API ends: calls without a stream do not end with
    /// their client.
    closing: Cancel,
    body_bytes: usize,
}

/// A call with what it runs on and answers to.
struct Call<E> {
    engine: E,
    closing: Cancel,
    reply: Reply,
}

/// What is to be done for a request.
enum Task {
    Tool(String, ToolRequest),
    Command(String, CommandRequest),
    Prompt(PromptRequest),
    PromptStream(PromptRequest, Detail),
    Chat(Box<ChatBody>),
    Audit(Filter),
    Usage(Query),
    Session(SessionTask),
    Hook(HookRequest),
    Abort(String, String),
    /// Agent, session, and what is said to its turn.
    Steer(String, String, String),
    Compact(String, String),
}

impl<E: Engine> Routes<E> {
    /// Routes to this engine; bodies have at most `body_bytes`, by the door.
    pub(super) fn new(engine: E, calls: Arc<Crew>, closing: Cancel, body_bytes: usize) -> Self {
        Self { engine, calls, closing, body_bytes }
    }

    /// Answers a request, or starts the thread that does.
    pub(super) fn take(&self, mut request: Request) {
        let body = self.body_of(&mut request);
        let asked = Asked::of(&request);
        let reply = Reply::new(request.into_writer(), asked.minor);
        match body {
            Ok(body) if body.len() >= LONG => self.take_long(asked, body, reply),
            body => match body.and_then(|body| understand(&self.engine, &asked, &body)) {
                Ok(Understood::Answer(answer)) | Err(answer) => send(reply, &answer),
                Ok(Understood::Task(task)) => self.start(reply, |call| call.run(task)),
            },
        }
    }

    /// What is made of a long body is many small pieces. Some of what a thread
    /// frees the allocator keeps for it as long as it lives, which would hold all
    /// the memory around, so that this is done by a thread that ends. It is waited
    /// for until it has read the body: only a few are read at a time.
    fn take_long(&self, asked: Asked, body: Vec<u8>, reply: Reply) {
        let (reading, read) = bounded::<()>(0);
        self.start(reply, move |call| {
            let understood = understand(&call.engine, &asked, &body);
            drop((body, reading));
            match understood {
                Ok(Understood::Answer(answer)) | Err(answer) => send(call.reply, &answer),
                Ok(Understood::Task(task)) => call.run(task),
            }
        });
        // Nothing is ever sent: it is dropped.
        let _ = read.recv();
    }

    /// The body, always whole: tiny_http would make room for an unread rest,
    /// and one that was cut short is not to be acted on.
    fn body_of(&self, request: &mut Request) -> Result<Vec<u8>, Answer> {
        let length = request.body_length().unwrap_or(0);
        if length > self.body_bytes {
            return Err(Answer::error(413, "the body is too large"));
        }
        let mut body = Vec::with_capacity(length);
        match request.as_reader().read_to_end(&mut body) {
            Ok(read) if read == length => Ok(body),
            _ => Err(Answer::error(400, "the body was cut short")),
        }
    }

    /// Gives a call a thread.
    fn start(&self, reply: Reply, run: impl FnOnce(Call<E>) + Send + 'static) {
        let (reply_in, reply_out) = bounded(1);
        let _ = reply_in.send(reply);
        let (engine, closing) = (self.engine.clone(), self.closing.clone());
        let replies = reply_out.clone();
        let started = self.calls.spawn(move || {
            if let Ok(reply) = replies.recv() {
                run(Call { engine, closing, reply });
                give_memory_back();
            }
        });
        if matches!(started, Ok(true)) {
            return;
        }
        log::error!(
            "a call gets no thread: {}",
            started.err().map_or("too many run".to_owned(), |it| it.to_string())
        );
        if let Ok(reply) = reply_out.try_recv() {
            send(reply, &Answer::error(503, "the gateway runs all the calls it can; try again"));
        }
    }
}

/// What a request asks for; else what is wrong with it, in words of its own but for
/// known secrets.
fn understand<E: Engine>(engine: &E, asked: &Asked, body: &[u8]) -> Result<Understood, Answer> {
    read(engine, asked, body).map_err(|wrong| wrong.masked(|it| engine.mask(it)))
}

fn read<E: Engine>(engine: &E, asked: &Asked, body: &[u8]) -> Result<Understood, Answer> {
    let route = route(&asked.method, &asked.target)?;
    if asked.by_stranger {
        // The door lets strangers ask for nothing else.
        return Ok(Understood::Answer(Answer::json(&json!({ "status": "ok" }))));
    }
    let task = match route {
        Route::Quick(route) => {
            if route == Quick::Restart {
                checked(requests::nothing(body))?;
            }
            return Ok(Understood::Answer(route.answer(engine)));
        }
        Route::Audit => {
            let query = path::query(&asked.target).ok_or_else(|| bad("malformed query"))?;
            Task::Audit(checked(requests::audit_filter(query, clock::now()))?)
        }
        Route::Usage => {
            let query = path::query(&asked.target).ok_or_else(|| bad("malformed query"))?;
            Task::Usage(checked(requests::usage_query(query, clock::now()))?)
        }
        Route::Exec(agent) => {
            require(engine, &agent)?;
            Task::Tool(agent, checked(ToolRequest::parse(body))?)
        }
        Route::ExecStream(agent) => {
            require(engine, &agent)?;
            Task::Command(agent, checked(CommandRequest::parse(body))?)
        }
        Route::Prompt(agent) => {
            require(engine, &agent)?;
            Task::Prompt(prompt_request(agent, checked(PromptBody::parse(body))?))
        }
        Route::PromptStream(agent) => {
            require(engine, &agent)?;
            let (body, detail) = checked(PromptBody::parse_of_stream(body))?;
            Task::PromptStream(prompt_request(agent, body), detail)
        }
        Route::ChatStream => {
            let chat = checked(ChatBody::parse(body))?;
            require(engine, &chat.request.agent)?;
            Task::Chat(Box::new(chat))
        }
        Route::Sessions(agent, route) => {
            require(engine, &agent)?;
            Task::Session(session_task(agent, route, asked, body)?)
        }
        Route::Hook(agent, route) => {
            require(engine, &agent)?;
            Task::Hook(checked(hooks::request(agent, route, body))?)
        }
        // Also while the gateway drains: it helps it to end.
        Route::Abort(agent, key) => {
            checked(requests::nothing(body))?;
            Task::Abort(agent, key)
        }
        Route::Steer(agent, key) => {
            require(engine, &agent)?;
            Task::Steer(agent, key, checked(requests::steering(body))?)
        }
        Route::Compact(agent, key) => {
            require(engine, &agent)?;
            checked(requests::nothing(body))?;
            Task::Compact(agent, key)
        }
    };
    Ok(Understood::Task(task))
}

fn prompt_request(agent: String, body: PromptBody) -> PromptRequest {
    let PromptBody { message, session_key, model } = body;
    PromptRequest { agent, message, session_key, model, channel: CHANNEL.into(), parent: None }
}

/// What is asked of an agent's sessions.
fn session_task(
    agent: String,
    route: SessionRoute,
    asked: &Asked,
    body: &[u8],
) -> Result<SessionTask, Answer> {
    let query = || path::query(&asked.target).ok_or_else(|| bad("malformed query"));
    let change = match route {
        SessionRoute::List => {
            return Ok(SessionTask::List(checked(sessions::which(agent, query()?))?));
        }
        SessionRoute::Show(session) => {
            let page = checked(sessions::page(query()?))?;
            return Ok(SessionTask::History { agent, session, page });
        }
        SessionRoute::New => {
            SessionChange::New { key: checked(requests::session_key(body))?, metadata: None }
        }
        SessionRoute::Resume => {
            let (key, id) = checked(requests::key_and_id(body))?;
            SessionChange::Resume { key, id }
        }
        SessionRoute::Name(session) => {
            SessionChange::Name { session, name: checked(requests::session_name(body))? }
        }
        SessionRoute::Model(key) => {
            checked(requests::checked_key(&key))?;
            let model = checked(requests::model_choice(body))?;
            return Ok(SessionTask::Choose { agent, key, model });
        }
        SessionRoute::Remove(session) => SessionChange::Remove { session },
    };
    Ok(SessionTask::Change { agent, change })
}

/// Refuses an agent that does not exist, and any while the gateway drains.
pub(super) fn require(engine: &impl Engine, agent: &str) -> Result<(), Answer> {
    if engine.is_draining() {
        return Err(Answer::error(503, "the gateway is stopping; nothing was begun"));
    }
    engine.require_agent(agent).map_err(|error| refusal(engine, &error))
}

/// What is known once a request is read.
enum Understood {
    Answer(Answer),
    Task(Task),
}

/// The head of a request, as tiny_http has it.
struct Asked {
    method: String,
    target: String,
    minor: u8,
    by_stranger: bool,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let caller = request.headers().iter().find(|it| it.field.equiv("X-Beige-Caller"));
        Self {
            method: request.method().to_string(),
            target: request.url().to_owned(),
            minor: request.http_version().1,
            by_stranger: caller.is_none_or(|it| it.value.as_str() != "owner"),
        }
    }
}

fn bad(text: &str) -> Answer {
    Answer::error(400, text)
}

fn checked<T>(found: Checked<T>) -> Result<T, Answer> {
    found.map_err(|wrong| Answer::error(400, wrong))
}

/// A client that is gone is no failure of ours.
fn send(mut reply: Reply, answer: &Answer) {
    let _ = answer.write(reply.writer());
}
