//! All sessions of a home: found by key or id, made, given another file,
//! named, removed. What a key means changes only under the map's lock, and a
//! file's own lock is taken under it, so that no turn begins in a file that is
//! about to go.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::after;
use serde_json::{Map, Value, json};

use super::conversation::{Conversation, locked, random_letters};
use super::entry::Body;
use super::map::{Keys, Owner, SessionMap, sorted};
use super::{check_key, is_like_an_id};
use crate::clock::Time;
use crate::config::home::create_private;
use crate::config::state_file::sync_folder_of;
use crate::config::{Home, nearest};
use crate::error::{During, Error, Kind, Result};

/// Longest name of a session, in characters.
const LONGEST_NAME: usize = 200;

/// A word of so many bytes may be the beginning of a key or id that was meant.
const SHORTEST_BEGINNING: usize = 4;

/// How long a name waits for the turn that is running.
const NAME_WAIT: Duration = Duration::from_secs(10);

/// How long a turn waits for who holds its session's file for a moment.
const OPEN_WAIT: Duration = Duration::from_secs(2);

/// All sessions of a home.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) home: Home,
}

/// A session that is there: one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whose it is.
    pub agent: String,
    /// Names it: its file's name without `.jsonl`.
    pub id: String,
    /// The file.
    pub path: PathBuf,
    /// The key that means it, if one does.
    pub key: Option<String>,
    /// When its key got it, in RFC 3339, if that is known.
    pub(super) keyed_at: Option<String>,
}

impl Store {
    /// The sessions of that home.
    pub fn new(home: Home) -> Self {
        Self { home }
    }

    /// The session of a key, made if there is none. [`Kind::Usage`] for a key
    /// that is not allowed; [`Kind::Conflict`] if it belongs to another agent,
    /// or if a turn is running in it: who holds the file for a moment only, as
    /// an export or a new name does, is waited for.
    pub fn open(&self, key: &str, agent: &str, now: Time) -> Result<Conversation> {
        check_key(key)?;
        create_private(&self.home.agent_sessions(agent))?;
        let deadline = Instant::now() + OPEN_WAIT;
        loop {
            let mut map = SessionMap::open(&self.home, now)?;
            let Some(owner) = map.keys.get(key) else {
                return self.create(&mut map, key, agent, Map::new(), now);
            };
            owner.require(agent, key)?;
            let path = self.file_of(&owner);
            let file = match locked(&path, key, OpenOptions::new().create(true)) {
                Err(error) if error.kind() == Kind::Conflict && Instant::now() < deadline => {
                    // The map is free meanwhile.
                    drop(map);
                    pause();
                    continue;
                }
                other => other.map_err(|it| busy(it, "wait for its end or use another key"))?,
            };
            drop(map);
            return Conversation::read(path, file, key, now);
        }
    }

    /// The agent that a key belongs to, if it belongs to any.
    pub fn owner(&self, key: &str) -> Result<Option<String>> {
        check_key(key)?;
        Ok(Keys::look(&self.home)?.get(key).map(|it| it.agent_name))
    }

    /// The key that an agent's session has, whether it is called by it or by its
    /// id; a key that means nothing yet is one all the same. [`Kind::Conflict`]
    /// for a key of another agent and for a session that has none,
    /// [`Kind::Missing`] for what is like an id and is none.
    pub fn key_of(&self, agent: &str, word: &str) -> Result<String> {
        check_key(word)?;
        let keys = Keys::look(&self.home)?;
        if let Some(found) = self.with_id(&keys, Some(agent), word) {
            return found.key.ok_or_else(|| keyless(agent, word));
        }
        match keys.get(word) {
            Some(owner) => owner.require(agent, word)?,
            None if is_like_an_id(word) => return Err(self.missing(&keys, Some(agent), word)),
            None => {}
        }
        Ok(word.to_owned())
    }

    /// Number of sessions that have a key.
    pub fn count(&self) -> Result<usize> {
        Ok(Keys::look(&self.home)?.count())
    }

    /// The session that a key or an id means: any agent's, or only that one's.
    /// [`Kind::Missing`] with the nearest that there is; [`Kind::Conflict`] if
    /// the key is another agent's.
    pub fn find(&self, agent: Option<&str>, word: &str) -> Result<Found> {
        self.find_in(&Keys::look(&self.home)?, agent, word)
    }

    /// Gives a key a fresh file; the old one stays, and a turn that is running
    /// ends in it. [`Kind::Conflict`] if the key is another agent's.
    pub fn start_anew(&self, key: &str, agent: &str, now: Time) -> Result<Found> {
        self.start_with(key, agent, None, now)
    }

    /// The same with that `metadata`; without any the key's own stays.
    pub fn start_with(
        &self,
        key: &str,
        agent: &str,
        metadata: Option<Map<String, Value>>,
        now: Time,
    ) -> Result<Found> {
        check_key(key)?;
        create_private(&self.home.agent_sessions(agent))?;
        let mut map = SessionMap::open(&self.home, now)?;
        let before = map.keys.get(key);
        if let Some(owner) = &before {
            owner.require(agent, key)?;
        }
        let mut extra = before.map(|it| it.extra).unwrap_or_default();
        if let Some(metadata) = metadata {
            extra.insert("metadata".into(), Value::Object(metadata));
        }
        let conversation = self.create(&mut map, key, agent, extra, now)?;
        conversation.sync()?;
        self.with_key(&map.keys, Some(agent), key)
    }

    /// Gives a key one of its agent's older files. [`Kind::Conflict`] if
    /// another key has it, or a turn is running in the session that the key
    /// means now.
    pub fn resume(&self, key: &str, agent: &str, id: &str, now: Time) -> Result<Found> {
        check_key(key)?;
        create_private(&self.home.agent_sessions(agent))?;
        let mut map = SessionMap::open(&self.home, now)?;
        let before = map.keys.get(key);
        if let Some(owner) = &before {
            owner.require(agent, key)?;
        }
        let Some(mut found) = self.of_id(agent, id) else {
            return Err(self.missing(&map.keys, Some(agent), id));
        };
        if before.is_none() {
            self.check_new_key(key)?;
        }
        let holder = self.holder(&map.keys, &found).map(|(key, _)| key.to_owned());
        match holder {
            Some(holder) if holder == key => return self.with_key(&map.keys, Some(agent), key),
            Some(holder) => {
                let what = format!(
                    "the session {id} is in use under the key `{holder}`; \
                     give that key a new session first"
                );
                return Err(Error::new(Kind::Conflict, what));
            }
            None => {}
        }
        let advice = "abort it or wait for its end, then resume";
        let left = before.as_ref().map(|it| self.file_of(it)).filter(|it| is_file(it));
        let _idle = left.map(|it| locked(&it, key, &mut OpenOptions::new())).transpose();
        let _idle = _idle.map_err(|it| busy(it, advice))?;
        let _free = locked(&found.path, id, &mut OpenOptions::new());
        let _free = _free.map_err(|it| busy(it, advice))?;
        let metadata = before.map(|it| it.extra).unwrap_or_default();
        map.set(key, &owner(agent, &found.path, metadata, now))?;
        found.key = Some(key.to_owned());
        found.keyed_at = Some(now.to_string());
        Ok(found)
    }

    /// Removes a session: its file, what was set aside of it, and last its key,
    /// since the map may need their room. [`Kind::Conflict`] while a turn runs
    /// in it.
    pub fn remove(&self, agent: Option<&str>, word: &str, now: Time) -> Result<Found> {
        // Nothing is made where nothing is.
        self.find(agent, word)?;
        let mut map = SessionMap::open(&self.home, now)?;
        let found = self.find_in(&map.keys, agent, word)?;
        let name = found.name();
        let is_there = is_file(&found.path);
        let idle = is_there.then(|| locked(&found.path, name, &mut OpenOptions::new())).transpose();
        let _idle = idle.map_err(|it| busy(it, "abort it or wait for its end, then remove it"))?;
        let what = format!("remove the session file {}", found.path.display());
        if is_there {
            fs::remove_file(&found.path).during(Kind::Internal, what.clone())?;
        }
        let torn = format!("{}.jsonl.torn-", found.id);
        let folder = found.path.parent().map(sorted).unwrap_or_default();
        for path in folder.iter().filter(|it| file_name(it).starts_with(&torn)) {
            fs::remove_file(path).during(Kind::Internal, what.clone())?;
        }
        if let Some(key) = &found.key {
            map.remove(key)?;
        }
        Ok(found)
    }

    /// Names a session. The name is an entry on the path like any other, so it
    /// waits a while for a turn that is running; then [`Kind::Conflict`].
    pub fn rename(&self, agent: Option<&str>, word: &str, name: &str, now: Time) -> Result<Found> {
        let name = name.trim();
        check_name(name)?;
        self.find(agent, word)?;
        let deadline = Instant::now() + NAME_WAIT;
        loop {
            let map = SessionMap::open(&self.home, now)?;
            let found = self.find_in(&map.keys, agent, word)?;
            let called = found.key.clone().unwrap_or_else(|| found.id.clone());
            let file = match locked(&found.path, &called, OpenOptions::new().create(true)) {
                Err(error) if error.kind() == Kind::Conflict && Instant::now() < deadline => {
                    drop(map);
                    pause();
                    continue;
                }
                other => other.map_err(|it| busy(it, "name it when that has ended"))?,
            };
            // The map stays locked: a prompt that comes now waits for it, and
            // is not told that a turn is running.
            let mut session = Conversation::read(found.path.clone(), file, &called, now)?;
            session.append(Body::Other(json!({"type": "session_info", "name": name})), now)?;
            session.sync()?;
            return Ok(found);
        }
    }

    /// A fresh file under a key.
    fn create(
        &self,
        map: &mut SessionMap<'_>,
        key: &str,
        agent: &str,
        metadata: Map<String, Value>,
        now: Time,
    ) -> Result<Conversation> {
        if map.keys.get(key).is_none() {
            self.check_new_key(key)?;
        }
        let name = format!("{}-{}.jsonl", now.compact(), random_letters()?);
        let path = self.home.agent_sessions(agent).join(name);
        let file = locked(&path, key, OpenOptions::new().create_new(true))?;
        let begun = Conversation::begin(path.clone(), file, key, now);
        let begun = begun.and_then(|conversation| {
            sync_folder_of(&path).during(Kind::Internal, "write a new session to the disk")?;
            map.set(key, &owner(agent, &path, metadata, now))?;
            Ok(conversation)
        });
        if begun.is_err() {
            // Nobody would find it again.
            let _ = fs::remove_file(&path);
        }
        begun
    }

    /// An id before a key: people read it off a list, and it means one session
    /// for good.
    fn find_in(&self, keys: &Keys, agent: Option<&str>, word: &str) -> Result<Found> {
        match self.with_id(keys, agent, word) {
            Some(found) => Ok(found),
            None => self.with_key(keys, agent, word),
        }
    }

    fn with_key(&self, keys: &Keys, agent: Option<&str>, key: &str) -> Result<Found> {
        let Some(owner) = keys.get(key) else { return Err(self.missing(keys, agent, key)) };
        if let Some(agent) = agent {
            owner.require(agent, key)?;
        }
        Ok(self.found(&owner, key))
    }

    fn with_id(&self, keys: &Keys, agent: Option<&str>, id: &str) -> Option<Found> {
        let mut found = match agent {
            Some(agent) => self.of_id(agent, id),
            None => self.agents().into_iter().find_map(|it| self.of_id(&it, id)),
        }?;
        let holder = self.holder(keys, &found).map(|(key, owner)| (key.to_owned(), owner));
        if let Some((key, owner)) = holder {
            (found.key, found.keyed_at) = (Some(key), Some(owner.created_at));
        }
        Some(found)
    }

    /// [`Kind::Usage`] for a key by which nobody could tell which session is
    /// meant.
    fn check_new_key(&self, key: &str) -> Result<()> {
        let is_id =
            is_like_an_id(key) || self.agents().iter().any(|it| self.of_id(it, key).is_some());
        if !is_id {
            return Ok(());
        }
        let what = format!(
            "`sessionKey` is `{key}`, which reads like the ID of a session; \
             take a key of the form channel:id, such as cli:a:work"
        );
        Err(Error::new(Kind::Usage, what))
    }

    pub(super) fn found(&self, owner: &Owner, key: &str) -> Found {
        let path = self.file_of(owner);
        Found {
            agent: owner.agent_name.clone(),
            id: file_name(&path).strip_suffix(".jsonl").unwrap_or_default().to_owned(),
            path,
            key: Some(key.to_owned()),
            keyed_at: Some(owner.created_at.clone()),
        }
    }

    /// The key that means a file.
    fn holder<'a>(&self, keys: &'a Keys, found: &Found) -> Option<(&'a str, Owner)> {
        keys.iter().find(|(_, it)| self.file_of(it) == found.path)
    }

    /// An agent's session by its id; an id never leads out of its folder.
    fn of_id(&self, agent: &str, id: &str) -> Option<Found> {
        let is_name = !id.is_empty() && !id.starts_with('.') && !id.contains(['/', '\0']);
        let path = self.home.agent_sessions(agent).join(format!("{id}.jsonl"));
        (is_name && id.len() <= 200 && is_file(&path)).then(|| Found {
            agent: agent.to_owned(),
            id: id.to_owned(),
            path,
            key: None,
            keyed_at: None,
        })
    }

    /// Agents that have sessions, also those that are configured no more.
    pub(super) fn agents(&self) -> Vec<String> {
        let folders = sorted(&self.home.sessions())
            .into_iter()
            .filter(|it| fs::symlink_metadata(it).is_ok_and(|it| it.is_dir()));
        folders.map(|it| file_name(&it)).collect()
    }

    fn missing(&self, keys: &Keys, agent: Option<&str>, word: &str) -> Error {
        let is_asked = |it: &str| agent.is_none_or(|agent| agent == it);
        let mut known: Vec<String> = keys
            .iter()
            .filter(|(_, owner)| is_asked(&owner.agent_name))
            .map(|(key, _)| key.to_owned())
            .collect();
        for agent in self.agents().iter().filter(|it| is_asked(it)) {
            let files = sorted(&self.home.agent_sessions(agent));
            known.extend(files.iter().filter_map(|it| id_of_file(it)));
        }
        // A key, where only an id will do, is no typing mistake.
        known.retain(|it| it != word);
        let other = self.agents().into_iter().find(|it| self.of_id(it, word).is_some());
        let hint = match (other, meant(word, &known)) {
            (Some(other), _) => format!("; the agent `{other}` has it"),
            (None, Some(it)) => format!("; did you mean `{it}`?"),
            (None, None) => String::new(),
        };
        let whose = agent.map_or_else(String::new, |it| format!(" of the agent `{it}`"));
        Error::new(Kind::Missing, format!("there is no session `{word}`{whose}{hint}"))
    }

    /// The file an entry of the map means. Always one of this home's, by its
    /// name, so that a home can be moved.
    pub(super) fn file_of(&self, owner: &Owner) -> PathBuf {
        let name = Path::new(&owner.session_file).file_name().unwrap_or_default();
        self.home.agent_sessions(&owner.agent_name).join(name)
    }
}

impl Found {
    /// The key that a person knows it by, else its id.
    pub fn name(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.id)
    }
}

/// The key or id that a word was most likely meant to be: also one of which it
/// is the end, or almost, as `work` is of `cli:a:work`, or the beginning.
fn meant<'a>(word: &str, known: &'a [String]) -> Option<&'a str> {
    let known = || known.iter().map(String::as_str);
    let ends = || known().filter_map(|it| Some((it, it.rsplit_once(':')?.1)));
    let is_end = |it: &&str| it.strip_suffix(word).is_some_and(|it| it.ends_with(':'));
    let is_begun = |it: &&str| word.len() >= SHORTEST_BEGINNING && it.starts_with(word);
    let like_an_end = || {
        let end = nearest(word, ends().map(|it| it.1))?;
        ends().find(|it| it.1 == end).map(|it| it.0)
    };
    nearest(word, known())
        .or_else(|| known().find(is_end))
        .or_else(|| known().find(is_begun))
        .or_else(like_an_end)
}

/// A session that no key means any more, and what a person can do about it.
fn keyless(agent: &str, id: &str) -> Error {
    let what = format!(
        "the session {id} has no key any more, so that nothing goes on in it; give it one by \
         POST /api/agents/{agent}/sessions/resume {{\"sessionKey\": KEY, \"sessionId\": \"{id}\"}}"
    );
    Error::new(Kind::Conflict, what)
}

/// A lock between processes sends no signal.
fn pause() {
    // A disconnected timer cannot happen.
    let _ = after(Duration::from_millis(10)).recv();
}

fn owner(agent: &str, path: &Path, metadata: Map<String, serde_json::Value>, now: Time) -> Owner {
    Owner {
        agent_name: agent.to_owned(),
        session_file: path.to_string_lossy().into_owned(),
        created_at: now.to_string(),
        extra: metadata,
    }
}

/// A clash with a running turn, and what a person can do about it.
fn busy(error: Error, advice: &str) -> Error {
    match error.kind() {
        Kind::Conflict => Error::new(Kind::Conflict, format!("{error}; {advice}")),
        _ => error,
    }
}

fn check_name(name: &str) -> Result<()> {
    let length = name.chars().count();
    if length == 0 || length > LONGEST_NAME || name.chars().any(char::is_control) {
        let what = format!(
            "`name` has 1 to {LONGEST_NAME} characters and no control characters; \
             this one has {length}"
        );
        return Err(Error::new(Kind::Usage, what));
    }
    Ok(())
}

/// The id of the session that a file holds; `None` for what is no session
/// file, such as a link or a folder of that name.
pub(super) fn id_of_file(path: &Path) -> Option<String> {
    let id = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    (!id.is_empty() && is_file(path)).then(|| id.to_owned())
}

/// Whether there is a regular file of that very name.
pub(super) fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|it| it.is_file())
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crossbeam_channel::bounded;

    use super::super::backwards::LONGEST_LINE;
    use super::*;
    use crate::config::ModelRef;
    use crate::message::Message;
    use crate::session::Which;

    /// A home of its own for one test.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("beige-store-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn store(&self) -> Store {
            Store::new(Home::new(&self.0))
        }

        fn map(&self) -> PathBuf {
            Home::new(&self.0).session_map()
        }

        /// Names in the folder of agent `a` that contain a text.
        fn names(&self, part: &str) -> usize {
            let folder = Home::new(&self.0).agent_sessions("a");
            let names = fs::read_dir(folder).into_iter().flatten().flatten();
            names.filter(|it| it.file_name().to_string_lossy().contains(part)).count()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn now() -> Time {
        Time::from_unix_millis(1_796_012_194_668)
    }

    fn texts(conversation: &Conversation) -> Vec<String> {
        let context = conversation.session().context();
        let texts = context.iter().map(|it| match it {
            Message::User(it) => it.content.text(),
            Message::ToolResult(it) => format!("result {}", it.is_error),
            other => format!("{other:?}"),
        });
        texts.collect()
    }

    /// Says one thing and closes; the path of the file.
    fn say(place: &Place, text: &str) -> Result<PathBuf> {
        let mut conversation = place.store().open("k", "a", now())?;
        conversation.say(Message::user(text, now()), now())?;
        Ok(conversation.path().to_owned())
    }

    fn reopened(place: &Place) -> Result<Vec<String>> {
        Ok(texts(&place.store().open("k", "a", now())?))
    }

    fn append(path: &Path, bytes: &[u8]) -> Result<()> {
        let file = OpenOptions::new().append(true).open(path);
        file.and_then(|mut it| it.write_all(bytes)).during(Kind::Internal, "append")
    }

    #[test]
    fn what_was_said_is_there_again_and_only_for_its_owner() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        assert_eq!(say(&place, "two")?, path);
        assert_eq!(reopened(&place)?, ["one", "two"]);
        let mode = |it: &Path| fs::metadata(it).map(|it| it.permissions().mode() & 0o777).ok();
        assert_eq!(mode(&path), Some(0o600));
        assert_eq!(mode(path.parent().unwrap_or(&path)), Some(0o700));
        assert_eq!(mode(&place.map()), Some(0o600));
        Ok(())
    }

    #[test]
    fn a_key_belongs_to_its_agent() -> Result<()> {
        let place = Place::new();
        say(&place, "one")?;
        let error = place.store().open("k", "b", now()).err();
        assert_eq!(error.as_ref().map(Error::kind), Some(Kind::Conflict));
        assert!(error.is_some_and(|it| it.to_string().contains("`a`")));
        assert_eq!(place.store().owner("k")?.as_deref(), Some("a"));
        assert_eq!(place.store().owner("other")?, None);
        Ok(())
    }

    #[test]
    fn a_session_is_worked_on_by_one_at_a_time() -> Result<()> {
        let place = Place::new();
        let first = place.store().open("k", "a", now())?;
        let second = place.store().open("k", "a", now()).map(drop).map_err(|it| it.kind());
        assert_eq!(second, Err(Kind::Conflict));
        drop(first);
        assert!(place.store().open("k", "a", now()).is_ok());
        Ok(())
    }

    #[test]
    fn a_turn_waits_for_who_has_its_file_for_a_moment_and_holds_up_nobody() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        let moment = locked(&path, "k", &mut OpenOptions::new())?;
        let (begins, has_begun) = bounded(1);
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                let _ = begins.send(());
                reopened(&place)
            });
            let _ = has_begun.recv();
            // The map is free while it waits.
            for number in 0..20 {
                place.store().open(&format!("other {number}"), "a", now())?;
            }
            drop(moment);
            let texts = opening.join().unwrap_or_else(|_| Ok(Vec::new()))?;
            assert_eq!(texts, ["one"]);
            Ok(())
        })
    }

    #[test]
    fn a_torn_last_line_is_set_aside_and_the_next_entry_stands_alone() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        append(&path, br#"{"type":"message","id":"0"#)?;
        say(&place, "two")?;
        assert_eq!(reopened(&place)?, ["one", "two"]);
        assert_eq!(place.names(".torn-"), 1);
        Ok(())
    }

    #[test]
    fn a_file_torn_in_its_header_begins_anew() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        fs::write(&path, r#"{"type":"sess"#).during(Kind::Internal, "write")?;
        say(&place, "two")?;
        assert_eq!(reopened(&place)?, ["two"]);
        Ok(())
    }

    #[test]
    fn a_last_line_without_newline_is_kept() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        let file = OpenOptions::new().write(true).open(&path).during(Kind::Internal, "open")?;
        let length = file.metadata().during(Kind::Internal, "look")?.len();
        file.set_len(length - 1).during(Kind::Internal, "cut")?;
        say(&place, "two")?;
        assert_eq!(reopened(&place)?, ["one", "two"]);
        assert_eq!(place.names(".torn-"), 0);
        Ok(())
    }

    #[test]
    fn a_file_that_is_gone_begins_anew_under_its_key() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        fs::remove_file(&path).during(Kind::Internal, "remove")?;
        assert_eq!(say(&place, "two")?, path);
        assert_eq!(reopened(&place)?, ["two"]);
        Ok(())
    }

    #[test]
    fn a_damaged_map_is_set_aside_and_built_anew() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        fs::write(place.map(), "{\"k\":").during(Kind::Internal, "write")?;
        assert_eq!(say(&place, "two")?, path);
        assert_eq!(reopened(&place)?, ["one", "two"]);
        let aside = place.map().with_file_name("session-map.json.corrupt-20261130-041634");
        assert!(aside.exists());
        Ok(())
    }

    #[test]
    fn entries_of_the_map_that_do_not_read_are_kept() -> Result<()> {
        let place = Place::new();
        say(&place, "one")?;
        let text = fs::read_to_string(place.map()).during(Kind::Internal, "read")?;
        let text = text.replacen('{', "{\"odd\": 7,", 1);
        fs::write(place.map(), text).during(Kind::Internal, "write")?;
        drop(place.store().open("new", "a", now())?);
        let text = fs::read_to_string(place.map()).during(Kind::Internal, "read")?;
        assert!(text.contains("\"odd\": 7") && text.contains("\"new\""));
        assert_eq!(reopened(&place)?, ["one"]);
        Ok(())
    }

    #[test]
    fn calls_that_a_crash_left_open_are_answered_once() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        append(
            &path,
            br#"{"type":"message","id":"x","parentId":null,"message":{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"exec","arguments":{}}]}}
"#,
        )?;
        for _ in 0..2 {
            let mut conversation = place.store().open("k", "a", now())?;
            conversation.close_open_calls(now())?;
        }
        let text = fs::read_to_string(&path).during(Kind::Internal, "read")?;
        assert_eq!(text.matches("toolResult").count(), 1);
        assert!(text.contains("interrupted"));
        Ok(())
    }

    #[test]
    fn a_change_of_model_is_noted_once() -> Result<()> {
        let place = Place::new();
        let model = |it: &str| ModelRef { provider: "p".into(), model: it.into() };
        for name in ["m", "m", "n"] {
            place.store().open("k", "a", now())?.use_model(&model(name), now())?;
        }
        let conversation = place.store().open("k", "a", now())?;
        assert_eq!(conversation.session().ids().count(), 2);
        assert_eq!(conversation.session().model(), Some(&model("n")));
        Ok(())
    }

    #[test]
    fn an_entry_over_the_bound_is_refused_and_changes_nothing() -> Result<()> {
        let place = Place::new();
        say(&place, "one")?;
        let long = "x".repeat(LONGEST_LINE);
        assert_eq!(say(&place, &long).map_err(|it| it.kind()), Err(Kind::TooLarge));
        assert_eq!(reopened(&place)?, ["one"]);
        Ok(())
    }

    fn write_map(place: &Place, text: &str) -> Result<()> {
        fs::write(place.map(), text).during(Kind::Internal, "write")
    }

    #[test]
    fn an_entry_of_the_map_leads_to_no_file_out_of_its_agents_folder() -> Result<()> {
        let place = Place::new();
        say(&place, "one")?;
        let sessions = Home::new(&place.0).sessions();
        for (agent, file, victim) in [
            ("..", "v.jsonl", "../v.jsonl"),
            ("../logs", "v.jsonl", "../logs/v.jsonl"),
            ("", "v.jsonl", "v.jsonl"),
            (".", "v.jsonl", "v.jsonl"),
            ("a/.", "v.jsonl", "a/v.jsonl"),
            ("a", "v.lock", "a/v.lock"),
            ("a", ".jsonl", "a/.jsonl"),
            ("a", "..", "a/v"),
        ] {
            let victim = sessions.join(victim);
            create_private(victim.parent().unwrap_or(&victim))?;
            fs::write(&victim, "theirs").during(Kind::Internal, "write")?;
            let entry = json!({"planted": {"agentName": agent, "sessionFile": file}});
            write_map(&place, &entry.to_string())?;
            let store = place.store();
            for found in [store.find(None, "planted"), store.remove(None, "planted", now())] {
                assert_eq!(found.map_err(|it| it.kind()), Err(Kind::Missing), "{agent} {file}");
            }
            assert!(victim.exists(), "{agent} {file}");
        }
        Ok(())
    }

    #[test]
    fn of_two_entries_of_a_key_the_last_one_counts() -> Result<()> {
        let place = Place::new();
        let old = say(&place, "old")?;
        let new = place.store().start_anew("k", "a", now())?;
        let entry = |path: &Path| json!({"agentName": "a", "sessionFile": path}).to_string();
        write_map(&place, &format!("{{\"k\": {}, \"k\": {}}}", entry(&old), entry(&new.path)))?;
        let removed = place.store().remove(None, &file_name(&old).replace(".jsonl", ""), now())?;
        assert_eq!(removed.key, None);
        assert_eq!(place.store().find(None, "k")?.path, new.path);
        Ok(())
    }

    #[test]
    fn keys_are_found_again_when_a_damaged_map_could_not_be_replaced() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        write_map(&place, "{\"k\":")?;
        // As on a full disk.
        let obstacle = place.map().with_file_name("session-map.json.new");
        create_private(&obstacle)?;
        assert!(place.store().open("other", "a", now()).is_err());
        assert_eq!(place.store().owner("k")?.as_deref(), Some("a"));
        fs::remove_dir(&obstacle).during(Kind::Internal, "remove")?;
        assert_eq!(say(&place, "two")?, path);
        assert_eq!(reopened(&place)?, ["one", "two"]);
        Ok(())
    }

    #[test]
    fn a_session_makes_room_before_the_map_is_written() -> Result<()> {
        let place = Place::new();
        let path = say(&place, "one")?;
        // As on a full disk.
        let obstacle = place.map().with_file_name("session-map.json.new");
        create_private(&obstacle)?;
        assert!(place.store().remove(None, "k", now()).is_err());
        assert!(!path.exists());
        fs::remove_dir(&obstacle).during(Kind::Internal, "remove")?;
        place.store().remove(None, "k", now())?;
        assert_eq!(place.store().count()?, 0);
        Ok(())
    }

    #[test]
    fn only_what_would_do_is_proposed() -> Result<()> {
        let place = Place::new();
        say(&place, "one")?;
        let folder = Home::new(&place.0).agent_sessions("a");
        for name in ["linked", ""] {
            let link = folder.join(format!("{name}.jsonl"));
            std::os::unix::fs::symlink("/nonexistent", link).during(Kind::Internal, "link")?;
        }
        for word in ["k", "linkes", "x"] {
            let error = place.store().resume("other", "a", word, now()).err();
            let text = error.map(|it| it.to_string()).unwrap_or_default();
            assert!(text.contains("no session") && !text.contains(&format!("`{word}`?")), "{text}");
            assert!(!text.contains("`linked`") && !text.contains("``"), "{text}");
        }
        Ok(())
    }

    fn id_of_key(place: &Place, key: &str) -> Result<String> {
        Ok(place.store().find(None, key)?.id)
    }

    #[track_caller]
    fn check_refused<T: std::fmt::Debug>(got: Result<T>, kind: Kind, words: &[&str]) {
        let Err(error) = got else { panic!("{got:?}") };
        assert_eq!(error.kind(), kind, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{word:?} is not in {error}");
        }
    }

    #[test]
    fn an_id_means_its_session_also_where_a_key_reads_the_same() -> Result<()> {
        let place = Place::new();
        say(&place, "one")?;
        let id = id_of_key(&place, "k")?;
        let owner = |file: &str| format!(r#"{{"agentName":"a","sessionFile":"{file}.jsonl"}}"#);
        let entries = format!(r#"{{"k":{},"{id}":{}}}"#, owner(&id), owner("other"));
        write_map(&place, &entries)?;
        let store = place.store();
        for agent in [None, Some("a")] {
            let found = store.find(agent, &id)?;
            assert_eq!((found.id, found.key.as_deref()), (id.clone(), Some("k")));
        }
        assert_eq!(store.key_of("a", &id)?, "k");
        assert_eq!(store.remove(None, &id, now())?.key.as_deref(), Some("k"));
        // Nothing but the key is called so now.
        assert_eq!(store.find(None, &id)?.id, "other");
        Ok(())
    }

    #[test]
    fn a_word_is_a_key_or_the_id_of_a_session_that_has_one() -> Result<()> {
        let place = Place::new();
        say(&place, "one")?;
        let (id, store) = (id_of_key(&place, "k")?, place.store());
        for (word, key) in [("k", "k"), (&*id, "k"), ("cli:a:new", "cli:a:new"), ("new", "new")] {
            assert_eq!(store.key_of("a", word)?, key);
        }
        check_refused(store.key_of("b", "k"), Kind::Conflict, &["`a`"]);
        check_refused(store.key_of("b", &id), Kind::Missing, &["agent `b`", "the agent `a` has"]);
        let meant = format!("did you mean `{id}`?");
        check_refused(store.key_of("a", &id[1..]), Kind::Missing, &[&meant]);
        store.start_anew("k", "a", now())?;
        let words = ["has no key", "POST /api/agents/a/sessions/resume"];
        check_refused(store.key_of("a", &id), Kind::Conflict, &words);
        Ok(())
    }

    #[test]
    fn no_new_key_reads_like_an_id() -> Result<()> {
        let place = Place::new();
        say(&place, "one")?;
        let (id, store) = (id_of_key(&place, "k")?, place.store());
        store.start_anew("k", "a", now())?;
        for word in [&*id, &id[1..]] {
            check_refused(store.start_anew(word, "a", now()), Kind::Usage, &["ID", "cli:a:work"]);
            check_refused(store.resume(word, "a", &id, now()), Kind::Usage, &["ID"]);
            check_refused(store.open(word, "a", now()).map(drop), Kind::Usage, &["ID"]);
        }
        assert_eq!(store.count()?, 1);
        Ok(())
    }

    #[test]
    fn the_end_of_a_key_and_the_beginning_of_an_id_find_it() -> Result<()> {
        let place = Place::new();
        place.store().open("cli:a:work", "a", now())?;
        let id = id_of_key(&place, "cli:a:work")?;
        for word in ["work", "wrok", "a:work", "cli:a:wrk"] {
            let hint = "did you mean `cli:a:work`?";
            check_refused(place.store().find(None, word), Kind::Missing, &[hint]);
        }
        let hint = format!("did you mean `{id}`?");
        check_refused(place.store().find(None, &id[..15]), Kind::Missing, &[&hint]);
        let none = place.store().find(None, "quite else").err().map(|it| it.to_string());
        assert_eq!(none.as_deref(), Some("there is no session `quite else`"));
        Ok(())
    }

    #[test]
    fn a_file_whose_name_is_no_text_keeps_no_other_from_being_listed() -> Result<()> {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let place = Place::new();
        say(&place, "one")?;
        let folder = Home::new(&place.0).agent_sessions("a");
        fs::write(folder.join(OsStr::from_bytes(b"\xff.jsonl")), "").during(Kind::Internal, "w")?;
        let mut listed = Vec::new();
        place.store().list(&Which::default(), &mut |it| {
            listed.push(it);
            Ok(true)
        })?;
        assert_eq!(listed.len(), 1);
        listed[0].session_file = OsStr::from_bytes(b"/\xff/x.jsonl").into();
        let told = serde_json::to_string(&listed[0]).unwrap_or_default();
        assert!(told.contains("\"sessionFile\":\"/\u{fffd}/x.jsonl\""), "{told}");
        Ok(())
    }

    #[test]
    fn a_home_that_is_no_text_loses_no_key_with_its_map() -> Result<()> {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let place = Place::new();
        let place = Place(place.0.join(OsStr::from_bytes(b"\xff")));
        let path = say(&place, "one")?;
        write_map(&place, "damaged")?;
        assert_eq!(say(&place, "two")?, path);
        fs::remove_dir_all(place.0.parent().unwrap_or(&place.0)).during(Kind::Internal, "remove")
    }

    #[test]
    fn a_prompt_is_not_refused_for_a_name_that_is_being_written() -> Result<()> {
        let place = Place::new();
        say(&place, "one")?;
        std::thread::scope(|scope| {
            let named = scope.spawn(|| {
                (0..200).try_for_each(|it| {
                    place.store().rename(None, "k", &format!("n{it}"), now()).map(drop)
                })
            });
            while !named.is_finished() {
                drop(place.store().open("k", "a", now())?);
            }
            named.join().unwrap_or_else(|_| Err(Error::new(Kind::Internal, "it panicked")))
        })
    }
}
