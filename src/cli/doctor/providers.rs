//! Whether a provider that an agent uses can answer.

use std::collections::BTreeMap;

use super::{Check, Status};
use crate::config::{Endpoint, Findings, ModelRef, Provider, Reach};
use crate::provider::probe::{Obstacle, Probe, probe};
use crate::provider::{Cooling, Registry};

/// `models` are those that agents ask of it, `cooling` are all that cool down,
/// by `provider/model`.
pub(super) fn check(
    name: &str,
    provider: &Provider,
    models: &[&str],
    cooling: &BTreeMap<String, Cooling>,
) -> Check {
    let mut check = look(name, provider, models);
    if matches!(provider.reach, Reach::Endpoint(_)) {
        check.found += &unpriced(name, provider, models);
    }
    for model in models {
        if let Some(it) = cooling.get(&format!("{name}/{model}")) {
            cool(&mut check, model, it);
        }
    }
    check
}

/// Says that a model is not asked now.
fn cool(check: &mut Check, model: &str, cooling: &Cooling) {
    check.found += &format!("\n{model} is not asked now: {cooling}");
    if check.status == Status::Ok {
        check.status = Status::Warning;
        let fix = "wait that long; agents that have fallbackModels ask those meanwhile";
        check.fix = Some(fix.into());
    }
}

fn look(name: &str, provider: &Provider, models: &[&str]) -> Check {
    let title = format!("provider {name}");
    let Reach::Endpoint(endpoint) = &provider.reach else { return cassette(title, name, provider) };
    let place = without_login(&endpoint.base_url);
    let key = format!("llm.providers.{name}");
    match probe(name, provider) {
        Probe::NoServer => cassette(title, name, provider),
        Probe::Answers(listed) => {
            let absent: Vec<&str> = match &listed {
                Some(listed) => models.iter().copied().filter(|it| !has(listed, it)).collect(),
                None => Vec::new(),
            };
            if absent.is_empty() {
                return Check::ok(title, format!("{place} answers"));
            }
            let found = format!("{place} answers and does not list {}", absent.join(", "));
            let fix = "set the agents' model.model to one it has, unless it lists only some";
            Check::warning(title, found, fix)
        }
        Probe::Page => {
            let found =
                format!("{place} answers with an HTML page where its list of models is due");
            let fix = format!("check {key}.baseUrl: many an API is below /v1 of its server");
            Check::warning(title, found, fix)
        }
        Probe::KeyRefused(status) => {
            let told = if endpoint.api_key.is_some() { "refuses the key" } else { "wants a key" };
            let fix = format!("set {key}.apiKey to a key that it takes");
            Check::failure(title, format!("{place} {told} ({status})"), fix)
        }
        Probe::Reached(status) => {
            Check::ok(title, format!("{place} is reached ({status} for its list of models)"))
        }
        Probe::Failed(obstacle, why) => {
            let found = format!("{place} is not reached: {why}");
            Check::failure(title, found, fix(obstacle, &key, endpoint))
        }
    }
}

/// Says of which models it is not known what they cost.
fn unpriced(name: &str, provider: &Provider, models: &[&str]) -> String {
    let registry = Registry::new(&BTreeMap::from([(name.to_owned(), provider.clone())]));
    let is_unpriced = |model: &&&str| {
        let model = ModelRef { provider: name.to_owned(), model: (**model).to_owned() };
        registry.facts(&model).cost.is_none()
    };
    let unpriced: Vec<&str> = models.iter().filter(is_unpriced).copied().collect();
    match unpriced.is_empty() {
        true => String::new(),
        false => format!("; the price of {} is not known", unpriced.join(", ")),
    }
}

fn cassette(title: String, name: &str, provider: &Provider) -> Check {
    let only = BTreeMap::from([(name.to_owned(), provider.clone())]);
    let mut findings = Findings::default();
    Registry::new(&only).examine(&mut findings);
    match findings.lines().next() {
        None => Check::ok(title, "its cassette reads"),
        Some(what) => Check::failure(title, what, "mend the cassette, or name another"),
    }
}

fn fix(obstacle: Obstacle, key: &str, endpoint: &Endpoint) -> String {
    match obstacle {
        Obstacle::Name => {
            format!("look at {key}.baseUrl, and at this host's name servers (/etc/resolv.conf)")
        }
        Obstacle::Connection if endpoint.is_loopback() => {
            format!("start the server, or look at {key}.baseUrl")
        }
        Obstacle::Connection if endpoint.proxy.is_some() => {
            format!("look at {key}.proxy (or HTTPS_PROXY), and whether it lets this host through")
        }
        Obstacle::Connection => {
            format!(
                "look at {key}.baseUrl and whether a server runs there; behind a proxy, set {key}.proxy"
            )
        }
        Obstacle::Tls => {
            format!(
                "for a private authority set {key}.caFile; for a server without TLS write http:// in {key}.baseUrl"
            )
        }
        Obstacle::Silence => {
            format!(
                "look at the server, which may be busy or stuck, and whether {key}.baseUrl names it"
            )
        }
        Obstacle::Setting => format!("change {key}"),
    }
}

/// Some list their models below a folder (`models/NAME`).
fn has(listed: &[String], model: &str) -> bool {
    listed.iter().any(|it| it == model || it.strip_prefix("models/") == Some(model))
}

/// The URL without a name and a password.
fn without_login(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{}", &rest[end..])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Timeouts;

    #[track_caller]
    fn check_fix(obstacle: Obstacle, base_url: &str, word: &str, none_of: &str) {
        let second = Duration::from_secs(1);
        let endpoint = Endpoint {
            base_url: base_url.into(),
            api_key: None,
            headers: Vec::new(),
            ca_file: None,
            proxy: None,
            timeouts: Timeouts { connect: second, first_byte: second, idle: second },
        };
        let fix = fix(obstacle, "llm.providers.p", &endpoint);
        assert!(fix.contains(word) && !fix.contains(none_of), "{fix}");
    }

    #[test]
    fn a_proxy_is_named_only_where_one_is_used() {
        check_fix(Obstacle::Connection, "http://10.0.0.1/v1", "llm.providers.p.proxy", "start");
        check_fix(Obstacle::Connection, "http://localhost:1/v1", "start the server", "proxy");
        check_fix(Obstacle::Connection, "http://[::1]:1", "llm.providers.p.baseUrl", "proxy");
    }

    #[test]
    fn a_server_that_hangs_is_not_blamed_on_times_that_do_not_count() {
        check_fix(Obstacle::Silence, "http://a/v1", "llm.providers.p.baseUrl", "timeouts");
    }

    #[test]
    fn a_login_is_not_shown() {
        let check = |url: &str, want: &str| assert_eq!(without_login(url), want);
        check("https://u:p@host:1/v1/a@b", "https://host:1/v1/a@b");
        check("http://host", "http://host");
    }
}
