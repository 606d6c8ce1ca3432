//! Shows one change as a short diff: the lines that differ, with two lines
//! around them.

/// Lines of context on either side.
const CONTEXT: usize = 2;

/// Bytes of a diff at most.
const MOST: usize = 4 * 1024;

/// What is between `start` and `end` of `old` has become `with`: the diff, and
/// the line (from 1) where the change begins. No copy of the text is made, nor
/// a list of its lines.
pub(crate) fn diff(old: &[u8], start: usize, end: usize, with: &[u8]) -> (String, usize) {
    let new = New { old, start, end, with };
    let same = same_lines_at_start(&new);
    let (old_end, new_end) = same_lines_at_end(&new, same);
    let from = back(old, same, CONTEXT);
    let after = forward(old, old_end, CONTEXT);
    let around = count(&old[from..same]) + count(&old[old_end..after]);
    let first = count(&old[..from]) + 1;
    let gone = &old[same..old_end];
    // More than is shown is counted, not kept.
    let come: Vec<u8> = new.bytes(same, new_end).take(2 * MOST).collect();
    let mut text = format!(
        "@@ -{first},{} +{first},{} @@\n",
        around + count(gone),
        around + new.count(same, new_end)
    );
    let parts = [(' ', &old[from..same]), ('-', gone), ('+', &come), (' ', &old[old_end..after])];
    for (mark, lines) in parts {
        if !add(&mut text, mark, lines) {
            break;
        }
    }
    (text, count(&old[..same]) + 1)
}

/// The new text, which is never put together.
struct New<'a> {
    old: &'a [u8],
    start: usize,
    end: usize,
    with: &'a [u8],
}

impl New<'_> {
    fn len(&self) -> usize {
        self.old.len() - (self.end - self.start) + self.with.len()
    }

    fn parts(&self) -> [&[u8]; 3] {
        [&self.old[..self.start], self.with, &self.old[self.end..]]
    }

    fn bytes(&self, from: usize, to: usize) -> impl Iterator<Item = u8> {
        let mut begin = 0;
        self.parts().into_iter().flat_map(move |part| {
            let within = |at: usize| at.saturating_sub(begin).min(part.len());
            let piece = &part[within(from)..within(to)];
            begin += part.len();
            piece.iter().copied()
        })
    }

    fn begins_line(&self, at: usize) -> bool {
        at == 0 || self.bytes(at - 1, at).eq([b'\n'])
    }

    fn count(&self, from: usize, to: usize) -> usize {
        let (mut lines, mut last) = (0, b'\n');
        for byte in self.bytes(from, to) {
            lines += usize::from(byte == b'\n');
            last = byte;
        }
        lines + usize::from(last != b'\n')
    }
}

/// Where the lines end that are the same in both from the start on.
fn same_lines_at_start(new: &New<'_>) -> usize {
    let [_, with, rest] = new.parts();
    let changed = with.iter().chain(rest);
    let same =
        new.start + new.old[new.start..].iter().zip(changed).take_while(|(a, b)| a == b).count();
    if same == new.old.len() && same == new.len() {
        return same;
    }
    new.old[..same].iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1)
}

/// Where, in the old and in the new text, the lines begin that are the same in
/// both up to the end, but for those before `from`.
fn same_lines_at_end(new: &New<'_>, from: usize) -> (usize, usize) {
    let [first, with, rest] = new.parts();
    let changed = with.iter().rev().chain(first.iter().rev());
    let pairs = new.old[..new.end].iter().rev().zip(changed);
    let same = rest.len() + pairs.take_while(|(a, b)| a == b).count();
    let most = new.old.len().min(new.len()) - from;
    let mut old_end = new.old.len() - same.min(most);
    let shift = |at: usize| new.len() - (new.old.len() - at);
    let begins = old_end == 0 || new.old[old_end - 1] == b'\n';
    if !(begins && new.begins_line(shift(old_end))) {
        old_end = forward(new.old, old_end, 1);
    }
    (old_end, shift(old_end))
}

/// Where so many lines before that line begin.
fn back(text: &[u8], at: usize, lines: usize) -> usize {
    (0..lines).fold(at, |at, _| {
        let before = &text[..at.saturating_sub(1)];
        before.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1)
    })
}

/// Where so many lines from there on end.
fn forward(text: &[u8], at: usize, lines: usize) -> usize {
    (0..lines).fold(at, |at, _| {
        let end = text[at..].iter().position(|it| *it == b'\n');
        end.map_or(text.len(), |it| at + it + 1)
    })
}

fn count(text: &[u8]) -> usize {
    let ends = text.iter().filter(|it| **it == b'\n').count();
    ends + usize::from(text.last().is_some_and(|it| *it != b'\n'))
}

/// Adds lines behind a mark; false once there is no more room.
fn add(text: &mut String, mark: char, lines: &[u8]) -> bool {
    const CUT: &str = "… the diff goes on\n";
    for line in lines.split_inclusive(|it| *it == b'\n') {
        // Longer than all that is shown it need not be looked at whole.
        let line = String::from_utf8_lossy(&line[..line.len().min(MOST + 1)]);
        let line = line.trim_end_matches(['\n', '\r']);
        if text.len() + line.len() + 2 + CUT.len() > MOST {
            text.push_str(CUT);
            return false;
        }
        text.push(mark);
        text.push_str(line);
        text.push('\n');
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(old: &str, start: usize, end: usize, with: &str, want: &str, line: usize) {
        assert_eq!(diff(old.as_bytes(), start, end, with.as_bytes()), (want.into(), line));
    }

    #[test]
    fn the_lines_that_differ_stand_between_two_others() {
        check("a\nb\nc\nd\ne\nf\n", 6, 7, "D", "@@ -2,5 +2,5 @@\n b\n c\n-d\n+D\n e\n f\n", 4);
        check("a\nb\n", 2, 2, "x\n", "@@ -1,2 +1,3 @@\n a\n+x\n b\n", 2);
        check("a\nb\n", 0, 2, "", "@@ -1,2 +1,1 @@\n-a\n b\n", 1);
        check("a", 0, 1, "a\nb", "@@ -1,1 +1,2 @@\n-a\n+a\n+b\n", 1);
        check("a\na\na\n", 2, 4, "a\na\n", "@@ -2,2 +2,3 @@\n a\n a\n+a\n", 4);
        check("a\n", 0, 1, "a", "@@ -1,1 +1,1 @@\n a\n", 2);
    }

    /// The same, line by line, with a copy and two lists.
    fn plainly(old: &[u8], start: usize, end: usize, with: &[u8]) -> (String, usize) {
        let new = [&old[..start], with, &old[end..]].concat();
        let lines = |it| <[u8]>::split_inclusive(it, |it| *it == b'\n').collect();
        let (old, new): (Vec<&[u8]>, Vec<&[u8]>) = (lines(old), lines(&new));
        let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
        let most = old.len().min(new.len()) - same;
        let ends = old.iter().rev().zip(new.iter().rev()).take(most);
        let tail = ends.take_while(|(a, b)| a == b).count();
        let from = same.saturating_sub(CONTEXT);
        let (old_end, new_end) = (old.len() - tail, new.len() - tail);
        let after = (old_end + CONTEXT).min(old.len());
        let (gone, come) = (after - from, after - old_end + new_end - from);
        let mut text = format!("@@ -{},{gone} +{},{come} @@\n", from + 1, from + 1);
        add(&mut text, ' ', &old[from..same].concat());
        add(&mut text, '-', &old[same..old_end].concat());
        add(&mut text, '+', &new[same..new_end].concat());
        add(&mut text, ' ', &old[old_end..after].concat());
        (text, same + 1)
    }

    #[test]
    fn every_small_change_is_shown_as_the_plain_way_shows_it() {
        let texts: Vec<Vec<u8>> = (0..3_usize.pow(5))
            .flat_map(|number| {
                let digit = move |at: u32| b"ab\n"[number / 3_usize.pow(at) % 3];
                (0..=5).map(move |length| (0..length).map(digit).collect())
            })
            .collect();
        for old in texts.iter().step_by(7) {
            for with in texts.iter().step_by(31) {
                for start in 0..=old.len() {
                    for end in start..=old.len() {
                        let got = diff(old, start, end, with);
                        assert_eq!(
                            got,
                            plainly(old, start, end, with),
                            "{old:?} {start}..{end} {with:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_large_change_is_cut() {
        let (text, _) = diff(b"a\n", 0, 1, "語\n".repeat(5000).as_bytes());
        assert!(text.len() <= MOST);
        assert!(text.ends_with("+語\n… the diff goes on\n"));
    }
}
