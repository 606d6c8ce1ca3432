//! What a call that came to nothing failed of, in words that say what to check.
//! ureq tells a reason by its type and, inside I/O errors, by their kind.

use std::io::{Error as IoError, ErrorKind};

use ureq::{Error, Timeout};

use super::target::Target;
use crate::provider::Fault;

/// Whether a handshake failed, as it does if a certificate is not trusted.
pub(in crate::provider) fn is_distrust(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.kind() == ErrorKind::InvalidData,
        Error::Rustls(_) | Error::Tls(_) => true,
        _ => false,
    }
}

/// There is no answer. `has_begun`: the request was on its way.
pub(super) fn of_call(target: &Target, error: &Error, has_begun: bool) -> Fault {
    let provider = target.provider();
    match error {
        Error::Timeout(timeout) => too_slow(target, *timeout),
        Error::LargeResponseHeader(..) | Error::Protocol(_) => Fault::Unavailable(format!(
            "what the provider `{provider}` answered at {} is not HTTP as it should be: {error}; \
             check `{}`",
            target.url(),
            target.setting("baseUrl")
        )),
        Error::Io(cause) if has_begun => of_answer(target, cause),
        _ if is_distrust(error) && target.is_secure() => distrusted(target, error),
        _ => unreached(target, error),
    }
}

/// The connection broke before the end of the answer.
pub(super) fn of_answer(target: &Target, error: &IoError) -> Fault {
    Fault::Cut(format!(
        "the connection to the provider `{}` broke before the end of its answer: {error}",
        target.provider()
    ))
}

fn too_slow(target: &Target, timeout: Timeout) -> Fault {
    let (what, limit) = match timeout {
        Timeout::Resolve => ("the name's address", Some(target.timeouts().connect)),
        Timeout::Connect => ("a connection", Some(target.timeouts().connect)),
        _ => ("the next bytes", None),
    };
    let within = limit.map_or_else(
        || "in time".to_owned(),
        |it| {
            let setting = target.setting("timeouts.connectSeconds");
            format!("within {} s (`{setting}`)", it.as_secs_f64())
        },
    );
    let text = format!(
        "there was not {what} to the provider `{}` at {} {within}; {}",
        target.provider(),
        target.url(),
        check(target)
    );
    Fault::Slow(text)
}

fn distrusted(target: &Target, error: &Error) -> Fault {
    let advice = match target.ca_file() {
        _ if speaks_no_tls(error) => {
            format!("for a server without TLS write http:// in `{}`", target.setting("baseUrl"))
        }
        Some(path) => format!(
            "neither the authorities that are built in nor those of {} vouch for it",
            path.display()
        ),
        None => {
            format!("the certificate of an own authority belongs in `{}`", target.setting("caFile"))
        }
    };
    Fault::Unavailable(format!(
        "no secure connection to the provider `{}` at {}: {}; {advice}",
        target.provider(),
        target.url(),
        cause(error),
    ))
}

/// Whether what came was no TLS at all, such as an answer in plain HTTP.
fn speaks_no_tls(error: &Error) -> bool {
    cause(error).contains("corrupt message")
}

fn unreached(target: &Target, error: &Error) -> Fault {
    Fault::Unavailable(format!(
        "the provider `{}` was not reached at {}: {}; {}",
        target.provider(),
        target.url(),
        cause(error),
        check(target)
    ))
}

fn check(target: &Target) -> String {
    if target.has_proxy() {
        let (url, proxy) = (target.setting("baseUrl"), target.setting("proxy"));
        return format!("check that the proxy runs and lets it through, `{proxy}` and `{url}`");
    }
    format!("check that the server runs, and `{}`", target.setting("baseUrl"))
}

/// Without ureq's `io:` before it, which says nothing to a person.
pub(super) fn cause(error: &Error) -> String {
    match error {
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}
