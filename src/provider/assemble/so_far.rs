//! The message as far as it has come, in the JSON of pi's session files: what
//! its event protocol calls `partial`. It is written from the answer as it
//! stands, again with each piece of it: kept as JSON are arguments and blocks that
//! have not changed since, up to a bound.

use std::cell::RefCell;

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::{Assembly, Part};
use crate::message::{Block, StopReason, ToolCall, Usage};

/// Bytes of arguments that are shown in one line, of all calls together: they
/// are held twice, and those of a call are read anew as it grows.
const MOST_ARGUMENTS: usize = 256 * 1024;

/// Bytes of blocks that are kept as JSON. What is behind them is written anew for
/// each line.
const MOST_KEPT: usize = 1024 * 1024;

/// An answer on its way, as its JSON.
#[derive(Clone, Copy, Debug)]
pub struct SoFar<'a>(pub(super) &'a Assembly);

/// The fields of a message, in pi's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    role: &'static str,
    content: Parts<'a>,
    api: &'a str,
    provider: &'a str,
    model: &'a str,
    usage: &'a Usage,
    stop_reason: StopReason,
    timestamp: i64,
}

/// The blocks.
struct Parts<'a> {
    parts: &'a [Part],
    settled: &'a RefCell<Settled>,
}

/// Blocks of text and of thinking that grow no more, as JSON: the first of them,
/// in their order.
#[derive(Debug, Default)]
pub(super) struct Settled {
    blocks: Vec<Box<RawValue>>,
    bytes: usize,
}

/// A call with the arguments that can be seen so far.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    r#type: &'static str,
    id: &'a str,
    name: &'a str,
    arguments: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

impl Serialize for SoFar<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let message = &self.0.message;
        let fields = Fields {
            role: "assistant",
            content: Parts { parts: &self.0.parts, settled: &self.0.settled },
            api: &message.api,
            provider: &message.provider,
            model: &message.model,
            usage: &message.usage,
            // Until it is known, as pi has it.
            stop_reason: StopReason::Stop,
            timestamp: message.timestamp,
        };
        fields.serialize(to)
    }
}

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(Some(self.parts.len()))?;
        let (mut room, mut number, mut settled) = (MOST_ARGUMENTS, 0, self.settled.borrow_mut());
        for (place, part) in self.parts.iter().enumerate() {
            match part {
                // The last one may still grow.
                Part::Done(block) if place + 1 == self.parts.len() => {
                    list.serialize_element(block)?;
                }
                Part::Done(block) => {
                    match settled.json_of(number, block) {
                        Some(json) => list.serialize_element(json)?,
                        None => list.serialize_element(block)?,
                    }
                    number += 1;
                }
                Part::Call { call, arguments, shown } => {
                    let seen = &arguments[..arguments.floor_char_boundary(room)];
                    room -= seen.len();
                    list.serialize_element(&Call::of(call, shown.borrow_mut().of(seen)))?;
                }
            }
        }
        list.end()
    }
}

impl Settled {
    /// The JSON of the block of that number, if it is kept; the next one is from
    /// now on, as long as there is room.
    fn json_of(&mut self, number: usize, block: &Block) -> Option<&RawValue> {
        if number == self.blocks.len() && self.bytes < MOST_KEPT {
            let json = to_raw_value(block).ok()?;
            self.bytes = self.bytes.saturating_add(json.get().len());
            if self.bytes <= MOST_KEPT {
                self.blocks.push(json);
            }
        }
        self.blocks.get(number).map(|it| &**it)
    }
}

impl<'a> Call<'a> {
    fn of(call: &'a ToolCall, arguments: &'a RawValue) -> Self {
        Self {
            r#type: "toolCall",
            id: &call.id,
            name: &call.name,
            arguments,
            thought_signature: call.thought_signature.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Time;
    use crate::config::{ModelRef, Price};
    use crate::provider::{CallPiece, Delta};

    fn assembly(deltas: &[Delta]) -> Assembly {
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let price = Price { input: 1.0, output: 2.0, ..Price::default() };
        let mut assembly = Assembly::new("replay", &model, Time::from_unix_millis(7));
        assembly = assembly.at(Some(price));
        for delta in deltas {
            assembly.take(delta.clone());
        }
        assembly
    }

    fn call(arguments: &str) -> Delta {
        let (id, name) = (Some("c".to_owned()), Some("exec".to_owned()));
        Delta::ToolCall(CallPiece { slot: 0, id, name, arguments: arguments.into() })
    }

    #[test]
    fn of_arguments_without_end_the_beginning_is_shown() {
        let long = format!("{{\"a\": \"é{}", "x".repeat(2 * MOST_ARGUMENTS));
        let mut more = CallPiece { slot: 1, ..CallPiece::default() };
        more.arguments = "{\"a\": 1}".into();
        let assembly = assembly(&[call(&long), Delta::ToolCall(more)]);
        let message = serde_json::to_value(assembly.so_far()).unwrap_or_default();
        let shown = message["content"][0]["arguments"]["a"].as_str().unwrap_or_default();
        assert!(shown.starts_with("éx") && shown.len() < MOST_ARGUMENTS, "{}", shown.len());
        assert!(shown.len() > MOST_ARGUMENTS - 20, "{}", shown.len());
        assert_eq!(message["content"][1]["arguments"], json!({}), "there is no room for more");
    }

    /// What one is told that has followed the answer from its first delta on, and
    /// what one is told that comes now, is the same.
    #[test]
    fn a_line_says_the_same_whatever_was_kept_for_it() {
        let piece = |slot, arguments: &str| {
            Delta::ToolCall(CallPiece { slot, arguments: arguments.into(), ..CallPiece::default() })
        };
        let long = "x".repeat(MOST_KEPT * 2 / 3);
        let deltas = [
            Delta::Text("a".into()),
            Delta::Text("b".into()),
            Delta::Signature("s".into()),
            piece(0, "{\"a\": "),
            Delta::Thinking(long.clone()),
            Delta::Signature("t".into()),
            piece(1, "{\"b\": \""),
            piece(0, &"1".repeat(MOST_ARGUMENTS)),
            Delta::Text(long.clone()),
            Delta::Redacted("r".into()),
            piece(1, "c"),
            Delta::Text("d".into()),
            Delta::Thinking("e".into()),
        ];
        let followed = assembly(&[]);
        let last = deltas.iter().enumerate().fold(followed, |mut followed, (number, delta)| {
            followed.take(delta.clone());
            let text = |it: &Assembly| serde_json::to_string(&it.so_far()).unwrap_or_default();
            let told = text(&followed);
            assert!(told == text(&assembly(&deltas[..=number])), "after {delta:.40?}");
            followed
        });
        let settled = last.settled.borrow();
        let kept: usize = settled.blocks.iter().map(|it| it.get().len()).sum();
        assert_eq!(
            settled.blocks.len(),
            2,
            "the text that has no room is not kept, nor any behind"
        );
        assert!(kept <= MOST_KEPT, "{kept}");
    }

    #[test]
    fn nothing_yet_is_a_message_all_the_same() {
        let usage = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0,
            "totalTokens": 0, "cost": {"input": 0.0, "output": 0.0, "cacheRead": 0.0,
            "cacheWrite": 0.0, "total": 0.0}});
        let want = json!({"role": "assistant", "content": [], "api": "replay", "provider": "p",
            "model": "m", "usage": usage, "stopReason": "stop", "timestamp": 7});
        assert_eq!(serde_json::to_value(assembly(&[]).so_far()).ok(), Some(want));
    }

    #[test]
    fn blocks_stand_in_it_as_far_as_they_have_come() {
        let usage = Usage { input: 1_000_000, output: 500_000, ..Usage::default() };
        let deltas = [
            Delta::Thinking("hm".into()),
            Delta::Signature("s".into()),
            Delta::Text("I ".into()),
            Delta::Usage(usage),
            call("{\"command\": \"ec"),
        ];
        let message = serde_json::to_value(assembly(&deltas).so_far()).unwrap_or_default();
        let want = json!([{"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
            {"type": "text", "text": "I "},
            {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"command": "ec"}}]);
        assert_eq!(message["content"], want);
        let usage = &message["usage"];
        let counted = json!([usage["totalTokens"], usage["cost"]["total"]]);
        assert_eq!(counted, json!([1_500_000, 2.0]));
    }
}
