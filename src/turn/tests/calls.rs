//! The tools that a model calls: what comes of them, and what becomes of calls
//! that are not run.

use super::*;

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
