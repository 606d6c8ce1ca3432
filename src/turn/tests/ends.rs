//! Turns that are ended: by a limit, by silence, or called off.

use super::*;

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
