//! Calls that want a supervisor. There is one started ahead as soon as the
//! first call has come; each that is handed a call is followed by the next.
//! Where none can be started, since the sandbox has no room for a process, a
//! call waits a while and is then told so.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{SendFlags, send};

use tool_client::frame;

use super::Hands;
use super::supervisor::{Supervisor, Waiting};
use super::wards::Wards;
use crate::conversation::hung_up;

/// Calls that wait at a time.
const MOST_WAITING: usize = 256;

/// How long one waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long once one has waited in vain, until a supervisor could be started: a
/// command can take from PID 1 for good what that needs.
const PATIENCE_AGAIN: Duration = Duration::from_millis(500);

/// When to try again, while calls wait, if no supervisor could be started.
const RETRY: Duration = Duration::from_millis(50);

/// The least time between two supervisors that are started ahead and killed
/// before they got a call.
const AHEAD_AGAIN: Duration = Duration::from_millis(200);

/// The calls that wait, and when the next supervisor may be started.
#[derive(Default)]
pub(crate) struct Calls {
    waiting: VecDeque<Waiting>,
    retry_at: Option<Instant>,
    /// When one may be started ahead; `None` before the first call: whoever
    /// started this sandbox has put it within its limits by then.
    ahead_at: Option<Instant>,
    /// Whether one has waited in vain since a supervisor was started last.
    has_failed: bool,
}

impl Calls {
    /// Takes a call.
    pub(crate) fn add(&mut self, call: OwnedFd, now: Instant) {
        if self.waiting.len() >= MOST_WAITING {
            return refuse(&call, "too many calls wait in this sandbox; try again later");
        }
        self.waiting.push_back(Waiting { call, since: now });
    }

    /// Whether one waits.
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Hands over what can be handed over, and starts what is needed.
    pub(crate) fn advance(&mut self, wards: &mut Wards, hands: &Hands, now: Instant) {
        for it in wards.taken_back() {
            self.waiting.push_front(it);
        }
        while let Some(waiting) = self.waiting.pop_front() {
            match wards.hand_over(waiting) {
                // The next one is for the next call.
                Ok(()) => self.ahead_at = Some(now),
                Err(waiting) => {
                    self.waiting.push_front(waiting);
                    if !self.start(wards, hands, now) {
                        break;
                    }
                }
            }
        }
        if self.waiting.is_empty() && self.wants_spare(wards) && self.ahead_at <= Some(now) {
            self.ahead_at = now.checked_add(AHEAD_AGAIN);
            self.start(wards, hands, now);
        }
        self.give_up(now);
    }

    /// When there is something to do without news.
    pub(crate) fn due(&self, wards: &Wards, now: Instant) -> Option<Instant> {
        if wards.has_more() {
            Some(now)
        } else if self.waiting.is_empty() {
            self.ahead_at.filter(|_| self.wants_spare(wards))
        } else {
            self.retry_at
        }
    }

    /// What is to be waited for: those that hang up while they wait.
    pub(crate) fn interest<'a>(&'a self, interest: &mut Vec<PollFd<'a>>) {
        let empty = PollFlags::empty();
        interest.extend(self.waiting.iter().map(|it| PollFd::new(&it.call, empty)));
    }

    fn wants_spare(&self, wards: &Wards) -> bool {
        self.ahead_at.is_some() && wards.has_room() && !wards.has_spare()
    }

    /// Starts a supervisor, if there is room and it is not too soon.
    fn start(&mut self, wards: &mut Wards, hands: &Hands, now: Instant) -> bool {
        if self.retry_at.is_some_and(|it| now < it) {
            return false;
        }
        self.retry_at = now.checked_add(RETRY);
        // What it inherits of less would cost it its call.
        if !wards.has_room() || !hands.limits.hold() {
            return false;
        }
        let Ok(supervisor) = Supervisor::start(hands) else { return false };
        self.retry_at = None;
        self.has_failed = false;
        wards.add(supervisor);
        true
    }

    /// Lets those go that hung up, and tells those that waited long.
    fn give_up(&mut self, now: Instant) {
        let patience = if self.has_failed { PATIENCE_AGAIN } else { PATIENCE };
        self.waiting.retain(|Waiting { call, since }| {
            let is_late = now.saturating_duration_since(*since) >= patience;
            if is_late {
                self.has_failed = true;
                refuse(call, "no process can be started in this sandbox: it has too many, or something ends them");
            }
            !is_late && !hung_up(call.as_fd())
        });
    }
}

/// Says on the call's own socket that it cannot be; nothing has begun.
pub(crate) fn refuse(call: &OwnedFd, why: &str) {
    let report = [br#"{"error":""#, why.as_bytes(), br#""}"#].concat();
    if let Ok(head) = frame::head(frame::EXIT, report.len()) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = send(call, &[&head, report.as_slice()].concat(), flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn call() -> (UnixStream, OwnedFd) {
        match UnixStream::pair() {
            Ok((ours, theirs)) => (ours, theirs.into()),
            Err(error) => unreachable!("{error}"),
        }
    }

    #[track_caller]
    fn refused(mut ours: UnixStream, why: &str) {
        let mut said = Vec::new();
        assert!(ours.read_to_end(&mut said).is_ok());
        let mut said = said.as_slice();
        let Ok(Some(frame)) = frame::read(&mut said) else { unreachable!("no frame: {said:?}") };
        assert_eq!(frame.kind, frame::EXIT);
        let Ok(report) = serde_json::from_slice::<serde_json::Value>(&frame.payload) else {
            unreachable!("no JSON: {frame:?}")
        };
        assert!(report["error"].as_str().is_some_and(|it| it.contains(why)), "{report}");
    }

    #[test]
    fn a_call_that_waits_too_long_is_told_so_and_one_that_hung_up_is_let_go() {
        let (mut calls, now) = (Calls::default(), Instant::now());
        let ((late, theirs), (gone, other)) = (call(), call());
        calls.add(theirs, now);
        calls.give_up(now);
        calls.add(other, now);
        drop(gone);
        calls.give_up(now);
        assert_eq!(calls.waiting.len(), 1);
        calls.give_up(now + PATIENCE);
        assert!(!calls.any());
        // Until one can be started again the next ones wait less.
        let (next, theirs) = call();
        calls.add(theirs, now);
        calls.give_up(now + PATIENCE_AGAIN);
        refused(next, "no process can be started");
        refused(late, "no process can be started");
    }

    #[test]
    fn too_many_calls_are_told_so_at_once() {
        let (mut calls, now) = (Calls::default(), Instant::now());
        let mut held = Vec::new();
        for _ in 0..MOST_WAITING {
            let (ours, theirs) = call();
            held.push(ours);
            calls.add(theirs, now);
        }
        let (ours, theirs) = call();
        calls.add(theirs, now);
        refused(ours, "too many calls wait");
        assert_eq!(calls.waiting.len(), MOST_WAITING);
    }
}
