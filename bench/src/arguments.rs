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
    /// Folder of the results: without `--out` bench/results, or target/bench
    /// if not everything is measured in full.
    pub(crate) out: PathBuf,
    /// The binary that is measured.
    pub(crate) beige: PathBuf,
}

impl Options {
    /// Reads the arguments behind the program's name; `topics` are those of
    /// some work.
    pub(crate) fn read(
        mut arguments: impl Iterator<Item = String>,
        topics: impl Fn(Work) -> Vec<&'static str>,
    ) -> Result<Self> {
        let mut options = Self {
            work: Work::Measure,
            quick: false,
            only: Vec::new(),
            out: PathBuf::new(),
            beige: "target/release/beige".into(),
        };
        let mut out = None;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--ceilings" => options.work = Work::Ceilings,
                "--quick" => options.quick = true,
                "--only" => options.only.push(value()?),
                "--out" => out = Some(value()?),
                "--beige" => options.beige = value()?.into(),
                _ => return Err(USAGE.into()),
            }
        }
        options.check_topics(&topics(options.work))?;
        options.out = out.map_or_else(|| options.usual_out(), PathBuf::from);
        // Started from other folders later.
        options.beige = std::path::absolute(&options.beige)?;
        if !options.beige.is_file() {
            return Err(format!("{} is not built: `make build`", options.beige.display()).into());
        }
        Ok(options)
    }

    /// A word that names nothing would measure nothing and be a success.
    fn check_topics(&self, known: &[&str]) -> Result<()> {
        match self.only.iter().find(|it| !known.contains(&it.as_str())) {
            None => Ok(()),
            Some(it) => Err(format!("`--only {it}`: take of {}", known.join(", ")).into()),
        }
    }

    /// Results that are kept are those of a whole run.
    fn usual_out(&self) -> PathBuf {
        let is_whole = !self.quick && self.only.is_empty();
        if is_whole { "bench/results".into() } else { "target/bench".into() }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options> {
        // What is measured need only be a file.
        let words = line.split_whitespace().chain(["--beige", "Cargo.toml"]);
        Options::read(words.map(str::to_owned), |work| match work {
            Work::Measure => vec!["exec", "idle"],
            Work::Ceilings => vec!["turns"],
        })
    }

    #[track_caller]
    fn check_out(line: &str, want: &str) {
        let out = read(line).map(|it| it.out).map_err(|it| it.to_string());
        assert_eq!(out, Ok(PathBuf::from(want)), "{line}");
    }

    #[test]
    fn only_a_whole_run_replaces_the_results_that_are_kept() {
        check_out("", "bench/results");
        check_out("--quick", "target/bench");
        check_out("--only exec", "target/bench");
        check_out("--only exec --quick --out there", "there");
    }

    #[track_caller]
    fn check_refused(line: &str, want: &str) {
        let error = read(line).map(drop).map_err(|it| it.to_string()).unwrap_err();
        assert!(error.contains(want), "{error}");
    }

    #[test]
    fn a_topic_that_is_none_is_refused_with_those_there_are() {
        check_refused("--only nope", "take of exec, idle");
        check_refused("--only exec --only nope", "`--only nope`");
        check_refused("--ceilings --only exec", "take of turns");
    }
}
