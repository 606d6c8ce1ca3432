//! JSON text in pieces, in one spelling: an escape that need not be one becomes
//! its character, and the others are written as serde writes them. So a secret
//! stands in it as the redactor knows it, whoever wrote the text. Nothing else of
//! it changes, also where it is no JSON.

/// Respells a text that comes in pieces.
#[derive(Debug, Default)]
pub struct JsonSpelling {
    /// An escape that has begun: less than two of `\uXXXX`.
    half: String,
}

/// What begins with a backslash.
#[derive(Debug, PartialEq, Eq)]
enum Escape {
    /// So many bytes that stand for that character.
    Of(char, usize),
    /// So many bytes that are left as they are.
    Kept(usize),
    /// More is to come.
    Half,
}

impl JsonSpelling {
    /// What is known of the text once that piece has come: all but half an
    /// escape at its end.
    pub fn take(&mut self, piece: &str) -> String {
        let joined = std::mem::take(&mut self.half) + piece;
        let (mut told, mut rest) = (String::with_capacity(joined.len()), joined.as_str());
        while let Some(at) = rest.find('\\') {
            told.push_str(&rest[..at]);
            rest = &rest[at..];
            let length = match escape(rest) {
                Escape::Of(char, length) => {
                    push(&mut told, char);
                    length
                }
                Escape::Kept(length) => {
                    told.push_str(&rest[..length]);
                    length
                }
                Escape::Half => {
                    self.half = rest.to_owned();
                    return told;
                }
            };
            rest = &rest[length..];
        }
        told.push_str(rest);
        told
    }

    /// Half an escape at the end: nothing more comes.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.half)
    }
}

/// The escape that a text begins with.
fn escape(text: &str) -> Escape {
    match text[1..].chars().next() {
        None => Escape::Half,
        Some('/') => Escape::Of('/', 2),
        Some('u') => unicode(text),
        Some(other) => Escape::Kept(1 + other.len_utf8()),
    }
}

/// One of a code, or of two that make one character. What is none of both is
/// kept up to its `u`, and half a character as it is.
fn unicode(text: &str) -> Escape {
    let Some(first) = code(text) else { return half_or(text, Escape::Kept(2)) };
    if let Some(char) = char::from_u32(first) {
        return Escape::Of(char, 6);
    }
    let second = &text[6..];
    match code(second) {
        _ if first >= 0xDC00 => Escape::Kept(6),
        Some(low @ 0xDC00..0xE000) => {
            let both = 0x10000 + ((first - 0xD800) << 10) + (low - 0xDC00);
            char::from_u32(both).map_or(Escape::Kept(12), |it| Escape::Of(it, 12))
        }
        Some(_) => Escape::Kept(6),
        None => half_or(second, Escape::Kept(6)),
    }
}

/// The code of `\uXXXX` at the start of a text.
fn code(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.as_bytes().get(..4)?;
    let mut digits = digits.iter().map(|it| char::from(*it).to_digit(16));
    digits.try_fold(0, |code, digit| Some(code * 16 + digit?))
}

/// Half, if more of the text could make it `\uXXXX`.
fn half_or(text: &str, other: Escape) -> Escape {
    let of_mark = |(at, it): (usize, u8)| match at {
        0 => it == b'\\',
        1 => it == b'u',
        _ => it.is_ascii_hexdigit(),
    };
    let is_half = text.len() < 6 && text.bytes().enumerate().all(of_mark);
    if is_half { Escape::Half } else { other }
}

/// The character as it stands in a string that serde writes.
fn push(to: &mut String, char: char) {
    if char != '"' && char != '\\' && char >= ' ' {
        return to.push(char);
    }
    let string = serde_json::Value::from(char.to_string()).to_string();
    to.push_str(&string[1..string.len() - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In any three pieces it reads the same.
    #[track_caller]
    fn check(text: &str, want: &str) {
        for second in (0..=text.len()).filter(|it| text.is_char_boundary(*it)) {
            for first in (0..=second).filter(|it| text.is_char_boundary(*it)) {
                let mut spelling = JsonSpelling::default();
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                let told = pieces.map(|it| spelling.take(it)).concat() + &spelling.rest();
                assert_eq!(told, want, "{pieces:?}");
            }
        }
    }

    #[test]
    fn what_needs_no_escape_has_none() {
        check(r#"{"a":"é \u0073k\/\u002b\u00E9\u00e9"}"#, r#"{"a":"é sk/+éé"}"#);
        check(r#""\ud83d\ude00\u6e2c""#, "\"\u{1f600}測\"");
        check(r#""\\u0073\\\u0073""#, r#""\\u0073\\s""#);
    }

    #[test]
    fn what_needs_one_has_that_of_serde() {
        check(r#""\"\\\n\t\b\f\r""#, r#""\"\\\n\t\b\f\r""#);
        check(r#""\u0022\u005c\u000a\u001F""#, r#""\"\\\n\u001f""#);
    }

    #[test]
    fn what_is_no_escape_stays_as_it_is() {
        for text in [r"\", r"\é", r"\u00", r"\u00x1", r"\ud83d", r"\ud83d\ud83d", r"\ude00\u00"] {
            check(text, text);
        }
        check(r"\ud83d\u0041\u", r"\ud83dA\u");
        check(r"\ud83\ud83d\n", r"\ud83\ud83d\n");
    }
}
