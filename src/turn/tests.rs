//! Whole turns over a cassette and a session file of their own; only the hands
//! are not real.

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
    switches: RefCell<Vec<String>>,
    /// Why nobody gets an answer.
    withholds: Option<&'static str>,
}

impl Hands for TestHands {
    fn model_switches(&self, switch: &ModelSwitch<'_>, _: &Cancel) {
        let reason = format!("{:?}", switch.reason);
        let said = format!("{} to {}: {reason}", switch.from.model, switch.to.model);
        self.switches.borrow_mut().push(said);
    }

    fn response(&self, response: String, _: &Cancel) -> Result<String, String> {
        match self.withholds {
            Some(why) => Err(why.to_owned()),
            None => Ok(response),
        }
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

#[test]
fn a_turn_runs_its_tools_and_answers() -> Result<()> {
    let place = Place::new(&(line(&[text("look"), exec("ls")]) + &line(&[text("done")])))?;
    let hands = TestHands::default();
    let told = place.run("hi", &hands, &Cancel::never())?;
    assert_eq!(told.result, Ok("done".into()));
    assert_eq!(
        told.words(),
        "turn_start text_delta usage tool_start tool_output tool_end turn_start text_delta usage done"
    );
    let want = [
        "user hi",
        "answer look",
        "call exec {\"command\":\"ls\"}",
        "result exec: ls",
        "answer done",
    ];
    assert_eq!(place.stored()?, want);
    assert_eq!(hands.model_calls.borrow().len(), 2);
    Ok(())
}

#[test]
fn the_next_prompt_goes_on_at_the_next_line() -> Result<()> {
    let place = Place::new(&(line(&[text("one")]) + &line(&[text("two")])))?;
    let hands = TestHands::default();
    for want in ["one", "two"] {
        assert_eq!(place.run("hi", &hands, &Cancel::never())?.result, Ok(want.into()));
    }
    let last = place.run("hi", &hands, &Cancel::never())?.result;
    assert!(last.as_ref().is_ok_and(|it| it.contains("tape.jsonl")), "{last:?}");
    Ok(())
}

#[test]
fn what_a_tool_failed_with_reaches_the_model_as_an_error() -> Result<()> {
    let calls = line(&[exec("exit 9"), exec("refuse"), exec("fine")]);
    let place = Place::new(&(calls + &line(&[text("ok")])))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    let stored = place.stored()?;
    let want = ["error exec: exit 9", "error exec: there is no such tool", "result exec: fine"];
    assert_eq!(stored[5..8], want);
    let end = |id: &str, exit_code, bytes| TurnEvent::ToolEnd {
        id: id.into(),
        is_error: true,
        exit_code,
        bytes,
        untold_bytes: 0,
    };
    let printed =
        |id: &str, delta: &str| TurnEvent::ToolOutput { id: id.into(), delta: delta.into() };
    let tools = told.events.iter().filter(|it| {
        matches!(it, TurnEvent::ToolOutput { .. } | TurnEvent::ToolEnd { is_error: true, .. })
    });
    let want = [
        printed("call_1_1", "exit "),
        printed("call_1_1", "9"),
        end("call_1_1", Some(9), 6),
        printed("call_1_2", "there is no such tool"),
        end("call_1_2", None, 21),
        printed("call_1_3", "fine"),
    ];
    assert_eq!(tools.cloned().collect::<Vec<_>>(), want);
    Ok(())
}

#[track_caller]
fn check_arguments(arguments: &str, stored: &str, result: &str) -> Result<()> {
    let call = format!(r#"{{"toolCall":{{"name":"exec","arguments":{arguments}}}}}"#);
    let place = Place::new(&(line(&[call]) + &line(&[text("ok")])))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    assert_eq!(told.result, Ok("ok".into()));
    let got = place.stored()?;
    assert_eq!(got[2], stored);
    assert!(got[3].starts_with(result), "{got:?}");
    Ok(())
}

#[test]
fn arguments_of_every_form_are_answered() -> Result<()> {
    let empty = "call exec {}";
    check_arguments("\"\"", empty, "result exec: nothing")?;
    check_arguments("null", empty, "result exec: nothing")?;
    check_arguments("\"null\"", empty, "result exec: nothing")?;
    check_arguments("\"{}\"", empty, "result exec: nothing")?;
    check_arguments("[]", empty, "error exec: `exec` was not run: the arguments must be")?;
    let broken = r#""{\"command\": \"ls\"""#;
    check_arguments(broken, empty, "error exec: `exec` was not run: the arguments are not valid")
}

#[test]
fn a_model_that_never_ends_is_ended() -> Result<()> {
    let place = Place::new(&line(&[text("again"), exec("ls")]).repeat(9))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    assert!(told.result.is_err_and(|(_, it)| it.contains("after 3 model calls")));
    let partial = Some("again\n\nagain\n\nagain".to_owned());
    assert!(
        matches!(told.events.last(), Some(TurnEvent::Error { category, partial: it, .. }) if *category == "max_turns" && *it == partial)
    );
    let stored = place.stored()?;
    assert_eq!(stored.iter().filter(|it| it.starts_with("call")).count(), 3);
    assert_eq!(stored.iter().filter(|it| it.starts_with("result")).count(), 3);
    Ok(())
}

#[test]
fn of_a_turn_that_says_much_the_newest_is_kept() -> Result<()> {
    let answer = |it: &str| line(&[text(&it.repeat(700_000)), exec("ls")]);
    let place = Place::new(&["a", "b", "c"].map(answer).concat())?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    let Some(TurnEvent::Error { partial: Some(partial), .. }) = told.events.last() else {
        panic!("{:?}", told.result)
    };
    let lengths: Vec<(char, usize)> =
        partial.split("\n\n").map(|it| (it.chars().next().unwrap_or(' '), it.len())).collect();
    assert_eq!(lengths, [('b', 700_000), ('c', 700_000)]);
    Ok(())
}

#[test]
fn a_turn_that_grows_without_end_is_ended() -> Result<()> {
    let place = Place::new(&line(&[text(&"a".repeat(2_500_000)), exec("ls")]).repeat(3))?;
    let hands = TestHands::default();
    let told = place.run("hi", &hands, &Cancel::never())?;
    assert!(told.result.is_err_and(|(_, it)| it.contains("after 4 MiB")));
    let end = told.events.last();
    assert!(matches!(end, Some(TurnEvent::Error { category: "context_length", .. })));
    assert_eq!(hands.model_calls.borrow().len(), 2);
    Ok(())
}

/// It may come from a server that repeats its key, or from a person who wants
/// it used: it is used, and the file does not hold what the model made of it.
#[test]
fn a_secret_that_a_model_says_is_not_stored() -> Result<()> {
    let call = format!(
        r#"{{"toolCall":{{"name":"exec","id":"{SECRET}","arguments":{{"command":"{SECRET}","{SECRET}":1}}}}}}"#
    );
    let odd = format!(r#"{{"toolCall":{{"name":"{SECRET}","arguments":{{}}}}}}"#);
    let thought = format!(r#"{{"thinking":"{SECRET}"}}"#);
    let first = line(&[thought, text(SECRET), call, odd]);
    let place = Place::new(&(first + &line(&[text(SECRET)])))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    assert_eq!(told.result, Ok(SECRET.into()), "it is masked where it is told");
    assert!(told.events.iter().any(|it| matches!(it,
        TurnEvent::ToolOutput { delta, .. } if delta == SECRET)));
    let path = place.conversation()?.path().to_owned();
    let file = fs::read_to_string(path).during(Kind::Internal, "read")?;
    assert!(!file.contains(SECRET), "{file}");
    let want = [
        "user hi",
        "answer ••••",
        r#"call exec {"command":"••••","••••":1}"#,
        "call •••• {}",
        "result exec: ••••",
        "result ••••: nothing",
        "answer ••••",
    ];
    assert_eq!(place.stored()?, want);
    Ok(())
}

#[test]
fn no_content_is_an_empty_answer_with_a_note() -> Result<()> {
    let place = Place::new(&line(&[]))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    assert_eq!(told.result, Ok(String::new()));
    assert!(matches!(told.events.last(), Some(TurnEvent::Done { note: Some(_), .. })));
    Ok(())
}

#[test]
fn calling_off_answers_every_open_call() -> Result<()> {
    let place = Place::new(&line(&[exec("stop"), exec("never")]))?;
    let (canceller, cancel) = Cancel::pair();
    let hands = TestHands { canceller: Some(canceller), ..TestHands::default() };
    let told = place.run("hi", &hands, &cancel)?;
    assert_eq!(told.result.map_err(|it| it.0), Err(Kind::Cancelled));
    assert_eq!(
        told.events.iter().filter(|it| matches!(it, TurnEvent::ToolStart { .. })).count(),
        1
    );
    let stored = place.stored()?;
    assert_eq!(stored.iter().filter(|it| it.contains("interrupted")).count(), 2);
    assert_eq!(stored.last().map(String::as_str), Some("aborted"));
    Ok(())
}

#[test]
fn a_call_to_a_model_that_is_called_off_keeps_what_it_said() -> Result<()> {
    let place = Place::new(&line(&[text("never")]))?;
    let (canceller, cancel) = Cancel::pair();
    canceller.cancel();
    let hands = TestHands::default();
    let told = place.run("hi", &hands, &cancel)?;
    assert_eq!(told.result.map_err(|it| it.0), Err(Kind::Cancelled));
    assert_eq!(place.stored()?, ["user hi", "answer ", "aborted"]);
    let ends = hands.model_calls.borrow();
    assert_eq!(
        ends.iter().map(|it| it.fault.clone()).collect::<Vec<_>>(),
        [Some(Fault::Cancelled)]
    );
    assert_eq!((&ends[0].usage, ends[0].first_token), (&Usage::default(), None));
    Ok(())
}

/// An answer that fails after text and a call.
fn fails(said: &str) -> String {
    line(&[text(said), exec("ls"), r#"{"error":"overloaded"}"#.into()])
}

#[test]
fn a_failed_call_keeps_its_text_and_runs_nothing() -> Result<()> {
    let place = Place::new(&["one", "two", "three"].map(fails).concat())?;
    let hands = TestHands::default();
    let told = place.run("hi", &hands, &Cancel::never())?;
    let what = "All models failed for agent 'a'\n- p/m: overloaded";
    assert_eq!(told.result, Err((Kind::Internal, what.into())));
    assert_eq!(place.stored()?, ["user hi", "answer one", "answer two", "answer three"]);
    let once = "text_delta usage";
    assert_eq!(told.words(), format!("turn_start {once} retry {once} retry {once} error"));
    let faults = hands.model_calls.borrow();
    assert!(faults.len() == 3 && faults.iter().all(|it| it.fault.is_some()), "{faults:?}");
    let Some(TurnEvent::Error { category, partial, .. }) = told.events.last() else { panic!() };
    assert_eq!((*category, partial.as_deref()), ("unavailable", Some("three")));
    Ok(())
}

fn cut_in_call() -> String {
    line(&[text("I try."), exec("rm"), r#"{"stop":"length"}"#.into()])
}

#[test]
fn an_answer_that_is_cut_in_a_call_is_asked_for_again() -> Result<()> {
    let place = Place::new(&(cut_in_call() + &line(&[exec("ls")]) + &line(&[text("done")])))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    assert_eq!(told.result, Ok("done".into()));
    let want = [
        "user hi",
        "answer I try.",
        "answer ",
        "call exec {\"command\":\"ls\"}",
        "result exec: ls",
        "answer done",
    ];
    assert_eq!(place.stored()?, want);
    Ok(())
}

#[test]
fn an_answer_that_is_cut_in_a_call_twice_ends_the_turn() -> Result<()> {
    let place = Place::new(&(cut_in_call().repeat(2) + &line(&[text("on")])))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    let (_, why) = told.result.err().unwrap_or((Kind::Usage, String::new()));
    assert!(why.contains("in the middle of a tool call") && why.contains("16384 tokens"), "{why}");
    assert_eq!(place.stored()?, ["user hi", "answer I try.", "answer I try."]);
    assert_eq!(place.run("more", &TestHands::default(), &Cancel::never())?.result, Ok("on".into()));
    Ok(())
}

#[test]
fn a_call_that_fails_again_and_again_is_noted() -> Result<()> {
    let calls = line(&[exec("exit 9"), exec("exit 9"), exec("exit 9"), exec("ls")]);
    let place = Place::new(&(calls + &line(&[text("ok")])))?;
    assert_eq!(place.run("hi", &TestHands::default(), &Cancel::never())?.result, Ok("ok".into()));
    let stored = place.stored()?;
    assert_eq!(stored[6..8], ["error exec: exit 9", "error exec: exit 9"]);
    assert!(stored[8].starts_with("error exec: exit 9[This very call has failed 3 times"));
    assert_eq!(stored[9], "result exec: ls");
    Ok(())
}

#[test]
fn what_is_said_anew_takes_the_place_of_what_failed() -> Result<()> {
    let place = Place::new(&(fails("half") + &line(&[text("whole"), exec("ls")]) + DONE))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    assert_eq!(told.result, Ok("done".into()));
    let call = r#"call exec {"command":"ls"}"#;
    let want = ["user hi", "answer half", "answer whole", call, "result exec: ls", "answer done"];
    assert_eq!(place.stored()?, want);
    let conversation = place.conversation()?;
    let context: Vec<String> = conversation.session().context().iter().flat_map(short).collect();
    assert_eq!(context[..2], ["user hi", "answer whole"]);
    Ok(())
}

const DONE: &str = "{\"events\":[{\"text\":\"done\"}]}\n";

#[test]
fn no_model_is_called_that_the_audit_log_does_not_know_of() -> Result<()> {
    let place = Place::new(&line(&[text("never")]))?;
    let hands = TestHands { refuse_models: true, ..TestHands::default() };
    let told = place.run("hi", &hands, &Cancel::never())?;
    assert!(told.result.is_err_and(|(_, it)| it.contains("audit log")));
    assert_eq!(place.stored()?, ["user hi"]);
    Ok(())
}

#[test]
fn the_message_is_in_the_file_before_the_model_is_asked() -> Result<()> {
    let place = Place::new(&line(&[text("ok")]))?;
    let mut conversation = place.conversation()?;
    let path = conversation.path().to_owned();
    let hands = Watching(path, RefCell::new(false));
    let model = ModelRef { provider: "gone".into(), model: "m".into() };
    let limits = Limits {
        max_turns: 1,
        max_turn_time: None,
        max_turn_tokens: None,
        max_turn_cost: None,
        max_tool_output_bytes: 1,
        exec_timeout: Duration::ZERO,
        http_exec_timeout: Duration::ZERO,
        inactivity: Duration::from_secs(600),
    };
    let providers = Registry::new(&BTreeMap::new());
    let health = Health::new(&Home::new(place.folder.join("home")), Redactor::new());
    let turn = Turn {
        agent: "a",
        session_key: "k",
        choices: &[&choice(&model)],
        system: "",
        tools: &[],
        limits,
        providers: &providers,
        health: &health,
        hands: &hands,
        steering: &Steering::closed(),
        redactor: &Redactor::new(),
    };
    let told = turn.run(&mut conversation, "remember me", &mut |_| (), &Cancel::never());
    assert!(told.is_err() && *hands.1.borrow());
    Ok(())
}

#[track_caller]
fn check_cost(events: &str, cost: Option<Price>, want: Value) -> Result<()> {
    let mut place = Place::new(&line(&[events.to_owned()]))?;
    place.models.insert("m".into(), ModelFacts { cost, ..ModelFacts::default() });
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    let usage = told.events.iter().find(|it| matches!(it, TurnEvent::Usage { .. }));
    let usage = serde_json::to_value(usage).unwrap_or_default();
    assert_eq!(usage["costUsd"], want);
    Ok(())
}

#[test]
fn what_a_call_costs_is_told_where_it_is_known() -> Result<()> {
    let tokens = r#"{"usage":{"input":1000,"output":500}}"#;
    let price = Price { input: 1.0, output: 2.0, ..Price::default() };
    check_cost(tokens, Some(price), json!(0.002))?;
    check_cost(tokens, Some(Price::default()), json!(0.0))?;
    check_cost(tokens, None, Value::Null)?;
    check_cost(r#"{"usage":{"input":1,"cost":{"total":0.5}}}"#, None, json!(0.5))
}

#[test]
fn a_turn_in_which_nothing_happens_is_ended() -> Result<()> {
    let mut place = Place::new(r#"{"delayMs":600000,"events":[{"text":"late"}]}"#)?;
    place.inactivity = Duration::from_millis(20);
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    let (kind, text) = told.result.clone().err().unwrap_or((Kind::Usage, String::new()));
    assert_eq!(kind, Kind::Internal);
    assert!(text.contains("`limits.inactivitySeconds`"), "{text}");
    assert!(matches!(told.events.last(), Some(TurnEvent::Error { category: "inactive", .. })));
    assert_eq!(place.stored()?, ["user hi", "answer "]);
    Ok(())
}

#[test]
fn the_line_of_a_cassette_that_a_summary_came_from_is_used_once() -> Result<()> {
    let lines = [&"x".repeat(4_000), "S", "two", "three"].map(|it| line(&[text(it)]));
    let mut place = Place::new(&lines.concat())?;
    let facts = ModelFacts { context_window: Some(1_000), ..ModelFacts::default() };
    place.models.insert("m".into(), facts);
    let hands = TestHands::default();
    place.run("hi", &hands, &Cancel::never())?;
    let told = place.run("more", &hands, &Cancel::never())?;
    assert_eq!(told.result, Ok("two".into()));
    let want = "turn_start compaction_start usage compaction_end text_delta usage done";
    assert_eq!(told.words(), want);
    let roles: Vec<Role> = hands.model_calls.borrow().iter().map(|it| it.role).collect();
    assert_eq!(roles, [Role::Main, Role::Compaction, Role::Main]);
    assert_eq!(place.run("again", &hands, &Cancel::never())?.result, Ok("three".into()));
    // Read anew, it is the same conversation.
    let context = place.conversation()?.session().context().into_owned();
    let summary = context.first().map(short).unwrap_or_default().concat();
    assert!(summary.contains("<summary>\nS\n</summary>"), "{summary}");
    assert_eq!(
        context.iter().skip(1).flat_map(short).collect::<Vec<_>>(),
        ["user more", "answer two", "user again", "answer three"]
    );
    Ok(())
}

#[test]
fn the_demo_answers_any_prompt() -> Result<()> {
    let place = Place::new(include_str!("../../examples/demo.jsonl"))?;
    let mut calls = Vec::new();
    let hands = TestHands { before: "Exit code: 0\n", ..TestHands::default() };
    for prompt in ["hi", "and now?", "go on", "more"] {
        let told = place.run(prompt, &hands, &Cancel::never())?;
        assert!(told.result.as_ref().is_ok_and(|it| !it.is_empty()), "{:?}", told.result);
        calls.push(told.words().matches("tool_start").count());
    }
    assert_eq!(calls, [2, 1, 0, 0]);
    Ok(())
}

/// Notes whether the message was in the file when a model was about to be asked.
struct Watching(PathBuf, RefCell<bool>);

impl Hands for Watching {
    fn run(&self, _: CoreCall, _: &mut dyn FnMut(String), _: &Cancel) -> Result<tool::Answer> {
        Err(Error::new(Kind::Internal, "nothing is called here"))
    }

    fn model_call_begins(&self, _: &ModelRef) -> Result<Box<dyn FnOnce(ModelCallEnd) + '_>> {
        let file = fs::read_to_string(&self.0).unwrap_or_default();
        *self.1.borrow_mut() = file.contains("remember me");
        Ok(Box::new(|_| ()))
    }

    fn model_switches(&self, _: &ModelSwitch<'_>, _: &Cancel) {}

    fn response(&self, response: String, _: &Cancel) -> Result<String, String> {
        Ok(response)
    }
}
