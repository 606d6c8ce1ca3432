//! Which configuration a gateway serves, left for one-shots to read: so that
//! one that names another file, or a file that was edited since, is told and
//! not ignored in silence. A stale one is harmless: it is read only by who has
//! just been answered by a gateway, and each start writes it anew.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::config::Home;
use crate::config::home::open_own;
use crate::error::{During, Kind, Result};

/// Largest file of this kind that is read, in bytes.
const LIMIT: u64 = 64 * 1024;

/// What a gateway runs by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigInUse {
    /// The configuration file.
    config: PathBuf,
    /// How the file looked before it was read; `None` if it could not be
    /// looked at.
    stamp: Option<Stamp>,
    /// Whether somebody else looks after the process, such as systemd.
    #[serde(default)]
    in_foreground: bool,
    /// Where the gateway logs in the background.
    #[serde(default)]
    log_file: Option<PathBuf>,
}

/// Tells a file that was written anew from the one that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stamp {
    bytes: u64,
    /// Since 1970, in nanoseconds.
    modified: u128,
}

impl ConfigInUse {
    /// How that file looks now. Taken before it is read: an edit in between
    /// is told once too often rather than never.
    pub fn look(config: &Path) -> Self {
        let stamp = Stamp::of(config);
        Self { config: config.to_owned(), stamp, in_foreground: false, log_file: None }
    }

    /// The same, of a gateway that somebody else looks after, such as systemd.
    #[must_use]
    pub fn in_foreground(self) -> Self {
        Self { in_foreground: true, ..self }
    }

    /// The same, of a gateway that logs there.
    #[must_use]
    pub fn logging_to(self, log_file: &Path) -> Self {
        Self { log_file: Some(log_file.to_owned()), ..self }
    }

    /// Where that gateway logs.
    pub fn log_file(&self) -> Option<&Path> {
        self.log_file.as_deref()
    }

    /// Whether somebody else looks after that gateway's process.
    pub fn is_in_foreground(&self) -> bool {
        self.in_foreground
    }

    /// What the gateway of that home has left; `None` if nothing readable.
    pub fn of_gateway(home: &Home) -> Option<Self> {
        let file = open_own(&home.config_in_use(), File::options().read(true)).ok()?;
        serde_json::from_reader(file.take(LIMIT)).ok()
    }

    /// Leaves it for one-shots.
    pub(super) fn leave(&self, home: &Home) -> Result<()> {
        let path = home.config_in_use();
        let what = format!("write {}", path.display());
        let text = serde_json::to_vec(self).during(Kind::Internal, what.clone())?;
        let fresh = path.with_extension("new");
        open_own(&fresh, File::options().write(true).create(true).truncate(true))
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| fs::rename(&fresh, &path))
            .during(Kind::Internal, what)
    }

    /// What a person who `named` a file, or none, may not expect.
    pub fn difference(&self, named: Option<&Path>) -> Option<String> {
        named.and_then(|it| self.differs_from(it)).or_else(|| self.change())
    }

    /// That it is another file than the one that was named.
    pub fn differs_from(&self, named: &Path) -> Option<String> {
        (!is_same(named, &self.config)).then(|| {
            format!(
                "the gateway that runs serves the configuration {}, not {}; leave that one out \
                 (--config, BEIGE_CONFIG) to use the gateway's, or `beige gateway stop` first",
                self.config.display(),
                named.display()
            )
        })
    }

    /// That its file has changed since it was read.
    pub fn change(&self) -> Option<String> {
        (self.stamp != Stamp::of(&self.config)).then(|| {
            format!(
                "{} has changed since the gateway read it; \
                 `beige gateway restart` takes it over",
                self.config.display()
            )
        })
    }
}

impl Stamp {
    fn of(file: &Path) -> Option<Self> {
        let seen = fs::metadata(file).ok()?;
        let modified = seen.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        Some(Self { bytes: seen.len(), modified })
    }
}

/// Whether both are one file, also by links and other names.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |it: &Path| fs::canonicalize(it).unwrap_or_else(|_| it.to_owned());
    one == other || real(one) == real(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_and_an_edit_are_told() {
        let folder = std::env::temp_dir().join(format!("beige-in-use-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("config.json5");
        fs::write(&file, "{}").expect("written");
        let used = ConfigInUse::look(&file);
        assert_eq!(used.difference(None), None);
        assert_eq!(used.difference(Some(&folder.join("./config.json5"))), None);
        let other = used.difference(Some(&folder.join("other.json5"))).expect("another file");
        assert!(other.contains("other.json5"), "{other}");
        fs::write(&file, "{ }").expect("written");
        assert!(used.difference(None).is_some_and(|it| it.contains("has changed")));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
