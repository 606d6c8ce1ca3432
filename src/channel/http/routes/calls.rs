//! The calls that take their time, each on a thread of its own, and how what
//! they give becomes an answer or a stream.

use std::io;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossbeam_channel::{Sender, after, bounded, select};
use serde_json::{Value, json};

use super::array::Array;
use super::requests::{CommandRequest, ToolRequest};
use super::{Call, Task, send};
use crate::audit::Filter;
use crate::channel::http::answer::Answer;
use crate::channel::http::engine::Engine;
use crate::channel::http::failure::{outcome, refusal};
use crate::channel::http::stream::{Line, NDJSON, QUIET, pump};
use crate::error::Error;
use crate::gateway::{Detail, PromptRequest, Subscription, Told};
use crate::sandbox::{Exit, Feed, Output};
use crate::tool::Streams;
use crate::turn::TurnEvent;
use crate::usage::Query;
use crate::worker::{Cancel, scoped};

/// Events of a command that may wait for a slow client.
const WAITING: usize = 16;

impl<E: Engine> Call<E> {
    pub(super) fn run(self, task: Task) {
        match task {
            Task::Tool(agent, request) => self.tool(&agent, request),
            Task::Command(agent, request) => self.command(&agent, request),
            Task::Prompt(request) => self.prompt(request),
            Task::PromptStream(request, detail) => self.prompt_stream(request, detail),
            Task::Chat(chat) => self.chat(*chat),
            Task::Audit(filter) => self.audit(&filter),
            Task::Usage(query) => self.usage(&query),
            Task::Session(task) => self.session(task),
            Task::Hook(request) => self.hook(request),
            Task::Abort(agent, key) => self.abort(&agent, &key),
            Task::Steer(agent, key, message) => self.steer(&agent, &key, &message),
            Task::Compact(agent, key) => self.compact(&agent, &key),
        }
    }

    fn tool(self, agent: &str, request: ToolRequest) {
        let ToolRequest { tool, params, session_key } = request;
        let key = session_key.as_deref();
        let answer = match self.engine.call_tool(agent, &tool, params, key, &self.closing) {
            Ok(answer) => Answer::json(&answer),
            Err(error) => refusal(&self.engine, &error),
        };
        send(self.reply, &answer);
    }

    /// Runs to its end, whether or not somebody waits for the answer.
    fn prompt(self, request: PromptRequest) {
        let answer = match self.engine.prompt(request, Detail::End) {
            Ok(asked) => end_of(&asked, &self.closing).unwrap_or_else(no_outcome),
            Err(error) => refusal(&self.engine, &error),
        };
        send(self.reply, &answer);
    }

    /// Ends with its client.
    fn prompt_stream(self, request: PromptRequest, detail: Detail) {
        let asked = match self.engine.prompt(request, detail) {
            Ok(asked) => asked,
            Err(error) => return send(self.reply, &refusal(&self.engine, &error)),
        };
        let mut first = select! {
            recv(asked.events) -> first => first.ok(),
            recv(after(QUIET)) -> _ => None,
        };
        // A failure before all else still has its status.
        if let Some(failed) = first.take_if(|it| it.is_failure()) {
            return send(self.reply, &outcome(&failed.take()).unwrap_or_else(no_outcome));
        }
        let events = &asked.events;
        let started = self.reply.start(NDJSON);
        match started.and_then(|it| pump(it, first, events, line, QUIET, &self.closing)) {
            Ok(()) => {}
            // Its events ended first: the turn broke off.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            // It is gone, and with it who wanted the turn.
            Err(_) => asked.call_off(),
        }
    }

    fn abort(self, agent: &str, session_key: &str) {
        let answer = match self.engine.abort(agent, session_key) {
            Ok(aborted) => Answer::json(&json!({ "aborted": aborted })),
            Err(error) => refusal(&self.engine, &error),
        };
        send(self.reply, &answer);
    }

    fn steer(self, agent: &str, session_key: &str, message: &str) {
        let answer = match self.engine.steer(agent, session_key, message) {
            Ok(()) => Answer::json(&json!({ "steered": true })),
            Err(error) => refusal(&self.engine, &error),
        };
        send(self.reply, &answer);
    }

    /// Runs to its end, whether or not somebody waits for the answer.
    fn compact(self, agent: &str, session_key: &str) {
        let answer = match self.engine.compact(agent, session_key) {
            Ok(asked) => compaction_of(&asked, &self.closing).unwrap_or_else(no_outcome),
            Err(error) => refusal(&self.engine, &error),
        };
        send(self.reply, &answer);
    }

    fn command(self, agent: &str, request: CommandRequest) {
        let Self { engine, closing, reply } = self;
        let (canceller, cancel) = Cancel::pair();
        let (events_in, events) = bounded(WAITING);
        let run = || {
            let CommandRequest { call, session_key } = request;
            let mut output = Telling(&events_in);
            let key = session_key.as_deref();
            let streams = Streams { feed: &Feed::empty(), output: &mut output };
            let place = engine.admit(&cancel);
            let ended =
                place.and_then(|it| engine.run_command(it, agent, call, key, streams, &cancel));
            let _ =
                events_in.send(ended.map_or_else(Said::Failed, |exit| Said::Exit(report(&exit))));
        };
        thread::scope(|scope| {
            let running = scoped(scope, "http-command", run);
            let told = match running {
                Ok(_) => select! {
                    recv(events) -> first => first.ok(),
                    recv(after(QUIET)) -> _ => None,
                },
                Err(error) => Some(Said::Failed(error)),
            };
            if let Some(Said::Failed(error)) = told {
                return send(reply, &refusal(&engine, &error));
            }
            let line = |it| it_as_line(&engine, it);
            let started = reply.start(NDJSON);
            let pumped = started.and_then(|it| pump(it, told, &events, line, QUIET, &closing));
            if pumped.is_err() {
                canceller.cancel();
                // Nobody takes what still comes.
                drop(events);
            }
        });
    }

    fn audit(self, filter: &Filter) {
        let mut list = Array::new(self.reply, "{\"records\":[");
        let told = self.engine.audit(filter, &mut |record| list.add(record).map(|()| true));
        list.finish(&self.engine, told.map(|()| "}".into()));
    }

    fn usage(self, query: &Query) {
        let answer = match self.engine.usage(query) {
            Ok(summary) => Answer::json(&summary),
            Err(error) => refusal(&self.engine, &error),
        };
        send(self.reply, &answer);
    }
}

/// What the thread of a command tells the one that writes.
enum Said {
    Output(&'static str, Vec<u8>),
    Exit(Value),
    Failed(Error),
}

/// A command's output as events; one that nobody takes ends the command.
struct Telling<'a>(&'a Sender<Said>);

impl Telling<'_> {
    fn tell(&self, stream: &'static str, bytes: &[u8]) -> io::Result<()> {
        let told = self.0.send(Said::Output(stream, bytes.to_vec()));
        told.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Output for Telling<'_> {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tell("stdout", bytes)
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tell("stderr", bytes)
    }
}

fn it_as_line(engine: &impl Engine, told: Said) -> Line {
    match told {
        Said::Output(stream, bytes) => {
            Line::More(json!({ "type": stream, "data": STANDARD.encode(bytes) }).to_string())
        }
        Said::Exit(mut report) => {
            report["type"] = "exit".into();
            Line::Last(report.to_string())
        }
        Said::Failed(error) => {
            let text = engine.mask(&error.to_string());
            Line::Last(json!({ "type": "error", "error": text }).to_string())
        }
    }
}

/// How a command ended, for both forms of the stream.
pub(in crate::channel::http) fn report(exit: &Exit) -> Value {
    let mut report = json!({
        "exitCode": exit.code,
        "timedOut": exit.timed_out,
        "durationMs": u64::try_from(exit.duration.as_millis()).unwrap_or(u64::MAX),
    });
    if exit.cancelled {
        report["cancelled"] = true.into();
    }
    if let Some(note) = &exit.note {
        report["note"] = note.as_str().into();
    }
    report
}

/// The answer to a prompt, once its turn has ended.
fn end_of(asked: &Subscription, closing: &Cancel) -> Option<Answer> {
    outcome(&asked.follow(&mut |_| (), closing)?)
}

/// What came of a compaction, once it has ended.
fn compaction_of(asked: &Subscription, closing: &Cancel) -> Option<Answer> {
    let mut ended = None;
    let mut each = |event| {
        if let TurnEvent::CompactionEnd { compacted, tokens_before, tokens_after, reason } = event {
            let mut document = json!({
                "compacted": compacted,
                "tokensBefore": tokens_before,
                "tokensAfter": tokens_after,
            });
            if let Some(reason) = reason {
                document["reason"] = reason.into();
            }
            ended = Some(Answer::json(&document));
        }
    };
    match asked.follow(&mut each, closing)? {
        TurnEvent::Done { .. } => ended,
        failed => outcome(&failed),
    }
}

fn no_outcome() -> Answer {
    Answer::error(500, "the turn broke off without an answer")
}

fn line(told: Told) -> Line {
    let event = told.take();
    let text = serde_json::to_string(&event).unwrap_or_default();
    if event.is_last() { Line::Last(text) } else { Line::More(text) }
}
