//! What a server must not do and does: tells a call twice, goes on after its
//! end, says what is of no shape, counts what cannot be.

use serde_json::{Value, json};

use super::calls::check_calls;
use super::decode::{answer, check, check_fault, delta, finish, said, stream};
use crate::message::StopReason;

fn call(index: u64, id: &str, arguments: &str) -> Value {
    json!({"index": index, "id": id, "function": {"name": "exec", "arguments": arguments}})
}

/// Chunks as a stream without its end mark.
fn unmarked(chunks: &[Value]) -> String {
    stream(chunks).replace("data: [DONE]\n\n", "")
}

#[test]
fn a_call_that_is_told_again_is_one() {
    let one = [("a", "exec", json!({"x": 1}))];
    let told = |index| json!([call(index, "a", "{\"x\":1}")]);
    check_calls(&[told(0), told(0)], &one);
    check_calls(&[told(0), told(1), told(0)], &one);
    let mut bare = call(0, "a", "{\"x\":1}");
    bare.as_object_mut().unwrap().remove("index");
    check_calls(&[json!([bare]), json!([bare, bare])], &one);
    // Its pieces are not doubled, where only its name comes again.
    check_calls(&[json!([call(0, "a", "{\"x\":")]), json!([call(0, "a", "1}")])], &one);
    // What has an id of its own is a call of its own.
    let two = [("a", "exec", json!({"x": 1})), ("b", "exec", json!({"x": 1}))];
    check_calls(&[told(0), json!([call(1, "b", "{\"x\":1}")])], &two);
}

#[test]
fn what_comes_after_the_finish_needs_the_end_mark() {
    let call = delta(json!({"tool_calls": [call(0, "a", "{}")]}));
    let text = delta(json!({"content": "a"}));
    let thinking = delta(json!({"reasoning": "hm"}));
    for late in [call.clone(), text.clone(), thinking] {
        let chunks = [text.clone(), finish("stop"), late];
        let got = answer(&unmarked(&chunks)).unwrap_err();
        assert_eq!(got.fault.category(), "cut", "{chunks:?}");
        assert!(answer(&stream(&chunks)).is_ok(), "{chunks:?}");
    }
    // It ends with its last word, if that is said once more, and what says
    // nothing changes nothing.
    let nothing = delta(json!({"content": "", "tool_calls": []}));
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 1}});
    let chunks = [text.clone(), finish("stop"), text, finish("stop"), nothing, usage];
    assert_eq!(answer(&unmarked(&chunks)), Ok((said("aa"), StopReason::Stop, 0)));
}

#[test]
fn what_was_cut_or_withheld_stays_so() {
    let text = delta(json!({"content": "a"}));
    check(&[text.clone(), finish("length"), finish("stop")], said("a"), StopReason::Length);
    check_fault(&stream(&[text, finish("content_filter"), finish("stop")]), "refused", "", "a");
}

#[test]
fn what_is_of_another_shape_is_not_lost() {
    let whole =
        json!({"choices": [{"delta": {}, "message": {"content": "a"}, "finish_reason": "stop"}]});
    check(&[whole], said("a"), StopReason::Stop);
    let parts = delta(json!({"content": ["a", {"text": "b"}]}));
    check(&[parts, finish("stop")], said("ab"), StopReason::Stop);
    let both = json!({"choices": [{"index": 0, "delta": {"content": "a"}},
        {"index": 0, "delta": {"content": "b"}}, {"index": 1, "delta": {"content": "x"}}]});
    check(&[both, finish("stop")], said("ab"), StopReason::Stop);
    check_calls(&[call(0, "a", "{}")], &[("a", "exec", json!({}))]);
}

#[test]
fn an_index_that_is_none_makes_no_two_calls_one() {
    let at = |index: Value, id: &str, arguments: &str| json!([{"index": index, "id": id, "function": {"name": "exec", "arguments": arguments}}]);
    let want = [("a", "exec", json!({"x": 1})), ("b", "exec", json!({"x": 2}))];
    for (one, other) in [
        (json!(-1), json!(-2)),
        (json!(1e19), json!(1e300)),
        (json!("x"), json!(null)),
        (json!(u64::MAX), json!("7")),
        (json!([0]), json!(0.5)),
    ] {
        check_calls(&[at(one, "a", "{\"x\":1}"), at(other, "b", "{\"x\":2}")], &want);
    }
}

#[test]
fn arguments_too_deep_are_told_of_in_every_form() {
    for levels in [65, 120, 128, 200] {
        let deep = "{\"a\":".repeat(levels - 1) + "{}" + &"}".repeat(levels - 1);
        let text = delta(json!({"tool_calls": [call(0, "a", &deep)]}));
        let marked = delta(json!({"tool_calls": [call(0, "a", "DEEP")]}));
        let object = marked.to_string().replace("\"DEEP\"", &deep);
        for chunk in [text.to_string(), object] {
            let got = answer(&format!("data: {chunk}\n\ndata: [DONE]\n\n"));
            let want = json!([{"type": "toolCall", "id": "a", "name": "exec", "arguments": {}}]);
            assert_eq!(got, Ok((want, StopReason::ToolUse, 1)), "{levels} levels");
        }
    }
}

#[test]
fn tokens_that_cannot_be_are_unknown() {
    for odd in [
        json!(1e19),
        json!(-1),
        json!(0.5),
        json!("NaN"),
        json!("9".repeat(400)),
        json!(u64::MAX),
        json!(100_000_001),
    ] {
        let cached = json!({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": odd}});
        for usage in [
            json!({"prompt_tokens": odd, "completion_tokens": 5}),
            json!({"prompt_tokens": 5, "completion_tokens": odd}),
            json!({"total_tokens": odd}),
            cached,
        ] {
            check_unknown(&usage);
        }
    }
}

#[track_caller]
fn check_unknown(usage: &Value) {
    use crate::clock::Time;
    use crate::config::ModelRef;
    use crate::message::Usage;
    use crate::provider::assemble::Assembly;

    let chunk = json!({"choices": [{"delta": {"content": "a"}}], "usage": usage});
    let model = ModelRef { provider: "acme".into(), model: "m".into() };
    let mut assembly = Assembly::new("openai-completions", &model, Time::from_unix_millis(7));
    let (deltas, _) = super::decode::READING.of([stream(&[chunk]).as_bytes()]);
    deltas.into_iter().for_each(|it| assembly.take(it));
    assert!(assembly.is_misled(), "{usage}");
    let Ok(answer) = assembly.finish() else { panic!("it is whole") };
    assert_eq!(answer.message.usage, Usage::default(), "{usage}");
}
