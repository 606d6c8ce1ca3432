//! Tool calls as text, for models whose servers know no native ones. Pure, and
//! around any dialect: the tools are told in the system prompt, calls and
//! results go out as text, and what the model writes between the markers
//! becomes calls again. Nothing of it happens for a model with native calls:
//! there, what stands in prose is prose.

mod call;
mod code;
mod scan;
mod told;

use super::body::broken;
use super::events::{MOST_BLOCKS, TooMany};
use super::{CallPiece, Decoder, Delta, Fault, Origin, Provider, Request, Wire};
use crate::message::StopReason;
use scan::{Piece, Scanner};

/// What begins a call.
const OPENING: &str = "<tool_call>";

/// What ends a call.
const CLOSING: &str = "</tool_call>";

/// Most calls of one answer.
const MOST_CALLS: u64 = MOST_BLOCKS as u64;

/// The slot of the first call that is read from text; those below are left to
/// the dialect, if its server makes native calls after all.
const FIRST_SLOT: u64 = 1 << 32;

/// A request in the words of a dialect, and the decoder of its answer.
pub(super) fn speak(
    dialect: &dyn Provider,
    request: &Request<'_>,
    origin: &Origin<'_>,
) -> Result<(Wire, Box<dyn Decoder>), Fault> {
    let (system, messages) = (told::system(request), told::messages(request.messages));
    let plain = Request { system: &system, messages: &messages, tools: &[], ..*request };
    let wire = dialect.encode(&plain, origin)?;
    let decoder = dialect.decoder();
    if request.tools.is_empty() {
        // Nothing was offered, so that nothing is called.
        return Ok((wire, decoder));
    }
    Ok((wire, Box::new(Calls::new(&request.model.provider, decoder))))
}

/// Finds the calls in the text of an answer.
struct Calls {
    provider: String,
    inner: Box<dyn Decoder>,
    scanner: Scanner,
    /// Calls so far.
    count: u64,
    has_stopped: bool,
}

impl Decoder for Calls {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let mut came = Vec::new();
        let fed = self.inner.feed(bytes, &mut came);
        self.take(came, deltas)?;
        fed
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let mut came = Vec::new();
        let ended = self.inner.end(&mut came);
        self.take(came, deltas)?;
        if !self.has_stopped {
            // The answer is cut: a call that had begun is no text.
            deltas.extend(self.scanner.cut().map(Delta::Text));
        }
        ended
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }
}

impl Calls {
    fn new(provider: &str, inner: Box<dyn Decoder>) -> Self {
        let provider = provider.to_owned();
        Self { provider, inner, scanner: Scanner::default(), count: 0, has_stopped: false }
    }

    fn take(&mut self, came: Vec<Delta>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for delta in came {
            match delta {
                Delta::Text(text) => {
                    let mut pieces = Vec::new();
                    self.scanner.feed(&text, &mut pieces);
                    self.pass_on(pieces, deltas)?;
                }
                Delta::Stop(reason) => self.stop(reason, deltas)?,
                other => deltas.push(other),
            }
        }
        Ok(())
    }

    /// The model has said all: what was held is told, and that it waits for
    /// results if it called a tool.
    fn stop(&mut self, reason: StopReason, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let mut pieces = Vec::new();
        self.scanner.end(reason == StopReason::Length, &mut pieces);
        self.pass_on(pieces, deltas)?;
        self.has_stopped = true;
        let waits = reason == StopReason::Stop && self.count > 0;
        deltas.push(Delta::Stop(if waits { StopReason::ToolUse } else { reason }));
        Ok(())
    }

    fn pass_on(&mut self, pieces: Vec<Piece>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => deltas.push(Delta::Text(text)),
                Piece::Call(_) if self.count == MOST_CALLS => {
                    return Err(broken(&self.provider, &TooMany("tool calls").to_string()));
                }
                Piece::Call(text) => {
                    let (name, arguments) = call::read(&text);
                    let slot = FIRST_SLOT + self.count;
                    let (id, name) = (None, Some(name));
                    deltas.push(Delta::ToolCall(CallPiece { slot, id, name, arguments }));
                    self.count += 1;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
