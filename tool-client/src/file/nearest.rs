//! The line of a file that is most like the text which was not found in it,
//! and what differs: nearly always it is the white space, or one line was
//! remembered wrongly.

/// Bytes of a line that are compared and shown.
const MOST: usize = 200;

/// Lines compared after those that are right: many lines may be alike.
const MOST_COMPARED: usize = 1_000_000;

/// The nearest place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nearest {
    /// Counted from 1.
    pub(crate) line: usize,
    /// The line as it stands in the file.
    pub(crate) text: String,
    /// What differs.
    pub(crate) why: String,
}

/// The line most like the first line of `old` that is not empty; of several
/// alike, the one after which the most lines are right. `None` if none is even
/// half like it.
pub(crate) fn nearest(content: &[u8], old: &[u8]) -> Option<Nearest> {
    let (content, old) = (without_end(content), without_end(old));
    let wanted = starts(old).find(|it| !line_at(old, *it).trim_ascii().is_empty())?;
    let wanted = &old[wanted..];
    let first = line_at(wanted, 0).trim_ascii();
    let mut best = Best::default();
    let mut budget = MOST_COMPARED;
    for (number, start) in starts(content).enumerate() {
        let alike = likeness(line_at(content, start).trim_ascii(), first);
        // Only a line that is right is worth a look at those after it.
        let run = if alike == 100 { right_lines(&content[start..], wanted, budget) } else { 0 };
        budget = budget.saturating_sub(run);
        if (alike, run) > (best.alike, best.run) {
            best = Best { alike, run, number, start };
        }
    }
    (best.alike >= 50).then(|| explain(&content[best.start..], wanted, &best))
}

/// The best place so far.
#[derive(Default)]
struct Best {
    alike: usize,
    /// Lines that are right.
    run: usize,
    /// From 0.
    number: usize,
    start: usize,
}

/// Lines that are the same from there on, white space aside; `most` at most.
fn right_lines(file: &[u8], wanted: &[u8], most: usize) -> usize {
    let pairs = lines(file).zip(lines(wanted)).take(most.max(1));
    pairs.take_while(|(a, b)| a.trim_ascii() == b.trim_ascii()).count()
}

/// What differs from the best place on.
fn explain(file: &[u8], wanted: &[u8], best: &Best) -> Nearest {
    let right = best.run;
    let whole = lines(wanted).nth(1).is_none() || lines(wanted).nth(right).is_none();
    let (offset, why) = if right == 0 {
        (0, "the text differs")
    } else if whole {
        let spaces = lines(file).zip(lines(wanted)).position(|(a, b)| a != b);
        (spaces.unwrap_or(0), "only the white space differs: compare tabs, spaces and line ends")
    } else if lines(file).nth(right).is_none() {
        (right - 1, "the file ends here, the old text goes on")
    } else {
        (right, "the lines before are right, this one differs")
    };
    let line = lines(file).nth(offset).unwrap_or_default();
    Nearest { line: best.number + offset + 1, text: shown(line), why: why.into() }
}

/// How alike two lines are, in percent: what they share at both ends.
fn likeness(line: &[u8], wanted: &[u8]) -> usize {
    let (line, wanted) = (&line[..line.len().min(MOST)], &wanted[..wanted.len().min(MOST)]);
    let longer = line.len().max(wanted.len());
    let shorter = line.len().min(wanted.len());
    let start = line.iter().zip(wanted).take_while(|(a, b)| a == b).count();
    let ends = line.iter().rev().zip(wanted.iter().rev());
    let end = ends.take(shorter - start).take_while(|(a, b)| a == b).count();
    ((start + end) * 100).checked_div(longer).unwrap_or(0)
}

fn without_end(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// The lines of a text, one by one: a list of all may be larger than the text.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|it| *it == b'\n')
}

/// Where its lines begin.
fn starts(text: &[u8]) -> impl Iterator<Item = usize> {
    let after = text.iter().enumerate().filter(|(_, it)| **it == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(after)
}

fn line_at(text: &[u8], start: usize) -> &[u8] {
    lines(&text[start..]).next().unwrap_or_default()
}

/// The line with its white space made visible enough to be copied.
fn shown(line: &[u8]) -> String {
    let line = super::text::cut(line, MOST);
    String::from_utf8_lossy(line).trim_end_matches('\r').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content: &str, old: &str, want: Option<(usize, &str, &str)>) {
        let got = nearest(content.as_bytes(), old.as_bytes());
        let got = got.as_ref().map(|it| (it.line, it.text.as_str(), it.why.as_str()));
        match (got, want) {
            (Some(got), Some(want)) => {
                assert_eq!((got.0, got.1), (want.0, want.1));
                assert!(got.2.contains(want.2), "{}", got.2);
            }
            (got, want) => assert_eq!(got, want),
        }
    }

    #[test]
    fn the_line_that_differs_is_named_with_the_reason() {
        check("a\n\tlet x = 1;\n", "    let x = 1;", Some((2, "\tlet x = 1;", "white space")));
        check("a\nlet x = 1;\n", "let y = 1;", Some((2, "let x = 1;", "the text differs")));
        check("f()\nx\nf()\ny\n", "\nf()\nz\n", Some((2, "x", "this one differs")));
        check("f()\nx\nf()\ny\nw\n", "f()\ny\nz\n", Some((5, "w", "this one differs")));
        check("f()\n  y\n", "f()\ny", Some((2, "  y", "white space")));
        check("f()\ny", "f()\ny\nz", Some((2, "y", "goes on")));
    }

    #[test]
    fn nothing_is_like_it_when_nothing_is() {
        check("abc\ndef\n", "zzzzzz", None);
        check("", "x", None);
        check("abc", " \n ", None);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let content = "語".repeat(300);
        let got = nearest(content.as_bytes(), format!("{content}x").as_bytes());
        assert_eq!(got.map(|it| it.text), Some("語".repeat(66)));
    }
}
