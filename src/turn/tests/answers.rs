//! What a turn asks, in which order, and what it answers.

use super::*;

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
fn no_content_is_an_empty_answer_with_a_note() -> Result<()> {
    let place = Place::new(&line(&[]))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    assert_eq!(told.result, Ok(String::new()));
    assert!(matches!(told.events.last(), Some(TurnEvent::Done { note: Some(_), .. })));
    Ok(())
}

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
        bill: &Bill::default(),
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
    let place = Place::new(include_str!("../../../examples/demo.jsonl"))?;
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
    fn model_switches(&self, _: &ModelSwitch<'_>, _: &Cancel) {}

    fn response(&self, response: String, _: &Cancel) -> Result<String, String> {
        Ok(response)
    }

    fn run(&self, _: CoreCall, _: &mut dyn FnMut(String), _: &Cancel) -> Result<tool::Answer> {
        Err(Error::new(Kind::Internal, "nothing is called here"))
    }

    fn model_call_begins(&self, _: &ModelRef) -> Result<Box<dyn FnOnce(ModelCallEnd) + '_>> {
        let file = fs::read_to_string(&self.0).unwrap_or_default();
        *self.1.borrow_mut() = file.contains("remember me");
        Ok(Box::new(|_| ()))
    }
}

#[test]
fn an_answer_that_is_withheld_is_in_the_session_alone() -> Result<()> {
    let place = Place::new(&line(&[text("secret")]))?;
    let hands = TestHands { withholds: Some("a plugin says no"), ..TestHands::default() };
    let told = place.run("hi", &hands, &Cancel::never())?;
    let note = Some("a plugin says no".to_owned());
    assert_eq!(told.events.last(), Some(&TurnEvent::Done { response: String::new(), note }));
    assert_eq!(place.stored()?, ["user hi", "answer secret"]);
    Ok(())
}
