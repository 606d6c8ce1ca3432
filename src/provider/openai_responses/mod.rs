//! The dialect `openai-responses`: `POST {base}/responses`, answered
//! by server-sent events. Pure.

use super::{Decoder, Fault, Origin, Provider, Request, Wire};

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
    fn encode(&self, _: &Request<'_>, _: &Origin<'_>) -> Result<Wire, Fault> {
        Err(Fault::Ours(format!("the protocol of `{}` is being built", self.provider)))
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        super::openai_chat::OpenAiChat::new(&self.provider).decoder()
    }
}
