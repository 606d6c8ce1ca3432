//! Models. A wire dialect is pure: [`Provider`] turns a neutral [`Request`]
//! into bytes and a [`Decoder`] turns bytes into neutral [`Delta`]s; neither
//! has a socket, a clock, a sleep or a retry. [`Registry::call`] is the one
//! place where bytes travel: it carries a dialect's bytes to its other end and
//! back, and puts the deltas together to an answer.

mod assemble;
mod glob;
pub mod probe;
mod replay;
mod tape;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

pub use assemble::{Answer, BrokenCall};

use crate::clock;
use crate::config::{self, Findings, KeyPath, ModelFacts, ModelRef};
use crate::message::{Assistant, Message, StopReason, Usage};
use crate::worker::Cancel;
use assemble::Assembly;
use replay::Replay;
use tape::Tape;

/// What a model is asked, in no provider's words.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The model that answers.
    pub model: &'a ModelRef,
    /// The system prompt.
    pub system: &'a str,
    /// User messages, answers and results only; each call has its result.
    pub messages: &'a [Message],
    /// What is known of that model.
    pub facts: &'a ModelFacts,
    /// The tools it may call.
    pub tools: &'a [ToolDefinition],
    /// The `beige` fields that this provider wrote into earlier answers of the
    /// session, oldest first.
    pub marks: &'a [Value],
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub parameters: Value,
}

/// One wire dialect.
pub trait Provider: Send + Sync {
    /// The request in its words.
    fn encode(&self, request: &Request<'_>) -> Result<Wire, Fault>;

    /// Reads one answer.
    fn decoder(&self) -> Box<dyn Decoder>;

    /// The header that holds the key, and what stands before it there.
    fn key_header(&self) -> (&'static str, &'static str) {
        ("Authorization", "Bearer ")
    }
}

/// A request in a provider's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Below the provider's base URL.
    pub path: String,
    /// Further headers; never one that holds a key.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Reads one answer, from bytes cut anywhere.
pub trait Decoder: Send {
    /// The deltas that these bytes complete.
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault>;

    /// The bytes have ended: the deltas that were still to come.
    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault>;

    /// Whether the protocol's own end mark has come, so that nothing is to be
    /// waited for, also where the other side keeps the connection open.
    fn is_done(&self) -> bool {
        false
    }
}

/// A piece of an answer, in no provider's words.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// More text.
    Text(String),
    /// More thinking.
    Thinking(String),
    /// Opaque data of the text, thinking or call that came last; goes back to
    /// the endpoint it came from.
    Signature(String),
    /// Thinking that the provider withholds, as opaque data.
    Redacted(String),
    /// A piece of a tool call.
    ToolCall(CallPiece),
    /// Tokens so far; a later one replaces it.
    Usage(Usage),
    /// The answer is whole, and why it ends. An answer without is cut.
    Stop(StopReason),
    /// For the `beige` field of the stored answer.
    Mark(Value),
}

/// A piece of a tool call. Pieces of one slot make one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPiece {
    /// Which call of the answer it is.
    pub slot: u64,
    /// Its id, once known.
    pub id: Option<String>,
    /// The tool, once known.
    pub name: Option<String>,
    /// More of the arguments' JSON text.
    pub arguments: String,
}

/// Why there is no whole answer. What happens next hangs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The provider wants us to wait: milliseconds, if it says how long.
    RateLimited(Option<u64>, String),
    /// It cannot answer now: overloaded, 5xx, not reached, too slow.
    Unavailable(String),
    /// The answer ended before its end.
    Cut(String),
    /// It will not answer this: key, model, request.
    Refused(String),
    /// The conversation is longer than the model reads.
    TooLong(String),
    /// It was called off.
    Cancelled,
    /// Nothing at all happened for as long as a turn may be silent.
    Inactive(String),
    /// The fault is on our side, such as a cassette that does not read; another
    /// model would not help.
    Ours(String),
}

/// A call that came to no whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Why.
    pub fault: Fault,
    /// What had come by then, without tool calls: those of a cut answer are
    /// neither run nor stored.
    pub partial: Assistant,
}

/// The providers of a configuration.
#[derive(Debug)]
pub struct Registry {
    providers: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    dialect: Replay,
    tape: Tape,
    models: BTreeMap<String, ModelFacts>,
}

impl Fault {
    /// The word for it in events and error answers.
    pub fn category(&self) -> &'static str {
        match self {
            Self::RateLimited(..) => "rate_limit",
            Self::Unavailable(_) => "unavailable",
            Self::Cut(_) => "cut",
            Self::Refused(_) => "refused",
            Self::TooLong(_) => "context_length",
            Self::Cancelled => "aborted",
            Self::Inactive(_) => "inactive",
            Self::Ours(_) => "internal",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimited(_, text)
            | Self::Unavailable(text)
            | Self::Cut(text)
            | Self::Refused(text)
            | Self::TooLong(text)
            | Self::Inactive(text)
            | Self::Ours(text) => f.write_str(text),
            Self::Cancelled => f.write_str("the call was called off"),
        }
    }
}

impl Registry {
    /// Providers as configured; nothing is opened yet.
    pub fn new(providers: &BTreeMap<String, config::Provider>) -> Self {
        let entry = |(name, provider): (&String, &config::Provider)| {
            let cassette = match &provider.reach {
                config::Reach::Cassette(path) => Some(path.clone()),
                config::Reach::Endpoint(_) => None,
            };
            let tape = Tape::new(name, cassette);
            let models = provider.models.clone();
            (name.clone(), Entry { dialect: Replay::new(tape.name()), tape, models })
        };
        Self { providers: providers.iter().map(entry).collect() }
    }

    /// Adds everything that keeps a call from being answered, as far as it can
    /// be seen without one.
    pub fn examine(&self, findings: &mut Findings) {
        for (name, entry) in &self.providers {
            let path = KeyPath::from(["llm", "providers", name, "cassette"]);
            entry.tape.check(&mut |what| findings.error(&path, what));
        }
    }

    /// What is known of a model; nothing, if nobody said anything of it.
    pub fn facts(&self, model: &ModelRef) -> ModelFacts {
        let entry = self.providers.get(&model.provider);
        entry.and_then(|it| it.models.get(&model.model)).cloned().unwrap_or_default()
    }

    /// One model call: deltas as they come, then the whole answer.
    pub fn call(
        &self,
        request: &Request<'_>,
        cancel: &Cancel,
        on_delta: &mut dyn FnMut(&Delta),
    ) -> Result<Answer, Box<Failure>> {
        let mut assembly = Assembly::new(config::Api::Replay.name(), request.model, clock::now());
        match self.carry(request, cancel, &mut assembly, on_delta) {
            Ok(()) => assembly.finish(),
            Err(fault) => Err(assembly.fail(fault)),
        }
    }

    /// Carries the bytes there and back.
    fn carry(
        &self,
        request: &Request<'_>,
        cancel: &Cancel,
        assembly: &mut Assembly,
        on_delta: &mut dyn FnMut(&Delta),
    ) -> Result<(), Fault> {
        let name = &request.model.provider;
        let Some(entry) = self.providers.get(name) else {
            return Err(Fault::Ours(format!("there is no provider `{name}`")));
        };
        let wire = entry.dialect.encode(request)?;
        let mut decoder = entry.dialect.decoder();
        let mut deltas = Vec::new();
        let mut pass_on = |deltas: &mut Vec<Delta>| {
            for delta in deltas.drain(..) {
                on_delta(&delta);
                assembly.take(delta);
            }
        };
        entry.tape.play(&wire.body, cancel, &mut |bytes| {
            let fed = decoder.feed(bytes, &mut deltas);
            pass_on(&mut deltas);
            fed
        })?;
        let ended = decoder.end(&mut deltas);
        pass_on(&mut deltas);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_is_not_there_is_our_fault() {
        let registry = Registry::new(&BTreeMap::new());
        let model = ModelRef { provider: "gone".into(), model: "m".into() };
        let facts = ModelFacts::default();
        let request = Request {
            model: &model,
            facts: &facts,
            system: "",
            messages: &[],
            tools: &[],
            marks: &[],
        };
        let got = registry.call(&request, &Cancel::never(), &mut |_| ());
        let want = Fault::Ours("there is no provider `gone`".into());
        assert_eq!(got.map_err(|it| it.fault), Err(want));
    }
}
