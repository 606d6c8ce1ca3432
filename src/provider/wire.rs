//! A request in a provider's words, on its way to the one place that sends it.

use serde::Serialize;

use super::Fault;

/// A request in a provider's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Below the provider's base URL.
    pub path: String,
    /// Further headers; never one that holds a key.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Wire {
    /// A question in JSON that is answered by server-sent events.
    pub(super) fn asking(path: impl Into<String>, body: &impl Serialize) -> Result<Self, Fault> {
        let body = serde_json::to_vec(body)
            .map_err(|it| Fault::Ours(format!("cannot write the request: {it}")))?;
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        Ok(Self { path: path.into(), headers: Vec::new(), body }.with(headers))
    }

    /// The same with further headers.
    pub(super) fn with<'a>(
        mut self,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let owned = headers.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.headers.extend(owned);
        self
    }
}
