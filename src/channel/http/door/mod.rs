//! The front door: the only thing that strangers touch. It accepts
//! connections, bounds their number, their bytes and their time, refuses what
//! is malformed or not allowed, and joins only whole requests to the server
//! behind it, which must never meet a client unread.
//!
//! Owns: the listeners, a thread a connection, one for all who find no room.
//! Refuses: to grow.

mod body;
mod chunks;
mod connection;
mod guard;
mod head;
mod places;
mod refused;
mod stream;
mod turns;

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, select};

pub(super) use guard::Guard;
pub(super) use head::Head;
pub(super) use stream::Stream;

use super::answer::Answer;
use crate::error::{During, Kind, Result};
use crate::worker::{Cancel, Canceller, Crew, Worker};
use connection::Rules;
use places::Places;
use refused::Refusal;
use turns::Turns;

/// How it begins what it tells whoever it has no place for; nothing was begun
/// then, and more are let in once some have left.
pub const FULL: &str = "the gateway serves all the callers it can";

/// Connections beyond the limit that may exist for the moment in which those
/// that gave way to them end.
const LEAVING: usize = 32;

/// What is being done when a listener's second handle fails.
const KEEP: &str = "keep a second handle of the listener";

/// The bounds of the door. [`Limits::default`] is what the API promises.
#[derive(Clone, Debug)]
pub(in crate::channel::http) struct Limits {
    /// Connections by TCP at a time.
    pub(in crate::channel::http) tcp_connections: usize,
    /// Connections by `api.sock` at a time.
    pub(in crate::channel::http) unix_connections: usize,
    /// Bytes of a request's head.
    pub(in crate::channel::http) head_bytes: usize,
    /// For the whole head.
    pub(in crate::channel::http) head_time: Duration,
    /// Bytes of a body.
    pub(in crate::channel::http) body_bytes: u64,
    /// Bytes of a body that are kept in memory.
    pub(in crate::channel::http) memory_bytes: usize,
    /// Large bodies that are worked on at a time, and how long another waits.
    pub(in crate::channel::http) large_bodies: usize,
    /// See [`Limits::large_bodies`].
    pub(in crate::channel::http) large_wait: Duration,
    /// Without a byte of the body.
    pub(in crate::channel::http) body_pause: Duration,
    /// For the whole body.
    pub(in crate::channel::http) body_time: Duration,
    /// Without a byte of the answer being taken.
    pub(in crate::channel::http) write_pause: Duration,
    /// For a client to go after its answer, or after it was refused.
    pub(in crate::channel::http) linger: Duration,
    /// Before the next try after accepting failed.
    pub(in crate::channel::http) accept_pause: Duration,
    /// For what runs when the door closes.
    pub(in crate::channel::http) drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tcp_connections: 192,
            unix_connections: 64,
            head_bytes: 16 * 1024,
            head_time: Duration::from_secs(10),
            body_bytes: 32 * 1024 * 1024,
            memory_bytes: 64 * 1024,
            large_bodies: 2,
            large_wait: Duration::from_secs(30),
            body_pause: Duration::from_secs(30),
            body_time: Duration::from_secs(300),
            write_pause: Duration::from_secs(30),
            linger: Duration::from_secs(1),
            accept_pause: Duration::from_millis(100),
            drain: Duration::from_secs(5),
        }
    }
}

/// What stands behind the door.
pub(super) trait Behind: Send + Sync {
    /// A new connection to the server that gets plain requests.
    fn connect(&self) -> io::Result<UnixStream>;

    /// What tells that server that a request came through the door.
    fn password(&self) -> String;

    /// Whether the request asks to change to a protocol that is spoken here;
    /// any other `Upgrade` is ignored, as HTTP allows.
    fn is_upgrade(&self, head: &Head) -> bool;

    /// Serves such a request to its end, or says why not.
    fn upgrade(&self, head: &Head, stream: Upgraded) -> Result<(), Answer>;
}

/// A connection that is handed over to another protocol.
pub(super) struct Upgraded {
    /// The connection, with the door's deadline on writes and none on reads.
    pub(super) client: Arc<Stream>,
    /// Bytes that came with the head and belong to the new protocol.
    pub(super) early: Vec<u8>,
}

/// Why a connection ends without having been served.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It is told why.
    Refused(Answer),
    /// There is nobody to tell.
    Gone,
}

impl From<Answer> for End {
    fn from(answer: Answer) -> Self {
        Self::Refused(answer)
    }
}

/// The open door; dropping it closes it, waits for what runs, and ends what
/// does not end by itself.
pub(super) struct Door {
    stop: Canceller,
    listeners: Vec<OwnedFd>,
    accepting: Vec<Worker>,
    inside: Vec<Arc<Places>>,
    all_gone: Receiver<Infallible>,
    drain: Duration,
    _refused: Worker, // Ends once nobody accepts any more.
    _crew: Arc<Crew>, // Dropped last: joins every connection.
}

impl Door {
    /// Opens the door on listeners that are bound already. Large bodies wait
    /// in `folder`, which must be the owner's alone.
    pub(super) fn start(
        tcp: Option<TcpListener>,
        unix: Option<UnixListener>,
        guard: Guard,
        limits: Limits,
        behind: Arc<dyn Behind>,
        folder: &Path,
    ) -> Result<Self> {
        let (stop, cancel) = Cancel::pair();
        let (inside, all_gone) = bounded(0);
        let (tcp_limit, unix_limit) = (limits.tcp_connections, limits.unix_connections);
        let crew = Arc::new(Crew::new("door", tcp_limit + unix_limit + LEAVING));
        let (refusal, _refused) = refused::start(limits.linger)?;
        let drain = limits.drain;
        let large = Turns::new(limits.large_bodies);
        let closing = cancel.clone();
        let rules = Rules { guard, limits, behind, folder: folder.into(), large, closing };
        let (listeners, accepting, places) = (Vec::new(), Vec::new(), Vec::new());
        let _crew = Arc::clone(&crew);
        let mut door =
            Self { stop, listeners, accepting, inside: places, all_gone, drain, _refused, _crew };
        // After the door, so that it goes before it when opening fails: the
        // door waits for all who can still let somebody in.
        let shared = Shared { rules: Arc::new(rules), crew, inside, refusal };
        if let Some(it) = tcp {
            let ender = it.try_clone().during(Kind::Internal, KEEP)?;
            let accept = move || it.accept().map(|(stream, _)| Stream::Tcp(stream));
            door.open("door-tcp", tcp_limit, ender.into(), accept, &shared, &cancel)?;
        }
        if let Some(it) = unix {
            let ender = it.try_clone().during(Kind::Internal, KEEP)?;
            let accept = move || it.accept().map(|(stream, _)| Stream::Unix(stream));
            door.open("door-unix", unix_limit, ender.into(), accept, &shared, &cancel)?;
        }
        Ok(door)
    }

    /// Accepts on one listener from now on.
    fn open(
        &mut self,
        name: &str,
        limit: usize,
        ender: OwnedFd,
        accept: impl Fn() -> io::Result<Stream> + Send + 'static,
        shared: &Shared,
        cancel: &Cancel,
    ) -> Result<()> {
        let places = Places::new(limit);
        let entrance = Entrance { places: Arc::clone(&places), shared: shared.clone() };
        let (cancel, pause) = (cancel.clone(), shared.rules.limits.accept_pause);
        self.inside.push(places);
        self.listeners.push(ender);
        self.accepting.push(Worker::spawn(name, move || {
            accept_all(&accept, &cancel, pause, |client| entrance.receive(client));
        })?);
        Ok(())
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.cancel();
        for listener in &self.listeners {
            // Wakes the thread that waits in `accept`.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
        self.accepting.clear();
        self.inside.iter().for_each(|it| it.close());
        select! {
            recv(self.all_gone) -> _ => {}
            recv(after(self.drain)) -> _ => log::warn!("calls that still run are cut off"),
        }
        self.inside.iter().for_each(|it| it.cut());
    }
}

/// What all connections of a door have in common.
#[derive(Clone)]
struct Shared {
    rules: Arc<Rules>,
    crew: Arc<Crew>,
    inside: Sender<Infallible>,
    refusal: Refusal,
}

/// Where a listener's connections come in.
struct Entrance {
    places: Arc<Places>,
    shared: Shared,
}

impl Entrance {
    /// Gives the connection a place and a thread, or 503.
    fn receive(&self, client: Stream) {
        let client = Arc::new(client);
        let Shared { rules, crew, inside, refusal } = &self.shared;
        let started = match self.places.enter(Arc::clone(&client), inside.clone()) {
            Some(place) => {
                let (client, rules) = (Arc::clone(&client), Arc::clone(rules));
                crew.spawn(move || connection::serve(&client, &place, &rules))
            }
            None => Ok(false),
        };
        if let Err(error) = &started {
            log::error!("a connection cannot be served: {error}");
        }
        if !matches!(started, Ok(true)) {
            refusal.refuse(client, self.places.is_closed());
        }
    }
}

/// Accepts until it is called off. Whatever goes wrong with one connection,
/// or with the supply of file descriptors, the next one gets its chance.
fn accept_all(
    accept: &dyn Fn() -> io::Result<Stream>,
    stop: &Cancel,
    pause: Duration,
    mut take: impl FnMut(Stream),
) {
    let mut failing = false;
    while !stop.is_cancelled() {
        match accept() {
            Ok(client) => {
                failing = false;
                take(client);
            }
            Err(error) if is_passing(&error) => {}
            Err(_) if stop.is_cancelled() => return,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    log::error!("connections cannot be accepted for now: {error}");
                }
                select! {
                    recv(stop.gone()) -> _ => return,
                    recv(after(pause)) -> _ => {}
                }
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

#[cfg(test)]
mod tests;
