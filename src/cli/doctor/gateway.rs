//! A gateway that runs on this home, or what stands in the way of one: who
//! holds the home, whether it answers, whether its port is free.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

use serde_json::Value;

use super::super::client::Api;
use super::{Check, Patient};
use crate::config::Gateway;
use crate::gateway::ConfigInUse;
use crate::gateway::daemon::{Holder, HomeLock, Role};

/// How long a gateway may take to say how it is.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn check(patient: &Patient) -> Vec<Check> {
    let mut checks = Vec::new();
    let (running, health) = match HomeLock::holder(&patient.home) {
        Ok(holder) => judge_holder(patient, holder, &mut checks),
        Err(error) => {
            let fix = "run beige as the owner of the state folder";
            checks.push(Check::failure("gateway", error.to_string(), fix));
            (false, None)
        }
    };
    if health.is_some() {
        checks.extend(other_config(patient));
    }
    if let Some(config) = &patient.config {
        checks.push(port(&config.gateway, running, health.as_ref()));
    }
    checks
}

/// Whether a gateway holds the home, and what it says of itself.
fn judge_holder(
    patient: &Patient,
    holder: Option<Holder>,
    checks: &mut Vec<Check>,
) -> (bool, Option<Value>) {
    let name = "gateway";
    let Some(holder) = holder else {
        checks.push(Check::ok(name, "none is running on this home"));
        return (false, None);
    };
    let pid = holder.pid.map_or_else(|| "pid not known yet".to_owned(), |it| format!("pid {it}"));
    if holder.role == Role::Prompt {
        checks.push(Check::ok(name, format!("a `beige prompt` without a gateway runs ({pid})")));
        return (false, None);
    }
    let answer = Api::with_limit(&patient.home, ANSWERS_WITHIN).get("/api/health");
    checks.push(match &answer {
        Ok(health) => answering(&pid, health),
        Err(error) => Check::failure(
            name,
            format!("it runs ({pid}) and does not answer on api.sock: {error}"),
            "see `beige gateway logs`, then `beige gateway restart`",
        ),
    });
    (true, answer.ok())
}

fn answering(pid: &str, health: &Value) -> Check {
    let degraded = health.get("degraded").and_then(Value::as_array);
    let degraded: Vec<&str> = degraded.into_iter().flatten().filter_map(Value::as_str).collect();
    let text = format!("it runs ({pid}) and answers");
    match degraded.is_empty() {
        true => Check::ok("gateway", text),
        false => {
            let found = format!("{text}, but not all works: {}", degraded.join("; "));
            Check::warning("gateway", found, way_to_health(health, degraded.len()))
        }
    }
}

/// What a call tries again by itself, and what only a start takes over.
fn way_to_health(health: &Value, troubles: usize) -> &'static str {
    match (health["reloadError"].is_string(), troubles) {
        (false, _) => "mend what it names; the next call tries again",
        (true, 1) => "mend the configuration (`beige config check`), then `beige gateway restart`",
        (true, _) => {
            "mend what it names and the configuration (`beige config check`), then `beige gateway \
             restart`"
        }
    }
}

/// A gateway may serve another file than the one looked at, or an older state
/// of it.
fn other_config(patient: &Patient) -> Option<Check> {
    let used = ConfigInUse::of_gateway(&patient.home)?;
    let difference = used.difference(patient.named.as_deref())?;
    Some(Check::warning("gateway", difference, "to serve what is written: `beige gateway restart`"))
}

fn port(gateway: &Gateway, running: bool, health: Option<&Value>) -> Check {
    let (host, port) = (gateway.host.as_str(), gateway.port);
    let (name, place) = ("port", format!("{host}:{port}"));
    let served = health.and_then(|it| it.get("address")).and_then(Value::as_str);
    if let Some(served) = served.filter(|it| port == 0 || it.ends_with(&format!(":{port}"))) {
        return Check::ok(name, format!("{served} is held by this home's own gateway"));
    }
    match TcpListener::bind((host, port)) {
        Ok(_) if port == 0 => Check::ok(name, "the system chooses a free one"),
        Ok(_) => Check::ok(name, format!("{place} is free")),
        Err(error) if running && health.is_none() => {
            let fix = "see whether the gateway answers, above";
            Check::warning(name, format!("{place}: {error}"), fix)
        }
        Err(error) => {
            let found = format!("{place} cannot be listened on: {error}");
            Check::failure(name, found, way_to_listen(error.kind(), port))
        }
    }
}

fn way_to_listen(kind: ErrorKind, port: u16) -> String {
    match kind {
        ErrorKind::PermissionDenied => {
            "set gateway.port to one above 1023, which needs no rights".into()
        }
        ErrorKind::AddrInUse => format!(
            "set gateway.port to a free one, or end what uses it: `ss -ltnp sport = :{port}`"
        ),
        _ => "set gateway.host to an address of this host, such as 127.0.0.1".into(),
    }
}
