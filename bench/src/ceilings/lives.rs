//! What is left of sandboxes and programs that come and go: in the gateway of
//! residents that were killed, each of which is followed by a new one that
//! dials; in a resident of one-shots, each of which is dialled and goes.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::Line;
use crate::Result;
use crate::arguments::Options;
use crate::crowd::in_turns;
use crate::house::{House, Runtime};
use crate::http::{self, Reply};
use crate::process;

/// Agents whose residents are killed side by side.
const AGENTS: usize = 4;

pub(super) fn check(options: &Options) -> Result<Vec<Line>> {
    let mut lines = killed_residents(options)?;
    lines.extend(one_shots(options)?);
    Ok(lines)
}

/// The gateway behind residents that were killed under it.
fn killed_residents(options: &Options) -> Result<Vec<Line>> {
    // A call right behind a death may wait for seconds before it is noticed.
    let (warm_up, count) = if options.quick { (20, 40) } else { (40, 200) };
    let house = House::started(options, Runtime::Bubblewrap, AGENTS)?;
    let pid = house.pid()?;
    let killed = AtomicU64::new(0);
    in_turns(AGENTS, warm_up, |worker, _| call_and_kill(&house, worker, &killed))?;
    killed.store(0, Ordering::Relaxed);
    let before = process::when_quiet(pid)?;
    in_turns(AGENTS, count, |worker, _| call_and_kill(&house, worker, &killed))?;
    let after = process::when_quiet(pid)?;
    let descriptors = after.descriptors.saturating_sub(before.descriptors);
    let killed = killed.into_inner();
    if killed < count as u64 / 2 {
        return Err(format!("of {count} calls only {killed} met a resident to kill").into());
    }
    let what = format!("growth after {killed} residents were killed, each followed by another");
    Ok(vec![
        Line::growth(what, before.resident, after.resident, 1.0),
        Line::count("descriptors left by them", descriptors, 0),
    ])
}

/// A call makes a resident; then that one is killed. A call that comes before
/// the death was noticed may be served without one: there is nobody to kill.
fn call_and_kill(house: &House, worker: usize, killed: &AtomicU64) -> Result<Reply> {
    let agent = format!("a{}", worker + 1);
    let body = json!({"tool": "exec", "params": {"command": "true"}});
    let reply = http::post(&house.api(), &format!("/api/agents/{agent}/exec"), &body)?;
    if reply.status == 200 {
        if reply.json()?["isError"] != false {
            return Err(String::from_utf8_lossy(&reply.body).into());
        }
        let pid = house.resident(&agent)?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no such pid")?;
        match kill_process(pid, Signal::KILL) {
            Ok(()) => killed.fetch_add(1, Ordering::Relaxed),
            Err(Errno::SRCH) => 0,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(reply)
}

/// The resident behind one-shots that it dialled.
fn one_shots(options: &Options) -> Result<Vec<Line>> {
    let (warm_up, count) = if options.quick { (20, 100) } else { (100, 1000) };
    let house = House::new(options, Runtime::Bubblewrap, 1)?;
    let shoot =
        |count| (0..count).try_for_each(|_| house.run(&["exec", "a1", "--", "true"]).map(drop));
    shoot(warm_up)?;
    let pid = house.resident("a1")?;
    let before = process::when_quiet(pid)?;
    shoot(count)?;
    if house.resident("a1")? != pid {
        return Err("the resident was not the same all along".into());
    }
    let after = process::when_quiet(pid)?;
    let left = |before: u64, after: u64| after.saturating_sub(before);
    Ok(vec![
        Line::growth(
            format!("growth of a resident after {count} one-shots"),
            before.resident,
            after.resident,
            1.0,
        ),
        Line::count("threads left in it", left(before.threads, after.threads), 0),
        Line::count("descriptors left in it", left(before.descriptors, after.descriptors), 0),
    ])
}
