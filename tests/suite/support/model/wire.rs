//! HTTP as a test model speaks it: reads requests whole, writes what a script
//! says.

use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;

use super::script::{Answer, Framing};

/// Longest line of a head, and most lines of one.
const LINE: u64 = 65_536;
const LINES: usize = 200;

/// Largest body.
const BODY: usize = 64 << 20;

/// A request's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    /// The values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let found = self.headers.iter().filter(|it| it.0 == name);
        found.map(|it| it.1.as_str()).collect()
    }

    /// Whether the client wants the connection closed after the answer.
    pub(super) fn wants_close(&self) -> bool {
        self.all("connection").iter().any(|it| it.eq_ignore_ascii_case("close"))
    }
}

/// The next request; `None` if the client is gone before one began. An error
/// says what does not read.
pub(super) fn read_request(from: &mut impl BufRead) -> Result<Option<(Head, Vec<u8>)>, String> {
    let Some(head) = read_head(from)? else { return Ok(None) };
    let lengths = head.all("content-length");
    let codings = head.all("transfer-encoding");
    let body = match (lengths.as_slice(), codings.as_slice()) {
        ([length], []) => {
            let length = length.parse().map_err(|_| format!("content-length {length}"))?;
            read_exactly(from, length)?
        }
        ([], ["chunked"]) => read_chunks(from)?,
        other => return Err(format!("a body delimited by {other:?}")),
    };
    Ok(Some((head, body)))
}

fn read_head(from: &mut impl BufRead) -> Result<Option<Head>, String> {
    // A client that was killed may leave a reset connection behind.
    let Ok(first) = read_line(from) else { return Ok(None) };
    if first.is_empty() {
        return Ok(None);
    }
    let words: Vec<&str> = first.split(' ').collect();
    let [method, path, "HTTP/1.1"] = words.as_slice() else {
        return Err(format!("the request line {first:?}"));
    };
    let mut head =
        Head { method: (*method).to_owned(), path: (*path).to_owned(), headers: Vec::new() };
    for _ in 0..LINES {
        let line = read_line(from)?;
        if line.is_empty() {
            return Ok(Some(head));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| format!("the line {line:?}"))?;
        head.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Err(format!("more than {LINES} lines of head"))
}

/// A line without its end; empty at the end of the stream.
fn read_line(from: &mut impl BufRead) -> Result<String, String> {
    let mut line = Vec::new();
    from.take(LINE).read_until(b'\n', &mut line).map_err(|it| it.to_string())?;
    if line.is_empty() {
        return Ok(String::new());
    }
    let text = line.strip_suffix(b"\r\n").ok_or("a line that does not end with CRLF")?;
    String::from_utf8(text.to_vec()).map_err(|it| it.to_string())
}

fn read_exactly(from: &mut impl BufRead, length: usize) -> Result<Vec<u8>, String> {
    if length > BODY {
        return Err(format!("a body of {length} bytes"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).map_err(|it| format!("a body that is cut: {it}"))?;
    Ok(bytes)
}

fn read_chunks(from: &mut impl BufRead) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        let line = read_line(from)?;
        let size = usize::from_str_radix(&line, 16).map_err(|_| format!("a chunk of {line:?}"))?;
        body.extend(read_exactly(from, size)?);
        let end = read_line(from)?;
        if !end.is_empty() || body.len() > BODY {
            return Err(format!("{end:?} after a chunk"));
        }
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Writes a script's bytes as its framing has them.
pub(super) struct Writer<'a> {
    stream: &'a TcpStream,
    framing: Framing,
    piece: usize,
}

impl<'a> Writer<'a> {
    /// Writes the head; `length` is that of the whole body.
    pub(super) fn begin(stream: &'a TcpStream, answer: &Answer, length: usize) -> io::Result<Self> {
        let writer = Self { stream, framing: answer.framing, piece: answer.piece };
        let framing = match answer.framing {
            Framing::Raw => return Ok(writer),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            Framing::UntilClose => "Connection: close\r\n".to_owned(),
            Framing::Length => format!("Content-Length: {length}\r\n"),
        };
        let headers = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let headers: String = headers.collect();
        let head = format!("HTTP/1.1 {} Because\r\n{headers}{framing}\r\n", answer.status);
        writer.write(head.as_bytes())?;
        Ok(writer)
    }

    pub(super) fn body(&self, bytes: &[u8]) -> io::Result<()> {
        if self.framing != Framing::Chunked {
            return self.write(bytes);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let size = format!("{:x}\r\n", bytes.len());
        self.write(&[size.as_bytes(), bytes, b"\r\n"].concat())
    }

    /// The end of the body; whether the connection can take another request.
    pub(super) fn end(&self) -> io::Result<bool> {
        if self.framing == Framing::Chunked {
            self.write(b"0\r\n\r\n")?;
        }
        Ok(matches!(self.framing, Framing::Chunked | Framing::Length))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self.stream;
        bytes.chunks(self.piece).try_for_each(|it| stream.write_all(it))
    }
}
