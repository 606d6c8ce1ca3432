//! The answer as it comes, for a person at a terminal: what to write of it, and
//! what before anything else is shown. Pure; what it gives drives no terminal,
//! whatever a model wrote.

use super::super::{dim, inert};

/// Stands below text that is no part of the answer, since its model failed.
const CUT_OFF: &str = "[cut off there; the answer begins anew]";

/// Line ends, also half of one.
const LINE_ENDS: [char; 2] = ['\r', '\n'];

/// An answer on its way to a terminal.
#[derive(Default)]
pub(super) struct Live {
    coloured: bool,
    has_shown: bool,
    /// What has been shown of the answer that is being told.
    shown: String,
    /// Line ends behind it, shown once more follows.
    held: String,
}

impl Live {
    /// Nothing shown yet, on a terminal that takes colours or does not.
    pub(super) fn new(coloured: bool) -> Self {
        Self { coloured, ..Self::default() }
    }

    /// Whether anything of the turn has been shown.
    pub(super) fn has_shown(&self) -> bool {
        self.has_shown
    }

    /// More of the answer.
    pub(super) fn more(&mut self, delta: &str) -> String {
        let text = delta.trim_end_matches(LINE_ENDS);
        if text.is_empty() {
            self.held.push_str(delta);
            return String::new();
        }
        let shown = std::mem::take(&mut self.held) + text;
        self.held.push_str(&delta[text.len()..]);
        self.shown.push_str(&shown);
        self.has_shown = true;
        inert(&shown)
    }

    /// The end of its line, before anything else is shown; what comes then is
    /// another answer.
    pub(super) fn end_line(&mut self) -> String {
        self.held.clear();
        let is_open = !std::mem::take(&mut self.shown).is_empty();
        if is_open { "\n".to_owned() } else { String::new() }
    }

    /// The same for an answer that is told anew.
    pub(super) fn cut_off(&mut self) -> String {
        match self.end_line() {
            end if end.is_empty() => end,
            end => format!("{end}{}\n", dim(CUT_OFF, self.coloured)),
        }
    }

    /// What is missing of the whole answer, and the end of its line.
    pub(super) fn rest(&mut self, response: &str) -> String {
        let response = response.trim_end_matches(LINE_ENDS);
        let (before, rest) = match response.strip_prefix(self.shown.as_str()) {
            Some(rest) => (String::new(), rest),
            None => (self.end_line(), response),
        };
        self.shown.push_str(rest);
        before + &inert(rest) + &self.end_line()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of these pieces, and of the whole at the end.
    #[track_caller]
    fn check(pieces: &[&str], response: &str, want: &[&str]) {
        let mut live = Live::new(false);
        let mut shown: Vec<String> = pieces.iter().map(|it| live.more(it)).collect();
        shown.push(live.rest(response));
        assert_eq!(shown, want);
    }

    #[test]
    fn an_answer_is_shown_once_and_ends_its_line() {
        check(&["a", "b"], "ab", &["a", "b", "\n"]);
        check(&["a\n", "\n"], "a\n\n", &["a", "", "\n"]);
        check(&["\n\na"], "\n\na", &["\n\na", "\n"]);
        check(&["a\r", "\n", "b"], "a\r\nb", &["a", "", "\nb", "\n"]);
        check(&["\n"], "\n", &["", ""]);
        check(&[], "", &[""]);
    }

    #[test]
    fn what_was_not_told_piece_by_piece_is_not_lost() {
        check(&[], "all", &["all\n"]);
        check(&["a"], "ab\n", &["a", "b\n"]);
        check(&["x"], "ab", &["x", "\nab\n"]);
    }

    #[test]
    fn no_piece_drives_the_terminal() {
        check(&["\x1b", "[2J\r", "x"], "\x1b[2J\rx", &["\\u{1b}", "[2J", "\\rx", "\n"]);
        check(&[], "\u{9b}2J", &["\\u{9b}2J\n"]);
    }

    #[test]
    fn what_was_said_in_vain_is_marked_where_there_is_any() {
        let mut live = Live::new(false);
        live.more("\n");
        assert_eq!(live.cut_off(), "");
        live.more("half");
        assert_eq!(live.cut_off(), format!("\n{CUT_OFF}\n"));
        assert_eq!(live.rest("whole"), "whole\n");
        assert!(live.has_shown());
        let mut live = Live::new(true);
        live.more("half");
        assert_eq!(live.cut_off(), format!("\n\x1b[2m{CUT_OFF}\x1b[0m\n"));
    }
}
