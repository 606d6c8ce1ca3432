//! Where all agents' sockets are listened on, by one thread: it waits for all
//! of them at once and gives each connection a thread of its own. It refuses
//! to favour anybody: an agent that is at its bound is not looked at until a
//! place is free, and one that floods gets one connection a round, as all do.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::error::{During, Error, Kind, Result};
use crate::worker::{Crew, Worker};

/// Connections an agent may have; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;

/// How long a socket is left alone when its connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// What serves a connection, on the connection's thread.
pub(super) type Serve = dyn Fn(UnixStream) + Send + Sync;

/// The owner of the thread; it ends with the last socket that it listens on.
pub struct Reception {
    /// Taken to close it, which ends the thread.
    words: Option<Sender<Word>>,
    bell: Arc<Bell>,
    _thread: Worker,
}

/// A socket that is listened on; dropping it closes the socket and waits for
/// its connections, which whoever drops it has told to end.
pub(super) struct Place {
    reception: Arc<Reception>,
    key: RawFd,
}

enum Word {
    Add(Entrance),
    /// Hands it over, for others to wait for its connections.
    Remove(RawFd, Sender<Entrance>),
}

impl Reception {
    /// Starts the thread, which has nothing to listen on yet.
    pub fn open() -> Result<Arc<Self>> {
        let bell = Arc::new(Bell::new()?);
        let (words, heard) = bounded(1);
        let doorkeeper =
            Doorkeeper { entrances: Vec::new(), words: heard, bell: Arc::clone(&bell) };
        let thread = Worker::spawn("sock", move || doorkeeper.run())?;
        Ok(Arc::new(Self { words: Some(words), bell, _thread: thread }))
    }

    /// Listens on an agent's socket as well.
    pub(super) fn add(
        self: &Arc<Self>,
        agent: &str,
        listener: UnixListener,
        serve: Arc<Serve>,
    ) -> Result<Place> {
        let what = || format!("listen on the socket of agent {agent}");
        listener.set_nonblocking(true).during(Kind::Internal, what())?;
        let key = listener.as_raw_fd();
        if !self.tell(Word::Add(Entrance::new(agent, listener, serve, &self.bell))) {
            return Err(Error::new(Kind::Internal, "the thread `sock` has ended").within(what()));
        }
        Ok(Place { reception: Arc::clone(self), key })
    }

    /// Whether the thread will hear it.
    fn tell(&self, word: Word) -> bool {
        let is_told = self.words.as_ref().is_some_and(|it| it.send(word).is_ok());
        self.bell.ring();
        is_told
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        self.words.take();
        self.bell.ring();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (given, back) = bounded(1);
        if self.reception.tell(Word::Remove(self.key, given)) {
            // The thread blocks nowhere but for the bell, so this comes at
            // once; what comes is dropped here, which waits.
            let _ = back.recv();
        }
    }
}

/// What the thread has; nobody else touches it.
struct Doorkeeper {
    entrances: Vec<Entrance>,
    words: Receiver<Word>,
    bell: Arc<Bell>,
}

impl Doorkeeper {
    fn run(mut self) {
        loop {
            let patience = match self.wait() {
                Ok(ready) => {
                    ready.into_iter().for_each(|at| self.entrances[at].admit_one());
                    Duration::ZERO
                }
                Err(error) => {
                    log::warn!("wait for connections of agents: {error}");
                    PAUSE
                }
            };
            if !self.heed(patience) {
                return;
            }
        }
    }

    /// Waits for a connection or the bell; which entrances have a connection.
    fn wait(&self) -> io::Result<Vec<usize>> {
        let now = Instant::now();
        let of_use: Vec<usize> =
            (0..self.entrances.len()).filter(|it| self.entrances[*it].has_room(now)).collect();
        let mut fds = vec![PollFd::new(&self.bell.0, PollFlags::IN)];
        fds.extend(
            of_use.iter().map(|it| PollFd::new(&self.entrances[*it].listener, PollFlags::IN)),
        );
        let longest = self.entrances.iter().filter_map(|it| it.pause_left(now)).min();
        let longest = longest.and_then(|it| Timespec::try_from(it).ok());
        match poll(&mut fds, longest.as_ref()) {
            Err(Errno::INTR) => return Ok(Vec::new()),
            other => other?,
        };
        if !fds[0].revents().is_empty() {
            self.bell.hush();
        }
        let ready = of_use.into_iter().zip(&fds[1..]);
        Ok(ready.filter(|(_, fd)| !fd.revents().is_empty()).map(|(at, _)| at).collect())
    }

    /// Does what it is told, until nothing has been said for so long; `false`
    /// if nobody is there any more to say something.
    fn heed(&mut self, patience: Duration) -> bool {
        loop {
            match self.next_word(patience) {
                Ok(Word::Add(entrance)) => self.entrances.push(entrance),
                Ok(Word::Remove(key, back)) => self.hand_over(key, &back),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Without patience it only looks: waiting for no time yields the processor
    /// again and again, beside the thread that was just started.
    fn next_word(&self, patience: Duration) -> Result<Word, RecvTimeoutError> {
        if !patience.is_zero() {
            return self.words.recv_timeout(patience);
        }
        self.words.try_recv().map_err(|it| match it {
            TryRecvError::Empty => RecvTimeoutError::Timeout,
            TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    fn hand_over(&mut self, key: RawFd, back: &Sender<Entrance>) {
        let at = self.entrances.iter().position(|it| it.listener.as_raw_fd() == key);
        if let Some(at) = at {
            // Who asked for it waits for it.
            let _ = back.send(self.entrances.swap_remove(at));
        }
    }
}

/// An agent's socket and its connections.
struct Entrance {
    agent: String,
    listener: UnixListener,
    serve: Arc<Serve>,
    seats: Arc<Seats>,
    paused_until: Option<Instant>,
    crew: Crew,
}

impl Entrance {
    fn new(agent: &str, listener: UnixListener, serve: Arc<Serve>, bell: &Arc<Bell>) -> Self {
        let seats = Seats { taken: AtomicUsize::new(0), bell: Arc::clone(bell) };
        Self {
            agent: agent.to_owned(),
            listener,
            serve,
            seats: Arc::new(seats),
            paused_until: None,
            // A seat is free a moment before its thread has ended.
            crew: Crew::new(format!("conn-{agent}"), 2 * MAX_CONNECTIONS),
        }
    }

    fn has_room(&self, now: Instant) -> bool {
        self.pause_left(now).is_none() && !self.seats.are_taken()
    }

    fn pause_left(&self, now: Instant) -> Option<Duration> {
        self.paused_until?.checked_duration_since(now).filter(|it| !it.is_zero())
    }

    fn admit_one(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) => self.seat(stream),
            // Who came has left again.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {
            }
            Err(error) => {
                log::warn!("accept on the socket of agent {}: {error}", self.agent);
                // Out of descriptors: others must end theirs first.
                self.paused_until = Some(Instant::now() + PAUSE);
            }
        }
    }

    fn seat(&self, stream: UnixStream) {
        let seat = Seats::take(&self.seats);
        let serve = Arc::clone(&self.serve);
        let spawned = self.crew.spawn(move || {
            let _seat = seat;
            serve(stream);
        });
        if let Err(error) = spawned {
            log::warn!("{error}");
        }
    }
}

/// How many connections an agent has. Only the thread takes seats, and it
/// looks first; who gives back the one that was missed rings.
struct Seats {
    taken: AtomicUsize,
    bell: Arc<Bell>,
}

struct Seat(Arc<Seats>);

impl Seats {
    fn are_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst) >= MAX_CONNECTIONS
    }

    fn take(this: &Arc<Self>) -> Seat {
        this.taken.fetch_add(1, Ordering::SeqCst);
        Seat(Arc::clone(this))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.0.taken.fetch_sub(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
            self.0.bell.ring();
        }
    }
}

/// What ends the thread's wait.
struct Bell(OwnedFd);

impl Bell {
    fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let made = eventfd(0, flags).map_err(io::Error::from);
        Ok(Self(made.during(Kind::Internal, "make what wakes the agents' listener")?))
    }

    /// It goes on ringing until it is heard.
    fn ring(&self) {
        // A full one rings already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn hush(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests;
