//! What can be seen of arguments that are still being written. Pure. Their JSON
//! text is closed where it ends: a string that has begun is shown as far as it
//! goes, a name without its value is not shown. What is no JSON shows nothing.
//! Whoever follows an answer is told all of it with each piece: of a text that
//! has not grown since, the JSON is kept, and what is new is looked through once.

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::message::read_json;

/// Most values that are made of one text.
const MOST_VALUES: usize = 4 * 1024;

/// The arguments of one call as they were shown last.
#[derive(Debug, Default)]
pub(super) struct Shown {
    scan: Scan,
    json: Option<Box<RawValue>>,
}

impl Shown {
    /// The arguments that a text holds so far, as JSON without line ends. It
    /// begins with the text that was shown before, or is a beginning of that.
    pub(super) fn of(&mut self, text: &str) -> &RawValue {
        if text.len() < self.scan.length {
            *self = Self::default();
        }
        if text.len() > self.scan.length {
            text[self.scan.length..].bytes().for_each(|it| self.scan.take(it));
            self.json = None;
        }
        let json = || to_raw_value(&self.scan.arguments(text)).unwrap_or_default();
        self.json.get_or_insert_with(json)
    }
}

/// A text as it is looked through.
#[derive(Debug, Default)]
struct Scan {
    /// Length of what has been looked through.
    length: usize,
    /// How many values it has at most, less one.
    values: usize,
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
#[derive(Clone, Copy, Debug)]
struct Str {
    is_name: bool,
    /// Where its last escape begins, and how many bytes of it are to come.
    escape: Option<(usize, usize)>,
}

impl Scan {
    /// What the text, all of which has been looked through, shows.
    fn arguments(&self, text: &str) -> Map<String, Value> {
        if self.values >= MOST_VALUES {
            return Map::new();
        }
        let shown = |end| read_json(self.closed(text, end).as_bytes()).ok();
        // Half a number or half a word at the end does not read.
        shown(self.end_of(text)).or_else(|| shown(self.sound)).unwrap_or_default()
    }

    fn take(&mut self, byte: u8) {
        let at = self.length;
        self.length += 1;
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
        self.values += usize::from(b"[{,".contains(&byte));
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

    fn read(json: &RawValue) -> Value {
        serde_json::from_str(json.get()).unwrap()
    }

    #[track_caller]
    fn check(text: &str, want: Value) {
        assert_eq!(read(Shown::default().of(text)), want, "{text}");
    }

    #[test]
    fn a_text_that_grows_shows_what_it_shows_at_once() {
        let text = "{\"a\": \"那\\u00e9\", \"b\": [1.5, {\"c\": tru";
        let ends = || (0..=text.len()).filter(|it| text.is_char_boundary(*it));
        for (before, end) in ends().flat_map(|it| ends().map(move |end| (it, end))) {
            let mut shown = Shown::default();
            shown.of(&text[..before]);
            assert_eq!(shown.of(&text[..end]).get(), Shown::default().of(&text[..end]).get());
        }
    }

    #[test]
    fn a_text_that_has_not_grown_is_not_read_again() {
        let mut shown = Shown::default();
        let first = shown.of("{\"a\":\n 1").get().as_ptr();
        let again = shown.of("{\"a\":\n 1").get();
        assert_eq!((again.as_ptr(), again), (first, "{\"a\":1}"));
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
        let fields = |end| read(Shown::default().of(&text[..end])).as_object().map(Map::len);
        let known: Vec<Option<usize>> = ends.map(fields).collect();
        assert!(known.is_sorted(), "what has been seen stays: {known:?}");
        assert_eq!(known.last(), Some(&Some(3)));
    }
}
