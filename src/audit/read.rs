//! Reading: line by line over all files, oldest first, whatever writers and
//! rotation do meanwhile. Holds one line at a time, and no line longer than
//! ours can be.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crossbeam_channel::{after, select};
use serde::Deserialize;

use super::lock::{LONGEST_WAIT, hold_shared};
use super::record::LONGEST_LINE;
use super::tail::{Head, newest_first};
use crate::clock::Time;
use crate::config::Home;
use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};
use crate::worker::Cancel;

/// How often a followed log is looked at: files cannot be waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Which records are wanted; all of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this agent's.
    pub agent: Option<String>,
    /// Only this tool's.
    pub tool: Option<String>,
    /// Only refused calls.
    pub denied: bool,
    /// Only from this moment on.
    pub since: Option<Time>,
}

/// Hands every record that the filter wants to `each`, as its line of JSON
/// without the newline, oldest first, until `each` says `false`. Returns how
/// many lines were no records: [`super::verify`] says which.
pub fn read(
    home: &Home,
    filter: &Filter,
    each: &mut dyn FnMut(&str) -> Result<bool>,
) -> Result<u64> {
    let mut reading = Reading::new(filter);
    reading.pass(Snapshot::take(home)?, each)?;
    Ok(reading.broken + u64::from(reading.is_torn))
}

/// [`read`], then every record as it is written (within 200 ms), over
/// rotations, until it is called off.
pub fn follow(
    home: &Home,
    filter: &Filter,
    cancel: &Cancel,
    each: &mut dyn FnMut(&str) -> Result<bool>,
) -> Result<()> {
    let mut reading = Reading::new(filter);
    while reading.pass(Snapshot::take(home)?, each)? {
        select! {
            recv(cancel.gone()) -> _ => return Ok(()),
            recv(after(LOOK_EVERY)) -> _ => (),
        }
    }
    Ok(())
}

/// The moment that `--since` names: `90s`, `30m`, `1h`, `2d` before `now`, a day
/// (its beginning in UTC), or RFC 3339.
pub fn parse_since(text: &str, now: Time) -> Result<Time> {
    let ago = text.char_indices().last().and_then(|(end, unit)| {
        let count: u64 = text[..end].parse().ok()?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return None,
        };
        Some(now.before(Duration::from_secs(count.saturating_mul(seconds))))
    });
    let day = || Time::parse(&format!("{text}T00:00:00Z"));
    ago.or_else(|| Time::parse(text)).or_else(day).ok_or_else(|| {
        let what = format!(
            "`{text}` is no time: write 90s, 30m, 1h, 2d, 2026-11-30 (UTC) or 2026-11-30T04:16:34Z"
        );
        Error::new(Kind::Usage, what)
    })
}

/// All files as they stand at one moment, none of them being written.
pub(super) struct Snapshot {
    /// Oldest first.
    pub(super) files: Vec<LogFile>,
    /// What `audit.head` says.
    pub(super) head: Result<Option<Head>>,
}

/// One file of the log.
pub(super) struct LogFile {
    /// Its name without its folder.
    pub(super) name: String,
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    length: u64,
}

/// Lines of one file.
pub(super) struct Lines {
    reader: BufReader<Take<File>>,
    buffer: Vec<u8>,
}

/// A line without its newline.
pub(super) struct Line<'a> {
    /// At most [`LONGEST_LINE`] bytes.
    pub(super) bytes: &'a [u8],
    /// Whether it is longer than that.
    pub(super) is_overlong: bool,
    /// Whether its newline is there.
    pub(super) is_closed: bool,
    /// All its bytes, newline included.
    length: u64,
}

impl Snapshot {
    /// Keeps writers away while it opens the files.
    pub(super) fn take(home: &Home) -> Result<Self> {
        let _held = hold_shared(&home.audit_lock(), Instant::now() + LONGEST_WAIT)?;
        let mut files = Vec::new();
        for path in newest_first(home)?.into_iter().rev() {
            let what = || format!("open {}", path.display());
            let file =
                open_own(&path, File::options().read(true)).during(Kind::Internal, what())?;
            let state = file.metadata().during(Kind::Internal, what())?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let identity = (state.dev(), state.ino());
            files.push(LogFile { name, file, identity, length: state.len() });
        }
        Ok(Self { files, head: Head::read(home) })
    }
}

impl LogFile {
    /// Its lines from a place on, up to where it ended in the snapshot.
    pub(super) fn lines(mut self, from: u64) -> Result<Lines> {
        let what = || format!("read {}", self.name);
        self.file.seek(SeekFrom::Start(from)).during(Kind::Internal, what())?;
        let rest = self.file.take(self.length.saturating_sub(from));
        Ok(Lines { reader: BufReader::with_capacity(64 * 1024, rest), buffer: Vec::new() })
    }
}

impl Lines {
    /// The next line; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>> {
        self.buffer.clear();
        let mut length = 0;
        let mut is_closed = false;
        while !is_closed {
            let piece = self.reader.fill_buf().during(Kind::Internal, "read the audit log")?;
            if piece.is_empty() {
                break;
            }
            let newline = piece.iter().position(|it| *it == b'\n');
            let text = &piece[..newline.unwrap_or(piece.len())];
            let room = (LONGEST_LINE + 1).saturating_sub(self.buffer.len());
            self.buffer.extend_from_slice(&text[..text.len().min(room)]);
            is_closed = newline.is_some();
            let used = text.len() + usize::from(is_closed);
            self.reader.consume(used);
            length += used as u64;
        }
        let is_overlong = self.buffer.len() > LONGEST_LINE;
        self.buffer.truncate(LONGEST_LINE);
        let line = Line { bytes: &self.buffer, is_overlong, is_closed, length };
        Ok((length > 0).then_some(line))
    }
}

/// How far a reader has come.
struct Reading<'a> {
    filter: &'a Filter,
    /// `since` as records write it; texts of this form sort by time.
    since: Option<String>,
    /// The file that was read last and how much of it, if any.
    place: Option<((u64, u64), u64)>,
    /// Lines that were no records.
    broken: u64,
    /// Whether the last line of all was not all there.
    is_torn: bool,
}

/// What a filter looks at.
#[derive(Deserialize)]
struct Seen<'a> {
    #[serde(borrow)]
    ts: Cow<'a, str>,
    #[serde(borrow)]
    agent: Cow<'a, str>,
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    decision: Cow<'a, str>,
}

impl<'a> Reading<'a> {
    fn new(filter: &'a Filter) -> Self {
        let since = filter.since.map(|it| it.to_string());
        Self { filter, since, place: None, broken: 0, is_torn: false }
    }

    /// Goes from where it stands to the end; whether more is wanted.
    fn pass(
        &mut self,
        snapshot: Snapshot,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<bool> {
        let mut files = snapshot.files;
        let known = files.iter().position(|it| self.place.is_some_and(|(id, _)| id == it.identity));
        // If the file is not there any more, all that are there are newer.
        files.drain(..known.unwrap_or(0));
        let newest = files.len().saturating_sub(1);
        for (index, file) in files.into_iter().enumerate() {
            if !self.pass_file(file, index == newest, each)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn pass_file(
        &mut self,
        file: LogFile,
        is_newest: bool,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<bool> {
        let identity = file.identity;
        let mut offset = match self.place {
            Some((id, offset)) if id == identity => offset,
            _ => 0,
        };
        let mut lines = file.lines(offset)?;
        self.is_torn = false;
        self.place = Some((identity, offset));
        while let Some(line) = lines.next()? {
            // It may be closed later, and then it is read.
            if !line.is_closed && is_newest {
                self.is_torn = true;
                break;
            }
            offset += line.length;
            self.place = Some((identity, offset));
            if !self.show(&line, each)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn show(
        &mut self,
        line: &Line<'_>,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<bool> {
        let text = std::str::from_utf8(line.bytes).unwrap_or_default();
        match serde_json::from_str::<Seen<'_>>(text) {
            Ok(seen) if !self.wants(&seen) => Ok(true),
            Ok(_) => each(text),
            Err(_) => {
                self.broken += 1;
                Ok(true)
            }
        }
    }

    fn wants(&self, seen: &Seen<'_>) -> bool {
        self.filter.agent.as_ref().is_none_or(|it| *it == seen.agent)
            && self.filter.tool.as_ref().is_none_or(|it| *it == seen.tool)
            && (!self.filter.denied || seen.decision == "denied")
            && self.since.as_ref().is_none_or(|it| *seen.ts >= **it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_unix_millis(1_796_012_194_668);

    #[track_caller]
    fn check(text: &str, want: Option<i64>) {
        assert_eq!(parse_since(text, NOW).ok().map(Time::unix_millis), want, "{text}");
    }

    #[test]
    fn since_is_a_span_or_a_moment() {
        check("90s", Some(NOW.unix_millis() - 90_000));
        check("30m", Some(NOW.unix_millis() - 1_800_000));
        check("1h", Some(NOW.unix_millis() - 3_600_000));
        check("2d", Some(NOW.unix_millis() - 172_800_000));
        check("1970-01-01T00:00:01Z", Some(1_000));
        check("1970-01-02", Some(86_400_000));
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in [
            "",
            "h",
            "1",
            "1970-02-30",
            "1970-01",
            "1970-01-02 ",
            "1w",
            "-1h",
            "1 h",
            "1€",
            "99999999999999999999d",
            "yesterday",
        ] {
            check(text, None);
        }
        assert!(parse_since("18446744073709551615d", NOW).is_ok());
    }
}
