//! The path of a session from its leaf to its root: each entry is looked for
//! before the one that hangs on it, so that no more of the file is read than
//! is asked for, and nothing but one line is held. A damaged line is passed
//! over; its children hang on its nearest sound ancestor.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use serde::Deserialize;

use super::backwards::{Backwards, Place};
use super::entry::{Header, LONGEST_HEADER};
use crate::message::{mended, read_json};

/// Warnings kept of one file; further ones are only counted.
const MOST_WARNINGS: usize = 5;

/// Parents that are looked for up to the start of the file and not found.
/// After so many each entry is taken to hang on the line before it, so that a
/// file full of such does not cost the square of its length.
const MOST_SEARCHES: u32 = 8;

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

/// An entry on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Its id, or one made of its line's number.
    pub(super) id: String,
    /// Its type, as written.
    pub(super) kind: String,
    /// Its line.
    pub(super) place: Place,
    /// Number of its line, the header being 1; only known where a file of
    /// version 1 must be read by it.
    pub(super) number: Option<u32>,
}

/// The way from the leaf to the root.
pub(super) struct Walk<'a, F> {
    lines: Backwards<'a, F>,
    wanted: Wanted,
    /// Number of the line that comes next, where it is known.
    number: Option<u32>,
    /// Where the last step's line begins, and its number.
    after: (u64, Option<u32>),
    searches: u32,
    end: Option<FileEnd>,
    damaged: Damaged,
}

/// Which line is looked for.
enum Wanted {
    /// The last sound one.
    Leaf,
    /// The entry of that id.
    Entry(String),
    /// The sound one before.
    Previous,
    /// None: the root has been given.
    Nothing,
}

/// Lines that do not read.
#[derive(Default)]
struct Damaged {
    count: u64,
    warnings: Vec<String>,
    /// What lies behind here was counted.
    down_to: Option<u64>,
}

/// The part of a line that makes the tree.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Peek<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    parent_id: Option<Cow<'a, str>>,
}

impl<'a> Peek<'a> {
    /// What a line says of the tree; `whole` holds it, if it had to be mended.
    fn at(text: &'a [u8], whole: &'a mut String) -> Option<Self> {
        serde_json::from_slice(text).ok().or_else(|| {
            *whole = mended(text);
            serde_json::from_str(whole).ok()
        })
    }
}

/// The header of a session file, if its first line is one.
pub(super) fn header<F: Read + Seek>(file: &mut F) -> io::Result<Option<Header>> {
    file.seek(SeekFrom::Start(0))?;
    let mut line = Vec::new();
    BufReader::new(file.take(LONGEST_HEADER)).read_until(b'\n', &mut line)?;
    Ok(read_json(line.trim_ascii()).ok())
}

impl<'a, F: Read + Seek> Walk<'a, F> {
    /// Begins at the leaf of a file with that header.
    pub(super) fn new(file: &'a mut F, header: Option<&Header>) -> io::Result<Self> {
        // Version 1 knows its entries by their number.
        let is_numbered = header.is_none_or(|it| it.version < 2);
        let number = if is_numbered { Some(count_lines(file)?) } else { None };
        let lines = Backwards::new(file)?;
        Ok(Self {
            lines,
            wanted: Wanted::Leaf,
            number,
            after: (0, None),
            searches: 0,
            end: None,
            damaged: Damaged::default(),
        })
    }

    /// The next entry towards the root, and its line.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Step>> {
        while !matches!(self.wanted, Wanted::Nothing) {
            let Some(place) = self.lines.previous(line)? else {
                if self.is_in_vain() {
                    continue;
                }
                return Ok(None);
            };
            let number = self.number;
            self.number = number.map(|it| it.saturating_sub(1));
            if let Some(step) = self.take(line.trim_ascii(), place, number) {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    /// How the file ends; known once a step was asked for.
    pub(super) fn end(&self) -> FileEnd {
        self.end.unwrap_or_default()
    }

    /// What did not read, in sentences.
    pub(super) fn warnings(self) -> Vec<String> {
        let Damaged { count, mut warnings, .. } = self.damaged;
        if count > MOST_WARNINGS as u64 {
            warnings.push(format!("{count} lines do not read in all"));
        }
        warnings
    }

    /// One line: the step that it is, if it is the one that is looked for.
    fn take(&mut self, text: &[u8], place: Place, number: Option<u32>) -> Option<Step> {
        if text.is_empty() && place.ended && place.fits {
            return None;
        }
        let mut whole = String::new();
        let peek = Peek::at(text, &mut whole);
        self.note_end(place, peek.is_some());
        let Some(peek) = peek else {
            self.pass_damaged(text, place);
            return None;
        };
        let id = peek.id.as_deref().map_or_else(|| id_of(number, place), str::to_owned);
        if peek.kind == "session" || !self.wanted.is(&id) {
            return None;
        }
        self.after = (place.start, number.map(|it| it.saturating_sub(1)));
        self.wanted = match (&peek.id, peek.parent_id) {
            (None, _) => Wanted::Previous,
            (Some(_), None) => Wanted::Nothing,
            (Some(_), Some(_)) if self.searches >= MOST_SEARCHES => Wanted::Previous,
            (Some(_), Some(parent)) => Wanted::Entry(parent.into_owned()),
        };
        Some(Step { id, kind: peek.kind.into_owned(), place, number })
    }

    fn note_end(&mut self, place: Place, is_sound: bool) {
        if self.end.is_none() {
            self.end = Some(match (place.ended, is_sound) {
                (true, _) => FileEnd::Whole,
                (false, true) => FileEnd::Unended,
                (false, false) => FileEnd::Torn(place.start),
            });
        }
    }

    /// The children of a damaged line hang on its parent, if the line still
    /// says who it is and what it hung on.
    fn pass_damaged(&mut self, text: &[u8], place: Place) {
        if !place.ended {
            return; // The torn end is told of on its own.
        }
        self.damaged.count(place.start);
        let Wanted::Entry(wanted) = &self.wanted else { return };
        let start = &text[..text.len().min(512)];
        if text_field(start, "id") == Some(wanted.as_str())
            && let Some(parent) = text_field(start, "parentId")
        {
            self.wanted = Wanted::Entry(parent.to_owned());
        }
    }

    /// At the start of the file: what hangs on an entry that is not there
    /// hangs on the sound line before it. False if there is nothing more.
    fn is_in_vain(&mut self) -> bool {
        if !matches!(self.wanted, Wanted::Entry(_)) {
            return false;
        }
        self.searches += 1;
        self.wanted = Wanted::Previous;
        self.lines.go_to(self.after.0);
        self.number = self.after.1;
        true
    }
}

impl Wanted {
    fn is(&self, id: &str) -> bool {
        match self {
            Self::Leaf | Self::Previous => true,
            Self::Entry(wanted) => wanted == id,
            Self::Nothing => false,
        }
    }
}

impl Damaged {
    fn count(&mut self, start: u64) {
        if self.down_to.is_some_and(|it| it <= start) {
            return;
        }
        self.down_to = Some(start);
        self.count += 1;
        if self.warnings.len() < MOST_WARNINGS {
            self.warnings.push(format!("the line at byte {start} does not read and is skipped"));
        }
    }
}

/// The id of a line of version 1, by its number.
pub(super) fn id_of_line(number: u32) -> String {
    format!("{number:08x}")
}

/// The id of a line that says none.
pub(super) fn id_of(number: Option<u32>, place: Place) -> String {
    number.map_or_else(|| format!("{:08x}", place.start), id_of_line)
}

/// Number of lines, one without newline included.
fn count_lines(file: &mut (impl Read + Seek)) -> io::Result<u32> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let mut lines = 0_u32;
    while reader.skip_until(b'\n')? > 0 {
        lines = lines.saturating_add(1);
    }
    Ok(lines)
}

/// The text of a field in a piece of JSON that may not be whole, up to the
/// next quote: for ids and words, which hold no escapes.
pub(super) fn text_field<'a>(json: &'a [u8], name: &str) -> Option<&'a str> {
    let rest = text_start(json, name)?;
    let length = rest.iter().position(|&it| it == b'"')?;
    std::str::from_utf8(&rest[..length]).ok()
}

/// What follows the first quote of a text field's value.
pub(super) fn text_start<'a>(json: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let quoted = format!("\"{name}\"");
    let places = json.windows(quoted.len()).enumerate();
    let mut found = places.filter(|(_, it)| *it == quoted.as_bytes()).map(|(place, _)| place);
    found.find_map(|place| {
        let rest = json[place + quoted.len()..].trim_ascii_start().strip_prefix(b":")?;
        rest.trim_ascii_start().strip_prefix(b"\"")
    })
}
