//! A secret that a model says.

use super::*;
use crate::message::Block;

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
    assert_eq!(told.result, Ok("••••".into()));
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

/// Cut in two anywhere, with any other piece of the answer in between.
#[test]
fn a_secret_that_a_model_says_around_something_else_is_not_stored() -> Result<()> {
    let thought = |it: &str| format!(r#"{{"thinking":"{it}"}}"#);
    let others = [thought("hm"), exec("ls"), r#"{"redacted":"x"}"#.into()];
    for cut in 1..SECRET.len() {
        let (first, second) = SECRET.split_at(cut);
        let around = others.iter().flat_map(|it| [text(first), it.clone(), text(second)]);
        let events: Vec<String> = around.collect();
        let last = [thought(first), text("ok"), thought(second)];
        let place = Place::new(&(line(&events) + &line(&last)))?;
        let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
        assert_eq!(told.result, Ok("ok".into()));
        assert_eq!(place.stored()?[1], "answer ••••••••••••", "{cut}");
        let conversation = place.conversation()?;
        let messages = conversation.session().context();
        let thoughts: Vec<String> = messages.iter().flat_map(thoughts_of).collect();
        assert_eq!(thoughts, ["hm", "", "", "••••"], "{cut}");
    }
    Ok(())
}

/// Over the end of an answer: its beginning is told and stored by then, and the
/// rest is told, stored and answered as the same text.
#[test]
fn of_a_secret_over_two_answers_the_end_is_masked() -> Result<()> {
    for cut in 1..SECRET.len() {
        let (first, second) = SECRET.split_at(cut);
        let begin = [text(&format!("the key is {first}")), exec("ls")];
        let place = Place::new(&(line(&begin) + &line(&[text(&format!("{second}, you see"))])))?;
        let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
        assert_eq!(told.result, Ok("••••, you see".into()), "{cut}");
        let is_told = |it: &TurnEvent| {
            matches!(it,
            TurnEvent::Done { response, .. } if response == "••••, you see")
        };
        assert!(told.events.iter().any(is_told), "{cut}");
        let stored = place.stored()?;
        assert_eq!(stored.last().map(String::as_str), Some("answer ••••, you see"), "{cut}");
        assert_eq!(stored[1], format!("answer the key is {first}"));
    }
    Ok(())
}

/// The same where the second answer fails: what was said is told as it was shown.
#[test]
fn of_a_secret_over_two_answers_of_a_failed_turn_the_end_is_masked() -> Result<()> {
    let (first, second) = SECRET.split_at(5);
    let fails = r#"{"refused":"no"}"#.to_owned();
    let begin = line(&[text(first), exec("ls")]);
    let place = Place::new(&(begin + &line(&[text(&format!("{second}.")), fails])))?;
    let told = place.run("hi", &TestHands::default(), &Cancel::never())?;
    let want = format!("{first}\n\n••••.");
    assert!(
        told.events.iter().any(|it| matches!(it,
            TurnEvent::Error { partial: Some(partial), .. } if *partial == want)),
        "{:?}",
        told.events
    );
    Ok(())
}

fn thoughts_of(message: &Message) -> Vec<String> {
    let Message::Assistant(it) = message else { return Vec::new() };
    let thought = |it: &Block| match it {
        Block::Thinking(it) => Some(it.thinking.clone()),
        _ => None,
    };
    it.content.iter().filter_map(thought).collect()
}
