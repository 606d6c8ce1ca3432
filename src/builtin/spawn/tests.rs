//! Tests of `spawn` against a gateway that is played here.

use super::*;
use crate::builtin::tests::Gateway;

fn begun(args: &[&str], config: Value) -> Gateway {
    let mut gateway = Gateway::start("spawn", Box::new(Spawn::default()));
    gateway.call_with(1, args, &config);
    gateway
}

fn config() -> Value {
    json!({"targets": ["b", "SELF"], "maxDepth": 1})
}

/// A gateway in which a turn runs in the session of the call, so deep.
fn looked_at(args: &[&str], depth: u64) -> Gateway {
    let mut gateway = begun(args, config());
    let asked = gateway.answer("beige/session/isActive", json!({"active": true}));
    assert_eq!(asked, json!({"sessionKey": "api:a:x"}));
    let entry = json!({"agentName": "a", "metadata": {"depth": depth}});
    gateway.answer("beige/session/get", json!({"entry": entry}));
    gateway
}

#[test]
fn another_agent_is_asked_in_a_session_of_its_own_and_the_parent_pays() {
    let mut gateway = looked_at(&["--target", "b", "--session", "work", "say", "-x", "hi"], 0);
    let asked = gateway.answer("beige/prompt", json!({"response": "hi\n"}));
    let want = json!({"sessionKey": "spawn:a:b:work", "agentName": "b", "message": "say -x hi",
        "parentSessionKey": "api:a:x"});
    assert_eq!(asked, want);
    assert_eq!(gateway.answered(), Answer::done("hi\n"));
}

#[test]
fn a_new_session_is_named_so_that_one_can_go_on_in_it() {
    let mut gateway = looked_at(&["--target", "SELF", "hi"], 0);
    let asked = gateway.answer("beige/prompt", json!({"response": "yes"}));
    let key = asked["sessionKey"].as_str().unwrap_or_default();
    let name = key.strip_prefix("spawn:a:a:").unwrap_or_else(|| panic!("{asked}"));
    let told = gateway.answered().output;
    assert_eq!(told, format!("yes\n[to go on with this: --session {name}]\n"));
    assert_eq!(session_name(key, "a", "a"), Ok(name.to_owned()));
}

#[track_caller]
fn check_target(word: &str, targets: Value, want: Result<&str, &str>) {
    let got = target(word, "a", &targets);
    assert_eq!(got.as_deref().map_err(String::as_str), want);
}

#[test]
fn only_who_is_named_may_be_asked() {
    check_target("b", json!(["b"]), Ok("b"));
    check_target("SELF", json!(["a"]), Ok("a"));
    check_target("a", json!(["SELF"]), Ok("a"));
    check_target("b", json!(["SELF"]), Err("you may not ask `b`, only SELF"));
    check_target("SELF", json!(["b", "c"]), Err("you may not ask `a`, only b, c"));
    let none = "you may ask no agent: `targets` of the configuration of a names none";
    check_target("b", json!([]), Err(none));
    check_target("b", Value::Null, Err(none));
}

#[test]
fn who_was_asked_itself_asks_no_deeper_than_allowed() {
    let mut gateway = looked_at(&["--target", "b", "hi"], 1);
    let want = "you were asked by an agent yourself and may ask no further one (depth 1, \
                maxDepth 1)";
    assert_eq!(gateway.answered(), Answer::failed(want));
}

#[test]
fn what_does_not_come_from_a_turn_asks_nobody() {
    let mut gateway = begun(&["--target", "b", "hi"], config());
    gateway.answer("beige/session/isActive", json!({"active": false}));
    let want = "agents are asked within a turn, and none runs in `api:a:x`";
    assert_eq!(gateway.answered(), Answer::failed(want));
}

#[test]
fn a_session_of_another_kind_cannot_be_named() {
    for word in ["telegram:42", "spawn:b:a:x", "", "a b", &"x".repeat(65)] {
        let args = ["--target", "b", "--session", word, "hi"];
        assert_eq!(begun(&args, config()).answered().exit_code, 2, "{word}");
    }
}

#[test]
fn a_message_file_is_read_by_the_agents_own_tool() {
    let args = ["--target", "b", "--session", "s", "--message-file", "-task.md"];
    let read = |output: &str, exit_code: i64| {
        let mut gateway = begun(&args, config());
        let result = json!({"output": output, "exitCode": exit_code});
        let asked = gateway.answer("beige/tools/invoke", result);
        assert_eq!(
            asked,
            json!({"tool": "read", "args": {"path": "-task.md"}, "agentName": "a",
            "sessionContext": {"sessionKey": "api:a:x"}})
        );
        gateway
    };
    let mut gateway = read("do\nit\n", 0);
    gateway.answer("beige/session/isActive", json!({"active": true}));
    gateway.answer("beige/session/get", json!({"entry": null}));
    let asked = gateway.answer("beige/prompt", json!({"response": "done"}));
    assert_eq!(asked["message"], "do\nit\n");
    assert_eq!(gateway.answered(), Answer::done("done\n"));
    let refused = |output: &str, code: i64| read(output, code).answered();
    assert_eq!(refused("it is a link", 1), Answer::failed("read `-task.md`: it is a link"));
    assert_eq!(refused("x\n[more follows: go on with offset 9]", 0).exit_code, 1);
    assert_eq!(refused("\n", 0), Answer::wrong("the message is empty"));
}

#[test]
fn a_call_that_is_called_off_calls_off_the_prompt() {
    let mut gateway = looked_at(&["--target", "b", "hi"], 0);
    let asked = gateway.hear();
    assert_eq!(asked["method"], "beige/prompt");
    gateway.say(json!({"method": "notifications/cancelled", "params": {"requestId": 1}}));
    let told = gateway.hear();
    assert_eq!(told["method"], "notifications/cancelled");
    assert_eq!(told["params"]["requestId"], asked["id"]);
}

#[test]
fn a_refusal_is_told_with_the_session_that_keeps_what_was_said() {
    let mut gateway = looked_at(&["--target", "b", "--session", "s", "hi"], 0);
    let asked = gateway.hear();
    gateway.say(json!({"id": asked["id"], "error": {"code": 1, "message": "All models failed"}}));
    let want = "`b` did not answer (session s): All models failed";
    assert_eq!(gateway.answered(), Answer::failed(want));
}

#[test]
fn a_call_that_makes_no_sense_asks_for_nothing() {
    for args in [&["hi"][..], &["--target"], &["--target", "b"], &["--targt", "b", "hi"]] {
        assert_eq!(begun(args, config()).answered().exit_code, 2, "{args:?}");
    }
    let args = ["--target", "b", "--message-file", "f", "hi"];
    assert_eq!(begun(&args, config()).answered().exit_code, 2);
    assert!(begun(&["--help"], config()).answered().output.starts_with("Usage: it --target"));
}
