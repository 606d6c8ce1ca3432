//! Paired measurement: in each round every variant has its turn, so that
//! whatever else the machine does hits all of them alike, and the first of a
//! round is another one each time, so that none is always behind the same.

use std::time::{Duration, Instant};

use crate::Result;
use crate::figures::{Row, Spread, Unit};

/// One thing that is measured.
pub(crate) struct Variant<'a> {
    /// What it is called in the table.
    pub(crate) what: String,
    /// What it is called in the plot, if it is there.
    pub(crate) bar: Option<String>,
    act: Box<dyn FnMut() -> Result<Duration> + 'a>,
}

impl<'a> Variant<'a> {
    /// A thing whose whole act is what counts.
    pub(crate) fn new(what: impl Into<String>, mut act: impl FnMut() -> Result<()> + 'a) -> Self {
        Self::timed(what, move || {
            let begun = Instant::now();
            act()?;
            Ok(begun.elapsed())
        })
    }

    /// A thing that takes the time itself, since something comes before it.
    pub(crate) fn timed(
        what: impl Into<String>,
        act: impl FnMut() -> Result<Duration> + 'a,
    ) -> Self {
        Self { what: what.into(), bar: None, act: Box::new(act) }
    }

    /// The same with a bar in the plot.
    pub(crate) fn with_bar(mut self, label: impl Into<String>) -> Self {
        self.bar = Some(label.into());
        self
    }
}

/// Times of all variants in milliseconds, in their order; the first round is
/// thrown away.
pub(crate) fn times(rounds: usize, variants: &mut [Variant<'_>]) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::with_capacity(rounds); variants.len()];
    for round in 0..=rounds {
        for step in 0..variants.len() {
            let index = (round + step) % variants.len();
            let variant = &mut variants[index];
            let took = (variant.act)().map_err(|it| format!("{}: {it}", variant.what))?;
            if round > 0 {
                times[index].push(milliseconds(took));
            }
        }
    }
    Ok(times)
}

/// The same as lines of the table.
pub(crate) fn rows(rounds: usize, mut variants: Vec<Variant<'_>>) -> Result<Vec<Row>> {
    let times = times(rounds, &mut variants)?;
    let named = variants.into_iter().zip(times);
    let row = |(variant, times): (Variant<'_>, Vec<f64>)| {
        let spread = Spread::of(times)?;
        Some(Row::new(variant.what, Unit::Milliseconds, spread).with_bar(variant.bar))
    };
    Ok(named.filter_map(row).collect())
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn every_variant_is_first_in_turn_and_the_first_round_is_not_counted() {
        let order = RefCell::new(String::new());
        let variant = |name: &'static str, time: u64| {
            let order = &order;
            Variant::timed(name, move || {
                order.borrow_mut().push_str(name);
                Ok(Duration::from_millis(time))
            })
        };
        let mut variants = [variant("a", 1), variant("b", 2), variant("c", 3)];
        let times = times(2, &mut variants).expect("nothing fails");
        assert_eq!(times, [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]);
        assert_eq!(*order.borrow(), "abcbcacab");
    }

    #[test]
    fn a_failure_names_its_variant() {
        let failing = Variant::new("exec", || Err("it broke".into()));
        let told = rows(1, vec![failing]).expect_err("it fails").to_string();
        assert_eq!(told, "exec: it broke");
    }
}
