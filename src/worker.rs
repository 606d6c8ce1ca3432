//! Threads and how they end. The only place that starts one: each has a name,
//! an owner that joins it on drop, and a signal that ends it (a closed
//! channel, a shut socket, a cancelled [`Cancel`]).

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{self, PipeReader, PipeWriter};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle, Scope, ScopedJoinHandle};
use std::time::Duration;

use crossbeam_channel::{
    Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, never, unbounded,
};

use crate::error::{During, Kind, Result};

/// Stack of a thread of which many can exist, in bytes. Unoptimised code
/// needs more.
pub const SMALL_STACK: usize = if cfg!(debug_assertions) { 1024 * 1024 } else { 256 * 1024 };

/// A named thread; dropping it waits for its end. Whoever owns a worker drops
/// what ends the thread first (field order does it).
#[derive(Debug)]
pub struct Worker {
    handle: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread with a small stack.
    pub fn spawn(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Result<Self> {
        let name = name.into();
        let what = format!("start the thread `{name}`");
        let builder = thread::Builder::new().name(name).stack_size(SMALL_STACK);
        let handle = builder.spawn(body).during(Kind::Internal, what)?;
        Ok(Self { handle: Some(handle) })
    }

    /// Whether the thread has ended, so that dropping the worker takes no time.
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        // The last owner of a worker can be the thread itself; it cannot wait
        // for its own end.
        if handle.thread().id() == thread::current().id() {
            return;
        }
        if handle.join().is_err() {
            log::error!("a thread ended by a panic");
        }
    }
}

/// Starts a named thread that the scope joins.
pub fn scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(SMALL_STACK)
        .spawn_scoped(scope, body)
        .during(Kind::Internal, format!("start the thread `{name}`"))
}

/// A block that is neither small for the allocator nor a mapping of its own.
const BLOCK: usize = 96 * 1024;

/// For a thread that has held much and ends: freeing such a block makes glibc put
/// together what was freed in small pieces, and give the end of it to the system.
pub fn give_memory_back() {
    drop(black_box(Vec::<u8>::with_capacity(BLOCK)));
}

/// A bounded set of jobs, such as one a connection, and the workers that do them.
/// A few of those that are done wait for more to do, since starting a thread takes
/// longer than much of what they are for. Dropping it waits for all of them.
#[derive(Debug)]
pub struct Crew {
    name: String,
    limit: usize,
    running: Arc<AtomicUsize>,
    inbox: Receiver<Job>,
    roll: Arc<Mutex<Roll>>,
}

/// Workers of a crew that wait for more to do, at most.
const MOST_IDLE: usize = 4;

/// How long one waits.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// The workers of a crew.
#[derive(Debug)]
struct Roll {
    /// `None` once the crew is dismissed: that ends those that wait.
    jobs: Option<Sender<Job>>,
    /// Those that wait and have nothing to do yet.
    idle: usize,
    workers: Vec<Worker>,
}

impl Crew {
    /// An empty crew for at most `limit` jobs at a time; its workers are named
    /// `NAME-1`, `NAME-2`, ….
    pub fn new(name: impl Into<String>, limit: usize) -> Self {
        let (jobs, inbox) = unbounded();
        let roll = Roll { jobs: Some(jobs), idle: 0, workers: Vec::new() };
        let running = Arc::default();
        Self { name: name.into(), limit, running, inbox, roll: Arc::new(Mutex::new(roll)) }
    }

    /// Gives this to a worker that waits, or starts one; `false` if the crew is
    /// full, and nothing was begun.
    pub fn spawn(&self, body: impl FnOnce() + Send + 'static) -> Result<bool> {
        let Some(running) = Running::begin(&self.running, self.limit) else { return Ok(false) };
        let job: Job = Box::new(move || {
            body();
            drop(running);
        });
        let mut roll = locked(&self.roll);
        if roll.idle > 0
            && let Some(jobs) = &roll.jobs
        {
            // Both ends are ours, so that it is open.
            let _ = jobs.send(job);
            roll.idle -= 1;
            return Ok(true);
        }
        let ended = roll.take_ended();
        let name = format!("{}-{}", self.name, roll.workers.len() + 1);
        // Those that are done need the roll, and starting one takes its time.
        drop(roll);
        drop(ended);
        let (inbox, shared) = (self.inbox.clone(), Arc::clone(&self.roll));
        let worker = Worker::spawn(name, move || serve(job, &inbox, &shared))?;
        locked(&self.roll).workers.push(worker);
        Ok(true)
    }
}

/// A job that runs or is about to; counted until this is dropped.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn begin(count: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        let running = Self(Arc::clone(count));
        let before = count.fetch_add(1, Ordering::SeqCst);
        (before < limit).then_some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let mut roll = locked(&self.roll);
        roll.jobs = None;
        let workers = mem::take(&mut roll.workers);
        // Who ends looks at the roll.
        drop(roll);
        drop(workers);
    }
}

/// A worker's life: one job after another.
fn serve(first: Job, inbox: &Receiver<Job>, roll: &Mutex<Roll>) {
    first();
    while let Some(job) = next(inbox, roll) {
        job();
    }
    // The stack of a thread stays until somebody has waited for its end.
    let ended = locked(roll).take_ended();
    drop(ended);
}

fn next(inbox: &Receiver<Job>, roll: &Mutex<Roll>) -> Option<Job> {
    if !locked(roll).waits() {
        return None;
    }
    match inbox.recv_timeout(IDLE) {
        Ok(job) => Some(job),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            let mut roll = locked(roll);
            // A job that was given in this moment is one's own.
            let job = inbox.try_recv().ok();
            roll.idle -= usize::from(job.is_none());
            job
        }
    }
}

impl Roll {
    /// Counts one more that waits, if it may.
    fn waits(&mut self) -> bool {
        let may = self.jobs.is_some() && self.idle < MOST_IDLE;
        self.idle += usize::from(may);
        may
    }

    fn take_ended(&mut self) -> Vec<Worker> {
        self.workers.extract_if(.., |it| it.is_finished()).collect()
    }
}

fn locked(roll: &Mutex<Roll>) -> MutexGuard<'_, Roll> {
    roll.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that can be called off, seen from the side that obeys. Clones
/// watch the same thing; `select!` can wait on [`Cancel::gone`], `poll` on
/// [`Cancel::hang_up`].
#[derive(Clone, Debug)]
pub struct Cancel {
    gone: Receiver<Infallible>,
    /// `None` if nobody can call it off.
    alive: Option<Weak<Alive>>,
}

type Alive = Mutex<Option<Living>>;

/// What is dropped to call it off.
#[derive(Debug)]
struct Living {
    _alive: Sender<Infallible>,
    /// Made for the first who waits by `poll`.
    pipe: Option<(Arc<PipeReader>, PipeWriter)>,
}

/// The other end of a [`Cancel`]: cancels when told to, and when the last
/// clone is dropped.
#[derive(Clone, Debug)]
pub struct Canceller {
    alive: Arc<Alive>,
}

impl Cancel {
    /// A thing that can be called off, and the means to do it.
    pub fn pair() -> (Canceller, Self) {
        let (alive, gone) = bounded(0);
        let alive = Arc::new(Mutex::new(Some(Living { _alive: alive, pipe: None })));
        let cancel = Self { gone, alive: Some(Arc::downgrade(&alive)) };
        (Canceller { alive }, cancel)
    }

    /// A thing that nobody can call off.
    pub fn never() -> Self {
        Self { gone: never(), alive: None }
    }

    /// Calls it off from this side, for whoever ends everything that runs.
    /// One that nobody can call off stays as it is.
    pub fn call_off(&self) {
        if let Some(alive) = self.alive.as_ref().and_then(Weak::upgrade) {
            alive.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Whether it has been called off.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.gone.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Becomes ready (disconnected) once it is called off; never yields a value.
    pub fn gone(&self) -> &Receiver<Infallible> {
        &self.gone
    }

    /// A descriptor that hangs up once it is called off, the same for all who
    /// ask; `None` if nobody can call it off.
    pub fn hang_up(&self) -> io::Result<Option<Arc<PipeReader>>> {
        let Some(alive) = &self.alive else { return Ok(None) };
        if let Some(alive) = alive.upgrade()
            && let Some(living) = &mut *alive.lock().unwrap_or_else(PoisonError::into_inner)
        {
            return living.hang_up().map(Some);
        }
        // Called off already: a pipe without a writer has hung up.
        Ok(Some(Arc::new(io::pipe()?.0)))
    }
}

impl Living {
    fn hang_up(&mut self) -> io::Result<Arc<PipeReader>> {
        if let Some((reader, _)) = &self.pipe {
            return Ok(Arc::clone(reader));
        }
        let (reader, writer) = io::pipe()?;
        let reader = Arc::new(reader);
        self.pipe = Some((Arc::clone(&reader), writer));
        Ok(reader)
    }
}

impl Canceller {
    /// Calls it off; a second time changes nothing.
    pub fn cancel(&self) {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn dropping_a_worker_waits_for_its_end() {
        let (done, seen) = mpsc::channel();
        drop(Worker::spawn("test", move || {
            let _ = done.send(1);
        }));
        assert_eq!(seen.try_recv(), Ok(1));
    }

    #[test]
    fn a_full_crew_starts_nothing_more() -> Result<()> {
        let (release, wait) = bounded::<Infallible>(0);
        let crew = Crew::new("test", 1);
        assert!(crew.spawn(move || {
            let _ = wait.recv();
        })?);
        assert!(!crew.spawn(|| ())?);
        drop(release);
        Ok(())
    }

    /// Runs in the crew; the thread that did.
    fn thread_of(crew: &Crew) -> Result<Option<thread::ThreadId>> {
        let (tell, told) = bounded(1);
        assert!(crew.spawn(move || {
            let _ = tell.send(thread::current().id());
        })?);
        Ok(told.recv().ok())
    }

    /// Waits until so many have nothing to do.
    fn until_idle(crew: &Crew, count: usize) {
        while locked(&crew.roll).idle != count {
            thread::yield_now();
        }
    }

    #[test]
    fn who_is_done_takes_the_next() -> Result<()> {
        let crew = Crew::new("test", 1);
        let first = thread_of(&crew)?;
        until_idle(&crew, 1);
        assert_eq!(thread_of(&crew)?, first);
        Ok(())
    }

    #[test]
    fn few_wait_for_more() -> Result<()> {
        let crew = Crew::new("test", 2 * MOST_IDLE);
        let (release, wait) = bounded::<Infallible>(0);
        for _ in 0..2 * MOST_IDLE {
            let wait = wait.clone();
            assert!(crew.spawn(move || {
                let _ = wait.recv();
            })?);
        }
        drop(release);
        until_idle(&crew, MOST_IDLE);
        while locked(&crew.roll).workers.iter().filter(|it| !it.is_finished()).count() > MOST_IDLE {
            thread::yield_now();
        }
        Ok(())
    }

    /// Whether it has hung up, for somebody who waits by `poll`.
    #[track_caller]
    fn check_hung_up(cancel: &Cancel, want: bool) {
        let Ok(Some(pipe)) = cancel.hang_up() else { panic!("no pipe") };
        let mut fds = [PollFd::new(&pipe, PollFlags::empty())];
        assert_eq!(poll(&mut fds, Some(&Timespec::default())), Ok(usize::from(want)));
    }

    #[test]
    fn a_cancel_hangs_up_once_it_is_called_off() {
        let (canceller, cancel) = Cancel::pair();
        let early = cancel.clone();
        check_hung_up(&early, false);
        check_hung_up(&cancel, false);
        canceller.cancel();
        check_hung_up(&early, true);
        check_hung_up(&cancel, true);
        drop(canceller);
        check_hung_up(&cancel, true);
        let (dropped, cancel) = Cancel::pair();
        drop(dropped);
        check_hung_up(&cancel, true);
        assert!(Cancel::never().hang_up().is_ok_and(|it| it.is_none()));
    }

    #[test]
    fn a_cancel_is_seen_by_every_clone() {
        let (canceller, cancel) = Cancel::pair();
        let clone = cancel.clone();
        assert!(!clone.is_cancelled());
        canceller.cancel();
        assert!(cancel.is_cancelled() && clone.is_cancelled());
        assert!(!Cancel::never().is_cancelled());
    }
}
