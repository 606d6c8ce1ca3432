//! From the start of the gateway's process until it listens and until it
//! answers; from the signal to stop until the process is gone. The sandboxes
//! are there already, as they are after an upgrade.

use crate::Result;
use crate::arguments::Options;
use crate::figures::{Row, Spread, Unit};
use crate::house::{House, Runtime};
use crate::rounds::milliseconds;

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let mut houses = Vec::new();
    for &runtime in Runtime::here(options) {
        for agents in [1, 10] {
            houses.push((runtime, agents, House::started(options, runtime, agents)?));
        }
    }
    for (.., house) in &mut houses {
        house.stop()?;
    }
    let rounds = options.rounds(15);
    let mut times = vec![[const { Vec::new() }; 3]; houses.len()];
    for _ in 0..rounds {
        for ((.., house), [listening, answering, stop]) in houses.iter_mut().zip(&mut times) {
            let started = house.start()?;
            listening.push(milliseconds(started.listening));
            answering.push(milliseconds(started.answering));
            stop.push(milliseconds(house.stop()?));
        }
    }
    let mut rows = Vec::new();
    for ((runtime, agents, _), times) in houses.iter().zip(times) {
        for (what, times) in ["listening", "first answer", "stop"].into_iter().zip(times) {
            let what = format!("{}: {what}, {agents} agents", runtime.name());
            rows.extend(Spread::of(times).map(|it| Row::new(what, Unit::Milliseconds, it)));
        }
    }
    Ok(rows)
}
