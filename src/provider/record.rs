//! Records what a provider says as lines of a cassette: one answer, one line,
//! one write. A line says what the conversation looked like, so that several
//! sessions in one file are told apart when they are played back. Known secrets
//! are left out. A recording that does not succeed is a warning and costs no
//! answer.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::glob::LONGEST_PATTERN;
use super::replay::{Event, Question};
use super::tape::{LARGEST_CASSETTE, LONGEST_LINE, Line, Wanted};
use super::{Fault, Message, Request};
use crate::config::home::open_own;
use crate::secret::{DOTS, Redactor};

/// Appends to the cassette of one provider.
pub(super) struct Recorder {
    path: PathBuf,
    redactor: Redactor,
    /// Held for one write, so that what a full disk let through of it can be
    /// taken back.
    writing: Mutex<()>,
}

impl Recorder {
    /// A recorder of that file, which need not be there yet.
    pub(super) fn new(path: &Path, redactor: &Redactor) -> Self {
        let (path, redactor) = (path.to_owned(), redactor.clone());
        Self { path, redactor, writing: Mutex::default() }
    }

    /// Records one call: what it said, and how it failed if it did.
    pub(super) fn record(
        &self,
        request: &Request<'_>,
        mut events: Vec<Event>,
        fault: Option<&Fault>,
    ) {
        if let Some(fault) = fault {
            let Some(event) = failure(fault) else { return };
            events.push(event);
        }
        let written = self.line(request.messages, events).and_then(|it| self.append(&it));
        if let Err(error) = written {
            let (model, path) = (request.model, self.path.display());
            log::warn!("an answer of {model} was not recorded in the cassette {path}: {error}");
        }
    }

    fn line(&self, messages: &[Message], mut events: Vec<Event>) -> io::Result<Vec<u8>> {
        for text_of in [said, thought] {
            self.redactor.mask_joined(events.iter_mut().filter_map(text_of).collect());
        }
        let events = events.into_iter().map(|it| self.masked(it)).collect();
        let line = Line { wanted: self.wanted(messages), events, delay_ms: 0 };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        if text.len() as u64 > LONGEST_LINE {
            let what = format!("it is longer than {LONGEST_LINE} bytes, the most of a line");
            return Err(io::Error::new(ErrorKind::FileTooLarge, what));
        }
        Ok(text)
    }

    /// By the message that is answered, and by the tool whose result is. What
    /// tools return may differ from one run to the next.
    fn wanted(&self, messages: &[Message]) -> Wanted {
        let Question { last_user, last_tool, .. } = Question::of(messages);
        let last_tool = last_tool.map(|it| pattern(&it.name, &self.redactor));
        Wanted { last_user: Some(pattern(&last_user, &self.redactor)), last_tool }
    }

    fn masked(&self, event: Event) -> Event {
        let text = |it: String| self.redactor.mask(&it).into_owned();
        match event {
            Event::Signature(it) => Event::Signature(text(it)),
            Event::Redacted(it) => Event::Redacted(text(it)),
            Event::Error(it) => Event::Error(text(it)),
            Event::Refused(it) => Event::Refused(text(it)),
            Event::TooLong(it) => Event::TooLong(text(it)),
            Event::ToolCall(mut call) => {
                call.id = call.id.map(text);
                call.name = text(call.name);
                call.arguments = match call.arguments {
                    // What the model wrote does not read.
                    Value::String(it) => Value::String(self.redactor.mask_json(&it).into_owned()),
                    read => masked_value(read, &text),
                };
                Event::ToolCall(call)
            }
            // Texts and thoughts are masked by now, all of them together.
            Event::Text(_) | Event::Thinking(_) | Event::Usage(_) | Event::Stop(_) => event,
        }
    }

    /// One write of one line; what a full disk let through of it is taken back,
    /// unless another process writes there too.
    fn append(&self, line: &[u8]) -> io::Result<()> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut options = OpenOptions::new();
        let mut file = open_own(&self.path, options.read(true).append(true).create(true))?;
        let is_alone = file.try_lock().is_ok();
        // It holds what people said, also where it was there before.
        file.set_permissions(Permissions::from_mode(0o600))?;
        let before = file.metadata()?.len();
        if before + line.len() as u64 + 1 > LARGEST_CASSETTE {
            let what = format!("it has {LARGEST_CASSETTE} bytes, the most of a cassette");
            return Err(io::Error::new(ErrorKind::FileTooLarge, what));
        }
        let text =
            if ends_in_line(&file, before)? { [b"\n", line].concat() } else { line.to_vec() };
        let written = file.write(&text);
        if written.as_ref().is_ok_and(|it| *it == text.len()) {
            return Ok(());
        }
        if is_alone {
            file.set_len(before)?;
        }
        Err(written.err().unwrap_or_else(|| ErrorKind::StorageFull.into()))
    }
}

/// What keeps a file from being recorded in, as far as it can be seen.
pub(super) fn obstacle(path: &Path) -> Option<String> {
    if path.exists() {
        let what = || format!("{} is not a file that can be recorded in", path.display());
        return (!path.is_file()).then(what);
    }
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let what = || format!("there is no folder {} to record in", folder.display());
    (!folder.is_dir()).then(what)
}

/// A failure as an event. One that asks for a pause is played as one that may
/// be tried again at once; of what was called off, and of what is our own
/// fault, the provider has said nothing.
fn failure(fault: &Fault) -> Option<Event> {
    let text = fault.to_string();
    match fault {
        Fault::RateLimited(..)
        | Fault::Unavailable(_)
        | Fault::Slow(_)
        | Fault::Cut(_)
        | Fault::Inactive(_) => Some(Event::Error(text)),
        Fault::Refused(_) => Some(Event::Refused(text)),
        Fault::TooLong(_) => Some(Event::TooLong(text)),
        // The call is made again, without what is stale.
        Fault::Stale(_) | Fault::Cancelled | Fault::Ours(_) => None,
    }
}

fn said(event: &mut Event) -> Option<&mut String> {
    match event {
        Event::Text(it) => Some(it),
        _ => None,
    }
}

fn thought(event: &mut Event) -> Option<&mut String> {
    match event {
        Event::Thinking(it) => Some(it),
        _ => None,
    }
}

/// Whether the file ends in the middle of a line.
fn ends_in_line(file: &File, length: u64) -> io::Result<bool> {
    let Some(last) = length.checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

/// A pattern that fits this text and hardly another: stars and question marks
/// are any character, a secret anything, as is the middle of a long one.
fn pattern(text: &str, redactor: &Redactor) -> String {
    let masked = redactor.mask(text);
    let parts: Vec<String> = masked.split(DOTS).map(|it| it.replace('*', "?")).collect();
    let pattern = parts.join("*");
    let length = pattern.chars().count();
    if length <= LONGEST_PATTERN {
        return pattern;
    }
    let kept = (LONGEST_PATTERN - 1) / 2;
    let start = pattern.chars().take(kept);
    let end = pattern.chars().skip(length - kept);
    start.chain(['*']).chain(end).collect()
}

fn masked_value(value: Value, text: &dyn Fn(String) -> String) -> Value {
    match value {
        Value::String(it) => Value::String(text(it)),
        Value::Array(items) => items.into_iter().map(|it| masked_value(it, text)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, it)| (text(name), masked_value(it, text))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use serde_json::json;

    use super::*;
    use crate::clock;
    use crate::config::{ModelFacts, ModelRef};
    use crate::message::StopReason;
    use crate::provider::assemble::Assembly;
    use crate::provider::replay::Replay;
    use crate::provider::tape::parse;
    use crate::provider::{CallPiece, Delta, Provider};

    /// A cassette of its own, which is removed.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("beige-record-{}-{name}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn lines(&self) -> Vec<Line> {
            let text = std::fs::read_to_string(&self.0).unwrap_or_default();
            assert!(text.is_empty() || text.ends_with('\n'), "{text}");
            text.lines().map(|it| parse(it.as_bytes()).expect(it)).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn redactor() -> Redactor {
        let redactor = Redactor::new();
        redactor.learn("s3cret-key");
        redactor
    }

    fn record(recorder: &Recorder, messages: Value, deltas: &[Delta], fault: Option<&Fault>) {
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let messages: Vec<Message> = serde_json::from_value(messages).expect("messages");
        let facts = ModelFacts::default();
        let request = Request::new(&model, &facts, &messages);
        recorder.record(&request, assembled(deltas).played(), fault);
    }

    fn assembled(deltas: &[Delta]) -> Assembly {
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let mut assembly = Assembly::new("x", &model, clock::now());
        deltas.iter().cloned().for_each(|it| assembly.take(it));
        assembly
    }

    fn call(slot: u64, id: Option<&str>, arguments: &str) -> Delta {
        let (id, name) = (id.map(str::to_owned), Some("exec".to_owned()));
        Delta::ToolCall(CallPiece { slot, id, name, arguments: arguments.into() })
    }

    #[test]
    fn a_line_says_what_it_answers_and_what_was_said() {
        let scratch = Scratch::new("line");
        let recorder = Recorder::new(&scratch.0, &redactor());
        let user = json!({"role": "user", "content": "hi *"});
        let result = json!({"role": "toolResult", "toolName": "exec", "content": "out"});
        let text =
            [Delta::Text("a".into()), Delta::Text("b".into()), Delta::Stop(StopReason::Stop)];
        record(&recorder, json!([user]), &text, None);
        record(&recorder, json!([user, result]), &text[..1], Some(&Fault::Cut("cut".into())));
        let written = std::fs::read_to_string(&scratch.0).expect("a cassette");
        let want = "{\"match\":{\"lastUser\":\"hi ?\"},\"events\":[{\"text\":\"ab\"},{\"stop\":\"stop\"}]}\n\
            {\"match\":{\"lastUser\":\"hi ?\",\"lastTool\":\"exec\"},\"events\":[{\"text\":\"a\"},{\"error\":\"cut\"}]}\n";
        assert_eq!(written, want);
        assert_eq!(scratch.0.metadata().expect("a file").mode() & 0o7777, 0o600);
    }

    #[test]
    fn what_is_recorded_is_played_back_the_same() {
        let deltas = [
            Delta::Thinking("hm".into()),
            Delta::Signature("s".into()),
            Delta::Redacted("x".into()),
            Delta::Thinking("more".into()),
            Delta::Text("a".into()),
            Delta::Signature("t".into()),
            Delta::Text("b".into()),
            call(0, Some("c1"), "{\"a\":"),
            call(1, None, "{\"a\""),
            Delta::Signature("u".into()),
            call(0, None, "[1]}"),
            call(2, None, ""),
            Delta::Usage(crate::message::Usage { input: 7, total_tokens: 9, ..Default::default() }),
            Delta::Stop(StopReason::ToolUse),
        ];
        let events = assembled(&deltas).played();
        let mut played = Vec::new();
        let mut decoder = Replay::new("c".into()).decoder();
        for event in &events {
            let line = serde_json::to_string(event).expect("JSON") + "\n";
            decoder.feed(line.as_bytes(), &mut played).expect("it is understood");
        }
        let finish = |deltas: &[Delta]| {
            let Ok(mut answer) = assembled(deltas).finish() else { panic!("it is whole") };
            answer.message.timestamp = 0;
            // Those without an id are given one by their moment.
            let ids = answer.message.content.iter_mut().filter_map(|it| match it {
                crate::message::Block::ToolCall(it) => Some(&mut it.id),
                _ => None,
            });
            ids.skip(1).for_each(String::clear);
            let broken: Vec<String> = answer.broken.into_iter().map(|it| it.why).collect();
            (answer.message, broken)
        };
        assert_eq!(finish(&played), finish(&deltas));
    }

    #[test]
    fn no_known_secret_is_recorded() {
        let scratch = Scratch::new("secret");
        let recorder = Recorder::new(&scratch.0, &redactor());
        let user = json!({"role": "user", "content": "use s3cret-key now"});
        let deltas = [
            Delta::Text("s3cret-key".into()),
            Delta::Thinking("s3cret-key".into()),
            call(0, Some("s3cret-key"), "{\"s3cret-key\":[\"s3cret-key\"]}"),
            call(1, None, "{\"s3cret-key"),
            call(2, None, r#"{"a":"\u00733cret\u002dkey" BAD"#),
            Delta::Text("s3cre".into()),
            Delta::Thinking("s3cret".into()),
            Delta::Text("t-key".into()),
            Delta::Thinking("-key".into()),
        ];
        let fault = Fault::Refused("your key s3cret-key is wrong".into());
        record(&recorder, json!([user]), &deltas, Some(&fault));
        let written = std::fs::read_to_string(&scratch.0).expect("a cassette");
        assert!(!written.contains("3cret"), "{written}");
        let lines = scratch.lines();
        let messages: Vec<Message> = serde_json::from_value(json!([user])).expect("messages");
        assert!(lines[0].wanted.fits(&Question::of(&messages)), "{written}");
    }

    #[track_caller]
    fn check_pattern(text: &str, want: &str) {
        let pattern = pattern(text, &redactor());
        assert_eq!(pattern, want);
        assert!(super::super::glob::fits(&pattern, text));
    }

    #[test]
    fn a_pattern_fits_its_text_and_is_bounded() {
        check_pattern("", "");
        check_pattern("what is 2*3?", "what is 2?3?");
        check_pattern("use s3cret-key", "use *");
        let long = "那".repeat(LONGEST_PATTERN);
        check_pattern(&long, &long);
        let (start, end) = ("a".repeat(499), "b".repeat(499));
        check_pattern(&format!("{start}---{end}"), &format!("{start}*{end}"));
    }

    #[test]
    fn what_the_provider_did_not_say_is_not_recorded() {
        let scratch = Scratch::new("unsaid");
        let recorder = Recorder::new(&scratch.0, &redactor());
        for fault in [Fault::Cancelled, Fault::Ours("x".into()), Fault::Stale("x".into())] {
            record(&recorder, json!([]), &[], Some(&fault));
        }
        assert!(!scratch.0.exists());
    }

    #[test]
    fn a_torn_last_line_does_not_take_the_next_with_it() {
        let scratch = Scratch::new("torn");
        std::fs::write(&scratch.0, "{\"events\":[]}\n{\"events\":[]}").expect("written");
        let recorder = Recorder::new(&scratch.0, &redactor());
        record(&recorder, json!([]), &[Delta::Text("a".into())], None);
        assert_eq!(scratch.lines().len(), 3);
    }

    #[test]
    fn an_answer_that_could_not_be_played_is_not_recorded() {
        let scratch = Scratch::new("long");
        let recorder = Recorder::new(&scratch.0, &redactor());
        let long = "a".repeat(LONGEST_LINE as usize);
        record(&recorder, json!([]), &[Delta::Text(long)], None);
        assert!(!scratch.0.exists());
    }

    #[test]
    fn lines_of_several_sessions_at_once_are_whole() {
        let scratch = Scratch::new("many");
        // Two recorders, as two processes have them.
        let recorders = [0, 1].map(|_| Recorder::new(&scratch.0, &redactor()));
        std::thread::scope(|scope| {
            for number in 0..8 {
                let recorder = &recorders[number % 2];
                scope.spawn(move || {
                    for _ in 0..20 {
                        let text = number.to_string().repeat(5_000);
                        record(recorder, json!([]), &[Delta::Text(text)], None);
                    }
                });
            }
        });
        assert_eq!(scratch.lines().len(), 160);
    }

    #[test]
    fn a_place_that_cannot_be_recorded_in_is_found() {
        let folder = std::env::temp_dir();
        assert_eq!(obstacle(&folder.join("beige-no-such-cassette")), None);
        assert!(obstacle(&folder).is_some_and(|it| it.contains("is not a file")));
        let deep = folder.join("beige-no-such-folder").join("c.jsonl");
        assert!(obstacle(&deep).is_some_and(|it| it.contains("beige-no-such-folder to record in")));
        let recorder = Recorder::new(&deep, &redactor());
        record(&recorder, json!([]), &[], None);
    }
}
