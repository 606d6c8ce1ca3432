//! Session files: found by key, made, locked for the length of a turn, and
//! appended to, one write a line. What a crash left is put right when a file
//! is opened, never by refusing it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;

use super::entry::{Body, Entry, Header, HeaderBeige, HeaderKind, VERSION};
use super::map::{Owner, SessionMap, aside};
use super::scan::{FileEnd, LONGEST_LINE, Scanned, scan};
use super::{Session, check_key};
use crate::clock::{self, Time};
use crate::config::home::{create_private, open_own};
use crate::config::{Home, ModelRef};
use crate::error::{During, Error, Kind, Result};
use crate::message::Message;

/// All sessions of a home.
#[derive(Clone, Debug)]
pub struct Store {
    home: Home,
}

/// A session and its file, locked until this is dropped: nobody else, in this
/// process or another, works on it meanwhile.
#[derive(Debug)]
pub struct Conversation {
    session: Session,
    path: PathBuf,
    file: File,
    length: u64,
}

impl Store {
    /// The sessions of that home.
    pub fn new(home: Home) -> Self {
        Self { home }
    }

    /// The session of a key, made if there is none. [`Kind::Usage`] for a key
    /// that is not allowed; [`Kind::Conflict`] if it belongs to another agent
    /// or a turn is running in it.
    pub fn open(&self, key: &str, agent: &str, now: Time) -> Result<Conversation> {
        check_key(key)?;
        create_private(&self.home.agent_sessions(agent))?;
        let mut map = SessionMap::open(&self.home, now)?;
        let Some(owner) = map.get(key) else { return self.create(&mut map, key, agent, now) };
        if owner.agent_name != agent {
            let what = format!("the session `{key}` belongs to the agent `{}`", owner.agent_name);
            return Err(Error::new(Kind::Conflict, what));
        }
        let path = self.file_of(&owner);
        drop(map);
        let file = open_file(&path)?;
        lock(&file, key)?;
        Conversation::read(path, file, key, now)
    }

    /// The agent that a key belongs to, if it belongs to any.
    pub fn owner(&self, key: &str) -> Result<Option<String>> {
        check_key(key)?;
        create_private(&self.home.sessions())?;
        Ok(SessionMap::open(&self.home, clock::now())?.get(key).map(|it| it.agent_name))
    }

    /// Number of sessions that have a key.
    pub fn count(&self) -> Result<usize> {
        create_private(&self.home.sessions())?;
        Ok(SessionMap::open(&self.home, clock::now())?.count())
    }

    /// A fresh file under a key.
    fn create(
        &self,
        map: &mut SessionMap<'_>,
        key: &str,
        agent: &str,
        now: Time,
    ) -> Result<Conversation> {
        let name = format!("{}-{}.jsonl", now.compact(), random_letters()?);
        let path = self.home.agent_sessions(agent).join(name);
        let file = open_file(&path)?;
        lock(&file, key)?;
        let conversation = Conversation::begin(path, file, key, now)?;
        let owner = Owner {
            agent_name: agent.to_owned(),
            session_file: conversation.path.to_string_lossy().into_owned(),
            created_at: now.to_string(),
            extra: serde_json::Map::new(),
        };
        map.set(key, &owner)?;
        Ok(conversation)
    }

    /// The file an entry of the map means. Always one of this home's, by its
    /// name, so that a home can be moved.
    fn file_of(&self, owner: &Owner) -> PathBuf {
        let name = Path::new(&owner.session_file).file_name().unwrap_or_default();
        self.home.agent_sessions(&owner.agent_name).join(name)
    }
}

impl Conversation {
    /// The session as it stands in the file.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an entry: one write of one line, then the value.
    pub fn append(&mut self, body: Body, now: Time) -> Result<()> {
        let entry = self.session.next(self.fresh_id()?, body, now);
        self.write_line(&entry)?;
        self.session.push(entry);
        Ok(())
    }

    /// Appends a message.
    pub fn say(&mut self, message: Message, now: Time) -> Result<()> {
        self.append(Body::message(message), now)
    }

    /// Answers the calls that a cut turn left open.
    pub fn close_open_calls(&mut self, now: Time) -> Result<()> {
        for call in self.session.open_calls() {
            self.say(Message::interrupted(&call, now), now)?;
        }
        Ok(())
    }

    /// Notes which model answers from here on, if it is another.
    pub fn use_model(&mut self, model: &ModelRef, now: Time) -> Result<()> {
        if self.session.model() == Some(model) {
            return Ok(());
        }
        let body = Body::ModelChange {
            provider: model.provider.clone(),
            model_id: model.model.clone(),
            extra: serde_json::Map::new(),
        };
        self.append(body, now)
    }

    /// Waits until all that was appended is on the disk.
    pub fn sync(&self) -> Result<()> {
        let what = format!("write the session file {} to the disk", self.path.display());
        self.file.sync_data().during(Kind::Internal, what)
    }

    /// A new file with its header.
    fn begin(path: PathBuf, file: File, key: &str, now: Time) -> Result<Self> {
        let session = Session::new(new_header(key, now)?);
        let mut conversation = Self { session, path, file, length: 0 };
        conversation.write_line(&conversation.session.header.clone())?;
        Ok(conversation)
    }

    /// A file that exists, put right.
    fn read(path: PathBuf, mut file: File, key: &str, now: Time) -> Result<Self> {
        let what = format!("read the session file {}", path.display());
        let scanned = scan(&mut file).during(Kind::Internal, what.clone())?;
        for warning in &scanned.warnings {
            log::warn!("the session file {}: {warning}", path.display());
        }
        mend(&mut file, &path, scanned.end, now).during(Kind::Internal, what.clone())?;
        let length = file.metadata().during(Kind::Internal, what)?.len();
        let Scanned { session, has_header, .. } = scanned;
        if length == 0 {
            return Self::begin(path, file, key, now);
        }
        if !has_header {
            log::warn!("the session file {} has no header", path.display());
        }
        Ok(Self { session, path, file, length })
    }

    /// One write; what a full disk let through of it is taken back.
    fn write_line(&mut self, line: &impl Serialize) -> Result<()> {
        let what = || format!("append to the session file {}", self.path.display());
        let mut text = serde_json::to_vec(line).during(Kind::Internal, what())?;
        if text.len() > LONGEST_LINE {
            let what = format!("{}: the entry is larger than {LONGEST_LINE} bytes", what());
            return Err(Error::new(Kind::TooLarge, what));
        }
        text.push(b'\n');
        let written = self.file.write(&text);
        if written.as_ref().is_ok_and(|it| *it == text.len()) {
            self.length += text.len() as u64;
            return Ok(());
        }
        let cause = written.err().unwrap_or_else(|| io::ErrorKind::StorageFull.into());
        let undone = self.file.set_len(self.length);
        undone.and(Err(cause)).during(Kind::Internal, what())
    }

    /// Eight hexadecimal digits that no entry of the path has.
    fn fresh_id(&self) -> Result<String> {
        loop {
            let [a, b, c, d] = random()?;
            let id = format!("{:08x}", u32::from_be_bytes([a, b, c, d]));
            if !self.session.path().iter().any(|it: &Entry| it.id == id) {
                return Ok(id);
            }
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // Closing is not enough: a child that is being started at this moment
        // holds the file, and with it the lock, for a few more instants.
        if let Err(error) = self.file.unlock() {
            log::warn!("unlock the session file {}: {error}", self.path.display());
        }
    }
}

/// Moves a torn last line to a side file; ends one that only lacks its newline.
fn mend(file: &mut File, path: &Path, end: FileEnd, now: Time) -> io::Result<()> {
    match end {
        FileEnd::Whole => Ok(()),
        FileEnd::Unended => file.write_all(b"\n"),
        FileEnd::Torn(start) => {
            let side = aside(path, "torn", now);
            let mut torn =
                OpenOptions::new().create_new(true).write(true).mode(0o600).open(&side)?;
            file.seek(SeekFrom::Start(start))?;
            io::copy(file, &mut torn)?;
            torn.sync_all()?;
            file.set_len(start)?;
            log::warn!(
                "the last line of the session file {} was torn; it is now in {}",
                path.display(),
                side.display()
            );
            Ok(())
        }
    }
}

fn open_file(path: &Path) -> Result<File> {
    open_own(path, OpenOptions::new().create(true).read(true).append(true))
        .during(Kind::Internal, format!("open the session file {}", path.display()))
}

fn lock(file: &File, key: &str) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => {
            let what = format!(
                "a turn is running in the session `{key}`; wait for its end or use another key"
            );
            Err(Error::new(Kind::Conflict, what))
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).during(Kind::Internal, format!("lock the session `{key}`"))
        }
    }
}

fn new_header(key: &str, now: Time) -> Result<Header> {
    Ok(Header {
        kind: HeaderKind::Session,
        version: VERSION,
        id: random_uuid()?,
        timestamp: now.to_string(),
        cwd: "/workspace".into(),
        beige: Some(HeaderBeige { session_key: key.to_owned() }),
        extra: serde_json::Map::new(),
    })
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(Error::new(Kind::Internal, "the system gives no random numbers")),
    }
}

/// Six letters or digits.
fn random_letters() -> Result<String> {
    const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let bytes: [u8; 6] = random()?;
    Ok(bytes.iter().map(|it| char::from(LETTERS[usize::from(*it) % LETTERS.len()])).collect())
}

/// A random UUID (version 4).
fn random_uuid() -> Result<String> {
    let mut bytes: [u8; 16] = random()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|it| format!("{it:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(parts.join("-"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

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
        let texts = conversation.session().context().into_iter().map(|it| match it {
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
        assert_eq!(conversation.session().path().len(), 2);
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
}
