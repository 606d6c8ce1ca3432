//! What a gateway takes that does nothing, with 1, 10 and 100 agents.

use crate::Result;
use crate::arguments::Options;
use crate::figures::{Row, Unit};
use crate::house::{House, Runtime};
use crate::process::{self, Moment, mebibytes};

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let mut houses = Vec::new();
    // All at once, so that their rest is waited for once.
    for agents in [1, 10, 100] {
        houses.push((agents, House::settled(options, Runtime::Bubblewrap, agents)?));
    }
    let mut rows = Vec::new();
    for (agents, house) in &houses {
        rows.extend(lines(*agents, process::when_quiet(house.pid()?)?));
    }
    Ok(rows)
}

fn lines(agents: usize, now: Moment) -> [Row; 4] {
    let what = |it: &str| format!("{agents} agents: {it}");
    [
        Row::once(what("resident memory"), Unit::Mebibytes, mebibytes(now.resident)),
        Row::once(
            what("of it its own, backed by no file"),
            Unit::Mebibytes,
            mebibytes(now.anonymous),
        ),
        Row::once(what("threads"), Unit::Count, now.threads as f64),
        Row::once(what("descriptors"), Unit::Count, now.descriptors as f64),
    ]
}
