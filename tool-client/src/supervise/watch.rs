//! Watches over a running command until its end. One loop waits on everything
//! at once: frames from the gateway, room for frames to it, the command's
//! pipes, its death, and the deadline. A gateway that does not read holds up
//! the command, never its own signals.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process_group};
use serde_json::{Value, json};

use tool_client::frame::{self, Frame};

use super::feed::Feed;
use super::keep::Keeper;
use super::request::Request;
use super::start::Running;
use crate::conversation::Conversation;
use crate::tree;

/// How long output is awaited once the main process has ended: a background
/// process that holds the pipe does not hold the call.
const GRACE: Duration = Duration::from_millis(300);

/// Orphans are reaped at least this often.
const REAP_EVERY: Duration = Duration::from_secs(1);

/// A command under watch.
pub(crate) struct Watch<'a> {
    conversation: &'a mut Conversation,
    pid: Pid,
    pidfd: OwnedFd,
    feed: Feed,
    outputs: [Output; 2],
    keeper: Keeper,
    buffer: Vec<u8>,
    started: Instant,
    deadline: Option<Instant>,
    ended: Option<Ended>,
}

/// One of the two streams that the command writes.
struct Output {
    kind: u8,
    pipe: Option<OwnedFd>,
    bytes: u64,
    /// Bytes that were in the pipe when the main process ended: they are its
    /// own, and are read however long that takes.
    owed: u64,
}

/// The main process has ended.
struct Ended {
    code: i32,
    at: Instant,
}

/// Why the loop ended.
enum Ending {
    Normal,
    TimedOut,
    /// Cancelled, hung up, or nobody reads any more.
    CalledOff,
    /// The gateway broke the protocol.
    Broken(String),
}

/// How it ended, for the gateway.
#[derive(Debug, Default)]
pub(crate) struct Report {
    code: i32,
    timed_out: bool,
    cancelled: bool,
    error: Option<String>,
    saved: Option<String>,
    save_error: Option<String>,
    stdout_bytes: u64,
    stderr_bytes: u64,
    left: usize,
    not_killed: usize,
    duration: Duration,
    /// Direct children that live on.
    pub(crate) children: Vec<i32>,
    /// Our ends of the pipes into which they may still write.
    pub(crate) pipes: Vec<OwnedFd>,
}

impl Report {
    /// The object of the last frame; what does not apply is absent.
    pub(crate) fn to_value(&self) -> Value {
        let mut report = json!({
            "exitCode": self.code, "timedOut": self.timed_out, "cancelled": self.cancelled,
            "stdoutBytes": self.stdout_bytes, "stderrBytes": self.stderr_bytes,
            "left": self.left,
            "durationMs": u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
        });
        let texts =
            [("error", &self.error), ("saved", &self.saved), ("saveError", &self.save_error)];
        for (name, text) in texts {
            if let Some(text) = text {
                report[name] = json!(text);
            }
        }
        if self.not_killed > 0 {
            report["notKilled"] = json!(self.not_killed);
        }
        report
    }
}

impl<'a> Watch<'a> {
    /// Watches over that command from now on.
    pub(crate) fn new(
        conversation: &'a mut Conversation,
        running: Running,
        request: &Request,
    ) -> Self {
        let output = |kind, pipe| Output { kind, pipe: Some(pipe), bytes: 0, owed: 0 };
        let started = Instant::now();
        Self {
            conversation,
            pid: running.pid,
            pidfd: running.pidfd,
            feed: Feed::new(running.stdin),
            outputs: [output(frame::STDOUT, running.stdout), output(frame::STDERR, running.stderr)],
            keeper: Keeper::new(request.save.clone(), &request.workspace),
            buffer: vec![0; frame::MAX_PAYLOAD],
            started,
            deadline: request.timeout.and_then(|it| started.checked_add(it)),
            ended: None,
        }
    }

    /// Waits for the command's end, or brings it about.
    pub(crate) fn until_the_end(mut self) -> Report {
        let ending = loop {
            if let Some(ending) = self.step() {
                break ending;
            }
            self.wait();
        };
        let mut report = Report::default();
        match ending {
            Ending::Normal => {}
            Ending::TimedOut => report.timed_out = true,
            Ending::CalledOff => report.cancelled = true,
            Ending::Broken(error) => report.error = Some(error),
        }
        if report.timed_out || report.cancelled || report.error.is_some() {
            report.not_killed = self.kill();
            // All writers are dead: what the pipes still hold is finite.
            while self.forward() {
                self.conversation.send();
            }
        }
        self.fill(report)
    }

    /// Does all that can be done now without waiting; says whether it is over.
    fn step(&mut self) -> Option<Ending> {
        self.reap();
        match self.obey_all() {
            Ok(None) => {}
            Ok(ending) => return ending,
            Err(error) => return Some(Ending::Broken(error)),
        }
        self.feed.write();
        self.forward();
        self.conversation.send();
        let hung_up = self.conversation.ended() && self.ended.is_none();
        if hung_up || self.conversation.gone() {
            return Some(Ending::CalledOff);
        }
        let now = Instant::now();
        match &self.ended {
            Some(ended) => self.drained(now >= ended.at + GRACE).then_some(Ending::Normal),
            None => self.deadline.is_some_and(|it| now >= it).then_some(Ending::TimedOut),
        }
    }

    /// Obeys every frame that has come.
    fn obey_all(&mut self) -> Result<Option<Ending>, String> {
        while let Some(Frame { kind, payload }) =
            self.conversation.next().map_err(|it| it.to_string())?
        {
            match (kind, payload.as_slice()) {
                (frame::STDIN, bytes) => self.feed.take(bytes)?,
                (frame::STDIN_END, _) => self.feed.end(),
                (frame::SIGNAL, [number]) => self.signal(*number)?,
                (frame::CANCEL, _) => return Ok(Some(Ending::CalledOff)),
                _ => return Err(format!("a frame of kind {kind} makes no sense here")),
            }
        }
        Ok(None)
    }

    /// Sends a signal to the command's process group while the command lives.
    fn signal(&self, number: u8) -> Result<(), String> {
        let signal = Signal::from_named_raw(i32::from(number))
            .ok_or_else(|| format!("there is no signal {number}"))?;
        if self.ended.is_none() {
            let _ = kill_process_group(self.pid, signal);
        }
        Ok(())
    }

    /// Carries output to the gateway as long as that has room, the two streams
    /// by turns; says whether there was any.
    fn forward(&mut self) -> bool {
        let mut moved = false;
        if self.conversation.has_room()
            && let Some(grant) = self.feed.grant()
        {
            self.conversation.queue(frame::WINDOW, &grant.to_be_bytes());
        }
        for output in &mut self.outputs {
            if self.conversation.has_room()
                && let Some(bytes) = output.read(&mut self.buffer)
            {
                self.conversation.queue(output.kind, bytes);
                self.keeper.take(bytes);
                moved = true;
            }
        }
        moved
    }

    /// Whether no more output is to be expected.
    fn drained(&self, grace_is_over: bool) -> bool {
        self.outputs.iter().all(|it| it.pipe.is_none() || (grace_is_over && it.owed == 0))
    }

    /// Reaps what is dead and notices the end of the main process; says
    /// whether no child is left.
    fn reap(&mut self) -> bool {
        let reaped = tree::reap();
        for (pid, code) in reaped.dead {
            if pid == self.pid {
                self.ended = Some(Ended { code, at: Instant::now() });
                self.feed.close();
                for output in &mut self.outputs {
                    output.owed = output.in_pipe();
                }
            }
        }
        reaped.none_left
    }

    /// Waits until there is something to do.
    fn wait(&self) {
        let mut interest = self.conversation.interest();
        if self.ended.is_none() {
            interest.push(PollFd::new(&self.pidfd, PollFlags::IN));
        }
        if let Some(pipe) = self.feed.wants() {
            interest.push(PollFd::new(pipe, PollFlags::OUT));
        }
        if self.conversation.has_room() {
            let pipes = self.outputs.iter().filter_map(|it| it.pipe.as_ref());
            interest.extend(pipes.map(|it| PollFd::new(it, PollFlags::IN)));
        }
        let limit = Timespec::try_from(self.patience()).ok();
        let _ = rustix::event::poll(&mut interest, limit.as_ref());
    }

    /// How long nothing at all may happen.
    fn patience(&self) -> Duration {
        let due = match &self.ended {
            Some(ended) if self.conversation.has_room() => Some(ended.at + GRACE),
            Some(_) => None,
            None => self.deadline,
        };
        let until_due = due.map(|it| it.saturating_duration_since(Instant::now()));
        // Rounded up, or the last wait would end just before its time.
        until_due.map_or(REAP_EVERY, |it| (it + Duration::from_millis(1)).min(REAP_EVERY))
    }

    /// Kills the command with all its descendants; gives how many could not
    /// be.
    fn kill(&mut self) -> usize {
        self.feed.close();
        if getpid() == Pid::INIT {
            return tree::kill_namespace(|| self.reap());
        }
        // Its group at least is known, even without /proc.
        if self.ended.is_none() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        tree::kill_all(None, || self.reap())
    }

    fn fill(mut self, mut report: Report) -> Report {
        // Without a child there is no descendant: most often all of /proc need
        // not be looked through.
        let alive = if self.reap() { Vec::new() } else { tree::descendants(getpid()) };
        let myself = getpid().as_raw_nonzero().get();
        report.children = alive.iter().filter(|it| it.parent == myself).map(|it| it.pid).collect();
        report.left = alive.len();
        let killed = 128 + Signal::KILL.as_raw();
        report.code = self.ended.as_ref().map_or(killed, |it| it.code);
        if report.timed_out {
            report.code = 124;
        }
        report.duration = self.ended.map_or_else(Instant::now, |it| it.at) - self.started;
        [report.stdout_bytes, report.stderr_bytes] = self.outputs.each_ref().map(|it| it.bytes);
        report.pipes = self.outputs.into_iter().filter_map(|it| it.pipe).collect();
        (report.saved, report.save_error) = self.keeper.finish();
        report
    }
}

impl Output {
    /// What can be read now; the end closes the pipe.
    fn read<'b>(&mut self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        match rustix::io::read(self.pipe.as_ref()?, &mut *buffer) {
            Ok(count) if count > 0 => {
                self.bytes += count as u64;
                self.owed = self.owed.saturating_sub(count as u64);
                Some(&buffer[..count])
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Ok(_) | Err(_) => {
                self.pipe = None;
                self.owed = 0;
                None
            }
        }
    }

    fn in_pipe(&self) -> u64 {
        self.pipe.as_ref().and_then(|it| rustix::io::ioctl_fionread(it).ok()).unwrap_or(0)
    }
}
