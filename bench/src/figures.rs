//! Numbers as they are told: a spread of measurements with its unit.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Megabytes of 1,000,000 bytes, of a file.
    Megabytes,
    /// Mebibytes of 1,048,576 bytes, of memory.
    Mebibytes,
    /// So many a second.
    PerSecond,
    /// Things.
    Count,
}

impl Unit {
    /// Its name in a table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Megabytes => "MB",
            Self::Mebibytes => "MiB",
            Self::PerSecond => "/s",
            Self::Count => "",
        }
    }
}

/// Several measurements of one thing. Of an even number the median is the
/// mean of the middle two.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spread {
    /// How many there were; never 0.
    pub(crate) count: usize,
    /// The smallest.
    pub(crate) minimum: f64,
    /// The one in the middle.
    pub(crate) median: f64,
    /// The largest.
    pub(crate) maximum: f64,
}

impl Spread {
    /// The spread of these; `None` of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (minimum, maximum) = (*values.first()?, *values.last()?);
        let count = values.len();
        let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        Some(Self { count, minimum, median, maximum })
    }

    /// One measurement.
    pub(crate) fn once(value: f64) -> Self {
        Self { count: 1, minimum: value, median: value, maximum: value }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// What the numbers count.
    pub(crate) unit: Unit,
    /// The numbers.
    pub(crate) spread: Spread,
    /// How it is called in the plot, if it is there.
    pub(crate) bar: Option<String>,
}

impl Row {
    /// A line.
    pub(crate) fn new(what: impl Into<String>, unit: Unit, spread: Spread) -> Self {
        Self { what: what.into(), unit, spread, bar: None }
    }

    /// A line of one measurement.
    pub(crate) fn once(what: impl Into<String>, unit: Unit, value: f64) -> Self {
        Self::new(what, unit, Spread::once(value))
    }

    /// The same, and a bar of the plot.
    pub(crate) fn with_bar(mut self, label: Option<String>) -> Self {
        self.bar = label;
        self
    }

    /// As a line of a Markdown table: what, median, minimum, maximum, count.
    pub(crate) fn markdown(&self) -> String {
        let Spread { count, minimum, median, maximum } = self.spread;
        let median = format!("{} {}", readable(median), self.unit.name());
        let (median, what) = (median.trim_end(), &self.what);
        if count == 1 {
            return format!("| {what} | {median} | | | 1 |");
        }
        let (minimum, maximum) = (readable(minimum), readable(maximum));
        format!("| {what} | {median} | {minimum} | {maximum} | {count} |")
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let Spread { count, minimum, median, maximum } = self.spread;
        json!({
            "what": self.what, "unit": self.unit.name(),
            "median": median, "minimum": minimum, "maximum": maximum, "count": count,
        })
    }
}

/// Three digits that count, thousands apart.
pub(crate) fn readable(value: f64) -> String {
    match value.abs() {
        it if it >= 1000.0 || it.fract() == 0.0 => grouped(value),
        it if it >= 100.0 => format!("{value:.0}"),
        it if it >= 10.0 => format!("{value:.1}"),
        it if it >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        let _ = write!(text, "{digit}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[f64], want: Option<(usize, f64, f64, f64)>) {
        let found = Spread::of(values.iter().copied());
        let found = found.map(|it| (it.count, it.minimum, it.median, it.maximum));
        assert_eq!(found, want, "{values:?}");
    }

    #[test]
    fn a_spread_has_its_middle_and_its_ends() {
        check(&[], None);
        check(&[7.0], Some((1, 7.0, 7.0, 7.0)));
        check(&[3.0, 1.0, 2.0], Some((3, 1.0, 2.0, 3.0)));
        check(&[4.0, 1.0, 3.0, 2.0], Some((4, 1.0, 2.5, 4.0)));
        check(&[9.0, -1.0, 100.0, 9.0], Some((4, -1.0, 9.0, 100.0)));
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let values = [0.0, 0.1234, 1.234, 12.34, 123.4, 1234.5, 1_234_567.0, -5000.0, 3.0];
        let want = ["0", "0.123", "1.23", "12.3", "123", "1,234", "1,234,567", "-5,000", "3"];
        assert_eq!(values.map(readable), want);
    }

    #[test]
    fn a_row_is_a_line_of_a_table() {
        let spread = Spread::of([1.0, 2.5, 3.0]).unwrap_or_else(|| Spread::once(0.0));
        let row = Row::new("exec", Unit::Milliseconds, spread);
        assert_eq!(row.markdown(), "| exec | 2.50 ms | 1 | 3 | 3 |");
        assert_eq!(Row::once("crates", Unit::Count, 50.0).markdown(), "| crates | 50 | | | 1 |");
    }
}
