//! One call on its way through a pool. The caller holds a [`Ticket`] and the
//! receiving end of the events, the worker an [`Exchange`]. A ticket is the one
//! place where both sides meet: whoever changes it first has won, so that a
//! call that is called off is never begun, and one that has ended is never cut.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::super::large::{LARGE, LargeAnswers};
use super::super::{Decoder, Delta, Fault, LargePlace, Wire};
use crate::worker::Cancel;

/// Events that wait for a caller at most; then the worker waits.
const EVENTS: usize = 64;

/// The other end of a dialect: where its bytes go.
pub(in crate::provider) trait Carrier: Send {
    /// Carries the request there and the answer back. Before it blocks it arms
    /// the exchange with what cuts that short.
    fn carry(&mut self, wire: &Wire, exchange: &mut Exchange) -> Result<(), Fault>;
}

/// Ends what a worker blocks in, at once.
pub(in crate::provider) type Cut = Box<dyn FnOnce() + Send>;

/// What a worker tells its caller. The channel's end is the call's end. Steps
/// on the way to the answer are only noted on the ticket, with their time: they
/// wake nobody, since they matter to the caller's clock alone.
#[derive(Debug)]
pub(super) enum Event {
    /// A worker has taken the call: noted.
    Begun,
    /// Another piece of the request is on its way: noted.
    Sent,
    /// The head of an answer has come: noted.
    Answered,
    /// Bytes have come, and what they completed.
    Heard(Vec<Delta>),
    /// The answer is large and waits until others are not: noted.
    Crowded,
    /// It may be large.
    Large(LargePlace),
    /// It is a refusal; its text is read.
    Refused,
    /// The answer is whole; only the end of the connection's part is awaited.
    Whole,
}

/// What is to be carried.
pub(super) struct Work {
    pub(super) wire: Wire,
    pub(super) decoder: Box<dyn Decoder>,
}

/// Where a call stands.
enum State {
    Waiting(Box<Work>),
    /// What cuts it short, and the last step that its caller has not seen.
    Running(Option<Cut>, Option<(Event, Instant)>),
    /// Ended or called off, and what came of it.
    Over(Option<Result<(), Fault>>),
}

/// A call as both sides hold it.
pub(super) struct Ticket {
    state: Mutex<State>,
}

/// A call as it waits in a queue.
pub(super) struct Job {
    ticket: Arc<Ticket>,
    events: Sender<Event>,
}

/// A call as its worker sees it.
pub(in crate::provider) struct Exchange {
    decoder: Box<dyn Decoder>,
    events: Sender<Event>,
    ticket: Arc<Ticket>,
    has_stopped: bool,
    large: LargeAnswers,
    is_large: bool,
    /// Bytes of the answer that were told of so far.
    told: usize,
    /// Bytes that came since: those of an event that has not ended.
    untold: usize,
}

impl Job {
    /// A call for the queue, and its caller's two ends.
    pub(super) fn new(work: Work) -> (Self, Arc<Ticket>, Receiver<Event>) {
        let (events, told) = bounded(EVENTS);
        let ticket = Arc::new(Ticket { state: Mutex::new(State::Waiting(Box::new(work))) });
        (Self { ticket: Arc::clone(&ticket), events }, ticket, told)
    }

    /// Begins the call; nothing, if its caller has left.
    pub(super) fn begin(self, large: &LargeAnswers) -> Option<(Wire, Exchange)> {
        let Work { wire, decoder } = *self.ticket.begin()?;
        let (events, ticket) = (self.events, self.ticket);
        let exchange = Exchange {
            decoder,
            events,
            ticket,
            has_stopped: false,
            large: large.clone(),
            is_large: false,
            told: 0,
            untold: 0,
        };
        Some((wire, exchange))
    }
}

impl Ticket {
    /// Calls it off: what runs is cut, what waits is dropped. Whether it still
    /// waited.
    pub(super) fn call_off(&self) -> bool {
        let before = {
            let mut state = self.state();
            if matches!(*state, State::Over(_)) {
                return false;
            }
            mem::replace(&mut *state, State::Over(None))
        };
        if let State::Running(Some(cut), _) = before {
            cut();
            return false;
        }
        matches!(before, State::Waiting(_))
    }

    /// The last step that was noted since this was asked last, and when.
    pub(super) fn step(&self) -> Option<(Event, Instant)> {
        match &mut *self.state() {
            State::Running(_, step) => step.take(),
            _ => None,
        }
    }

    /// What came of it, once its worker has told.
    pub(super) fn outcome(&self) -> Option<Result<(), Fault>> {
        match &mut *self.state() {
            State::Over(came) => came.take(),
            _ => None,
        }
    }

    fn begin(&self) -> Option<Box<Work>> {
        let mut state = self.state();
        if !matches!(*state, State::Waiting(_)) {
            return None;
        }
        match mem::replace(&mut *state, State::Running(None, None)) {
            State::Waiting(work) => Some(work),
            _ => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchange {
    /// Names what cuts this call short. Fails if it has been called off.
    pub(in crate::provider) fn arm(&self, cut: Cut) -> Result<(), Fault> {
        match &mut *self.ticket.state() {
            State::Running(place, _) => {
                *place = Some(cut);
                Ok(())
            }
            _ => Err(Fault::Cancelled),
        }
    }

    /// Takes back what was armed; `false` if it has been used.
    pub(in crate::provider) fn disarm(&self) -> bool {
        match &mut *self.ticket.state() {
            State::Running(place, _) => {
                *place = None;
                true
            }
            _ => false,
        }
    }

    /// A worker has begun.
    pub(super) fn begun(&self) -> Result<(), Fault> {
        self.note(Event::Begun)
    }

    /// Another piece of the request is about to go.
    pub(in crate::provider) fn sent(&self) -> Result<(), Fault> {
        self.note(Event::Sent)
    }

    /// The head of an answer has come.
    pub(in crate::provider) fn answered(&self) -> Result<(), Fault> {
        self.note(Event::Answered)
    }

    /// What comes is no answer but a refusal.
    pub(in crate::provider) fn refused(&self) -> Result<(), Fault> {
        self.tell(Event::Refused)
    }

    /// More bytes of the answer have come.
    pub(in crate::provider) fn heard(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.untold += bytes.len();
        if !self.is_large && self.told + self.untold > LARGE {
            self.become_large()?;
        }
        let mut deltas = Vec::new();
        let fed = self.decoder.feed(bytes, &mut deltas);
        self.pass_on(deltas)?;
        fed
    }

    /// The protocol's own end has come, though more bytes could: the caller
    /// has all of it, and waits for the worker a moment only.
    pub(in crate::provider) fn is_whole(&mut self) -> Result<bool, Fault> {
        if !self.decoder.is_done() {
            return Ok(false);
        }
        self.end()?;
        self.tell(Event::Whole)?;
        Ok(true)
    }

    /// The bytes have ended.
    pub(in crate::provider) fn end(&mut self) -> Result<(), Fault> {
        let mut deltas = Vec::new();
        let ended = self.decoder.end(&mut deltas);
        self.pass_on(deltas)?;
        ended
    }

    /// Whether the model has said why it stops.
    pub(in crate::provider) fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    /// Whether its caller has cut it.
    pub(in crate::provider) fn is_called_off(&self) -> bool {
        matches!(*self.ticket.state(), State::Over(_))
    }

    /// Leaves what came of it, and closes the events.
    pub(super) fn finish(self, came: Result<(), Fault>) {
        *self.ticket.state() = State::Over(Some(came));
    }

    fn pass_on(&mut self, deltas: Vec<Delta>) -> Result<(), Fault> {
        self.has_stopped |= deltas.iter().any(|it| matches!(it, Delta::Stop(_)));
        if !deltas.is_empty() {
            self.told += deltas.iter().map(length_of).sum::<usize>();
            self.untold = 0;
        }
        self.tell(Event::Heard(deltas))
    }

    /// Waits until this answer may be large, or its caller has left.
    fn become_large(&mut self) -> Result<(), Fault> {
        let place = match self.large.try_take() {
            Some(place) => place,
            None => {
                let cancel = self.arm_too()?;
                self.note(Event::Crowded)?;
                self.large.take(&cancel).ok_or(Fault::Cancelled)?
            }
        };
        self.is_large = true;
        self.tell(Event::Large(place))
    }

    /// What cuts this call short cuts that, too.
    fn arm_too(&self) -> Result<Cancel, Fault> {
        let (canceller, cancel) = Cancel::pair();
        let mut state = self.ticket.state();
        let State::Running(place, _) = &mut *state else { return Err(Fault::Cancelled) };
        let before = place.take();
        *place = Some(Box::new(move || {
            canceller.cancel();
            if let Some(cut) = before {
                cut();
            }
        }));
        Ok(cancel)
    }

    fn note(&self, step: Event) -> Result<(), Fault> {
        match &mut *self.ticket.state() {
            State::Running(_, place) => {
                *place = Some((step, Instant::now()));
                Ok(())
            }
            _ => Err(Fault::Cancelled),
        }
    }

    fn tell(&self, event: Event) -> Result<(), Fault> {
        self.events.send(event).map_err(|_| Fault::Cancelled)
    }
}

/// Bytes that a delta holds.
fn length_of(delta: &Delta) -> usize {
    match delta {
        Delta::Text(it) | Delta::Thinking(it) | Delta::Signature(it) | Delta::Redacted(it) => {
            it.len()
        }
        Delta::ToolCall(it) => it.arguments.len(),
        Delta::Anew(_) | Delta::Usage(_) | Delta::Stop(_) | Delta::Mark(_) => 0,
    }
}
