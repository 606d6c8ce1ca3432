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

fn thoughts_of(message: &Message) -> Vec<String> {
    let Message::Assistant(it) = message else { return Vec::new() };
    let thought = |it: &Block| match it {
        Block::Thinking(it) => Some(it.thinking.clone()),
        _ => None,
    };
    it.content.iter().filter_map(thought).collect()
}
