//! How long a text is where it is stored, as JSON, and how long it may be there.
//! Pure. Whoever lets something in that goes into a session measures it by this,
//! before anything is done with it: a line of a session file has twice the room,
//! so that what stands around a text, and masks in it, always fit.

/// Longest message of a session, in bytes of JSON.
pub const LONGEST_MESSAGE: usize = 16 * 1024 * 1024;

/// How many bytes a text has as JSON, without the quotes around it.
pub fn stored_length(text: &str) -> usize {
    text.bytes().map(escaped_length).sum()
}

/// A byte as serde_json writes it.
fn escaped_length(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_long_as_it_is_written() {
        let all: String = (0..0x300).filter_map(char::from_u32).chain(['那', '😀']).collect();
        let written = serde_json::to_string(&all).unwrap_or_default();
        assert_eq!(stored_length(&all), written.len() - 2);
    }
}
