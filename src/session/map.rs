//! `session-map.json`: which file a session key means, and whose it is.
//! Changed under a lock, since one-shots write beside a gateway; read without
//! one, since the file is only ever replaced whole. A damaged map is set aside;
//! that one or one that is gone is built anew from the first lines of the
//! session files. Entries are kept as the text that they are: what is not
//! understood stays, and a map of ten thousand keys costs hardly more memory
//! than its file.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, BufReader, Write};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::walk;
use crate::clock::Time;
use crate::config::Home;
use crate::config::file_lock::{self, Held};
use crate::config::home::open_own;
use crate::config::state_file::{self, aside, replace};
use crate::error::{During, Error, Kind, Result};
use crate::message::read_json;

/// Largest map that is read, in bytes.
const LARGEST_MAP: u64 = 64 * 1024 * 1024;

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

impl Owner {
    /// What an entry says; `None` if it does not read, or names what is no
    /// session file of an agent: a name must not lead out of its folder.
    fn parse(entry: &str) -> Option<Self> {
        let owner: Self = read_json(entry.as_bytes()).ok()?;
        let file = Path::new(&owner.session_file).file_name()?.to_str()?;
        let is_sound = is_plain(&owner.agent_name) && file.len() > ".jsonl".len();
        (is_sound && file.ends_with(".jsonl")).then_some(owner)
    }

    /// How many agents stand between it and a person: 0 for a person's own.
    pub(super) fn depth(&self) -> u64 {
        let depth = self.extra.get("metadata").and_then(|it| it.get("depth"));
        depth.and_then(Value::as_u64).unwrap_or(0)
    }

    /// [`Kind::Conflict`] if the key is another agent's.
    pub(super) fn require(&self, agent: &str, key: &str) -> Result<()> {
        if self.agent_name == agent {
            return Ok(());
        }
        let what = format!("the session `{key}` belongs to the agent `{}`", self.agent_name);
        Err(Error::new(Kind::Conflict, what))
    }
}

/// Whether it is one name, and neither a path nor `.` or `..`.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(it)), None) if it == name)
}

/// All keys in the order of the file, each with where its entry stands in the
/// text.
#[derive(Debug, Default)]
pub(super) struct Keys {
    text: String,
    entries: Entries,
}

type Entries = Vec<(Box<str>, Range<usize>)>;

impl Keys {
    /// The map as it stands now. One that is damaged or gone is built anew in
    /// memory; who changes it next does that on the disk.
    pub(super) fn look(home: &Home) -> Result<Self> {
        let path = home.session_map();
        match read(&path).during(Kind::Internal, format!("read {}", path.display()))? {
            Some(keys) => Ok(keys),
            None => keys_of_files(&home.sessions()),
        }
    }

    /// Reads the text of a map; `None` if it is damaged.
    fn parse(text: String) -> Option<Self> {
        let mut from = serde_json::Deserializer::from_str(&text);
        let entries = from.deserialize_map(InOrder { start: text.as_ptr().addr() });
        let entries = entries.and_then(|it| from.end().map(|()| it)).ok()?;
        Some(Self { text, entries })
    }

    /// What a key means, if it means anything.
    pub(super) fn get(&self, key: &str) -> Option<Owner> {
        let (_, place) = self.entries.iter().rfind(|(name, _)| **name == *key)?;
        let owner = Owner::parse(self.text.get(place.clone())?);
        if owner.is_none() {
            log::warn!("the session map's entry `{key}` does not read and counts as absent");
        }
        owner
    }

    /// Every key whose entry reads, with what it means.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Owner)> {
        self.entries
            .iter()
            .filter_map(|(key, place)| Some((&**key, Owner::parse(self.text.get(place.clone())?)?)))
    }

    /// Number of keys.
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    fn set(&mut self, key: &str, owner: &Owner) -> Result<()> {
        let what = "write an entry of the session map";
        let entry = serde_json::to_string(owner).during(Kind::Internal, what)?;
        self.remove(key);
        let start = self.text.len();
        self.text.push_str(&entry);
        self.entries.push((key.into(), start..self.text.len()));
        Ok(())
    }

    fn remove(&mut self, key: &str) {
        self.entries.retain(|(name, _)| **name != *key);
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut before = "{\n  ";
        for (key, place) in &self.entries {
            to.write_all(before.as_bytes())?;
            serde_json::to_writer(&mut *to, key)?;
            write!(to, ": {}", &self.text[place.clone()])?;
            before = ",\n  ";
        }
        let end = if self.entries.is_empty() { "{}\n" } else { "\n}\n" };
        to.write_all(end.as_bytes())
    }
}

/// Reads keys and where their entries stand in a text that begins at this
/// address.
struct InOrder {
    start: usize,
}

impl<'de> Visitor<'de> for InOrder {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of session keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, entry)) = from.next_entry::<Box<str>, &RawValue>()? {
            let start = entry.get().as_ptr().addr() - self.start;
            entries.push((key, start..start + entry.get().len()));
        }
        Ok(last_of_each(entries))
    }
}

/// Of several entries under one key the last counts, and only that: the others
/// would lend their files a key that means another.
fn last_of_each(mut entries: Entries) -> Entries {
    let mut seen = HashSet::new();
    let is_last: Vec<bool> = entries.iter().rev().map(|(key, _)| seen.insert(&**key)).collect();
    let mut is_last = is_last.into_iter().rev();
    entries.retain(|_| is_last.next().unwrap_or(true));
    entries
}

/// The map, locked until it is dropped.
pub(super) struct SessionMap<'a> {
    home: &'a Home,
    pub(super) keys: Keys,
    _lock: Held,
}

impl<'a> SessionMap<'a> {
    /// Locks and reads the map.
    pub(super) fn open(home: &'a Home, now: Time) -> Result<Self> {
        let lock = file_lock::hold(&home.session_map_lock(), LOCK_WAIT)?;
        let path = home.session_map();
        let keys = read(&path)
            .during(Kind::Internal, format!("read the session map {}", path.display()))?;
        let mut map = Self { home, keys: Keys::default(), _lock: lock };
        match keys {
            Some(keys) => map.keys = keys,
            None => map.recover(now)?,
        }
        Ok(map)
    }

    /// Gives a key its file and writes the map.
    pub(super) fn set(&mut self, key: &str, owner: &Owner) -> Result<()> {
        self.keys.set(key, owner)?;
        self.write()
    }

    /// Forgets a key and writes the map.
    pub(super) fn remove(&mut self, key: &str) -> Result<()> {
        self.keys.remove(key);
        self.write()
    }

    /// Replaces the file: whoever reads it sees the old one or the new one.
    fn write(&self) -> Result<()> {
        let path = self.home.session_map();
        replace(&path, |file| self.keys.write(file))
            .during(Kind::Internal, format!("replace the session map {}", path.display()))
    }

    /// Builds the map anew from the session files, and sets the damaged one
    /// aside. Should the new one not be written, there is none, and the next
    /// who asks builds it anew.
    fn recover(&mut self, now: Time) -> Result<()> {
        let path = self.home.session_map();
        let aside = aside(&path, "corrupt", now);
        self.keys = keys_of_files(&self.home.sessions())?;
        let fate = match fs::rename(&path, &aside) {
            Ok(()) => format!("did not read; it is now {}", aside.display()),
            // As on the first day.
            Err(it) if it.kind() == io::ErrorKind::NotFound && self.keys.count() == 0 => {
                return Ok(());
            }
            Err(it) if it.kind() == io::ErrorKind::NotFound => "was gone".to_owned(),
            Err(it) => {
                return Err(it)
                    .during(Kind::Internal, format!("set aside the damaged {}", path.display()));
            }
        };
        let (path, count) = (path.display(), self.keys.count());
        log::warn!("the session map {path} {fate}, and {count} keys were found anew");
        self.write()
    }
}

/// The keys of a file; `None` if it is damaged or not there.
fn read(path: &Path) -> io::Result<Option<Keys>> {
    let bytes = state_file::read(path, LARGEST_MAP)?;
    Ok(bytes.and_then(|it| String::from_utf8(it).ok()).and_then(Keys::parse))
}

/// The keys that session files were made for; of several files the newest,
/// since their names sort by time.
fn keys_of_files(sessions: &Path) -> Result<Keys> {
    let mut owners = BTreeMap::new();
    for agent in sorted(sessions) {
        let files = sorted(&agent);
        for file in files.iter().filter(|it| it.extension().is_some_and(|it| it == "jsonl")) {
            owners.extend(owner_of(&agent, file));
        }
    }
    let mut found = Keys::default();
    for (key, owner) in &owners {
        found.set(key, owner)?;
    }
    Ok(found)
}

fn owner_of(agent: &Path, file: &Path) -> Option<(String, Owner)> {
    let opened = open_own(file, OpenOptions::new().read(true)).ok()?;
    let header = walk::header(&mut BufReader::new(opened)).ok()??;
    let owner = Owner {
        agent_name: agent.file_name()?.to_str()?.to_owned(),
        session_file: file.to_string_lossy().into_owned(),
        created_at: header.timestamp,
        extra: Map::new(),
    };
    Some((header.beige?.session_key, owner))
}

/// What is in a folder, by name; nothing if it cannot be read.
pub(super) fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
    paths.sort_unstable();
    paths
}
