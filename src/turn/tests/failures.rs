//! Answers that fail or are cut on their way, and what takes their place.

use super::*;

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
