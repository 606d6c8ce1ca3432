//! The suite: drives the built binary from outside, on real sandboxes, real
//! sockets and real files. One room a topic; `support` holds what they share.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

mod anthropic;
mod audit;
mod bounds;
mod bubblewrap;
mod builtins;
mod chat;
mod cli;
mod config;
mod containers;
mod context;
mod control;
mod crash;
mod dialects;
mod docker;
mod doctor;
mod exec;
mod fallback;
mod faults;
mod full_disk;
mod gateway;
mod git;
mod google;
mod histories;
mod hooks;
mod hostile;
mod http;
mod install;
mod layers;
mod liar;
mod link;
mod load;
mod mcp;
mod models;
mod oneshots;
mod output;
mod planted;
mod plugin_asks;
mod plugin_servers;
mod plugins;
mod podman;
mod prompt;
mod recording;
mod reload;
mod residents;
mod responses;
mod sandbox;
mod sessions;
mod shells;
mod siege;
mod skills;
mod socket;
mod support;
mod terminal;
mod text_tools;
mod tools;
mod typescript;
mod usage;
