//! The dialect `anthropic-messages`: `POST {base}/v1/messages`, answered by
//! server-sent events. Pure. It is strict: roles alternate, results stand
//! first in the message after their calls, nothing is empty, and what a model
//! signed goes back as it came or not at all.

mod block;
mod decode;
mod encode;
mod thinking;
mod usage;

use super::once::Once;
use super::{Decoder, Fault, Origin, Provider, Request, Wire};
use decode::Answer;

/// The header without which nothing is answered.
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// The dialect of one provider.
#[derive(Debug)]
pub(super) struct Anthropic {
    provider: String,
}

impl Anthropic {
    /// The dialect of the provider of this name, which errors tell.
    pub(super) fn new(provider: &str) -> Self {
        Self { provider: provider.to_owned() }
    }
}

impl Provider for Anthropic {
    fn encode(&self, request: &Request<'_>, origin: &Origin<'_>) -> Result<Wire, Fault> {
        let body = encode::body(request, origin)?;
        let mut headers =
            vec![VERSION, ("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        headers.extend(body.beta.map(|it| ("anthropic-beta", it)));
        Ok(Wire {
            path: below(origin.endpoint(), "messages"),
            headers: headers.into_iter().map(owned).collect(),
            body: body.text,
        })
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Once::new(Answer::new(&self.provider)))
    }

    fn question(&self, base_url: &str) -> Wire {
        // One page, as long as one may be.
        let path = below(base_url, "models?limit=1000");
        Wire { path, headers: vec![owned(VERSION)], body: Vec::new() }
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-api-key", "")
    }
}

/// A path of the protocol below a base URL, which may name the version already.
fn below(base_url: &str, what: &str) -> String {
    if base_url.ends_with("/v1") { format!("/{what}") } else { format!("/v1/{what}") }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.into(), value.into())
}

#[cfg(test)]
mod tests {
    mod decode;
    mod encode;
    mod hostile;
    mod transcripts;
}
