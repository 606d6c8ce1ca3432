//! Many at once: prompts in sessions of their own, and commands over ten
//! agents. All must be answered; the memory is that of the gateway.

use serde_json::json;

use super::memory;
use crate::Result;
use crate::arguments::Options;
use crate::crowd::{self, Course, Outcome, watched};
use crate::figures::{Row, Spread, Unit};
use crate::house::{House, Runtime};
use crate::http::{self, Reply};

/// Agents that share the work.
const AGENTS: usize = 10;

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let house = House::started(options, Runtime::Bubblewrap, AGENTS)?;
    prompts(&house, 1)?;
    for count in [1, 50, 500] {
        let (outcome, course) = watched(house.pid()?, || prompts(&house, count))?;
        rows.extend(lines(&format!("{count} prompts at once"), outcome, &course));
    }
    drop(house);
    let count = options.rounds(1000);
    for &runtime in Runtime::here(options) {
        let house = House::started(options, runtime, AGENTS)?;
        // Every sandbox is up and every agent has been used once.
        execs(&house, AGENTS)?;
        let (outcome, course) = watched(house.pid()?, || execs(&house, count))?;
        rows.extend(lines(&format!("{}: {count} execs at once", runtime.name()), outcome, &course));
    }
    Ok(rows)
}

fn prompts(house: &House, count: usize) -> Result<Outcome> {
    let api = house.api();
    crowd::all_at_once(count, |number| {
        let body = json!({"message": "go", "sessionKey": format!("api:{number}")});
        http::post(&api, &format!("/api/agents/{}/prompt", agent(number)), &body)
    })
}

fn execs(house: &House, count: usize) -> Result<Outcome> {
    let api = house.api();
    crowd::all_at_once(count, |number| {
        let body = json!({"tool": "exec", "params": {"command": "true"}});
        let path = format!("/api/agents/{}/exec", agent(number));
        http::post(&api, &path, &body).and_then(exit_code_is_0)
    })
}

/// An answer that is one of a command which failed is an error.
fn exit_code_is_0(reply: Reply) -> Result<Reply> {
    if reply.status == 200 && reply.json()?["isError"] != false {
        return Err(String::from_utf8_lossy(&reply.body).into());
    }
    Ok(reply)
}

fn agent(number: usize) -> String {
    format!("a{}", number % AGENTS + 1)
}

fn lines(what: &str, outcome: Outcome, course: &Course) -> Vec<Row> {
    let mut rows =
        vec![Row::once(format!("{what}: all answered"), Unit::Milliseconds, outcome.wall)];
    let each = Spread::of(outcome.times);
    rows.extend(each.map(|it| Row::new(format!("{what}: one of them"), Unit::Milliseconds, it)));
    let retries = outcome.retries as f64;
    rows.push(Row::once(format!("{what}: times that one came again"), Unit::Count, retries));
    rows.push(Row::once(format!("{what}: threads at most"), Unit::Count, course.threads as f64));
    rows.extend(memory(what, course));
    rows
}
