//! `beige setup`: makes the state folder with a commented configuration.
//! Never overwrites anything.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;

use super::table::NOTHING;
use super::{Command, Invocation, print, tidy, unknown};
use crate::config::Home;
use crate::error::{During, Kind, Result};

/// The configuration that a new home gets.
const FIRST_CONFIG: &str = include_str!("../../sandbox/first-config.json5");

/// The replay cassette that it refers to.
const FIRST_CASSETTE: &str = include_str!("../../sandbox/first-demo.jsonl");

/// `beige setup`.
pub(super) const COMMAND: Command = Command {
    name: "setup",
    summary: "Make the state folder and a first configuration",
    help: "\
Usage: beige setup

Makes ~/.beige (or $BEIGE_HOME), readable by you alone, with a commented
config.json5. Never overwrites a file. Prints what to do next.
",
    takes: NOTHING,
    actions: &[],
    run,
};

fn run(invocation: &mut Invocation) -> Result<u8> {
    if let Some(argument) = invocation.next()? {
        return Err(unknown(&COMMAND, &argument));
    }
    let home = invocation.home()?;
    let is_new = create(&home)?;
    let file = tidy(&home.config_file());
    let first = if is_new { "is made" } else { "was there already and is left as it is" };
    print(&format!(
        "{file} {first}.\n\nNext:\n  \
         beige config check                     says whether it is sound\n  \
         beige doctor                           says whether all is in place\n  \
         beige exec assistant -- echo hello     runs a command in the agent's sandbox\n  \
         beige prompt assistant \"Who are you?\"  asks the agent; a recording answers\n  \
         beige gateway start                    starts the daemon\n\n\
         A recording answers until you name a model in {file}.\n"
    ))?;
    Ok(0)
}

/// Makes the home with a first configuration; `false` if there was one.
pub(super) fn create(home: &Home) -> Result<bool> {
    home.create()?;
    let cassette = home.data().join("demo.jsonl");
    write_new(&cassette, FIRST_CASSETTE)?;
    write_new(&home.config_file(), FIRST_CONFIG)
}

/// Writes a file that is not there yet; `false` if it is.
fn write_new(path: &std::path::Path, text: &str) -> Result<bool> {
    let what = format!("write {}", path.display());
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match file {
        Ok(mut file) => {
            let written = file.write_all(text.as_bytes()).inspect_err(|_| {
                // Half a file would count as the person's own next time.
                let _ = fs::remove_file(path);
            });
            written.during(Kind::Internal, what).map(|()| true)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).during(Kind::Internal, what),
    }
}
