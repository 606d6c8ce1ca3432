//! Where things stand in a JSON5 text: one lexer, used to measure nesting
//! before the text is parsed (the parser has no limit of its own and would
//! overflow the stack), to find keys that are given twice (the parser lets the
//! last one win in silence), and to find the position of a key path.
//!
//! It does not judge the text; the `json5` crate does. Up to the first fault
//! that the crate would report, both read the same brackets.

use std::collections::{BTreeMap, BTreeSet};

use json5::char::{is_json5_line_terminator, is_json5_whitespace};
use serde::de::IgnoredAny;

use crate::config::key_path::{KeyPath, Position, Step};

/// The offset of every value of a text.
#[derive(Debug, Default)]
pub(crate) struct Places<'a> {
    text: &'a str,
    root: Place,
    /// Keys that their object already had, in the order of the text.
    pub(crate) duplicates: Vec<KeyPath>,
}

/// One value: where its entry begins and what lies in it.
#[derive(Debug, Default)]
struct Place {
    offset: usize,
    inner: Vec<(Step, Place)>,
}

impl<'a> Places<'a> {
    /// Reads the places of a text that is known to be JSON5 and not nested
    /// deeper than the stack allows ([`too_deep`]).
    pub(crate) fn read(text: &'a str) -> Self {
        let mut reader = Reader { lexer: Lexer::new(text), duplicates: Vec::new() };
        let root = reader.value(&KeyPath::default()).unwrap_or_default();
        Self { text, root, duplicates: reader.duplicates }
    }

    /// Where a value's entry begins, in bytes; for one that is not in the text,
    /// the nearest object or array that should hold it.
    pub(crate) fn offset(&self, path: &KeyPath) -> usize {
        let (mut place, rest) = (&self.root, path.steps());
        for step in rest {
            match place.find(step) {
                Some(inner) => place = inner,
                None => break,
            }
        }
        place.offset
    }

    /// The keys of an object in the order of the text.
    pub(crate) fn keys(&self, path: &KeyPath) -> Vec<&str> {
        let place = path.steps().iter().try_fold(&self.root, |place, step| place.find(step));
        let steps = place.map(|it| it.inner.as_slice()).unwrap_or_default();
        steps
            .iter()
            .filter_map(|(step, _)| match step {
                Step::Key(key) => Some(&**key),
                Step::Index(_) => None,
            })
            .collect()
    }

    /// Lines and columns of several offsets, in one pass over the text.
    pub(crate) fn positions(&self, offsets: &[usize]) -> Vec<Position> {
        let mut order: Vec<usize> = (0..offsets.len()).collect();
        order.sort_by_key(|it| offsets[*it]);
        let mut positions = vec![Position { line: 1, column: 1 }; offsets.len()];
        let mut cursor = Cursor::new(self.text);
        for it in order {
            positions[it] = cursor.advance_to(offsets[it]);
        }
        positions
    }
}

impl Place {
    /// What lies one step further; of a key given twice the last, which wins.
    fn find(&self, step: &Step) -> Option<&Place> {
        self.inner.iter().rev().find(|(it, _)| it == step).map(|(_, place)| place)
    }
}

/// The position of one offset of a text.
pub(crate) fn position_of(text: &str, offset: usize) -> Position {
    Cursor::new(text).advance_to(offset)
}

/// The offset of the first bracket that is nested deeper than `limit`.
/// Brackets in strings and comments do not count; the text may be anything.
pub(crate) fn too_deep(text: &str, limit: usize) -> Option<usize> {
    let mut depth: usize = 0;
    for token in Lexer::new(text) {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limit {
            return Some(token.start);
        }
    }
    None
}

/// Whether a text holds nothing but blanks and comments.
pub(crate) fn is_blank(text: &str) -> bool {
    Lexer::new(text).next().is_none()
}

/// Builds the tree of places. Stops quietly at anything it does not expect.
struct Reader<'a> {
    lexer: Lexer<'a>,
    duplicates: Vec<KeyPath>,
}

impl Reader<'_> {
    fn value(&mut self, path: &KeyPath) -> Option<Place> {
        let token = self.lexer.next()?;
        let inner = match token.text {
            "{" => self.object(path),
            "[" => self.array(path),
            _ => Vec::new(),
        };
        Some(Place { offset: token.start, inner })
    }

    fn object(&mut self, path: &KeyPath) -> Vec<(Step, Place)> {
        let mut seen = BTreeSet::new();
        let mut inner = Vec::new();
        while let Some(token) = self.lexer.next() {
            match token.kind {
                TokenKind::Close => break,
                TokenKind::Comma => continue,
                _ => {}
            }
            let Some(key) = decode_key(token.text) else { break };
            let path = path.key(&key);
            if !seen.insert(key.clone()) {
                self.duplicates.push(path.clone());
            }
            self.lexer.next(); // The colon.
            let Some(value) = self.value(&path) else { break };
            inner.push((Step::Key(key.into()), Place { offset: token.start, inner: value.inner }));
        }
        inner
    }

    fn array(&mut self, path: &KeyPath) -> Vec<(Step, Place)> {
        let mut inner = Vec::new();
        while let Some(token) = self.lexer.peek() {
            match token.kind {
                TokenKind::Close | TokenKind::Comma => {
                    self.lexer.next();
                }
                _ => {
                    let index = inner.len();
                    let Some(value) = self.value(&path.index(index)) else { break };
                    inner.push((Step::Index(index), value));
                }
            }
            if token.kind == TokenKind::Close {
                break;
            }
        }
        inner
    }
}

/// A key as the parser reads it: the parser itself is asked, so that the two
/// never differ about an escape.
pub(crate) fn decode_key(token: &str) -> Option<String> {
    let object: BTreeMap<String, IgnoredAny> = json5::from_str(&format!("{{{token}:0}}")).ok()?;
    object.into_keys().next()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Open,
    Close,
    Colon,
    Comma,
    Quoted,
    Word,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) text: &'a str,
}

/// Splits any text into tokens; never fails, and each token has a character.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, offset: 0 }
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.clone().next()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let after = rest.trim_start_matches(is_json5_whitespace);
            self.offset += rest.len() - after.len();
            let comment = if after.starts_with("//") {
                after.find(is_json5_line_terminator).unwrap_or(after.len())
            } else if let Some(body) = after.strip_prefix("/*") {
                body.find("*/").map_or(after.len(), |end| end + 4)
            } else {
                return;
            };
            self.offset += comment;
        }
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip_blanks();
        let (start, rest) = (self.offset, self.rest());
        let first = rest.chars().next()?;
        let (kind, length) = match first {
            '{' | '[' => (TokenKind::Open, 1),
            '}' | ']' => (TokenKind::Close, 1),
            ':' => (TokenKind::Colon, 1),
            ',' => (TokenKind::Comma, 1),
            '"' | '\'' => (TokenKind::Quoted, quoted_length(rest, first)),
            _ => (TokenKind::Word, word_length(rest)),
        };
        self.offset += length;
        Some(Token { kind, start, text: rest.get(..length).unwrap_or(rest) })
    }
}

/// Length of a string with its quotes; to the end if it is not closed.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (offset, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return offset + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Length of a name, number or anything else up to the next mark.
fn word_length(rest: &str) -> usize {
    let ends = |it: char| is_json5_whitespace(it) || "{}[]:,\"'/".contains(it);
    let first = rest.chars().next().map_or(0, char::len_utf8);
    rest.get(first..).and_then(|it| it.find(ends)).map_or(rest.len(), |it| it + first)
}

/// Counts lines and columns while it walks forward through a text.
struct Cursor<'a> {
    rest: std::iter::Peekable<std::str::CharIndices<'a>>,
    position: Position,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.char_indices().peekable(), position: Position { line: 1, column: 1 } }
    }

    fn advance_to(&mut self, offset: usize) -> Position {
        while let Some((_, character)) = self.rest.next_if(|(it, _)| *it < offset) {
            // CR LF is one end of a line, counted at the LF.
            let pair = character == '\r' && self.rest.peek().is_some_and(|it| it.1 == '\n');
            if pair {
                continue;
            }
            if is_json5_line_terminator(character) {
                self.position = Position { line: self.position.line + 1, column: 1 };
            } else {
                self.position.column += 1;
            }
        }
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_position(text: &str, path: &KeyPath, line: usize, column: usize) {
        let places = Places::read(text);
        let offset = places.offset(path);
        assert_eq!(places.positions(&[offset]), [Position { line, column }]);
    }

    #[test]
    fn a_key_path_has_a_position() {
        let text = "// {[\n{ a: 1,\r\n  'b\\u0063': [ {}, /* ] */ {\"é\": '}', d: -0x1F} ], }";
        check_position(text, &KeyPath::default(), 2, 1);
        check_position(text, &KeyPath::from(["a"]), 2, 3);
        check_position(text, &KeyPath::from(["bc"]), 3, 3);
        check_position(text, &KeyPath::from(["bc"]).index(1), 3, 28);
        check_position(text, &KeyPath::from(["bc"]).index(1).key("d"), 3, 39);
    }

    #[test]
    fn what_is_not_in_the_text_has_the_position_of_what_should_hold_it() {
        check_position("{\n a: {} }", &KeyPath::from(["a", "b", "c"]), 2, 2);
    }

    #[test]
    fn keys_given_twice_are_found_at_any_depth() {
        let places = Places::read("{a: 1, 'a': 2, b: [{c: 1, d: 2, \"\\x63\": 3}]}");
        let inner = KeyPath::from(["b"]).index(0).key("c");
        assert_eq!(places.duplicates, [KeyPath::from(["a"]), inner]);
        assert_eq!(places.keys(&KeyPath::from(["b"]).index(0)), ["c", "d", "c"]);
    }

    #[track_caller]
    fn check_depth(text: &str, limit: usize, expected: Option<usize>) {
        assert_eq!(too_deep(text, limit), expected);
    }

    #[test]
    fn nesting_is_measured_outside_strings_and_comments() {
        check_depth("[[[]]]", 3, None);
        check_depth("[[[]]]", 2, Some(2));
        check_depth("[[],[],{}]", 2, None);
        check_depth("['[[[', \"\\\"[[[\", /*[[[*/ //[[[\n 1]", 1, None);
        check_depth("//\u{2028}[[", 1, Some(6));
        check_depth("]]]][[", 1, Some(5));
        check_depth("'[[[", 1, None);
        check_depth("/*[[[", 1, None);
    }

    #[test]
    fn every_bracket_kind_in_any_number_is_measured_without_recursion() {
        for bracket in ["[", "{", "{a:", "[{", "]", "}", "[/*", "//[\n[", "('"] {
            let text = bracket.repeat(200_000);
            let opens = bracket.contains(['[', '{']) && !bracket.contains("/*");
            assert_eq!(too_deep(&text, 64).is_some(), opens, "{bracket}");
        }
    }
}
