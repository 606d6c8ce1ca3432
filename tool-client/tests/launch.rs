//! The client as a program, where there is no gateway; its talk with one is
//! tested beside its code.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

mod support;

fn call(name: &str, arguments: &[&str]) -> Output {
    let scratch = support::Scratch::new();
    let link = scratch.path().join(name);
    symlink(env!("CARGO_BIN_EXE_tool-client"), &link).unwrap();
    Command::new(&link).args(arguments).env("BEIGE_SOCKET", "/tmp/other.sock").output().unwrap()
}

#[track_caller]
fn check(name: &str, arguments: &[&str], code: i32, starts: &str) {
    let output = call(name, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with(starts) && said.lines().count() == 1, "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn without_a_gateway_a_tool_is_one_clear_line() {
    check("git", &["status"], 125, "git: the gateway cannot be reached, nothing was run");
    check("a.b", &["--run"], 125, "a.b: the gateway cannot be reached");
}

#[test]
fn without_a_tools_name_or_a_role_it_explains_itself() {
    check("tool-client", &[], 2, "tool-client: call it by a tool's name");
    check("tool-client", &["--version"], 2, "tool-client: call it by a tool's name");
    check("tool-client", &["--run", "sh"], 2, "tool-client: call it by a tool's name");
}
