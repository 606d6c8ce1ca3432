//! Reads a session file: first a pass over all lines that keeps a few bytes
//! each (whose child it is, where it stands), then the lines on the path to
//! the leaf. Memory grows with the context, not with the file. A damaged line
//! is skipped; its children hang on its nearest sound ancestor.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use serde::Deserialize;

use super::Session;
use super::entry::{Body, Entry, Header};
use crate::message::Message;

/// Longest line that is read or written, in bytes.
pub(super) const LONGEST_LINE: usize = 32 * 1024 * 1024;

/// Lines on the path that a context is made of, in bytes; older ones are left
/// out. More than any model reads.
const LARGEST_CONTEXT: u64 = 8 * 1024 * 1024;

/// Warnings kept of one file; further ones are only counted.
const MOST_WARNINGS: usize = 5;

/// What was found in a file.
pub(super) struct Scanned {
    pub(super) session: Session,
    pub(super) end: FileEnd,
    pub(super) has_header: bool,
    pub(super) warnings: Vec<String>,
}

/// How a file ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FileEnd {
    /// With a whole line, or it is empty.
    #[default]
    Whole,
    /// With a sound line that only lacks its newline.
    Unended,
    /// With a part of a line that begins at this byte.
    Torn(u64),
}

/// Reads a whole file from its start.
pub(super) fn scan<F: Read + Seek>(file: &mut F) -> io::Result<Scanned> {
    let mut index = Index::default();
    index.read(file)?;
    let path = index.path();
    let mut session = Session::new(index.header.clone().unwrap_or_default());
    let mut newest_compaction = None;
    for (place, &number) in path.iter().enumerate() {
        match index.nodes[number as usize].kind {
            Kind::Plain => (),
            Kind::Compaction => newest_compaction = Some(place),
            Kind::ModelChange | Kind::Marked => {
                if let Some(entry) = index.load(file, number)? {
                    session.note(&entry.body);
                }
            }
        }
    }
    let first = index.first_of_context(file, &path, newest_compaction)?;
    for &number in &path[first.place..] {
        session.path.extend(index.load(file, number)?);
    }
    if first.is_cut {
        begin_with_a_turn(&mut session.path);
    }
    let has_header = index.header.is_some();
    Ok(Scanned { session, end: index.end, has_header, warnings: index.warnings() })
}

/// Drops what is left of a turn whose beginning was left out.
fn begin_with_a_turn(path: &mut Vec<Entry>) {
    let is_user = |it: &Entry| matches!(it.body, Body::Message { message: Message::User(_), .. });
    let first = path.iter().position(is_user).unwrap_or(0);
    path.drain(..first);
}

/// Where the context begins on a path.
struct First {
    place: usize,
    /// Whether more was left out than a compaction says.
    is_cut: bool,
}

/// What is kept of every line.
#[derive(Clone, Copy)]
struct Node {
    key: u64,
    offset: u64,
    length: u32,
    /// Place of the parent; [`NONE`] for a root.
    parent: u32,
    line: u32,
    kind: Kind,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    ModelChange,
    Compaction,
    /// May hold a `beige` field.
    Marked,
}

#[derive(Default)]
struct Index {
    header: Option<Header>,
    nodes: Vec<Node>,
    by_key: HashMap<u64, u32>,
    damaged: Vec<String>,
    damaged_lines: u64,
    end: FileEnd,
}

/// The part of a line that makes the tree.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Peek<'a> {
    #[serde(borrow, rename = "type")]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    parent_id: Option<std::borrow::Cow<'a, str>>,
}

impl Index {
    fn read<F: Read + Seek>(&mut self, file: &mut F) -> io::Result<()> {
        file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let mut line = Vec::new();
        let mut offset = 0;
        for number in 1.. {
            let Some(taken) = read_line(&mut reader, &mut line)? else { break };
            self.take(&line, taken, offset, number);
            offset += taken.bytes;
        }
        // Parents are places by now; what led to them is as large as the rest.
        self.by_key = HashMap::new();
        self.nodes.shrink_to_fit();
        Ok(())
    }

    /// One line of the file.
    fn take(&mut self, line: &[u8], taken: Taken, offset: u64, number: u32) {
        let text = line.trim_ascii();
        if text.is_empty() && taken.ended {
            return;
        }
        let sound = if taken.fits { self.take_sound(text, offset, number) } else { false };
        match (sound, taken.ended) {
            (true, true) => (),
            (true, false) => self.end = FileEnd::Unended,
            (false, false) => self.end = FileEnd::Torn(offset),
            (false, true) => self.take_damaged(text, number),
        }
    }

    fn take_sound(&mut self, text: &[u8], offset: u64, number: u32) -> bool {
        if self.header.is_none()
            && self.nodes.is_empty()
            && let Ok(header) = serde_json::from_slice(text)
        {
            self.header = Some(header);
            return true;
        }
        let Ok(peek) = serde_json::from_slice::<Peek<'_>>(text) else { return false };
        if peek.kind == "session" {
            return true;
        }
        let kind = match &*peek.kind {
            "model_change" => Kind::ModelChange,
            "compaction" => Kind::Compaction,
            "message" if contains(text, b"\"beige\"") => Kind::Marked,
            _ => Kind::Plain,
        };
        let previous = self.previous();
        let (key, parent) = match (&peek.id, &peek.parent_id) {
            (None, _) => (key_of(&id_of_line(number)), previous),
            (Some(id), None) => (key_of(id), NONE),
            (Some(id), Some(parent)) => {
                // What hangs on a line that does not read hangs on the sound
                // one before it.
                (key_of(id), self.by_key.get(&key_of(parent)).copied().unwrap_or(previous))
            }
        };
        self.by_key.insert(key, u32::try_from(self.nodes.len()).unwrap_or(NONE));
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.nodes.push(Node { key, offset, length, parent, line: number, kind });
        true
    }

    /// The children of a damaged line hang on its parent, if the line still
    /// says who it is and what it hung on.
    fn take_damaged(&mut self, text: &[u8], number: u32) {
        self.damaged_lines += 1;
        if self.damaged.len() < MOST_WARNINGS {
            self.damaged.push(format!("line {number} does not read and is skipped"));
        }
        let start = &text[..text.len().min(512)];
        let Some(id) = text_field(start, b"\"id\":\"") else { return };
        let Some(parent) = text_field(start, b"\"parentId\":\"") else { return };
        if let Some(&parent) = self.by_key.get(&key_of(parent)) {
            self.by_key.insert(key_of(id), parent);
        }
    }

    fn previous(&self) -> u32 {
        u32::try_from(self.nodes.len()).map_or(NONE, |it| it.wrapping_sub(1))
    }

    /// Places of the entries from the root to the leaf. A parent stands before
    /// its children, so this ends.
    fn path(&self) -> Vec<u32> {
        let mut path = Vec::new();
        let mut place = self.previous();
        while let Some(node) = self.nodes.get(place as usize) {
            path.push(place);
            place = node.parent;
        }
        path.reverse();
        path
    }

    /// Place on the path where the context begins: where the newest compaction
    /// says, and never so early that it would be larger than its bound.
    fn first_of_context<F: Read + Seek>(
        &mut self,
        file: &mut F,
        path: &[u32],
        compaction: Option<usize>,
    ) -> io::Result<First> {
        let kept = match compaction {
            Some(place) => self.first_kept(file, path, place)?,
            None => 0,
        };
        let mut bytes = 0;
        let mut place = path.len();
        while place > kept {
            bytes += u64::from(self.nodes[path[place - 1] as usize].length);
            if bytes > LARGEST_CONTEXT && place < path.len() {
                let what = format!("only the turns in its newest {LARGEST_CONTEXT} bytes are read");
                self.damaged.push(what);
                break;
            }
            place -= 1;
        }
        Ok(First { place, is_cut: place > kept })
    }

    fn first_kept<F: Read + Seek>(
        &self,
        file: &mut F,
        path: &[u32],
        compaction: usize,
    ) -> io::Result<usize> {
        let body = self.load(file, path[compaction])?.map(|it| it.body);
        let Some(Body::Compaction { first_kept_entry_id, first_kept_entry_index, .. }) = body
        else {
            return Ok(compaction);
        };
        // Version 1 counts the lines of the file, the header being 0.
        let line = first_kept_entry_index.map(|it| it + 1);
        let key = first_kept_entry_id.map(|it| key_of(&it));
        let is_first = |number: &&u32| {
            let node = self.nodes[**number as usize];
            Some(node.key) == key || Some(u64::from(node.line)) == line
        };
        let found = path[..compaction].iter().rposition(|it| is_first(&it));
        Ok(found.unwrap_or(compaction))
    }

    /// The entry itself. Version 1 has no ids: its lines are numbered.
    fn load<F: Read + Seek>(&self, file: &mut F, number: u32) -> io::Result<Option<Entry>> {
        let node = self.nodes[number as usize];
        file.seek(SeekFrom::Start(node.offset))?;
        let mut text = vec![0; node.length as usize];
        file.read_exact(&mut text)?;
        let Ok(mut entry) = serde_json::from_slice::<Entry>(&text) else { return Ok(None) };
        if entry.id.is_empty() {
            entry.id = id_of_line(node.line);
        }
        self.name_first_kept(&mut entry.body);
        Ok(Some(entry))
    }

    /// Version 1 says where the kept entries begin by number, later ones by id.
    fn name_first_kept(&self, body: &mut Body) {
        if let Body::Compaction {
            first_kept_entry_id: id @ None,
            first_kept_entry_index: Some(index),
            ..
        } = body
        {
            let line = u32::try_from(*index).ok().and_then(|it| it.checked_add(1));
            *id = line.map(id_of_line);
        }
    }

    fn warnings(self) -> Vec<String> {
        let mut warnings = self.damaged;
        if self.damaged_lines > MOST_WARNINGS as u64 {
            warnings.push(format!("{} lines do not read in all", self.damaged_lines));
        }
        warnings
    }
}

/// How much of a line was read.
#[derive(Clone, Copy)]
struct Taken {
    /// Its length in the file, newline included.
    bytes: u64,
    /// Whether it ends with a newline.
    ended: bool,
    /// Whether it is not longer than a line may be.
    fits: bool,
}

/// Reads one line without its newline; one that is too long is passed over.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<Taken>> {
    line.clear();
    line.shrink_to(1024 * 1024);
    let mut taken = Taken { bytes: 0, ended: false, fits: true };
    loop {
        let piece = reader.fill_buf()?;
        if piece.is_empty() {
            return Ok((taken.bytes > 0).then_some(taken));
        }
        let newline = piece.iter().position(|&it| it == b'\n');
        let used = newline.map_or(piece.len(), |it| it + 1);
        let content = &piece[..newline.unwrap_or(used)];
        taken.fits = taken.fits && line.len() + content.len() <= LONGEST_LINE;
        if taken.fits {
            line.extend_from_slice(content);
        }
        taken.bytes += used as u64;
        reader.consume(used);
        if newline.is_some() {
            taken.ended = true;
            return Ok(Some(taken));
        }
    }
}

/// The id of a line that has none.
fn id_of_line(number: u32) -> String {
    format!("{number:08x}")
}

/// An id as a number; hexadecimal ones are themselves.
fn key_of(id: &str) -> u64 {
    if id.len() == 8
        && let Ok(key) = u32::from_str_radix(id, 16)
    {
        return u64::from(key);
    }
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|it| it == part)
}

/// The value after `"name":"`, up to the next quote.
fn text_field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let start = text.windows(name.len()).position(|it| it == name)? + name.len();
    let length = text[start..].iter().position(|&it| it == b'"')?;
    std::str::from_utf8(&text[start..start + length]).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::config::ModelRef;

    const HEADER: &str =
        r#"{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/workspace"}"#;

    fn user(id: &str, parent: &str) -> String {
        let parent = if parent.is_empty() { "null".into() } else { format!("\"{parent}\"") };
        format!(
            r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"{id}"}}}}"#
        )
    }

    fn scan_text(text: &str) -> Option<Scanned> {
        scan(&mut Cursor::new(text.as_bytes())).ok()
    }

    /// Ids on the path, joined by spaces.
    fn ids(scanned: &Scanned) -> String {
        let ids: Vec<&str> = scanned.session.path().iter().map(|it| it.id.as_str()).collect();
        ids.join(" ")
    }

    #[track_caller]
    fn check(lines: &[&str], want: &str, warnings: usize) {
        let text = lines.iter().map(|it| format!("{it}\n")).collect::<String>();
        let got = scan_text(&text).map(|it| (ids(&it), it.warnings.len()));
        assert_eq!(got, Some((want.into(), warnings)));
    }

    #[test]
    fn the_path_leads_from_the_root_to_the_last_line() {
        let (a, b, c, d) = (user("a", ""), user("b", "a"), user("c", "b"), user("d", "a"));
        check(&[HEADER, &a, &b, &c, &d], "a d", 0);
        check(&[HEADER, &a, "", &b], "a b", 0);
        check(&[HEADER], "", 0);
        check(&[], "", 0);
    }

    #[test]
    fn children_of_a_damaged_line_hang_on_its_nearest_sound_ancestor() {
        let (a, b, c) = (user("a", ""), user("b", "a"), user("c", "b"));
        check(&[HEADER, &a, &b[..b.len() - 3], &c], "a c", 1);
        check(&[HEADER, &a, "\u{0}\u{0}", &c], "a c", 1);
        // The damaged line still says that it hung on `a`, not on `x`.
        let x = user("x", "a");
        check(&[HEADER, &a, &x, &b[..b.len() - 3], &c], "a c", 1);
        check(&["{broken", &a, &b], "a b", 1);
    }

    #[test]
    fn a_parent_that_stands_later_or_is_the_entry_itself_makes_no_circle() {
        check(&[HEADER, &user("a", "b"), &user("b", "a")], "a b", 0);
        check(&[HEADER, &user("a", ""), &user("b", "b")], "a b", 0);
    }

    #[track_caller]
    fn check_end(text: &str, want: FileEnd, path: &str) {
        let got = scan_text(text).map(|it| (it.end, ids(&it)));
        assert_eq!(got, Some((want, path.into())));
    }

    #[test]
    fn the_end_of_a_file_is_told_apart() {
        let a = user("a", "");
        let whole = format!("{HEADER}\n{a}\n");
        check_end(&whole, FileEnd::Whole, "a");
        check_end(whole.trim_end(), FileEnd::Unended, "a");
        check_end(&format!("{whole}{{\"type\":\"mess"), FileEnd::Torn(whole.len() as u64), "a");
        check_end("{\"type\":\"sess", FileEnd::Torn(0), "");
    }

    #[test]
    fn a_compaction_leaves_what_it_replaces_unread() {
        let (a, b) = (user("a", ""), user("b", "a"));
        let c = r#"{"type":"compaction","id":"c","parentId":"b","summary":"s","firstKeptEntryId":"b","tokensBefore":1}"#;
        check(&[HEADER, &a, &b, c, &user("d", "c")], "b c d", 0);
        let lost = c.replace("\"firstKeptEntryId\":\"b\"", "\"firstKeptEntryId\":\"gone\"");
        check(&[HEADER, &a, &b, &lost, &user("d", "c")], "c d", 0);
    }

    #[test]
    fn version_1_gets_ids_in_the_order_of_the_file() {
        let header = r#"{"type":"session","id":"s","timestamp":"t","cwd":"/"}"#;
        let said = |text: &str| {
            format!(
                r#"{{"type":"message","timestamp":"t","message":{{"role":"user","content":"{text}"}}}}"#
            )
        };
        let compaction = r#"{"type":"compaction","timestamp":"t","summary":"s","firstKeptEntryIndex":2,"tokensBefore":1}"#;
        let lines = [header, &said("a"), &said("b"), compaction, &said("c")];
        check(&lines, "00000003 00000004 00000005", 0);
        let text = lines.join("\n");
        let context = scan_text(&text).map(|it| it.session.context().len());
        assert_eq!(context, Some(3));
    }

    #[test]
    fn an_entry_appended_to_version_1_hangs_where_it_was_hung() {
        let header = r#"{"type":"session","id":"s"}"#;
        let old = r#"{"type":"message","message":{"role":"user","content":"a"}}"#;
        check(&[header, old, &user("b", "00000002")], "00000002 b", 0);
    }

    #[test]
    fn marks_and_model_are_known_though_compacted_away() {
        let model =
            r#"{"type":"model_change","id":"a","parentId":null,"provider":"p","modelId":"m"}"#;
        let answer = r#"{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":"x","provider":"p","beige":{"line":1}}}"#;
        let compaction =
            r#"{"type":"compaction","id":"c","parentId":"b","summary":"s","tokensBefore":1}"#;
        let scanned = scan_text(&[HEADER, model, answer, compaction].join("\n"));
        let got = scanned.map(|it| (ids(&it), it.session.model, it.session.marks.len()));
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        assert_eq!(got, Some(("c".into(), Some(model), 1)));
    }

    #[test]
    fn a_context_over_the_bound_begins_with_a_turn() {
        let long = "x".repeat(LARGEST_CONTEXT as usize * 2 / 3);
        let answer = |id: &str, parent: &str, text: &str| {
            user(id, parent)
                .replace("user", "assistant")
                .replace(&format!("\"{id}\"}}}}"), &format!("\"{text}\"}}}}"))
        };
        let first = user("a", "").replace("\"a\"}}", &format!("\"{long}\"}}}}"));
        let lines =
            [HEADER, &first, &answer("b", "a", &long), &user("c", "b"), &answer("d", "c", "y")];
        check(&lines, "c d", 1);
    }

    #[test]
    fn a_line_over_the_bound_is_passed_over() {
        let long =
            user("b", "a").replace("\"b\"}}", &format!("\"{}\"}}}}", "x".repeat(LONGEST_LINE)));
        check(&[HEADER, &user("a", ""), &long, &user("c", "b")], "a c", 1);
    }
}
