//! JSON that others wrote, as values. Pure. A value takes up to a hundred times
//! the memory of its text, so that their number is bounded before one is made.

use serde_json::Value;

use crate::message::read_json;

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
    read_json(text).map_err(|error| format!("not valid JSON ({error})"))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &[u8], want: Value) {
        assert_eq!(read(text, MOST_VALUES), Ok(want));
    }

    #[test]
    fn what_is_no_json_stays_none() {
        let half = read(br#"["\ud83d""#, MOST_VALUES);
        assert!(half.is_err_and(|it| it.starts_with("not valid JSON")));
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
