//! What an engine says of a container, and what follows from it: pure
//! decisions about taking over, starting and replacing. Touches nothing.

use serde::Deserialize;

/// Asks for just what [`Container`] holds, so that the answer stays small
/// whatever the image or the user put into the container.
pub(super) const FORMAT: &str = concat!(
    r#"{"id":{{json .ID}},"image":{{json .Image}},"state":{"#,
    r#""status":{{json .State.Status}},"pid":{{json .State.Pid}},"oomKilled":{{json .State.OOMKilled}},"#,
    r#""exitCode":{{json .State.ExitCode}},"error":{{json .State.Error}},"#,
    r#""finishedAt":{{json .State.FinishedAt}}},"#,
    r#""instance":{{json (index .Config.Labels "beige.instance")}},"#,
    r#""agent":{{json (index .Config.Labels "beige.agent")}},"#,
    r#""specHash":{{json (index .Config.Labels "beige.spec")}}}"#,
);

/// A container as `container inspect` shows it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    pub(super) id: String,
    /// Id of the image it was made from; a name may since mean another.
    pub(super) image: String,
    pub(super) state: State,
    /// Labels; none where the container is not one of ours.
    pub(super) instance: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) spec_hash: Option<String>,
}

/// How a container is.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    pub(super) status: String,
    /// Of its first process, on the daemon's host; 0 while there is none.
    pub(super) pid: u32,
    pub(super) oom_killed: bool,
    pub(super) exit_code: i64,
    pub(super) error: String,
    pub(super) finished_at: String,
}

/// What a container must be to be ours and as wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) instance: String,
    pub(super) agent: String,
    pub(super) spec_hash: String,
    /// Id of the image that the wanted name means now; `None` while absent,
    /// which makes no container worse than it is.
    pub(super) image: Option<String>,
}

/// The next step towards a running container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It runs and is as wanted.
    Keep,
    /// There is none.
    Make,
    /// It is as wanted and does not run.
    Start,
    /// It is as wanted and frozen.
    Unpause,
    /// It must go first, for this reason.
    Replace(&'static str),
    /// Somebody else's: nothing may be done to it.
    Refuse,
}

impl Container {
    /// Whether it belongs to this home and agent.
    pub(super) fn is_of(&self, instance: &str, agent: &str) -> bool {
        self.instance.as_deref() == Some(instance) && self.agent.as_deref() == Some(agent)
    }
}

/// The next step, given what is there.
pub(super) fn decide(seen: Option<&Container>, wanted: &Wanted) -> Step {
    let Some(seen) = seen else { return Step::Make };
    if !seen.is_of(&wanted.instance, &wanted.agent) {
        return Step::Refuse;
    }
    if seen.spec_hash.as_ref() != Some(&wanted.spec_hash) {
        return Step::Replace("its configuration changed");
    }
    if wanted.image.as_ref().is_some_and(|it| *it != seen.image) {
        return Step::Replace("its image changed");
    }
    match seen.state.status.as_str() {
        "running" => Step::Keep,
        "paused" => Step::Unpause,
        // The last three are Podman's: not begun, and ended a moment ago.
        "created" | "exited" | "configured" | "initialized" | "stopped" => Step::Start,
        _ => Step::Replace("it is neither running nor fit to be started"),
    }
}

/// Why it does not run, in a sentence; `None` while it does.
pub(super) fn fate(state: &State) -> Option<String> {
    if matches!(state.status.as_str(), "running" | "paused" | "restarting") {
        return None;
    }
    let when = &state.finished_at;
    if state.oom_killed {
        return Some(format!("the sandbox was killed at {when}: out of memory"));
    }
    if !state.error.is_empty() {
        return Some(format!("the sandbox could not run: {}", state.error));
    }
    Some(match state.exit_code {
        137 => format!("the sandbox was killed at {when} (signal 9)"),
        143 => format!("the sandbox was stopped at {when}"),
        code => format!("the sandbox ended at {when} with code {code}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(status: &str) -> Container {
        Container {
            id: "c".into(),
            image: "sha256:1".into(),
            state: State {
                status: status.into(),
                pid: 0,
                oom_killed: false,
                exit_code: 0,
                error: String::new(),
                finished_at: "noon".into(),
            },
            instance: Some("home".into()),
            agent: Some("ada".into()),
            spec_hash: Some("5bec".into()),
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Container, &mut Wanted), want: Step) {
        let mut seen = container("running");
        let mut wanted = Wanted {
            instance: "home".into(),
            agent: "ada".into(),
            spec_hash: "5bec".into(),
            image: Some("sha256:1".into()),
        };
        change(&mut seen, &mut wanted);
        assert_eq!(decide(Some(&seen), &wanted), want);
    }

    #[test]
    fn a_running_container_as_wanted_is_taken_over() {
        check(|_, _| (), Step::Keep);
    }

    #[test]
    fn a_stopped_one_is_started_again() {
        check(|it, _| it.state.status = "exited".into(), Step::Start);
        check(|it, _| it.state.status = "created".into(), Step::Start);
        check(|it, _| it.state.status = "stopped".into(), Step::Start);
        check(|it, _| it.state.status = "paused".into(), Step::Unpause);
    }

    #[test]
    fn what_cannot_be_started_is_replaced() {
        for status in ["dead", "removing", "restarting", "something new"] {
            let want = Step::Replace("it is neither running nor fit to be started");
            check(|it, _| it.state.status = status.into(), want);
        }
    }

    #[test]
    fn another_spec_or_image_makes_it_anew() {
        check(
            |it, _| it.spec_hash = Some("01d".into()),
            Step::Replace("its configuration changed"),
        );
        check(|_, it| it.image = Some("sha256:2".into()), Step::Replace("its image changed"));
        check(|_, it| it.image = None, Step::Keep);
    }

    #[test]
    fn a_container_of_others_is_left_alone() {
        check(|it, _| it.instance = None, Step::Refuse);
        check(|it, _| it.instance = Some("other".into()), Step::Refuse);
        check(|it, _| it.agent = Some("bob".into()), Step::Refuse);
    }

    #[test]
    fn the_fate_says_what_is_known() {
        let told = |change: fn(&mut State)| {
            let mut state = container("exited").state;
            change(&mut state);
            fate(&state)
        };
        let some = |it: &str| Some(it.to_owned());
        assert_eq!(told(|it| it.status = "running".into()), None);
        assert_eq!(
            told(|it| it.oom_killed = true),
            some("the sandbox was killed at noon: out of memory")
        );
        assert_eq!(
            told(|it| it.exit_code = 137),
            some("the sandbox was killed at noon (signal 9)")
        );
        assert_eq!(told(|it| it.exit_code = 1), some("the sandbox ended at noon with code 1"));
        assert_eq!(told(|it| it.error = "no".into()), some("the sandbox could not run: no"));
    }
}
