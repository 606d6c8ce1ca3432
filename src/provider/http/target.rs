//! The server of one provider: how it is connected to, the request's head, and
//! the words for what it does wrong. Knows the secrets of this server, and
//! masks them in all that is said of it.

use std::path::Path;

use ureq::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ureq::http::response::Parts;
use ureq::http::{Request, Response};
use ureq::tls::RootCerts;
use ureq::{Agent, Body, SendBody};

use super::Outgoing;
use super::agent::{self, header_of, secrets};
use crate::clock;
use crate::config::{Endpoint, Timeouts};
use crate::provider::{Fault, Wire, failure};
use crate::secret::Redactor;

/// The server of one provider.
pub(in crate::provider) struct Target {
    provider: String,
    endpoint: Endpoint,
    key_header: (&'static str, &'static str),
    redactor: Redactor,
}

impl Target {
    /// `key_header`: the header that holds the key, and what stands before it.
    pub(in crate::provider) fn new(
        provider: &str,
        endpoint: &Endpoint,
        key_header: (&'static str, &'static str),
    ) -> Self {
        let redactor = Redactor::new();
        secrets(endpoint).iter().for_each(|it| redactor.learn(it));
        let (provider, endpoint) = (provider.to_owned(), endpoint.clone());
        Self { provider, endpoint, key_header, redactor }
    }

    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    /// `https://host:port/path`, which holds no secret.
    pub(in crate::provider) fn url(&self) -> &str {
        &self.endpoint.base_url
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        self.endpoint.timeouts
    }

    pub(super) fn ca_file(&self) -> Option<&Path> {
        self.endpoint.ca_file.as_deref()
    }

    pub(super) fn is_secure(&self) -> bool {
        self.endpoint.base_url.starts_with("https:")
    }

    pub(super) fn has_proxy(&self) -> bool {
        self.endpoint.proxy.is_some()
    }

    /// The place of a setting of this provider.
    pub(super) fn setting(&self, name: &str) -> String {
        format!("llm.providers.{}.{name}", self.provider)
    }

    /// An agent that keeps one connection.
    pub(in crate::provider) fn agent(&self, roots: RootCerts) -> Result<Agent, Fault> {
        agent::agent(&self.endpoint, roots).map_err(|_| {
            Fault::Ours(format!("`{}` is not the URL of a proxy", self.setting("proxy")))
        })
    }

    /// The request: the dialect's headers, the key, and a person's headers,
    /// which replace both.
    pub(super) fn request<'a>(
        &self,
        wire: &Wire,
        body: &'a mut Outgoing<'_>,
    ) -> Result<Request<SendBody<'a>>, Fault> {
        let length = wire.body.len();
        let url = format!("{}{}", self.url(), wire.path);
        let request = Request::post(url).body(SendBody::from_reader(body));
        let mut request = request.map_err(|it| self.unsendable(&it))?;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        for (name, value) in &wire.headers {
            let (name, value) = self.header(name, value)?;
            headers.insert(name, value);
        }
        self.introduce(headers)?;
        Ok(request)
    }

    /// A question without a body: the dialect's headers, the key, and a
    /// person's headers.
    pub(in crate::provider) fn question(&self, wire: &Wire) -> Result<Request<()>, Fault> {
        let request = Request::get(format!("{}{}", self.url(), wire.path)).body(());
        let mut request = request.map_err(|it| self.unsendable(&it))?;
        for (name, value) in &wire.headers {
            let (name, value) = self.header(name, value)?;
            request.headers_mut().insert(name, value);
        }
        self.introduce(request.headers_mut())?;
        Ok(request)
    }

    /// Says who asks.
    fn introduce(&self, headers: &mut HeaderMap) -> Result<(), Fault> {
        if let Some(key) = &self.endpoint.api_key {
            let (name, before) = self.key_header;
            let (name, value) = self.header(name, &format!("{before}{}", key.expose()))?;
            headers.insert(name, value);
        }
        for (name, value) in &self.endpoint.headers {
            let (name, value) = self.header(name, value.expose())?;
            headers.insert(name, value);
        }
        Ok(())
    }

    /// The provider said no: its status, its headers, its own words.
    pub(super) fn refused(&self, head: &Parts, body: &[u8]) -> Fault {
        let text = String::from_utf8_lossy(body);
        // A secret that is cut in two would not be known.
        let text = self.redactor.mask(&text[..self.redactor.settled(&text)]).into_owned();
        let status = head.status.as_u16();
        let (headers, now) = (readable(head), clock::now());
        failure::of_response(&self.provider, status, &headers, text.as_bytes(), now)
    }

    /// The server sends us elsewhere, where no key may go.
    pub(super) fn redirected(&self, response: &Response<Body>) -> Fault {
        let place = response.headers().get(header::LOCATION).and_then(|it| it.to_str().ok());
        // Masked before it is shortened: half a secret would not be known.
        let place = place.map(|it| shortened(&self.redactor.mask(it)));
        Fault::Refused(format!(
            "the provider `{}` at {} sent a redirect ({}) to {}, which is not followed, since \
             the key would go with it; `{}` must be the right address itself",
            self.provider,
            self.url(),
            response.status().as_u16(),
            place.as_deref().unwrap_or("nowhere"),
            self.setting("baseUrl"),
        ))
    }

    /// The answer is packed, as by a proxy that asks nobody.
    pub(super) fn unreadable(&self, coding: &str) -> Fault {
        Fault::Unavailable(format!(
            "the answer of the provider `{}` is packed (`Content-Encoding: {}`), which was not \
             asked for and is not read; check what stands behind `{}`",
            self.provider,
            shortened(&self.redactor.mask(coding)),
            self.setting("baseUrl"),
        ))
    }

    /// The server does not stop.
    pub(super) fn endless(&self, most: usize) -> Fault {
        Fault::Cut(format!(
            "the answer of the provider `{}` was cut off after {most} bytes, the most that is read",
            self.provider
        ))
    }

    /// The same fault without a secret of this server.
    pub(in crate::provider) fn mask(&self, fault: Fault) -> Fault {
        fault.map_text(|it| self.redactor.mask(&self.whole(&it)).into_owned())
    }

    /// The text without what could be the first half of a secret before `…`,
    /// where a dialect has shortened the words of a provider.
    fn whole(&self, text: &str) -> String {
        let mut parts: Vec<&str> = text.split('…').collect();
        let last = parts.pop().unwrap_or_default();
        let kept = parts.into_iter().map(|it| &it[..self.redactor.settled(it)]);
        kept.chain([last]).collect::<Vec<_>>().join("…")
    }

    fn header(&self, name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Fault> {
        header_of(name, value).map_err(|it| self.unsendable(&it))
    }

    fn unsendable(&self, error: &dyn std::fmt::Display) -> Fault {
        Fault::Ours(format!("make a request to the provider `{}`: {error}", self.provider))
    }
}

/// The headers that are text, by their names in lower case.
fn readable(head: &Parts) -> Vec<(String, String)> {
    let pair = |(name, value): (&HeaderName, &HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    head.headers.iter().filter_map(pair).collect()
}

/// So much of a foreign text as fits into a sentence.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}
