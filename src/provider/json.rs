//! JSON that others wrote, as values. Pure. A value takes up to a hundred times
//! the memory of its text, so that their number is bounded before one is made.
//! What some servers write wrong in a text, half a character, is no reason to
//! lose an answer: it reads as the mark of what is missing.

use serde_json::Value;

/// Most values of one event, or of one whole body.
pub(super) const MOST_VALUES: usize = 64 * 1024;

/// The value that a text is; in words why it is none, or that it has more than
/// `most` parts.
pub(super) fn read(text: &[u8], most: usize) -> Result<Value, String> {
    if values(text) > most {
        return Err(format!("it has more than {most} values"));
    }
    serde_json::from_slice(text).or_else(|error| {
        // Only the whole of it is told of in the words of what came.
        serde_json::from_str(&repaired(text)).map_err(|_| error.to_string())
    })
}

/// How many values a text has at most: one, and one more for each bracket that
/// opens and each comma outside its strings.
pub(super) fn values(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' if !in_string => count += 1,
            _ => (),
        }
    }
    count
}

/// The text with U+FFFD for bytes that are no UTF-8 and for each half of a
/// surrogate pair that stands alone.
fn repaired(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut whole = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        let (length, is_half) = escape_at(escape);
        whole.push_str(before);
        whole.push_str(if is_half { "\\ufffd" } else { &escape[..length] });
        rest = &escape[length..];
    }
    whole + rest
}

/// The length of the escape that a text begins with, a pair as one, and
/// whether it is half of a pair.
fn escape_at(text: &str) -> (usize, bool) {
    match (unit(text), text.get(6..).and_then(unit)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (12, false),
        (Some(0xd800..=0xdfff), _) => (6, true),
        (Some(_), _) => (6, false),
        // Whatever is escaped, it is one character.
        (None, _) => (1 + text.chars().nth(1).map_or(0, char::len_utf8), false),
    }
}

/// The unit of UTF-16 that a text begins with, if it is one (`\uXXXX`).
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let are_hex = digits.bytes().all(|it| it.is_ascii_hexdigit());
    are_hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &[u8], want: Value) {
        assert_eq!(read(text, MOST_VALUES), Ok(want));
    }

    #[test]
    fn half_a_character_costs_no_more_than_itself() {
        check(br#"["a\ud83d"]"#, json!(["a\u{fffd}"]));
        check(br#"["\ude00b"]"#, json!(["\u{fffd}b"]));
        check(br#"["\ud83d\ud83d\ude00\ud83d\u0041"]"#, json!(["\u{fffd}\u{1f600}\u{fffd}A"]));
        check(br#"["\ud83d\n\\ud83d\"\\"]"#, json!(["\u{fffd}\n\\ud83d\"\\"]));
        check(b"[\"a\xff\xc3b\"]", json!(["a\u{fffd}\u{fffd}b"]));
        check(b"[\"\xc3\\ud83d\"]", json!(["\u{fffd}\u{fffd}"]));
    }

    #[test]
    fn what_is_no_json_stays_none() {
        for text in ["", "[", "[1,]", "\\", "[\"\\ud83", "[\"\\é\"]", "[\"\\u12é\"]", "NaN"] {
            assert!(read(text.as_bytes(), MOST_VALUES).is_err(), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(read(deep.as_bytes(), usize::MAX).is_err_and(|it| it.contains("recursion")));
    }

    #[test]
    fn values_are_counted_before_they_are_made() {
        for (text, most) in [("7", 1), ("[]", 2), (r#"{"a":[1,2],"b":{}}"#, 6)] {
            assert_eq!(values(text.as_bytes()), most, "{text}");
            assert!(read(text.as_bytes(), most).is_ok());
            let why = read(text.as_bytes(), most - 1);
            assert!(why.is_err_and(|it| it.contains("values")), "{text}");
        }
        check(br#"[",[{\",[{"]"#, json!([",[{\",[{"]));
        assert_eq!(values(br#"[",[{\",[{"]"#), 2);
    }
}
