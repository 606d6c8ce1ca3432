//! `beige sandbox`: images and the sandboxes of this home. It changes none
//! that a call is using: it takes the agent's lock first.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lexopt::Arg;
use serde_json::json;

use super::columns::{columns, in_one_line, padded};
use super::table::{Action, NOTHING, Takes, Word, action, flag, valued};
use super::{Command, Invocation, print, print_json, tell, unknown, unknown_action};
use crate::config::Home;
use crate::config::home::create_private;
use crate::error::{During, Error, Kind, Result};
use crate::gateway::daemon::HomeLock;
use crate::sandbox::containers::{Engine, Listed, engine_of, image, is_stopped};
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
                valued(&["--runtime"], Word::OneOf(&["docker", "podman"])),
            ],
        ),
        action("list", &[flag(&["--json"])]),
        Action { name: "rm", takes: Takes { flags: &[], operands: &[Word::Agent] } },
    ],
    run,
};

const HELP: &str = "\
Usage: beige sandbox build [--offline | --root-tar FILE] [--image NAME]
                           [--runtime docker|podman]
       beige sandbox list [--json]
       beige sandbox rm [AGENT]

build   makes the image that containers start from: from the Dockerfile that
        beige carries
  --offline         without a registry: from this host's own programs
  --root-tar FILE   from a tar of a root file system, plain or compressed
  --image NAME      its name (default beige-sandbox:latest)
  --runtime NAME    for docker or podman (default the first that answers): each
                    has images of its own
list    the sandboxes of this home: containers, and those of bubblewrap that run
  --json            as one JSON array
rm      removes an agent's sandbox, or all of this home; workspaces stay, and
        the next call makes it anew. Refused after 5 s while a call runs in it

  --config FILE     taken as by every command; sandboxes are those of the home
";

/// How long a running call may hold an agent's sandbox before `rm` gives up.
const LOCK_WITHIN: Duration = Duration::from_secs(5);

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Build { source: Source, image: String, engine: Option<Engine> },
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
        Request::Build { source, image, engine } => build(&source, &image, engine)?,
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
    let mut engine = None;
    while let Some(argument) = invocation.next()? {
        match argument {
            Arg::Long("offline" | "root-tar") if source != Source::Dockerfile => {
                let text = "take one of `--offline` and `--root-tar`, once";
                return Err(Error::new(Kind::Usage, text));
            }
            Arg::Long("offline") => source = Source::Host,
            Arg::Long("root-tar") => source = Source::RootTar(invocation.value()?.into()),
            Arg::Long("image") => image = invocation.text()?,
            Arg::Long("runtime") => engine = Some(engine_named(&invocation.text()?)?),
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    if image.is_empty() || image.starts_with('-') {
        return Err(Error::new(Kind::Usage, format!("`{image}` cannot be the name of an image")));
    }
    Ok(Request::Build { source, image, engine })
}

fn engine_named(name: &str) -> Result<Engine> {
    let found = Engine::all().into_iter().find(|it| it.program() == name);
    found.ok_or_else(|| {
        let text = format!("`--runtime {name}`: images are made for `docker` or `podman`");
        Error::new(Kind::Usage, text)
    })
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

fn build(source: &Source, name: &str, engine: Option<Engine>) -> Result<()> {
    let engine = match engine {
        Some(engine) => engine.available().map(|()| engine)?,
        None => first_that_answers()?,
    };
    let begun = Instant::now();
    let form = match source {
        Source::Dockerfile => image::build(engine, name, &tell).map(|()| image::Form::Dockerfile),
        Source::Host => image::build_offline(engine, name, &tell).map(|()| image::Form::Offline),
        Source::RootTar(file) => {
            image::import_root_tar(engine, name, file).map(|()| image::Form::RootTar)
        }
    };
    let form = form.map_err(with_a_way_out(source))?;
    let seconds = begun.elapsed().as_secs_f32();
    let name = in_one_line(name);
    print(&format!("built {name} {form} in {seconds:.1} s for {}\n", engine.title()))
}

fn first_that_answers() -> Result<Engine> {
    let [docker, podman] = Engine::all();
    let Err(without_docker) = docker.available() else { return Ok(docker) };
    let Err(without_podman) = podman.available() else { return Ok(podman) };
    let text = format!(
        "an image needs Docker or Podman, and neither serves here (bubblewrap needs no image). \
         Docker: {without_docker}. Podman: {without_podman}"
    );
    Err(Error::new(Kind::Sandbox, text))
}

fn with_a_way_out(source: &Source) -> impl Fn(Error) -> Error {
    let online = *source == Source::Dockerfile;
    move |error| match online {
        true => error.within("without a registry, try `beige sandbox build --offline`"),
        false => error,
    }
}

/// What the engines know of a home.
struct Found {
    containers: Vec<(Engine, Listed)>,
    /// Those that a home may have used and that do not answer.
    silent: Vec<(Engine, Error)>,
}

/// The containers of a home, engine by engine: one that nobody here ever used
/// is not asked.
fn look(home: &Home) -> Result<Found> {
    let mut found = Found { containers: Vec::new(), silent: Vec::new() };
    if !home.root().exists() {
        return Ok(found);
    }
    let instance = instance(home)?;
    for engine in Engine::all() {
        // Of Docker it is always said that it is not there, as it may be
        // elsewhere, with containers that still run.
        if engine != Engine::Docker && !engine.was_used() {
            continue;
        }
        match engine.list(&instance) {
            Ok(listed) => found.containers.extend(listed.into_iter().map(|it| (engine, it))),
            Err(error) => found.silent.push((engine, error)),
        }
    }
    Ok(found)
}

fn list(json: bool) -> Result<()> {
    let home = Home::from_env()?;
    let sandboxes = bubblewrap::list(&home);
    let Found { containers, silent } = look(&home)?;
    tell_of_silent(&home, "containers are not listed", &silent)?;
    let state = bubblewrap_state(&home)?;
    if json {
        let rows = containers.iter().map(|(engine, it)| {
            json!({ "agent": it.agent, "runtime": engine.program(), "container": it.name,
                "id": it.id, "image": it.image, "state": it.state, "status": it.status })
        });
        let more = sandboxes.iter().map(|it| {
            json!({ "agent": it.agent, "runtime": "bubblewrap", "pid": it.pid,
                "state": state.0, "status": state.1 })
        });
        return print_json(&format!("{}\n", serde_json::Value::Array(rows.chain(more).collect())));
    }
    if containers.is_empty() && sandboxes.is_empty() {
        return tell_of_none(&home, &silent);
    }
    let head = ["AGENT", "RUNTIME", "STATUS", "IMAGE", "CONTAINER"].map(str::to_owned);
    let rows = containers.into_iter().map(|(engine, it)| {
        let status = told_status(&it, is_stopped(engine, &home.sandbox_state(&it.agent)));
        [it.agent, engine.program().to_owned(), status, it.image, it.name]
    });
    let more = sandboxes.into_iter().map(|it| {
        let process = format!("process {}", it.pid);
        [it.agent, "bubblewrap".to_owned(), state.1.to_owned(), "-".to_owned(), process]
    });
    print(&table(&[head].into_iter().chain(rows).chain(more).collect::<Vec<_>>()))
}

/// The status of a container for people. One that beige stopped was killed, as
/// its engine sees it, which would look like a fault.
fn told_status(container: &Listed, is_stopped: bool) -> String {
    let status = &container.status;
    let ended = status.strip_prefix("Exited (").filter(|_| is_stopped);
    match ended.and_then(|it| it.split_once(')')) {
        Some((_, since)) => format!("Stopped{since}"),
        None => status.clone(),
    }
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

/// Rows with their columns below each other; names and images are what others
/// chose.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(|it| in_one_line(it))).collect();
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = columns(cell).max(*width);
        }
    }
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| padded(cell, width));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Says of which engines that do not answer this home may have containers: each
/// that a file of an agent names, or may name.
fn tell_of_silent(home: &Home, what: &str, silent: &[(Engine, Error)]) -> Result<()> {
    let known = agents_with_container(home)?;
    let named: Vec<_> = known.iter().map(|it| engine_of(&home.sandbox_state(it))).collect();
    for (engine, error) in silent {
        if named.iter().any(|it| it.is_none_or(|it| it == *engine)) {
            tell(&format!("{what}: no answer from {}: {error}", engine.title()));
        }
    }
    Ok(())
}

/// Says that there is nothing, and who could not be asked.
fn tell_of_none(home: &Home, silent: &[(Engine, Error)]) -> Result<()> {
    let names: Vec<&str> = silent.iter().map(|(engine, _)| engine.title()).collect();
    if names.is_empty() {
        tell("no sandboxes");
    } else if agents_with_container(home)?.is_empty() {
        tell(&format!("no sandboxes that can be seen: no answer from {}", names.join(" and ")));
    }
    Ok(())
}

fn remove(agent: Option<String>) -> Result<()> {
    let home = Home::from_env()?;
    if !home.root().exists() {
        return none_to_remove(agent.as_deref());
    }
    let instance = instance(&home)?;
    let Found { containers, silent } = look(&home)?;
    tell_of_silent(&home, "no container is removed", &silent)?;
    let known = agents_with_container(&home)?;
    let mut there: BTreeSet<String> = containers.into_iter().map(|(_, it)| it.agent).collect();
    there.extend(bubblewrap::list(&home).into_iter().map(|it| it.agent));
    let mut agents = there.clone();
    agents.extend(known.iter().cloned());
    agents.extend(bubblewrap::agents(&home)?);
    agents.retain(|it| agent.as_ref().is_none_or(|agent| it == agent));
    if agents.is_empty() {
        return match &agent {
            Some(_) => none_to_remove(agent.as_deref()),
            None => tell_of_none(&home, &silent),
        };
    }
    let mut is_told = false;
    for agent in agents {
        let named = engine_of(&home.sandbox_state(&agent));
        remove_one(&home, &instance, &agent, &silent)?;
        let may_be_of = |it: &Engine| known.contains(&agent) && named.is_none_or(|one| one == *it);
        let lost = silent.iter().map(|(engine, _)| *engine).find(may_be_of);
        if lost.is_none() && !there.contains(&agent) {
            // Only what told of one, or bounded one, was left.
            continue;
        }
        is_told = true;
        let agent = in_one_line(&agent);
        print(&match lost {
            None => format!("removed the sandbox of {agent}\n"),
            Some(engine) => format!(
                "forgot the container of {agent}: it stays as it is where {} is, and the next \
                 call chooses a runtime anew\n",
                engine.title()
            ),
        })?;
    }
    if !is_told {
        tell("no sandboxes");
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

fn remove_one(home: &Home, instance: &str, agent: &str, silent: &[(Engine, Error)]) -> Result<()> {
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
    let answers = |it: &Engine| it.was_used() && silent.iter().all(|(silent, _)| silent != it);
    for engine in Engine::all().into_iter().filter(answers) {
        engine.remove_agent(instance, agent)?;
    }
    Ok(())
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
        Request::Build { source, image: image.into(), engine: None }
    }

    #[test]
    fn a_table_is_aligned_and_has_no_trailing_blanks() {
        let rows = [["AGENT", "STATE"], ["assistant", "Up"]].map(|it| it.map(str::to_owned));
        assert_eq!(table(&rows), "AGENT      STATE\nassistant  Up\n");
    }

    #[test]
    fn a_container_that_beige_stopped_is_not_told_as_killed() {
        let status = |status: &str, is_stopped| {
            let empty = String::new;
            let container = Listed {
                agent: empty(),
                name: empty(),
                id: empty(),
                image: empty(),
                state: empty(),
                status: status.into(),
            };
            told_status(&container, is_stopped)
        };
        assert_eq!(status("Exited (137) 2 hours ago", true), "Stopped 2 hours ago");
        assert_eq!(status("Exited (137) 2 hours ago", false), "Exited (137) 2 hours ago");
        assert_eq!(status("Up 2 hours", true), "Up 2 hours");
    }

    #[test]
    fn each_form_of_an_image_has_its_flag() {
        check("build", building(Source::Dockerfile, image::DEFAULT));
        check("build --offline --image box:1", building(Source::Host, "box:1"));
        let engine = Some(Engine::Docker);
        let image = image::DEFAULT.to_owned();
        check(
            "build --runtime docker",
            Request::Build { source: Source::Dockerfile, image, engine },
        );
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
        refused("build --runtime bubblewrap");
        refused("list extra");
        refused("rm ada bob");
    }

    #[test]
    fn no_name_drives_the_terminal_or_makes_a_row() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned);
        let shown = table(&[row(["AGENT", "IMAGE"]), row(["a\x1b[2J\nb", "\u{9b}2J"])]);
        assert_eq!(shown, "AGENT          IMAGE\na\\u{1b}[2J\\nb  \\u{9b}2J\n");
    }
}
