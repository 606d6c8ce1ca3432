//! A server on loopback that does on each connection what a test wants. It ends
//! with its owner.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::worker::Worker;

/// Longest time that a client may be silent; reached by a fault only.
const PATIENT: Duration = Duration::from_secs(60);

pub(in crate::provider) struct Server {
    address: String,
    seen: Arc<Seen>,
    _thread: Worker,
}

#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    connections: AtomicUsize,
    current: Mutex<Option<TcpStream>>,
}

impl Server {
    /// Serves connections one after another; `serve` is told which one it is.
    pub(in crate::provider) fn start(serve: impl Fn(usize, &mut Peer) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind to loopback");
        let address = listener.local_addr().expect("an address").to_string();
        let seen = Arc::new(Seen::default());
        let told = Arc::clone(&seen);
        let thread = Worker::spawn("test-server", move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if told.is_over.load(Ordering::SeqCst) {
                    return;
                }
                *told.current() = stream.try_clone().ok();
                let number = told.connections.fetch_add(1, Ordering::SeqCst);
                let _ = stream.set_read_timeout(Some(PATIENT));
                serve(number, &mut Peer { stream });
                *told.current() = None;
            }
        });
        Self { address, seen, _thread: thread.expect("a thread") }
    }

    pub(in crate::provider) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// `host:port`.
    pub(in crate::provider) fn address(&self) -> &str {
        &self.address
    }

    pub(in crate::provider) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }
}

impl Seen {
    fn current(&self) -> std::sync::MutexGuard<'_, Option<TcpStream>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.seen.is_over.store(true, Ordering::SeqCst);
        if let Some(stream) = self.seen.current().take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(&self.address);
    }
}

/// One connection, from the server's side.
pub(in crate::provider) struct Peer {
    stream: TcpStream,
}

impl Peer {
    /// The next request with its body; `None` at the connection's end.
    pub(in crate::provider) fn request(&mut self) -> Option<String> {
        let mut text = self.head()?;
        let lower = text.to_lowercase();
        let length = lower.split("content-length: ").nth(1).and_then(|it| it.lines().next());
        let length: usize = length.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        text.push_str(&String::from_utf8_lossy(&body));
        Some(text)
    }

    /// Bytes to the end of a head.
    pub(in crate::provider) fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.bytes(1)?);
        }
        Some(String::from_utf8_lossy(&head).into_owned())
    }

    /// So many bytes.
    pub(in crate::provider) fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    pub(in crate::provider) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A client that has left is no fault of a server.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// The head of an answer in chunks, and its first chunk.
    pub(in crate::provider) fn begin(&mut self, text: &str) {
        self.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n");
        self.send("Transfer-Encoding: chunked\r\n\r\n");
        self.chunk(text);
    }

    pub(in crate::provider) fn chunk(&mut self, text: &str) {
        self.send(format!("{:x}\r\n{text}\r\n", text.len()));
    }

    /// A whole answer.
    pub(in crate::provider) fn answer(&mut self, text: &str) {
        self.begin(text);
        self.send("0\r\n\r\n");
    }

    /// Ends what it says, and goes on to listen.
    pub(in crate::provider) fn say_no_more(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Says nothing more and reads nothing more until the client hangs up.
    pub(in crate::provider) fn wait_for_the_end_unread(&mut self) {
        let mut fds = [PollFd::new(&self.stream, PollFlags::empty())];
        let _ = poll(&mut fds, Timespec::try_from(PATIENT).ok().as_ref());
    }

    /// Says nothing more until the client hangs up.
    pub(in crate::provider) fn wait_for_the_end(&mut self) {
        let mut rest = [0; 256];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return,
                Ok(_) => (),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(_) => return,
            }
        }
    }
}
