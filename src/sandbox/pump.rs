//! The writing side of a framed talk: standard input within its window,
//! signals past it, cancel and deadlines. The gateway pumps into tool-client
//! with it, and `beige exec` into the gateway.

use std::io::{self, Write};
use std::time::Duration;

use crossbeam_channel::{Receiver, after, never, select};
use tool_client::frame;

use super::Feed;
use crate::worker::Cancel;

/// How long the other side may take to report after a cancel or a timeout;
/// tool-client gives a tree that resists five seconds itself.
pub const REPORT_LIMIT: Duration = Duration::from_secs(8);

/// What the reading side of the talk tells the pump. Dropping the sender says
/// that the talk is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The other side is ready for a request.
    Ready,
    /// So many more bytes of standard input may be sent.
    Window(u32),
    /// Nobody takes the output any more.
    TakerGone,
}

/// How pumping ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// The talk is over.
    Over,
    /// The other side let the deadline pass without a report.
    Silent,
}

/// What is pumped and what is listened to.
pub struct Pump<'a> {
    /// Standard input and signals.
    pub feed: &'a Feed,
    /// From the reading side.
    pub heard: &'a Receiver<Note>,
    /// After which the other side reports by itself.
    pub timeout: Option<Duration>,
    /// Calls the talk off.
    pub cancel: &'a Cancel,
}

/// What of standard input is on its way.
struct Flow {
    window: usize,
    waiting: Vec<u8>,
    ended: bool,
}

/// What came next.
enum Step {
    Over,
    Silent,
    Grant(u32),
    Bytes(Vec<u8>),
    EndOfInput,
    Signal(u8),
    NoSignals,
    CallOff,
    Nothing,
}

impl Pump<'_> {
    /// Pumps until the talk is over. A write that fails is an error: the other
    /// side is gone, which the reading side sees as well.
    pub fn run(self, to: &mut impl Write) -> io::Result<Pumped> {
        let mut flow =
            Flow { window: frame::WINDOW_START as usize, waiting: Vec::new(), ended: false };
        let mut signals = self.feed.signals.clone();
        let mut cancelled = self.cancel.gone().clone();
        let mut deadline = self.timeout.map_or_else(never, |it| after(it + REPORT_LIMIT));
        loop {
            let open = flow.waiting.is_empty() && !flow.ended;
            let input = if open { self.feed.stdin.clone() } else { never() };
            let step = select! {
                recv(self.heard) -> note => match note {
                    Ok(Note::Window(more)) => Step::Grant(more),
                    Ok(Note::TakerGone) => Step::CallOff,
                    Ok(Note::Ready) => Step::Nothing,
                    Err(_) => Step::Over,
                },
                recv(input) -> bytes => bytes.map_or(Step::EndOfInput, Step::Bytes),
                recv(signals) -> number => number.map_or(Step::NoSignals, Step::Signal),
                recv(cancelled) -> _ => Step::CallOff,
                recv(deadline) -> _ => Step::Silent,
            };
            match step {
                Step::Over => return Ok(Pumped::Over),
                Step::Silent => return Ok(Pumped::Silent),
                Step::NoSignals => signals = never(),
                Step::CallOff => {
                    frame::write(to, frame::CANCEL, &[])?;
                    cancelled = never();
                    deadline = after(REPORT_LIMIT);
                    flow.stop();
                }
                other => flow.step(to, other)?,
            }
        }
    }
}

impl Flow {
    fn step(&mut self, to: &mut impl Write, step: Step) -> io::Result<()> {
        match step {
            Step::Grant(more) => self.window = self.window.saturating_add(more as usize),
            Step::Bytes(bytes) => self.waiting = bytes,
            Step::Signal(number) => frame::write(to, frame::SIGNAL, &[number])?,
            Step::EndOfInput => {
                self.ended = true;
                frame::write(to, frame::STDIN_END, &[])?;
            }
            _ => {}
        }
        let now = self.waiting.len().min(self.window);
        for piece in self.waiting[..now].chunks(frame::MAX_PAYLOAD) {
            frame::write(to, frame::STDIN, piece)?;
        }
        self.window -= now;
        self.waiting.drain(..now);
        Ok(())
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
        let mut wire = Wire { bytes: Vec::new(), until: pieces.iter().sum(), notes: Some(notes_in) };
        let pump = Pump { feed: &feed, heard: &heard, timeout: None, cancel: &cancel };
        pump.run(&mut wire).expect("written");
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
