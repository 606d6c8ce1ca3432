//! The program: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(beige::cli::run(lexopt::Parser::from_env()))
}
