//! JSON that others wrote, as values. Pure. A value takes up to a hundred times
//! the memory of its text, so that their number is bounded before one is made.
//! What some servers write wrong in a text, half a character, is no reason to
//! lose an answer: it reads as the mark of what is missing.

use serde_json::Value;

/// Most values of one event, or of one whole body.
pub(super) const MOST_VALUES: usize = 64 * 1024;

/// Most levels of one event that are read; serde_json itself takes no more
/// than 127.
const DEEPEST_EVENT: usize = 120;

/// One event of an answer, or its whole body. What lies deeper than
/// [`DEEPEST_EVENT`] levels reads as null, so that arguments of a call without
/// end cost no more than that call: they are refused for the depth that is left.
pub(super) fn read_event(text: &[u8]) -> Result<Value, String> {
    match measure(text).deepest {
        0..=DEEPEST_EVENT => read(text, MOST_VALUES),
        _ => read(&without_depths(text), MOST_VALUES),
    }
}

/// The value that a text is; else what it is instead: no JSON, or one of more
/// than `most` values.
pub(super) fn read(text: &[u8], most: usize) -> Result<Value, String> {
    if values(text) > most {
        return Err(format!("of more than {most} values"));
    }
    serde_json::from_slice(text).or_else(|error| {
        // Told is what is wrong with the text as it came.
        serde_json::from_str(&repaired(text)).map_err(|_| format!("not valid JSON ({error})"))
    })
}

/// How many values a text has at most: one, and one more for each bracket that
/// opens and each comma outside its strings.
pub(super) fn values(text: &[u8]) -> usize {
    measure(text).values
}

/// How many brackets of a text are open at once, at most.
pub(super) fn depth(text: &[u8]) -> usize {
    measure(text).deepest
}

/// What a text is without being read.
struct Measure {
    values: usize,
    deepest: usize,
}

fn measure(text: &[u8]) -> Measure {
    let (mut scan, mut values, mut deepest) = (Scan::default(), 1, 0);
    for byte in text {
        if scan.take(*byte) && matches!(byte, b'[' | b'{' | b',') {
            values += 1;
            deepest = deepest.max(scan.depth);
        }
    }
    Measure { values, deepest }
}

/// A text as it is looked through.
#[derive(Default)]
struct Scan {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl Scan {
    /// Takes the next byte; whether it is one of the structure.
    fn take(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = self.in_string,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => (),
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => return true,
        }
        !self.in_string
    }
}

/// The text with null for what is too deep in it.
fn without_depths(text: &[u8]) -> Vec<u8> {
    let (mut scan, mut kept) = (Scan::default(), Vec::new());
    for byte in text {
        let was_deep = scan.depth > DEEPEST_EVENT;
        scan.take(*byte);
        match (was_deep, scan.depth > DEEPEST_EVENT) {
            (false, false) => kept.push(*byte),
            (false, true) => kept.extend_from_slice(b"null"),
            (true, _) => (),
        }
    }
    kept
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
    fn an_event_reads_however_deep_it_is() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        for levels in [2, DEEPEST_EVENT, DEEPEST_EVENT + 1, 127, 128, 100_000] {
            let text = format!("{{\"a\":{},\"b\":\"[[{{\\\"\"}}", nested(levels - 1));
            let Ok(value) = read_event(text.as_bytes()) else { panic!("{levels} levels") };
            assert_eq!(value["b"], "[[{\"", "{levels} levels");
            let kept = depth(value.to_string().as_bytes());
            assert_eq!(kept, levels.min(DEEPEST_EVENT), "{levels} levels");
        }
        assert!(read_event("[".repeat(1_000).as_bytes()).is_err());
        assert!(read_event("]".repeat(1_000).as_bytes()).is_err());
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
