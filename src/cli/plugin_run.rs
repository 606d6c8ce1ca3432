//! `beige plugin-run`: a plugin of beige's own, as the gateway starts it. Not
//! for people, so no list names it; who runs it at a terminal is told what it is.

use std::io::{self, IsTerminal};

use lexopt::Arg::Value;

use super::table::{Command, NOTHING};
use super::{Invocation, unknown};
use crate::builtin;
use crate::error::{Error, Kind, Result};

/// `beige plugin-run`.
pub(super) const COMMAND: Command = Command {
    name: "plugin-run",
    summary: "Be a plugin of beige's own",
    help: "\
Usage: beige plugin-run NAME

Is the built-in plugin NAME: speaks the protocol of plugins on standard input
and output until the input ends. The gateway starts it for each entry of
`plugins` with `builtin`; there is no reason to run it by hand. To use a plugin,
name it in the configuration:

  plugins: { sessions: { builtin: \"sessions\" } }

  --config FILE  taken as by every command; it changes nothing here
",
    takes: NOTHING,
    actions: &[],
    run,
};

fn run(invocation: &mut Invocation) -> Result<u8> {
    let name = match invocation.next()? {
        Some(Value(name)) => name.to_string_lossy().into_owned(),
        Some(other) => return Err(unknown(&COMMAND, &other)),
        None => return Err(Error::new(Kind::Usage, "say which plugin")),
    };
    if let Some(extra) = invocation.next()? {
        return Err(unknown(&COMMAND, &extra));
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        let what = "this is how the gateway starts its built-in plugins, to speak with them in \
                    JSON-RPC; a person has no use for it";
        return Err(Error::new(Kind::Usage, what));
    }
    builtin::run(&name, stdin.lock(), io::stdout())?;
    Ok(0)
}
