//! The threads of a test model: connections, each to its end, and the steps of
//! an answer one after another.

use std::io::{self, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::dialect::Dialect;
use super::script::{Answer, Framing, Step};
use super::wire::{Head, Writer, read_request};
use super::{Asked, Gate, KEY, PATIENCE, Shared, State, check};

/// How an answer has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    KeepAlive,
    Close,
    Reset,
}

impl Shared {
    pub(super) fn accept(self: &Arc<Self>, listener: &TcpListener) {
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
        let mut found = check::head(&head);
        let parsed = serde_json::from_slice(body);
        let body = parsed.unwrap_or_else(|it| {
            found.push(format!("the body is not JSON: {it}"));
            Value::String(String::from_utf8_lossy(body).into_owned())
        });
        found.extend(Dialect::of(&head).map(|it| it.body(&body)).unwrap_or_default());
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
