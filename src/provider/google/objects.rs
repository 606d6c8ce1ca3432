//! Finds the JSON objects of an answer that is no stream of events: one object,
//! a list of them, or one after another. Pure. Each is handed on as soon as it
//! has ended; one larger than [`LARGEST_OBJECT`] is refused, and so is anything
//! else than an object.

use std::fmt;

/// Largest object, in bytes.
const LARGEST_OBJECT: usize = 16 * 1024 * 1024;

/// Why the rest cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// An object is larger than [`LARGEST_OBJECT`].
    TooLarge,
    /// Between two objects stands what is no JSON.
    NoObject(u8),
}

/// A row of objects on its way.
#[derive(Debug, Default)]
pub(super) struct ObjectReader {
    object: Vec<u8>,
    /// Brackets of the object that are open.
    depth: usize,
    /// Lists around the objects that are open.
    lists: usize,
    in_string: bool,
    is_escaped: bool,
}

/// In words.
impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "a piece is larger than {LARGEST_OBJECT} bytes"),
            Self::NoObject(byte) => {
                write!(f, "it is not valid JSON (`{}` where an object begins)", byte.escape_ascii())
            }
        }
    }
}

impl ObjectReader {
    /// Adds the objects that these bytes complete.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        objects: &mut Vec<Vec<u8>>,
    ) -> Result<(), Unreadable> {
        for byte in bytes {
            if self.depth == 0 && !begins_object(*byte)? {
                self.count_list(*byte);
                continue;
            }
            if self.object.len() == LARGEST_OBJECT {
                return Err(Unreadable::TooLarge);
            }
            self.object.push(*byte);
            self.count(*byte);
            if self.depth == 0 {
                objects.push(std::mem::take(&mut self.object));
            }
        }
        Ok(())
    }

    /// Whether nothing is open, so that the bytes may end here.
    pub(super) fn is_at_end(&self) -> bool {
        self.depth == 0 && self.lists == 0
    }

    fn count_list(&mut self, byte: u8) {
        match byte {
            b'[' => self.lists = self.lists.saturating_add(1),
            b']' => self.lists = self.lists.saturating_sub(1),
            _ => (),
        }
    }

    fn count(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = self.in_string,
            b'"' => self.in_string = !self.in_string,
            b'{' if !self.in_string => self.depth += 1,
            b'}' if !self.in_string => self.depth -= 1,
            _ => (),
        }
    }
}

/// Whether an object begins with this byte; else it must be one that may stand
/// between two.
fn begins_object(byte: u8) -> Result<bool, Unreadable> {
    match byte {
        b'{' => Ok(true),
        b'[' | b']' | b',' => Ok(false),
        it if it.is_ascii_whitespace() => Ok(false),
        it => Err(Unreadable::NoObject(it)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        for size in 1..=text.len() {
            let (mut reader, mut objects) = (ObjectReader::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                assert_eq!(reader.feed(piece, &mut objects), Ok(()), "{text}");
            }
            let got: Vec<String> =
                objects.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect();
            assert_eq!(got, want, "pieces of {size}");
        }
    }

    #[test]
    fn objects_are_found_in_a_list_and_without_one() {
        check("{}", &["{}"]);
        check(" [{\"a\":[{}]}\n,\r\n{\"b\":1}]\n", &["{\"a\":[{}]}", "{\"b\":1}"]);
        check("{\"a\":1}\n{\"b\":2}", &["{\"a\":1}", "{\"b\":2}"]);
        check(r#"[{"a}\"{\\":"}é"},{"#, &[r#"{"a}\"{\\":"}é"}"#]);
        check("[", &[]);
    }

    #[test]
    fn it_may_end_where_nothing_is_open() {
        for (text, want) in [
            ("", true),
            ("{}", true),
            ("{} {}", true),
            ("[{}]", true),
            ("[{},", false),
            ("[{}", false),
            ("{", false),
            ("[{}]{\"a", false),
            ("[", false),
            ("]", true),
        ] {
            let mut reader = ObjectReader::default();
            assert!(reader.feed(text.as_bytes(), &mut Vec::new()).is_ok());
            assert_eq!(reader.is_at_end(), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let mut reader = ObjectReader::default();
        let mut objects = Vec::new();
        let read = reader.feed(b"[{},7]", &mut objects);
        assert_eq!((read, objects.len()), (Err(Unreadable::NoObject(b'7')), 1));
        assert!(Unreadable::NoObject(b'7').to_string().contains("not valid JSON (`7`"));
    }

    #[test]
    fn an_object_without_end_is_refused() {
        let mut reader = ObjectReader::default();
        assert_eq!(reader.feed(b"{\"", &mut Vec::new()), Ok(()));
        let piece = vec![b'a'; 1024 * 1024];
        let read = (0..16).map(|_| reader.feed(&piece, &mut Vec::new()));
        assert_eq!(read.last(), Some(Err(Unreadable::TooLarge)));
    }
}
