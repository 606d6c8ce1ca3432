//! Which program makes an agent's sandbox. `auto` takes Docker if its daemon
//! answers and the image is there or can be made, else bubblewrap, and says
//! which and why. An agent that has a container keeps Docker, and one whose
//! bubblewrap sandbox lives keeps that: a second sandbox on its workspace could
//! run beside the first. There is no third choice that runs code on the host.

use crate::config::{Agent, Config, HOSTS_OWN_NETWORK, Home, Network, RuntimeChoice, UserChoice};
use crate::error::{Error, Kind, Result};
use crate::sandbox::bubblewrap::{self, Bubblewrap, HostLayout};
use crate::sandbox::docker::{self, Docker, image};
use crate::sandbox::{AgentSandbox, Runtime, Sandbox, Spec, instance};

/// The sandbox of an agent by the runtime of its configuration.
pub(super) fn choose(home: &Home, agent: &Agent, spec: Spec) -> Result<AgentSandbox> {
    let sandbox: Box<dyn Sandbox> = match agent.sandbox.runtime {
        RuntimeChoice::Docker => Box::new(docker(home, spec)),
        RuntimeChoice::Bubblewrap => Box::new(bubblewrap(spec)?),
        RuntimeChoice::Auto => auto(home, agent, spec)?,
    };
    let lock = home.sandbox_lock(&agent.name);
    Ok(AgentSandbox::new(sandbox, lock, &agent.sandbox.env))
}

fn docker(home: &Home, spec: Spec) -> Docker {
    let state = home.sandbox_state(&spec.agent);
    Docker::new(spec, state)
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
    /// A container.
    Docker,
    /// bubblewrap, and why not Docker.
    Bubblewrap(Error),
}

/// Docker if it serves, else bubblewrap if it can be, else an error that says
/// what each lacks. For an agent without a container.
pub fn decide(
    agent: &Agent,
    docker: Result<()>,
    bubblewrap: impl FnOnce() -> Result<()>,
) -> Result<Auto> {
    let Err(without_docker) = docker else { return Ok(Auto::Docker) };
    if agent.sandbox.user == UserChoice::Root {
        let what = "`user: \"root\"` needs Docker, since bubblewrap never runs as root";
        return Err(without_docker.within(what));
    }
    match bubblewrap() {
        Ok(()) => Ok(Auto::Bubblewrap(without_docker)),
        Err(error) => Err(Error::new(
            Kind::Sandbox,
            format!(
                "no sandbox can be made, and without one nothing runs. Docker: {without_docker}. \
                 bubblewrap: {error}"
            ),
        )),
    }
}

/// The sandbox by what `auto` comes to on this host.
fn auto(home: &Home, agent: &Agent, spec: Spec) -> Result<Box<dyn Sandbox>> {
    let docker = docker(home, spec.clone());
    // A container of this very spec was made before: nothing to ask.
    if docker.seems_up() {
        return Ok(Box::new(docker.kept()));
    }
    if keeps_bubblewrap(home, agent) {
        log::info!("the sandbox of `{}` stays bubblewrap's while it lives", agent.name);
        return Ok(Box::new(bubblewrap(spec)?));
    }
    let serves = docker::available();
    if serves.is_err() && docker::has_container(&home.sandbox_state(&agent.name)) {
        return Ok(Box::new(docker.kept()));
    }
    let serves = serves.and_then(|()| has_image(&agent.sandbox.image));
    match decide(agent, serves, bubblewrap::available)? {
        Auto::Docker => {
            log::info!("the sandbox of `{}` is Docker's: its daemon answers", agent.name);
            Ok(Box::new(docker))
        }
        Auto::Bubblewrap(without_docker) => {
            tell_of_bubblewrap(agent, &without_docker);
            Ok(Box::new(bubblewrap(spec)?))
        }
    }
}

/// Whether `auto` stays with bubblewrap whatever Docker says, since the agent's
/// sandbox lives and has it as its workspace. What bubblewrap cannot be is
/// Docker's all the same; that ends the other first.
pub fn keeps_bubblewrap(home: &Home, agent: &Agent) -> bool {
    agent.sandbox.user != UserChoice::Root && bubblewrap::lives(home, &agent.name)
}

/// An image is asked for by name, and bubblewrap has none, or there is a Docker
/// that does not answer: that is not what anybody would expect of `auto`, all
/// else is.
fn tell_of_bubblewrap(agent: &Agent, without_docker: &Error) {
    let (name, image) = (&agent.name, &agent.sandbox.image);
    if image == image::DEFAULT && docker::is_installed() {
        log::warn!(
            "the sandbox of `{name}` is bubblewrap's: {without_docker}; set `sandbox.runtime` to \
             \"bubblewrap\" if that is meant"
        );
    } else if image == image::DEFAULT {
        log::info!("the sandbox of `{name}` is bubblewrap's: {without_docker}");
    } else {
        log::warn!(
            "the sandbox of `{name}` is bubblewrap's, which has no image, though \
             `sandbox.image` is {image}: {without_docker}; set `sandbox.runtime` to say which of \
             the two you mean"
        );
    }
}

/// Whether Docker has the image, or can make it.
fn has_image(image: &str) -> Result<()> {
    match image == image::DEFAULT || docker::image_present(image)? {
        true => Ok(()),
        false => Err(no_image(image)),
    }
}

/// An image that is not here is never fetched.
pub fn no_image(image: &str) -> Error {
    let what = format!("the image {image} is not here, and beige fetches none");
    Error::new(Kind::Sandbox, what)
}

/// Removes what is left of this home's agents that are gone, or that are to
/// have another runtime's sandbox; `of_bubblewrap` are those that have one of
/// bubblewrap's. Answers which agents have a sandbox now.
pub(super) fn reap(config: &Config, of_bubblewrap: &[String]) -> Result<Vec<String>> {
    bubblewrap::reap(&config.home, of_bubblewrap)?;
    let mut there: Vec<String> =
        bubblewrap::list(&config.home).into_iter().map(|it| it.agent).collect();
    if docker::available().is_err() {
        return Ok(there);
    }
    let with_containers =
        config.agents.values().filter(|it| it.sandbox.runtime != RuntimeChoice::Bubblewrap);
    let known: Vec<String> = with_containers.map(|it| it.name.clone()).collect();
    let instance = instance(&config.home)?;
    docker::reap(&instance, &known)?;
    there.extend(docker::list(&instance)?.into_iter().map(|it| it.agent));
    Ok(there)
}
