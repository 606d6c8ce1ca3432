//! A conversation as it can be sent. Pure. What of it goes out and in which
//! order is decided here, for all protocols alike; a dialect only spells it.
//! Each call is followed by its result and no result stands alone; what says
//! nothing is left out, or a word stands in for it; what is opaque goes to whom
//! it came from and to nobody else; ids and names are such as are taken; where
//! an image cannot be shown a word says so.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Origin;
use super::ids::{Ids, sound_name};
use crate::message::{Assistant, Block, Content, Image, Message, StopReason};
use crate::message::{Thinking, ToolCall, ToolResult};

/// The types of images that OpenAI, and those like it, read.
pub(super) const OPENAI_IMAGES: &[&str] =
    &["image/png", "image/jpeg", "image/jpg", "image/webp", "image/gif"];

/// What the model that is asked takes, in the protocol in which it is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Types of images that it reads; none if it reads text only.
    pub(super) images: &'static [&'static str],
    /// Those that may stand within a result; others follow in a user message.
    pub(super) images_in_results: &'static [&'static str],
    /// The id by which it knows a call of its own, if that may be sent.
    pub(super) own_id: fn(&ToolCall) -> Option<&str>,
}

/// What is said at a time.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step<'a> {
    /// By a user. There is at least one part.
    User(Vec<Part<'a>>),
    /// By a model. There is a call in it, or a text that is not blank.
    Answer(Answer<'a>),
    /// What came of the calls of the answer right before, of each, in their
    /// order.
    Results(Vec<Outcome<'a>>),
}

/// A part of what is shown to a model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// A text that is not blank.
    Text(Cow<'a, str>),
    /// An image of a type that is taken at this place.
    Image(&'a Image),
}

/// What a model said.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer<'a> {
    /// Whether it came to its end.
    pub(super) is_whole: bool,
    /// What it is made of, in its order.
    pub(super) said: Vec<Said<'a>>,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said<'a> {
    /// A text, which may be blank, and what is opaque of it and may go back.
    Text(&'a str, Option<&'a str>),
    /// A thought, which may go back.
    Thought(&'a Thinking),
    /// A call.
    Call(Call<'a>),
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call<'a> {
    /// Its id, which no other call of the conversation has.
    pub(super) id: String,
    /// The tool's name: 1 to 64 of ASCII letters, digits, `_` and `-`.
    pub(super) name: String,
    /// An object.
    pub(super) arguments: Cow<'a, Value>,
    /// The call as it came, where what is opaque of it may go back.
    pub(super) as_it_came: Option<&'a ToolCall>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome<'a> {
    /// The call's [`Call::id`].
    pub(super) id: String,
    /// The call's [`Call::name`].
    pub(super) name: String,
    /// Whether it failed.
    pub(super) is_error: bool,
    /// What the model gets: at least one part.
    pub(super) parts: Vec<Part<'a>>,
}

/// What one side says until the other does, as a dialect spells it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    /// Whether it is the user's side, results included.
    pub(super) is_users: bool,
    /// What is said, results first; not empty, if no step is spelled as nothing.
    pub(super) content: Vec<Value>,
}

/// A conversation, step by step.
pub(super) fn steps<'a>(
    messages: &'a [Message],
    origin: &Origin<'_>,
    rules: Rules,
) -> Vec<Step<'a>> {
    let mut walk = Walk { origin, rules, ids: Ids::default(), steps: Vec::new() };
    for (place, message) in messages.iter().enumerate() {
        match message {
            Message::User(it) => walk.add_user(walk.parts(&it.content)),
            Message::Assistant(it) => walk.add_answer(it, &messages[place + 1..]),
            // Taken with its answer.
            Message::ToolResult(_) => (),
            // The session makes user messages of these.
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_)
            | Message::Unknown(_) => (),
        }
    }
    walk.steps
}

/// The same for a protocol in which the sides take turns: a user begins and
/// ends, and what one side says at a stretch is one.
pub(super) fn turns(mut steps: Vec<Step<'_>>, spell: impl Fn(Step<'_>) -> Vec<Value>) -> Vec<Turn> {
    if matches!(steps.first(), Some(Step::Answer(_))) {
        steps.insert(0, Step::said("(The beginning of the conversation is not shown.)"));
    }
    match steps.last() {
        None => steps.push(Step::said(EMPTY)),
        // Newer models do not go on with what they have begun.
        Some(Step::Answer(_)) => steps.push(Step::said("Continue.")),
        Some(_) => (),
    }
    let mut turns: Vec<Turn> = Vec::new();
    for step in steps {
        let is_users = !matches!(step, Step::Answer(_));
        let content = spell(step);
        match turns.last_mut().filter(|it| it.is_users == is_users) {
            Some(turn) => turn.content.extend(content),
            None => turns.push(Turn { is_users, content }),
        }
    }
    turns
}

/// The texts of parts as one, each from a line of its own.
pub(super) fn text(parts: &[Part<'_>]) -> String {
    let texts = parts.iter().filter_map(|it| match it {
        Part::Text(it) => Some(it.as_ref()),
        Part::Image(_) => None,
    });
    texts.collect::<Vec<&str>>().join("\n")
}

/// Whether there is an image among parts.
pub(super) fn has_image(parts: &[Part<'_>]) -> bool {
    parts.iter().any(|it| matches!(it, Part::Image(_)))
}

/// An image as an address.
pub(super) fn image_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.mime_type, image.data)
}

const EMPTY: &str = "(empty message)";

impl<'a> Part<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }
}

impl Step<'_> {
    fn said(text: &'static str) -> Self {
        Self::User(vec![Part::text(text)])
    }
}

impl Answer<'_> {
    /// Its calls in their order.
    fn calls(&self) -> impl Iterator<Item = &Call<'_>> {
        self.said.iter().filter_map(|it| match it {
            Said::Call(it) => Some(it),
            Said::Text(..) | Said::Thought(_) => None,
        })
    }

    /// An answer of thoughts alone is none.
    fn says_something(&self) -> bool {
        self.said.iter().any(|it| match it {
            Said::Text(it, _) => !it.trim().is_empty(),
            Said::Thought(_) => false,
            Said::Call(_) => true,
        })
    }
}

/// A conversation on its way.
struct Walk<'a, 'b> {
    origin: &'b Origin<'b>,
    rules: Rules,
    ids: Ids,
    steps: Vec<Step<'a>>,
}

impl<'a> Walk<'a, '_> {
    fn add_user(&mut self, mut parts: Vec<Part<'a>>) {
        if parts.is_empty() {
            parts.push(Part::text(EMPTY));
        }
        self.steps.push(Step::User(parts));
    }

    /// An answer, what came of its calls, and the images that these returned.
    fn add_answer(&mut self, answer: &'a Assistant, after: &'a [Message]) {
        let is_whole = !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted);
        let said = answer.content.iter().filter_map(|it| self.said(it, answer)).collect();
        let sent = Answer { is_whole, said };
        if !sent.says_something() {
            return;
        }
        let mut shown = Vec::new();
        let results = self.results(answer.tool_calls().zip(sent.calls()), after, &mut shown);
        self.steps.push(Step::Answer(sent));
        if !results.is_empty() {
            self.steps.push(Step::Results(results));
        }
        if !shown.is_empty() {
            self.steps.push(Step::User(shown));
        }
    }

    fn said(&mut self, block: &'a Block, of: &Assistant) -> Option<Said<'a>> {
        let takes_back = self.origin.takes_back(of);
        match block {
            Block::Text(it) => {
                Some(Said::Text(&it.text, it.text_signature.as_deref().filter(|_| takes_back)))
            }
            Block::Thinking(it) => takes_back.then_some(Said::Thought(it)),
            Block::ToolCall(it) => {
                let known = if self.origin.gave(of) { (self.rules.own_id)(it) } else { None };
                Some(Said::Call(Call {
                    id: self.ids.of_call(&it.id, known),
                    name: sound_name(&it.name),
                    arguments: arguments(it),
                    as_it_came: takes_back.then_some(it),
                }))
            }
            Block::Image(_) | Block::Unknown(_) => None,
        }
    }

    /// What came of calls, as far as it is told before the next answer.
    fn results<'c>(
        &self,
        calls: impl Iterator<Item = (&'c ToolCall, &'c Call<'c>)>,
        after: &'a [Message],
        shown: &mut Vec<Part<'a>>,
    ) -> Vec<Outcome<'a>> {
        let before_next = after.iter().take_while(|it| !matches!(it, Message::Assistant(_)));
        let told = before_next.filter_map(|it| match it {
            Message::ToolResult(it) => Some(it),
            _ => None,
        });
        let mut told: Vec<&ToolResult> = told.collect();
        let outcome = |(call, sent): (&ToolCall, &Call<'_>)| {
            let place = told.iter().position(|it| it.tool_call_id == call.id);
            let result = place.map(|it| told.remove(it));
            Outcome {
                id: sent.id.clone(),
                name: sent.name.clone(),
                is_error: result.is_none_or(|it| it.is_error),
                parts: match result {
                    Some(it) => self.returned(&it.content, &sent.name, shown),
                    None => vec![Part::text("(The result is not known.)")],
                },
            }
        };
        calls.map(outcome).collect()
    }

    /// What a tool returned; images that may not stand within go to `shown`.
    fn returned(
        &self,
        content: &'a Content,
        tool: &str,
        shown: &mut Vec<Part<'a>>,
    ) -> Vec<Part<'a>> {
        let within = self.rules.images_in_results;
        let is_apart = |it: &Part<'_>| matches!(it, Part::Image(it) if !within.contains(&it.mime_type.as_str()));
        let mut parts = self.parts(content);
        if parts.is_empty() {
            parts.push(Part::text("(no output)"));
        }
        if parts.iter().any(is_apart) {
            shown.push(Part::text(format!("What `{tool}` returned as an image:")));
        }
        for part in parts.iter_mut().filter(|it| is_apart(it)) {
            shown.push(std::mem::replace(part, Part::text("(The image follows.)")));
        }
        parts
    }

    /// Texts and images in their order.
    fn parts(&self, content: &'a Content) -> Vec<Part<'a>> {
        let written = |it: &'a str| (!it.trim().is_empty()).then(|| Part::text(it));
        let part = |block: &'a Block| match block {
            Block::Text(it) => written(&it.text),
            Block::Image(it) => Some(self.why_left_out(it).map_or(Part::Image(it), Part::Text)),
            Block::Thinking(_) | Block::ToolCall(_) | Block::Unknown(_) => None,
        };
        match content {
            Content::Text(it) => written(it).into_iter().collect(),
            Content::Blocks(it) => it.iter().filter_map(part).collect(),
        }
    }

    /// What is said instead of an image; none if it is shown.
    fn why_left_out(&self, image: &Image) -> Option<Cow<'static, str>> {
        let kind = image.mime_type.as_str();
        match self.rules.images {
            [] => Some("(An image was left out: this model reads text only.)".into()),
            _ if image.data.is_empty() => Some("(An image was left out: it is empty.)".into()),
            it if it.contains(&kind) => None,
            _ => Some(format!("(An image was left out: this model reads no {kind}.)").into()),
        }
    }
}

/// Arguments that did not read are none.
fn arguments(call: &ToolCall) -> Cow<'_, Value> {
    match &call.arguments {
        it @ Value::Object(_) => Cow::Borrowed(it),
        _ => Cow::Owned(Value::Object(Map::new())),
    }
}

#[cfg(test)]
mod tests;
