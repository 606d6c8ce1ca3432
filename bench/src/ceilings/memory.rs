//! Memory of a gateway that does nothing, and under much output.

use super::Line;
use crate::Result;
use crate::arguments::Options;
use crate::crowd::watched;
use crate::house::{House, Runtime};
use crate::process;
use crate::topics::by_process;

const OUTPUT: u64 = 100_000_000;

/// With ten agents, once quiet.
pub(super) fn idle(options: &Options) -> Result<Vec<Line>> {
    let house = House::settled(options, Runtime::Bubblewrap, 10)?;
    let now = process::when_quiet(house.pid()?)?;
    Ok(vec![Line::memory("memory idle with 10 agents", now.resident, 5.0)])
}

/// The most at any moment, not only at the end.
pub(super) fn output(options: &Options) -> Result<Vec<Line>> {
    let house = House::started(options, Runtime::Bubblewrap, 1)?;
    by_process(&house, OUTPUT / 100)?;
    let ((), course) = watched(house.pid()?, || by_process(&house, OUTPUT))?;
    let what = "growth at most under 100 MB of output";
    Ok(vec![Line::growth(what, course.before.resident, course.peak, 2.0)])
}
