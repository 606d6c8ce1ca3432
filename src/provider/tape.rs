//! The other end of the replay dialect: reads the cassette, chooses the line,
//! waits as the line says, and answers with its events. The file is read anew
//! for each call, line by line; it may be changed while the gateway runs.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::{after, select};
use serde::{Deserialize, Serialize};

use super::glob::{LONGEST_PATTERN, fits};
use super::pool::{Carrier, Exchange};
use super::replay::{Event, LineMark, Played, PlayedStop, Question, is_default};
use super::{Fault, Wire};
use crate::message::read_json;
use crate::worker::Cancel;

/// Largest cassette, in bytes.
pub(super) const LARGEST_CASSETTE: u64 = 64 * 1024 * 1024;

/// Longest line, in bytes.
pub(super) const LONGEST_LINE: u64 = 4 * 1024 * 1024;

/// Longest `delayMs`.
const LONGEST_DELAY: u64 = 600_000;

/// The cassette of one provider.
#[derive(Clone, Debug)]
pub(super) struct Tape {
    provider: String,
    cassette: Option<PathBuf>,
}

/// One line of a cassette.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Line {
    #[serde(rename = "match", default)]
    pub(super) wanted: Wanted,
    pub(super) events: Vec<Event>,
    /// Milliseconds before the first of them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) delay_ms: u64,
}

/// What the conversation must look like for a line to be played.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_tool: Option<String>,
}

impl Carrier for Tape {
    fn carry(&mut self, wire: &Wire, exchange: &mut Exchange) -> Result<(), Fault> {
        let (canceller, cancel) = Cancel::pair();
        exchange.arm(Box::new(move || canceller.cancel()))?;
        self.play(&wire.body, &cancel, &mut |bytes| exchange.heard(bytes))?;
        exchange.end()
    }
}

impl Tape {
    pub(super) fn new(provider: &str, cassette: Option<PathBuf>) -> Self {
        Self { provider: provider.to_owned(), cassette }
    }

    /// The cassette's file name: what marks are told apart by.
    pub(super) fn name(&self) -> String {
        let name = self.cassette.as_deref().and_then(Path::file_name);
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Answers a question; the bytes go to `answer` as they come.
    fn play(
        &self,
        question: &[u8],
        cancel: &Cancel,
        answer: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let question: Question =
            serde_json::from_slice(question).map_err(|it| Fault::Ours(it.to_string()))?;
        let (events, delay) = match self.choose(&question)? {
            Some((number, line)) => {
                let mark = LineMark { cassette: self.name(), line: number };
                (completed(line.events, mark), line.delay_ms)
            }
            None => (self.nothing_left(), 0),
        };
        wait(Duration::from_millis(delay), cancel)?;
        for event in &events {
            let mut line = serde_json::to_vec(event).map_err(|it| Fault::Ours(it.to_string()))?;
            line.push(b'\n');
            answer(&line)?;
        }
        Ok(())
    }

    /// Hands on everything that keeps a line of it from being played.
    pub(super) fn check(&self, wrong: &mut dyn FnMut(String)) {
        let Some(path) = &self.cassette else { return };
        let mut wrong = |what: String| wrong(in_cassette(path, &what));
        let read = open(path).and_then(|reader| {
            each_line(reader, |number, text| {
                if let Err(what) = parse(text) {
                    wrong(on_line(number, &what));
                }
                None::<()>
            })
        });
        if let Err(what) = read {
            wrong(what);
        }
    }

    /// The first unused line that fits, with its number.
    fn choose(&self, question: &Question) -> Result<Option<(u64, Line)>, Fault> {
        let Some(path) = &self.cassette else {
            return Err(Fault::Ours(format!("the provider `{}` has no cassette", self.provider)));
        };
        let chosen = open(path).and_then(|it| choose_from(it, question));
        chosen.map_err(|what| Fault::Ours(in_cassette(path, &what)))
    }

    fn nothing_left(&self) -> Vec<Played> {
        let text = format!(
            "(The cassette {} of the provider `{}` has no line left that fits this call. \
             A new session starts at its first line again.)",
            self.name(),
            self.provider
        );
        [Event::Text(text), Event::Stop(PlayedStop::Stop)].map(Played::Event).into()
    }
}

fn wait(delay: Duration, cancel: &Cancel) -> Result<(), Fault> {
    if cancel.is_cancelled() {
        return Err(Fault::Cancelled);
    }
    if delay.is_zero() {
        return Ok(());
    }
    select! {
        recv(cancel.gone()) -> _ => Err(Fault::Cancelled),
        recv(after(delay)) -> _ => Ok(()),
    }
}

fn in_cassette(path: &Path, what: &str) -> String {
    format!("the cassette {}: {what}", path.display())
}

fn on_line(number: u64, what: &str) -> String {
    format!("line {number}: {what}")
}

fn open(path: &Path) -> Result<impl BufRead, String> {
    // Looked at before it is opened: opening a FIFO would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(|it| it.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".into());
    }
    if metadata.len() > LARGEST_CASSETTE {
        return Err(format!("it is larger than {LARGEST_CASSETTE} bytes"));
    }
    let file = File::open(path).map_err(|it| it.to_string())?;
    Ok(BufReader::new(file.take(LARGEST_CASSETTE)))
}

fn choose_from(reader: impl BufRead, question: &Question) -> Result<Option<(u64, Line)>, String> {
    let chosen = each_line(reader, |number, text| {
        if question.used.contains(&number) {
            return None;
        }
        match parse(text) {
            Ok(line) => line.wanted.fits(question).then_some(Ok((number, line))),
            Err(what) => Some(Err(on_line(number, &what))),
        }
    });
    chosen.and_then(Option::transpose)
}

/// Hands on each line that is not empty, with its number, until `take` has
/// what it wants.
fn each_line<T>(
    mut reader: impl BufRead,
    mut take: impl FnMut(u64, &[u8]) -> Option<T>,
) -> Result<Option<T>, String> {
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let read = (&mut reader).take(LONGEST_LINE + 1).read_until(b'\n', &mut text);
        if read.map_err(|it| on_line(number, &it.to_string()))? == 0 {
            break;
        }
        if text.len() as u64 > LONGEST_LINE {
            return Err(on_line(number, &format!("it is longer than {LONGEST_LINE} bytes")));
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        if let Some(taken) = take(number, &text) {
            return Ok(Some(taken));
        }
    }
    Ok(None)
}

pub(super) fn parse(text: &[u8]) -> Result<Line, String> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    // To the parser each line is the first.
    let line: Line = read_json(text)
        .map_err(|it| it.to_string().replace(" at line 1 column ", " at column "))?;
    if line.delay_ms > LONGEST_DELAY {
        return Err(format!("`delayMs` is larger than {LONGEST_DELAY}"));
    }
    let patterns = [&line.wanted.last_user, &line.wanted.last_tool];
    if patterns.into_iter().flatten().any(|it| it.chars().count() > LONGEST_PATTERN) {
        return Err(format!("a pattern is longer than {LONGEST_PATTERN} characters"));
    }
    Ok(line)
}

impl Wanted {
    pub(super) fn fits(&self, question: &Question) -> bool {
        let user = self.last_user.as_ref().is_none_or(|it| fits(it, &question.last_user));
        let tool = self.last_tool.as_ref().is_none_or(|pattern| {
            let last = question.last_tool.as_ref();
            last.is_some_and(|it| fits(pattern, &it.name) || fits(pattern, &it.text))
        });
        user && tool
    }
}

/// The events of a line, with its number before them, an id for every call,
/// and an end if it has none of its own.
fn completed(events: Vec<Event>, mark: LineMark) -> Vec<Played> {
    let number = mark.line;
    let mut whole = vec![Played::Mark { line: mark }];
    let mut stop = PlayedStop::Stop;
    let mut ended = false;
    for (place, mut event) in events.into_iter().enumerate() {
        match &mut event {
            Event::ToolCall(call) => {
                call.id.get_or_insert_with(|| format!("call_{number}_{}", place + 1));
                stop = PlayedStop::ToolUse;
            }
            Event::Stop(_) => ended = true,
            _ => (),
        }
        whole.push(Played::Event(event));
    }
    if !ended {
        whole.push(Played::Event(Event::Stop(stop)));
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::super::replay::LastTool;
    use super::*;

    const CASSETTE: &str = r#"
{"match":{"lastUser":"*weather*"},"events":[{"text":"sunny"}]}
{"match":{"lastTool":"exec"},"events":[{"text":"ran"}]}
{"match":{"lastTool":"*Exit code: 3*"},"events":[{"text":"failed"}]}
{"events":[{"text":"anything"}]}
"#;

    fn question(user: &str, tool: Option<(&str, &str)>, used: &[u64]) -> Question {
        let tool = tool.map(|(name, text)| LastTool { name: name.into(), text: text.into() });
        Question { last_user: user.into(), last_tool: tool, used: used.to_vec() }
    }

    #[track_caller]
    fn check(question: &Question, want: Option<u64>) {
        let got = choose_from(CASSETTE.as_bytes(), question).map(|it| it.map(|(number, _)| number));
        assert_eq!(got, Ok(want));
    }

    #[test]
    fn the_first_unused_line_that_fits_is_played() {
        check(&question("the weather?", None, &[]), Some(2));
        check(&question("the weather?", None, &[2]), Some(5));
        check(&question("hi", Some(("exec", "Exit code: 3")), &[]), Some(3));
        check(&question("hi", Some(("exec", "Exit code: 3")), &[3]), Some(4));
        check(&question("hi", None, &[5]), None);
    }

    #[track_caller]
    fn check_wrong(cassette: &str, want: &str) {
        let got = choose_from(cassette.as_bytes(), &question("", None, &[]));
        assert!(got.as_ref().is_err_and(|it| it.starts_with(want)), "{got:?}");
    }

    #[test]
    fn a_bad_line_is_named() {
        let other = r#"{"match":{"lastUser":"x"},"events":[]}"#;
        check_wrong(&format!("{other}\n{{\"events\":"), "line 2: EOF");
        check_wrong(&format!("{other}\n\nnope"), "line 3: expected");
        check_wrong(
            r#"{"events":[{"sing":"la"}]}"#,
            "line 1: unknown variant `sing`, expected one of `text`, `thinking`, `signature`, \
             `redacted`, `toolCall`, `usage`, `stop`, `error`, `refused`, `tooLong` at column 18",
        );
        check_wrong(
            r#"{"events":[{"line":{"cassette":"c","line":1}}]}"#,
            "line 1: unknown variant",
        );
        for stop in ["done", "error", "aborted", "Stop"] {
            let line = format!(r#"{{"events":[{{"stop":"{stop}"}}]}}"#);
            let want =
                format!("line 1: unknown variant `{stop}`, expected one of `stop`, `length`");
            check_wrong(&line, &want);
        }
        check_wrong(r#"{"events":[{"usage":{"inptu":1}}]}"#, "line 1: unknown field `inptu`");
        check_wrong(r#"{"events":[{"usage":{"cost":{"in":1}}}]}"#, "line 1: unknown field `in`");
        check_wrong(r#"{"evnts":[]}"#, "line 1: unknown field `evnts`");
        check_wrong(r#"{"match":{"last":"x"},"events":[]}"#, "line 1: unknown field `last`");
        check_wrong(r#"{"events":[],"delayMs":600001}"#, "line 1: `delayMs`");
        check_wrong(&"x".repeat(LONGEST_LINE as usize + 1), "line 1: it is longer");
        let pattern = "?".repeat(LONGEST_PATTERN + 1);
        let line = format!(r#"{{"match":{{"lastUser":"{pattern}"}},"events":[]}}"#);
        check_wrong(&line, "line 1: a pattern");
    }

    #[track_caller]
    fn check_completed(events: &str, want: &str) {
        let events: Vec<Event> = serde_json::from_str(events).unwrap_or_default();
        let mark = LineMark { cassette: "c".into(), line: 4 };
        let got = serde_json::to_string(&completed(events, mark)[1..]).unwrap_or_default();
        assert_eq!(got, want);
    }

    #[test]
    fn a_line_gets_its_ids_and_its_end() {
        check_completed(r#"[{"text":"a"}]"#, r#"[{"text":"a"},{"stop":"stop"}]"#);
        check_completed(
            r#"[{"toolCall":{"name":"exec","arguments":{}}}]"#,
            r#"[{"toolCall":{"id":"call_4_1","name":"exec","arguments":{}}},{"stop":"toolUse"}]"#,
        );
        check_completed(r#"[{"stop":"length"}]"#, r#"[{"stop":"length"}]"#);
    }

    const ANYTHING: &[u8] = br#"{"lastUser":"","lastTool":null,"used":[]}"#;

    #[test]
    fn a_cassette_that_is_missing_or_a_folder_is_named() {
        for path in ["/nonexistent/tape.jsonl", "/"] {
            let tape = Tape::new("p", Some(path.into()));
            let got = tape.play(ANYTHING, &Cancel::never(), &mut |_| Ok(()));
            assert!(matches!(&got, Err(Fault::Ours(it)) if it.contains(path)), "{got:?}");
        }
    }

    #[test]
    fn a_wait_ends_at_once_when_the_call_is_called_off() -> crate::error::Result<()> {
        let (canceller, cancel) = Cancel::pair();
        let caller = crate::worker::Worker::spawn("test", move || canceller.cancel())?;
        assert_eq!(wait(Duration::from_secs(600), &cancel), Err(Fault::Cancelled));
        drop(caller);
        Ok(())
    }
}
