//! What a container engine says when it is asked: whether it answers, what it
//! can bound, which images and containers it has. Each question has a deadline.

use std::time::Duration;

use serde::Deserialize;

use super::argv::LABEL_INSTANCE;
use super::client::{self, call, failure, image_id};
use super::engine::{Bounded, Engine};
use crate::error::{During, Error, Kind, Result};
use crate::sandbox::oneshot;

/// One of our containers, as an engine lists it.
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

/// What an engine says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its version.
    pub version: String,
    /// What it can bound by a cgroup.
    pub bounds: Bounded,
}

/// How long an engine may take to say that it is there.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How Docker is asked what it is and can bound.
const DOCKER_FACTS: &str = concat!(
    r#"{"version":{{json .ServerVersion}},"memory":{{json .MemoryLimit}},"#,
    r#""swap":{{json .SwapLimit}},"pids":{{json .PidsLimit}},"cpus":{{json .CPUCfsQuota}}}"#,
);

/// How Podman is asked for the same.
const PODMAN_FACTS: &str = concat!(
    r#"{"version":{{json .Version.Version}},"cgroups":{{json .Host.CgroupsVersion}},"#,
    r#""manager":{{json .Host.CgroupManager}},"#,
    r#""controllers":{{json .Host.CgroupControllers}},"#,
    r#""ids":{{json .Host.IDMappings.UIDMap}}}"#,
);

/// How Docker lists a container; each line is a [`Listed`].
const DOCKER_LIST: &str = concat!(
    r#"{"agent":{{json (.Label "beige.agent")}},"name":{{json .Names}},"id":{{json .ID}},"#,
    r#""image":{{json .Image}},"state":{{json .State}},"status":{{json .Status}}}"#,
);

/// The same for Podman, which has no word for the state without times.
const PODMAN_LIST: &str = concat!(
    r#"{"agent":{{json (index .Labels "beige.agent")}},"name":{{json .Names}},"#,
    r#""id":{{json .ID}},"image":{{json .Image}},"state":"","status":{{json .Status}}}"#,
);

/// What [`DOCKER_FACTS`] is answered with.
#[derive(Deserialize)]
struct DockerFacts {
    version: String,
    #[serde(flatten)]
    bounds: Bounded,
}

/// What [`PODMAN_FACTS`] is answered with.
#[derive(Debug, Deserialize)]
struct PodmanFacts {
    version: String,
    cgroups: String,
    manager: String,
    controllers: Option<Vec<String>>,
    /// None as root.
    ids: Option<Vec<Range>>,
}

/// Ids that a user may give to those in its containers.
#[derive(Debug, Deserialize)]
struct Range {
    size: u64,
}

impl Engine {
    /// Whether it is installed and serves whoever runs this, within 10 s.
    pub fn available(self) -> Result<()> {
        match self {
            Self::Docker => {
                let doing = "ask the Docker daemon for its version";
                self.ask(doing, &["version", "--format", "{{.Server.Version}}"]).map(drop)
            }
            // There is no daemon that could not answer; what fails is to
            // work for this user.
            Self::Podman | Self::RootlessPodman => self.podman_facts().map(drop),
        }
    }

    /// Asks it what it is and what it can bound, within 10 s each.
    pub fn facts(self) -> Result<Facts> {
        if self != Self::Docker {
            return self.podman_facts();
        }
        self.available()?;
        let doing = "ask the Docker daemon what it can do";
        let answer = self.ask(doing, &["info", "--format", DOCKER_FACTS])?;
        let DockerFacts { version, bounds } =
            serde_json::from_str(&answer).during(Kind::Sandbox, doing)?;
        Ok(Facts { version, bounds })
    }

    fn podman_facts(self) -> Result<Facts> {
        let doing = "ask Podman what it can do";
        let answer = self.ask(doing, &["info", "--format", PODMAN_FACTS])?;
        let facts: PodmanFacts = serde_json::from_str(&answer).during(Kind::Sandbox, doing)?;
        facts.judged(self)
    }

    fn ask(self, doing: &str, arguments: &[&str]) -> Result<String> {
        let finished = oneshot::run(self.command(arguments), ANSWERS_WITHIN)
            .map_err(|it| it.within(doing.to_owned()))?;
        match finished.status.success() {
            true => Ok(finished.stdout),
            false => Err(failure(self, doing, &finished.stderr)),
        }
    }

    /// How its list is asked for.
    fn list_format(self) -> &'static str {
        match self {
            Self::Docker => DOCKER_LIST,
            Self::Podman | Self::RootlessPodman => PODMAN_LIST,
        }
    }

    /// Whether an image of that name is here.
    pub fn image_present(self, name: &str) -> Result<bool> {
        Ok(image_id(self, name)?.is_some())
    }

    /// All containers of one home, running or not.
    pub fn list(self, instance: &str) -> Result<Vec<Listed>> {
        let doing = "list the containers";
        let filter = format!("label={LABEL_INSTANCE}={instance}");
        let format = self.list_format();
        let arguments = ["ps", "-a", "--no-trunc", "--filter", &filter, "--format", format];
        let lines = call(self, doing, self.command(&arguments))?.stdout;
        let parsed = lines.lines().map(|it| serde_json::from_str(it).map(Listed::with_state));
        parsed.collect::<Result<_, _>>().during(Kind::Sandbox, doing)
    }

    /// Removes the containers of one home whose agent is not among those that
    /// are to have one. Answers with the agents whose containers went.
    pub fn reap(self, instance: &str, known_agents: &[String]) -> Result<Vec<String>> {
        let mut reaped = Vec::new();
        for it in self.list(instance)? {
            if !known_agents.contains(&it.agent) {
                log::info!("the container {} has no agent any more and is removed", it.name);
                client::remove(self, &it.id)?;
                reaped.push(it.agent);
            }
        }
        Ok(reaped)
    }

    /// Removes the containers of one agent of one home, if there are any.
    pub fn remove_agent(self, instance: &str, agent: &str) -> Result<bool> {
        let mut found = false;
        for it in self.list(instance)?.into_iter().filter(|it| it.agent == agent) {
            client::remove(self, &it.id)?;
            found = true;
        }
        Ok(found)
    }
}

impl Listed {
    /// The state by its first word where the engine gives none.
    fn with_state(mut self) -> Self {
        if self.state.is_empty() {
            self.state = match self.status.split(' ').next().unwrap_or_default() {
                "Up" if self.status.ends_with("(Paused)") => "paused".into(),
                "Up" => "running".into(),
                other => other.to_lowercase(),
            };
        }
        self
    }
}

impl PodmanFacts {
    /// What follows for the bounds, or why this user gets no container.
    fn judged(self, engine: Engine) -> Result<Facts> {
        let has = |name: &str| self.controllers.iter().flatten().any(|it| it == name);
        let given = match engine {
            // Only a systemd session delegates a part of the tree to a user.
            Engine::RootlessPodman => self.cgroups == "v2" && self.manager == "systemd",
            _ => true,
        };
        let bounds = Bounded {
            memory: given && has("memory"),
            swap: given && has("memory"),
            pids: given && has("pids"),
            cpus: given && has("cpu"),
        };
        let ids: u64 = self.ids.iter().flatten().map(|it| it.size).sum();
        match engine == Engine::RootlessPodman && ids < 2 {
            true => Err(no_ids()),
            false => Ok(Facts { version: self.version, bounds }),
        }
    }
}

/// A user without ids of its own for its containers.
fn no_ids() -> Error {
    failure(Engine::RootlessPodman, "see what ids Podman may use", client::NO_IDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(cgroups: &str, manager: &str, controllers: &[&str], ids: &[u64]) -> PodmanFacts {
        PodmanFacts {
            version: "4".into(),
            cgroups: cgroups.into(),
            manager: manager.into(),
            controllers: Some(controllers.iter().map(|it| (*it).to_owned()).collect()),
            ids: Some(ids.iter().map(|size| Range { size: *size }).collect()),
        }
    }

    #[track_caller]
    fn check_missing(engine: Engine, facts: PodmanFacts, want: &[&str]) {
        let judged = facts.judged(engine).map(|it| it.bounds.missing());
        assert_eq!(judged.map_err(|it| it.to_string()), Ok(want.to_vec()));
    }

    #[test]
    fn root_bounds_what_the_kernel_bounds() {
        let all = ["cpu", "memory", "pids"];
        check_missing(Engine::Podman, facts("v1", "cgroupfs", &all, &[]), &[]);
        check_missing(
            Engine::Podman,
            facts("v2", "systemd", &["cpu", "pids"], &[]),
            &["memory", "swap"],
        );
    }

    #[test]
    fn a_user_bounds_what_its_session_was_given() {
        let engine = Engine::RootlessPodman;
        let all = ["memory", "swap", "processes", "processor time"];
        let session = facts("v2", "systemd", &["memory", "pids"], &[1, 65_536]);
        check_missing(engine, session, &["processor time"]);
        check_missing(engine, facts("v1", "cgroupfs", &[], &[1, 65_536]), &all);
        let no_session = facts("v2", "cgroupfs", &["memory", "pids", "cpu"], &[1, 65_536]);
        check_missing(engine, no_session, &all);
    }

    #[test]
    fn a_user_without_ids_is_told_how_to_get_some() {
        let judged = facts("v2", "systemd", &[], &[1]).judged(Engine::RootlessPodman);
        let text = judged.map_err(|it| it.to_string()).err().unwrap_or_default();
        assert!(text.contains("--add-subuids") && text.contains("podman system migrate"), "{text}");
    }

    #[test]
    fn a_state_is_read_off_the_words_for_people() {
        let state = |status: &str| {
            let listed = Listed {
                agent: "a".into(),
                name: "n".into(),
                id: "i".into(),
                image: "m".into(),
                state: String::new(),
                status: status.into(),
            };
            listed.with_state().state
        };
        assert_eq!(state("Up 2 hours ago"), "running");
        assert_eq!(state("Up 2 hours ago (Paused)"), "paused");
        assert_eq!(state("Paused"), "paused");
        assert_eq!(state("Exited (137) 2 hours ago"), "exited");
        assert_eq!(state("Created"), "created");
    }
}
