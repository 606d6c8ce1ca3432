//! A plugin's tool called from inside the sandbox, start of the client
//! included. Many calls in one command and one command without any: what is
//! between them, divided. Beside it what is no part of beige: the start of a
//! process in the sandbox, and the plugin's own program on the host.

use std::time::{Duration, Instant};

use serde_json::json;

use super::exec::run;
use crate::Result;
use crate::arguments::Options;
use crate::figures::{Row, Spread, Unit};
use crate::house::{House, Runtime};
use crate::rounds::{self, Variant};

/// Calls in one command.
const CALLS: u32 = 20;

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &runtime in Runtime::here(options) {
        let mut house = House::new(options, runtime, 1)?.with_servers()?;
        house.start()?;
        rows.extend(in_house(options, runtime, &house)?);
    }
    Ok(rows)
}

fn in_house(options: &Options, runtime: Runtime, house: &House) -> Result<Vec<Row>> {
    let name = runtime.name();
    let inside =
        |what: String, word: &'static str| Variant::timed(what, move || loop_of(house, word));
    let mut variants = [
        inside(format!("{name}: the loop alone"), ":"),
        inside(format!("{name}: a process in the sandbox (`env true`)"), "env true"),
        inside(format!("{name}: a tool whose program does nothing"), "least"),
        inside(format!("{name}: `notes list`, a shell script"), "notes list"),
        inside(format!("{name}: `kv list`, a server in Python"), "kv list"),
        inside(format!("{name}: `sessions list`, a built-in plugin"), "sessions list"),
        Variant::new("`true` on the host, the program of the tool that does nothing", || {
            run("true", &[])
        }),
    ];
    let times = rounds::times(options.rounds(20), &mut variants)?;
    let (Some(host), Some(alone)) = (times.last(), times.first()) else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for (variant, times) in variants.iter().zip(&times).skip(1).take(times.len() - 2) {
        // Of one round each: a slow moment of the machine is in both.
        let each = times.iter().zip(alone).map(|(all, none)| (all - none) / f64::from(CALLS));
        rows.extend(Spread::of(each).map(|it| Row::new(&variant.what, Unit::Milliseconds, it)));
    }
    let what = variants.last().map_or("", |it| &it.what);
    let host = Spread::of(host.iter().copied());
    rows.extend(host.map(|it| Row::new(what, Unit::Milliseconds, it)));
    Ok(rows)
}

/// The time of one command that says that word many times.
fn loop_of(house: &House, word: &str) -> Result<Duration> {
    let command =
        format!("i=0; while [ $i -lt {CALLS} ]; do {word} >/dev/null || exit 1; i=$((i+1)); done");
    let begun = Instant::now();
    house.tool("exec", &json!({"command": command}))?;
    Ok(begun.elapsed())
}
