//! Replaces the one place in a file where the old text stands, byte for byte.
//! In a file with CRLF line ends, text given with LF means those line ends; a
//! byte order mark stays. No place, or more than one, changes nothing and says
//! what would help.

use std::fs::File;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::diff::diff;
use super::failure::{Code, Failure};
use super::open::open_file;
use super::replace::Replacement;
use super::talk::Talk;
use super::{Place, nearest};

/// Largest file, in bytes.
const MOST_FILE: u64 = 64 * 1024 * 1024;

/// Largest old or new text, in bytes.
const MOST_TEXT: u64 = 8 * 1024 * 1024;

/// Bytes of a file or of the texts, over which patches take turns.
const SMALL: usize = 1024 * 1024;

/// Whose turn it is among the threads of this process.
static TURN: Mutex<()> = Mutex::new(());

/// Places named when there are several.
const MOST_PLACES: usize = 10;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// What is to change in a content.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    start: usize,
    end: usize,
    with: Vec<u8>,
}

/// Why a content cannot be changed.
#[derive(Debug, PartialEq, Eq)]
enum Unclear {
    Empty,
    NoMatch,
    /// How many places, and the lines of the first.
    ManyMatches(usize, Vec<usize>),
}

/// Patches a file; old and new text follow as input.
pub(crate) fn patch(
    talk: &mut Talk<'_>,
    place: &Place<'_>,
    old: u64,
    new: u64,
) -> Result<Value, Failure> {
    if old > MOST_TEXT || new > MOST_TEXT {
        let text = "the old or new text is over 8 MiB; patch a smaller part, or write the file";
        return Err(Failure::new(Code::TooLarge, text));
    }
    let mut texts = Vec::new();
    talk.take_all(old + new, |piece| {
        texts.extend_from_slice(piece);
        Ok(())
    })?;
    // What costs much memory is done one after the other: it may be PID 1's.
    let large = texts.len() > SMALL || size(place) > SMALL as u64;
    let _turn = large.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    let (old, new) = texts.split_at(usize::try_from(old).unwrap_or(usize::MAX).min(texts.len()));
    let content = content(place)?;
    let change = find(&content, old, new).map_err(|it| explain(&it, place, &content, old))?;
    let mut replacement = Replacement::begin(place, "patch")?;
    for piece in [&content[..change.start], &change.with, &content[change.end..]] {
        replacement.add(piece)?;
    }
    replacement.finish()?;
    let (diff, line) = diff(&content, change.start, change.end, &change.with);
    let bytes = content.len() - (change.end - change.start) + change.with.len();
    Ok(json!({ "diff": diff, "line": line, "bytes": bytes }))
}

/// Bytes of the file now; 0 where that cannot be said yet.
fn size(place: &Place<'_>) -> u64 {
    let opened = open_file(place, "patch");
    opened.map_or(0, |(_, stat)| u64::try_from(stat.st_size).unwrap_or(0))
}

fn content(place: &Place<'_>) -> Result<Vec<u8>, Failure> {
    let (file, _) = open_file(place, "patch")?;
    let mut content = Vec::new();
    let mut from: std::io::Take<File> = file.take(MOST_FILE + 1);
    from.read_to_end(&mut content).map_err(|it| Failure::of(&it, "patch", &place.asked))?;
    if content.len() as u64 > MOST_FILE {
        let text = format!("cannot patch {}: it is over 64 MiB; use exec", place.asked.display());
        return Err(Failure::new(Code::TooLarge, text));
    }
    Ok(content)
}

/// Finds the one place of the old text.
fn find(content: &[u8], old: &[u8], new: &[u8]) -> Result<Change, Unclear> {
    let (old, new) =
        if content.starts_with(BOM) { (without_bom(old), without_bom(new)) } else { (old, new) };
    if old.is_empty() {
        return Err(Unclear::Empty);
    }
    let converts = !old.contains(&b'\r') && has_crlf(content);
    if converts && only_crlf(content) {
        return find_exactly(content, &with_crlf(old), with_crlf(new));
    }
    match find_exactly(content, old, new.to_vec()) {
        Err(Unclear::NoMatch) if converts => find_exactly(content, &with_crlf(old), with_crlf(new)),
        it => it,
    }
}

fn find_exactly(content: &[u8], old: &[u8], with: Vec<u8>) -> Result<Change, Unclear> {
    let (count, first) = places(content, old);
    match (count, first.first()) {
        (1, Some(start)) => Ok(Change { start: *start, end: start + old.len(), with }),
        (0, _) | (_, None) => Err(Unclear::NoMatch),
        _ => {
            let lines = first.iter().map(|it| line_of(content, *it)).collect();
            Err(Unclear::ManyMatches(count, lines))
        }
    }
}

/// How many places the needle has, overlapping ones too, and the first of them,
/// in time linear in both (Knuth, Morris, Pratt): a model's text is hostile as
/// well.
fn places(content: &[u8], needle: &[u8]) -> (usize, Vec<usize>) {
    let mut back = vec![0_usize; needle.len()];
    let mut matched = 0;
    for at in 1..needle.len() {
        while matched > 0 && needle[at] != needle[matched] {
            matched = back[matched - 1];
        }
        matched += usize::from(needle[at] == needle[matched]);
        back[at] = matched;
    }
    let (mut count, mut first) = (0, Vec::new());
    matched = 0;
    for (at, byte) in content.iter().enumerate() {
        while matched > 0 && (matched == needle.len() || *byte != needle[matched]) {
            matched = back[matched - 1];
        }
        matched += usize::from(*byte == needle[matched]);
        if matched == needle.len() {
            count += 1;
            if first.len() < MOST_PLACES {
                first.push(at + 1 - needle.len());
            }
        }
    }
    (count, first)
}

fn line_of(content: &[u8], at: usize) -> usize {
    content[..at].iter().filter(|it| **it == b'\n').count() + 1
}

fn without_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(BOM).unwrap_or(text)
}

fn has_crlf(content: &[u8]) -> bool {
    content.windows(2).any(|it| it == b"\r\n")
}

fn only_crlf(content: &[u8]) -> bool {
    let mut before = 0;
    content.iter().all(|it| {
        let fits = *it != b'\n' || before == b'\r';
        before = *it;
        fits
    })
}

/// The text with CRLF for every LF that has none yet.
fn with_crlf(text: &[u8]) -> Vec<u8> {
    let mut converted = Vec::with_capacity(text.len() + text.len() / 16);
    for byte in text {
        if *byte == b'\n' && converted.last() != Some(&b'\r') {
            converted.push(b'\r');
        }
        converted.push(*byte);
    }
    converted
}

fn explain(unclear: &Unclear, place: &Place<'_>, content: &[u8], old: &[u8]) -> Failure {
    let path = place.asked.display();
    match unclear {
        Unclear::Empty => Failure::new(
            Code::Empty,
            format!(
                "cannot patch {path}: the old text is empty; give the text to replace, or write the file"
            ),
        ),
        Unclear::ManyMatches(count, lines) => {
            let named: Vec<String> = lines.iter().map(ToString::to_string).collect();
            let more = if *count > lines.len() { ", …" } else { "" };
            let text = format!(
                "cannot patch {path}: the old text stands there {count} times (lines {}{more}); \
                 add lines around it until it is unique",
                named.join(", ")
            );
            Failure::new(Code::ManyMatches, text).with("count", *count).with("lines", lines.clone())
        }
        Unclear::NoMatch => {
            let text = format!("cannot patch {path}: the old text does not stand there");
            let Some(near) = nearest::nearest(content, old) else {
                return Failure::new(Code::NoMatch, format!("{text}; read the file first"));
            };
            let text =
                format!("{text}; nearest is line {}: {} ({})", near.line, near.text, near.why);
            Failure::new(Code::NoMatch, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content: &str, old: &str, new: &str, want: Result<&str, Unclear>) {
        let got = find(content.as_bytes(), old.as_bytes(), new.as_bytes()).map(|it| {
            let content = content.as_bytes();
            let new = [&content[..it.start], &it.with, &content[it.end..]].concat();
            String::from_utf8_lossy(&new).into_owned()
        });
        assert_eq!(got, want.map(String::from));
    }

    #[test]
    fn the_one_place_is_replaced_and_the_new_text_is_only_text() {
        check("a foo b", "foo", "$& $1 \\1", Ok("a $& $1 \\1 b"));
        check("foo", "foo", "", Ok(""));
        check("日本語", "本", "x", Ok("日x語"));
    }

    #[test]
    fn no_place_several_and_no_text_change_nothing() {
        check("abc", "x", "y", Err(Unclear::NoMatch));
        check("abc", "", "y", Err(Unclear::Empty));
        check("foo\nfoo foo", "foo", "bar", Err(Unclear::ManyMatches(3, vec![1, 2, 2])));
        check("aaa", "aa", "b", Err(Unclear::ManyMatches(2, vec![1, 1])));
        check(&"x\n".repeat(20), "x", "y", Err(Unclear::ManyMatches(20, (1..=10).collect())));
    }

    #[test]
    fn line_ends_are_those_of_the_file() {
        check("a\r\nb\r\n", "a\nb", "x\ny\nz", Ok("x\r\ny\r\nz\r\n"));
        check("a\r\nb\r\n", "a", "x\ny", Ok("x\r\ny\r\nb\r\n"));
        check("a\r\nb\r\n", "a\r\nb", "x\ny", Ok("x\ny\r\n"));
        check("a\nb\n", "a\nb", "x\r\ny", Ok("x\r\ny\n"));
        check("a\r\nb\nc\n", "b\nc", "x\ny", Ok("a\r\nx\ny\n"));
        check("a\r\nb\nc\n", "a\nb", "x\ny", Ok("x\r\ny\nc\n"));
        check("a\r\nb\r\n", "a\n", "x\r\ny\n", Ok("x\r\ny\r\nb\r\n"));
    }

    #[test]
    fn a_byte_order_mark_stays() {
        check("\u{feff}a b", "a", "x", Ok("\u{feff}x b"));
        check("\u{feff}a b", "\u{feff}a", "x", Ok("\u{feff}x b"));
        check("\u{feff}a b", "\u{feff}a", "\u{feff}x", Ok("\u{feff}x b"));
        check("\u{feff}a b", "\u{feff}", "x", Err(Unclear::Empty));
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        let got = find(b"\xff\xfea\x80b", b"a", b"xy");
        assert_eq!(got, Ok(Change { start: 2, end: 3, with: b"xy".to_vec() }));
    }

    #[test]
    fn places_are_found_as_a_plain_search_finds_them() {
        for content in ["", "a", "aab", "abaabaab", "aaaa", "abcabcabd", "ababababb"] {
            for needle in ["a", "ab", "aa", "aab", "abab", "abd", "ba", "abaab"] {
                let plain: Vec<usize> =
                    (0..content.len()).filter(|it| content[*it..].starts_with(needle)).collect();
                assert_eq!(
                    places(content.as_bytes(), needle.as_bytes()),
                    (plain.len(), plain),
                    "{needle} in {content}"
                );
            }
        }
    }
}
