//! Reads a session file as far back as its context goes: to the newest
//! compaction and what it kept, and never so far that memory would grow with
//! the file.

use std::io::{self, Read, Seek};

use super::entry::{Body, Header};
use super::walk::{FileEnd, Step, Walk, header, id_of_line};
use super::{Mark, Session, context};
use crate::config::ModelRef;
use crate::message::Message;

/// Memory that a context may take, in bytes: a million tokens of text.
const LARGEST_CONTEXT: u64 = 4 * 1024 * 1024;

/// Memory that the newest turn may take, which is not parted: it may hold an
/// image.
const LARGEST_TURN: u64 = 16 * 1024 * 1024;

/// What an entry takes beside its text, about.
const ENTRY: u64 = 1024;

/// So much of the file before the context is looked at for the model and for
/// what providers marked.
const LOOK_BACK: u64 = 16 * 1024 * 1024;

/// Marks that are kept, the newest of them.
const MOST_MARKS: usize = 4096;

/// What was found in a file.
pub(super) struct Scanned {
    pub(super) session: Session,
    pub(super) end: FileEnd,
    pub(super) has_header: bool,
    pub(super) warnings: Vec<String>,
}

/// Reads a file from its end.
pub(super) fn scan<F: Read + Seek>(file: &mut F) -> io::Result<Scanned> {
    let header = header(file)?;
    let mut walk = Walk::new(file, header.as_ref())?;
    let mut gathered = Gathered::default();
    let mut line = Vec::new();
    while let Some(step) = walk.next(&mut line)? {
        if !gathered.take(step, line.trim_ascii()) {
            break;
        }
    }
    let end = walk.end();
    let mut warnings = walk.warnings();
    if gathered.is_cut {
        let what = format!("only the newest turns are read, {LARGEST_CONTEXT} bytes of them");
        warnings.push(what);
    }
    let has_header = header.is_some();
    Ok(Scanned { session: gathered.into_session(header), end, has_header, warnings })
}

/// What is kept of the path, the newest first.
#[derive(Default)]
struct Gathered {
    taken: Vec<Taken>,
    compaction: Option<Compaction>,
    cost: u64,
    has_user: bool,
    /// Where the context begins; what is before it is only looked at.
    begins_at: Option<u64>,
    is_cut: bool,
    model: Option<ModelRef>,
    marks: Vec<Mark>,
}

struct Taken {
    id: String,
    message: Option<Message>,
}

struct Compaction {
    /// Number of entries after it.
    place: usize,
    summary: String,
    /// The first entry that it left as it was.
    first_kept: Option<String>,
    found: bool,
}

impl Gathered {
    /// Takes the next entry towards the root; whether more is wanted.
    fn take(&mut self, step: Step, text: &[u8]) -> bool {
        if let Some(begin) = self.begins_at {
            if begin.saturating_sub(step.place.start) > LOOK_BACK {
                return false;
            }
        } else if self.is_full(text.len()) {
            (self.begins_at, self.is_cut) = (Some(step.place.start), true);
        }
        let is_wanted = self.begins_at.is_none() || is_noted(&step.kind, text);
        let body = if is_wanted { Body::parse(&step.kind, text) } else { None };
        if let Some(body) = &body {
            self.note(body);
        }
        if self.begins_at.is_none() {
            self.keep(step, body);
        }
        true
    }

    fn is_full(&self, more: usize) -> bool {
        let cost = self.cost + more as u64 + ENTRY;
        cost > LARGEST_CONTEXT && (self.has_user || cost > LARGEST_TURN) && !self.taken.is_empty()
    }

    fn keep(&mut self, step: Step, body: Option<Body>) {
        self.cost += step.place.length + ENTRY;
        let start = step.place.start;
        let is_first_kept = self.compaction.as_ref().is_some_and(|it| {
            let by_number = step.number.map(id_of_line);
            it.first_kept
                .as_ref()
                .is_some_and(|id| *id == step.id || Some(id) == by_number.as_ref())
        });
        let message = match body {
            // An older one has been replaced with what it stood for.
            Some(Body::Compaction {
                summary, first_kept_entry_id, first_kept_entry_index, ..
            }) => {
                if self.compaction.is_none() {
                    let by_line = || first_kept_entry_index.and_then(line_of_index);
                    let first_kept = first_kept_entry_id.or_else(by_line);
                    let place = self.taken.len();
                    self.compaction = Some(Compaction { place, summary, first_kept, found: false });
                }
                None
            }
            other => other.and_then(context::neutral),
        };
        self.has_user |= matches!(message, Some(Message::User(_)));
        self.taken.push(Taken { id: step.id, message });
        if let Some(compaction) = &mut self.compaction
            && (is_first_kept || compaction.first_kept.is_none())
        {
            compaction.found = true;
            self.begins_at = Some(start);
        }
    }

    /// The newest of what must be known of the whole path.
    fn note(&mut self, body: &Body) {
        match body {
            Body::ModelChange { provider, model_id, .. } if self.model.is_none() => {
                let (provider, model) = (provider.clone(), model_id.clone());
                self.model = Some(ModelRef { provider, model });
            }
            _ => {
                if let Some(mark) = Mark::in_entry(body)
                    && self.marks.len() < MOST_MARKS
                    && !self.marks.contains(&mark)
                {
                    self.marks.push(mark);
                }
            }
        }
    }

    fn into_session(mut self, header: Option<Header>) -> Session {
        self.drop_half_a_turn();
        let mut session = Session::new(header.unwrap_or_default());
        let mut compacted = 0;
        if let Some(compaction) = self.compaction {
            if !compaction.found && !self.is_cut {
                // What it kept is nowhere on the path.
                self.taken.truncate(compaction.place + 1);
            }
            session.messages.push(context::compaction_note(&compaction.summary));
            session.summary = Some(compaction.summary);
            compacted = self.taken.len().saturating_sub(compaction.place);
        }
        for (place, Taken { id, message }) in self.taken.into_iter().rev().enumerate() {
            session.add(id, message);
            if place < compacted {
                session.counted_from = session.messages.len();
            }
        }
        session.model = self.model;
        self.marks.reverse();
        session.marks = self.marks;
        session
    }

    /// A context that was cut begins with what a person said, or with a
    /// compaction.
    fn drop_half_a_turn(&mut self) {
        if !self.is_cut {
            return;
        }
        let least = self.compaction.as_ref().map_or(0, |it| it.place + 1);
        let is_user = |it: &Taken| matches!(it.message, Some(Message::User(_)));
        let oldest = self.taken.iter().rposition(is_user).map_or(0, |it| it + 1);
        if oldest.max(least) > 0 {
            self.taken.truncate(oldest.max(least));
        }
    }
}

/// Whether an entry before the context may still say something.
fn is_noted(kind: &str, text: &[u8]) -> bool {
    let mark = b"\"beige\"";
    let may_have_mark = matches!(kind, "message" | "compaction");
    kind == "model_change" || may_have_mark && text.windows(mark.len()).any(|it| it == mark)
}

/// Version 1 says where the kept entries begin by the number of the line, the
/// header being 0.
fn line_of_index(index: u64) -> Option<String> {
    u32::try_from(index).ok().and_then(|it| it.checked_add(1)).map(id_of_line)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::backwards::LONGEST_LINE;
    use super::*;

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
        let ids: Vec<&str> = scanned.session.ids().collect();
        ids.join(" ")
    }

    #[track_caller]
    fn check(lines: &[&str], want: &str, warnings: usize) {
        let text = lines.iter().map(|it| format!("{it}\n")).collect::<String>();
        let got = scan_text(&text).map(|it| (ids(&it), it.warnings.len()));
        assert_eq!(got, Some((want.into(), warnings)));
    }

    #[test]
    fn half_a_character_of_another_program_costs_no_more_than_itself() {
        let halves = user("b", "a").replace("\"b\"}}", r#""\ud800 x\ude00\ud83d\ude00\xff"}}"#);
        let named = user("c\\ud800", "b");
        let leaf = user("d", "c\\udfff");
        let text = [HEADER, &user("a", ""), &halves, &named, &leaf].join("\n").into_bytes();
        // Bytes that are no UTF-8 are such a half as well.
        let place = text.windows(4).position(|it| it == br"\xff").unwrap_or_default();
        let text = [&text[..place], b"\xff", &text[place + 4..]].concat();
        let scanned = scan(&mut Cursor::new(text)).ok();
        let got = scanned.map(|it| {
            let said = it.session.context().iter().map(said).collect::<Vec<_>>().join("|");
            (ids(&it), said, it.warnings.len())
        });
        let want = ("a b c\u{fffd} d", "a|\u{fffd} x\u{fffd}\u{1f600}\u{fffd}|c\u{fffd}|d", 0);
        assert_eq!(got, Some((want.0.into(), want.1.into(), want.2)));
    }

    fn said(message: &Message) -> String {
        match message {
            Message::User(it) => it.content.text(),
            other => format!("{other:?}"),
        }
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
        // Nothing is looked for before the root.
        check(&["{broken", &a, &b], "a b", 0);
    }

    #[test]
    fn a_parent_that_stands_later_or_is_the_entry_itself_makes_no_circle() {
        check(&[HEADER, &user("a", "b"), &user("b", "a")], "a b", 0);
        check(&[HEADER, &user("a", ""), &user("b", "b")], "a b", 0);
    }

    #[test]
    fn a_branch_that_was_left_is_passed_over_however_long_it_is() {
        let left: Vec<String> = (0..2_000).map(|it| user(&format!("x{it}"), "a")).collect();
        let (a, b) = (user("a", ""), user("b", "a"));
        let mut lines = vec![HEADER, &a];
        lines.extend(left.iter().map(String::as_str));
        lines.push(&b);
        check(&lines, "a b", 0);
    }

    #[test]
    fn entries_without_their_parents_hang_on_the_line_before() {
        let orphans: Vec<String> =
            (0..100).map(|it| user(&format!("o{it}"), &format!("gone{it}"))).collect();
        let mut lines = vec![HEADER];
        lines.extend(orphans.iter().map(String::as_str));
        let want: Vec<String> = (0..100).map(|it| format!("o{it}")).collect();
        check(&lines, &want.join(" "), 0);
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
