//! The agents' sockets: one an agent, whose path alone says who is calling.
//! Everything a line holds is hostile: it is bounded, checked, and becomes a
//! [`PluginCall`] for the toolbox, with the session looked up and never
//! believed. What one agent sends can slow down that agent only.

mod connections;
mod lines;
mod reception;
mod request;

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use connections::Connections;
use lines::{LINE_LIMIT, Line, Lines, MAX_LINE};
pub use reception::Reception;
use reception::{Place, Serve};
use request::{Request, Response};

use crate::error::{During, Error, Kind, Result};
use crate::tool::{Call, Caller, PluginCall, SessionRef, Toolbox};
use crate::worker::{self, Cancel, Canceller};

/// Tools an agent may run at a time; further ones wait.
const MAX_TOOLS: usize = 32;

/// How long a peer may take to read an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// Says whether a session key exists and belongs to an agent.
pub type OwnsSession = dyn Fn(&str, &str) -> bool + Send + Sync;

/// What all connections of one agent share.
struct Desk {
    agent: String,
    toolbox: Arc<Toolbox>,
    owns_session: Arc<OwnsSession>,
    running: Slots,
    connections: Connections,
    stop: Cancel,
}

/// The socket of one agent; dropping it ends its connections and removes it.
pub struct AgentSocket {
    path: PathBuf,
    stop: Canceller,
    desk: Arc<Desk>,
    place: Option<Place>,
}

impl AgentSocket {
    /// Binds `path` (an old socket under that name is removed), and the
    /// reception listens. Every uid of the agent's sandbox may connect; the
    /// folders above keep the host's other users out.
    pub fn listen(
        reception: &Arc<Reception>,
        path: PathBuf,
        agent: &str,
        toolbox: Arc<Toolbox>,
        owns_session: Arc<OwnsSession>,
    ) -> Result<Self> {
        let listener = bind(&path)?;
        let (stop, stopped) = Cancel::pair();
        let desk = Arc::new(Desk {
            agent: agent.to_owned(),
            toolbox,
            owns_session,
            running: Slots::new(MAX_TOOLS),
            connections: Connections::default(),
            stop: stopped,
        });
        let place = reception.add(agent, listener, served_at(&desk))?;
        Ok(Self { path, stop, desk, place: Some(place) })
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        self.stop.cancel();
        self.desk.connections.end();
        self.place.take();
        let _ = fs::remove_file(&self.path);
    }
}

/// Binds a socket that everyone who reaches its folder may connect to. The
/// name is never left without a socket while an old one is replaced.
fn bind(path: &Path) -> Result<UnixListener> {
    let what = format!("listen on {}", path.display());
    let fresh = path.with_extension("new");
    remove_if_there(&fresh).during(Kind::Internal, what.clone())?;
    let listener = UnixListener::bind(&fresh).during(Kind::Internal, what.clone())?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o666))
        .and_then(|()| fs::rename(&fresh, path))
        .during(Kind::Internal, what)?;
    Ok(listener)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn served_at(desk: &Arc<Desk>) -> Arc<Serve> {
    let desk = Arc::clone(desk);
    Arc::new(move |stream| {
        if let Err(error) = serve(stream, &desk) {
            log::debug!("a connection of agent {} ended: {error}", desk.agent);
        }
    })
}

/// Answers line after line, in order, until the peer ends or the gateway does.
fn serve(stream: UnixStream, desk: &Desk) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_LIMIT))?;
    match desk.connections.enter(stream) {
        Some(open) => serve_lines(open.stream(), desk),
        None => Ok(()),
    }
}

fn serve_lines(stream: &UnixStream, desk: &Desk) -> io::Result<()> {
    let mut lines = Lines::of(stream);
    loop {
        let response = match lines.next()? {
            Line::Whole(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) => answer(&line, stream, desk),
            Line::TooLong => {
                write_line(
                    stream,
                    &Response::failure(format!(
                        "Invalid request: a line is longer than {} MiB",
                        MAX_LINE / (1024 * 1024)
                    )),
                )?;
                return Ok(());
            }
            Line::Cut => {
                let what = "Invalid request: the line was cut before its end";
                return write_line(stream, &Response::failure(what));
            }
            Line::TooSlow => {
                let what = format!("Invalid request: a line took over {} s", LINE_LIMIT.as_secs());
                return write_line(stream, &Response::failure(what));
            }
            Line::End => return Ok(()),
        };
        write_line(stream, &response)?;
    }
}

fn write_line(mut stream: &UnixStream, response: &Response) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// One request to its response; nothing in it can fail the connection.
fn answer(line: &[u8], stream: &UnixStream, desk: &Desk) -> Response {
    let request = match Request::parse(line) {
        Ok(request) => request,
        Err(wrong) => {
            return Response::failure(desk.toolbox.mask(&format!("Invalid request: {wrong}")));
        }
    };
    let caller = caller(&request, desk);
    let call = PluginCall {
        tool: request.tool,
        args: request.args,
        cwd: request.cwd.unwrap_or_default(),
        stdin: request.stdin,
    };
    let done = match desk.running.take(stream, &desk.stop) {
        Some(_slot) => {
            desk.toolbox.run(&caller, Call::Plugin(call, Some(stream.as_fd())), &Cancel::never())
        }
        None => Err(Error::new(Kind::Busy, "the gateway is stopping; nothing was run")),
    };
    match done {
        Ok(answer) => Response::of(&answer),
        Err(error) => Response::failure(error.to_string()),
    }
}

/// Whose call it is: the running call that sent it; else a session of this
/// agent that the payload names; else the socket itself.
fn caller(request: &Request, desk: &Desk) -> Caller {
    let claimed = request.claimed_session().map(str::to_owned);
    let known =
        request.call.as_deref().and_then(|it| desk.toolbox.calls().session_of(&desk.agent, it));
    let session = match (known, &claimed) {
        (Some(session), _) => session,
        (None, Some(key)) => verified(key, desk),
        (None, None) => None,
    };
    let session = session.unwrap_or_else(|| SessionRef {
        session_key: format!("socket:{}", desk.agent),
        channel: Some("socket".to_owned()),
        chat_id: None,
        thread_id: None,
    });
    Caller {
        agent: desk.agent.clone(),
        claimed_session: claimed.filter(|it| *it != session.session_key),
        session: Some(session),
        model: None,
    }
}

/// A claimed session, if it exists and is this agent's. What else the claim
/// says of it does not count: chat and thread follow from the key.
fn verified(key: &str, desk: &Desk) -> Option<SessionRef> {
    (desk.owns_session)(&desk.agent, key).then(|| super::session_ref(key))
}

/// So many places; taking one waits until one is free.
struct Slots {
    taken: Sender<()>,
    given_back: Receiver<()>,
}

struct Slot(Receiver<()>);

impl Slots {
    fn new(number: usize) -> Self {
        let (taken, given_back) = bounded(number);
        Self { taken, given_back }
    }

    /// `None` once the gateway stops or nobody waits for it any more.
    fn take(&self, stream: &UnixStream, stop: &Cancel) -> Option<Slot> {
        let slot = || Slot(self.given_back.clone());
        if self.taken.try_send(()).is_ok() {
            return Some(slot());
        }
        until_hung_up(stream, |hung_up| {
            select! {
                send(self.taken, ()) -> sent => sent.ok().map(|()| slot()),
                recv(stop.gone()) -> _ => None,
                recv(hung_up.gone()) -> _ => None,
            }
        })
    }
}

/// Waits with something that is called off once the peer has hung up both
/// ways; one that only ended its sending half is still there.
fn until_hung_up<T>(stream: &UnixStream, wait: impl FnOnce(&Cancel) -> T) -> T {
    let (canceller, hung_up) = Cancel::pair();
    let Ok((awake, wake)) = UnixStream::pair() else { return wait(&hung_up) };
    thread::scope(|scope| {
        let _ = worker::scoped(scope, "conn-watch", move || {
            let mut fds =
                [PollFd::new(stream, PollFlags::empty()), PollFd::new(&awake, PollFlags::IN)];
            while let Err(Errno::INTR) = poll(&mut fds, None) {}
            if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                canceller.cancel();
            }
        });
        let done = wait(&hung_up);
        drop(wake);
        done
    })
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.0.try_recv();
    }
}

/// Removes what dead processes left in an agent's socket folder: sockets on
/// which nobody answers. What cannot be removed is in nobody's way, unless it
/// has the name of a socket that is to be made, which then says so.
pub fn remove_dead_sockets(folder: &Path) -> Result<()> {
    let what = || format!("look for dead sockets in {}", folder.display());
    for entry in fs::read_dir(folder).during(Kind::Internal, what())? {
        let path = entry.during(Kind::Internal, what())?.path();
        let is_socket = path.extension().is_some_and(|it| it == "sock" || it == "new");
        if is_socket && is_dead(&path) {
            remove_if_there(&path).unwrap_or_else(|error| {
                log::warn!("remove the dead socket {}: {error}", path.display());
            });
        }
    }
    Ok(())
}

/// Whether nobody listens there. A socket of packets, as links have them, says
/// to a stream that it is of another kind, and so that it lives.
fn is_dead(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => false,
        Err(error) => Errno::from_io_error(&error) != Some(Errno::PROTOTYPE),
    }
}

/// A usage error if a socket in that folder could not be bound: the kernel
/// takes 107 bytes.
pub fn check_path_length(path: &Path) -> Result<()> {
    let length = path.as_os_str().len();
    if length <= 107 {
        return Ok(());
    }
    Err(Error::new(
        Kind::Config,
        format!(
            "the socket path {} has {length} bytes and the kernel takes 107; set BEIGE_HOME to a \
             shorter path",
            path.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_removed_keeps_no_dead_socket() -> std::io::Result<()> {
        let folder = std::env::temp_dir().join(format!("beige-dead-{}", std::process::id()));
        fs::create_dir_all(folder.join("link-1.sock"))?;
        fs::write(folder.join("cli-2.sock"), "")?;
        fs::write(folder.join("link.new"), "")?;
        fs::write(folder.join("tool-client"), "")?;
        let removed = remove_dead_sockets(&folder);
        let mut left: Vec<_> = fs::read_dir(&folder)?.flatten().map(|it| it.file_name()).collect();
        left.sort();
        fs::remove_dir_all(&folder)?;
        assert!(removed.is_ok());
        assert_eq!(left, ["link-1.sock", "tool-client"]);
        Ok(())
    }

    #[test]
    fn a_path_the_kernel_would_refuse_is_a_config_error() {
        assert!(check_path_length(Path::new(&format!("/{}", "x".repeat(106)))).is_ok());
        let long = check_path_length(Path::new(&format!("/{}", "x".repeat(107))));
        assert_eq!(long.map_err(|it| it.kind()), Err(Kind::Config));
    }
}
