//! Docker as a runtime, by its command line alone: makes, takes over, starts
//! and ends the one container of an agent, and reaps those that lost theirs.
//! It touches no container whose labels do not name this home, never lets the
//! daemon fetch an image, and believes in a container only once it has seen
//! the host's own workspace from inside.

mod argv;
mod client;
mod container;
pub mod image;
mod probe;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::state::{Known, State};
use super::{InnerLimits, Resident, Role, Runtime, Sandbox, Spec, bubblewrap, oneshot};
use crate::error::{During, Error, Kind, Result};
use argv::{LABEL_INSTANCE, docker};
pub use argv::{container_name, exec_command, run_command, spec_hash};
use client::{call, failure, image_id};
use container::{Container, Step, Wanted, decide};
use probe::View;

/// The container of one agent.
#[derive(Debug)]
pub struct Docker {
    spec: Spec,
    name: String,
    state: State,
    /// Nobody named it: it was taken since the agent has a container.
    is_kept: bool,
}

/// One of our containers, as `docker ps` shows it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Listed {
    /// The agent it belongs to.
    pub agent: String,
    /// Its name.
    pub name: String,
    /// Its full id.
    pub id: String,
    /// Name of its image, or its id once the name means another.
    pub image: String,
    /// `running`, `exited`, `paused`, ….
    pub state: String,
    /// The same with times, for people.
    pub status: String,
}

/// Steps after which bringing one up is given up: replacing one that raced
/// with another maker takes five.
const STEPS: usize = 8;

/// How long the daemon may take to say that it is there.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How long a container that is ending may take to be told as ended.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How a container is listed; each line is a [`Listed`].
const LIST_FORMAT: &str = concat!(
    r#"{"agent":{{json (.Label "beige.agent")}},"name":{{json .Names}},"id":{{json .ID}},"#,
    r#""image":{{json .Image}},"state":{{json .State}},"status":{{json .Status}}}"#,
);

impl Docker {
    /// A container to be; nothing is made yet. `state_file` is where the
    /// next process finds what is known of it.
    pub fn new(spec: Spec, state_file: PathBuf) -> Self {
        let name = container_name(&spec.instance, &spec.agent);
        let state = State::new(state_file, Runtime::Docker);
        Self { name, state, spec, is_kept: false }
    }

    /// The same, taken by `runtime: "auto"` since the agent has a container,
    /// without a look whether Docker still answers.
    #[must_use]
    pub fn kept(self) -> Self {
        Self { is_kept: true, ..self }
    }

    fn bring_up_as_wanted(&self) -> Result<()> {
        let mut wanted = self.wanted()?;
        let container = self.bring_up_seeing(&mut wanted)?;
        self.state.write(&known(&container, &wanted.spec_hash))
    }

    /// Why nothing else was taken, if it is Docker itself that is gone.
    fn explained(&self, error: Error) -> Error {
        match self.is_kept && available().is_err() {
            true => error.within(kept_by_docker(&self.spec.agent)),
            false => error,
        }
    }

    fn wanted(&self) -> Result<Wanted> {
        Ok(Wanted {
            instance: self.spec.instance.clone(),
            agent: self.spec.agent.clone(),
            spec_hash: spec_hash(&self.spec)?,
            image: image_id(&self.spec.image)?,
        })
    }

    /// Inspects, decides and acts until it runs as wanted. The answer says
    /// whether it was made just now.
    fn bring_up(&self, wanted: &mut Wanted) -> Result<(Container, bool)> {
        let (mut made, mut started) = (false, false);
        for _ in 0..STEPS {
            let seen = client::inspect(&self.name)?;
            let step = decide(seen.as_ref(), wanted);
            match (step, seen) {
                (Step::Keep, Some(seen)) => return Ok((seen, made)),
                (Step::Start, Some(seen)) if started => return Err(self.ends_at_once(&seen)),
                (Step::Start, Some(seen)) => {
                    self.start(&seen)?;
                    started = true;
                }
                (Step::Unpause, Some(seen)) => {
                    call(&format!("unpause {}", self.name), docker(&["unpause", &seen.id]))?;
                }
                (Step::Replace(why), Some(seen)) => {
                    // Nothing goes before its successor can be made.
                    wanted.image = Some(image::ensure(&self.spec.image, self.state.folder())?);
                    log::info!("the container {} is made anew: {why}", self.name);
                    client::remove(&seen.id)?;
                }
                (Step::Refuse, Some(seen)) => return Err(self.of_others(&seen)),
                (_, _) => {
                    wanted.image = Some(image::ensure(&self.spec.image, self.state.folder())?);
                    made = self.make(&wanted.spec_hash)?;
                    started = made;
                }
            }
        }
        let what = "it keeps changing under our hands; is another program using that name?";
        Err(Error::new(Kind::Sandbox, format!("bring up the container {}: {what}", self.name)))
    }

    /// `false` if another maker was first.
    fn make(&self, spec_hash: &str) -> Result<bool> {
        let doing = format!("make the container {}", self.name);
        let finished = oneshot::run(run_command(&self.spec, spec_hash)?, client::DEADLINE)
            .map_err(|it| it.within(doing.clone()))?;
        if finished.status.success() {
            // A kernel that cannot hold a limit is told of here, and only here.
            if !finished.stderr.is_empty() {
                log::warn!("{doing}: {}", finished.stderr);
            }
            log::info!("made the container {}", self.name);
            return Ok(true);
        }
        if finished.stderr.contains("is already in use by container") {
            return Ok(false);
        }
        self.clear_away_failed();
        Err(client::run_failure(&self.spec, &doing, &finished.stderr))
    }

    /// What `docker run` left of a container that it could not start.
    fn clear_away_failed(&self) {
        let left = client::inspect(&self.name);
        let ours = |it: &Container| it.is_of(&self.spec.instance, &self.spec.agent);
        if let Ok(Some(left)) = left.map(|it| it.filter(ours))
            && left.state.status == "created"
            && let Err(error) = client::remove(&left.id)
        {
            log::warn!("{error}");
        }
    }

    /// Starts a stopped one; one that cannot be started any more (a mount
    /// went away) is removed, to be made anew.
    fn start(&self, seen: &Container) -> Result<()> {
        let doing = format!("start the container {}", self.name);
        let finished = oneshot::run(docker(&["start", &seen.id]), client::DEADLINE)
            .map_err(|it| it.within(doing.clone()))?;
        if !finished.status.success() {
            log::warn!("{doing}: {}; it is made anew", finished.stderr);
            client::remove(&seen.id)?;
        }
        Ok(())
    }

    /// The id of our container, if there is one; somebody else's is an error.
    fn own_id(&self) -> Result<Option<String>> {
        match client::inspect(&self.name)? {
            Some(it) if it.is_of(&self.spec.instance, &self.spec.agent) => Ok(Some(it.id)),
            Some(it) => Err(self.of_others(&it)),
            None => Ok(None),
        }
    }

    fn of_others(&self, seen: &Container) -> Error {
        let text = format!(
            "the container {} ({}) has our name and not our labels; it is left alone: \
             remove or rename it (`docker rm -f {}`)",
            self.name,
            seen.id.get(..12).unwrap_or(&seen.id),
            self.name
        );
        Error::new(Kind::Conflict, text)
    }

    fn ends_at_once(&self, seen: &Container) -> Error {
        let fate = container::fate(&seen.state).unwrap_or_default();
        let text = format!("the container {} ends as soon as it starts: {fate}", self.name);
        Error::new(Kind::Sandbox, text)
    }

    /// Brings it up and looks at the host's workspace from inside. One that
    /// was taken over and shows another is replaced once; one that was just
    /// made and still does is of no use and goes.
    fn bring_up_seeing(&self, wanted: &mut Wanted) -> Result<Container> {
        let (mut container, made) = self.bring_up(wanted)?;
        let mut view = probe::look(&self.spec)?;
        if view != View::Same && !made {
            log::info!("the container {} is made anew: {view}", self.name);
            client::remove(&container.id)?;
            (container, _) = self.bring_up(wanted)?;
            view = probe::look(&self.spec)?;
        }
        let error = match view {
            View::Same => return Ok(container),
            View::Other { .. } => self.sees_another(),
            View::NoAnswer(why) => {
                Error::new(Kind::Sandbox, format!("enter the container {}: {why}", self.name))
            }
        };
        client::remove(&container.id)?;
        Err(error)
    }

    fn sees_another(&self) -> Error {
        client::other_file_system(&self.spec.workspace.display().to_string())
    }
}

impl Sandbox for Docker {
    fn runtime(&self) -> Runtime {
        Runtime::Docker
    }

    fn seems_up(&self) -> bool {
        spec_hash(&self.spec).is_ok_and(|it| self.state.names(&it))
    }

    fn is_up(&self) -> Result<bool> {
        let wanted = self.wanted()?;
        match client::inspect(&self.name)? {
            Some(seen) if matches!(decide(Some(&seen), &wanted), Step::Keep) => {
                self.state.write(&known(&seen, &wanted.spec_hash)).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    fn up(&self) -> Result<()> {
        bubblewrap::make_way(&self.spec)?;
        self.bring_up_as_wanted().map_err(|it| self.explained(it))
    }

    fn command(&self, role: Role) -> Command {
        exec_command(&self.spec, role)
    }

    fn admit(&self, _child: u32) -> Result<()> {
        Ok(())
    }

    fn inner_limits(&self) -> InnerLimits {
        InnerLimits::default()
    }

    fn keeps_background(&self) -> bool {
        true
    }

    fn resident(&self) -> Option<Resident> {
        self.state.resident()
    }

    /// A call sees the end of its container before the daemon says so; one that
    /// still runs after a while has only lost the call.
    fn fate(&self) -> Option<String> {
        let _ = oneshot::run(docker(&["wait", &self.name]), ENDS_WITHIN);
        match client::inspect(&self.name) {
            Ok(Some(seen)) => container::fate(&seen.state),
            Ok(None) => Some("the sandbox's container was removed".into()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn stop(&self) -> Result<()> {
        self.state.forget()?;
        let Some(id) = self.own_id()? else { return Ok(()) };
        let doing = format!("stop the container {}", self.name);
        client::call_if_there(&doing, docker(&["stop", "-t", "0", &id])).map(drop)
    }

    fn remove(&self) -> Result<()> {
        self.state.forget()?;
        let Some(id) = self.own_id()? else { return Ok(()) };
        client::remove(&id)
    }
}

/// What the next process is told. The pid of a daemon that runs elsewhere is
/// another process here, or none: it has not the name.
fn known(container: &Container, spec_hash: &str) -> Known {
    Known {
        container: container.id.clone(),
        image: container.image.clone(),
        spec_hash: spec_hash.to_owned(),
        resident: Resident::look(container.state.pid),
    }
}

/// Why `runtime: "auto"` stays with a Docker that does not answer, and the
/// way out.
pub fn kept_by_docker(agent: &str) -> String {
    format!(
        "the sandbox of `{agent}` stays Docker's, since its container may still run and use the \
         workspace: start Docker, or `beige sandbox rm {agent}` to have the next call choose anew"
    )
}

/// Whether an agent had a container when last heard of, by the file that
/// [`Docker::new`] is given.
pub fn has_container(state_file: &Path) -> bool {
    State::new(state_file.to_owned(), Runtime::Docker).names_any()
}

/// Whether there is a `docker` on PATH, whatever its daemon does.
pub fn is_installed() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|it| it.join("docker").is_file())
}

/// Whether Docker is installed and its daemon answers, within 10 s.
pub fn available() -> Result<()> {
    let doing = "ask the Docker daemon for its version";
    let command = docker(&["version", "--format", "{{.Server.Version}}"]);
    let finished = oneshot::run(command, ANSWERS_WITHIN).map_err(|it| it.within(doing))?;
    match finished.status.success() {
        true => Ok(()),
        false => Err(failure(doing, &finished.stderr)),
    }
}

/// What a daemon says of itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Daemon {
    /// Its version.
    pub version: String,
    /// Whether the kernel lets it bound memory.
    pub memory: bool,
    /// Whether swap counts as memory.
    pub swap: bool,
    /// Whether it can bound processes.
    pub pids: bool,
    /// Whether it can bound processor time.
    pub cpus: bool,
}

/// How it is asked; the answer is a [`Daemon`].
const DAEMON_FORMAT: &str = concat!(
    r#"{"version":{{json .ServerVersion}},"memory":{{json .MemoryLimit}},"#,
    r#""swap":{{json .SwapLimit}},"pids":{{json .PidsLimit}},"cpus":{{json .CPUCfsQuota}}}"#,
);

/// Asks the daemon what it is and what it can bound, within 10 s each.
pub fn daemon() -> Result<Daemon> {
    available()?;
    let doing = "ask the Docker daemon what it can do";
    let finished = oneshot::run(docker(&["info", "--format", DAEMON_FORMAT]), ANSWERS_WITHIN)
        .map_err(|it| it.within(doing))?;
    serde_json::from_str(&finished.stdout).during(Kind::Sandbox, doing)
}

/// Whether an image of that name is here.
pub fn image_present(name: &str) -> Result<bool> {
    Ok(image_id(name)?.is_some())
}

/// All containers of one home, running or not.
pub fn list(instance: &str) -> Result<Vec<Listed>> {
    let doing = "list the containers";
    let filter = format!("label={LABEL_INSTANCE}={instance}");
    let command = docker(&["ps", "-a", "--no-trunc", "--filter", &filter, "--format", LIST_FORMAT]);
    let lines = call(doing, command)?.stdout;
    let parsed: Result<Vec<Listed>, _> = lines.lines().map(serde_json::from_str).collect();
    parsed.during(Kind::Sandbox, doing)
}

/// Removes the containers of one home whose agent is not among those that
/// are to have one. Answers with the agents whose containers went.
pub fn reap(instance: &str, known_agents: &[String]) -> Result<Vec<String>> {
    let mut reaped = Vec::new();
    for it in list(instance)? {
        if !known_agents.contains(&it.agent) {
            log::info!("the container {} has no agent any more and is removed", it.name);
            client::remove(&it.id)?;
            reaped.push(it.agent);
        }
    }
    Ok(reaped)
}

/// Removes the containers of one agent of one home, if there are any.
pub fn remove_agent(instance: &str, agent: &str) -> Result<bool> {
    let mut found = false;
    for it in list(instance)?.into_iter().filter(|it| it.agent == agent) {
        client::remove(&it.id)?;
        found = true;
    }
    Ok(found)
}
