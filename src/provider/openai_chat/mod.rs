//! The dialect `openai-completions`: `POST {base}/chat/completions`, answered
//! by server-sent events. Pure. Many servers speak it and each a little
//! differently: what is sent is only what all of them take, what comes is read
//! with every field optional.

mod calls;
mod decode;
mod encode;

use super::{Decoder, Fault, Origin, Provider, Request, Wire, events};
use decode::Answer;

/// The dialect of one provider.
#[derive(Debug)]
pub(super) struct OpenAiChat {
    provider: String,
}

impl OpenAiChat {
    /// The dialect of the provider of this name, which errors tell.
    pub(super) fn new(provider: &str) -> Self {
        Self { provider: provider.to_owned() }
    }
}

impl Provider for OpenAiChat {
    fn encode(&self, request: &Request<'_>, origin: &Origin<'_>) -> Result<Wire, Fault> {
        Wire::asking("/chat/completions", &encode::body(request, origin))
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        events::decoder(&self.provider, Answer::new(&self.provider))
    }
}

#[cfg(test)]
mod tests {
    mod calls;
    mod decode;
    mod encode;
    mod faults;
    mod hostile;
}
