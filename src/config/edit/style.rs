//! How a person writes: the ends of lines, indents, quotes and trailing commas
//! of a text, and values written in the same way.

use std::fmt::Write;

use serde_json::Value;

use super::Written;
use super::outline::Object;
use crate::config::position::{Lexer, Token};

/// A value that fits so many columns stands on one line.
const WIDTH: usize = 80;

/// The habits of one text.
#[derive(Debug)]
pub(super) struct Style {
    newline: &'static str,
    /// One step of indent.
    unit: String,
    quote: char,
    /// Whether keys stand without quotes.
    bare_keys: bool,
    /// Whether a comma stands behind the last entry of an object on lines.
    pub(super) trailing_comma: bool,
}

impl Style {
    pub(super) fn of(text: &str, root: &Object) -> Self {
        let first = root.entries.first();
        let quotes = |it| {
            let quoted = |token: &Token<'_>| token.text.starts_with(it);
            Lexer::new(text).filter(quoted).count()
        };
        Self {
            newline: if text.contains("\r\n") { "\r\n" } else { "\n" },
            unit: first.and_then(|it| indent_at(text, it.key.start)).unwrap_or("  ").to_owned(),
            quote: if quotes('\'') > quotes('"') { '\'' } else { '"' },
            bare_keys: first.is_none_or(|it| !text[it.key.clone()].starts_with(['"', '\''])),
            trailing_comma: root.entries.last().is_some_and(|it| it.comma.is_some()),
        }
    }

    /// The beginning of a new line.
    pub(super) fn line(&self, indent: &str) -> String {
        format!("{}{indent}", self.newline)
    }

    /// The indent of what lies one step deeper.
    pub(super) fn deeper(&self, indent: &str) -> String {
        format!("{indent}{}", self.unit)
    }

    /// An entry, on one line without `indent`.
    pub(super) fn entry(&self, name: &str, value: &Written, indent: Option<&str>) -> String {
        let key = self.key(name);
        let value = self.value(value, indent, key.len() + 2);
        format!("{key}: {value}")
    }

    /// A value behind so many columns of its line: on lines of its own where
    /// there is an indent and one line would be long.
    pub(super) fn value(&self, value: &Written, indent: Option<&str>, before: usize) -> String {
        let inline = self.inline(value);
        match indent {
            Some(it) if it.len() + before + inline.chars().count() >= WIDTH => {
                self.on_lines(value, it)
            }
            _ => inline,
        }
    }

    fn on_lines(&self, value: &Written, indent: &str) -> String {
        let deeper = self.deeper(indent);
        let (marks, parts): (_, Vec<String>) = match value {
            Written::Object(fields) if !fields.is_empty() => {
                let entry = |(key, it): &(String, Written)| self.entry(key, it, Some(&deeper));
                (['{', '}'], fields.iter().map(entry).collect())
            }
            Written::Array(items) if !items.is_empty() => {
                (['[', ']'], items.iter().map(|it| self.value(it, Some(&deeper), 0)).collect())
            }
            _ => return self.inline(value),
        };
        let between = format!(",{}", self.line(&deeper));
        let last = if self.trailing_comma { "," } else { "" };
        let (begin, end) = (self.line(&deeper), self.line(indent));
        format!("{}{begin}{}{last}{end}{}", marks[0], parts.join(&between), marks[1])
    }

    fn inline(&self, value: &Written) -> String {
        match value {
            Written::Object(fields) if fields.is_empty() => "{}".into(),
            Written::Object(fields) => {
                let entry = |(key, it): &(String, Written)| {
                    format!("{}: {}", self.key(key), self.inline(it))
                };
                format!("{{ {} }}", fields.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
            Written::Array(items) => {
                let items: Vec<String> = items.iter().map(|it| self.inline(it)).collect();
                format!("[{}]", items.join(", "))
            }
            Written::Scalar(Value::String(text)) => self.quoted(text),
            Written::Scalar(scalar) => scalar.to_string(),
        }
    }

    fn key(&self, name: &str) -> String {
        match self.bare_keys && is_identifier(name) {
            true => name.to_owned(),
            false => self.quoted(name),
        }
    }

    fn quoted(&self, text: &str) -> String {
        let mut quoted = String::from(self.quote);
        for it in text.chars() {
            match it {
                '\\' => quoted.push_str("\\\\"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                it if it == self.quote => quoted.extend(['\\', it]),
                // Ends of lines to some, and marks that turn a line around.
                it if it.is_control() || is_unseen(it) => {
                    let _ = write!(quoted, "\\u{:04x}", u32::from(it));
                }
                it => quoted.push(it),
            }
        }
        quoted.push(self.quote);
        quoted
    }
}

fn is_unseen(it: char) -> bool {
    matches!(it, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The blanks before a place, if nothing else is on its line and there are any.
fn indent_at(text: &str, place: usize) -> Option<&str> {
    let line = text[..place].rsplit(['\n', '\r']).next()?;
    let is_indent = !line.is_empty() && line.chars().all(|it| it == ' ' || it == '\t');
    (is_indent && line.len() < place).then_some(line)
}

fn is_identifier(name: &str) -> bool {
    let may_begin = |it: char| it.is_ascii_alphabetic() || it == '_' || it == '$';
    name.starts_with(may_begin) && name.chars().all(|it| may_begin(it) || it.is_ascii_digit())
}
