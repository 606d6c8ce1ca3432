//! The other side of a conversation, as it should be and as it must not.

#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::*;

/// A way to a thread of the test.
struct Pair(File);

impl Way for Pair {
    fn input(&self) -> &File {
        &self.0
    }

    fn output(&self) -> &File {
        &self.0
    }

    fn meet(&self, into: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(into)
    }

    fn begin(&self) -> Result<()> {
        Ok(())
    }

    fn may_begin(&self) -> bool {
        true
    }

    fn started(&self) -> Option<Vec<Process>> {
        None
    }

    fn cut(&self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

/// Keeps what came, and is gone after so many bytes.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    windows: u64,
    most: Option<usize>,
}

impl Output for Kept {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        match self.most {
            Some(most) if self.bytes.len() > most => Err(io::Error::other("gone")),
            _ => Ok(()),
        }
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdout(bytes)
    }

    fn window(&mut self, _: u32) -> io::Result<()> {
        self.windows += 1;
        Ok(())
    }
}

/// What a talk is given in a test.
struct Given<'a> {
    feed: &'a Feed,
    timeout: Option<Duration>,
    cancel: &'a Cancel,
    ready_within: Duration,
}

/// A talk with that other side; its socket is closed when it returns.
fn with(
    given: &Given<'_>,
    kept: &mut Kept,
    is_up: bool,
    other: impl FnOnce(UnixStream) + Send,
) -> End {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let way = Pair(File::from(OwnedFd::from(ours)));
    let Given { feed, timeout, cancel, ready_within } = *given;
    thread::scope(|scope| {
        scope.spawn(move || other(theirs));
        let talk = Talk {
            request: b"{}",
            feed,
            output: kept,
            ready_within,
            timeout,
            cancel,
            is_up: &move || is_up,
        };
        let end = super::talk(&way, talk).unwrap();
        drop(way);
        end
    })
}

fn said(other: impl FnOnce(UnixStream) + Send) -> (End, Kept) {
    let (feed, cancel) = (Feed::empty(), Cancel::never());
    let mut kept = Kept::default();
    let given = Given { feed: &feed, timeout: None, cancel: &cancel, ready_within: READY_LIMIT };
    let end = with(&given, &mut kept, true, other);
    (end, kept)
}

#[test]
fn a_complaint_in_place_of_frames_is_told() {
    let (end, _) = said(|mut socket| {
        socket.write_all(b"OCI runtime exec failed: no\n").unwrap();
    });
    assert_eq!(end, End::NeverBegan("OCI runtime exec failed: no".into()));
}

#[test]
fn who_is_not_ready_in_its_time_is_given_up() {
    let (feed, cancel) = (Feed::empty(), Cancel::never());
    let given = Given {
        feed: &feed,
        timeout: None,
        cancel: &cancel,
        ready_within: Duration::from_millis(1),
    };
    // It ends once it is cut, and says nothing before.
    let silent = |mut socket: UnixStream| drop(socket.read_to_end(&mut Vec::new()));
    let end = with(&given, &mut Kept::default(), true, silent);
    assert!(matches!(end, End::NeverBegan(_)), "{end:?}");
}

/// An other side that is ready, takes the request and then writes that.
fn saying(bytes: &[u8]) -> (End, Kept) {
    said(|mut socket| {
        begin(&mut socket);
        // The talk may be over before all is written.
        let _ = socket.write_all(bytes);
    })
}

fn begin(socket: &mut UnixStream) {
    frame::write(socket, frame::READY, &[]).unwrap();
    assert_eq!(frame::read(socket).unwrap().unwrap().kind, frame::REQUEST);
}

fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, kind, payload).unwrap();
    bytes
}

fn over(report: Option<Value>) -> End {
    End::Over(Over { report, ..Over::default() })
}

#[track_caller]
fn check_lost(bytes: &[u8]) {
    assert_eq!(saying(bytes).0, over(None), "{:?}", bytes.get(..16));
}

#[test]
fn a_report_ends_a_talk_and_what_follows_is_not_read() {
    let mut bytes = framed(frame::STDOUT, b"out");
    bytes.extend(framed(frame::EXIT, br#"{"exitCode":0}"#));
    bytes.extend(framed(frame::STDOUT, b"late"));
    bytes.extend(framed(frame::EXIT, br#"{"exitCode":1}"#));
    let (end, kept) = saying(&bytes);
    assert_eq!(end, over(Some(serde_json::json!({ "exitCode": 0 }))));
    assert_eq!(kept.bytes, b"out");
}

#[test]
fn frames_of_all_sizes_arrive_whole() {
    let mut bytes = Vec::new();
    let mut want = Vec::new();
    for size in [0, 1, 4090, 4091, 4096, frame::MAX_PAYLOAD, 3, frame::MAX_PAYLOAD] {
        let payload: Vec<u8> = (0..size).map(|it| (it % 251) as u8).collect();
        bytes.extend(framed(frame::STDOUT, &payload));
        want.extend(payload);
    }
    bytes.extend(framed(frame::EXIT, b"{}"));
    let (end, kept) = saying(&bytes);
    assert_eq!(end, over(Some(serde_json::json!({}))));
    assert!(kept.bytes == want, "{} of {} bytes", kept.bytes.len(), want.len());
}

#[test]
fn what_breaks_a_rule_loses_the_call() {
    check_lost(&[]);
    check_lost(&[frame::STDOUT, 0xff, 0xff, 0xff, 0xff]);
    check_lost(&[frame::STDOUT, 0, 1, 0, 1]);
    check_lost(&[frame::STDOUT, 0, 0, 0, 9, b'x']);
    check_lost(&[frame::STDOUT, 0, 0]);
    check_lost(&framed(99, b""));
    check_lost(&framed(frame::READY, b""));
    check_lost(&framed(frame::REQUEST, b"{}"));
    check_lost(&framed(frame::WINDOW, b"123"));
    check_lost(&framed(frame::EXIT, b"{"));
    check_lost(&framed(frame::EXIT, "[".repeat(60_000).as_bytes()));
    check_lost(&framed(frame::EXIT, &[0xff; 9]));
}

#[test]
fn a_first_frame_that_is_no_greeting_begins_nothing() {
    for first in [framed(frame::STDOUT, b"x"), framed(frame::READY, b"x"), framed(7, b"1234")] {
        let (end, _) = said(|mut socket| socket.write_all(&first).unwrap());
        assert!(matches!(end, End::NeverBegan(_)), "{end:?}");
    }
    assert_eq!(said(drop).0, End::NeverBegan(String::new()));
    let refused = framed(frame::EXIT, br#"{"error":"no room"}"#);
    let (end, _) = said(|mut socket| socket.write_all(&refused).unwrap());
    assert_eq!(end, End::NeverBegan("no room".into()));
}

#[test]
fn a_greeting_may_come_byte_by_byte() {
    let (end, _) = said(|mut socket| {
        for byte in framed(frame::READY, b"") {
            socket.write_all(&[byte]).unwrap();
        }
        assert_eq!(frame::read(&mut socket).unwrap().unwrap().kind, frame::REQUEST);
        frame::write(&mut socket, frame::EXIT, b"{}").unwrap();
    });
    assert_eq!(end, over(Some(serde_json::json!({}))));
}

#[test]
fn a_talk_that_is_called_off_before_it_begins_waits_for_nobody() {
    let (canceller, cancel) = Cancel::pair();
    canceller.cancel();
    let feed = Feed::empty();
    let given = Given { feed: &feed, timeout: None, cancel: &cancel, ready_within: READY_LIMIT };
    let end = with(&given, &mut Kept::default(), true, |mut socket| {
        assert_eq!(socket.read(&mut [0]).unwrap(), 0, "nothing is handed over");
    });
    assert_eq!(end, End::NeverBegan(String::new()));
}

#[test]
fn a_sandbox_that_is_down_is_not_waited_for() {
    let (feed, cancel) = (Feed::empty(), Cancel::never());
    let given = Given { feed: &feed, timeout: None, cancel: &cancel, ready_within: READY_LIMIT };
    let end = with(&given, &mut Kept::default(), false, |mut socket| {
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    });
    assert_eq!(end, End::NeverBegan(String::new()));
}

#[test]
fn a_flood_of_windows_is_taken_and_lets_out_no_more_than_one() {
    const FLOOD: u64 = 20_000;
    let (pieces, stdin) = crossbeam_channel::unbounded();
    pieces.send(vec![b'x'; 1024 * 1024]).unwrap();
    let (feed, cancel) = (Feed { stdin, ..Feed::empty() }, Cancel::never());
    let given = Given { feed: &feed, timeout: None, cancel: &cancel, ready_within: READY_LIMIT };
    let mut kept = Kept::default();
    let end = with(&given, &mut kept, true, |mut socket| {
        begin(&mut socket);
        let mut first = frame::read(&mut socket).unwrap().unwrap();
        assert_eq!((first.kind, first.payload.len()), (frame::STDIN, 48 * 1024));
        // It grants all there is, again and again, and reads nothing: the
        // feeder stalls, which ends the call.
        let flood = framed(frame::WINDOW, &u32::MAX.to_be_bytes());
        for _ in 0..FLOOD {
            if socket.write_all(&flood).is_err() {
                break;
            }
        }
        first.payload.clear();
        let _ = socket.read_to_end(&mut first.payload);
    });
    let End::Over(over) = end else { panic!("{end:?}") };
    assert_eq!(over.report, None);
    assert!(kept.windows <= FLOOD);
    drop(pieces);
}

#[test]
fn the_time_is_kept_here_and_the_other_side_told() {
    let (feed, cancel) = (Feed::empty(), Cancel::never());
    let timeout = Some(Duration::from_millis(1));
    let given = Given { feed: &feed, timeout, cancel: &cancel, ready_within: READY_LIMIT };
    let end = with(&given, &mut Kept::default(), true, |mut socket| {
        begin(&mut socket);
        while frame::read(&mut socket).unwrap().unwrap().kind != frame::CANCEL {}
        frame::write(&mut socket, frame::EXIT, br#"{"cancelled":true}"#).unwrap();
    });
    let report = Some(serde_json::json!({ "cancelled": true }));
    let called_off = Some(CalledOff::Timeout);
    assert_eq!(end, End::Over(Over { report, called_off, ..Over::default() }));
}

#[test]
fn a_taker_that_is_gone_calls_a_flood_off() {
    let (feed, cancel) = (Feed::empty(), Cancel::never());
    let given = Given { feed: &feed, timeout: None, cancel: &cancel, ready_within: READY_LIMIT };
    let mut kept = Kept { most: Some(10), ..Kept::default() };
    let end = with(&given, &mut kept, true, |mut socket| {
        begin(&mut socket);
        let mut other = socket.try_clone().unwrap();
        thread::scope(|scope| {
            let flooding = scope.spawn(move || {
                for _ in 0..200 {
                    frame::write(&mut other, frame::STDERR, &[b'x'; 60_000]).unwrap();
                }
            });
            while frame::read(&mut socket).unwrap().unwrap().kind != frame::CANCEL {}
            flooding.join().unwrap();
        });
        frame::write(&mut socket, frame::EXIT, br#"{"cancelled":true}"#).unwrap();
    });
    let End::Over(over) = end else { panic!("{end:?}") };
    assert_eq!(over.called_off, Some(CalledOff::Cancelled));
    assert!(over.report.is_some());
    assert_eq!(kept.bytes.len(), 60_000, "nothing goes to a taker that is gone");
}

/// A talk for which that signal has come before the other side speaks.
fn signalled(number: u8, other: impl FnOnce(UnixStream) + Send) -> End {
    let (numbers, signals) = bounded(1);
    numbers.send(number).unwrap();
    let feed = Feed { signals, ..Feed::empty() };
    let cancel = Cancel::never();
    let given = Given { feed: &feed, timeout: None, cancel: &cancel, ready_within: READY_LIMIT };
    with(&given, &mut Kept::default(), true, other)
}

#[test]
fn a_signal_ends_what_has_not_begun_and_another_waits_for_it() {
    let silent = |mut socket: UnixStream| drop(socket.read(&mut [0]));
    for number in [1, 2, 15] {
        assert_eq!(signalled(number, silent), End::Signalled(number));
    }
    let window_change = 28;
    let end = signalled(window_change, |mut socket| {
        frame::write(&mut socket, frame::READY, &[]).unwrap();
        let mut kinds = std::iter::from_fn(|| frame::read(&mut socket).unwrap());
        assert!(kinds.any(|it| (it.kind, &*it.payload) == (frame::SIGNAL, &[window_change][..])));
        frame::write(&mut socket, frame::EXIT, b"{}").unwrap();
    });
    assert!(matches!(end, End::Over(_)), "{end:?}");
}
