//! A line as it is read: a call, or what many calls of a day came to. Whatever
//! is neither is damaged, and never stops the reading.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

use serde::{Deserialize, Serialize};

use super::Role;
use crate::clock::Time;
use crate::message::Usage;

/// Longest line that is read, in bytes; ours are far shorter.
pub(super) const LONGEST_LINE: u64 = 64 * 1024;

/// More US dollars than any line can come to.
const DEAREST: f64 = 1e9;

/// A call, or the calls of a day with one model in one role.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    #[serde(borrow)]
    ts: Cow<'a, str>,
    #[serde(borrow)]
    agent: Cow<'a, str>,
    #[serde(borrow, default)]
    session: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    billed_to: Option<Cow<'a, str>>,
    #[serde(borrow)]
    provider: Cow<'a, str>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(default)]
    role: Role,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    cost_usd: Option<f64>,
    #[serde(default)]
    duration_ms: u64,
    #[serde(borrow, default)]
    failure: Option<Cow<'a, str>>,
    /// Of a day: how many calls; then how many of them failed, and of how many
    /// the cost is not known.
    calls: Option<u64>,
    #[serde(default)]
    failed: u64,
    #[serde(default)]
    unpriced: u64,
}

/// Whose calls a line tells of.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) at: Time,
    /// Whether it tells of a whole day, of which `at` is the beginning.
    pub(super) is_day: bool,
    pub(super) agent: Cow<'a, str>,
    /// Whose turn pays.
    pub(super) session: Option<Cow<'a, str>>,
    pub(super) provider: Cow<'a, str>,
    pub(super) model: Cow<'a, str>,
    pub(super) role: Role,
    pub(super) tally: Tally,
}

/// What calls came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// How many.
    pub calls: u64,
    /// Those without a whole answer.
    pub failed: u64,
    /// Those whose cost is not known.
    pub unpriced: u64,
    /// Tokens read anew.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_write: u64,
    /// US dollars, of the calls whose cost is known.
    pub cost: f64,
    /// How long they took, all together, in milliseconds.
    pub duration_ms: u64,
}

/// The first line of a file whose old calls were summed up.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Bytes that the file had after it.
    pub(super) folded: u64,
    /// Damaged lines that were dropped.
    pub(super) damaged: u64,
}

/// What stands in a line.
#[derive(Debug)]
pub(super) enum Entry<'a> {
    Line(Box<Line<'a>>),
    Head(Head),
    Damaged,
}

impl<'a> Entry<'a> {
    /// Reads a line without its newline.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        if let Some(line) = serde_json::from_slice(bytes).ok().and_then(Line::of) {
            return Self::Line(Box::new(line));
        }
        serde_json::from_slice(bytes).map_or(Self::Damaged, Self::Head)
    }
}

impl<'a> Line<'a> {
    fn of(written: Written<'a>) -> Option<Self> {
        let at = Time::parse(&written.ts)?;
        let cost = written.cost_usd.unwrap_or(0.0);
        if !(cost.is_finite() && cost >= 0.0) {
            return None;
        }
        let has_failed = u64::from(written.failure.is_some());
        let is_unpriced = u64::from(written.cost_usd.is_none());
        let (calls, failed, unpriced) = match written.calls {
            Some(calls) => (calls, written.failed, written.unpriced),
            None => (1, has_failed, is_unpriced),
        };
        let tally = Tally {
            calls,
            failed,
            unpriced,
            input: written.input,
            output: written.output,
            cache_read: written.cache_read,
            cache_write: written.cache_write,
            cost,
            duration_ms: written.duration_ms,
        }
        .believed();
        Some(Self {
            at,
            is_day: written.calls.is_some(),
            agent: written.agent,
            session: written.billed_to.or(written.session),
            provider: written.provider,
            model: written.model,
            role: written.role,
            tally,
        })
    }

    /// The day of it, in UTC.
    pub(super) fn day(&self) -> String {
        let mut day = self.at.to_string();
        day.truncate(10);
        day
    }
}

/// Takes a line without its newline, its length in the file, and whether its
/// newline is there.
pub(super) type Each<'a> = &'a mut dyn FnMut(&[u8], u64, bool) -> io::Result<()>;

/// Hands each line to `each`; one that is too long as an empty one.
pub(super) fn each_line(mut from: impl BufRead, each: Each<'_>) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let mut length = from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut buffer)? as u64;
        if length == 0 {
            return Ok(());
        }
        let is_whole = buffer.ends_with(b"\n");
        if is_whole || length < LONGEST_LINE {
            let line = buffer.strip_suffix(b"\n").unwrap_or(&buffer);
            each(line, length, is_whole)?;
        } else {
            length += skip_line(&mut from)?;
            each(b"", length, true)?;
        }
    }
}

/// Goes behind the next newline; how many bytes that were.
fn skip_line(from: &mut impl BufRead) -> io::Result<u64> {
    Ok(from.skip_until(b'\n')? as u64)
}

impl Tally {
    /// The same without tokens and cost, if so many calls cannot have taken so
    /// many tokens or dollars: what a provider said was written down as it came
    /// once, and one such line would be the whole sum.
    fn believed(self) -> Self {
        let most = Usage::MOST_TOKENS.saturating_mul(self.calls);
        let kinds = [self.input, self.output, self.cache_read, self.cache_write];
        if kinds.into_iter().all(|it| it <= most) && self.cost <= DEAREST {
            return self;
        }
        let Self { calls, failed, duration_ms, .. } = self;
        Self { calls, failed, unpriced: calls, duration_ms, ..Self::default() }
    }

    /// Adds what others came to. What a provider says may be any number.
    pub(super) fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.calls, more.calls),
            (&mut self.failed, more.failed),
            (&mut self.unpriced, more.unpriced),
            (&mut self.input, more.input),
            (&mut self.output, more.output),
            (&mut self.cache_read, more.cache_read),
            (&mut self.cache_write, more.cache_write),
            (&mut self.duration_ms, more.duration_ms),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.cost += more.cost;
    }
}
