//! What the gateway accepts fits everywhere it goes: what is too long for a
//! session is refused, is a failure of that one call or loses its middle, and
//! nothing before it is lost.

use std::thread;

use serde_json::json;

use crate::support::{
    Answer, Asked, ModelServer, end, peak_memory, says, says_and_calls, some_world,
};

/// A control character takes six bytes in JSON.
const CONTROLS: usize = 1_000;

const LONGEST: usize = 16 * 1024 * 1024;

/// That answer, then that text whatever is asked: a summary, too.
fn once(first: Answer, then: &str) -> impl FnMut(&Asked) -> Answer + Send + 'static {
    let (mut first, then) = (Some(first), says(then));
    move |_| first.take().unwrap_or_else(|| then.clone())
}

#[test]
fn an_answer_too_long_for_the_session_fails_its_call_alone() {
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, "");
    world.start_gateway();
    server.play([says("one")]);
    assert_eq!(world.answer("api:1", "go"), "one");
    let said = "\u{1}".repeat(CONTROLS);
    let event = json!({"choices": [{"index": 0, "delta": {"content": said}}]});
    let long = Answer::stream()
        .flood(format!("data: {event}\n\n").as_bytes(), 2 * LONGEST + 100_000)
        .finish("stop")
        .done();
    server.answer_by(once(long, "short"));
    assert_eq!(world.answer("api:1", "on"), "short");
    let stored = world.stored("api:1");
    let half = stored.iter().find(|it| it["stopReason"] == "error").expect("what came of it");
    let why = half["errorMessage"].as_str().expect("a reason");
    assert!(why.contains("longer than 16777216 bytes"), "{why}");
    assert!(half["content"].to_string().len() > LONGEST - 10 * CONTROLS);
    assert_eq!(stored.last().expect("an answer")["content"][0]["text"], "short");
    assert_eq!(world.answer("api:1", "and"), "short");
}

#[test]
fn a_result_too_long_for_the_session_loses_its_middle() {
    let server = ModelServer::new();
    let world = some_world();
    let agent = world.agent("a", "", "limits: { maxToolOutputBytes: 67108864 },");
    world.model_of(&server, "", &agent);
    world.start_gateway();
    let command = json!({"command": "echo begun; head -c 6000000 /dev/zero; echo; echo ended"});
    let call = Answer::stream().call(0, "c1", "exec", &command.to_string());
    server.answer_by(once(call.finish("tool_calls").done(), "done"));
    assert_eq!(world.answer("api:1", "go"), "done");
    let result = world.stored("api:1")[2].clone();
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains("begun") && text.trim_end().ends_with("ended"), "both ends");
    assert!(text.contains("bytes are left out here"), "a note");
    assert!(result["content"].to_string().len() <= LONGEST);
}

#[test]
fn a_message_too_long_for_the_session_is_refused_before_anything_is_done() {
    let server = ModelServer::new();
    let gate = server.gate();
    let world = some_world();
    world.model(&server, "");
    world.start_gateway();
    server.play([Answer::stream().hold(&gate).text("one").finish("stop").done()]);
    // Six bytes each in the session, and in no body more.
    let long = "\u{1}".repeat(LONGEST / 6 + 1);
    let check = |path: &str, body: &serde_json::Value| {
        let reply = world.post(path, body);
        assert_eq!(reply.status, 413, "{path}: {}", reply.text());
        assert!(reply.text().contains("`message`"), "{}", reply.text());
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| world.answer("api:1", "go"));
        server.wait_asked(1);
        check("/api/agents/a/sessions/api:1/steer", &json!({ "message": long }));
        for path in ["/api/agents/a/prompt", "/api/agents/a/prompt/stream"] {
            check(path, &json!({ "message": long, "sessionKey": "api:1" }));
        }
        gate.open();
        assert_eq!(first.join().expect("it answered"), "one");
    });
    assert_eq!(world.messages("api:1").len(), 2);
    server.play([says("two")]);
    let longest = "x".repeat(LONGEST);
    assert_eq!(world.answer("api:2", &longest), "two", "as long as may be");
}

/// Room for all that is said here.
const WIDE: &str = "models: { m: { contextWindow: 100000000 } },";

#[test]
fn turns_whose_answers_are_all_large_wait_for_each_other_and_never_for_themselves() {
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, WIDE);
    world.start_gateway();
    let long = "word ".repeat(300_000);
    server.answer_by(move |asked| match asked.answers() {
        last @ ..2 => {
            let id = format!("c{last}");
            says_and_calls(&long, &[(&id, "exec", json!({"command": "true"}))])
        }
        _ => says(&long),
    });
    let keys = ["api:1", "api:2", "api:3", "api:4"];
    thread::scope(|scope| {
        let turns = keys.map(|key| scope.spawn(|| world.answer(key, "go")));
        for turn in turns {
            assert_eq!(turn.join().expect("it answered").len(), 1_500_000);
        }
    });
}

#[test]
fn large_answers_at_once_take_the_memory_of_a_few() {
    const COUNT: usize = 8;
    let server = ModelServer::new();
    let world = some_world();
    world.model(&server, WIDE);
    let gateway = world.gateway_child();
    let before = peak_memory(gateway.id());
    let long = "a line\n".repeat(1_500_000);
    let said = says(&long);
    server.answer_by(move |_| said.clone());
    thread::scope(|scope| {
        for number in 0..COUNT {
            let (world, long) = (&world, &long);
            scope.spawn(move || {
                assert!(world.answer(&format!("api:{number}"), "go") == *long);
            });
        }
    });
    // Each takes more than four times its size at its end.
    let more = (peak_memory(gateway.id()) - before) * 1024;
    assert!(more < (COUNT * 5 / 2 * long.len()) as u64, "{more} bytes more");
    end(gateway);
}
