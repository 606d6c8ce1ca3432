//! Calls of the docker client: each with a deadline, each failure with what
//! was being done and what a person can do about it.

use std::process::Command;
use std::time::Duration;

use super::argv::{docker, mounts};
use super::container::{Container, FORMAT};
use crate::error::{During, Error, Kind, Result};
use crate::sandbox::Spec;
use crate::sandbox::oneshot::{self, Finished};

/// Time limit of a call that makes, changes or ends something.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// Runs the client; anything but success is an error that says why.
pub(super) fn call(doing: &str, command: Command) -> Result<Finished> {
    let finished = oneshot::run(command, DEADLINE).map_err(|it| it.within(doing.to_owned()))?;
    if finished.status.success() {
        return Ok(finished);
    }
    Err(failure(doing, &finished.stderr))
}

/// Runs the client on one named thing; `None` if there is no such thing.
pub(super) fn call_if_there(doing: &str, command: Command) -> Result<Option<Finished>> {
    let finished = oneshot::run(command, DEADLINE).map_err(|it| it.within(doing.to_owned()))?;
    match finished.status.success() {
        true => Ok(Some(finished)),
        false if is_absence(&finished.stderr) => Ok(None),
        false => Err(failure(doing, &finished.stderr)),
    }
}

/// The container of that name or id, if there is one.
pub(super) fn inspect(name: &str) -> Result<Option<Container>> {
    let command = docker(&["container", "inspect", "--format", FORMAT, name]);
    let doing = format!("ask Docker for the container {name}");
    let Some(finished) = call_if_there(&doing, command)? else { return Ok(None) };
    serde_json::from_str(&finished.stdout).during(Kind::Sandbox, doing).map(Some)
}

/// Id of the image of that name, if it is here.
pub(super) fn image_id(name: &str) -> Result<Option<String>> {
    let command = docker(&["image", "inspect", "--format", "{{.Id}}", name]);
    let finished = call_if_there(&format!("ask Docker for the image {name}"), command)?;
    Ok(finished.map(|it| it.stdout))
}

/// Removes a container and the nameless volumes of its image; one that is
/// gone already is no error.
pub(super) fn remove(id: &str) -> Result<()> {
    let command = docker(&["rm", "-f", "-v", id]);
    call_if_there(&format!("remove the container {id}"), command).map(drop)
}

/// What the client's complaint means, with the cure where one is known.
pub(super) fn failure(doing: &str, complaint: &str) -> Error {
    let cure = cure(complaint).map(|it| format!(" ({it})")).unwrap_or_default();
    let complaint = without_chatter(complaint);
    Error::new(Kind::Sandbox, format!("{doing}: {complaint}{cure}"))
}

/// Why `docker run` or `docker start` failed: a path that is here and that
/// the daemon does not find lies in another file system (H8).
pub(super) fn run_failure(spec: &Spec, doing: &str, complaint: &str) -> Error {
    let named = mounts(spec).into_iter().map(|(host, ..)| host).find(|it| {
        let text = it.to_string_lossy();
        complaint.contains("does not exist") && complaint.contains(text.as_ref())
    });
    if let Some(path) = named.filter(|it| it.exists()) {
        return other_file_system(&path.display().to_string());
    }
    if complaint.contains("/beige/tool-client") && spec.sockets.join("tool-client").exists() {
        return other_file_system(&spec.sockets.display().to_string());
    }
    failure(doing, complaint)
}

/// The daemon's paths are not ours.
pub(super) fn other_file_system(path: &str) -> Error {
    let text = format!(
        "the Docker daemon sees another file system: {path} there is not what it is here; \
         run beige where the daemon runs (not inside a container, not beside a remote \
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

/// The complaint on one line, without the client's hints.
fn without_chatter(complaint: &str) -> String {
    let hint = |it: &str| HINTS.iter().any(|hint| it.starts_with(hint));
    let lines = complaint.lines().map(str::trim).filter(|it| !it.is_empty() && !hint(it));
    let line = lines.collect::<Vec<_>>().join("; ");
    match line.strip_prefix("docker: ").unwrap_or(&line) {
        "" => "docker failed without a word".into(),
        line => line.into(),
    }
}

fn cure(complaint: &str) -> Option<&'static str> {
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
    if has("no space left on device") {
        return Some("free some disk space: `docker system prune`");
    }
    None
}

/// There is no such thing, or it is just being removed.
fn is_absence(complaint: &str) -> bool {
    let complaint = complaint.to_lowercase();
    ["no such container", "no such image", "is already in progress"]
        .iter()
        .any(|it| complaint.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(complaint: &str, want: &str) {
        assert_eq!(failure("try", complaint).to_string(), want);
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
    fn the_hints_of_the_client_are_left_out() {
        check(
            "docker: Error: no.\n\nRun 'docker run --help' for more information",
            "try: Error: no.",
        );
        check("one\ntwo", "try: one; two");
    }

    #[test]
    fn both_clients_are_understood_when_something_is_absent() {
        assert!(is_absence("Error: No such container: x"));
        assert!(is_absence("Error response from daemon: No such image: x"));
        assert!(!is_absence("Cannot connect to the Docker daemon"));
    }
}
