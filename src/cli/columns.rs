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
