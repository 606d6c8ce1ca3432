//! What a test model answers: a list of steps that are exact to the byte.
//! Builders for what models usually say stand on it; whatever else one can do
//! to a connection is a step too.

use serde_json::{Value, json};

use super::Gate;

/// One answer, to be played once.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) framing: Framing,
    pub(super) steps: Vec<Step>,
    /// Everything is written in pieces of so many bytes.
    pub(super) piece: usize,
    crlf: bool,
}

/// How the body of an answer is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// A chunk a step.
    Chunked,
    /// It ends with the connection.
    UntilClose,
    /// By its length: all bytes of the steps.
    Length,
    /// The steps are all that is written, head included.
    Raw,
}

/// A whole answer in no protocol's words.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) parts: Vec<Part>,
    pub(crate) stop: Stop,
    /// Tokens read and written.
    pub(crate) input: u64,
    pub(crate) output: u64,
}

/// A part of an answer, told in one piece.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Text(String),
    /// With its signature, where the protocol has one.
    Thinking(String, Option<String>),
    /// Id, tool, and the arguments as the model wrote them.
    Call(String, String, String),
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    End,
    Length,
    ToolUse,
}

impl Said {
    /// An answer of these parts that ends by itself.
    pub(crate) fn new(parts: impl IntoIterator<Item = Part>) -> Self {
        let parts: Vec<Part> = parts.into_iter().collect();
        let has_calls = parts.iter().any(|it| matches!(it, Part::Call(..)));
        let stop = if has_calls { Stop::ToolUse } else { Stop::End };
        Self { parts, stop, input: 7, output: 3 }
    }

    /// An answer of text.
    pub(crate) fn text(text: &str) -> Self {
        Self::new([Part::Text(text.to_owned())])
    }
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Written and flushed.
    Bytes(Vec<u8>),
    /// Waits until the test lets go, or the client is gone.
    Hold(Gate),
    /// The same bytes again and again, up to so many in all.
    Flood(Vec<u8>, usize),
    /// The connection ends with FIN.
    Cut,
    /// The connection ends with RST.
    Reset,
}

/// A whole answer of text, told in one piece.
pub(crate) fn says(text: &str) -> Answer {
    says_in(&[text])
}

/// A whole answer of text, told in these pieces.
pub(crate) fn says_in(pieces: &[&str]) -> Answer {
    let answer = pieces.iter().fold(Answer::stream(), |answer, it| answer.text(it));
    answer.finish("stop").usage(7, 3).done()
}

/// A whole answer of tool calls: id, tool, arguments.
pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> Answer {
    says_and_calls("", calls)
}

/// A whole answer of text and tool calls.
pub(crate) fn says_and_calls(text: &str, calls: &[(&str, &str, Value)]) -> Answer {
    let mut answer = Answer::stream();
    if !text.is_empty() {
        answer = answer.text(text);
    }
    for (slot, (id, tool, arguments)) in calls.iter().enumerate() {
        answer = answer.call(slot, id, tool, &arguments.to_string());
    }
    answer.finish("tool_calls").usage(7, 3).done()
}

/// A whole answer that calls `exec` with this command.
pub(crate) fn runs(id: &str, command: &str) -> Answer {
    calls(&[(id, "exec", json!({"command": command}))])
}

impl Answer {
    /// 200 and a stream of events that is still empty.
    pub(crate) fn stream() -> Self {
        let headers = vec![("Content-Type".to_owned(), "text/event-stream".to_owned())];
        Self { headers, framing: Framing::Chunked, ..Self::raw_bytes(b"").without_steps() }
    }

    /// A status with a body.
    pub(crate) fn status(status: u16, body: &str) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { status, headers, framing: Framing::Length, ..Self::raw_bytes(body.as_bytes()) }
    }

    /// A status with a provider's error object.
    pub(crate) fn error(status: u16, message: &str) -> Self {
        let error = json!({"message": message, "type": "some_error", "param": null, "code": null});
        Self::status(status, &json!({"error": error}).to_string())
    }

    /// Bytes in place of an answer.
    pub(crate) fn raw_bytes(bytes: &[u8]) -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            framing: Framing::Raw,
            steps: vec![Step::Bytes(bytes.to_vec())],
            piece: usize::MAX,
            crlf: false,
        }
    }

    /// Without anything that is written behind the head.
    pub(crate) fn without_steps(mut self) -> Self {
        self.steps.clear();
        self
    }

    /// A further header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Its body ends with the connection.
    pub(crate) fn until_close(mut self) -> Self {
        self.framing = Framing::UntilClose;
        self
    }

    /// Written in pieces of so many bytes, framing included.
    pub(crate) fn in_pieces(mut self, bytes: usize) -> Self {
        self.piece = bytes.max(1);
        self
    }

    /// Lines of events from here on end with CRLF.
    pub(crate) fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Its first steps, and nothing behind them.
    pub(crate) fn first_steps(mut self, count: usize) -> Self {
        self.steps.truncate(count);
        self
    }

    /// Without its last step: in most protocols the end mark.
    pub(crate) fn without_end(mut self) -> Self {
        self.steps.pop();
        self
    }

    /// Its length is told at first: that of all steps, also behind a cut.
    pub(crate) fn by_length(mut self) -> Self {
        self.framing = Framing::Length;
        self
    }

    /// The same with CRLF for every line end so far.
    pub(crate) fn with_crlf(mut self) -> Self {
        for step in &mut self.steps {
            if let Step::Bytes(bytes) = step {
                *bytes = String::from_utf8_lossy(bytes).replace('\n', "\r\n").into_bytes();
            }
        }
        self
    }

    /// The same with that before each step so far.
    pub(crate) fn with_comments(mut self, comment: &str) -> Self {
        let steps = std::mem::take(&mut self.steps);
        let comment = Step::Bytes(comment.as_bytes().to_vec());
        self.steps = steps.into_iter().flat_map(|it| [comment.clone(), it]).collect();
        self
    }

    /// Bytes, flushed on their own.
    pub(crate) fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.steps.push(Step::Bytes(bytes.as_ref().to_vec()));
        self
    }

    /// Waits until the test lets go.
    pub(crate) fn hold(mut self, gate: &Gate) -> Self {
        self.steps.push(Step::Hold(gate.clone()));
        self
    }

    /// The same bytes again and again, until the client goes or so many bytes
    /// are written.
    pub(crate) fn flood(mut self, bytes: &[u8], up_to: usize) -> Self {
        self.steps.push(Step::Flood(bytes.to_vec(), up_to));
        self
    }

    /// Ends the connection with FIN, here.
    pub(crate) fn cut(mut self) -> Self {
        self.steps.push(Step::Cut);
        self
    }

    /// Ends the connection with RST, here.
    pub(crate) fn reset(mut self) -> Self {
        self.steps.push(Step::Reset);
        self
    }

    /// A comment, as some send to keep a connection alive.
    pub(crate) fn comment(self, text: &str) -> Self {
        self.lines(&[&format!(": {text}"), ""])
    }

    /// An event with this data.
    pub(crate) fn data(self, data: &str) -> Self {
        self.lines(&[&format!("data: {data}"), ""])
    }

    /// An event of JSON that has a name.
    pub(crate) fn named(self, name: &str, event: &Value) -> Self {
        self.lines(&[&format!("event: {name}"), &format!("data: {event}"), ""])
    }

    /// An event of JSON.
    pub(crate) fn event(self, event: &Value) -> Self {
        self.data(&event.to_string())
    }

    /// A chunk with this one delta.
    pub(crate) fn delta(self, delta: &Value) -> Self {
        self.event(&chunk(
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]),
        ))
    }

    /// A piece of text.
    pub(crate) fn text(self, text: &str) -> Self {
        self.delta(&json!({"role": "assistant", "content": text}))
    }

    /// A tool call in one piece; `arguments` as the model wrote them.
    pub(crate) fn call(self, slot: usize, id: &str, tool: &str, arguments: &str) -> Self {
        let function = json!({"name": tool, "arguments": arguments});
        let call = json!({"index": slot, "id": id, "type": "function", "function": function});
        self.delta(&json!({"tool_calls": [call]}))
    }

    /// More of the arguments of the call in that slot.
    pub(crate) fn arguments(self, slot: usize, more: &str) -> Self {
        let call = json!({"index": slot, "function": {"arguments": more}});
        self.delta(&json!({"tool_calls": [call]}))
    }

    /// The chunk that says why it ends.
    pub(crate) fn finish(self, reason: &str) -> Self {
        self.event(&chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}])))
    }

    /// Tokens, in a chunk after the last with empty `choices`.
    pub(crate) fn usage(self, input: u64, output: u64) -> Self {
        let mut last = chunk(json!([]));
        last["usage"] = json!({
            "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        });
        self.event(&last)
    }

    /// The end mark.
    pub(crate) fn done(self) -> Self {
        self.data("[DONE]")
    }

    fn lines(self, lines: &[&str]) -> Self {
        let end = if self.crlf { "\r\n" } else { "\n" };
        let text: String = lines.iter().map(|it| format!("{it}{end}")).collect();
        self.bytes(text)
    }
}

/// A chunk of a stream with these choices.
pub(crate) fn chunk(choices: Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000,
        "model": "m", "system_fingerprint": "fp_1", "choices": choices,
    })
}
