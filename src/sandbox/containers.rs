//! Containers as sandboxes, by the command line of an engine alone, Docker's or
//! Podman's: makes, takes over, starts and ends the one container of an agent,
//! and reaps those that lost theirs. It touches no container whose labels do
//! not name this home, never lets an engine fetch an image, and believes in a
//! container only once it has seen the host's own workspace from inside.

mod argv;
mod client;
mod container;
mod engine;
pub mod image;
mod probe;
mod survey;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::state::{Known, State};
use super::{InnerLimits, Resident, Role, Runtime, Sandbox, Spec, oneshot};
use crate::error::{Error, Kind, Result};
pub use argv::{container_name, exec_command, run_command, spec_hash};
pub use client::cure;
use client::{call, image_id};
use container::{Container, Step, Wanted, decide};
pub use engine::{Bounded, Engine, Terms};
use probe::View;
pub use survey::{Facts, Listed};

/// The container of one agent.
#[derive(Debug)]
pub struct AgentContainer {
    engine: Engine,
    spec: Spec,
    name: String,
    state: State,
    /// Nobody named it: it was taken since the agent has a container.
    is_kept: bool,
}

/// Steps after which bringing one up is given up: replacing one that raced
/// with another maker takes five.
const STEPS: usize = 8;

/// How long a container that is ending may take to be told as ended.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How long an engine may take to notice the end of a container.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

impl AgentContainer {
    /// A container to be; nothing is made yet. `state_file` is where the
    /// next process finds what is known of it.
    pub fn new(engine: Engine, spec: Spec, state_file: PathBuf) -> Self {
        let name = container_name(&spec.instance, &spec.agent);
        let state = State::new(state_file, engine.runtime());
        let spec = Spec { gid: engine.group(&spec), ..spec };
        Self { engine, name, state, spec, is_kept: false }
    }

    /// The same, taken by `runtime: "auto"` since the agent has a container,
    /// without a look whether its engine still answers.
    #[must_use]
    pub fn kept(self) -> Self {
        Self { is_kept: true, ..self }
    }

    /// Waits until the engine has noticed that the container's first process has
    /// ended: until then it calls it running, and nobody can enter.
    fn await_the_dying(&self) {
        let Some(ended) = self.state.ending() else { return };
        let seen = client::inspect(self.engine, &self.name);
        if seen.is_ok_and(|it| it.is_some_and(|it| it.state.pid == ended.pid)) {
            let _ = oneshot::run(self.engine.command(&["wait", &self.name]), NOTICED_WITHIN);
        }
    }

    fn bring_up_as_wanted(&self) -> Result<()> {
        let mut wanted = self.wanted()?;
        let container = self.bring_up_seeing(&mut wanted)?;
        self.state.write(&known(&container, &wanted.spec_hash))
    }

    /// Why nothing else was taken, if it is the engine itself that is gone.
    fn explained(&self, error: Error) -> Error {
        match self.is_kept && self.engine.available().is_err() {
            true => error.within(self.engine.kept(&self.spec.agent)),
            false => error,
        }
    }

    fn ensure_image(&self) -> Result<String> {
        image::ensure(self.engine, &self.spec.image, self.state.folder())
    }

    fn wanted(&self) -> Result<Wanted> {
        Ok(Wanted {
            instance: self.spec.instance.clone(),
            agent: self.spec.agent.clone(),
            spec_hash: spec_hash(self.engine, &self.spec)?,
            image: image_id(self.engine, &self.spec.image)?,
        })
    }

    /// Inspects, decides and acts until it runs as wanted. The answer says
    /// whether it was made just now.
    fn bring_up(&self, wanted: &mut Wanted) -> Result<(Container, bool)> {
        let (mut made, mut started) = (false, false);
        for _ in 0..STEPS {
            let seen = client::inspect(self.engine, &self.name)?;
            let step = decide(seen.as_ref(), wanted);
            match (step, seen) {
                (Step::Keep, Some(seen)) => return Ok((seen, made)),
                (Step::Start, Some(seen)) if started => return Err(self.ends_at_once(&seen)),
                (Step::Start, Some(seen)) => {
                    self.start(&seen)?;
                    started = true;
                }
                (Step::Unpause, Some(seen)) => self.unpause(&seen)?,
                (Step::Replace(why), Some(seen)) => {
                    // Nothing goes before its successor can be made.
                    wanted.image = Some(self.ensure_image()?);
                    log::info!("the container {} is made anew: {why}", self.name);
                    client::remove(self.engine, &seen.id)?;
                }
                (Step::Refuse, Some(seen)) => return Err(self.of_others(&seen)),
                (_, _) => {
                    wanted.image = Some(self.ensure_image()?);
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
        self.engine.check_user(&self.spec)?;
        let terms = self.engine.terms().map_err(|it| it.within(doing.clone()))?;
        let command = run_command(self.engine, &self.spec, spec_hash, &terms)?;
        let finished =
            oneshot::run(command, client::DEADLINE).map_err(|it| it.within(doing.clone()))?;
        if finished.status.success() {
            // A kernel that cannot hold a limit is told of here, and only here.
            let warning = client::without_chatter(&finished.stderr);
            if !warning.is_empty() {
                log::warn!("{doing}: {warning}");
            }
            log::info!("made the container {} with {}", self.name, self.engine.title());
            return Ok(true);
        }
        if finished.stderr.contains("is already in use by") {
            return Ok(false);
        }
        self.clear_away_failed();
        Err(client::run_failure(self.engine, &self.spec, &doing, &finished.stderr))
    }

    /// What a failed `run` left of a container that it could not start.
    fn clear_away_failed(&self) {
        let left = client::inspect(self.engine, &self.name);
        let ours = |it: &Container| it.is_of(&self.spec.instance, &self.spec.agent);
        if let Ok(Some(left)) = left.map(|it| it.filter(ours))
            && matches!(left.state.status.as_str(), "created" | "configured" | "initialized")
            && let Err(error) = client::remove(self.engine, &left.id)
        {
            log::warn!("{error}");
        }
    }

    fn unpause(&self, seen: &Container) -> Result<()> {
        let command = self.engine.command(&["unpause", &seen.id]);
        call(self.engine, &format!("unpause {}", self.name), command).map(drop)
    }

    /// Starts a stopped one; one that cannot be started any more (a mount
    /// went away) is removed, to be made anew.
    fn start(&self, seen: &Container) -> Result<()> {
        let doing = format!("start the container {}", self.name);
        let finished = oneshot::run(self.engine.command(&["start", &seen.id]), client::DEADLINE)
            .map_err(|it| it.within(doing.clone()))?;
        if !finished.status.success() {
            let why = client::without_chatter(&finished.stderr);
            log::warn!("{doing}: {why}; it is made anew");
            client::remove(self.engine, &seen.id)?;
        }
        Ok(())
    }

    /// The id of our container, if there is one; somebody else's is an error.
    fn own_id(&self) -> Result<Option<String>> {
        match client::inspect(self.engine, &self.name)? {
            Some(it) if it.is_of(&self.spec.instance, &self.spec.agent) => Ok(Some(it.id)),
            Some(it) => Err(self.of_others(&it)),
            None => Ok(None),
        }
    }

    /// Stops our container. The answer is its id, if there is one.
    fn stop_own(&self) -> Result<Option<String>> {
        let Some(id) = self.own_id()? else { return Ok(None) };
        let doing = format!("stop the container {}", self.name);
        let command = self.engine.command(&["stop", "-t", "0", &id]);
        Ok(client::call_if_there(self.engine, &doing, command)?.map(|_| id))
    }

    fn of_others(&self, seen: &Container) -> Error {
        let text = format!(
            "the container {} ({}) has our name and not our labels; it is left alone: \
             remove or rename it (`{} rm -f {}`)",
            self.name,
            seen.id.get(..12).unwrap_or(&seen.id),
            self.engine.program(),
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
        let mut view = probe::look(self.engine, &self.spec)?;
        if view != View::Same && !made {
            log::info!("the container {} is made anew: {view}", self.name);
            client::remove(self.engine, &container.id)?;
            (container, _) = self.bring_up(wanted)?;
            view = probe::look(self.engine, &self.spec)?;
        }
        let error = match view {
            View::Same => return Ok(container),
            View::Other { .. } => self.sees_another(),
            View::NoAnswer(why) => {
                Error::new(Kind::Sandbox, format!("enter the container {}: {why}", self.name))
            }
        };
        client::remove(self.engine, &container.id)?;
        Err(error)
    }

    fn sees_another(&self) -> Error {
        client::other_file_system(self.engine, &self.spec.workspace.display().to_string())
    }
}

impl Sandbox for AgentContainer {
    fn runtime(&self) -> Runtime {
        self.engine.runtime()
    }

    fn seems_up(&self) -> bool {
        let Ok(spec_hash) = spec_hash(self.engine, &self.spec) else { return false };
        let wanted = self.state.known().filter(|it| it.spec_hash == spec_hash);
        wanted.is_some_and(|it| it.resident.is_none_or(Resident::serves))
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn is_up(&self) -> Result<bool> {
        let wanted = self.wanted()?;
        let Some(seen) = client::inspect(self.engine, &self.name)? else { return Ok(false) };
        match decide(Some(&seen), &wanted) {
            Step::Keep => {}
            // The calls that are in it stand still, and would be waited for.
            Step::Unpause => self.unpause(&seen)?,
            _ => return Ok(false),
        }
        self.state.write(&known(&seen, &wanted.spec_hash)).map(|()| true)
    }

    fn up(&self) -> Result<()> {
        self.await_the_dying();
        self.bring_up_as_wanted().map_err(|it| self.explained(it))
    }

    fn command(&self, role: Role) -> Command {
        exec_command(self.engine, &self.spec, role)
    }

    fn admit(&self, _child: u32) -> Result<()> {
        Ok(())
    }

    fn inner_limits(&self) -> InnerLimits {
        self.engine.inner_limits(&self.spec)
    }

    fn keeps_background(&self) -> bool {
        true
    }

    fn resident(&self) -> Option<Resident> {
        self.state.resident()
    }

    fn resident_has_ended(&self) -> bool {
        self.state.ending().is_some()
    }

    /// A call sees the end of its container before the daemon says so; one that
    /// still runs after a while has only lost the call.
    fn fate(&self) -> Option<String> {
        let _ = oneshot::run(self.engine.command(&["wait", &self.name]), ENDS_WITHIN);
        match client::inspect(self.engine, &self.name) {
            Ok(Some(seen)) => container::fate(&seen.state),
            Ok(None) => Some("the sandbox's container was removed".into()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// The file goes on naming a container that is stopped: the agent keeps
    /// the engine that has it.
    fn stop(&self) -> Result<()> {
        let known = self.state.known().unwrap_or_default();
        let has_ended = || known.resident.is_some_and(|it| !it.lives());
        match self.stop_own() {
            Ok(None) => self.state.forget(),
            Ok(Some(container)) => self.state.write(&Known { container, ..known.stopped() }),
            Err(error) if has_ended() => {
                self.state.write(&known.stopped())?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn remove(&self) -> Result<()> {
        self.state.forget()?;
        let Some(id) = self.own_id()? else { return Ok(()) };
        client::remove(self.engine, &id)
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

/// Removes the container of that engine which a state file names, since the
/// agent is to have another runtime's sandbox. An error where it may still run:
/// two on one workspace would not see each other.
pub(super) fn make_way(engine: Engine, spec: &Spec, state_file: &Path) -> Result<()> {
    let state = State::new(state_file.to_owned(), engine.runtime());
    let Some(known) = state.known() else { return Ok(()) };
    let name = container_name(&spec.instance, &spec.agent);
    let ours = |it: &Container| it.is_of(&spec.instance, &spec.agent);
    let removed = client::inspect(engine, &name).and_then(|seen| {
        let left = seen.filter(ours);
        left.map_or(Ok(()), |it| client::remove(engine, &it.id))
    });
    match removed {
        // An engine that is gone, and its container's first process with it.
        Err(_) if known.is_stopped() || known.resident.is_some_and(|it| !it.lives()) => {
            state.forget()
        }
        Err(error) => Err(error.within(engine.in_the_way(&spec.agent))),
        Ok(()) => state.forget(),
    }
}

/// Whether the container of that engine which the file names was stopped by us,
/// so that it uses no workspace whatever becomes of its engine.
pub fn is_stopped(engine: Engine, state_file: &Path) -> bool {
    let state = State::new(state_file.to_owned(), engine.runtime());
    state.known().is_some_and(|it| it.is_stopped())
}

/// The engine that an agent had a container of when last heard of, running or
/// stopped, by the file that [`AgentContainer::new`] is given.
pub fn engine_of(state_file: &Path) -> Option<Engine> {
    let names_one = |it: &Engine| State::new(state_file.to_owned(), it.runtime()).names_any();
    Engine::all().into_iter().find(names_one)
}
