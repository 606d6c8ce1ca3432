//! `beige setup`: makes the state folder with a commented configuration.
//! Never overwrites anything.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::table::NOTHING;
use super::{Command, Invocation, present, tell, tidy, unknown};
use crate::config::{Api, Home, Surroundings, examine};
use crate::error::{During, Kind, Result};
use crate::gateway::socket::check_path_length;

/// The configuration that a new home gets.
const FIRST_CONFIG: &str = include_str!("../../sandbox/first-config.json5");

/// The replay cassette that it refers to.
const FIRST_CASSETTE: &str = include_str!("../../sandbox/first-demo.jsonl");

/// The agent that it holds.
const FIRST_AGENT: &str = "assistant";

/// The longest name of a socket in an agent's folder: that of a one-shot with
/// the largest process id there can be.
const LONGEST_SOCKET: &str = "cli-4194304.sock";

/// `beige setup`.
pub(super) const COMMAND: Command = Command {
    name: "setup",
    summary: "Make the state folder and a first configuration",
    help: "\
Usage: beige setup

Makes ~/.beige (or $BEIGE_HOME), readable by you alone, with a commented
config.json5. Never overwrites a file. Prints what to do next. The file is that
of the state folder whatever --config and BEIGE_CONFIG name.
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
    check_sockets(&home)?;
    let is_new = create(&home)?;
    let own = home.config_file();
    let file = tidy(&own);
    let first = if is_new { "is made" } else { "was there already and is left as it is" };
    present(&format!("{file} {first}.\n{}", next_steps(&own, &home)))?;
    let named = invocation.named_config_file()?.filter(|it| *it != own);
    if let Some(named) = named {
        tell(&format!(
            "beige setup: {} is what --config or BEIGE_CONFIG names; setup makes {file} only, \
             which counts once the other is left out",
            tidy(&named)
        ));
    }
    Ok(0)
}

/// An error ([`Kind::Config`]) if the kernel would refuse the sockets of a home
/// there: told before anything is made.
fn check_sockets(home: &Home) -> Result<()> {
    check_path_length(&home.api_socket())?;
    check_path_length(&home.agent_sockets(FIRST_AGENT).join(LONGEST_SOCKET))
}

/// What to do next, by what the configuration says; of one that is not sound
/// only that.
fn next_steps(file: &Path, home: &Home) -> String {
    let sound = examine(file, home, &Surroundings::of_this_process()).sound;
    let check = "beige config check                     says whether it is sound";
    let Some((config, _)) = sound else {
        return format!("\nNext:\n  {check}: it is not yet\n");
    };
    let agent = config.agents.keys().find(|it| *it == FIRST_AGENT);
    let agent = agent.or_else(|| config.agents.keys().next()).map_or(FIRST_AGENT, |it| it);
    let provider = config.agents.get(agent).map(|it| &it.primary.model.provider);
    let provider = provider.and_then(|it| config.providers.get(it));
    let plays = provider.is_some_and(|it| it.api == Api::Replay);
    let line = |command: String, what: &str| format!("  {command:<37}  {what}\n");
    let mut text = format!("\nNext:\n  {check}\n");
    text += &line("beige doctor".into(), "says whether all is in place");
    let exec = format!("beige exec {agent} -- echo hello");
    text += &line(exec, "runs a command in the agent's sandbox");
    let asks = if plays { "asks the agent; a recording answers" } else { "asks the agent" };
    text += &line(format!("beige prompt {agent} \"Who are you?\""), asks);
    text += &line("beige gateway start".into(), "starts the daemon");
    if plays {
        text += &format!("\nA recording answers until you name a model in {}.\n", tidy(file));
    }
    text
}

/// Makes the home with a first configuration; `false` if there was one.
pub(super) fn create(home: &Home) -> Result<bool> {
    home.create()?;
    let cassette = home.data().join("demo.jsonl");
    write_new(&cassette, FIRST_CASSETTE)?;
    write_new(&home.config_file(), FIRST_CONFIG)
}

/// Writes a file that is not there yet; `false` if it is.
fn write_new(path: &Path, text: &str) -> Result<bool> {
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
