//! A session as a person reads it: every message on the path, the oldest
//! first, also what is compacted away. A page of places is held, and one
//! message at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::backwards::{Place, read_at};
use super::entry::Body;
use super::store::{Found, Store};
use super::walk::{Walk, header, id_of};
use crate::clock::Time;
use crate::config::home::open_own;
use crate::error::{During, Kind, Result};
use crate::message::{BranchSummary, CompactionSummary, Custom, Message, read_json};

/// Which part of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// At most so many messages, the newest of them.
    pub limit: usize,
    /// Only what stands before the entry of this id.
    pub before: Option<String>,
}

/// A message of a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// Id of its entry.
    pub id: String,
    /// RFC 3339, when it was written.
    pub timestamp: String,
    /// It.
    pub message: Message,
}

/// An entry's place, until its turn comes: of these there are many.
struct Kept {
    kind: &'static str,
    place: Place,
    number: Option<u32>,
}

/// Types of entries that hold a message.
const KINDS: [&str; 4] = ["message", "compaction", "branch_summary", "custom_message"];

/// What else of a line is told.
#[derive(Deserialize)]
struct Stamp {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    timestamp: String,
}

impl Store {
    /// Tells the messages of a session, the oldest of the page first; `each`
    /// says whether to go on. Answers whether there are older ones.
    pub fn history(
        &self,
        found: &Found,
        page: &Page,
        each: &mut dyn FnMut(Told) -> Result<bool>,
    ) -> Result<bool> {
        let what = format!("read the session file {}", found.path.display());
        let Some(mut file) = opened(&found.path).during(Kind::Internal, what.clone())? else {
            return Ok(false);
        };
        let (kept, more) = kept(&mut file, page).during(Kind::Internal, what.clone())?;
        let mut line = Vec::new();
        for it in kept.into_iter().rev() {
            read_at(&mut file, it.place.start, it.place.length, &mut line)
                .during(Kind::Internal, what.clone())?;
            if let Some(told) = told(it, line.trim_ascii())
                && !each(told)?
            {
                break;
            }
        }
        Ok(more)
    }

    /// Copies a session's file as it stands.
    pub fn export(&self, found: &Found, to: &mut dyn Write) -> Result<()> {
        let what = format!("export the session file {}", found.path.display());
        let copied = opened(&found.path).and_then(|file| match file {
            Some(mut file) => {
                // What a running turn adds meanwhile is not waited for.
                let length = file.seek(SeekFrom::End(0))?;
                file.rewind()?;
                io::copy(&mut file.take(length), to)?;
                to.flush()
            }
            None => Err(io::ErrorKind::NotFound.into()),
        });
        copied.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => crate::error::Error::new(Kind::Cancelled, what.clone()),
            _ => crate::error::Error::new(Kind::Internal, format!("{what}: {error}")),
        })
    }
}

/// Tells the messages of the session in that file, the newest first; `each` says
/// whether to go on. No more than one is held.
pub fn tell_backwards(path: &Path, each: &mut dyn FnMut(Told) -> Result<bool>) -> Result<()> {
    let what = || format!("read the session file {}", path.display());
    let Some(mut file) = opened(path).during(Kind::Internal, what())? else { return Ok(()) };
    let header = header(&mut file).during(Kind::Internal, what())?;
    let mut walk = Walk::new(&mut file, header.as_ref()).during(Kind::Internal, what())?;
    let mut line = Vec::new();
    while let Some(step) = walk.next(&mut line).during(Kind::Internal, what())? {
        let Some(kind) = KINDS.into_iter().find(|it| *it == step.kind) else { continue };
        let kept = Kept { kind, place: step.place, number: step.number };
        if let Some(told) = told(kept, line.trim_ascii())
            && !each(told)?
        {
            break;
        }
    }
    Ok(())
}

/// The file, if there is one yet.
fn opened(path: &Path) -> io::Result<Option<File>> {
    match open_own(path, OpenOptions::new().read(true)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Places of the page's messages, the newest first, and whether there are more.
fn kept(file: &mut File, page: &Page) -> io::Result<(Vec<Kept>, bool)> {
    let header = header(file)?;
    let mut walk = Walk::new(file, header.as_ref())?;
    let (mut kept, mut line) = (Vec::new(), Vec::new());
    let mut is_before = page.before.is_none();
    while let Some(step) = walk.next(&mut line)? {
        if !is_before {
            is_before = page.before.as_deref() == Some(step.id.as_str());
            continue;
        }
        let Some(kind) = KINDS.into_iter().find(|it| *it == step.kind) else { continue };
        if kept.len() >= page.limit {
            return Ok((kept, true));
        }
        kept.push(Kept { kind, place: step.place, number: step.number });
    }
    Ok((kept, false))
}

fn told(kept: Kept, line: &[u8]) -> Option<Told> {
    let Stamp { id, timestamp } = read_json(line).ok()?;
    let millis = Time::parse(&timestamp).map_or(0, Time::unix_millis);
    let message = match Body::parse(kept.kind, line)? {
        Body::Message { message, .. } => message,
        Body::Compaction { summary, extra, .. } => {
            let tokens_before = extra.get("tokensBefore").and_then(Value::as_u64).unwrap_or(0);
            let timestamp = millis;
            let it = CompactionSummary { summary, tokens_before, timestamp, ..Default::default() };
            Message::CompactionSummary(it)
        }
        Body::BranchSummary { summary, .. } => Message::BranchSummary(BranchSummary {
            summary,
            timestamp: millis,
            ..BranchSummary::default()
        }),
        Body::CustomMessage { content, .. } => {
            Message::Custom(Custom { content, timestamp: millis, ..Custom::default() })
        }
        Body::ModelChange { .. } | Body::Other(_) => return None,
    };
    let id = id.unwrap_or_else(|| id_of(kept.number, kept.place));
    Some(Told { id, timestamp, message })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Home;

    /// A session file with these entries, in a folder of its own.
    struct Place(std::path::PathBuf);

    impl Place {
        fn new(name: &str, entries: &[Value]) -> Self {
            let root = std::env::temp_dir().join(format!("bh-{}-{name}", std::process::id()));
            let folder = Home::new(&root).agent_sessions("a");
            std::fs::create_dir_all(&folder).expect("a folder");
            let lines: String = entries.iter().map(|it| format!("{it}\n")).collect();
            std::fs::write(folder.join("s.jsonl"), lines).expect("written");
            Self(root)
        }

        /// Role, id and the first text of each message, and whether there are
        /// older ones.
        fn told(&self, limit: usize, before: Option<&str>) -> (Vec<String>, bool) {
            let store = Store::new(Home::new(&self.0));
            let found = store.find(Some("a"), "s").expect("found");
            let page = Page { limit, before: before.map(str::to_owned) };
            let mut told = Vec::new();
            let more = store.history(&found, &page, &mut |it| {
                let message = serde_json::to_value(&it.message).expect("JSON");
                told.push(format!("{} {}", it.id, message["role"].as_str().unwrap_or("?")));
                Ok(true)
            });
            (told, more.expect("a history"))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn said(id: &str, parent: Option<&str>) -> Value {
        json!({"type": "message", "id": id, "parentId": parent,
            "message": {"role": "user", "content": "x"}})
    }

    #[test]
    fn a_history_has_also_what_is_compacted_away() {
        let place = Place::new(
            "compacted",
            &[
                json!({"type": "session", "version": 3}),
                said("a", None),
                json!({"type": "label", "id": "l", "parentId": "a"}),
                json!({"type": "compaction", "id": "b", "parentId": "l", "summary": "s"}),
                json!({"type": "custom_message", "id": "c", "parentId": "b", "content": "x"}),
                said("left", Some("a")),
                said("d", Some("c")),
            ],
        );
        let all = ["a user", "b compactionSummary", "c custom", "d user"];
        assert_eq!(place.told(10, None), (all.map(String::from).to_vec(), false));
        assert_eq!(place.told(2, None), (all[2..].iter().map(ToString::to_string).collect(), true));
        assert_eq!(place.told(1, Some("c")), (vec![all[1].to_owned()], true));
        assert_eq!(place.told(9, Some("c")).0.len(), 2);
        assert_eq!(place.told(9, Some("left")), (vec![], false));
        let file = Home::new(&place.0).agent_sessions("a").join("s.jsonl");
        let mut back = Vec::new();
        let told = tell_backwards(&file, &mut |it| {
            back.push(it.id);
            Ok(back.len() < 3)
        });
        assert!(told.is_ok() && back == ["d", "c", "b"], "{back:?}");
    }

    #[test]
    fn a_message_with_half_a_character_is_told() {
        let place = Place::new("halves", &[json!({"type": "session", "version": 3})]);
        let line = said("a", None).to_string().replace("\"x\"", r#""\ud800 x""#);
        let store = Store::new(Home::new(&place.0));
        let found = store.find(Some("a"), "s").expect("found");
        let header = std::fs::read_to_string(&found.path).expect("a file");
        std::fs::write(&found.path, format!("{header}{line}\n")).expect("written");
        assert_eq!(place.told(10, None).0, ["a user"]);
    }

    #[test]
    fn a_history_of_version_1_has_the_numbers_of_its_lines() {
        let said = json!({"type": "message", "message": {"role": "user", "content": "x"}});
        let place = Place::new("first", &[json!({"type": "session"}), said.clone(), said]);
        let all = ["00000002 user".to_owned(), "00000003 user".to_owned()];
        assert_eq!(place.told(10, None), (all.to_vec(), false));
        assert_eq!(place.told(10, Some("00000003")), (all[..1].to_vec(), false));
    }
}
