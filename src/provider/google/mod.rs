//! The dialect `google-generative-ai`:
//! `POST {base}/models/{model}:streamGenerateContent?alt=sse`, answered by
//! server-sent events. Pure. What is sent is only what the protocol knows; what
//! comes is read with every field optional.

mod decode;
mod encode;
mod family;
mod objects;
mod schema;
mod usage;

use super::once::Once;
use super::{Decoder, Fault, Origin, Provider, Request, Wire};
use decode::Answer;

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
    fn encode(&self, request: &Request<'_>, origin: &Origin<'_>) -> Result<Wire, Fault> {
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        Ok(Wire {
            path: path(&request.model.model),
            headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
            body: encode::body(request, origin)?,
        })
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Once::new(Answer::new(&self.provider)))
    }

    fn question(&self, _base_url: &str) -> Wire {
        // One page, as long as one may be.
        Wire { path: "/models?pageSize=1000".into(), ..Wire::default() }
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }
}

/// Where a model is asked. Its id may say of which collection it is, as the
/// provider's own list of models has it.
fn path(id: &str) -> String {
    let (collection, id) = match id.split_once('/') {
        Some((collection @ ("models" | "tunedModels"), id)) => (collection, id),
        _ => ("models", id),
    };
    format!("/{collection}/{}:streamGenerateContent?alt=sse", escaped(id))
}

/// An id as one segment of a path.
fn escaped(id: &str) -> String {
    let mut segment = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            segment.push(char::from(byte));
        } else {
            segment.push_str(&format!("%{byte:02X}"));
        }
    }
    segment
}

#[cfg(test)]
mod tests {
    mod decode;
    mod encode;
    mod hostile;
    mod transcripts;

    use super::path;

    #[test]
    fn a_model_is_asked_by_its_id_however_it_is_written() {
        let ask = ":streamGenerateContent?alt=sse";
        for (id, want) in [
            ("gemini-3.1-pro", "/models/gemini-3.1-pro"),
            ("models/gemini-3.1-pro", "/models/gemini-3.1-pro"),
            ("tunedModels/mine", "/tunedModels/mine"),
            ("google/gemini é?", "/models/google%2Fgemini%20%C3%A9%3F"),
            ("models/../x", "/models/..%2Fx"),
        ] {
            assert_eq!(path(id), format!("{want}{ask}"));
        }
    }
}
