//! Changes of a configuration's text that keep what a person wrote: comments,
//! blank lines, quotes, indents, trailing commas, ends of lines. An entry of an
//! object is set or removed; everything outside of that place stays byte for
//! byte. The new text is parsed again and must mean the old one with that one
//! change, or the change is refused. Pure: `amend` reads and writes the file.

mod outline;
mod style;

use std::ops::Range;
use std::path::{Path, PathBuf};

use json5::char::{is_json5_line_terminator, is_json5_whitespace};
use serde_json::{Map, Value};

use crate::config::key_path::KeyPath;
use crate::config::position::Places;
use crate::config::source::{LARGEST_CONFIG, parse};
use crate::error::{Error, Kind, Result};
use outline::{Entry, Object};
use style::Style;

/// A configuration's text under change, and what it means. References in it
/// (`${…}`) are as they are written.
#[derive(Clone, Debug)]
pub struct Draft {
    file: PathBuf,
    text: String,
    value: Value,
}

/// What is written for a value: fields in an order of one's own, which a
/// [`Value`] does not keep.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// An object.
    Object(Vec<(String, Written)>),
    /// An array.
    Array(Vec<Written>),
    /// Text, number, truth or null.
    Scalar(Value),
}

/// What stands instead of a range of the text.
type Edit = (Range<usize>, String);

impl Draft {
    /// Takes a text without byte order mark; `file` is only named. What is not
    /// JSON5, or gives a key twice, is an error ([`Kind::Config`]).
    pub fn new(file: &Path, text: &str) -> Result<Self> {
        let value = parse(file, text)?;
        if let Some(twice) = Places::read(text).duplicates.first() {
            let what =
                format!("{}: {twice} is given twice; remove one of the two first", file.display());
            return Err(Error::new(Kind::Config, what));
        }
        Ok(Self { file: file.to_owned(), text: text.to_owned(), value })
    }

    /// The text as it is now.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it means, but for the references in it.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Sets the entry at that path, which leads through objects only; those
    /// that are missing are made. An error leaves the draft as it was.
    pub fn set(&mut self, path: &[&str], value: impl Into<Written>) -> Result<()> {
        let value = value.into();
        let mut wanted = self.value.clone();
        put(&mut wanted, path, value.to_value());
        self.change(path, wanted, |it| it.set(path, value))
    }

    /// Removes the entry at that path; whether there was one. Comments around
    /// it stay.
    pub fn remove(&mut self, path: &[&str]) -> Result<bool> {
        let mut wanted = self.value.clone();
        if !take(&mut wanted, path) {
            return Ok(false);
        }
        self.change(path, wanted, |it| it.remove(path)).map(|()| true)
    }

    fn change(
        &mut self,
        path: &[&str],
        wanted: Value,
        edits: impl FnOnce(&Editor<'_>) -> Option<Vec<Edit>>,
    ) -> Result<()> {
        let text = Editor::of(&self.text)
            .and_then(|it| edits(&it))
            .and_then(|edits| applied(&self.text, edits))
            .filter(|text| text.len() <= LARGEST_CONFIG)
            .filter(|text| parse(&self.file, text).is_ok_and(|it| is_same(&it, &wanted)))
            .ok_or_else(|| self.refusal(path))?;
        (self.text, self.value) = (text, wanted);
        Ok(())
    }

    fn refusal(&self, path: &[&str]) -> Error {
        let path = path.iter().fold(KeyPath::default(), |path, key| path.key(key));
        let what = format!(
            "{}: {path} cannot be changed without touching what lies around it; change it by hand",
            self.file.display()
        );
        Error::new(Kind::Config, what)
    }
}

impl Written {
    /// The same without the order of fields.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Object(fields) => {
                fields.iter().map(|(key, it)| (key.clone(), it.to_value())).collect()
            }
            Self::Array(items) => items.iter().map(Self::to_value).collect(),
            Self::Scalar(value) => value.clone(),
        }
    }
}

impl From<Value> for Written {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(fields) => {
                Self::Object(fields.into_iter().map(|(key, it)| (key, it.into())).collect())
            }
            Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            scalar => Self::Scalar(scalar),
        }
    }
}

/// A text, where its entries stand, and how it is written.
struct Editor<'a> {
    text: &'a str,
    root: Object,
    style: Style,
}

impl<'a> Editor<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let root = Object::read(text)?;
        let style = Style::of(text, &root);
        Some(Self { text, root, style })
    }

    /// `None` where an entry on the way is no object.
    fn set(&self, path: &[&str], value: Written) -> Option<Vec<Edit>> {
        let (name, above) = path.split_last()?;
        let mut object = &self.root;
        for (depth, step) in above.iter().enumerate() {
            match object.find(step) {
                Some(entry) => object = entry.inner.as_ref()?,
                None => {
                    let nest = |inner, key: &&str| Written::Object(vec![((*key).into(), inner)]);
                    let nested = path[depth + 1..].iter().rev().fold(value, nest);
                    return Some(self.insert(object, step, &nested));
                }
            }
        }
        match object.find(name) {
            Some(entry) => Some(vec![self.replace(object, entry, &value)]),
            None => Some(self.insert(object, name, &value)),
        }
    }

    fn replace(&self, object: &Object, entry: &Entry, value: &Written) -> Edit {
        let indent = self.line_indent(entry.key.start);
        let indent = self.is_on_lines(object).then_some(indent);
        (entry.value.clone(), self.style.value(value, indent, entry.name.len() + 2))
    }

    fn insert(&self, into: &Object, name: &str, value: &Written) -> Vec<Edit> {
        match into.entries.last() {
            Some(last) => self.insert_behind(into, last, name, value),
            None => vec![self.insert_first(into, name, value)],
        }
    }

    /// Behind the last entry and what is said of it on its line; with a comma
    /// at its end if the last one had one.
    fn insert_behind(&self, into: &Object, last: &Entry, name: &str, value: &Written) -> Vec<Edit> {
        let is_on_lines = self.is_on_lines(into);
        let indent = self.entry_indent(into);
        let mut entry = self.style.entry(name, value, is_on_lines.then_some(&*indent));
        let mut edits = Vec::new();
        let end = match last.comma {
            Some(comma) => {
                entry.push(',');
                comma + 1
            }
            None => {
                edits.push((last.value.end..last.value.end, ",".to_owned()));
                last.value.end
            }
        };
        let at = self.end_of_remarks(end);
        let lead = if is_on_lines { self.style.line(&indent) } else { " ".into() };
        edits.push((at..at, lead + &entry));
        edits
    }

    /// Into an object without entries, behind the comments in it.
    fn insert_first(&self, into: &Object, name: &str, value: &Written) -> Edit {
        let inside = &self.text[into.open + 1..into.close];
        let at = into.open + 1 + inside.trim_end_matches(is_json5_whitespace).len();
        let ends_line = self.text[at..into.close].contains(is_json5_line_terminator);
        if !ends_line && !self.is_on_lines(&self.root) {
            return (at..into.close, format!(" {} ", self.style.entry(name, value, None)));
        }
        let base = self.line_indent(into.open);
        let indent = self.comment_indent(into, at).unwrap_or_else(|| self.style.deeper(base));
        let comma = if self.style.trailing_comma { "," } else { "" };
        let entry = self.style.entry(name, value, Some(&indent));
        let written = format!("{}{entry}{comma}", self.style.line(&indent));
        match ends_line {
            true => (at..at, written),
            false => (at..into.close, written + &self.style.line(base)),
        }
    }

    /// `None` where there is no such entry.
    fn remove(&self, path: &[&str]) -> Option<Vec<Edit>> {
        let (name, above) = path.split_last()?;
        let object = above.iter().try_fold(&self.root, |it, step| it.find(step)?.inner.as_ref())?;
        let place = object.entries.iter().position(|it| it.name == *name)?;
        let entry = &object.entries[place];
        let says_nothing_else = self.gaps(object).iter().all(|it| is_white_or_comma(it));
        if object.entries.len() == 1 && says_nothing_else {
            return Some(vec![(object.open..object.close + 1, "{}".into())]);
        }
        let mut edits = Vec::new();
        let before = place.checked_sub(1).map(|it| &object.entries[it]);
        let is_last = place + 1 == object.entries.len();
        if let (Some(comma), true, None) = (before.and_then(|it| it.comma), is_last, entry.comma) {
            edits.push((comma..comma + 1, String::new()));
        }
        edits.extend(self.without(entry));
        Some(edits)
    }

    /// The entry and its comma taken out: with its lines if nothing else is on
    /// them, else with the blanks that parted it from what stays.
    fn without(&self, entry: &Entry) -> Vec<Edit> {
        let (mut start, mut end) = (entry.key.start, entry.value.end);
        let mut edits = Vec::new();
        match entry.comma {
            Some(comma) if is_white(&self.text[end..comma]) => end = comma + 1,
            Some(comma) => edits.push((comma..comma + 1, String::new())),
            None => {}
        }
        let line = start - self.line_before(start).len();
        let rest = &self.text[end..];
        let rest = &rest[..rest.find(is_json5_line_terminator).unwrap_or(rest.len())];
        let begins_line = is_white(self.line_before(start));
        if begins_line && is_white(rest) {
            (start, end) = (line, end + rest.len());
            end += line_end_length(&self.text[end..]);
        } else if begins_line || entry.comma.is_some() {
            end += rest.len() - rest.trim_start_matches(is_json5_whitespace).len();
        } else {
            let before = self.line_before(start);
            start -= before.len() - before.trim_end_matches(is_json5_whitespace).len();
        }
        edits.insert(0, (start..end, String::new()));
        edits
    }

    /// What of an object is neither key nor value: blanks, comments, commas.
    fn gaps(&self, object: &Object) -> Vec<&'a str> {
        let mut from = object.open + 1;
        let mut gaps = Vec::new();
        for entry in &object.entries {
            gaps.push(&self.text[from..entry.key.start]);
            from = entry.value.end;
        }
        gaps.push(&self.text[from..object.close]);
        gaps
    }

    /// Whether its entries stand on lines of their own.
    fn is_on_lines(&self, object: &Object) -> bool {
        self.gaps(object).iter().any(|it| it.contains(is_json5_line_terminator))
    }

    /// The blanks before an entry of an object that is on lines.
    fn entry_indent(&self, object: &Object) -> String {
        let mut starts = object.entries.iter().rev().map(|it| self.line_before(it.key.start));
        match starts.find(|it| is_white(it)) {
            Some(indent) => indent.to_owned(),
            None => self.style.deeper(self.line_indent(object.open)),
        }
    }

    /// The blanks before the comment that ends there, if it has a line of its
    /// own within the object.
    fn comment_indent(&self, object: &Object, end: usize) -> Option<String> {
        let line = self.line_before(end);
        let is_within = end - line.len() > object.open;
        let indent = self.line_indent(end);
        (is_within && line[indent.len()..].starts_with("//")).then(|| indent.to_owned())
    }

    /// The end of the comments that follow on the same line; the place itself
    /// if there are none.
    fn end_of_remarks(&self, from: usize) -> usize {
        let mut end = from;
        loop {
            let rest = &self.text[end..];
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            let rest = &rest[blanks..];
            let length = if rest.starts_with("//") {
                rest.find(is_json5_line_terminator).unwrap_or(rest.len())
            } else if let Some(body) = rest.strip_prefix("/*") {
                body.find("*/").map_or(rest.len(), |it| it + 4)
            } else {
                return end;
            };
            end += blanks + length;
        }
    }

    /// The line of a place up to it.
    fn line_before(&self, place: usize) -> &'a str {
        let before = &self.text[..place];
        let start = before.char_indices().rev().find(|(_, it)| is_json5_line_terminator(*it));
        &before[start.map_or(0, |(at, it)| at + it.len_utf8())..]
    }

    /// The blanks that the line of a place begins with.
    fn line_indent(&self, place: usize) -> &'a str {
        let line = self.line_before(place);
        &line[..line.len() - line.trim_start_matches(is_json5_whitespace).len()]
    }
}

/// `None` where two edits are in each other's way.
fn applied(text: &str, mut edits: Vec<Edit>) -> Option<String> {
    // A stable sort: what is written to one place keeps its order.
    edits.sort_by_key(|(range, _)| range.start);
    let (mut new, mut from) = (String::with_capacity(text.len()), 0);
    for (range, written) in edits {
        new.push_str(text.get(from..range.start)?);
        new.push_str(&written);
        from = range.end;
    }
    text.get(from..).map(|rest| new + rest)
}

fn is_white(text: &str) -> bool {
    text.chars().all(is_json5_whitespace)
}

fn is_white_or_comma(text: &str) -> bool {
    text.chars().all(|it| it == ',' || is_json5_whitespace(it))
}

/// Of the end of a line that a text begins with; CR LF is one.
fn line_end_length(text: &str) -> usize {
    match text.strip_prefix("\r\n") {
        Some(_) => 2,
        None => {
            text.chars().next().filter(|it| is_json5_line_terminator(*it)).map_or(0, char::len_utf8)
        }
    }
}

/// Puts a value at a path and makes what is missing above it; what is in the
/// way stays, and the editor refuses it.
fn put(into: &mut Value, path: &[&str], value: Value) {
    let Some((name, rest)) = path.split_first() else { return };
    let Some(object) = into.as_object_mut() else { return };
    if rest.is_empty() {
        object.insert((*name).to_owned(), value);
    } else {
        put(object.entry(*name).or_insert_with(|| Map::new().into()), rest, value);
    }
}

fn take(from: &mut Value, path: &[&str]) -> bool {
    let Some((name, above)) = path.split_last() else { return false };
    let object = above.iter().try_fold(from, |it, step| it.get_mut(step));
    object.and_then(Value::as_object_mut).and_then(|it| it.remove(*name)).is_some()
}

/// Whether two values are the same, `1` and `1.0` taken for one number.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || (one.as_f64() == other.as_f64() && one.as_f64().is_some())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, it)| other.get(key).is_some_and(|other| is_same(it, other)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
