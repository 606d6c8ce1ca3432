//! Many requests at the same time, each tried again as long as the gateway
//! says that it has no room: what `beige prompt` does by itself.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::Result;
use crate::http::Reply;
use crate::process::{self, Moment};
use crate::rounds::milliseconds;

/// Pause before a request that found no room is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// How long one may be tried.
const PATIENCE: Duration = Duration::from_secs(300);

/// Stack of one of many threads, in bytes.
const SMALL_STACK: usize = 256 * 1024;

/// What a crowd has met.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Milliseconds until each was answered.
    pub(crate) times: Vec<f64>,
    /// Milliseconds until all were.
    pub(crate) wall: f64,
    /// How often one found no room and came again.
    pub(crate) retries: u64,
}

/// Sends `count` requests at once, `ask(0)`, `ask(1)`, …, and waits for all. An
/// error if one was not answered with 200.
pub(crate) fn all_at_once(
    count: usize,
    ask: impl Fn(usize) -> Result<Reply> + Sync,
) -> Result<Outcome> {
    let retries = AtomicU64::new(0);
    let gate = Barrier::new(count + 1);
    let one = |number: usize| -> Result<f64> {
        gate.wait();
        let begun = Instant::now();
        insist(begun, &retries, || ask(number))?;
        Ok(milliseconds(begun.elapsed()))
    };
    let (one, gate) = (&one, &gate);
    let (begun, times) = thread::scope(|scope| -> Result<_> {
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let builder = thread::Builder::new().stack_size(SMALL_STACK);
            threads.push(builder.spawn_scoped(scope, move || one(number))?);
        }
        gate.wait();
        let begun = Instant::now();
        let ended = threads.into_iter().map(|it| it.join().map_err(|_| "a thread panicked")?);
        Ok((begun, ended.collect::<Result<Vec<f64>>>()?))
    })?;
    let wall = milliseconds(begun.elapsed());
    Ok(Outcome { times, wall, retries: retries.into_inner() })
}

/// `workers` threads share `count` requests, one after another each.
pub(crate) fn in_turns(
    workers: usize,
    count: usize,
    ask: impl Fn(usize, usize) -> Result<Reply> + Sync,
) -> Result<()> {
    let (ask, retries) = (&ask, AtomicU64::new(0));
    let retries = &retries;
    thread::scope(|scope| {
        let work = |worker: usize| {
            move || {
                let mine = (worker..count).step_by(workers).enumerate();
                mine.map(|it| it.0)
                    .try_for_each(|turn| insist(Instant::now(), retries, || ask(worker, turn)))
            }
        };
        let threads: Vec<_> = (0..workers).map(|it| scope.spawn(work(it))).collect();
        threads.into_iter().try_for_each(|it| it.join().map_err(|_| "a thread panicked")?)
    })
}

/// Asks until there is room.
fn insist(begun: Instant, retries: &AtomicU64, ask: impl Fn() -> Result<Reply>) -> Result<()> {
    loop {
        let asked = ask();
        if !found_no_room(&asked) || begun.elapsed() > PATIENCE {
            return asked.and_then(Reply::sound).map(drop);
        }
        retries.fetch_add(1, Ordering::Relaxed);
        sleep(AGAIN_AFTER);
    }
}

/// Whether it was sent away, or its connection was cut to make room.
fn found_no_room(asked: &Result<Reply>) -> bool {
    match asked {
        Ok(reply) => reply.status == 503,
        Err(error) => error.is::<std::io::Error>(),
    }
}

/// What a process was before, at most during and after something.
#[derive(Debug)]
pub(crate) struct Course {
    /// Before.
    pub(crate) before: Moment,
    /// The most memory during it, in bytes.
    pub(crate) peak: u64,
    /// The most threads during it.
    pub(crate) threads: u64,
    /// After, once quiet.
    pub(crate) after: Moment,
}

/// Watches a process during an act.
pub(crate) fn watched<T>(pid: u32, act: impl FnOnce() -> Result<T>) -> Result<(T, Course)> {
    let before = process::when_quiet(pid)?;
    process::forget_peak(pid)?;
    let ended = AtomicBool::new(false);
    let (done, threads) = thread::scope(|scope| {
        let watcher = scope.spawn(|| most_threads(pid, &ended));
        let done = act();
        ended.store(true, Ordering::Relaxed);
        (done, watcher.join().unwrap_or(0))
    });
    let done = done?;
    let peak = process::look(pid)?.peak;
    let after = process::when_quiet(pid)?;
    Ok((done, Course { before, peak, threads, after }))
}

fn most_threads(pid: u32, ended: &AtomicBool) -> u64 {
    let mut most = 0;
    while !ended.load(Ordering::Relaxed) {
        most = most.max(process::look(pid).map_or(0, |it| it.threads));
        sleep(Duration::from_millis(20));
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16) -> Reply {
        Reply { status, body: Vec::new() }
    }

    #[test]
    fn all_are_answered_and_one_without_room_comes_again() {
        let asked = AtomicU64::new(0);
        let outcome = all_at_once(3, |_| {
            let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
            Ok(reply(if is_first { 503 } else { 200 }))
        });
        let outcome = outcome.expect("all are answered");
        assert_eq!((outcome.times.len(), outcome.retries), (3, 1));
        assert_eq!(asked.into_inner(), 4);
    }

    #[test]
    fn one_failure_fails_the_crowd() {
        let ask = |number| Ok(reply(if number == 1 { 500 } else { 200 }));
        assert!(all_at_once(3, ask).is_err());
    }

    #[test]
    fn turns_are_shared() {
        let asked = AtomicU64::new(0);
        in_turns(4, 10, |_, _| {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(reply(200))
        })
        .expect("all are answered");
        assert_eq!(asked.into_inner(), 10);
    }
}
