//! The dialect `anthropic-messages`: `POST {base}/v1/messages`, answered
//! by server-sent events. Pure.

use super::{Decoder, Fault, Origin, Provider, Request, Wire};

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
    fn encode(&self, _: &Request<'_>, _: &Origin<'_>) -> Result<Wire, Fault> {
        Err(Fault::Ours(format!("the protocol of `{}` is being built", self.provider)))
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        super::openai_chat::OpenAiChat::new(&self.provider).decoder()
    }
}
