//! `beige audit`: shows the audit log, follows it, proves it. Reads files
//! only, so it works with and without a gateway.

use std::collections::BTreeSet;

use lexopt::Arg;
use serde::Deserialize;
use serde_json::json;

use super::columns::{columns, fitted, in_one_line, padded, shortened};
use super::table::{Takes, Word, action, flag, valued};
use super::{
    Command, Invocation, colours, counted, present, print, print_json, tell, terminal_width,
    unknown, unknown_action,
};
use crate::audit::{Filter, Head, follow, head, parse_since, read, verify};
use crate::clock::now;
use crate::config::Home;
use crate::error::{Error, Kind, Result};
use crate::worker::Cancel;

/// `beige audit`.
pub(super) const COMMAND: Command = Command {
    name: "audit",
    summary: "Show, follow or prove the audit log",
    help: "\
Usage: beige audit [--agent AGENT] [--tool TOOL] [--denied] [--since WHEN]
                   [-f] [--json]
       beige audit --verify [--head SEQ:HASH] [--json]
       beige audit head [--json]

Shows the records of every call, oldest first: when, which agent, which tool,
with what, how it ended, how long it took. A call has two records, one written
before it and one after it; a refused call has one. `head` prints number and
hash of the last record, to be kept where nobody who can write the log can.

Options:
  --agent AGENT    only records of this agent
  --tool TOOL      only records of this tool
  --denied         only refused calls
  --since WHEN     only from then on: 90s, 30m, 1h, 2d ago, a day such as
                   2026-11-30 (UTC), or a moment such as 2026-11-30T04:16:34Z
  -f, --follow     go on with every new record, until interrupted
  --json           the records as one JSON document; with -f one a line
  --verify         prove that no record was changed or lost; exits 1 if one was
  --head SEQ:HASH  with --verify: what `beige audit head` printed must still be
                   in the log, so that all up to it is as it was then; exits 1
                   if it is not
  --config FILE    taken as by every command; the log is that of the home
",
    takes: Takes {
        flags: &[
            valued(&["--agent"], Word::Agent),
            valued(&["--tool"], Word::Any),
            flag(&["--denied"]),
            valued(&["--since"], Word::Any),
            flag(&["-f", "--follow"]),
            flag(&["--json"]),
            flag(&["--verify"]),
            valued(&["--head"], Word::Any),
        ],
        operands: &[],
    },
    actions: &[action("head", &[flag(&["--json"])])],
    run,
};

/// Records are printed in pieces of about so many bytes.
const PIECE: usize = 32 * 1024;

/// Columns of a tool's name where there is little room.
const TOOL: usize = 10;

/// The same where there is room: most models, which are tools too, fit in.
const LONG_TOOL: usize = 28;

/// Columns of the arguments, and of an error.
const SHOWN: usize = 48;

/// Columns of the arguments at least, however narrow the terminal.
const ARGUMENTS: usize = 8;

/// Columns of a whole row without its error; a narrower terminal gets less.
const ROW: usize = 138;

/// What was typed.
#[derive(Default)]
struct Asked {
    filter: Filter,
    follow: bool,
    json: bool,
    verify: bool,
    /// `beige audit head`.
    head: bool,
    /// What was kept elsewhere.
    kept: Option<Head>,
}

/// What it is shown on.
#[derive(Clone, Copy, Default)]
struct Page {
    coloured: bool,
    /// Columns of the terminal; `None` if it is none.
    width: Option<usize>,
}

/// What a person sees of a record.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    ts: String,
    phase: String,
    agent: String,
    tool: String,
    args: Vec<String>,
    decision: String,
    duration_ms: Option<u64>,
    exit_code: Option<i32>,
    error: Option<String>,
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    let asked = parse(invocation)?;
    let home = Home::from_env()?;
    if asked.head {
        return print_head(&home, asked.json);
    }
    if asked.verify {
        return prove(&home, asked.kept, asked.json);
    }
    match (asked.follow, asked.json) {
        (true, json) => follow_records(&home, &asked.filter, json),
        (false, true) => print_document(invocation, &home, &asked.filter),
        (false, false) => print_lines(invocation, &home, &asked.filter),
    }
}

fn parse(invocation: &mut Invocation) -> Result<Asked> {
    let mut asked = Asked::default();
    while let Some(arg) = invocation.next()? {
        match arg {
            Arg::Long("agent") => asked.filter.agent = Some(invocation.text()?),
            Arg::Long("tool") => asked.filter.tool = Some(invocation.text()?),
            Arg::Long("since") => {
                asked.filter.since = Some(parse_since(&invocation.text()?, now())?);
            }
            Arg::Long("denied") => asked.filter.denied = true,
            Arg::Long("follow") | Arg::Short('f') => asked.follow = true,
            Arg::Long("json") => asked.json = true,
            Arg::Long("verify") => asked.verify = true,
            Arg::Long("head") => asked.kept = Some(kept(&invocation.text()?)?),
            Arg::Value(word) if !asked.head => match word.to_str() {
                Some("head") => asked.head = true,
                _ => return Err(unknown_action(&COMMAND, &word.to_string_lossy())),
            },
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    match asked.contradiction() {
        Some(what) => Err(Error::new(Kind::Usage, what)),
        None => Ok(asked),
    }
}

impl Asked {
    fn contradiction(&self) -> Option<&'static str> {
        let is_picky = self.follow || self.filter != Filter::default();
        if self.head && (is_picky || self.verify) {
            return Some("`beige audit head` takes nothing but --json");
        }
        if self.verify && is_picky {
            return Some("--verify proves the whole log: leave out the filters and -f");
        }
        (self.kept.is_some() && !self.verify).then_some("--head belongs to --verify")
    }
}

/// What a person kept of `beige audit head`.
fn kept(text: &str) -> Result<Head> {
    Head::parse(text.trim()).ok_or_else(|| {
        let what = format!("`{text}` is no head: give SEQ:HASH as `beige audit head` prints it");
        Error::new(Kind::Usage, what)
    })
}

fn print_head(home: &Home, json: bool) -> Result<u8> {
    let Some((head, torn)) = head(home)? else {
        return Err(Error::new(Kind::Missing, "the audit log holds no record yet"));
    };
    if torn > 0 {
        let are = if torn == 1 { "line behind it is" } else { "lines behind it are" };
        tell(&format!("record {} is the last; {torn} {are} torn", head.seq));
    }
    let text = match json {
        true => json!({"seq": head.seq, "hash": head.hash}).to_string(),
        false => head.to_string(),
    };
    print(&format!("{text}\n"))?;
    Ok(0)
}

fn prove(home: &Home, kept: Option<Head>, json: bool) -> Result<u8> {
    let report = verify(home, kept)?;
    if json {
        let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        let document = json!({
            "sound": report.is_sound(),
            "records": report.records,
            "files": report.files,
            "first": report.first,
            "last": report.last,
            "findings": findings,
            "more": report.more,
            "head": report.kept.map(|it| json!({"seq": it.seq, "holds": it.holds})),
        });
        print_json(&format!("{document}\n"))?;
    } else {
        present(&format!("{report}\n"))?;
    }
    Ok(u8::from(!report.is_proven()))
}

fn follow_records(home: &Home, filter: &Filter, json: bool) -> Result<u8> {
    let page = Page::of_stdout();
    if let Some(head) = page.head().filter(|_| !json) {
        print(&head)?;
    }
    follow(home, filter, &Cancel::never(), &mut |line| {
        match json {
            true => print_json(&format!("{line}\n"))?,
            false => print(&for_people(line, page))?,
        }
        Ok(true)
    })?;
    Ok(0)
}

fn print_lines(invocation: &Invocation, home: &Home, filter: &Filter) -> Result<u8> {
    let page = Page::of_stdout();
    let (mut piece, mut is_empty) = (String::new(), true);
    let broken = read(home, filter, &mut |line| {
        if std::mem::take(&mut is_empty) {
            piece.extend(page.head());
        }
        piece.push_str(&for_people(line, page));
        print_if(&mut piece, PIECE, print)
    })?;
    if is_empty {
        require_known(invocation, home, filter)?;
    }
    print_if(&mut piece, 0, print)?;
    tell_of_broken(broken);
    Ok(0)
}

/// `{"records":[…]}`, written as it is read.
fn print_document(invocation: &Invocation, home: &Home, filter: &Filter) -> Result<u8> {
    let mut piece = String::from("{\"records\":[");
    let mut separator = "\n"; // Until there is a record.
    let broken = read(home, filter, &mut |line| {
        piece.push_str(separator);
        piece.push_str(line);
        separator = ",\n";
        print_if(&mut piece, PIECE, print_json)
    })?;
    if separator == "\n" {
        require_known(invocation, home, filter)?;
    }
    piece.push_str("\n]}\n");
    print_if(&mut piece, 0, print_json)?;
    tell_of_broken(broken);
    Ok(0)
}

/// Nothing of an agent may be what there is, or a typing mistake.
fn require_known(invocation: &Invocation, home: &Home, filter: &Filter) -> Result<()> {
    let Some(agent) = &filter.agent else { return Ok(()) };
    invocation.require_known_agent(agent, || {
        let mut known = BTreeSet::new();
        read(home, &Filter::default(), &mut |line| {
            known.extend(serde_json::from_str::<Seen>(line).map(|it| it.agent));
            Ok(true)
        })?;
        Ok(known)
    })
}

/// Prints what has gathered once it is large enough.
fn print_if(piece: &mut String, at_least: usize, print: fn(&str) -> Result<()>) -> Result<bool> {
    if piece.len() >= at_least {
        print(piece)?;
        piece.clear();
    }
    Ok(true)
}

fn tell_of_broken(lines: u64) {
    if lines > 0 {
        let them = counted(lines, "line");
        tell(&format!("{them} could not be read as records; `beige audit --verify` says which"));
    }
}

/// One line: time, agent, tool, arguments, how it ended, how long it took,
/// and an error if there is one; a narrow terminal has that on a line below.
fn for_people(line: &str, page: Page) -> String {
    let Ok(seen) = serde_json::from_str::<Seen>(line) else {
        return format!("{}\n", shortened(&in_one_line(line), page.width.unwrap_or(200)));
    };
    let row = page.row(&seen);
    let text = match told_error(&seen) {
        Some(error) => page.with_error(row, &error),
        None => row,
    };
    match page.coloured && seen.decision == "denied" {
        true => format!("\x1b[31m{text}\x1b[0m\n"),
        false => text + "\n",
    }
}

/// The error, unless it says no more than the exit code does.
fn told_error(seen: &Seen) -> Option<String> {
    let error = in_one_line(seen.error.as_deref()?);
    let is_told = error.trim().is_empty() || error.starts_with("Exit code: ");
    (!is_told).then_some(error)
}

impl Page {
    fn of_stdout() -> Self {
        Self { coloured: colours(), width: terminal_width() }
    }

    fn is_narrow(self) -> bool {
        self.width.is_some_and(|it| it < ROW)
    }

    /// What stands above the rows for a person.
    fn head(self) -> Option<String> {
        self.width?;
        let cells = ["when (UTC)", "agent", "tool", "arguments", "outcome", "took"];
        Some(self.line(cells.map(str::to_owned)) + "\n")
    }

    fn row(self, seen: &Seen) -> String {
        let time = in_one_line(&seen.ts.replacen('T', " ", 1));
        let time = if self.is_narrow() { without_fraction(&time) } else { time };
        let (agent, tool) = (in_one_line(&seen.agent), in_one_line(&seen.tool));
        let arguments = in_one_line(&joined(&seen.args));
        let took = seen.duration_ms.map(duration).unwrap_or_default();
        self.line([time, agent, tool, arguments, outcome(seen), took])
    }

    /// Cells in the columns of this page.
    fn line(self, [time, agent, tool, arguments, outcome, took]: [String; 6]) -> String {
        let (time_columns, agent_columns, outcome_columns) = match self.is_narrow() {
            true => (20, 8, 8),
            false => (24, 12, 9),
        };
        let tool_columns = match self.width {
            // As many as it needs to have the arguments still told.
            Some(width) => (TOOL + width.saturating_sub(80) / 2).min(LONG_TOOL),
            None => TOOL,
        };
        // Nobody asked a program to fit into columns.
        let name = if self.width.is_some() { fitted } else { padded };
        let (time, agent) = (padded(&time, time_columns), name(&agent, agent_columns));
        let before = format!("{time}  {agent}  {}  ", name(&tool, tool_columns));
        let after = format!("  {}  {took:>7}", padded(&outcome, outcome_columns));
        let room = match self.width {
            Some(width) if self.is_narrow() => {
                width.saturating_sub(columns(&before) + columns(&after)).max(ARGUMENTS)
            }
            _ => SHOWN,
        };
        let row = format!("{before}{}{after}", padded(&shortened(&arguments, room), room));
        shortened(row.trim_end(), self.width.unwrap_or(usize::MAX))
    }

    fn with_error(self, row: String, error: &str) -> String {
        let Some(width) = self.width else {
            return format!("{row}  {}", shortened(error, SHOWN));
        };
        let left = width.saturating_sub(columns(&row) + 2);
        match columns(error) <= left || left >= SHOWN {
            true => format!("{row}  {}", shortened(error, left)),
            false => format!("{row}\n    {}", shortened(error, width.saturating_sub(4))),
        }
    }
}

/// A moment without its milliseconds.
fn without_fraction(time: &str) -> String {
    let cut = time.split_once('.').map(|(whole, _)| format!("{whole}Z"));
    cut.unwrap_or_else(|| time.to_owned())
}

fn outcome(seen: &Seen) -> String {
    match (seen.decision.as_str(), seen.phase.as_str(), seen.exit_code) {
        ("denied", _, _) => "denied".into(),
        (_, "started", _) => "started".into(),
        (_, _, Some(code)) => format!("exit {code}"),
        _ if seen.error.is_some() => "error".into(),
        _ => "done".into(),
    }
}

/// Arguments apart: those that spaces would blur stand in quotes.
fn joined(args: &[String]) -> String {
    if let [only] = args {
        return only.clone();
    }
    let blurred = |it: &str| it.is_empty() || it.contains(char::is_whitespace);
    let quoted = args.iter().map(|it| if blurred(it) { format!("'{it}'") } else { it.clone() });
    quoted.collect::<Vec<_>>().join(" ")
}

fn duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", millis / 60_000, millis / 1_000 % 60),
        _ => format!("{}h{:02}m", millis / 3_600_000, millis / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(tool: &str, args: &[&str], rest: serde_json::Value) -> String {
        let mut line = json!({
            "ts": "2026-11-30T04:34:45.167Z", "phase": "finished", "agent": "bl3",
            "tool": tool, "args": args, "decision": "allowed",
        });
        if let (Some(line), serde_json::Value::Object(rest)) = (line.as_object_mut(), rest) {
            line.extend(rest);
        }
        line.to_string()
    }

    #[track_caller]
    fn check(line: &str, want: &str) {
        assert_eq!(
            for_people(line, Page::default()),
            format!("2026-11-30 04:34:45.167Z  bl3           {want}\n")
        );
    }

    #[test]
    fn a_record_is_one_aligned_line() {
        check(
            &line("exec", &["echo hi; exit 3"], json!({"durationMs": 76, "exitCode": 3})),
            "exec        echo hi; exit 3                                   exit 3        76ms",
        );
        check(
            &line("write", &["q r", "(5 bytes)"], json!({"phase": "started"})),
            "write       'q r' '(5 bytes)'                                 started",
        );
        check(
            &line("git", &[], json!({"decision": "denied", "error": "no"})),
            "git                                                           denied  no",
        );
    }

    #[test]
    fn an_error_that_says_nothing_more_is_left_out() {
        let failed = |error: &str| line("exec", &["x"], json!({"exitCode": 3, "error": error}));
        for error in ["", "Exit code: 3"] {
            let shown = for_people(&failed(error), Page::default());
            assert!(shown.ends_with("exit 3\n"), "{shown:?}");
        }
        assert!(for_people(&failed("no disk"), Page::default()).ends_with("  no disk\n"));
    }

    #[test]
    fn on_a_terminal_no_line_is_wider_than_it() {
        let denied =
            json!({"error": "a reason that is quite long".repeat(3), "decision": "denied"});
        let all = [
            line("exec", &["echo hi; exit 3"], json!({"durationMs": 76, "exitCode": 3})),
            line("exec", &[&"那".repeat(100)], json!({"durationMs": 7_260_000, "exitCode": 127})),
            line(&"t".repeat(60), &["a", "b"], denied),
            "no record ".repeat(40),
        ];
        for width in [40, 80, 100, 120, 200] {
            for record in &all {
                let shown = for_people(record, Page { coloured: false, width: Some(width) });
                assert!(shown.lines().all(|it| columns(it) <= width), "{width}: {shown}");
                assert!(shown.lines().all(|it| it.trim_end() == it), "{width}: {shown:?}");
            }
        }
        let shown = for_people(&all[0], Page { coloured: false, width: Some(80) });
        let want =
            "2026-11-30 04:34:45Z  bl3       exec        echo hi; exit 3    exit 3       76ms\n";
        assert_eq!(shown, want);
        let shown = for_people(&all[2], Page { coloured: false, width: Some(80) });
        assert!(shown.contains("\n    a reason that is"), "{shown}");
    }

    #[test]
    fn columns_stay_where_they_are_whatever_the_names() {
        let long = ["anthropic/claude-sonnet-4-5", "openrouter/meta-llama/llama-3.3-70b-instruct"];
        for width in [80, 100, 120, 160] {
            let page = Page { coloured: false, width: Some(width) };
            let starts = ["exec"].iter().chain(&long).map(|tool| {
                let shown = for_people(&line(tool, &["@"], json!({})), page);
                shown.split_once('@').map(|it| columns(it.0))
            });
            let mut starts: Vec<_> = starts.collect();
            let head = page.head().expect("a head");
            starts.push(head.split_once("arguments").map(|it| columns(it.0)));
            assert!(starts.iter().all(|it| it.is_some() && *it == starts[0]), "{starts:?}");
        }
        // A program gets them whole, and no head.
        assert!(for_people(&line(long[1], &["@"], json!({})), Page::default()).contains(long[1]));
        assert_eq!(Page::default().head(), None);
    }

    #[test]
    fn long_arguments_are_shortened_at_a_character() {
        let shown = for_people(&line("exec", &[&"€".repeat(100)], json!({})), Page::default());
        assert!(shown.contains(&format!(" {}…  done", "€".repeat(SHOWN - 1))), "{shown}");
    }

    #[test]
    fn no_record_drives_the_terminal() {
        let nasty = "\u{1b}]0;x\u{7}\n\r\0\u{9b}2J\u{202e}\u{200b}\u{7f}";
        let denied = json!({"error": nasty, "decision": "denied"});
        for shown in [
            for_people(&line(nasty, &[nasty], denied), Page::default()),
            for_people(nasty, Page::default()),
        ] {
            let body = shown.strip_suffix('\n').unwrap_or_default();
            assert!(body.chars().all(|it| matches!(it, ' '..='~' | '…')), "{shown:?}");
        }
    }

    #[test]
    fn a_denied_call_is_red_on_a_terminal_only() {
        let denied = line("git", &[], json!({"decision": "denied"}));
        let coloured = Page { coloured: true, width: None };
        assert!(for_people(&denied, coloured).starts_with("\x1b[31m"));
        assert!(!for_people(&denied, Page::default()).contains('\x1b'));
        assert!(!for_people(&line("git", &[], json!({})), coloured).contains('\x1b'));
    }

    #[test]
    fn durations_are_short() {
        let all: Vec<String> = [5, 999, 1_250, 61_000, 7_260_000].map(duration).into();
        assert_eq!(all, ["5ms", "999ms", "1.2s", "1m01s", "2h01m"]);
    }
}
