//! Parts thinking from text where a model writes both into its content: a
//! `<think>` or `<thinking>` block at the very start is thinking, one that is
//! never closed to its end. Pure. Later blocks are text, since people ask
//! about such tags.

use super::Delta;

const OPENING: [&str; 2] = ["<think>", "<thinking>"];
const CLOSING: [&str; 2] = ["</think>", "</thinking>"];

/// Most white space before an opening tag, in bytes: it is held back meanwhile.
const WIDEST_MARGIN: usize = 1_024;

/// The content of one answer on its way.
#[derive(Debug, Default)]
pub(super) struct ThinkSplitter {
    place: Place,
    /// What cannot be told yet: the start of a tag.
    held: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Nothing but white space yet, or the start of an opening tag.
    #[default]
    Start,
    Thinking,
    /// Right after the block: white space here is its margin.
    Margin,
    Text,
}

impl ThinkSplitter {
    /// Adds what these pieces of content are for certain.
    pub(super) fn feed(&mut self, more: &str, deltas: &mut Vec<Delta>) {
        self.held.push_str(more);
        if self.place == Place::Start {
            self.look_for_opening();
        }
        if self.place == Place::Thinking {
            self.take_thinking(deltas);
        }
        if self.place == Place::Margin {
            self.held.drain(..self.held.len() - self.held.trim_start().len());
            if !self.held.is_empty() {
                self.place = Place::Text;
            }
        }
        if self.place == Place::Text && !self.held.is_empty() {
            deltas.push(Delta::Text(std::mem::take(&mut self.held)));
        }
    }

    /// The content has ended: what was held was no tag. White space alone is
    /// no text.
    pub(super) fn end(&mut self, deltas: &mut Vec<Delta>) {
        let held = std::mem::take(&mut self.held);
        match self.place {
            Place::Thinking if !held.is_empty() => deltas.push(Delta::Thinking(held)),
            Place::Start if !held.trim().is_empty() => deltas.push(Delta::Text(held)),
            _ => (),
        }
    }

    fn look_for_opening(&mut self) {
        let start = self.held.trim_start();
        if self.held.len() - start.len() > WIDEST_MARGIN {
            self.place = Place::Text;
            return;
        }
        let opened = OPENING.iter().find(|it| start.starts_with(**it));
        if let Some(tag) = opened {
            self.held = start[tag.len()..].to_owned();
            self.place = Place::Thinking;
        } else if !OPENING.iter().any(|it| it.starts_with(start)) {
            self.place = Place::Text;
        }
    }

    fn take_thinking(&mut self, deltas: &mut Vec<Delta>) {
        let closed = CLOSING.iter().filter_map(|it| Some((self.held.find(it)?, it.len()))).min();
        let (end, tag) = closed.unwrap_or_else(|| (self.held.len() - begun(&self.held), 0));
        let thinking: String = self.held.drain(..end).collect();
        if !thinking.is_empty() {
            deltas.push(Delta::Thinking(thinking));
        }
        if closed.is_some() {
            self.held.drain(..tag);
            self.place = Place::Margin;
        }
    }
}

/// How many bytes at the end may be the start of a closing tag.
fn begun(text: &str) -> usize {
    let starts = |tag: &str| {
        let lengths = (1..tag.len()).rev();
        lengths.into_iter().find(|it| text.ends_with(&tag[..*it])).unwrap_or(0)
    };
    CLOSING.iter().map(|it| starts(it)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thinking and text of a content that comes in pieces of so many
    /// characters.
    fn split(content: &str, size: usize) -> (String, String) {
        let mut splitter = ThinkSplitter::default();
        let mut deltas = Vec::new();
        let characters: Vec<char> = content.chars().collect();
        for piece in characters.chunks(size) {
            splitter.feed(&piece.iter().collect::<String>(), &mut deltas);
        }
        splitter.end(&mut deltas);
        let (mut thinking, mut text) = (String::new(), String::new());
        for delta in deltas {
            match delta {
                Delta::Thinking(it) => thinking.push_str(&it),
                Delta::Text(it) => text.push_str(&it),
                other => panic!("{other:?}"),
            }
        }
        (thinking, text)
    }

    #[track_caller]
    fn check(content: &str, thinking: &str, text: &str) {
        for size in 1..=content.len().max(1) {
            assert_eq!(split(content, size), (thinking.into(), text.into()), "pieces of {size}");
        }
    }

    #[test]
    fn a_block_at_the_start_is_thinking() {
        check("<think>hm</think>\n\nhi", "hm", "hi");
        check(" \n<thinking>hm\n</thinking>hi there ", "hm\n", "hi there ");
        check("<think></think>hi", "", "hi");
        check("<think>a </thin b</think>c", "a </thin b", "c");
        check("<think>那</think>é", "那", "é");
    }

    #[test]
    fn a_block_that_is_not_closed_is_thinking_to_its_end() {
        check("<think>hm, <b>", "hm, <b>", "");
        check("<thinking>hm</thinkin", "hm</thinkin", "");
    }

    #[test]
    fn anything_else_is_text() {
        check("hi <think>no</think>", "", "hi <think>no</think>");
        check("<think>a</think>b<think>c</think>", "a", "b<think>c</think>");
        check("<thin air>", "", "<thin air>");
        check("  <", "", "  <");
        check("<thinker>", "", "<thinker>");
        check("", "", "");
        check(" \n", "", "");
    }
}
