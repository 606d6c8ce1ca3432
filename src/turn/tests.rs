//! Whole turns over a cassette and a session file of their own; only the hands
//! are not real.

mod answers;
mod calls;
mod ends;
mod failures;
mod secrets;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::clock;
use crate::config::{self, Home, ModelFacts, Price, ThinkingLevel};
use crate::error::{During, Error, Kind};
use crate::message::{Message, StopReason};
use crate::sandbox::Exit;
use crate::session::Store;
use crate::usage::Role;
use crate::worker::Canceller;

fn choice(model: &ModelRef) -> ModelChoice {
    let thinking = ThinkingLevel::Off;
    ModelChoice { model: model.clone(), thinking, compaction_threshold: None }
}

const SECRET: &str = "s3cret-key";

/// A folder of its own with a home and a cassette.
struct Place {
    folder: PathBuf,
    inactivity: Duration,
    models: BTreeMap<String, ModelFacts>,
    steering: Steering,
}

impl Place {
    fn new(cassette: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("beige-turn-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let inactivity = Duration::from_secs(600);
        let (models, steering) = (BTreeMap::new(), Steering::open());
        let place = Self { folder, inactivity, models, steering };
        fs::create_dir_all(&place.folder)
            .and_then(|()| fs::write(place.cassette(), cassette))
            .during(Kind::Internal, "make a place")?;
        Ok(place)
    }

    fn cassette(&self) -> PathBuf {
        self.folder.join("tape.jsonl")
    }

    fn conversation(&self) -> Result<Conversation> {
        Store::new(Home::new(self.folder.join("home"))).open("k", "a", clock::now())
    }

    /// Runs one prompt; what it came to and the events it told.
    fn run(&self, message: &str, hands: &TestHands, cancel: &Cancel) -> Result<Told> {
        let mut conversation = self.conversation()?;
        self.run_in(&mut conversation, message, hands, cancel)
    }

    fn run_in(
        &self,
        conversation: &mut Conversation,
        message: &str,
        hands: &TestHands,
        cancel: &Cancel,
    ) -> Result<Told> {
        let provider = config::Provider {
            api: config::Api::Replay,
            reach: config::Reach::Cassette(self.cassette()),
            concurrency: None,
            models: self.models.clone(),
            record: None,
        };
        let providers = Registry::new(&BTreeMap::from([("p".to_owned(), provider)]));
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let limits = Limits {
            max_turns: 3,
            max_turn_time: None,
            max_turn_tokens: None,
            max_turn_cost: None,
            max_tool_output_bytes: 50_000,
            exec_timeout: Duration::from_secs(900),
            http_exec_timeout: Duration::from_secs(120),
            inactivity: self.inactivity,
        };
        let redactor = Redactor::new();
        redactor.learn(SECRET);
        let health = Health::new(&Home::new(self.folder.join("home")), redactor.clone());
        let turn = Turn {
            agent: "a",
            session_key: "k",
            choices: &[&choice(&model)],
            system: "",
            tools: &[],
            limits,
            providers: &providers,
            health: &health,
            hands,
            steering: &self.steering,
            bill: &Bill::default(),
            redactor: &redactor,
        };
        let mut events = Vec::new();
        let result = turn.run(conversation, message, &mut |it| events.push(it), cancel);
        let result = result.map_err(|it| (it.kind(), it.to_string()));
        Ok(Told { result, events })
    }

    /// The messages in the session file, in short: `user hi`, `answer text`,
    /// `call exec {}`, `result exec: text`, `error exec: text`.
    fn stored(&self) -> Result<Vec<String>> {
        let conversation = self.conversation()?;
        let text = fs::read_to_string(conversation.path()).during(Kind::Internal, "read")?;
        let messages = text.lines().filter_map(|it| {
            let line: serde_json::Value = serde_json::from_str(it).ok()?;
            serde_json::from_value::<Message>(line.get("message")?.clone()).ok()
        });
        Ok(messages.collect::<Vec<_>>().iter().flat_map(short).collect())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct Told {
    result: Result<String, (Kind, String)>,
    events: Vec<TurnEvent>,
}

impl Told {
    /// The events as `type` words, in order.
    fn words(&self) -> String {
        let word = |it: &TurnEvent| {
            let value = serde_json::to_value(it).unwrap_or_default();
            value["type"].as_str().unwrap_or_default().to_owned()
        };
        self.events.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

fn short(message: &Message) -> Vec<String> {
    match message {
        Message::User(it) => vec![format!("user {}", it.content.text())],
        Message::Assistant(it) => {
            let mut parts = vec![format!("answer {}", it.text())];
            parts.extend(it.tool_calls().map(|it| format!("call {} {}", it.name, it.arguments)));
            if it.stop_reason == StopReason::Aborted {
                parts.push("aborted".into());
            }
            parts
        }
        Message::ToolResult(it) if it.is_error => {
            vec![format!("error {}: {}", it.tool_name, it.content.text())]
        }
        Message::ToolResult(it) => vec![format!("result {}: {}", it.tool_name, it.content.text())],
        other => vec![format!("{other:?}")],
    }
}

/// Answers each call with its command, and fails as the command says.
#[derive(Default)]
struct TestHands {
    /// Called off by the command `stop`.
    canceller: Option<Canceller>,
    refuse_models: bool,
    /// Stands before each answer.
    before: &'static str,
    model_calls: RefCell<Vec<ModelCallEnd>>,
    /// Why nobody gets an answer.
    withholds: Option<&'static str>,
}

impl Hands for TestHands {
    fn model_switches(&self, _: &ModelSwitch<'_>, _: &Cancel) {}

    fn response(&self, response: String, _: &Cancel) -> Result<String, String> {
        self.withholds.map_or(Ok(response), |why| Err(why.to_owned()))
    }

    fn run(
        &self,
        call: CoreCall,
        printed: &mut dyn FnMut(String),
        _: &Cancel,
    ) -> Result<tool::Answer> {
        let command = call.params["command"].as_str().unwrap_or("nothing").to_owned();
        match command.as_str() {
            "refuse" => return Err(Error::new(Kind::Usage, "there is no such tool")),
            "stop" => {
                if let Some(it) = &self.canceller {
                    it.cancel();
                }
                return Err(Error::new(Kind::Cancelled, "called off"));
            }
            _ => (),
        }
        let failed = command == "exit 9";
        let exit = Exit {
            code: if failed { 9 } else { 0 },
            timed_out: false,
            cancelled: false,
            note: None,
            saved: None,
            duration: Duration::ZERO,
        };
        // As if it printed them in two pieces.
        command.split_inclusive(' ').for_each(|it| printed(it.to_owned()));
        let answer = tool::Answer::text(format!("{}{command}", self.before));
        Ok(tool::Answer { is_error: failed, exit: Some(exit), ..answer })
    }

    fn model_call_begins(&self, _: &ModelRef) -> Result<Box<dyn FnOnce(ModelCallEnd) + '_>> {
        if self.refuse_models {
            return Err(Error::new(Kind::Internal, "the audit log cannot be written"));
        }
        Ok(Box::new(|end| self.model_calls.borrow_mut().push(end)))
    }
}

fn exec(command: &str) -> String {
    format!(r#"{{"toolCall":{{"name":"exec","arguments":{{"command":"{command}"}}}}}}"#)
}

fn line(events: &[String]) -> String {
    format!("{{\"events\":[{}]}}\n", events.join(","))
}

fn text(text: &str) -> String {
    format!(r#"{{"text":"{text}"}}"#)
}

const DONE: &str = "{\"events\":[{\"text\":\"done\"}]}\n";
