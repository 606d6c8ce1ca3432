//! Secrets and the redactor that keeps them out of everything that leaves the
//! gateway: log, audit, error text, HTTP answer. A [`Secret`] cannot be
//! serialized and prints as dots; it is exposed on the line that uses it.

mod json;
mod needle;
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

pub use json::JsonSpelling;
use needle::Needle;
pub use stream::{MaskedStream, MaskedStreams};

/// What stands where a secret stood.
pub const DOTS: &str = "••••";

/// Shortest value that is masked, in bytes: shorter ones would mask ordinary
/// words.
pub const SHORTEST_MASKED: usize = 8;

/// Words of at least [`SHORTEST_MASKED`] bytes that stand in configurations
/// under names that look secret, and that would deface ordinary text.
const COMMON_WORDS: [&str; 19] = [
    "anthropic",
    "assistant",
    "changeme",
    "container",
    "database",
    "development",
    "disabled",
    "external",
    "internal",
    "localhost",
    "optional",
    "password",
    "production",
    "required",
    "telegram",
    "undefined",
    "username",
    "workspace",
    "your-api-key",
];

/// A value that must not be seen.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the value in; hand it to a [`Redactor`] as well.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one line that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(••••)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("••••")
    }
}

/// Knows every secret and masks them in what leaves the gateway. Clones share
/// what they know, so that a secret learnt late is masked everywhere.
#[derive(Clone, Default)]
pub struct Redactor {
    needles: Arc<RwLock<Vec<Needle>>>,
}

impl Redactor {
    /// One that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on masks `value` (without the white space around it) in all
    /// its forms. Values under [`SHORTEST_MASKED`] bytes, common words and
    /// plain numbers are left alone, since they stand in ordinary text.
    pub fn learn(&self, value: &str) {
        let value = value.trim();
        if !is_masked(value) {
            return;
        }
        let mut needles = self.needles.write().unwrap_or_else(PoisonError::into_inner);
        for form in forms(value) {
            if !needles.iter().any(|it| it.text() == form) {
                needles.push(Needle::new(form));
            }
        }
    }

    /// The text with [`DOTS`] in place of every secret; secrets that overlap
    /// become one mask, so that no end of either is left.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let secrets = self.find(text);
        if secrets.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(without(&secrets, text, 0..text.len()))
    }

    /// The same of what was to be JSON and may be none: also with a secret that is
    /// written with escapes. If there is none, the text is as it was.
    pub fn mask_json<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let masked = self.mask(text);
        let mut spelling = JsonSpelling::default();
        let spelt = spelling.take(&masked) + &spelling.rest();
        match self.mask(&spelt) {
            Cow::Owned(masked) => Cow::Owned(masked),
            Cow::Borrowed(_) => masked,
        }
    }

    /// Masks texts that a reader may join: a secret that is parted among them
    /// becomes one mask, where it ends. Tells of each whether it is changed.
    pub fn mask_joined(&self, texts: Vec<&mut String>) -> Vec<bool> {
        MaskedStream::new(self).mask_joined(texts)
    }

    /// How much of a text that goes on can be masked and told now: what is
    /// behind that could be the beginning of a secret.
    pub fn settled(&self, text: &str) -> usize {
        let begun = {
            let needles = self.needles.read().unwrap_or_else(PoisonError::into_inner);
            needles.iter().map(|it| it.begun(text)).max().unwrap_or(0)
        };
        let cut = text.len() - begun;
        if begun == 0 {
            return cut;
        }
        // A secret that is whole must not be parted either.
        let mut whole = self.find(text).into_iter();
        whole.find(|it| it.start < cut && cut < it.end).map_or(cut, |it| it.start)
    }

    /// Of a text that was cut behind these bytes, all but what could be the
    /// beginning of a secret: nobody sees any more whether it is one.
    pub fn without_beginning<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let text = String::from_utf8_lossy(bytes);
        let begun = text.len() - self.settled(&text);
        &bytes[..bytes.len().saturating_sub(begun)]
    }

    /// Of a text that was cut before these bytes, all but what could be the end
    /// of a secret.
    pub fn without_end<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let text = String::from_utf8_lossy(bytes);
        let ended = {
            let needles = self.needles.read().unwrap_or_else(PoisonError::into_inner);
            needles.iter().map(|it| ended(&text, it.text())).max().unwrap_or(0)
        };
        // A secret that is whole must not be parted either.
        let mut whole = self.find(&text).into_iter();
        let ended = whole.find(|it| it.start < ended && ended < it.end).map_or(ended, |it| it.end);
        &bytes[ended.min(bytes.len())..]
    }

    /// Where secrets stand, in order; those that overlap as one.
    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let needles = self.needles.read().unwrap_or_else(PoisonError::into_inner);
        merge(needles.iter().flat_map(|needle| needle.runs(text)).collect())
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor(••••)")
    }
}

/// Whether a value, without the white space around it, is masked once it is
/// learnt.
pub fn is_masked(value: &str) -> bool {
    let is_number =
        value.trim_start_matches(['+', '-']).bytes().all(|it| it.is_ascii_digit() || it == b'.');
    value.len() >= SHORTEST_MASKED
        && !is_number
        && !COMMON_WORDS.iter().any(|it| it.eq_ignore_ascii_case(value))
}

/// Every way a secret is written in what we send: as it is, and as it stands
/// inside a JSON string.
fn forms(value: &str) -> Vec<String> {
    let json = serde_json::Value::from(value).to_string();
    let escaped = &json[1..json.len() - 1];
    let mut forms = vec![value.to_owned()];
    if escaped != value {
        forms.push(escaped.to_owned());
    }
    forms
}

/// That part of the text: [`DOTS`] for each secret that ends in it, and nothing
/// of one that ends behind it.
fn without(secrets: &[Range<usize>], text: &str, part: Range<usize>) -> String {
    let mut masked = String::with_capacity(part.len());
    let mut done = part.start;
    let first = secrets.partition_point(|it| it.end <= part.start);
    for secret in secrets[first..].iter().take_while(|it| it.start < part.end) {
        masked.push_str(&text[done..secret.start.max(done)]);
        if secret.end <= part.end {
            masked.push_str(DOTS);
        }
        done = secret.end.min(part.end);
    }
    masked.push_str(&text[done..part.end]);
    masked
}

/// Bytes at the start of the text that the needle ends with, but not all of it.
fn ended(text: &str, needle: &str) -> usize {
    let most = text.len().min(needle.len().saturating_sub(1));
    let starts = |it: &usize| text.as_bytes().starts_with(&needle.as_bytes()[needle.len() - it..]);
    (1..=most).rev().find(starts).unwrap_or(0)
}

/// Ranges in order, those that overlap joined.
fn merge(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|it| it.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(secrets: &[&str], text: &str, want: &str) {
        let redactor = Redactor::new();
        secrets.iter().for_each(|it| redactor.learn(it));
        assert_eq!(redactor.mask(text), want);
    }

    #[test]
    fn a_known_secret_becomes_dots_wherever_it_stands() {
        check(&["s3cret-key"], "s3cret-key", "••••");
        check(&["s3cret-key"], "a=s3cret-key; b=s3cret-keys3cret-key.", "a=••••; b=••••••••.");
        check(&["s3cret-key"], "s3cret-kex", "s3cret-kex");
        check(&["schlüssel"], "ü schlüssel ü", "ü •••• ü");
        check(&["\n s3cret-key\n"], "s3cret-key", "••••");
    }

    #[test]
    fn of_secrets_that_overlap_nothing_is_left() {
        check(&["longsecret", "longsecret-longer"], "x longsecret-longer y", "x •••• y");
        check(&["abcdefgh", "efghijkl"], "abcdefghijkl", "••••");
        check(&["abababab"], "xababababababx", "x••••x");
    }

    #[test]
    fn the_form_inside_a_json_string_is_masked() {
        check(&["line one\nline \"two\""], r#"{"a":"line one\nline \"two\""}"#, r#"{"a":"••••"}"#);
    }

    #[test]
    fn however_it_is_escaped_it_is_masked_in_json() {
        #[track_caller]
        fn check(text: &str, want: &str) {
            let redactor = Redactor::new();
            redactor.learn("s3cret-key/Zz+9<q>");
            assert_eq!(redactor.mask_json(text), want);
        }
        check(r#"{"a":"s3cret-key\/Zz+9<q>" BAD"#, r#"{"a":"••••" BAD"#);
        check(r#"{"a":"\u00733cret-key/Zz\u002b9\u003cq\u003E" BAD"#, r#"{"a":"••••" BAD"#);
        check("s3cret-key/Zz+9<q>", "••••");
        check(r#"{"a":"\/ \u0073" BAD"#, r#"{"a":"\/ \u0073" BAD"#);
    }

    #[test]
    fn what_stands_in_ordinary_text_is_not_masked() {
        for value in ["", "short77", "Password", "localhost", "1234567890", "-12345678.25"] {
            check(&[value], &format!("a {value} b"), &format!("a {value} b"));
        }
    }

    #[test]
    fn what_may_become_a_secret_is_not_settled() {
        #[track_caller]
        fn check(secrets: &[&str], text: &str, want: &str) {
            let redactor = Redactor::new();
            secrets.iter().for_each(|it| redactor.learn(it));
            assert_eq!(&text[..redactor.settled(text)], want);
        }
        check(&[], "abc", "abc");
        check(&["schlüssel"], "ein schlü", "ein ");
        check(&["schlüssel"], "ein schloss ", "ein schloss ");
        check(&["schlüssel"], "ein schlüssel", "ein schlüssel");
        check(&["abcdefgh", "efghijkl"], "x abcdefgh", "x ");
        check(&["abababab"], "x ab", "x ");
    }

    #[test]
    fn of_a_secret_that_was_cut_neither_half_is_left() {
        #[track_caller]
        fn check(secrets: &[&str], (text, without_beginning): (&[u8], &[u8]), without_end: &[u8]) {
            let redactor = Redactor::new();
            secrets.iter().for_each(|it| redactor.learn(it));
            assert_eq!(redactor.without_beginning(text), without_beginning);
            assert_eq!(redactor.without_end(text), without_end);
        }
        check(&[], (b"abc", b"abc"), b"abc");
        check(&["s3cret-key"], (b"y key s3cre", b"y key "), b" key s3cre");
        check(&["s3cret-key"], (b"s3cret-key", b"s3cret-key"), b"s3cret-key");
        check(&["s3cret-key"], (b"\xffkey \xff", b"\xffkey \xff"), b"\xffkey \xff");
        check(&["s3cret-key"], (b"-key \xff s3", b"-key \xff "), b" \xff s3");
        check(&["abcdefgh", "ghabcdef"], (b"ghabcdefx", b"ghabcdefx"), b"x");
    }

    #[test]
    fn a_secret_that_is_parted_among_texts_is_masked_where_it_ends() {
        #[track_caller]
        fn check(texts: &[&str], want: &[(&str, bool)]) {
            let redactor = Redactor::new();
            ["s3cret-key", "abcdefgh", "efghijkl"].iter().for_each(|it| redactor.learn(it));
            let mut texts: Vec<String> = texts.iter().map(|it| (*it).to_owned()).collect();
            let changed = redactor.mask_joined(texts.iter_mut().collect());
            let got: Vec<_> = texts.iter().map(String::as_str).zip(changed).collect();
            assert_eq!(got, want);
        }
        check(&[], &[]);
        check(&["a", "", "b"], &[("a", false), ("", false), ("b", false)]);
        check(&["a s3c", "ret-key b"], &[("a ", true), ("•••• b", true)]);
        check(&["s3", "", "cret", "-key"], &[("", true), ("", false), ("", true), ("••••", true)]);
        check(&["s3cret-key", "s3cret-kex"], &[("••••", true), ("s3cret-kex", false)]);
        check(&["xabcdefgh", "ijkl."], &[("x", true), ("••••.", true)]);
        check(&["é s3cret-key é s3", "cret-key é"], &[("é •••• é ", true), ("•••• é", true)]);
    }

    #[test]
    fn a_text_without_secrets_is_not_copied() {
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        assert!(matches!(redactor.mask("nothing here"), Cow::Borrowed("nothing here")));
    }

    #[test]
    fn clones_share_what_they_know_and_show_nothing() {
        let redactor = Redactor::new();
        redactor.clone().learn("s3cret-key");
        assert_eq!(redactor.mask("s3cret-key"), DOTS);
        assert_eq!(
            format!("{redactor:?}{:?}", Secret::new("s3cret-key")),
            "Redactor(••••)Secret(••••)"
        );
    }
}
