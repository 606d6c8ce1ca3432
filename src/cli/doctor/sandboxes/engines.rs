//! The container engines of this host and the images that agents would start
//! from. An engine that no agent may get is not asked.

use std::collections::{BTreeMap, BTreeSet};

use super::Runtimes;
use crate::cli::doctor::{Check, Patient};
use crate::config::{Agent, RuntimeChoice};
use crate::error::{Error, Kind, Result};
use crate::gateway::runtime::no_image;
use crate::sandbox::containers::{Engine, Facts, cure, image};

/// What was seen of an engine.
pub(in crate::cli::doctor) struct Containers {
    engine: Engine,
    facts: Result<Facts>,
    images: BTreeMap<String, Image>,
}

/// What was seen of an image.
enum Image {
    Absent,
    /// Its programs; `None` if it has no shell.
    Has(Option<Vec<String>>),
    Unknown(Error),
}

impl Containers {
    /// Asks the engine, and looks into the images that agents may get.
    pub(in crate::cli::doctor) fn look(engine: Engine, patient: &Patient) -> Self {
        let facts = match may_be_asked(engine, patient) {
            true => engine.facts(),
            false => Err(Error::new(Kind::Sandbox, "no agent may get it, so it was not asked")),
        };
        let mut images = BTreeMap::new();
        if facts.is_ok() {
            images.extend(wanted_images(engine, patient).into_iter().map(|it| {
                let seen = Image::look(engine, &it);
                (it, seen)
            }));
        }
        Self { engine, facts, images }
    }

    pub(super) fn engine(&self) -> Engine {
        self.engine
    }

    pub(super) fn facts(&self) -> &Result<Facts> {
        &self.facts
    }

    /// Whether an agent can have a container of that image.
    pub(super) fn serves(&self, name: &str) -> Result<()> {
        if self.facts.is_err() {
            // Its own line stands above.
            let text = format!("{} does not answer", self.engine.title());
            return Err(Error::new(Kind::Sandbox, text));
        }
        match self.lacks(name) && name != image::DEFAULT {
            true => Err(no_image(self.engine, name)),
            false => Ok(()),
        }
    }

    pub(super) fn lacks(&self, name: &str) -> bool {
        matches!(self.images.get(name), Some(Image::Absent))
    }
}

impl Image {
    fn look(engine: Engine, name: &str) -> Self {
        match engine.image_present(name) {
            Ok(false) => Self::Absent,
            Ok(true) => image::programs(engine, name).map_or_else(Self::Unknown, Self::Has),
            Err(error) => Self::Unknown(error),
        }
    }
}

/// The engines' lines, each with its images below it.
pub(super) fn check(patient: &Patient, runtimes: &Runtimes) -> Vec<Check> {
    let mut checks = vec![judge(&runtimes.docker, patient, runtimes)];
    checks.extend(runtimes.docker.images.iter().map(|it| judge_image(Engine::Docker, it)));
    checks.push(judge(&runtimes.podman, patient, runtimes));
    let podman = &runtimes.podman;
    let used = podman.images.iter().filter(|it| is_used(podman, patient, runtimes, it.0));
    checks.extend(used.map(|it| judge_image(podman.engine, it)));
    checks
}

/// Podman without root leaves traces in a home as soon as it is asked.
fn may_be_asked(engine: Engine, patient: &Patient) -> bool {
    let agents = || patient.config.iter().flat_map(|it| it.agents.values());
    let any_wants = |choice| agents().any(|it| it.sandbox.runtime == choice);
    engine != Engine::RootlessPodman
        || engine.was_used()
        || any_wants(RuntimeChoice::Podman)
        || any_wants(RuntimeChoice::Auto) && Engine::Docker.available().is_err()
}

fn may_be_of(engine: Engine, agent: &Agent) -> bool {
    match agent.sandbox.runtime {
        RuntimeChoice::Docker => engine == Engine::Docker,
        RuntimeChoice::Podman => engine != Engine::Docker,
        RuntimeChoice::Auto => true,
        RuntimeChoice::Bubblewrap => false,
    }
}

/// Whether an agent gets that image of Podman, which comes after Docker.
fn is_used(podman: &Containers, patient: &Patient, runtimes: &Runtimes, name: &str) -> bool {
    let mut agents = patient.config.iter().flat_map(|it| it.agents.values());
    agents.any(|it| match it.sandbox.runtime {
        _ if it.sandbox.image != name => false,
        RuntimeChoice::Podman => true,
        _ => may_be_of(podman.engine, it) && runtimes.docker.serves(name).is_err(),
    })
}

/// The images of agents that may get a container of that engine; the default
/// one of Docker if there is no configuration to go by.
fn wanted_images(engine: Engine, patient: &Patient) -> BTreeSet<String> {
    let Some(config) = &patient.config else {
        let default = (engine == Engine::Docker).then(|| image::DEFAULT.to_owned());
        return default.into_iter().collect();
    };
    let agents = config.agents.values().filter(|it| may_be_of(engine, it));
    agents.map(|it| it.sandbox.image.clone()).collect()
}

fn judge(containers: &Containers, patient: &Patient, runtimes: &Runtimes) -> Check {
    let (engine, name) = (containers.engine, containers.engine.program());
    let facts = match &containers.facts {
        Ok(facts) => facts,
        Err(error) => return judge_silent(engine, error, patient, runtimes),
    };
    let found = match engine {
        Engine::Docker => format!("version {} answers", facts.version),
        Engine::Podman => format!("version {} works, as root", facts.version),
        Engine::RootlessPodman => format!("version {} works, rootless", facts.version),
    };
    let missing = facts.bounds.missing();
    if missing.is_empty() {
        return Check::ok(name, format!("{found}; it bounds memory, processes, processor time"));
    }
    let found = format!("{found} and cannot bound {}", missing.join(", "));
    match engine {
        Engine::RootlessPodman => {
            // Each agent that gets one warns itself.
            Check::ok(name, format!("{found}, so that these limits are set inside"))
        }
        _ => {
            let fix = "boot with `cgroup_enable=memory swapaccount=1`, or use cgroup v2";
            Check::warning(name, found, fix)
        }
    }
}

/// One that does not serve fails only if an agent cannot do without.
fn judge_silent(engine: Engine, error: &Error, patient: &Patient, runtimes: &Runtimes) -> Check {
    let name = engine.program();
    let agents = || patient.config.iter().flat_map(|it| it.agents.values());
    let needs = |it: &Agent| match it.sandbox.runtime {
        RuntimeChoice::Auto => engine == Engine::Docker && !runtimes.can_do_without(engine, it),
        _ => may_be_of(engine, it),
    };
    let without_config = patient.config.is_none()
        && engine == Engine::Docker
        && runtimes.bubblewrap.is_err()
        && runtimes.podman.facts.is_err();
    let chooses = |it: &Agent| it.sandbox.runtime == RuntimeChoice::Auto;
    let (found, fix) = found_and_fix(engine, error);
    if without_config || agents().any(needs) {
        return Check::failure(name, found, fix);
    }
    let instead = does_without(engine, patient, runtimes);
    match engine.is_installed() {
        true if engine == Engine::Docker && agents().any(chooses) => {
            Check::warning(name, format!("it does not answer, and {instead}: {found}"), fix)
        }
        true => Check::ok(name, format!("it does not work here, and {instead}: {found}")),
        false => Check::ok(name, format!("not here, and {instead}: {found}")),
    }
}

/// What those agents have that could have had a container of that engine.
fn does_without(engine: Engine, patient: &Patient, runtimes: &Runtimes) -> &'static str {
    let agents = || patient.config.iter().flat_map(|it| it.agents.values());
    let has_podman = engine == Engine::Docker && runtimes.podman.facts.is_ok();
    let chooses = |it: &Agent| it.sandbox.runtime == RuntimeChoice::Auto;
    if has_podman && agents().any(chooses) {
        "Podman does without"
    } else if runtimes.bubblewrap.is_ok() && agents().all(|it| it.sandbox.may_be_bubblewrap()) {
        "bubblewrap does without"
    } else if has_podman && patient.config.is_none() {
        "Podman does without"
    } else {
        "no agent needs it"
    }
}

/// What an engine that is of no use says, without its cure, and the cure.
fn found_and_fix(engine: Engine, error: &Error) -> (String, String) {
    let text = error.to_string();
    let other = match engine {
        Engine::Docker => "set sandbox.runtime to \"podman\" or \"bubblewrap\"",
        Engine::Podman | Engine::RootlessPodman => "set sandbox.runtime to \"bubblewrap\"",
    };
    match client_cure(engine, &text) {
        Some(cure) => (text.replace(&format!(" ({cure})"), ""), format!("{cure}; or {other}")),
        None => (text, format!("{}, or {other}", usual_fix(engine))),
    }
}

/// A known cure; nothing that is not here has one but to come here.
fn client_cure(engine: Engine, text: &str) -> Option<&'static str> {
    cure(text).filter(|_| engine.is_installed())
}

fn usual_fix(engine: Engine) -> &'static str {
    match (engine, engine.is_installed()) {
        (Engine::Docker, false) => "install Docker and start it (`systemctl start docker`)",
        (Engine::Docker, true) => "mend what is named (`docker version` tells more)",
        (_, false) => "install the packages `podman` and `uidmap` (docs/podman.md)",
        (_, true) => "mend what is named (docs/podman.md; `podman info` tells more)",
    }
}

fn judge_image(engine: Engine, (name, image): (&String, &Image)) -> Check {
    let title = match engine {
        Engine::Docker => format!("image {name}"),
        Engine::Podman | Engine::RootlessPodman => format!("podman image {name}"),
    };
    let program = engine.program();
    match image {
        Image::Absent if name == image::DEFAULT => Check::warning(
            title,
            "it is not built yet; the first start of an agent builds it",
            format!(
                "`beige sandbox build --runtime {program}`, or with `--offline` without a registry"
            ),
        ),
        Image::Absent => Check::warning(
            title,
            "it is not here, and beige fetches none",
            way_to_an_image(engine, name),
        ),
        Image::Has(Some(programs)) => Check::ok(title, format!("it has {}", programs.join(", "))),
        Image::Has(None) => Check::failure(
            title,
            "it has no /bin/sh, so that no agent can run a command in it",
            "add a shell to it, or set sandbox.image to another",
        ),
        Image::Unknown(error) => {
            let fix = format!("see whether `{program} run` works here");
            Check::failure(title, error.to_string(), fix)
        }
    }
}

/// How an image that is not the default one comes here.
pub(super) fn way_to_an_image(engine: Engine, name: &str) -> String {
    let program = engine.program();
    format!("`{program} pull {name}`, or `beige sandbox build --runtime {program} --image {name}`")
}
