//! The one program inside a sandbox. The name it is called by and its first
//! argument say what it is: `git` (any name but its own) asks the gateway to
//! run that tool; `tool-client --run` supervises one command, `--file` reads
//! and changes one file, `--init` is the resident, PID 1 of a
//! sandbox, and `--stand-by` a supervisor that it starts ahead.
//!
//! It stands between a hostile command and the gateway, so it holds nothing
//! worth taking: no secret, no right that the command has not.

mod conversation;
mod descriptor;
mod fields;
mod file;
mod init;
mod launch;
mod limits;
mod registration;
#[cfg(test)]
mod scratch;
mod supervise;
mod tree;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// What this process is.
#[derive(Debug, PartialEq, Eq)]
enum Role {
    /// Asks the gateway to run the tool of that name.
    Launch(OsString),
    /// `--run`
    Supervise,
    /// `--stand-by`
    StandBy,
    /// `--file`
    File,
    /// `--init [--leave-after SECONDS] [--at FOLDER]`
    Init(init::Settings),
    /// Called in a way that means nothing.
    Misused,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();
    match role(&name, &rest) {
        Role::Launch(tool) => launch::run(&tool, &rest),
        Role::Supervise => supervise::run(),
        Role::StandBy => supervise::stand_by(),
        Role::File => file::run(),
        Role::Init(settings) => init::run(&settings),
        Role::Misused => usage(),
    }
}

/// Decides by the last part of the name it was called by, then by the first
/// argument.
fn role(name: &OsStr, arguments: &[OsString]) -> Role {
    let start = name.as_bytes().iter().rposition(|it| *it == b'/').map_or(0, |it| it + 1);
    let tool = OsStr::from_bytes(&name.as_bytes()[start..]);
    if !tool.is_empty() && tool != "tool-client" {
        return Role::Launch(tool.to_owned());
    }
    match arguments {
        [flag] if flag == "--run" => Role::Supervise,
        [flag] if flag == "--file" => Role::File,
        [flag] if flag == "--stand-by" => Role::StandBy,
        [flag, rest @ ..] if flag == "--init" => {
            init::Settings::parse(rest).map_or(Role::Misused, Role::Init)
        }
        _ => Role::Misused,
    }
}

fn usage() -> ExitCode {
    complain(
        "tool-client: call it by a tool's name (a link in /tools/bin), or with --run, --file or --init",
    );
    ExitCode::from(2)
}

/// One line on standard error; where that cannot be written nobody listens.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, arguments: &[&str], want: Role) {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        assert_eq!(role(OsStr::new(name), &arguments), want);
    }

    #[test]
    fn another_name_is_a_tool_whatever_its_arguments_say() {
        check("/tools/bin/git", &[], Role::Launch("git".into()));
        check("git", &["--run"], Role::Launch("git".into()));
    }

    #[test]
    fn its_own_name_needs_a_known_flag_and_no_more_than_it_takes() {
        check("/beige/tool-client", &["--run"], Role::Supervise);
        check("tool-client", &["--run", "x"], Role::Misused);
        check("tool-client", &["git"], Role::Misused);
        check("tool-client", &["--stand-by"], Role::StandBy);
        check("tool-client", &["--init", "--run"], Role::Misused);
        check(
            "tool-client",
            &["--init"],
            Role::Init(init::Settings::parse(&[]).unwrap_or_default()),
        );
        check("/beige/", &["--run"], Role::Supervise);
        check("", &[], Role::Misused);
    }
}
