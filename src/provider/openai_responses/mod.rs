//! The dialect `openai-responses`: `POST {base}/responses`, answered by
//! server-sent events. Pure. Nothing is stored on the server: the whole
//! conversation goes with each request, and what the model thought goes with it
//! as the encrypted items that the server gave, each only together with what
//! followed it.

mod answer;
mod decode;
mod effort;
mod encode;
mod items;
mod opaque;

use super::once::Once;
use super::{Decoder, Fault, Origin, Provider, Request, Wire};
use decode::Reply;

/// The dialect of one provider.
#[derive(Debug)]
pub(super) struct OpenAiResponses {
    provider: String,
}

impl OpenAiResponses {
    /// The dialect of the provider of this name, which errors tell.
    pub(super) fn new(provider: &str) -> Self {
        Self { provider: provider.to_owned() }
    }
}

impl Provider for OpenAiResponses {
    fn encode(&self, request: &Request<'_>, origin: &Origin<'_>) -> Result<Wire, Fault> {
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        Ok(Wire {
            path: "/responses".into(),
            headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
            body: encode::body(request, origin)?,
        })
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Once::new(Reply::new(&self.provider)))
    }
}

#[cfg(test)]
mod tests {
    mod decode;
    mod encode;
    mod hostile;
    mod random;
    mod transcripts;
}
