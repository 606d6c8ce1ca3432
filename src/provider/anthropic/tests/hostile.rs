//! What a server must not do and does: tells a call twice, goes on after its
//! end, loses the start of a block, counts what cannot be.

use serde_json::{Value, json};

use super::decode::{
    answer_of, arguments, block, check, check_calls, check_fault, delta, end, finish, said, start,
    stop, stream, text, tool_use, whole,
};
use crate::message::StopReason;
use crate::provider::tests::hostile::{ARGUMENTS, check_odd_tokens, check_too_deep};

#[test]
fn a_call_that_is_told_again_is_one() {
    let one = [("a", json!({"n": 1}))];
    let told = |index: u64| {
        [block(index, tool_use("a", json!({}))), arguments(index, "{\"n\":1}"), stop(index)]
    };
    check_calls(&[told(0), told(0)].concat(), &one);
    check_calls(&[told(0), told(1)].concat(), &one);
    // Only its start comes again, or its start and what had come by then.
    let begun = block(0, tool_use("a", json!({})));
    check_calls(&[begun.clone(), begun.clone(), arguments(0, "{\"n\":1}"), stop(0)], &one);
    check_calls(&[&[begun.clone(), arguments(0, "{\"n")], &told(0)[..]].concat(), &one);
    let given = block(0, tool_use("a", json!({"n": 1})));
    check_calls(&[given.clone(), given, stop(0)], &one);
    // What has an id of its own is a call of its own.
    let other = [block(1, tool_use("b", json!({}))), arguments(1, "{\"n\":1}")];
    let two = [one[0].clone(), ("b", json!({"n": 1}))];
    check_calls(&[&told(0)[..], &other].concat(), &two);
}

#[test]
fn what_comes_after_the_reason_needs_the_end_mark() {
    let late = [
        vec![block(1, tool_use("c", json!({}))), stop(1)],
        vec![block(1, json!({"type": "text", "text": "b"})), stop(1)],
        vec![text(0, "b")],
        vec![delta(1, json!({"type": "thinking_delta", "thinking": "hm"}))],
    ];
    for late in late {
        let begun = [start(), block(0, json!({"type": "text", "text": "a"})), stop(0)];
        let events = [&begun[..], &[finish("end_turn")], &late].concat();
        let failure = answer_of(&stream(&events)).unwrap_err();
        assert_eq!(failure.fault.category(), "cut", "{events:?}");
        assert!(answer_of(&stream(&[&events[..], &[end()]].concat())).is_ok(), "{events:?}");
        assert!(answer_of(&stream(&[&events[..], &[finish("end_turn")]].concat())).is_ok());
    }
    // Ends of what had begun before are none of that.
    let events = [start(), block(0, json!({"type": "text", "text": "a"})), finish("x"), stop(0)];
    check(&stream(&events), said("a"), StopReason::Stop);
}

#[test]
fn what_was_cut_or_withheld_stays_so() {
    let events = [block(0, json!({"type": "text", "text": "a"})), finish("max_tokens")];
    check(&whole(&events, "end_turn"), said("a"), StopReason::Length);
    let events = [block(0, json!({"type": "text", "text": "a"})), finish("refusal")];
    check_fault(&whole(&events, "end_turn"), "refused", "", "a");
}

#[test]
fn what_is_said_of_a_block_without_a_start_is_not_lost() {
    let thinking = delta(0, json!({"type": "thinking_delta", "thinking": "hm"}));
    let signature = delta(0, json!({"type": "signature_delta", "signature": "s"}));
    let thought = json!({"type": "thinking", "thinking": "hm", "thinkingSignature": "s"});
    let both = json!([thought, {"type": "text", "text": "ab"}]);
    let events = [thinking.clone(), signature.clone(), text(1, "a"), text(1, "b"), stop(1)];
    check(&whole(&events, "end_turn"), both.clone(), StopReason::Stop);
    // After its end, in the place of another one, and where nothing is said of it.
    let events = [block(0, json!({"type": "text", "text": "a"})), stop(0), text(0, "b")];
    check(&whole(&events, "end_turn"), said("ab"), StopReason::Stop);
    let events = [thinking, signature, text(0, "ab")];
    check(&whole(&events, "end_turn"), both, StopReason::Stop);
    let events = [block(0, json!({})), text(0, "a")];
    check(&whole(&events, "end_turn"), said("a"), StopReason::Stop);
    let events = [block(0, json!({"text": "a"}))];
    check(&whole(&events, "end_turn"), said("a"), StopReason::Stop);
    let events = [block(0, json!({"id": "a", "name": "exec", "input": {}})), stop(0)];
    check_calls(&events, &[("a", json!({}))]);
    let events = [block(0, tool_use("a", json!({}))), arguments(0, "{}"), text(0, "b")];
    let call = json!({"type": "toolCall", "id": "a", "name": "exec", "arguments": {}});
    check(&whole(&events, ""), json!([call, {"type": "text", "text": "b"}]), StopReason::ToolUse);
}

#[test]
fn arguments_without_their_call_fail_the_answer() {
    let lost = "arguments came of a call that is not there";
    let call = [block(0, tool_use("a", json!({}))), arguments(0, "{\"n\":1}"), stop(0)];
    for place in [0, 7] {
        let events = [&call[..], &[arguments(place, "{}")]].concat();
        check_fault(&whole(&events, "tool_use"), "unavailable", lost, "");
    }
    let events = [block(0, json!({"type": "text", "text": "a"})), arguments(0, "{}")];
    check_fault(&whole(&events, "tool_use"), "unavailable", lost, "a");
    // Of what nobody asked for, nobody asks.
    let other = json!({"type": "server_tool_use", "id": "s", "name": "web", "input": {}});
    let events = [block(0, other), arguments(0, "{}"), stop(0), text(1, "a")];
    check(&whole(&events, "end_turn"), said("a"), StopReason::Stop);
    // Some have the arguments as an object.
    let object = delta(0, json!({"type": "input_json_delta", "partial_json": {"n": 1}}));
    check_calls(&[call[0].clone(), object], &[("a", json!({"n": 1}))]);
}

#[test]
fn two_answers_in_one_stream_are_none() {
    let text = block(0, json!({"type": "text", "text": "a"}));
    let again = [start(), text.clone()];
    check_fault(
        &whole(&[std::slice::from_ref(&text), &again[..]].concat(), ""),
        "unavailable",
        "another",
        "a",
    );
    check(&whole(&again, "end_turn"), said("a"), StopReason::Stop);
    // As a whole it says the same once more.
    let message = json!({"type": "message", "content": [{"type": "text", "text": "a"}]});
    check(&whole(&[text, message], "end_turn"), said("a"), StopReason::Stop);
}

#[test]
fn an_event_alone_is_no_answer() {
    for event in [start(), block(0, tool_use("a", json!({}))), finish("end_turn")] {
        check_fault(&event.to_string(), "unavailable", "no message", "");
    }
}

#[test]
fn an_error_in_any_event_is_one() {
    let mut event = finish("end_turn");
    event["error"] = json!({"type": "overloaded_error", "message": "M"});
    check_fault(&stream(&[start(), event]), "unavailable", "M", "");
}

#[test]
fn indices_may_be_anything() {
    let at = |index: Value, mut event: Value| {
        event["index"] = index;
        event
    };
    for index in [json!(-1), json!(1e300), json!("x"), json!({}), json!(u64::MAX), json!("3")] {
        let events = [
            at(index.clone(), block(0, tool_use("a", json!({})))),
            at(index.clone(), arguments(0, "{\"n\":1}")),
            at(index.clone(), stop(0)),
            at(index.clone(), block(0, tool_use("b", json!({})))),
            at(index.clone(), arguments(0, "{\"n\":2}")),
        ];
        check_calls(&events, &[("a", json!({"n": 1})), ("b", json!({"n": 2}))]);
    }
}

#[test]
fn arguments_too_deep_are_told_of_in_every_form() {
    let text = [block(0, tool_use("a", json!({}))), arguments(0, ARGUMENTS)];
    let object = [block(0, tool_use("a", json!(ARGUMENTS)))];
    check_too_deep([&whole(&text, "tool_use"), &whole(&object, "tool_use")], answer_of);
}

#[test]
fn tokens_that_cannot_be_are_unknown() {
    let fields = ["input_tokens", "output_tokens", "cache_read_input_tokens"];
    check_odd_tokens(&fields, |field, odd| {
        let mut last = finish("end_turn");
        last["usage"][field] = odd.clone();
        answer_of(&stream(&[start(), last, end()]))
    });
}
