//! What a tool answered, as the output of a command. Pure. Text is printed;
//! what is no text becomes a file, of which only the content and the kind come
//! from the server: its name is for others to make.
//!
//! Source: MCP 2025-06-18, "Tools", "Tool Result".

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use crate::plugin::run::SavedFile;

/// Largest file, in bytes.
const LARGEST_FILE: usize = 16 * 1024 * 1024;

/// Most bytes of all files of one answer.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// Most files of one answer.
const MOST_FILES: usize = 100;

/// An answer as the output of a command.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answered {
    pub(super) text: String,
    pub(super) files: Vec<SavedFile>,
    pub(super) is_error: bool,
}

/// Reads an answer; the error says why it is none.
pub(super) fn read(answer: Value) -> Result<Answered, String> {
    let (content, structured) = (&answer["content"], &answer["structuredContent"]);
    let is_error = answer["isError"].as_bool().unwrap_or(false);
    let mut reading = Reading { answered: Answered { is_error, ..Answered::default() }, bytes: 0 };
    match content {
        Value::Array(parts) if !parts.is_empty() => {
            parts.iter().for_each(|it| reading.part(it));
        }
        Value::Array(_) | Value::Null if !structured.is_null() => {
            reading.line(&serde_json::to_string_pretty(structured).unwrap_or_default());
        }
        Value::Array(_) => {}
        _ => return Err("answers without `content`, an array".to_owned()),
    }
    Ok(reading.answered)
}

struct Reading {
    answered: Answered,
    bytes: usize,
}

impl Reading {
    fn part(&mut self, part: &Value) {
        let kind = part["type"].as_str().unwrap_or_default();
        match kind {
            "text" => self.line(part["text"].as_str().unwrap_or_default()),
            "image" | "audio" => self.file(kind, &part["mimeType"], &part["data"]),
            "resource" => self.resource(&part["resource"]),
            "resource_link" => self.link(part),
            _ => self.line(&format!("[a part of the kind {kind:?} is left out]")),
        }
    }

    fn resource(&mut self, resource: &Value) {
        let uri = one_line(&resource["uri"]);
        if let Some(text) = resource["text"].as_str() {
            self.line(&format!("{uri}:"));
            return self.line(text);
        }
        self.file(&format!("resource {uri}"), &resource["mimeType"], &resource["blob"]);
    }

    fn link(&mut self, link: &Value) {
        let (uri, name) = (one_line(&link["uri"]), one_line(&link["name"]));
        let description = one_line(&link["description"]);
        let told = [name, description].into_iter().filter(|it| !it.is_empty());
        let told = told.collect::<Vec<_>>().join(": ");
        self.line(format!("{uri} {told}").trim_end());
    }

    fn file(&mut self, what: &str, mime_type: &Value, data: &Value) {
        let mime_type = mime_type.as_str().unwrap_or_default();
        let Some(bytes) = data.as_str().and_then(decoded) else {
            return self.line(&format!("[{what}: left out, its data is no base64]"));
        };
        let (size, files) = (bytes.len(), self.answered.files.len());
        if size > LARGEST_FILE || self.bytes + size > MOST_BYTES || files == MOST_FILES {
            return self.line(&format!("[{what}: {size} bytes left out, the answer is too large]"));
        }
        self.bytes += size;
        self.answered.files.push(SavedFile {
            what: what.to_owned(),
            ending: ending(mime_type),
            bytes,
        });
    }

    /// Ends with a newline, however it came.
    fn line(&mut self, text: &str) {
        self.answered.text.push_str(text);
        if !text.is_empty() && !text.ends_with('\n') {
            self.answered.text.push('\n');
        }
    }
}

fn one_line(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace(char::is_control, " ")
}

/// Base64 as servers write it: with line ends in it or not, padded or not.
fn decoded(data: &str) -> Option<Vec<u8>> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&STANDARD, config);
    if !data.contains(char::is_whitespace) {
        return engine.decode(data).ok();
    }
    engine.decode(data.split_whitespace().collect::<String>()).ok()
}

/// How the name of such a file ends.
fn ending(mime_type: &str) -> &'static str {
    let bare = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match bare.as_str() {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "audio/flac" => "flac",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "application/zip" => "zip",
        "application/gzip" | "application/x-gzip" => "gz",
        "text/html" => "html",
        "text/csv" => "csv",
        it if it.starts_with("text/") => "txt",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(answer: Value, text: &str, is_error: bool) {
        let want = Answered { text: text.to_owned(), files: Vec::new(), is_error };
        assert_eq!(read(answer), Ok(want));
    }

    #[test]
    fn text_is_printed_line_by_line() {
        let text = |it: &str| json!({"type": "text", "text": it});
        check(json!({"content": [text("a"), text("b\n"), text("")]}), "a\nb\n", false);
        check(json!({"content": [text("no")], "isError": true}), "no\n", true);
        check(json!({"content": []}), "", false);
    }

    #[test]
    fn structured_content_is_printed_where_there_is_no_other() {
        let structured = json!({"a": 1});
        check(json!({"structuredContent": structured}), "{\n  \"a\": 1\n}\n", false);
        check(json!({"content": [], "structuredContent": structured}), "{\n  \"a\": 1\n}\n", false);
        let text = json!([{"type": "text", "text": "one"}]);
        check(json!({"content": text, "structuredContent": structured}), "one\n", false);
    }

    #[test]
    fn resources_are_named() {
        let resource = json!({"type": "resource", "resource": {"uri": "a://b", "text": "c"}});
        check(json!({"content": [resource]}), "a://b:\nc\n", false);
        let link =
            json!({"type": "resource_link", "uri": "a://b", "name": "n", "description": "d\ne"});
        check(json!({"content": [link, {"type": "resource_link"}]}), "a://b n: d e\n", false);
    }

    #[test]
    fn what_is_no_text_becomes_a_file() {
        let answer = json!({"content": [
            {"type": "image", "mimeType": "image/png", "data": "AQI="},
            {"type": "audio", "mimeType": "../../evil", "data": "AQ\nI"},
            {"type": "resource", "resource": {"uri": "a://b", "mimeType": "text/csv", "blob": ""}},
        ]});
        let file = |what: &str, ending, bytes: &[u8]| SavedFile {
            what: what.into(),
            ending,
            bytes: bytes.into(),
        };
        let files = vec![
            file("image", "png", &[1, 2]),
            file("audio", "bin", &[1, 2]),
            file("resource a://b", "csv", &[]),
        ];
        assert_eq!(read(answer), Ok(Answered { files, ..Answered::default() }));
    }

    #[test]
    fn what_makes_no_sense_is_told_in_its_place() {
        let bad = json!({"content": [
            {"type": "image", "data": "%"}, {"type": "audio"}, {"type": "dance"}, 7,
            {"type": "resource"},
        ]});
        let told = "[image: left out, its data is no base64]\n\
                    [audio: left out, its data is no base64]\n\
                    [a part of the kind \"dance\" is left out]\n\
                    [a part of the kind \"\" is left out]\n\
                    [resource : left out, its data is no base64]\n";
        check(bad, told, false);
        for none in [json!({}), json!({"content": "text"}), json!(7), Value::Null] {
            assert!(read(none.clone()).is_err(), "{none}");
        }
    }

    #[test]
    fn files_are_bounded() {
        let image = |size| json!({"type": "image", "data": "AAAA".repeat(size / 3)});
        let large = LARGEST_FILE + 4;
        let got = read(json!({"content": [image(large)]})).map(|it| (it.files.len(), it.text));
        let told = "[image: 16777218 bytes left out, the answer is too large]\n";
        assert_eq!(got, Ok((0, told.to_owned())));
        let three = json!({"content": vec![image(12 * 1024 * 1024); 3]});
        assert_eq!(read(three).map(|it| it.files.len()), Ok(2));
        let many = json!({"content": vec![image(3); 200]});
        assert_eq!(read(many).map(|it| it.files.len()), Ok(100));
    }
}
