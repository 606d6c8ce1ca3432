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

use super::reaper::Reaper;
use super::supervisor::Supervisor;
use super::wards::Wards;
use crate::conversation::hung_up;

/// Calls that wait at a time.
const MOST_WAITING: usize = 256;

/// How long one waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// When to try again, while calls wait, if no supervisor could be started.
const RETRY: Duration = Duration::from_millis(50);

/// The least time between two supervisors that are started ahead and killed
/// before they got a call.
const AHEAD_AGAIN: Duration = Duration::from_millis(200);

/// The calls that wait, and when the next supervisor may be started.
#[derive(Default)]
pub(crate) struct Calls {
    waiting: VecDeque<(OwnedFd, Instant)>,
    retry_at: Option<Instant>,
    /// When one may be started ahead; `None` before the first call: whoever
    /// started this sandbox has put it within its limits by then.
    ahead_at: Option<Instant>,
}

impl Calls {
    /// Takes a call.
    pub(crate) fn add(&mut self, call: OwnedFd, now: Instant) {
        if self.waiting.len() >= MOST_WAITING {
            return refuse(&call, "too many calls wait in this sandbox; try again later");
        }
        self.waiting.push_back((call, now));
    }

    /// Whether one waits.
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Hands over what can be handed over, and starts what is needed.
    pub(crate) fn advance(&mut self, wards: &mut Wards, reaper: &Reaper, now: Instant) {
        while let Some((call, _)) = self.waiting.front() {
            if wards.hand_over(call) {
                // The next one is for the next call.
                self.ahead_at = Some(now);
                self.waiting.pop_front();
            } else if !self.start(wards, reaper, now) {
                break;
            }
        }
        if self.waiting.is_empty() && self.wants_spare(wards) && self.ahead_at <= Some(now) {
            self.ahead_at = now.checked_add(AHEAD_AGAIN);
            self.start(wards, reaper, now);
        }
        self.give_up(now);
    }

    /// When there is something to do without news.
    pub(crate) fn due(&self, wards: &Wards) -> Option<Instant> {
        if self.waiting.is_empty() {
            self.ahead_at.filter(|_| self.wants_spare(wards))
        } else {
            self.retry_at
        }
    }

    /// What is to be waited for: those that hang up while they wait.
    pub(crate) fn interest<'a>(&'a self, interest: &mut Vec<PollFd<'a>>) {
        let empty = PollFlags::empty();
        interest.extend(self.waiting.iter().map(|(it, _)| PollFd::new(it, empty)));
    }

    fn wants_spare(&self, wards: &Wards) -> bool {
        self.ahead_at.is_some() && wards.has_room() && !wards.has_spare()
    }

    /// Starts a supervisor, if there is room and it is not too soon.
    fn start(&mut self, wards: &mut Wards, reaper: &Reaper, now: Instant) -> bool {
        if self.retry_at.is_some_and(|it| now < it) {
            return false;
        }
        self.retry_at = now.checked_add(RETRY);
        if !wards.has_room() {
            return false;
        }
        let Ok(supervisor) = Supervisor::start(reaper) else { return false };
        self.retry_at = None;
        wards.add(supervisor);
        true
    }

    /// Lets those go that hung up, and tells those that waited long.
    fn give_up(&mut self, now: Instant) {
        self.waiting.retain(|(call, since)| {
            let is_late = now.saturating_duration_since(*since) >= PATIENCE;
            if is_late {
                refuse(call, "no process can be started in this sandbox: it has too many");
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
