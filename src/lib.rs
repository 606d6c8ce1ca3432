//! beige: a gateway for AI agents. One engine; every front end translates.
//!
//! The map, lowest layer first; a module imports from those above it in this
//! list only (ARCHITECTURE.md says why, `tests/suite/layers.rs` sees to it):
//!
//! 1. [`error`], [`clock`], [`worker`], [`secret`], [`message`]: words that all use
//! 2. [`config`]: `config.json5` as typed values
//! 3. [`policy`], [`audit`], [`provider`], [`sandbox`], [`session`], [`usage`]: each
//!    knows nothing of the others
//! 4. [`plugin`]: tools that are not core tools
//! 5. [`tool`]: the only way to run anything
//! 6. [`turn`]: one prompt to its answer
//! 7. [`gateway`]: owns and runs it all
//! 8. [`channel`]: the front door; [`builtin`]: plugins of beige's own
//! 9. [`cli`]: the command line

pub mod error;

pub mod clock;

pub mod worker;

pub mod secret;

pub mod message;

pub mod config;

pub mod audit;
pub mod policy;
pub mod provider;
pub mod sandbox;
pub mod session;
pub mod usage;

pub mod plugin;

pub mod tool;

pub mod turn;

pub mod gateway;

pub mod builtin;
pub mod channel;

pub mod cli;
