//! The log: one line a record, secrets masked, rotated by size. To standard
//! error in the foreground, else to `gateway.logFile`. That of a gateway
//! follows the configuration that it serves.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use env_logger::{Builder, Logger, Target};
use log::Log;

use crate::clock;
use crate::config;
use crate::error::{During, Error, Kind, Result};
use crate::provider::HIDDEN_REFUSALS;
use crate::secret::Redactor;

/// Records under this target tell a person who waits what is going on.
const PROGRESS: &str = "progress";

/// Libraries whose inner steps are of no use to who runs a gateway.
const CHATTY: [&str; 3] = ["ureq", "ureq_proto", "rustls"];

/// Longest text of one record, in bytes.
const MAX_RECORD: usize = 8 * 1024;

/// The log of a gateway.
pub(super) struct GatewayLog {
    current: Arc<RwLock<Logger>>,
    place: Place,
    redactor: Redactor,
}

/// Where a gateway logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To standard error.
    Stderr,
    /// To the file of the configuration.
    File,
}

impl GatewayLog {
    /// Begins to log, at the level of the configuration (`BEIGE_LOG` overrides
    /// it).
    pub(super) fn start(
        place: Place,
        gateway: &config::Gateway,
        redactor: Redactor,
    ) -> Result<Self> {
        let logger = logger(place, gateway, &redactor)?;
        log::set_max_level(logger.filter());
        let current = Arc::new(RwLock::new(logger));
        log::set_boxed_logger(Box::new(Current(Arc::clone(&current))))
            .during(Kind::Internal, "start the log")?;
        Ok(Self { current, place, redactor })
    }

    /// Goes on as that configuration says; where it cannot, as before.
    pub(super) fn follow(&self, gateway: &config::Gateway) {
        match logger(self.place, gateway, &self.redactor) {
            Ok(logger) => {
                let level = logger.filter();
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = logger;
                log::set_max_level(level);
            }
            Err(error) => log::error!("the log goes on as before: {error}"),
        }
    }
}

/// Passes records to the logger of the configuration that is served.
struct Current(Arc<RwLock<Logger>>);

impl Log for Current {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).enabled(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.read().unwrap_or_else(PoisonError::into_inner).log(record);
    }

    fn flush(&self) {
        self.0.read().unwrap_or_else(PoisonError::into_inner).flush();
    }
}

/// Log of a one-shot: warnings, and the progress of what takes long, as plain
/// sentences on standard error.
pub(super) fn for_one_call(redactor: Redactor) -> Result<()> {
    builder()
        .filter_level(log::LevelFilter::Warn)
        .filter_module(PROGRESS, log::LevelFilter::Info)
        // The command says so itself.
        .filter_module(HIDDEN_REFUSALS, log::LevelFilter::Off)
        .parse_env("BEIGE_LOG")
        .target(Target::Stderr)
        .format(move |out, record| {
            let text = record.args().to_string();
            writeln!(out, "beige: {}", one_line(&redactor.mask(cut(&text))))
        })
        .try_init()
        .map_err(|error| Error::new(Kind::Internal, format!("start the log: {error}")))
}

/// One that leaves the chatty at warnings, unless `BEIGE_LOG` names them.
fn builder() -> Builder {
    let mut builder = Builder::new();
    for name in CHATTY {
        builder.filter_module(name, log::LevelFilter::Warn);
    }
    builder
}

fn logger(place: Place, gateway: &config::Gateway, redactor: &Redactor) -> Result<Logger> {
    let target = match place {
        Place::Stderr => Target::Stderr,
        Place::File => Target::Pipe(Box::new(RotatingFile::open(gateway)?)),
    };
    let redactor = redactor.clone();
    let logger = builder()
        .filter_level(gateway.log_level)
        .parse_env("BEIGE_LOG")
        .target(target)
        .format(move |out, record| {
            let text = record.args().to_string();
            let text = redactor.mask(cut(&text));
            writeln!(out, "{} {:5} {}", clock::now(), record.level(), one_line(&text))
        })
        .build();
    Ok(logger)
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
