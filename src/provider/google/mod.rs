//! The dialect `google-generative-ai`: `POST {base}/models/{model}:streamGenerateContent?alt=sse`, answered
//! by server-sent events. Pure.

use super::{Decoder, Fault, Origin, Provider, Request, Wire};

/// The dialect of one provider.
#[derive(Debug)]
pub(super) struct Google {
    provider: String,
}

impl Google {
    /// The dialect of the provider of this name, which errors tell.
    pub(super) fn new(provider: &str) -> Self {
        Self { provider: provider.to_owned() }
    }
}

impl Provider for Google {
    fn encode(&self, _: &Request<'_>, _: &Origin<'_>) -> Result<Wire, Fault> {
        Err(Fault::Ours(format!("the protocol of `{}` is being built", self.provider)))
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        super::openai_chat::OpenAiChat::new(&self.provider).decoder()
    }
}
