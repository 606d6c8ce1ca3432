//! A whole HTTP answer as a value, and its bytes. Everything this gateway says
//! over HTTP but a stream is one of these, so that the door and the routes
//! behind it speak alike. One answer a connection, always.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

/// Content type of all answers but streams and figures.
const JSON: &str = "application/json";

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The HTTP status.
    pub(super) status: u16,
    /// Of the body.
    pub(super) content_type: &'static str,
    /// JSON text, unless the type says otherwise.
    pub(super) body: String,
    /// One header beyond those that every answer has.
    pub(super) further: Option<(&'static str, String)>,
}

impl Answer {
    /// 200 with a JSON document.
    pub(super) fn json(document: &impl Serialize) -> Self {
        match serde_json::to_string(document) {
            Ok(body) => Self { status: 200, content_type: JSON, body, further: None },
            Err(error) => Self::error(500, format!("write the answer: {error}")),
        }
    }

    /// `{"error":"…"}`; the text says what a person can do.
    pub(super) fn error(status: u16, text: impl Into<String>) -> Self {
        let body = json!({ "error": text.into() }).to_string();
        Self { status, content_type: JSON, body, further: None }
    }

    /// The same with one more header.
    #[must_use]
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.further = Some((name, value.into()));
        self
    }

    /// The same without a known secret in its body; `mask` is the engine's.
    #[must_use]
    pub(super) fn masked(mut self, mask: impl Fn(&str) -> String) -> Self {
        self.body = mask(&self.body);
        self
    }

    /// Writes head and body in one call and flushes.
    pub(super) fn write(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let mut bytes = head(self.status, self.content_type, Length::Exact(self.body.len()));
        if let Some((name, value)) = &self.further {
            bytes.truncate(bytes.len() - 2);
            bytes.push_str(&format!("{name}: {value}\r\n\r\n"));
        }
        bytes.push_str(&self.body);
        to.write_all(bytes.as_bytes())?;
        to.flush()
    }
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// So many bytes.
    Exact(usize),
    /// In chunks.
    Chunked,
    /// By the end of the connection (HTTP/1.0).
    UntilClose,
}

/// The head of an answer, with the empty line that ends it.
pub(super) fn head(status: u16, content_type: &str, length: Length) -> String {
    let length = match length {
        Length::Exact(bytes) => format!("Content-Length: {bytes}\r\n"),
        Length::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        Length::UntilClose => String::new(),
    };
    format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\n{length}Connection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n",
        reason(status)
    )
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_its_length_and_that_it_is_the_last() -> io::Result<()> {
        let mut bytes = Vec::new();
        Answer::error(405, "no").with("Allow", "GET").write(&mut bytes)?;
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: application/json\r\n\
             Content-Length: 14\r\nConnection: close\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nAllow: GET\r\n\r\n{\"error\":\"no\"}"
        );
        Ok(())
    }
}
