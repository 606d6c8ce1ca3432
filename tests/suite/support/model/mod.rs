//! A model for tests: a server on 127.0.0.1 that speaks all four protocols for
//! real over sockets, plays a script, and holds every request against its
//! protocol. What it finds wrong fails the test when the server is dropped.

mod anthropic;
mod asked;
mod chat;
mod check;
mod dialect;
mod google;
mod responses;
mod script;
mod serve;
mod tests;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(crate) use asked::Asked;
pub(crate) use dialect::Dialect;
pub(crate) use google::{end as google_end, piece as google_piece, signature as google_signature};
pub(crate) use responses::{call_item, message_item, reasoning_item};
pub(crate) use script::{
    Answer, Part, Said, Stop, calls, chunk, runs, says, says_and_calls, says_in,
};

/// The key that the server takes. It must not be seen anywhere else.
pub(crate) const KEY: &str = "test-key-9d1f-5a07-never-told";

/// How long the server or a test waits for the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server; it ends with the value.
pub(crate) struct ModelServer {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// Where answers wait until the test lets them go on.
#[derive(Clone)]
pub(crate) struct Gate {
    number: usize,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Rings whenever the state has changed.
    bell: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Answer>,
    decide: Option<Decide>,
    asked: Vec<Asked>,
    faults: Vec<String>,
    in_flight: usize,
    most_in_flight: usize,
    gates: Vec<Door>,
    connections: BTreeMap<usize, Arc<TcpStream>>,
    gone: Vec<usize>,
    connected: usize,
    threads: Vec<JoinHandle<()>>,
    stops: bool,
}

type Decide = Box<dyn FnMut(&Asked) -> Answer + Send>;

#[derive(Default)]
struct Door {
    /// How many may still pass.
    permits: usize,
    waiting: usize,
}

impl ModelServer {
    /// A server that has no answer yet.
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared { state: Mutex::default(), bell: Condvar::new() });
        let accepting = shared.clone();
        let acceptor = thread::spawn(move || accepting.accept(&listener));
        Self { port, shared, acceptor: Some(acceptor) }
    }

    /// A server that gives these answers, in this order.
    pub(crate) fn playing(answers: impl IntoIterator<Item = Answer>) -> Self {
        let server = Self::new();
        server.play(answers);
        server
    }

    /// A server whose answer hangs on the request.
    pub(crate) fn answering(decide: impl FnMut(&Asked) -> Answer + Send + 'static) -> Self {
        let server = Self::new();
        server.answer_by(decide);
        server
    }

    /// Adds answers to the queue.
    pub(crate) fn play(&self, answers: impl IntoIterator<Item = Answer>) {
        self.shared.state().queue.extend(answers);
    }

    /// What is answered once the queue is empty.
    pub(crate) fn answer_by(&self, decide: impl FnMut(&Asked) -> Answer + Send + 'static) {
        self.shared.state().decide = Some(Box::new(decide));
    }

    /// A gate that is shut.
    pub(crate) fn gate(&self) -> Gate {
        let mut state = self.shared.state();
        state.gates.push(Door::default());
        Gate { number: state.gates.len() - 1, shared: self.shared.clone() }
    }

    /// Its port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// All requests so far, in the order of their arrival.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.state().asked.clone()
    }

    /// The newest request.
    #[track_caller]
    pub(crate) fn last(&self) -> Asked {
        self.shared.state().asked.last().cloned().expect("a request")
    }

    /// Requests being answered now.
    pub(crate) fn in_flight(&self) -> usize {
        self.shared.state().in_flight
    }

    /// The most that have been answered at once.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.shared.state().most_in_flight
    }

    /// Connections that have been made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.state().connected
    }

    /// Waits until so many requests have come in all.
    #[track_caller]
    pub(crate) fn wait_asked(&self, count: usize) {
        let what = format!("{count} requests");
        self.shared.wait(&what, |it| it.asked.len() >= count);
    }

    /// Waits until exactly so many are being answered.
    #[track_caller]
    pub(crate) fn wait_in_flight(&self, count: usize) {
        let what = format!("{count} requests in flight");
        self.shared.wait(&what, |it| it.in_flight == count);
    }

    /// What was wrong with the requests so far; forgotten by it.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().faults)
    }

    /// Fails if a request broke the protocol.
    #[track_caller]
    pub(crate) fn check(&self) {
        let faults = self.take_violations();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.state().stops = true;
        self.shared.bell.notify_all();
        // Wakes the accept loop.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let connections: Vec<_> = self.shared.state().connections.values().cloned().collect();
        for connection in connections {
            let _ = connection.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut self.shared.state().threads);
        for thread in threads {
            let _ = thread.join();
        }
        if !thread::panicking() {
            self.check();
        }
    }
}

impl Gate {
    /// Lets all pass, from now on.
    pub(crate) fn open(&self) {
        self.permit(usize::MAX);
    }

    /// Lets one more pass.
    pub(crate) fn let_one(&self) {
        self.permit(1);
    }

    /// Waits until so many wait at it.
    #[track_caller]
    pub(crate) fn wait_held(&self, count: usize) {
        let what = format!("{count} wait at the gate");
        self.shared.wait(&what, |it| it.gates[self.number].waiting == count);
    }

    fn permit(&self, count: usize) {
        let mut state = self.shared.state();
        let gate = &mut state.gates[self.number];
        gate.permits = gate.permits.saturating_add(count);
        self.shared.bell.notify_all();
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate({})", self.number)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn wait(&self, what: &str, done: impl Fn(&State) -> bool) {
        let state = self.state();
        let (state, waited) = self
            .bell
            .wait_timeout_while(state, PATIENCE, |it| !done(it))
            .unwrap_or_else(PoisonError::into_inner);
        let seen = (state.asked.len(), state.in_flight, state.queue.len());
        let faults = state.faults.join("\n");
        drop(state);
        assert!(
            !waited.timed_out(),
            "waited in vain until {what}; asked, in flight, left to play: {seen:?}\n{faults}"
        );
    }
}
