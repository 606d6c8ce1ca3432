//! Text in columns of a terminal: how wide it is, cut or filled up to a
//! width, and harmless. Pure.

/// At most so many columns of it.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    if columns(text) <= limit {
        return text.to_owned();
    }
    let mut used = 1; // For the ellipsis.
    let fitting = text.chars().take_while(|it| {
        used += column_count(*it);
        used <= limit
    });
    fitting.chain(['…']).collect()
}

/// Exactly so many columns of it: what is too long loses its middle, since
/// names differ at their ends.
pub(super) fn fitted(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return padded(text, width);
    }
    let kept = width.saturating_sub(1); // One is for the ellipsis.
    let start = within(text.chars(), kept.div_ceil(2));
    let end: Vec<char> = within(text.chars().rev(), kept / 2).chars().rev().collect();
    padded(&format!("{start}…{}", end.into_iter().collect::<String>()), width)
}

/// As many characters as go into so many columns.
fn within(text: impl Iterator<Item = char>, limit: usize) -> String {
    let mut used = 0;
    let fits = |it: &char| {
        used += column_count(*it);
        used <= limit
    };
    text.take_while(fits).collect()
}

/// Blanks up to so many columns.
pub(super) fn padded(text: &str, least: usize) -> String {
    format!("{text}{}", " ".repeat(least.saturating_sub(columns(text))))
}

/// Columns that a terminal gives it.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(column_count).sum()
}

/// Columns that a terminal gives a character; those that give it none are
/// escaped before.
fn column_count(it: char) -> usize {
    match it {
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

/// The text with everything escaped that a terminal would obey or not show,
/// line ends too: for whatever has its place in a line, such as a name in a
/// listing.
pub(super) fn in_one_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '"' | '\'' | '\\' => shown.push(it),
            it => shown.extend(it.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_keeps_both_its_ends() {
        let check = |text: &str, width, want: &str| assert_eq!(fitted(text, width), want);
        check("exec", 6, "exec  ");
        check("abcdef", 6, "abcdef");
        check("abcdefg", 6, "abc…fg");
        check("那那那那", 6, "那…那 ");
        check("ab", 1, "…");
    }
}
