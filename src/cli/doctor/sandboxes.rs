//! Docker and bubblewrap on this host, and what each agent would get of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Patient};
use crate::config::{Agent, HOSTS_OWN_NETWORK, Home, Network, RuntimeChoice, UserChoice};
use crate::error::{Error, Kind, Result};
use crate::gateway::runtime::{Auto, decide, keeps_bubblewrap, no_image};
use crate::sandbox::bubblewrap::{self, Bubblewrap, HostLayout};
use crate::sandbox::docker::{self, Daemon, image, kept_by_docker};
use crate::sandbox::foresee;

/// What was seen of Docker.
pub(super) struct Docker {
    daemon: Result<Daemon>,
    images: BTreeMap<String, Image>,
}

/// What was seen of an image.
enum Image {
    Absent,
    /// Its programs; `None` if it has no shell.
    Has(Option<Vec<String>>),
    Unknown(Error),
}

impl Docker {
    /// Asks the daemon, and looks into the images that agents may get.
    pub(super) fn look(patient: &Patient) -> Self {
        let daemon = docker::daemon();
        let mut images = BTreeMap::new();
        if daemon.is_ok() {
            images.extend(wanted_images(patient).into_iter().map(|it| {
                let seen = Image::look(&it);
                (it, seen)
            }));
        }
        Self { daemon, images }
    }

    /// Whether an agent can have a container of that image.
    fn serves(&self, name: &str) -> Result<()> {
        if self.daemon.is_err() {
            return Err(Error::new(Kind::Sandbox, NO_DOCKER));
        }
        match self.images.get(name) {
            Some(Image::Absent) if name != image::DEFAULT => Err(no_image(name)),
            _ => Ok(()),
        }
    }
}

impl Image {
    fn look(name: &str) -> Self {
        match docker::image_present(name) {
            Ok(false) => Self::Absent,
            Ok(true) => image::programs(name).map_or_else(Self::Unknown, Self::Has),
            Err(error) => Self::Unknown(error),
        }
    }
}

/// Makes a sandbox around nothing, as a gateway would; the version.
pub(super) fn bubblewrap() -> Result<String> {
    bubblewrap::try_out()
}

pub(super) fn check(patient: &Patient, docker: &Docker, bubblewrap: &Result<String>) -> Vec<Check> {
    let agents = || patient.config.iter().flat_map(|it| it.agents.values());
    let mut checks = vec![judge_docker(patient, docker, bubblewrap)];
    checks.extend(docker.images.iter().map(|(name, image)| judge_image(name, image)));
    checks.push(judge_bubblewrap(patient, docker, bubblewrap));
    for agent in agents() {
        checks.push(judge_agent(&patient.home, agent, docker, bubblewrap));
    }
    checks
}

/// The images of agents that may get a container; the default one if there is
/// no configuration to go by.
fn wanted_images(patient: &Patient) -> BTreeSet<String> {
    let Some(config) = &patient.config else { return BTreeSet::from([image::DEFAULT.to_owned()]) };
    let agents = config.agents.values().map(|it| &it.sandbox);
    let with_image = agents.filter(|it| it.runtime != RuntimeChoice::Bubblewrap);
    with_image.map(|it| it.image.clone()).collect()
}

/// One that is not there fails only if an agent cannot do without.
fn judge_docker(patient: &Patient, docker: &Docker, bubblewrap: &Result<String>) -> Check {
    let name = "docker";
    let daemon = match &docker.daemon {
        Ok(daemon) => daemon,
        Err(error) => {
            let needs = |it: &Agent| {
                it.sandbox.runtime == RuntimeChoice::Docker || it.sandbox.user == UserChoice::Root
            };
            let needed = patient.config.as_ref().is_some_and(|it| it.agents.values().any(needs));
            let chooses = |it: &Agent| it.sandbox.runtime == RuntimeChoice::Auto;
            let falls_back =
                patient.config.as_ref().is_some_and(|it| it.agents.values().any(chooses));
            return if needed || bubblewrap.is_err() {
                Check::failure(name, error.to_string(), DOCKER_FIX)
            } else if falls_back && docker::is_installed() {
                let found = format!("it does not answer, and bubblewrap does without: {error}");
                Check::warning(name, found, DOCKER_FIX)
            } else {
                Check::ok(name, format!("not here, and bubblewrap does without: {error}"))
            };
        }
    };
    let missing: Vec<&str> = [
        (daemon.memory, "memory"),
        (daemon.swap, "swap"),
        (daemon.pids, "processes"),
        (daemon.cpus, "processor time"),
    ]
    .into_iter()
    .filter_map(|(has, what)| (!has).then_some(what))
    .collect();
    let found = format!("version {} answers", daemon.version);
    if missing.is_empty() {
        return Check::ok(name, format!("{found}; it bounds memory, processes, processor time"));
    }
    let found = format!("{found} and cannot bound {}", missing.join(", "));
    Check::warning(name, found, "boot with `cgroup_enable=memory swapaccount=1`, or use cgroup v2")
}

/// What an agent's line says of a Docker that is described above it.
const NO_DOCKER: &str = "Docker does not answer";

/// Why an agent has bubblewrap whatever Docker says.
const STAYS: &str = "its sandbox runs: `beige sandbox rm` ends it, and the next call chooses anew";

const DOCKER_FIX: &str = "install Docker and start it (`systemctl start docker`), or set \
                          sandbox.runtime to \"bubblewrap\"";

fn judge_image(name: &str, image: &Image) -> Check {
    let title = format!("image {name}");
    match image {
        Image::Absent if name == image::DEFAULT => Check::warning(
            title,
            "it is not built yet; the first start of an agent builds it",
            "`beige sandbox build`, or `beige sandbox build --offline` without a registry",
        ),
        Image::Absent => {
            Check::warning(title, "it is not here, and beige fetches none", way_to_an_image(name))
        }
        Image::Has(Some(programs)) => Check::ok(title, format!("it has {}", programs.join(", "))),
        Image::Has(None) => Check::failure(
            title,
            "it has no /bin/sh, so that no agent can run a command in it",
            "add a shell to it, or set sandbox.image to another",
        ),
        Image::Unknown(error) => {
            Check::failure(title, error.to_string(), "see whether `docker run` works here")
        }
    }
}

fn judge_bubblewrap(patient: &Patient, docker: &Docker, bubblewrap: &Result<String>) -> Check {
    let name = "bubblewrap";
    let error = match bubblewrap {
        Ok(version) => return Check::ok(name, format!("version {version} makes sandboxes here")),
        Err(error) => error,
    };
    let needs = |it: &Agent| match it.sandbox.runtime {
        RuntimeChoice::Bubblewrap => true,
        RuntimeChoice::Auto => docker.serves(&it.sandbox.image).is_err(),
        RuntimeChoice::Docker => false,
    };
    let needed = match &patient.config {
        Some(config) => config.agents.values().any(needs),
        None => docker.daemon.is_err(),
    };
    match needed {
        // The error says what to install or to allow.
        true => Check::failure(name, error.to_string(), BUBBLEWRAP_FIX),
        false => Check::ok(name, format!("not usable, and no agent needs it: {error}")),
    }
}

const BUBBLEWRAP_FIX: &str = "install or allow what is named (docs/bubblewrap.md), or use Docker";

/// What an agent would get.
fn judge_agent(home: &Home, agent: &Agent, docker: &Docker, bubblewrap: &Result<String>) -> Check {
    let name = format!("agent {}", agent.name);
    let image = &agent.sandbox.image;
    let bubblewrap_serves = || match bubblewrap {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(Kind::Sandbox, "it is not usable here (see `bubblewrap`)")),
    };
    let decided = match agent.sandbox.runtime {
        RuntimeChoice::Docker => docker.serves(image).map(|()| None),
        RuntimeChoice::Bubblewrap => bubblewrap_serves().map(|()| Some(None)),
        RuntimeChoice::Auto if keeps_bubblewrap(home, agent) => {
            bubblewrap_serves().map(|()| Some(Some(Error::new(Kind::Sandbox, STAYS))))
        }
        RuntimeChoice::Auto if docker.daemon.is_err() && has_container(home, agent) => {
            let fix = format!("start Docker (see `docker`), or `beige sandbox rm {}`", agent.name);
            return Check::failure(
                name,
                format!("{NO_DOCKER}: {}", kept_by_docker(&agent.name)),
                fix,
            );
        }
        RuntimeChoice::Auto => {
            decide(agent, docker.serves(image), bubblewrap_serves).map(|it| match it {
                Auto::Docker => None,
                Auto::Bubblewrap(without_docker) => Some(Some(without_docker)),
            })
        }
    };
    match decided {
        Ok(None) => in_docker(name, home, agent),
        Ok(Some(without_docker)) => in_bubblewrap(name, home, agent, without_docker.as_ref()),
        Err(error) => Check::failure(name, error.to_string(), way_to_a_sandbox(docker, agent)),
    }
}

/// What to do for an agent that no runtime serves.
fn way_to_a_sandbox(docker: &Docker, agent: &Agent) -> String {
    let image = &agent.sandbox.image;
    let lacks_image = matches!(docker.images.get(image), Some(Image::Absent));
    match agent.sandbox.runtime {
        RuntimeChoice::Bubblewrap => "mend `bubblewrap`, above, or use Docker".into(),
        _ if docker.daemon.is_err() => "mend `docker`, above".into(),
        _ if lacks_image => format!("get the image: {}", way_to_an_image(image)),
        _ => format!("mend `image {image}`, above"),
    }
}

/// How an image that is not the default one comes here.
fn way_to_an_image(name: &str) -> String {
    format!("`docker pull {name}`, or `beige sandbox build --image {name}`")
}

fn has_container(home: &Home, agent: &Agent) -> bool {
    docker::has_container(&home.sandbox_state(&agent.name))
}

fn in_docker(name: String, home: &Home, agent: &Agent) -> Check {
    let sandbox = &agent.sandbox;
    let network = network(sandbox.network.unwrap_or(Network::Open));
    match foresee(home, agent) {
        Ok(spec) => Check::ok(
            name,
            format!("docker, image {}, user {}, {network}", sandbox.image, spec.uid),
        ),
        Err(error) => parted(name, &error),
    }
}

/// An error that ends with what to do, which stands behind its first `; `.
fn parted(name: String, error: &Error) -> Check {
    let text = error.to_string();
    match text.split_once("; ") {
        Some((found, fix)) => Check::failure(name, found, fix),
        None => Check::failure(name, text, "look at the agent's `sandbox` and `workspaceDir`"),
    }
}

fn in_bubblewrap(
    name: String,
    home: &Home,
    agent: &Agent,
    without_docker: Option<&Error>,
) -> Check {
    let wanted = foresee(home, agent).and_then(|spec| {
        let uid = spec.uid;
        Bubblewrap::new(spec, HostLayout::look()?).map(|it| (uid, it.foresee_limits()))
    });
    let (uid, limits) = match wanted {
        Ok(it) => it,
        Err(error) => return parted(name, &error),
    };
    let open = agent.sandbox.network.unwrap_or(Network::None);
    let why = without_docker.map(|it| format!(", since {it}")).unwrap_or_default();
    let found = format!("bubblewrap, user {uid}, {}; {}{why}", network(open), limits.text);
    let has_image = agent.sandbox.image != image::DEFAULT;
    if open == Network::Open {
        let fix = "set sandbox.network to \"none\", or use Docker";
        return Check::warning(name, format!("{found}; {HOSTS_OWN_NETWORK}"), fix);
    }
    if has_image && without_docker.is_some() {
        let found = format!("{found}; it has no image, though sandbox.image names one");
        return Check::warning(name, found, "set sandbox.runtime to say which of the two is meant");
    }
    if !limits.are_held {
        let fix = "run the gateway as root or as a service with Delegate=yes (docs/operations.md)";
        return Check::warning(name, found, fix);
    }
    Check::ok(name, found)
}

fn network(network: Network) -> &'static str {
    match network {
        Network::Open => "network open",
        Network::None => "no network",
    }
}
