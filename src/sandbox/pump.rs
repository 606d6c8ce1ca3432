//! The writing side of a framed talk: standard input within its window,
//! signals past it, cancel and deadlines. The gateway pumps into tool-client
//! with it, and `beige exec` into the gateway.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use crossbeam_channel::{Receiver, after, never, select};
use tool_client::frame;

use super::Feed;
use crate::worker::Cancel;

/// How long the other side may take to report after it was called off;
/// tool-client gives a tree that resists five seconds itself.
pub const REPORT_LIMIT: Duration = Duration::from_secs(8);

/// Pieces of standard input under way: each costs the kernel far more than its
/// bytes, so that many small ones would fill a socket long before the window.
const MOST_PIECES: usize = 64;

/// What the reading side of the talk tells the pump. Dropping the sender says
/// that the talk is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The request is handed over.
    Ready,
    /// So many more bytes of standard input may be sent.
    Window(u32),
    /// Nobody takes the output any more.
    TakerGone,
}

/// Why a talk was called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalledOff {
    /// The time was up.
    Timeout,
    /// The caller wanted no more of it, or has gone.
    Cancelled,
}

/// How pumping ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pumped {
    /// Whether it was called off, and why first.
    pub called_off: Option<CalledOff>,
    /// The other side let the deadline pass without a report, or took nothing
    /// of what it was sent.
    pub is_silent: bool,
}

/// What is pumped and what is listened to.
pub struct Pump<'a> {
    /// Standard input and signals.
    pub feed: &'a Feed,
    /// From the reading side.
    pub heard: &'a Receiver<Note>,
    /// After which the talk is called off.
    pub timeout: Option<Duration>,
    /// Calls the talk off.
    pub cancel: &'a Cancel,
}

/// What of standard input is on its way.
struct Flow {
    window: usize,
    waiting: Vec<u8>,
    /// Sent since the other side had taken all.
    pieces: usize,
    ended: bool,
}

/// What came next.
enum Step {
    Over,
    Silent,
    CallOff(CalledOff),
    Flow(Move),
    NoSignals,
    Nothing,
}

/// What came next of what is pumped.
enum Move {
    Grant(u32),
    Bytes(Vec<u8>),
    EndOfInput,
    Signal(u8),
}

impl Pump<'_> {
    /// Pumps until the talk is over, and keeps its time. `before_end` is called
    /// once, right before the other side is told to end. That the other side
    /// is gone is seen by the reading side, so a write that fails ends only
    /// the input.
    pub fn run(self, to: &mut impl Write, before_end: impl FnOnce()) -> Pumped {
        let mut before_end = Some(before_end);
        let mut flow = Flow::new();
        let mut pumped = Pumped::default();
        let mut signals = self.feed.signals.clone();
        let mut cancelled = self.cancel.gone().clone();
        let mut time_up = self.timeout.map_or_else(never, after);
        let mut silent = never();
        loop {
            let input = if flow.is_open() { self.feed.stdin.clone() } else { never() };
            let step = select! {
                recv(self.heard) -> note => Step::noted(note.ok()),
                recv(input) -> bytes => Step::Flow(bytes.map_or(Move::EndOfInput, Move::Bytes)),
                recv(signals) -> number =>
                    number.map_or(Step::NoSignals, |it| Step::Flow(Move::Signal(it))),
                recv(cancelled) -> _ => Step::CallOff(CalledOff::Cancelled),
                recv(time_up) -> _ => Step::CallOff(CalledOff::Timeout),
                recv(silent) -> _ => Step::Silent,
            };
            let written = match step {
                Step::Over => return pumped,
                Step::Silent => return Pumped { is_silent: true, ..pumped },
                Step::NoSignals => {
                    signals = never();
                    Ok(())
                }
                Step::CallOff(why) if pumped.called_off.is_none() => {
                    pumped.called_off = Some(why);
                    (cancelled, time_up, silent) = (never(), never(), after(REPORT_LIMIT));
                    flow.stop();
                    before_end.take().into_iter().for_each(|it| it());
                    frame::write(to, frame::CANCEL, &[])
                }
                Step::Flow(it) => flow.step(to, it),
                Step::CallOff(_) | Step::Nothing => Ok(()),
            };
            match written {
                Err(error) if is_stalled(&error) => {
                    return Pumped { is_silent: true, ..pumped };
                }
                Err(_) => {
                    flow.stop();
                    signals = never();
                }
                Ok(()) => {}
            }
        }
    }
}

/// Nothing of a write was taken in all its time.
fn is_stalled(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

impl Step {
    fn noted(note: Option<Note>) -> Self {
        match note {
            Some(Note::Window(more)) => Self::Flow(Move::Grant(more)),
            Some(Note::TakerGone) => Self::CallOff(CalledOff::Cancelled),
            Some(Note::Ready) => Self::Nothing,
            None => Self::Over,
        }
    }
}

impl Flow {
    fn new() -> Self {
        let window = frame::WINDOW_START as usize;
        Self { window, waiting: Vec::new(), pieces: 0, ended: false }
    }

    /// Whether more input can be taken.
    fn is_open(&self) -> bool {
        self.waiting.is_empty() && !self.ended
    }

    fn step(&mut self, to: &mut impl Write, step: Move) -> io::Result<()> {
        match step {
            Move::Grant(more) => self.grant(more as usize),
            Move::Bytes(bytes) => self.waiting = bytes,
            Move::Signal(number) => frame::write(to, frame::SIGNAL, &[number])?,
            Move::EndOfInput => {
                self.ended = true;
                frame::write(to, frame::STDIN_END, &[])?;
            }
        }
        let now = self.waiting.len().min(self.window);
        if now == 0 || self.pieces >= MOST_PIECES {
            return Ok(());
        }
        for piece in self.waiting.get(..now).unwrap_or_default().chunks(frame::MAX_PAYLOAD) {
            frame::write(to, frame::STDIN, piece)?;
            self.pieces += 1;
        }
        self.window -= now;
        self.waiting.drain(..now);
        Ok(())
    }

    /// No more than all of it is ever under way, whatever the other side says.
    fn grant(&mut self, more: usize) {
        let all = frame::WINDOW_START as usize;
        self.window = self.window.saturating_add(more).min(all);
        if self.window == all {
            self.pieces = 0;
        }
    }

    /// No more input goes out.
    fn stop(&mut self) {
        self.ended = true;
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{bounded, unbounded};

    use super::*;

    /// Pumps what is there and gives the frames that went out.
    fn pumped(pieces: &[usize], notes: &[Note], signal: Option<u8>) -> Vec<(u8, usize)> {
        let (stdin_in, stdin) = unbounded();
        let (signals_in, signals) = bounded(1);
        let (notes_in, heard) = unbounded();
        for size in pieces {
            stdin_in.send(vec![b'x'; *size]).expect("open");
        }
        for note in notes {
            notes_in.send(*note).expect("open");
        }
        if let Some(number) = signal {
            signals_in.send(number).expect("open");
        }
        let (canceller, cancel) = Cancel::pair();
        let feed = Feed { stdin, signals };
        let mut wire =
            Wire { bytes: Vec::new(), until: pieces.iter().sum(), notes: Some(notes_in) };
        let pump = Pump { feed: &feed, heard: &heard, timeout: None, cancel: &cancel };
        assert!(!pump.run(&mut wire, || ()).is_silent);
        drop(canceller);
        let mut from = wire.bytes.as_slice();
        let mut frames = Vec::new();
        while let Some(frame) = frame::read(&mut from).expect("sound") {
            frames.push((frame.kind, frame.payload.len()));
        }
        frames
    }

    /// Ends the talk once the window is used up or all has come.
    struct Wire {
        bytes: Vec<u8>,
        until: usize,
        notes: Option<crossbeam_channel::Sender<Note>>,
    }

    impl Write for Wire {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes.extend_from_slice(bytes);
            if self.bytes.len() >= self.until.min(frame::WINDOW_START as usize) {
                self.notes.take();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn input_stops_at_the_window() {
        let window = frame::WINDOW_START as usize;
        let sent: usize = pumped(&[window + 5_000], &[], None).iter().map(|it| it.1).sum();
        assert_eq!(sent, window);
    }

    #[test]
    fn small_input_goes_out_as_it_came() {
        assert!(pumped(&[3], &[], None).contains(&(frame::STDIN, 3)));
    }

    #[test]
    fn a_taker_that_is_gone_calls_the_talk_off() {
        let frames = pumped(&[], &[Note::TakerGone], None);
        assert_eq!(frames, [(frame::CANCEL, 0)]);
    }
}
