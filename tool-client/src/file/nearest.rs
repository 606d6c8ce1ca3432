//! The line of a file that is most like the text which was not found in it,
//! and what differs: nearly always it is the white space, or one line was
//! remembered wrongly.

/// Bytes of a line that are compared and shown.
const MOST: usize = 200;

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
    let file: Vec<&[u8]> = lines(content);
    let wanted: Vec<&[u8]> = lines(old);
    let skipped = wanted.iter().position(|it| !it.trim_ascii().is_empty())?;
    let wanted = &wanted[skipped..];
    let first = wanted.first()?.trim_ascii();
    let (mut best, mut best_score) = (0, (0, 0));
    for (at, line) in file.iter().enumerate() {
        let alike = likeness(line.trim_ascii(), first);
        // Only a line that is right is worth a look at those after it.
        let run = if alike == 100 { right_lines(&file[at..], wanted) } else { 0 };
        if (alike, run) > best_score {
            (best, best_score) = (at, (alike, run));
        }
    }
    (best_score.0 >= 50).then(|| explain(&file, wanted, best, best_score.1))
}

/// Lines that are the same from there on, white space aside.
fn right_lines(file: &[&[u8]], wanted: &[&[u8]]) -> usize {
    file.iter().zip(wanted).take_while(|(a, b)| a.trim_ascii() == b.trim_ascii()).count()
}

fn explain(file: &[&[u8]], wanted: &[&[u8]], at: usize, right: usize) -> Nearest {
    let pairs = || file[at..].iter().zip(wanted).enumerate();
    let whole = wanted.len() == 1 || right == wanted.len();
    let (offset, why) = if right == 0 {
        (0, "the text differs".to_owned())
    } else if whole {
        let spaces = pairs().find(|(_, (a, b))| a != b);
        (
            spaces.map_or(0, |it| it.0),
            "only the white space differs: compare tabs, spaces and line ends".into(),
        )
    } else if at + right >= file.len() {
        (right - 1, "the file ends here, the old text goes on".into())
    } else {
        (right, "the lines before are right, this one differs".into())
    };
    let line = file.get(at + offset).copied().unwrap_or_default();
    Nearest { line: at + offset + 1, text: shown(line), why }
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

fn lines(text: &[u8]) -> Vec<&[u8]> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.split(|it| *it == b'\n').collect()
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
