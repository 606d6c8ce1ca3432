//! One prompt to its answer: the message is stored, a model is asked, or the
//! next one where that fails, the tools that it calls are run one after another,
//! their results are stored, and it is asked again, until it answers without a
//! call. Whatever happens, what was said and done stands in the session, and no
//! call is left without its result. A turn runs nothing itself: it acts through
//! [`Hands`].

mod ask;
mod bill;
mod calls;
mod compaction;
mod converse;
mod cut;
mod event;
mod fit;
mod hands;
mod limits;
mod masked;
mod origin;
mod progress;
mod prompt;
mod repeats;
mod room;
mod steering;
mod summary;
mod taken;
#[cfg(test)]
mod tests;
mod veil;
mod watch;

pub use bill::Bill;
pub use compaction::compaction_threshold;
pub use cut::stored as without_cut_calls;
pub use event::{CompactionReason, TurnEvent, category_of};
pub use hands::Equipped;
pub use masked::{answer as masked_answer, message as masked_message};
pub use prompt::{LARGEST_AGENTS_MD, Prompt, core_tools};
pub use steering::Steering;
pub use veil::Veil;
pub use watch::Watch;

use std::time::Duration;

use crate::config::{Limits, ModelChoice, ModelRef};
use crate::error::Result;
use crate::message::Usage;
use crate::plugin::hooks::ModelSwitch;
use crate::provider::{Fault, Health, Registry, ToolDefinition};
use crate::secret::Redactor;
use crate::session::Conversation;
use crate::tool::{self, CoreCall};
use crate::usage::Role;
use crate::worker::Cancel;
use progress::{Ending, Progress};

/// What is told of an answer that the model had no room to finish.
pub const CUT_AT_LIMIT: &str = "the answer was cut at the model's output limit";

/// What a turn works with.
pub struct Turn<'a> {
    /// Whose turn it is.
    pub agent: &'a str,
    /// The session that holds it, by its key.
    pub session_key: &'a str,
    /// The models that may answer, the first choice first; never empty.
    pub choices: &'a [&'a ModelChoice],
    /// The system prompt ([`Prompt::text`]).
    pub system: &'a str,
    /// The tools that the model may call ([`core_tools`]).
    pub tools: &'a [ToolDefinition],
    /// The agent's bounds.
    pub limits: Limits,
    /// Where models are.
    pub providers: &'a Registry,
    /// Which of them cool down.
    pub health: &'a Health,
    /// What the turn acts through.
    pub hands: &'a dyn Hands,
    /// What a person says to it while it runs.
    pub steering: &'a Steering,
    /// Who pays for it, and what it pays for.
    pub bill: &'a Bill,
    /// Keeps secrets out of what is stored.
    pub redactor: &'a Redactor,
}

/// How a turn acts on the world: the toolbox and the audit log, on behalf of
/// one caller.
pub trait Hands {
    /// Runs a core tool by the toolbox; `printed` is told what a command prints,
    /// as it comes and masked. An error is told to the model, but for
    /// [`Kind::Cancelled`].
    fn run(
        &self,
        call: CoreCall,
        printed: &mut dyn FnMut(String),
        cancel: &Cancel,
    ) -> Result<tool::Answer>;

    /// Writes that a model is about to be called; an error refuses the call.
    /// What is returned is told how it ended.
    /// From then on, calls of tools are that model's.
    fn model_call_begins(&self, model: &ModelRef) -> Result<Box<dyn FnOnce(ModelCallEnd) + '_>>;

    /// Another model than before is asked.
    fn model_switches(&self, switch: &ModelSwitch<'_>, cancel: &Cancel);

    /// What the caller gets for a model's answer; the error says why it gets
    /// none.
    fn response(&self, response: String, cancel: &Cancel) -> Result<String, String>;
}

/// How a model call ended, for the audit log, the usage log and the counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelCallEnd {
    /// What it was for.
    pub role: Role,
    /// Length of the answer's text in bytes.
    pub output_bytes: u64,
    /// What it took, as far as the provider said.
    pub usage: Usage,
    /// What went wrong.
    pub fault: Option<Fault>,
    /// How long it took, waiting in the provider's line included.
    pub duration: Duration,
    /// How long until the model said something; `None` if it never did.
    pub first_token: Option<Duration>,
}

impl Turn<'_> {
    /// The model that is asked first.
    fn first_choice(&self) -> &ModelRef {
        &self.choices[0].model
    }

    /// Runs the turn. Events are told as they happen; the last of them says
    /// the same as the result. The message is on the disk before a model is
    /// asked, and all of the turn before the last event.
    pub fn run(
        &self,
        conversation: &mut Conversation,
        message: &str,
        events: &mut dyn FnMut(TurnEvent),
        cancel: &Cancel,
    ) -> Result<String> {
        let mut progress = Progress::new(self, conversation, events, cancel);
        let outcome = progress.converse(message);
        // Whatever way it ends: what was said to it is not lost.
        let outcome = progress.keep_unheard().and(outcome);
        let outcome = progress.sync().and(outcome).map(|it| progress.ending(&it));
        progress.tell_end(outcome)
    }

    /// Compacts the conversation now, in place of a turn; what came of it is
    /// told by [`TurnEvent::CompactionEnd`], before the last event.
    pub fn compact(
        &self,
        conversation: &mut Conversation,
        events: &mut dyn FnMut(TurnEvent),
        cancel: &Cancel,
    ) -> Result<()> {
        let mut progress = Progress::new(self, conversation, events, cancel);
        let outcome = progress.compact_as_asked();
        let outcome = progress.sync().and(outcome);
        progress.tell_end(outcome.map(|()| Ending::default())).map(drop)
    }
}
