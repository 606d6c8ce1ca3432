//! Images for containers: from the Dockerfile that this binary carries, from
//! the host's own programs where there is no registry, or from a root tar.
//! Only the default name is ever built unasked; an image of another name is
//! its owner's to bring.

mod host;
mod tar;

use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::Duration;

use super::argv::ulimits;
use super::client::{call, failure, image_id, remove};
use super::engine::Engine;
use crate::config::file_lock::{self, Held};
use crate::config::home::create_private;
use crate::error::{During, Error, Kind, Result};
use crate::sandbox::oneshot;

/// The image of a sandbox whose configuration names none.
pub const DEFAULT: &str = "beige-sandbox:latest";

/// Takes a line of progress.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// What an image was made from; stands in its label `beige.image`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The Dockerfile.
    Dockerfile,
    /// The host's own programs.
    Offline,
    /// A tar of a root file system.
    RootTar,
}

/// The Dockerfile, so that the binary alone can build.
const DOCKERFILE: &str = include_str!("../../../sandbox/Dockerfile");

/// How long the base image may take to come.
const BASE_WITHIN: Duration = Duration::from_secs(20);
/// How long a build may take.
const BUILD_WITHIN: Duration = Duration::from_secs(30 * 60);
/// How long an import may take.
const IMPORT_WITHIN: Duration = Duration::from_secs(5 * 60);

/// Bytes that are written to the client at a time.
const PIECE: usize = 256 * 1024;

/// The path that a command finds programs on where nothing says otherwise.
const PATH: &str = "/tools/bin:/usr/local/bin:/usr/bin:/bin";

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dockerfile => "from its Dockerfile",
            Self::Offline => "offline, from this host's own programs",
            Self::RootTar => "from a root tar",
        })
    }
}

impl Form {
    fn label(self) -> &'static str {
        match self {
            Self::Dockerfile => "beige.image=dockerfile",
            Self::Offline => "beige.image=offline",
            Self::RootTar => "beige.image=root-tar",
        }
    }
}

/// Builds the image from the Dockerfile.
pub fn build(engine: Engine, name: &str, progress: Progress<'_>) -> Result<()> {
    let doing = format!("build the image {name} {}", Form::Dockerfile);
    let talk = |mut stdin: ChildStdin, stdout| {
        // A client that ended early says why itself.
        let _ = stdin.write_all(DOCKERFILE.as_bytes());
        drop(stdin);
        oneshot::gist_of_lines(stdout, progress)
    };
    let (status, complaint, said) =
        oneshot::converse(build_command(engine, name), BUILD_WITHIN, progress, talk)
            .map_err(|it| it.within(doing.clone()))?;
    if status.success() {
        clear_away_replaced(engine);
        return Ok(());
    }
    // What a step of the build said stands on the one stream or the other.
    let last = said.lines().last().unwrap_or_default();
    Err(failure(engine, &doing, &format!("{complaint} (last: {last})")))
}

/// Makes the image from the host's own programs: no registry, no build step.
pub fn build_offline(engine: Engine, name: &str, progress: Progress<'_>) -> Result<()> {
    let root = host::gather(progress)?;
    let feed = |stdin| root.write(&mut BufWriter::with_capacity(PIECE, stdin));
    import(engine, name, Form::Offline, feed)
}

/// Makes the image from a tar of a root file system, plain or compressed.
pub fn import_root_tar(engine: Engine, name: &str, file: &Path) -> Result<()> {
    let doing = format!("read {}", file.display());
    let mut tar = File::open(file).during(Kind::Usage, doing.clone())?;
    let is_file = tar.metadata().during(Kind::Usage, doing.clone())?.is_file();
    if !is_file {
        return Err(Error::new(Kind::Usage, format!("{doing}: not a file")));
    }
    let feed = |mut stdin| std::io::copy(&mut tar, &mut stdin).map(drop);
    import(engine, name, Form::RootTar, feed)
}

/// Builds it from the Dockerfile or, where its base image is neither here
/// nor to be had within 20 s, offline. Answers with the form.
pub fn build_either(engine: Engine, name: &str, progress: Progress<'_>) -> Result<Form> {
    let refused = match base_image(engine) {
        Ok(()) => build(engine, name, progress).err(),
        Err(error) => Some(error),
    };
    let Some(refused) = refused else { return Ok(Form::Dockerfile) };
    progress(&format!("{refused}; making the image {name} {}", Form::Offline));
    build_offline(engine, name, progress)?;
    Ok(Form::Offline)
}

/// Programs that agents look for in an image.
const LOOKED_FOR: &str =
    "for it in sh curl jq python3 node deno; do command -v $it >/dev/null && echo $it; done; :";

/// How long a look into an image may take.
const LOOK_WITHIN: Duration = Duration::from_secs(30);

/// Which of the usual programs an image has, found out by a container that is
/// gone on return; `None` if it has no shell, without which no agent can run
/// anything.
pub fn programs(engine: Engine, name: &str) -> Result<Option<Vec<String>>> {
    let doing = format!("look into the image {name}");
    let container = format!("beige-doctor-{}-{:08x}", std::process::id(), hash_of(name));
    let ran = oneshot::run(look_command(engine, name, &container)?, LOOK_WITHIN);
    let complaint = match ran {
        Ok(finished) if finished.status.success() => {
            return Ok(Some(finished.stdout.lines().map(str::to_owned).collect()));
        }
        Ok(finished) => finished.stderr,
        Err(error) => error.to_string(),
    };
    // What could not start, or hung, is still there.
    remove(engine, &container)?;
    let absent = ["executable file not found", "no such file or directory"];
    match absent.iter().any(|it| complaint.contains(it)) {
        true => Ok(None),
        false => Err(failure(engine, &doing, &complaint)),
    }
}

fn look_command(engine: Engine, name: &str, container: &str) -> Result<Command> {
    let mut command = engine.command(&["run", "--rm", "--pull", "never", "--name", container]);
    command.args(ulimits(&engine.terms()?));
    command.args([
        "--network",
        "none",
        "--cap-drop",
        "ALL",
        "--read-only",
        "--user",
        "65534:65534",
    ]);
    command.args(["--security-opt", "no-new-privileges", "--log-driver", "none"]);
    command.args(["--no-healthcheck", "--entrypoint", "/bin/sh", name, "-c", LOOKED_FOR]);
    Ok(command)
}

/// Keeps two looks of one process apart.
fn hash_of(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, it| hash.wrapping_mul(31).wrapping_add(it.into()))
}

/// The id of the image, which is built first if it is the default one and
/// not here. One builder at a time: the others wait and find it made.
pub(super) fn ensure(engine: Engine, name: &str, lock_folder: &Path) -> Result<String> {
    if let Some(id) = image_id(engine, name)? {
        return Ok(id);
    }
    if name != DEFAULT {
        let text = format!(
            "the image {name} is not here for {title}, and beige fetches none: \
             `{program} pull {name}`, or `beige sandbox build --runtime {program} --image {name}`",
            title = engine.title(),
            program = engine.program()
        );
        return Err(Error::new(Kind::Sandbox, text));
    }
    let _lock = lock(lock_folder)?;
    if let Some(id) = image_id(engine, name)? {
        return Ok(id);
    }
    log::info!(target: "progress", "the image {name} is not here and is built now");
    let form = build_either(engine, name, &|line| log::info!(target: "progress", "{line}"))?;
    log::info!(target: "progress", "the image {name} was made {form}");
    let gone =
        || Error::new(Kind::Sandbox, format!("the image {name} went away once it was built"));
    image_id(engine, name)?.ok_or_else(gone)
}

fn build_command(engine: Engine, name: &str) -> Command {
    engine.command(&["build", "--label", Form::Dockerfile.label(), "-t", name, "-"])
}

fn import_command(engine: Engine, name: &str, form: Form) -> Command {
    let mut command = engine.command(&["import"]);
    for change in [
        format!("ENV PATH={PATH}"),
        "WORKDIR /workspace".into(),
        "CMD [\"/bin/sh\"]".into(),
        format!("LABEL {}", form.label()),
    ] {
        command.args(["--change", &change]);
    }
    command.args(["-", name]);
    command
}

/// Streams a tar into an import.
fn import(
    engine: Engine,
    name: &str,
    form: Form,
    feed: impl FnOnce(ChildStdin) -> std::io::Result<()> + Send,
) -> Result<()> {
    let doing = format!("make the image {name} {form}");
    let talk = |stdin: ChildStdin, stdout: ChildStdout| {
        let fed = feed(stdin);
        (fed, oneshot::read_answer(stdout, "the import"))
    };
    let (status, complaint, (fed, _)) =
        oneshot::converse(import_command(engine, name, form), IMPORT_WITHIN, &|_| (), talk)
            .map_err(|it| it.within(doing.clone()))?;
    if !status.success() {
        return Err(failure(engine, &doing, &complaint));
    }
    fed.during(Kind::Sandbox, doing)?;
    clear_away_replaced(engine);
    Ok(())
}

/// Removes images of ours that lost their name to a newer one and that no
/// container uses: each is as large as the new one.
fn clear_away_replaced(engine: Engine) {
    let command = engine.command(&["image", "prune", "-f", "--filter", "label=beige.image"]);
    if let Err(error) = call(engine, "remove replaced images", command) {
        log::warn!("{error}");
    }
}

/// The base image of the Dockerfile is here, or comes within its time.
fn base_image(engine: Engine) -> Result<()> {
    let base = DOCKERFILE.lines().find_map(|it| it.strip_prefix("FROM ")).unwrap_or_default();
    if image_id(engine, base)?.is_some() {
        return Ok(());
    }
    let doing = format!("fetch the base image {base}");
    let finished = oneshot::run(engine.command(&["pull", "--quiet", base]), BASE_WITHIN)
        .map_err(|it| it.within(doing.clone()))?;
    if finished.status.success() {
        return Ok(());
    }
    Err(failure(engine, &doing, &finished.stderr))
}

/// Held while an image is built unasked. No agent's name begins with `_`.
fn lock(folder: &Path) -> Result<Held> {
    create_private(folder)?;
    let path: PathBuf = folder.join("_image.lock");
    file_lock::hold(&path, BUILD_WITHIN)
        .map_err(|it| it.within("wait for another beige that builds an image"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(command: &Command) -> Vec<String> {
        command.get_args().map(|it| it.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_dockerfile_comes_by_standard_input() {
        let want = ["build", "--label", "beige.image=dockerfile", "-t", "box:1", "-"];
        assert_eq!(arguments(&build_command(Engine::Docker, "box:1")), want);
    }

    #[test]
    fn an_import_says_how_it_was_made() {
        let want = [
            "import",
            "--change",
            "ENV PATH=/tools/bin:/usr/local/bin:/usr/bin:/bin",
            "--change",
            "WORKDIR /workspace",
            "--change",
            "CMD [\"/bin/sh\"]",
            "--change",
            "LABEL beige.image=offline",
            "-",
            "box:1",
        ];
        assert_eq!(arguments(&import_command(Engine::Docker, "box:1", Form::Offline)), want);
    }

    #[test]
    fn the_dockerfile_needs_no_new_builder_and_no_context() {
        for word in ["--mount=", "<<", "# syntax", "COPY", "ADD "] {
            assert!(!DOCKERFILE.contains(word), "{word}");
        }
        assert_eq!(DOCKERFILE.lines().filter(|it| it.starts_with("FROM ")).count(), 1);
    }
}
