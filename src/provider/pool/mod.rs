//! The threads of one provider. Calls wait in one queue, first come first
//! served, and are never refused; each worker takes one at a time and owns its
//! end of the connection. The calling thread keeps the time and passes the
//! deltas on; when it leaves, for whatever reason, its call is cut.

mod exchange;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, at, select, unbounded};

pub(super) use exchange::{Carrier, Exchange};
pub(super) use watch::Patience;

use super::large::LargeAnswers;
use super::{Decoder, Delta, Fault, Listener, Wire};
use crate::worker::{Cancel, Worker};
use exchange::{Event, Job, Ticket, Work};
use watch::{Expired, Limit, Watch};

/// A worker without work leaves after this.
const IDLE: Duration = Duration::from_secs(60);

/// Makes the end of a connection that a new worker owns.
pub(super) type MakeCarrier = Box<dyn Fn() -> Box<dyn Carrier> + Send + Sync>;

/// How much a provider has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The provider.
    pub provider: String,
    /// Calls at a time; `None` is no limit.
    pub limit: Option<NonZeroUsize>,
    /// Calls that run.
    pub running: usize,
    /// Calls that wait for a worker.
    pub queued: usize,
    /// Threads.
    pub workers: usize,
    /// Calls that were begun since the gateway started.
    pub calls: u64,
    /// How long they waited, all together.
    pub waited: Duration,
    /// How long one of them waited at most.
    pub longest_wait: Duration,
    /// How long the one that waits longest now has waited; 0 if none does.
    pub oldest_wait: Duration,
}

/// The threads of one provider.
pub(super) struct Pool {
    // Dropped first: closing it is what ends the workers.
    jobs: Sender<(Job, Instant)>,
    inbox: Receiver<(Job, Instant)>,
    shared: Arc<Shared>,
    limit: Option<NonZeroUsize>,
    workers: Roster, // Dropped last: joins.
}

/// The threads of a pool; dropping it waits for them.
#[derive(Default)]
struct Roster(Arc<Mutex<Vec<Worker>>>);

/// What all workers of a pool see.
struct Shared {
    provider: String,
    large: LargeAnswers,
    make_carrier: MakeCarrier,
    books: Mutex<Books>,
}

/// Who does what. A worker is idle or runs a call; a call that is taken from
/// the queue is counted as waiting until its worker says that it is not.
#[derive(Default)]
struct Books {
    /// The numbers of the workers.
    numbers: BTreeSet<usize>,
    idle: usize,
    running: usize,
    queued: usize,
    calls: u64,
    waited: Duration,
    longest_wait: Duration,
    /// How many of those that wait came when.
    arrivals: BTreeMap<Instant, usize>,
}

impl Pool {
    /// A pool without a thread: they come with the calls. What of its answers is
    /// large shares those places with other pools.
    pub(super) fn new(
        provider: &str,
        limit: Option<NonZeroUsize>,
        large: LargeAnswers,
        make_carrier: MakeCarrier,
    ) -> Self {
        let (jobs, inbox) = unbounded();
        let provider = provider.to_owned();
        let shared = Shared { provider, large, make_carrier, books: Mutex::default() };
        Self { jobs, inbox, shared: Arc::new(shared), limit, workers: Roster::default() }
    }

    /// One call: waits for a worker, then for the answer's end. Ends at once
    /// when it is called off.
    pub(super) fn call(
        &self,
        wire: Wire,
        decoder: Box<dyn Decoder>,
        patience: Patience,
        cancel: &Cancel,
        listener: &mut dyn Listener<Delta>,
    ) -> Result<(), Fault> {
        if cancel.is_cancelled() {
            return Err(Fault::Cancelled);
        }
        self.enter(wire, decoder)?.follow(patience, cancel, listener)
    }

    /// How much there is to do.
    pub(super) fn load(&self) -> Load {
        let books = self.shared.books();
        Load {
            provider: self.shared.provider.clone(),
            limit: self.limit,
            running: books.running,
            queued: books.queued,
            workers: books.numbers.len(),
            calls: books.calls,
            waited: books.waited,
            longest_wait: books.longest_wait,
            oldest_wait: books.oldest_wait(),
        }
    }

    /// Takes a place in the queue.
    fn enter(&self, wire: Wire, decoder: Box<dyn Decoder>) -> Result<Caller<'_>, Fault> {
        let (job, ticket, events) = Job::new(Work { wire, decoder });
        let since = Instant::now();
        let caller = Caller { pool: self, ticket, events, since };
        self.submit(job, since)?;
        Ok(caller)
    }

    fn submit(&self, job: Job, since: Instant) -> Result<(), Fault> {
        let hired = {
            let mut books = self.shared.books();
            books.arrive(since);
            // Both ends are ours, so that it is open.
            let _ = self.jobs.send((job, since));
            books.hire(self.limit)
        };
        hired.map_or(Ok(()), |number| self.start(number))
    }

    /// Starts a worker. Without one more, those that are there do the work.
    fn start(&self, number: usize) -> Result<(), Fault> {
        let seat = Seat { shared: Arc::clone(&self.shared), number, is_taken: true, runs: false };
        let inbox = self.inbox.clone();
        let name = format!("llm-{}-{number}", self.shared.provider);
        let workers = Arc::clone(&self.workers.0);
        let spawned = Worker::spawn(name, move || {
            seat.work(&inbox);
            join_ended(&workers);
        });
        match spawned {
            Ok(worker) => {
                join_ended(&self.workers.0);
                locked(&self.workers.0).push(worker);
            }
            Err(error) if self.shared.books().numbers.is_empty() => {
                return Err(Fault::Ours(error.to_string()));
            }
            Err(error) => log::warn!("{error}"),
        }
        Ok(())
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        let workers = mem::take(&mut *locked(&self.0));
        drop(workers);
    }
}

/// The stack of a thread stays in memory until somebody has waited for its end.
fn join_ended(workers: &Mutex<Vec<Worker>>) {
    let ended: Vec<Worker> = locked(workers).extract_if(.., |it| it.is_finished()).collect();
    drop(ended);
}

fn locked(workers: &Mutex<Vec<Worker>>) -> MutexGuard<'_, Vec<Worker>> {
    workers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken_off(&self) -> Fault {
        Fault::Ours(format!(
            "the call of the provider `{}` broke off without an answer",
            self.provider
        ))
    }
}

impl Books {
    fn arrive(&mut self, since: Instant) {
        self.queued += 1;
        *self.arrivals.entry(since).or_default() += 1;
    }

    /// A call that came then waits no longer.
    fn leave_queue(&mut self, since: Instant) {
        self.queued -= 1;
        match self.arrivals.get_mut(&since) {
            Some(1) | None => drop(self.arrivals.remove(&since)),
            Some(several) => *several -= 1,
        }
    }

    fn oldest_wait(&self) -> Duration {
        self.arrivals.first_key_value().map_or(Duration::ZERO, |it| it.0.elapsed())
    }

    /// The number of a worker that is to be started, if calls wait that nobody
    /// is free for; it counts as idle from now on.
    fn hire(&mut self, limit: Option<NonZeroUsize>) -> Option<usize> {
        let is_full = limit.is_some_and(|it| self.numbers.len() >= it.get());
        if self.queued <= self.idle || is_full {
            return None;
        }
        let number = (1..).find(|it| !self.numbers.contains(it))?;
        self.numbers.insert(number);
        self.idle += 1;
        Some(number)
    }
}

/// What a caller saw.
enum Next {
    Event(Event),
    Ended,
    Cancelled,
    Expired(Expired),
}

/// The calling side of a call. Dropping it calls the call off.
struct Caller<'a> {
    pool: &'a Pool,
    ticket: Arc<Ticket>,
    events: Receiver<Event>,
    /// When it took its place in the queue.
    since: Instant,
}

impl Caller<'_> {
    fn follow(
        &self,
        patience: Patience,
        cancel: &Cancel,
        listener: &mut dyn Listener<Delta>,
    ) -> Result<(), Fault> {
        let mut watch = Watch::new(patience, Instant::now());
        loop {
            let event = match self.next(&mut watch, cancel, listener) {
                Next::Event(event) => event,
                Next::Ended => return self.outcome(&watch),
                Next::Cancelled => return Err(Fault::Cancelled),
                Next::Expired(expired) => match self.expire(expired, &mut watch) {
                    Some(ended) => return ended,
                    None => continue,
                },
            };
            self.catch_up(&mut watch, |when| when);
            watch.saw(&event, Instant::now());
            match event {
                Event::Heard(deltas) => {
                    tell(deltas, cancel, listener)?;
                    watch.resume(Instant::now());
                }
                Event::Large(place) => listener.holds(place),
                _ => (),
            }
        }
    }

    /// What has come already, or else whatever comes first.
    fn next(&self, watch: &mut Watch, cancel: &Cancel, listener: &mut dyn Listener<Delta>) -> Next {
        loop {
            // What floods is called off like all else.
            if cancel.is_cancelled() {
                return Next::Cancelled;
            }
            if let Some(next) = self.ready() {
                return next;
            }
            let began = Instant::now();
            listener.waits();
            let now = Instant::now();
            watch.forgive(now - began);
            // A step of that time counts from its end.
            self.catch_up(watch, |when| if when < began { when } else { now });
            let due = watch.due();
            if let Some((_, expired)) = due.filter(|it| it.0 <= now) {
                // What has come in time has, however late we are.
                return self.ready().unwrap_or(Next::Expired(expired));
            }
            let look = now + watch.look();
            select! {
                recv(self.events) -> event => return event.map_or(Next::Ended, Next::Event),
                recv(cancel.gone()) -> _ => return Next::Cancelled,
                recv(at(due.map_or(look, |it| it.0.min(look)))) -> _ => {}
            }
        }
    }

    /// What has come already.
    fn ready(&self) -> Option<Next> {
        match self.events.try_recv() {
            Ok(event) => Some(Next::Event(event)),
            Err(TryRecvError::Disconnected) => Some(Next::Ended),
            Err(TryRecvError::Empty) => None,
        }
    }

    /// Sees the step that was noted and not told, and when.
    fn catch_up(&self, watch: &mut Watch, when: impl FnOnce(Instant) -> Instant) {
        if let Some((step, noted)) = self.ticket.step() {
            watch.saw(&step, when(noted));
        }
    }

    /// What a limit that has run out means: an end, or a cut that leaves the
    /// rest to the worker.
    fn expire(&self, expired: Expired, watch: &mut Watch) -> Option<Result<(), Fault>> {
        match expired {
            // The model may have stopped and only the end mark be missing.
            Expired::Late(limit @ Limit::Idle(_)) => {
                self.call_off();
                watch.cut_late(limit, Instant::now());
                None
            }
            Expired::Late(limit) => Some(Err(limit.fault(&self.pool.shared.provider))),
            Expired::Tail => Some(Ok(())),
            Expired::Refusal => {
                self.call_off();
                watch.cut(Instant::now());
                None
            }
        }
    }

    fn outcome(&self, watch: &Watch) -> Result<(), Fault> {
        if watch.is_whole() {
            return Ok(());
        }
        let came = self.ticket.outcome().unwrap_or_else(|| Err(self.pool.shared.broken_off()));
        let late = watch.late().map(|it| it.fault(&self.pool.shared.provider));
        came.map_err(|fault| late.unwrap_or(fault))
    }

    fn call_off(&self) {
        if self.ticket.call_off() {
            self.pool.shared.books().leave_queue(self.since);
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.call_off();
    }
}

fn tell(
    deltas: Vec<Delta>,
    cancel: &Cancel,
    listener: &mut dyn Listener<Delta>,
) -> Result<(), Fault> {
    for delta in deltas {
        // One piece of an answer may hold thousands.
        if cancel.is_cancelled() {
            return Err(Fault::Cancelled);
        }
        listener.hears(delta);
    }
    Ok(())
}

/// A worker's place in the books; dropping it strikes it out.
struct Seat {
    shared: Arc<Shared>,
    number: usize,
    is_taken: bool,
    runs: bool,
}

impl Seat {
    fn work(mut self, inbox: &Receiver<(Job, Instant)>) {
        let mut carrier = (self.shared.make_carrier)();
        loop {
            match inbox.recv_timeout(IDLE) {
                Ok((job, since)) => self.run(job, since, carrier.as_mut()),
                Err(RecvTimeoutError::Timeout) if !self.leave() => (),
                Err(_) => return,
            }
        }
    }

    fn run(&mut self, job: Job, since: Instant, carrier: &mut dyn Carrier) {
        let Some((wire, mut exchange)) = job.begin(&self.shared.large) else { return };
        self.begin(since);
        let came = exchange.begun().and_then(|()| carrier.carry(&wire, &mut exchange));
        // Before the caller sees the end, so that it finds this worker free.
        self.end();
        exchange.finish(came);
    }

    fn begin(&mut self, since: Instant) {
        let waited = since.elapsed();
        let mut books = self.shared.books();
        books.leave_queue(since);
        books.idle -= 1;
        books.running += 1;
        books.calls += 1;
        books.waited += waited;
        books.longest_wait = books.longest_wait.max(waited);
        self.runs = true;
    }

    fn end(&mut self) {
        let mut books = self.shared.books();
        books.running -= 1;
        books.idle += 1;
        self.runs = false;
    }

    /// Leaves, unless a call waits that nobody else is free for.
    fn leave(&mut self) -> bool {
        let mut books = self.shared.books();
        if books.queued >= books.idle {
            return false;
        }
        books.idle -= 1;
        books.numbers.remove(&self.number);
        self.is_taken = false;
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.is_taken {
            return;
        }
        let mut books = self.shared.books();
        books.numbers.remove(&self.number);
        if self.runs {
            books.running -= 1;
        } else {
            books.idle -= 1;
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
