//! What a server must not do and does: tells a call twice, goes on after its
//! end, says what is of no shape, counts what cannot be.

use serde_json::{Value, json};

use super::decode::{answer, called, check, check_fault, finish, parts, said, stream, text};
use crate::message::StopReason;
use crate::provider::tests::hostile::{ARGUMENTS, check_odd_tokens, check_too_deep};

fn call(id: &str) -> Value {
    json!({"functionCall": {"id": id, "name": "exec", "args": {"x": 1}}})
}

#[test]
fn a_call_that_is_told_again_is_one() {
    let one = json!([called("a", "exec", json!({"x": 1}))]);
    let told = parts(json!([call("a")]));
    check(&[told.clone(), told.clone(), finish("STOP")], one.clone(), StopReason::ToolUse);
    check(&[parts(json!([call("a"), call("a")])), finish("STOP")], one, StopReason::ToolUse);
    let two = json!([called("a", "exec", json!({"x": 1})), called("b", "exec", json!({"x": 1}))]);
    check(&[told, parts(json!([call("b")])), finish("STOP")], two, StopReason::ToolUse);
}

/// Google's models often give none, and may mean to do the same twice.
#[test]
fn calls_without_ids_stay_as_many_as_they_are() {
    let bare = json!({"functionCall": {"name": "exec", "args": {"x": 1}}});
    let pieces = [parts(json!([bare, bare])), parts(json!([bare])), finish("STOP")];
    let answer = answer(stream(&pieces).as_bytes()).unwrap();
    assert_eq!(answer.message.tool_calls().count(), 3);
}

#[test]
fn what_comes_after_the_reason_needs_another_one() {
    for late in
        [text("b"), parts(json!([call("a")])), parts(json!([{"text": "hm", "thought": true}]))]
    {
        let pieces = [text("a"), finish("STOP"), late.clone()];
        let failure = answer(stream(&pieces).as_bytes()).unwrap_err();
        assert_eq!(failure.fault.category(), "cut", "{late}");
        let again = [&pieces[..], &[finish("STOP")]].concat();
        assert!(answer(stream(&again).as_bytes()).is_ok(), "{late}");
        let marked = stream(&pieces) + "data: [DONE]\n\n";
        assert!(answer(marked.as_bytes()).is_ok(), "{late}");
    }
    // What says nothing changes nothing, nor does a signature or a count.
    let signature = parts(json!([{"text": "", "thoughtSignature": "S"}]));
    let pieces = [text("a"), finish("STOP"), text(""), signature, json!({"usageMetadata": {}})];
    let want = json!([{"type": "text", "text": "a", "textSignature": "S"}]);
    check(&pieces, want, StopReason::Stop);
}

#[test]
fn a_list_that_does_not_end_is_cut() {
    let pieces = [text("a"), finish("STOP"), json!({"usageMetadata": {}})];
    let list = json!(pieces).to_string();
    assert!(answer(list.as_bytes()).is_ok());
    for end in 1..=list.len() - list.find("STOP").unwrap() - 6 {
        check_fault(&list[..list.len() - end], "cut", "cut off", "a");
    }
}

#[test]
fn what_is_of_another_shape_is_not_lost() {
    let mut piece = text("");
    piece["candidates"][0]["content"]["parts"] = json!({"text": "a"});
    check(&[piece, finish("STOP")], said("a"), StopReason::Stop);
    let mut both = call("c");
    both["text"] = json!("a");
    let want = json!([{"type": "text", "text": "a"}, called("c", "exec", json!({"x": 1}))]);
    check(&[parts(json!([both])), finish("STOP")], want, StopReason::ToolUse);
    // The model is told that there is no such tool.
    let odd =
        answer(stream(&[parts(json!([{"functionCall": "exec"}])), finish("STOP")]).as_bytes());
    let names: Vec<String> = odd.unwrap().message.tool_calls().map(|it| it.name.clone()).collect();
    assert_eq!(names, [""]);
    let mut two = text("a");
    let other = text("b")["candidates"][0].clone();
    two["candidates"].as_array_mut().unwrap().push(other);
    check(&[two, finish("STOP")], said("ab"), StopReason::Stop);
}

#[test]
fn arguments_too_deep_are_told_of() {
    let call = json!({"functionCall": {"id": "a", "name": "exec", "args": ARGUMENTS}});
    let said = stream(&[parts(json!([call])), finish("STOP")]);
    check_too_deep([&said, &said], |it| answer(it.as_bytes()));
}

#[test]
fn tokens_that_cannot_be_are_unknown() {
    let fields = ["promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount"];
    check_odd_tokens(&fields, |field, odd| {
        let mut last = finish("STOP");
        last["usageMetadata"] = json!({"promptTokenCount": 7, "candidatesTokenCount": 3});
        last["usageMetadata"][field] = odd.clone();
        answer(stream(&[text("a"), last]).as_bytes())
    });
}
