//! The command line: one table of commands, one file a command. Parsing only
//! records; building comes after. A command returns its exit code; nothing
//! here decides what the engine decides.

pub mod sandbox;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use lexopt::Arg;

use crate::error::{Error, Kind, Result};

/// One command.
pub struct Command {
    /// Its name, as typed.
    pub name: &'static str,
    /// One line for the overview.
    pub summary: &'static str,
    /// The whole help: usage, then every flag.
    pub help: &'static str,
    /// Every long flag it takes, without dashes, for did-you-mean and
    /// completions.
    pub flags: &'static [&'static str],
    /// Reads the arguments that follow the name and does the work.
    pub run: fn(&mut Invocation) -> Result<u8>,
}

/// What a command is called with.
pub struct Invocation {
    /// The arguments after the command's name.
    pub parser: lexopt::Parser,
    /// `--config FILE`, wherever it stood before the command's own arguments.
    pub config: Option<PathBuf>,
    /// The command that is running.
    pub command: &'static Command,
}

impl Invocation {
    /// The next argument that is not common to all commands (`--config FILE`).
    pub fn next(&mut self) -> Result<Option<Arg<'_>>> {
        // Two steps, since an argument borrows the parser.
        self.parser.next().map_err(usage)
    }
}

/// A usage error out of the argument parser.
pub fn usage(error: lexopt::Error) -> Error {
    Error::new(Kind::Usage, error.to_string())
}

/// Writes to standard output. A reader that went away (`| head`) is
/// [`Kind::Cancelled`], on which `main` exits quietly.
pub fn print(text: &str) -> Result<()> {
    write_to(&mut io::stdout().lock(), text)
}

/// Writes to standard error, for people.
pub fn tell(text: &str) {
    // Nobody is left to hear about a closed standard error.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Whether standard output takes colours: a terminal, and no `NO_COLOR`.
pub fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

fn write_to(out: &mut impl Write, text: &str) -> Result<()> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        let kind =
            if error.kind() == ErrorKind::BrokenPipe { Kind::Cancelled } else { Kind::Internal };
        Error::new(kind, format!("write to standard output: {error}"))
    })
}
