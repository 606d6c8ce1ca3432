//! Which program makes an agent's sandbox. `auto` takes Docker if its daemon
//! answers and the image is there or can be made, else Podman, else bubblewrap,
//! and says which and why. An agent that has a container, running or stopped,
//! keeps its engine, and one whose bubblewrap sandbox lives keeps that: a second
//! sandbox on its workspace could run beside the first. There is no further
//! choice that runs code on the host.

use crate::config::{Agent, Config, HOSTS_OWN_NETWORK, Home, Network, RuntimeChoice, UserChoice};
use crate::error::{Error, Kind, Result};
use crate::sandbox::bubblewrap::{self, Bubblewrap, HostLayout};
use crate::sandbox::containers::{self, AgentContainer, Engine, image};
use crate::sandbox::{AgentSandbox, Runtime, Sandbox, Spec, instance};

/// The sandbox of an agent by the runtime of its configuration.
pub(super) fn choose(home: &Home, agent: &Agent, spec: Spec) -> Result<AgentSandbox> {
    let sandbox: Box<dyn Sandbox> = match agent.sandbox.runtime {
        RuntimeChoice::Docker => Box::new(container(Engine::Docker, home, spec)),
        RuntimeChoice::Podman => Box::new(container(Engine::podman(), home, spec)),
        RuntimeChoice::Bubblewrap => Box::new(bubblewrap(spec)?),
        RuntimeChoice::Auto => auto(home, agent, spec)?,
    };
    let lock = home.sandbox_lock(&agent.name);
    Ok(AgentSandbox::new(sandbox, lock, &agent.sandbox.env))
}

fn container(engine: Engine, home: &Home, spec: Spec) -> AgentContainer {
    let state = home.sandbox_state(&spec.agent);
    AgentContainer::new(engine, spec, state)
}

fn bubblewrap(spec: Spec) -> Result<Bubblewrap> {
    Bubblewrap::new(spec, HostLayout::look()?)
}

/// Warns of an agent that gets more of the host than a person may think.
pub(super) fn warn_of_network(agent: &Agent, sandbox: &AgentSandbox) {
    let is_bubblewrap = sandbox.runtime() == Runtime::Bubblewrap.name();
    if is_bubblewrap && agent.sandbox.network == Some(Network::Open) {
        log::warn!("the sandbox of `{}`: {HOSTS_OWN_NETWORK}", agent.name);
    }
}

/// What `auto` comes to.
#[derive(Debug)]
pub enum Auto {
    /// A container of that engine, and why of none before it.
    Container(Engine, Option<Error>),
    /// bubblewrap, and why no container.
    Bubblewrap(Error),
}

/// Docker if it serves, else Podman, else bubblewrap if it can be, else an
/// error that says what each lacks. For an agent without a container.
pub fn decide(
    agent: &Agent,
    docker: Result<()>,
    podman: impl FnOnce() -> Result<()>,
    bubblewrap: impl FnOnce() -> Result<()>,
) -> Result<Auto> {
    let Err(without_docker) = docker else { return Ok(Auto::Container(Engine::Docker, None)) };
    let Err(without_podman) = podman() else {
        return Ok(Auto::Container(Engine::podman(), Some(without_docker)));
    };
    let lack = |text| Error::new(Kind::Sandbox, text);
    let without = without_both(agent, &without_docker, &without_podman);
    if agent.sandbox.user == UserChoice::Root {
        return Err(lack(format!(
            "`user: \"root\"` needs Docker or Podman, since bubblewrap never runs as root. {without}"
        )));
    }
    match bubblewrap() {
        Ok(()) => Ok(Auto::Bubblewrap(lack(without))),
        Err(error) => Err(lack(format!(
            "no sandbox can be made, and without one nothing runs. {without}. bubblewrap: {error}"
        ))),
    }
}

/// What keeps an agent from having a container, said once if it is the same.
fn without_both(agent: &Agent, docker: &Error, podman: &Error) -> String {
    let image = &agent.sandbox.image;
    let lacks = |engine, error: &Error| error.to_string() == no_image(engine, image).to_string();
    match lacks(Engine::Docker, docker) && lacks(Engine::podman(), podman) {
        true => {
            format!("the image {image} is not here for Docker or Podman, and beige fetches none")
        }
        false => format!("Docker: {docker}. Podman: {podman}"),
    }
}

/// The sandbox by what `auto` comes to on this host.
fn auto(home: &Home, agent: &Agent, spec: Spec) -> Result<Box<dyn Sandbox>> {
    let image = &agent.sandbox.image;
    if keeps_bubblewrap(home, agent) {
        log::info!("the sandbox of `{}` stays bubblewrap's while it lives", agent.name);
        return Ok(Box::new(bubblewrap(spec)?));
    }
    let state = home.sandbox_state(&agent.name);
    if let Some(engine) = containers::engine_of(&state) {
        let container = container(engine, home, spec.clone());
        let keeps = || match engine.available() {
            Ok(()) => has_image(engine, image).is_ok(),
            // One that may still run uses the workspace.
            Err(_) => !containers::is_stopped(engine, &state),
        };
        // A container of this very spec was made before: nothing to ask.
        if container.seems_up() || keeps() {
            return Ok(Box::new(container.kept()));
        }
    }
    let serves = |engine: Engine| engine.available().and_then(|()| has_image(engine, image));
    let podman = || serves(Engine::podman());
    match decide(agent, serves(Engine::Docker), podman, bubblewrap::available)? {
        Auto::Container(engine, without) => {
            tell_of_engine(agent, engine, without.as_ref());
            Ok(Box::new(container(engine, home, spec)))
        }
        Auto::Bubblewrap(without_containers) => {
            tell_of_bubblewrap(agent, &without_containers);
            Ok(Box::new(bubblewrap(spec)?))
        }
    }
}

/// Podman where there is a Docker that does not answer may not be what anybody
/// expects; all else is.
fn tell_of_engine(agent: &Agent, engine: Engine, without: Option<&Error>) {
    let (name, title) = (&agent.name, engine.title());
    match without {
        None => log::info!("the sandbox of `{name}` is {title}'s: its daemon answers"),
        Some(error) if Engine::Docker.is_installed() => log::warn!(
            "the sandbox of `{name}` is {title}'s: {error}; set `sandbox.runtime` to \"{}\" if \
             that is meant",
            engine.program()
        ),
        Some(error) => log::info!("the sandbox of `{name}` is {title}'s: {error}"),
    }
}

/// Whether `auto` stays with bubblewrap whatever the engines say, since the
/// agent's sandbox lives and has it as its workspace. What bubblewrap cannot be
/// is a container all the same; that ends the other first.
pub fn keeps_bubblewrap(home: &Home, agent: &Agent) -> bool {
    agent.sandbox.user != UserChoice::Root && bubblewrap::lives(home, &agent.name)
}

/// An image is asked for by name, and bubblewrap has none, or there is an
/// engine that does not serve: that is not what anybody would expect of
/// `auto`, all else is.
fn tell_of_bubblewrap(agent: &Agent, without: &Error) {
    let (name, image) = (&agent.name, &agent.sandbox.image);
    if image == image::DEFAULT && Engine::all().into_iter().any(Engine::is_installed) {
        log::warn!(
            "the sandbox of `{name}` is bubblewrap's: {without}; set `sandbox.runtime` to \
             \"bubblewrap\" if that is meant"
        );
    } else if image == image::DEFAULT {
        log::info!("the sandbox of `{name}` is bubblewrap's: {without}");
    } else {
        log::warn!(
            "the sandbox of `{name}` is bubblewrap's, which has no image, though \
             `sandbox.image` is {image}: {without}; set `sandbox.runtime` to say which of \
             them you mean"
        );
    }
}

/// Whether an engine has the image, or can make it.
pub(super) fn has_image(engine: Engine, image: &str) -> Result<()> {
    match image == image::DEFAULT || engine.image_present(image)? {
        true => Ok(()),
        false => Err(no_image(engine, image)),
    }
}

/// An image that an engine has not is never fetched.
pub fn no_image(engine: Engine, image: &str) -> Error {
    let title = engine.title();
    let what = format!("the image {image} is not here for {title}, and beige fetches none");
    Error::new(Kind::Sandbox, what)
}

/// Removes what is left of this home's agents that are gone, or that are to
/// have another runtime's sandbox; `of_bubblewrap` are those that have one of
/// bubblewrap's. Answers which agents have a sandbox now.
pub(super) fn reap(config: &Config, of_bubblewrap: &[String]) -> Result<Vec<String>> {
    bubblewrap::reap(&config.home, of_bubblewrap)?;
    let listed = bubblewrap::list(&config.home);
    let mut there: Vec<String> = listed.into_iter().map(|it| it.agent).collect();
    let instance = instance(&config.home)?;
    for engine in Engine::all().into_iter().filter(|it| it.was_used()) {
        let may_have = config.agents.values().filter(|it| may_be_of(engine, config, it));
        let known: Vec<String> = may_have.map(|it| it.name.clone()).collect();
        match engine.reap(&instance, &known) {
            Ok(_) => {}
            Err(error) if engine.available().is_ok() => return Err(error),
            // What does not answer has nothing that could be in the way.
            Err(_) => continue,
        }
        there.extend(engine.list(&instance)?.into_iter().map(|it| it.agent));
    }
    Ok(there)
}

/// Whether an agent may have a container of that engine: with `auto` it has
/// one sandbox, which is the one that its file names.
fn may_be_of(engine: Engine, config: &Config, agent: &Agent) -> bool {
    match agent.sandbox.runtime {
        RuntimeChoice::Docker => engine == Engine::Docker,
        RuntimeChoice::Podman => engine == Engine::podman(),
        RuntimeChoice::Bubblewrap => false,
        RuntimeChoice::Auto => {
            let named = containers::engine_of(&config.home.sandbox_state(&agent.name));
            named.is_none_or(|it| it == engine)
        }
    }
}
