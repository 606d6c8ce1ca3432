//! How much memory a message would take once it is read, told from its text. A
//! small value takes many times its bytes: 16 MiB of `{"":0},` took two gigabytes.
//! Pure, and rough: what a text, a list or an object takes at most is counted.

/// Messages up to so many bytes are read whatever is in them.
const FREE: usize = 1024 * 1024;

/// What one may take, in bytes: eight times that of the longest text.
const MOST: usize = 128 * 1024 * 1024;

/// An object that holds something has room for eleven fields.
const OBJECT: usize = 512;

/// A field of one.
const FIELD: usize = 128;

/// A value in a list, which is grown by doubling it.
const ITEM: usize = 64;

/// Whether a message may be read.
pub(in crate::plugin) fn is_bearable(message: &[u8]) -> bool {
    message.len() <= FREE || weight(message) <= MOST
}

fn weight(message: &[u8]) -> usize {
    let mut weight = message.len();
    let mut rest = message.iter();
    while let Some(byte) = rest.next() {
        weight += match byte {
            b'"' => {
                skip_text(&mut rest);
                0
            }
            b'{' => OBJECT,
            b':' => FIELD,
            b',' | b'[' => ITEM,
            _ => 0,
        };
    }
    weight
}

/// To the end of a text that has begun.
fn skip_text<'a>(rest: &mut impl Iterator<Item = &'a u8>) {
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(rest.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(of: &str, want: bool) {
        let message = format!("[{}0]", of.repeat(15 * 1024 * 1024 / of.len()));
        assert_eq!(is_bearable(message.as_bytes()), want, "{of}");
    }

    #[test]
    fn what_takes_many_times_its_text_is_not_read() {
        for of in ["0,", "[],", "{\"\":0},", "{\"a\":{\"b\":{}}},", "[[[[", "\"\","] {
            check(of, false);
        }
    }

    #[test]
    fn texts_are_read_however_long_and_whatever_is_in_them() {
        let text = format!("\"{}\",", "{[:,\\\"x".repeat(1000));
        check(&text, true);
        check(
            "{\"name\": \"a row of some table\", \"text\": \"and what stands in it, which is long and \
               goes on for a few more words than this\"},",
            true,
        );
        assert!(is_bearable("0,".repeat(FREE / 2).as_bytes()));
        assert!(is_bearable(&[b'\\'; 2 * FREE]) && is_bearable(&[b'"'; 3 * FREE]));
    }
}
