//! A turn's events on their way to who asked for it. Nothing here waits: a
//! subscriber that takes them slowly is not told all that commands print, one
//! that takes them too slowly is dropped, and the turn goes on. It ends early
//! only when it is called off, as by a client that is gone.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};

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

/// What a subscriber is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Every event.
    All,
    /// The last event only.
    End,
}

/// The side that listens. Dropping it ends no turn.
#[derive(Debug)]
pub struct Subscription {
    /// Ends without a last event if the subscriber was too slow.
    pub events: Receiver<Told>,
    canceller: Canceller,
}

/// The side that tells.
#[derive(Debug)]
pub struct Subscriber {
    to: Option<Sender<Told>>,
    ahead: Arc<AtomicUsize>,
    detail: Detail,
    /// Bytes that the command which runs now printed and that are not told.
    left_out: u64,
}

/// An event that counts against its subscriber until it is dropped.
#[derive(Debug)]
pub struct Told {
    /// The event.
    pub event: TurnEvent,
    weight: usize,
    ahead: Arc<AtomicUsize>,
}

impl Subscription {
    /// Both sides, and what tells the turn that it is called off.
    pub fn pair(detail: Detail) -> (Subscriber, Self, Cancel) {
        let (to, events) = unbounded();
        let (canceller, cancel) = Cancel::pair();
        let subscriber = Subscriber { to: Some(to), ahead: Arc::default(), detail, left_out: 0 };
        (subscriber, Self { events, canceller }, cancel)
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

impl Subscriber {
    /// Passes an event on, unless the subscriber is gone or too far behind. The
    /// last one is passed on to any that is still there.
    pub fn tell(&mut self, mut event: TurnEvent) {
        let Some(to) = &self.to else { return };
        if self.detail == Detail::End && !event.is_last() {
            return;
        }
        let ahead = self.ahead.load(Ordering::Relaxed);
        match &mut event {
            TurnEvent::ToolOutput { delta, .. } if ahead > MOST_AHEAD_OF_OUTPUT => {
                self.left_out += delta.len() as u64;
                return;
            }
            TurnEvent::ToolEnd { untold_bytes, .. } => {
                *untold_bytes += mem::take(&mut self.left_out);
            }
            _ => {}
        }
        if ahead > MOST_AHEAD && !event.is_last() {
            log::warn!("a subscriber of a turn is too slow and was dropped; the turn goes on");
            self.to = None;
            return;
        }
        let told = Told::new(event, &self.ahead);
        if to.send(told).is_err() {
            self.to = None;
        }
    }
}

impl Told {
    fn new(event: TurnEvent, ahead: &Arc<AtomicUsize>) -> Self {
        let weight = event.weight().min(HEAVIEST);
        ahead.fetch_add(weight, Ordering::Relaxed);
        Self { event, weight, ahead: Arc::clone(ahead) }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.ahead.fetch_sub(self.weight, Ordering::Relaxed);
    }
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

    #[test]
    fn one_that_takes_nothing_is_dropped_and_its_turn_is_not_called_off() {
        let (mut subscriber, subscription, cancel) = Subscription::pair(Detail::All);
        for _ in 0..100 {
            subscriber.tell(text(MOST_AHEAD / 2));
        }
        subscriber.tell(done());
        let told: Vec<usize> = subscription.events.iter().map(|it| it.event.weight()).collect();
        assert_eq!(told.len(), 3, "two halves fill it, and one more is too many behind them");
        assert!(!cancel.is_cancelled());
    }

    #[test]
    fn a_large_event_alone_makes_nobody_slow() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::All);
        for event in [text(20 * MOST_AHEAD), text(1), text(1000), done()] {
            subscriber.tell(event);
        }
        assert_eq!(subscription.events.try_iter().count(), 4);
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
        let told: Vec<TurnEvent> =
            subscription.events.try_iter().map(|it| it.event.clone()).collect();
        let told_bytes = (told.len() as u64 - 1) * 10;
        assert!((10_000..MOST_AHEAD as u64).contains(&told_bytes), "{told_bytes}");
        assert_eq!(told.last(), Some(&end(7 + 1_000_000 - told_bytes)), "the rest is counted");
        subscriber.tell(printed("again"));
        subscriber.tell(end(0));
        let told: Vec<TurnEvent> =
            subscription.events.try_iter().map(|it| it.event.clone()).collect();
        assert_eq!(told, [printed("again"), end(0)]);
    }

    #[test]
    fn a_burst_before_the_end_loses_nothing() {
        let (mut subscriber, subscription, _cancel) = Subscription::pair(Detail::All);
        (0..5000).for_each(|_| subscriber.tell(text(1)));
        subscriber.tell(done());
        drop(subscriber);
        assert_eq!(subscription.events.iter().count(), 5001);
    }

    #[test]
    fn who_asks_for_the_end_is_told_nothing_else() {
        let (mut subscriber, subscription, cancel) = Subscription::pair(Detail::End);
        (0..5000).for_each(|_| subscriber.tell(text(MOST_AHEAD)));
        subscriber.tell(done());
        drop(subscriber);
        let told: Vec<TurnEvent> = subscription.events.iter().map(|it| it.event.clone()).collect();
        assert_eq!(told, [done()]);
        subscription.call_off();
        assert!(cancel.is_cancelled());
    }
}
