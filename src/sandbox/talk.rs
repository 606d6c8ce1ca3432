//! One conversation in frames with tool-client, whatever way leads to it:
//! hands over the request once the other side says that it is ready, moves
//! bytes both ways, keeps the time, and ends it. What comes from the other
//! side is hostile: memory is bounded by one frame each way, and one that is
//! silent, stalls or breaks a rule is cut.

mod frames;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use serde_json::Value;
use tool_client::frame;

use super::process::Process;
use super::pump::{CalledOff, Note, Pump};
use super::{Feed, Output};
use crate::error::{Error, Kind, Result};
use crate::worker::{self, Cancel};
use frames::Frames;

/// How long tool-client may take to say that it is ready, at most.
pub(super) const READY_LIMIT: Duration = Duration::from_secs(60);

/// After which it is looked whether it can.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// How long a write may find no room. An honest other side always has some:
/// standard input has its window, and all else is small.
pub(super) const STALL_LIMIT: Duration = Duration::from_secs(4);

/// Notes under way to the side that writes: the side that reads waits for it
/// after that, so that a flood of windows costs the sender only.
const MOST_NOTES: usize = 64;

/// What leads to a tool-client.
pub(super) trait Way: Sync {
    /// Where it is written to.
    fn input(&self) -> &File;

    /// Where it is read from.
    fn output(&self) -> &File;

    /// Reads the first bytes, and looks who wrote them where that can be told.
    fn meet(&self, into: &mut [u8]) -> io::Result<usize>;

    /// Called once it is ready and before it is given any work.
    fn begin(&self) -> Result<()>;

    /// Whether who is ready is who it should be.
    fn may_begin(&self) -> bool;

    /// The supervisor and all that runs below it now, as far as the host can
    /// see; `None` if it cannot.
    fn started(&self) -> Option<Vec<Process>>;

    /// Ends it: a read from it ends, a write to it fails.
    fn cut(&self);
}

/// What is said.
pub(super) struct Talk<'a> {
    /// A JSON object.
    pub(super) request: &'a [u8],
    /// What is fed in.
    pub(super) feed: &'a Feed,
    /// Who takes what comes out.
    pub(super) output: &'a mut dyn Output,
    /// How long the other side may take to be ready.
    pub(super) ready_within: Duration,
    /// After which it is called off, from then on.
    pub(super) timeout: Option<Duration>,
    /// Calls it off.
    pub(super) cancel: &'a Cancel,
    /// Asked once if the other side is slow to be ready: whether it is worth
    /// to wait on.
    pub(super) is_up: &'a (dyn Fn() -> bool + Sync),
}

/// How a talk ended.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    /// Nothing was begun; with what the other side said to that.
    NeverBegan(String),
    /// Nothing was begun before that signal came, by which a command would have
    /// ended.
    Signalled(u8),
    /// It had begun and is over.
    Over(Over),
}

/// How a talk ended that had begun.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Over {
    /// tool-client's report, if it gave one.
    pub(super) report: Option<Value>,
    /// Why it was called off, if it was.
    pub(super) called_off: Option<CalledOff>,
    /// It let the time for a report pass, or took nothing any more.
    pub(super) is_silent: bool,
    /// What ran when it was called off, where that could be seen.
    pub(super) ran: Option<Vec<Process>>,
}

/// Stays with the conversation to its end. An error is one of `begin`, or of
/// this process; nothing was begun then.
pub(super) fn talk(way: &dyn Way, talk: Talk<'_>) -> Result<End> {
    let Talk { request, feed, output, ready_within, timeout, cancel, is_up } = talk;
    let stage = Stage::default();
    let (notes, heard) = bounded(MOST_NOTES);
    let feeder = Feeder { way, feed, heard, ready_within, timeout, cancel, stage: &stage, is_up };
    thread::scope(|scope| {
        let feeding = worker::scoped(scope, "call-in", move || feeder.run())?;
        let heard = Listener { way, notes, stage: &stage }.run(request, output);
        // Whatever runs there now is only on its way out; the cut also frees
        // a feeder that is blocked in a write.
        way.cut();
        let fed = feeding.join();
        let fed = fed.map_err(|_| Error::new(Kind::Internal, "the thread `call-in` panicked"))?;
        Ok(match (heard?, fed) {
            (Heard::Refusal(_), Fed::Signalled(number)) => End::Signalled(number),
            (Heard::Refusal(why), _) => End::NeverBegan(why),
            (Heard::Begun(report), Fed::Over(fed)) => End::Over(Over { report, ..fed }),
            (Heard::Begun(report), _) => End::Over(Over { report, ..Over::default() }),
        })
    })
}

/// Whether it has begun or was given up before: whoever says so first has won.
#[derive(Default)]
struct Stage(AtomicU8);

const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Stage {
    fn begin(&self) -> bool {
        self.0.compare_exchange(0, BEGUN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn give_up(&self) -> bool {
        self.0.compare_exchange(0, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// What the side that reads has to tell in the end.
enum Heard {
    /// Nothing was begun, and why.
    Refusal(String),
    /// It was; with the report, if one came.
    Begun(Option<Value>),
}

/// The side that reads, on the calling thread: bwrap's `--die-with-parent`
/// follows the thread that spawned it. It hands over the request too, so that
/// no other thread has to be woken for that.
struct Listener<'a> {
    way: &'a dyn Way,
    /// Dropped with it, which tells the feeder that the talk is over.
    notes: Sender<Note>,
    stage: &'a Stage,
}

impl Listener<'_> {
    fn run(self, request: &[u8], output: &mut dyn Output) -> Result<Heard> {
        let mut frames = Frames::new(self.way.output());
        if let Some(why) = self.why_not_ready(&mut frames) {
            return Ok(Heard::Refusal(why));
        }
        self.way.begin()?;
        if !self.stage.begin() {
            return Ok(Heard::Refusal(String::new()));
        }
        // A write that fails means that the other side is gone, or as good as
        // that; what it said before is still to be read.
        if frame::write_request(&mut Patient(self.way.input()), request).is_ok() {
            let _ = self.notes.send(Note::Ready);
        }
        Ok(Heard::Begun(self.listen(&mut frames, output)))
    }

    /// `None` once the other side is ready; else what it said instead.
    fn why_not_ready(&self, frames: &mut Frames<'_>) -> Option<String> {
        let first = match frames.first(|into| self.way.meet(into)) {
            Ok(Some(first)) => first,
            Ok(None) => return Some(String::new()),
            Err(error) => return Some(error.to_string()),
        };
        match first {
            (frame::READY, []) if self.way.may_begin() => None,
            (frame::EXIT, report) => Some(refusal(report)),
            (kind, _) => Some(format!("a frame of kind {kind} came first")),
        }
    }

    /// Reads frames to the report, to the end of the stream or to one that
    /// breaks a rule.
    fn listen(&self, frames: &mut Frames<'_>, output: &mut dyn Output) -> Option<Value> {
        let mut taker_gone = false;
        loop {
            let (kind, payload) = frames.next().ok()??;
            let taken = match kind {
                frame::STDOUT if !taker_gone => output.stdout(payload),
                frame::STDERR if !taker_gone => output.stderr(payload),
                frame::STDOUT | frame::STDERR => Ok(()),
                frame::WINDOW => {
                    let more = u32::from_be_bytes(payload.try_into().ok()?);
                    // A feeder that has given up needs no notes.
                    let _ = self.notes.send(Note::Window(more));
                    output.window(more)
                }
                frame::EXIT => return serde_json::from_slice(payload).ok(),
                _ => return None,
            };
            if taken.is_err() && !taker_gone {
                taker_gone = true;
                let _ = self.notes.send(Note::TakerGone);
            }
        }
    }
}

/// Why a call was refused, of the words of a report.
fn refusal(report: &[u8]) -> String {
    let report: Value = serde_json::from_slice(report).unwrap_or_default();
    report.get("error").and_then(Value::as_str).unwrap_or("it was refused").to_owned()
}

/// What the side that writes has to tell in the end.
enum Fed {
    /// It gave up, or was not needed.
    Nothing,
    /// It gave up, since that signal came.
    Signalled(u8),
    /// All but the report.
    Over(Over),
}

/// Whether the request was handed over.
enum Start {
    /// It was; with a signal that came just before.
    Made(Option<u8>),
    /// It will not be; with the signal for which that is so, if it is for one.
    GivenUp(Option<u8>),
}

/// The side that writes: waits until it has begun, then pumps.
struct Feeder<'a> {
    way: &'a dyn Way,
    feed: &'a Feed,
    /// Owned: a note that nobody takes any more must not be waited for.
    heard: Receiver<Note>,
    ready_within: Duration,
    timeout: Option<Duration>,
    cancel: &'a Cancel,
    stage: &'a Stage,
    is_up: &'a (dyn Fn() -> bool + Sync),
}

impl Feeder<'_> {
    fn run(self) -> Fed {
        let mut to = Patient(self.way.input());
        match self.start() {
            Start::GivenUp(signal) => {
                self.way.cut();
                return signal.map_or(Fed::Nothing, Fed::Signalled);
            }
            Start::Made(None) => {}
            // One that cannot be written is seen by the side that reads.
            Start::Made(Some(number)) => drop(frame::write(&mut to, frame::SIGNAL, &[number])),
        }
        let mut ran = None;
        let pump = Pump {
            feed: self.feed,
            heard: &self.heard,
            timeout: self.timeout,
            cancel: self.cancel,
        };
        let pumped = pump.run(&mut to, || ran = self.way.started());
        if pumped.is_silent {
            self.way.cut();
        }
        let (called_off, is_silent) = (pumped.called_off, pumped.is_silent);
        Fed::Over(Over { report: None, called_off, is_silent, ran })
    }

    /// Waits until the request was handed over. A talk that is called off before
    /// that, or never gets so far, is given up; so is one for which a signal
    /// comes: there is no command yet that could hear it.
    fn start(&self) -> Start {
        let mut signals = self.feed.signals.clone();
        let mut signal = None;
        let mut cancelled = self.cancel.gone().clone();
        let mut look = after(LOOK_AFTER);
        let limit = after(self.ready_within);
        loop {
            select! {
                recv(self.heard) -> note => return match note {
                    Ok(_) => Start::Made(signal),
                    Err(_) => Start::GivenUp(None),
                },
                recv(signals) -> number => {
                    match number {
                        Ok(number) => signal = Some(number),
                        Err(_) => signals = never(),
                    }
                    if !signal.is_some_and(ends) {
                        continue;
                    }
                }
                recv(cancelled) -> _ => cancelled = never(),
                recv(limit) -> _ => {}
                recv(look) -> _ => {
                    look = never();
                    if (self.is_up)() {
                        continue;
                    }
                }
            }
            // Else it has just begun: the pump sees that it is called off.
            if self.stage.give_up() {
                return Start::GivenUp(signal.filter(|it| ends(*it)));
            }
        }
    }
}

/// Whether a signal ends who has not provided for it.
pub(super) fn ends(signal: u8) -> bool {
    !matches!(
        Signal::from_named_raw(i32::from(signal)),
        None | Some(
            Signal::CHILD
                | Signal::CONT
                | Signal::STOP
                | Signal::TSTP
                | Signal::TTIN
                | Signal::TTOU
                | Signal::URG
                | Signal::WINCH
        )
    )
}

/// Writes to a side that may take its time, but not for ever.
struct Patient<'a>(&'a File);

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut to = self.0;
        match to.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_for_room(self.0)?;
                to.write(bytes)
            }
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn wait_for_room(to: &File) -> io::Result<()> {
    let limit = Timespec { tv_sec: STALL_LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
    let mut state = [PollFd::new(to, PollFlags::OUT)];
    match poll(&mut state, Some(&limit)) {
        Ok(0) => Err(io::Error::new(ErrorKind::TimedOut, "the other side takes nothing")),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
