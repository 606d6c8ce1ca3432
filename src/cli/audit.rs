//! `beige audit`: shows the audit log, follows it, proves it. Reads files
//! only, so it works with and without a gateway.

use lexopt::Arg;
use serde::Deserialize;
use serde_json::json;

use super::{Command, Invocation, colours, print, tell, unknown};
use crate::audit::{Filter, follow, parse_since, read, verify};
use crate::clock::now;
use crate::config::Home;
use crate::error::{Error, Kind, Result};
use crate::worker::Cancel;

/// `beige audit`.
pub(super) const COMMAND: Command = Command {
    name: "audit",
    summary: "Show, follow or prove the audit log",
    help: "\
Usage: beige audit [--agent AGENT] [--tool TOOL] [--denied] [--since WHEN] [-f] [--json]
       beige audit --verify [--json]

Shows the records of every call, oldest first: when, which agent, which tool,
with what, how it ended, how long it took. A call has two records, one written
before it and one after it; a refused call has one.

Options:
  --agent AGENT   only records of this agent
  --tool TOOL     only records of this tool
  --denied        only refused calls
  --since WHEN    only from then on: 90s, 30m, 1h, 2d ago, or a moment such as
                  2026-11-30T04:16:34Z
  -f, --follow    go on with every new record, until interrupted
  --json          the records as one JSON document; with -f one a line
  --verify        prove that no record was changed or lost; exits 1 if one was
",
    flags: &["agent", "tool", "denied", "since", "follow", "json", "verify"],
    run,
};

/// Records are printed in pieces of about so many bytes.
const PIECE: usize = 32 * 1024;

/// Characters shown of an agent's or a tool's name.
const NAME: usize = 32;

/// Characters shown of the arguments, and of an error.
const SHOWN: usize = 48;

/// What was typed.
#[derive(Default)]
struct Asked {
    filter: Filter,
    follow: bool,
    json: bool,
    verify: bool,
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
    if asked.verify {
        return prove(&home, asked.json);
    }
    match (asked.follow, asked.json) {
        (true, json) => follow_records(&home, &asked.filter, json),
        (false, true) => print_document(&home, &asked.filter),
        (false, false) => print_lines(&home, &asked.filter),
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
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    if asked.verify && (asked.follow || asked.filter != Filter::default()) {
        let what = "--verify proves the whole log: leave out the filters and -f";
        return Err(Error::new(Kind::Usage, what));
    }
    Ok(asked)
}

fn prove(home: &Home, json: bool) -> Result<u8> {
    let report = verify(home, None)?;
    let text = if json {
        let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        json!({
            "sound": report.is_sound(),
            "records": report.records,
            "files": report.files,
            "first": report.first,
            "last": report.last,
            "findings": findings,
            "more": report.more,
        })
        .to_string()
    } else {
        report.to_string()
    };
    print(&format!("{text}\n"))?;
    Ok(u8::from(!report.is_sound()))
}

fn follow_records(home: &Home, filter: &Filter, json: bool) -> Result<u8> {
    let coloured = colours();
    follow(home, filter, &Cancel::never(), &mut |line| {
        print(&if json { format!("{line}\n") } else { for_people(line, coloured) })?;
        Ok(true)
    })?;
    Ok(0)
}

fn print_lines(home: &Home, filter: &Filter) -> Result<u8> {
    let coloured = colours();
    let mut piece = String::new();
    let broken = read(home, filter, &mut |line| {
        piece.push_str(&for_people(line, coloured));
        print_if(&mut piece, PIECE)
    })?;
    print_if(&mut piece, 0)?;
    tell_of_broken(broken);
    Ok(0)
}

/// `{"records":[…]}`, written as it is read.
fn print_document(home: &Home, filter: &Filter) -> Result<u8> {
    let mut piece = String::from("{\"records\":[");
    let mut separator = "\n";
    let broken = read(home, filter, &mut |line| {
        piece.push_str(separator);
        piece.push_str(line);
        separator = ",\n";
        print_if(&mut piece, PIECE)
    })?;
    piece.push_str("\n]}\n");
    print_if(&mut piece, 0)?;
    tell_of_broken(broken);
    Ok(0)
}

/// Prints what has gathered once it is large enough.
fn print_if(piece: &mut String, at_least: usize) -> Result<bool> {
    if piece.len() >= at_least {
        print(piece)?;
        piece.clear();
    }
    Ok(true)
}

fn tell_of_broken(lines: u64) {
    if lines > 0 {
        tell(&format!("{lines} lines are no records; `beige audit --verify` says which"));
    }
}

/// One line: time, agent, tool, arguments, how it ended, how long it took.
fn for_people(line: &str, coloured: bool) -> String {
    let Ok(seen) = serde_json::from_str::<Seen>(line) else {
        return format!("{}\n", shortened(&inert(line), 200));
    };
    let time = seen.ts.replacen('T', " ", 1);
    let outcome = outcome(&seen);
    let took = seen.duration_ms.map(duration).unwrap_or_default();
    let row = format!(
        "{}  {:<12}  {:<10}  {:<SHOWN$}  {outcome:<9}  {took:>7}",
        inert(&time),
        shortened(&inert(&seen.agent), NAME),
        shortened(&inert(&seen.tool), NAME),
        shortened(&inert(&joined(&seen.args)), SHOWN),
    );
    let mut row = row.trim_end().to_owned();
    if let Some(error) = &seen.error {
        row.push_str("  ");
        row.push_str(&shortened(&inert(error), SHOWN));
    }
    if coloured && seen.decision == "denied" {
        format!("\x1b[31m{row}\x1b[0m\n")
    } else {
        row + "\n"
    }
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

fn shortened(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    text.chars().take(limit - 1).chain(['…']).collect()
}

/// The text with everything escaped that a terminal would obey or not show.
fn inert(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '"' | '\'' | '\\' => shown.push(it),
            it => shown.extend(it.escape_debug()),
        }
    }
    shown
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
            for_people(line, false),
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
    fn long_arguments_are_shortened_at_a_character() {
        let shown = for_people(&line("exec", &[&"€".repeat(100)], json!({})), false);
        assert!(shown.contains(&format!(" {}…  done", "€".repeat(SHOWN - 1))), "{shown}");
    }

    #[test]
    fn no_record_drives_the_terminal() {
        let nasty = "\u{1b}]0;x\u{7}\n\r\0\u{9b}2J\u{202e}\u{200b}\u{7f}";
        let denied = json!({"error": nasty, "decision": "denied"});
        for shown in [for_people(&line(nasty, &[nasty], denied), false), for_people(nasty, false)] {
            let body = shown.strip_suffix('\n').unwrap_or_default();
            assert!(body.chars().all(|it| matches!(it, ' '..='~' | '…')), "{shown:?}");
        }
    }

    #[test]
    fn a_denied_call_is_red_on_a_terminal_only() {
        let denied = line("git", &[], json!({"decision": "denied"}));
        assert!(for_people(&denied, true).starts_with("\x1b[31m"));
        assert!(!for_people(&denied, false).contains('\x1b'));
        assert!(!for_people(&line("git", &[], json!({})), true).contains('\x1b'));
    }

    #[test]
    fn durations_are_short() {
        let all: Vec<String> = [5, 999, 1_250, 61_000, 7_260_000].map(duration).into();
        assert_eq!(all, ["5ms", "999ms", "1.2s", "1m01s", "2h01m"]);
    }
}
