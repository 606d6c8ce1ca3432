//! Says what kind of failure a provider's error is, and tells people of it.
//! Pure. The HTTP status decides first, then the code or type of the
//! provider's own error object, and wording only where neither does, and only
//! in that object: never in what a model or a person wrote.

mod error;
mod words;

use serde_json::Value;

pub(super) use error::one_line;

use super::{Fault, wait};
use crate::clock::Time;
use error::ProviderError;
use words::Class;

/// The wait after an HTTP 429 that asks for none, in milliseconds.
const WAIT_OF_STATUS: u64 = 300_000;

/// The wait after words of a rate limit that ask for none, in milliseconds.
const WAIT_OF_WORDS: u64 = 60_000;

/// What an answer with another status than 2xx means. Names of `headers` are
/// lower-case; of `body` the first 8 KiB are enough.
pub(super) fn of_response(
    provider: &str,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
    now: Time,
) -> Fault {
    let mut error = ProviderError::of_body(body);
    if (400..500).contains(&status) {
        // Some servers call whatever goes wrong an error of their API.
        error.codes.retain(|it| it != "api_error");
    }
    let said_itself = class_of(&error);
    let class = deciding(status).or(said_itself).or_else(|| hinting(status));
    let said = format!("the provider `{provider}` answered with HTTP {status}");
    let default = if status == 429 { WAIT_OF_STATUS } else { WAIT_OF_WORDS };
    let wait = Wait { asked: wait::asked(headers, now).or(error.wait), default };
    let mut said = with_message(said, &error.message);
    if said_itself == Some(Class::Credit) && class != said_itself {
        said.push_str(". Check the account's credit");
    }
    fault(class.unwrap_or(Class::Refused), provider, said, wait)
}

/// What an error object in the middle of an answer means.
pub(super) fn of_error(provider: &str, error: &Value) -> Fault {
    let error = ProviderError::of_value(error);
    let is_named = || error.codes.iter().any(|it| it == "invalid_request_error");
    let at_fault = || is_named() || error.numbers().any(|it| (400..500).contains(&it));
    let class = class_of(&error).unwrap_or_else(|| match at_fault() {
        true => Class::Refused,
        false => Class::Unavailable,
    });
    let said = format!("the provider `{provider}` broke its answer off with an error");
    let wait = Wait { asked: error.wait, default: WAIT_OF_WORDS };
    fault(class, provider, with_message(said, &error.message), wait)
}

/// What it means that an answer ends by a filter, for the reason that is told.
pub(super) fn withheld(provider: &str, reason: &str) -> Fault {
    let reason = one_line(reason);
    Fault::Refused(format!(
        "the provider `{provider}` withheld the answer or the rest of it (`{reason}`): its filter \
         objects to the conversation. Put it differently, or use another model."
    ))
}

/// How long to wait, in milliseconds.
struct Wait {
    asked: Option<u64>,
    default: u64,
}

/// What the error object itself says.
fn class_of(error: &ProviderError) -> Option<Class> {
    let numbered = || error.numbers().find_map(|it| deciding(it).or_else(|| hinting(it)));
    words::of_codes(&error.codes).or_else(numbered).or_else(|| words::of_wording(&error.wording))
}

/// What a status says before anything else is looked at.
fn deciding(status: u16) -> Option<Class> {
    match status {
        429 => Some(Class::RateLimited),
        500..=599 => Some(Class::Unavailable),
        401 | 403 => Some(Class::Key),
        _ => None,
    }
}

/// What a status says where nothing else does.
fn hinting(status: u16) -> Option<Class> {
    match status {
        408 => Some(Class::Unavailable),
        402 => Some(Class::Credit),
        300..=399 | 404 | 405 => Some(Class::Model),
        413 => Some(Class::TooLong),
        _ => None,
    }
}

fn fault(class: Class, provider: &str, said: String, wait: Wait) -> Fault {
    let key = format!("llm.providers.{provider}");
    match class {
        Class::RateLimited => match wait.asked {
            Some(asked) => {
                let seconds = asked.div_ceil(1_000);
                Fault::RateLimited(Some(asked), format!("{said}. It asks to wait {seconds} s."))
            }
            None => {
                let seconds = wait.default / 1_000;
                let text = format!("{said}. It is not asked again for {seconds} s.");
                Fault::RateLimited(Some(wait.default), text)
            }
        },
        Class::Unavailable => Fault::Unavailable(format!("{said}. Try again later.")),
        Class::Key => Fault::Refused(format!("{said}. Check `{key}.apiKey`.")),
        Class::Credit => Fault::Refused(format!("{said}. Check the account's credit.")),
        Class::Model => {
            Fault::Refused(format!("{said}. Check the model's id and `{key}.baseUrl`."))
        }
        Class::TooLong => Fault::TooLong(format!(
            "{said}. The conversation is longer than the model reads: start a new session, or \
             use a model that reads more."
        )),
        Class::Stale => Fault::Stale(format!(
            "{said}. It does not take back what it gave with an earlier answer: start a new \
             session, or use another model."
        )),
        Class::Refused => Fault::Refused(format!(
            "{said}. Check whether the model takes such a request (tools, else \
             `compat.textTools`; images; `maxTokens`), and what `{key}` says of it."
        )),
    }
}

fn with_message(said: String, message: &str) -> String {
    let message = message.trim_end_matches('.');
    if message.is_empty() { said } else { format!("{said}: {message}") }
}

#[cfg(test)]
mod tests;
