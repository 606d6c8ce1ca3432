//! A conversation in short forms, and what of it goes out.

use serde_json::{Value, json};

use super::*;
use crate::config::ModelRef;
use crate::provider::ids::own_id;

const TEXT_ONLY: Rules = Rules { images: &[], images_in_results: &[], own_id };
const SEEING: Rules = Rules { images: OPENAI_IMAGES, images_in_results: &["image/png"], own_id };

/// Steps in short forms: `u` a user, `a` an answer, `r` results, each with its
/// parts; `[type]` is an image, `<id>` a call or whose result it is, `!` an
/// error, `(thought)`, and `~opaque`.
fn told(steps: &[Step<'_>]) -> Vec<String> {
    steps.iter().map(told_step).collect()
}

fn told_step(step: &Step<'_>) -> String {
    match step {
        Step::User(it) => format!("u {}", told_parts(it)),
        Step::Answer(it) => {
            let said: Vec<String> = it.said.iter().map(told_said).collect();
            format!("a{} {}", if it.is_whole { "" } else { "-" }, said.join(" | "))
        }
        Step::Results(it) => {
            let result = |it: &Outcome<'_>| {
                let error = if it.is_error { "!" } else { "" };
                format!("<{}>{error} {}", it.id, told_parts(&it.parts))
            };
            format!("r {}", it.iter().map(result).collect::<Vec<_>>().join(", "))
        }
    }
}

fn told_parts(parts: &[Part<'_>]) -> String {
    let part = |it: &Part<'_>| match it {
        Part::Text(it) => it.to_string(),
        Part::Image(it) => format!("[{}]", it.mime_type),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" | ")
}

fn told_said(said: &Said<'_>) -> String {
    match said {
        Said::Text(it, opaque) => {
            it.to_string() + &opaque.map_or(String::new(), |it| format!("~{it}"))
        }
        Said::Thought(it) => format!("({})", it.thinking),
        Said::Call(it) => {
            let opaque = if it.as_it_came.is_some() { "~" } else { "" };
            format!("<{}>{opaque} {} {}", it.id, it.name, it.arguments)
        }
    }
}

#[track_caller]
fn check(rules: Rules, messages: Value, want: &[&str]) {
    let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
    let model = ModelRef { provider: "p".into(), model: "m".into() };
    let origin = Origin::new(&model, "https://here");
    assert_eq!(told(&steps(&messages, &origin, rules)), want);
}

fn user(content: Value) -> Value {
    json!({"role": "user", "content": content})
}

fn answer(content: Value) -> Value {
    json!({"role": "assistant", "provider": "p", "model": "m", "content": content,
        "stopReason": "stop", "beige": {"endpoint": "https://here"}})
}

fn calls(ids: &[&str]) -> Value {
    let call = |id: &&str| json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {}});
    answer(ids.iter().map(call).collect())
}

fn result(id: &str, content: Value) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "exec", "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image(kind: &str, base64: &str) -> Value {
    json!({"type": "image", "data": base64, "mimeType": kind})
}

#[test]
fn each_call_is_followed_by_its_own_result_in_the_order_of_the_calls() {
    check(
        TEXT_ONLY,
        json!([
            result("a", json!("of no call")),
            calls(&["a", "b", "c"]),
            result("b", json!("two")),
            user(json!("hurry")),
            result("a", json!("late")),
            result("a", json!("once more")),
            calls(&["d"]),
            calls(&["d"]),
            result("d", json!("of the second")),
        ]),
        &[
            "a <a>~ exec {} | <b>~ exec {} | <c>~ exec {}",
            "r <a> late, <b> two, <c>! (The result is not known.)",
            "u hurry",
            "a <d>~ exec {}",
            "r <d>! (The result is not known.)",
            "a <VtVawacPw>~ exec {}",
            "r <VtVawacPw> of the second",
        ],
    );
}

#[test]
fn one_id_in_an_answer_twice_has_a_result_each() {
    let messages = json!([calls(&["x", "x"]), result("x", json!("1")), result("x", json!("2"))]);
    let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
    let model = ModelRef { provider: "p".into(), model: "m".into() };
    let steps = steps(&messages, &Origin::new(&model, ""), TEXT_ONLY);
    let [Step::Answer(answer), Step::Results(results)] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    let sent: Vec<&String> = answer.calls().map(|it| &it.id).collect();
    assert_eq!(sent, results.iter().map(|it| &it.id).collect::<Vec<_>>());
    assert_ne!(sent[0], sent[1]);
    let said: Vec<String> = results.iter().map(|it| told_parts(&it.parts)).collect();
    assert_eq!(said, ["1", "2"]);
}

#[test]
fn what_says_nothing_is_left_out_or_a_word_stands_for_it() {
    let thought = json!({"type": "thinking", "thinking": "hm", "thinkingSignature": "s"});
    check(
        TEXT_ONLY,
        json!([
            user(json!([])),
            user(json!(" \n")),
            user(json!([text(""), text("a"), {"type": "smell"}])),
            answer(json!([thought, {"type": "text", "text": " ", "textSignature": "s"}])),
            answer(json!([])),
            {"role": "oracle"},
            calls(&["1", "2"]),
            result("1", json!([])),
            result("2", json!([text("\n")])),
        ]),
        &[
            "u (empty message)",
            "u (empty message)",
            "u a",
            "a <1>~ exec {} | <2>~ exec {}",
            "r <1> (no output), <2> (no output)",
        ],
    );
}

#[test]
fn what_is_opaque_goes_to_whom_it_came_from_alone() {
    let content = json!([{"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "a", "textSignature": "s"},
        {"type": "toolCall", "id": "1", "name": "a.b", "arguments": "{"}]);
    let mut elsewhere = answer(content.clone());
    elsewhere["beige"]["endpoint"] = json!("https://there");
    let mut foreign = answer(content.clone());
    foreign["model"] = json!("another");
    foreign["stopReason"] = json!("aborted");
    let lost = "r <1>! (The result is not known.)";
    check(TEXT_ONLY, json!([answer(content)]), &["a (hm) | a~s | <1>~ a_b {}", lost]);
    check(TEXT_ONLY, json!([elsewhere]), &["a a | <1> a_b {}", lost]);
    let anew = "r <u9Gnm5AUL>! (The result is not known.)";
    check(TEXT_ONLY, json!([foreign]), &["a- a | <u9Gnm5AUL> a_b {}", anew]);
}

#[test]
fn images_are_shown_as_far_as_they_are_taken() {
    let content = json!([
        text("look"),
        image("image/png", "aGk="),
        image("image/gif", "aGk="),
        image("image/bmp", "aGk="),
        image("image/png", "")
    ]);
    let messages = json!([
        user(content.clone()),
        calls(&["1", "2"]),
        result("1", content),
        result("2", json!([image("image/webp", "aGk=")])),
        user(json!("more"))
    ]);
    let (bmp, empty) = (
        "(An image was left out: this model reads no image/bmp.)",
        "(An image was left out: it is empty.)",
    );
    let follows = "(The image follows.)";
    check(
        SEEING,
        messages.clone(),
        &[
            &format!("u look | [image/png] | [image/gif] | {bmp} | {empty}"),
            "a <1>~ exec {} | <2>~ exec {}",
            &format!("r <1> look | [image/png] | {follows} | {bmp} | {empty}, <2> {follows}"),
            "u What `exec` returned as an image: | [image/gif] | \
             What `exec` returned as an image: | [image/webp]",
            "u more",
        ],
    );
    let note = "(An image was left out: this model reads text only.)";
    check(
        TEXT_ONLY,
        messages,
        &[
            &format!("u look | {note} | {note} | {note} | {note}"),
            "a <1>~ exec {} | <2>~ exec {}",
            &format!("r <1> look | {note} | {note} | {note} | {note}, <2> {note}"),
            "u more",
        ],
    );
}

#[track_caller]
fn check_turns(messages: Value, want: &[(bool, &[&str])]) {
    let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
    let model = ModelRef { provider: "p".into(), model: "m".into() };
    let steps = steps(&messages, &Origin::new(&model, "https://here"), TEXT_ONLY);
    let got = turns(steps, |it| vec![json!(told_step(&it))]);
    let want = want.iter().map(|(is_users, said)| Turn {
        is_users: *is_users,
        content: said.iter().map(|it| json!(it)).collect(),
    });
    assert_eq!(got, want.collect::<Vec<_>>());
}

#[test]
fn where_sides_take_turns_a_user_begins_and_ends() {
    let said = |it: &str| answer(json!([text(it)]));
    check_turns(json!([]), &[(true, &["u (empty message)"])]);
    check_turns(
        json!([said("a"), said("b")]),
        &[
            (true, &["u (The beginning of the conversation is not shown.)"]),
            (false, &["a a", "a b"]),
            (true, &["u Continue."]),
        ],
    );
    check_turns(
        json!([user(json!("a")), calls(&["1"]), result("1", json!("x")), user(json!("b"))]),
        &[(true, &["u a"]), (false, &["a <1>~ exec {}"]), (true, &["r <1> x", "u b"])],
    );
}
