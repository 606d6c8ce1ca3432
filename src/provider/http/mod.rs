//! The other end of a dialect that speaks to a server: one POST a call, over
//! one connection that is kept warm between calls. A key goes to the server of
//! the configuration and nowhere else, so that no redirect is followed; every
//! text that comes from outside is masked before it becomes part of a fault.

mod agent;
mod client;
mod fault;
mod line;
mod roots;
mod target;

use std::io::{self, Read};
use std::sync::Arc;

use ureq::http::{Response, header};
use ureq::{Agent, Body};

pub use client::Client;
pub(super) use fault::is_distrust;
pub(crate) use roots::certificates;
pub(super) use target::Target;

use super::pool::{Carrier, Exchange};
use super::{Fault, Wire};
use roots::Roots;

/// Largest answer, in bytes as they come.
const LARGEST_ANSWER: usize = if cfg!(test) { 256 * 1024 } else { 64 * 1024 * 1024 };

/// Bytes of a refusal that are read.
const LARGEST_REFUSAL: usize = 8 * 1024;

/// Bytes behind the end of an answer that are read for the sake of the
/// connection.
const LONGEST_TAIL: usize = 64 * 1024;

/// Bytes that are read at a time.
const PIECE: usize = 4 * 1024;

/// One worker's connection to a server.
pub(super) struct Post {
    target: Arc<Target>,
    roots: Roots,
    /// Keeps the connection; gone after a call that failed or was cut.
    agent: Option<Agent>,
}

impl Carrier for Post {
    fn carry(&mut self, wire: &Wire, exchange: &mut Exchange) -> Result<(), Fault> {
        let carried = self.ask(wire, exchange);
        if !exchange.disarm() || carried.is_err() {
            self.agent = None;
        }
        carried.map_err(|it| self.target.mask(it))
    }
}

impl Post {
    pub(super) fn new(target: Arc<Target>) -> Self {
        let roots = Roots::first(&target);
        Self { target, roots, agent: None }
    }

    fn ask(&mut self, wire: &Wire, exchange: &mut Exchange) -> Result<(), Fault> {
        let response = self.post(wire, exchange)?;
        exchange.answered()?;
        let status = response.status();
        if status.is_success() {
            if let Some(coding) = coding(&response) {
                return Err(self.target.unreadable(coding));
            }
            return self.read_answer(response, exchange);
        }
        if status.is_redirection() {
            return Err(self.target.redirected(&response));
        }
        exchange.refused()?;
        Err(self.read_refusal(response))
    }

    /// The head of the response. A connection whose certificate only the other
    /// roots know is made anew: nothing was sent over it. What was sent is never
    /// sent again, also where the connection had been kept: whether the server
    /// had begun to answer cannot be known, and ureq looks whether it is still
    /// open before it uses it.
    fn post(&mut self, wire: &Wire, exchange: &Exchange) -> Result<Response<Body>, Fault> {
        let mut may_turn = true;
        loop {
            let agent = self.agent()?;
            let cut = agent.clone();
            exchange.arm(Box::new(move || cut.shutdown()))?;
            let mut outgoing = Outgoing { rest: &wire.body, exchange, has_begun: false };
            let error = match agent.run(self.target.request(wire, &mut outgoing)?) {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let has_begun = outgoing.has_begun;
            self.agent = None;
            if !exchange.disarm() {
                return Err(Fault::Cancelled);
            }
            if may_turn && !has_begun && fault::is_distrust(&error) && self.roots.turn(&self.target)
            {
                may_turn = false;
                continue;
            }
            return Err(fault::of_call(&self.target, &error, has_begun));
        }
    }

    fn agent(&mut self) -> Result<Agent, Fault> {
        if let Some(agent) = &self.agent {
            return Ok(agent.clone());
        }
        let agent = self.target.agent(self.roots.load(&self.target)?)?;
        self.agent = Some(agent.clone());
        Ok(agent)
    }

    fn read_answer(&self, response: Response<Body>, exchange: &mut Exchange) -> Result<(), Fault> {
        let mut reader = response.into_body().into_reader();
        let mut piece = vec![0; PIECE];
        let mut total = 0;
        loop {
            let read = match read(&mut reader, &mut piece) {
                Ok(0) => return exchange.end(),
                Ok(read) => read,
                Err(error) => return self.break_off(&error, exchange),
            };
            total += read;
            if total > LARGEST_ANSWER {
                return Err(self.target.endless(LARGEST_ANSWER));
            }
            exchange.heard(&piece[..read])?;
            if exchange.is_whole()? {
                drain(&mut reader, &mut piece);
                return Ok(());
            }
        }
    }

    /// The bytes broke off: by the other side in the middle of a body, whose
    /// rest nobody knows, or by us, since the other side was silent. Where the
    /// model had said why it stops, the latter has nothing more to say.
    fn break_off(&self, error: &io::Error, exchange: &mut Exchange) -> Result<(), Fault> {
        let ended = exchange.end();
        if exchange.has_stopped() && exchange.is_called_off() {
            return ended;
        }
        Err(fault::of_answer(&self.target, error))
    }

    fn read_refusal(&self, response: Response<Body>) -> Fault {
        let (head, body) = response.into_parts();
        let mut reader = body.into_reader();
        let mut text = vec![0; LARGEST_REFUSAL];
        let mut filled = 0;
        // A text that breaks off, or is cut since it takes too long, is
        // better than none.
        while filled < text.len() {
            match read(&mut reader, &mut text[filled..]) {
                Ok(0) | Err(_) => break,
                Ok(read) => filled += read,
            }
        }
        self.target.refused(&head, &text[..filled])
    }
}

/// How the body is packed, though nobody asked for it.
fn coding(response: &Response<Body>) -> Option<&str> {
    let coding = response.headers().get(header::CONTENT_ENCODING)?.to_str().unwrap_or("?");
    (!coding.eq_ignore_ascii_case("identity")).then_some(coding)
}

/// Reads to the end of the body, so that the connection can be used again. An
/// error, or too much, costs the connection only.
fn drain(reader: &mut impl Read, piece: &mut [u8]) {
    let mut left = LONGEST_TAIL;
    while let Ok(read) = read(reader, piece) {
        if read == 0 || read > left {
            return;
        }
        left -= read;
    }
}

fn read(reader: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            read => return read,
        }
    }
}

/// The body of a request, which tells how far it is: ureq asks for it once it
/// is connected.
struct Outgoing<'a> {
    rest: &'a [u8],
    exchange: &'a Exchange,
    has_begun: bool,
}

impl Read for Outgoing<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        self.has_begun = true;
        self.exchange.sent().map_err(|_| io::Error::other("the call was called off"))?;
        self.rest.read(piece)
    }
}

#[cfg(test)]
pub(super) mod tests;
