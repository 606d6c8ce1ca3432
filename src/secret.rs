//! Secrets and the redactor that keeps them out of everything that leaves the
//! gateway: log, audit, error text, HTTP answer. A [`Secret`] cannot be
//! serialized and prints as dots; it is exposed on the line that uses it.

use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

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
    needles: Arc<RwLock<Vec<String>>>,
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
            if !needles.contains(&form) {
                needles.push(form);
            }
        }
    }

    /// The text with [`DOTS`] in place of every secret; secrets that overlap
    /// become one mask, so that no end of either is left.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let found = self.find(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut masked = String::with_capacity(text.len());
        let mut done = 0;
        for range in merge(found) {
            masked.push_str(&text[done..range.start]);
            masked.push_str(DOTS);
            done = range.end;
        }
        masked.push_str(&text[done..]);
        Cow::Owned(masked)
    }

    /// How much of a text that goes on can be masked and told now: what is
    /// behind that could be the beginning of a secret.
    pub fn settled(&self, text: &str) -> usize {
        let begun = {
            let needles = self.needles.read().unwrap_or_else(PoisonError::into_inner);
            needles.iter().map(|it| begun(text, it)).max().unwrap_or(0)
        };
        let cut = text.len() - begun;
        if begun == 0 {
            return cut;
        }
        // A secret that is whole must not be parted either.
        let mut whole = merge(self.find(text)).into_iter();
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
            needles.iter().map(|it| ended(&text, it)).max().unwrap_or(0)
        };
        // A secret that is whole must not be parted either.
        let mut whole = merge(self.find(&text)).into_iter();
        let ended = whole.find(|it| it.start < ended && ended < it.end).map_or(ended, |it| it.end);
        &bytes[ended.min(bytes.len())..]
    }

    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let needles = self.needles.read().unwrap_or_else(PoisonError::into_inner);
        needles.iter().flat_map(|needle| occurrences(text, needle)).collect()
    }
}

/// A text on its way out in pieces: what could be the beginning of a secret is
/// held back until it is one or is none.
#[derive(Debug)]
pub struct MaskedStream {
    redactor: Redactor,
    held: String,
}

impl MaskedStream {
    /// Before its first piece.
    pub fn new(redactor: &Redactor) -> Self {
        Self { redactor: redactor.clone(), held: String::new() }
    }

    /// What can be told once that piece has come, masked; often all of it.
    pub fn take(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let settled = self.redactor.settled(&self.held);
        let rest = self.held.split_off(settled);
        let told = mem::replace(&mut self.held, rest);
        self.masked(told)
    }

    /// What was still held, masked: nothing more follows it.
    pub fn rest(&mut self) -> String {
        let held = mem::take(&mut self.held);
        self.masked(held)
    }

    /// Drops what was still held, so many bytes: what follows it is not known.
    pub fn forget(&mut self) -> usize {
        mem::take(&mut self.held).len()
    }

    fn masked(&self, text: String) -> String {
        match self.redactor.mask(&text) {
            Cow::Owned(masked) => masked,
            Cow::Borrowed(_) => text,
        }
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

/// Bytes at the end of the text that the needle begins with, but not all of
/// it.
fn begun(text: &str, needle: &str) -> usize {
    let most = text.len().min(needle.len().saturating_sub(1));
    let ends = |it: &usize| text.as_bytes().ends_with(&needle.as_bytes()[..*it]);
    (1..=most).rev().find(ends).unwrap_or(0)
}

/// Bytes at the start of the text that the needle ends with, but not all of it.
fn ended(text: &str, needle: &str) -> usize {
    let most = text.len().min(needle.len().saturating_sub(1));
    let starts = |it: &usize| text.as_bytes().starts_with(&needle.as_bytes()[needle.len() - it..]);
    (1..=most).rev().find(starts).unwrap_or(0)
}

/// Where the needle stands, also where it overlaps itself.
fn occurrences<'a>(text: &'a str, needle: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let step = needle.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text.get(from..)?.find(needle)?;
        from = start + step;
        Some(start..start + needle.len())
    })
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
