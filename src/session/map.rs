//! `session-map.json`: which file a session key means, and whose it is. Read
//! and replaced whole under a lock, since one-shots write beside a gateway.
//! A damaged map is set aside and built anew from the first lines of the
//! session files; entries that are not understood are kept as they are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::after;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::entry::Header;
use crate::clock::Time;
use crate::config::Home;
use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};

/// Largest map that is read, in bytes.
const LARGEST_MAP: u64 = 64 * 1024 * 1024;

/// Longest first line of a session file that is looked at, in bytes.
const LONGEST_HEADER: u64 = 64 * 1024;

/// How long another process may hold the map.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// What a key means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Owner {
    pub(super) agent_name: String,
    pub(super) session_file: String,
    #[serde(default)]
    pub(super) created_at: String,
    /// `metadata` and fields of other programs.
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

/// The map, locked until it is dropped.
pub(super) struct SessionMap<'a> {
    home: &'a Home,
    keys: Map<String, Value>,
    _lock: File,
}

impl<'a> SessionMap<'a> {
    /// Locks and reads the map.
    pub(super) fn open(home: &'a Home, now: Time) -> Result<Self> {
        let lock = lock(&home.session_map_lock())?;
        let path = home.session_map();
        let what = format!("read the session map {}", path.display());
        let keys = match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Map::new()),
            Err(error) => return Err(error).during(Kind::Internal, what),
            Ok(text) => serde_json::from_slice(&text).ok(),
        };
        let mut map = Self { home, keys: Map::new(), _lock: lock };
        match keys {
            Some(keys) => map.keys = keys,
            None => map.recover(now)?,
        }
        Ok(map)
    }

    /// What a key means, if it means anything.
    pub(super) fn get(&self, key: &str) -> Option<Owner> {
        let value = self.keys.get(key)?;
        let owner = Owner::deserialize(value);
        if owner.is_err() {
            log::warn!("the session map's entry `{key}` does not read and counts as absent");
        }
        owner.ok()
    }

    /// Number of keys.
    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    /// Gives a key its file and writes the map.
    pub(super) fn set(&mut self, key: &str, owner: &Owner) -> Result<()> {
        let value = serde_json::to_value(owner).during(Kind::Internal, "write a session entry")?;
        self.keys.insert(key.to_owned(), value);
        self.write()
    }

    /// Replaces the file: whoever reads it sees the old one or the new one.
    fn write(&self) -> Result<()> {
        let path = self.home.session_map();
        let text = serde_json::to_vec_pretty(&self.keys)
            .during(Kind::Internal, "write the session map")?;
        replace(&path, &text)
            .during(Kind::Internal, format!("replace the session map {}", path.display()))
    }

    /// Sets the damaged map aside and builds it anew from the session files.
    fn recover(&mut self, now: Time) -> Result<()> {
        let path = self.home.session_map();
        let aside = aside(&path, "corrupt", now);
        fs::rename(&path, &aside)
            .during(Kind::Internal, format!("set aside the damaged {}", path.display()))?;
        self.keys = keys_of_files(&self.home.sessions());
        log::warn!(
            "the session map {} did not read; it is now {}, and {} keys were found anew",
            path.display(),
            aside.display(),
            self.keys.len()
        );
        self.write()
    }
}

/// `NAME.<word>-<time>` beside a file, a name that is free.
pub(super) fn aside(path: &Path, word: &str, now: Time) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let base = format!("{name}.{word}-{}", now.compact());
    let first = path.with_file_name(&base);
    let numbered = (2..1000).map(|it| path.with_file_name(format!("{base}-{it}")));
    std::iter::once(first.clone()).chain(numbered).find(|it| !it.exists()).unwrap_or(first)
}

fn lock(path: &Path) -> Result<File> {
    let what = format!("lock {}", path.display());
    let file = open_own(path, OpenOptions::new().create(true).truncate(false).write(true))
        .during(Kind::Internal, what.clone())?;
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                // A lock between processes sends no signal; a disconnected
                // timer cannot happen.
                let _ = after(Duration::from_millis(5)).recv();
            }
            Err(fs::TryLockError::WouldBlock) => {
                return Err(Error::new(Kind::Busy, format!("{what}: another process holds it")));
            }
            Err(fs::TryLockError::Error(error)) => return Err(error).during(Kind::Internal, what),
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    open_own(path, OpenOptions::new().read(true))?.take(LARGEST_MAP + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST_MAP {
        return Err(io::Error::other(format!("it is larger than {LARGEST_MAP} bytes")));
    }
    Ok(text)
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("json.new");
    let mut file =
        open_own(&temporary, OpenOptions::new().create(true).truncate(true).write(true))?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

/// The keys that session files were made for; of several files the newest,
/// since their names sort by time.
fn keys_of_files(sessions: &Path) -> Map<String, Value> {
    let mut keys = Map::new();
    for agent in sorted(sessions) {
        for file in
            sorted(&agent).iter().filter(|it| it.extension().is_some_and(|it| it == "jsonl"))
        {
            let Some((key, owner)) = owner_of(&agent, file) else { continue };
            if let Ok(owner) = serde_json::to_value(owner) {
                keys.insert(key, owner);
            }
        }
    }
    keys
}

fn owner_of(agent: &Path, file: &Path) -> Option<(String, Owner)> {
    let mut line = String::new();
    let opened = open_own(file, OpenOptions::new().read(true)).ok()?;
    BufReader::new(opened.take(LONGEST_HEADER)).read_line(&mut line).ok()?;
    let header: Header = serde_json::from_str(&line).ok()?;
    let owner = Owner {
        agent_name: agent.file_name()?.to_str()?.to_owned(),
        session_file: file.to_str()?.to_owned(),
        created_at: header.timestamp,
        extra: Map::new(),
    };
    Some((header.beige?.session_key, owner))
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
    paths.sort();
    paths
}
