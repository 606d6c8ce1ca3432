//! `config.json5` as typed values. [`load`] reads the file, replaces what
//! stands in `${…}`, walks it along the one schema table and reports every
//! finding at once with file, line, column and key path. What this version
//! does not build is refused, never accepted in silence.
//!
//! The way of a file: `source` (text, JSON) → `position` (where things stand)
//! → `substitute` → `check` along `schema` → `assemble` (rules between fields,
//! paths, typed values), all of it driven by `load`. The way back is `edit`
//! (changes that keep a person's text), driven by `amend` (which writes them).

mod amend;
mod edit;

pub mod file_lock;
pub mod home;
pub mod state_file;
mod types;

mod load;
mod report;

mod assemble;
mod check;
mod effective;
mod json_schema;
mod key_path;
mod nearest;
mod node;
mod paths;
mod position;
mod schema;
mod secrets;
mod source;
mod substitute;

#[cfg(test)]
mod sample;

pub use amend::{amend, as_written, folder_of, literal};
pub(crate) use assemble::proxy::of_environment as proxy_of_environment;
pub use edit::{Draft, Written};
pub use home::Home;
pub use json_schema::json_schema;
pub use key_path::{KeyPath, Position, Step};
pub use load::{Examined, Loaded, Surroundings, examine, load, load_in, locate};
pub use nearest::nearest;
pub use report::{Finding, Findings, Report, Severity};
pub use secrets::looks_secret;
pub(crate) use source::read_bounded;
pub use substitute::Environment;
pub use types::{
    Agent, Api, Config, Endpoint, Gateway, HOSTS_OWN_NETWORK, Limits, LongPrompt, ModelChoice,
    ModelFacts, ModelRef, MountConfig, Network, OnHookFailure, Plugin, PluginSource, Price,
    Provider, Reach, RuntimeChoice, SandboxConfig, ThinkingLevel, Timeouts, UserChoice, by_name,
};
