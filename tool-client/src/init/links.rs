//! The links to the gateway: finds the sockets in `/beige`, dials each once,
//! and takes from each link the calls that are handed over by it. A link on
//! which anything else is said is let go.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::PollFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send,
    socket_with,
};

use tool_client::link;

use super::readable;
use crate::descriptor;

/// Links at a time.
const MOST_LINKS: usize = 64;

/// Entries of the folder that are looked at.
const MOST_ENTRIES: usize = 4096;

/// Packets taken from one link before the others get their turn.
const MOST_AT_ONCE: usize = 32;

/// How often the folder is looked at where the host does not tell of changes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// When a socket with many at its door is tried again.
const CROWDED: Duration = Duration::from_millis(10);

/// When a socket is dialled again whose link was let go on the other side, if
/// it is not another one by then.
const LET_GO: Duration = Duration::from_millis(50);

/// When a socket is tried again that refuses.
const REFUSED: Duration = Duration::from_secs(2);

/// What was handed over.
pub(crate) enum Call {
    /// A command is asked for there.
    Run(OwnedFd),
    /// A file operation is asked for there.
    File(OwnedFd),
}

/// All links.
pub(crate) struct Links {
    folder: PathBuf,
    /// Tells of changes in the folder, where that can be had.
    changes: Option<OwnedFd>,
    held: Vec<Link>,
    /// Sockets whose links ended, and when.
    lost: Vec<(Identity, Instant)>,
    /// Sockets that let a link go without having taken it.
    refusing: Vec<Identity>,
    look_at: Option<Instant>,
}

/// One link.
struct Link {
    name: OsString,
    identity: Identity,
    socket: OwnedFd,
    /// The other side has said that it will use it.
    is_taken: bool,
}

/// Device, number and last change of a socket file: another one of the same
/// name has another.
type Identity = (u64, u64, i64, i64);

impl Links {
    /// Looks for sockets in that folder; the first time at once.
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
            changes: None,
            held: Vec::new(),
            lost: Vec::new(),
            refusing: Vec::new(),
            look_at: Some(Instant::now()),
        }
    }

    /// Whether somebody is there who may have something to do: one that was
    /// taken, or one that is dialled for the first time, since a gateway takes
    /// it when it needs it. A socket that let us go is dialled on, and is nobody
    /// until it takes one.
    pub(crate) fn any(&self) -> bool {
        self.held.iter().any(|it| it.is_taken || !self.refusing.contains(&it.identity))
    }

    /// Dials the sockets that have no link yet, if it is time to look.
    pub(crate) fn look(&mut self, now: Instant) {
        let changed = self.changes.as_ref().is_some_and(drain);
        if !changed && self.look_at.is_none_or(|it| now < it) {
            return;
        }
        // First the watch, then the look: what comes between them is seen.
        if self.changes.is_none() {
            self.changes = watch(&self.folder).ok();
        }
        let again = [self.dial_all(now), self.changes.is_none().then_some(LOOK_EVERY)];
        self.look_at = again.into_iter().flatten().min().and_then(|it| now.checked_add(it));
    }

    /// Gives the calls that have come, and lets go of links that ended.
    pub(crate) fn take(&mut self, now: Instant, mut each: impl FnMut(Call)) {
        let Self { held, lost, refusing, look_at, .. } = self;
        held.retain_mut(|it| {
            let stands = it.take(&mut each);
            if !stands {
                lost.push((it.identity, now));
                if !it.is_taken && !refusing.contains(&it.identity) {
                    refusing.truncate(MOST_LINKS - 1);
                    refusing.insert(0, it.identity);
                }
                *look_at = Some(now);
            }
            stands
        });
    }

    /// What is to be waited for.
    pub(crate) fn interest<'a>(&'a self, interest: &mut Vec<PollFd<'a>>) {
        interest.extend(self.changes.iter().map(readable));
        interest.extend(self.held.iter().map(|it| readable(&it.socket)));
    }

    /// When the folder is to be looked at.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.look_at
    }

    /// Dials what can be dialled; says when to try again, if at all.
    fn dial_all(&mut self, now: Instant) -> Option<Duration> {
        self.lost.retain(|(_, when)| now < *when + LET_GO);
        let Ok(entries) = fs::read_dir(&self.folder) else { return Some(REFUSED) };
        let mut again: Option<Duration> = None;
        for entry in entries.take(MOST_ENTRIES).flatten() {
            let name = entry.file_name();
            let known = self.held.iter().any(|it| it.name == name);
            if known || self.held.len() >= MOST_LINKS || !link::is_socket_name(name.as_bytes()) {
                continue;
            }
            if let Err(later) = self.dial(name, now) {
                again = Some(again.map_or(later, |it| it.min(later)));
            }
        }
        again
    }

    /// Dials one; an error says when to try again.
    fn dial(&mut self, name: OsString, now: Instant) -> Result<(), Duration> {
        let path = self.folder.join(&name);
        let found = fs::symlink_metadata(&path).map_err(|_| REFUSED)?;
        let identity = (found.dev(), found.ino(), found.ctime(), found.ctime_nsec());
        if let Some((_, when)) = self.lost.iter().find(|(it, _)| *it == identity) {
            return Err((*when + LET_GO).saturating_duration_since(now));
        }
        let socket =
            greet(&path).map_err(|it| if it == Errno::AGAIN { CROWDED } else { REFUSED })?;
        self.held.push(Link { name, identity, socket, is_taken: false });
        Ok(())
    }
}

impl Link {
    /// Gives the calls that have come; false once the link is at its end.
    fn take(&mut self, each: &mut impl FnMut(Call)) -> bool {
        for _ in 0..MOST_AT_ONCE {
            let mut packet = [0; link::MOST_PACKET];
            let received = match descriptor::receive(&self.socket, &mut packet, RecvFlags::DONTWAIT)
            {
                Ok(received) => received,
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            };
            let (length, call) = received;
            match (packet.get(..length), call) {
                (Some(link::TAKEN), None) if !self.is_taken => self.is_taken = true,
                (Some(link::RUN), Some(call)) => each(Call::Run(call)),
                (Some(link::FILE), Some(call)) => each(Call::File(call)),
                _ => return false,
            }
        }
        true
    }
}

fn watch(folder: &Path) -> rustix::io::Result<OwnedFd> {
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
    inotify::add_watch(&changes, folder, flags)?;
    Ok(changes)
}

/// Takes all that was told of; says whether there was anything. What exactly
/// does not matter: the folder itself is looked at.
fn drain(changes: &OwnedFd) -> bool {
    let mut buffer = [0; 4096];
    let reads = (0..MOST_AT_ONCE).take_while(|_| rustix::io::read(changes, &mut buffer).is_ok());
    reads.count() > 0
}

/// Connects without waiting and says what it speaks.
fn greet(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    send(&socket, link::HELLO, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(socket)
}
