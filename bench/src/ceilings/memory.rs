//! Memory of a gateway that does nothing, and under much output.

use std::fs::File;

use super::Line;
use crate::Result;
use crate::arguments::Options;
use crate::crowd::watched;
use crate::house::{House, Runtime};
use crate::process;
use crate::topics::by_process;

const OUTPUT: u64 = 100_000_000;

/// How often a gateway is started and looked at while it does nothing.
const STARTS: usize = 5;

/// With ten agents, once quiet: the median of some starts. Which pages of a
/// program and its library the kernel maps around those that are touched
/// differs from start to start by a tenth of a mebibyte and more, most of all
/// while the program was only just written.
pub(super) fn idle(options: &Options) -> Result<Vec<Line>> {
    File::open(&options.beige)?.sync_all()?;
    let mut house = House::settled(options, Runtime::Bubblewrap, 10)?;
    let mut found = Vec::new();
    for _ in 0..STARTS {
        found.push(process::when_quiet(house.pid()?)?.resident);
        house.stop()?;
        house.start()?;
    }
    found.sort_unstable();
    Ok(vec![Line::memory("memory idle with 10 agents", found[STARTS / 2], 5.0)])
}

/// The most at any moment, not only at the end.
pub(super) fn output(options: &Options) -> Result<Vec<Line>> {
    let house = House::started(options, Runtime::Bubblewrap, 1)?;
    by_process(&house, OUTPUT / 100)?;
    let ((), course) = watched(house.pid()?, || by_process(&house, OUTPUT))?;
    let what = "growth at most under 100 MB of output";
    Ok(vec![Line::growth(what, course.before.resident, course.peak, 2.0)])
}
