//! A turn's events on their way to who asked for it. Nothing here waits: a
//! subscriber that is behind is told in fewer, longer pieces what a model says,
//! and not all that commands print; one that takes them too slowly is told so and
//! dropped, and the turn goes on. It ends early only when it is called off, as by
//! a client that is gone.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, select, unbounded};

use crate::turn::TurnEvent;
use crate::worker::{Cancel, Canceller};

/// How much of a turn may wait for a subscriber, in bytes, before the next
/// event is one too many.
const MOST_AHEAD: usize = 1024 * 1024;

/// How much may wait before what a command prints is counted and not told: it
/// prints faster than any model speaks.
const MOST_AHEAD_OF_OUTPUT: usize = MOST_AHEAD / 2;

/// What one event counts at most: who has just been told a large one, such as
/// a file that is written, is not slow yet.
const HEAVIEST: usize = MOST_AHEAD / 2;

/// How much may wait before what a model says is joined with the piece before it.
const MOST_APART: usize = 64 * 1024;

/// Longest text of joined pieces, in bytes: as JSON it is six times as long at
/// most, and a line of 64 MiB is one that clients take.
const LONGEST_JOINED: usize = 8 * 1024 * 1024;

/// Category of the last event of a subscriber that was too slow: its turn goes on.
pub const TOO_SLOW: &str = "too_slow";

/// What a subscriber is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Every event.
    All,
    /// Every event but the pieces of what is said and printed.
    Steps,
    /// The last event only.
    End,
}

/// The side that listens. Dropping it ends no turn.
#[derive(Debug)]
pub struct Subscription {
    /// Ends without a last event only if the turn broke off.
    pub events: Receiver<Told>,
    canceller: Canceller,
}

/// The side that tells.
#[derive(Debug)]
pub struct Subscriber {
    to: Option<Sender<Told>>,
    ahead: Arc<AtomicUsize>,
    detail: Detail,
    /// The event that was sent last, which may still wait.
    last: Option<Arc<Mutex<Waiting>>>,
    /// The key of the session, once it is told.
    session: String,
    /// Bytes that the command which runs now printed and that are not told.
    left_out: u64,
}

/// An event that counts against its subscriber until it is taken or dropped.
#[derive(Debug)]
pub struct Told {
    waiting: Arc<Mutex<Waiting>>,
    ahead: Arc<AtomicUsize>,
}

/// An event in the queue, to which more can be joined while it waits.
#[derive(Debug)]
struct Waiting {
    event: TurnEvent,
    weight: usize,
    is_gone: bool,
}

impl Subscription {
    /// Both sides, and what tells the turn that it is called off.
    pub fn pair(detail: Detail) -> (Subscriber, Self, Cancel) {
        let (to, events) = unbounded();
        let (canceller, cancel) = Cancel::pair();
        let subscriber = Subscriber {
            to: Some(to),
            ahead: Arc::default(),
            detail,
            last: None,
            session: String::new(),
            left_out: 0,
        };
        (subscriber, Self { events, canceller }, cancel)
    }

    /// Shows each event but the last, which it gives; `None` if the turn broke
    /// off without one, and if `cancel` calls it off.
    pub fn follow(&self, each: &mut dyn FnMut(TurnEvent), cancel: &Cancel) -> Option<TurnEvent> {
        loop {
            select! {
                recv(self.events) -> told => {
                    let event = told.ok()?.take();
                    if event.is_last() {
                        return Some(event);
                    }
                    each(event);
                }
                recv(cancel.gone()) -> _ => {
                    self.call_off();
                    return None;
                }
            }
        }
    }

    /// Calls the turn off, or the prompt that still waits for its turn.
    pub fn call_off(&self) {
        self.canceller.cancel();
    }

    /// For who must be able to call it off when nobody listens any more.
    pub(super) fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }
}

impl Detail {
    fn includes(self, event: &TurnEvent) -> bool {
        match self {
            Self::All => true,
            Self::Steps => !matches!(
                event,
                TurnEvent::TextDelta { .. }
                    | TurnEvent::ThinkingDelta { .. }
                    | TurnEvent::ToolOutput { .. }
            ),
            Self::End => event.is_last(),
        }
    }
}

impl Subscriber {
    /// Passes an event on, unless the subscriber is gone or too far behind; it
    /// is then told so. The last one is passed on to any that is still there.
    pub fn tell(&mut self, mut event: TurnEvent) {
        let ahead = self.ahead.load(Ordering::Relaxed);
        match &mut event {
            TurnEvent::TurnStart { session_key } => self.session.clone_from(session_key),
            TurnEvent::ToolOutput { delta, .. }
                if self.detail != Detail::All || ahead > MOST_AHEAD_OF_OUTPUT =>
            {
                self.left_out += delta.len() as u64;
                return;
            }
            TurnEvent::ToolEnd { untold_bytes, .. } => {
                *untold_bytes += mem::take(&mut self.left_out);
            }
            _ => {}
        }
        if !self.detail.includes(&event) || ahead > MOST_APART && self.join(&event) {
            return;
        }
        if ahead > MOST_AHEAD && !event.is_last() {
            return self.part();
        }
        self.send(event);
    }

    /// Puts what a model says behind what it said before, if that still waits.
    fn join(&self, more: &TurnEvent) -> bool {
        self.last.as_ref().is_some_and(|it| lock(it).join(more, &self.ahead))
    }

    /// The last that one is told who is too slow.
    fn part(&mut self) {
        if self.to.is_some() {
            log::warn!("a subscriber of a turn is too slow and was dropped; the turn goes on");
            self.send(too_slow(&self.session));
            self.leave();
        }
    }

    fn send(&mut self, event: TurnEvent) {
        let Some(to) = &self.to else { return };
        let told = Told::new(event, &self.ahead);
        self.last = Some(Arc::clone(&told.waiting));
        if to.send(told).is_err() {
            self.leave();
        }
    }

    fn leave(&mut self) {
        self.to = None;
        self.last = None;
    }
}

impl Told {
    fn new(event: TurnEvent, ahead: &Arc<AtomicUsize>) -> Self {
        let weight = event.weight().min(HEAVIEST);
        ahead.fetch_add(weight, Ordering::Relaxed);
        let waiting = Waiting { event, weight, is_gone: false };
        Self { waiting: Arc::new(Mutex::new(waiting)), ahead: Arc::clone(ahead) }
    }

    /// The event, which waits no more.
    pub fn take(self) -> TurnEvent {
        let nothing = TurnEvent::TextDelta { delta: String::new() };
        let mut waiting = lock(&self.waiting);
        waiting.is_gone = true;
        mem::replace(&mut waiting.event, nothing)
    }

    /// Whether it says that the turn failed.
    pub fn is_failure(&self) -> bool {
        matches!(lock(&self.waiting).event, TurnEvent::Error { .. })
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        waiting.is_gone = true;
        self.ahead.fetch_sub(waiting.weight, Ordering::Relaxed);
    }
}

impl Waiting {
    /// Takes more of the same in; `false` if it is something else, too much, or
    /// too late.
    fn join(&mut self, more: &TurnEvent, ahead: &AtomicUsize) -> bool {
        let (text, more) = match (&mut self.event, more) {
            (TurnEvent::TextDelta { delta: text }, TurnEvent::TextDelta { delta: more })
            | (
                TurnEvent::ThinkingDelta { delta: text },
                TurnEvent::ThinkingDelta { delta: more },
            ) => (text, more),
            _ => return false,
        };
        if self.is_gone || text.len() + more.len() > LONGEST_JOINED {
            return false;
        }
        text.push_str(more);
        let weight = (self.weight + more.len()).min(HEAVIEST);
        ahead.fetch_add(weight - self.weight, Ordering::Relaxed);
        self.weight = weight;
        true
    }
}

fn too_slow(session: &str) -> TurnEvent {
    let message = format!(
        "this client reads too slowly and is told no more of the turn, which goes on in the \
         session {session}: see `beige sessions show {session}` before asking again"
    );
    TurnEvent::Error { category: TOO_SLOW, message, partial: None }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(length: usize) -> TurnEvent {
        TurnEvent::TextDelta { delta: "x".repeat(length) }
    }

    fn done() -> TurnEvent {
        TurnEvent::Done { response: "yes".into(), note: None }
    }

    #[track_caller]
    fn told(subscription: &Subscription) -> Vec<TurnEvent> {
        subscription.events.try_iter().map(Told::take).collect()
    }

    #[test]
    fn one_that_takes_nothing_is_told_so_and_dropped_and_its_turn_is_not_called_off() {
        let (mut subscriber, subscription, cancel) = Subscription::pair(Detail::All);
        subscriber.tell(TurnEvent::TurnStart { session_key: "cli:a:1".into() });
        for _ in 0..100 {
            subscriber.tell(text(MOST_AHEAD / 2));
            subscriber.tell(TurnEvent::ThinkingDelta { delta: "y".into() });
        }
        subscriber.tell(done());
        drop(subscriber);
        let told = told(&subscription);
        assert!((4..8).contains(&told.len()), "two halves fill it: {}", told.len());
        let Some(TurnEvent::Error { category, message, .. }) = told.last() else { panic!() };
        assert_eq!(*category, TOO_SLOW);
        assert!(message.contains("goes on") && message.contains("sessions show cli:a:1"));
        assert!(!cancel.is_cancelled());
    }

    #[test]
    fn what_a_fast_model_says_is_told_whole_in_fewer_pieces() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::All);
        (0..8_000).for_each(|_| subscriber.tell(text(1000)));
        subscriber.tell(TurnEvent::TurnStart { session_key: "k".into() });
        subscriber.tell(text(3));
        subscriber.tell(done());
        assert!(subscriber.ahead.load(Ordering::Relaxed) < 2 * MOST_AHEAD);
        let told = told(&subscription);
        let said = |it: &TurnEvent| match it {
            TurnEvent::TextDelta { delta } => delta.len(),
            _ => 0,
        };
        assert_eq!(told.iter().map(said).sum::<usize>(), 8_000_003);
        assert!(told.len() < 100 && told.iter().all(|it| said(it) <= LONGEST_JOINED));
        assert_eq!(told[told.len() - 2..], [text(3), done()]);
        assert_eq!(subscriber.ahead.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nothing_is_joined_to_what_was_taken_or_is_of_another_kind() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::All);
        let thought = || TurnEvent::ThinkingDelta { delta: "t".into() };
        subscriber.tell(text(2 * MOST_APART));
        [text(1), thought(), text(2)].into_iter().for_each(|it| subscriber.tell(it));
        assert_eq!(told(&subscription), [text(2 * MOST_APART + 1), thought(), text(2)]);
        subscriber.tell(text(4));
        assert_eq!(told(&subscription), [text(4)]);
    }

    #[test]
    fn text_without_end_that_nobody_takes_is_not_kept() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::All);
        (0..100).for_each(|_| subscriber.tell(text(MOST_AHEAD)));
        drop(subscriber);
        let told = told(&subscription);
        assert!(told.iter().map(TurnEvent::weight).sum::<usize>() < 4 * LONGEST_JOINED);
        assert!(matches!(told.last(), Some(TurnEvent::Error { category: TOO_SLOW, .. })));
    }

    #[test]
    fn who_asks_for_the_steps_is_told_no_pieces() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::Steps);
        let start = || TurnEvent::TurnStart { session_key: "k".into() };
        subscriber.tell(start());
        (0..500).for_each(|_| subscriber.tell(text(MOST_AHEAD)));
        subscriber.tell(TurnEvent::ThinkingDelta { delta: "t".into() });
        subscriber.tell(TurnEvent::ToolOutput { id: "1".into(), delta: "four".into() });
        let end = |untold_bytes| TurnEvent::ToolEnd {
            id: "1".into(),
            is_error: false,
            exit_code: None,
            bytes: 4,
            untold_bytes,
        };
        subscriber.tell(end(0));
        subscriber.tell(done());
        assert_eq!(told(&subscription), [start(), end(4), done()]);
    }

    #[test]
    fn a_large_event_alone_makes_nobody_slow() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::All);
        for event in [text(20 * MOST_AHEAD), text(1), text(1000), done()] {
            subscriber.tell(event);
        }
        assert_eq!(told(&subscription), [text(20 * MOST_AHEAD), text(1001), done()]);
    }

    #[test]
    fn one_that_keeps_up_gets_any_amount() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::All);
        for _ in 0..100 {
            subscriber.tell(text(MOST_AHEAD / 2));
            assert!(subscription.events.try_recv().is_ok());
        }
        assert_eq!(subscriber.ahead.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_is_slow_is_not_told_all_that_a_command_prints() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::All);
        let printed = |delta: &str| TurnEvent::ToolOutput { id: "1".into(), delta: delta.into() };
        let end = |untold_bytes| TurnEvent::ToolEnd {
            id: "1".into(),
            is_error: false,
            exit_code: Some(0),
            bytes: 1_000_000,
            untold_bytes,
        };
        (0..100_000).for_each(|_| subscriber.tell(printed("0123456789")));
        subscriber.tell(end(7));
        let told: Vec<TurnEvent> = subscription.events.try_iter().map(|it| it.take()).collect();
        let told_bytes = (told.len() as u64 - 1) * 10;
        assert!((10_000..MOST_AHEAD as u64).contains(&told_bytes), "{told_bytes}");
        assert_eq!(told.last(), Some(&end(7 + 1_000_000 - told_bytes)), "the rest is counted");
        subscriber.tell(printed("again"));
        subscriber.tell(end(0));
        let told: Vec<TurnEvent> = subscription.events.try_iter().map(|it| it.take()).collect();
        assert_eq!(told, [printed("again"), end(0)]);
    }

    #[test]
    fn a_burst_before_the_end_loses_nothing() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::All);
        (0..500).for_each(|_| subscriber.tell(text(1)));
        subscriber.tell(done());
        drop(subscriber);
        assert_eq!(subscription.events.iter().count(), 501);
    }

    #[test]
    fn who_asks_for_the_end_is_told_nothing_else() {
        let (mut subscriber, subscription, cancel) = Subscription::pair(Detail::End);
        (0..500).for_each(|_| subscriber.tell(text(MOST_AHEAD)));
        subscriber.tell(done());
        drop(subscriber);
        let told: Vec<TurnEvent> = subscription.events.iter().map(|it| it.take()).collect();
        assert_eq!(told, [done()]);
        subscription.call_off();
        assert!(cancel.is_cancelled());
    }
}
