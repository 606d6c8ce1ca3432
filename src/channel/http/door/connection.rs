//! One connection from its first byte to its last: one request, one answer.
//! Nothing behind the door sees a byte of it before the request is whole,
//! sound and known to come from somebody who may call.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::body::{self, Body};
use super::guard::{Caller, Guard};
use super::head::{self, Head};
use super::places::Place;
use super::stream::{Stream, Way};
use super::turns::{LARGE, Turns};
use super::{Behind, End, Limits, Upgraded};
use crate::channel::http::answer::Answer;
use crate::worker::Cancel;

/// Bytes of an answer that are copied at a time: few, since most answers are
/// short or come in small pieces, and many clients may wait.
const SMALL_PIECE: usize = 2 * 1024;

/// Bytes that are copied at a time once an answer is long and comes fast.
const LARGE_PIECE: usize = 16 * 1024;

/// An answer is long from so many bytes on.
const LONG_ANSWER: u64 = 64 * 1024;

/// What every connection needs to know.
pub(super) struct Rules {
    pub(super) guard: Guard,
    pub(super) limits: Limits,
    pub(super) behind: Arc<dyn Behind>,
    pub(super) folder: Box<Path>,
    pub(super) large: Turns,
    pub(super) closing: Cancel,
}

/// A request that may pass.
enum Request {
    Plain { head: Head, caller: Caller, body: Body },
    Upgrade { head: Head, early: Vec<u8> },
}

/// Serves one connection; returns when it is over.
pub(super) fn serve(client: &Arc<Stream>, place: &Place, rules: &Rules) {
    let outcome = receive(client, place, rules).and_then(|request| match request {
        Request::Plain { head, caller, body } => relay(client, place, rules, &head, caller, body),
        Request::Upgrade { head, early } => upgrade(client, rules, head, early),
    });
    if let Err(End::Refused(answer)) = outcome {
        let _ = answer.write(&mut &**client);
    }
    place.dismiss();
    see_off(client, &rules.limits);
}

fn receive(client: &Stream, place: &Place, rules: &Rules) -> Result<Request, End> {
    let limits = &rules.limits;
    client.set_write_timeout(Some(limits.write_pause)).map_err(|_| End::Gone)?;
    let (head, rest) = head::read(client, limits)?;
    let way = client.way().map_err(|_| End::Gone)?;
    let caller = rules.guard.admit(&head, way)?;
    // A stranger may ask for health, but keeps giving way to others.
    if caller == Caller::Owner && !place.admit() {
        return Err(End::Gone);
    }
    if rules.behind.is_upgrade(&head) {
        return match head.has_no_body() {
            true => Ok(Request::Upgrade { head, early: rest }),
            false => Err(Answer::error(400, "a request that upgrades may have no body").into()),
        };
    }
    body::check_length(head.body, limits)?;
    if head.expects_continue && !head.has_no_body() && rest.is_empty() {
        (&mut &*client).write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|_| End::Gone)?;
    }
    let body = body::read(client, &rest, head.body, limits, &rules.folder)?;
    Ok(Request::Plain { head, caller, body })
}

/// Joins the request to tiny_http and the answer to the client.
fn relay(
    client: &Stream,
    place: &Place,
    rules: &Rules,
    head: &Head,
    caller: Caller,
    body: Body,
) -> Result<(), End> {
    let _turn = match body.length() {
        ..LARGE => None,
        LARGE.. => Some(rules.large.wait(rules.limits.large_wait, &rules.closing)?),
    };
    let inner = Arc::new(rules.behind.connect().map_err(|it| not_joined(&it))?);
    if !place.join(&inner) {
        return Err(End::Gone);
    }
    hand_over(&inner, rules, head, caller, body).map_err(|it| not_joined(&it))?;
    let copied = copy(&inner, client, rules.limits.write_pause);
    let _ = inner.shutdown(Shutdown::Both);
    match copied {
        Ok(0) => Err(Answer::error(500, "no answer came; the request may have been begun").into()),
        Ok(_) => Ok(()),
        // Whoever works on it sees the same.
        Err(_) => Err(End::Gone),
    }
}

/// Nothing was begun: a request that is not whole is not worked on.
fn not_joined(error: &io::Error) -> End {
    log::error!("a request cannot be joined to the server behind the door: {error}");
    Answer::error(503, "the gateway has no room for this request; try again").into()
}

fn hand_over(
    inner: &UnixStream,
    rules: &Rules,
    head: &Head,
    caller: Caller,
    body: Body,
) -> io::Result<()> {
    inner.set_write_timeout(Some(rules.limits.write_pause))?;
    let lines = inner_head(head, caller, &rules.behind.password(), body.length());
    let mut to = inner;
    body.write_to(lines.into_bytes(), &mut to)?;
    // The end of the request is what frees tiny_http's thread; one that has
    // ended already needs none.
    let _ = inner.shutdown(Shutdown::Write);
    Ok(())
}

/// The head that tiny_http gets: the request line and our own marks. Nothing
/// of the client's headers is passed on, since no route reads one.
fn inner_head(head: &Head, caller: Caller, password: &str, length: u64) -> String {
    let Head { method, target, minor, .. } = head;
    let caller = match caller {
        Caller::Owner => "owner",
        Caller::Stranger => "stranger",
    };
    format!(
        "{method} {target} HTTP/1.{minor}\r\nHost: door\r\nConnection: close\r\n\
         Content-Length: {length}\r\nX-Beige-Caller: {caller}\r\nX-Beige-Door: {password}\r\n\r\n"
    )
}

/// Copies the answer as it comes, up to its end; gives the number of bytes. An
/// error means that the client takes none for too long, or is gone.
fn copy(mut from: &UnixStream, client: &Stream, pause: Duration) -> io::Result<u64> {
    let mut piece = vec![0; SMALL_PIECE];
    let mut copied = 0;
    loop {
        let length = match from.read(&mut piece) {
            Ok(0) => return Ok(copied),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Ok(copied), // Cut short; the client sees it by its length.
        };
        write_within(&mut &*client, &piece[..length], pause)?;
        copied += length as u64;
        if copied >= LONG_ANSWER && length == SMALL_PIECE {
            piece.resize(LARGE_PIECE, 0);
        }
    }
}

/// Writes all of it in `limit`, or fails: a kernel that takes a few bytes more
/// each time must not start the wait anew.
fn write_within(to: &mut impl Write, mut bytes: &[u8], limit: Duration) -> io::Result<()> {
    let began = Instant::now();
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if !bytes.is_empty() && began.elapsed() >= limit {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn upgrade(client: &Arc<Stream>, rules: &Rules, head: Head, early: Vec<u8>) -> Result<(), End> {
    let stream = Upgraded { client: Arc::clone(client), early };
    rules.behind.upgrade(&head, stream).map_err(End::from)
}

/// Closing a TCP connection on unread bytes would take back the answer that
/// is still under way, so what comes is read, for a moment, into nothing.
fn see_off(client: &Stream, limits: &Limits) {
    client.end(Shutdown::Write);
    if !matches!(client.way(), Ok(Way::Tcp(_))) {
        return;
    }
    let deadline = Instant::now() + limits.linger;
    let mut piece = vec![0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let is_over = left.is_zero() || client.set_read_timeout(Some(left)).is_err();
        if is_over || !matches!((&mut &*client).read(&mut piece), Ok(1..)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_door_only_the_doors_own_marks_are_seen() {
        let sent = "POST /a?b HTTP/1.0\r\nX-Beige-Caller: owner\r\nX-Beige-Door: x\r\n\
                    Connection: keep-alive\r\nContent-Length: 2\r\n\r\n";
        let lines = Head::parse(sent.as_bytes())
            .map(|head| inner_head(&head, Caller::Stranger, "secret", 2));
        assert_eq!(
            lines.as_deref(),
            Ok("POST /a?b HTTP/1.0\r\nHost: door\r\nConnection: close\r\nContent-Length: 2\r\n\
                X-Beige-Caller: stranger\r\nX-Beige-Door: secret\r\n\r\n")
        );
    }

    /// Takes one byte at a time.
    struct Drip(Vec<u8>);

    impl Write for Drip {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.extend(bytes.first());
            Ok(bytes.len().min(1))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_drip_does_not_start_the_wait_anew() {
        let mut drip = Drip(Vec::new());
        let cut = write_within(&mut drip, b"abc", Duration::ZERO);
        assert_eq!(cut.map_err(|it| it.kind()), Err(ErrorKind::TimedOut));
        assert_eq!(drip.0, b"a");
        assert!(write_within(&mut drip, b"bc", Duration::from_secs(3_600)).is_ok());
        assert_eq!(drip.0, b"abc");
    }
}
