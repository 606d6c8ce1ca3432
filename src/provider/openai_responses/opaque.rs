//! What of an answer only its own server understands, in the form in which it
//! is kept with the answer: that of pi, so that either program goes on with the
//! other's sessions. Pure. A reasoning item is kept whole, as JSON; of a message
//! its id, and with it the phase of the turn that it was said in; of a call the
//! id of its item. What is kept may come from anywhere, so that it is looked at
//! again before it goes out.

use serde_json::{Value, json};

use crate::message::ToolCall;
use crate::provider::field::text;
use crate::provider::json;

/// Longest id that is taken, in bytes.
const LONGEST_ID: usize = 64;

/// What is kept of a message beside its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MessageMark {
    /// The id of its item.
    pub(super) id: String,
    /// Whether it was said on the way or at the end, where the model tells.
    pub(super) phase: Option<String>,
}

/// A reasoning item as it is kept. None if it holds nothing but its id: nobody
/// would know it again, since nothing is stored on the server.
pub(super) fn kept_reasoning(item: &Value) -> Option<String> {
    let holds = |field: &str| match item.get(field) {
        Some(Value::String(it)) => !it.is_empty(),
        Some(Value::Array(it)) => !it.is_empty(),
        _ => false,
    };
    let is_known_again = ["encrypted_content", "content", "signature"].into_iter().any(holds);
    is_known_again.then(|| item.to_string())
}

/// The reasoning item that was kept, as it goes out; none if it is anything
/// else, such as the signature of another protocol. Its server refuses fields
/// that are null, and the one that tells how far it had come.
pub(super) fn reasoning(kept: &str) -> Option<Value> {
    let mut item = json::read(kept.as_bytes(), json::MOST_VALUES).ok()?;
    if text(&item, "type") != "reasoning" || kept_reasoning(&item).is_none() {
        return None;
    }
    let fields = item.as_object_mut()?;
    fields.retain(|name, value| {
        let is_nothing = value.is_null() || (name == "content" && *value == json!([]));
        name != "status" && !is_nothing
    });
    if !fields.get("summary").is_some_and(Value::is_array) {
        fields.insert("summary".into(), json!([]));
    }
    Some(item)
}

/// What is kept of a message: its id alone, where there is nothing more.
pub(super) fn kept_message(item: &Value) -> Option<String> {
    let (id, phase) = (text(item, "id"), text(item, "phase"));
    match (id.is_empty(), phase.is_empty()) {
        (true, _) => None,
        (false, true) => Some(id.to_owned()),
        (false, false) => Some(json!({"v": 1, "id": id, "phase": phase}).to_string()),
    }
}

/// What was kept of a message, if it may go out.
pub(super) fn message(kept: &str) -> Option<MessageMark> {
    let read = kept.starts_with('{').then(|| json::read(kept.as_bytes(), json::MOST_VALUES));
    let mark = match read {
        None => MessageMark { id: kept.to_owned(), phase: None },
        Some(value) => {
            let value = value.ok()?;
            let phase = text(&value, "phase");
            let phase = ["commentary", "final_answer"].contains(&phase).then(|| phase.to_owned());
            MessageMark { id: text(&value, "id").to_owned(), phase }
        }
    };
    is_id(&mark.id, "msg").then_some(mark)
}

/// What is kept of a call beside its id.
pub(super) fn kept_call(item: &Value) -> Option<String> {
    let id = text(item, "id");
    (!id.is_empty()).then(|| id.to_owned())
}

/// The id by which a call and its result are paired. In pi's files that of the
/// item stands behind it.
pub(super) fn call_id(call: &ToolCall) -> Option<&str> {
    let id = call.id.split_once('|').map_or(call.id.as_str(), |(id, _)| id);
    is_id(id, "").then_some(id)
}

/// The id of a call's item, if it may go out.
pub(super) fn call_item(call: &ToolCall) -> Option<&str> {
    let beside = call.thought_signature.as_deref();
    let id = beside.or_else(|| call.id.split_once('|').map(|(_, id)| id))?;
    is_id(id, "fc").then_some(id)
}

/// Whether the server takes it as an id of an item of that kind.
fn is_id(id: &str, kind: &str) -> bool {
    let is_sound = |it: u8| it.is_ascii_alphanumeric() || b"_-.:".contains(&it);
    (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(is_sound) && id.starts_with(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_reasoning(item: Value, want: Option<Value>) {
        let kept = kept_reasoning(&item);
        assert_eq!(kept.as_deref().and_then(reasoning), want, "{item}");
    }

    #[test]
    fn a_reasoning_item_comes_back_as_it_was() {
        let whole = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA",
            "summary": [{"type": "summary_text", "text": "Hm."}], "later": 1});
        check_reasoning(whole.clone(), Some(whole.clone()));
        let mut told = whole.clone();
        told["status"] = json!("completed");
        told["content"] = json!([]);
        told["more"] = Value::Null;
        check_reasoning(told, Some(whole));
        let open = json!({"type": "reasoning", "id": "rs_1", "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}]});
        check_reasoning(open.clone(), Some(open));
        let bare = json!({"type": "reasoning", "encrypted_content": "gAAA", "summary": null});
        let want = json!({"type": "reasoning", "encrypted_content": "gAAA", "summary": []});
        check_reasoning(bare, Some(want));
    }

    #[test]
    fn one_that_nobody_would_know_again_is_not_kept() {
        let summary = json!([{"type": "summary_text", "text": "Hm."}]);
        check_reasoning(json!({"type": "reasoning", "id": "rs_1", "summary": summary}), None);
        for nothing in [Value::Null, json!(""), json!(7)] {
            check_reasoning(json!({"type": "reasoning", "encrypted_content": nothing}), None);
        }
        for other in ["", "EjQK", "{", "[]", "7", r#"{"type":"message"}"#] {
            assert_eq!(reasoning(other), None, "{other}");
        }
    }

    #[track_caller]
    fn check_message(kept: &str, want: Option<(&str, Option<&str>)>) {
        let want =
            want.map(|(id, phase)| MessageMark { id: id.into(), phase: phase.map(str::to_owned) });
        assert_eq!(message(kept), want, "{kept}");
    }

    #[test]
    fn of_a_message_its_id_and_phase_come_back() {
        let item = json!({"id": "msg_1", "phase": "commentary"});
        let kept = kept_message(&item).unwrap_or_default();
        check_message(&kept, Some(("msg_1", Some("commentary"))));
        assert_eq!(kept_message(&json!({"id": "msg_1", "phase": null})), Some("msg_1".into()));
        assert_eq!(kept_message(&json!({"id": ""})), None);
        check_message("msg_1", Some(("msg_1", None)));
        check_message(r#"{"v":1,"id":"msg_1"}"#, Some(("msg_1", None)));
        check_message(r#"{"v":1,"id":"msg_1","phase":"odd"}"#, Some(("msg_1", None)));
        for other in ["", "sig", "{", "{}", &format!("msg_{}", "x".repeat(61)), "msg_é", "msg_ 1"]
        {
            check_message(other, None);
        }
    }

    #[test]
    fn a_call_has_two_ids_in_either_form() {
        let call = |id: &str, beside: Option<&str>| ToolCall {
            id: id.into(),
            thought_signature: beside.map(str::to_owned),
            ..ToolCall::default()
        };
        let ours = call("call_1", Some("fc_1"));
        let theirs = call("call_1|fc_1", None);
        for call in [&ours, &theirs] {
            assert_eq!((call_id(call), call_item(call)), (Some("call_1"), Some("fc_1")));
        }
        let bare = call("call_1", None);
        assert_eq!((call_id(&bare), call_item(&bare)), (Some("call_1"), None));
        for odd in ["", "|fc_1", "é|", &"x".repeat(65), "a b"] {
            assert_eq!(call_id(&call(odd, None)), None, "{odd}");
        }
        for odd in ["", "sig", "fc_é", &format!("fc{}", "x".repeat(63))] {
            assert_eq!(call_item(&call("call_1", Some(odd))), None, "{odd}");
        }
    }
}
