//! The sums: the file is read once, line by line, and what is held is one entry
//! for each name.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};

use serde_json::{Map, Value, json};

pub use super::line::Tally;
use super::line::{Entry, Line, each_line};
use crate::clock::Time;
use crate::config::Home;
use crate::config::home::open_own;
use crate::error::{During, Kind, Result};

/// Names that are held at most while the file is read.
const MOST_NAMES: usize = 10_000;

/// Rows at most, but for days: the last is that of all others.
const MOST_ROWS: usize = 1_000;

/// The row of all that are not told apart any more.
const OTHERS: &str = "(others)";

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only this agent's calls.
    pub agent: Option<String>,
    /// Only from this moment on; of what is known by the day, from its day on.
    pub since: Option<Time>,
    /// What the rows are.
    pub by: By,
}

/// What calls are told apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The agent.
    Agent,
    /// The model, as `provider/model`.
    #[default]
    Model,
    /// The day, in UTC.
    Day,
    /// The session, by its key.
    Session,
}

/// What all calls that were wanted came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// What the rows are.
    pub by: By,
    /// Days in their order; of all else what cost most first.
    pub rows: Vec<Row>,
    /// All of them.
    pub total: Tally,
    /// Lines that could not be read.
    pub damaged: u64,
}

/// What calls with one name came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name; `None` of calls without a session, and of those so long ago
    /// that their session is not known any more.
    pub name: Option<String>,
    /// What they came to.
    pub tally: Tally,
}

/// Adds up what a home's model calls took.
pub fn sum(home: &Home, query: &Query) -> Result<Summary> {
    let path = home.usage_log();
    match open_own(&path, File::options().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(Summary { by: query.by, ..Summary::default() })
        }
        Err(error) => Err(error),
        Ok(file) => sum_of(file, query),
    }
    .during(Kind::Internal, format!("read {}", path.display()))
}

pub(super) fn sum_of(from: impl Read, query: &Query) -> io::Result<Summary> {
    let mut sums = Sums { query, rows: HashMap::new(), total: Tally::default(), damaged: 0 };
    each_line(BufReader::with_capacity(64 * 1024, from), &mut |line, _, is_whole| {
        // One that has no end yet is being written.
        match Entry::of(line) {
            Entry::Damaged if !is_whole => (),
            entry => sums.take(entry),
        }
        Ok(())
    })?;
    Ok(sums.summary())
}

struct Sums<'a> {
    query: &'a Query,
    rows: HashMap<Option<String>, Tally>,
    total: Tally,
    damaged: u64,
}

impl Sums<'_> {
    fn take(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Line(line) if self.query.wants(&line) => self.add(&line),
            Entry::Line(_) => (),
            Entry::Head(head) => self.damaged = self.damaged.saturating_add(head.damaged),
            Entry::Damaged => self.damaged += 1,
        }
    }

    fn add(&mut self, line: &Line<'_>) {
        self.total.add(&line.tally);
        let mut name = self.query.by.name_of(line);
        if self.rows.len() >= MOST_NAMES && !self.rows.contains_key(&name) {
            name = Some(OTHERS.to_owned());
        }
        self.rows.entry(name).or_default().add(&line.tally);
    }

    fn summary(self) -> Summary {
        let rows = self.rows.into_iter().map(|(name, tally)| Row { name, tally });
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_by(|one, other| match self.query.by {
            By::Day => one.name.cmp(&other.name),
            By::Agent | By::Model | By::Session => {
                let costs = other.tally.cost.total_cmp(&one.tally.cost);
                let tokens = other.tally.tokens().cmp(&one.tally.tokens());
                costs.then(tokens).then_with(|| one.name.cmp(&other.name))
            }
        });
        if self.query.by != By::Day {
            rows = with_others(rows);
        }
        Summary { by: self.query.by, rows, total: self.total, damaged: self.damaged }
    }
}

/// The first rows, and one of all those behind them.
fn with_others(rows: Vec<Row>) -> Vec<Row> {
    if rows.len() <= MOST_ROWS {
        return rows;
    }
    let is_others = |it: &Row| it.name.as_deref() == Some(OTHERS);
    let (mut others, mut rows): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_others);
    others.extend(rows.split_off(MOST_ROWS - 1));
    let mut tally = Tally::default();
    others.iter().for_each(|it| tally.add(&it.tally));
    rows.push(Row { name: Some(OTHERS.to_owned()), tally });
    rows
}

impl Query {
    fn wants(&self, line: &Line<'_>) -> bool {
        let is_late = self.since.is_none_or(|since| match line.is_day {
            true => line.at.to_string()[..10] >= since.to_string()[..10],
            false => line.at >= since,
        });
        is_late && self.agent.as_ref().is_none_or(|it| *it == line.agent)
    }
}

impl By {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Agent, Self::Model, Self::Day, Self::Session];

    /// The words for them.
    pub const NAMES: [&str; 4] = ["agent", "model", "day", "session"];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Day => "day",
            Self::Session => "session",
        }
    }

    /// What that word means.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    fn name_of(self, line: &Line<'_>) -> Option<String> {
        match self {
            Self::Agent => Some(line.agent.clone().into_owned()),
            Self::Model => Some(format!("{}/{}", line.provider, line.model)),
            Self::Day => Some(line.day()),
            Self::Session => line.session.clone().map(|it| it.into_owned()),
        }
    }
}

impl Tally {
    /// Tokens of all kinds.
    pub fn tokens(&self) -> u64 {
        let kinds = [self.input, self.output, self.cache_read, self.cache_write];
        kinds.into_iter().fold(0, u64::saturating_add)
    }

    /// US dollars: of all calls, or of those whose cost is known; `None` if that
    /// is nothing, which would say that the others cost nothing.
    pub fn known_cost(&self) -> Option<f64> {
        (self.unpriced == 0 || self.cost > 0.0).then(|| self.rounded_cost())
    }

    /// US dollars without what binary fractions add behind a billionth.
    pub(super) fn rounded_cost(&self) -> f64 {
        let billionths = (self.cost * 1e9).round();
        if billionths.is_finite() { billionths / 1e9 } else { self.cost }
    }

    fn told(&self) -> Map<String, Value> {
        let told = json!({
            "calls": self.calls,
            "failed": self.failed,
            "input": self.input,
            "output": self.output,
            "cacheRead": self.cache_read,
            "cacheWrite": self.cache_write,
            "costUsd": self.known_cost(),
            "callsOfUnknownCost": self.unpriced,
            "durationMs": self.duration_ms,
        });
        match told {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

impl Summary {
    /// The sums as one JSON document.
    pub fn document(&self) -> Value {
        let row = |row: &Row| {
            let mut told = row.tally.told();
            told.insert(self.by.name().to_owned(), json!(row.name));
            Value::Object(told)
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        json!({
            "by": self.by.name(),
            "rows": rows,
            "total": self.total.told(),
            "damagedLines": self.damaged,
        })
    }
}
