//! tiny_http behind the door: on a Unix socket in a folder that only its owner
//! may enter, with the few threads that take requests from it. Its accept loop
//! ends for good when file descriptors run out; then it is started anew.

use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tiny_http::{Request, Server};

use super::token::{is_same, random_hex};
use crate::error::{During, Kind, Result};
use crate::worker::Worker;

/// Threads that take requests and answer what is quick.
const POOL: usize = 4;

/// Header that holds the password.
const PASSWORD: &str = "X-Beige-Door";

/// Takes a request that came through the door.
pub(super) type Take = Arc<dyn Fn(Request) + Send + Sync>;

/// The server behind the door.
pub(super) struct Inner {
    path: PathBuf,
    password: Arc<str>,
    take: Take,
    running: Mutex<Option<Running>>,
}

/// A server and its threads; dropping it ends both.
struct Running {
    server: Arc<Server>,
    pool: Vec<Worker>,
}

impl Inner {
    /// Starts the server on a socket at `path`, in a folder that only its
    /// owner may enter.
    pub(super) fn start(path: &Path, take: Take) -> Result<Self> {
        let password = random_hex::<32>()?.into();
        let inner = Self { path: path.to_owned(), password, take, running: Mutex::new(None) };
        *inner.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(inner.run()?);
        Ok(inner)
    }

    /// What a request must show, so that even a program of the same user that
    /// finds the socket does not get round the door.
    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// A new connection to the server, which is started anew if it ended.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        match UnixStream::connect(&self.path) {
            Err(error) if has_ended(&error) => {
                self.revive().map_err(io::Error::other)?;
                UnixStream::connect(&self.path)
            }
            other => other,
        }
    }

    fn revive(&self) -> Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if UnixStream::connect(&self.path).is_ok() {
            return Ok(()); // Somebody else was faster.
        }
        log::warn!("the server behind the door ended; it is started anew");
        // The old one takes the socket's file with it, so it goes first.
        running.take();
        *running = Some(self.run()?);
        Ok(())
    }

    fn run(&self) -> Result<Running> {
        let what = format!("listen on {}", self.path.display());
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).during(Kind::Internal, what);
            }
            _ => {}
        }
        let listener = UnixListener::bind(&self.path).during(Kind::Internal, &what)?;
        // As a socket of the house, though its folder keeps others out already.
        std::fs::set_permissions(&self.path, Permissions::from_mode(0o600))
            .during(Kind::Internal, &what)?;
        let server = Server::from_listener(listener, None).during(Kind::Internal, &what)?;
        let mut running = Running { server: Arc::new(server), pool: Vec::new() };
        for number in 1..=POOL {
            running.pool.push(self.worker(number, &running.server)?);
        }
        Ok(running)
    }

    fn worker(&self, number: usize, server: &Arc<Server>) -> Result<Worker> {
        let (server, take) = (Arc::clone(server), Arc::clone(&self.take));
        let password = Arc::clone(&self.password);
        Worker::spawn(format!("http-{number}"), move || {
            // Ends by `unblock`, or when the server's accept loop has ended.
            while let Ok(request) = server.recv() {
                if shows(&request, &password) {
                    take(request);
                }
            }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for _ in &self.pool {
            self.server.unblock();
        }
        self.pool.clear();
    }
}

fn shows(request: &Request, password: &str) -> bool {
    let mark = request.headers().iter().find(|it| it.field.equiv(PASSWORD));
    mark.is_some_and(|it| is_same(it.value.as_str().as_bytes(), password.as_bytes()))
}

fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::channel::http::answer::Answer;
    use crate::channel::http::tests::Folder;

    fn inner(folder: &Folder) -> Inner {
        let take: Take = Arc::new(|request: Request| {
            let _ = Answer::json(&request.url()).write(&mut request.into_writer());
        });
        Inner::start(&folder.path().join("inner"), take).expect("start")
    }

    #[track_caller]
    fn check(inner: &Inner, password: &str, want: &str) {
        let mut stream = inner.connect().expect("connect");
        let head =
            format!("GET /a HTTP/1.1\r\nConnection: close\r\nX-Beige-Door: {password}\r\n\r\n");
        let mut answer = String::new();
        assert!(stream.write_all(head.as_bytes()).is_ok());
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {want}")), "{answer}");
    }

    #[test]
    fn only_what_came_through_the_door_is_taken() {
        let folder = Folder::new();
        let inner = inner(&folder);
        check(&inner, inner.password(), "200");
        check(&inner, "guess", "500");
    }

    #[test]
    fn a_server_that_ended_is_started_anew() {
        let folder = Folder::new();
        let inner = inner(&folder);
        inner.running.lock().expect("lock").take();
        check(&inner, inner.password(), "200");
        inner.running.lock().expect("lock").take();
        // So it looks when the accept loop ended by itself.
        drop(UnixListener::bind(&inner.path));
        check(&inner, inner.password(), "200");
    }
}
