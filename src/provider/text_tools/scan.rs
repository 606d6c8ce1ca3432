//! Finds the blocks of calls in text that comes piece by piece. Pure. An object
//! in a block is followed to its own end, so that a marker inside its strings
//! is no marker. What a block holds is judged elsewhere.

use super::code::Code;
use super::{CLOSING, OPENING};

/// Most white space between a marker within a line and its object, in bytes.
const WIDEST_GAP: usize = 1_024;

/// A piece of an answer's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text for a person.
    Text(String),
    /// What stands between two markers.
    Call(String),
}

/// The text of one answer on its way.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    code: Code,
    /// The block that has begun.
    block: Option<Block>,
    /// What cannot be told yet: the start of a marker, or of a block.
    held: String,
    /// White space that belongs to what follows it; none does before a block.
    blank: String,
    /// Whether the last piece was a call.
    is_after_call: bool,
    /// All of the text is there.
    has_ended: bool,
    /// An object did not end: from here on a marker ends a block wherever it
    /// stands.
    is_lax: bool,
}

/// How far a block has been read.
#[derive(Debug, Default)]
struct Block {
    read: usize,
    form: Form,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

/// What a block holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    /// White space so far.
    #[default]
    Blank,
    /// An object that has not ended.
    Object,
    /// An object, up to there.
    Whole(usize),
    /// Something else.
    Other,
}

/// How much was consumed, and whether to look on.
type Step = (usize, bool);

impl Scanner {
    /// Adds what this piece of text makes certain.
    pub(super) fn feed(&mut self, more: &str, pieces: &mut Vec<Piece>) {
        let mut held = std::mem::take(&mut self.held);
        held.push_str(more);
        let mut at = 0;
        loop {
            let (consumed, goes_on) = match self.block.take() {
                Some(block) => self.step_block(block, &held[at..], pieces),
                None => self.step_text(&held[at..], pieces),
            };
            at += consumed;
            if !goes_on {
                break;
            }
        }
        held.drain(..at);
        self.held = held;
    }

    /// The text has ended; `at_limit` where the model had no room for more, so
    /// that the start of a marker would have become one.
    pub(super) fn end(&mut self, at_limit: bool, pieces: &mut Vec<Piece>) {
        self.has_ended = true;
        self.feed("", pieces);
        while let Some(block) = self.block.take() {
            self.end_open(block, pieces);
            self.feed("", pieces);
        }
        let held = std::mem::take(&mut self.held);
        if at_limit && held.len() > 1 {
            self.call(held, pieces);
        } else {
            self.say(&held, pieces);
        }
        let blank = std::mem::take(&mut self.blank);
        if !self.is_after_call && !blank.is_empty() {
            pieces.push(Piece::Text(blank));
        }
    }

    /// The text broke off: what was held of it, if that is text.
    pub(super) fn cut(&mut self) -> Option<String> {
        let held = std::mem::take(&mut self.held);
        let text = std::mem::take(&mut self.blank) + &held;
        (self.block.is_none() && !text.is_empty()).then_some(text)
    }

    /// Reads prose up to a block, or to what could become one.
    fn step_text(&mut self, text: &str, pieces: &mut Vec<Piece>) -> Step {
        for (at, it) in text.char_indices() {
            if it == '<' && !self.code.is_code() {
                let marked = self.marked(&text[at..]);
                if marked != Some(false) {
                    self.say(&text[..at], pieces);
                }
                match marked {
                    Some(true) => return (at + self.begin(), true),
                    None => return (at, false),
                    Some(false) => (),
                }
            }
            self.code.take(it);
        }
        self.say(text, pieces);
        (text.len(), false)
    }

    /// Whether a block begins here; none, if that is still to be seen. Within a
    /// line only an object makes it one: people ask about such markers.
    fn marked(&self, text: &str) -> Option<bool> {
        let Some(behind) = text.strip_prefix(OPENING) else {
            return if OPENING.starts_with(text) { None } else { Some(false) };
        };
        match behind.trim_start().chars().next() {
            _ if self.code.is_at_start() => Some(true),
            Some(it) => Some(it == '{'),
            None if behind.len() > WIDEST_GAP => Some(false),
            None => self.has_ended.then_some(true),
        }
    }

    fn begin(&mut self) -> usize {
        self.block = Some(Block::default());
        OPENING.len()
    }

    /// Reads a block up to its end.
    fn step_block(&mut self, mut block: Block, body: &str, pieces: &mut Vec<Piece>) -> Step {
        if self.is_lax {
            block.form = Form::Other;
        }
        block.read_on(body);
        if matches!(block.form, Form::Blank | Form::Object) {
            self.block = Some(block);
            return (0, false);
        }
        let Some((at, marker)) = first_marker(body, block.read) else {
            // The end of it may be the start of a marker.
            let seen = body.len().saturating_sub(CLOSING.len() - 1);
            block.read = body.floor_char_boundary(seen).max(block.read);
            self.block = Some(block);
            return (0, false);
        };
        self.call(body[..at].to_owned(), pieces);
        if marker == CLOSING {
            return (at + CLOSING.len(), true);
        }
        // The next block begins though this one was not ended.
        self.say_behind(block.form, &body[..at], pieces);
        (at, true)
    }

    /// Ends a block that has no end, as far as its text goes.
    fn end_open(&mut self, block: Block, pieces: &mut Vec<Piece>) {
        let body = std::mem::take(&mut self.held);
        if block.form == Form::Object && !self.is_lax {
            // Whatever is wrong with it, what follows is not all lost.
            self.is_lax = true;
            if first_marker(&body, 0).is_some() {
                self.block = Some(Block::default());
                self.held = body;
                return;
            }
        }
        self.call(body.clone(), pieces);
        self.say_behind(block.form, &body, pieces);
    }

    fn call(&mut self, body: String, pieces: &mut Vec<Piece>) {
        self.blank.clear();
        self.code.end_line();
        self.is_after_call = true;
        pieces.push(Piece::Call(body));
    }

    /// What stands behind the object of a block that was not ended was said to
    /// a person.
    fn say_behind(&mut self, form: Form, body: &str, pieces: &mut Vec<Piece>) {
        if let Form::Whole(end) = form
            && !body[end..].trim().is_empty()
        {
            self.say(&body[end..], pieces);
        }
    }

    fn say(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        let (said, blank) = text.split_at(text.trim_end().len());
        if !said.is_empty() {
            let text = std::mem::take(&mut self.blank) + said;
            pieces.push(Piece::Text(text));
            self.is_after_call = false;
        }
        self.blank.push_str(blank);
    }
}

impl Block {
    /// Follows its object, from where that was left.
    fn read_on(&mut self, body: &str) {
        for byte in body.as_bytes().iter().skip(self.read) {
            match self.form {
                Form::Blank if byte.is_ascii_whitespace() => (),
                Form::Blank if *byte != b'{' => {
                    self.form = Form::Other;
                    return;
                }
                Form::Blank | Form::Object => self.follow(*byte),
                Form::Whole(_) | Form::Other => return,
            }
            self.read += 1;
            if self.form == Form::Object && self.depth == 0 {
                self.form = Form::Whole(self.read);
            }
        }
    }

    fn follow(&mut self, byte: u8) {
        self.form = Form::Object;
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = self.in_string,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => (),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => (),
        }
    }
}

/// The first marker from there on, and where it stands. An end is looked for
/// only up to the next beginning: of many blocks without one each would look
/// through all the others.
fn first_marker(body: &str, from: usize) -> Option<(usize, &'static str)> {
    let rest = body.get(from..)?;
    let opening = rest.find(OPENING);
    let closing = rest[..opening.unwrap_or(rest.len())].find(CLOSING);
    let found = closing.map(|at| (at, CLOSING)).or(opening.map(|at| (at, OPENING)));
    found.map(|(at, marker)| (from + at, marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_that_comes_first_counts() {
        let of = |body: &str, from| first_marker(body, from);
        assert_eq!(of("a</tool_call>b<tool_call>", 0), Some((1, CLOSING)));
        assert_eq!(of("a<tool_call>b</tool_call>", 0), Some((1, OPENING)));
        assert_eq!(of("a<tool_call>b</tool_call>", 2), Some((13, CLOSING)));
        assert_eq!(of("é nothing", 0), None);
    }

    /// Looked through once each, this takes a moment; else minutes.
    #[test]
    fn many_blocks_that_never_end_are_looked_through_once() {
        let text = "<tool_call>\n{\"name\":\"exec\"\n".repeat(100_000);
        let (mut scanner, mut pieces) = (Scanner::default(), Vec::new());
        scanner.feed(&text, &mut pieces);
        scanner.end(false, &mut pieces);
        assert_eq!(pieces.len(), 100_000);
    }
}
