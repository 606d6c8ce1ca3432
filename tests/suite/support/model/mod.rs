//! A model for tests: a server on 127.0.0.1 that speaks chat completions for
//! real over sockets, plays a script, and holds every request against the
//! protocol. What it finds wrong fails the test when the server is dropped.

mod check;
mod script;
mod tests;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

pub(crate) use script::{Answer, calls, chunk, runs, says, says_and_calls, says_in};
use script::{Framing, Step};
use wire::{Head, Writer, read_request};

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

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its head.
    pub(crate) head: Head,
    /// Its body.
    pub(crate) body: Value,
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

impl Asked {
    /// The texts of its messages, each after its role.
    pub(crate) fn said(&self) -> Vec<String> {
        let messages = self.body["messages"].as_array().cloned().unwrap_or_default();
        messages
            .iter()
            .map(|it| format!("{}: {}", it["role"].as_str().unwrap_or("?"), text_of(it)))
            .collect()
    }

    /// The text of the last user message.
    pub(crate) fn last_user(&self) -> String {
        self.last_of("user").unwrap_or_default()
    }

    /// The text of the last message, if it is a tool's result.
    pub(crate) fn last_tool(&self) -> Option<String> {
        let last = self.body["messages"].as_array()?.last()?;
        (last["role"] == "tool").then(|| text_of(last))
    }

    /// How many answers of the model it has.
    pub(crate) fn answers(&self) -> usize {
        self.said().iter().filter(|it| it.starts_with("assistant: ")).count()
    }

    fn last_of(&self, role: &str) -> Option<String> {
        let messages = self.body["messages"].as_array()?;
        messages.iter().rev().find(|it| it["role"] == role).map(text_of)
    }
}

/// The text of a message; calls as `<tool arguments>`.
fn text_of(message: &Value) -> String {
    let mut text = match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|it| it["text"].as_str()).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let word = |name: &str| function[name].as_str().unwrap_or("?").to_owned();
        text.push_str(&format!("<{} {}>", word("name"), word("arguments")));
    }
    text
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

/// How an answer has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    KeepAlive,
    Close,
    Reset,
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

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            let mut state = self.state();
            if state.stops {
                return;
            }
            let Ok(stream) = stream else { continue };
            let stream = Arc::new(stream);
            let number = state.connected;
            state.connected += 1;
            state.connections.insert(number, stream.clone());
            let shared = self.clone();
            state.threads.push(thread::spawn(move || shared.serve(number, stream)));
            self.bell.notify_all();
        }
    }

    /// One connection to its end.
    fn serve(self: &Arc<Self>, number: usize, stream: Arc<TcpStream>) {
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let mut watchers = Vec::new();
        let mut end = End::KeepAlive;
        {
            let mut reader = BufReader::new(&*stream);
            while end == End::KeepAlive {
                let (head, body) = match read_request(&mut reader) {
                    Ok(Some(it)) => it,
                    Ok(None) => break,
                    Err(what) => {
                        self.fault(&format!("a request does not read: {what}"));
                        break;
                    }
                };
                let wants_close = head.wants_close();
                let answer = self.take(head, &body);
                // A write that fails is a client that is gone.
                end = self.answer(number, &stream, &answer, &mut watchers).unwrap_or(End::Close);
                if wants_close && end == End::KeepAlive {
                    end = End::Close;
                }
                self.state().in_flight -= 1;
                self.bell.notify_all();
            }
        }
        self.close(number, &stream, end, watchers);
    }

    /// A reset is sent by closing with no time to linger, so nobody else may
    /// have the socket open then.
    fn close(&self, number: usize, stream: &TcpStream, end: End, watchers: Vec<JoinHandle<()>>) {
        self.state().connections.remove(&number);
        let how = if end == End::Reset { Shutdown::Read } else { Shutdown::Both };
        let _ = stream.shutdown(how);
        for watcher in watchers {
            let _ = watcher.join();
        }
        if end == End::Reset {
            let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
        }
    }

    /// Notes a request and finds its answer.
    fn take(&self, head: Head, body: &[u8]) -> Answer {
        let mut found = check::head(&head, KEY);
        let parsed = serde_json::from_slice(body);
        let body = parsed.unwrap_or_else(|it| {
            found.push(format!("the body is not JSON: {it}"));
            Value::String(String::from_utf8_lossy(body).into_owned())
        });
        found.extend(check::body(&body));
        if body.to_string().contains(KEY) {
            found.push("the key stands in the body".into());
        }
        let asked = Asked { head, body };
        let mut state = self.state();
        let number = state.asked.len();
        for fault in found {
            state.faults.push(format!("request {number}: {fault}\n{:#}", asked.body));
        }
        state.asked.push(asked.clone());
        state.in_flight += 1;
        state.most_in_flight = state.most_in_flight.max(state.in_flight);
        let answer = state.next_answer(&asked);
        drop(state);
        self.bell.notify_all();
        answer
    }

    fn fault(&self, what: &str) {
        self.state().faults.push(what.to_owned());
    }

    fn answer(
        self: &Arc<Self>,
        connection: usize,
        stream: &Arc<TcpStream>,
        answer: &Answer,
        watchers: &mut Vec<JoinHandle<()>>,
    ) -> io::Result<End> {
        let mut writer = None;
        for step in &answer.steps {
            // What holds before the first byte holds the head too.
            if let Step::Hold(gate) = step {
                watchers.push(self.watch(connection, stream));
                if !self.hold(connection, gate) {
                    return Ok(End::Close);
                }
                continue;
            }
            let begun = writer.take().map_or_else(|| begin(stream, answer), Ok)?;
            match step {
                Step::Bytes(bytes) => begun.body(bytes)?,
                Step::Flood(bytes, up_to) => {
                    for _ in 0..up_to.div_ceil(bytes.len()) {
                        begun.body(bytes)?;
                    }
                }
                Step::Cut => return Ok(End::Close),
                Step::Reset => return Ok(End::Reset),
                Step::Hold(_) => {}
            }
            writer = Some(begun);
        }
        let writer = writer.map_or_else(|| begin(stream, answer), Ok)?;
        Ok(if writer.end()? { End::KeepAlive } else { End::Close })
    }

    /// Waits until the gate lets it pass; `false` if the client is gone.
    fn hold(&self, connection: usize, gate: &Gate) -> bool {
        let mut state = self.state();
        state.gates[gate.number].waiting += 1;
        self.bell.notify_all();
        let waits = |it: &mut State| {
            it.gates[gate.number].permits == 0 && !it.stops && !it.gone.contains(&connection)
        };
        let waited = self.bell.wait_timeout_while(state, PATIENCE * 2, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let door = &mut state.gates[gate.number];
        door.waiting -= 1;
        let passes = door.permits > 0;
        if passes && door.permits != usize::MAX {
            door.permits -= 1;
        }
        drop(state);
        self.bell.notify_all();
        passes
    }

    /// Notices when the client goes while nothing is written to it.
    fn watch(self: &Arc<Self>, connection: usize, stream: &Arc<TcpStream>) -> JoinHandle<()> {
        let (shared, stream) = (self.clone(), stream.clone());
        thread::spawn(move || {
            // A further request ends the watch too.
            if stream.peek(&mut [0]).is_ok_and(|it| it > 0) {
                return;
            }
            drop(stream);
            shared.state().gone.push(connection);
            shared.bell.notify_all();
        })
    }
}

impl State {
    fn next_answer(&mut self, asked: &Asked) -> Answer {
        if let Some(answer) = self.queue.pop_front() {
            return answer;
        }
        if let Some(decide) = &mut self.decide {
            return decide(asked);
        }
        let number = self.asked.len();
        self.faults.push(format!("request {number} is one more than the script answers"));
        Answer::error(400, "the script has no answer left")
    }
}

fn begin<'a>(stream: &'a TcpStream, answer: &Answer) -> io::Result<Writer<'a>> {
    let size = |it: &Step| if let Step::Bytes(bytes) = it { bytes.len() } else { 0 };
    let length =
        if answer.framing == Framing::Length { answer.steps.iter().map(size).sum() } else { 0 };
    Writer::begin(stream, answer, length)
}
