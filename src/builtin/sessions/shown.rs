//! A message of a session as an agent reads it: when, who, and a text that is
//! short enough; and what it is searched for. Pure.

use serde_json::{Value, json};

use crate::message::{Block, Content, Message};
use crate::session::Told;

/// Characters of one message that are shown.
const MOST_SHOWN: usize = 4000;

/// Characters of the arguments of a tool call.
const ARGUMENTS: usize = 400;

/// Characters of a line that was searched for, and of those what is before the
/// match.
const LINE: usize = 240;
const BEFORE: usize = 80;

/// A message.
pub(super) struct Shown {
    pub(super) id: String,
    pub(super) at: String,
    pub(super) who: String,
    pub(super) text: String,
}

impl Shown {
    pub(super) fn of(told: Told) -> Self {
        let (who, text) = match told.message {
            Message::User(it) => ("user".to_owned(), of_content(&it.content)),
            Message::Assistant(it) => ("assistant".to_owned(), of_blocks(&it.content)),
            Message::ToolResult(it) => {
                let what = if it.is_error { "failed" } else { "result" };
                (format!("{} {what}", it.tool_name), of_content(&it.content))
            }
            Message::BashExecution(it) => {
                ("command".to_owned(), format!("{}\n{}", it.command, it.output))
            }
            Message::Custom(it) => ("note".to_owned(), of_content(&it.content)),
            Message::BranchSummary(it) => ("summary of a branch".to_owned(), it.summary),
            Message::CompactionSummary(it) => ("summary of all before".to_owned(), it.summary),
            Message::Unknown(it) => ("unknown".to_owned(), it.to_string()),
        };
        Self { id: told.id, at: told.timestamp, who, text: text.trim_end().to_owned() }
    }

    pub(super) fn for_people(&self) -> String {
        let text = cut(&self.text, MOST_SHOWN);
        format!("{}  {}: {text}", short_time(&self.at), self.who)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"id": self.id, "timestamp": self.at, "who": self.who, "text": self.text})
    }
}

fn of_content(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Blocks(all) => of_blocks(all),
    }
}

/// What was thought is left out: it was said to nobody.
fn of_blocks(all: &[Block]) -> String {
    let texts = all.iter().filter_map(|it| match it {
        Block::Text(it) => Some(it.text.clone()),
        Block::ToolCall(it) => {
            let arguments = it.arguments.to_string();
            Some(format!("-> {} {}", it.name, cut(&arguments, ARGUMENTS)))
        }
        Block::Image(_) => Some("[an image]".to_owned()),
        Block::Thinking(_) | Block::Unknown(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// `2026-12-01 00:52`, in UTC.
pub(super) fn short_time(timestamp: &str) -> String {
    timestamp.chars().take(16).map(|it| if it == 'T' { ' ' } else { it }).collect()
}

/// On one line, at most so many characters.
pub(super) fn in_line(text: &str, most: usize) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), most)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}… [{} more bytes]", &text[..end], text.len() - end),
        None => text.to_owned(),
    }
}

/// What is searched for, in small letters.
pub(super) struct Pattern {
    parts: Vec<String>,
    /// A line with this is the search itself.
    mine: String,
}

impl Pattern {
    pub(super) fn new(text: &str, mine: &str) -> Self {
        let parts = text.split('*').filter(|it| !it.is_empty()).map(str::to_lowercase).collect();
        Self { parts, mine: mine.to_owned() }
    }

    /// The first line that holds it, as far as it is shown.
    pub(super) fn line_of(&self, text: &str) -> Option<String> {
        let lines = text.lines().filter(|it| !it.contains(&self.mine));
        lines.filter_map(|it| self.found_in(it)).next()
    }

    fn found_in(&self, line: &str) -> Option<String> {
        let small = line.to_lowercase();
        let (mut at, mut first) = (0, None);
        for part in &self.parts {
            let found = at + small[at..].find(part.as_str())?;
            first.get_or_insert(found);
            at = found + part.len();
        }
        // Small letters can be longer than large ones; it is near enough.
        let before = small[..first.unwrap_or(0)].chars().count();
        let skipped = before.saturating_sub(BEFORE);
        let shown: String = line.trim_end().chars().skip(skipped).take(LINE).collect();
        Some(if skipped > 0 { format!("…{shown}") } else { shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_parts_in_their_order_on_one_line() {
        let check = |pattern: &str, text: &str, want: Option<&str>| {
            let line = Pattern::new(pattern, "sessions grep").line_of(text);
            assert_eq!(line.as_deref(), want, "{pattern:?} in {text:?}");
        };
        check("world", "hello\nHello World!\nworld", Some("Hello World!"));
        check("hello*wor", "wor hello\nhello to the WORld", Some("hello to the WORld"));
        check("a.c", "abc", None);
        check("ÄRGER", "viel ärger", Some("viel ärger"));
        check("key", "-> exec {\"command\":\"sessions grep key\"}", None);
        check("", "anything", Some("anything"));
        let long = format!("{}needle{}", "x".repeat(500), "y".repeat(500));
        let line = Pattern::new("needle", "-").line_of(&long).unwrap_or_default();
        assert!(line.starts_with("…x") && line.contains("needley"), "{line}");
        assert_eq!(line.chars().count(), LINE + 1);
    }

    #[test]
    fn what_is_shown_is_short() {
        assert_eq!(short_time("2026-12-01T00:52:07.123Z"), "2026-12-01 00:52");
        assert_eq!(in_line(" a\n b ", 9), "a b");
        assert_eq!(in_line("äbcd", 2), "äb… [2 more bytes]");
    }
}
