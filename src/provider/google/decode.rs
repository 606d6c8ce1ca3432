//! Reads an answer: server-sent events, or JSON where a server does not
//! stream. Every field is optional and may be null; a piece that says nothing
//! is passed over, but one that does not read fails the call, since what it
//! said is lost. The protocol has no end mark: an answer is whole when it has
//! said why it ends and its bytes have ended. Where it goes on after that word,
//! it has to be said again.

use serde_json::Value;

use super::objects::ObjectReader;
use super::usage::Counts;
use crate::message::StopReason;
use crate::provider::field::{number, text};
use crate::provider::sse::{Event, EventReader};
use crate::provider::think::ThinkSplitter;
use crate::provider::{CallPiece, Decoder, Delta, Fault, failure, json};

/// Largest answer, in bytes of what the model said.
const LARGEST_ANSWER: usize = 32 * 1024 * 1024;

/// Most calls of one answer.
const MOST_CALLS: u64 = 1_024;

/// Reasons to stop by which the provider withholds an answer.
const WITHHELD: [&str; 7] =
    ["SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"];

/// Reasons to stop after a call that the provider itself could not read.
const UNREADABLE_CALL: [&str; 3] =
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"];

/// One answer on its way.
pub(super) struct Answer {
    provider: String,
    form: Form,
    content: ThinkSplitter,
    counts: Counts,
    calls: u64,
    /// Bytes of text, thinking, calls and signatures so far.
    said: usize,
    /// What came last, as long as it has no signature.
    unsigned: Option<Kind>,
    finish: Option<Finish>,
    /// Whether something was said after that word.
    goes_on: bool,
    is_done: bool,
}

/// How the answer is written.
enum Form {
    /// Nothing but white space yet.
    Unknown,
    Events(EventReader),
    Objects(ObjectReader),
}

/// What a signature can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

/// How the answer ends by its server's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    Stop,
    Length,
}

impl Answer {
    pub(super) fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            form: Form::Unknown,
            content: ThinkSplitter::default(),
            counts: Counts::default(),
            calls: 0,
            said: 0,
            unsigned: None,
            finish: None,
            goes_on: false,
            is_done: false,
        }
    }
}

impl Decoder for Answer {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let bytes = self.begin(bytes)?;
        match &mut self.form {
            Form::Unknown => Ok(()),
            Form::Events(reader) => {
                let mut events = Vec::new();
                let read = reader.feed(bytes, &mut events);
                self.take_events(events, deltas)?;
                read.map_err(|it| self.broken(&it.to_string()))
            }
            Form::Objects(reader) => {
                let mut objects = Vec::new();
                let read = reader.feed(bytes, &mut objects);
                objects.iter().try_for_each(|it| self.take_piece(it, deltas))?;
                read.map_err(|it| self.broken(&it.to_string()))
            }
        }
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Unknown => (),
            Form::Events(mut reader) => {
                let mut events = Vec::new();
                reader.end(&mut events);
                self.take_events(events, deltas)?;
            }
            Form::Objects(reader) => self.goes_on |= !reader.is_at_end(),
        }
        if self.goes_on {
            self.end_text(deltas);
            return Ok(());
        }
        self.finish(deltas);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}

impl Answer {
    /// Tells by the first byte how the answer is written; hands on the bytes
    /// from there on.
    fn begin<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Fault> {
        if !matches!(self.form, Form::Unknown) || self.is_done {
            return Ok(bytes);
        }
        let bytes = bytes.trim_ascii_start();
        self.form = match bytes.first() {
            None => Form::Unknown,
            Some(b'{' | b'[') => Form::Objects(ObjectReader::default()),
            Some(b'<') => {
                return Err(Fault::Refused(format!(
                    "the provider `{0}` answered with an HTML page instead of a stream of events. \
                     Check `llm.providers.{0}.baseUrl`.",
                    self.provider
                )));
            }
            Some(_) => Form::Events(EventReader::default()),
        };
        Ok(bytes)
    }

    fn take_events(&mut self, events: Vec<Event>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for event in events {
            if self.is_done {
                break;
            }
            let piece = event.data.trim_ascii();
            if event.name == "error" {
                return Err(self.failed(piece));
            }
            match piece {
                b"" => (),
                // Google has none, but some who speak its protocol do.
                b"[DONE]" => {
                    self.is_done = true;
                    self.finish(deltas);
                }
                piece => self.take_piece(piece, deltas)?,
            }
        }
        Ok(())
    }

    fn failed(&self, piece: &[u8]) -> Fault {
        let text = || Value::String(String::from_utf8_lossy(piece).into_owned());
        let error = json::read_event(piece).unwrap_or_else(|_| text());
        failure::of_error(&self.provider, &error)
    }

    fn take_piece(&mut self, piece: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let value = json::read_event(piece)
            .map_err(|it| self.broken(&format!("a piece is {it}: {}", beginning(piece))))?;
        match &value {
            Value::Array(items) => items.iter().try_for_each(|it| self.take_response(it, deltas)),
            Value::Object(_) => self.take_response(&value, deltas),
            _ => Err(self.broken(&format!("a piece is not an object: {}", beginning(piece)))),
        }
    }

    fn take_response(&mut self, response: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if has_error(response) {
            return Err(failure::of_error(&self.provider, response));
        }
        // First, since what was withheld costs as well.
        if response.get("usageMetadata").is_some_and(|it| self.counts.take(it)) {
            deltas.push(Delta::Usage(self.counts.usage()));
        }
        self.look_for_block(response)?;
        for candidate in first_candidates(response) {
            for part in parts_of(candidate) {
                self.take_part(part, deltas)?;
            }
            self.take_reason(candidate)?;
        }
        if self.said > LARGEST_ANSWER {
            return Err(self.broken(&format!("it is longer than {LARGEST_ANSWER} bytes")));
        }
        Ok(())
    }

    /// The provider may refuse the conversation itself.
    fn look_for_block(&self, response: &Value) -> Result<(), Fault> {
        let feedback = response.get("promptFeedback").unwrap_or(&Value::Null);
        match text(feedback, "blockReason") {
            "" | "BLOCK_REASON_UNSPECIFIED" | "BLOCKED_REASON_UNSPECIFIED" => Ok(()),
            reason => Err(Fault::Refused(format!(
                "the provider `{}` refused the conversation (`{}`){}: its filter objects to it. \
                 Put it differently, or use another model.",
                self.provider,
                failure::one_line(reason),
                in_words(text(feedback, "blockReasonMessage"))
            ))),
        }
    }

    fn take_part(&mut self, part: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let signature = text(part, "thoughtSignature");
        let said = text(part, "text");
        let mut kind = Kind::Text;
        if part.get("thought") == Some(&Value::Bool(true)) {
            self.take_thought(said, deltas);
            kind = Kind::Thinking;
        } else {
            self.take_text(said, deltas);
        }
        // One that is no object is a call all the same, of which the model hears.
        if let Some(call) = part.get("functionCall").filter(|it| !it.is_null()) {
            self.take_call(call, deltas)?;
            kind = Kind::Call;
        }
        if !signature.is_empty() {
            self.sign(kind, signature, deltas);
        }
        Ok(())
    }

    fn take_call(&mut self, call: &Value, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if self.calls == MOST_CALLS {
            return Err(self.broken(&format!("it has more than {MOST_CALLS} tool calls")));
        }
        self.end_text(deltas);
        let word = |name| Some(text(call, name)).filter(|it| !it.is_empty()).map(str::to_owned);
        let piece = CallPiece {
            slot: self.calls,
            id: word("id"),
            name: word("name"),
            arguments: arguments(call.get("args")),
        };
        self.calls += 1;
        self.goes_on = true;
        self.said += text(call, "id").len() + text(call, "name").len() + piece.arguments.len();
        self.unsigned = Some(Kind::Call);
        deltas.push(Delta::ToolCall(piece));
        Ok(())
    }

    fn take_thought(&mut self, thought: &str, deltas: &mut Vec<Delta>) {
        if !thought.is_empty() {
            self.goes_on = true;
            self.said += thought.len();
            self.unsigned = Some(Kind::Thinking);
            deltas.push(Delta::Thinking(thought.to_owned()));
        }
    }

    fn take_text(&mut self, said: &str, deltas: &mut Vec<Delta>) {
        if !said.is_empty() {
            let before = deltas.len();
            self.goes_on = true;
            self.said += said.len();
            self.content.feed(said, deltas);
            self.note_kind(&deltas[before..]);
        }
    }

    /// What of the text could not be told yet comes before what follows.
    fn end_text(&mut self, deltas: &mut Vec<Delta>) {
        let before = deltas.len();
        self.content.end(deltas);
        self.note_kind(&deltas[before..]);
    }

    fn note_kind(&mut self, deltas: &[Delta]) {
        match deltas.last() {
            Some(Delta::Text(_)) => self.unsigned = Some(Kind::Text),
            Some(Delta::Thinking(_)) => self.unsigned = Some(Kind::Thinking),
            _ => (),
        }
    }

    /// Signs what came last. A signature often comes by a part that has no
    /// text: it is of the text before it, or of an empty one where there is
    /// none.
    fn sign(&mut self, kind: Kind, signature: &str, deltas: &mut Vec<Delta>) {
        if kind == Kind::Text {
            self.end_text(deltas);
        }
        if self.unsigned != Some(kind) {
            match kind {
                Kind::Text => deltas.push(Delta::Text(String::new())),
                Kind::Thinking => deltas.push(Delta::Thinking(String::new())),
                Kind::Call => (),
            }
        }
        self.said += signature.len();
        self.unsigned = None;
        deltas.push(Delta::Signature(signature.to_owned()));
    }

    fn take_reason(&mut self, candidate: &Value) -> Result<(), Fault> {
        match text(candidate, "finishReason") {
            "" | "FINISH_REASON_UNSPECIFIED" => return Ok(()),
            // Some say it in every piece.
            "STOP" => self.finish = self.finish.or(Some(Finish::Stop)),
            "MAX_TOKENS" => self.finish = Some(Finish::Length),
            reason => {
                let told = in_words(text(candidate, "finishMessage"));
                return Err(self.fault_of(&failure::one_line(reason), &told));
            }
        }
        self.goes_on = false;
        Ok(())
    }

    /// The fault of an answer that ends by neither its end nor its length.
    fn fault_of(&self, reason: &str, told: &str) -> Fault {
        let provider = &self.provider;
        let is_withheld = WITHHELD.contains(&reason)
            || (reason.contains("IMAGE") && !reason.ends_with("OTHER") && reason != "NO_IMAGE");
        if is_withheld {
            return Fault::Refused(format!(
                "the provider `{provider}` withheld the answer or the rest of it (`{reason}`)\
                 {told}: its filter objects to it. Put the question differently, or use another \
                 model."
            ));
        }
        // Nothing has come yet that asking once more could double.
        if reason == "MISSING_THOUGHT_SIGNATURE" && self.said == 0 {
            return Fault::Stale(format!(
                "the provider `{provider}` misses a signature of its own (`{reason}`){told}"
            ));
        }
        if UNREADABLE_CALL.contains(&reason) {
            return Fault::Unavailable(format!(
                "the model of the provider `{provider}` wrote a tool call that cannot be read \
                 (`{reason}`){told}. Nothing of the answer was run."
            ));
        }
        Fault::Unavailable(format!(
            "the provider `{provider}` broke its answer off (`{reason}`){told}. Try again later."
        ))
    }

    /// The answer is whole, if it has said why it ends. Whether it waits for
    /// results hangs on its calls: the protocol has no word for it.
    fn finish(&mut self, deltas: &mut Vec<Delta>) {
        self.end_text(deltas);
        let stop = match self.finish.take() {
            None => return,
            Some(Finish::Length) => StopReason::Length,
            Some(Finish::Stop) if self.calls > 0 => StopReason::ToolUse,
            Some(Finish::Stop) => StopReason::Stop,
        };
        deltas.push(Delta::Stop(stop));
    }

    /// The fault of an answer that cannot be read on.
    fn broken(&self, what: &str) -> Fault {
        let what = failure::one_line(what);
        Fault::Unavailable(format!("the answer of the provider `{}` broke: {what}", self.provider))
    }
}

/// The arguments of a call as JSON text; none where they are missing.
fn arguments(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(it)) => it.clone(),
        Some(it) => it.to_string(),
    }
}

fn has_error(response: &Value) -> bool {
    match response.get("error") {
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        _ => false,
    }
}

/// What a response has of the candidate that counts: we ask for one. Where none
/// has an index it is the first.
fn first_candidates(response: &Value) -> impl Iterator<Item = &Value> {
    let candidates = response.get("candidates").and_then(Value::as_array).into_iter().flatten();
    let index = |it: &Value| it.get("index").and_then(number);
    let counted = candidates.enumerate().filter(move |(place, it)| match index(it) {
        Some(index) => index == 0,
        None => *place == 0,
    });
    counted.map(|it| it.1)
}

/// The parts of a candidate: a list of them, or one by itself.
fn parts_of(candidate: &Value) -> &[Value] {
    match candidate.pointer("/content/parts") {
        Some(Value::Array(it)) => it,
        Some(it @ Value::Object(_)) => std::slice::from_ref(it),
        _ => &[],
    }
}

/// What the provider says of a reason, to stand behind it.
fn in_words(message: &str) -> String {
    let line = failure::one_line(message);
    let line = line.trim_end_matches(['.', ':']);
    if line.is_empty() { String::new() } else { format!(", \"{line}\"") }
}

/// What a person sees of a piece; `…` says that it was cut, perhaps in the
/// middle of a secret.
fn beginning(piece: &[u8]) -> String {
    let (shown, rest) = piece.split_at(piece.len().min(100));
    let mark = if rest.is_empty() { "" } else { "…" };
    format!("{}{mark}", String::from_utf8_lossy(shown))
}
