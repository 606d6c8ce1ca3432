//! One run of a helper program on the host (`docker …`, `ldd …`): started,
//! fed, read to bounds, and killed with all it started when its time is up.
//! It never runs what an agent asked for, and it never waits without a
//! deadline. The long talk with tool-client is not here.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{after, bounded, select};
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::process::number;
use crate::error::{During, Error, Kind, Result};
use crate::worker;

/// Most bytes of an answer that are kept; a longer answer is an error.
pub(super) const ANSWER_LIMIT: usize = 64 * 1024;

/// Bytes of a complaint that are kept of its begin, where most programs say
/// what failed.
const HEAD_LIMIT: usize = 1024;

/// Bytes of a complaint that are kept of its end, where builds say it.
const TAIL_LIMIT: usize = 3 * 1024;

/// Longest line that is shown as progress, in bytes.
const LINE_LIMIT: u64 = 4 * 1024;

/// What a program that has ended left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// Standard output, trimmed.
    pub(crate) stdout: String,
    /// Begin and end of standard error, trimmed.
    pub(crate) stderr: String,
}

/// Runs it without input and keeps its answer.
pub(super) fn run(command: Command, deadline: Duration) -> Result<Finished> {
    let name = program(&command);
    let talk = |stdin, stdout: ChildStdout| {
        drop(stdin);
        read_answer(stdout, &name)
    };
    let (status, stderr, stdout) = converse(command, deadline, &|_| (), talk)?;
    Ok(Finished { status, stdout: stdout?, stderr })
}

/// Runs it while `talk` speaks with it; `progress` gets the lines of its
/// standard error. The answer of `talk` counts whatever the exit status says.
///
/// The program and all it started in its process group are dead on return.
pub(super) fn converse<T: Send>(
    mut command: Command,
    deadline: Duration,
    progress: &(dyn Fn(&str) + Sync),
    talk: impl FnOnce(ChildStdin, ChildStdout) -> T + Send,
) -> Result<(ExitStatus, String, T)> {
    let name = program(&command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| not_started(&name, error))?;
    let Some((stdin, stdout, stderr)) = pipes(&mut child) else {
        return Err(Error::new(Kind::Internal, format!("`{name}` was started without pipes")));
    };
    thread::scope(|scope| {
        let talking = worker::scoped(scope, "oneshot-out", || talk(stdin, stdout));
        let listening = worker::scoped(scope, "oneshot-err", || gist_of_lines(stderr, progress));
        // Ends the program whatever happened above, so that the threads end.
        let ended = end(&mut child, &name, deadline);
        let spoken = talking?.join().map_err(|_| panicked(&name))?;
        let complaint = listening?.join().map_err(|_| panicked(&name))?;
        match ended? {
            Some(status) => Ok((status, complaint, spoken)),
            None => Err(overdue(&name, deadline, &complaint)),
        }
    })
}

/// Waits until the program ends by itself; `None` if it had to be killed.
fn end(child: &mut Child, name: &str, deadline: Duration) -> Result<Option<ExitStatus>> {
    let Some(pid) = number(child.id()) else {
        return Err(Error::new(Kind::Internal, format!("`{name}` has no process id")));
    };
    thread::scope(|scope| {
        let (done, ended) = bounded::<()>(1);
        // Looks without reaping: until the wait below the pid stays ours, so
        // the kill cannot meet a stranger.
        let waiting = worker::scoped(scope, "oneshot-wait", move || {
            while let Err(rustix::io::Errno::INTR) =
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {
            }
            drop(done);
        });
        let in_time = select! {
            recv(ended) -> _ => waiting.is_ok(),
            recv(after(deadline)) -> _ => false,
        };
        // Also what it left running in its group, which holds the pipes.
        let _ = kill_process_group(pid, Signal::KILL);
        let status = child.wait().during(Kind::Internal, format!("wait for `{name}`"))?;
        waiting?.join().map_err(|_| panicked(name))?;
        Ok(in_time.then_some(status))
    })
}

fn pipes(child: &mut Child) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
    Some((child.stdin.take()?, child.stdout.take()?, child.stderr.take()?))
}

/// Reads an answer to its end; one over [`ANSWER_LIMIT`] is an error.
pub(super) fn read_answer(stdout: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    stdout
        .take(ANSWER_LIMIT as u64 + 1)
        .read_to_end(&mut bytes)
        .during(Kind::Sandbox, format!("read the answer of `{name}`"))?;
    if bytes.len() > ANSWER_LIMIT {
        return Err(Error::new(Kind::Sandbox, format!("`{name}` answered more than 64 KiB")));
    }
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Hands on each line to the end of the stream; keeps the first and the last
/// of them, trimmed.
pub(super) fn gist_of_lines(from: impl Read, progress: &(dyn Fn(&str) + Sync)) -> String {
    let mut from = BufReader::new(from);
    let (mut head, mut tail) = (Vec::new(), VecDeque::new());
    let mut cut = false;
    loop {
        let mut line = Vec::new();
        // A broken pipe is an end like any other: the exit status tells.
        match from.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => progress(String::from_utf8_lossy(&line).trim_end()),
        }
        let room = (HEAD_LIMIT - head.len()).min(line.len());
        head.extend(line.drain(..room));
        tail.extend(line);
        let excess = tail.len().saturating_sub(TAIL_LIMIT);
        cut |= excess > 0;
        tail.drain(..excess);
    }
    if cut {
        head.extend_from_slice(b"\n...\n");
    }
    head.extend(tail);
    String::from_utf8_lossy(&head).trim().to_owned()
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn not_started(name: &str, error: std::io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::NotFound => " (install it, or put it on PATH)",
        _ => "",
    };
    Error::new(Kind::Sandbox, format!("start `{name}`: {error}{hint}"))
}

fn overdue(name: &str, deadline: Duration, complaint: &str) -> Error {
    let mut text = format!("`{name}` took longer than {} s and was killed", deadline.as_secs_f32());
    if !complaint.is_empty() {
        text.push_str(": ");
        text.push_str(complaint);
    }
    Error::new(Kind::Timeout, text)
}

fn panicked(name: &str) -> Error {
    Error::new(Kind::Internal, format!("a thread that spoke with `{name}` ended by a panic"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_status_come_back() -> Result<()> {
        let finished = run(shell("echo out; echo err >&2; exit 3"), LONG)?;
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out", "err"));
        Ok(())
    }

    #[test]
    fn standard_input_is_at_its_end() -> Result<()> {
        assert_eq!(run(shell("cat; echo end"), LONG)?.stdout, "end");
        Ok(())
    }

    #[test]
    fn what_takes_too_long_is_killed_with_its_children() {
        let begun = Instant::now();
        let ended = run(shell("sleep 300 & sleep 300; wait"), Duration::from_millis(50));
        assert_eq!(ended.map_err(|it| it.kind()).err(), Some(Kind::Timeout));
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn a_child_left_behind_does_not_hold_the_call() -> Result<()> {
        let begun = Instant::now();
        assert_eq!(run(shell("sleep 300 & echo hi"), LONG)?.stdout, "hi");
        assert!(begun.elapsed() < LONG);
        Ok(())
    }

    #[test]
    fn an_answer_over_the_bound_is_refused() {
        let ended = run(shell("head -c 70000 /dev/zero"), LONG);
        assert_eq!(ended.map_err(|it| it.kind()).err(), Some(Kind::Sandbox));
    }

    #[test]
    fn begin_and_end_of_a_long_complaint_are_kept() -> Result<()> {
        let finished = run(shell("echo what >&2; yes | head -c 200000 >&2; echo why >&2"), LONG)?;
        let said = finished.stderr;
        assert!(said.starts_with("what") && said.contains("\n...\n") && said.ends_with("why"));
        assert!(said.len() < 2 * TAIL_LIMIT);
        Ok(())
    }

    #[test]
    fn a_short_complaint_is_kept_whole() {
        let said = format!("{}\nend", "x".repeat(HEAD_LIMIT));
        assert_eq!(gist_of_lines(said.as_bytes(), &|_| ()), said);
    }

    #[test]
    fn progress_is_told_line_by_line() -> Result<()> {
        let lines = Mutex::new(Vec::new());
        let tell = |line: &str| {
            if let Ok(mut lines) = lines.lock() {
                lines.push(line.to_owned());
            }
        };
        converse(shell("echo one >&2; echo two >&2"), LONG, &tell, |_, _| ())?;
        assert_eq!(lines.into_inner().unwrap_or_default(), ["one", "two"]);
        Ok(())
    }

    #[test]
    fn a_talk_may_answer_before_the_input_ends() -> Result<()> {
        let (status, _, echoed) = converse(shell("cat"), LONG, &|_| (), |mut stdin, stdout| {
            let mut line = String::new();
            let asked = stdin.write_all(b"ping\n");
            asked.and_then(|()| BufReader::new(stdout).read_line(&mut line)).map(|_| line)
        })?;
        assert!(status.success());
        assert_eq!(echoed.ok().as_deref(), Some("ping\n"));
        Ok(())
    }

    #[test]
    fn a_missing_program_is_named() {
        let ended = run(Command::new("/nonexistent/program"), LONG).map_err(|it| it.to_string());
        assert!(ended.is_err_and(|it| it.contains("/nonexistent/program")));
    }
}
