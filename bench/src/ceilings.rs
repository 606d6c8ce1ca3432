//! Holds the built binary against fixed bounds: counts and bytes only, nothing
//! that depends on how fast the machine is. A miss fails.
//!
//! Growth is measured behind a warm-up of the same shape. The first requests
//! of a kind make threads' arenas, tables and buffers that stay at the size
//! of the most that ever ran at once; that is paid once and bounded. What is
//! asked is whether the ten-thousandth costs anything that the five-hundredth
//! did not. Both readings are taken when the process is quiet again.

mod dials;
mod links;
mod lives;
mod memory;
mod reconnects;
mod timeouts;
mod turns;

use std::thread;

use crate::Result;
use crate::arguments::Options;
use crate::figures::readable;
use crate::process::{mebibytes, megabytes};
use crate::topics;

/// One figure and its bound.
#[derive(Debug)]
pub(crate) struct Line {
    what: String,
    unit: &'static str,
    found: f64,
    ceiling: f64,
}

impl Line {
    /// The size of a file in bytes against a bound in megabytes.
    fn file(what: impl Into<String>, found: u64, ceiling: f64) -> Self {
        Self { what: what.into(), unit: " MB", found: megabytes(found), ceiling }
    }

    /// Memory in bytes against a bound in mebibytes.
    fn memory(what: impl Into<String>, found: u64, ceiling: f64) -> Self {
        Self { what: what.into(), unit: " MiB", found: mebibytes(found), ceiling }
    }

    /// The growth between two readings, in bytes, against a bound in mebibytes.
    fn growth(what: impl Into<String>, before: u64, after: u64, ceiling: f64) -> Self {
        let found = mebibytes(after) - mebibytes(before);
        Self { what: what.into(), unit: " MiB", found, ceiling }
    }

    /// A number of things.
    fn count(what: impl Into<String>, found: u64, ceiling: u64) -> Self {
        Self { what: what.into(), unit: "", found: found as f64, ceiling: ceiling as f64 }
    }

    fn holds(&self) -> bool {
        self.found <= self.ceiling
    }

    fn text(&self) -> String {
        let Self { what, unit, found, ceiling } = self;
        let (found, ceiling) = (readable(*found), readable(*ceiling));
        let word = if self.holds() { "ok    " } else { "MISSED" };
        format!("{word}  {what}: {found}{unit}, ceiling {ceiling}{unit}")
    }
}

type Check = fn(&Options) -> Result<Vec<Line>>;

/// The checks by name, the quick ones first.
pub(crate) const CHECKS: [(&str, Check); 9] = [
    ("size", size),
    ("idle", memory::idle),
    ("output", memory::output),
    ("turns", turns::check),
    ("reconnects", reconnects::check),
    ("links", links::check),
    ("dials", dials::check),
    ("lives", lives::check),
    ("timeouts", timeouts::check),
];

/// Looks at all and tells each; whether all hold. They look at the same time,
/// each at a gateway of its own: nothing here is a time.
pub(crate) fn check(options: &Options) -> Result<bool> {
    let mut all_hold = true;
    thread::scope(|scope| {
        let wanted = CHECKS.iter().filter(|it| options.wants(it.0));
        let looks: Vec<_> =
            wanted.map(|(name, look)| (*name, scope.spawn(|| look(options)))).collect();
        for (name, look) in looks {
            let lines = look.join().map_err(|_| "a thread panicked")?;
            for line in lines.map_err(|it| format!("{name}: {it}"))? {
                println!("{}", line.text());
                all_hold &= line.holds();
            }
        }
        Ok(all_hold)
    })
}

fn size(options: &Options) -> Result<Vec<Line>> {
    let crates = topics::crates(&[])?.len() as u64;
    Ok(vec![
        Line::file("the binary, the sandboxes' client in it", topics::binary(options)?, 6.0),
        Line::count("crates of others in the normal tree", crates, 60),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_at_its_ceiling_holds_and_one_above_does_not() {
        let at = Line::count("crates", 60, 60);
        assert_eq!((at.holds(), at.text().as_str()), (true, "ok      crates: 60, ceiling 60"));
        let above = Line::file("memory", 5_100_000, 5.0);
        assert!(!above.holds());
        assert_eq!(above.text(), "MISSED  memory: 5.10 MB, ceiling 5 MB");
    }

    #[test]
    fn memory_that_was_given_back_is_no_growth() {
        let line = Line::growth("memory", 6 << 20, 5 << 20, 1.0);
        assert!(line.holds());
        assert_eq!(line.found, -1.0);
    }
}
