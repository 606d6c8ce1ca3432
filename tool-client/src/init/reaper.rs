//! Reaps whatever has died, and tells when a child was stopped, on a thread of
//! its own: a wait for either is the one thing that no poll can do here.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, eventfd};
use rustix::io::{Errno, read, write};
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, wait, waitid};

use super::readable;

/// How soon an orphan is reaped of whose coming nothing was heard.
const REAP_EVERY: Duration = Duration::from_secs(1);

/// Deaths and stops taken before a birth gets its turn.
const MOST_AT_ONCE: usize = 64;

/// The thread that reaps.
pub(crate) struct Reaper {
    births: Arc<Mutex<()>>,
    wake: SyncSender<()>,
    /// Counts children that were stopped.
    stops: Arc<OwnedFd>,
}

impl Reaper {
    /// Starts it; it ends with the process.
    pub(crate) fn start() -> io::Result<Self> {
        let births = Arc::new(Mutex::new(()));
        let (wake, woken) = sync_channel(1);
        let stops = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (same, told) = (Arc::clone(&births), Arc::clone(&stops));
        let stack = thread::Builder::new().stack_size(64 * 1024);
        stack.spawn(move || reap_for_ever(&same, &woken, &told))?;
        Ok(Self { births, wake, stops })
    }

    /// While this is held no child is reaped: the number of one that is being
    /// started so cannot become another's before it is known by a descriptor.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.births.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a child was stopped since this was asked last.
    pub(crate) fn tells_of_a_stop(&self) -> bool {
        read(&*self.stops, &mut [0; 8]).is_ok()
    }

    /// What is to be waited for.
    pub(crate) fn interest<'a>(&'a self, interest: &mut Vec<PollFd<'a>>) {
        interest.push(readable(&*self.stops));
    }

    /// There may be a child now.
    pub(crate) fn wake(&self) {
        let _ = self.wake.try_send(());
    }
}

/// Reaps as children end; with no child at all it waits to be told of one.
fn reap_for_ever(births: &Mutex<()>, woken: &Receiver<()>, stops: &OwnedFd) {
    let news = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::All, news) {
            Ok(_) => {
                let _hold = births.lock().unwrap_or_else(PoisonError::into_inner);
                let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
                let taken = (0..MOST_AT_ONCE).map_while(|_| wait(options).ok()?);
                if taken.filter(|(_, it)| it.stopped()).count() > 0 {
                    // Fails only where it tells of very many already.
                    let _ = write(stops, &1_u64.to_ne_bytes());
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => drop(woken.recv_timeout(REAP_EVERY)),
        }
    }
}
