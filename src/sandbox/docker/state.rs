//! The file that tells the next process what is known of an agent's
//! container, so that a one-shot need not ask the daemon first. It may be
//! wrong: a call that could not begin is tried again after a look.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::prepare::beside;
use super::container::Container;
use crate::config::home::{create_private, open_own};
use crate::error::{During, Kind, Result};

/// The file, by its path.
#[derive(Debug)]
pub(super) struct State {
    file: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    runtime: String,
    container: String,
    image: String,
    spec_hash: String,
}

/// Largest file that is read, in bytes.
const LIMIT: u64 = 16 * 1024;

impl State {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// The folder of all such files.
    pub(super) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("."))
    }

    /// Whether a container of that spec was up when last heard of.
    pub(super) fn names(&self, spec_hash: &str) -> bool {
        self.read().is_some_and(|it| it.runtime == "docker" && it.spec_hash == spec_hash)
    }

    /// Whether a container was up when last heard of, of whatever spec.
    pub(super) fn names_any(&self) -> bool {
        self.read().is_some_and(|it| it.runtime == "docker")
    }

    /// Writes what is known, whole or not at all.
    pub(super) fn write(&self, container: &Container, spec_hash: &str) -> Result<()> {
        let known = Known {
            runtime: "docker".into(),
            container: container.id.clone(),
            image: container.image.clone(),
            spec_hash: spec_hash.into(),
        };
        let doing = format!("write {}", self.file.display());
        let bytes = serde_json::to_vec(&known).during(Kind::Internal, doing.clone())?;
        create_private(self.folder())?;
        self.replace(&bytes).during(Kind::Internal, doing)
    }

    /// The container is no longer up, as far as we know.
    pub(super) fn forget(&self) -> Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).during(Kind::Internal, format!("remove {}", self.file.display()))
            }
            _ => Ok(()),
        }
    }

    fn read(&self) -> Option<Known> {
        let mut text = String::new();
        let file = open_own(&self.file, OpenOptions::new().read(true)).ok()?;
        file.take(LIMIT).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn replace(&self, bytes: &[u8]) -> std::io::Result<()> {
        // Several calls may find the same container up at once.
        let fresh = beside(&self.file);
        let mut options = OpenOptions::new();
        let mut file = open_own(&fresh, options.write(true).create(true).truncate(true))?;
        file.write_all(bytes)?;
        fs::rename(&fresh, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::container;
    use super::*;

    fn container() -> Container {
        let state = container::State {
            status: "running".into(),
            oom_killed: false,
            exit_code: 0,
            error: String::new(),
            finished_at: String::new(),
        };
        Container {
            id: "c".into(),
            image: "i".into(),
            state,
            instance: None,
            agent: None,
            spec_hash: None,
        }
    }

    #[test]
    fn what_was_written_is_known_until_forgotten() -> Result<()> {
        let folder =
            std::env::temp_dir().join(format!("beige-docker-state-{}", std::process::id()));
        let state = State::new(folder.join("ada.json"));
        assert!(!state.names("5bec"));
        state.write(&container(), "5bec")?;
        assert!(state.names("5bec") && !state.names("other") && state.names_any());
        let mode = fs::metadata(&state.file).map(|it| it.permissions().mode() & 0o777);
        assert_eq!(mode.ok(), Some(0o600));
        state.forget()?;
        state.forget()?;
        assert!(!state.names("5bec") && !state.names_any());
        fs::remove_dir_all(&folder).during(Kind::Internal, "clean up")
    }

    #[test]
    fn several_may_write_at_once() -> Result<()> {
        let folder =
            std::env::temp_dir().join(format!("beige-docker-states-{}", std::process::id()));
        let state = State::new(folder.join("ada.json"));
        let write_often =
            || (0..200).try_for_each(|_| state.write(&container(), "5bec")).map_err(|it| it.kind());
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(write_often)).collect();
            for it in writers {
                assert_eq!(it.join().ok(), Some(Ok(())));
            }
        });
        assert!(state.names("5bec"));
        fs::remove_dir_all(&folder).during(Kind::Internal, "clean up")
    }
}
