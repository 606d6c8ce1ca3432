//! What the pieces of an answer say. Every field is optional and may be null; a
//! piece that says nothing is passed over. The protocol has no end mark: an
//! answer is whole when it has said why it ends and its bytes have ended.

use serde_json::Value;

use super::usage::Counts;
use crate::provider::body::broken;
use crate::provider::ending::{Ending, Word, cut_call};
use crate::provider::events::{Dialect, MOST_BLOCKS, TooMany, has_error};
use crate::provider::field::{first_of, is_set, several, text, written};
use crate::provider::think::ThinkSplitter;
use crate::provider::{CallPiece, Delta, Fault, failure};

/// Reasons to stop by which the provider withholds an answer.
const WITHHELD: [&str; 7] =
    ["SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"];

/// Reasons to stop after a call that the provider itself could not read.
const UNREADABLE_CALL: [&str; 3] =
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"];

/// One answer on its way.
pub(super) struct Answer {
    provider: String,
    content: ThinkSplitter,
    counts: Counts,
    calls: u64,
    /// Whether text, thinking, a call or a signature has come.
    has_said: bool,
    /// What came last, as long as it has no signature.
    unsigned: Option<Kind>,
    ending: Ending,
}

/// What a signature can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

impl Answer {
    pub(super) fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            content: ThinkSplitter::default(),
            counts: Counts::default(),
            calls: 0,
            has_said: false,
            unsigned: None,
            ending: Ending::default(),
        }
    }
}

impl Dialect for Answer {
    const STREAMS_JSON: bool = true;

    fn take(&mut self, _: &str, response: &Value, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        if has_error(response) {
            return Err(failure::of_error(&self.provider, response));
        }
        // First, since what was withheld costs as well.
        if response.get("usageMetadata").is_some_and(|it| self.counts.take(it)) {
            deltas.push(Delta::Usage(self.counts.usage()));
        }
        self.look_for_block(response)?;
        for candidate in first_of(response, "candidates") {
            for part in several(candidate.pointer("/content/parts")) {
                self.take_part(part, deltas)?;
            }
            self.take_reason(candidate)?;
        }
        Ok(false)
    }

    fn may_end(&self) -> bool {
        self.ending.may_be_here()
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        self.flush(deltas);
        self.ending.tell(self.calls > 0, deltas)
    }

    /// What of the text could not be told yet comes before what follows.
    fn flush(&mut self, deltas: &mut Vec<Delta>) {
        let before = deltas.len();
        self.content.end(deltas);
        self.note_kind(&deltas[before..]);
    }
}

impl Answer {
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
        if self.calls == MOST_BLOCKS as u64 {
            return Err(broken(&self.provider, &TooMany("tool calls").to_string()));
        }
        self.flush(deltas);
        let word = |name| Some(text(call, name)).filter(|it| !it.is_empty()).map(str::to_owned);
        let piece = CallPiece {
            slot: self.calls,
            id: word("id"),
            name: word("name"),
            arguments: written(call.get("args")),
        };
        self.calls += 1;
        // More of it is to come, in a form that is never asked for.
        if ["willContinue", "will_continue"].iter().any(|it| is_set(call.get(it))) {
            self.ending.miss(cut_call(&self.provider, "`willContinue`"));
        }
        self.go_on();
        self.unsigned = Some(Kind::Call);
        deltas.push(Delta::ToolCall(piece));
        Ok(())
    }

    fn take_thought(&mut self, thought: &str, deltas: &mut Vec<Delta>) {
        if !thought.is_empty() {
            self.go_on();
            self.unsigned = Some(Kind::Thinking);
            deltas.push(Delta::Thinking(thought.to_owned()));
        }
    }

    fn take_text(&mut self, said: &str, deltas: &mut Vec<Delta>) {
        if !said.is_empty() {
            let before = deltas.len();
            self.go_on();
            self.content.feed(said, deltas);
            self.note_kind(&deltas[before..]);
        }
    }

    fn go_on(&mut self) {
        self.has_said = true;
        self.ending.go_on();
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
            self.flush(deltas);
        }
        if self.unsigned != Some(kind) {
            match kind {
                Kind::Text => deltas.push(Delta::Text(String::new())),
                Kind::Thinking => deltas.push(Delta::Thinking(String::new())),
                Kind::Call => (),
            }
        }
        self.has_said = true;
        self.unsigned = None;
        deltas.push(Delta::Signature(signature.to_owned()));
    }

    fn take_reason(&mut self, candidate: &Value) -> Result<(), Fault> {
        match text(candidate, "finishReason") {
            "" | "FINISH_REASON_UNSPECIFIED" => (),
            // Some say it in every piece.
            "STOP" => self.ending.hear(Word::Stop),
            "MAX_TOKENS" => self.ending.hear(Word::Length),
            reason => {
                let told = in_words(text(candidate, "finishMessage"));
                return Err(self.fault_of(&failure::one_line(reason), &told));
            }
        }
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
        if reason == "MISSING_THOUGHT_SIGNATURE" && !self.has_said {
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
}

/// What the provider says of a reason, to stand behind it.
fn in_words(message: &str) -> String {
    let line = failure::one_line(message);
    let line = line.trim_end_matches(['.', ':']);
    if line.is_empty() { String::new() } else { format!(", \"{line}\"") }
}
