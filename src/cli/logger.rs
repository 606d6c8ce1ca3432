//! The log: one line a record, secrets masked, rotated by size. To standard
//! error in the foreground, else to `gateway.logFile`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use env_logger::{Builder, Target};

use crate::clock;
use crate::config;
use crate::error::{During, Error, Kind, Result};
use crate::secret::Redactor;

/// Records under this target tell a person who waits what is going on.
const PROGRESS: &str = "progress";

/// Longest text of one record, in bytes.
const MAX_RECORD: usize = 8 * 1024;

/// Log to standard error, at a level (`BEIGE_LOG` overrides it).
pub(super) fn to_stderr(level: log::LevelFilter, redactor: Redactor) -> Result<()> {
    install(level, redactor, Target::Stderr)
}

/// Log to the file of the configuration.
pub(super) fn to_file(gateway: &config::Gateway, redactor: Redactor) -> Result<()> {
    let file = RotatingFile::open(gateway)?;
    install(gateway.log_level, redactor, Target::Pipe(Box::new(file)))
}

/// Log of a one-shot: warnings, and the progress of what takes long, as plain
/// sentences on standard error.
pub(super) fn for_one_call(redactor: Redactor) -> Result<()> {
    Builder::new()
        .filter_level(log::LevelFilter::Warn)
        .filter_module(PROGRESS, log::LevelFilter::Info)
        .parse_env("BEIGE_LOG")
        .target(Target::Stderr)
        .format(move |out, record| {
            let text = record.args().to_string();
            writeln!(out, "beige: {}", one_line(&redactor.mask(cut(&text))))
        })
        .try_init()
        .map_err(|error| Error::new(Kind::Internal, format!("start the log: {error}")))
}

fn install(level: log::LevelFilter, redactor: Redactor, target: Target) -> Result<()> {
    Builder::new()
        .filter_level(level)
        .parse_env("BEIGE_LOG")
        .target(target)
        .format(move |out, record| {
            let text = record.args().to_string();
            let text = redactor.mask(cut(&text));
            writeln!(out, "{} {:5} {}", clock::now(), record.level(), one_line(&text))
        })
        .try_init()
        .map_err(|error| Error::new(Kind::Internal, format!("start the log: {error}")))
}

/// At most [`MAX_RECORD`] bytes, cut between characters.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_RECORD)]
}

/// Control characters escaped, so that no text can forge a line or drive a
/// terminal.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for it in text.chars() {
        if it.is_control() { line.extend(it.escape_default()) } else { line.push(it) }
    }
    line
}

struct RotatingFile {
    path: PathBuf,
    max_bytes: u64,
    max_files: u32,
    file: File,
    size: u64,
}

impl RotatingFile {
    fn open(gateway: &config::Gateway) -> Result<Self> {
        let path = gateway.log_file.clone();
        let what = format!("open the log {}", path.display());
        if let Some(folder) = path.parent() {
            config::home::create_private(folder)?;
        }
        let file = append_to(&path).during(Kind::Internal, what.clone())?;
        let size = file.metadata().during(Kind::Internal, what)?.len();
        let (max_bytes, max_files) = (gateway.log_max_bytes, gateway.log_max_files);
        Ok(Self { path, max_bytes, max_files, file, size })
    }

    fn rotate(&mut self) -> io::Result<()> {
        let numbered = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.max_files).rev() {
            if numbered(number).exists() {
                fs::rename(numbered(number), numbered(number + 1))?;
            }
        }
        if self.max_files > 0 {
            fs::rename(&self.path, numbered(1))?;
        } else {
            fs::remove_file(&self.path)?;
        }
        self.file = append_to(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size > 0 && self.size + bytes.len() as u64 > self.max_bytes {
            // A log that cannot be rotated goes on in the old file.
            let _ = self.rotate();
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    config::home::open_own(path, OpenOptions::new().create(true).append(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_cannot_forge_a_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(one_line("那é"), "那é");
    }

    #[test]
    fn a_long_record_is_cut_between_characters() {
        for before in 0..4 {
            let text = format!("{}{}", "x".repeat(before), "那".repeat(MAX_RECORD));
            let cut = cut(&text);
            assert!(cut.len() <= MAX_RECORD && cut.len() > MAX_RECORD - 3);
        }
    }
}
