//! Threads that do the file operations, so that none needs a process: the
//! first ones are there from the start, more come while all are busy and leave
//! when they are not needed, and what is too much waits.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::calls::refuse;
use crate::conversation::Conversation;
use crate::file::Inside;

/// Threads that stay.
const STAYING: usize = 2;

/// Threads at a time.
const MOST_THREADS: usize = 8;

/// Operations that wait at a time.
const MOST_WAITING: usize = 256;

/// After which a thread leaves that has nothing to do.
const IDLE: Duration = Duration::from_secs(10);

/// How often it is looked whether one is still under way, where that matters.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Bytes of stack; buffers and contents are not on it.
const STACK: usize = 256 * 1024;

/// The threads and what waits for them.
pub(crate) struct Files(Arc<Shared>);

struct Shared {
    inside: Inside,
    queue: Mutex<Queue>,
    news: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
    idle: usize,
}

impl Files {
    /// Starts the threads that stay; an error if not even they can be.
    pub(crate) fn start() -> io::Result<Self> {
        let files = Self(Arc::new(Shared {
            inside: Inside::open(),
            queue: Mutex::default(),
            news: Condvar::default(),
        }));
        for _ in 0..STAYING {
            files.start_one()?;
        }
        Ok(files)
    }

    /// Takes an operation.
    pub(crate) fn add(&self, call: OwnedFd) {
        let mut queue = self.0.lock();
        if queue.waiting.len() >= MOST_WAITING {
            return refuse(&call, "too many file operations wait in this sandbox; try again later");
        }
        queue.waiting.push_back(call);
        let is_short = queue.waiting.len() > queue.idle && queue.threads < MOST_THREADS;
        drop(queue);
        self.0.news.notify_one();
        if is_short {
            // Without another thread it waits for one of those that stay.
            let _ = self.start_one();
        }
    }

    /// Whether one waits or is under way.
    pub(crate) fn any(&self) -> bool {
        let queue = self.0.lock();
        !queue.waiting.is_empty() || queue.idle < queue.threads
    }

    /// When to look again whether one is under way: nothing tells.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        now.checked_add(LOOK_EVERY).filter(|_| self.any())
    }

    fn start_one(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.0);
        self.0.lock().threads += 1;
        let started = thread::Builder::new().stack_size(STACK).spawn(move || shared.work());
        if started.is_err() {
            self.0.lock().threads -= 1;
        }
        started.map(drop)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One thread: does one operation after the other.
    fn work(&self) {
        while let Some(call) = self.next() {
            if let Ok(conversation) = Conversation::on(call) {
                self.inside.serve(conversation);
            }
        }
    }

    /// The next operation; `None` when this thread is to leave.
    fn next(&self) -> Option<OwnedFd> {
        let mut queue = self.lock();
        queue.idle += 1;
        let next = loop {
            if let Some(call) = queue.waiting.pop_front() {
                break Some(call);
            }
            if queue.threads <= STAYING {
                queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.news.wait_timeout(queue, IDLE);
            let (again, result) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = again;
            if result.timed_out() && queue.waiting.is_empty() && queue.threads > STAYING {
                queue.threads -= 1;
                break None;
            }
        };
        queue.idle -= 1;
        next
    }
}
