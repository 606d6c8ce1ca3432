//! The suite: drives the built binary from outside, on real sandboxes, real
//! sockets and real files. One room a topic; `support` holds what they share.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

mod containers;
mod exec;
mod layers;
mod prompt;
mod socket;
mod support;
mod tools;
