//! What a file is by its first bytes, and where text may be cut.

/// Bytes that decide what a file is.
pub(crate) const HEAD: usize = 8 * 1024;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An image that models can see, by its MIME type.
    Image(&'static str),
    /// To be described, not shown.
    Binary,
    /// To be shown by lines.
    Text,
}

/// Decides by the first bytes, [`HEAD`] at most.
pub(crate) fn kind(head: &[u8]) -> Kind {
    match head {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Kind::Image("image/png"),
        [0xff, 0xd8, 0xff, ..] => Kind::Image("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Kind::Image("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => {
            Kind::Image("image/webp")
        }
        _ if head.contains(&0) || mostly_invalid(head) => Kind::Binary,
        _ => Kind::Text,
    }
}

/// Whether more than three bytes of ten are no UTF-8: text in an old encoding
/// of European languages has fewer.
fn mostly_invalid(head: &[u8]) -> bool {
    let invalid: usize = head.utf8_chunks().map(|it| it.invalid().len()).sum();
    invalid * 10 > head.len() * 3
}

/// The longest beginning of at most so many bytes that ends between two
/// characters; bytes that are no UTF-8 count as characters of their own.
pub(crate) fn cut(bytes: &[u8], most: usize) -> &[u8] {
    let Some(short) = bytes.get(..most).filter(|it| it.len() < bytes.len()) else { return bytes };
    // The start of a character stands at most three bytes before a cut in it.
    for back in 1..=3.min(short.len()) {
        let start = short.len() - back;
        let length = match short[start] {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        let whole =
            bytes.get(start..start + length).is_some_and(|it| std::str::from_utf8(it).is_ok());
        return if length > back && whole { &short[..start] } else { short };
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_content() {
        assert_eq!(kind(b"\x89PNG\r\n\x1a\n...."), Kind::Image("image/png"));
        assert_eq!(kind(b"\xff\xd8\xff\xe0"), Kind::Image("image/jpeg"));
        assert_eq!(kind(b"GIF89a"), Kind::Image("image/gif"));
        assert_eq!(kind(b"RIFF1234WEBPVP8 "), Kind::Image("image/webp"));
        assert_eq!(kind(b"RIFF1234WAVE"), Kind::Text);
    }

    #[test]
    fn text_is_what_is_mostly_utf8_without_nul() {
        assert_eq!(kind(b""), Kind::Text);
        assert_eq!(kind("日本語".as_bytes()), Kind::Text);
        assert_eq!(kind(b"Gr\xfc\xdfe aus M\xfcnchen"), Kind::Text);
        assert_eq!(kind(b"a\0b"), Kind::Binary);
        assert_eq!(kind(b"\xff\xfe\xfd\xfc"), Kind::Binary);
        let mut head = "語".repeat(HEAD / 3 + 1).into_bytes();
        head.truncate(HEAD);
        assert_eq!(kind(&head), Kind::Text);
    }

    #[test]
    fn no_cut_goes_through_a_character() {
        let text = "aé語𝄞z";
        for most in 0..=text.len() + 1 {
            let got = cut(text.as_bytes(), most);
            assert!(std::str::from_utf8(got).is_ok(), "{most}: {got:?}");
            assert!(got.len() <= most && got.len() + 3 >= most.min(text.len()), "{most}");
        }
    }

    #[test]
    fn what_is_no_utf8_is_cut_where_it_was_asked() {
        let bytes = b"\xe8\x28\x80\x80\xff\xe8ab";
        for most in [1, 4, 5, 6, 7] {
            assert_eq!(cut(bytes, most).len(), most, "{most}");
        }
    }
}
