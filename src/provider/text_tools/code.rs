//! Tells code from prose in text that comes piece by piece: fences of three or
//! more backticks or tildes, and spans of backticks within a line. Pure. It
//! errs towards code, since what stands in code is only shown.

/// What is known of the text so far.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// The fence that is open: its mark and how many of them.
    fence: Option<(char, usize)>,
    line: Line,
}

/// How a line has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    /// Nothing but indentation, or the mark of a list or a quotation.
    #[default]
    Start,
    /// A run of marks that may make a fence.
    Run(char, usize),
    /// Behind a run that is long enough; whether only white space came.
    Behind(char, usize, bool),
    /// Anything else: the length of the span that is open, 0 for none, and of
    /// the run of backticks that has just come.
    Prose { span: usize, run: usize },
}

impl Code {
    /// Whether what comes next is code.
    pub(super) fn is_code(&self) -> bool {
        let in_line = match self.line {
            Line::Start => false,
            Line::Run(mark, length) => mark == '`' || length >= 3,
            Line::Behind(..) => true,
            Line::Prose { span, run: 0 } => span > 0,
            Line::Prose { span, run } => span != run,
        };
        in_line || self.fence.is_some()
    }

    /// Whether nothing has come on this line but what may stand before a block.
    pub(super) fn is_at_start(&self) -> bool {
        self.line == Line::Start
    }

    /// A line ends here, whatever comes.
    pub(super) fn end_line(&mut self) {
        self.take('\n');
    }

    /// One more character has come.
    pub(super) fn take(&mut self, it: char) {
        if it == '\n' {
            self.fence = self.fence_after_line();
            self.line = Line::Start;
            return;
        }
        self.line = match self.line {
            Line::Start if self.may_precede(it) => Line::Start,
            Line::Start if matches!(it, '`' | '~') => Line::Run(it, 1),
            Line::Start => prose(0, 0, it),
            Line::Run(mark, length) if mark == it => Line::Run(mark, length + 1),
            Line::Run(mark, length) if length >= 3 => {
                Line::Behind(mark, length, it.is_whitespace())
            }
            Line::Run('`', length) => prose(0, length, it),
            Line::Run(..) => prose(0, 0, it),
            // Backticks behind backticks: it is a span, and no fence.
            Line::Behind('`', length, _) if it == '`' => prose(length, 0, it),
            Line::Behind(mark, length, is_blank) => {
                Line::Behind(mark, length, is_blank && it.is_whitespace())
            }
            Line::Prose { span, run } => prose(span, run, it),
        };
    }

    /// The fence that is open once the line has ended.
    fn fence_after_line(&self) -> Option<(char, usize)> {
        let (mark, length, is_blank) = match self.line {
            Line::Run(mark, length) => (mark, length, true),
            Line::Behind(mark, length, is_blank) => (mark, length, is_blank),
            Line::Start | Line::Prose { .. } => return self.fence,
        };
        match self.fence {
            None => (length >= 3).then_some((mark, length)),
            Some((open, least)) if open == mark && length >= least && is_blank => None,
            open => open,
        }
    }

    /// Whether a fence may still begin behind it. An open fence is not closed
    /// behind the mark of a list.
    fn may_precede(&self, it: char) -> bool {
        let is_list = |it: char| it.is_ascii_digit() || "-*+.)".contains(it);
        matches!(it, ' ' | '\t' | '\r' | '>') || (self.fence.is_none() && is_list(it))
    }
}

/// Prose with one more character.
fn prose(span: usize, run: usize, it: char) -> Line {
    if it == '`' {
        return Line::Prose { span, run: run + 1 };
    }
    let span = match (span, run) {
        (span, 0) => span,
        (0, run) => run,
        (span, run) if span == run => 0,
        (span, _) => span,
    };
    Line::Prose { span, run: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether code comes behind this text.
    #[track_caller]
    fn check(text: &str, want: bool) {
        let mut code = Code::default();
        text.chars().for_each(|it| code.take(it));
        assert_eq!(code.is_code(), want, "{text:?}");
    }

    #[test]
    fn a_fence_is_code_until_it_is_closed() {
        check("```\n", true);
        check("```json\n{}\n", true);
        check("```json\n{}\n```", true);
        check("```json\n{}\n```\n", false);
        check("```\n``\n", true);
        check("````\n```\n", true);
        check("````\n`````  \n", false);
        check("~~~\n```\n", true);
        check("~~~ `x`\n", true);
        check("~~~\n~~~\n", false);
        check("```\n``` x\n", true);
        check("  ```\r\n  ```\r\n", false);
        check("1. ```sh\n", true);
        check("- ```\n- ```\n", true);
        check("> ```\n> ```\n", false);
    }

    #[test]
    fn a_span_is_code_within_its_line() {
        check("the `", true);
        check("the `a`", false);
        check("the ``a`", true);
        check("the ``a``", false);
        check("`", true);
        check("``` a ``` ", false);
        check("```a``` b\n", false);
        check("it's 5` long\n", false);
    }

    #[test]
    fn anything_else_is_prose() {
        check("", false);
        check("~ about", false);
        check("~", false);
        check("a ~~~\n", false);
        check("* a\n- b\n", false);
        check("a\n\n  b", false);
    }
}
