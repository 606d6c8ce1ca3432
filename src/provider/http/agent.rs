//! How a server is connected to: TLS, proxy, time limits and what is kept of a
//! connection, the same for all who speak to one.

use std::net::IpAddr;
use std::time::Duration;

use ureq::http::{HeaderName, HeaderValue, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    ConnectProxyConnector, Connector, RustlsConnector, SocksConnector,
};
use ureq::{Agent, Proxy};

use super::line::Dial;
use crate::config::{Endpoint, Timeouts};

/// Largest head of a response, in bytes.
const LARGEST_HEAD: usize = 16 * 1024;

/// What ureq reads into, in bytes, a whole head among it; there are two where
/// TLS is spoken, and they are there as long as the connection is kept.
const INPUT: usize = LARGEST_HEAD + 1024;

/// What it writes from: a line of the request's head must fit.
const OUTPUT: usize = 8 * 1024;

/// How long a connection is kept without a call: shorter than routers forget
/// it, which nobody would tell.
const KEPT: Duration = Duration::from_secs(50);

/// How much longer than the caller ureq itself waits for the socket.
const BACKSTOP: Duration = Duration::from_secs(10);

/// A header of a request.
pub(super) fn header_of(
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), ureq::http::Error> {
    let name = HeaderName::try_from(name)?;
    let mut value = HeaderValue::try_from(value)?;
    // Not a word of it in a log of ureq's.
    value.set_sensitive(true);
    Ok((name, value))
}

/// An agent that keeps one connection; an error is the proxy's URL.
pub(super) fn agent(endpoint: &Endpoint, roots: RootCerts) -> Result<Agent, ureq::Error> {
    let proxy = endpoint.proxy.as_ref().map(|it| through(it.expose())).transpose()?;
    let Timeouts { connect, first_byte, idle } = endpoint.timeouts;
    let silence = first_byte.max(idle).saturating_add(BACKSTOP);
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(proxy)
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .user_agent(concat!("beige/", env!("CARGO_PKG_VERSION")))
        .accept("text/event-stream, application/json")
        .max_idle_age(KEPT)
        .max_idle_connections(1)
        .max_idle_connections_per_host(1)
        .max_response_header_size(LARGEST_HEAD)
        .input_buffer_size(INPUT)
        .output_buffer_size(OUTPUT)
        .timeout_resolve(is_named(endpoint).then_some(connect))
        .timeout_connect(Some(connect))
        .timeout_per_read(Some(silence))
        .timeout_per_write(Some(silence))
        .build();
    // As ureq does it, but for the connection itself.
    let connector =
        ().chain(SocksConnector::default())
            .chain(ConnectProxyConnector::default())
            .chain(Dial { stall: first_byte / 2 })
            .chain(RustlsConnector::default());
    Ok(Agent::with_parts(config, connector, DefaultResolver::default()))
}

/// Whether a name is looked up on the way: with a time limit ureq does that
/// on a thread of its own, for each call, also where a connection is kept.
pub(super) fn is_named(endpoint: &Endpoint) -> bool {
    let uri = endpoint.base_url.parse::<Uri>().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    endpoint.proxy.is_some() || !is_address
}

/// A proxy, which is given names and looks them up itself.
fn through(url: &str) -> Result<Proxy, ureq::Error> {
    match url.strip_prefix("socks5://") {
        Some(rest) => Proxy::new(&format!("socks5h://{rest}")),
        None => Proxy::new(url),
    }
}

/// Everything of an endpoint that must not be seen, in each form in which a
/// server or a proxy could repeat it.
pub(super) fn secrets(endpoint: &Endpoint) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(endpoint.api_key.iter().map(|it| it.expose().to_owned()));
    for (_, value) in &endpoint.headers {
        let value = value.expose();
        found.push(value.to_owned());
        // `Bearer KEY`, of which the key alone may come back.
        found.extend(value.split_once(' ').map(|it| it.1.to_owned()));
    }
    // A key may stand in the query of a plugin's URL.
    let query = endpoint.base_url.split_once('?').map_or("", |it| it.1);
    found.extend(query.split('&').filter_map(|it| it.split_once('=')).map(|it| it.1.to_owned()));
    if let Some(url) = &endpoint.proxy {
        let authority = url.expose().split_once("://").map_or(url.expose(), |it| it.1);
        if let Some((login, _)) = authority.rsplit_once('@') {
            found.push(login.to_owned());
            found.extend(login.split_once(':').map(|it| it.1.to_owned()));
        }
        if let Ok(proxy) = Proxy::new(url.expose()) {
            found.extend(proxy.password().map(str::to_owned));
        }
    }
    found
}
