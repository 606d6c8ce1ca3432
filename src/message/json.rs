//! JSON that other programs wrote: events of a provider, lines of a session file,
//! cassettes. Pure. What some write wrong in a text, half a character, is no
//! reason to lose what it stands in: it reads as the mark of what is missing.

use serde::de::DeserializeOwned;

/// The value that a text is. The error is what is wrong with the text as it came.
pub fn read_json<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(text)
        .or_else(|error| serde_json::from_str(&mended(text)).map_err(|_| error))
}

/// The text with U+FFFD for bytes that are no UTF-8 and for each half of a
/// surrogate pair that stands alone: for who reads it with what borrows of it.
pub fn mended(text: &[u8]) -> String {
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
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(text: &[u8], want: Value) {
        assert_eq!(read_json::<Value>(text).ok(), Some(want));
    }

    #[test]
    fn half_a_character_costs_no_more_than_itself() {
        check(br#"["a\ud83d"]"#, json!(["a\u{fffd}"]));
        check(br#"["\ude00b"]"#, json!(["\u{fffd}b"]));
        check(br#"["\ud83d\ud83d\ude00\ud83d\u0041"]"#, json!(["\u{fffd}\u{1f600}\u{fffd}A"]));
        check(br#"["\ud83d\n\\ud83d\"\\"]"#, json!(["\u{fffd}\n\\ud83d\"\\"]));
        check(b"[\"a\xff\xc3b\"]", json!(["a\u{fffd}\u{fffd}b"]));
        check(b"[\"\xc3\\ud83d\"]", json!(["\u{fffd}\u{fffd}"]));
        check(br#"{"\ud83d": "\\"}"#, json!({"\u{fffd}": "\\"}));
    }

    #[test]
    fn what_is_no_json_stays_none_and_is_named_as_it_came() {
        for text in ["", "[", "[1,]", "\\", "[\"\\ud83", "[\"\\é\"]", "[\"\\u12é\"]", "NaN"] {
            assert!(read_json::<Value>(text.as_bytes()).is_err(), "{text}");
        }
        let error = read_json::<Value>(br#"["\ud83d", oops"#).map_err(|it| it.to_string());
        assert!(error.is_err_and(|it| it.contains("hex escape")), "the first thing that is wrong");
    }
}
