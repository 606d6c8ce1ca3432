//! `beige gateway status`: whether a gateway runs, and how it is by its own
//! word. One that does not answer is told apart from one that is not there.

use serde_json::{Value, json};

use super::super::client::{self, Api};
use super::super::columns::in_one_line;
use super::super::{Invocation, counted, present, print_json};
use super::{STATUS_LIMIT, place, running};
use crate::error::{Error, Kind, Result};

/// Tells whether a gateway runs and how it is; the exit code is 0 if it answers.
pub(super) fn status(invocation: &Invocation, json: bool) -> Result<u8> {
    let home = invocation.home()?;
    let holder = running(&home)?;
    let api = Api::with_limit(&home, STATUS_LIMIT);
    let asked = holder.as_ref().map(|_| api.get("/api/health"));
    let (health, trouble) = match asked {
        Some(Ok(health)) => (Some(health), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let answers = health.is_some();
    let pid = holder.as_ref().and_then(|it| it.pid);
    if json {
        let document = json!({
            "running": holder.is_some(), "answers": answers, "pid": pid,
            "home": home.root().display().to_string(), "health": health,
        });
        print_json(&format!("{document}\n"))?;
    } else {
        present(&match trouble {
            Some(error) if error.kind() != Kind::Timeout => unwell(pid, &error),
            _ => told(pid, holder.is_some(), health.as_ref()),
        })?;
    }
    if answers {
        invocation.tell_of_other_config("gateway");
    }
    Ok(u8::from(!answers))
}

/// It is there, and gives no health.
fn unwell(pid: Option<u32>, error: &Error) -> String {
    let pid = pid.map_or_else(|| "not known yet".to_owned(), |it| it.to_string());
    format!("the gateway runs (pid {pid}) and did not tell how it is: {error}\n")
}

fn told(pid: Option<u32>, runs: bool, health: Option<&Value>) -> String {
    match health {
        Some(health) => {
            let pid = pid.map_or_else(|| "not known yet".to_owned(), |it| it.to_string());
            let number = |name| health.get(name).and_then(Value::as_u64).unwrap_or(0);
            let mut text = format!(
                "the gateway {} (pid {pid}){}, up {} s, {}, {}{}\n",
                if is_draining(health) { "drains" } else { "runs" },
                place(health.get("address").and_then(Value::as_str)),
                number("uptimeSeconds"),
                counted(number("agents"), "agent"),
                sandboxes(number("sandboxes")),
                waiting(number("waiting")),
            );
            if is_draining(health) {
                let running = counted(number("running"), "call");
                text.push_str(&format!("nothing new is let in; {running} still to end\n"));
            }
            text.extend(queues(health).chain(cooling(health)));
            let degraded = health.get("degraded").and_then(Value::as_array);
            for it in degraded.into_iter().flatten().filter_map(Value::as_str) {
                text.push_str(&format!("degraded: {}\n", it.replace('\n', "\n          ")));
            }
            text
        }
        None if runs => format!("{}\n", client::silence(pid)),
        None => "no gateway is running\n".to_owned(),
    }
}

/// Whether it stops or starts anew once what runs has ended.
fn is_draining(health: &Value) -> bool {
    health["status"] == "draining"
}

/// A line for each provider at which calls wait.
fn queues(health: &Value) -> impl Iterator<Item = String> {
    let providers = health.get("providers").and_then(Value::as_array).into_iter().flatten();
    providers.filter(|it| it["queued"].as_u64().is_some_and(|it| it > 0)).map(|it| {
        let number = |name: &str| it[name].as_u64().unwrap_or(0);
        format!(
            "provider {}: {} running, {} waiting, the longest for {:.1} s\n",
            it["provider"].as_str().unwrap_or_default(),
            counted(number("running"), "call"),
            number("queued"),
            it["oldestWaitSeconds"].as_f64().unwrap_or(0.0),
        )
    })
}

/// A line for each model that cools down.
fn cooling(health: &Value) -> impl Iterator<Item = String> {
    let models = health.get("cooling").and_then(Value::as_array).into_iter().flatten();
    models.map(|it| {
        let word = |name: &str| it[name].as_str().unwrap_or_default();
        let (provider, model) = (word("provider"), word("modelId"));
        let seconds = it["seconds"].as_u64().unwrap_or(0);
        let reason = match word("reason") {
            "" => String::new(),
            reason => format!(": {}", in_one_line(reason)),
        };
        format!("model {provider}/{model} cools down for {seconds} s more{reason}\n")
    })
}

fn waiting(number: u64) -> String {
    if number == 0 { String::new() } else { format!(", {} in line", counted(number, "prompt")) }
}

fn sandboxes(number: u64) -> String {
    format!("{number} with a sandbox ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_drains_is_not_said_to_run() {
        let first =
            |status: &str| told(Some(7), true, Some(&json!({"status": status, "running": 1})));
        assert!(first("ok").starts_with("the gateway runs (pid 7)"));
        let draining = first("draining");
        assert!(draining.starts_with("the gateway drains (pid 7)"), "{draining}");
        assert!(draining.contains("\nnothing new is let in; 1 call still to end\n"), "{draining}");
    }

    #[test]
    fn a_model_that_cools_down_has_a_line_and_its_reason_none_of_its_own() {
        let reason = "HTTP 429:\n\u{1b}[2J";
        let health = json!({"cooling": [
            {"provider": "p", "modelId": "m", "seconds": 7, "reason": reason},
            {"provider": "p", "modelId": "n", "seconds": 1},
        ]});
        let lines: Vec<String> = cooling(&health).collect();
        let want = [
            "model p/m cools down for 7 s more: HTTP 429:\\n\\u{1b}[2J\n",
            "model p/n cools down for 1 s more\n",
        ];
        assert_eq!(lines, want);
        assert_eq!(cooling(&json!({"status": "ok"})).count(), 0);
    }
}
