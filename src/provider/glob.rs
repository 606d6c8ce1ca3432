//! Matches a text against a pattern of `*` (any characters, also none) and `?`
//! (one character). Each star takes the leftmost place that fits, so nothing
//! is tried twice: the work is at most pattern length times text length.

/// Longest pattern, in characters: keeps the work linear in the text.
pub(super) const LONGEST_PATTERN: usize = 1_000;

/// Whether the whole text fits the pattern.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let mut pieces: Vec<&str> = pattern.split('*').collect();
    let first = if pieces.is_empty() { "" } else { pieces.remove(0) };
    let Some(mut rest) = strip_start(first, text) else { return false };
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some(after) = strip_leftmost(piece, rest) else { return false };
        rest = after;
    }
    ends_with(last, rest)
}

/// What follows a piece at the very start.
fn strip_start<'a>(piece: &str, text: &'a str) -> Option<&'a str> {
    let mut rest = text.chars();
    for wanted in piece.chars() {
        let found = rest.next()?;
        if wanted != '?' && wanted != found {
            return None;
        }
    }
    Some(rest.as_str())
}

fn strip_leftmost<'a>(piece: &str, text: &'a str) -> Option<&'a str> {
    let mut places = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    places.find_map(|place| strip_start(piece, &text[place..]))
}

fn ends_with(piece: &str, text: &str) -> bool {
    let mut rest = text.chars().rev();
    piece.chars().rev().all(|wanted| rest.next().is_some_and(|it| wanted == '?' || wanted == it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, text: &str, want: bool) {
        assert_eq!(fits(pattern, text), want, "{pattern} {text}");
    }

    #[test]
    fn a_pattern_without_stars_is_the_whole_text() {
        check("abc", "abc", true);
        check("abc", "abcd", false);
        check("a?c", "aüc", true);
        check("a?c", "ac", false);
        check("", "", true);
        check("", "a", false);
    }

    #[test]
    fn a_star_is_any_text() {
        check("*", "", true);
        check("*", "a\nb", true);
        check("*hello*", "say hello there", true);
        check("a*a", "a", false);
        check("a*b*c", "aXbYbZc", true);
        check("a*b*c", "acb", false);
        check("*ab", "aab", true);
        check("*?b", "b", false);
        check("**a**", "bab", true);
    }

    #[test]
    fn a_pattern_made_to_backtrack_ends_soon() {
        check(&"*a".repeat(400), &"a".repeat(399), false);
        check(&format!("{}b", "a*".repeat(400)), &"a".repeat(10_000), false);
    }
}
