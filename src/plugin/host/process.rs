//! The process of a plugin that is a server: how it is started, with nothing
//! of the gateway's but what is listed, and how it is ended with all that
//! descends from it. What it says is not read here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::{During, Error, Kind, Result};
use crate::plugin::child::{never_block, not_started};
use crate::plugin::launch::Launch;
use crate::plugin::tree;

/// How long a killed process may take to be gone; more is a broken kernel.
const DEATH: Duration = Duration::from_secs(5);

/// A process that was started and not waited for yet.
pub(super) struct Process {
    child: Child,
    pid: Pid,
    /// Readable once the process has ended.
    handle: OwnedFd,
    /// Those that were noted.
    descendants: Vec<tree::Process>,
    is_over: bool,
}

/// The streams of a process; none of ours ever blocks.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Process {
    /// Starts it in a process group of its own.
    pub(super) fn start(launch: &Launch) -> Result<(Self, Pipes)> {
        let mut command = launch.command()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.process_group(0).spawn();
        let mut child = child.map_err(|it| not_started(&it, &command))?;
        let pid = Pid::from_child(&child);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let handle = pidfd_open(pid, PidfdFlags::empty());
        let Ok(handle) = handle else {
            tree::kill(pid);
            let _ = child.wait();
            return Err(Error::new(Kind::Internal, "watch the process just started"));
        };
        let process = Self { child, pid, handle, descendants: Vec::new(), is_over: false };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Error::new(Kind::Internal, "a stream of the process is missing"));
        };
        for pipe in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
            never_block(Some(pipe)).during(Kind::Internal, "prepare a pipe")?;
        }
        Ok((process, Pipes { stdin, stdout, stderr }))
    }

    /// Readable once the process has ended.
    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Notes what descends from it now: once it has ended, those that left its
    /// group can no longer be found.
    pub(super) fn note_descendants(&mut self) {
        self.descendants = tree::descendants(self.pid);
    }

    /// Waits until it has ended by itself, or kills it and what descends from
    /// it once that takes too long; how it ended, in words.
    pub(super) fn end(mut self, patience: Duration) -> String {
        let by_itself = self.ends_within(patience);
        // What it left behind goes with it.
        tree::kill_with(self.pid, &self.descendants);
        if !by_itself && !self.ends_within(DEATH) {
            return "cannot be killed".to_owned();
        }
        self.is_over = true;
        match self.child.wait() {
            Ok(_) if !by_itself => "had to be killed".to_owned(),
            Ok(status) => how(status),
            Err(error) => format!("cannot be waited for: {error}"),
        }
    }

    fn ends_within(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else { return false };
            match poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&left)) {
                Ok(count) => return count > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_over {
            tree::kill(self.pid);
            if self.ends_within(DEATH) {
                let _ = self.child.wait();
            }
        }
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn launch(argv: &[&str]) -> Launch {
        Launch {
            plugin: "p".into(),
            argv: argv.iter().map(Into::into).collect(),
            folder: "/".into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("A".into(), "b".into())],
            typescript: None,
        }
    }

    #[test]
    fn a_process_gets_what_is_listed_and_nothing_else() -> Result<()> {
        let command = launch(&["server", "--x", "a b"]).command()?;
        let args: Vec<&std::ffi::OsStr> = command.get_args().collect();
        assert_eq!(
            (command.get_program(), args),
            ("server".as_ref(), vec!["--x".as_ref(), "a b".as_ref()])
        );
        let (process, mut pipes) = Process::start(&launch(&["env"]))?;
        assert_eq!(process.end(Duration::from_secs(60)), "ended with exit code 0");
        let mut text = String::new();
        pipes.stdout.read_to_string(&mut text).during(Kind::Internal, "read")?;
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["A=b", "PATH=/usr/bin:/bin"]);
        Ok(())
    }

    #[test]
    fn one_that_does_not_end_is_killed() -> Result<()> {
        let (process, _pipes) = Process::start(&launch(&["sleep", "600"]))?;
        assert_eq!(process.end(Duration::ZERO), "had to be killed");
        let (process, _pipes) = Process::start(&launch(&["sh", "-c", "kill -9 $$"]))?;
        assert_eq!(process.end(Duration::from_secs(60)), "was killed by signal 9");
        Ok(())
    }

    #[test]
    fn what_left_the_group_of_one_that_ends_by_itself_is_killed_too() -> Result<()> {
        let script = "setsid sh -c 'echo $$; exec sleep 600' & read line";
        let (mut process, mut pipes) = Process::start(&launch(&["sh", "-c", script]))?;
        let mut lines = Vec::new();
        while !lines.ends_with(b"\n") {
            let polled = PollFd::new(&pipes.stdout, PollFlags::IN);
            poll(&mut [polled], None).map_err(|_| Error::new(Kind::Internal, "poll"))?;
            let mut piece = [0; 16];
            let count = pipes.stdout.read(&mut piece).during(Kind::Internal, "read")?;
            lines.extend_from_slice(&piece[..count]);
        }
        let pid = String::from_utf8_lossy(&lines).trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::new(Kind::Internal, "no process id"))?;
        let handle = pidfd_open(pid, PidfdFlags::empty());
        let handle = handle.map_err(|_| Error::new(Kind::Internal, "no such process"))?;
        process.note_descendants();
        drop(pipes);
        assert_eq!(process.end(Duration::from_secs(60)), "ended with exit code 1");
        let has_ended =
            poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&Timespec::default()));
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        assert_eq!(has_ended, Ok(1));
        Ok(())
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let error = Process::start(&launch(&["no-such-program"])).map(|_| ());
        assert!(error.is_err_and(|it| it.to_string().contains("is not there")));
    }
}
