//! Calls of an engine's client: each with a deadline, each failure with what
//! was being done and what a person can do about it.

use std::process::Command;
use std::time::Duration;

use super::argv::mounts;
use super::container::{Container, FORMAT};
use super::engine::Engine;
use crate::error::{During, Error, Kind, Result};
use crate::sandbox::Spec;
use crate::sandbox::client::{INSIDE, NAME};
use crate::sandbox::oneshot::{self, Finished};

/// Time limit of a call that makes, changes or ends something.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// Runs the client; anything but success is an error that says why.
pub(super) fn call(engine: Engine, doing: &str, command: Command) -> Result<Finished> {
    let finished = oneshot::run(command, DEADLINE).map_err(|it| it.within(doing.to_owned()))?;
    if finished.status.success() {
        return Ok(finished);
    }
    Err(failure(engine, doing, &finished.stderr))
}

/// Runs the client on one named thing; `None` if there is no such thing.
pub(super) fn call_if_there(
    engine: Engine,
    doing: &str,
    command: Command,
) -> Result<Option<Finished>> {
    let finished = oneshot::run(command, DEADLINE).map_err(|it| it.within(doing.to_owned()))?;
    match finished.status.success() {
        true => Ok(Some(finished)),
        false if is_absence(&finished.stderr) => Ok(None),
        false => Err(failure(engine, doing, &finished.stderr)),
    }
}

/// The container of that name or id, if there is one.
pub(super) fn inspect(engine: Engine, name: &str) -> Result<Option<Container>> {
    let command = engine.command(&["container", "inspect", "--format", FORMAT, name]);
    let doing = format!("ask {} for the container {name}", engine.title());
    let Some(finished) = call_if_there(engine, &doing, command)? else { return Ok(None) };
    serde_json::from_str(&finished.stdout).during(Kind::Sandbox, doing).map(Some)
}

/// Id of the image of that name, if it is here.
pub(super) fn image_id(engine: Engine, name: &str) -> Result<Option<String>> {
    let command = engine.command(&["image", "inspect", "--format", "{{.ID}}", name]);
    let doing = format!("ask {} for the image {name}", engine.title());
    let finished = call_if_there(engine, &doing, command)?;
    Ok(finished.map(|it| it.stdout))
}

/// Removes a container and the nameless volumes of its image; one that is
/// gone already is no error.
pub(super) fn remove(engine: Engine, id: &str) -> Result<()> {
    let mut command = engine.command(&["rm", "-f", "-v"]);
    if engine != Engine::Docker {
        // It asks first, and our PID 1 does not take a hint.
        command.args(["-t", "0"]);
    }
    command.arg(id);
    call_if_there(engine, &format!("remove the container {id}"), command).map(drop)
}

/// What the client's complaint means, with the cure where one is known.
pub(super) fn failure(engine: Engine, doing: &str, complaint: &str) -> Error {
    let cure = cure(complaint).map(|it| format!(" ({it})")).unwrap_or_default();
    let complaint = match without_chatter(complaint) {
        it if it.is_empty() => format!("{} failed without a word", engine.program()),
        it => it,
    };
    Error::new(Kind::Sandbox, format!("{doing}: {complaint}{cure}"))
}

/// Why a container could not be made or started: a path that is here and that
/// the engine does not find lies in another file system (H8).
pub(super) fn run_failure(engine: Engine, spec: &Spec, doing: &str, complaint: &str) -> Error {
    let named = mounts(spec).into_iter().map(|(host, ..)| host).find(|it| {
        let text = it.to_string_lossy();
        complaint.contains("does not exist") && complaint.contains(text.as_ref())
    });
    if let Some(path) = named.filter(|it| it.exists()) {
        return other_file_system(engine, &path.display().to_string());
    }
    if complaint.contains(INSIDE) && spec.sockets.join(NAME).exists() {
        return other_file_system(engine, &spec.sockets.display().to_string());
    }
    failure(engine, doing, complaint)
}

/// The engine's paths are not ours.
pub(super) fn other_file_system(engine: Engine, path: &str) -> Error {
    let who = match engine {
        Engine::Docker => "the Docker daemon",
        Engine::Podman | Engine::RootlessPodman => "Podman",
    };
    let text = format!(
        "{who} sees another file system: {path} there is not what it is here; \
         run beige where the containers run (not inside a container, not beside a remote \
         daemon), or set `runtime: \"bubblewrap\"`"
    );
    Error::new(Kind::Sandbox, text)
}

/// Begins of lines that only say how else the client could be used.
const HINTS: [&str; 5] = [
    "Run 'docker",
    "See 'docker",
    "DEPRECATED: The legacy builder",
    "Install the buildx component",
    "https://docs.docker.com/go/buildx",
];

/// What Podman says of hosts and users as such, whatever it is asked: doctor
/// tells of the limits, and nothing of ours needs a shared mount.
const KNOWN: [&str; 5] = [
    "is not a shared mount",
    "Resource limits are not supported",
    "single mapping",
    "Support for seccomp is experimental",
    "User-selected graph driver",
];

/// The complaint on one line, without the client's hints, and without the
/// lines of its log unless they are all it says.
pub(super) fn without_chatter(complaint: &str) -> String {
    // An error may quote another program that says the same.
    let known = |it: &str| !it.starts_with("Error") && KNOWN.iter().any(|known| it.contains(known));
    let hint = |it: &str| HINTS.iter().any(|hint| it.starts_with(hint)) || known(it);
    let lines = complaint.lines().map(str::trim).filter(|it| !it.is_empty() && !hint(it));
    let mut lines: Vec<&str> = lines.collect();
    if !lines.iter().all(|it| is_logged(it)) {
        lines.retain(|it| !is_logged(it));
    }
    let line = lines.join("; ");
    line.strip_prefix("docker: ").unwrap_or(&line).to_owned()
}

/// Whether a line is of Podman's log, which goes where its errors go.
fn is_logged(line: &str) -> bool {
    line.starts_with("time=\"") && line.contains(" level=")
}

/// What Podman says of a user without ids for its containers.
pub(super) const NO_IDS: &str = "no subuid ranges found for this user";

/// What mends what an engine's client complains of, where that is known; it
/// stands in parentheses behind the complaint in each error of this module.
pub fn cure(complaint: &str) -> Option<&'static str> {
    let has = |it: &str| complaint.contains(it);
    if has("permission denied") && has("docker") && has("sock") {
        return Some(
            "run beige as root, or add your user to the group `docker`, \
                     which is as good as root",
        );
    }
    if has("Cannot connect to the Docker daemon") || has("failed to connect to the docker API") {
        return Some("start it: `systemctl start docker`");
    }
    if has("keep-id requires additional") || has("no subuid ranges") || has("no subgid ranges") {
        return Some(
            "give the user ids for its containers: as root `usermod --add-subuids 200000-265535 \
             --add-subgids 200000-265535 USER` (a range that nobody else has), then as USER \
             `podman system migrate`",
        );
    }
    if has("newuidmap") || has("newgidmap") {
        return Some("install the package `uidmap`");
    }
    if has("slirp4netns") && has("/dev/net/tun") {
        return Some("let this user open /dev/net/tun, or set sandbox.network to \"none\"");
    }
    if has("slirp4netns") {
        return Some("install the package `slirp4netns`, or set sandbox.network to \"none\"");
    }
    if has("no space left on device") {
        return Some("free some disk space: `docker system prune`, `podman system prune`");
    }
    None
}

/// There is no such thing, or it is just being removed.
fn is_absence(complaint: &str) -> bool {
    let complaint = complaint.to_lowercase();
    ["no such container", "no such image", "image not known", "is already in progress"]
        .iter()
        .any(|it| complaint.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(complaint: &str, want: &str) {
        assert_eq!(failure(Engine::Docker, "try", complaint).to_string(), want);
    }

    #[test]
    fn a_silent_daemon_is_met_with_how_to_start_it() {
        check(
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
            "try: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. \
             (start it: `systemctl start docker`)",
        );
    }

    #[test]
    fn an_unknown_complaint_stays_as_it_is() {
        check("odd", "try: odd");
        check("", "try: docker failed without a word");
    }

    #[test]
    fn what_podman_says_of_every_host_is_left_out() {
        check(
            "time=\"t\" level=warning msg=\"\\\"/\\\" is not a shared mount, this could\"\nError: no.",
            "try: Error: no.",
        );
        let ignored =
            "Resource limits are not supported and ignored on cgroups V1 rootless systems";
        assert_eq!(without_chatter(ignored), "");
    }

    #[test]
    fn the_log_of_podman_does_not_hide_the_cause() {
        let driver =
            r#"time="t" level=error msg="User-selected graph driver \"overlay\" overwritten""#;
        let logged = r#"time="t" level=warning msg="Failed to add conmon to cgroupfs""#;
        let seccomp = "WARNING: Support for seccomp is experimental";
        check(&format!("{driver}\n{logged}\n{seccomp}\nError: no."), "try: Error: no.");
        check(&format!("{driver}\n{logged}"), &format!("try: {logged}"));
        assert_eq!(without_chatter(&format!("{driver}\n{seccomp}")), "");
        let limit = "WARNING: Your kernel does not support swap limit";
        assert_eq!(without_chatter(&format!("{logged}\n{limit}")), limit);
    }

    #[test]
    fn an_error_that_quotes_what_is_left_out_is_told_whole() {
        let said =
            r#"Error: slirp4netns failed: "no\nWARNING: Support for seccomp is experimental""#;
        check(
            said,
            &format!(
                "try: {said} (install the package `slirp4netns`, or set sandbox.network to \"none\")"
            ),
        );
    }

    #[test]
    fn a_user_without_ids_is_told_how_to_get_some() {
        let text = failure(Engine::RootlessPodman, "try", NO_IDS).to_string();
        assert!(text.contains("usermod --add-subuids"), "{text}");
    }

    #[test]
    fn the_hints_of_the_client_are_left_out() {
        check(
            "docker: Error: no.\n\nRun 'docker run --help' for more information",
            "try: Error: no.",
        );
        check("one\ntwo", "try: one; two");
    }

    #[test]
    fn all_clients_are_understood_when_something_is_absent() {
        assert!(is_absence("Error: No such container: x"));
        assert!(is_absence("Error response from daemon: No such image: x"));
        assert!(is_absence("Error: inspecting object: no such container x"));
        assert!(is_absence("Error: inspecting object: x: image not known"));
        assert!(!is_absence("Cannot connect to the Docker daemon"));
    }
}
