//! `--run`: supervises one command. It says that it is ready, takes one
//! request, starts the command in a process group of its own with nothing
//! inherited, carries its three streams as frames, and ends when the command
//! does, or kills it with all its descendants: on timeout, on cancel, and
//! when the gateway hangs up.

mod feed;
mod keep;
pub(crate) mod request;
mod start;
mod watch;

use std::process::ExitCode;

use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior};
use serde_json::{Value, json};

use crate::conversation::Conversation;
use crate::registration::Registration;

use request::Request;
use watch::Watch;

/// Runs the role; the exit code is 0 once the report is delivered, 1 when
/// there was no request that could be obeyed.
pub(crate) fn run() -> ExitCode {
    // So that the command cannot trace it or read its memory, and so that
    // whatever the command leaves behind comes here.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = set_child_subreaper(Some(getpid()));
    let Ok(mut conversation) = Conversation::open() else { return ExitCode::FAILURE };
    match conversation.request() {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(bytes)) => obey(&mut conversation, &bytes),
        Err(error) => refuse(&mut conversation, &error.to_string()),
    }
}

fn obey(conversation: &mut Conversation, bytes: &[u8]) -> ExitCode {
    match Request::parse(bytes) {
        Ok(request) => {
            let report = supervise(conversation, &request);
            conversation.finish(&report);
            ExitCode::SUCCESS
        }
        Err(error) => refuse(conversation, &error),
    }
}

fn refuse(conversation: &mut Conversation, error: &str) -> ExitCode {
    conversation.finish(&json!({ "error": error }));
    ExitCode::FAILURE
}

fn supervise(conversation: &mut Conversation, request: &Request) -> Value {
    let registration = Registration::make();
    let running = match start::start(request) {
        Ok(running) => running,
        Err(failed) => {
            registration.farewell(&[], &[]);
            return failed.report();
        }
    };
    let report = Watch::new(conversation, running, request).until_the_end();
    registration.farewell(&report.children, &report.pipes);
    report.to_value()
}
