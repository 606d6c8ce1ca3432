//! `beige sandbox`: images and the sandboxes of this home. It changes none
//! that a call is using: it takes the agent's lock first.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lexopt::Arg;
use serde_json::json;

use super::table::{Action, NOTHING, Takes, Word, action, flag, valued};
use super::{Command, Invocation, print, print_json, tell, unknown, unknown_action};
use crate::config::Home;
use crate::config::home::create_private;
use crate::error::{During, Error, Kind, Result};
use crate::gateway::daemon::HomeLock;
use crate::sandbox::bubblewrap::Listed;
use crate::sandbox::docker::{self, image};
use crate::sandbox::lock::{Hold, Lock};
use crate::sandbox::{bubblewrap, instance};
use crate::worker::Cancel;

/// The command.
pub(super) const COMMAND: Command = Command {
    name: "sandbox",
    summary: "Build the image; list and remove sandboxes",
    help: HELP,
    takes: NOTHING,
    actions: &[
        action(
            "build",
            &[
                flag(&["--offline"]),
                valued(&["--root-tar"], Word::File),
                valued(&["--image"], Word::Any),
            ],
        ),
        action("list", &[flag(&["--json"])]),
        Action { name: "rm", takes: Takes { flags: &[], operands: &[Word::Agent] } },
    ],
    run,
};

const HELP: &str = "\
Usage: beige sandbox build [--offline | --root-tar FILE] [--image NAME]
       beige sandbox list [--json]
       beige sandbox rm [AGENT]

build   makes the image that containers start from: from the Dockerfile that
        beige carries
  --offline         without a registry: from this host's own programs
  --root-tar FILE   from a tar of a root file system, plain or compressed
  --image NAME      its name (default beige-sandbox:latest)
list    the sandboxes of this home: containers, and those of bubblewrap that run
  --json            as one JSON array
rm      removes an agent's sandbox, or all of this home; workspaces stay, and
        the next call makes it anew

  --config FILE     taken as by every command; sandboxes are those of the home
";

/// How long a running call may hold an agent's sandbox before `rm` gives up.
const LOCK_WITHIN: Duration = Duration::from_secs(5);

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Build { source: Source, image: String },
    List { json: bool },
    Remove { agent: Option<String> },
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    Dockerfile,
    Host,
    RootTar(PathBuf),
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    match parse(invocation)? {
        Request::Build { source, image } => build(&source, &image)?,
        Request::List { json } => list(json)?,
        Request::Remove { agent } => remove(agent)?,
    }
    Ok(0)
}

fn parse(invocation: &mut Invocation) -> Result<Request> {
    let action = match invocation.next()? {
        Some(Arg::Value(action)) => action,
        Some(other) => return Err(unknown(&COMMAND, &other)),
        None => return Err(Error::new(Kind::Usage, "say `build`, `list` or `rm`")),
    };
    match action.to_str() {
        Some("build") => parse_build(invocation),
        Some("list") => parse_list(invocation),
        Some("rm") => parse_remove(invocation),
        _ => Err(unknown_action(&COMMAND, &action.to_string_lossy())),
    }
}

fn parse_build(invocation: &mut Invocation) -> Result<Request> {
    let (mut source, mut image) = (Source::Dockerfile, image::DEFAULT.to_owned());
    while let Some(argument) = invocation.next()? {
        match argument {
            Arg::Long("offline" | "root-tar") if source != Source::Dockerfile => {
                let text = "take one of `--offline` and `--root-tar`, once";
                return Err(Error::new(Kind::Usage, text));
            }
            Arg::Long("offline") => source = Source::Host,
            Arg::Long("root-tar") => source = Source::RootTar(invocation.value()?.into()),
            Arg::Long("image") => image = invocation.text()?,
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    if image.is_empty() || image.starts_with('-') {
        return Err(Error::new(Kind::Usage, format!("`{image}` cannot be the name of an image")));
    }
    Ok(Request::Build { source, image })
}

fn parse_list(invocation: &mut Invocation) -> Result<Request> {
    let mut json = false;
    while let Some(argument) = invocation.next()? {
        match argument {
            Arg::Long("json") => json = true,
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    Ok(Request::List { json })
}

fn parse_remove(invocation: &mut Invocation) -> Result<Request> {
    let mut agent = None;
    while let Some(argument) = invocation.next()? {
        match argument {
            Arg::Value(name) if agent.is_none() => {
                agent = Some(name.to_string_lossy().into_owned());
            }
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    Ok(Request::Remove { agent })
}

fn build(source: &Source, name: &str) -> Result<()> {
    docker::available()?;
    let begun = Instant::now();
    let form = match source {
        Source::Dockerfile => image::build(name, &tell).map(|()| image::Form::Dockerfile),
        Source::Host => image::build_offline(name, &tell).map(|()| image::Form::Offline),
        Source::RootTar(file) => image::import_root_tar(name, file).map(|()| image::Form::RootTar),
    };
    let form = form.map_err(with_a_way_out(source))?;
    let seconds = begun.elapsed().as_secs_f32();
    print(&format!("built {name} {form} in {seconds:.1} s\n"))
}

fn with_a_way_out(source: &Source) -> impl Fn(Error) -> Error {
    let online = *source == Source::Dockerfile;
    move |error| match online {
        true => error.within("without a registry, try `beige sandbox build --offline`"),
        false => error,
    }
}

fn list(json: bool) -> Result<()> {
    let home = Home::from_env()?;
    let sandboxes = bubblewrap::list(&home);
    // A home that only ever used bubblewrap has no need of Docker.
    let answers = docker::available();
    let containers = match &answers {
        Ok(()) if home.root().exists() => docker::list(&instance(&home)?)?,
        Ok(()) => Vec::new(),
        Err(error) => {
            tell_of_no_docker(&home, "containers are not listed", error, &sandboxes)?;
            Vec::new()
        }
    };
    let state = bubblewrap_state(&home)?;
    if json {
        let rows = containers.iter().map(|it| {
            json!({ "agent": it.agent, "runtime": "docker", "container": it.name, "id": it.id,
                "image": it.image, "state": it.state, "status": it.status })
        });
        let more = sandboxes.iter().map(|it| {
            json!({ "agent": it.agent, "runtime": "bubblewrap", "pid": it.pid,
                "state": state.0, "status": state.1 })
        });
        return print_json(&format!("{}\n", serde_json::Value::Array(rows.chain(more).collect())));
    }
    if containers.is_empty() && sandboxes.is_empty() {
        // Without Docker it has been said that there is nothing to list.
        answers.iter().for_each(|()| tell("no sandboxes"));
        return Ok(());
    }
    let head = ["AGENT", "STATUS", "IMAGE", "CONTAINER"].map(str::to_owned);
    let rows = containers.into_iter().map(|it| [it.agent, it.status, it.image, it.name]);
    let more = sandboxes.into_iter().map(|it| {
        [it.agent, state.1.to_owned(), "-".to_owned(), format!("bubblewrap, process {}", it.pid)]
    });
    print(&table(&[head].into_iter().chain(rows).chain(more).collect::<Vec<_>>()))
}

/// State and status of a bubblewrap sandbox that is there: without a gateway it
/// ends by itself once no command comes for a minute.
fn bubblewrap_state(home: &Home) -> Result<(&'static str, &'static str)> {
    let holder = if home.root().exists() { HomeLock::holder(home)? } else { None };
    Ok(match holder {
        Some(_) => ("running", "Up"),
        None => ("lingering", "Up for a minute after its last call"),
    })
}

/// Rows with their columns below each other.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Says that there is no Docker: at length only in a home that had a use for
/// it.
fn tell_of_no_docker(home: &Home, what: &str, error: &Error, sandboxes: &[Listed]) -> Result<()> {
    match (agents_with_container(home)?.is_empty(), sandboxes.is_empty()) {
        (true, true) => tell("Docker does not answer here, and bubblewrap runs nothing"),
        (true, false) => {}
        (false, _) => tell(&format!("{what}: {error}")),
    }
    Ok(())
}

fn remove(agent: Option<String>) -> Result<()> {
    let home = Home::from_env()?;
    if !home.root().exists() {
        return none_to_remove(agent.as_deref());
    }
    let instance = instance(&home)?;
    // A home that only ever used bubblewrap has no need of Docker.
    let containers = docker::available().and_then(|()| docker::list(&instance));
    let with_container = agents_with_container(&home)?;
    let (containers, has_docker) = match containers {
        Ok(containers) => (containers, true),
        Err(error) => {
            let sandboxes = bubblewrap::list(&home);
            tell_of_no_docker(&home, "no container is removed", &error, &sandboxes)?;
            (Vec::new(), false)
        }
    };
    let mut agents: BTreeSet<String> = containers.into_iter().map(|it| it.agent).collect();
    agents.extend(with_container.iter().cloned());
    agents.extend(bubblewrap::agents(&home)?);
    agents.retain(|it| agent.as_ref().is_none_or(|agent| it == agent));
    if agents.is_empty() && (has_docker || agent.is_some()) {
        return none_to_remove(agent.as_deref());
    }
    for agent in agents {
        remove_one(&home, &instance, &agent)?;
        print(&match has_docker || !with_container.contains(&agent) {
            true => format!("removed the sandbox of {agent}\n"),
            false => format!(
                "forgot the container of {agent}: it stays as it is where Docker is, and the next \
                 call chooses a runtime anew\n"
            ),
        })?;
    }
    Ok(())
}

fn none_to_remove(agent: Option<&str>) -> Result<()> {
    match agent {
        Some(agent) => Err(Error::new(Kind::Missing, format!("`{agent}` has no sandbox here"))),
        None => {
            tell("no sandboxes");
            Ok(())
        }
    }
}

fn remove_one(home: &Home, instance: &str, agent: &str) -> Result<()> {
    create_private(&home.data().join("sandboxes"))?;
    let never = Cancel::never();
    let _alone = Lock::wait(&home.sandbox_lock(agent), Hold::Exclusive, LOCK_WITHIN, &never)?;
    // By what the state file says, so before that goes.
    bubblewrap::remove_agent(home, agent)?;
    let state = home.sandbox_state(agent);
    match fs::remove_file(&state) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).during(Kind::Internal, format!("remove {}", state.display()));
        }
        _ => {}
    }
    match docker::available() {
        Ok(()) => docker::remove_agent(instance, agent).map(drop),
        Err(_) => Ok(()),
    }
}

/// Agents of which a state file tells, but not of bubblewrap.
fn agents_with_container(home: &Home) -> Result<Vec<String>> {
    let folder = home.data().join("sandboxes");
    let listing = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing.during(Kind::Internal, format!("list {}", folder.display()))?,
    };
    let names = listing.flatten().filter_map(|it| it.file_name().into_string().ok());
    let agents = names.filter_map(|it| Some(it.strip_suffix(".json")?.to_owned()));
    Ok(agents.filter(|it| !bubblewrap::is_known(home, it)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request> {
        parse(&mut Invocation::of(line.split_whitespace()))
    }

    #[track_caller]
    fn check(line: &str, want: Request) {
        assert_eq!(parsed(line).map_err(|it| it.to_string()), Ok(want));
    }

    #[track_caller]
    fn refused(line: &str) {
        assert_eq!(parsed(line).map_err(|it| it.kind()), Err(Kind::Usage));
    }

    fn building(source: Source, image: &str) -> Request {
        Request::Build { source, image: image.into() }
    }

    #[test]
    fn a_table_is_aligned_and_has_no_trailing_blanks() {
        let rows = [["AGENT", "STATE"], ["assistant", "Up"]].map(|it| it.map(str::to_owned));
        assert_eq!(table(&rows), "AGENT      STATE\nassistant  Up\n");
    }

    #[test]
    fn each_form_of_an_image_has_its_flag() {
        check("build", building(Source::Dockerfile, image::DEFAULT));
        check("build --offline --image box:1", building(Source::Host, "box:1"));
        check("build --root-tar=a.tar", building(Source::RootTar("a.tar".into()), image::DEFAULT));
    }

    #[test]
    fn sandboxes_are_listed_and_removed() {
        check("list --json", Request::List { json: true });
        check("rm", Request::Remove { agent: None });
        check("rm ada", Request::Remove { agent: Some("ada".into()) });
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        refused("");
        refused("bild");
        refused("build --offline --root-tar a.tar");
        refused("build --image -x");
        refused("list extra");
        refused("rm ada bob");
    }
}
