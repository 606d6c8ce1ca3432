//! `beige usage`: what model calls took, over all runs. Reads the file only, so
//! it works with and without a gateway.

use std::collections::BTreeSet;

use lexopt::Arg;

use super::columns::{columns, in_one_line, padded, shortened};
use super::table::{Takes, Word, flag, valued};
use super::{Command, Invocation, counted, print, print_json, tell, terminal_width, unknown};
use crate::audit::parse_since;
use crate::clock::now;
use crate::config::Home;
use crate::error::{Error, Kind, Result};
use crate::usage::{By, Query, Summary, Tally, sum};

/// `beige usage`.
pub(super) const COMMAND: Command = Command {
    name: "usage",
    summary: "Add up the tokens and the cost of all model calls",
    help: "\
Usage: beige usage [--by WHAT] [--agent AGENT] [--since WHEN] [--json]

Adds up what model calls took, over all runs: calls, tokens of each kind, and
US dollars where the price is known. Calls that failed or were called off
count with what the provider said by then. `unknown` is a cost that nobody
knows, and `at least` stands before a sum of which a part is not known.

Options:
  --by WHAT      a row for each model (the default), agent, day (UTC) or session
  --agent AGENT  only calls of this agent, configured or removed since
  --since WHEN   only from then on: 90s, 30m, 1h, 2d ago, a day such as
                 2026-11-30 (UTC), or a moment such as 2026-11-30T04:16:34Z
  --json         one JSON document: {\"by\", \"rows\", \"total\", \"damagedLines\"}
  --config FILE  taken as by every command; the calls are those of the home
",
    takes: Takes {
        flags: &[
            valued(&["--by"], Word::OneOf(&By::NAMES)),
            valued(&["--agent"], Word::Agent),
            valued(&["--since"], Word::Any),
            flag(&["--json"]),
        ],
        operands: &[],
    },
    actions: &[],
    run,
};

/// Columns of a name at most, unless the terminal has room for more.
const NAME: usize = 40;

/// The columns of figures.
const FIGURES: usize = 7;

/// What was typed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    query: Query,
    json: bool,
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    let asked = parse(invocation)?;
    let home = invocation.home()?;
    let summary = sum(&home, &asked.query)?;
    if let (Some(agent), true) = (&asked.query.agent, summary.rows.is_empty()) {
        invocation.require_known_agent(agent, || callers(&home))?;
    }
    match asked.json {
        true => print_json(&format!("{}\n", summary.document()))?,
        false => print(&for_people(&summary, terminal_width()))?,
    }
    if summary.damaged > 0 && !asked.json {
        tell(&format!("{} could not be read", counted(summary.damaged, "line")));
    }
    Ok(0)
}

fn parse(invocation: &mut Invocation) -> Result<Asked> {
    let mut asked = Asked::default();
    while let Some(arg) = invocation.next()? {
        match arg {
            Arg::Long("by") => asked.query.by = by(&invocation.text()?)?,
            Arg::Long("agent") => asked.query.agent = Some(invocation.text()?),
            Arg::Long("since") => {
                asked.query.since = Some(parse_since(&invocation.text()?, now())?);
            }
            Arg::Long("json") => asked.json = true,
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    Ok(asked)
}

fn by(word: &str) -> Result<By> {
    By::named(word).ok_or_else(|| {
        let what = format!("`{word}` is none of {}", By::NAMES.join(", "));
        Error::new(Kind::Usage, what)
    })
}

/// All that have ever called a model.
fn callers(home: &Home) -> Result<BTreeSet<String>> {
    let all = sum(home, &Query { by: By::Agent, ..Query::default() })?;
    Ok(all.rows.into_iter().filter_map(|it| it.name).collect())
}

/// A table: a row for each name, and one for all of them.
fn for_people(summary: &Summary, width: Option<usize>) -> String {
    if summary.rows.is_empty() {
        return "no model calls\n".to_owned();
    }
    let heads = ["calls", "failed", "input", "output", "cache read", "cache write", "cost"]
        .map(str::to_owned);
    let mut rows = vec![(summary.by.name().to_owned(), heads)];
    let named = |name: &Option<String>| in_one_line(name.as_deref().unwrap_or("-"));
    rows.extend(summary.rows.iter().map(|it| (named(&it.name), figures(&it.tally))));
    rows.push(("total".to_owned(), figures(&summary.total)));
    let widths: [usize; FIGURES] =
        std::array::from_fn(|column| rows.iter().map(|it| it.1[column].len()).max().unwrap_or(0));
    let taken: usize = widths.iter().map(|it| it + 2).sum();
    let room = width.map_or(NAME, |it| it.saturating_sub(taken)).max(8);
    let longest = rows.iter().map(|it| columns(&it.0)).max().unwrap_or(0).min(room);
    rows.iter()
        .map(|(name, figures)| line(&shortened(name, longest), longest, figures, &widths))
        .collect()
}

fn line(name: &str, longest: usize, figures: &[String], widths: &[usize]) -> String {
    let figures = figures.iter().zip(widths).map(|(it, width)| format!("  {it:>width$}"));
    format!("{}{}\n", padded(name, longest), figures.collect::<String>())
}

fn figures(tally: &Tally) -> [String; FIGURES] {
    let Tally { calls, failed, input, output, cache_read, cache_write, .. } = *tally;
    let [calls, failed, input, output, cache_read, cache_write] =
        [calls, failed, input, output, cache_read, cache_write].map(|it| it.to_string());
    [calls, failed, input, output, cache_read, cache_write, cost(tally)]
}

fn cost(tally: &Tally) -> String {
    match tally.known_cost() {
        None => "unknown".to_owned(),
        Some(cost) if tally.unpriced > 0 => format!("at least {}", dollars(cost)),
        Some(cost) => dollars(cost),
    }
}

/// What is not nothing is not shown as nothing.
fn dollars(cost: f64) -> String {
    match cost > 0.0 && cost < 0.0001 {
        true => format!("${cost:.9}"),
        false => format!("${cost:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Row;

    fn summary() -> Summary {
        let known = Tally {
            calls: 12,
            failed: 1,
            input: 123_456,
            output: 789,
            cache_read: 1_000,
            cost: 1.5,
            ..Tally::default()
        };
        let unknown = Tally { calls: 2, unpriced: 2, input: 7, output: 3, ..Tally::default() };
        let total = Tally { calls: 14, unpriced: 2, ..known };
        let row = |name: &str, tally| Row { name: Some(name.into()), tally };
        let rows = vec![row("anthropic/claude-sonnet-5-5", known), row("p/m", unknown)];
        Summary { by: By::Model, rows, total, damaged: 0 }
    }

    #[test]
    fn a_row_each_and_what_is_not_known_is_said() {
        let want = "\
model                        calls  failed   input  output  cache read  cache write              cost
anthropic/claude-sonnet-5-5     12       1  123456     789        1000            0           $1.5000
p/m                              2       0       7       3           0            0           unknown
total                           14       1  123456     789        1000            0  at least $1.5000
";
        assert_eq!(for_people(&summary(), None), want);
    }

    #[test]
    fn a_narrow_terminal_gets_shorter_names_and_all_figures() {
        let shown = for_people(&summary(), Some(85));
        let line = shown.lines().nth(1).unwrap_or_default();
        assert!(line.starts_with("anthropi") && line.contains("…  "), "{shown}");
        assert!(shown.ends_with("at least $1.5000\n"), "{shown}");
    }

    #[test]
    fn no_name_drives_the_terminal() {
        let mut summary = summary();
        summary.rows[0].name = Some("\x1b[2J\u{9b}\n".into());
        let shown = for_people(&summary, None);
        assert!(shown.chars().all(|it| it == '\n' || matches!(it, ' '..='~')), "{shown:?}");
        assert_eq!(shown.lines().count(), 4);
    }

    #[test]
    fn little_is_not_nothing() {
        let shown: Vec<String> = [0.0, 0.000_021, 0.000_1, 12.345_67].map(dollars).into();
        assert_eq!(shown, ["$0.0000", "$0.000021000", "$0.0001", "$12.3457"]);
        assert_eq!(for_people(&Summary::default(), None), "no model calls\n");
    }
}
