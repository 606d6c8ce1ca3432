//! Threads, descriptors and processes after two thousand commands whose time
//! ran out.

use serde_json::json;

use super::Line;
use crate::Result;
use crate::arguments::Options;
use crate::crowd::in_turns;
use crate::house::{House, Runtime};
use crate::http::{self, Reply};
use crate::process;

const AGENTS: usize = 10;

/// Commands at the same time.
const WORKERS: usize = 30;

const WARM_UP: usize = 60;

pub(super) fn check(options: &Options) -> Result<Vec<Line>> {
    let count = if options.quick { 200 } else { 2000 };
    let house = House::started(options, Runtime::Bubblewrap, AGENTS)?;
    let pid = house.pid()?;
    in_turns(WORKERS, WARM_UP, |worker, _| time_out(&house, worker))?;
    let before = process::when_quiet(pid)?;
    in_turns(WORKERS, count, |worker, _| time_out(&house, worker))?;
    let after = process::when_quiet(pid)?;
    let what = |it: &str| format!("{it} left by {count} timeouts");
    let left = |before: u64, after: u64| after.saturating_sub(before);
    Ok(vec![
        Line::count(what("threads"), left(before.threads, after.threads), 0),
        Line::count(what("descriptors"), left(before.descriptors, after.descriptors), 0),
        Line::count(what("commands"), sleepers()?, 0),
    ])
}

/// A command that runs longer than it may; an error unless it was ended.
fn time_out(house: &House, worker: usize) -> Result<Reply> {
    let params = json!({"command": format!("exec sleep {SECONDS}"), "timeout": 0.005});
    let path = format!("/api/agents/a{}/exec", worker % AGENTS + 1);
    let reply = http::post(&house.api(), &path, &json!({"tool": "exec", "params": params}))?;
    if reply.status == 200 && reply.json()?["isError"] != true {
        return Err(String::from_utf8_lossy(&reply.body).into());
    }
    Ok(reply)
}

/// No other program sleeps for as long.
const SECONDS: &str = "8641.25";

/// How many of these commands still run.
fn sleepers() -> Result<u64> {
    let processes = std::fs::read_dir("/proc")?.flatten();
    let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    let own = |it: &Vec<u8>| it.split(|it| *it == 0).any(|it| it == SECONDS.as_bytes());
    Ok(lines.filter(own).count() as u64)
}
