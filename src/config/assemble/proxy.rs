//! Which proxy a connection takes when the configuration names none: what the
//! environment says, by the customs of other programs. Pure.

use ureq::http::Uri;

use crate::config::Environment;

/// The URL, and the variable that names it. `NO_PROXY` excludes hosts.
pub(crate) fn of_environment(
    target: &Uri,
    environment: &Environment<'_>,
) -> Option<(String, &'static str)> {
    let read = |name: &str| environment(name)?.into_string().ok().filter(|it| !it.is_empty());
    let excluded = read("NO_PROXY").or_else(|| read("no_proxy")).unwrap_or_default();
    if is_excluded(target, &excluded) {
        return None;
    }
    let of_tls = ["HTTPS_PROXY", "https_proxy"];
    let of_all = ["ALL_PROXY", "all_proxy"];
    let is_tls = target.scheme_str() == Some("https");
    let names = of_tls.into_iter().filter(|_| is_tls).chain(of_all);
    names.into_iter().find_map(|name| Some((read(name)?, name)))
}

/// Why a proxy's URL cannot be used; says nothing of its parts, which may hold
/// a password.
pub(super) fn wrong_with(url: &str) -> Option<&'static str> {
    let known = url.starts_with("http://") || url.starts_with("socks5://");
    if !known {
        return Some("a proxy must be a URL that begins with http:// or socks5://");
    }
    ureq::Proxy::new(url).is_err().then_some("this proxy is not a URL of a host and a port")
}

/// Whether a list such as `localhost,.example.org,10.0.0.1:8080` names a host.
fn is_excluded(target: &Uri, list: &str) -> bool {
    let host = target.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let with_port = target.port_u16().map(|it| format!("{host}:{it}"));
    list.split(',').map(|it| it.trim().to_ascii_lowercase()).filter(|it| !it.is_empty()).any(|it| {
        let domain = it.trim_start_matches("*.").trim_start_matches('.');
        it == "*"
            || host == domain
            || host.ends_with(&format!(".{domain}"))
            || with_port.as_deref() == Some(domain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(target: &str, variables: &[(&str, &str)], want: Option<&str>) {
        let environment = |name: &str| {
            let found = variables.iter().find(|it| it.0 == name)?;
            Some(found.1.into())
        };
        let target = target.parse().unwrap_or_default();
        let got = of_environment(&target, &environment);
        assert_eq!(got.map(|it| it.0).as_deref(), want);
    }

    #[test]
    fn the_environment_names_a_proxy() {
        let (tls, all) = (("HTTPS_PROXY", "http://tls:1"), ("ALL_PROXY", "socks5://all:1"));
        check("https://a/v1", &[tls, all], Some("http://tls:1"));
        check("http://a/v1", &[tls, all], Some("socks5://all:1"));
        check("http://a/v1", &[tls], None);
        check("https://a/v1", &[("https_proxy", "http://low:1")], Some("http://low:1"));
        check("https://a/v1", &[("HTTPS_PROXY", "")], None);
    }

    #[test]
    fn excluded_hosts_are_reached_directly() {
        let all = ("ALL_PROXY", "http://p:1");
        for list in ["a.b.c", ".b.c", "b.c", "*.c", "*", "x, a.b.c ,y", "A.B.C:8"] {
            check("http://a.b.c:8/v1", &[all, ("NO_PROXY", list)], None);
        }
        for list in ["", "xb.c", "b", "a.b.c:9"] {
            check("http://a.b.c:8/v1", &[all, ("no_proxy", list)], Some("http://p:1"));
        }
    }

    #[test]
    fn a_proxy_is_http_or_socks5() {
        for url in ["http://p:3128", "socks5://user:pass@p:1080"] {
            assert_eq!(wrong_with(url), None, "{url}");
        }
        for url in ["https://p:1", "p:1", "socks4://p:1", "http://", ""] {
            assert!(wrong_with(url).is_some(), "{url}");
        }
    }
}
