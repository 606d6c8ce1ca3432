//! Measures a built `beige` from outside: over its real sockets, in real
//! sandboxes, against a model server of its own. It knows nothing of the
//! gateway's code, and the gateway nothing of it.
//!
//! `beige-bench` measures every topic and writes a table and a plot;
//! `beige-bench --ceilings` holds what does not depend on the machine's speed
//! against fixed bounds and fails on a miss. docs/performance.md explains each
//! figure.

// What it prints is what it is for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod ceilings;
mod crowd;
mod direct;
mod figures;
mod house;
mod http;
mod machine;
mod model;
mod plot;
mod process;
mod report;
mod rounds;
mod topics;

use std::error::Error;
use std::process::ExitCode;

use arguments::{Options, Work};

/// What fails here is told to a person and ends the run.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let done =
        Options::read(std::env::args().skip(1), topics_of).and_then(|options| match options.work {
            Work::Measure => measure(&options),
            Work::Ceilings => ceilings::check(&options),
        });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("beige-bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// The names of what can be looked at.
fn topics_of(work: Work) -> Vec<&'static str> {
    match work {
        Work::Measure => topics::ALL.iter().map(|it| it.0).collect(),
        Work::Ceilings => ceilings::CHECKS.iter().map(|it| it.0).collect(),
    }
}

/// Measures what was asked for and writes it down. A topic that fails is told
/// and makes the run fail, but not the others.
fn measure(options: &Options) -> Result<bool> {
    let machine = machine::look(options);
    let mut report = report::Report::new(machine);
    let mut sound = true;
    for (name, topic) in topics::ALL {
        if !options.wants(name) {
            continue;
        }
        eprintln!("{name} …");
        match topic(options) {
            Ok(rows) => report.add(name, rows),
            Err(error) => {
                eprintln!("{name}: {error}");
                sound = false;
            }
        }
    }
    report.write(&options.out)?;
    Ok(sound)
}
