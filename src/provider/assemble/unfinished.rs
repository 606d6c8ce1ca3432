//! What can be seen of arguments that are still being written. Pure. Their JSON
//! text is closed where it ends: a string that has begun is shown as far as it
//! goes, a name without its value is not shown. What is no JSON shows nothing.

use serde_json::{Map, Value};

use crate::provider::json;

/// Most values that are made of one text.
const MOST_VALUES: usize = 4 * 1024;

/// The arguments that a text holds so far.
pub(super) fn arguments(text: &str) -> Map<String, Value> {
    let mut scan = Scan::default();
    text.bytes().enumerate().for_each(|(at, byte)| scan.take(at, byte));
    let whole = scan.closed(text, scan.end_of(text));
    // Half a number or half a word at the end does not read.
    object(&whole).or_else(|| object(&scan.closed(text, scan.sound))).unwrap_or_default()
}

fn object(text: &str) -> Option<Map<String, Value>> {
    match json::read(text.as_bytes(), MOST_VALUES) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

/// A text as it is looked through.
#[derive(Default)]
struct Scan {
    /// What closes what is open, the innermost last.
    closers: Vec<u8>,
    /// Length of what is sound once it is closed.
    sound: usize,
    string: Option<Str>,
    /// Whether a string here would be the name of a field.
    is_name_next: bool,
    /// Whether a number or a word is being written.
    in_word: bool,
}

/// A string that has not ended.
#[derive(Clone, Copy)]
struct Str {
    is_name: bool,
    /// Where its last escape begins, and how many bytes of it are to come.
    escape: Option<(usize, usize)>,
}

impl Scan {
    fn take(&mut self, at: usize, byte: u8) {
        match &mut self.string {
            Some(string) => match string.escape {
                Some((begin, 1)) if byte == b'u' && at == begin + 1 => {
                    string.escape = Some((begin, 4));
                }
                Some((_, 1)) => string.escape = None,
                Some((begin, left)) => string.escape = Some((begin, left - 1)),
                None if byte == b'\\' => string.escape = Some((at, 1)),
                None if byte == b'"' => self.end_string(at),
                None => (),
            },
            None => self.take_outside(at, byte),
        }
    }

    fn end_string(&mut self, at: usize) {
        if self.string.take().is_some_and(|it| !it.is_name) {
            self.sound = at + 1;
        }
        self.is_name_next = false;
    }

    fn take_outside(&mut self, at: usize, byte: u8) {
        let is_part_of_word = byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if std::mem::replace(&mut self.in_word, is_part_of_word) && !is_part_of_word {
            self.sound = at;
        }
        match byte {
            b'"' => self.string = Some(Str { is_name: self.is_name_next, escape: None }),
            b'{' | b'[' => {
                self.closers.push(if byte == b'{' { b'}' } else { b']' });
                self.is_name_next = byte == b'{';
                self.sound = at + 1;
            }
            b'}' | b']' => {
                self.closers.pop();
                self.sound = at + 1;
            }
            b',' => self.is_name_next = self.closers.last() == Some(&b'}'),
            b':' => self.is_name_next = false,
            _ => (),
        }
    }

    /// How much of the text can stand: all that is sound, a value that is being
    /// written, and of a string no half escape.
    fn end_of(&self, text: &str) -> usize {
        match self.string {
            Some(Str { is_name: true, .. }) => self.sound,
            Some(Str { escape: Some((begin, _)), .. }) => begin,
            Some(_) => text.len(),
            None if self.in_word => text.len(),
            None => self.sound,
        }
    }

    fn closed(&self, text: &str, end: usize) -> String {
        let mut whole = text[..end].to_owned();
        if end > self.sound && self.string.is_some() {
            whole.push('"');
        }
        whole.extend(self.closers.iter().rev().map(|it| char::from(*it)));
        whole
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, want: Value) {
        assert_eq!(Value::Object(arguments(text)), want, "{text}");
    }

    #[test]
    fn a_value_is_shown_as_far_as_it_goes() {
        check("", json!({}));
        check("{", json!({}));
        check("{\"comm", json!({}));
        check("{\"command\"", json!({}));
        check("{\"command\":", json!({}));
        check("{\"command\": \"", json!({"command": ""}));
        check("{\"command\": \"echo hi", json!({"command": "echo hi"}));
        check("{\"command\": \"echo hi\"", json!({"command": "echo hi"}));
        check("{\"command\": \"echo hi\", \"ti", json!({"command": "echo hi"}));
        check("{\"a\": 1, \"b\": 23", json!({"a": 1, "b": 23}));
        check("{\"a\": 1, \"b\": -", json!({"a": 1}));
        check("{\"a\": 1, \"b\": tru", json!({"a": 1}));
        check("{\"a\": true}", json!({"a": true}));
    }

    #[test]
    fn what_is_open_is_closed() {
        check("{\"a\": [1, {\"b\": [\"x", json!({"a": [1, {"b": ["x"]}]}));
        check("{\"a\": [1, ", json!({"a": [1]}));
        check("{\"a\": {\"b\": {}, \"c\"", json!({"a": {"b": {}}}));
        check("{\"a\": [[]], \"b\": [", json!({"a": [[]], "b": []}));
    }

    #[test]
    fn half_an_escape_is_not_shown() {
        check("{\"a\": \"x\\", json!({"a": "x"}));
        check("{\"a\": \"x\\n", json!({"a": "x\n"}));
        check("{\"a\": \"x\\\\", json!({"a": "x\\"}));
        check("{\"a\": \"x\\u00e", json!({"a": "x"}));
        check("{\"a\": \"x\\u00e9", json!({"a": "xé"}));
        check("{\"a\": \"那\\\"b", json!({"a": "那\"b"}));
    }

    #[test]
    fn what_is_no_object_shows_nothing() {
        for text in ["[1, 2", "\"ls", "12", "nope", "}{", "{\"a\" \"b\"", "]]]", "{\"a\": \"\n"] {
            check(text, json!({}));
        }
        check(&"{\"a\":".repeat(1_000), json!({}));
        check(&format!("{{\"a\": [{}", "1,".repeat(MOST_VALUES)), json!({}));
    }

    #[test]
    fn every_beginning_of_a_text_reads() {
        let text =
            "{\"path\": \"a\\u00e9\\n那\", \"list\": [1.5e3, null, {\"x\": false}], \"y\": {}}";
        let ends = (0..=text.len()).filter(|it| text.is_char_boundary(*it));
        let known: Vec<usize> = ends.map(|end| arguments(&text[..end]).len()).collect();
        assert!(known.is_sorted(), "what has been seen stays: {known:?}");
        assert_eq!(known.last(), Some(&3));
    }
}
