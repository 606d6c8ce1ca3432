//! A server that speaks another protocol than a model's, as those who speak to it
//! see it: what a request needs, and the words for what goes wrong. It knows the
//! secrets of its server.

use ureq::http::header::HeaderMap;
use ureq::tls::RootCerts;
use ureq::{Agent, Timeout};

use super::agent::{agent, header_of, secrets};
use super::fault::{cause, is_distrust};
use super::roots::certificates;
use crate::config::Endpoint;
use crate::secret::Redactor;

/// A server that is no model's.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    redactor: Redactor,
}

impl Client {
    /// For that server.
    pub fn new(endpoint: &Endpoint) -> Self {
        let redactor = Redactor::new();
        secrets(endpoint).iter().for_each(|it| redactor.learn(it));
        Self { endpoint: endpoint.clone(), redactor }
    }

    /// Where requests go; its query may hold a secret.
    pub fn url(&self) -> &str {
        &self.endpoint.base_url
    }

    /// An agent that keeps one connection and follows no redirect. With a
    /// `caFile` its authorities are trusted and no others. The error says what
    /// is wrong with the configuration.
    pub fn agent(&self) -> Result<Agent, String> {
        let roots = match &self.endpoint.ca_file {
            Some(path) => RootCerts::from(certificates(path)?),
            None => RootCerts::WebPki,
        };
        agent(&self.endpoint, roots).map_err(|_| "`proxy` is not the URL of a proxy".to_owned())
    }

    /// These headers, and those of the configuration, which replace them.
    pub fn headers(&self, ours: &[(&str, &str)]) -> Result<HeaderMap, String> {
        let theirs = self.endpoint.headers.iter().map(|(name, it)| (name.as_str(), it.expose()));
        let all = ours.iter().copied().chain(theirs);
        let pair = |(name, value)| header_of(name, value).map_err(|it| format!("a header: {it}"));
        all.map(pair).collect()
    }

    /// Why it was not reached, or did not answer, and what to check, as what it
    /// does; without a secret.
    pub fn told(&self, error: &ureq::Error) -> String {
        // What follows the host may be a key.
        let url = self.url().splitn(4, ['/', '?']).take(3).collect::<Vec<_>>().join("/");
        let what = match error {
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                let seconds = self.endpoint.timeouts.connect.as_secs_f64();
                format!("was not reached at {url} within {seconds} s")
            }
            ureq::Error::Timeout(_) => format!("does not answer in time at {url}"),
            _ if is_distrust(error) && url.starts_with("https:") => format!(
                "is not trusted at {url}: {}; the certificate of an own authority belongs \
                 in `caFile`",
                cause(error)
            ),
            _ => {
                let cause = cause(error);
                format!("is not reached at {url}: {cause}; check that it runs, and its `url`")
            }
        };
        self.mask(&what)
    }

    /// A text without a secret of this server.
    pub fn mask(&self, text: &str) -> String {
        self.redactor.mask(&text[..self.redactor.settled(text)]).into_owned()
    }
}
