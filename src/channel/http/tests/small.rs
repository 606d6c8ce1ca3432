//! A small engine in the gateway's place: what it is told to do stands in what
//! it is asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Sender, select};
use serde_json::{Value, json};

use super::super::engine::{EachMessage, EachRecord, EachSession, Engine};
use crate::audit::Filter;
use crate::clock;
use crate::config::ModelRef;
use crate::error::{Error, Kind, Result};
use crate::gateway::{
    ChatEvent, ChatRequest, Detail, Figures, Health, HookRequest, Lines, Made, PromptRequest,
    ProviderLoad, Said, SessionChange, Subscription,
};
use crate::plugin::hooks::Prompted;
use crate::provider::{Assembly, Delta};
use crate::sandbox::{Exit, Feed, Output};
use crate::session::{Listed, Page, Which};
use crate::tool::{self, CommandCall, Streams};
use crate::turn::TurnEvent;
use crate::usage::Query;
use crate::worker::{Cancel, Worker};

/// The gateway's place: one agent, `assistant`; tells what it did.
#[derive(Clone)]
pub(super) struct Small {
    told: Sender<String>,
    draining: bool,
    turns: Arc<Mutex<Vec<Worker>>>,
}

impl Small {
    /// Tells what it does there.
    pub(super) fn new(told: Sender<String>, draining: bool) -> Self {
        Self { told, draining, turns: Arc::default() }
    }

    fn tell(&self, what: impl Into<String>) {
        let _ = self.told.send(what.into());
    }

    /// Runs `cat` with the window of a real one.
    fn cat(&self, feed: &Feed, output: &mut dyn Output, cancel: &Cancel) -> Result<Exit> {
        loop {
            select! {
                recv(feed.stdin) -> bytes => match bytes {
                    Ok(bytes) => {
                        let written = output.stdout(&bytes).and_then(|()| {
                            output.window(u32::try_from(bytes.len()).unwrap_or(0))
                        });
                        if written.is_err() {
                            return Ok(exit(137));
                        }
                    }
                    Err(_) => return Ok(exit(0)),
                },
                recv(feed.signals) -> number => if let Ok(number) = number {
                    return Ok(exit(128 + i32::from(number)));
                },
                recv(cancel.gone()) -> _ => {
                    self.tell("cat was called off");
                    return Err(Error::new(Kind::Cancelled, "called off"));
                }
            }
        }
    }
}

fn exit(code: i32) -> Exit {
    Exit {
        code,
        timed_out: false,
        cancelled: false,
        note: None,
        saved: None,
        duration: Duration::from_millis(7),
    }
}

impl Engine for Small {
    type Place = ();

    fn health(&self) -> Value {
        json!({ "status": "ok", "version": "1" })
    }

    fn agents(&self) -> Value {
        json!([{ "name": "assistant" }])
    }

    fn config(&self) -> Value {
        json!({ "agents": {} })
    }

    fn models(&self, agent: &str) -> Result<Value> {
        self.require_agent(agent).map(|()| json!([{ "id": "m" }]))
    }

    fn figures(&self) -> Figures {
        figures()
    }

    fn restart(&self) -> Result<()> {
        self.tell("restart");
        Ok(())
    }

    fn abort(&self, agent: &str, session_key: &str) -> Result<bool> {
        self.require_agent(agent)?;
        match session_key {
            "api:other" => Err(Error::new(Kind::Conflict, "it belongs to `other`")),
            _ => Ok(session_key == "api:a/b"),
        }
    }

    fn steer(&self, agent: &str, session_key: &str, message: &str) -> Result<()> {
        match self.abort(agent, session_key)? && message == "left" {
            true => Ok(()),
            false => Err(Error::new(Kind::Conflict, "no turn is running in this session")),
        }
    }

    fn compact(&self, _: &str, session_key: &str) -> Result<Subscription> {
        let (mut subscriber, subscription, _) = Subscription::pair(Detail::All);
        let failed = session_key != "api:a/b";
        let (tokens_before, tokens_after) = (9, if failed { 9 } else { 2 });
        let reason = failed.then(|| "r".to_owned());
        subscriber.tell(TurnEvent::CompactionEnd {
            compacted: !failed,
            tokens_before,
            tokens_after,
            reason,
        });
        subscriber.tell(TurnEvent::Done { response: String::new(), note: None });
        Ok(subscription)
    }

    fn require_agent(&self, name: &str) -> Result<()> {
        match name {
            "assistant" => Ok(()),
            _ => Err(Error::new(Kind::Missing, format!("there is no agent `{name}`"))),
        }
    }

    fn call_tool(
        &self,
        agent: &str,
        tool: &str,
        params: Value,
        session_key: Option<&str>,
        cancel: &Cancel,
    ) -> Result<tool::Answer> {
        self.tell(format!("{agent} {tool} {params} {session_key:?}"));
        match tool {
            "wait" => {
                let _ = cancel.gone().recv();
                self.tell("wait was called off");
                Err(Error::new(Kind::Cancelled, "called off"))
            }
            "leak" => Err(Error::new(Kind::Denied, "no s3cret for you")),
            _ => Ok(tool::Answer::text("hi")),
        }
    }

    fn admit(&self, _: &Cancel) -> Result<()> {
        Ok(())
    }

    fn run_command(
        &self,
        (): (),
        _: &str,
        call: CommandCall,
        _: Option<&str>,
        Streams { feed, output }: Streams<'_>,
        cancel: &Cancel,
    ) -> Result<Exit> {
        match call.argv.first().and_then(|it| it.to_str()) {
            Some("cat") => self.cat(feed, output, cancel),
            Some("both") => {
                let both = output.stdout(b"out\xff").and_then(|()| output.stderr(b"err"));
                both.map(|()| exit(3)).map_err(|_| Error::new(Kind::Cancelled, "gone"))
            }
            Some("yes") => {
                while output.stdout(&[b'y'; 64 * 1024]).is_ok() {}
                self.tell("nobody takes what yes says");
                Ok(exit(137))
            }
            Some("wait") => {
                let _ = cancel.gone().recv();
                self.tell("wait was called off");
                Ok(exit(137))
            }
            _ => Err(Error::new(Kind::Sandbox, "no s3cret runtime")),
        }
    }

    fn prompt(&self, request: PromptRequest, detail: Detail) -> Result<Subscription> {
        let (mut subscriber, subscription, cancel) = Subscription::pair(detail);
        let mut send = |event| subscriber.tell(event);
        if request.message == "busy" {
            send(TurnEvent::refused(&Error::new(Kind::Busy, "the gateway is stopping")));
            return Ok(subscription);
        }
        send(TurnEvent::TextDelta { delta: "a".into() });
        match request.message.as_str() {
            "block" => send(TurnEvent::Blocked { reason: "not today".into() }),
            "fail" => send(failure()),
            "break" => {}
            "denied" => return Err(Error::new(Kind::Denied, "this model is not the agent's")),
            "wait" => {
                let told = self.told.clone();
                let waiting = Worker::spawn("turn", move || {
                    let _ = cancel.gone().recv();
                    let _ = told.send("the turn was called off".into());
                    drop(subscriber);
                });
                let waiting = waiting?;
                assert!(self.turns.lock().map(|mut it| it.push(waiting)).is_ok());
            }
            _ => send(TurnEvent::Done { response: "yes".into(), note: None }),
        }
        Ok(subscription)
    }

    fn chat(
        &self,
        request: ChatRequest,
        events: &mut dyn FnMut(ChatEvent),
        cancel: &Cancel,
    ) -> Result<()> {
        match request.system.as_str() {
            "denied" => return Err(Error::new(Kind::Denied, "no s3cret model for you")),
            "block" => events(ChatEvent::Blocked("not today".into())),
            "break" => {}
            "wait" => {
                while !cancel.is_cancelled() {
                    events(ChatEvent::Lull);
                }
                self.tell("the answer was called off");
            }
            "flood" => {
                let answer = Assembly::new("replay", &request.model, clock::now());
                events(ChatEvent::Asked(Box::new(answer)));
                while !cancel.is_cancelled() {
                    events(ChatEvent::Piece(Delta::Text("x".repeat(1_000))));
                }
                self.tell("nobody takes what it says");
            }
            _ => {
                let answer = Assembly::new("replay", &request.model, clock::now());
                events(ChatEvent::Asked(Box::new(answer)));
                events(ChatEvent::Piece(Delta::Text("a".into())));
                events(ChatEvent::Done(Box::default()));
            }
        }
        Ok(())
    }

    fn sessions(&self, which: &Which, each: EachSession) -> Result<()> {
        let agent_name = which.agent.clone().unwrap_or_default();
        each(Listed { session_id: "s".into(), agent_name, ..Listed::default() }).map(drop)
    }

    fn session_history(
        &self,
        _agent: &str,
        session: &str,
        page: &Page,
        first: &mut dyn FnMut(Listed),
        _each: EachMessage,
    ) -> Result<bool> {
        if session != "k" {
            return Err(Error::new(Kind::Missing, format!("there is no session `{session}`")));
        }
        first(Listed { session_id: "s".into(), ..Listed::default() });
        Ok(page.limit == 1)
    }

    fn change_session(&self, agent: &str, change: &SessionChange) -> Result<Listed> {
        self.tell(format!("{agent}: {change:?}"));
        if let SessionChange::Name { session, name } = change
            && session == "named"
        {
            return Ok(Listed { name: Some(name.clone()), ..Listed::default() });
        }
        Err(Error::new(Kind::Conflict, "a turn is running"))
    }

    fn choose_model(&self, agent: &str, session_key: &str, model: &ModelRef) -> Result<()> {
        self.tell(format!("{agent}: {session_key}: {model}"));
        if model.model == "m" { Ok(()) } else { Err(Error::new(Kind::Denied, "not that one")) }
    }

    fn audit(&self, filter: &Filter, each: EachRecord) -> Result<()> {
        if filter.tool.as_deref() == Some("broken") {
            return Err(Error::new(Kind::Internal, "no log"));
        }
        let count = if filter.denied { 0 } else { 3 };
        (0..count).try_for_each(|seq| each(&format!("{{\"seq\":{seq}}}")).map(|_| ()))
    }

    fn usage(&self, query: &Query) -> Result<Value> {
        match query.agent.as_deref() {
            Some("broken") => Err(Error::new(Kind::Internal, "no file")),
            agent => Ok(json!({ "by": query.by.name(), "agent": agent })),
        }
    }

    fn run_hook(&self, request: HookRequest, _: &Cancel) -> Result<Made> {
        let reason = "the s3cret is out".to_owned();
        Ok(match request.what {
            Said::Prompt(message) if message == "BLOCK" => Made::Refused { message, reason },
            Said::Prompt(message) => Made::Prompt(Prompted { message, context: String::new() }),
            Said::Response(response) if response == "BLOCK" => Made::Withheld { response, reason },
            Said::Response(response) => Made::Response(response),
            Said::Created | Said::Disposed => Made::Nothing,
        })
    }

    fn mask(&self, text: &str) -> String {
        text.replace("s3cret", "•••")
    }

    fn is_draining(&self) -> bool {
        self.draining
    }
}

fn failure() -> TurnEvent {
    let partial = Some("a".into());
    TurnEvent::Error { category: "unavailable", message: "all failed".into(), partial }
}

/// Some figures.
pub(in crate::channel::http) fn figures() -> Figures {
    let load = ProviderLoad {
        provider: "p".into(),
        queued: 4,
        wait_seconds: 1.5,
        ..ProviderLoad::default()
    };
    let health = Health {
        status: "ok",
        version: "1",
        address: None,
        started_at: String::new(),
        uptime_seconds: 7,
        agents: 1,
        sandboxes: 1,
        sessions: 2,
        running: 5,
        waiting: 3,
        providers: vec![load],
        cooling: Vec::new(),
        reload_error: None,
        degraded: Vec::new(),
    };
    Figures { health, lines: Lines { busy: 2, waiting: 3 }, counted: Default::default() }
}
