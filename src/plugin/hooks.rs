//! Hooks: what plugins are asked before and after something happens. Pure: the
//! nine of them by their names, what each is told, what its answer means, and
//! how one plugin after another is asked, each seeing what the one before made
//! of it. Who is asked, and how, is for [`super::Plugins`].
//!
//! An answer is a stranger's: what is missing of it changes nothing. But an
//! answer of a guard that makes no sense is a failure, and a guard that fails
//! refuses, unless its configuration says otherwise.

mod chain;
mod occasion;

use std::fmt;

pub use chain::{Listener, Unheard};
pub(super) use chain::{post_response, post_tool, pre_prompt, pre_tool, tell};
pub use occasion::{ModelSwitch, Occasion, Outcome, Prompted, SwitchReason, ToolCalled};

use crate::error::{Error, Kind};

/// When a plugin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Before a model sees what a person says; may change or refuse it.
    PrePrompt,
    /// After the model's answer; may change or withhold it.
    PostResponse,
    /// Before a tool runs; may refuse it.
    PreToolExec,
    /// After a tool has run; may change its result.
    PostToolExec,
    /// A session has been made.
    SessionCreated,
    /// A session has been removed.
    SessionDisposed,
    /// Another model than before answers in a session.
    ModelSwitched,
    /// The gateway and its plugins run.
    GatewayStarted,
    /// The gateway is about to stop its plugins.
    GatewayShutdown,
}

impl Hook {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::PrePrompt,
        Self::PostResponse,
        Self::PreToolExec,
        Self::PostToolExec,
        Self::SessionCreated,
        Self::SessionDisposed,
        Self::ModelSwitched,
        Self::GatewayStarted,
        Self::GatewayShutdown,
    ];

    /// Its name in manifests and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::PrePrompt => "prePrompt",
            Self::PostResponse => "postResponse",
            Self::PreToolExec => "preToolExec",
            Self::PostToolExec => "postToolExec",
            Self::SessionCreated => "sessionCreated",
            Self::SessionDisposed => "sessionDisposed",
            Self::ModelSwitched => "modelSwitched",
            Self::GatewayStarted => "gatewayStarted",
            Self::GatewayShutdown => "gatewayShutdown",
        }
    }

    /// The hook of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Whether its failure refuses what it was asked about.
    pub fn guards(self) -> bool {
        matches!(self, Self::PrePrompt | Self::PreToolExec)
    }
}

/// Why what was asked about does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// A plugin says so.
    Refused {
        /// Which one.
        plugin: String,
        /// Why, in its own words.
        reason: Option<String>,
    },
    /// A plugin that guards could not be asked, or answers nonsense.
    Failed {
        /// Which one.
        plugin: String,
        /// For which hook.
        hook: Hook,
        /// What went wrong.
        why: String,
    },
    /// Nobody waits any more.
    CalledOff,
}

impl Halt {
    /// What a person is told, who is told already that it was refused: a plugin's
    /// own words as they are.
    pub fn reason(&self) -> String {
        match self {
            Self::Refused { reason: Some(reason), .. } => reason.clone(),
            Self::Failed { plugin, hook, why } => {
                format!("the hook {} of the plugin '{plugin}' failed: {why}", hook.name())
            }
            other => other.to_string(),
        }
    }
}

impl Halt {
    /// What a person is told of an answer that is withheld.
    pub fn withheld(&self) -> String {
        match self {
            Self::Refused { plugin, reason: Some(reason) } => {
                format!("the plugin '{plugin}' withheld the answer: {reason}")
            }
            Self::Refused { plugin, reason: None } => {
                format!("the plugin '{plugin}' withheld the answer")
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { plugin, reason: Some(reason) } => {
                write!(f, "refused by the plugin '{plugin}': {reason}")
            }
            Self::Refused { plugin, reason: None } => write!(f, "refused by the plugin '{plugin}'"),
            Self::Failed { .. } => write!(f, "refused, since {}", self.reason()),
            Self::CalledOff => write!(f, "called off while a plugin was asked"),
        }
    }
}

impl From<Halt> for Error {
    fn from(halt: Halt) -> Self {
        let kind = if halt == Halt::CalledOff { Kind::Cancelled } else { Kind::Denied };
        Self::new(kind, halt.to_string())
    }
}

#[cfg(test)]
mod tests;
