//! Downloads what a plugin is installed from: bounded in bytes and time, over
//! TLS but for this very host, by the proxy and the authorities that the
//! environment names. Follows redirects itself, so that no token goes to another
//! host and nobody is led from TLS to plain HTTP.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ureq::http::{Response, StatusCode, Uri, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

use crate::config::{Environment, proxy_of_environment};
use crate::error::{Error, Kind, Result};
use crate::provider::certificates;
use crate::secret::Secret;

/// How long a name's address and a connection may take, each.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a server may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// Redirects that are followed for one answer.
const MOST_REDIRECTS: usize = 5;

/// Largest head of an answer, in bytes.
const LARGEST_HEAD: usize = 32 * 1024;

/// Most of an address that is shown, in characters.
const LONGEST_SHOWN: usize = 200;

/// Names a file of certificate authorities that count in place of the built-in.
const CA_FILE: &str = "SSL_CERT_FILE";

/// How this host gets at others, and for how long.
pub struct Net<'a> {
    /// Names proxies, authorities, addresses and tokens.
    pub environment: &'a Environment<'a>,
    /// Everything has ended by then.
    pub deadline: Instant,
    /// Is told how many bytes of an answer have come.
    pub progress: &'a dyn Fn(u64),
}

/// What is asked for.
pub(super) struct Wanted<'a> {
    pub(super) url: &'a str,
    /// The media types that are understood.
    pub(super) accept: &'a str,
    /// For the host of `url`, and none that it leads to.
    pub(super) token: Option<Secret>,
    /// Most bytes of an answer.
    pub(super) largest: u64,
}

/// Whether plain HTTP may be spoken, and who gets the token.
struct Origin {
    is_this_host: bool,
    authority: String,
}

impl Net<'_> {
    /// A variable of the environment that is set to something.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name)?.into_string().ok().filter(|it| !it.is_empty())
    }

    /// Hands the answer on as it comes. [`Kind::Missing`] for what is not there.
    pub(super) fn fetch(
        &self,
        wanted: &Wanted<'_>,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let place = shown(wanted.url);
        let answer = self.answer(wanted).map_err(|it| it.within(format!("get {place}")))?;
        let mut body = answer.into_body().into_reader();
        let (mut piece, mut total) = (vec![0; 16 * 1024], 0);
        loop {
            let count = match body.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    let what = format!("get {place}: it broke off: {error}");
                    return Err(Error::new(Kind::Busy, what));
                }
            };
            total += count as u64;
            if total > wanted.largest {
                let what = format!("{place} has more than {} MiB", wanted.largest >> 20);
                return Err(Error::new(Kind::TooLarge, what));
            }
            take(&piece[..count])?;
            (self.progress)(total);
        }
    }

    fn answer(&self, wanted: &Wanted<'_>) -> Result<Response<Body>> {
        let mut uri = address(wanted.url)?;
        let origin = Origin::of(&uri);
        for _ in 0..=MOST_REDIRECTS {
            origin.check(&uri)?;
            let answer = self.ask(&uri, wanted, &origin)?;
            let status = answer.status();
            if status.is_success() {
                return Ok(answer);
            }
            let place = answer.headers().get(header::LOCATION).and_then(|it| it.to_str().ok());
            uri = match place.filter(|_| status.is_redirection()) {
                Some(place) => led(&uri, place)?,
                None => return Err(refusal(&uri, status)),
            };
        }
        Err(Error::new(Kind::Denied, "it leads from one address to the next without end"))
    }

    fn ask(&self, uri: &Uri, wanted: &Wanted<'_>, origin: &Origin) -> Result<Response<Body>> {
        let mut request = self.agent(uri)?.get(uri).header(header::ACCEPT, wanted.accept);
        if let Some(token) = wanted.token.as_ref().filter(|_| origin.is_at(uri)) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        request.call().map_err(|error| {
            // Without ureq's `io:`, which says nothing to a person.
            let cause = match &error {
                ureq::Error::Io(cause) => cause.to_string(),
                ureq::Error::Timeout(_) => "it took too long".to_owned(),
                other => other.to_string(),
            };
            let what = format!(
                "{} was not reached: {cause}; check the network, HTTPS_PROXY and {CA_FILE}, or \
                 install a folder or .tar.gz of this host, which needs none",
                uri.authority().map_or("it", |it| it.as_str()),
            );
            Error::new(Kind::Busy, what)
        })
    }

    fn agent(&self, uri: &Uri) -> Result<Agent> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::new(Kind::Timeout, "there is no time left for it"));
        }
        let proxy = match proxy_of_environment(uri, self.environment) {
            None => None,
            Some((url, variable)) => Some(Proxy::new(&url).map_err(|_| {
                Error::new(Kind::Usage, format!("{variable} is not the URL of a proxy"))
            })?),
        };
        let roots = match self.variable(CA_FILE) {
            None => RootCerts::WebPki,
            Some(path) => certificates(Path::new(&path))
                .map(RootCerts::from)
                .map_err(|it| Error::new(Kind::Usage, format!("{CA_FILE}: {it}")))?,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy)
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .user_agent(concat!("beige/", env!("CARGO_PKG_VERSION")))
            .max_response_header_size(LARGEST_HEAD)
            .timeout_global(Some(left))
            .timeout_resolve(Some(CONNECT.min(left)))
            .timeout_connect(Some(CONNECT.min(left)))
            .timeout_per_read(Some(SILENCE.min(left)))
            .build();
        Ok(config.into())
    }
}

impl Origin {
    fn of(uri: &Uri) -> Self {
        Self { is_this_host: is_this_host(uri), authority: authority(uri) }
    }

    /// Refuses to go on in the clear, and to be led from outside to this host.
    fn check(&self, uri: &Uri) -> Result<()> {
        let is_safe = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => self.is_this_host && is_this_host(uri),
            _ => false,
        };
        if is_safe {
            return Ok(());
        }
        let what = format!(
            "{} is refused: only https is spoken, and http with this host",
            shown(&uri.to_string())
        );
        Err(Error::new(Kind::Denied, what))
    }

    fn is_at(&self, uri: &Uri) -> bool {
        authority(uri) == self.authority
    }
}

/// Scheme, host and port.
fn authority(uri: &Uri) -> String {
    let port = uri.port_u16().map_or_else(String::new, |it| it.to_string());
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    format!("{}://{host}:{port}", uri.scheme_str().unwrap_or_default())
}

/// So much of an address as people may see: it can hold a login, and what others
/// wrote.
fn shown(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = bare.split_once("://").map_or(("", bare), |(it, rest)| (it, rest));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let mark = if scheme.is_empty() { "" } else { "://" };
    let whole = format!("{scheme}{mark}{host}{path}");
    whole.replace(char::is_control, "?").chars().take(LONGEST_SHOWN).collect()
}

fn is_this_host(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
}

/// An address without a login in it, which would be shown with it.
fn address(text: &str) -> Result<Uri> {
    let uri = text.parse::<Uri>().ok().filter(|it| it.host().is_some());
    let uri = uri.filter(|it| it.authority().is_some_and(|it| !it.as_str().contains('@')));
    uri.ok_or_else(|| {
        Error::new(Kind::Denied, "it is no address that begins with https:// and a host")
    })
}

/// Where a redirect leads.
fn led(from: &Uri, place: &str) -> Result<Uri> {
    let whole = match place.starts_with('/') && !place.starts_with("//") {
        true => {
            let authority = from.authority().map_or("", |it| it.as_str());
            format!("{}://{authority}{place}", from.scheme_str().unwrap_or_default())
        }
        false => place.to_owned(),
    };
    address(&whole).map_err(|it| it.within("follow its redirect"))
}

fn refusal(uri: &Uri, status: StatusCode) -> Error {
    let host = uri.host().unwrap_or_default();
    let (kind, hint) = match status.as_u16() {
        404 | 410 => (Kind::Missing, "there is no such thing, or not for you"),
        401 | 403 | 429 => (Kind::Denied, "it wants to know who asks, or was asked too often"),
        _ => (Kind::Busy, "try again later"),
    };
    Error::new(kind, format!("{host} answers {}: {hint}", status.as_u16()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &str, place: &str, want: Result<(&str, bool), ()>) {
        let uri = address(from).unwrap_or_else(|it| panic!("{it}"));
        let origin = Origin::of(&uri);
        let led = led(&uri, place).and_then(|it| origin.check(&it).map(|()| it));
        let led = led.map(|it| (it.to_string(), origin.is_at(&it))).map_err(|_| ());
        assert_eq!(led, want.map(|(it, has_token)| (it.to_owned(), has_token)), "{place}");
    }

    #[test]
    fn a_redirect_stays_with_tls_and_takes_the_token_nowhere_else() {
        let from = "https://api.example.org/x";
        check(from, "/y?z", Ok(("https://api.example.org/y?z", true)));
        check(
            from,
            "https://api.example.org:8443/y",
            Ok(("https://api.example.org:8443/y", false)),
        );
        check(from, "https://code.example.org/y", Ok(("https://code.example.org/y", false)));
        for bad in [
            "http://api.example.org/y",
            "http://127.0.0.1/y",
            "http://localhost/y",
            "//code.example.org/y",
            "y",
            "file:///etc/hostname",
            "https://me:secret@example.org/",
            "https:///y",
            "",
        ] {
            check(from, bad, Err(()));
        }
    }

    #[test]
    fn plain_http_is_for_this_host_alone() {
        for from in ["http://127.0.0.1:80/x", "http://localhost:80/x", "http://[::1]:80/x"] {
            check(from, "http://127.0.0.2/y", Ok(("http://127.0.0.2/y", false)));
            check(from, "http://example.org/y", Err(()));
        }
        let uri = address("http://example.org/x").unwrap_or_default();
        assert!(Origin::of(&uri).check(&uri).is_err());
    }

    #[test]
    fn what_is_shown_of_an_address_holds_no_login_no_query_and_no_command_to_a_terminal() {
        let check = |url: &str, want: &str| assert_eq!(shown(url), want);
        check("https://me:secret@example.org/x@1?token=secret#y", "https://example.org/x@1");
        check("https://example.org/a\u{1b}[2Jb\nc", "https://example.org/a?[2Jb?c");
        check("@?#", "");
        assert_eq!(shown(&"x".repeat(9999)).len(), LONGEST_SHOWN);
    }
}
