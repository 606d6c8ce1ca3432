//! Wakes what somebody inside has stopped while it was being started. The kernel
//! holds whoever starts a program until that runs; a child that is stopped
//! before would hold PID 1, and with it every call, for ever.

use std::fs;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::tree;

/// How long a start may take until its child is woken, each time.
const PATIENCE: Duration = Duration::from_millis(50);

/// The name of every process that PID 1 starts, from before it runs on.
const NAME: &[u8] = b"tool-client";

/// The thread that wakes; it ends with the process.
pub(crate) struct Waker(Arc<Shared>);

#[derive(Default)]
struct Shared {
    starts: Mutex<bool>,
    news: Condvar,
}

impl Waker {
    /// Starts it.
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let same = Arc::clone(&shared);
        thread::Builder::new().stack_size(64 * 1024).spawn(move || same.wake_for_ever())?;
        Ok(Self(shared))
    }

    /// Starts something; a child of it that is stopped is woken meanwhile.
    pub(crate) fn while_waking<T>(&self, start: impl FnOnce() -> T) -> T {
        *self.0.lock() = true;
        self.0.news.notify_one();
        let started = start();
        *self.0.lock() = false;
        started
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_for_ever(&self) {
        let mut starts = self.lock();
        loop {
            if !*starts {
                starts = self.news.wait(starts).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.news.wait_timeout(starts, PATIENCE);
            let (again, result) = waited.unwrap_or_else(PoisonError::into_inner);
            starts = again;
            if *starts && result.timed_out() {
                drop(starts);
                wake_children();
                starts = self.lock();
            }
        }
    }
}

/// Wakes each child of ours that is stopped and has our name.
fn wake_children() {
    let own = getpid().as_raw_nonzero().get();
    let children = tree::processes().into_iter().filter(|it| it.parent == own);
    for child in children.filter(|it| is_stopped(it.pid)) {
        if let Some(pid) = Pid::from_raw(child.pid) {
            // Fails only if it is gone.
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

fn is_stopped(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let begin = [b" (", NAME, b") T "].concat();
    line.windows(begin.len()).any(|it| it == begin)
}
