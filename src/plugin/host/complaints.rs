//! What a plugin prints on standard error: it goes to the gateway's log under
//! the plugin's name, masked, and the last of it is kept to be told when the
//! plugin dies. A flood is counted and not written.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::plugin::rpc::lines::{Line, Lines};
use crate::secret::Redactor;

/// Longest line that is logged, in bytes.
const LONGEST_LINE: usize = 4 * 1024;

/// Lines that are logged in one window.
const MOST_LINES: u32 = 200;

/// Notes of ours about a plugin in one window; a flood of the plugin drowns none.
const MOST_NOTES: u32 = 20;

/// How long a window is.
const WINDOW: Duration = Duration::from_secs(10);

/// Lines that are kept.
const KEPT_LINES: usize = 5;

/// Most bytes of all that are kept.
const KEPT_BYTES: usize = 1024;

/// What one plugin complains of.
pub(in crate::plugin) struct Complaints {
    plugin: String,
    redactor: Redactor,
    lines: Lines,
    last: VecDeque<String>,
    window: Instant,
    /// In this window.
    logged: u32,
    noted: u32,
    left_out: u64,
}

impl Complaints {
    /// Of that plugin.
    pub(in crate::plugin) fn of(plugin: &str, redactor: &Redactor) -> Self {
        Self {
            plugin: plugin.to_owned(),
            redactor: redactor.clone(),
            lines: Lines::within(LONGEST_LINE),
            last: VecDeque::new(),
            window: Instant::now(),
            logged: 0,
            noted: 0,
            left_out: 0,
        }
    }

    /// The next piece of its standard error.
    pub(in crate::plugin) fn take(&mut self, piece: &[u8]) {
        let mut found = Vec::new();
        self.lines.take(piece, &mut |line| found.push(line));
        found.into_iter().for_each(|it| self.line(it));
    }

    /// No more comes; what was printed last, on one line, or nothing.
    pub(in crate::plugin) fn end(mut self) -> String {
        let mut found = Vec::new();
        self.lines.end(&mut |line| found.push(line));
        found.into_iter().for_each(|it| self.line(it));
        self.close_window();
        Vec::from(self.last).join(" | ")
    }

    /// Something about the plugin that is no line of it; bounded likewise.
    pub(in crate::plugin) fn note(&mut self, what: &str) {
        self.look_at_the_clock();
        self.noted += 1;
        if self.noted <= MOST_NOTES {
            log::warn!(target: "plugin", "{}: {what}", self.plugin);
        }
    }

    /// Something that the plugin says otherwise than on standard error;
    /// bounded as if it were a line of that.
    pub(in crate::plugin) fn say(&mut self, level: log::Level, text: &str) {
        if log::log_enabled!(target: "plugin", level) && self.may_log() {
            let text = self.redactor.mask(text).replace(char::is_control, " ");
            let text: String = text.chars().take(LONGEST_LINE).collect();
            log::log!(target: "plugin", level, "{}: {text}", self.plugin);
        }
    }

    fn line(&mut self, line: Line) {
        let text = match line {
            Line::Whole(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Line::TooLong => format!("[a line of more than {LONGEST_LINE} bytes]"),
        };
        let text = self.redactor.mask(&text).replace(char::is_control, " ");
        if self.may_log() {
            log::info!(target: "plugin", "{}: {text}", self.plugin);
        }
        self.last.push_back(text.chars().take(KEPT_BYTES / 4).collect());
        while self.last.len() > KEPT_LINES
            || self.last.iter().map(String::len).sum::<usize>() > KEPT_BYTES
        {
            self.last.pop_front();
        }
    }

    fn look_at_the_clock(&mut self) {
        if self.window.elapsed() > WINDOW {
            self.close_window();
        }
    }

    fn may_log(&mut self) -> bool {
        self.look_at_the_clock();
        let may = self.logged < MOST_LINES;
        match may {
            true => self.logged += 1,
            false => self.left_out += 1,
        }
        may
    }

    fn close_window(&mut self) {
        if self.left_out > 0 {
            let (plugin, count) = (&self.plugin, self.left_out);
            log::warn!(target: "plugin", "{plugin}: {count} more lines were left out");
        }
        (self.window, self.logged, self.noted, self.left_out) = (Instant::now(), 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(printed: &str, want: &str) {
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        let mut complaints = Complaints::of("p", &redactor);
        printed.as_bytes().chunks(7).for_each(|it| complaints.take(it));
        assert_eq!(complaints.end(), want);
    }

    #[test]
    fn the_last_words_are_masked_and_on_one_line() {
        check("", "");
        check("a\n\nb is s3cret-key\x1b[0m\nno end", "a | b is •••• [0m | no end");
        check("1\n2\n3\n4\n5\n6\n7\n", "3 | 4 | 5 | 6 | 7");
    }

    #[test]
    fn a_flood_leaves_little() {
        let long = "x".repeat(10_000);
        check(&format!("{long}\nend\n"), "[a line of more than 4096 bytes] | end");
        let many = format!("{}\n", "y".repeat(3_000)).repeat(10_000);
        let mut complaints = Complaints::of("p", &Redactor::new());
        complaints.take(many.as_bytes());
        assert_eq!(complaints.logged, MOST_LINES);
        assert!(complaints.end().len() <= KEPT_BYTES + 3 * KEPT_LINES);
    }
}
