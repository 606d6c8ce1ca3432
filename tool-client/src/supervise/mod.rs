//! `--run`, `--stand-by`: supervises one command. It says that it is ready,
//! takes one request, starts the command in a process group of its own with
//! nothing inherited, carries its three streams as frames, and ends when the
//! command does, or kills it with all its descendants: on timeout, on cancel,
//! and when the gateway hangs up. The two differ in where the frames run: over
//! standard input and output, or over a socket that the resident hands it.

mod feed;
mod keep;
pub(crate) mod request;
mod start;
mod watch;

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::RecvFlags;
use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior};
use serde_json::{Value, json};

use crate::conversation::Conversation;
use crate::descriptor;
use crate::limits::{self, Limits};
use crate::registration::Registration;

use request::Request;
use watch::Watch;

/// Runs the role `--run`; the exit code is 0 once the report is delivered, 1
/// when there was no request that could be obeyed.
pub(crate) fn run() -> ExitCode {
    take_post();
    match Conversation::standard() {
        Ok(mut conversation) => serve(&mut conversation, Registration::make()),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs the role `--stand-by`: waits until the resident hands over a call, or
/// ends. One whose limits somebody has lowered meanwhile takes none: the
/// resident gives the call to the next.
pub(crate) fn stand_by() -> ExitCode {
    take_post();
    let Ok(control) = fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) else {
        return ExitCode::FAILURE;
    };
    let Some(call) = handed_over(&control) else { return ExitCode::SUCCESS };
    if !began_with().is_some_and(|it| it.hold()) {
        return ExitCode::FAILURE;
    }
    let registration = Registration::with(control);
    match Conversation::on(call) {
        Ok(mut conversation) => serve(&mut conversation, registration),
        Err(_) => ExitCode::FAILURE,
    }
}

/// So that the command cannot trace it or read its memory, and so that
/// whatever the command leaves behind comes here.
fn take_post() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = set_child_subreaper(Some(getpid()));
}

/// The limits of the sandbox, as the resident told them.
fn began_with() -> Option<Limits> {
    Limits::from_text(std::env::var_os(limits::VARIABLE)?.to_str()?)
}

/// The call that the resident hands over; `None` once the resident is gone.
fn handed_over(control: &OwnedFd) -> Option<OwnedFd> {
    loop {
        match descriptor::receive(control, &mut [0; 8], RecvFlags::empty()) {
            Ok((1.., call)) => return call,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

fn serve(conversation: &mut Conversation, registration: Registration) -> ExitCode {
    let request = match conversation.request() {
        Ok(Some(bytes)) => Request::parse(&bytes),
        Ok(None) => {
            registration.farewell(&[], &[]);
            return ExitCode::SUCCESS;
        }
        Err(error) => Err(error.to_string()),
    };
    match request {
        Ok(request) => {
            let report = supervise(conversation, &request, registration);
            conversation.finish(&report);
            ExitCode::SUCCESS
        }
        Err(error) => {
            registration.farewell(&[], &[]);
            conversation.finish(&json!({ "error": error }));
            ExitCode::FAILURE
        }
    }
}

fn supervise(
    conversation: &mut Conversation,
    request: &Request,
    registration: Registration,
) -> Value {
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
