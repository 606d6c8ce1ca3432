//! Puts the deltas of one answer together. Pure. Arguments of tool calls are
//! judged here, once for all dialects: what is no JSON object is stored as
//! `{}` and named as broken, so that the model can be told.

mod so_far;
mod unfinished;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::origin::WITHOUT_OPAQUE;
use super::replay::{Event, PlayedCall, PlayedStop};
use super::{CallPiece, Delta, Failure, Fault, LargePlace, json};
use crate::clock::Time;
use crate::config::{ModelRef, Price};
use crate::message::{Assistant, Block, Cost, StopReason, Text, Thinking, ToolCall, Usage};
use so_far::Settled;
pub use so_far::SoFar;
use unfinished::Shown;

/// Most values in the arguments of all calls of one answer: each takes up to
/// hundreds of bytes, as long as its turn runs.
pub(super) const MOST_VALUES: usize = 4 * 1024;

/// Most levels of the arguments of a call, the object itself counted: what a
/// session's file can hold, with room to spare, in whichever protocol they came.
const DEEPEST: usize = 64;

/// Longest id and name of a call, in bytes: the turn tells them again and again.
const LONGEST_WORD: usize = 1_024;

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// As it is stored.
    pub message: Assistant,
    /// Its calls whose arguments did not read.
    pub broken: Vec<BrokenCall>,
    /// What it has if it is large; kept until it is stored and told, and no longer.
    pub large: Option<LargePlace>,
}

/// A tool call whose arguments did not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenCall {
    /// The call's id.
    pub id: String,
    /// What is wrong, for the model.
    pub why: String,
}

impl Answer {
    /// The same, which says that it was given without the opaque data before it:
    /// the conversation then knows that this is stale.
    pub(super) fn without_opaque(mut self) -> Self {
        let mark = self.message.beige.get_or_insert_with(|| Value::Object(Map::new()));
        mark[WITHOUT_OPAQUE] = true.into();
        self
    }
}

/// An answer on its way: every delta finds its place in it.
#[derive(Debug)]
pub struct Assembly {
    message: Assistant,
    price: Option<Price>,
    /// Where it comes from; goes with what is opaque in it.
    endpoint: String,
    parts: Vec<Part>,
    /// The part of each call, by its slot.
    calls: HashMap<u64, usize>,
    /// The part that the last delta was of: not always the last part, since
    /// pieces of several calls may come mixed.
    touched: usize,
    stop: Option<StopReason>,
    /// Whether tokens were told that cannot be.
    is_misled: bool,
    /// What who follows it is told again and again.
    settled: RefCell<Settled>,
}

/// Where in an answer a delta went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The block's number, from 0.
    pub index: usize,
    /// Whether the block begins with it.
    pub is_new: bool,
}

#[derive(Debug)]
enum Part {
    Done(Block),
    Call {
        call: ToolCall,
        arguments: String,
        /// What who follows the answer sees of them.
        shown: RefCell<Shown>,
    },
}

impl Assembly {
    /// The beginning of an answer of that model.
    pub fn new(api: &str, model: &ModelRef, now: Time) -> Self {
        let message = Assistant {
            api: api.to_owned(),
            provider: model.provider.clone(),
            model: model.model.clone(),
            timestamp: now.unix_millis(),
            ..Assistant::default()
        };
        let (parts, calls, endpoint) = (Vec::new(), HashMap::new(), String::new());
        let (price, stop, is_misled, settled) = (None, None, false, RefCell::default());
        Self { message, price, endpoint, parts, calls, touched: 0, stop, is_misled, settled }
    }

    /// The same, with where it comes from.
    pub(super) fn from(self, endpoint: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), ..self }
    }

    /// The same, with what its tokens cost, if that is known.
    #[must_use]
    pub fn at(self, price: Option<Price>) -> Self {
        Self { price, ..self }
    }

    pub(super) fn take(&mut self, delta: Delta) {
        self.put(delta);
    }

    /// Adds a delta; where it went, if it is one of content.
    pub fn put(&mut self, delta: Delta) -> Option<Place> {
        let before = self.parts.len();
        match delta {
            Delta::Text(more) => self.take_text(more),
            Delta::Thinking(more) => self.take_thinking(more),
            Delta::Redacted(opaque) => self.add(Part::Done(Block::Thinking(Thinking {
                thinking_signature: Some(opaque),
                redacted: Some(true),
                ..Thinking::default()
            }))),
            Delta::ToolCall(piece) => self.take_call(piece),
            other => {
                self.note(other);
                return None;
            }
        }
        Some(Place { index: self.touched, is_new: self.parts.len() > before })
    }

    /// Whether a block would begin with that delta, so that the one before is
    /// whole.
    pub fn begins_block(&self, delta: &Delta) -> bool {
        match delta {
            Delta::Text(_) => !self.goes_on_as_text(),
            Delta::Thinking(_) => !self.goes_on_as_thinking(),
            Delta::Redacted(_) => true,
            Delta::ToolCall(piece) => !self.calls.contains_key(&piece.slot),
            Delta::Anew(_)
            | Delta::Signature(_)
            | Delta::Usage(_)
            | Delta::Stop(_)
            | Delta::Mark(_) => false,
        }
    }

    /// The message as far as it has come, for who follows it.
    pub fn so_far(&self) -> SoFar<'_> {
        SoFar(self)
    }

    /// The text or the thinking of a block so far; of other blocks nothing.
    pub fn text_of(&self, index: usize) -> Option<&str> {
        match self.parts.get(index)? {
            Part::Done(Block::Text(it)) => Some(&it.text),
            Part::Done(Block::Thinking(it)) => Some(&it.thinking),
            Part::Done(_) | Part::Call { .. } => None,
        }
    }

    /// What is of no block, or of one that is there and adds nothing to be seen.
    fn note(&mut self, delta: Delta) {
        match delta {
            Delta::Signature(signature) => self.take_signature(&signature),
            Delta::Anew(slot) => self.forget_arguments(slot),
            Delta::Usage(usage) if usage.can_be() => {
                self.message.usage = priced(with_total(usage), self.price);
            }
            // Nor is anything else believed that was told of this answer.
            Delta::Usage(_) => {
                self.message.usage = Usage::default();
                self.is_misled = true;
            }
            Delta::Stop(reason) => self.stop = Some(reason),
            Delta::Mark(beige) => self.message.beige = Some(beige),
            _ => (),
        }
    }

    /// Whether the provider told tokens that cannot be; the message then tells of
    /// none, unless others followed.
    pub(super) fn is_misled(&self) -> bool {
        self.is_misled
    }

    /// What has come, in the words of a cassette. Arguments that do not read are
    /// in it as the model wrote them.
    pub(super) fn played(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self.parts.iter().flat_map(Part::played).collect();
        if self.message.usage != Usage::default() {
            events.push(Event::Usage(self.message.usage.clone()));
        }
        events.extend(self.stop.as_ref().map(|it| Event::Stop(PlayedStop::from(it))));
        events
    }

    fn goes_on_as_text(&self) -> bool {
        let last = self.parts.last();
        matches!(last, Some(Part::Done(Block::Text(it))) if it.text_signature.is_none())
    }

    fn goes_on_as_thinking(&self) -> bool {
        let last = self.parts.last();
        matches!(last, Some(Part::Done(Block::Thinking(it))) if it.thinking_signature.is_none())
    }

    /// The answer, if it came to its end.
    pub(super) fn finish(mut self) -> Result<Answer, Box<Failure>> {
        let Some(stop) = self.stop.take() else {
            let text = format!(
                "the answer of the provider `{}` was cut off before its end; nothing of it was run",
                self.message.provider
            );
            return Err(self.fail(Fault::Cut(text)));
        };
        let (mut broken, mut values_left) = (Vec::new(), MOST_VALUES);
        let mut message = self.message;
        tell_apart(&mut self.parts, message.timestamp);
        message.content.extend(self.parts.into_iter().map(|it| match it {
            Part::Done(block) => block,
            Part::Call { call, arguments, .. } => {
                settle(call, &arguments, &mut values_left, &mut broken)
            }
        }));
        message.stop_reason = stop;
        note_endpoint(&mut message, &self.endpoint);
        Ok(Answer { message, broken, large: None })
    }

    /// What had come when it failed. Its tool calls are left out: none of them
    /// is run, and a call that is stored must have a result.
    pub(super) fn fail(self, fault: Fault) -> Box<Failure> {
        let mut partial = self.message;
        partial.content.extend(self.parts.into_iter().filter_map(|it| match it {
            Part::Done(block) => Some(block),
            Part::Call { .. } => None,
        }));
        partial.stop_reason = match fault {
            Fault::Cancelled => StopReason::Aborted,
            _ => StopReason::Error,
        };
        partial.error_message = Some(fault.to_string());
        note_endpoint(&mut partial, &self.endpoint);
        Box::new(Failure { fault, partial, large: None })
    }

    fn add(&mut self, part: Part) {
        self.touched = self.parts.len();
        self.parts.push(part);
    }

    fn take_text(&mut self, more: String) {
        if !self.goes_on_as_text() {
            return self.add(Part::Done(Block::text(more)));
        }
        self.touched = self.parts.len().saturating_sub(1);
        if let Some(Part::Done(Block::Text(it))) = self.parts.last_mut() {
            it.text.push_str(&more);
        }
    }

    fn take_thinking(&mut self, more: String) {
        if !self.goes_on_as_thinking() {
            let block = Thinking { thinking: more, ..Thinking::default() };
            return self.add(Part::Done(Block::Thinking(block)));
        }
        self.touched = self.parts.len().saturating_sub(1);
        if let Some(Part::Done(Block::Thinking(it))) = self.parts.last_mut() {
            it.thinking.push_str(&more);
        }
    }

    fn take_signature(&mut self, more: &str) {
        if let Some(
            Part::Done(Block::Text(Text { text_signature: place, .. }))
            | Part::Done(Block::Thinking(Thinking { thinking_signature: place, .. }))
            | Part::Call { call: ToolCall { thought_signature: place, .. }, .. },
        ) = self.parts.get_mut(self.touched)
        {
            place.get_or_insert_default().push_str(more);
        }
    }

    fn forget_arguments(&mut self, slot: u64) {
        let place = self.calls.get(&slot).copied().unwrap_or(self.parts.len());
        if let Some(Part::Call { arguments, shown, .. }) = self.parts.get_mut(place) {
            arguments.clear();
            *shown = RefCell::default();
        }
    }

    fn take_call(&mut self, piece: CallPiece) {
        let place = *self.calls.entry(piece.slot).or_insert(self.parts.len());
        if place == self.parts.len() {
            let (call, arguments, shown) = Default::default();
            self.parts.push(Part::Call { call, arguments, shown });
        }
        self.touched = place;
        if let Part::Call { call, arguments, .. } = &mut self.parts[place] {
            if let Some(id) = piece.id {
                call.id = id;
            }
            if let Some(name) = piece.name {
                call.name = name;
            }
            match arguments.is_empty() {
                true => *arguments = piece.arguments,
                false => arguments.push_str(&piece.arguments),
            }
        }
    }
}

impl Part {
    fn played(&self) -> Vec<Event> {
        let (event, signature) = match self {
            Self::Done(Block::Text(it)) => (Event::Text(it.text.clone()), &it.text_signature),
            Self::Done(Block::Thinking(it)) if it.redacted == Some(true) => {
                (Event::Redacted(it.thinking_signature.clone().unwrap_or_default()), &None)
            }
            Self::Done(Block::Thinking(it)) => {
                (Event::Thinking(it.thinking.clone()), &it.thinking_signature)
            }
            Self::Call { call, arguments, .. } => {
                (Event::ToolCall(played_call(call, arguments)), &call.thought_signature)
            }
            Self::Done(Block::ToolCall(_) | Block::Image(_) | Block::Unknown(_)) => {
                return Vec::new();
            }
        };
        let signature = signature.clone().map(Event::Signature);
        std::iter::once(event).chain(signature).collect()
    }
}

fn played_call(call: &ToolCall, text: &str) -> PlayedCall {
    let arguments = match json::read(text.as_bytes(), MOST_VALUES) {
        Ok(it @ Value::Object(_)) => it,
        _ => Value::String(text.to_owned()),
    };
    let id = Some(call.id.clone()).filter(|it| !it.is_empty());
    PlayedCall { id, name: call.name.clone(), arguments }
}

/// Notes where an answer comes from that holds opaque data.
fn note_endpoint(message: &mut Assistant, endpoint: &str) {
    let is_opaque = message.content.iter().any(|it| match it {
        Block::Text(it) => it.text_signature.is_some(),
        Block::Thinking(it) => it.thinking_signature.is_some(),
        Block::ToolCall(it) => it.thought_signature.is_some(),
        Block::Image(_) | Block::Unknown(_) => false,
    });
    if is_opaque && !endpoint.is_empty() {
        let mark = message.beige.get_or_insert_with(|| Value::Object(Map::new()));
        mark["endpoint"] = endpoint.into();
    }
}

/// Gives every call an id of its own: some models give none, the same to two
/// calls, or one without end, and a result is paired with its call by nothing
/// else.
fn tell_apart(parts: &mut [Part], timestamp: i64) {
    let mut taken = HashSet::new();
    let calls = parts.iter_mut().filter_map(|it| match it {
        Part::Call { call, .. } => Some(call),
        Part::Done(_) => None,
    });
    for call in calls {
        let is_fit = (1..=LONGEST_WORD).contains(&call.id.len());
        if !is_fit || taken.contains(&call.id) {
            let mut minted = (0..).map(|number| minted_id(timestamp, number));
            call.id = minted.find(|it| !taken.contains(it)).unwrap_or_default();
        }
        taken.insert(call.id.clone());
    }
}

/// An id that no other answer of the session has, since it tells the answer's
/// millisecond. Nine letters and digits are what every provider takes.
fn minted_id(timestamp: i64, number: u64) -> String {
    let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let base = digits.len() as u64;
    let places = base * base;
    let mut rest = timestamp.unsigned_abs().wrapping_mul(places).wrapping_add(number % places);
    let mut id = [b'0'; 9];
    for place in id.iter_mut().rev() {
        *place = digits[(rest % base) as usize];
        rest /= base;
    }
    id.map(char::from).iter().collect()
}

fn settle(
    mut call: ToolCall,
    text: &str,
    values_left: &mut usize,
    broken: &mut Vec<BrokenCall>,
) -> Block {
    if call.name.len() > LONGEST_WORD {
        call.name.truncate(call.name.floor_char_boundary(LONGEST_WORD));
        call.name.push('…');
    }
    let read = arguments(text, *values_left);
    *values_left = values_left.saturating_sub(json::values(text.as_bytes()));
    call.arguments = Value::Object(read.unwrap_or_else(|why| {
        broken.push(BrokenCall { id: call.id.clone(), why });
        Map::new()
    }));
    Block::ToolCall(call)
}

/// Arguments as an object. Nothing at all, and `null`, mean no arguments.
pub(super) fn arguments(text: &str, most: usize) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    if json::depth(text.as_bytes()) > DEEPEST {
        return Err(format!("the arguments are nested more than {DEEPEST} levels deep"));
    }
    match json::read(text.as_bytes(), most) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("the arguments must be a JSON object".into()),
        Err(error) => Err(format!("the arguments are {error}")),
    }
}

fn with_total(mut usage: Usage) -> Usage {
    if usage.total_tokens == 0 {
        let parts = [usage.input, usage.output, usage.cache_read, usage.cache_write];
        usage.total_tokens = parts.into_iter().fold(0, u64::saturating_add);
    }
    usage
}

/// What the tokens cost at a price that is known; else what the provider says
/// of it stays.
fn priced(mut usage: Usage, price: Option<Price>) -> Usage {
    let Some(price) = price else { return usage };
    let read = [usage.input, usage.cache_read, usage.cache_write];
    let price = price.for_prompt(read.into_iter().fold(0, u64::saturating_add));
    let cost = |tokens: u64, price: f64| rounded(tokens as f64 * price / 1e6);
    let mut parts = Cost {
        input: cost(usage.input, price.input),
        output: cost(usage.output, price.output),
        cache_read: cost(usage.cache_read, price.cache_read),
        cache_write: cost(usage.cache_write, price.cache_write),
        total: 0.0,
    };
    parts.total = rounded(parts.input + parts.output + parts.cache_read + parts.cache_write);
    usage.cost = parts;
    usage
}

/// To a ten-billionth: what binary fractions add behind that is no price.
fn rounded(dollars: f64) -> f64 {
    let parts = (dollars * 1e10).round();
    if parts.is_finite() { parts / 1e10 } else { dollars }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::LongPrompt;

    fn assembly(deltas: &[Delta]) -> Assembly {
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let mut assembly = Assembly::new("replay", &model, Time::from_unix_millis(7));
        deltas.iter().cloned().for_each(|it| assembly.take(it));
        assembly
    }

    fn piece(slot: u64, id: &str, arguments: &str) -> Delta {
        let id = (!id.is_empty()).then(|| id.to_owned());
        let name = id.as_ref().map(|_| "exec".to_owned());
        Delta::ToolCall(CallPiece { slot, id, name, arguments: arguments.into() })
    }

    #[track_caller]
    fn check_blocks(deltas: &[Delta], want: Value) {
        let mut deltas = deltas.to_vec();
        deltas.push(Delta::Stop(StopReason::Stop));
        let got =
            assembly(&deltas).finish().map(|it| serde_json::to_value(it.message.content).ok());
        assert_eq!(got, Ok(Some(want)));
    }

    #[test]
    fn pieces_of_one_kind_make_one_block() {
        check_blocks(
            &[
                Delta::Thinking("h".into()),
                Delta::Thinking("m".into()),
                Delta::Signature("s".into()),
                Delta::Text("a".into()),
                Delta::Text("b".into()),
            ],
            json!([{"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
                {"type": "text", "text": "ab"}]),
        );
    }

    #[test]
    fn withheld_thinking_is_a_block_of_its_own() {
        check_blocks(
            &[Delta::Redacted("x".into()), Delta::Thinking("h".into())],
            json!([{"type": "thinking", "thinking": "", "thinkingSignature": "x", "redacted": true},
                {"type": "thinking", "thinking": "h"}]),
        );
    }

    #[test]
    fn pieces_of_calls_find_their_call() {
        check_blocks(
            &[piece(0, "a", "{\"x\""), piece(1, "b", ""), piece(0, "", ":1}"), piece(1, "", "{}")],
            json!([{"type": "toolCall", "id": "a", "name": "exec", "arguments": {"x": 1}},
                {"type": "toolCall", "id": "b", "name": "exec", "arguments": {}}]),
        );
    }

    #[test]
    fn each_delta_of_content_is_told_its_place() {
        let mut assembly = assembly(&[]);
        let signature = || Delta::Signature("s".into());
        let deltas = [
            (Delta::Thinking("h".into()), Some((0, true))),
            (Delta::Thinking("m".into()), Some((0, false))),
            (signature(), None),
            (Delta::Thinking("x".into()), Some((1, true))),
            (Delta::Redacted("y".into()), Some((2, true))),
            (Delta::Text("a".into()), Some((3, true))),
            (piece(0, "a", ""), Some((4, true))),
            (piece(7, "b", ""), Some((5, true))),
            (piece(0, "", "{"), Some((4, false))),
            (Delta::Usage(Usage::default()), None),
            (Delta::Text("b".into()), Some((6, true))),
            (piece(7, "", "{"), Some((5, false))),
            (Delta::Text("c".into()), Some((6, false))),
            (Delta::Stop(StopReason::Stop), None),
        ];
        for (delta, want) in deltas {
            let what = format!("{delta:?}");
            let begins = assembly.begins_block(&delta);
            let place = assembly.put(delta).map(|it| (it.index, it.is_new));
            assert_eq!((place, begins), (want, want.is_some_and(|it| it.1)), "{what}");
        }
        assert_eq!(assembly.text_of(6), Some("bc"));
        assert_eq!((assembly.text_of(4), assembly.text_of(9)), (None, None));
    }

    /// Ids of an answer of that moment whose calls came with these.
    fn ids(moment: i64, given: &[&str]) -> Vec<String> {
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let mut assembly = Assembly::new("replay", &model, Time::from_unix_millis(moment));
        for (slot, id) in given.iter().enumerate() {
            assembly.take(piece(slot as u64, id, "{}"));
        }
        assembly.take(Delta::Stop(StopReason::ToolUse));
        let answer = assembly.finish();
        answer.iter().flat_map(|it| it.message.tool_calls()).map(|it| it.id.clone()).collect()
    }

    #[test]
    fn calls_without_an_id_of_their_own_get_one() {
        let now = 1_796_013_286_927;
        let got = ids(now, &["x", "x", "", ""]);
        assert_eq!(got, ["x", "VcQaiel00", "VcQaiel01", "VcQaiel02"]);
        assert_eq!(ids(now + 1, &[""]), ["VcQaiem00"]);
        assert_eq!(ids(now, &["VcQaiel00", ""]), ["VcQaiel00", "VcQaiel01"]);
    }

    #[test]
    fn tokens_that_cannot_be_are_as_good_as_none() {
        let usage = |input| Usage { input, output: 1, ..Usage::default() };
        let most = Usage::MOST_TOKENS;
        for (told, want) in [(most, most), (most + 1, 0), (u64::MAX, 0)] {
            let sound = Delta::Usage(usage(7));
            let assembly = assembly(&[sound, Delta::Usage(usage(told))]);
            let got = (assembly.message.usage.input, assembly.is_misled());
            assert_eq!(got, (want, want == 0), "{told}");
        }
    }

    #[test]
    fn opaque_data_is_of_the_call_that_came_last() {
        check_blocks(
            &[
                piece(0, "a", ""),
                piece(1, "b", ""),
                piece(0, "", "{}"),
                Delta::Signature("s".into()),
            ],
            json!([{"type": "toolCall", "id": "a", "name": "exec", "arguments": {},
                    "thoughtSignature": "s"},
                {"type": "toolCall", "id": "b", "name": "exec", "arguments": {}}]),
        );
    }

    #[track_caller]
    fn check_arguments(text: &str, want: Result<Value, &str>) {
        let got = arguments(text, MOST_VALUES).map(Value::Object);
        match want {
            Ok(want) => assert_eq!(got, Ok(want)),
            Err(part) => assert!(got.as_ref().is_err_and(|it| it.contains(part)), "{got:?}"),
        }
    }

    #[test]
    fn nothing_and_null_are_no_arguments() {
        check_arguments("", Ok(json!({})));
        check_arguments(" \n", Ok(json!({})));
        check_arguments("null", Ok(json!({})));
        check_arguments("{\"a\":[1]}", Ok(json!({"a": [1]})));
    }

    #[test]
    fn what_is_no_object_is_broken() {
        check_arguments("{\"command\": \"ls\"", Err("not valid JSON"));
        check_arguments("[1]", Err("must be a JSON object"));
        check_arguments("\"ls\"", Err("must be a JSON object"));
        let nested = |levels: usize| "{\"a\":".repeat(levels - 1) + "{}" + &"}".repeat(levels - 1);
        assert!(arguments(&nested(DEEPEST), MOST_VALUES).is_ok());
        check_arguments(&nested(DEEPEST + 1), Err("more than 64 levels"));
        check_arguments(&nested(100_000), Err("more than 64 levels"));
        check_arguments(&"[".repeat(1_000), Err("more than 64 levels"));
    }

    #[test]
    fn broken_arguments_are_stored_as_an_empty_object_and_named() {
        let deltas = [piece(0, "a", "{"), Delta::Stop(StopReason::ToolUse)];
        let got = assembly(&deltas).finish().map(|it| {
            let stored: Vec<Value> =
                it.message.tool_calls().map(|it| it.arguments.clone()).collect();
            (stored, it.broken.len())
        });
        assert_eq!(got, Ok((vec![json!({})], 1)));
    }

    #[track_caller]
    fn check_cost(price: Option<Price>, want: [f64; 5]) {
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let mut assembly = Assembly::new("replay", &model, Time::from_unix_millis(7)).at(price);
        let cost = Cost { total: 9.0, ..Cost::default() };
        let (input, output, cache_read, cache_write) = (1_000_000, 500_000, 2_000_000, 0);
        let total_tokens = 0;
        assembly.take(Delta::Usage(Usage {
            input,
            output,
            cache_read,
            cache_write,
            total_tokens,
            cost,
        }));
        let got = assembly.message.usage.cost;
        assert_eq!([got.input, got.output, got.cache_read, got.cache_write, got.total], want);
    }

    #[test]
    fn a_known_price_is_counted_and_an_unknown_one_left_as_it_is() {
        let price =
            Price { input: 3.0, output: 8.0, cache_read: 0.5, cache_write: 7.0, long: None };
        check_cost(Some(price), [3.0, 4.0, 1.0, 0.0, 8.0]);
        check_cost(None, [0.0, 0.0, 0.0, 0.0, 9.0]);
        // Three million are read, whether or not they were in the cache.
        let long = |above| Some(LongPrompt { above, input: 2.0, output: 1.5 });
        let dear = Price { long: long(2_999_999), ..price };
        check_cost(Some(dear), [6.0, 6.0, 2.0, 0.0, 14.0]);
        let cheap = Price { long: long(3_000_000), ..price };
        check_cost(Some(cheap), [3.0, 4.0, 1.0, 0.0, 8.0]);
        // Binary fractions make 0.30000000000000004 of the sum.
        let odd = Price { input: 0.1, output: 0.4, cache_read: 0.0, cache_write: 0.0, long: None };
        check_cost(Some(odd), [0.1, 0.2, 0.0, 0.0, 0.3]);
    }

    #[test]
    fn an_answer_without_its_end_is_cut_and_keeps_no_calls() {
        let deltas = [Delta::Text("half".into()), piece(0, "a", "{}")];
        let failure = assembly(&deltas).finish().err();
        let got =
            failure.map(|it| (it.fault.category(), it.partial.text(), it.partial.content.len()));
        assert_eq!(got, Some(("cut", "half".into(), 1)));
    }

    #[test]
    fn arguments_of_too_many_parts_are_not_read() {
        let many = format!("{{\"a\":[{}0]}}", "{},".repeat(MOST_VALUES / 3));
        let mut assembly = assembly(&[]);
        for slot in 0..3 {
            assembly.take(piece(slot, "", &many));
        }
        assembly.take(Delta::Stop(StopReason::ToolUse));
        let Ok(answer) = assembly.finish() else { panic!("it is whole") };
        let held = answer.message.tool_calls().map(|it| it.arguments.to_string().len());
        assert_eq!(held.collect::<Vec<_>>(), [many.len(), 2, 2], "all calls together");
        assert!(answer.broken.iter().all(|it| it.why.contains("values")), "{:?}", answer.broken);
    }

    #[test]
    fn a_call_has_an_id_and_a_name_of_sane_length() {
        let mut assembly = assembly(&[]);
        let long = "é".repeat(LONGEST_WORD);
        let (id, name) = (Some(long.clone()), Some(long));
        assembly.take(Delta::ToolCall(CallPiece { id, name, ..CallPiece::default() }));
        assembly.take(Delta::Stop(StopReason::ToolUse));
        let Ok(answer) = assembly.finish() else { panic!("it is whole") };
        let calls: Vec<&ToolCall> = answer.message.tool_calls().collect();
        assert_eq!(calls[0].id.len(), 9);
        assert_eq!(calls[0].name, format!("{}…", "é".repeat(LONGEST_WORD / 2)));
    }

    /// A piece finds its call however much was said before it: looking through
    /// all of this for each would take minutes.
    #[test]
    fn pieces_of_a_call_behind_much_talk_are_put_together() {
        let mut assembly = assembly(&[]);
        for _ in 0..100_000 {
            assembly.take(Delta::Text("a".into()));
            assembly.take(Delta::Thinking("b".into()));
        }
        (0..100_000).for_each(|_| assembly.take(piece(7, "", " ")));
        assembly.take(piece(8, "", "{}"));
        assembly.take(Delta::Stop(StopReason::ToolUse));
        let Ok(answer) = assembly.finish() else { panic!("it is whole") };
        assert_eq!((answer.message.content.len(), answer.broken.len()), (200_002, 0));
    }
}
