//! The chain over plugins that answer from a script.

use std::cell::RefCell;

use serde_json::{Value, json};

use super::*;
use crate::config::ModelRef;

/// A plugin that answers like this; what it was told is kept.
struct Scripted<'a> {
    name: &'a str,
    is_lenient: bool,
    answer: Result<Value, Unheard>,
    told: &'a RefCell<Vec<Value>>,
}

impl Listener for Scripted<'_> {
    fn plugin(&self) -> &str {
        self.name
    }

    fn is_lenient(&self) -> bool {
        self.is_lenient
    }

    fn ask(&self, hook: Hook, event: &Value) -> Result<Value, Unheard> {
        self.told.borrow_mut().push(json!([self.name, hook.name(), event]));
        self.answer.clone()
    }
}

/// Plugins `a`, `b`, … that answer like this, and what they were told.
#[derive(Default)]
struct Row {
    told: RefCell<Vec<Value>>,
}

impl Row {
    fn of<'a>(
        &'a self,
        answers: &'a [Result<Value, Unheard>],
    ) -> impl Iterator<Item = Scripted<'a>> {
        let names = ["a", "b", "c"].into_iter();
        names.zip(answers).map(|(name, answer)| Scripted {
            name,
            is_lenient: false,
            answer: answer.clone(),
            told: &self.told,
        })
    }

    fn told(&self) -> Vec<Value> {
        self.told.borrow().clone()
    }
}

fn at() -> Occasion {
    let (session_key, agent_name, channel) = ("tui:x".into(), "x".into(), "tui".into());
    Occasion { session_key, agent_name, channel }
}

fn failed(why: &str) -> Result<Value, Unheard> {
    Err(Unheard::Failed(why.into()))
}

fn prompt(answers: &[Result<Value, Unheard>]) -> Result<Prompted, Halt> {
    pre_prompt(Row::default().of(answers), "m".into(), &at())
}

fn prompted(message: &str, context: &str) -> Result<Prompted, Halt> {
    Ok(Prompted { message: message.into(), context: context.into() })
}

fn refused(plugin: &str, reason: Option<&str>) -> Halt {
    Halt::Refused { plugin: plugin.into(), reason: reason.map(str::to_owned) }
}

const CALL: ToolCalled<'static> =
    ToolCalled { tool_name: "exec", args: &[], session_key: "tui:x", agent_name: "x" };

fn tool(answers: &[Result<Value, Unheard>]) -> Result<(), Halt> {
    pre_tool(Row::default().of(answers), &CALL)
}

#[test]
fn every_hook_is_found_by_its_name() {
    for hook in Hook::ALL {
        assert_eq!(Hook::named(hook.name()), Some(hook));
    }
    assert_eq!(Hook::named("preprompt"), None);
}

#[test]
fn each_sees_what_the_one_before_made_of_it() {
    let row = Row::default();
    let answers = [
        Ok(json!({"message": "n", "context": "one"})),
        Ok(json!({})),
        Ok(json!({"message": "o", "context": "two", "other": 1})),
    ];
    assert_eq!(pre_prompt(row.of(&answers), "m".into(), &at()), prompted("o", "one\n\ntwo"));
    let event = |message: &str| json!({"message": message, "sessionKey": "tui:x", "agentName": "x", "channel": "tui"});
    let want = [
        json!(["a", "prePrompt", event("m")]),
        json!(["b", "prePrompt", event("n")]),
        json!(["c", "prePrompt", event("n")]),
    ];
    assert_eq!(row.told(), want);
}

#[test]
fn who_refuses_ends_the_chain() {
    let row = Row::default();
    let answers = [Ok(json!({"block": true, "reason": " not today "})), Ok(json!({}))];
    let halt = pre_prompt(row.of(&answers), "m".into(), &at()).err();
    assert_eq!(halt, Some(refused("a", Some("not today"))));
    assert_eq!(row.told().len(), 1);
    assert_eq!(tool(&[Ok(json!({"allow": false}))]), Err(refused("a", None)));
    assert_eq!(tool(&[Ok(json!({"allow": true})), Ok(json!({"allow": true}))]), Ok(()));
}

#[test]
fn a_guard_that_makes_no_sense_or_fails_refuses() {
    #[track_caller]
    fn check<T: fmt::Debug>(made: Result<T, Halt>, hook: Hook, want: &str) {
        let Err(Halt::Failed { plugin, hook: of, why }) = made else { panic!("{made:?}") };
        assert_eq!((plugin.as_str(), of, why.as_str()), ("a", hook, want));
    }
    for (answer, want) in [
        (Ok(json!(null)), "its answer is no object"),
        (Ok(json!("ok")), "its answer is no object"),
        (Ok(json!({"message": 7})), "`message` is no text"),
        (Ok(json!({"block": "no"})), "`block` is neither true nor false"),
        (Ok(json!({"context": ["x"]})), "`context` is no text"),
        (failed("no answer"), "no answer"),
    ] {
        check(prompt(&[answer]), Hook::PrePrompt, want);
    }
    let empty = prompt(&[Ok(json!({"message": " "}))]);
    assert!(matches!(empty, Err(Halt::Failed { why, .. }) if why.contains("empty")));
    let want = "its answer has no `allow` that is true or false";
    for answer in [json!(null), json!([]), json!({}), json!({"allow": "true"}), json!({"allow": 1})]
    {
        check(tool(&[Ok(answer)]), Hook::PreToolExec, want);
    }
    check(tool(&[failed("gone"), Ok(json!({"allow": true}))]), Hook::PreToolExec, "gone");
}

#[test]
fn a_lenient_guard_that_fails_is_passed_over() {
    let row = Row::default();
    let answers = [failed("gone"), Ok(json!({"message": "n"}))];
    let lenient = row.of(&answers).map(|it| Scripted { is_lenient: true, ..it });
    assert_eq!(pre_prompt(lenient, "m".into(), &at()), prompted("n", ""));
}

#[test]
fn an_answer_is_changed_or_withheld_and_a_failure_changes_nothing() {
    let respond = |answers: &[Result<Value, Unheard>]| {
        post_response(Row::default().of(answers), "r".into(), &at())
    };
    let answers =
        [failed("gone"), Ok(json!({"response": "s"})), Ok(json!({"response": 7, "block": true}))];
    assert_eq!(respond(&answers), Ok("s".into()));
    assert_eq!(respond(&[Ok(json!(null))]), Ok("r".into()));
    assert_eq!(respond(&[Ok(json!({"response": ""}))]), Ok(String::new()));
    let withheld = respond(&[Ok(json!({"block": true, "reason": "secret"}))]);
    assert_eq!(
        withheld.map_err(|it| it.withheld()),
        Err("the plugin 'a' withheld the answer: secret".into())
    );
}

#[test]
fn a_result_is_changed_in_parts_and_never_refused() {
    #[track_caller]
    fn check(answers: &[Result<Value, Unheard>], want: (&str, i32)) {
        let before = Outcome { output: "o".into(), exit_code: 3 };
        let after = post_tool(Row::default().of(answers), &CALL, before);
        assert_eq!((after.output.as_str(), after.exit_code), want);
    }
    check(&[Ok(json!({"result": {"output": "p", "exitCode": 0}}))], ("p", 0));
    check(&[Ok(json!({"result": {"output": "p"}})), Ok(json!({}))], ("p", 3));
    check(&[Ok(json!({"result": {"exitCode": 4}})), failed("gone")], ("o", 4));
    for odd in [json!(null), json!([]), json!("x"), json!({"result": "x"}), json!({"result": null})]
    {
        check(&[Ok(odd)], ("o", 3));
    }
    check(&[Ok(json!({"result": {"output": "p", "exitCode": "0"}}))], ("o", 3));
    check(&[Ok(json!({"result": {"output": "x".repeat(5 << 20)}}))], ("o", 3));
}

#[test]
fn a_result_is_told_with_its_call() {
    let row = Row::default();
    let args = ["ls".to_owned()];
    let call = ToolCalled { args: &args, ..CALL };
    post_tool(row.of(&[Ok(json!({}))]), &call, Outcome { output: "o".into(), exit_code: 3 });
    let event = json!({"toolName": "exec", "args": ["ls"], "sessionKey": "tui:x", "agentName": "x",
        "result": {"output": "o", "exitCode": 3}});
    assert_eq!(row.told(), [json!(["a", "postToolExec", event])]);
}

#[test]
fn what_has_happened_is_told_to_all_whoever_fails() {
    let row = Row::default();
    let answers = [failed("gone"), Ok(json!({"allow": false})), Ok(json!(7))];
    tell(row.of(&answers), Hook::GatewayStarted, &json!({}));
    let names: Vec<Value> = row.told().iter().map(|it| it[0].clone()).collect();
    assert_eq!(names, [json!("a"), json!("b"), json!("c")]);
}

#[test]
fn what_is_called_off_is_no_refusal() {
    let off = [Err(Unheard::CalledOff), Ok(json!({}))];
    assert_eq!(prompt(&off), Err(Halt::CalledOff));
    assert_eq!(tool(&off), Err(Halt::CalledOff));
    assert_eq!(Error::from(Halt::CalledOff).kind(), Kind::Cancelled);
    let answers = [Ok(json!({"response": "s"})), Err(Unheard::CalledOff)];
    let response = post_response(Row::default().of(&answers), "r".into(), &at());
    assert_eq!(response, Ok("s".into()));
}

#[test]
fn a_switch_says_why() {
    use crate::provider::Fault;
    #[track_caller]
    fn check(reason: SwitchReason, want: &str) {
        let model = |id: &str| ModelRef { provider: "p".into(), model: id.into() };
        let (from, to) = (model("m"), model("n"));
        let event = ModelSwitch { from: &from, to: &to, reason }.event(&at());
        let want = json!({"sessionKey": "tui:x", "agentName": "x", "channel": "tui",
            "previousModel": {"provider": "p", "modelId": "m"},
            "newModel": {"provider": "p", "modelId": "n"}, "reason": want});
        assert_eq!(event, want);
    }
    let of = |fault: Fault| SwitchReason::of(Some(&fault));
    check(of(Fault::RateLimited(None, String::new())), "fallback_rate_limit");
    check(SwitchReason::of(None), "fallback_rate_limit");
    check(of(Fault::Slow(String::new())), "fallback_timeout");
    check(of(Fault::Unavailable(String::new())), "fallback_error");
    check(SwitchReason::User, "user_override");
}

#[test]
fn a_refusal_names_the_plugin_and_its_reason() {
    let failed = Halt::Failed {
        plugin: "p".into(),
        hook: Hook::PreToolExec,
        why: "no answer within 10 s".into(),
    };
    let why = "the hook preToolExec of the plugin 'p' failed: no answer within 10 s";
    assert_eq!(failed.to_string(), format!("refused, since {why}"));
    // Whoever tells a reason says "refused" before it.
    assert_eq!(failed.reason(), why);
    let plain = refused("p", Some("no rm"));
    assert_eq!(plain.to_string(), "refused by the plugin 'p': no rm");
    assert_eq!(plain.reason(), "no rm");
    assert_eq!(refused("p", None).reason(), "refused by the plugin 'p'");
}
