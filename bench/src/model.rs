//! A model server of the OpenAI chat completions protocol that answers at
//! once, or with events at a pace; which of it, the path of its URL says.
//!
//! It and who listens to the gateway's streams are one process, so the time
//! that stands in an event and the time at its arrival are of one clock.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// Longest head and body that a gateway sends here, in bytes.
const MAX_HEAD: u64 = 64 * 1024;
const MAX_BODY: u64 = 64 * 1024 * 1024;

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Events of text; 0 is one word in one piece.
    pub(crate) events: usize,
    /// Pause before each.
    pub(crate) pause: Duration,
}

impl Pace {
    /// An answer of one word, at once.
    pub(crate) const AT_ONCE: Self = Self { events: 0, pause: Duration::ZERO };

    /// Where a server answers at that pace.
    pub(crate) fn path(self) -> String {
        format!("/{}/{}/v1", self.events, self.pause.as_micros())
    }

    fn of_path(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let events = parts.next()?.parse().ok()?;
        let pause = Duration::from_micros(parts.next()?.parse().ok()?);
        Some(Self { events, pause })
    }
}

/// Starts a server for the rest of this process; its base URL for that pace.
pub(crate) fn serve(pace: Pace) -> Result<String> {
    static PORT: OnceLock<u16> = OnceLock::new();
    let port = match PORT.get() {
        Some(port) => *port,
        None => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let port = listener.local_addr()?.port();
            thread::spawn(move || accept(&listener));
            *PORT.get_or_init(|| port)
        }
    };
    Ok(format!("http://127.0.0.1:{port}{}", pace.path()))
}

/// Nanoseconds on the clock that stands in events.
pub(crate) fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let elapsed = BEGAN.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

fn accept(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        // A client that is gone ends its thread; nobody needs to hear of it.
        thread::spawn(move || drop(converse(&stream)));
    }
}

/// One connection to its end.
fn converse(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(path) = read_request(&mut reader)? {
        let pace = Pace::of_path(&path).ok_or("a path without a pace")?;
        answer(stream, pace)?;
    }
    Ok(())
}

/// Takes a whole request; its path, or `None` at the end of the connection.
fn read_request(from: &mut impl BufRead) -> Result<Option<String>> {
    let mut head = from.take(MAX_HEAD);
    let (mut path, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if path.is_none() {
            path = line.split(' ').nth(1).map(str::to_owned);
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse::<u64>()?.min(MAX_BODY);
        }
    }
    std::io::copy(&mut from.take(length), &mut std::io::sink())?;
    Ok(path)
}

fn answer(mut stream: &TcpStream, pace: Pace) -> Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    if pace.events == 0 {
        let body = [said("fine"), finished()].concat();
        let length = body.len();
        let whole = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        return Ok(stream.write_all(whole.as_bytes())?);
    }
    stream.write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes())?;
    for _ in 0..pace.events {
        if !pace.pause.is_zero() {
            thread::sleep(pace.pause);
        }
        stream.write_all(chunk(&said(&format!("{:020} ", now()))).as_bytes())?;
    }
    let end = chunk(&finished()) + "0\r\n\r\n";
    Ok(stream.write_all(end.as_bytes())?)
}

fn said(text: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

fn finished() -> String {
    "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\
     \"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
     data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[],\
     \"usage\":{\"prompt_tokens\":10,\"completion_tokens\":1,\"total_tokens\":11}}\n\n\
     data: [DONE]\n\n"
        .to_owned()
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_the_pace() {
        let pace = Pace { events: 200, pause: Duration::from_micros(5000) };
        assert_eq!(Pace::of_path(&(pace.path() + "/chat/completions")), Some(pace));
        assert_eq!(Pace::of_path("/v1/chat/completions"), None);
    }

    #[test]
    fn requests_are_told_apart_by_their_lengths() {
        let mut bytes: &[u8] =
            b"POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcPOST /b HTTP/1.1\r\n\r\n";
        assert_eq!(read_request(&mut bytes).expect("sound").as_deref(), Some("/a"));
        assert_eq!(read_request(&mut bytes).expect("sound").as_deref(), Some("/b"));
        assert_eq!(read_request(&mut bytes).expect("the end"), None);
    }
}
