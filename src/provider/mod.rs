//! Models. A wire dialect is pure: [`Provider`] turns a neutral [`Request`]
//! into bytes and a [`Decoder`] turns bytes into neutral [`Delta`]s; neither
//! has a socket, a clock, a sleep or a retry. [`Registry::call`] is the one
//! place where bytes travel: the provider's pool carries a dialect's bytes to
//! its other end and back, and the deltas are put together to an answer.

mod anthropic;
mod assemble;
mod body;
mod catalog;
pub mod chain;
mod ending;
mod events;
mod examine;
pub mod facts;
mod failure;
mod fallback;
mod fault;
mod field;
mod glob;
mod google;
mod health;
mod history;
mod http;
mod ids;
mod joined;
mod json;
mod large;
mod measured;
mod objects;
mod once;
mod openai_chat;
mod openai_responses;
mod origin;
mod pool;
pub mod probe;
mod record;
mod replay;
mod sse;
mod tape;
mod text_tools;
mod think;
mod wait;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use assemble::{Answer, Assembly, BrokenCall, Place, SoFar};
pub use fault::{Failure, Fault};
pub use health::{Condition, Cooling, HIDDEN_REFUSALS, Health, cooling_of};
pub(crate) use http::certificates;
pub use large::LargePlace;
pub use origin::Origin;
pub use pool::Load;
pub use wire::Wire;

use crate::clock;
use crate::config::{self, Api, ModelFacts, ModelRef, Reach, ThinkingLevel};
use crate::message::{Message, StopReason, Usage};
use crate::secret::Redactor;
use crate::worker::Cancel;
use anthropic::Anthropic;
use google::Google;
use http::{Post, Target};
use joined::Joined;
use large::LargeAnswers;
use measured::Measured;
use openai_chat::OpenAiChat;
use openai_responses::OpenAiResponses;
use pool::{MakeCarrier, Patience, Pool};
use record::Recorder;
use replay::Replay;
use tape::Tape;

/// How long the text of a refusal may take, once its head is here.
const REFUSAL: Duration = Duration::from_secs(5);

/// What may each take `connectSeconds` before a connection stands: the name and
/// the handshake, and both once more with the other certificates. A proxy that
/// answers byte by byte is stopped by nothing else.
const CONNECTING_STEPS: u32 = 4;

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
    /// How hard it is told to think.
    pub thinking: ThinkingLevel,
    /// Tokens that it may write, where the caller bounds them itself.
    pub max_tokens: Option<u64>,
    /// How freely it chooses its words, where the caller says so.
    pub temperature: Option<f64>,
    /// The `beige` fields that this provider wrote into earlier answers of the
    /// session, oldest first.
    pub marks: &'a [Value],
    /// Whether every piece is told by itself, as the provider cut it; else what
    /// came at once is told as one.
    pub every_piece: bool,
}

impl<'a> Request<'a> {
    /// A conversation and nothing else: no system prompt, no tools, no wishes.
    pub fn new(model: &'a ModelRef, facts: &'a ModelFacts, messages: &'a [Message]) -> Self {
        Self {
            model,
            system: "",
            messages,
            facts,
            tools: &[],
            thinking: ThinkingLevel::Off,
            max_tokens: None,
            temperature: None,
            marks: &[],
            every_piece: false,
        }
    }

    /// Tokens that the model may write, where the caller or a person says so.
    fn limit(&self) -> Option<u64> {
        self.max_tokens.or(self.facts.max_tokens)
    }
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
    /// The request in its words. What of the conversation is opaque goes back
    /// only to its origin.
    fn encode(&self, request: &Request<'_>, origin: &Origin<'_>) -> Result<Wire, Fault>;

    /// Reads one answer.
    fn decoder(&self) -> Box<dyn Decoder>;

    /// What is asked for the models of the server at that base URL; the body
    /// counts for nothing.
    fn question(&self, _base_url: &str) -> Wire {
        Wire { path: "/models".into(), ..Wire::default() }
    }

    /// The header that holds the key, and what stands before it there.
    fn key_header(&self) -> (&'static str, &'static str) {
        ("Authorization", "Bearer ")
    }
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

/// Who is told what comes, on the thread that asked.
pub trait Listener<T> {
    /// It has come.
    fn hears(&mut self, it: T);

    /// Nothing more has come by now: told before each wait, and again after
    /// each second of it.
    fn waits(&mut self) {}

    /// What is heard is large; the place for it is kept as long as that is.
    fn holds(&mut self, _: LargePlace) {}
}

impl<T, F: FnMut(T)> Listener<T> for F {
    fn hears(&mut self, it: T) {
        self(it);
    }
}

/// What is done with the deltas of one call: they are passed on, and make an
/// answer.
struct Hearing<'a> {
    listener: &'a mut dyn for<'d> Listener<&'d Delta>,
    assembly: Assembly,
    large: Option<LargePlace>,
}

impl Listener<Delta> for Hearing<'_> {
    fn hears(&mut self, delta: Delta) {
        self.listener.hears(&delta);
        self.assembly.take(delta);
    }

    fn waits(&mut self) {
        self.listener.waits();
    }

    fn holds(&mut self, place: LargePlace) {
        self.large = Some(place);
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
    /// What had come of the arguments of the call of that slot does not count:
    /// they come anew.
    Anew(u64),
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

/// The providers of a configuration. Dropping it ends their threads, and cuts
/// what they wait for.
pub struct Registry {
    providers: BTreeMap<String, Entry>,
}

/// One provider: its dialect, and the pool behind it.
struct Entry {
    api: Api,
    dialect: Box<dyn Provider>,
    pool: Pool,
    reach: Reach,
    models: BTreeMap<String, ModelFacts>,
    /// The cassette that its answers are to be recorded in.
    record: Option<PathBuf>,
    /// What records them, where they are.
    recorder: Option<Recorder>,
}

impl Registry {
    /// Providers as configured; nothing is opened and no thread is started yet.
    pub fn new(providers: &BTreeMap<String, config::Provider>) -> Self {
        let large = LargeAnswers::default();
        let entry = |(name, provider): (&String, &config::Provider)| {
            (name.clone(), Entry::new(name, provider, &large))
        };
        Self { providers: config::by_name(providers.iter().map(entry)) }
    }

    /// The same, which records what the configuration says is recorded; without
    /// a secret that is known there.
    #[must_use]
    pub fn recording(mut self, redactor: &Redactor) -> Self {
        for entry in self.providers.values_mut() {
            entry.recorder = entry.record.as_deref().map(|it| Recorder::new(it, redactor));
        }
        self
    }

    /// The protocol that a model is spoken to by, as session files name it;
    /// empty, if there is no such provider.
    pub fn api_name(&self, model: &ModelRef) -> &'static str {
        self.providers.get(&model.provider).map_or("", |it| it.api.name())
    }

    /// How much each provider has to do.
    pub fn load(&self) -> Vec<Load> {
        self.providers.values().map(|it| it.pool.load()).collect()
    }

    /// One model call: deltas as they come, then the whole answer. It waits
    /// for its turn as long as the calls before it take; from then on nothing
    /// at all may happen for `inactivity` at most.
    pub fn call(
        &self,
        request: &Request<'_>,
        inactivity: Duration,
        cancel: &Cancel,
        listener: &mut dyn for<'d> Listener<&'d Delta>,
    ) -> Result<Answer, Box<Failure>> {
        let origin = Origin::new(request.model, self.endpoint(request.model))
            .speaking(self.api_name(request.model))
            .remembering(request.messages);
        match self.call_once(request, &origin, inactivity, cancel, listener) {
            // Once, and before anything of an answer has come.
            Err(failure)
                if matches!(failure.fault, Fault::Stale(_)) && failure.partial.is_empty() =>
            {
                log::info!("{}: asked again without opaque data", failure.fault);
                self.call_once(request, &origin.without_opaque(), inactivity, cancel, listener)
                    .map(Answer::without_opaque)
            }
            called => called,
        }
    }

    fn call_once(
        &self,
        request: &Request<'_>,
        origin: &Origin<'_>,
        inactivity: Duration,
        cancel: &Cancel,
        listener: &mut dyn for<'d> Listener<&'d Delta>,
    ) -> Result<Answer, Box<Failure>> {
        let api = self.api_name(request.model);
        let assembly = Assembly::new(api, request.model, clock::now());
        let assembly = assembly.at(request.facts.cost).from(origin.endpoint());
        let mut hearing = Hearing { listener, assembly, large: None };
        let carried = self.carry(request, origin, inactivity, cancel, &mut hearing);
        let Hearing { assembly, large, .. } = hearing;
        if assembly.is_misled() {
            log::warn!(
                "the provider `{}` told a count of tokens for `{}` that cannot be; what the call \
                 took counts as unknown",
                request.model.provider,
                request.model.model
            );
        }
        let recorder = self.providers.get(&request.model.provider);
        let recorder = recorder.and_then(|it| it.recorder.as_ref());
        let recording = recorder.map(|it| (it, assembly.played()));
        let mut called = match carried {
            Ok(()) => assembly.finish(),
            Err(fault) => Err(assembly.fail(fault)),
        };
        match &mut called {
            Ok(answer) => answer.large = large,
            Err(failure) => failure.large = large,
        }
        if let Some((recorder, events)) = recording {
            let fault = called.as_ref().err().map(|it| &it.fault);
            recorder.record(request, events, fault);
        }
        called
    }

    /// Where a model is asked; empty for one that is played back.
    fn endpoint(&self, model: &ModelRef) -> &str {
        match self.providers.get(&model.provider).map(|it| &it.reach) {
            Some(Reach::Endpoint(endpoint)) => &endpoint.base_url,
            Some(Reach::Cassette(_)) | None => "",
        }
    }

    fn carry(
        &self,
        request: &Request<'_>,
        origin: &Origin<'_>,
        inactivity: Duration,
        cancel: &Cancel,
        hearing: &mut Hearing<'_>,
    ) -> Result<(), Fault> {
        let name = &request.model.provider;
        let Some(entry) = self.providers.get(name) else {
            return Err(Fault::Ours(format!("there is no provider `{name}`")));
        };
        let (wire, decoder) = entry.speak(request, origin)?;
        let decoder = Box::new(Measured::new(name, decoder));
        let decoder = match request.every_piece {
            true => decoder,
            false => Box::new(Joined(decoder)) as Box<dyn Decoder>,
        };
        entry.pool.call(wire, decoder, entry.patience(inactivity), cancel, hearing)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.providers.keys()).finish()
    }
}

impl Entry {
    fn new(name: &str, provider: &config::Provider, large: &LargeAnswers) -> Self {
        let (dialect, make_carrier) = ends(name, provider);
        Self {
            api: provider.api,
            dialect,
            pool: Pool::new(name, provider.concurrency, large.clone(), make_carrier),
            reach: provider.reach.clone(),
            models: provider.models.clone(),
            record: provider.record.clone(),
            recorder: None,
        }
    }

    /// The request in the provider's words, and what reads its answer. A
    /// cassette holds calls as calls, whoever wrote them as text.
    fn speak(
        &self,
        request: &Request<'_>,
        origin: &Origin<'_>,
    ) -> Result<(Wire, Box<dyn Decoder>), Fault> {
        let dialect = self.dialect.as_ref();
        if request.facts.text_tools && self.api != Api::Replay {
            return text_tools::speak(dialect, request, origin);
        }
        Ok((dialect.encode(request, origin)?, dialect.decoder()))
    }

    /// How long a caller waits; a cassette has its own waits.
    fn patience(&self, inactivity: Duration) -> Patience {
        let timeouts = match &self.reach {
            Reach::Endpoint(endpoint) => Some(endpoint.timeouts),
            Reach::Cassette(_) => None,
        };
        Patience {
            connection: timeouts.map(|it| it.connect.saturating_mul(CONNECTING_STEPS)),
            first_byte: timeouts.map(|it| it.first_byte),
            idle: timeouts.map(|it| it.idle),
            refusal: REFUSAL,
            inactivity,
        }
    }
}

/// The two ends of a provider: its dialect, and what carries it.
fn ends(name: &str, provider: &config::Provider) -> (Box<dyn Provider>, MakeCarrier) {
    match &provider.reach {
        Reach::Cassette(path) => {
            let tape = Tape::new(name, Some(path.clone()));
            (Box::new(Replay::new(tape.name())), Box::new(move || Box::new(tape.clone())))
        }
        Reach::Endpoint(endpoint) => {
            let dialect = dialect(name, provider.api);
            let target = Arc::new(Target::new(name, endpoint, dialect.key_header()));
            let post = move || Box::new(Post::new(Arc::clone(&target))) as Box<dyn pool::Carrier>;
            (dialect, Box::new(post))
        }
    }
}

/// The dialect of a provider that is a server.
fn dialect(name: &str, api: Api) -> Box<dyn Provider> {
    match api {
        Api::Replay | Api::OpenAiCompletions => Box::new(OpenAiChat::new(name)),
        Api::OpenAiResponses => Box::new(OpenAiResponses::new(name)),
        Api::AnthropicMessages => Box::new(Anthropic::new(name)),
        Api::GoogleGenerativeAi => Box::new(Google::new(name)),
    }
}

#[cfg(test)]
mod tests;
