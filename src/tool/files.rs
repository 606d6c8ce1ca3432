//! The model's `read`, `write` and `patch`: arguments in, a request to
//! tool-client inside the sandbox, its report in words out. Paths are resolved
//! in there; nothing here opens a file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Answer, Content};
use crate::error::Result;
use crate::plugin::kind_of;
use crate::sandbox::{AgentSandbox, FileAnswer};
use crate::worker::Cancel;

/// Lines of one `read`.
const MAX_LINES: u64 = 2_000;

/// Bytes of one `read` of text.
const MAX_TEXT: u64 = 50 * 1024;

/// Bytes of an image.
const MAX_IMAGE: u64 = 10 * 1024 * 1024;

/// `read {path, offset?, limit?}`.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

/// `write {path, content}`.
#[derive(Debug, PartialEq)]
pub(super) struct Write {
    path: String,
    content: String,
}

/// `patch {path, oldText, newText}`.
#[derive(Debug, PartialEq)]
pub(super) struct Patch {
    path: String,
    old: String,
    new: String,
}

impl Read {
    /// Reads the arguments; the error is for the model.
    pub(super) fn parse(params: &Map<String, Value>) -> Result<Self, String> {
        Ok(Self {
            path: path(params)?,
            offset: whole_number(params, "offset")?,
            limit: whole_number(params, "limit")?,
        })
    }

    /// What the audit log shows.
    pub(super) fn arguments(&self) -> Vec<String> {
        vec![self.path.clone()]
    }

    pub(super) fn run(&self, sandbox: &AgentSandbox, cancel: &Cancel) -> Result<Answer> {
        let request = json!({
            "op": "read", "path": self.path, "offset": self.offset, "limit": self.limit,
            "maxLines": MAX_LINES, "maxBytes": MAX_TEXT, "maxImageBytes": MAX_IMAGE,
        });
        // The content of a folder comes in the report; of a file it is one
        // image or one text.
        let limit = MAX_IMAGE.max(MAX_TEXT) as usize + 1024;
        let answer = sandbox.file(&request, &[], limit, cancel)?;
        Ok(refused(&answer.report).unwrap_or_else(|| self.shown(&answer)))
    }

    fn shown(&self, answer: &FileAnswer) -> Answer {
        let report = &answer.report;
        let bytes = report.get("bytes").and_then(Value::as_u64).unwrap_or(0);
        match report.get("kind").and_then(Value::as_str).unwrap_or_default() {
            "image" => image(report, &answer.content),
            "folder" => Answer::text(folder(&self.path, report)),
            "binary" => Answer::error(format!(
                "{} is a binary file of {bytes} bytes, not text; use exec with a program that \
                 reads it (file, xxd, strings)",
                self.path
            )),
            _ => Answer::text(self.lines(report, &answer.content)),
        }
    }

    fn lines(&self, report: &Value, content: &[u8]) -> String {
        let number = |name| report.get(name).and_then(Value::as_u64);
        // No more than was asked for goes into a conversation, whatever came.
        let content = content.get(..MAX_TEXT as usize).unwrap_or(content);
        let mut text = String::from_utf8_lossy(content).into_owned();
        if report.get("pastEnd").and_then(Value::as_bool) == Some(true) {
            let lines = number("totalLines").unwrap_or(0);
            return format!(
                "[line {} is past the end: the file has {lines} lines]",
                self.offset.unwrap_or(1)
            );
        }
        if report.get("cutLine").and_then(Value::as_bool) == Some(true) {
            text.push_str(
                "\n[this line is longer than one read shows; use exec with cut or head -c]",
            );
        }
        if let Some(next) = number("next") {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("[more follows: go on with offset {next}]"));
        }
        text
    }
}

impl Write {
    pub(super) fn parse(params: &Map<String, Value>) -> Result<Self, String> {
        Ok(Self { path: path(params)?, content: text(params, "content")? })
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        vec![self.path.clone(), format!("({} bytes)", self.content.len())]
    }

    pub(super) fn run(&self, sandbox: &AgentSandbox, cancel: &Cancel) -> Result<Answer> {
        let bytes = self.content.len();
        let request = json!({"op": "write", "path": self.path, "bytes": bytes});
        let answer = sandbox.file(&request, self.content.as_bytes(), 0, cancel)?;
        Ok(refused(&answer.report).unwrap_or_else(|| {
            Answer::text(format!("Successfully wrote {bytes} bytes to {}", self.path))
        }))
    }
}

impl Patch {
    pub(super) fn parse(params: &Map<String, Value>) -> Result<Self, String> {
        Ok(Self {
            path: path(params)?,
            old: text(params, "oldText")?,
            new: text(params, "newText")?,
        })
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        vec![self.path.clone()]
    }

    pub(super) fn run(&self, sandbox: &AgentSandbox, cancel: &Cancel) -> Result<Answer> {
        let request = json!({
            "op": "patch", "path": self.path,
            "oldBytes": self.old.len(), "newBytes": self.new.len(),
        });
        let content = [self.old.as_bytes(), self.new.as_bytes()].concat();
        let answer = sandbox.file(&request, &content, 0, cancel)?;
        Ok(refused(&answer.report).unwrap_or_else(|| {
            let diff = answer.report.get("diff").and_then(Value::as_str).unwrap_or_default();
            Answer::text(format!("Successfully patched {}\n{diff}", self.path))
        }))
    }
}

fn image(report: &Value, content: &[u8]) -> Answer {
    let mime_type = report.get("mime").and_then(Value::as_str).unwrap_or("image/png").to_owned();
    let data = STANDARD.encode(content);
    Answer { content: vec![Content::Image { data, mime_type }], ..Answer::text(String::new()) }
}

fn folder(path: &str, report: &Value) -> String {
    let names =
        report.get("entries").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    let more = report.get("more").and_then(Value::as_u64).unwrap_or(0);
    let mut text = format!("{path} is a folder:\n{}", names.join("\n"));
    if names.is_empty() {
        text = format!("{path} is an empty folder");
    }
    if more > 0 {
        text.push_str(&format!("\n[{more} more]"));
    }
    text
}

/// tool-client's refusal in words.
fn refused(report: &Value) -> Option<Answer> {
    report.get("error").and_then(Value::as_str).map(Answer::error)
}

/// The required `path`.
fn path(params: &Map<String, Value>) -> Result<String, String> {
    let path = text(params, "path")?;
    match path.contains('\0') {
        true => Err("`path` holds a NUL character, which no file's name can".to_owned()),
        false => Ok(path),
    }
}

/// A required string.
pub(super) fn text(params: &Map<String, Value>, name: &str) -> Result<String, String> {
    match params.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("`{name}` must be a string, not {}", kind_of(other))),
        None => Err(format!("`{name}` is missing: it must be a string")),
    }
}

/// An optional number from 1 on; a string of digits is taken too, since
/// models write them.
fn whole_number(params: &Map<String, Value>, name: &str) -> Result<Option<u64>, String> {
    let number = match params.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => other.as_u64(),
    };
    match number {
        Some(number) if number >= 1 => Ok(Some(number)),
        _ => Err(format!("`{name}` must be a whole number from 1 on")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn arguments_are_named_when_they_are_wrong() {
        #[track_caller]
        fn check(value: Value, want: &str) {
            assert_eq!(Read::parse(&params(value)), Err(want.to_owned()));
        }
        check(json!({}), "`path` is missing: it must be a string");
        check(json!({"path": 1}), "`path` must be a string, not a number");
        check(json!({"path": "a\u{0}"}), "`path` holds a NUL character, which no file's name can");
        check(json!({"path": "a", "offset": 0}), "`offset` must be a whole number from 1 on");
        check(json!({"path": "a", "limit": -1}), "`limit` must be a whole number from 1 on");
        check(json!({"path": "a", "limit": 1.5}), "`limit` must be a whole number from 1 on");
    }

    #[test]
    fn a_number_in_a_string_is_taken() {
        let want = Read { path: "a".into(), offset: Some(7), limit: None };
        assert_eq!(Read::parse(&params(json!({"path": "a", "offset": "7"}))), Ok(want));
    }

    #[test]
    fn the_audit_log_never_shows_what_is_written() {
        let write = Write::parse(&params(json!({"path": "q.txt", "content": "hello"})));
        assert_eq!(write.map(|it| it.arguments()), Ok(vec!["q.txt".into(), "(5 bytes)".into()]));
    }

    #[test]
    fn a_refusal_is_told_in_the_words_it_came_in() {
        let report = json!({"error": "no file a.txt", "code": "missing"});
        assert_eq!(refused(&report), Some(Answer::error("no file a.txt")));
        assert_eq!(refused(&json!({"bytes": 1})), None);
    }
}
