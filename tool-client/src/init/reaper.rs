//! Reaps whatever has died, on a thread of its own: a wait for the next death
//! is the one thing that no poll can do here.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, wait, waitid};

/// How soon an orphan is reaped of whose coming nothing was heard.
const REAP_EVERY: Duration = Duration::from_secs(1);

/// Deaths taken before a birth gets its turn.
const MOST_AT_ONCE: usize = 64;

/// The thread that reaps.
pub(crate) struct Reaper {
    births: Arc<Mutex<()>>,
    wake: SyncSender<()>,
}

impl Reaper {
    /// Starts it; it ends with the process.
    pub(crate) fn start() -> io::Result<Self> {
        let births = Arc::new(Mutex::new(()));
        let (wake, woken) = sync_channel(1);
        let same = Arc::clone(&births);
        let stack = thread::Builder::new().stack_size(64 * 1024);
        stack.spawn(move || reap_for_ever(&same, &woken))?;
        Ok(Self { births, wake })
    }

    /// While this is held no child is reaped: the number of one that is being
    /// started so cannot become another's before it is known by a descriptor.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.births.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There may be a child now.
    pub(crate) fn wake(&self) {
        let _ = self.wake.try_send(());
    }
}

/// Reaps as children end; with no child at all it waits to be told of one.
fn reap_for_ever(births: &Mutex<()>, woken: &Receiver<()>) {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => {
                let _hold = births.lock().unwrap_or_else(PoisonError::into_inner);
                let mut deaths = (0..MOST_AT_ONCE).map_while(|_| wait(WaitOptions::NOHANG).ok()?);
                while deaths.next().is_some() {}
            }
            Err(Errno::INTR) => {}
            Err(_) => drop(woken.recv_timeout(REAP_EVERY)),
        }
    }
}
