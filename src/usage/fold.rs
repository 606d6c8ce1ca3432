//! A file that is long keeps its newest calls as they are; those before come to
//! one line for each day, agent, model and role. It is replaced as a whole, so
//! that no call is ever counted twice or not at all. Whoever calls holds the
//! lock.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::json;

use super::Role;
use super::line::{Entry, Head, LONGEST_LINE, Line, Tally, each_line};
use crate::config::Home;
use crate::config::home::open_own;
use crate::error::{During, Kind, Result};

/// What is summed up to one line.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Of {
    day: String,
    agent: String,
    provider: String,
    model: String,
    role: Role,
}

/// What the calls before the newest came to.
#[derive(Default)]
struct Folded {
    days: BTreeMap<Of, Tally>,
    damaged: u64,
}

/// Whether a file of that length, over the limit, has grown enough since it was
/// last summed up: lines of days cannot be summed up further.
pub(super) fn is_due(file: &File, length: u64, limit: u64) -> io::Result<bool> {
    let mut first = Vec::new();
    let mut from = file;
    from.seek(SeekFrom::Start(0))?;
    BufReader::with_capacity(256, from.take(LONGEST_LINE)).read_until(b'\n', &mut first)?;
    let folded = match Entry::of(&first) {
        Entry::Head(head) => head.folded,
        Entry::Line(_) | Entry::Damaged => 0,
    };
    Ok(length > limit.max(folded.saturating_mul(2)))
}

/// Puts a new file in place of this one, whose newest bytes, so many or a few
/// less, stay as they are.
pub(super) fn fold(home: &Home, file: &File, newest: u64) -> Result<()> {
    let path = home.usage_log();
    let draft = path.with_extension("jsonl.new");
    let replaced = replace(file, newest, &draft).and_then(|()| fs::rename(&draft, &path));
    if replaced.is_err() {
        let _ = fs::remove_file(&draft);
    }
    replaced.during(Kind::Internal, format!("replace {}", path.display()))
}

fn replace(file: &File, newest: u64, draft: &Path) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut from = file;
    from.seek(SeekFrom::Start(0))?;
    let (folded, end) = sum_up(from.take(length), length.saturating_sub(newest))?;
    from.seek(SeekFrom::Start(end))?;
    let new = open_own(draft, File::options().create(true).write(true).truncate(true))?;
    let mut to = BufWriter::new(new);
    let days = folded.lines();
    let head = Head { folded: days.len() as u64 + (length - end), damaged: folded.damaged };
    writeln!(to, "{}", serde_json::to_string(&head)?)?;
    to.write_all(&days)?;
    io::copy(&mut from.take(length - end), &mut to)?;
    to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
}

/// Sums up the lines that begin before a place; where the first that is left
/// begins.
fn sum_up(from: impl Read, before: u64) -> io::Result<(Folded, u64)> {
    let mut folded = Folded::default();
    let (mut offset, mut end) = (0, 0);
    each_line(BufReader::with_capacity(64 * 1024, from), &mut |line, length, _| {
        if offset < before {
            folded.take(Entry::of(line));
            end = offset + length;
        }
        offset += length;
        Ok(())
    })?;
    Ok((folded, end))
}

impl Folded {
    fn take(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Line(line) => {
                let tally = line.tally;
                self.days.entry(Of::line(&line)).or_default().add(&tally);
            }
            Entry::Head(head) => self.damaged = self.damaged.saturating_add(head.damaged),
            Entry::Damaged => self.damaged += 1,
        }
    }

    fn lines(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for (of, tally) in &self.days {
            lines.extend(of.told(tally).as_bytes());
            lines.push(b'\n');
        }
        lines
    }
}

impl Of {
    fn line(line: &Line<'_>) -> Self {
        Self {
            day: line.day(),
            agent: line.agent.clone().into_owned(),
            provider: line.provider.clone().into_owned(),
            model: line.model.clone().into_owned(),
            role: line.role,
        }
    }

    /// In the words of a call's line, with the number of calls.
    fn told(&self, tally: &Tally) -> String {
        let has_cost = tally.unpriced < tally.calls;
        let told = json!({
            "ts": format!("{}T00:00:00.000Z", self.day),
            "agent": self.agent,
            "session": null,
            "provider": self.provider,
            "model": self.model,
            "role": self.role,
            "calls": tally.calls,
            "failed": tally.failed,
            "unpriced": tally.unpriced,
            "input": tally.input,
            "output": tally.output,
            "cacheRead": tally.cache_read,
            "cacheWrite": tally.cache_write,
            "costUsd": has_cost.then(|| tally.rounded_cost()),
            "durationMs": tally.duration_ms,
            "firstTokenMs": null,
        });
        told.to_string()
    }
}
