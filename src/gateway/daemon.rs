//! The process side of a gateway: the lock of its home, signals as events,
//! and the word to systemd. A stale file is never taken for a running
//! gateway: only the file lock counts, and the kernel drops that.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, after, select};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle as SignalsHandle, Signals};

use super::hub::Event;
use crate::config::Home;
use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};
use crate::worker::{Cancel, Worker};

/// Who only looks at who holds a home locks it for a moment: a lock that is
/// held for longer than this is held by somebody.
const LOOK_LIMIT: Duration = Duration::from_millis(500);

/// Whoever waits for longer finds in the log for whom.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Pause between two tries to get a lock of another process.
const PAUSE: Duration = Duration::from_millis(50);

/// Who holds a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A gateway, for its life.
    Gateway,
    /// `beige prompt` without a gateway, for one turn.
    Prompt,
}

/// The lock of a home, held for the life of the value.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
    /// The folder too: a file that somebody tidied away excludes nobody.
    _folder: File,
}

/// The process that holds a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What it is.
    pub role: Role,
    /// Its process id, if it had written it yet.
    pub pid: Option<u32>,
}

impl HomeLock {
    /// Takes the home for `role`. While a prompt holds it, waits up to
    /// `limit`; a prompt waits for anyone. The error names
    /// the holder: [`Kind::Conflict`] for a gateway, [`Kind::Busy`] for a prompt.
    pub fn take(home: &Home, role: Role, limit: Duration, cancel: &Cancel) -> Result<Self> {
        let path = home.pid_file();
        let what = format!("lock {}", path.display());
        let mut file = open(home)?;
        let folder = File::open(home.root()).during(Kind::Internal, what.clone())?;
        let started = Instant::now();
        let mut is_told = false;
        loop {
            match try_both(&file, &folder) {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error).during(Kind::Internal, what),
            }
            let holder = named_holder(&mut file, &path);
            let limit = if is_hopeless(role, holder) { LOOK_LIMIT } else { limit };
            if started.elapsed() >= limit {
                return Err(held(home, holder));
            }
            if !is_told && started.elapsed() >= TELL_AFTER {
                is_told = true;
                log::info!("waiting: {}", held(home, holder));
            }
            select! {
                recv(cancel.gone()) -> _ => return Err(Error::new(Kind::Cancelled, "called off")),
                recv(after(PAUSE)) -> _ => {}
            }
        }
        write_holder(&mut file, role).during(Kind::Internal, what)?;
        Ok(Self { _file: file, _folder: folder })
    }

    /// Holds the home to the very end of this process, when all else of it
    /// is gone: then the kernel lets go.
    pub fn keep(self) {
        std::mem::forget(self);
    }

    /// Who holds the home now; `None` when nobody does.
    pub fn holder(home: &Home) -> Result<Option<Holder>> {
        let what = || format!("cannot look into {}", home.root().display());
        if !home.pid_file().try_exists().during(Kind::Denied, what())? {
            return Ok(None);
        }
        let mut file = open(home)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(named_holder(&mut file, &home.pid_file()))),
            Err(TryLockError::Error(error)) => {
                Err(error).during(Kind::Internal, format!("lock {}", home.pid_file().display()))
            }
        }
    }
}

/// Whether nobody need wait: a gateway that has said so holds the home for its
/// life. A holder without a name may be a prompt that is about to write its own.
fn is_hopeless(role: Role, holder: Holder) -> bool {
    role == Role::Gateway && holder.role == Role::Gateway && holder.pid.is_some()
}

fn try_both(file: &File, folder: &File) -> std::result::Result<(), TryLockError> {
    file.try_lock()?;
    folder.try_lock().inspect_err(|_| {
        // Else a look at the file would find a holder that is none.
        let _ = file.unlock();
    })
}

/// Whether a process has that file open.
fn has_open(pid: u32, path: &Path) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let ours = fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    open.flatten()
        .filter_map(|it| fs::metadata(it.path()).ok())
        .any(|it| Some((it.dev(), it.ino())) == ours)
}

fn open(home: &Home) -> Result<File> {
    let path = home.pid_file();
    open_own(&path, OpenOptions::new().create(true).truncate(false).read(true).write(true))
        .during(Kind::Internal, format!("open {}", path.display()))
}

fn write_holder(file: &mut File, role: Role) -> std::io::Result<()> {
    let name = match role {
        Role::Gateway => "gateway",
        Role::Prompt => "prompt",
    };
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{} {name}", std::process::id())
}

/// Who holds the lock, with a process id only if that process can be it: until
/// the holder has written, the file names the one before.
fn named_holder(file: &mut File, path: &Path) -> Holder {
    let holder = read_holder(file);
    Holder { pid: holder.pid.filter(|it| has_open(*it, path)), ..holder }
}

/// A holder that has not written yet counts as a gateway that starts.
fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(64).read_to_string(&mut text));
    if read.is_err() {
        text.clear();
    }
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|it| it.parse().ok());
    let role = if words.next() == Some("prompt") { Role::Prompt } else { Role::Gateway };
    Holder { role, pid }
}

fn held(home: &Home, holder: Holder) -> Error {
    let (kind, who) = match holder.role {
        Role::Gateway => (Kind::Conflict, "another gateway"),
        // It ends by itself.
        Role::Prompt => (Kind::Busy, "a prompt without a gateway"),
    };
    let pid = holder.pid.map_or_else(|| "not known yet".to_owned(), |it| it.to_string());
    let root = home.root().display();
    let mend = match holder.role {
        Role::Gateway => "stop it with `beige gateway stop`, or set BEIGE_HOME to another folder",
        Role::Prompt => "try again when it has its answer, or end it",
    };
    Error::new(kind, format!("{who} (pid {pid}) uses the home {root}; {mend}"))
}

/// Signals of the process, as events of the hub.
pub(super) struct SignalThread {
    handle: SignalsHandle,
    _thread: Worker,
}

impl SignalThread {
    /// SIGTERM and SIGINT stop, SIGHUP reloads.
    pub(super) fn start(events: Sender<Event>) -> Result<Self> {
        let mut signals =
            Signals::new([SIGTERM, SIGINT, SIGHUP]).during(Kind::Internal, "take over signals")?;
        let handle = signals.handle();
        let thread = Worker::spawn("signal", move || {
            for signal in signals.forever() {
                let event = if signal == SIGHUP { Event::Reload } else { Event::Stop { signal } };
                if events.send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { handle, _thread: thread })
    }
}

impl Drop for SignalThread {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Tells systemd how things stand (`READY=1`, `STOPPING=1`), if it asked to
/// be told by `$NOTIFY_SOCKET`.
pub fn notify_systemd(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let path = path.to_string_lossy();
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name.as_bytes()),
        None => SocketAddr::from_pathname(&*path),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        log::warn!("tell systemd {state}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(name: &str) -> Home {
        let root = std::env::temp_dir().join(format!("beige-daemon-{name}-{}", std::process::id()));
        let home = Home::new(root);
        home.create().expect("a home");
        home
    }

    #[test]
    fn a_second_gateway_is_told_who_holds_the_home() {
        let home = home("second");
        let never = Cancel::never();
        let first = HomeLock::take(&home, Role::Gateway, Duration::ZERO, &never).expect("free");
        let holder = HomeLock::holder(&home).expect("readable");
        assert_eq!(holder, Some(Holder { role: Role::Gateway, pid: Some(std::process::id()) }));
        let second = HomeLock::take(&home, Role::Gateway, Duration::from_secs(30), &never);
        let error = second.expect_err("held");
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.to_string().contains(&std::process::id().to_string()));
        drop(first);
        // A process that another test is just starting may hold it a moment
        // longer; a prompt waits for anyone.
        let next = HomeLock::take(&home, Role::Prompt, Duration::from_secs(60), &never);
        assert!(next.is_ok(), "{next:?}");
        std::fs::remove_dir_all(home.root()).expect("removed");
    }

    #[test]
    fn a_holder_that_has_not_written_its_name_is_waited_for() {
        let home = home("nameless");
        for before in ["", "1 gateway\n"] {
            std::fs::write(home.pid_file(), before).expect("written");
            let lock = File::open(home.pid_file()).expect("there");
            lock.lock().expect("free");
            let (limit, started) = (LOOK_LIMIT * 2, Instant::now());
            let taken = HomeLock::take(&home, Role::Gateway, limit, &Cancel::never());
            assert_eq!(taken.expect_err("held").kind(), Kind::Conflict);
            assert!(started.elapsed() >= limit, "given up on `{before}`");
        }
        std::fs::remove_dir_all(home.root()).expect("removed");
    }

    #[test]
    fn a_prompt_that_holds_the_home_too_long_is_named() {
        let home = home("prompt");
        let never = Cancel::never();
        let _first = HomeLock::take(&home, Role::Prompt, Duration::ZERO, &never).expect("free");
        let error = HomeLock::take(&home, Role::Gateway, Duration::ZERO, &never).expect_err("held");
        assert_eq!(error.kind(), Kind::Busy);
        assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
        std::fs::remove_dir_all(home.root()).expect("removed");
    }

    #[test]
    fn a_lock_file_that_was_removed_lets_no_second_in() {
        let home = home("removed");
        let never = Cancel::never();
        let first = HomeLock::take(&home, Role::Gateway, Duration::ZERO, &never).expect("free");
        std::fs::remove_file(home.pid_file()).expect("removed");
        let second = HomeLock::take(&home, Role::Gateway, Duration::ZERO, &never);
        assert_eq!(second.expect_err("held").kind(), Kind::Conflict);
        drop(first);
        assert!(HomeLock::take(&home, Role::Gateway, Duration::ZERO, &never).is_ok());
        std::fs::remove_dir_all(home.root()).expect("removed");
    }

    #[test]
    fn a_stale_file_is_nobody() {
        let home = home("stale");
        std::fs::write(home.pid_file(), "1 gateway\n").expect("written");
        assert_eq!(HomeLock::holder(&home).expect("readable"), None);
        std::fs::remove_dir_all(home.root()).expect("removed");
    }
}
