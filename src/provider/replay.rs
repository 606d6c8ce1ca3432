//! The dialect of the cassette: the request says what a line can match and
//! which lines are used up, the answer is one JSON event a line. Pure, like
//! every dialect; the file is the tape's affair.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CallPiece, Decoder, Delta, Fault, Origin, Provider, Request, Wire};
use crate::message::{Cost, Message, StopReason, Usage};

/// The dialect of one provider.
#[derive(Debug)]
pub(super) struct Replay {
    cassette: String,
}

/// What is asked of a tape.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Question {
    /// Text of the last user message.
    pub(super) last_user: String,
    /// The tool result that the conversation ends with, if it does.
    pub(super) last_tool: Option<LastTool>,
    /// Lines that this session has had.
    pub(super) used: Vec<u64>,
}

/// A tool result to match.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastTool {
    pub(super) name: String,
    pub(super) text: String,
}

/// What a tape answers, one a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Played {
    /// Which line of the cassette it is: first, and put in by the tape.
    Mark {
        line: LineMark,
    },
    Event(Event),
}

/// One event of a cassette line, by its name there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Event {
    Text(String),
    Thinking(String),
    Signature(String),
    /// Thinking that the provider withheld, as opaque data.
    Redacted(String),
    ToolCall(PlayedCall),
    Usage(#[serde(with = "PlayedUsage")] Usage),
    Stop(PlayedStop),
    /// The call fails here, with this text, and may be tried again.
    Error(String),
    /// The call fails here, and would each time.
    Refused(String),
    /// The conversation is too long.
    TooLong(String),
}

/// Why an answer of a cassette may end: how a call fails is an `error` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PlayedStop {
    Stop,
    Length,
    ToolUse,
}

/// [`Usage`] without the leniency towards session files of later versions.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Usage", rename_all = "camelCase", deny_unknown_fields)]
struct PlayedUsage {
    #[serde(default, skip_serializing_if = "is_default")]
    input: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    output: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    cache_read: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    cache_write: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    total_tokens: u64,
    #[serde(default, skip_serializing_if = "is_default", with = "PlayedCost")]
    cost: Cost,
}

/// [`Cost`] likewise.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Cost", rename_all = "camelCase", deny_unknown_fields)]
struct PlayedCost {
    #[serde(default)]
    input: f64,
    #[serde(default)]
    output: f64,
    #[serde(default)]
    cache_read: f64,
    #[serde(default)]
    cache_write: f64,
    #[serde(default)]
    total: f64,
}

/// Whether a field says nothing, so that it need not stand in a line.
pub(super) fn is_default<T: Default + PartialEq>(it: &T) -> bool {
    *it == T::default()
}

/// A tool call of a cassette.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PlayedCall {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) name: String,
    /// An object, or the raw text that a model might have written.
    #[serde(default)]
    pub(super) arguments: Value,
}

/// What stands in the `beige` field of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineMark {
    pub(super) cassette: String,
    pub(super) line: u64,
}

impl From<PlayedStop> for StopReason {
    fn from(stop: PlayedStop) -> Self {
        match stop {
            PlayedStop::Stop => Self::Stop,
            PlayedStop::Length => Self::Length,
            PlayedStop::ToolUse => Self::ToolUse,
        }
    }
}

impl From<&StopReason> for PlayedStop {
    fn from(reason: &StopReason) -> Self {
        match reason {
            StopReason::Length => Self::Length,
            StopReason::ToolUse => Self::ToolUse,
            // How a call fails is an event of its own.
            StopReason::Stop | StopReason::Error | StopReason::Aborted | StopReason::Other(_) => {
                Self::Stop
            }
        }
    }
}

impl Question {
    /// What a conversation asks, as far as a line can match it.
    pub(super) fn of(messages: &[Message]) -> Self {
        let last_user = messages.iter().rev().find_map(|it| match it {
            Message::User(it) => Some(it.content.text()),
            _ => None,
        });
        let last_tool = match messages.last() {
            Some(Message::ToolResult(it)) => {
                Some(LastTool { name: it.tool_name.clone(), text: it.content.text() })
            }
            _ => None,
        };
        Self { last_user: last_user.unwrap_or_default(), last_tool, used: Vec::new() }
    }
}

impl Replay {
    pub(super) fn new(cassette: String) -> Self {
        Self { cassette }
    }

    fn used(&self, marks: &[Value]) -> Vec<u64> {
        let marks = marks.iter().filter_map(|it| LineMark::deserialize(it).ok());
        marks.filter(|it| it.cassette == self.cassette).map(|it| it.line).collect()
    }
}

impl Provider for Replay {
    fn encode(&self, request: &Request<'_>, _: &Origin<'_>) -> Result<Wire, Fault> {
        let used = self.used(request.marks);
        let question = Question { used, ..Question::of(request.messages) };
        let body = serde_json::to_vec(&question).map_err(|it| Fault::Ours(it.to_string()))?;
        Ok(Wire { body, ..Wire::default() })
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Events::default())
    }
}

/// Reads one event a line.
#[derive(Default)]
struct Events {
    rest: Vec<u8>,
    calls: u64,
}

impl Decoder for Events {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for piece in bytes.split_inclusive(|&it| it == b'\n') {
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.rest);
                deltas.push(self.read(&line)?);
            }
        }
        Ok(())
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let line = std::mem::take(&mut self.rest);
        if !line.is_empty() {
            deltas.push(self.read(&line)?);
        }
        Ok(())
    }
}

impl Events {
    fn read(&mut self, line: &[u8]) -> Result<Delta, Fault> {
        let event = serde_json::from_slice(line)
            .map_err(|it| Fault::Ours(format!("an event of the cassette does not read: {it}")))?;
        let event = match event {
            Played::Mark { line: LineMark { cassette, line } } => {
                let mark = serde_json::json!({ "cassette": cassette, "line": line });
                return Ok(Delta::Mark(mark));
            }
            Played::Event(event) => event,
        };
        Ok(match event {
            Event::Text(text) => Delta::Text(text),
            Event::Thinking(text) => Delta::Thinking(text),
            Event::Signature(opaque) => Delta::Signature(opaque),
            Event::Redacted(opaque) => Delta::Redacted(opaque),
            Event::ToolCall(call) => self.call(call),
            Event::Usage(usage) => Delta::Usage(usage),
            Event::Stop(reason) => Delta::Stop(reason.into()),
            Event::Error(text) => return Err(Fault::Unavailable(text)),
            Event::Refused(text) => return Err(Fault::Refused(text)),
            Event::TooLong(text) => return Err(Fault::TooLong(text)),
        })
    }

    fn call(&mut self, call: PlayedCall) -> Delta {
        let slot = self.calls;
        self.calls += 1;
        let arguments = match call.arguments {
            Value::String(raw) => raw,
            other => other.to_string(),
        };
        Delta::ToolCall(CallPiece { slot, id: call.id, name: Some(call.name), arguments })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{ModelFacts, ModelRef};

    fn question(messages: Value, marks: &[Value]) -> Option<Question> {
        let messages: Vec<Message> = serde_json::from_value(messages).ok()?;
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let facts = ModelFacts::default();
        let request = Request { marks, ..Request::new(&model, &facts, &messages) };
        let origin = Origin::new(&model, "");
        let wire = Replay::new("demo.jsonl".into()).encode(&request, &origin).ok()?;
        serde_json::from_slice(&wire.body).ok()
    }

    #[test]
    fn the_request_says_what_a_line_can_match() {
        let user = json!({"role": "user", "content": "hi"});
        let result = json!({"role": "toolResult", "toolName": "exec", "content": "out"});
        let marks = [
            json!({"cassette": "demo.jsonl", "line": 2}),
            json!({"cassette": "other.jsonl", "line": 3}),
            json!("of another kind"),
        ];
        let last_tool = Some(LastTool { name: "exec".into(), text: "out".into() });
        let want = Question { last_user: "hi".into(), last_tool, used: vec![2] };
        assert_eq!(question(json!([user, result]), &marks), Some(want));
        let want = Question { last_user: "hi".into(), last_tool: None, used: vec![] };
        assert_eq!(question(json!([result, user]), &[]), Some(want));
    }

    /// Feeds a stream cut into pieces of so many bytes.
    fn decode(stream: &str, size: usize) -> Result<Vec<Delta>, Fault> {
        let mut decoder = Replay::new(String::new()).decoder();
        let mut deltas = Vec::new();
        for piece in stream.as_bytes().chunks(size) {
            decoder.feed(piece, &mut deltas)?;
        }
        decoder.end(&mut deltas)?;
        Ok(deltas)
    }

    #[test]
    fn a_stream_reads_the_same_wherever_it_is_cut() {
        let stream = r#"{"text":"那é"}
{"toolCall":{"id":"1","name":"exec","arguments":{"a":1}}}
{"toolCall":{"name":"exec","arguments":"{\"a\""}}
{"toolCall":{"name":"exec"}}
{"stop":"toolUse"}"#;
        let call = |slot, id: Option<&str>, arguments: &str| {
            let (id, name) = (id.map(str::to_owned), Some("exec".to_owned()));
            Delta::ToolCall(CallPiece { slot, id, name, arguments: arguments.into() })
        };
        let want = vec![
            Delta::Text("那é".into()),
            call(0, Some("1"), "{\"a\":1}"),
            call(1, None, "{\"a\""),
            call(2, None, "null"),
            Delta::Stop(StopReason::ToolUse),
        ];
        for size in [1, 2, 3, 1000] {
            assert_eq!(decode(stream, size), Ok(want.clone()), "pieces of {size}");
        }
    }

    #[test]
    fn an_event_of_failure_fails_the_call() {
        let check = |event: &str, want: Fault| assert_eq!(decode(event, 100), Err(want), "{event}");
        check("{\"error\":\"overloaded\"}\n", Fault::Unavailable("overloaded".into()));
        check("{\"refused\":\"no such model\"}\n", Fault::Refused("no such model".into()));
        check("{\"tooLong\":\"9 tokens\"}", Fault::TooLong("9 tokens".into()));
    }

    #[test]
    fn withheld_thinking_is_played() {
        assert_eq!(decode("{\"redacted\":\"x\"}\n", 100), Ok(vec![Delta::Redacted("x".into())]));
    }
}
