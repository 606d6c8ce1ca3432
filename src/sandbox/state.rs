//! The file that tells the next process what is known of an agent's sandbox:
//! what it was made from and who its first process is, so that nobody need ask
//! a runtime first. It may be wrong: a call that could not begin is tried
//! again after a look, and a pid counts only with its start.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::beside::beside;
use super::{Resident, Runtime};
use crate::config::home::{create_private, open_own};
use crate::error::{During, Kind, Result};

/// The file, by its path, as one runtime sees it: what another wrote there is
/// nothing to it.
#[derive(Debug)]
pub(super) struct State {
    file: PathBuf,
    runtime: Runtime,
}

/// What is known of a sandbox that was up, or is stopped and kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Id of the container; empty where there is none.
    pub(super) container: String,
    /// Id of the image it was made from; empty where there is none.
    pub(super) image: String,
    /// Hash of what it was made from; empty where it was stopped since.
    pub(super) spec_hash: String,
    /// Its first process, where it can be seen from here.
    pub(super) resident: Option<Resident>,
}

/// The file's form. A release before this one wrote no process.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    runtime: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    container: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    image: String,
    spec_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
}

/// Largest file that is read, in bytes.
const LIMIT: u64 = 16 * 1024;

impl Known {
    /// The same container, stopped: nobody takes it for up, and it stays named.
    pub(super) fn stopped(&self) -> Self {
        Self { spec_hash: String::new(), resident: None, ..self.clone() }
    }

    /// Whether it was stopped by us and not brought up since.
    pub(super) fn is_stopped(&self) -> bool {
        self.spec_hash.is_empty()
    }
}

impl State {
    /// The file as `runtime` sees it; it need not be there.
    pub(super) fn new(file: PathBuf, runtime: Runtime) -> Self {
        Self { file, runtime }
    }

    /// The folder of all such files.
    pub(super) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("."))
    }

    /// Whether there was a sandbox when last heard of, of whatever spec.
    pub(super) fn names_any(&self) -> bool {
        self.known().is_some()
    }

    /// What was last heard of it.
    pub(super) fn known(&self) -> Option<Known> {
        // Each call reads it, and what we write there fits into one piece.
        let mut bytes = Vec::with_capacity(1024);
        let file = open_own(&self.file, OpenOptions::new().read(true)).ok()?;
        file.take(LIMIT).read_to_end(&mut bytes).ok()?;
        let written: Written = serde_json::from_slice(&bytes).ok()?;
        (written.runtime == self.runtime.name()).then(|| Known::from(written))
    }

    /// The first process it names, if that is still there.
    pub(super) fn resident(&self) -> Option<Resident> {
        self.known()?.resident.filter(|it| it.lives())
    }

    /// The first process it names, if that has ended or has begun to.
    pub(super) fn ending(&self) -> Option<Resident> {
        self.known()?.resident.filter(|it| !it.serves())
    }

    /// Writes what is known, whole or not at all.
    pub(super) fn write(&self, known: &Known) -> Result<()> {
        let doing = format!("write {}", self.file.display());
        let written = Written {
            runtime: self.runtime.name().into(),
            container: known.container.clone(),
            image: known.image.clone(),
            spec_hash: known.spec_hash.clone(),
            pid: known.resident.map(|it| it.pid),
            started: known.resident.map(|it| it.started),
        };
        let bytes = serde_json::to_vec(&written).during(Kind::Internal, doing.clone())?;
        create_private(self.folder())?;
        self.replace(&bytes).during(Kind::Internal, doing)
    }

    /// It is no longer up, as far as we know.
    pub(super) fn forget(&self) -> Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).during(Kind::Internal, format!("remove {}", self.file.display()))
            }
            _ => Ok(()),
        }
    }

    fn replace(&self, bytes: &[u8]) -> std::io::Result<()> {
        // Several calls may find the same sandbox up at once.
        let fresh = beside(&self.file);
        let written = write_new(&fresh, bytes).and_then(|()| fs::rename(&fresh, &self.file));
        if written.is_err() {
            // On a full disk each call would leave one.
            let _ = fs::remove_file(&fresh);
        }
        written
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    open_own(path, options.write(true).create(true).truncate(true))?.write_all(bytes)
}

impl From<Written> for Known {
    fn from(written: Written) -> Self {
        let Written { runtime: _, container, image, spec_hash, pid, started } = written;
        let resident = pid.zip(started).map(|(pid, started)| Resident { pid, started });
        Self { container, image, spec_hash, resident }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn known() -> Known {
        Known {
            container: "c".into(),
            image: "i".into(),
            spec_hash: "5bec".into(),
            resident: Some(Resident { pid: 7, started: 8 }),
        }
    }

    fn names(state: &State, spec_hash: &str) -> bool {
        state.known().is_some_and(|it| it.spec_hash == spec_hash)
    }

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("beige-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_was_written_is_known_until_forgotten() -> Result<()> {
        let folder = folder("state");
        let state = State::new(folder.join("ada.json"), Runtime::Docker);
        assert!(!names(&state, "5bec"));
        state.write(&known())?;
        assert!(names(&state, "5bec") && !names(&state, "other") && state.names_any());
        assert_eq!(state.known(), Some(known()));
        let mode = fs::metadata(&state.file).map(|it| it.permissions().mode() & 0o777);
        assert_eq!(mode.ok(), Some(0o600));
        let other = State::new(folder.join("ada.json"), Runtime::Bubblewrap);
        assert!(!other.names_any(), "another runtime's is nothing to it");
        state.forget()?;
        state.forget()?;
        assert!(!names(&state, "5bec") && !state.names_any());
        fs::remove_dir_all(&folder).during(Kind::Internal, "clean up")
    }

    #[test]
    fn a_stopped_one_stays_named_and_is_not_up() -> Result<()> {
        let folder = folder("state-stopped");
        let state = State::new(folder.join("ada.json"), Runtime::Podman);
        state.write(&known().stopped())?;
        assert!(state.names_any() && !names(&state, "5bec") && state.resident().is_none());
        assert!(state.known().is_some_and(|it| it.is_stopped()) && !known().is_stopped());
        fs::remove_dir_all(&folder).during(Kind::Internal, "clean up")
    }

    #[test]
    fn a_file_of_an_older_release_is_read() -> Result<()> {
        let folder = folder("state-old");
        create_private(&folder)?;
        let old = r#"{"runtime":"docker","container":"c","image":"i","specHash":"5bec"}"#;
        fs::write(folder.join("ada.json"), old).during(Kind::Internal, "write")?;
        let state = State::new(folder.join("ada.json"), Runtime::Docker);
        assert_eq!(state.known(), Some(Known { resident: None, ..known() }));
        assert_eq!(state.resident(), None);
        fs::remove_dir_all(&folder).during(Kind::Internal, "clean up")
    }

    #[test]
    fn a_process_that_is_another_by_now_is_no_resident() -> Result<()> {
        let folder = folder("state-pid");
        let state = State::new(folder.join("ada.json"), Runtime::Docker);
        let pid = std::process::id();
        state.write(&Known { resident: Some(Resident { pid, started: 1 }), ..known() })?;
        assert_eq!(state.resident(), None);
        fs::remove_dir_all(&folder).during(Kind::Internal, "clean up")
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() -> Result<()> {
        let folder = folder("state-broken");
        let state = State::new(folder.join("ada.json"), Runtime::Docker);
        fs::create_dir_all(&state.file).during(Kind::Internal, "be in the way")?;
        assert!(state.write(&known()).is_err());
        let left = fs::read_dir(&folder).during(Kind::Internal, "look")?.count();
        assert_eq!(left, 1);
        fs::remove_dir_all(&folder).during(Kind::Internal, "clean up")
    }

    #[test]
    fn several_may_write_at_once() -> Result<()> {
        let folder = folder("states");
        let state = State::new(folder.join("ada.json"), Runtime::Docker);
        let write_often =
            || (0..200).try_for_each(|_| state.write(&known())).map_err(|it| it.kind());
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(write_often)).collect();
            for it in writers {
                assert_eq!(it.join().ok(), Some(Ok(())));
            }
        });
        assert!(names(&state, "5bec"));
        fs::remove_dir_all(&folder).during(Kind::Internal, "clean up")
    }
}
