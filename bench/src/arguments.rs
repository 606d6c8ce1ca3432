//! What the caller wants measured, where the binary is and where results go.

use std::path::PathBuf;

use crate::Result;

const USAGE: &str = "usage: beige-bench [--ceilings] [--quick] [--only TOPIC]… [--out DIR] \
                     [--beige FILE]; run it at the repository's root";

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Measure, and write a table and a plot.
    Measure,
    /// Hold against the ceilings.
    Ceilings,
}

/// The command line.
#[derive(Debug)]
pub(crate) struct Options {
    /// What to do.
    pub(crate) work: Work,
    /// Fewer rounds: to see that it works, not for figures.
    pub(crate) quick: bool,
    /// The topics (or ceilings) to look at; all of them if empty.
    pub(crate) only: Vec<String>,
    /// Folder of the results.
    pub(crate) out: PathBuf,
    /// The binary that is measured.
    pub(crate) beige: PathBuf,
}

impl Options {
    /// Reads the arguments behind the program's name.
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            work: Work::Measure,
            quick: false,
            only: Vec::new(),
            out: "bench/results".into(),
            beige: "target/release/beige".into(),
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--ceilings" => options.work = Work::Ceilings,
                "--quick" => options.quick = true,
                "--only" => options.only.push(value()?),
                "--out" => options.out = value()?.into(),
                "--beige" => options.beige = value()?.into(),
                _ => return Err(USAGE.into()),
            }
        }
        // Started from other folders later.
        options.beige = std::path::absolute(&options.beige)?;
        if !options.beige.is_file() {
            return Err(format!("{} is not built: `make build`", options.beige.display()).into());
        }
        Ok(options)
    }

    /// Whether that topic is wanted.
    pub(crate) fn wants(&self, topic: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|it| it == topic)
    }

    /// So many rounds, or a few if it shall be quick.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(10).max(3) } else { full }
    }
}
