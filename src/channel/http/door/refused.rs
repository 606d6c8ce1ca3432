//! Those for whom there is no room. They are told so at once, mostly before
//! they have sent their request; a connection that closed on it would take the
//! answer back. So each stays open for a moment, on one thread for all of them,
//! and a bounded number of them: whoever came first makes room.

use std::collections::VecDeque;
use std::io::Read;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use super::FULL;
use super::stream::Stream;
use crate::channel::http::answer::Answer;
use crate::error::Result;
use crate::worker::Worker;

/// Refused callers whose connections stay open at a time.
pub(super) const MOST: usize = 32;

/// Bytes of a refused request that are read at most.
const MOST_READ: usize = 256 * 1024;

/// The way to be refused; once the last of these is dropped, all are closed.
#[derive(Clone)]
pub(super) struct Refusal(Sender<Arc<Stream>>);

/// A way to be refused, and the thread at its end, which keeps the connections
/// of those open for so long.
pub(super) fn start(linger: Duration) -> Result<(Refusal, Worker)> {
    let (refused, inbox) = bounded(MOST);
    let worker = Worker::spawn("door-refused", move || see_off(&inbox, linger))?;
    Ok((Refusal(refused), worker))
}

impl Refusal {
    /// Answers 503 and waits for nobody: a fresh connection has room for this,
    /// and where too many are refused at once, this one is closed at once.
    pub(super) fn refuse(&self, client: Arc<Stream>, is_stopping: bool) {
        let why = match is_stopping {
            true => "the gateway is stopping; nothing was begun".to_owned(),
            false => format!("{FULL}; try again"),
        };
        let _ = Answer::error(503, why).write(&mut &*client);
        client.end(Shutdown::Write);
        if let Err(TrySendError::Full(client) | TrySendError::Disconnected(client)) =
            self.0.try_send(client)
        {
            close(&client);
        }
    }
}

fn see_off(inbox: &Receiver<Arc<Stream>>, linger: Duration) {
    // Each stays for as long, so they go in the order in which they came.
    let mut leaving: VecDeque<(Instant, Arc<Stream>)> = VecDeque::new();
    loop {
        let next = match leaving.front() {
            Some((until, _)) => inbox.recv_deadline(*until),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok(client) => leaving.push_back((Instant::now() + linger, client)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = Instant::now();
        while leaving.front().is_some_and(|(until, _)| *until <= now) || leaving.len() > MOST {
            leaving.pop_front().iter().for_each(|(_, client)| close(client));
        }
    }
    leaving.iter().for_each(|(_, client)| close(client));
}

/// Ends a connection. What is unread of it would make that an error for who
/// sent it, so it is read, as far as it is here.
fn close(client: &Stream) {
    if client.set_nonblocking().is_ok() {
        let mut piece = vec![0; 4096];
        let mut read = 0;
        while let (..MOST_READ, Ok(length @ 1..)) = (read, (&mut &*client).read(&mut piece)) {
            read += length;
        }
    }
    client.end(Shutdown::Both);
}
