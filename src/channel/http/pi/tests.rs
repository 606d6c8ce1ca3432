//! What a client of the pi protocol is told, line by line.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::clock::Time;
use crate::config::ModelRef;
use crate::message::Usage;

fn model(name: &str) -> ModelRef {
    ModelRef { provider: "p".into(), model: name.into() }
}

fn beginning(name: &str) -> Box<Assembly> {
    Box::new(Assembly::new("replay", &model(name), Time::from_unix_millis(7)))
}

fn text(text: &str) -> Delta {
    Delta::Text(text.into())
}

fn thinking(text: &str) -> Delta {
    Delta::Thinking(text.into())
}

fn call(slot: u64, id: &str, arguments: &str) -> Delta {
    let id = (!id.is_empty()).then(|| id.to_owned());
    let name = id.as_ref().map(|_| "exec".to_owned());
    Delta::ToolCall(CallPiece { slot, id, name, arguments: arguments.into() })
}

/// The message that these deltas make.
fn message(deltas: &[Delta], stop_reason: StopReason) -> Box<Assistant> {
    let mut answer = beginning("m");
    for delta in deltas {
        answer.put(delta.clone());
    }
    let read = serde_json::to_value(answer.so_far()).and_then(serde_json::from_value);
    let mut message: Box<Assistant> = read.expect("a message");
    // What the tag of a role is to others.
    message.extra.clear();
    message.stop_reason = stop_reason;
    message
}

fn lines(has_partial: bool, events: Vec<ChatEvent>) -> Vec<Value> {
    let mut teller = Teller::new(has_partial);
    let (mut bytes, count) = (Vec::new(), events.len());
    for (number, event) in events.into_iter().enumerate() {
        let is_last = teller.tell(event, &mut bytes).expect("written");
        assert_eq!(is_last, number + 1 == count);
    }
    let text = String::from_utf8(bytes).expect("UTF-8");
    text.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect()
}

/// The lines of a whole answer of these deltas.
fn answered(has_partial: bool, deltas: &[Delta]) -> Vec<Value> {
    let mut events = vec![ChatEvent::Asked(beginning("m"))];
    events.extend(deltas.iter().cloned().map(ChatEvent::Piece));
    events.push(ChatEvent::Done(message(deltas, StopReason::ToolUse)));
    lines(has_partial, events)
}

/// A line in short: type, block, and what it says.
fn short(line: &Value) -> String {
    let said = ["delta", "content"].iter().find_map(|it| line[it].as_str());
    let call = line["toolCall"]["arguments"].as_object().map(|it| json!(it).to_string());
    let said = said.map(str::to_owned).or(call);
    let index = line["contentIndex"].as_u64().map(|it| format!(" {it}"));
    let kind = line["type"].as_str().unwrap_or("?");
    format!(
        "{kind}{}{}",
        index.unwrap_or_default(),
        said.map(|it| format!(" {it}")).unwrap_or_default()
    )
}

#[track_caller]
fn check(deltas: &[Delta], want: &[&str]) {
    let got: Vec<String> = answered(false, deltas).iter().map(short).collect();
    let [first, .., last] = &got[..] else { panic!("{got:?}") };
    assert_eq!((first.as_str(), last.as_str()), ("start", "done"));
    assert_eq!(got[1..got.len() - 1], *want);
}

#[test]
fn a_block_begins_grows_and_ends() {
    check(
        &[thinking("h"), thinking("m"), Delta::Signature("s".into()), text("a"), text("b")],
        &[
            "thinking_start 0",
            "thinking_delta 0 h",
            "thinking_delta 0 m",
            "thinking_end 0 hm",
            "text_start 1",
            "text_delta 1 a",
            "text_delta 1 b",
            "text_end 1 ab",
        ],
    );
}

#[test]
fn an_answer_of_nothing_is_one_too() {
    check(&[], &[]);
    check(&[Delta::Usage(Usage::default()), Delta::Stop(StopReason::Stop)], &[]);
    check(&[text("")], &["text_start 0", "text_end 0 "]);
}

#[test]
fn what_was_withheld_is_a_block_without_text() {
    check(
        &[Delta::Redacted("x".into()), thinking("h")],
        &[
            "thinking_start 0",
            "thinking_end 0 ",
            "thinking_start 1",
            "thinking_delta 1 h",
            "thinking_end 1 h",
        ],
    );
}

#[test]
fn pieces_of_calls_may_come_mixed() {
    check(
        &[
            text("Go. "),
            call(0, "a", "{\"x\":"),
            call(5, "b", ""),
            call(0, "", "1}"),
            text("And"),
            call(5, "", "{}"),
            text("."),
        ],
        &[
            "text_start 0",
            "text_delta 0 Go. ",
            "text_end 0 Go. ",
            "toolcall_start 1",
            "toolcall_delta 1 {\"x\":",
            "toolcall_start 2",
            "toolcall_delta 1 1}",
            "text_start 3",
            "text_delta 3 And",
            "toolcall_delta 2 {}",
            "text_delta 3 .",
            "text_end 3 And.",
            "toolcall_end 1 {\"x\":1}",
            "toolcall_end 2 {}",
        ],
    );
}

#[test]
fn a_call_ends_as_the_whole_answer_has_it() {
    let deltas = [call(0, "", "{}")];
    let mut whole = message(&deltas, StopReason::ToolUse);
    if let Some(Block::ToolCall(call)) = whole.content.first_mut() {
        call.id = "minted".into();
    }
    let events = vec![
        ChatEvent::Asked(beginning("m")),
        ChatEvent::Piece(deltas[0].clone()),
        ChatEvent::Done(whole),
    ];
    let lines = lines(true, events);
    let end = &lines[lines.len() - 2];
    assert_eq!(end["toolCall"]["id"], "minted");
    assert_eq!(end["partial"]["content"][0]["id"], "minted");
    let done = lines.last().expect("a line");
    assert_eq!(
        (&done["reason"], &done["message"]["stopReason"]),
        (&json!("toolUse"), &json!("toolUse"))
    );
    assert_eq!(done["message"]["role"], "assistant");
}

#[test]
fn each_line_has_the_message_so_far_unless_it_is_not_wanted() {
    let usage = Usage { input: 9, output: 1, ..Usage::default() };
    let deltas = [
        Delta::Usage(usage),
        thinking("h"),
        Delta::Signature("s".into()),
        text("a"),
        text("b"),
        call(0, "c", "{\"command\": \"ec"),
        call(0, "", "ho\"}"),
    ];
    let with = answered(true, &deltas);
    let contents: Vec<&Value> = with.iter().map(|it| &it["partial"]["content"]).collect();
    let thought = json!({"type": "thinking", "thinking": "h", "thinkingSignature": "s"});
    let said = |text: &str| json!({"type": "text", "text": text});
    let called = |arguments: Value| json!({"type": "toolCall", "id": "c", "name": "exec", "arguments": arguments});
    let half = json!({"type": "thinking", "thinking": "h"});
    let whole = called(json!({"command": "echo"}));
    let want = [
        json!([]),
        json!([half]),
        json!([half]),
        json!([thought]),
        json!([thought, said("a")]),
        json!([thought, said("a")]),
        json!([thought, said("ab")]),
        json!([thought, said("ab")]),
        json!([thought, said("ab"), called(json!({"command": "ec"}))]),
        json!([thought, said("ab"), called(json!({"command": "ec"}))]),
        json!([thought, said("ab"), whole]),
        json!([thought, said("ab"), whole]),
        Value::Null,
    ];
    assert_eq!(contents, want.iter().collect::<Vec<_>>());
    let last = &with[with.len() - 2]["partial"];
    assert_eq!(
        json!([last["role"], last["usage"]["input"], last["timestamp"]]),
        json!(["assistant", 9, 7])
    );
    let mut without = with;
    for line in &mut without {
        line.as_object_mut().expect("an object").remove("partial");
    }
    assert_eq!(answered(false, &deltas), without);
}

#[test]
fn another_model_is_told_and_starts_no_second_message() {
    let events = || {
        vec![
            ChatEvent::Asked(beginning("m")),
            ChatEvent::Fallback(model("n")),
            ChatEvent::Asked(beginning("n")),
            ChatEvent::Piece(text("a")),
            ChatEvent::Done(message(&[text("a")], StopReason::Length)),
        ]
    };
    let told = lines(true, events());
    let kinds: Vec<String> = told.iter().map(short).collect();
    let want =
        ["start", "model_fallback", "text_start 0", "text_delta 0 a", "text_end 0 a", "done"];
    assert_eq!(kinds, want);
    assert_eq!(told[1], json!({"type": "model_fallback", "provider": "p", "modelId": "n"}));
    assert_eq!(
        (&told[0]["partial"]["model"], &told[2]["partial"]["model"]),
        (&json!("m"), &json!("n"))
    );
    assert_eq!(told[5]["reason"], "length");
    // The first choice was passed over.
    let told = lines(false, events().split_off(1));
    assert_eq!((&told[0]["type"], &told[1]["type"]), (&json!("model_fallback"), &json!("start")));
}

#[test]
fn a_failure_ends_it_with_what_there_is() {
    for (stop, reason) in [(StopReason::Error, "error"), (StopReason::Aborted, "aborted")] {
        let mut partial = message(&[text("a")], stop);
        partial.error_message = Some("it broke".into());
        let piece = ChatEvent::Piece(text("a"));
        let events = vec![ChatEvent::Asked(beginning("m")), piece, ChatEvent::Failed(partial)];
        let told = lines(false, events);
        let kinds: Vec<String> = told.iter().map(short).collect();
        assert_eq!(kinds, ["start", "text_start 0", "text_delta 0 a", "error"]);
        let last = &told[3];
        assert_eq!(last["reason"], reason);
        let error = &last["error"];
        assert_eq!(
            json!([error["role"], error["stopReason"], error["errorMessage"]]),
            json!(["assistant", reason, "it broke"])
        );
        assert_eq!(error["content"], json!([{"type": "text", "text": "a"}]));
    }
}

#[test]
fn a_refusal_is_one_line() {
    let told = lines(true, vec![ChatEvent::Blocked("not today".into())]);
    assert_eq!(told, [json!({"type": "blocked", "reason": "not today"})]);
}

#[test]
fn what_says_more_of_a_block_is_joined_to_what_waits() {
    #[track_caller]
    fn check(first: Delta, more: Delta, want: Option<Delta>) {
        let mut event = ChatEvent::Piece(first);
        let left = joined(&mut event, ChatEvent::Piece(more));
        let ChatEvent::Piece(got) = event else { panic!("{event:?}") };
        match want {
            Some(want) => assert!(left.is_none() && got == want, "{got:?}"),
            None => assert!(left.is_some()),
        }
    }
    check(text("a"), text("b"), Some(text("ab")));
    check(thinking("a"), thinking("b"), Some(thinking("ab")));
    check(call(1, "c", "{"), call(1, "", "}"), Some(call(1, "c", "{}")));
    check(text("a"), thinking("b"), None);
    check(call(1, "c", "{"), call(2, "", "}"), None);
    check(call(1, "", "{"), call(1, "d", "}"), None);
    check(Delta::Redacted("a".into()), Delta::Redacted("b".into()), None);
    let mut done = ChatEvent::Done(Box::default());
    assert!(joined(&mut done, ChatEvent::Piece(text("a"))).is_some());
}

/// Every order of deltas up to five: blocks are numbered as they begin, each
/// begins and ends once, grows only in between, says what its pieces said, and
/// no two of text are open at a time.
#[test]
fn every_order_of_deltas_keeps_the_protocol() {
    let alphabet = [
        text("t"),
        thinking("h"),
        Delta::Signature("s".into()),
        Delta::Redacted("r".into()),
        call(0, "a", "{"),
        call(1, "b", ""),
        call(0, "", "}"),
    ];
    for length in 0..=5_u32 {
        for number in 0..alphabet.len().pow(length) {
            let pick = |place| number / alphabet.len().pow(place) % alphabet.len();
            let deltas: Vec<Delta> = (0..length).map(|it| alphabet[pick(it)].clone()).collect();
            check_protocol(&deltas);
        }
    }
}

#[track_caller]
fn check_protocol(deltas: &[Delta]) {
    let lines = answered(false, deltas);
    let done = &lines.last().expect("a line")["message"]["content"];
    let blocks = done.as_array().expect("blocks");
    let (mut open, mut begun) = (BTreeMap::<u64, (String, String)>::new(), 0);
    for line in &lines[1..lines.len() - 1] {
        let kind = line["type"].as_str().expect("a type");
        let (what, step) = kind.rsplit_once('_').expect("a step");
        let index = line["contentIndex"].as_u64().expect("a number");
        match step {
            "start" => {
                assert_eq!(index, begun, "{deltas:?}");
                begun += 1;
                assert!(open.values().all(|it| it.0 == "toolcall"), "{deltas:?}");
                open.insert(index, (what.into(), String::new()));
            }
            "delta" => {
                let block = open.get_mut(&index).expect("an open block");
                assert_eq!(block.0, what, "{deltas:?}");
                block.1.push_str(line["delta"].as_str().expect("a delta"));
            }
            _ => {
                let (was, said) = open.remove(&index).expect("an open block");
                assert_eq!(was, what, "{deltas:?}");
                let block = &blocks[usize::try_from(index).expect("small")];
                match what {
                    "toolcall" => assert_eq!(line["toolCall"], *block, "{deltas:?}"),
                    _ => assert_eq!(
                        [&block[what], &line["content"]],
                        [&json!(said); 2],
                        "{deltas:?}"
                    ),
                }
            }
        }
    }
    assert!(open.is_empty(), "{deltas:?}: {open:?}");
    assert_eq!(blocks.len() as u64, begun, "{deltas:?}");
}
