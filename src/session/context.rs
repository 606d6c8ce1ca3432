//! What a model is given of a session. Pure. The one place where the form of
//! the conversation is made sure: providers refuse a call without its result
//! and a result without its call for ever after, so neither leaves here,
//! whatever the file holds.

use std::borrow::Cow;

use super::entry::Body;
use crate::clock::Time;
use crate::message::{
    BashExecution, Block, Content, Message, StopReason, ToolCall, ToolResult, User,
};

/// The conversation as a provider takes it; as a rule it is that already, and
/// nothing is copied.
pub(super) fn of(messages: &[Message]) -> Cow<'_, [Message]> {
    match is_paired(messages) && !messages.windows(2).any(is_overtaken) {
        true => Cow::Borrowed(messages),
        false => Cow::Owned(paired(without_overtaken(messages))),
    }
}

/// The same of a conversation that is kept elsewhere, whatever stands in it.
pub(super) fn of_strange(messages: Vec<Message>) -> Vec<Message> {
    let mut messages: Vec<Message> = messages.into_iter().filter_map(neutral_message).collect();
    // What came of an answer that failed is not to be the last word.
    let whole = messages.iter().rposition(|it| !is_half(it)).map_or(0, |it| it + 1);
    messages.truncate(whole);
    if let Cow::Owned(right) = of(&messages) {
        return right;
    }
    messages
}

fn is_half(message: &Message) -> bool {
    matches!(message, Message::Assistant(it)
        if matches!(it.stop_reason, StopReason::Error | StopReason::Aborted))
}

/// Whether the first of two is a failed answer whose place the second took:
/// the model tried again and said it anew.
fn is_overtaken(pair: &[Message]) -> bool {
    matches!(pair, [Message::Assistant(failed), Message::Assistant(_)]
        if failed.stop_reason == StopReason::Error)
}

fn without_overtaken(messages: &[Message]) -> Vec<Message> {
    let pairs = messages.windows(2).filter(|it| !is_overtaken(it)).map(|it| &it[0]);
    pairs.chain(messages.last()).cloned().collect()
}

/// The calls of the last answer that have no result after it.
pub(super) fn open_calls(messages: &[Message]) -> Vec<ToolCall> {
    let answered = messages.iter().rposition(|it| matches!(it, Message::Assistant(_)));
    let Some(answered) = answered else { return Vec::new() };
    let Message::Assistant(answer) = &messages[answered] else { return Vec::new() };
    let results: Vec<&str> = messages[answered + 1..]
        .iter()
        .filter_map(|it| match it {
            Message::ToolResult(result) => Some(result.tool_call_id.as_str()),
            _ => None,
        })
        .collect();
    answer.tool_calls().filter(|it| !results.contains(&it.id.as_str())).cloned().collect()
}

/// An entry as a message that every provider knows (user, answer or result),
/// if a model is to see it.
pub(super) fn neutral(body: Body) -> Option<Message> {
    match body {
        Body::Message { message, .. } => neutral_message(message),
        Body::Compaction { summary, .. } => Some(compaction_note(&summary)),
        Body::BranchSummary { summary, .. } => Some(branch_note(&summary)),
        Body::CustomMessage { content, .. } => Some(said(content, 0)),
        Body::ModelChange { .. } | Body::Other(_) => None,
    }
}

fn neutral_message(message: Message) -> Option<Message> {
    match message {
        Message::Assistant(answer) if answer.is_empty() => None,
        Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) => Some(message),
        Message::BashExecution(run) if run.exclude_from_context == Some(true) => None,
        Message::BashExecution(run) => Some(said(Content::Text(told(&run)), run.timestamp)),
        Message::Custom(it) => Some(said(it.content, it.timestamp)),
        Message::BranchSummary(it) => Some(branch_note(&it.summary)),
        Message::CompactionSummary(it) => Some(compaction_note(&it.summary)),
        Message::Unknown(_) => None,
    }
}

fn said(content: Content, timestamp: i64) -> Message {
    Message::User(User { content, timestamp, ..User::default() })
}

/// What stands in for all that was compacted away.
pub fn compaction_note(summary: &str) -> Message {
    let text = format!(
        "The conversation before this point was compacted into the following summary:\n\n\
         <summary>\n{summary}\n</summary>"
    );
    said(Content::Blocks(vec![Block::text(text)]), 0)
}

fn branch_note(summary: &str) -> Message {
    let text = format!(
        "The following is a summary of a branch that this conversation came back from:\n\n\
         <summary>\n{summary}\n</summary>"
    );
    said(Content::Blocks(vec![Block::text(text)]), 0)
}

/// What a person ran, in words.
fn told(run: &BashExecution) -> String {
    let mut text = format!("Ran `{}`\n", run.command);
    if run.output.is_empty() {
        text.push_str("(no output)");
    } else {
        text.push_str(&format!("```\n{}\n```", run.output));
    }
    match run.exit_code {
        _ if run.cancelled => text.push_str("\n\n(command cancelled)"),
        Some(code) if code != 0 => text.push_str(&format!("\n\nCommand exited with code {code}")),
        _ => (),
    }
    if let Some(path) = run.full_output_path.as_ref().filter(|_| run.truncated) {
        text.push_str(&format!("\n\n[Output truncated. Full output: {path}]"));
    }
    text
}

/// Whether each answer is followed by one result a call, in their order, and
/// no result stands anywhere else.
fn is_paired(messages: &[Message]) -> bool {
    let mut rest = messages.iter();
    while let Some(message) = rest.next() {
        let calls: Vec<&ToolCall> = match message {
            Message::ToolResult(_) => return false,
            Message::Assistant(answer) => answer.tool_calls().collect(),
            _ => continue,
        };
        let answers = |call: &&ToolCall| matches!(rest.next(), Some(Message::ToolResult(it)) if it.tool_call_id == call.id);
        if !calls.iter().all(answers) {
            return false;
        }
    }
    true
}

/// Each answer is followed by one result a call, in the order of the calls;
/// results of no call are left out, missing ones are filled in.
fn paired(messages: Vec<Message>) -> Vec<Message> {
    let mut whole = Vec::with_capacity(messages.len());
    let mut rest = messages.into_iter().peekable();
    while let Some(message) = rest.next() {
        match &message {
            Message::ToolResult(_) => continue,
            Message::Assistant(answer) => {
                let calls: Vec<ToolCall> = answer.tool_calls().cloned().collect();
                whole.push(message);
                let mut following = Vec::new();
                while let Some(it) = rest.next_if(|it| !matches!(it, Message::Assistant(_))) {
                    following.push(it);
                }
                answer_calls(&calls, following, &mut whole);
            }
            _ => whole.push(message),
        }
    }
    whole
}

/// The results of these calls, then what else was said before the next answer.
fn answer_calls(calls: &[ToolCall], following: Vec<Message>, whole: &mut Vec<Message>) {
    let mut results: Vec<ToolResult> = Vec::new();
    let mut others = Vec::new();
    for message in following {
        match message {
            Message::ToolResult(result) => results.push(result),
            other => others.push(other),
        }
    }
    for call in calls {
        let found = results.iter().position(|it| it.tool_call_id == call.id);
        whole.push(match found {
            Some(place) => Message::ToolResult(results.remove(place)),
            None => Message::interrupted(call, Time::from_unix_millis(0)),
        });
    }
    whole.extend(others);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Messages from short forms: `u:text`, `a:text`, `c:id,id` (an answer with
    /// calls), `r:id` (a result), `e:text` (an answer that failed).
    fn messages(forms: &[&str]) -> Vec<Message> {
        let message = |form: &&str| {
            let (kind, rest) = form.split_once(':').unwrap_or((form, ""));
            match kind {
                "u" => json!({"role": "user", "content": rest}),
                "a" => json!({"role": "assistant", "content": rest}),
                "e" => json!({"role": "assistant", "content": rest, "stopReason": "error"}),
                "c" => json!({"role": "assistant", "content": rest.split(',').map(|id|
                    json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {}})).collect::<Vec<Value>>()}),
                _ => json!({"role": "toolResult", "toolCallId": rest, "content": "ok"}),
            }
        };
        of_entries(
            forms.iter().map(|it| json!({"type": "message", "message": message(it)})).collect(),
        )
    }

    fn of_entries(entries: Vec<Value>) -> Vec<Message> {
        let bodies = entries
            .iter()
            .filter_map(|it| Body::parse(it["type"].as_str()?, it.to_string().as_bytes()));
        bodies.filter_map(neutral).collect()
    }

    /// The same short forms back; `R:id` is a result that was filled in.
    fn short(message: &Message) -> String {
        match message {
            Message::User(it) => format!("u:{}", it.content.text()),
            Message::Assistant(it) if it.tool_calls().next().is_some() => {
                let ids: Vec<&str> = it.tool_calls().map(|it| it.id.as_str()).collect();
                format!("c:{}", ids.join(","))
            }
            Message::Assistant(it) if it.stop_reason == StopReason::Error => {
                format!("e:{}", it.text())
            }
            Message::Assistant(it) => format!("a:{}", it.text()),
            Message::ToolResult(it) if it.is_error => format!("R:{}", it.tool_call_id),
            Message::ToolResult(it) => format!("r:{}", it.tool_call_id),
            other => format!("{other:?}"),
        }
    }

    #[track_caller]
    fn check(forms: &[&str], want: &[&str]) {
        let messages = messages(forms);
        let context = of(&messages);
        let got: Vec<String> = context.iter().map(short).collect();
        assert_eq!(got, want);
        assert_eq!(matches!(context, Cow::Borrowed(_)), forms == want, "{forms:?}");
    }

    #[test]
    fn a_sound_conversation_is_given_as_it_is() {
        let forms = ["u:hi", "c:1,2", "r:1", "r:2", "a:done", "u:more"];
        check(&forms, &forms);
    }

    #[test]
    fn a_missing_result_is_filled_in_where_it_belongs() {
        check(&["u:hi", "c:1,2", "r:2", "u:more"], &["u:hi", "c:1,2", "R:1", "r:2", "u:more"]);
        check(&["u:hi", "c:1"], &["u:hi", "c:1", "R:1"]);
        check(&["c:1", "a:x"], &["c:1", "R:1", "a:x"]);
    }

    #[test]
    fn a_result_of_no_call_is_left_out() {
        check(&["r:0", "u:hi", "r:9", "a:x", "r:8"], &["u:hi", "a:x"]);
        check(&["c:1", "r:1", "r:1"], &["c:1", "r:1"]);
    }

    #[test]
    fn a_result_that_comes_late_is_moved_to_its_call() {
        check(&["c:1", "u:aside", "r:1"], &["c:1", "r:1", "u:aside"]);
    }

    #[test]
    fn a_failed_answer_is_left_out_once_another_has_taken_its_place() {
        check(&["u:hi", "e:ha", "a:half", "u:more"], &["u:hi", "a:half", "u:more"]);
        check(&["u:hi", "e:1", "e:2", "c:3", "r:3"], &["u:hi", "c:3", "r:3"]);
        check(&["u:hi", "e:1", "e:2", "u:more"], &["u:hi", "e:2", "u:more"]);
        let forms = ["u:hi", "e:ha", "u:more", "a:x"];
        check(&forms, &forms);
    }

    #[test]
    fn a_conversation_from_elsewhere_is_put_right_too() {
        let failed = json!({"role": "assistant", "content": "half", "stopReason": "error"});
        let read = |it: Value| serde_json::from_value(it).ok();
        let mut strange = messages(&["u:hi", "c:1,2", "r:2", "r:9"]);
        strange.extend(read(json!({"role": "bashExecution", "command": "ls", "exitCode": 0})));
        strange.extend(read(json!({"role": "assistant", "content": []})));
        strange.extend(read(failed));
        let got: Vec<String> = of_strange(strange).iter().map(short).collect();
        assert_eq!(got, ["u:hi", "c:1,2", "R:1", "r:2", "u:Ran `ls`\n(no output)"]);
        let sound = messages(&["u:hi", "c:1", "r:1"]);
        assert_eq!(of_strange(sound.clone()), sound);
    }

    #[test]
    fn an_empty_answer_is_left_out() {
        let got: Vec<String> = messages(&["u:hi", "a:", "u:again"]).iter().map(short).collect();
        assert_eq!(got, ["u:hi", "u:again"]);
    }

    #[track_caller]
    fn check_open(forms: &[&str], want: &[&str]) {
        let got: Vec<String> = open_calls(&messages(forms)).into_iter().map(|it| it.id).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn open_calls_are_those_of_the_last_answer_without_result() {
        check_open(&["u:hi", "c:1,2,3", "r:2"], &["1", "3"]);
        check_open(&["c:1", "r:1"], &[]);
        check_open(&["c:1", "a:x"], &[]);
        check_open(&[], &[]);
    }

    #[test]
    fn other_roles_reach_the_model_as_user_messages_or_not_at_all() {
        let message = |it: Value| json!({"type": "message", "message": it});
        let messages = of_entries(vec![
            message(
                json!({"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 2}),
            ),
            message(json!({"role": "bashExecution", "command": "no", "excludeFromContext": true})),
            message(json!({"role": "hookMessage", "content": "hook"})),
            message(json!({"role": "oracle"})),
            json!({"type": "custom_message", "content": "custom"}),
            json!({"type": "session_info", "name": "n"}),
        ]);
        let got: Vec<String> = messages.iter().map(short).collect();
        let ran = "u:Ran `ls`\n```\na\n```\n\nCommand exited with code 2";
        assert_eq!(got, [ran, "u:hook", "u:custom"]);
    }
}
