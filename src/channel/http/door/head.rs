//! The head of a request: read within its bounds, and parsed so that there is
//! one way to read it. Whatever is malformed or could be read two ways is
//! refused here; what the routes do not need is not carried further.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use httparse::{EMPTY_HEADER, Header, Status};

use super::stream::Stream;
use super::{End, Limits};
use crate::channel::http::answer::Answer;

/// Most header lines of a head.
const MOST_HEADERS: usize = 64;

/// A request's head, as far as anybody behind the door may know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::channel::http) struct Head {
    /// `GET`, `POST`, ….
    pub(in crate::channel::http) method: String,
    /// Path and query, as sent; begins with `/`, printable ASCII.
    pub(in crate::channel::http) target: String,
    /// Minor version of HTTP/1: 0 or 1.
    pub(in crate::channel::http) minor: u8,
    /// `Host`.
    pub(in crate::channel::http) host: Option<String>,
    /// `Origin`.
    pub(in crate::channel::http) origin: Option<String>,
    /// `Authorization`.
    pub(in crate::channel::http) authorization: Option<String>,
    /// The protocol to change to, if `Connection` asks for it too.
    pub(in crate::channel::http) upgrade: Option<String>,
    /// How the body ends.
    pub(super) body: Framing,
    /// The client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
}

/// How the end of a request's body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    Nothing,
    /// So many bytes.
    Exact(u64),
    /// In chunks.
    Chunked,
}

/// Reads a head; gives it with the bytes that came behind it.
pub(super) fn read(client: &Stream, limits: &Limits) -> Result<(Head, Vec<u8>), End> {
    let deadline = Instant::now() + limits.head_time;
    let mut bytes = Vec::with_capacity(1024);
    let mut piece = vec![0; 4096];
    loop {
        let seen = bytes.len();
        let room = piece.len().min(limits.head_bytes + 1 - seen);
        match read_before(client, &mut piece[..room], deadline)? {
            0 => return Err(End::Gone),
            length => bytes.extend_from_slice(&piece[..length]),
        }
        if let Some(length) = end_of_head(&bytes, seen) {
            let rest = bytes.split_off(length);
            return Ok((Head::parse(&bytes)?, rest));
        }
        if bytes[seen..].contains(&b'\n') {
            refuse_early(&bytes)?;
        }
        if bytes.len() > limits.head_bytes {
            return Err(Answer::error(431, "the head of a request may have 16 KiB").into());
        }
    }
}

/// One read that ends at the deadline, with 408.
fn read_before(client: &Stream, into: &mut [u8], deadline: Instant) -> Result<usize, End> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(too_slow().into());
    }
    client.set_read_timeout(Some(left)).map_err(|_| End::Gone)?;
    loop {
        return match (&mut &*client).read(into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(too_slow().into()),
            other => other.map_err(|_| End::Gone),
        };
    }
}

fn too_slow() -> Answer {
    Answer::error(408, "the head of a request must come within 10 seconds")
}

/// Where the head ends, looking only at what is new.
fn end_of_head(bytes: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(3);
    let tail = &bytes[from..];
    let strict = tail.windows(4).position(|it| it == b"\r\n\r\n").map(|at| from + at + 4);
    let loose = tail.windows(2).position(|it| it == b"\n\n").map(|at| from + at + 2);
    strict.into_iter().chain(loose).min()
}

/// A head that can no longer become sound is not waited for.
fn refuse_early(bytes: &[u8]) -> Result<(), Answer> {
    let mut headers = [EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(bytes).map(|_| ()).map_err(|error| malformed(error, bytes))
}

impl Head {
    /// Parses a whole head, the empty line included. Pure.
    pub(in crate::channel::http) fn parse(bytes: &[u8]) -> Result<Self, Answer> {
        check_line_ends(bytes)?;
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(Status::Complete(_)) => {}
            Ok(Status::Partial) => return Err(bad("the head is not complete")),
            Err(error) => return Err(malformed(error, bytes)),
        }
        let (Some(method), Some(target), Some(minor)) =
            (request.method, request.path, request.version)
        else {
            return Err(bad("the request line is not complete"));
        };
        check_target(target)?;
        let headers = Headers(request.headers);
        let host = headers.one("Host")?;
        if minor == 1 && host.is_none() {
            return Err(bad("`Host` is missing"));
        }
        let body = headers.framing(minor)?;
        Ok(Self {
            method: method.to_owned(),
            target: target.to_owned(),
            minor,
            host,
            origin: headers.one("Origin")?,
            authorization: headers.one("Authorization")?,
            upgrade: headers.upgrade(minor)?,
            body,
            expects_continue: headers.expects_continue(minor)?,
        })
    }

    /// Whether nothing follows the head.
    pub(in crate::channel::http) fn has_no_body(&self) -> bool {
        matches!(self.body, Framing::Nothing | Framing::Exact(0))
    }
}

fn bad(text: impl Into<String>) -> Answer {
    Answer::error(400, text)
}

fn malformed(error: httparse::Error, bytes: &[u8]) -> Answer {
    match error {
        httparse::Error::Version if is_other_version(bytes) => {
            Answer::error(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
        }
        httparse::Error::TooManyHeaders => Answer::error(431, "a request may have 64 header lines"),
        error => bad(format!("malformed request: {error}")),
    }
}

/// Tells HTTP/2.0 from a line that names no version at all.
fn is_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|it| *it == b'\r' || *it == b'\n').find(|it| !it.is_empty());
    line.is_some_and(|it| it.split(|byte| *byte == b' ').nth(2).is_some_and(is_version))
}

fn is_version(word: &[u8]) -> bool {
    word.starts_with(b"HTTP/")
}

/// Lines end in CRLF: a lone CR or LF is read differently by different
/// programs, and so is a NUL.
fn check_line_ends(bytes: &[u8]) -> Result<(), Answer> {
    let lone = |(at, byte): (usize, &u8)| match byte {
        b'\n' => at == 0 || bytes[at - 1] != b'\r',
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        0 => true,
        _ => false,
    };
    match bytes.iter().enumerate().any(lone) {
        true => Err(bad("a head may hold no lone CR or LF and no NUL")),
        false => Ok(()),
    }
}

/// `/…` only: `http://host/…` would name the host a second time.
fn check_target(target: &str) -> Result<(), Answer> {
    if target.starts_with('/') && target.bytes().all(|it| it.is_ascii_graphic()) {
        return Ok(());
    }
    Err(bad("the request target must be a path that begins with `/`, in ASCII"))
}

/// Header lines, looked up by name.
struct Headers<'a>(&'a [Header<'a>]);

impl Headers<'_> {
    /// All values under a name.
    fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |it| it.name.eq_ignore_ascii_case(name)).map(|it| it.value)
    }

    /// The one value under a name; two of them are refused, and so is one
    /// that is not ASCII.
    fn one(&self, name: &str) -> Result<Option<String>, Answer> {
        let mut values = self.all(name);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(bad(format!("`{name}` is given twice")));
        }
        match std::str::from_utf8(value) {
            Ok(text) if text.is_ascii() => Ok(Some(text.trim().to_owned())),
            _ => Err(bad(format!("`{name}` must be ASCII"))),
        }
    }

    fn framing(&self, minor: u8) -> Result<Framing, Answer> {
        let length = self.one("Content-Length")?;
        match (self.one("Transfer-Encoding")?, length) {
            (None, None) => Ok(Framing::Nothing),
            (None, Some(length)) => content_length(&length).map(Framing::Exact),
            (Some(_), Some(_)) => Err(bad("`Content-Length` beside `Transfer-Encoding`")),
            (Some(_), None) if minor == 0 => Err(bad("HTTP/1.0 has no `Transfer-Encoding`")),
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
            (Some(_), None) => Err(bad("`Transfer-Encoding` may only be `chunked`")),
        }
    }

    fn upgrade(&self, minor: u8) -> Result<Option<String>, Answer> {
        let protocol = self.one("Upgrade")?;
        let is_word = |it: &[u8]| it.trim_ascii().eq_ignore_ascii_case(b"upgrade");
        let asked = self.all("Connection").any(|it| it.split(|byte| *byte == b',').any(is_word));
        Ok(protocol.filter(|_| asked && minor == 1))
    }

    fn expects_continue(&self, minor: u8) -> Result<bool, Answer> {
        match self.one("Expect")? {
            None => Ok(false),
            Some(it) if it.eq_ignore_ascii_case("100-continue") => Ok(minor == 1),
            Some(_) => Err(Answer::error(417, "`Expect` may only be `100-continue`")),
        }
    }
}

/// Digits only: no sign, no list, no second value; longer than any body we
/// take is told apart from malformed, so that the client learns why.
fn content_length(text: &str) -> Result<u64, Answer> {
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(bad("`Content-Length` must be a number"));
    }
    Ok(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, want: Result<Framing, u16>) {
        let found = Head::parse(head.as_bytes()).map(|it| it.body).map_err(|it| it.status);
        assert_eq!(found, want, "{head:?}");
    }

    /// A sound POST with further header lines.
    fn with(lines: &str) -> String {
        format!("POST /a HTTP/1.1\r\nHost: x\r\n{lines}\r\n")
    }

    #[test]
    fn a_body_has_one_end_or_the_request_is_refused() {
        check(&with(""), Ok(Framing::Nothing));
        check(&with("Content-Length: 5\r\n"), Ok(Framing::Exact(5)));
        check(&with("Transfer-Encoding: Chunked\r\n"), Ok(Framing::Chunked));
        for ambiguous in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length:\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding : chunked\r\n",
            " Transfer-Encoding: chunked\r\n",
        ] {
            check(&with(ambiguous), Err(400));
        }
        check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Err(400));
        check(&with("Content-Length: 99999999999999999999999\r\n"), Ok(Framing::Exact(u64::MAX)));
    }

    #[test]
    fn heads_that_can_be_read_two_ways_are_refused() {
        for head in [
            "GET /a HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: x\r\nOrigin: a\r\nOrigin: b\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
            "GET /a HTTP/1.1\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: x\rX: y\r\n\r\n",
            "GET /a HTTP/1.1\nHost: x\n\n",
            "GET /a HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
            "GET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: x\r\nA: b\0\r\n\r\n",
            "GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
            "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /\u{e9} HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /a\r\n\r\n",
            "\r\n\r\n",
        ] {
            check(head, Err(400));
        }
    }

    #[test]
    fn other_versions_are_told_so() {
        for head in ["PRI * HTTP/2.0\r\n\r\n", "GET / HTTP/0.9\r\n\r\n", "GET / HTTP/1.2\r\n\r\n"] {
            check(head, Err(505));
        }
        check("GET / HTTP/1.0\r\n\r\n", Ok(Framing::Nothing));
    }

    #[test]
    fn too_many_lines_are_too_many() {
        check(&with(&"A: b\r\n".repeat(63)), Ok(Framing::Nothing));
        check(&with(&"A: b\r\n".repeat(64)), Err(431));
    }

    #[test]
    fn an_upgrade_counts_only_if_the_connection_says_so() {
        let upgrade = |lines: &str| Head::parse(with(lines).as_bytes()).map(|it| it.upgrade);
        let ours = Ok(Some("beige-exec/1".to_owned()));
        assert_eq!(upgrade("Upgrade: beige-exec/1\r\nConnection: a, Upgrade\r\n"), ours);
        assert_eq!(upgrade("Upgrade: beige-exec/1\r\n"), Ok(None));
        assert_eq!(upgrade("Connection: upgrade\r\n"), Ok(None));
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_reads_end() {
        let bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nrest";
        for cut in 0..bytes.len() - 4 {
            let early = end_of_head(&bytes[..cut], 0);
            assert_eq!(early.or_else(|| end_of_head(bytes, cut)), Some(bytes.len() - 4), "{cut}");
        }
    }
}
