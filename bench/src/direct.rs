//! The model server asked without a gateway, as a client of a provider asks
//! one: over one connection that is kept, event by event.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::{Result, http};

/// Longest wait for a byte.
const PATIENCE: Duration = Duration::from_secs(300);

/// A connection to a model server.
pub(crate) struct Direct {
    stream: BufReader<TcpStream>,
    path: String,
}

impl Direct {
    /// To the server at that base URL.
    pub(crate) fn open(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("http://").ok_or("not a plain URL")?;
        let (address, path) = rest.split_at(rest.find('/').ok_or("a URL without a path")?);
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream), path: format!("{path}/chat/completions") })
    }

    /// Asks, and passes on each piece of text as it comes.
    pub(crate) fn ask(&mut self, body: &Value, mut each: impl FnMut(&str)) -> Result<()> {
        let body = body.to_string();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: model\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.path,
            body.len()
        );
        self.stream.get_mut().write_all((head + &body).as_bytes())?;
        http::read_head(&mut self.stream)?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("the model server hung up".into());
            }
            // Other lines are sizes of chunks and the space between events.
            let Some(data) = line.strip_prefix("data: ") else { continue };
            if data.trim_end() == "[DONE]" {
                return self.end();
            }
            let event: Value = serde_json::from_str(data)?;
            if let Some(text) = event["choices"][0]["delta"]["content"].as_str() {
                each(text);
            }
        }
    }

    /// Reads the end of the body, so that the connection can be used again: an
    /// empty line, the end of the chunk, and the last one.
    fn end(&mut self) -> Result<()> {
        let mut rest = [0; b"\n\r\n0\r\n\r\n".len()];
        self.stream.read_exact(&mut rest)?;
        if rest.ends_with(b"0\r\n\r\n") { Ok(()) } else { Err("an answer without its end".into()) }
    }
}
