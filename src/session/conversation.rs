//! A session with its file, locked for the length of a turn and appended to,
//! one write a line. What a crash left is put right when it is opened.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;

use super::backwards::LONGEST_LINE;
use super::entry::{Body, Header, HeaderBeige, HeaderKind, VERSION};
use super::scan::{Scanned, scan};
use super::walk::FileEnd;
use super::{Mark, Session};
use crate::clock::Time;
use crate::config::ModelRef;
use crate::config::home::open_own;
use crate::config::state_file::aside;
use crate::error::{During, Error, Kind, Result};
use crate::message::Message;

/// A session and its file, locked until this is dropped: nobody else, in this
/// process or another, works on it meanwhile.
#[derive(Debug)]
pub struct Conversation {
    session: Session,
    path: PathBuf,
    file: File,
    length: u64,
    /// Whether it was begun by this very opening.
    is_new: bool,
}

impl Conversation {
    /// Whether there was no such session before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The session as it stands in the file.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long its file is, in bytes.
    pub fn length(&self) -> u64 {
        self.length
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

    /// Puts a summary in the place of all before an entry that had so many
    /// tokens, with what its provider marked it by.
    pub fn compact(
        &mut self,
        summary: String,
        first_kept: String,
        tokens_before: u64,
        mark: Option<Mark>,
        now: Time,
    ) -> Result<()> {
        let mut extra = serde_json::Map::new();
        extra.insert("tokensBefore".into(), tokens_before.into());
        if let Some(mark) = mark {
            extra.insert("beige".into(), mark.to_entry());
        }
        let (first_kept_entry_id, first_kept_entry_index) = (Some(first_kept), None);
        let body = Body::Compaction { summary, first_kept_entry_id, first_kept_entry_index, extra };
        self.append(body, now)
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
    pub(super) fn begin(path: PathBuf, file: File, key: &str, now: Time) -> Result<Self> {
        let session = Session::new(new_header(key, now)?);
        let mut conversation = Self { session, path, file, length: 0, is_new: true };
        conversation.write_line(&conversation.session.header.clone())?;
        Ok(conversation)
    }

    /// A file that exists, put right.
    pub(super) fn read(path: PathBuf, mut file: File, key: &str, now: Time) -> Result<Self> {
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
        Ok(Self { session, path, file, length, is_new: false })
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
            if !self.session.ids().any(|it| it == id) {
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
            if let Err(error) = copy_from(file, start, &side) {
                // A part of it would only fill the disk further.
                let _ = std::fs::remove_file(&side);
                return Err(error);
            }
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

/// Copies what is behind that byte to a new file, to the disk.
fn copy_from(file: &mut File, start: u64, side: &Path) -> io::Result<()> {
    let mut torn = OpenOptions::new().create_new(true).write(true).mode(0o600).open(side)?;
    file.seek(SeekFrom::Start(start))?;
    io::copy(file, &mut torn)?;
    torn.sync_all()
}

/// Opens a session's file and locks it for whoever changes it.
/// [`Kind::Conflict`] while a turn runs in it.
pub(super) fn locked(path: &Path, name: &str, options: &mut OpenOptions) -> Result<File> {
    let file = open_own(path, options.read(true).append(true))
        .during(Kind::Internal, format!("open the session file {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            let what = format!("a turn is running in the session `{name}`");
            Err(Error::new(Kind::Conflict, what))
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).during(Kind::Internal, format!("lock the session `{name}`"))
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
pub(super) fn random_letters() -> Result<String> {
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
    use super::*;

    #[test]
    fn a_torn_line_that_cannot_be_copied_leaves_no_half_copy() {
        let path = std::env::temp_dir().join(format!("beige-torn-{}", std::process::id()));
        std::fs::write(&path, "half a line").expect("written");
        let now = Time::from_unix_millis(0);
        let side = aside(&path, "torn", now);
        // It cannot be read: what stops a copy on a full disk comes as late.
        let mut file = OpenOptions::new().write(true).open(&path).expect("a file");
        assert!(mend(&mut file, &path, FileEnd::Torn(0), now).is_err());
        assert!(!side.exists());
        assert_eq!(std::fs::read(&path).expect("readable"), b"half a line");
        std::fs::remove_file(&path).expect("removed");
    }
}
