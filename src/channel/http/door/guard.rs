//! Who may call: `Host`, `Origin`, token. Pure functions over a request's
//! head, asked before any body is read. Nothing here grants a right within
//! the gateway; it only says who is let through the door.

use std::net::IpAddr;

use super::head::Head;
use super::stream::Way;
use crate::channel::http::answer::Answer;
use crate::channel::http::token;
use crate::secret::Secret;

/// Whom the door lets in.
#[derive(Clone, Debug)]
pub(in crate::channel::http) struct Guard {
    /// The address as configured, without port: a name or a number.
    pub(in crate::channel::http) host: String,
    /// Further names that clients may call the gateway by.
    pub(in crate::channel::http) allowed_hosts: Vec<String>,
    /// What callers over TCP must show; `None` if `gateway.auth` is `none`.
    pub(in crate::channel::http) token: Option<Secret>,
}

/// Who calls, as far as the door can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// Whoever may do everything.
    Owner,
    /// Whoever showed no token: `GET /api/health` and nothing else.
    Stranger,
}

impl Guard {
    /// Says who calls, or how the request is refused.
    pub(super) fn admit(&self, head: &Head, way: Way) -> Result<Caller, Answer> {
        if let Way::Tcp(local) = way {
            self.check_host(head.host.as_deref(), local)?;
        }
        check_origin(head, way)?;
        let known = match (way, &self.token) {
            (Way::Unix, _) | (Way::Tcp(_), None) => true,
            (Way::Tcp(_), Some(token)) => shows(head.authorization.as_deref(), token),
        };
        match known {
            true => Ok(Caller::Owner),
            false if is_health(head) => Ok(Caller::Stranger),
            false => {
                let mend = "show, as a bearer token, what the file api-token in the gateway's \
                            state folder holds";
                Err(Answer::error(401, mend).with("WWW-Authenticate", "Bearer"))
            }
        }
    }

    /// Against DNS rebinding: a page that resolves its own name to this
    /// machine sends that name.
    fn check_host(&self, given: Option<&str>, local: IpAddr) -> Result<(), Answer> {
        let named = given.and_then(name_of).is_some_and(|name| self.is_ours(name, local));
        if named {
            return Ok(());
        }
        let mend = "this name is not the gateway's; list it in gateway.allowedHosts";
        Err(Answer::error(403, format!("Host: {mend}")))
    }

    fn is_ours(&self, name: &str, local: IpAddr) -> bool {
        let listed = self.allowed_hosts.iter().chain([&self.host]);
        let is_listed = listed.map(|it| without_brackets(it)).any(|it| is_same_name(it, name));
        is_listed || name.eq_ignore_ascii_case("localhost") || name.parse() == Ok(local)
    }
}

/// A web page must not drive the gateway, unless the gateway served it.
fn check_origin(head: &Head, way: Way) -> Result<(), Answer> {
    let Some(origin) = &head.origin else { return Ok(()) };
    let own = match (way, &head.host) {
        (Way::Tcp(_), Some(host)) => origin.eq_ignore_ascii_case(&format!("http://{host}")),
        _ => false,
    };
    if own {
        return Ok(());
    }
    Err(Answer::error(403, "Origin: web pages of other origins may not call the gateway"))
}

fn shows(authorization: Option<&str>, token: &Secret) -> bool {
    let Some((scheme, given)) = authorization.and_then(|it| it.split_once(' ')) else {
        return false;
    };
    let same = token::is_same(given.trim().as_bytes(), token.expose().as_bytes());
    scheme.eq_ignore_ascii_case("bearer") && same
}

/// What a caller without token may ask: with no body, so that nobody unknown
/// makes the gateway keep anything.
fn is_health(head: &Head) -> bool {
    let path = head.target.split('?').next();
    head.method == "GET" && path == Some("/api/health") && head.has_no_body()
}

/// The name in `name`, `name:port`, `[v6]`, `[v6]:port`; `None` if it is none
/// of them. The port is not looked at: a forwarded one is no danger.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |it: &str| it.len() <= 5 && it.bytes().all(|digit| digit.is_ascii_digit());
    let port_is_sound = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    (!name.is_empty() && port_is_sound).then_some(name)
}

fn is_same_name(ours: &str, given: &str) -> bool {
    let same_address = || ours.parse::<IpAddr>().is_ok_and(|it| given.parse() == Ok(it));
    ours.eq_ignore_ascii_case(given) || same_address()
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const TCP: Way = Way::Tcp(IpAddr::V4(Ipv4Addr::LOCALHOST));

    #[track_caller]
    fn check(way: Way, target: &str, headers: &str, want: Result<Caller, u16>) {
        let guard = Guard {
            host: "127.0.0.1".into(),
            allowed_hosts: vec!["beige.lan".into(), "[fd00::1]".into()],
            token: Some(Secret::new("s3cret")),
        };
        let text = format!("{target} HTTP/1.1\r\n{headers}\r\n");
        let head = Head::parse(text.as_bytes()).map_err(|it| it.status);
        let caller = head.and_then(|it| guard.admit(&it, way).map_err(|answer| answer.status));
        assert_eq!(caller, want, "{text}");
    }

    #[track_caller]
    fn check_host(host: &str, want: Result<Caller, u16>) {
        let headers = format!("Host: {host}\r\nAuthorization: Bearer s3cret\r\n");
        check(TCP, "GET /", &headers, want);
    }

    #[test]
    fn only_our_own_names_pass_as_host() {
        for ours in ["127.0.0.1", "localhost:7433", "LOCALHOST", "Beige.LAN:1", "[fd00::1]:7433"] {
            check_host(ours, Ok(Caller::Owner));
        }
        for foreign in
            ["evil.example", "localhost.", "127.1", "localhost@evil", "localhost:x", "[::1]", ""]
        {
            check_host(foreign, Err(403));
        }
    }

    #[test]
    fn an_origin_passes_only_if_it_is_the_gateways_own() {
        let with = |origin| {
            format!("Host: localhost:7433\r\nOrigin: {origin}\r\nAuthorization: Bearer s3cret\r\n")
        };
        check(TCP, "POST /", &with("http://localhost:7433"), Ok(Caller::Owner));
        for foreign in
            ["http://evil.example", "null", "http://localhost:80", "https://localhost:7433"]
        {
            check(TCP, "POST /", &with(foreign), Err(403));
            check(Way::Unix, "POST /", &with(foreign), Err(403));
        }
        check(Way::Unix, "POST /", &with("http://localhost:7433"), Err(403));
    }

    #[test]
    fn over_tcp_a_token_is_needed_but_for_health() {
        let host = "Host: localhost\r\n";
        let with = |it| format!("{host}Authorization: {it}\r\n");
        check(TCP, "GET /api/agents", &with("bearer s3cret"), Ok(Caller::Owner));
        for wrong in ["Bearer s3cre", "Bearer", "Basic s3cret", "Bearer s3cret s3cret", "s3cret"] {
            check(TCP, "GET /api/agents", &with(wrong), Err(401));
        }
        check(TCP, "GET /api/agents", host, Err(401));
        check(TCP, "GET /api/health", host, Ok(Caller::Stranger));
        check(TCP, "GET /api/health?x=1", host, Ok(Caller::Stranger));
        check(TCP, "GET /api/healthy", host, Err(401));
        check(TCP, "POST /api/health", host, Err(401));
        check(TCP, "GET /api/health", "Host: localhost\r\nContent-Length: 1\r\n", Err(401));
        check(Way::Unix, "GET /api/agents", "Host: whatever\r\n", Ok(Caller::Owner));
    }

    #[test]
    fn even_health_is_not_told_to_a_foreign_name_or_page() {
        check(TCP, "GET /api/health", "Host: evil.example\r\n", Err(403));
        let page = "Host: localhost\r\nOrigin: http://evil.example\r\n";
        check(TCP, "GET /api/health", page, Err(403));
    }
}
