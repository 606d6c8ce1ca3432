//! The bytes of a request: content out, input in, both within their windows.
//! A gateway that cancels or leaves ends whatever is under way.

use std::io;

use tool_client::frame::{self, Frame};

use super::failure::{Code, Failure};
use crate::conversation::Conversation;

/// The conversation during one request.
pub(crate) struct Talk<'a> {
    conversation: &'a mut Conversation,
    input_ended: bool,
}

impl<'a> Talk<'a> {
    /// Goes on with that conversation after its request.
    pub(crate) fn new(conversation: &'a mut Conversation) -> Self {
        Self { conversation, input_ended: false }
    }

    /// Sends content, in order, waiting for the reader as long as it is there.
    pub(crate) fn give(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        for piece in bytes.chunks(frame::MAX_PAYLOAD) {
            while !self.conversation.has_room() {
                self.wait()?;
                self.stay()?;
            }
            self.conversation.queue(frame::STDOUT, piece);
            self.conversation.send();
        }
        Ok(())
    }

    /// An error once the gateway has cancelled or left: to be asked now and
    /// then by what takes long.
    pub(crate) fn stay(&mut self) -> Result<(), Failure> {
        self.conversation.send();
        if self.conversation.gone() || self.conversation.ended() {
            return Err(left());
        }
        match self.conversation.next() {
            Ok(None) => Ok(()),
            Ok(Some(Frame { kind: frame::STDIN_END, .. })) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(left()),
        }
    }

    /// The next piece of input; `None` at its end.
    pub(crate) fn take(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        while !self.input_ended {
            self.conversation.send();
            match self.conversation.next().map_err(|it| broken(&it.to_string()))? {
                Some(Frame { kind: frame::STDIN, payload }) => {
                    // What was taken is written at once: the window is its own
                    // bound, so all of it is granted again.
                    let grant = u32::try_from(payload.len()).unwrap_or(0);
                    self.conversation.queue(frame::WINDOW, &grant.to_be_bytes());
                    return Ok(Some(payload));
                }
                Some(Frame { kind: frame::STDIN_END, .. }) => self.input_ended = true,
                Some(Frame { kind: frame::CANCEL, .. }) => return Err(left()),
                Some(Frame { kind, .. }) => {
                    return Err(broken(&format!("a frame of kind {kind} makes no sense here")));
                }
                None if self.conversation.ended() || self.conversation.gone() => return Err(left()),
                None => self.wait()?,
            }
        }
        Ok(None)
    }

    /// Exactly so many bytes of input, handed on piece by piece.
    pub(crate) fn take_all(
        &mut self,
        bytes: u64,
        mut sink: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut missing = bytes;
        while missing > 0 {
            let Some(piece) = self.take()? else {
                return Err(broken(&format!("{missing} bytes of the content never came")));
            };
            missing = missing
                .checked_sub(piece.len() as u64)
                .ok_or_else(|| broken("more content came than was announced"))?;
            sink(&piece)?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Failure> {
        self.conversation.wait(None).map_err(|it: io::Error| broken(&it.to_string()))
    }
}

fn left() -> Failure {
    Failure::new(Code::Other, "it was called off; nothing was changed")
}

fn broken(why: &str) -> Failure {
    Failure::new(Code::Other, format!("the request is broken: {why}; nothing was changed"))
}
