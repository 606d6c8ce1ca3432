//! How a plugin that is a server is reached, and what follows from that: a
//! process of ours may be one that knows beige; a server that runs elsewhere is
//! a plain MCP server, whatever it says of itself, since what else there is would
//! give a stranger's machine paths of this one and a say in what agents do.

use serde_json::Value;

use super::greeting::{self, Greeting};
use crate::config::Endpoint;
use crate::plugin::launch::Launch;

/// How a plugin that is a server is reached.
#[derive(Clone, Debug)]
pub enum Start {
    /// It is a process of ours.
    Process(Launch),
    /// It runs elsewhere.
    Remote {
        /// The plugin's name.
        plugin: String,
        /// Where.
        endpoint: Box<Endpoint>,
    },
}

impl Start {
    /// The plugin's name.
    pub fn plugin(&self) -> &str {
        match self {
            Self::Process(launch) => &launch.plugin,
            Self::Remote { plugin, .. } => plugin,
        }
    }

    /// What is done again after a failure.
    pub(super) fn again(&self) -> &'static str {
        match self {
            Self::Process(_) => "started",
            Self::Remote { .. } => "tried",
        }
    }

    /// What we send with `initialize`.
    pub(super) fn greeting(&self) -> Value {
        match self {
            Self::Process(_) => greeting::ours(),
            Self::Remote { .. } => greeting::plain(),
        }
    }

    /// What counts of the answer.
    pub(super) fn heard(&self, greeting: Greeting) -> Greeting {
        match self {
            Self::Process(_) => greeting,
            Self::Remote { .. } => Greeting { beige: None, ..greeting },
        }
    }
}
