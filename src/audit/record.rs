//! One call as its lines tell it: masked, cut to its bounds, and put into
//! JSON that stays one line and moves no terminal. Knows nothing of files.

use std::io::{self, Write};
use std::time::Duration;

use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::{Act, Entry, Finish, Target};
use crate::clock::Time;
use crate::error::{During, Error, Kind, Result};
use crate::secret::Redactor;

/// Longest argument kept whole, in bytes.
pub(super) const LONGEST_ARGUMENT: usize = 8 * 1024;

/// All arguments of a call together, in bytes.
pub(super) const ALL_ARGUMENTS: usize = 32 * 1024;

/// Arguments kept of a call.
pub(super) const MOST_ARGUMENTS: usize = 256;

/// Longest name, session key or model kept whole, in bytes.
const LONGEST_NAME: usize = 1024;

/// No line of ours is longer, in bytes: every byte of the above can become six.
pub(super) const LONGEST_LINE: usize = 512 * 1024;

/// What stands for the hash of the line before the first one.
pub(super) const NO_LINE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One line, but for its place in the chain.
#[derive(Clone, Debug)]
pub(super) struct Record {
    id: String,
    time: Time,
    phase: Phase,
    decision: Decision,
    entry: Entry,
    duration: Option<Duration>,
    finish: Finish,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Phase {
    Started,
    Finished,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Allowed,
    Denied,
}

/// The fields in their order; `prev` is last, so that a torn line has none.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    ts: String,
    seq: u64,
    id: &'a str,
    phase: Phase,
    agent: &'a str,
    r#type: Act,
    tool: &'a str,
    args: &'a [String],
    decision: Decision,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    prev: &'a str,
}

impl Record {
    /// The line before the act, under a new id.
    pub(super) fn started(entry: &Entry, redactor: &Redactor, time: Time) -> Result<Self> {
        Ok(Self {
            id: new_id()?,
            time,
            phase: Phase::Started,
            decision: Decision::Allowed,
            entry: fit_entry(entry, redactor),
            duration: None,
            finish: Finish::default(),
        })
    }

    /// The line after the act, under the same id.
    pub(super) fn finished(
        self,
        finish: &Finish,
        redactor: &Redactor,
        time: Time,
        duration: Duration,
    ) -> Self {
        let finish = fit_finish(finish, redactor);
        Self { time, phase: Phase::Finished, duration: Some(duration), finish, ..self }
    }

    /// The one line of a call that was refused.
    pub(super) fn denied(
        entry: &Entry,
        reason: &str,
        redactor: &Redactor,
        time: Time,
    ) -> Result<Self> {
        let finish = Finish { error: Some(reason.to_owned()), ..Finish::default() };
        Ok(Self {
            phase: Phase::Finished,
            decision: Decision::Denied,
            finish: fit_finish(&finish, redactor),
            ..Self::started(entry, redactor, time)?
        })
    }

    /// The line's bytes, without a newline.
    pub(super) fn line(&self, seq: u64, prev: &str) -> Result<Vec<u8>> {
        let line = Line {
            ts: self.time.to_string(),
            seq,
            id: &self.id,
            phase: self.phase,
            agent: &self.entry.agent,
            r#type: self.entry.act,
            tool: &self.entry.tool,
            args: &self.entry.args,
            decision: self.decision,
            target: self.entry.target,
            duration_ms: self.duration.map(|it| it.as_millis()),
            exit_code: self.finish.exit_code,
            output_bytes: self.finish.output_bytes,
            error: self.finish.error.as_deref(),
            session: self.entry.session.as_deref(),
            claimed_session: self.entry.claimed_session.as_deref(),
            channel: self.entry.channel.as_deref(),
            model: self.entry.model.as_deref(),
            prev,
        };
        let mut bytes = Vec::with_capacity(512);
        line.serialize(&mut Serializer::with_formatter(&mut bytes, Inert))
            .during(Kind::Internal, "write an audit record as JSON")?;
        Ok(bytes)
    }
}

/// SHA-256 in lower-case hex.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn new_id() -> Result<String> {
    let mut bytes = [0; 8];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Error::new(Kind::Internal, "draw a random id for an audit record"))?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

fn fit_entry(entry: &Entry, redactor: &Redactor) -> Entry {
    let name = |text: &String| fit(text, LONGEST_NAME, redactor);
    Entry {
        agent: name(&entry.agent),
        act: entry.act,
        tool: name(&entry.tool),
        args: fit_arguments(&entry.args, redactor),
        target: entry.target,
        session: entry.session.as_ref().map(name),
        claimed_session: entry.claimed_session.as_ref().map(name),
        channel: entry.channel.as_ref().map(name),
        model: entry.model.as_ref().map(name),
    }
}

fn fit_finish(finish: &Finish, redactor: &Redactor) -> Finish {
    let error = finish.error.as_ref().map(|it| fit(it, LONGEST_ARGUMENT, redactor));
    Finish { error, ..*finish }
}

/// Each argument within its bound, and all within theirs; what is left out is
/// named by number, length and hash.
fn fit_arguments(args: &[String], redactor: &Redactor) -> Vec<String> {
    let mut fitted = Vec::new();
    let mut room = ALL_ARGUMENTS;
    for (index, arg) in args.iter().enumerate() {
        let masked = redactor.mask(arg);
        let size = masked.len().min(LONGEST_ARGUMENT);
        if size > room || index == MOST_ARGUMENTS {
            fitted.push(left_out(&args[index..], redactor));
            break;
        }
        room -= size;
        fitted.push(cut(&masked, LONGEST_ARGUMENT));
    }
    fitted
}

/// The hash is that of the masked arguments with a NUL after each.
fn left_out(args: &[String], redactor: &Redactor) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut length = 0;
    for arg in args {
        let masked = redactor.mask(arg);
        length += masked.len();
        hash.update(masked.as_bytes());
        hash.update(&[0]);
    }
    let hash = hex(hash.finish().as_ref());
    format!("… ({} more arguments, {length} bytes, sha256 {hash})", args.len())
}

/// Masked before it is cut: half a secret would not be known any more.
fn fit(text: &str, limit: usize, redactor: &Redactor) -> String {
    cut(&redactor.mask(text), limit)
}

/// At most `limit` bytes of the text, cut at a character's border, with the
/// length and hash of the whole.
fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes, sha256 {})", &text[..end], text.len(), sha256(text.as_bytes()))
}

/// Escapes what JSON leaves as it is and a terminal obeys or hides: C1 controls,
/// line separators, marks that turn the direction of writing, and what has no shape.
struct Inert;

impl Formatter for Inert {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((start, found)) = rest.char_indices().find(|(_, it)| is_active(*it)) {
            writer.write_all(&rest.as_bytes()[..start])?;
            writer.write_all(escaped_as_json(found).as_bytes())?;
            rest = &rest[start + found.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Whether a terminal would obey the character, turn the text around it, or show
/// nothing for it: all that Unicode lets a program ignore. What joins and varies
/// emoji stays.
pub fn is_active(it: char) -> bool {
    it.is_control()
        || matches!(it,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180e}' | '\u{200b}' | '\u{200c}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e00ff}' | '\u{e01f0}'..='\u{e0fff}')
}

/// The character as an escape of JSON: two of them beyond U+FFFF.
pub fn escaped_as_json(it: char) -> String {
    it.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(args: &[&str]) -> Entry {
        Entry {
            agent: "a".into(),
            act: Act::CoreTool,
            tool: "exec".into(),
            args: args.iter().map(|it| (*it).to_owned()).collect(),
            target: Some(Target::Sandbox),
            session: None,
            claimed_session: None,
            channel: None,
            model: None,
        }
    }

    fn line_of(entry: &Entry, redactor: &Redactor) -> String {
        let record = Record::started(entry, redactor, Time::from_unix_millis(0)).unwrap();
        String::from_utf8(record.line(7, NO_LINE).unwrap()).unwrap()
    }

    fn args_of(entry: &Entry) -> Vec<String> {
        let line: Value = serde_json::from_str(&line_of(entry, &Redactor::new())).unwrap();
        line["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().into()).collect()
    }

    #[test]
    fn fields_stand_in_the_order_of_the_format_and_absent_ones_are_left_out() {
        let full = Entry {
            session: Some("s".into()),
            claimed_session: Some("c".into()),
            channel: Some("ch".into()),
            model: Some("m".into()),
            ..entry(&["x"])
        };
        let redactor = Redactor::new();
        let time = Time::from_unix_millis(0);
        let mut started = Record::started(&full, &redactor, time).unwrap();
        started.id = "id".into();
        let finish = Finish { exit_code: Some(3), output_bytes: Some(9), error: Some("e".into()) };
        let finished = started.finished(&finish, &redactor, time, Duration::from_millis(5));
        assert_eq!(
            String::from_utf8(finished.line(2, "p").unwrap()).unwrap(),
            concat!(
                r#"{"ts":"1970-01-01T00:00:00.000Z","seq":2,"id":"id","phase":"finished","agent":"a","#,
                r#""type":"core_tool","tool":"exec","args":["x"],"decision":"allowed","#,
                r#""target":"sandbox","durationMs":5,"exitCode":3,"outputBytes":9,"error":"e","#,
                r#""session":"s","claimedSession":"c","channel":"ch","model":"m","prev":"p"}"#,
            )
        );
        let bare: Value = serde_json::from_str(&line_of(&entry(&[]), &redactor)).unwrap();
        let keys: Vec<&String> = bare.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 11, "{keys:?}");
    }

    #[test]
    fn nothing_in_an_argument_ends_the_line_or_moves_the_terminal() {
        let nasty =
            "a\nb\r\0\u{1b}[2J\u{7f}\u{9b}31m\u{2028}\u{202e}\u{61c}\u{e0041}\"}\\{\"seq\":1";
        let line = line_of(&entry(&[nasty]), &Redactor::new());
        assert!(line.chars().all(|it| !is_active(it)), "{line}");
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["args"], json!([nasty]));
    }

    #[test]
    fn an_argument_is_cut_at_a_character_with_its_length_and_hash() {
        for bytes_before in 0..3 {
            for length in LONGEST_ARGUMENT - 4..LONGEST_ARGUMENT + 4 {
                let mut text = "x".repeat(bytes_before) + &"€".repeat(length / 3);
                text.push_str(&"y".repeat(length.saturating_sub(text.len())));
                let kept = &args_of(&entry(&[&text]))[0];
                if text.len() <= LONGEST_ARGUMENT {
                    assert_eq!(*kept, text);
                    continue;
                }
                let note = format!("… ({} bytes, sha256 {})", text.len(), sha256(text.as_bytes()));
                let start = kept.strip_suffix(&note).unwrap();
                assert!(text.starts_with(start));
                assert!((LONGEST_ARGUMENT - 2..=LONGEST_ARGUMENT).contains(&start.len()));
            }
        }
    }

    #[test]
    fn all_arguments_together_are_bounded() {
        let many = vec!["0123456789"; 100_000];
        let kept = args_of(&entry(&many));
        assert_eq!(kept.len(), MOST_ARGUMENTS + 1);
        assert!(kept[MOST_ARGUMENTS].starts_with("… (99744 more arguments, 997440 bytes, sha256 "));

        let large = "€".repeat(3_000);
        let kept = args_of(&entry(&[large.as_str(); 9]));
        assert_eq!(kept.len(), 4 + 1);
        assert!(kept[4].starts_with("… (5 more arguments, 45000 bytes, sha256 "), "{}", kept[4]);
    }

    #[test]
    fn the_longest_line_is_within_its_bound() {
        let worst = "\0".repeat(100_000);
        let entry = Entry {
            agent: worst.clone(),
            tool: worst.clone(),
            session: Some(worst.clone()),
            claimed_session: Some(worst.clone()),
            channel: Some(worst.clone()),
            model: Some(worst.clone()),
            ..entry(&[&worst[..LONGEST_ARGUMENT]; 5])
        };
        let redactor = Redactor::new();
        let time = Time::from_unix_millis(0);
        let record = Record::denied(&entry, &worst, &redactor, time).unwrap();
        assert!(record.line(u64::MAX, NO_LINE).unwrap().len() < LONGEST_LINE);
    }

    #[test]
    fn a_secret_is_masked_before_the_cut() {
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        let text = "x".repeat(LONGEST_ARGUMENT - 5) + "s3cret-key";
        let entry = Entry { tool: "s3cret-key".into(), ..entry(&[&text]) };
        assert!(!line_of(&entry, &redactor).contains("s3c"));
    }
}
