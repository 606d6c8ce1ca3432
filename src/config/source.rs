//! Bounded reading: of the configuration itself and of the files it names in
//! `${file:}` and `instructions`. Takes regular files only (a FIFO would hang,
//! a device would never end) and refuses what is larger than its bound.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use json5::ErrorCode;
use rustix::fs::OFlags;
use serde_json::Value;

use crate::config::key_path::Position;
use crate::config::position::{is_blank, position_of, too_deep};
use crate::config::report::Report;

/// Largest configuration, in bytes.
pub(crate) const LARGEST_CONFIG: usize = 1 << 20;

/// Largest file that a value may be taken from, in bytes.
pub(crate) const LARGEST_VALUE: usize = 64 << 10;

/// Deepest nesting of objects and arrays; the parser recurses.
const DEEPEST: usize = 64;

/// Reads the configuration.
/// `usual` is the file that `beige setup` makes.
pub(crate) fn read_config(file: &Path, usual: &Path) -> Result<Vec<u8>, Report> {
    read_bounded(file, LARGEST_CONFIG).map_err(|it| {
        let hint = match file.exists() {
            true => String::new(),
            false if file == usual => "; `beige setup` makes it, --config names another".into(),
            false => format!(
                "; --config or BEIGE_CONFIG names it, and `beige setup` makes {} only",
                usual.display()
            ),
        };
        Report::unreadable(file, format!("{it}{hint}"))
    })
}

/// The text of a configuration, without a byte order mark; `file` is only
/// named.
pub(crate) fn decode<'a>(file: &Path, bytes: &'a [u8]) -> Result<&'a str, Report> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let valid = String::from_utf8_lossy(valid);
            let position = position_of(&valid, valid.len());
            let message = "is not UTF-8 text; save it as UTF-8".into();
            Err(Report::single(file, Some(position), message))
        }
    }
}

/// Reads the text of a file that a value is taken from. The error is the
/// second half of a sentence that names no file.
pub(crate) fn read_value(file: &Path) -> Result<String, String> {
    let bytes = read_bounded(file, LARGEST_VALUE)?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".into())
}

/// Parses the text; `file` is only named.
pub(crate) fn parse(file: &Path, text: &str) -> Result<Value, Report> {
    if is_blank(text) {
        let message = "is empty: it must hold at least `llm.providers` and `agents`; \
                       `beige setup` writes one to begin with into a home that has none";
        return Err(Report::unreadable(file, message.into()));
    }
    if let Some(offset) = too_deep(text, DEEPEST) {
        let message = format!("objects and arrays are nested deeper than {DEEPEST} levels");
        return Err(Report::single(file, Some(position_of(text, offset)), message));
    }
    json5::from_str(text).map_err(|error| {
        // At the end of the file the parser gives no position, or that of the
        // value around: it helps only with a bracket that is not closed.
        let is_useful = match error.code() {
            Some(ErrorCode::EofParsingObject | ErrorCode::EofParsingArray) => true,
            code => code.and_then(missing_at_end).is_none(),
        };
        let at = error.position().filter(|_| is_useful).map_or_else(
            || position_of(text, text.len()),
            |it| Position { line: it.line + 1, column: it.column + 1 },
        );
        Report::single(file, Some(at), syntax_message(&error))
    })
}

fn syntax_message(error: &json5::Error) -> String {
    if let Some(missing) = error.code().and_then(missing_at_end) {
        return format!("is not JSON5: the file ends{missing}");
    }
    let hint = match error.code() {
        Some(ErrorCode::TrailingCharacters) => "; nothing may follow the last `}`",
        Some(ErrorCode::ExpectedClosingBrace | ErrorCode::ExpectedClosingBracket) => {
            "; is a comma missing before it?"
        }
        Some(ErrorCode::LineTerminatorInString) => "; is a quote missing?",
        _ => "",
    };
    match error.code() {
        Some(code) => format!("is not JSON5: {code}{hint}"),
        None => "is not JSON5: a number or name cannot be read".into(),
    }
}

/// What a file lacks that ends too early.
fn missing_at_end(code: ErrorCode) -> Option<&'static str> {
    match code {
        ErrorCode::EofParsingObject => Some(", and a `{` is not closed"),
        ErrorCode::EofParsingArray => Some(", and a `[` is not closed"),
        ErrorCode::EofParsingString | ErrorCode::EofParsingEscapeSequence => {
            Some(", and a quote is not closed")
        }
        ErrorCode::EofParsingComment => Some(", and a `/*` is not closed"),
        ErrorCode::EofParsingValue => Some(" where a value should stand"),
        _ => None,
    }
}

/// Reads a regular file of at most so many bytes. The error is the second half
/// of a sentence that names no file.
pub(crate) fn read_bounded(file: &Path, most: usize) -> Result<Vec<u8>, String> {
    let opened = open_regular(file)?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    opened.take(limit).read_to_end(&mut bytes).map_err(|it| format!("cannot be read: {it}"))?;
    if bytes.len() > most {
        return Err(format!("is larger than {} KiB", most >> 10));
    }
    Ok(bytes)
}

/// Opens a regular file and nothing else, without waiting. The error is the
/// second half of a sentence that names no file.
pub(crate) fn open_regular(file: &Path) -> Result<File, String> {
    // Without it the opening of a FIFO waits for a writer.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(file)
        .map_err(|it| cannot_open(&it))?;
    let kind = opened.metadata().map_err(|it| format!("cannot be read: {it}"))?.file_type();
    if kind.is_dir() {
        return Err("is a folder, not a file".into());
    }
    if !kind.is_file() {
        return Err("is not a regular file".into());
    }
    Ok(opened)
}

fn cannot_open(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "does not exist".into(),
        ErrorKind::PermissionDenied => {
            "may not be read by this user; check the modes of the file and its folders".into()
        }
        _ => format!("cannot be opened: {error}"),
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    use std::fs;

    use crate::config::sample::Folder;

    #[track_caller]
    fn check_config(folder: &Folder, content: &[u8], expected: Result<&str, &str>) {
        let file = folder.write("config.json5", content);
        let text = read_config(&file, &file)
            .and_then(|it| decode(&file, &it).map(str::to_owned))
            .map_err(|it| it.findings[0].message.clone());
        assert_eq!(text.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn a_configuration_is_read_without_its_byte_order_mark() {
        let folder = Folder::new();
        check_config(&folder, b"\xEF\xBB\xBF{}\r\n", Ok("{}\r\n"));
        check_config(&folder, b"", Ok(""));
        check_config(&folder, b"{\n a: '\xE9'}", Err("is not UTF-8 text; save it as UTF-8"));
        check_config(&folder, &vec![b' '; LARGEST_CONFIG + 1], Err("is larger than 1024 KiB"));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let folder = Folder::new();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU)
            .unwrap_or_else(|it| panic!("{it}"));
        assert_eq!(read_value(&fifo), Err("is not a regular file".into()));
        assert_eq!(read_value(folder.path()), Err("is a folder, not a file".into()));
        assert_eq!(read_value(Path::new("/dev/zero")), Err("is not a regular file".into()));
        assert_eq!(read_value(&folder.path().join("no")), Err("does not exist".into()));
    }

    #[test]
    fn a_file_that_may_not_be_read_says_what_to_check() {
        let error = std::io::Error::from(ErrorKind::PermissionDenied);
        assert!(cannot_open(&error).contains("check the modes"));
        // Root reads all files; anybody else sees the same text at once.
        let folder = Folder::new();
        let file = folder.write("closed", b"x");
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o000))
            .unwrap_or_else(|it| panic!("{it}"));
        let expected = if rustix::process::geteuid().is_root() {
            Ok("x".to_owned())
        } else {
            Err(cannot_open(&error))
        };
        assert_eq!(read_value(&file), expected);
    }

    #[track_caller]
    fn check_syntax(text: &str, expected: &str) {
        let report = parse(Path::new("f"), text).err().map(|it| it.to_string());
        assert_eq!(report.as_deref(), Some(expected));
    }

    #[test]
    fn a_syntax_error_has_line_and_column() {
        check_syntax("{\n  a: 1\n  b: 2}", "f:3:3: is not JSON5: expected comma");
        check_syntax("{\r\n a: [1", "f:2:5: is not JSON5: the file ends, and a `[` is not closed");
        check_syntax("{\n a: {\n", "f:2:5: is not JSON5: the file ends, and a `{` is not closed");
        check_syntax("{a: 'b", "f:1:7: is not JSON5: the file ends, and a quote is not closed");
        check_syntax("{a: /* b", "f:1:9: is not JSON5: the file ends, and a `/*` is not closed");
        check_syntax("{a:", "f:1:4: is not JSON5: the file ends where a value should stand");
        check_syntax(
            "{} x",
            "f:1:4: is not JSON5: trailing characters; nothing may follow the last `}`",
        );
        check_syntax(
            "{a: 'b\n'}",
            "f:1:7: is not JSON5: line terminator in string; is a quote missing?",
        );
        check_syntax("{a: 0x}", "f:1:7: is not JSON5: expected number");
        let deep = "[".repeat(200_000);
        check_syntax(&deep, "f:1:65: objects and arrays are nested deeper than 64 levels");
    }

    #[test]
    fn an_empty_file_says_what_it_must_hold() {
        for text in ["", " \r\n", "// nothing\n/* at all */"] {
            let report = parse(Path::new("f"), text).err().map(|it| it.to_string());
            assert!(report.is_some_and(|it| it.starts_with("f: is empty: it must hold")));
        }
    }
}
