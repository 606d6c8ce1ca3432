//! Shows one change as a short diff: the lines that differ, with two lines
//! around them.

/// Lines of context on either side.
const CONTEXT: usize = 2;

/// Bytes of a diff at most.
const MOST: usize = 4 * 1024;

/// What is between `start` and `end` of `old` has become `with`: the diff, and
/// the line (from 1) where the change begins.
pub(crate) fn diff(old: &[u8], start: usize, end: usize, with: &[u8]) -> (String, usize) {
    let new = [&old[..start], with, &old[end..]].concat();
    let (old, new): (Vec<&[u8]>, Vec<&[u8]>) = (lines(old), lines(&new));
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - same;
    let tail =
        old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(CONTEXT);
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let after = (old_end + CONTEXT).min(old.len());
    let mut text = format!(
        "@@ -{},{} +{},{} @@\n",
        from + 1,
        after - from,
        from + 1,
        after - old_end + new_end - from
    );
    let parts = [
        (' ', &old[from..same]),
        ('-', &old[same..old_end]),
        ('+', &new[same..new_end]),
        (' ', &old[old_end..after]),
    ];
    for (mark, lines) in parts {
        if !add(&mut text, mark, lines) {
            break;
        }
    }
    (text, same + 1)
}

/// Adds lines behind a mark; false once there is no more room.
fn add(text: &mut String, mark: char, lines: &[&[u8]]) -> bool {
    const CUT: &str = "… the diff goes on\n";
    for line in lines {
        let line = String::from_utf8_lossy(line);
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

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|it| *it == b'\n').collect()
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

    #[test]
    fn a_large_change_is_cut() {
        let (text, _) = diff(b"a\n", 0, 1, "語\n".repeat(5000).as_bytes());
        assert!(text.len() <= MOST);
        assert!(text.ends_with("+語\n… the diff goes on\n"));
    }
}
