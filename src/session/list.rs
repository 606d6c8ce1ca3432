//! The list of sessions: what a person tells one from another by. A file is
//! gone through line by line and only the beginning of each line is held, so
//! one of any length is listed in the same memory. What cannot be read is
//! listed with what is known of it.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::entry::{Body, Header};
use super::map::{Keys, sorted};
use super::store::{Found, Store, id_of_file};
use super::walk::{text_field, text_start};
use crate::clock::Time;
use crate::config::ModelRef;
use crate::config::home::open_own;
use crate::error::Result;
use crate::message::{Message, read_json};

/// Bytes of a line that say what it is.
const BEGINNING: u64 = 512;

/// Bytes of a line of which a text is wanted.
const TEXT: u64 = 64 * 1024;

/// Characters of a first message.
const FIRST_MESSAGE: usize = 200;

/// Which sessions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Only this agent's.
    pub agent: Option<String>,
    /// Also those that an agent started.
    pub of_agents_too: bool,
}

/// A session in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its file's name without `.jsonl`.
    pub session_id: String,
    /// The file.
    #[serde(serialize_with = "shown")]
    pub session_file: PathBuf,
    /// Whose it is.
    pub agent_name: String,
    /// The key that means it now; an older file of a key has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What a person called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The model that was chosen for it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_choice")]
    pub model: Option<ModelRef>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339: when its file was last written.
    pub updated_at: String,
    /// The beginning of what was said first, on one line; empty if nothing was.
    pub first_message: String,
    /// Number of messages in the file.
    pub messages: u64,
}

/// JSON has no bytes: a home that is not UTF-8 is told as a person sees it.
fn shown<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// As a choice is given.
fn as_choice<S: Serializer>(model: &Option<ModelRef>, to: S) -> Result<S::Ok, S::Error> {
    let choice = model.as_ref().map(|it| json!({ "provider": it.provider, "modelId": it.model }));
    choice.serialize(to)
}

/// A file that is to be listed.
struct Candidate {
    found: Found,
    /// Milliseconds since 1970.
    updated: i64,
}

impl Store {
    /// Lists sessions, the one that was written last first; `each` says
    /// whether to go on.
    pub fn list(&self, which: &Which, each: &mut dyn FnMut(Listed) -> Result<bool>) -> Result<()> {
        let chosen = self.chosen_models();
        for Candidate { found, updated } in self.candidates(which)? {
            let model = found.key.as_ref().and_then(|it| chosen.get(it)).cloned();
            if !each(Listed { model, ..listed(&found, updated) })? {
                break;
            }
        }
        Ok(())
    }

    /// One session as it would be listed.
    pub fn listed(&self, found: &Found) -> Listed {
        let chosen = found.key.as_ref().and_then(|it| self.chosen_models().remove(it));
        Listed { model: chosen, ..listed(found, updated(found)) }
    }

    fn candidates(&self, which: &Which) -> Result<Vec<Candidate>> {
        let keys = Keys::look(&self.home)?;
        let mut by_path = HashMap::new();
        for (key, owner) in keys.iter() {
            by_path.insert(
                self.file_of(&owner),
                (key.to_owned(), owner.created_at.clone(), owner.depth()),
            );
        }
        let is_asked = |it: &String| which.agent.as_ref().is_none_or(|agent| agent == it);
        let mut candidates = Vec::new();
        for agent in self.agents().into_iter().filter(is_asked) {
            for path in sorted(&self.home.agent_sessions(&agent)) {
                let Some(id) = id_of_file(&path) else { continue };
                let known = by_path.remove(&path);
                if known.as_ref().is_some_and(|it| it.2 > 0) && !which.of_agents_too {
                    continue;
                }
                let (key, keyed_at) = known.map(|it| (it.0, it.1)).unzip();
                let found = Found { agent: agent.clone(), id, path, key, keyed_at };
                candidates.push(Candidate { updated: updated(&found), found });
            }
        }
        candidates.sort_by(|a, b| (b.updated, &b.found.id).cmp(&(a.updated, &a.found.id)));
        Ok(candidates)
    }
}

fn updated(found: &Found) -> i64 {
    let modified = fs::symlink_metadata(&found.path).and_then(|it| it.modified());
    let since = modified.ok().and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    since.and_then(|it| i64::try_from(it.as_millis()).ok()).unwrap_or(0)
}

fn listed(found: &Found, updated: i64) -> Listed {
    let glance = Glance::at(found);
    let began = glance.header.map(|it| it.timestamp).filter(|it| !it.is_empty());
    let keyed_at = || found.keyed_at.clone().filter(|it| !it.is_empty());
    // A file's time is that of the kernel's clock, which is coarser than ours.
    let began_at = began.as_deref().and_then(Time::parse).map_or(0, Time::unix_millis);
    let updated_at = Time::from_unix_millis(updated.max(began_at)).to_string();
    Listed {
        session_id: found.id.clone(),
        session_file: found.path.clone(),
        agent_name: found.agent.clone(),
        key: found.key.clone(),
        name: glance.name,
        model: None,
        created_at: began.or_else(keyed_at).unwrap_or_else(|| updated_at.clone()),
        updated_at,
        first_message: glance.first_message.unwrap_or_default(),
        messages: glance.messages,
    }
}

/// What one pass over a file shows.
#[derive(Default)]
struct Glance {
    header: Option<Header>,
    name: Option<String>,
    first_message: Option<String>,
    messages: u64,
}

impl Glance {
    /// What can be read of it.
    fn at(found: &Found) -> Self {
        let mut glance = Self::default();
        let opened = open_own(&found.path, fs::OpenOptions::new().read(true));
        let read = opened.and_then(|it| glance.read(&mut BufReader::with_capacity(64 * 1024, it)));
        if let Err(error) = read {
            log::warn!("read the session file {}: {error}", found.path.display());
        }
        glance
    }

    fn read(&mut self, reader: &mut impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.take(BEGINNING).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if self.wants_more(&line) && !line.ends_with(b"\n") {
                reader.take(TEXT).read_until(b'\n', &mut line)?;
            }
            let is_whole = line.ends_with(b"\n");
            // What has no newline yet is being written, or torn.
            let has_end = is_whole || ends_a_line(reader)?;
            if has_end {
                self.take(line.trim_ascii());
            }
        }
    }

    /// Whether a text of the line is wanted that begins so.
    fn wants_more(&self, start: &[u8]) -> bool {
        match text_field(start, "type") {
            Some("message") => self.first_message.is_none(),
            Some("session_info") => true,
            _ => false,
        }
    }

    fn take(&mut self, line: &[u8]) {
        match text_field(line, "type") {
            Some("session") if self.header.is_none() => {
                self.header = read_json(line).ok();
            }
            Some("message") => {
                self.messages += 1;
                if self.first_message.is_none() && text_field(line, "role") == Some("user") {
                    let said = said(line).unwrap_or_default();
                    self.first_message = Some(on_one_line(&said));
                }
            }
            Some("session_info") => {
                let info: Option<serde_json::Value> = read_json(line).ok();
                let name = info.as_ref().and_then(|it| it.get("name")?.as_str()).map(on_one_line);
                if name.is_some() {
                    self.name = name.filter(|it| !it.is_empty());
                }
            }
            _ => {}
        }
    }
}

/// Passes over the rest of a line; whether it ends with a newline.
fn ends_a_line(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let piece = reader.fill_buf()?;
        let Some(last) = piece.last() else { return Ok(false) };
        let (length, is_last_newline) = (piece.len(), *last == b'\n');
        let within = piece[..length - 1].contains(&b'\n');
        if within || is_last_newline {
            reader.skip_until(b'\n')?;
            return Ok(true);
        }
        reader.consume(length);
    }
}

/// The text of a user's message, also of a line that is cut.
fn said(line: &[u8]) -> Option<String> {
    if let Some(Body::Message { message: Message::User(user), .. }) = Body::parse("message", line) {
        return Some(user.content.text());
    }
    let text = text_start(line, "text").or_else(|| text_start(line, "content"))?;
    let text = &text[..text.len().min(8 * FIRST_MESSAGE)];
    // A cut can go through a character or an escape, which is not shown; half a
    // one that stands before it is.
    let quoted = |less| Some([b"\"", text.get(..text.len().checked_sub(less)?)?, b"\""].concat());
    let mut pieces = (0..12).filter_map(quoted);
    let whole = pieces.clone().find_map(|it| serde_json::from_slice(&it).ok());
    whole.or_else(|| pieces.find_map(|it| read_json(&it).ok()))
}

/// Its beginning, with one blank for any white space.
fn on_one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.chars().count() > FIRST_MESSAGE {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().take(FIRST_MESSAGE + 1));
    }
    match line.char_indices().nth(FIRST_MESSAGE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[track_caller]
    fn check(text: &str, first: Option<&str>, name: Option<&str>, messages: u64) {
        let mut glance = Glance::default();
        // Small pieces: what a line says may be cut anywhere.
        let mut reader = BufReader::with_capacity(7, Cursor::new(text.as_bytes()));
        assert!(glance.read(&mut reader).is_ok());
        let got = (glance.first_message.as_deref(), glance.name.as_deref(), glance.messages);
        assert_eq!(got, (first, name, messages));
    }

    #[test]
    fn a_glance_shows_the_first_message_the_last_name_and_how_many_there_are() {
        let user = r#"{"type":"message","id":"a","message":{"role":"user","content":[{"type":"text","text":" one\ntwo"}]}}"#;
        let answer = r#"{"type": "message", "message": {"role": "assistant", "content": "x"}}"#;
        let name = |it: &str| format!(r#"{{"type":"session_info","name":"{it}"}}"#);
        check(&format!("{answer}\n{user}\n{user}\n"), Some("one two"), None, 3);
        check(&format!("{}\n{}\n", name("a"), name("b")), None, Some("b"), 0);
        check(&format!("{}\n{}\n", name("a"), name("")), None, None, 0);
        check("", None, None, 0);
        check("nonsense\n\n\u{0}\n", None, None, 0);
        // What is not ended is being written, or torn.
        check(user, None, None, 0);
    }

    #[test]
    fn half_a_character_hides_neither_a_message_nor_a_name() {
        let user = r#"{"type":"message","message":{"role":"user","content":"a\ud83d"}}"#;
        let name = r#"{"type":"session_info","name":"\ude00b"}"#;
        check(&format!("{user}\n{name}\n"), Some("a\u{fffd}"), Some("\u{fffd}b"), 1);
        let long = "\\ud83d ".repeat(TEXT as usize);
        let user = user.replace("a\\ud83d", &long);
        let want = "\u{fffd} ".repeat(FIRST_MESSAGE / 2) + "…";
        check(&format!("{user}\n"), Some(&want), None, 1);
    }

    #[test]
    fn the_first_message_is_shown_though_its_line_is_long() {
        for (before, after) in [("\"", "\"}}"), ("[{\"type\": \"text\", \"text\": \"", "\"}]}}")] {
            let long = "那 \\n\\u00e9".repeat(TEXT as usize);
            let line = format!(
                "{{\"type\":\"message\",\"message\":{{\"role\":\"user\",\"content\":{before}{long}{after}\n"
            );
            let mut want: String =
                "那 é".repeat(FIRST_MESSAGE).chars().take(FIRST_MESSAGE).collect();
            want.push('…');
            check(&line, Some(&want), None, 1);
        }
    }
}
