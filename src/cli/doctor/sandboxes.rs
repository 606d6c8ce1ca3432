//! Docker, Podman and bubblewrap on this host, and what each agent would get of
//! them.

mod engines;

use super::{Check, Patient};
use crate::config::{Agent, HOSTS_OWN_NETWORK, Home, Network, RuntimeChoice};
use crate::error::{Error, Kind, Result};
use crate::gateway::runtime::{Auto, decide, keeps_bubblewrap};
use crate::sandbox::bubblewrap::{self, Bubblewrap, HostLayout};
use crate::sandbox::containers::{Engine, Facts, engine_of, image, is_stopped};
use crate::sandbox::foresee;
pub(super) use engines::Containers;
use engines::way_to_an_image;

/// What was seen of all of them.
pub(super) struct Runtimes {
    pub(super) docker: Containers,
    pub(super) podman: Containers,
    /// The version, if it makes sandboxes.
    pub(super) bubblewrap: Result<String>,
}

impl Runtimes {
    fn of(&self, engine: Engine) -> &Containers {
        match engine {
            Engine::Docker => &self.docker,
            Engine::Podman | Engine::RootlessPodman => &self.podman,
        }
    }

    fn bubblewrap_serves(&self) -> Result<()> {
        match &self.bubblewrap {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(Kind::Sandbox, "it is not usable here (see `bubblewrap`)")),
        }
    }

    /// Whether an agent that takes what there is could do without that engine.
    fn can_do_without(&self, engine: Engine, agent: &Agent) -> bool {
        let image = &agent.sandbox.image;
        let others = [&self.docker, &self.podman].into_iter().filter(|it| it.engine() != engine);
        let bubblewrap = agent.sandbox.may_be_bubblewrap() && self.bubblewrap.is_ok();
        bubblewrap || others.into_iter().any(|it| it.serves(image).is_ok())
    }
}

/// Makes a sandbox around nothing, as a gateway would; the version.
pub(super) fn bubblewrap() -> Result<String> {
    bubblewrap::try_out()
}

pub(super) fn check(patient: &Patient, runtimes: &Runtimes) -> Vec<Check> {
    let mut checks = engines::check(patient, runtimes);
    checks.push(judge_bubblewrap(patient, runtimes));
    for agent in patient.config.iter().flat_map(|it| it.agents.values()) {
        checks.push(judge_agent(&patient.home, agent, runtimes));
    }
    checks
}

/// Why an agent has bubblewrap whatever the engines say.
const STAYS: &str = "its sandbox runs: `beige sandbox rm` ends it, and the next call chooses anew";

fn judge_bubblewrap(patient: &Patient, runtimes: &Runtimes) -> Check {
    let name = "bubblewrap";
    let error = match &runtimes.bubblewrap {
        Ok(version) => return Check::ok(name, format!("version {version} makes sandboxes here")),
        Err(error) => error,
    };
    let has_container = |image: &str| {
        [&runtimes.docker, &runtimes.podman].into_iter().any(|it| it.serves(image).is_ok())
    };
    let needs = |it: &Agent| match it.sandbox.runtime {
        RuntimeChoice::Bubblewrap => true,
        RuntimeChoice::Auto => !has_container(&it.sandbox.image),
        RuntimeChoice::Docker | RuntimeChoice::Podman => false,
    };
    let needed = match &patient.config {
        Some(config) => config.agents.values().any(needs),
        None => !has_container(image::DEFAULT),
    };
    match needed {
        // The error says what to install or to allow.
        true => Check::failure(name, error.to_string(), BUBBLEWRAP_FIX),
        false => Check::ok(name, format!("not usable, and no agent needs it: {error}")),
    }
}

const BUBBLEWRAP_FIX: &str =
    "install or allow what is named (docs/bubblewrap.md), or use Docker or Podman";

/// What an agent would get.
fn judge_agent(home: &Home, agent: &Agent, runtimes: &Runtimes) -> Check {
    let name = format!("agent {}", agent.name);
    let (image, state) = (&agent.sandbox.image, home.sandbox_state(&agent.name));
    let served_by = |it: &Containers| it.serves(image).map(|()| Auto::Container(it.engine(), None));
    let decided = match agent.sandbox.runtime {
        RuntimeChoice::Docker => served_by(&runtimes.docker),
        RuntimeChoice::Podman => served_by(&runtimes.podman),
        RuntimeChoice::Bubblewrap => match runtimes.bubblewrap_serves() {
            Ok(()) => return in_bubblewrap(name, home, agent, None),
            Err(error) => Err(error),
        },
        RuntimeChoice::Auto if keeps_bubblewrap(home, agent) => {
            let stays = || Auto::Bubblewrap(Error::new(Kind::Sandbox, STAYS));
            runtimes.bubblewrap_serves().map(|()| stays())
        }
        RuntimeChoice::Auto => match engine_of(&state) {
            Some(engine) if runtimes.of(engine).facts().is_ok() => served_by(runtimes.of(engine)),
            Some(engine) if !is_stopped(engine, &state) => {
                return kept_by_silent(name, agent, engine);
            }
            _ => decide(
                agent,
                runtimes.docker.serves(image),
                || runtimes.podman.serves(image),
                || runtimes.bubblewrap_serves(),
            ),
        },
    };
    match decided {
        Ok(Auto::Container(engine, without)) => {
            in_container(name, home, agent, runtimes.of(engine), without.as_ref())
        }
        Ok(Auto::Bubblewrap(without)) => in_bubblewrap(name, home, agent, Some(&without)),
        Err(error) => Check::failure(name, error.to_string(), way_to_a_sandbox(runtimes, agent)),
    }
}

fn kept_by_silent(name: String, agent: &Agent, engine: Engine) -> Check {
    let (title, program) = (engine.title(), engine.program());
    let found = format!("{title} does not answer: {}", engine.kept(&agent.name));
    let verb = if engine == Engine::Docker { "start" } else { "mend" };
    let fix = format!("{verb} {title} (see `{program}`), or `beige sandbox rm {}`", agent.name);
    Check::failure(name, found, fix)
}

/// What to do for an agent that no runtime serves.
fn way_to_a_sandbox(runtimes: &Runtimes, agent: &Agent) -> String {
    let image = &agent.sandbox.image;
    let of_engine = |it: &Containers| {
        let program = it.engine().program();
        match it.facts() {
            Err(_) => format!("mend `{program}`, above"),
            Ok(_) if it.lacks(image) => {
                format!("get the image: {}", way_to_an_image(it.engine(), image))
            }
            Ok(_) => format!("mend `image {image}`, above"),
        }
    };
    match agent.sandbox.runtime {
        RuntimeChoice::Bubblewrap => "mend `bubblewrap`, above, or use Docker or Podman".into(),
        RuntimeChoice::Podman => of_engine(&runtimes.podman),
        RuntimeChoice::Docker | RuntimeChoice::Auto => of_engine(&runtimes.docker),
    }
}

/// A container, with the limits that no cgroup holds.
fn in_container(
    name: String,
    home: &Home,
    agent: &Agent,
    containers: &Containers,
    without: Option<&Error>,
) -> Check {
    let (sandbox, engine) = (&agent.sandbox, containers.engine());
    let network = network(sandbox.network.unwrap_or(Network::Open));
    let spec = foresee(home, agent).and_then(|spec| engine.check_user(&spec).map(|()| spec));
    let uid = match spec {
        Ok(spec) => spec.uid,
        Err(error) => return parted(name, &error),
    };
    let why = without.map(|it| format!(", since {it}")).unwrap_or_default();
    let found = format!("{}, image {}, user {uid}, {network}", engine.program(), sandbox.image);
    let inside = containers.facts().as_ref().ok().and_then(|it| limits_inside(engine, agent, it));
    match inside {
        None => Check::ok(name, format!("{found}{why}")),
        Some(limits) => Check::warning(name, format!("{found}; {limits}{why}"), LIMITS_FIX),
    }
}

/// Which limits hold inside alone, since rootless Podman has no cgroup for
/// them here; Docker's own line tells what Docker lacks.
fn limits_inside(engine: Engine, agent: &Agent, facts: &Facts) -> Option<String> {
    if engine != Engine::RootlessPodman {
        return None;
    }
    let bounds = facts.bounds;
    let no_cpus = !bounds.cpus && agent.sandbox.cpus.is_some();
    let words = [
        (!bounds.memory, "memory: RLIMIT_DATA, each process for itself"),
        (!bounds.pids, "pids: RLIMIT_NPROC, all processes of the container together"),
        (no_cpus, "cpu: not limited"),
    ];
    let words: Vec<&str> = words.into_iter().filter_map(|it| it.0.then_some(it.1)).collect();
    (!words.is_empty()).then(|| format!("limits are set inside: {}", words.join("; ")))
}

const LIMITS_FIX: &str = "run the gateway as root, or under cgroup v2 in a systemd session of its \
                          user (docs/podman.md)";

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
    without_containers: Option<&Error>,
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
    let why = without_containers.map(|it| format!(", since {it}")).unwrap_or_default();
    let found = format!("bubblewrap, user {uid}, {}; {}{why}", network(open), limits.text);
    let has_image = agent.sandbox.image != image::DEFAULT;
    if open == Network::Open {
        let fix = "set sandbox.network to \"none\", or use Docker or Podman";
        return Check::warning(name, format!("{found}; {HOSTS_OWN_NETWORK}"), fix);
    }
    if has_image && without_containers.is_some() {
        let found = format!("{found}; it has no image, though sandbox.image names one");
        return Check::warning(name, found, "set sandbox.runtime to say which of them is meant");
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
